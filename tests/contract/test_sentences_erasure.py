"""No sentence of ours is read back: of accounts of erasures, of reports, and of what ``agt
start`` says.
"""

import json
import os
from pathlib import Path

import pytest
from cli.conftest import Agt
from museum import FinishedRuns
from sentences import Sentence, guard

import agt_cli.commands.certify
import agt_cli.commands.plan
import agt_cli.commands.unlearn
import agt_cli.commands.verify  # noqa: F401  # so that their names are guarded
from agt.data.blobs import Blobs
from agt.unlearning.sentences import TEMPLATES, Remark
from agt_cli.unlearn.account import read_account
from agt_cli.unlearn.log import REQUEST_LOG_FILE


@pytest.fixture
def sentences_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard what templates make, in every module of ours that is imported by now."""
    guard(monkeypatch)


def test_what_a_remark_says_is_guarded(sentences_are_guarded: None) -> None:
    assert type(Remark("simulated").sentence) is Sentence


TRAIN = (
    "train",
    "dataset.n_train=80",
    "training.epochs=1",
    "kgrid.max=3",
    "compute.kernel=reference",
    "model=linear",
)
LINEAR = (
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
    "training.weight_decay=0.1",
)
REFERENCE = "compute.kernel=reference"  # which needs no compiler
PUBLIC = "training.chosen_on=public"
# how a run is trained, and how records go
ERASURES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "retrain": ((), ("method=retrain",)),
    "fresh": ((), ("method=retrain", "fresh=true")),
    "certificate": ((), ("method=certificate",)),
    "sisa": (("ensemble.members=2",), ("method=sisa",)),
    "newton": ((*LINEAR, "certificate=removal"), ("method=newton",)),
    "newton, too small a budget": (
        (*LINEAR, "certificate=removal", "certificate.bound=worst", "certificate.sigma=0.02"),
        ("method=newton",),
    ),
}


def ask(rows: range) -> None:
    """Write the ids of these rows of the blobs to ids.txt."""
    ids = Blobs(center=1.25, std=0.35, n_train=80).load().train.ids
    Path("ids.txt").write_text("".join(f"{ids[row]}\n" for row in rows))


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("name", ERASURES)
def test_erasures_and_their_verification_read_no_sentence(agt: Agt, name: str) -> None:
    trained, method = ERASURES[name]
    agt(*TRAIN, *trained, PUBLIC, "hydra.run.dir=outputs/train/a", "-q").ended(0)
    if name == "retrain":
        agt("certify", "run=outputs/train/a", "map_resolution=0", REFERENCE, "-q").ended(0)
        agt(
            "predict", "run=outputs/train/a", "mechanism.eps=1", "force=true", REFERENCE, "-q"
        ).ended(0)
    ask(range(3))
    line = ("unlearn", "run=outputs/train/a", "ids=ids.txt", *method)
    agt(*line, "rehearse=true").ended(0)
    agt(*line, "hydra.run.dir=outputs/unlearn/a").ended(0)
    for folder in ("outputs/unlearn/a", "outputs/train/a"):
        agt("verify", folder).ended(0)
    if name == "certificate":
        agt("certify", "run=outputs/train/a", "map_resolution=0", REFERENCE, "-q").ended(0)
        agt("unlearn", "run=outputs/train/a", "hydra.run.dir=outputs/unlearn/b").ended(0)
        agt("verify", "outputs/unlearn/b").ended(0)


@pytest.mark.parametrize("name", ["retrain", "newton"])
def test_accounts_and_logs_hold_no_sentence_of_a_template(agt: Agt, name: str) -> None:
    trained, method = ERASURES[name]
    agt(*TRAIN, *trained, PUBLIC, "hydra.run.dir=outputs/train/a", "-q").ended(0)
    ask(range(3))
    agt(
        "unlearn",
        "run=outputs/train/a",
        "ids=ids.txt",
        *method,
        "hydra.run.dir=outputs/unlearn/a",
        "-q",
    ).ended(0)
    account = Path("outputs/unlearn/a/account.json").read_text(encoding="utf-8")
    log = (Path("outputs/train/a") / REQUEST_LOG_FILE).read_text(encoding="utf-8")
    made = [
        *read_account(account.encode()).removal.sentences,
        *read_account(account.encode()).removal.promise.sentences,
    ]
    assert made
    for text in (*made, *(template for template in TEMPLATES.values() if "{" not in template)):
        assert json.dumps(text) not in account
        assert json.dumps(text) not in log


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("run", ["train/box", "train/linear"])
def test_reports_of_a_run_read_no_sentence(
    finished_runs: FinishedRuns, agt: Agt, tmp_path: Path, run: str
) -> None:
    finished_runs.copy(run, tmp_path / "run")
    os.chdir(tmp_path)
    agt("certify", "run=run", "map_resolution=0", REFERENCE).ended(0)
    agt(
        "plan",
        "run=run",
        REFERENCE,
        "eps=[1.0]",
        "queries=[10]",
        "mechanisms=[randomized_response]",
    ).ended(0)
    agt("verify", "run").ended(0)


@pytest.mark.usefixtures("sentences_are_guarded")
@pytest.mark.parametrize("public", ["yes", "no"])
def test_start_reads_no_sentence(agt: Agt, tmp_path: Path, public: str) -> None:
    rows = [f"{row},{row % 7},{row % 11},{int(row % 7 > 3)}" for row in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["who,a,b,y", *rows]) + "\n")
    os.chdir(tmp_path)
    agt(
        "start", "t.csv", "label=y", "id=none", f"public={public}", "purpose=answers", "eps=1"
    ).ended(0)
