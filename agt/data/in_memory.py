"""Arrays and data frames in memory, which ``agt.fit`` and notebooks train on.

Code sees the numbers of an array, and not where they come from. What a condition needs to know
about that is said in ``Declared``, or the condition is not met.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from agt.data.dataset import Dataset
from agt.data.ids import default_ids, resemble_row_numbers
from agt.data.labels import MAX_FOUND, class_indices
from agt.data.meanings import label_free_facts, label_range_fact
from agt.data.records import UNLABELLED, Records, records
from agt.data.target import ClassTarget, NumericTarget, Target, check_numbers
from agt.errors import ConfigError, DataError, few
from agt.facts import Fact, declared, evidence, not_held, proved
from agt.parameters import explaining_parameters
from agt.settings import MAX_ROWS

_NOT_IN_IDS = re.compile("[\0\ud800-\udfff]")


@explaining_parameters
@dataclass(frozen=True, kw_only=True)
class Declared:
    """What the user states about data and settings, because no code can check it.

    Claims list each statement, with what would make it false.

    Attributes:
        classes: the public list of label values, in the order of the classes; None: the sorted
            values found (condition e, that preprocessing is public, is then not met).
        size: a public constant, about how many training records there are; None: counted (condition
            c, that all constants are public, is then not met).
        features: each row was made from its own record alone, by public constants. This is false
            after a scaler, an imputer or components that were fitted on these records.
        settings: the model, the ids, the features and every setting were chosen on public data, or
            are constants that others published. It covers all settings that are given, also those
            that differ from the defaults, and nothing checks it. It is false after a change by
            results on these records, such as an accuracy or a warning of ``agt.fit``.
        network: the initial parameters of the ``nn.Module`` given as ``network`` are public
            constants. It is true if they were drawn at random, and false after training on private
            records. Without such a network, it says nothing.
        ids: the ``ids`` and ``units`` given belong to the records and the people themselves, and
            stay the same whatever becomes of other records.
        public: all of these records are public, such as those that settings are searched on:
            nothing that is released about them has to be counted. Claims are made as for private
            records.

    Raises:
        ConfigError: a size out of range, or a declaration that is neither True nor False.
    """

    classes: Sequence[object] | None = None
    size: int | None = None
    features: bool = False
    settings: bool = False
    ids: bool = False
    public: bool = False
    network: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError if a declaration has a wrong type or is out of range."""
        if self.size is not None and not (type(self.size) is int and 1 <= self.size <= MAX_ROWS):
            raise ConfigError(
                f"declared.size={self.size!r}: give a whole number from 1 to {MAX_ROWS}"
            )
        if self.classes is not None and (
            isinstance(self.classes, str) or not isinstance(self.classes, Iterable)
        ):
            raise ConfigError(f"declared.classes={self.classes!r}: give the list of label values")
        for name in ("features", "settings", "ids", "public", "network"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"declared.{name}={getattr(self, name)!r}: give True or False")


@dataclass(frozen=True)
class _TrainingLabels:
    """The labels of training records, and what they mean.

    Attributes:
        indices: [n] int64 indices of classes, or float64 numbers clipped to the public range.
        target: the classes, or the range.
        classes: [C] the label values of the classes; [0] if labels are numbers.
        fact: whether the classes or the range are public, as condition e (public preprocessing)
            requires.
        notes: sentences for the owner that say how many numbers were clipped.
    """

    indices: np.ndarray
    target: Target
    classes: np.ndarray
    fact: Fact
    notes: tuple[str, ...] = ()


def dataset_from_arrays(
    x: np.ndarray,
    y: np.ndarray,
    declarations: Declared,
    ids: np.ndarray | None = None,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
    label_free: bool = False,
    column_facts: tuple[Fact, ...] = (),
    numbers: NumericTarget | None = None,
) -> tuple[Dataset, np.ndarray]:
    """Make a dataset without a test split from arrays.

    Args:
        x: [n, ...] numbers. They are copied, unless they are memory-mapped.
        y: [n] labels.
        declarations: the user's declarations about the arrays.
        ids: [n] unique names; None: hashes of the content.
        units: [n] the person of each record; None: each record is a separate unit.
        public: [n] bool, True where a record is public; None: all are private.
        label_free: whether ids are hashed without labels, which relation=flip needs.
        column_facts: if a table's columns became x, the fact that rows were coded one by one
            (condition b: each record is processed by itself), and then those about the constants
            (condition e: preprocessing is public). Empty: the user's
            declaration about features is all that is known.
        numbers: the range of labels that are numbers; None: labels are classes.

    Returns:
        (the dataset, [C] the label values of its classes, none if labels are numbers).

    Raises:
        DataError: a length or dtype is wrong, a label is missing or not listed, or a feature is
            NaN; the message names the row.
    """
    features = _own_features(x)
    count = len(features)
    y = _check_values("y", y, count)
    labels = _class_labels(y, declarations) if numbers is None else _numeric_labels(y, numbers)
    if units is not None:
        units = check_names("units", units, count)
    if public is not None:
        public = _check_public(public, count)
    if ids is not None:
        ids = check_names("ids", ids, count)
    selection_facts = _selection_facts(ids, units, public, declarations, label_free)
    rows_fact = column_facts[0] if column_facts else _features_fact(declarations.features)
    if ids is None:
        hashed_labels = None if label_free else labels.indices
        ids = default_ids(features, hashed_labels, units, public, exact=True)
    train = records(features, labels.indices, ids, units, public)
    dataset = Dataset(
        name="arrays",
        target=labels.target,
        train=train,
        test=train.take(np.empty(0, dtype=np.int64)),
        declared_size=declarations.size,
        scaling={},
        selection=evidence(*selection_facts, rows_fact),
        label_free=label_free,
        preprocessing=evidence(*column_facts[1:], labels.fact),
        size=_size_fact(declarations.size),
        tested=False,
        notes=labels.notes,
    )
    return dataset, labels.classes


def _selection_facts(
    ids: np.ndarray | None,
    units: np.ndarray | None,
    public: np.ndarray | None,
    declarations: Declared,
    label_free: bool,
) -> list[Fact]:
    """Return the facts on what ids, units and public flags of records depend on.

    They are evidence for condition b of a privacy guarantee: each record is processed by itself.

    Args:
        ids: [n] str; None: ids are hashes of the content.
        units: [n] str; None: each record is a separate unit.
        public: [n] bool; None: all records are private.
        declarations: the user's declarations about the arrays.
        label_free: whether ids are hashed without labels.
    """
    facts: list[Fact] = [proved("ids_by_content")]
    if ids is not None:
        facts = [_ids_fact("ids", ids, declarations.ids)]
    if units is not None:
        facts.append(_ids_fact("units", units, declarations.ids))
    if public is not None:
        facts.append(declared("marked_public"))
    has_columns = any(column is not None for column in (ids, units, public))
    return [*facts, *label_free_facts(label_free, has_columns)]


def _class_labels(y: np.ndarray, declarations: Declared) -> _TrainingLabels:
    """Return labels that are classes.

    Args:
        y: [n] label values.
        declarations: the user's declarations, whose ``classes`` is the public list of classes; if
            that is None, the classes are those of y.

    Raises:
        DataError: a label is not listed; or there is no list, and y is not usable as classes.
    """
    if declarations.classes is None:
        classes = _find_classes(y)
    else:
        classes = _listed_classes(declarations.classes)
    indices = class_indices(y, classes.tolist(), Path("y"), "row {}".format, extensible=True)
    target = ClassTarget(tuple(str(value) for value in classes.tolist()))
    fact = _classes_fact(declarations.classes is not None)
    return _TrainingLabels(indices, target, classes, fact)


def _numeric_labels(y: np.ndarray, target: NumericTarget) -> _TrainingLabels:
    """Return labels [n] that are numbers, clipped to the range of ``target``.

    Raises:
        DataError: a label is no finite number.
    """
    numbers = check_numbers(y, "y")
    fact = label_range_fact(target.low, target.high, "range")
    notes = target.clipping_notes(numbers)
    return _TrainingLabels(target.clip(numbers), target, np.empty(0), fact, notes)


def query_records(x: object) -> Records:
    """Return queries without labels, from numbers [n, ...]; their ids are their row numbers.

    The numbers are copied, unless they are memory-mapped: a label and its stable distance, which
    are computed one after another, must be of the same query.

    Raises:
        DataError: ``x`` cannot be read as numbers, or a number is NaN or infinite.
    """
    features = _own_features(x)
    labels = np.full(len(features), UNLABELLED, dtype=np.int64)
    return records(features, labels, np.arange(len(features)).astype(str))


def reorder_columns(names: Sequence[str], frame: pd.DataFrame) -> pd.DataFrame:
    """Return a data frame with its columns in the order of ``names``.

    Args:
        names: the columns that a model was trained on; empty: it was trained on an array, so the
            frame is returned unchanged.
        frame: the data frame.

    Raises:
        DataError: a column is missing, unknown or repeated.
    """
    if not names:
        return frame
    given = [*map(str, frame.columns)]
    if sorted(given) != sorted({*names}):
        different = few(sorted({*given} ^ {*names}) or given)
        raise DataError(
            f"data frame: give each column that the model was trained on ({few(names)}) exactly "
            f"once, and no other column (missing, repeated or unknown: {different})"
        )
    return frame.iloc[:, [given.index(name) for name in names]]


def refuse_masked(name: str, values: object) -> None:
    """Raise DataError if an array has masked values: a conversion would use what is below the mask.

    Args:
        name: the argument, for messages.
        values: an object of any type. Of a list or a tuple, every item is examined, at any depth.
    """
    if _has_masked(values):
        raise DataError(
            f"{name}: the array has masked values, which are missing values: fill them in, or "
            "remove their records"
        )


def _has_masked(values: object) -> bool:
    """Return whether an array, or one in a list or a tuple at any depth, has masked values."""
    if isinstance(values, list | tuple):
        return any(map(_has_masked, values))
    return isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)


def check_features(x: object) -> np.ndarray:
    """Return features as an array of numbers, [n, ...] float32 or float64.

    Whole numbers and flags become float64, in which every whole number below 2^53 is exact.

    Raises:
        DataError: ``x`` is no array of numbers with one row for each record; it has masked values;
            or it is a table of Arrow or polars, whose column names an array would lose.
    """
    if hasattr(x, "to_pandas"):
        raise DataError(
            f"features: a {type(x).__name__} is not accepted, because agt would lose its column "
            "names and could not notice columns in another order: give a pandas data frame, "
            "x.to_pandas()"
        )
    refuse_masked("features", x)
    try:
        features = np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"features: the given object cannot be converted to an array of numbers ({error})"
        ) from None
    if features.dtype.kind not in "fiub" or features.ndim < 2:
        raise DataError(
            f"features: expected numbers with one row for each record, got type {features.dtype} "
            f"and shape {features.shape}. Features come first and labels second. For a single "
            "record, give x[None]; for a table with words, give columns=agt.Columns(...)"
        )
    if features.dtype in (np.float32, np.float64):
        return features
    with np.errstate(over="ignore"):
        return features.astype(np.float64)


def _own_features(x: object) -> np.ndarray:
    """Return a copy of the features, or the features themselves if they are memory-mapped.

    Raises:
        DataError: the features cannot be used (see ``check_features``).
    """
    is_mapped = isinstance(x, np.memmap)
    features = check_features(x)
    if not is_mapped:
        # Its owner may edit the array later, or another thread may now.
        return features.copy()
    return features


def _check_values(name: str, values: object, count: int) -> np.ndarray:
    """Return a copy of one value for each record, [count].

    Args:
        name: the argument, for messages.
        values: an array or sequence.
        count: the number of records.

    Raises:
        DataError: the number of values is another one, one is missing or masked (the message
            counts rows from 0, as arrays do), or one is neither a number nor text.
    """
    refuse_masked(name, values)
    try:
        column = np.array(values)  # a copy: what its owner edits later changes no record
        # As objects, None and NaN in a list are missing values, while the text "nan" is not.
        given = column if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
        has_shape = column.shape == given.shape == (count,)
        missing_rows = np.flatnonzero(pd.isna(given)).tolist() if has_shape else []
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(
            f"{name}: the given object cannot be converted to one value for each record ({error}): "
            "give a one-dimensional array or list"
        ) from None
    if column.shape != (count,):
        raise DataError(
            f"{name} has the shape {column.shape}, but there are {count} records: expected "
            f"({count},)"
        )
    if missing_rows:
        raise DataError(f"{name}: row {missing_rows[0]} has no value, but every record needs one")
    if column.dtype == object:  # other types, such as int64, are types of numbers or of text
        has_known_types = all(isinstance(value, str | int | float) for value in column.tolist())
        if not has_known_types:
            raise DataError(
                f"{name} must contain numbers or text, but contains values of another type"
            )
    return column


def _check_public(values: object, count: int) -> np.ndarray:
    """Return the flags of public records, [count] bool.

    Raises:
        DataError: they are no flags; or as ``_check_values``.
    """
    flags = _check_values("public", values, count)
    if flags.dtype != bool:
        raise DataError(
            "public= must be True or False for each record, but has values of the type "
            f"{flags.dtype}"
        )
    return flags


def _listed_classes(listed: Sequence[object]) -> np.ndarray:
    """Return the declared label values as an array [C], in their order.

    Raises:
        DataError: there are fewer than two, or one is repeated.
    """
    refuse_masked("declared.classes", listed)
    classes = np.asarray(list(listed))
    if classes.ndim != 1 or len(set(classes.tolist())) != len(classes) or len(classes) < 2:
        raise DataError(
            f"declared.classes: at least two distinct values are needed, got {list(listed)!r}"
        )
    return classes


def _find_classes(y: np.ndarray) -> np.ndarray:
    """Return the distinct labels, [C] in increasing order.

    Raises:
        DataError: they cannot be sorted, or there are more than ``MAX_FOUND``.
    """
    try:
        classes = np.unique(y)
    except TypeError:
        raise DataError(
            "y: the labels cannot be sorted, because they are of different types: list the "
            "classes in declared.classes"
        ) from None
    if len(classes) > MAX_FOUND:
        raise DataError(
            f"y: there are {len(classes)} different labels: if y is a measured number, replace "
            "the numbers by ranges first; if the labels are classes, list them in "
            "declared.classes"
        )
    return classes


def check_names(name: str, values: object, count: int) -> np.ndarray:
    """Return the ids of records or people as text, [count] str.

    ``fit`` and ``unfit`` both read ids by this function, so that the same ids are equal.

    Args:
        name: the argument, for messages.
        values: whole numbers or text.
        count: the number of records.

    Raises:
        DataError: the number of values is another one; or a value is missing, is neither a whole
            number nor text, or is text that no file can hold (half a surrogate pair) or that NumPy
            cuts short (a NUL).
    """
    _check_values(name, values, count)  # which only raises: its copy may have made text of numbers
    # A copy, so that the ids are what is checked, also if their owner edits them meanwhile.
    given = np.asarray(values, dtype=object).tolist()
    for row, value in enumerate(given):
        has_type = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        if not has_type or _NOT_IN_IDS.search(str(value)):
            raise DataError(
                f"{name}: row {row} has {value!r}, but needs a whole number or text (in the same "
                "form in all rows, without NUL and surrogate characters)"
            )
    return np.array([str(value) for value in given])


def _ids_fact(name: str, values: np.ndarray, permanent: bool) -> Fact:
    """Return the fact that names are permanent, or that this was not declared.

    Args:
        name: the argument, "ids" or "units".
        values: [n] str, the names.
        permanent: the user's ``Declared.ids``.
    """
    if permanent:
        return declared("names_for_good", names=name, setting="declared.ids=True")
    code = "names_count_rows" if resemble_row_numbers(values) else "names_may_be_places"
    return not_held(code, names=name, setting="declared.ids=True")


def _features_fact(is_declared: bool) -> Fact:
    """Return the fact that rows were made from one record each, or that it was not declared."""
    if is_declared:
        return declared("rows_made_alone", setting="declared.features=True")
    return not_held("features_undeclared", setting="declared.features=True")


def _size_fact(size: float | None) -> Fact | None:
    """Return the fact that the number of records is public; None: the number was counted."""
    return None if size is None else declared("size_public", size=size, setting="declared.size")


def _classes_fact(is_listed: bool) -> Fact:
    """Return the fact that the classes are a public list, or that they were found in y."""
    if is_listed:
        return declared("classes_public", setting="declared.classes")
    return not_held("classes_found_in_y", setting="declared.classes")
