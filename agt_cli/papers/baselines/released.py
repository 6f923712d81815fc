"""Weights that a private training method releases, with what exactly is claimed about them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from agt.errors import UnsoundError

RECORD = "one record added or removed"
REPLACED = "one record replaced"
LABEL = "one record's label changed; features, and which records there are, are not protected"


@dataclass(frozen=True)
class Released:
    """The outcome of a private training method.

    Attributes:
        weights: name -> parameters, as the head's ``load_state_dict`` takes them.
        epsilon, delta: the guarantee: (epsilon, delta)-differential privacy of the weights, for any number of queries.
        protects: which datasets count as neighbours.
        caveats: what the guarantee leaves open, for the report: to be printed beside epsilon and delta.

    Raises:
        UnsoundError: a weight is NaN or infinite.
    """

    weights: dict[str, Tensor]
    epsilon: float
    delta: float
    protects: str
    caveats: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not torch.isfinite(weight).all():
                raise UnsoundError(f"the weights {name} became NaN or infinite: lower the learning rate")


def caveat_of(seed: int | None) -> str:
    """What using a pseudo-random generator means for the guarantee."""
    if seed is None:
        return (
            "the noise comes from a pseudo-random generator seeded by the operating system, in floating point, whose last "
            "digits can betray what the noise was added to (Mironov 2012)"
        )
    return f"simulation: the noise is determined by seed={seed}, so nothing is protected from who knows the seed"
