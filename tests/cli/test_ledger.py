"""agt ledger init|show|verify|admit, as somebody keeps an account with it."""

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agt.ledger.book import Charge
from agt.ledger.ledger import Ledger
from agt.mechanisms.guarantees import GaussianDP
from agt_cli.cli import main
from agt_cli.start.ledger_proposal import LedgerProposal

from .conftest import TINY, Agt, Said

BUDGET = ("total.eps=1", "total.delta=1e-5")
PEOPLE = Path("ledgers/people.ledger")


def environment(run: Path) -> dict[str, str]:
    value = json.loads((run / "env.json").read_text())
    assert isinstance(value, dict)
    return value


def moves_in_claim(said: Said) -> list[dict[str, Any]]:
    """What the claim of a release says of moves of its ledger's head file."""
    claim = json.loads((Path(said.ended(0).json["run"]) / "claim.json").read_text())
    moved: list[dict[str, Any]] = claim["account"]["ledger"]["moved"]
    return moved


def spend(run: Path, size: int, path: str = "ledgers/people.ledger") -> None:
    data = environment(run)["data_digest"]
    charge = Charge(
        GaussianDP(0.01), "labels", "gaussian_margin", "sha256:" + "a" * 64, data, "add_remove"
    )
    with Ledger.open(Path(path)) as ledger:
        ledger.answer(ledger.debit(charge, size), {bytes([n]) * 32: n % 2 for n in range(size)})


def test_a_day_of_it(agt: Agt, trained: Path, tmp_path: Path) -> None:
    made = agt(
        "ledger",
        "init",
        "people",
        f"run={trained}",
        *BUDGET,
        "unit='one customer'",
        "head=away.head",
    ).ended(0)
    for value in ("ledgers/people.ledger", "eps = 1", "delta = 1e-05", "one customer", "1e-06"):
        assert value in made.out
    nothing = agt("ledger", "show", "people", "--json").ended(0).json
    assert (nothing["debits"], nothing["eps_so_far"]) == ([], 0)
    spend(trained, 20)
    shown = agt("ledger", "show", "people").ended(0)
    for value in ("eps = 1", "delta = 1e-05", "mu = 0.01", "gaussian_margin"):
        assert value in shown.out
    assert str(Path("ledgers/people.ledger")) in shown.err
    assert "head=COUNT:HASH" in shown.err
    told = agt("ledger", "show", "people", "--json").json
    assert (told["entries"], told["answers"], told["debits"][0]["size"], told["exit_code"]) == (
        4,
        20,
        20,
        0,
    )
    assert told["population"]["unit"] == "one customer"
    assert told["population"]["allowance"] == {"eps": 1, "delta": 1e-5, "leaks": 0.1}
    assert told["more_of_the_last"] > 0
    assert 0 < told["eps_so_far"] < 1
    assert told["second_head"] == str(tmp_path / "away.head")
    verified = agt("ledger", "verify", "people", f"head={told['head'][:24]}", "--json").json
    assert (verified["verified"], verified["entries"], verified["head"]) == (True, 4, told["head"])
    agt("ledger", "verify", "ledgers/people.ledger", "head=away.head").ended(0)
    assert [path.name for path in tmp_path.iterdir()] != ["outputs"]
    assert not (tmp_path / "outputs" / "ledger").exists(), "no run folder"
    assert sorted(path.name for path in (tmp_path / "ledgers").iterdir()) == ["people.ledger"]


def test_a_new_ledger_without_a_delta_says_what_it_cannot_pay_for(
    agt: Agt, trained: Path, tmp_path: Path
) -> None:
    said = agt("ledger", "init", "people", f"run={trained}", "total.eps=1").ended(0)
    assert "no weights (noisy_statistics, release_weights)" in said.err
    (tmp_path / "ledgers" / "people.ledger").unlink()
    # What the line proposes works.
    again = agt("ledger", "init", "people2", f"run={trained}", *BUDGET).ended(0)
    assert "no weights" not in again.err


def test_a_new_ledger_says_whom_it_protects_and_how_a_table_with_other_ids_is_admitted(
    agt: Agt, trained: Path
) -> None:
    made = agt("ledger", "init", "people", f"run={trained}", *BUDGET, "unit='one customer'")
    (line,) = [line for line in made.ended(0).out.splitlines() if "the ledger protects" in line]
    assert "one customer" in line
    agt("train", "dataset=digits", "model=linear", "training.epochs=1", "-q").ended(0)
    typed = line[line.index("agt ledger admit") :].replace("FOLDER", "latest")
    agt(*shlex.split(typed)[1:]).ended(0)
    assert len(agt("ledger", "show", "people", "--json").ended(0).json["tables"]) == 2


def test_what_is_wrong_ends_with_3(agt: Agt, trained: Path, tmp_path: Path) -> None:
    agt("ledger", "init", "people", f"run={trained}", *BUDGET, "head=away.head")
    path = tmp_path / "ledgers" / "people.ledger"
    older = path.read_bytes()
    spend(trained, 3)
    agt("ledger", "verify", "people", f"head=9:{'a' * 64}").ended(3)
    path.write_bytes(older)
    for verb in ("show", "verify"):
        said = agt("ledger", verb, "people", "--json")
        assert (said.code, said.json["exit_code"]) == (3, 3)
        assert "people.ledger" in said.json["error"]


def test_tables_share_their_people(agt: Agt, trained: Path, tmp_path: Path) -> None:
    agt("ledger", "init", "people", f"run={trained}", *BUDGET)
    agt("ledger", "init", "again", f"run={trained}", *BUDGET).ended(2, "ledgers/people.ledger")
    command = "agt ledger admit others run=FOLDER"
    agt("ledger", "init", "others", *BUDGET, "unit='one farm'").ended(0, command)
    agt("ledger", "admit", "others", f"run={trained}").ended(2, "ledgers/people.ledger")
    admitted = agt("ledger", "admit", "people", f"data={'e' * 32}", "table=accounts", "--json").json
    assert "accounts" in admitted["words"][0]
    third = ("ledger", "init", "third", *BUDGET, f"run={trained}", "relation=substitute")
    agt(*third).ended(2, "relation=add_remove")
    assert "outputs/train/" in agt("ledger", "admit", "people", "run=latest").err
    assert agt("ledger", "show", "people", "--json").json["entries"] == 3, (
        "what was admitted is admitted"
    )


def test_a_second_head_comes_later_moves_and_is_lost(agt: Agt, tmp_path: Path) -> None:
    agt("ledger", "init", "people", *BUDGET, "unit='one customer'")
    assert agt("ledger", "show", "people", "--json").json["second_head"] is None
    (tmp_path / "stick").mkdir()
    agt("ledger", "admit", "people", "head=stick").ended(0)
    assert (tmp_path / "stick" / "people.head").exists()
    noted = agt("ledger", "show", "people", "--json").json["head"]
    (tmp_path / "stick" / "people.head").rename(tmp_path / "elsewhere")
    agt("ledger", "show", "people").ended(3, "stick/people.head")
    path = "ledgers/people.ledger"
    assert agt("verify", path).code == 3, "nobody knows whether it is an older copy"
    copy = agt("verify", path, f"head={noted}", "--json").json
    stands = {check["check"]: check["state"] for check in copy["checks"]}
    assert (copy["exit_code"], stands["noted head"], stands["second head"]) == (
        0,
        "ok",
        "not checked",
    )
    agt("verify", path, f"head=3:{noted[2:]}").ended(3)
    agt("verify", path, "head=elsewhere").ended(0)
    agt("ledger", "admit", "people", "head=next.head", "lost=true").ended(0)
    shown = agt("ledger", "show", "people", "--json").ended(0).json
    assert shown["second_head"] == str(tmp_path / "next.head")
    assert "entry 3" in str(shown["words"]), "which started a second head anew"


@pytest.fixture
def predict(agt: Agt, home: Path) -> Agt:
    """Releases labels of two queries on the ledger "people"."""
    Path("q.csv").write_text("x1,x2\n0.1,0.2\n-0.3,0.4\n")
    line = ("predict", f"run={home / 'box'}", "inputs=q.csv", "ledger=people", "force=true")
    return lambda *more: agt(*line, *(more or ("mechanism.eps=0.001",)))


@pytest.fixture
def late_head(
    agt: Agt, predict: Agt, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bytes:
    """A copy of a ledger from before its head file was added; the ledger was used since."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    said = agt("ledger", "init", "people", f"run={home / 'box'}", *BUDGET).ended(0)
    assert "agt ledger admit people head=FILE" in said.err
    older = PEOPLE.read_bytes()
    agt("ledger", "admit", "people", "head=late.head").ended(0)
    predict("mechanism.eps=0.002").ended(0)
    return older


def test_a_copy_from_before_the_head_file_was_added_pays_for_nothing(
    agt: Agt, predict: Agt, late_head: bytes
) -> None:
    PEOPLE.write_bytes(late_head)
    predict().ended(3, "late.head")
    lines = (
        ("ledger", "admit", "people", "head=other.head"),
        ("ledger", "admit", "people", "head=other.head", "lost=true"),
        ("ledger", "show", "people"),
        ("ledger", "verify", "people"),
        ("verify", str(PEOPLE)),
    )
    for line in lines:
        said = agt(*line)
        assert said.code in (2, 3), line
        assert "late.head" in said.err + said.out, line
    assert PEOPLE.read_bytes() == late_head


def test_a_copy_from_before_the_head_file_is_used_again_only_if_its_claims_say_so(
    agt: Agt, predict: Agt, late_head: bytes
) -> None:
    PEOPLE.write_bytes(late_head)
    Path("late.head").unlink()
    predict().ended(3, "late.head")
    agt("ledger", "admit", "people", "head=other.head", "lost=true").ended(0)
    (moved,) = moves_in_claim(predict("mechanism.eps=0.001", "--json"))
    assert moved["lost"] is True


def test_claims_say_since_which_entry_a_head_file_is_compared(
    predict: Agt, late_head: bytes
) -> None:
    (moved,) = moves_in_claim(predict("mechanism.eps=0.001", "--json"))
    assert moved["entry"] == 3
    assert "before" not in moved, "there was no head file before"


def test_looking_needs_no_place_to_write(agt: Agt, trained: Path, tmp_path: Path) -> None:
    agt("ledger", "init", "people", f"run={trained}", *BUDGET)
    (tmp_path / "file").touch()
    agt("ledger", "show", "people", "output_dir=file/x").ended(0)


def test_the_environment_may_insist_on_the_head(
    agt: Agt, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another ledger was put in the place of this one: it names no head, and whoever knows where
    it lies notices.
    """
    for name in ("one", "two"):
        agt(
            "ledger",
            "init",
            f"{name}/people.ledger",
            f"run={trained}",
            *BUDGET,
            *([f"head={name}.head"] if name == "one" else []),
        )
    ask = (
        "predict",
        f"run={trained}",
        "ledger=one/people.ledger",
        "mechanism.eps=0.01",
        "unproved=allow",  # because a condition does not hold, which is said first
    )
    (tmp_path / "one" / "people.ledger").write_bytes(
        (tmp_path / "two" / "people.ledger").read_bytes()
    )
    agt("ledger", "show", "one/people.ledger").ended(3, "one/people.ledger")
    Path(os.environ["XDG_STATE_HOME"], "agt/ledgers").unlink()
    agt("ledger", "show", "one/people.ledger").ended(0)
    monkeypatch.setenv("AGT_LEDGER_HEAD", "one.head")
    for line in (("ledger", "show", "one/people.ledger"), ask):
        agt(*line).ended(3, "one.head")


VISITS = (
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.classes=[no,yes]",
    "dataset.declared_size=64",
    "+dataset.numeric={a: [-4, 4]}",
    "dataset.id=id",
    "dataset.id_permanent=true",
    *TINY[:1],
    *TINY[2:],
    "training.chosen_on=public",
)
BY_CUSTOMER = ("dataset.unit=customer", "relation.unit_rows=4")


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One table of visits, four of each customer: a run that counts customers, and one that
    counts visits.
    """
    home = tmp_path_factory.mktemp("visits")
    rows = np.random.default_rng(0).normal(size=80).clip(-4, 4).round(3)
    columns = {
        "id": [f"v{n}" for n in range(80)],
        "customer": [f"c{n // 4}" for n in range(80)],
        "a": rows,
    }
    pd.DataFrame({**columns, "y": np.where(rows > 0, "yes", "no")}).to_csv(
        home / "t.csv", index=False
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for name, more in {"customers": BY_CUSTOMER, "visits": ()}.items():
            assert (
                main(["train", *VISITS, *more, f"hydra.run.dir={home / name}", "-q", "--json"]) == 0
            )
    return home


def test_a_ledger_of_customers_does_not_pay_for_a_run_that_counts_visits(
    agt: Agt, visits: Path
) -> None:
    agt("ledger", "init", "people", f"run={visits / 'customers'}", *BUDGET).ended(0)
    for more in ((), ("unit=one customer",)):
        agt("ledger", "admit", "people", f"run={visits / 'visits'}", *more).ended(
            2, "dataset.unit=customer", "relation.unit_rows=4"
        )
    agt("predict", f"run={visits / 'visits'}", "ledger=people", "mechanism.eps=0.01").ended(2)
    entry = {"unit": {"column": "customer", "rows": 4}}.items()
    paid = agt(
        "predict",
        f"run={visits / 'customers'}",
        "ledger=people",
        "mechanism.eps=0.01",
        "hydra.run.dir=paid",
        "--json",
    ).ended(0)
    assert entry <= agt("ledger", "show", "people", "--json").json["debits"][0].items()
    assert paid.json["exit_code"] == 0
    claim = json.loads(Path("paid/claim.json").read_text())
    account = claim["account"]
    assert (account["unit"], [table["rows"] for table in account["ledger"]["tables"]]) == (
        "one customer",
        [4],
    )
    assert claim["relation"]["unit_rows"] == 4


def uncounted(said: Said) -> set[str]:
    return set(re.findall(r"outputs/predict/[\w-]+", said.err))


def test_releases_that_no_ledger_counts_are_named(agt: Agt, visits: Path) -> None:
    run = f"run={visits / 'customers'}"
    for more in (("ledger=none",), ("accounting=paper", "seed=1")):
        agt("predict", run, "mechanism.eps=0.01", *more, "force=true", "-q").ended(0)
    (spent, _) = sorted(Path("outputs/predict").iterdir())
    agt("ledger", "init", "people", run, *BUDGET).ended(0, str(spent))
    agt("predict", run, "ledger=people", "mechanism.eps=0.01", "force=true", "-q").ended(0)
    assert uncounted(agt("ledger", "admit", "people", run)) == {str(spent)}
    (spent / "spent.json").write_text("[]")  # nobody can tell what it was
    assert uncounted(agt("ledger", "admit", "people", run).ended(0)) == {str(spent)}


def test_a_head_that_was_not_filled_in_is_refused(agt: Agt, visits: Path) -> None:
    run = f"run={visits / 'customers'}"
    agt("ledger", "init", "people", run, *BUDGET, "head=HEAD").ended(2, "replace HEAD")
    assert not Path("HEAD").exists()


def test_the_same_people_in_another_order_have_no_second_budget(
    agt: Agt, visits: Path, tmp_path: Path
) -> None:
    rows = pd.read_csv(visits / "t.csv").iloc[::-1]
    pd.concat([rows, rows[:1].assign(id="v80", customer="c99")]).to_csv("t.csv", index=False)
    agt("train", *VISITS, *BY_CUSTOMER, "hydra.run.dir=again", "-q").ended(0)
    agt("ledger", "init", "people", f"run={visits / 'customers'}", *BUDGET).ended(0)
    others = ("ledger", "init", "others", "run=again", *BUDGET)
    agt(*others).ended(2, "ledgers/people.ledger")
    assert not Path("ledgers/others.ledger").exists()
    agt("predict", "run=again", "mechanism.eps=0.01").ended(2, "ledger=people")
    agt(*others, "another_population=true").ended(0)
    paid = agt("predict", "run=again", "ledger=others", "mechanism.eps=0.01", "--json").ended(0)
    claim = json.loads((Path(paid.json["run"]) / "claim.json").read_text())
    assert [table["apart"] for table in claim["account"]["ledger"]["tables"]] == [True]
    (tmp_path / "away" / "ledgers").mkdir(parents=True)
    theirs = ("ledger", "init", "away/ledgers/theirs.ledger", "run=again", *BUDGET, "-q")
    agt(*theirs).ended(0, f"{tmp_path}/ledgers/people.ledger")
    Path("again/unlearning/key").write_bytes(b"another's")
    assert agt("predict", "run=again", "ledger=others", "mechanism.eps=0.01", "-q").code == 0, (
        "the key is its owner's"
    )
    uncompared = agt("ledger", "admit", "others", "run=again")
    assert f"{tmp_path}/ledgers/people.ledger" not in uncompared.err
    plain = agt(
        "ledger",
        "admit",
        "away/ledgers/theirs.ledger",
        f"data={'e' * 32}",
        "table=t",
        "unit=one customer",
    )
    assert "ledgers/people.ledger" in plain.err


def test_a_table_of_another_unit_is_declared_in_so_many_words(
    agt: Agt, visits: Path, trained: Path
) -> None:
    agt("ledger", "init", "people", f"run={visits / 'customers'}", *BUDGET)
    agt("ledger", "admit", "people", f"run={trained}").ended(2, "unit='one customer'")
    agt("ledger", "admit", "people", f"run={trained}", "unit=one person").ended(2, "one customer")
    assert agt("ledger", "show", "people", "--json").json["entries"] == 2
    agt("ledger", "admit", "people", f"run={trained}", "unit=one customer").ended(0)
    tables = agt("ledger", "show", "people", "--json").json["tables"]
    assert len({table["counts"] for table in tables}) == 2, "one counts each record by itself"
    agt(
        "ledger",
        "init",
        "rows",
        *BUDGET,
        "unit=one visit",
        f"data={'e' * 32}",
        "table=t",
        "unit_column=visit",
    ).ended(0)
    (table,) = agt("ledger", "show", "rows", "--json").json["tables"]
    assert "visit" in table["counts"]
    for more, words in (
        (("unit_rows=3",), "data=DIGEST"),
        (("unit_column=x", f"run={trained}"), "data=DIGEST"),
        (("unit=one visit", "head=away"), "unit=... only applies"),
        (("unit_rows=0", "unit_column=x", f"data={'f' * 32}", "table=t"), "unit_rows=0"),
    ):
        agt("ledger", "admit", "rows", *more).ended(2, words)


def test_what_draws_before_it_is_trained_carries_its_unit(agt: Agt, visits: Path) -> None:
    shutil.copy(visits / "t.csv", "t.csv")
    agt(
        "ledger", "init", "people", f"run={visits / 'customers'}", "total.eps=9", "total.delta=1e-3"
    ).ended(0)
    noise = (
        "train",
        *VISITS,
        "training=generic",
        "certificate=box",
        "training.chosen_on=public",
        "noise.epsilon=1",
        "noise.delta=1e-5",
        "ledger=people",
    )
    agt(*noise, BY_CUSTOMER[0], "relation.unit_rows=5", "-q", "--json").ended(0)
    agt(*noise, "dataset.unit=customer").ended(2)
    (debit,) = agt("ledger", "show", "people", "--json").json["debits"]
    assert debit["unit"] == {"column": "customer", "rows": 5}
    assert debit["mechanism"] == "noise in training"


def test_a_total_budget_pays_only_for_a_mechanism_that_was_named(
    agt: Agt, predict: Agt, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agt("ledger", "init", "people", f"run={home / 'box'}", *BUDGET).ended(0)
    predict("total.eps=0.1").ended(2, "mechanism=... is missing", "mechanism=noisy_statistics")
    line = ("predict", f"run={home / 'box'}", "inputs=q.csv", "force=true", "total.eps=0.1")
    monkeypatch.setenv("AGT_LEDGER", "people")
    agt(*line).ended(2, "mechanism=... is missing")
    agt(*line, "simulate=1", "ledger=none").ended(0)
    monkeypatch.delenv("AGT_LEDGER")
    predict("mechanism.eps=0.01").ended(0)
    predict("total.eps=0.1", "mechanism=randomized_response").ended(0)


def test_a_release_with_a_larger_delta_than_its_ledger_is_stopped_before_it_is_paid_for(
    agt: Agt, home: Path
) -> None:
    agt("ledger", "init", "people", f"run={home / 'box'}", *BUDGET).ended(0)
    Path("q.csv").write_text("x1,x2\n0.1,0.2\n-0.3,0.4\n")
    line = ("predict", f"run={home / 'box'}", "inputs=q.csv", "ledger=people", "total.eps=0.1")
    margins = (*line, "mechanism=gaussian_margin")
    agt(*margins, "total.delta=0.001").ended(2, "give total.delta=1e-05", "No budget was spent")
    assert agt("ledger", "show", "people", "--json").json["eps_so_far"] == 0
    agt(*margins, "total.delta=1e-5").ended(0)
    agt(*margins, "total.delta=0.001", "force=true").ended(0)


def test_a_proposed_release_has_at_most_the_delta_of_its_ledger(agt: Agt, home: Path) -> None:
    agt("ledger", "init", "people", f"run={home / 'box'}", "total.eps=1").ended(0)
    proposal = LedgerProposal.find(
        home / "box", "randomized_response", 1.0, 1e-5, np.array(["a", "b"])
    )
    assert (proposal.name, proposal.eps, proposal.delta(1e-5)) == ("people", 1.0, "0")
    assert LedgerProposal().delta(1e-5) == "1e-05", "of a new ledger"
