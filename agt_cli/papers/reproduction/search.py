"""Kind smallest_batch: how large batches must be for nearly all queries to be certified, by depth (000 Fig 2, 001 Fig 9).

One epoch over the same records in ever more, ever smaller batches. Each probe is a whole run and is kept, so a killed
search goes on where it stopped.
"""

import math
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from agt.data.files import resolve
from agt.data.prepared import part_of
from agt.numeric import bisect, whole_midpoint
from agt.settings import build
from agt_cli.papers.prepare.amex_like import make
from agt_cli.papers.reproduction.budgets import Count
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, Purpose, kind, through
from agt_cli.report.curves import Curves
from agt_cli.report.report_md import ball
from agt_cli.runs.compose import composed

TRAIN = 0.9  # what prepare.test_fraction leaves of generated statements
SEARCH = ["profile", "claim", "data", "k counts", "depth", "seed"]  # the columns that tell searches apart
MONOTONE = "larger batches certify more"


@kind
def smallest_batch(
    profiles: Profiles,
    run: Overrides = (),
    claims: Annotated[tuple[Purpose, ...], Field(min_length=1)] = ("privacy", "unlearning"),
    depths: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 2, 3, 4),
    width: Count = 128,
    seeds: dict[ProfileName, Count] | None = None,
    k: Count = 50,
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.95,
    least: Count = 64,
    per_doubling: Count = 4,
    generated: Annotated[int, Field(ge=1000)] = 1_000_000,
    data: Literal["either", "generated"] = "either",
    only: tuple[ProfileName, ...] = (),
) -> Kind:
    """The smallest batch that certifies ``fraction`` of the test records at ``k``, by claim, depth and initialisation.

    Args:
        claims: which of the profile's relations.
        depths, width: how many hidden layers, and how wide.
        seeds: profile -> how many initialisations, with seeds 0, 1, ...; one where nothing is said.
        least: the smallest batch tried.
        per_doubling: batch sizes tried between one and twice it.
        generated: this many made-up statements in the competition's schema where they stand in for it.
        data: "either": they stand in only if nobody prepared the data or said where it is; "generated": always.
        only: profiles it is measured in; none named: all.
    """
    profiles = {name: profile for name, profile in profiles.items() if not only or name in only}
    keys = [
        {"profile": name, "claim": claim, "depth": depth, "seed": seed}
        for name in profiles
        for claim in claims
        for depth in depths
        for seed in range((seeds or {}).get(name, 1))
    ]

    def measure(entry: Entry, key: Key, stands_in: Overrides) -> Iterator[Key]:
        name, seed = key["profile"], key["seed"]
        own = (*run, *stands_in, f"relation=@{key['claim']}")
        own += (f"model.hidden={[width] * key['depth']}", *((f"training.seed={seed}",) if seed else ()))
        own += ("kgrid=sparse", f"kgrid.values=[{k}]")
        prepared, settings = entry.data(name, own)
        size = float(prepared.dataset.declared_size or len(prepared.dataset.train))

        def probe(count: int) -> Key:
            batch = size / count
            cut = (
                f"training.batch.count={count}",
                f"training.batch.n_max={largest_batch(batch, settings.relation.unit_rows)}",
            )
            words = f"{key['claim']}, depth {key['depth']}, seed {seed}: {count} batches of about {batch:,.0f}"
            done = entry.run(name, (*own, *cut), words)
            larger, constant = (float(done.frame[c].value_counts(normalize=True).max()) for c in ("label", "prediction"))
            shares = {"certified": float((done.distance >= k).mean()), "accuracy": done.accuracy}
            shares |= {"larger class": larger, "given one label": constant}
            return {"batch": batch, "steps": count, **shares, "seconds": float(done.facts["seconds_training"])}

        about = {"data": prepared.dataset.name, "k counts": ball(settings.relation), "size": size}
        probes = searched(batch_counts(size, least, per_doubling), probe, fraction)
        return ({**about, **row} for row in probes)

    def rows(entry: Entry) -> pd.DataFrame:
        if not profiles:
            return pd.DataFrame()
        stand_ins = {name: stand_in(entry, name, run, generated, data) for name in profiles}
        found = through(keys, lambda entry, key: measure(entry, key, stand_ins[key["profile"]]))(entry)
        return found.assign(size=found["size"].max())

    def found(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame([_found(probes, fraction) for _, probes in rows.groupby(SEARCH, sort=False)])

    def answers(rows: pd.DataFrame) -> pd.DataFrame:
        return over_seeds(found(rows), rows["size"].iloc[0])

    def level(rows: pd.DataFrame) -> pd.DataFrame:
        smallest = answers(rows)
        series = smallest["claim"] + " (" + smallest["profile"] + ")"
        return smallest.assign(series=series, depth=smallest["depth"].astype(str))  # words: no ticks between whole depths

    def every(rows: pd.DataFrame) -> pd.DataFrame:
        series = rows["claim"] + " (" + rows["profile"] + ")"
        several = ", seed " + rows["seed"].astype(str) if rows["seed"].nunique() > 1 else ""
        columns = [*SEARCH, "batch", "certified"]
        return rows[columns].assign(series=series + several, panel="depth " + rows["depth"].astype(str))

    def smallest(rows: pd.DataFrame) -> str:
        reached = level(rows).dropna(subset="batch")
        if reached.empty:
            return f"Not even all records in one batch certify {fraction:.0%} at k = {k}"
        one = reached.iloc[int(reached["batch"].argmin())]
        return f"Batches of {one['batch']:,.0f} records are enough: {one['series']}, depth {one['depth']}"

    def agree(rows: pd.DataFrame) -> str:
        grown = rows.sort_values("batch").groupby(SEARCH, sort=False)["certified"].agg(lambda c: c.is_monotonic_increasing)
        return f"Larger batches certify more: in {int(grown.sum())} of {len(grown)} searches, run by run"

    def notes(rows: pd.DataFrame) -> tuple[str, ...]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
        searches = rows.groupby(SEARCH)[MONOTONE].first()
        broken = int((~searches).sum())
        return (
            f"Batches of N / count records, count in steps of 2^(1/{per_doubling}), by bisection, which assumes that "
            "larger batches certify more; two sizes on either side of each answer were run to check it: "
            + ("every run agrees." if not broken else f"in {broken} of {len(searches)} searches one does not."),
            "Seconds are of training with bounds, of when the run was made. Peak memory of this process, statements that "
            f"are read from the disk included: {peak:.2f} GiB.",
        )

    ranges = " Median and range of initialisations; a range that reaches the line: some need more than all records."
    wanted, share = f"{fraction:.0%} certified at k = {k}", f"certified at k = {k}"
    first = Curves("", "depth", "batch", "hidden layers", f"smallest batch, {wanted}", "", log=False, ylog=True,
                   level_name="all records in one batch")  # fmt: skip
    second = Curves("_runs", "batch", "certified", "batch", share, "", level=fraction, level_name=f"{fraction:.0%}",
                    panels="panel")  # fmt: skip
    figures = (
        Figure(
            f"The smallest batch at which {fraction:.0%} of the test records are certified at k = {k}."
            + (ranges if max((seeds or {}).values(), default=1) > 1 else ""),
            level,
            first,
            smallest,
            level="size",
        ),
        Figure("The certified fraction in every run that the searches made.", every, second, agree),
    )
    return Kind(
        keys,
        rows,
        ("profile", "claim", "depth", "seed", "steps"),
        figures,
        lambda rows: found(rows).drop(columns="batch"),
        measured=answers,
        compared=lambda key: {f"smallest batch, {key['claim']}, depth {key['depth']}": "batch"},
        notes=notes,
    )


def over_seeds(rows: pd.DataFrame, size: float) -> pd.DataFrame:
    """One row for each profile, claim and depth: the median ``batch``, NaN where that is more than all records, and the
    range ``low``, ``high`` of several seeds, cut off at ``size``."""
    setting = ["profile", "claim", "data", "depth"]
    groups = rows.assign(batch=rows["batch"].fillna(math.inf)).groupby(setting, sort=False)["batch"]
    found = groups.agg(batch="median", low="min", high="max", seeds="size").reset_index()
    found[["low", "high"]] = found[["low", "high"]].clip(upper=size).where(found["seeds"] > 1)
    return found.assign(batch=found["batch"].where(np.isfinite(found["batch"]))).drop(columns="seeds")


def _found(probes: pd.DataFrame, fraction: float) -> dict[str, Any]:
    """What one search found: a row of the table, and ``batch``, NaN where even all records in one do not suffice."""
    full, passed = probes.iloc[0], probes[probes["enough"]]
    at = full if passed.empty else passed.iloc[0]
    words = f"more than all {full['batch']:,.0f}" if passed.empty else f"{at['batch']:,.0f}"
    return {
        **at[SEARCH],
        "batch": math.nan if passed.empty else at["batch"],
        f"smallest batch for {fraction:.0%}": f"at most {words}" if at["least tried"] and not passed.empty else words,
        "steps": at["steps"],
        "certified": at["certified"],
        "certified, one batch of all": full["certified"],
        **at[["accuracy", "larger class", "given one label"]],
        "seconds per step": at["seconds"] / at["steps"],
        "microseconds per record": 1e6 * at["seconds"] / full["batch"],
        "runs": len(probes),
        MONOTONE: "yes" if at[MONOTONE] else "NOT in every run",
    }


# -- the search --------------------------------------------------------------------------------------------------------


def batch_counts(size: float, least: int, per_doubling: int) -> tuple[int, ...]:
    """How many batches the records are cut into: 1, and on in equal logarithmic steps, to ``least`` records in each."""
    most = max(1, int(size // least))
    steps = np.arange(math.floor(per_doubling * math.log2(most)) + 1)
    return tuple(np.unique(np.round(2 ** (steps / per_doubling)).astype(int)).tolist())


def searched(counts: tuple[int, ...], probe: Callable[[int], Key], fraction: float) -> list[Key]:
    """Bisect for the last count whose probe certifies ``fraction``, then try the answer's neighbours two steps away: those
    one step away were tried.

    Returns:
        the probes in the order of ``counts``, each with ``enough``: it is the answer; ``least tried``: that is the last
        of ``counts``, so its batch is an upper bound of the answer; and ``MONOTONE``: no probe contradicts it.
    """
    probes: dict[int, Key] = {}

    def passes(index: int) -> bool:
        if index not in probes:
            probes[index] = probe(counts[index])
        return bool(probes[index]["certified"] >= fraction)

    last = bisect(passes, 0, len(counts), whole_midpoint)[0] if passes(0) else -1  # len(counts) is past the end
    for neighbour in (last - 1, last + 2):
        if 0 <= neighbour < len(counts):
            passes(neighbour)
    monotone = all(passes(index) == (index <= last) for index in list(probes))
    ends = {"least tried": last == len(counts) - 1, MONOTONE: monotone}
    return [{**probes[index], "enough": index == last, **ends} for index in sorted(probes)]


def largest_batch(batch: float, unit_rows: int) -> int:
    """The public cap n_max: a tenth more than B and six standard deviations, if every unit has all the rows it may have."""
    return math.ceil(1.1 * batch + 6 * math.sqrt(unit_rows * batch))


# -- the data ----------------------------------------------------------------------------------------------------------


def stand_in(entry: Entry, name: ProfileName, run: Overrides, generated: int, data: str) -> Overrides:
    """Overrides that name the generated statements, made if they are not there; none where there is data of one's own."""
    dataset = entry.runs.settings(entry.overrides(name, run))[0]["dataset"]
    path = resolve(Path(dataset["path"]), Path(dataset["data_dir"]))
    users = any(word.startswith("dataset") for word in entry.runs.common)
    named = users or any(word.startswith("dataset.") for word in run)  # dataset=NAME says what, not where
    if data == "either" and (named or path.exists() or part_of(path).exists()):
        return ()
    folder = entry.runs.folder.resolve() / f"amex_like_{generated}"
    unit = "statement" if dataset["unit"] is None else "customer"
    if data == "either":
        entry.runs.console.note(
            f"{path} is not there (agt data prepare amex makes it: docs/data/amex.md): {generated:,} generated, "
            "SYNTHETIC statements stand in, and every table says so"
        )
    if not folder.exists():
        _generate(folder, generated)
    words = f"AMEX-shaped SYNTHETIC statements, {generated:,} (unit: {unit})"
    size = round(TRAIN * generated)
    return f"dataset.path='{folder}'", f"dataset.name='{words}'", f"dataset.declared_size={size}"


def _generate(folder: Path, rows: int) -> None:
    """A folder as ``agt data prepare amex`` makes it, of generated statements; it appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as raw:
        make(Path(raw), rows, "parquet")
        overrides = ["prepare=amex", f"data_dir='{raw}'", f"prepare.out={folder.name}", "prepare.data=train_data.parquet"]
        outcome = build(composed("data", overrides)["prepare"], "prepare").run(lambda done, of: None, lambda line: None)
        outcome.folder.rename(folder)
