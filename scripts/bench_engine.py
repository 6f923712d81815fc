"""Benchmarks of the engine: every row is a ratio of two things measured side by side in this run.

    python scripts/bench_engine.py [--json] [--only NAME ...] [--repeats 5]

| name      | work                                                 | against                       |
|-----------|------------------------------------------------------|-------------------------------|
| step      | one add_remove step, 5,000 x 768-100-1, k = 50       | plain PyTorch SGD, same dtype |
| reference | the same with the reference kernel                   | the cpu kernel                |
| paper     | the same, paper_privacy                              | plain PyTorch SGD             |
| depth4    | one add_remove step, 10,000 x 188, 4 x 128, k 0..20  | plain PyTorch SGD, for each k |
| grid      | cost per k, grid 0..63, 25,000 x 384-100-1, 3 steps  | a run with one k              |
| blobs     | 3,000 x 6-128-2, k = 0..199, 4 steps                 | 200 runs with one k (20 x 10) |
| memory    | peak memory of a step, 1,000,000 x 188, 128-128, 8 k | the data; and 250,000 rows    |
| rows      | time per row of a step, 188-32-1, 10^4 to 10^6 rows  | the fastest per row           |
| widening  | certified fraction of blobs without widening         | with it                       |

Medians; the two sides alternate, so that a drift of the machine's speed hits both. Seconds are
processor time of all threads, so that other work on the machine decides less about what is met;
``clock_ratio`` is the same ratio by the clock. ``floor_s`` is the larger of two times that no
implementation of these rules can beat: its operations (see ``operations``) at the rate of this
machine's fastest float64 matrix product, and the bytes of the features at its rate of copying
memory. Data is random: nothing here depends on what it says. scripts/gpu.py measures a GPU.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import agt_cli  # isort: skip  (first: it tells OpenMP how to wait)
import numpy as np
import torch
from torch import nn

from agt.bounds import rounding
from agt.certificates.box import certify
from agt.data.blobs import Blobs
from agt.data.records import Records
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.loop import TrainingRun, train
from agt.training.setup import TrainingSetup

CLIP = 0.04
Row = dict[str, Any]


def head(*widths: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(len(widths) - 1):
        layers += ([nn.ReLU()] if i else []) + [nn.Linear(widths[i], widths[i + 1])]
    return nn.Sequential(*layers).double()


def records(n: int, width: int, path: Path | None = None) -> Records:
    """Random records; with a path, memory-mapped float32 written in pieces."""
    rng = np.random.default_rng(0)
    if path is None:
        x = rng.standard_normal((n, width))
    else:
        x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, width))
        for start in range(0, n, 65_536):
            x[start : start + 65_536] = rng.standard_normal(
                x[start : start + 65_536].shape, dtype=np.float32
            )
        x.flush()
        x = np.load(path, mmap_mode="r")
    y = rng.integers(0, 2, n)
    ids = np.arange(n).astype(f"S{len(str(n))}").astype(str)
    return Records(x, y, ids, ids, np.zeros(n, dtype=bool))


def settings(outputs: int = 1, **changes: Any) -> TrainingConfig:
    loss = "binary_cross_entropy" if outputs == 1 else "cross_entropy"
    return TrainingConfig(**{"loss": loss, "epochs": 1, "lr": 0.2, "clip": CLIP, **changes})


def setup(
    data: Records,
    training: TrainingConfig,
    ks: Sequence[int],
    relation: str = "add_remove",
    **compute: Any,
) -> TrainingSetup:
    grid = KGridConfig(values=tuple(ks))
    rule = RelationConfig(name=relation)
    return TrainingSetup(2, training, rule, grid, ComputeConfig(**compute), len(data))


def make_run(
    data: Records,
    model: nn.Sequential,
    ks: Sequence[int],
    relation: str = "add_remove",
    outputs: int = 1,
    **compute: Any,
) -> TrainingRun:
    return TrainingRun(model, setup(data, settings(outputs), ks, relation, **compute), data)


def one_step(run: TrainingRun) -> Callable[[], None]:
    return torch.no_grad()(lambda: run.step(np.arange(len(run.records))))


def plain_step(
    data: Records, model: nn.Sequential, device: str = "cpu", dtype: torch.dtype = torch.float64
) -> Callable[[], None]:
    """A plain SGD step with autograd on the whole batch: no clipping, no bounds."""
    model = nn.Sequential(
        *[type(m)(m.in_features, m.out_features) if isinstance(m, nn.Linear) else m for m in model]
    )
    model.to(device, dtype)
    x = torch.from_numpy(np.ascontiguousarray(data.features)).to(device, dtype)
    y = torch.from_numpy(data.labels).to(device, dtype)[:, None]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

    def work() -> None:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return work


@dataclass(frozen=True)
class Seconds:
    """Median seconds of a work: of the processor, in all threads together; and by the clock."""

    processor: float
    clock: float


def side_by_side(works: Sequence[Callable[[], object]], repeats: int) -> list[Seconds]:
    """Median seconds of each, in turn, after one warm-up round."""
    processor: list[list[float]] = [[] for _ in works]
    clock: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        for index, work in enumerate(works):
            processor_start = time.process_time()
            clock_start = time.perf_counter()
            work()
            if turn:
                processor[index].append(time.process_time() - processor_start)
                clock[index].append(time.perf_counter() - clock_start)
    medians = zip(map(statistics.median, processor), map(statistics.median, clock), strict=True)
    return [Seconds(*median) for median in medians]


@cache
def rates() -> tuple[float, float]:
    """(operations a second of a large float64 matrix product, bytes a second of a large copy), of
    processor time: the machine's ceilings.
    """
    a = torch.rand(1500, 1500, dtype=torch.float64)
    big = torch.rand(1 << 24)
    out = torch.empty(1 << 24)
    product, copy = side_by_side([lambda: a @ a, lambda: out.copy_(big)], 5)
    return 2 * 1500**3 / product.processor, 2 * 4 * 2**24 / copy.processor


def operations(widths: Sequence[int], ks: int, selects: bool = False) -> int:
    """Operations of one record in one step, counted per weight.

    Nominal, once: 2 forward, 2 backward, 3 to multiply, round and add its gradient. For each k,
    where signs say which ends meet: 4 forward (product and sum of each end), 4 backward but for the
    first layer, 6 for the sums of gradients, and 2 more to compare where the input is of any sign,
    as the first layer's is. A unit that is dead, as half of them are, costs nothing: neither as
    input, nor in what its gradient is multiplied by. A selection compares both values once more.
    """
    first = widths[0] * widths[1]
    rest = sum(a * b for a, b in pairwise(widths[1:]))
    extra = 2 * (first + rest) // 2 if selects else 0
    return 7 * (first + rest) + ks * ((4 + 8 // 2) * first + (4 + 4 + 6) // 2 * rest + extra)


def floor(n: int, widths: Sequence[int], ks: int, steps: int = 1, selects: bool = False) -> float:
    """Seconds below which nothing can go."""
    arithmetic, memory = rates()
    return steps * max(n * operations(widths, ks, selects) / arithmetic, n * widths[0] * 8 / memory)


def ratios(work: Seconds, against: Seconds, each: float = 1) -> tuple[float, float]:
    """One of ``each`` equal parts of a work as a multiple of another: by processor time, by the
    clock.
    """
    return work.processor / each / against.processor, work.clock / each / against.clock


def row(name: str, ratio: float, reach: str, met: bool, **facts: Any) -> Row:
    return {
        "name": name,
        "ratio": round(ratio, 3),
        "reach": reach,
        "met": "yes" if met else "no",
        **facts,
    }


def beside_plain(name: str, relation: str, reach: int, repeats: int) -> list[Row]:
    """One step of a relation beside a plain one."""
    data = records(5000, 768)
    model = head(768, 100, 1)
    works = [one_step(make_run(data, model, (50,), relation)), plain_step(data, model)]
    ours, plain = side_by_side(works, repeats)
    least = floor(5000, (768, 100, 1), 1, selects=relation == "paper_privacy")
    ratio, clock_ratio = ratios(ours, plain)
    facts = {
        "ours_s": ours.processor,
        "plain_s": plain.processor,
        "floor_s": least,
        "over": ours.processor / least,
        "clock_ratio": clock_ratio,
    }
    return [row(name, ratio, f"<= {reach}", ratio <= reach, **facts)]


def bench_reference(repeats: int) -> list[Row]:
    data = records(5000, 768)
    model = head(768, 100, 1)
    works = [
        one_step(make_run(data, model, (50,), kernel=kernel)) for kernel in ("reference", "cpu")
    ]
    reference, cpu = side_by_side(works, repeats)
    ratio, clock_ratio = ratios(reference, cpu)
    return [
        row(
            "reference",
            ratio,
            ">= 8",
            ratio >= 8,
            reference_s=reference.processor,
            cpu_s=cpu.processor,
            clock_ratio=clock_ratio,
        )
    ]


DEEP = (188, 128, 128, 128, 128, 1)


def bench_depth4(repeats: int) -> list[Row]:
    """Learning rate and clip level of the papers' networks of this depth: boxes stay as narrow
    as where they certify.
    """
    data = records(10_000, 188)
    model = head(*DEEP)
    ks = (0, 10, 20, 50)
    run = TrainingRun(model, setup(data, settings(lr=1e-3, clip=0.06), ks), data)
    ours, plain = side_by_side([one_step(run), plain_step(data, model)], repeats)
    least = floor(10_000, DEEP, len(ks))
    ratio, clock_ratio = ratios(ours, plain, len(ks))
    return [
        row(
            "depth4",
            ratio,
            "<= 4",
            ratio <= 4,
            us_per_row_and_k=1e6 * ours.processor / len(ks) / 10_000,
            plain_s=plain.processor,
            floor_s=least,
            over=ours.processor / least,
            clock_ratio=clock_ratio,
        )
    ]


def bench_grid(repeats: int) -> list[Row]:
    data = records(25_000, 384)
    model = head(384, 100, 1)
    grid, single = (
        lambda ks=ks: train(model, setup(data, settings(epochs=3), ks), data)
        for ks in (range(64), (50,))
    )
    many, one = side_by_side([grid, single], repeats)
    least = floor(25_000, (384, 100, 1), 64, steps=3)
    ratio, clock_ratio = ratios(many, one, 64)
    return [
        row(
            "grid",
            ratio,
            "<= .75",
            ratio <= 0.75,
            per_k_s=many.processor / 64,
            single_k_s=one.processor,
            floor_s=least / 64,
            over=many.processor / least,
            clock_ratio=clock_ratio,
        )
    ]


def bench_blobs(repeats: int) -> list[Row]:
    data = Blobs(center=1.25, std=0.35).load().train
    model = head(6, 128, 2)
    training = settings(2, epochs=4, lr=2.0, decay=0.6, lr_min=1e-3, clip=0.06)

    def work(ks: Sequence[int]) -> None:
        train(model, setup(data, training, ks), data)

    grid, ten = side_by_side(
        [lambda: work(range(200)), lambda: [work((k,)) for k in range(0, 200, 20)]], repeats
    )
    least = floor(3000, (6, 128, 1), 200, steps=4)  # the two classes are one logit
    ratio, clock_ratio = ratios(grid, ten, 20)
    return [
        row(
            "blobs",
            ratio,
            "<= .25",
            ratio <= 0.25,
            grid_s=grid.processor,
            singles_s=20 * ten.processor,
            floor_s=least,
            over=grid.processor / least,
            clock_ratio=clock_ratio,
        )
    ]


CHILD = """
import sys
sys.path.insert(0, {scripts!r})
import bench_engine as b
path, n = sys.argv[1], int(sys.argv[2])
data = b.records(n, 188, b.Path(path))
b.one_step(b.make_run(data, b.head(188, 128, 128, 1), (0, 1, 2, 5, 10, 20, 50, 100)))()
status = open("/proc/self/status")
peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
held = (data.features, data.labels, data.ids, data.public)  # a record's unit is its id
print(peak, sum(array.nbytes for array in held))
"""


def peak(n: int) -> tuple[int, int]:
    """Peak resident bytes of a fresh process that takes one step on n memory-mapped rows, and the
    bytes of its records.

    VmHWM, not ``ru_maxrss``: that of a child begins at the peak of the process that started it,
    here of the rows before. Compiling a kernel takes about 100 MiB more: it is done, and cached,
    before.
    """
    with TemporaryDirectory() as folder:
        code = CHILD.format(scripts=str(Path(__file__).parent))
        done = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/x.npy", str(n)],
            capture_output=True,
            text=True,
            check=True,
        )
    total, data = map(int, done.stdout.split())
    return total, data


def bench_memory(repeats: int) -> list[Row]:
    _, (large, data), (small, few) = (peak(n) for n in (2_000, 1_000_000, 250_000))
    gib = 2**30
    beyond = large - data
    less = small - few
    return [
        row("memory", beyond / (2 * gib), "<= 1 (data + 2 "
                                          "GiB)", beyond <= 2 * gib, peak_gib=large / gib,
            data_gib=data / gib, beyond_gib=beyond / gib),
        row("memory-250k", beyond / less, "within 10 "
                                          "%", abs(beyond / less - 1) <= 0.1, peak_gib=small / gib,
            data_gib=few / gib, beyond_gib=less / gib),
    ]  # fmt: skip


def bench_rows(repeats: int) -> list[Row]:
    per_row = {}
    with TemporaryDirectory() as folder:
        for n in (10_000, 100_000, 1_000_000):
            data = records(n, 188, Path(folder) / f"{n}.npy")
            (seconds,) = side_by_side([one_step(make_run(data, head(188, 32, 1), (50,)))], repeats)
            per_row[n] = seconds.processor / n
    worst = max(per_row.values()) / min(per_row.values())
    facts = {f"us_per_row_{n}": 1e6 * t for n, t in per_row.items()}
    return [
        row(
            "rows",
            worst,
            "<= 1.2",
            worst <= 1.2,
            **facts,
            floor_us=1e6 * floor(10**6, (188, 32, 1), 1) / 10**6,
        )
    ]


def bench_widening(repeats: int) -> list[Row]:
    data = Blobs(center=1.0, std=0.75).load()
    training = settings(2, epochs=4, lr=2.0, decay=0.6, lr_min=1e-3, clip=0.06)
    ks = range(0, 101, 5)
    model = head(6, 128, 2)
    method = setup(data.train, training, ks)

    def fraction() -> float:
        return float(
            certify(
                model, method, train(model, method, data.train), data.test.features
            ).certified.mean()
        )

    widened = fraction()
    honest = rounding.Rounding.widen
    rounding.Rounding.widen = lambda self, bounds, tau: honest(self, bounds, tau * 0)  # type: ignore[method-assign]
    try:
        bare = fraction()
    finally:
        rounding.Rounding.widen = honest  # type: ignore[method-assign]
    return [
        row(
            "widening",
            bare / widened,
            "<= 1.01",
            bare <= 1.01 * widened,
            certified=widened,
            certified_unwidened=bare,
        )
    ]


BENCHES: dict[str, Callable[[int], list[Row]]] = {
    "step": partial(beside_plain, "step", "add_remove", 8),
    "reference": bench_reference,
    "paper": partial(beside_plain, "paper", "paper_privacy", 60),
    "depth4": bench_depth4,
    "grid": bench_grid,
    "blobs": bench_blobs,
    "memory": bench_memory,
    "rows": bench_rows,
    "widening": bench_widening,
}


def machine() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (
        f"{cpu}, {os.cpu_count()} cores, {gpu}, agt {agt_cli.__version__}, torch "
        f"{torch.__version__}, "
        f"{torch.get_num_threads()} threads, float64"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name in options.only:
        fresh = BENCHES[name](options.repeats)
        rows += fresh
        for r in fresh if not options.json else ():
            facts = ", ".join(
                f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                for k, v in list(r.items())[4:]
            )
            print(
                f"{r['name']:<12} {r['ratio']!s:>12}  reach {r['reach']:<20} {r['met']:<4} {facts}",
                flush=True,
            )
    print(json.dumps({"machine": machine(), "rows": rows}) if options.json else machine())


if __name__ == "__main__":
    main()
