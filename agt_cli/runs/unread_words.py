"""Why a column of words is not read as numbers or as dates, and what to do about it.

Most of its words may be numbers, so that one odd cell keeps the whole column from being a column of
numbers: the clauses name this cell and its line in the file. ``reason_unreadable_numbers`` is about
columns that cannot be used before the owner does something; ``remark_on_words`` is about columns
that can be used as words, although their owner may have meant something else.
"""

import shlex

import numpy as np

from agt.data.column_reader import ColumnReader
from agt_cli.runs.column import MOST_VALUES_LIMIT
from agt_cli.runs.column_values import DATE_PATTERN, NUMBER_WITH_COMMA_PATTERN, ColumnValues
from agt_cli.runs.doubts import is_infinite
from agt_cli.runs.formats import format_setting, number_text_in_format, suffixed_numbers
from agt_cli.table_settings import columns_override

_OPEN_END_PATTERN = r"^([<>]=?|[≤≥])\s*\d+(\.\d+)?$|^\d+(\.\d+)?\s*\+$"
"""A number that stands for all beyond it, such as 90+ or <18."""
_CODE_OF_DIGITS_PATTERN = r"^\d+(-\d+)+$"
"""Digits in several parts, such as the zip code 12345-6789."""
_MONTH = "(jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*"
"""The name of a month in English or German, or its abbreviation, in small letters."""
_MONTH_DATE = rf"(?i)^(\d[\d\s.,/-]*{_MONTH}[\d\s.,/:-]*|{_MONTH}[\s.,/-]*\d[\d\s.,/:-]*)$"


def remark_on_words(columns: ColumnReader, values: ColumnValues, has_too_many: bool) -> str:
    """Return a clause on why a column is taken for words, although it may hold numbers or dates.

    It is the first that applies: codes among whole numbers, one odd value among numbers or dates,
    numbers with a suffix, dates with names of months.

    Args:
        columns: the open file, of which columns are read.
        values: the values of the column.
        has_too_many: whether the column has too many values to list them all.

    Returns:
        Empty: the column looks like words.
    """
    return (
        _code_remark(columns, values, has_too_many)
        or _odd_value_remark(columns, values)
        or _suffix_remark(values)
        or _month_remark(values)
    )


def reason_unreadable_numbers(columns: ColumnReader, values: ColumnValues) -> str:
    """Return why a column is not read as numbers although every word looks like one.

    It is empty if the column is read as numbers, or if not every word looks like one.
    """
    is_number = np.isfinite(values.numbers)
    if values.is_numeric or not (is_number | values.matches(NUMBER_WITH_COMMA_PATTERN)).all():
        return ""
    word, location = values.first_cell(columns, ~is_number)
    if not values.possible_formats:
        return (
            "the column contains formatted numbers that cannot be read, such as "
            f"{word!r} in {location}: write all numbers in one form, such as 1234.5 or 1.234,5 "
            '(docs/data.md, "How dates and numbers are written")'
        )
    return (
        f"the column contains numbers such as {word!r} in {location}, which can be "
        f"read in several ways: {format_remedy(values, word)}"
    )


def format_remedy(values: ColumnValues, word: str) -> str:
    """Return which formats to declare, if several formats read a word as different numbers."""
    choices = []
    for form in values.possible_formats:
        setting = format_setting(values.name, form)
        number = number_text_in_format(form, word)
        choices.append(f"{setting} if {word!r} means {number}")
    settings = " or ".join(choices)
    return f"give {settings}"


def _code_remark(columns: ColumnReader, values: ColumnValues, has_too_many: bool) -> str:
    """Return a clause on the first code that is no number in a column of whole numbers, as
    12345-6789 is among zip codes of five digits; empty: the column is another one.

    Args:
        columns: the open file, of which columns are read.
        values: the values of the column.
        has_too_many: whether the column has too many values to list them all.
    """
    is_code = values.matches(_CODE_OF_DIGITS_PATTERN) & ~values.matches(DATE_PATTERN)
    is_whole = values.matches(r"^\d+$")
    has_other_words = not (is_code | is_whole).all() or len(values.distinct) > MOST_VALUES_LIMIT
    if has_other_words or not is_code.any() or not is_whole.any():
        return ""
    word, location = values.first_cell(columns, is_code)
    found = f"the column contains whole numbers, but also the code {word!r} in {location}"
    correction = "if its values are quantities, correct this value"
    if not has_too_many:
        return f"{found}: {correction}"
    setting = shlex.quote(columns_override("codes", [values.name]))
    return (
        f"{found}: to use the column as a list of words, as zip codes are, give {setting} "
        f"most_values={len(values.distinct)}; {correction}"
    )


def _odd_value_remark(columns: ColumnReader, values: ColumnValues) -> str:
    """Return a clause on the first word that is not a number (date) in a column of numbers (dates).

    It is empty if the column is read as numbers, or if at most 90 % of its rows have a number, or
    a date.
    """
    if values.is_numeric:
        return ""
    is_date = values.matches(DATE_PATTERN)
    is_number = (np.isfinite(values.numbers) | values.matches(NUMBER_WITH_COMMA_PATTERN)) & ~is_date
    if values.counts[is_number].sum() < values.counts[is_date].sum():
        expected_kind = "dates"
        is_expected = is_date
    else:
        expected_kind = "numbers"
        is_expected = is_number
        open_end_remark = _open_end_remark(columns, values, is_number)
        if open_end_remark:
            return open_end_remark
    if values.counts[is_expected].sum() <= 0.9 * values.counts.sum():
        return ""
    word, location = values.first_cell(columns, ~is_expected)
    infinite = " (an infinite number)" if is_infinite(word) else ""
    return (
        f"the column contains {expected_kind}, but also {word!r}{infinite} in {location}: correct "
        f"this value, or give missing_values=[{word!r}] if {word!r} means that a value is missing"
    )


def _open_end_remark(columns: ColumnReader, values: ColumnValues, is_number: np.ndarray) -> str:
    """Return what to do about numbers with an open end, such as 90+, in a column of numbers.

    Args:
        columns: the open file, of which columns are read.
        values: the values of the column.
        is_number: [distinct] bool, which of them are numbers.

    Returns:
        Empty: some value is neither a number nor an open end, or none is a number.
    """
    is_open_end = values.matches(_OPEN_END_PATTERN)
    if not is_number.any() or not (is_number | is_open_end).all():
        return ""
    word, location = values.first_cell(columns, is_open_end & ~is_number)
    digits = word.strip(" <>=≤≥+")
    return (
        f"the column contains numbers, but also {word!r} in {location}: write a number in its "
        f"place (such as {digits}) to use the column as numbers"
    )


def _month_remark(values: ColumnValues) -> str:
    """Return what to do about dates with names of months; empty: not every word is one."""
    if not values.is_text or not len(values.distinct) or not values.matches(_MONTH_DATE).all():
        return ""
    example = values.distinct[0].as_py()
    return (
        f"the column contains dates with names of months, such as {example!r}, but not in a form "
        "that agt reads, such as 31 Dec 2024 or December 31, 2024, so they are words: to use them "
        "as dates, write them as in 2024-12-31 (in pandas, with pd.to_datetime)"
    )


def _suffix_remark(values: ColumnValues) -> str:
    """Return how numbers with a suffix could be read as numbers; empty: they have no suffix."""
    suffixed = suffixed_numbers(values.distinct) if values.is_text else None
    if suffixed is None:
        return ""
    remedy = f"write {suffixed.example!r} as {suffixed.number} and so on"
    if suffixed.number is None:
        remedy = "write all of them in one unit"
    if suffixed.form is not None:
        remedy = f"give {format_setting(values.name, suffixed.form)}"
    return (
        f"the column contains numbers with a suffix, such as {suffixed.example!r}, which agt reads "
        f"as words: to use them as numbers, {remedy}"
    )
