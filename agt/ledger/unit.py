"""Whose records come and go together, as a run counts them, and whether a run protects whom a budget is about.

Formal guarantees
    A guarantee between neighbours that differ in one unit of up to m records holds for units of up to n <= m records, named
    by the same column, as such neighbours are some of those (``covers``). Of a unit of n records, a guarantee that counts
    each record by itself says n times as much (group privacy), so it covers no column's.
"""

from dataclasses import dataclass

from agt.errors import ConfigError


@dataclass(frozen=True)
class Unit:
    """What one step of privacy is in the records of a table.

    Attributes:
        column: that says whose record each is; None: each is a unit by itself.
        rows: at most so many records are one unit's.

    Raises:
        ConfigError: no name of a column, or no number of records.
    """

    column: str | None = None
    rows: int = 1

    def __post_init__(self) -> None:
        if self.column is not None and type(self.column) is not str:
            raise ConfigError(f"unit_column={self.column!r}: give the name of a column")
        if type(self.rows) is not int or self.rows < 1:
            raise ConfigError(f"unit_rows={self.rows!r}: give a whole number of records, 1 at least")

    def covers(self, other: "Unit") -> bool:
        """Whether what is guaranteed of this unit is guaranteed of the other."""
        return self.column == other.column and self.rows >= other.rows

    @property
    def name(self) -> str:
        """In words, where nobody gave other ones."""
        return "one record" if self.column is None else f"one {self._shown}"

    @property
    def settings(self) -> str:
        """Of a training run that counts so."""
        return "dataset.unit=null" if self.column is None else f"dataset.unit={self._shown} relation.unit_rows={self.rows}"

    @property
    def most(self) -> int:
        """How many records claims give to one."""
        return 1 if self.column is None else self.rows

    @property
    def _shown(self) -> str:
        """The column's name, fit for a line."""
        return str(self.column) if str(self.column).isprintable() else ascii(self.column)

    def means(self, name: str) -> str:
        """What is declared of a table where this unit goes by a population's words for one."""
        if self.column is None:
            return f"a unit is {name}" if name == self.name else f"each record is {name}"
        return f"a unit is {name}: the records with one value of {self._shown}, up to {self.rows}"

    def __str__(self) -> str:
        """How it counts."""
        return "each record by itself" if self.column is None else f"by {self._shown}, up to {self.rows} records each"


EACH = Unit()
