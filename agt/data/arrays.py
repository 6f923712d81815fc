"""Arrays in memory as a dataset: what programs and notebooks train on (agt/api.py).

Code sees numbers and not where they come from: what a condition needs to know about them is said in ``Declared``, or is
not held.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.data.dataset import (
    UNLABELLED,
    DataError,
    Dataset,
    Records,
    default_ids,
    features_fact,
    ordinal,
    public_fact,
    records,
    size_fact,
)
from agt.data.labelled import MAX_FOUND
from agt.errors import ConfigError, nearest
from agt.facts import Fact, declared, grounds, proved, void
from agt.settings import MOST_ROWS


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What whoever trains says about data and settings, and no code can check. Claims list each with what would break it.

    Attributes:
        classes: the public list of label values, in the order of the classes; None: the sorted values found (condition e is
            then not held).
        size: a public constant, about how many training records there are; None: counted (condition c is then not held).
        features: each row was made from its own record alone, by public constants. Not so after a scaler, an imputer or
            components that were fitted on these records.
        settings: every setting was chosen on public data, or is a constant that somebody else published.
        ids: the ``ids`` and ``units`` given are the records' and the people's own, whatever becomes of other records.

    Raises:
        ConfigError: a size out of range, or a declaration that is neither True nor False.
    """

    classes: Sequence[object] | None = None
    size: int | None = None
    features: bool = False
    settings: bool = False
    ids: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and not (type(self.size) is int and 1 <= self.size <= MOST_ROWS):
            raise ConfigError(f"declared.size={self.size!r}: give a whole number from 1 to {MOST_ROWS}")
        if self.classes is not None and (isinstance(self.classes, str) or not isinstance(self.classes, Iterable)):
            raise ConfigError(f"declared.classes={self.classes!r}: give the list of label values")
        for name in ("features", "settings", "ids"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"declared.{name}={getattr(self, name)!r}: say True or False")


def dataset_of(
    x: np.ndarray,
    y: np.ndarray,
    declarations: Declared,
    ids: np.ndarray | None = None,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
) -> tuple[Dataset, np.ndarray]:
    """A dataset without a test split, and the values of its classes.

    Args:
        x: [n, ...] numbers.
        y: [n] class labels.
        ids: [n] unique names; None: hashes of the content.
        units: [n] whose record each is; None: each its own.
        public: [n] bool, True where a record is public; None: all are private.

    Raises:
        DataError: lengths or dtypes that do not fit, a missing or unlisted label, a NaN; names the row.
    """
    x, y = features_of(x), _column("y", y, len(x))
    classes = _classes(y, declarations.classes)
    labels = _indices(y, classes)
    units = None if units is None else _names("units", units, len(x))
    public = None if public is None else _column("public", public, len(x))
    if public is not None and public.dtype != bool:
        raise DataError(f"public: expected True or False for each record, got {public.dtype}")
    named = default_ids(x, labels, units, public, exact=True) if ids is None else _names("ids", ids, len(x))
    everyone = records(x, labels, named, units, public)
    by_content = proved("each record's id is a hash of its own content")
    facts = [by_content if ids is None else _ids_fact("ids", named, declarations.ids)]
    if units is not None:
        facts.append(_ids_fact("units", units, declarations.ids))
    if public is not None:
        facts.append(public_fact("the records marked public are public"))
    dataset = Dataset(
        name="arrays",
        classes=tuple(str(value) for value in classes.tolist()),
        train=everyone,
        test=everyone.take(np.empty(0, dtype=np.int64)),
        declared_size=declarations.size,
        scaling={},
        selection=grounds(*facts, _features_fact(declarations.features)),
        preprocessing=grounds(_classes_fact(declarations.classes is not None)),
        size=None if declarations.size is None else size_fact(f"the size {declarations.size:g} (declared.size)"),
        tested=False,
    )
    return dataset, classes


def query_records(x: np.ndarray) -> Records:
    """Unlabelled queries.

    Raises:
        DataError: no numbers, or a NaN.
    """
    x = features_of(x)
    labels = np.full(len(x), UNLABELLED, dtype=np.int64)
    return records(x, labels, np.arange(len(x)).astype(str))


def features_of(x: object) -> np.ndarray:
    """[n, ...] float32 or float64; whole numbers and flags become float64, in which every one below 2^53 is exact.

    Raises:
        DataError: no array of numbers with one row for each record.
    """
    if np.ma.is_masked(x):
        raise DataError("features: masked values are missing ones: repair or drop their records")
    try:
        features = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"features: cannot be taken as an array of numbers ({error})") from None
    if features.dtype.kind not in "fiub" or features.ndim < 2:
        raise DataError(
            f"features: expected numbers of shape [records, ...], got {features.dtype} of shape {features.shape}: "
            "one row for each record (a single one: x[None])"
        )
    if features.dtype in (np.float32, np.float64):
        return features
    with np.errstate(over="ignore"):
        return features.astype(np.float64)


def _column(name: str, values: object, n: int) -> np.ndarray:
    """One value for each record, none of them missing.

    Raises:
        DataError: another number of values, or a missing one (counted from 0, as arrays are).
    """
    try:
        column = np.asarray(values)
        missing = np.flatnonzero(pd.isna(column)).tolist() if column.shape == (n,) else []
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{name}: cannot be taken as one value for each record ({error})") from None
    if column.shape != (n,):
        raise DataError(f"{name} has the shape {column.shape}, and there are {n} records: expected ({n},)")
    if len(missing):
        raise DataError(f"{name}: row {missing[0]} has no value: every record needs one")
    if column.dtype == object and not all(isinstance(value, str | int | float) for value in column.tolist()):
        raise DataError(f"{name}: expected numbers or text")
    return column


def _classes(y: np.ndarray, listed: Sequence[object] | None) -> np.ndarray:
    # The label values in the order of the classes.
    if listed is not None:
        classes = np.asarray(list(listed))
        if classes.ndim != 1 or len(set(classes.tolist())) != len(classes) or len(classes) < 2:
            raise DataError(f"declared.classes: expected two distinct values or more, got {list(listed)!r}")
        return classes
    try:
        classes = np.unique(y)
    except TypeError:
        raise DataError("y: its values cannot be put in order: list them in declared.classes") from None
    if len(classes) > MAX_FOUND:
        raise DataError(
            f"y: {len(classes)} distinct values: is this a regression target? Cut a number into ranges first, or if these "
            "are classes, list them in declared.classes"
        )
    return classes


def _indices(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    index = {value: place for place, value in enumerate(classes.tolist())}
    labels = [index.get(value, UNLABELLED) for value in y.tolist()]
    if UNLABELLED in labels:
        row = labels.index(UNLABELLED)
        known = ", ".join(map(str, index))
        raise DataError(
            f"y: row {row} has the label {y[row]!r}{nearest(str(y[row]), map(str, index))}; the classes are {known}"
        )
    return np.array(labels, dtype=np.int64)


def _names(name: str, values: np.ndarray, n: int) -> np.ndarray:
    plain = _column(name, values, n).tolist()
    if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in plain):
        raise DataError(f"{name}: expected whole numbers or text, each written in one form")
    return np.array([str(value) for value in plain])


def _ids_fact(name: str, values: np.ndarray, permanent: bool) -> Fact:
    broken_by = "one is a row number, or is given anew when another record comes or goes"
    if permanent:
        return declared(f"the {name} given are for good (declared.ids=True)", broken_by)
    counted = "count the rows" if ordinal(values) else "may be places in a table, such as an index"
    return void(
        f"the {name} given {counted}: a record that goes would then rename others, and move them to other batches; leave "
        "them out (hashes of content then), or say that they are the records' own with declared.ids=True"
    )


def _features_fact(said: bool) -> Fact:
    if said:
        return features_fact(
            "each row of features was made from its own record alone, by public constants (declared.features=True)"
        )
    return void(
        "nobody declared how the features were made: if each row comes from its own record alone, by public constants "
        "(no scaler fitted on these records), say so with declared.features=True"
    )


def _classes_fact(listed: bool) -> Fact:
    if listed:
        return declared("the list of classes is public (declared.classes)", "it was read off the records")
    return void("the list of classes was found in y: give the public list in declared.classes")
