#!/usr/bin/env python3
"""Processor time and peak memory of training on tables, each row in a process of its own.

    python scripts/bench_tables.py [--rows 100000] [--only NAME ...] [--keep FOLDER] [--json]

| name       | work                                                                      |
|------------|---------------------------------------------------------------------------|
| linear     | agt train, linear head: a csv of ``--rows`` rows and 30 numeric columns   |
| classifier | PrivateClassifier.fit on 2 x ``--rows`` records of 50 numbers             |
| votes      | agt train, certificate=votes: 3 x ``--rows`` rows, a member for each 93   |

Processor time is user and system time of the process and of those that it started: the clock of a
shared machine also measures what others do. Memory is the largest resident set. Data is random,
and the same for the same number of rows. With ``--keep`` the run folders stay in FOLDER, so that
two versions of the code can be compared file by file.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = 30
RANGE = 3.0  # numbers are standard normal, and their public ranges [-3, 3]
VOTE_COLUMNS = 8
ROWS_A_MEMBER = 93.7  # 300,000 rows (225,000 of them for training) make 2,401 members
CLASSIFIER_WIDTH = 50
_CLASSIFIER = """
import numpy as np
from agt import Declared, PrivateClassifier
rng = np.random.default_rng(0)
x = rng.standard_normal(({rows}, {width}))
y = (x[:, 0] > 0).astype(int)
before = __import__("resource").getrusage(0)
public = Declared(classes=[0, 1], size={rows}, features=True, settings=True)
PrivateClassifier(declared=public).fit(x, y)
after = __import__("resource").getrusage(0)
print("FIT", after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
"""
Row = dict[str, Any]


def write_table(path: Path, rows: int, columns: int) -> None:
    """Write a csv of standard normal numbers with four decimals, and a label that depends on three.

    Args:
        path: the file.
        rows: the number of records.
        columns: the number of numeric columns, x0, x1, ...; the label is y.
    """
    rng = np.random.default_rng(0)
    table = rng.standard_normal((rows, columns)).round(4)
    scores = table[:, 0] - 0.5 * table[:, 1] + table[:, 2] * table[:, 3]
    frame = pd.DataFrame(table, columns=[f"x{place}" for place in range(columns)])
    frame["y"] = np.where(scores + rng.standard_normal(rows) > 0, "yes", "no")
    frame.to_csv(path, index=False)


def measure(command: Sequence[str], folder: Path) -> Row:
    """Run a command, and return its processor seconds, its peak memory and its output.

    Args:
        command: the program and its arguments.
        folder: the working directory.

    Raises:
        SystemExit: the command failed; what it said is the message.
    """
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None, "standard output is a pipe"
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{said}")
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "peak_gib": usage.ru_maxrss / 2**20,
        "said": said,
    }


def train_command(table: Path, run: Path, rows: int, columns: int, *settings: str) -> list[str]:
    """Return the command line that trains on a table that ``write_table`` wrote."""
    ranges = ", ".join(f"x{place}: [-{RANGE}, {RANGE}]" for place in range(columns))
    return [
        *(sys.executable, "-m", "agt_cli", "train", "dataset=table", f"dataset.path={table}"),
        *("dataset.label=y", f"+dataset.numeric={{{ranges}}}", "dataset.classes=[no,yes]"),
        *(f"dataset.declared_size={round(0.75 * rows)}", f"hydra.run.dir={run}", *settings),
    ]


def linear(rows: int, folder: Path) -> Row:
    """Measure ``agt train`` with the linear head on a csv of 30 columns."""
    table = folder / f"linear{rows}.csv"
    if not table.exists():
        write_table(table, rows, COLUMNS)
    return measure(
        train_command(table, folder / f"linear{rows}", rows, COLUMNS, "compute.threads=1"), folder
    )


def classifier(rows: int, folder: Path) -> Row:
    """Measure ``PrivateClassifier.fit`` on arrays; start and imports are not counted."""
    code = _CLASSIFIER.format(rows=2 * rows, width=CLASSIFIER_WIDTH)
    row = measure([sys.executable, "-c", code], folder)
    line = next(line for line in row["said"].splitlines() if line.startswith("FIT"))
    row["user_s"], row["system_s"] = map(float, line.split()[1:])
    return row


def votes(rows: int, folder: Path) -> Row:
    """Measure ``agt train`` with votes of many members on a csv of 8 columns."""
    table = folder / f"votes{rows}.csv"
    if not table.exists():
        write_table(table, 3 * rows, VOTE_COLUMNS)
    members = round(0.75 * 3 * rows / ROWS_A_MEMBER)
    settings = ("certificate=votes", f"ensemble.members={members}", "compute.threads=1")
    command = train_command(table, folder / f"votes{rows}", 3 * rows, VOTE_COLUMNS, *settings)
    return measure(command, folder)


WORK: dict[str, Callable[[int, Path], Row]] = {
    "linear": linear,
    "classifier": classifier,
    "votes": votes,
}


def main() -> None:
    """Measure what was asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=WORK, default=[*WORK])
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) if given.keep is None else given.keep.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.only:
            row = WORK[name](given.rows, folder)
            del row["said"]
            row = {"name": name, "rows": given.rows, **row}
            if given.json:
                print(json.dumps(row), flush=True)
                continue
            seconds = row["user_s"] + row["system_s"]
            print(
                f"{name:<10} {given.rows:>9,} rows: {seconds:6.1f} s of processor time "
                f"({row['user_s']:.1f} user, {row['system_s']:.1f} system), "
                f"{row['peak_gib']:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
