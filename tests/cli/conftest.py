"""Runs of the command line, most of them in this process, in a folder of their own."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import quick_commands  # noqa: F401
from museum import SMALLEST, FinishedRuns

from agt_cli.cli import main

TINY = SMALLEST


@dataclass(frozen=True)
class Said:
    """What one command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; fails if anything else is there."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    def ended(self, code: int, *words: str) -> "Said":
        """The same, if it ended so, and said all of this on stderr."""
        assert self.code == code, self.err + self.out
        assert [each for each in words if each not in self.err] == [], self.err
        return self


Agt = Callable[..., Said]


@pytest.fixture
def agt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Agt:
    """Runs a command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGT_DATA", raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return run


@pytest.fixture
def process(tmp_path: Path) -> Agt:
    """Runs a command line as a process of its own."""

    def run(*arguments: str) -> Said:
        command = [sys.executable, "-m", "agt_cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        return Said(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def trained_as(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, tuple[str, ...]], Path]:
    """The folder of a run of that name with these settings, trained when first asked for; no
    test changes it.
    """
    home = tmp_path_factory.mktemp("trained")
    folders = dict[tuple[str, tuple[str, ...]], Path]()

    def folder(name: str, settings: tuple[str, ...]) -> Path:
        if (name, settings) not in folders:
            path = home / f"{len(folders)}_{name.replace(' ', '_')}"
            assert main(["train", *settings, f"hydra.run.dir={path}", "-q", "--json"]) == 0
            folders[name, settings] = path
        return folders[name, settings]

    return folder


@pytest.fixture
def home(finished_runs: FinishedRuns) -> Path:
    """Where two training runs lie that no test changes: home/box and home/linear."""
    return (finished_runs["train/box"], finished_runs["train/linear"])[0].parent


@pytest.fixture
def trained(agt: Agt, finished_runs: FinishedRuns) -> Path:
    """The folder of a tiny finished training run on blobs."""
    return finished_runs.copy("train/tiny", Path("outputs/train/2026-01-01_00-00-00-000000"))
