"""The certified heads: a linear classifier, an MLP of any depth and width, convolutions, or a
network of the user's own.

A head is described, not held: ``build`` makes it anew, with its initial parameters, for training,
for reading back what was trained, and in each process of an ensemble.
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
Size = Annotated[int, Field(ge=1, le=2**24)]


class HeadBuilder(Protocol):
    """What ``Settings.model`` is."""

    @property
    def linear(self) -> bool:
        """Whether it is known to be one linear layer, which closed-form certificates need."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What condition e rests on, beside the data: where the initial parameters come from."""

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """The layers, with their initial parameters in ``training.dtype``.

        Args:
            shape: one record's feature shape.
            classes: number of classes; one output under a loss that takes one, else one for each
                class.

        Raises:
            ConfigError: it cannot be built, or no bound rule covers it.
        """


@schema
class HeadConfig:
    """A head.

    Attributes:
        hidden: widths of the hidden layers; empty for a linear head.
        activation: what each hidden layer applies, with PyTorch's default settings.
        encoder: None; a head behind a frozen public encoder has a class of its own (``_target_``).
    """

    hidden: tuple[Size, ...] = ()
    activation: ActivationName = "relu"
    encoder: object | None = None

    def __post_init__(self) -> None:
        if type(self) is HeadConfig and self.encoder is not None:
            raise ValueError(
                "encoder: this head cannot have an encoder: give model=small_cnn, and the "
                "settings of its encoder"
            )

    @property
    def linear(self) -> bool:
        """Without hidden layers."""
        return not self.hidden

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Nothing to say: the initial parameters come from the public seed."""
        return ()

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """Linear layers with activations between, after a Flatten where a record has more than one
        axis.

        PyTorch's default initialisation by ``training.seed``, drawn in float64, so that both dtypes
        start at the same point up to rounding.
        """
        with seeded(training):
            layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
            layers += self._dense(int(torch.Size(shape).numel()), classes, training)
        return nn.Sequential(*layers).to(getattr(torch, training.dtype))

    def _dense(self, width: int, classes: int, training: TrainingConfig) -> list[nn.Module]:
        """Linear layers from ``width`` numbers to the logits, activations between."""
        outputs = 1 if LOSSES[training.loss].one_output else classes
        layers: list[nn.Module] = []
        for i, (fan_in, fan_out) in enumerate(pairwise((width, *self.hidden, outputs))):
            layers += [ACTIVATIONS[self.activation]()] if i else []
            layers.append(nn.Linear(fan_in, fan_out, dtype=torch.float64))
        return layers


@schema
class ConvConfig(HeadConfig):
    """Convolutions of images, each with its activation and perhaps average pooling, under a head;
    all of it is trained.

    Attributes:
        channels: outputs of each convolution.
        kernels: rows and columns of their windows.
        strides: steps of their windows.
        paddings: zeros on each side.
        pools: windows of average pooling after each; 1: none.
        start: where parameters begin: pytorch, its defaults; he, its weights times the square root
            of 6, which is variance 2 / fan-in (He et al. 2015), and biases 0: what one record's
            features share grows less than what they differ by.
        output_scale: the last layer's initial parameters are multiplied by this; 0: every record
            starts at the logit 0.
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
                "encoder: the convolutions of this head are trained: for a frozen encoder, "
                "give model=small_cnn"
            )
        for name in ("kernels", "strides", "paddings", "pools"):
            if len(getattr(self, name)) != len(self.channels):
                raise ValueError(
                    f"{name}: has {len(getattr(self, name))} values, but there are "
                    f"{len(self.channels)} channels: give one for each channel"
                )

    @property
    def linear(self) -> bool:
        """No."""
        return False

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """As ``HeadConfig.build``, for images [channels, height, width].

        Raises:
            ConfigError: records are no such images, or too small.
        """
        if len(shape) != 3:
            raise ConfigError(
                "model: convolutions need images [channels, height, width], but a record has "
                f"shape {shape}"
            )
        with seeded(training):
            layers, record = list[nn.Module](), torch.zeros(1, *shape, dtype=torch.float64)
            windows = zip(
                self.channels, self.kernels, self.strides, self.paddings, self.pools, strict=True
            )
            for channels, kernel, stride, padding, pool in windows:
                layers.append(
                    nn.Conv2d(
                        record.shape[1], channels, kernel, stride, padding, dtype=torch.float64
                    )
                )
                layers.append(ACTIVATIONS[self.activation]())
                layers += [nn.AvgPool2d(pool)] if pool > 1 else []
                record = _passed(nn.Sequential(*layers), shape)
            layers += [nn.Flatten(), *self._dense(record.numel(), classes, training)]
        network = nn.Sequential(*layers)
        with torch.no_grad():
            for parameter in network.parameters() if self.start == "he" else ():
                parameter.mul_(6**0.5 if parameter.dim() > 1 else 0.0)
            for parameter in network[-1].parameters():
                parameter.mul_(self.output_scale)
        return network.to(getattr(torch, training.dtype))


def _passed(layers: nn.Sequential, shape: tuple[int, ...]) -> torch.Tensor:
    """What the layers make of a record of zeros, [1, ...].

    Raises:
        ConfigError: they do not take it.
    """
    try:
        with torch.no_grad():
            made: torch.Tensor = layers(
                torch.zeros(1, *shape, dtype=next(layers.parameters()).dtype)
            )
    except RuntimeError as error:
        raise ConfigError(
            f"model: its layers cannot be applied to a record of shape {shape}: {error}"
        ) from None
    return made


@dataclass(frozen=True)
class OwnNetwork:
    """A network of the user's own: an ``nn.Sequential`` of layers that bound rules cover.

    Attributes:
        make: makes it; where it draws its initial parameters from PyTorch's generator,
            ``training.seed`` seeds that.
        where: what made it, in words.
    """

    make: Callable[[], object] = field(compare=False)
    where: str

    @classmethod
    def of(cls, network: nn.Sequential) -> "OwnNetwork":
        """That starts from the parameters that ``network`` has now; whatever becomes of it does not
        matter.

        Raises:
            ConfigError: no bound rule covers it, or it cannot be copied.
        """
        _check_plain(network, "the network given")  # hooks on tensors are lost in a copy
        try:
            return cls(partial(deepcopy, deepcopy(network)), "the network given")
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"model: the given network cannot be copied: {error}") from None

    @property
    def linear(self) -> bool:
        """Not known to be: a closed form trains a head of its own."""
        return False

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Code cannot see where somebody else's initial parameters come from."""
        return (declared("initial_parameters_public", network=self.where),)

    def build(
        self, shape: tuple[int, ...], classes: int, training: TrainingConfig
    ) -> nn.Sequential:
        """What ``make`` returns."""
        del classes  # the loop compares it with the last layer
        with seeded(training):
            try:
                network = self.make()
            except Exception as error:  # whatever somebody else's code raises is about that code
                raise ConfigError(
                    f"model: {self.where} cannot be created: {type(error).__name__}: {error}"
                ) from error
        network = _check_plain(network, self.where).to(getattr(torch, training.dtype))
        try:
            with torch.no_grad():
                outputs = network(torch.zeros(1, *shape, dtype=getattr(torch, training.dtype)))
        except RuntimeError as error:
            raise ConfigError(
                f"model: {self.where} cannot be applied to records of {shape} features: {error}"
            ) from None
        if outputs.dim() != 2:
            raise ConfigError(
                f"model: {self.where} returns {tuple(outputs.shape[1:])} outputs for a "
                f"record of {shape} features: add an nn.Flatten() at the beginning"
            )
        return network


def head_of(node: object) -> HeadBuilder:
    """The head of a configuration: a description with ``build``, or a function that returns an
    ``nn.Sequential``.

    Raises:
        ConfigError: no ``_target_``, one that cannot be imported or called, or settings it does not
            take.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ConfigError(f"model: expected a mapping with a _target_, got {node!r}")
    settings = {str(key): value for key, value in node.items() if key != "_target_"}
    target: Any = imported(str(node["_target_"]), "model")
    if hasattr(target, "__dataclass_fields__") and hasattr(target, "build"):
        return validate(target, settings, "model")
    if not callable(target):
        raise ConfigError(
            f"model._target_: '{node['_target_']}' is not a function that returns an nn.Sequential"
        )
    return OwnNetwork(partial(target, **settings), f"model._target_={node['_target_']}")


_DRAWING = RLock()  # of PyTorch's one generator, which threads share


@contextmanager
def seeded(training: TrainingConfig) -> Iterator[None]:
    """In it PyTorch draws from ``training.seed``; afterwards its generator on the CPU is where
    it was.
    """
    # Where there is no GPU to seed, torch.manual_seed takes twenty times as long, for a trace of
    # where it was called.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    with _DRAWING, torch.random.fork_rng(devices=[]):
        seed(training.seed)
        yield


def layers_of(network: nn.Sequential) -> LayerList:
    """The layers as plain values, to compare with and to build again: each one's name, type and
    settings.
    """
    # not named_children(), which names a layer used twice only once
    named = network._modules.items()
    return [
        {"name": name, "layer": type(layer).__name__, **_settings(layer)}
        for name, layer in named
        if layer is not None
    ]


def from_layers(layers: LayerList) -> nn.Sequential:
    """The network that ``layers_of`` described, with parameters of no meaning.

    Raises:
        ConfigError: an unknown layer.
    """
    kinds = {kind.__name__: kind for kind in RULES}
    network = nn.Sequential()
    for entry in layers:
        settings = {key: value for key, value in entry.items() if key not in ("name", "layer")}
        if entry["layer"] not in kinds:
            raise ConfigError(
                f"model: there is no bound rule for layer {entry['name']} ({entry['layer']})"
            )
        network.add_module(entry["name"], kinds[entry["layer"]](**settings))
    return network


def _settings(layer: nn.Module) -> dict[str, Any]:
    """The arguments that make such a layer."""
    names = [
        name
        for name in inspect.signature(type(layer)).parameters
        if name not in ("device", "dtype")
    ]
    values = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
    return {name: value is not None if name == "bias" else value for name, value in values.items()}


def _check_plain(network: object, where: str) -> nn.Sequential:
    """The network, if it is its layers and their parameters and nothing more: the rules would not
    see the rest.

    Raises:
        ConfigError: naming the layer or the parameter.
    """
    if type(network) is not nn.Sequential:
        raise ConfigError(
            f"model: {where} has the type {type(network).__name__}, but bounds are computed "
            "for an nn.Sequential, layer by layer, because agt cannot analyse the forward() "
            "of another module"
        )
    rules_for(network)
    for name, layer in network.named_modules(remove_duplicate=False):
        if "forward" in vars(layer) or any(
            value for key, value in vars(layer).items() if key.endswith("hooks")
        ):
            raise ConfigError(
                f"model: {f'layer {name}' if name else 'the whole'} has hooks or its own "
                "forward(), for which there is no bound rule: remove them"
            )
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            raise ConfigError(
                f"model: {name} is frozen (requires_grad=False), but a head is always "
                "trained as a whole: leave frozen layers out of it, and give their outputs "
                "as features"
            )
        if parameter._backward_hooks or not parameter.is_floating_point():
            raise ConfigError(
                f"model: {name} has hooks, or is not a real number, so there is no bound "
                "rule for it"
            )
    if len({parameter.data_ptr() for parameter in network.parameters()}) < len(
        list(network.parameters())
    ):
        raise ConfigError(
            "model: two parameters share their memory, but training would change them "
            "separately: give each its own memory"
        )
    _check_described(network)
    return network


def _check_described(network: nn.Sequential) -> None:
    """Refuse a network that ``layers_of`` does not describe: it could not be read back, or is not
    what its layers say.

    Raises:
        ConfigError: a setting that is no plain value, or parameters that do not follow from the
            settings.
    """
    try:
        again = from_layers(json.loads(json.dumps(layers_of(network))))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"model: a layer has a setting that is not a plain number or word ({error})"
        ) from None
    mine, theirs = (
        {name: tensor.shape for name, tensor in n.state_dict().items()} for n in (network, again)
    )
    strange = sorted(
        name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)
    )
    if strange or None in network._modules.values():
        culprit = strange[0] if strange else "a layer that is None"
        raise ConfigError(
            f"model: {culprit} differs from what the settings of the layers create, so there "
            "is no bound rule for it"
        )
