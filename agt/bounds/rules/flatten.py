"""Flatten, in front of the other layers."""

from dataclasses import dataclass

from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.bounds.rules.contract import Intervals, Point


@dataclass(frozen=True)
class FlattenRule:
    """[n, ...] -> [n, features]; only in front, where the input is a point (rules_for)."""

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.flatten(1)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d.reshape(x.shape)

    def bound(self, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        if x.is_point:
            return Interval.point(x.lower.flatten(2))
        return Interval.image(x.lower.flatten(2), x.upper.flatten(2))

    def bound_back(self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval:
        shape = d.shape[:2] + x.shape[2:]
        return Interval.image(d.lower.reshape(shape), d.upper.reshape(shape))
