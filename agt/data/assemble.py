"""From columns to records: labels to classes, ids, hash splits, queries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from agt.data.checks import check_found
from agt.data.dataset import UNLABELLED, DataError, Outside, Records, row_words
from agt.data.files import Columns, missing_word
from agt.data.ids import content_ids, uniform
from agt.errors import nearest

MAX_GROUPS = 50
MISSING = "(missing)"


def read_labels(columns: Columns, label: str, classes: Sequence[str] | None) -> np.ndarray:
    """[n] object: the label of each row as text, none of them missing, and each among the ``classes`` if they are given.

    Raises:
        DataError: naming the row; or there are too many distinct labels, or two are alike (checks.check_found).
    """
    words = columns.words(label, "dataset.label")
    columns.refuse_missing_words("dataset.classes", classes or ())
    _check_labels(words, classes, columns.path, columns.row)
    if classes is None:
        check_found(set(words.tolist()), columns.path)
    return words


def subgroups(columns: Columns, name: str) -> np.ndarray:
    """[n] object: the subgroup of each row as text, ``MISSING`` where there is none.

    Raises:
        DataError: there is no such column, or it has more than ``MAX_GROUPS`` values.
    """
    words = columns.words(name, "dataset.subgroups")
    found = {word: MISSING if missing_word(word) else word for word in set(words.tolist())}
    if len(found) > MAX_GROUPS:
        raise DataError(
            f"{columns.path}: dataset.subgroups: column '{name}' has {len(found)} different values, at most {MAX_GROUPS} "
            "groups are told apart: name a column of few, such as one with ranges of this one"
        )
    return np.array([found[word] for word in words], dtype=object)


def class_names(words: np.ndarray, path: Path) -> tuple[str, ...]:
    """The distinct labels in increasing order, as numbers if all of them are. Raises DataError as ``check_found``."""
    names = set(words.tolist())
    check_found(names, path)
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def class_indices(
    words: np.ndarray,
    classes: Sequence[str],
    path: Path,
    row_of: Callable[[int], str] = row_words,
    optional: bool = False,
) -> np.ndarray:
    """[n] int64 indices into ``classes``.

    Args:
        words: [n] labels as text, None where missing.
        row_of: names a row in messages.
        optional: take a missing label as UNLABELLED (queries).

    Raises:
        DataError: a label is missing or not among the classes.
    """
    index: dict[str | None, int] = {name: i for i, name in enumerate(classes)}
    if optional:
        index[None] = UNLABELLED
    _check_labels(words, classes, path, row_of, optional)
    return np.fromiter((index[word] for word in words), dtype=np.int64, count=len(words))


def _check_labels(
    words: np.ndarray, classes: Sequence[str] | None, path: Path, row_of: Callable[[int], str], optional: bool = False
) -> None:
    def fits(word: str | None) -> bool:
        if word is None:
            return optional
        return word in classes if classes is not None else not missing_word(word)

    bad = {word for word in set(words.tolist()) if not fits(word)}
    if not bad:
        return
    row, word = next((row, word) for row, word in enumerate(words) if word in bad)
    if missing_word(word):
        as_written = f" ({word!r})" if word and word.strip() else ""
        raise DataError(
            f"{path}: {row_of(row)} has no label{as_written}: every record needs one: drop the row, or fill it in"
        )
    names = classes or ()
    raise DataError(
        f"{path}: {row_of(row)} has the label '{word}'{nearest(word, names)}; the classes are {', '.join(names)}"
    )


def records(
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
) -> Records:
    """Records whose unit is the record itself and which are private, unless said otherwise."""
    return Records(
        features=features,
        labels=labels.astype(np.int64, copy=False),
        ids=ids,
        units=ids if units is None else units,
        public=np.broadcast_to(np.False_, len(features)) if public is None else public,
        groups=groups or {},
    )


def default_ids(
    content: np.ndarray, *attributes: np.ndarray | None, numbered: bool = True, exact: bool = False
) -> np.ndarray:
    """[n] str: a hash of a record's raw content and of everything else about it (label, unit, public flag, split).

    Rows that share an id's content are numbered, and numbering is harmless only between rows that are alike in all
    that training sees (see ids.content_ids); so whatever distinguishes two rows is part of what is hashed.

    With ``numbered=False`` copies share a name: the one to split by. Were they told apart, a private training record that
    goes could take a copy out of the test set instead (the last number is the one that vanishes), and test records count
    as public. ``exact``: as in ``content_ids``.
    """
    kept = [attribute.tolist() for attribute in attributes if attribute is not None]
    tags = [repr(values) for values in zip(*kept, strict=True)] if kept else [""] * len(content)
    return content_ids(content, np.array(tags, dtype=object), numbered, exact)


def query_labels(columns: Columns, label: str, classes: Sequence[str], n: int) -> np.ndarray:
    """[n] int64 labels of queries: UNLABELLED where the column, or a value in it, is absent."""
    if label not in columns.names:
        return np.broadcast_to(np.int64(UNLABELLED), n)
    words = columns.words(label, "dataset.label")
    return class_indices(words, classes, columns.path, columns.row, optional=True)


def queries(
    columns: Columns,
    features: np.ndarray,
    content: tuple[np.ndarray, ...],
    labels: np.ndarray,
    id: str = "id",
    id_as_text: bool = False,
    outside: tuple[Outside, ...] = (),
    groups: Mapping[str, np.ndarray] | None = None,
) -> Records:
    """Queries named by their id column where the file has it, otherwise by hashes of their raw ``content``.

    Args:
        outside: for the data owner, what does not fit the declarations.
        groups: column -> [n] subgroups.

    Raises:
        DataError: the file has no rows, or its ids are not usable.
    """
    if not len(features):
        raise DataError(f"{columns.path}: no rows: at least one query is needed")
    ids = columns.unique_ids(id, "dataset.id", id_as_text) if id in columns.names else default_ids(*content)
    same_length(columns.path, len(features), {"label": labels, id: ids})
    return replace(records(features, labels, ids, groups=groups), outside=outside)


def same_length(path: Path, n: int, columns: Mapping[str, np.ndarray | None]) -> None:
    """Raise DataError unless every column that is there has one value for each of ``n`` records (an npz promises none)."""
    for name, values in columns.items():
        if values is not None and len(values) != n:
            raise DataError(f"{path}: {n} records and {len(values)} values of '{name}': each record needs one")


def hash_split(names: np.ndarray, test_fraction: float, key: str) -> np.ndarray:
    """[n] bool, True for test: a keyed hash of each name alone, so all rows of one name (a unit's, say) share a split."""
    return uniform(names, key) < test_fraction
