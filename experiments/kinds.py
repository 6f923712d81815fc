"""What an experiment is: data that experiments/NAME.yaml holds, read into typed values.

A profile says how runs are made: ``paper`` as published, ``ours`` with what this project adds,
``smoke`` small enough for minutes on two cores. An artifact is one published figure or table: a
kind (what is computed and drawn; kinds.py), settings of that kind, and the published values to
stand beside.


What figures and tables are made of: a kind turns an entry's runs into a tidy table, and says how it
is shown.

A kind is a function: the profiles come first, its other parameters are the settings in
experiments/NAME.yaml. It returns a ``Kind``: how to get the rows (one for each point, with named
columns, for all profiles), and what is shown of them. ``reproduce.render`` does the rest, for every
kind alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from inspect import signature
from itertools import product
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import pandas as pd
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.mechanisms.composition import BOUNDS, PUBLISHED_BOUNDS
from agt.models.box import copy_initial_parameters
from agt.models.model import Model
from agt.settings import STRICT, Accounting, Positive, RelationName, validate
from agt_cli.command_settings.reproduce import one_data_set, read_experiment
from agt_cli.runs.prepare import Prepared, RunSettings

from .baselines import Bench
from .figures import Draw
from .runs import Finished, Runs, Standing

ProfileName = Literal["paper", "ours", "smoke"]


@validated(frozen=True, config=STRICT)
class Profile:
    """How a profile makes its runs and releases its labels.

    Attributes:
        privacy, unlearning: the relations; a run's ``relation=@unlearning`` is this profile's.
        overrides: of agt train's configuration, before the run's own.
        final: overrides after the run's own: what a profile insists on (smoke's small grids).
        ensembles: overrides after those, of runs with more than one member: members have fewer
            records and smaller grids.
        mechanisms: released with, for pure eps; the first is the profile's own choice.
        many: the mechanism for many queries under one total budget.
        accounting: what the mechanisms' guarantee is taken to be.
        vote: how an ensemble's distance is computed.
    """

    privacy: RelationName = "add_remove"
    unlearning: RelationName = "remove"
    overrides: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    ensembles: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ("randomized_response",)
    many: str = "gaussian_margin"
    accounting: Accounting = "rigorous"
    vote: Literal["certified", "published"] = "certified"

    @property
    def bounds(self) -> tuple[str, ...]:
        """The composition bounds that a total budget is divided by: under accounting=paper, the
        papers' own.
        """
        return PUBLISHED_BOUNDS if self.accounting == "paper" else BOUNDS


@validated(frozen=True, config=STRICT)
class Published:
    """A number from a paper.

    Attributes:
        what: the name of the value that the kind computes, to stand beside.
        value: as printed, a number or words.
        note: why ours may differ.
    """

    what: str
    value: float | str
    note: str = ""


@validated(frozen=True, config=STRICT)
class Variation:
    """What differs about an artifact on the papers' own data.

    Attributes:
        settings: of the kind, in place of those for the stand-in.
        notes: in place of the artifact's.
        difference: why its numbers may differ from the published ones; empty: as ``Original`` says.
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    difference: str = ""


@validated(frozen=True, config=STRICT)
class Artifact:
    """One figure or table.

    Attributes:
        id: names its files.
        source: the paper's figure or table.
        title: what it shows.
        kind: a name in catalogue.KINDS.
        settings: of the kind.
        smoke: settings that differ in the smoke profile; null: left out of it.
        original: what differs on the papers' own data, where the experiment can run on either.
        published: numbers from the paper.
        notes: what a reader must know: substitutions, what is not the same.
    """

    id: str
    source: str
    title: str
    kind: str
    settings: dict[str, Any] = Field(default_factory=dict)
    smoke: dict[str, Any] | None = Field(default_factory=dict)
    original: Variation = Field(default_factory=Variation)
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()

    def on_original(self, difference: str) -> "Artifact":
        """Return this artifact as it is on the papers' own data.

        Args:
            difference: why its numbers may differ from the published ones, unless its own
                variation says why.
        """
        why = self.original.difference or difference
        return replace(
            self,
            settings={**self.settings, **self.original.settings},
            notes=self.original.notes,
            published=self._published_with(why),
        )

    def in_smoke(self) -> "Artifact":
        """Return this artifact as it is in the smoke profile, without notes on other data."""
        why = "profile=smoke is a small version whose numbers are not to be compared"
        return replace(self, notes=(), published=self._published_with(why))

    def _published_with(self, difference: str) -> tuple[Published, ...]:
        return tuple(replace(published, note=difference) for published in self.published)


@validated(frozen=True, config=STRICT)
class Original:
    """The papers' own data, for an experiment that also runs on a stand-in.

    Attributes:
        data: which it is; in every table.
        difference: why numbers may differ from the published ones, on the same data.
        base: overrides of every run.
        passes: as of ``Experiment``, on this data.
        profiles: those that differ, such as in their grids.
    """

    data: str
    difference: str
    base: tuple[str, ...]
    passes: Positive | None = None
    profiles: dict[ProfileName, Profile] = Field(default_factory=dict)


@validated(frozen=True, config=STRICT)
class Experiment:
    """One data set's part of the papers.

    Attributes:
        title: of the report.
        data: which data it runs on, and what that stands in for; in every table.
        smoke_data: the same for the smoke profile; empty: as ``data``.
        base: overrides of every run.
        minutes: of all artifacts in both profiles on two cores without a GPU; None: not measured.
        passes: the time of all artifacts in both profiles, as a multiple of the time of one pass
            over the training records with one k; None: not known.
        original: the papers' own data, where ``data`` is a stand-in for it.
        profiles: by name.
        artifacts: in the order of the report.
    """

    title: str
    data: str
    artifacts: Annotated[tuple[Artifact, ...], Field(min_length=1)]
    profiles: dict[ProfileName, Profile]
    base: tuple[str, ...] = ()
    smoke_data: str = ""
    minutes: Positive | None = None
    passes: Positive | None = None
    original: Original | None = None

    def on_original(self) -> "Experiment":
        """The same on the papers' own data, with what explains its differences there.

        Raises:
            ConfigError: it has no stand-in.
        """
        if self.original is None:
            raise one_data_set(self.title, self.data)
        own = self.original
        artifacts = tuple(artifact.on_original(own.difference) for artifact in self.artifacts)
        return replace(
            self,
            data=own.data,
            base=own.base,
            passes=own.passes,
            profiles={**self.profiles, **own.profiles},
            artifacts=artifacts,
        )


def load_experiment(name: str) -> Experiment:
    """Read a definition.

    Raises:
        ConfigError: there is none of this name, or it is not valid.
    """
    return validate(Experiment, read_experiment(name), f"experiments/{name}.yaml")


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
        used: what was handed out, by what it was asked for: a memo, and what the report says of the
            runs.
    """

    experiment: Experiment
    artifact: Artifact
    profiles: Profiles
    runs: Runs
    used: dict[tuple[Any, ...], Standing] = field(default_factory=dict, compare=False)

    def overrides(
        self, name: ProfileName, own: Sequence[str], last: Sequence[str] = ()
    ) -> Overrides:
        """Overrides of a run: the experiment's, the profile's, its own, what the profile insists
        on, and ``last``.
        """
        profile = self.profiles[name]
        relations = {"@privacy": profile.privacy, "@unlearning": profile.unlearning}
        named = []
        for word in own:
            relation = relations.get(word.removeprefix("relation="))
            named.append(f"relation={relation}" if relation else word)
        overrides = [
            *self.experiment.base,
            f"relation={profile.privacy}",
            *profile.overrides,
            *named,
            *profile.final,
        ]
        members = [word for word in named if word.startswith("ensemble.members=")]
        if any(word != "ensemble.members=1" for word in members):
            overrides += profile.ensembles
        # of two that set one key, the later
        by_key = {word.split("=")[0]: word for word in (*overrides, *last)}
        return tuple(by_key.values())

    def run(
        self,
        name: ProfileName,
        own: Sequence[str],
        label: str = "",
        on: str = "test",
        queries: np.ndarray | None = None,
        last: Sequence[str] = (),
    ) -> Finished:
        """A run of one profile, asked about its test records or about ``queries``; ``last``: as
        of ``overrides``.
        """
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
        self.used[overrides, "model"] = Standing(
            model.problem.settings.relation.name, model.conditions
        )
        return model

    def data(self, name: ProfileName, own: Sequence[str]) -> tuple[Prepared, RunSettings]:
        """What a run of one profile trains on, and its settings."""
        overrides = self.overrides(name, own)
        return self.runs.prepared(overrides), self.runs.settings(overrides)[1]

    def bench(self, name: ProfileName, own: Sequence[str], **training: Any) -> Bench:
        """A run's own head as anybody may start it, from a public base model's dense layers or at
        random, and its records.

        Args:
            training: what differs from the run's settings of training.
        """
        prepared, settings = self.data(name, own)
        changed = replace(settings.training, **training)
        records = prepared.dataset.train
        head = settings.model.build(records.features.shape[1:], prepared.classes, changed)
        initial = prepared.problem(settings).initial
        if initial:
            copy_initial_parameters(head, initial)
        return Bench(
            head,
            prepared.classes,
            records,
            int(prepared.dataset.declared_size or len(records)),
            changed,
        )


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        caption: what it shows.
        points: what is drawn; its CSV.
        draw: draws the points, and writes the figure's files.
        name: added to the artifact's.
    """

    caption: str
    points: pd.DataFrame
    draw: Draw
    name: str = ""


@dataclass(frozen=True)
class Shown:
    """What is shown of an artifact's rows.

    Attributes:
        table: below the figures.
        extra: further tables, by what is added to the artifact's name.
        measured: the rows that numbers are compared from, each with its key; None: the table.
        notes: sentences for the report.
    """

    table: pd.DataFrame
    figures: Sequence[Figure] = ()
    notes: tuple[str, ...] = ()
    measured: pd.DataFrame | None = None
    extra: Mapping[str, pd.DataFrame] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind with its settings.

    Attributes:
        keys: the settings that the rows go through, the profile among them: known before anything
            is trained.
        index: the columns that tell the rows apart.
        rows: the tidy table.
        shown: of the rows, unless there are none.
        compared: of a measured row, from its key alone: published number -> column that stands
            beside it.
    """

    keys: Sequence[Key]
    index: tuple[str, ...]
    rows: Callable[[Entry], pd.DataFrame]
    shown: Callable[[pd.DataFrame], Shown] = Shown
    compared: Callable[[Key], Mapping[str, str]] = lambda key: {}


KINDS: dict[str, Callable[[Profiles, Mapping[str, Any], str], Kind]] = {}


def kind(function: Callable[..., Kind]) -> Callable[..., Kind]:
    """Enter a function in ``KINDS`` by its name: profiles, settings as a definition gives them and
    their key -> kind.

    There, a setting that is no parameter of it, or not of its type, is a ConfigError that names its
    key.
    """
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = signature(function).parameters.values()
    fields: list[Any] = []
    for parameter in parameters:
        about = (parameter.name, hints[parameter.name])
        if parameter.default is parameter.empty:
            fields.append(about)
        else:
            fields.append((*about, field(default=parameter.default)))
    unchecked = make_dataclass(function.__name__, fields, kw_only=True, frozen=True)
    settings = validated(frozen=True, config=STRICT)(unchecked)

    def typed(profiles: Profiles, node: Mapping[str, Any], where: str) -> Kind:
        return function(profiles, **vars(validate(settings, node, where)))

    KINDS[function.__name__] = typed
    return function


def grid(**columns: Iterable[Any]) -> list[Key]:
    """A key for each combination, the last column changing fastest."""
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def through(
    keys: Iterable[Key], measure: Callable[[Entry, Key], Iterable[Key]]
) -> Callable[[Entry], pd.DataFrame]:
    """Rows that go through ``keys``: at each, the points that ``measure`` finds there."""

    def rows(entry: Entry) -> pd.DataFrame:
        found = []
        for key in keys:
            found += [{**key, **row} for row in measure(entry, key)]
        return pd.DataFrame(found)

    return rows


def once(
    entry: Entry,
    name: ProfileName,
    own: Sequence[str],
    label: str,
    make: Callable[[Prepared, RunSettings], list[Key]],
    on: str,
) -> list[Key]:
    """Rows that ``make`` makes of a run of one profile, found again; ``on``: as of
    ``Runs.once``.
    """
    overrides = entry.overrides(name, own)

    def table(prepared: Prepared, settings: RunSettings) -> tuple[pd.DataFrame, dict[str, Any]]:
        return pd.DataFrame(make(prepared, settings)), {}

    rows, _ = entry.runs.once(overrides, label, table, on)
    return rows.to_dict("records")


def wide(
    rows: pd.DataFrame,
    about: Sequence[str],
    column: str,
    value: str,
    wanted: Iterable[Any],
    name: str,
) -> pd.DataFrame:
    """A row for each distinct ``about``; beside it ``value`` at each wanted ``column``, under
    ``name``; NaN: no such.
    """
    values = rows.set_index([*about, column])[value]
    cells = values.unstack(sort=False).reindex(columns=list(wanted))
    return cells.rename(columns=name.format).reset_index().rename_axis(columns=None)
