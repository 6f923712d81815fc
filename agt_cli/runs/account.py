"""Which ledger pays for a release: the one that was named, none where the data is in none, a refusal where it is in one."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.book import Charge, Paid, Table
from agt.ledger.chain import Entry
from agt.ledger.ledger import Debit, Ledger
from agt.ledger.neighbours import admitted, check_unclaimed
from agt.ledger.questions import Asked, Asking
from agt.ledger.words import budget, eps_so_far
from agt.mechanisms.account import Cost, Lot
from agt.mechanisms.guarantee import Guarantee
from agt.mechanisms.release import NO_ACCOUNT
from agt.mechanisms.statement import Account as Counted
from agt.numeric import bisect, whole_midpoint
from agt_cli.runs.ledger import FOLDER, NONE, SUFFIX, Subject, ledger_there, second_head, unit_of
from agt_cli.runs.prepare import RunSettings, data_files

MANY = 10**9
VARIABLE = "AGT_LEDGER"
WHOLE = "it was admitted as the first lot, by its own total alone: it is the whole budget, and nothing fits after it"
UNNAMED = "; agt ledger init NAME run=FOLDER total.eps=EPS opens an account, which counts before it answers"


@dataclass(frozen=True)
class Receipt:
    """What was paid.

    Attributes:
        size: how many releases.
        words: of it, a line each.
        debit: the entry; None: nobody counts, or nothing was paid now.
        counted: the same for claims; None: there is no entry.
        facts: of the entry, for spent.json; None: there is none.
    """

    size: int
    words: tuple[str, ...] = NO_ACCOUNT
    debit: Debit | None = None
    counted: Counted | None = None
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Account:
    """What releases are paid from.

    Attributes:
        ledger: open; None: nobody counts.
        outside: what is said where nobody does.
    """

    ledger: Ledger | None = None
    outside: tuple[str, ...] = NO_ACCOUNT

    @property
    def name(self) -> str:
        """The population's; empty without a ledger."""
        return self.ledger.population.name if self.ledger else ""

    @property
    def free(self) -> Receipt:
        """For what costs nothing."""
        return Receipt(0, self.words("nothing was debited for it"))

    def pay(self, charge: Charge, wanted: int) -> Receipt:
        """Debit as many releases as the budget holds, durably.

        Raises:
            Exhausted: it holds none.
        """
        return self.told(self.debit(charge, wanted))

    def debit(self, charge: Charge, wanted: int) -> Receipt:
        """The same, of which nothing is told yet: that takes longer."""
        if self.ledger is None:
            return Receipt(wanted, self.outside)
        debit = self.ledger.debit(charge, wanted)
        return Receipt(debit.size, (), debit, facts=self._facts(self.ledger.book.debits[debit.head.count].entry))

    def told(self, receipt: Receipt) -> Receipt:
        """With what is said of it."""
        if self.ledger is None or receipt.debit is None:
            return receipt
        return self._receipt(self.ledger.book.debits[receipt.debit.head.count], receipt.debit)

    def paid(self, charge: Charge) -> Receipt | None:
        """What was paid for exactly this, one release, before a run was killed; None: the ledger does not have it."""
        debits = self.ledger.book.debits.values() if self.ledger else ()
        return next((self._receipt(debit, None) for debit in debits if debit.charge == charge), None)

    def _receipt(self, paid: Paid, debit: Debit | None) -> Receipt:
        words = self.words(f"entry {paid.entry.number} of it counts this", paid.entry)
        return Receipt(paid.size, words, debit, self.counted(paid.entry), self._facts(paid.entry))

    def _facts(self, entry: Entry) -> dict[str, Any]:
        return {"population": self.name, "entry": entry.number, "hash": entry.hash}

    def left(self, guarantee: Guarantee, most: int = MANY) -> int | None:
        """How many more releases of this guarantee the budget holds, as one lot; None: nobody counts.

        Args:
            most: they were so many some time ago: found faster from near there, as there are never more.
        """
        if self.ledger is None:
            return None
        allowance, spent = self.ledger.population.allowance, self.ledger.spent

        def held(size: int) -> bool:
            return size == 0 or allowance.admits(spent, Lot(guarantee, size))

        low = high = most
        while not held(low):
            low, high = max(0, 2 * low - most - 1), low
        return bisect(held, low, high, whole_midpoint)[0] if low < high else low

    def asked(self, asking: Asking, features: np.ndarray) -> Asked | None:
        """Which queries were answered before, and which are new; None without a ledger: each is new."""
        if self.ledger is None:
            return None
        keys = asking.keys(bytes.fromhex(self.ledger.book.opening.body["salt"]), features)
        return Asked(keys, self.ledger.stored(list(dict.fromkeys(keys))))

    def keep(self, receipt: Receipt, answers: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """Remember what was drawn: key of a question -> label; returns what everybody is told."""
        return answers if self.ledger is None or receipt.debit is None else self.ledger.answer(receipt.debit, answers)

    def counted(self, entry: Entry | None = None) -> Counted | None:
        """How the ledger stands with an entry, for claims; None: with its newest. None: there is no ledger."""
        if self.ledger is None:
            return None
        entry, population = entry or self.ledger.last, self.ledger.population
        spent = Cost.of(entry.body["spent"])
        return Counted.of(population.name, self.ledger.unit, entry.number, population.allowance, spent)

    def words(self, counted: str, entry: Entry | None = None) -> tuple[str, ...]:
        """What may be said of a release on this account, a line each.

        Args:
            counted: how the ledger counts it.
            entry: that the ledger stands at; None: its newest.
        """
        if self.ledger is None:
            return self.outside
        population, allowance = self.ledger.population, self.ledger.population.allowance
        spent = Cost.of((entry or self.ledger.last).body["spent"])
        return (
            f"released on the ledger of {population.name} ({counted}): all that is ever released on it, this included, is "
            f"({allowance.eps:g}, {allowance.delta:g})-differentially private in all, a unit being {self.ledger.unit}",
            f"its counter stands at eps = {eps_so_far(allowance, spent):.6g}, of {budget(allowance)} in all: "
            "no guarantee of its own",
            *([] if allowance.holds(spent) else [WHOLE]),
            *self.ledger.words(),
        )


def people_of(loaded: Dataset, settings: RunSettings, config: Mapping[str, Any]) -> Subject:
    """Whose data a training run is about to read for a release of its own, and how it counts them.

    Args:
        config: of the run, which the settings are from.
    """
    hashes = (file["sha256"] for file in data_files(settings.source).values() if "sha256" in file)
    return Subject(Table(loaded.name, loaded.digest, tuple(sorted(hashes)), unit_of(config)), settings.relation.name)


@contextmanager
def account_of(setting: object, subject: Subject) -> Iterator[Account]:
    """The account that releases about some data are paid from.

    Args:
        setting: ``ledger``, or else the environment's AGT_LEDGER; null: none was named.
        subject: whose data it is, and under which relation.

    Raises:
        ConfigError: the ledger is not there, or its population has other data or another relation; or none was named, and
            a ledger in the working directory has these people; or a second ledger beside the one that was named has.
        CheckError: a ledger is not what was written.
    """
    name = str(setting) if setting is not None else os.environ.get(VARIABLE) or None
    if name is None:
        _refuse_uncounted(subject)
        yield Account(None, (f"{NO_ACCOUNT[0]}{UNNAMED}",))
    elif name == NONE:
        holding = ", ".join(_holding(subject))
        outside = f"outside the ledger of {holding} (ledger=none)" if holding else "outside any ledger (ledger=none)"
        yield Account(None, (f"released {outside}: its loss adds to whatever else is released about the same data",))
    else:
        with Ledger.open(ledger_there(name), second_head()) as ledger:
            _carry_over(ledger, subject.table)
            ledger.check(subject.relation, subject.table.data, subject.table.unit)
            check_unclaimed(ledger.path, subject.table)  # a copy, under another name, has the same budget once more
            yield Account(ledger)


def _carry_over(ledger: Ledger, table: Table) -> None:
    """Admit a table that the ledger knows as it was before records were erased: what was declared of it still holds."""
    tables = ledger.tables()
    known = next((data for data in table.before if data in tables), None)
    if known is not None and table.data not in tables:
        ledger.admit(replace(table, name=tables[known]), ledger.population.unit)


def _refuse_uncounted(subject: Subject) -> None:
    holding = _holding(subject)
    if holding:
        raise ConfigError(
            f"ledger: the people of {subject.table.name} are in the ledger of {', '.join(holding)}: give "
            f"ledger={holding[0]}, which counts what is released, or ledger={NONE} to release outside of it"
        )


def _holding(subject: Subject) -> list[str]:
    """The names of the ledgers in the working directory that have admitted the data, or another table of the same file.

    Raises:
        CheckError: one of them cannot be read, so that nobody knows.
    """
    names = []
    for path in sorted(Path(FOLDER).glob(f"*{SUFFIX}")):
        try:
            names += [path.stem] if admitted(path, subject.table) else []
        except AgtError as error:
            raise CheckError(f"{error}; name the ledger that pays, or give ledger={NONE}") from None
    return names
