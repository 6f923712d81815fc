"""agt reproduce: definitions are valid, runs are kept and found again, absent data ends with
exit code 4.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from agt_cli._experiments.catalogue import KINDS
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Profile, Published, load_experiment
from agt_cli._experiments.runs import Runs, signature
from legibility import faults
from matplotlib.figure import Figure
from synthetic import refused

from agt.errors import ConfigError
from agt.facts import evidence, not_held
from agt.store.lock import Lock
from agt.store.sealed import seal
from agt_cli._experiments import reproduce, runs as module
from agt_cli.config_files import experiment_names
from agt_cli.report.console import Console
from agt_cli.report.opening import open_run

from .conftest import Agt

TINY = ("model=linear", "dataset.n_train=60", "training.epochs=1", "kgrid=dense", "kgrid.max=4")


@pytest.mark.parametrize("name", experiment_names())
def test_every_definition_is_valid_and_has_its_kinds_and_profiles(name: str) -> None:
    experiment = load_experiment(name)
    assert set(experiment.profiles) == {"paper", "ours", "smoke"}
    assert experiment.profiles["paper"].accounting == "paper"
    assert experiment.profiles["ours"].accounting == "rigorous"
    assert {artifact.kind for artifact in experiment.artifacts} <= set(KINDS)
    ids = [artifact.id for artifact in experiment.artifacts]
    assert len(set(ids)) == len(ids)


def test_a_wrong_definition_names_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text(
        yaml.safe_dump({"title": "t", "data": "d", "profiles": {}, "artifact": []})
    )
    monkeypatch.setattr("agt_cli.config_files.experiments_dir", lambda: tmp_path)
    refused(
        (ConfigError, r"experiments/bad\.yaml", lambda: load_experiment("bad")),
        (ConfigError, "unknown experiment 'worse'", lambda: load_experiment("worse")),
    )


def test_of_two_overrides_of_one_key_the_later_counts_and_relations_are_the_profiles() -> None:
    experiment = load_experiment("blobs")
    profile = Profile(
        unlearning="paper_unlearning", overrides=("kgrid.max=5",), final=("kgrid.max=2",)
    )
    entry = Entry(experiment, experiment.artifacts[0], {"ours": profile}, None)  # type: ignore[arg-type]
    found = entry.overrides("ours", ["relation=@unlearning", "training.lr=1"])
    assert found == (
        "training.chosen_on=public",
        "relation=paper_unlearning",
        "kgrid.max=2",
        "training.lr=1",
    )


def test_a_run_is_kept_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(tmp_path, (), Console())
    first = runs.finished(TINY, "first")
    assert "running: first" in capsys.readouterr().err
    again = runs.finished(TINY, "again")
    assert "running" not in capsys.readouterr().err
    assert again.frame.equals(first.frame)
    assert again.conditions == first.conditions
    runs.finished([*TINY, "training.lr=0.5"], "other")
    assert "running: other" in capsys.readouterr().err
    runs.finished([*TINY, "compute.fragment=7"], "pieces")  # which may move last bits
    assert "running: pieces" in capsys.readouterr().err


def damaged(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1
    return bytes(changed)


KEPT = [
    ("results.parquet", lambda content: content[:-50]),
    ("results.parquet", lambda content: damaged(content, len(content) - 500)),
    ("results.parquet", lambda content: b""),
    ("facts.json", lambda content: content.replace(b'"held": true', b'"held": false', 1)),
    ("facts.json", lambda content: damaged(content, 60)),
    ("manifest.json", lambda content: content[:40]),
    ("config.yaml", lambda content: content + b"more: 1\n"),
]


def test_a_kept_run_that_is_not_whole_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(tmp_path, (), Console())
    runs.finished(TINY, "first")
    (folder,) = tmp_path.iterdir()
    for name, change in KEPT:
        whole = (folder / name).read_bytes()
        assert change(whole) != whole
        (folder / name).write_bytes(change(whole))
        with pytest.raises(ConfigError, match=f"{folder.name}: ") as caught:
            runs.finished(TINY, "again")
        assert caught.value.exit_code == 2
        (folder / name).write_bytes(whole)
    shutil.rmtree(folder)
    capsys.readouterr()
    runs.finished(TINY, "again")
    assert "running: again" in capsys.readouterr().err


def test_a_run_that_failed_is_made_again_and_its_record_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path, (), Console(quiet=True))
    with monkeypatch.context() as patch:
        patch.setattr(module, "fit", None)
        with pytest.raises(TypeError):
            runs.finished(TINY, "first")
    (failed,) = tmp_path.iterdir()
    runs.finished(TINY, "again")
    aside = [folder for folder in tmp_path.iterdir() if folder != failed]
    assert [folder.name.startswith(f"{failed.name}_") for folder in aside] == [True]
    assert json.loads((aside[0] / "status.json").read_text())["state"] == "failed"


def test_a_run_that_another_process_is_at_is_left_to_it(tmp_path: Path) -> None:
    runs = Runs(tmp_path, (), Console(quiet=True))
    runs.finished(TINY, "first")
    (folder,) = tmp_path.iterdir()
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "running"}))
    lock = Lock(folder / "lock")
    assert lock.acquire()
    with pytest.raises(ConfigError, match=folder.name):
        runs.finished(TINY, "again")
    lock.release()


def test_two_runs_whose_files_changed_places_are_refused(tmp_path: Path) -> None:
    runs = Runs(tmp_path, (), Console(quiet=True))
    for most in (2, 4):
        runs.finished([*TINY, f"kgrid.max={most}"], "one of two")
    one, other = sorted(tmp_path.iterdir())
    one.rename(tmp_path / "third")
    other.rename(one)
    (tmp_path / "third").rename(other)
    for most in (2, 4):
        with pytest.raises(ConfigError, match=f"{one.name}|{other.name}"):
            runs.finished([*TINY, f"kgrid.max={most}"], "again")


def test_signatures_depend_on_all_that_results_come_from_and_not_on_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = Runs(Path("unused"), (), Console(quiet=True))
    config = runs.settings(TINY)[0]
    prepared = runs.prepared(TINY)
    fresh = {
        **config,
        "dataset": {**config["dataset"], "path": "b", "data_dir": "c"},
        "output_dir": "p",
        "data_dir": "d",
    }
    encoder = {"channels": [1, 2], "cache_dir": "e", "weights": "w"}
    config = {**config, "model": {**config["model"], "encoder": encoder}}
    fresh["model"] = {**config["model"], "encoder": {**encoder, "cache_dir": "f", "weights": "v"}}
    name = signature(config, prepared, "test")
    assert signature(fresh, prepared, "test") == name
    points = prepared.dataset.test.features

    def of(part: str, **changes: object) -> dict[str, Any]:
        return {**config, part: {**config[part], **changes}}

    others = [
        signature(of("training", lr=0.123), prepared, "test"),
        signature(of("compute", threads=3), prepared, "test"),
        signature(of("compute", memory_mb=17), prepared, "test"),
        signature(of("model", encoder={**encoder, "channels": [1, 3]}), prepared, "test"),
        signature(config, prepared, "map"),
        signature(config, prepared, "test", points),
        signature(config, prepared, "test", points[:-1]),
        signature(config, prepared, "test", np.nextafter(points, 9)),
    ]
    for field, value in (
        ("scaling", {"encoder": "x"}),
        ("declared_size", 7),
        ("selection", evidence(not_held("own_words", text="no"))),
    ):
        others.append(
            signature(
                config,
                replace(prepared, dataset=replace(prepared.dataset, **{field: value})),
                "test",
            )
        )
    fewer = replace(prepared.dataset, train=prepared.dataset.train.take(np.arange(1, 60)))
    others += [
        signature(config, replace(prepared, **{part: fewer}), "test")
        for part in ("loaded", "dataset")
    ]
    monkeypatch.setattr(module, "machine", lambda device: {"torch": "1.0"})
    others.append(signature(config, prepared, "test"))
    monkeypatch.undo()
    one = of("compute", threads=1)
    two = of("compute", threads=None)
    told = signature(one, prepared, "test")
    monkeypatch.setattr(module, "default_threads", lambda: (9, None))
    assert signature(one, prepared, "test") == told, (
        "the machine's number counts only where none is given"
    )
    others.append(signature(two, prepared, "test"))
    monkeypatch.undo()
    monkeypatch.setattr(module, "_code_digest", lambda targets: "edited")
    others.append(signature(config, prepared, "test"))
    assert len({name, *others}) == len(others) + 1


def test_smoke_of_one_artifact(agt: Agt, tmp_path: Path) -> None:
    done = agt("reproduce", "blobs", "profile=smoke", "only=[001_fig2]", "--json").ended(0)
    result = json.loads(done.out)
    folder = Path(result["run"])
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"001_fig2.{kind}" for kind in ("pdf", "png", "csv")
    }
    report = (folder / "report.md").read_text()
    assert "001 Fig 2" in report
    assert "synthetic" in report
    assert result["artifacts"] == ["001_fig2"]
    listed = open_run(folder, "reproduce").manifest.files
    assert {path for path in folder.rglob("*") if path.is_file()} == {
        folder / name for name in (*listed, "manifest.json")
    }


@pytest.mark.sweep
@pytest.mark.parametrize("name", experiment_names())
def test_every_figure_of_the_papers_can_be_read_in_print(
    name: str, agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []
    whole = Figure.savefig

    def check(self: Figure, *arguments: Any, **more: Any) -> None:
        found.append(faults(self))
        whole(self, *arguments, **more)

    monkeypatch.setattr(Figure, "savefig", check)
    agt("reproduce", name, "profile=smoke", "compute.threads=1", "-q").ended(0)
    assert found
    assert [fault for of_figure in found for fault in of_figure] == []


def test_smoke_makes_every_kind_of_figure() -> None:
    experiments = map(load_experiment, experiment_names())
    artifacts = [artifact for each in experiments for artifact in each.artifacts]
    assert {one.kind for one in artifacts if one.smoke is not None} == set(KINDS)


def test_a_forecast_and_progress_are_said_and_what_lacks_data_is_left_out(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load_experiment("blobs")
    first, second = (
        next(a for a in experiment.artifacts if a.id == name) for name in ("001_fig2", "001_fig6")
    )
    absent = replace(second, smoke={**(second.smoke or {}), "run": ["dataset=mnist"]})
    changed = replace(experiment, artifacts=(first, absent))
    monkeypatch.setattr(reproduce, "load_experiment", lambda name: changed)
    agt("reproduce", "blobs", "profile=smoke").ended(0, "001_fig6", "2 of 2")
    report = next(Path("outputs/reproduce").glob("*/report.md")).read_text()
    assert "Left out: " in report
    assert "mnist_t10k.npz" in report
    whole = reproduce.configure({**SMOKE, "profile": "both"})
    assert "about 6 minutes" in reproduce._forecast(whole)


@pytest.mark.sweep
def test_where_a_condition_fails_no_table_claims_privacy(agt: Agt) -> None:
    done = agt(
        "reproduce",
        "blobs",
        "profile=smoke",
        "only=[001_fig2]",
        "overrides=['training.chosen_on=data']",
        "--json",
    ).ended(0)
    folder = Path(json.loads(done.out)["run"])
    table = (folder / "tables" / "001_fig2.csv").read_text()
    report = (folder / "report.md").read_text()
    assert "condition e" in report
    done = agt("reproduce", "blobs", "profile=smoke", "only=[001_fig2]", "--json")
    folder = Path(json.loads(done.out)["run"])
    assert (folder / "tables" / "001_fig2.csv").read_text() != table, "there it is said"
    assert "condition e" not in (folder / "report.md").read_text()


SMOKE = {
    "name": "blobs",
    "profile": "smoke",
    "data": "either",
    "only": None,
    "overrides": [],
    "runs_dir": "x",
}


WRONG = [
    (
        "001_table1",
        {"published": (Published("single model, smoth", 1),)},
        "there is no number 'single model, smoth'",
    ),
    (
        "001_fig2",
        {"published": (Published("eps", 1),)},
        "001_fig2: published: there is no number 'eps'",
    ),
    (
        "001_fig6",
        {"published": (Published("bound", 1),)},
        "001_fig6: published: there is no number 'bound'",
    ),
    ("001_fig2", {"settings": {"counts": 3}}, "001_fig2.counts.*did you mean 'count'"),
    ("001_fig2", {"smoke": {"count": 1}}, "001_fig2.count"),
]


@pytest.mark.parametrize(("id", "changes", "message"), WRONG)
def test_a_published_number_without_ours_and_a_wrong_setting_are_found_before_any_training(
    id: str, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in smoke, which leaves out much of what a published number would stand beside."""
    whole = load_experiment("blobs")
    artifacts = tuple(replace(one, **changes) if one.id == id else one for one in whole.artifacts)
    monkeypatch.setattr(
        reproduce, "load_experiment", lambda name: replace(whole, artifacts=artifacts)
    )
    with pytest.raises(ConfigError, match=message) as caught:
        reproduce.configure(SMOKE)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", experiment_names())
def test_every_definition_is_taken_in_every_profile(name: str) -> None:
    for profile in ("smoke", "paper", "ours", "both"):
        assert reproduce.configure({**SMOKE, "name": name, "profile": profile}).entries


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("imdb", "synthetic"),
        ("imdb", "stand in"),
        ("octmnist", "digits"),
        ("pneumoniamnist", "NOT"),
    ],
)
def test_stand_ins_are_named_wherever_data_is(name: str, words: str) -> None:
    experiment = load_experiment(name)
    assert words in experiment.data + experiment.smoke_data


def test_on_the_papers_own_data_settings_are_the_published_ones_and_no_note_is_on_other_data(
    tmp_path: Path,
) -> None:
    experiment = load_experiment("imdb").on_original()
    assert "GPT-2" in experiment.data
    assert "stand" not in experiment.data
    artifact = next(one for one in experiment.artifacts if one.id == "000_fig4")
    runs = Runs(tmp_path, (), Console(quiet=True))
    entry = Entry(experiment, artifact, {"paper": experiment.profiles["paper"]}, runs)
    training = runs.settings(entry.overrides("paper", artifact.settings["run"]))[1].training
    assert (training.lr, training.decay, training.epochs, training.batch.count) == (0.1, 20, 125, 2)
    differences = {p.note for one in experiment.artifacts for p in one.published}
    assert "" not in differences, "each published number has a reason for its difference"
    notes = {note for one in experiment.artifacts for note in one.notes}
    for words in ("stand-in", "MiniLM", "GPT-2's features", "on these vectors"):
        assert not [note for note in notes | differences if words in note]
    with pytest.raises(ConfigError, match="blobs"):
        load_experiment("blobs").on_original()


def test_the_papers_own_data_goes_by_what_its_folder_records(tmp_path: Path) -> None:
    folder = tmp_path / "imdb_gpt2"
    folder.mkdir()
    record = {
        "arrays": {"x": {"shape": [50, 12]}},
        "settings": {"model": {"weights": "abcdef"}},
        "embedded_by": "somebody/small",
    }
    (folder / "prepared.json").write_bytes(seal(record))
    request = {**SMOKE, "name": "imdb", "profile": "ours", "data": "original"}
    data = reproduce.configure({**request, "data_dir": str(tmp_path)}).experiment.data
    assert "GPT-2" not in data
    assert all(fact in data for fact in ("somebody/small", "width 12", "abcdef"))


@pytest.mark.parametrize("name", experiment_names())
def test_smoke_has_no_note_on_other_data(name: str) -> None:
    request = {**SMOKE, "name": name, "profile": "smoke"}
    for artifact in reproduce.configure(request).experiment.artifacts:
        assert artifact.notes == ()
        assert len({published.note for published in artifact.published}) <= 1


def test_the_users_overrides_win_over_an_experiments(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ("training.lr=0.125",), Console(quiet=True))
    config, settings = runs.settings([*TINY, "training.lr=2"])
    assert config["training"]["lr"] == settings.training.lr == 0.125


def test_the_papers_own_data_comes_first_and_absent_data_says_how_to_get_it(
    agt: Agt, tmp_path: Path
) -> None:
    agt("reproduce", "imdb", "-q").ended(4, "agt data prepare imdb")
    data = tmp_path / "data"
    data.mkdir()
    request = {
        "name": "imdb",
        "profile": "both",
        "data": "either",
        "data_dir": str(data),
        "overrides": [],
        "runs_dir": "r",
    }

    def runs_on(**more: object) -> str:
        return reproduce.configure({**request, **more}).experiment.data

    assert "GPT-2 embeddings (768)" in runs_on()  # whose absence the run then reports
    (data / "imdb_minilm.npz").touch()
    assert "stand in" in runs_on()
    assert "GPT-2 embeddings (768)" in runs_on(data="original")
    (data / "imdb_gpt2").mkdir()
    assert "GPT-2 embeddings (768)" in runs_on()
    assert "stand in" in runs_on(data="stand_in")
    assert "NOT IMDB" in runs_on(profile="smoke")
    other = runs_on(overrides=["dataset=digits"])
    assert "override" in other
    assert "IMDB" not in other
    assert "override" in runs_on(overrides=["dataset=digits"], profile="smoke")
    assert runs_on(overrides=["++dataset.scale=3"], profile="smoke").endswith(
        "(overridden: dataset.scale)"
    )
    assert runs_on(overrides=["dataset.scale=3"], data="stand_in").endswith(
        "(overridden: dataset.scale)"
    )


def test_digits_stand_in_for_octmnist_only_where_its_file_is_not_there(tmp_path: Path) -> None:
    request = {**SMOKE, "name": "octmnist", "profile": "both", "data_dir": str(tmp_path)}

    def is_made_up() -> bool:
        return "NOT retinal scans" in reproduce.configure(request).experiment.data

    assert not is_made_up(), "where neither file is, the run says how to get the official one"
    (tmp_path / "octmnist_like.npz").touch()
    assert is_made_up()
    (tmp_path / "octmnist.npz").touch()
    assert not is_made_up()


def test_on_octmnist_itself_the_settings_are_the_published_ones(tmp_path: Path) -> None:
    experiment = load_experiment("octmnist").on_original()
    artifact = next(one for one in experiment.artifacts if one.id == "000_fig3")
    runs = Runs(tmp_path, (), Console(quiet=True))
    entry = Entry(experiment, artifact, {"paper": experiment.profiles["paper"]}, runs)
    config, settings = runs.settings(entry.overrides("paper", artifact.settings["run"]))
    assert config["dataset"]["path"] is None, "the official file, whose hash is checked"
    assert settings.training.batch.count == 9
    assert (settings.training.lr, settings.training.decay, settings.training.epochs) == (
        0.03,
        0.3,
        2,
    )
