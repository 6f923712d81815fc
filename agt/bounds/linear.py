"""The rule of ``nn.Linear``; a record's gradient in its weight is one outer product."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.products import Bounds, Products, add_bias
from agt.bounds.rounding import Rounding


@dataclass(frozen=True)
class LinearRule:
    """The rule of a linear layer, which computes inputs @ weight.T + bias.

    Attributes:
        name: the prefix of the parameters ``NAME.weight`` [out, in] and ``NAME.bias`` [out].
        bias: whether the layer has a bias.
        nonnegative: True if the layer's input is at least 0 for all data, for example after ReLU;
            a cheaper exact interval product is then used.
        behind_relu: True if the layer's input is the output of a ReLU.
        before_relu: True if the layer's output is the input of a ReLU.
    """

    name: str
    bias: bool
    nonnegative: bool = False
    behind_relu: bool = False
    before_relu: bool = False

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return inputs @ weight.T + bias for given parameter values, [n, in] -> [n, out]."""
        weight = point[f"{self.name}.weight"]
        bias = None
        if self.bias:
            bias = point[f"{self.name}.bias"]
        return nn.functional.linear(inputs, weight, bias)

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the gradient in the input, output_gradient @ weight, [n, out] -> [n, in].

        Args:
            output_gradient: the loss gradient in the layer's output, [n, out].
            inputs: not used, because the layer is linear.
            point: the parameter values, by name.
        """
        return output_gradient @ point[f"{self.name}.weight"]

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound inputs @ weight.T + bias over all inputs and parameters in their intervals.

        Args:
            inputs: bounds on the layer's input, [K or 1, n, in].
            box: bounds on the parameters, by name, [K, *parameter shape].
            rounding: the widening by which bounds cover floating-point error, for each k.
            products: the interval matrix products to use.

        Returns:
            [K, n, out]; a ``ReluOutput`` if they are bounds on the output of the ReLU that follows.
        """
        error_bound = self.output_error(inputs, box, rounding)
        if rounding.point_affine is not None and inputs.is_point and self.bias:
            return rounding.point_affine(
                inputs.lower,
                box[f"{self.name}.weight"],
                box[f"{self.name}.bias"],
                rounding.slack(error_bound),
                self.before_relu,
            )
        return rounding.widen(self.unwidened_bounds(inputs, box, products), error_bound)

    def unwidened_bounds(self, inputs: Interval, box: Intervals, products: Products) -> Bounds:
        """Return bounds on inputs @ weight.T + bias that do not yet cover floating-point error.

        Args:
            inputs: bounds on the layer's input, [K or 1, n, in].
            box: bounds on the parameters, by name, [K, *parameter shape].
            products: the interval matrix products to use.

        Returns:
            (lower, upper), each [K, n, out]. The caller widens them by ``output_error``.
        """
        lower, upper = products.forward(inputs, box[f"{self.name}.weight"], self.nonnegative)
        if self.bias:
            lower, upper = add_bias(lower, upper, box[f"{self.name}.bias"])
        return lower, upper

    def output_error(self, inputs: Interval, box: Intervals, rounding: Rounding) -> Tensor:
        """Return a bound on the floating-point error of the layer's outputs, [K, n, 1].

        One bound holds for all outputs of a record, and for the ends of their intervals.

        Args:
            inputs: bounds on the layer's input, [K or 1, n, in].
            box: bounds on the parameters, by name, [K, *parameter shape].
            rounding: the widening for each k, which knows the precision.
        """
        weight = box[f"{self.name}.weight"]
        bias = None
        if self.bias:
            bias = box[f"{self.name}.bias"]
        return rounding.dot_error(inputs, weight, bias)

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound the loss gradient in the input, output_gradient @ weight.

        Args:
            output_gradient: bounds on the loss gradient in the layer's output, [K, n, out].
            inputs: bounds on the layer's input, [K or 1, n, in]. They are read where the ReLU
                before the layer is passed as well, whose derivative they tell.
            box: bounds on the parameters, by name, [K, *parameter shape].
            rounding: the widening by which bounds cover floating-point error, for each k.
            products: the interval matrix products to use.

        Returns:
            [K, n, in]; a ``ReluGradient`` if they are bounds on the gradient in the ReLU's input.
        """
        weight = box[f"{self.name}.weight"]
        # ``backward`` multiplies by the transpose of its matrix, and here the factor is the weight
        # itself.
        transposed = Interval.unchecked(weight.lower.mT, weight.upper.mT)
        error_bound = rounding.dot_error(output_gradient, weight)
        if self.behind_relu and products.linear_relu_backward is not None:
            slack = rounding.slack(error_bound)
            return products.linear_relu_backward(output_gradient, transposed, slack, inputs)
        bounds = products.backward(output_gradient, transposed)
        return rounding.widen(bounds, error_bound)

    def nominal_gradients(
        self, output_gradient: Tensor, inputs: Tensor
    ) -> Iterator[tuple[str, Tensor, Tensor | None]]:
        """Yield each record's gradients in the weight and in the bias.

        Yields:
            (parameter, left factor, right factor). A record's gradient in the weight is the outer
            product of its rows of output_gradient [n, out] and inputs [n, in]. Its gradient in the
            bias is its row of output_gradient, without a right factor.
        """
        yield f"{self.name}.weight", output_gradient, inputs
        if self.bias:
            yield f"{self.name}.bias", output_gradient, None

    def gradients(
        self,
        output_gradient: Interval,
        inputs: Interval,
        rounding: Rounding,
        products: Products,
    ) -> Iterator[Gradient]:
        """Yield bounds on each record's gradients in the weight and in the bias, as factors.

        The factors are passed on unchanged. The kernel that sums gradients multiplies them, and
        covers the rounding of that product, so ``rounding`` and ``products`` are not used.
        """
        yield Gradient(f"{self.name}.weight", output_gradient, inputs)
        if self.bias:
            yield Gradient(f"{self.name}.bias", output_gradient, None)

    def count_numbers_held(self, layer_input: Tensor, layer_output: Tensor) -> int:
        """Return the number of scalars of one record's input and output together.

        Args:
            layer_input: one record's input, [1, in].
            layer_output: its output, [1, out].
        """
        return layer_input.numel() + layer_output.numel()
