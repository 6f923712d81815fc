"""A model of any kind of certificate, alone or as an ensemble: fit it, and read it back."""

from dataclasses import asdict

import torch

from agt.distributed import group
from agt.models.description import describe
from agt.models.ensemble import EnsembleModel, training_environment
from agt.models.model import Model
from agt.models.store import FileReader
from agt.problem import Problem
from agt.store import flat
from agt.training.checkpoint import NOWHERE, Checkpoints, SharedCheckpoints
from agt.training.loop import OnProgress


def fit(
    problem: Problem,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> Model:
    """Train the model, or the ensemble, of a problem; go on from its checkpoints, if it has any.

    Raises:
        ConfigError: a process that shares the work has other data or settings, or computes by other
            means.
        DataError: memory-mapped records were edited meanwhile.
    """
    problem.dataset.check_unchanged()
    model = _fit(problem, on_progress, checkpoints)
    problem.dataset.check_unchanged()
    return model


def _fit(problem: Problem, on_progress: OnProgress, checkpoints: Checkpoints) -> Model:
    if group().size > 1:
        group().agree(_agreed(problem))
        checkpoints = SharedCheckpoints(group(), checkpoints)
    if problem.settings.ensembled:
        return EnsembleModel.fit(problem, on_progress, checkpoints)
    return problem.settings.certificate.fit(problem, on_progress, checkpoints)


def _agreed(problem: Problem) -> dict[str, object]:
    """All that the bits of a training depend on, under words for a message."""
    noise = asdict(problem.settings.noise) if problem.settings.noise else None
    settings = flat({**describe(problem), "noise": noise})
    return {
        **settings,
        **training_environment(problem),
        "the number of PyTorch's threads": torch.get_num_threads(),
        "the data's digest": problem.dataset.digest,
    }


def load(problem: Problem, shelf: FileReader) -> Model:
    """Read back a model that was trained on this problem."""
    if problem.settings.ensembled:
        return EnsembleModel.load(problem, shelf)
    return problem.settings.certificate.load(problem, shelf)
