"""What a way of removing records guarantees, in values that a report and an auditor read alike (method.md section 7)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.facts import Fact, Standing
from agt.settings import schema

MethodName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Requests = Literal["oblivious", "adaptive for fixed keys", "adaptive"]


@dataclass(frozen=True)
class Promise:
    """How the model after a removal compares with one that never saw the removed records.

    Attributes:
        method: that gave it.
        exact: True: the very model (or, of ``certificate``, the very answers) that training without them gives, or one
            ``within`` a distance of it; False: its distribution is within (eps, delta) of that, in both directions.
        eps, delta: 0 where exact.
        adaptive: whether it holds for requests that were chosen after seeing what the model gave out; False: for requests
            chosen without looking (oblivious ones) alone.
        words: what is promised and to whom, in sentences for a stranger; the first says it all in one line.
        assumptions: what it rests on, each proved, declared or not held. One that is not held is said in every account.
        within: where exact up to a distance: bound on it, l2 over all weights that are served; None: bit for bit.

    Raises:
        ValueError: a budget or a distance that is none.
    """

    method: MethodName
    exact: bool
    eps: float
    delta: float
    adaptive: bool
    words: tuple[str, ...]
    assumptions: tuple[Fact, ...] = ()
    within: float | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not (self.exact and 0 <= self.within < float("inf")):
            raise ValueError(f"within={self.within}: no distance of a model that is exact but for it")
        if not (0 <= self.eps < float("inf") and 0 <= self.delta < 1) or (self.exact and (self.eps or self.delta)):
            raise ValueError(f"({self.eps}, {self.delta}) is no guarantee" + (" of exactness" if self.exact else ""))
        if not self.words:
            raise ValueError("a promise is said in words")

    @property
    def proved(self) -> bool:
        """Whether nothing that it rests on is known not to hold; else its numbers are as published, and no guarantee."""
        return all(fact.standing is not Standing.VOID for fact in self.assumptions)

    @property
    def requests(self) -> Requests:
        """For which requests it holds, after Gupta et al. (2021).

        Of exact methods with a seed and keys that are fixed, the model after any sequence of requests is a function
        F(D', keys) of the records D' that are left, bit for bit, whoever chose the sequence. What a sequence that was
        chosen after looking can spoil is a statement about distributions: D' may then depend on the keys, through
        earlier answers or because the keys are known, so F(D', keys) is not distributed as F(D', fresh keys). Keys
        drawn after the requests came mend that; so does noise drawn then, over a distance that is bounded for every D'.
        Certificates and least squares know no keys.
        """
        return "adaptive" if self.adaptive else "adaptive for fixed keys" if self.exact else "oblivious"

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Promise":
        """From what ``dataclasses.asdict`` gave, as JSON has it. Raises TypeError, ValueError, KeyError: it is none."""
        facts = plain["assumptions"]
        assumptions = tuple(Fact(Standing(fact["standing"]), fact["why"], fact["broken_by"]) for fact in facts)
        return cls(**{**plain, "words": tuple(plain["words"]), "assumptions": assumptions})


@schema
class RemovalBudget:
    """The removal budget of a model: how much error its noise hides, and how much there is.

    Attributes:
        spent, total: bounds on the gradient's residual (or what the method's budget counts), >= 0.
        unit: what they count, in words.
    """

    spent: Annotated[float, Field(ge=0)]
    total: Annotated[float, Field(ge=0)]
    unit: str


@dataclass(frozen=True)
class Removal:
    """One removal that was carried out.

    Attributes:
        promise: what holds of the new state.
        records: how many records were removed.
        seconds: wall time of the method alone; data that was read and reports not counted.
        facts: flat numbers for metrics.json and the account, as JSON has them.
        words: what was done, a line each.
        allowance: what is left for later removals; None: the method needs none.
    """

    promise: Promise
    records: int
    seconds: float
    facts: Mapping[str, bool | int | float | str]
    words: tuple[str, ...]
    allowance: RemovalBudget | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """JSON values of all but the promise: what a log keeps beside that."""
        return {name: value for name, value in asdict(self).items() if name != "promise"}

    @classmethod
    def of(cls, promise: Mapping[str, Any], plain: Mapping[str, Any]) -> "Removal":
        """From both parts again. Raises TypeError, ValueError, KeyError: they are none."""
        budget = plain["allowance"]
        left = {"words": tuple(plain["words"]), "allowance": None if budget is None else RemovalBudget(**budget)}
        return cls(Promise.of(promise), **{**plain, **left})
