"""Two models of neighbouring datasets, and a search for queries at which their answers differ.

Queries lie on lines between records. Bisection finds where the answer of either model changes
along a line, also where it jumps. No guarantee depends on the search: it only decides how much an
audit can detect.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from agt.errors import ConfigError
from agt.mechanisms.labelling import AnyLabelling, Labelling
from agt.mechanisms.laplace_mean import NumberLabelling
from agt.training.lattice import LATTICE_STEPS
from agt_audit.claims import Claimed
from agt_audit.events import MOVED_NUMBER, AnswerEvent, event_of
from agt_audit.lines import MAX_ANCHORS, Read, bisected, on_line
from agt_audit.output_events import Event, tail_event

LINES = 64  # queries, or lines, of each of the two kinds that are drawn
# positions of queries on a line: 0 where the first model's answer changes, 1 where the second's
PLACES_IN_GAP = np.array([0.5, 0.25, 0.75, -0.5, 1.5, -1.5, 2.5, -2.5, 3.5, -3.5, 4.5])
# how far trials may lie from the chosen query, divided by its largest feature; of these distances,
# the first is used at which enough queries get the same answers
SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64  # queries that are tried at one distance
MIN_SHARE_ALIKE = 0.9  # of these, the share that must get the same answers


@dataclass(frozen=True)
class LabellingPair:
    """Two models of neighbouring datasets, whose labels are released by one mechanism.

    Attributes:
        with_unit: releases of the model of the dataset with the attacked unit.
        without_unit: releases of the model of the same dataset without the unit, or with another
            one instead.
    """

    with_unit: Labelling
    without_unit: Labelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """Return what releases at n queries depend on, [4, n] int64; nothing is drawn.

        The rows are nominal labels and evidence with the unit, then those without it. They are
        private.
        """
        labels, evidence = self.with_unit.evidence(queries)
        other_labels, other_evidence = self.without_unit.evidence(queries)
        return np.stack([labels, evidence, other_labels, other_evidence])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return for each query the event that distinguishes its two released labels best.

        Args:
            evidence: [4, m], as ``evidence`` returns it.
        """
        with_unit, without_unit = self.laws(evidence)
        return [event_of(*laws) for laws in zip(with_unit, without_unit, strict=True)]

    def chosen_queries(self, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return queries at which labels or evidence of the two models probably differ.

        None are returned if the mechanism adds noise to vote counts of more than two classes.
        """
        mechanism = self.with_unit.mechanism
        if mechanism.needs == "votes" and mechanism.classes > 2:
            return anchors[:0]
        return between_roots(self, anchors, rng)

    def laws(self, evidence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each released label with the unit and without it, [m, C] each.

        Args:
            evidence: [4, m], as ``evidence`` returns it.
        """
        labels, own_evidence, other_labels, other_evidence = evidence
        return self._law(labels, own_evidence), self._law(other_labels, other_evidence)

    def _law(self, labels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """Return the probability of each released label, [m, C].

        A nominal label is released with probability 1 - flip, and each other label with the same
        share of flip.

        Args:
            labels: [m] nominal labels.
            evidence: [m], from which the mechanism computes the probability of a flip.
        """
        mechanism = self.with_unit.mechanism
        flip = mechanism.flip_probability(evidence)
        flip_to_each = flip / (mechanism.classes - 1)
        law = np.repeat(flip_to_each[:, None], mechanism.classes, axis=1)
        law[np.arange(len(labels)), labels] = 1 - flip
        return law


@dataclass(frozen=True)
class NumberPair:
    """Two models of neighbouring datasets, whose numbers are released by one mechanism.

    Attributes:
        with_unit: releases of the model of the dataset with the attacked unit.
        without_unit: releases of the model of the same dataset without the unit, or with another
            one instead.
    """

    with_unit: NumberLabelling
    without_unit: NumberLabelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """Return the sums of the members' answers with the unit and without it, [2, n] int64.

        They are private, and nothing is drawn.
        """
        sums = self.with_unit.model.sums(queries)
        other_sums = self.without_unit.model.sums(queries)
        return np.stack([sums, other_sums])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return for each query the event that distinguishes its two released numbers best.

        Released numbers beyond both sums have the largest ratio of probabilities, so the event is
        all numbers at or beyond the sum with the unit, on the side away from the other sum.

        Args:
            evidence: [2, m], as ``evidence`` returns it.
        """
        sensitivity = self.with_unit.model.members_per_edit * LATTICE_STEPS
        ratio = math.exp(-self.with_unit.mechanism.eps / sensitivity)
        events: list[AnswerEvent] = []
        for own_sum, other_sum in evidence.T.tolist():
            above = own_sum > other_sum
            threshold = np.array([own_sum if above else own_sum + 1])
            (number,) = self.with_unit.model.mean_of(threshold).tolist()
            hit = 1 / (1 + ratio)  # P(Z >= 0) of the discrete Laplace noise Z
            alarm = ratio ** abs(own_sum - other_sum) / (1 + ratio)
            beyond = Event(MOVED_NUMBER, tail_event(number, above).holds)
            events.append(AnswerEvent(beyond, alarm, hit))
        return events

    def chosen_queries(self, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return queries [m, ...] float64, in order of falling difference of the two sums.

        They are at most ``MAX_ANCHORS`` anchors, and points that are drawn.

        Args:
            anchors: [n, ...] queries.
            rng: draws the points. ``LINES`` of them lie on lines through two anchors, and as many
                follow a normal law of the anchors' size.
        """
        anchor_rows = np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])
        anchors = np.asarray(anchors[anchor_rows], float)
        begin = anchors[rng.integers(len(anchors), size=LINES)]
        end = anchors[rng.integers(len(anchors), size=LINES)]
        far_points = _draw_far_points(anchors, rng)
        between = on_line(begin, end, rng.uniform(-1.0, 2.0, LINES))
        queries = np.concatenate([anchors, between, far_points])
        sums, other_sums = self.evidence(queries)
        largest_first = np.argsort(-np.abs(sums - other_sums), kind="stable")
        return queries[largest_first]


AnyPair = LabellingPair | NumberPair
PAIRS: Mapping[type, type[AnyPair]] = {Labelling: LabellingPair, NumberLabelling: NumberPair}
"""Class of a labelling -> class of pairs of it."""


def pair_of(with_unit: AnyLabelling, without_unit: AnyLabelling) -> AnyPair:
    """Return two labellings of models of neighbouring datasets as a pair.

    Both must be of the same class, with the same mechanism.
    """
    pair_class: Any = PAIRS[type(with_unit)]
    pair: AnyPair = pair_class(with_unit, without_unit)
    return pair


def between_roots(pair: LabellingPair, anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return queries on lines, near points at which labels or evidence change, [m, ...] float64.

    They lie between the points at which the two models change, and beside them; those on lines
    where these points are farthest apart come first. Queries at changes of labels precede those at
    changes of labels or evidence.

    Args:
        pair: the two models.
        anchors: [n, ...] queries at which the lines begin.
        rng: draws the lines, of which ``LINES`` end at another anchor, and as many at a random
            point of the anchors' size.
    """
    anchors = np.asarray(anchors, dtype=np.float64)
    begin = anchors[np.tile(rng.integers(len(anchors), size=LINES), 2)]
    far_points = _draw_far_points(anchors, rng)
    end = np.concatenate([anchors[rng.integers(len(anchors), size=LINES)], far_points])
    sides = (pair.with_unit, pair.without_unit)
    read_labels: list[Read] = [side.model.predict for side in sides]
    read_both: list[Read] = [partial(_label_and_evidence, side) for side in sides]
    return np.concatenate(
        [_around_changes(read_labels, begin, end), _around_changes(read_both, begin, end)]
    )


def _draw_far_points(anchors: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return points of a normal law, [LINES, ...], whose deviation is the anchors' largest feature.

    The deviation is at least 1.
    """
    size = max(float(np.abs(anchors).max()), 1.0)
    return size * rng.normal(size=(LINES, *anchors.shape[1:]))


def _label_and_evidence(side: Labelling, queries: np.ndarray) -> np.ndarray:
    """Return a number for each query that changes if its label or its evidence does, [n]."""
    labels, evidence = side.evidence(queries)
    return evidence * side.mechanism.classes + labels


def _around_changes(reads: list[Read], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return queries on lines around the points at which a value changes, [m, ...].

    Lines are used on which the values of both sides differ between the ends. They are sorted by
    the distance between the two sides' points, the largest first.

    Args:
        reads: for each of the two sides, a function that computes the value of queries.
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.

    Returns:
        A query for each of ``PLACES_IN_GAP`` on each line that is used; empty if none is.
    """
    first_read, second_read = reads
    first_changes = first_read(begin) != first_read(end)
    both_change = first_changes & (second_read(begin) != second_read(end))
    begin = begin[both_change]
    end = end[both_change]
    if not len(begin):
        return begin
    # The place on each line, from 0 to 1, at which a side changes.
    first = np.mean(bisected(first_read, begin, end), axis=0)
    second = np.mean(bisected(second_read, begin, end), axis=0)
    order = np.argsort(-np.abs(second - first), kind="stable")
    gap = (second - first)[order]
    shares = first[order] + PLACES_IN_GAP[:, None] * gap
    return np.concatenate([on_line(begin[order], end[order], share) for share in shares])


@dataclass(frozen=True)
class ChosenQuery:
    """The query that an attack asks, and the event that it counts in the answers.

    Attributes:
        query: [1, ...] the query.
        event: the event about a single answer.
    """

    query: np.ndarray
    event: AnswerEvent


def choose_query(
    pair: AnyPair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float
) -> ChosenQuery:
    """Choose the query whose event has the largest expected lower bound on the loss.

    Of equal bounds (all may be 0), the larger advantage decides, and then the lower row.

    Args:
        pair: the two models.
        queries: [n, ...] the queries to choose from, at least one.
        claimed: the claim, whose measure the bound has.
        trials: how many trials there are on each side.
        confidence: the probability with which the bound holds.
    """
    # queries with the same evidence have the same event, which is computed once
    evidence, first_rows = np.unique(pair.evidence(queries), axis=1, return_index=True)
    event_of_row = dict(zip(first_rows.tolist(), pair.events(evidence), strict=True))

    def strength(row: int) -> tuple[float, float]:
        return event_of_row[row].strength(claimed, trials, confidence)

    # of equally strong events, max returns the first, which is that of the lowest row
    best_row = max(sorted(event_of_row), key=strength)
    return ChosenQuery(queries[best_row : best_row + 1], event_of_row[best_row])


def similar_queries(
    pair: AnyPair, query: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Return distinct queries with the same labels and evidence as a query, [count, ...] float64.

    They differ from it, and from each other, in their last digits.

    Args:
        pair: the two models, on both of which labels and evidence are the same.
        query: [1, ...] the query.
        count: how many queries to make.
        rng: draws the digits.

    Raises:
        ConfigError: not enough such queries were found, even very close to the query.
    """
    query = np.asarray(query, dtype=np.float64)
    size = max(float(np.abs(query).max()), 1e-300)
    for scale in SCALES:
        probes = _draw_alike(pair, query, scale * size, PROBES, rng)
        if len(probes) < MIN_SHARE_ALIKE * PROBES:
            continue
        queries = _draw_alike(pair, query, scale * size, math.ceil(1.3 * count), rng)[:count]
        if len(np.unique(queries, axis=0)) == count:
            return queries
    raise ConfigError(
        "audit.trials: each trial needs a query of its own, which differs from the chosen query "
        "only in the last digits and gets the same answers. Not enough such queries were found: "
        "give another seed=NUMBER"
    )


def _draw_alike(
    pair: AnyPair, query: np.ndarray, max_shift: float, tried: int, rng: np.random.Generator
) -> np.ndarray:
    """Return those of some queries near a query that have the same labels and evidence, [m, ...].

    Args:
        pair: the two models, on both of which labels and evidence are compared.
        query: [1, ...] the query.
        max_shift: the largest change of a feature.
        tried: how many queries are drawn.
        rng: draws them.
    """
    shift = rng.uniform(-1, 1, size=(tried, *query.shape[1:]))
    queries = query + max_shift * shift
    is_alike = (pair.evidence(queries) == pair.evidence(query)).all(axis=0)
    return queries[is_alike]
