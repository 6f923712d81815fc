"""Releases from a trained model: labels, one number about all queries, or the weights of a linear head.

    release = prepare_labels(model, features, RandomizedResponse(eps=0.1))
    release.words()                            what is guaranteed, a line each
    release.draw(SystemRandomness())           [n] labels that may be published

Formal guarantees
    Preparing judges the claim (below) and checks what the model takes, from public values alone: it computes nothing
    private about a query, so that what is released can be debited in between. ``draw`` computes the evidence and draws.
    Each draw is a release of its own and spends the guarantee anew; composition.py adds them up.

Which guarantee a release may claim: the gate between certificates and mechanisms (method.md section 3).

``accounting=rigorous`` (the default) refuses, naming the condition, unless every condition that the mechanism rests on is
held. ``accounting=paper`` (published.py) runs as published and says that there is no proof. A
one-sided relation is refused by both.

Formal guarantees
    What a mechanism rests on. Evidence from certificates: all of a to g. Votes of disjoint shards (noisy_argmax): one
    record changes one member's label, which needs b (its shard is its own affair), c (no constant shared by the members is
    derived from the data), e and g; boxes, and so a, d and f, play no part, as long as a member's training reads nothing
    of the other shards. No evidence (global_sensitivity, exponential_mechanism): the noise covers any two labels, which
    leaves e (nothing else about the data is published) and g. Counts with noise (measurement.py) need b as well: no record
    decides whether another is counted.
    Sparse grids, ``counting=index``: evidence is the number of grid values k >= 1 certified from the least on, and 0 if the
    grid starts with k = 0 and that is not certified. If D is certified at the grid's k(1) < ... < k(j), a neighbour is by
    nesting at each k(i) - 1 and, as the boxes of one dataset grow with k, at k(i-1): so at k(1), ..., k(j-1), and the index
    is 1-Lipschitz. If it is positive, some k >= 1 is certified and no neighbour has another label.
    Ensembles. The certified vote counts how many members one k can change
    (agt/certificates/votes.py), and noise on votes covers as many (``Mechanism.covering``), so both
    take every symmetric relation.

A claim as JSON, for programs and auditors: what is guaranteed, for whom, under which conditions, and what is outside.

    statement = of_release(release, "randomized_response", issued=date.today())
    statement.content                 bytes of claim.json (docs/releasing.md tells every entry)
    read_claim(content)               the same again; refuses other versions, NaN, and what is no claim

Formal guarantees
    A statement of a claim that is proved may be published with what was released. It is a function of the claim, of public
    settings, and of lots (how many releases of which guarantee), which composition.py takes to be
    public. It holds no digest of data or run, nor a ledger entry's hash, which is over such
    digests: whoever guesses all of the data but one record could test the last one. No number of
    training records, no accuracy, no path either, and of the time no more than the day.
    Where nothing is proved ``publishable`` is false: there is nothing to publish it with.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np
import torch
from pydantic import Field

from agt import __version__
from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, declarations, weaker
from agt.certificates.votes import VoteCertificates
from agt.data.arrays import gathered, pieces
from agt.errors import ConfigError
from agt.facts import grounds, void
from agt.mechanisms.budget import Allowance, Cost
from agt.mechanisms.composition import Total, delta_of, total
from agt.mechanisms.guarantees import ApproximateDP, Guarantee, PureDP, described, guarantee_of
from agt.mechanisms.mechanism import Curve, Mechanism, Need, curve_of, curve_of_budget
from agt.mechanisms.output import Output
from agt.mechanisms.published import COVERED, NO_LIPSCHITZ, check_published_vote, published_vote
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.models.model import Model
from agt.numeric import Randomness
from agt.relations import RELATIONS
from agt.settings import RelationConfig, RelationName, check_choice, content_of, read_document, schema, validate
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import OnProgress, Progress

Accounting = Literal["rigorous", "paper"]
Counting = Literal["distance", "index"]
Voting = Literal["none", "certified", "published"]

RESTS_ON: dict[Need, str] = {"distance": "abcdefg", "votes": "bceg", "counts": "beg", "nothing": "eg"}
_REMEDY = {
    "a": "train with kgrid=dense, or count steps of the grid instead of records with counting=index",
    "b": "let every record's batch, split and shard depend on its own id: hashed splits, unique ids",
    "c": "train again with a public constant",
    "d": "train with relation=add_remove",
    "e": "scale with public constants, choose settings on public data, and train again",
    "f": "train with training.product=exact",
    "g": "train with relation=add_remove",
}


_GIVEN = {  # how a guarantee of each is said
    Output.LABELS: "{} per query",
    Output.NUMBER: "{} for this one number",
    Output.WEIGHTS: "the released weights are {}",
    Output.CONSTANTS: "ranges, lists and sizes told here are {}",
}
_FOLLOWS = {
    Output.WEIGHTS: ", and so is every label that is computed from them",
    Output.CONSTANTS: "; what is trained with them spends more",
}


class Claimable(Protocol):
    """What a claim is about: a mechanism of labels, of one number, of weights, or of constants."""

    name: ClassVar[str]
    needs: ClassVar[Need]

    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True)
class Reason:
    """Why a guarantee cannot rest on some evidence, and what to do about it.

    Attributes:
        why: a clause.
        remedy: in the imperative.
        condition: the letter of the condition that does not hold (method.md section 3); empty: it is about votes.
    """

    why: str
    remedy: str
    condition: str = ""

    def __str__(self) -> str:
        return f"{self.why}; {self.remedy}"


@dataclass(frozen=True)
class Claim:
    """What may be said about a release.

    Attributes:
        guarantee: of one query's label, of the number, or of the weights.
        relation: says which datasets are neighbours.
        output: what is released.
        accounting: what was asked for.
        reasons: why nothing is proved; empty: the guarantee is.
        declared: what it rests on that was declared and not proved, a sentence each.
    """

    guarantee: Guarantee
    relation: RelationConfig
    output: Output = Output.LABELS
    accounting: Accounting = "rigorous"
    reasons: tuple[Reason, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """Whether the guarantee holds."""
        return not self.reasons

    @property
    def text(self) -> str:
        """A sentence for reports: the guarantee and its neighbours, or that nothing is proved, and why."""
        given = _GIVEN[self.output].format(self.guarantee)
        if not self.proved:
            return f"NO PROOF OF PRIVACY: {'; '.join(self._missing)}. As its paper has it, {given}"
        covered = "" if self.accounting == "rigorous" else COVERED
        return f"{given} for {neighbours_of(self.relation)}{_FOLLOWS.get(self.output, '')}{covered}"

    @property
    def _missing(self) -> list[str]:
        """The reasons, conditions by their letters alone: a report lists them all."""
        letters = [reason.condition for reason in self.reasons if reason.condition]
        named = f"conditions {', '.join(letters)} do" if len(letters) > 1 else f"condition {''.join(letters)} does"
        others = [reason.why for reason in self.reasons if not reason.condition]
        return [f"{named} not hold", *others] if letters else others


def claim(
    conditions: Sequence[Condition],
    relation: RelationConfig,
    mechanism: Claimable,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    voting: Voting = "none",
    output: Output = Output.LABELS,
) -> Claim:
    """The claim of a release, or a refusal.

    Args:
        conditions: a to g of the run that the evidence comes from.
        relation: the run's relation, with the rows that one unit may have.
        counting: what the evidence counts: records, or steps of the grid (``grid_index``).
        voting: how the evidence was made from an ensemble's: ``certified_vote``, ``published_vote``, or no ensemble.
        output: what is released.

    Raises:
        ConfigError: the relation's certificates are for something else or, under ``rigorous``, a condition that it rests
            on does not hold.
    """
    for name, value, choices in (("accounting", accounting, Accounting), ("counting", counting, Counting)):
        check_choice(value, choices, name)
    if why := RELATIONS[relation.name].no_release:
        raise ConfigError(f"relation={relation.name}: {why}, and no release mechanism takes them; {_REMEDY['g']}")
    needed = _needed(conditions, mechanism, counting)
    reasons = [reason_of(condition) for condition in needed if not condition.held]
    if voting == "published" and mechanism.needs == "distance":
        reasons.append(Reason(NO_LIPSCHITZ, "use the certified vote"))
    listed = "\nand ".join(map(str, reasons))  # all of them, so that one more training mends them
    if reasons and output is Output.WEIGHTS:  # no paper publishes them without a proof
        raise ConfigError(f"mechanism={mechanism.name}: {listed}")
    if reasons and accounting == "rigorous":
        raise ConfigError(f"accounting=rigorous: {listed}; or use accounting=paper, which proves nothing")
    return Claim(mechanism.guarantee, relation, output, accounting, tuple(reasons), declarations(needed))


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """[n] int64: what a mechanism sees of each query: its stable distance, or how many steps of the grid it withstands."""
    if counting == "distance":
        return certificates.stable_distance
    return certificates.grid_steps


def neighbours_of(relation: RelationConfig) -> str:
    """Which datasets are neighbours, in words."""
    return f"{relation.name} neighbours ({RELATIONS[relation.name].neighbours(relation.unit_rows)})"


def _needed(conditions: Sequence[Condition], mechanism: Claimable, counting: Counting) -> list[Condition]:
    """The conditions that the mechanism rests on; one that nobody assessed does not hold."""
    known = {condition.letter: condition for condition in conditions}
    unknown = grounds(void("the run does not say whether it holds"))
    return [
        known.get(letter, Condition(letter, "not assessed", unknown))
        for letter in RESTS_ON[mechanism.needs]
        if not (letter == "a" and counting == "index")
    ]


def reason_of(condition: Condition) -> Reason:
    """Why a condition that does not hold stops a release."""
    why = f"condition {condition.letter} ({condition.name}) does not hold: {condition.grounds.missing}"
    return Reason(why, _REMEDY[condition.letter], condition.letter)


SHOWN_DELTA = 1e-5  # where a total is shown for budgets given per query
WEAK_EPS = 20.0  # that is released without a word


def too_much(eps: float) -> list[str]:
    """What the owner of a budget that protects nobody should hear; nothing of others."""
    words = f"epsilon is {eps:g} in all: above {WEAK_EPS:g} it promises next to nothing; 1 is strong, 10 weak"
    return [words] if eps > WEAK_EPS else []


SCOPE = (
    "it is about the training records, among data that training takes without an error (it refuses a batch above n_max, a "
    "unit above relation.unit_rows, a value that is missing, a single class where none are declared, and the like); the "
    "queries, their number and ids are taken to be public, and not to depend on the training records; how long it takes, "
    "and what else a machine lets be seen of a computation (memory, caches, power), is outside it; that libraries' "
    "functions (exp, tanh, erf, softmax) and eigenvectors (LAPACK's) err by no more than the bounds charge for them is "
    "trusted"
)
APART = (
    "labels released from this run's certificates take the noise that training drew as a public constant: publish such "
    "labels or the noisy weights, never both, as their losses do not add up"
)
NO_ACCOUNT = ("this call keeps no account of other releases about the same data: their losses add up",)
Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class Release(Generic[Drawn]):
    """Something that is ready to be drawn.

    Attributes:
        claim: what may be said about it.
        draw: randomness -> [n] int64 labels, the number, or ``ReleasedWeights``. Only what ``SystemRandomness`` drew is
            private; anything else is a simulation.
        totals: the loss of all of it together, at one or two values of delta; empty: the claim's guarantee is the total.
        queries: how many the totals are over; None: any number.
        noisy: the model was trained with noise, whose guarantee does not add up with this one.
    """

    claim: Claim
    draw: Callable[[Randomness], Drawn]
    totals: tuple[Total, ...]
    queries: int | None
    noisy: bool

    @property
    def spent(self) -> tuple[str, ...]:
        """The totals in words; never empty."""
        if not self.totals:
            return (f"in all: {self.claim.guarantee}",)
        over = {None: "for any number of queries", 1: "in all"}.get(self.queries, f"all {self.queries} together")
        return tuple(f"{over}: {each}" for each in self.totals)

    def doubts(self, size: float | None) -> list[str]:
        """What its owner should hear before it is drawn: that it protects hardly anybody.

        Args:
            size: public, about how many training records there are; None: nobody declared it.
        """
        given = self.claim.guarantee
        shown = self.totals or (total(given, 1, getattr(given, "delta", SHOWN_DELTA)),)
        eps, delta = min(each.eps for each in shown), min(each.delta for each in shown)
        lines = too_much(eps)
        if size and delta > 1 / size:
            lines.append(f"delta is {delta:g} in all: above 1 / {size:g}, publishing a record as it is may stay within it")
        return lines

    def words(self, simulated: bool = False, account: Iterable[str] = NO_ACCOUNT) -> list[str]:
        """What may be said of it, a line each, the claim first.

        Args:
            simulated: it is drawn from a seed.
            account: what is said of other releases about the same data.
        """
        lines = [self.claim.text]
        if self.claim.proved:
            lines += [*(self.spent if self.totals else ()), SCOPE]
        lines += [*self.claim.declared, *([APART] if self.noisy else [])]
        if simulated:
            return simulation("the draws come from a seed and can be predicted; this is not a private release", lines)
        return [*lines, *account]


def simulation(why: str, lines: Iterable[str]) -> list[str]:
    """Words about a release, of which only a simulation is drawn."""
    return [f"SIMULATION: {why}", *(f"drawn without a seed it would be: {line}" for line in lines)]


@dataclass(frozen=True)
class Labelling:
    """Labels that may be released, for whichever queries come.

    Attributes:
        model, mechanism: what answers, and what the answers pass through.
        claim: what may be said of each.
        counting: what evidence counts.
        voting: how an ensemble's evidence is made.
    """

    model: Model
    mechanism: Mechanism
    claim: Claim
    counting: Counting
    voting: Voting

    @classmethod
    def of(
        cls,
        model: Model,
        mechanism: Mechanism,
        conditions: Sequence[Condition] | None = None,
        accounting: Accounting = "rigorous",
        counting: Counting = "distance",
    ) -> "Labelling":
        """Judge the claim. Arguments and errors as ``prepare_labels``."""
        settings, classes = model.problem.settings, model.problem.classes
        if not isinstance(mechanism, Mechanism):
            raise ConfigError(f"mechanism: {mechanism!r} is none: give an object such as RandomizedResponse(eps=1.0)")
        if mechanism.classes != classes:
            raise ConfigError(
                f"mechanism.classes={mechanism.classes} and the model has {classes}: give classes={classes}, or, in a "
                "configuration, leave it null"
            )
        voting = _voting(settings.ensemble, mechanism, accounting, classes)
        mechanism = mechanism.covering(RELATIONS[settings.relation.name].touches)
        conditions = model.conditions if conditions is None else conditions
        granted = claim(conditions, settings.relation, mechanism, accounting, counting, voting)
        return cls(model, mechanism, granted, counting, voting)

    def release(
        self, features: np.ndarray, delta: float = 0.0, on_progress: OnProgress = lambda progress: None
    ) -> Release[np.ndarray]:
        """One label for each query. Arguments and errors as ``prepare_labels``."""
        totals = totals_of(self.mechanism.guarantee, len(features), delta)
        self.model.check(features)

        def draw(randomness: Randomness) -> np.ndarray:
            return self.labels(features, randomness, on_progress)

        return Release(self.claim, draw, totals, len(features), self.model.problem.settings.noise is not None)

    def labels(
        self, features: np.ndarray, randomness: Randomness, on_progress: OnProgress = lambda progress: None
    ) -> np.ndarray:
        """[n] int64: certify queries and draw a label for each, which spends the guarantee of each."""
        return gathered(self.drawn(features, randomness, on_progress), len(features))

    def drawn(
        self, features: np.ndarray, randomness: Randomness, on_progress: OnProgress = lambda progress: None
    ) -> Iterator[np.ndarray]:
        """The same piece by piece, each certified and drawn when it is asked for: the draws are one after the other."""
        count, start = len(features), 0
        for piece in pieces(features):
            told = on_progress if len(piece) == count else partial(_told, on_progress, start, len(piece), count)
            prediction, evidence = self.seen(piece, told)
            yield self.mechanism.release(prediction, evidence, randomness, self.model.farthest)
            start += len(piece)

    def seen(self, features: np.ndarray, on_progress: OnProgress = lambda progress: None) -> tuple[np.ndarray, np.ndarray]:
        """(nominal labels [n], evidence [n]): what the mechanism sees of each query; private."""
        certificates = self.model.certify(features, on_progress=on_progress)
        if isinstance(certificates, VoteCertificates):
            if self.mechanism.needs == "votes":
                return certificates.plurality, certificates.tally
            if self.voting == "published":
                vote = published_vote(certificates.members, certificates.member_distances)
                return vote.prediction, vote.distance
        return certificates.prediction, evidence_of(certificates, self.counting)


def prepare_labels(
    model: Model,
    features: np.ndarray,
    mechanism: Mechanism,
    *,
    conditions: Sequence[Condition] | None = None,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    delta: float = 0.0,
    on_progress: OnProgress = lambda progress: None,
) -> Release[np.ndarray]:
    """One label for each query.

    Args:
        model: what answers.
        features: [n, ...] the queries, as the head takes them.
        mechanism: for as many classes as the model has; ``planning.afford`` makes one from a total budget.
        conditions: a to g; None: the model's own.
        accounting: rigorous refuses where a condition does not hold; paper takes an ensemble's published vote too, and says
            where nothing is proved.
        counting: what evidence counts: records, or steps of the grid, as a sparse one needs.
        delta: at which the total of all queries is shown; 0: one is chosen.
        on_progress: called as queries are certified, which ``draw`` does.

    Raises:
        ConfigError: the claim is refused, the mechanism does not fit the model, or ``delta`` is less than the queries' own.
        UnsoundError: a query is not finite in the model's precision.
    """
    return Labelling.of(model, mechanism, conditions, accounting, counting).release(features, delta, on_progress)


def prepare_quantile(
    model: Model,
    features: np.ndarray,
    mechanism: CertifiedQuantile,
    *,
    conditions: Sequence[Condition] | None = None,
    accounting: Accounting = "rigorous",
    counting: Counting = "distance",
    on_progress: OnProgress = lambda progress: None,
) -> Release[int]:
    """One number about all queries: up to which distance a fraction of them is certified. Arguments as for labels."""
    settings = model.problem.settings
    voting: Voting = "certified" if settings.ensemble.members > 1 else "none"
    conditions = model.conditions if conditions is None else conditions
    granted = claim(conditions, settings.relation, mechanism, accounting, counting, voting, Output.NUMBER)
    model.check(features)

    def draw(randomness: Randomness) -> int:
        evidence = evidence_of(model.certify(features, on_progress=on_progress), counting)
        return release_quantile(evidence, mechanism.fraction, model.farthest, mechanism.guarantee, randomness)

    return Release(granted, draw, (), len(features), settings.noise is not None)


def prepare_weights(
    model: Model, mechanism: WeightsMechanism, *, conditions: Sequence[Condition] | None = None, delta: float = 0.0
) -> Release[ReleasedWeights]:
    """The weights of a linear head, from which ``labels_from`` answers any number of queries. Arguments as for labels.

    Raises:
        ConfigError: the model is no single linear head, or one that no proof of the mechanism covers, or a condition does
            not hold: all of them count.
    """
    head = mechanism.head_of(model)
    known = model.conditions if conditions is None else conditions
    rests_on = weaker(known, head.conditions)  # votes know no normaliser: a head beside them needs a declared size
    granted = claim(rests_on, head.settings.relation, mechanism, output=Output.WEIGHTS)
    mechanism.check(head)

    def draw(randomness: Randomness) -> ReleasedWeights:
        return mechanism.draw(head, randomness)

    totals = (weights_total(mechanism.guarantee, delta),)
    return Release(granted, draw, totals, None, head.settings.noise is not None)


def weights_total(guarantee: Guarantee, delta: float) -> Total:
    """What weights cost, which are released once: at ``delta``, or, where that is 0, at their own or at one to show.

    The total of a pure guarantee needs no delta, and is shown without one where none is given.
    """
    if not delta and isinstance(guarantee, PureDP):
        return total(guarantee, 1, 0.0)
    return total(guarantee, 1, delta or getattr(guarantee, "delta", SHOWN_DELTA))


def labels_from(model: Model, features: np.ndarray) -> Callable[[ReleasedWeights], np.ndarray]:
    """What released weights answer: [n] int64 labels; nothing more is spent.

    Args:
        model: the head that the weights are released from, for its public features.
        features: [n, ...] the queries, as the head takes them.

    Raises:
        ConfigError: the model has no linear head, or queries are of another width.
    """
    head = model.release_head
    if head is None:
        raise ConfigError("model: weights are released from one linear head, and this model has none")
    head.check(features)

    def labels(released: ReleasedWeights) -> np.ndarray:
        return head.with_weight(torch.from_numpy(released.weight)).predict(features)

    return labels


def totals_of(guarantee: Guarantee, queries: int, delta: float) -> tuple[Total, ...]:
    """What queries cost together: without a delta where that is possible, and at ``delta`` where it is less.

    Args:
        delta: 0: none was asked for; one is chosen to show a total at.

    Raises:
        ConfigError: the queries' own deltas exceed the one asked for.
    """
    leaks = queries * guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
    if delta and leaks >= delta:
        raise ConfigError(
            f"total.delta={delta:g} and {queries} queries spend a delta of {leaks:g} alone: lower mechanism.delta, or "
            "raise total.delta"
        )
    shown = total(guarantee, queries, delta or max(SHOWN_DELTA, min(0.5, 2 * leaks)))
    if not isinstance(guarantee, PureDP):
        return (shown,)
    pure = total(guarantee, queries, 0.0)
    return (pure, shown) if shown.eps < pure.eps else (pure,)


def _voting(config: EnsembleConfig, mechanism: Mechanism, accounting: Accounting, classes: int) -> Voting:
    """How evidence is made of an ensemble's members."""
    ensemble = config.members > 1
    if mechanism.needs == "votes" and not ensemble:
        raise ConfigError(f"mechanism={mechanism.name} counts an ensemble's votes: train with ensemble.members=T")
    if not (ensemble and accounting == "paper" and mechanism.needs == "distance"):
        return "certified" if ensemble else "none"
    check_published_vote(config, classes)
    return "published"


def _told(on_progress: OnProgress, start: int, size: int, count: int, at: Progress) -> None:
    """Of a piece of the queries, how far it brings all of them."""
    done = start + size * at.done // max(at.total, 1)
    on_progress(Progress(done, count, done, count))


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
        return guarantee_of({name: value for name, value in asdict(self).items() if value is not None})


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
    """A counter's position (composition.py, ``Cost``), as decimals: no guarantee of its own.
    ``pure`` null: infinite."""

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
        first_entry: the first 16 digits of the hash of the ledger's first entry, by which it is told
            from others; None: not recorded, as in claims of earlier versions.
    """

    population: str
    unit: str
    entry: Annotated[int, Field(ge=1)]
    eps: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    leaks: Annotated[float, Field(ge=0, le=1)]
    spent: Spent
    curve: Curve | None = None
    first_entry: Annotated[str, Field(pattern="^[0-9a-f]{16}$")] | None = None

    @classmethod
    def of(
        cls,
        population: str,
        unit: str,
        entry: int,
        allowance: Allowance,
        spent: Cost,
        first_entry: str | None = None,
    ) -> "Account":
        """As it stands with this entry."""
        curve = curve_of_budget(allowance) if allowance.holds(spent) else None
        counter = validate(Spent, {k: v for k, v in spent.as_json().items() if v is not None}, "spent")
        return cls(population, unit, entry, allowance.eps, allowance.delta, allowance.leaks, counter, curve, first_entry)


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
        output: labels, a number, weights, constants.
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
    reasons: tuple[str, ...]
    guarantee: Given
    mechanism: str
    output: Literal["labels", "a number", "weights", "constants"]
    per: str
    releases: Annotated[int, Field(ge=1)]
    neighbours: Neighbours
    accounting: Accounting
    counting: Counting
    declared: tuple[str, ...]
    totals: tuple[Totalled, ...]
    scope: str
    outside: tuple[str, ...]
    words: Annotated[tuple[str, ...], Field(min_length=1)]
    answers: Annotated[int, Field(ge=1)] | None = None
    curve: Curve | None = None
    issued: Annotated[str, Field(pattern=_DAY)] | None = None
    account: Account | None = None

    def __post_init__(self) -> None:
        if self.publishable != (self.proved and not self.simulated) or self.proved == bool(self.reasons):
            raise ConfigError("publishable means proved and not simulated, and reasons are given where nothing is proved")

    @property
    def content(self) -> bytes:
        """The file."""
        return content_of(self)


_PER = {
    Output.LABELS: "the label of one query",
    Output.NUMBER: "the one number",
    Output.WEIGHTS: "the weights, once",
    Output.CONSTANTS: "the constants, once",
}


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
    """The claim of something that is released.

    Args:
        mechanism: its name.
        words: all that may be said, a line each, the claim first; None: the release's own.
        counting: what evidence counts.
        simulated: drawn from a seed.
        issued: the day; None: not told.
        account: the ledger that was debited.
    """
    claim, queries = release.claim, release.queries
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
        totals=tuple(Totalled(each.eps, each.delta, each.bound) for each in release.totals) if claim.proved else (),
        scope=SCOPE,
        outside=OUTSIDE,
        words=tuple(release.words(simulated) if words is None else words),
        answers=queries,
        curve=curve_of(claim.guarantee, releases) if claim.proved else None,
        issued=None if issued is None else issued.isoformat(),
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
