"""What a layer's rule is: four short functions, two for the nominal pass and two for its bounds.

Formal guarantees, which tests/contract/test_layer_rules.py checks for every entry of the registry
    Containment. Let every value lie in its bounds: an input in x, a gradient in d, parameters in the box. Then what
    ``nominal`` computes lies in ``bound``, and what ``nominal_back`` computes in ``bound_back``: as computed, at any batch
    size, for each k.
    Nesting. Bounds for k-1 from inner intervals lie within those for k from outer ones, as computed (rounding.py).
"""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding

Intervals = Mapping[str, Interval]  # parameter name -> [K, ...] bounds; bounds/box.py has the whole
Point = Mapping[str, Tensor]  # parameter name -> nominal value


class Rule(Protocol):
    """How one layer acts. x is the layer's input; d the gradient of the loss in its output."""

    def nominal(self, x: Tensor, point: Point) -> Tensor: ...
    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor: ...
    def bound(self, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval: ...
    def bound_back(self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval: ...
