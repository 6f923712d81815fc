"""Audits of released weights, white-box: releases are told apart along the line between two neighbours' own weights.

Formal guarantees
    A release is theta + N(0, sigma^2 I), rounded to a lattice of at most 2^-24 sigma. Between two neighbours theta, theta'
    no test is better than the projection on theta - theta', which is N(0, 1) against N(mu, 1) in units of sigma, mu =
    |theta - theta'| / sigma: worked out, and more than one part in 10^9 beyond the claim is a violation. The claim is about
    any two neighbours; how close these come to the sensitivity is told beside it. The threshold is the midpoint, fixed by
    the weights and not by draws, so that it costs no confidence. The rest of the noise is not looked at.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from agt.audit.estimates import Claimed
from agt.audit.events import Tail, counted
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.mechanism import AuditedPair, Plan
from agt.audit.verdict import Attacked
from agt.audit.worst import neighbours, segments
from agt.audit.written import least
from agt.mechanisms.weights import ReleaseWeights, noise_scale, release_weights
from agt.models.linear import LinearModel
from agt.numeric import UP, next_up

SUBJECT = "release_weights with mu={mu:g}"


@dataclass(frozen=True)
class Heads:
    """Two neighbours' weights.

    Attributes:
        first, second: float64, of one shape; they differ.
        moves: the bound on how far one unit moves them, which the noise is made for.
        where: which datasets, in words.
    """

    first: np.ndarray
    second: np.ndarray
    moves: float
    where: str = "no data: weights as far apart as the sensitivity allows"

    @property
    def apart(self) -> float:
        """|theta - theta'|."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def alone(cls, width: int) -> "Heads":
        """Weights without data, at the distance that the noise is made for."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def audit_weights(
    mechanism: ReleaseWeights, heads: Heads, plan: Plan, on_done: Callable[[int], None] = lambda done: None
) -> AuditedPair:
    """The exact mu of this pair, and the one that is shown by releases.

    Args:
        on_done: told how many releases of both sides, ``2 plan.trials``, were drawn.
    """
    sigma, direction = noise_scale(heads.moves, mechanism.guarantee), (heads.first - heads.second) / heads.apart
    middle = (heads.first + heads.second) / 2

    def draw(theta: np.ndarray, before: int) -> np.ndarray:
        scores = np.empty(plan.trials)
        for trial in range(plan.trials):
            released = release_weights(theta, heads.moves, mechanism.guarantee, plan.source)
            scores[trial] = float(((released.weight - middle) * direction).sum()) / sigma
            on_done(before + trial + 1)
        return scores

    event = Tail(0.0, above=True)
    counts = counted(event, draw(heads.first, 0), draw(heads.second, plan.trials))
    attacked = Attacked(
        SUBJECT.format(mu=mechanism.mu),
        str(mechanism.guarantee),
        "released weights, projected on the difference of the two models' own; the threshold is their midpoint",
        f"{plan.trials:,} releases a side of {heads.first.size:,} weights; {heads.where}",
        Claimed.of(mechanism.guarantee),
        plan.confidence,
    )
    return AuditedPair(_exact(mechanism, heads, sigma), attacked.findings(counts))


def farthest(model: LinearModel, anchors: np.ndarray, count: int, seed: int) -> Heads | None:
    """Of some neighbours of a run, the one whose weights are farthest from the run's; None: none was found.

    Args:
        anchors: [n, ...] features, between which newcomers are put.
        count: how many neighbouring datasets are trained.
    """
    pairs = [heads for _, heads in neighbouring_heads(model, anchors, count, seed)]
    return max(pairs, key=lambda heads: heads.apart, default=None)


def neighbouring_heads(
    model: LinearModel, anchors: np.ndarray, count: int, seed: int
) -> Iterator[tuple[LinearModel, Heads]]:
    """(what was trained on a neighbour of a run, both sides' weights), where they differ. Arguments as ``farthest``."""
    a, b = segments(model, anchors, count, np.random.default_rng(seed))
    mine = model.trained.weight.numpy()
    for other in neighbours(model, (a + (b - a) / 2).astype(a.dtype), count):
        assert isinstance(other.model, LinearModel)
        heads = Heads(
            mine, other.model.trained.weight.numpy(), model.moves, f"the run's own data, and the same {other.edit}"
        )
        if heads.apart:
            yield other.model, heads


def _exact(mechanism: ReleaseWeights, heads: Heads, sigma: float) -> Finding:
    mu, share = heads.apart / sigma, heads.apart / heads.moves
    exceeds = mu > mechanism.mu * (1 + UP)
    value = max(mu, next_up(mechanism.mu)) if exceeds else min(mu, mechanism.mu)
    return Finding(
        subject=f"{SUBJECT.format(mu=mechanism.mu)}: its noise beside the two models",
        claim=str(mechanism.guarantee),
        attack="the distance of the two models' weights, over the standard deviation of the noise",
        effort=heads.where,
        outcome=Outcome.VIOLATED if exceeds else Outcome.STANDS,
        meaning=(
            f"worked out, without chance: mu of this pair is {least(value, mechanism.mu)}, and the claim is "
            f"{mechanism.mu:g}; the two models are {share:.3g} of the sensitivity apart"
        ),
        measure="mu",
        claimed=mechanism.mu,
        found=value,
        strength=Strength.CERTAIN,
        noticeable=f"a sensitivity of less than {share:.3g} of what it is taken for",
    )
