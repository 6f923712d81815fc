"""Check the labels that a release published: how many there are, and whether each is possible."""

import csv
from collections.abc import Mapping
from io import BytesIO, TextIOWrapper
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.statistics import NoisyStatistics
from agt.models.number_votes import NumberVotes
from agt.store.reading import Broken
from agt.training.lattice import LATTICE_STEPS
from agt_cli.verify.folders import Record, model_of
from agt_cli.verify.pages import open_parquet

LABEL_FILES = ("labels.csv", "labels.parquet")
LABEL_COLUMNS = ["record_id", "label"]
MAX_CLASSES = 10_000


def check_labels(record: Record, trained: Record | None) -> str | None:
    """Check that the file of labels has as many labels as were counted, and only possible ones.

    Args:
        record: the record of the release.
        trained: the training run that it was made from; None: it was not found, so only the
            number of labels is checked.

    Returns:
        A sentence that says what was checked; None: no labels were released.

    Raises:
        Broken: the file or metrics.json is not as described.
    """
    labels = read_labels(record)
    if labels is None:
        return None
    answered = record.metrics.get("answered")
    unanswered = record.metrics.get("unanswered")
    record.compared.update(("n_queries", "answered", "unanswered"))
    if answered is not None and answered + unanswered != record.metrics["n_queries"]:
        queries = record.metrics["n_queries"]
        raise Broken(
            f"metrics.json counts {answered} answered and {unanswered} unanswered queries, but "
            f"{queries} queries in all (n_queries)"
        )
    rows = len(labels)
    count = _answer_count(record)
    if rows != count:
        raise Broken(f"the file of labels has {rows} rows, but metrics.json counts {count} labels")
    model = model_of(trained)
    if model is not None and model.number_votes is not None:
        drawn_from_sums = _uses_mechanism(record, LaplaceMean)
        return _check_numbers(labels, model.number_votes, drawn_from_sums)
    classes = [] if trained is None else trained.classes
    sentence = f"the file of labels has {count} labels, as metrics.json says"
    if not classes:
        return sentence
    unknown = sorted(set(pc.unique(labels).to_pylist()).difference(classes))
    if unknown:
        label = unknown[0]
        raise Broken(f"the labels include {label!r}, which is not a class of the training run")
    return f"{sentence}, and each label is a class of the training run"


def _check_numbers(labels: pa.DictionaryArray, model: NumberVotes, drawn_from_sums: bool) -> str:
    """Check that each released number is one that the mechanism can have drawn.

    Args:
        labels: [n] the numbers as text, as the file has them.
        model: the model that answered, with its public constants.
        drawn_from_sums: True: the mechanism added noise to the sum of the members' answers, so
            each number is on a public lattice. False: released weights computed the numbers, so
            they may be any in the range of the labels.

    Returns:
        A sentence that says what was checked.

    Raises:
        Broken: a label is not a number, is out of range, or is not on the lattice.
    """
    try:
        numbers = np.array([float(word) for word in labels.dictionary.to_pylist()])
    except ValueError as error:
        raise Broken(f"the file of labels has a label that is not a number ({error})") from None
    target = model.target
    if not ((numbers >= target.low) & (numbers <= target.high)).all():  # NaN compares false
        raise Broken(
            f"the file of labels has a number outside of the range [{target.low:g}, "
            f"{target.high:g}] of the training run"
        )
    if not drawn_from_sums:
        return (
            f"the file of labels has {len(labels)} numbers, as metrics.json says, and each is in "
            "the range of the training run"
        )
    points = model.settings.ensemble.members * LATTICE_STEPS
    with np.errstate(invalid="ignore", over="ignore"):
        shares = (numbers - model.target.low) / model.target.width
        nearest = np.rint(shares * points)
    # A label is the number of a sum; rounding may have moved the share by a few sums.
    possible = np.zeros(len(numbers), dtype=bool)
    for step in range(-2, 3):
        sums = np.clip(nearest + step, 0, points)
        possible |= model.mean_of(sums) == numbers
    if not possible.all():
        wrong = float(numbers[~possible][0])
        raise Broken(
            f"the mechanism cannot have drawn the released label {wrong!r}, because it draws only "
            "numbers of a public lattice, which does not contain this number"
        )
    return (
        f"the file of labels has {len(labels)} numbers, as metrics.json says, and each is on the "
        "lattice of the mechanism"
    )


def _answer_count(record: Record) -> Any:
    """Return the number of labels that metrics.json counts; None: it counts none.

    It may be smaller than the number of queries, because a budget may end in the middle of a file.
    """
    return record.metrics.get("answered", record.metrics.get("n_queries"))


def read_labels(record: Record) -> pa.DictionaryArray | None:
    """Read the released labels of a record, [n], in the order of the file.

    Returns:
        The labels, whose dictionary has the name of each class once; None: the record has no file
        of labels.

    Raises:
        Broken: agt does not write such a table, or a parquet file has another number of rows than
            metrics.json counts.
    """
    name = next((name for name in LABEL_FILES if record.holds(name)), None)
    if name is None:
        return None
    is_table = name == LABEL_FILES[0]
    content = record.read(name)
    try:
        if is_table:
            columns, labels = _read_csv_labels(content)
        else:
            columns, labels = _read_parquet_labels(content, _answer_count(record))
        may_be_numbers = _uses_mechanism(record, LaplaceMean) or _uses_mechanism(
            record, NoisyStatistics
        )
        too_many = len(labels.dictionary) > MAX_CLASSES and not may_be_numbers
        if columns != LABEL_COLUMNS or too_many or labels.null_count:
            expected = " and ".join(LABEL_COLUMNS)
            raise ValueError(
                f"the columns must be {expected}, with a label in each row and at most "
                f"{MAX_CLASSES} different labels"
            )
    except (csv.Error, ValueError, OSError, IndexError, StopIteration, pa.ArrowException) as error:
        kind = "table" if is_table else "parquet file"
        raise Broken(f"{name} is not a valid {kind} of labels ({error})") from None
    return labels


def _read_csv_labels(content: bytes) -> tuple[list[str], pa.DictionaryArray]:
    """Return the names of the columns of a csv file of labels, and its labels [n].

    The names are not checked.

    Raises:
        csv.Error, ValueError, StopIteration: the content is not a csv file of two columns.
    """
    rows = csv.reader(TextIOWrapper(BytesIO(content), "utf-8", newline=""), strict=True)
    columns = next(rows)
    labels = pa.array((label for _, label in rows), pa.string()).dictionary_encode()
    return columns, labels


def _read_parquet_labels(content: bytes, count: Any) -> tuple[list[str], pa.DictionaryArray]:
    """Return the names of the columns of a parquet file of labels, and its labels [n].

    The names are not checked.

    Args:
        content: the content of the file.
        count: how many rows it must have, by metrics.json.

    Raises:
        ValueError, OSError, IndexError, ArrowException: the content is not such a file.
    """
    label_column = LABEL_COLUMNS[1:]
    # A row that agt writes has its id uncompressed in at least 4 bytes, and Snappy unpacks 3 bytes
    # to at most 64, so a byte of the file holds at most 64 / (3 * 4) < 6 rows.
    file = open_parquet(content, label_column, count, max_rows_per_byte=6)
    table = file.read(label_column).unify_dictionaries()
    return file.schema_arrow.names, table.column(0).combine_chunks()


def _uses_mechanism(record: Record, mechanism: type[Any]) -> bool:
    """Return whether the settings of a release name this class of mechanism.

    Only names are compared: a class that a folder names is never imported.
    """
    node = record.config.get("mechanism")
    name = f"{mechanism.__module__}.{mechanism.__qualname__}"
    return isinstance(node, Mapping) and str(node.get("_target_")) == name
