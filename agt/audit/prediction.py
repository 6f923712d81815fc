"""Attacks on private prediction: labels drawn on both sides of a neighbouring pair, at a query that was chosen for it, or
among records that somebody poisoned.

A guarantee is about every pair of neighbours, so it must hold among records that somebody chose to make it fail (Chadha et
al. 2024: adversaries who poison learn most). Poisons lie on both sides of the pair; the target alone differs.

How poisons are chosen. The target is a record of most influence on a natural query (mechanism.py, ``influences``). All
poisons have another label and lie at one place of the half-circle from the query's opposite to the query, which is halved
between "too weak" and "too strong", by training again, until the label with the target differs from the one without. In an
ensemble all go into the target's shard: whoever names records chooses where the keyed hash puts them.

Formal guarantees
    The event, "the label is one of S" or "at least t of Q labels are", follows from what both models see of the query,
    before anything is drawn. The draws are independent, so that its rates are bounded by estimates.py.
    Trials are rows that differ from the query in their last digits (an identical one is told its stored label). They were
    checked to have the query's nominal label and evidence on both sides, so a mechanism treats them alike. Were the release
    to treat them otherwise all the same, the bound would hold: each row's rates satisfy the claim, which is linear in them
    (alpha + e^eps beta >= 1 - delta, or a supporting line of a Gaussian trade-off), hence so do the means over rows; and a
    count of unlike trials has lighter tails than the binomial of the same mean (Hoeffding 1956), so that the
    Clopper-Pearson limits, which are tails far below one half, cover those means.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import count, islice

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from agt.audit.estimates import Claimed, Mistakes, TestedClaim
from agt.audit.findings import Finding, Outcome
from agt.audit.mechanism import influences
from agt.audit.neighbours import NOMINAL, retrained, with_added, without
from agt.data.dataset import CONTENT, Records
from agt.errors import ConfigError
from agt.mechanisms.claims import Labelling
from agt.models.model import EnsembleModel, Model
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.training.ensemble import EnsembleConfig, shards

HALVINGS = 60  # of a line between two queries
BESIDE = 0.5 + np.array([0, -0.25, 0.25, *np.outer(np.arange(1, 5), (-1, 1)).ravel()])  # in widths of what is between roots
SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64
MIN_SHARE_ALIKE = 0.9  # of the probed rows
NAMES_AT_ONCE = 64
MIN_WIDTH = 2.0**-40  # of where poisons may lie
ReadDistances = Callable[[np.ndarray], np.ndarray]
NOTHING_TO_TELL = "no query was found at which the two models answer differently: there was nothing to tell apart"


# -- what is attacked ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabellingPair:
    """Two models of neighbouring data, answering through one mechanism.

    Attributes:
        having: of the data with the unit that is attacked.
        lacking: of the same without it, or with another in its place.
    """

    having: Labelling
    lacking: Labelling

    def seen(self, queries: np.ndarray) -> np.ndarray:
        """[4, n] int64: nominal labels and evidence with the unit, and the same without it. Private; nothing is drawn."""
        return np.stack([*self.having.seen(queries), *self.lacking.seen(queries)])

    def laws(self, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """([m, C] probability of each released label with the unit, the same without it), of ``seen`` [4, m]."""
        return self._law(seen[0], seen[1]), self._law(seen[2], seen[3])

    def _law(self, labels: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        mechanism = self.having.mechanism
        flip = mechanism.flip_probability(evidence)
        law = np.repeat(flip[:, None] / (mechanism.classes - 1), mechanism.classes, axis=1)
        law[np.arange(len(labels)), labels] = 1 - flip
        return law


@dataclass(frozen=True)
class LabelEvent:
    """What the attack calls "with the unit": at least ``least`` of ``answers`` labels are among ``labels``.

    Attributes:
        labels: classes.
        answers: Q, how many answers one trial has.
        least: of them.
        alarm, hit: its probability without and with the unit, if the release is what it says.
    """

    labels: tuple[int, ...]
    answers: int
    least: int
    alarm: float
    hit: float

    def mistakes(self, having: np.ndarray, lacking: np.ndarray) -> Mistakes:
        """Of labels that were drawn on each side, [n] each; what is left of the last trial is not counted."""
        alarms, hits = self._seen(lacking), self._seen(having)
        return Mistakes(int(alarms.sum()), len(alarms), int((~hits).sum()), len(hits))

    def _seen(self, labels: np.ndarray) -> np.ndarray:
        whole = len(labels) // self.answers * self.answers
        held: np.ndarray = np.isin(labels[:whole], self.labels).reshape(-1, self.answers).sum(axis=1) >= self.least
        return held

    def expected(self, claimed: Claimed, trials: int, confidence: float, events: int) -> float:
        """What so many trials would show if they fell as expected."""
        alarms, misses = math.ceil(self.alarm * trials), math.ceil((1 - self.hit) * trials)
        return claimed.bound(Mistakes(min(alarms, trials), trials, min(misses, trials), trials), confidence, events)

    def loss(self, claimed: Claimed) -> float:
        """What any number of trials could show: the loss of this event, if the release is what it says."""
        if claimed.measure == "mu":
            return max(0.0, float(ndtri(self.hit) - ndtri(self.alarm)))
        pairs = ((self.hit - claimed.delta, self.alarm), (1 - self.alarm - claimed.delta, 1 - self.hit))
        return max([0.0, *(math.log(more / less) if less > 0 else math.inf for more, less in pairs if more > 0)])

    @property
    def words(self) -> str:
        """What it is, without the labels' names, which may be private."""
        if self.answers == 1:
            return "event: the released label is one that the mechanism gives more often with the unit than without"
        return f"event: at least {self.least} of {self.answers} released labels are ones that are likelier with the unit"


def event_of(having: np.ndarray, lacking: np.ndarray) -> LabelEvent:
    """The most telling set of one label: [C] probabilities on each side."""
    likelier = tuple(np.flatnonzero(having > lacking).tolist()) or (int(having.argmax()),)
    inside = list(likelier)
    return LabelEvent(likelier, 1, 1, float(lacking[inside].sum()), float(having[inside].sum()))


def event_of_sum(
    one: LabelEvent, answers: int, claimed: Claimed, trials: int, confidence: float, events: int
) -> LabelEvent:
    """How many of ``answers`` labels must be in the event's set: the number of which most is expected."""
    made = [
        replace(
            one, answers=answers, least=t, alarm=binom.sf(t - 1, answers, one.alarm), hit=binom.sf(t - 1, answers, one.hit)
        )
        for t in range(1, answers + 1)
    ]
    return max(made, key=lambda event: event.expected(claimed, trials, confidence, events))


# -- which query -----------------------------------------------------------------------------------------------------------


def most_telling(
    pair: LabellingPair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float
) -> tuple[int, LabelEvent]:
    """(the query at which trials are expected to show most, its event); the first of those that show as much."""
    seen = pair.seen(queries)
    kinds, first = np.unique(seen, axis=1, return_index=True)
    events = [event_of(*laws) for laws in zip(*pair.laws(kinds), strict=True)]
    shown = [(event.expected(claimed, trials, confidence, 1), event.hit - event.alarm) for event in events]
    best = max(range(len(events)), key=lambda at: (shown[at], -first[at]))
    return int(first[best]), events[best]


def between_roots(pair: LabellingPair, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64) -> np.ndarray:
    """[m, ...] float64 queries around where labels or evidence change on lines between anchors: between the two models' own
    places of change, and beside them; first those with most room.

    Args:
        anchors: [n, ...] queries, from which lines go to one another and to points of their size.
    """
    anchors = np.asarray(anchors, dtype=np.float64)
    begin = anchors[np.tile(rng.integers(len(anchors), size=lines), 2)]
    away = max(float(np.abs(anchors).max()), 1.0) * rng.normal(size=(lines, *anchors.shape[1:]))
    end = np.concatenate([anchors[rng.integers(len(anchors), size=lines)], away])
    sides = (pair.having, pair.lacking)
    readings: list[list[ReadDistances]] = [[side.model.predict for side in sides], [partial(_code, side) for side in sides]]
    return np.concatenate([_beside(reads, begin, end) for reads in readings])


def _code(side: Labelling, queries: np.ndarray) -> np.ndarray:
    """[n] label and evidence in one number."""
    labels, evidence = side.seen(queries)
    return evidence * side.mechanism.classes + labels


def _beside(reads: list[ReadDistances], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Queries around the two places where what is read of each side changes, of the lines where both do."""
    changes = np.logical_and(*(read(begin) != read(end) for read in reads))
    begin, end = begin[changes], end[changes]
    if not len(begin):
        return begin
    first, second = (_root(read, begin, end) for read in reads)
    widest = np.argsort(-np.abs(second - first), kind="stable")
    begin, end, first, second = begin[widest], end[widest], first[widest], second[widest]
    shape = (-1, *[1] * (begin.ndim - 1))
    places = first + BESIDE[:, None] * (second - first)
    return np.concatenate([begin + place.reshape(shape) * (end - begin) for place in places])


def _root(read: ReadDistances, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[m] shares of the way from each begin to its end where what is read changes, as far as halving tells."""
    low, high, start = np.zeros(len(begin)), np.ones(len(begin)), read(begin)
    shape = (-1, *[1] * (begin.ndim - 1))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        same = read(begin + middle.reshape(shape) * (end - begin)) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2


def alike(pair: LabellingPair, query: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """[count, ...] float64 rows that differ from the query, and from each other, in their last digits, and of which both
    models see just what they see of it.

    Args:
        query: [1, ...].

    Raises:
        ConfigError: both models tell apart even the nearest rows.
    """
    query = np.asarray(query, dtype=np.float64)
    size, seen = max(float(np.abs(query).max()), 1e-300), pair.seen(query)

    def rows(scale: float, many: int) -> tuple[np.ndarray, float]:
        made = query + scale * size * rng.uniform(-1, 1, size=(many, *query.shape[1:]))
        same = (pair.seen(made) == seen).all(axis=0)
        return made[same], float(same.mean())

    for scale in SCALES:
        if rows(scale, PROBES)[1] >= MIN_SHARE_ALIKE:
            made, _ = rows(scale, math.ceil(1.3 * count))
            if len(np.unique(made[:count], axis=0)) == count:
                return made[:count]
    raise ConfigError(
        "audit.trials: rows that differ from the chosen query in their last digits are not answered alike: no trials can "
        "be made of it; give another seed"
    )


# -- what was found ----------------------------------------------------------------------------------------------------


def judged(attacked: TestedClaim, event: LabelEvent, having: np.ndarray, lacking: np.ndarray) -> Finding:
    """What labels drawn on each side, [n] each, say of a claim.

    Args:
        attacked: what was; the event and the number of trials are added to its words.
    """
    mistakes = event.mistakes(having, lacking)
    effort = f"{len(having):,} labels a side" + (f", {mistakes.having:,} trials of {event.answers}" * (event.answers > 1))
    effort += f"; {attacked.events} bounds share the error probability" if attacked.events > 1 else ""
    each = 1 - (1 - attacked.confidence) / attacked.events  # so that all of them hold with the confidence asked for
    told = replace(attacked, attack=f"{attacked.attack}; {event.words}", effort=effort, confidence=each, events=1)
    return told.judge(mistakes)


def nothing_to_tell(attacked: TestedClaim, effort: str = "nothing was drawn") -> Finding:
    """Of a claim that was not attacked, as both models have the same law of labels at every query that was looked at, or
    gave the same label every time.
    """
    return replace(attacked, effort=effort).finding(Outcome.UNTESTED, NOTHING_TO_TELL)


# -- poisoned neighbours -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoisonedPair:
    """Training sets that differ in one unit, and where to look.

    Attributes:
        having, lacking: with the unit, and without it or with another in its place.
        query: [1, ...] a natural query, as the head takes it; None: any.
        poisons: how many records of both are the attacker's.
        trained: how many models were trained to find them.
        decided: they answer the query differently.
        needed: where they do not, about how many poisons would; None: nobody knows.
    """

    having: Records
    lacking: Records
    query: np.ndarray | None = None
    poisons: int = 0
    trained: int = 0
    decided: bool = False
    needed: int | None = None


@dataclass(frozen=True)
class Aim:
    """Who could decide what.

    Attributes:
        query: row among the queries.
        target: row among the training records.
        rival: the label that comes second where the target counts.
        member: of an ensemble, in whose shard the target is; None: there is one model.
    """

    query: int
    target: int
    rival: int
    member: int | None


# -- neighbours ------------------------------------------------------------------------------------------------------------


def edited(problem: Problem, records: Records, row: int) -> Records:
    """Without the unit of a record; where the relation replaces units, with its first record under another label in its
    place, named so that an ensemble deals it to another shard."""
    gone = records.units == records.units[row]
    rest = without(records, gone)
    if RELATIONS[problem.settings.relation.name].touches == 1:
        return rest
    ensemble = problem.settings.ensemble
    home = int(shards(records.units[[row]], ensemble)[0])
    label = (int(records.labels[row]) + 1) % problem.classes
    place = (home + 1) % ensemble.members
    return with_added(rest, newcomers(records, records.features[[row]], [label], "replacing", place, ensemble))


def newcomers(
    records: Records, features: np.ndarray, labels: list[int], name: str, shard: int, ensemble: EnsembleConfig
) -> Records:
    """Private records, each a unit of its own, that an ensemble deals to one shard."""
    ids = np.array(list(islice(names_into(name, shard, ensemble, _hashes(records)), len(labels))))
    features = np.asarray(features, dtype=records.features.dtype)
    return Records(features, np.array(labels, dtype=np.int64), ids, ids.copy(), np.zeros(len(ids), dtype=bool))


def names_into(name: str, shard: int, ensemble: EnsembleConfig, hashes: bool = False) -> Iterator[str]:
    """Names that the keyed hash deals to this shard, as many as are wanted.

    Args:
        hashes: they look like the ids that content has: whoever varies a record's last digits draws such ids.
    """
    for turn in count():
        tried = [f"{name}-{turn * NAMES_AT_ONCE + each}" for each in range(NAMES_AT_ONCE)]
        if hashes:
            tried = [blake2b(each.encode(), digest_size=16).hexdigest() for each in tried]
        home = shards(np.array(tried), ensemble)
        yield from (each for each, at in zip(tried, home.tolist(), strict=True) if at == shard)


def _hashes(records: Records) -> bool:
    return all(CONTENT.fullmatch(str(name)) for name in records.ids[:NAMES_AT_ONCE].tolist())


# -- who decides what ------------------------------------------------------------------------------------------------------


def aims(model: Model, records: Records, queries: np.ndarray, most: int) -> list[Aim]:
    """The queries nearest to a change of label, each with the private record that has most influence there; the nearest
    first. Of an ensemble those that one member decides alone."""
    if not isinstance(model, EnsembleModel):
        margins = model.margins(queries)
        nearest = np.argsort(_distance_to_change(margins), kind="stable")[:most]
        return [_aim(model, records, queries, int(at), None, margins[:, at]) for at in nearest]
    margins = np.stack([member.margins(queries) for member in model.members])
    deciding = _deciding(margins, model.problem.classes)
    least = np.where(deciding, np.stack([_distance_to_change(each) for each in margins]), np.inf)
    made = list[Aim]()
    for place in np.argsort(least, axis=None, kind="stable")[:most].tolist():
        member, at = divmod(place, least.shape[1])
        mine = shards(records.units, model.problem.settings.ensemble) == member
        if np.isfinite(least[member, at]) and (mine & ~records.public).any():
            made.append(_aim(model.members[member], records, queries, at, member, margins[member, :, at], mine))
    return made


def _aim(
    model: Model,
    records: Records,
    queries: np.ndarray,
    at: int,
    member: int | None,
    margins: np.ndarray,
    among: np.ndarray | None = None,
) -> Aim:
    eligible = ~records.public if among is None else among & ~records.public
    rows = np.flatnonzero(eligible)
    rival = (0 if margins[0] > 0 else 1) if len(margins) == 1 else int(np.argsort(margins)[-2])
    moves = influences(model, records.take(rows), queries[at : at + 1])[0]
    return Aim(at, int(rows[int(np.argmax(moves))]), rival, member)


def _distance_to_change(margins: np.ndarray) -> np.ndarray:
    """[n] how far each query is from another label."""
    distance: np.ndarray = np.abs(margins[0]) if len(margins) == 1 else margins.max(axis=0)
    return distance


def _deciding(margins: np.ndarray, classes: int) -> np.ndarray:
    """[T, n] bool: the winner changes if this member takes its second label instead. Of margins [T, lines, n]."""
    labels = (margins[:, 0] > 0).astype(int) if classes == 2 else margins.argmax(axis=1)
    second = 1 - labels if classes == 2 else np.argsort(margins, axis=1)[:, -2]
    counts = np.stack([(labels == c).sum(axis=0) for c in range(classes)])
    winner, decides, at = counts.argmax(axis=0), np.zeros(labels.shape, dtype=bool), np.arange(labels.shape[1])
    for member in range(len(labels)):
        moved = counts.copy()
        moved[labels[member], at] -= 1
        moved[second[member], at] += 1
        decides[member] = moved.argmax(axis=0) != winner
    return decides


# -- poisons ------------------------------------------------------------------------------------------------------------


class Poisoner:
    """Looks for poisons among which one natural record decides a natural query's label.

    Args:
        model: of the run; its problem holds the records.
        queries: [n, ...] natural ones.
        allowance: a, how many records are the attacker's.
        retrainings: at most so many models are trained.
    """

    def __init__(self, model: Model, queries: np.ndarray, allowance: int, retrainings: int) -> None:
        self.model, self.problem, self.queries, self.allowance = model, model.problem, queries, allowance
        self.left, self.records = retrainings, model.problem.dataset.train

    def search(self, most: int = 4) -> PoisonedPair | None:
        """Neighbours that answer a natural query differently; where none are found, those around the query that was nearest
        to a change. None: no record decides anything (an ensemble's votes are never close).

        Args:
            most: queries tried.

        Raises:
            ConfigError: training refuses so many more records.
        """
        retrainings, nearest = self.left, list[PoisonedPair]()
        for aim in aims(self.model, self.records, self.queries, most):
            found = self._halved(aim)
            nearest.append(replace(found, trained=retrainings - self.left))
            if found.decided:
                return nearest[-1]
        return replace(nearest[0], trained=retrainings - self.left) if nearest else None

    def _halved(self, aim: Aim) -> PoisonedPair:
        """Halve between poisons that are too weak and too strong, until the target decides."""
        query, low, high, factor = self.queries[aim.query : aim.query + 1], -1.0, 1.0, 1.0
        label, weakest = int(self.model.predict(query)[0]), self._pair(aim, factor)
        while self.left >= 2 and high - low > MIN_WIDTH:
            found = self._pair(aim, factor)
            models = self._models(found)
            having, lacking = (int(model.predict(query)[0]) for model in models)
            if having != lacking:
                return replace(found, decided=True)
            if factor == 1.0 and having == label:
                return replace(weakest, needed=self._needed(models[0], query))
            low, high = (factor, high) if having == label else (low, factor)
            factor = (low + high) / 2
        return weakest

    def _pair(self, aim: Aim, factor: float) -> PoisonedPair:
        """With this share of the query in the poisons, from -1 to 1."""
        query, ensemble = self.queries[aim.query : aim.query + 1], self.problem.settings.ensemble
        placed = factor * query + np.sqrt(1 - factor**2) * _across(np.asarray(query, dtype=np.float64))
        features, labels = np.repeat(placed, self.allowance, axis=0), [aim.rival] * self.allowance
        having = with_added(self.records, newcomers(self.records, features, labels, "poison", aim.member or 0, ensemble))
        return PoisonedPair(having, edited(self.problem, having, aim.target), query, self.allowance)

    def _models(self, found: PoisonedPair) -> tuple[Model, Model]:
        """With the unit and without it, boxes left out."""
        self.left -= 2
        try:
            having, lacking = (retrained(self.problem, side, NOMINAL) for side in (found.having, found.lacking))
        except ConfigError as error:
            raise ConfigError(f"audit.poisons={self.allowance}: training refuses so many more records: {error}") from None
        return having, lacking

    def _needed(self, having: Model, query: np.ndarray) -> int | None:
        """About how many poisons would turn the label, if each moved the margin by as much; None: nobody knows."""
        before, after = (float(_distance_to_change(model.margins(query))[0]) for model in (self.model, having))
        return None if after >= before else math.ceil(self.allowance * before / (before - after))


def _across(query: np.ndarray) -> np.ndarray:
    """Something as long as the query and at a right angle to it."""
    along, other = query.ravel(), np.resize([1.0, -1.0], query.size)
    other = other - (other @ along) / max(float(along @ along), 1e-300) * along
    longer: np.ndarray = other * np.linalg.norm(along) / max(float(np.linalg.norm(other)), 1e-300)
    return longer.reshape(query.shape)
