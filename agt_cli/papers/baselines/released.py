"""What baselines share: what they are fitted on, what they release, and in words what is claimed about it.

Every draw of a baseline comes from a seed: these are simulations for comparison, and protect nobody who is in them.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from agt.data.dataset import Records
from agt.errors import UnsoundError
from agt.numeric import labels_of
from agt.settings import ComputeConfig, TrainingConfig

RECORD = "one record added or removed"
LABEL = "one record's label changed; features, and which records there are, are not protected"
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Bench:
    """What every baseline is fitted on.

    Attributes:
        head: layers and initial parameters; left unchanged.
        classes: their number.
        records: the private training records. Each row is one: a person with several rows is not protected as one.
        size: the public number of records, from which sampling rates and normalisers come.
        training: the loss, and the settings of whoever trains by plain SGD.
        compute: how to compute.
    """

    head: nn.Sequential
    classes: int
    records: Records
    size: int
    training: TrainingConfig
    compute: ComputeConfig = field(default_factory=ComputeConfig)

    @property
    def single(self) -> Records:
        """The records in single precision."""
        return replace(self.records, features=self.records.features.astype(np.float32))

    def labels(self, weights: Weights, queries: np.ndarray) -> np.ndarray:
        """[n] what the head with these weights says of queries [n, ...], computed in their dtype."""
        x = torch.from_numpy(np.ascontiguousarray(queries))
        with torch.no_grad():
            logits = torch.func.functional_call(self.head, {n: w.detach().to(x.dtype) for n, w in weights.items()}, (x,))
        return labels_of(logits).numpy()


class Baseline(Protocol):
    """A private training method with its settings, all public.

    Attributes:
        protects: which datasets count as neighbours.
        caveat: what its guarantee leaves open.
    """

    protects: ClassVar[str]
    caveat: ClassVar[str]

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """Weights that are (eps, delta)-differentially private, whatever number of queries they answer.

        Raises:
            ConfigError: the records, the head or the budget are out of the method's reach.
            UnsoundError: training diverged.
        """
        ...


def finite(weights: Weights) -> Weights:
    """The weights, or UnsoundError naming what became NaN or infinite."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            raise UnsoundError(f"training diverged: the weights {name} became NaN or infinite: lower the learning rate")
    return weights


def caveat_of(seed: int | None) -> str:
    """What using a pseudo-random generator means for the guarantee."""
    if seed is None:
        return (
            "the noise comes from a pseudo-random generator seeded by the operating system, in floating point, whose last "
            "digits can betray what the noise was added to (Mironov 2012)"
        )
    return f"simulation: the noise is determined by seed={seed}, so nothing is protected from who knows the seed"
