"""Users' mistakes: each ends with its exit code and a message that names the key or file and the
nearest name.
"""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from agt.errors import ConfigError
from agt.kernels import select, selftest
from agt_cli.checks import check_named_ledger
from agt_cli.errors import explain
from agt_cli.report.finished import CHECKPOINTS
from agt_cli.runs import prepare

from .conftest import TINY, Agt


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_when_asked_for(agt: Agt) -> None:
    agt("train", "compute.device=cuda").ended(2, "compute.device")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_not_writable(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    agt("train", *TINY, "output_dir=locked").ended(1, "locked", "Permission denied")


def test_bug_hides_its_traceback_unless_asked(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(prepare, "prepare", broken)
    said = agt("train", *TINY).ended(1, "ZeroDivisionError: oops")
    assert "Traceback" not in said.err
    assert "Traceback" in agt("train", *TINY, "-v").err


def test_a_kernel_with_wrong_numbers_stops_the_run(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        selftest.CASES,
        "gradients of weights",
        lambda kernel, at: (torch.tensor(int(kernel.name == "cpu")),),
    )
    select._first_working.cache_clear()
    said = agt("train", *TINY, "compute.kernel=auto")
    select._first_working.cache_clear()
    assert said.code == 1
    assert "compute.kernel=cpu " in said.err
    assert "'gradients of weights'" in said.err
    assert not list(Path("outputs/train").rglob("model.safetensors")), "no other kernel was taken"


def test_interrupt(agt: Agt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "prepare", interrupted)
    said = agt("train", *TINY, "--json")
    assert (said.code, said.json["error"]) == (130, "interrupted")
    status = json.loads(next(tmp_path.glob("outputs/train/*/status.json")).read_text())
    assert (status["state"], status["error"], status["exit_code"]) == ("failed", "interrupted", 130)


@pytest.mark.parametrize("folder_exists", [False, True])
def test_a_mistake_that_the_data_show_leaves_no_folder(
    agt: Agt, tmp_path: Path, folder_exists: bool
) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n")
    if folder_exists:
        Path("run").mkdir()
    table = ("dataset=table", "dataset.path=t.csv", "dataset.label=z", "+dataset.numeric.x=[0,2]")
    agt("train", *table, "model=linear", "hydra.run.dir=run").ended(2, "t.csv", "'z'")
    assert Path("run").exists() == folder_exists
    assert [*Path().rglob("run/*")] == []


def test_a_mistake_after_the_first_checkpoint_leaves_a_failed_run(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        Path("run", CHECKPOINTS).mkdir()
        raise ConfigError("too late")

    monkeypatch.setattr(prepare, "prepare", refused)
    agt("train", *TINY, "hydra.run.dir=run").ended(2, "too late")
    assert json.loads(Path("run", "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("setting", ["hydra.run.dir=link", "output_dir=link/runs"])
def test_a_symbolic_link_without_target_is_no_folder_for_results(
    agt: Agt, tmp_path: Path, setting: str
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    agt("train", *TINY, setting).ended(2, setting, "link is a symbolic link", "missing")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate"),
    ],
)
def test_out_of_memory_names_the_settings(error: Exception) -> None:
    known = explain(error, "train", [])
    assert known is not None
    assert known.exit_code == 1
    assert "compute.memory_mb" in str(known)
    assert "compute.fragment" in str(known)


def test_an_ordinary_value_error_is_a_bug_and_not_the_users() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    assert explain(caught.value, "train", []) is None


def test_command_line_is_left_as_it_was(agt: Agt) -> None:
    before = list(sys.argv)
    agt("train", "dataset=blob")
    assert sys.argv == before


@pytest.mark.parametrize("word", ["exclude=[age]", "ignore=[age]", "drop_columns=[age]"])
def test_other_words_for_columns_that_are_left_out_are_answered_with_drop(
    agt: Agt, tmp_path: Path, word: str
) -> None:
    (tmp_path / "t.csv").write_text("age,y\n1,a\n2,b\n")
    agt("data", "inspect", "t.csv", word).ended(2, "did you mean 'drop'?")


def test_a_training_names_the_command_that_drops_columns(agt: Agt) -> None:
    agt("train", "dataset=digits", "dataset.drop=[age]").ended(2, "agt data inspect FILE drop=")


def test_a_ledger_that_is_not_there_is_named_before_anything_is_loaded() -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        check_named_ledger("nosuch")
    check_named_ledger(None)
    check_named_ledger("none")


def test_a_run_and_a_file_of_ids_in_each_other_s_place_are_named(agt: Agt, home: Path) -> None:
    Path("requests.txt").write_text("7")
    swapped = f"type run={home / 'box'} ids=requests.txt"
    agt("unlearn", "run=requests.txt", f"ids={home / 'box'}").ended(2, swapped)


def test_a_second_table_is_not_joined_to_the_name_of_the_first(agt: Agt) -> None:
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("x,y\n1,2\n")
    said = agt("data", "inspect", "a.csv", "b.csv").ended(2, "'b.csv'", "once for each file")
    assert "did you mean" not in said.err


def test_verifying_a_folder_of_ledgers_names_the_commands_of_a_ledger(agt: Agt, home: Path) -> None:
    agt("ledger", "init", "people", f"run={home / 'box'}", "total.eps=1").ended(0)
    path = "ledgers/people.ledger"
    agt("verify", "ledgers").ended(2, f"agt verify {path}", f"agt ledger show {path}")


@pytest.mark.parametrize("answer", ["true", "false"])
def test_true_and_false_do_not_declare_what_is_public(agt: Agt, answer: str) -> None:
    Path("t.csv").write_text("x,y\n1,2\n")
    agt("start", "t.csv", f"public={answer}").ended(2, "public=yes", "public=no")


def test_a_size_far_from_the_rows_of_a_table_is_refused_before_a_file_is_written(agt: Agt) -> None:
    Path("t.csv").write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(700)))
    agt("start", "t.csv", "label=y", "public=yes", "size=70").ended(2, "size=", "700 rows")
    assert not Path("conf").exists()


def test_a_column_of_few_values_with_gaps_may_be_no_column_of_ids(agt: Agt) -> None:
    rows = [f"{18 + row % 5 if row else ''},{row % 2}\n" for row in range(600)]
    Path("t.csv").write_text("age,y\n" + "".join(rows))
    agt("start", "t.csv", "id=age", "label=y").ended(2, "only 5 different values", "id=none")
