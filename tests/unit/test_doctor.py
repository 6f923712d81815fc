"""What agt doctor looks at, each with something wrong put in its way."""

import subprocess
import sys
from collections.abc import Callable

import pytest

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


def test_numbers_that_become_zero_are_a_problem() -> None:
    """As a library's -ffast-math leaves them; in a process of its own, whose threads no other
    test meets again.
    """
    code = (
        "import torch; from agt_cli.commands import doctor; can = torch.set_flush_denormal(True)\n"
        "print(can, 'Python replaces numbers below 2^-1022 by zero' in doctor.floating_point())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout in ("True True\n", "False False\n"), "no processor that cannot"


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
