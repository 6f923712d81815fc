"""Payers: what counts a release. A ledger debits it before it is drawn; ``NoPayer`` counts nothing.

payer = LedgerPayer(ledger, people, run.digest)
reservation = payer.reserve(claim, requested=1000)  # on the disk when it returns
payer.store_answers(reservation, {key: label, ...})       # stored: the same question gets it again
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from agt import sentences
from agt.errors import ConfigError
from agt.ledger.book import Charge, Debit
from agt.ledger.ledger import Ledger, check_no_other_ledger
from agt.ledger.ledger_list import find_ledgers_elsewhere
from agt.ledger.questions import Questions, keys_of, question_terms
from agt.ledger.remaining import closing_warning
from agt.ledger.tables import AdmittedTable
from agt.mechanisms.accounts import Account, Counts, Uncounted
from agt.mechanisms.budget import Lot
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.messages import Message

if TYPE_CHECKING:  # a program that reads a ledger need not load torch
    from agt.mechanisms.labelling import AnyLabelling

MAX_RELEASES = 10**9  # the largest number that ``remaining`` returns by default


class Charged(Protocol):
    """What is paid for: a claim, or another object that says what is released.

    Attributes:
        guarantee: the differential privacy guarantee of each release.
        output: the kind of release, such as labels.
        mechanism: the name of the mechanism.
    """

    @property
    def guarantee(self) -> Guarantee: ...
    @property
    def output(self) -> Output: ...
    @property
    def mechanism(self) -> str: ...


@dataclass(frozen=True)
class Reservation:
    """Releases that were paid for and may be drawn once.

    It cannot be pickled, so that no copy of it can be drawn a second time.

    Attributes:
        size: the number of releases; 0 if nothing was paid for.
        debit: the ledger's debit; None if no ledger counts the releases, or if there are none.
        population: the name of the ledger's population; empty if there is no debit.
    """

    size: int
    debit: Debit | None = None
    population: str = ""
    _drawn: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def mark_drawn(self) -> bool:
        """Mark the releases as drawn; return whether the caller may draw them.

        It is True for the first call only, so that two threads cannot draw the same releases.
        """
        return self._drawn.acquire(blocking=False)

    @property
    def entry(self) -> dict[str, Any] | None:
        """The ledger's entry as spent.json records it; None if there is no debit."""
        if self.debit is None:
            return None
        entry = self.debit.entry
        return {"population": self.population, "entry": entry.number, "hash": entry.hash}


class Payer(Protocol):
    """What counts releases: a ledger, or something that counts in another way or not at all."""

    @property
    def name(self) -> str:
        """The name of the ledger's population; empty if no ledger counts the releases."""

    def check(self, claim: Claim) -> None:
        """Raise ConfigError if the ledger cannot charge a release with this privacy guarantee."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        """Return the queries as questions, with the labels that earlier releases stored for them.

        A question is a query that must get the same label whenever it is repeated.

        Args:
            labelling: the mechanism with its model and its claim.
            features: [n, ...], the queries' features as the model takes them.
        """

    def reserve(self, charged: Charged, requested: int) -> Reservation:
        """Pay for as many releases as the budget holds, at most ``requested``.

        Args:
            charged: the release: its guarantee, its kind and its mechanism.
            requested: the largest number of releases to pay for, at least 1.

        Returns:
            The reservation of the releases that were paid for, which may be fewer than ``wanted``.

        Raises:
            Exhausted: not even one release fits into the budget.
        """

    def store_answers(
        self, reservation: Reservation, answers: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        """Store newly drawn labels, and return the labels that are to be released.

        Args:
            reservation: the reservation that paid for the labels.
            answers: the drawn labels, by the key of the question.

        Returns:
            The labels to release, by the same keys. A label may differ from the drawn one if
            another process stored a label for the question first.
        """

    def account(
        self, reservation: Reservation, one_by_one: bool = False
    ) -> Account | Uncounted | None:
        """Return the ledger's account for a claim, or the reason why no ledger charged the release.

        Args:
            reservation: the reservation that paid for the release; of size 0 if nothing was paid
                for.
            one_by_one: whether each answer is paid for when its question comes, instead of all of
                them by one entry.

        Returns:
            None: a simulation, which no ledger needs to count.
        """

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return the number of further releases that the budget allows; None for any number.

        Args:
            guarantee: the guarantee of each release. They are paid for together.
            maximum: the largest number that is returned.
        """


@dataclass(frozen=True)
class NoPayer:
    """A payer without a ledger: every question is new, each release is paid, no answer is stored.

    Attributes:
        uncounted: the reason why no ledger counts the releases; None for a simulation, which none
            needs to count.
        name: empty, because there is no population.
    """

    uncounted: Uncounted | None = None
    name = ""

    def check(self, claim: Claim) -> None:
        """Accept every release, because no ledger has to charge it."""

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        """Return every query as a new question, even if two queries are equal."""
        return Questions(range(len(features)), {})

    def reserve(self, charged: Charged, requested: int) -> Reservation:
        """Return a reservation of all ``requested`` releases, which no ledger charges."""
        return Reservation(requested)

    def find_earlier(self, charged: Charged) -> None:
        """Return None, because no ledger records earlier reservations."""

    def store_answers(
        self, reservation: Reservation, answers: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        """Return the drawn labels unchanged, because no ledger stores them."""
        return answers

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Uncounted | None:
        """Return the reason why no ledger counts the release, whatever the arguments are."""
        return self.uncounted

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> None:
        """Return None, because there is no budget that limits the number of releases."""

    def closing_warning(self, guarantee: Guarantee, requested: int) -> str:
        """Return no warning, because there is no ledger that a release could close."""
        return ""


@dataclass(frozen=True)
class ProtectedPeople:
    """The people whom a release is about: a table, and which of its datasets are neighbours.

    Attributes:
        table: the table with the people's records, and the unit in which they are counted.
        relation: the name of the run's relation; empty if there is no run.
    """

    table: AdmittedTable
    relation: str = ""


@dataclass(frozen=True)
class LedgerPayer:
    """A payer that debits an open ledger.

    Attributes:
        ledger: the ledger, open for writing.
        people: the people whom the releases are about; the ledger has admitted their table.
        run: the digest of the training run that is released from, or the draw of noise in training
            (``Charge.run``); empty if the releases come from no run.
        elsewhere: ``Book.first_entry`` of ledgers in other folders that count the same people, as
            far as agt knows of them.
    """

    ledger: Ledger
    people: ProtectedPeople
    run: str = ""
    elsewhere: tuple[str, ...] = ()

    @classmethod
    def checked(cls, ledger: Ledger, people: ProtectedPeople, run: str = "") -> "LedgerPayer":
        """Check that a ledger may pay for releases about some people, and return the payer.

        This may write to the ledger: if it admitted the table before records were erased from it,
        the present table is admitted, too, with the earlier one's name and declaration.

        Args:
            ledger: a ledger that is open for writing, and that ``ledger_list.put_on_list`` listed.
            people: the people whom the releases are about.
            run: the value of the attribute ``run``.

        Raises:
            ConfigError: the ledger did not admit the table, or counts another relation or unit; or
                another ledger in the folder has the same data or file, so that these people would
                have two budgets.
            CheckError: another ledger in the folder cannot be opened.
        """
        table = people.table
        tables = ledger.book.tables
        earlier_data = next((data for data in table.before if data in tables), None)
        if earlier_data is not None and ledger.book.admission_changes(table):
            earlier = tables[earlier_data]
            present_table = replace(table, name=earlier.name, apart=earlier.apart)
            ledger.admit(present_table, ledger.population.unit)
        ledger.check(people.relation, table.data, table.unit)
        check_no_other_ledger(
            ledger.path, table, compare_names=False, declared_others=ledger.book.declared
        )
        elsewhere = find_ledgers_elsewhere(ledger.path.parent, table)
        first_entries = {match.ledger for match in elsewhere.values()}
        # A copy of this very ledger is no second budget.
        return cls(ledger, people, run, tuple(sorted(first_entries - {ledger.book.first_entry})))

    @property
    def name(self) -> str:
        """The name of the ledger's population."""
        return self.ledger.population.name

    def check(self, claim: Claim) -> None:
        """Raise ConfigError if the ledger cannot count a release with this claim.

        Raises:
            ConfigError: the guarantee is not proved; or the run was trained with noise, so that no
                composition bound covers labels that are released with its certificates; or the
                claim is about other neighbours than those of ``people``.
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
        """Return the queries as questions, with the labels that the ledger has stored."""
        claim = labelling.claim
        terms = question_terms(self.run, labelling.mechanism, claim.accounting, claim.counting)
        keys = keys_of(bytes.fromhex(self.ledger.salt), terms, features)
        different_keys = list(dict.fromkeys(keys))
        return Questions(keys, self.ledger.stored(different_keys))

    def reserve(self, charged: Charged, requested: int) -> Reservation:
        """Write a debit to the ledger, for as many releases as the budget holds.

        Args:
            charged: the release: its guarantee, its kind and its mechanism.
            requested: the largest number of releases to pay for, at least 1.

        Returns:
            The reservation of the releases that were paid for, at least one. Its debit is on the
            disk, and stays spent even if nothing is drawn.

        Raises:
            Exhausted: not even one release fits into the budget.
        """
        debit = self.ledger.debit(self._charge(charged), requested)
        return Reservation(debit.size, debit, self.name)

    def find_earlier(self, charged: Charged) -> Reservation | None:
        """Return a reservation for the first debit with the same charge; None if there is none.

        It is for a release whose process was killed after the debit and before anything was drawn.
        The caller has to make sure that nothing was released for this debit.
        """
        charge = self._charge(charged)
        for debit in self.ledger.history().values():
            if debit.charge == charge:
                return Reservation(debit.size, debit, self.name)
        return None

    def store_answers(
        self, reservation: Reservation, answers: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        """Store newly drawn labels in the ledger, and return the labels that are to be released.

        Without a debit there are no new labels: the answers are returned unchanged.
        """
        if reservation.debit is None:
            return answers
        return self.ledger.answer(reservation.debit, answers)

    def account(self, reservation: Reservation, one_by_one: bool = False) -> Account:
        """Return the statement about the ledger that a claim contains.

        It states the ledger right after the reservation's debit; without a debit, the ledger at its
        newest entry.
        """
        counts: Counts
        if one_by_one:
            counts = "answers"
        elif reservation.debit is None:
            counts = "nothing"  # every answer was released before
        else:
            counts = "entry"
        account = self.ledger.account(reservation.debit, counts)
        return replace(account, elsewhere=self.elsewhere or None)

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int:
        """Return the number of further releases that the budget allows, up to ``maximum``."""
        return self.ledger.population.allowance.max_lot_size(
            self.ledger.book.spent, guarantee, maximum
        )

    def closing_warning(self, guarantee: Guarantee, requested: int) -> str:
        """Return a warning if releases take most of what is left for the other kind; or empty.

        Args:
            guarantee: the guarantee of each release.
            requested: the number of releases. If fewer fit, the warning is about those.
        """
        size = self.remaining(guarantee, requested)
        if not size:
            return ""
        allowance = self.ledger.population.allowance
        return closing_warning(allowance, self.ledger.book.spent, Lot(guarantee, size))

    def _charge(self, charged: Charged) -> Charge:
        """Return the charge for a release, which the ledger's debit records."""
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
