"""Audits of DP-SGD: sights that are what they say, bugs that are caught, and a correct one that is let pass."""

from typing import Any

import numpy as np
import pytest
import torch
from synthetic import make_records
from torch import nn

from agt.audit import dpsgd
from agt.audit.canaries import CANARIES, LENGTH, Canaries
from agt.audit.dpsgd import (
    Claim,
    Effort,
    Sight,
    audit,
    in_one_run,
    judged,
    likelihood,
    one_run_bounds,
    step_by_step,
    trials_needed,
)
from agt.audit.findings import Finding, Strength
from agt.audit.heads import Linear, Network, head_for
from agt.audit.planted.dpsgd import PLANTED, reference
from agt.audit.reference import Reference
from agt.audit.subsampled import noise_for
from agt.errors import ConfigError


def module(outputs: int = 1, hidden: int = 0, width: int = 5) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers: list[nn.Module] = [nn.Linear(width, hidden), nn.Tanh()] if hidden else []
        return nn.Sequential(*layers, nn.Linear(hidden or width, outputs)).double()


def pool(n: int = 30, width: int = 5, classes: int = 2) -> Any:
    rng = np.random.default_rng(0)
    return make_records(rng.normal(size=(n, width)), rng.integers(0, classes, n))


# -- heads -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outputs", "loss"), [(1, "binary_cross_entropy"), (3, "cross_entropy"), (2, "cross_entropy")])
def test_the_closed_form_is_autograds(outputs: int, loss: str) -> None:
    net, data = module(outputs), pool(7, classes=max(2, outputs))
    closed = head_for(net, loss, 7)
    general = Network(closed.initial, net, loss, 4)
    assert isinstance(closed, Linear)
    theta = np.random.default_rng(1).normal(size=(3, len(closed.initial)))
    pairs = [head.on(data.features, data.labels)(theta) for head in (closed, general)]
    weights = np.random.default_rng(2).random((3, 7))
    for one, other in [
        (pairs[0].norms, pairs[1].norms),
        (pairs[0].losses, pairs[1].losses),
        (pairs[0].sum(weights), pairs[1].sum(weights)),
        (pairs[0].last(2), pairs[1].last(2)),
    ]:
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_another_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"training\.loss=squared_error"):
        head_for(module(), "squared_error", 5)


# -- canaries --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dirac", "gaussian"])
def test_gradient_canaries_are_long_and_orthogonal(kind: str) -> None:
    head, data = head_for(module(), "binary_cross_entropy", 30), pool()
    made = CANARIES[kind](4, head, data, 0).gradients
    assert made is not None
    np.testing.assert_allclose(made @ made.T, LENGTH**2 * np.eye(4), atol=1e-9)
    with pytest.raises(ConfigError, match="no more orthogonal directions"):
        CANARIES[kind](7, head, data, 0)


def test_diracs_lie_where_the_data_is_silent() -> None:
    x = np.random.default_rng(0).normal(size=(20, 5))
    x[:, 3] = 0
    made = CANARIES["dirac"](1, head_for(module(), "binary_cross_entropy", 20), make_records(x, np.arange(20) % 2), 0)
    assert made.gradients is not None
    assert made.gradients[0].argmax() == 3


def test_input_canaries_are_records() -> None:
    head, data = head_for(module(3), "cross_entropy", 30), pool(classes=3)
    for kind in ("mislabelled", "adversarial"):
        made = CANARIES[kind](5, head, data, 0)
        assert made.features is not None
        assert len(made) == len(made.features) == 5
    for kind, count, why in [("blank", 2, "all alike"), ("mislabelled", 31, "there are 30 records")]:
        with pytest.raises(ConfigError, match=why):
            CANARIES[kind](count, head, data, 0)
    worst = CANARIES["adversarial"](1, head, data, 0)
    others = CANARIES["mislabelled"](30, head, data, 0)
    norms = [head.on(c.features, c.labels)(head.initial[None]).norms.max() for c in (worst, others)]  # type: ignore[arg-type]
    assert norms[0] >= norms[1]


# -- sights ----------------------------------------------------------------------------------------------------------------


def trainer(rate: float = 1.0, noise: float = 2.0, steps: int = 4, net: nn.Sequential | None = None) -> Reference:
    head = head_for(net or module(), "binary_cross_entropy", 30)
    return Reference(Claim(noise, rate, steps, 1.0, 1e-5), head, pool(), 0.4, 0.3, seed=0)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_scores_are_the_canary_and_the_noise(rate: float) -> None:
    made = trainer(rate)
    canary = CANARIES["gaussian"](2, made.head, made.records, 0)
    inside = np.broadcast_to(np.array([True, False]), (3000, 1, 2))
    sight = made.train(canary, inside)
    assert sight.scores.shape == (3000, 4, 2)
    assert sight.reach.min() == pytest.approx(1) == sight.reach.max()
    spread = sight.scores.std(axis=(0, 1))
    assert sight.scores.mean(axis=(0, 1)) == pytest.approx([rate, 0], abs=0.08)
    if rate == 1:
        assert spread == pytest.approx([2, 2], rel=0.03)
    assert sight.losses is None


def test_networks_train_as_linear_heads_do() -> None:
    net = module()
    linear = trainer(net=net)
    general = trainer(net=net)
    object.__setattr__(general, "head", Network(linear.head.initial, net, "binary_cross_entropy", 3))
    canary = CANARIES["mislabelled"](2, linear.head, linear.records, 0)
    inside = np.ones((2, 1, 2), dtype=bool)
    one, other = linear.train(canary, inside), general.train(canary, inside)
    for name in ("scores", "reach", "weights", "losses"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-10)
    assert one.losses is not None
    hidden = trainer(net=module(hidden=3)).train(Canaries("", features=canary.features, labels=canary.labels), inside)
    assert np.isfinite(hidden.scores).all()


def test_likelihood_weighs_the_sampling() -> None:
    sight = Sight(np.array([[[0.3], [1.7]]]), np.ones((1, 2, 1)), np.zeros((1, 1)), None)
    full, some = (likelihood(sight, Claim(1.5, rate, 2, 1.0, 1e-5)) for rate in (1.0, 0.2))
    ratio = np.exp((2 * sight.scores - 1) / (2 * 1.5**2))
    np.testing.assert_allclose(np.exp(full), ratio)
    np.testing.assert_allclose(np.exp(some), 0.8 + 0.2 * ratio)


# -- audits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANTED)
def test_a_bug_is_caught(name: str) -> None:
    finding = PLANTED[name](0)
    assert finding.violated, finding.meaning


def audited(seed: int, rate: float) -> Finding:
    made = reference(Reference, seed, rate=rate)
    canary = CANARIES["dirac"](1, made.head, made.records, seed)
    effort = Effort(trials=120, step_runs=20, seed=seed)
    several = CANARIES["dirac"](8, made.head, made.records, seed) if seed % 10 == 0 else None  # they take their time
    return judged(made, canary, effort, audit(made, canary, effort, several))


def test_the_correct_one_is_rejected_as_seldom_as_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpsgd, "ESTIMATES", dpsgd.ESTIMATES[:1])  # the others decide nothing, and take their time
    assert sum(audited(seed, 1.0).violated for seed in range(100)) <= 11


def test_sampled_batches_are_let_pass() -> None:
    assert not any(audited(seed, 0.25).violated for seed in range(3))


def test_a_single_bound_is_broken_as_often_as_its_confidence_says() -> None:
    """The sharpest one alone, with all of the error: 2,000 guesses in steps of Gaussian noise."""
    wrong = 0
    for seed in range(100):
        made = reference(Reference, seed, rate=1.0)
        canary = CANARIES["dirac"](1, made.head, made.records, seed)
        bound = step_by_step(made, canary, Effort(trials=1, step_runs=200, seed=seed), 1)
        wrong += bound.epsilon > made.claim.epsilon
    assert 0 < wrong <= 11


def test_the_bound_comes_near_the_truth() -> None:
    made = reference(Reference, 0, rate=1.0, epsilon=4.0)
    canary = CANARIES["dirac"](1, made.head, made.records, 0)
    bounds = audit(made, canary, Effort(trials=3000, step_runs=300))
    assert 2.8 < max(b.epsilon for b in bounds if b.strength is Strength.CONFIDENT) <= 4.0
    assert {b.estimate for b in bounds} == {"Clopper-Pearson", "Katz-log", "Bayesian (Jeffreys)", "Gaussian DP"}


def test_one_run_compares_bounds_on_the_same_scores() -> None:
    head = head_for(module(width=200), "binary_cross_entropy", 30)
    data = pool(width=200)
    for rate, names in [
        (1.0, ("steinke", "exact", "gdp", "independent")),
        (0.5, ("steinke", "exact", "subsampled Gaussian curve")),
    ]:
        claim = Claim(noise_for(8.0, 1e-5, rate, 4), rate, 4, 8.0, 1e-5)
        made = Reference(claim, head, data, 0.4, 0.3, seed=0)
        canaries = CANARIES["dirac"](200, head, data, 0)
        assert one_run_bounds(claim, canaries) == names
        bounds = in_one_run(made, canaries, Effort(1, 1), 1)
        assert [bound.estimate for bound in bounds] == list(names)
        assert all(0 <= bound.epsilon <= 8 for bound in bounds)
        assert bounds[-1].epsilon > bounds[0].epsilon > 0.3
    assert "independent" not in one_run_bounds(Claim(1.0, 1.0, 4, 8.0, 1e-5), CANARIES["mislabelled"](3, head, data, 0))


@pytest.mark.parametrize("name", ["dirac", "gaussian", "signs"])
def test_canaries_that_do_not_meet_do_not_meet_after_a_clip_of_each_element(name: str) -> None:
    head = head_for(module(width=20), "binary_cross_entropy", 30)
    canaries = CANARIES[name](10, head, pool(width=20), 0)
    assert canaries.gradients is not None
    size = canaries.gradients.shape[1]
    clipped = np.clip(canaries.gradients * np.sqrt(size), -1, 1)  # as of training with noise inside
    inner = clipped @ clipped.T
    apart = not np.abs(inner - np.diag(np.diag(inner))).max()
    assert ("independent" in one_run_bounds(Claim(1.0, 1.0, 4, 8.0, 1e-5), canaries)) == apart == (name == "dirac")


def test_too_few_trials_say_how_many_are_needed() -> None:
    made = reference(Reference, 0)
    canary = CANARIES["dirac"](1, made.head, made.records, 0)
    least = trials_needed(made.claim, 0.95, 6)
    with pytest.raises(ConfigError, match=rf"audit\.trials={least - 1}: too few .* {least} a side are the least"):
        audit(made, canary, Effort(trials=least - 1, step_runs=1))
    assert audit(made, canary, Effort(trials=least, step_runs=1))
