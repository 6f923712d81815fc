"""How the text of a cell becomes a number.

A column's format is a public constant of the configuration. What a cell's value is depends on that
cell and on its column's format alone, never on other cells (condition b of reference.md section 3:
each record is processed by itself).
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidatorFunctionWrapHandler, WrapValidator

from agt.messages import Message
from agt.settings import schema

COMMA = r"^[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?$"
"""A number as it is written where a comma stands before decimals."""
ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$"
_DAY = 86_400e6  # microseconds
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_DIRECTIVE_DIGITS = {
    "Y": "4",
    "y": "2",
    "m": "1,2",
    "d": "1,2",
    "H": "1,2",
    "M": "1,2",
    "S": "1,2",
    "f": "1,6",
}
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTH_PREFIXES = tuple(month[:3] for month in MONTHS)
_MONTH_NAMES = {"b": _MONTH_PREFIXES, "B": MONTHS}
_ZONE = r"Z|[+-]\d{2}(?::?\d{2})?"
_TIME_OF_DAY = "HMSf"
_BLANKS = "[\\s\u00a0\u202f\u2009]"
_THOUSANDS = {" ": _BLANKS, "'": "['\u2019]"}
"""A blank may also be one that does not break the line, and an apostrophe a typographic one."""


class CellFormat(Protocol):
    """A format that reads the cells of one column as numbers.

    Attributes:
        takes_numbers: whether a value that is stored as a number is its own value; otherwise its
            digits are read as text.
    """

    takes_numbers: ClassVar[bool]

    def numbers(self, cells: pa.Array) -> pa.Array:
        """Return float64, each cell read by itself; null stays null.

        Args:
            cells: text.

        Raises:
            ArrowInvalid: some cell is not in this format.
        """

    @property
    def expected(self) -> Message:
        """A sentence for messages that says what a cell must be."""


def in_any_case(word: str) -> str:
    """Return a regular expression for a word of ASCII letters in capital or small letters.

    Nothing else matches it. Where a pattern ignores case, the long s (U+017F) would be an s.
    """
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in word)


def reads(form: CellFormat, words: pa.Array) -> bool:
    """Return whether a format can read all of some cells."""
    with suppress(pa.ArrowInvalid):
        form.numbers(words)  # called because it raises for a cell that it cannot read
        return True
    return False


def read_numbers(cells: pa.Array) -> pa.Array:
    """Return the numbers that text stands for, float64, null where the text is null.

    A date in ISO 8601 becomes days since 1970-01-01. Each cell is read by itself.

    Raises:
        pa.ArrowInvalid: a cell is neither a number nor a date.
    """
    with suppress(pa.ArrowInvalid):
        return cells.cast(pa.float64())  # succeeds for most columns, which have no dates
    dates = pc.match_substring_regex(cells, ISO_DATE)
    numbers = pc.if_else(dates, pa.scalar(None, cells.type), cells).cast(pa.float64())
    if not pc.any(dates).as_py():
        return numbers
    days_of_dates = days_since_1970(pc.if_else(dates, cells, pa.scalar(None, cells.type)))
    return pc.if_else(dates, days_of_dates, numbers)


def days_since_1970(dates: pa.Array, zone: str | None = None) -> pa.Array:
    """Return times as days since 1970-01-01, float64, with fractions of whole microseconds.

    Args:
        dates: dates, times, or their text in ISO 8601.
        zone: "UTC" if the text has time zones; None: the text has no time zones.
    """
    microseconds = pc.CastOptions(pa.timestamp("us", zone), allow_time_truncate=True)
    times = dates.cast(options=microseconds).cast(pa.int64())
    return pc.divide(times.cast(pa.float64(), safe=False), _DAY)


def date_of(days: float) -> str:
    """Return the date of a number of days since 1970-01-01, as text; a time of day is left out."""
    return str(np.datetime64(math.floor(days), "D"))


def days(date: str) -> float:
    """Return the days since 1970-01-01 of one date in ISO 8601; raises ValueError if it is none."""
    if not re.match(ISO_DATE, date):
        raise ValueError(f"{date!r} is not a date: write dates as in 2024-12-31")
    return float(days_since_1970(pa.array([date]))[0].as_py())


@schema
class NumberFormat:
    """The format of numbers in a column.

    Attributes:
        decimal: the character before the decimals.
        thousands: the character that may stand between groups of three digits; empty: no character
            may.
        unit: a sign that may stand before or after the number and does not change it, such as €
            or % (12 % is 12).
    """

    takes_numbers: ClassVar[bool] = True

    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    unit: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError if signs are ambiguous: two equal ones, or a unit with digits."""
        if self.thousands == self.decimal:
            raise ValueError(
                f"decimal and thousands are both {self.decimal!r}: give two different characters"
            )
        if re.search(r"[\d+\-.,'\"]", self.unit) or self.unit != self.unit.strip():
            raise ValueError(
                f"unit={self.unit!r}: give a sign such as € or %. A unit must not contain "
                "digits, plus or minus signs, points, commas or quotation marks, and must not "
                "have blanks around it"
            )

    @cached_property
    def _pattern(self) -> str:
        """The regular expression of a cell, with the groups ``sign`` and ``digits``."""
        point = re.escape(self.decimal)
        between = _THOUSANDS.get(self.thousands, re.escape(self.thousands))
        grouped = rf"\d{{1,3}}(?:{between}\d{{3}})+|" if self.thousands else ""
        digits = rf"(?:(?:{grouped}\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?"
        before = after = ""
        if self.unit:
            unit = re.escape(self.unit)
            before = rf"(?:{unit}{_BLANKS}*)?"
            after = rf"(?:{_BLANKS}*{unit})?"
        return rf"^(?P<sign>[+-]?){before}(?P<digits>{digits}){after}$"

    def matches(self, cells: pa.Array) -> pa.Array:
        """Return [n] bool, whether each cell is a number in this format; null stays null."""
        return pc.match_substring_regex(pc.utf8_trim_whitespace(cells), self._pattern)

    def numbers(self, cells: pa.Array) -> pa.Array:
        """Return the number in each cell, float64; null stays null (``CellFormat.numbers``)."""
        parts = _parts(cells, self._pattern)
        digits = pc.struct_field(parts, "digits")
        if self.thousands:
            between = _THOUSANDS.get(self.thousands, re.escape(self.thousands))
            digits = pc.replace_substring_regex(digits, between, "")
        digits = pc.replace_substring(digits, self.decimal, ".")
        return pc.binary_join_element_wise(pc.struct_field(parts, "sign"), digits, "").cast(
            pa.float64()
        )

    @property
    def expected(self) -> Message:
        """A sentence for messages that says what a cell must be, with an example."""
        example = f"1{self.thousands}234{self.decimal}5"
        if self.unit:
            example = f"{example} {self.unit}"
        return Message(
            (
                "expected a number in the form that the setting dataset.formats declares, such as "
                "{example}"
            ),
            example=example,
        )


def _check_date_format(text: str) -> str:
    """Return the text of a date format; raises ValueError where it is none."""
    directives = _DIRECTIVE.findall(text)
    known = {*_DIRECTIVE_DIGITS, *_MONTH_NAMES, "z"}
    unknown = [name for name in directives if name not in known]
    if unknown:
        raise ValueError(
            f"%{unknown[0]} is not a known code for a part of a date: use %Y (or %y), %m (or %b "
            'or %B, English names), %d, %H %M %S %f and %z, as in "%d.%m.%Y"'
        )
    months = [name for name in directives if name in ("m", *_MONTH_NAMES)]
    years = [name for name in directives if name in ("Y", "y")]
    are_repeated = len(set(directives)) < len(directives)
    is_named_month_of_year = len(directives) == 2 and "m" not in directives
    has_day = "d" in directives or is_named_month_of_year
    if are_repeated or len(months) != 1 or len(years) != 1 or not has_day:
        raise ValueError(
            "a date needs %d, one of %m, %b and %B, and one of %Y and %y, each once, as in "
            '"%d.%m.%Y" or "%d %b %Y"; the name of a month and a year, as in "%b %Y", are its '
            "first day"
        )
    times = [name for name in _TIME_OF_DAY if name in directives]
    if times != [*_TIME_OF_DAY[: len(times)]]:
        raise ValueError(
            "a time of day must begin with the hours: give %H, %H:%M, %H:%M:%S or %H:%M:%S.%f"
        )
    return text


def _check_format(value: object, build: ValidatorFunctionWrapHandler) -> object:
    """Return a checked format of dates (text) or of numbers (built by pydantic from a mapping).

    Raises:
        ValueError: it is no format.
    """
    if isinstance(value, str):
        return _check_date_format(value)
    if not isinstance(value, Mapping | NumberFormat):
        raise ValueError(
            'give a format of dates, such as "%d.%m.%Y", or a mapping that says how numbers are '
            'written, such as {decimal: ",", thousands: "."}'
        )
    return build(value)


if TYPE_CHECKING:
    DeclaredFormat = NumberFormat | str
else:
    DeclaredFormat = Annotated[NumberFormat, WrapValidator(_check_format)]
"""How a column is written: of dates, text in the notation of Python's ``strptime``, such as
"%d.%m.%Y %H:%M".
"""


@dataclass(frozen=True)
class DateFormat:
    """The format of dates in a column; a date is read as the days since 1970-01-01.

    Days, months and hours may lack their leading zero where something stands between them. Of two
    digits for a year, 69 to 99 are 1969 to 1999, and 00 to 68 are 2000 to 2068 (POSIX). Names of
    months are English, in capital or small letters; without a day they are the first of the month.

    Attributes:
        text: the format in the notation of ``strptime``; a time without a time zone is read as UTC.
    """

    takes_numbers: ClassVar[bool] = False

    text: str

    @property
    def _directives(self) -> list[str]:
        return _DIRECTIVE.findall(self.text)

    @cached_property
    def _pattern(self) -> str:
        """The regular expression of a cell, with a group for each directive of ``text``."""
        pattern = "^"
        end = 0
        for directive in _DIRECTIVE.finditer(self.text):
            separator = re.escape(self.text[end : directive.start()])
            pattern += f"{separator}(?P<{directive[1]}>{self._pattern_of(directive)})"
            end = directive.end()
        return f"{pattern}{re.escape(self.text[end:])}$"

    def _pattern_of(self, directive: re.Match[str]) -> str:
        """Return the regular expression of what a directive of ``text`` reads."""
        name = directive[1]
        if name == "z":
            return _ZONE
        if name in _MONTH_NAMES:
            return "|".join(map(in_any_case, _MONTH_NAMES[name]))
        digits = _DIRECTIVE_DIGITS[name]
        if directive.start() in self._touching_directives:
            digits = digits[-1]  # the largest number of them
        return rf"\d{{{digits}}}"

    @cached_property
    def _touching_directives(self) -> set[int]:
        """Where directives of digits begin in ``text`` that nothing separates from another.

        Such digits have a fixed number, because otherwise nothing would say where they end.
        """
        starts: set[int] = set()
        for first, second in pairwise(_DIRECTIVE.finditer(self.text)):
            are_digits = first[1] not in _MONTH_NAMES and second[1] in _DIRECTIVE_DIGITS
            if first.end() == second.start() and are_digits:
                starts |= {first.start(), second.start()}
        return starts

    def numbers(self, cells: pa.Array) -> pa.Array:
        """Return the days since 1970-01-01 in each cell, float64 (``CellFormat.numbers``)."""
        parts = _parts(cells, self._pattern)
        text_of = {name: pc.struct_field(parts, name) for name in self._directives}
        day = _two_digits(text_of["d"]) if "d" in text_of else pa.scalar("01")
        date = pc.binary_join_element_wise(_year(text_of), _month(text_of), day, "-")
        time = pc.binary_join_element_wise(date, _time_of_day(text_of), "T")
        if "z" not in text_of:
            return days_since_1970(time)
        with_zone = pc.binary_join_element_wise(time, text_of["z"], "")
        return days_since_1970(with_zone, "UTC")

    @property
    def expected(self) -> Message:
        """A sentence for messages that says what a cell must be, with an example."""
        example = self.text
        for name, value in zip("YymbBdHMSfz", _EXAMPLE, strict=True):
            example = example.replace(f"%{name}", value)
        return Message(
            (
                "expected a date in the form that the setting dataset.formats declares ({text}), "
                "such as {example}"
            ),
            example=example,
            text=self.text,
        )


_EXAMPLE = ("2024", "24", "12", "Dec", "December", "31", "23", "59", "58", "5", "+01:00")


def _year(text_of: Mapping[str, pa.Array]) -> pa.Array:
    """Return the year of each date in four digits, from the text of each directive."""
    if "y" not in text_of:
        return text_of["Y"]
    is_last_century = pc.greater_equal(text_of["y"], "69")
    century = pc.if_else(is_last_century, "19", "20")
    return pc.binary_join_element_wise(century, text_of["y"], "")


def _month(text_of: Mapping[str, pa.Array]) -> pa.Array:
    """Return the month of each date in two digits, from the text of each directive."""
    for name in _MONTH_NAMES.keys() & text_of.keys():  # one at most
        prefix = pc.utf8_capitalize(pc.utf8_slice_codeunits(text_of[name], 0, 3))
        index = pc.index_in(prefix, pa.array(_MONTH_PREFIXES))
        return _two_digits(pc.add(index, 1).cast(pa.string()))
    return _two_digits(text_of["m"])


def _time_of_day(text_of: Mapping[str, pa.Array]) -> pa.Array:
    """Return the time of day of each date as in 23:59:58.500000, from the text of each directive.

    What no directive reads is 00. Without any directive the result is a scalar.
    """
    parts = []
    for name in "HMS":
        parts.append(_two_digits(text_of[name]) if name in text_of else pa.scalar("00"))
    time = pc.binary_join_element_wise(*parts, ":")
    if "f" not in text_of:
        return time
    return pc.binary_join_element_wise(time, pc.utf8_rpad(text_of["f"], 6, "0"), ".")


def _two_digits(numbers: pa.Array) -> pa.Array:
    """Return text of one or two digits with a zero before a single digit."""
    return pc.utf8_lpad(numbers, 2, "0")


def _parts(cells: pa.Array, pattern: str) -> pa.Array:
    """Return what the groups of a pattern match in each cell, null where the cell is null.

    Raises:
        ArrowInvalid: a cell does not match.
    """
    # Arrow joins no text of two types.
    trimmed = pc.utf8_trim_whitespace(cells).cast(pa.string())
    parts = pc.extract_regex(trimmed, pattern)
    if parts.null_count > trimmed.null_count:
        raise pa.ArrowInvalid("a cell does not have the declared form")
    return parts
