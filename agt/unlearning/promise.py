"""What a way of removing records guarantees, in values that a report and an auditor read alike
(method.md section 7).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.errors import ConfigError
from agt.facts import Fact, Standing, with_code
from agt.settings import plain_of, schema, validate
from agt.unlearning.sentences import Remark, in_words, sentences, with_fact

MethodName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Requests = Literal["oblivious", "adaptive for fixed keys", "adaptive"]
NonNegative = Annotated[float, Field(ge=0)]


@schema
class Promise:
    """How the model after a removal compares with one that never saw the removed records.

    Attributes:
        method: that gave it.
        exact: True: the very model (or, of ``certificate``, the very answers) that training without
            them gives, or one ``within`` a distance of it; False: its distribution is within (eps,
            delta) of that, in both directions.
        eps, delta: 0 where exact.
        adaptive: whether it holds for requests that were chosen after seeing what the model gave
            out; False: for requests chosen without looking (oblivious ones) alone.
        terms: what is promised and to whom, for a stranger; the first says it all in one line.
        assumptions: what it rests on, each proved, declared or not held. One that is not held is
            said in every account.
        within: where exact up to a distance: bound on it, l2 over all weights that are served;
            None: bit for bit.

    Raises:
        ConfigError: a budget or a distance that is none, or no terms.
    """

    method: MethodName
    exact: bool
    eps: NonNegative
    delta: Annotated[float, Field(ge=0, lt=1)]
    adaptive: bool
    terms: Annotated[tuple[Remark, ...], Field(min_length=1)]
    assumptions: tuple[Fact, ...] = ()
    within: NonNegative | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not self.exact:
            raise ConfigError(
                f"within={self.within}: a distance can be promised only with exact=true"
            )
        if self.exact and (self.eps or self.delta):
            raise ConfigError(
                f"eps={self.eps} and delta={self.delta} cannot be given together with exactness"
            )

    @property
    def proved(self) -> bool:
        """Whether nothing that it rests on is known not to hold; else its numbers are as
        published, and no guarantee.
        """
        return all(fact.standing is not Standing.VOID for fact in self.assumptions)

    @property
    def requests(self) -> Requests:
        """For which requests it holds, after Gupta et al. (2021).

        Of exact methods with a seed and keys that are fixed, the model after any sequence of
        requests is a function F(D', keys) of the records D' that are left, bit for bit, whoever
        chose the sequence. What a sequence that was chosen after looking can spoil is a statement
        about distributions: D' may then depend on the keys, through earlier answers or because the
        keys are known, so F(D', keys) is not distributed as F(D', fresh keys). Keys drawn after the
        requests came mend that; so does noise drawn then, over a distance that is bounded for every
        D'. Certificates and least squares know no keys.
        """
        return (
            "adaptive"
            if self.adaptive
            else "adaptive for fixed keys"
            if self.exact
            else "oblivious"
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """The terms, as a reader sees them."""
        return sentences(self.terms)


@schema
class RemovalBudget:
    """The removal budget of a model: how much error its noise hides, and how much there is.

    Attributes:
        spent, total: bounds on the norm of the gradient that removals and the optimiser left.
    """

    spent: NonNegative
    total: NonNegative


@schema
class Removal:
    """One removal that was carried out.

    Attributes:
        promise: what holds of the new state.
        records: how many records were removed.
        seconds: wall time of the method alone; data that was read and reports not counted.
        facts: flat numbers for metrics.json and the account: members trained again, bounds, noise.
        steps: what was done, one after the other.
        budget: what is left for later removals; None: of methods that belong to no kind of
            certificate. A kind's own method always has one (``CertificateKind.removal_bounds``).
    """

    promise: Promise
    records: Annotated[int, Field(ge=0)]
    seconds: NonNegative
    facts: Mapping[str, bool | int | float | str]
    steps: tuple[Remark, ...]
    budget: RemovalBudget | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was done, as a reader sees it."""
        return sentences(self.steps)

    @property
    def plain(self) -> dict[str, Any]:
        """JSON values of all but the promise: what a log keeps beside that."""
        return {name: value for name, value in plain_of(self).items() if name != "promise"}


def read_promise(promise: Mapping[str, Any]) -> Promise:
    """Read the JSON values of a promise, in this version's form or that of earlier versions.

    Raises:
        ConfigError, KeyError, TypeError: it is none.
    """
    return validate(Promise, promise_with_codes(promise), "promise")


def read_removal(promise: Mapping[str, Any], plain: Mapping[str, Any]) -> Removal:
    """Read what a request log keeps of a removal, in this version's form or that of earlier ones.

    Args:
        promise: JSON values of the promise.
        plain: those of the rest (``Removal.plain``).

    Raises:
        ConfigError, KeyError, TypeError: they are none.
    """
    node = removal_with_codes(plain)
    return validate(Removal, {**node, "promise": plain_of(read_promise(promise))}, "removal")


def promise_with_codes(promise: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a promise in this version's form.

    Args:
        promise: of earlier versions with ``words``, or with facts as text.

    Raises:
        KeyError, TypeError, ValueError: it is in no such form.
    """
    node = dict(promise)
    if "words" in node:
        node["terms"] = [in_words(text) for text in node.pop("words")]
    facts = node.pop("assumptions", ())
    return {**node, "assumptions": [with_code(fact) if "why" in fact else fact for fact in facts]}


def removal_with_codes(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a removal, without its promise, in this version's form.

    Args:
        plain: of earlier versions with text in ``steps``; or with ``words``, and the budget as
            ``allowance``, whose unit was a sentence.

    Raises:
        KeyError, TypeError, ValueError: it is in no such form.
    """
    node = dict(plain)
    if "words" not in node:
        return {**node, "steps": [with_fact(step) for step in node["steps"]]}
    steps = [in_words(text) for text in node.pop("words")]
    budget = node.pop("allowance", None)
    if budget is not None:
        budget = {name: value for name, value in budget.items() if name != "unit"}
        node["budget"] = budget
    return {**node, "steps": steps}
