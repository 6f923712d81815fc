"""What tests of ledgers share."""

import json
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from agt.ledger.book import Charge, Population
from agt.ledger.chain import START, Entry
from agt.ledger.ledger import Ledger
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.budget import Allowance
from agt.mechanisms.guarantees import Guarantee, PureDP

DATA = "d" * 32


def people(eps: float = 1.0, delta: float = 0.0, **others: Any) -> Population:
    return Population(
        **{"name": "loans", "unit": "one customer", "relation": "add_remove", **others},
        allowance=Allowance(eps, delta),
    )


def charge(guarantee: Guarantee | float = 0.01, **others: Any) -> Charge:
    guarantee = PureDP(guarantee) if isinstance(guarantee, float) else guarantee
    words = {
        "output": "labels",
        "mechanism": "randomized_response",
        "run": "sha256:" + "a" * 64,
        "data": DATA,
    }
    return Charge(guarantee, **{**words, "relation": "add_remove", **others})


def new(
    folder: Path,
    name: str = "loans",
    head: Path | None = None,
    population: Population | None = None,
) -> Ledger:
    return Ledger.create(
        folder / f"{name}.ledger", population or people(), head, [AdmittedTable("customers", DATA)]
    )


def keys(count: int, first: int = 0) -> list[bytes]:
    return [sha256(str(number).encode()).digest() for number in range(first, first + count)]


def edited(path: Path, *statements: str) -> None:
    """What somebody who writes SQL does to a ledger."""
    triggers = ("entries_stay", "entries_remain", "answers_stay", "answers_remain")
    connection = sqlite3.connect(path, isolation_level=None)
    kept = [
        connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
        for name in triggers
    ]
    for statement in (*(f"DROP TRIGGER {name}" for name in triggers), *statements, *kept):
        connection.execute(statement)
    connection.close()


def rewritten(path: Path, change: Callable[[int, dict[str, Any]], dict[str, Any]]) -> None:
    """A chain whose every hash fits, with the bodies that ``change`` makes of (an entry's
    number, its body).
    """
    with Ledger.open(path) as ledger:
        old = ledger.entries()
    before = START
    statements = []
    for entry in old:
        body = dict(change(entry.number, json.loads(json.dumps(dict(entry.body)))))
        kind = body.pop("kind", entry.kind)
        fresh = Entry(entry.number, kind, body, before)
        before = fresh.hash
        quoted = fresh.text.replace("'", "''")
        statements.append(
            f"UPDATE entries SET text = '{quoted}', hash = '{fresh.hash}' WHERE number = "
            f"{entry.number}"
        )
    edited(path, *statements)
