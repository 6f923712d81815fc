"""One rule per layer: how a nominal value and a box pass forward, and how a loss gradient passes back.

A rule is a few short functions and one line in ``RULES``, keyed on the exact layer type: a subclass may compute something
else, so it is as unknown as any other layer, and an unknown layer is an error before training starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from agt.bounds.interval import Interval
from agt.bounds.products import Products
from agt.bounds.rounding import Rounding
from agt.errors import ConfigError, nearest

Box = Mapping[str, Interval]  # parameter name -> [K, ...] bounds
Point = Mapping[str, Tensor]  # parameter name -> nominal value


class Rule(Protocol):
    """How one layer acts. x is the layer's input; d the gradient of the loss in its output."""

    def nominal(self, x: Tensor, point: Point) -> Tensor: ...
    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor: ...
    def bound(self, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval: ...
    def bound_back(self, d: Interval, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval: ...


@dataclass(frozen=True)
class LinearRule:
    """y = x W^T + b (method.md section 1). ``name`` prefixes the parameters: ``0.weight``, ``0.bias``."""

    name: str
    bias: bool

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        """[n, in] -> [n, out]."""
        return nn.functional.linear(x, point[f"{self.name}.weight"], point[f"{self.name}.bias"] if self.bias else None)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        """[n, out] -> [n, in]."""
        return d @ point[f"{self.name}.weight"]

    def bound(self, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        """[K or 1, n, in] -> [K, n, out]; exact products are exact, and all are widened for rounding."""
        weight = box[f"{self.name}.weight"]
        lower, upper = products.forward(x, weight)
        if self.bias:
            bias = box[f"{self.name}.bias"]
            lower, upper = lower.add_(bias.lower[:, None, :]), upper.add_(bias.upper[:, None, :])
        return rounding.widen((lower, upper), self.rounding_of(x, box, rounding))

    def rounding_of(self, x: Interval, box: Box, rounding: Rounding) -> Tensor:
        """tau of each record's outputs, [K, n, 1]."""
        return rounding.dot(x, box[f"{self.name}.weight"], box[f"{self.name}.bias"] if self.bias else None)

    def bound_back(self, d: Interval, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        """d_in = W^T d_out. [K, n, out] -> [K, n, in]."""
        weight = box[f"{self.name}.weight"]
        transposed = Interval.image(weight.lower.mT, weight.upper.mT)
        return rounding.widen(products.back(d, transposed), rounding.dot(d, weight))


@dataclass(frozen=True)
class ReluRule:
    """max(x, 0), with derivative 1 for x > 0 and 0 for x <= 0; nominal and bounds use the same value at 0."""

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.clamp(min=0)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return torch.where(x > 0, d, 0.0)

    def bound(self, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        return Interval.image(x.lower.clamp(min=0), x.upper.clamp(min=0))

    def bound_back(self, d: Interval, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        """d times the derivative: 1 where x.lower > 0, 0 where x.upper <= 0, else anything in [0, 1]."""
        return Interval.image(*products.gate(d, x))


@dataclass(frozen=True)
class FlattenRule:
    """[n, ...] -> [n, features]; only as the first layer, where the input is a point."""

    name: str

    def nominal(self, x: Tensor, point: Point) -> Tensor:
        return x.flatten(1)

    def nominal_back(self, d: Tensor, x: Tensor, point: Point) -> Tensor:
        return d.reshape(x.shape)

    def bound(self, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        if x.is_point:
            return Interval.point(x.lower.flatten(2))
        return Interval.image(x.lower.flatten(2), x.upper.flatten(2))

    def bound_back(self, d: Interval, x: Interval, box: Box, rounding: Rounding, products: Products) -> Interval:
        shape = d.shape[:2] + x.shape[2:]
        return Interval.image(d.lower.reshape(shape), d.upper.reshape(shape))


def _linear_rule(name: str, layer: nn.Module) -> Rule:
    return LinearRule(name, layer.bias is not None)


RULES = {
    nn.Linear: _linear_rule,
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: lambda name, layer: FlattenRule(name),
}


def rules_for(head: nn.Sequential) -> tuple[Rule, ...]:
    """The rule of each layer, in order.

    Raises:
        ConfigError: a layer has no rule, two layers share a parameter (their gradients would have to be added), or a
            Flatten that is not plain ``nn.Flatten()`` in front.
    """
    rules = []
    if len(list(head.parameters())) < len(list(head.named_parameters(remove_duplicate=False))):
        raise ConfigError("model: two layers share a parameter, which no bound rule covers")
    # Not named_children(), which names a layer used twice (a shared ReLU) only once.
    for index, (name, layer) in enumerate(head._modules.items()):
        if layer is None:
            continue
        if type(layer) not in RULES:
            kind = type(layer).__name__
            raise ConfigError(f"model: no bound rule for layer {name} ({kind}){nearest(kind, [t.__name__ for t in RULES])}")
        if isinstance(layer, nn.Flatten) and (index or layer.start_dim != 1 or layer.end_dim != -1):
            raise ConfigError(f"model: Flatten is supported as the first layer only, and layer {name} is not")
        rules.append(RULES[type(layer)](name, layer))
    return tuple(rules)
