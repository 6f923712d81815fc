"""Released weights drawn towards 0, block by block, by how much of them is noise (James and Stein 1961, positive part).

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

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from agt.errors import ConfigError
from agt.models.features import FeatureMap

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
