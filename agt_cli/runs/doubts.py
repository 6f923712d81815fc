"""Warnings to the owner of a table about what looks wrong in it, before anything is written or
trained.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agt.data.population import MAX_RATE_OUTSIDE
from agt.data.target import NumericTarget
from agt.errors import counted, few
from agt_cli.runs.column_values import MISSING_WORDS

DataWarningCode = Literal[
    "names_may_be_a_record",
    "blanks_around_name",
    "blanks_around_value",
    "dates_may_go_on",
    "may_be_codes",
    "points_may_be_thousands",
    "may_be_dates",
    "encoding_guessed",
    "may_mean_missing",
    "outliers",
    "outside_declared_range",
    "values_alike",
    "classes_alike",
    "number_as_classes",
    "label_written_otherwise",
    "label_outside_range",
    "label_missing",
    "rows_nearly_empty",
    "label_masked",
    "country_code_missing",
    "left_out",
    "taken_as_words",
]
_SENTENCES: dict[DataWarningCode, str] = {
    "names_may_be_a_record": (
        "no column contains numbers, so agt cannot tell whether line 1 ({values}) gives the "
        "names of the columns: give header=false if line 1 is the first record"
    ),
    "blanks_around_name": (
        "the column name {column!r} has blanks around it, so every setting must name the "
        "column with these blanks: remove the blanks from line 1 of the file"
    ),
    "blanks_around_value": (
        "column '{column}' has values with blanks around them, such as {values}, which "
        "differ from the same values without blanks: remove the blanks from the file"
    ),
    "dates_may_go_on": (
        "the proposed range of the dates in {values} ends with the last year in the file. A later "
        "date in a query counts as this end, and agt predict refuses a file of queries in which "
        f"more than {MAX_RATE_OUTSIDE:.0%} of the dates are outside: if queries can have later "
        "dates, declare a public range that contains them, 'ranges={{{column}: [FIRST,LAST]}}'"
    ),
    "may_be_codes": (
        "agt treats {values} as ordered numbers, although there are only a few different whole "
        "numbers: name those that are codes without an order, as in codes=[{names}]"
    ),
    "may_mean_missing": (
        "column '{column}' has {values} in {rows}, far from all other numbers: if {values} means "
        "that a value is missing, give missing_values=[{values}]"
    ),
    "outliers": (
        "column '{column}' has values far from all others in {rows} (such as {values}), so the "
        "proposed range leaves them out, and they count as its nearest end: correct them if they "
        "are mistakes, or give missing_values=[...] if they mean that a value is missing"
    ),
    "outside_declared_range": (
        "column '{column}' lies outside of the range [{values}] that you declared in {rows}, so "
        "these values count as its nearest end: give the range that values really can have"
    ),
    "points_may_be_thousands": (
        "column '{column}' has numbers with three digits behind a point, which agt reads as "
        "decimals: if {values} is a number above 1000, give {reason}"
    ),
    "may_be_dates": (
        "column '{column}' has numbers that are also dates, such as {values}: if they are dates, "
        "give {reason}"
    ),
    "encoding_guessed": (
        "the text is not UTF-8, so agt reads it as {reason}, in which one of its words is "
        "{values}: if this word is wrong, give the encoding, such as encoding=cp1251"
    ),
    "values_alike": (
        "column '{column}' has values that differ only in capitals, blanks, a point at the end, "
        "zeros (as 1 and 1.0 do) or how letters are stored (é as one character or two), but count "
        "as different values ({values}): write each value in one form, in this file and in files "
        "of queries (in pandas, {example})"
    ),
    "classes_alike": (
        "the label '{column}' has values that differ only in capitals, blanks, a point at the "
        "end, zeros (as 1 and 1.0 do) or how letters are stored (é as one character or two), but "
        "would be different classes ({values}): write each class in one form in this file (in "
        "pandas, {example})"
    ),
    "number_as_classes": (
        "the label '{column}' has {distinct} different numbers ({values}), each of which is "
        "taken as a class: if the label is a quantity, such as a rating, give target=numeric "
        "range=[LOW,HIGH] with its public range"
    ),
    "label_written_otherwise": (
        "the label '{column}' has {distinct} different numbers that are written otherwise than "
        "1234.5, and each of them is taken as a class: if the label is a quantity, {reason}, and "
        "give target=numeric range=[LOW,HIGH] with its public range"
    ),
    "label_outside_range": (
        "the label '{column}' lies outside of {values} in {rows}, so these labels would be "
        "clipped to the nearer end: give the range that labels really can have"
    ),
    "label_missing": (
        "the label '{column}' has no value in {rows} (the first is {first_row}). To leave these "
        "rows out, give missing_label=drop; otherwise fill in their labels, because training "
        "refuses rows without a label"
    ),
    "rows_nearly_empty": (
        "{rows} of the file have a value in at most a quarter of the columns (the first is "
        "{first_row}): remove from the file what is no record, such as totals, notes and blank "
        "lines"
    ),
    "label_masked": (
        "the label '{column}' is {values} in {rows}: if {values} means that the label is not "
        "known, give missing_values=[{values}] missing_label=drop to leave these rows out"
    ),
    "country_code_missing": (
        "column '{column}' contains codes, but {values} (in {rows}) counts as a missing "
        "value: if {values} is a code, as NA is for Namibia, replace it by another word in "
        "the file"
    ),
    "left_out": "column '{column}' is LEFT OUT of the features, because {reason}",
    "taken_as_words": "column '{column}' is treated as a list of words, because {reason}",
}
_GROUPED_CODES: frozenset[DataWarningCode] = frozenset(("values_alike", "classes_alike"))
"""Warnings whose values are shown in groups of those that are alike."""
MAX_SHOWN_GROUPS = 6
"""The largest number of these groups that are shown."""
_UNQUOTED_CODES: frozenset[DataWarningCode] = frozenset(
    (
        "names_may_be_a_record",
        "number_as_classes",
        "label_outside_range",
        "outside_declared_range",
    )
)
"""Warnings whose values are shown without quotation marks."""
MAX_CLASS_NUMBERS = 12
"""Of as many different numbers, a label may well have classes."""
_MISSING_LABEL_WORDS = MISSING_WORDS | {
    *("masked", "hidden", "redacted", "withheld", "unlabeled", "unlabelled", "tbd", "xxx")
}
_FEATURE_SENTINELS = {-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0}
_LABEL_SENTINELS = _FEATURE_SENTINELS | {-1.0}
_MIN_OTHER_NUMBERS = 5  # beside a number that may mean that a value is missing
_COUNTRY_CODE = re.compile("[A-Z]{2,3}")


@dataclass(frozen=True)
class DataWarning:
    """One thing in a table that may be a mistake.

    Attributes:
        code: the code that says which mistake it may be.
        column: the name of the column that it is about; empty: it is about the whole file.
        values: the words of the file that show it.
        rows: the number of rows, or of different values, that it is about.
        reason: a clause that says why, or what to give; empty: the code says it.
        first_row: a phrase on where the first of the rows is; empty: the sentence does not say it.
    """

    code: DataWarningCode
    column: str = ""
    values: tuple[str, ...] = ()
    rows: int = 0
    reason: str = ""
    first_row: str = ""

    @property
    def sentence(self) -> str:
        """The warning as a sentence: what may be wrong, and what to do."""
        return f"{self.clause}."

    @property
    def clause(self) -> str:
        """The warning as ``sentence`` has it, without its full stop."""
        values = " and ".join(map(repr, self.values))
        if self.code in _UNQUOTED_CODES:
            values = ", ".join(self.values)
        if self.code in _GROUPED_CODES:
            groups = (
                " and ".join(map(repr, group)) for group in groups_of_similar_words(self.values)
            )
            values = few(groups, MAX_SHOWN_GROUPS, "; ")
        rows = counted(self.rows, "row")
        template = _SENTENCES[self.code]
        return template.format(
            column=self.column,
            values=values,
            names=",".join(self.values),
            reason=self.reason,
            first_row=self.first_row,
            rows=rows,
            distinct=self.rows,
            example=(
                f"t[{self.column!r}] = t[{self.column!r}].str.normalize('NFKC')"
                ".str.strip(' .').str.lower()"
            ),
        )


def groups_of_similar_words(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the groups of words that differ only in case, blanks, a point at the end, zeros of a
    number, or the characters by which Unicode stores a letter.
    """
    groups = defaultdict[object, list[str]](list)
    for word in words:
        groups[_normalized_word(word)].append(word)
    return [tuple(sorted(group)) for group in groups.values() if len(group) > 1]


def _normalized_word(word: str) -> object:
    """Return what words that are alike have in common: a number, or the word in small letters."""
    normalized = " ".join(unicodedata.normalize("NFKC", word).split()).casefold()
    number = _finite_number(normalized)
    if number is not None:
        return number
    return normalized.rstrip(" .") or normalized


def _finite_number(word: str) -> float | None:
    """Return a word as a finite number; None: it is no number (1_000 is one in Python only)."""
    if "_" in word:
        return None
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def value_warnings(column: str, words: Sequence[str]) -> list[DataWarning]:
    """Return warnings about the list of values that is proposed for a column.

    Args:
        column: its name.
        words: the proposed values; none where no list is proposed.
    """
    warnings = _similarity_warnings("values_alike", column, words)
    return [*warnings, *_blank_warnings(column, words)]


def _similarity_warnings(
    code: DataWarningCode, column: str, words: Sequence[str]
) -> list[DataWarning]:
    """Return a warning that names all similar values, as a list of one; empty: there are none.

    Args:
        code: the code of the warning, which is about a feature or about the label.
        column: its name.
        words: its values.
    """
    values = tuple(word for group in groups_of_similar_words(words) for word in group)
    return [DataWarning(code, column, values)] if values else []


def _blank_warnings(column: str, words: Sequence[str]) -> Iterator[DataWarning]:
    """Yield that values have blanks around them, unless values that differ only so are named."""
    blanks = tuple(word for word in words if word != word.strip())
    if blanks and not groups_of_similar_words(words):
        yield DataWarning("blanks_around_value", column, blanks[:2])


def class_warnings(
    column: str, counts: Sequence[tuple[str, int]], *, may_be_numbers: bool
) -> list[DataWarning]:
    """Return warnings about a column of labels that are classes.

    Args:
        column: its name.
        counts: label and number of rows.
        may_be_numbers: True: they may be a quantity as well, and the owner did not say what they
            are.
    """
    words = [word for word, _ in counts]
    numbers = [_finite_number(word) for word in words]
    warnings = _similarity_warnings("classes_alike", column, words)
    if may_be_numbers:
        ends = (words[0], words[1], "...", words[-1])
        warnings.append(DataWarning("number_as_classes", column, ends, len(words)))
    for (word, rows), number in zip(counts, numbers, strict=True):
        if len(words) > 2 and _may_mean_missing(word, number, words, numbers):
            warnings.append(DataWarning("label_masked", column, (word,), rows))
    return [*warnings, *_blank_warnings(column, words)]


def numeric_label_warnings(
    column: str, numbers: np.ndarray, counts: np.ndarray, target: NumericTarget
) -> list[DataWarning]:
    """Return a warning that labels are outside of their declared range, as a list of one.

    The list is empty if none is.

    Args:
        column: its name.
        numbers: [n] the different labels.
        counts: [n] how many rows have each.
        target: their declared range.
    """
    outside_rows = int(counts[target.clip(numbers) != numbers].sum())
    if not outside_rows:
        return []
    return [DataWarning("label_outside_range", column, (target.bounds,), outside_rows)]


def sentinel_warnings(
    column: str, words: Sequence[str], numbers: np.ndarray, counts: np.ndarray
) -> list[DataWarning]:
    """Return a warning for each number that may mean that a value is missing, as 999 among heights.

    Args:
        column: the name of the feature.
        words: [n] the different numbers as they are written.
        numbers: [n] the same as numbers.
        counts: [n] how many rows have each.
    """
    warnings = []
    for index, number in enumerate(numbers.tolist()):
        others = np.delete(numbers, index)
        if number not in _FEATURE_SENTINELS or len(others) < _MIN_OTHER_NUMBERS:
            continue
        is_far = others.max() < number / 2 if number > 0 else others.min() >= 0
        if is_far and counts[index] > 1:
            warnings.append(
                DataWarning("may_mean_missing", column, (words[index],), int(counts[index]))
            )
    return warnings


def _may_mean_missing(
    word: str, number: float | None, words: Sequence[str], numbers: Sequence[float | None]
) -> bool:
    """Return whether a class looks as if it meant that a label is missing.

    Args:
        word: the class.
        number: the class as a number; None: the class is no number.
        words: all classes.
        numbers: all classes as numbers.
    """
    if number is not None:
        others = [other for other in numbers if other is not None and other != number]
        return number in _LABEL_SENTINELS and all(0 <= other < 9 for other in others)
    if word.strip().casefold() in _MISSING_LABEL_WORDS:
        return True
    words_without_letters = [other for other in words if not re.search(r"\w", other)]
    return word in words_without_letters and len(words_without_letters) == 1


def is_infinite(word: str) -> bool:
    """Return whether a word is read as an infinite number."""
    try:
        return math.isinf(float(word))
    except ValueError:
        return False


def has_codes(words: Sequence[str]) -> bool:
    """Return whether most of several words are codes of two or three capital letters, as those of
    countries are.
    """
    codes = sum(_COUNTRY_CODE.fullmatch(word.strip()) is not None for word in words)
    return len(words) > 1 and 2 * codes > len(words)
