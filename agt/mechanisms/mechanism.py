"""The base class of label mechanisms: they draw a private label from a label and its evidence.

Evidence is what a mechanism reads of a query besides its nominal label (the trained model's label):
the stable distance, which is how many edits of the training data certainly leave the label
unchanged (``needs = "distance"``), the gap between two vote counts (``"votes"``), or nothing.
``judging.judge_claim`` decides whether the evidence may carry a guarantee; ``composition.total``
adds the guarantees of several queries.

    RandomizedResponse(eps=0.5).release(predictions, distances, SystemRandomness())     [n] labels
"""

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, TypeVar

import numpy as np

from agt.errors import ConfigError
from agt.mechanism_settings import LabelSettings
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.output import Output
from agt.mechanisms.tables import DRAW_BITS, DRAW_VALUES, ThresholdTable, rule_for_guarantee
from agt.numeric import Draw, Randomness, draw_observably
from agt.release_settings import Need
from agt.settings import keyword_schema, validate

# Larger evidence is replaced by it, so that tables are finite. The evidence of neighbouring
# datasets still differs by at most 1.
MAX_DISTANCE = 2**16

GuaranteeKind = type[PureDP] | type[ApproximateDP] | type[GaussianDP]
Named = TypeVar("Named", bound=type)
# All label mechanisms by name; agt/mechanisms/__init__.py imports those of agt, which enters them.
MECHANISMS: dict[str, type["Mechanism"]] = {}


def register(kind: Named, registry: dict[str, Named]) -> None:
    """Enter a class into a registry under its ``name``.

    A class without a ``name``, and one that has the name of a registered class from which it
    inherits, is not entered.

    Args:
        kind: the class.
        registry: name -> class; the class is added to it.

    Raises:
        ConfigError: another class has this name.
    """
    name = getattr(kind, "name", None)
    if name is None or registry.get(name) in kind.__mro__[1:]:
        return
    known = registry.setdefault(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise ConfigError(
            f"mechanism={name}: the module {known.__module__} already has a mechanism of the "
            f"same name: give {kind.__qualname__} another name"
        )
    registry[name] = kind  # the same class again: its module was reloaded


@keyword_schema
class Mechanism(LabelSettings):
    """A mechanism that releases the nominal label of a query or, with some probability, another.

    The nominal label is that of the trained model. The more evidence there is that it is the same
    for neighbouring datasets, the less often it is flipped. Labels are drawn from an integer table
    that meets the guarantee exactly; a formula is only what the table aims at.

    A subclass defines ``name``, the parameters of its guarantee and ``_flip``, the formula of the
    flip probability. Defining a subclass with its own ``name`` registers it.

    Attributes:
        classes: C, the number of labels.
        name: the mechanism's name in conf/groups/mechanism.yaml and in tables.
        needs: the kind of evidence: "distance", "votes", or "nothing".
        output: the kind of release: labels.
        spends: the type of the guarantee of one query; a total budget is divided into such.
        any_classes: the mechanism supports more than two classes.

    Formal guarantees
        - Each label that ``release`` draws has ``guarantee``, exactly, under three assumptions
          (docs/proofs/tables.md): the evidence of neighbouring datasets differs by at most 1, their
          nominal labels differ only if the evidence is 0 for both, and the source is uniform. It
          does not depend on the formula.
        - ``exact_flip`` is the probability with which ``release`` flips a label.
          ``flip_probability``, the formula, agrees with it to double precision, and to a few units
          of 2^-128 / min(1, budget) (tests measure it).
        - The running time of a release is not claimed to be independent of the data.
    """

    output: ClassVar[Output] = Output.LABELS
    spends: ClassVar[GuaranteeKind] = PureDP

    def __init_subclass__(cls) -> None:
        """Register a subclass that has its own ``name``, when it is defined."""
        super().__init_subclass__()
        register(cls, MECHANISMS)

    @property
    def guarantee(self) -> Guarantee:
        """The privacy guarantee of one label, with this mechanism's budget parameters."""
        guarantee_kind = self.spends
        # The mechanism's settings have the names of the guarantee's parameters, such as eps.
        parameters = {name: getattr(self, name) for name in guarantee_kind.parameter_names}
        return guarantee_kind(**parameters)

    def for_changed_votes(self, changed_votes: int) -> Self:
        """Return a mechanism with this guarantee where one edit may change several members' votes.

        An edit is the smallest change of the training data that makes a neighbour, such as one
        record removed. Mechanisms that read stable distances return themselves, because a stable
        distance already takes several votes into account. Mechanisms that add noise to votes
        override this method.

        Args:
            changed_votes: the number of members' votes that one edit may change, at least 1.
        """
        return self

    def _flip(self, distance: np.ndarray) -> np.ndarray:
        """Return the formula's probability that the released label is not the nominal one.

        It need not be private: tables correct it where the guarantee asks for more.
        Every subclass overrides it; this default raises NotImplementedError.

        Args:
            distance: the evidence as float64 of any shape, at least 0.

        Returns:
            float64 of the same shape, from 0 to (C - 1) / C.
        """
        raise NotImplementedError

    @classmethod
    def with_guarantee(cls, guarantee: Guarantee, classes: int = 2) -> Self:
        """Return the mechanism of this class that has a given guarantee per query.

        Args:
            guarantee: the guarantee of one query's label.
            classes: C, the number of labels.

        Raises:
            ConfigError: the mechanism does not have the guarantee's parameters (smooth_cauchy has
                no delta, say), or does not support as many classes.
        """
        settings = {**guarantee.parameters, "classes": classes}
        return validate(cls, settings, f"mechanism={cls.name}")

    def flip_probability(self, distance: np.ndarray) -> np.ndarray:
        """Return the probability that the released label is not the nominal one.

        Args:
            distance: integers >= 0 of any shape: the evidence of each query, which is a stable
                distance (how many edits of the training data certainly leave the label) or a gap
                between vote counts.

        Returns:
            float64 of the same shape, exact to double precision, also where it is very small.

        Raises:
            ConfigError: the evidence is negative, or not integer.
        """
        evidence = _check_evidence(distance, self.needs, MAX_DISTANCE)
        by_formula = self._flip(evidence.astype(np.float64))
        return np.maximum(by_formula, self._minimum_flip)

    def exact_flip(self, distance: int) -> Fraction:
        """Return the exact probability with which ``release`` flips a label, a multiple of 2^-128.

        Args:
            distance: the evidence of a query, an integer >= 0: a stable distance (how many edits of
                the training data certainly leave the label) or a gap between vote counts.

        Raises:
            ConfigError: the evidence is negative.
        """
        (evidence,) = _check_evidence(np.array([distance]), self.needs, MAX_DISTANCE)
        flipping_values = self._flip_threshold(evidence)  # of the DRAW_VALUES = 2^128 of a draw
        return Fraction(flipping_values, DRAW_VALUES)

    def release(
        self,
        predictions: np.ndarray,
        distances: np.ndarray,
        source: Randomness,
        max_evidence: int | None = None,
    ) -> np.ndarray:
        """Draw a private label for each query; each draw spends the guarantee once.

        The label is the nominal one, or with the flip probability one of the others, all equally
        likely.

        Args:
            predictions: [n] integers in 0..C-1, the nominal labels (those of the trained model).
            distances: [n] integers >= 0, the evidence that each label is stable.
            source: SystemRandomness for a private release; any other source makes a simulation.
            max_evidence: a public upper bound on the evidence; larger evidence is replaced by it.
                With it, array operations and their shapes do not depend on labels and evidence.
                None: the largest evidence of the call takes its place, and the running time may
                reveal it.

        Returns:
            [n] int64 labels.

        Raises:
            ConfigError: shapes disagree, or values are out of range.
        """
        largest = MAX_DISTANCE
        if max_evidence is not None:
            largest = min(max_evidence, MAX_DISTANCE)
        evidence = _check_evidence(distances, self.needs, largest)
        labels = self._check_labels(predictions, evidence)
        table_end = largest  # a public length of the table reveals nothing
        if max_evidence is None:
            table_end = int(evidence.max(initial=0))
        # Usually ``draw_observably`` calls the function. An audit may replace it, given this
        # description: the distribution's name, its public parameters and its private input.
        draw = Draw("labels", (self, max_evidence, len(labels)), (labels, evidence))
        return draw_observably(
            source, draw, lambda source: self._draw_labels(labels, evidence, table_end, source)
        )

    def _draw_labels(
        self, labels: np.ndarray, evidence: np.ndarray, table_end: int, source: Randomness
    ) -> np.ndarray:
        """Draw a label for each query from the threshold table.

        A uniform 128-bit integer below a query's threshold flips its label. For more than two
        classes the integer also decides which of the other labels is released.

        Args:
            labels: [n] int64 in 0..C-1, the nominal labels.
            evidence: [n] int64 in 0..table_end.
            table_end: the largest evidence of the table that is looked up.
            source: the source of uniform integers.

        Returns:
            [n] int64 labels.
        """
        draws = source.words(len(labels))  # [n, 2]: 128 bits as two words
        thresholds, threshold_words = self._thresholds_up_to(table_end)
        limits = threshold_words[evidence]
        # draws < limits for integers of 128 bits: the more significant words are compared first.
        high_is_less = draws[:, 0] < limits[:, 0]
        high_is_equal = draws[:, 0] == limits[:, 0]
        low_is_less = draws[:, 1] < limits[:, 1]
        is_flipped = high_is_less | (high_is_equal & low_is_less)
        if self.classes == 2:
            return np.where(is_flipped, 1 - labels, labels)
        # The values below the threshold are divided equally among the other labels. A rank is
        # computed for every query, flipped or not, so that the work does not depend on the draws.
        other_labels = self.classes - 1
        ranks = []
        for (high, low), value in zip(draws.tolist(), evidence.tolist(), strict=True):
            draw = (high << 64) | low
            values_per_label = max(thresholds[value] // other_labels, 1)
            ranks.append(min(draw // values_per_label, other_labels - 1))
        rank = np.array(ranks, dtype=np.int64)
        other_label = rank + (rank >= labels)  # ranks skip the nominal label
        return np.where(is_flipped, other_label, labels)

    def expected_accuracy(
        self, predictions: np.ndarray, distances: np.ndarray, labels: np.ndarray
    ) -> float:
        """Return the expected accuracy of the released labels, exactly and without drawing any.

        Args:
            predictions: [n] the nominal labels (those of the trained model).
            distances: [n] integers >= 0, the evidence of each query: a stable distance (how many
                edits of the training data certainly leave the label) or a gap between vote counts.
            labels: [n] the true labels.
        """
        flip = self.flip_probability(distances)
        nominal_labels = self._check_labels(predictions, np.asarray(distances))
        is_right = nominal_labels == labels
        # A flipped label is each of the other labels with the same probability. Where the nominal
        # label is wrong, one of these is the true label.
        one_other_label = flip / (self.classes - 1)
        probability = np.where(is_right, 1 - flip, one_other_label)  # of the true label
        return float(probability.mean())

    @property
    def _minimum_flip(self) -> float:
        """The smallest flip probability of a table with positive entries: (C - 1) / 2^128."""
        return math.ldexp(self.classes - 1, -DRAW_BITS)

    @cached_property
    def _table(self) -> ThresholdTable:
        """The table from which labels are drawn, as close to ``_flip`` as privacy allows."""
        rule = rule_for_guarantee(self.guarantee, self.classes)
        return ThresholdTable(rule, self._requested_entry)

    def _thresholds_up_to(self, max_evidence: int) -> tuple[list[int], np.ndarray]:
        """Return, and cache, the flip thresholds for all evidence from 0 to ``max_evidence``.

        A uniform 128-bit integer below the threshold flips the label.

        Args:
            max_evidence: the largest evidence that is looked up, at least 0.

        Returns:
            (the thresholds as Python integers, [max_evidence + 1, 2] uint64: each as two 64-bit
            words, the more significant one first).
        """
        # The dataclass is frozen, so the cache is written to the instance's dictionary. It holds
        # one length of table, that of the latest release.
        cache: dict[int, tuple[list[int], np.ndarray]] = self.__dict__.setdefault(
            "_threshold_cache", {}
        )
        if max_evidence not in cache:
            thresholds = [self._flip_threshold(value) for value in range(max_evidence + 1)]
            high_and_low_words = [divmod(threshold, 1 << 64) for threshold in thresholds]
            threshold_words = np.array(high_and_low_words, dtype=np.uint64).reshape(-1, 2)
            cache.clear()
            cache[max_evidence] = (thresholds, threshold_words)
        return cache[max_evidence]

    def _flip_threshold(self, evidence: int) -> int:
        """Return the number of 128-bit uniform draws that flip the label.

        Args:
            evidence: a stable distance or gap between vote counts, an integer >= 0.
        """
        values_per_wrong_label = self._table.entries_up_to(evidence)[evidence]
        return (self.classes - 1) * values_per_wrong_label

    def _requested_entry(self, distance: int) -> int:
        """Return the table entry that the formula ``_flip`` asks for, rounded up, at least 1.

        An entry is how many of the 2^128 values of a uniform draw release one given wrong label.

        Args:
            distance: a stable distance or gap between vote counts, which is the index of the entry.
        """
        (flip,) = self._flip(np.array([float(distance)])).tolist()
        flipping_values = math.ldexp(flip, DRAW_BITS)  # flip * 2^128
        wrong_labels = self.classes - 1  # each gets an equal part of these values
        return max(1, math.ceil(flipping_values / wrong_labels))

    def _check_labels(self, predictions: np.ndarray, evidence: np.ndarray) -> np.ndarray:
        """Return nominal labels as [n] int64.

        Args:
            predictions: the labels to check.
            evidence: [n] the evidence; only its shape is compared.

        Raises:
            ConfigError: the labels are not integers in 0..C-1, one for each piece of evidence.
        """
        labels = np.asarray(predictions)
        is_integer = labels.dtype.kind in "iu"  # signed or unsigned
        if not is_integer or labels.ndim != 1 or labels.shape != evidence.shape:
            raise ConfigError(
                f"mechanism={self.name}: predictions and distances must be one-dimensional arrays "
                f"of integers, one for each query, but the predictions have type {labels.dtype} "
                f"and shape {labels.shape}, and the distances type {evidence.dtype} and shape "
                f"{evidence.shape}"
            )
        if len(labels) and not (labels.min() >= 0 and labels.max() < self.classes):
            last = self.classes - 1
            raise ConfigError(
                f"mechanism={self.name}: predictions must be labels between 0 and {last}, but they "
                f"lie between {labels.min()} and {labels.max()}: correct the predictions"
            )
        return labels.astype(np.int64)


def _check_evidence(values: np.ndarray, need: Need, largest: int) -> np.ndarray:
    """Return evidence as int64, with values above ``largest`` replaced by it.

    A gap between vote counts is replaced by ``largest`` or ``largest - 1``, whichever has the same
    parity, because even and odd gaps have separate tables. The evidence of neighbouring datasets
    still differs by at most 1.

    Args:
        values: integers >= 0 of any shape: stable distances (how many edits of the training data
            certainly leave a label) or gaps between vote counts.
        need: the kind of evidence; for "nothing", all of it becomes 0.
        largest: the largest value that is returned, at least 1.

    Raises:
        ConfigError: the evidence is negative, or not integer.
    """
    evidence = np.asarray(values)
    kind = "unused" if need == "nothing" else need
    if evidence.dtype.kind not in "iu":  # neither signed nor unsigned integers
        raise ConfigError(
            f"the evidence for each query ({kind}) must be given as integers, because it counts "
            f"records or votes, but its type is {evidence.dtype}"
        )
    if evidence.size and evidence.min() < 0:
        raise ConfigError(
            f"the evidence for each query ({kind}) must be at least 0, but some is negative"
        )
    if need == "nothing":
        return np.zeros(evidence.shape, dtype=np.int64)
    if need == "votes":
        # ``largest`` where the gap has the same parity, else ``largest - 1``.
        largest_of_parity = largest - (evidence - largest) % 2
        return np.where(evidence > largest, largest_of_parity, evidence).astype(np.int64)
    return np.minimum(evidence, largest).astype(np.int64)
