"""What computes: the device, its kernels, threads, and floating point as the proofs take it to be."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from agt.errors import UnsoundError
from agt.kernels import select
from agt_cli.report.checks import Findings

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE, TINY, U = float("1"), float("5e-324"), 2.0**-53  # not known to a compiler, which would work sums out beforehand
GPUS = (Path("/dev/nvidia0"), Path("/proc/driver/nvidia/version"))
GROUPS = Path("/sys/fs/cgroup")


def check(findings: Findings) -> None:
    """Device, kernels, threads, floating point."""
    _kernel("cpu", "cpu", findings)  # first: it loads Numba, and whatever that brings
    _device(findings)
    with findings.looking("threads"):
        _threads(findings)
    with findings.looking("floating point"):
        wrong = floating_point()
        findings.compare(
            "floating point",
            not wrong,
            "rounds to nearest, once, and keeps numbers below 2^-1022: in Python, NumPy and PyTorch",
            f"{'; '.join(wrong)}: no certificate computed in this state can be trusted",
        )


def _device(findings: Findings) -> None:
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        words = (
            f"{torch.cuda.get_device_name()}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free; CUDA {torch.version.cuda}"
        )
        findings.ok("device", f"{words}: compute=gpu uses it")
        _kernel("gpu", "cuda", findings)
    elif torch.version.cuda is not None:
        findings.note(
            "device", f"this PyTorch is built for CUDA {torch.version.cuda} and sees no GPU: cpu", "nvidia-smi says why"
        )
    elif any(path.exists() for path in GPUS):
        findings.note(
            "device", "cpu: a GPU is here, and this build of PyTorch uses none", "make run TORCH_INDEX=... (README)"
        )
    else:
        findings.ok("device", "cpu: this build of PyTorch uses no GPU, and none was seen")


def _kernel(name: str, device: str, findings: Findings) -> None:
    """Compile it and compare its integers with the reference kernel's."""
    try:
        select.check(select.load(name), device)
    except UnsoundError as error:
        findings.problem(f"kernel {name}", str(error))
    except Exception as error:  # whatever a compiler may throw
        findings.note(
            f"kernel {name}",
            f"does not work here ({type(error).__name__}: {error}): the reference kernel does the same, more slowly",
            "a Numba that fits this NumPy" if name == "cpu" else "a Triton that fits this PyTorch",
        )
    else:
        findings.ok(f"kernel {name}", f"compiled; the same integers as the reference kernel in {len(select.CASES)} cases")


def _threads(findings: Findings) -> None:
    import numba

    given = {name: os.environ[name] for name in THREADS if name in os.environ}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, counts = cpu_quota(), {"PyTorch": torch.get_num_threads(), "Numba": numba.get_num_threads()}
    limit = cores if quota is None else min(cores, quota)
    most, said = max(counts.values()), ", ".join(f"{name} {count}" for name, count in counts.items())
    words = f"{said}; {cores} processors" + (f", of which this container may use {quota:g}" if quota is not None else "")
    words += "".join(f"; {name}={value}" for name, value in given.items())
    if most > limit + 0.5:
        findings.note(
            "threads", f"{words}: more threads than processors wait for each other", f"compute.threads={max(1, int(limit))}"
        )
    else:
        findings.ok("threads", words)


def cpu_quota(groups: Path = GROUPS, own: Path = Path("/proc/self/cgroup")) -> float | None:
    """How many processors a container may use; None: nothing limits it, or nothing says so."""
    try:
        paths: Mapping[str, str] = dict(line.split(":", 2)[1:] for line in own.read_text().splitlines())
    except (OSError, ValueError):
        return None
    quotas = []
    for folder in _upwards(groups, paths.get("", "/")):  # version 2: any group on the way may set a limit
        quotas.append(_ratio(folder / "cpu.max"))
    controller = next((names for names in paths if "cpu" in names.split(",")), None)
    if controller is not None:
        for folder in _upwards(groups / "cpu", paths[controller]):
            quotas.append(_ratio(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"))
    return min((quota for quota in quotas if quota is not None), default=None)


def _upwards(top: Path, inside: str) -> list[Path]:
    folder = top / inside.strip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _ratio(*files: Path) -> float | None:
    """What the numbers in one or two files make: time over period; None where there is no limit."""
    try:
        words = " ".join(file.read_text() for file in files).split()
        limit, period = float(words[0]), float(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return limit / period if limit > 0 and period > 0 else None


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
