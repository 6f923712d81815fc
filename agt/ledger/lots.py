"""Releases that are paid for several at a time, for questions that come one after the other."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.ledger.ledger import Exhausted
from agt.ledger.payer import MAX_RELEASES, Charged, LedgerPayer, NoPayer, Reservation
from agt.ledger.questions import Questions
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.labelling import AnyLabelling


@dataclass(eq=False)
class Lot:
    """A lot: releases that were paid for together.

    Attributes:
        reservation: what was paid for.
        left: how many of the releases were not handed out yet.
        answers: the labels that were drawn so far, by the key of the question.
    """

    reservation: Reservation
    left: int
    answers: dict[Any, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LotReservation(Reservation):
    """Releases that were handed out from lots.

    Attributes:
        parts: (lot, how many releases are from it), in the order in which they are drawn.
    """

    parts: tuple[tuple[Lot, int], ...] = ()


class LotPayer:
    """A payer (``agt.ledger.payer.Payer``) that pays for lots, and hands out their releases.

    The answers of a lot go to the ledger when all of them are drawn; until then they are kept here.
    What was not handed out of the last lot stays spent.

    Attributes:
        lots: the lots of which releases are left, or of which answers are still to be kept.
        newest: what was paid for last; a reservation of size 0 if nothing was.
        reserved: how many releases were paid for.
        entries: the numbers of the ledger's entries that paid for lots.
    """

    def __init__(
        self, payer: NoPayer | LedgerPayer, size: int = 1, maximum: int | None = None
    ) -> None:
        """Start without a lot.

        Args:
            payer: who pays for lots.
            size: the smallest size of a lot. More queries at once are paid for as one lot.
            maximum: how many releases may be paid for in all; None for as many as the budget holds.
        """
        self.payer = payer
        self.size = size
        self.maximum = maximum
        self.lots = deque[Lot]()
        self.newest = Reservation(0)
        self.reserved = 0
        self.entries = list[int]()
        # How many releases the budget still held after the newest lot; None if it is not known.
        self._budget_left: int | None = None

    @property
    def name(self) -> str:
        return self.payer.name

    @property
    def left(self) -> int:
        """How many releases are paid for and not handed out."""
        return sum(lot.left for lot in self.lots)

    @property
    def at_maximum(self) -> bool:
        """Whether as many releases were paid for as ``maximum`` allows."""
        return self.maximum is not None and self.reserved >= self.maximum

    def check(self, claim: Claim) -> None:
        self.payer.check(claim)

    def questions(self, labelling: "AnyLabelling", features: np.ndarray) -> Questions:
        questions = self.payer.questions(labelling, features)
        if not questions.remembered:
            return questions
        drawn = {key: label for lot in self.lots for key, label in lot.answers.items()}
        known = {key: drawn[key] for key in questions.keys if key in drawn}
        return Questions(questions.keys, {**questions.known, **known})

    def reserve(self, charged: Charged, wanted: int) -> LotReservation:
        """Hand out releases from lots, and pay for another lot if too few are left.

        Returns:
            As many releases as the budget holds, perhaps none: an exhausted budget is no error.
        """
        missing = wanted - self.left
        if missing > 0:
            self._pay(charged, max(missing, self.size))
        parts: list[tuple[Lot, int]] = []
        for lot in self.lots:
            taken = min(lot.left, wanted)
            if taken:
                lot.left -= taken
                wanted -= taken
                parts.append((lot, taken))
        size = sum(taken for _, taken in parts)
        return LotReservation(size, self.newest.debit, self.newest.population, tuple(parts))

    def _pay(self, charged: Charged, wanted: int) -> None:
        """Pay for another lot of at most ``wanted`` releases; nothing if the budget holds none."""
        if self.maximum is not None:
            wanted = min(wanted, self.maximum - self.reserved)
        if wanted < 1:
            return
        try:
            reservation = self.payer.reserve(charged, wanted)
        except Exhausted:
            self._budget_left = 0
            return
        self.newest = reservation
        self.reserved += reservation.size
        # Without a ledger nobody calls ``keep``, which would remove used lots.
        self.lots = deque(lot for lot in self.lots if lot.left or lot.answers)
        self.lots.append(Lot(reservation, reservation.size))
        if reservation.debit is not None:
            self.entries.append(reservation.debit.entry.number)
        # The rest of a budget never grows, so the search starts at the last count.
        maximum = MAX_RELEASES if self._budget_left is None else self._budget_left
        self._budget_left = self.payer.remaining(charged.guarantee, maximum)

    def keep(self, reservation: Reservation, answers: Mapping[Any, int]) -> Mapping[Any, int]:
        assert isinstance(reservation, LotReservation)
        undealt = iter(answers.items())
        told: dict[Any, int] = {}
        for lot, taken in reservation.parts:
            drawn = dict(next(undealt) for _ in range(taken))
            lot.answers.update(drawn)
            told.update(drawn)
            if not lot.left:
                kept = self.payer.keep(lot.reservation, lot.answers)
                told.update({key: kept[key] for key in drawn})
                if lot in self.lots:
                    self.lots.remove(lot)
        return told

    def keep_rest(self) -> None:
        """Keep the answers of lots that are not used up, because no more questions come."""
        for lot in self.lots:
            if lot.answers:
                self.payer.keep(lot.reservation, lot.answers)
                lot.answers = {}

    def account(
        self, reservation: Reservation, one_by_one: bool = True
    ) -> Account | Uncounted | None:
        return self.payer.account(self.newest, one_by_one=True)

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return how many more releases may be wanted; None for any number.

        These are the releases that are left in lots, and those that another lot may have.
        """
        if self._budget_left is None:
            self._budget_left = self.payer.remaining(guarantee, maximum)
        limits = [] if self._budget_left is None else [self._budget_left]
        if self.maximum is not None:
            limits.append(self.maximum - self.reserved)
        return self.left + min(limits) if limits else None
