"""Two models of neighbouring datasets, and the queries at which their answers differ.

Queries lie on lines between records. Where an answer changes along a line is found by bisection,
which asks both models, so that it finds the crossing of a jump as well. Nothing rests on how good
the search is: it only decides how hard an audit is.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from agt.data.arrays import pieces
from agt.data.records import Records
from agt.errors import counted
from agt.mechanisms.labelling import AnyLabelling, Labelling
from agt.mechanisms.laplace_mean import NumberLabelling
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import logits_of
from agt.relations import RELATIONS
from agt.training.lattice import LATTICE_STEPS
from agt_audit.events import AnswerEvent, ThresholdEvent, event_of
from agt_audit.neighbours import (
    Read,
    bisected,
    neighbour_of,
    on_line,
    tried_label,
    with_added,
    without,
)

# where queries lie on a line, in widths of the gap between the two models' changes: 0 to 1 is
# within
PLACES_IN_GAP = 0.5 + np.array([0, -0.25, 0.25, *np.outer(np.arange(1, 5), (-1, 1)).ravel()])
MAX_ANCHORS = 2000  # records that ends of segments are picked from


@dataclass(frozen=True)
class LabellingPair:
    """Two models of neighbouring data, answering through one mechanism.

    Attributes:
        with_unit: of the data with the unit that is attacked.
        without_unit: of the same without it, or with another in its place.
    """

    with_unit: Labelling
    without_unit: Labelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """Return nominal labels and evidence with the unit, and the same without it, [4, n] int64.

        Private; nothing is drawn.
        """
        labels, evidence = self.with_unit.evidence(queries)
        other_labels, other_evidence = self.without_unit.evidence(queries)
        return np.stack([labels, evidence, other_labels, other_evidence])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return the most telling event of each column of evidence, [4, m]."""
        with_unit, without_unit = self.laws(evidence)
        return [event_of(*laws) for laws in zip(with_unit, without_unit, strict=True)]

    def chosen_queries(
        self, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
    ) -> np.ndarray:
        """Return queries at which the two models differ; none of noise on several counts.

        Arguments are those of ``between_roots``.
        """
        mechanism = self.with_unit.mechanism
        if mechanism.needs == "votes" and mechanism.classes > 2:
            return anchors[:0]
        return between_roots(self, anchors, rng, lines)

    def laws(self, evidence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each released label with the unit and without it, [m, C] each.

        Args:
            evidence: [4, m], as ``evidence`` returns it.
        """
        labels, own_evidence, other_labels, other_evidence = evidence
        return self._law(labels, own_evidence), self._law(other_labels, other_evidence)

    def _law(self, labels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """Return the probability of each released label, [m, C].

        Args:
            labels: [m] nominal labels, each released with probability 1 - flip.
            evidence: [m] on which the probability of a flip depends.
        """
        mechanism = self.with_unit.mechanism
        flip = mechanism.flip_probability(evidence)
        law = np.repeat(flip[:, None] / (mechanism.classes - 1), mechanism.classes, axis=1)
        law[np.arange(len(labels)), labels] = 1 - flip
        return law


@dataclass(frozen=True)
class NumberPair:
    """Two models of numbers, of neighbouring data, answering through one mechanism.

    Attributes:
        with_unit: of the data with the unit that is attacked.
        without_unit: of the same without it, or with another in its place.
    """

    with_unit: NumberLabelling
    without_unit: NumberLabelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """Return the sums of the members' answers with the unit and without it, [2, n] int64.

        Private; nothing is drawn.
        """
        sums = self.with_unit.model.sums(queries)
        other_sums = self.without_unit.model.sums(queries)
        return np.stack([sums, other_sums])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return the most telling event of each column of evidence, [2, m].

        Beyond both sums the two probabilities of an answer have the largest ratio that there is,
        so the event is everything from the sum with the unit on, away from the other sum.
        """
        sensitivity = self.with_unit.model.touches * LATTICE_STEPS
        ratio = math.exp(-self.with_unit.mechanism.eps / sensitivity)
        events: list[AnswerEvent] = []
        for own_sum, other_sum in evidence.T.tolist():
            above = own_sum > other_sum
            threshold = np.array([own_sum if above else own_sum + 1])
            (number,) = self.with_unit.model.mean_of(threshold).tolist()
            hit = 1 / (1 + ratio)  # P(Z >= 0) of the discrete Laplace noise Z
            alarm = ratio ** abs(own_sum - other_sum) / (1 + ratio)
            events.append(ThresholdEvent(number, above, alarm=alarm, hit=hit))
        return events

    def chosen_queries(
        self, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
    ) -> np.ndarray:
        """Return [m, ...] float64 queries, those whose sums differ most first.

        Args:
            anchors: [n, ...] queries. Others lie between them, and away from them.
            rng: of the choice.
            lines: how many lie between, and how many away.
        """
        chosen = np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])
        anchors = np.asarray(anchors[chosen], float)
        begin = anchors[rng.integers(len(anchors), size=lines)]
        end = anchors[rng.integers(len(anchors), size=lines)]
        size = max(float(np.abs(anchors).max()), 1.0)
        away = size * rng.normal(size=(lines, *anchors.shape[1:]))
        between = on_line(begin, end, rng.uniform(-1.0, 2.0, lines))
        queries = np.concatenate([anchors, between, away])
        sums, other_sums = self.evidence(queries)
        largest_first = np.argsort(-np.abs(sums - other_sums), kind="stable")
        return queries[largest_first]


AnyPair = LabellingPair | NumberPair
PAIRS: Mapping[type, type[AnyPair]] = {Labelling: LabellingPair, NumberLabelling: NumberPair}
"""What answers queries -> two of it."""


def pair_of(with_unit: AnyLabelling, without_unit: AnyLabelling) -> AnyPair:
    """Return two labellings of one kind, of neighbouring data, as a pair."""
    pair_class: Any = PAIRS[type(with_unit)]
    pair: AnyPair = pair_class(with_unit, without_unit)
    return pair


def between_roots(
    pair: LabellingPair, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
) -> np.ndarray:
    """Return queries around where labels or evidence change on lines, [m, ...] float64.

    They lie between the two models' own places of change, and beside them; first come those where
    these places are farthest apart.

    Args:
        pair: the two models.
        anchors: [n, ...] queries, from which lines go to one another and to points of their size.
        rng: of the choice of lines.
        lines: how many lines of either sort.
    """
    anchors = np.asarray(anchors, dtype=np.float64)
    begin = anchors[np.tile(rng.integers(len(anchors), size=lines), 2)]
    size = max(float(np.abs(anchors).max()), 1.0)
    away = size * rng.normal(size=(lines, *anchors.shape[1:]))
    end = np.concatenate([anchors[rng.integers(len(anchors), size=lines)], away])
    sides = (pair.with_unit, pair.without_unit)
    read_labels: list[Read] = [side.model.predict for side in sides]
    read_both: list[Read] = [partial(_label_and_evidence, side) for side in sides]
    return np.concatenate(
        [_around_changes(read_labels, begin, end), _around_changes(read_both, begin, end)]
    )


def _label_and_evidence(side: Labelling, queries: np.ndarray) -> np.ndarray:
    """Return label and evidence of each query in one number, [n]."""
    labels, evidence = side.evidence(queries)
    return evidence * side.mechanism.classes + labels


def _around_changes(reads: list[Read], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return queries around the places where what is read of the two sides changes.

    Only lines on which both change are used; first come those on which the places are farthest
    apart.

    Args:
        reads: what is read of each of the two sides.
        begin: [n, ...] where the lines begin.
        end: [n, ...] where they end.
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
    places = first[order] + PLACES_IN_GAP[:, None] * gap
    return np.concatenate([on_line(begin[order], end[order], place) for place in places])


def segments(
    model: Model, anchors: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of segments between records of different labels, [S, ...] each.

    Args:
        model: that labels the records.
        anchors: [n, ...] features of records to pick from.
        count: at most as many segments are made; fewer if records of another label are rare.
        rng: of the choice.
    """
    points = np.asarray(anchors[np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])])
    labels = model.predict(points)
    pairs = []
    for start in rng.permutation(len(points))[: 4 * count]:
        other_label = rng.permutation(np.flatnonzero(labels != labels[start]))
        if len(other_label):
            pairs.append((start, other_label[0]))
    first, second = np.array(pairs[:count], dtype=np.int64).reshape(-1, 2).T
    return points[first], points[second]


def neighbours(model: Model, queries: np.ndarray, count: int) -> Iterator[tuple[str, Model]]:
    """Yield models of datasets one unit away, made to move the model at some queries.

    The unit of most influence is left out; a record like the query is added. If edits of the
    relation replace units, both happen at once.

    Args:
        model: of the run.
        queries: [m, ...] at decision roots.
        count: at most as many neighbours are made.

    Yields:
        What is different, in words that name a unit (for the data owner only); and the model.
    """
    problem = model.problem
    records = problem.dataset.train
    replaces = RELATIONS[problem.settings.relation.name].members_changed_per_edit > 1
    scores = influences(model, records, queries)
    per_query = 1 if replaces else 2
    tried_units: set[str] = set()
    for row, query in enumerate(queries[: -(-count // per_query)]):
        score = scores[min(row, len(scores) - 1)]
        unit = _strongest_unit(records, score, tried_units)
        if unit is None:
            return
        tried_units.add(unit)
        rows = np.flatnonzero(records.units == unit)
        remaining = without(records, rows)
        name = np.array([f"a record added by the audit, {row + 1}"])
        added = Records(
            features=query[None].astype(records.features.dtype),
            labels=np.array([tried_label(problem.dataset.target, row)]),
            ids=name,
            units=name,
            public=np.zeros(1, dtype=bool),
        )
        rows_of_unit = counted(len(rows), "row")
        less = f"without unit {unit!r} ({rows_of_unit})"
        plus = f"with an added record that has the features of query {row + 1}"
        if replaces:
            yield f"{less} and {plus}", neighbour_of(model, with_added(remaining, added))
            continue
        yield less, neighbour_of(model, remaining)
        yield plus, neighbour_of(model, with_added(records, added))


def _strongest_unit(records: Records, score: np.ndarray, excluded: set[str]) -> str | None:
    """Return the private unit of the record with the greatest score, [n]; None: none is left.

    Args:
        records: n of them.
        score: [n].
        excluded: units that are passed over.
    """
    for row in np.argsort(-score, kind="stable"):
        unit = str(records.units[row])
        if not records.public[row] and unit not in excluded:
            return unit
    return None


def influences(model: Model, records: Records, queries: np.ndarray) -> np.ndarray:
    """Return how much each record is likely to move the model at each query, [m or 1, n].

    * A linear head: its gradient at a record is a residual times the record's features, so it is
      the residual times the inner product with the query's features.
    * Members that vote, whose gradients nobody has: the inner product only.
    * Other models: how far the record's own label is from being the model's, for all queries
      alike, [1, n].

    Args:
        model: of the run.
        records: n of them.
        queries: [m, ...].
    """
    if model.linear_head is not None:
        return _head_influences(model.linear_head, records, queries)
    features = model.public_features
    if features is not None:
        query_features = features(queries)
        parts = [np.abs(query_features @ features(piece).T) for piece in pieces(records.features)]
        return np.concatenate(parts, axis=1)
    member = model.member_models[0]
    margins = np.concatenate([member.margins(piece) for piece in pieces(records.features)], axis=1)
    if len(margins) == 1:
        own_margin = margins[0] * (2 * records.labels - 1)
    else:
        own_margin = margins[records.labels, np.arange(len(records))]
    return -np.asarray(own_margin)[None]


def _head_influences(head: LinearModel, records: Records, queries: np.ndarray) -> np.ndarray:
    """Return residual times inner product of each record at each query, [m, n]."""
    query_features = head.phi(queries)
    parts = []
    start = 0
    for piece in pieces(records.features):
        features = head.phi(piece)
        labels = records.labels[start : start + len(piece)]
        logits = logits_of(head.trained.weight, features)
        if logits.shape[1] == 1:
            residuals = np.abs(expit(logits[:, 0]) - labels)
        else:
            one_hot = np.eye(logits.shape[1])[labels]
            residuals = np.linalg.norm(softmax(logits, axis=1) - one_hot, axis=1)
        parts.append(residuals * np.abs(query_features @ features.T))
        start += len(piece)
    return np.concatenate(parts, axis=1)
