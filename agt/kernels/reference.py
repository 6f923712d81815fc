"""The reference kernel: sums of per-record gradients as exact integers, in plain PyTorch.

``ReferenceKernel`` is the contract in code. Other kernels inherit from it and compute some of it
faster, with the same numbers, bit for bit. The proofs are in docs/proofs/sums.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from agt.bounds import rounding
from agt.bounds.interval import Interval
from agt.bounds.products import PRODUCTS, Bounds, Products, affine_point, corners
from agt.settings import QUANTA

EMPTY_SLOT = 2**31 - 1  # int32, beyond every bound: a selection has no value here
RUMP_ROUNDINGS = 64  # in units of eps |a| |b|; Lemma 3 of docs/proofs/sums.md needs fewer
_BOUNDS_BLOCK_NUMBERS = 1 << 21  # numbers of a [K, records, out, in] block of bounds


class BoundSelection(Protocol):
    """A running selection of the most extreme gradient bounds of a batch (a streaming top-c).

    Records come in fragments (parts of the batch). For each number of edits k and each entry of a
    parameter, the selection holds the c smallest upper bounds and the c largest lower bounds of the
    records so far. c may differ from one k to the next. Bounds are integers, in quanta (clip level
    / 2^30).
    """

    def update(self, output_gradient: Interval, inputs: Interval | None) -> None:
        """Add the gradient bounds of some more records of the batch to the selection.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        """

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the bounds that are selected so far, in any order.

        Returns:
            (largest lower bounds with the sign reversed, smallest upper bounds), both int32
            [K, out, in, c], or [K, out, c] for a bias. Here c is the largest of all k; slots
            without a value hold ``EMPTY_SLOT``. The tensors may be views of the selection's own
            memory, so the caller must not write to them.
        """

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds; of all bounds where fewer than c records came.

        Returns:
            (sum of the largest lower bounds, sum of the smallest upper bounds), both int64
            [K, out, in], or [K, out] for a bias.
        """


def quantise(value: Tensor) -> Tensor:
    """Return the values clipped to [-QUANTA, QUANTA] and rounded to integers, ties to even.

    The result has the floating-point dtype of ``value``.
    """
    return value.clamp(-QUANTA, QUANTA).round_()


def gradient_bounds(output_gradient: Interval, inputs: Interval | None, product: str) -> Interval:
    """Bound each record's gradient in one parameter, clipped and rounded to whole quanta.

    A record's gradient in the weight from input i to output j is output_gradient[j] * inputs[i].

    Args:
        output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
            in quanta (units of clip level / 2^30).
        inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias, whose gradient is
            ``output_gradient`` itself.
        product: how two intervals are multiplied: "exact" (smallest and largest of the four corner
            products) or "rump" (midpoint and radius, which is wider).

    Returns:
        Integers as floats, [K, n, out, in], or [K, n, out] for a bias. A "rump" product that
        overflows gives the widest bounds, [-QUANTA, QUANTA].
    """
    if inputs is None:
        return Interval(quantise(output_gradient.lower), quantise(output_gradient.upper))
    # Rounded products, the clip and rounding to integers are all monotone, so bounds on the exact
    # product become bounds on the quantised gradient (Lemma 1 of docs/proofs/sums.md).
    column = output_gradient[..., :, None]
    row = inputs[..., None, :]
    if inputs.is_point:
        # The sign of an input decides which end of the output gradient gives the smaller product.
        from_lower = column.lower * row.lower
        from_upper = column.upper * row.lower
        low = torch.minimum(from_lower, from_upper)
        high = torch.maximum(from_lower, from_upper)
    elif product == "rump":
        low, high = _rump(column, row)
    else:
        low, high = corners(column, row)
    return Interval(quantise(low), quantise(high))


def _rump(a: Interval, b: Interval) -> Bounds:
    """Return bounds on the elementwise product of two intervals in midpoint-radius form.

    The product of intervals with midpoints m, n and radii r, s lies within
    abs(m) s + r (abs(n) + s) of m n. The bounds are widened for the roundings of this formula.

    Args:
        a, b: intervals of shapes that broadcast.

    Returns:
        (lower, upper); -inf and inf where the product overflows, and never a NaN.
    """
    a_middle = (a.lower + a.upper) / 2
    b_middle = (b.lower + b.upper) / 2
    a_radius = (a.upper - a.lower) / 2
    b_radius = (b.upper - b.lower) / 2
    centre = a_middle * b_middle
    spread = a_middle.abs() * b_radius + a_radius * (b_middle.abs() + b_radius)
    # Lemma 3 of docs/proofs/sums.md: all roundings together err by less than 64 eps |a| |b|.
    rounding_share = RUMP_ROUNDINGS * torch.finfo(spread.dtype).eps
    spread = spread + (a.magnitude() * b.magnitude()) * rounding_share
    # False for a NaN too. Where the centre overflows, so does the spread, which includes |a| |b|.
    bounded = spread < torch.inf
    lower = torch.where(bounded, centre - spread, -torch.inf)
    upper = torch.where(bounded, centre + spread, torch.inf)
    return lower, upper


def gradient_bounds_in_blocks(
    output_gradient: Interval, inputs: Interval | None, product: str
) -> Iterator[Interval]:
    """Yield ``gradient_bounds`` of consecutive blocks of records, in the records' order.

    A block has at most ``_BOUNDS_BLOCK_NUMBERS`` numbers or one record, which bounds the memory.

    Args:
        output_gradient: [K, n, out] bounds, as for ``gradient_bounds``.
        inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        product: "exact" or "rump", how two intervals are multiplied.
    """
    ks, records, outputs = output_gradient.shape
    inputs_of_layer = 1 if inputs is None else inputs.shape[2]
    numbers_per_record = ks * outputs * inputs_of_layer
    step = max(1, _BOUNDS_BLOCK_NUMBERS // numbers_per_record)
    for start in range(0, records, step):
        block = slice(start, start + step)
        inputs_of_block = None
        if inputs is not None:
            inputs_of_block = inputs[:, block]
        yield gradient_bounds(output_gradient[:, block], inputs_of_block, product)


class ReferenceKernel:
    """Sums and selections of clipped per-record gradients, in whole quanta, on any device.

    The gradient of one record in the weight from input i to output j is
    output_gradient[j] * inputs[i]. It is clipped to [-clip level, clip level] and rounded to the
    nearest multiple of a quantum (clip level / 2^30). Nominal gradients (of the training without
    edits) and bounds are rounded by the same rule. Factors are float64; the caller multiplies
    ``output_gradient`` by QUANTA / clip level, so that one quantum is 1.

    Formal guarantees:
        - Sums are exact, and so the same in any order, on any device, over any fragments.
        - Sums of bounds contain the nominal sum. Wider factors never give a narrower sum.
        - Every sum fits int64, for a batch of at most 2^30 records.
    """

    name = "reference"
    # True for a kernel that compares each of its functions with the reference kernel before the
    # function's first use. Others must pass ``selftest.check_kernel`` before they are used.
    tests_functions_when_used = False

    def nominal_sum(self, output_gradient: Tensor, inputs: Tensor | None) -> Tensor:
        """Return the sum over records of their clipped gradients, in quanta (clip level / 2^30).

        Args:
            output_gradient: [n, out] gradients of the loss in the layer's output, in quanta (units
                of clip level / 2^30).
            inputs: [n, in] the layer's inputs; None for a bias.

        Returns:
            int64 [out, in], or [out] for a bias.
        """
        # Nominal values are intervals of width 0 for one k; both sums are then the same.
        gradient_point = Interval.point(output_gradient[None])  # [1, n, out]
        inputs_point = None
        if inputs is not None:
            inputs_point = Interval.point(inputs[None])  # [1, n, in]
        lower, _ = self.bound_sum(gradient_point, inputs_point, "exact")
        return lower[0]

    def bound_sum(
        self, output_gradient: Interval, inputs: Interval | None, product: str
    ) -> tuple[Tensor, Tensor]:
        """Return the sums over records of the lower and of the upper bounds on their gradients.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                for K numbers of edits, in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
            product: how two intervals are multiplied: "exact" (the four corners) or "rump"
                (midpoint and radius, which is wider).

        Returns:
            (sum of lower bounds, sum of upper bounds) in quanta (clip level / 2^30), both int64
            [K, out, in], or [K, out] for a bias.
        """
        ks, _, outputs = output_gradient.shape
        shape: tuple[int, ...] = (ks, outputs)  # of a bias
        if inputs is not None:
            shape = (ks, outputs, inputs.shape[2])
        lower = torch.zeros(shape, dtype=torch.int64, device=output_gradient.lower.device)
        upper = torch.zeros_like(lower)
        # Each bound is at most 2^30 in size and becomes an int64 before it is added, so that no sum
        # rounds or overflows (Lemma 2 of docs/proofs/sums.md).
        for bounds in gradient_bounds_in_blocks(output_gradient, inputs, product):
            lower += bounds.lower.to(torch.int64).sum(dim=1)
            upper += bounds.upper.to(torch.int64).sum(dim=1)
        return lower, upper

    def start_selection(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> BoundSelection:
        """Return an empty selection of the most extreme bounds of each entry of a parameter.

        For each k it selects the c smallest upper bounds and the c largest lower bounds of a
        batch's records, whose sums bound what c records can contribute to the batch's gradient.

        Args:
            counts: int [K], c for each number of edits k; at most the number of records to come.
            shape: the parameter's shape, (out, in) or (out,).
            capped: True to select from min(upper bound, 0) and max(lower bound, 0), so that the
                results are extreme sums over at most c records instead of exactly c.
            product: "exact" or "rump", how two intervals are multiplied.
        """
        return ReferenceSelection(counts, shape, capped, product)

    def selection_bytes(self, rows: int) -> int:
        """Return the bytes that a selection takes for one entry of a parameter and one k.

        Batches are planned with it, so that selections fit into the working memory.

        Args:
            rows: how many upper bounds and how many lower bounds are selected.
        """
        # A row is two int64 numbers, a lower and an upper bound; one row is spare.
        return 16 * (rows + 1)

    def products(self, product: str) -> Products:
        """Return the functions that multiply intervals and matrices for ``product``.

        Args:
            product: "exact" or "rump", a key of ``PRODUCTS``. Other kernels replace some functions
                by faster ones.
        """
        return PRODUCTS[product]

    def point_affine(
        self, inputs: Tensor, weights: Interval, bias: Interval, slack: Tensor, with_relu: bool
    ) -> Interval:
        """Return bounds on inputs @ weights.T + bias for known inputs, moved outwards by the slack.

        Args:
            inputs: [1, n, in].
            weights: [K, out, in] bounds.
            bias: [K, out] bounds.
            slack: nonnegative bounds on rounding errors, [K, n, 1].
            with_relu: True to bound the ReLU of these numbers instead.

        Returns:
            [K, n, out]; a ``ReluOutput`` with ``with_relu``.
        """
        return affine_point(inputs, weights, bias, slack, with_relu)

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """Return the interval [lower - slack, upper + slack], overwriting ``lower`` and ``upper``.

        Args:
            lower, upper: bounds of one shape.
            slack: nonnegative bounds on rounding errors, of a shape that broadcasts to theirs.
        """
        return rounding.widen_by(lower, upper, slack)


@dataclass
class ReferenceSelection:
    """The selection of the reference kernel, which stores the selected bounds as int64 tensors.

    Attributes:
        counts: int [K], how many bounds to select for each number of edits k.
        shape: the parameter's shape, (out, in) or (out,).
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        product: "exact" or "rump", how two intervals are multiplied.
    """

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    product: str
    # For each k the selected bounds, [at most c, *shape], in any order.
    _smallest_upper: list[Tensor] = field(default_factory=list)
    _largest_lower: list[Tensor] = field(default_factory=list)

    def update(self, output_gradient: Interval, inputs: Interval | None) -> None:
        """Add the gradient bounds of some more records of the batch to the selection.

        Args:
            output_gradient: [K, n, out] bounds on the gradients of the loss in the layer's output,
                in quanta (units of clip level / 2^30).
            inputs: [K or 1, n, in] bounds on the layer's inputs; None for a bias.
        """
        for bounds in gradient_bounds_in_blocks(output_gradient, inputs, self.product):
            lower = bounds.lower.to(torch.int64)
            upper = bounds.upper.to(torch.int64)
            if self.capped:
                lower = lower.clamp(min=0)
                upper = upper.clamp(max=0)
            for k_index, count in enumerate(self.counts.tolist()):
                if k_index == len(self._smallest_upper):  # the first block: nothing selected yet
                    self._smallest_upper.append(upper.new_empty((0, *self.shape)))
                    self._largest_lower.append(lower.new_empty((0, *self.shape)))
                self._smallest_upper[k_index] = self._select(
                    self._smallest_upper[k_index], upper[k_index], count, largest=False
                )
                self._largest_lower[k_index] = self._select(
                    self._largest_lower[k_index], lower[k_index], count, largest=True
                )

    @staticmethod
    def _select(selected: Tensor, added: Tensor, count: int, largest: bool) -> Tensor:
        """Return the ``count`` largest or smallest values of two stacks, for each entry.

        Args:
            selected, added: [any, *shape], stacks of values of a parameter's entries.
            count: how many values to select for each entry.
            largest: True for the largest values, False for the smallest.

        Returns:
            [count, *shape] in any order; all values where there are fewer than ``count``.
        """
        values = torch.cat([selected, added])
        if len(values) <= count:
            return values
        return values.topk(count, dim=0, largest=largest, sorted=False).values

    def selected_values(self) -> tuple[Tensor, Tensor]:
        """Return the bounds that are selected so far, in any order.

        Returns:
            (largest lower bounds with the sign reversed, smallest upper bounds), both int32
            [K, *shape, c] with c the largest of all counts; ``EMPTY_SLOT`` where there is no value.
        """
        shape = (2, len(self.counts), *self.shape, int(self.counts.max()))
        values = torch.full(shape, EMPTY_SLOT, dtype=torch.int32, device=self.counts.device)
        selected = zip(self._largest_lower, self._smallest_upper, strict=True)
        for k_index, (lower, upper) in enumerate(selected):  # each [selected values, *shape]
            values[0, k_index, ..., : len(lower)] = -lower.movedim(0, -1)
            values[1, k_index, ..., : len(upper)] = upper.movedim(0, -1)
        return values[0], values[1]

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the sums of the selected bounds; zeros where no record came.

        Returns:
            (sum of the largest lower bounds, sum of the smallest upper bounds), both int64
            [K, *shape].
        """
        if not self._smallest_upper:  # no record came
            shape = (len(self.counts), *self.shape)
            zeros = torch.zeros(shape, dtype=torch.int64, device=self.counts.device)
            return zeros, zeros.clone()
        lower = torch.stack([values.sum(dim=0) for values in self._largest_lower])
        upper = torch.stack([values.sum(dim=0) for values in self._smallest_upper])
        return lower, upper
