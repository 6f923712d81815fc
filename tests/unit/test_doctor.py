"""What agt doctor looks at, each with something wrong put in its way."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue

import pytest
import torch

from agt.errors import UnsoundError
from agt.kernels import select
from agt_cli.commands import doctor
from agt_cli.report.markdown import Check, CheckState, Findings


def worst(check: Callable[[Findings], None], name: str) -> Check:
    """The worst check of a name."""
    findings = Findings()
    check(findings)
    return max(
        (check for check in findings.checks if check.name == name),
        key=lambda check: check.state.badness,
    )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_numbers_that_become_zero_are_a_problem() -> None:
    """As a library's -ffast-math leaves them; in a process of its own, whose threads no other
    test meets again.
    """
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=_look_where_numbers_become_zero, args=(found,))
    process.start()
    process.join()
    can, noticed = found.get()
    assert noticed == can, "no processor that cannot"


def _look_where_numbers_become_zero(found: SimpleQueue) -> None:
    """Send whether this processor can replace small numbers by zero, and whether doctor notices."""
    can = torch.set_flush_denormal(True)
    problem = "Python replaces numbers below 2^-1022 by zero"
    found.put((can, problem in doctor.floating_point_faults()))


@pytest.mark.parametrize(
    ("error", "state"),
    [(UnsoundError("its sums differ"), CheckState.PROBLEM), (OSError(), CheckState.NOTE)],
)
def test_kernel_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: Exception, state: CheckState
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(select, "check_kernel", fail)
    assert worst(doctor.check_compute, "kernel cpu").state is state
