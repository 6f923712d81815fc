"""Audits of release mechanisms and of released weights: what leaks more than it claims is
caught, what does not is not.
"""

from typing import Any

import numpy as np
import pytest

from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.published import SmoothCauchy
from agt.mechanisms.quantile import CertifiedQuantile
from agt.numeric import SeededRandomness
from agt_audit.label_pairs import (
    NeighbourPair,
    Side,
    audit_pair,
    audit_synthetic_pairs,
    exact_loss,
    neighbouring_pairs,
)
from agt_audit.mechanism import audit_quantile
from agt_audit.trials import TrialPlan

RIGOROUS: list[tuple[str, dict[str, Any]]] = [
    ("randomized_response", {"eps": 1.0}),
    ("randomized_response", {"eps": 1.0, "delta": 0.01}),
    ("randomized_response", {"eps": 0.7, "classes": 5}),
    ("gaussian_margin", {"mu": 1.0}),
    ("smooth_cauchy", {"eps": 1.0}),
    ("smooth_laplace", {"eps": 1.0, "delta": 0.01}),
    ("propose_test_release", {"eps": 1.0, "delta": 0.01}),
    ("global_sensitivity", {"eps": 1.0}),
    ("noisy_argmax", {"eps": 1.0}),
    ("exponential_mechanism", {"eps": 1.0, "classes": 3}),
    ("inverse_sensitivity", {"eps": 1.0}),
]
DIFFERING = NeighbourPair(Side(1, 0), Side(0, 0))


def plan(seed: int = 0, trials: int = 2000, **given: Any) -> TrialPlan:
    return TrialPlan(trials, source=SeededRandomness(seed), **given)


class TestExactly:
    @pytest.mark.parametrize(("name", "given"), RIGOROUS)
    def test_no_rigorous_mechanism_exceeds_its_claim(
        self, name: str, given: dict[str, Any]
    ) -> None:
        mechanism = MECHANISMS[name](**given)
        losses = [exact_loss(mechanism, pair) for pair in neighbouring_pairs(mechanism, range(30))]
        assert not any(loss.exceeds for loss in losses)
        assert max(loss.rank for loss in losses) <= (given.get("eps") or given["mu"]) * (1 + 1e-9)

    def test_noisy_argmax_by_counts_of_votes(self) -> None:
        """Every step of n1 - n0 from -8 to 8 by two is listed, up to exchanging the labels."""
        listed = {
            (pair.first, pair.second) for pair in neighbouring_pairs(NoisyArgmax(eps=1.0), range(9))
        }
        for gap in range(-8, 7):
            sides = [Side(int(g > 0), abs(g)) for g in (gap, gap + 2)]
            mirrored = [Side(int(g > 0), abs(g)) for g in (-gap, -gap - 2)]
            ways = [(a, b) for one in (sides, mirrored) for a, b in (one, one[::-1])]
            assert any(way in listed for way in ways), gap

    def test_an_audit_as_it_is_called_sees_a_table_of_twice_the_delta(self) -> None:
        """``agt audit mechanism`` has no draws that would: a chance of 1e-5 is met by nobody."""
        findings = audit_synthetic_pairs(
            RandomizedResponse(eps=1.0, delta=1e-5), range(101), plan(trials=50)
        )
        assert not findings[0].violated


class TestDraws:
    def test_a_label_that_tells_is_found_among_many(self) -> None:
        """Of ten classes one comes out on one side alone: the split finds it, whichever it is."""

        class Telling(RandomizedResponse):
            def release(self, predictions: np.ndarray, *given: Any, **more: Any) -> np.ndarray:
                labels = super().release(predictions, *given, **more)
                labels[: len(labels) // 20] = 7 if predictions[0] == 1 else 3
                return labels

        found = audit_pair(Telling(eps=0.1, classes=10), DIFFERING, plan(), 0).drawn
        assert found.violated

    def test_without_data(self) -> None:
        findings = audit_synthetic_pairs(RandomizedResponse(eps=0.7, classes=5), range(20), plan())
        assert "all 20 pairs" in findings[0].attack
        assert [finding.confidence for finding in findings] == [None, *[pytest.approx(0.975)] * 2]
        assert not any(finding.violated for finding in findings)
        gap = audit_synthetic_pairs(SmoothCauchy(eps=1.0), (0, 50), plan(trials=10_000))
        table, *drawn = gap
        assert table.violated
        assert [f.found for f in drawn if f.violated] == [pytest.approx(5.6, abs=0.6)]
        assert [finding.confidence for finding in drawn] == [pytest.approx(0.975)] * 2

    def test_quantile(self) -> None:
        """K_q one apart: the claim is attained and not exceeded; two apart: both ways of looking
        see it.
        """
        mechanism = CertifiedQuantile(eps=1.0)
        near = audit_quantile(mechanism, (5, 6), 20, plan(trials=150))
        far = audit_quantile(mechanism, (5, 7), 20, plan(trials=150))
        assert [finding.violated for finding in (near[0], near[1])] == [False, False]
        assert [finding.violated for finding in (far[0], far[1])] == [True, True]
        assert near[1].found > 0.2
