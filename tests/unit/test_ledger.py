"""A ledger as its users know it: what it admits, keeps and says; and each rule that its chain is
checked by.
"""

import json
import math
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import DATA, charge, edited, keys, new, people, rewritten

from agt import sentences
from agt.errors import CheckError, ConfigError
from agt.ledger.book import Debit
from agt.ledger.chain import START, Entry, Head
from agt.ledger.descriptions import clock_warnings
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import Exhausted, Ledger, find_matching_table
from agt.ledger.ledger_list import put_on_list, similar_ledgers_warning
from agt.ledger.tables import AdmittedTable, hash_names, sample_names
from agt.ledger.unit import SINGLE_RECORDS, Unit
from agt.mechanisms.budget import Allowance, Cost, Lot, eps_so_far
from agt.mechanisms.guarantees import GaussianDP, PureDP
from agt.relations import RELATIONS
from agt.store.reading import Broken

# -- debits
# --------------------------------------------------------------------------------------------------


def test_a_debit_is_what_fits_and_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    with new(tmp_path) as ledger:
        assert (ledger.debit(charge(), 60).size, ledger.debit(charge(), 60).size) == (60, 40), (
            "0.01 a hundred times"
        )
        assert not ledger.population.allowance.admits(ledger.book.spent, Lot(PureDP(0.01)))
        head = ledger.book.last.head
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        assert ledger.book.last.head == head
        assert ledger.book.spent == Lot(PureDP(0.01), 60).cost.plus(Lot(PureDP(0.01), 40).cost)
        with pytest.raises(
            Exhausted,
            match=r"loans\.ledger.*= 1 .*\b0\.01-.*= 1 ",
        ):
            ledger.debit(charge(), 1)
        assert ledger.book.last.head == head, "a refusal leaves no entry"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loans.ledger"]
    assert (tmp_path / "loans.ledger").stat().st_mode & 0o777 == 0o600


def test_a_delta_of_almost_one_is_a_budget_too(tmp_path: Path) -> None:
    with new(tmp_path, population=people(0.5, 1 - 1e-12)) as ledger:
        ledger.debit(charge(), 1)
    Ledger.open(tmp_path / "loans.ledger").close()


@pytest.mark.parametrize("eps", [1e6, 1e6 - 1e-4])
def test_a_ledger_of_the_largest_budget_is_opened_again_after_a_debit(
    tmp_path: Path, eps: float
) -> None:
    with new(tmp_path, population=people(eps)) as ledger:
        ledger.debit(charge(), 1)
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        assert ledger.book.last.kind == "debit"


@pytest.mark.parametrize("wanted", [0, -1, True, 1.0, 2**60])
def test_a_lot_of_no_size_is_refused_before_anything_is_written(
    tmp_path: Path, wanted: Any
) -> None:
    with new(tmp_path) as ledger:
        with pytest.raises(ConfigError, match=str(wanted)):
            ledger.debit(charge(), wanted)
        assert ledger.book.last.number == 2


def test_what_is_refused_depends_on_the_entries_alone(tmp_path: Path) -> None:
    """Whatever the labels are, kept or not, the same debits give the same refusals."""
    sizes = []
    for name, labels in (("a", None), ("b", 0), ("c", 1)):
        with new(tmp_path / name) as ledger:
            told = []
            for lot in range(7):
                debit = ledger.debit(charge(), 15)
                told.append(debit.size)
                if labels is not None:
                    ledger.answer(debit, dict.fromkeys(keys(debit.size, 100 * lot), labels))
            sizes.append(told)
    assert sizes == [[15] * 6 + [10]] * 3


def test_data_and_relation_must_be_the_population_s(tmp_path: Path) -> None:
    with new(tmp_path) as ledger:
        with pytest.raises(
            ConfigError,
            match=r"e{32}.*customers.*run=FOLDER",
        ):
            ledger.debit(charge(data="e" * 32), 1)
        with pytest.raises(
            ConfigError,
            match=r"relation=substitute.*relation=add_remove",
        ):
            ledger.debit(charge(relation="substitute"), 1)
        with pytest.raises(ConfigError, match=r"e{32}"):
            ledger.check("add_remove", "e" * 32, SINGLE_RECORDS)
        ledger.check("add_remove", DATA, SINGLE_RECORDS)
        ledger.admit(AdmittedTable("accounts", "e" * 32))
        ledger.admit(AdmittedTable("accounts", "e" * 32))
        assert {data: table.name for data, table in ledger.book.tables.items()} == {
            DATA: "customers",
            "e" * 32: "accounts",
        }
        assert ledger.debit(charge(data="e" * 32), 1).entry.head.count == 4, (
            "admitting twice is admitting once"
        )
        (line, *_) = ledger.claim_sentences()
        assert "customers, accounts" in line
        assert "e" * 8 not in line, "claims hold no digests of data"


CUSTOMER = Unit("customer", 4)


def test_a_unit_covers_those_of_its_column_with_fewer_records() -> None:
    assert Unit("customer", 5).covers(CUSTOMER)
    assert CUSTOMER.covers(CUSTOMER)
    for other in (Unit("customer", 3), Unit("household", 4), SINGLE_RECORDS, Unit(None, 4)):
        assert not other.covers(CUSTOMER)
    assert not CUSTOMER.covers(SINGLE_RECORDS)
    for column, rows in ((7, 1), ("customer", 0), ("customer", True), ("customer", 1.5)):
        with pytest.raises(ConfigError, match="unit_"):
            Unit(column, rows)  # type: ignore[arg-type]
    assert "\x1b" not in str(Unit("\x1b[31m", 2))


def test_a_debit_protects_the_unit_that_its_table_was_admitted_with(tmp_path: Path) -> None:
    tables = [AdmittedTable("visits", DATA, unit=CUSTOMER)]
    with Ledger.create(tmp_path / "loans.ledger", people(), tables=tables) as ledger:
        for unit in (SINGLE_RECORDS, Unit("customer", 3), Unit("household", 4)):
            with pytest.raises(
                ConfigError,
                match=r"visits.*customer.*unit_rows=4",
            ):
                ledger.debit(charge(unit=unit), 1)
            with pytest.raises(ConfigError, match=r"visits.*customer"):
                ledger.check("add_remove", DATA, unit)
        assert ledger.book.last.number == 2
        assert (
            ledger.debit(charge(unit=CUSTOMER), 1).size
            == ledger.debit(charge(unit=Unit("customer", 9)), 1).size
            == 1
        )
        (counted,) = ledger.ledger_state_at(2).tables
        assert (counted.name, counted.unit, counted.rows) == ("visits", "customer", 4)


def test_a_table_that_counts_otherwise_must_be_declared(tmp_path: Path) -> None:
    other = AdmittedTable("accounts", "e" * 32)
    with Ledger.create(
        tmp_path / "loans.ledger", people(), tables=[AdmittedTable("visits", DATA, unit=CUSTOMER)]
    ) as ledger:
        for table in (other, AdmittedTable("moves", "e" * 32, unit=Unit("client", 4))):
            with pytest.raises(ConfigError, match=rf"{table.name} .*unit='one customer'"):
                ledger.admit(table)
            with pytest.raises(ConfigError, match=r"unit=.one client"):
                ledger.admit(table, "one client")
        assert ledger.book.last.number == 2
        ledger.admit(other, "one customer")
        ledger.admit(AdmittedTable("more", "f" * 32, unit=Unit("customer", 2)))
        (line, *_) = ledger.claim_sentences()
        assert ledger.book.last.body["declared"] == line, "the chain holds what claims say"
        counted = [(table.name, table.rows) for table in ledger.ledger_state_at(4).tables]
        assert counted == [("visits", 4), ("accounts", 1), ("more", 2)]
        assert ledger.debit(charge(data="e" * 32), 1).size == 1
    with (
        Ledger.create(tmp_path / "b" / "loans.ledger", people()) as ledger,
        pytest.raises(ConfigError, match="unit='one customer'"),
    ):
        ledger.admit(other)
    with Ledger.create(tmp_path / "c" / "loans.ledger", people(unit="one record")) as ledger:
        ledger.admit(other)
        assert ledger.ledger_state_at(2).tables[0].rows == 1


def test_the_same_people_are_counted_one_way(tmp_path: Path) -> None:
    file = ("f" * 64,)
    with Ledger.create(
        tmp_path / "loans.ledger", people(), tables=[AdmittedTable("visits", DATA, file, CUSTOMER)]
    ) as ledger:
        for table in (
            AdmittedTable("rows", DATA),
            AdmittedTable("rows", "e" * 32, file),
            AdmittedTable("fewer", "e" * 32, file, Unit("customer", 3)),
            AdmittedTable("homes", DATA, (), Unit("household", 4)),
        ):
            for told in (None, "one customer"):
                with pytest.raises(ConfigError, match=rf"{table.name}.*visits.*customer"):
                    ledger.admit(table, told)
        assert ledger.book.last.number == 2
        ledger.admit(AdmittedTable("visits", DATA, file, Unit("customer", 9)))
        assert ledger.book.last.number == 2, "it is admitted, with what it was promised"
        ledger.admit(AdmittedTable("again", "e" * 32, file, Unit("customer", 5)))
        assert ledger.book.last.number == 3


def test_data_as_it_was_before_an_erasure_is_closed(tmp_path: Path) -> None:
    """Whatever is put back, and whichever of the states in between the ledger never saw."""
    with new(tmp_path) as ledger:
        ledger.debit(charge(), 1)
        later = AdmittedTable("loans", "1" * 32, before=(DATA,))
        latest = AdmittedTable("loans", "3" * 32)
        for _ in range(2):
            ledger.admit(later)
        assert [entry.kind for entry in ledger.entries()].count("admit") == 2, "once each"
        ledger.debit(replace(charge(), data=later.data), 1)
        ledger.admit(latest)
        ledger.admit(replace(latest, before=(DATA, later.data, "2" * 32, latest.data)))
        ledger.debit(replace(charge(), data=latest.data), 1)
        for data in (DATA, later.data):
            with pytest.raises(ConfigError, match=rf"{data}.*entry \d"):
                ledger.debit(replace(charge(), data=data), 1)
        for data in (later.data, "2" * 32):
            with pytest.raises(ConfigError, match=rf"{data}.*entry \d"):
                ledger.admit(AdmittedTable("loans", data, before=(DATA,)))
        assert set(ledger.book.closed) == {DATA, later.data, "2" * 32}
    with (
        Ledger.open(tmp_path / "loans.ledger") as ledger,
        pytest.raises(ConfigError, match=rf"{DATA}.*entry \d"),
    ):
        ledger.check("add_remove", DATA, SINGLE_RECORDS)


def test_relations_that_go_one_way_have_no_budget() -> None:
    for name in RELATIONS:
        if name in ("add_remove", "substitute", "flip", "paper_privacy"):
            assert people(relation=name).relation == name
            continue
        with pytest.raises(ConfigError, match=f"relation={name}:"):
            people(relation=name)
    for key in ("name", "unit"):
        with pytest.raises(ConfigError, match=f"{key}="):
            people(**{key: " "})


def test_two_ledgers_of_a_folder_never_hold_the_same_people(tmp_path: Path) -> None:
    new(tmp_path).close()
    with pytest.raises(
        ConfigError,
        match=r"customers.*loans\.ledger",
    ):
        new(tmp_path, "again")
    assert not (tmp_path / "again.ledger").exists()
    with Ledger.create(tmp_path / "other.ledger", people(name="other")) as other:
        with pytest.raises(ConfigError, match=r"renamed.*loans\.ledger"):
            other.admit(AdmittedTable("renamed", DATA))
        other.admit(AdmittedTable("fine", "e" * 32, ("f" * 64,)), "one customer")
    with (
        Ledger.open(tmp_path / "loans.ledger") as ledger,
        pytest.raises(ConfigError, match=r"other\.ledger"),
    ):
        ledger.admit(AdmittedTable("same file, other preparation", "0" * 32, ("f" * 64,)))
    (tmp_path / "accounts.ledger").write_text("2026/01/01 bread\n")  # of another program
    new(tmp_path / "sub", "again").close()


def named(names: list[str], data: str, name: str = "customers", **others: Any) -> AdmittedTable:
    return AdmittedTable(name, data * 32, people=sample_names(np.array(names, str)), **others)


def test_the_strongest_sign_of_the_same_people_is_found(tmp_path: Path) -> None:
    names = [f"P{number:05d}" for number in range(300)]
    path = tmp_path / "loans.ledger"
    Ledger.create(path, people(), tables=[named(names, "a"), named([], "b")]).close()

    def shared(table: AdmittedTable, **compared: bool) -> tuple[str, bool] | None:
        match = find_matching_table(path, table, **compared)
        return None if match is None else (match.shared, match.by_names)

    assert shared(named(names, "b")) == ("data", False), "although an earlier table has the names"
    by_names = shared(named(names, "c"))
    assert by_names is not None
    assert by_names[1]
    assert shared(named(names, "c"), compare_names=False) is None
    assert shared(named([], "c")) is None
    assert shared(named([], "c"), compare_properties=True) == ("name", False)


def test_ledgers_in_other_folders_are_named_in_one_sentence(tmp_path: Path) -> None:
    names = [f"P{number:05d}" for number in range(300)]
    for number in range(6):
        data = "a" if number == 5 else "b"
        folder = tmp_path / f"team{number}"
        folder.mkdir()
        table = named(names, data)
        with Ledger.create(folder / "loans.ledger", people(), tables=[table]) as ledger:
            put_on_list(ledger)
    warning = similar_ledgers_warning(tmp_path / "mine" / "my.ledger", named(names, "a"))
    assert warning.index("team5") < warning.index("team0"), "the same data come first"
    assert "same data" in warning
    assert "same ids" in warning
    assert "3 more" in warning
    assert len(warning) < 200 + 3 * len(str(tmp_path / "team0/loans.ledger: same ids"))
    assert not similar_ledgers_warning(tmp_path / "mine" / "my.ledger", named(["x"], "c", name="d"))


def test_the_same_people_are_known_by_their_names(tmp_path: Path) -> None:
    names = [f"customer {number}" for number in range(3000)]
    with Ledger.create(tmp_path / "loans.ledger", people(), tables=[named(names, "a")]) as ledger:
        held = json.dumps([entry.body for entry in ledger.entries()])
        assert not any(name in held for name in named(names, "a").people), (
            "without the salt no guess can be tested"
        )
    few = names[:2]
    again: dict[str, list[str]] = {
        "another order, twice each": names[::-1] * 2,
        "one more": ["somebody", *names],
        "one less": names[1:],
        "a fifth": names[::5],
        "among others": names + [f"other {number}" for number in range(3000)],
    }
    for place, (what, some) in enumerate(again.items()):
        path = tmp_path / f"again {place}.ledger"
        with pytest.raises(
            ConfigError,
            match=r"\b256\b.*another_population=true",
        ):
            Ledger.create(path, people(), tables=[named(some, "b")])
        assert not path.exists(), what
    with Ledger.create(
        tmp_path / "b.ledger", people(), tables=[named(names[::-1], "b", apart=True)]
    ) as ledger:
        assert ledger.ledger_state_at(2).tables[0].apart
        assert ledger.book.last.body["declared"] == ledger.claim_sentences()[0]
    with Ledger.create(
        tmp_path / "c.ledger", people(), tables=[named([f"x{name}" for name in names], "c")]
    ) as ledger:
        # one name may stand for nobody
        ledger.admit(named([few[0], *(f"y{name}" for name in names)], "d"))
    with Ledger.create(tmp_path / "few" / "a.ledger", people(), tables=[named(few, "a")]):
        for some in (few, few[:1]):
            refusal = r"customers.*few/a\.ledger.*another_population=true"
            with pytest.raises(ConfigError, match=refusal):
                Ledger.create(tmp_path / "few" / "b.ledger", people(), tables=[named(some, "b")])
        Ledger.create(
            tmp_path / "few" / "b.ledger", people(), tables=[named([few[0], "x", "y"], "b")]
        ).close()


def test_other_populations_have_no_names_in_common_by_chance() -> None:
    salt = "5a" * 32
    found = Counter[bool]()
    for trial in range(40):
        one, two = (
            named([f"{side} {trial} {number}" for number in range(400)], side) for side in "ab"
        )
        found[bool(two.shared_people(replace(one, people=hash_names(one.people, salt)), salt))] += 1
    assert found == {False: 40}


# -- answers
# --------------------------------------------------------------------------------------------------


def test_answers_are_kept_once_and_given_again(tmp_path: Path) -> None:
    with new(tmp_path) as one, Ledger.open(one.path) as two:
        first = one.debit(charge(), 3)
        second = two.debit(charge(), 3)
        a, b, c, d = keys(4)
        assert one.answer(first, {a: 1, b: 0}) == {a: 1, b: 0}
        assert two.answer(second, {b: 1, c: 1}) == {b: 0, c: 1}, "whoever keeps it first"
        assert one.answer(first, {d: np.int64(5)}) == {d: 5}, "a lot may be answered in parts"
        with pytest.raises(ConfigError, match=r"entry 3 paid for 3 .*\b0\b.*\b1\b"):
            one.answer(first, {keys(1, 50)[0]: 1})
        assert one.answer(first, {a: 0}) == {a: 1}, "what is kept already takes no room"
        assert one.stored([d, *keys(9, 60), a]) == two.stored([a, d]) == {a: 1, d: 5}
        assert one.stored([]) == {}
        with pytest.raises(ConfigError, match=r"2:[0-9a-f]{64}"):
            one.answer(Debit(Entry(2, "debit", {}, START), charge(), 1), {keys(1, 51)[0]: 1})
        assert two.verify().answered == 4


def test_many_answers(tmp_path: Path) -> None:
    questions = keys(3000)
    with new(tmp_path, population=people(40.0)) as ledger:
        ledger.answer(
            ledger.debit(charge(), 3000), {key: place for place, key in enumerate(questions)}
        )
    with Ledger.open(tmp_path / "loans.ledger") as ledger:
        assert ledger.stored(questions) == {key: place for place, key in enumerate(questions)}


@pytest.mark.parametrize(
    ("statement", "at_once"),
    [
        ("UPDATE answers SET label = 1 - label WHERE number = 2", False),
        ("UPDATE answers SET key = x'00' WHERE number = 2", False),
        ("DELETE FROM answers WHERE number = 2", False),
        ("DELETE FROM answers WHERE number = 4", True),
        ("INSERT INTO answers VALUES (9, x'00', 1)", True),
        ("INSERT INTO answers VALUES (-1, x'00', 1)", False),
        ("UPDATE answers SET label = label + 0.5 WHERE number = 2", False),
    ],
)
def test_an_edited_answer_is_not_given_again(tmp_path: Path, statement: str, at_once: bool) -> None:
    questions = keys(4)
    with new(tmp_path) as ledger:
        ledger.answer(ledger.debit(charge(), 4), dict.fromkeys(questions, 1))
    edited(ledger.path, statement)
    if at_once:
        with pytest.raises(CheckError, match="answers"):
            Ledger.open(ledger.path)
        return
    with Ledger.open(ledger.path) as ledger:
        with pytest.raises(CheckError, match="answers"):
            ledger.verify()
        if "-1" not in statement:
            with pytest.raises(CheckError, match="answers"):
                ledger.stored(questions)


# -- the chain
# --------------------------------------------------------------------------------------------------


def lots(folder: Path, sizes: tuple[int, ...] = (5, 6, 7), head: Path | None = None) -> Path:
    """A ledger with some debits (entries 3, 4, 5) and an answer (6)."""
    with new(folder, head=head) as ledger:
        debits = [ledger.debit(charge(), size) for size in sizes]
        ledger.answer(debits[0], {keys(1)[0]: 1})
    return folder / "loans.ledger"


EDITS = {
    "an entry edited": (
        "UPDATE entries SET text = replace(text, 'labels', 'number') WHERE number = 4",
        "entry 4",
    ),
    "the last edited": (
        "UPDATE entries SET text = replace(text, ':\"20', ':\"30') WHERE number = 6",
        "entry 6",
    ),
    "a hash edited": (
        "UPDATE entries SET hash = upper(hash) WHERE number = 5",
        "entry 5",
    ),
    "an entry deleted": (
        "DELETE FROM entries WHERE number = 4",
        "entry 4",
    ),
    "the first deleted": ("DELETE FROM entries WHERE number = 1", "entry 1"),
    "all deleted": ("DELETE FROM entries", "entries"),
    "swapped": (
        "UPDATE entries SET number = CASE number WHEN 4 THEN -5 ELSE -4 END WHERE number IN (4, 5)",
        "entry 4.*5",
    ),
    "a blank": (
        "UPDATE entries SET text = text || ' ' WHERE number = 5",
        "entry 5",
    ),
    "a key twice": (
        "UPDATE entries SET text = '{\"a\":1,' || substr(text, 2) WHERE number = 5",
        "entry 5",
    ),
    "a blob": (
        "UPDATE entries SET text = CAST(text AS BLOB) WHERE number = 5",
        "entry 5",
    ),
    "a number": (
        "UPDATE entries SET text = 7 WHERE number = 5",
        "entry 5",
    ),
    "deep": (
        "UPDATE entries SET text = printf('%.*c', 100000, '[') WHERE number = 5",
        "entry 5",
    ),
    "one more": (
        "INSERT INTO entries VALUES (9, '', '{}')",
        "entry 7",
    ),
    "one before": (
        "INSERT INTO entries VALUES (-1, '', '{}')",
        "entry 1",
    ),
    "a nonsense one more": (
        "INSERT INTO entries VALUES (7, '', '{}')",
        "entry 7",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_chain_is_refused(tmp_path: Path, edit: str) -> None:
    path = lots(tmp_path)
    statements = [EDITS[edit][0]]
    if edit == "swapped":
        statements.append("UPDATE entries SET number = -number WHERE number < 0")
    edited(path, *statements)
    with pytest.raises(CheckError, match=EDITS[edit][1]) as error:
        Ledger.open(path)
    assert str(error.value).startswith(f"ledger={path}: ")


REWRITINGS = r"""
a cheaper debit | 4 | {"spent": {"pure": "0.05"}} | entry 4\b.*'0\.05'
a smaller lot | 4 | {"size": 1} | entry 4\b.*\b1\b
a size that is none | 4 | {"size": -6} | entry 4\b.*-6
a weaker guarantee | 4 | {"guarantee": {"kind": "pure", "eps": 0.001}} | entry 4\b.*'0\.11'
a smaller budget | 1 | {"population": {"allowance": {"eps": 0.1}}} | entry 4
spent before the first | 1 | {"spent": {"pure": "-1"}} | entry
spent by an answer | 6 | {"spent": {"pure": "0"}} | entry 6
spent by admitting | 2 | {"spent": {"pure": "0.1"}} | entry 2
another relation | 4 | {"relation": "remove"} | entry 4\b[^{]*$
data never admitted | 4 | {"data": "f"} | entry 4\b[^{]*$
a debit for less than the unit | 2 | {"unit": {"column": "customer"}} | entry 3
a unit that is none | 4 | {"unit": {"rows": 0}} | entry 4\b.*unit_rows=0
a debit that names no unit | 4 | {"unit": null} | entry 4\b.*'unit'
admitted twice | 3 | {"kind": "admit", "table": "x", "files": []} | entry 3
data that was replaced | 3 | REPLACING | entry 4\b[^{]*$
an unknown kind | 4 | {"kind": "gift"} | entry 4\b.*gift
another first | 1 | {"kind": "debit"} | entry
a population of removals | 1 | {"population": {"relation": "remove"}} | entry 1\b.*relation=remove
answers nobody paid for | 6 | {"debit": 2} | entry 6\b.*\(2\)
more answers than paid for | 6 | {"size": 6} | entry 6
an entry without a cost | 4 | {"spent": null} | entry 4\b.*'spent'
a cost of words | 4 | {"spent": {"pure": "x"}} | entry 4\b.*'x'
a body of words | 4 | {"guarantee": "pure"} | entry 4\b.*'pure'
"""
"""What is changed | the entry | a JSON merge patch (RFC 7386) of its body | what the
refusal names.
"""
REPLACING = {
    "kind": "admit",
    "data": "e" * 32,
    "table": "x",
    "files": [],
    "before": [DATA],
    "spent": Cost().as_json(),
}


def merged(body: Any, patch: Any) -> Any:
    """The body after a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    kept = {key: value for key, value in body.items() if patch.get(key, value) is not None}
    return kept | {
        key: merged(kept.get(key, {}), value) for key, value in patch.items() if value is not None
    }


@pytest.mark.parametrize(
    "rewriting", REWRITINGS.strip().splitlines(), ids=lambda row: row.partition(" |")[0]
)
def test_a_chain_that_was_rewritten_in_full_is_held_to_the_rules(
    tmp_path: Path, rewriting: str
) -> None:
    _, number, patch, message = rewriting.split(" | ")
    change = REPLACING if patch == "REPLACING" else json.loads(patch)
    path = lots(tmp_path)
    rewritten(path, lambda entry, body: body)
    Ledger.open(path).close()
    rewritten(path, lambda entry, body: merged(body, change) if entry == int(number) else body)
    with pytest.raises(CheckError, match=message):
        Ledger.open(path)


def test_a_cost_of_another_machine_s_last_digit_is_the_same(tmp_path: Path) -> None:
    path = lots(tmp_path)

    def rounded_otherwise(number: int, body: dict[str, Any]) -> dict[str, Any]:
        square = repr(float(body["spent"]["square"]) * (1 + 1e-15))
        return merged(body, {"spent": {"square": square}}) if number > 2 else body

    rewritten(path, rounded_otherwise)
    with Ledger.open(path) as ledger:
        assert ledger.debit(charge(), 1).size == 1


def test_a_clock_that_runs_backwards_is_told_and_changes_nothing(tmp_path: Path) -> None:
    path = lots(tmp_path)
    rewritten(
        path, lambda n, body: body | {"time": f"2026-01-0{9 if n == 4 else n}T00:00:00+00:00"}
    )
    with Ledger.open(path) as ledger:
        (told,) = clock_warnings(ledger.book)
        assert clock_warnings(ledger.verify()) == [told]
        assert re.findall(r"\d+", told) == ["4", "5"]
        assert ledger.debit(charge(), 1).entry.head.count == 7


@pytest.mark.parametrize("time", [None, 3, "", "yesterday", {}])
def test_a_time_that_is_none_changes_nothing(tmp_path: Path, time: object) -> None:
    path = lots(tmp_path)
    rewritten(path, lambda n, body: body | {"time": time})
    with Ledger.open(path) as ledger:
        assert ledger.debit(charge(), 1).entry.head.count == 7


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 2**60, "\ud800", {"\udfff": 1}, {1: 2}, b"bytes", ["\ud800"]]
)
def test_what_not_every_reader_reads_alike_is_never_written(value: object) -> None:
    with pytest.raises(ConfigError, match="note"):
        _ = Entry(1, "open", {"note": value}, START).text


@pytest.mark.parametrize(
    "note", ['"\\ud800"', "123456789012345678901234567890", "1e999", "NaN", "Infinity", "1" * 5000]
)
def test_nor_read(note: str) -> None:
    text = Entry(1, "open", {"note": 7}, START).text.replace(":7", f":{note}")
    with pytest.raises(Broken, match="entry 1"):
        Entry.read(text, 1, START, "")


def test_any_text_is_kept_in_ascii() -> None:
    entry = Entry(
        1, "open", {"note": "Köln \U0001f600 \n\0 <é>", "zero": -0.0, "tiny": 5e-324}, START
    )
    assert entry.text.isascii()
    assert Entry.read(entry.text, 1, START, entry.hash) == entry


# -- the second head
# --------------------------------------------------------------------------------------------------


def test_an_older_copy_is_refused_where_there_is_a_second_head(tmp_path: Path) -> None:
    path = lots(tmp_path, head=tmp_path / "away" / "loans.head")
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        assert ledger.claim_sentences()[-1] == sentences.SAME_DISK
        ledger.debit(charge(), 5)
    path.write_bytes(older)
    for head in (None, tmp_path / "away" / "loans.head", tmp_path / "away"):
        with pytest.raises(
            CheckError,
            match=r"away/loans\.head.*\b6\D+7\b",
        ):
            Ledger.open(path, head)


def test_without_one_an_older_copy_passes_and_that_is_said(tmp_path: Path) -> None:
    path = lots(tmp_path)
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        noted = ledger.debit(charge(), 5).entry.head
        assert ledger.verify(noted).last.number == noted.count
        assert ledger.claim_sentences()[-1] == sentences.NO_HEAD
    path.write_bytes(older)
    with (
        Ledger.open(path) as ledger,
        pytest.raises(CheckError, match=r"\b6\D+7\b"),
    ):
        ledger.verify(noted)


def test_a_ledger_that_went_another_way_than_its_head_is_refused(tmp_path: Path) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    older = path.read_bytes()
    older_head = head.read_bytes()
    with Ledger.open(path) as ledger:
        ledger.debit(charge(), 5)
    newer_head = head.read_bytes()
    path.write_bytes(older)
    head.write_bytes(older_head)
    with Ledger.open(path) as ledger:  # both went back together: this cannot be seen
        ledger.debit(charge(), 6)
        noted = ledger.book.last.head
    head.write_bytes(newer_head)
    with pytest.raises(CheckError, match=r"entry 7.*away/loans\.head"):
        Ledger.open(path)
    with (
        Ledger.open(lots(tmp_path / "b")) as other,
        pytest.raises(CheckError, match="6 of 7 entries"),
    ):
        other.verify(noted)


def test_a_ledger_ahead_of_its_head_was_killed_between_the_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    with Ledger.open(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(HeadFile, "_write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.debit(charge(), 5)
    with Ledger.open(path) as ledger:
        assert (
            ledger.book.last.number,
            HeadFile(head, ledger.entries()[0].hash).read().count,
        ) == (7, 6)
        ledger.debit(charge(), 1)
        assert HeadFile(head, ledger.entries()[0].hash).read() == ledger.book.last.head


def test_a_torn_write_of_the_head_leaves_the_one_before(tmp_path: Path) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    with Ledger.open(path) as ledger:
        second = HeadFile(head, ledger.entries()[0].hash)
    whole = head.read_bytes()
    counts = []
    for block in (0, 4096):
        head.write_bytes(whole[: block + 90] + bytes(30) + whole[block + 120 :])
        counts.append(second.read().count)
        with Ledger.open(path) as ledger:
            ledger.debit(charge(), 1)
            assert second.read() == ledger.book.last.head
        whole = head.read_bytes()
    assert min(counts) >= 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 8192,
        b"\xff" * 8192,
        None,
    ],
)
def test_a_head_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    with Ledger.open(path) as ledger:
        if content is None:
            head.unlink()
        else:
            head.write_bytes(content)
        with pytest.raises(CheckError, match=r"away/loans\.head"):
            ledger.debit(charge(), 1)
        assert ledger.book.last.number == 6, "nothing is spent where the head cannot be moved"
    with pytest.raises(CheckError, match=r"away/loans\.head"):
        Ledger.open(path)


def test_another_ledger_s_head_is_refused(tmp_path: Path) -> None:
    one, two = (lots(tmp_path / name, head=tmp_path / name / "head") for name in "ab")
    with pytest.raises(CheckError, match="b/head"):
        Ledger.open(one, two.parent / "head")
    with pytest.raises(ConfigError, match=r"head=.*a/head"):
        Ledger.create(tmp_path / "c.ledger", people(), one.parent / "head")
    with pytest.raises(ConfigError, match=r"head=.*c\.ledger"):
        Ledger.create(tmp_path / "c.ledger", people(), tmp_path / "c.ledger")
    assert not (tmp_path / "c.ledger").exists()


def test_a_second_head_moves_and_the_old_one_knows(tmp_path: Path) -> None:
    old = tmp_path / "old.head"
    late = tmp_path / "stick"
    late.mkdir()
    path = lots(tmp_path, head=old)
    older = path.read_bytes()
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        ledger.move_head(late)
        assert ledger.head == late / "loans.head"
        other.debit(charge(), 1)
        assert other.head == late / "loans.head", "who had it open moves the new one, too"
    with Ledger.open(path) as ledger:
        assert (
            HeadFile(late / "loans.head", ledger.entries()[0].hash).read() == ledger.book.last.head
        )
    path.write_bytes(older)
    with pytest.raises(CheckError, match=r"old\.head.*\b6\D+7\b"):
        Ledger.open(path)


@pytest.mark.parametrize("named", [False, True])
def test_a_head_that_is_ahead_may_be_left_over_only_if_the_ledger_never_named_it(
    tmp_path: Path, named: bool
) -> None:
    """An ``admit head=`` that was killed before its commit leaves the file; a rollback of a
    named head is no such case.
    """
    head = tmp_path / "stick.head"
    path = lots(tmp_path, head=head if named else None)
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        if named:
            ledger.debit(charge(), 1)
        else:
            ledger.move_head(head)
    path.write_bytes(older)
    with pytest.raises(CheckError, match=r"stick\.head.*\b6\D+7\b"):
        Ledger.open(path, head)
    head.unlink()
    if named:
        with pytest.raises(CheckError, match=r"stick\.head"):
            Ledger.open(path)
    else:
        with Ledger.open(path) as ledger:
            ledger.move_head(head)
            assert ledger.head == head


def test_a_lost_head_is_replaced_and_the_chain_says_so(tmp_path: Path) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    head.unlink()
    Ledger.replace_head(path, tmp_path / "next.head")
    with Ledger.open(path) as ledger:
        assert ledger.head == tmp_path / "next.head"
        ((entry, lost),) = [(move.entry, move.lost) for move in ledger.ledger_state_at(7).moved]
        assert (entry, lost) == (7, True)


def forged(path: Path, older: bytes, head: str, lost: bool = False) -> None:
    """An older copy in the ledger's place, with one entry more, which names another second head."""
    path.write_bytes(older)
    with closing(sqlite3.connect(path)) as connection, connection:
        number, before, text = connection.execute(
            "SELECT * FROM entries ORDER BY number DESC LIMIT 1"
        ).fetchone()
        body = {
            "head": head,
            "lost": lost,
            "spent": json.loads(text)["body"]["spent"],
            "time": "2026-01-01T00:00:00+00:00",
        }
        entry = Entry(number + 1, "head", body, before)
        connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text)
        )
        opening = connection.execute("SELECT hash FROM entries WHERE number = 1").fetchone()[0]
    if head:
        HeadFile(Path(head), opening).create(entry.head)


@pytest.mark.parametrize("lost", [False, True])
def test_a_forged_move_of_the_second_head_does_not_bring_an_older_copy_back(
    tmp_path: Path, lost: bool
) -> None:
    head = tmp_path / "away" / "loans.head"
    path = lots(tmp_path, head=head)
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        for _ in range(4):
            ledger.debit(charge(), 1)
    forged(path, older, str(tmp_path / "hers.head"), lost)
    for writing in (True, False):
        with pytest.raises(
            CheckError,
            match=r"away/loans\.head.*\b7\D+10\b",
        ):
            Ledger.open(path, writing=writing)
    with (
        Ledger.open(path, as_copy=True) as looked,
        pytest.raises(CheckError, match=r"\b7\D+10\b"),
    ):
        looked.verify(HeadFile(head, looked.entries()[0].hash).read())


def test_a_second_head_is_not_moved_to_no_place(tmp_path: Path) -> None:
    path = lots(tmp_path, head=tmp_path / "away" / "loans.head")
    forged(path, path.read_bytes(), "")
    with pytest.raises(CheckError, match="entry 7"):
        Ledger.open(path)


def test_a_head_that_is_there_is_not_lost(tmp_path: Path) -> None:
    head = tmp_path / "away" / "loans.head"
    late = tmp_path / "late.head"
    path = lots(tmp_path, head=head)
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        ledger.debit(charge(), 1)
    with pytest.raises(ConfigError, match=r"lost=true.*loans\.head.*\b7 entries"):
        Ledger.replace_head(path, late)
    path.write_bytes(older)
    with pytest.raises(CheckError, match=r"loans\.head.*\b6\D+7\b"):
        Ledger.replace_head(path, late)
    assert not late.exists()


def test_a_moved_head_stands_in_every_claim_and_the_old_one_may_stay_behind(tmp_path: Path) -> None:
    old = tmp_path / "away" / "loans.head"
    late = tmp_path / "late.head"
    path = lots(tmp_path, head=old)
    with Ledger.open(path) as ledger:
        ledger.move_head(late)
        ledger.debit(charge(), 1)
    with Ledger.open(path) as ledger:
        assert HeadFile(old, ledger.book.opening.hash).read().count == 7, "the move itself"
        ((entry, source),) = [(move.entry, move.before) for move in ledger.ledger_state_at(8).moved]
        assert (entry, source) == (7, str(old))
    old.unlink()
    Ledger.open(path).close()


def test_given_another_place_both_heads_are_moved(tmp_path: Path) -> None:
    head = tmp_path / "away" / "loans.head"
    copy = tmp_path / "copy.head"
    path = lots(tmp_path, head=head)
    copy.write_bytes(head.read_bytes())
    with Ledger.open(path, copy) as ledger:
        last = ledger.debit(charge(), 1).entry.head
        name = ledger.entries()[0].hash
    assert HeadFile(head, name).read() == HeadFile(copy, name).read() == last
    head.unlink()
    with Ledger.open(path, copy) as ledger:
        ledger.debit(charge(), 1)
    with Ledger.open(path, copy.parent / ".." / tmp_path.name / "copy.head") as ledger:
        ledger.debit(charge(), 1)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("12:" + "a" * 64, Head(12, "a" * 64)),
        (" 12:" + "A" * 16, Head(12, "a" * 16)),
        ("12:" + "a" * 15, None),
        ("0:" + "a" * 64, None),
        ("a.head", None),
        ("1:" + "a" * 65, None),
    ],
)
def test_heads_are_read_as_people_write_them(text: str, head: Head | None) -> None:
    assert Head.read(text) == head


# -- what it says
# --------------------------------------------------------------------------------------------------


def test_the_counter_s_place() -> None:
    allowance = Allowance(1.0, 1e-5)
    assert eps_so_far(allowance, Cost()) == 0
    assert eps_so_far(Allowance(1.0), Lot(PureDP(0.25), 1).cost) == pytest.approx(0.25)
    size = allowance.max_lot_size(Cost(), GaussianDP(0.01), 10**6)
    half, whole = (eps_so_far(allowance, Lot(GaussianDP(0.01), n).cost) for n in (size // 2, size))
    assert 0.5 < half < 0.8 < whole <= 1
    assert replace(allowance, eps=half).holds(Lot(GaussianDP(0.01), size // 2).cost)


def test_the_auditors_twenty_lines(tmp_path: Path) -> None:
    """docs/service.md shows a check that needs Python alone; it finds what it says."""
    text = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    (program,) = (
        part
        for part in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        if "sqlite3" in part
    )
    path = lots(tmp_path)
    with Ledger.open(path) as ledger:
        head = ledger.book.last.head

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-c", program, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert check().stdout.strip() == str(head), check().stderr
    edited(path, "UPDATE answers SET label = 0 WHERE number = 1")
    assert check().returncode != 0
    edited(path, "UPDATE answers SET label = 1 WHERE number = 1")
    assert check().returncode == 0
    edited(path, EDITS["an entry edited"][0])
    assert check().returncode != 0
