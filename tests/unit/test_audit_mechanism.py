"""Audits of release mechanisms and of released weights: what leaks more than it claims is caught, what does not is not."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import agt
from agt.audit import worst
from agt.audit.estimates import Claimed, Mistakes, epsilon_bound
from agt.audit.events import Labels, Tail, chosen, counted, each
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.mechanism import (
    Pair,
    Plan,
    Side,
    audit_alone,
    audit_pair,
    audit_quantile,
    exact_loss,
    expected_bound,
    neighbouring,
)
from agt.audit.neighbours import retrained
from agt.audit.planted.mechanism import PLANTED, audited_grid
from agt.audit.verdict import Attacked
from agt.audit.weights import Heads, audit_weights, farthest
from agt.audit.worst import Quarry, crossings, influences, neighbours, search, segments, values_of
from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.exposure import true_loss
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import NoisyArgmax, SmoothCauchy
from agt.mechanisms.release import Labelling
from agt.mechanisms.weights import ReleaseWeights
from agt.models.linear import LinearModel
from agt.randomness import SeededRandomness

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
DIFFERING = Pair(Side(1, 0), Side(0, 0))
KINDS: dict[str, dict[str, Any]] = {
    "box": {"certificate": "box", "ks": 5, "epochs": 1},
    "stability": {"certificate": "stability"},
    "vote": {"certificate": "stability", "members": 3},
}


def plan(seed: int = 0, trials: int = 2000, **given: Any) -> Plan:
    return Plan(trials, source=SeededRandomness(seed), **given)


@cache
def labelling(kind: str, mechanism: Mechanism, relation: str = "add_remove") -> Labelling:
    """A run on two clouds, and what answers."""
    rng, labels = np.random.default_rng(0), np.arange(60) % 2
    points = 0.6 * rng.normal(size=(60, 2)) + (2 * labels - 1)[:, None]
    stated = agt.Declared(classes=[0, 1], size=60, features=True, settings=True)
    compute = {"threads": 1, "kernel": "reference"}
    model = agt.fit(points, labels, declared=stated, relation=relation, compute=compute, **KINDS[kind]).model
    return Labelling.of(model, mechanism)


class TestExactly:
    @pytest.mark.parametrize(("name", "given"), RIGOROUS)
    def test_no_rigorous_mechanism_exceeds_its_claim(self, name: str, given: dict[str, Any]) -> None:
        mechanism = MECHANISMS[name](**given)
        losses = [exact_loss(mechanism, pair) for pair in neighbouring(mechanism, range(30))]
        assert not any(loss.exceeds for loss in losses)
        assert max(loss.rank for loss in losses) <= (given.get("eps") or given["mu"]) * (1 + 1e-9)

    def test_a_gap_of_the_grid(self) -> None:
        """6.25 at eps = 1 on the grid {0, 50}: as exposure.py has it, and as brute force over labels does."""
        mechanism = SmoothCauchy(eps=1.0)
        worst_loss = max(exact_loss(mechanism, pair).rank for pair in neighbouring(mechanism, (0, 50)))
        assert worst_loss == pytest.approx(true_loss(mechanism, (0, 50)), abs=1e-9)
        assert exact_loss(mechanism, Pair(Side(1, 50), Side(1, 0))).exceeds

    def test_least_excess(self) -> None:
        """A pair two steps apart exceeds the claim, one step does not, however nearly it reaches it; at delta too."""
        for mechanism in (RandomizedResponse(eps=1.0), RandomizedResponse(eps=1.0, delta=1e-3), GaussianMargin(mu=1.0)):
            assert not exact_loss(mechanism, Pair(Side(1, 1), Side(1, 0))).exceeds
            assert exact_loss(mechanism, Pair(Side(1, 2), Side(1, 0))).exceeds

    def test_several_classes_by_brute_force(self) -> None:
        """Against all sets of labels, in floats."""
        mechanism = RandomizedResponse(eps=0.7, delta=0.01, classes=4)
        for pair in (Pair(Side(1, 0), Side(3, 0)), Pair(Side(2, 2), Side(2, 1)), Pair(Side(0, 4), Side(0, 1))):
            laws = []
            for side in (pair.first, pair.second):
                flip = float(mechanism.exact_flip(side.evidence))
                laws.append(np.where(np.arange(4) == side.label, 1 - flip, flip / 3))
            sets = [np.array([bool(code >> label & 1) for label in range(4)]) for code in range(1, 15)]
            ratios = [(p[s].sum() - 0.01) / q[s].sum() for p, q in (laws, laws[::-1]) for s in sets]
            expected = max(0.0, np.log(max(ratios))) if max(ratios) > 0 else 0.0
            assert exact_loss(mechanism, pair).value == pytest.approx(expected, abs=1e-9)

    def test_noisy_argmax_by_counts_of_votes(self) -> None:
        """Every step of n1 - n0 from -8 to 8 by two is listed, up to exchanging the labels."""
        listed = {(pair.first, pair.second) for pair in neighbouring(NoisyArgmax(eps=1.0), range(9))}
        for gap in range(-8, 7):
            sides = [Side(int(g > 0), abs(g)) for g in (gap, gap + 2)]
            mirrored = [Side(int(g > 0), abs(g)) for g in (-gap, -gap - 2)]
            ways = [(a, b) for one in (sides, mirrored) for a, b in (one, one[::-1])]
            assert any(way in listed for way in ways), gap


class TestDraws:
    @pytest.mark.parametrize(("name", "given"), RIGOROUS)
    def test_rigorous_mechanisms_are_seldom_rejected(self, name: str, given: dict[str, Any]) -> None:
        """Of 10 audits at 95 % on the pair where most is to be expected, at most 3 (.001 if it were 5 % each)."""
        mechanism = MECHANISMS[name](**given)
        best = max(neighbouring(mechanism, range(9)), key=lambda pair: expected_bound(mechanism, pair, plan()))
        verdicts = [audit_pair(mechanism, best, plan(seed, 500), 9).verdict for seed in range(10)]
        assert sum(verdict.violated for verdict in verdicts) <= 3

    @pytest.mark.parametrize("choosing", ["split", "fixed"])
    def test_a_mechanism_that_draws_for_twice_the_budget(self, choosing: Any) -> None:
        """What it says of itself holds, and what it draws does not."""

        class Leaky(RandomizedResponse):
            def release(self, *given: Any, **more: Any) -> np.ndarray:
                return RandomizedResponse(eps=2 * self.eps).release(*given, **more)

        audited = audit_pair(Leaky(eps=1.0), DIFFERING, plan(choosing=choosing), 0)
        assert audited.certain.outcome is Outcome.STANDS
        assert audited.verdict.outcome is Outcome.VIOLATED
        assert [finding.strength for finding in audited.drawn] == [
            Strength.CONFIDENT,
            Strength.ASYMPTOTIC,
            Strength.CREDIBLE,
            Strength.CONFIDENT,
        ]
        assert [finding.outcome for finding in audited.drawn[1:]] == [Outcome.REPORTED] * 3

    def test_a_label_that_tells_is_found_among_many(self) -> None:
        """Of ten classes one comes out on one side alone: the split finds it, whichever it is."""

        class Telling(RandomizedResponse):
            def release(self, predictions: np.ndarray, *given: Any, **more: Any) -> np.ndarray:
                labels = super().release(predictions, *given, **more)
                labels[: len(labels) // 20] = 7 if predictions[0] == 1 else 3
                return labels

        found = audit_pair(Telling(eps=0.1, classes=10), DIFFERING, plan(), 0).verdict
        assert found.violated

    def test_without_data(self) -> None:
        """Of two pairs each has its share of the error probability; the table of all pairs stands beside."""
        alone = audit_alone(RandomizedResponse(eps=0.7, classes=5), range(20), plan())
        assert len(alone.losses) == 20
        assert all(finding.confidence == pytest.approx(0.975) for finding in alone.findings[1:])
        assert not any(finding.violated for finding in alone.findings)
        gap = audit_alone(SmoothCauchy(eps=1.0), (0, 50), plan(trials=10_000))
        bounds = [f.found for f in gap.findings if f.violated and f.strength is Strength.CONFIDENT]
        assert bounds == [pytest.approx(5.6, abs=0.6)]

    def test_too_few_trials(self) -> None:
        """They are said to be, with how many are the least."""
        found = audit_pair(RandomizedResponse(eps=3.0), DIFFERING, plan(trials=20), 0).verdict
        needed = Claimed("epsilon", 3.0).needed(0.95)
        assert found.outcome is Outcome.UNTESTED
        assert found.found is None
        assert f"{needed} a side are the least" in found.meaning
        found = audit_pair(RandomizedResponse(eps=50.0), DIFFERING, plan(trials=20), 0).verdict
        assert "no number of trials that anybody can draw" in found.meaning

    def test_quantile(self) -> None:
        """K_q one apart: the claim is attained and not exceeded; two apart: both ways of looking see it."""
        mechanism, sides = CertifiedQuantile(eps=1.0), [np.array([k]) for k in (5, 6, 7)]
        near = audit_quantile(mechanism, (sides[0], sides[1]), 20, plan(trials=500), "none")
        far = audit_quantile(mechanism, (sides[0], sides[2]), 20, plan(trials=500), "none")
        assert [finding.violated for finding in (near.certain, near.verdict)] == [False, False]
        assert [finding.violated for finding in (far.certain, far.verdict)] == [True, True]
        assert near.verdict.found is not None
        assert near.verdict.found > 0.6
        with pytest.raises(ConfigError, match="a number has too many events to fix"):
            audit_quantile(mechanism, (sides[0], sides[1]), 20, plan(choosing="fixed"), "none")


class TestEvents:
    def test_tails_and_labels(self) -> None:
        assert Tail(2.0, above=True).holds(np.array([1, 2, 3])).tolist() == [False, True, True]
        assert Tail(2.0, above=False).holds(np.array([1, 2, 3])).tolist() == [True, False, False]
        assert Labels((0, 2)).holds(np.array([0, 1, 2])).tolist() == [True, False, True]
        assert each(2) == (Labels((0,)), Labels((1,)))

    def test_mistakes_of_who_is_right(self) -> None:
        first, second = np.array([1, 1, 1, 0]), np.array([0, 0, 1])
        assert counted(Labels((1,)), first, second) == Mistakes(1, 3, 1, 4)

    def test_a_threshold_in_the_tail(self) -> None:
        """The event of the greatest bound, though it is rare: numbers beyond what the other side ever reaches."""
        rng = np.random.default_rng(0)
        first, second = np.concatenate([rng.normal(size=950), np.full(50, 9.0)]), rng.normal(size=1000)
        event = chosen(first, second, Claimed("epsilon", 1.0), 0.95, labels=False)
        assert isinstance(event, Tail)
        assert event.above
        assert event.threshold > second.max()

    @pytest.mark.parametrize("labels", [True, False])
    def test_of_events_that_show_nothing_the_one_that_errs_least(self, labels: bool) -> None:
        first, second = np.repeat([0, 1], [30, 70]), np.repeat([0, 1], [40, 60])
        for sides in ((first, second), (second, first)):
            event = chosen(*sides, Claimed("epsilon", 1.0), 0.95, labels)
            assert counted(event, *sides).rate == pytest.approx(0.9)


class TestSearch:
    @pytest.mark.parametrize("kind", KINDS)
    def test_labels_that_differ(self, kind: str) -> None:
        """A query between the roots of two neighbours: both were asked, and the pair is what they see of it."""
        mine = labelling(kind, RandomizedResponse(eps=1.0))
        points = mine.model.problem.dataset.train.features
        found = search(mine, Quarry.of_labels(mine, plan()), points, 2, 4, 0)
        assert found is not None
        for side, model in ((found.pair.first, mine.model), (found.pair.second, found.neighbour.model)):
            label, evidence = replace(mine, model=model).seen(found.query)
            assert side == Side(int(label[0]), int(evidence[0]))
        assert found.pair.first != found.pair.second
        assert found.pair.moved <= 1
        assert not exact_loss(mine.mechanism, found.pair).exceeds

    def test_a_relation_that_replaces(self) -> None:
        mine = labelling("stability", RandomizedResponse(eps=1.0), "substitute")
        points = mine.model.problem.dataset.train.features
        edits = [each.edit for each in neighbours(mine.model, points[:2], 2)]
        assert len(edits) == 2
        assert all("without" in edit and "newcomer" in edit for edit in edits)

    def test_of_an_ensemble_only_who_is_touched_trains(self) -> None:
        """And the members are those of a training from the start."""
        mine = labelling("vote", RandomizedResponse(eps=1.0))
        points = mine.model.problem.dataset.train.features
        less, plus = neighbours(mine.model, points[:1], 2)
        for neighbour in (less, plus):
            members = zip(mine.model.members, neighbour.model.members, strict=True)  # type: ignore[attr-defined]
            assert sum(one is other for one, other in members) == 2
            again = retrained(mine.model.problem, neighbour.model.problem.dataset.train)
            assert np.array_equal(again.certify(points).prediction, neighbour.model.certify(points).prediction)
            assert np.array_equal(again.certify(points).stable_distance, neighbour.model.certify(points).stable_distance)

    def test_influences_of_a_linear_head(self) -> None:
        """Who is taken for influential moves the logit more than the median record does when it goes."""
        mine = labelling("stability", RandomizedResponse(eps=1.0))
        model, records = mine.model, mine.model.problem.dataset.train
        assert isinstance(model, LinearModel)
        query = records.features[:1] * 0.1
        scores = influences(model, records, query)[0]
        moved = []
        for row in (int(scores.argmax()), int(np.argsort(scores)[30])):
            other = worst.retrained(model.problem, worst.without(records, np.array([row])))
            moved.append(abs(float((other.margins(query) - model.margins(query))[0, 0])))
        assert moved[0] > 2 * moved[1]

    def test_a_crossing_is_between_the_two(self) -> None:
        """Of two thresholds on a line; and sides that agree everywhere are said to."""

        def above(threshold: float) -> Any:
            return lambda x: ((x[:, 0] > threshold).astype(int), np.zeros(len(x), dtype=int))

        a, b, zeros, ones = np.zeros((1, 1)), np.ones((1, 1)), np.zeros(1, dtype=int), np.ones(1, dtype=int)
        points, apart = crossings(above(0.7), above(0.70001), a, b, zeros, ones)
        assert apart.tolist() == [True]
        assert 0.7 < points[0, 0] <= 0.70001
        points, apart = crossings(above(0.7), above(0.7), a, b, zeros, ones)
        assert apart.tolist() == [False]

    def test_no_two_labels_no_segment(self) -> None:
        mine = labelling("stability", RandomizedResponse(eps=1.0))
        point = mine.model.problem.dataset.train.features[:1]
        assert not len(segments(mine.model, point, 4, np.random.default_rng(0))[0])
        assert search(mine, Quarry.of_labels(mine, plan()), point, 1, 4, 0) is None

    def test_values_of_evidence(self) -> None:
        assert values_of(labelling("box", RandomizedResponse(eps=1.0))) == (0, 1, 2, 3, 4, 5)
        assert values_of(labelling("vote", RandomizedResponse(eps=1.0)))[:3] == (0, 1, 2)


class TestWeights:
    def test_noise_that_is_enough_and_half_of_it(self) -> None:
        """The claim is attained at the sensitivity's own distance; beyond it, both ways of looking see it."""
        mechanism, heads = ReleaseWeights(mu=1.0), Heads.alone(2)
        enough = audit_weights(mechanism, heads, plan(trials=500))
        assert enough.certain.found == pytest.approx(1.0)
        assert not any(finding.violated for finding in enough.findings)
        half = audit_weights(mechanism, replace(heads, moves=0.5), plan(trials=500))
        assert half.certain.violated
        assert half.verdict.violated

    def test_neighbours_of_a_run(self) -> None:
        """Within the sensitivity that the run claims, and not far from it."""
        model = labelling("stability", RandomizedResponse(eps=1.0)).model
        assert isinstance(model, LinearModel)
        heads = farthest(model, model.problem.dataset.train.features, 2, 0)
        assert heads is not None
        assert 0.1 * model.moves < heads.apart <= model.moves
        assert not audit_weights(ReleaseWeights(mu=1.0), heads, plan(trials=50)).certain.violated


class TestPlanted:
    @pytest.mark.parametrize("name", PLANTED)
    def test_caught(self, name: str) -> None:
        assert PLANTED[name](0).violated

    def test_the_dense_grid_is_not(self) -> None:
        """Randomized response on every integer, of a run like the planted one."""
        assert not audited_grid(RandomizedResponse(eps=1.0), 50, 0).violated

    def test_an_auditor_with_limits_swapped_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would reject what is rigorous: lower limits for upper ones make bounds that are too large."""

        def rejected() -> int:
            verdicts = [
                audit_pair(RandomizedResponse(eps=1.0), DIFFERING, plan(seed, 500), 0).verdict for seed in range(10)
            ]
            return sum(map(_violated, verdicts))

        assert rejected() <= 3
        from agt.audit import estimates

        monkeypatch.setattr(estimates, "upper_limit", estimates.lower_limit)
        assert rejected() > 3


def _violated(finding: Finding) -> bool:
    return finding.violated


def test_a_verdict_in_the_claims_own_measure() -> None:
    """A bound on mu says nothing of a claimed epsilon, and stands beside it without one."""
    attacked = Attacked("m", "1-DP", "a", "e", Claimed("epsilon", 1.0), 0.95)
    needed = attacked.claimed.needed(0.95)
    few = Mistakes(1, 2, 1, 2)
    assert f"{needed} a side are the least (audit.trials)" in attacked.judge(few).meaning
    assert f"(audit.trials={4 * needed})" in replace(attacked, together=4).judge(few).meaning
    verdict, *others = attacked.findings(Mistakes(100, 1000, 100, 1000))
    assert verdict.found == epsilon_bound(Mistakes(100, 1000, 100, 1000), 0.0, 0.95)
    assert [(other.measure, other.claimed) for other in others] == [("epsilon", 1.0), ("epsilon", 1.0), ("mu", None)]
