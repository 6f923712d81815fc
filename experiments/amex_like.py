"""Synthetic statements in the schema of the American Express default prediction data.

Every number is made up.

190 columns (customer_ID, S_2 and 188 features, two of them text), values mostly in [0, 1] with
noise up to .01, heavy tails, missing values, at most 13 statements a customer, and a target that
P_2 and B_1 say something about. Only the columns' names are the competition's.
scripts/make_amex_like.py writes them for trying ``agt data prepare amex``; a reproduction without
the competition's data runs on them, and says so.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

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
