"""What figures and tables are made of: a kind turns an entry's runs into a tidy table, and says how it is shown.

A kind is a function: the profiles come first, its other parameters are the settings in experiments/NAME.yaml. It returns a
``Kind``: how to get the rows (one for each point, with named columns, for all profiles), and what of them is shown where.
``render.py`` does the rest, for every kind alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from inspect import signature
from typing import Any, Literal, get_type_hints

import numpy as np
import pandas as pd
from pydantic.dataclasses import dataclass as validated

from agt.models.box import start_from
from agt.models.model import Model
from agt.settings import STRICT, validate
from agt_cli.papers.baselines.released import Bench
from agt_cli.papers.reproduction.definition import Artifact, Experiment, Profile, ProfileName
from agt_cli.papers.reproduction.runs import Finished, Runs, Standing
from agt_cli.report.curves import curves
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings

Overrides = tuple[str, ...]
Purpose = Literal["privacy", "unlearning"]
Profiles = Mapping[ProfileName, Profile]
Key = dict[Any, Any]  # columns of a row, by name
EVERY = "every profile"  # in the column ``profile``: measured once, for all of them


@dataclass(frozen=True)
class Entry:
    """One artifact in its profiles, and the only door to its runs.

    Attributes:
        profiles: those asked for, by name, in order.
        used: what was handed out, by what it was asked for: a memo, and what the report says of the runs.
    """

    experiment: Experiment
    artifact: Artifact
    profiles: Profiles
    runs: Runs
    used: dict[tuple[Any, ...], Standing] = field(default_factory=dict, compare=False)

    def overrides(self, name: ProfileName, own: Sequence[str], last: Sequence[str] = ()) -> Overrides:
        """Overrides of a run: the experiment's, the profile's, its own, what the profile insists on, and ``last``."""
        profile = self.profiles[name]
        relations = {"@privacy": profile.privacy, "@unlearning": profile.unlearning}
        named = [f"relation={relations[word[9:]]}" if word[9:] in relations else word for word in own]
        overrides = [*self.experiment.base, f"relation={profile.privacy}", *profile.overrides, *named, *profile.final]
        if any(word.startswith("ensemble.members=") and word != "ensemble.members=1" for word in named):
            overrides += profile.ensembles
        return tuple(
            {word.split("=")[0]: word for word in (*overrides, *last)}.values()
        )  # of two that set one key, the later

    def run(
        self,
        name: ProfileName,
        own: Sequence[str],
        label: str = "",
        on: str = "test",
        queries: np.ndarray | None = None,
        last: Sequence[str] = (),
    ) -> Finished:
        """A run of one profile, asked about its test records or about ``queries``; ``last``: as of ``overrides``."""
        overrides = self.overrides(name, own, last)
        found = self.used.get((overrides, on))
        if not isinstance(found, Finished):
            words = f"{self.artifact.source}, {name}{label and ': ' + label}"
            found = self.used[overrides, on] = self.runs.finished(overrides, words, on, queries)
        return found

    def model(self, name: ProfileName, own: Sequence[str]) -> Model:
        """A trained linear head of one profile, for what the kept tables do not hold."""
        overrides = self.overrides(name, own)
        model = self.runs.model(overrides, "a linear head")
        self.used[overrides, "model"] = Standing(model.problem.settings.relation.name, model.conditions)
        return model

    def data(self, name: ProfileName, own: Sequence[str]) -> tuple[Prepared, RunSettings]:
        """What a run of one profile trains on, and its settings."""
        overrides = self.overrides(name, own)
        return self.runs.prepared(overrides), self.runs.settings(overrides)[1]

    def bench(self, name: ProfileName, own: Sequence[str], **training: Any) -> Bench:
        """A run's own head as anybody may start it, from a public base model's dense layers or at random, and its records.

        Args:
            training: what differs from the run's settings of training.
        """
        prepared, settings = self.data(name, own)
        changed, records = replace(settings.training, **training), prepared.dataset.train
        head = settings.model.build(records.features.shape[1:], prepared.classes, changed)
        initial = prepared.problem(settings).initial
        if initial:
            start_from(head, initial)
        return Bench(head, prepared.classes, records, int(prepared.dataset.declared_size or len(records)), changed)


@dataclass(frozen=True)
class Figure:
    """One figure of a kind.

    Attributes:
        caption: what it shows.
        points: of the rows, what is drawn; these columns are its CSV's.
        drawing: which columns go where; its ``name`` is added to the artifact's, and the renderer gives it its title.
        finding: of the rows, what the figure shows, in a sentence.
        level: the column whose value is drawn as a line to compare with.
        draw: draws the points, and writes the figure's files.
    """

    caption: str
    points: Callable[[pd.DataFrame], pd.DataFrame]
    drawing: Any
    finding: Callable[[pd.DataFrame], str]
    level: str = ""
    draw: Callable[[RunRecord, Any, pd.DataFrame], None] = curves


@dataclass(frozen=True)
class Kind:
    """A kind with its settings.

    Attributes:
        keys: the settings that the rows go through, the profile among them: known before anything is trained.
        rows: the tidy table.
        index: the columns that tell its rows apart.
        figures: how it is drawn.
        table: of the rows, what the report shows below the figure.
        extra: further tables, by what is added to the artifact's name.
        measured: the rows that numbers are compared from, each with its key; None: the table.
        compared: of a measured row, from its key alone: published number -> column that stands beside it.
        notes: sentences for the report.
    """

    keys: Sequence[Key]
    rows: Callable[[Entry], pd.DataFrame]
    index: tuple[str, ...]
    figures: tuple[Figure, ...]
    table: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows
    extra: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = field(default_factory=dict)
    measured: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    compared: Callable[[Key], Mapping[str, str]] = lambda key: {}
    notes: Callable[[pd.DataFrame], tuple[str, ...]] = lambda rows: ()


KINDS: dict[str, Callable[[Profiles, Mapping[str, Any], str], Kind]] = {}


def kind(function: Callable[..., Kind]) -> Callable[..., Kind]:
    """Enter a function in ``KINDS`` by its name: profiles, settings as a definition gives them and their key -> kind.

    There, a setting that is no parameter of it, or not of its type, is a ConfigError that names its key.
    """
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = signature(function).parameters.values()
    fields = [(p.name, hints[p.name], *([] if p.default is p.empty else [field(default=p.default)])) for p in parameters]
    settings = validated(frozen=True, config=STRICT)(make_dataclass(function.__name__, fields, kw_only=True, frozen=True))

    def typed(profiles: Profiles, node: Mapping[str, Any], where: str) -> Kind:
        return function(profiles, **vars(validate(settings, node, where)))

    KINDS[function.__name__] = typed
    return function


def through(keys: Iterable[Key], measure: Callable[[Entry, Key], Iterable[Key]]) -> Callable[[Entry], pd.DataFrame]:
    """Rows that go through ``keys``: at each, the points that ``measure`` finds there."""
    return lambda entry: pd.DataFrame([{**key, **row} for key in keys for row in measure(entry, key)])


def wide(
    rows: pd.DataFrame, about: Sequence[str], column: str, value: str, wanted: Iterable[Any], name: str
) -> pd.DataFrame:
    """A row for each distinct ``about``; beside it ``value`` at each wanted ``column``, under ``name``; NaN: no such."""
    cells = rows.set_index([*about, column])[value].unstack(sort=False).reindex(columns=list(wanted))
    return cells.rename(columns=name.format).reset_index().rename_axis(columns=None)
