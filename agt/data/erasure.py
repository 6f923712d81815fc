"""A dataset without training records that were erased.

Formal guarantees
    Let F be a file, E the records that were erased, F - E the file without their rows.

    * ``load_without_erased`` of F and of F - E give the same dataset, byte for byte: every other
      record is read from its own row and from constants, and constants that are not settings are
      computed from the records that remain (``load_without``). A source without ``load_without``
      whose constants are not public is refused, because it cannot promise that.
    * Where ids are hashes of contents, copies are numbered in the order of rows (ids.py), so the
      rows of F - E have the first numbers. Therefore only the last copies may be erased
      (``check_last_copies_erased``): then the remaining copies have the same ids in both files,
      and none of them has the id of an erased record.
    * ``untouched`` is proved only if every constant is public or was compared: a record's features
      are a function of its own row and of the constants, so equal constants leave every other
      record unchanged.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from agt.data.arrays import row_words
from agt.data.dataset import Dataset, DataSource
from agt.data.ids import CONTENT, default_ids
from agt.data.records import Records
from agt.errors import DataError
from agt.facts import Evidence, Fact, declared, not_held, proved

IsErased = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""([n] ids, [n] units of records) -> [n] bool, those that were erased."""


def erase_none(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return [n] False: no record was erased."""
    return np.zeros(len(ids), dtype=bool)


@dataclass(frozen=True)
class ErasedDataset:
    """A dataset without the records that were erased, and the erased records.

    Attributes:
        remaining: the dataset without the erased records.
        erased: the erased records that the data still have, loaded together with all others.
        untouched: the fact that the erasure does not change the other records, or why it may.
    """

    remaining: Dataset
    erased: Records
    untouched: Fact


def load_without_erased(
    source: DataSource, is_erased: IsErased, before: Mapping[str, object] | None = None
) -> ErasedDataset:
    """Load the data, and take out the records that were erased.

    Args:
        source: the data.
        is_erased: says of training records whether they were erased.
        before: ``Dataset.settled`` of the data with all erased records; None: of the data as they
            are now, from which some erased records may have been deleted.

    Raises:
        DataMissing: there is no such file (see ``load``).
        DataError: the data cannot be used (see ``load``); no record, or records of one class only,
            are left; a copy that is not the last is erased; or the source takes constants from its
            records and cannot leave some out.
    """
    loaded = source.load()
    erased = is_erased(loaded.train.ids, loaded.train.units)
    constants: Evidence = loaded.preprocessing
    if hasattr(source, "with_constants"):
        constants = source.with_constants(loaded.settled).constants
    remaining = loaded
    if erased.any():
        if hasattr(source, "load_without"):
            remaining = source.load_without(is_erased)
        else:
            remaining = without(loaded, erased, constants)
    settled_before = loaded.settled if before is None else before
    same_constants = _as_json(settled_before) == _as_json(remaining.settled)
    untouched = _unchanged_features_fact(constants, same_constants)
    return ErasedDataset(remaining, loaded.train.take(erased), untouched)


def _as_json(settled: Mapping[str, object]) -> str:
    """Return constants as text that is equal for equal constants."""
    return json.dumps(settled, sort_keys=True, default=list)


def without(loaded: Dataset, erased: np.ndarray, constants: Evidence) -> Dataset:
    """Return the dataset without some of its training records.

    Args:
        loaded: the dataset with all of its records.
        erased: [n] bool, for each training record whether it is left out.
        constants: the facts about the constants that make features.

    Raises:
        DataError: the constants are computed from all records, so that the features of the others
            would be different; or a copy is left out that is not the last one.
    """
    if not constants.held:
        raise DataError(
            f"{loaded.name}: the features depend on constants that are computed from all records "
            f"({constants.missing}), and the Python class of this data set cannot load the data "
            "without the erased records. Delete the erased records from the data, or give the "
            "class a method load_without(is_erased)"
        )
    check_last_copies_erased(_copy_groups_by_content(loaded.train), erased)
    plane = loaded.plane
    if plane is not None:
        plane = replace(plane, points=plane.points[~erased])
    return replace(loaded, train=loaded.train.take(~erased), plane=plane)


def _unchanged_features_fact(constants: Evidence, same_constants: bool) -> Fact:
    """Return the fact whether erasing records leaves the features of all other records the same.

    Args:
        constants: the facts about the constants that make features.
        same_constants: whether the constants are equal with and without the erased records.
    """
    if not constants.held:
        return not_held(
            "features_read_off_records",
            missing=tuple(fact for fact in constants.facts if not fact.held),
        )
    if not same_constants:
        return not_held("erased_decided_constants")
    if constants.declarations:
        return declared("read_as_before_as_declared", declaration=constants.declarations[0])
    return proved("read_as_before")


def check_last_copies_erased(copy_groups: np.ndarray, erased: np.ndarray) -> None:
    """Check that no copy is erased while a later one stays.

    Args:
        copy_groups: [n] str, the same for copies.
        erased: [n] bool, whether each record is erased.

    Raises:
        DataError: there is such a copy. The message names both rows.
    """
    first_erased_row: dict[str, int] = {}
    for row in np.flatnonzero(np.isin(copy_groups, copy_groups[erased])).tolist():
        group = str(copy_groups[row])
        if erased[row]:
            first_erased_row.setdefault(group, row)
        elif group in first_erased_row:
            erased_row = row_words(first_erased_row[group])
            remaining_row = row_words(row)
            raise DataError(
                f"{erased_row} would be erased, but {remaining_row}, an identical copy, would "
                "stay. If ids are hashes of contents, identical copies are numbered, and the "
                "copy with the highest number must be erased first: request the id of that copy"
            )


def copy_groups(source: DataSource, train: Records) -> np.ndarray:
    """Return for each training record a name that only its copies share, [n] str.

    Copies are records with the same content whose ids number them (dataset.py).

    Args:
        source: the data.
        train: its training records.
    """
    if hasattr(source, "copy_groups"):
        return source.copy_groups(train.ids)
    return _copy_groups_by_content(train)


def _copy_groups_by_content(train: Records) -> np.ndarray:
    """Return ids without numbers of copies, [n]: hashes of the content, or the ids themselves.

    Ids that are not hashes of contents have no numbers of copies.
    """
    if not all(CONTENT.fullmatch(str(name)) for name in train.ids.tolist()):
        return train.ids
    return default_ids(train.features, train.labels, train.public, numbered=False)
