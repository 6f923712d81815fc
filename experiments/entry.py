"""An artifact of an experiment together with the runs that it is made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from agt.models.box import copy_initial_parameters
from agt.models.model import Model
from agt_cli.runs.prepare import Prepared, RunSettings

from .bench import Bench
from .experiment import Artifact, Experiment, Profile, ProfileName
from .runs import Finished, Runs, Standing, TableAndFacts

Overrides = tuple[str, ...]
Purpose = Literal["privacy", "unlearning"]
Profiles = Mapping[ProfileName, Profile]
Key = dict[Any, Any]  # columns of a row, by name


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

    def table(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
        return pd.DataFrame(make(prepared, settings)), {}

    rows, _ = entry.runs.once(overrides, label, table, on)
    return rows.to_dict("records")
