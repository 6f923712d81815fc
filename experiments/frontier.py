"""Kind frontier: how accurate a model can be whose labels survive k changed records, for several
methods on one data set.

A point of a method's curve is a setting: its accuracy, and the largest k at which half of the test
records are certified. It is found in three steps.

1. Every setting of the method is run with the first initialisation, and scored on records that do
   not report: the other half of the test records, folds of the training records, or a fresh draw of
   synthetic data (``Curve.rounds``).
2. For each k asked for, the most accurate of the settings that certify half at k is chosen
   (``Curve.choose_settings``).
3. The chosen setting is run with every initialisation, and scored on the records that report
   (``Curve.measure``).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal

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
from .kinds import Figure, Kind, Shown, grid
from .runs import Finished, dealt, left_out
from .smallest_batch import stand_in

REPLACED = "the same as records replaced"

# Choice of settings -> the records that they are chosen on.
CHOSEN = {
    "halves": "the other half of the test records, in turn",
    "folds": "folds of the training records",
    "draw": "another draw of the synthetic data",
}

NOT_PRIVATE = {"folds"}
"""The choices that depend on private records, so that no private claim can be made of a point."""


@schema
class Method:
    """A method of training, whose settings become one curve.

    Attributes:
        label: the name of the method and of its curve.
        settings: the overrides of each setting that may become a point.
        crossed: further overrides; each setting is tried with each of them.
        run: overrides of all runs of the method, before those of a setting.
        seeds: the keys of the configuration that are set to the number of an initialisation; empty:
            nothing is drawn, so there is one initialisation.
        initialisations: how many initialisations report, if one costs too much for the number that
            other methods have; null: as many as for these.
        grid: overrides that choose the values of k in place of the profile's; the smoke profile
            keeps its own.
        published: True: the method is run in the profile "paper" only. False: in "ours" only.
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
        """The overrides of every setting that may become a point."""
        return [(*setting, *more) for more in self.crossed for setting in self.settings]

    def initialisation_count(self, default: int) -> int:
        """Return how many initialisations report.

        Args:
            default: the number of initialisations of methods that set none.
        """
        if not self.seeds:
            return 1
        return self.initialisations or default


@dataclass(frozen=True)
class SettingScore:
    """How good one setting is on some records.

    Attributes:
        accuracy: the share of right answers.
        half_k: the largest k at which half of the records are certified.
        half_k_is_exact: True: k + 1 was looked at as well. False: ``half_k`` is a lower bound.
    """

    accuracy: float
    half_k: float
    half_k_is_exact: bool

    @classmethod
    def from_answers(cls, answers: pd.DataFrame, ks: Sequence[int]) -> "SettingScore":
        """Return the score of answers to some records.

        Args:
            answers: a row for each record, with the columns prediction, label and distance.
            ks: the values of k that were looked at.
        """
        is_right = answers["prediction"] == answers["label"]
        half_k, is_exact = at_half(answers["distance"].to_numpy(), ks)
        return cls(float(is_right.mean()), half_k, is_exact)

    @classmethod
    def mean(cls, parts: Sequence["SettingScore"]) -> "SettingScore":
        """Return the mean of the scores on parts of the records that are equally large."""
        accuracy = float(np.mean([part.accuracy for part in parts]))
        half_k = float(np.mean([part.half_k for part in parts]))
        return cls(accuracy, half_k, all(part.half_k_is_exact for part in parts))


@dataclass(frozen=True)
class SelectionRound:
    """One way to divide the records into those that choose a setting and those that report it.

    Attributes:
        scores: the score of each setting on the records that choose.
        reports: [n] bool, the test records that report.
    """

    scores: Sequence[SettingScore]
    reports: np.ndarray


@dataclass(frozen=True)
class Curve:
    """The curve of one method in one profile.

    Attributes:
        entry: the artifact that the curve is part of, which has the runs.
        name: the name of the profile.
        method: the method; its overrides include those of the whole figure.
        draw: overrides that make a fresh draw of synthetic data, whose test records choose the
            settings; empty: none do.
        folds: how many folds of the training records choose the settings; None: none do.
    """

    entry: Entry
    name: ProfileName
    method: Method
    draw: Overrides
    folds: int | None

    @cached_property
    def rounds(self) -> list[SelectionRound]:
        """The scores by which settings are chosen, and the test records that then report.

        There is one round, with all test records, if folds or a fresh draw choose. Otherwise there
        are two, in which either half of the test records chooses for the other.
        """
        settings = self.method.points
        test = self._dataset.test
        all_records = np.ones(len(test), dtype=bool)
        if self.folds:
            scores = [self._score_on_folds(setting, self.folds) for setting in settings]
            return [SelectionRound(scores, all_records)]
        runs = [self.run(setting, 0, self.draw) for setting in settings]
        if self.draw:
            scores = [SettingScore.from_answers(run.frame, run.ks) for run in runs]
            return [SelectionRound(scores, all_records)]
        half_of_record = dealt(test.units, 2)
        rounds = []
        for half in range(2):
            chooses = half_of_record == half
            scores = [SettingScore.from_answers(run.frame[chooses], run.ks) for run in runs]
            rounds.append(SelectionRound(scores, reports=~chooses))
        return rounds

    def choose_settings(self, k: int) -> list[Overrides]:
        """Return the most accurate setting of those that certify half of the records at k.

        Returns:
            One setting for each round; empty if there is no such setting in some round.
        """
        chosen = []
        for selection in self.rounds:
            index = index_of_best(selection.scores, k)
            if index is None:
                return []
            chosen.append(self.method.points[index])
        return chosen

    @property
    def _dataset(self) -> Dataset:
        """The data that every setting is trained on."""
        prepared, _ = self.entry.data(self.name, self._overrides_of(self.method.points[0], 0))
        return prepared.dataset

    @property
    def data(self) -> str:
        """The name of the data that every setting is trained on."""
        return self._dataset.name

    def run(self, setting: Overrides, initialisation: int, more: Overrides = ()) -> Finished:
        """Return the run of a setting, with the overrides ``more`` after its own."""
        overrides = (*self._overrides_of(setting, initialisation), *more)
        words = " ".join(setting)
        label = f"{self.method.label}, {words}, initialisation {initialisation}"
        return self.entry.run(self.name, overrides, label, last=self._grid)

    def measure(self, settings: list[Overrides], initialisation: int) -> Key:
        """Return the columns of a row: the mean score of the chosen settings, and what k counts.

        Args:
            settings: the setting that each round chose; each is scored on its round's records.
            initialisation: the number of the initialisation.
        """
        runs = [self.run(setting, initialisation) for setting in settings]
        scores = []
        for run, selection in zip(runs, self.rounds, strict=True):
            scores.append(SettingScore.from_answers(run.frame[selection.reports], run.ks))
        score = SettingScore.mean(scores)
        relation = RELATIONS[runs[0].relation]
        replaced = math.nan
        if relation.edits_whole_records:
            # a record is replaced by removing it and adding another
            replaced = score.half_k * (relation.units_changed_per_edit / 2) // 1
        texts = [" ".join(map(_without_section, setting)) for setting in settings]
        listed = " | ".join(dict.fromkeys(texts))
        return {
            "accuracy": score.accuracy,
            HALF: score.half_k,
            "known": "exactly" if score.half_k_is_exact else "at least",
            REPLACED: replaced,
            "k counts": runs[0].counts,
            "settings": listed or "-",
        }

    def _overrides_of(self, setting: Overrides, initialisation: int) -> Overrides:
        """Return the overrides of a run of the method with a setting and an initialisation."""
        seeds = []
        for key in self.method.seeds if initialisation else ():
            # keys of hashes are texts, so their number is quoted
            value = repr(str(initialisation)) if key.endswith(".key") else initialisation
            seeds.append(f"{key}={value}")
        # folds are of private records
        declared = ("training.chosen_on=data",) if self.folds else ()
        return (*self.method.run, *setting, *seeds, *declared)

    @property
    def _grid(self) -> Overrides:
        """The overrides that choose the method's values of k; none in the smoke profile."""
        return () if self.name == "smoke" else self.method.grid

    def _score_on_folds(self, setting: Overrides, folds: int) -> SettingScore:
        """Return the mean score of a setting on folds of the training records.

        Each fold is answered by the run on the other folds. A stable distance grows with the number
        of records, so it is scaled to the number of all of them. That of votes grows with the
        number of members instead, so it is left as it is.
        """
        own = self._overrides_of(setting, 0)
        overrides = self.entry.overrides(self.name, own, self._grid)
        runs = self.entry.runs
        words = " ".join(setting)
        scores = []
        for fold in range(folds):
            label = f"{self.method.label}, {words}, fold {fold + 1} of {folds}"
            answers, ks = left_out(runs, overrides, label, fold, folds)
            scores.append(SettingScore.from_answers(answers, ks))
        score = SettingScore.mean(scores)
        settings = runs.settings(overrides)[1]
        votes = settings.certificate.bounded == "vote counts" and settings.ensemble.members > 1
        if votes:
            return score
        return replace(score, half_k=score.half_k * folds / (folds - 1))


@keyword_schema
class Frontier(Kind):
    """Test accuracy against the k at which half of the test records are certified.

    Attributes:
        methods: the methods, each of which becomes a curve.
        run: overrides of every method's runs, before its own.
        ks: the values of k; each gives a curve a point, the most accurate setting of those that
            certify half of the records at k. Either half of the test records chooses for the other,
            and the point is the mean of both, unless ``folds`` or ``draw`` is given.
        folds: the number of folds of the training records that choose; None: they do not choose.
        draw: overrides that make a fresh draw of synthetic data, whose test records choose; empty:
            there is none.
        initialisations: how many initialisations of each chosen setting report.
        generated, data: which generated statements stand in for those of AMEX, as in
            ``SmallestBatch``; None: the experiment's own data.
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
        """The records that settings are chosen on, as a key of ``CHOSEN``."""
        if self.folds:
            return "folds"
        return "draw" if self.draw else "halves"

    def __post_init__(self) -> None:
        """Raise ConfigError if settings are to be chosen in two ways at once."""
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
            columns: dict[str, Iterable[Any]] = {
                "profile": [name],
                "series": [method.label],
                "k asked": self.ks,
                "initialisation": range(method.initialisation_count(self.initialisations)),
            }
            keys += grid(**columns)
        return keys

    def rows(self, entry: Entry) -> pd.DataFrame:
        curves = {}
        for name in self.profiles:
            data_overrides: Overrides = ()
            if self.generated:
                data_overrides = stand_in(entry, name, self.run, self.generated, self.data)
            for method in self.methods:
                complete = replace(method, run=(*self.run, *data_overrides, *method.run))
                curves[name, method.label] = Curve(entry, name, complete, self.draw, self.folds)
        rows = []
        for key in self.keys:
            curve = curves[key["profile"], key["series"]]
            settings = curve.choose_settings(key["k asked"])
            if settings:
                data = curve.data if self.generated else entry.experiment.data
                measured = curve.measure(settings, key["initialisation"])
                rows.append({**key, **measured, "data": data})
        return pd.DataFrame(rows)

    def shown(self, rows: pd.DataFrame) -> Shown:
        points = by_setting(rows)
        extra = {"_initialisations": rows}
        return Shown(self._table(points), [_figure(points)], self._notes, extra=extra)

    def _table(self, points: pd.DataFrame) -> pd.DataFrame:
        """Return the table that is shown of points, as ``by_setting`` returns them."""
        table = points.rename(columns={"series": "method"})
        table["its range"] = _ranges(points["low"], points["high"], "{:.3f} to {:.3f}")
        table["range of k"] = _ranges(
            points["least k"], points["greatest k"], "{:,.10g} to {:,.10g}"
        )
        chosen_on = CHOSEN[self.chosen_on]
        if self.chosen_on in NOT_PRIVATE:
            chosen_on = f"{chosen_on}: no private claim"
        return table[[*TABLE, "data"]].assign(**{"chosen on": chosen_on})

    @property
    def _notes(self) -> tuple[str, ...]:
        """The notes of the report: how settings were chosen, and which curves have few runs."""
        chosen_on = CHOSEN[self.chosen_on]
        if self.chosen_on in NOT_PRIVATE:
            chosen_on = f"{chosen_on}, so no row carries a private claim"
        notes = [note.format(chosen_on) for note in FRONTIER_NOTES]
        fewer = [
            method.label
            for method in self.methods
            if method.seeds
            and method.initialisation_count(self.initialisations) < self.initialisations
        ]
        if fewer:
            listed = ", ".join(fewer)
            notes.append(
                f"For the time they take, fewer than {self.initialisations} initialisations were "
                f"made of: {listed}."
            )
        return tuple(notes)


def _figure(points: pd.DataFrame) -> Figure:
    """Return the figure of points, as ``by_setting`` returns them.

    A setting that is the point of several k is drawn once; one that certifies half at no k is left
    out.
    """
    drawn = points.drop_duplicates(["series", "settings"]).rename(columns={HALF: "k"})
    columns = ["series", "k", "accuracy", "low", "high", "least k", "greatest k"]
    drawn = drawn.loc[drawn["k"] > 0, columns]
    caption = (
        "Test accuracy against the k at which half of the test records are certified: median "
        "of the initialisations, and the range of their accuracies."
    )
    xlabel = "k at which half of the test records are certified"
    return Figure(caption, drawn, lines("k", "accuracy", xlabel, "accuracy", looks=METHOD_LOOKS))


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
    """Return a text for each pair of a smallest and a largest value.

    Args:
        low: the smallest values.
        high: the largest values.
        form: a format string with a place for each of the two.
    """
    return [form.format(*ends) for ends in zip(low, high, strict=True)]


def by_setting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each point, with the medians and ranges over the initialisations.

    Args:
        rows: the rows of ``Frontier.rows``, one for each initialisation of a point.
    """
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


def index_of_best(scores: Sequence[SettingScore], k: int) -> int | None:
    """Return the index of the most accurate setting of those that certify half at k.

    Of equally accurate ones it is the one that certifies half at the largest k; None: no setting
    certifies half at k.
    """
    indices = [index for index, score in enumerate(scores) if score.half_k >= k]
    return max(
        indices, key=lambda index: (scores[index].accuracy, scores[index].half_k), default=None
    )


def _without_section(override: str) -> str:
    """Return an override of a setting without the section that the setting is in."""
    for section in ("training.", "certificate.", "features."):
        override = override.removeprefix(section)
    return override
