"""Rules of activations, which act on each number alone.

``ELEMENTWISE`` is the registry of activations; ReLU has a rule of its own. The proofs are in
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
from agt.bounds.interval import Interval
from agt.bounds.products import Bounds, Products, corners
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError

# In units of roundoff: at least twice what any function here errs by. Lemma 2 of
# docs/proofs/activations.md.
MARGIN = 32.0
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Activation:
    """A scalar function s, and what bounds need to know about it.

    Attributes:
        value, slope: s and its derivative s', elementwise, finite for every finite argument.
        value_range: the smallest and the largest value of s, exact in both dtypes, or slightly
            wider.
        slope_range: the same for s'.
        turning_points: where s changes between rising and falling.
        slope_turning_points: the same for s'.
        margin: at least twice what a computed value may err by, in units of roundoff: absolute for
            s' and a bounded s, relative to 1 + |x| for an s without bound.
        only_with: settings of the PyTorch layer, by name, for which this description is right.
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
    """The rule of a layer that applies an ``Activation`` to each number."""

    name: str
    activation: Activation

    @classmethod
    def from_layer(cls, name: str, layer: nn.Module) -> "ElementwiseRule":
        """Return the rule of a layer whose type is in ``ELEMENTWISE``.

        Raises:
            ConfigError: the layer has a setting that its activation does not describe.
        """
        activation = ELEMENTWISE[type(layer)](layer)
        for setting, value in activation.only_with.items():
            given = getattr(layer, setting)
            if given != value:
                kind = type(layer).__name__
                raise ConfigError(
                    f"model: no bound rule for layer {name} ({kind}) with {setting}={given!r}, "
                    f"only with {value!r}"
                )
        return cls(name, activation)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return s(x), clamped to its range; ``point`` is not needed."""
        return self.activation.value(x).clamp(*self.activation.value_range)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return d s'(x), with s' clamped to its range; ``point`` is not needed."""
        return d * self.activation.slope(x).clamp(*self.activation.slope_range)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound s over an interval, [K or 1, n, width] -> [K, n, width]."""
        s = self.activation
        # Lemma 2 of docs/proofs/activations.md.
        tau: Tensor | float = s.margin * rounding.unit_roundoff
        if math.inf in s.value_range or -math.inf in s.value_range:
            tau = tau * (1 + x.magnitude())
        return _widened(_extremes(s.value, x, s.turning_points), tau, rounding, s.value_range)

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound d s'(x) over intervals, all [K, n, width]."""
        s = self.activation
        tau = s.margin * rounding.unit_roundoff
        extremes = _extremes(s.slope, x, s.slope_turning_points)
        slope = _widened(extremes, tau, rounding, s.slope_range)
        # Lemma 3 of docs/proofs/activations.md: a rounded product is monotone in each factor.
        return Interval(*corners(d, slope))


def _extremes(function: Function, x: Interval, turning_points: tuple[float, ...]) -> Bounds:
    """Return a function's computed extremes over each interval.

    They are among its values at both ends and at each turning point, which is clamped to the
    interval and is then an end again if it lies outside (Lemma 1 of docs/proofs/activations.md).
    """
    candidates = [x.lower, x.upper]
    for turning_point in turning_points:
        candidates.append(torch.full_like(x.lower, turning_point).clamp(x.lower, x.upper))
    values = [function(candidate) for candidate in candidates]
    return reduce(torch.minimum, values), reduce(torch.maximum, values)


def _widened(
    bounds: Bounds, tau: Tensor | float, rounding: Rounding, value_range: tuple[float, float]
) -> Interval:
    """Widen computed extremes for each k, and clamp them to the function's range.

    Args:
        bounds: [K or 1, n, ...] each.
        tau: what a value may err by; 0.0 for a function that is monotone as computed.
    """
    ks = len(rounding.factor)
    # Widening overwrites its operands, so each k needs memory of its own.
    lower, upper = (end.expand(ks, *end.shape[1:]).contiguous() for end in bounds)
    if not isinstance(tau, float) or tau:
        widened = rounding.widen((lower, upper), tau)
        lower, upper = widened.lower, widened.upper
    return Interval.unchecked(lower.clamp(*value_range), upper.clamp(*value_range))


def _leaky_relu(layer: nn.LeakyReLU) -> Activation:
    """Return x for x > 0 and a x otherwise, with PyTorch's derivative a at 0.

    A value is at most one rounded product, so it is monotone as computed and needs no margin.

    Raises:
        ConfigError: the slope a is not between 0 and 1.
    """
    a = layer.negative_slope
    if not 0 <= a <= 1:
        raise ConfigError(
            f"model: LeakyReLU with negative_slope={a} has no bound rule: give one between 0 and 1"
        )
    return Activation(
        value=lambda x: torch.where(x > 0, x, x * a),
        slope=lambda x: torch.where(x > 0, torch.ones_like(x), torch.full_like(x, a)),
        value_range=(-math.inf, math.inf),
        slope_range=(0.0, 1.0),
        margin=0.0,
    )


def _tanh_slope(x: Tensor) -> Tensor:
    """Return the derivative of tanh, 1 - tanh(x)^2."""
    return 1 - torch.tanh(x).square()


def _sigmoid_slope(x: Tensor) -> Tensor:
    """Return the derivative of the sigmoid p(x), p (1 - p)."""
    p = torch.sigmoid(x)
    return p * (1 - p)


def _softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x).

    PyTorch's own function is not used: above its threshold of 20 it jumps down by 2e-9 to x, so it
    is not monotone.
    """
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _gelu(x: Tensor) -> Tensor:
    """Return x Phi(x), where Phi is the normal distribution function."""
    return x * _normal_cdf(x)


def _gelu_slope(x: Tensor) -> Tensor:
    """Return the derivative of GELU, Phi(x) + x phi(x), where phi is the normal density."""
    return _normal_cdf(x) + x * torch.exp(x * x / -2) * (1 / math.sqrt(2 * math.pi))


def _normal_cdf(x: Tensor) -> Tensor:
    """Return the standard normal distribution function Phi(x)."""
    return (1 + torch.erf(x * math.sqrt(0.5))) / 2


_GELU_MINIMUM = -0.7517915246935645  # where Phi(x) + x phi(x) = 0; GELU is -0.16997 there
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

    Nominal values and bounds use the same derivative at 0. Bounds are exact, without widening.
    """

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """Return max(x, 0); ``point`` is not needed."""
        return x.clamp(min=0)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """Return d where x > 0, and 0 elsewhere; ``point`` is not needed."""
        return torch.where(x > 0, d, 0.0)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound max(x, 0), in the shape of x."""
        return Interval.unchecked(x.lower.clamp(min=0), x.upper.clamp(min=0))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """Bound d times the derivative, which is in [0, 1] where x may have either sign."""
        return Interval.unchecked(*products.relu_backward(d, x))
