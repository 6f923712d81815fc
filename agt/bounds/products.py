"""Interval products."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agt.bounds.interval import Interval

Bounds = tuple[Tensor, Tensor]


def corners(a: Interval, b: Interval) -> Bounds:
    """Exact elementwise product: the least and the greatest of the four corner products."""
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
    """Exact for a point of any sign: x mid^T -+ |x| rad^T.

    Equal to max(x,0) W_l^T + min(x,0) W_u^T below, and with W_l, W_u swapped above.
    """
    middle, radius = _midpoint_radius(weights)
    centre = _times(x, middle)
    spread = _times(x.abs(), radius)
    return centre - spread, centre.add_(spread)


def linear_nonnegative(x: Interval, weights: Interval) -> Bounds:
    """Exact for x >= 0 (after a ReLU): the sign of the weight alone decides which end of x counts.

    Wrong for signed x.
    """
    lower = _times(x.lower, weights.lower.clamp(min=0)).add_(
        _times(x.upper, weights.lower.clamp(max=0))
    )
    upper = _times(x.upper, weights.upper.clamp(min=0)).add_(
        _times(x.lower, weights.upper.clamp(max=0))
    )
    return lower, upper


def linear_corners(x: Interval, weights: Interval) -> Bounds:
    """Exact for any intervals: four corners for each term, summed term by term, no [n, out, in]
    tensor.
    """
    terms = weights.shape[-1]
    # torch.broadcast_shapes loads SymPy, for most of a second
    shape = np.broadcast_shapes((*x.shape[:-1], 1), (*weights.shape[:-2], 1, weights.shape[-2]))
    lower, upper = x.lower.new_zeros(shape), x.lower.new_zeros(shape)
    for i in range(terms):
        low, high = corners(x[..., i, None], weights[..., None, :, i])
        lower += low
        upper += high
    return lower, upper


def linear_rump(x: Interval, weights: Interval) -> Bounds:
    """Rump's midpoint-radius product: three matrix products, up to 1.5 times as wide as the
    exact one.
    """
    x_mid, x_rad = _midpoint_radius(x)
    w_mid, w_rad = _midpoint_radius(weights)
    centre = _times(x_mid, w_mid)
    spread = _times(x_mid.abs(), w_rad) + _times(x_rad, w_mid.abs() + w_rad)
    return centre - spread, centre + spread


def relu_backward(d: Interval, x: Interval) -> Bounds:
    """Exact: d times ReLU's derivative, which is 1 where x.lower > 0, 0 where x.upper <= 0, else
    anything in [0, 1].
    """
    inactive, alive = x.lower <= 0, (x.upper > 0).to(d.lower.dtype)
    lower = torch.where(inactive, d.lower.clamp(max=0), d.lower)
    upper = torch.where(inactive, d.upper.clamp(min=0), d.upper)
    return lower.mul_(alive), upper.mul_(alive)


@dataclass(frozen=True)
class Products:
    """Which products a run uses; a kernel may bring faster implementations of each function it
    replaces.

    Attributes:
        interval: where an interval meets an interval; None: exactly, in the cheapest form.
        corners: ``linear_corners``.
        nonnegative, point: ``linear_nonnegative`` and ``linear_point``; None: those.
        relu_backward: ``relu_backward``; it may overwrite d, which only the backward pass holds.
    """

    interval: Callable[[Interval, Interval], Bounds] | None = None
    corners: Callable[[Interval, Interval], Bounds] = linear_corners
    nonnegative: Callable[[Interval, Interval], Bounds] | None = None
    point: Callable[[Tensor, Interval], Bounds] | None = None
    relu_backward: Callable[[Interval, Interval], Bounds] = relu_backward

    def forward(self, x: Interval, weights: Interval, nonnegative: bool = False) -> Bounds:
        """A layer's product: the cheapest form that is exact, unless another is asked for.

        Args:
            nonnegative: no value of x is below 0, whatever the data: which form is taken tells
                nothing about them.
        """
        if x.is_point:
            return (self.point or linear_point)(x.lower, weights)
        if self.interval:
            return self.interval(x, weights)
        return (
            (self.nonnegative or linear_nonnegative)(x, weights)
            if nonnegative
            else self.corners(x, weights)
        )

    def back(self, d: Interval, weights: Interval) -> Bounds:
        """The backward pass's product: gradients have any sign."""
        return (self.interval or self.corners)(d, weights)


# ``training.product`` by name. A new entry is a function like ``linear_rump``: right in exact
# arithmetic and inclusion- monotone. Gradients of weights are products of two numbers, exact for
# all entries but ``rump``: kernels see to them.
EXACT = Products()
PRODUCTS: dict[str, Products] = {"exact": EXACT, "rump": Products(linear_rump)}


def _times(x: Tensor, weights: Tensor) -> Tensor:
    """x W^T; for matrices of each record, whose x is the longer one, as (W x^T)^T, which takes
    half the time.
    """
    return x @ weights.mT if x.dim() < 4 else (weights @ x.mT).mT


def _midpoint_radius(interval: Interval) -> Bounds:
    return (interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2
