"""Kind smallest_batch: how large batches must be for nearly all queries to be certified, by depth
(000 Fig 2, 001 Fig 9).

One epoch over the same records in ever more, ever smaller batches. Each probe is a whole run and is
kept, so a killed search goes on where it stopped.


Kind frontier: how accurate a model can be whose labels survive k changed records, method beside
method on one data set.

A point is a setting: its accuracy, and the largest k at which half of the records are certified.
Which settings a curve goes through is chosen on records that do not report: on the other half of
the test records, on folds of the training records, or on a fresh draw of synthetic data; and with
the first initialisation alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.data.dataset import Dataset
from agt.data.prepared import part_of
from agt.errors import ConfigError
from agt.numeric import bisect, whole_midpoint
from agt.relations import RELATIONS
from agt.settings import STRICT, Count, build
from agt.store.locations import resolve
from agt.targets import targets_of, trusting
from agt_cli.composing import compose_command
from agt_cli.report.figures import SERIES_STYLES
from agt_cli.report.sections_md import describe_edits

from .amex import make
from .certified import HALF, at_half
from .figures import batches_by_depth, lines
from .kinds import (
    Entry,
    Figure,
    Key,
    Kind,
    Overrides,
    ProfileName,
    Profiles,
    Purpose,
    Shown,
    grid,
    kind,
    through,
)
from .runs import Finished, dealt, left_out

TRAIN = 0.9  # what prepare.test_fraction leaves of generated statements
# the columns that tell searches apart
SEARCH = ["profile", "claim", "data", "k counts", "depth", "seed"]
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
) -> Kind:
    """The smallest batch that certifies ``fraction`` of the test records at ``k``, by claim, depth
    and initialisation.

    Args:
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
    seed_counts = seeds or {}
    keys: list[Key] = []
    for name in profiles:
        drawn = range(seed_counts.get(name, 1))
        keys += grid(profile=[name], claim=claims, depth=depths, seed=drawn)

    def measure(entry: Entry, key: Key, stands_in: Overrides) -> Iterator[Key]:
        name = key["profile"]
        seed = key["seed"]
        hidden = [width] * key["depth"]
        own = (*run, *stands_in, f"relation=@{key['claim']}", f"model.hidden={hidden}")
        if seed:
            own += (f"training.seed={seed}",)
        own += ("kgrid=sparse", f"kgrid.values=[{k}]")
        prepared, settings = entry.data(name, own)
        size = float(prepared.dataset.declared_size or len(prepared.dataset.train))

        def probe(count: int) -> Key:
            batch = size / count
            cap = largest_batch(batch, settings.relation.unit_rows)
            cut = (f"training.batch.count={count}", f"training.batch.n_max={cap}")
            which = f"{key['claim']}, depth {key['depth']}, seed {seed}"
            words = f"{which}: {count} batches of about {batch:,.0f}"
            done = entry.run(name, (*own, *cut), words)
            is_certified = done.distance >= k
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
        probes = searched(batch_counts(size, least, per_doubling), probe, fraction)
        return ({**about, **row} for row in probes)

    def rows(entry: Entry) -> pd.DataFrame:
        if not keys:
            return pd.DataFrame()
        stand_ins = {name: stand_in(entry, name, run, generated, data) for name in profiles}

        def measured(entry: Entry, key: Key) -> Iterator[Key]:
            return measure(entry, key, stand_ins[key["profile"]])

        found = through(keys, measured)(entry)
        return found.assign(size=found["size"].max())

    def shown(rows: pd.DataFrame) -> Shown:
        searches = rows.groupby(SEARCH, sort=False)
        found = pd.DataFrame([_found(probes, fraction) for _, probes in searches])
        answers = over_seeds(found, rows["size"].iloc[0])
        has_ranges = max(seed_counts.values(), default=1) > 1
        figures = batch_figures(rows, answers, fraction, k, has_ranges)
        notes = (
            _agreement(rows, per_doubling),
            "Seconds are those of training with bounds, when the run was made.",
        )
        return Shown(found.drop(columns="batch"), figures, notes, measured=answers)

    def compared(key: Key) -> Key:
        return {f"smallest batch, {key['claim']}, depth {key['depth']}": "batch"}

    return Kind(keys, ("profile", "claim", "depth", "seed", "steps"), rows, shown, compared)


def batch_figures(
    rows: pd.DataFrame, answers: pd.DataFrame, fraction: float, k: int, ranges: bool
) -> tuple[Figure, Figure]:
    """The smallest batch against the number of hidden layers, and every run of the searches.

    Args:
        rows: every run; ``answers``: of ``over_seeds``.
        ranges: whether there are several initialisations.
    """
    smallest = answers.assign(series=_claim_and_profile(answers))
    series = _claim_and_profile(rows)
    if rows["seed"].nunique() > 1:
        series = series + ", seed " + rows["seed"].astype(str)
    every = rows[[*SEARCH, "batch", "certified"]].assign(series=series)
    share = f"certified at k = {k}"
    several_words = (
        " Median and range over initialisations; a range that reaches the line: for some, all "
        "records in one batch are not enough."
    )
    caption = (
        f"The smallest batch at which {fraction:.0%} of the test records are certified at k "
        f"= {k}; empty marks on the dotted line: not even with all records in one batch."
        f"{several_words * ranges}"
    )
    of_answers = partial(batches_by_depth, size=float(rows["size"].iloc[-1]))
    depths = sorted(set(rows["depth"]))
    of_runs = lines(
        "batch",
        "certified",
        "batch",
        share,
        level=fraction,
        level_name=f"{fraction:.0%}",
        panels="panel",
        order=tuple(f"depth {depth}" for depth in depths),
    )
    panels = every.assign(panel="depth " + rows["depth"].astype(str))
    caption_of_runs = "Certified fraction of the test records in every run of the searches."
    return (
        Figure(caption, smallest, of_answers),
        Figure(caption_of_runs, panels, of_runs, "_runs"),
    )


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


# -- the search
# --------------------------------------------------------------------------------------------------


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


# -- the data
# --------------------------------------------------------------------------------------------------


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


REPLACED = "the same as records replaced"
CHOSEN = {
    "halves": "the other half of the test records, in turn",
    "folds": "folds of the training records",
    "draw": "another draw of the synthetic data",
}
NOT_PRIVATE = {"folds"}
"""Choices by private records."""


@validated(frozen=True, config=STRICT)
class Method:
    """One curve.

    Attributes:
        label: its name.
        run: overrides of all its runs.
        settings: overrides of each setting that may become a point.
        crossed: each of the settings is tried with each of these, too.
        seeds: the keys that an initialisation's number goes to; none: nothing is drawn, and there
            is one.
        initialisations: fewer than the others', where one costs too much; null: as many.
        grid: overrides that choose its values of k, whatever the profile's are; smoke keeps its
            own.
        published: it stands for the paper's profile, and others for ours.
    """

    label: str
    settings: Annotated[tuple[Overrides, ...], Field(min_length=1)]
    crossed: Annotated[tuple[Overrides, ...], Field(min_length=1)] = ((),)
    run: Overrides = ()
    seeds: tuple[str, ...] = ("training.seed",)
    initialisations: Count | None = None
    grid: Overrides = ()
    published: bool = False

    @property
    def points(self) -> list[Overrides]:
        """What may become a point."""
        return [(*setting, *more) for more in self.crossed for setting in self.settings]

    def drawn(self, initialisations: int) -> int:
        """How many initialisations report."""
        return (self.initialisations or initialisations) if self.seeds else 1


@dataclass(frozen=True)
class Reached:
    """What one setting reached on some records: accuracy, the k at half certified, and whether k
    + 1 was looked at.
    """

    accuracy: float
    half: float
    exact: bool

    @classmethod
    def of(cls, frame: pd.DataFrame, ks: Sequence[int]) -> "Reached":
        """From a table of answers."""
        right = float((frame["prediction"] == frame["label"]).mean())
        return cls(right, *at_half(frame["distance"].to_numpy(), ks))

    @classmethod
    def mean(cls, parts: Sequence["Reached"]) -> "Reached":
        """Of equal parts of the records."""
        accuracy = float(np.mean([part.accuracy for part in parts]))
        half = float(np.mean([part.half for part in parts]))
        return cls(accuracy, half, all(part.exact for part in parts))


@dataclass(frozen=True)
class Round:
    """What each setting reached where it is chosen, and the test records [n] bool that report."""

    seen: Sequence[Reached]
    reports: np.ndarray


@dataclass(frozen=True)
class Curve:
    """One method in one profile; ``draw``, ``folds``: as of ``frontier``."""

    entry: Entry
    name: ProfileName
    method: Method
    draw: Overrides
    folds: int | None

    @cached_property
    def rounds(self) -> list[Round]:
        """Each way to choose, and who then reports."""
        points = self.method.points
        test = self._dataset.test
        everyone = np.ones(len(test), dtype=bool)
        if self.folds:
            return [Round([self._on_folds(point, self.folds) for point in points], everyone)]
        runs = [self.run(point, 0, self.draw) for point in points]
        if self.draw:
            return [Round([Reached.of(run.frame, run.ks) for run in runs], everyone)]
        part = dealt(test.units, 2)
        rounds = []
        for half in range(2):
            seen = [Reached.of(run.frame[part == half], run.ks) for run in runs]
            rounds.append(Round(seen, part != half))
        return rounds

    def chosen(self, k: int) -> list[Overrides]:
        """In each round, the most accurate setting of those that certify half at k; empty where
        one has none.
        """
        places = [best(each.seen, k) for each in self.rounds]
        return [] if None in places else [self.method.points[place or 0] for place in places]

    @property
    def _dataset(self) -> Dataset:
        """The data that every setting is trained on."""
        prepared, _ = self.entry.data(self.name, self._own(self.method.points[0], 0))
        return prepared.dataset

    @property
    def data(self) -> str:
        """Its name."""
        return self._dataset.name

    def run(self, setting: Overrides, seed: int, more: Overrides = ()) -> Finished:
        """The run of a setting."""
        words = f"{self.method.label}, {' '.join(setting)}, initialisation {seed}"
        own = (*self._own(setting, seed), *more)
        return self.entry.run(self.name, own, words, last=self._grid)

    def reached(self, settings: list[Overrides], seed: int) -> Key:
        """What each round's setting reaches on the records that report: the mean over rounds,
        and what k counts there.
        """
        runs = [self.run(setting, seed) for setting in settings]
        each = []
        for run, part in zip(runs, self.rounds, strict=True):
            each.append(Reached.of(run.frame[part.reports], run.ks))
        mean = Reached.mean(each)
        rule = RELATIONS[runs[0].relation]
        # a replaced record is one gone and one come
        replaced = rule.units_changed_per_edit / 2 if rule.edits_whole_records else math.nan
        in_words = dict.fromkeys(" ".join(map(_short, setting)) for setting in settings)
        return {
            "accuracy": mean.accuracy,
            HALF: mean.half,
            "known": "exactly" if mean.exact else "at least",
            REPLACED: mean.half * replaced // 1,
            "k counts": runs[0].counts,
            "settings": " | ".join(in_words) or "-",
        }

    def _own(self, setting: Overrides, seed: int) -> Overrides:
        drawn = []
        for key in self.method.seeds if seed else ():
            value = f"'{seed}'" if key.endswith(".key") else f"{seed}"
            drawn.append(f"{key}={value}")
        # private records chose the settings
        declared = ("training.chosen_on=data",) if self.folds else ()
        return (*self.method.run, *setting, *drawn, *declared)

    @property
    def _grid(self) -> Overrides:
        return () if self.name == "smoke" else self.method.grid

    def _on_folds(self, setting: Overrides, folds: int) -> Reached:
        """What a setting reaches on folds of the training records, from the rest of them; a stable
        distance grows with the number of records, and is scaled to that of all, unless it is of
        votes, which grows with their number.
        """
        overrides = self.entry.overrides(self.name, self._own(setting, 0), self._grid)
        words = f"{self.method.label}, {' '.join(setting)}, fold {{}} of {folds}"
        parts = []
        for fold in range(folds):
            table = left_out(self.entry.runs, overrides, words.format(fold + 1), fold, folds)
            parts.append(Reached.of(*table))
        mean = Reached.mean(parts)
        settings = self.entry.runs.settings(overrides)[1]
        votes = settings.certificate.bounded == "vote counts" and settings.ensemble.members > 1
        scaled_half = mean.half * folds / (folds - 1)
        return mean if votes else replace(mean, half=scaled_half)


@kind
def frontier(
    profiles: Profiles,
    methods: Annotated[tuple[Method, ...], Field(min_length=1)],
    run: Overrides = (),
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 10, 20, 50, 100, 200),
    draw: Overrides = (),
    folds: Annotated[int, Field(ge=2)] | None = None,
    initialisations: Count = 3,
    generated: Annotated[int, Field(ge=1000)] | None = None,
    data: Literal["either", "generated"] = "either",
) -> Kind:
    """Test accuracy against the k at which half of the test records are certified.

    Args:
        methods: the curves.
        run: overrides of every method's runs, before its own.
        ks: for each a point: the most accurate setting of those that certify half at it, where
            settings are chosen: on the other half of the test records (both halves in turn, and
            their mean), unless ``folds`` or ``draw`` is given.
        folds: so many folds of the training records choose.
        draw: overrides that make a fresh draw of synthetic data, whose test records choose.
        initialisations: that report each chosen setting.
        generated, data: of AMEX's statements, as ``smallest_batch`` has them.
    """
    if draw and folds:
        raise ConfigError("draw=... and folds=... both choose the settings: give only one of them")
    named = {method.label: method for method in methods}
    chosen_on = "folds" if folds else "draw" if draw else "halves"
    keys: list[Key] = []
    for name, method in product(profiles, methods):
        if name != "smoke" and method.published != (name == "paper"):
            continue
        for k, seed in product(ks, range(method.drawn(initialisations))):
            own = {"profile": name, "series": method.label}
            keys.append({**own, "k asked": k, "initialisation": seed})

    def rows(entry: Entry) -> pd.DataFrame:
        curves = {}
        for name in profiles:
            more = stand_in(entry, name, run, generated, data) if generated else ()
            for label, method in named.items():
                whole = replace(method, run=(*run, *more, *method.run))
                curves[name, label] = Curve(entry, name, whole, draw, folds)

        def of_curve(entry: Entry, key: Key) -> Iterator[Key]:
            return measured(entry, curves[key["profile"], key["series"]], key)

        return through(keys, of_curve)(entry)

    def measured(entry: Entry, curve: Curve, key: Key) -> Iterator[Key]:
        if settings := curve.chosen(key["k asked"]):
            data = {"data": curve.data if generated else entry.experiment.data}
            yield {**curve.reached(settings, key["initialisation"]), **data}

    def shown(rows: pd.DataFrame) -> Shown:
        found = by_setting(rows)
        words = found.rename(columns={"series": "method"})
        words["its range"] = _ranges(found["low"], found["high"], "{:.3f} to {:.3f}")
        words["range of k"] = _ranges(found["least k"], found["greatest k"], "{:,.10g} to {:,.10g}")
        points = found.drop_duplicates(["series", "settings"]).rename(columns={HALF: "k"})
        columns = ["series", "k", "accuracy", "low", "high", "least k", "greatest k"]
        points = points.loc[points["k"] > 0, columns]
        caption = (
            "Test accuracy against the k at which half of the test records are certified: median "
            "of the initialisations, "
            "and the range of their accuracies."
        )
        draw = lines(
            "k",
            "accuracy",
            "k at which half of the test records are certified",
            "accuracy",
            looks=METHOD_LOOKS,
        )
        fewer = []
        for label, method in named.items():
            if method.seeds and method.drawn(initialisations) < initialisations:
                fewer.append(label)
        cost = []
        if fewer:
            listed = ", ".join(fewer)
            cost.append(
                f"For the time they take, fewer than {initialisations} initialisations were made "
                f"of: {listed}."
            )
        chosen = CHOSEN[chosen_on]
        column = CHOSEN[chosen_on]
        if chosen_on in NOT_PRIVATE:
            chosen = f"{chosen}, so no row carries a private claim"
            column = f"{column}: no private claim"
        notes = (*(note.format(chosen) for note in FRONTIER_NOTES), *cost)
        table = words[[*TABLE, "data"]].assign(**{"chosen on": column})
        return Shown(
            table, [Figure(caption, points, draw)], notes, extra={"_initialisations": rows}
        )

    return Kind(keys, ("profile", "series", "k asked", "initialisation"), rows, shown)


METHOD_LOOKS = {
    "published rules": SERIES_STYLES[1],
    "boxes": SERIES_STYLES[0],
    "linear head": SERIES_STYLES[2],
    "linear head on random ReLU features": SERIES_STYLES[3],
    "linear head on crosses of columns": SERIES_STYLES[4],
    "linear head on scattering features": SERIES_STYLES[4],
    "votes of ridge regressions": SERIES_STYLES[5],
    "votes of gradient boosting": SERIES_STYLES[7],
    "votes on scattering features": SERIES_STYLES[7],
    "one ridge regression, k labels flipped": SERIES_STYLES[6],
}
"""How a method's curve looks, the same for every data set; no data set has two of one look."""

TABLE = [
    "method",
    "k asked",
    "accuracy",
    "its range",
    HALF,
    "range of k",
    "known",
    "initialisations",
    "settings",
    "k counts",
]
FRONTIER_NOTES = (
    "Settings were chosen with the first initialisation, on {}. A point is "
    "the most accurate setting of those listed that certifies half at the k asked for, where "
    "settings are chosen; "
    "where it reports it may reach more or less. No row: no setting does.",
    "k is of records added or removed in all (of a curve of flips: of labels changed, and of no "
    "record): the published "
    "rules' ball of k (k removed and k added at the same time) is their smallest that holds all "
    "such changes. A claim "
    "about k replaced records is theirs at k, and add_remove's at 2k: the column "
    f"'{REPLACED}' of the table of initialisations.",
)


def _ranges(low: pd.Series, high: pd.Series, form: str) -> list[str]:
    """Return a text for each pair of a smallest and a largest value, in a form with two places."""
    return [form.format(*ends) for ends in zip(low, high, strict=True)]


def by_setting(rows: pd.DataFrame) -> pd.DataFrame:
    """A row for each point: median and range of the initialisations."""
    columns = {
        "accuracy": ("accuracy", "median"),
        "low": ("accuracy", "min"),
        "high": ("accuracy", "max"),
        HALF: (HALF, "median"),
        "least k": (HALF, "min"),
        "greatest k": (HALF, "max"),
        "known": ("known", "min"),
        "initialisations": ("initialisation", "count"),
        **{name: (name, "first") for name in ("settings", "k counts", "data")},
    }
    return rows.groupby(["profile", "series", "k asked"], sort=False).agg(**columns).reset_index()


def best(seen: Sequence[Reached], k: int) -> int | None:
    """The place of the most accurate setting of those that certify half at k; of equals the one
    with most k.
    """
    able = [place for place, each in enumerate(seen) if each.half >= k]
    return max(able, key=lambda place: (seen[place].accuracy, seen[place].half), default=None)


def _short(word: str) -> str:
    return word.removeprefix("training.").removeprefix("certificate.").removeprefix("features.")
