"""What an attack looks for in an output: events, fixed before the draws that are counted.

Formal guarantees
    A bound is about an event that does not depend on the draws that are counted. ``chosen`` picks one on draws of its own
    (a split), and costs no confidence: given those, the event is fixed, and the others are independent of them. ``each``
    lists events that no draw decides; whoever takes the best of them shares the error probability among all, by
    Bonferroni's inequality (``events`` in estimates.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from agt.audit.estimates import Claimed, Mistakes

THRESHOLDS = 200  # of numbers that are looked at on the draws that choose


class Event(Protocol):
    """What an attack calls "in"."""

    def holds(self, outputs: np.ndarray) -> np.ndarray:
        """[n] bool of [n] outputs."""
        ...


@dataclass(frozen=True)
class Labels:
    """The released label is one of these."""

    labels: tuple[int, ...]

    def holds(self, outputs: np.ndarray) -> np.ndarray:
        """[n] bool."""
        return np.isin(outputs, self.labels)

    def __str__(self) -> str:
        one, *more = self.labels
        return f"the label is one of {', '.join(map(str, self.labels))}" if more else f"the label is {one}"


@dataclass(frozen=True)
class Tail:
    """The released number lies on one side of a threshold, which counts as above."""

    threshold: float
    above: bool

    def holds(self, outputs: np.ndarray) -> np.ndarray:
        """[n] bool."""
        return (outputs >= self.threshold) == self.above

    def __str__(self) -> str:
        return f"the number is {'at least' if self.above else 'below'} {self.threshold:g}"


def each(classes: int) -> tuple[Event, ...]:
    """Every label by itself; of two, each is the other's complement."""
    return tuple(Labels((label,)) for label in range(classes))


def counted(event: Event, first: np.ndarray, second: np.ndarray) -> Mistakes:
    """The mistakes of who says that an output is the first side's where the event holds, else the second's."""
    alarms, misses = int(event.holds(second).sum()), int((~event.holds(first)).sum())
    return Mistakes(alarms, len(second), misses, len(first))


def chosen(first: np.ndarray, second: np.ndarray, claimed: Claimed, confidence: float, labels: bool) -> Event:
    """The event that tells these draws of two sides apart best, to be counted on other draws; of those that tell as much,
    which may be nothing, the one that is wrong least often.

    Args:
        first, second: [n] outputs.
        claimed: says in which measure.
        labels: they are labels; else numbers.
    """
    events = _label_events(first, second) if labels else _tails(np.concatenate([first, second]))
    seen = [(event, counted(event, first, second)) for event in events]
    best, _ = max(seen, key=lambda one: (claimed.bound(one[1], confidence), -one[1].rate))
    return best


def _label_events(first: np.ndarray, second: np.ndarray) -> Sequence[Event]:
    """The labels that are likelier on the first side than on the second by more than some factor, for every factor: the
    best tests there are (Neyman and Pearson); and their complements."""
    values = np.unique(np.concatenate([first, second]))
    counts = [np.array([(side == value).sum() for value in values]) + 0.5 for side in (first, second)]
    ordered = values[np.argsort(-(counts[0] / counts[1]), kind="stable")].tolist()
    cuts = range(1, len(ordered)) or range(1, 2)
    events = [(tuple(sorted(ordered[:cut])), tuple(sorted(ordered[cut:]))) for cut in cuts]
    return [Labels(part) for pair in events for part in pair if part]


def _tails(outputs: np.ndarray) -> Sequence[Event]:
    places = np.unique(outputs)
    if len(places) > THRESHOLDS:
        places = np.unique(np.quantile(outputs, np.linspace(0, 1, THRESHOLDS)))
    return [Tail(float(place), above) for place in places for above in (True, False)]
