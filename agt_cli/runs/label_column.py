"""The column of labels: which one it could be, and whether its labels are classes or numbers."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from agt.data.cell_values import as_word
from agt.data.column_reader import ColumnReader
from agt.data.formats import NumberFormat
from agt.data.labels import MAX_FOUND, class_names
from agt.data.target import ClassTarget, NumericTarget, Target
from agt.errors import DataError, counted
from agt_cli.runs.column import Column, words_in_name
from agt_cli.runs.column_values import ColumnValues
from agt_cli.runs.doubts import MAX_CLASS_NUMBERS, is_infinite
from agt_cli.runs.formats import (
    format_example,
    format_setting,
    number_text_in_format,
    suffixed_numbers,
)
from agt_cli.runs.unread_words import format_remedy

MIN_QUANTITY_NUMBERS = 5
"""Labels of fewer different numbers are classes, unless their owner says otherwise."""
CLEARLY_AHEAD_OF_NAMED = 2.5
"""How far a score must be above that of another column that is named like a label: more than the
place in the file counts.
"""
_LABEL_WORD = re.compile(
    r"label|target|class|y|outcome|default|defaulted|churn|churned|income|response|"
    r"survived|diagnosis|exited|fraud|approved|readmitted|deposit|risk|creditability|"
    r"attrition|stroke|died|deceased|mortality|spam|subscribed|purchased|converted|kredit|"
    r"canceled|cancelled|letter|lettr|digit"
)
"""A word in the name of most columns of labels."""
_POSSIBLE_LABEL_WORD = re.compile(
    r"type|species|quality|status|result|condition|output|disease|num|grade|severity|"
    r"category|cover|death|alive|group"
)
"""A word in the name of some columns of labels."""
_WORD_ABOUT_A_LABEL = re.compile(
    r"type|amount|date|rate|score|count|number|size|source|channel|method|time"
)
"""A word in the name of a column that is about a label, such as the type of a deposit."""


@dataclass(frozen=True)
class LabelCandidates:
    """The columns that could be the label.

    Attributes:
        names: the likeliest first.
        evident: the first of them, if it is likely and clearly ahead of the next; None: the owner
            has to choose, for example where two columns are named like labels, or where only the
            place distinguishes columns of two values.
        reason: a clause on why this column is evidently the label; empty: no column is.
    """

    names: tuple[str, ...]
    evident: str | None = None
    reason: str = ""


def label_candidates(
    columns: Sequence[Column], target: Literal["classes", "numeric"] | None
) -> LabelCandidates:
    """Return the columns that could be the label, by their names, places and numbers of values.

    Args:
        columns: all columns of a table, in the order of the file.
        target: what the owner says that labels are; None: not given.
    """
    kinds = ("number",) if target == "numeric" else ("number", "category")
    most_values = math.inf if target == "numeric" else MAX_FOUND
    scores = {}
    for index, column in enumerate(columns):
        if column.kind in kinds and 2 <= column.distinct <= most_values:
            is_last = index == len(columns) - 1
            scores[column.name] = _label_score(column, is_last)
    names = tuple(sorted(scores, key=lambda name: -scores[name]))
    if not names:
        return LabelCandidates(names)
    best = scores[names[0]]
    second = scores[names[1]] if len(names) > 1 else -math.inf
    (evident,) = [column for column in columns if column.name == names[0]]
    others = [column for column in columns if column.name in names[1:]]
    rivals = [c.name for c in others if _is_named_like_a_label(c.name, _LABEL_WORD)]
    best_rival = max((scores[name] for name in rivals), default=-math.inf)
    if best < 3 or best < second + 1 or best < best_rival + CLEARLY_AHEAD_OF_NAMED:
        return LabelCandidates(names)
    if _is_named_like_a_label(evident.name, _LABEL_WORD):
        return LabelCandidates(names, evident.name, "labels are often named so")
    is_named = _is_named_like_a_label(evident.name, _POSSIBLE_LABEL_WORD)
    if not is_named and any(column.distinct == 2 for column in others):
        return LabelCandidates(names)
    reason = f"it is the last column and has {evident.distinct} different values"
    return LabelCandidates(names, evident.name, reason)


def _label_score(column: Column, is_last: bool) -> float:
    """Return how much a column looks like labels."""
    score = 0.0
    if _is_named_like_a_label(column.name, _LABEL_WORD):
        score += 3.0
    elif _is_named_like_a_label(column.name, _POSSIBLE_LABEL_WORD):
        score += 1.5
    if is_last:
        score += 2.0
    if column.missing > 0:
        score -= 2.0
    if column.distinct == 2:
        score += 1.0
    elif column.distinct <= 20:
        score += 0.5
    return score


def _is_named_like_a_label(name: str, label_word: re.Pattern[str]) -> bool:
    """Return whether a column's name has one of some words, and no word about a label.

    Args:
        name: the name of the column.
        label_word: matches the words of which the name must have one.
    """
    words = words_in_name(name)
    return any(map(label_word.fullmatch, words)) and not any(
        map(_WORD_ABOUT_A_LABEL.fullmatch, words)
    )


@dataclass(frozen=True)
class LabelFacts:
    """What the labels of a column are.

    Attributes:
        target: classes or numbers; None: there is no label; or its labels are numbers without a
            declared range, or so many different numbers that the owner has to say what they are.
        may_be_numbers: True: the owner did not say what labels are, and they may be a quantity.
        remedy: what to type so that labels are read as numbers; empty: the owner said what labels
            are, or nothing is to be typed for that.
    """

    target: Target | None = None
    may_be_numbers: bool = False
    remedy: str = ""

    @classmethod
    def find(
        cls,
        reader: ColumnReader,
        values: ColumnValues,
        target: Literal["classes", "numeric"] | None,
        label_range: tuple[float, float] | None,
    ) -> "LabelFacts":
        """Return whether the labels of a column are classes or numbers, with their properties.

        Args:
            reader: reads the file.
            values: the values of the column of labels.
            target: what the owner says that labels are; None: not given.
            label_range: the public range of labels that are numbers; None: not declared.

        Raises:
            DataError: the labels are not what ``target`` says, or could be both.
        """
        if target == "numeric":
            _check_label_is_numeric(reader, values)
            return cls(None if label_range is None else NumericTarget.declared(label_range))
        may_be_numbers = False
        remedy = ""
        if target is None:
            _check_label_is_clear(reader, values)
            may_be_numbers = _may_be_quantity(values)
            remedy = _unread_label_remedy(values)
        if may_be_numbers and len(values.distinct) > MAX_FOUND:
            return cls(None, may_be_numbers, remedy)
        raw_type = reader.column(values.name, "file").type
        classes = ClassTarget(_class_names(values, raw_type, reader.path))
        return cls(classes, may_be_numbers, remedy)


def _may_be_quantity(values: ColumnValues) -> bool:
    """Return whether labels may be a quantity: they are several different numbers."""
    return values.is_numeric and not values.is_date and len(values.distinct) >= MIN_QUANTITY_NUMBERS


def _check_label_is_clear(columns: ColumnReader, values: ColumnValues) -> None:
    """Raise DataError for labels that may be numbers, if the owner did not say what they are.

    They may be if one of several numbers is infinite, or if there are more than FEW_NUMBERS numbers
    that are written otherwise than 1234.5.
    """
    numbers = np.isfinite(values.numbers)
    others = [str(word) for word in values.distinct.filter(pa.array(~numbers)).to_pylist()]
    if numbers.any() and others and all(map(is_infinite, others)):
        word, location = values.first_cell(columns, ~numbers)
        raise DataError(
            f"{columns.path}: the label '{values.name}' has numbers, but also {word!r} (an "
            f"infinite number) in {location}: correct this value, or remove the row. If {word!r} "
            "is the name of a class, give target=classes"
        )
    remedy = _unread_label_remedy(values)
    if remedy and len(values.distinct) > MAX_CLASS_NUMBERS:
        raise DataError(
            f"{columns.path}: the label '{values.name}' has {len(values.distinct):,} different "
            "numbers that are written otherwise than 1234.5. If the label is a quantity, "
            f"{remedy}, and give target=numeric range=[LOW,HIGH] with its public range. If each "
            "number is a class, give target=classes"
        )


def _unread_label_remedy(values: ColumnValues) -> str:
    """Return the settings to type so that labels are read as numbers.

    Returns:
        A clause; empty: the label is read as numbers already, or does not contain numbers.
    """
    if (
        not values.is_text
        or values.is_date
        or isinstance(values.format, NumberFormat)
        or not len(values.distinct)
    ):
        return ""
    if values.possible_formats:
        # The word with most separators shows how the readings differ.
        word = max(values.distinct.to_pylist(), key=lambda word: len(re.findall(r"[.,' ]", word)))
        return format_remedy(values, word)
    suffixed = suffixed_numbers(values.distinct)
    if suffixed is None:
        return ""
    # A unit does not change a number, but k multiplies it by 1,000.
    is_unit = (
        suffixed.form is not None
        and number_text_in_format(suffixed.form, suffixed.example) == suffixed.number
    )
    if suffixed.form is not None and is_unit:
        return f"give {format_setting(values.name, suffixed.form)}"
    number = suffixed.number or "a number in the unit of the others"
    return f"rewrite this column in the file ({suffixed.example!r} as {number})"


def _check_label_is_numeric(columns: ColumnReader, values: ColumnValues) -> None:
    """Raise DataError if labels that must be numbers (target=numeric) cannot be read as numbers."""
    name = values.name
    if remedy := _unread_label_remedy(values):
        raise DataError(
            f"{columns.path}: the label '{name}' has numbers that are written otherwise than "
            f"1234.5: {remedy}"
        )
    if isinstance(values.format, str):
        raise DataError(
            f"{columns.path}: the label '{name}' is written {format_example(values.format)}, but a "
            "label of numbers must not be a date: name another column with label=NAME"
        )
    if values.is_numeric and not values.is_date:
        return
    not_numbers = ~np.isfinite(values.numbers)
    word, location = values.first_cell(columns, not_numbers if not_numbers.any() else ~not_numbers)
    raise DataError(
        f"{columns.path}: the label '{name}' has {word!r} in {location}, but target=numeric needs "
        "a finite number in each row: name a column of numbers with label=NAME, or give "
        "target=classes"
    )


def _class_names(values: ColumnValues, raw: pa.DataType, path: Path) -> tuple[str, ...]:
    """Return the names of the classes that labels are.

    Args:
        values: the column of labels.
        raw: the type that the file has it in.
        path: the file.

    Raises:
        DataError: there are too few classes, or too many.
    """
    distinct_values = values.distinct.cast(raw) if pa.types.is_boolean(raw) else values.distinct
    # 0.0 and -0.0 are one class
    distinct = dict.fromkeys(as_word(word) for word in distinct_values.to_pylist())
    texts = np.array([*distinct], dtype=object)
    if not 2 <= len(texts) <= MAX_FOUND:
        count = counted(len(texts), "different value")
        examples = ", ".join(map(repr, texts[:3]))
        raise DataError(
            f"{path}: the label '{values.name}' has {count}, such as "
            f"{examples}, but a label must have 2 to {MAX_FOUND} classes: "
            f"{_class_count_remedy(values)}"
        )
    return class_names(texts, path)


def _class_count_remedy(values: ColumnValues) -> str:
    """Return what to do about a label that has too few different values, or too many."""
    if values.is_numeric:
        return (
            "if the label is a measured number, give target=numeric range=[LOW,HIGH] with its "
            "public range"
        )
    if len(values.counts) > 1 and values.counts.max() == 1:
        return (
            "these values look like ids, because no value occurs twice, so name the column to "
            "predict with label=NAME"
        )
    return "name the column to predict with label=NAME"
