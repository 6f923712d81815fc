"""Kind frontier: how accurate a model can be whose labels survive k changed records, method beside method on one data set.

A point is a setting: its accuracy, and the largest k at which half of the records are certified. Which settings a curve
goes through is chosen on records that do not report: on the other half of the test records, on folds of the training
records, or on a fresh draw of synthetic data; and with the first initialisation alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.settings import STRICT
from agt_cli.papers.reproduction.budgets import Count
from agt_cli.papers.reproduction.certified import HALF
from agt_cli.papers.reproduction.definition import ProfileName
from agt_cli.papers.reproduction.folds import dealt, left_out
from agt_cli.papers.reproduction.kinds import Entry, Figure, Key, Kind, Overrides, Profiles, kind, through
from agt_cli.papers.reproduction.runs import Finished
from agt_cli.papers.reproduction.search import stand_in
from agt_cli.report.curves import Curves

ChosenOn = Literal["halves", "folds", "draw"]
REPLACED = "the same as records replaced"
CHOSEN = {
    "halves": "the other half of the test records, in turn",
    "folds": "folds of the training records: no private claim",
    "draw": "another draw of the synthetic data",
}


@validated(frozen=True, config=STRICT)
class Method:
    """One curve.

    Attributes:
        label: its name.
        run: overrides of all its runs.
        settings: overrides of each setting that may become a point.
        crossed: each of the settings is tried with each of these, too.
        seeds: the keys that an initialisation's number goes to; none: nothing is drawn, and there is one.
        initialisations: fewer than the others', where one costs too much; null: as many.
        grid: overrides that choose its values of k, whatever the profile's are; smoke keeps its own.
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
    """What one setting reached on some records: accuracy, the k at half certified, and whether k + 1 was looked at."""

    accuracy: float
    half: float
    exact: bool

    @classmethod
    def of(cls, frame: pd.DataFrame, ks: Sequence[int]) -> "Reached":
        """From a table of answers. A closed form's distances go beyond its grid."""
        ordered = np.sort(frame["distance"].to_numpy())[::-1]
        half = max(0, int(ordered[(len(ordered) + 1) // 2 - 1]))
        right = float((frame["prediction"] == frame["label"]).mean())
        return cls(right, half, half + 1 in ks or half > max(ks, default=0))

    @classmethod
    def mean(cls, parts: Sequence["Reached"]) -> "Reached":
        """Of equal parts of the records."""
        accuracy, half = (float(np.mean([getattr(part, name) for part in parts])) for name in ("accuracy", "half"))
        return cls(accuracy, half, all(part.exact for part in parts))


@dataclass(frozen=True)
class Choice:
    """Which records choose the settings that others report.

    Attributes:
        by: as ``frontier`` has it.
        draw: overrides that make a fresh draw.
        folds: of the training records.
    """

    by: ChosenOn
    draw: Overrides
    folds: int

    def __post_init__(self) -> None:
        if bool(self.draw) != (self.by == "draw"):
            raise ConfigError(f"chosen_on={self.by}: draw says how a fresh draw is made: give it with chosen_on=draw alone")

    @property
    def told(self) -> Overrides:
        """What runs whose settings private records chose must say."""
        return ("training.chosen_on=data",) if self.by == "folds" else ()


@dataclass(frozen=True)
class Round:
    """What each setting reached where it is chosen, and the test records [n] bool that report."""

    seen: Sequence[Reached]
    reports: np.ndarray


@dataclass(frozen=True)
class Curve:
    """One method in one profile."""

    entry: Entry
    name: ProfileName
    method: Method
    choice: Choice

    @cached_property
    def rounds(self) -> list[Round]:
        """Each way to choose, and who then reports."""
        points, choice = self.method.points, self.choice
        test = self.entry.data(self.name, self._own(points[0], 0))[0].dataset.test
        everyone = np.ones(len(test), dtype=bool)
        if choice.by == "folds":
            return [Round([self._on_folds(point) for point in points], everyone)]
        runs = [self.run(point, 0, choice.draw) for point in points]
        if choice.by == "draw":
            return [Round([Reached.of(run.frame, run.ks) for run in runs], everyone)]
        part = dealt(test.units, 2)
        return [Round([Reached.of(run.frame[part == half], run.ks) for run in runs], part != half) for half in range(2)]

    def chosen(self, k: int) -> list[Overrides]:
        """In each round, the most accurate setting of those that certify half at k; empty where one has none."""
        places = [best(each.seen, k) for each in self.rounds]
        return [] if None in places else [self.method.points[place or 0] for place in places]

    @property
    def data(self) -> str:
        """Its name."""
        return self.entry.data(self.name, self._own(self.method.points[0], 0))[0].dataset.name

    def run(self, setting: Overrides, seed: int, more: Overrides = ()) -> Finished:
        """The run of a setting."""
        words = f"{self.method.label}, {' '.join(setting)}, initialisation {seed}"
        return self.entry.run(self.name, (*self._own(setting, seed), *more), words, last=self._grid)

    def _own(self, setting: Overrides, seed: int) -> Overrides:
        drawn = (f"{key}={seed}" for key in self.method.seeds if seed)
        return (*self.method.run, *setting, *drawn, *self.choice.told)

    @property
    def _grid(self) -> Overrides:
        return () if self.name == "smoke" else self.method.grid

    def _on_folds(self, setting: Overrides) -> Reached:
        """What a setting reaches on folds of the training records, from the rest of them; a stable distance grows with the
        number of records, and is scaled to that of all."""
        overrides, folds = self.entry.overrides(self.name, self._own(setting, 0), self._grid), self.choice.folds
        words = f"{self.method.label}, {' '.join(setting)}, fold {{}} of {folds}"
        tables = [left_out(self.entry.runs, overrides, words.format(fold + 1), fold, folds) for fold in range(folds)]
        mean = Reached.mean([Reached.of(*table) for table in tables])
        return replace(mean, half=mean.half * folds / (folds - 1))


@kind
def frontier(
    profiles: Profiles,
    methods: Annotated[tuple[Method, ...], Field(min_length=1)],
    run: Overrides = (),
    ks: Annotated[tuple[Count, ...], Field(min_length=1)] = (1, 10, 20, 50, 100, 200),
    chosen_on: ChosenOn = "halves",
    draw: Overrides = (),
    folds: Annotated[int, Field(ge=2)] = 2,
    initialisations: Count = 3,
    generated: Annotated[int, Field(ge=1000)] | None = None,
    data: Literal["either", "generated"] = "either",
) -> Kind:
    """Test accuracy against the k at which half of the test records are certified.

    Args:
        methods: the curves.
        run: overrides of every method's runs, before its own.
        ks: for each a point: the most accurate setting of those that certify half at it, where settings are chosen.
        chosen_on: which records choose: the other half of the test records (both halves in turn, and their mean);
            folds of the training records; test records of a fresh draw.
        draw: overrides that make the fresh draw.
        folds: of the training records.
        initialisations: that report each chosen setting.
        generated, data: of AMEX's statements, as ``smallest_batch`` has them.
    """
    named, choice = {method.label: method for method in methods}, Choice(chosen_on, draw, folds)
    keys = [
        {"profile": name, "series": method.label, "k asked": k, "initialisation": seed}
        for name in profiles
        for method in methods
        if name == "smoke" or method.published == (name == "paper")
        for k in ks
        for seed in range(method.drawn(initialisations))
    ]

    def rows(entry: Entry) -> pd.DataFrame:
        more = {name: stand_in(entry, name, run, generated, data) if generated else () for name in profiles}
        curves = {
            (name, label): Curve(entry, name, replace(method, run=(*run, *more[name], *method.run)), choice)
            for name in profiles
            for label, method in named.items()
        }
        return through(keys, lambda entry, key: measured(entry, curves[key["profile"], key["series"]], key))(entry)

    def measured(entry: Entry, curve: Curve, key: Key) -> Iterator[Key]:
        settings = curve.chosen(key["k asked"])
        if not settings:
            return
        runs = [curve.run(setting, key["initialisation"]) for setting in settings]
        each = [Reached.of(run.frame[part.reports], run.ks) for run, part in zip(runs, curve.rounds, strict=True)]
        mean, replaced = Reached.mean(each), runs[0].relation in ("paper_privacy", "substitute")
        yield {
            "accuracy": mean.accuracy,
            HALF: mean.half,
            "known": "exactly" if mean.exact else "at least",
            REPLACED: mean.half if replaced else mean.half // 2,
            "k counts": runs[0].counts,
            "settings": " | ".join(dict.fromkeys(" ".join(map(_short, setting)) for setting in settings)) or "-",
            "data": curve.data if generated else entry.experiment.data,
        }

    def by_setting(rows: pd.DataFrame) -> pd.DataFrame:
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

    def table(rows: pd.DataFrame) -> pd.DataFrame:
        found = by_setting(rows)
        spread = [f"{low:.3f} to {high:.3f}" for low, high in zip(found["low"], found["high"], strict=True)]
        reach = [f"{low:,.10g} to {high:,.10g}" for low, high in zip(found["least k"], found["greatest k"], strict=True)]
        columns = ["method", "k asked", "accuracy", "its range", HALF, "range of k", "known", "initialisations", "settings"]
        columns += ["k counts", "data"]
        words = found.rename(columns={"series": "method"}).assign(**{"its range": spread, "range of k": reach})
        return words[columns].assign(**{"chosen on": CHOSEN[chosen_on]})

    def points(rows: pd.DataFrame) -> pd.DataFrame:
        drawn = by_setting(rows).drop_duplicates(["series", "settings"]).rename(columns={HALF: "k"})
        return drawn.loc[drawn["k"] > 0, ["series", "k", "accuracy", "low", "high", "least k", "greatest k"]]

    def finding(rows: pd.DataFrame) -> str:
        each = [part for _, part in by_setting(rows).groupby("k asked") if len(part) > 1]
        if not each:
            return "No two methods certify half of the records at one k that was asked for"
        shown = [each[place] for place in sorted({0, len(each) // 2, len(each) - 1})]
        return f"The most accurate with half certified at k: {'; '.join(map(_leaders, shown))}"

    def notes(rows: pd.DataFrame) -> tuple[str, ...]:
        fewer = [label for label, m in named.items() if m.seeds and m.drawn(initialisations) < initialisations]
        void = ", so no row carries a private claim" if chosen_on == "folds" else ""
        return (
            f"Settings were chosen with the first initialisation, on {CHOSEN[chosen_on].split(':')[0]}{void}. A point is "
            "the most accurate setting of those listed that certifies half at the k asked for, where settings are chosen; "
            "where it reports it may reach more or less. No row: no setting does.",
            "k is of records added or removed in all: the published rules' ball of k (k removed and k added at the same "
            "time) is their smallest that holds all such changes. A claim about k replaced records is theirs at k, and "
            f"add_remove's at 2k: the column '{REPLACED}' of the table of initialisations.",
            *([f"Fewer than {initialisations} initialisations, for their cost: {', '.join(fewer)}."] if fewer else []),
        )

    figure = Figure(
        "Test accuracy against the k at which half of the test records are certified: median of the initialisations, and "
        "the range of their accuracies.",
        points,
        Curves("", "k", "accuracy", "k at which half of the test records are certified", "accuracy", ""),
        finding,
    )
    index = ("profile", "series", "k asked", "initialisation")
    return Kind(keys, rows, index, (figure,), table, {"_initialisations": lambda rows: rows}, notes=notes)


def best(seen: Sequence[Reached], k: int) -> int | None:
    """The place of the most accurate setting of those that certify half at k; of equals the one with most k."""
    able = [place for place, each in enumerate(seen) if each.half >= k]
    return max(able, key=lambda place: (seen[place].accuracy, seen[place].half), default=None)


def _leaders(part: pd.DataFrame) -> str:
    """Who is the most accurate of the methods at one k, and who is not told apart from that in three digits."""
    top = part["accuracy"].max()
    names = part.loc[part["accuracy"].round(3) == round(top, 3), "series"]
    who = "all alike" if len(names) == len(part) else " and ".join(names)
    return f"at {part['k asked'].iloc[0]} {who} ({top:.3f})"


def _short(word: str) -> str:
    return word.removeprefix("training.").removeprefix("certificate.").removeprefix("features.")
