"""DP-SGD, the papers' baseline: its noise, its clip, its batches."""

import copy
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from agt_cli._experiments.bench import RECORD, Bench
from agt_cli._experiments.dp_sgd import DpSgd, Plan
from synthetic import make_records, make_training, refused
from torch import nn
from torch.nn import functional as F

from agt.errors import ConfigError, UnsoundError
from agt_cli._experiments import dp_sgd

BUDGET = (1.0, 1e-5)


def make(**settings: Any) -> DpSgd:
    return DpSgd(**{"batch": 100.0, "epochs": 5.0, "lr": 0.5, "clip": 0.3, **settings})


def head(width: int = 4, hidden: int = 3) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)).double()


def data(n: int = 200, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, width)) * 5
    return x, (x[:, 0] > 0).astype(np.int64)


def bench(
    x: np.ndarray, y: np.ndarray, model: nn.Sequential | None = None, size: int | None = None
) -> Bench:
    training = make_training(loss="binary_cross_entropy")
    return Bench(
        head() if model is None else model, 2, make_records(x, y), size or len(x), training
    )


def one_step(
    model: nn.Sequential, x: np.ndarray, y: np.ndarray, config: DpSgd, noise: float = 0.0
) -> dict[str, Any]:
    """The weights' change after one full-batch step."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    model = copy.deepcopy(model)
    draws = torch.Generator()
    draws.manual_seed(0)
    features = torch.from_numpy(x)
    targets = torch.from_numpy(y[:, None].astype(float))
    loss = F.binary_cross_entropy_with_logits
    plan = Plan(1.0, 1, noise)
    with dp_sgd._quiet():
        config.descend(model, features, targets, loss, plan, config.batch, draws)
    return {n: (p.detach() - before[n]).numpy() for n, p in model.named_parameters()}


def spent(plan: Plan, delta: float = 1e-5) -> float:
    """Epsilon of all steps, by Opacus' PRV accountant."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(plan.noise, plan.rate, plan.steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs takes log(1 - 1)
        return float(accountant.get_epsilon(delta, eps_error=1e-3))


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(0.5, 0.04, 30)])
def test_another_library_agrees_in_both_directions(epsilon: float, rate: float, steps: int) -> None:
    from dp_accounting import dp_event, pld

    plan = make(batch=rate * 10_000, epochs=rate * steps).plan(10_000, epsilon, 1e-5)
    # add or remove one: both directions; pessimistic
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(
        dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(plan.noise)), plan.steps
    )
    assert plan.steps == steps
    assert accountant.get_epsilon(1e-5) == pytest.approx(epsilon, rel=0.02)


def test_full_batch_is_the_gaussian_mechanism() -> None:
    plan = make(batch=500, epochs=40).plan(400, 0.7, 1e-5)
    assert (plan.rate, plan.steps) == (1.0, 40)
    assert 0.7 <= spent(plan) <= 0.7 + 3e-3
    assert spent(Plan(1.0, 40, 0.99 * plan.noise)) > 0.7 + 3e-3  # less noise spends more


def test_each_record_is_clipped_to_the_norm_and_summed() -> None:
    x, y = data(30)
    model = head()
    config = make(batch=10.0, clip=2.0)
    moved = one_step(model, x, y, config)
    total = dict.fromkeys(moved, 0.0)
    clipped = 0
    for row in range(30):
        single = copy.deepcopy(model)
        logit = single(torch.from_numpy(x[row : row + 1]))
        nn.functional.binary_cross_entropy_with_logits(
            logit, torch.tensor([[float(y[row])]]).double()
        ).backward()
        gradients = {n: p.grad.numpy() for n, p in single.named_parameters() if p.grad is not None}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        clipped += norm > config.clip
        for n, g in gradients.items():
            total[n] = total[n] + g * min(1, config.clip / (norm + 1e-6))
    assert 5 < clipped < 30
    for n, change in moved.items():
        np.testing.assert_allclose(change, -config.lr * total[n] / 10, atol=1e-12)


def test_the_noise_on_a_step_is_clip_times_multiplier_over_batch() -> None:
    model = nn.Sequential(nn.Linear(5000, 1)).double()
    moved = one_step(
        model, np.zeros((3, 5000)), np.ones(3), make(lr=2.0, clip=0.5, batch=50.0), noise=7.0
    )
    assert moved["0.weight"].std() == pytest.approx(2.0 * 0.5 * 7.0 / 50, rel=0.05)


def test_empty_batches_take_their_noisy_step() -> None:
    x, y = data(1)
    weights = make(batch=1.0, epochs=3e-4).fit(bench(x, y, size=10_000), 3.0, 1e-5, 0)
    generator = torch.Generator()
    generator.manual_seed(0)
    assert not len(dp_sgd._poisson(1, 1e-4, generator))
    assert all((w != p).any() for w, p in zip(weights.values(), head().parameters(), strict=True))


def test_poisson_batches_have_the_rate() -> None:
    generator = torch.Generator()
    generator.manual_seed(1)
    counts = np.bincount(
        torch.cat([dp_sgd._poisson(50, 0.2, generator) for _ in range(4000)]).numpy(), minlength=50
    )
    assert abs(counts / 4000 - 0.2).max() < 5 * np.sqrt(0.16 / 4000)


def test_a_run_learns_and_repeats_itself() -> None:
    x, y = data(800)
    model = head()
    config = make(batch=200, epochs=5, lr=2.0, clip=1.0)
    before = copy.deepcopy(list(model.parameters()))
    runs = [config.fit(bench(x, y, model), 5.0, 1e-5, seed) for seed in (0, 0, 1)]
    assert all(torch.equal(runs[0][n], runs[1][n]) for n in runs[0])
    assert any(not torch.equal(runs[0][n], runs[2][n]) for n in runs[0])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert (bench(x, y, model).labels(runs[0], x) == y).mean() > 0.9
    assert config.protects == RECORD


def test_what_cannot_be_done_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(20)
    refused(
        (
            UnsoundError,
            "lower the learning rate",
            lambda: make(lr=1e300, clip=1e10).fit(bench(x, y), *BUDGET, 0),
        ),
        (
            ConfigError,
            r"from 0 to 1, but they are from 0 to 3",
            lambda: make().fit(bench(x, y * 3), *BUDGET, 0),
        ),
    )
    normalised = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    refused(
        (
            ConfigError,
            "cannot compute gradients of single records",
            lambda: make().fit(bench(x, y, normalised), *BUDGET, 0),
        ),
        (ConfigError, "use all records in one batch", lambda: make().plan(1000, 1e-9, 1e-5)),
        (ConfigError, "Opacus finds no noise", lambda: make(epochs=0.5).plan(1000, 1.0, 1e-17)),
    )
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(ConfigError, match=r"opacus>=1\.5"):
        make().plan(1000, *BUDGET)
