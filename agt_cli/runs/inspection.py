"""What a table holds, and the parts that its columns could have."""

from dataclasses import dataclass
from pathlib import Path

from agt.data.csv_format import CsvFormat
from agt.data.target import ClassTarget, NumericTarget, Target
from agt_cli.runs.column import CODES_REMARK, Column
from agt_cli.runs.doubts import MAX_CLASS_NUMBERS, DataWarning


def round_number(rows: int) -> int:
    """Return a round number near a number of rows: one digit, or two from 1,000 on."""
    return int(float(f"{rows:.{1 + (rows >= 1000)}g}"))


@dataclass(frozen=True)
class Inspection:
    """What a table holds, and the parts that its columns could have.

    Attributes:
        path: the file.
        form: the format of a csv; None: the file is no csv.
        rows: the number of rows.
        columns: the columns in the order of the file, label and id included.
        label: the column of labels; None: it is not evident which column this is.
        labels: the columns that may be the label, the likeliest first.
        id: the column that the owner says to identify each record permanently; None: not given.
        target: what labels are; None: there is no label, nobody said of very many numbers that
            they are labels, or their range is not declared.
        may_be_numbers: True: the owner did not say what labels are, and they are at least
            ``MIN_QUANTITY_NUMBERS`` different numbers.
        unit: the column that identifies the person of each record, where a person may have several;
            None: not given.
        warnings: the warnings about what may be a mistake in the file.
        unlabelled: the number of rows that are left out, because they have no label; ``rows`` and
            ``columns`` are about the others.
        label_markers: values of the label that mean that the label is missing.
        label_reason: a clause on why this column is taken as the label; empty: the owner named it.
        repeated: the number of rows that are equal to an earlier row in the label and in every
            feature, if they are so many (``REPEATED_SHARE``) that accuracy says little about new
            records where no column names records; else 0.
    """

    path: Path
    form: CsvFormat | None
    rows: int
    columns: tuple[Column, ...]
    label: str | None
    labels: tuple[str, ...]
    id: str | None
    target: Target | None
    may_be_numbers: bool = False
    unit: str | None = None
    warnings: tuple[DataWarning, ...] = ()
    unlabelled: int = 0
    label_markers: tuple[str, ...] = ()
    label_reason: str = ""
    repeated: int = 0

    @property
    def numbers(self) -> NumericTarget | None:
        """The declared range of labels that are numbers; None: classes, or no range is declared."""
        return None if self.target is None else self.target.numeric

    @property
    def classes(self) -> tuple[str, ...]:
        """The values of the label, in the order of the classes; empty: labels are not classes."""
        return self.target.names if isinstance(self.target, ClassTarget) else ()

    @property
    def label_column(self) -> Column | None:
        """The column of labels; None: it is not evident which column this is."""
        return next((column for column in self.columns if column.name == self.label), None)

    @property
    def needs_target(self) -> bool:
        """True: labels are so many different numbers that the owner has to say what they are."""
        column = self.label_column
        return self.may_be_numbers and column is not None and column.distinct > MAX_CLASS_NUMBERS

    @property
    def identifying_columns(self) -> list[Column]:
        """The columns that the owner says to identify records or people."""
        return [column for column in self.columns if column.name in (self.id, self.unit)]

    @property
    def row_number_ids(self) -> list[str]:
        """The columns that the owner says to identify records or people, but that look like row
        numbers.
        """
        return [column.name for column in self.identifying_columns if column.resembles_row_numbers]

    @property
    def possible_people(self) -> list[Column]:
        """The columns that may name people, some of whom have several rows.

        It is empty where somebody said whose the rows are.
        """
        if self.identifying_columns:
            return []
        return [
            column
            for column in self.columns
            if column.may_name_people
            and column.name != self.label
            and 1 < column.distinct < self.rows - column.missing
        ]

    @property
    def possible_row_numbers(self) -> list[Column]:
        """The columns that may name records or people, but look like row numbers."""
        return [column for column in self.columns if column.may_be_row_numbers]

    @property
    def label_predictors(self) -> list[str]:
        """The features that predict nearly every label by themselves."""
        return [column.name for column in self.features if column.predicted_share]

    @property
    def possible_codes(self) -> tuple[str, ...]:
        """The features of few whole numbers, which are taken as ordered but may be codes."""
        return tuple(column.name for column in self.features if column.remark == CODES_REMARK)

    @property
    def rounded_rows(self) -> int:
        """A round number near the number of rows."""
        return round_number(self.rows)

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns proposed as features."""
        return tuple(
            column for column in self._candidate_features if column.numeric or column.categorical
        )

    @property
    def left_out(self) -> tuple[Column, ...]:
        """The columns that have no part, each with a remark that says why."""
        return tuple(
            column
            for column in self._candidate_features
            if not (column.numeric or column.categorical)
        )

    @property
    def _candidate_features(self) -> list[Column]:
        """The columns that are neither the label, the id nor the unit."""
        return [
            column for column in self.columns if column.name not in (self.label, self.id, self.unit)
        ]
