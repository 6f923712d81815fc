"""Plain SGD and the minimiser for linear heads: the gradients, the constants in closed form,
rounding, ties.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from synthetic import make_recipe, make_records, refused

from agt.certificates.stability import MAX_STABLE_DISTANCE, bound_norms, certify_linear
from agt.certificates.votes import certified_vote
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import BatchConfig, TrainingConfig
from agt.training.erm import erm_sensitivity, iterations_to_tolerance, train_erm
from agt.training.linear import LinearTrained, gradient_sum, loss_derivative, train_linear
from agt.training.sensitivity import (
    LinearLoss,
    LinearSetting,
    Sensitivity,
    StepCoefficients,
    sgd_sensitivity,
)


def training(**settings: object) -> TrainingConfig:
    batch = BatchConfig(
        **{"count": 1, "normalizer": 50.0, "n_max": 70, **settings.pop("batch", {})}
    )  # type: ignore[dict-item]
    given = {"loss": "binary_cross_entropy", "epochs": 10, "lr": 3.0, "clip": 1.0, **settings}
    return TrainingConfig(**{**given, "batch": batch})  # type: ignore[arg-type]


def examples(n: int = 50, width: int = 5, classes: int = 2, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n, width))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True) * (1 + 1e-12)
    labels = (np.abs(phi[:, 0]) * 2 * classes).astype(int) % classes
    return make_records(phi, labels, prefix="u")


def setting_of(
    config: TrainingConfig, relation: str = "add_remove", unit_rows: int = 1
) -> LinearSetting:
    """Of a head of five features for two classes, on 50 records."""
    return LinearSetting.from_training_setup(
        make_recipe(config, relation, unit_rows=unit_rows), 50, 5
    )


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        ("binary_cross_entropy", 2),
        ("binary_cross_entropy", 3),
        ("cross_entropy", 2),
        ("cross_entropy", 4),
    ],
)
def test_unclamped_gradients_are_autograd_s(loss: str, classes: int) -> None:
    kind = LinearLoss.from_settings(training(loss=loss), classes)
    data = examples(classes=classes)
    theta = torch.randn(
        kind.outputs,
        5,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
        requires_grad=True,
    )
    x = torch.from_numpy(data.features)
    y = torch.from_numpy(data.labels)
    logits = x @ theta.T
    if loss == "cross_entropy":
        value = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
    else:
        target = (
            y[:, None].double()
            if classes == 2
            else torch.nn.functional.one_hot(y, classes).double()
        )
        value = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, target, reduction="sum"
        )
    value.backward()
    computed = gradient_sum(kind, theta.detach(), data, np.arange(50))
    assert theta.grad is not None
    assert computed.numpy() == pytest.approx(theta.grad.numpy(), abs=1e-12)


def test_the_derivative_is_clamped_and_its_norm_within_reach() -> None:
    logits = torch.linspace(-40, 40, 400, dtype=torch.float64)
    labels = torch.arange(400) % 2
    clamped = loss_derivative(
        LinearLoss.from_settings(training(clip=0.2), 2), logits[:, None], labels
    )
    assert float(clamped.abs().max()) == 0.2
    assert len(torch.unique(clamped)) > 10
    kind = LinearLoss.from_settings(training(loss="cross_entropy"), 3)
    norms = torch.linalg.vector_norm(
        loss_derivative(kind, torch.randn(400, 3).double() * 30, labels), dim=1
    )
    assert 1.41 < float(norms.max()) <= kind.derivative_bound


def test_rho_is_the_formula_rounded_up() -> None:
    config = training(epochs=3, lr=2.0, decay=0.5, weight_decay=0.1, clip=0.3, batch={"count": 2})
    setting = setting_of(config)
    found = sgd_sensitivity(setting)
    steps = [StepCoefficients.at_step(config, setting.plan, t) for t in range(6)]
    parts = [
        Fraction(at.step_size)
        * Fraction(0.3)
        * math.prod((Fraction(later.decay_factor) for later in steps[t + 1 :]), start=Fraction(1))
        for t, at in enumerate(steps)
    ]
    exact = sum(max(parts[t], parts[t + 1]) for t in (0, 2, 4))
    assert exact <= Fraction(found.rho) <= exact * Fraction(1 + 1e-13)
    assert 0 < found.rounding < 1e-9 * found.rho
    assert found.rho_fp >= found.rho + found.rounding


def test_rho_of_the_mean_is_the_mean_of_rho() -> None:
    each = [
        sgd_sensitivity(setting_of(training(weight_decay=0.05, epochs=t))).rho for t in (8, 9, 10)
    ]
    whole = sgd_sensitivity(setting_of(training(weight_decay=0.05)), average=3)
    assert whole.rho == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "rows", "units"),
    [("add_remove", 3, 3), ("substitute", 2, 1), ("substitute", 6, 3), ("remove", 1, 1)],
)
def test_one_k_moves_every_row_of_its_units(name: str, rows: int, units: int) -> None:
    found = sgd_sensitivity(setting_of(training(), name, units))
    assert found.per_k == pytest.approx(rows * found.rho)


@pytest.mark.parametrize(("shares", "average"), [(1, 1), (3, 1), (1, 4)])
def test_other_orders_and_shapes_stay_within_the_stated_rounding(shares: int, average: int) -> None:
    """The same records in another order, and one at a time: sums in another order, other last
    digits.
    """
    config = training(
        epochs=60, lr=1.9, batch={"count": shares, "normalizer": 50.0 / shares, "n_max": 70}
    )
    data = examples(width=40)
    setup = make_recipe(config)
    base = train_linear(setup, data, average=average)
    gaps = []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(50)
        again = train_linear(setup, data.take(order), average=average)
        gaps.append(float(torch.linalg.vector_norm(again.weight - base.weight)))
    assert 0 < max(gaps) <= base.sensitivity.rounding


def test_the_step_limit_is_exact_and_names_what_to_do() -> None:
    kind = LinearLoss.from_settings(training(), 2)
    at_limit = StepCoefficients(1.0, 8.0 / 70)  # 8 / 70 rounds down: s h n_max <= 2
    assert not at_limit.may_expand(kind, 70)
    assert StepCoefficients(1.0, math.nextafter(8.0 / 70, 1)).may_expand(kind, 70)
    config = training(lr=6.0)
    with pytest.raises(
        ConfigError,
        match=r"training\.lr: .*5\.7142\b.*\b70\b.*\b50\b",
    ):
        sgd_sensitivity(setting_of(config))
    allowed = training(lr=5.7142)
    assert sgd_sensitivity(setting_of(allowed)).rho > 0
    floor = training(lr=1.0, lr_min=6.0)
    with pytest.raises(ConfigError, match=r"training\.lr_min"):
        sgd_sensitivity(setting_of(floor))


def test_more_records_than_n_max_stop_the_run() -> None:
    refused(
        (ConfigError, "n_max=70", lambda: train_linear(make_recipe(training()), examples(71))),
        (
            ConfigError,
            "n_max=70",
            lambda: train_erm(make_recipe(training(weight_decay=0.1)), examples(71), 1e-6),
        ),
    )


# -- the minimiser
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "classes", "clip"), [("binary_cross_entropy", 2, 1.0), ("cross_entropy", 3, 1.0)]
)
def test_the_minimiser_is_another_solver_s(loss: str, classes: int, clip: float) -> None:
    config = training(loss=loss, weight_decay=0.02, clip=clip)
    data = examples(classes=classes)
    found = train_erm(make_recipe(config, classes=classes), data, 1e-8)
    x = torch.from_numpy(data.features)
    y = torch.from_numpy(data.labels)
    outputs = found.loss.outputs

    def value(flat: np.ndarray) -> float:
        theta = torch.from_numpy(flat).reshape(outputs, 5)
        logits = x @ theta.T
        if classes == 2:
            fit = torch.nn.functional.binary_cross_entropy_with_logits(
                logits[:, 0], y.double(), reduction="sum"
            )
        else:
            fit = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        return float(fit / 50 + 0.01 * (theta**2).sum())

    other = minimize(value, np.zeros(outputs * 5), method="BFGS", options={"gtol": 1e-6})
    assert found.weight.numpy().ravel() == pytest.approx(other.x, abs=1e-3)
    gradient = (
        gradient_sum(found.loss, found.weight, data, np.arange(50)) / 50 + 0.02 * found.weight
    )
    assert float(torch.linalg.vector_norm(gradient)) <= 1e-8


def test_the_minimiser_s_constants() -> None:
    config = training(weight_decay=0.02, clip=0.5)
    found = erm_sensitivity(setting_of(config), 1e-8)
    assert found.rho == pytest.approx(0.5 / (0.02 * 50))
    assert found.rounding == pytest.approx(2 * 1e-8 / 0.02)
    assert iterations_to_tolerance(setting_of(config), 1e-8) < 500
    several = training(weight_decay=0.02, batch={"count": 2})
    with pytest.raises(ConfigError, match=r"training\.batch\.count=2"):
        erm_sensitivity(setting_of(several), 1e-8)


# -- distances
# --------------------------------------------------------------------------------------------------


def known(
    weight: list[list[float]],
    queries: list[list[float]],
    rho: float = 0.25,
    loss: str = "binary_cross_entropy",
):  # type: ignore[no-untyped-def]
    kind = LinearLoss.from_settings(training(loss=loss), 2 if len(weight) == 1 else len(weight))
    sensitivity = Sensitivity(rho, 0.0, 10.0, None, 1)
    trained = LinearTrained(
        torch.tensor(weight, dtype=torch.float64),
        kind,
        setting_of(training()).plan,
        sensitivity,
        training(),
    )
    return certify_linear(trained, np.array(queries), "add_remove", (0, 1, 2, 3))


def test_distances_count_how_often_rho_fits_strictly_into_the_margin() -> None:
    found = known([[1.0, 0.0]], [[1.0, 0.0], [-0.6, 0.0], [0.8, 0.6], [0.0, 1.0], [0.1, 0.9]])
    assert found.prediction.tolist() == [1, 0, 1, 0, 1]
    # margins over lengths 1, 1, .8, 0, .11
    assert found.stable_distance.tolist() == [3, 3, 3, 0, 0]
    assert found.certified[:, 0].tolist() == [True, True, True, True]
    assert found.certified[:, 3].tolist() == [False] * 4
    assert found.certified[:, 4].tolist() == [True, False, False, False]


def test_no_distance_is_too_long_for_a_vote() -> None:
    """A margin that a great many records could not close: distances end at a public cap, which
    certified votes take.
    """
    head = known([[1.0, 0.0]], [[1.0, 0.0], [-0.5, 0.0]], 1e-13)
    assert head.distance.tolist() == [MAX_STABLE_DISTANCE, MAX_STABLE_DISTANCE]
    voted = certified_vote(
        head.prediction[None].repeat(3, 0), head.distance[None].repeat(3, 0), touches=1
    )
    assert voted.distance.tolist() == [2 * MAX_STABLE_DISTANCE + 1] * 2


def test_ties_belong_to_the_first_class_and_have_no_distance() -> None:
    found = known(
        [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], 0.01, "cross_entropy"
    )
    assert found.prediction.tolist() == [0, 2]
    assert found.stable_distance[0] == 0
    assert not found.certified[:, 0].any()
    assert found.stable_distance[1] == math.ceil(1 / (math.sqrt(2) * 0.01)) - 1


def test_one_against_all_pays_for_both_classifiers() -> None:
    found = known([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0]], 0.01)
    assert found.stable_distance.tolist() == [49]  # (1 - 0) / (2 * .01), rounded down strictly


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_query_that_is_no_number_is_an_error(bad: float) -> None:
    with pytest.raises(UnsoundError):
        known([[1.0, 0.0]], [[bad, 0.0]])


def test_lengths_bound_vectors_whose_squares_underflow() -> None:
    for size in (1e-150, 1e-162, 1e-200, 1e-300, 5e-324, 0.0):
        phi = np.array([[size, -size, 0.0]])
        assert bound_norms(phi)[0] >= size * 1.41
    ordinary = np.array([[0.6, 0.8]])
    assert bound_norms(ordinary)[0] == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("train", [train_linear, partial(train_erm, tolerance=1e-6)])
def test_more_rows_of_a_person_than_allowed_are_refused_by_training(
    train: Callable[..., LinearTrained],
) -> None:
    """Ids do not repeat, so nothing is counted where records are units of their own."""
    records = examples()
    setup = make_recipe(training(weight_decay=0.1), unit_rows=1)
    assert train(setup, records).weight.shape == (1, 5)
    units = records.ids.copy()
    units[1] = units[0]
    with pytest.raises(ConfigError, match="'u0' has 2 rows"):
        train(setup, replace(records, units=units))
