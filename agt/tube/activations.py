"""Smooth activations: the function, its first two derivatives, and bounds on the first three.

| name     | s                     | |s'|   | |s''|            | |s'''|                |
|----------|-----------------------|--------|------------------|-----------------------|
| tanh     | tanh z                | 1      | 4 / (3 sqrt 3)   | 2                     |
| softplus | log(1 + e^z)          | 1      | 1/4              | 1 / (6 sqrt 3)        |
| gelu     | z Phi(z)              | 1.1290 | sqrt(2 / pi)     | .7788                 |

Where they are attained: tanh'' = -2 t (1 - t^2) at t = 1/sqrt 3, tanh''' = -2 (1 - t^2)(1 - 3 t^2) at 0; softplus' is the
logistic function p, p' = p (1 - p) at 0, p'' = p (1 - p)(1 - 2 p) at p = (1 -+ 1/sqrt 3)/2; gelu' = Phi + z phi at sqrt 2,
gelu'' = (2 - z^2) phi at 0, gelu''' = z (z^2 - 4) phi where z^4 - 7 z^2 + 4 = 0, at z^2 = (7 - sqrt 33)/2.

Source: method.md section 9; the bounds here are rounded up.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_ROOT = 1 / math.sqrt(2 * math.pi)
_UP = 1 + 2.0**-40  # more than the roundings of the expressions below


@dataclass(frozen=True)
class Activation:
    """A smooth function with bounded derivatives.

    Formal guarantees
        What ``at`` computes is within ``ERROR`` (1 + |z|) of each of s, s', s'': libraries' exponentials, tanh and erfc are
        within a few units in the last place, and what follows is less than a dozen roundings of numbers of size 1 + |z|.

    Attributes:
        slope, bend, twist: s1, s2, s3: bounds on |s'|, |s''|, |s'''|.
        zero: |s(0)|, rounded up.
        at: [...] -> (s, s', s''), float64.
    """

    slope: float
    bend: float
    twist: float
    zero: float
    at: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


ERROR = 2.0**-48  # 32 u


def _tanh(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t = torch.tanh(z)
    slope = 1 - t * t
    return t, slope, t * slope * -2


def _softplus(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    p = torch.sigmoid(z)
    value = torch.clamp(z, min=0) + torch.log1p(torch.exp(-torch.abs(z)))
    return value, p, p * (1 - p)


def _gelu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    below, density = torch.special.erfc(z * -math.sqrt(0.5)) / 2, torch.exp(z * z / -2) * _ROOT
    return z * below, below + z * density, (2 - z * z) * density


SMOOTH: dict[str, Activation] = {
    "tanh": Activation(1.0, 4 / (3 * math.sqrt(3)) * _UP, 2.0, 0.0, _tanh),
    "softplus": Activation(1.0, 0.25, 1 / (6 * math.sqrt(3)) * _UP, math.log(2) * _UP, _softplus),
    "gelu": Activation(1.128904146, 2 * _ROOT * _UP, 0.77877, 0.0, _gelu),
}
"""The activations that a tube is proved for, by the name that ``model.activation`` has."""
