"""Products of an interval matrix with intervals, and the registry of them.

Every product returns fresh tensors (lower, upper) that are right in exact arithmetic; the caller
widens them for rounding. Shapes: x is [K or 1, n, in], weights are [K, out, in], results are
[K, n, out]. More axes in front broadcast, for a matrix of each record.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agt.bounds.interval import Interval

Bounds = tuple[Tensor, Tensor]  # (lower, upper)


def corners(a: Interval, b: Interval) -> Bounds:
    """Return the exact elementwise product: the extremes of the four corner products.

    Formal guarantee: as computed, it contains every product of a number in ``a`` and one in ``b``,
    and shrinks with both, since a rounded product is monotone in each factor.
    """
    products = (a.lower * b.lower, a.lower * b.upper, a.upper * b.lower, a.upper * b.upper)
    return (
        torch.minimum(
            torch.minimum(products[0], products[1]), torch.minimum(products[2], products[3])
        ),
        torch.maximum(
            torch.maximum(products[0], products[1]), torch.maximum(products[2], products[3])
        ),
    )


def linear_point(x: Tensor, weights: Interval) -> Bounds:
    """Multiply a point of any sign by an interval matrix, exactly.

    It is x mid^T -+ |x| rad^T, which equals max(x, 0) lower^T + min(x, 0) upper^T below, and the
    same with the ends swapped above (Lemma 1 of docs/proofs/products.md).

    Args:
        x: [K or 1, n, in].
        weights: [K, out, in].
    """
    middle, radius = _midpoint_radius(weights)
    centre = _times_transposed(x, middle)
    spread = _times_transposed(x.abs(), radius)
    return centre - spread, centre.add_(spread)


def linear_nonnegative(x: Interval, weights: Interval) -> Bounds:
    """Multiply an interval x >= 0 by an interval matrix, exactly, with four matrix products.

    The sign of a weight's bound decides which end of x gives the extreme (Lemma 2 of
    docs/proofs/products.md). It is wrong if x may be negative.
    """
    lower = _times_transposed(x.lower, weights.lower.clamp(min=0)).add_(
        _times_transposed(x.upper, weights.lower.clamp(max=0))
    )
    upper = _times_transposed(x.upper, weights.upper.clamp(min=0)).add_(
        _times_transposed(x.lower, weights.upper.clamp(max=0))
    )
    return lower, upper


def linear_corners(x: Interval, weights: Interval) -> Bounds:
    """Multiply an interval of any sign by an interval matrix, exactly.

    The extremes of the four corners are summed term by term, without an [n, out, in] tensor. The
    sum of exact bounds is exact, because every term has a weight of its own.
    """
    terms = weights.shape[-1]
    # torch.broadcast_shapes would import SymPy, which takes most of a second.
    shape = np.broadcast_shapes((*x.shape[:-1], 1), (*weights.shape[:-2], 1, weights.shape[-2]))
    lower = x.lower.new_zeros(shape)
    upper = x.lower.new_zeros(shape)
    for i in range(terms):
        low, high = corners(x[..., i, None], weights[..., None, :, i])
        lower += low
        upper += high
    return lower, upper


def linear_rump(x: Interval, weights: Interval) -> Bounds:
    """Multiply an interval by an interval matrix in midpoint-radius form (Rump).

    It takes three matrix products, and its result is up to 1.5 times as wide as the exact one
    (Lemma 3 of docs/proofs/products.md).
    """
    x_middle, x_radius = _midpoint_radius(x)
    w_middle, w_radius = _midpoint_radius(weights)
    centre = _times_transposed(x_middle, w_middle)
    spread_of_weights = _times_transposed(x_middle.abs(), w_radius)
    spread_of_x = _times_transposed(x_radius, w_middle.abs() + w_radius)
    spread = spread_of_weights + spread_of_x
    return centre - spread, centre + spread


def relu_backward(d: Interval, x: Interval) -> Bounds:
    """Multiply gradients by the derivative of ReLU at an interval, exactly.

    Args:
        d: bounds on the gradient in the output of ReLU.
        x: bounds on its input, of the same shape. The derivative is 1 where x.lower > 0, 0 where
            x.upper <= 0, and anything in [0, 1] elsewhere.
    """
    may_be_zero = x.lower <= 0
    may_be_one = (x.upper > 0).to(d.lower.dtype)
    lower = torch.where(may_be_zero, d.lower.clamp(max=0), d.lower)
    upper = torch.where(may_be_zero, d.upper.clamp(min=0), d.upper)
    return lower.mul_(may_be_one), upper.mul_(may_be_one)


@dataclass(frozen=True)
class Products:
    """The interval products that a run uses; a kernel may replace each by a faster one.

    Attributes:
        interval: the product of an interval with an interval matrix; None: the cheapest exact one.
        corners: an implementation of ``linear_corners``.
        nonnegative: an implementation of ``linear_nonnegative``; None: that function.
        point: an implementation of ``linear_point``; None: that function.
        relu_backward: an implementation of ``relu_backward``. It may overwrite d, which only the
            backward pass holds.
    """

    interval: Callable[[Interval, Interval], Bounds] | None = None
    corners: Callable[[Interval, Interval], Bounds] = linear_corners
    nonnegative: Callable[[Interval, Interval], Bounds] | None = None
    point: Callable[[Tensor, Interval], Bounds] | None = None
    relu_backward: Callable[[Interval, Interval], Bounds] = relu_backward

    def forward(self, x: Interval, weights: Interval, nonnegative: bool = False) -> Bounds:
        """Multiply a layer's input by its weights, in the cheapest exact form unless one is set.

        Args:
            x: [K or 1, n, in].
            weights: [K, out, in].
            nonnegative: True if no value of x can be negative for any data. It must not be read
                off the data, because the running time would then depend on them.

        Returns:
            (lower, upper), each [K, n, out].
        """
        if x.is_point:
            multiply_point = self.point or linear_point
            return multiply_point(x.lower, weights)
        if self.interval:
            return self.interval(x, weights)
        if nonnegative:
            multiply_nonnegative = self.nonnegative or linear_nonnegative
            return multiply_nonnegative(x, weights)
        return self.corners(x, weights)

    def backward(self, d: Interval, weights: Interval) -> Bounds:
        """Multiply gradients, which may have any sign, by an interval matrix."""
        multiply = self.interval or self.corners
        return multiply(d, weights)


EXACT = Products()
# The values of ``training.product``. A new entry is a function like ``linear_rump``: right in exact
# arithmetic, and inclusion-monotone. The gradients of weights are products of two numbers, which
# kernels compute: exactly for every entry but ``rump``.
PRODUCTS: dict[str, Products] = {"exact": EXACT, "rump": Products(linear_rump)}


def _times_transposed(x: Tensor, weights: Tensor) -> Tensor:
    """Return x W^T, [..., n, in] and [..., out, in] -> [..., n, out]."""
    if x.dim() < 4:
        return x @ weights.mT
    # With a matrix of each record, x is the longer factor, and (W x^T)^T takes half the time.
    return (weights @ x.mT).mT


def _midpoint_radius(interval: Interval) -> Bounds:
    """Return (midpoint, radius) of each element."""
    return (interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2
