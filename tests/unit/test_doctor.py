"""What agt doctor looks at, each with something wrong put in its way."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from agt.errors import UnsoundError
from agt.kernels import select
from agt_cli.commands import doctor
from agt_cli.report.markdown import Check, CheckState, Findings


def worst(check: Callable[[Findings], None], name: str) -> Check:
    """The worst check of a name."""
    findings = Findings()
    check(findings)
    return max((check for check in findings.checks if check.name == name), key=lambda check: check.state.badness)


def disk(folder: Path) -> Callable[[Findings], None]:
    return lambda findings: doctor.check_disk(folder, findings)


@pytest.fixture
def need(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says what agt needs."""

    def set_needs(*lines: str, python: str = ">=3.11") -> None:
        monkeypatch.setattr(doctor, "declared_versions", lambda: (SpecifierSet(python), [*map(Requirement, lines)]))

    return set_needs


@pytest.mark.parametrize("line", ["numpy>=99", "omegaconf<2.0", "no-such-package>=1"])
def test_package_out_of_its_range_is_named(need: Callable[..., None], line: str) -> None:
    need(line, "scipy>=1")
    check = worst(doctor.check_versions, "packages")
    assert (check.state, line.split("<")[0].split(">")[0] in check.words) == (CheckState.PROBLEM, True)


def test_old_python_is_named_and_a_missing_extra_is_none_of_its_business(need: Callable[..., None]) -> None:
    need("no-such-package>=1; extra == 'dpsgd'", python=">=9")
    assert worst(doctor.check_versions, "python").state is CheckState.PROBLEM
    assert worst(doctor.check_versions, "packages").state is CheckState.OK


def test_numbers_that_become_zero_are_a_problem() -> None:
    """As a library's -ffast-math leaves them; in a process of its own, whose threads no other test meets again."""
    code = (
        "import torch; from agt_cli.commands import doctor; can = torch.set_flush_denormal(True)\n"
        "print(can, 'numbers below 2^-1022 become zero in Python' in doctor.floating_point())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout in ("True True\n", "False False\n"), "no processor that cannot"


@pytest.mark.parametrize(
    ("error", "state"), [(UnsoundError("its sums differ"), CheckState.PROBLEM), (OSError(), CheckState.NOTE)]
)
def test_kernel_that_fails(monkeypatch: pytest.MonkeyPatch, error: Exception, state: CheckState) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(select, "check", fail)
    assert worst(doctor.check_compute, "kernel cpu").state is state


def test_disk_is_tried_where_runs_would_be_and_left_as_it_was(tmp_path: Path) -> None:
    check = worst(disk(tmp_path / "outputs/of/mine"), "disk")
    assert (check.state in (CheckState.OK, CheckState.NOTE), "GiB free" in check.words) == (True, True)
    assert worst(disk(tmp_path), "locks").state is CheckState.OK
    assert not list(tmp_path.iterdir())


def test_disk_that_takes_nothing_and_locks_that_keep_nobody_out_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor.fcntl, "flock", lambda *_: None)
    assert worst(disk(tmp_path), "locks").state is CheckState.PROBLEM

    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    check = worst(disk(tmp_path), "disk")
    assert (check.state, "Read-only file system" in check.words) == (CheckState.PROBLEM, True)
