"""Kind frontier: how accurate a model can be whose labels survive k changed records, method beside
method on one data set.

A point is a setting: its accuracy, and the largest k at which half of the records are certified.
Which settings a curve goes through is chosen on records that do not report: on the other half of
the test records, on folds of the training records, or on a fresh draw of synthetic data; and with
the first initialisation alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from agt.data.dataset import Dataset
from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.settings import Count, keyword_schema, schema
from agt_cli.report.figures import SERIES_STYLES

from .certified import HALF, at_half
from .entry import Entry, Key, Overrides
from .experiment import AtLeastTwo, OneOrMore, ProfileName
from .figures import lines
from .kinds import Figure, Kind, Shown, tidy
from .runs import Finished, dealt, left_out
from .smallest_batch import stand_in

REPLACED = "the same as records replaced"

CHOSEN = {
    "halves": "the other half of the test records, in turn",
    "folds": "folds of the training records",
    "draw": "another draw of the synthetic data",
}

NOT_PRIVATE = {"folds"}
"""Choices by private records."""


@schema
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
    settings: OneOrMore[Overrides]
    crossed: OneOrMore[Overrides] = ((),)
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
        if seed:
            quoted = repr(str(seed))  # keys are texts
            drawn = [f"{k}={quoted if k.endswith('.key') else seed}" for k in self.method.seeds]
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


@keyword_schema
class Frontier(Kind):
    """Test accuracy against the k at which half of the test records are certified.

    Attributes:
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

    methods: OneOrMore[Method]
    run: Overrides = ()
    ks: OneOrMore[Count] = (1, 10, 20, 50, 100, 200)
    draw: Overrides = ()
    folds: AtLeastTwo | None = None
    initialisations: Count = 3
    generated: Annotated[int, Field(ge=1000)] | None = None
    data: Literal["either", "generated"] = "either"
    index = ("profile", "series", "k asked", "initialisation")

    @property
    def chosen_on(self) -> str:
        """What settings are chosen on, as ``CHOSEN`` names it."""
        if self.folds:
            return "folds"
        return "draw" if self.draw else "halves"

    def __post_init__(self) -> None:
        """Refuse two ways of choosing settings at once."""
        if self.draw and self.folds:
            raise ConfigError(
                "draw=... and folds=... both choose the settings: give only one of them"
            )

    @property
    def keys(self) -> list[Key]:
        keys: list[Key] = []
        for name, method in product(self.profiles, self.methods):
            if name != "smoke" and method.published != (name == "paper"):
                continue
            for k, seed in product(self.ks, range(method.drawn(self.initialisations))):
                own = {"profile": name, "series": method.label}
                keys.append({**own, "k asked": k, "initialisation": seed})
        return keys

    def rows(self, entry: Entry) -> pd.DataFrame:
        curves = {}
        for name in self.profiles:
            more: Overrides = ()
            if self.generated:
                more = stand_in(entry, name, self.run, self.generated, self.data)
            for method in self.methods:
                whole = replace(method, run=(*self.run, *more, *method.run))
                curves[name, method.label] = Curve(entry, name, whole, self.draw, self.folds)

        def reached(key: Key) -> Iterator[Key]:
            curve = curves[key["profile"], key["series"]]
            if settings := curve.chosen(key["k asked"]):
                data = curve.data if self.generated else entry.experiment.data
                yield {**curve.reached(settings, key["initialisation"]), "data": data}

        return tidy(self.keys, reached)

    def shown(self, rows: pd.DataFrame) -> Shown:
        found = by_setting(rows)
        words = found.rename(columns={"series": "method"})
        words["its range"] = _ranges(found["low"], found["high"], "{:.3f} to {:.3f}")
        words["range of k"] = _ranges(found["least k"], found["greatest k"], "{:,.10g} to {:,.10g}")
        points = found.drop_duplicates(["series", "settings"]).rename(columns={HALF: "k"})
        columns = ["series", "k", "accuracy", "low", "high", "least k", "greatest k"]
        points = points.loc[points["k"] > 0, columns]
        caption = (
            "Test accuracy against the k at which half of the test records are certified: median "
            "of the initialisations, and the range of their accuracies."
        )
        draw = lines(
            "k",
            "accuracy",
            "k at which half of the test records are certified",
            "accuracy",
            looks=METHOD_LOOKS,
        )
        chosen = CHOSEN[self.chosen_on]
        column = chosen
        if self.chosen_on in NOT_PRIVATE:
            chosen = f"{chosen}, so no row carries a private claim"
            column = f"{column}: no private claim"
        notes = [note.format(chosen) for note in FRONTIER_NOTES]
        fewer = ", ".join(
            method.label
            for method in self.methods
            if method.seeds and method.drawn(self.initialisations) < self.initialisations
        )
        if fewer:
            notes.append(
                f"For the time they take, fewer than {self.initialisations} initialisations were "
                f"made of: {fewer}."
            )
        table = words[[*TABLE, "data"]].assign(**{"chosen on": column})
        figure = Figure(caption, points, draw)
        return Shown(table, [figure], tuple(notes), extra={"_initialisations": rows})


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
    "Settings were chosen with the first initialisation, on {}. A point is the most accurate "
    "setting of those listed that certifies half at the k asked for, where settings are chosen; "
    "where it reports it may reach more or less. No row: no setting does.",
    "k is of records added or removed in all (of a curve of flips: of labels changed, and of no "
    "record): the published rules' ball of k (k removed and k added at the same time) is their "
    "smallest that holds all such changes. A claim about k replaced records is theirs at k, and "
    "add_remove's at 2k: the column "
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
