"""What every label mechanism is: (label, evidence) of a query in, one label out, one guarantee.

The evidence is the certified stable distance (``needs = "distance"``), the gap between two vote
counts (``"votes"``), or nothing. A mechanism never sees a model, a dataset or another query.
``judging.claim`` decides whether the evidence may carry a guarantee, and ``composition.total`` adds
queries up.

    RandomizedResponse(eps=0.5).release(predictions, distances, SystemRandomness())     [n] labels
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, TypeVar

import numpy as np
from pydantic import Field

from agt.errors import ConfigError
from agt.mechanisms.guarantees import (
    MAX_BUDGET,
    MIN_BUDGET,
    ApproximateDP,
    GaussianDP,
    Guarantee,
    PureDP,
)
from agt.mechanisms.output import Output
from agt.mechanisms.tables import DRAW_BITS, DRAW_VALUES, ThresholdTable, rule_for_guarantee
from agt.messages import Message
from agt.numeric import Draw, Randomness, answered
from agt.settings import keyword_schema, validate

MAX_DISTANCE = 2**16  # longer distances count as this one; still 1-Lipschitz
MAX_CLASSES = 2**16

Epsilon = Annotated[float, Field(ge=MIN_BUDGET, le=MAX_BUDGET)]
Mu = Annotated[float, Field(ge=MIN_BUDGET, le=MAX_BUDGET)]
Delta = Annotated[float, Field(gt=0, lt=0.5)]
Need = Literal["distance", "votes", "counts", "nothing"]
GuaranteeKind = type[PureDP] | type[ApproximateDP] | type[GaussianDP]
Named = TypeVar("Named", bound=type)
# by name; agt/mechanisms/__init__.py loads those that agt brings
MECHANISMS: dict[str, type["Mechanism"]] = {}


def register(kind: Named, registry: dict[str, Named]) -> None:
    """Enter a class into a registry under its name.

    A class without a ``name`` of its own, such as a base class, is not entered.

    Raises:
        ConfigError: another class has this name.
    """
    name = vars(kind).get("name")
    if name is None:
        return
    known = registry.setdefault(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(
            f"mechanism={name}: the module {known.__module__} already has a mechanism of this "
            f"name: give {kind.__qualname__} another name"
        )
    registry[name] = kind  # the module was loaded again


@keyword_schema
class Mechanism:
    """A mechanism that releases a label for each query, which it flips with some probability.

    A subclass gives ``name``, the parameters of its guarantee and ``_flip``, the closed form of the
    flip probability. It is registered by being defined, if it has a ``name`` of its own.

    Attributes:
        classes: C, the number of labels.
        name: its name in conf/groups/mechanism.yaml and in tables.
        needs: what the evidence is.
        output: what is released, which is labels.
        spends: the kind of guarantee that a budget is shared out in.
        any_classes: more than two classes are supported.

    Formal guarantees
        - Each label that ``release`` draws has ``guarantee``, exactly and whatever the closed form
          says, if the evidence moves by at most 1 between neighbours, if labels differ between
          neighbours only at evidence 0, and if the source is uniform (docs/proofs/tables.md).
        - ``exact_flip`` is the flip probability of a release. ``flip_probability``, the closed
          form, agrees with it to double precision, plus a few units of 2^-128 / min(1, budget),
          because integers cannot decay for ever (tests measure it).
        - That the time of a release is independent of the data is not claimed.
    """

    classes: Annotated[int, Field(ge=2, le=MAX_CLASSES)] = 2

    name: ClassVar[str]
    needs: ClassVar[Need] = "distance"
    output: ClassVar[Output] = Output.LABELS
    spends: ClassVar[GuaranteeKind] = PureDP
    any_classes: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        register(cls, MECHANISMS)

    def __post_init__(self) -> None:
        if self.classes > 2 and not self.any_classes:
            raise ConfigError(
                Message(
                    "mechanism={name} only releases labels of two classes, but the model has "
                    "{classes} classes: use {config:mechanism=randomized_response}",
                    name=self.name,
                    classes=self.classes,
                )
            )

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one query: of the kind ``spends``, with the parameters of the same
        names.
        """
        return self.spends(**{name: getattr(self, name) for name in self.spends.parameter_names})

    def covering(self, touches: int) -> Self:
        """Return a mechanism with this guarantee where one k changes the votes of several members.

        A stable distance has counted them already, so that most mechanisms return themselves.

        Args:
            touches: how many members' votes one k may change, at least 1.
        """
        return self

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the closed form of the flip probability.

        Args:
            distance: float64 of any shape, at least 0: the evidence.
        """
        raise NotImplementedError

    @classmethod
    def of(cls, guarantee: Guarantee, classes: int = 2) -> Self:
        """Return the mechanism that has a guarantee per query.

        Raises:
            ConfigError: the mechanism gives no guarantee of this kind (smooth_cauchy and a delta,
                say).
        """
        return validate(cls, {**guarantee.parameters, "classes": classes}, f"mechanism={cls.name}")

    def flip_probability(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the released label is not the nominal one.

        Args:
            distance: integers >= 0 of any shape, the evidence of each query.

        Returns:
            float64 of the same shape, to double precision also in the tail.

        Raises:
            ConfigError: the evidence is negative, or not integer.
        """
        evidence = _check_evidence(distance, self.needs, MAX_DISTANCE)
        return np.maximum(self._flip(evidence.astype(np.float64)), self._least_flip)

    def exact_flip(self, distance: int) -> Fraction:
        """Return the flip probability of what ``release`` does, a multiple of 2^-128.

        Raises:
            ConfigError: the evidence is negative.
        """
        (evidence,) = _check_evidence(np.array([distance]), self.needs, MAX_DISTANCE)
        return Fraction(self._flip_threshold(evidence), DRAW_VALUES)

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        max_evidence: int | None = None,
    ) -> np.ndarray:
        """Draw a label for each query, which spends the guarantee once for each.

        The nominal label comes out, or with the flip probability one of the others, each as likely.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels.
            distances: [n] integers >= 0, their evidence.
            source: SystemRandomness for a release; anything else is a simulation.
            max_evidence: a public number that no evidence exceeds (more counts as this much): then
                the same operations on the same shapes whatever labels and evidence are. None: the
                greatest there is, which a clock may tell.

        Returns:
            [n] int64.

        Raises:
            ConfigError: shapes disagree, or values are out of range.
        """
        largest = MAX_DISTANCE if max_evidence is None else min(max_evidence, MAX_DISTANCE)
        evidence = _check_evidence(distances, self.needs, largest)
        labels = self._check_labels(predictions, evidence)
        table_end = int(evidence.max(initial=0)) if max_evidence is None else largest
        draw = Draw("labels", (self, max_evidence, len(labels)), (labels, evidence))
        return answered(
            source, draw, lambda source: self._draw_labels(labels, evidence, table_end, source)
        )

    def _draw_labels(
        self, labels: np.ndarray, evidence: np.ndarray, table_end: int, source: Randomness
    ) -> np.ndarray:
        """Draw a label for each query.

        Args:
            labels: [n] int64 in 0..C-1, the nominal labels.
            evidence: [n] int64 in 0..table_end.
            table_end: up to which evidence thresholds are looked up.
            source: of uniform integers.

        Returns:
            [n] int64.
        """
        draws = source.words(len(labels))
        thresholds, threshold_words = self._thresholds_up_to(table_end)
        limits = threshold_words[evidence]
        # Integers of 128 bits, compared word by word, the more significant one first.
        high_is_less = draws[:, 0] < limits[:, 0]
        high_is_equal = draws[:, 0] == limits[:, 0]
        low_is_less = draws[:, 1] < limits[:, 1]
        is_flipped = high_is_less | (high_is_equal & low_is_less)
        if self.classes == 2:
            return np.where(is_flipped, 1 - labels, labels)
        # A draw below the threshold says which of the other labels: each has as many values.
        other_labels = self.classes - 1
        ranks = []
        for (high, low), value in zip(draws.tolist(), evidence.tolist(), strict=True):
            draw = (high << 64) | low
            values_per_label = max(thresholds[value] // other_labels, 1)
            ranks.append(min(draw // values_per_label, other_labels - 1))
        rank = np.array(ranks, dtype=np.int64)
        other_label = rank + (rank >= labels)  # the nominal label is skipped
        return np.where(is_flipped, other_label, labels)

    def expected_accuracy(
        self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray
    ) -> float:
        """Return the exact expectation of the released labels' accuracy, without a draw.

        Args:
            predictions: [n] the nominal labels.
            distances: [n] their evidence.
            labels: [n] the true labels.
        """
        flip = self.flip_probability(distances)
        is_right = self._check_labels(predictions, np.asarray(distances)) == labels
        other_label = flip / (self.classes - 1)
        probability = np.where(is_right, 1 - flip, other_label)
        return float(probability.mean())

    @property
    def _least_flip(self) -> float:
        """The least flip probability that a table can give, where no entry may be 0."""
        return math.ldexp(self.classes - 1, -DRAW_BITS)

    @cached_property
    def _table(self) -> ThresholdTable:
        rule = rule_for_guarantee(self.guarantee, self.classes)
        return ThresholdTable(rule, self._requested_entry)

    def _thresholds_up_to(self, max_evidence: int) -> tuple[list[int], np.ndarray]:
        """Return the flip thresholds of all evidence from 0 to ``max_evidence``.

        Returns:
            (the thresholds as integers, [max_evidence + 1, 2] uint64: the more and the less
            significant word of each).
        """
        # An instance is frozen, but its dictionary is not. The cache holds one length of table.
        cache: dict[int, tuple[list[int], np.ndarray]] = self.__dict__.setdefault(
            "_threshold_cache", {}
        )
        if max_evidence not in cache:
            thresholds = [self._flip_threshold(value) for value in range(max_evidence + 1)]
            pairs = [divmod(threshold, 1 << 64) for threshold in thresholds]
            threshold_words = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
            cache.clear()
            cache[max_evidence] = (thresholds, threshold_words)
        return cache[max_evidence]

    def _flip_threshold(self, evidence: int) -> int:
        """Return how many of the ``DRAW_VALUES`` values of a draw flip the label."""
        return (self.classes - 1) * self._table.entries_up_to(evidence)[evidence]

    def _requested_entry(self, distance: int) -> int:
        """Return the table's entry that the closed form asks for, rounded up, at least 1."""
        flip = float(self._flip(np.array([float(distance)]))[0])
        values = math.ldexp(flip, DRAW_BITS)
        return max(1, math.ceil(values / (self.classes - 1)))

    def _check_labels(self, predictions: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """Return nominal labels as [n] int64.

        Raises:
            ConfigError: they are not integers in 0..C-1, one for each piece of evidence.
        """
        labels = np.asarray(predictions)
        if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.shape != evidence.shape:
            raise ConfigError(
                f"mechanism={self.name}: predictions and distances must be integers, one of "
                f"each per query, but are {labels.dtype} {labels.shape} and {evidence.dtype} "
                f"{evidence.shape}"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
            raise ConfigError(
                f"mechanism={self.name}: predictions must be labels between 0 and "
                f"{self.classes - 1}"
            )
        return labels.astype(np.int64)


@keyword_schema
class PureMechanism(Mechanism):
    """A mechanism whose one parameter is the eps of one query."""

    eps: Epsilon


def _check_evidence(values: np.ndarray, need: Need, largest: int) -> np.ndarray:
    """Return evidence as int64, where what exceeds ``largest`` counts as that much.

    A gap between votes keeps its parity, because even and odd gaps have tables of their own.

    Args:
        values: integers >= 0 of any shape.
        need: what the evidence is; of "nothing" it is 0.
        largest: at least 1.

    Raises:
        ConfigError: the evidence is negative, or not integer.
    """
    evidence = np.asarray(values)
    if evidence.dtype.kind not in "iu":
        raise ConfigError(
            f"the evidence for each query ({need}) must be integers, because it counts whole "
            f"records or votes, but is {evidence.dtype}"
        )
    if evidence.size and evidence.min() < 0:
        raise ConfigError(
            f"the evidence for each query ({need}) must be at least 0, but some is negative"
        )
    if need == "nothing":
        return np.zeros(evidence.shape, dtype=np.int64)
    if need == "votes":
        largest_of_parity = largest - (evidence - largest) % 2
        return np.where(evidence > largest, largest_of_parity, evidence).astype(np.int64)
    return np.minimum(evidence, largest).astype(np.int64)
