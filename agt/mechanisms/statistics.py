"""Release weights for any number of classes, solved from noisy sums over the records (method.md section 15).

    mechanism = NoisyStatistics(mu)            or NoisyStatistics(**NoisyStatistics.afford(eps, delta).parameters)
    prepare_weights(model, mechanism).draw(SystemRandomness())        weights [classes, d]

With phi_i the public features of a record, |phi_i| <= 1, and y_i its label as one of C unit vectors, the sums are
G = sum phi_i phi_i^T and S = sum phi_i y_i^T. Each gets Gaussian noise once; ridge regression is solved from them.

Formal guarantees
    Whole numbers. phi_i is rounded towards 0 to multiples of 1/N = 2^-14, coordinate by coordinate: q_i, which the record
    alone decides (models/features.py; maps known up to a slack only are refused), and |q_i| <= |phi_i| <= 1. Products are
    multiples of 2^-28, and sums of 2^25 of them are below 2^53 such: float64 holds G and S exactly, in whatever order they
    are added up. So what follows is about them, and no rounding. Lengths are Frobenius norms; r = relation.unit_rows.
    add_remove. A unit has at most r rows, each of which adds q q^T, of length |q|^2 <= 1, and q y^T, of length |q| <= 1: G
    and S move by at most r.
    substitute. A unit's sums A, P give way to another's A', P'. |A - A'|^2 = |A|^2 + |A'|^2 - 2 <A, A'> <= 2 r^2, since
    <A, A'> = sum (q.q')^2 >= 0 over the pairs of a row that goes and one that comes. <P, P'> is the sum of q.q' over those
    of equal labels. Where the last coordinate is the constant b, q.q' >= b^2 - (1 - b^2), so that |P - P'|^2 <= r^2 (2 + 2
    max(0, 1 - 2 b^2)); with b = 0 that is (2 r)^2. It is not 2 r^2: two records of one label may be opposite.
    Other relations are refused: one-sided ones as ever; of flip, G is not protected at all.
    Noise. N(0, s^2) on each coordinate of G in the orthonormal basis of symmetric matrices: s on the diagonal and s/sqrt 2
    on each number above it, which stands below it too, drawn once; and N(0, t^2) on each number of S. For the vector of
    both, in units of its noise, neighbours are at most mu apart:
        (move of G / s)^2 + (move of S / t)^2 <= (1 - share) mu^2 + share mu^2,
    so that all of it is mu-GDP (Dong, Roth, Su 2022, theorem 2). ``noisy`` draws exactly, on a public lattice (numeric.py).
    Everything after is post-processing: eigenvalues below 0 to 0, a strength from public constants alone, a linear solve,
    rounding of the weights to the lattice of t, any number of answers.
    Narrower. Where d is above ``width`` public random directions R (a seed, integers, exact products) bring it down, and
    q is that of (R v, b) at a length of at most 1, by a scale of the record's own. What is solved for is carried back to
    phi: labels are the argmax of weights times phi, which no positive scale of a record changes. b is no constant then.

Source: Wang (2018), AdaSSP. The sensitivities are ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.composition import GaussianDP
from agt.mechanisms.mechanism import Mu, Need
from agt.mechanisms.weights import ReleasedWeights, rows_of, weights_budget
from agt.models.features import bring, integers, product
from agt.models.linear import LinearModel
from agt.numeric import UNIT, Randomness, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import RelationConfig, schema

SHARE = 0.5  # of mu^2, for S
STRENGTH = 0.5  # of the ridge, times s sqrt d; the largest eigenvalue of the noise on G is near sqrt 2 s sqrt d
WIDEST = 2048  # that sums are kept of: exact noise takes some 50 microseconds for each of d^2 / 2 numbers
NARROW = 400  # what wider features are brought down to
_BLOCK = 4096
_GRAIN = 14  # features are multiples of 2^-14 where sums are taken
_ROWS = 2**25  # records whose sums float64 holds
_SHORTER = 1 - 2.0**-30  # of a length brought to 1: more than the roundings on the way


@dataclass(frozen=True)
class Noises:
    """Standard deviations of what one release draws, all of it public.

    Attributes:
        gram: s, of G's diagonal; s/sqrt 2 of what is off it.
        sums: t, of each number of S.
    """

    gram: float
    sums: float

    @classmethod
    def of(cls, moves: tuple[float, float], mu: float, share: float = SHARE) -> "Noises":
        """The least noises for sums that move by so much (``sensitivities``), rounded up."""
        gram, sums = moves
        up = 1 + 16 * UNIT  # a few roundings here, and that of mu's decimal
        return cls(gram / (mu * math.sqrt(1 - share)) * up, sums / (mu * math.sqrt(share)) * up)


@dataclass(frozen=True)
class Statistics:
    """G [d, d], symmetric, and S [d, C], float64."""

    gram: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(cls, phi: np.ndarray, labels: np.ndarray, classes: int) -> "Statistics":
        """Of records' features [n, d], each of norm at most 1, and labels [n]: exact sums of whole numbers (above)."""
        width = phi.shape[1]
        gram, sums = np.zeros((width, width)), np.zeros((width, classes))
        for start in range(0, len(phi), _BLOCK):
            rows = slice(start, start + _BLOCK)
            q = whole(phi[rows])
            gram += q.T @ q
            sums += q.T @ np.eye(classes)[labels[rows]]
        return cls(gram, sums)

    def noisy(self, noises: Noises, draw: Callable[[np.ndarray, float], np.ndarray]) -> "Statistics":
        """Both with noise, which may be published.

        Args:
            draw: (values, sigma) -> the values with independent noise.
        """
        off = np.triu_indices(len(self.gram), 1)
        gram = np.diag(draw(np.diag(self.gram), noises.gram))
        gram[off] = draw(self.gram[off], noises.gram * math.sqrt(0.5) * (1 + 4 * UNIT))
        gram.T[off] = gram[off]
        return Statistics(gram, draw(self.sums, noises.sums))

    def solved(self, noises: Noises) -> np.ndarray:
        """[C, d] the weights of ridge regression on what was published."""
        values, vectors = np.linalg.eigh(self.gram)
        values = np.maximum(values, 0) + STRENGTH * noises.gram * math.sqrt(len(values))
        weight: np.ndarray = (vectors @ ((vectors.T @ self.sums) / values[:, None])).T
        return weight


def whole(phi: np.ndarray) -> np.ndarray:
    """[n, d] float64: features rounded towards 0, so that no row gets longer."""
    return np.ldexp(np.trunc(np.ldexp(phi.astype(np.float64), _GRAIN)), -_GRAIN)


def sensitivities(relation: RelationConfig, bias: float) -> tuple[float, float]:
    """How far one k moves (G, S).

    Args:
        bias: b, the last coordinate of every record's features; 0: it is no constant.

    Raises:
        ConfigError: a relation that nothing is proved for.
    """
    rows = relation.unit_rows
    if relation.name not in ("add_remove", "substitute"):
        raise ConfigError(
            f"mechanism={NoisyStatistics.name}: relation={relation.name}: what it moves sums by is proved for add_remove "
            "and substitute; or use mechanism=release_weights"
        )
    if RELATIONS[relation.name].moved == 1:
        return float(rows), float(rows)
    return rows * math.sqrt(2), rows * math.sqrt(2 + 2 * max(0.0, 1 - 2 * bias**2))


@schema
class NoisyStatistics:
    """The mechanism that solves for weights from the records' sums with noise, once; any number of classes.

    Attributes:
        mu: of the one release.
        width: features beyond it are brought down to so many by public random directions; null: to
            ``NARROW``, where they are more than ``WIDEST``.
        seed: public, of those directions.
    """

    mu: Mu
    width: Annotated[int, Field(ge=2, le=WIDEST)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    name: ClassVar[str] = "noisy_statistics"
    needs: ClassVar[Need] = "distance"  # every condition: weights depend on all of training

    @staticmethod
    def afford(eps: float, delta: float) -> GaussianDP:
        """As ``weights_budget``."""
        return weights_budget(eps, delta)

    @property
    def guarantee(self) -> GaussianDP:
        """GaussianDP."""
        return GaussianDP(self.mu)

    def check(self, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers a release from this head, or its records are not there."""
        most = head.plan.n_max * head.plan.count
        if head.settings.certificate.removable:
            raise ConfigError(
                f"mechanism={self.name}: certificate=removal has noise of its own: train with certificate=erm"
            )
        if head.features.slack or most > _ROWS:
            raise ConfigError(
                f"mechanism={self.name}: sums are exact over at most {_ROWS:,} records, of features that each record alone "
                f"decides to the last bit: there may be {most:,}, with certificate.features.map={head.features.config.map}"
            )
        self.noises(head)
        rows_of(head, self.name, head.settings.relation.unit_rows)

    def noises(self, head: LinearModel) -> Noises:
        """What a release draws. Raises ConfigError as ``sensitivities``."""
        bias = 0.0
        if self._directions(head) is None:
            bias = float(whole(head.phi(np.zeros((1, head.features.width))))[0, -1])
        return Noises.of(sensitivities(head.settings.relation, bias), self.mu)

    def noise(self, head: LinearModel) -> dict[str, float]:
        """The same as ``ReleasedWeights.described`` names it."""
        noises = self.noises(head)
        return {"sigma": noises.sums, "step": step_of(noises.sums), "gram": noises.gram}

    def statistics(self, head: LinearModel) -> Statistics:
        """G and S of a head's records: private. Raises as ``rows_of``."""
        seen = head.problem.dataset.train.take(rows_of(head, self.name, head.settings.relation.unit_rows))
        directions, phi = self._directions(head), head.over(seen.features)
        if directions is not None:
            v = np.ascontiguousarray(phi[:, :-1], dtype=np.float64)
            phi = np.concatenate([product(v, directions) / _length(directions), phi[:, -1:]], axis=1)
            phi = bring(phi, 1.0, _SHORTER)
        return Statistics.of(phi, seen.labels, head.problem.classes)

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release."""
        noises = self.noises(head)
        weight = self.carried(head, self.statistics(head).noisy(noises, partial(noisy, source=source)).solved(noises))
        step = step_of(noises.sums)
        weight = np.rint(weight / step) * step
        return ReleasedWeights(weight, self.guarantee, noises.sums, step, source.simulated, gram=noises.gram)

    def carried(self, head: LinearModel, weight: np.ndarray) -> np.ndarray:
        """[C, d] weights on phi, of those on what sums were taken of."""
        directions = self._directions(head)
        if directions is None:
            return weight
        return np.concatenate([weight[:, :-1] @ directions.T / _length(directions), weight[:, -1:]], axis=1)

    def _directions(self, head: LinearModel) -> np.ndarray | None:
        """[d - 1, width - 1] integers that features but the bias are multiplied by; None: they are few enough."""
        wide = head.features.outputs
        width = self.width or (wide if wide <= WIDEST else NARROW)
        if wide <= width:
            return None
        return integers(np.random.default_rng(self.seed).standard_normal((wide - 1, width - 1)))


def _length(directions: np.ndarray) -> float:
    """What a vector becomes longer by, in the mean over directions of the same kind."""
    return float(np.linalg.norm(directions) / math.sqrt(len(directions)))
