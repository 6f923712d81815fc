"""One command by several processes: what one process would have done, once; and what is left
where one of them dies.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from agt.distributed import Group, PeerLost
from agt_cli.report.finished import Run
from agt_cli.team import Team, published_exit_code

from .conftest import TINY, Agt

SCRIPT = Path(__file__).parent.parent / "teams.py"
TIMES = (
    "env.json",
    "status.json",
    "metrics.json",
    "report.md",
    "report.html",
    "manifest.json",
    "spent.json",
)
KEYED = ("unlearning/key", "records.bin")  # by a secret of each run's own
PUBLIC = "training.chosen_on=public"
DIGITS = ("dataset=digits", "training=generic", "model=linear", "training.momentum=0")
KINDS = {
    "box": ("model=linear", "dataset.n_train=120", "kgrid.max=3", "compute.kernel=reference"),
    "linear": (
        *DIGITS,
        "certificate=stability",
        "training.loss=binary_cross_entropy",
        "training.clip=0.5",
        PUBLIC,
    ),
}
GONE = "another process of this job is gone, so this process cannot continue"
ELSEWHERE = """
import os
from agt.data.blobs import Blobs
from agt.errors import DataMissing
from agt.settings import schema

@schema
class Elsewhere(Blobs):
    def load(self):
        if os.environ.get("RANK") == "1":
            raise DataMissing("data_dir: not on this machine")
        return super().load()
"""
ASKED = {
    "box": (("certify", "map_resolution=5"),),
    "linear": (("predict", "mechanism=exponential_mechanism", "mechanism.eps=0.1", "seed=0"),),
}
SMALL = ("model=linear", "dataset.n_train=200", "kgrid.max=6", "compute.kernel=reference")
LONG = (*SMALL, "training.epochs=60", "compute.checkpoint_seconds=0.001")


@dataclass(frozen=True)
class Done:
    """What became of a job."""

    codes: list[int]
    said: list[dict[str, str]]

    @property
    def first(self) -> dict[str, Any]:
        """The one object of --json, if every process ended well and no other said anything."""
        assert set(self.codes) == {0}, self.said
        assert not any("".join(said.values()) for said in self.said[1:])
        value = json.loads(self.said[0]["out"])
        assert isinstance(value, dict)
        return value


@dataclass(frozen=True)
class Teams:
    """Runs command lines, each by so many processes, in a folder of its own."""

    home: Path
    script: subprocess.Popen[str]

    def __call__(self, size: int, *words: str, kill: tuple[int, str] | None = None) -> Done:
        assert self.script.stdin
        assert self.script.stdout
        print(
            json.dumps({"size": size, "words": words, "kill": kill}),
            file=self.script.stdin,
            flush=True,
        )
        return Done(**json.loads(self.script.stdout.readline()))

    def run(self, name: str) -> Path:
        """The folder of a run."""
        return self.home / name

    def status(self, name: str) -> dict[str, Any]:
        """What the record of a run says of how it ended."""
        status = json.loads((self.run(name) / "status.json").read_text())
        assert isinstance(status, dict)
        return status


@pytest.fixture(scope="module")
def teams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teams]:
    home = tmp_path_factory.mktemp("teams")
    (home / "elsewhere.py").write_text(ELSEWHERE)
    usual = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "AGT_DATA")
    }
    path = os.pathsep.join(filter(None, [str(home), os.getcwd(), os.environ.get("PYTHONPATH")]))
    usual |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, str(SCRIPT)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=home, env=usual, text=True, stdin=pipe, stdout=pipe
    ) as script:
        yield Teams(home, script)
        assert script.stdin
        script.stdin.close()


def bits(folder: Path) -> dict[str, bytes]:
    """Every file of a record that tells neither the time nor a secret of its own."""
    # which have a date
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pdf"]
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in files.items() if name not in (*TIMES, *KEYED)}


def same(teams: Teams, name: str, *words: str) -> dict[str, Any]:
    """Run a command line by one process and by two, into NAME1 and NAME2; the second's object,
    if their files are alike.
    """
    for size in (1, 2):
        result = teams(size, *words, f"hydra.run.dir={name}{size}", "--json", "-q").first
    expected = bits(teams.run(f"{name}1"))
    assert len(expected) > 3
    different = [
        key for key, content in bits(teams.run(f"{name}2")).items() if content != expected.pop(key)
    ]
    assert (different, expected) == ([], {})
    return result


@pytest.mark.parametrize("kind", ["linear", pytest.param("box", marks=pytest.mark.sweep)])
def test_two_processes_make_the_files_of_one(teams: Teams, kind: str) -> None:
    same(teams, kind, "train", *KINDS[kind])
    for command, *words in ASKED.get(kind, ()):
        same(teams, f"{kind}_{command}", command, f"run={kind}2", *words)


def test_the_record_tells_how_many_there_were(teams: Teams) -> None:
    told = json.loads((teams.run("linear2") / "env.json").read_text())
    assert (told["processes"]["count"], told["processes"]["backend"], told["threads"]) == (
        2,
        "gloo",
        1,
    )
    words = "Computed by 2 processes (machines: 1, threads per process: 1)"
    assert words in (teams.run("linear2") / "report.md").read_text()
    assert "processes" not in json.loads((teams.run("linear1") / "env.json").read_text())


def test_a_release_is_paid_drawn_and_said_once(teams: Teams) -> None:
    teams(1, "ledger", "init", "people", "run=linear1", "total.eps=5", "--json", "-q").first  # noqa: B018
    words = (
        "predict",
        "run=linear1",
        "ledger=people",
        "mechanism=exponential_mechanism",
        "mechanism.eps=0.01",
    )
    said = teams(2, *words, "output_dir=released", "--json", "-q").first
    assert [path.name for path in teams.run("released/predict").iterdir()] == [
        Path(said["run"]).name
    ]
    book = teams(1, "ledger", "show", "people", "--json", "-q").first
    assert len(book["debits"]) == 1


class Counting(Group):
    """The first of several processes, as far as it can tell: it notes what it asks the others
    for.
    """

    tasks: ClassVar[list[str]] = []

    def broadcast(self, value: Any) -> Any:
        self.tasks.append(value[0])
        return value


def test_an_estimate_is_worked_out_without_the_others(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be left in the midst of it, where it fails; and a paid release with them."""
    agt("train", *TINY, PUBLIC, "hydra.run.dir=run", "-q").ended(0)
    shared = Team(Counting(), ("here",))
    monkeypatch.setattr(Counting, "tasks", [])
    monkeypatch.setattr("agt_cli.runs.queries.current_team", SimpleNamespace(get=lambda: shared))
    agt("predict", "run=run", "mechanism.eps=0.01", "force=true").ended(0)
    assert Counting.tasks == ["open", "answer"], "one for the labels, none for the estimate"


def test_nothing_is_asked_of_processes_that_a_failed_task_left_behind() -> None:
    """They wait in an exchange of that task, and another would wait with them for ever."""
    team = Team(Counting(), ("here",))
    with pytest.raises(ZeroDivisionError), team.sharing_task("answer"):
        raise ZeroDivisionError
    with pytest.raises(PeerLost), team.sharing_task("answer"):
        raise AssertionError("never begun")


def test_processes_that_never_met_end_with_a_failure() -> None:
    assert published_exit_code(Group()) == 1


def test_queries_too_many_to_be_sent_are_compared_where_the_run_finds_them(
    agt: Agt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the data's folder; and a folder of arrays has a hash, too."""
    monkeypatch.setenv("AGT_DATA", str(tmp_path / "data"))
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    (tmp_path / "data" / "folder").mkdir(parents=True)
    np.savez(tmp_path / "data" / "train.npz", x=x, label=(x[:, 0] > 0).astype(int))
    np.savez(tmp_path / "data" / "q.npz", x=x)
    np.save(tmp_path / "data" / "folder" / "x.npy", x)
    settings = (
        "dataset=embeddings",
        "dataset.path=train.npz",
        "model=linear",
        "certificate=stability",
    )
    more = ("training.loss=binary_cross_entropy", "kgrid.max=3", "hydra.run.dir=run", "-q")
    agt("train", *settings, *more).ended(0)
    shared = Team(Counting(), ("here",))
    monkeypatch.setattr("agt_cli.runs.queries.current_team", SimpleNamespace(get=lambda: shared))
    monkeypatch.setattr("agt.data.queries.is_large", lambda path: True)
    for inputs in ("q.npz", "folder"):
        agt(
            "predict",
            "run=run",
            f"inputs={inputs}",
            "mechanism.eps=1",
            "accounting=paper",
            "seed=0",
            "-q",
        ).ended(0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("train", "trainin.lr=3"),
            "agt: error: unknown key 'trainin.lr'; did you mean 'training.lr'?",
        ),
        (("train", "-m", "training.seed=0,1"), "agt: error: -m cannot be combined with torchrun"),
        (
            ("runs",),
            "agt: error: agt runs: torchrun started 2 processes",
        ),
        (
            ("train", *SMALL, "training.batch.normalizer=2", "training.batch.n_max=5"),
            "agt: error: a batch has 200 records, but training.batch.n_max=5",
        ),
    ],
)
def test_a_mistake_is_told_once(teams: Teams, words: tuple[str, ...], message: str) -> None:
    done = teams(2, *words, "-q")
    assert done.codes == [2, 2]
    assert "".join(done.said[0].values()).startswith(message)
    assert done.said[0]["err"].count("\n") == 1
    assert done.said[1] == {"out": "", "err": ""}


def test_data_that_one_process_does_not_find(teams: Teams) -> None:
    done = teams(
        2,
        "train",
        "dataset._target_=elsewhere.Elsewhere",
        "model=linear",
        "hydra.run.dir=elsewhere",
        "-q",
    )
    assert done.codes == [4, 4]
    for value in ("1 of 2", "data_dir: "):
        assert value in done.said[0]["err"]
    assert not teams.run("elsewhere").exists(), "a command that was refused leaves no folder"


@pytest.mark.sweep
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_run_which_goes_on_by_another_number(
    teams: Teams, rank: int
) -> None:
    """The first leaves a record as a killed run does; another has the first say so."""
    name = f"killed{rank}"
    done = teams(
        2, "train", *LONG, f"hydra.run.dir={name}", "-q", kill=(rank, f"{name}/checkpoint/step=*")
    )
    assert (done.codes[rank], done.codes[1 - rank]) == (-9, 1)
    assert done.said[1] == {"out": "", "err": ""}
    if rank:
        assert done.said[0]["err"].startswith(f"agt: error: {GONE}")
        status = teams.status(name)
        assert status["state"] == "failed"
        assert status["error"].startswith(f"PeerLost: {GONE}")
    else:
        assert teams.status(name)["state"] == "running"
        assert Run.at(teams.run(name)).is_alive is False
    resumed = teams(1 + rank, "train", f"resume={name}", "--json", "-q").first
    assert resumed["run"] == name
    teams(1, "train", *LONG, "hydra.run.dir=whole", "-q")
    assert bits(teams.run(name)) == bits(teams.run("whole"))
