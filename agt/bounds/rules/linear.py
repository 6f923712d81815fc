"""The linear layer, the only one with parameters."""

from dataclasses import dataclass

from torch import Tensor, nn

from agt.bounds.interval import Interval
from agt.bounds.products import Bounds, Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules.contract import Intervals, Point


@dataclass(frozen=True)
class LinearRule:
    """y = x W^T + b (method.md section 1). ``name`` prefixes the parameters: ``0.weight``, ``0.bias``.

    Attributes:
        nonnegative: the layer before gives no value below 0.
    """

    name: str
    bias: bool
    nonnegative: bool = False

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, in] -> [n, out]."""
        return nn.functional.linear(x, point[f"{self.name}.weight"], point[f"{self.name}.bias"] if self.bias else None)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """[n, out] -> [n, in]."""
        return d @ point[f"{self.name}.weight"]

    def bound(self, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        """[K or 1, n, in] -> [K, n, out]; exact products are exact, and all are widened for rounding."""
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
        return rounding.dot(x, box[f"{self.name}.weight"], box[f"{self.name}.bias"] if self.bias else None)

    def bound_back(self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        """d_in = W^T d_out. [K, n, out] -> [K, n, in]."""
        weight = box[f"{self.name}.weight"]
        transposed = Interval.image(weight.lower.mT, weight.upper.mT)
        return rounding.widen(products.back(d, transposed), rounding.dot(d, weight))
