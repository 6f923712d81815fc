"""What tests of ledgers share."""

from hashlib import sha256
from pathlib import Path
from typing import Any

from agt.ledger.book import AdmittedTable, Charge, Population
from agt.ledger.ledger import Ledger
from agt.mechanisms.composition import Allowance, Guarantee, PureDP

DATA = "d" * 32


def people(eps: float = 1.0, delta: float = 0.0, **others: Any) -> Population:
    return Population(
        **{"name": "loans", "unit": "one customer", "relation": "add_remove", **others}, allowance=Allowance(eps, delta)
    )


def charge(guarantee: Guarantee | float = 0.01, **others: Any) -> Charge:
    guarantee = PureDP(guarantee) if isinstance(guarantee, float) else guarantee
    words = {"output": "labels", "mechanism": "randomized_response", "run": "sha256:" + "a" * 64, "data": DATA}
    return Charge(guarantee, **{**words, "relation": "add_remove", **others})


def new(folder: Path, name: str = "loans", head: Path | None = None, population: Population | None = None) -> Ledger:
    return Ledger.create(folder / f"{name}.ledger", population or people(), head, [AdmittedTable("customers", DATA)])


def keys(count: int, first: int = 0) -> list[bytes]:
    return [sha256(str(number).encode()).digest() for number in range(first, first + count)]
