"""Questions that come one after the other, and are paid for several at a time."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.ledger.ledger import Exhausted, Questions
from agt.ledger.payer import MAX_RELEASES, Charged, LedgerPayer, NoPayer, Reservation
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.claims import Claim
from agt.mechanisms.guarantees import Guarantee

if TYPE_CHECKING:  # whoever reads a ledger loads no torch
    from agt.mechanisms.labelling import AnyLabelling


@dataclass(eq=False)
class Lot:
    """Releases that were paid for together.

    Attributes:
        reservation: of all of them.
        left: how many are not taken yet.
        answers: what was drawn on them so far, by question.
    """

    reservation: Reservation
    left: int
    answers: dict[Any, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LotReservation(Reservation):
    """Releases that were taken from lots.

    Attributes:
        parts: (lot, how many are from it), in the order in which they are drawn.
    """

    parts: tuple[tuple[Lot, int], ...] = ()


class LotPayer:
    """A payer (``agt.ledger.payer.Payer``) that reserves several releases at once and hands them
    out as they are wanted.

    The ledger is told the answers of a lot when all of it is drawn; until then they are remembered
    here. What is left of the last lot stays spent.

    Attributes:
        lots: that have something left, or of which something is to be kept.
        newest: what was paid last; of size 0: nothing was.
        reserved: how many releases were paid in all.
        entries: of the ledger, that lots were paid on.
    """

    def __init__(
        self, payer: NoPayer | LedgerPayer, size: int = 1, maximum: int | None = None
    ) -> None:
        """Pay nothing yet.

        Args:
            payer: that lots are paid from.
            size: of a lot, at least; a question of more queries is paid as one lot.
            maximum: how many releases are paid in all; None: as many as the budget holds.
        """
        self.payer = payer
        self.size = size
        self.maximum = maximum
        self.lots = deque[Lot]()
        self.newest = Reservation(0)
        self.reserved = 0
        self.entries = list[int]()
        self._budget_left: int | None = None  # as the payer counted after the newest lot

    @property
    def name(self) -> str:
        return self.payer.name

    @property
    def left(self) -> int:
        """How many releases are paid for and not taken."""
        return sum(lot.left for lot in self.lots)

    @property
    def at_maximum(self) -> bool:
        """Whether as many releases are paid for as may be."""
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
        """Take releases from lots, and pay for another lot where too little is left.

        Returns:
            As many as the budget holds, maybe none: an exhausted budget is no error here.
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
        # Where nobody remembers answers, ``keep`` is not called, and removes no lot.
        self.lots = deque(lot for lot in self.lots if lot.left or lot.answers)
        self.lots.append(Lot(reservation, reservation.size))
        if reservation.debit is not None:
            self.entries.append(reservation.debit.entry.number)
        # There are never more than there were: the count starts from the last one.
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
        """Remember what was drawn on lots that are not used up: no more questions come."""
        for lot in self.lots:
            if lot.answers:
                self.payer.keep(lot.reservation, lot.answers)
                lot.answers = {}

    def account(
        self, reservation: Reservation, one_by_one: bool = True
    ) -> Account | Uncounted | None:
        return self.payer.account(self.newest, one_by_one=True)

    def remaining(self, guarantee: Guarantee, maximum: int = MAX_RELEASES) -> int | None:
        """Return how many more may be asked for: what is left of lots, and as many as another
        lot may have.
        """
        if self._budget_left is None:
            self._budget_left = self.payer.remaining(guarantee, maximum)
        limits = [] if self._budget_left is None else [self._budget_left]
        if self.maximum is not None:
            limits.append(self.maximum - self.reserved)
        return self.left + min(limits) if limits else None
