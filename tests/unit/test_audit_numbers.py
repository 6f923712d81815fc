"""Audits of private numbers: what leaks more than it claims is caught, what does not is not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agt.certificates.intervals import OrderedAnswers
from agt.data.target import ClassTarget, NumericTarget
from agt.mechanisms.laplace_mean import LaplaceMean, NumberLabelling
from agt.models.number_votes import NumberCertificates
from agt.models.votes import NumberVotesModel
from agt.numeric import SeededRandomness
from agt.training.lattice import LATTICE_STEPS
from agt_audit.claims import Claimed
from agt_audit.edited_records import other_label, tried_label
from agt_audit.influence import neighbours, unit_edited
from agt_audit.intervals import IntervalCounts, audit_intervals, edited_datasets
from agt_audit.numbers import (
    SumPair,
    audit_synthetic_sums,
    exact_sum_loss,
    law_finding,
    synthetic_pairs,
)
from agt_audit.output_events import choose_event, grain_event
from agt_audit.pairs import NumberPair
from agt_audit.replay import ReplayedRelease
from agt_audit.selftest import (
    NUMBERS,
    FloatingNoise,
    train_numbers,
)
from agt_audit.trials import TrialPlan
from agt_cli.report.findings import Outcome

RANGE = NumericTarget(0.0, 10.0)


def number_pair(model: Any, other: Any) -> NumberPair:
    having = NumberLabelling.judged(model, NUMBERS)
    return NumberPair(having, replace(having, model=other))


class TestExactly:
    @pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
    @pytest.mark.parametrize("members", [1, 2, 7])
    def test_no_pair_of_neighbours_exceeds_the_claim(self, eps: float, members: int) -> None:
        losses = [exact_sum_loss(LaplaceMean(eps), pair) for pair in synthetic_pairs(members)]
        assert not any(loss is None or loss.exceeds for loss in losses)
        assert max(loss.rank for loss in losses if loss) == pytest.approx(eps)

    def test_one_step_more_than_one_member_can_move_exceeds_the_claim(self) -> None:
        loss = exact_sum_loss(NUMBERS, SumPair(0, LATTICE_STEPS + 1, 2, 1))
        assert loss is not None
        assert loss.exceeds

    def test_the_law_of_noise_that_is_not_stated_is_not_tested(self) -> None:
        finding = law_finding(FloatingNoise(eps=1.0), SumPair(0, 5, 2, 1))
        assert finding.outcome is Outcome.UNTESTED

    def test_made_up_pairs_are_of_both_kinds_of_edits(self) -> None:
        distances = {(pair.touches, pair.second - pair.first) for pair in synthetic_pairs(5)}
        assert distances == {(1, LATTICE_STEPS), (2, 2 * LATTICE_STEPS)}


def test_an_audit_without_a_run_attacks_both_kinds_of_edits() -> None:
    plan = TrialPlan(100, confidence=0.9999, source=SeededRandomness(0))
    exact, *drawn = audit_synthetic_sums(NUMBERS, 2, plan)
    assert exact.found == pytest.approx(1.0)
    assert len(drawn) == 2
    assert {finding.outcome for finding in (exact, *drawn)} <= {
        Outcome.NOT_CONTRADICTED,
        Outcome.UNTESTED,
    }


def test_the_last_bits_of_numbers_are_an_event() -> None:
    coarse = np.full(500, 0.5)
    fine = np.full(500, 0.5 + 2.0**-20)
    event = choose_event(fine, coarse, Claimed("epsilon", 1.0), 0.95, "released numbers")
    assert event.holds(fine).all()
    assert not event.holds(coarse).any()
    assert grain_event(1, finer=False).holds(np.array([0.5, 0.25, np.inf])).tolist() == [
        True,
        False,
        False,
    ]


class TestPrediction:
    def test_the_event_is_a_threshold_between_the_two_models(self) -> None:
        model: Any = train_numbers(0)
        pair = number_pair(model, model)
        sums = np.array([[3, 8, 5], [8, 3, 5]])
        less, more, equal = pair.events(sums)
        assert less.one.holds(model.mean_of(np.array([3, 4]))).tolist() == [True, False]
        assert more.one.holds(model.mean_of(np.array([7, 8]))).tolist() == [False, True]
        assert less.hit > less.alarm
        assert equal.hit == equal.alarm

    def test_an_event_loses_what_the_noise_covers(self) -> None:
        model: Any = train_numbers(0)
        (event,) = number_pair(model, model).events(np.array([[LATTICE_STEPS], [0]]))
        assert np.log(event.hit / event.alarm) == pytest.approx(1.0)

    def test_queries_are_those_whose_sums_differ_most_first(self) -> None:
        model: Any = train_numbers(0)
        anchors = model.problem.dataset.train.features
        _, other = next(neighbours(model, anchors, 1))
        pair = number_pair(model, other)
        queries = pair.chosen_queries(anchors, np.random.default_rng(0))
        having, lacking = pair.evidence(queries)
        moved = np.abs(having - lacking)
        assert (np.diff(moved) <= 0).all()
        assert moved[0] > 0

    def test_a_replaced_record_gets_the_farther_end_of_the_range(self) -> None:
        model = train_numbers(0, relation="substitute")
        records = model.problem.dataset.train
        other = unit_edited(model.problem, records, 1)
        (added,) = other.labels[~np.isin(other.ids, records.ids)]
        assert (records.labels[1], added) == (10.0, 0.0)


class TestReplay:
    @pytest.mark.parametrize("relation", ["add_remove", "substitute"])
    def test_private_numbers_are_not_accused(self, relation: str) -> None:
        model = train_numbers(0, relation=relation)
        queries = model.problem.dataset.train.features
        release = ReplayedRelease(model, queries, NUMBERS)
        findings = list(release.findings(2, np.random.default_rng(0)))
        assert {finding.outcome for finding in findings} == {Outcome.NOT_CONTRADICTED}
        assert max(finding.found or 0.0 for finding in findings[1::2]) > 0


class TestIntervals:
    @pytest.mark.parametrize("relation", ["add_remove", "substitute", "remove"])
    def test_intervals_contain_answers_of_neighbours(self, relation: str) -> None:
        model = train_numbers(0, relation=relation)
        queries = model.problem.dataset.train.features
        counts = audit_intervals(model, queries, 12, 2, 0)
        assert counts.neighbours == 12
        assert counts.answers > 0
        assert (counts.outside, counts.not_nested) == (0, 0)

    def test_an_answer_outside_of_its_interval_is_counted(self) -> None:
        points = np.array([[0], [LATTICE_STEPS // 2], [LATTICE_STEPS]])
        far = np.full((3, 1), LATTICE_STEPS)
        mine, theirs = (
            NumberCertificates("add_remove", RANGE, OrderedAnswers(side, 1))
            for side in (points, far)
        )
        counts = IntervalCounts()
        counts.add_neighbour(mine, theirs, 0)
        assert (counts.answers, counts.outside) == (1, 1)

    @pytest.mark.parametrize("relation", ["add_remove", "substitute", "remove"])
    def test_edits_are_within_their_distance(self, relation: str) -> None:
        model = train_numbers(0, relation=relation)
        records = model.problem.dataset.train
        for k, other in edited_datasets(model, records.features, 6, 3, 0):
            removed = set(records.ids) - set(other.ids)
            added = set(other.ids) - set(records.ids)
            edits = max(len(removed), len(added))
            if relation != "substitute":
                edits = len(removed) + len(added)
            assert 0 < edits <= k
            assert relation != "remove" or not added

    def test_no_neighbour_is_begun_after_the_time_limit(self) -> None:
        model = train_numbers(0)
        counts = audit_intervals(
            model, model.problem.dataset.train.features, 12, 2, 0, seconds=-1.0
        )
        assert counts.neighbours == 0
        findings = counts.findings("a run", 1)
        assert {finding.outcome for finding in findings} == {Outcome.UNTESTED}
        assert all("audit.seconds" in finding.effort for finding in findings)
        assert all("0 of 12 datasets" in finding.effort for finding in findings)


def test_tried_labels_are_the_classes_in_turn_or_the_ends_of_the_range() -> None:
    classes = ClassTarget(("a", "b", "c"))
    assert [tried_label(classes, turn) for turn in range(4)] == [0, 1, 2, 0]
    assert [tried_label(RANGE, turn) for turn in range(3)] == [0.0, 10.0, 0.0]
    assert (other_label(classes, 2), other_label(RANGE, 9.0), other_label(RANGE, 1.0)) == (
        0,
        0.0,
        10.0,
    )


def test_cells_of_released_labels_are_read_by_the_target() -> None:
    assert ClassTarget(("a", "b")).labels_of(["b", "a"]).tolist() == [1, 0]
    assert RANGE.labels_of(["0.1", "9.75"]).tolist() == [0.1, 9.75]


def test_a_small_run_of_numbers_has_the_model_that_faults_are_planted_in() -> None:
    assert isinstance(train_numbers(0), NumberVotesModel)
