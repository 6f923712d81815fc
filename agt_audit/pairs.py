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

# in widths of what is between roots
BESIDE = 0.5 + np.array([0, -0.25, 0.25, *np.outer(np.arange(1, 5), (-1, 1)).ravel()])
MAX_ANCHORS = 2000  # records that ends of segments are picked from


@dataclass(frozen=True)
class LabellingPair:
    """Two models of neighbouring data, answering through one mechanism.

    Attributes:
        having: of the data with the unit that is attacked.
        lacking: of the same without it, or with another in its place.
    """

    having: Labelling
    lacking: Labelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """[4, n] int64: nominal labels and evidence with the unit, and the same without it.

        Private; nothing is drawn.
        """
        return np.stack([*self.having.evidence(queries), *self.lacking.evidence(queries)])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return the most telling event of each column of evidence, [4, m]."""
        return [event_of(*laws) for laws in zip(*self.laws(evidence), strict=True)]

    def chosen_queries(
        self, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
    ) -> np.ndarray:
        """Return queries at which the two models differ; none of noise on several counts.

        Arguments are those of ``between_roots``.
        """
        mechanism = self.having.mechanism
        if mechanism.needs == "votes" and mechanism.classes > 2:
            return anchors[:0]
        return between_roots(self, anchors, rng, lines)

    def laws(self, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """([m, C] probability of each released label with the unit, the same without it), of
        ``seen`` [4, m].
        """
        return self._law(seen[0], seen[1]), self._law(seen[2], seen[3])

    def _law(self, labels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        mechanism = self.having.mechanism
        flip = mechanism.flip_probability(evidence)
        law = np.repeat(flip[:, None] / (mechanism.classes - 1), mechanism.classes, axis=1)
        law[np.arange(len(labels)), labels] = 1 - flip
        return law


@dataclass(frozen=True)
class NumberPair:
    """Two models of numbers, of neighbouring data, answering through one mechanism.

    Attributes:
        having: of the data with the unit that is attacked.
        lacking: of the same without it, or with another in its place.
    """

    having: NumberLabelling
    lacking: NumberLabelling

    def evidence(self, queries: np.ndarray) -> np.ndarray:
        """Return the sums of the members' answers with the unit and without it, [2, n] int64.

        Private; nothing is drawn.
        """
        return np.stack([side.model.sums(queries) for side in (self.having, self.lacking)])

    def events(self, evidence: np.ndarray) -> list[AnswerEvent]:
        """Return the most telling event of each column of evidence, [2, m].

        Beyond both sums the two probabilities of an answer have the largest ratio that there is,
        so the event is everything from the sum with the unit on, away from the other sum.
        """
        sensitivity = self.having.model.touches * LATTICE_STEPS
        ratio = math.exp(-self.having.mechanism.eps / sensitivity)
        made = list[AnswerEvent]()
        for having, lacking in evidence.T.tolist():
            above = having > lacking
            threshold = np.array([having if above else having + 1])
            (number,) = self.having.model.mean_of(threshold).tolist()
            hit = 1 / (1 + ratio)  # P(Z >= 0) of the discrete Laplace noise Z
            alarm = ratio ** abs(having - lacking) / (1 + ratio)
            made.append(ThresholdEvent(number, above, alarm=alarm, hit=hit))
        return made

    def chosen_queries(
        self, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
    ) -> np.ndarray:
        """Return [m, ...] float64 queries, those whose sums differ most first.

        Args:
            anchors: [n, ...] queries. Others lie between them, and away from them.
            rng: of the choice.
            lines: how many lie between, and how many away.
        """
        anchors = np.asarray(anchors[np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])], float)
        begin = anchors[rng.integers(len(anchors), size=lines)]
        end = anchors[rng.integers(len(anchors), size=lines)]
        size = max(float(np.abs(anchors).max()), 1.0)
        away = size * rng.normal(size=(lines, *anchors.shape[1:]))
        between = on_line(begin, end, rng.uniform(-1.0, 2.0, lines))
        queries = np.concatenate([anchors, between, away])
        having, lacking = self.evidence(queries)
        order = np.argsort(-np.abs(having - lacking), kind="stable")
        return queries[order]


AnyPair = LabellingPair | NumberPair
PAIRS: Mapping[type, type[AnyPair]] = {Labelling: LabellingPair, NumberLabelling: NumberPair}
"""What answers queries -> two of it."""


def pair_of(having: AnyLabelling, lacking: AnyLabelling) -> AnyPair:
    """Return two labellings of one kind, of neighbouring data, as a pair."""
    pair: Any = PAIRS[type(having)]
    made: AnyPair = pair(having, lacking)
    return made


def between_roots(
    pair: LabellingPair, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64
) -> np.ndarray:
    """[m, ...] float64 queries around where labels or evidence change on lines between anchors:
    between the two models' own places of change, and beside them; first those with most room.

    Args:
        anchors: [n, ...] queries, from which lines go to one another and to points of their size.
    """
    anchors = np.asarray(anchors, dtype=np.float64)
    begin = anchors[np.tile(rng.integers(len(anchors), size=lines), 2)]
    away = max(float(np.abs(anchors).max()), 1.0) * rng.normal(size=(lines, *anchors.shape[1:]))
    end = np.concatenate([anchors[rng.integers(len(anchors), size=lines)], away])
    sides = (pair.having, pair.lacking)
    readings: list[list[Read]] = [
        [side.model.predict for side in sides],
        [partial(_code, side) for side in sides],
    ]
    return np.concatenate([_beside(reads, begin, end) for reads in readings])


def _code(side: Labelling, queries: np.ndarray) -> np.ndarray:
    """[n] label and evidence in one number."""
    labels, evidence = side.evidence(queries)
    return evidence * side.mechanism.classes + labels


def _beside(reads: list[Read], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
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
    between = (second - first)[order]
    places = first[order] + BESIDE[:, None] * between
    return np.concatenate([on_line(begin[order], end[order], place) for place in places])


def segments(
    model: Model, anchors: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """([S, ...], [S, ...]) ends of segments between records that the model labels differently; S <=
    count.

    Args:
        anchors: [n, ...] features to pick from.
    """
    points = np.asarray(anchors[np.sort(rng.permutation(len(anchors))[:MAX_ANCHORS])])
    labels = model.predict(points)
    starts = rng.permutation(len(points))
    ends = [
        rng.permutation(np.flatnonzero(labels != labels[start]))[:1]
        for start in starts[: 4 * count]
    ]
    both = [(start, end[0]) for start, end in zip(starts, ends, strict=False) if len(end)][:count]
    first, second = np.array(both, dtype=np.int64).reshape(-1, 2).T
    return points[first], points[second]


def neighbours(model: Model, queries: np.ndarray, count: int) -> Iterator[tuple[str, Model]]:
    """(what is different, in words that name a unit, for the data owner; the model of it) of
    datasets one unit away, made to move the model at these queries: the unit of most influence
    goes; a record like the query comes. Of a relation whose edits replace, both at once.

    Args:
        queries: [m, ...] at decision roots.
        count: at most so many.
    """
    problem = model.problem
    records, replaces = (
        problem.dataset.train,
        RELATIONS[problem.settings.relation.name].members_changed_per_edit > 1,
    )
    scores, seen = influences(model, records, queries), set[str]()
    for row, query in enumerate(queries[: -(-count // (1 if replaces else 2))]):
        places = np.argsort(-scores[min(row, len(scores) - 1)], kind="stable")
        ordered = (str(records.units[place]) for place in places if not records.public[place])
        unit = next((name for name in ordered if name not in seen), None)
        if unit is None:
            return
        seen.add(unit)
        rows = np.flatnonzero(records.units == unit)
        left, name = without(records, rows), np.array([f"a record added by the audit, {row + 1}"])
        features, label = (
            query[None].astype(records.features.dtype),
            np.array([tried_label(problem.dataset.target, row)]),
        )
        newcomer = Records(features, label, name, name, np.zeros(1, dtype=bool))
        rows_of_unit = counted(len(rows), "row")
        less, plus = (
            f"without unit {unit!r} ({rows_of_unit})",
            f"with an added record that has the features of query {row + 1}",
        )
        if replaces:
            yield f"{less} and {plus}", neighbour_of(model, with_added(left, newcomer))
            continue
        yield less, neighbour_of(model, left)
        yield plus, neighbour_of(model, with_added(records, newcomer))


def influences(model: Model, records: Records, queries: np.ndarray) -> np.ndarray:
    """[m or 1, n]: how much each record is likely to move the model at each query.

    A linear head's gradient at a record is a residual times its features: residual times inner
    product with the query's. Of members that vote, whose gradients nobody has, the inner product
    alone. Of other models, how far the record's own label is from being the model's.
    """
    head = model.linear_head
    if head is None and (features := model.public_features) is not None:
        parts = [
            np.abs(features(queries) @ features(piece).T) for piece in pieces(records.features)
        ]
        return np.concatenate(parts, axis=1)
    if head is not None:
        phi, start, scores = head.phi(queries), 0, []
        for piece in pieces(records.features):
            seen, labels = head.phi(piece), records.labels[start : start + len(piece)]
            logits = logits_of(head.trained.weight, seen)
            if logits.shape[1] == 1:
                sizes = np.abs(expit(logits[:, 0]) - labels)
            else:
                sizes = np.linalg.norm(
                    softmax(logits, axis=1) - np.eye(logits.shape[1])[labels], axis=1
                )
            scores.append(sizes * np.abs(phi @ seen.T))
            start += len(piece)
        return np.concatenate(scores, axis=1)
    member = model.member_models[0]
    margins = np.concatenate([member.margins(piece) for piece in pieces(records.features)], axis=1)
    lead = (
        margins[0] * (2 * records.labels - 1)
        if len(margins) == 1
        else margins[records.labels, np.arange(len(records))]
    )
    return -np.asarray(lead)[None]
