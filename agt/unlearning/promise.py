"""What a way of removing records guarantees, in values that a report and an auditor read alike (method.md section 7)."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agt.facts import Fact, Standing

MethodName = Literal["certificate", "newton", "sisa", "retrain"]
METHODS: tuple[MethodName, ...] = ("certificate", "newton", "sisa", "retrain")


@dataclass(frozen=True)
class Promise:
    """How the model after a removal compares with one that never saw the removed records.

    Attributes:
        method: that gave it.
        exact: True: the very model (or, of ``certificate``, the very answers) that training without them gives; False: its
            distribution is within (eps, delta) of that, in both directions.
        eps, delta: 0 where exact.
        adaptive: whether it holds for requests that were chosen after seeing what the model gave out; False: for requests
            chosen without looking (oblivious ones) alone.
        words: what is promised and to whom, in sentences for a stranger; the first says it all in one line.
        assumptions: what it rests on, each proved, declared or not held. One that is not held is said in every account.

    Raises:
        ValueError: a budget that is none.
    """

    method: MethodName
    exact: bool
    eps: float
    delta: float
    adaptive: bool
    words: tuple[str, ...]
    assumptions: tuple[Fact, ...] = ()

    def __post_init__(self) -> None:
        if not (0 <= self.eps < float("inf") and 0 <= self.delta < 1) or (self.exact and (self.eps or self.delta)):
            raise ValueError(f"({self.eps}, {self.delta}) is no guarantee" + (" of exactness" if self.exact else ""))
        if not self.words:
            raise ValueError("a promise is said in words")

    @property
    def proved(self) -> bool:
        """Whether nothing that it rests on is known not to hold; else its numbers are as published, and no guarantee."""
        return all(fact.standing is not Standing.VOID for fact in self.assumptions)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Promise":
        """From what ``dataclasses.asdict`` gave, as JSON has it. Raises TypeError, ValueError, KeyError: it is none."""
        facts = plain["assumptions"]
        assumptions = tuple(Fact(Standing(fact["standing"]), fact["why"], fact["broken_by"]) for fact in facts)
        return cls(**{**plain, "words": tuple(plain["words"]), "assumptions": assumptions})


@dataclass(frozen=True)
class Allowance:
    """The removal budget of a model: how much error its noise hides, and how much there is.

    Attributes:
        spent, total: bounds on the gradient's residual (or what the method's budget counts), >= 0.
        unit: what they count, in words.
    """

    spent: float
    total: float
    unit: str

    @property
    def left(self) -> float:
        """What remains; 0 where it is overdrawn."""
        return max(0.0, self.total - self.spent)


@dataclass(frozen=True)
class Removal:
    """One removal that was carried out.

    Attributes:
        promise: what holds of the new state.
        records: how many records were removed.
        seconds: wall time of the method alone; data that was read and reports not counted.
        facts: flat numbers for metrics.json and the account.
        words: what was done, a line each.
        allowance: what is left for later removals; None: the method needs none.
    """

    promise: Promise
    records: int
    seconds: float
    facts: Mapping[str, Any]
    words: tuple[str, ...]
    allowance: Allowance | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """JSON values of all but the promise: what a log keeps beside that."""
        node = {name: value for name, value in asdict(self).items() if name != "promise"}
        return {**node, "seconds": float(self.seconds), "facts": self.told}

    @property
    def told(self) -> dict[str, bool | int | float | str]:
        """The facts as JSON has them, without those that nobody knows."""
        return {name: _plain(value) for name, value in self.facts.items() if value is not None}

    @classmethod
    def of(cls, promise: Mapping[str, Any], plain: Mapping[str, Any]) -> "Removal":
        """From both parts again. Raises TypeError, ValueError, KeyError: they are none."""
        budget = plain["allowance"]
        left = {"words": tuple(plain["words"]), "allowance": None if budget is None else Allowance(**budget)}
        return cls(Promise.of(promise), **{**plain, **left})


def _plain(value: Any) -> bool | int | float | str:
    """A number or a text as JSON has it."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, bool | int | float | str) else re.sub(r"\s+", " ", str(value))
