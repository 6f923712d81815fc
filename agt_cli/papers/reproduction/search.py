"""Kind smallest_batch: how large batches must be for nearly all queries to be certified, by depth (000 Fig 2, 001 Fig 9).

One epoch over the same records in ever more, ever smaller batches. Each probe is a whole run and is kept, so a killed
search goes on where it stopped.
"""

import math
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.files import resolve
from agt.data.prepared import part_of
from agt.numeric import bisect, whole_midpoint
from agt.settings import STRICT, build, validate
from agt_cli.papers.prepare.amex_like import make
from agt_cli.papers.reproduction.definition import Profile, ProfileName
from agt_cli.papers.reproduction.kinds import Context, Made, kind
from agt_cli.report.curves import Curves, curves
from agt_cli.report.report_md import ball
from agt_cli.runs.compose import composed

Count = Annotated[int, Field(ge=1)]
Purpose = Literal["privacy", "unlearning"]
TRAIN = 0.9  # what prepare.test_fraction leaves of generated statements


@validated(frozen=True, config=STRICT)
class SearchConfig:
    """Settings of the kind; every one is public.

    Attributes:
        run: overrides of every run.
        claims: which of the profile's relations.
        depths, width: how many hidden layers, and how wide.
        seeds: profile -> how many initialisations, with seeds 0, 1, ...; one where nothing is said.
        k: the distance that must be certified.
        fraction: of the test records, at which a batch size is large enough.
        least: the smallest batch tried.
        per_doubling: batch sizes tried between one and twice it.
        generated: this many made-up statements in the competition's schema where they stand in for it.
        data: "either": they stand in only if nobody prepared the data or said where it is; "generated": always.
    """

    run: tuple[str, ...] = ()
    claims: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("privacy", "unlearning")
    depths: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 3, 4)
    width: Count = 128
    seeds: dict[ProfileName, Count] = Field(default_factory=dict)
    k: Count = 50
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.95
    least: Count = 64
    per_doubling: Count = 4
    generated: Annotated[int, Field(ge=1000)] = 1_000_000
    data: Literal["either", "generated"] = "either"


@dataclass(frozen=True)
class Probe:
    """One run of a search.

    Attributes:
        count: batches, and so steps.
        batch: records in one of them, B.
        certified, accuracy, larger: fractions of the test records: certified at k, labelled right, of the larger class.
        constant: the fraction that is given the more frequent label; at 1 the network says one thing whatever it is asked.
        seconds: of training.
    """

    count: int
    batch: float
    certified: float
    accuracy: float
    larger: float
    constant: float
    seconds: float


@dataclass(frozen=True)
class Search:
    """What a search found.

    Attributes:
        probes: in the order of the grid, from one batch of all records to the smallest tried.
        enough: the smallest batch that suffices; None: not even all records do.
        last: ``enough`` is the smallest of the grid: an upper bound of the answer.
        monotone: no probe contradicts that larger batches certify more.
    """

    probes: tuple[Probe, ...]
    enough: Probe | None
    last: bool
    monotone: bool


@dataclass(frozen=True)
class Task:
    """What one search searches.

    Attributes:
        overrides: of its runs, but for the batches.
        what: in words, for progress.
        size: training records, a public constant where one is declared.
        unit_rows: rows that one unit may have.
        data, counts: the data's name, and what one k counts.
    """

    overrides: tuple[str, ...]
    what: str
    size: float
    unit_rows: int
    data: str
    counts: str


@kind
def smallest_batch(context: Context, settings: dict[str, Any]) -> Made:
    """The smallest batch that certifies ``fraction`` of the test records at ``k``, by claim, depth and initialisation."""
    config = validate(SearchConfig, settings, context.artifact.id)
    rows, probes, sizes = [], [], []
    for name, profile in context.profiles.items():
        data, seeds = _data(context, profile, config), range(config.seeds.get(name, 1))
        for claim, depth, seed in product(config.claims, config.depths, seeds):
            hidden = f"model.hidden={[config.width] * depth}"
            own = (*config.run, *data, f"relation=@{claim}", hidden, *((f"training.seed={seed}",) if seed else ()))
            overrides = context.overrides(profile, (*own, "kgrid=sparse", f"kgrid.values=[{config.k}]"))
            task = _task(context, overrides, f"{name}, {claim}, depth {depth}, seed {seed}")
            found = _search(context, task, config)
            setting = {"profile": name, "claim": claim, "data": task.data, "k counts": task.counts, "depth": depth}
            rows.append({**setting, "seed": seed, **_row(found, config)})
            probes += [{**setting, "seed": seed, "batch": p.batch, "certified": p.certified} for p in found.probes]
            sizes.append(task.size)
    answers = over_seeds(pd.DataFrame(rows), max(sizes))
    values: dict[str, dict[str, float]] = {}
    for row in answers.to_dict("records"):
        values.setdefault(f"smallest batch, {row['claim']}, depth {row['depth']}", {})[row["profile"]] = row["batch"]
    captions = _draw(context, config, answers, pd.DataFrame(probes), max(sizes))
    table = pd.DataFrame(rows).drop(columns="batch")
    return Made(values, table, captions, _notes(config, table))


def over_seeds(rows: pd.DataFrame, size: float) -> pd.DataFrame:
    """One row for each profile, claim and depth: the median ``batch``, NaN where that is more than all records, and the
    range ``low``, ``high`` of several seeds, cut off at ``size``."""
    setting = ["profile", "claim", "data", "depth"]
    groups = rows.assign(batch=rows["batch"].fillna(math.inf)).groupby(setting, sort=False)["batch"]
    found = groups.agg(batch="median", low="min", high="max", seeds="size").reset_index()
    found[["low", "high"]] = found[["low", "high"]].clip(upper=size).where(found["seeds"] > 1)
    return found.assign(batch=found["batch"].where(np.isfinite(found["batch"]))).drop(columns="seeds")


# -- the search --------------------------------------------------------------------------------------------------------


def batch_counts(size: float, config: SearchConfig) -> tuple[int, ...]:
    """How many batches the records are cut into: 1, and on in equal logarithmic steps, to ``least`` records in each."""
    most = max(1, int(size // config.least))
    steps = np.arange(math.floor(config.per_doubling * math.log2(most)) + 1)
    return tuple(np.unique(np.round(2 ** (steps / config.per_doubling)).astype(int)).tolist())


def last_that_passes(passes: Callable[[int], bool], size: int) -> int:
    """Bisection: the last of 0..size-1 that passes, where the first ones pass and all others fail; -1: not even 0."""
    if not passes(0):
        return -1
    return bisect(passes, 0, size, whole_midpoint)[0]  # 0 passes; size is past the end


def _task(context: Context, overrides: Sequence[str], what: str) -> Task:
    dataset = context.runs.prepared(overrides).dataset
    relation = context.runs.settings(overrides)[1].relation
    size = dataset.declared_size or len(dataset.train)
    return Task(tuple(overrides), what, size, relation.unit_rows, dataset.name, ball(relation))


def _search(context: Context, task: Task, config: SearchConfig) -> Search:
    """Bisect, then try the answer's neighbours two steps away: those one step away were tried."""
    counts, probes = batch_counts(task.size, config), {}

    def passes(index: int) -> bool:
        if index not in probes:
            probes[index] = _probe(context, task, counts[index], config.k)
        return probes[index].certified >= config.fraction

    last = last_that_passes(passes, len(counts))
    for neighbour in (last - 1, last + 2):
        if 0 <= neighbour < len(counts):
            passes(neighbour)
    monotone = all(passes(index) == (index <= last) for index in list(probes))
    found = tuple(probes[index] for index in sorted(probes))
    return Search(found, probes.get(last), last == len(counts) - 1, monotone)


def _probe(context: Context, task: Task, count: int, k: int) -> Probe:
    batch = task.size / count
    cut = (f"training.batch.count={count}", f"training.batch.n_max={largest_batch(batch, task.unit_rows)}")
    done = context.runs.finished([*task.overrides, *cut], f"{task.what}: {count} batches of about {batch:,.0f}")
    larger, constant = (float(done.frame[c].value_counts(normalize=True).max()) for c in ("label", "prediction"))
    seconds = float(done.facts["seconds_training"])
    return Probe(count, batch, float((done.distance >= k).mean()), done.accuracy, larger, constant, seconds)


def largest_batch(batch: float, unit_rows: int) -> int:
    """The public cap n_max: a tenth more than B and six standard deviations, if every unit has all the rows it may have."""
    return math.ceil(1.1 * batch + 6 * math.sqrt(unit_rows * batch))


# -- the data ----------------------------------------------------------------------------------------------------------


def _data(context: Context, profile: Profile, config: SearchConfig) -> tuple[str, ...]:
    """Overrides that name the generated statements, made if they are not there; none where there is data of one's own."""
    dataset = context.runs.settings(context.overrides(profile, config.run))[0]["dataset"]
    path = resolve(Path(dataset["path"]), Path(dataset["data_dir"]))
    said = any(word.startswith("dataset") for word in (*context.runs.common, *config.run))
    if config.data == "either" and (said or path.exists() or part_of(path).exists()):
        return ()
    folder = context.runs.folder.resolve() / f"amex_like_{config.generated}"
    unit = "statement" if dataset["unit"] is None else "customer"
    if config.data == "either":
        context.runs.console.note(
            f"{path} is not there (agt data prepare amex makes it: docs/data/amex.md): {config.generated:,} generated, "
            "SYNTHETIC statements stand in, and every table says so"
        )
    if not folder.exists():
        _generate(folder, config.generated)
    name = f"AMEX-shaped SYNTHETIC statements, {config.generated:,} (unit: {unit})"
    size = round(TRAIN * config.generated)
    return f"dataset.path='{folder}'", f"dataset.name='{name}'", f"dataset.declared_size={size}"


def _generate(folder: Path, rows: int) -> None:
    """A folder as ``agt data prepare amex`` makes it, of generated statements; it appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as raw:
        make(Path(raw), rows, "parquet")
        overrides = ["prepare=amex", f"data_dir='{raw}'", f"prepare.out={folder.name}", "prepare.data=train_data.parquet"]
        outcome = build(composed("data", overrides)["prepare"], "prepare").run(lambda done, of: None, lambda line: None)
        outcome.folder.rename(folder)


# -- the report --------------------------------------------------------------------------------------------------------


def _row(found: Search, config: SearchConfig) -> dict[str, Any]:
    full, at = found.probes[0], found.enough or found.probes[0]
    words = f"{at.batch:,.0f}"
    if found.enough is None:
        words = f"more than all {full.batch:,.0f}"
    elif found.last:
        words = f"at most {words}"
    return {
        "batch": math.nan if found.enough is None else at.batch,
        f"smallest batch for {config.fraction:.0%}": words,
        "steps": at.count,
        "certified": at.certified,
        "certified, one batch of all": full.certified,
        "accuracy": at.accuracy,
        "larger class": at.larger,
        "given one label": at.constant,
        "seconds per step": at.seconds / at.count,
        "microseconds per record": 1e6 * at.seconds / full.batch,
        "runs": len(found.probes),
        "larger batches certify more": "yes" if found.monotone else "NOT in every run",
    }


def _draw(context: Context, config: SearchConfig, rows: pd.DataFrame, probes: pd.DataFrame, size: float) -> dict[str, str]:
    names = " / ".join(dict.fromkeys(rows["data"]))
    main, every = context.artifact.id, f"{context.artifact.id}_runs"
    wanted = f"smallest batch, {config.fraction:.0%} certified at k = {config.k}"
    for frame in (rows, probes):
        frame["series"] = frame["claim"] + " (" + frame["profile"] + ")"
    level = Curves(main, "depth", "batch", "hidden layers", wanted, names, log=False, ylog=True, level=size,
                   level_name="all records in one batch")  # fmt: skip
    curves(context.record, level, rows.assign(depth=rows["depth"].astype(str)))  # words: no ticks between whole depths
    if probes["seed"].nunique() > 1:
        probes["series"] += ", seed " + probes["seed"].astype(str)
    probes["panel"] = "depth " + probes["depth"].astype(str)
    fractions = Curves(every, "batch", "certified", "batch", f"certified at k = {config.k}", names, level=config.fraction,
                       level_name=f"{config.fraction:.0%}", panels="panel")  # fmt: skip
    curves(context.record, fractions, probes)
    return {
        main: f"The smallest batch at which {config.fraction:.0%} of the test records are certified at k = {config.k}."
        + (
            " Median and range of initialisations; a range that reaches the line: some need more than all records."
            if max(config.seeds.values(), default=1) > 1
            else ""
        ),
        every: "The certified fraction in every run that the searches made.",
    }


def _notes(config: SearchConfig, table: pd.DataFrame) -> tuple[str, ...]:
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    broken = int((table["larger batches certify more"] != "yes").sum())
    return (
        f"Batches of N / count records, count in steps of 2^(1/{config.per_doubling}), by bisection, which assumes that "
        "larger batches certify more; two sizes on either side of each answer were run to check it: "
        + ("every run agrees." if not broken else f"in {broken} of {len(table)} searches one does not."),
        "Seconds are of training with bounds, of when the run was made. Peak memory of this process, statements that are "
        f"read from the disk included: {peak:.2f} GiB.",
    )
