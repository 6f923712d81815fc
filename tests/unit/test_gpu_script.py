"""scripts/gpu.py, small and on the CPU: jobs run, what is missing or fails is said, and the table is there at any time."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import gpu


def table(out: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[list[str]]]:
    """The script's exit code, and the rows of its table."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(out), *words])
    code = gpu.main()
    return code, [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.read_text().splitlines()[2:]]


def test_jobs_run_and_each_row_has_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["machine", "step", "soundness", "amex"]
    code, rows = table(tmp_path / "t.md", monkeypatch, "--dry", "--only", *names)
    assert code == 0
    assert list(dict.fromkeys(cells[0] for cells in rows)) == names
    assert {len(cells) for cells in rows} == {6}
    assert not [cells for cells in rows if "not measured" in cells[2]]
    assert [cells[2] for cells in rows if cells[0] == "soundness"] == ["0 parameters outside"] * 5


def test_a_job_that_fails_or_hangs_costs_its_own_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(name: str, body: str) -> Iterator[list[str]]:
        script = tmp_path / f"{name}.py"
        script.write_text(body)
        monkeypatch.setattr(gpu, "__file__", str(script))
        monkeypatch.setattr(gpu, "GRACE_SECONDS", 0.5)
        return gpu.rows_of(name, 1.0, dry=True)

    one = 'import json, time; print("row " + json.dumps(["a", "1 s", "", "", ""]), flush=True); '
    assert list(process("fails", one + 'raise SystemExit("no kernel image")'))[1] == gpu.row(
        "the rest", "not measured", remark="it failed: no kernel image"
    )
    assert [cells[-1] for cells in process("hangs", one + "time.sleep(60)")] == ["", "cut off after 1 s"]


def test_a_call_that_is_cut_off_leaves_the_rows_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(at: gpu.Place, seconds: float) -> gpu.Rows:
        yield gpu.row("first", 1.0)
        raise KeyboardInterrupt

    monkeypatch.setitem(gpu.JOBS, "machine", (cut, 20))
    with pytest.raises(KeyboardInterrupt):
        table(tmp_path / "t.md", monkeypatch, "--dry", "--only", "machine")
    assert (tmp_path / "t.md").read_text().splitlines()[2] == "| machine | first | 1 s |  |  |  |"
    _, rows = table(tmp_path / "t.md", monkeypatch, "--dry", "--only", "step", "--seconds", "1")
    assert rows[0][-1] == "no time left"


def test_what_is_broken_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [gpu.row("sums", remark="BROKEN: not the same")]
    monkeypatch.setitem(gpu.JOBS, "machine", (lambda at, seconds: iter(broken), 20))
    assert table(tmp_path / "t.md", monkeypatch, "--dry", "--only", "machine")[0] == 3
