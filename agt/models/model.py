"""A trained model, whichever kind of certificate it was trained for: fit it, read it back, ask it.

A problem without its records, as plain values: what a saved model, or a training run, keeps of it and reads back.

Nothing of the data but its public constants, what is known of its conditions and, where nobody declared a size, how many
records there were.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.arrays import query_records
from agt.data.dataset import Dataset, Records
from agt.distributed import group
from agt.errors import ConfigError
from agt.facts import Fact, grounds_of
from agt.models.box import BoxModel
from agt.models.ensemble import EnsembleModel, made_by
from agt.models.heads import HeadConfig, LayerList, OwnNetwork, from_layers, layers_of
from agt.models.linear import LinearModel, RemovalModel, TubeModel
from agt.models.store import FileReader, FileWriter
from agt.problem import Problem, Settings
from agt.settings import (
    BoxConfig,
    ComputeConfig,
    ErmConfig,
    KGridConfig,
    RelationConfig,
    RemovalConfig,
    StabilityConfig,
    TrainingConfig,
    TubeConfig,
    certificate_config,
    validate,
)
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints, Common, flat
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import NoisePlan, OnProgress

FORMAT = 1
PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "ensemble": EnsembleConfig,
}


def describe(problem: Problem) -> dict[str, Any]:
    """What ``problem_of`` reads back, to be written as JSON."""
    settings = problem.settings
    return {
        "format": FORMAT,
        **describe_dataset(problem),
        "choices": asdict(settings.choices),
        "settings": {part: asdict(getattr(settings, part)) for part in (*PARTS, "certificate")},
        "head": _head(problem),
    }


def describe_dataset(problem: Problem) -> dict[str, Any]:
    """What ``dataset_of`` reads back: a part of the same."""
    dataset = problem.dataset
    return {
        "shape": dataset.train.features.shape[1:],
        "names": dataset.classes,
        "declared_size": dataset.declared_size,
        "records": None if dataset.declared_size is not None else problem.counts,
        "selection": asdict(dataset.selection),
        "preprocessing": asdict(dataset.preprocessing),
        "size": None if dataset.size is None else asdict(dataset.size),
    }


def problem_of(node: Mapping[str, Any], compute: ComputeConfig) -> Problem:
    """The problem that was described, without its records.

    Raises:
        ConfigError: another format, or settings that this version refuses.
        ValueError, TypeError, KeyError: no description.
    """
    if node["format"] != FORMAT:
        raise ConfigError(f"model.json: the model was saved in format {node['format']}, and this agt reads format {FORMAT}")
    kept, head = node["settings"], node["head"]
    settings = Settings(
        model=_own(head["layers"]) if "layers" in head else validate(HeadConfig, head, "network"),
        compute=compute,
        certificate=certificate_config(kept["certificate"]),
        noise=None,
        choices=Fact(**node["choices"]),
        **{part: validate(kind, kept[part], part) for part, kind in PARTS.items()},
    )
    dataset, records = dataset_of(node, "arrays")
    return Problem(dataset, settings, records=records)


def dataset_of(node: Mapping[str, Any], name: str) -> tuple[Dataset, int | tuple[int, ...] | None]:
    """The dataset that was described, without its records; and how many there were, as ``Problem.records`` has it.

    Args:
        name: what tables call it.

    Raises:
        ValueError, TypeError, KeyError: no description.
    """
    size, declared = node["size"], node["declared_size"]
    records = tuple(node["records"]) if isinstance(node["records"], list) else node["records"]
    counts = records if isinstance(records, tuple) else (records,)
    if declared is None and not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError(f"records is {records!r}")
    if declared is not None and not (type(declared) in (int, float) and declared >= 0):
        raise ValueError(f"declared_size is {declared!r}")
    if (declared is None) == (records is None):
        raise ValueError("either declared_size or records is a number")
    nobody = query_records(np.empty((0, *node["shape"])))
    dataset = Dataset(
        name=name,
        classes=tuple(node["names"]),
        train=nobody,
        test=nobody,
        declared_size=declared,
        scaling={},
        selection=grounds_of(node["selection"]),
        preprocessing=grounds_of(node["preprocessing"]),
        size=None if size is None else Fact(**size),
        shard=True,
    )
    return dataset, records


def _head(problem: Problem) -> dict[str, Any]:
    head, shape = problem.settings.model, problem.dataset.train.features.shape[1:]
    if type(head) is HeadConfig:
        return {"hidden": head.hidden, "activation": head.activation}
    return {"layers": layers_of(head.build(shape, problem.classes, problem.settings.training))}


def _own(layers: LayerList) -> OwnNetwork:
    return OwnNetwork(partial(from_layers, layers), "the network given")


class Model(Protocol):
    """What ``fit`` makes and ``load`` reads back.

    Features are the problem's own: as the head takes them.
    """

    @property
    def problem(self) -> Problem:
        """What it was trained on, and how."""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3."""

    @property
    def plan(self) -> BatchPlan:
        """The batch plan it was trained by."""

    @property
    def noise(self) -> NoisePlan | None:
        """The noise of each step of its training; None without any."""

    @property
    def words(self) -> tuple[str, ...]:
        """What may be said of noise that hides removals, a line each."""

    @property
    def linear_head(self) -> LinearModel | None:
        """Itself, where it is one linear head, whose weights may be released with noise."""

    @property
    def instant(self) -> bool:
        """Whether certifying takes no longer than predicting."""

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Flat facts about it."""

    def save(self, store: FileWriter) -> None:
        """Write what ``load`` needs."""

    @property
    def farthest(self) -> int:
        """A public number that no stable distance, step of the grid or gap between votes exceeds."""

    def check(self, features: np.ndarray) -> None:
        """Raise where queries are not what it takes (ConfigError, UnsoundError): from public values alone."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels of the nominal model."""

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[lines, n] signed margins; a decision line of a map is where one is 0."""

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Certificates of queries.

        Args:
            ks: at these values of the grid alone, such as the few that a map tells apart; None: the whole grid.
            on_progress: called after every block of queries, or every member of an ensemble.
        """


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
    on_progress: OnProgress = lambda progress: None,
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


def load(problem: Problem, shelf: FileReader) -> Model:
    """Read back a model that was trained on this problem."""
    kind = KINDS[type(problem.settings.certificate)]
    if problem.settings.ensemble.members > 1:
        return EnsembleModel.load(kind, problem, shelf)
    return kind.load(problem, shelf)


def accuracy(model: Model, records: Records) -> float:
    """The fraction of records that the nominal model labels right."""
    return float((model.predict(records.features) == records.labels).mean())
