"""``agt data prepare amex``: the American Express default prediction data as memory-mapped arrays
(papers.md, AMEX).

Two passes in bounded memory: over customers and dates, then over the 188 features. Every value is
brought into a public range by constants of the configuration, each on its own, so that nothing
about a record depends on another.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from agt.data.ids import hash_split
from agt.data.prepared import read_prepared
from agt.errors import DataError, DataMissing
from agt.settings import Count, Probability, schema
from agt.store.locations import resolve

from .customers import (
    CUSTOMER,
    DATE,
    Places,
    check_rows,
    match_labels,
    read_index,
    statement_ids,
    unit_names,
)
from .folder import ArrayFolder, OnProgress, PreparedFolder, open_folder
from .statements import Statements, open_statements, require_columns

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
    test_fraction: Probability = 0.1
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
