"""Which device and which kernel a run uses.

A kernel that is not there (an import, a compiler or a launch fails) is replaced by the next one,
with a warning. One that is there and gives other numbers than the reference on any of ``CASES`` is
fatal: what is wrong with it is unknown, and certificates rest on such sums.

Keeping freed memory at hand between fragments.

Every fragment allocates and frees the same few megabytes. By default glibc returns such blocks to
the operating system, which hands them out again zeroed, page by page: on a run of many small
fragments a third of the time went there.
"""

import ctypes
import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import linear_point
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.kernels.reference import ReferenceKernel
from agt.settings import QUANTA, ComputeConfig

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
_KEEP = 1 << 29  # bytes of free memory kept at the top of the heap
_LARGEST = 1 << 25  # the largest block served from the heap; glibc allows no more


@cache
def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for reuse.

    True if it is one that can; harmless elsewhere.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEEP))


FASTEST = {"cpu": ("cpu", "reference"), "cuda": ("gpu", "reference")}


def pick_device(compute: ComputeConfig) -> torch.device:
    """The device asked for.

    Raises:
        ConfigError: compute.device=cuda and there is no usable GPU, or the kernel does not run on
            the device.
    """
    kernels = FASTEST[compute.device]
    if compute.kernel not in ("auto", *kernels):
        raise ConfigError(
            f"compute.kernel={compute.kernel} does not run on compute.device={compute.device}: use "
            f"{' or '.join(kernels)}"
        )
    if compute.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "compute.device=cuda: this PyTorch sees no GPU (torch.cuda.is_available() is False); "
            "use compute.device=cpu"
        )
    return torch.device(compute.device)


def pick_kernel(compute: ComputeConfig) -> ReferenceKernel:
    """The kernel asked for, or the fastest for the device; the next one, with a warning, where it
    does not work.

    Raises:
        UnsoundError: it runs, and its numbers are wrong.
    """
    keep_freed_memory()
    kernels = FASTEST[compute.device]
    return _first_working(
        kernels if compute.kernel == "auto" else kernels[kernels.index(compute.kernel) :],
        compute.device,
    )


@cache
def _first_working(names: tuple[str, ...], device: str) -> ReferenceKernel:
    for name in names[:-1]:
        try:
            kernel = load(name)
            check(kernel, device)
            return kernel
        except AgtError:
            raise
        except Exception as error:
            # whatever a compiler may throw: the cause is named, and the answer stays right
            cause = str(error).strip().splitlines() or [""]
            warnings.warn(
                f"compute.kernel={name} does not work here ({type(error).__name__}: {cause[0]}); "
                f"falling back to {names[names.index(name) + 1]}, which gives the same numbers "
                "more slowly",
                stacklevel=3,
            )
    return load(names[-1])


def load(name: str) -> ReferenceKernel:
    if name == "cpu":  # imported here: Numba takes a second, and only this kernel needs it
        from agt.kernels.cpu import CpuKernel

        return CpuKernel()
    if name == "gpu":
        from agt.kernels.gpu import GpuKernel

        return GpuKernel()
    return ReferenceKernel()


# -- the self-test
# -------------------------------------------------------------------------------------------------------


class _Probe:
    """Small inputs for a kernel: dyadic numbers, so that products of matrices are exact in any
    order; d reaches past the clip level and onto ties of rounding.
    """

    def __init__(self, device: str) -> None:
        def dyadic(count: int, step: int, *shape: int) -> Tensor:
            numbers = (torch.arange(count, dtype=torch.float64, device=device) * step) % 31 - 15
            return numbers.view(shape) / 8

        self.d = Interval(
            dyadic(42, 7, 2, 7, 3) * (QUANTA / 2) + 0.5,
            dyadic(42, 7, 2, 7, 3) * (QUANTA / 2) + QUANTA / 3,
        )
        few, many = dyadic(14, 11, 1, 7, 2), dyadic(126, 11, 1, 7, 18)
        self.few, self.many = Interval.point(few), Interval.point(many)
        self.wide = Interval(dyadic(70, 9, 2, 7, 5) - 0.25, dyadic(70, 9, 2, 7, 5) + 0.5)
        self.weights = Interval(dyadic(30, 13, 2, 3, 5) - 0.5, dyadic(30, 13, 2, 3, 5) + 0.125)
        self.point_weights = Interval(
            dyadic(12, 13, 2, 3, 2) - 0.5, dyadic(12, 13, 2, 3, 2) + 0.125
        )
        self.counts = torch.tensor([2, 4], device=device)


Case = Callable[[ReferenceKernel, _Probe], tuple[Tensor, ...]]


def _select(
    kernel: ReferenceKernel, probe: _Probe, x: Interval | None, capped: bool, product: str = "exact"
) -> tuple[Tensor, Tensor]:
    shape = (3,) if x is None else (3, x.shape[2])
    extremes = kernel.extremes(probe.counts, shape, capped, product)
    for part in (slice(0, 3), slice(3, None)):  # what is kept meets what is new
        extremes.update(probe.d[:, part], None if x is None else x[:, part])
    return extremes.result()


def _outward(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, Tensor]:
    slack = probe.wide.upper[..., :1].abs()
    widened = kernel.widen_by(probe.wide.lower.clone(), probe.wide.upper.clone(), slack)
    return widened.lower, widened.upper


def _relu_backward(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, Tensor]:
    d = Interval(probe.wide.lower.flip(1).contiguous(), probe.wide.upper.flip(1).contiguous())
    return kernel.products("exact").relu_backward(d, probe.wide)


def _point_product(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, Tensor]:
    products = kernel.products("exact")
    return (products.point or linear_point)(probe.few.lower, probe.point_weights)


def _matrix(probe: _Probe) -> Interval:
    """[1, 18, 18]: with it there are outputs to vectorise over, and inputs of each sign for more
    than one list.
    """
    numbers = probe.many.lower[0].repeat(3, 1)[:18]
    return Interval(numbers[None], numbers[None] + 0.25)


def _corner_product(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, ...]:
    x, products = probe.many.lower, kernel.products("exact")
    # of one sign, of either, and 0
    signed = Interval(torch.minimum(x, x.flip(2)), torch.maximum(x, x.flip(2)))
    return *products.corners(probe.wide, probe.weights), *products.corners(signed, _matrix(probe))


def _nonnegative_product(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, Tensor]:
    x = probe.many.lower.clamp(min=0)
    return kernel.products("exact").forward(Interval(x, x * 1.5), _matrix(probe), nonnegative=True)


def _nonnegative_sum(kernel: ReferenceKernel, probe: _Probe) -> tuple[Tensor, Tensor]:
    """Of x as behind a ReLU and of enough outputs, d 0 in some, beyond the clip in others."""
    size, x = _matrix(probe)[:, :7].lower * (QUANTA / 8), probe.many.lower.clamp(min=0)
    d = Interval(torch.minimum(size, size * 1.5), torch.maximum(size, size * 1.5))
    return kernel.bound_sum(d, Interval(x, x * 1.5), "exact")


CASES: dict[str, Case] = {
    "nominal sum": lambda kernel, at: (kernel.nominal_sum(at.d.upper[0], at.many.lower[0]),),
    "nominal sum of a bias": lambda kernel, at: (kernel.nominal_sum(at.d.upper[0], None),),
    "bound sum, point x of few inputs": lambda kernel, at: kernel.bound_sum(at.d, at.few, "exact"),
    "bound sum, point x of many inputs": lambda kernel, at: kernel.bound_sum(
        at.d, at.many, "exact"
    ),
    "bound sum, interval x": lambda kernel, at: kernel.bound_sum(at.d, at.wide, "exact"),
    "bound sum, interval x >= 0": _nonnegative_sum,
    "bound sum, interval x, midpoint-radius": lambda kernel, at: kernel.bound_sum(
        at.d, at.wide, "rump"
    ),
    "bound sum of a bias": lambda kernel, at: kernel.bound_sum(at.d, None, "exact"),
    "selection, point x": lambda kernel, at: _select(kernel, at, at.few, capped=False),
    "selection, interval x": lambda kernel, at: _select(kernel, at, at.wide, capped=False),
    "selection, interval x, midpoint-radius": lambda kernel, at: _select(
        kernel, at, at.wide, capped=False, product="rump"
    ),
    "selection, capped": lambda kernel, at: _select(kernel, at, at.wide, capped=True),
    "selection of a bias": lambda kernel, at: _select(kernel, at, None, capped=False),
    "corner product": _corner_product,
    "nonnegative product": _nonnegative_product,
    "point product": _point_product,
    "relu backward": _relu_backward,
    "outward": _outward,
}


def check(kernel: ReferenceKernel, device: str) -> None:
    """Compile, and compare each of ``CASES`` with the reference, bit for bit.

    Raises:
        UnsoundError: a number differs. Whatever compiling or launching raises.
    """
    reference = ReferenceKernel()
    for name, case in CASES.items():
        ours, expected = (case(k, _Probe(device)) for k in (kernel, reference))
        if not all(
            a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
            for a, b in zip(ours, expected, strict=True)
        ):
            raise UnsoundError(
                f"compute.kernel={kernel.name}: {name}: its numbers differ from the reference "
                "kernel's on this machine, so "
                "nothing it sums can be trusted: use compute.kernel=reference, and please report it"
            )
