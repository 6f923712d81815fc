"""Releases that are replayed on a neighbour: none that agt has is accused, and each planted flaw
is caught by one pair.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from synthetic import ball

from agt.api import fit
from agt.data.in_memory import Declared
from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, PureDP
from agt.mechanisms.measurement import Measurement, TableValues
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import (
    ExponentialMechanism,
    GlobalSensitivity,
    InverseSensitivity,
    ProposeTestRelease,
    SmoothCauchy,
    SmoothLaplace,
)
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.statistics import NoisyStatistics, ReleasedCentre, SumNoiseScales
from agt.mechanisms.weights import ReleaseWeights, release_weights
from agt.models.model import Model
from agt.numeric import Randomness, gaussian_mu, noisy
from agt.settings import RelationConfig
from agt.training.settings import NoiseConfig
from agt_audit import replay as replaying
from agt_audit.edited_records import without
from agt_audit.neighbours import retrained
from agt_audit.replay import ReplayedRelease, ReplayedTraining, allowed_mu, publish_training, replay
from agt_cli.report.findings import Finding, Outcome

REFERENCE = {"threads": 1, "kernel": "reference"}


def trained(classes: int = 2, n: int = 60, **settings: Any) -> Model:
    rng = np.random.default_rng(1)
    x, _ = ball(n, 3)
    y = (x[:, 0] + 0.2 * rng.normal(size=n) > 0).astype(int) + (classes > 2) * (x[:, 1] > 0.3)
    declared = Declared(
        classes=list(range(classes)), size=n, features=True, settings=True, ids=True
    )
    return fit(x, y, declared=declared, compute=REFERENCE, **settings).model


def replayed(model: Model, mechanism: Any, count: int = 1, seed: int = 0) -> list[Finding]:
    queries = model.problem.dataset.train.features[:20]
    release = ReplayedRelease(model, queries, mechanism)
    return list(release.findings(count, np.random.default_rng(seed)))


def outcomes(findings: Any) -> set[Outcome]:
    return {finding.outcome for finding in findings}


LABELS = [
    RandomizedResponse(eps=1.0),
    RandomizedResponse(eps=1.0, delta=1e-3),
    GaussianMargin(mu=1.0),
    SmoothCauchy(eps=1.0),
    SmoothLaplace(eps=1.0, delta=1e-3),
    ProposeTestRelease(eps=1.0, delta=1e-3),
    GlobalSensitivity(eps=1.0),
    ExponentialMechanism(eps=1.0),
    InverseSensitivity(eps=1.0),
    CertifiedQuantile(eps=1.0),
]
VOTES = [NoisyArgmax(eps=1.0), GaussianArgmax(mu=1.0)]
WEIGHTS = [ReleaseWeights(mu=1.0), NoisyStatistics(mu=1.0)]
OBJECTIVE = ObjectivePerturbation(eps=2.0, delta=1e-3)
TWO_ROWS = {"unit_rows": 2, "units": np.repeat([f"person {at}" for at in range(30)], 2)}
SOUND = [
    ({}, [*LABELS, *WEIGHTS]),
    ({"relation": "substitute"}, [LABELS[0], *WEIGHTS]),
    (TWO_ROWS, [LABELS[0], *WEIGHTS]),
    ({"certificate": "box", "ks": 3, "epochs": 2}, LABELS[:1]),
    ({"certificate": "erm"}, [*WEIGHTS, OBJECTIVE]),
    ({"certificate": "votes", "members": 7}, [*VOTES, OBJECTIVE]),
    ({"certificate": "votes", "members": 7, "relation": "substitute"}, VOTES),
    (
        {"certificate": "votes", "members": 7, "classes": 3},
        [
            NoisyArgmax(eps=1.0, classes=3),
            GaussianArgmax(mu=1.0, classes=3),
            RandomizedResponse(eps=1.0, classes=3),
        ],
    ),
]


@pytest.mark.parametrize(
    ("settings", "mechanisms"), SOUND, ids=[str(at) for at in range(len(SOUND))]
)
def test_no_mechanism_is_accused(settings: dict[str, Any], mechanisms: list[Any]) -> None:
    model = trained(**settings)
    for mechanism in mechanisms:
        head = model
        if mechanism is OBJECTIVE and model.release_head is not model:
            head = model.release_head
            head = head.retrained(head.problem.dataset.train)
        pairs = 1 if mechanism in LABELS[2:] else 2
        findings = replayed(head, mechanism, pairs)
        assert len(findings) == 2 * pairs
        assert outcomes(findings) == {Outcome.NOT_CONTRADICTED}, (mechanism, findings)
        # which may lose nothing on a pair
        if mechanism.name not in ("certified_quantile", "propose_test_release"):
            assert max(finding.found for finding in findings[1::2]) > 0


# -- training with noise inside
# ------------------------------------------------------------------------------------------


def noisy_model(n: int = 20, count: int = 2, epsilon: float = 2.0) -> Any:
    given = {
        "certificate": "box",
        "ks": 0,
        "epochs": 2,
        "clip": 0.05,
        "batch": {"count": count, "n_max": 30},
    }
    model = trained(n=n, loss="binary_cross_entropy", lr=1.0, **given)
    settings = replace(model.problem.settings, noise=NoiseConfig(epsilon=epsilon, delta=1e-5))
    return replace(model, problem=replace(model.problem, settings=settings))


def test_training_with_noise_is_not_accused() -> None:
    model = noisy_model()
    release = ReplayedRelease(model, model.problem.dataset.train.features)
    findings = list(release.findings(2, np.random.default_rng(0)))
    assert outcomes(findings) == {Outcome.NOT_CONTRADICTED}, findings
    assert 0.02 < findings[1].found <= 1


def test_an_early_exit_from_training_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch without records takes no step: the number of steps tells whether somebody is
    there.
    """

    class Skipping(ReplayedTraining):
        def step(self, rows: np.ndarray) -> None:
            if len(rows):
                super().step(rows)

    model = noisy_model(n=12, count=30)
    train = model.problem.dataset.train
    alone = next(rows for rows in model.problem.plan.batches(train.units) if len(rows) == 1)
    other = retrained(model.problem, without(train, alone))

    def findings() -> tuple[Finding, ...]:
        sides = (partial(publish_training, side) for side in (model, other))
        return replay("training", ApproximateDP(2.0, 1e-5), *sides, "")

    assert outcomes(findings()) == {Outcome.NOT_CONTRADICTED}
    monkeypatch.setattr(replaying, "ReplayedTraining", Skipping)
    assert findings()[0].violated


# -- flaws in copies of mechanisms, each caught by one pair
# --------------------------------------------------------------


class SizeOfTheRecords(NoisyStatistics):
    """Divides by the number of records where the mechanism divides by a public size."""

    def centre(self, head: Any, total: np.ndarray) -> ReleasedCentre:
        return ReleasedCentre(
            total / len(head.problem.dataset.train), super().centre(head, total).scale
        )


class UnclippedCentre(ReleasedCentre):
    def shifted_rows(self, v: np.ndarray) -> np.ndarray:
        return np.concatenate([3 * self.scale * (v - self.mean), np.full((len(v), 1), 0.3)], axis=1)


class ClippedOnce(NoisyStatistics):
    """Clips the records that are summed first, and not the centred ones."""

    def centre(self, head: Any, total: np.ndarray) -> ReleasedCentre:
        known = super().centre(head, total)
        return UnclippedCentre(known.mean, known.scale)


class PrivateThreshold(ReleaseWeights):
    """Scales its noise to a quantile of the records' own lengths."""

    def draw(self, head: Any, source: Randomness) -> Any:
        lengths = np.linalg.norm(head.problem.dataset.train.features, axis=1)
        moves = head.l2_sensitivity * float(np.quantile(lengths, 0.3))
        return release_weights(head.trained.weight.numpy(), moves, self.guarantee, source)


class HalfTheNoise(NoisyStatistics):
    """Makes its noise for half the sensitivity."""

    def noise_scales(self, head: Any) -> SumNoiseScales:
        due = super().noise_scales(head)
        return SumNoiseScales(due.mean / 2, due.gram / 2, due.sums / 2)


class UntilItIsRight(RandomizedResponse):
    """Draws again until the first label is the model's own."""

    def release(self, predictions: np.ndarray, *given: Any) -> np.ndarray:
        while (labels := super().release(predictions, *given))[0] != predictions[0]:
            pass
        return labels


@pytest.mark.parametrize(
    ("mechanism", "measure"),
    [
        (SizeOfTheRecords(mu=1.0), "differences"),
        (ClippedOnce(mu=1.0), "deviation/bound"),
        (PrivateThreshold(mu=1.0), "differences"),
        (HalfTheNoise(mu=1.0), "deviation/bound"),
        (UntilItIsRight(eps=1.0), "differences"),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, str) else given,
)
def test_a_planted_flaw_is_caught_by_one_pair(mechanism: Any, measure: str) -> None:
    findings = replayed(trained(), mechanism)
    assert measure in [finding.measure for finding in findings if finding.violated], findings
    (honest,) = (kind for kind in type(mechanism).__mro__[1:2])
    same = honest(**{name: getattr(mechanism, name) for name in mechanism.guarantee.parameters})
    assert outcomes(replayed(trained(), same)) == {Outcome.NOT_CONTRADICTED}


# -- agt measure
# --------------------------------------------------------------------------------------------------


def table(rows: int) -> TableValues:
    """Two columns of numbers, two of words; the last row alone has a word of its own."""
    rng = np.random.default_rng(0)
    words = np.array([*rng.choice(["a", "b"], 399), "alone"], dtype=object)[:rows]
    numbers = {"x": rng.normal(size=400)[:rows], "y": rng.exponential(size=400)[:rows]}
    return TableValues(numbers, {"w": words, "v": words[::-1]}, rows)


class PrivateQuantiles(Measurement):
    """Takes a range from the records' own quantiles."""

    def draw(self, wanted: TableValues, source: Randomness) -> Any:
        told = super().draw(wanted, source)
        ends = np.quantile(wanted.numbers["x"], (0.01, 0.99))
        return replace(told, ranges={**told.ranges, "x": tuple(ends.tolist())})


@pytest.mark.parametrize(("kind", "caught"), [(Measurement, False), (PrivateQuantiles, True)])
@pytest.mark.parametrize("rows", [(400, 399), (399, 400)])
def test_measured_constants(kind: type[Measurement], caught: bool, rows: tuple[int, int]) -> None:
    """Words that one side alone has are counted against the claim, and are told by chance alone
    (1 in 10^9).
    """
    mechanism = kind(1.0, 1e-9, RelationConfig("add_remove"))
    first, second = (lambda source, n=n: {"drawn": mechanism.draw(table(n), source)} for n in rows)
    equal, inputs = replay("agt measure", ApproximateDP(1.0, 5e-10), first, second, "")
    assert (equal.violated, inputs.violated) == (caught, False), (equal, inputs)
    assert 0.8 < inputs.found <= 1


# -- the comparison itself
# -----------------------------------------------------------------------------------------------


def test_noise_that_a_guarantee_asks_for_is_worked_out_once_more() -> None:
    for eps, delta in ((0.1, 1e-6), (1.0, 1e-5), (8.0, 0.01)):
        assert allowed_mu(eps, delta) == pytest.approx(gaussian_mu(eps, delta), rel=1e-7)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (lambda source: {"z": 1.0 + source.below(6)}, "z"),
        (lambda source: {"z": 0 * source.below(7)}, "ReplayDiverged"),
        (lambda source: {"z": 0 * source.below(6) * source.below(6)}, "ReplayDiverged"),
        (lambda source: {"z": 0}, "only 0 random draws"),
        (lambda source: {"z": 0 * source.below(6), "more": 1}, "more"),
        (lambda source: {"z": 1 // 0}, "ZeroDivisionError"),
    ],
    ids=["a value", "a parameter", "a draw more", "a draw less", "a field", "an error"],
)
def test_whatever_differs_is_told(
    second: Callable[[Randomness], dict[str, Any]], told: str
) -> None:
    def first(source: Randomness) -> dict[str, Any]:
        return {"z": 0 * source.below(6)}

    assert outcomes(replay("-", PureDP(1.0), first, first, "")) == {Outcome.NOT_CONTRADICTED}
    equal, _ = replay("-", PureDP(1.0), first, second, "")
    assert equal.violated
    assert told in equal.meaning


def test_noise_whose_size_is_private_is_told_although_what_is_published_agrees() -> None:
    sides = (
        lambda source, sigma=sigma: {"z": noisy(np.zeros(2), sigma, source)} for sigma in (1.0, 2.0)
    )
    equal, _ = replay("-", GaussianDP(1.0), *sides, "")
    assert equal.violated
    assert re.search(r"gaussian \(2\.0,.*gaussian \(1\.0,", equal.meaning)
