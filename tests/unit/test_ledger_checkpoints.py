"""Checkpoints of a ledger: opening follows what came since, and nothing that is paid or answered
changes by it.
"""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest
from ledgers import charge, edited, keys, new, people, rewritten

from agt.errors import CheckError
from agt.ledger import ledger as ledger_module
from agt.ledger.chain import Entry
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import Exhausted, Ledger
from agt.ledger.tables import AdmittedTable


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "CHECKPOINT_INTERVAL", 6)


def busy(folder: Path, head: Path | None = None, days: int = 20) -> Path:
    """A ledger with several checkpoints: lots that are answered at once, later, in parts, or
    never.
    """
    open_lots = []
    with new(folder, head=head) as ledger:
        for day in range(days):
            lot = ledger.debit(charge(), 3)
            first, *later = keys(3, 3 * day)
            ledger.answer(lot, {first: day})
            open_lots.append((lot, later))
            if day % 2:
                lot, later = open_lots.pop(0)
                ledger.answer(lot, dict.fromkeys(later, day))
    return ledger.path


def appended(path: Path, kind: str, **body: Any) -> Entry:
    """What whoever can write the file puts at its end: an entry whose hash fits."""
    with closing(sqlite3.connect(path)) as connection, connection:
        number, before, text = connection.execute(
            "SELECT * FROM entries ORDER BY number DESC LIMIT 1"
        ).fetchone()
        entry = Entry(
            number + 1,
            kind,
            {**json.loads(text)["body"], **body, "time": "2026-01-01T00:00:00+00:00"},
            before,
        )
        connection.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.number, entry.hash, entry.text)
        )
    return entry


def forged(path: Path, **body: Any) -> Entry:
    """A checkpoint that says that nothing was spent."""
    with Ledger.open(path, as_copy=True, writing=False) as ledger:
        state = {
            **ledger.book.checkpoint_body(),
            **body,
            "first": ledger.book.answered + 1,
            "size": 0,
        }
    nothing = {"pure": "0", "square": "0", "leak": "0"}
    return appended(path, "checkpoint", **state, digest=ledger_module.digest_of([]), spent=nothing)


@pytest.mark.parametrize("second", [True, False])
def test_what_is_opened_is_what_the_whole_chain_comes_to(tmp_path: Path, second: bool) -> None:
    chance = random.Random(second)
    path = tmp_path / "loans.ledger"
    new(
        tmp_path, head=tmp_path / "a" / "loans.head" if second else None, population=people(0.9)
    ).close()
    lots = []
    answers = dict[bytes, int]()
    for step in range(60):
        with Ledger.open(path) as ledger:  # each time anew
            what = chance.choice(["debit", "debit", "answer", "answer", "table", "head"])
            if what == "debit":
                lots.append((ledger.debit(charge(), chance.choice([1, 2])), [*keys(2, 2 * step)]))
            elif what == "answer" and lots:
                lot, questions = lots[chance.randrange(len(lots))]
                if len(questions) > 2 - lot.size:
                    answers |= ledger.answer(lot, {questions.pop(): step})
            elif what == "table":
                ledger.admit(AdmittedTable(f"table {step}", f"{step:032x}"))
            elif what == "head" and second and chance.random() < 0.3:
                ledger.move_head(tmp_path / f"{step}.head")
    with Ledger.open(path) as short, Ledger.open(path) as whole:
        whole.verify()
        ours = short.book
        theirs = whole.book
        assert theirs.kind_counts["checkpoint"] >= 5
        assert (
            sum(ours.kind_counts.values())
            <= ledger_module.CHECKPOINT_INTERVAL + 2
            < sum(theirs.kind_counts.values())
        )
        for name in (
            "spent",
            "last",
            "answered",
            "tables",
            "heads",
            "moved",
            "backward_entries",
            "checkpoint",
            "opening",
        ):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.checkpoint_body() == theirs.checkpoint_body()
        assert short.stored(list(answers)) == answers
        assert short.claim_sentences() == whole.claim_sentences()
        left = whole.population.allowance.max_lot_size(theirs.spent, charge().guarantee, 1000)
        assert short.debit(charge(), 1000).size == left
        with pytest.raises(Exhausted):
            whole.debit(charge(), 1)


def test_answers_may_be_kept_on_a_lot_from_before_a_checkpoint_and_no_more_than_were_paid(
    tmp_path: Path,
) -> None:
    with new(tmp_path) as ledger:
        lot = ledger.debit(charge(), 3)
        ledger.answer(lot, {keys(1)[0]: 1})
        for _ in range(20):
            ledger.debit(charge(0.001), 1)
    with Ledger.open(ledger.path) as ledger:
        assert ledger.book.checkpoint is not None
        with pytest.raises(Exception, match=r"entry 3\b.*\b2 are not used yet.*\b3 new answers\b"):
            ledger.answer(lot, dict.fromkeys(keys(3, 5), 1))
        assert len(ledger.answer(lot, dict.fromkeys(keys(2, 5), 1))) == 2
        assert ledger.history()[3].answered == 3
        assert ledger.verify().answered == 3


EARLY = "UPDATE entries SET text = replace(text, '\"size\":3', '\"size\":1') WHERE number = 3"


@pytest.mark.parametrize(
    "edit",
    [
        EARLY,
        "DELETE FROM entries WHERE number = 4",
        "UPDATE answers SET label = 1 - label WHERE number = 2",
        "UPDATE answers SET key = x'00' WHERE number = 1",
    ],
)
def test_what_is_edited_before_a_checkpoint_changes_nothing_and_is_found(
    tmp_path: Path, edit: str
) -> None:
    path = busy(tmp_path, tmp_path / "away" / "loans.head")
    with Ledger.open(path) as ledger:
        spent = ledger.book.spent
    edited(path, edit)
    with Ledger.open(path) as ledger:
        assert ledger.book.spent == spent
        assert ledger.debit(charge(), 1000).size == 40
        if "answers" in edit:
            with pytest.raises(CheckError, match="answers"):
                ledger.stored(keys(6))
        else:
            assert len(ledger.stored(keys(6))) == 6
        with pytest.raises(CheckError):
            ledger.verify()


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_checkpoint_rests_on_is_held_to_its_hash(tmp_path: Path, number: int) -> None:
    path = busy(tmp_path, tmp_path / "away" / "loans.head")
    edited(
        path,
        'UPDATE entries SET text = replace(text, \'"time":"2\', \'"time":"3\') WHERE number = '
        f"{number}",
    )
    with pytest.raises(CheckError, match=f"entry {number} was changed"):
        Ledger.open(path)


def test_a_forged_checkpoint_is_not_believed_where_there_is_a_second_head(tmp_path: Path) -> None:
    path = busy(tmp_path, tmp_path / "away" / "loans.head")
    forged(path)
    for given in (None, tmp_path / "away" / "loans.head"):
        with pytest.raises(CheckError, match=r"entry \d+"):
            Ledger.open(path, given)


def test_a_forged_checkpoint_that_forgets_a_move_and_names_a_head_of_its_own_is_not_believed(
    tmp_path: Path,
) -> None:
    first = tmp_path / "away" / "a.head"
    second = tmp_path / "b.head"
    hers = tmp_path / "hers.head"
    path = busy(tmp_path, first)
    with Ledger.open(path) as ledger:
        ledger.move_head(second)
        for _ in range(8):
            ledger.debit(charge(), 1)
        opening = ledger.book.opening.hash
    with Ledger.open(path) as ledger:
        assert sum(ledger.book.kind_counts.values()) < 10, (
            "through the move, the honest checkpoints are believed"
        )
    entry = appended(path, "head", head=str(hers), lost=False)
    entry = forged(
        path,
        entries={
            "1": opening,
            "2": json.loads(text_of(path, 2))["hash"],
            str(entry.number): entry.hash,
        },
    )
    HeadFile(hers, opening).create(entry.head)
    for given in (None, first, second):
        with pytest.raises(CheckError, match=r"entry \d+"):
            Ledger.open(path, given)


@pytest.mark.parametrize("moves", [1, 2])
def test_a_forged_checkpoint_is_not_believed_where_a_head_file_was_added_later(
    tmp_path: Path, moves: int
) -> None:
    path = busy(tmp_path)
    with Ledger.open(path) as ledger:
        for number in range(moves):
            ledger.move_head(tmp_path / f"late{number}.head")
        for _ in range(8):  # so that a checkpoint follows the move
            ledger.debit(charge(), 1)
    with Ledger.open(path) as ledger:
        assert sum(ledger.book.kind_counts.values()) < 10, "honest checkpoints are believed"
    forged(path)
    for given in (None, tmp_path / f"late{moves - 1}.head"):
        with pytest.raises(CheckError, match=r"entry \d+"):
            Ledger.open(path, given)


def text_of(path: Path, number: int) -> str:
    with closing(sqlite3.connect(path)) as connection:
        text, hash = connection.execute(
            "SELECT text, hash FROM entries WHERE number = ?", (number,)
        ).fetchone()
    return json.dumps({"text": text, "hash": hash})


def test_without_a_second_head_a_forged_checkpoint_is_found_by_who_verifies(tmp_path: Path) -> None:
    """Whoever can write the file could have put an older copy in its place, too, which nobody
    finds.
    """
    path = busy(tmp_path)
    forged(path)
    with (
        Ledger.open(path) as ledger,
        pytest.raises(CheckError, match=r"entry \d+"),
    ):
        ledger.verify()


def test_a_clock_that_goes_back_at_a_checkpoint_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        seconds = 0

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            cls.seconds += 1
            return cls.fromtimestamp(1_700_000_000 + cls.seconds, tz)

    monkeypatch.setattr(ledger_module, "datetime", Clock)
    with new(tmp_path) as ledger:
        while ledger.book.last.number % ledger_module.CHECKPOINT_INTERVAL:
            ledger.debit(charge(), 1)
        Clock.seconds -= 60
        ledger.debit(charge(), 1)  # after a checkpoint, which is earlier than the entry before
        assert ledger.book.kind_counts["checkpoint"] == 1
    with Ledger.open(ledger.path) as resumed:
        while resumed.book.kind_counts["checkpoint"] < 2:
            resumed.debit(charge(), 1)
    with Ledger.open(ledger.path) as whole:
        assert whole.verify().backward_entries == []


REWRITTEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "answers kept": lambda body: body.update(size=body["size"] + 1),
    "lots": lambda body: body["answered"].update({next(iter(body["answered"])): 0}),
    "what it rests on": lambda body: body["entries"].pop("2"),
    "the one before": lambda body: body.update(earlier=None),
    "the clock": lambda body: body.update(backwards=["5"]),
    "answers": lambda body: body.update(digest="0" * 64),
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_a_checkpoint_that_was_rewritten_is_held_to_the_rules(tmp_path: Path, what: str) -> None:
    path = busy(tmp_path)
    with Ledger.open(path) as ledger:
        places = [entry.number for entry in ledger.entries() if entry.kind == "checkpoint"]

    def change(number: int, body: dict[str, Any]) -> dict[str, Any]:
        if number == places[-1]:
            REWRITTEN[what](body)
        return body

    rewritten(path, change)
    found = (
        "not fit the entries before it|not have the form|the answers of entry|as many answers as|"
        "not the next ones that its debit paid for|data that the ledger does not count"
    )
    with pytest.raises(CheckError, match=found), Ledger.open(path, as_copy=True) as ledger:
        ledger.verify()
