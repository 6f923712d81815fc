"""The CPU kernel: the reference kernel's numbers, computed by functions that Numba compiles."""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import (
    PRODUCTS,
    Bounds,
    Products,
    linear_nonnegative,
    linear_point,
    relu_backward,
)
from agt.kernels import cpu_compiled
from agt.kernels.reference import EMPTY_SLOT, BoundSelection, ReferenceKernel

_FEWEST_VECTORISED = 16  # inputs, or outputs: fewer are not worth vectorising over
_TILE_BYTES = 1 << 18  # a tile of x stays in a core's second-level cache
_PRODUCT_BLOCK_RECORDS = 64  # of one job of a thread


class CpuKernel(ReferenceKernel):
    """The kernel for CPUs, with the contract of ``ReferenceKernel``.

    Only nominal sums of biases are left to the reference kernel, as nothing is multiplied there.
    """

    name = "cpu"

    def nominal_sum(self, d: Tensor, x: Tensor | None) -> Tensor:
        """Return the sum over records of their clipped gradients, in quanta."""
        if x is None:
            return super().nominal_sum(d, None)
        total = np.zeros((d.shape[1], x.shape[1]), np.int64)
        inputs = _array(x)
        tile = _tile_records(inputs.shape[1])
        cpu_compiled.sum_nominal(_array(d), inputs, _inf_norms(x), tile, get_num_threads(), total)
        return torch.from_numpy(total)

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the bounds on their gradients."""
        if x is None:
            # A bias is the weight of an input that is always 1. Finding out whether anything is
            # clipped would be half of its work, so infinite norms say that it may be.
            ones = np.ones((1, d.shape[1]))
            lower, upper = self._sum_over_outputs(d, ones, np.full(d.shape[:2], np.inf))
            return lower[..., 0], upper[..., 0]
        if x.is_point and x.shape[2] < min(_FEWEST_VECTORISED, d.shape[2]):
            return self._sum_over_outputs(d, _array(x.lower[0].mT), _array(d.inf_norm()[..., 0]))
        return self._sum_over_inputs(d, x, product == "rump")

    def _sum_over_outputs(
        self, d: Interval, x: np.ndarray, norms: np.ndarray
    ) -> tuple[Tensor, Tensor]:
        """Return ``bound_sum`` for a point x, vectorised over outputs.

        Args:
            x: [in, n].
            norms: [K, n], the largest abs(d) of each record.
        """
        ks, _, outputs = d.shape
        low = np.zeros((ks, len(x), outputs), np.int64)
        high = np.zeros((ks, len(x), outputs), np.int64)
        cpu_compiled.sum_over_outputs(
            _array(d.lower),
            _array(d.upper),
            x,
            norms,
            _tile_records(2 * outputs),
            get_num_threads(),
            low.reshape(-1, outputs),
            high.reshape(-1, outputs),
        )
        return torch.from_numpy(low).mT, torch.from_numpy(high).mT

    def _sum_over_inputs(self, d: Interval, x: Interval, rump: bool) -> tuple[Tensor, Tensor]:
        """Return ``bound_sum``, vectorised over inputs."""
        ks, _, outputs = d.shape
        inputs = x.shape[2]
        threads = get_num_threads()
        gradients = _array(d.lower), _array(d.upper)
        sums = [np.zeros((ks * outputs, inputs), np.int64) for _ in range(2)]
        if x.is_point:
            point = x.lower[0]
            cpu_compiled.sum_point(
                *gradients, _array(point), _inf_norms(point), _tile_records(inputs), threads, *sums
            )
        elif rump or outputs < _FEWEST_VECTORISED or float(x.lower.min()) < 0:
            ends = _array(x.lower), _array(x.upper)
            cpu_compiled.sum_interval(
                *gradients, *ends, rump, _tile_records(2 * inputs), threads, *sums
            )
        else:
            both = torch.cat((x.lower, x.upper), dim=1)
            norms = _array(both.amax(dim=-1))
            cpu_compiled.sum_nonnegative(
                *gradients, both.numpy(), norms, _tile_records(2 * inputs), threads, *sums
            )
        low, high = (torch.from_numpy(total).view(ks, outputs, inputs) for total in sums)
        return low, high

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Start a selection of the most extreme bounds of each number of a parameter."""
        return CpuSelection(counts, shape, capped, product == "rump")

    def products(self, product: str) -> Products:
        """Return the interval products of this name, with the faster ones of this kernel."""
        return replace(
            PRODUCTS[product],
            corners=self.corner_product,
            nonnegative=self.nonnegative_product,
            point=self.point_product,
            relu_backward=self.relu_backward,
        )

    def corner_product(self, x: Interval, weights: Interval) -> Bounds:
        """Multiply an interval of any sign by an interval matrix, as ``linear_corners``.

        Terms are added in another order, which the signs of the record's own x decide.
        """
        if x.lower.dtype != torch.float64:
            # Terms and their sums in float64, rounded once: Lemma 7 of docs/proofs/sums.md.
            lower, upper = self.corner_product(x.double(), weights.double())
            return lower.to(x.lower.dtype), upper.to(x.lower.dtype)
        if x.lower.dim() > 3:
            # A matrix of each record is handled like a matrix of each k.
            front = np.broadcast_shapes(x.shape[:-2], weights.shape[:-2])
            lower, upper = self.corner_product(
                x.rearranged(lambda end: _stacked(end, front)),
                weights.rearranged(lambda end: _stacked(end, front)),
            )
            return lower.unflatten(0, front), upper.unflatten(0, front)
        weights_by_input = weights.rearranged(lambda end: end.mT)
        shape = (len(weights.lower), x.shape[1], weights.shape[1])
        low = np.empty(shape)
        high = np.empty(shape)
        cpu_compiled.corner_product(
            _array(x.lower),
            _array(x.upper),
            _array(weights_by_input.lower),
            _array(weights_by_input.upper),
            _PRODUCT_BLOCK_RECORDS,
            low,
            high,
        )
        return torch.from_numpy(low), torch.from_numpy(high)

    def nonnegative_product(self, x: Interval, weights: Interval) -> Bounds:
        """Multiply an interval x >= 0 by an interval matrix, as ``linear_nonnegative``.

        Corners cost less than four matrix products if there are enough outputs to vectorise over.
        Matrices of each record are small, and ``corner_product`` would copy them.
        """
        if weights.shape[-2] < _FEWEST_VECTORISED or x.lower.dim() > 3:
            return linear_nonnegative(x, weights)
        return self.corner_product(x, weights)

    def point_product(self, x: Tensor, weights: Interval) -> Bounds:
        """Multiply a point by an interval matrix, as ``linear_point``.

        Only narrow inputs are compiled: for wide ones, matrix products are worth their overhead.
        """
        if (
            x.shape[-1] >= _FEWEST_VECTORISED
            or weights.lower.dtype != torch.float64
            or x.dim() != 3
        ):
            return linear_point(x, weights)
        shape = (len(weights.lower), x.shape[1], weights.shape[1])
        low = np.empty(shape)
        high = np.empty(shape)
        cpu_compiled.point_product(
            _array(x[0]),
            _array(weights.lower.mT),
            _array(weights.upper.mT),
            _PRODUCT_BLOCK_RECORDS,
            low,
            high,
        )
        return torch.from_numpy(low), torch.from_numpy(high)

    def relu_backward(self, d: Interval, x: Interval) -> Bounds:
        """Multiply gradients by ReLU's derivative, overwriting d if its memory allows it."""
        if not (d.lower.is_contiguous() and d.upper.is_contiguous()) or d.shape != x.shape:
            return relu_backward(d, x)
        ends = (d.lower, d.upper, x.lower, x.upper)
        cpu_compiled.relu_backward_in_place(
            *(_array(end).reshape(-1, end.shape[-1]) for end in ends)
        )
        return d.lower, d.upper

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """Return [lower - slack, upper + slack], overwriting both, in one pass if it can."""
        one_slack_a_row = slack.shape == (*lower.shape[:-1], 1)
        contiguous = lower.is_contiguous() and upper.is_contiguous()
        if lower.dtype != torch.float64 or not (one_slack_a_row and contiguous):
            return super().widen_by(lower, upper, slack)
        width = lower.shape[-1]
        valid = cpu_compiled.widen_in_place(
            lower.numpy().reshape(-1, width),
            upper.numpy().reshape(-1, width),
            _array(slack).reshape(-1),
        )
        if valid:
            return Interval.unchecked(lower, upper)
        return Interval(lower, upper)  # raises, or marks the rows that are not finite


@dataclass
class CpuSelection:
    """The selection of the CPU kernel; it takes 8 c bytes for each number and k.

    Attributes:
        counts, shape, capped: as for ``ReferenceKernel.start_selection``.
        rump: whether products are in midpoint-radius form.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    rump: bool
    # R rows (k, output), ``in`` inputs, c the largest count.
    _held: np.ndarray = field(init=False)  # int64 [R, in], how many values are selected
    _largest_lower: np.ndarray = field(init=False)  # int32 [R, in, c], lower bounds, negated
    _smallest_upper: np.ndarray = field(init=False)  # int32 [R, in, c], upper bounds

    def __post_init__(self) -> None:
        rows = len(self.counts) * self.shape[0]
        width = self.shape[1] if len(self.shape) > 1 else 1
        size = (rows, width, int(self.counts.max()))
        self._held = np.zeros((rows, width), dtype=np.int64)
        self._largest_lower = np.empty(size, dtype=np.int32)
        self._smallest_upper = np.empty(size, dtype=np.int32)

    def update(self, d: Interval, x: Interval | None) -> None:
        """Add the records of one fragment, as ``BoundSelection.update``."""
        point = x is None or x.is_point  # both products of a point are the same
        x_lower = np.ones((1, 1, d.shape[1])) if x is None else _array(x.lower.mT)
        x_upper = x_lower if x is None or x.is_point else _array(x.upper.mT)
        cpu_compiled.select_extremes(
            _rows(d.lower),
            _rows(d.upper),
            x_lower,
            x_upper,
            self.counts.numpy(),
            self.shape[0],
            point,
            self.capped,
            self.rump,
            self._held,
            self._largest_lower,
            self._smallest_upper,
        )

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the selected bounds so far, as ``BoundSelection.selected_values``."""
        shape = (len(self.counts), *self.shape, self._smallest_upper.shape[2])
        free = ~self._used
        for values in (self._largest_lower, self._smallest_upper):
            values[free] = EMPTY_SLOT  # no update reads a free slot
        largest_lower = torch.from_numpy(self._largest_lower).view(shape)
        smallest_upper = torch.from_numpy(self._smallest_upper).view(shape)
        return largest_lower, smallest_upper

    @property
    def _used(self) -> np.ndarray:
        """Return which slots hold a value, bool [R, in, c]."""
        return np.arange(self._smallest_upper.shape[2]) < self._held[..., None]

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds, as ``BoundSelection.result``."""
        used = self._used
        shape = (len(self.counts), *self.shape)
        negated_lower = np.where(used, self._largest_lower, 0).sum(axis=2, dtype=np.int64)
        upper = np.where(used, self._smallest_upper, 0).sum(axis=2, dtype=np.int64)
        return torch.from_numpy(-negated_lower).view(shape), torch.from_numpy(upper).view(shape)


def _stacked(matrices: Tensor, front: tuple[int, ...]) -> Tensor:
    """Return matrices whose leading axes broadcast to ``front`` as [matrices, rows, columns]."""
    return matrices.expand(*front, *matrices.shape[-2:]).flatten(0, -3)


def _array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as a contiguous array, which is a copy only if it has to be."""
    return np.ascontiguousarray(tensor.numpy())


def _rows(d: Tensor) -> np.ndarray:
    """Return [K, n, out] as a contiguous array [K * out, n]."""
    return np.ascontiguousarray(d.mT.numpy()).reshape(-1, d.shape[1])


def _inf_norms(x: Tensor) -> np.ndarray:
    """Return the infinity norm of each record, [n, in] -> [n]."""
    return _array(Interval.point(x).inf_norm()[:, 0])


def _tile_records(width: int) -> int:
    """Return how many records of ``width`` float64 numbers a tile has."""
    return max(8, _TILE_BYTES // (8 * width))
