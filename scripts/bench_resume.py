"""What checkpoints cost: trainings with and without them, side by side in one run.

    python scripts/bench_resume.py [--pairs 3] [--only NAME ...] [--folder .]

A row for each training, with the settings of ``agt train`` and checkpoints as often as they come by themselves
(compute.checkpoint_seconds=null), on the disk of --folder:

| column  | what it is                                                                                         |
|---------|----------------------------------------------------------------------------------------------------|
| without | seconds of a training, median of the pairs                                                         |
| with    | the same with checkpoints; runs of the two kinds take turns                                        |
| files   | checkpoints written, and megabytes of one                                                          |
| in them | seconds that training stood still for them: run.json, packing, hashing, writing, the disk's word   |
| price   | that, as a share of the time that the training itself took; the demand is 5 % at most              |

On a machine with other work "with" and "without" differ by more than checkpoints cost, either way; "in them" is measured
where they are written, in every process of an ensemble.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from agt.models.model import fit
from agt.problem import Problem
from agt.training.checkpoint import NOWHERE, CheckpointFolder, open_checkpoints
from agt_cli.report.console import Console
from agt_cli.runs.compose import composed
from agt_cli.runs.prepare import prepare, settings_of

DIGITS = ("dataset=digits", "training=generic")
HEAD = (*DIGITS, "model=linear", "training.loss=binary_cross_entropy", "training.clip=0.5", "training.lr=2")
TEN = ("dataset.classes=null", "dataset.declared_size=1350")
CASES = {
    "blobs, as it comes": (),
    "blobs, momentum": ("training.epochs=6", "kgrid.max=100", "training.momentum=0.9"),
    "digits, boxes": (*DIGITS, "training.epochs=8", "kgrid.max=20"),
    "ten digits, 128 x 128, momentum": (
        *(*DIGITS, *TEN, "model.hidden=[128,128]", "training.epochs=3", "training.batch.count=2"),
        *("kgrid.max=20", "training.momentum=0.9"),
    ),
    "linear head, average": (*HEAD, "certificate=stability", "training.epochs=8000", "certificate.average=100"),
    "linear head, 50 batches": (*HEAD, "certificate=stability", "training.epochs=300", "training.batch.count=50"),
    "minimiser": (*HEAD, "certificate=erm", "training.weight_decay=1e-6", "training.batch.count=1"),
    "ensemble, 4 boxes": ("ensemble.members=4", "training.epochs=8", "kgrid.max=50"),
    "ensemble, 40 linear heads": (*HEAD, "certificate=stability", "training.epochs=1000", "ensemble.members=40"),
}


@dataclass
class Timed(CheckpointFolder):
    """Checkpoints that note in a file what each of them took."""

    notes: Path = Path()

    def _write(self, step: int, tensors: dict[str, Tensor]) -> None:
        started = time.perf_counter()
        super()._write(step, tensors)
        with self.notes.open("a") as file:
            file.write(f"{time.perf_counter() - started} {sum(tensor.nbytes for tensor in tensors.values())}\n")


def one(problem: Problem, folder: Path | None) -> tuple[float, float, list[int]]:
    """(seconds, of them in checkpoints, their bytes) of one training; in ``folder``, or without any."""
    started, kept = time.perf_counter(), NOWHERE
    if folder:
        opened, notes = open_checkpoints(folder, {"bench": 1}, None, print), folder / "notes.txt"
        kept = Timed(opened.folder, opened.run, opened.every, opened.cost, notes=notes)  # type: ignore[assignment]
        notes.touch()
    begun = time.perf_counter() - started
    fit(problem, checkpoints=kept)
    seconds = time.perf_counter() - started
    rows = [line.split() for line in (folder / "notes.txt").read_text().splitlines()] if folder else []
    return seconds, begun + sum(float(took) for took, _ in rows), [int(size) for _, size in rows]


def row(name: str, settings: tuple[str, ...], pairs: int, home: Path) -> str:
    """One line of the table."""
    typed = settings_of(composed("train", [*settings, "compute.threads=2"]))
    problem = prepare(typed, Console(quiet=True)).problem(typed)
    one(problem, None)  # compiles, loads, starts workers
    without, kept = [], []
    for pair in range(pairs):
        without.append(one(problem, None)[0])
        kept.append(one(problem, home / f"{pair}"))
    seconds, written = statistics.median(k[0] for k in kept), [size for k in kept for size in k[2]]
    still = statistics.median(k[1] for k in kept)
    workers = min(2, problem.settings.ensemble.members)
    price = statistics.median(100 * k[1] / workers / (k[0] - k[1] / workers) for k in kept)
    size = statistics.mean(written) / 1e6 if written else 0.0
    files = f"{len(written) / pairs:5.1f} x {size:6.2f} MB"
    return f"{name:34}{statistics.median(without):9.2f}{seconds:9.2f}  {files}{still:9.3f}{price:8.2f} %"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=None, help="names of cases, or their beginnings")
    parser.add_argument("--folder", default=".", help="where checkpoints are written: their disk is what counts")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    print(f"{'':34}{'without':>9}{'with':>9}{'files':>19}{'in them':>9}{'price':>10}")
    for name, settings in CASES.items():
        if options.only is None or name.startswith(tuple(options.only)):
            with tempfile.TemporaryDirectory(dir=options.folder) as home:
                print(row(name, settings, options.pairs, Path(home)), flush=True)


if __name__ == "__main__":
    main()
