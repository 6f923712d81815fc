"""What an experiment is: data that experiments/NAME.yaml holds, read into typed values.

A profile says how runs are made: ``paper`` as published, ``ours`` with what this project adds,
``smoke`` small enough for minutes on two cores. An artifact is one published figure or table: a
kind (what is computed and drawn; kinds.py), settings of that kind, and the published values to
stand beside.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from agt.mechanisms.composition import BOUNDS, PUBLISHED_BOUNDS
from agt.settings import Accounting, Positive, RelationName, schema, validate
from agt_cli.command_settings.reproduce import one_data_set, read_experiment

ProfileName = Literal["paper", "ours", "smoke"]
T = TypeVar("T")
OneOrMore = Annotated[tuple[T, ...], Field(min_length=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]


@schema
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


@schema
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


@schema
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


@schema
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


@schema
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


@schema
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
    artifacts: OneOrMore[Artifact]
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
