"""What artifacts are made of: a kind takes its settings and a context, runs what it needs, draws, and returns values.

A kind is one function and one line in ``KINDS``. It goes through every profile asked for, so that one figure shows both.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from agt_cli.papers.reproduction.definition import Artifact, Experiment, Profile, ProfileName
from agt_cli.papers.reproduction.runs import Finished, Runs
from agt_cli.report.record import RunRecord


@dataclass(frozen=True)
class Made:
    """What came of an artifact.

    Attributes:
        values: what -> profile -> number, to stand beside published ones.
        table: in the report, below the figure; empty: none.
        captions: figure file name (without suffix) -> what it shows.
        notes: sentences for the report.
    """

    values: dict[str, dict[str, float]]
    table: pd.DataFrame = field(default_factory=pd.DataFrame)
    captions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """What a kind works with.

    Attributes:
        profiles: those asked for, by name, in order.
    """

    experiment: Experiment
    artifact: Artifact
    profiles: Mapping[ProfileName, Profile]
    runs: Runs
    record: RunRecord

    def overrides(self, profile: Profile, own: Sequence[str]) -> list[str]:
        """Overrides of a run: the experiment's, the profile's, its own, and what the profile insists on."""
        relations = {"@privacy": profile.privacy, "@unlearning": profile.unlearning}
        named = [f"relation={relations[word[9:]]}" if word[9:] in relations else word for word in own]
        overrides = [*self.experiment.base, f"relation={profile.privacy}", *profile.overrides, *named, *profile.final]
        if any(word.startswith("ensemble.members=") and word != "ensemble.members=1" for word in named):
            overrides += profile.ensembles
        return list({word.split("=")[0]: word for word in overrides}.values())  # of two that set one key, the later

    def run(self, name: str, own: Sequence[str], what: str = "") -> Finished:
        """A run of one profile, asked about its test records."""
        profile = self.profiles[name]  # type: ignore[index]
        return self.runs.finished(self.overrides(profile, own), f"{self.artifact.source}, {name}{what and ': ' + what}")


Kind = Callable[[Context, dict[str, Any]], Made]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Enter a function in ``KINDS`` under its own name."""
    KINDS[function.__name__] = function
    return function
