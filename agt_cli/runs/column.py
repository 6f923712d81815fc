"""What a column of a table holds, and what is proposed for it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from agt.data.formats import DeclaredFormat, date_of
from agt_cli.runs.ranges import number

ColumnKind = Literal[
    "number", "category", "id", "constant", "empty", "date", "text", "unreadable", "dropped"
]
MAX_LISTED_VALUES = 100
"""The largest number of values of a proposed list, unless the owner gives another one."""
MOST_VALUES_LIMIT = 10_000
"""The largest number that the owner may give."""
MAX_CODES = 12
"""As many distinct whole numbers may well be codes."""
CODES_REMARK = "or codes?"
"""The remark on a column of few whole numbers, which are taken as ordered."""
LATER_DATES_REMARK = "later dates count as the end of this range"
"""The remark on a column of dates, whose range ends with the last year in the file."""
DROPPED_REMARK = "the setting drop names it"
"""The remark on a column that its owner leaves out."""
UNWRITABLE_WORD = "???"
"""A word that a configuration cannot hold: there it says that a value is required."""
_NAMES_PEOPLE = re.compile(
    r"(^|_)([a-z]?id|uuid|guid)$"
    r"|(^|_)(person|people|patient|customer|cust|client|subject|subj|user|account|member|employee"
    r"|student|pupil|household|voter|owner|donor|borrower|applicant|respondent)"
    r"(_?(id|no|nr|num|number|code|key|name))?$"
)
"""The name of a column, in small letters with _ between its words, that may name people."""


@dataclass(frozen=True)
class ColumnOptions:
    """What the owner of a table says of its columns.

    Attributes:
        missing_values: further values that mean that a value is missing.
        most_values: a column of text with more distinct values is left out.
        formats: column -> how its dates or numbers are declared to be written; those of other
            columns are found in their words.
        ranges: column -> its public range; those of other columns are proposed.
        lists: column -> the public list of its values; those of other columns are proposed.
        codes: columns whose numbers are codes without an order, so they are proposed as lists.
    """

    missing_values: Sequence[str] = ()
    most_values: int = MAX_LISTED_VALUES
    formats: Mapping[str, DeclaredFormat] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    codes: Sequence[str] = ()


DEFAULT_OPTIONS = ColumnOptions()


@dataclass(frozen=True)
class Column:
    """What a column holds, and what is proposed for it.

    Attributes:
        name: the column's name, as the file has it.
        kind: the kind of values that the column holds.
        missing: rows without a value, markers included.
        distinct: different values.
        most_rows: rows with the most frequent one.
        low: the least of the column's numbers; None: the column holds no numbers.
        high: the greatest of the column's numbers; None: the column holds no numbers.
        values: value and count, the most frequent first; empty if there are too many to list.
        markers: values that mean that a value is missing.
        numeric: the range that is proposed; empty: the column is no numeric feature.
        categorical: the list of values that is proposed; empty: the column is no categorical
            feature.
        outside: rows with a number outside of the range, which leaves outliers out.
        public: the range is the type's own, or its owner declared it, or the list of values; it
            was not read off the records.
        mixed: some values are whole numbers, and all others text.
        resembles_row_numbers: its values look like row numbers, as
            ``dataset.resembles_row_numbers`` says.
        in_groups: it has very many different whole numbers, and rows with the same one mostly stand
            together, as the rows of one person do.
        predicted_share: the share of all rows whose label this column predicts by itself, if that
            is nearly all; otherwise 0.
        format: the format of the column's dates or numbers, if it is not the default format.
        remark: a sentence that says why the column is left out and how to include it, or what to
            check.
    """

    name: str
    kind: ColumnKind
    missing: int
    distinct: int
    most_rows: int = 0
    low: float | None = None
    high: float | None = None
    values: tuple[tuple[str, int], ...] = ()
    markers: tuple[str, ...] = ()
    numeric: tuple[float, ...] = ()
    categorical: tuple[str, ...] = ()
    outside: int = 0
    public: bool = False
    mixed: bool = False
    resembles_row_numbers: bool = False
    in_groups: bool = False
    predicted_share: float = 0.0
    format: DeclaredFormat | None = None
    remark: str = ""

    @property
    def possible_id(self) -> bool:
        """True: its name and values could identify each record; only the owner knows if they do."""
        return self.kind == "id" and self.most_rows == 1 and not self.resembles_row_numbers

    @property
    def may_be_numeric_id(self) -> bool:
        """True: whole numbers of which no two rows have the same, as ids are, under any name."""
        if not self.numeric or self.low is None or self.high is None:
            return False
        is_whole = self.low.is_integer() and self.high.is_integer()
        return is_whole and self.most_rows == 1 and self.distinct > MAX_CODES

    @property
    def may_be_row_numbers(self) -> bool:
        """True: its name or its values could identify records, but look like row numbers."""
        return self.resembles_row_numbers and (self.kind == "id" or self.may_name_people)

    @property
    def may_name_people(self) -> bool:
        """Whether its values may name people: words that are too many to list, numbers that stand
        in groups, or a name that says so. Only the owner knows if they do.
        """
        if self.kind in ("unreadable", "date", "dropped"):
            return False
        if not (self.numeric or self.categorical or self.values):
            return True
        if self.in_groups:
            return True
        name = "_".join(words_in_name(self.name))
        return self.distinct > MAX_CODES and _NAMES_PEOPLE.search(name) is not None

    @property
    def unlisted(self) -> tuple[tuple[str, int], ...]:
        """The values, with their numbers of rows, that the proposed list leaves out.

        It is empty where no list is proposed.
        """
        if not self.categorical:
            return ()
        listed = {*self.categorical, *self.markers}
        return tuple((word, rows) for word, rows in self.values if word not in listed)

    @property
    def outlying_values(self) -> tuple[str, ...]:
        """The least and the greatest value, as far as they are outside of the proposed range."""
        if not self.outside or self.low is None or self.high is None:
            return ()
        ends = []
        if self.low < self.numeric[0]:
            ends.append(self.bound(self.low))
        if self.high > self.numeric[-1]:
            ends.append(self.bound(self.high))
        return tuple(ends)

    def bound(self, value: float) -> str:
        """Return an end of this column's range as a configuration writes it: a number or a day.

        Args:
            value: a number; for a column of dates, days since 1970-01-01.
        """
        if self.kind == "date":
            return date_of(value)
        return number(value)


def words_in_name(name: str) -> list[str]:
    """Return the words in a column's name, in small letters.

    'default.payment.next.month', 'PassengerId' and 'loan_status' have several.
    """
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[^\W\d_][^\W\d_A-Z]*", name)]
