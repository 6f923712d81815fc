"""agt unlearn as a command: its account is never lost, and what stops it before the change
leaves everything as it was.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agt.data.blobs import Blobs
from agt.errors import CheckError
from agt.store.manifest import MANIFEST_FILE as MANIFEST
from agt_cli.report.finished import COMMIT_FOLDER, Run
from agt_cli.runs.pending import ABSTAINED_FILE

from .conftest import TINY, Agt, Said

IDS = [str(name) for name in Blobs(center=1.25, std=0.35, n_train=80).load().train.ids]


@pytest.fixture
def run(agt: Agt, trained_as: Callable[..., Path]) -> Path:
    """A copy of a training run."""
    return Path(shutil.copytree(trained_as("tiny", (*TINY, "training.chosen_on=public")), "run"))


def unlearn(agt: Agt, *more: str, rows: range | None = None) -> Said:
    if rows is not None:
        Path("ids.txt").write_text("\n".join(IDS[row] for row in rows))
        more = ("ids=ids.txt", *more)
    return agt("unlearn", "run=run", *more, "--json")


def account(said: Said) -> dict[str, Any]:
    assert said.code == 0, said.err
    return dict(json.loads((Path(said.json["run"]) / "account.json").read_bytes()))


def manifest(run: Path) -> bytes:
    return (run / MANIFEST).read_bytes()


def test_a_folder_from_before_an_erasure_is_refused(agt: Agt, run: Path) -> None:
    """Whoever puts it back would answer from the erased people's records again."""
    before = run
    run = Path(shutil.copytree(run, "outputs/train/a"))
    Path("ids.txt").write_text("\n".join(IDS[:2]))
    assert agt("unlearn", f"run={run}", "ids=ids.txt", "-q").code == 0
    assert agt("certify", "run=latest", "map_resolution=0", "-q").code == 0
    shutil.move(run, "after")
    shutil.copytree(before, run)
    said = "earlier state of"
    for line in (
        "certify",
        "predict mechanism.eps=1",
        "plan",
        "unlearn ids=ids.txt",
        "unlearn ids=ids.txt rehearse=true",
        "audit certificate",
    ):
        command, *more = line.split()
        kind = [more.pop(0)] if command == "audit" else []
        for name in (str(run), "latest"):
            refused = agt(command, *kind, f"run={name}", *more, "-q").ended(2)
            assert said in refused.err, line
    assert said in agt("verify", str(run), "-q").out
    shutil.rmtree(run)
    shutil.move("after", run)
    assert agt("certify", "run=latest", "map_resolution=0", "-q").code == 0


def test_the_account_can_be_had_again(agt: Agt, run: Path) -> None:
    """Of the log's last entry."""
    assert unlearn(agt, rows=range(2)).code == 0
    assert unlearn(agt, "method=certificate", rows=range(2, 6)).code == 0
    assert agt("certify", "run=run", "map_resolution=0", "-q").code == 0
    noted = unlearn(agt, "method=certificate", rows=range(6, 7))
    again = unlearn(agt, "method=certificate")
    assert account(again) == account(noted)
    assert "entry 3" in again.err
    first = unlearn(agt)
    state = manifest(run)
    again = unlearn(agt)
    assert manifest(run) == state
    assert "entry 4" in again.err
    before = account(first)
    after = account(again)
    assert before["asked"] | {"people_pending_before": 5} == before["asked"]
    assert before["abstained"] == 20, "more wait than any distance reaches"
    assert after == before
    agt("verify", json.loads(again.out)["run"], "--json", "-q").ended(0)


@pytest.mark.parametrize(
    ("error", "method"),
    [(CheckError("a check"), "auto"), (KeyboardInterrupt(), "certificate")],
    ids=repr,
)
def test_what_stops_the_account_says_that_the_run_was_changed(
    agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, method: str
) -> None:
    def stop(*_: object) -> None:
        raise error

    before = manifest(run)
    with monkeypatch.context() as patched:
        patched.setattr("agt_cli.commands.unlearn.write_account", stop)
        said = unlearn(agt, f"method={method}", rows=range(3))
    assert said.code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert "run=run: the run WAS changed" in said.err
    assert manifest(run) != before
    assert "entry 1" in unlearn(agt, rows=range(3)).err
    later = account(unlearn(agt, f"method={method}"))
    assert (later["asked"]["people_requested"], later["state"]["entry"]) == (3, 1)
    assert ("waiting" in later) == (method == "certificate")


def test_a_change_that_is_decided_and_not_carried_through(
    agt: Agt, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise OSError(28, "No space left")

    with monkeypatch.context() as patched:
        patched.setattr("agt_cli.report.next_state._move_committed_files", stop)
        said = unlearn(agt, rows=range(3))
    assert said.code == 1
    assert "run=run: the run WAS changed" in said.err
    assert (run / COMMIT_FOLDER).is_dir()
    assert account(unlearn(agt))["removal"]["records"] == 3


def test_whatever_could_stop_the_account_stops_the_erasure(agt: Agt, run: Path) -> None:
    assert unlearn(agt, "method=certificate", rows=range(2)).code == 0
    assert agt("certify", "run=run", "map_resolution=0", "-q").code == 0
    before = manifest(run)
    path = run / ABSTAINED_FILE
    with path.open("a") as file:
        file.write("garbage\n")
    said = unlearn(agt)
    assert (said.code, manifest(run)) == (2, before)
    assert f"{ABSTAINED_FILE}, line 2: " in said.err
    path.unlink()
    path.mkdir()
    said = unlearn(agt)
    assert (said.code, manifest(run)) == (2, before)
    assert ABSTAINED_FILE.name in said.err
    path.rmdir()
    assert account(unlearn(agt))["removal"]["records"] == 2


def test_what_lies_beside_the_run_is_looked_at(agt: Agt) -> None:
    """Whatever output_dir the present command has."""
    train = ("train", *TINY, "training.chosen_on=public", "output_dir=mine", "-q", "--json")
    run, other = (agt(*train).json["run"] for _ in range(2))
    assert agt("certify", f"run={run}", "output_dir=mine", "map_resolution=0", "-q").code == 0
    Path("ids.txt").write_text("\n".join(IDS[:2]))
    Path("mine/shadows").mkdir()
    told = account(agt("unlearn", f"run={run}", "ids=ids.txt", "--json"))
    assert len(told["earlier"]) == 1
    trained_on = told["sweep"]["places"]
    assert [place["found"] for place in trained_on] == [0, 2]
    (holding,) = trained_on[1]["remarks"]
    assert [Path(folder).name for folder in holding["values"]["runs"]] == [Path(other).name]
    assert {"shadow_models", "files_beside_runs"} <= {
        remark["code"] for remark in told["sweep"]["unlooked"]
    }


def test_only_a_rehearsal_says_to_store_pages_first_because_an_erasure_does_not_wait(
    agt: Agt, run: Path
) -> None:
    release = ("mechanism=randomized_response", "mechanism.eps=1", "force=true")
    agt("predict", f"run={run}", *release).ended(0)
    Path("ids.txt").write_text(IDS[0])
    line = ("unlearn", "run=run", "ids=ids.txt", "method=retrain")
    rehearsed = agt(*line, "dry_run=true").ended(0, "1 release was made", "page=FILE")
    assert "From now on" not in rehearsed.err
    erased = agt(*line).ended(0, "1 release was made", "From now on")
    assert "Ctrl-C" not in rehearsed.err + erased.err


def test_methods_are_compared_on_copies(agt: Agt, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    line = ("-m", "method=retrain,certificate", "rehearse=true", "sweep=compared")
    said = unlearn(agt, *line, rows=range(3))
    (retrained, noted) = said.json["jobs"]
    assert said.code == 0, said.err
    assert (retrained["metrics"]["removed"], noted["metrics"]["asked"], noted["rehearsed"]) == (
        3,
        3,
        True,
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert "3 records" in Run.at(Path(retrained["run"])).result, "removed from a copy"
    for job in (retrained, noted):
        assert not list(Path(job["run"]).glob("account*")), "nobody takes it for an account"
        assert not list(Path(job["run"]).glob(".copies-*"))
        assert "rehearsal" in agt("verify", job["run"]).out
    assert [job["done_before"] for job in unlearn(agt, *line, rows=range(3)).json["jobs"]] == [
        True,
        True,
    ]
    nothing = unlearn(agt, "rehearse=true")
    assert nothing.code == 2
    said = unlearn(
        agt, "method=certificate", "rehearse=true", f"output_dir={run}/mine", rows=range(3)
    )
    assert said.json["rehearsed"], "its copy is not copied into itself"
    assert not list(run.rglob(".copies-*"))


def test_a_state_from_before_an_erasure_is_refused_beside_a_damaged_account(
    agt: Agt, run: Path
) -> None:
    shutil.copytree(run, "copy")
    assert unlearn(agt, rows=range(3)).code == 0
    (damaged,) = Path("outputs/unlearn").glob("*/account.json")
    damaged.write_bytes(b"{")
    shutil.rmtree(run)
    shutil.move("copy", run)
    said = agt("certify", "run=run", "map_resolution=0", "-q")
    assert said.code == 2
    assert "account.json: " in said.err


def test_ids_come_from_files_that_end(agt: Agt, run: Path) -> None:
    os.mkfifo("pipe")
    for path in ("pipe", "/dev/zero"):
        agt("unlearn", "run=run", f"ids={path}").ended(2, f"ids={path}")


def test_erasures_from_several_runs_go_on(agt: Agt, run: Path) -> None:
    other = (
        "train",
        *TINY,
        "training.chosen_on=public",
        "training.seed=1",
        "hydra.run.dir=other",
        "-q",
    )
    assert agt(*other).code == 0
    shutil.copytree("other", "copy")
    Path("ids.txt").write_text("\n".join(IDS[:3]))
    line = ("unlearn", "-m", "ids=ids.txt", "sweep=asked", "--json")
    assert agt(*line, "run=run").code == 0
    said = agt(*line, "run=run,other").ended(0)
    assert [job["done_before"] for job in said.json["jobs"]] == [True, False]
    shutil.rmtree("other")
    shutil.move("copy", "other")  # from before the erasure
    said = agt(*line, "run=run,other")
    assert said.code != 0
    assert "other" in said.err
    assert "rehearse=true" in agt(*line, "run=run", "method=retrain,certificate").err
