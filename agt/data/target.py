"""What the labels of a dataset are: classes, or numbers with a declared public range.

A dataset carries one ``Target`` and asks it. No other module decides by the kind of labels.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from agt.data.records import UNLABELLED
from agt.data.settings import check_label_range
from agt.errors import ConfigError, DataError
from agt.messages import Message


class Target(ABC):
    """The kind of labels of a dataset: classes, or numbers in a public range.

    Attributes:
        unlabelled: the label of a query without a label.
    """

    unlabelled: int | float

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """The names of the label values 0, 1, ....

        Raises:
            ConfigError: labels are numbers, so there are no classes.
        """

    @property
    def numeric(self) -> "NumericTarget | None":
        """The target itself if labels are numbers; else None, the default."""
        return None

    @property
    def class_count(self) -> int | None:
        """The number of classes; None if labels are numbers."""
        return None if self.numeric is not None else len(self.classes)

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The target as JSON values, from which ``read_target`` makes it again."""

    @abstractmethod
    def check(self, name: str, split: str, labels: np.ndarray) -> None:
        """Raise DataError unless labels are values of this target.

        Args:
            name: the dataset's name, for the message.
            split: "train" or "test", for the message.
            labels: [n] the labels of the split's records.
        """

    @abstractmethod
    def check_trainable(self, name: str) -> None:
        """Raise DataError if every record has the same label by construction.

        Args:
            name: the dataset's name, for the message.
        """

    @abstractmethod
    def are_known(self, labels: np.ndarray) -> np.ndarray:
        """Return whether each query has a label, [n] bool.

        Args:
            labels: [n] labels of queries, some of which may be ``unlabelled``.
        """

    @abstractmethod
    def labels_of(self, cells: Sequence[str]) -> np.ndarray:
        """Return the labels of the cells of a file of released labels, [n].

        Args:
            cells: names of classes, or numbers as Python prints them.

        Raises:
            KeyError: a cell names no class.
            ValueError: a cell is no number.
        """

    @abstractmethod
    def notes(self, labels: np.ndarray) -> list[str]:
        """Return notes about the training labels for the data owner, a sentence each.

        Args:
            labels: [n] the labels of the training records.
        """


@dataclass(frozen=True)
class ClassTarget(Target):
    """Labels are classes, stored as int64 indices into ``names``.

    Attributes:
        names: the names of the label values 0, 1, ....
    """

    names: tuple[str, ...]
    unlabelled = UNLABELLED

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the label values 0, 1, ...."""
        return self.names

    @property
    def description(self) -> dict[str, Any]:
        """The names as JSON values."""
        return {"names": self.names}

    def check(self, name: str, split: str, labels: np.ndarray) -> None:
        """Raise DataError if a label is no index of a class."""
        if labels.min() < 0 or labels.max() >= len(self.names):
            raise DataError(
                f"{name}: the {split} labels must lie between 0 and "
                f"{len(self.names) - 1}, because there are {len(self.names)} classes"
            )

    def check_trainable(self, name: str) -> None:
        """Raise DataError if there are fewer than two classes."""
        if len(self.names) < 2:
            raise DataError(
                f"{name}: every record has the class {self.names[0]!r}, but training needs "
                "records of at least two classes"
            )

    def are_known(self, labels: np.ndarray) -> np.ndarray:
        """Return whether each label differs from ``UNLABELLED``, [n] bool."""
        return np.asarray(labels != UNLABELLED)

    def labels_of(self, cells: Sequence[str]) -> np.ndarray:
        """Return the indices of classes that are given by name, [n] int64."""
        index = {name: label for label, name in enumerate(self.names)}
        return np.array([index[cell] for cell in cells], dtype=np.int64)

    def notes(self, labels: np.ndarray) -> list[str]:
        """Return a sentence about the classes that no training record has, if there are any."""
        counts = np.bincount(labels, minlength=len(self.names))
        empty = [name for name, count in zip(self.names, counts, strict=True) if not count]
        if not empty:
            return []
        return [f"no training record has the class {', '.join(map(repr, empty))}."]


@dataclass(frozen=True)
class NumericTarget(Target):
    """Labels are numbers in a declared public range, stored as float64.

    Labels outside of the range are clipped into it, each by itself, so that clipping one record's
    label depends on no other record.

    Attributes:
        low, high: the ends of the range, public constants.

    Raises:
        ConfigError: an end is not finite or beyond ``MAX_LABEL``, ``low`` is not below ``high``, or
            the range is too narrow to have a middle.
    """

    low: float
    high: float
    unlabelled = math.nan

    def __post_init__(self) -> None:
        """Raise ConfigError unless the range is one."""
        check_label_range(self.low, self.high)

    @classmethod
    def declared(cls, bounds: Any) -> Self:
        """Return the target with a range that a user declared.

        Args:
            bounds: two numbers, the lower end first.

        Raises:
            ConfigError: they are not two numbers, or no range.
        """
        try:
            low, high = map(float, bounds)
        except (TypeError, ValueError, OverflowError):  # overflow: an integer beyond every float
            raise ConfigError(
                Message(
                    "{config:dataset.range}={bounds}: a numeric target needs a public range, so "
                    "give two numbers, such as [0, 100]",
                    bounds=bounds,
                )
            ) from None
        return cls(low, high)

    @property
    def classes(self) -> tuple[str, ...]:
        """Raise ConfigError: numbers have no classes."""
        raise ConfigError(
            Message(
                "{config:dataset.target}=numeric makes the labels numbers, but the chosen "
                "certificate, mechanism or command needs classes. Numbers work with "
                "certificate=votes, and are released by {config:mechanism=laplace_mean}"
            )
        )

    @property
    def numeric(self) -> "NumericTarget":
        """The target itself."""
        return self

    @property
    def description(self) -> dict[str, Any]:
        """The range as JSON values."""
        return {"range": [self.low, self.high]}

    @property
    def width(self) -> float:
        """The width of the range, b - a."""
        return self.high - self.low

    @property
    def bounds(self) -> str:
        """The range as text, such as ``[0, 100]``."""
        return f"[{self.low:g}, {self.high:g}]"

    @property
    def middle(self) -> float:
        """The middle of the range."""
        return self.low + self.width / 2

    def check(self, name: str, split: str, labels: np.ndarray) -> None:
        """Raise DataError if a label is NaN or outside of the range, where clipping puts none."""
        if not bool(((labels >= self.low) & (labels <= self.high)).all()):  # NaN compares false
            raise DataError(
                f"{name}: the {split} labels must be numbers between {self.low:g} and "
                f"{self.high:g}: correct these labels"
            )

    def check_trainable(self, name: str) -> None:
        """Accept any labels: a range of one number was refused when it was declared."""

    def are_known(self, labels: np.ndarray) -> np.ndarray:
        """Return whether each label is a number and not NaN, [n] bool."""
        return ~np.isnan(labels)

    def labels_of(self, cells: Sequence[str]) -> np.ndarray:
        """Return numbers that are given as text, [n] float64."""
        return np.array([float(cell) for cell in cells])

    def notes(self, labels: np.ndarray) -> list[str]:
        """Return nothing: ``clipping_notes`` reads the labels before they are clipped."""
        return []

    def clip(self, labels: np.ndarray) -> np.ndarray:
        """Return labels [n] clipped into the range, as float64; NaN stays NaN."""
        return np.clip(labels.astype(np.float64), self.low, self.high)

    def clipping_notes(self, labels: np.ndarray) -> tuple[str, ...]:
        """Return notes about labels outside of the range for the data owner, a sentence each.

        Args:
            labels: [n] the training labels as the data has them.
        """
        outside_count = int(((labels < self.low) | (labels > self.high)).sum())
        if not outside_count:
            return ()
        counted = (
            f"{outside_count:,} of {len(labels):,} training labels lie outside of "
            f"dataset.range={self.bounds} "
            "and were clipped to its nearer end."
        )
        if 2 * outside_count <= len(labels):
            return (counted,)
        return (
            f"WARNING: {counted} These are most of the labels, so answers will be wrong: declare "
            "the range that the labels really have, in the unit of the data.",
        )

    def at(self, shares: np.ndarray) -> np.ndarray:
        """Return the numbers at shares of the way from ``low`` to ``high``, float64.

        Larger shares have no smaller numbers, rounding included, and 0 and 1 have the ends
        themselves (Lemma 2 of docs/proofs/numbers.md).

        Args:
            shares: float64 of any shape, from 0 to 1.
        """
        clipped = np.minimum(self.low + self.width * shares, self.high)
        return np.where(shares == 1.0, self.high, clipped)

    def scaled(self, labels: np.ndarray) -> np.ndarray:
        """Return labels [n] as numbers from -1 (``low``) to 1 (``high``), float64."""
        return np.clip((labels - self.middle) / (self.width / 2), -1.0, 1.0)

    def unscaled(self, scaled: np.ndarray) -> np.ndarray:
        """Return numbers of the range from numbers on the scale of ``scaled``, float64.

        Args:
            scaled: float64 of any shape; numbers outside of -1 to 1 give the nearer end.
        """
        return self.at((np.clip(scaled, -1.0, 1.0) + 1.0) / 2)


def declared_numbers(target: object, bounds: object) -> NumericTarget | None:
    """Return the target of numeric labels that a program declares; None: labels are classes.

    Args:
        target: ``classes`` or ``numeric``.
        bounds: the public range of numeric labels, two numbers; None for classes.

    Raises:
        ConfigError: the target is unknown, or the range is missing, none, or given for classes.
    """
    if target not in ("classes", "numeric"):
        raise ConfigError(
            Message("{config:dataset.target}={target!r}: give classes or numeric", target=target)
        )
    if target == "numeric":
        return NumericTarget.declared(bounds)
    if bounds is not None:
        raise ConfigError(
            Message(
                "{config:dataset.range}={bounds}: only numeric labels have a range: give "
                "{config:dataset.target}=numeric as well, or leave the range out",
                bounds=bounds,
            )
        )
    return None


def read_target(node: Mapping[str, Any]) -> Target:
    """Return the target from the JSON values of ``Target.description``.

    Args:
        node: the values, among others.

    Raises:
        ConfigError: the range is none.
        KeyError: there are neither names nor a range.
    """
    if "range" in node:
        return NumericTarget.declared(node["range"])
    return ClassTarget(tuple(node["names"]))


def check_numbers(labels: np.ndarray, where: str) -> np.ndarray:
    """Return the labels of training records as float64.

    Args:
        labels: [n] as a program gave them.
        where: the name of the labels in messages.

    Raises:
        DataError: a label is text, NaN or infinite.
    """
    if labels.dtype.kind not in "fiub":
        raise DataError(
            f"{where}: a numeric target needs numbers, but the labels have the type "
            f"{labels.dtype}: convert them, or use a model of classes if they are classes"
        )
    numbers = labels.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise DataError(
            f"{where}: row {bad[0]} has {numbers[bad[0]]}, but every label must be a finite "
            "number: correct or remove this record"
        )
    return numbers
