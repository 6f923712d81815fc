"""scripts/gpu.py, small and on the CPU: jobs run, what is missing or fails is said, and the
table is there at any time.
"""

import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import gpu


def table(out: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[list[str]]]:
    """The script's exit code, and the rows of its table."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--out", str(out), "--dry", "--only", *words])
    code = gpu.main()
    return code, [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in out.read_text().splitlines()[2:]
    ]


def test_jobs_run_and_each_row_has_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["machine", "step", "soundness", "bits", "streamed", "amex"]
    code, rows = table(tmp_path / "t.md", monkeypatch, *names)
    assert code == 0
    assert list(dict.fromkeys(cells[0] for cells in rows)) == names
    assert {len(cells) for cells in rows} == {6}
    assert not [cells for cells in rows if "not measured" in cells[2]]
    assert [cells[2] for cells in rows if cells[0] == "soundness"] == ["0 parameters outside"] * 5


def test_a_job_that_fails_or_hangs_costs_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(dry: bool, seconds: float) -> gpu.Rows:
        yield gpu.row("a", 1.0)
        raise RuntimeError("no kernel image")

    def hangs(dry: bool, seconds: float) -> gpu.Rows:
        yield gpu.row("a", 1.0)
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # as if its time were nearly over
        time.sleep(60)

    for job, why in ((fails, "it failed: no kernel image"), (hangs, "cut off after 5 s")):
        monkeypatch.setitem(gpu.JOBS, "step", (job, 5))
        assert list(gpu.rows_of("step", 5.0, dry=True)) == [
            gpu.row("a", 1.0),
            gpu.row("the rest", "not measured", remark=why),
        ]


def test_a_call_that_is_cut_off_leaves_the_rows_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(dry: bool, seconds: float) -> gpu.Rows:
        yield gpu.row("first", 1.0)
        raise KeyboardInterrupt

    monkeypatch.setitem(gpu.JOBS, "machine", (cut, 20))
    with pytest.raises(KeyboardInterrupt):
        table(tmp_path / "t.md", monkeypatch, "machine")
    assert (tmp_path / "t.md").read_text().splitlines()[2] == "| machine | first | 1 s |  |  |  |"
    _, rows = table(tmp_path / "t.md", monkeypatch, "step", "--seconds", "1")
    assert rows[0][-1] == "no time left"


def test_what_is_broken_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [gpu.row("sums", remark="BROKEN: not the same")]
    monkeypatch.setitem(gpu.JOBS, "machine", (lambda dry, seconds: iter(broken), 20))
    assert table(tmp_path / "t.md", monkeypatch, "machine")[0] == 3
