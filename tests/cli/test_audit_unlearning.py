"""agt audit unlearning and memorisation on small runs: what is found, what is caught, and that
the run stays as it was.
"""

import csv
import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from agt_audit import unlearning
from agt_audit.forget_sets import Attack, ForgetSets
from agt_audit.memorisation import INFLUENCE, InOutCounts, difference_finding
from agt_cli.report.findings import Outcome
from agt_cli.unlearn import erasure
from agt_cli.unlearn.methods import ErasureJob, sisa

from .conftest import Agt

TABLE = (
    *(
        "dataset=table",
        "dataset.path=t.csv",
        "dataset.id=person",
        "dataset.label=y",
        "dataset.classes=[no,yes]",
    ),
    *(
        "+dataset.numeric={a: [-3, 3], b: [-3, 3]}",
        "dataset.declared_size=120",
        "dataset.bins=0",
        "kgrid.max=20",
    ),
    *(
        "dataset.id_permanent=true",
        "dataset.from_data=[]",
        "compute.threads=1",
        "training.chosen_on=public",
    ),
)
HEAD = (*TABLE, "certificate=removal", "training.weight_decay=0.05", "certificate.sigma=0.05")
QUICK = (
    "audit.trials=1",
    "audit.releases=400",
    "audit.records=4",
    "audit.queries=50",
    "confidence=0.999999",
    "-q",
)


@pytest.fixture(autouse=True)
def few_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last, which looks: all of them are drawn in tests/unit."""
    every = ForgetSets.attacks

    def two(sets: ForgetSets, by_shard: bool = False) -> list[Attack]:
        attacks = list(every(sets, by_shard))
        return [attacks[0], attacks[-1]]

    monkeypatch.setattr(ForgetSets, "attacks", two)


def train(agt: Agt, *settings: str) -> Path:
    rng = np.random.default_rng(0)
    rows = [(f"q{i}x", *rng.normal(size=2).clip(-3, 3).round(3)) for i in range(160)]
    with Path("t.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("person", "a", "b", "y"))
        table.writerows(
            (*row, "yes" if row[1] + row[2] / 2 + rng.normal() / 2 > 0 else "no") for row in rows
        )
    agt("train", *settings, "hydra.run.dir=run", "-q").ended(0)
    return Path("run")


def files(folder: Path) -> dict[str, str]:
    return {
        str(path): sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def audited() -> Path:
    (folder,) = Path("outputs/audit").iterdir()
    return folder


def findings() -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads((audited() / "audit.json").read_text())["findings"]
    return listed


def test_methods_of_a_removal_head_pass_and_the_run_stays(agt: Agt) -> None:
    before = files(train(agt, *HEAD))
    agt("audit", "unlearning", "run=run", *QUICK).ended(0)
    assert files(Path("run")) == before
    assert not list(audited().glob(".copies-*"))
    outcomes = {
        (str(each["subject"]).split()[0], each["measure"]): each["outcome"] for each in findings()
    }
    assert outcomes["method=newton", "epsilon"] == "not contradicted"
    assert outcomes["method=newton", "distance/claimed"] == "not contradicted"
    assert outcomes["method=retrain", "values that differ"] == "not contradicted"
    assert "method=sisa" not in {method for method, _ in outcomes}, "this run is none"
    assert outcomes["method=certificate", "-"] == "not tested"
    assert "certificate=removal" in (audited() / "report.md").read_text()
    assert "x," not in (audited() / "tables/attacks.csv").read_text(), "no record is named"


def test_an_ensemble_passes_and_a_method_that_keeps_the_shard_is_caught(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(train(agt, *TABLE, "ensemble.members=3", "training.lr=0.5", "training.epochs=3"))
    said = agt("audit", "unlearning", "run=run", "audit.methods=[certificate,sisa]", *QUICK).ended(
        0
    )
    assert [each["outcome"] for each in findings()] == ["not contradicted"] * 2

    def forgetful(job: ErasureJob, record, console):  # type: ignore[no-untyped-def]
        """Trained again, and then the members of before are written over it."""
        removal = sisa(job, record, console)
        for name in job.run.manifest.files:
            if name.startswith("members/") and name.endswith("model.safetensors"):
                record.write(name, job.run.read(name))
        return removal

    monkeypatch.setitem(erasure.METHODS, "sisa", forgetful)
    said = agt(
        "audit", "unlearning", "run=run", "audit.methods=[sisa]", "hydra.run.dir=caught", *QUICK
    ).ended(3)
    assert "VIOLATED" in said.err
    assert json.loads(Path("caught/audit.json").read_text())["findings"][0]["outcome"] == "violated"
    assert files(Path("run")) == before


def test_interrupted_it_leaves_neither_copies_nor_changes(
    agt: Agt, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(train(agt, *HEAD))

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(unlearning, "erase", stop)
    agt("audit", "unlearning", "run=run", *QUICK).ended(130)
    assert files(Path("run")) == before
    assert not list(Path("outputs").rglob(".copies-*"))


def test_without_its_data_nothing_is_unlearned(agt: Agt) -> None:
    train(agt, *HEAD)
    Path("t.csv").unlink()
    assert "t.csv" in agt("audit", "unlearning", "run=run", *QUICK).ended(4).err


@pytest.mark.parametrize(("models", "enough"), [(80, False), (84, True)])
def test_influence_is_counted_where_the_clearest_pair_would_be_sure(
    models: int, enough: bool
) -> None:
    sure = InOutCounts(*(np.array([models / 4 * share]) for share in (1, 1, 0, 1)))
    finding = difference_finding(INFLUENCE, sure, 20_000, 0.95, "all models", "No more.")
    assert (finding.outcome, finding.found) == (
        (Outcome.REPORTED, 1.0) if enough else (Outcome.UNTESTED, None)
    )
    assert ("84" in finding.meaning) != enough
    assert bool(finding.noticeable) == enough


def test_memorisation_is_reported(agt: Agt) -> None:
    train(agt, *TABLE, "model=linear")
    few = ("audit.shadows=4", "audit.workers=1", "audit.targets=5")
    agt("audit", "memorisation", "run=run", *few, "-q").ended(0)
    first, second = findings()
    for finding in (first, second):
        assert (finding["outcome"], finding.get("found")) == ("not tested", None)
    with (audited() / "tables/memorised.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50
    assert all(row["id"].endswith("x") for row in rows)
