"""agt predict mechanism=objective_perturbation or noisy_statistics: from a run's records to
weights that answer alone.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from agt import release
from agt.errors import AgtError
from agt.mechanisms import objective
from agt_cli.cli import main
from cli.conftest import Agt

TABLE = (
    "dataset=table",
    "dataset.path=data.csv",
    "dataset.label=label",
    "dataset.id=id",
    "dataset.classes=[a,b]",
)
DATA = (
    *TABLE,
    "dataset.id_permanent=true",
    "+dataset.numeric={x: [-5, 5]}",
    "dataset.declared_size=200",
    "model=linear",
    "kgrid.max=3",
)
HEAD = (
    "training=generic",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.momentum=0",
)
HOW = (
    *HEAD,
    "training.epochs=1",
    "training.decay=0",
    "training.weight_decay=0.05",
    "training.chosen_on=public",
)
ERM = ("train", *DATA, *HOW, "certificate=erm")
VOTES = ("certificate=votes", "ensemble.members=5")
OBJECTIVE = "mechanism=objective_perturbation"
TOTAL = ("total.eps=2", "total.delta=1e-5")
SUMS = "mechanism=noisy_statistics"


def table(rows: range) -> str:
    lines = (f"p{i * 37 % 1000},{i % 7 - 3 + 2 * (i % 2) - 1},{'ab'[i % 2]}\n" for i in rows)
    return f"id,x,label\n{''.join(lines)}"


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, runs trained on it, and a file of queries; nobody changes anything here."""
    home = tmp_path_factory.mktemp("objective")
    before = Path.cwd()
    os.chdir(home)
    Path("data.csv").write_text(table(range(200)))
    Path("queries.csv").write_text("id,x\nq1,-4\nq2,0.5\nq3,4\n")
    kinds = {
        "erm": (),
        "stability": ("certificate=stability",),
        "votes": VOTES,
        "flips": ("certificate=votes", "relation=flip"),
        "unsized": (*VOTES, "dataset.declared_size=null"),
    }
    try:
        for name, more in kinds.items():
            assert main([*ERM, *more, f"hydra.run.dir={name}", "-q", "--json"]) == 0, name
    finally:
        os.chdir(before)
    return home


@pytest.fixture
def home(agt: Agt, tmp_path: Path, trained_here: Path) -> Path:
    """The same, in the working directory of a test's own."""
    shutil.copytree(trained_here, tmp_path, dirs_exist_ok=True)
    return tmp_path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("mechanism", "run"),
    [(OBJECTIVE, "erm"), (OBJECTIVE, "votes"), (SUMS, "stability"), (SUMS, "votes")],
)
def test_released_from_the_records_and_verified(
    agt: Agt, home: Path, mechanism: str, run: str
) -> None:
    """Twice: fresh noise each time.

    The folder answers alone, and an auditor works both noises out again.
    """
    weights = []
    for name in ("first", "second"):
        said = agt(
            "predict",
            f"run={run}",
            "inputs=queries.csv",
            mechanism,
            *TOTAL,
            "force=true",
            f"hydra.run.dir={name}",
            "--json",
        )
        assert said.code == 0, said.err
        assert "(2, 1e-05)-differentially private" in " ".join(said.json["words"][:2])
        assert read(home / name / "env.json")["training_data"] == "read"
        assert read(home / name / "conditions.json")[2]["standing"] == "declared", (
            "the size, which votes do without"
        )
        weights.append(np.load(home / name / "release" / "weights.npz")["weight"])
        assert agt("verify", name).code == 0
    assert (weights[0] != weights[1]).all()
    assert (
        agt("predict", "release=first/release", "inputs=queries.csv", "hydra.run.dir=alone").code
        == 0
    )
    assert (home / "alone" / "labels.csv").read_text() == (
        home / "first" / "labels.csv"
    ).read_text()
    assert agt("verify", "first/release").code == 0


def test_an_auditor_sees_that_a_claim_beside_votes_leaves_out_what_the_head_rests_on(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(release, "weaker_conditions", lambda head, known: tuple(known))
        assert (
            agt("predict", "run=votes", OBJECTIVE, *TOTAL, "force=true", "hydra.run.dir=less").code
            == 0
        )
    said = agt("verify", "less", "--json", "-q").ended(3)
    assert {check["check"] for check in said.json["checks"] if check["state"] == "PROBLEM"} == {
        "claim",
        "conditions",
    }


def test_votes_forget_whom_their_run_has_erased(agt: Agt, home: Path) -> None:
    """What is drawn from the run is drawn as from one that never had the record; so is the
    plan's number.
    """
    rows = (home / "data.csv").read_text().splitlines(keepends=True)
    gone = rows.pop(4)
    (home / "less.csv").write_text("".join(rows))
    (home / "ids.txt").write_text(gone.partition(",")[0])
    assert agt("unlearn", "run=votes", "ids=ids.txt", "-q").code == 0
    assert agt(*ERM, *VOTES, "dataset.path=less.csv", "hydra.run.dir=never", "-q").code == 0
    drawn = []
    for run in ("votes", "never", "erm"):
        said = agt(
            "predict",
            f"run={run}",
            "inputs=queries.csv",
            OBJECTIVE,
            *TOTAL,
            "seed=1",
            f"hydra.run.dir=from_{run}",
        )
        assert said.code == 0, said.err
        drawn.append(load_file(home / f"from_{run}" / "released_weights.safetensors")["weight"])
    assert (drawn[0] == drawn[1]).all()
    assert abs(drawn[0] - drawn[2]).max() > 1e-3, "which the record had a part in"


@pytest.mark.parametrize(("mechanism", "noise"), [(OBJECTIVE, "tilt"), (SUMS, "gram")])
def test_an_auditor_sees_other_noise_than_the_constants_make(
    agt: Agt, home: Path, mechanism: str, noise: str
) -> None:
    from records import reseal

    assert (
        agt("predict", "run=erm", mechanism, *TOTAL, "force=true", "hydra.run.dir=edited").code == 0
    )
    path = home / "edited" / "released_weights.json"
    path.write_text(json.dumps(read(path) | {noise: 1.0}))
    reseal(home / "edited")
    said = agt("verify", "edited", "--json", "-q").ended(3)
    (broken,) = (check for check in said.json["checks"] if check["state"] == "PROBLEM")
    assert noise in broken["words"]
    assert "1.0" in broken["words"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ("run=stability",),
            ("certificate=stability does not compute a minimiser", "train with certificate=erm"),
        ),
        (("run=erm", "total.eps=0.02"), ("eps = 0.02", "mechanism.weight_decay=0.06263 or more")),
        (("run=erm", "total.delta=0"), ("give total.delta",)),
        (("run=erm", "counting=index"), ("counting=index has no effect",)),
        (
            ("run=erm", "total.eps=null"),
            ("no privacy budget", "or mechanism.eps and mechanism.delta"),
        ),
        (
            ("run=votes", "total.eps=0.02"),
            ("eps = 0.02", "mechanism.weight_decay=0.06263 or more"),
        ),
        (("run=votes", "counting=index"), ("counting=index has no effect",)),
        (
            ("run=votes", "mechanism=release_weights"),
            ("mechanism=release_weights releases the weights of one linear head",),
        ),
        (
            ("run=unsized",),
            ("condition c", "dataset.declared_size"),
        ),
        (("run=flips",), ("relation=flip with unit_rows=1",)),
    ],
)
def test_refused(agt: Agt, home: Path, words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    said = agt("predict", OBJECTIVE, *TOTAL, *words, "inputs=queries.csv")
    assert said.code == 2
    assert all(part in said.err for part in parts), said.err
    assert not list(home.glob("outputs/predict/*/spent.json"))


def test_a_weight_decay_of_its_own(agt: Agt, home: Path) -> None:
    given = (
        "total.eps=0.02",
        "total.delta=1e-5",
        "mechanism.weight_decay=0.06263",
        "force=true",
        "hydra.run.dir=own",
    )
    assert agt("predict", "run=erm", OBJECTIVE, *given).code == 0
    assert agt("verify", "own").code == 0


def test_other_records_than_those_trained_on_are_refused(
    agt: Agt, home: Path, trained_here: Path
) -> None:
    """The run knows where its data lay."""
    data = trained_here / "data.csv"
    asked = ("predict", "run=erm", "inputs=queries.csv", OBJECTIVE, *TOTAL)
    whole = data.read_text()
    try:
        data.write_text(table(range(150)))
        changed = agt(*asked)
        data.unlink()
        (home / "data.csv").unlink()
        gone = agt(*asked)
    finally:
        data.write_text(whole)
    assert (changed.code, gone.code) == (2, 4)
    assert "the data lack" in changed.err, changed.err
    assert not list(home.glob("outputs/predict/*/spent.json"))


def test_while_an_erasure_waits_nothing_is_released(agt: Agt, home: Path) -> None:
    (home / "ids.txt").write_text("p111\n")
    assert agt("unlearn", "run=erm", "ids=ids.txt", "method=certificate").code == 0
    agt("predict", "run=erm", "inputs=queries.csv", OBJECTIVE, *TOTAL).ended(2, "agt unlearn run=")


@pytest.mark.parametrize("run", ["erm", "votes"])
def test_a_ledger_pays_each_release_and_a_failed_one_stays_spent(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    assert (
        agt(
            "ledger",
            "init",
            "people",
            f"run={run}",
            "total.eps=4.5",
            "total.delta=1e-3",
            "unit=one person",
        ).code
        == 0
    )
    paid = (f"run={run}", "inputs=queries.csv", OBJECTIVE, *TOTAL, "ledger=people")

    def fails(*about: object) -> np.ndarray:
        raise AgtError("the gradient's norm stayed at 1: nothing is released")

    with monkeypatch.context() as patched:
        patched.setattr(objective, "solve", fails)
        said = agt("predict", *paid, "hydra.run.dir=failed")
    assert said.code == 1
    assert "at 1: " in said.err
    assert (home / "failed" / "spent.json").exists()
    assert not (home / "failed" / "released_weights.safetensors").exists()
    assert agt("predict", *paid, "hydra.run.dir=paid").code == 0
    assert read(home / "paid" / "claim.json")["account"]["spent"]["pure"].startswith("3.99999")
    assert agt("predict", *paid).code == 3, "two of 2, one of them failed, leave no third of 4.5"


def test_a_plan_names_it_beside_the_others(agt: Agt, home: Path) -> None:
    said = agt(
        "plan",
        "run=erm",
        "eps=[0.3]",
        "queries=[10]",
        "mechanisms=[gaussian_margin]",
        "--json",
        "-q",
    )
    assert said.code == 0, said.err
    expected = {row["mechanism"]: row["expected_accuracy"] for row in said.json["table"]}
    assert expected.keys() == {
        "gaussian_margin",
        "release_weights",
        "objective_perturbation",
        "noisy_statistics",
    }
    assert expected["objective_perturbation"] > expected["release_weights"]
    assert (
        expected["noisy_statistics"]
        == max(expected.values())
        == pytest.approx(said.json["metrics"]["majority_rate"])
    )
    advised, _, _ = said.json["recommendation"].partition("). ")
    assert not any(name in advised for name in expected), "as good is one answer to all"
    assert expected["noisy_statistics"] > expected["release_weights"]
    said = agt(
        "plan",
        "run=votes",
        "eps=[0.3]",
        "queries=[10]",
        "mechanisms=[gaussian_argmax]",
        "--json",
        "-q",
    )
    beside = {row["mechanism"]: row["expected_accuracy"] for row in said.json["table"]}
    assert beside.keys() == {"gaussian_argmax", "objective_perturbation", "noisy_statistics"}
    assert beside["objective_perturbation"] == pytest.approx(
        expected["objective_perturbation"], abs=1e-6
    )


@pytest.mark.sweep
def test_audits_attack_what_is_released(agt: Agt, home: Path) -> None:
    """By itself, and on neighbours of runs, whose two sides differ in what goes into the draws."""
    mechanism = (OBJECTIVE, "mechanism.eps=1", "mechanism.delta=1e-5")
    by_itself = agt(
        "audit", "weights", *mechanism, "confidence=0.9999", "audit.trials=40", "--json"
    ).ended(0)
    findings = read(Path(by_itself.json["run"]) / "audit.json")["findings"]
    assert any("likelihood ratio" in str(finding) for finding in findings)
    for run in ("erm", "votes"):
        replayed = agt(
            "audit", "replay", f"run={run}", *mechanism, "audit.neighbours=2", "--json"
        ).ended(0)
        findings = read(Path(replayed.json["run"]) / "audit.json")["findings"]
        assert {finding["outcome"] for finding in findings} == {"not contradicted"}
        shares = [
            finding["found"] for finding in findings if finding["measure"] == "deviation/bound"
        ]
        assert max(shares) > 0.01


def test_a_ledger_is_debited_the_mu_of_noisy_statistics(agt: Agt, home: Path) -> None:
    """Before the sums are taken: what fails then stays spent."""
    assert (
        agt(
            "ledger",
            "init",
            "people",
            "run=stability",
            "total.eps=3",
            "total.delta=1e-4",
            "unit=one person",
        ).code
        == 0
    )
    paid = ("predict", "run=stability", "inputs=queries.csv", SUMS, "ledger=people")
    assert agt(*paid, "mechanism.mu=0.5", "hydra.run.dir=paid").code == 0
    assert float(read(home / "paid" / "claim.json")["account"]["spent"]["square"]) == pytest.approx(
        0.25
    )
    assert agt(*paid, "mechanism.mu=0.7").code == 3
