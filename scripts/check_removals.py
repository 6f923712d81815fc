"""500 removals in a row, and after each of them the model against one that was trained without the records.

    AGT_DATA=FOLDER python scripts/check_removals.py [--removals 500] [--rows 8000]

FOLDER holds mnist_t10k.npz (3 against 8), imdb_minilm.npz and adult.csv. For each of them, logistic and least squares:
records go one by one and, every fifth time, three at once; those that move the model most first, then at random. After each
step the minimiser without them is found by Newton's method from the model's own weights, with a Hessian of its own that is
formed anew every 50 steps, until nothing changes any more; that is training again, and shares no sum with the step.

    within      the largest |w - w*| over what was stated of it: never above 1
    residual    the largest gradient that is left over what was stated of it: never above 1
    away        the largest |w - w*| itself

Exit code 1 where anything is outside. Least squares must lie within 1e-10 of training again.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from threadpoolctl import threadpool_limits

from agt.training.objective import LossName, Objective
from agt.unlearning.newton import Head

CLOSE = 1e-10  # of least squares to training again


def unit(x: np.ndarray) -> np.ndarray:
    """Records of norm at most 1."""
    return x / (np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300) * (1 + 1e-12))


def load(name: str, folder: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """(features [n, d], labels [n])."""
    rng = np.random.default_rng(0)
    if name == "adult":
        frame = pd.read_csv(folder / "adult.csv").drop(columns=["person"])
        labels = (frame.pop("income").str.strip() == ">50K").to_numpy().astype(int)
        numbers = frame.select_dtypes("number")
        words = pd.get_dummies(frame.drop(columns=numbers.columns), dtype=float)
        x = np.hstack([((numbers - numbers.mean()) / numbers.std()).to_numpy(), words.to_numpy()])
    elif name == "imdb":
        with np.load(folder / "imdb_minilm.npz") as data:
            x, labels = data["x"].astype(np.float64) - data["center"], data["y"].astype(int)
    else:
        with np.load(folder / "mnist_t10k.npz") as data:
            kept = np.flatnonzero(np.isin(data["labels"], (3, 8)))
            x, labels = data["images"][kept].reshape(len(kept), -1) / 255.0, (data["labels"][kept] == 8).astype(int)
    chosen = rng.permutation(len(x))[:rows]
    return unit(x[chosen]), labels[chosen]


class Again:
    """Training without the removed records, by code that shares nothing with the removal."""

    def __init__(self, objective: Objective, tilt: np.ndarray) -> None:
        self.loss, self.strength, self.tilt, self.age = objective.loss, objective.strength, tilt[0], 50

    def gradient(self, w: np.ndarray, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Of the objective."""
        f = x @ w
        return x.T @ ((expit(f) if self.loss == "logistic" else f) - t) + self.strength * w + self.tilt

    def minimiser(self, w: np.ndarray, x: np.ndarray, t: np.ndarray) -> np.ndarray:
        """To the last digits."""
        if self.age >= 50:
            p = expit(x @ w)
            weights = p * (1 - p) if self.loss == "logistic" else np.ones(len(x))
            self.factor, self.age = cho_factor(x.T @ (weights[:, None] * x) + self.strength * np.eye(x.shape[1])), 0
        self.age += 1
        best, size = w, np.inf
        for _ in range(60):
            gradient = self.gradient(w, x, t)
            now = float(np.linalg.norm(gradient))
            if now >= size:
                return best
            best, size = w, now
            w = w - cho_solve(self.factor, gradient)
        return best


def check(name: str, loss: LossName, folder: Path, removals: int, rows: int) -> bool:
    """One row of the table; whether everything was as stated."""
    x, labels = load(name, folder, rows)
    objective = Objective(loss, 1e-3 * len(x))
    targets = objective.targets(labels, 2)
    tilt = np.random.default_rng(1).normal(0, 1 if loss == "logistic" else 0, (1, x.shape[1]))
    head = Head.formed(objective, np.zeros((1, x.shape[1])), tilt, x, targets)
    head.refresh(x, targets)
    again, rng = Again(objective, tilt), np.random.default_rng(2)
    slopes = np.abs(objective.slopes(x @ head.weight.T, targets)[:, 0])
    order = np.concatenate([np.argsort(-slopes)[: removals // 2], rng.permutation(np.argsort(-slopes)[removals // 2 :])])
    stays, at, within, residual, away, steps = np.ones(len(x), dtype=bool), 0, 0.0, 0.0, 0.0, 0
    while at < removals:
        gone = order[at : at + (3 if steps % 5 == 4 else 1)]
        at, steps = at + len(gone), steps + 1
        stays[gone] = False
        head.remove(x[gone], targets[gone])
        left, aims = x[stays], targets[stays]
        best = again.minimiser(head.weight[0], left, aims[:, 0])
        distance = float(np.linalg.norm(head.weight[0] - best))
        away, within = max(away, distance), max(within, distance / head.distance)
        size = float(np.linalg.norm(again.gradient(head.weight[0], left, aims[:, 0])))
        residual = max(residual, size / head.residual)
        if head.residual > 0.3:
            head.polish(left, aims)
    fine = within <= 1 and residual <= 1 and (loss == "logistic" or away <= CLOSE)
    print(f"| {name} | {loss} | {len(x)} x {x.shape[1]} | {at} in {steps} | {within:.3g} | {residual:.3g} | {away:.3g} |")
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--removals", type=int, default=500)
    parser.add_argument("--rows", type=int, default=8000)
    options = parser.parse_args()
    folder = Path(os.environ.get("AGT_DATA", ""))
    print("| data | loss | size | removed | within | residual | away |")
    print("|---|---|---|---|---|---|---|")
    losses: tuple[LossName, ...] = ("logistic", "least_squares")
    with threadpool_limits(1):
        fine = [
            check(name, loss, folder, options.removals, options.rows)
            for name in ("mnist", "imdb", "adult")
            for loss in losses
        ]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
