"""Release the weights of a linear head once, for any number of queries.

    release_weights(theta, sensitivity, GaussianDP(0.5), SystemRandomness()).weight

Source: 002's output perturbation; method.md section 5.
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

_QUADRATURE_NODES, _QUADRATURE_WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@schema
class GaussianWeights(WeightsMechanism):
    """A weights mechanism whose one release is mu-GDP; the base of several.

    Attributes:
        mu: of the one release.
    """

    mu: Mu

    spends: ClassVar[type[GaussianDP]] = GaussianDP

    @classmethod
    def afford(cls, eps: float, delta: float) -> GaussianDP:
        """Return the largest mu whose one release is (eps, delta)-DP, rounded down.

        Raises:
            ConfigError: eps or delta is out of range.
        """
        return weights_budget(eps, delta)

    @property
    def guarantee(self) -> GaussianDP:
        """The guarantee of the one release."""
        return GaussianDP(self.mu)


@schema
class ReleaseWeights(GaussianWeights):
    """A trained head's own weights, with Gaussian noise on each.

    Formal guarantees
        The release is mu-GDP, and so is everything that is computed from it (``release_weights``).
    """

    _earlier = accepting_removed(shrink=False)

    name: ClassVar[str] = "release_weights"
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.ADDED_GAUSSIAN

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the standard deviation ``sigma`` and the lattice's ``step``.

        Raises:
            ConfigError: the head has no positive bound on how far one unit moves its weights.
        """
        return gaussian_noise(head.l2_sensitivity, self.guarantee)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release the head's weights, which spends ``guarantee`` once.

        Args:
            head: one that ``check`` takes.
            source: SystemRandomness for a release; anything else is a simulation.

        Raises:
            UnsoundError: a weight is not finite: nothing is released.
        """
        return release_weights(
            head.trained.weight.numpy(), head.l2_sensitivity, self.guarantee, source
        )

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return the function that gives a mechanism's expected accuracy, which is exact.

        Args:
            head: one that ``check_head`` takes.
            features: [n, ...] queries, as the head takes them.
            labels: [n] their true labels.
        """
        phi = head.phi(features)
        logits = logits_of(head.trained.weight, phi)
        lengths = bound_norms(phi)

        def accuracy(mechanism: Self) -> float:
            sigma = noise_scale(head.l2_sensitivity, mechanism.guarantee)
            return expected_accuracy(logits, lengths, labels, sigma)

        return accuracy


@cache  # a search down to the last bit
def weights_budget(eps: float, delta: float) -> GaussianDP:
    """Return the largest mu whose one release is (eps, delta)-DP, rounded down.

    Raises:
        ConfigError: eps or delta is out of range.
    """
    return per_query(GaussianDP, eps, delta, 1)


def noise_scale(sensitivity: float, guarantee: GaussianDP) -> float:
    """Return the standard deviation of the noise, sensitivity / mu, rounded up.

    Args:
        sensitivity: bound on how far one neighbour moves the weights, l2; above 0.
        guarantee: of the release.

    Raises:
        ConfigError: the sensitivity is not a positive number.
    """
    sigma = next_up(sensitivity / guarantee.mu) if sensitivity > 0 else math.nan
    if not math.isfinite(sigma):
        raise ConfigError(
            f"sensitivity = {sensitivity!r}: give a positive bound on how far one unit "
            "(person) moves the weights"
        )
    return sigma


def gaussian_noise(sensitivity: float, guarantee: GaussianDP) -> dict[str, float]:
    """Return ``sigma``, the standard deviation of the noise, and ``step``, of the lattice.

    Args:
        sensitivity: bound on how far one neighbour moves the weights, l2; above 0.
        guarantee: of the release.

    Raises:
        ConfigError: the sensitivity is not a positive number.
    """
    sigma = noise_scale(sensitivity, guarantee)
    return {"sigma": sigma, "step": step_of(sigma)}


def release_weights(
    theta: np.ndarray, sensitivity: float, guarantee: GaussianDP, source: Randomness
) -> ReleasedWeights:
    """Release theta + N(0, (sensitivity / mu)^2 I), rounded to a public lattice.

    Args:
        theta: [J, d] float64, the computed weights.
        sensitivity: bound on how far one neighbour moves them, l2, all coordinates together.
        guarantee: of the release, which this spends once.
        source: SystemRandomness for a release; anything else is a simulation.

    Raises:
        ConfigError: the sensitivity is not positive.
        UnsoundError: a weight is not finite, or beyond all numbers in use.

    Formal guarantees
        - The release is mu-GDP (Dong, Roth and Su 2022, theorem 2). The noise is drawn exactly, as
          a real number; rounding it to the lattice is post-processing (``agt.numeric.noisy``).
        - Answers computed from released weights, to however many queries, are post-processing too.
    """
    noise = gaussian_noise(sensitivity, guarantee)
    released = noisy(theta, noise["sigma"], source)
    return ReleasedWeights(released, guarantee, noise, source.simulated, ReleaseWeights.name)


def expected_accuracy(
    logits: np.ndarray, lengths: np.ndarray, labels: np.ndarray, sigma: float
) -> float:
    """Return the expected accuracy of labels from released weights, without a draw.

    The noise moves logit j of a query by sigma |phi| times a standard normal, independently over j.
    Of one logit f, the label is right with probability Phi(+-f / (sigma |phi|)). Of J logits, logit
    y is the greatest with probability E[prod_{j != y} Phi(Z + (f_y - f_j) / (sigma |phi|))], which
    is computed by Gauss-Hermite quadrature with 120 nodes.

    Args:
        logits: [n, J] of the weights without noise.
        lengths: [n] the norms of the queries' features phi.
        labels: [n] the true classes.
        sigma: the standard deviation of the noise on each weight.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        deviations = sigma * np.maximum(lengths, np.finfo(float).tiny)
        ratio = logits / deviations[:, None]
    if logits.shape[1] == 1:
        signed = np.where(labels == 1, ratio[:, 0], -ratio[:, 0])
        return float(ndtr(signed).mean())
    rows = np.arange(len(logits))
    lead = ratio[rows, labels][:, None] - ratio
    is_other = np.ones_like(lead, dtype=bool)
    is_other[rows, labels] = False
    lead_over_others = lead[is_other].reshape(len(logits), -1)
    right = sum(
        weight * ndtr(node + lead_over_others).prod(axis=1)
        for node, weight in zip(_QUADRATURE_NODES, _QUADRATURE_WEIGHTS, strict=True)
        if weight > 0
    )
    return float(np.mean(right) / math.sqrt(2 * math.pi))
