"""The class of most votes of an ensemble, each count with noise of its own (PATE; 001). Any number
of classes.

Each docstring proves the guarantee of the closed form. The tables that are sampled from, of two
classes, hold the guarantee by construction, whatever the closed form (mechanism.py).
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field
from scipy.special import ndtr

from agt.errors import ConfigError
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.mechanism import Mechanism, Mu, Need, PureMechanism, ThresholdTable, rule_of
from agt.mechanisms.quantile import noisy_integers
from agt.numeric import UNIT, Randomness, noisy
from agt.settings import keyword_schema


@keyword_schema
class _NoisyVotes(Mechanism):
    """The class of most votes, each count with noise of its own, ties to the smaller class. Needs
    an ensemble.

    The evidence is what ``VoteCertificates.tally`` has: |n1 - n0| [n] of two classes, the nominal
    label being 1 if n1 > n0, else 0; of more, the counts [n, C].

    Attributes:
        moves: m, how many members' votes one k can change, at least; the run's relation raises it
            (``covering``).

    Formal guarantees
        A record is in one shard, so an edit of one record changes one vote; a relation says how
        many members one k can change (``Relation.touches``), m at most.
        Two classes. n1 - n0 moves by up to m steps of 2 between neighbours and keeps its parity
        (the number of members is public). For each parity |n1 - n0| // 2 is a distance in the sense
        of mechanism.py, with a table of its own of m steps; for an even number of members the label
        differs between n1 - n0 = 0 and 2 rather than across 0, and p(0) = 1/2 makes that a step of
        the table like any other. Where m steps are taken, any vote counts on the way do. More. A
        changed vote adds e_b - e_a to the counts, of length 2 in l1 and sqrt 2 in l2; m of them at
        most 2 m and m sqrt 2. Whatever is computed from noisy counts alone, such as the class of
        the greatest, has their guarantee.
    """

    moves: Annotated[int, Field(ge=1, le=2)] = 1

    needs: ClassVar[Need] = "votes"
    any_classes: ClassVar[bool] = True

    def covering(self, touches: int) -> Self:
        """With as much noise as covers so many votes."""
        return replace(self, moves=max(self.moves, touches))

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Counts of any shape with noise."""
        raise NotImplementedError

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """P(Z <= z), or P(Z < z), of one count's noise, z being one of its values plus an
        integer.
        """
        raise NotImplementedError

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of one count's noise, and their weights: a rule for expectations."""
        raise NotImplementedError

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        farthest: int | None = None,
    ) -> np.ndarray:
        """[n] int64.

        Arguments as of any mechanism; of more than two classes ``distances`` are the counts [n, C].
        """
        if self.classes == 2:
            return super().release(predictions, distances, source, farthest)
        return self._noisy(self._counts(distances), source).argmax(axis=1)

    def expected_accuracy(
        self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray
    ) -> float:
        """Of two classes exact; of more to about 10^-3, as an integral over the noise of the
        right class's count.
        """
        if self.classes == 2:
            return super().expected_accuracy(predictions, distances, labels)
        counts, (nodes, weights), total = self._counts(distances), self._nodes, 0.0
        for start in range(0, len(counts), _PIECE):
            some, right = counts[start : start + _PIECE], labels[start : start + _PIECE, None]
            ahead = np.take_along_axis(some, right, axis=1) - some
            others = np.arange(self.classes)
            chance = self._below(ahead[:, :, None] + nodes, (others < right)[:, :, None])
            chance[(others == right)] = 1.0
            total += float((chance.prod(axis=1) @ weights).sum())
        return total / len(counts)

    def _counts(self, counts: np.ndarray) -> np.ndarray:
        shape = (len(counts), self.classes)
        if counts.dtype.kind not in "iu" or counts.shape != shape or counts.min(initial=0) < 0:
            raise ConfigError(
                f"mechanism={self.name}: expected votes for each of {self.classes} classes, "
                f"integers of shape {shape}; got "
                f"{counts.dtype} of shape {counts.shape}"
            )
        return counts

    def _thresholds(self, evidence: int) -> int:
        step, odd = divmod(evidence, 2)
        return self._tables[odd].upto(step)[step]

    @cached_property
    def _tables(self) -> tuple[ThresholdTable, ThresholdTable]:
        """Of even and of odd gaps."""

        def table(odd: int) -> ThresholdTable:
            return ThresholdTable(
                rule_of(self.guarantee, 2, self.moves), lambda j: self._wish(2 * j + odd)
            )

        return table(0), table(1)


_PIECE = 256  # queries whose expectation is taken at once
_NODES = 1024  # values of the noise at which it is


@keyword_schema
class NoisyArgmax(_NoisyVotes, PureMechanism):
    """Votes with Laplace noise of scale 2 m / eps on each count (PATE; 001 equation 7): eps-DP.

    Of two classes p = exp(-x)(1 + x/2)/2, x = eps |n1-n0| / (2 m): the tail of a difference of two
    Laplace variables. Of more the noise is two-sided geometric, an integer: P(z) proportional to
    exp(-eps |z| / (2 m)), drawn exactly. Counts that are 2 m apart in l1 give each noisy vector of
    counts with probabilities whose ratio is at most exp(eps).
    """

    name: ClassVar[str] = "noisy_argmax"

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        x = self.eps / (2 * self.moves) * distance
        return np.exp(-x) * (1 + x / 2) / 2

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        rows = counts.reshape(-1, counts.shape[-1]).tolist()
        noised = [noisy_integers(row, self.eps, source, 2 * self.moves) for row in rows]
        return np.array(noised, dtype=np.int64).reshape(counts.shape)

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        z, rate = z - strictly, self.eps / (2 * self.moves)
        tail = np.exp(-rate * np.where(z < 0, -z, z + 1)) / (1 + math.exp(-rate))
        return np.where(z < 0, tail, 1 - tail)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        rate = self.eps / (2 * self.moves)
        if 2 * _EDGE / rate < _NODES:  # every value that is likelier than exp(-EDGE)
            z = np.arange(-math.ceil(_EDGE / rate), math.ceil(_EDGE / rate) + 1)
            return z, np.exp(-rate * abs(z)) * math.tanh(rate / 2)
        side = -np.log((np.arange(_NODES // 2) + 0.5) * 2 / _NODES) / rate  # equally likely values
        return np.rint(np.concatenate([-side, side])), np.full(_NODES, 1 / _NODES)


_EDGE = 40.0  # in units of the noise: beyond it lies less than 10^-17


@keyword_schema
class GaussianArgmax(_NoisyVotes):
    """Votes with Gaussian noise of standard deviation m sqrt(2) / mu on each count: mu-GDP, which
    adds up without loss.

    Of two classes p = Phi(-mu |n1-n0| / (2 m)), the tail of a difference of two of them. Of more
    the noise is a real Gaussian, drawn exactly and rounded with its count to a public lattice
    (agt/numeric.py, ``noisy``). Counts m sqrt(2) apart in l2 are those of a test between N(0, 1)
    and N(mu, 1) (Dong, Roth and Su 2022, theorem 2); the standard deviation is rounded up, and mu
    is the double or the decimal that it prints as, whichever is less.
    """

    mu: Mu

    name: ClassVar[str] = "gaussian_argmax"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return ndtr(-self.mu / (2 * self.moves) * distance)

    @property
    def _sigma(self) -> float:
        # four roundings, and the decimal's
        return self.moves * math.sqrt(2) / self.mu * (1 + 8 * UNIT)

    def _noisy(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        return noisy(counts.astype(np.float64), self._sigma, source)

    def _below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        return ndtr(z / self._sigma)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        x = np.linspace(-9, 9, 181)
        weights = np.exp(-x * x / 2)
        return x * self._sigma, weights / weights.sum()
