"""Rules of activation layers, which apply one function to each number.

``ELEMENTWISE`` is the registry of activations; ReLU has its own rule. The proofs are in
docs/proofs/activations.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from agt.bounds.box import Intervals, Point
from agt.bounds.interval import Interval, ReluGradient, ReluOutput
from agt.bounds.products import Bounds, Products, corners
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError

# How far the computed value of an activation or of its derivative is assumed to be off, in units of
# roundoff. It is at least twice the largest error of the machine's functions, so that half of it
# also covers the rounding of the widening itself (Lemma 2 of docs/proofs/activations.md).
MARGIN = 32.0
Function = Callable[[Tensor], Tensor]  # elementwise, of the shape of its argument


@dataclass(frozen=True)
class Activation:
    """A scalar activation function s with its derivative s', and what interval bounds need of them.

    Attributes:
        value: s, elementwise; finite for every finite argument.
        slope: s', elementwise; finite for every finite argument.
        value_range: (smallest, largest) value of s over all real numbers, exact in float32 and
            float64 or slightly wider; infinite where s is unbounded.
        slope_range: (smallest, largest) value of s', in the same way.
        turning_points: the arguments at which s changes between increasing and decreasing.
        slope_turning_points: the arguments at which s' changes between increasing and decreasing.
        margin: the allowance for the error of a computed value, in units of roundoff. It is
            absolute for s' and for a bounded s, and relative to 1 + |argument| for an unbounded s.
            0 for a function that is monotone as computed.
        only_with: setting of the PyTorch layer -> the only value for which this description holds.
    """

    value: Function
    slope: Function
    value_range: tuple[float, float]
    slope_range: tuple[float, float]
    turning_points: tuple[float, ...] = ()
    slope_turning_points: tuple[float, ...] = ()
    margin: float = MARGIN
    only_with: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ElementwiseRule:
    """The rule of a layer that applies one activation function to each number.

    Attributes:
        name: the layer's name in the network.
        activation: the function and its derivative.
    """

    name: str
    activation: Activation

    @classmethod
    def from_layer(cls, name: str, layer: nn.Module) -> "ElementwiseRule":
        """Return the rule of a PyTorch activation layer.

        Args:
            name: the layer's name in the network.
            layer: a layer whose exact type is a key of ``ELEMENTWISE``.

        Raises:
            ConfigError: a setting of the layer has a value that the activation's description does
                not cover (for example GELU with the tanh approximation).
        """
        activation = ELEMENTWISE[type(layer)](layer)
        for setting, value in activation.only_with.items():
            given = getattr(layer, setting)
            if given != value:
                kind = type(layer).__name__
                raise ConfigError(
                    f"model: agt can compute bounds through layer {name} ({kind}) only with "
                    f"{setting}={value!r}, but it has {setting}={given!r}"
                )
        return cls(name, activation)

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return the activation s(inputs), clamped to the range of s, in the shape of inputs.

        The clamp keeps a rounded value within the range, to which bounds are clamped as well.
        ``point`` is not used, because the layer has no parameters.
        """
        return self.activation.value(inputs).clamp(*self.activation.value_range)

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return the loss gradient in the input, output_gradient * s'(inputs).

        The derivative s' of the activation is clamped to its range. This keeps a rounded derivative
        within the range, to which bounds are clamped as well.
        ``point`` is not used, because the layer has no parameters.
        """
        slope = self.activation.slope(inputs).clamp(*self.activation.slope_range)
        return output_gradient * slope

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound the activation function s over intervals of its argument.

        Args:
            inputs: bounds on the layer's input, [K or 1, n, width].
            box: not used, because the layer has no parameters.
            rounding: the widening for each k, which covers the error of the computed s.
            products: not used.

        Returns:
            [K, n, width].
        """
        s = self.activation
        # Lemma 2 of docs/proofs/activations.md: margin * u, times 1 + |argument| for an unbounded
        # function, is twice the error of a computed value.
        error_bound: Tensor | float = s.margin * rounding.unit_roundoff
        is_unbounded = math.inf in s.value_range or -math.inf in s.value_range
        if is_unbounded:
            error_bound = error_bound * (1 + inputs.magnitude())
        extremes = _extremes(s.value, inputs, s.turning_points)
        return _widened(extremes, error_bound, rounding, s.value_range)

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound the loss gradient in the input, output_gradient * s'(inputs), for intervals.

        Args:
            output_gradient: bounds on the loss gradient in the layer's output, [K, n, width].
            inputs: bounds on the layer's input, [K, n, width].
            box: not used.
            rounding: the widening for each k, which covers the error of the computed s'.
            products: not used.

        Returns:
            [K, n, width].
        """
        s = self.activation
        error_bound = s.margin * rounding.unit_roundoff
        extremes = _extremes(s.slope, inputs, s.slope_turning_points)
        slope = _widened(extremes, error_bound, rounding, s.slope_range)
        # Lemma 3 of docs/proofs/activations.md: a rounded product is monotone in each factor, so
        # its extremes are at the corners and need no widening.
        return Interval(*corners(output_gradient, slope))


def _extremes(function: Function, inputs: Interval, turning_points: tuple[float, ...]) -> Bounds:
    """Return the least and the greatest computed value of a function over each interval.

    Between its turning points the function is monotone. So its extremes are among its values at
    both ends of the interval and at the turning points inside (Lemma 1 of
    docs/proofs/activations.md).

    Args:
        function: an elementwise function.
        inputs: the intervals of its argument.
        turning_points: where the function changes between increasing and decreasing.

    Returns:
        (least, greatest), each in the shape of ``inputs``.
    """
    candidates = [inputs.lower, inputs.upper]
    for turning_point in turning_points:
        # A turning point outside the interval is clamped to one of its ends, so it adds nothing.
        everywhere = torch.full_like(inputs.lower, turning_point)
        candidates.append(everywhere.clamp(inputs.lower, inputs.upper))
    values = [function(candidate) for candidate in candidates]
    return reduce(torch.minimum, values), reduce(torch.maximum, values)


def _widened(
    bounds: Bounds,
    error_bound: Tensor | float,
    rounding: Rounding,
    value_range: tuple[float, float],
) -> Interval:
    """Return computed extremes widened by their error at each k, within the function's range.

    Args:
        bounds: (least, greatest) computed value, each [K or 1, n, ...].
        error_bound: a bound on the error of a computed value; 0.0 for a function that is monotone
            as computed, whose extremes are not widened.
        rounding: the multiple of the error bound by which each k is widened.
        value_range: (smallest, largest) value of the function.

    Returns:
        [K, n, ...].
    """
    ks = len(rounding.factor)
    # Widening overwrites its operands, so each k needs separate memory.
    lower, upper = (end.expand(ks, *end.shape[1:]).contiguous() for end in bounds)
    is_monotone_as_computed = isinstance(error_bound, float) and error_bound == 0
    if not is_monotone_as_computed:
        widened = rounding.widen((lower, upper), error_bound)
        lower = widened.lower
        upper = widened.upper
    # Exact values lie in the range, and nominal values are clamped to it, so a clamp is valid.
    return Interval.unchecked(lower.clamp(*value_range), upper.clamp(*value_range))


def _leaky_relu(layer: nn.LeakyReLU) -> Activation:
    """Return the description of LeakyReLU: x for x > 0, and a x for x <= 0.

    The derivative at 0 is a, as in PyTorch. A value is at most one rounded product, so the function
    is monotone as computed and needs no margin.

    Args:
        layer: the layer, whose ``negative_slope`` is a.

    Raises:
        ConfigError: a is not between 0 and 1, so the function or its derivative would not have the
            ranges given here.
    """
    a = layer.negative_slope
    if not 0 <= a <= 1:
        raise ConfigError(
            f"model: a LeakyReLU layer has negative_slope={a}, but agt only has a bound rule for "
            "slopes between 0 and 1: give one in this range"
        )

    def value(x: Tensor) -> Tensor:
        """Return x where it is positive, and a x elsewhere."""
        return torch.where(x > 0, x, x * a)

    def slope(x: Tensor) -> Tensor:
        """Return the derivative: 1 where x is positive, and a elsewhere."""
        ones = torch.ones_like(x)
        return torch.where(x > 0, ones, torch.full_like(x, a))

    return Activation(
        value=value,
        slope=slope,
        value_range=(-math.inf, math.inf),
        slope_range=(0.0, 1.0),
        margin=0.0,
    )


def _tanh_slope(x: Tensor) -> Tensor:
    """Return the derivative of tanh, 1 - tanh(x)^2."""
    return 1 - torch.tanh(x).square()


def _sigmoid_slope(x: Tensor) -> Tensor:
    """Return the derivative of the sigmoid p(x), which is p(x) (1 - p(x))."""
    p = torch.sigmoid(x)
    return p * (1 - p)


def _softplus(x: Tensor) -> Tensor:
    """Return softplus, log(1 + e^x), as max(x, 0) + log(1 + e^-|x|), which does not overflow.

    PyTorch's softplus is not used. It returns x above its threshold of 20, and so drops by 2e-9
    there, but bounds need a function that is increasing.
    """
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _gelu(x: Tensor) -> Tensor:
    """Return GELU, x Phi(x), where Phi is the standard normal distribution function."""
    return x * _normal_cdf(x)


def _gelu_slope(x: Tensor) -> Tensor:
    """Return the derivative of GELU, Phi(x) + x phi(x).

    Phi is the standard normal distribution function and phi its density, e^(-x^2 / 2) / sqrt(2 pi).
    """
    normaliser = 1 / math.sqrt(2 * math.pi)
    return _normal_cdf(x) + x * torch.exp(x * x / -2) * normaliser


def _normal_cdf(x: Tensor) -> Tensor:
    """Return the standard normal distribution function Phi(x)."""
    return (1 + torch.erf(x * math.sqrt(0.5))) / 2


# The only zero of the derivative Phi(x) + x phi(x). GELU has its minimum there, -0.16997.
_GELU_MINIMUM = -0.7517915246935645
_TANH = Activation(
    value=torch.tanh,
    slope=_tanh_slope,
    value_range=(-1.0, 1.0),
    slope_range=(0.0, 1.0),
    slope_turning_points=(0.0,),
)
_SIGMOID = Activation(
    value=torch.sigmoid,
    slope=_sigmoid_slope,
    value_range=(0.0, 1.0),
    slope_range=(0.0, 0.25),
    slope_turning_points=(0.0,),
)
_SOFTPLUS = Activation(
    value=_softplus,
    slope=torch.sigmoid,
    value_range=(0.0, math.inf),
    slope_range=(0.0, 1.0),
    only_with={"beta": 1, "threshold": 20},
)
_GELU = Activation(
    value=_gelu,
    slope=_gelu_slope,
    value_range=(-0.17, math.inf),
    slope_range=(-0.13, 1.13),
    turning_points=(_GELU_MINIMUM,),
    slope_turning_points=(-math.sqrt(2), math.sqrt(2)),
    only_with={"approximate": "none"},
)

# Type of a PyTorch layer -> a function from the layer to the description of its activation.
ELEMENTWISE: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.LeakyReLU: _leaky_relu,
    nn.Tanh: lambda layer: _TANH,
    nn.Sigmoid: lambda layer: _SIGMOID,
    nn.Softplus: lambda layer: _SOFTPLUS,
    nn.GELU: lambda layer: _GELU,
}


@dataclass(frozen=True)
class ReluRule:
    """The rule of ReLU, max(x, 0), whose derivative is 1 for x > 0 and 0 for x <= 0.

    Nominal gradients and bounds use the same derivative at 0. Every operation is exact in floating
    point, so bounds are not widened.

    Attributes:
        name: the layer's name in the network.
        overwrites_bounds: True if ``bound`` may overwrite its input, because nothing but this rule
            reads it: it is the output of a layer that makes new tensors. ``bound_backward`` then
            gets the overwritten input, and max(x, 0) has the derivative of x: it is positive where
            x is.
    """

    name: str
    overwrites_bounds: bool = False

    def nominal(self, inputs: Tensor, point: Point) -> Tensor:
        """Return max(inputs, 0); ``point`` is not used, as ReLU has no parameters."""
        return inputs.clamp(min=0)

    def nominal_backward(self, output_gradient: Tensor, inputs: Tensor, point: Point) -> Tensor:
        """Return output_gradient where inputs > 0, and 0 elsewhere.

        ``point`` is not used, as ReLU has no parameters.
        """
        return torch.where(inputs > 0, output_gradient, 0.0)

    def bound(
        self, inputs: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound max(inputs, 0) over intervals of the input, in the shape of inputs.

        Only ``inputs`` is used: ReLU has no parameters, and its values are exact.
        """
        if isinstance(inputs, ReluOutput):  # the layer before has applied the ReLU already
            return inputs
        if self.overwrites_bounds:
            return ReluOutput.from_inputs(inputs)
        # ReLU is nondecreasing, so the images of the ends are the bounds, in order and finite.
        return Interval.unchecked(inputs.lower.clamp(min=0), inputs.upper.clamp(min=0))

    def bound_backward(
        self,
        output_gradient: Interval,
        inputs: Interval,
        box: Intervals,
        rounding: Rounding,
        products: Products,
    ) -> Interval:
        """Bound output_gradient times the derivative of ReLU at inputs, in the shape of inputs.

        The derivative is 1 where the whole interval of the input is positive, 0 where all of it is
        at most 0, and in [0, 1] elsewhere.

        Args:
            output_gradient: bounds on the loss gradient in the layer's output; may be overwritten.
            inputs: bounds on the layer's input, of the same shape.
            box: not used.
            rounding: not used, because the product is exact.
            products: gives the implementation of the product, ``relu_backward``.
        """
        if isinstance(output_gradient, ReluGradient):  # the layer behind has multiplied already
            return output_gradient
        return Interval.unchecked(*products.relu_backward(output_gradient, inputs))
