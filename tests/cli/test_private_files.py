"""What commands write beside their records is nobody else's to read: temporary files,
checkpoints, copies, logs.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from museum import BUDGET, FinishedRuns

import agt
from agt.training.checkpoint import CheckpointFolder

from .conftest import TINY, Agt

SHARED = Path("/dev/shm")
WATCHES: list["Watch"] = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Watch:
    """Files that this process opens for writing, and which of them others could read while they
    were there.
    """

    def __init__(self) -> None:
        self.seen: set[Path] = set()
        self.exposed: set[Path] = set()

    def look(self, path: Path, below: Path) -> None:
        if path.is_file() and not path.is_symlink():
            self.seen.add(path)
            inside = [parent for parent in path.parents if below in parent.parents]
            if path.stat().st_mode & stat.S_IROTH and all(
                parent.stat().st_mode & stat.S_IXOTH for parent in inside
            ):
                self.exposed.add(path)


def _hook(event: str, given: tuple[object, ...]) -> None:
    for watch in WATCHES:
        if (
            event == "open"
            and isinstance(given[0], str | Path)
            and isinstance(given[2], int)
            and given[2] & WRITES
        ):
            PENDING.append(Path(os.path.abspath(given[0])))
        elif event in ("os.rename", "os.remove", "os.chmod", "os.rmdir") and PENDING:
            for path in PENDING:
                watch.look(path, Path.cwd())
            if event != "os.chmod":
                PENDING.clear()


PENDING: list[Path] = []
sys.addaudithook(_hook)


@contextmanager
def watched(folder: Path) -> Iterator[Watch]:
    """Under the usual mask, where everybody may look into folders; temporary files go to a
    folder of everybody's.
    """
    before = os.umask(0o022)
    watch = Watch()
    there = set(SHARED.glob("*"))
    WATCHES.append(watch)
    try:
        yield watch
    finally:
        WATCHES.remove(watch)
        PENDING.clear()
        os.umask(before)
    for path in [*folder.rglob("*"), *(path for path in SHARED.glob("*") if path not in there)]:
        watch.look(path, folder)


@pytest.fixture
def everybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.sweep
def test_temporary_files_checkpoints_and_logs_are_for_their_owner(
    agt: Agt,
    tmp_path: Path,
    everybodys: Path,
    finished_runs: FinishedRuns,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Training, its resumption, a sweep, an erasure and its rehearsal, requests that wait, an
    audit, a paid release.
    """
    finished_runs.copy("train/box", Path("box"))
    for name in ("ids.txt", "queries.npz"):
        Path(name).write_bytes((finished_runs.home / name).read_bytes())
    often = (*TINY, "training.epochs=4", "compute.checkpoint_seconds=1e-6", "-q")
    save_if_due = CheckpointFolder.save_if_due

    def offered(
        self: CheckpointFolder, step: int, tensors: object, is_last_step: bool = False
    ) -> None:
        save_if_due(self, step, tensors, is_last_step)  # type: ignore[arg-type]
        if step == 2:
            raise OSError(5, "Input/output error", "something else")

    with watched(tmp_path) as watch:
        with monkeypatch.context() as patch:
            patch.setattr(CheckpointFolder, "save_if_due", offered)
            assert (
                agt(
                    "train", *often, "noise.epsilon=1", "training.clip=0.05", "hydra.run.dir=run"
                ).code
                == 1
            )
        assert (tmp_path / "run" / "checkpoint" / "noise.json").exists()
        watch.look(tmp_path / "run" / "checkpoint" / "noise.json", tmp_path)
        lines = [
            ("train", "resume=run", "-q"),
            ("train", *often, "training.lr=1,2", "-m", "hydra.sweep.dir=sweep"),
            ("unlearn", "run=box", "ids=ids.txt", "method=retrain", "rehearse=true", "-q"),
            ("ledger", "init", "people", "run=box", *BUDGET, "unit=one person", "-q"),
            (
                "predict",
                "run=box",
                "inputs=queries.npz",
                "ledger=people",
                "mechanism.eps=0.1",
                "-q",
            ),
            (
                "audit",
                "prediction",
                "run=box",
                "mechanism=randomized_response",
                "mechanism.eps=1",
                "audit.trials=200",
                "audit.targets=1",
                "confidence=0.999999",
            ),
            ("unlearn", "run=box", "ids=ids.txt", "method=retrain", "-q"),
        ]
        for line in lines:
            agt(*line).ended(0)
    hidden = {
        path
        for path in watch.exposed
        if any(part.startswith(".") or part == "checkpoint" for part in path.parts)
    }
    assert hidden == set()
    assert not {
        path for path in watch.exposed if everybodys in path.parents or SHARED in path.parents
    }
    kinds = {
        part.split("-")[0]
        for path in watch.seen
        for part in path.parts
        if part.startswith(".") or part == "checkpoint"
    }
    assert {"checkpoint", ".copies", ".stage"} <= kinds, "none of them was looked at"


def test_a_folder_for_checkpoints_that_was_there_is_closed(tmp_path: Path) -> None:
    """The seed of noise lies in it, and weights made from records."""
    place = tmp_path / "kept"
    modes = list[int]()
    place.mkdir()
    place.chmod(0o755)
    x = np.arange(40.0).reshape(20, 2) / 40
    y = np.arange(20) % 2
    agt.fit(
        x,
        y,
        checkpoint=place,
        epochs=2,
        on_progress=lambda at: modes.append(stat.S_IMODE(place.stat().st_mode)),
    )
    assert set(modes) == {0o700}
