"""What is proposed for a column, from its values: a range, a list, or a reason to leave it out."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agt.data.column_reader import ID_KINDS, ColumnReader
from agt.data.formats import ISO_DATE, DateFormat, NumberFormat, reads
from agt.data.ids import resemble_row_numbers
from agt.errors import DataError
from agt_cli.runs.column import (
    CODES_REMARK,
    DROPPED_REMARK,
    LATER_DATES_REMARK,
    MAX_CODES,
    MAX_LISTED_VALUES,
    MOST_VALUES_LIMIT,
    UNWRITABLE_WORD,
    Column,
    ColumnOptions,
    words_in_name,
)
from agt_cli.runs.column_values import (
    DATE_PATTERN,
    NUMBER_WITH_COMMA_PATTERN,
    ColumnValues,
    row_count,
)
from agt_cli.runs.doubts import is_infinite
from agt_cli.runs.formats import (
    date_formats,
    format_example,
    format_setting,
    likeliest_date_format,
    number_text_in_format,
    suffixed_numbers,
)
from agt_cli.runs.ranges import outliers, round_range
from agt_cli.table_settings import columns_override

_OPEN_END_PATTERN = r"^([<>]=?|[≤≥])\s*\d+(\.\d+)?$|^\d+(\.\d+)?\s*\+$"
"""A number that stands for all beyond it, such as 90+ or <18."""
_CODE_OF_DIGITS_PATTERN = r"^\d+(-\d+)+$"
"""Digits in several parts, such as the zip code 12345-6789."""
_IDENTIFYING_WORD = re.compile(
    r"id|ids|pid|uid|uuid|guid|key|index|rowid|rownames|unnamed|person|patient|customer|"
    r"client|subject|user|account|member|employee|record|nr"
)
"""A word in the name of a column that may name records or people."""
_MONTH = "(jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*"
"""The name of a month in English or German, or its abbreviation, in small letters."""
_MONTH_DATE = rf"(?i)^(\d[\d\s.,/-]*{_MONTH}[\d\s.,/:-]*|{_MONTH}[\s.,/-]*\d[\d\s.,/:-]*)$"
_LEAST_REPEATING = 0.2  # share of the rows whose number an earlier row has, to be groups
_MIN_END_ROWS = 5  # with a number at which the range of a few whole numbers may end
_EPOCH_YEAR = 1970  # from which NumPy counts years
_LAST_YEAR = 9999  # years have four digits (ISO_DATE)


def propose_columns(
    columns: ColumnReader, values_by_column: Mapping[str, ColumnValues], options: ColumnOptions
) -> list[Column]:
    """Return a description of each column with the proposed settings, in the order of the file.

    Args:
        columns: the open file, of which columns are read.
        values_by_column: the values of each column that is not dropped.
        options: what the owner says of the columns.

    Raises:
        DataError: a range was declared of a column that is no numeric feature, or codes or a list
            of one that has neither whole numbers nor words.
    """
    rows = row_count(values_by_column)
    proposals = []
    for name in columns.names:
        if name not in values_by_column:
            proposals.append(_dropped_column(name))
            continue
        column = _propose_column(columns, values_by_column[name], rows, options)
        _check_options_fit(columns.path, column, rows, options)
        proposals.append(column)
    return proposals


def _check_options_fit(path: Path, column: Column, rows: int, options: ColumnOptions) -> None:
    """Raise DataError if a column cannot have the range, or the codes, that are declared of it.

    Args:
        path: the path of the file.
        column: the column, with what is proposed for it.
        rows: the number of rows.
        options: what the owner says of the columns.
    """
    name = column.name
    listed = options.lists.get(name, ())
    reason_without_list = "its values are numbers that are not whole, or dates"
    if not column.numeric:
        reason_without_list = column.remark
    if name in options.codes and not column.categorical:
        raise DataError(
            f"{path}: codes names the column '{name}', but no list of its values can be proposed "
            f"({reason_without_list}): leave '{name}' out of codes"
        )
    if listed and not column.categorical:
        raise DataError(
            f"{path}: lists names the column '{name}', but no list can be given to it "
            f"({reason_without_list}): leave '{name}' out of lists"
        )
    declared = options.ranges.get(name, ())
    if declared and not column.numeric:
        reason = column.remark or "the column has words"
        raise DataError(
            f"{path}: ranges names the column '{name}', but no range can be given to "
            f"it ({reason}): leave '{name}' out of ranges"
        )
    if declared and column.outside == rows - column.missing:
        ends = ", ".join(map(column.bound, declared))
        raise DataError(
            f"{path}: ranges={{{name}: [{ends}]}} contains no value of this column: "
            "give a range in the unit of the column"
        )


def _dropped_column(name: str) -> Column:
    """Return a column that is not inspected, because its owner leaves it out."""
    return Column(name, "dropped", missing=0, distinct=0, remark=DROPPED_REMARK)


def _propose_column(
    columns: ColumnReader, values: ColumnValues, rows: int, options: ColumnOptions
) -> Column:
    """Return a description of a column, with the settings that are proposed for it.

    Args:
        columns: the open file, of which columns are read.
        values: the column's values.
        rows: the number of rows.
        options: what the owner says of the columns.
    """
    column = _describe_values(values, options)
    is_known_kind = values.is_text or values.is_numeric or values.is_date
    # The first of these kinds that fits.
    if not values.is_single or (column.distinct and not is_known_kind):
        return replace(column, remark=_reason_unreadable(columns, values))
    if not column.distinct:
        return replace(column, kind="empty", remark="the column has no value in any row")
    if column.distinct == 1 and not values.missing:
        return replace(column, kind="constant", remark="the column has the same value in every row")
    declared = options.ranges.get(values.name, ())
    if _has_dates(values):
        return _propose_date_column(columns, values, replace(column, kind="date"), declared)
    if values.is_text or values.is_whole:
        texts = np.array(values.distinct.cast(pa.string()).to_pylist(), str)
        column = replace(
            column,
            resembles_row_numbers=resemble_row_numbers(texts),
            in_groups=_are_in_digit_groups(values),
        )
        identity = _reason_identifying(column, rows, options.most_values)
        listed = options.lists.get(values.name, ())
        if listed:
            _check_list_fits(columns.path, values, listed)
            return replace(column, kind="category", categorical=listed, public=True)
        has_fractions = values.is_numeric and not values.is_whole
        if identity and not declared and not has_fractions:
            return replace(column, kind="id", remark=identity)
    is_code = values.name in options.codes and values.is_whole
    has_leading_zeros = values.is_text and values.matches(r"^-?0\d").any()
    if values.is_numeric and not has_leading_zeros and not is_code:
        number_format = values.format if isinstance(values.format, NumberFormat) else None
        column = replace(column, format=number_format)
        raw: Any = columns.raw(values.name, "file")
        return _propose_number_column(column, values, raw.type, declared)
    return _propose_word_column(columns, column, values, rows, options)


def _check_list_fits(path: Path, values: ColumnValues, listed: Sequence[str]) -> None:
    """Raise DataError if a column has no value of its declared list, so that all would be other."""
    words = {word for word, _ in values.most_frequent(len(values.distinct))}
    if words.isdisjoint(listed):
        typed = ", ".join(listed)
        raise DataError(
            f"{path}: lists={{{values.name}: [{typed}]}} contains no value of this column: give "
            "its values as they are written in the file"
        )


def _describe_values(values: ColumnValues, options: ColumnOptions) -> Column:
    """Return a column with the properties of its values that do not depend on any proposal.

    Args:
        values: the column's values.
        options: what the owner says of the columns.
    """
    column = Column(
        values.name,
        "unreadable",
        missing=values.missing,
        distinct=len(values.distinct),
        most_rows=int(values.counts.max(initial=0)),
        values=values.most_frequent(options.most_values),
        markers=values.markers,
    )
    if values.is_text and column.distinct:
        is_whole_number, is_decimal = map(values.matches, ID_KINDS.values())
        column = replace(
            column,
            mixed=bool(
                is_whole_number.any() and not is_whole_number.all() and not is_decimal.any()
            ),
        )
    if values.is_single and values.is_numeric:
        column = replace(column, low=float(values.numbers.min()), high=float(values.numbers.max()))
    return column


def _has_dates(values: ColumnValues) -> bool:
    """Return whether the values of a column are dates, or are declared to be."""
    if values.is_date or isinstance(values.format, str):
        return True
    return values.is_text and not values.is_numeric and bool(date_formats(values.distinct))


def _are_in_digit_groups(values: ColumnValues) -> bool:
    """Return whether a column has very many whole numbers, and most of its rows that repeat one
    follow a row with the same number, more often than they would in a random order.

    Amounts of which most are zero repeat as often in any order, so they are in no groups. Also a
    number that a fifth of the rows has is a default, and no id.
    """
    rows = len(values.cells) - values.missing
    repeating = rows - len(values.distinct)
    if (
        not values.is_whole
        or len(values.distinct) <= MAX_LISTED_VALUES
        or repeating < _LEAST_REPEATING * rows
        or 5 * values.counts.max() >= rows
    ):
        return False
    word = values.index_of_rows()
    following = np.count_nonzero((word[1:] == word[:-1]) & (word[1:] < len(values.distinct)))
    by_chance = np.sum(values.counts * (values.counts - 1.0)) / rows
    return bool(2 * (following - by_chance) >= repeating)


def _reason_unreadable(columns: ColumnReader, values: ColumnValues) -> str:
    """Return why a column's values are neither finite numbers nor words."""
    is_infinite_number = np.isinf(values.numbers)
    if is_infinite_number.any():
        _, location = values.first_cell(columns, is_infinite_number)
        return (
            f"the column has an infinite value in {location}: correct the value, or remove the row"
        )
    return (
        f"the column contains values of the type {values.cells.type}, but a column of "
        "features needs a finite number or a word in each row"
    )


def _propose_date_column(
    columns: ColumnReader, values: ColumnValues, column: Column, declared: tuple[float, ...]
) -> Column:
    """Return a column of dates, with a range of whole years around them.

    If its dates cannot be read, it has no range but a remark that says why.

    Args:
        columns: the open file, of which columns are read.
        values: the column's values.
        column: the column as it was seen so far.
        declared: the public range that its owner declares, in days; empty: none.
    """
    form = values.format if isinstance(values.format, str) else None
    if form is None and values.is_text and not values.matches(ISO_DATE).all():
        formats = date_formats(values.distinct)
        if len(formats) != 1:
            return replace(column, remark=_reason_dates_unclear(columns, values, formats))
        (form,) = formats
    cell_format = None if form is None else DateFormat(form)
    try:
        numbers = columns.numbers(values.name, "file", column.markers, cell_format)
    except DataError:
        return replace(
            column,
            remark="the column contains times of day, or dates that do not exist in any calendar",
        )
    days, counts = np.unique(numbers[~np.isnan(numbers)], return_counts=True)
    inliers = days[~outliers(days, counts)]
    # The day before the first one, so that the range does not begin with a record's own date.
    ends = np.array([inliers[0] - 1, inliers[-1]], "datetime64[D]").astype("datetime64[Y]")
    first_year, last_year = ends.astype(int).tolist()
    if first_year < -_EPOCH_YEAR or last_year >= _LAST_YEAR - _EPOCH_YEAR:
        return replace(
            column,
            remark=(
                f"the column contains dates outside the years 0 to {_LAST_YEAR - 1}, but only "
                "dates of these years can be used"
            ),
        )
    years = np.array([first_year, last_year + 1], "datetime64[Y]")
    low, high = declared or years.astype("datetime64[D]").astype(float).tolist()
    return replace(
        column,
        low=float(days[0]),
        high=float(days[-1]),
        numeric=(low, high),
        outside=int(counts[(days < low) | (days > high)].sum()),
        public=bool(declared),
        format=form,
        remark="" if declared else LATER_DATES_REMARK,
    )


def _reason_dates_unclear(
    columns: ColumnReader, values: ColumnValues, formats: Sequence[str]
) -> str:
    """Return why no single format reads the dates of a column.

    Args:
        columns: the open file, of which columns are read.
        values: the column's values.
        formats: the formats that read all dates; empty: no format reads all of them.
    """
    if formats:
        first_setting, second_setting = (format_setting(values.name, form) for form in formats[:2])
        return (
            "the column contains dates that do not show which number is the day and which the "
            f"month: give {first_setting} or {second_setting}"
        )
    likeliest = likeliest_date_format(values.distinct)
    form = DateFormat(likeliest)
    indices = range(len(values.distinct))
    unread = next(index for index in indices if not reads(form, values.distinct[index : index + 1]))
    word, location = values.first_cell(columns, np.arange(len(values.distinct)) == unread)
    example = format_example(likeliest)
    return (
        f"the column contains dates, but {word!r} in {location} is not a date such as {example}: "
        f"write all dates in one form, or give missing_values=[{word!r}] if {word!r} means that "
        "a value is missing"
    )


def _reason_identifying(column: Column, rows: int, most_values: int) -> str:
    """Return why a column seems to name records or people; empty: the column does not seem to.

    It says as well how the owner declares that it does.

    Args:
        column: the properties of the column that are known so far.
        rows: the number of rows.
        most_values: so many different values are no names yet.
    """
    has_identifying_name = (
        any(map(_IDENTIFYING_WORD.fullmatch, words_in_name(column.name))) or not column.name.strip()
    )
    unique = column.distinct == rows - column.missing
    id_column = column.name or "NAME (first give this column the name NAME in the file)"
    remedy = f"give id={id_column}"
    # other numbers may be, for example, the ages of a few people
    consecutive = (column.high or 0.0) - (column.low or 0.0) < rows
    if unique and column.resembles_row_numbers and (has_identifying_name or consecutive):
        return (
            "the column seems to be a row number; if this number nevertheless identifies each "
            f"record permanently, {remedy} id_permanent=true"
        )
    if unique and has_identifying_name:
        return (
            "the column may be an id; if this id identifies each record permanently, even when "
            f"other records are added or removed, {remedy}"
        )
    if has_identifying_name and column.distinct > max(most_values, rows // 50):
        return (
            "the column seems to identify people or things, because its values repeat; if it "
            "identifies the person of each row, give dataset.unit with the name of this column"
        )
    return ""


def _propose_number_column(
    column: Column, values: ColumnValues, raw: pa.DataType, declared: tuple[float, ...]
) -> Column:
    """Return a column of numbers, with a range around them.

    Args:
        column: the column as it was seen so far.
        values: its values.
        raw: the type that the file has it in.
        declared: the public range that its owner declares; empty: none.
    """
    column = replace(column, kind="number")
    if pa.types.is_boolean(raw):
        return replace(column, numeric=(0.0, 1.0), public=True)
    may_be_codes = values.is_whole and len(values.distinct) <= MAX_CODES
    is_inlier = ~outliers(values.numbers, values.counts)
    is_exact = may_be_codes and _has_frequent_ends(
        values.numbers[is_inlier], values.counts[is_inlier]
    )
    low, high = declared or round_range(values.numbers[is_inlier], exact=is_exact)
    if not np.isfinite(2 * (high - low)):
        return replace(
            column,
            kind="unreadable",
            remark="the column contains numbers whose range is too large for floating point",
        )
    remark = CODES_REMARK if may_be_codes and len(values.distinct) > 2 and not declared else ""
    is_outside = (values.numbers < low) | (values.numbers > high)
    outside_rows = int(values.counts[is_outside].sum())
    return replace(
        column, numeric=(low, high), outside=outside_rows, public=bool(declared), remark=remark
    )


def _has_frequent_ends(numbers: np.ndarray, counts: np.ndarray) -> bool:
    """Return whether several rows have the least of some numbers, and several the greatest.

    A range that ends with a number of one record would reveal that this record is there.

    Args:
        numbers: [n] distinct numbers.
        counts: [n] how many rows have each.
    """
    ends = [numbers.argmin(), numbers.argmax()]
    return bool((counts[ends] >= _MIN_END_ROWS).all())


def _propose_word_column(
    columns: ColumnReader,
    column: Column,
    values: ColumnValues,
    rows: int,
    options: ColumnOptions,
) -> Column:
    """Return a column of words, with the list of its frequent values, or why there is none.

    Args:
        columns: the open file, of which columns are read.
        column: the column as it was seen so far.
        values: its values.
        rows: the number of rows.
        options: what the owner says of the columns.
    """
    has_too_many = len(values.distinct) > options.most_values
    remark_on_words = ""
    if values.name not in options.codes:
        if remark := _reason_not_read_as_numbers(columns, values):
            return replace(column, kind="unreadable", remark=remark)
        remark_on_words = (
            _code_remark(columns, values, has_too_many)
            or _describe_odd_value(columns, values)
            or _suffix_remark(values)
            or _month_remark(values)
        )
    min_rows = max(1, min(5, rows // 50))
    frequent = sorted(
        word for word, count in column.values if count >= min_rows and word != UNWRITABLE_WORD
    )
    if remark_on_words and (has_too_many or not frequent):
        return replace(column, kind="unreadable", remark=remark_on_words)
    is_free_text = len(values.distinct) > max(MAX_CODES, 0.9 * (rows - values.missing))
    if is_free_text or has_too_many:
        count = f"{len(values.distinct):,} different values"
        problem = f"the column has {count}, too many to list them all"
        if is_free_text:
            problem = f"the column contains free text ({count})"
        return replace(
            column,
            kind="text",
            remark=(
                f"{problem}; to use this column, list some of its values under categorical "
                '(all other values then count as "other")'
            ),
        )
    if not frequent:
        return replace(
            column,
            kind="text",
            remark=(
                f"the column has no value that occurs {min_rows} times or more; to use this "
                "column, list some of its values under categorical"
            ),
        )
    return replace(column, kind="category", categorical=tuple(frequent), remark=remark_on_words)


def _reason_not_read_as_numbers(columns: ColumnReader, values: ColumnValues) -> str:
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


def _describe_odd_value(columns: ColumnReader, values: ColumnValues) -> str:
    """Return a clause on the first word that is not a number (date) in a column of numbers (dates).

    It is empty if the column is read as numbers, or if less than 90 % of its rows have a number, or
    a date.
    """
    is_date = values.matches(DATE_PATTERN)
    is_number = (np.isfinite(values.numbers) | values.matches(NUMBER_WITH_COMMA_PATTERN)) & ~is_date
    expected_kind = "numbers"
    is_expected = is_number
    if values.counts[is_number].sum() < values.counts[is_date].sum():
        expected_kind = "dates"
        is_expected = is_date
    if values.is_numeric:
        return ""
    is_open_end = values.matches(_OPEN_END_PATTERN)
    if expected_kind == "numbers" and (is_number | is_open_end).all() and is_number.any():
        word, location = values.first_cell(columns, is_open_end & ~is_number)
        digits = word.strip(" <>=≤≥+")
        return (
            f"the column contains numbers, but also {word!r} in {location}: write a number in its "
            f"place (such as {digits}) to use the column as numbers"
        )
    if values.counts[is_expected].sum() <= 0.9 * values.counts.sum():
        return ""
    word, location = values.first_cell(columns, ~is_expected)
    infinite = " (an infinite number)" if is_infinite(word) else ""
    return (
        f"the column contains {expected_kind}, but also {word!r}{infinite} in {location}: correct "
        f"this value, or give missing_values=[{word!r}] if {word!r} means that a value is missing"
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
