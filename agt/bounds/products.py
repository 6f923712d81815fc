"""Products of interval vectors with an interval matrix, x @ weights.T, and their registry.

Every product returns bounds (lower, upper) as new tensors. They are correct in exact arithmetic;
the caller widens them to cover floating-point error.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agt.bounds.interval import Interval, ReluGradient, ReluOutput
from agt.bounds.rounding import widen_by

Bounds = tuple[Tensor, Tensor]  # (lower, upper)


def corners(a: Interval, b: Interval) -> Bounds:
    """Return bounds on the elementwise product of two intervals, which need no widening.

    A product is smallest and largest at ends of both intervals, so the bounds are the least and
    the greatest of the four products of ends.

    Formal guarantee: the bounds, as computed, contain the computed product of every number in ``a``
    and every number in ``b``, and narrower intervals give bounds within those of wider ones. Both
    hold because a rounded product is monotone in each factor.

    Args:
        a: an interval.
        b: an interval that broadcasts with ``a``.

    Returns:
        (lower, upper), each of the broadcast shape.
    """
    low_low = a.lower * b.lower
    low_high = a.lower * b.upper
    high_low = a.upper * b.lower
    high_high = a.upper * b.upper
    lower = torch.minimum(torch.minimum(low_low, low_high), torch.minimum(high_low, high_high))
    upper = torch.maximum(torch.maximum(low_low, low_high), torch.maximum(high_low, high_high))
    return lower, upper


def linear_point(x: Tensor, weights: Interval) -> Bounds:
    """Bound x @ weights.T for vectors of numbers and an interval matrix, as tightly as possible.

    With the midpoints M and radii R of the weights, the bounds are x M^T - |x| R^T and
    x M^T + |x| R^T (Lemma 1 of docs/proofs/products.md).

    Args:
        x: vectors of any sign, [K or 1, n, in].
        weights: bounds on the matrix, [K, out, in].

    Returns:
        (lower, upper), each [K, n, out], before widening for floating-point error.
    """
    middle, radius = _midpoint_radius(weights)
    centre = _times_transposed(x, middle)
    spread = _times_transposed(x.abs(), radius)
    lower = centre - spread
    upper = centre.add_(spread)  # last, because it overwrites ``centre``
    return lower, upper


def add_bias(lower: Tensor, upper: Tensor, bias: Interval) -> Bounds:
    """Return bounds on a product plus a bias, overwriting the bounds on the product.

    Args:
        lower: [K, n, out]; overwritten.
        upper: [K, n, out]; overwritten.
        bias: [K, out], the bounds on the bias.
    """
    return lower.add_(bias.lower[:, None, :]), upper.add_(bias.upper[:, None, :])


def affine_point(
    x: Tensor, weights: Interval, bias: Interval, slack: Tensor, with_relu: bool
) -> Interval:
    """Bound x @ weights.T + bias for vectors of numbers, moved outwards by a slack.

    Args:
        x: vectors of any sign, [1, n, in].
        weights: bounds on the matrix, [K, out, in].
        bias: bounds on the bias, [K, out].
        slack: the amount by which each row's bounds move outwards, at least 0, [K, n, 1].
        with_relu: True to bound the ReLU of these numbers instead.

    Returns:
        [K, n, out]; a ``ReluOutput`` with ``with_relu``.

    Raises:
        UnsoundError: a lower bound exceeds its upper bound, before the ReLU.
        UnboundedError: a bound is NaN or infinite, before the ReLU.
    """
    lower, upper = linear_point(x, weights)
    widened = widen_by(*add_bias(lower, upper, bias), slack)
    if with_relu:
        return ReluOutput.from_inputs(widened)
    return widened


def linear_nonnegative(x: Interval, weights: Interval) -> Bounds:
    """Bound x @ weights.T for interval vectors x >= 0 and an interval matrix, tightly.

    Where the lower bound of a weight is positive, the smallest product has the lower bound of x;
    where it is negative, the upper bound of x. The largest product has the upper bound of x where
    the weight's upper bound is positive, and the lower bound of x where it is negative (Lemma 2 of
    docs/proofs/products.md). Four matrix products suffice.

    Args:
        x: bounds on the vectors, [K or 1, n, in], with x.lower >= 0. For a negative x the result
            is wrong, and this is not checked.
        weights: bounds on the matrix, [K, out, in].

    Returns:
        (lower, upper), each [K, n, out], before widening for floating-point error.
    """
    # The positive parts of the weights' bounds, and then their negative parts.
    lower = _times_transposed(x.lower, weights.lower.clamp(min=0))
    lower.add_(_times_transposed(x.upper, weights.lower.clamp(max=0)))
    upper = _times_transposed(x.upper, weights.upper.clamp(min=0))
    upper.add_(_times_transposed(x.lower, weights.upper.clamp(max=0)))
    return lower, upper


def linear_corners(x: Interval, weights: Interval) -> Bounds:
    """Bound x @ weights.T for interval vectors of any sign and an interval matrix, tightly.

    The bounds on the products x_i w_ji are summed over i. The sum is tight, because each weight
    occurs in one term only and so all terms can be extreme at once. One input i is added at a
    time, so that no tensor of shape [n, out, in] is made.

    Args:
        x: bounds on the vectors, [K or 1, n, in], or [K or 1, n, ..., rows, in].
        weights: bounds on the matrix, [K, out, in], or [K, n or 1, ..., out, in] for a matrix of
            each record. Leading axes broadcast.

    Returns:
        (lower, upper), each [K, n, out], or [K, n, ..., rows, out], before widening for
        floating-point error.
    """
    inputs = weights.shape[-1]
    # torch.broadcast_shapes would import SymPy, which takes most of a second.
    shape_of_rows = (*x.shape[:-1], 1)
    shape_of_outputs = (*weights.shape[:-2], 1, weights.shape[-2])
    shape = np.broadcast_shapes(shape_of_rows, shape_of_outputs)
    lower = x.lower.new_zeros(shape)
    upper = x.lower.new_zeros(shape)
    for i in range(inputs):
        # A column of x, [..., n, 1], times a row of weights, [..., 1, out].
        low, high = corners(x[..., i, None], weights[..., None, :, i])
        lower += low
        upper += high
    return lower, upper


def linear_rump(x: Interval, weights: Interval) -> Bounds:
    """Bound x @ weights.T for interval vectors and an interval matrix by Rump's method.

    Both operands are written as midpoint and radius, so that three matrix products suffice. The
    bounds are up to 1.5 times as wide as the tightest ones (Lemma 3 of docs/proofs/products.md).

    Args:
        x: bounds on the vectors, [K or 1, n, in].
        weights: bounds on the matrix, [K, out, in].

    Returns:
        (lower, upper), each [K, n, out], before widening for floating-point error.
    """
    x_middle, x_radius = _midpoint_radius(x)
    w_middle, w_radius = _midpoint_radius(weights)
    centre = _times_transposed(x_middle, w_middle)
    spread_of_weights = _times_transposed(x_middle.abs(), w_radius)
    spread_of_x = _times_transposed(x_radius, w_middle.abs() + w_radius)
    spread = spread_of_weights + spread_of_x
    return centre - spread, centre + spread


def relu_backward(output_gradient: Interval, inputs: Interval) -> Bounds:
    """Bound the loss gradient in the input of ReLU, tightly and without rounding.

    It is the gradient in the output times the derivative of ReLU: 1 where inputs.lower > 0, 0 where
    inputs.upper <= 0, and any number in [0, 1] elsewhere.

    Args:
        output_gradient: bounds on the loss gradient in the output of ReLU.
        inputs: bounds on the input of ReLU, of the same shape.

    Returns:
        (lower, upper), each of this shape.
    """
    may_be_zero = inputs.lower <= 0
    may_be_one = (inputs.upper > 0).to(output_gradient.lower.dtype)
    # A derivative that may be 0 brings the product 0 within the bounds.
    lower = torch.where(may_be_zero, output_gradient.lower.clamp(max=0), output_gradient.lower)
    upper = torch.where(may_be_zero, output_gradient.upper.clamp(min=0), output_gradient.upper)
    # A derivative that cannot be 1 is 0, and then the product is 0.
    lower.mul_(may_be_one)
    upper.mul_(may_be_one)
    return lower, upper


def linear_relu_backward(
    output_gradient: Interval, weights: Interval, slack: Tensor, inputs: Interval
) -> ReluGradient:
    """Bound the loss gradient in the input of a ReLU, from that in the output of the next layer.

    Args:
        output_gradient: bounds on the gradient in the output of a linear layer, [K, n, out].
        weights: bounds on its weights, transposed, [K, in, out].
        slack: how far bounds on the gradient in its input move outwards, at least 0, [K, n, 1].
        inputs: bounds on that input, which is the output of the ReLU, [K, n, in]. It is positive
            where the ReLU's input is.

    Raises:
        UnsoundError: a lower bound exceeds its upper bound.
        UnboundedError: a bound is NaN or infinite.
    """
    widened = widen_by(*linear_corners(output_gradient, weights), slack)
    return ReluGradient.unchecked(*relu_backward(widened, inputs))


@dataclass(frozen=True)
class Products:
    """The implementations of interval products that a run uses.

    The defaults are the functions of this module; a kernel may replace each by a faster one.

    Attributes:
        interval: the product for interval vectors, used for all of them; None: the cheapest tight
            product that fits the operands.
        corners: an implementation of ``linear_corners``.
        nonnegative: an implementation of ``linear_nonnegative``; None: that function.
        point: an implementation of ``linear_point``; None: that function.
        relu_backward: an implementation of ``relu_backward``. It may overwrite its first argument,
            the output gradient, which nothing but the backward pass holds.
        linear_relu_backward: an implementation of ``linear_relu_backward`` for the tight product;
            None: a linear layer and the ReLU before it pass gradients back one after the other.
    """

    interval: Callable[[Interval, Interval], Bounds] | None = None
    corners: Callable[[Interval, Interval], Bounds] = linear_corners
    nonnegative: Callable[[Interval, Interval], Bounds] | None = None
    point: Callable[[Tensor, Interval], Bounds] | None = None
    relu_backward: Callable[[Interval, Interval], Bounds] = relu_backward
    linear_relu_backward: Callable[[Interval, Interval, Tensor, Interval], ReluGradient] | None = (
        None
    )

    def forward(self, x: Interval, weights: Interval, nonnegative: bool = False) -> Bounds:
        """Bound the product of a layer's input and its weights, x @ weights.T.

        A single vector (``x.is_point``) always takes the product for points. Intervals take the
        product that ``interval`` names, or else the cheapest tight one.

        Args:
            x: bounds on the layer's input, [K or 1, n, in].
            weights: bounds on the weights, [K, out, in].
            nonnegative: True if x is at least 0 for all data. The caller must know this from the
                network and not from the values, or the running time would depend on the data.

        Returns:
            (lower, upper), each [K, n, out], before widening for floating-point error.
        """
        if x.is_point:
            multiply_point = linear_point if self.point is None else self.point
            return multiply_point(x.lower, weights)
        if self.interval is not None:
            return self.interval(x, weights)
        if nonnegative:
            multiply = linear_nonnegative if self.nonnegative is None else self.nonnegative
            return multiply(x, weights)
        return self.corners(x, weights)

    def backward(self, gradient: Interval, weights: Interval) -> Bounds:
        """Bound the product of gradients and an interval matrix, gradient @ weights.T.

        Args:
            gradient: bounds on vectors of any sign, [K, n, in].
            weights: bounds on the matrix, [K, out, in].

        Returns:
            (lower, upper), each [K, n, out], before widening for floating-point error.
        """
        if self.interval is not None:
            return self.interval(gradient, weights)
        return self.corners(gradient, weights)


EXACT = Products()
# The values of the setting ``training.product``. A new entry is a function like ``linear_rump``:
# its bounds are correct in exact arithmetic, and narrower operands give bounds within those of
# wider ones. The products of two numbers in the gradients of weights are left to kernels, which
# bound them tightly for every entry but ``rump``.
PRODUCTS: dict[str, Products] = {"exact": EXACT, "rump": Products(linear_rump)}


def _times_transposed(x: Tensor, weights: Tensor) -> Tensor:
    """Return x @ weights.T, [..., n, in] and [..., out, in] -> [..., n, out].

    Args:
        x: [K, n, in], or with more leading axes where each record has a matrix of its own.
        weights: [K, out, in], with the same number of axes as x.
    """
    if x.dim() < 4:
        return x @ weights.mT
    # With a matrix for each record (convolutions), x has more rows than the weights, and computing
    # the transposed product takes half the time.
    return (weights @ x.mT).mT


def _midpoint_radius(interval: Interval) -> Bounds:
    """Return (midpoints, radii) of the elements, each in the interval's shape."""
    midpoints = (interval.lower + interval.upper) / 2
    radii = (interval.upper - interval.lower) / 2
    return midpoints, radii
