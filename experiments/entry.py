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
from .runs import Finished, PrivacyBasis, Runs, TableAndFacts

Overrides = tuple[str, ...]
Purpose = Literal["privacy", "unlearning"]
Profiles = Mapping[ProfileName, Profile]
Key = dict[Any, Any]  # columns of a row, by name


@dataclass(frozen=True)
class Entry:
    """One artifact of an experiment, from which its kind gets runs, models and data.

    Attributes:
        experiment: the experiment.
        artifact: the artifact.
        profiles: the profiles that are made, by name, in their order.
        runs: trains runs, or finds them where they are stored.
        used: the runs and models that were returned so far, by their overrides and queries; a
            cache, from which the report says what no proof of privacy covers.
    """

    experiment: Experiment
    artifact: Artifact
    profiles: Profiles
    runs: Runs
    used: dict[tuple[Any, ...], PrivacyBasis] = field(default_factory=dict, compare=False)

    def overrides(
        self, name: ProfileName, own: Sequence[str], last: Sequence[str] = ()
    ) -> Overrides:
        """Return the overrides of a run of one profile; of several that set one key, the last.

        They are those of the experiment and of the profile, the run's own, and the final ones of
        the profile.

        Args:
            name: the name of the profile.
            own: the run's own overrides; ``relation=@privacy`` and ``relation=@unlearning`` become
                the profile's relation for that claim.
            last: overrides after all others.
        """
        profile = self.profiles[name]
        relations = {
            "relation=@privacy": f"relation={profile.privacy}",
            "relation=@unlearning": f"relation={profile.unlearning}",
        }
        own = [relations.get(override, override) for override in own]
        overrides = [
            *self.experiment.base,
            f"relation={profile.privacy}",
            *profile.overrides,
            *own,
            *profile.final,
        ]
        members = [override for override in own if override.startswith("ensemble.members=")]
        if any(override != "ensemble.members=1" for override in members):
            overrides += profile.ensembles
        by_key = {override.split("=")[0]: override for override in (*overrides, *last)}
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
        """Return a run of one profile with its answers, from the cache, its folder, or made now.

        Args:
            name: the name of the profile.
            own: the run's own overrides, as of ``overrides``.
            label: a description of the run, for progress; empty: the profile says enough.
            on: a name of the queries.
            queries: [n, ...] the queries; None: the test records.
            last: overrides after all others.
        """
        overrides = self.overrides(name, own, last)
        known = self.used.get((overrides, on))
        if isinstance(known, Finished):
            return known
        description = f"{self.artifact.source}, {name}"
        if label:
            description = f"{description}: {label}"
        finished = self.runs.finished(overrides, description, on, queries)
        self.used[overrides, on] = finished
        return finished

    def model(self, name: ProfileName, own: Sequence[str]) -> Model:
        """Train a linear head of one profile, and return it.

        It is for results that need more than the answers that are stored of runs.
        """
        overrides = self.overrides(name, own)
        model = self.runs.model(overrides, "a linear head")
        self.used[overrides, "model"] = PrivacyBasis(
            model.problem.settings.relation.name, model.conditions
        )
        return model

    def data(self, name: ProfileName, own: Sequence[str]) -> tuple[Prepared, RunSettings]:
        """Return the data that a run of one profile is trained on, and its settings."""
        overrides = self.overrides(name, own)
        return self.runs.prepared(overrides), self.runs.settings(overrides)[1]

    def bench(self, name: ProfileName, own: Sequence[str], **training: Any) -> Bench:
        """Return the untrained head of a run with its records, to be trained by another method.

        The head starts from the dense layers of a public base model, if the run has one, otherwise
        at random.

        Args:
            name: the name of the profile.
            own: the run's own overrides.
            training: settings of the training in place of the run's.
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
    """Return rows of a table about a run of one profile, from its folder or computed now.

    Args:
        entry: the artifact.
        name: the name of the profile.
        own: the run's own overrides.
        label: a description of the run, for progress.
        make: computes the rows from the run's data and settings.
        on: a name of what ``make`` computes, which is part of the run's signature.
    """
    overrides = entry.overrides(name, own)

    def table(prepared: Prepared, settings: RunSettings) -> TableAndFacts:
        return pd.DataFrame(make(prepared, settings)), {}

    rows, _ = entry.runs.once(overrides, label, table, on)
    return rows.to_dict("records")
