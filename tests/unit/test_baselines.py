"""The papers' baselines: DP-SGD, noise inside certified training, perturbed minimisers, plain
SGD and flipped labels.
"""

import copy
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from agt_cli._experiments.baselines import LocalRR
from agt_cli._experiments.bench import RECORD, Bench, one_hot, train_sgd
from agt_cli._experiments.dp_sgd import DpSgd, Plan
from agt_cli._experiments.perturbation import Perturbation
from scipy.stats import kstest
from synthetic import ball, make_head, make_recipe, make_records, make_training, refused
from torch import nn
from torch.nn import functional as F

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.numeric import gaussian_mu
from agt.relations import RELATIONS
from agt.settings import TrainingConfig
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve
from agt.training.loop import train
from agt.training.noise import NoisePlan, draw_noise, noise_seed, plan_noise
from agt.training.settings import NoiseConfig, read_noise_config
from agt_cli._experiments import baselines, dp_sgd

# -- baselines dpsgd
# --------------------------------------------------------------------------------------------------


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
    model, draws = copy.deepcopy(model), torch.Generator()
    draws.manual_seed(0)
    features, targets = torch.from_numpy(x), torch.from_numpy(y[:, None].astype(float))
    loss, plan = F.binary_cross_entropy_with_logits, Plan(1.0, 1, noise)
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
    model, config = head(), make(batch=10.0, clip=2.0)
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
    model, config = head(), make(batch=200, epochs=5, lr=2.0, clip=1.0)
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


# -- baselines noise
# --------------------------------------------------------------------------------------------------


CLIP, NORMALIZER, LR = 0.1, 8.0, 0.5


def certified_step(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """All weights after one step of certified training."""
    training = make_training(lr=LR, clip=CLIP)
    records, head = make_records(features, labels), make_head(training, features.shape[1], 2, (5,))
    with torch.no_grad():
        for p in head.parameters():
            p.fill_(0.5)
        head[2].weight[0] = -0.5  # every unit passes a gradient of one sign
    trained = train(
        head, make_recipe(training, declared_size=8, threads=1, kernel="reference"), records
    )
    return torch.cat([t.flatten() for t in trained.nominal.values()]).numpy()


def direction_change(features: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> float:
    """How far, in l2, leaving out all but ``rows`` moves the step's direction."""
    return float(
        np.linalg.norm(
            certified_step(features, labels) - certified_step(features[rows], labels[rows])
        )
        / LR
    )


def test_a_saturating_record_attains_the_sensitivity() -> None:
    x = np.array([[0.1, 0.2, -0.1], [100.0, 100.0, 100.0]])
    parameters = 4 * 5 + 6 * 2
    expected = RELATIONS["add_remove"].step_sensitivity(CLIP, parameters, NORMALIZER)
    assert expected == pytest.approx(CLIP * np.sqrt(32) / 8)
    assert direction_change(x, np.array([0, 0]), np.array([0])) == pytest.approx(expected, rel=1e-9)
    assert expected > 5 * CLIP / NORMALIZER  # an l2 sensitivity of gamma/B would be false


def test_no_record_exceeds_it() -> None:
    rng = np.random.default_rng(0)
    bound = RELATIONS["add_remove"].step_sensitivity(CLIP, 32, NORMALIZER)
    for _ in range(12):
        x = rng.normal(size=(6, 3)) * 10.0 ** rng.integers(-1, 3)
        assert direction_change(x, rng.integers(0, 2, 6), np.arange(5)) <= bound * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "delta", "epochs"), [(0.1, 1e-5, 1), (1.0, 1e-5, 3), (10.0, 1e-9, 200)]
)
def test_the_plan_meets_its_target(epsilon: float, delta: float, epochs: int) -> None:
    plan = plan_noise(NoiseConfig(epsilon=epsilon, delta=delta), 0.02, epochs)
    assert delta * (1 - 1e-5) < plan.delta(epsilon) <= delta
    assert plan.mu == pytest.approx(np.sqrt(epochs) * 0.02 / plan.sigma)
    assert plan_noise(
        NoiseConfig(epsilon=epsilon, delta=delta), 0.02, 4 * epochs
    ).sigma == pytest.approx(2 * plan.sigma)


def test_draws_have_the_shape_the_spread_and_a_memory() -> None:
    plan = NoisePlan(sensitivity=1.0, sigma=0.3, epochs=1)
    parameters = {
        "w": torch.zeros(100, 300, dtype=torch.float32),
        "b": torch.zeros(7, dtype=torch.float64),
    }
    noise = draw_noise(parameters, plan, 5, 2)
    assert {n: (z.shape, z.dtype) for n, z in noise.items()} == {
        n: (p.shape, torch.float64) for n, p in parameters.items()
    }
    assert float(noise["w"].std()) == pytest.approx(0.3, rel=0.02)
    again = draw_noise(parameters, plan, 5, 2)
    assert all(torch.equal(noise[n], again[n]) for n in noise)
    for seed, step in ((5, 3), (6, 2), (2, 5)):
        other = draw_noise(parameters, plan, seed, step)["w"]
        assert (
            abs(float(torch.corrcoef(torch.stack([other.flatten(), noise["w"].flatten()]))[0, 1]))
            < 0.03
        )


def test_seeds() -> None:
    assert noise_seed(NoiseConfig(epsilon=1, delta=1e-5, seed=3)) == 3
    assert noise_seed(NoiseConfig(epsilon=1, delta=1e-5)) != noise_seed(
        NoiseConfig(epsilon=1, delta=1e-5)
    )
    seeds = [noise_seed(NoiseConfig(epsilon=1, delta=1e-5)) for _ in range(40)]
    assert 2**120 < max(seeds) < 2**128  # every bit of the key is secret
    plan, parameters = NoisePlan(sensitivity=1.0, sigma=1.0, epochs=1), {"w": torch.zeros(4)}
    low, high = (draw_noise(parameters, plan, seed, 0)["w"] for seed in (5, 5 + 2**100))
    assert not torch.equal(low, high)


def test_releasing_only_inside_the_box_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^noise: "):
        read_noise_config({"epsilon": 1, "release": "inside_box"})


def test_settings_without_an_epsilon_are_no_noise() -> None:
    assert read_noise_config(None) is None
    assert read_noise_config({"epsilon": None, "delta": 1e-5}) is None
    assert read_noise_config({"epsilon": 2}) == NoiseConfig(epsilon=2, delta=1e-5)
    ignored = (
        {"epsilon": None, "delta": 1e-6},
        {"epsilon": None, "seed": 3},
        {"epsilon": None, "release": "inside_box"},
    )
    for wrong in (
        {"epsilon": 0},
        {"epsilon": 1e300},
        {"epsilon": 1, "delta": 1},
        {"epsilom": 1},
        3,
        *ignored,
    ):
        with pytest.raises(ConfigError, match="noise"):
            read_noise_config(wrong)


# -- baselines perturbation
# --------------------------------------------------------------------------------------------


CLAMPS = (1.0, 0.5, 0.3)


def minimiser(x: np.ndarray, y: np.ndarray, strength: float, clamp: float) -> np.ndarray:
    return solve(ErmWithLinearTerm.from_labels(x, y, strength, clamp), 1e-10)


def linear_bench(x: np.ndarray, y: np.ndarray) -> Bench:
    head = nn.Sequential(nn.Linear(x.shape[1], 1, bias=False))
    return Bench(head, 2, make_records(x, y), len(x), make_training(loss="binary_cross_entropy"))


def fitted(
    config: Perturbation, x: np.ndarray, y: np.ndarray, eps: float, delta: float, seed: int
) -> np.ndarray:
    return config.fit(linear_bench(x, y), eps, delta, seed)["0.weight"][0].numpy()


@pytest.mark.parametrize("clamp", CLAMPS)
def test_retraining_on_neighbours_never_exceeds_the_sensitivity(clamp: float) -> None:
    config = Perturbation("output", 0.8, clamp)
    x, y = ball(24, 2)
    base = minimiser(x, y, 0.8, clamp)
    fewer = [
        minimiser(np.delete(x, row, axis=0), np.delete(y, row), 0.8, clamp) for row in range(24)
    ]
    assert 0 < max(np.linalg.norm(theta - base) for theta in fewer) <= config.sensitivity


def test_the_sensitivity_is_attained() -> None:
    """A record on the wrong side of a clamped loss, alone in the data."""
    one = np.array([[0.6, 0.8]])
    a, b = minimiser(one, np.array([1]), 100, 0.4), minimiser(one[:0], np.array([]), 100, 0.4)
    assert np.linalg.norm(a - b) == pytest.approx(
        Perturbation("output", 100, 0.4, tolerance=1e-9).sensitivity, rel=1e-6
    )


def test_the_conditions() -> None:
    (x, y), config = ball(10, 2), Perturbation("output", 1.0)
    refused(
        (
            ConfigError,
            r"norm 1\.1, ",
            lambda: fitted(
                config, 1.1 * x / np.linalg.norm(x, axis=1, keepdims=True), y, 1.0, 1e-5, 0
            ),
        ),
        (ConfigError, "two classes", lambda: fitted(config, x, 2 * y, 1.0, 1e-5, 0)),
    )


def test_output_perturbation_adds_the_noise_of_its_sensitivity() -> None:
    x, y = ball(60, 4)
    config, theta = Perturbation("output", 3.0), minimiser(x, y, 3.0, 1.0)
    noise = np.array([fitted(config, x, y, 2.0, 1e-5, seed) - theta for seed in range(300)])
    assert (
        kstest(noise.ravel() / (config.sensitivity / gaussian_mu(2.0, 1e-5)), "norm").pvalue > 1e-3
    )


def test_a_head_with_two_outputs_says_the_same() -> None:
    (x, y), config = ball(60, 4), Perturbation("objective", 3.0)
    one, two = (
        linear_bench(x, y),
        replace(linear_bench(x, y), training=make_training(loss="cross_entropy")),
    )
    weights = [here.labels(config.fit(here, 2.0, 1e-5, 0), x) for here in (one, two)]
    assert (weights[0] == weights[1]).all()


# -- baselines sgd
# --------------------------------------------------------------------------------------------------


BCE = {"loss": "binary_cross_entropy"}


def clouds(n: int = 60, classes: int = 2) -> Records:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return make_records(rng.normal(size=(n, 3)) * 0.3 + np.eye(3)[labels], labels)


def bench_of(
    training: TrainingConfig, records: Records, classes: int = 2, hidden: tuple[int, ...] = ()
) -> Bench:
    return Bench(make_head(training, 3, classes, hidden), classes, records, len(records), training)


@pytest.mark.parametrize(
    ("classes", "hidden", "settings"),
    [
        (2, (4,), {**BCE, "momentum": 0.9, "nesterov": True, "decay": 0.1, "epochs": 4}),
        (3, (), {"epochs": 3, "batch": {"count": 4, "normalizer": 15.0}, "weight_decay": 0.1}),
        # most are empty
        (2, (), {**BCE, "epochs": 2, "momentum": 0.5, "batch": {"count": 90, "normalizer": 1.0}}),
    ],
)
def test_it_is_the_certified_runs_nominal_where_no_clip_binds(
    classes: int, hidden: tuple[int, ...], settings: dict
) -> None:
    training = make_training(**settings, clip=4.0)
    here = bench_of(training, clouds(classes=classes), classes, hidden)
    certified = train(
        here.head, make_recipe(training, classes=classes, declared_size=60, threads=1), here.records
    )
    plain = train_sgd(here, here.records)
    assert plain.keys() == certified.nominal.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(weight, certified.nominal[name], rtol=0, atol=1e-6)


def test_the_head_is_left_alone_and_divergence_is_an_error() -> None:
    training = make_training(**BCE, epochs=50, lr=1e6, dtype="float32", batch={"normalizer": 1e-6})
    here = bench_of(training, replace(clouds(), features=clouds().features * 1e30), hidden=(4,))
    before = [p.clone() for p in here.head.parameters()]
    with pytest.raises(UnsoundError, match="diverged"):
        train_sgd(here, here.records)
    assert all(torch.equal(a, b) for a, b in zip(before, here.head.parameters(), strict=True))
    refused(
        (
            ConfigError,
            r"from 0 to 1, but they are from 0 to 2",
            lambda: one_hot(np.array([0, 2]), 2, "cross_entropy"),
        ),
        (
            ConfigError,
            r"training.loss=squared_error: the baselines can only use .*binary_cross_entropy or",
            lambda: one_hot(np.array([0, 1]), 2, "squared_error"),
        ),
    )


# -- randomised response on labels
# -------------------------------------------------------------------------------------


def test_labels_flip_at_the_closed_form_rate_public_ones_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wrong class takes 1 in e^eps + C - 1; the draws are the seed's."""
    monkeypatch.setattr(baselines, "train_sgd", lambda bench, records: records.labels)
    epsilon, n = 1.0, 60_000
    here = bench_of(make_training(), clouds(n=n, classes=3), 3)
    here = replace(
        here, records=replace(here.records, public=np.arange(len(here.records)) % 10 == 0)
    )
    flipped = [LocalRR().fit(here, epsilon, 0.0, seed) for seed in (0, 0, 1)]
    moves = (flipped[0] - here.records.labels) % 3
    assert not moves[here.records.public].any()
    shares = np.bincount(moves[~here.records.public], minlength=3) / (~here.records.public).sum()
    wrong = 1 / (np.exp(epsilon) + 2)
    assert np.abs(shares - [1 - 2 * wrong, wrong, wrong]).max() < 5 * np.sqrt(0.25 / n)
    assert (flipped[0] == flipped[1]).all()
    assert (flipped[0] != flipped[2]).any()


def test_a_huge_epsilon_is_plain_sgd() -> None:
    here = bench_of(make_training(epochs=5, lr=0.5), clouds(classes=3), 3)
    plain = train_sgd(here, here.records)
    for name, weight in LocalRR().fit(here, 60.0, 0.0, 0).items():
        torch.testing.assert_close(weight, plain[name], rtol=0, atol=1e-6)
    assert "features" in LocalRR.protects


def test_ids_that_hash_the_labels_do_not_lay_out_the_batches() -> None:
    records = clouds()
    renamed = np.array([f"another id {i}" for i in range(len(records))])
    other = Records(records.features, records.labels, renamed, renamed, records.public)
    here = bench_of(make_training(**BCE, epochs=2, batch={"count": 5}), records)
    one, two = (
        LocalRR().fit(replace(here, records=each), 1.0, 0.0, 0) for each in (records, other)
    )
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(w, train_sgd(here, records)[n]) for n, w in one.items())
