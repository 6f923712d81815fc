"""Report noisy max over an ensemble's votes (PATE): the class with the most noisy votes.

Two classes: labels are sampled from tables that are private by construction
(docs/proofs/tables.md). More classes: independent noise is added to the count of each class
(docs/proofs/argmax.md).
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
import scipy  # whose parts load when they are first used

from agt.data.arrays import block_slices
from agt.errors import ConfigError
from agt.mechanism_settings import GaussianArgmaxSettings, NoisyArgmaxSettings, VotesSettings
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.quantile import noisy_integers
from agt.mechanisms.tables import ThresholdTable, rule_for_guarantee
from agt.numeric import UNIT, Randomness, noisy
from agt.settings import keyword_schema

_CHUNK_QUERIES = 256  # queries whose expected accuracy is computed at once, to bound the memory
_NOISE_NODES = 1024  # the maximum number of nodes of the quadrature over the noise
_LAPLACE_END = 40.0  # in units of the noise scale: the mass beyond is less than 10^-17
_GAUSSIAN_END = 9.0  # in standard deviations: the mass beyond is less than 10^-18
_GAUSSIAN_NODES = 181  # equally spaced from -_GAUSSIAN_END to it: ten for each standard deviation


@keyword_schema
class _NoisyVotes(VotesSettings, Mechanism):
    """Base of the mechanisms that release the class with the most noisy votes of an ensemble.

    Each member of the ensemble votes for one class. The mechanism adds independent noise to the
    number of votes of each class and releases the class with the largest sum; of equal sums, the
    smaller class.

    The evidence (what the mechanism reads of each query) is ``VoteCertificates.tally``. Two
    classes: |n1 - n0| [n], the gap between the vote counts; the nominal label is 1 if n1 > n0, else
    0. More classes: the vote counts [n, C].

    Attributes:
        moves: m, a number of votes that one edit of the training data may change. The guarantee
            holds if it changes at most so many. ``for_changed_votes`` raises it to what the run's
            relation needs.

    Formal guarantees
        - Each label has ``guarantee`` if one edit changes the votes of at most ``moves`` members,
          from any class to any other (docs/proofs/argmax.md).
        - The guarantee holds for every vote count, ties included.
    """

    def for_changed_votes(self, changed_votes: int) -> Self:
        """Return this mechanism with enough noise for one edit that changes several votes.

        The guarantee stays the same; the noise grows with ``moves``, the number of votes covered.

        Args:
            changed_votes: the number of members' votes that one edit of the training data may
                change, 1 or 2.
        """
        return replace(self, moves=max(self.moves, changed_votes))

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Return vote counts with independent noise on each count.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            counts: [n, C] integers, the votes of each class.
            source: the source of uniform random integers.

        Returns:
            [n, C] noisy counts, int64 or float64.
        """
        raise NotImplementedError

    def _noise_cdf(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """Return P(Z <= z), or P(Z < z) where requested, for the noise Z of one vote count.

        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            z: values at which the distribution function is evaluated, each a possible value of the
                noise plus an integer.
            strictly: boolean, broadcasts to z; True: P(Z < z), False: P(Z <= z).

        Returns:
            float64 probabilities, of the shape of z.
        """
        raise NotImplementedError

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of the noise Z of one vote count and their weights, to compute expectations with.

        The expectation of any f(Z) is approximately the sum of weights * f(values). Both are [q]
        arrays, and the weights add up to 1. Every subclass overrides it; this default
        raises NotImplementedError.
        """
        raise NotImplementedError

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        max_evidence: int | None = None,
    ) -> np.ndarray:
        """Draw a private label for each query; each draw spends the guarantee once.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels (those of the trained ensemble).
                They are not read if there are more than two classes.
            distances: the evidence. Two classes: [n] gaps |n1 - n0| between the vote counts. More
                classes: [n, C] the vote counts.
            source: SystemRandomness for a private release; any other source makes a simulation.
            max_evidence: a public upper bound on the gaps, for a running time that is independent
                of them (``Mechanism.release``). It is not read if there are more than two classes.

        Returns:
            [n] int64 labels.

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
        """Return the expected accuracy of the released labels, without drawing any.

        Two classes: exact. More classes: to about 1e-3, by quadrature over the noise on the right
        class's count. Given that noise, the other classes' noises are independent, so the
        probability that the right class wins is a product over them.

        Args:
            predictions: [n] the nominal labels (those of the trained ensemble).
            distances: two classes: [n] gaps between the vote counts. More classes: [n, C] vote
                counts.
            labels: [n] the true labels.
        """
        if self.classes == 2:
            return super().expected_accuracy(predictions, distances, labels)
        counts = self._check_counts(distances)
        nodes, weights = self._noise_quadrature
        classes = np.arange(self.classes)
        total = 0.0
        for queries in block_slices(len(counts), _CHUNK_QUERIES):
            chunk = counts[queries]
            right_class = labels[queries, None]
            # The right class beats another class if the other's noise is below lead + own noise.
            lead = np.take_along_axis(chunk, right_class, axis=1) - chunk
            # Smaller classes win ties, so the right class has to be strictly ahead of them.
            loses_tie = classes < right_class  # [queries, classes]
            win_probability = self._noise_cdf(lead[:, :, None] + nodes, loses_tie[:, :, None])
            win_probability[classes == right_class] = 1.0  # it does not compete with itself
            beats_all = win_probability.prod(axis=1)  # [queries, nodes]
            total += float((beats_all @ weights).sum())
        return total / len(counts)

    def _check_counts(self, counts: np.ndarray) -> np.ndarray:
        """Return vote counts of more than two classes, unchanged.

        Raises:
            ConfigError: they are not integers >= 0 of shape [n, C].
        """
        shape = (len(counts), self.classes)
        smallest = counts.min(initial=0)  # 0 if there are no queries
        is_integer = counts.dtype.kind in "iu"  # signed or unsigned
        if not is_integer or counts.shape != shape or smallest < 0:
            raise ConfigError(
                f"mechanism={self.name}: votes must be integers of at least 0, of shape {shape} "
                f"(queries, classes), but they have the type {counts.dtype}, the shape "
                f"{counts.shape} and the smallest value {smallest}"
            )
        return counts

    def _flip_threshold(self, evidence: int) -> int:
        """Return the number of 128-bit uniform draws that flip the label at a gap of votes.

        Args:
            evidence: |n1 - n0| of two classes, at least 0.
        """
        # Lemma 1 of docs/proofs/argmax.md: an edit moves the gap by steps of 2, so even and odd
        # gaps have a table each, which is read at half of the gap.
        half_gap, parity = divmod(evidence, 2)
        return self._tables[parity].entries_up_to(half_gap)[half_gap]

    @cached_property
    def _tables(self) -> tuple[ThresholdTable, ThresholdTable]:
        """The threshold tables of even and of odd gaps between two vote counts, in this order."""
        return self._table_of_parity(0), self._table_of_parity(1)

    def _table_of_parity(self, parity: int) -> ThresholdTable:
        """Return the threshold table of the gaps with one parity.

        Args:
            parity: 0: even gaps; 1: odd gaps.

        Returns:
            A table whose entry j says how many of the 2^128 values of a draw flip the label at a
            gap of 2 j + parity.
        """
        # ``moves`` votes change the gap by at most 2 ``moves``, so half of it by at most ``moves``.
        rule = rule_for_guarantee(self.guarantee, 2, self.moves)
        # Entry j is the one that the formula ``_flip`` asks for at a gap of 2 j + parity.
        return ThresholdTable(rule, lambda half_gap: self._requested_entry(2 * half_gap + parity))


@keyword_schema
class NoisyArgmax(NoisyArgmaxSettings, _NoisyVotes):
    """Release the class of most votes with Laplace noise on each count: eps-DP.

    The noise has scale 2 m / eps, where m (``moves``) bounds the votes that one edit changes. Two
    classes: the flip probability is exp(-x) (1 + x/2) / 2, the tail of the difference of two
    Laplace variables, with ``x = eps |n1 - n0| / (2 m)``. More classes: the noise is two-sided
    geometric (discrete Laplace), drawn exactly.

    Attributes:
        eps: the eps of one query.

    Source: PATE; 001 equation 7.
    """

    @property
    def _rate(self) -> float:
        """The decay rate of the noise: P(Z = z) is proportional to exp(-rate |z|)."""
        return self.eps / (2 * self.moves)

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the noisy majority of two classes is not the majority.

        It is the probability that the difference of two Laplace variables exceeds the gap.

        Args:
            distance: float64 of any shape, at least 0: the gaps |n1 - n0| between the vote counts.
        """
        x = self._rate * distance  # the gap in units of the noise scale
        return np.exp(-x) * (1 + x / 2) / 2  # the tail of the difference beyond x

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Return vote counts plus two-sided geometric (discrete Laplace) noise, drawn exactly.

        Args:
            counts: [..., C] integers, the votes of each class.
            source: the source of uniform random integers.

        Returns:
            int64 of the shape of counts.
        """
        rows = counts.reshape(-1, counts.shape[-1]).tolist()
        # Lemma 2 of docs/proofs/argmax.md: an edit moves at most m votes, and each of them takes
        # one from a count and adds one to another, so the l1 sensitivity is 2 m.
        sensitivity = 2 * self.moves
        noised = [noisy_integers(row, self.eps, source, sensitivity) for row in rows]
        return np.array(noised, dtype=np.int64).reshape(counts.shape)

    def _noise_cdf(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """Return P(Z <= z), or P(Z < z) where requested, for two-sided geometric noise Z.

        Args:
            z: integers at which the distribution function is evaluated.
            strictly: boolean, broadcasts to z; True: P(Z < z), False: P(Z <= z).
        """
        z = z - strictly  # of integers, Z < z is Z <= z - 1
        # One tail is P(Z >= t) = exp(-rate t) / (1 + exp(-rate)) for t >= 1. As Z is symmetric,
        # P(Z <= z) is the tail from -z if z < 0, and 1 less the tail from z + 1 otherwise.
        tail_start = np.where(z < 0, -z, z + 1)
        normaliser = 1 + math.exp(-self._rate)
        tail = np.exp(-self._rate * tail_start) / normaliser
        return np.where(z < 0, tail, 1 - tail)

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of two-sided geometric noise Z on a vote count and their weights.

        The expectation of any f(Z) is approximately the sum of weights * f(values). Both are [q]
        arrays, and the weights add up to 1. If few enough integers are likely, they are the values,
        with their probabilities as weights. Otherwise the values are quantiles with equal weights.
        """
        rate = self._rate
        if 2 * _LAPLACE_END / rate < _NOISE_NODES:
            last_value = math.ceil(_LAPLACE_END / rate)
            z = np.arange(-last_value, last_value + 1)
            # Over all integers, exp(-rate |z|) adds up to 1 / tanh(rate / 2).
            normaliser = math.tanh(rate / 2)
            probabilities = np.exp(-rate * abs(z)) * normaliser
            return z, probabilities
        # Too many integers are likely. Continuous Laplace noise is almost the same then. Each half
        # of it is cut into parts of equal probability, and the median of a part is its value.
        parts = _NOISE_NODES // 2
        tail_levels = (np.arange(parts) + 0.5) / parts
        positive_values = -np.log(tail_levels) / rate  # solves P(|Z| > z) = exp(-rate z) = level
        values = np.rint(np.concatenate([-positive_values, positive_values]))
        equal_weights = np.full(_NOISE_NODES, 1 / _NOISE_NODES)
        return values, equal_weights


@keyword_schema
class GaussianArgmax(GaussianArgmaxSettings, _NoisyVotes):
    """Release the class of most votes with Gaussian noise on each count: mu-GDP.

    The noise has standard deviation m sqrt(2) / mu, where m (``moves``) bounds the votes that one
    edit changes. Q queries together are mu sqrt(Q)-GDP. Two classes: the flip probability is
    ``Phi(-mu |n1 - n0| / (2 m))``, the tail of the difference of two normal variables. More
    classes: the noise is drawn exactly, and each noisy count is rounded to a public lattice
    (``agt.numeric.noisy``).

    Attributes:
        mu: the mu of one query.
    """

    spends = GaussianDP

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the noisy majority of two classes is not the majority.

        It is the probability that the difference of two normal variables exceeds the gap.

        Args:
            distance: float64 of any shape, at least 0: the gaps |n1 - n0| between the vote counts.
        """
        return scipy.special.ndtr(-self.mu / (2 * self.moves) * distance)

    @property
    def _sigma(self) -> float:
        """The standard deviation of the noise on each count, rounded up."""
        # Lemma 3 of docs/proofs/argmax.md: an edit moves at most m votes, each by a vector of
        # length sqrt(2), so the l2 sensitivity is at most m sqrt(2). The factor covers the four
        # roundings of this line and the one by which mu may differ from its printed decimal.
        sensitivity = self.moves * math.sqrt(2)
        return sensitivity / self.mu * (1 + 8 * UNIT)

    def _add_noise(self, counts: np.ndarray, source: Randomness) -> np.ndarray:
        """Return vote counts plus Gaussian noise, drawn exactly and rounded to a public lattice.

        Args:
            counts: [n, C] integers, the votes of each class.
            source: the source of uniform random integers.

        Returns:
            [n, C] float64.
        """
        return noisy(counts.astype(np.float64), self._sigma, source)

    def _noise_cdf(self, z: np.ndarray, strictly: np.ndarray) -> np.ndarray:
        """Return P(Z <= z) for the Gaussian noise Z of one vote count.

        Args:
            z: values at which the distribution function is evaluated.
            strictly: not read, because the noise is continuous: P(Z < z) = P(Z <= z).
        """
        return scipy.special.ndtr(z / self._sigma)

    @property
    def _noise_quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of the Gaussian noise Z on a vote count and their weights.

        The expectation of any f(Z) is approximately the sum of weights * f(values). The values are
        equally spaced from -9 to 9 standard deviations. The weights are proportional to the
        density, and add up to 1.
        """
        x = np.linspace(-_GAUSSIAN_END, _GAUSSIAN_END, _GAUSSIAN_NODES)  # in standard deviations
        densities = np.exp(-x * x / 2)
        weights = densities / densities.sum()
        return x * self._sigma, weights
