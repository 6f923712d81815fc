"""What a ledger says of its budget, its tables and its second head."""

import re
from pathlib import Path

import pytest
from ledgers import DATA, charge, new, people

from agt.errors import CheckError
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.tables import AdmittedTable
from agt.ledger.unit import Unit
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP
from agt.mechanisms.statistics import NoisyStatistics

CUSTOMER = Unit("customer", 4)


def test_a_refusal_says_what_would_fit(tmp_path: Path) -> None:
    with new(tmp_path, population=people(0.5)) as ledger:
        with pytest.raises(
            Exhausted, match=r"a release that is 0\.5-differentially private would still fit"
        ):
            ledger.debit(charge(0.7), 1)
        ledger.debit(charge(0.5), 1)
        with pytest.raises(
            Exhausted,
            match="no release of this kind fits into the rest of the budget, however small its eps",
        ):
            ledger.debit(charge(1e-3), 1)
    with (
        new(tmp_path / "other", population=people(0.5)) as ledger,
        pytest.raises(Exhausted, match="this release uses Gaussian noise, which needs"),
    ):
        ledger.debit(charge(GaussianDP(0.1)), 1)
    with new(tmp_path / "third", population=people(0.5, 1e-6)) as ledger:
        with pytest.raises(
            Exhausted,
            match=r"a release that is \(.*, 1e-07\)-diff.* would still fit|no release of this kind",
        ):
            ledger.debit(charge(ApproximateDP(2.0, 1e-7)), 1)
        with pytest.raises(
            Exhausted,
            match=r"a release that is 0\.\d+-Gaussian differentially private would still fit",
        ) as error:
            ledger.debit(charge(GaussianDP(3.0)), 1)
        fits = float(
            re.findall(
                r"a release that is ([\d.]+)-Gaussian differentially private would",
                str(error.value),
            )[0]
        )
        assert ledger.debit(charge(GaussianDP(fits)), 1).size == 1


def test_a_refusal_of_gaussian_noise_names_a_total_that_fits(tmp_path: Path) -> None:
    with new(tmp_path, population=people(3, 1e-5)) as ledger:
        ledger.debit(charge(GaussianDP(0.2)), 1)
        with pytest.raises(Exhausted) as error:
            ledger.debit(charge(GaussianDP(5.0)), 1)
        typed = re.search(r"total\.eps=(\S+) total\.delta=([^)\s]+)", str(error.value))
        assert typed is not None
        eps, delta = map(float, typed.groups())
        assert 2 < eps < 3
        assert "5-Gaussian differentially private (which alone spends about eps = " in str(
            error.value
        )
        fitting = NoisyStatistics.within(eps, delta)
        assert ledger.debit(charge(fitting.guarantee), 1).size == 1


def test_a_release_that_exceeds_a_whole_budget_is_not_blamed_on_what_is_spent(
    tmp_path: Path,
) -> None:
    with new(tmp_path, population=people(0.5)) as ledger:
        with pytest.raises(Exhausted, match="although nothing of it is spent yet"):
            ledger.debit(charge(1.0), 1)
        ledger.debit(charge(0.25), 1)
        with pytest.raises(Exhausted, match=r"because eps = 0\.25 is already spent"):
            ledger.debit(charge(1.0), 1)


def test_claims_say_what_a_unit_is_in_each_table(tmp_path: Path) -> None:
    with new(tmp_path / "a") as ledger:
        ledger.admit(AdmittedTable("accounts", "e" * 32))
        assert (
            "in each of the tables customers, accounts, each record is one customer. The units "
            "of all" in ledger.claim_sentences()[0]
        )
    tables = [AdmittedTable("visits", DATA, unit=CUSTOMER)]
    with Ledger.create(tmp_path / "b.ledger", people(), tables=tables) as ledger:
        assert ledger.unit == "one customer (up to 4 records)"
        line = "the records of one unit (up to 4) have the same value in column customer"
        assert line in ledger.claim_sentences()[0]
        ledger.admit(AdmittedTable("accounts", "e" * 32), "one customer")
        ledger.admit(AdmittedTable("more", "f" * 32, unit=Unit("customer", 2)))
        assert (
            "in the table accounts, each record is one customer; in the table more, a unit is one "
            "customer, and the records" in ledger.claim_sentences()[0]
        )
        assert ledger.unit == (
            "one customer (at most 4 of the records in visits, 1 of the records in accounts, 2 of "
            "the records in more)"
        )


def test_claims_say_that_the_budget_is_that_of_one_ledger(tmp_path: Path) -> None:
    with new(tmp_path) as ledger:
        assert "the budget is that of this ledger alone" in ledger.claim_sentences()[1]


def test_claims_say_that_a_table_is_about_other_people(tmp_path: Path) -> None:
    tables = [AdmittedTable("customers", DATA, apart=True)]
    with Ledger.create(tmp_path / "loans.ledger", people(), tables=tables) as ledger:
        assert (
            "The people of this ledger are not those in the other ledgers of the same folder"
            in ledger.claim_sentences()[0]
        )


@pytest.mark.parametrize("named", [False, True])
def test_a_head_that_was_left_over_may_be_deleted(tmp_path: Path, named: bool) -> None:
    head = tmp_path / "stick.head"
    with new(tmp_path, head=head if named else None) as ledger:
        path = ledger.path
        older = ledger.path.read_bytes()
    with Ledger.open(path) as ledger:
        if named:
            ledger.debit(charge(), 1)
        else:
            ledger.move_head(head)
    path.write_bytes(older)
    with pytest.raises(CheckError) as refused:
        Ledger.open(path, head)
    assert ("delete the head file, and type the command again" in str(refused.value)) is not named


def test_claims_say_where_the_second_head_was(tmp_path: Path) -> None:
    old, new_head, last = (tmp_path / name for name in ("old.head", "new.head", "last.head"))
    with new(tmp_path, head=old) as ledger:
        path = ledger.path
        ledger.move_head(new_head)
        words = ledger.claim_sentences()
        assert any(
            re.match(rf"entry 3 \(of \S+\) moved the head file from {old}", w) for w in words
        )
    new_head.unlink()
    Ledger.replace_head(path, last)
    with Ledger.open(path) as ledger:
        assert any("entry 4 created a new head file" in line for line in ledger.claim_sentences())


def test_a_spent_budget_is_not_said_to_lack_the_smallest_release(tmp_path: Path) -> None:
    with new(tmp_path, population=people(0.5)) as ledger:
        ledger.debit(charge(0.5), 1)
        with pytest.raises(Exhausted, match="for any release of this kind, because eps = ") as said:
            ledger.debit(charge(1e-15), 1)
        assert "e-15" not in str(said.value)
