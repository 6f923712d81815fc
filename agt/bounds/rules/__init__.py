"""One rule per layer: how a nominal value and a box pass forward, and how a loss gradient passes back.

``RULES`` is the registry, keyed on the exact layer type: a subclass may compute something else, so it is as unknown as any
other layer, and an unknown layer is an error before training starts. What a rule owes: contract.py.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from agt.bounds.rules.contract import Rule
from agt.bounds.rules.elementwise import ELEMENTWISE, ElementwiseRule
from agt.bounds.rules.flatten import FlattenRule
from agt.bounds.rules.linear import LinearRule
from agt.bounds.rules.relu import ReluRule
from agt.errors import ConfigError, nearest

RULES: dict[type[nn.Module], Callable[[str, Any], Rule]] = {
    nn.Linear: lambda name, layer: LinearRule(name, layer.bias is not None),
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: lambda name, layer: FlattenRule(name),
    **dict.fromkeys(ELEMENTWISE, ElementwiseRule.of),
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
