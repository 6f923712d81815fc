"""What a removal of records guarantees and has done, as values that are stored, shown and verified
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
        method: the name of the removal method.
        exact: True: the model is the one that training without the records gives (of method
            ``certificate``: its answers are), or ``within`` a distance of it. False: its
            distribution is (eps, delta)-close to that of such a training, in both directions.
        eps: 0 where exact.
        delta: 0 where exact.
        adaptive: True: it holds for requests that were chosen after seeing what the model gave
            out. False: it holds only for oblivious requests, chosen without looking.
        terms: what is promised and to whom; the first is a summary of one line.
        assumptions: the facts that the promise needs, each proved, declared or not held. One that
            is not held is shown in every account of the removal.
        within: bound on the l2 distance over all served weights, where the model is exact up to a
            distance; None: it is exact bit for bit.

    Raises:
        ConfigError: a distance of what is not exact, or a budget of what is; a number is out of
            range; or there are no terms.
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
                f"within={self.within}: only an exact result (exact=true) can be promised up "
                "to a distance"
            )
        if self.exact and (self.eps or self.delta):
            raise ConfigError(
                f"eps={self.eps} and delta={self.delta} are for results that are not exact, "
                "so they cannot be given together with exact=true"
            )

    @property
    def proved(self) -> bool:
        """Whether no assumption is known to fail.

        If False, eps and delta are as published, and guarantee nothing.
        """
        return all(fact.standing is not Standing.VOID for fact in self.assumptions)

    @property
    def requests(self) -> Requests:
        """For which sequences of requests the promise holds, after Gupta et al. (2021).

        * ``adaptive``: any sequence. Keys or noise were drawn after the last request, or the method
          draws none.
        * ``adaptive for fixed keys``: any sequence, given the seed and the keys. The model is then
          a function of the remaining records and the keys, bit for bit, whoever chose the requests.
          But requests that depend on the keys make its distribution another one than with fresh
          keys.
        * ``oblivious``: sequences that were chosen without looking at what the model gave out.
        """
        if self.adaptive:
            return "adaptive"
        if self.exact:
            return "adaptive for fixed keys"
        return "oblivious"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The terms as text, one sentence each."""
        return sentences(self.terms)


@schema
class RemovalBudget:
    """The removal budget of a model: the error that its noise hides, and the error there is.

    Errors are norms of the gradient that removals and the optimiser left (the residual).

    Attributes:
        spent: bound on the residual now.
        total: the largest residual that the noise hides.
    """

    spent: NonNegative
    total: NonNegative


@schema
class Removal:
    """What one removal did, and what it promises.

    Attributes:
        promise: what holds of the model after the removal.
        records: how many records were removed.
        seconds: wall time of the method alone, without reading data and writing reports.
        facts: values by name for metrics.json and the account, such as the number of members that
            were trained again, bounds, or the noise.
        steps: what was done, in order.
        budget: the removal budget afterwards, which a certificate kind's own method always has
            (``CertificateKind.removal_bounds``); None: the method is of no kind of certificate.
    """

    promise: Promise
    records: Annotated[int, Field(ge=0)]
    seconds: NonNegative
    facts: Mapping[str, bool | int | float | str]
    steps: tuple[Remark, ...]
    budget: RemovalBudget | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The steps as text, one sentence each."""
        return sentences(self.steps)

    @property
    def plain(self) -> dict[str, Any]:
        """JSON values of all fields but the promise, which a log stores on its own."""
        return {name: value for name, value in plain_of(self).items() if name != "promise"}


def read_promise(promise: Mapping[str, Any]) -> Promise:
    """Return the promise of JSON values, in the form of this version or of an earlier one.

    Raises:
        ConfigError, KeyError, TypeError, ValueError: the values are no promise.
    """
    return validate(Promise, promise_with_codes(promise), "promise")


def read_removal(promise: Mapping[str, Any], plain: Mapping[str, Any]) -> Removal:
    """Return the removal that a request log stores, in the form of this version or an earlier one.

    Args:
        promise: JSON values of the promise.
        plain: JSON values of the other fields (``Removal.plain``).

    Raises:
        ConfigError, KeyError, TypeError, ValueError: the values are no removal.
    """
    node = removal_with_codes(plain)
    node["promise"] = plain_of(read_promise(promise))
    return validate(Removal, node, "removal")


def promise_with_codes(promise: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a promise in the form of this version.

    Args:
        promise: JSON values. Those of earlier versions have text in ``words`` instead of ``terms``,
            or assumptions with a text ``why`` instead of a code.

    Raises:
        KeyError, TypeError, ValueError: the values are in no such form.
    """
    node = dict(promise)
    if "words" in node:
        node["terms"] = [in_words(text) for text in node.pop("words")]
    facts = node.pop("assumptions", ())
    node["assumptions"] = [with_code(fact) if "why" in fact else fact for fact in facts]
    return node


def removal_with_codes(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a removal, without its promise, in the form of this version.

    Args:
        plain: JSON values (``Removal.plain``). Those of earlier versions have text in ``steps``; or
            text in ``words`` instead, and the budget as ``allowance``, with a sentence as its unit.

    Raises:
        KeyError, TypeError, ValueError: the values are in no such form.
    """
    node = dict(plain)
    if "words" not in node:
        node["steps"] = [with_fact(step) for step in node["steps"]]
        return node
    node["steps"] = [in_words(text) for text in node.pop("words")]
    budget = node.pop("allowance", None)
    if budget is not None:
        node["budget"] = {name: value for name, value in budget.items() if name != "unit"}
    return node
