"""How fast large files of queries are certified and answered, beside plain PyTorch's predictions of the same file.

    python scripts/bench_serving.py [rows ...]

A table of 12 columns, made here from a public seed; a linear head of the recipe's features. Each line is a process of its
own: seconds of the clock and of the processor (busy), rows per second of the latter, start and finish included, which
other work on the machine does not change, and the most memory it held. PyTorch reads the same parquet, makes
the same features (agt's own encoding, block by block) and takes the greater of its logits: no guarantee, no record. The
floor that is asked for: memory that grows by less than 500 bytes a row, and a tenth of PyTorch's rows per second.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUMERIC = {
    "age": [18, 100],
    "income": [0, 200],
    "hours": [0, 80],
    "years": [0, 40],
    "balance": [-50, 50],
    "visits": [0, 30],
}
WORDS = {"region": 8, "job": 20, "contract": 4, "channel": 5, "product": 12, "status": 3}
FLOOR, GROWTH = 0.1, 500  # of PyTorch's rows per second; bytes a row


class Measured(NamedTuple):
    """What a process took: seconds of the clock and of processors, and MiB at most."""

    wall: float
    busy: float
    most: float


def rows_of(count: int, seed: int) -> pa.Table:
    """Columns that say something of a label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    columns: dict[str, object] = {
        name: rng.uniform(low, high, count) * 0.8 + 0.2 * (low + label * (high - low))
        for name, (low, high) in NUMERIC.items()
    }
    for name, size in WORDS.items():
        words = np.array([f"{name}{word}" for word in range(size)], dtype=object)
        columns[name] = words[(rng.integers(0, size, count) + label) % size]
    return pa.table({**columns, "label": np.array(["no", "yes"], dtype=object)[label]})


def prepare(home: Path, counts: list[int]) -> None:
    """Train, release the weights, and write the queries."""
    pq.write_table(rows_of(20_000, 0), home / "train.parquet")
    for count in counts:
        pq.write_table(rows_of(count, 1), home / f"q{count}.parquet")
    lists = {name: [f"{name}{word}" for word in range(size)] for name, size in WORDS.items()}
    sizes = ("dataset.classes=[no,yes]", "dataset.declared_size=15000", "training.chosen_on=public")
    declared = {"numeric": json.dumps(NUMERIC), "categorical": json.dumps(lists)}
    columns = (f"+dataset.{group}={node}".replace('"', "") for group, node in declared.items())
    file = ("dataset=table", "dataset.label=label", f"dataset.path={home / 'train.parquet'}")
    agt("train", *file, *sizes, *columns, f"hydra.run.dir={home / 'run'}", home=home)
    pq.write_table(rows_of(10, 2), home / "few.parquet")
    asked = (f"run={home / 'run'}", f"inputs={home / 'few.parquet'}", f"hydra.run.dir={home / 'released'}")
    agt("predict", *asked, "mechanism=release_weights", "total.eps=1", "total.delta=1e-5", home=home)


def agt(*arguments: str, home: Path) -> None:
    """One command line, which must succeed."""
    subprocess.run(
        [sys.executable, "-m", "agt_cli", *arguments, f"output_dir={home}", "-q", "--json"], check=True, stdout=-3
    )


def torch_alone(run: str, queries: str) -> None:
    """What a script without agt's guarantees does: read, encode, multiply, compare, write."""
    import torch
    from safetensors.torch import load_file

    from agt.settings import build

    source = build(json.loads((Path(run) / "source.json").read_text())["source"], "dataset")
    weight, answers = load_file(Path(run) / "model.safetensors")["weight"], []
    encode = source._encoding(source._limits(source.settled))
    for batch in pq.ParquetFile(queries).iter_batches(2**15):
        numbers = np.stack([batch.column(name).to_numpy() for name in source.numeric], axis=1)
        words = np.stack([batch.column(name).to_numpy(zero_copy_only=False) for name in source.categorical], axis=1)
        x = torch.from_numpy(encode(numbers, words)).double()
        x = torch.nn.functional.normalize(x)
        answers.append((x @ weight[:, :-1].T + weight[:, -1]).ravel() > 0)
    labels = np.where(torch.cat(answers).numpy(), "yes", "no")
    pq.write_table(pa.table({"label": labels}), Path(queries).with_suffix(".answers"))


def measured(command: list[str]) -> Measured:
    """One process, start and finish included."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=-3); "
    code += "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True, text=True)
    seconds, most = map(float, done.stdout.split()[-2:])
    return Measured(time.perf_counter() - started, seconds, most / 1024)


def main(counts: list[int]) -> int:
    """Measure and print the table; 1 if it is below the floor."""
    ways: dict[str, tuple[str, ...]] = {
        "agt certify": ("certify", "map_resolution=0"),
        "agt predict, randomized_response": ("predict", "mechanism.eps=0.1"),
        "agt predict, release_weights": ("predict", "mechanism=release_weights", "total.eps=1", "total.delta=1e-5"),
        "agt predict release=": ("predict",),
    }
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        prepare(home, counts)
        found: dict[str, list[Measured]] = {}
        for count in counts:
            queries = home / f"q{count}.parquet"
            alone = [sys.executable, __file__, "--torch", str(home / "run"), str(queries)]
            found.setdefault("PyTorch alone", []).append(measured(alone))
            for name, (command, *more) in ways.items():
                of = f"release={home / 'released' / 'release'}" if name.endswith("=") else f"run={home / 'run'}"
                line = [
                    sys.executable,
                    "-m",
                    "agt_cli",
                    command,
                    of,
                    f"inputs={queries}",
                    *more,
                    f"output_dir={home}",
                    "-q",
                ]
                found.setdefault(name, []).append(measured([*line, "--json"]))
    heads = (f"{f'{count:,} rows':>16s}{'busy':>9s}{'rows/s':>9s}{'MiB':>7s}" for count in counts)
    print(f"{'':36s}" + "".join(heads))
    for name, runs in found.items():
        each = zip(counts, runs, strict=True)
        cells = [f"{r.wall:14.1f} s{r.busy:7.1f} s{count / r.busy:9,.0f}{r.most:7,.0f}" for count, r in each]
        print(f"{name:36s}" + "".join(cells))
    return _verdict(counts, found)


def _verdict(counts: list[int], found: dict[str, list[Measured]]) -> int:
    alone, more = found["PyTorch alone"][-1].busy, max(counts[-1] - counts[0], 1)
    slow = [name for name, runs in found.items() if alone / runs[-1].busy < FLOOR]
    grown = {name: (runs[-1].most - runs[0].most) * 2**20 / more for name, runs in found.items()}
    print("growth, bytes a row: " + ", ".join(f"{name} {size:.0f}" for name, size in grown.items()))
    large = [name for name, size in grown.items() if size > GROWTH]
    print(f"below the floor: {', '.join([*slow, *large]) or 'nothing'}")
    return int(bool(slow or large))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--torch"]:
        torch_alone(*sys.argv[2:])
    else:
        sys.exit(main([int(word) for word in sys.argv[1:]] or [100_000, 1_000_000]))
