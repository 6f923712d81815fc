"""What may be said about a release: a claim, which is its own file, claim.json.

    claim = release.claim                       agt/release.py makes it
    claim.lines()                               what is guaranteed, for people
    claim.written(date.today()).content         the bytes of claim.json
    read_claim(content)                         the claim again

docs/releasing.md says what each entry of the file means.
"""

from collections.abc import Callable, Sequence
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
SHOWN_DELTA = 1e-5  # at which a total is shown for budgets given per query
WEAK_EPS = 20.0  # above which a release is warned of
_MACHINE_TOLERANCE = 1e-6  # relative, by which another machine's special functions may differ
_UNDERFLOW_ALLOWANCE = 1e-300  # below which they may return anything
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
        simulated: the release was drawn from a seed.
        reasons: why nothing is proved, so that nothing else here means anything; empty: the
            guarantee is proved. None: it is not, by sentences of an earlier version.
        guarantee: of one query's label, of the number, of the weights or of the constants.
        mechanism: the mechanism's name.
        output: what is released.
        releases: how many releases there are, each with the guarantee.
        answers: how many queries they answer; None: any number.
        one_by_one: the answers were paid for when their questions came: how many there would be was
            not fixed before the first was drawn.
        most: of answers that come one by one: the maximum that was fixed beforehand, which the
            totals are over; None: no maximum was fixed.
        relation: says which datasets are neighbours.
        accounting: rigorous or paper, as in ``agt.release.ReleaseTerms``.
        counting: what the evidence counts, as in ``agt.release.ReleaseTerms``.
        declared: what the claim rests on that was declared and not proved. None: sentences of the
            form ``agt.claim/1``.
        noisy: the model was trained with noise, whose guarantee does not add up with this one.
            None: not recorded, as in claims of earlier versions.
        totals: of all releases together, at one or two values of delta; empty: where nothing is
            proved, or where the guarantee is the total.
        curve: of all releases together; None: nothing is proved, or no number was fixed beforehand.
        account: the ledger that counts the release; None: no ledger does.
        uncounted: why no ledger does; None where one does, in a simulation, and in claims of
            earlier versions.
        issued: the day of the release; None: not recorded.
        outside: what the claim says nothing about, for people.
        words: all of the claim for people, the guarantee first.

    Raises:
        ConfigError: fields contradict one another.

    Formal guarantees
        - A claim that is proved may be published with what was released: it is a function of
          conditions, of public settings, and of how many releases of which guarantee there are.
        - It holds no digest of the data or of the run, nor a ledger entry's hash, which is over
          such digests: whoever guesses all of the data but one record could test the last one. It
          holds no number of training records, no accuracy and no path, and of the time the day.
        - Where nothing is proved, ``publishable`` is false.
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
            raise ConfigError(
                "a claim has the account of a ledger, or says why it has none, but not both"
            )
        if self.most is not None and not (self.one_by_one and self.releases <= self.most):
            raise ConfigError(
                "most is only for answers that come one by one, and is at least the number released"
            )

    @model_validator(mode="before")
    @classmethod
    def _without_derived(cls, values: Any) -> Any:
        """Leave out ``proved`` and ``publishable``, which are computed from other fields.

        ``read_claim`` compares a file's with the computed ones.
        """
        given = values.kwargs if isinstance(values, ArgsKwargs) else values
        if not isinstance(given, dict):
            return values
        stored = {key: value for key, value in given.items() if key not in _DERIVED}
        return ArgsKwargs(values.args, stored) if isinstance(values, ArgsKwargs) else stored

    @computed_field  # type: ignore[prop-decorator]
    @property
    def proved(self) -> bool:
        """Whether the guarantee holds."""
        return self.reasons == ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def publishable(self) -> bool:
        """Whether the guarantee holds and the draws are the operating system's."""
        return self.proved and not self.simulated

    @property
    def of_earlier_form(self) -> bool:
        """Whether conditions, declarations and the ledger are sentences of an earlier version."""
        return self.declared is None

    @property
    def declared_in_words(self) -> bool:
        """Whether some of what was declared is text of an earlier version."""
        return any(known.fact.in_words for known in self.declared or ())

    @property
    def between(self) -> str:
        """Which datasets the guarantee is between, as a phrase."""
        return neighbours_of(self.relation)

    @property
    def text(self) -> str:
        """A sentence for reports: the guarantee and its neighbours, or why nothing is proved."""
        if not self.proved:
            return sentences.no_proof(self.output, str(self.guarantee), self.reasons or ())
        return sentences.claim(
            self.output, str(self.guarantee), self.between, self.accounting != "rigorous"
        )

    @property
    def spent(self) -> list[str]:
        """Sentences for what all releases spend together; at least one."""
        if not self.totals:
            return [sentences.spent_line(1, str(self.guarantee))]
        queries = self.most or self.answers
        return [sentences.spent_line(queries, str(total)) for total in self.totals]

    def lines(self, brief: bool = False) -> list[str]:
        """Return the sentences of the claim, the guarantee first.

        Args:
            brief: for a terminal, without all of the scope and without what would break each
                declaration.
        """
        lines = [self.text]
        if self.proved and self.totals:
            lines += self.spent
        if self.proved:
            lines.append(sentences.SCOPE_IN_BRIEF if brief else sentences.SCOPE)
        for declaration in self.declared or ():
            sentence = str(declaration)
            if brief:
                sentence = sentences.declaration(
                    declaration.condition, declaration.fact.sentence, None
                )
            lines.append(sentence)
        if self.noisy:
            lines.append(sentences.APART)
        if self.simulated:
            return sentences.simulation(sentences.DRAWS_FROM_SEED, lines)
        account = self.account or self.uncounted
        if account is not None:
            lines += account.lines
        return lines

    def doubts(self, size: float | None) -> list[str]:
        """Return warnings for the data owner before the draw, if the guarantee protects hardly.

        Args:
            size: a public number, about how many training records there are; None: not declared.
        """
        totals = self.totals
        if not totals:
            own_delta = getattr(self.guarantee, "delta", SHOWN_DELTA)
            totals = (total(self.guarantee, 1, own_delta),)
        eps = min(shown.eps for shown in totals)
        return budget_doubts(eps, min(shown.delta for shown in totals), size)

    def counted_by(self, counted: Account | Uncounted | None) -> "Claim":
        """Return the claim with the account that counts it.

        Args:
            counted: the account, or why there is none; None: a simulation, which needs none.
        """
        account = counted if isinstance(counted, Account) else None
        uncounted = counted if isinstance(counted, Uncounted) else None
        return replace(self, account=account, uncounted=uncounted)

    def written(self, issued: date | None = None) -> "Claim":
        """Return the claim as claim.json has it, with its curves and its sentences.

        Args:
            issued: the day of the release; None: not recorded.
        """
        account = self.account
        if account is not None:
            account = replace(account, curve=account.budget_curve)
        curve = None
        if self.proved and not self.one_by_one:
            curve = sample_curve(self.guarantee, self.releases)
        return replace(
            self,
            totals=self.totals if self.proved else (),
            curve=curve,
            account=account,
            issued=None if issued is None else issued.isoformat(),
            outside=sentences.OUTSIDE,
            words=tuple(self.lines()),
        )

    @property
    def content(self) -> bytes:
        """The bytes of claim.json."""
        return content_of(self)


def neighbours_of(relation: RelationConfig) -> str:
    """Return which datasets are neighbours, as a phrase."""
    phrase = RELATIONS[relation.name].describe_edit(relation.unit_rows)
    return sentences.neighbours(relation.name, phrase)


def too_much(eps: float) -> list[str]:
    """Return a warning for the owner of a budget above ``WEAK_EPS``; of others nothing."""
    return [sentences.too_much(eps, WEAK_EPS)] if eps > WEAK_EPS else []


def budget_doubts(eps: float, delta: float, size: float | None) -> list[str]:
    """Return warnings for the owner of a budget that protects hardly anybody.

    Args:
        eps: the total epsilon.
        delta: the total delta.
        size: a public number, about how many training records there are; None: not declared.
    """
    lines = too_much(eps)
    if size and delta > 1 / size:
        lines.append(sentences.large_delta(delta, size))
    return lines


def read_claim(content: bytes) -> Claim:
    """Return the claim of a file, of this version or of an earlier one.

    Args:
        content: the bytes of claim.json.

    Raises:
        ConfigError: the file is of an unknown version or no claim: no JSON, NaN or infinity, or an
            entry that is unknown, missing or out of range; or it claims more than its guarantee
            proves.
    """
    claim: Claim = read_document(Claim, content, VERSION, "a claim", "claim", _current_form)
    if not claim.words:
        raise ConfigError("a claim: words is empty")
    _check_numbers(claim)
    return claim


def _current_form(node: dict[str, Any]) -> dict[str, Any]:
    """Return a claim of an earlier version in this version's form.

    What was recorded as sentences is left out.

    Args:
        node: the entries of the file.

    Raises:
        ConfigError: an entry is missing, or the claim contradicts itself.
    """
    version = node.get("schema")
    missing = sorted({"reasons", "declared", "noisy"} - node.keys())
    if version in (VERSION, DECLARED_IN_WORDS) and missing:
        raise ConfigError(f"a claim: {missing[0]} is missing")
    try:
        if version == EARLIER:
            return _from_first_version(dict(node))
        if version == DECLARED_IN_WORDS:
            declared = [_with_fact(declaration) for declaration in node["declared"]]
            return {**node, "schema": VERSION, "declared": declared}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"a claim of {version}: {error!r}") from None
    return node


def _with_fact(declaration: dict[str, Any]) -> dict[str, Any]:
    """Return a declaration of the form ``agt.claim/2`` in this version's form.

    Raises:
        KeyError: an entry is missing.
        ValueError: an entry is out of range.
    """
    rest = dict(declaration)
    condition = rest.pop("condition")
    return {"condition": condition, "fact": with_code({"standing": Standing.DECLARED, **rest})}


def _from_first_version(node: dict[str, Any]) -> dict[str, Any]:
    """Return a claim of the form ``agt.claim/1`` in this version's form.

    Args:
        node: the entries of the file; they are changed.

    Raises:
        KeyError, TypeError, AttributeError: an entry is missing or of another kind.
        ConfigError: the claim contradicts itself.
    """
    for sentence in ("per", "scope", "declared"):
        del node[sentence]
    neighbours = node.pop("neighbours")
    account = node.get("account")
    proved = node["proved"]
    if proved == bool(node.pop("reasons")):
        raise ConfigError("a claim: reasons are given where nothing is proved, and nowhere else")
    for holder in (node, account or {}):
        if "curve" in holder:
            curve = dict(holder["curve"].items())
            curve.pop("over", None)
            holder["curve"] = curve
    if account is not None:
        allowance = {key: account.pop(key) for key in ("eps", "delta", "leaks")}
        account |= {"allowance": allowance, "spent": {"pure": None, **account["spent"]}}
    node["schema"] = VERSION
    node["relation"] = {"name": neighbours["relation"], "unit_rows": neighbours["unit_rows"]}
    node["one_by_one"] = False
    if proved:
        node["reasons"] = []
    return node


def _check_numbers(claim: Claim) -> None:
    """Raise ConfigError where a claim says more than its guarantee and its budget prove.

    Curves and totals are compared with those that this machine computes.
    """
    releases = claim.most or claim.releases
    if claim.one_by_one and (claim.curve or (claim.totals and not claim.most)):
        raise ConfigError(
            "a claim: answers that come one by one have no total unless their number was fixed"
        )

    def delta_of_releases(eps: float) -> float:
        return delta_of(claim.guarantee, releases, eps)

    totals = [(total.eps, total.delta) for total in claim.totals]
    curve_points = claim.curve.points if claim.curve is not None else ()
    _check_points([*curve_points, *totals], delta_of_releases)
    if claim.account is not None and claim.account.curve is not None:
        _check_points(claim.account.curve.points, claim.account.allowance.delta_of)


def _check_points(
    points: Sequence[tuple[float, float]], true_delta: Callable[[float], float]
) -> None:
    """Raise ConfigError where a point (eps, delta) has less than the true delta."""
    for eps, delta in points:
        if true_delta(eps) > delta * (1 + _MACHINE_TOLERANCE) + _UNDERFLOW_ALLOWANCE:
            raise ConfigError(f"a claim: ({eps!r}, {delta!r}) is more than its guarantee proves")
