"""What sharing a training between processes gains, and what they exchange for it.

    python scripts/bench_spread.py [--processes 2] [--rows 100000] [--width 100] [--repeats 3]

Each job is trained by one process while the others wait, then by all of them, in turns: medians of seconds, with as many
threads for each process as OMP_NUM_THREADS says (1 unless set). The bits of both are compared. Bytes are what one process
sends in a step, by the collectives that it calls, against the floor: a sum of N bytes that p processes each hold a part of,
and each are to have, takes 2 (p - 1)/p N from each, whoever adds. On a machine with other work the processor's time
says more than the clock's.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.distributed as dist

import agt
from agt.distributed import ALONE, Group, joined, together

JOBS: dict[str, dict[str, Any]] = {
    "boxes, add_remove, k to 10": {"certificate": "box", "network": (32,), "epochs": 2, "ks": 10},
    "boxes, remove, k to 10": {"certificate": "box", "network": (32,), "epochs": 2, "ks": 10, "relation": "remove"},
    "linear head by SGD": {"certificate": "stability", "epochs": 500, "lr": 1.0, "batch": {"count": 1}},
    "tube of 64 units": {"certificate": "tube", "network": (64,), "epochs": 5, "lr": 0.5, "batch": {"count": 1}, "ks": 50},
}
STEPS = {"boxes, add_remove, k to 10": 2, "boxes, remove, k to 10": 2, "linear head by SGD": 500, "tube of 64 units": 5}


def floor(name: str, width: int, processes: int) -> float:
    """Bytes that each process has to send in a step, whatever the algorithm: its part of the sums, to and fro."""
    inner, bias = width * 32 + 32, 32 * 2 + 2
    numbers = {"boxes": (inner + bias) * (1 + 2 * 11), "linear": width + 1, "tube": 64 * (width + 1) + (width + 1) ** 2}
    return 2 * (processes - 1) / processes * 8 * numbers[name.split(",")[0].split(" ")[0]]


@contextmanager
def counted(sent: list[float], processes: int) -> Iterator[None]:
    """Add up what this process sends."""
    share = (processes - 1) / processes
    real = {name: getattr(dist, name) for name in ("all_reduce", "all_to_all_single", "all_gather")}
    bytes_of: dict[str, Callable[..., float]] = {
        "all_reduce": lambda tensor: 2 * share * tensor.nbytes,
        "all_to_all_single": lambda came, given: share * given.nbytes,
        "all_gather": lambda came, given: (processes - 1) * given.nbytes,
    }

    def watched(name: str) -> Callable[..., None]:
        def call(*tensors: Any) -> None:
            sent[0] += bytes_of[name](*tensors)
            real[name](*tensors)

        return call

    for name in real:
        setattr(dist, name, watched(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


def timed(train: Callable[[], agt.Fitted]) -> tuple[np.ndarray, agt.Fitted]:
    """([2] seconds by the clock, and of the processor)."""
    start = np.array([time.perf_counter(), time.process_time()])
    model = train()
    return np.array([time.perf_counter(), time.process_time()]) - start, model


def measure(group: Group, asked: argparse.Namespace) -> None:
    """One of the processes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((asked.rows, asked.width))
    y = (x[:, 0] + rng.standard_normal(asked.rows) > 0).astype(np.int64)
    declared = agt.Declared(classes=[0, 1], size=asked.rows, features=True, settings=True)
    queries = x[:1000]
    for name, settings in JOBS.items():
        alone, shared, sent = list[np.ndarray](), list[np.ndarray](), [0.0]

        def train(settings: dict[str, Any] = settings) -> agt.Fitted:
            return agt.fit(x, y, declared=declared, **settings)

        for turn in range(asked.repeats + 1):  # the first compiles
            if group.rank == 0:
                with joined(ALONE):
                    seconds, one = timed(train)
                alone += [seconds] if turn else []
            group.gathered(None)
            sent[0] = 0.0
            with counted(sent, group.size):
                seconds, many = timed(train)
            shared += [np.max(group.gathered(seconds), axis=0)] if turn else []
        if group.rank == 0:
            with joined(ALONE):
                same = (one.model.margins(queries) == many.model.margins(queries)).all()
            (wall, busy), (wall_shared, busy_shared) = np.median(alone, axis=0), np.median(shared, axis=0)
            least = floor(name, asked.width, group.size)
            print(
                f"{name:28} {wall:7.2f} s alone, {wall_shared:7.2f} s by {group.size}: {wall / wall_shared:.2f} as fast "
                f"(processor: {busy:.2f} s, {busy_shared:.2f} s of the busiest: {busy / busy_shared:.2f}); "
                f"{sent[0] / STEPS[name] / 1e6:.3f} MB a step from each, floor of the sums {least / 1e6:.3f} MB; "
                f"{'the same bits' if same else 'OTHER BITS'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in {"processes": 2, "rows": 100_000, "width": 100, "repeats": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    if "RANK" in os.environ:
        with together() as group:
            measure(group, asked)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    job = {"WORLD_SIZE": str(asked.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **threads}
    started = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **job, "RANK": str(rank)})
        for rank in range(asked.processes)
    ]
    sys.exit(max(process.wait() for process in started))


if __name__ == "__main__":
    main()
