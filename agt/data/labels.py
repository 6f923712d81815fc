"""The labels of a file's rows, as text or numbers, and the classes that text stands for.

Labels of records must be there; those of queries may be missing. A file whose labels are classes is
read by ``read_labels`` and ``query_labels``, one whose labels are numbers by ``read_numbers`` and
``query_numbers``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.arrays import row_words
from agt.data.cell_values import missing_word
from agt.data.column_reader import ColumnReader
from agt.data.formats import CellFormat
from agt.data.records import UNLABELLED
from agt.data.target import NumericTarget
from agt.errors import DataError, nearest
from agt.messages import Message

MAX_FOUND = 100
"""How many classes may be found in the data; more of them must be listed."""


def read_labels(columns: ColumnReader, label: str, classes: Sequence[str] = ()) -> np.ndarray:
    """Return the label of each row as text, [n] object, none of them missing.

    Args:
        columns: the file.
        label: the column.
        classes: the listed classes, if any; in a csv none may be text that means a missing value.

    Raises:
        DataError: a label is missing, which the message names by its row; or the column or a class
            cannot be used.
    """
    words = columns.words(label, "dataset.label")
    columns.refuse_missing_words("dataset.classes", classes)
    # Distinct words are few, so each is looked at once, however many rows there are.
    missing_words = {word for word in set(words.tolist()) if missing_word(word)}
    is_missing = np.zeros(len(words), dtype=bool)
    if missing_words:
        is_missing = np.array([word in missing_words for word in words.tolist()], dtype=bool)
    columns.refuse(
        label,
        "dataset.label",
        is_missing,
        words,
        "every record needs a label: fill it in, or remove the row (for a table, "
        "dataset.missing_label=drop leaves out every row without a label)",
    )
    return words


def class_names(words: np.ndarray, path: Path) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if all of them are numbers, else as text.

    Args:
        words: [n] labels as text.
        path: the file, for the message.

    Raises:
        DataError: there are more than ``MAX_FOUND`` distinct labels.
    """
    names = sorted(set(words.tolist()))
    if len(names) > MAX_FOUND:
        raise DataError(
            f"{path}: the label has {len(names)} different values, such as "
            f"{', '.join(names[:3])}. If these values are classes, list them in dataset.classes. "
            "If the label is a measured number, replace the numbers by ranges in the file"
        )
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def class_indices(
    words: np.ndarray,
    classes: Sequence[Any],
    path: Path,
    row_of: Callable[[int], str] = row_words,
    optional: bool = False,
    extensible: bool = False,
) -> np.ndarray:
    """Return the index in ``classes`` of each label, [n] int64.

    Args:
        words: [n] labels of the same type as ``classes``; None where missing.
        classes: the label values, in their order.
        path: the file, for the message.
        row_of: a function from the index of a row to its name in messages.
        optional: whether a label may be missing, as those of queries may; it is then UNLABELLED.
        extensible: whether the message proposes to add the label to the declared classes.

    Raises:
        DataError: a label is missing or not among the classes.
    """
    index_of: dict[Any, int] = {name: index for index, name in enumerate(classes)}
    if optional:
        index_of[None] = UNLABELLED
    labels = words.tolist()
    indices = [*map(index_of.get, labels)]
    if None in indices:
        row = indices.index(None)
        raise _unknown_label(labels[row], row_of(row), classes, path, extensible)
    return np.array(indices, dtype=np.int64)


def _unknown_label(
    label: Any, row: str, classes: Sequence[Any], path: Path, extensible: bool
) -> DataError:
    """Return the error that says that a label is missing, or not among the classes.

    Args:
        label: the label; None: the label is missing.
        row: the name of the row in the message.
        classes: the label values.
        path: the file.
        extensible: True: the message also advises to add the label to the classes.
    """
    known = [*map(str, classes)]
    shown = known  # the classes as the message lists them
    remedy = "correct the label, or remove the row"
    if label is None or missing_word(str(label)):
        description = "no label"
    elif str(label) in known:
        # The same text is a class, so label and classes have different types.
        if isinstance(label, str):
            description = f"the label {label!r}, which is text"
            remedy = _conversion_remedy("numbers", "int")
        else:
            description = f"the label {label!r}, which is a number"
            remedy = _conversion_remedy("text", "str")
            shown = [*map(repr, known)]  # in quotes, because the numbers without are the labels
    else:
        description = f"the label {label!r}{nearest(str(label), known)}"
        if extensible:
            remedy += ", or add the class to {config:dataset.classes}"
    return DataError(
        Message(
            "{path}: {row} has {label}, but the only classes are {known}: " + remedy,
            path=path,
            row=row,
            label=description,
            known=", ".join(shown),
        )
    )


def _conversion_remedy(kind_of_classes: str, python_type: str) -> str:
    """Return a clause that advises to convert labels to the type of the classes."""
    return (
        f"the classes are {kind_of_classes}, so convert the labels (in NumPy and pandas, "
        f"y.astype({python_type}))"
    )


def query_labels(
    columns: ColumnReader,
    label: str,
    classes: Sequence[str],
    count: int,
    missing: Sequence[str] = (),
) -> np.ndarray:
    """Return the class index of each query, [count] int64, UNLABELLED where it has no label.

    Args:
        columns: the file of the queries.
        label: the column, which may be absent.
        classes: the label values, in their order.
        count: the number of queries.
        missing: text that means that a label is missing, in addition to the usual markers.

    Raises:
        DataError: a label is not among the classes.
    """
    if label not in columns.names:
        return np.broadcast_to(np.int64(UNLABELLED), count)
    words = columns.words(label, "dataset.label", missing)
    return class_indices(words, classes, columns.path, columns.row, optional=True)


def read_numbers(columns: ColumnReader, label: str, form: CellFormat | None = None) -> np.ndarray:
    """Return the numeric label of each row, [n] float64, none of them missing.

    Args:
        columns: the file.
        label: the column.
        form: the declared format of its text; None: the format of the whole file.

    Raises:
        DataError: a label is missing, infinite or text; the message names the row.
    """
    numbers = columns.numbers(label, "dataset.label", form=form)
    columns.refuse(
        label,
        "dataset.label",
        ~np.isfinite(numbers),
        numbers,
        "every label must be a finite number, because dataset.target=numeric: remove the row, or "
        "correct the label",
    )
    return numbers


def query_numbers(
    columns: ColumnReader,
    label: str,
    target: NumericTarget,
    count: int,
    form: CellFormat | None,
    missing: Sequence[str],
) -> np.ndarray:
    """Return the clipped numeric labels of queries, [count] float64; NaN where there is none.

    Args:
        columns: the file of the queries.
        label: the column, which may be absent.
        target: the range of the labels.
        count: the number of queries.
        form: the declared format of the column's text; None: the format of the whole file.
        missing: text that means that a label is missing, in addition to the usual texts.
    """
    if label not in columns.names:
        return np.broadcast_to(np.float64(target.unlabelled), count)
    numbers = columns.numbers(label, "dataset.label", missing, form)
    return target.clip(numbers)
