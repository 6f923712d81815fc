"""What a layer's rule is: four short functions, two for the nominal pass and two for its bounds; with parameters, more.

Formal guarantees, which tests/contract/test_layer_rules.py checks for every entry of the registry
    Containment. Let every value lie in its bounds: an input in x, a gradient in d, parameters in the box. Then what
    ``nominal`` computes lies in ``bound``, and what ``nominal_back`` computes in ``bound_back``: as computed, at any batch
    size, for each k.
    Nesting. Bounds for k-1 from inner intervals lie within those for k from outer ones, as computed (rounding.py).
    A layer with parameters: the same for each record's gradient, ``nominal_gradients`` in ``gradients``, in float64
    throughout. One that is d (x) x lies within its factors' corner products (kernels/contract.py), one that is d within d.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding

Intervals = Mapping[str, Interval]  # parameter name -> [K, ...] bounds; bounds/box.py has the whole
Point = Mapping[str, Tensor]  # parameter name -> nominal value


class Rule(Protocol):
    """How one layer acts. x is the layer's input; d the gradient of the loss in its output."""

    @property
    def name(self) -> str: ...

    def nominal(self, x: Tensor, point: Point) -> Tensor: ...
    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor: ...
    def bound(self, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval: ...
    def bound_back(self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products) -> Interval: ...


class Gradient(NamedTuple):
    """Bounds on some records' gradients in one parameter.

    Attributes:
        parameter: its name.
        d: [K, n, out] where each record's gradient is d (x) x, or x None and d is the gradient: in a bias, or [K, n,
            parameters] in any parameter, in the order of its numbers.
        x: [K or 1, n, in], or None.
    """

    parameter: str
    d: Interval
    x: Interval | None


class Trained(Rule, Protocol):
    """A layer with parameters. d and x come in float64, whatever the passes are computed in."""

    def nominal_gradients(self, d: Tensor, x: Tensor) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """As ``gradients``, without the axis K: the parameter, d and x."""
        ...

    def gradients(self, d: Interval, x: Interval, rounding: Rounding, products: Products) -> Iterator[Gradient]:
        """Each parameter's, all records at once or some after others, in order."""
        ...

    def alive(self, x: Tensor, y: Tensor) -> int:
        """How many numbers of a record [1, ...] in and out its passes hold at once, ends of intervals aside."""
        ...
