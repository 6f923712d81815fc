"""ReLU: exact, and the kernels bring a fast backward pass for it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules.contract import Intervals, Point


@dataclass(frozen=True)
class ReluRule:
    """max(x, 0), with derivative 1 for x > 0 and 0 for x <= 0; nominal and bounds use the same value at 0."""

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.clamp(min=0)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return torch.where(x > 0, d, 0.0)

    def bound(self, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        return Interval.image(x.lower.clamp(min=0), x.upper.clamp(min=0))

    def bound_back(self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        """d times the derivative: 1 where x.lower > 0, 0 where x.upper <= 0, else anything in [0, 1]."""
        return Interval.image(*products.relu_backward(d, x))
