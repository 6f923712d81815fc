"""Data as if some of its training records were not in the file: what a run goes on with once they
were erased.

Formal guarantees
    Let F be a file, E the records that were erased, F - E the file without their rows. ``part`` of
    F and of F - E give the same dataset, byte for byte: every other record is read from its own row
    and from constants, and those that are not written down are read off the records that stay
    (``load_without``). A source without ``load_without`` whose constants are not public gives no
    such promise: ``part`` refuses it.
    Numbered ids (dataset.py) are of rows and of how many copies came before: of copies, F - E names
    the first ones. So of copies only the last may be gone (``check_last``): then those that stay
    have the same ids in both files, and none of them is that of a record that is gone.
    ``untouched`` is proved only where every constant is either public or was compared: a record's
    features are a function of its own row and of the constants, so equal constants leave every
    other record as it was.
"""

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
    """No record was erased."""
    return np.zeros(len(ids), dtype=bool)


@dataclass(frozen=True)
class ErasedDataset:
    """A dataset without the records that were erased, and these.

    Attributes:
        rest: without the records that were erased.
        erased: those of them that the data still has, as they were loaded beside the others.
        untouched: whether the others are as they were when the erased were among them.
    """

    rest: Dataset
    erased: Records
    untouched: Fact


def part(
    source: DataSource, is_erased: IsErased, before: Mapping[str, object] | None = None
) -> ErasedDataset:
    """Load the data, and take out what was erased.

    Args:
        before: ``Dataset.settled`` as it was with the erased records; None: as it is with those
            that the data still has.

    Raises:
        DataMissing, DataError: as ``load``; nothing, or one class, is left; a copy that is not the
            last is gone; or the source takes constants from its records and cannot leave some out.
    """
    loaded = source.load()
    erased = is_erased(loaded.train.ids, loaded.train.units)
    stated: Evidence = loaded.preprocessing
    if hasattr(source, "stated"):
        stated = source.stated(loaded.settled).constants
    rest = loaded
    if erased.any():
        rest = (
            source.load_without(is_erased)
            if hasattr(source, "load_without")
            else without(loaded, erased, stated)
        )
    earlier = loaded.settled if before is None else before
    same = _as_json(earlier) == _as_json(rest.settled)
    return ErasedDataset(rest, loaded.train.take(erased), _untouched(stated, same))


def _as_json(settled: Mapping[str, object]) -> str:
    return json.dumps(settled, sort_keys=True, default=list)


def without(loaded: Dataset, erased: np.ndarray, stated: Evidence) -> Dataset:
    """The dataset less the records that ``erased`` [n] bool marks.

    Raises DataError: by ``stated`` there is no such.
    """
    if not stated.held:
        raise DataError(
            f"{loaded.name}: the features depend on constants that are computed from all records "
            f"({stated.missing}), and the Python class of this data set cannot load the data "
            "without the erased records. Delete the erased records from the data, or give the "
            "class a method load_without(is_erased)"
        )
    check_last(_families_by_content(loaded.train), erased)
    plane = loaded.plane and replace(loaded.plane, points=loaded.plane.points[~erased])
    return replace(loaded, train=loaded.train.take(~erased), plane=plane)


def _untouched(stated: Evidence, same: bool) -> Fact:
    if not stated.held:
        return not_held(
            "features_read_off_records",
            missing=tuple(fact for fact in stated.facts if not fact.held),
        )
    if not same:
        return not_held("erased_decided_constants")
    if stated.declarations:
        return declared("read_as_before_as_declared", declaration=stated.declarations[0])
    return proved("read_as_before")


def check_last(families: np.ndarray, erased: np.ndarray) -> None:
    """Refuse that a copy goes and a later one stays.

    Args:
        families: [n] str, the same for copies.
        erased: [n] bool.

    Raises:
        DataError: naming both rows.
    """
    first: dict[str, int] = {}
    for row in np.flatnonzero(np.isin(families, families[erased])).tolist():
        family = str(families[row])
        if erased[row]:
            first.setdefault(family, row)
        elif family in first:
            erased_row = row_words(first[family])
            remaining_row = row_words(row)
            raise DataError(
                f"{erased_row} would be erased, but {remaining_row}, an identical copy, would "
                "stay. If ids are hashes of contents, identical copies are numbered, and the "
                "copy with the highest number must be erased first: request the id of that copy"
            )


def families(source: DataSource, train: Records) -> np.ndarray:
    """[n] str, the same for training records that are copies of each other and whose ids number
    them (dataset.py).
    """
    if hasattr(source, "families"):
        return source.families(train.ids)
    return _families_by_content(train)


def _families_by_content(train: Records) -> np.ndarray:
    if not all(CONTENT.fullmatch(str(name)) for name in train.ids.tolist()):
        return train.ids
    tags = [f"{label} {public}" for label, public in zip(train.labels, train.public, strict=True)]
    return content_ids(train.features, np.array(tags, dtype=object), numbered=False)
