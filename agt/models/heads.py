"""The certified heads: a linear classifier, or an MLP of any depth and width."""

from itertools import pairwise
from typing import Annotated, Literal, get_args

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.bounds.losses import LOSSES
from agt.settings import STRICT, TrainingConfig

ActivationName = Literal["relu", "leaky_relu", "tanh", "sigmoid", "softplus", "gelu"]
_LAYERS = (nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.GELU)
ACTIVATIONS: dict[str, type[nn.Module]] = dict(zip(get_args(ActivationName), _LAYERS, strict=True))


@validated(frozen=True, config=STRICT)
class HeadConfig:
    """A head.

    Attributes:
        hidden: widths of the hidden layers; empty for a linear head.
        activation: what each hidden layer applies, with PyTorch's default settings.
        encoder: None; a head behind a frozen public encoder has a class of its own (``_target_``).
    """

    hidden: tuple[Annotated[int, Field(ge=1, le=2**24)], ...] = ()
    activation: ActivationName = "relu"
    encoder: object | None = None

    def __post_init__(self) -> None:
        if type(self) is HeadConfig and self.encoder is not None:
            raise ValueError("encoder: this head takes none; give model=small_cnn, and its encoder's settings")


def build_head(shape: tuple[int, ...], classes: int, model: HeadConfig, training: TrainingConfig) -> nn.Sequential:
    """A head with the initial parameters that ``training.seed`` determines.

    Args:
        shape: one record's feature shape; flattened if it has more than one axis.
        classes: number of classes; one output under a loss that takes one, else one for each class.

    Returns:
        Linear layers with activations between (after a Flatten where needed), in ``training.dtype``, with PyTorch's default
        initialisation drawn in float64, so that both dtypes start at the same point up to rounding.
    """
    outputs = 1 if LOSSES[training.loss].one_output else classes
    widths = (int(torch.Size(shape).numel()), *model.hidden, outputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            layers += [ACTIVATIONS[model.activation]()] if i else []
            layers.append(nn.Linear(fan_in, fan_out, dtype=torch.float64))
    return nn.Sequential(*layers).to(getattr(torch, training.dtype))
