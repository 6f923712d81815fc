"""Sound twins of what is planted: none is accused; and auditors that are broken, which the catalogue notices."""

from collections.abc import Callable

import numpy as np
import pytest

from agt.audit import certificate, estimates
from agt.audit.estimates import Mistakes
from agt.audit.findings import Outcome
from agt.audit.planted.catalogue import PLANTED, SOUND


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_is_let_pass(name: str) -> None:
    assert SOUND[name](1).outcome is Outcome.STANDS


def alarms(patch: pytest.MonkeyPatch) -> None:
    """Every bound is far above every claim."""
    patch.setattr(estimates, "epsilon_bound", lambda *given, **named: 99.0)


def raw(patch: pytest.MonkeyPatch) -> None:
    """Rates instead of their limits."""
    patch.setattr(estimates, "upper_limit", lambda events, trials, error: max(events / trials, 1e-12))


def unshared(patch: pytest.MonkeyPatch) -> None:
    """The error probability is not shared among events."""
    honest = estimates.epsilon_bound

    def alone(mistakes: Mistakes, delta: float, confidence: float, events: int = 1) -> float:
        return honest(mistakes, delta, confidence)

    patch.setattr(estimates, "epsilon_bound", alone)


def turned(patch: pytest.MonkeyPatch) -> None:
    """Every certified label counts as changed."""
    patch.setattr(certificate.Auditor, "_turned", lambda self, theirs, held: np.ones(len(held), bool))


def never_torn(patch: pytest.MonkeyPatch) -> None:
    """Distances of neighbours are not compared."""
    patch.setattr(certificate, "torn", lambda one, two, symmetric: np.zeros(len(one[0]), bool))


def never_beyond(patch: pytest.MonkeyPatch) -> None:
    """Boxes of neighbours are not compared."""
    patch.setattr(certificate, "beyond", lambda outer, inner: (0, 1))


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (alarms, "randomized response that flips for its budget"),
        (raw, "randomized response that flips for its budget"),
        (unshared, "the best of many events"),
        (turned, "boxes as they are made"),
        (never_torn, "stable distances that jump from one dataset to the next"),
        (never_beyond, "boxes that do not nest in those of a neighbour"),
    ],
)
def test_a_broken_auditor_is_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert PLANTED[name](0).outcome is Outcome.STANDS if name in PLANTED else SOUND[name](0).violated
