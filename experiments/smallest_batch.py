"""Kind smallest_batch: how large batches must be for nearly all queries to be certified, by depth
(000 Fig 2, 001 Fig 9).

One epoch over the same records in ever more, ever smaller batches. Each probe is a whole run and is
kept, so a killed search goes on where it stopped.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from agt.data.prepared import part_of
from agt.numeric import bisect, whole_midpoint
from agt.settings import Count, build, keyword_schema
from agt.store.locations import resolve
from agt.targets import targets_of, trusting
from agt_cli.composing import compose_command
from agt_cli.report.sections_md import describe_edits

from .amex_like import make
from .entry import Entry, Key, Overrides, Purpose
from .experiment import OneOrMore, ProfileName
from .figures import batches_by_depth, lines
from .kinds import Figure, Kind, Shown, grid, tidy

TRAIN = 0.9  # what prepare.test_fraction leaves of generated statements


# the columns that tell searches apart
SEARCH = ["profile", "claim", "data", "k counts", "depth", "seed"]
MONOTONE = "larger batches certify more"


@keyword_schema
class SmallestBatch(Kind):
    """The smallest batch that certifies ``fraction`` of the test records at ``k``, by claim, depth
    and initialisation.

    Attributes:
        claims: which of the profile's relations.
        depths, width: how many hidden layers, and how wide.
        seeds: profile -> how many initialisations, with seeds 0, 1, ...; one where nothing is said.
        least: the smallest batch tried.
        per_doubling: batch sizes tried between one and twice it.
        generated: this many made-up statements in the competition's schema where they stand in for
            it.
        data: "either": they stand in only if nobody prepared the data or said where it is;
            "generated": always.
    """

    run: Overrides = ()
    claims: OneOrMore[Purpose] = ("privacy", "unlearning")
    depths: OneOrMore[Count] = (1, 2, 3, 4)
    width: Count = 128
    seeds: dict[ProfileName, Count] | None = None
    k: Count = 50
    fraction: Annotated[float, Field(gt=0, le=1)] = 0.95
    least: Count = 64
    per_doubling: Count = 4
    generated: Annotated[int, Field(ge=1000)] = 1_000_000
    data: Literal["either", "generated"] = "either"
    index = ("profile", "claim", "depth", "seed", "steps")

    @property
    def seed_counts(self) -> Mapping[ProfileName, int]:
        """How many initialisations a profile has, where settings say it."""
        return self.seeds or {}

    @property
    def keys(self) -> list[Key]:
        keys: list[Key] = []
        for name in self.profiles:
            drawn = range(self.seed_counts.get(name, 1))
            keys += grid(profile=[name], claim=self.claims, depth=self.depths, seed=drawn)
        return keys

    def _search(self, entry: Entry, key: Key, stands_in: Overrides) -> Iterator[Key]:
        """Return one row for each batch that the search of one key tried.

        Args:
            stands_in: overrides that name the generated data, as ``stand_in`` returns them.
        """
        name = key["profile"]
        seed = key["seed"]
        hidden = [self.width] * key["depth"]
        own = (*self.run, *stands_in, f"relation=@{key['claim']}", f"model.hidden={hidden}")
        if seed:
            own += (f"training.seed={seed}",)
        own += ("kgrid=sparse", f"kgrid.values=[{self.k}]")
        prepared, settings = entry.data(name, own)
        size = float(prepared.dataset.declared_size or len(prepared.dataset.train))

        def probe(count: int) -> Key:
            batch = size / count
            cap = largest_batch(batch, settings.relation.unit_rows)
            cut = (f"training.batch.count={count}", f"training.batch.n_max={cap}")
            which = f"{key['claim']}, depth {key['depth']}, seed {seed}"
            words = f"{which}: {count} batches of about {batch:,.0f}"
            done = entry.run(name, (*own, *cut), words)
            is_certified = done.distance >= self.k
            return {
                "batch": batch,
                "steps": count,
                "certified": float(is_certified.mean()),
                "accuracy": done.accuracy,
                "larger class": _largest_share(done.frame["label"]),
                "given one label": _largest_share(done.frame["prediction"]),
                "seconds": float(done.facts["seconds_training"]),
            }

        about = {
            "data": prepared.dataset.name,
            "k counts": describe_edits(settings.relation),
            "size": size,
        }
        probes = searched(batch_counts(size, self.least, self.per_doubling), probe, self.fraction)
        return ({**about, **row} for row in probes)

    def rows(self, entry: Entry) -> pd.DataFrame:
        if not self.keys:
            return pd.DataFrame()
        stand_ins = {
            name: stand_in(entry, name, self.run, self.generated, self.data)
            for name in self.profiles
        }

        found = tidy(self.keys, lambda key: self._search(entry, key, stand_ins[key["profile"]]))
        return found.assign(size=found["size"].max())

    def shown(self, rows: pd.DataFrame) -> Shown:
        searches = rows.groupby(SEARCH, sort=False)
        found = pd.DataFrame([_found(probes, self.fraction) for _, probes in searches])
        answers = over_seeds(found, rows["size"].iloc[0])
        notes = (
            _agreement(rows, self.per_doubling),
            "Seconds are those of training with bounds, when the run was made.",
        )
        figures = self._figures(rows, answers)
        return Shown(found.drop(columns="batch"), figures, notes, measured=answers)

    def _figures(self, rows: pd.DataFrame, answers: pd.DataFrame) -> tuple[Figure, Figure]:
        """Return the smallest batch against the number of hidden layers, and every run of the
        searches.

        Args:
            rows: every run.
            answers: of ``over_seeds``.
        """
        has_ranges = max(self.seed_counts.values(), default=1) > 1
        smallest = answers.assign(series=_claim_and_profile(answers))
        series = _claim_and_profile(rows)
        if rows["seed"].nunique() > 1:
            series = series + ", seed " + rows["seed"].astype(str)
        every = rows[[*SEARCH, "batch", "certified"]].assign(series=series)
        share = f"certified at k = {self.k}"
        several_words = (
            " Median and range over initialisations; a range that reaches the line: for some, all "
            "records in one batch are not enough."
        )
        caption = (
            f"The smallest batch at which {self.fraction:.0%} of the test records are certified at "
            f"k = {self.k}; empty marks on the dotted line: not even with all records in one "
            f"batch.{several_words * has_ranges}"
        )
        of_answers = partial(batches_by_depth, size=float(rows["size"].iloc[-1]))
        depths = sorted(set(rows["depth"]))
        of_runs = lines(
            "batch",
            "certified",
            "batch",
            share,
            level=self.fraction,
            level_name=f"{self.fraction:.0%}",
            panels="panel",
            order=tuple(f"depth {depth}" for depth in depths),
        )
        panels = every.assign(panel="depth " + rows["depth"].astype(str))
        caption_of_runs = "Certified fraction of the test records in every run of the searches."
        return (
            Figure(caption, smallest, of_answers),
            Figure(caption_of_runs, panels, of_runs, "_runs"),
        )

    def compared(self, key: Key) -> Key:
        return {f"smallest batch, {key['claim']}, depth {key['depth']}": "batch"}


def _claim_and_profile(rows: pd.DataFrame) -> pd.Series:
    """Return the name of each row's series: its claim, with its profile in parentheses."""
    return rows["claim"] + " (" + rows["profile"] + ")"


def _largest_share(values: pd.Series) -> float:
    """Return the share of the most frequent value."""
    return float(values.value_counts(normalize=True).max())


def _agreement(rows: pd.DataFrame, per_doubling: int) -> str:
    searches = rows.groupby(SEARCH)[MONOTONE].first()
    broken = int((~searches).sum())
    agreement = "every run agrees."
    if broken:
        agreement = f"in {broken} of {len(searches)} searches one does not."
    return (
        f"Batches of N / count records, count in steps of 2^(1/{per_doubling}), by bisection, "
        "which assumes that larger batches certify more; two sizes on either side of each answer "
        f"were run to check it: {agreement}"
    )


def over_seeds(rows: pd.DataFrame, size: float) -> pd.DataFrame:
    """One row for each profile, claim and depth: the median ``batch``, NaN where that is more than
    all records, and the range ``low``, ``high`` of several seeds, cut off at ``size``.
    """
    setting = ["profile", "claim", "data", "depth"]
    searches = rows.assign(batch=rows["batch"].fillna(math.inf))
    groups = searches.groupby(setting, sort=False)["batch"]
    found = groups.agg(batch="median", low="min", high="max", seeds="size").reset_index()
    has_range = found["seeds"] > 1
    found[["low", "high"]] = found[["low", "high"]].clip(upper=size).where(has_range)
    found["batch"] = found["batch"].where(np.isfinite(found["batch"]))
    return found.drop(columns="seeds")


def _found(probes: pd.DataFrame, fraction: float) -> dict[str, Any]:
    """What one search found: a row of the table, and ``batch``, NaN where even all records in
    one do not suffice.
    """
    full = probes.iloc[0]
    passed = probes[probes["enough"]]
    at = full if passed.empty else passed.iloc[0]
    words = f"{at['batch']:,.0f}"
    batch = at["batch"]
    if passed.empty:
        words = f"more than all {full['batch']:,.0f}"
        batch = math.nan
    elif at["least tried"]:
        words = f"at most {words}"
    return {
        **at[SEARCH],
        "batch": batch,
        f"smallest batch for {fraction:.0%}": words,
        "steps": at["steps"],
        "certified": at["certified"],
        "certified, one batch of all": full["certified"],
        **at[["accuracy", "larger class", "given one label"]],
        "seconds per step": at["seconds"] / at["steps"],
        "microseconds per record": 1e6 * at["seconds"] / full["batch"],
        "runs": len(probes),
        MONOTONE: "yes" if at[MONOTONE] else "NOT in every run",
    }


def batch_counts(size: float, least: int, per_doubling: int) -> tuple[int, ...]:
    """How many batches the records are cut into: 1, and on in equal logarithmic steps, to
    ``least`` records in each.
    """
    most = max(1, int(size // least))
    last_step = math.floor(per_doubling * math.log2(most))
    steps = np.arange(last_step + 1)
    counts = np.round(2 ** (steps / per_doubling)).astype(int)
    return tuple(np.unique(counts).tolist())


def searched(counts: tuple[int, ...], probe: Callable[[int], Key], fraction: float) -> list[Key]:
    """Bisect for the last count whose probe certifies ``fraction``, then try the answer's
    neighbours two steps away: those one step away were tried.

    Returns:
        the probes in the order of ``counts``, each with ``enough``: it is the answer; ``least
        tried``: that is the last of ``counts``, so its batch is an upper bound of the answer; and
        ``MONOTONE``: no probe contradicts it.
    """
    probes: dict[int, Key] = {}

    def passes(index: int) -> bool:
        if index not in probes:
            probes[index] = probe(counts[index])
        return bool(probes[index]["certified"] >= fraction)

    last = -1
    if passes(0):
        last, _ = bisect(passes, 0, len(counts), whole_midpoint)  # len(counts) is past the end
    for neighbour in (last - 1, last + 2):
        if 0 <= neighbour < len(counts):
            passes(neighbour)
    monotone = all(passes(index) == (index <= last) for index in list(probes))
    ends = {"least tried": last == len(counts) - 1, MONOTONE: monotone}
    return [{**probes[index], "enough": index == last, **ends} for index in sorted(probes)]


def largest_batch(batch: float, unit_rows: int) -> int:
    """The public cap n_max: a tenth more than B and six standard deviations, if every unit has
    all the rows it may have.
    """
    return math.ceil(1.1 * batch + 6 * math.sqrt(unit_rows * batch))


def stand_in(
    entry: Entry, name: ProfileName, run: Overrides, generated: int, data: str
) -> Overrides:
    """Overrides that name the generated statements, made if they are not there; none where there
    is data of one's own.
    """
    dataset = entry.runs.settings(entry.overrides(name, run))[0]["dataset"]
    path = resolve(Path(dataset["path"]), Path(dataset["data_dir"]))
    users = any(word.startswith("dataset") for word in entry.runs.common)
    # dataset=NAME says what, not where
    named = users or any(word.startswith("dataset.") for word in run)
    if data == "either" and (named or path.exists() or part_of(path).exists()):
        return ()
    folder = entry.runs.folder.resolve() / f"amex_like_{generated}"
    unit = "statement" if dataset["unit"] is None else "customer"
    if data == "either":
        entry.runs.console.note(
            f"{path} does not exist (agt data prepare amex makes it: docs/papers.md), so "
            f"{generated:,} generated, SYNTHETIC statements are used, and every table says so"
        )
    if not folder.exists():
        _generate(folder, generated)
    words = f"AMEX-shaped SYNTHETIC statements, {generated:,} (unit: {unit})"
    size = round(TRAIN * generated)
    return f"dataset.path='{folder}'", f"dataset.name='{words}'", f"dataset.declared_size={size}"


def _generate(folder: Path, rows: int) -> None:
    """A folder as ``agt data prepare amex`` makes it, of generated statements; it appears whole
    or not at all.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as raw:
        make(Path(raw), rows, "parquet")
        overrides = [
            "prepare=amex",
            f"data_dir='{raw}'",
            f"prepare.out={folder.name}",
            "prepare.data=train_data.parquet",
        ]
        node = compose_command("data", overrides)["prepare"]
        with trusting(targets_of(node)):
            outcome = build(node, "prepare").run(lambda done, of: None, lambda line: None)
        outcome.folder.rename(folder)
