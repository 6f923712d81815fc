"""The table of a release's labels, as anybody may have written it: how many rows it has, and which labels."""

import csv
from io import StringIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from agt.manifest import Broken
from agt_cli.verify.record import Record

FILES = ("labels.csv", "labels.parquet")
LARGEST = 2**30  # bytes of it
MOST_LABELS = 10_000  # different ones
_COLUMNS = ["record_id", "label"]


def name_of(record: Record) -> str | None:
    """Of the table of labels; None: the record has none."""
    return next((name for name in FILES if record.bound.holds(name)), None)


def read_labels(record: Record, name: str, count: int) -> tuple[int, set[str]]:
    """(the number of rows, the distinct labels).

    Args:
        count: so many there should be: of a parquet file that says otherwise, nothing else is read.

    Raises:
        Broken: it is no such table.
    """
    content = record.bound.read(name, LARGEST)
    try:
        return _of_csv(content) if name == FILES[0] else _of_parquet(content, count)
    except (csv.Error, ValueError, OSError, pa.ArrowException) as error:
        raise Broken(f"{name} is no proper {name.split('.')[1]} ({error})") from None


def _of_csv(content: bytes) -> tuple[int, set[str]]:
    head, *cells = csv.reader(StringIO(content.decode(), newline=""), strict=True)
    if head != _COLUMNS or any(len(row) != len(_COLUMNS) for row in cells):
        raise ValueError(f"its columns are not {' and '.join(_COLUMNS)}")
    return len(cells), {row[1] for row in cells}


def _of_parquet(content: bytes, count: int) -> tuple[int, set[str]]:
    file, labels = pq.ParquetFile(pa.BufferReader(content)), set[str]()
    rows = int(file.metadata.num_rows)
    if file.schema_arrow.names != _COLUMNS:
        raise ValueError(f"its columns are not {' and '.join(_COLUMNS)}")
    for batch in file.iter_batches(columns=_COLUMNS[1:]) if rows == count else ():
        labels |= {str(label) for label in pc.unique(batch.column(0)).to_pylist()}
        if len(labels) > MOST_LABELS:
            raise ValueError(f"more than {MOST_LABELS:,} different labels")
    return rows, labels
