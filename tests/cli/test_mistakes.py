"""Users' mistakes: each ends with its exit code and a message that names the key or file and the nearest name."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from agt.kernels import select
from agt_cli.errors import explain
from agt_cli.runs import prepare

from .conftest import TINY, Agt

NO_DATA = ("dataset=table", "dataset.path=no.csv", "dataset.label=y", "+dataset.numeric={a: [0, 1]}")
MISTAKES = [
    (("train", "dataset=blob"), 2, ("unknown dataset 'blob'", "did you mean 'blobs'", "digits")),
    (("train", "model=mpl"), 2, ("unknown model 'mpl'", "did you mean 'mlp'")),
    (("train", "relation=add"), 2, ("unknown relation 'add'",)),
    (("train", "experiment=digit"), 2, ("unknown experiment 'digit'", "did you mean 'digits'")),
    (("train", "training=blob"), 2, ("no training settings named 'blob'", "did you mean 'blobs'")),
    (("train", "training.lrr=1"), 2, ("'training.lrr'", "did you mean 'lr'")),
    (("train", "dataset.centre=1"), 2, ("'dataset.centre'", "did you mean 'center'")),
    (("train", "lr=1"), 2, ("'lr'", "did you mean 'training.lr'")),
    (("train", "trainin=blobs"), 2, ("'trainin'", "did you mean 'training'")),
    (("train", "dataset"), 2, ("'dataset' is no setting", "KEY=VALUE")),
    (("train", "training.lr=[1"), 2, ("'training.lr=[1' cannot be read",)),
    (("train", "+modle=1"), 2, ("unknown key 'modle'", "did you mean 'model'")),
    (("train", "+training.momentun=.9"), 2, ("training.momentun: unknown key", "did you mean 'momentum'")),
    (("train", "--resolve"), 2, ("--resolve",)),
    (("train", "training.lr=fast"), 2, ("training.lr:", "'fast'")),
    (("train", "training.clip=null"), 2, ("training.clip:",)),
    (("train", "training.weight_decay=.6"), 2, ("lr * weight_decay = 1.2 exceeds 1",)),
    (("train", "kgrid=sparse", "kgrid.values=[1,1]"), 2, ("kgrid: values repeats 1",)),
    (("train", "kgrid=sparse", "kgrid.values=[1,-1]"), 2, ("kgrid.values", "greater than or equal to 0")),
    (("train", "kgrid.max=1000000000000"), 2, ("kgrid: max=1000000000000", "65537 values at most")),
    (("train", *NO_DATA, "relation.unit_rows=17179869184"), 2, ("relation.unit_rows:", "1073741824")),
    (("train", *NO_DATA, "relation.unit_rows=1073741824"), 2, ("kgrid", "relation.unit_rows = 1073741824", "at stake")),
    (("train", *NO_DATA, "kgrid=sparse", "kgrid.values=[0,1073741824]", "relation.unit_rows=2"), 2, ("kgrid", "at stake")),
    (("train", *NO_DATA, "training.batch.n_max=2147483648"), 2, ("training.batch.n_max:",)),
    (("train", *NO_DATA, "dataset.declared_size=2000000000"), 2, ("dataset.declared_size:",)),
    (("train", "training.lr=1e300"), 2, ("training.lr:", "less than or equal to 1000000")),
    (("train", "training.clip=1e-300"), 2, ("training.clip:", "greater than or equal to 0.000000001")),
    (("train", "compute.device=gpu"), 2, ("compute.device", "did you mean 'cpu'")),
    (("train", "compute.kernel=fast"), 2, ("compute.kernel", "reference")),
    (("train", "model._target_=agt.models.heads.Heads"), 2, ("model._target_: cannot import",)),
    (("train", "model=custom"), 2, ("model._target_",)),
    (
        ("train", "model=custom", "model._target_=agt.models.heads.Head"),
        2,
        ("heads.Head cannot be made",),
    ),
    (("train", "model=custom", "model._target_=torch.nn.Linear"), 2, ("torch.nn.Linear cannot be made", "in_features")),
    (("train", "model=custom", "model._target_=torch.nn.ReLU"), 2, ("of the type ReLU", "nn.Sequential")),
    (("train", "model=custom", "model._target_=math.pi"), 2, ("is no function that returns an nn.Sequential",)),
    (("train", "dataset=digits", "dataset.classes=[3,5,8]"), 2, ("binary_cross_entropy needs two classes",)),
    (("train", "dataset=digits", "dataset.classes=[3,5,8]", "training.loss=squared_error"), 2, ("needs two classes",)),
    (
        ("train", "dataset=digits", "model=linear", "training.loss=squared_error", "certificate=stability"),
        2,
        ("training.loss=squared_error", "certificate=box"),
    ),
    (("train", "training.batch.n_max=100"), 2, ("n_max=100", "raise n_max")),
    (("train", "dataset=table", "dataset.path=no.csv", "dataset.label=y", "+dataset.numeric={a: [0, 1]}"), 4, ("no.csv",)),
    (("certify", "run=nowhere"), 2, ("run=nowhere: no such folder",)),
    (("certify", "run=."), 2, ("not a run folder", "status.json is missing")),
    (("certify", "rnu=x"), 2, ("'rnu'", "did you mean 'run'")),
]


@pytest.mark.parametrize(("arguments", "code", "fragments"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_mistake(agt: Agt, arguments: tuple[str, ...], code: int, fragments: tuple[str, ...]) -> None:
    said = agt(*arguments, "--json")
    assert said.code == code, said.err
    assert said.err.startswith("agt: error: ")
    assert len(said.err.splitlines()) == 1, "a user's mistake is one line, without a traceback"
    for fragment in fragments:
        assert fragment in said.err
    assert said.json == {"error": said.err.removeprefix("agt: error: ").strip(), "exit_code": code}


def test_a_run_that_never_started_leaves_no_folder(agt: Agt, tmp_path: Path) -> None:
    agt("train", "training.lr=-1")
    assert not list(tmp_path.glob("outputs/train/*"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_when_asked_for(agt: Agt) -> None:
    said = agt("train", "compute.device=cuda")
    assert said.code == 2
    assert "sees no GPU" in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_output_not_writable(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    said = agt("train", *TINY, "output_dir=locked")
    assert said.code == 1
    assert "locked" in said.err
    assert "Permission denied" in said.err


def test_bug_hides_its_traceback_unless_asked(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(prepare, "prepare", broken)
    said = agt("train", *TINY)
    assert said.code == 1
    assert "ZeroDivisionError: oops (this is a bug in agt; run again with -v" in said.err
    assert "Traceback" not in said.err
    assert "Traceback" in agt("train", *TINY, "-v").err


def test_a_kernel_with_wrong_numbers_stops_the_run(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(select.CASES, "sum", lambda kernel, at: (torch.tensor(int(kernel.name == "cpu")),))
    select._first_working.cache_clear()
    said = agt("train", *TINY, "compute.kernel=auto")
    select._first_working.cache_clear()
    assert said.code == 1
    assert "compute.kernel=cpu: sum: its numbers differ from the reference kernel's" in said.err
    assert "falling back" not in said.err


def test_interrupt(agt: Agt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "prepare", interrupted)
    said = agt("train", *TINY, "--json")
    assert (said.code, said.json["error"]) == (130, "interrupted")
    status = json.loads(next(tmp_path.glob("outputs/train/*/status.json")).read_text())
    assert (status["state"], status["error"], status["exit_code"]) == ("failed", "interrupted", 130)


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate")],
)
def test_out_of_memory_names_the_settings(error: Exception) -> None:
    known = explain(error, "train", [])
    assert known is not None
    assert known.exit_code == 1
    assert "compute.memory_mb" in str(known)
    assert "compute.fragment" in str(known)


def test_full_disk_names_the_file() -> None:
    known = explain(OSError(28, "No space left on device", "outputs/train/x/model.safetensors"), "train", [])
    assert known is not None
    assert known.exit_code == 1
    assert str(known).startswith("outputs/train/x/model.safetensors: No space left on device: make room")


def test_an_ordinary_value_error_is_a_bug_and_not_the_users() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("x")
    assert explain(caught.value, "train", []) is None


def test_user_s_own_dataset_without_training_settings(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "mine" / "dataset").mkdir(parents=True)
    (tmp_path / "mine" / "dataset" / "mine.yaml").write_text("_target_: agt.data.digits.Digits\n")
    said = agt("train", "--config-dir", str(tmp_path / "mine"), "dataset=mine")
    assert said.code == 2
    assert "give training=NAME" in said.err
    chosen = agt("train", "--config-dir", str(tmp_path / "mine"), "dataset=mine", "training=digits", "kgrid.max=1", "-q")
    assert chosen.code == 0, chosen.err


def test_command_line_is_left_as_it_was(agt: Agt) -> None:
    before = list(sys.argv)
    agt("train", "dataset=blob")
    assert sys.argv == before
