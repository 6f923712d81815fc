"""The unit of a guarantee: which records of a table are added or removed together."""

from dataclasses import dataclass

from agt import sentences
from agt.errors import ConfigError


@dataclass(frozen=True)
class Unit:
    """Which records of a table are added or removed together, to make a neighbouring dataset.

    Attributes:
        column: the column that identifies the person of each record; None: each record is a unit
            of its own.
        rows: the largest number of records that one unit may have.

    Raises:
        ConfigError: ``column`` is not text, or ``rows`` is not a whole number of at least 1.
    """

    column: str | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        """Raise ConfigError if the column is not text, or the number of records is below 1."""
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
        """Return whether a guarantee for this unit also holds for another unit, at the same cost.

        It does if both have the same column, and the other one has at most as many records (Lemma 5
        of docs/proofs/ledger.md). A guarantee for single records does not cover a column's units,
        because for a unit of n records the same release costs n times as much (group privacy).
        """
        return self.column == other.column and self.rows >= other.rows

    @property
    def name(self) -> str:
        """A phrase for one unit ("one record", "one customer"), if the owner gave none."""
        return "one record" if self.column is None else f"one {self._shown}"

    @property
    def settings(self) -> str:
        """The settings of ``agt train`` that give a run this unit, for messages."""
        return (
            "dataset.unit=null"
            if self.column is None
            else f"dataset.unit={self._shown} relation.unit_rows={self.rows}"
        )

    @property
    def _shown(self) -> str:
        """The column's name for messages, without characters that would break a line."""
        return sentences.printable(str(self.column))

    def __str__(self) -> str:
        """Return a phrase for messages that says which records belong to one unit."""
        return (
            "each record by itself"
            if self.column is None
            else f"each person (column {self._shown}, up to {self.rows} records each)"
        )


SINGLE_RECORDS = Unit()  # each record is a separate unit
