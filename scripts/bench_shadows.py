"""Shadow models, one worker against two: 64 models of the recipe's linear head on pneumoniamnist.npz.

    python scripts/bench_shadows.py [--data-dir ../shared/data] [--models 64] [--rounds 3] [--epochs N]

Each worker is single-threaded. Both are measured in one run, in turns, the processes of the pool started beforehand: what
counts is the ratio, in each round and of the fastest of each, as others use the machine, too. Without the file, random
images of the same shape stand in for it.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import agt
from agt.audit.shadows import Pool, ShadowConfig, train_shadows
from agt.data.dataset import Records
from agt.problem import Problem

DEMANDED = 1.7


def images(folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """(what it is, split -> features in [-.5, .5] and labels)."""
    path = folder / "pneumoniamnist.npz"
    if path.exists():
        with np.load(path) as file:
            return path.name, {key: file[key] for key in ("train_images", "train_labels", "test_images", "test_labels")}
    rng = np.random.default_rng(0)
    made = {}
    for split, n in (("train", 3882), ("test", 624)):
        made[f"{split}_labels"] = rng.integers(0, 2, (n, 1))
        made[f"{split}_images"] = rng.integers(0, 256, (n, 28, 28)) // 2 + 64 * made[f"{split}_labels"][:, :, None]
    return "synthetic images in the shape of pneumoniamnist", made


def problem_of(arrays: dict[str, np.ndarray], epochs: int | None) -> Problem:
    """The head that agt.fit trains on the training images, and the test images as records it has not seen."""
    x, y = arrays["train_images"].reshape(-1, 784) / 255 - 0.5, arrays["train_labels"].ravel()
    given = {} if epochs is None else {"epochs": epochs}
    problem = agt.fit(x, y, declared=agt.Declared(size=len(x)), **given).model.problem  # type: ignore[arg-type]
    n = len(arrays["test_labels"])
    ids = np.array([f"t{i}" for i in range(n)])
    features = (arrays["test_images"].reshape(-1, 784) / 255 - 0.5).astype(problem.dataset.train.features.dtype)
    labels = arrays["test_labels"].ravel().astype(np.int64)
    test = Records(features, labels, ids, ids, np.zeros(n, dtype=bool))
    return problem.on(replace(problem.dataset, test=test, tested=True))


def seconds(problem: Problem, models: int, workers: int, seed: int) -> float:
    """To train so many models, in a folder that is empty."""
    pool, config = Pool.of(problem.dataset), ShadowConfig(models=models, workers=workers, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        train_shadows(problem, pool, config, Path(folder))
        return time.perf_counter() - started


def main() -> None:
    """One line each, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, help="passes over the data; none: the recipe's")
    options = parser.parse_args()
    name, arrays = images(options.data_dir)
    problem = problem_of(arrays, options.epochs)
    print(
        f"{options.models} shadow models on {name}: {problem.recipe.training.epochs} epochs of {problem.plan.count} batches"
    )
    seconds(problem, 4, 2, seed=1)  # starts the processes, and loads what they need
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers, spent in taken.items():
            spent.append(seconds(problem, options.models, workers, seed=0))
        one, two = (spent[-1] for spent in taken.values())
        print(f"one single-threaded worker {one:7.2f} s, two {two:7.2f} s: {one / two:.2f} times as fast", flush=True)
    ratio = min(taken[1]) / min(taken[2])
    print(f"the fastest of each: {ratio:.2f}; demanded: {DEMANDED} ({'met' if ratio >= DEMANDED else 'MISSED'})")


if __name__ == "__main__":
    main()
