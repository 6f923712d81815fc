"""Gradient, Hessian and gram of certified removal in streams over mapped features: seconds, and anonymous memory.

    python scripts/bench_removal_streams.py [ROWS] [WIDTH]    1,000,000 x 512 float32 unless said (2 GB of disk)

Anonymous memory is what the process holds beside mapped files (RssAnon of /proc/self/status), seen every 20 ms.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from agt.training.objective import LossName, Objective, gram
from agt.training.removal import spectral_norm

BLOCK = 65_536
LIMIT = 4.0  # GiB


class Anonymous(threading.Thread):
    """Watches the greatest anonymous memory of this process, in GiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0

    def run(self) -> None:
        """Look, for ever."""
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.most = max(self.most, kilobytes / 2**20)
            time.sleep(0.02)


def features(path: Path, rows: int, width: int) -> np.memmap:
    """[rows, width] float32 of norm just below 1, written a block at a time and mapped."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, rows, BLOCK):
            x = rng.standard_normal((min(BLOCK, rows - start), width), dtype=np.float32)
            file.write((x / np.linalg.norm(x, axis=1, keepdims=True) * np.float32(1 - 1e-5)).tobytes())
    return np.memmap(path, dtype=np.float32, mode="r", shape=(rows, width))


def timed(name: str, call: Callable[[], object]) -> object:
    """Run it, and print how long it took."""
    started = time.perf_counter()
    result = call()
    print(f"{name:<34} {time.perf_counter() - started:8.1f} s", flush=True)
    return result


def main(rows: int = 1_000_000, width: int = 512, loss: LossName = "logistic") -> int:
    """Measure; 1 where more than ``LIMIT`` was held."""
    memory = Anonymous()
    with tempfile.TemporaryDirectory() as folder:
        x = features(Path(folder) / "features", rows, width)
        memory.start()
        objective, rng = Objective(loss, 100.0), np.random.default_rng(1)
        targets = objective.targets(rng.integers(0, 2, rows), 2)
        weight, tilt = rng.normal(size=(2, 1, width))
        print(f"{rows} x {width} float32, mapped: {x.nbytes / 2**30:.2f} GiB")
        slope = objective.slope(weight, x, targets, tilt)
        timed("gradient, with its error", lambda: objective.slope(weight, x, targets, tilt))
        timed("Hessian", lambda: objective.hessian(weight, x))
        products = timed("gram", lambda: gram(x))
        assert isinstance(products, np.ndarray)
        norm = timed("spectral norm's upper bound", lambda: spectral_norm(products, rows))
        length = np.linalg.norm(slope.gradient)
        print(f"|X| <= {norm:.6g}; the gradient, {length:.6g} long, errs by {slope.error:.2g} at most")
        print(f"anonymous memory at its peak: {memory.most:.2f} GiB of {LIMIT:g}")
    return int(memory.most > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
