"""agt doctor: check that kernels and floating-point arithmetic of this machine work as the proofs
assume.
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
# Read from text, because a compiler would compute sums of constants beforehand.
FLOAT_ONE = float("1")
SMALLEST_SUBNORMAL = float("5e-324")
UNIT_ROUNDOFF = 2.0**-53


def configure(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if there is a setting, because this command has none."""
    check_keys(config, ())


def run(config: None, console: Console) -> dict[str, Any]:
    """Check the machine, and print a table of the checks.

    Returns:
        What --json prints.

    Raises:
        CheckError: a check found a problem.
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
    """Check the kernels of the CPU and the GPU, and floating-point arithmetic.

    Args:
        findings: the results are added to it.
    """
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
    """Compile a kernel, and compare its integers with those of the reference kernel.

    Args:
        name: the name of the kernel.
        device: the device on which the kernel runs, as PyTorch names it.
        findings: the result is added to it.
    """
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
    """Return sentences on how this machine's arithmetic differs from IEEE 754, or none.

    A library may have switched subnormal numbers off (FTZ and DAZ, which -ffast-math sets when it
    is loaded). This is a setting of each thread, so PyTorch gets enough numbers that all of its
    threads are tested.
    """
    one = FLOAT_ONE
    half_unit = UNIT_ROUNDOFF
    many_subnormals = torch.full((1 << 16,), SMALLEST_SUBNORMAL, dtype=torch.float64)
    subnormals = np.full(64, SMALLEST_SUBNORMAL)
    ones = np.full(64, one)
    matrix = torch.full((4, 4), 2.0**26 + 1, dtype=torch.float64)
    rounds_positive_sums = one + half_unit == 1 and one + 1.5 * half_unit == 1 + 2 * half_unit
    rounds_negative_sums = -one - half_unit == -1 and -one - 1.5 * half_unit == -1 - 2 * half_unit
    is_right = {
        "Python replaces numbers below 2^-1022 by zero": one * SMALLEST_SUBNORMAL != 0,
        "NumPy replaces numbers below 2^-1022 by zero": (subnormals * one != 0).all(),
        "PyTorch replaces numbers below 2^-1022 by zero (see torch.set_flush_denormal)": (
            (many_subnormals * one != 0).all()
        ),
        "sums of positive numbers are not rounded to the nearest floating-point number": (
            rounds_positive_sums
        ),
        "sums of negative numbers are not rounded to the nearest floating-point number": (
            rounds_negative_sums
        ),
        "sums are computed in extended precision, so they are rounded twice": (
            one * 2**53 + 1.00001 == 2**53 + 2
        ),
        "NumPy rounds differently from Python": (
            (ones + 1.5 * half_unit == 1 + 2 * half_unit).all()
        ),
        "PyTorch does not compute matrix products of float64 numbers in float64": (
            (matrix @ matrix == 4 * (2**52 + 2**27 + 1)).all()
        ),
    }
    return [fault for fault, right in is_right.items() if not right]
