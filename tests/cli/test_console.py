"""Progress and tables: what goes where, and how much of it."""

import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO, RawIOBase, TextIOWrapper
from pathlib import Path

import pytest

from agt_cli.report import console
from agt_cli.report.console import Console

from .conftest import TINY, Agt


def work(label: str, **flags: bool) -> None:
    with Console(**flags).progress(label) as report:
        for done in range(101):
            report(done // 50, 2, done, 100)


def test_progress_without_a_terminal_is_at_most_a_line_a_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console._ProgressLines, "interval_seconds", 0.0)
    work("training")
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 10
    for value in ("training", "50 %", "1/2"):
        assert value in err.splitlines()[4]
    assert "\x1b" not in err, "no control sequences in a log"


def test_progress_is_sparse_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    work("training")
    assert capsys.readouterr().err == "", "a short run says nothing"


def test_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console._ProgressLines, "interval_seconds", 0.0)
    work("training", quiet=True)
    Console(quiet=True).note("next")
    assert capsys.readouterr() == ("", "")


def test_json_silences_every_other_result(capsys: pytest.CaptureFixture[str]) -> None:
    speaker = Console(json=True)
    speaker.say("run folder: x")
    speaker.table("title", ("k",), [("1",)])
    assert capsys.readouterr().out == ""
    speaker.emit({"k": 1})
    assert capsys.readouterr().out == '{"k": 1}\n'
    Console().emit({"k": 1})
    assert capsys.readouterr().out == ""


def test_tables_are_not_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Console().table("a title", ("name", "value"), [("x" * 90, "0.5")])
    assert "x" * 90 in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [("runs",), ("runs", "--json"), ("nösuch",), ("train", "résumé=1"), ("train", "--help")],
)
def test_every_command_writes_to_an_ascii_terminal(
    agt: Agt, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    folder = Path("outputs/train/é日")
    folder.mkdir(parents=True)
    (folder / "status.json").write_text('{"command": "train", "state": "done"}')
    screens = {name: TextIOWrapper(BytesIO(), "ascii") for name in ("stdout", "stderr")}
    with monkeypatch.context() as patch:
        for name, screen in screens.items():
            patch.setattr(sys, name, screen)
        code = agt(*arguments).code
        said = "".join(screen.buffer.getvalue().decode("ascii") for screen in screens.values())  # type: ignore[attr-defined]
    assert code == (2 if {"nösuch", "résumé=1"} & {*arguments} else 0)
    if arguments == ("runs",):
        assert "\\xe9\\u65e5" in said


def test_a_terminal_gets_a_live_bar_with_the_time_left(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real command with stderr on a pseudo-terminal."""
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with ThreadPoolExecutor(1) as other, open(master, "rb", 0) as terminal:
        screen = other.submit(_all_of, terminal)
        with open(slave, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            said = agt("train", *TINY, "training.epochs=30")
        text = screen.result()
    assert said.code == 0
    assert "k = 0..3" in text
    assert "step 30/30" in text
    assert "0:00:00" in text
    assert "step" not in said.out.replace("steps", ""), "the bar stays off stdout"


def _all_of(terminal: RawIOBase) -> str:
    parts = list[bytes]()
    with suppress(OSError):  # the other end is closed
        while part := terminal.read(4096):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")
