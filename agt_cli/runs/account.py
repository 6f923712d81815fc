"""Which ledger pays for a release: the one that was named, none where the data is in none, a refusal where it is in one."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agt.errors import AgtError, CheckError, ConfigError
from agt.ledger.ledger import Charge, Debit, Ledger
from agt.ledger.questions import Asked, Asking
from agt.mechanisms.release import NO_ACCOUNT
from agt_cli.runs.queries import OpenedRun

FOLDER, SUFFIX = Path("ledgers"), ".ledger"
NONE = "none"
VARIABLE = "AGT_LEDGER"
UNNAMED = "; agt ledger init NAME run=FOLDER total.eps=EPS opens one, which counts before it answers"


def ledger_path(name: str) -> Path:
    """NAME is ledgers/NAME.ledger in the working directory; whatever has a folder or the ending is a path."""
    path = Path(name)
    return path if path.parent != Path() or path.suffix == SUFFIX else FOLDER / f"{name}{SUFFIX}"


@dataclass(frozen=True)
class Receipt:
    """What was paid.

    Attributes:
        size: how many releases.
        debit: the entry; None: nobody counts.
        facts: of it, for spent.json.
        words: of it, a line each.
    """

    size: int
    debit: Debit | None = None
    facts: dict[str, Any] | None = None
    words: tuple[str, ...] = NO_ACCOUNT


@dataclass(frozen=True)
class Account:
    """What releases are paid from.

    Attributes:
        ledger: open; None: nobody counts.
        about: what is said where nobody does.
    """

    ledger: Ledger | None = None
    about: tuple[str, ...] = NO_ACCOUNT

    @property
    def name(self) -> str:
        """The population's; empty without a ledger."""
        return self.ledger.population.name if self.ledger else ""

    @property
    def free(self) -> Receipt:
        """For what costs nothing."""
        return Receipt(0, words=tuple(self.words(None)))

    def pay(self, charge: Charge, wanted: int) -> Receipt:
        """Debit as many releases as the budget holds, durably.

        Raises:
            Exhausted: it holds none.
        """
        if self.ledger is None:
            return Receipt(wanted, words=self.about)
        debit = self.ledger.debit(charge, wanted)
        facts = {"population": self.name, "entry": debit.head.count, "hash": debit.head.hash}
        return Receipt(debit.size, debit, facts, tuple(self.words(debit)))

    def asked(self, asking: Asking, features: np.ndarray) -> Asked | None:
        """Which queries were answered before, and which are new; None without a ledger: each is new."""
        if self.ledger is None:
            return None
        keys = asking.keys(bytes.fromhex(self.ledger.entries()[0].hash), features)
        return Asked(keys, self.ledger.stored(keys))

    def keep(self, receipt: Receipt, answers: Mapping[bytes, int]) -> Mapping[bytes, int]:
        """Remember what was drawn: key of a question -> label; returns what everybody is told."""
        if self.ledger is not None and receipt.debit is not None:
            self.ledger.answer(receipt.debit, answers)
        return answers

    def words(self, debit: Debit | None) -> Iterable[str]:
        """What may be said of a release that this ledger paid for; of one that cost nothing, with no debit."""
        if self.ledger is None:
            yield from self.about
            return
        population, allowance = self.ledger.population, self.ledger.population.allowance
        counted = "nothing was debited for it" if debit is None else f"entry {debit.head.count} counts it"
        yield (
            f"released on the account of {population.name} ({counted}): all that is ever released on it, this included, is "
            f"({allowance.eps:g}, {allowance.delta:g})-differentially private in all, a unit being {population.unit}"
        )


@contextmanager
def account_of_run(setting: object, opened: OpenedRun, free: bool) -> Iterator[Account]:
    """``account_of`` for releases from a finished run; no account where they cost nothing."""
    if free:
        yield Account()
        return
    data, relation = opened.trained.finished.environment.get("data_digest"), opened.model.problem.settings.relation
    with account_of(setting, str(data), relation.name) as account:
        yield account


@contextmanager
def account_of(setting: object, data: str, relation: str) -> Iterator[Account]:
    """The account that releases about some data are paid from.

    Args:
        setting: ``ledger``, or else the environment's AGT_LEDGER; null: none was named.
        data: the data's digest.
        relation: of the run.

    Raises:
        ConfigError: the ledger is not there, or its population has other data or another relation; or none was named, and
            a ledger in the working directory has this data.
        CheckError: a ledger is not what was written.
    """
    name = str(setting) if setting is not None else os.environ.get(VARIABLE) or None
    if name is None:
        _refuse_uncounted(data)
        yield Account(None, (f"{NO_ACCOUNT[0]}{UNNAMED}",))
    elif name == NONE:
        holding = _holding(data)
        outside = f"outside the account of {', '.join(holding)} (ledger=none)" if holding else "outside any account"
        yield Account(None, (f"released {outside}: its loss adds to whatever else is released about the same data",))
    else:
        with Ledger.open(ledger_path(name)) as ledger:
            _check(ledger, data, relation)
            yield Account(ledger)


def _check(ledger: Ledger, data: str, relation: str) -> None:
    population, tables = ledger.population, ledger.tables()
    if relation != population.relation:
        raise ConfigError(
            f"ledger={ledger.path}: counts units of relation={population.relation}, and the run is of relation={relation}"
        )
    if data not in tables:
        names = ", ".join(tables.values()) or "none"
        raise ConfigError(
            f"ledger={ledger.path}: the run's data (digest {data}) was not admitted to the account of {population.name} "
            f"(admitted: {names}): if it is about the same people, agt ledger admit says so"
        )


def _refuse_uncounted(data: str) -> None:
    holding = _holding(data)
    if holding:
        raise ConfigError(
            f"ledger: this data is on the account of {', '.join(holding)}: give ledger={holding[0]}, which counts what is "
            f"released, or ledger={NONE} to release outside of it"
        )


def _holding(data: str) -> list[str]:
    """The names of the ledgers in the working directory that have admitted the data.

    Raises:
        CheckError: one of them cannot be read, so that nobody knows.
    """
    names = []
    for path in sorted(FOLDER.glob(f"*{SUFFIX}")):
        try:
            with Ledger.open(path) as ledger:
                names += [path.stem] if data in ledger.tables() else []
        except AgtError as error:
            raise CheckError(f"{error}; name the ledger that pays, or give ledger={NONE}") from None
    return names
