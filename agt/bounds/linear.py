"""The rule of ``nn.Linear``; a record's gradient in its weight is one outer product."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.products import Bounds, Products
from agt.bounds.rounding import Rounding


@dataclass(frozen=True)
class LinearRule:
    """The rule of y = x W^T + b.

    Attributes:
        name: the prefix of the parameters ``NAME.weight`` [out, in] and ``NAME.bias`` [out].
        bias: whether the layer has a bias.
        nonnegative: True if the layers before cannot give a negative value for any data, so that a
            cheaper exact product may be used.
    """

    name: str
    bias: bool
    nonnegative: bool = False

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return x W^T + b, [n, in] -> [n, out]."""
        bias = point[f"{self.name}.bias"] if self.bias else None
        return nn.functional.linear(x, point[f"{self.name}.weight"], bias)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return d W, [n, out] -> [n, in]."""
        return d @ point[f"{self.name}.weight"]

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound x W^T + b, [K or 1, n, in] -> [K, n, out], widened for rounding."""
        return rounding.widen(
            self.unwidened_bounds(x, box, products), self.output_error(x, box, rounding)
        )

    def unwidened_bounds(self, x: Interval, box: Intervals, products: Products) -> Bounds:
        """Return (lower, upper) of x W^T + b, each [K, n, out], right in exact arithmetic."""
        lower, upper = products.forward(x, box[f"{self.name}.weight"], self.nonnegative)
        if self.bias:
            bias = box[f"{self.name}.bias"]
            lower = lower.add_(bias.lower[:, None, :])
            upper = upper.add_(bias.upper[:, None, :])
        return lower, upper

    def output_error(self, x: Interval, box: Intervals, rounding: Rounding) -> Tensor:
        """Return tau, what each record's computed outputs may err by, [K, n, 1]."""
        bias = box[f"{self.name}.bias"] if self.bias else None
        return rounding.dot_error(x, box[f"{self.name}.weight"], bias)

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound d W, [K, n, out] -> [K, n, in], widened for rounding."""
        weight = box[f"{self.name}.weight"]
        transposed = Interval.unchecked(weight.lower.mT, weight.upper.mT)
        return rounding.widen(products.backward(d, transposed), rounding.dot_error(d, weight))

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield the weight's gradient as (d [n, out], x [n, in]), and the bias's, which is d."""
        yield f"{self.name}.weight", d, x
        if self.bias:
            yield f"{self.name}.bias", d, None

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Yield the factors of the gradients; kernels multiply them by ``training.product``."""
        yield Gradient(f"{self.name}.weight", d, x)
        if self.bias:
            yield Gradient(f"{self.name}.bias", d, None)

    def numbers_held(self, x: Tensor, y: Tensor) -> int:
        """Return the numbers of one record's input x and output y."""
        return x.numel() + y.numel()
