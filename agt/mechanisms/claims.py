"""A claim: what may be said about the privacy of a release. It is stored as claim.json.

    claim = release.claim                       agt/release.py makes it
    claim.lines()                               what is guaranteed, for people
    claim.for_file(date.today()).content        the bytes of claim.json
    read_claim(content)                         the claim again

docs/claims.md says what each entry of the file means.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, computed_field

from agt import __version__, sentences
from agt.certificates.requirements import Reason
from agt.documents import content_of, read_document
from agt.errors import ConfigError
from agt.facts import Declaration
from agt.mechanisms.accounts import Account, Uncounted
from agt.mechanisms.composition import Total, delta_of, total
from agt.mechanisms.curves import Curve, sample_curve
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee
from agt.mechanisms.output import Output
from agt.relations import RELATIONS
from agt.settings import (
    Accounting,
    Count,
    Counting,
    RelationConfig,
    changing_settings,
    keyword_schema,
)

VERSION: Literal["agt.claim/3"] = "agt.claim/3"
SHOWN_DELTA = 1e-5  # the delta at which a total is shown if the user gave none
WEAK_EPS = 20.0  # the data owner is warned of a total eps above this
_MACHINE_TOLERANCE = 1e-6  # relative difference between the special functions of two machines
_UNDERFLOW_ALLOWANCE = 1e-300  # special functions may return anything below this
_DAY = r"^\d{4}-\d\d-\d\d$"
_DERIVED = ("proved", "publishable")  # computed from other fields, but stored in files too


def _without_derived(fields_by_name: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a claim without ``proved`` and ``publishable``.

    Both are computed from other fields, but files store them too. ``read_document`` compares the
    stored values with the computed ones.
    """
    return {name: value for name, value in fields_by_name.items() if name not in _DERIVED}


@keyword_schema
class Claim:
    """What is claimed of a release: its privacy guarantee, for which neighbours, and under what.

    Claims are stored as fields, from which sentences are made.

    A release has its claim: ``model.release(x, mechanism).claim``.

    Attributes:
        schema: the version of the file format.
        agt: the version of the program.
        simulated: the release was drawn from a seed, so that its noise can be predicted.
        reasons: the conditions that do not hold; ``()``: the guarantee is proved. Where there is a
            reason, no other field of the claim is guaranteed.
        guarantee: the guarantee of each release: of one query's label, the number, the weights or
            the constants.
        mechanism: the mechanism's name.
        output: the kind of output that is released: labels, one number, weights, or constants.
        releases: how many releases there are, each with the guarantee.
        answers: how many queries the releases answer; None: any number (weights).
        one_by_one: each answer was paid for when its question came, so that the number of answers
            was not fixed before the first was drawn.
        most: the maximum number of answers, fixed before the first was drawn, over which the totals
            are computed; only if ``one_by_one``. None: no maximum was fixed.
        relation: the relation, which says which datasets are neighbours.
        accounting: "rigorous" or "paper", as in ``agt.release.ReleaseTerms``.
        counting: what the evidence of a query counts: "distance" or "index", as in
            ``agt.release.ReleaseTerms``.
        declared: assumptions of the claim that the data owner declared and nothing proves.
        noisy: the model was trained with noise. The training's own privacy guarantee and this one
            do not compose.
        totals: the privacy loss of all releases together, at one or two values of delta; empty:
            where nothing is proved, or where the guarantee of the one release is the total.
        curve: the privacy curve (points (eps, delta)) of all releases together; None: nothing is
            proved, or no number of releases was fixed beforehand.
        account: the ledger (the file of one population's budget) that counts the release; None: no
            ledger does.
        uncounted: the reason why no ledger counts the release; None where one does, and in a
            simulation.
        issued: the day of the release; None: not recorded.
        outside: sentences that say what the claim does not cover.
        words: the whole claim as sentences, the guarantee first.

    Raises:
        ConfigError: fields contradict one another.

    Formal guarantees
        - A claim that is proved may be published with what was released: it is a function of
          conditions, of public settings, and of how many releases of which guarantee there are.
        - It contains no digest of the data or of the run, and no hash of a ledger entry, which is
          computed from such digests: somebody who guesses all records but one could test the last
          one by it. It contains no number of training records, no accuracy, no path, and no time of
          day.
        - Where nothing is proved, ``publishable`` is false.
    """

    schema: Literal["agt.claim/3"] = VERSION
    agt: str = __version__
    simulated: bool = False
    reasons: tuple[Reason, ...]
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
    declared: tuple[Declaration, ...]
    noisy: bool
    totals: tuple[Total, ...] = ()
    curve: Curve | None = None
    account: Account | None = None
    uncounted: Uncounted | None = None
    issued: Annotated[str, Field(pattern=_DAY)] | None = None
    outside: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    _ignore_derived = changing_settings(_without_derived)

    def __post_init__(self) -> None:
        """Raise ConfigError if fields contradict one another.

        A claim has an account or a reason why it has none, but not both. ``most`` is only for
        answers that come one by one, and is at least the number of releases.
        """
        if self.account is not None and self.uncounted is not None:
            raise ConfigError(
                "the claim must not have both the entry 'account' (of the ledger that counts the "
                "release) and the entry 'uncounted' (why no ledger does)"
            )
        if self.most is not None and not self.one_by_one:
            raise ConfigError(
                "the claim's entry 'most' (the largest number of answers) is only for answers "
                "that are drawn one by one (entry 'one_by_one')"
            )
        if self.most is not None and self.releases > self.most:
            raise ConfigError(
                f"the claim counts {self.releases} answers, but its entry 'most' allows {self.most}"
            )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def proved(self) -> bool:
        """Whether the guarantee is proved: no condition is given as a reason against it."""
        return self.reasons == ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def publishable(self) -> bool:
        """Whether the guarantee is proved, and the noise is not drawn from a seed."""
        return self.proved and not self.simulated

    @property
    def neighbours(self) -> str:
        """A phrase that says between which datasets the guarantee holds."""
        return describe_neighbours(self.relation)

    @property
    def text(self) -> str:
        """One sentence for reports: the guarantee and its neighbours, or why nothing is proved."""
        if not self.proved:
            return sentences.no_proof(self.output, str(self.guarantee), self.reasons)
        return sentences.claim(
            self.output, str(self.guarantee), self.neighbours, self.accounting != "rigorous"
        )

    @property
    def total_sentences(self) -> list[str]:
        """Sentences that say what all releases spend together, one for each total, at least one."""
        if not self.totals:
            return [sentences.spent_line(1, str(self.guarantee))]
        return [sentences.spent_line(self._counted_answers, str(total)) for total in self.totals]

    @property
    def _counted_answers(self) -> int | None:
        """How many answers a total covers: the largest number, given or not; None: any number."""
        return self.answers if self.most is None else self.most

    @property
    def _totals_for_neighbours(self) -> list[str]:
        """The same with the neighbours that they are for, and without the composition's name."""
        lines = []
        for composed in self.totals:
            # A total may be outside the range of ``ApproximateDP``, which is for one release.
            values = {"kind": "approximate", "eps": composed.eps, "delta": composed.delta}
            price = sentences.price(sentences.guarantee(values), self.neighbours)
            lines.append(sentences.spent_line(self._counted_answers, price))
        return lines

    def lines(self, brief: bool = False) -> list[str]:
        """Return the sentences of the claim, the guarantee first.

        They are followed by totals and scope (only if the guarantee is proved), by what the data
        owner declared, and by the ledger that counts the release. In a simulation each sentence
        says that it would hold without the seed.

        Args:
            brief: True: the sentences for a terminal: totals take the place of a guarantee that is
                not in terms of (eps, delta), the scope is shortened, declarations are named by
                their condition, and what ``agt ledger init`` has said of the ledger is left out.
        """
        lines = [self.text]
        # Without totals, the guarantee in the first sentence is the total.
        if self.proved and self.totals:
            lines += self.total_sentences
            if brief and isinstance(self.guarantee, GaussianDP):
                lines = self._totals_for_neighbours
        if self.proved:
            lines.append(sentences.SCOPE_IN_BRIEF if brief else sentences.SCOPE)
        if brief and self.declared:
            conditions = sorted({declaration.condition for declaration in self.declared})
            lines.append(f"it {sentences.declared_in_brief(conditions)}")
        else:
            lines += map(str, self.declared)
        if self.noisy:
            lines.append(sentences.APART)
        if self.simulated:
            return sentences.simulation(sentences.DRAWS_FROM_SEED, lines)
        account = self.account or self.uncounted
        if account is not None:
            lines += account.lines(brief)
        return lines

    def owner_warnings(self, size: float | None) -> list[str]:
        """Return warnings for the data owner before the draw, if the guarantee protects little.

        They are about a total eps above ``WEAK_EPS`` and about a delta above one over the number of
        records. The list is empty if there is nothing to warn of.

        Args:
            size: a public estimate of the number of training records; None: not declared, so that
                delta is not judged.
        """
        totals = self.totals
        if not totals:
            # No totals were computed, so the guarantee of one release is judged.
            delta = SHOWN_DELTA
            if isinstance(self.guarantee, ApproximateDP):
                delta = self.guarantee.delta
            totals = (total(self.guarantee, 1, delta),)
        smallest_eps = min(stated.eps for stated in totals)
        smallest_delta = min(stated.delta for stated in totals)
        return budget_warnings(smallest_eps, smallest_delta, size)

    def with_account(self, counted: Account | Uncounted | None) -> "Claim":
        """Return a copy of the claim that names the ledger that counts the release.

        Args:
            counted: the ledger's account, or why no ledger counts the release; None: a simulation,
                which needs neither.
        """
        if isinstance(counted, Account):
            return replace(self, account=counted, uncounted=None)
        return replace(self, account=None, uncounted=counted)

    def for_file(self, issued: date | None = None) -> "Claim":
        """Return a copy of the claim as claim.json stores it: with curves, scope and sentences.

        Args:
            issued: the day of the release; None: not recorded.
        """
        account = self.account
        if account is not None:
            account = replace(account, curve=account.budget_curve)
        # Totals and curves are only stated if they are proved. A curve is of a fixed number of
        # releases, which answers that come one by one do not have.
        totals: tuple[Total, ...] = ()
        if self.proved:
            totals = self.totals
        curve = None
        if self.proved and not self.one_by_one:
            curve = sample_curve(self.guarantee, self.releases)
        day = None
        if issued is not None:
            day = issued.isoformat()
        return replace(
            self,
            totals=totals,
            curve=curve,
            account=account,
            issued=day,
            outside=sentences.OUTSIDE,
            words=tuple(self.lines()),
        )

    @property
    def content(self) -> bytes:
        """The bytes of claim.json."""
        return content_of(self)


def describe_neighbours(relation: RelationConfig) -> str:
    """Return a phrase that says which datasets are neighbours, such as "add_remove neighbours ...".

    Args:
        relation: the relation's settings: its name, and how many rows one unit may have.
    """
    phrase = RELATIONS[relation.name].describe_edit(relation.unit_rows)
    return sentences.neighbours(relation.name, phrase)


def weak_budget_warnings(eps: float) -> list[str]:
    """Return a list with one warning if eps is above ``WEAK_EPS``; otherwise an empty list."""
    if eps <= WEAK_EPS:
        return []
    return [sentences.too_much(eps, WEAK_EPS)]


def budget_warnings(eps: float, delta: float, size: float | None) -> list[str]:
    """Return warnings for the data owner about a budget that gives little protection.

    Args:
        eps: the total epsilon.
        delta: the total delta.
        size: a public estimate of the number of training records; None or 0: not declared, so that
            delta is not judged.

    Returns:
        A warning if eps is above ``WEAK_EPS``, and one if delta is above 1 / size; none otherwise.
    """
    lines = weak_budget_warnings(eps)
    if size and delta > 1 / size:
        lines.append(sentences.large_delta(delta, size))
    return lines


def read_claim(content: bytes) -> Claim:
    """Return the claim (the statement of a release's privacy guarantee) that a file contains.

    Args:
        content: the bytes of claim.json.

    Raises:
        Superseded: it has a form that holds sentences instead of fields.
        ConfigError: the file is not JSON, or of an unknown version; an entry is unknown, missing,
            NaN, infinite or out of range; or a total or curve claims more privacy than the
            guarantee proves.
    """
    claim: Claim = read_document(Claim, content, VERSION, name="a claim", key="claim")
    if not claim.words:
        raise ConfigError(
            "the claim's entry 'words' is empty, but must contain the sentences of the claim"
        )
    _check_numbers(claim)
    return claim


def _check_numbers(claim: Claim) -> None:
    """Raise ConfigError if a release's claim promises more privacy than its guarantee proves.

    The totals and curves of the claim are compared with those that this machine computes from the
    guarantee and the ledger's budget. A claim
    whose number of answers was not fixed may have neither.
    """
    releases = claim.releases
    if claim.most is not None:
        releases = claim.most  # a fixed maximum counts, reached or not
    has_total = claim.curve is not None or (claim.totals != () and claim.most is None)
    if claim.one_by_one and has_total:
        raise ConfigError(
            "the claim gives a total guarantee, but its answers were drawn one by one, and their "
            "number was not fixed before the first answer"
        )
    totals = [(total.eps, total.delta) for total in claim.totals]
    curve_points = claim.curve.points if claim.curve is not None else ()
    _check_points([*curve_points, *totals], partial(delta_of, claim.guarantee, releases))
    if claim.account is not None and claim.account.curve is not None:
        _check_points(claim.account.curve.points, claim.account.allowance.delta_of)


def _check_points(
    points: Sequence[tuple[float, float]], true_delta: Callable[[float], float]
) -> None:
    """Raise ConfigError if a point of a privacy curve claims a smaller delta than is true.

    Args:
        points: pairs (eps, delta) that a file claims.
        true_delta: returns the delta at an eps that the guarantee proves.
    """
    for eps, delta in points:
        # The claim may have been written on a machine whose special functions round otherwise.
        largest_delta_here = delta * (1 + _MACHINE_TOLERANCE) + _UNDERFLOW_ALLOWANCE
        if true_delta(eps) > largest_delta_here:
            raise ConfigError(
                f"the claim states that (eps, delta) is ({eps!r}, {delta!r}), which is stronger "
                "than what the mechanism's guarantee proves"
            )
