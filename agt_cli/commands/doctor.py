"""agt doctor: whether kernels and floating point of this machine are as the proofs take them to
be.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from agt.errors import CheckError, UnsoundError
from agt.kernels import select, selftest
from agt_cli.configuration import check_keys
from agt_cli.report.console import Console
from agt_cli.report.markdown import CheckState, Findings

COLUMNS = ("check", "state", "what was found; what to do")
# not known to a compiler, which would work sums out beforehand
FLOAT_ONE, SMALLEST_SUBNORMAL, UNIT_ROUNDOFF = float("1"), float("5e-324"), 2.0**-53


def configure(config: Mapping[str, Any]) -> None:
    check_keys(config, ())


def run(config: None, console: Console) -> dict[str, Any]:
    """Look, and say what was seen.

    Raises:
        CheckError: something is a problem.
    """
    findings = Findings()
    check_compute(findings)
    checks = findings.checks
    console.table("agt doctor", COLUMNS, [check.cells for check in checks])
    total = len(checks)
    problems = [check for check in checks if check.state is CheckState.PROBLEM]
    result = {"healthy": not problems, "checks": [check.as_json() for check in checks]}
    if problems:
        failed = len(problems)
        raise CheckError(
            f"{failed} of {total} checks found a problem: the table says what to do",
            {"command": "doctor", **result},
        )
    console.say(
        f"agt works on this machine: none of {total} checks found a problem (a line marked as a "
        "note is not a problem)"
    )
    return result


def check_compute(findings: Findings) -> None:
    _check_kernel("cpu", "cpu", findings)  # first: it loads Numba, and whatever that brings
    if torch.cuda.is_available():
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info())
        gpu = torch.cuda.get_device_name()
        cuda = torch.version.cuda
        name = f"{gpu} with {free:.1f} of {total:.1f} GiB of memory free; CUDA {cuda}"
        findings.ok("device", f"{name}: used with compute=gpu")
        _check_kernel("gpu", "cuda", findings)
    elif torch.version.cuda is not None:
        cuda = torch.version.cuda
        words = f"PyTorch was built for CUDA {cuda} but finds no GPU, so agt uses the CPU"
        findings.note("device", words, "to see whether the machine finds its GPU, type nvidia-smi")
    else:
        findings.ok(
            "device",
            "cpu: the CPU is used, because this build of PyTorch does not support GPUs (to install "
            "one that does, type make run TORCH_INDEX=..., see README)",
        )
    fault_list = floating_point_faults()
    faults = "; ".join(fault_list)
    description = (
        "Python, NumPy and PyTorch round each operation once, to the nearest floating-point "
        "number, and do not replace numbers below 2^-1022 by zero"
    )
    findings.compare(
        "floating point",
        not fault_list,
        description,
        f"certificates that are computed on this machine are wrong, because {faults}: use another "
        "machine, or other builds of Python, NumPy and PyTorch",
    )


def _check_kernel(name: str, device: str, findings: Findings) -> None:
    """Compile it and compare its integers with the reference kernel's."""
    try:
        select.check_kernel(select.load_kernel(name), device)
    except UnsoundError as error:
        findings.problem(f"kernel {name}", str(error))
    except Exception as error:  # whatever a compiler may throw
        reason = f"{type(error).__name__}: {error}"
        words = (
            f"the fast kernel does not work on this machine ({reason}), so agt uses the "
            "reference kernel, which is slower"
        )
        remedy = (
            "install a version of Numba that supports the installed NumPy"
            if name == "cpu"
            else "install a version of Triton that supports the installed PyTorch"
        )
        findings.note(f"kernel {name}", words, remedy)
    else:
        cases = len(selftest.CASES)
        findings.ok(
            f"kernel {name}",
            "this kernel was compiled, and returns the same integers as the reference kernel "
            f"in {cases} test cases",
        )


def floating_point_faults() -> list[str]:
    """What is not as IEEE 754 has it, in words; empty: all of it is.

    FTZ and DAZ, which some library's -ffast-math sets as it is loaded, are a thread's own: PyTorch
    is asked for enough numbers that every thread of it has some.
    """
    small_numbers = torch.full((1 << 16,), SMALLEST_SUBNORMAL, dtype=torch.float64)
    matrix = torch.full((4, 4), 2.0**26 + 1, dtype=torch.float64)
    faults = {
        "Python replaces numbers below 2^-1022 by zero": FLOAT_ONE * SMALLEST_SUBNORMAL != 0,
        "NumPy replaces numbers below 2^-1022 by zero": bool(
            (np.full(64, SMALLEST_SUBNORMAL) * FLOAT_ONE != 0).all()
        ),
        "PyTorch replaces numbers below 2^-1022 by zero (see torch.set_flush_denormal)": bool(
            (small_numbers * FLOAT_ONE != 0).all()
        ),
        "sums of positive numbers are not rounded to the nearest floating-point number": FLOAT_ONE
        + UNIT_ROUNDOFF
        == 1
        and FLOAT_ONE + 1.5 * UNIT_ROUNDOFF == 1 + 2 * UNIT_ROUNDOFF,
        "sums of negative numbers are not rounded to the nearest floating-point number": -FLOAT_ONE
        - UNIT_ROUNDOFF
        == -1
        and -FLOAT_ONE - 1.5 * UNIT_ROUNDOFF == -1 - 2 * UNIT_ROUNDOFF,
        "sums are computed in extended precision, so they are rounded twice": FLOAT_ONE * 2**53
        + 1.00001
        == 2**53 + 2,
        "NumPy rounds differently from Python": bool(
            (np.full(64, FLOAT_ONE) + 1.5 * UNIT_ROUNDOFF == 1 + 2 * UNIT_ROUNDOFF).all()
        ),
        "PyTorch does not compute matrix products of float64 numbers in float64": bool(
            (matrix @ matrix == 4 * (2**52 + 2**27 + 1)).all()
        ),
    }
    return [words for words, holds in faults.items() if not holds]
