"""The heads that bounds pass through: linear, MLP, convolutions, or a network of the user's own.

A head is a description: ``build`` makes its layers with their initial parameters, whenever a head
is trained or read back, and in each process of an ensemble.
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
from typing import Annotated, Any, Literal, Protocol, get_args

import torch
from pydantic import Field
from torch import nn

from agt.bounds.losses import LOSSES
from agt.bounds.rules import RULES, rules_for
from agt.errors import ConfigError
from agt.facts import Fact, declared
from agt.settings import TrainingConfig, schema, validate
from agt.targets import imported

ActivationName = Literal["relu", "leaky_relu", "tanh", "sigmoid", "softplus", "gelu"]
_LAYERS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.GELU)
ACTIVATIONS: dict[str, type[nn.Module]] = dict(zip(get_args(ActivationName), _LAYERS, strict=True))

LayerList = list[dict[str, Any]]
"""Of each layer of a network its name, its type ("layer"), and its settings, as JSON values."""

Size = Annotated[int, Field(ge=1, le=2**24)]


class HeadBuilder(Protocol):
    """The description of a head, as ``Settings.model`` has it."""

    @property
    def linear(self) -> bool:
        """Whether it is known to be one linear layer, which closed-form certificates need."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts of condition e about the initial parameters; none: the seed makes them."""

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return the layers with their initial parameters.

        Args:
            shape: of one record's features.
            classes: the number of classes. The head has one output under a loss that takes one,
                else one for each class.
            training: has the loss, the seed and the dtype of the parameters.

        Raises:
            ConfigError: the head cannot be built, or no bound rule covers it.
        """


@schema
class HeadConfig:
    """A linear head or an MLP.

    Attributes:
        hidden: the widths of the hidden layers; none: a linear head.
        activation: what follows each hidden layer, with PyTorch's default settings.
        encoder: always None: a head behind a frozen public encoder has a class of its own.

    Raises:
        ValueError: an encoder was given.
    """

    hidden: tuple[Size, ...] = ()
    activation: ActivationName = "relu"
    encoder: object | None = None

    def __post_init__(self) -> None:
        if type(self) is HeadConfig and self.encoder is not None:
            raise ValueError(
                "encoder: this model has no frozen encoder in front of its head: give "
                "model=small_cnn, and its encoder's settings"
            )

    @property
    def linear(self) -> bool:
        """Whether there are no hidden layers."""
        return not self.hidden

    @property
    def facts(self) -> tuple[Fact, ...]:
        """No facts: the initial parameters come from the public seed."""
        return ()

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return linear layers with activations between them, by PyTorch's initialisation.

        Parameters are drawn in float64, so both dtypes start at the same point up to rounding.

        Args:
            shape: of one record's features; with more than one axis, a Flatten comes first.
            classes: the number of classes.
            training: has the loss, the seed and the dtype of the parameters.
        """
        layers: list[nn.Module] = []
        if len(shape) > 1:
            layers.append(nn.Flatten())
        with seeded_generator(training):
            layers += self._dense_layers(int(torch.Size(shape).numel()), classes, training)
        return nn.Sequential(*layers).to(getattr(torch, training.dtype))

    def _dense_layers(self, width: int, classes: int, training: TrainingConfig) -> list[nn.Module]:
        """Return linear layers from ``width`` numbers to the logits, with activations between."""
        outputs = 1 if LOSSES[training.loss].one_output else classes
        widths = (width, *self.hidden, outputs)
        layers: list[nn.Module] = []
        for index, (fan_in, fan_out) in enumerate(pairwise(widths)):
            if index > 0:
                layers.append(ACTIVATIONS[self.activation]())
            layers.append(nn.Linear(fan_in, fan_out, dtype=torch.float64))
        return layers


@schema
class ConvConfig(HeadConfig):
    """Convolutions of images, each with an activation, in front of an MLP; all of it is trained.

    Attributes:
        channels: the number of outputs of each convolution.
        kernels: the side of each convolution's window, in pixels.
        strides: the step of each window.
        paddings: how many zeros are added on each side before each convolution.
        pools: the side of the average pooling after each activation; 1: none.
        start: ``pytorch``: PyTorch's default initialisation; ``he``: its weights times the square
            root of 6, of variance 2 / fan-in (He et al. 2015), and biases of 0.
        output_scale: a factor on the last layer's initial parameters; 0: every record starts at the
            logit 0.

    Raises:
        ValueError: an encoder was given, or lists differ in length.
    """

    channels: Annotated[tuple[Size, ...], Field(min_length=1)] = (16, 32)
    kernels: tuple[Size, ...] = (4, 4)
    strides: tuple[Size, ...] = (2, 1)
    paddings: tuple[Annotated[int, Field(ge=0)], ...] = (0, 0)
    pools: tuple[Size, ...] = (1, 1)
    start: Literal["pytorch", "he"] = "pytorch"
    output_scale: Annotated[float, Field(ge=0, le=1e3)] = 1.0

    def __post_init__(self) -> None:
        if self.encoder is not None:
            raise ValueError(
                "encoder: this model trains its convolutions itself, so it cannot have a "
                "frozen encoder: give model=small_cnn for one"
            )
        for name in ("kernels", "strides", "paddings", "pools"):
            given = len(getattr(self, name))
            if given != len(self.channels):
                raise ValueError(
                    f"{name} has {given} values, but channels has {len(self.channels)}: give "
                    "one value for each convolution"
                )

    @property
    def linear(self) -> bool:
        """False: there are convolutions."""
        return False

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return the convolutions and the MLP behind them, with their initial parameters.

        Args:
            shape: (channels, height, width) of one image.
            classes: the number of classes.
            training: has the loss, the seed and the dtype of the parameters.

        Raises:
            ConfigError: records are no such images, or too small.
        """
        if len(shape) != 3:
            raise ConfigError(
                "model: convolutions need images [channels, height, width], but a record has "
                f"shape {shape}"
            )
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
                output = _output_of_zeros(nn.Sequential(*layers), shape)
                inputs = output.shape[1]
            layers.append(nn.Flatten())
            layers += self._dense_layers(output.numel(), classes, training)
        network = nn.Sequential(*layers)
        with torch.no_grad():
            if self.start == "he":
                for parameter in network.parameters():
                    parameter.mul_(6**0.5 if parameter.dim() > 1 else 0.0)
            for parameter in network[-1].parameters():
                parameter.mul_(self.output_scale)
        return network.to(getattr(torch, training.dtype))


def _output_of_zeros(layers: nn.Sequential, shape: tuple[int, ...]) -> torch.Tensor:
    """Return what layers make of one record of zeros, [1, ...].

    Raises:
        ConfigError: they take no record of this shape.
    """
    zeros = torch.zeros(1, *shape, dtype=next(layers.parameters()).dtype)
    try:
        with torch.no_grad():
            output: torch.Tensor = layers(zeros)
    except RuntimeError as error:
        raise ConfigError(
            f"model: the layers of this network cannot process a record of shape {shape}: {error}"
        ) from None
    return output


@dataclass(frozen=True)
class CustomNetwork:
    """A network of the user's own: an ``nn.Sequential`` of layers that bound rules cover.

    Attributes:
        make: returns the network. Where it draws initial parameters from PyTorch's generator,
            ``training.seed`` seeds that.
        origin: what made the network, for messages and facts.
    """

    make: Callable[[], object] = field(compare=False)
    origin: str

    @classmethod
    def from_network(cls, network: nn.Sequential) -> "CustomNetwork":
        """Return the description of a network that starts from the parameters it has now.

        Args:
            network: it is copied, so later changes of it do not matter.

        Raises:
            ConfigError: no bound rule covers it, or it cannot be copied.
        """
        _check_plain(network, "the network given")  # hooks on tensors are lost in a copy
        try:
            copy = deepcopy(network)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"model: the given network cannot be copied: {error}") from None
        return cls(partial(deepcopy, copy), "the network given")

    @property
    def linear(self) -> bool:
        """False: a certificate in closed form trains a head of its own."""
        return False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The user declares that the initial parameters are public, which code cannot see."""
        return (declared("initial_parameters_public", network=self.origin),)

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Return the network that ``make`` returns, in the training's dtype.

        Args:
            shape: of one record's features.
            classes: not used: the training compares it with the last layer's outputs.
            training: has the seed and the dtype.

        Raises:
            ConfigError: the network cannot be made, does not take such records, has no one row of
                outputs for each, or no bound rule covers it.
        """
        del classes
        dtype = getattr(torch, training.dtype)
        with seeded_generator(training):
            try:
                network = self.make()
            except Exception as error:  # whatever the user's code raises is about that code
                raise ConfigError(
                    f"model: {self.origin} cannot be created: {type(error).__name__}: {error}"
                ) from error
        plain_network = _check_plain(network, self.origin).to(dtype)
        try:
            with torch.no_grad():
                outputs = plain_network(torch.zeros(1, *shape, dtype=dtype))
        except RuntimeError as error:
            raise ConfigError(
                f"model: {self.origin} cannot be applied to records of shape {shape}: {error}"
            ) from None
        if outputs.dim() != 2:
            raise ConfigError(
                f"model: {self.origin} returns outputs of shape {tuple(outputs.shape[1:])} "
                f"for a record of shape {shape}, but must return one row of numbers. Add an "
                "nn.Flatten() at the beginning"
            )
        return plain_network


def head_from_config(node: object) -> HeadBuilder:
    """Return the head that a configuration's ``model`` describes.

    Args:
        node: a mapping with ``_target_``, the full name of a head's class or of a function that
            returns an ``nn.Sequential``, and its settings.

    Raises:
        ConfigError: there is no ``_target_``, it cannot be imported or called, or it does not take
            the settings.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"model: expected a mapping with the entry _target_, got {node!r}")
    settings = {str(key): value for key, value in node.items() if key != "_target_"}
    name = node["_target_"]
    target: Any = imported(str(name), "model")
    if hasattr(target, "__dataclass_fields__") and hasattr(target, "build"):
        return validate(target, settings, "model")
    if not callable(target):
        raise ConfigError(
            f"model._target_: '{name}' is not a function that returns an nn.Sequential"
        )
    return CustomNetwork(partial(target, **settings), f"model._target_={name}")


_GENERATOR_LOCK = RLock()  # threads share PyTorch's one generator


@contextmanager
def seeded_generator(training: TrainingConfig) -> Iterator[None]:
    """Seed PyTorch's generator by ``training.seed`` within the block, and restore it afterwards.

    Other threads that build a head wait until the block ends.
    """
    # Where there is no GPU to seed, torch.manual_seed takes twenty times as long, because it
    # records where it was called.
    seed = torch.default_generator.manual_seed
    if torch.cuda.is_available():
        seed = torch.manual_seed
    with _GENERATOR_LOCK, torch.random.fork_rng(devices=[]):
        seed(training.seed)
        yield


def describe_layers(network: nn.Sequential) -> LayerList:
    """Return the layers as plain values, which can be compared and from which they can be built.

    Each has its name, its type as "layer", and the arguments of its constructor.
    """
    # named_children() would name a layer that is used twice only once.
    named = network._modules.items()
    return [
        {"name": name, "layer": type(layer).__name__, **_constructor_arguments(layer)}
        for name, layer in named
        if layer is not None
    ]


def from_layers(layers: LayerList) -> nn.Sequential:
    """Return the network that ``describe_layers`` described, with arbitrary parameters.

    Raises:
        ConfigError: no bound rule covers a layer of this type.
    """
    types = {rule_layer.__name__: rule_layer for rule_layer in RULES}
    network = nn.Sequential()
    for entry in layers:
        settings = {key: value for key, value in entry.items() if key not in ("name", "layer")}
        if entry["layer"] not in types:
            raise ConfigError(f"model: no bound rule for layer {entry['name']} ({entry['layer']})")
        network.add_module(entry["name"], types[entry["layer"]](**settings))
    return network


def _constructor_arguments(layer: nn.Module) -> dict[str, Any]:
    """Return the arguments that make such a layer, as its attributes of the same names have them.

    A bias is given as whether there is one.
    """
    values = {}
    for name in inspect.signature(type(layer)).parameters:
        if name not in ("device", "dtype") and hasattr(layer, name):
            values[name] = getattr(layer, name)
    if "bias" in values:
        values["bias"] = values["bias"] is not None
    return values


def _check_plain(network: object, origin: str) -> nn.Sequential:
    """Return the network, if it consists of its layers and their parameters alone.

    Bound rules see nothing else: no hooks, no forward() of a layer's own, no frozen or shared
    parameters.

    Args:
        network: what is to be a network.
        origin: what made it, for messages.

    Raises:
        ConfigError: it has something else; the layer or parameter is named.
    """
    if type(network) is not nn.Sequential:
        raise ConfigError(
            f"model: {origin} has the type {type(network).__name__}, but bounds are computed "
            "for an nn.Sequential, layer by layer, because agt cannot analyse the forward() "
            "of another module"
        )
    rules_for(network)
    for name, layer in network.named_modules(remove_duplicate=False):
        attributes = vars(layer)
        has_hooks = any(value for key, value in attributes.items() if key.endswith("hooks"))
        if "forward" in attributes or has_hooks:
            culprit = f"layer {name}" if name else "the whole"
            raise ConfigError(
                f"model: {culprit} has hooks or its own forward(), for which there is no "
                "bound rule. Remove the hooks, or use a standard layer"
            )
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            raise ConfigError(
                f"model: {name} is frozen (requires_grad=False), but a head is always "
                "trained as a whole. Leave frozen layers out of it, and give their outputs "
                "as features"
            )
        if parameter._backward_hooks or not parameter.is_floating_point():
            raise ConfigError(
                f"model: the parameter {name} has hooks, or does not consist of real numbers, "
                "so there is no bound rule for it"
            )
    parameters = list(network.parameters())
    if len({parameter.data_ptr() for parameter in parameters}) < len(parameters):
        raise ConfigError(
            "model: two parameters share memory, but training would change them separately. "
            "Give each its own memory"
        )
    _check_described(network)
    return network


def _check_described(network: nn.Sequential) -> None:
    """Refuse a network that ``describe_layers`` does not describe completely.

    Such a network could not be read back, or is not what its layers say.

    Raises:
        ConfigError: a setting is no plain value, or parameters do not follow from the settings.
    """
    try:
        again = from_layers(json.loads(json.dumps(describe_layers(network))))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"model: a layer has a setting that is not a plain number or word ({error})"
        ) from None
    shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
    described = {name: tensor.shape for name, tensor in again.state_dict().items()}
    names = shapes.keys() | described.keys()
    different = sorted(name for name in names if shapes.get(name) != described.get(name))
    if different or None in network._modules.values():
        culprit = different[0] if different else "a layer that is None"
        raise ConfigError(
            f"model: {culprit} is not what its recorded settings create, so there is no bound "
            "rule for it"
        )
