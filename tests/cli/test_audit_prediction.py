"""agt audit prediction: agt predict end to end on neighbouring runs; what it finds, refuses, and leaves behind."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agt.ledger.book import Charge
from agt.ledger.ledger import Questions
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import RandomizedResponse
from agt_cli.audit.prediction import Counters, Stage
from agt_cli.cli import main
from agt_cli.releasing.payer import LedgerPayer, Receipt

from .conftest import Agt, Said

HEAD = (
    *("dataset=digits", "model=linear", "training=generic", "training.loss=binary_cross_entropy", "certificate=stability"),
    *("training.clip=0.5", "training.epochs=20", "training.lr=4", "training.decay=0", "training.chosen_on=public"),
)
BLOBS = ("model=linear", "training.decay=0", "compute.kernel=reference", "training.chosen_on=public")
RUNS = {
    "head": HEAD,
    "remove": (*BLOBS, "dataset.n_train=80", "training.epochs=1", "kgrid.max=3", "relation=remove"),
    "replaced": (*HEAD, "training.lr=3", "ensemble.members=3", "compute.threads=1", "relation=substitute"),
}
RESPONSE = ("mechanism=randomized_response", "mechanism.eps=1")
Run = Callable[[str], Path]
SMALL = ("audit.trials=400", "audit.targets=1")
SURE = "confidence=0.999999"  # draws are the operating system's: at 95 % a sound release fails one test in twenty
ADVERSARIES = ["natural records, natural query", "natural records, chosen query"]
COUNTED = (
    "the ledger is debited exactly what is claimed",
    "a repeated question is answered as before, and free",
    "a second mechanism's cost is added to the first's",
    "a single label is debited",
    "which questions are refused follows from the counter alone",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The folder of a finished training run by its name in RUNS, trained when first asked for."""
    home = tmp_path_factory.mktemp("trained")

    def folder(name: str) -> Path:
        if not (home / name).exists():
            assert main(["train", *RUNS[name], f"hydra.run.dir={home / name}", "-q", "--json"]) == 0
        return home / name

    return folder


@pytest.fixture
def audit(agt: Agt, run: Run) -> Callable[..., Said]:
    """``agt audit prediction`` of the run of that name."""

    def ask(name: str, *arguments: str) -> Said:
        return agt("audit", "prediction", f"run={run(name)}", *arguments, "-q")

    return ask


Audit = Callable[..., Said]


def nothing_left(place: Path = Path()) -> bool:
    """No neighbouring run, test ledger or label lies anywhere below a folder."""
    names = {path.name for path in place.rglob("*")}
    return not [n for n in names if n.startswith(".stage") or n.endswith(".ledger") or n in ("labels.csv", "spent.json")]


def test_a_head_end_to_end(audit: Audit, run: Run, agt: Agt) -> None:
    before = {path: path.read_bytes() for path in run("head").rglob("*") if path.is_file()}
    said = audit("head", *RESPONSE, *SMALL, SURE, "audit.poisons=6", "audit.together=2", "--json").ended(0)
    findings = said.json["audit"]["findings"]
    certain = {each["claim"] for each in findings if each["strength"] == "certain"}
    assert certain == set(COUNTED)
    assert {each["outcome"] for each in findings} <= {"not contradicted", "not tested"}
    assert all(
        "drawn" in each["effort"] or "all the same" in each["effort"]
        for each in findings
        if each["outcome"] == "not tested"
    )
    folder = next(Path("outputs/audit").iterdir())
    table = pd.read_csv(folder / "tables/adversaries.csv")
    assert [name for name in table["adversary"] if "poison" not in name] == ADVERSARIES
    assert [name.split(", ")[1] for name in table["adversary"] if "poison" in name] == ["natural query", "chosen query"]
    assert not (table["found"] > 1).any()
    assert (table["found"][1:] > 0).all()
    assert not table["found"][0] >= table["found"][1], "less, or nothing: both models answer all natural queries alike"
    assert nothing_left()
    assert not Path("ledgers").exists()
    assert before == {path: path.read_bytes() for path in run("head").rglob("*") if path.is_file()}
    listed = agt("runs", "--json").json["runs"]
    assert [each["command"] for each in listed] == ["audit"]
    report = (folder / "report.md").read_text()
    assert "no ledger of yours was opened" in report
    assert "for the data owner alone" in report


@pytest.mark.sweep
def test_an_ensemble_under_substitution(audit: Audit) -> None:
    audit("replaced", *RESPONSE, SURE, "audit.trials=400", "audit.targets=1", "audit.poisons=0", "--json").ended(0)


# -- a release path that is broken on purpose --------------------------------------------------------------------------


def test_labels_without_noise_are_caught(audit: Audit, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("head")  # trained before anything is broken
    monkeypatch.setattr(Mechanism, "release", lambda self, predictions, *others: predictions.astype(np.int64))
    said = audit("head", *RESPONSE, "audit.trials=400", "audit.targets=1", "audit.poisons=0", "--json").ended(3)
    violated = [each for each in said.json["audit"]["findings"] if each["outcome"] == "violated"]
    assert "natural records, chosen query" in violated[0]["attack"]


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The release path as it is."""


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """Every question is a new one."""
    patch.setattr(LedgerPayer, "questions", lambda self, about, features: Questions(range(len(features)), {}))


def generous(patch: pytest.MonkeyPatch) -> None:
    """Every lot has one answer more than is debited."""
    debit = LedgerPayer.debit

    def more(self: LedgerPayer, charge: Charge, wanted: int) -> Receipt:
        return replace(debit(self, charge, max(wanted - 1, 1)), size=wanted)

    patch.setattr(LedgerPayer, "debit", more)
    patch.setattr(LedgerPayer, "keep", lambda self, receipt, answers: answers)


def arbitrary(patch: pytest.MonkeyPatch) -> None:
    """How much fits depends on something else than the counter."""
    debit, calls = LedgerPayer.debit, count()
    patch.setattr(LedgerPayer, "debit", lambda self, charge, wanted: debit(self, charge, min(wanted, 5 + next(calls) % 2)))


DEBITED, FREE, ADDED, SINGLE, REFUSED_BY = COUNTED
BROKEN = {nothing: set(), forgetful: {DEBITED, FREE}, generous: {DEBITED, ADDED}, arbitrary: {REFUSED_BY}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_a_ledger_that_counts_otherwise_is_caught(
    breaks: Callable[[pytest.MonkeyPatch], None], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, queries = run("head"), np.random.default_rng(0).random((20, 64))
    breaks(monkeypatch)
    with Stage.below(tmp_path, {"compute": {}}) as stage:
        opened = stage.open(folder, None)
        findings = Counters(stage, (opened, opened), RandomizedResponse(eps=1.0), queries).findings()
    assert [finding.claim for finding in findings] == list(COUNTED)
    assert BROKEN[breaks] <= {finding.claim for finding in findings if finding.violated}
    assert breaks is not nothing or not any(finding.violated for finding in findings)
    assert nothing_left(tmp_path)


# -- what is refused, and what is left ---------------------------------------------------------------------------------

REFUSED = {
    ("head", "mechanism=randomized_response"): "no budget",
    ("head", "mechanism=release_weights", "mechanism.mu=1"): "audit prediction is of labels",
    ("head", *RESPONSE, "audit.trials=12"): "too few to contradict epsilon 1 with confidence 0.95 over 8 events",
    ("remove", *RESPONSE): "condition g",
    ("head", *RESPONSE, "audit.scratch=nowhere"): "audit.scratch=nowhere: neighbouring runs and test ledgers cannot be",
}


@pytest.mark.parametrize("line", REFUSED, ids=" ".join)
def test_refused(line: tuple[str, ...], audit: Audit) -> None:
    said = audit(*line).ended(2)
    assert REFUSED[line] in said.err
    assert nothing_left()


def test_an_interrupted_audit_leaves_nothing(
    audit: Audit, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []

    def interrupted(self: Stage, *others: object) -> np.ndarray:
        seen.append((len(list(self.folder.iterdir())), self.folder.is_relative_to(tmp_path / "local")))
        raise KeyboardInterrupt

    (tmp_path / "local").mkdir()
    run("head")
    monkeypatch.setattr(Stage, "drawn", interrupted)
    audit("head", *RESPONSE, *SMALL, SURE, "audit.poisons=0", f"audit.scratch={tmp_path / 'local'}").ended(130)
    assert seen[0][0] > 2
    assert seen[0][1]
    assert nothing_left(tmp_path)
