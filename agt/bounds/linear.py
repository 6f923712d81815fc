"""The linear layer."""

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
    """y = x W^T + b (method.md section 1). ``name`` prefixes the parameters: ``0.weight``,
    ``0.bias``.

    Attributes:
        nonnegative: the layer before gives no value below 0.
    """

    name: str
    bias: bool
    nonnegative: bool = False

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, in] -> [n, out]."""
        return nn.functional.linear(
            x, point[f"{self.name}.weight"], point[f"{self.name}.bias"] if self.bias else None
        )

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """[n, out] -> [n, in]."""
        return d @ point[f"{self.name}.weight"]

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, in] -> [K, n, out]; exact products are exact, and all are widened for
        rounding.
        """
        return rounding.widen(self.product(x, box, products), self.rounding_of(x, box, rounding))

    def product(self, x: Interval, box: Intervals, products: Products) -> Bounds:
        """The same, not widened."""
        lower, upper = products.forward(x, box[f"{self.name}.weight"], self.nonnegative)
        if self.bias:
            bias = box[f"{self.name}.bias"]
            lower, upper = lower.add_(bias.lower[:, None, :]), upper.add_(bias.upper[:, None, :])
        return lower, upper

    def rounding_of(self, x: Interval, box: Intervals, rounding: Rounding) -> Tensor:
        """tau of each record's outputs, [K, n, 1]."""
        return rounding.dot_error(
            x, box[f"{self.name}.weight"], box[f"{self.name}.bias"] if self.bias else None
        )

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d_in = W^T d_out. [K, n, out] -> [K, n, in]."""
        weight = box[f"{self.name}.weight"]
        transposed = Interval.unchecked(weight.lower.mT, weight.upper.mT)
        return rounding.widen(products.back(d, transposed), rounding.dot_error(d, weight))

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """d [n, out] and x [n, in]: dW = d (x) x, db = d."""
        yield f"{self.name}.weight", d, x
        if self.bias:
            yield f"{self.name}.bias", d, None

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """The same for intervals: kernels multiply, exactly or as training.product asks."""
        yield Gradient(f"{self.name}.weight", d, x)
        if self.bias:
            yield Gradient(f"{self.name}.bias", d, None)

    def alive(self, x: Tensor, y: Tensor) -> int:
        return x.numel() + y.numel()
