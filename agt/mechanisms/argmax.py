"""The class of most votes of an ensemble, each count with noise of its own (PATE; 001).

For any number of classes. Of two, labels are sampled from tables that are private by construction
(docs/proofs/tables.md); of more, noise is drawn on each count (docs/proofs/argmax.md).
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
from agt.mechanisms.mechanism import Mechanism, Mu, Need, PureMechanism
from agt.mechanisms.quantile import noisy_integers
from agt.mechanisms.tables import ThresholdTable, rule_for_guarantee
from agt.numeric import UNIT, Randomness, noisy
from agt.settings import keyword_schema

_CHUNK_QUERIES = 256  # whose expectation is taken at once
_NOISE_NODES = 1024  # values of the noise at which an expectation is taken
_LAPLACE_END = 40.0  # in units of the noise: beyond it lies less than 10^-17
_GAUSSIAN_END = 9.0  # in standard deviations: beyond it lies less than 10^-18


@keyword_schema
class _NoisyVotes(Mechanism):
    """The class of most votes, each count with noise of its own, ties to the smaller class.

    It needs an ensemble. The evidence is ``VoteCertificates.tally``: of two classes |n1 - n0| [n],
    the nominal label being 1 if n1 > n0, else 0; of more, the counts [n, C].

    Attributes:
        moves: m, how many members' votes one k can change, at least; the run's relation raises it
            (``covering``).

    Formal guarantees
        - Each label has ``guarantee`` if one k changes the votes of at most ``moves`` members,
          whatever these vote before and after (docs/proofs/argmax.md).
        - It holds for all evidence, a tie too, and where a member's vote moves by any two classes.
    """

    moves: Annotated[int, Field(ge=1, le=2)] = 1

    needs: ClassVar[Need] = "votes"
    any_classes: ClassVar[bool] = True

    def covering(self, touches: int) -> Self:
        """Return this mechanism with as much noise as covers the votes of several members.

        Args:
            touches: how many members' votes one k may change.
        """
        return replace(self, moves=max(self.moves, touches))

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Return counts of any shape, each with noise of its own."""
        raise NotImplementedError

    def _noise_below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """Return the distribution function of one count's noise Z.

        Args:
            z: values of the noise, each plus an integer.
            strictly: broadcasts to z; True: P(Z < z), False: P(Z <= z).
        """
        raise NotImplementedError

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """(values of one count's noise, their weights), a rule for expectations over it."""
        raise NotImplementedError

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        max_evidence: int | None = None,
    ) -> np.ndarray:
        """Draw a label for each query, which spends the guarantee once for each.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels.
            distances: [n] the gaps between two classes' counts; of more classes the counts [n, C].
            source: SystemRandomness for a release; anything else is a simulation.
            max_evidence: see ``Mechanism.release``; of more than two classes it is not read.

        Returns:
            [n] int64.

        Raises:
            ConfigError: shapes disagree, or values are out of range.
        """
        if self.classes == 2:
            return super().release(predictions, distances, source, max_evidence)
        counts = self._check_counts(distances)
        return self._add_noise(counts, source).argmax(axis=1)

    def expected_accuracy(
        self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray
    ) -> float:
        """Return the expectation of the released labels' accuracy, without a draw.

        Of two classes it is exact; of more to about 10^-3, as a sum over values of the noise of the
        right class's count.

        Args:
            predictions: [n] the nominal labels.
            distances: [n] the gaps between two classes' counts; of more classes the counts [n, C].
            labels: [n] the true labels.
        """
        if self.classes == 2:
            return super().expected_accuracy(predictions, distances, labels)
        counts = self._check_counts(distances)
        nodes, weights = self._noise_quadrature
        classes = np.arange(self.classes)
        total = 0.0
        for start in range(0, len(counts), _CHUNK_QUERIES):
            chunk = counts[start : start + _CHUNK_QUERIES]
            right = labels[start : start + _CHUNK_QUERIES, None]
            lead = np.take_along_axis(chunk, right, axis=1) - chunk
            # Smaller classes win ties, so the right class has to be strictly ahead of them.
            below_probability = self._noise_below(
                lead[:, :, None] + nodes, (classes < right)[:, :, None]
            )
            below_probability[(classes == right)] = 1.0
            total += float((below_probability.prod(axis=1) @ weights).sum())
        return total / len(counts)

    def _check_counts(self, counts: np.ndarray) -> np.ndarray:
        """Return vote counts.

        Raises:
            ConfigError: they are not integers >= 0 of shape [n, C].
        """
        shape = (len(counts), self.classes)
        if counts.dtype.kind not in "iu" or counts.shape != shape or counts.min(initial=0) < 0:
            raise ConfigError(
                f"mechanism={self.name}: votes must be integers of shape {shape}, for each of "
                f"{self.classes} classes, but are {counts.dtype} of shape {counts.shape}"
            )
        return counts

    def _flip_threshold(self, evidence: int) -> int:
        # Lemma 1 of docs/proofs/argmax.md: a table for each parity of the gap
        half_gap, parity = divmod(evidence, 2)
        return self._tables[parity].entries_up_to(half_gap)[half_gap]

    @cached_property
    def _tables(self) -> tuple[ThresholdTable, ThresholdTable]:
        """The tables of even and of odd gaps."""
        return self._table_of_parity(0), self._table_of_parity(1)

    def _table_of_parity(self, parity: int) -> ThresholdTable:
        """Return a table whose entry j is for a gap of 2 j + parity."""
        rule = rule_for_guarantee(self.guarantee, 2, self.moves)
        return ThresholdTable(rule, lambda half_gap: self._requested_entry(2 * half_gap + parity))


@keyword_schema
class NoisyArgmax(_NoisyVotes, PureMechanism):
    """The class of most votes with Laplace noise of scale 2 m / eps on each count: eps-DP.

    Of two classes the flip probability is exp(-x) (1 + x/2) / 2 with x = eps |n1 - n0| / (2 m): the
    tail of a difference of two Laplace variables. Of more classes the noise is two-sided geometric,
    P(z) proportional to exp(-eps |z| / (2 m)), and drawn exactly.

    Attributes:
        eps: of one query.

    Source: PATE; 001 equation 7.
    """

    name: ClassVar[str] = "noisy_argmax"

    @property
    def _rate(self) -> float:
        """How fast the noise decays for each vote."""
        return self.eps / (2 * self.moves)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        x = self._rate * distance
        return np.exp(-x) * (1 + x / 2) / 2

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        rows = counts.reshape(-1, counts.shape[-1]).tolist()
        # Lemma 2 of docs/proofs/argmax.md: counts are at most 2 m apart in l1
        sensitivity = 2 * self.moves
        noised = [noisy_integers(row, self.eps, source, sensitivity) for row in rows]
        return np.array(noised, dtype=np.int64).reshape(counts.shape)

    def _noise_below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        z = z - strictly  # of integers, Z < z is Z <= z - 1
        steps_outwards = np.where(z < 0, -z, z + 1)
        normaliser = 1 + math.exp(-self._rate)
        tail = np.exp(-self._rate * steps_outwards) / normaliser
        return np.where(z < 0, tail, 1 - tail)

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        rate = self._rate
        if 2 * _LAPLACE_END / rate < _NOISE_NODES:  # every value that is likely enough
            end = math.ceil(_LAPLACE_END / rate)
            z = np.arange(-end, end + 1)
            weights = np.exp(-rate * abs(z)) * math.tanh(rate / 2)
            return z, weights
        # Too many: as many values as there are nodes, each as likely.
        levels = (np.arange(_NOISE_NODES // 2) + 0.5) * 2 / _NOISE_NODES
        side = -np.log(levels) / rate
        nodes = np.rint(np.concatenate([-side, side]))
        return nodes, np.full(_NOISE_NODES, 1 / _NOISE_NODES)


@keyword_schema
class GaussianArgmax(_NoisyVotes):
    """The class of most votes with Gaussian noise on each count: mu-GDP.

    Its standard deviation is m sqrt(2) / mu. Many queries compose without loss. Of two classes the
    flip probability is Phi(-mu |n1 - n0| / (2 m)), the tail of a difference of two such variables.
    Of more classes the noise is drawn exactly and rounded with its count to a public lattice
    (``agt.numeric.noisy``).

    Attributes:
        mu: of one query.
    """

    mu: Mu

    name: ClassVar[str] = "gaussian_argmax"
    spends: ClassVar[type[GaussianDP]] = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        return ndtr(-self.mu / (2 * self.moves) * distance)

    @property
    def _sigma(self) -> float:
        """The standard deviation of the noise on each count, rounded up."""
        # Lemma 3 of docs/proofs/argmax.md; four roundings, and that of mu's decimal
        sensitivity = self.moves * math.sqrt(2)
        return sensitivity / self.mu * (1 + 8 * UNIT)

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        return noisy(counts.astype(np.float64), self._sigma, source)

    def _noise_below(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        return ndtr(z / self._sigma)

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        x = np.linspace(-_GAUSSIAN_END, _GAUSSIAN_END, 181)
        densities = np.exp(-x * x / 2)
        weights = densities / densities.sum()
        return x * self._sigma, weights
