"""Shadow models: many models of a run's own making on random halves of its records, for attacks
that compare with them.

A pool holds the records that the run was trained on, and its test records as ones that it has never
seen. Model 2 p is trained on the units whose keyed hash of pair p says so, model 2 p + 1 on all
others: a record is in exactly half of the models, all rows of a unit share their side, and which
side is a fair coin for each unit, whatever the others'. Public training records are in every model
and are not attacked.

Settings are the run's own, but for sizes: declared size, normaliser and n_max are brought to the
share of the run's records that half a pool is; what the run left to the recipe is settled for that
size, too. Boxes are carried for k = 0 alone: the nominal model does not depend on them. A run that
draws noise draws anew for each model, unless its noise has a seed.

    FOLDER/KEY/about.json                              what KEY is made of
    FOLDER/KEY/model=0017.<sha256>.safetensors         "logits" [n, C] of model 17 on the pool

KEY stands for everything that a model's bits depend on: records, settings, code, machine, one
thread. A file appears whole or not at all and has its own hash in its name: whoever finds it, later
or at the same time, uses it, and trains only what is missing. A damaged file is thrown away and its
model trained again.

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
from typing import Annotated

import numpy as np
import torch
from joblib import Parallel, delayed
from pydantic import Field
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
from agt.settings import KGridConfig, TrainingConfig, default_n_max, plain_of, schema
from agt.store.atomic import write_atomic
from agt.store.json_text import as_json
from agt.training.ensemble import aligned_copy, worker_processes
from agt_audit.job import AuditInputs
from agt_audit.neighbours import with_added
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.console import Console
from agt_cli.runs.queries import OpenedRun

SIZES = (
    "each shadow model is trained on about half of the training and test records, with the "
    "run's own settings. Settings that depend on the number of records are set for half of "
    "that number: the declared size, the divisor of gradient sums, n_max (the maximum batch size) "
    "and what the recipe chooses"
)

FORMAT = 1
# tasks of each process: few, as each carries all records, and enough that none waits long for
# another
TURNS = 4
Failure = tuple[int, str]


@schema
class ShadowConfig:
    """How many shadow models, and how they are trained.

    Attributes:
        models: m, an even number: half of them are trained on each record.
        seed: of the hashes that deal units to models.
        workers: processes at once, each of one thread; None: as many as there are processors. It
            changes speed alone.
    """

    models: Annotated[int, Field(ge=2, le=4096, multiple_of=2)] = 64
    seed: Annotated[int, Field(ge=0)] = 0
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None


@dataclass(frozen=True)
class Pool:
    """The records that shadow models are trained on, and whether the run was.

    Attributes:
        records: n of them, ids unique.
        member: [n] bool, True where the run was trained on the record.
        always: public training records, part of every training.
    """

    records: Records
    member: np.ndarray
    always: Records

    @classmethod
    def of(cls, dataset: Dataset) -> "Pool":
        """Private training records, then test records; without those of the latter whose record
        or unit was trained on.
        """
        dataset.check_unchanged()
        train, test = dataset.train, dataset.test
        private = train.take(~train.public)
        new = ~(np.isin(test.ids, train.ids) | np.isin(test.units, train.units))
        others = test.take(new)
        both = with_added(private, replace(others, public=np.zeros(len(others), dtype=bool)))
        member = np.arange(len(both)) < len(private)
        return cls(both, member, train.take(train.public))

    def __len__(self) -> int:
        return len(self.records)

    def sides(self, config: ShadowConfig) -> np.ndarray:
        """[m, n] bool: which model is trained on which record."""
        hashes = keyed_hash(self.records.units, f"shadow/{config.seed}")
        coins = np.array(
            [remix(hashes, pair) >> np.uint64(63) == 1 for pair in range(config.models // 2)]
        )
        return np.stack([coins, ~coins], axis=1).reshape(config.models, len(self))


@dataclass(frozen=True)
class Shadows:
    """What m shadow models say of n records.

    Attributes:
        included: [m, n] bool, whether a model was trained on a record.
        logits: [m, n, C] float64, up to a constant of each row.
        failed: (number of the model, why) of those that could not be trained; they have no row
            above.
        reused: how many were there already.
    """

    included: np.ndarray
    logits: np.ndarray
    failed: tuple[Failure, ...] = ()
    reused: int = 0

    def __len__(self) -> int:
        return len(self.included)


def class_logits(model: Model, features: np.ndarray) -> np.ndarray:
    """[n, C] float64 of any model, up to a constant of each row; of an ensemble, shares of votes
    stand for them.

    Of two classes (0, margin); of more, each logit less the greatest.
    """
    margins = np.asarray(model.margins(features), dtype=np.float64)
    return (
        np.stack([np.zeros_like(margins[0]), margins[0]], axis=1)
        if len(margins) == 1
        else np.minimum(margins, 0).T
    )


def train_shadows(
    problem: Problem,
    pool: Pool,
    config: ShadowConfig,
    folder: Path,
    on_done: Callable[[int], None] = lambda done: None,
) -> Shadows:
    """Train what is not there yet, several processes at once, and read all of it.

    Args:
        problem: of the run, with its dataset.
        folder: of all shadow models; those of these settings lie in a folder of their own inside.
        on_done: called with the number of models that are there or have failed.

    Raises:
        CheckError: every model failed; names the first reason.
        OSError: a file cannot be written.
    """
    half, sides = halved(problem, pool), pool.sides(config)
    home = folder / shadow_key(half, pool, config)
    there = {
        index: logits
        for index in range(config.models)
        if (logits := _stored(home, index)) is not None
    }
    missing = [index for index in range(config.models) if index not in there]
    on_done(len(there))
    failures = dict[int, str]()
    for count, (index, why) in enumerate(
        _trained(half, pool, sides, missing, config, home), start=len(there) + 1
    ):
        on_done(count)
        logits = None if why else _stored(home, index)
        if logits is None:
            failures[index] = why or "the file of the shadow model was damaged after it was written"
        else:
            there[index] = logits
    if not there:
        first_error = failures[min(failures)]
        raise CheckError(
            f"all {config.models} shadow models failed. The first error is: {first_error}"
        )
    kept = sorted(there)
    reused = config.models - len(missing)
    return Shadows(
        sides[kept],
        np.stack([there[index] for index in kept]),
        tuple(sorted(failures.items())),
        reused,
    )


def halved(problem: Problem, pool: Pool) -> Problem:
    """The run's problem for half of the pool: constants that count records are brought to that
    share.
    """
    settings, dataset = problem.settings, problem.dataset
    share = (len(pool) / 2 + len(pool.always)) / problem.record_count
    size = None if dataset.declared_size is None else dataset.declared_size * share
    compute = replace(settings.compute, threads=1, device="cpu", checkpoint_seconds=0)
    training = _scaled(problem, share)
    smaller = replace(settings, training=training, compute=compute, kgrid=KGridConfig(values=(0,)))
    return replace(problem, settings=smaller).with_dataset(
        dataset.without_records.with_training_records(dataset.without_records.train, size)
    )


def _scaled(problem: Problem, share: float) -> TrainingConfig:
    """Batches of a share of the records. n_max keeps its ratio to B: the learning rates that the
    proofs allow follow it.
    """
    training = problem.settings.training
    batch, plan = training.batch, problem.plan
    size = plan.normalizer / problem.settings.ensemble.members
    n_max = None
    if batch.n_max is not None or "lr" not in training.by_recipe:
        crowd = (batch.n_max or default_n_max(size)) / size
        n_max = max(1, math.floor(crowd * size * share), math.ceil(1.1 * size * share * COVER))
    normalizer = None if batch.normalizer is None else batch.normalizer * share
    return replace(training, batch=replace(batch, normalizer=normalizer, n_max=n_max))


def shadow_key(half: Problem, pool: Pool, config: ShadowConfig) -> str:
    """Names everything that a shadow model's bits depend on, but its number."""
    return blake2b(
        json.dumps(_about(half, pool, config), sort_keys=True).encode(), digest_size=16
    ).hexdigest()


def _about(half: Problem, pool: Pool, config: ShadowConfig) -> dict[str, object]:
    settings = half.settings
    parts = ("training", "relation", "certificate", "ensemble", "noise")
    node = {name: getattr(settings, name) for name in parts}
    return {
        "format": FORMAT,
        "records": fingerprint(pool.records, pool.always),
        "public rows": fingerprint(half.dataset.test),
        "classes": list(half.dataset.classes),
        "declared size": half.dataset.declared_size,
        "seed": config.seed,
        "model": repr(settings.model),
        **_layers(half),
        **{name: None if value is None else plain_of(value) for name, value in node.items()},
        **training_environment(half),
        CODE: code_digest([__name__]),  # of agt and of this package, whose code deals the halves
    }


def _layers(half: Problem) -> dict[str, object]:
    """The layers of a head that may be code of the user's own."""
    if not half.settings.certificate.draws_start:
        return {}
    shape = half.dataset.train.features.shape[1:]
    return {"layers": str(half.settings.model.build(shape, half.classes, half.settings.training))}


def _trained(
    half: Problem,
    pool: Pool,
    sides: np.ndarray,
    which: Sequence[int],
    config: ShadowConfig,
    home: Path,
) -> Iterator[Failure]:
    """(number, why it failed or nothing) of each model, as they end."""
    if not which:
        return
    about = home / "about.json"
    if not about.exists():
        write_atomic(about, as_json(_about(half, pool, config)))
    workers = min(config.workers or os.cpu_count() or 1, len(which))
    turns = min(len(which), workers * TURNS)
    tasks = ((half, pool, sides, which[turn::turns], home) for turn in range(turns))
    if workers == 1:
        with _one_thread():
            yield from (_train(half, pool, sides[index], index, home) for index in which)
        return
    with worker_processes(workers):
        for ended in Parallel(return_as="generator_unordered")(
            delayed(_train_some)(*task) for task in tasks
        ):
            yield from ended


def _train_some(
    half: Problem, pool: Pool, sides: np.ndarray, which: Sequence[int], home: Path
) -> list[Failure]:
    """One task of a process: records travel once for several models."""
    return [_train(half, pool, sides[index], index, home) for index in which]


def _train(half: Problem, pool: Pool, side: np.ndarray, index: int, home: Path) -> Failure:
    """Train one model and write what it says; in a process of its own."""
    try:
        model = fit(
            half.with_dataset(
                half.dataset.with_training_records(_half_of(pool, side), half.dataset.declared_size)
            )
        )
        logits = class_logits(model, pool.records.features)
        if not np.isfinite(logits).all():
            raise ConfigError("a logit of the shadow model is NaN or infinite")
    except (AgtError, ArithmeticError, ValueError, MemoryError) as error:
        return index, first_line(error)
    content = save({"logits": torch.from_numpy(np.ascontiguousarray(logits))})
    write_atomic(home / f"{_stem(index)}.{sha256(content).hexdigest()}.safetensors", content)
    return index, ""


def _half_of(pool: Pool, side: np.ndarray) -> Records:
    """The records of one model, in memory of its own: the same bytes at an aligned address give
    the same bits.
    """
    chosen = pool.records.take(side)
    chosen = with_added(chosen, pool.always) if len(pool.always) else chosen
    return replace(chosen, features=aligned_copy(chosen.features))


def _stored(home: Path, index: int) -> np.ndarray | None:
    """[n, C] of a model that is there; a file that is not what was written is removed."""
    for path in sorted(home.glob(f"{_stem(index)}.*.safetensors")):
        content = path.read_bytes()
        if path.name.split(".")[1] == sha256(content).hexdigest():
            return load(content)["logits"].numpy()
        path.unlink(missing_ok=True)
    return None


def _stem(index: int) -> str:
    return f"model={index:04d}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """This process as a worker is: bits and times depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def trained_shadows(
    config: ShadowConfig, given: AuditInputs, opened: OpenedRun, console: Console
) -> Shadows:
    """Shadow models of a run, of which some may be there already."""
    count = config.models
    with console.progress(f"training {count} shadow models", "model") as report:
        problem, pool, home = (
            opened.kept.problem,
            Pool.of(opened.dataset),
            given.output_dir / SHADOWS,
        )
        return train_shadows(
            problem, pool, config, home, lambda done: report(done, count, done, count)
        )
