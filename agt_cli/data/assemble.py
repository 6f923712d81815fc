"""From columns to records: labels to classes, hash splits, default ids."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agt_cli.data.dataset import UNLABELLED, DataError, Records
from agt_cli.data.files import Columns
from agt_cli.data.ids import content_ids, uniform
from agt_cli.errors import nearest


def class_names(words: np.ndarray, path: Path) -> tuple[str, ...]:
    """The distinct labels in increasing order, as numbers if all of them are. Raises DataError if one is missing."""
    if any(word is None for word in words):
        row = next(row for row, word in enumerate(words) if word is None)
        raise DataError(f"{path}: row {row} has no label: every record needs one")
    names = set(words.tolist())
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def class_indices(words: np.ndarray, classes: Sequence[str], path: Path, optional: bool = False) -> np.ndarray:
    """[n] int64 indices into ``classes``.

    Args:
        words: [n] labels as text, None where missing.
        optional: take a missing label as UNLABELLED (queries).

    Raises:
        DataError: a label is missing or not among the classes.
    """
    index: dict[str | None, int] = {name: i for i, name in enumerate(classes)}
    if optional:
        index[None] = UNLABELLED
    for row, word in enumerate(words):
        if word not in index:
            fault = "has no label" if word is None else f"has the label '{word}'{nearest(word, classes)}"
            raise DataError(f"{path}: row {row} {fault}; the classes are {', '.join(classes)}")
    return np.array([index[word] for word in words], dtype=np.int64)


def records(
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
) -> Records:
    """Records whose unit is the record itself and which are private, unless said otherwise."""
    return Records(
        features=features,
        labels=labels.astype(np.int64),
        ids=ids,
        units=ids if units is None else units,
        public=np.zeros(len(features), dtype=bool) if public is None else public,
    )


def default_ids(content: np.ndarray, *attributes: np.ndarray | None, numbered: bool = True) -> np.ndarray:
    """[n] str: a hash of a record's raw content and of everything else about it (label, unit, public flag, split).

    Rows that share an id's content are numbered, and numbering is harmless only between rows that are alike in all
    that training sees (see ids.content_ids); so whatever distinguishes two rows is part of what is hashed.
    """
    kept = [attribute.tolist() for attribute in attributes if attribute is not None]
    tags = [repr(values) for values in zip(*kept, strict=True)] if kept else [""] * len(content)
    return content_ids(content, np.array(tags, dtype=object), numbered)


def named_ids(columns: Columns, id: str | None, as_text: bool, content: np.ndarray, *rest: np.ndarray | None) -> np.ndarray:
    """[n] str, unique: the column ``id``, or hashes of the content where no column is named."""
    if id is not None:
        return columns.unique_ids(id, "dataset.id", as_text)
    return default_ids(content, *rest)


def split_names(
    units: np.ndarray | None, ids: np.ndarray | None, content: np.ndarray, *rest: np.ndarray | None
) -> np.ndarray:
    """[n] str: what ``hash_split`` hashes: the unit, else the id that the file gives, else the content.

    Copies of one content share a split. Were they told apart, a private training record that goes could take a copy out
    of the test set instead (the last number is the one that vanishes), and test records count as public.
    """
    if units is not None:
        return units
    return default_ids(content, *rest, numbered=False) if ids is None else ids


def query_labels(columns: Columns, label: str, classes: Sequence[str], n: int) -> np.ndarray:
    """[n] int64 labels of queries: UNLABELLED where the column, or a value in it, is absent."""
    if label not in columns.names:
        return np.full(n, UNLABELLED, dtype=np.int64)
    return class_indices(columns.words(label, "dataset.label"), classes, columns.path, optional=True)


def queries(
    columns: Columns,
    features: np.ndarray,
    content: tuple[np.ndarray, ...],
    labels: np.ndarray,
    id: str | None = "id",
    id_as_text: bool = False,
) -> Records:
    """Queries named by their id column where the file has it, otherwise by hashes of their raw ``content``.

    Raises:
        DataError: the file has no rows, or its ids are not usable.
    """
    if not len(features):
        raise DataError(f"{columns.path}: no rows: at least one query is needed")
    ids = named_ids(columns, id if id in columns.names else None, id_as_text, *content)
    return records(features, labels, ids)


def hash_split(units: np.ndarray, test_fraction: float, key: str) -> np.ndarray:
    """[n] bool, True for test: a keyed hash of each unit's id alone, so all rows of a unit share a split."""
    return uniform(units, key) < test_fraction
