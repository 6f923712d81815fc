"""Shadow models: many models of a run's own making on random halves of its records, for attacks
that compare with them.

A pool holds the run's training records, and its test records as ones that it has never seen. Model
2 p is trained on the units whose keyed hash of pair p says so, model 2 p + 1 on all others. So a
record is in exactly half of the models, all rows of a unit share their side, and which side is a
fair coin for each unit, whatever the others'. Public training records are in every model and are
not attacked.

Settings are the run's own, except for sizes: declared size, normaliser and n_max are brought to the
share of the run's records that half a pool is. Boxes are carried for k = 0 only, because the
nominal model does not depend on them. A run that draws noise draws anew for each model, unless its
noise has a seed.

    FOLDER/KEY/about.json                              what KEY is made of
    FOLDER/KEY/model=0017.<sha256>.safetensors         "logits" [n, C] of model 17 on the pool

KEY stands for everything that a model's bits depend on: records, settings, code, machine, one
thread. A file appears whole or not at all and has its own hash in its name: whoever finds it uses
it, and trains only what is missing. A damaged file is removed and its model trained again.

Source: Carlini et al. 2022, Membership Inference Attacks From First Principles (halves, and their
pairs).
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from safetensors.torch import load, save

from agt.data.dataset import Dataset
from agt.data.digests import fingerprint
from agt.data.ids import keyed_hash, remix
from agt.data.records import Records
from agt.errors import AgtError, CheckError, ConfigError, first_line
from agt.models.ensemble import training_environment
from agt.models.fitting import fit
from agt.models.model import Model
from agt.numeric import COVER
from agt.problem import Problem
from agt.provenance import CODE, code_digest
from agt.settings import KGridConfig, TrainingConfig, default_n_max, plain_of
from agt.store.atomic import write_atomic
from agt.store.json_text import as_json
from agt.training.ensemble import aligned_copy, worker_processes
from agt.training.loop import ignore_progress
from agt_audit.edited_records import with_added
from agt_audit.job import AuditInputs, counted_progress
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.console import Console
from agt_cli.runs.queries import OpenedRun

SIZES = (
    "each shadow model is trained on about half of the training and test records, with the "
    "run's own settings. Settings that depend on the number of records are set for half of "
    "that number: the declared size, the divisor of gradient sums, n_max (the maximum batch size) "
    "and what the recipe chooses"
)

FORMAT = 1  # of the files; a part of KEY
# tasks for each process: few, because each carries all records, but enough to share work evenly
TASKS_PER_PROCESS = 4
Failure = tuple[int, str]
"""The number of a model, and the reason why it could not be trained; "": it was trained."""


@dataclass(frozen=True)
class ShadowConfig:
    """How many shadow models there are, and how they are trained.

    Attributes:
        models: m, an even number: half of them are trained on each record.
        seed: a part of the hash that decides which units each model is trained on.
        workers: how many processes train at once, each with one thread; None: one for each
            processor. The models do not depend on it.
    """

    models: int = 64
    seed: int = 0
    workers: int | None = None


@dataclass(frozen=True)
class Pool:
    """The records that shadow models are trained on, members and non-members of the run.

    Attributes:
        records: n private records with unique ids.
        member: [n] bool, whether the run was trained on the record.
        always: the public training records, on which every model is trained.
    """

    records: Records
    member: np.ndarray
    always: Records

    @classmethod
    def of(cls, dataset: Dataset) -> "Pool":
        """Return the pool of a run's dataset: private training records, then test records.

        Test records are left out if the run was trained on the record or its unit.

        Raises:
            DataError: the file of the records was changed.
        """
        dataset.check_unchanged()
        train = dataset.train
        test = dataset.test
        private = train.take(~train.public)
        was_trained_on = np.isin(test.ids, train.ids) | np.isin(test.units, train.units)
        held_out = test.take(~was_trained_on)
        held_out = replace(held_out, public=np.zeros(len(held_out), dtype=bool))
        pooled = with_added(private, held_out)
        member = np.arange(len(pooled)) < len(private)
        return cls(pooled, member, train.take(train.public))

    def __len__(self) -> int:
        return len(self.records)

    def sides(self, config: ShadowConfig) -> np.ndarray:
        """Return which model is trained on which record, [m, n] bool; rows 2p and 2p + 1 differ
        everywhere.
        """
        hashes = keyed_hash(self.records.units, f"shadow/{config.seed}")
        pairs = config.models // 2
        # the highest bit of a hash of each pair is a fair coin
        coins = np.array([remix(hashes, pair) >> np.uint64(63) == 1 for pair in range(pairs)])
        return np.stack([coins, ~coins], axis=1).reshape(config.models, len(self))


@dataclass(frozen=True)
class Shadows:
    """Logits of m trained shadow models at n records.

    Attributes:
        included: [m, n] bool, whether a model was trained on a record.
        logits: [m, n, C] float64, each record's up to a constant.
        failed: the models that could not be trained; they are not among the m.
        reused: how many of the m were found on disk.
    """

    included: np.ndarray
    logits: np.ndarray
    failed: tuple[Failure, ...] = ()
    reused: int = 0

    def __len__(self) -> int:
        return len(self.included)

    @property
    def failure_notes(self) -> tuple[str, ...]:
        """A sentence about the models that could not be trained; empty: all were."""
        if not self.failed:
            return ()
        count = len(self.failed)
        index, error = self.failed[0]
        return (
            f"shadow models that failed and were left out: {count}. Error of model number {index}, "
            f"the first of them: {error}",
        )


def class_logits(model: Model, features: np.ndarray) -> np.ndarray:
    """Return a logit for each class, [n, C] float64, up to a constant of each row.

    Logits of two classes are (0, margin). Logits of more classes are the model's margins, but at
    most 0. An ensemble has shares of votes instead of logits.

    Args:
        model: a model of classes, of any kind.
        features: [n, ...] the records' features.
    """
    margins = np.asarray(model.margins(features), dtype=np.float64)
    if len(margins) == 1:
        return np.stack([np.zeros_like(margins[0]), margins[0]], axis=1)
    return np.minimum(margins, 0).T


def train_shadows(
    problem: Problem,
    pool: Pool,
    config: ShadowConfig,
    folder: Path,
    on_done: Callable[[int], None] = ignore_progress,
) -> Shadows:
    """Train the shadow models that are not on disk yet, and return the logits of all.

    Args:
        problem: the run's problem, with its dataset.
        pool: the records.
        config: how many models there are, and how they are trained.
        folder: where shadow models are stored; those of these settings are in its folder KEY.
        on_done: called with the number of models that are on disk or have failed: once before
            the first is trained, then after each.

    Raises:
        CheckError: every model failed; the message has the error of the first.
        OSError: a file cannot be read or written.
    """
    half = halved(problem, pool)
    sides = pool.sides(config)
    key_folder = folder / shadow_key(half, pool, config)
    reused = _load_all_logits(key_folder, config.models)
    missing = [index for index in range(config.models) if index not in reused]
    on_done(len(reused))
    failures: dict[int, str] = {}
    results = _train_missing(half, pool, sides, missing, config, key_folder)
    for done, (index, reason) in enumerate(results, start=len(reused) + 1):
        on_done(done)
        if reason:
            failures[index] = reason
    logits_of = _load_all_logits(key_folder, config.models)
    for index in missing:
        if index not in logits_of:
            damaged = "the file of the shadow model was damaged after it was written"
            failures.setdefault(index, damaged)
    if not logits_of:
        first_error = failures[min(failures)]
        raise CheckError(
            f"all {config.models} shadow models failed. The first error is: {first_error}"
        )
    return Shadows(
        included=sides[list(logits_of)],
        logits=np.stack(list(logits_of.values())),
        failed=tuple(sorted(failures.items())),
        reused=len(reused),
    )


def halved(problem: Problem, pool: Pool) -> Problem:
    """Return the run's problem for trainings on half of the pool, without records.

    The declared size and the constants of batches are multiplied by the size of half of the pool,
    divided by that of the run's training data. Only k = 0 is trained, with one thread on the CPU.
    """
    settings = problem.settings
    dataset = problem.dataset
    share = (len(pool) / 2 + len(pool.always)) / problem.record_count
    size = None if dataset.declared_size is None else dataset.declared_size * share
    smaller = replace(
        settings,
        training=_scaled(problem, share),
        compute=replace(settings.compute, threads=1, device="cpu", checkpoint_seconds=0),
        kgrid=KGridConfig(values=(0,)),
    )
    without_records = dataset.without_records
    resized = without_records.with_training_records(without_records.train, size)
    return replace(problem, settings=smaller).with_dataset(resized)


def _scaled(problem: Problem, share: float) -> TrainingConfig:
    """Return the run's training settings for a multiple ``share`` of its records.

    n_max keeps its ratio to B, because the learning rates that the proofs allow follow it.
    """
    training = problem.settings.training
    batch = training.batch
    size = problem.plan.normalizer / problem.settings.ensemble.members
    n_max = None
    if batch.n_max is not None or "lr" not in training.by_recipe:
        ratio = (batch.n_max or default_n_max(size)) / size
        scaled_n_max = math.floor(ratio * size * share)
        expected = math.ceil(1.1 * size * share * COVER)
        n_max = max(1, scaled_n_max, expected)
    normalizer = None if batch.normalizer is None else batch.normalizer * share
    return replace(training, batch=replace(batch, normalizer=normalizer, n_max=n_max))


def shadow_key(half: Problem, pool: Pool, config: ShadowConfig) -> str:
    """Return KEY, a hash of everything that a shadow model's bits depend on, except its number."""
    about = json.dumps(_about(half, pool, config), sort_keys=True)
    return blake2b(about.encode(), digest_size=16).hexdigest()


def _about(half: Problem, pool: Pool, config: ShadowConfig) -> dict[str, object]:
    """Return all that a shadow model's bits depend on, except its number, for JSON."""
    about: dict[str, object] = {
        "format": FORMAT,
        "records": fingerprint(pool.records, pool.always),
        "public rows": fingerprint(half.dataset.test),
        "classes": list(half.dataset.classes),
        "declared size": half.dataset.declared_size,
        "seed": config.seed,
        "model": repr(half.settings.model),
    }
    if half.settings.certificate.draws_start:
        # layers may be the user's code; linear heads draw no initial parameters
        shape = half.dataset.train.features.shape[1:]
        layers = half.settings.model.build(shape, half.classes, half.settings.training)
        about["layers"] = str(layers)
    for name in ("training", "relation", "certificate", "ensemble", "noise"):
        value = getattr(half.settings, name)
        about[name] = None if value is None else plain_of(value)
    about |= training_environment(half)
    # of agt and of this package, whose code deals the halves
    about[CODE] = code_digest([__name__])
    return about


def _train_missing(
    half: Problem,
    pool: Pool,
    sides: np.ndarray,
    indices: Sequence[int],
    config: ShadowConfig,
    key_folder: Path,
) -> Iterator[Failure]:
    """Train some of the models, in several processes if there are several, and write their files.

    about.json is written first, if it is not there.

    Args:
        half: the run's problem for half of the pool.
        pool: the records.
        sides: [m, n] bool, which model is trained on which record.
        indices: the numbers of the models to train; empty: nothing is done.
        config: how many processes there are at most.
        key_folder: the folder KEY of these models.

    Yields:
        The result of each model when it is finished, in any order.
    """
    if not indices:
        return
    about = key_folder / "about.json"
    if not about.exists():
        write_atomic(about, as_json(_about(half, pool, config)))
    workers = min(config.workers or os.cpu_count() or 1, len(indices))
    if workers == 1:
        with _one_thread():
            for index in indices:
                yield _train(half, pool, sides[index], index, key_folder)
        return
    task_count = min(len(indices), workers * TASKS_PER_PROCESS)
    tasks = [
        delayed(_train_task)(half, pool, sides, indices[task::task_count], key_folder)
        for task in range(task_count)
    ]
    with worker_processes(workers):
        for results in Parallel(return_as="generator_unordered")(tasks):
            yield from results


def _train_task(
    half: Problem, pool: Pool, sides: np.ndarray, indices: Sequence[int], key_folder: Path
) -> list[Failure]:
    """Train the models of one task, in a worker process, and return the result of each.

    Args:
        half: the run's problem for half of the pool.
        pool: the records.
        sides: [m, n] bool, which model is trained on which record.
        indices: the numbers of the models to train.
        key_folder: the folder of these models.
    """
    return [_train(half, pool, sides[index], index, key_folder) for index in indices]


def _train(half: Problem, pool: Pool, side: np.ndarray, index: int, key_folder: Path) -> Failure:
    """Train one model, and write its logits at all records of the pool.

    Errors of training are returned, so that one failed model does not end the others.

    Args:
        half: the run's problem for half of the pool.
        pool: the records.
        side: [n] bool, which records the model is trained on.
        index: the model's number.
        key_folder: the folder KEY of the models.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        records = _half_of(pool, side)
        dataset = half.dataset.with_training_records(records, half.dataset.declared_size)
        model = fit(half.with_dataset(dataset))
        logits = class_logits(model, pool.records.features)
        if not np.isfinite(logits).all():
            raise ConfigError("a logit of the shadow model is NaN or infinite")
    except (AgtError, ArithmeticError, ValueError, MemoryError) as error:
        return index, first_line(error)
    content = save({"logits": torch.from_numpy(np.ascontiguousarray(logits))})
    write_atomic(key_folder / f"{_stem(index)}.{sha256(content).hexdigest()}.safetensors", content)
    return index, ""


def _half_of(pool: Pool, side: np.ndarray) -> Records:
    """Return the records that one model is trained on, with features in separate memory.

    The copy is aligned, because results of training may depend on the alignment to the last bit.

    Args:
        pool: the records.
        side: [n] bool, which of the pool's records these are; public ones are added to them.
    """
    chosen = pool.records.take(side)
    if len(pool.always):
        chosen = with_added(chosen, pool.always)
    return replace(chosen, features=aligned_copy(chosen.features))


def _load_all_logits(key_folder: Path, count: int) -> dict[int, np.ndarray]:
    """Return the stored logits of each of ``count`` models that has an intact file, by number."""
    loaded = {index: _load_logits(key_folder, index) for index in range(count)}
    return {index: logits for index, logits in loaded.items() if logits is not None}


def _load_logits(key_folder: Path, index: int) -> np.ndarray | None:
    """Return the stored logits [n, C] of a model, and delete its damaged files; None: none intact.

    A file is damaged if its content does not have the hash in its name.

    Args:
        key_folder: the folder KEY of the models.
        index: the model's number.
    """
    for path in sorted(key_folder.glob(f"{_stem(index)}.*.safetensors")):
        content = path.read_bytes()
        if path.name.split(".")[1] == sha256(content).hexdigest():
            return load(content)["logits"].numpy()
        path.unlink(missing_ok=True)
    return None


def _stem(index: int) -> str:
    """Return the start of the name of a model's file, before the hash of its content."""
    return f"model={index:04d}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread within the context, as worker processes do: bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def trained_shadows(
    config: ShadowConfig, given: AuditInputs, opened: OpenedRun, pool: Pool, console: Console
) -> Shadows:
    """Return the shadow models of a run; those that are not on disk yet are trained.

    Args:
        config: how many models there are, and how they are trained.
        given: the settings, whose output folder stores shadow models.
        opened: the run.
        pool: its records.
        console: the console, which shows progress.

    Raises:
        CheckError: every model failed.
    """
    count = config.models
    folder = given.output_dir / SHADOWS
    with counted_progress(console, f"training {count} shadow models", "model", count) as report:
        return train_shadows(opened.stored.problem, pool, config, folder, report)
