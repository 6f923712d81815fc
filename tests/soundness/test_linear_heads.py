"""Linear heads in closed form: nothing moves farther than rho, and distances are 1-Lipschitz,
over thousands of edits.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from adversary import assault
from adversary_settings import Data, Setting, fit
from checks import WIDTH, Case, moved_by
from synthetic import make_records

from agt.errors import ConfigError
from agt.models.erm import ErmKind
from agt.models.stability import StabilityKind
from agt.settings import FeaturesConfig, TrainingConfig
from agt.training import linear, sensitivity
from agt.training.linear import LinearTrained
from agt.training.sensitivity import LinearLoss, StepCoefficients

SOFTMAX = {"loss": "cross_entropy", "clip": 1.0, "lr": 1.3, "epochs": 3}
TWO = {"batch": {"count": 2, "normalizer": 10.0, "n_max": 45}}


def head(
    training: dict[str, Any], relation: str = "add_remove", dtype: str = "float64", **case: Any
) -> Setting:
    """A linear head on 24 units; ``training``: what differs from the defaults."""
    batch = {"count": 1, "normalizer": 20.0, "n_max": 60, **training.get("batch", {})}
    settings = {
        "loss": "binary_cross_entropy",
        "epochs": 9,
        "lr": 2.0,
        "clip": 0.5,
        **training,
        "batch": batch,
    }
    made = Case("head", n=24, training=settings, **case)
    return Setting(made, relation, "stability", dtype, certificate=StabilityKind())


def on(features: FeaturesConfig) -> Setting:
    return replace(head({}), certificate=StabilityKind(features=features))


def average(setting: Setting, steps: int) -> Setting:
    return replace(setting, certificate=StabilityKind(average=steps))


def minimised(setting: Setting) -> Setting:
    return replace(setting, kind="erm", certificate=ErmKind(tolerance=1e-7))


# A setting, and the share of rho that some edit reaches.
HEADS = {
    "binary": (head({"lr": 2.6}), 0.5),
    "clamped hard": (head({"clip": 0.02, "epochs": 15}), 0.5),
    "batches": (
        head({"batch": {"count": 3, "normalizer": 7.0, "n_max": 40}, "epochs": 4, "lr": 1.3}),
        0.5,
    ),
    "decays": (head({"weight_decay": 0.2, "decay": 0.3, "lr": 1.7, "lr_min": 0.2}), 0.5),
    "batches and decays": (head({**TWO, "weight_decay": 0.4, "lr": 1}), 0.5),
    "float32 features": (head({}, dtype="float32"), 0.5),
    "average": (average(head({}), 5), 0.5),
    "replaced": (head({**TWO, "lr": 1.5}, "substitute"), 0.5),
    "removed": (head({}, "remove"), 0.5),
    "units of two rows": (head({}, unit_rows=2), 0.5),
    "one against all": (head({}, classes=4), 0.5),
    "softmax": (head(SOFTMAX, classes=3), 0.5),
    "two-class softmax": (head(SOFTMAX), 0.4),
    "landmarks": (
        on(FeaturesConfig(map="landmarks", count=3, public="test", root=0.0, bandwidth=0.5)),
        0.4,
    ),
    "relu, own lengths": (on(FeaturesConfig(map="relu", count=6, radius=2.0)), 0.5),
    "minimiser": (minimised(head({"weight_decay": 0.05})), 0.5),
    "softmax minimiser": (
        minimised(head({**SOFTMAX, "lr": 0.1, "weight_decay": 2.0}, classes=3)),
        0.5,
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HEADS)
def test_no_edit_moves_farther_than_rho_and_some_come_near(name: str) -> None:
    """Nor turns a label certified for it, nor moves a distance by more than one; rho is made of
    public constants alone.
    """
    setting, near = HEADS[name]
    report = assault(setting, 0, 40)
    assert not report.escapes, "\n".join(map(str, report.escapes))
    assert near < report.deviation <= 1
    assert report.labels > 30
    assert report.apart == setting.nests


def trained(setting: Setting, count: int = 1, x: float = 1.0, unit: str = "z") -> LinearTrained:
    """On so many records alike, with both labels in turn, the first of the second class."""
    records = make_records(
        np.full((count, WIDTH), x), (1 + np.arange(count)) % 2, [f"{unit}{i}" for i in range(count)]
    )
    (member,) = fit(setting, Data(records, records), (0,), 0).members
    assert isinstance(member, LinearTrained)
    return member


def test_rho_is_attained_to_the_last_digits_by_a_record_that_saturates() -> None:
    setting = head({"clip": 0.01, "weight_decay": 0.1})
    single = trained(setting)
    moved = moved_by(trained(setting, 0), single)
    assert moved <= single.sensitivity.rho_fp
    assert moved == pytest.approx(single.sensitivity.rho, rel=1e-9)


# -- rules broken on purpose


def test_a_rho_that_takes_the_last_rate_for_all_steps_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # type: ignore[attr-defined]
    right = StepCoefficients.at_step.__func__
    proved = sensitivity.sgd_sensitivity
    last_rate = type(
        "Broken", (), {"at_step": staticmethod(lambda t, p, s: right(StepCoefficients, t, p, 8))}
    )

    def broken(setting: sensitivity.LinearSetting, average: int = 1) -> sensitivity.Sensitivity:
        with pytest.MonkeyPatch.context() as patch:  # training itself keeps its rates
            patch.setattr(sensitivity, "StepCoefficients", last_rate)
            return proved(setting, average)

    monkeypatch.setattr(linear, "sgd_sensitivity", broken)
    assert assault(HEADS["decays"][0], 0, 60, until="contained").escapes


def test_a_rho_for_a_batch_that_never_changes_is_caught() -> None:
    """Batches are drawn anew in each epoch: what a record in the same batch throughout adds up to
    is too little for some.

    Rates fall at first, so that the first batch is worst; then they stay, and decay makes the last
    one worst.
    """
    training = {
        "batch": {"count": 2, "normalizer": 10.0, "n_max": 60},
        "epochs": 4,
        "decay": 2.0,
        "lr_min": 0.3,
    }
    setting = head({**training, "clip": 0.01, "lr": 0.9, "weight_decay": 0.35})
    empty = trained(setting, 0)
    at = [StepCoefficients.at_step(setting.case.config(), empty.plan, t) for t in range(8)]
    parts = [
        at[t].step_size * 0.01 * float(np.prod([later.decay_factor for later in at[t + 1 :]]))
        for t in range(8)
    ]
    moved = max(moved_by(empty, trained(setting, unit=f"z{name}-")) for name in range(64))
    assert moved <= empty.sensitivity.rho_fp
    assert moved == pytest.approx(empty.sensitivity.rho, rel=1e-6)
    assert moved > max(sum(parts[0::2]), sum(parts[1::2])) * 1.01


def expansion(derivative: object, loss: LinearLoss, rate: float, pairs: int = 1200) -> float:
    """The most that one step on one batch, taken from two points, drives them apart, relative to
    where they were.
    """
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(pairs // 40):
        phi = rng.normal(size=(6, WIDTH))
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        if rng.random() < 0.5:
            phi[:] = phi[0]
        x = torch.from_numpy(phi)
        y = torch.from_numpy(rng.integers(0, max(2, loss.outputs), 6))
        for _ in range(40):
            a = torch.from_numpy(rng.normal(size=(loss.outputs, WIDTH)) * rng.choice([0.3, 3.0]))
            b = a + torch.from_numpy(rng.normal(size=a.shape)) * float(rng.choice([1e-4, 0.1, 1.0]))
            steps = [t - rate / 6 * derivative(loss, x @ t.T, y).T @ x for t in (a, b)]  # type: ignore[operator]
            worst = max(
                worst,
                float(
                    torch.linalg.vector_norm(steps[0] - steps[1]) / torch.linalg.vector_norm(a - b)
                ),
            )
    return worst


@pytest.mark.parametrize(
    ("loss", "classes", "clip", "rate"),
    [
        ("binary_cross_entropy", 2, 0.3, 8.0),
        ("binary_cross_entropy", 3, 0.3, 8.0),
        ("cross_entropy", 3, 1.0, 4.0),
    ],
)
def test_steps_at_the_limit_do_not_expand_and_beyond_it_do(
    loss: str, classes: int, clip: float, rate: float
) -> None:
    kind = LinearLoss.from_settings(TrainingConfig(loss=loss, epochs=1, lr=1.0, clip=clip), classes)  # type: ignore[arg-type]
    assert kind.smoothness * rate == 2, "the limit for a full batch of B records"
    assert expansion(linear.loss_derivative, kind, rate) <= 1 + 1e-10
    assert expansion(linear.loss_derivative, kind, 1.5 * rate) > 1.01


def test_a_clamped_softmax_expands_and_is_refused() -> None:
    free = LinearLoss.from_settings(
        TrainingConfig(loss="cross_entropy", epochs=1, lr=1.0, clip=1.0), 3
    )

    def clamped(loss: LinearLoss, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return linear.loss_derivative(loss, logits, labels).clamp(-0.3, 0.3)

    assert expansion(clamped, free, 4.0) > 1.001
    with pytest.raises(ConfigError, match=r"clip_derivative=0\.3.*Use training\.clip_derivative=1"):
        LinearLoss.from_settings(
            TrainingConfig(loss="cross_entropy", epochs=1, lr=1.0, clip=0.3), 3
        )


def test_a_step_beyond_the_limit_breaks_rho_if_nobody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hundred equal records with balanced labels: their common minimum repels where the step
    is too large.
    """
    setting = head(
        {"lr": 60.0, "clip": 1.0, "epochs": 6, "batch": {"normalizer": 200.0, "n_max": 250}}
    )
    with pytest.raises(ConfigError, match=r"training\.lr: .*6\.4"):
        trained(setting, 200)
    monkeypatch.setattr(StepCoefficients, "may_expand", lambda self, loss, n_max: False)
    here = trained(setting, 200)
    there = trained(setting, 201)
    assert moved_by(here, there) > 4 * here.sensitivity.rho_fp
