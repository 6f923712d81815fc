"""agt predict under a ledger: debited before anything private is computed, stored answers free,
an end told exactly.
"""

import io
import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest
from ledger_costs import is_wrong_cost
from safetensors.numpy import load_file

from agt.errors import Busy
from agt.ledger.book import Population
from agt.ledger.ledger import Ledger
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance
from agt.mechanisms.guarantees import GaussianDP, Guarantee, PureDP
from agt.models.box import BoxModel
from agt_cli.report.record import RunRecord

from .conftest import TINY, Agt, Said
from .test_spending import QUANTILE, WEIGHTS, child

EACH = ("mechanism.eps=0.1",)
POINTS = np.random.default_rng(0).normal(size=(10, 2)).round(3)


def open_ledger(
    run: Path, eps: float, delta: float = 0.0, name: str = "people", relation: str = "add_remove"
) -> Path:
    """A ledger for the data of a run, in the working directory."""
    path = Path(f"ledgers/{name}.ledger")
    table = AdmittedTable("table", json.loads((run / "env.json").read_text())["data_digest"])
    Ledger.create(
        path, Population(name, "one person", relation, Allowance(eps, delta)), tables=[table]
    ).close()
    return path


def entries(path: Path, kind: str) -> list[dict[str, Any]]:
    with Ledger.open(path) as ledger:
        return [dict(entry.body) for entry in ledger.entries() if entry.kind == kind]


def points(rows: np.ndarray, name: str = "q.csv") -> str:
    pd.DataFrame(rows, columns=["x1", "x2"]).to_csv(name, index=False)
    return f"inputs={name}"


Ask = Callable[..., Said]


@pytest.fixture
def ask(agt: Agt, home: Path) -> Ask:
    """``agt predict`` from the box run on the ledger of people."""
    return lambda *more: agt("predict", f"run={home / 'box'}", "ledger=people", *more)


def uncounted(folder: Path) -> dict[str, Any]:
    """What a claim says of ledgers that do not count the release."""
    told: dict[str, Any] = json.loads((folder / "claim.json").read_text())["uncounted"]
    return told


def labels_of(said: Said) -> pd.DataFrame:
    folder = re.search(r"^labels: (.+)/labels\.csv$", said.out, re.M)
    assert folder, said.out + said.err
    return pd.read_csv(Path(folder[1]) / "labels.csv", dtype=str)


def test_a_repeated_question_gets_its_stored_answer_free(ask: Ask, home: Path) -> None:
    path = open_ledger(home / "box", 10)
    rows = np.concatenate([POINTS, POINTS[:3]])
    first = ask(points(rows), *EACH, "--json", "-q").json
    assert first["metrics"]["answered"] == 13
    assert first["labels"][:3] == first["labels"][10:], "asked once, paid once"
    assert [entry["size"] for entry in entries(path, "debit")] == [10]
    again = ask(points(rows[::-1]), *EACH, "--json", "-q").json
    assert again["labels"] == first["labels"][::-1]
    assert (again["metrics"]["stored"], again["metrics"]["unanswered"]) == (13, 0)
    assert len(entries(path, "debit")) == 1
    assert not (Path(again["run"]) / "spent.json").exists(), "nothing was drawn"
    assert not (Path(again["run"]) / "claim.json").exists(), "nothing is claimed anew"
    other = ask(points(rows), "mechanism.eps=0.2", "--json", "-q").json
    assert other["metrics"]["stored"] == 0, "another eps is another question"
    assert [entry["size"] for entry in entries(path, "debit")] == [10, 10]
    spent = json.loads((Path(other["run"]) / "spent.json").read_text())
    last = entries(path, "answers")[-1]
    assert (spent["ledger"]["population"], spent["ledger"]["entry"]) == ("people", last["debit"])
    claim = json.loads((Path(other["run"]) / "claim.json").read_text())
    assert claim["account"]["entry"] == last["debit"]
    assert any(f"entry {last['debit']} " in line for line in other["words"])


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (
            "randomized_response",
            ("mechanism.eps=0.1", PureDP(0.1)),
            ("mechanism.eps=0.05", PureDP(0.05)),
        ),
        (
            "gaussian_margin",
            ("mechanism.mu=0.1", GaussianDP(0.1)),
            ("mechanism.mu=0.05", GaussianDP(0.05)),
        ),
    ],
)
def test_the_counter_stands_at_what_the_auditor_works_out(
    ask: Ask, home: Path, name: str, one: tuple[str, Guarantee], other: tuple[str, Guarantee]
) -> None:
    """After a call for a single label, after one in which questions are repeated, and after one
    of another budget.
    """
    path = open_ledger(home / "box", 10, 1e-5)
    paid = list[tuple[Guarantee, int]]()
    calls = [
        (one, POINTS[:1], 1),
        (one, np.concatenate([POINTS, POINTS[:3]]), 9),
        (other, POINTS, 10),
    ]
    for (budget, guarantee), rows, new in calls:
        ask(points(rows), f"mechanism={name}", budget, "-q").ended(0)
        paid.append((guarantee, new))
        with Ledger.open(path) as ledger:
            assert not is_wrong_cost(ledger.book.spent, *paid)


def test_a_first_lot_that_is_the_whole_budget_says_so(ask: Ask, home: Path) -> None:
    open_ledger(home / "box", 1.0, 1e-5)
    margin = ("mechanism=gaussian_margin", "total.eps=1", "total.delta=1e-5", "--json", "-q")
    whole = "It uses up this budget, so nothing more can be released"
    assert whole in " ".join(ask(points(POINTS[:5]), *margin).json["words"])
    assert ask(points(POINTS[5:]), "mechanism.eps=1e-6").code == 3
    Path("ledgers/people.ledger").unlink()
    Path(os.environ["XDG_STATE_HOME"], "agt/ledgers").unlink()
    open_ledger(home / "box", 1.1, 1e-5)
    assert whole not in " ".join(ask(points(POINTS[:5]), *margin).json["words"])


def test_the_budget_ends_in_mid_file(ask: Ask, home: Path) -> None:
    path = open_ledger(home / "box", 0.75)
    ask(points(POINTS[[1, 4]], "two.csv"), *EACH, "-q")
    ask(points(POINTS), *EACH).ended(2, "5 of the 8", "force=true")
    assert [entry["size"] for entry in entries(path, "debit")] == [2]
    said = ask(points(POINTS), *EACH, "force=true").ended(3)
    assert len(labels_of(said)) == 7
    folder = Path(re.search(r"^labels: (.+)/labels", said.out, re.M)[1])  # type: ignore[index]
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    for text in (said.err, (folder / "report.md").read_text()):
        for numbers in ("7 of 10", "8 to 10"):
            assert numbers in text
    again = ask(points(POINTS[::-1]), *EACH, "force=true", "--json", "-q")
    assert again.code == again.json["exit_code"] == 3
    assert again.json["metrics"]["answered"] == again.json["metrics"]["stored"] == 7
    assert "1 to 3" in again.json["error"]
    ask(points(POINTS[7:], "last.csv"), *EACH).ended(3)
    assert [entry["size"] for entry in entries(path, "debit")] == [2, 5]
    ask(points(POINTS[7:], "last.csv"), "mechanism.eps=0.02", "force=true")
    assert [entry["size"] for entry in entries(path, "debit")] == [2, 5, 2], (
        "what is cheaper still fits"
    )


def test_debited_before_anything_private_is_computed(
    ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_ledger(home / "box", 10)
    seen = []
    for name in ("certify", "predict"):
        real = getattr(BoxModel, name)

        def looked(self: BoxModel, *arguments: Any, real: Any = real, **more: Any) -> Any:
            seen.append(len(entries(path, "debit")))
            return real(self, *arguments, **more)

        monkeypatch.setattr(BoxModel, name, looked)
    assert ask(points(POINTS), *EACH).code == 0
    assert seen
    assert set(seen) == {1}
    seen.clear()
    assert ask(points(POINTS), "mechanism.eps=20", "inputs=missing.csv").code == 4
    assert ask(points(POINTS), "mechanism.eps=20").code == 3
    assert not seen, "what is not paid for is not looked at"
    assert len(entries(path, "debit")) == 1


def test_a_release_that_is_finished_needs_its_ledger_no_more(
    ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger(home / "box", 10)
    real = RunRecord.finish

    def finish(record: RunRecord) -> str:
        def busy(*_: object) -> None:
            raise Busy("another process has the ledger")

        monkeypatch.setattr(Ledger, "account", busy)
        return real(record)

    monkeypatch.setattr(RunRecord, "finish", finish)
    said = ask(points(POINTS), *EACH)
    assert said.code == 0, said.err
    assert len(labels_of(said)) == len(POINTS)


def test_killed_between_the_debit_and_the_answers(ask: Ask, home: Path) -> None:
    path = open_ledger(home / "box", 10)
    inputs = points(POINTS)
    kill = (
        "from agt.mechanisms.mechanism import Mechanism\nMechanism.release = lambda *_: "
        "os.kill(os.getpid(), 9)"
    )
    assert (
        child(kill, "predict", f"run={home / 'box'}", "ledger=people", inputs, *EACH).returncode
        == -9
    )
    assert [entry["size"] for entry in entries(path, "debit")] == [10]
    assert not entries(path, "answers")
    said = ask(inputs, *EACH).ended(0)
    assert "earlier attempt" not in said.out, "the ledger counts it"
    assert [entry["size"] for entry in entries(path, "debit")] == [10, 10]


@pytest.mark.parametrize(("name", "asked"), [("linear", WEIGHTS), ("box", QUANTILE)])
def test_weights_and_numbers_are_debited(
    agt: Agt, home: Path, name: str, asked: tuple[str, ...]
) -> None:
    path = open_ledger(home / name, 1.2, 2e-5)
    agt("predict", f"run={home / name}", "ledger=people", *asked, "hydra.run.dir=first").ended(0)
    (debit,) = entries(path, "debit")
    assert debit["size"] == 1
    assert json.loads(Path("first/spent.json").read_text())["ledger"]["entry"] == 3
    agt("predict", f"run={home / name}", "ledger=people", *asked).ended(3)
    if name == "linear":
        assert agt("predict", "release=first/release", points(POINTS)).code == 0
        said = agt("predict", "release=first/release", points(POINTS), "ledger=people")
        assert said.code == 2
        assert "ledger" in said.err
    assert len(entries(path, "debit")) == 1


def test_noise_in_training_is_debited_once_whatever_becomes_of_the_run(
    agt: Agt, home: Path
) -> None:
    noisy = ("train", *TINY, "training.chosen_on=public", "noise.epsilon=0.8")
    agt(*noisy[:-1], "ledger=people").ended(2, "ledger=people")
    path = open_ledger(home / "box", 0.9, 1e-4)
    agt(*noisy).ended(2, "ledger=people")
    agt("train", *TINY, "noise.epsilon=0.8", "ledger=people").ended(2, "condition e")
    assert not entries(path, "debit")
    kill = "from agt.models.box import BoxModel\nBoxModel.save = lambda *_: os.kill(os.getpid(), 9)"
    assert child(kill, *noisy, "ledger=people", "hydra.run.dir=killed").returncode == -9
    (debit,) = entries(path, "debit")
    assert (debit["guarantee"]["kind"], debit["output"], debit["run"][:5]) == (
        "gaussian",
        "weights",
        "draw:",
    )
    # what is paid stands in the ledger, whatever the run's folder says
    Path("killed/spent.json").unlink()
    said = agt("train", "resume=killed", "--json", "-q").ended(0)
    assert any("entry 3 " in line for line in said.json["words"])
    assert json.loads(Path("killed/spent.json").read_text())["ledger"]["entry"] == 3
    assert agt(*noisy, "ledger=people").code == 3
    assert agt(*noisy, "noise.seed=1").code == 0, "a simulation"
    assert len(entries(path, "debit")) == 1


def test_certificates_of_a_noisy_run_are_not_paid_for(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels take the noise as a public constant: whoever holds the noisy weights too holds two
    functions of one draw.
    """
    noisy = ("train", *TINY, "training.chosen_on=public", "noise.epsilon=0.8")
    assert agt(*noisy, "hydra.run.dir=before").code == 0
    path = open_ledger(home / "box", 9, 1e-4)
    assert agt(*noisy, "ledger=people", "hydra.run.dir=noisy").code == 0
    for run in ("noisy", "before"):
        for asked in (
            (points(POINTS), *EACH),
            QUANTILE,
            (points(POINTS), "mechanism=gaussian_margin", "mechanism.mu=0.1"),
        ):
            agt("predict", f"run={run}", "ledger=people", *asked).ended(2)
        content = io.TextIOWrapper(io.BytesIO(json.dumps({"features": [1, 2]}).encode()))
        monkeypatch.setattr(sys, "stdin", content)
        said = agt("predict", f"run={run}", "ledger=people", "inputs=-", *EACH)
        assert said.code == 2
        place = f"hydra.run.dir=outside_{run}"
        outside = ("predict", f"run={run}", "ledger=none", points(POINTS), *EACH, place)
        agt(*outside, "force=true").ended(0)
        claim = json.loads(Path(f"outside_{run}/claim.json").read_text())
        assert (claim["uncounted"]["why"], claim["noisy"]) == ("declined", True)
    assert len(entries(path, "debit")) == 1


@pytest.mark.sweep  # its sibling kills a noisy run whose ledger knows of it
def test_a_noisy_run_that_goes_on_has_paid_only_where_the_ledger_says_so(
    agt: Agt, home: Path
) -> None:
    noisy = ("train", *TINY, "training.chosen_on=public", "noise.epsilon=0.8", "ledger=people")
    path = open_ledger(home / "box", 9, 1e-4)
    older = path.read_bytes()
    kill = "from agt.models.box import BoxModel\nBoxModel.save = lambda *_: os.kill(os.getpid(), 9)"
    assert child(kill, *noisy, "hydra.run.dir=killed").returncode == -9
    whole = path.read_bytes()
    assert len(entries(path, "debit")) == 1
    for content in (older, None):
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        if content:
            path.write_bytes(content)
        agt("train", "resume=killed").ended(
            3 if content else 2, "spent.json" if content else str(path)
        )
    path.write_bytes(whole)


def test_data_on_an_account_is_not_released_beside_it(
    agt: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = f"run={home / 'box'}"
    inputs = points(POINTS)
    agt("predict", run, inputs, *EACH, "hydra.run.dir=free").ended(0)
    assert uncounted(Path("free"))["why"] == "unnamed"
    path = open_ledger(home / "box", 2)
    agt("predict", run, inputs, *EACH).ended(2, "ledger=people")
    assert agt("predict", run, inputs, *EACH, "seed=1").code == 0, "a simulation"
    agt("predict", run, inputs, *EACH, "ledger=none", "hydra.run.dir=outside").ended(0)
    assert uncounted(Path("outside"))["why"] == "declined"
    assert "people" in str(uncounted(Path("outside"))["ledgers"])
    assert not entries(path, "debit")
    monkeypatch.setenv("AGT_LEDGER", "people")
    paid, again = (
        Path(agt("predict", run, inputs, *EACH, "--json").ended(0).json["run"]) for _ in range(2)
    )
    assert len(entries(path, "debit")) == 1
    assert agt("predict", run, inputs, *EACH, "seed=1", "hydra.run.dir=drawn").code == 0
    assert "ledger" not in json.loads((Path("drawn") / "env.json").read_text()), (
        "a simulation opens none"
    )
    monkeypatch.delenv("AGT_LEDGER")
    for folder in (paid, again):
        assert f"└── ledger {path}: note" in agt("verify", str(folder)).ended(0).out, (
            "the record says which ledger paid"
        )
    assert agt("predict", run, inputs, *EACH, "seed=1", "ledger=people").code == 0
    assert len(entries(path, "debit")) == 1
    monkeypatch.setenv("AGT_LEDGER", "")
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS entries_stay")
        connection.execute("UPDATE entries SET text = replace(text, 'people', 'others')")
    said = agt("predict", run, inputs, *EACH)
    assert said.code != 0, "nobody knows whether the data is in it"
    assert "people.ledger" in said.err


def test_a_total_that_cannot_be_is_refused_before_it_is_paid(ask: Ask, home: Path) -> None:
    path = open_ledger(home / "box", 1, 1e-4)
    leaking = (
        "mechanism=propose_test_release",
        "mechanism.eps=0.001",
        "mechanism.delta=1e-7",
        "total.delta=1e-7",
    )
    ask(points(POINTS), *leaking).ended(2, "total.delta")
    assert not entries(path, "debit")


def test_a_copy_of_a_ledger_does_not_have_the_budget_once_more(ask: Ask, home: Path) -> None:
    path = open_ledger(home / "box", 1)
    shutil.copy(path, "ledgers/copy.ledger")
    for name, other in (("people", "copy"), ("copy", "people")):
        ask(points(POINTS), *EACH, f"ledger={name}").ended(2, f"{other}.ledger")
    assert not list(Path("outputs/predict").rglob("spent.json"))
    Path("ledgers/copy.ledger").rename("ledgers/copy.backup")
    assert ask(points(POINTS), *EACH).code == 0


def test_what_a_ledger_does_not_pay_for(agt: Agt, ask: Ask, home: Path) -> None:
    inputs = points(POINTS)
    ask(inputs, *EACH).ended(2, "ledgers/people.ledger")
    open_ledger(home / "box", 1, name="people", relation="substitute")
    said = ask(inputs, *EACH)
    assert (said.code, "relation=substitute" in said.err) == (2, True)
    other = Path("ledgers/other.ledger")
    with Ledger.create(other, Population("other", "one person", "add_remove", Allowance(1))):
        ask(inputs, *EACH, "ledger=other").ended(2, "agt ledger admit")
    shutil.rmtree("ledgers")
    Path(os.environ["XDG_STATE_HOME"], "agt/ledgers").unlink(missing_ok=True)
    assert agt("train", *TINY, "hydra.run.dir=unproved", "-q", "--json").code == 0
    open_ledger(Path("unproved"), 1)
    unproved = ("predict", "run=unproved", inputs, *EACH, "ledger=people", "accounting=paper")
    agt(*unproved).ended(2, "unproved=allow", "unproved=refuse")
    assert not list(Path("outputs/predict").rglob("labels.csv"))
    assert "no privacy budget" in ask(inputs).err


def test_a_full_disk_costs_nothing_before_the_debit_and_is_told_after_it(
    ask: Ask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agt.store.atomic import Pending

    path = open_ledger(home / "box", 10)
    real = Pending.opened
    full = "spent.json"

    def opened(self: Pending) -> AbstractContextManager[BinaryIO]:
        if self.path.name == full:
            raise OSError(28, "No space left on device", str(self.path))
        return real(self)

    monkeypatch.setattr(Pending, "opened", opened)
    ask(points(POINTS), *EACH).ended(1, "spent.json", "entry 3")
    full = "labels.csv"
    ask(points(POINTS), *EACH).ended(1, "labels.csv", "spent.json", "entry 4")
    full = ""
    value = ask(points(POINTS), *EACH, "--json", "-q").json
    assert value["metrics"]["stored"] == 10, "drawn, remembered, and not written"
    assert len(entries(path, "debit")) == 2


def test_released_weights_are_paid_as_they_are_claimed_and_all_of_them_noisy(
    agt: Agt, home: Path
) -> None:
    """By the files alone: the entry has the mu of the claim and its square, and no weight is the
    head's own.
    """
    run = home / "linear"
    path = open_ledger(run, 5, 1e-5)
    given = ("mechanism=release_weights", "mechanism.mu=0.3", "ledger=people")
    agt("predict", f"run={run}", *given).ended(0)
    (folder,) = Path("outputs/predict").iterdir()
    assert "0.3-Gaussian" in (folder / "claim.json").read_text()
    (debit,) = entries(path, "debit")
    assert (debit["guarantee"], debit["size"]) == ({"kind": "gaussian", "mu": 0.3}, 1)
    assert float(debit["spent"]["square"]) == pytest.approx(0.09)
    (mine,) = load_file(run / "model.safetensors").values()
    (released,) = load_file(folder / "released_weights.safetensors").values()
    assert mine.shape == released.shape
    assert (mine != released).all()
