"""A claim as JSON, for programs and auditors: what is guaranteed, for whom, under which conditions, and what is outside.

    statement = of_release(release, "randomized_response", issued=date.today())
    statement.content                 bytes of claim.json (docs/claims.md tells every entry)
    read_claim(content)               the same again; refuses other versions, NaN, and what is no claim

Formal guarantees
    A statement of a claim that is proved may be published with what was released. It is a function of the claim, of public
    settings, and of lots (how many releases of which guarantee), which account.py takes to be public. It holds no digest of
    data or run, nor a ledger entry's hash, which is over such digests: whoever guesses all of the data but one record could
    test the last one. No number of training records, no accuracy, no path either, and of the time no more than the day.
    Where nothing is proved ``publishable`` is false: there is nothing to publish it with.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field

from agt import __version__
from agt.document import content_of, plain_of, read_document
from agt.errors import ConfigError
from agt.mechanisms.account import Allowance, Cost
from agt.mechanisms.composition import Total, delta_of
from agt.mechanisms.curve import Curve, curve_of, curve_of_budget
from agt.mechanisms.guarantee import Guarantee, described, guarantee_of
from agt.mechanisms.release import SCOPE, Release
from agt.mechanisms.rigour import Accounting, Claim, Counting, Output, neighbours_of
from agt.settings import RelationName, schema, validate

VERSION: Literal["agt.claim/1"] = "agt.claim/1"
OUTSIDE = (
    "how long anything took, and every other side channel: memory, power, traffic, the machine",
    "releases about the same data that the ledger does not know; without a ledger, every other release",
    "what was declared, if it is not so",
    "what whoever reads this knows from elsewhere, or learns about everybody alike",
    "how good the answers are",
)
_MACHINES, _TINY = 1e-6, 1e-300  # what another machine's special functions may differ by, relative; and where they end
_DAY = r"^\d{4}-\d\d-\d\d$"

Words = tuple[str, ...]
Amount = Annotated[str, Field(pattern=r"^\d+(\.\d+)?(E[+-]?\d+)?$")]


@schema
class Given:
    """A guarantee: ``pure`` has eps, ``approximate`` eps and delta, ``gaussian`` mu."""

    kind: Literal["pure", "approximate", "gaussian"]
    eps: float | None = None
    delta: float | None = None
    mu: float | None = None

    def __post_init__(self) -> None:
        _ = self.value

    @property
    def value(self) -> Guarantee:
        """The guarantee.

        Raises:
            ConfigError: a parameter is missing, out of range, or another kind's.
        """
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return guarantee_of(given)


@schema
class Neighbours:
    """Which datasets the guarantee holds between.

    Attributes:
        relation: its name.
        unit_rows: at most so many records are one unit's.
        words: all of it in words.
    """

    relation: RelationName
    unit_rows: Annotated[int, Field(ge=1)]
    words: str


@schema
class Totalled:
    """The loss of all releases of this claim together, at one delta."""

    eps: Annotated[float, Field(ge=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    bound: str


@schema
class Spent:
    """A counter's position (account.py, ``Cost``), as decimals: no guarantee of its own. ``pure`` null: infinite."""

    square: Amount
    leak: Amount
    pure: Amount | None = None


@schema
class Account:
    """The ledger that was debited.

    Attributes:
        population: its name.
        unit: whose addition or removal makes a neighbour, in words.
        entry: the number of the debit's entry.
        eps, delta, leaks: the budget for good.
        spent: by everything up to this entry.
        curve: of the budget; None: the one lot was admitted by its own total, and the claim's curve is the budget's too.
    """

    population: str
    unit: str
    entry: Annotated[int, Field(ge=1)]
    eps: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    leaks: Annotated[float, Field(ge=0, le=1)]
    spent: Spent
    curve: Curve | None = None

    @classmethod
    def of(cls, population: str, unit: str, entry: int, allowance: Allowance, spent: Cost) -> "Account":
        """As it stands with this entry."""
        curve = curve_of_budget(allowance) if allowance.holds(spent) else None
        counter = validate(Spent, {k: v for k, v in spent.as_json().items() if v is not None}, "spent")
        return cls(population, unit, entry, allowance.eps, allowance.delta, allowance.leaks, counter, curve)


@schema
class Statement:
    """A claim, all of it.

    Attributes:
        schema: the version of this form.
        agt: the version of the program.
        proved: the guarantee holds; else ``reasons`` says why not, and nothing else here means anything.
        publishable: proved, and drawn from the operating system's generator.
        simulated: drawn from a seed.
        reasons: why nothing is proved: a condition's letter, or words.
        guarantee: of one release.
        mechanism: its name.
        output: labels, a number, weights.
        per: what one release is.
        releases: how many there are, each with the guarantee.
        answers: how many queries they answer; None: any number.
        neighbours: between which datasets.
        accounting, counting: as in ``prepare_labels``.
        declared: what it rests on that was declared and not proved, and what would break it.
        totals, curve: all releases of this claim together; empty where nothing is proved.
        scope: what it is about.
        outside: what it says nothing about.
        words: for people, the claim first.
        issued: the day; None: not told.
        account: the ledger; None: no account of other releases is kept.
    """

    schema: Literal["agt.claim/1"]
    agt: str
    proved: bool
    publishable: bool
    simulated: bool
    reasons: Words
    guarantee: Given
    mechanism: str
    output: Literal["labels", "a number", "weights"]
    per: str
    releases: Annotated[int, Field(ge=1)]
    neighbours: Neighbours
    accounting: Accounting
    counting: Counting
    declared: Words
    totals: tuple[Totalled, ...]
    scope: str
    outside: Words
    words: Annotated[Words, Field(min_length=1)]
    answers: Annotated[int, Field(ge=1)] | None = None
    curve: Curve | None = None
    issued: Annotated[str, Field(pattern=_DAY)] | None = None
    account: Account | None = None

    def __post_init__(self) -> None:
        if self.publishable != (self.proved and not self.simulated) or self.proved == bool(self.reasons):
            raise ConfigError("publishable means proved and not simulated, and reasons are given where nothing is proved")

    @property
    def plain(self) -> dict[str, Any]:
        """JSON values; what is None is left out."""
        return plain_of(self)

    @property
    def content(self) -> bytes:
        """The file."""
        return content_of(self)


_PER = {Output.LABELS: "the label of one query", Output.NUMBER: "the one number", Output.WEIGHTS: "the weights, once"}


def statement(
    claim: Claim,
    mechanism: str,
    words: Sequence[str],
    *,
    totals: Sequence[Total] = (),
    queries: int | None = None,
    counting: Counting = "distance",
    simulated: bool = False,
    issued: date | None = None,
    account: Account | None = None,
) -> Statement:
    """The claim of something that is released.

    Args:
        mechanism: its name.
        words: all that may be said, a line each, the claim first.
        totals: of all its releases.
        queries: how many are answered; None: any number.
        counting: what evidence counts.
        simulated: drawn from a seed.
        issued: the day; None: not told.
        account: the ledger that was debited.
    """
    releases = queries if claim.output is Output.LABELS and queries else 1
    relation = claim.relation
    return Statement(
        schema=VERSION,
        agt=__version__,
        proved=claim.proved,
        publishable=claim.proved and not simulated,
        simulated=simulated,
        reasons=tuple(f"condition {r.condition} does not hold" if r.condition else r.why for r in claim.reasons),
        guarantee=validate(Given, described(claim.guarantee), "guarantee"),
        mechanism=mechanism,
        output=claim.output.value,
        per=_PER[claim.output],
        releases=releases,
        neighbours=Neighbours(relation.name, relation.unit_rows, neighbours_of(relation)),
        accounting=claim.accounting,
        counting=counting,
        declared=claim.declared,
        totals=tuple(Totalled(each.eps, each.delta, each.bound) for each in totals) if claim.proved else (),
        scope=SCOPE,
        outside=OUTSIDE,
        words=tuple(words),
        answers=queries,
        curve=curve_of(claim.guarantee, releases) if claim.proved else None,
        issued=None if issued is None else issued.isoformat(),
        account=account,
    )


def of_release(
    release: Release[Any],
    mechanism: str,
    *,
    words: Sequence[str] | None = None,
    counting: Counting = "distance",
    simulated: bool = False,
    issued: date | None = None,
    account: Account | None = None,
) -> Statement:
    """The same of a release that is prepared; ``words``: None: its own."""
    return statement(
        release.claim,
        mechanism,
        release.words(simulated) if words is None else words,
        totals=release.totals,
        queries=release.queries,
        counting=counting,
        simulated=simulated,
        issued=issued,
        account=account,
    )


def read_claim(content: bytes) -> Statement:
    """What ``Statement.content`` gave.

    Raises:
        ConfigError: another version, or no claim: no JSON, NaN or infinity, an entry unknown, missing or out of range; or
            one that claims more than its guarantee proves.
    """
    claimed = read_document(Statement, content, VERSION, "a claim")
    _check_numbers(claimed)
    return claimed


def _check_numbers(claimed: Statement) -> None:
    """Refuse curves and totals below what the guarantee and the budget prove, as this machine computes it."""
    releases, account = claimed.releases, claimed.account
    guarantee = claimed.guarantee.value
    curves = [(claimed.curve, lambda eps: delta_of(guarantee, releases, eps))]
    if account is not None:
        curves.append((account.curve, Allowance(account.eps, account.delta, account.leaks).delta_of))
    points = [(e, d, true) for curve, true in curves if curve is not None for e, d in curve.points]
    points += [(each.eps, each.delta, curves[0][1]) for each in claimed.totals]
    for eps, delta, true in points:
        if true(eps) > delta * (1 + _MACHINES) + _TINY:
            raise ConfigError(f"a claim: ({eps!r}, {delta!r}) is more than its guarantee proves")
