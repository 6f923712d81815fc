"""Train a model of any kind of certificate, alone or as an ensemble, and read it back."""

from dataclasses import asdict

import torch

from agt.distributed import group
from agt.models.description import describe
from agt.models.ensemble import EnsembleModel, training_environment
from agt.models.model import Model
from agt.problem import Problem
from agt.store.dotted_keys import flatten_keys
from agt.store.folder import Folder
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints, SharedCheckpoints
from agt.training.loop import OnProgress, ignore_progress


def fit(
    problem: Problem,
    on_progress: OnProgress = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> Model:
    """Train a certified model, or an ensemble of them if the settings ask for several members.

    In a distributed (torchrun) job every process has to call it with the same problem.

    Args:
        problem: the records and the settings; the settings name the kind of certificate.
        on_progress: receives the progress.
        checkpoints: where training resumes from, if an earlier attempt was interrupted, and where
            it saves its state.

    Returns:
        The trained model, which predicts labels of queries and certifies them.

    Raises:
        ConfigError: no proof covers the settings; or another process of the job has other data,
            settings or software.
        DataError: a file of memory-mapped records was edited during training.
        UnsoundError: a bound or a parameter is NaN or infinite.
    """
    # The first call stores a digest of memory-mapped records and the second one compares it:
    # certificates would be wrong if the records changed in between.
    problem.dataset.check_unchanged()
    model = _fit(problem, on_progress, checkpoints)
    problem.dataset.check_unchanged()
    return model


def _fit(problem: Problem, on_progress: OnProgress, checkpoints: Checkpoints) -> Model:
    """Train a model or an ensemble, after a check that all processes have the same inputs.

    Args:
        problem: the records and the settings, the same in every process of a distributed job.
        on_progress: receives the progress.
        checkpoints: where training resumes from, and where it saves its state.

    Raises:
        ConfigError: another process has other data, settings or software.
    """
    if group().size > 1:
        group().check_equal(_training_inputs(problem))  # raises ConfigError where processes differ
        # Only the first process reads and writes checkpoints, and it sends them to the others.
        checkpoints = SharedCheckpoints(group(), checkpoints)
    if problem.settings.ensembled:
        return EnsembleModel.fit(problem, on_progress, checkpoints)
    return problem.settings.certificate.fit(problem, on_progress, checkpoints)


def _training_inputs(problem: Problem) -> dict[str, object]:
    """Return all inputs on which the bits of the trained parameters depend.

    Processes that share a training compare them before they start.

    Returns:
        A description, for messages -> the value: settings, software and machine, the number of
        threads, and a digest of the data.
    """
    noise = asdict(problem.settings.noise) if problem.settings.noise else None
    settings = flatten_keys({**describe(problem), "noise": noise})
    return {
        **settings,
        **training_environment(problem),
        "PyTorch's number of threads": torch.get_num_threads(),
        "the data's digest": problem.dataset.digest,
    }


def load(problem: Problem, reader: Folder) -> Model:
    """Read back a saved model, or a saved ensemble if the settings ask for several members.

    Args:
        problem: the settings that the model was trained with, and its dataset, which need not hold
            the records.
        reader: the model's files.

    Raises:
        ConfigError: a file is missing, or is not what was written.
        UnsoundError: a recorded value differs from the one that the settings imply.
    """
    if problem.settings.ensembled:
        return EnsembleModel.load(problem, reader)
    return problem.settings.certificate.load(problem, reader)
