"""Sets of outputs by which an attacker guesses, and the choice of the best of them.

An event must be counted on other outputs than those that chose it (Lemma 2 of
docs/proofs/attack_bounds.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agt_audit.claims import Claimed
from agt_audit.estimates import Mistakes

MAX_THRESHOLDS = 200  # thresholds among which an event is chosen
MAX_HALVINGS = 64  # events about multiples of 2^-h are tried for h below it


@dataclass(frozen=True)
class Event:
    """A set of outputs; of an output in the set, an attack says that the record was there ("in").

    Attributes:
        clause: a clause that describes the set, such as "the released label is 1".
        holds: [n] outputs -> [n] bool, which of them are in the set.
    """

    clause: str
    holds: Callable[[np.ndarray], np.ndarray]

    def mistakes(self, first: np.ndarray, second: np.ndarray) -> Mistakes:
        """Count the mistakes of an attack that says "in" exactly where the event holds.

        Args:
            first: [n] outputs of the side with the record.
            second: [n] outputs of the side without it.
        """
        misses = int((~self.holds(first)).sum())
        alarms = int(self.holds(second).sum())
        return Mistakes(alarms, len(second), misses, len(first))


def label_event(labels: tuple[int, ...]) -> Event:
    """Return the event that the released label is one of these."""
    listed = ", ".join(map(str, labels))
    clause = f"the released label is {listed}"
    if len(labels) > 1:
        clause = f"the released label is one of {listed}"
    return Event(clause, lambda outputs: np.isin(outputs, labels))


def tail_event(threshold: float, above: bool) -> Event:
    """Return the event that the released number lies on one side of a threshold.

    The threshold itself belongs to the upper side.
    """
    comparison = "at least" if above else "below"
    clause = f"the released number is {comparison} {threshold:g}"
    return Event(clause, lambda outputs: (outputs >= threshold) == above)


def grain_event(halvings: int, finer: bool) -> Event:
    """Return the event that the released number is a multiple of 2^-halvings.

    How fine the last bits of floating-point noise are depends on the number that it is added to
    (Mironov 2012), so they may tell the two sides apart.

    Args:
        halvings: the negative exponent; 0 for whole numbers.
        finer: True for the opposite event: the number is not such a multiple. Infinite numbers
            and NaN are none.
    """

    def holds(outputs: np.ndarray) -> np.ndarray:
        # a number that overflows is treated as infinite: it is no multiple
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.ldexp(outputs.astype(np.float64), halvings)
            is_whole: np.ndarray = scaled == np.rint(scaled)
        return (is_whole & np.isfinite(scaled)) != finer

    negation = "not " if finer else ""
    return Event(f"the released number is {negation}a multiple of 2^-{halvings}", holds)


Outputs = Literal["labels", "released numbers", "scores"]
"""What is drawn from the two sides: labels; numbers exactly as they are released; or scores, which
the attacker computes. The last bits of scores come from that computation, so no event is about
them.
"""


def choose_event(
    first: np.ndarray, second: np.ndarray, claimed: Claimed, confidence: float, outputs: Outputs
) -> Event:
    """Return the event whose counts on these draws give the largest lower bound on the loss.

    Of events with equal bounds (all may be 0), it is the one with the smallest rate of mistakes.

    The event must be counted on other draws: on these, its bound does not hold (Lemma 2 of
    docs/proofs/attack_bounds.md).

    Args:
        first: [n] outputs of the side with the record.
        second: [n] outputs of the side without it.
        claimed: the claim, whose measure the bounds have.
        confidence: the probability with which each bound holds.
        outputs: what the outputs are, which decides which events are tried.
    """
    if outputs == "labels":
        events = _label_events(first, second)
    elif outputs == "released numbers":
        events = _number_events(np.concatenate([first, second]))
    else:
        events = _tail_events(np.concatenate([first, second]))

    def strength(event: Event) -> tuple[float, float]:
        mistakes = event.mistakes(first, second)
        return claimed.bound(mistakes, confidence), -mistakes.rate

    return max(events, key=strength)


def _label_events(first: np.ndarray, second: np.ndarray) -> list[Event]:
    """Return events about labels, among them the most powerful tests (Neyman and Pearson).

    For every factor, one event is that the label is more frequent on the first side than on the
    second by more than that factor; another is its complement.

    Args:
        first: [n] labels of one side.
        second: [n] labels of the other side.
    """
    labels = np.unique(np.concatenate([first, second]))
    # half a count is added, so that no ratio is 0 or infinite
    first_counts = np.array([(first == label).sum() for label in labels]) + 0.5
    second_counts = np.array([(second == label).sum() for label in labels]) + 0.5
    likeliest_first = labels[np.argsort(-(first_counts / second_counts), kind="stable")].tolist()
    events = []
    # a single label is an event too, whose complement is empty
    for count in range(1, max(len(likeliest_first), 2)):
        for part in (likeliest_first[:count], likeliest_first[count:]):
            if part:
                events.append(label_event(tuple(sorted(part))))
    return events


def _number_events(outputs: np.ndarray) -> list[Event]:
    """Return events about released numbers: thresholds, and multiples of powers of 2.

    The latter are left out if all numbers are whole.

    Args:
        outputs: [n] released numbers of both sides.
    """
    events = _tail_events(outputs)
    if (outputs == np.rint(outputs)).all():
        return events
    for halvings in range(MAX_HALVINGS):
        events += [grain_event(halvings, finer=False), grain_event(halvings, finer=True)]
    return events


def _tail_events(outputs: np.ndarray) -> list[Event]:
    """Return the two events of each threshold: above it, and below it.

    Thresholds are the distinct outputs, or ``MAX_THRESHOLDS`` quantiles if there are more.

    Args:
        outputs: [n] numbers or scores of both sides.
    """
    thresholds = np.unique(outputs)
    if len(thresholds) > MAX_THRESHOLDS:
        thresholds = np.unique(np.quantile(outputs, np.linspace(0, 1, MAX_THRESHOLDS)))
    events = []
    for threshold in thresholds:
        events += [tail_event(float(threshold), above) for above in (True, False)]
    return events
