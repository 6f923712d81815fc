"""Activations that act on each number alone."""

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

MARGIN = 32.0  # in units of u: past what any of these functions errs by, twice
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Activation:
    """s, and what its bounds need to know of it.

    Attributes:
        value, slope: s and s', elementwise, finite for finite arguments.
        range: the least and the greatest value of s, or a little outside, exact in both dtypes or
            never reached.
        slopes: the same for s'.
        turns, slope_turns: where s and s' turn from rising to falling or back.
        margin: what a computed value may err by, twice, in units of u.
        only: settings of the layer that this describes, if it has others.
    """

    value: Function
    slope: Function
    range: tuple[float, float]
    slopes: tuple[float, float]
    turns: tuple[float, ...] = ()
    slope_turns: tuple[float, ...] = ()
    margin: float = MARGIN
    only: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ElementwiseRule:
    """y = s(x)."""

    name: str
    activation: Activation

    @classmethod
    def of(cls, name: str, layer: nn.Module) -> "ElementwiseRule":
        """The rule of a layer whose type ``ELEMENTWISE`` lists.

        Raises:
            ConfigError: the layer has settings that no entry describes.
        """
        activation = ELEMENTWISE[type(layer)](layer)
        for setting, value in activation.only.items():
            given = getattr(layer, setting)
            if given != value:
                kind = type(layer).__name__
                raise ConfigError(
                    f"model: no bound rule for layer {name} ({kind}) with {setting}={given!r}, "
                    f"only with {value!r}"
                )
        return cls(name, activation)

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return self.activation.value(x).clamp(*self.activation.range)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d * self.activation.slope(x).clamp(*self.activation.slopes)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """[K or 1, n, width] -> [K, n, width]."""
        s = self.activation
        grows = math.inf in s.range or -math.inf in s.range
        tau: Tensor | float = s.margin * rounding.unit_roundoff
        return _widened(
            _range(s.value, x, s.turns),
            tau * (1 + x.magnitude()) if grows else tau,
            rounding,
            s.range,
        )

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d times the derivative's range."""
        s = self.activation
        slope = _widened(
            _range(s.slope, x, s.slope_turns), s.margin * rounding.unit_roundoff, rounding, s.slopes
        )
        return Interval(*corners(d, slope))


def _range(function: Function, x: Interval, turns: tuple[float, ...]) -> Bounds:
    """The function's extremes over each interval, as computed."""
    at = [x.lower, x.upper, *(torch.full_like(x.lower, t).clamp(x.lower, x.upper) for t in turns)]
    values = [function(point) for point in at]
    return reduce(torch.minimum, values), reduce(torch.maximum, values)


def _widened(
    bounds: Bounds, tau: Tensor | float, rounding: Rounding, ends: tuple[float, float]
) -> Interval:
    """Widened for each k, and cut to what the function takes."""
    ks = len(rounding.factor)
    lower, upper = (t.expand(ks, *t.shape[1:]).contiguous() for t in bounds)  # widening overwrites
    if not isinstance(tau, float) or tau:
        widened = rounding.widen((lower, upper), tau)
        lower, upper = widened.lower, widened.upper
    return Interval.unchecked(lower.clamp(*ends), upper.clamp(*ends))


# -- the functions
# -------------------------------------------------------------------------------------------------------


def _leaky(layer: nn.LeakyReLU) -> Activation:
    """x for x > 0, else a x, with derivative a at 0 as PyTorch has it: one rounded product at
    most.
    """
    a = layer.negative_slope
    if not 0 <= a <= 1:
        raise ConfigError(
            f"model: LeakyReLU with negative_slope={a} has no bound rule: give one between 0 and 1"
        )
    return Activation(
        lambda x: torch.where(x > 0, x, x * a),
        lambda x: torch.where(x > 0, torch.ones_like(x), torch.full_like(x, a)),
        (-math.inf, math.inf),
        (0.0, 1.0),
        margin=0.0,
    )


def _sigmoid_slope(x: Tensor) -> Tensor:
    p = torch.sigmoid(x)
    return p * (1 - p)


def _softplus(x: Tensor) -> Tensor:
    """log(1 + e^x).

    PyTorch's jumps to x above its threshold of 20, down by 2e-9: not monotone, so not taken.
    """
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _gelu(x: Tensor) -> Tensor:
    return x * _normal(x)


def _gelu_slope(x: Tensor) -> Tensor:
    return _normal(x) + x * torch.exp(x * x / -2) * (1 / math.sqrt(2 * math.pi))


def _normal(x: Tensor) -> Tensor:
    return (1 + torch.erf(x * math.sqrt(0.5))) / 2


_GELU_LEAST = -0.7517915246935645  # where Phi(x) + x phi(x) = 0; gelu is -0.16997 there
_TANH = Activation(
    torch.tanh, lambda x: 1 - torch.tanh(x).square(), (-1.0, 1.0), (0.0, 1.0), slope_turns=(0.0,)
)
_SIGMOID = Activation(torch.sigmoid, _sigmoid_slope, (0.0, 1.0), (0.0, 0.25), slope_turns=(0.0,))
_SOFTPLUS = Activation(
    _softplus, torch.sigmoid, (0.0, math.inf), (0.0, 1.0), only={"beta": 1, "threshold": 20}
)
_GELU = Activation(
    _gelu,
    _gelu_slope,
    (-0.17, math.inf),
    (-0.13, 1.13),
    turns=(_GELU_LEAST,),
    slope_turns=(-math.sqrt(2), math.sqrt(2)),
    only={"approximate": "none"},
)

ELEMENTWISE: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.LeakyReLU: _leaky,
    nn.Tanh: lambda layer: _TANH,
    nn.Sigmoid: lambda layer: _SIGMOID,
    nn.Softplus: lambda layer: _SOFTPLUS,
    nn.GELU: lambda layer: _GELU,
}


@dataclass(frozen=True)
class ReluRule:
    """max(x, 0), with derivative 1 for x > 0 and 0 for x <= 0; nominal and bounds use the same
    value at 0.
    """

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.clamp(min=0)

    def nominal_backward(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return torch.where(x > 0, d, 0.0)

    def bound(
        self, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        return Interval.unchecked(x.lower.clamp(min=0), x.upper.clamp(min=0))

    def bound_backward(
        self, d: Interval, x: Interval, box: Intervals, rounding: Rounding, products: Products
    ) -> Interval:
        """d times the derivative: 1 where x.lower > 0, 0 where x.upper <= 0, else anything in
        [0, 1].
        """
        return Interval.unchecked(*products.relu_backward(d, x))
