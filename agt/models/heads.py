"""The certified heads: a linear classifier, or an MLP of any depth and width."""

from itertools import pairwise
from typing import Annotated

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated
from torch import nn

from agt.settings import STRICT, TrainingConfig


@validated(frozen=True, config=STRICT)
class HeadConfig:
    """A head.

    Attributes:
        hidden: widths of the ReLU layers; empty for a linear head.
        encoder: None; a head behind a frozen public encoder has a class of its own (``_target_``).
    """

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = ()
    encoder: object | None = None

    def __post_init__(self) -> None:
        if type(self) is HeadConfig and self.encoder is not None:
            raise ValueError("encoder: this head takes none; give model=small_cnn, and its encoder's settings")


def build_head(shape: tuple[int, ...], classes: int, model: HeadConfig, training: TrainingConfig) -> nn.Sequential:
    """A head with the initial parameters that ``training.seed`` determines.

    Args:
        shape: one record's feature shape; flattened if it has more than one axis.
        classes: number of classes; one output for two classes under binary cross-entropy, else one for each class.

    Returns:
        Linear and ReLU layers (after a Flatten where needed), in ``training.dtype``, with PyTorch's default
        initialisation drawn in float64, so that both dtypes start at the same point up to rounding.
    """
    outputs = 1 if training.loss == "binary_cross_entropy" else classes
    widths = (int(torch.Size(shape).numel()), *model.hidden, outputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(training.seed)
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            layers += [nn.ReLU()] if i else []
            layers.append(nn.Linear(fan_in, fan_out, dtype=torch.float64))
    return nn.Sequential(*layers).to(getattr(torch, training.dtype))
