"""Sweeps that go on: finished jobs are recognised by what they compute, the others run again,
one table holds them all.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agt.store.lock import Lock
from agt_cli import launchers
from agt_cli.cli import main
from agt_cli.commands import train
from agt_cli.configuration import sweep_combinations

from .conftest import TINY, Agt, Said

SWEEP = Path("outputs/train/seeds_sweep")
LINE = ("train", "-m", *TINY, "sweep=seeds", "--json")
FACTS = ("run", "metrics", "digest", "data_digest", "settings")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished sweep of two seeds."""
    home = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert main([*LINE, "training.seed=0,1", "-q"]) == 0
    return home


@pytest.fixture
def sweep(agt: Agt) -> Agt:
    """Runs a sweep of tiny trainings under one name, with --json."""
    return lambda *arguments: agt(*LINE, *arguments)


@pytest.fixture
def swept(sweep: Agt, home: Path, tmp_path: Path) -> Agt:
    """The same sweep where two seeds are done."""
    shutil.copytree(home / "outputs", tmp_path / "outputs")
    return sweep


def runs(said: Said) -> dict[str, str]:
    """Of each job the settings that differ -> its folder's name."""
    return {" ".join(job["settings"].values()): Path(job["run"]).name for job in said.json["jobs"]}


def folder_of(overrides: str, earlier: bool = False) -> Path:
    """The folder of the job of this line, or of its earlier attempt, among the sweep's records."""
    found = []
    for path in SWEEP.glob("*/env.json"):
        line = " ".join(json.loads(path.read_text())["overrides"])
        if line.endswith(overrides) and ("_" in path.parent.name) == earlier:
            found.append(path.parent)
    (folder,) = found
    return folder


def states(said: Said) -> list[str]:
    return [job["state"] for job in said.json["jobs"]]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leave_running(folder: Path) -> None:
    """Write over a record what a process leaves that is killed, or at work."""
    status = folder / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "running"}))
    (folder / "manifest.json").unlink()
    (folder / "lock").touch()


def test_second_call_runs_nothing_and_says_so(swept: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [folder_of(f"training.seed={n}") for n in (0, 1)]
    before = [contents(folder) for folder in folders]
    monkeypatch.setattr(train, "fit", None)  # whatever trains now fails
    second = swept("training.seed=0,1").ended(0)
    lines = second.err.splitlines()
    assert len(lines) == 2
    for n, line in enumerate(lines):
        assert line.startswith(f"job {n} (training.seed={n}) ")
        assert "done before" in line
        assert line.endswith(str(folders[n]))
    assert [job["done_before"] for job in second.json["jobs"]] == [True, True]
    for job in second.json["jobs"]:
        metrics = json.loads((Path(job["run"]) / "metrics.json").read_text())
        assert (job["metrics"], all(job[fact] for fact in FACTS)) == (metrics, True)
    assert [contents(folder) for folder in folders] == before
    assert not (SWEEP / "lock").exists()


def test_jobs_are_known_by_what_they_compute_whatever_their_number(swept: Agt) -> None:
    said = swept("training.seed=2,1,0", "compute.memory_mb=128", "output_dir=outputs").ended(0)
    first = [folder_of(f"training.seed={n}").name for n in (0, 1)]
    third = runs(said)["2"]
    assert runs(said) == {"2": third, "1": first[1], "0": first[0]}
    env = json.loads((SWEEP / third / "env.json").read_text())
    assert env["signature"] == third, "a folder is named by what its job computes"
    assert [job["done_before"] for job in said.json["jobs"]] == [False, True, True]
    other = swept("training.seed=0", "training.epochs=2")
    fourth = Path(other.json["jobs"][0]["run"]).name
    assert len(other.json["earlier"]) == 3
    table = pd.read_csv(SWEEP / "sweep.csv")
    assert list(
        zip(table["run"], table["training.seed"], table["training.epochs"], strict=True)
    ) == [
        *((fourth, 0, 2), (first[0], 0, 1), (first[1], 1, 1), (third, 2, 1)),
    ]


def test_jobs_that_differ_in_speed_alone_are_two(sweep: Agt) -> None:
    """A signature leaves out compute.kernel, so a hash of it stands behind."""
    first = sweep("compute.kernel=reference,auto")
    names = runs(first)
    assert (len(set(names.values())), states(first)) == (2, ["done", "done"])
    assert len({name.partition("-")[0] for name in names.values()}) == 1
    second = sweep("compute.kernel=auto,reference")
    assert (runs(second), [job["done_before"] for job in second.json["jobs"]]) == (
        names,
        [True, True],
    )


def test_a_job_that_is_given_twice_runs_once(sweep: Agt) -> None:
    said = sweep("training.seed=0,0").ended(0)
    assert len(said.json["jobs"]) == 1
    assert "job 1" in said.err


def test_failed_job_runs_again_and_its_old_record_is_kept_by_its_time(
    sweep: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(train, "fit", None)
        first = sweep("training.seed=0,1")
    assert (first.code, states(first)) == (1, ["failed", "failed"])
    assert "2 of 2" in first.err.splitlines()[-1]
    folder = folder_of("training.seed=0")
    before = {Path(path).relative_to(folder): content for path, content in contents(folder).items()}
    other = sweep("training.seed=2").ended(0)
    assert other.json["earlier"] == [], "what failed in an earlier line is no row"
    second = sweep("training.seed=0,1")
    assert (second.code, runs(second)) == (0, runs(first))
    aside = folder_of("training.seed=0", earlier=True)
    assert re.fullmatch(rf"{folder.name}_\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{{6}}", aside.name)
    assert str(aside) in second.err
    assert {
        Path(path).relative_to(aside): content for path, content in contents(aside).items()
    } == before
    rows = list(pd.read_csv(SWEEP / "sweep.csv")["run"])
    done = [*runs(second).values(), *runs(other).values()]
    assert rows == done, "an attempt that another replaced is no row"


def test_killed_training_runs_again_and_its_old_record_is_kept(swept: Agt) -> None:
    folder = folder_of("training.seed=1")
    leave_running(folder)
    second = swept("training.seed=1,0").ended(0)
    aside = folder_of("training.seed=1", earlier=True)
    assert str(aside) in second.err
    assert runs(second) == {"1": folder.name, "0": folder_of("training.seed=0").name}
    assert "resumed" not in json.loads((folder / "status.json").read_text())


def test_killed_training_that_was_resumed_is_done(swept: Agt, agt: Agt) -> None:
    folder = folder_of("training.seed=1")
    leave_running(folder)
    agt("train", f"resume={folder}", "-q").ended(0)
    second = swept("training.seed=1,0").ended(0)
    assert [job["done_before"] for job in second.json["jobs"]] == [True, True]
    assert "resumed" in json.loads((folder / "status.json").read_text())


def test_a_record_of_which_no_lock_tells_stays_where_it_is(swept: Agt) -> None:
    """Its process may live on another machine, and would write into the next attempt's folder."""
    folder = folder_of("training.seed=0")
    leave_running(folder)
    (folder / "lock").unlink()
    before = contents(folder)
    said = swept("training.seed=0,1")
    assert (said.code, states(said)) == (1, ["killed", "done"])
    assert contents(folder) == before


def test_run_that_was_damaged_is_not_taken(swept: Agt) -> None:
    folder = folder_of("training.seed=0")
    (folder / "model.safetensors").write_bytes(b"")
    said = swept("training.seed=0").ended(0, "done before")
    assert Path(said.json["jobs"][0]["run"]) == folder
    assert (folder_of("training.seed=0", earlier=True) / "model.safetensors").read_bytes() == b""


def test_a_folder_under_another_jobs_name_is_not_taken(swept: Agt) -> None:
    folder = folder_of("training.seed=0")
    other = folder_of("training.seed=1")
    shutil.rmtree(folder)
    shutil.copytree(other, folder)
    said = swept("training.seed=0").ended(0)
    assert said.json["jobs"][0]["done_before"] is False


def test_changed_data_are_another_job(agt: Agt, tmp_path: Path) -> None:
    data = tmp_path / "mine.csv"
    rows = pd.DataFrame({"a": [x / 20 - 1 for x in range(40)], "y": [x % 2 for x in range(40)]})
    table = (
        "dataset=table",
        "dataset.path=mine.csv",
        "dataset.label=y",
        "dataset.classes=['0','1']",
    )
    start = (
        "train",
        "-m",
        *table,
        "+dataset.numeric={a: [-3, 3]}",
        "training.seed=0",
        "sweep=seeds",
        "--json",
    )
    rows.to_csv(data, index=False)
    first = agt(*start).ended(0).json["jobs"][0]
    rows.assign(a=-rows["a"]).to_csv(data, index=False)
    second = agt(*start).ended(0).json["jobs"][0]
    assert (second["run"] != first["run"], second["done_before"]) == (True, False)


def test_sweep_that_another_process_runs_is_refused(swept: Agt) -> None:
    before = contents(SWEEP)
    lock = Lock(SWEEP / "lock")
    assert lock.acquire()
    said = swept("training.seed=0,1")
    assert (said.code, contents(SWEEP)) == (2, {**before, str(SWEEP / "lock"): b""})
    assert f"{SWEEP}: " in said.err
    assert "sweep=NAME" in said.err
    lock.release()


def test_job_that_another_process_is_at_is_left_to_it(swept: Agt) -> None:
    """The dispatcher of an earlier call was killed, and what it started goes on."""
    folder = folder_of("training.seed=0")
    leave_running(folder)
    lock = Lock(folder / "lock")
    assert lock.acquire()
    said = swept("training.seed=0,1")
    assert (said.code, states(said)) == (1, ["running", "done"])
    assert "1 of 2" in said.err
    assert folder_of("training.seed=0") == folder, "and no other attempt"


def test_other_commands_go_on_and_a_release_that_is_queued_again_is_no_second_draw(
    agt: Agt, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("certify", "-m", f"run={trained}", "map_resolution=0", "sweep=maps", "--json")
    here = launchers.run_here

    def twice(tasks: Any) -> Any:
        here(tasks)
        (status,) = Path("outputs/certify/maps_sweep").glob("*/status.json")
        leave_running(status.parent)
        return here(tasks)

    with monkeypatch.context() as patch:
        patch.setattr(launchers, "run_here", twice)
        first = agt(*line)
    assert (first.code, states(first)) == (1, ["killed"])
    (second,) = agt(*line).json["jobs"]
    assert (second["run"], second["done_before"]) == (first.json["jobs"][0]["run"], False)
    again = agt(*line)
    assert (
        again.code,
        again.err.count("done before"),
        again.json["jobs"][0]["metrics"]["k_max"],
    ) == (0, 1, 3)


def test_job_that_the_launcher_loses_is_told(sweep: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    here = launchers.run_here
    with monkeypatch.context() as patch:
        patch.setattr(launchers, "run_here", lambda tasks: [{}, *here(tasks[1:])])
        said = sweep("training.seed=0,1")
    assert (said.code, states(said)) == (1, ["lost", "done"])
    folder = said.json["jobs"][0]["run"]
    (told,) = (line for line in said.err.splitlines() if "error: job" in line)
    assert told.startswith("agt: error: job 0 (training.seed=0): ")
    assert "lost" in told
    assert folder in told


def test_launcher_that_breaks_down_starts_what_it_left(
    sweep: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = launchers.run_here

    def one(tasks: Any) -> Any:
        here(tasks[:1])
        raise OSError("a worker has gone. It was killed.")

    def none(tasks: Any) -> Any:
        raise ValueError("n_jobs == 0 has no meaning")

    monkeypatch.setattr(launchers, "run_here", one)
    said = sweep("training.seed=0,1")
    assert (said.code, states(said)) == (0, ["done", "done"])
    assert "OSError" in said.err
    monkeypatch.setattr(launchers, "run_here", none)
    said = sweep("training.seed=2,3")
    assert (said.code, states(said)) == (1, ["lost", "lost"])
    assert "hydra/launcher=basic: ValueError" in said.err.splitlines()[-1]


def test_table_is_printed_and_written(agt: Agt) -> None:
    said = agt("train", "-m", *TINY, "sweep=seeds", "training.lr=0.5,-1").ended(2)
    assert [job["state"] for job in pd.read_csv(SWEEP / "sweep.csv").to_dict("records")] == [
        "done",
        "failed",
    ]
    assert said.out.splitlines()[-1] == f"table: {SWEEP / 'sweep.csv'}"
    table = pd.read_csv(SWEEP / "sweep.csv")
    assert list(table["training.lr"]) == [0.5, -1]
    assert "training.lr: " in table["error"][1]


def test_grammar_of_a_sweep() -> None:
    line = ["a=1,2", "b=x", "'c=[1,2],[3]'".strip("'"), "hydra.launcher.n_jobs=2", "a=3,4"]
    found = sweep_combinations(line)
    assert len(found) == 4
    assert found[0] == ("a=3", "b=x", "c=[1,2]", "hydra.launcher.n_jobs=2")


def test_jobs_that_would_read_standard_input_are_refused(agt: Agt, home: Path) -> None:
    """The second call's lines would count as what the first did: never erased, never answered."""
    for command, key in (("unlearn", "ids"), ("predict", "inputs")):
        agt(
            command,
            "-m",
            f"run={next((home / SWEEP).glob('*/status.json')).parent}",
            f"{key}=-",
            "sweep=lines",
        ).ended(2, f"{key}=-")


@pytest.mark.parametrize("launcher", ["submitit_local", "submitit_slurm", "slurm"])
def test_launchers_of_earlier_versions_are_answered_with_one_that_there_is(
    sweep: Agt, launcher: str
) -> None:
    sweep("training.seed=0,1", f"hydra/launcher={launcher}").ended(2, "hydra/launcher=joblib")


MORTAL = """
import os, signal
from pathlib import Path
from agt.data.blobs import Blobs
from agt.settings import schema

@schema
class Mortal(Blobs):
    job: int = 0
    deadly: tuple[int, ...] = ()

    def load(self):
        mark = Path(f"killed{self.job}")
        if self.job in self.deadly and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load()
"""


@pytest.mark.sweep
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_jobs_of_which_one_is_killed_end_on_the_second_call(tmp_path: Path, launcher: str) -> None:
    """In a process of their own; with the basic launcher, the call is killed with its job."""
    (tmp_path / "mortal.py").write_text(MORTAL)
    mortal = (
        "dataset._target_=mortal.Mortal",
        "+dataset.job=0,1",
        "+dataset.deadly=[1]",
        f"hydra/launcher={launcher}",
    )
    command = [sys.executable, "-m", "agt_cli", *LINE, *mortal]
    first, second = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True) for _ in range(2)
    )
    assert second.returncode == 0, second.stderr
    after = json.loads(second.stdout)["jobs"]
    assert [job["state"] for job in after] == ["done", "done"]
    if launcher == "basic":
        assert first.returncode == -signal.SIGKILL
        assert [job["done_before"] for job in after] == [True, False]
        return
    jobs = json.loads(first.stdout)["jobs"]
    assert (first.returncode, jobs[1]["state"]) == (1, "killed")
    assert jobs[0]["state"] in ("done", "killed", "lost"), (
        "a job beside a killed one may go with it"
    )
    done = {job["run"]: job["digest"] for job in jobs if job["state"] == "done"}
    assert {job["run"]: job["digest"] for job in after if job["done_before"]} == done
    table = pd.read_csv(tmp_path / SWEEP / "sweep.csv")
    assert (sorted(table["dataset.job"]), set(table["state"])) == ([0, 1], {"done"})
