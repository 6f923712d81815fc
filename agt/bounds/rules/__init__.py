"""One rule per layer: how a nominal value and a box pass forward, and how a loss gradient passes back.

``RULES`` is the registry, keyed on the exact layer type: a subclass may compute something else, so it is as unknown as any
other layer, and an unknown layer is an error before training starts. What a rule owes: contract.py.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import Any

from torch import nn

from agt.bounds.rules.contract import Rule
from agt.bounds.rules.elementwise import ELEMENTWISE, ElementwiseRule
from agt.bounds.rules.flatten import FlattenRule
from agt.bounds.rules.linear import LinearRule
from agt.bounds.rules.pool import AvgPoolRule
from agt.bounds.rules.relu import ReluRule
from agt.errors import ConfigError, nearest

RULES: dict[type[nn.Module], Callable[[str, Any], Rule]] = {
    nn.Linear: lambda name, layer: LinearRule(name, layer.bias is not None),
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: lambda name, layer: FlattenRule(name),
    nn.AvgPool2d: AvgPoolRule.of,
    **dict.fromkeys(ELEMENTWISE, ElementwiseRule.of),
}


def rules_for(head: nn.Sequential) -> tuple[Rule, ...]:
    """The rule of each layer, in order.

    Raises:
        ConfigError: a layer has no rule, two layers share a parameter (their gradients would have to be added), or layers
            for images stand elsewhere than in front.
    """
    if len(list(head.parameters())) < len(list(head.named_parameters(remove_duplicate=False))):
        raise ConfigError("model: two layers share a parameter, which no bound rule covers")
    # Not named_children(), which names a layer used twice (a shared ReLU) only once.
    layers = {name: layer for name, layer in head._modules.items() if layer is not None}
    for name, layer in layers.items():
        if type(layer) not in RULES:
            kind = type(layer).__name__
            raise ConfigError(f"model: no bound rule for layer {name} ({kind}){nearest(kind, [t.__name__ for t in RULES])}")
    rules = [RULES[type(layer)](name, layer) for name, layer in layers.items()]
    for place, (before, rule) in enumerate(pairwise(rules), start=1):
        if isinstance(rule, LinearRule) and _nonnegative(before):
            rules[place] = replace(rule, nonnegative=True)
    _check_front(layers)
    return tuple(rules)


def _nonnegative(rule: Rule) -> bool:
    """Whether a layer gives no value below 0, whatever it is given."""
    return isinstance(rule, ReluRule) or (isinstance(rule, ElementwiseRule) and rule.activation.range[0] >= 0)


def _check_front(layers: dict[str, nn.Module]) -> None:
    """Raise ConfigError unless records become rows of numbers in front: AvgPool2d layers, if any, and then one Flatten.

    Every other rule takes rows, [n, width], and is proved and widened for them alone.
    """
    kinds = [type(layer) for layer in layers.values()]
    pools = len(list(takewhile(lambda kind: kind is nn.AvgPool2d, kinds)))
    flattened = kinds[pools : pools + 1] == [nn.Flatten]
    if pools and not flattened:
        raise ConfigError(f"model: layer {list(layers)[pools - 1]} (AvgPool2d) leaves images: put nn.Flatten() after it")
    for index, (name, layer) in enumerate(layers.items()):
        if isinstance(layer, nn.Flatten) and (layer.start_dim != 1 or layer.end_dim != -1):
            raise ConfigError(f"model: layer {name} (Flatten) flattens some axes alone: use plain nn.Flatten()")
        if isinstance(layer, nn.AvgPool2d | nn.Flatten) and index >= pools + flattened:
            raise ConfigError(f"model: layer {name} ({type(layer).__name__}) is supported in front of all others only")
