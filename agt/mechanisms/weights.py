"""Release the weights of a linear head once, for any number of queries (method.md section 5; 002's output perturbation).

Formal guarantees
    Let theta be the computed weights, a finite set of floats, and ``moves`` a bound on |theta - theta'| between neighbours,
    l2 (stability.json's ``whole``). With N standard normal in every coordinate, theta + sigma N for sigma >= moves / mu is
    mu-GDP (Dong, Roth, Su 2022, theorem 2). What is released is that vector rounded to a public lattice, drawn exactly
    (agt/numeric.py): post-processing. Answers computed from released weights, to however many
    queries, are post-processing too.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from agt.errors import ConfigError
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import GaussianDP, Guarantee
from agt.mechanisms.mechanism import Mu, Need
from agt.models.linear import LinearModel
from agt.numeric import Randomness, next_up, noisy, step_of
from agt.settings import accepting_removed, schema
from agt.training.batches import check_unit_rows

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


@dataclass(frozen=True)
class ReleasedWeights:
    """Weights that may be published.

    Attributes:
        weight: as theta, float64, multiples of ``step``.
        guarantee: of the release and of everything computed from it.
        sigma: standard deviation of the noise in each coordinate.
        step: the lattice.
        simulated: drawn from a seeded generator: no guarantee.
        tilt: standard deviation of each coordinate of the random linear term that they were solved with (objective.py); 0:
            there was none.
        gram: that of the noise on the records' second moments that they were solved from, ``sigma`` being that of the noise
            on the sums for each class (statistics.py); 0: there were none.
    """

    weight: np.ndarray
    guarantee: Guarantee
    sigma: float
    step: float
    simulated: bool
    tilt: float = 0.0
    gram: float = 0.0

    @property
    def described(self) -> dict[str, float]:
        """The guarantee's parameters, and the noise, by name."""
        solved = {name: value for name, value in (("tilt", self.tilt), ("gram", self.gram)) if value}
        return {**self.guarantee.parameters, "sigma": self.sigma, "step": self.step, **solved}


@schema
class GaussianWeights:
    """A mechanism that releases weights, once; any number of queries is then answered from them.

    Attributes:
        mu: of the one release.
    """

    mu: Mu

    needs: ClassVar[Need] = "distance"  # every condition: weights depend on all of training

    @staticmethod
    def afford(eps: float, delta: float) -> GaussianDP:
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

    def noise(self, head: LinearModel) -> dict[str, float]:
        """What a release draws, as ``ReleasedWeights.described`` names it."""
        sigma = noise_scale(head.moves, self.guarantee)
        return {"sigma": sigma, "step": step_of(sigma)}

    def check(self, head: LinearModel) -> None:
        """Every linear head's weights can be released so."""

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release."""
        return release_weights(head.trained.weight.numpy(), head.moves, self.guarantee, source)


def rows_of(head: LinearModel, mechanism: str, unit_rows: int = 1) -> np.ndarray:
    """The records that weights are solved from anew, in the order of the head's plan, which votes never were held against.

    Raises:
        ConfigError: they are not there, more than n_max, or more than ``unit_rows`` of one unit.
        DataError: memory-mapped records were edited after training.
    """
    units = head.problem.dataset.train.units
    head.problem.dataset.check_unchanged()
    if not len(units):
        raise ConfigError(
            f"mechanism={mechanism} solves the problem anew and needs the training records, which this model was read back "
            "without: release from the model that was fitted, or by agt predict from its run"
        )
    check_unit_rows(units, unit_rows)
    return np.concatenate(list(replace(head.plan, epochs=1).batches(units)))


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
        raise ConfigError(f"moves = {moves!r}: give the positive bound on how far one unit moves the weights")
    return sigma


def release_weights(theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness) -> ReleasedWeights:
    """theta + N(0, (moves / mu)^2 I), once, rounded to a public lattice.

    Args:
        theta: float64, any shape; the computed weights.
        moves: bound on how far one neighbour moves them, l2, all coordinates together.
        source: SystemRandomness for a release; anything else is a simulation.

    Raises:
        ConfigError: ``moves`` is not positive.
        UnsoundError: as ``noisy``.
    """
    sigma = noise_scale(moves, guarantee)
    released = noisy(theta, sigma, source)
    return ReleasedWeights(released, guarantee, sigma, step_of(sigma), source.simulated)


def expected_accuracy(logits: np.ndarray, lengths: np.ndarray, labels: np.ndarray, sigma: float) -> float:
    """Expected accuracy of labels computed from released weights, without a draw.

    The noise moves logit j of a query by sigma |phi| times a standard normal, independently over j. One logit: the label is
    wrong with probability Phi(-|f| / (sigma |phi|)) where it was right. J logits: the probability that logit y is greatest
    is E[prod_{j != y} Phi(Z + (f_y - f_j) / (sigma |phi|))], by Gauss-Hermite quadrature with 120 nodes.

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
        weight * ndtr(node + lead).prod(axis=1) for node, weight in zip(_NODES, _WEIGHTS, strict=True) if weight > 0
    )
    return float(np.mean(right) / math.sqrt(2 * math.pi))
