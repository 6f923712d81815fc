"""Release the weights of a linear head once, for any number of queries (method.md section 5; 002's
output perturbation).

Formal guarantees
    Let theta be the computed weights, a finite set of floats, and ``moves`` a bound on |theta -
    theta'| between neighbours, l2 (stability.json's ``whole``). With N standard normal in every
    coordinate, theta + sigma N for sigma >= moves / mu is mu-GDP (Dong, Roth, Su 2022, theorem 2).
    What is released is that vector rounded to a public lattice, drawn exactly (agt/numeric.py):
    post-processing. Answers computed from released weights, to however many queries, are
    post-processing too.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Self

import numpy as np
from scipy.special import ndtr

from agt.certificates.stability import bound_norms
from agt.errors import ConfigError
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.mechanism import Mu
from agt.mechanisms.weights_mechanism import NoiseLaw, ReleasedWeights, WeightsMechanism
from agt.models.linear import LinearModel
from agt.numeric import Randomness, logits_of, next_up, noisy, step_of
from agt.settings import accepting_removed, schema

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@schema
class GaussianWeights(WeightsMechanism):
    """A weights mechanism whose one release is mu-GDP.

    Attributes:
        mu: of the one release.
    """

    mu: Mu

    spends: ClassVar[type[GaussianDP]] = GaussianDP

    @classmethod
    def afford(cls, eps: float, delta: float) -> GaussianDP:
        """As ``weights_budget``."""
        return weights_budget(eps, delta)

    @property
    def guarantee(self) -> GaussianDP:
        """GaussianDP."""
        return GaussianDP(self.mu)


@schema
class ReleaseWeights(GaussianWeights):
    """A trained head's own weights, with noise on each."""

    _earlier = accepting_removed(shrink=False)

    name: ClassVar[str] = "release_weights"
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.ADDED_GAUSSIAN

    def noise(self, head: LinearModel) -> dict[str, float]:
        """The standard deviation and the lattice. Raises ConfigError as ``noise_scale``."""
        return gaussian_noise(head.moves, self.guarantee)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release."""
        return release_weights(head.trained.weight.numpy(), head.moves, self.guarantee, source)

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Exact, by ``expected_accuracy``."""
        phi = head.phi(features)
        logits = logits_of(head.trained.weight, phi)
        lengths = bound_norms(phi)

        def accuracy(mechanism: Self) -> float:
            sigma = noise_scale(head.moves, mechanism.guarantee)
            return expected_accuracy(logits, lengths, labels, sigma)

        return accuracy


@cache  # a search down to the last bit
def weights_budget(eps: float, delta: float) -> GaussianDP:
    """The largest mu whose one release is (eps, delta)-DP, rounded down.

    Raises:
        ConfigError: eps or delta is out of range.
    """
    return per_query(GaussianDP, eps, delta, 1)


def noise_scale(moves: float, guarantee: GaussianDP) -> float:
    """sigma = moves / mu, rounded up.

    Raises:
        ConfigError: ``moves`` is not a positive number.
    """
    sigma = next_up(moves / guarantee.mu) if moves > 0 else math.nan
    if not math.isfinite(sigma):
        raise ConfigError(
            f"moves = {moves!r}: give the positive bound on how far one unit moves the weights"
        )
    return sigma


def gaussian_noise(moves: float, guarantee: GaussianDP) -> dict[str, float]:
    """Return ``sigma`` of ``noise_scale`` and the lattice's ``step``.

    Raises ConfigError as there.
    """
    sigma = noise_scale(moves, guarantee)
    return {"sigma": sigma, "step": step_of(sigma)}


def release_weights(
    theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness
) -> ReleasedWeights:
    """theta + N(0, (moves / mu)^2 I), once, rounded to a public lattice.

    Args:
        theta: float64, any shape; the computed weights.
        moves: bound on how far one neighbour moves them, l2, all coordinates together.
        source: SystemRandomness for a release; anything else is a simulation.

    Raises:
        ConfigError: ``moves`` is not positive.
        UnsoundError: as ``noisy``.
    """
    noise = gaussian_noise(moves, guarantee)
    released = noisy(theta, noise["sigma"], source)
    return ReleasedWeights(released, guarantee, noise, source.simulated, ReleaseWeights.name)


def expected_accuracy(
    logits: np.ndarray, lengths: np.ndarray, labels: np.ndarray, sigma: float
) -> float:
    """Expected accuracy of labels computed from released weights, without a draw.

    The noise moves logit j of a query by sigma |phi| times a standard normal, independently over j.
    One logit: the label is wrong with probability Phi(-|f| / (sigma |phi|)) where it was right. J
    logits: the probability that logit y is greatest is E[prod_{j != y} Phi(Z + (f_y - f_j) / (sigma
    |phi|))], by Gauss-Hermite quadrature with 120 nodes.

    Args:
        logits: [n, J] of theta itself.
        lengths: [n] the norms of phi.
        labels: [n] the true classes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = logits / (sigma * np.maximum(lengths, np.finfo(float).tiny))[:, None]
    if logits.shape[1] == 1:
        return float(ndtr(np.where(labels == 1, ratio[:, 0], -ratio[:, 0])).mean())
    rows = np.arange(len(logits))
    lead = ratio[rows, labels][:, None] - ratio
    others = np.ones_like(lead, dtype=bool)
    others[rows, labels] = False
    lead = lead[others].reshape(len(logits), -1)
    right = sum(
        weight * ndtr(node + lead).prod(axis=1)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True)
        if weight > 0
    )
    return float(np.mean(right) / math.sqrt(2 * math.pi))
