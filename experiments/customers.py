"""Which customer each statement belongs to: names, units, split and places, in one pass over two
columns.
"""

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.arrays import row_words
from agt.data.files import open_columns
from agt.data.labels import class_indices
from agt.errors import DataError

from .statements import Statements, require_columns

CUSTOMER = "customer_ID"
DATE = "S_2"
TARGET = "target"
CLASSES = ("0", "1")


@dataclass(frozen=True)
class Index:
    """The statements' customers and dates, in the order of the file.

    Attributes:
        customers: customer_ID, in the order of first appearance.
        codes: [n] int32, each statement's customer.
        days: [n] int32, its date in days since 1970.
        chunk_rows: rows of each chunk of the file.
    """

    customers: list[str]
    codes: np.ndarray
    days: np.ndarray
    chunk_rows: tuple[int, ...]


def read_index(statements: Statements) -> Index:
    """One pass over customer_ID and S_2.

    Raises:
        DataError: a column is absent, or a value of it is missing or no date.
    """
    require_columns(statements.names, (CUSTOMER, DATE), statements.path)
    number: dict[str, int] = {}
    codes: list[np.ndarray] = []
    days: list[np.ndarray] = []
    rows: list[int] = []
    for table in statements.read({CUSTOMER: pa.string(), DATE: pa.date32()}):
        for name in (CUSTOMER, DATE):
            if table.column(name).null_count:
                is_missing = pc.is_null(table.column(name))
                row = sum(rows) + int(pc.index(is_missing, pa.scalar(True)).as_py())
                raise DataError(
                    f"{statements.path}: column '{name}' has no value in {row_words(row)}: every "
                    "row needs one"
                )
        names = table.column(CUSTOMER).combine_chunks().dictionary_encode()
        # a customer's code is the number of customers before the first statement
        of_name = [number.setdefault(name, len(number)) for name in names.dictionary.to_pylist()]
        codes.append(np.array(of_name, dtype=np.int32)[names.indices.to_numpy()])
        days.append(table.column(DATE).cast(pa.int32()).to_numpy())
        rows.append(len(table))
    if not number:
        raise DataError(f"{statements.path}: holds no rows")
    every_day = np.concatenate(days).astype(np.int32)
    return Index(list(number), np.concatenate(codes), every_day, tuple(rows))


def check_rows(index: Index, cap: int, path: Path) -> None:
    """Raise DataError where a customer has more than ``cap`` statements."""
    counts = np.bincount(index.codes, minlength=len(index.customers))
    if counts.max() > cap:
        raise DataError(
            f"{path}: customer {index.customers[int(counts.argmax())]} has {counts.max()} "
            f"statements, but prepare.unit_rows={cap}. Set prepare.unit_rows to a public limit "
            "on the statements of one customer"
        )


def match_labels(index: Index, path: Path, statements: Path) -> np.ndarray:
    """[customers] int64: each customer's label, from a file with customer_ID and target.

    Raises:
        DataMissing, DataError: no such file; a repeated customer; customers of one file that the
            other lacks.
    """
    columns = open_columns(path, "prepare.labels or data_dir")
    names = columns.unique_ids(CUSTOMER, "prepare.labels", as_text=True).tolist()
    labels = class_indices(columns.words(TARGET, "prepare.labels"), CLASSES, path, columns.row)
    label_of = dict(zip(names, labels.tolist(), strict=True))
    unlabelled = [name for name in index.customers if name not in label_of]
    known = set(index.customers)
    absent = [name for name in names if name not in known]
    faults = []
    for lacking, of, where, other in (
        (unlabelled, len(known), statements, path),
        (absent, len(names), path, statements),
    ):
        if lacking:
            faults.append(
                f"{len(lacking)} of {of} customers of {where} are not in {other} "
                f"(such as {lacking[0]})"
            )
    if faults:
        raise DataError(
            f"{'; '.join(faults)}. Give the two files of one data set, or cut both to the same "
            "customers"
        )
    return np.array([label_of[name] for name in index.customers], dtype=np.int64)


def unit_names(customers: list[str]) -> np.ndarray:
    """[customers] S16: a short name for each customer, a hash of customer_ID.

    Raises DataError if two share one.
    """
    hashes = [blake2b(name.encode(), digest_size=8).hexdigest() for name in customers]
    units = np.array(hashes, dtype="S16")
    if len(np.unique(units)) < len(units):
        raise DataError(
            "two customers have the same 64-bit hash, which cannot be by chance: check the file "
            "for altered ids"
        )
    return units


def statement_ids(index: Index, units: np.ndarray) -> tuple[np.ndarray, int]:
    """Each statement's name, unit/date, or unit/date#1, #2, ... after the first of one customer's
    day.

    Args:
        units: [customers] S16.

    Returns:
        [n] bytes; and how many statements share customer and date with an earlier one. The name of
        such a one depends on the customer's other statements, so only a whole customer's coming and
        going leaves other names alone.
    """
    n = len(index.codes)
    # few: as text each takes more than a hundred bytes at first
    days, of_row = np.unique(index.days, return_inverse=True)
    dates = np.datetime_as_string(days.astype("datetime64[D]")).astype("S10")[of_row]
    unit_letters = units[index.codes].view("S1").reshape(n, -1)
    date_letters = dates.view("S1").reshape(n, -1)
    letters = np.concatenate([unit_letters, np.full((n, 1), b"/"), date_letters], axis=1)
    ids = np.ascontiguousarray(letters).view("S27").reshape(n)
    customer_and_day = index.codes.astype(np.int64) * 2**32 + index.days
    keys = pd.Series(customer_and_day)
    occurrence = keys.groupby(keys).cumcount().to_numpy()
    repeats = np.flatnonzero(occurrence)
    if len(repeats):
        ids = ids.astype("S31")
        for row in repeats:
            number = str(occurrence[row]).encode()
            ids[row] = ids[row] + b"#" + number
    return ids, len(repeats)


@dataclass(frozen=True)
class Places:
    """Where rows go.

    Attributes:
        place: [n] each statement's row, in the order of the file.
        chunk_rows: rows of each chunk of the file.
        counts: records, customers, and those for testing.
    """

    place: np.ndarray
    chunk_rows: tuple[int, ...]
    counts: dict[str, int]
