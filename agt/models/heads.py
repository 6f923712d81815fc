"""Builders of the trained network (the head): linear, MLP, convolutions, or the user's own.

A builder is a description of the network. Its method ``build`` makes the layers with their initial
parameters, each time that a network is trained or read back.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import RLock
from types import MappingProxyType
from typing import Any, Protocol, TypeGuard, get_args

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from agt.bounds.losses import LOSSES
from agt.bounds.network import output_problem
from agt.bounds.rules import RULES, missing_rules, rules_for
from agt.errors import ConfigError
from agt.facts import Fact, Standing, declared, not_held
from agt.messages import Message, joined
from agt.models.head_settings import ActivationName, ConvSettings, HeadSettings
from agt.models.traced_layers import Layers, check_same_outputs, is_layer, layers_applied
from agt.settings import TrainingConfig, schema, validate
from agt.targets import imported_with_settings

_LAYERS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.GELU)
ACTIVATIONS: dict[str, type[nn.Module]] = dict(zip(get_args(ActivationName), _LAYERS, strict=True))

LayerList = list[dict[str, Any]]
"""For each layer of a network a dict of JSON values: "name", "layer" (its type), and settings."""


class HeadBuilder(Protocol):
    """The description of a head (the network that is trained), from which ``build`` makes it."""

    @property
    def linear(self) -> bool:
        """Whether the head is known to be one linear layer, which closed-form certificates need."""

    def facts(self, choices: Fact) -> tuple[Fact, ...]:
        """Return the facts that initial parameters are public; none if the seed determines them.

        They are evidence for condition e of a privacy guarantee (docs/method.md): preprocessing and
        settings use public data only.

        Args:
            choices: whether the user declares that the settings were chosen on public data.
        """

    def layers_note(self, training: TrainingConfig) -> str:
        """Return a sentence about layers that are trained in place of the user's own module.

        Args:
            training: has the seed of the initial parameters.

        Returns:
            The sentence without its full stop; empty: the network was given as its layers.
        """

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return a new network, with its initial parameters.

        Args:
            shape: the shape of one record's features.
            classes: the number of classes. The network has one output for each class, or one in
                all if the loss takes a single logit for two classes.
            training: has the loss, the seed of the initial parameters and their dtype.

        Raises:
            ConfigError: the network cannot be built, or a layer has no bound rule (the code that
                propagates interval bounds through it).
        """


@schema
class HeadConfig(HeadSettings):
    """The settings of a linear head or an MLP, and the builder of its layers."""

    def facts(self, choices: Fact) -> tuple[Fact, ...]:
        """Return no facts, because the initial parameters come from the public seed."""
        return ()

    def layers_note(self, training: TrainingConfig) -> str:
        """Return an empty text, because the settings are the layers."""
        return ""

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return a new linear network or MLP, with PyTorch's default initialisation.

        Parameters are drawn in float64 and then converted, so that float32 and float64 start from
        the same numbers up to rounding.

        Args:
            shape: the shape of one record's features; an nn.Flatten comes first if it has several
                axes.
            classes: the number of classes.
            training: has the loss, the seed of the initial parameters and their dtype.
        """
        layers: list[nn.Module] = []
        if len(shape) > 1:
            layers.append(nn.Flatten())
        with seeded_generator(training):
            layers += self._dense_layers(int(torch.Size(shape).numel()), classes, training)
        return nn.Sequential(*layers).to(getattr(torch, training.dtype))

    def _dense_layers(self, width: int, classes: int, training: TrainingConfig) -> list[nn.Module]:
        """Return linear layers with an activation between any two of them.

        Args:
            width: the number of inputs of the first layer.
            classes: the number of classes, which is the number of outputs unless the loss takes
                one logit for two classes.
            training: has the loss. The caller seeds PyTorch's generator.
        """
        outputs = 1 if LOSSES[training.loss].one_output else classes
        widths = (width, *self.hidden, outputs)
        layers: list[nn.Module] = []
        for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
            if index > 0:
                layers.append(ACTIVATIONS[self.activation]())
            layers.append(nn.Linear(fan_in, fan_out, dtype=torch.float64))
        return layers


@schema
class ConvConfig(ConvSettings, HeadConfig):
    """The settings of a convolutional network for images, and the builder of its layers.

    Each convolution is followed by an activation and, if asked for, by average pooling. The MLP of
    the base class follows. All layers are trained.
    """

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return a new network of convolutions and an MLP, with its initial parameters.

        Args:
            shape: the (channels, height, width) of one image.
            classes: the number of classes.
            training: has the loss, the seed of the initial parameters and their dtype.

        Raises:
            ConfigError: the records are no images of three axes, or too small for the windows.
        """
        self.check_axes(len(shape))
        windows = zip(
            self.channels, self.kernels, self.strides, self.paddings, self.pools, strict=True
        )
        layers: list[nn.Module] = []
        inputs = shape[0]
        with seeded_generator(training):
            for channels, kernel, stride, padding, pool in windows:
                layers.append(
                    nn.Conv2d(inputs, channels, kernel, stride, padding, dtype=torch.float64)
                )
                layers.append(ACTIVATIONS[self.activation]())
                if pool > 1:
                    layers.append(nn.AvgPool2d(pool))
                # Applied once, to learn the output's shape.
                output = _output_of_zeros(nn.Sequential(*layers), shape)
                inputs = output.shape[1]
            layers.append(nn.Flatten())
            layers += self._dense_layers(output.numel(), classes, training)
        network = nn.Sequential(*layers)
        with torch.no_grad():
            if self.start == "he":
                for parameter in network.parameters():
                    is_bias = parameter.dim() == 1
                    # PyTorch draws weights of variance 1 / (3 fan-in), He's method of 2 / fan-in,
                    # and biases of 0.
                    factor = 0.0 if is_bias else 6**0.5
                    parameter.mul_(factor)
            for parameter in network[-1].parameters():
                parameter.mul_(self.output_scale)
        return network.to(getattr(torch, training.dtype))


def _output_of_zeros(layers: nn.Sequential, shape: tuple[int, ...]) -> torch.Tensor:
    """Apply layers to one record of zeros, to learn the shape of their output.

    Args:
        layers: layers with at least one parameter, whose dtype the record gets.
        shape: the shape of one record.

    Returns:
        The output, [1, ...].

    Raises:
        ConfigError: the layers cannot be applied to a record of this shape.
    """
    zeros = torch.zeros(1, *shape, dtype=next(layers.parameters()).dtype)
    try:
        with torch.no_grad():
            output: torch.Tensor = layers(zeros)
    except RuntimeError as error:
        raise ConfigError(
            f"model: the layers of this network cannot process a record of shape {shape} "
            f"({error}). Change the layers so that they fit this shape"
        ) from None
    return output


@dataclass(frozen=True)
class CustomNetwork:
    """The builder of a network that the user provides as an ``nn.Module``.

    What is trained is an ``nn.Sequential`` of the layers that the module applies to its input, one
    after the other; a module that does something else is refused. Every layer must have a bound
    rule (``agt.bounds.rules``), by which interval bounds pass it.

    Attributes:
        make: returns a new network. If it draws initial parameters from PyTorch's generator, that
            is seeded by ``training.seed``.
        origin: the place that the network comes from, for messages and facts.
        public_start: whether the user declares that the initial parameters are public constants
            (``agt.Declared.network``). None: the declaration of the settings says so, too, as
            ``training.chosen_on=public`` does.
    """

    make: Callable[[], object] = field(compare=False)
    origin: str
    public_start: bool | None = None

    @classmethod
    def from_network(cls, network: nn.Module, public_start: bool = False) -> "CustomNetwork":
        """Return a builder of copies of a network, which start from its current parameters.

        Args:
            network: the network. It is copied, so later changes do not affect the result.
            public_start: the value of the attribute ``public_start``.

        Raises:
            ConfigError: it has hooks or frozen parameters, or cannot be copied.
        """
        # Checked before copying, because a copy loses hooks on tensors, which must be refused.
        _require_plain_parameters(network)
        try:
            copy = deepcopy(network)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(
                "model: the given network cannot be copied, which agt needs to do before "
                f"training ({error}). Remove what copy.deepcopy cannot copy from the network"
            ) from None
        return cls(partial(deepcopy, copy), "the network given", public_start)

    @property
    def linear(self) -> bool:
        """False: a certificate in closed form trains a head of its own."""
        return False

    def facts(self, choices: Fact) -> tuple[Fact, ...]:
        """Return whether the user declares the initial parameters public; code cannot check it.

        The user's own code made them, so they may have been trained on private records.

        Args:
            choices: whether the user declares that the settings were chosen on public data.
        """
        setting = "training.chosen_on=public"
        is_declared = choices.standing is Standing.DECLARED
        if self.public_start is not None:
            setting = "declared.network=True"
            is_declared = self.public_start
        values = {"network": self.origin, "setting": setting}
        if is_declared:
            return (declared("initial_parameters_declared", **values),)
        return (not_held("initial_parameters_undeclared", **values),)

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return a new network made by ``make``, after a check that it can be trained with bounds.

        Args:
            shape: the shape of one record's features.
            classes: the number of classes.
            training: has the loss, the seed of the initial parameters and their dtype.

        Raises:
            ConfigError: the network cannot be made, cannot be applied to records of this shape,
                does not return one row of outputs for each record, or has a layer without a bound
                rule.
        """
        dtype = getattr(torch, training.dtype)
        network = self.check(training, shape, classes).to(dtype)
        with torch.no_grad():
            outputs = network(torch.zeros(1, *shape, dtype=dtype))
        if outputs.dim() != 2:
            output_shape = tuple(outputs.shape[1:])
            raise ConfigError(
                f"model: {self.origin} returns outputs of shape {output_shape} for a record of "
                f"shape {shape}, but must return one row of numbers. Add an nn.Flatten() as "
                "the first layer"
            )
        return network

    def check(
        self,
        training: TrainingConfig,
        shape: tuple[int, ...] | None = None,
        classes: int | None = None,
        other_widths: Mapping[int, str] = MappingProxyType({}),
    ) -> nn.Sequential:
        """Return the layers of a new network made by ``make``, after a check of all of them.

        Before the data are read, the check costs little.

        Args:
            training: has the loss and the seed of the initial parameters.
            shape: the shape of one record's features; None: not known yet.
            classes: the number of classes; None: not known yet.
            other_widths: number of features -> the setting with which a record would have as many,
                as it is typed.

        Raises:
            ConfigError: the network cannot be made, or a layer cannot be used (the message names
                all reasons); or it does not only apply layers one after the other.
        """
        module, layers = self._make_layers(training)
        usable = [layer for layer in layers.values() if type(layer) in RULES]
        problems: list[str | Message] = []
        without_rule = missing_rules(layers)
        if without_rule is not None:
            problems.append(without_rule)
        misfit = None if shape is None else _misfit(layers, shape, other_widths)
        if misfit is not None:
            problems.append(misfit)
        # Without its last layer, which may be the one to be replaced, the end is not known.
        ends_in_linear = bool(usable) and isinstance(usable[-1], nn.Linear)
        if classes is not None and (without_rule is None or ends_in_linear):
            at_end = output_problem(usable, training.loss, classes)
            if at_end is not None:
                problems.append(at_end)
        if problems:
            on_records = "" if shape is None else f" on records of shape {shape}"
            raise ConfigError(
                Message(
                    "model: {origin} cannot be trained{on_records}. {problems}",
                    origin=self.origin,
                    on_records=on_records,
                    problems=joined(problems, ". "),
                )
            )
        _require_plain_parameters(module)
        network = module if _is_plain(module) else nn.Sequential(*layers.values())
        _require_plain_parameters(network)  # forward() may have made layers of its own
        rules_for(network)  # raises ConfigError for layers that do not fit each other
        _require_rebuildable(network)
        if network is not module and shape is not None:
            check_same_outputs(module, network, shape, self.origin)
        return network

    def takes(self, training: TrainingConfig, shape: tuple[int, ...]) -> bool:
        """Return whether each layer, up to the first without a bound rule, fits a record's shape.

        Args:
            training: has the seed of the initial parameters.
            shape: the shape of one record's features.

        Raises:
            ConfigError: the network cannot be made, or does not only apply layers one after the
                other.
        """
        _, layers = self._make_layers(training)
        return _misfit(layers, shape, {}) is None

    def layers_note(self, training: TrainingConfig) -> str:
        """Return a sentence about the layers of a module with its own ``forward``; else empty."""
        module, layers = self._make_layers(training)
        if _is_plain(module) or is_layer(module):
            return ""
        described = ", ".join(f"{name} ({type(layer).__name__})" for name, layer in layers.items())
        return (
            f"agt trains the layers that forward() of {type(module).__name__} applies one after "
            f"the other: {described}"
        )

    def _make_layers(self, training: TrainingConfig) -> tuple[nn.Module, Layers]:
        """Return a new module made by ``make``, and the layers that it applies, by name.

        Args:
            training: has the seed of the initial parameters.

        Raises:
            ConfigError: the module cannot be made, or does not only apply layers one after the
                other.
        """
        with seeded_generator(training):
            try:
                module = self.make()
            except Exception as error:  # whatever the user's code raises is about that code
                raise ConfigError(
                    f"model: {self.origin} cannot be created ({type(error).__name__}: {error}). "
                    "Correct its arguments or its code"
                ) from error
            if module is None:
                raise ConfigError(
                    f"model: {self.origin} returns nothing: is `return` missing in the function?"
                )
            if not isinstance(module, nn.Module):
                raise ConfigError(
                    f"model: {self.origin} has the type {type(module).__name__}, but agt needs a "
                    "network, an nn.Module"
                )
            if _is_plain(module):
                # Not named_children(), which names a layer that is used twice only once.
                children = module._modules.items()
                return module, {name: layer for name, layer in children if layer is not None}
            return module, layers_applied(module, self.origin)


def _is_plain(module: nn.Module) -> TypeGuard[nn.Sequential]:
    """Return whether a module is an ``nn.Sequential`` of single layers, which is used as it is."""
    if type(module) is not nn.Sequential:
        return False
    return all(layer is None or is_layer(layer) for layer in module._modules.values())


def _misfit(layers: Layers, shape: tuple[int, ...], other_widths: Mapping[int, str]) -> str | None:
    """Return a clause about the first layer that cannot take the output before it, or None.

    One synthetic record of zeros goes through the layers, up to the first one without a bound rule.

    Args:
        layers: the layers of the network by name, in their order.
        shape: the shape of one record's features.
        other_widths: number of features -> the setting with which a record would have as many.

    Returns:
        A sentence without a full stop, which also says what to write instead. None: all of these
        layers fit.
    """
    parameters = nn.ModuleList(layers.values()).parameters()
    parameter = next(parameters, torch.zeros(()))
    values = torch.zeros(1, *shape, dtype=parameter.dtype, device=parameter.device)
    is_record = True  # whether ``values`` still are the record, perhaps in another shape
    for name, layer in layers.items():
        if type(layer) not in RULES:
            return None
        try:
            output = _apply_to_record(layer, values)
        except RuntimeError as error:
            misfit = _misfit_of_layer(layer, values, is_record, str(error), other_widths)
            return f"Layer {name} {misfit}"
        values = output
        is_record = is_record and isinstance(layer, nn.Flatten | nn.Unflatten)
    return None


def _apply_to_record(layer: nn.Module, values: torch.Tensor) -> torch.Tensor:
    """Return the output of a layer for one record.

    Args:
        layer: the layer.
        values: [1, ...] what the layers before it give.

    Raises:
        RuntimeError: PyTorch refuses the values; or they have another number of axes than a record
            for this layer. PyTorch itself takes an image without a channel axis, and applies
            nn.Linear to the last axis.
    """
    axes = {nn.Linear: 2, nn.Conv2d: 4, nn.AvgPool2d: 4}.get(type(layer), values.dim())
    if values.dim() != axes:
        raise RuntimeError(f"{values.dim()} axes instead of {axes}")
    with torch.no_grad():
        output: torch.Tensor = layer(values)
    return output


def _misfit_of_layer(
    layer: nn.Module,
    values: torch.Tensor,
    is_record: bool,
    reason: str,
    other_widths: Mapping[int, str],
) -> str:
    """Return a clause that says why a layer does not take some values, and what to write.

    Args:
        layer: the layer.
        values: [1, ...] what the layers before it give.
        is_record: whether these are the features of a record, perhaps in another shape.
        reason: the message of the error.
        other_widths: number of features -> the setting with which a record would have as many.
    """
    shape = values.shape[1:]
    count = shape.numel()
    given = f"{count} numbers"
    if is_record:
        given = f"{count} features (those of a table count after its columns are coded)"
    if isinstance(layer, nn.Linear):
        corrected = f"nn.Linear({count}, {layer.out_features})"
        if len(shape) > 1:
            corrected = f"nn.Flatten(), {corrected}"
        misfit = f"takes {layer.in_features} inputs, but gets {given}: write {corrected} there"
        if is_record and layer.in_features in other_widths:
            setting = other_widths[layer.in_features]
            misfit += f", or give {setting}, with which records have {layer.in_features}"
        return misfit
    if isinstance(layer, nn.Conv2d) and len(shape) == 3 and shape[0] != layer.in_channels:
        corrected = f"nn.Conv2d({shape[0]}, {layer.out_channels}, {layer.kernel_size})"
        return (
            f"takes images of {layer.in_channels} channels, but gets images of shape "
            f"{tuple(shape)}: write {corrected} there"
        )
    if isinstance(layer, nn.Conv2d | nn.AvgPool2d) and len(shape) != 3:
        image = "(CHANNELS, HEIGHT, WIDTH)"
        if len(shape) == 2:
            image = f"(1, {shape[0]}, {shape[1]})"
        return (
            f"takes images (channels, height, width), but gets values of shape {tuple(shape)}: put "
            f"nn.Flatten(), nn.Unflatten(1, {image}) before it"
        )
    return f"({layer}) does not take values of shape {tuple(shape)} ({reason})"


def head_from_config(node: object) -> HeadBuilder:
    """Return the builder of the network that the configuration's key ``model`` describes.

    Args:
        node: a mapping with ``_target_``, the full Python name of a builder's class or of a
            function that returns an ``nn.Module``, and the arguments of that class or function.

    Raises:
        ConfigError: there is no ``_target_``, it cannot be imported or called, or it does not take
            the settings.
    """
    name, target, settings = imported_with_settings(node, "model")
    # A builder of agt, such as HeadConfig, is a class of settings with a method ``build``.
    if hasattr(target, "__dataclass_fields__") and hasattr(target, "build"):
        return validate(target, settings, "model")
    # A network can be called, too, but with records.
    if isinstance(target, nn.Module) or not callable(target):
        raise ConfigError(
            f"model._target_: '{name}' is not a class of networks or a function that returns one"
        )
    return CustomNetwork(partial(target, **settings), f"model._target_={name}")


_GENERATOR_LOCK = RLock()  # threads share PyTorch's one generator


@contextmanager
def seeded_generator(training: TrainingConfig) -> Iterator[None]:
    """Seed PyTorch's random generator within a ``with`` block, and restore its state afterwards.

    A lock makes other threads that build a network wait until the block ends, because all threads
    share one generator.

    Args:
        training: has the seed.
    """
    # The CPU generator is seeded directly: torch.manual_seed takes twenty times as long, because it
    # records its caller. It is needed only to seed a GPU as well.
    seed = torch.default_generator.manual_seed
    if torch.cuda.is_available():
        seed = torch.manual_seed
    with _GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        seed(training.seed)
        yield


def describe_layers(network: nn.Sequential) -> LayerList:
    """Return the architecture of a network as plain values, from which ``from_layers`` builds it.

    Args:
        network: layers whose constructor arguments are attributes of the same names.

    Returns:
        For each layer a dict of "name", "layer" (the name of its class), and the arguments of its
        constructor. Parameters are not included.
    """
    # Not named_children(), which returns a layer that is used twice only once.
    descriptions = []
    for name, layer in network._modules.items():
        if layer is not None:
            arguments = _constructor_arguments(layer)
            descriptions.append({"name": name, "layer": type(layer).__name__, **arguments})
    return descriptions


def from_layers(layers: LayerList) -> nn.Sequential:
    """Build a network from the plain values that ``describe_layers`` returned.

    Args:
        layers: a dict for each layer, with "name", "layer" (the name of its class), and the
            arguments of its constructor.

    Returns:
        The network, with new random parameters that the caller has to replace.

    Raises:
        ConfigError: a type of layer has no bound rule (the code that propagates interval bounds
            through it), so it is unknown here.
    """
    types = {rule_layer.__name__: rule_layer for rule_layer in RULES}
    network = nn.Sequential()
    for entry in layers:
        settings = {key: value for key, value in entry.items() if key not in ("name", "layer")}
        if entry["layer"] not in types:
            raise ConfigError(
                f"model: agt cannot compute bounds through layer {entry['name']} "
                f"({entry['layer']}). Use the version of agt that saved the model, or train again"
            )
        network.add_module(entry["name"], types[entry["layer"]](**settings))
    return network


def _constructor_arguments(layer: nn.Module) -> dict[str, Any]:
    """Return the constructor arguments of a layer: name -> value.

    They are read from the attributes that have the arguments' names. For ``bias`` the value is True
    or False, because the attribute holds the bias itself. The device and dtype are left out.
    """
    values = {}
    for name in inspect.signature(type(layer)).parameters:
        if name not in ("device", "dtype") and hasattr(layer, name):
            values[name] = getattr(layer, name)
    if "bias" in values:
        values["bias"] = values["bias"] is not None
    return values


def _require_plain_parameters(network: nn.Module) -> None:
    """Raise ConfigError if more than its layers' types and settings determines what a network does.

    Bounds are computed from the layers' types, settings and parameters. They would be wrong for a
    network with hooks, with a layer whose forward() was replaced, or with frozen or shared
    parameters.

    Args:
        network: the network that the user gave. Of one with lazy layers, which are refused for
            their type, nothing is checked.

    Raises:
        ConfigError: it has one of these features. The message names the layer or parameter.
    """
    if any(map(nn.parameter.is_lazy, network.parameters())):
        return
    if _has_hooks_for_all_modules():
        raise ConfigError(
            "model: hooks are registered for all modules of PyTorch, and agt cannot compute bounds "
            "through these: remove the hooks"
        )
    for name, layer in network.named_modules(remove_duplicate=False):
        has_hooks = any(value for key, value in vars(layer).items() if key.endswith("hooks"))
        if has_hooks or _replaced_methods(layer):
            part = f"layer {name}" if name else "the network itself"
            raise ConfigError(
                f"model: {part} has hooks or its own forward(), and agt cannot compute bounds "
                "through these. Remove them, or use a standard PyTorch layer"
            )
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            raise ConfigError(
                f"model: {name} is frozen (requires_grad=False), but agt trains all layers of a "
                "model. Remove frozen layers from the model, and give their outputs as features"
            )
        if parameter._backward_hooks:
            raise ConfigError(
                f"model: the parameter {name} has hooks, and agt cannot compute bounds through "
                "these: remove the hooks"
            )
        if type(parameter) is not nn.Parameter:
            raise ConfigError(
                f"model: the parameter {name} has the type {type(parameter).__name__}, which may "
                "compute in another way than nn.Parameter: use nn.Parameter"
            )
        if not parameter.is_floating_point():
            raise ConfigError(f"model: the parameter {name} must consist of real numbers")
    # Parameters may share a part of their memory only, so that their storages are compared. On
    # PyTorch's meta device, on which agt verify builds models, parameters have no memory, and all
    # addresses are 0.
    addresses = [
        tensor.untyped_storage().data_ptr() for tensor in network.parameters() if not tensor.is_meta
    ]
    if len(set(addresses)) < len(addresses):
        raise ConfigError(
            "model: two parameters share memory, but training would change them separately. "
            "Give each parameter its own memory"
        )


def _has_hooks_for_all_modules() -> bool:
    """Return whether PyTorch calls hooks at each call of any module."""
    names = (name for name in vars(torch_module) if name.startswith("_global_"))
    return any(getattr(torch_module, name) for name in names if name.endswith("_hooks"))


def _replaced_methods(layer: nn.Module) -> list[str]:
    """Return the names of methods that a layer has in place of those of its class.

    PyTorch looks up ``forward``, ``_call_impl`` and ``_conv_forward`` in this way, for example.
    """
    replaced = [name for name in vars(layer) if callable(getattr(type(layer), name, None))]
    if vars(layer).get("_compiled_call_impl") is not None:  # the class has None there
        replaced.append("_compiled_call_impl")
    return replaced


def _require_rebuildable(network: nn.Sequential) -> None:
    """Raise ConfigError unless a network can be built again from its layers' settings.

    A saved network is read back from the values of ``describe_layers``. They must give parameters
    of the same names and shapes.

    Raises:
        ConfigError: a setting is no JSON value, or a parameter's name or shape does not follow from
            the settings.
    """
    try:
        # As if the network had been saved and were read back.
        stored_layers = json.loads(json.dumps(describe_layers(network)))
        rebuilt = from_layers(stored_layers)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            "model: a layer has a setting that is not a plain number or word, so agt could not "
            f"save the model ({error})"
        ) from None
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    rebuilt_shapes = {name: tensor.shape for name, tensor in rebuilt.state_dict().items()}
    names = shapes.keys() | rebuilt_shapes.keys()
    different = sorted(name for name in names if shapes.get(name) != rebuilt_shapes.get(name))
    # ``describe_layers`` leaves out a layer that is None, so it is looked for as well.
    if different or None in network._modules.values():
        part = f"parameter {different[0]}" if different else "a layer that is None"
        raise ConfigError(
            f"model: {part} cannot be built from the settings of the layers alone, so agt "
            "could not load the model again after saving it. Use standard layers, and do not "
            "change them after they are created"
        )
