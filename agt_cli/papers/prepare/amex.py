"""``agt data prepare amex``: the American Express default prediction data as memory-mapped arrays (reproductions.md, AMEX).

Two passes in bounded memory: over customers and dates, then over the 188 features. Every value is brought into a public
range by constants of the configuration, each on its own, so that nothing about a record depends on another.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pydantic import Field

from agt.data.assemble import hash_split
from agt.data.dataset import DataError
from agt.data.files import resolve
from agt.data.prepared import read_prepared
from agt.disk import write_atomic
from agt.errors import DataMissing
from agt.settings import schema
from agt_cli.papers.prepare import customers
from agt_cli.papers.prepare.contract import OnProgress, Outcome
from agt_cli.papers.prepare.folder import ArrayFolder, open_folder
from agt_cli.papers.prepare.statements import Statements, open_statements, require_columns

Count = Annotated[int, Field(ge=1)]
Range = tuple[float, float]
PAGE = "https://www.kaggle.com/competitions/amex-default-prediction"
_INDEX = "index.npz"
_COUNTS = ("records", "customers", "test_records", "test_customers", "repeated_dates")


@schema
class Amex:
    """Writes x [n, features] float32, label, id, unit and is_test, training rows first, for ``dataset=amex``.

    Attributes:
        out: the folder to write; relative to ``data_dir``.
        data_dir: folder of relative paths.
        data: the competition's train_data, csv or parquet.
        labels: its train_labels, csv or parquet.
        features: how many features it must have: all columns but customer_ID and S_2.
        clamp: a feature's first letter (D, S, P, B, R) -> its public range; values are clamped to it.
        coded: numbers that stand for categories: column -> public range, clamped to and scaled to [0, 1].
        vocabulary: text columns: column -> public list of values, coded 0 to 1 in equal steps; any other value is missing.
        missing: public constant in place of a missing value.
        unit_rows: public cap on the statements of one customer, enforced.
        chunk_mb: MiB of a csv read at once.
        test_fraction, split_key: public rate and key of the hash that makes a customer a test customer.
    """

    out: Path
    clamp: Mapping[str, Range]
    data_dir: Path = Path("data")
    data: Path = Path("train_data.csv")
    labels: Path = Path("train_labels.csv")
    features: Count = 188
    coded: Mapping[str, Range] = Field(default_factory=dict)
    vocabulary: Mapping[str, Annotated[tuple[str | int, ...], Field(min_length=2)]] = Field(default_factory=dict)
    missing: float = 0.0
    unit_rows: Count = 13
    chunk_mb: Count = 16
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    split_key: str = "amex"

    def __post_init__(self) -> None:
        for name, (low, high) in {**self.clamp, **self.coded}.items():
            if not low < high:
                raise ValueError(f"the range of {name} is [{low:g}, {high:g}]: low must be below high")

    def run(self, on_progress: OnProgress, note: Callable[[str], None]) -> Outcome:
        """As ``Preparation.run``."""
        data, labels = (self._there(path, key) for path, key in ((self.data, "data"), (self.labels, "labels")))
        statements = open_statements(data, "prepare.data", self.chunk_mb)
        names = self._features(statements)
        with open_folder(resolve(self.out, self.data_dir), self._settings(data, labels, names)) as folder:
            if not folder.finished:
                index = self._index(folder, statements, labels, len(names), note)
                self._write(folder, statements, names, index, on_progress)
            return self._outcome(read_prepared(folder.out), folder)

    def _there(self, path: Path, key: str) -> Path:
        path = resolve(path, self.data_dir)
        if not path.is_file():
            raise DataMissing(
                f"{path} is not there: accept the rules at {PAGE}, then run: kaggle competitions download "
                f"-c amex-default-prediction -f {path.name} -p {path.parent} (and unzip it there), or change prepare.{key}"
            )
        return path

    def _features(self, statements: Statements) -> tuple[str, ...]:
        require_columns(statements.names, (customers.CUSTOMER, customers.DATE), statements.path)
        names = tuple(n for n in statements.names if n not in (customers.CUSTOMER, customers.DATE))
        require_columns(names, (*self.coded, *self.vocabulary), statements.path)
        unknown = [n for n in names if n not in self.coded and n not in self.vocabulary and n[:1] not in self.clamp]
        if unknown:
            raise DataError(f"{statements.path}: prepare.clamp has no range for the column '{unknown[0]}'")
        if len(names) != self.features:
            raise DataError(
                f"{statements.path}: {len(names)} features, expected {self.features}: a wrong or partial file, or else "
                f"prepare.features={len(names)}"
            )
        return names

    def _settings(self, data: Path, labels: Path, names: tuple[str, ...]) -> Mapping[str, Any]:
        """All that the result depends on; of the files, which are large, their sizes and times."""
        keys = ("missing", "unit_rows", "chunk_mb", "test_fraction", "split_key")
        ranges = {"clamp": self.clamp, "coded": self.coded, "vocabulary": self.vocabulary}
        files = {
            key: {"bytes": path.stat().st_size, "modified": path.stat().st_mtime_ns}
            for key, path in (("data", data), ("labels", labels))
        }
        return {"prepare": {**{key: getattr(self, key) for key in keys}, **ranges}, "files": files, "features": list(names)}

    # -- first pass: who ------------------------------------------------------------------------------------------------

    def _index(
        self, folder: ArrayFolder, statements: Statements, labels: Path, width: int, note: Callable[[str], None]
    ) -> Mapping[str, np.ndarray]:
        """Everything but the features, written; and where each row goes. It counts as the first chunk."""
        kept = folder.work / _INDEX
        if folder.done:
            with np.load(kept) as saved:
                index = dict(saved)
            folder.allocate(self._columns(index, width))
            return index
        folder.require_room(int(0.9 * statements.about_rows) * (4 * width + 64))
        note("first pass: customers and dates")
        people = customers.read_index(statements)
        customers.check_rows(people, self.unit_rows, statements.path)
        targets = customers.match_labels(people, labels, statements.path)
        units = customers.unit_names(people.customers)
        ids, repeats = customers.statement_ids(people, units)
        test = hash_split(np.array(people.customers, dtype=object), self.test_fraction, self.split_key)
        if not test.any() or test.all():
            raise DataError(f"{statements.path}: {len(test)} customers leave a split empty: change prepare.test_fraction")
        is_test = test[people.codes]
        order = np.argsort(is_test, kind="stable")  # training rows first, test rows last, each in the order of the file
        counts = np.array([len(ids), len(units), int(is_test.sum()), int(test.sum()), repeats])
        index = {"chunk_rows": np.array(people.chunk_rows), "counts": counts, "id": np.empty(0, ids.dtype)}
        index["place"] = np.argsort(order)
        folder.allocate(self._columns(index, width))
        rows = {"label": targets[people.codes], "id": ids, "unit": units[people.codes], "is_test": is_test}
        for name, array in rows.items():
            folder.write(name, 0, array[order])
        _write_customers(folder.work / "customers.parquet", people, units, targets, test)
        content = BytesIO()
        np.savez(content, **index)
        write_atomic(kept, content.getvalue())  # a chunk that counts as finished is on the disk
        folder.finish_chunk()
        return index

    def _columns(self, index: Mapping[str, np.ndarray], width: int) -> dict[str, tuple[tuple[int, ...], str]]:
        n = len(index["place"])
        kinds = {"label": "|u1", "id": index["id"].dtype.str, "unit": "|S16", "is_test": "|b1"}
        return {"x": ((n, width), "<f4"), **{name: ((n,), kind) for name, kind in kinds.items()}}

    # -- second pass: what ----------------------------------------------------------------------------------------------

    def _write(
        self,
        folder: ArrayFolder,
        statements: Statements,
        names: tuple[str, ...],
        index: Mapping[str, np.ndarray],
        on_progress: OnProgress,
    ) -> None:
        place, ends = index["place"], np.cumsum(index["chunk_rows"])
        train_rows = len(place) - _counts(index)["test_records"]
        types = {name: pa.string() if name in self.vocabulary else pa.float32() for name in names}
        start = folder.done - 1
        for chunk, table in enumerate(statements.read(types, start), start=start):
            end = int(ends[chunk])
            if len(table) != index["chunk_rows"][chunk]:
                raise DataError(f"{statements.path}: it changed while it was read: delete {folder.work} and start again")
            x, to = self._values(table), place[end - len(table) : end]
            for part in (to < train_rows, to >= train_rows):  # each is an unbroken run of places
                if part.any():
                    folder.write("x", int(to[part][0]), x[part])
            folder.finish_chunk()
            on_progress(end, len(place))
        counts = _counts(index)
        folder.finish({"alone": self._alone(counts["repeated_dates"]), "counts": counts})
        (folder.out / _INDEX).unlink()

    def _values(self, table: pa.Table) -> np.ndarray:
        """[rows, features] float32, every value in its public range or the constant for a missing one."""
        x = np.empty((len(table), table.num_columns), dtype=np.float32)
        for position, name in enumerate(table.column_names):
            x[:, position] = self._column(name, table.column(name).combine_chunks())
        return x

    def _column(self, name: str, column: pa.Array) -> np.ndarray:
        if name in self.vocabulary:
            known = [str(word) for word in self.vocabulary[name]]
            values = pc.index_in(column, pa.array(known)).to_numpy(zero_copy_only=False).astype(np.float64)
            values /= len(known) - 1
        else:
            low, high = self.coded[name] if name in self.coded else self.clamp[name[:1]]
            values = np.clip(column.to_numpy(zero_copy_only=False).astype(np.float64), low, high)
            if name in self.coded:
                values = (values - low) / (high - low)
        return np.where(np.isnan(values), self.missing, values).astype(np.float32)

    def _alone(self, repeats: int) -> Mapping[str, Any]:
        why = "each value was clamped and coded by public constants, and each name comes from customer and date"
        again = (
            f"{repeats} statements share customer and date with another, and are numbered: only customers may be units "
            "(dataset=amex)"
        )
        return {
            "units": {"held": True, "why": why},
            "rows": {"held": not repeats, "why": again if repeats else why},
        }

    def _outcome(self, prepared: Mapping[str, Any], folder: ArrayFolder) -> Outcome:
        counts, width = prepared["counts"], prepared["arrays"]["x"]["shape"][1]
        return Outcome(
            folder=folder.out,
            metrics={**counts, "width": width},
            facts=(
                f"{counts['records']} statements of {counts['customers']} customers, at most {self.unit_rows} of one; "
                f"{width} features",
                f"{counts['test_customers']} test customers with {counts['test_records']} statements, by a hash of "
                f"customer_ID under the public key '{self.split_key}'",
                "units: customers with dataset=amex; statements, as the papers count, with dataset=amex_rows "
                f"({prepared['alone']['rows']['why']})",
                "customers.parquet names each customer's unit: it is private data",
            ),
            train=f"agt train experiment=amex dataset.path={folder.out.resolve()}",
        )


def _counts(index: Mapping[str, np.ndarray]) -> dict[str, int]:
    return dict(zip(_COUNTS, index["counts"].tolist(), strict=True))


def _write_customers(path: Path, index: customers.Index, units: np.ndarray, labels: np.ndarray, test: np.ndarray) -> None:
    """customer_ID beside the unit, for whoever looks a customer up."""
    columns = {"customer_ID": index.customers, "unit": units.astype(str), "target": labels, "is_test": test}
    pa.parquet.write_table(pa.table(columns), path)
