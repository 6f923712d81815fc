"""DP-SGD: Opacus' own accounting reproduced and cross-checked, every record's share bounded, no batch special."""

import copy
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from agt.errors import ConfigError, UnsoundError
from agt.settings import validate
from agt_cli.papers.baselines import dpsgd
from agt_cli.papers.baselines.dpsgd import DpSgdConfig, DpSgdPlan, epsilon_spent, plan_dpsgd, train_dpsgd

BCE = "binary_cross_entropy"


def make(**settings: object) -> DpSgdConfig:
    defaults = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "batch": 100.0,
        "steps": 5,
        "lr": 0.5,
        "clip": 0.3,
        "seed": 0,
        "dtype": "float64",
    }
    return DpSgdConfig(**{**defaults, **settings})  # type: ignore[arg-type]


def head(width: int = 4, hidden: int = 3) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)).double()


def data(n: int = 200, width: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, width)) * 5
    return x, (x[:, 0] > 0).astype(np.int64)


def one_step(model: nn.Sequential, x: np.ndarray, y: np.ndarray, config: DpSgdConfig, noise: float = 0.0) -> dict:
    """The weights' change after one full-batch step."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    plan = DpSgdPlan(1.0, config.batch, 1, noise, 0.0)
    generator = torch.Generator()
    generator.manual_seed(0)
    with dpsgd._quiet():
        after = dpsgd._descend(model, x, y[:, None].astype(float), BCE, config, plan, generator)
    return {n: (p.detach() - before[n]).numpy() for n, p in after.named_parameters()}


@pytest.mark.parametrize(("epsilon", "batch", "steps"), [(0.5, 400, 30), (8.0, 1000, 10)])
def test_the_noise_is_the_one_opacus_finds(epsilon: float, batch: int, steps: int) -> None:
    from opacus.accountants.utils import get_noise_multiplier

    plan = plan_dpsgd(make(epsilon=epsilon, batch=batch, steps=steps), 10_000)
    with dpsgd._quiet():
        theirs = get_noise_multiplier(
            target_epsilon=epsilon, target_delta=1e-5, sample_rate=batch / 10_000, steps=steps, accountant="prv"
        )
    assert plan.noise == pytest.approx(theirs, rel=0.05)
    assert plan.noise <= theirs * 1.001  # a finer accountant needs no more
    assert plan.batch == pytest.approx(batch)
    assert 0.995 * epsilon < plan.epsilon <= epsilon


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(0.5, 0.04, 30), (8.0, 0.1, 10)])
def test_another_library_agrees_in_both_directions(epsilon: float, rate: float, steps: int) -> None:
    from dp_accounting import dp_event, pld

    plan = plan_dpsgd(make(epsilon=epsilon, batch=rate * 10_000, steps=steps), 10_000)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)  # add or remove one: both directions; pessimistic
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(plan.noise)), steps)
    assert accountant.get_epsilon(1e-5) == pytest.approx(plan.epsilon, rel=0.02)


def test_full_batch_is_the_gaussian_mechanism() -> None:
    from opacus.accountants import PRVAccountant

    plan = plan_dpsgd(make(batch=500, steps=40, epsilon=0.7), 400)
    assert (plan.rate, plan.batch) == (1.0, 400)
    accountant = PRVAccountant()
    accountant.history = [(plan.noise, 1.0, 40)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs takes log(1 - 1)
        theirs = accountant.get_epsilon(1e-5, eps_error=1e-3)
    ours = epsilon_spent(plan.noise, 1.0, 40, 1e-5)
    assert ours == pytest.approx(0.7, rel=1e-6)
    assert ours <= theirs <= ours + 3e-3


def test_epochs_are_steps_at_the_public_size() -> None:
    assert plan_dpsgd(make(steps=None, epochs=2.0, batch=300), 1000).steps == 7
    with pytest.raises(ConfigError, match="either epochs or steps"):
        validate(DpSgdConfig, {"epsilon": 1, "delta": 1e-5, "batch": 1, "lr": 1, "clip": 1}, "dpsgd")


def test_each_record_is_clipped_to_the_norm_and_summed() -> None:
    x, y = data(30)
    model, config = head(), make(batch=10.0, clip=2.0)
    moved = one_step(model, x, y, config)
    total = dict.fromkeys(moved, 0.0)
    clipped = 0
    for row in range(30):
        single = copy.deepcopy(model)
        logit = single(torch.from_numpy(x[row : row + 1]))
        nn.functional.binary_cross_entropy_with_logits(logit, torch.tensor([[float(y[row])]]).double()).backward()
        gradients = {n: p.grad.numpy() for n, p in single.named_parameters() if p.grad is not None}
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        clipped += norm > config.clip
        for n, g in gradients.items():
            total[n] = total[n] + g * min(1, config.clip / (norm + 1e-6))
    assert 5 < clipped < 30
    for n, change in moved.items():
        np.testing.assert_allclose(change, -config.lr * total[n] / 10, atol=1e-12)


def test_no_record_moves_the_weights_further_than_the_clip() -> None:
    x, y = data(1)
    moved = one_step(head(), 1e6 * x, y, make(batch=1.0))
    length = np.sqrt(sum((c**2).sum() for c in moved.values()))
    assert length == pytest.approx(0.5 * 0.3, rel=1e-4)
    assert length <= 0.5 * 0.3


def test_blocks_of_records_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(50)
    whole = one_step(head(), x, y, make(), noise=1.0)
    monkeypatch.setattr(dpsgd, "_BYTES", 8 * 19 * 7)  # seven records of 19 parameters
    parts = one_step(head(), x, y, make(), noise=1.0)
    for n, change in whole.items():
        np.testing.assert_allclose(parts[n], change, atol=1e-12)


def test_the_noise_on_a_step_is_clip_times_multiplier_over_batch() -> None:
    model = nn.Sequential(nn.Linear(5000, 1)).double()
    moved = one_step(model, np.zeros((3, 5000)), np.ones(3), make(lr=2.0, clip=0.5, batch=50.0), noise=7.0)
    assert moved["0.weight"].std() == pytest.approx(2.0 * 0.5 * 7.0 / 50, rel=0.05)


def test_empty_batches_take_their_noisy_step() -> None:
    x, y = data(1)
    released = train_dpsgd(head(), 2, x, y, BCE, 10_000, make(batch=1.0, steps=3, epsilon=3.0))
    generator = torch.Generator()
    generator.manual_seed(0)
    assert not len(dpsgd._poisson(1, 1e-4, generator))
    assert all((w != p).any() for w, p in zip(released.weights.values(), head().parameters(), strict=True))


def test_poisson_batches_have_the_rate() -> None:
    generator = torch.Generator()
    generator.manual_seed(1)
    counts = np.bincount(torch.cat([dpsgd._poisson(50, 0.2, generator) for _ in range(4000)]).numpy(), minlength=50)
    assert abs(counts / 4000 - 0.2).max() < 5 * np.sqrt(0.16 / 4000)


def test_a_run_learns_stays_in_budget_and_repeats_itself() -> None:
    x, y = data(2000)
    before = copy.deepcopy(list(head().parameters()))
    runs = [
        train_dpsgd(head(), 2, x, y, BCE, 2000, make(seed=s, epsilon=5.0, batch=500, steps=40, lr=2.0, clip=1.0))
        for s in (0, 0, 1)
    ]
    assert all(torch.equal(runs[0].weights[n], runs[1].weights[n]) for n in runs[0].weights)
    assert any(not torch.equal(runs[0].weights[n], runs[2].weights[n]) for n in runs[0].weights)
    model = head()
    model.load_state_dict(runs[0].weights)
    assert all(torch.equal(a, b) for a, b in zip(before, head().parameters(), strict=True))
    assert ((model(torch.from_numpy(x)).detach().numpy()[:, 0] > 0) == y).mean() > 0.9
    assert runs[0].epsilon <= 5.0
    assert any("seed=0" in c for c in runs[0].caveats)
    assert not any("number of records" in c for c in runs[0].caveats)
    derived = train_dpsgd(head(), 2, x, y, BCE, None, make(seed=None))
    assert any("number of records" in c for c in derived.caveats)


def test_what_cannot_be_done_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(20)
    with pytest.raises(UnsoundError, match="lower the learning rate"):
        train_dpsgd(head(), 2, x, y, BCE, 20, make(lr=1e300, clip=1e10))
    with pytest.raises(ConfigError, match=r"labels run from 0 to 3, expected 0..1"):
        train_dpsgd(head(), 2, x, y * 3, BCE, 20, make())
    with pytest.raises(ConfigError, match="cannot take this head's records apart"):
        train_dpsgd(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)), 2, x, y, BCE, 20, make())
    with pytest.raises(ConfigError, match="or use the full batch"):
        plan_dpsgd(make(epsilon=1e-9), 1000)
    with pytest.raises(ConfigError, match="Opacus finds no noise"):
        plan_dpsgd(make(delta=1e-17), 1000)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(ConfigError, match=r"pip install 'agt\[dpsgd\]'"):
        plan_dpsgd(make(), 1000)
