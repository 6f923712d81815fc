"""agt audit prediction: agt predict end to end on neighbouring runs; what it finds, refuses, and
leaves behind.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agt.mechanisms.mechanism import Mechanism
from agt_audit.release_sandbox import ReleaseSandbox

from .conftest import Agt, Said

HEAD = (
    *(
        "dataset=digits",
        "model=linear",
        "training=generic",
        "training.loss=binary_cross_entropy",
        "certificate=stability",
    ),
    *(
        "training.clip=0.5",
        "training.epochs=20",
        "training.lr=4",
        "training.decay=0",
        "training.chosen_on=public",
    ),
)
BLOBS = (
    "model=linear",
    "training.decay=0",
    "compute.kernel=reference",
    "training.chosen_on=public",
)
RUNS = {
    "head": HEAD,
    "remove": (*BLOBS, "dataset.n_train=80", "training.epochs=1", "kgrid.max=3", "relation=remove"),
    "replaced": (
        *HEAD,
        "training.lr=3",
        "ensemble.members=3",
        "compute.threads=1",
        "relation=substitute",
    ),
}
RESPONSE = ("mechanism=randomized_response", "mechanism.eps=1")
Run = Callable[[str], Path]
SMALL = ("audit.trials=400", "audit.targets=1")
# draws are the operating system's: at 95 % a sound release fails one test in twenty
SURE = "confidence=0.999999"


@pytest.fixture(scope="module")
def run(trained_as: Callable[..., Path]) -> Run:
    """The folder of a finished training run by its name in RUNS."""
    return lambda name: trained_as(name, RUNS[name])


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
    return not [
        n
        for n in names
        if n.startswith(".stage") or n.endswith(".ledger") or n in ("labels.csv", "spent.json")
    ]


def test_a_head_end_to_end(audit: Audit, run: Run, agt: Agt) -> None:
    before = {path: path.read_bytes() for path in run("head").rglob("*") if path.is_file()}
    said = audit("head", *RESPONSE, *SMALL, SURE, "audit.together=2", "--json").ended(0)
    findings = said.json["audit"]["findings"]
    assert {each["outcome"] for each in findings} <= {"not contradicted", "not tested"}
    assert all(
        "drawn" in each["effort"] or "all the same" in each["effort"]
        for each in findings
        if each["outcome"] == "not tested"
    )
    notes = said.json["audit"]["notes"]
    assert any("chosen among 1 neighbouring dataset" in note for note in notes)
    assert len(findings) == 2
    one, several = findings
    assert 0 < one["found"] <= 1
    assert several["claimed"] > 1
    assert nothing_left()
    assert not Path("ledgers").exists()
    assert before == {path: path.read_bytes() for path in run("head").rglob("*") if path.is_file()}
    listed = agt("runs", "--json").json["runs"]
    assert [each["command"] for each in listed] == ["audit"]


@pytest.mark.sweep
def test_an_ensemble_under_substitution(audit: Audit) -> None:
    audit("replaced", *RESPONSE, SURE, "audit.trials=400", "audit.targets=1", "--json").ended(0)


# -- a release path that is broken on purpose


def test_labels_without_noise_are_caught(
    audit: Audit, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("head")  # trained before anything is broken
    monkeypatch.setattr(
        Mechanism, "release", lambda self, predictions, *others: predictions.astype(np.int64)
    )
    said = audit("head", *RESPONSE, "audit.trials=400", "audit.targets=1", "--json").ended(3)
    violated = [each for each in said.json["audit"]["findings"] if each["outcome"] == "violated"]
    assert "from the run's data" in violated[0]["attack"]


# -- what is refused, and what is left

REFUSED = {
    ("head", "mechanism=randomized_response"): "no privacy budget",
    (
        "head",
        "mechanism=release_weights",
        "mechanism.mu=1",
    ): "`agt audit prediction` can only audit mechanisms that release labels",
    (
        "head",
        *RESPONSE,
        "audit.trials=12",
    ): "too few to contradict the claimed epsilon of 1 with confidence 0.975: set audit.trials=",
    ("remove", *RESPONSE): "condition g",
}


@pytest.mark.parametrize("line", REFUSED, ids=" ".join)
def test_refused(line: tuple[str, ...], audit: Audit) -> None:
    said = audit(*line).ended(2)
    assert REFUSED[line] in said.err
    assert nothing_left()


def test_an_interrupted_audit_leaves_nothing(
    audit: Audit, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def interrupted(self: ReleaseSandbox, *others: object) -> np.ndarray:
        seen.extend(self.folder.iterdir())
        raise KeyboardInterrupt

    run("head")
    monkeypatch.setattr(ReleaseSandbox, "draw_labels", interrupted)
    audit("head", *RESPONSE, *SMALL, SURE).ended(130)
    assert len(seen) > 2
    assert nothing_left()
