"""What a layer's rule is, and what bounds on gradients are made of."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding


class LayerRule(Protocol):
    """How one layer acts. x is the layer's input; d the gradient of the loss in its output."""

    @property
    def name(self) -> str: ...

    def nominal(self, x: Tensor, point: Point) -> Tensor: ...
    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor: ...
    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval: ...
    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval: ...


class Gradient(NamedTuple):
    """Bounds on some records' gradients in one parameter.

    Attributes:
        parameter: its name.
        d: [K, n, out] where each record's gradient is d (x) x, or x None and d is the gradient: in
            a bias, or [K, n, parameters] in any parameter, in the order of its numbers.
        x: [K or 1, n, in], or None.
    """

    parameter: str
    d: Interval
    x: Interval | None


class Trained(LayerRule, Protocol):
    """A layer with parameters. d and x come in float64, whatever the passes are computed in."""

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """As ``gradients``, without the axis K: the parameter, d and x."""

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Each parameter's, all records at once or some after others, in order."""

    def alive(self, x: Tensor, y: Tensor) -> int:
        """How many numbers of a record [1, ...] in and out its passes hold at once, ends of
        intervals aside.
        """
