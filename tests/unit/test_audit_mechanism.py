"""Audits of release mechanisms and of released weights: what leaks more than it claims is
caught, what does not is not.
"""

import math
import re
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from itertools import product
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agt
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.budget import Lot
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.mechanism import MECHANISMS, Mechanism
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.published import SmoothCauchy
from agt.mechanisms.quantile import CertifiedQuantile
from agt.numeric import SeededRandomness
from agt_audit.mechanism import (
    NeighbourPair,
    Side,
    audit_made_up_pairs,
    audit_pair,
    audit_quantile,
    exact_loss,
    expected_bound,
    is_wrong_cost,
    neighbouring_pairs,
    search,
    square_of_responses,
)
from agt_audit.pairs import neighbours, points_between_labels
from agt_audit.trials import TrialPlan
from agt_cli.report.findings import Strength

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
KINDS: dict[str, dict[str, Any]] = {
    "box": {"certificate": "box", "ks": 5, "epochs": 1},
    "stability": {"certificate": "stability"},
    "vote": {"certificate": "stability", "members": 3},
    "votes": {"certificate": "votes", "members": 5},
}


def plan(seed: int = 0, trials: int = 2000, **given: Any) -> TrialPlan:
    return TrialPlan(trials, source=SeededRandomness(seed), **given)


@cache
def labelling(kind: str, mechanism: Mechanism, relation: str = "add_remove") -> Labelling:
    """A run on two clouds, and what answers."""
    rng, labels = np.random.default_rng(0), np.arange(60) % 2
    points = 0.6 * rng.normal(size=(60, 2)) + (2 * labels - 1)[:, None]
    stated = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)
    compute = {"threads": 1, "kernel": "reference"}
    model = agt.fit(
        points, labels, declared=stated, relation=relation, compute=compute, **KINDS[kind]
    ).model
    return Labelling.judged(model, mechanism)


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
        findings, _ = audit_made_up_pairs(
            RandomizedResponse(eps=1.0, delta=1e-5), range(101), plan(trials=50)
        )
        assert not findings[0].violated

    @pytest.mark.parametrize("given", [{"eps": 1.0}, {"eps": 1.0, "delta": 1e-5}])
    def test_an_audit_as_it_is_called_works_out_what_answers_cost(
        self, given: dict[str, Any]
    ) -> None:
        findings, _ = audit_made_up_pairs(RandomizedResponse(**given), range(101), plan(trials=50))
        assert findings[-1].measure == "differences"
        assert not findings[-1].violated


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("eps", [0.2, 1.0, 5.0])
def test_responses_are_as_gaussian_as_the_best_of_all_tests_says(eps: float, size: int) -> None:
    """Against every sequence of answers, likeliest first: no test of it goes beyond the curve,
    and one reaches it.
    """
    chance, outcomes = 1 / (1 + math.exp(-eps)), list(product((0, 1), repeat=size))
    sides = [
        [math.prod(p if bit else 1 - p for bit in bits) for bits in outcomes]
        for p in (chance, 1 - chance)
    ]
    ordered = sorted(range(len(outcomes)), key=lambda place: sides[1][place] / sides[0][place])
    hits, alarms = (np.cumsum([side[place] for place in ordered])[:-1] for side in sides)
    losses = NormalDist().inv_cdf
    mu = max(losses(hit) - losses(alarm) for hit, alarm in zip(hits, alarms, strict=True))
    assert square_of_responses(eps, size) == pytest.approx(mu**2, rel=1e-9)


class TestDraws:
    def test_a_label_that_tells_is_found_among_many(self) -> None:
        """Of ten classes one comes out on one side alone: the split finds it, whichever it is."""

        class Telling(RandomizedResponse):
            def release(self, predictions: np.ndarray, *given: Any, **more: Any) -> np.ndarray:
                labels = super().release(predictions, *given, **more)
                labels[: len(labels) // 20] = 7 if predictions[0] == 1 else 3
                return labels

        found = audit_pair(Telling(eps=0.1, classes=10), DIFFERING, plan(), 0)[1]
        assert found.violated

    def test_without_data(self) -> None:
        """Of two pairs each has its share of the error probability; the table of all pairs
        stands beside.
        """
        findings, losses = audit_made_up_pairs(
            RandomizedResponse(eps=0.7, classes=5), range(20), plan()
        )
        assert len(losses) == 20
        assert all(finding.confidence == pytest.approx(0.975) for finding in findings[1:-1])
        assert not any(finding.violated for finding in findings)
        gap, _ = audit_made_up_pairs(SmoothCauchy(eps=1.0), (0, 50), plan(trials=10_000))
        bounds = [f.found for f in gap if f.violated and f.strength is Strength.CONFIDENT]
        assert bounds == [pytest.approx(5.6, abs=0.6)]

    def test_quantile(self) -> None:
        """K_q one apart: the claim is attained and not exceeded; two apart: both ways of looking
        see it.
        """
        mechanism, sides = CertifiedQuantile(eps=1.0), [np.array([k]) for k in (5, 6, 7)]
        near = audit_quantile(mechanism, (sides[0], sides[1]), 20, plan(trials=150), "none")
        far = audit_quantile(mechanism, (sides[0], sides[2]), 20, plan(trials=150), "none")
        assert [finding.violated for finding in (near[0], near[1])] == [False, False]
        assert [finding.violated for finding in (far[0], far[1])] == [True, True]
        assert near[1].found > 0.2


class TestSearch:
    @pytest.mark.parametrize("kind", ["box", "vote", "votes"])
    def test_labels_that_differ(self, kind: str) -> None:
        """A query between the roots of two neighbours: it is seen otherwise, and by no more than
        one k.
        """
        mine = labelling(kind, RandomizedResponse(eps=1.0))
        points = mine.model.problem.dataset.train.features
        found = search(mine, partial(expected_bound, mine.mechanism, plan=plan()), points, 2, 32, 0)
        assert found.first != found.second
        assert found.moved <= 1
        assert not exact_loss(mine.mechanism, found).exceeds

    def test_where_all_answers_are_alike_the_points_are_records(self) -> None:
        model: Any = SimpleNamespace(predict=lambda points: np.zeros(len(points)))
        anchors = np.arange(20.0).reshape(10, 2)
        points = points_between_labels(model, anchors, 3, np.random.default_rng(0))
        assert points.tolist() == anchors[:3].tolist()

    def test_points_lie_where_the_answer_changes(self) -> None:
        model: Any = SimpleNamespace(predict=lambda points: points[:, 0] > 0.5)
        anchors = np.random.default_rng(0).normal(size=(40, 2))
        points = points_between_labels(model, anchors, 8, np.random.default_rng(0))
        assert len(points) == 8
        assert points[:, 0] == pytest.approx(0.5)

    def test_a_relation_that_replaces(self) -> None:
        mine = labelling("stability", RandomizedResponse(eps=1.0), "substitute")
        points = mine.model.problem.dataset.train.features
        edits = [edit for edit, _ in neighbours(mine.model, points[:2], 2)]
        assert len(edits) == 2
        for number, edit in enumerate(edits, 1):
            assert re.search(rf"\bunit '.*\badded\b.*\bquery {number}\b", edit), edit


COSTS: list[tuple[Guarantee, int, dict[str, float], bool]] = [
    *(
        (guarantee, size, {}, False)
        for guarantee in (PureDP(0.1), PureDP(8.0), ApproximateDP(1.0, 1e-6), GaussianDP(0.5))
        for size in (1, 3, 1000)
    ),
    (PureDP(1.0), 8, {"pure": 0.5}, True),
    (PureDP(1.0), 8, {"square": 0.5}, True),
    *(
        (PureDP(eps), size, {"square": share}, True)
        for eps, share in ((0.1, 0.98), (1.0, 0.98), (1.0, 1.02))
        for size in (1, 8, 100)
    ),
    (ApproximateDP(1.0, 1e-6), 8, {"leak": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 1.0001}, True),
]


@pytest.mark.parametrize(("guarantee", "size", "times", "wrong"), COSTS)
def test_a_debit_is_the_cost_by_a_formula_of_the_auditors_own(
    guarantee: Guarantee, size: int, times: dict[str, float], wrong: bool
) -> None:
    cost = Lot(guarantee, size).cost
    spent = replace(
        cost, **{name: getattr(cost, name) * Decimal(share) for name, share in times.items()}
    )
    assert is_wrong_cost(spent, (guarantee, size)) is wrong
    other = Lot(PureDP(2.0), 2).cost
    assert wrong or not is_wrong_cost(spent.plus(other), (guarantee, size), (PureDP(2.0), 2))
