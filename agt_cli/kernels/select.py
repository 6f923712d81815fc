"""Which device and which kernel a run uses."""

import warnings
from functools import cache

import torch

from agt_cli.bounds.interval import Interval
from agt_cli.errors import ConfigError
from agt_cli.kernels.contract import QUANTA, Kernel
from agt_cli.kernels.memory import keep_freed_memory
from agt_cli.kernels.reference import ReferenceKernel
from agt_cli.schema import ComputeConfig

FASTEST = {"cpu": ("cpu", "reference"), "cuda": ("gpu", "reference")}


def pick_device(compute: ComputeConfig) -> torch.device:
    """The device asked for.

    Raises:
        ConfigError: compute.device=cuda and there is no usable GPU.
    """
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "compute.device=cuda: this PyTorch sees no GPU (torch.cuda.is_available() is False); use compute.device=cpu"
        )
    return torch.device(compute.device)


def pick_kernel(compute: ComputeConfig) -> Kernel:
    """The kernel asked for, or the fastest for the device; the next one, with a warning, where it does not work.

    Raises:
        ConfigError: the kernel does not run on this device.
    """
    keep_freed_memory()
    known = FASTEST[compute.device]
    if compute.kernel not in ("auto", *known):
        raise ConfigError(
            f"compute.kernel={compute.kernel} does not run on compute.device={compute.device}: use {' or '.join(known)}"
        )
    return _first_working(known if compute.kernel == "auto" else known[known.index(compute.kernel) :], compute.device)


@cache
def _first_working(names: tuple[str, ...], device: str) -> Kernel:
    for name in names[:-1]:
        try:
            kernel = _load(name)
            _try(kernel, device)
            return kernel
        except Exception as error:  # whatever a compiler may throw: the cause is named, and the answer stays right
            cause = str(error).strip().splitlines() or [""]
            warnings.warn(
                f"compute.kernel={name} does not work here ({type(error).__name__}: {cause[0]}); "
                f"falling back to {names[names.index(name) + 1]}, which gives the same numbers more slowly",
                stacklevel=3,
            )
    return _load(names[-1])


def _load(name: str) -> Kernel:
    if name == "cpu":  # imported here: Numba takes a second, and only this kernel needs it
        from agt_cli.kernels.cpu import CpuKernel

        return CpuKernel()
    if name == "gpu":
        from agt_cli.kernels.gpu import GpuKernel

        return GpuKernel()
    return ReferenceKernel()


def _try(kernel: Kernel, device: str) -> None:
    """Compile, and compare one small sum with the reference.

    Raises:
        RuntimeError: the sums differ. Whatever compiling raises.
    """
    d = torch.linspace(-1.5, 1.5, 24, dtype=torch.float64, device=device).view(1, 8, 3) * QUANTA
    x = Interval.point(torch.linspace(-1, 1, 32, dtype=torch.float64, device=device).view(1, 8, 4))
    wide = Interval(d - QUANTA / 7, d + QUANTA / 5)
    ours, reference = (k.bound_sum(wide, x, "exact") for k in (kernel, ReferenceKernel()))
    if not all(torch.equal(a, b) for a, b in zip(ours, reference, strict=True)):
        raise RuntimeError("its sums differ from the reference kernel's")
