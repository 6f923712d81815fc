"""Data as if some of its training records were not in the file: what a run continues with after
records were erased.

Formal guarantees
    Let F be a file, E the records that were erased, F - E the file without their rows.
    ``load_without_erased`` of F and of F - E give the same dataset, byte for byte: every other
    record is read from its own row and from constants, and constants that are not written down are
    read off the records that stay (``load_without``). A source without ``load_without`` whose
    constants are not public gives no such promise: it is refused.
    Numbered ids (dataset.py) are of rows and of how many copies came before: of copies, F - E names
    the first ones. So of copies only the last may be erased (``check_last``): then those that stay
    have the same ids in both files, and none of them is that of an erased record.
    ``untouched`` is proved only where every constant is either public or was compared: a record's
    features are a function of its own row and of the constants, so equal constants leave every
    other record as it was."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from agt.data.arrays import row_words
from agt.data.dataset import Dataset, DataSource
from agt.data.ids import CONTENT, content_ids
from agt.data.records import Records
from agt.errors import DataError
from agt.facts import Evidence, Fact, declared, not_held, proved

IsErased = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""([n] ids, [n] units of records) -> [n] bool, those that were erased."""


def never(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return [n] False: no record was erased."""
    return np.zeros(len(ids), dtype=bool)


@dataclass(frozen=True)
class ErasedDataset:
    """A dataset without the records that were erased, and these.

    Attributes:
        rest: the dataset without the erased records.
        erased: the erased records that the data still has, as they were loaded beside the others.
        untouched: the fact that the other records are as they were beside the erased ones, or why
            they may not be.
    """

    rest: Dataset
    erased: Records
    untouched: Fact


def load_without_erased(
    source: DataSource, is_erased: IsErased, before: Mapping[str, object] | None = None
) -> ErasedDataset:
    """Load the data, and take out the records that were erased.

    Args:
        source: the data.
        is_erased: says of training records whether they were erased.
        before: ``Dataset.settled`` as it was with the erased records; None: as it is with those
            that the data still has.

    Raises:
        DataMissing: as ``load``.
        DataError: as ``load``; no record, or records of one class only, are left; a copy that is
            not the last is erased; or the source takes constants from its records and cannot leave
            some out.
    """
    loaded = source.load()
    erased = is_erased(loaded.train.ids, loaded.train.units)
    constants: Evidence = loaded.preprocessing
    if hasattr(source, "stated"):
        constants = source.stated(loaded.settled).constants
    rest = loaded
    if erased.any():
        if hasattr(source, "load_without"):
            rest = source.load_without(is_erased)
        else:
            rest = without(loaded, erased, constants)
    settled_before = loaded.settled if before is None else before
    same_constants = _as_json(settled_before) == _as_json(rest.settled)
    untouched = _untouched_fact(constants, same_constants)
    return ErasedDataset(rest, loaded.train.take(erased), untouched)


def _as_json(settled: Mapping[str, object]) -> str:
    """Return constants as text that is equal for equal constants."""
    return json.dumps(settled, sort_keys=True, default=list)


def without(loaded: Dataset, erased: np.ndarray, constants: Evidence) -> Dataset:
    """Return the dataset without some of its training records.

    Args:
        loaded: the dataset with them.
        erased: [n] bool, True for training records that are taken out.
        constants: the facts about the constants that make features.

    Raises:
        DataError: the constants are computed from all records, so that the features of the others
            would be different; or a copy that is not the last is taken out.
    """
    if not constants.held:
        raise DataError(
            f"{loaded.name}: the features depend on constants that are computed from all records "
            f"({constants.missing}), and the Python class of this data set cannot load the data "
            "without the erased records. Delete the erased records from the data, or give the "
            "class a method load_without(is_erased)"
        )
    check_last(_families_by_content(loaded.train), erased)
    plane = loaded.plane
    if plane is not None:
        plane = replace(plane, points=plane.points[~erased])
    return replace(loaded, train=loaded.train.take(~erased), plane=plane)


def _untouched_fact(constants: Evidence, same_constants: bool) -> Fact:
    """Return the fact that the records that stay are as they were beside the erased ones.

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


def check_last(families: np.ndarray, erased: np.ndarray) -> None:
    """Check that no copy is erased while a later one stays.

    Args:
        families: [n] str, the same for copies.
        erased: [n] bool.

    Raises:
        DataError: there is such a copy. The message names both rows.
    """
    first_erased_row: dict[str, int] = {}
    for row in np.flatnonzero(np.isin(families, families[erased])).tolist():
        family = str(families[row])
        if erased[row]:
            first_erased_row.setdefault(family, row)
        elif family in first_erased_row:
            erased_row = row_words(first_erased_row[family])
            remaining_row = row_words(row)
            raise DataError(
                f"{erased_row} would be erased, but {remaining_row}, an identical copy, would "
                "stay. If ids are hashes of contents, identical copies are numbered, and the "
                "copy with the highest number must be erased first: request the id of that copy"
            )


def families(source: DataSource, train: Records) -> np.ndarray:
    """Return for each training record a name that only its copies share, [n] str.

    Copies are records with the same content whose ids number them (dataset.py).

    Args:
        source: the data.
        train: its training records.
    """
    if hasattr(source, "families"):
        return source.families(train.ids)
    return _families_by_content(train)


def _families_by_content(train: Records) -> np.ndarray:
    """Return ids without numbers of copies, [n]: hashes of the content, or the ids themselves.

    Ids that are not hashes of contents have no numbers of copies.
    """
    if not all(CONTENT.fullmatch(str(name)) for name in train.ids.tolist()):
        return train.ids
    tags = [f"{label} {public}" for label, public in zip(train.labels, train.public, strict=True)]
    return content_ids(train.features, np.array(tags, dtype=object), numbered=False)
