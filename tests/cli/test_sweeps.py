"""Sweeps that go on: finished jobs are recognised by what they compute, the others run again, one table holds them all."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException

from agt.disk import Lock
from agt_cli.commands import train
from agt_cli.mistakes import explain

from .conftest import TINY, Agt, Said

SWEEP = Path("outputs/train/seeds_sweep")


@pytest.fixture
def sweep(agt: Agt) -> Agt:
    """Runs a sweep of tiny trainings under one name, with --json."""
    return lambda *arguments: agt("train", "-m", *TINY, "sweep=seeds", "--json", *arguments)


def runs(said: Said) -> dict[str, str]:
    """Of each job the settings that differ -> its folder's name."""
    return {" ".join(job["settings"].values()): Path(job["run"]).name for job in said.json["jobs"]}


def states(said: Said) -> list[str]:
    return [job["state"] for job in said.json["jobs"]]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_call_runs_nothing_and_says_so(sweep: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep("training.seed=0,1")
    assert (first.code, runs(first)) == (0, {"0": "0", "1": "1"})
    before = {job: contents(SWEEP / job) for job in ("0", "1")}
    monkeypatch.setattr(train, "fit", None)  # whatever trains now fails
    second = sweep("training.seed=0,1")
    assert second.code == 0, second.err
    assert second.err.splitlines() == [f"job {n} (training.seed={n}): done before, {SWEEP / str(n)}" for n in (0, 1)]
    assert [job["done_before"] for job in second.json["jobs"]] == [True, True]
    for mine, other in zip(first.json["jobs"], second.json["jobs"], strict=True):
        assert {key: other[key] for key in ("run", "metrics", "digest", "data_digest", "settings")} == {
            key: mine[key] for key in ("run", "metrics", "digest", "data_digest", "settings")
        }
    assert {job: contents(SWEEP / job) for job in ("0", "1")} == before
    assert not (SWEEP / "lock").exists()


def test_jobs_are_known_by_what_they_compute_whatever_their_number(sweep: Agt) -> None:
    assert sweep("training.seed=0,1").code == 0
    said = sweep("training.seed=2,1,0", "compute.memory_mb=128", "output_dir=outputs")
    assert said.code == 0, said.err
    assert runs(said) == {"2": "0_2", "1": "1", "0": "0"}, "0 is taken, by another job"
    assert [job["done_before"] for job in said.json["jobs"]] == [False, True, True]
    other = sweep("training.seed=0,1", "training.epochs=2")
    assert runs(other) == {"0": "0_3", "1": "1_2"}
    assert len(other.json["earlier"]) == 3
    table = pd.read_csv(SWEEP / "sweep.csv")
    assert list(zip(table["run"], table["training.seed"], table["training.epochs"], strict=True)) == [
        *(("0_3", 0, 2), ("1_2", 1, 2)),
        *(("0", 0, 1), ("1", 1, 1), ("0_2", 2, 1)),
    ]


def test_one_run_stands_for_one_job(sweep: Agt) -> None:
    line = ("compute.kernel=reference,auto",)
    assert runs(sweep(*line)) == {"reference": "0", "auto": "1"}
    again = sweep(*line)
    assert (runs(again), states(again)) == ({"reference": "0", "auto": "1"}, ["done", "done"])


def test_a_failed_job_runs_again_beside_its_old_record(sweep: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no luck")

    with monkeypatch.context() as patch:
        patch.setattr(train, "fit", broken)
        first = sweep("training.seed=0,1")
    assert (first.code, states(first)) == (1, ["failed", "failed"])
    assert "2 of 2 jobs failed" in first.err.splitlines()[-1]
    before = contents(SWEEP / "0")
    second = sweep("training.seed=0,1")
    assert (second.code, runs(second)) == (0, {"0": "0_2", "1": "1_2"})
    assert f"job 0 (training.seed=0): failed before ({SWEEP / '0'}), and runs again in {SWEEP / '0_2'}" in second.err
    assert contents(SWEEP / "0") == before
    assert list(pd.read_csv(SWEEP / "sweep.csv")["run"]) == ["0_2", "1_2"], "an attempt that another replaced is no row"


def test_a_killed_training_goes_on_in_its_folder(sweep: Agt) -> None:
    first = sweep("training.seed=0,1")
    status = SWEEP / "1" / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "running"}))
    (SWEEP / "1" / "manifest.json").unlink()
    (SWEEP / "1" / "lock").touch()
    second = sweep("training.seed=1,0")
    assert second.code == 0, second.err
    assert f"job 0 (training.seed=1): killed before, and goes on in {SWEEP / '1'}" in second.err
    assert runs(second) == {"1": "1", "0": "0"}
    assert "resumed" in json.loads(status.read_text())
    accuracy = [job["metrics"]["test_accuracy"] for job in (first.json["jobs"][1], second.json["jobs"][0])]
    assert accuracy[0] == accuracy[1]


def test_a_run_that_was_damaged_is_not_taken(sweep: Agt) -> None:
    sweep("training.seed=0")
    (SWEEP / "0" / "model.safetensors").write_bytes(b"")
    said = sweep("training.seed=0")
    assert said.code == 0
    assert "done before, and not as it was written, so it runs again" in said.err
    assert Path(said.json["jobs"][0]["run"]).name == "0_2"


def test_changed_data_are_another_job(agt: Agt, tmp_path: Path) -> None:
    data = tmp_path / "mine.csv"
    rows = pd.DataFrame({"a": [x / 20 - 1 for x in range(40)], "y": [x % 2 for x in range(40)]})
    table = ("dataset=table", "dataset.path=mine.csv", "dataset.label=y", "dataset.classes=['0','1']")
    start = ("train", "-m", *table, "+dataset.numeric={a: [-3, 3]}", "training.seed=0", "sweep=seeds", "--json")
    rows.to_csv(data, index=False)
    assert agt(*start).code == 0
    assert "done before" in agt(*start).err
    rows.assign(a=-rows["a"]).to_csv(data, index=False)
    assert Path(agt(*start).json["jobs"][0]["run"]).name == "0_2"


def test_a_sweep_that_another_process_runs_is_refused(sweep: Agt) -> None:
    sweep("training.seed=0")
    before = contents(SWEEP)
    lock = Lock(SWEEP / "lock")
    assert lock.take()
    said = sweep("training.seed=0,1")
    assert (said.code, contents(SWEEP)) == (2, {**before, str(SWEEP / "lock"): b""})
    assert f"{SWEEP}: another process is running this sweep: wait for it, or give sweep=NAME another name" in said.err
    lock.release()
    assert sweep("training.seed=0,1").code == 0


def test_a_job_that_another_process_is_at_is_left_to_it(sweep: Agt) -> None:
    """The dispatcher of an earlier call was killed, and what it started goes on."""
    sweep("training.seed=0")
    status = SWEEP / "0" / "status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "running"}))
    lock = Lock(SWEEP / "0" / "lock")
    assert lock.take()
    said = sweep("training.seed=0,1")
    assert (said.code, states(said)) == (1, ["running", "done"])
    assert "1 of 2 jobs are not done (1 running, 1 done)" in said.err
    assert not (SWEEP / "0_2").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="POSIX signals")
def test_a_job_that_gave_way_goes_on(sweep: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's handler queues the job again and raises: the record is closed before that, and says what it was."""

    def requeue(number: int, frame: object) -> None:
        raise SystemExit(144)

    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(train, "fit", lambda *about: os.kill(os.getpid(), signal.SIGUSR2))
            with pytest.raises(SystemExit, match="144"):
                sweep("training.seed=0")
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, before)
    status = json.loads((SWEEP / "0" / "status.json").read_text())
    assert (status["state"], status["error"], status["exit_code"]) == ("failed", "terminated by signal 12", 140)
    second = sweep("training.seed=0")
    assert second.code == 0, second.err
    assert f"failed before, and goes on in {SWEEP / '0'}" in second.err


def test_a_release_that_is_queued_again_is_no_second_draw(
    agt: Agt, trained: Path, launcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, line = launcher.launch, ("certify", "-m", f"run={trained}", "map_resolution=0", "sweep=maps", "--json")

    def twice(self: Any, jobs: list[Any], initial_job_idx: int) -> Any:
        launch(self, jobs, initial_job_idx)
        status = Path("outputs/certify/maps_sweep/0/status.json")
        status.write_text(json.dumps({**json.loads(status.read_text()), "state": "running"}))
        (status.parent / "lock").touch()
        return launch(self, jobs, initial_job_idx)

    with monkeypatch.context() as patch:
        patch.setattr(launcher, "launch", twice)
        first = agt(*line)
    assert (first.code, states(first)) == (1, ["killed"])
    assert "the same line runs it anew, beside it" in first.err
    assert Path(agt(*line).json["jobs"][0]["run"]).name == "0_2"


@pytest.fixture
def launcher(agt: Agt) -> Any:
    """The class of Hydra's own launcher; plugins are loaded apart from modules that are imported."""
    return Plugins.instance().class_name_to_class["hydra._internal.core_plugins.basic_launcher.BasicLauncher"]


def test_a_job_that_the_launcher_loses_is_told(sweep: Agt, launcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = launcher.launch
    with monkeypatch.context() as patch:
        patch.setattr(launcher, "launch", lambda self, jobs, initial_job_idx: launch(self, jobs[1:], initial_job_idx))
        said = sweep("training.seed=0,1")
    assert (said.code, states(said)) == (1, ["lost", "done"])
    lost = f"job 0 (training.seed=0): lost: no record in {SWEEP / '0'}: it was not started, or the launcher lost it"
    assert f"agt: error: {lost}" in said.err.splitlines()
    assert runs(sweep("training.seed=0,1")) == {"0": "0", "1": "1"}


def test_a_launcher_that_breaks_down_starts_what_it_left(
    sweep: Agt, launcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launcher.launch

    def one(self: Any, jobs: list[Any], initial_job_idx: int) -> Any:
        launch(self, jobs[:1], initial_job_idx)
        raise OSError("a worker has gone. It was killed.")

    monkeypatch.setattr(launcher, "launch", one)
    said = sweep("training.seed=0,1")
    assert (said.code, states(said)) == (0, ["done", "done"])
    assert "basic broke down (OSError: a worker has gone), and is started again for what it left: 1 jobs" in said.err

    def none(self: Any, jobs: list[Any], initial_job_idx: int) -> Any:
        raise ValueError("n_jobs == 0 has no meaning")

    monkeypatch.setattr(launcher, "launch", none)
    said = sweep("training.seed=2,3")
    assert said.code == 1
    assert said.err.splitlines()[-1] == "agt: error: hydra/launcher=basic: ValueError: n_jobs == 0 has no meaning"
    assert states(said) == ["lost", "lost"]


def test_the_table_is_printed_and_written_as_a_page(agt: Agt) -> None:
    said = agt("train", "-m", *TINY, "sweep=seeds", "training.lr=0.5,-1")
    assert said.code == 2
    assert "sweep outputs/train/seeds_sweep: 1 done, 1 failed" in said.out
    assert said.out.splitlines()[-1] == f"table: {SWEEP / 'sweep.csv'}"
    page, text = (SWEEP / "sweep.html").read_text(), (SWEEP / "sweep.md").read_text()
    assert "# Sweep seeds_sweep: agt train" in text
    assert "For the data owner" in text
    assert "training.lr: Input should be greater than 0, got -1" in text
    assert '<a href="0/report.html">0</a>' in page
    assert '<a href="1/">1</a>' in page
    assert 'href="train/seeds_sweep/sweep.html"' in Path("outputs/index.html").read_text()


def test_other_commands_go_on_too(agt: Agt, trained: Path) -> None:
    line = ("certify", "-m", f"run={trained}", "map_resolution=0,4", "sweep=maps", "--json")
    assert agt(*line).code == 0
    second = agt(*line)
    assert (second.code, second.err.count("done before")) == (0, 2)
    assert second.json["jobs"][0]["metrics"]["k_max"] == 3


@pytest.mark.parametrize(("command", "key"), [("unlearn", "ids"), ("predict", "inputs")])
def test_jobs_that_would_read_standard_input_are_refused(agt: Agt, trained: Path, command: str, key: str) -> None:
    """The second call's lines would count as what the first did: never erased, never answered."""
    said = agt(command, "-m", f"run={trained}", f"{key}=-", "sweep=lines")
    assert (said.code, f"{key}=-: jobs of a sweep" in said.err) == (2, True), said.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("sweep=seeds",), "sweep=seeds names the folder of a sweep: add -m"),
        (("-m", "sweep=a/b"), "sweep=a/b: a sweep's name is letters"),
        (("-m", "sweep="), "sweep=: a sweep's name is letters"),
        (("-m", "hydra/sweeper=basic"), "hydra/sweeper=basic: another sweeper's jobs"),
        (("-m", "training.seed=0,1", "training=nowhere"), "training"),
    ],
)
def test_a_sweep_that_cannot_be_leaves_nothing(agt: Agt, line: tuple[str, ...], words: str) -> None:
    said = agt("train", *TINY, *line)
    assert said.code == 2
    assert words in said.err
    assert not Path("outputs").exists()


def test_a_launcher_that_is_not_installed_is_named_with_its_remedy() -> None:
    error = MissingConfigException("", "hydra/launcher/submitit_slurm", ["basic"])
    assert str(explain(error, "train", ())).endswith("is not installed: pip install 'agt-certified[cluster]'")


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


def run(folder: Path, *arguments: str) -> Said:
    """A command line as a process of its own, with time for some others."""
    command = [sys.executable, "-m", "agt_cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_four_jobs_one_killed_end_on_the_second_call(agt: Agt, tmp_path: Path, launcher: str) -> None:
    pytest.importorskip("submitit" if "submitit" in launcher else "hydra_plugins.hydra_joblib_launcher")
    (tmp_path / "mortal.py").write_text(MORTAL)
    mortal = ("dataset._target_=mortal.Mortal", "+dataset.job=range(4)", "+dataset.deadly=[2]")
    workers = ("hydra.launcher.n_jobs=2",) if launcher == "joblib" else ()
    line = ("train", "-m", *TINY, *mortal, "sweep=four", f"hydra/launcher={launcher}", *workers, "--json")
    first, second = run(tmp_path, *line), run(tmp_path, *line)
    assert first.code == 1, first.err
    assert "jobs" in first.json, first.err
    killed = [job["job"] for job in first.json["jobs"] if job["state"] == "killed"]
    assert 2 in killed
    assert set(states(first)) == {"done", "killed"}, "a job beside a killed one may go with it; none is lost"
    done = {job["run"]: job["digest"] for job in first.json["jobs"] if job["state"] == "done"}
    assert second.code == 0, second.err
    assert states(second) == ["done"] * 4
    assert {job["run"]: job["digest"] for job in second.json["jobs"] if job["done_before"]} == done
    table = pd.read_csv(tmp_path / "outputs/train/four_sweep/sweep.csv")
    assert sorted(table["dataset.job"]) == list(range(4))
    assert set(table["state"]) == {"done"}
    listed = agt("runs", "sweep=four", "limit=null", "--json", "--quiet")
    assert listed.json["total"] >= 4


def test_a_sweep_whose_process_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / "mortal.py").write_text(MORTAL)
    mortal = ("dataset._target_=mortal.Mortal", "+dataset.job=0,1", "+dataset.deadly=[1]")
    first, second = (run(tmp_path, "train", "-m", *TINY, *mortal, "sweep=seeds", "--json") for _ in range(2))
    assert first.code == -signal.SIGKILL
    assert second.code == 0, second.err
    assert "job 0 (+dataset.job=0): done before" in second.err
    assert states(second) == ["done", "done"]
