"""The registry of layers: which layer types have a bound rule, and the rules of a network."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from agt.bounds.activations import ELEMENTWISE, ElementwiseRule, ReluRule
from agt.bounds.convolution import ConvRule
from agt.bounds.layer_rule import LayerRule
from agt.bounds.linear import LinearRule
from agt.bounds.pooling import AvgPoolRule
from agt.bounds.reshaping import ReshapeRule
from agt.bounds.unsupported import advice_for, describe_layer
from agt.errors import ConfigError
from agt.messages import Message, joined

# Layer type -> a function from the layer's name and the layer to its rule. The exact type is looked
# up: a subclass may compute something else, so it has no rule unless it is listed.
RULES: dict[type[nn.Module], Callable[[str, Any], LayerRule]] = {
    nn.Linear: lambda name, layer: LinearRule(name, layer.bias is not None),
    nn.ReLU: lambda name, layer: ReluRule(name),
    nn.Flatten: ReshapeRule.from_flatten,
    nn.Unflatten: ReshapeRule.from_unflatten,
    nn.AvgPool2d: AvgPoolRule.from_layer,
    nn.Conv2d: ConvRule.from_layer,
    **dict.fromkeys(ELEMENTWISE, ElementwiseRule.from_layer),
}

TRAINED_RULES = (LinearRule, ConvRule)  # rules of layers with parameters (TrainedLayerRule)

# Layer type -> (form of its input, form of its output) for one record: a row of numbers or an image
# (channels, height, width). Layers that are not listed take both forms and keep them.
RECORD_FORMS: dict[type[nn.Module], tuple[str, str]] = {
    nn.Linear: ("rows", "rows"),
    nn.Conv2d: ("images", "images"),
    nn.AvgPool2d: ("images", "images"),
    nn.Flatten: ("images", "rows"),
    nn.Unflatten: ("rows", "images"),
}


def rules_for(head: nn.Sequential) -> tuple[LayerRule, ...]:
    """Return the bound rule of each layer of a network, in order.

    Layers with parameters are told whether their input is nonnegative for all data, which allows a
    cheaper exact interval product.

    Args:
        head: the layers; their settings are read, and their parameters only for their shapes.

    Raises:
        ConfigError: a layer has no rule; two layers share a parameter, so that their gradients
            would have to be added, which no rule does; or a layer that takes images follows one
            that gives rows, or one that takes rows follows one that gives images.
    """
    # A parameter that several layers share is listed once here, and below as often as it is used.
    parameters = list(head.parameters())
    uses_of_parameters = list(head.named_parameters(remove_duplicate=False))
    if len(parameters) < len(uses_of_parameters):
        raise ConfigError(
            "model: two layers share a parameter, and agt cannot compute bounds for that: give "
            "each layer its own parameters"
        )
    # Not named_children(), which names a layer that is used twice (a shared ReLU) only once.
    layers = {name: layer for name, layer in head._modules.items() if layer is not None}
    without_rule = missing_rules(layers)
    if without_rule is not None:
        raise ConfigError(Message("model: {without_rule}", without_rule=without_rule))
    _check_record_forms(layers)
    rules = list[LayerRule]()
    nonnegative = False  # the first input is a record, whose features may be negative
    for name, layer in layers.items():
        rule = RULES[type(layer)](name, layer)
        if isinstance(rule, TRAINED_RULES):
            rule = replace(rule, nonnegative=nonnegative)
        if isinstance(rule, ReluRule) and rules and isinstance(rules[-1], TRAINED_RULES):
            rule = replace(rule, overwrites_bounds=True)
        if isinstance(rule, ReluRule) and rules and isinstance(rules[-1], LinearRule):
            rules[-1] = replace(rules[-1], before_relu=True)
        if isinstance(rule, LinearRule) and rules and isinstance(rules[-1], ReluRule):
            rule = replace(rule, behind_relu=True)
        rules.append(rule)
        nonnegative = _is_output_nonnegative(rule, nonnegative)
    return tuple(rules)


def missing_rules(layers: Mapping[str, nn.Module]) -> Message | None:
    """Return a message that names the layers without a rule and remedies; None: all have one.

    Args:
        layers: the layer's name -> the layer, in the order of the network.
    """
    layers_of_advice: dict[str, list[str]] = {}
    for name, layer in layers.items():
        if type(layer) not in RULES:
            is_last = layer is [*layers.values()][-1]
            advice = advice_for(layer, RULES, is_last=is_last)
            layers_of_advice.setdefault(advice, []).append(describe_layer(name, layer))
    if not layers_of_advice:
        return None
    remedies = [
        Message("{layers}. " + advice, layers=" and ".join(described))
        for advice, described in layers_of_advice.items()
    ]
    return Message(
        "agt cannot compute bounds through {remedies}",
        remedies=joined(remedies, ". Nor can it through "),
    )


def _is_output_nonnegative(rule: LayerRule, input_nonnegative: bool) -> bool:
    """Return whether a layer's output is at least 0 for all data and all parameters.

    Args:
        rule: the layer's rule.
        input_nonnegative: whether the layer's input is at least 0 for all data.
    """
    if isinstance(rule, ReshapeRule | AvgPoolRule):
        return input_nonnegative  # the output consists of the same numbers, or of means of them
    if isinstance(rule, ElementwiseRule):
        return rule.activation.value_range[0] >= 0
    return isinstance(rule, ReluRule)


def _check_record_forms(layers: dict[str, nn.Module]) -> None:
    """Raise ConfigError if a layer takes images where rows arrive, or rows where images arrive.

    Only these forms are compared (``RECORD_FORMS``). Sizes and the form of the records are checked
    by ``Network.check_record_shape``, which knows the records.

    Args:
        layers: the layer's name -> the layer, in the order of the network.

    Raises:
        ConfigError: a layer does not accept the form of the previous layer's output.
    """
    previous = ""  # the description of the layer before, for the error
    form = ""  # of the values between layers: "rows" or "images", or empty while it is unknown
    for name, layer in layers.items():
        description = describe_layer(name, layer)
        # A layer that is not listed there accepts either form, and keeps it.
        input_form, output_form = RECORD_FORMS.get(type(layer), (form, form))
        if form and input_form != form:
            between = "nn.Flatten()" if input_form == "rows" else "nn.Unflatten()"
            raise ConfigError(
                f"model: {description} takes {input_form}, but the layer before it, {previous}, "
                f"gives {form}: put {between} between the two layers"
            )
        previous = description
        form = output_form
