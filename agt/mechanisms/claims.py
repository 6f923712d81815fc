"""What may be said about a release: a claim, which is its own file, claim.json.

    claim = release.claim                     agt/release.py makes it
    claim.lines()                             what is guaranteed, for people
    claim.written(date.today()).content       bytes of claim.json (docs/releasing.md tells every entry)
    read_claim(content)                       the same again; refuses other versions, NaN, and what is no claim

Formal guarantees
    A claim that is proved may be published with what was released. It is a function of conditions,
    of public settings, and of lots (how many releases of which guarantee), which composition.py
    takes to be public. It holds no digest of data or run, nor a ledger entry's hash, which is over
    such digests: whoever guesses all of the data but one record could test the last one. No number
    of training records, no accuracy, no path either, and of the time no more than the day. Where
    nothing is proved ``publishable`` is false: there is nothing to publish it with.
"""

from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field, model_validator
from pydantic_core import ArgsKwargs

from agt import __version__, sentences
from agt.errors import ConfigError
from agt.facts import Declaration, Standing, with_code
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.composition import Total, delta_of, total
from agt.mechanisms.curves import Curve, sample_curve
from agt.mechanisms.guarantees import Guarantee
from agt.mechanisms.output import Output
from agt.relations import RELATIONS
from agt.settings import Count, RelationConfig, content_of, keyword_schema, read_document

VERSION: Literal["agt.claim/3"] = "agt.claim/3"
EARLIER = "agt.claim/1"  # whose conditions, declarations and ledger are sentences
DECLARED_IN_WORDS = "agt.claim/2"  # whose declarations alone are sentences
SHOWN_DELTA = 1e-5  # where a total is shown for budgets given per query
WEAK_EPS = 20.0  # that is released without a word
# what another machine's special functions may differ by, relative; and where they end
_MACHINES, _TINY = 1e-6, 1e-300
_DAY = r"^\d{4}-\d\d-\d\d$"
_DERIVED = ("proved", "publishable")

Accounting = Literal["rigorous", "paper"]
Counting = Literal["distance", "index"]
Reason = Literal["a", "b", "c", "d", "e", "f", "g", "published_vote"]
"""Why nothing is proved: the condition that does not hold, or a vote that bounds no distance."""


@keyword_schema
class Claim:
    """What may be said about a release.

    Attributes:
        schema: the version of this form.
        agt: the version of the program.
        simulated: drawn from a seed.
        reasons: why nothing is proved, so that nothing else here means anything; empty: the
            guarantee is. None: nothing is, by sentences of an earlier version.
        guarantee: of one query's label, of the number, of the weights or of the constants.
        mechanism: its name.
        output: what is released.
        releases: how many there are, each with the guarantee.
        answers: how many queries they answer; None: any number.
        one_by_one: the answers were paid for when their questions came: how many there would be was
            not fixed before the first was drawn.
        most: of answers that come one by one: so many at most, fixed beforehand, which the totals
            are over; None: nobody fixed a number.
        relation: says which datasets are neighbours.
        accounting, counting: as in ``agt.release.ReleaseTerms``.
        declared: what it rests on that was declared and not proved. None: sentences of the form
            ``agt.claim/1``.
        noisy: the model was trained with noise, whose guarantee does not add up with this one.
            None: not recorded, as in claims of earlier versions.
        totals: of all releases together, at one or two values of delta; empty: where nothing is
            proved, or where the guarantee is the total.
        curve: of all releases together; None: nothing is proved, or no number was fixed beforehand.
        account: the ledger; None: none counts it.
        uncounted: why none does; None where one does, in a simulation, and in claims of earlier
            versions.
        issued: the day; None: not told.
        outside: what it says nothing about, for people.
        words: all of it for people, the claim first.
    """

    schema: Literal["agt.claim/3"] = VERSION
    agt: str = __version__
    simulated: bool = False
    reasons: tuple[Reason, ...] | None = None
    guarantee: Guarantee
    mechanism: str
    output: Output = Output.LABELS
    releases: Count = 1
    answers: Count | None = None
    one_by_one: bool = False
    most: Count | None = None
    relation: RelationConfig
    accounting: Accounting = "rigorous"
    counting: Counting = "distance"
    declared: tuple[Declaration, ...] | None = None
    noisy: bool | None = None
    totals: tuple[Total, ...] = ()
    curve: Curve | None = None
    account: Account | None = None
    uncounted: Uncounted | None = None
    issued: Annotated[str, Field(pattern=_DAY)] | None = None
    outside: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.account is not None and self.uncounted is not None:
            raise ConfigError("a claim is counted by a ledger, or says why none does")
        if self.most is not None and not (self.one_by_one and self.releases <= self.most):
            raise ConfigError("at most so many answers come one by one, and no more were released")

    @model_validator(mode="before")
    @classmethod
    def _without_derived(cls, values: Any) -> Any:
        """Leave out what ``proved`` and ``publishable`` make again; ``read_claim`` compares
        them.
        """
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, dict):
            return values
        kept = {key: value for key, value in given.items() if key not in _DERIVED}
        return ArgsKwargs(values.args, kept) if isinstance(values, ArgsKwargs) else kept

    @computed_field  # type: ignore[prop-decorator]
    @property
    def proved(self) -> bool:
        """Whether the guarantee holds."""
        return self.reasons == ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def publishable(self) -> bool:
        """Proved, and drawn from the operating system's generator."""
        return self.proved and not self.simulated

    @property
    def of_earlier_form(self) -> bool:
        """Whether it was written when conditions, declarations and ledgers were sentences."""
        return self.declared is None

    @property
    def declared_in_words(self) -> bool:
        """Whether what was declared is, in part or as a whole, text of an earlier version."""
        return any(known.fact.in_words for known in self.declared or ())

    @property
    def between(self) -> str:
        """Between which datasets, in words."""
        return neighbours_of(self.relation)

    @property
    def text(self) -> str:
        """The guarantee and its neighbours, or that nothing is proved, and why: a sentence for
        reports.
        """
        if not self.proved:
            return sentences.no_proof(self.output, str(self.guarantee), self.reasons or ())
        return sentences.claim(
            self.output, str(self.guarantee), self.between, self.accounting != "rigorous"
        )

    @property
    def spent(self) -> list[str]:
        """What all of it spends; never empty."""
        if not self.totals:
            return [sentences.spent_line(1, str(self.guarantee))]
        over = self.most or self.answers
        return [sentences.spent_line(over, str(each)) for each in self.totals]

    def lines(self, brief: bool = False) -> list[str]:
        """Return what may be said of it, the claim first.

        Args:
            brief: for a terminal, without all of the scope and without what would break each
                declaration.
        """
        lines = [self.text]
        if self.proved:
            lines += [
                *(self.spent if self.totals else ()),
                sentences.SCOPE_IN_BRIEF if brief else sentences.SCOPE,
            ]
        for known in self.declared or ():
            lines.append(
                sentences.declaration(known.condition, known.fact.sentence, None)
                if brief
                else str(known)
            )
        lines += [sentences.APART] if self.noisy else []
        if self.simulated:
            return sentences.simulation(sentences.DRAWS_FROM_SEED, lines)
        counted = self.account or self.uncounted
        return lines + ([] if counted is None else counted.lines)

    def doubts(self, size: float | None) -> list[str]:
        """Return what its owner should hear before it is drawn: that it protects hardly anybody.

        Args:
            size: public, about how many training records there are; None: nobody declared it.
        """
        shown = self.totals or (
            total(self.guarantee, 1, getattr(self.guarantee, "delta", SHOWN_DELTA)),
        )
        lines = too_much(min(each.eps for each in shown))
        delta = min(each.delta for each in shown)
        if size and delta > 1 / size:
            lines.append(sentences.large_delta(delta, size))
        return lines

    def counted_by(self, counted: Account | Uncounted | None) -> "Claim":
        """Return the claim on an account, or with why there is none; None: a simulation, which
        none has to count.
        """
        account = counted if isinstance(counted, Account) else None
        return replace(
            self, account=account, uncounted=counted if isinstance(counted, Uncounted) else None
        )

    def written(self, issued: date | None = None) -> "Claim":
        """Return it as claim.json has it, with its curves and its words.

        Args:
            issued: the day; None: not told.
        """
        account = self.account
        fixed = self.proved and not self.one_by_one
        return replace(
            self,
            totals=self.totals if self.proved else (),
            curve=sample_curve(self.guarantee, self.releases) if fixed else None,
            account=None if account is None else replace(account, curve=account.budget_curve),
            issued=None if issued is None else issued.isoformat(),
            outside=sentences.OUTSIDE,
            words=tuple(self.lines()),
        )

    @property
    def content(self) -> bytes:
        """The file."""
        return content_of(self)


def neighbours_of(relation: RelationConfig) -> str:
    """Which datasets are neighbours, in words."""
    return sentences.neighbours(
        relation.name, RELATIONS[relation.name].neighbours(relation.unit_rows)
    )


def too_much(eps: float) -> list[str]:
    """What the owner of a budget that protects nobody should hear; nothing of others."""
    return [sentences.too_much(eps, WEAK_EPS)] if eps > WEAK_EPS else []


def read_claim(content: bytes) -> Claim:
    """What ``Claim.content`` gave, or an earlier version did.

    Raises:
        ConfigError: another version, or no claim: no JSON, NaN or infinity, an entry unknown,
            missing or out of range; or one that claims more than its guarantee proves.
    """
    claimed: Claim = read_document(Claim, content, VERSION, "a claim", "claim", _current_form)
    if not claimed.words:
        raise ConfigError("a claim: words is empty")
    _check_numbers(claimed)
    return claimed


def _current_form(node: dict[str, Any]) -> dict[str, Any]:
    """Return a claim of an earlier version as this one has it, without what was recorded as
    sentences.

    Raises:
        ConfigError: an entry is missing, or the claim contradicts itself.
    """
    version = node.get("schema")
    if version in (VERSION, DECLARED_IN_WORDS) and (
        missing := sorted({"reasons", "declared", "noisy"} - node.keys())
    ):
        raise ConfigError(f"a claim: {missing[0]} is missing")
    try:
        if version == EARLIER:
            return _converted(dict(node))
        if version == DECLARED_IN_WORDS:
            return {
                **node,
                "schema": VERSION,
                "declared": [_with_fact(known) for known in node["declared"]],
            }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"a claim of {version}: {error!r}") from None
    return node


def _with_fact(declaration: dict[str, Any]) -> dict[str, Any]:
    """Return a declaration of the form ``agt.claim/2`` as this version has it.

    Raises KeyError, ValueError.
    """
    rest = dict(declaration)
    condition = rest.pop("condition")
    return {"condition": condition, "fact": with_code({"standing": Standing.DECLARED, **rest})}


def _converted(node: dict[str, Any]) -> dict[str, Any]:
    """Change a claim of the earlier form into one of the present form.

    Raises KeyError, TypeError, AttributeError.
    """
    for sentence in ("per", "scope", "declared"):
        del node[sentence]
    neighbours, account, proved = node.pop("neighbours"), node.get("account"), node["proved"]
    if proved == bool(node.pop("reasons")):
        raise ConfigError("a claim: reasons are given where nothing is proved, and nowhere else")
    relation = {"name": neighbours["relation"], "unit_rows": neighbours["unit_rows"]}
    for holder in (node, account or {}):
        if "curve" in holder:
            holder["curve"] = {
                key: value for key, value in holder["curve"].items() if key != "over"
            }
    if account is not None:
        allowance = {key: account.pop(key) for key in ("eps", "delta", "leaks")}
        account |= {"allowance": allowance, "spent": {"pure": None, **account["spent"]}}
    known = {"schema": VERSION, "relation": relation, "one_by_one": False}
    return node | known | ({"reasons": []} if proved else {})


def _check_numbers(claimed: Claim) -> None:
    """Refuse curves and totals below what the guarantee and the budget prove, as this machine
    computes it.
    """
    guarantee = claimed.guarantee
    releases = claimed.most or claimed.releases
    curves = [(claimed.curve, lambda eps: delta_of(guarantee, releases, eps))]
    if claimed.account is not None:
        curves.append((claimed.account.curve, claimed.account.allowance.delta_of))
    points = [(e, d, true) for curve, true in curves if curve is not None for e, d in curve.points]
    points += [(each.eps, each.delta, curves[0][1]) for each in claimed.totals]
    if claimed.one_by_one and (claimed.curve or (claimed.totals and not claimed.most)):
        raise ConfigError(
            "a claim: answers that come one by one have no total unless their number was fixed"
        )
    for eps, delta, true in points:
        if true(eps) > delta * (1 + _MACHINES) + _TINY:
            raise ConfigError(f"a claim: ({eps!r}, {delta!r}) is more than its guarantee proves")
