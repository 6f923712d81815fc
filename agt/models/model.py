"""A trained model, whichever kind of certificate it was trained for: fit it, read it back, ask it."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.dataset import Records
from agt.distributed import group
from agt.models.box import BoxModel
from agt.models.description import describe
from agt.models.ensemble import EnsembleModel, made_by
from agt.models.linear import LinearModel
from agt.models.removal import RemovalModel
from agt.models.store import Shelf, Store
from agt.models.tube import TubeModel
from agt.problem import Problem
from agt.settings import BoxConfig, ErmConfig, RemovalConfig, StabilityConfig, TubeConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints, Common, flat
from agt.training.loop import Progress


class Model(Protocol):
    """What ``fit`` makes and ``load`` reads back.

    Features are the problem's own: as the head takes them.
    """

    @property
    def problem(self) -> Problem:
        """What it was trained on, and how."""
        ...

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3."""
        ...

    @property
    def plan(self) -> BatchPlan:
        """The batch plan it was trained by."""
        ...

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Flat facts about it."""
        ...

    def save(self, store: Store) -> None:
        """Write what ``load`` needs."""
        ...

    @property
    def farthest(self) -> int:
        """A public number that no stable distance, step of the grid or gap between votes exceeds."""
        ...

    def check(self, features: np.ndarray) -> None:
        """Raise where queries are not what it takes (ConfigError, UnsoundError): from public values alone."""
        ...

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels of the nominal model."""
        ...

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[lines, n] signed margins; a decision line of a map is where one is 0."""
        ...

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Certificates:
        """Certificates of queries.

        Args:
            ks: at these values of the grid alone, such as the few that a map tells apart; None: the whole grid.
            on_progress: called after every block of queries, or every member of an ensemble.
        """
        ...


KINDS: dict[type[Any], type[BoxModel] | type[LinearModel] | type[TubeModel]] = {
    BoxConfig: BoxModel,
    StabilityConfig: LinearModel,
    ErmConfig: LinearModel,
    RemovalConfig: RemovalModel,
    TubeConfig: TubeModel,
}
"""The settings of a certificate -> the model that is trained for it, alone or as a member of an ensemble."""


def fit(
    problem: Problem,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> Model:
    """Train the kind of model that ``problem.settings.certificate`` names; go on from its checkpoints, if it has any.

    Raises:
        ConfigError: a process that shares the work has other data or settings, or computes by other means.
    """
    if group().size > 1:
        group().agree(_agreed(problem))
        checkpoints = Common(group(), checkpoints)
    kind = KINDS[type(problem.settings.certificate)]
    if problem.settings.ensemble.members > 1:
        return EnsembleModel.fit(kind, problem, on_progress, checkpoints)
    return kind.fit(problem, on_progress, checkpoints)


def _agreed(problem: Problem) -> dict[str, object]:
    """All that the bits of a training depend on, under words for a message."""
    noise = asdict(problem.settings.noise) if problem.settings.noise else None
    settings = flat({**describe(problem), "noise": noise})
    return {
        **settings,
        **made_by(problem),
        "the number of PyTorch's threads": torch.get_num_threads(),
        "the data's digest": problem.dataset.digest,
    }


def load(problem: Problem, shelf: Shelf) -> Model:
    """Read back a model that was trained on this problem."""
    kind = KINDS[type(problem.settings.certificate)]
    if problem.settings.ensemble.members > 1:
        return EnsembleModel.load(kind, problem, shelf)
    return kind.load(problem, shelf)


def accuracy(model: Model, records: Records) -> float:
    """The fraction of records that the nominal model labels right."""
    return float((model.predict(records.features) == records.labels).mean())
