"""agt reproduce: definitions are valid, runs are kept and found again, absent data ends with exit code 4."""

import json
from pathlib import Path

import pytest
import yaml

from agt_cli.errors import ConfigError
from agt_cli.report.console import Console
from agt_cli.report.finished import open_run
from agt_cli.tasks import reproduce
from agt_cli.tasks.reproduction.definition import Profile, experiment_names, load_experiment
from agt_cli.tasks.reproduction.kinds import KINDS, Context
from agt_cli.tasks.reproduction.runs import Runs, signature

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
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump({"title": "t", "data": "d", "profiles": {}, "artifact": []}))
    monkeypatch.setattr("agt_cli.tasks.reproduction.definition.experiments_dir", lambda: tmp_path)
    with pytest.raises(ConfigError, match=r"experiments/bad\.yaml"):
        load_experiment("bad")
    with pytest.raises(ConfigError, match="unknown experiment 'worse'"):
        load_experiment("worse")


def test_of_two_overrides_of_one_key_the_later_counts_and_relations_are_the_profiles() -> None:
    experiment = load_experiment("blobs")
    context = Context(experiment, experiment.artifacts[0], {}, None, None)  # type: ignore[arg-type]
    profile = Profile(unlearning="paper_unlearning", overrides=("kgrid.max=5",), final=("kgrid.max=2",))
    found = context.overrides(profile, ["relation=@unlearning", "training.lr=1"])
    assert found == ["training.chosen_on=public", "relation=paper_unlearning", "kgrid.max=2", "training.lr=1"]


def test_a_run_is_kept_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(tmp_path, (), Console())
    first = runs.finished(TINY, "first")
    assert "running: first" in capsys.readouterr().err
    again = runs.finished([*TINY, "compute.threads=1"], "again")  # what only affects speed changes no signature
    assert "running" not in capsys.readouterr().err
    assert again.frame.equals(first.frame)
    assert again.conditions == first.conditions
    runs.finished([*TINY, "training.lr=0.5"], "other")
    assert "running: other" in capsys.readouterr().err


def test_a_half_written_run_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(tmp_path, (), Console())
    runs.finished(TINY, "first")
    (record,) = tmp_path.glob("*.json")
    record.write_text(record.read_text()[:40])  # never by us, who write whole files
    runs.finished(TINY, "again")
    assert "running: again" in capsys.readouterr().err


def test_signatures_depend_on_data_and_settings_and_not_on_places() -> None:
    config = {"dataset": {"path": "a", "x": 1}, "training": {"lr": 1}, "compute": {"threads": 1}, "output_dir": "o"}
    same = {**config, "dataset": {"path": "b", "x": 1}, "compute": {"threads": 2}, "output_dir": "p"}
    assert signature(config, "d", "test") == signature(same, "d", "test")
    assert signature(config, "d", "test") != signature(config, "e", "test")
    assert signature(config, "d", "test") != signature(config, "d", "map")
    assert signature(config, "d", "test") != signature({**config, "training": {"lr": 2}}, "d", "test")


def test_smoke_of_one_artifact(agt: Agt, tmp_path: Path) -> None:
    done = agt("reproduce", "blobs", "profile=smoke", "only=[001_fig2]", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    folder = Path(result["run"])
    assert {path.name for path in (folder / "figures").iterdir()} == {f"001_fig2.{kind}" for kind in ("pdf", "png", "csv")}
    report = (folder / "report.md").read_text()
    assert "001 Fig 2" in report
    assert "synthetic" in report
    assert result["artifacts"] == ["001_fig2"]
    listed = open_run(folder, "reproduce").manifest.files
    assert {path for path in folder.rglob("*") if path.is_file()} == {folder / name for name in (*listed, "manifest.json")}
    overview = (folder.parent / "overview.md").read_text()
    assert "Blobs, reproduced" in overview
    assert "k counts up to k records added or removed in all" in overview


def test_where_a_condition_fails_no_table_claims_privacy(agt: Agt) -> None:
    done = agt("reproduce", "blobs", "profile=smoke", "only=[001_fig2]", "overrides=['training.chosen_on=data']", "--json")
    assert done.code == 0, done.err
    folder = Path(json.loads(done.out)["run"])
    assert "no proof of privacy: not held: e" in (folder / "tables" / "001_fig2.csv").read_text()
    assert (
        "No proof of privacy rests on the runs with add_remove: condition e does not hold"
        in (folder / "report.md").read_text()
    )
    done = agt("reproduce", "blobs", "profile=smoke", "only=[001_fig2]", "--json")
    folder = Path(json.loads(done.out)["run"])
    assert "roof of privacy" not in (folder / "tables" / "001_fig2.csv").read_text()
    assert "No proof" not in (folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("reproduce",), 2, "one more word is needed"),
        (("reproduce", "blobz"), 2, "did you mean 'blobs'"),
        (("reproduce", "blobs", "only=[fig9]"), 2, "no artifact 'fig9'"),
        (("reproduce", "blobs", "profile=papers"), 2, "unknown value 'papers'"),
        (("reproduce", "imdb", "data_dir=nowhere"), 4, "imdb"),
        (("reproduce", "blobs", "overrides=['relation=substitute']"), 2, "are the profile's"),
        (("reproduce", "blobs", "overrides=['++noise.epsilon=1']"), 2, "are the profile's"),
    ],
)
def test_mistakes(agt: Agt, words: tuple[str, ...], code: int, message: str) -> None:
    done = agt(*words)
    assert done.code == code, done.err
    assert message in done.err


def test_the_task_refuses_a_definition_with_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KINDS, "plane_maps")
    with pytest.raises(ConfigError, match="unknown kind 'plane_maps'"):
        reproduce.configure(
            {"name": "blobs", "profile": "smoke", "data": "either", "only": None, "overrides": [], "runs_dir": "x"}
        )


def test_the_users_overrides_win_over_an_experiments(tmp_path: Path) -> None:
    runs = Runs(tmp_path, ("training.lr=0.125",), Console(quiet=True))
    config, settings = runs.settings([*TINY, "training.lr=2"])
    assert config["training"]["lr"] == settings.training.lr == 0.125


def test_the_papers_own_data_comes_first_and_absent_data_says_how_to_get_it(agt: Agt, tmp_path: Path) -> None:
    said = agt("reproduce", "imdb", "-q")
    assert said.code == 4
    assert "agt data prepare imdb" in said.err
    data = tmp_path / "data"
    data.mkdir()
    request = {"name": "imdb", "profile": "both", "data": "either", "data_dir": str(data), "overrides": [], "runs_dir": "r"}

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
    assert "by override" in other
    assert "IMDB" not in other
    assert "by override" in runs_on(overrides=["dataset=digits"], profile="smoke")
    assert runs_on(overrides=["++dataset.scale=3"], profile="smoke").endswith("(overridden: dataset.scale)")
    assert runs_on(overrides=["dataset.scale=3"], data="stand_in").endswith("(overridden: dataset.scale)")


def test_an_ensembles_runs_take_its_own_grid() -> None:
    experiment = load_experiment("imdb")
    context = Context(experiment, experiment.artifacts[0], {}, None, None)  # type: ignore[arg-type]
    ours = experiment.profiles["ours"]
    assert "kgrid.max=30" in context.overrides(ours, ["ensemble.members=5"])
    for own in (["ensemble.members=1"], []):
        assert "kgrid.max=60" in context.overrides(ours, own)
