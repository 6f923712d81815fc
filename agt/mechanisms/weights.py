"""Release the weights of a linear head once, for any number of queries (method.md section 5; 002's output perturbation).

Formal guarantees
    Let theta be the computed weights, a finite set of floats, and ``moves`` a bound on |theta - theta'| between neighbours,
    l2 (stability.json's ``whole``). With N standard normal in every coordinate, theta + sigma N for sigma >= moves / mu is
    mu-GDP (Dong, Roth, Su 2022, theorem 2). What is released is that vector rounded to a public lattice, drawn exactly
    (numeric.py): post-processing. Answers computed from released weights, to however many queries, are post-processing too.

Released weights drawn towards 0, block by block, by how much of them is noise (James and Stein 1961, positive part).

Formal guarantees
    Privacy. Weights that were released, public constants (sigma, the matrix that whitens the features, the width of a
    block) and nothing else go in: post-processing, whatever comes out.
    Risk. Let the n coordinates of a block be v = theta_b + noise, independent and normal with variances s_i^2, and V = sum
    s_i^2 - 2 max s_i^2 > 0: (n - 2) s^2 where they are equal. Then (1 - V / |v|^2)_+ v is nearer to theta_b than v is, in
    mean square, whatever theta_b is. By Stein's lemma the risk of (1 - a / |v|^2) v is sum s_i^2 less the mean of
    (2 a (sum s_i^2 - 2 sum s_i^2 v_i^2 / |v|^2) - a^2) / |v|^2, at least (2 a V - a^2) / |v|^2: positive for a = V.
    Where the factor is negative, 0 is better still: given every |v_i|, v_i has the sign of theta_b,i at least as often as
    not, so that v.theta_b has a mean of at least 0, and no negative multiple of v is nearer than 0.
    A rotation leaves noise of equal variances as it is: any public orthonormal basis will do. Rounding to the release's
    lattice, 2^-24 of s, makes it not quite normal, which matters for the risk alone, and by as little.

Why blocks of the public rows' principal axes: a block is drawn in by the share of noise in it. Whitening spreads what can
be told evenly over the axes and what there is to tell lies on the wide ones, so the narrow ones, mostly noise, nearly
vanish. Of features that are not whitened it lies in few coordinates of any block, and shrinking loses.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from agt.errors import ConfigError
from agt.mechanisms.composition import GaussianDP, Guarantee, per_query
from agt.mechanisms.mechanism import Mu, Need
from agt.models.features import FeatureMap
from agt.models.linear import LinearModel
from agt.numeric import Randomness, next_up, noisy, step_of
from agt.settings import schema
from agt.training.batches import check_unit_rows

BLOCK = 24  # coordinates; those left over are shared out among the blocks


def james_stein(values: np.ndarray, variances: np.ndarray | float) -> np.ndarray:
    """[..., n] the values, each block drawn towards 0; blocks too narrow to gain stay as they are.

    Args:
        values: [..., n] in an orthonormal basis, noise included.
        variances: of the noise in each coordinate, broadcast to the values.
    """
    noise, width = np.broadcast_to(variances, values.shape), values.shape[-1]
    blocks = np.array_split(np.arange(width), max(1, width // BLOCK))
    return np.concatenate([_drawn_in(values[..., b], noise[..., b]) for b in blocks], axis=-1)


def _drawn_in(values: np.ndarray, variances: np.ndarray) -> np.ndarray:
    noise = np.maximum(0.0, variances.sum(axis=-1) - 2 * variances.max(axis=-1))
    squares = (values**2).sum(axis=-1)
    share = np.maximum(0.0, squares - noise) / np.maximum(squares, np.finfo(np.float64).tiny)
    return values * share[..., None]


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Of the public rows that whitened the features, widest first.

    Attributes:
        vectors: [w, w], an orthonormal basis in columns.
    """

    vectors: np.ndarray

    @classmethod
    def of(cls, features: FeatureMap) -> "PrincipalAxes | None":
        """Those of whitened features; None where nothing whitens them, or a random map follows and the axes are lost."""
        if features.whitening is None or features.config.map != "none":
            return None
        with threadpool_limits(1, user_api="blas"):
            _, vectors = np.linalg.eigh(features.whitening)  # a falling function of the covariance: its axes, widest first
        return cls(vectors)

    def shrunk(self, weight: np.ndarray, variances: np.ndarray | float) -> np.ndarray:
        """[..., w + 1] weights, shrunk; the bias, last, stays as it is.

        Args:
            weight: [..., w + 1] released.
            variances: of the noise, along each axis ([..., w]) or the same along all.
        """
        drawn = james_stein(weight[..., :-1] @ self.vectors, variances)
        return np.concatenate([drawn @ self.vectors.T, weight[..., -1:]], axis=-1)


def answering(weight: np.ndarray, sigma: float, shrink: bool, features: FeatureMap) -> np.ndarray:
    """What answers are computed from: released weights or, where they are to be shrunk, these drawn in.

    Args:
        weight: [..., w + 1] as released.
        sigma: standard deviation of the noise in each coordinate.

    Raises:
        ConfigError: as ``shrinking_axes``.
    """
    return shrinking_axes(features).shrunk(weight, sigma**2) if shrink else weight


def shrinking_axes(features: FeatureMap) -> PrincipalAxes:
    """The axes along which weights on these features are drawn in.

    Raises:
        ConfigError: there are none.
    """
    axes = PrincipalAxes.of(features)
    if axes is None:
        raise ConfigError(
            "mechanism.shrink=true draws weights in along the axes of whitened features; with none, or with a random "
            "map, there are no axes: train with certificate.features.whiten=0.75 certificate.features.map=none, or leave "
            "mechanism.shrink out"
        )
    return axes


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
        shrink: whether answers come from these weights drawn in (``shrunk``).
    """

    weight: np.ndarray
    guarantee: Guarantee
    sigma: float
    step: float
    simulated: bool
    tilt: float = 0.0
    gram: float = 0.0
    shrink: bool = False

    @property
    def described(self) -> dict[str, float]:
        """The guarantee's parameters, and the noise, by name."""
        solved = {name: value for name, value in (("tilt", self.tilt), ("gram", self.gram)) if value}
        return {**self.guarantee.parameters, "sigma": self.sigma, "step": self.step, **solved}


@schema
class ReleaseWeights:
    """The mechanism that releases the weights, once; any number of queries is then answered from them.

    Attributes:
        mu: of the one release.
        shrink: whether answers come from the weights drawn in; what is released stays as it is.
    """

    mu: Mu
    shrink: bool = False

    name: ClassVar[str] = "release_weights"
    needs: ClassVar[Need] = "distance"  # every condition: weights depend on all of training

    @staticmethod
    def afford(eps: float, delta: float) -> GaussianDP:
        """As ``weights_budget``."""
        return weights_budget(eps, delta)

    @property
    def guarantee(self) -> GaussianDP:
        """GaussianDP."""
        return GaussianDP(self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        """What a release draws, as ``ReleasedWeights.described`` names it."""
        sigma = noise_scale(head.moves, self.guarantee)
        return {"sigma": sigma, "step": step_of(sigma)}

    def check(self, head: LinearModel) -> None:
        """Every linear head's weights can be released so; ConfigError: not all can be shrunk."""
        if self.shrink:
            shrinking_axes(head.features)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release."""
        released = release_weights(head.trained.weight.numpy(), head.moves, self.guarantee, source)
        return replace(released, shrink=self.shrink)


def rows_of(head: LinearModel, mechanism: str, unit_rows: int = 1) -> np.ndarray:
    """The records that weights are solved from anew, in the order of the head's plan, which votes never were held against.

    Raises:
        ConfigError: they are not there, more than n_max, or more than ``unit_rows`` of one unit.
    """
    units = head.problem.dataset.train.units
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
