"""Train a model of any kind of certificate, alone or as an ensemble, and read it back."""

from dataclasses import asdict

import torch

from agt.distributed import group
from agt.models.description import describe
from agt.models.ensemble import EnsembleModel, training_environment
from agt.models.model import Model
from agt.models.store import FileReader
from agt.problem import Problem
from agt.store import flat
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints, SharedCheckpoints
from agt.training.loop import OnProgress


def fit(
    problem: Problem,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> Model:
    """Train the model of a problem, or its ensemble.

    Every process of a torchrun job has to call it with the same problem.

    Args:
        problem: the records and the settings.
        on_progress: receives the progress.
        checkpoints: where training resumes from, if an earlier attempt was interrupted, and where
            it saves its state.

    Raises:
        ConfigError: no proof covers the settings; or another process of the job has other data or
            settings, or other software.
        DataError: memory-mapped records were edited during training.
        UnsoundError: a bound or a parameter is NaN or infinite.
    """
    # Called before and after, because records that change in between have no certificate.
    problem.dataset.check_unchanged()
    model = _fit(problem, on_progress, checkpoints)
    problem.dataset.check_unchanged()
    return model


def _fit(problem: Problem, on_progress: OnProgress, checkpoints: Checkpoints) -> Model:
    """Train the model or ensemble, after all processes have agreed on what they train."""
    if group().size > 1:
        group().agree(_training_inputs(problem))
        checkpoints = SharedCheckpoints(group(), checkpoints)
    if problem.settings.ensembled:
        return EnsembleModel.fit(problem, on_progress, checkpoints)
    return problem.settings.certificate.fit(problem, on_progress, checkpoints)


def _training_inputs(problem: Problem) -> dict[str, object]:
    """Return everything that the trained bits depend on, by its description for a message."""
    noise = asdict(problem.settings.noise) if problem.settings.noise else None
    settings = flat({**describe(problem), "noise": noise})
    return {
        **settings,
        **training_environment(problem),
        "the number of PyTorch's threads": torch.get_num_threads(),
        "the data's digest": problem.dataset.digest,
    }


def load(problem: Problem, reader: FileReader) -> Model:
    """Read back a saved model, or an ensemble.

    Args:
        problem: what the model was trained on; its records may be missing.
        reader: the model's files.

    Raises:
        ConfigError: a file is missing, or is not what was written.
        UnsoundError: recorded values are not those that the settings imply.
    """
    if problem.settings.ensembled:
        return EnsembleModel.load(problem, reader)
    return problem.settings.certificate.load(problem, reader)
