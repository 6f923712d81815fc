"""Releases from a trained model: labels, one number about all queries, or the weights of a linear head.

    release = prepare_labels(model, features, RandomizedResponse(eps=0.1))
    release.words()                            what is guaranteed, a line each
    release.draw(SystemRandomness())           [n] labels that may be published

Formal guarantees
    Preparing judges the claim (rigour.py) and checks what the model takes, from public values alone: it computes nothing
    private about a query, so that what is released can be debited in between. ``draw`` computes the evidence and draws.
    Each draw is a release of its own and spends the guarantee anew; composition.py adds them up.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.certificates.votes import published_vote
from agt.data.blocks import gathered, pieces
from agt.errors import ConfigError
from agt.mechanisms.aggregate import CertifiedQuantile, release_quantile
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantee import ApproximateDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.rigour import Accounting, Claim, Counting, Output, Voting, claim, evidence_of
from agt.mechanisms.shrinkage import answering
from agt.mechanisms.weights import ReleasedWeights, ReleaseWeights
from agt.models.ensemble import VoteCertificates
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.tube import TubeModel
from agt.randomness import Randomness
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import Progress

SHOWN_DELTA = 1e-5  # where a total is shown for budgets given per query
SCOPE = (
    "it is about the training records, among data that training takes without an error (it refuses a batch above n_max, a "
    "unit above relation.unit_rows, a class or a value that is missing, and the like); the queries, their number and ids "
    "are taken to be public, and not to depend on the training records; how long it takes, and what else a machine lets be "
    "seen of a computation (memory, caches, power), is outside it"
)
APART = (
    "labels released from this run's certificates take the noise that training drew as a public constant: publish such "
    "labels or the noisy weights, never both, as their losses do not add up"
)
NO_ACCOUNT = ("this call keeps no account of other releases about the same data: their losses add up",)
Drawn = TypeVar("Drawn")
OnProgress = Callable[[Progress], None]
WeightsMechanism = ReleaseWeights | ObjectivePerturbation


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
        price: what choosing the settings costs, in words; empty: they were not chosen by this release.
    """

    claim: Claim
    draw: Callable[[Randomness], Drawn]
    totals: tuple[Total, ...]
    queries: int | None
    noisy: bool
    price: tuple[str, ...] = ()

    @property
    def spent(self) -> tuple[str, ...]:
        """The totals in words; never empty."""
        if not self.totals:
            return (f"in all: {self.claim.guarantee}",)
        over = {None: "for any number of queries", 1: "in all"}.get(self.queries, f"all {self.queries} together")
        return tuple(f"{over}: {each}" for each in self.totals)

    def words(self, simulated: bool = False, account: Iterable[str] = NO_ACCOUNT) -> list[str]:
        """What may be said of it, a line each, the claim first.

        Args:
            simulated: it is drawn from a seed.
            account: what is said of other releases about the same data.
        """
        lines = [self.claim.text]
        if self.claim.proved:
            lines += [*(self.spent if self.totals else ()), *self.price, SCOPE]
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
        return _seen(certificates, self.mechanism.needs == "votes", self.voting, self.counting)


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
    end = int(model.metrics["k_max"])  # of the grid: a public constant

    def draw(randomness: Randomness) -> int:
        evidence = evidence_of(model.certify(features, on_progress=on_progress), counting)
        return release_quantile(evidence, mechanism.fraction, end, mechanism.guarantee, randomness)

    return Release(granted, draw, (), len(features), settings.noise is not None)


def prepare_weights(
    model: Model, mechanism: WeightsMechanism, *, conditions: Sequence[Condition] | None = None, delta: float = 0.0
) -> Release[ReleasedWeights]:
    """The weights of a linear head, from which ``labels_from`` answers any number of queries. Arguments as for labels.

    Raises:
        ConfigError: the model is no single linear head, or one that no proof of the mechanism covers, or a condition does
            not hold: all of them count.
    """
    head = _linear(model, mechanism.name)
    conditions = model.conditions if conditions is None else conditions
    granted = claim(conditions, head.settings.relation, mechanism, output=Output.WEIGHTS)
    mechanism.check(head)

    def draw(randomness: Randomness) -> ReleasedWeights:
        return mechanism.draw(head, randomness)

    totals = (weights_total(mechanism.guarantee, delta),)
    return Release(granted, draw, totals, None, head.settings.noise is not None)


def weights_total(guarantee: Guarantee, delta: float) -> Total:
    """What weights cost, which are released once: at ``delta``, or, where that is 0, at their own or at one to show."""
    return total(guarantee, 1, delta or getattr(guarantee, "delta", SHOWN_DELTA))


def labels_from(model: Model, features: np.ndarray) -> Callable[[ReleasedWeights], np.ndarray]:
    """What released weights answer: [n] int64 labels; nothing more is spent.

    Args:
        model: the head that the weights are released from, for its public features.
        features: [n, ...] the queries, as the head takes them.
    """
    head = _linear(model, ReleaseWeights.name)
    head.check(features)

    def labels(released: ReleasedWeights) -> np.ndarray:
        weight = answering(released.weight, released.sigma, released.shrink, head.features)
        return head.with_weight(torch.from_numpy(weight)).predict(features)

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
    if classes > 2:
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is of two classes and the model "
            f"has {classes}: use accounting=rigorous, whose certified vote takes any number"
        )
    if config.vote == "margins":
        raise ConfigError(
            "accounting=paper: the published vote of an ensemble (001 Theorem 5.3) is of labels and this one is of margins "
            "(ensemble.vote=margins): use accounting=rigorous, or train with ensemble.vote=labels"
        )
    return "published"


def _seen(certificates: Certificates, by_votes: bool, voting: Voting, counting: Counting) -> tuple[np.ndarray, np.ndarray]:
    """(nominal labels [n], what the mechanism sees of each query [n])."""
    if isinstance(certificates, VoteCertificates):
        if by_votes:
            return certificates.plurality, certificates.gap
        if voting == "published":
            vote = published_vote(certificates.members, certificates.member_distances)
            return vote.prediction, vote.distance
    return certificates.prediction, evidence_of(certificates, counting)


def _told(on_progress: OnProgress, start: int, size: int, count: int, at: Progress) -> None:
    """Of a piece of the queries, how far it brings all of them."""
    done = start + size * at.done // max(at.total, 1)
    on_progress(Progress(done, count, done, count))


def _linear(model: Model, mechanism: str) -> LinearModel:
    certificate = "erm" if mechanism == ObjectivePerturbation.name else "stability"
    if isinstance(model, TubeModel):
        raise ConfigError(
            f"mechanism={mechanism}: how far one record moves a tube's weights depends on the data, and noise scaled to "
            "it would tell of them: answer query by query, as agt plan compares, or train with model=linear "
            f"certificate={certificate}"
        )
    if not isinstance(model, LinearModel):
        raise ConfigError(
            f"mechanism={mechanism} is for one linear head: train with model=linear certificate={certificate}, no ensemble"
        )
    return model
