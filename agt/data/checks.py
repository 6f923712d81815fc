"""What is declared about the data (classes, lists of values, ranges, sizes), held against itself and against the data.

A contradiction in the declaration is an error. Where the data and the declaration hardly fit each other, training would
go through and mean nothing: that is an error too where nothing at all fits, and otherwise a note, a sentence for the data
owner alone. Notes tell about private data: they are never part of a claim or of a condition.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BeforeValidator

from agt.data.dataset import DataError, Dataset, Outside

MAX_FOUND = 100
"""How many classes may be found in the data; more of them must be listed."""

_FACTOR = 2.0
_WHOLE = re.compile(r"[+-]?\d{1,300}")


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not text: write the value as the data has it, in quotes")
    return value


Word = Annotated[str | int, BeforeValidator(_no_truth)]
"""A value as it stands in the data, in a configuration; true and false would be taken for 1 and 0."""


def check_classes(classes: Sequence[str | int] | None) -> None:
    """Raise ValueError where a list of classes names one twice, or one by nothing.

    Numbers written differently ('1' and '1.0') may both be listed: they are different text, and whoever lists both says so.
    """
    names = [str(name) for name in classes or ()]
    if not all(name.strip() for name in names):
        raise ValueError("classes has an empty name: a missing label is no class")
    trimmed = [name.strip() for name in names]
    twice = [i for i, name in enumerate(trimmed) if name in trimmed[:i]]
    if twice:
        first, second = names[trimmed.index(trimmed[twice[0]])], names[twice[0]]
        spaces = "" if first == second else f" and {second!r}, which differ by spaces alone"
        raise ValueError(f"classes {'repeats' if first == second else 'has'} {first!r}{spaces}")


def check_label(label: str, others: Mapping[str, str | None]) -> None:
    """Raise ValueError where the column of labels has another part too.

    Args:
        others: setting -> its column, if it has one.
    """
    for setting, column in others.items():
        if column == label:
            raise ValueError(f"label and {setting} are both column {label}: a label can be nothing else")


def check_range(name: str, low: float, high: float) -> None:
    """Raise ValueError unless low < high and values of the range can be scaled without overflow."""
    if low >= high:
        raise ValueError(f"{name}: the range must be [low, high] with low < high, got {[low, high]}")
    if not math.isfinite(2 * (high - low)):
        raise ValueError(f"{name}: the range {[low, high]} is too wide to compute with: give the range that values lie in")


def check_edges(name: str, edges: Sequence[float]) -> None:
    """Raise ValueError unless the numbers increase, and span a range that can be scaled."""
    for low, high in pairwise(edges):
        if len(edges) > 2 and low >= high:
            raise ValueError(f"{name}: the edges of bins must increase, and {low:g} is followed by {high:g}")
    check_range(name, edges[0], edges[-1])


def check_found(names: Iterable[str], path: Path) -> None:
    """Check labels from which the classes are to be found.

    Raises:
        DataError: more than ``MAX_FOUND`` of them, or two that are alike but for spaces or the way a number is written.
    """
    names = sorted(names)
    if len(names) > MAX_FOUND:
        some = ", ".join(names[:3])
        raise DataError(
            f"{path}: {len(names)} distinct labels, such as {some}: is this a regression target? Labels are classes here: "
            "cut a number into ranges first, or if these are classes, list them in dataset.classes"
        )
    seen: dict[object, str] = {}
    for name in names:
        other = seen.setdefault(_meaning(name), name)
        if other != name:
            raise DataError(
                f"{path}: the labels {other!r} and {name!r} are alike but for spaces or the way a number is written, and "
                "would be two classes: write them in one form, or list the classes in dataset.classes"
            )


def check_values(words: np.ndarray, values: Sequence[str | int], setting: str, column: str, path: Path) -> tuple[str, ...]:
    """Hold a column of text against its public list of values.

    Args:
        words: [n] text, None where missing.
        values: the list.
        setting: the key of the list, for messages.

    Returns:
        notes: few values are in the list, or some are but for spaces, capitals or the way a number is written.

    Raises:
        DataError: there are values, and none of them is in the list.
    """
    known, outside = _known(words), _outside(words, values)
    if not known:
        return (f"column '{column}' has no value in any record.",)
    total, others = known.total(), outside.total()
    if others == total:
        raise DataError(
            f"{path}: column '{column}': none of its {total} values is in {setting}, so each would count as other: "
            f"the column has {_some(known)}; the list has {_some(map(str, values))}"
        )
    notes = []
    if 2 * others > total:
        share = f"{others} of {total} values are not in {setting} and count as other"
        notes.append(f"column '{column}': {share}, such as {_some(outside)}.")
    meant = {_meaning(str(value).casefold()) for value in values}
    near = [word for word in outside if _meaning(word.casefold()) in meant]
    if near:
        notes.append(
            f"column '{column}': {_some(near)} would be in {setting} but for spaces, capitals or the way a number is "
            f"written, and {'counts' if len(near) == 1 else 'count'} as other."
        )
    return tuple(notes)


def outside_list(column: str, words: np.ndarray, values: Sequence[str | int]) -> Outside | None:
    """How many values of queries are not in a list and count as other; None if all are.

    Args:
        words: [n] text, None where missing.
        values: the list.
    """
    total, outside = _known(words).total(), _outside(words, values)
    if total and not outside:
        return None
    return Outside(column, outside.total(), total, f"the {len(values)} listed", _some(outside) if total else "no value")


def outside_range(column: str, numbers: np.ndarray, low: float, high: float) -> Outside | None:
    """How many numbers lie outside a range and are clipped to it; None if none does.

    Args:
        numbers: [n], NaN where missing.
    """
    known = numbers[~np.isnan(numbers)]
    count = int(((known < low) | (known > high)).sum())
    if len(known) and not count:
        return None
    seen = f"{known.min():g} to {known.max():g}" if len(known) else "no value"
    return Outside(column, count, len(known), f"[{low:g}, {high:g}]", seen)


def together(parts: Iterable[Outside], totals: Mapping[str, int]) -> tuple[Outside, ...]:
    """What was found in the blocks of one file, added up: what is seen is told of the block that has most of it.

    Args:
        totals: column -> values in all blocks.
    """
    columns: dict[str, list[Outside]] = {}
    for part in parts:
        if part.total or not totals[part.column]:
            columns.setdefault(part.column, []).append(part)
    most = {column: max(found, key=lambda part: part.count) for column, found in columns.items()}
    return tuple(
        replace(
            most[column],
            count=sum(part.count for part in found),
            total=totals[column],
            seen=most[column].seen + (", among others" if len(found) > 1 and totals[column] else ""),
        )
        for column in totals
        if (found := columns.get(column))
    )


def clipped(numbers: np.ndarray, low: float, high: float, column: str) -> tuple[str, ...]:
    """A note on how many numbers lie outside a range, and how far; none if none does.

    Args:
        numbers: [n], NaN where missing.
    """
    outside = outside_range(column, numbers, low, high)
    if outside is None:
        return ()
    if not outside.total:
        return (f"column '{column}' has no value in any record.",)
    lies, is_clipped = ("lies", "is") if outside.count == 1 else ("lie", "are")
    return (
        f"column '{column}': {outside.count} of {outside.total} values {lies} outside {outside.declared} and "
        f"{is_clipped} clipped to it (they go from {outside.seen}).",
    )


def with_notes(dataset: Dataset, normalized: float | None) -> Dataset:
    """The data set with what can be noted about any: classes that never occur, and a size far from what was declared.

    Args:
        normalized: the public number of records that the normaliser of steps stands for, where it is configured.
    """
    notes = (*dataset.notes, *_empty_classes(dataset), *_size(dataset, normalized))
    return replace(dataset, notes=notes)


def _empty_classes(dataset: Dataset) -> tuple[str, ...]:
    counts = np.bincount(dataset.train.labels, minlength=len(dataset.classes))
    empty = [name for name, count in zip(dataset.classes, counts, strict=True) if not count]
    if not empty:
        return ()
    which = f"the class {empty[0]!r} has" if len(empty) == 1 else f"the classes {_some(empty)} have"
    return (f"{which} no training record.",)


def _size(dataset: Dataset, normalized: float | None) -> tuple[str, ...]:
    size, records = dataset.declared_size if normalized is None else normalized, len(dataset.train)
    if size is None or not records or records / _FACTOR <= size <= records * _FACTOR:
        return ()
    declared = f"dataset.declared_size is {size:.12g}"
    if normalized is not None:
        declared = f"training.batch.normalizer (times batches and members) stands for {size:.12g} records"
    ratio = max(size / records, records / size)
    times = f"{ratio:.1f}" if ratio < 10 else f"{ratio:,.0f}"
    turn, effect = ("smaller", "hardly moves") if size > records else ("larger", "may be unstable")
    return (
        f"{declared}, and there are {records} training records: sums of gradients are divided by the declared number, "
        f"which makes steps about {times} times {turn} than a mean over the records would: training {effect}.",
    )


def _known(words: np.ndarray) -> Counter[str]:
    """How often each value occurs, in the order of their first places; missing ones left out."""
    return Counter(word for word in words.tolist() if word is not None)


def _outside(words: np.ndarray, values: Sequence[str | int]) -> Counter[str]:
    """The same of values that are not listed."""
    listed = {str(value) for value in values}
    return Counter(word for word in words.tolist() if word is not None and word not in listed)


def _meaning(word: str) -> object:
    """What a person would take for the same value: trimmed, and a number as a number."""
    text = word.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _some(words: Iterable[str], most: int = 3) -> str:
    words = list(words)
    return ", ".join(map(repr, words[:most])) + (f" and {len(words) - most} more" if len(words) > most else "")
