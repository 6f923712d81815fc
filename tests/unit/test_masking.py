"""What hides a removal's error: budgets from the exact curve, what several states tell together, what is promised."""

import math
from dataclasses import replace

import numpy as np
import pytest

from agt.facts import Standing
from agt.numeric import gaussian_delta, gaussian_mu
from agt.settings import RemovalConfig
from agt.training.removal import RemovalState, removal_budget
from agt.unlearning.newton import promise, together


def state(residual=0.01, allowed=0.1):
    zero = np.zeros((1, 2))
    return RemovalState(zero, zero, zero, zero, np.eye(2)[None], np.eye(2), 1.0, residual, allowed, 10)


@pytest.mark.parametrize("eps", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("delta", [1e-6, 1e-4, 1e-2])
def test_the_exact_curve_allows_more_than_the_papers_rule(eps, delta):
    config = RemovalConfig(masking="loss", sigma=3.0, eps=eps, delta=delta)
    budget = removal_budget(config, 7.0)
    assert budget > 1.1 * 3.0 * eps / math.sqrt(2 * math.log(1.5 / delta))  # 003's
    assert gaussian_delta(eps, budget / 3.0) <= delta
    assert removal_budget(replace(config, masking="output"), 7.0) == pytest.approx(7.0 * budget - config.tolerance)


def test_several_states_cost_more_by_the_root_of_their_number():
    mu = gaussian_mu(1.0, 1e-4)
    assert together(1.0, 1e-4, 1) == pytest.approx(1.0, rel=1e-6)
    joint = together(1.0, 1e-4, 9)
    assert gaussian_delta(joint, 3 * mu) <= 1e-4 < gaussian_delta(joint * (1 - 1e-6), 3 * mu)
    assert 3 < joint < 9  # less than adding epsilons up


def test_sampled_states_keep_the_promise():
    """The likeliest event to tell apart: a threshold along the error, which is as large as the budget allows."""
    config = RemovalConfig(masking="output", sigma=0.2, eps=1.0, delta=1e-2)
    strength = 5.0
    away = removal_budget(config, strength) / strength
    rng = np.random.default_rng(0)
    with_error, without = away + rng.normal(0, 0.2, 200_000), rng.normal(0, 0.2, 200_000)
    for threshold in np.linspace(-0.5, 0.8, 40):
        above, below = (with_error > threshold).mean(), (without > threshold).mean()
        assert above <= math.e * below + 1e-2 + 4e-3
        assert 1 - below <= math.e * (1 - above) + 1e-2 + 4e-3


def test_each_masking_says_what_it_does_not_hold():
    of_loss = promise(RemovalConfig(masking="loss"), state(), 5.0)
    assert not of_loss.adaptive
    assert not of_loss.proved
    assert of_loss.words[0].startswith("not proved: as published, the model is (1, 0.0001)-close")
    assert any(fact.standing is Standing.VOID and "independent" in fact.why for fact in of_loss.assumptions)
    assert any("gap" in line for line in of_loss.words)
    of_output = promise(RemovalConfig(masking="output"), state(), 5.0)
    assert of_output.adaptive
    assert of_output.proved
    assert {fact.standing for fact in of_output.assumptions} == {Standing.PROVED}
    assert of_output.words[0].startswith("the model is (1, 0.0001)-close")
    assert not any("independent of the random term" in fact.why for fact in of_output.assumptions)
    assert any("drawn anew" in fact.why and fact.standing is Standing.PROVED for fact in of_output.assumptions)
    squares = promise(RemovalConfig(loss="least_squares", masking="none", sigma=0.0), state(1e-9), 5.0)
    assert squares.exact
    assert "within 2e-10" in " ".join(squares.words)


def test_a_seed_is_a_simulation():
    for masking in ("loss", "output"):
        made = promise(RemovalConfig(masking=masking, seed=1), state(), 5.0)
        assert any("simulation" in fact.why and fact.standing is Standing.VOID for fact in made.assumptions)
        assert not any("drawn anew" in fact.why for fact in made.assumptions)
        assert not made.proved
        assert made.words[0].startswith("not proved")
