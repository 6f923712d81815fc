"""Who pays for a release: a ledger, which debits it before it is drawn, or nobody.

payer = LedgerPayer(ledger, people, run.digest)
reservation = payer.reserve(claim, wanted=1000)  # on the disk when it returns
payer.keep(reservation, {key: label, ...})       # kept for whoever asks the same again
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agt import sentences
from agt.errors import ConfigError
from agt.ledger.book import Charge, Debit
from agt.ledger.ledger import Ledger, check_unclaimed
from agt.ledger.questions import Questions, keys_of, question_terms
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.accounts import Account, Counts, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.messages import Message

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.labelling import AnyLabelling

MAX_RELEASES = 10**9  # up to which it is counted how many releases a budget holds


class Charged(Protocol):
    """What is paid for: a claim, or another object with a guarantee, an output and a mechanism."""

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def output(self) -> Output: ...
    @property
    def mechanism(self) -> str: ...


@dataclass(frozen=True)
class Reservation:
    """Releases that were paid for and may be drawn once.

    It cannot be pickled, so that no copy may be drawn a second time.

    Attributes:
        size: the number of releases.
        debit: the ledger's debit; None if no ledger counts the releases, or if there are none.
        population: the name of the ledger's population.
    """

    size: int
    debit: Debit | None = None
    population: str = ""
    _drawn: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def take(self) -> bool:
        """Return whether the releases may be drawn now: True for the first caller alone."""
        return self._drawn.acquire(blocking=False)

    @property
    def entry(self) -> dict[str, Any] | None:
        """The ledger's entry as spent.json records it; None if there is none."""
        if self.debit is None:
            return None
        entry = self.debit.entry
        return {"population": self.population, "entry": entry.number, "hash": entry.hash}


class Payer(Protocol):
    """Who pays for releases."""

    @property
    def name(self) -> str:
        """The name of the ledger's population; empty if no ledger counts the releases."""

    def check(self, claim: Claim) -> None:
        """Raise ConfigError if the ledger cannot count a release with this claim."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        """Return which queries were answered before, and which are new.

        Args:
            labelling: the mechanism with its model and its claim.
            features: [n, ...], the queries' features.
        """

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        """Pay for as many releases as the budget holds, at most ``wanted``.

        Raises:
            Exhausted: not even one release fits into the budget.
        """

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        """Keep labels that were drawn.

        Args:
            reservation: what paid for them.
            answers: the labels, by the key of the question.

        Returns:
            The labels that everybody is told, by the same keys. They may differ from the drawn
            ones, because another process may have answered a question before.
        """

    def account(
        self, reservation: Reservation, one_by_one: bool = False
    ) -> Account | Uncounted | None:
        """Return what a claim states about the ledger, or why no ledger counts the release.

        Args:
            reservation: the newest reservation.
            one_by_one: whether answers are counted one by one, instead of as one entry.
        """

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return how many more releases the budget holds; None for any number.

        Args:
            guarantee: the guarantee of each release. They are paid for together.
            maximum: the largest number that is returned.
        """


@dataclass(frozen=True)
class NoPayer:
    """A payer without a ledger: every question is new, and nothing is kept.

    Attributes:
        uncounted: why no ledger counts the releases; None for a simulation, which none needs to
            count.
        name: empty, because there is no population.
    """

    uncounted: Uncounted | None = None
    name = ""

    def check(self, claim: Claim) -> None:
        """Accept every claim."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        return Questions(range(len(features)), {})

    def reserve(self, charged: Charged, wanted: int) -> Reservation:
        return Reservation(wanted)

    def earlier(self, charged: Charged) -> None:
        """Return None, because nothing records what was paid for before."""

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        return answers

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Uncounted | None:
        return self.uncounted

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> None:
        return None


@dataclass(frozen=True)
class ProtectedPeople:
    """A table about a population, and the relation of a run on it.

    Attributes:
        table: the table.
        relation: the name of the run's relation; empty if there is no run.
    """

    table: AdmittedTable
    relation: str = ""


@dataclass(frozen=True)
class LedgerPayer:
    """A payer that debits an open ledger.

    Attributes:
        ledger: the ledger.
        people: whose data the releases are about; the ledger has admitted their table.
        run: the digest of the training run that is released from, or the draw of noise in training
            (``Charge.run``); empty if the releases come from no run.
    """

    ledger: Ledger
    people: ProtectedPeople
    run: str = ""

    @classmethod
    def checked(cls, ledger: Ledger, people: ProtectedPeople, run: str = "") -> "LedgerPayer":
        """Return a payer for releases about some people, after checking that the ledger may pay.

        If the ledger admitted the table before records were erased from it, the present table is
        admitted with the same declarations.

        Args:
            ledger: open for writing, and listed by ``known.recognise``.
            people: whose data the releases are about.
            run: as the attribute.

        Raises:
            ConfigError: the ledger did not admit the table, or counts another relation or unit; or
                another ledger in the folder has the same data or file, so that these people would
                have two budgets.
            CheckError: another ledger in the folder cannot be opened.
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
        """Raise ConfigError if the ledger cannot count a release with this claim.

        It cannot if the claim's guarantee is not proved, if the run was trained with noise, so that
        labels released with its certificates do not add up with other losses, or if the claim is
        about other neighbours than those of ``people``.
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
                Message(
                    "{config:unproved=allow}: the guarantee of this release is not proved, but a "
                    "ledger only counts proved guarantees: give {config:unproved=refuse}, or "
                    "ledger=none"
                )
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
        """Return what paid for the same charge before; None if the ledger has no such debit.

        It is used where a process was killed between the debit and the release.
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
        """Return what a debit of the ledger records."""
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
