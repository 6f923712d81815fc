"""What is proposed for a column, from its values: a range, a list, or a reason to leave it out.

Each column goes through the same steps, and the first that fits decides: what cannot be read, is
empty or constant is left out; dates get a range of whole years; a list that the owner gives is
taken; ids are left out, with what to type if they name records; numbers get a range with round
ends; everything else is words, with the list of the frequent ones. A proposal comes from private
rows: only what the owner gave is public.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
    UNWRITABLE_WORD,
    Column,
    ColumnOptions,
    words_in_name,
)
from agt_cli.runs.column_values import (
    ColumnValues,
    row_count,
)
from agt_cli.runs.formats import (
    date_formats,
    format_example,
    format_setting,
    likeliest_date_format,
)
from agt_cli.runs.ranges import outliers, round_range
from agt_cli.runs.unread_words import reason_unreadable_numbers, remark_on_words

_IDENTIFYING_WORD = re.compile(
    r"id|ids|pid|uid|uuid|guid|key|index|rowid|rownames|unnamed|person|patient|customer|"
    r"client|subject|user|account|member|employee|record|nr"
)
"""A word in the name of a column that may name records or people."""
_OTHERS = ' (all other values then count as "other")'
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
        listed = options.lists.get(values.name, ())
        if listed:
            _check_list_fits(columns.path, values, listed)
            return replace(column, kind="category", categorical=listed, public=True)
        has_fractions = values.is_numeric and not values.is_whole
        if not declared and not has_fractions:
            identifying = _reason_identifying(column, rows, options.most_values)
            if identifying:
                return replace(column, kind="id", remark=identifying)
    is_code = values.name in options.codes and values.is_whole
    has_leading_zeros = values.is_text and values.matches(r"^-?0\d").any()
    if not values.is_numeric or has_leading_zeros or is_code:
        return _propose_word_column(columns, column, values, rows, options)
    if isinstance(values.format, NumberFormat):
        column = replace(column, format=values.format)
    raw: pa.Array = columns.raw(values.name, "file")
    if pa.types.is_boolean(raw.type):
        return replace(column, kind="number", numeric=(0.0, 1.0), public=True)
    return _propose_number_column(column, values, declared)


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
        some_are_whole = bool(is_whole_number.any()) and not is_whole_number.all()
        column = replace(column, mixed=some_are_whole and not is_decimal.any())
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
    if not values.is_whole or len(values.distinct) <= MAX_LISTED_VALUES:
        return False
    rows = len(values.cells) - values.missing
    repeating_rows = rows - len(values.distinct)
    has_default = 5 * values.counts.max() >= rows
    if has_default or repeating_rows < _LEAST_REPEATING * rows:
        return False
    value_of_row = values.index_of_rows()
    has_value = value_of_row[1:] < len(values.distinct)
    follows_same_value = value_of_row[1:] == value_of_row[:-1]
    following = np.count_nonzero(follows_same_value & has_value)
    expected_by_chance = np.sum(values.counts * (values.counts - 1.0)) / rows
    return bool(2 * (following - expected_by_chance) >= repeating_rows)


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
        form = formats[0]
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
    is_unread = np.zeros(len(values.distinct), dtype=bool)
    for index in range(len(is_unread)):
        one_value = values.distinct[index : index + 1]
        if not reads(form, one_value):
            is_unread[index] = True
            break
    word, location = values.first_cell(columns, is_unread)
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
    identifying_words = filter(_IDENTIFYING_WORD.fullmatch, words_in_name(column.name))
    has_identifying_name = any(identifying_words) or not column.name.strip()
    is_unique = column.distinct == rows - column.missing
    id_column = column.name or "NAME (first give this column the name NAME in the file)"
    remedy = f"give id={id_column}"
    # Numbers that are farther apart may be, for example, the ages of a few people.
    is_consecutive = (column.high or 0.0) - (column.low or 0.0) < rows
    may_count_rows = column.resembles_row_numbers and (has_identifying_name or is_consecutive)
    if is_unique and may_count_rows:
        return (
            "the column seems to be a row number; if this number nevertheless identifies each "
            f"record permanently, {remedy} id_permanent=true"
        )
    if is_unique and has_identifying_name:
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
    column: Column, values: ColumnValues, declared: tuple[float, ...]
) -> Column:
    """Return a column of numbers, with a range around them.

    Args:
        column: the column as it was seen so far.
        values: its values.
        declared: the public range that its owner declares; empty: none.
    """
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
    column = replace(column, kind="number")
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
    remark = ""
    if values.name not in options.codes:  # else its owner says that these are words
        unreadable = reason_unreadable_numbers(columns, values)
        if unreadable:
            return replace(column, kind="unreadable", remark=unreadable)
        remark = remark_on_words(columns, values, has_too_many)
    min_rows = max(1, min(5, rows // 50))
    frequent = sorted(
        word for word, count in column.values if count >= min_rows and word != UNWRITABLE_WORD
    )
    if remark and (has_too_many or not frequent):
        return replace(column, kind="unreadable", remark=remark)
    is_free_text = len(values.distinct) > max(MAX_CODES, 0.9 * (rows - values.missing))
    count_text = f"{len(values.distinct):,} different values"
    others = ""
    if is_free_text:
        problem = f"the column contains free text ({count_text})"
        others = _OTHERS
    elif has_too_many:
        problem = f"the column has {count_text}, too many to list them all"
        others = _OTHERS
    elif not frequent:
        problem = f"the column has no value that occurs {min_rows} times or more"
    else:
        return replace(column, kind="category", categorical=tuple(frequent), remark=remark)
    list_some = "to use this column, list some of its values under categorical"
    return replace(column, kind="text", remark=f"{problem}; {list_some}{others}")
