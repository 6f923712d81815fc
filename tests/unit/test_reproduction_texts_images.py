"""The definitions of IMDB, OCT-MNIST and its stand-in: every setting is known, every run composes, stand-ins are named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agt.errors import ConfigError
from agt_cli.report.console import Console
from experiments.kinds import Artifact, Entry, Experiment, ProfileName, load_experiment, settings_for
from experiments.reproduce import KINDS
from experiments.runs import Runs


def load(name: str) -> Experiment:
    """The definition, or its form on the papers' own data."""
    return load_experiment("imdb").on_original() if name == "imdb, original" else load_experiment(name)


CASES = [
    (name, artifact.id, profiles)
    for name in ("imdb", "imdb, original", "octmnist", "pneumoniamnist")
    for artifact in load(name).artifacts
    for profiles in (("paper", "ours"), ("smoke",))
    if profiles != ("smoke",) or "original" not in name
]


class StopHere(Exception):
    """Raised in place of reading data."""


def own_overrides(settings: Any, profile: str) -> Iterator[list[str]]:
    """Every list of overrides that this profile's runs may have, together with the artifact's common one."""
    common = settings.get("run", [])
    yield common
    yield [*common, *settings.get("grids", {}).get(profile, [])]
    teachers = [teacher for teacher in settings.get("teachers", []) if profile in teacher["mechanisms"]]
    for part in [*settings.get("variants", []), *teachers]:
        yield [*common, *part.get("run", [])]


def entry_of(name: str, artifact: str, profiles: tuple[ProfileName, ...], folder: Path) -> Entry:
    experiment = load(name)
    found: Artifact = next(one for one in experiment.artifacts if one.id == artifact)
    runs = Runs(folder / "runs", (), Console(quiet=True))
    chosen = {profile: experiment.profiles[profile] for profile in profiles}
    return Entry(experiment, found, chosen, runs)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "artifact", "profiles"), CASES)
def test_settings_are_known_and_runs_compose(
    name: str, artifact: str, profiles: tuple[ProfileName, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_of(name, artifact, profiles, tmp_path)
    settings = settings_for(entry.artifact, entry.profiles)
    assert settings is not None
    for label, profile in entry.profiles.items():
        if entry.artifact.kind == "private_trainings" and profile.accounting == "paper":
            continue  # which it leaves out
        for own in own_overrides(settings, label):
            _, typed = entry.runs.settings(entry.overrides(label, own))
            if label == "ours" and artifact in ("001_fig2", "001_fig4", "001_fig5", "001_table1"):
                assert typed.kgrid.dense  # what a private release rests on
                assert typed.relation.name == "add_remove"
                assert typed.training.product == "exact"
            if label == "paper":
                assert typed.relation.name == "paper_privacy"
                assert typed.training.product == "rump"

    def no_data(self: Runs, overrides: list[str]) -> None:
        raise StopHere

    monkeypatch.setattr(Runs, "prepared", no_data)
    with pytest.raises(StopHere):  # and no ConfigError before
        KINDS[entry.artifact.kind](entry.profiles, settings, "").rows(entry)


@pytest.mark.parametrize(
    ("name", "words"), [("imdb", "synthetic"), ("imdb", "stand in"), ("octmnist", "digits"), ("pneumoniamnist", "NOT")]
)
def test_stand_ins_are_named_wherever_data_is(name: str, words: str) -> None:
    experiment = load_experiment(name)
    assert words in experiment.data + experiment.smoke_data


def test_on_the_papers_own_data_settings_are_the_published_ones_and_nothing_is_explained_away(tmp_path: Path) -> None:
    entry = entry_of("imdb, original", "000_fig4", ("paper",), tmp_path)
    assert "GPT-2" in entry.experiment.data
    assert "stand" not in entry.experiment.data
    _, typed = entry.runs.settings(entry.overrides("paper", entry.artifact.settings["run"]))
    training = typed.training
    assert (training.lr, training.decay, training.epochs, training.batch.count) == (0.1, 20, 125, 2)
    assert {note for one in entry.experiment.artifacts for note in (p.note for p in one.published)} == {""}
    text = " ".join(note for one in entry.experiment.artifacts for note in one.notes)
    assert "stand-in" not in text
    with pytest.raises(ConfigError, match="one data set"):
        load_experiment("blobs").on_original()
