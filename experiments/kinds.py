"""Marks with a range, one line for each category: how a table of a few categories is drawn.

Small images in rows, each with a number below it: how records themselves are shown.

What an experiment is: data that experiments/NAME.yaml holds, read into typed values.

A profile says how runs are made: ``paper`` as published, ``ours`` with what this project adds, ``smoke`` small enough for
minutes on two cores. An artifact is one published figure or table: a kind (what is computed and drawn; kinds.py), settings
of that kind, and the published values to stand beside.


What figures and tables are made of: a kind turns an entry's runs into a tidy table, and says how it is shown.

A kind is a function: the profiles come first, its other parameters are the settings in experiments/NAME.yaml. It returns a
``Kind``: how to get the rows (one for each point, with named columns, for all profiles), and what of them is shown where.
``render.py`` does the rest, for every kind alike.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from inspect import signature
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import pandas as pd
import yaml  # type: ignore[import-untyped]
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError, nearest
from agt.mechanisms.claims import Accounting
from agt.mechanisms.composition import BOUNDS, PUBLISHED
from agt.models.box import start_from
from agt.models.model import Model
from agt.settings import STRICT, RelationName, validate
from agt_cli.report.figures import LINES, curves, drawing, ends, headline, keys
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings
from agt_cli.usage import experiments_dir

from .baselines import Bench
from .runs import Finished, Runs, Standing


@dataclass(frozen=True)
class Marks:
    """What one figure shows.

    Attributes:
        x: the column of the marks' places; ``low`` and ``high`` hold their ranges.
        y: of the categories, from the top down.
        series: of the marks' looks.
        panels: one panel each, titled as ``panel`` says.
        xlabel: words.
        name, title, finding, log: as of ``Curves``.
    """

    x: str
    y: str
    series: str
    panels: str
    xlabel: str
    panel: str
    name: str = ""
    title: str = ""
    finding: str = ""
    log: bool = False


def marks(record: RunRecord, what: Marks, data: pd.DataFrame) -> None:
    """Draw ``data``'s marks, side by side in panels."""
    categories, parts = list(data[what.y].unique()), list(data.groupby(what.panels, sort=False))
    with drawing(record, what.name, data, (2.2 + 2.3 * len(parts), 1.6 + 0.42 * len(categories))) as figure:
        places = figure.subplots(1, len(parts), squeeze=False, sharey=True, sharex=True)[0]
        for axes, (panel, part) in zip(places, parts, strict=True):
            _draw_marks(axes, what, part, categories)
            axes.set(title=what.panel.format(panel), xlabel=what.xlabel, xscale="log" if what.log else "linear")
        places[0].set_ylim(len(categories) - 0.5, -0.5)  # from the top down; they share it
        if what.log:
            places[0].xaxis.set_major_locator(LogLocator())
            places[0].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            places[0].xaxis.set_minor_formatter(NullFormatter())
        else:
            places[0].xaxis.set_major_locator(MaxNLocator(3))
        ends(places, "x")
        keys(figure, places)
        headline(figure, what.finding, what.title)


def _draw_marks(axes: Axes, what: Marks, data: pd.DataFrame, categories: list[str]) -> None:
    series = list(data.groupby(what.series, sort=False))
    for position, (name, part) in enumerate(series):
        place = np.array([categories.index(one) for one in part[what.y]]) + 0.18 * (position - (len(series) - 1) / 2)
        span = np.stack([part[what.x] - part["low"], part["high"] - part[what.x]])
        style = LINES[position]
        axes.errorbar(
            part[what.x], place, xerr=span, linestyle="none", capsize=2, linewidth=1, markersize=4, label=str(name),
            color=style["color"], marker=style["marker"],
        )  # fmt: skip
    axes.set_yticks(range(len(categories)), categories)


@dataclass(frozen=True)
class Pictures:
    """What one figure shows; columns p0, p1, ... hold the pixels of square images.

    Attributes:
        rows: of the rows of images, titled by its values; ``order``: of the images in one.
        value: a number for each image; ``words``: what it is.
        name, title, finding: as of ``Curves``.
    """

    rows: str
    order: str
    value: str
    words: str
    name: str = ""
    title: str = ""
    finding: str = ""


def pictures(record: RunRecord, what: Pictures, data: pd.DataFrame) -> None:
    """Draw ``data``'s images, dark on white."""
    titles = list(data[what.rows].unique())
    parts = [data[data[what.rows] == title].sort_values(what.order) for title in titles]
    pixels = [column for column in map(str, data) if column[:1] == "p" and column[1:].isdigit()]
    side, across = math.isqrt(len(pixels)), max(map(len, parts))
    with drawing(record, what.name, data, (0.72 * across + 0.8, 1.15 * len(parts) + 0.7)) as figure:
        places = figure.subplots(len(parts), across, squeeze=False)
        for axes in places.ravel():
            axes.set_axis_off()
        for line, title, part in zip(places, titles, parts, strict=True):
            for axes, row in zip(line, part.to_dict("records"), strict=False):
                image = np.array([row[pixel] for pixel in pixels], dtype=float).reshape(side, side)
                axes.imshow(image, cmap="Greys", interpolation="nearest")
                axes.set_title(f"{row[what.value]:.2g}", fontsize=8, y=-0.32, loc="center")
            line[0].text(-0.15, 0.5, str(title), transform=line[0].transAxes, rotation=90, va="center", ha="right")
        figure.supxlabel(what.words, fontsize=9)
        headline(figure, what.finding, what.title)


ProfileName = Literal["paper", "ours", "smoke"]


@validated(frozen=True, config=STRICT)
class Profile:
    """How a profile makes its runs and releases its labels.

    Attributes:
        privacy, unlearning: the relations; a run's ``relation=@unlearning`` is this profile's.
        overrides: of agt train's configuration, before the run's own.
        final: overrides after the run's own: what a profile insists on (smoke's small grids).
        ensembles: overrides after those, of runs with more than one member: members have fewer records and smaller grids.
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
        """The composition bounds that a total budget is divided by: under accounting=paper, the papers' own."""
        return PUBLISHED if self.accounting == "paper" else BOUNDS


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
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


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


@validated(frozen=True, config=STRICT)
class Original:
    """The papers' own data, for an experiment that also runs on a stand-in.

    Attributes:
        data: which it is; in every table.
        base: overrides of every run.
        profiles: those that differ, such as in their grids.
    """

    data: str
    base: tuple[str, ...]
    profiles: dict[ProfileName, Profile] = Field(default_factory=dict)


@validated(frozen=True, config=STRICT)
class Experiment:
    """One data set's part of the papers.

    Attributes:
        title: of the report.
        data: which data it runs on, and what that stands in for; in every table.
        smoke_data: the same for the smoke profile; empty: as ``data``.
        base: overrides of every run.
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
    original: Original | None = None

    def on_original(self) -> "Experiment":
        """The same on the papers' own data; what explained differences of the stand-in explains nothing there.

        Raises:
            ConfigError: it has no stand-in.
        """
        if self.original is None:
            raise ConfigError(f"{self.title}: there is one data set, {self.data}: leave out data=original")
        artifacts = tuple(
            replace(
                artifact,
                settings={**artifact.settings, **artifact.original.settings},
                notes=artifact.original.notes,
                published=tuple(replace(published, note="") for published in artifact.published),
            )
            for artifact in self.artifacts
        )
        own = self.original
        return replace(self, data=own.data, base=own.base, profiles={**self.profiles, **own.profiles}, artifacts=artifacts)


def experiment_names() -> tuple[str, ...]:
    """The experiments there are."""
    return tuple(sorted(path.stem for path in experiments_dir().glob("*.yaml")))


def load_experiment(name: str) -> Experiment:
    """Read a definition.

    Raises:
        ConfigError: there is none of this name, or it is not valid.
    """
    if name not in experiment_names():
        raise ConfigError(f"unknown experiment '{name}'{nearest(name, experiment_names())}")
    node = yaml.safe_load((experiments_dir() / f"{name}.yaml").read_text(encoding="utf-8"))
    return validate(Experiment, node, f"experiments/{name}.yaml")


def settings_for(artifact: Artifact, profiles: Mapping[ProfileName, Profile]) -> dict[str, Any] | None:
    """The kind's settings for these profiles; None if the artifact is left out of them."""
    if "smoke" not in profiles:
        return artifact.settings
    return None if artifact.smoke is None else {**artifact.settings, **artifact.smoke}


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
        level: the column whose value is drawn as a line to compare with.
        draw: draws the points, and writes the figure's files.
    """

    caption: str
    points: Callable[[pd.DataFrame], pd.DataFrame]
    drawing: Any
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
