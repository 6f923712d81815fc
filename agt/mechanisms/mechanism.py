"""What every release mechanism is: (label, evidence) of a query in, a label out, with one guarantee per query.

The evidence is the certified stable distance L (``needs = "distance"``), the gap between two vote counts (``"votes"``), or
nothing. A mechanism never sees a model, a dataset or another query. ``rigour.claim`` decides whether the evidence may carry
a guarantee; composition.py adds queries up.
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.guarantee import GREATEST, LEAST, ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.thresholds import BITS, MAX_CLASSES, MAX_DISTANCE, N, Table, rule_of
from agt.randomness import Randomness
from agt.settings import keyword_schema, validate

Epsilon = Annotated[float, Field(ge=LEAST, le=GREATEST)]
Mu = Annotated[float, Field(ge=LEAST, le=GREATEST)]
Delta = Annotated[float, Field(gt=0, lt=0.5)]
Need = Literal["distance", "votes", "nothing"]
REGISTERED: dict[str, type["Mechanism"]] = {}  # by name; catalogue.py holds all that agt brings


@keyword_schema
class Mechanism:
    """A release mechanism. Subclasses give a name, the guarantee and the closed form of the flip probability.

    A subclass that has a ``name`` of its own is registered by being defined.

    Formal guarantees
        ``release`` draws from the integer table of thresholds.py, which satisfies ``guarantee`` exactly whatever the closed
        form says, provided that the evidence is 1-Lipschitz, that labels differ between neighbours only at L = 0, and that
        the source is uniform. ``flip_probability`` is the closed form and ``exact_flip`` what the table does. They agree
        to double precision, plus a few units of 2^-128 / min(1, budget): integers cannot decay for ever (tests measure it).

    Attributes:
        classes: C, the number of labels.
        name: its name in conf/mechanism and in tables.
        needs: what the evidence is.
        spends: the kind of guarantee that a budget is shared out in.
        any_classes: more than two classes are supported.
    """

    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 2

    name: ClassVar[str]
    needs: ClassVar[Need] = "distance"
    spends: ClassVar[type[PureDP] | type[ApproximateDP] | type[GaussianDP]] = PureDP
    any_classes: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            return  # what several mechanisms share
        known = REGISTERED.setdefault(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ConfigError(
                f"mechanism={cls.name}: {known.__module__} has one of this name: give {cls.__qualname__} another"
            )
        REGISTERED[cls.name] = cls  # the module was loaded again

    def __post_init__(self) -> None:
        if self.classes > 2 and not self.any_classes:
            raise ConfigError(
                f"mechanism={self.name} releases one of two labels and the model has {self.classes} classes: "
                "use mechanism=randomized_response"
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one query."""
        raise NotImplementedError

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """The closed form; ``distance`` is float64, at least 0."""
        raise NotImplementedError

    @classmethod
    def of(cls, guarantee: Guarantee, classes: int = 2) -> Self:
        """The mechanism with this guarantee per query.

        Raises:
            ConfigError: it gives no guarantee of this kind (smooth_cauchy and a delta, say).
        """
        return validate(cls, {**guarantee.parameters, "classes": classes}, f"mechanism={cls.name}")

    def flip_probability(self, distance: np.ndarray) -> np.ndarray:
        """Probability that the released label is not the nominal one, in double precision also in the tail.

        Args:
            distance: integers >= 0, any shape: the evidence of each query.

        Raises:
            ConfigError: not integers, or negative.
        """
        evidence = _evidence(distance, self.needs, MAX_DISTANCE)
        return np.maximum(self._flip(evidence.astype(np.float64)), self._floor)

    def exact_flip(self, distance: int) -> Fraction:
        """The flip probability of what ``release`` does, a multiple of 2^-128."""
        (index,) = _evidence(np.array([distance]), self.needs, MAX_DISTANCE)
        return Fraction(self._thresholds(index), N)

    def release(
        self, predictions: np.ndarray, distances: np.ndarray, source: Randomness, farthest: int | None = None
    ) -> np.ndarray:
        """The released labels: each nominal label, or with the flip probability another one, uniformly.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels.
            distances: [n] integers >= 0, their evidence.
            source: SystemRandomness for a release; anything else is a simulation.
            farthest: a public number that no evidence exceeds (more counts as this much): then the same operations on
                the same shapes whatever labels and evidence are. None: the greatest there is, which a clock may tell.

        Returns:
            [n] int64.

        Raises:
            ConfigError: shapes disagree, or values are out of range.
        """
        evidence = _evidence(distances, self.needs, MAX_DISTANCE if farthest is None else min(farthest, MAX_DISTANCE))
        labels = self._labels(predictions, evidence)
        draws = source.words(len(labels))
        longest = int(evidence.max(initial=0)) if farthest is None else min(farthest, MAX_DISTANCE)
        limits, pairs = self._limits(longest)
        halves = pairs[evidence]
        flipped = (draws[:, 0] < halves[:, 0]) | ((draws[:, 0] == halves[:, 0]) & (draws[:, 1] < halves[:, 1]))
        if self.classes == 2:
            return np.where(flipped, 1 - labels, labels)
        others = self.classes - 1
        ranks = [
            min(((high << 64) | low) // max(limits[value] // others, 1), others - 1)
            for (high, low), value in zip(draws.tolist(), evidence.tolist(), strict=True)
        ]
        rank = np.array(ranks, dtype=np.int64)
        return np.where(flipped, rank + (rank >= labels), labels)  # the rank-th of the other labels

    def expected_accuracy(self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray) -> float:
        """The exact expectation of the released labels' accuracy: no draws, no repeats."""
        flip = self.flip_probability(distances)
        right = self._labels(predictions, np.asarray(distances)) == labels
        return float(np.where(right, 1 - flip, flip / (self.classes - 1)).mean())

    @property
    def _floor(self) -> float:
        """The least probability that a table can give, where none may be 0."""
        return math.ldexp(self.classes - 1, -BITS)

    @cached_property
    def _table(self) -> Table:
        return Table(rule_of(self.guarantee, self.classes), self._wish)

    def _limits(self, longest: int) -> tuple[list[int], np.ndarray]:
        """The thresholds of all evidence up to ``longest``: as numbers, and [longest + 1, 2] as words of 64 bits."""
        known: dict[int, tuple[list[int], np.ndarray]] = self.__dict__.setdefault("_known_limits", {})
        if longest not in known:
            limits = [self._thresholds(value) for value in range(longest + 1)]
            words = np.array([divmod(limit, 1 << 64) for limit in limits], dtype=np.uint64).reshape(-1, 2)
            known.clear()
            known[longest] = limits, words
        return known[longest]

    def _thresholds(self, evidence: int) -> int:
        """How many of the N draws flip the label."""
        return (self.classes - 1) * self._table.upto(evidence)[evidence]

    def _wish(self, distance: int) -> int:
        """The closed form as a number of draws per wrong label, rounded up, at least 1."""
        p = float(self._flip(np.array([float(distance)]))[0])
        return max(1, math.ceil(math.ldexp(p, BITS) / (self.classes - 1)))

    def _labels(self, predictions: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        labels = np.asarray(predictions)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.shape != evidence.shape:
            raise ConfigError(
                f"mechanism={self.name}: predictions and distances must be integers, one of each per query; got "
                f"{labels.dtype} {labels.shape} and {evidence.dtype} {evidence.shape}"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
            raise ConfigError(f"mechanism={self.name}: predictions must be labels 0..{self.classes - 1}")
        return labels.astype(np.int64)


def _evidence(distance: np.ndarray, need: Need, farthest: int) -> np.ndarray:
    values = np.asarray(distance)
    if values.dtype.kind not in "iu":
        raise ConfigError(f"{need}: expected integers, got {values.dtype}: a stable distance is a whole number of records")
    if values.size and values.min() < 0:
        raise ConfigError(f"{need}: negative values: a stable distance is at least 0")
    if need == "nothing":
        return np.zeros(values.shape, dtype=np.int64)
    if need == "votes":  # a gap between counts keeps its parity
        return np.where(values > farthest, farthest - (values - farthest) % 2, values).astype(np.int64)
    return np.minimum(values, farthest).astype(np.int64)
