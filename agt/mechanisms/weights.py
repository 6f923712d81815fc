"""Release the weights of a linear head with Gaussian noise, once, for any number of queries.

    release_weights(theta, sensitivity, GaussianDP(0.5), SystemRandomness()).weight

Source: output perturbation (Chaudhuri, Monteleoni, Sarwate 2011; 002 in docs/bibliography.md).
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Self

import numpy as np
from scipy.special import ndtr

from agt.certificates.stability import bound_norms
from agt.errors import ConfigError
from agt.mechanism_settings import GaussianWeightsSettings, ReleaseWeightsSettings
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.weights_mechanism import ReleasedWeights, WeightsMechanism
from agt.models.linear import LinearModel
from agt.numeric import Randomness, logits_of, next_up, noisy, step_of
from agt.settings import schema

_QUADRATURE_NODES, _QUADRATURE_WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@schema
class GaussianWeights(GaussianWeightsSettings, WeightsMechanism):
    """Base class of the mechanisms whose one release of weights is mu-GDP.

    Attributes:
        mu: parameter of Gaussian differential privacy of the one release, above 0.
    """

    spends = GaussianDP

    @classmethod
    def largest_guarantee(cls, eps: float, delta: float) -> GaussianDP:
        """Return the largest mu-GDP guarantee whose one release is (eps, delta)-DP, rounded down.

        Raises:
            ConfigError: eps or delta is out of range.
        """
        return weights_budget(eps, delta)

    @property
    def guarantee(self) -> GaussianDP:
        """The mu-GDP guarantee of the one release."""
        return GaussianDP(self.mu)


@schema
class ReleaseWeights(ReleaseWeightsSettings, GaussianWeights):
    """Releases a trained head's own weights with Gaussian noise on each.

    Formal guarantees:
        - The release is mu-GDP, and so is everything that is computed from it
          (``release_weights``).
    """

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the noise's standard deviation ``sigma`` and its lattice's ``step``.

        Raises:
            ConfigError: the head has no positive bound on how far one unit moves its weights.
        """
        return gaussian_noise(head.l2_sensitivity, self.guarantee)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release the head's weights, which spends ``guarantee`` once.

        Args:
            head: a linear head (the trained layer) that ``check`` accepts.
            source: SystemRandomness for a release. Anything else is a simulation, without a
                guarantee.

        Raises:
            UnsoundError: a weight is NaN or infinite. Then nothing is released.
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
        """Return a function that computes a mechanism's exact expected accuracy on these queries.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            features: [n, ...] queries, in the form that the head takes.
            labels: [n] the true labels of the queries.
        """
        phi = head.phi(features)
        logits = logits_of(head.trained.weight, phi)
        lengths = bound_norms(phi)

        def accuracy(mechanism: Self) -> float:
            """Return the exact expected accuracy of releases by one mechanism."""
            sigma = noise_scale(head.l2_sensitivity, mechanism.guarantee)
            return expected_accuracy(logits, lengths, labels, sigma)

        return accuracy


@cache  # because the search for mu, down to the last bit, takes time
def weights_budget(eps: float, delta: float) -> GaussianDP:
    """Return the largest mu-GDP guarantee whose one release is (eps, delta)-DP, rounded down.

    Raises:
        ConfigError: eps or delta is out of range.
    """
    return per_query(GaussianDP, eps, delta, 1)


def noise_scale(sensitivity: float, guarantee: GaussianDP) -> float:
    """Return the standard deviation of the noise that a release needs, rounded up.

    It is sensitivity / mu.

    Args:
        sensitivity: bound on the l2 distance between the weights of two neighbouring datasets;
            above 0.
        guarantee: the mu-GDP guarantee of the release.

    Raises:
        ConfigError: the sensitivity is not a positive number.
    """
    sigma = math.nan  # for a sensitivity of 0 or NaN, which is refused below
    if sensitivity > 0:
        sigma = next_up(sensitivity / guarantee.mu)
    if not math.isfinite(sigma):
        raise ConfigError(
            f"sensitivity = {sensitivity!r}: give a positive and finite bound on how far one "
            "unit (person) moves the weights"
        )
    return sigma


def gaussian_noise(sensitivity: float, guarantee: GaussianDP) -> dict[str, float]:
    """Return the noise's standard deviation ``sigma`` and the ``step`` of the lattice of releases.

    Args:
        sensitivity: bound on the l2 distance between the weights of two neighbouring datasets;
            above 0.
        guarantee: the mu-GDP guarantee of the release.

    Raises:
        ConfigError: the sensitivity is not a positive number.
    """
    sigma = noise_scale(sensitivity, guarantee)
    return {"sigma": sigma, "step": step_of(sigma)}


def release_weights(
    theta: np.ndarray, sensitivity: float, guarantee: GaussianDP, source: Randomness
) -> ReleasedWeights:
    """Release weights with Gaussian noise of standard deviation sensitivity / mu on each.

    The result is rounded to a public lattice.

    Args:
        theta: [J, d] float64, the computed weights.
        sensitivity: bound on the l2 distance between the weights of two neighbouring datasets, over
            all J d numbers together; above 0.
        guarantee: the mu-GDP guarantee of the release, which this call spends once.
        source: SystemRandomness for a release. Anything else is a simulation, without a guarantee.

    Raises:
        ConfigError: the sensitivity is not a positive number.
        UnsoundError: a weight is NaN, infinite, or too large for the lattice.

    Formal guarantees:
        - The release is mu-GDP (Dong, Roth and Su 2022, theorem 2). The noise is drawn exactly, as
          a real number, and rounding to the lattice is post-processing (``agt.numeric.noisy``).
        - Answers that are computed from released weights are post-processing, too, for any number
          of queries.
    """
    noise = gaussian_noise(sensitivity, guarantee)
    released = noisy(theta, noise["sigma"], source)
    return ReleasedWeights(released, guarantee, noise, source.simulated, ReleaseWeights.name)


def expected_accuracy(
    logits: np.ndarray, lengths: np.ndarray, labels: np.ndarray, sigma: float
) -> float:
    """Return the expected accuracy of labels from weights with Gaussian noise, without drawing any.

    Noise of standard deviation sigma on each weight adds to a query's logits independent normal
    noise of standard deviation sigma |phi|. With one logit f, the label is right with probability
    Phi(+-f / (sigma |phi|)). With J logits, the true class y has the largest with probability
    E[prod_{j != y} Phi(Z + (f_y - f_j) / (sigma |phi|))] for a standard normal Z, which is computed
    by Gauss-Hermite quadrature with 120 nodes.

    Args:
        logits: [n, J] of the weights without noise; J is 1 for two classes.
        lengths: [n] the l2 norms |phi| of the queries' features.
        labels: [n] the true classes, from 0.
        sigma: the standard deviation of the noise on each weight.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        # A query of length 0 gets a tiny positive deviation instead of 0, to divide by.
        deviations = sigma * np.maximum(lengths, np.finfo(float).tiny)
        ratio = logits / deviations[:, None]
    if logits.shape[1] == 1:
        # A positive logit gives label 1. ``signed`` is positive where the true label is given.
        signed = np.where(labels == 1, ratio[:, 0], -ratio[:, 0])
        return float(ndtr(signed).mean())
    rows = np.arange(len(logits))
    lead = ratio[rows, labels][:, None] - ratio  # [n, J] of the true class over each class
    is_other = np.ones_like(lead, dtype=bool)
    is_other[rows, labels] = False
    lead_over_others = lead[is_other].reshape(len(logits), -1)  # [n, J - 1]
    integrals = sum(
        weight * ndtr(node + lead_over_others).prod(axis=1)
        for node, weight in zip(_QUADRATURE_NODES, _QUADRATURE_WEIGHTS, strict=True)
        if weight > 0  # a weight far out may underflow to 0 and adds nothing
    )
    # The quadrature's weight function is exp(-z^2 / 2), without the factor of the normal density.
    return float(np.mean(integrals) / math.sqrt(2 * math.pi))
