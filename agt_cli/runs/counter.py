"""How many questions of a session may be drawn: paid lot by lot, drawn down question by question."""

from dataclasses import dataclass, field

from agt.ledger.ledger import Exhausted
from agt.mechanisms.release import Labelling, Release, totals_of
from agt_cli.runs.account import Receipt
from agt_cli.runs.publish import Request
from agt_cli.runs.spending import Spending, of_run, write_spent


@dataclass
class Counter:
    """What may be drawn.

    Attributes:
        request: what is released.
        labelling: how.
        simulated: nothing counts.
        lot: how many are paid at once, at least.
        most: how many in all; None: any number.
        receipt, left: the present lot, and what is left of it.
        reserved: what was paid in all, on which entries.
        fitting: how many more the budget holds, as one lot; None: not known yet, or nobody counts.
    """

    request: Request
    labelling: Labelling
    simulated: bool
    lot: int
    most: int | None
    receipt: Receipt | None = None
    left: int = 0
    reserved: int = 0
    entries: list[int] = field(default_factory=list)
    fitting: int | None = None

    def take(self, wanted: int) -> list[tuple[Receipt, int]]:
        """As many of the questions that are wanted as may be drawn, with what paid for each stretch of them."""
        parts: list[tuple[Receipt, int]] = []
        while wanted and (self.left or self._reserve(wanted)):
            size = min(wanted, self.left)
            self.left, wanted = self.left - size, wanted - size
            parts.append((self._present, size))
        return parts

    @property
    def remaining(self) -> int | None:
        """How many more may be asked: of this lot, and as one more; None: any number."""
        if self.fitting is None:
            self.fitting = self.request.account.left(self.labelling.claim.guarantee)
        parts = (self.fitting, None if self.most is None else self.most - self.reserved)
        more = [part for part in parts if part is not None]
        return self.left + min(more) if more else None

    @property
    def why(self) -> str:
        """Why nothing more may be drawn."""
        if self.most is not None and self.reserved >= self.most:
            return f"total.queries={self.most} are paid for"
        return f"the budget of {self.request.account.name} holds no more labels, each {self.labelling.claim.guarantee}"

    @property
    def unused(self) -> list[str]:
        """What is said of a lot that is not used up."""
        return (
            [f"{self.left} labels were paid for (lot={self.lot}) and not asked for: they stay spent"] if self.left else []
        )

    def spend(self) -> None:
        """Say on disk what was paid so far."""
        opened, claim, facts = self.request.opened, self.labelling.claim, self._present.facts
        totals = totals_of(claim.guarantee, self.reserved, self.request.delta)
        spent = Release(claim, lambda _: None, totals, self.reserved, noisy=False).spent
        about = Spending(
            claim.output,
            self.labelling.mechanism.name,
            str(claim.guarantee),
            spent,
            self.reserved,
            opened.dataset.name,
            self.simulated,
            facts and {**facts, "entries": self.entries},
        )
        write_spent(self.request.record, of_run(opened.trained.finished), about)

    def _reserve(self, wanted: int) -> bool:
        size = max(wanted, self.lot)
        size = size if self.most is None else min(size, self.most - self.reserved)
        if size < 1:
            return False
        first, account, claim = self.receipt is None, self.request.account, self.labelling.claim
        try:
            self.receipt = account.debit(self.request.charge(claim, self.labelling.mechanism.name), size)
        except Exhausted:
            self.fitting = 0
            return False
        self.left, self.reserved = self.receipt.size, self.reserved + self.receipt.size
        self.entries += [self.receipt.debit.head.count] if self.receipt.debit else []
        if first or not (account.ledger or self.simulated):  # a ledger tells of the others
            self.spend()
        self.fitting = (
            account.left(claim.guarantee) if self.fitting is None else account.left(claim.guarantee, self.fitting)
        )
        return True

    @property
    def _present(self) -> Receipt:
        if self.receipt is None:
            raise RuntimeError("nothing was paid")
        return self.receipt
