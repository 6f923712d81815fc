"""Attacks on private prediction: labels drawn on both sides of a neighbouring pair, at a query that was chosen for it.

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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from agt.audit.estimates import Claimed, Mistakes
from agt.audit.findings import Finding, Outcome
from agt.audit.verdict import Attacked
from agt.errors import ConfigError
from agt.mechanisms.release import Labelling

ROOTS = 60  # halvings of a line between two queries
BESIDE = 0.5 + np.array([0, -0.25, 0.25, *np.outer(np.arange(1, 5), (-1, 1)).ravel()])  # in widths of what is between roots
SCALES = tuple(10.0**-power for power in range(4, 15))
PROBES = 64
ENOUGH = 0.9  # of the probed rows are like the query
Read = Callable[[np.ndarray], np.ndarray]


# -- what is attacked ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
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
class Event:
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


def event_of(having: np.ndarray, lacking: np.ndarray) -> Event:
    """The most telling set of one label: [C] probabilities on each side."""
    likelier = tuple(np.flatnonzero(having > lacking).tolist()) or (int(having.argmax()),)
    inside = list(likelier)
    return Event(likelier, 1, 1, float(lacking[inside].sum()), float(having[inside].sum()))


def event_of_sum(one: Event, answers: int, claimed: Claimed, trials: int, confidence: float, events: int) -> Event:
    """How many of ``answers`` labels must be in the event's set: the number of which most is expected."""
    made = [
        replace(
            one, answers=answers, least=t, alarm=binom.sf(t - 1, answers, one.alarm), hit=binom.sf(t - 1, answers, one.hit)
        )
        for t in range(1, answers + 1)
    ]
    return max(made, key=lambda event: event.expected(claimed, trials, confidence, events))


# -- which query -----------------------------------------------------------------------------------------------------------


def most_telling(pair: Pair, queries: np.ndarray, claimed: Claimed, trials: int, confidence: float) -> tuple[int, Event]:
    """(the query at which trials are expected to show most, its event); the first of those that show as much."""
    seen = pair.seen(queries)
    kinds, first = np.unique(seen, axis=1, return_index=True)
    events = [event_of(*laws) for laws in zip(*pair.laws(kinds), strict=True)]
    shown = [(event.expected(claimed, trials, confidence, 1), event.hit - event.alarm) for event in events]
    best = max(range(len(events)), key=lambda at: (shown[at], -first[at]))
    return int(first[best]), events[best]


def between_roots(pair: Pair, anchors: np.ndarray, rng: np.random.Generator, lines: int = 64) -> np.ndarray:
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
    readings: list[list[Read]] = [[side.model.predict for side in sides], [partial(_code, side) for side in sides]]
    return np.concatenate([_beside(reads, begin, end) for reads in readings])


def _code(side: Labelling, queries: np.ndarray) -> np.ndarray:
    """[n] label and evidence in one number."""
    labels, evidence = side.seen(queries)
    return evidence * side.mechanism.classes + labels


def _beside(reads: list[Read], begin: np.ndarray, end: np.ndarray) -> np.ndarray:
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


def _root(read: Read, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[m] shares of the way from each begin to its end where what is read changes, as far as halving tells."""
    low, high, start = np.zeros(len(begin)), np.ones(len(begin)), read(begin)
    shape = (-1, *[1] * (begin.ndim - 1))
    for _ in range(ROOTS):
        middle = (low + high) / 2
        same = read(begin + middle.reshape(shape) * (end - begin)) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2


def alike(pair: Pair, query: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
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
        if rows(scale, PROBES)[1] >= ENOUGH:
            made, _ = rows(scale, math.ceil(1.3 * count))
            if len(np.unique(made[:count], axis=0)) == count:
                return made[:count]
    raise ConfigError(
        "audit.trials: rows that differ from the chosen query in their last digits are not answered alike: no trials can "
        "be made of it; give another seed"
    )


# -- what was found ----------------------------------------------------------------------------------------------------


def judged(attacked: Attacked, event: Event, having: np.ndarray, lacking: np.ndarray) -> Finding:
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


def alike_everywhere(attacked: Attacked, effort: str = "nothing was drawn") -> Finding:
    """Of a claim that was not attacked, as both models have the same law of labels at every query that was looked at, or
    gave the same label every time.
    """
    return Finding(
        subject=attacked.subject,
        claim=attacked.claim,
        attack=attacked.attack,
        effort=effort,
        outcome=Outcome.UNTESTED,
        meaning="no query was found at which the two models answer differently: there was nothing to tell apart",
        measure=attacked.claimed.measure,
        claimed=attacked.claimed.value,
        delta=None if attacked.claimed.measure == "mu" else attacked.claimed.delta,
        confidence=attacked.confidence,
    )
