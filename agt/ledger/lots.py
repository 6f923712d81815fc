"""Releases that are paid for in lots of several, for questions that come one after the other."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.ledger.ledger import Exhausted
from agt.ledger.payer import MAX_RELEASES, Charged, LedgerPayer, NoPayer, Reservation
from agt.ledger.questions import Questions
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee

if TYPE_CHECKING:  # a program that reads a ledger need not load torch
    from agt.mechanisms.labelling import AnyLabelling


@dataclass(eq=False)
class PaidLot:
    """Releases that were paid for together, of which some may not be reserved yet.

    Attributes:
        reservation: the payer's reservation of the whole lot.
        unreserved: the number of its releases that ``LotPayer.reserve`` has not reserved yet.
        answers: the labels that were drawn from it so far and are not in the ledger yet, by the key
            of the question.
    """

    reservation: Reservation
    unreserved: int
    answers: dict[Any, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LotReservation(Reservation):
    """A reservation of releases from one or more lots.

    Attributes:
        parts: pairs (lot, number of releases from it), in the order in which they are drawn. The
            numbers add up to ``size``.
    """

    parts: tuple[tuple[PaidLot, int], ...] = ()


class LotPayer:
    """A payer (``agt.ledger.payer.Payer``) that pays for lots and reserves releases from them.

    The answers of a lot are stored in the ledger when all of them are drawn; until then this object
    holds them. Releases of a lot that are never drawn stay spent.

    Attributes:
        lots: the lots with releases that are not reserved yet, or with answers that are not
            stored in the ledger yet; in the order of payment.
        newest: the reservation of the newest lot; of size 0 if nothing was paid for.
        reserved: the number of releases that were paid for.
        entries: the numbers of the ledger's entries that paid for lots.
    """

    def __init__(
        self, payer: NoPayer | LedgerPayer, size: int = 1, maximum: int | None = None
    ) -> None:
        """Start without a lot.

        Args:
            payer: the payer that pays for lots.
            size: the smallest size of a lot. If more queries than this come at once, the lot is as
                large as they need.
            maximum: the largest number of releases to pay for in all; None: as many as the budget
                holds.
        """
        self.payer = payer
        self.size = size
        self.maximum = maximum
        self.lots = deque[PaidLot]()
        self.newest = Reservation(0)
        self.reserved = 0
        self.entries = list[int]()
        # How many releases the budget held after the newest lot; None: any number, or not known yet
        self._budget_left: int | None = None

    @property
    def name(self) -> str:
        """The name of the ledger's population; empty if no ledger counts the releases."""
        return self.payer.name

    @property
    def unreserved(self) -> int:
        """How many releases are paid for and not reserved by ``reserve`` yet."""
        return sum(lot.unreserved for lot in self.lots)

    @property
    def at_maximum(self) -> bool:
        """Whether as many releases were paid for as ``maximum`` allows."""
        return self.maximum is not None and self.reserved >= self.maximum

    def check(self, claim: Claim) -> None:
        """Raise ConfigError if the ledger cannot charge a release with this privacy guarantee."""
        self.payer.check(claim)

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        """Return the queries as questions, with the labels that the ledger or a lot has stored.

        A question is a query that must get the same label whenever it is repeated.

        Args:
            labelling: the mechanism with its model and its claim.
            features: [n, ...], the queries' features as the model takes them.
        """
        questions = self.payer.questions(labelling, features)
        if not questions.has_ledger:
            return questions
        labels_in_lots: dict[Any, int] = {}
        for lot in self.lots:
            labels_in_lots.update(lot.answers)
        drawn = {key: labels_in_lots[key] for key in questions.keys if key in labels_in_lots}
        return Questions(questions.keys, {**questions.known, **drawn})

    def reserve(self, charged: Charged, requested: int) -> LotReservation:
        """Reserve releases from lots, and pay for another lot if too few are left.

        Args:
            charged: the release: its guarantee, its kind and its mechanism.
            requested: the largest number of releases to reserve.

        Returns:
            As many releases as lots and the budget hold, perhaps none: an exhausted budget is no
            error.
        """
        missing = requested - self.unreserved
        if missing > 0:
            self._pay(charged, max(missing, self.size))
        parts: list[tuple[PaidLot, int]] = []
        size = 0
        for lot in self.lots:
            from_lot = min(lot.unreserved, requested - size)
            if from_lot > 0:
                lot.unreserved -= from_lot
                size += from_lot
                parts.append((lot, from_lot))
        return LotReservation(size, self.newest.debit, self.newest.population, tuple(parts))

    def _pay(self, charged: Charged, requested: int) -> None:
        """Pay for another lot, and add it to ``lots``; do nothing if the budget holds no release.

        Args:
            charged: the release: its guarantee, its kind and its mechanism.
            requested: the largest size of the lot; ``maximum`` may allow less.
        """
        if self.maximum is not None:
            requested = min(requested, self.maximum - self.reserved)
        if requested < 1:
            return
        try:
            reservation = self.payer.reserve(charged, requested)
        except Exhausted:
            self._budget_left = 0
            return
        self.newest = reservation
        self.reserved += reservation.size
        # Without a ledger ``store_answers`` is not called, which would remove used lots.
        self.lots = deque(lot for lot in self.lots if lot.unreserved or lot.answers)
        self.lots.append(PaidLot(reservation, reservation.size))
        if reservation.debit is not None:
            self.entries.append(reservation.debit.entry.number)
        # The rest of a budget never grows, so the last count limits the search for the new one.
        maximum = MAX_RELEASES if self._budget_left is None else self._budget_left
        self._budget_left = self.payer.remaining(charged.guarantee, maximum)

    def store_answers(
        self, reservation: Reservation, answers: Mapping[Any, int]
    ) -> Mapping[Any, int]:
        """Add newly drawn labels to their lots, and return the labels that are to be released.

        The answers of a lot whose releases are used up are stored in the ledger.

        Args:
            reservation: the reservation that ``reserve`` of this payer returned.
            answers: the drawn labels by the key of the question, one for each release of the
                reservation.

        Returns:
            The labels to give as answers, by the same keys. One may differ from the drawn label, if
            another process answered the question first.

        Raises:
            TypeError: the reservation is another payer's.
            ValueError: there are fewer answers than releases.
        """
        if not isinstance(reservation, LotReservation):
            raise TypeError(f"{reservation!r} is not a reservation of a LotPayer")
        if len(answers) < reservation.size:
            raise ValueError(f"{len(answers)} answers for {reservation.size} reserved releases")
        remaining_answers = iter(answers.items())
        given: dict[Any, int] = {}
        for lot, size in reservation.parts:
            drawn = dict(islice(remaining_answers, size))
            lot.answers.update(drawn)
            given.update(drawn)
            if lot.unreserved == 0:
                stored = self.payer.store_answers(lot.reservation, lot.answers)
                given.update({key: stored[key] for key in drawn})
                if lot in self.lots:
                    self.lots.remove(lot)
        return given

    def store_remaining_answers(self) -> None:
        """Store the answers of lots that still have unused releases, at the end of a session.

        Releases that were not drawn stay spent.
        """
        for lot in self.lots:
            if lot.answers:
                # What is stored may differ from the answers, but no question waits for it.
                self.payer.store_answers(lot.reservation, lot.answers)
                lot.answers = {}

    def account(
        self, reservation: Reservation, one_by_one: bool = True
    ) -> Account | Uncounted | None:
        """Return the statement about the ledger in a claim, or why no ledger counts the release.

        The arguments are not used: the account is that of the newest lot, which has the latest
        total, and answers from lots are always counted one by one.
        """
        return self.payer.account(self.newest, one_by_one=True)

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return the number of further releases that can be reserved; None: any number.

        These are the releases that are left in lots, and those that further lots may have. The
        first call stores how many releases the payer's budget allows, and each later attempt to pay
        for a lot updates this number.

        Args:
            guarantee: the guarantee of each release.
            maximum: the largest number of releases of further lots; used only until the first lot
                is paid for, because later the count after the newest lot is used.
        """
        if self._budget_left is None:
            self._budget_left = self.payer.remaining(guarantee, maximum)
        limits = [] if self._budget_left is None else [self._budget_left]
        if self.maximum is not None:
            limits.append(self.maximum - self.reserved)
        return self.unreserved + min(limits) if limits else None
