"""agt doctor: is this machine, and this folder, fit for agt, and what is to be done where it is not?

Looked at are versions, the device and its kernels, floating point as the proofs take it to be, and the disk where runs go.
"""

import fcntl
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import agt_cli
from agt.errors import CheckError, UnsoundError
from agt.kernels import select
from agt.provenance import package_version
from agt_cli.configuration import only_keys
from agt_cli.report.console import Console
from agt_cli.report.markdown import CheckState, Findings

COLUMNS = ("check", "stands", "seen, and what to do")
DISTRIBUTION = "agt-certified"
ONE, TINY, U = float("1"), float("5e-324"), 2.0**-53  # not known to a compiler, which would work sums out beforehand
MIN_FREE_BYTES = 2**30


@dataclass(frozen=True)
class DoctorConfig:
    """Where runs are written, and where data sets are looked for."""

    output_dir: Path
    data_dir: Path


def configure(config: Mapping[str, Any]) -> DoctorConfig:
    only_keys(config, ("output_dir", "data_dir"))
    return DoctorConfig(Path(str(config["output_dir"])).expanduser(), Path(str(config["data_dir"])).expanduser())


def run(config: DoctorConfig, console: Console) -> dict[str, Any]:
    """Look, and say what was seen.

    Raises:
        CheckError: something is a problem.
    """
    findings = Findings()
    check_versions(findings)
    check_compute(findings)
    check_disk(config.output_dir, findings)
    checks = findings.checks
    console.table("agt doctor", COLUMNS, [check.cells for check in checks])
    problems = [check for check in checks if check.state is CheckState.PROBLEM]
    result = {"healthy": not problems, "checks": [check.as_json() for check in checks]}
    if problems:
        raise CheckError(f"{len(problems)} of {len(checks)} checks are problems", {"command": "doctor", **result})
    console.say(f"no problem in {len(checks)} checks; a note is nothing that agt cannot work with")
    return result


# -- versions ----------------------------------------------------------------------------------------------------------


def check_versions(findings: Findings) -> None:
    """Python and packages against what agt asks for."""
    with findings.looking("versions"):
        python, requirements = declared_versions()
        here = ".".join(map(str, sys.version_info[:3]))
        findings.compare("python", here in python, f"{here} ({python} is needed)", f"{here}, and {python} is needed")
        needed = [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
        wrong = [one for one in needed if not _is_met(one)]
        for one in wrong:
            there = package_version(one.name) or "no version"
            words = f"{one.name}: {there} is installed, and {one.specifier} is needed"
            findings.problem("packages", words, "install agt again into an environment of its own (make run, or pip)")
        if not wrong:
            findings.ok("packages", f"{len(needed)} that agt needs, each in its range; torch {torch.__version__}")


def declared_versions() -> tuple[SpecifierSet, list[Requirement]]:
    """What agt says it needs: of a source tree its pyproject.toml, else what was installed with it."""
    tree = Path(agt_cli.__file__).resolve().parent.parent / "pyproject.toml"
    if not tree.is_file():
        installed = metadata(DISTRIBUTION)
        return SpecifierSet(installed["Requires-Python"]), [*map(Requirement, installed.get_all("Requires-Dist") or ())]
    project = tomllib.loads(tree.read_text(encoding="utf-8"))["project"]
    lines = [f"{line}; extra == '{extra}'" for extra, lines in project["optional-dependencies"].items() for line in lines]
    return SpecifierSet(project["requires-python"]), [*map(Requirement, (*project["dependencies"], *lines))]


def _is_met(requirement: Requirement) -> bool:
    there = package_version(requirement.name)
    return there is not None and requirement.specifier.contains(there, prereleases=True)


# -- what computes -----------------------------------------------------------------------------------------------------


def check_compute(findings: Findings) -> None:
    _check_kernel("cpu", "cpu", findings)  # first: it loads Numba, and whatever that brings
    if torch.cuda.is_available():
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        name = f"{torch.cuda.get_device_name()}, {free:.1f} of {total:.1f} GiB free; CUDA {torch.version.cuda}"
        findings.ok("device", f"{name}: compute=gpu uses it")
        _check_kernel("gpu", "cuda", findings)
    elif torch.version.cuda is not None:
        words = f"this PyTorch is built for CUDA {torch.version.cuda} and sees no GPU: cpu"
        findings.note("device", words, "nvidia-smi says why")
    else:
        findings.ok("device", "cpu: this build of PyTorch uses no GPU (for one: make run TORCH_INDEX=..., README)")
    findings.ok("threads", f"PyTorch {torch.get_num_threads()}; {os.cpu_count()} processors")
    wrong = floating_point()
    right = "rounds to nearest, once, and keeps numbers below 2^-1022: in Python, NumPy and PyTorch"
    findings.compare(
        "floating point", not wrong, right, f"{'; '.join(wrong)}: no certificate computed in this state can be trusted"
    )


def _check_kernel(name: str, device: str, findings: Findings) -> None:
    """Compile it and compare its integers with the reference kernel's."""
    try:
        select.check(select.load(name), device)
    except UnsoundError as error:
        findings.problem(f"kernel {name}", str(error))
    except Exception as error:  # whatever a compiler may throw
        words = f"does not work here ({type(error).__name__}: {error}): the reference kernel does the same, more slowly"
        remedy = "a Numba that fits this NumPy" if name == "cpu" else "a Triton that fits this PyTorch"
        findings.note(f"kernel {name}", words, remedy)
    else:
        findings.ok(f"kernel {name}", f"compiled; the same integers as the reference kernel in {len(select.CASES)} cases")


def floating_point() -> list[str]:
    """What is not as IEEE 754 has it, in words; empty: all of it is.

    FTZ and DAZ, which some library's -ffast-math sets as it is loaded, are a thread's own: PyTorch is asked for enough
    numbers that every thread of it has some.
    """
    many = torch.full((1 << 16,), TINY, dtype=torch.float64)
    odd = torch.full((4, 4), 2.0**26 + 1, dtype=torch.float64)
    tests = {
        "numbers below 2^-1022 become zero in Python": ONE * TINY != 0,
        "numbers below 2^-1022 become zero in NumPy": bool((np.full(64, TINY) * ONE != 0).all()),
        "numbers below 2^-1022 become zero in PyTorch (torch.set_flush_denormal?)": bool((many * ONE != 0).all()),
        "sums of positive numbers are not rounded to nearest": ONE + U == 1 and ONE + 1.5 * U == 1 + 2 * U,
        "sums of negative numbers are not rounded to nearest": -ONE - U == -1 and -ONE - 1.5 * U == -1 - 2 * U,
        "sums are rounded twice": ONE * 2**53 + 1.00001 == 2**53 + 2,
        "NumPy does not round as Python does": bool((np.full(64, ONE) + 1.5 * U == 1 + 2 * U).all()),
        "PyTorch's products of matrices are not float64's": bool((odd @ odd == 4 * (2**52 + 2**27 + 1)).all()),
    }
    return [words for words, holds in tests.items() if not holds]


# -- disk --------------------------------------------------------------------------------------------------------------


def check_disk(outputs: Path, findings: Findings) -> None:
    """Whether runs can be written where they go, and whether locks keep a second process out."""
    folder = next(folder for folder in (outputs.absolute(), *outputs.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(folder).free
    words = f"{outputs}: {free / 2**30:.1f} GiB free"
    try:
        with tempfile.NamedTemporaryFile(prefix=".agt-doctor-", dir=folder) as file:
            locked = _lock_excludes(Path(file.name))
    except OSError as error:
        words += f", and nothing can be written there ({error.strerror or error})"
        findings.problem("disk", words, "output_dir=FOLDER")
        return
    unsafe = "file locks keep nobody out: two processes could spend one budget, so keep no ledger on this disk"
    findings.compare("locks", locked, "file locks work", unsafe)
    if free < MIN_FREE_BYTES:
        findings.note("disk", f"{words}: little room", "make room, or output_dir=FOLDER")
    else:
        findings.ok("disk", words)


def _lock_excludes(path: Path) -> bool:
    with path.open("rb") as first, path.open("rb") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
