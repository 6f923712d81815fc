"""The registry."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from agt.bounds.activations import ELEMENTWISE, ElementwiseRule, ReluRule
from agt.bounds.convolution import ConvRule
from agt.bounds.layer_rule import LayerRule
from agt.bounds.linear import LinearRule
from agt.bounds.pooling import AvgPoolRule
from agt.bounds.reshaping import FlattenRule
from agt.errors import ConfigError, nearest

RULES: dict[type[nn.Module], Callable[[str, Any], LayerRule]] = {
    nn.Linear: lambda name, layer: LinearRule(name, layer.bias is not None),
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: FlattenRule.of,
    nn.Unflatten: FlattenRule.back,
    nn.AvgPool2d: AvgPoolRule.of,
    nn.Conv2d: ConvRule.of,
    **dict.fromkeys(ELEMENTWISE, ElementwiseRule.of),
}


TRAINED = (LinearRule, ConvRule)  # those with parameters (contract.Trained)
# what a layer takes and leaves; the others take both, and leave the same
TURNS: dict[type[nn.Module], tuple[str, str]] = {
    nn.Linear: ("rows", "rows"),
    nn.Conv2d: ("images", "images"),
    nn.AvgPool2d: ("images", "images"),
    nn.Flatten: ("images", "rows"),
    nn.Unflatten: ("rows", "images"),
}
NamedLayers = dict[str, nn.Module]


def rules_for(head: nn.Sequential) -> tuple[LayerRule, ...]:
    """The rule of each layer, in order.

    Raises:
        ConfigError: a layer has no rule, two layers share a parameter (their gradients would have
            to be added), or a layer for images is given rows, or one for rows images.
    """
    if len(list(head.parameters())) < len(list(head.named_parameters(remove_duplicate=False))):
        raise ConfigError("model: two layers share a parameter, which no bound rule covers")
    # Not named_children(), which names a layer used twice (a shared ReLU) only once.
    layers = {name: layer for name, layer in head._modules.items() if layer is not None}
    for name, layer in layers.items():
        if type(layer) not in RULES:
            kind = type(layer).__name__
            raise ConfigError(
                f"model: no bound rule for layer {name} "
                f"({kind}){nearest(kind, [t.__name__ for t in RULES])}"
            )
    _check_order(layers)
    rules, nonnegative = list[LayerRule](), False
    for name, layer in layers.items():
        rule = RULES[type(layer)](name, layer)
        rules.append(replace(rule, nonnegative=nonnegative) if isinstance(rule, TRAINED) else rule)
        nonnegative = _nonnegative(rule, nonnegative)
    return tuple(rules)


def _nonnegative(rule: LayerRule, before: bool) -> bool:
    """Whether a layer gives no value below 0, whatever it is given; ``before``: of none below 0."""
    if isinstance(rule, FlattenRule | AvgPoolRule):
        return before  # the same numbers, or their means
    return isinstance(rule, ReluRule) or (
        isinstance(rule, ElementwiseRule) and rule.activation.range[0] >= 0
    )


def _check_order(layers: NamedLayers) -> None:
    """Raise ConfigError where a layer that takes rows is given images, or the other way round.

    Whether they have the right size is another question, and what records are, too
    (network.Network.check).
    """
    last, given = "", ""
    for name, layer in layers.items():
        kind, (takes, leaves) = (
            f"layer {name} ({type(layer).__name__})",
            TURNS.get(type(layer), (given, given)),
        )
        if given and takes != given:
            between = "nn.Flatten()" if takes == "rows" else "nn.Unflatten()"
            raise ConfigError(
                f"model: {kind} takes {takes}, and {last} leaves {given}: put {between} between "
                "them"
            )
        last, given = kind, leaves
