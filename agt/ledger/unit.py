"""Whose records come and go together, and which guarantees cover which units."""

from dataclasses import dataclass

from agt import sentences
from agt.errors import ConfigError


@dataclass(frozen=True)
class Unit:
    """Which records of a table are added or removed together.

    Attributes:
        column: the column that says whose record each one is; None if each record is a unit by
            itself.
        rows: the largest number of records that one unit has.

    Raises:
        ConfigError: ``column`` is not text, or ``rows`` is not a whole number of at least 1.
    """

    column: str | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        if self.column is not None and type(self.column) is not str:
            raise ConfigError(
                f"unit_column={self.column!r} is not text: give the name of the column that "
                "identifies people"
            )
        if type(self.rows) is not int or self.rows < 1:
            raise ConfigError(
                f"unit_rows={self.rows!r}: give a whole number of records, at least 1"
            )

    def covers(self, other: "Unit") -> bool:
        """Return whether a guarantee for this unit also holds for the other.

        Units of the same column with at most as many records are covered (Lemma 5 of
        docs/proofs/ledger.md). Each record by itself covers no column's units: for a unit of n
        records the same release costs n times as much (group privacy).
        """
        return self.column == other.column and self.rows >= other.rows

    @property
    def name(self) -> str:
        """The unit in words, used where the owner gave no other words."""
        return "one record" if self.column is None else f"one {self._shown}"

    @property
    def settings(self) -> str:
        """The settings of a training run that counts in this unit."""
        return (
            "dataset.unit=null"
            if self.column is None
            else f"dataset.unit={self._shown} relation.unit_rows={self.rows}"
        )

    @property
    def _shown(self) -> str:
        """The column's name, without characters that do not fit in a line."""
        return sentences.printable(str(self.column))

    def __str__(self) -> str:
        """Return how records are counted, in words."""
        return (
            "each record by itself"
            if self.column is None
            else f"each person (column {self._shown}, up to {self.rows} records each)"
        )


EACH = Unit()  # each record by itself
