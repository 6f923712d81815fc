"""A removal of records and the guarantee after it, as values that are stored and verified."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.documents import FACTS_AS_TEXT, check_form
from agt.errors import ConfigError
from agt.facts import Fact, Standing
from agt.settings import NonNegative, NonNegativeInt, plain_of, schema, validate
from agt.unlearning.sentences import Remark, sentences

MethodName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Requests = Literal["oblivious", "adaptive for fixed keys", "adaptive"]


@schema
class Promise:
    """A guarantee: how a model after a removal compares with one trained without the records.

    Attributes:
        method: the name of the removal method.
        exact: True: the model equals the one that training without the removed records gives, or
            the distance of its weights from that model's is at most ``within``. (For method
            ``certificate`` only the answers are equal.) False: its distribution is (eps,
            delta)-close to that of such a model, in both directions.
        eps: the eps of the closeness, at least 0; 0 if exact.
        delta: the delta of the closeness, in [0, 1); 0 if exact.
        adaptive: True: the guarantee also holds for requests that were chosen after seeing what the
            model gave out. False: only for oblivious requests, which were chosen without looking.
        terms: the guarantee as remarks, from which sentences are made. The first is a summary.
        assumptions: the facts that the promise depends on, each proved, declared or not held. A
            fact that is not held is shown wherever the removal is reported.
        within: bound on the l2 distance over all weights that answer queries, if the model is exact
            up to a distance; None: an exact model is equal bit for bit.

    Raises:
        ConfigError: ``within`` is given but not ``exact``, eps or delta is above 0 although
            ``exact``, a number is out of range, or there are no terms.
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
        """Raise ConfigError if a distance or a budget is given that does not go with ``exact``."""
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
        """Whether the guarantee holds: no assumption is known to fail.

        If it does not hold, eps and delta are those that a paper claims without this proof.
        """
        return all(fact.standing is not Standing.VOID for fact in self.assumptions)

    @property
    def requests(self) -> Requests:
        """The sequences of removal requests for which the promise holds, after Gupta et al. (2021).

        * ``adaptive``: any sequence. Keys and noise were drawn after the last request, or the
          method draws none.
        * ``adaptive for fixed keys``: any sequence, given the seed and the keys. The model is then
          a function of the remaining records and the keys, bit for bit, for any requests. But if
          requests depend on the keys, the model's distribution differs from that with newly drawn
          keys.
        * ``oblivious``: sequences that were chosen without seeing any output of the model.
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
    """A model's removal budget: the residual that it has, and the largest that its noise hides.

    The residual is the norm of the objective's gradient that training and removals have left.

    Attributes:
        spent: a bound on the residual now.
        total: the largest residual for which the guarantee holds.
    """

    spent: NonNegative
    total: NonNegative


@schema
class Removal:
    """A report of one removal: the steps of the method, and the guarantee after it.

    Attributes:
        promise: the guarantee for the model after the removal.
        records: the number of removed records.
        seconds: wall time of the method, without reading data and writing reports.
        facts: values by name for metrics.json and the removal's report, for example the number of
            members that were trained again, bounds, or the noise.
        steps: the steps of the method as remarks, in their order.
        budget: the removal budget afterwards (``CertificateKind.removal_bounds``); None: the method
            has no budget, because it is not that of a kind of certificate.
    """

    promise: Promise
    records: NonNegativeInt
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
        """All fields except the promise, as JSON values by name, as a request log stores them."""
        return {name: value for name, value in plain_of(self).items() if name != "promise"}


def read_removal(promise: Mapping[str, Any], plain: Mapping[str, Any]) -> Removal:
    """Return the removal that a request log stores.

    Args:
        promise: JSON values of the promise, by field name.
        plain: JSON values of the other fields (``Removal.plain``).

    Raises:
        Superseded: the promise or a step holds sentences instead of codes with values.
        ConfigError, KeyError, TypeError, ValueError: the values do not describe a removal.
    """
    assumes_text = any("why" in fact for fact in promise.get("assumptions", ()))
    has_text_steps = any("why" in step.get("values", {}) for step in plain.get("steps", ()))
    if "words" in promise or assumes_text or has_text_steps:
        check_form(FACTS_AS_TEXT, "the report of a removal")
    removal: Removal = validate(Removal, {**plain, "promise": promise}, "removal")
    return removal
