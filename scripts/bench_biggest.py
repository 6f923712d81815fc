"""What a step costs by rows, width, depth and values of k: measured, a model fitted, and points held out of it predicted.

    python scripts/bench_biggest.py [--rows 16384] [--repeats 5] [--only NAME ...] [--full [--folder DIR]]
    python scripts/bench_biggest.py --paper

Seconds are those of the processor, of one thread; medians of rounds in which every point has its turn. Numbers are made up:
uniform squares, as AMEX's statements are after preparation, in single precision. The models, by record of n:

    boxes    n (a L + b w + c P + K (d L + e F + f R + g U)) + h K P
    linear   n (a + b w)
    tube     n (a + b w m + c w^2) + d w^3

w inputs, L layers, F = w h1 the first layer's weights, whose inputs are numbers; R the other layers' weights, whose inputs
are intervals; P = F + R; U units and outputs; K values of k; m hidden units. Coefficients are at least 0 and fitted by
least squares of relative errors. Some points are held out: other rows, widths, depths and k. Exit code 1 if one of them is
predicted worse than by 20 %. --full adds steps on 5,531,451 records, memory-mapped, to those held out (4 GB of disk).
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numba
import numpy as np
import torch
from bench_engine import head, operations
from scipy.optimize import nnls

from agt.data.blocks import Numbered, as_array
from agt.data.dataset import Dataset, Records
from agt.facts import grounds, void
from agt.models.features import FeatureMap
from agt.models.heads import HeadConfig
from agt.models.linear import LinearModel
from agt.models.tube import TubeModel
from agt.problem import Problem, Settings
from agt.settings import (
    ComputeConfig,
    FeaturesConfig,
    KGridConfig,
    RelationConfig,
    StabilityConfig,
    TrainingConfig,
    TubeConfig,
)
from agt.training.ensemble import EnsembleConfig
from agt.training.linear import gradient_sum
from agt.training.loop import Run
from agt.training.recipe import Recipe
from agt.tube.norms import Meter
from agt.tube.setting import schedule
from agt.tube.training import look

FULL, LIMIT = 5_531_451, 0.2
# An H100 (SXM) as NVIDIA publishes it: float64 operations a second, a fused multiply and add being two, and bytes a second
# of its memory; of PCIe 5 x16, one way; between GPUs of one machine, and of one GPU to other machines (400 Gb/s).
FLOAT64, HBM, PCIE, NVLINK, NETWORK = 34e12, 3.35e12, 64e9, 450e9, 50e9
REACHED, PASSES = 0.2, 20  # assumed: of the rate for operations that are not fused; over both ends of a layer's outputs
Work = Callable[[], object]


@dataclass(frozen=True)
class Point:
    """One step.

    Attributes:
        rows: records.
        widths: inputs, hidden units, outputs.
        ks: how many values of k; 1 where all come at once.
    """

    rows: int
    widths: tuple[int, ...]
    ks: int = 1

    @property
    def first(self) -> int:
        """F."""
        return self.widths[0] * self.widths[1]

    @property
    def rest(self) -> int:
        """R."""
        return sum(a * b for a, b in pairwise(self.widths[1:]))

    def __str__(self) -> str:
        return f"{self.rows:>9,} x {'-'.join(map(str, self.widths)):<22s} {self.ks:>3d} k"


@dataclass(frozen=True)
class Kind:
    """A kind of training.

    Attributes:
        terms: what each coefficient is multiplied by.
        work: data -> what is timed.
        fitted, held: the points, at a number of rows.
        largest: of the points at full size.
    """

    terms: Callable[[Point], Sequence[float]]
    work: Callable[[Point, Records], Work]
    fitted: Callable[[int], list[Point]]
    held: Callable[[int], list[Point]]
    largest: tuple[Point, ...]


def records(rows: int, width: int, path: Path | None = None) -> Records:
    """Made-up records; with a path, memory-mapped, written in pieces."""
    rng = np.random.default_rng(0)
    if path is None:
        x = rng.random((rows, width), dtype=np.float32) ** 2
    else:
        x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, width))
        for start in range(0, rows, 65_536):
            x[start : start + 65_536] = rng.random(x[start : start + 65_536].shape, dtype=np.float32) ** 2
        x.flush()
        x = np.load(path, mmap_mode="r")
    names = as_array(Numbered(rows))
    return Records(x, rng.integers(0, 2, rows), names, names, np.zeros(rows, dtype=bool))


def training(**changes: object) -> TrainingConfig:
    return TrainingConfig(loss="binary_cross_entropy", epochs=1, lr=1e-3, clip=1.0, dtype="float32", **changes)  # type: ignore[arg-type]


def box_step(point: Point, data: Records) -> Work:
    grid = KGridConfig(values=tuple(range(1, point.ks + 1)))
    recipe = Recipe(2, training(), RelationConfig(name="add_remove"), grid, ComputeConfig(threads=1), len(data))
    run = Run(head(*point.widths), recipe, data)
    rows = np.arange(len(data))

    def work() -> None:
        with torch.no_grad():
            run.step(rows)

    return work


def problem(point: Point, data: Records, certificate: StabilityConfig | TubeConfig) -> Problem:
    settings = Settings(
        model=HeadConfig(hidden=point.widths[1:-1], activation="tanh"),
        training=training(),
        relation=RelationConfig(name="add_remove"),
        kgrid=KGridConfig(max=100),
        compute=ComputeConfig(threads=1),
        certificate=certificate,
        ensemble=EnsembleConfig(),
        noise=None,
        choices=void("made up"),
    )
    few, fact = data.take(np.arange(2)), grounds(void("made up"))
    return Problem(Dataset("made up", ("0", "1"), few, few, len(data), {}, fact, fact, shard=True), settings)


def linear_step(point: Point, data: Records) -> Work:
    features = FeaturesConfig()
    made = problem(point, data, StabilityConfig(features=features))
    model = LinearModel.untrained(made, FeatureMap.of(features, made.dataset))
    seen, rows = data.seen_as(model.features.over(data.features, "float32", 0)), np.arange(len(data))
    return lambda: gradient_sum(model.trained.loss, model.trained.weight, seen, rows)


def tube_step(point: Point, data: Records) -> Work:
    features = FeaturesConfig()
    made = problem(point, data, TubeConfig(features=features))
    model = TubeModel.untrained(made, FeatureMap.of(features, made.dataset))
    seen, rows = data.seen_as(model.features.over(data.features, "float32", 0)), np.arange(len(data))
    meter, public = Meter(model.setting, model.network), schedule(model.setting)[0][0]
    return lambda: look(meter, model.trained.weight, seen, rows, public, exact=False)


def box_terms(p: Point) -> Sequence[float]:
    layers, units, weights = len(p.widths) - 1, sum(p.widths[1:]), p.first + p.rest
    per_k = (p.ks * layers, p.ks * p.first, p.ks * p.rest, p.ks * units)
    return (*(p.rows * term for term in (layers, p.widths[0], weights, *per_k)), p.ks * weights)


def linear_terms(p: Point) -> Sequence[float]:
    return p.rows, p.rows * p.widths[0]


def tube_terms(p: Point) -> Sequence[float]:
    width = p.widths[0]
    return p.rows, p.rows * p.first, p.rows * width**2, width**3


KINDS = {
    "boxes": Kind(
        box_terms,
        box_step,
        lambda n: [
            Point(n, (188, 32, 1)),
            Point(n, (188, 32, 1), 4),
            Point(2 * n, (188, 64, 1), 2),
            Point(n, (64, 32, 1), 2),
            Point(n // 2, (400, 32, 1), 2),
            Point(n, (188, 32, 32, 1), 2),
            Point(n, (188, 32, 32, 32, 32, 1)),
            Point(n, (188, 32, 32, 32, 32, 1), 4),
            Point(n, (64, 64, 64, 1), 2),
            Point(n, (64, 16, 16, 16, 1), 8),
            Point(n // 4, (188, 128, 1), 1),
            Point(n // 4, (188, 16, 1), 8),
            Point(n, (64, 16, 16, 16, 16, 16, 16, 1), 2),
            Point(n, (64, 24, 24, 24, 1), 2),
        ],
        lambda n: [
            Point(4 * n, (188, 32, 1), 2),
            Point(n, (300, 32, 1), 2),
            Point(n, (128, 48, 1), 3),
            Point(n, (188, 32, 32, 32, 1), 2),
            Point(2 * n, (188, 64, 64, 1), 1),
            Point(n, (188, 32, 1), 8),
            Point(n, (100, 24, 24, 24, 24, 24, 1), 3),
            Point(2 * n, (188, 32, 32, 32, 32, 1), 2),
        ],
        (Point(FULL, (188, 32, 1)), Point(FULL, (188, 32, 32, 32, 32, 1))),
    ),
    "linear": Kind(
        linear_terms,
        linear_step,
        lambda n: [Point(4 * n, (w, 1)) for w in (64, 188, 400)] + [Point(8 * n, (128, 1))],
        lambda n: [Point(16 * n, (188, 1)), Point(4 * n, (300, 1)), Point(8 * n, (96, 1))],
        (Point(FULL, (188, 1)),),
    ),
    "tube": Kind(
        tube_terms,
        tube_step,
        lambda n: (
            [Point(n, (w, m, 1)) for w, m in ((64, 32), (188, 32), (188, 128), (300, 64))] + [Point(4 * n, (188, 64, 1))]
        ),
        lambda n: [Point(2 * n, (128, 64, 1)), Point(n, (250, 32, 1)), Point(4 * n, (188, 32, 1))],
        (Point(FULL, (188, 32, 1)),),
    ),
}


def once(work: Work) -> float:
    """Seconds of the processor."""
    started = time.process_time()
    work()
    return time.process_time() - started


def timed(works: Sequence[Work], repeats: int) -> list[float]:
    """Median seconds of the processor of each, in turn, after one round that is not counted."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        for work, taken in zip(works, times, strict=True):
            seconds = once(work)
            if turn:
                taken.append(seconds)
    return [statistics.median(taken) for taken in times]


def fit(terms: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Coefficients >= 0 of the least squares of relative errors."""
    scale = np.abs(terms).max(axis=0)
    found, _ = nnls(terms / scale / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(found / scale)


def report(name: str, kind: Kind, rows: int, repeats: int, full: Path | None) -> list[str]:
    """Measure, print, and return what is predicted worse than it should be."""
    fitted, held = kind.fitted(rows), kind.held(rows)
    works = [kind.work(point, records(point.rows, point.widths[0])) for point in (*fitted, *held)]
    seconds = timed(works, repeats)
    if full is not None:
        whole = records(FULL, 188, full)
        held = [*held, *kind.largest]
        seconds += [once(kind.work(point, whole)) for point in kind.largest]
    coefficients = fit(np.array([kind.terms(p) for p in fitted], dtype=float), np.array(seconds[: len(fitted)]))
    print(f"\n{name}: coefficients, ns: {', '.join(f'{1e9 * c:.3g}' for c in coefficients)}")
    missed = []
    for place, (point, taken) in enumerate(zip((*fitted, *held), seconds, strict=True)):
        said, held_out = float(np.dot(kind.terms(point), coefficients)), place >= len(fitted)
        off = said / taken - 1
        print(
            f"{point} {taken:9.3f} s {point.rows / taken:12,.0f} rows/s   model {said:9.3f} s {off:+7.1%}"
            f"{'   held out' if held_out else ''}"
        )
        missed += [f"{name}: {point}: {off:+.0%}"] if held_out and abs(off) > LIMIT else []
    return missed


def on_paper() -> None:
    """Seconds of a step of all records on 1, 8 and 64 GPUs, none of which was measured."""
    for widths in ((188, 32, 1), (188, 32, 32, 32, 32, 1)):
        for point in (Point(FULL, widths, ks) for ks in (1, 64)):
            work = point.rows * operations(widths, point.ks)
            data = point.rows * widths[0] * 4
            moved = data + point.rows * point.ks * sum(widths[1:]) * 2 * 4 * PASSES
            shared = 8 * (1 + 2 * point.ks) * (point.first + point.rest + sum(widths[1:]))
            print(f"{point}: {work:.2g} operations, {data / 1e9:.1f} GB read, {shared / 1e6:.2g} MB all-reduced")
            for gpus in (1, 8, 64):
                busy = max(work / (FLOAT64 / 2 * REACHED), moved / HBM) / gpus
                way = NVLINK if gpus <= 8 else NETWORK
                reduced = 0.0 if gpus == 1 else 2 * (gpus - 1) / gpus * shared / way
                print(
                    f"    {gpus:3d} GPUs: {1e3 * (busy + reduced):9.2f} ms a step, {1e3 * reduced:.3f} of it all-reducing; "
                    f"{1e3 * data / gpus / PCIE:.2f} to bring the data once"
                )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16_384)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--full", action="store_true", help=f"steps on {FULL:,} records, too")
    parser.add_argument("--folder", type=Path, help="where their file goes for a while")
    parser.add_argument("--paper", action="store_true", help="what GPUs would take, by operations and bytes")
    given = parser.parse_args()
    if given.paper:
        on_paper()
        return 0
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    missed = []
    with TemporaryDirectory(dir=given.folder) as folder:
        for name in given.only:
            full = Path(folder) / "x.npy" if given.full else None
            missed += report(name, KINDS[name], given.rows, given.repeats, full)
    print(f"\nworse than {LIMIT:.0%}: {'; '.join(missed) or 'none'}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
