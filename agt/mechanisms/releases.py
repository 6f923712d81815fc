"""Releases from a trained model: labels, one number about all queries, or the weights of a linear head.

    release = prepare_labels(model, features, RandomizedResponse(eps=0.1))
    release.claim.lines()                      what is guaranteed, a line each
    release.draw(SystemRandomness())           [n] labels that may be published

Formal guarantees
    Preparing judges the claim (judging.py) and checks what the model takes, from public values alone: it computes nothing
    private about a query, so that what is released can be debited in between. ``draw`` computes the evidence and draws.
    Each draw is a release of its own and spends the guarantee anew; composition.py adds them up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, weaker
from agt.certificates.votes import VoteCertificates
from agt.data.arrays import gathered, pieces
from agt.errors import ConfigError
from agt.mechanisms.claims import SHOWN_DELTA, Accounting, Claim, Counting
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantees import ApproximateDP, Guarantee, PureDP
from agt.mechanisms.judging import Voting, claim
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.output import Output
from agt.mechanisms.published import check_published_vote, published_vote
from agt.mechanisms.quantile import CertifiedQuantile, release_quantile
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.models.model import Model
from agt.numeric import Randomness
from agt.relations import RELATIONS
from agt.training.ensemble import EnsembleConfig
from agt.training.loop import OnProgress, Progress

Drawn = TypeVar("Drawn")


def evidence_of(certificates: Certificates, counting: Counting) -> np.ndarray:
    """[n] int64: what a mechanism sees of each query: its stable distance, or how many steps of the grid it withstands."""
    if counting == "distance":
        return certificates.stable_distance
    return certificates.grid_steps


@dataclass(frozen=True)
class Release(Generic[Drawn]):
    """Something that is ready to be drawn.

    Attributes:
        claim: what may be said about it.
        draw: randomness -> [n] int64 labels, the number, or ``ReleasedWeights``. Only what ``SystemRandomness`` drew is
            private; anything else is a simulation.
    """

    claim: Claim
    draw: Callable[[Randomness], Drawn]


@dataclass(frozen=True)
class Labelling:
    """Labels that may be released, for whichever queries come.

    Attributes:
        model, mechanism: what answers, and what the answers pass through.
        claim: what may be said of each.
        voting: how an ensemble's evidence is made.
    """

    model: Model
    mechanism: Mechanism
    claim: Claim
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
        granted = claim(
            conditions, settings.relation, mechanism, accounting, counting, voting, noisy=settings.noise is not None
        )
        return cls(model, mechanism, granted, voting)

    def release(
        self, features: np.ndarray, delta: float = 0.0, on_progress: OnProgress = lambda progress: None
    ) -> Release[np.ndarray]:
        """One label for each query. Arguments and errors as ``prepare_labels``."""
        granted = of_labels(self.claim, len(features), delta)
        self.model.check(features)

        def draw(randomness: Randomness) -> np.ndarray:
            return self.labels(features, randomness, on_progress)

        return Release(granted, draw)

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
        return certificates.prediction, evidence_of(certificates, self.claim.counting)


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
    noisy = settings.noise is not None
    granted = claim(conditions, settings.relation, mechanism, accounting, counting, voting, Output.NUMBER, noisy)
    granted = replace(granted, answers=len(features) or None)
    model.check(features)

    def draw(randomness: Randomness) -> int:
        evidence = evidence_of(model.certify(features, on_progress=on_progress), counting)
        return release_quantile(evidence, mechanism.fraction, model.farthest, mechanism.guarantee, randomness)

    return Release(granted, draw)


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
    noisy = head.settings.noise is not None
    granted = claim(rests_on, head.settings.relation, mechanism, output=Output.WEIGHTS, noisy=noisy)
    granted = replace(granted, totals=(weights_total(mechanism.guarantee, delta),))
    mechanism.check(head)

    def draw(randomness: Randomness) -> ReleasedWeights:
        return mechanism.draw(head, randomness)

    return Release(granted, draw)


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


def of_labels(claim: Claim, queries: int, delta: float) -> Claim:
    """The claim of so many labels, with what they cost together. Arguments and errors as ``totals_of``."""
    return replace(claim, releases=queries or 1, answers=queries or None, totals=totals_of(claim.guarantee, queries, delta))


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
