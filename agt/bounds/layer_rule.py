"""What every layer rule computes: a forward and a backward pass, on numbers and on intervals."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding


class LayerRule(Protocol):
    """The forward and backward pass of one layer, for single values and for intervals.

    ``nominal`` methods compute with given parameter values. ``bound`` methods do interval
    arithmetic: they return bounds that hold for every input and every parameter in its interval.

    Nominal tensors have the shape [n, ...], one row for each of n records. Intervals have the shape
    [K, n, ...], one slice for each distance k of the grid, or [1, n, ...] for an input that is the
    same for every k.

    Arguments that all methods share:
        inputs: the layer's input, or bounds on it.
        output_gradient: the gradient of the loss with respect to the layer's output, or bounds on
            it.
        point: the parameter values, by name.
        box: the bounds on the parameters, by name, [K, *parameter shape].
        rounding: the widening by which bounds cover floating-point error, for each k.
        products: the interval matrix products to use.

    Formal guarantees (tests/contract/test_layer_rules.py checks them for every entry of ``RULES``):
        - Containment: if the inputs, the output gradients and the parameters lie in their bounds,
          then the floating-point results of ``nominal`` and ``nominal_backward`` lie in ``bound``
          and ``bound_backward``, at any batch size.
        - Nesting: narrower argument intervals at k - 1 give bounds within those of wider argument
          intervals at k.
    """

    @property
    def name(self) -> str:
        """Return the layer's name in the network, which prefixes its parameters' names."""

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return the layer's output for given inputs and parameter values."""

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the loss gradient with respect to the layer's input, in the shape of inputs."""

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the layer's output over all inputs and parameters in their intervals."""

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound the loss gradient with respect to the layer's input, in the shape of inputs."""


class Gradient(NamedTuple):
    """Bounds on the gradients of some records with respect to one parameter.

    A record's gradient is the outer product of a row of ``left_factor`` and a row of
    ``right_factor``, or the row of ``left_factor`` itself if ``right_factor`` is None.

    Attributes:
        parameter: the parameter's name.
        left_factor: [K, n, outputs] with a right factor; without one the whole gradient,
            [K, n, number of scalars in the parameter].
        right_factor: [K or 1, n, inputs], or None.
    """

    parameter: str
    left_factor: Interval
    right_factor: Interval | None


class TrainedLayerRule(LayerRule, Protocol):
    """The rule of a layer with parameters, which also gives each record's parameter gradients.

    Parameter gradients are computed in float64, whatever the precision of the passes.

    Formal guarantees, beside those of ``LayerRule``:
        - Each gradient of ``nominal_gradients``, as computed, lies within the bounds that
          ``gradients`` gives. For two factors, the outer product of the nominal factors lies
          within the interval product of the bounded factors (Lemma 1 of docs/proofs/sums.md).
    """

    def nominal_gradients(
        self, output_gradient: Tensor, inputs: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield each record's parameter gradients as (parameter, left factor, right factor).

        The factors are those of ``Gradient``, as tensors [n, ...] without the axis of k.
        """

    def gradients(
        self,
        output_gradient: Interval,
        inputs: Interval,
        rounding: Rounding,
        products: Products,
    ) -> Iterator[Gradient]:
        """Yield bounds on each record's gradient with respect to each parameter.

        For one parameter, several blocks of records may be yielded, in the order of the records.
        ``nominal_gradients`` may use blocks of another size.
        """

    def count_numbers_held(self, layer_input: Tensor, layer_output: Tensor) -> int:
        """Return the number of scalars that the passes hold in memory at once for one record.

        Args:
            layer_input: the layer's input for one record, [1, ...].
            layer_output: its output for this record, [1, ...].
        """
