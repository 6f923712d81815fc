"""Certified removal against training again, side by side in one run: seconds, ratios, bounds.

    AGT_DATA=FOLDER python scripts/bench_removal.py [--json] [--rows 25000] [--removals 1000]

FOLDER holds imdb_minilm.npz (25,000 of its training rows, 384 numbers each) and mnist_t10k.npz (3 against 8). Without them
synthetic rows of the same size take their place, and the table says so. One thread. Ratios are of medians within this run;
what is retrained reaches the residual that the removal is known to have, no less.

| row     | what                                                                                                   |
|---------|--------------------------------------------------------------------------------------------------------|
| removal | one record, with the maintained factorisation: median of the first 50                                  |
| last    | the same, of the last 50 of --removals                                                                 |
| lbfgs   | L-BFGS from 0 on the remaining rows, to what the removal is known to leave; _true: to what it leaves |
| newton  | Newton's method from 0                                                                                 |
| warm    | L-BFGS from the weights before                                                                         |
| fresh   | one removal with the Hessian formed anew                                                               |
| floor   | what one removal reads and writes at least: three matrices brought up to date, four products           |
| kept    | a removal's mean within a budget (sigma 1, eps 1, delta 1e-4), polishing and refreshing when it runs out |
| polish  | a residual measured after --removals of them without                                                   |
| bound   | MNIST 3 against 8: what one removal is charged, from the data and in the worst case (ours; 003's)       |
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

from agt.numeric import gaussian_mu
from agt.training.objective import Objective
from agt.unlearning.newton import Head, brought_within, worst_case

Row = dict[str, Any]
WIDTH, FEW = 384, 50


def imdb(rows: int) -> tuple[str, np.ndarray, np.ndarray]:
    """(name, features of norm at most 1, labels)."""
    path = Path(os.environ.get("AGT_DATA", "")) / "imdb_minilm.npz"
    rng = np.random.default_rng(0)
    if not path.is_file():
        x = rng.normal(size=(rows, WIDTH)) * np.geomspace(1, 0.1, WIDTH)
        return "synthetic", unit(x), (x @ rng.normal(size=WIDTH) > 0).astype(int)
    with np.load(path) as data:
        kept = rng.permutation(np.flatnonzero(data["is_test"] == 0))[:rows]
        return "imdb_minilm", unit(data["x"][kept].astype(np.float64) - data["center"]), data["y"][kept].astype(int)


def digits() -> tuple[str, np.ndarray, np.ndarray]:
    """3 against 8."""
    path = Path(os.environ.get("AGT_DATA", "")) / "mnist_t10k.npz"
    if not path.is_file():
        rng = np.random.default_rng(0)
        x = rng.random((1984, 784)) * (rng.random((1984, 784)) < 0.2)
        return "synthetic", unit(x), rng.integers(2, size=len(x))
    with np.load(path) as data:
        rows = np.flatnonzero(np.isin(data["labels"], (3, 8)))
        return (
            "mnist_t10k",
            unit(data["images"][rows].reshape(len(rows), -1) / 255.0),
            (data["labels"][rows] == 8).astype(int),
        )


def unit(x: np.ndarray) -> np.ndarray:
    return x / (np.linalg.norm(x, axis=1, keepdims=True) * (1 + 1e-12))


def trained(x: np.ndarray, labels: np.ndarray, strength: float, sigma: float = 1.0) -> tuple[Head, np.ndarray]:
    """(a head at its minimiser, the targets)."""
    objective = Objective("logistic", strength)
    targets = objective.targets(labels, 2)
    tilt = np.random.default_rng(1).normal(0, sigma, (1, x.shape[1]))
    head = Head.formed(objective, np.zeros((1, x.shape[1])), tilt, x, targets)
    head.refresh(x, targets)
    return head, targets


def plain(head: Head, x: np.ndarray, targets: np.ndarray) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Value and gradient as fast as they come: no bound on rounding, no blocks."""
    s, t, b = head.objective.strength, targets[:, 0], head.tilt[0]

    def at(w: np.ndarray) -> tuple[float, np.ndarray]:
        f = x @ w
        value = (np.logaddexp(0, f) - t * f).sum() + s / 2 * (w @ w) + b @ w
        return float(value), x.T @ (expit(f) - t) + s * w + b

    return at


def by_lbfgs(head: Head, x: np.ndarray, targets: np.ndarray, goal: float, start: np.ndarray) -> float:
    """Seconds to a gradient of norm ``goal``."""

    class Reached(Exception):
        pass

    at, started = plain(head, x, targets), time.perf_counter()

    def watched(w: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = at(w)
        if np.linalg.norm(gradient) <= goal:
            raise Reached
        return value, gradient

    try:
        minimize(
            watched, start, jac=True, method="L-BFGS-B", options={"maxiter": 10**4, "ftol": 0, "gtol": 0, "maxcor": 20}
        )
    except Reached:
        return time.perf_counter() - started
    raise SystemExit(f"L-BFGS did not reach {goal:g}")


def by_newton(head: Head, x: np.ndarray, targets: np.ndarray, goal: float) -> float:
    """Seconds to a gradient of norm ``goal``, from 0."""
    at, started, w = plain(head, x, targets), time.perf_counter(), np.zeros(x.shape[1])
    while np.linalg.norm(gradient := at(w)[1]) > goal:
        hessian = head.objective.hessian(w[None], x)[0]
        w = w - cho_solve(cho_factor(hessian), gradient)
    return time.perf_counter() - started


def floor(head: Head, x: np.ndarray) -> float:
    """Seconds of what no removal of this kind does without, written down plainly."""
    matrices, row = [np.array(head.gram.matrix) for _ in range(3)], x[:1]
    seconds = []
    for _ in range(FEW):
        started = time.perf_counter()
        for matrix in matrices:
            _ = matrix - row.T @ row
            _ = matrix @ row[0]
        _ = matrices[0] @ row[0]
        seconds.append(time.perf_counter() - started)
    return float(np.median(seconds))


def kept(head: Head, x: np.ndarray, targets: np.ndarray, removals: int) -> dict[str, float]:
    """Removals within a budget, one by one: mean seconds of all, of the first quarter and of the last."""
    budget, seconds, looks = gaussian_mu(1.0, 1e-4), [], {"polish": 0, "refresh": 0}
    for row in range(removals):
        started = time.perf_counter()
        last = head.remove(x[row : row + 1], targets[row : row + 1])
        for name in brought_within(head, x[row + 1 :], targets[row + 1 :], budget, last):
            looks[name] += 1
        seconds.append(time.perf_counter() - started)
    quarter = removals // 4
    first, final = float(np.mean(seconds[:quarter])), float(np.mean(seconds[-quarter:]))
    return {"seconds": float(np.mean(seconds)), "first": first, "final": final, "residual": head.residual, **looks}


def timings(rows: int, removals: int) -> list[Row]:
    name, x, labels = imdb(rows)
    head, targets = trained(x, labels, strength=0.001 * rows)
    before, fresh, within = head.weight[0].copy(), head.copy(), head.copy()
    seconds, goals = [], []
    for row in range(removals):
        started = time.perf_counter()
        head.remove(x[row : row + 1], targets[row : row + 1])
        seconds.append(time.perf_counter() - started)
        goals.append(head.residual)
    one, last, goal, left = float(np.median(seconds[:FEW])), float(np.median(seconds[-FEW:])), goals[0], slice(1, None)
    started = time.perf_counter()
    fresh.remove(x[:1], targets[:1], x[left])
    anew = time.perf_counter() - started
    where = f"{name} {len(x)} x {x.shape[1]}"

    def line(row: str, seconds: float, reach: float | None = None, **more: Any) -> Row:
        ratio = seconds / one
        return {"row": row, "data": where, "seconds": seconds, "ratio": ratio, "reached": reach and ratio >= reach, **more}

    lines = [line("removal", one, residual=goal), line("last", last, number=removals, residual=goals[-1])]
    lines[-1]["reached"] = last <= 1.2 * one
    lines.append(line("lbfgs", by_lbfgs(head, x[left], targets[left], goal, np.zeros(x.shape[1])), 100, residual=goal))
    truly = head.objective.slope(fresh.weight, x[left], targets[left], head.tilt).bound
    lines.append(line("lbfgs_true", by_lbfgs(head, x[left], targets[left], truly, np.zeros(x.shape[1])), residual=truly))
    lines.append(line("newton", by_newton(head, x[left], targets[left], goal), 100, residual=goal))
    lines.append(line("warm", by_lbfgs(head, x[left], targets[left], goal, before), residual=goal))
    lines.append(line("fresh", anew, residual=fresh.residual))
    lines.append(line("floor", floor(head, x), inverses_made_anew=head.factors[0].made))
    means = kept(within, x, targets, removals)
    lines.append(line("kept", means.pop("seconds"), **means))
    started = time.perf_counter()
    head.polish(x[removals:], targets[removals:])
    lines.append(line("polish", time.perf_counter() - started, residual=head.residual))
    return lines


def bounds() -> list[Row]:
    name, x, labels = digits()
    head, targets = trained(x, labels, strength=0.001 * len(x))
    worst = worst_case(head.objective.gamma, 1, len(x) - 1, head.objective.strength)
    papers = 4 * worst * (1 / 4) / head.objective.gamma
    from_data, true = [], []
    for row in range(100):
        copy = head.copy()
        step = copy.remove(x[row : row + 1], targets[row : row + 1])
        keep = np.arange(len(x)) != row
        from_data.append(step.after - step.before)
        true.append(float(np.linalg.norm(head.objective.slope(copy.weight, x[keep], targets[keep], head.tilt).gradient)))
    charged = float(np.max(from_data))
    entries = {"from_data": charged, "median": float(np.median(from_data)), "true": float(np.max(true)), "worst": worst}
    entries |= {"worst_of_003": papers}
    where = f"{name} {x.shape[0]} x {x.shape[1]}"
    return [{"row": "bound", "data": where, **entries, "ratio": worst / charged, "reached": worst / charged >= 100}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, default=25_000)
    parser.add_argument("--removals", type=int, default=1000)
    options = parser.parse_args()
    with threadpool_limits(1):
        rows = timings(options.rows, options.removals) + bounds()
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        more = {k: v for k, v in row.items() if k not in ("row", "data", "ratio", "reached")}
        words = "  ".join(f"{key} {value:.4g}" for key, value in more.items())
        mark = {True: "reached", False: "MISSED", None: ""}[row["reached"]]
        print(f"{row['row']:10} {row['data']:23} ratio {row['ratio']:10.4g}  {words}  {mark}")


if __name__ == "__main__":
    main()
