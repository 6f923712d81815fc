"""Whether the release path counts as it says: what is debited, what is free, what is refused, and how claims add up."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from agt.audit.findings import Finding, Outcome, Strength
from agt.ledger.questions import UNANSWERED
from agt.mechanisms.account import Allowance, Cost, Lot
from agt.mechanisms.mechanism import Mechanism
from agt_cli.audit.stage import Stage, room_for
from agt_cli.runs.queries import OpenedRun

FEW = 8  # answers that a small budget holds


@dataclass(frozen=True)
class Counters:
    """Test ledgers on both sides of a pair.

    Attributes:
        stage: where.
        sides: the run with the unit, and the one without.
        mechanism: that answers.
        queries: [n, ...], at least 2 ``FEW`` distinct ones.
    """

    stage: Stage
    sides: tuple[OpenedRun, OpenedRun]
    mechanism: Mechanism
    queries: np.ndarray

    def findings(self) -> list[Finding]:
        """Each rule, on both sides."""
        books = [self._book(side) for side in self.sides]
        return [
            self._told(
                "the ledger is debited exactly what is claimed", [one[0] for one in books], "a call with queries twice"
            ),
            self._told(
                "a repeated question is answered as before, and free", [one[1] for one in books], "the same call again"
            ),
            self._told(
                "a second mechanism's cost is added to the first's",
                [one[2] for one in books],
                "the same queries under another budget per query",
            ),
            self._refusals(),
        ]

    def _book(self, side: OpenedRun) -> tuple[int, int, int]:
        """Differences from what was claimed: (of the debit; of the repeat; of the second mechanism's debit)."""
        once, guarantee, other = self.queries[:FEW], self.mechanism.guarantee, self._other
        calls = np.concatenate([once, once[: FEW // 2]])
        one, two = Lot(guarantee, FEW).cost, Lot(other.guarantee, FEW).cost
        with self.stage.ledger(side, _wide(room_for(guarantee, FEW), room_for(other.guarantee, FEW))) as ledger:
            first = self.stage.ask(side, self.mechanism, calls, ledger)
            debited = _different(
                ledger.spent != one, first.labels[: FEW // 2] != first.labels[FEW:], str(guarantee) not in first.claim
            )
            again = self.stage.ask(side, self.mechanism, calls, ledger)
            repeated = _different(ledger.spent != one, again.labels != first.labels)
            self.stage.ask(side, other, once, ledger)
            added = _different(ledger.spent != one.plus(two))
            ledger.verify()
        return debited, repeated, added

    @cached_property
    def _other(self) -> Mechanism:
        """The same mechanism at half the budget."""
        halved = {name: value / 2 for name, value in self.mechanism.guarantee.parameters.items() if name in ("eps", "mu")}
        return type(self.mechanism)(**asdict(self.mechanism) | halved)

    def _refusals(self) -> Finding:
        """Exhaust a small budget on both sides."""
        guarantee, wanted = self.mechanism.guarantee, self.queries[: 2 * FEW]
        allowance = room_for(guarantee, FEW)
        held = allowance.fitting(Cost(), guarantee, len(wanted))
        seen = []
        for side in self.sides:
            with self.stage.ledger(side, allowance) as ledger:
                first = self.stage.ask(side, self.mechanism, wanted, ledger)
                then = self.stage.ask(side, self.mechanism, wanted[held:], ledger)
                seen.append((first.labels == UNANSWERED, then.labels == UNANSWERED, ledger.spent))
        due = np.arange(len(wanted)) >= held
        wrong = [_different(first != due, ~then, spent != Lot(guarantee, held).cost) for first, then, spent in seen]
        return self._told(
            "which questions are refused follows from the counter alone",
            wrong,
            f"{len(wanted)} questions on a budget of {held}, then the refused ones again",
        )

    def _told(self, claim: str, wrong: Sequence[int], attack: str) -> Finding:
        many = sum(wrong)
        return Finding(
            subject=f"{self.mechanism.name}: the ledger of agt predict",
            claim=claim,
            attack=f"{attack}, with the unit and without it",
            effort=f"{len(wrong)} test ledgers of their own",
            outcome=Outcome.VIOLATED if many else Outcome.STANDS,
            meaning=f"{claim}: {f'{many} differences' if many else 'so it was, on both sides'}",
            measure="differences",
            claimed=0.0,
            found=float(many),
            strength=Strength.CERTAIN,
            noticeable="a single one",
        )


def _different(*wrong: bool | np.ndarray) -> int:
    return sum(int(np.sum(each)) for each in wrong)


def _wide(one: Allowance, other: Allowance) -> Allowance:
    """A budget that holds what each of two holds, together."""
    return Allowance(2 * (one.eps + other.eps), min(0.99, one.delta + other.delta), one.leaks)
