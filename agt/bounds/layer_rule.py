"""What the rule of a layer owes: two passes on numbers, two on intervals, and its gradients."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding


class LayerRule(Protocol):
    """How one layer acts on records and gradients, nominal and bounded.

    Throughout, x is the layer's input and d the gradient of the loss in the layer's output.
    Nominal tensors have the shape [n, ...]; intervals have [K, n, ...], or [1, n, ...] for an input
    that does not depend on k.

    Formal guarantees (tests/contract/test_layer_rules.py checks them for every entry of ``RULES``):
        - Containment: if x, d and the parameters lie in their bounds, ``nominal`` lies in
          ``bound`` and ``nominal_backward`` in ``bound_backward``, as computed, at any batch size.
        - Nesting: bounds for k - 1 of inner intervals lie within bounds for k of outer ones.
    """

    @property
    def name(self) -> str:
        """Return the layer's name in the network, which prefixes its parameters."""

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return the layer's output for an input x and parameters ``point``."""

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return the gradient in the layer's input, of the shape of x."""

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the layer's output for inputs in x and parameters in ``box``."""

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the gradient in the layer's input, for gradients in d and inputs in x."""


class Gradient(NamedTuple):
    """Bounds on the gradients of some records in one parameter.

    Attributes:
        parameter: the parameter's name.
        d: [K, n, out] if a record's gradient is the outer product of d and x; otherwise x is None
            and d is the gradient itself, [K, n, numbers of the parameter].
        x: [K or 1, n, in], or None.
    """

    parameter: str
    d: Interval
    x: Interval | None


class TrainedLayerRule(LayerRule, Protocol):
    """The rule of a layer with parameters; its gradients are in float64 in any training.

    Formal guarantees, beside those of ``LayerRule``:
        - What ``nominal_gradients`` gives lies within ``gradients``, as computed. Of a pair (d, x)
          it is the outer product that lies within the corner products (Lemma 1 of
          docs/proofs/sums.md).
    """

    def nominal_gradients(
        self, d: Tensor, x: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield (parameter, d, x) as ``gradients`` does, without the axis K."""

    def gradients(
        self, d: Interval, x: Interval, rounding: Rounding, products: Products
    ) -> Iterator[Gradient]:
        """Yield bounds on the gradients in each parameter.

        Records may come in several parts, always in order; ``nominal_gradients`` may part them
        otherwise.
        """

    def numbers_held(self, x: Tensor, y: Tensor) -> int:
        """Return how many numbers of one record the passes hold at once.

        Args:
            x, y: the layer's input and output for one record, [1, ...].
        """
