"""A large table of statements, csv or parquet, read in chunks, in bounded memory.

How a value is read depends on that value and the type its column was declared to have: no types are
guessed.


Which customer each statement belongs to: names, units, split and places, in one pass over two
columns.

``agt data prepare amex``: the American Express default prediction data as memory-mapped arrays
(papers.md, AMEX).

Two passes in bounded memory: over customers and dates, then over the 188 features. Every value is
brought into a public range by constants of the configuration, each on its own, so that nothing
about a record depends on another.


Synthetic statements in the schema of the American Express default prediction data: every number is
made up.

190 columns (customer_ID, S_2 and 188 features, two of them text), values mostly in [0, 1] with
noise up to .01, heavy tails, missing values, at most 13 statements a customer, and a target that
P_2 and B_1 say something about. Only the columns' names are the competition's.
scripts/make_amex_like.py writes them for trying ``agt data prepare amex``; a reproduction without
the competition's data runs on them, and says so.
"""

import csv
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pydantic import Field

from agt.data.arrays import row_words
from agt.data.cell_values import NULLS
from agt.data.files import open_columns
from agt.data.ids import hash_split
from agt.data.labelled import class_indices
from agt.data.prepared import read_prepared
from agt.errors import DataError, DataMissing, first_line, nearest
from agt.settings import Count, schema
from agt.store.locations import require, resolve

from .folder import ArrayFolder, OnProgress, PreparedFolder, open_folder

_BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Statements:
    """A table that can be read, again and again, in the same chunks.

    Attributes:
        path: a csv, cut at the first line end after every so many bytes (a value may hold none); or
            a parquet file, cut into batches of rows within each of its row groups.
        names: its columns.
        about_rows: about how many rows it has; of a csv, from its size and its first chunk.
        chunk_bytes: how much of a csv is read at once.
    """

    path: Path
    names: tuple[str, ...]
    about_rows: int
    chunk_bytes: int

    def read(self, types: Mapping[str, pa.DataType], start: int = 0) -> Iterator[pa.Table]:
        """The chunks from number ``start`` on, with the columns named, each of the type given.

        Raises:
            DataError: a value is not of its column's type, or the file is damaged.
        """
        if self.path.suffix == ".csv":
            return self._csv(types, start)
        return self._parquet(types, start)

    def _csv(self, types: Mapping[str, pa.DataType], start: int) -> Iterator[pa.Table]:
        options = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=NULLS,
            strings_can_be_null=True,
        )
        columns = pa.csv.ReadOptions(column_names=list(self.names))
        with self.path.open("rb") as file:
            file.readline()
            number = 0
            begin = file.tell()
            while block := file.read(self.chunk_bytes) + file.readline():
                if number >= start:
                    try:
                        yield pa.csv.read_csv(
                            pa.BufferReader(block), read_options=columns, convert_options=options
                        )
                    except pa.ArrowException as error:
                        raise DataError(
                            f"{self.path}: bytes {begin} to {file.tell()}: {first_line(error)}"
                        ) from None
                number += 1
                begin = file.tell()

    def _parquet(self, types: Mapping[str, pa.DataType], start: int) -> Iterator[pa.Table]:
        # Column pages are read through a small buffer, so that one group may be as large as the
        # file.
        file = pa.parquet.ParquetFile(self.path, buffer_size=2**16, pre_buffer=False)
        number = 0
        for group in range(file.num_row_groups):
            try:
                for batch in file.iter_batches(
                    _BATCH_ROWS, row_groups=[group], columns=list(types)
                ):
                    if number >= start:
                        columns = {}
                        for name, to in types.items():
                            columns[name] = self._cast(batch.column(name), name, to)
                        yield pa.table(columns)
                    number += 1
            except (pa.ArrowException, OSError) as error:
                raise DataError(
                    f"{self.path}: row group {group} cannot be read: {first_line(error)}"
                ) from None

    def _cast(self, column: pa.Array, name: str, to: pa.DataType) -> pa.Array:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if pa.types.is_string(to) and not text:
            raise DataError(
                f"{self.path}: column '{name}' must hold text, but it holds {column.type}"
            )
        if pa.types.is_floating(to) and not (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        ):
            raise DataError(
                f"{self.path}: column '{name}' must hold numbers, but it holds {column.type}"
            )
        try:
            return column.cast(to, safe=not pa.types.is_floating(to))
        except pa.ArrowException as error:
            raise DataError(f"{self.path}: column '{name}': {first_line(error)}") from None


def open_statements(path: Path, setting: str, chunk_mb: int) -> Statements:
    """Open a csv or parquet file.

    Raises:
        DataMissing: it is not there.
        DataError: the format is unknown, or the file has no header or footer.
    """
    require(path, f"{setting} or data_dir")
    if path.suffix == ".csv":
        return _open_csv(path, chunk_mb * 2**20)
    if path.suffix != ".parquet":
        raise DataError(f"{path}: {setting} must be a .csv or .parquet file, not '{path.suffix}'")
    try:
        metadata = pa.parquet.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path}: this parquet file is damaged ({first_line(error)}). Download it again"
        ) from None
    return Statements(path, tuple(metadata.schema.to_arrow_schema().names), metadata.num_rows, 0)


def _open_csv(path: Path, chunk_bytes: int) -> Statements:
    with path.open("rb") as file:
        try:
            header = file.readline().decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            header = ""
        names = tuple(next(csv.reader([header]), ()))
        if len(names) < 2 or len(set(names)) < len(names):
            raise DataError(
                f"{path}: the first line must name the columns of a csv, but it is {header[:60]!r}"
            )
        head = file.read(chunk_bytes)
    row_bytes = max(1, len(head) // max(1, head.count(b"\n")))
    return Statements(path, names, path.stat().st_size // row_bytes, chunk_bytes)


def require_columns(names: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Raise DataError naming the first of ``wanted`` that is absent."""
    for name in wanted:
        if name not in names:
            raise DataError(f"{path}: there is no column '{name}'{nearest(name, names[:8])}")


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


Range = tuple[float, float]
PAGE = "https://www.kaggle.com/competitions/amex-default-prediction"


@schema
class Amex:
    """Writes x [n, features] float32, label, id, unit and is_test, training rows first, for
    ``dataset=amex``.

    Attributes:
        out: the folder to write; relative to ``data_dir``.
        data_dir: folder of relative paths.
        data: the competition's train_data, csv or parquet.
        labels: its train_labels, csv or parquet.
        features: how many features it must have: all columns but customer_ID and S_2.
        clamp: a feature's first letter (D, S, P, B, R) -> its public range; values are clamped to
            it.
        coded: numbers that stand for categories: column -> public range, clamped to and scaled to
            [0, 1].
        vocabulary: text columns: column -> public list of values, coded 0 to 1 in equal steps; any
            other value is missing.
        missing: public constant in place of a missing value.
        unit_rows: public cap on the statements of one customer, enforced.
        chunk_mb: MiB of a csv read at once.
        test_fraction, split_key: public rate and key of the hash that makes a customer a test
            customer.
    """

    out: Path
    clamp: Mapping[str, Range]
    data_dir: Path = Path("data")
    data: Path = Path("train_data.csv")
    labels: Path = Path("train_labels.csv")
    features: Count = 188
    coded: Mapping[str, Range] = Field(default_factory=dict)
    vocabulary: Mapping[str, Annotated[tuple[str | int, ...], Field(min_length=2)]] = Field(
        default_factory=dict
    )
    missing: float = 0.0
    unit_rows: Count = 13
    chunk_mb: Count = 16
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    split_key: str = "amex"

    def __post_init__(self) -> None:
        for name, (low, high) in {**self.clamp, **self.coded}.items():
            if not low < high:
                raise ValueError(
                    f"the range of {name} is [{low:g}, {high:g}]: its first number must be below "
                    "its second"
                )

    def run(self, on_progress: OnProgress, note: Callable[[str], None]) -> PreparedFolder:
        """Write the folder, or finish the one that an interrupted run left.

        Args:
            on_progress: called after every chunk.
            note: called with a line about what is going on.
        """
        data = self._there(self.data, "data")
        labels = self._there(self.labels, "labels")
        statements = open_statements(data, "prepare.data", self.chunk_mb)
        names = self._features(statements)
        out = resolve(self.out, self.data_dir)
        with open_folder(out, self._settings(data, labels, names)) as folder:
            if not folder.finished:
                places = self._index(folder, statements, labels, names, note)
                self._write(folder, statements, names, places, on_progress)
            return self._outcome(read_prepared(folder.out), folder)

    def _there(self, path: Path, key: str) -> Path:
        path = resolve(path, self.data_dir)
        if not path.is_file():
            raise DataMissing(
                f"{path} does not exist. Accept the rules at {PAGE}, then type kaggle "
                f"competitions download -c amex-default-prediction -f {path.name} -p "
                f"{path.parent} and unzip it there, or change prepare.{key}"
            )
        return path

    def _features(self, statements: Statements) -> tuple[str, ...]:
        require_columns(statements.names, (CUSTOMER, DATE), statements.path)
        names = tuple(n for n in statements.names if n not in (CUSTOMER, DATE))
        require_columns(names, (*self.coded, *self.vocabulary), statements.path)
        others = [name for name in names if name not in {*self.coded, *self.vocabulary}]
        unknown = [name for name in others if name[:1] not in self.clamp]
        if unknown:
            raise DataError(
                f"{statements.path}: prepare.clamp gives no range for column '{unknown[0]}'"
            )
        if len(names) != self.features:
            raise DataError(
                f"{statements.path}: there are {len(names)} features, but "
                f"prepare.features={self.features}. Give the complete file, or set "
                f"prepare.features={len(names)}"
            )
        return names

    def _settings(self, data: Path, labels: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
        """All that the result depends on; of the files, which are large, their sizes and times."""
        keys = ("missing", "unit_rows", "chunk_mb", "test_fraction", "split_key")
        ranges = {"clamp": self.clamp, "coded": self.coded, "vocabulary": self.vocabulary}
        files = {}
        for key, path in (("data", data), ("labels", labels)):
            stat = path.stat()
            files[key] = {"bytes": stat.st_size, "modified": stat.st_mtime_ns}
        prepare = {key: getattr(self, key) for key in keys}
        return {"prepare": {**prepare, **ranges}, "files": files, "features": list(names)}

    # -- first pass: who
    # ----------------------------------------------------------------------------------------------

    def _index(
        self,
        folder: ArrayFolder,
        statements: Statements,
        labels: Path,
        names: tuple[str, ...],
        note: Callable[[str], None],
    ) -> Places:
        """Everything but the features, written as the first chunk; and where each row goes,
        found again by who goes on.
        """
        row_bytes = 0 if folder.done else 4 * len(names) + 64
        folder.require_room(int(0.9 * statements.about_rows) * row_bytes)
        note("first pass: customers and dates")
        people = read_index(statements)
        check_rows(people, self.unit_rows, statements.path)
        targets = match_labels(people, labels, statements.path)
        units = unit_names(people.customers)
        ids, repeats = statement_ids(people, units)
        test = hash_split(
            np.array(people.customers, dtype=object), self.test_fraction, self.split_key
        )
        if not test.any() or test.all():
            raise DataError(
                f"{statements.path}: with {len(test)} customers, there are no training or no "
                "test records: change prepare.test_fraction"
            )
        is_test = test[people.codes]
        # training rows first, test rows last, each in the order of the file
        order = np.argsort(is_test, kind="stable")
        rows = {
            "label": targets[people.codes].astype("u1"),
            "id": ids,
            "unit": units[people.codes],
            "is_test": is_test,
        }
        n = len(ids)
        columns: dict[str, Any] = {"x": ((n, len(names)), "<f4")}
        for name, array in rows.items():
            columns[name] = ((n,), array.dtype.str)
        folder.allocate(columns)
        if not folder.done:
            for name, array in rows.items():
                folder.write(name, 0, array[order])
            names_of = {
                "customer_ID": people.customers,
                "unit": units.astype(str),
                "target": targets,
                "is_test": test,
            }
            # to look a customer up
            pa.parquet.write_table(pa.table(names_of), folder.work / "customers.parquet")
            folder.finish_chunk()
        counts = {"records": n, "customers": len(units), "test_records": int(is_test.sum())}
        counts |= {"test_customers": int(test.sum()), "repeated_dates": repeats}
        return Places(np.argsort(order), people.chunk_rows, counts)

    # -- second pass: what
    # ----------------------------------------------------------------------------------------------

    def _write(
        self,
        folder: ArrayFolder,
        statements: Statements,
        names: tuple[str, ...],
        index: Places,
        on_progress: OnProgress,
    ) -> None:
        place = index.place
        ends = np.cumsum(index.chunk_rows)
        train_rows = len(place) - index.counts["test_records"]
        types = {name: pa.string() if name in self.vocabulary else pa.float32() for name in names}
        start = folder.done - 1
        for chunk, table in enumerate(statements.read(types, start), start=start):
            end = int(ends[chunk])
            if len(table) != index.chunk_rows[chunk]:
                raise DataError(
                    f"{statements.path} changed while it was read: delete {folder.work} and "
                    "start again"
                )
            x = self._values(table)
            to = place[end - len(table) : end]
            for part in (to < train_rows, to >= train_rows):  # each is an unbroken run of places
                if part.any():
                    folder.write("x", int(to[part][0]), x[part])
            folder.finish_chunk()
            on_progress(end, len(place))
        folder.finish(
            {"alone": self._alone(index.counts["repeated_dates"]), "counts": index.counts}
        )

    def _values(self, table: pa.Table) -> np.ndarray:
        """[rows, features] float32, every value in its public range or the constant for a
        missing one.
        """
        x = np.empty((len(table), table.num_columns), dtype=np.float32)
        for position, name in enumerate(table.column_names):
            x[:, position] = self._column(name, table.column(name).combine_chunks())
        return x

    def _column(self, name: str, column: pa.Array) -> np.ndarray:
        if name in self.vocabulary:
            known = [str(word) for word in self.vocabulary[name]]
            indices = pc.index_in(column, pa.array(known)).to_numpy(zero_copy_only=False)
            values = indices.astype(np.float64) / (len(known) - 1)
        else:
            low, high = self.coded[name] if name in self.coded else self.clamp[name[:1]]
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            values = np.clip(numbers, low, high)
            if name in self.coded:
                values = (values - low) / (high - low)
        return np.where(np.isnan(values), self.missing, values).astype(np.float32)

    def _alone(self, repeats: int) -> Mapping[str, Any]:
        why = (
            "each value was clamped and coded with public constants, and each id is made from "
            "customer and date"
        )
        again = (
            f"{repeats} statements have the customer and date of another one, and are numbered: "
            "only customers may be units (dataset=amex)"
        )
        of_rows = {"held": not repeats, "why": again if repeats else why}
        return {"units": {"held": True, "why": why}, "rows": of_rows}

    def _outcome(self, prepared: Mapping[str, Any], folder: ArrayFolder) -> PreparedFolder:
        counts = prepared["counts"]
        width = prepared["arrays"]["x"]["shape"][1]
        return PreparedFolder(
            folder=folder.out,
            metrics={**counts, "width": width},
            facts=(
                f"{counts['records']} statements of {counts['customers']} customers, at most "
                f"{self.unit_rows} of one; "
                f"{width} features",
                f"{counts['test_customers']} test customers with {counts['test_records']} "
                "statements, by a hash of "
                f"customer_ID under the public key '{self.split_key}'",
                "units (whom the guarantee protects): customers with dataset=amex; single "
                "statements, as in the papers, with dataset=amex_rows "
                f"({prepared['alone']['rows']['why']})",
                "customers.parquet names the unit of each customer, so it is private data",
            ),
            train=f"agt train experiment=amex dataset.path={folder.out.resolve()}",
        )


DAYS = np.datetime64("2017-03-01") + np.cumsum([0, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28])
CODED = {
    "B_30": (0, 2),
    "B_38": (1, 7),
    "D_66": (0, 1),
    "D_68": (0, 6),
    "D_114": (0, 1),
    "D_116": (0, 1),
} | {
    "D_117": (-1, 6),
    "D_120": (0, 1),
    "D_126": (-1, 1),
}
TEXT = {"D_63": ["CO", "CR", "CL", "XZ", "XM", "XL"], "D_64": ["O", "R", "U", "-1"]}
_BLOCK = 2_000


def feature_names() -> list[str]:
    """The 188 features."""
    numbers: dict[str, Sequence[int]] = {
        "P": range(2, 5),
        "D": [
            n
            for n in chain(
                [39],
                range(41, 57),
                range(58, 67),
                range(68, 85),
                range(86, 90),
                range(91, 97),
                range(102, 146),
            )
            if n != 95
        ],
        "B": [*range(1, 34), *range(36, 43)],
        "R": range(1, 29),
        "S": [3, *range(5, 10), *range(11, 14), *range(15, 21), *range(22, 28)],
    }
    return [f"{letter}_{number}" for letter, range_ in numbers.items() for number in range_]


def customers(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Statements of each customer, 1 to 13, most of them 13; ``rows`` in all."""
    has_most = rng.random(rows) < 0.84
    counts = np.where(has_most, 13, rng.integers(1, 13, size=rows))
    last_customer = int(np.searchsorted(np.cumsum(counts), rows))
    counts = counts[: last_customer + 1]
    counts[-1] -= counts.sum() - rows
    return counts


def blocks(counts: np.ndarray, risk: np.ndarray, rng: np.random.Generator) -> Iterator[pa.Table]:
    """The statements of ``_BLOCK`` customers at a time.

    Args:
        counts: [customers] statements of each.
        risk: [customers] in [0, 1], what the target is drawn from.
    """
    for start in range(0, len(counts), _BLOCK):
        part = counts[start : start + _BLOCK]
        who = np.repeat(np.arange(len(part)), part)
        n = len(who)
        months = np.concatenate([np.arange(13 - count, 13) for count in part])
        ids = np.array([customer_id(start + i) for i in range(len(part))])
        columns: dict[str, object] = {"customer_ID": ids[who], "S_2": DAYS[months].astype(str)}
        lean = risk[start : start + _BLOCK][who]
        for name in feature_names():
            columns[name] = feature(name, n, lean, rng)
        yield pa.table(columns)


def feature(name: str, n: int, lean: np.ndarray, rng: np.random.Generator) -> pa.Array:
    """[n] values of one column, about a tenth of them missing."""
    gone = rng.random(n, dtype=np.float32) < 0.1
    if name in TEXT:
        words = np.array(TEXT[name], dtype=object)
        return pa.array(words[rng.integers(len(words), size=n)], mask=gone)
    if name in CODED:
        low, high = CODED[name]
        codes = rng.integers(low, high + 1, size=n)
        return pa.array(codes.astype(np.float32), mask=gone)
    values = rng.random(n, dtype=np.float32) ** 2
    if name in ("P_2", "B_1"):
        mean = lean if name == "B_1" else 1 - lean
        values = (0.7 * mean + 0.3 * values).astype(np.float32)
    values += rng.random(n, dtype=np.float32) * np.float32(0.01)
    tail = rng.random(n, dtype=np.float32) < 1e-3
    values[tail] *= 1000
    return pa.array(values, mask=gone)


def customer_id(number: int) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def make(folder: Path, rows: int, format: str, seed: int = 0) -> tuple[Path, Path]:
    """Write both files; returns their paths."""
    rng = np.random.default_rng(seed)
    counts = customers(rows, rng)
    risk = rng.random(len(counts))
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"train_data.{format}"
    labels = folder / "train_labels.csv"
    tables = blocks(counts, risk, rng)
    kind = pa.csv.CSVWriter if format == "csv" else pa.parquet.ParquetWriter
    first = next(tables)
    with kind(data, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)
    target = (rng.random(len(counts)) < risk).astype(int)
    ids = [customer_id(number) for number in range(len(counts))]
    pa.csv.write_csv(pa.table({"customer_ID": ids, "target": target}), labels)
    return data, labels
