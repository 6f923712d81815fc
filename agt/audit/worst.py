"""Neighbouring datasets by search: a unit that goes or comes, and a query at which that changes the most of what is seen.

Every query of the search lies on a segment between two records of different labels. On it the evidence crosses some level
(the label changes, or the stable distance reaches a value). The crossings of two neighbours are apart by what one unit
moves, and halving the segment while both sides agree ends between them, if they differ at all: there the label differs, or
the distance falls. Nothing rests on how good the search is: it only decides how hard an audit is. Bisection asks both
models, so it finds the crossing of a jump as well, which no argument about slopes would.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, softmax

from agt.audit.mechanism import Pair, Plan, Side, expected_bound, neighbouring
from agt.audit.neighbours import neighbouring as neighbouring_problem
from agt.audit.neighbours import retrained, retrained_members, with_added, without
from agt.certificates.stability import logits_of
from agt.data.blocks import pieces
from agt.data.dataset import Records
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.release import Labelling
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.tube import TubeModel
from agt.relations import RELATIONS
from agt.training.ensemble import shards

HALVINGS = 60
LEVELS = 6  # of evidence that are looked for beside the label
ANCHORS = 2000  # records that ends of segments are picked from
FURTHEST = 256  # levels that closed forms are looked at up to
NEWCOMER = "a newcomer of the audit"

See = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Neighbour:
    """A neighbouring dataset, and what was trained on it.

    Attributes:
        edit: what is different, in words that name a unit: for the data owner.
        model: trained on it.
    """

    edit: str
    model: Model


@dataclass(frozen=True)
class Found:
    """A query at which two neighbours differ.

    Attributes:
        pair: what a mechanism sees of it on either side.
        query: [1, ...] its features.
        neighbour: the second side.
        score: how much the pair is worth to who looked for it.
    """

    pair: Pair
    query: np.ndarray
    neighbour: Neighbour
    score: float


def segments(model: Model, anchors: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """([S, ...], [S, ...]) ends of segments between records that the model labels differently; S <= count.

    Args:
        anchors: [n, ...] features to pick from.
    """
    rows = rng.permutation(len(anchors))[:ANCHORS]
    points = np.asarray(anchors[np.sort(rows)])
    labels = model.predict(points)
    starts = rng.permutation(len(points))
    ends = [rng.permutation(np.flatnonzero(labels != labels[start]))[:1] for start in starts[: 4 * count]]
    both = [(start, end[0]) for start, end in zip(starts, ends, strict=False) if len(end)][:count]
    first, second = (np.array([pair[side] for pair in both], dtype=np.int64) for side in (0, 1))
    return points[first], points[second]


def neighbours(model: Model, queries: np.ndarray, count: int) -> Iterator[Neighbour]:
    """Datasets one unit away, made to move the model at these queries: the unit of most influence goes; a record like the
    query comes. Of a relation whose edits replace, both at once.

    Args:
        queries: [m, ...] at decision roots.
        count: at most so many.
    """
    problem = model.problem
    records, replaces = problem.dataset.train, RELATIONS[problem.settings.relation.name].touches > 1
    scores, seen = influences(model, records, queries), set[str]()
    for row, query in enumerate(queries[: -(-count // (1 if replaces else 2))]):
        places = np.argsort(-scores[min(row, len(scores) - 1)], kind="stable")
        ordered = (str(records.units[place]) for place in places if not records.public[place])
        unit = next((name for name in ordered if name not in seen), None)
        if unit is None:
            return
        seen.add(unit)
        gone = np.flatnonzero(records.units == unit)
        left, newcomer = without(records, gone), _newcomer(records, query, row % problem.classes, row)
        less, plus = f"without unit {unit!r} (rows: {len(gone)})", f"with a newcomer like query {row + 1}"
        if replaces:
            edited = _again(model, with_added(left, newcomer), (unit, str(newcomer.units[0])))
            yield Neighbour(f"{less} and {plus}", edited)
            continue
        yield Neighbour(less, _again(model, left, (unit,)))
        yield Neighbour(plus, _again(model, with_added(records, newcomer), (str(newcomer.units[0]),)))


def influences(model: Model, records: Records, queries: np.ndarray) -> np.ndarray:
    """[m or 1, n]: how much each record is likely to move the model at each query.

    A linear head's gradient at a record is a residual times its features: residual times inner product with the query's.
    Of other models, how far the record's own label is from being the model's.
    """
    if isinstance(model, LinearModel):
        phi = model.phi(queries)
        parts = [_residuals(model, piece, rows) for piece, rows in _with_labels(records)]
        return np.concatenate([size * np.abs(phi @ seen.T) for size, seen in parts], axis=1)
    member = model.members[0] if isinstance(model, EnsembleModel) else model
    margins = np.concatenate([member.margins(piece) for piece in pieces(records.features)], axis=1)
    lead = margins[0] * (2 * records.labels - 1) if len(margins) == 1 else margins[records.labels, np.arange(len(records))]
    return -np.asarray(lead)[None]


@dataclass(frozen=True)
class Quarry:
    """What is looked for.

    Attributes:
        levels: of evidence, whose crossings are looked for; 0 is where the label changes.
        score: how much a pair is worth.
    """

    levels: np.ndarray
    score: Callable[[Pair], float]

    @classmethod
    def of_labels(cls, labelling: Labelling, plan: Plan) -> "Quarry":
        """The pair whose released labels can be told apart best."""
        mechanism = labelling.mechanism
        levels = levels_of(mechanism, values_of(labelling), plan)
        return cls(levels, lambda pair: expected_bound(mechanism, pair, plan))

    @classmethod
    def of_distances(cls, labelling: Labelling) -> "Quarry":
        """The pair whose evidence is farthest apart: of a file of one query, that is K_q."""
        return cls(np.array(values_of(labelling)[1 : LEVELS + 1]), lambda pair: pair.moved)


def search(labelling: Labelling, quarry: Quarry, anchors: np.ndarray, count: int, width: int, seed: int) -> Found | None:
    """The query and the neighbour of the best score; None: none was found.

    Args:
        labelling: the run's model and mechanism, judged.
        anchors: [n, ...] features, between which queries are looked for.
        count: how many neighbouring datasets are trained.
        width: how many segments are searched.
        seed: of the segments.
    """
    model, see, levels = labelling.model, labelling.seen, quarry.levels
    a, b = segments(model, anchors, width, np.random.default_rng(seed))
    if not len(a) or not len(levels):
        return None
    roots, _ = crossings(see, see, a, b, np.zeros(len(a), dtype=np.int64), model.predict(b))
    a, b = (np.repeat(side, len(levels), axis=0) for side in (a, b))
    level, label = np.tile(levels, len(roots)), model.predict(b)
    best: Found | None = None
    for neighbour in neighbours(model, roots, count):
        other = replace(labelling, model=neighbour.model).seen
        points, apart = crossings(see, other, a, b, level, label)
        for pair, query in _pairs(see, other, points[apart], neighbour.edit):
            found = Found(pair, query, neighbour, quarry.score(pair))
            best = found if best is None or found.score > best.score else best
    return best


def crossings(
    first: See, second: See, a: np.ndarray, b: np.ndarray, level: np.ndarray, label: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """([S, ...] points, [S] whether the sides differ there), by halving each segment while both sides agree.

    Args:
        first, second: features -> labels and evidence.
        a, b: [S, ...] ends.
        level, label: [S] a side is "beyond" where it has this label, and at least this evidence; so b should be.
    """
    low, high = np.zeros(len(a)), np.ones(len(a))
    shape = (-1, *[1] * (a.ndim - 1))

    def at(t: np.ndarray) -> np.ndarray:
        return (a + t.reshape(shape) * (b - a.astype(np.float64))).astype(a.dtype)

    def beyond(see: See, x: np.ndarray) -> np.ndarray:
        labels, evidence = see(x)
        return np.asarray((labels == label) & (evidence >= level))

    apart = beyond(first, b) != beyond(second, b)
    low = np.where(apart, 1.0, low)  # the end itself
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        x = at(middle)
        one, two = beyond(first, x), beyond(second, x)
        fresh = (one != two) & ~apart
        low = np.where(apart, low, np.where(fresh | ~one, middle, low))
        high = np.where(apart, high, np.where(fresh | one, middle, high))
        apart |= fresh
        if apart.all() or np.array_equal(at(low), at(high)):
            break
    return at(high), apart


def levels_of(mechanism: Mechanism, values: Sequence[int], plan: Plan) -> np.ndarray:
    """Which levels of evidence to look for a crossing of: 0, where the label changes, and those where most is expected."""
    if mechanism.needs == "nothing":
        return np.array([0])
    pairs = [pair for pair in neighbouring(mechanism, values) if pair.first.label == pair.second.label]
    ranked = sorted(pairs, key=lambda pair: -expected_bound(mechanism, pair, plan))
    return np.array([0, *sorted({pair.first.evidence for pair in ranked[:LEVELS]})])


def values_of(labelling: Labelling) -> tuple[int, ...]:
    """The evidence that queries of a model can have, as far as it is looked at."""
    model = labelling.model
    end, ks = min(model.farthest, FURTHEST), model.problem.settings.kgrid.ks
    closed = isinstance(model, LinearModel | TubeModel | EnsembleModel) or labelling.mechanism.needs == "votes"
    if closed or labelling.counting == "index":
        return tuple(range((end if closed else len(ks)) + 1))
    return tuple(sorted({0, *ks}))


def _pairs(first: See, second: See, points: np.ndarray, edit: str) -> Iterator[tuple[Pair, np.ndarray]]:
    if not len(points):
        return
    (labels, evidence), (other_labels, other) = first(points), second(points)
    for row in range(len(points)):
        sides = Side(int(labels[row]), int(evidence[row])), Side(int(other_labels[row]), int(other[row]))
        yield Pair(*sides, f"the run's own data, and the same {edit}"), points[row : row + 1]


def _again(model: Model, records: Records, units: tuple[str, ...]) -> Model:
    """The model of other records; of an ensemble only the members that one of these units belongs to are trained."""
    if not isinstance(model, EnsembleModel):
        return retrained(model.problem, records)
    touched = sorted(set(shards(np.array(units), model.settings.ensemble).tolist()))
    members = dict(enumerate(model.members))
    members |= zip(touched, retrained_members(model.problem, records, touched), strict=True)
    return EnsembleModel(neighbouring_problem(model.problem, records), tuple(members.values()))


def _newcomer(records: Records, query: np.ndarray, label: int, row: int) -> Records:
    name = np.array([f"{NEWCOMER} {row + 1}"])
    features = query[None].astype(records.features.dtype)
    return Records(features, np.array([label], dtype=np.int64), name, name, np.zeros(1, dtype=bool))


def _with_labels(records: Records) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    start = 0
    for piece in pieces(records.features):
        yield piece, records.labels[start : start + len(piece)]
        start += len(piece)


def _residuals(model: LinearModel, features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n] sizes of the loss's derivative in the logits, [n, w] features)."""
    phi = model.phi(features)
    logits = logits_of(model.trained.weight, phi)
    if logits.shape[1] == 1:
        return np.abs(expit(logits[:, 0]) - labels), phi
    return np.linalg.norm(softmax(logits, axis=1) - np.eye(logits.shape[1])[labels], axis=1), phi
