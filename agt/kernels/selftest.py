"""The self-test of a kernel: small cases whose numbers must equal the reference kernel's."""

from collections.abc import Callable

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import linear_point
from agt.errors import UnsoundError
from agt.kernels.reference import ReferenceKernel
from agt.messages import Message
from agt.settings import QUANTA


class Probe:
    """Small inputs for every operation of a kernel.

    All numbers are dyadic, so that matrix products are exact in any order. Gradients reach beyond
    the clip level, and onto ties of rounding.

    Attributes:
        d: gradients, [2, 7, 3], in quanta.
        narrow, wide: points x with 2 and with 18 inputs, [1, 7, in].
        interval: an interval x of either sign, [2, 7, 5].
        weights, point_weights: interval matrices for ``interval`` and ``narrow``, [2, 3, in].
        counts: how many bounds a selection takes, [2].
    """

    def __init__(self, device: str) -> None:
        def dyadic(count: int, step: int, *shape: int) -> Tensor:
            """Return ``count`` multiples of 1/8 between -15/8 and 15/8, in this shape."""
            numbers = (torch.arange(count, dtype=torch.float64, device=device) * step) % 31 - 15
            return numbers.view(shape) / 8

        d = dyadic(42, 7, 2, 7, 3) * (QUANTA / 2)
        self.d = Interval(d + 0.5, d + QUANTA / 3)
        self.narrow = Interval.point(dyadic(14, 11, 1, 7, 2))
        self.wide = Interval.point(dyadic(126, 11, 1, 7, 18))
        x = dyadic(70, 9, 2, 7, 5)
        self.interval = Interval(x - 0.25, x + 0.5)
        weights = dyadic(30, 13, 2, 3, 5)
        self.weights = Interval(weights - 0.5, weights + 0.125)
        point_weights = dyadic(12, 13, 2, 3, 2)
        self.point_weights = Interval(point_weights - 0.5, point_weights + 0.125)
        self.counts = torch.tensor([2, 4], device=device)

    @property
    def square_weights(self) -> Interval:
        """Return an interval matrix [1, 18, 18].

        It has enough outputs to be vectorised over, and enough inputs of each sign for more than
        one list of them.
        """
        numbers = self.wide.lower[0].repeat(3, 1)[:18]
        return Interval(numbers[None], numbers[None] + 0.25)


Case = Callable[[ReferenceKernel, Probe], tuple[Tensor, ...]]


def _select(
    kernel: ReferenceKernel, probe: Probe, x: Interval | None, capped: bool, product: str = "exact"
) -> tuple[Tensor, Tensor]:
    """Return the sums of a selection from two fragments, so that stored values meet new ones."""
    shape = (3,) if x is None else (3, x.shape[2])
    extremes = kernel.start_selection(probe.counts, shape, capped, product)
    for fragment in (slice(0, 3), slice(3, None)):
        extremes.update(probe.d[:, fragment], None if x is None else x[:, fragment])
    return extremes.result()


def _widen(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return an interval widened by a slack for each record."""
    slack = probe.interval.upper[..., :1].abs()
    widened = kernel.widen_by(probe.interval.lower.clone(), probe.interval.upper.clone(), slack)
    return widened.lower, widened.upper


def _relu_backward(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return gradients behind a ReLU whose input has either sign."""
    reversed_records = probe.interval.rearranged(lambda end: end.flip(1).contiguous())
    return kernel.products("exact").relu_backward(reversed_records, probe.interval)


def _point_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return the product of points and an interval matrix."""
    multiply = kernel.products("exact").point or linear_point
    return multiply(probe.narrow.lower, probe.point_weights)


def _corner_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, ...]:
    """Return products of few inputs, and of many that are of one sign, of either, or 0."""
    products = kernel.products("exact")
    x = probe.wide.lower
    signed = Interval(torch.minimum(x, x.flip(2)), torch.maximum(x, x.flip(2)))
    few_inputs = products.corners(probe.interval, probe.weights)
    many_inputs = products.corners(signed, probe.square_weights)
    return *few_inputs, *many_inputs


def _nonnegative_product(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return the product of an interval x >= 0 and an interval matrix."""
    x = probe.wide.lower.clamp(min=0)
    products = kernel.products("exact")
    return products.forward(Interval(x, x * 1.5), probe.square_weights, nonnegative=True)


def _nonnegative_sum(kernel: ReferenceKernel, probe: Probe) -> tuple[Tensor, Tensor]:
    """Return sums with x >= 0 as behind a ReLU; some d are 0, others beyond the clip."""
    x = probe.wide.lower.clamp(min=0)
    size = probe.square_weights[:, :7].lower * (QUANTA / 8)
    d = Interval(torch.minimum(size, size * 1.5), torch.maximum(size, size * 1.5))
    return kernel.bound_sum(d, Interval(x, x * 1.5), "exact")


CASES: dict[str, Case] = {
    "nominal sum": lambda kernel, probe: (
        kernel.nominal_sum(probe.d.upper[0], probe.wide.lower[0]),
    ),
    "nominal sum of a bias": lambda kernel, probe: (kernel.nominal_sum(probe.d.upper[0], None),),
    "bound sum, point x of few inputs": lambda kernel, probe: kernel.bound_sum(
        probe.d, probe.narrow, "exact"
    ),
    "bound sum, point x of many inputs": lambda kernel, probe: kernel.bound_sum(
        probe.d, probe.wide, "exact"
    ),
    "bound sum, interval x": lambda kernel, probe: kernel.bound_sum(
        probe.d, probe.interval, "exact"
    ),
    "bound sum, interval x >= 0": _nonnegative_sum,
    "bound sum, interval x, midpoint-radius": lambda kernel, probe: kernel.bound_sum(
        probe.d, probe.interval, "rump"
    ),
    "bound sum of a bias": lambda kernel, probe: kernel.bound_sum(probe.d, None, "exact"),
    "selection, point x": lambda kernel, probe: _select(kernel, probe, probe.narrow, capped=False),
    "selection, interval x": lambda kernel, probe: _select(
        kernel, probe, probe.interval, capped=False
    ),
    "selection, interval x, midpoint-radius": lambda kernel, probe: _select(
        kernel, probe, probe.interval, capped=False, product="rump"
    ),
    "selection, capped": lambda kernel, probe: _select(kernel, probe, probe.interval, capped=True),
    "selection of a bias": lambda kernel, probe: _select(kernel, probe, None, capped=False),
    "corner product": _corner_product,
    "nonnegative product": _nonnegative_product,
    "point product": _point_product,
    "relu backward": _relu_backward,
    "outward": _widen,
}


def check_kernel(kernel: ReferenceKernel, device: str) -> None:
    """Run every case on a kernel, and compare its numbers with the reference's, bit for bit.

    A kernel that is compiled when it is first called is compiled here.

    Raises:
        UnsoundError: a number, a shape or a dtype differs. What is wrong with the kernel is then
            unknown, and certificates depend on such sums.
        Exception: whatever compiling or launching the kernel raises.
    """
    reference = ReferenceKernel()
    for name, case in CASES.items():
        computed = case(kernel, Probe(device))
        expected = case(reference, Probe(device))
        if not all(_is_equal(a, b) for a, b in zip(computed, expected, strict=True)):
            raise UnsoundError(
                Message(
                    "{config:compute.kernel}={kernel} gives other numbers than the reference "
                    "kernel on this machine (case '{name}'), so its sums cannot be trusted: use "
                    "{config:compute.kernel}=reference, and please report it",
                    kernel=kernel.name,
                    name=name,
                )
            )


def _is_equal(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and numbers."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
