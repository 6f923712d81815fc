"""Who pays for a release: a ledger, which debits it before it is drawn, or nobody.

    payer = LedgerPayer(ledger, people, run.digest)
    reservation = payer.reserve(claim, wanted=1000)  durable before it returns
    payer.keep(reservation, {key: label, ...})       what was drawn, for whoever asks the same again

Formal guarantees
    What a ``LedgerPayer`` reserves is on the disk when ``reserve`` returns (ledger.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agt import sentences
from agt.errors import ConfigError
from agt.ledger.book import AdmittedTable, Charge, Debit
from agt.ledger.ledger import Ledger, Questions, check_unclaimed, keys_of, question_terms
from agt.mechanisms.accounts import Account, Counts, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.labelling import AnyLabelling

MAX_RELEASES = 10**9


class Charged(Protocol):
    """What is paid for: a claim, or whatever else has its guarantee, output and mechanism."""

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def output(self) -> Output: ...
    @property
    def mechanism(self) -> str: ...


@dataclass(frozen=True)
class Reservation:
    """Releases that were paid for, and may be drawn, once.

    Whoever shares a reservation shares that right; it cannot be pickled, so no copy has it anew.

    Attributes:
        size: how many.
        debit: the ledger's; None: no ledger counts them, or there are none.
        population: whose ledger it is.
    """

    size: int
    debit: Debit | None = None
    population: str = ""
    _drawn: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def take(self) -> bool:
        """Return whether they may be drawn now: True the first time, whichever thread asks, and
        never again.
        """
        return self._drawn.acquire(blocking=False)

    @property
    def entry(self) -> dict[str, Any] | None:
        """The ledger's entry, as spent.json has it; None: there is none."""
        if self.debit is None:
            return None
        entry = self.debit.entry
        return {"population": self.population, "entry": entry.number, "hash": entry.hash}


class Payer(Protocol):
    """What a release is paid from."""

    @property
    def name(self) -> str:
        """The population's, whose ledger it is; empty: no ledger counts the release."""

    def check(self, claim: Claim) -> None:
        """Raise ConfigError where the ledger cannot count a release with this claim."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        """Return which queries [n, ...] were answered before, and which are new."""

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        """Pay for as many releases as the budget holds, ``wanted`` at most.

        Raises:
            Exhausted: it holds none.
        """

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        """Remember labels that were drawn on a reservation, by question.

        Returns:
            The labels that everybody is told: another process may have answered the same before.
        """

    def account(
        self, reservation: Reservation, one_by_one: bool = False
    ) -> Account | Uncounted | None:
        """Return what a claim says of the ledger, or of why there is none.

        Args:
            reservation: the newest.
            one_by_one: answers are counted when they come, instead of as one entry.
        """

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return how many more releases of this guarantee the budget holds, as one lot.

        Args:
            maximum: more than so many are not looked for.

        Returns:
            None: any number.
        """


@dataclass(frozen=True)
class NoPayer:
    """No ledger: every question is new, everything wanted is reserved, nothing is remembered.

    Attributes:
        uncounted: why; None: a simulation, which no ledger has to count.
        name: of no population.
    """

    uncounted: Uncounted | None = None
    name = ""

    def check(self, claim: Claim) -> None:
        """Take every claim."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        return Questions(range(len(features)), {})

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        return Reservation(wanted)

    def earlier(self, charged: Charged) -> None:
        """Return None: nobody noted what was paid before."""

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        return answers

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Uncounted | None:
        return self.uncounted

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> None:
        return None


@dataclass(frozen=True)
class ProtectedPeople:
    """Data about a population, and how a run on it counted people.

    Attributes:
        table: the data.
        relation: of the run, by name; empty: there is no run.
    """

    table: AdmittedTable
    relation: str = ""


@dataclass(frozen=True)
class LedgerPayer:
    """An open ledger.

    Attributes:
        ledger: of one population.
        people: whose data the releases are about; the ledger has admitted it.
        run: the digest of the training run that is released from; of noise in training, its draw
            (``Charge``); empty: releases come from no run.
    """

    ledger: Ledger
    people: ProtectedPeople
    run: str = ""

    @classmethod
    def checked(cls, ledger: Ledger, people: ProtectedPeople, run: str = "") -> "LedgerPayer":
        """Return what pays from a ledger, if these people's releases may be paid there.

        Args:
            ledger: open for writing; ``known.recognise`` knows it.
            people: whose data the releases are about; it was admitted, or the ledger knows it as it
                was before records were erased: what was declared of it then still holds.
            run: as the attribute.

        Raises:
            ConfigError: the population has other data or another relation, or a second ledger
                beside this one has these people, as a copy of it would: they would have two
                budgets.
            CheckError: a ledger beside it cannot be opened.
        """
        table = people.table
        tables = ledger.book.tables
        before = next((data for data in table.before if data in tables), None)
        if before is not None and ledger.book.is_new(table):
            known = tables[before]
            ledger.admit(replace(table, name=known.name, apart=known.apart), ledger.population.unit)
        ledger.check(people.relation, table.data, table.unit)
        check_unclaimed(ledger.path, table, by_name=False, declared=ledger.book.declared)
        return cls(ledger, people, run)

    @property
    def name(self) -> str:
        return self.ledger.population.name

    def check(self, claim: Claim) -> None:
        """Raise ConfigError where the ledger cannot count a release.

        It cannot where nothing is proved, where losses do not add up with those that are counted,
        or where the claim is about other neighbours than the ones that ``people`` are counted by.
        """
        if claim.noisy:
            rule = sentences.APART
            raise ConfigError(
                f"ledger={self.name}: {rule}. So no ledger can count labels that are released with "
                "the certificates of this run. Release only the noisy weights of this run. To "
                "release labels instead, train without noise, or give ledger=none"
            )
        if not claim.proved:
            raise ConfigError(
                f"accounting={claim.accounting}: the guarantee of this release is not "
                "proved, but a ledger only counts proved guarantees: give "
                "accounting=rigorous, or ledger=none"
            )
        people = self.people
        relation = claim.relation
        if relation.name != people.relation or relation.unit_rows < people.table.unit.rows:
            counted_relation = people.relation or "none"
            raise ConfigError(
                f"ledger={self.name}: the release protects {claim.neighbours}, but the ledger "
                f"would count it under relation={counted_relation}, where the unit is "
                f"{people.table.unit}: use the people of the run from which you release"
            )

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        claim = labelling.claim
        terms = question_terms(self.run, labelling.mechanism, claim.accounting, claim.counting)
        keys = keys_of(bytes.fromhex(self.ledger.salt), terms, features)
        return Questions(keys, self.ledger.stored(list(dict.fromkeys(keys))))

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        debit = self.ledger.debit(self._charge(charged), wanted)
        return Reservation(debit.size, debit, self.name)

    def earlier(self, charged: Charged) -> Reservation | None:
        """Return what was paid for exactly this before a process was killed; None: the ledger
        has no such entry.
        """
        wanted = self._charge(charged)
        for debit in self.ledger.history().values():
            if debit.charge == wanted:
                return Reservation(debit.size, debit, self.name)
        return None

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        if reservation.debit is None:
            return answers
        return self.ledger.answer(reservation.debit, answers)

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Account:
        counts: Counts = "nothing" if reservation.debit is None else "entry"
        return self.ledger.account(reservation.debit, "answers" if one_by_one else counts)

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int:
        return self.ledger.population.allowance.max_lot_size(
            self.ledger.book.spent, guarantee, maximum
        )

    def _charge(self, charged: Charged) -> Charge:
        table = self.people.table
        return Charge(
            guarantee=charged.guarantee,
            output=charged.output.value,
            mechanism=charged.mechanism,
            run=self.run,
            data=table.data,
            relation=self.people.relation,
            unit=table.unit,
        )
