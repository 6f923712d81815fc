"""agt train resume=FOLDER: a run that was killed or failed goes on in its folder, to the bits of
one left alone.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from agt import provenance
from agt.data import encoding
from agt.errors import ConfigError
from agt.training.checkpoint import CheckpointFolder
from agt_cli.cli import main
from agt_cli.releasing import noise
from agt_cli.report.record import RunRecord
from agt_cli.report.unfinished import open_unfinished

from .conftest import TINY, Agt

TIMES = {
    *("records.bin", "unlearning/key", "env.json", "status.json", "metrics.json"),
    *("report.md", "report.html", "manifest.json", "spent.json"),
}
OFTEN = "compute.checkpoint_seconds=1e-6"
LONGER = [word.replace("training.epochs=1", "training.epochs=6") for word in TINY]
BOXES = (*LONGER, OFTEN, "training.momentum=0.9", "training.chosen_on=public")
HEAD = (
    "dataset=digits",
    "training=generic",
    "model=linear",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    OFTEN,
)
SGD = (
    *HEAD,
    "certificate=stability",
    "training.lr=4",
    "training.epochs=20",
    "certificate.average=12",
)
ERM = (
    *HEAD,
    "certificate=erm",
    "training.weight_decay=0.01",
    "training.batch.count=1",
    "certificate.tolerance=1e-7",
)
MEMBERS = (*BOXES, "ensemble.members=3", "compute.threads=1")
KINDS = {"boxes": BOXES, "linear": SGD, "minimiser": ERM, "ensemble": MEMBERS}
WITH_SOURCE = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
Stop = Callable[[int], None]


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Lets trainings fail once they have offered a checkpoint so often; 0: lets them go on."""
    save_if_due = CheckpointFolder.save_if_due
    left = [0]

    def offered(
        self: CheckpointFolder, step: int, tensors: object, is_last_step: bool = False
    ) -> None:
        save_if_due(self, step, tensors, is_last_step)  # type: ignore[arg-type]
        left[0] -= 1
        if left[0] == 0:
            raise OSError(5, "Input/output error", "something else")

    monkeypatch.setattr(CheckpointFolder, "save_if_due", offered)
    return lambda times: left.__setitem__(0, times)


def stopped(agt: Agt, stop: Stop, *settings: str, after: int = 4, folder: str = "run") -> Path:
    """The folder of a run that failed."""
    stop(after)
    agt("train", *settings, f"hydra.run.dir={folder}", "-q").ended(1)
    stop(0)
    return Path(folder)


def bits(folder: Path) -> dict[str, bytes]:
    files = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    return {name: path.read_bytes() for name, path in files.items() if name not in TIMES}


def told(folder: Path, name: str) -> dict[str, object]:
    value = json.loads((folder / name).read_text())
    assert isinstance(value, dict)
    return value


SLOW = ("minimiser", "ensemble")  # in make sweep


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.sweep] * (n in SLOW)) for n in KINDS]
)
def test_it_ends_with_the_same_bits(agt: Agt, stop: Stop, name: str) -> None:
    run = stopped(agt, stop, *KINDS[name])
    assert told(run, "status.json")["state"] == "failed"
    assert list((run / "checkpoint").rglob("step=*"))
    stop(2)
    agt("train", f"resume={run}", "-q").ended(1)
    stop(0)
    said = agt("train", f"resume={run}", "--json").ended(0)
    assert said.json["run"] == str(run)
    agt("train", *KINDS[name], "hydra.run.dir=whole", "-q").ended(0)
    assert bits(run) == bits(Path("whole"))
    agt("certify", f"run={run}", "map_resolution=0", f"digest={said.json['digest']}", "-q").ended(0)
    assert not Path("outputs/train").exists() or not list(Path("outputs/train").iterdir()), (
        "Hydra's own folder is gone"
    )


def killed(folder: Path, after: int, *words: str) -> None:
    """A process that is killed once it has offered a checkpoint so often."""
    code = (
        "import os, sys\nfrom agt_cli.cli import main\nfrom agt.training.checkpoint import "
        "CheckpointFolder\n"
        "save_if_due, left = CheckpointFolder.save_if_due, [int(sys.argv.pop(1))]\n"
        "def offered(*given, **more):\n    save_if_due(*given, **more)\n    left[0] -= 1\n"
        "    if not left[0]:\n        os.kill(os.getpid(), 9)\n"
        "CheckpointFolder.save_if_due = offered\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(after), *words],
        cwd=folder,
        env=WITH_SOURCE,
        capture_output=True,
    )
    assert done.returncode == -9, done.stderr


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_killed_and_stopped_again(agt: Agt, stop: Stop, tmp_path: Path) -> None:
    killed(tmp_path, 3, "train", *BOXES, "hydra.run.dir=run", "-q")
    run = Path("run")
    assert told(run, "status.json")["state"] == "running"
    (run / "model.safetensors.part12-34").write_bytes(b"half")
    agt("certify", f"run={run}").ended(2, "'running'", f"resume={run}")
    stop(2)
    agt("train", "resume=run", "-q").ended(1)
    stop(0)
    agt("train", "resume=run", "--json", "-q").ended(0)
    agt("train", *BOXES, "hydra.run.dir=whole", "-q").ended(0)
    assert bits(run) == bits(Path("whole"))
    status = told(run, "status.json")
    environment = told(run, "env.json")
    assert status["state"] == "done"
    assert len(status["resumed"]) == 2  # type: ignore[arg-type]
    assert [entry["argv"][1:] for entry in environment["resumed"]] == [
        ["resume=run"],
        ["resume=run"],
    ]  # type: ignore[attr-defined]
    assert "resumed" not in told(Path("whole"), "status.json")
    assert set(BOXES) <= set(environment["argv"]), "how it was begun"  # type: ignore[call-overload]


def test_a_run_without_a_checkpoint_starts_over_in_its_folder(agt: Agt, stop: Stop) -> None:
    run = stopped(agt, stop, *TINY, "training.epochs=3", "compute.checkpoint_seconds=0", after=2)
    assert not list((run / "checkpoint").glob("step=*"))
    said = agt(
        "train",
        f"resume={run}",
        "compute.checkpoint_seconds=null",
        f"output_dir={Path.cwd()}",
        "--json",
        "-q",
    ).ended(0)
    assert said.json["metrics"]["steps"] == 3
    assert "checkpoint_seconds: null" in (run / "config.yaml").read_text(), (
        "what cannot change a bit may change"
    )


@pytest.mark.parametrize("room", [True, False])
def test_on_a_full_disk_it_has_failed_and_goes_on_once_there_is_room(
    agt: Agt, stop: Stop, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    """No file can be made any more; without ``room``, not even the blocks that are the run's can
    be written.
    """
    opened = Path.open
    save_if_due = CheckpointFolder.save_if_due

    def full(path: Path, mode: str = "r", *more: object, **named: object) -> object:
        if "wx" in mode or ("w" in mode and not path.exists()) or ("+" in mode and not room):
            raise OSError(28, "No space left on device", str(path))
        return opened(path, mode, *more, **named)  # type: ignore[call-overload]

    def offered(
        self: CheckpointFolder, step: int, tensors: object, is_last_step: bool = False
    ) -> None:
        save_if_due(self, step, tensors, is_last_step)  # type: ignore[arg-type]
        if step == 3:
            monkeypatch.setattr(Path, "open", full)
            raise OSError(28, "No space left on device", "labels")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "save_if_due", offered)
        said = agt("train", *BOXES, "hydra.run.dir=run", "-q")
    monkeypatch.setattr(Path, "open", opened)
    said.ended(1, "labels: ")
    assert told(Path("run"), "status.json")["state"] == ("failed" if room else "running")
    agt("train", "resume=run", "--json").ended(0)
    assert not list(Path("run").rglob("*.part*"))


REFUSED = {
    "another value": (
        ("training.lr=0.5",),
        "training.lr=0.5 differs from the run's own setting, 2.0",
    ),
    "the usual value": (
        ("training.epochs=4",),
        "training.epochs=4 differs from the run's own setting, 6",
    ),
    "another group": (
        ("model=mlp",),
        r"model\.hidden=\[128.*\] differs from the run's own setting, \[\]",
    ),
    "another data set": (("dataset=digits",), r"dataset\..*=.* differs from the run's own setting"),
    "a key that it has not": (
        ("+dataset.colour=red",),
        "dataset.colour=red differs from the run's own setting, not set",
    ),
    "threads": (
        ("compute.threads=7",),
        "compute.threads=7 differs from the run's own setting, None",
    ),
    "another folder": (("hydra.run.dir=elsewhere",), "continues in its own folder"),
    "a sweep": (("-m",), "only a single run can be resumed"),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that failed; no test changes it."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "agt_cli.runs.prepare.write_source",
            lambda *given: (_ for _ in ()).throw(OSError(28, "No space left")),
        )
        assert main(["train", *BOXES, f"hydra.run.dir={folder}", "-q"]) == 1
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_other_settings_are_refused_by_name(agt: Agt, failed: Path, name: str) -> None:
    words, message = REFUSED[name]
    said = agt("train", f"resume={failed}", *words)
    assert said.code in (1, 2)
    assert re.search(message, said.err), said.err
    assert told(failed, "status.json")["state"] == "failed", "as it was"
    assert name == "a sweep" or not list(Path().rglob("status.json"))


def test_a_finished_run_loses_the_checkpoints_that_were_left(agt: Agt, trained: Path) -> None:
    (trained / "checkpoint").mkdir()
    agt("train", f"resume={trained}").ended(2, f"resume={trained}")
    assert not (trained / "checkpoint").exists(), "killed right after its last word, it left this"


def test_a_run_that_hardly_began_is_not_resumed(agt: Agt, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "status.json").write_text(
        '{"state": "running", "command": "train", "started": "2026-01-31T12:00:00+00:00"}'
    )
    agt("train", f"resume={begun}").ended(2, f"resume={begun}")
    (begun / "lock").touch()
    agt("train", f"resume={begun}").ended(2, "config.yaml")


def test_a_run_whose_process_lives_is_left_alone(
    agt: Agt, failed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that resume at once one wins; without locks nobody does; and its own line with
    resume= goes on.
    """
    run = shutil.copytree(failed, tmp_path / "run").relative_to(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("agt.store.lock.fcntl", None)
        agt("train", f"resume={run}").ended(2, str(run))
    one = open_unfinished(run)
    with pytest.raises(OSError), RunRecord(run, "train", one.config, one):  # noqa: PT011, PT012
        agt("train", f"resume={run}").ended(2, str(run))
        agt("certify", f"run={run}").ended(2, "'running'")
        assert told(run, "status.json")["state"] == "running"
        raise OSError(28, "No space left")
    (run / "lock").touch()  # as a process leaves it that was killed
    other = open_unfinished(run)
    said = agt("train", *BOXES, f"resume={run}", "data_dir=elsewhere", "--json", "-q").ended(0)
    assert said.json["metrics"]["conditions_held"] == 7, (
        "what it declared of its settings still stands"
    )
    with pytest.raises(ConfigError, match="finished"), RunRecord(run, "train", other.config, other):
        pass


def test_another_version_another_machine_another_thread_other_settings(
    agt: Agt, failed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(failed, tmp_path / "run").relative_to(tmp_path)
    for name, value, message in (
        ("package_digest", lambda package: "other", "agt's code was .* but is other now"),
        ("machine", lambda device: {"torch": "1.0"}, "this machine's .* was .* but is "),
        ("default_threads", lambda: (64, None), r"threads was .* but is \[64, None\] now"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(provenance, name, value)
            said = agt("train", f"resume={run}").ended(2)
            assert re.search(message, said.err), said.err
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("epochs: 6", "epochs: 5"))
    agt("train", f"resume={run}").ended(2, "training.epochs", "6", "5")
    (run / "config.yaml").write_text(config)
    assert agt("train", f"resume={run}", "-q").code == 0, "none of them did any harm"


@pytest.mark.parametrize("held", ["array", "codes"])
def test_changed_data_is_refused(
    held: str, agt: Agt, stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is held as codes is known by its mark, before its digest is computed."""
    monkeypatch.setattr(encoding, "ARRAY_BYTES", 0 if held == "codes" else 2**40)
    frame = pd.DataFrame(
        {"a": [i % 17 for i in range(80)], "y": ["yes" if i % 17 > 8 else "no" for i in range(80)]}
    )
    frame.to_csv("rows.csv", index=False)
    settings = (
        "dataset=table",
        "dataset.path=rows.csv",
        "dataset.label=y",
        "+dataset.numeric={a: [0, 16]}",
        "data_dir=.",
    )
    more = ("certificate=box", "training=generic", "training.epochs=6", "kgrid.max=2", OFTEN)
    run = stopped(agt, stop, *settings, *more)
    named = str(told(run, "env.json")["data_digest"])
    assert named.startswith("codes:") == (held == "codes")
    frame.iloc[:-1].to_csv("rows.csv", index=False)
    agt("train", f"resume={run}").ended(2, "data_digest was")
    frame.to_csv("rows.csv", index=False)
    Path("moved").mkdir()
    Path("rows.csv").rename("moved/rows.csv")
    agt("train", f"resume={run}", "data_dir=moved", "-q").ended(0)
    assert re.fullmatch("[0-9a-f]{32}", str(told(run, "env.json")["data_digest"]))


# -- private noise: one draw, one release

NOISY = (*BOXES, "noise.epsilon=2")


def test_private_noise_is_drawn_once(agt: Agt, stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stopped(agt, stop, *NOISY)
    seed = int(told(run / "checkpoint", "noise.json")["number"], 16)  # type: ignore[call-overload]
    spent = (run / "spent.json").read_bytes()
    said = agt("train", f"resume={run}").ended(0)
    assert f"({run}, " not in said.out, "the same release is no earlier attempt"
    assert (run / "spent.json").read_bytes() == spent, "from the time of its first draw on"
    monkeypatch.setattr(noise, "noise_seed", lambda config: seed)
    agt("train", *NOISY, "hydra.run.dir=whole", "-q").ended(0)
    assert bits(run) == bits(Path("whole"))
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert f"{seed:x}".encode() not in everything, "whoever has the seed can subtract the noise"


@pytest.mark.parametrize("gone", ["*", "noise.json"])
def test_noise_whose_seed_is_gone_is_not_drawn_again(agt: Agt, stop: Stop, gone: str) -> None:
    run = stopped(agt, stop, *NOISY)
    for path in (run / "checkpoint").glob(gone):
        path.unlink()
    agt("train", f"resume={run}").ended(2, "run/checkpoint/noise.json")
    said = agt("train", *NOISY).ended(0)
    assert "(run, " not in said.out, "an attempt that was written elsewhere"
