"""Which ledger pays for a release: the one that was named, none where the data is in none, a refusal where it is in one."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.book import Charge, Table
from agt.ledger.ledger import Debit, Ledger
from agt.ledger.neighbours import admitted
from agt.ledger.questions import Asked, Asking
from agt.ledger.words import budget, eps_so_far
from agt.mechanisms.account import Cost
from agt.mechanisms.release import NO_ACCOUNT
from agt.mechanisms.statement import Account as Counted
from agt_cli.runs.ledger import FOLDER, SUFFIX, Subject, ledger_path
from agt_cli.runs.prepare import RunSettings, data_files

NONE = "none"
VARIABLE = "AGT_LEDGER"
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
        return Receipt(0, self._words(None))

    def pay(self, charge: Charge, wanted: int) -> Receipt:
        """Debit as many releases as the budget holds, durably.

        Raises:
            Exhausted: it holds none.
        """
        if self.ledger is None:
            return Receipt(wanted, self.outside)
        debit, population = self.ledger.debit(charge, wanted), self.ledger.population
        spent = Cost.of(self.ledger.book.debits[debit.head.count].entry.body["spent"])
        made = Counted.of(population.name, population.unit, debit.head.count, population.allowance, spent)
        facts = {"population": population.name, "entry": debit.head.count, "hash": debit.head.hash}
        return Receipt(debit.size, self._words(debit, spent), debit, made, facts)

    def asked(self, asking: Asking, features: np.ndarray) -> Asked | None:
        """Which queries were answered before, and which are new; None without a ledger: each is new."""
        if self.ledger is None:
            return None
        keys = asking.keys(bytes.fromhex(self.ledger.book.opening.body["salt"]), features)
        return Asked(keys, self.ledger.stored(list(dict.fromkeys(keys))))

    def keep(self, receipt: Receipt, answers: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """Remember what was drawn: key of a question -> label; returns what everybody is told."""
        return answers if self.ledger is None or receipt.debit is None else self.ledger.answer(receipt.debit, answers)

    def _words(self, debit: Debit | None, spent: Cost | None = None) -> tuple[str, ...]:
        """What may be said of a release that this ledger paid for; of one that cost nothing, with no debit."""
        if self.ledger is None:
            return self.outside
        population, allowance = self.ledger.population, self.ledger.population.allowance
        counted = "nothing was debited for it" if debit is None else f"entry {debit.head.count} of it counts this"
        stands = eps_so_far(allowance, self.ledger.spent if spent is None else spent)
        return (
            f"released on the ledger of {population.name} ({counted}): all that is ever released on it, this included, is "
            f"({allowance.eps:g}, {allowance.delta:g})-differentially private in all, a unit being {population.unit}",
            f"its counter stands at eps = {stands:.6g}, of {budget(allowance)} in all: no guarantee of its own",
            *self.ledger.words(),
        )


def people_of(loaded: Dataset, settings: RunSettings) -> Subject:
    """Whose data a training run is about to read for a release of its own."""
    hashes = (file["sha256"] for file in data_files(settings.source).values() if "sha256" in file)
    return Subject(Table(loaded.name, loaded.digest, tuple(sorted(hashes))), settings.relation.name)


@contextmanager
def account_of(setting: object, subject: Subject) -> Iterator[Account]:
    """The account that releases about some data are paid from.

    Args:
        setting: ``ledger``, or else the environment's AGT_LEDGER; null: none was named.
        subject: whose data it is, and under which relation.

    Raises:
        ConfigError: the ledger is not there, or its population has other data or another relation; or none was named, and
            a ledger in the working directory has these people.
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
        with Ledger.open(ledger_path(name)) as ledger:
            ledger.check(subject.relation, subject.table.data)
            yield Account(ledger)


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
