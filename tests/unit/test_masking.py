"""What hides a removal's error: budgets from the exact curve, what several states tell together,
what is promised.
"""

import math
from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr

from agt.facts import Standing
from agt.numeric import gaussian_delta, gaussian_mu
from agt.settings import plain_of
from agt.store.reading import Broken
from agt.templates import upward
from agt.training.removal import removal_budget
from agt.training.settings import RemovalConfig
from agt.unlearning.newton_promise import joint_epsilon, promise_after_removal
from agt.unlearning.sentences import Remark
from agt_cli.verify.removals import check_promise

SQUARES = RemovalConfig(loss="least_squares", masking="none", sigma=0.0)
OUTPUT = RemovalConfig(masking="output", sigma=0.1)


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("delta", [1e-6, 1e-4, 1e-2])
def test_the_exact_curve_allows_more_than_the_papers_rule(eps, delta):
    config = RemovalConfig(masking="loss", sigma=3.0, eps=eps, delta=delta)
    budget = removal_budget(config, 7.0)
    assert budget > 1.1 * 3.0 * eps / math.sqrt(2 * math.log(1.5 / delta))  # 003's
    assert gaussian_delta(eps, budget / 3.0) <= delta
    assert removal_budget(replace(config, masking="output"), 7.0) == pytest.approx(
        7.0 * budget - config.tolerance
    )


def test_several_states_cost_more_by_the_root_of_their_number():
    mu = gaussian_mu(1.0, 1e-4)
    assert joint_epsilon(1.0, 1e-4, 1) == pytest.approx(1.0, rel=1e-6)
    joint = joint_epsilon(1.0, 1e-4, 9)
    assert gaussian_delta(joint, 3 * mu) <= 1e-4 < gaussian_delta(joint * (1 - 1e-6), 3 * mu)
    assert 3 < joint < 9  # less than adding epsilons up


def test_each_masking_says_what_it_does_not_hold():
    of_loss = promise_after_removal(RemovalConfig(masking="loss"), 0.01, 5.0)
    assert not of_loss.adaptive
    assert not of_loss.proved
    assert of_loss.terms[0] == Remark("close_as_published", {"eps": 1.0, "delta": 1e-4})
    void = {fact.code for fact in of_loss.assumptions if fact.standing is Standing.VOID}
    assert "residual_depends_on_noise" in void
    assert Remark("proof_has_gap") in of_loss.terms
    of_output = promise_after_removal(OUTPUT, removal_budget(OUTPUT, 5.0), 5.0)
    assert of_output.adaptive
    assert of_output.proved
    assert {fact.standing for fact in of_output.assumptions} == {Standing.PROVED}
    assert of_output.terms[0] == Remark("close", {"eps": 1.0, "delta": 1e-4})
    assert "residual_depends_on_noise" not in {fact.code for fact in of_output.assumptions}
    assert "noise_drawn_anew" in {fact.code for fact in of_output.assumptions}
    squares = promise_after_removal(SQUARES, 1e-9, 5.0)
    assert squares.exact
    assert [term.code for term in squares.terms] == ["near_retrained", "near_minimiser"]
    assert "2.01e-10" in squares.sentences[1]


@pytest.mark.parametrize("spent", [1.0, 0.3, 0.01, 0.0])
@pytest.mark.parametrize("tolerance", [1e-9, 0.05])
def test_a_state_promises_what_it_has(spent, tolerance):
    """Served and retrained as far apart as two gradients let them be, every threshold: nothing
    tells more.
    """
    config = RemovalConfig(masking="output", sigma=0.3, delta=1e-3, tolerance=tolerance)
    strength = 4.0
    residual = spent * removal_budget(config, strength)
    made = promise_after_removal(config, residual, strength)
    mu = (residual + tolerance) / (strength * config.sigma)
    assert gaussian_delta(made.eps, mu) <= config.delta
    assert made.eps == 0 or gaussian_delta(made.eps * 0.9999, mu) > config.delta, (
        "and nothing is given away"
    )
    assert made.eps <= config.eps
    # from the minimiser, on its two sides
    served = residual / strength
    anew = -tolerance / strength
    for threshold in np.linspace(-3, 3, 200):
        above, below = (ndtr((mean - threshold) / config.sigma) for mean in (served, anew))
        assert above <= math.exp(made.eps) * below + config.delta
        assert 1 - below <= math.exp(made.eps) * (1 - above) + config.delta


def test_the_numbers_of_a_state_are_never_below_in_words():
    made = promise_after_removal(OUTPUT, 0.012, 5.0)
    assert 0 < made.eps < 0.1
    shown = float(made.sentences[0].split("(")[1].split(",")[0])
    assert made.eps <= shown <= made.eps * 1.01
    assert Remark("at_most", {"eps": 1.0, "delta": 1e-4}) in made.terms
    assert [upward(number) for number in (0.1, 1.0, 0.0, 0.12341, 1e-300, 123456.0)] == [
        *("0.1", "1", "0", "0.124", "1e-300", "124000")
    ]


@pytest.mark.parametrize("residual", [1e-3, 1e-9])
def test_squares_lie_within_their_distance_of_training_anew(residual):
    """Both stop anywhere their gradients allow; where no record curves the loss they are as far
    apart as is said.
    """
    config = replace(SQUARES, tolerance=1e-3)
    strength = 5.0
    rng = np.random.default_rng(0)
    within = promise_after_removal(config, residual, strength).within
    for records in (0, 1, 5):
        rows = rng.normal(size=(records, 3)) / 2
        hessian = rows.T @ rows + strength * np.eye(3)
        for _ in range(50):
            one = rng.normal(size=3)
            ways = [(one, -one), (one, rng.normal(size=3))]
            for here, there in ways:
                left = np.linalg.solve(hessian, residual * here / np.linalg.norm(here))
                anew = np.linalg.solve(hessian, config.tolerance * there / np.linalg.norm(there))
                away = np.linalg.norm(left - anew)
                assert away <= within
                assert records or there is not ways[0][1] or away >= within * (1 - 1e-5)


@pytest.mark.parametrize(
    ("config", "told", "fine"),
    [
        (SQUARES, {}, True),
        (SQUARES, {"within": 1e-5}, True),
        (SQUARES, {"within": 1e-10}, False),
        (SQUARES, {"within": None}, False),  # as agt promised before it said so
        (SQUARES, {"exact": False}, False),
        (OUTPUT, {}, True),
        (OUTPUT, {"eps": 1.0}, True),  # what the settings promise of every state
        (OUTPUT, {"eps": 0.01}, False),
        (OUTPUT, {"eps": None}, False),
        (OUTPUT, {"delta": 0.0}, False),
        (OUTPUT, {"within": 0.0}, False),
        (replace(OUTPUT, masking="loss"), {"eps": 0.1}, False),
        (replace(OUTPUT, masking="loss"), {"adaptive": True}, False),
    ],
)
def test_verify_takes_no_promise_beyond_what_is_left(config, told, fine):
    residual, strength = (5e-10, 5.0) if config is SQUARES else (0.02, 5.0)
    run = SimpleNamespace(
        config={"certificate": {**plain_of(config), "name": "removal"}},
        json=lambda name: {"strength": 5.0, "residual": residual},
    )
    said = {**asdict(promise_after_removal(config, residual, strength)), **told}
    with nullcontext() if fine else pytest.raises(Broken, match=r"method=newton.*'exact'"):
        check_promise(said, run, "newton", residual)
    with pytest.raises(Broken, match=r"method=newton.*\b9\.0\b"):
        check_promise(said, run, "newton", 9.0)


def test_a_seed_is_a_simulation():
    for masking in ("loss", "output"):
        made = promise_after_removal(RemovalConfig(masking=masking, seed=1), 0.01, 5.0)
        assert any(
            "simulation" in fact.sentence and fact.standing is Standing.VOID
            for fact in made.assumptions
        )
        assert "noise_drawn_anew" not in {fact.code for fact in made.assumptions}
        assert not made.proved
        assert made.terms[0].code == (
            "close_as_published" if masking == "loss" else "close_without_seed"
        )
