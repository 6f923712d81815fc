"""Private linear heads on the IMDB stand-in: released weights against DP-SGD, settings chosen without the rows that report.

    OMP_NUM_THREADS=1 python scripts/compare_released.py [--data-dir DIR] [--json]

Cross-fitting, the same for every method. The 5,000 public (test) rows are dealt into halves by a keyed hash. One half
chooses all settings of a method, at each budget, by folds of its own: heads of a fold stand for the real run's. They are
trained on public rows alone, B being their number, so that mean gradients and trajectories match; the noise is that of
45,000 records. Heads of so few rows would ask for far more restraint than those of 45,000: what comes of having seen few is
taken out of the score, by training each twice, on different rows (``moments_of``); and the half that chooses is whitened by
the other, unlabelled, because rows that whiten themselves are rounder than private ones. The other half reports the
accuracy of heads trained with these settings on the 45,000 private rows. Then the halves change places, and what they
report is averaged; and so over several splits into halves, as a choice can be lucky or not. Where they report, features are
whitened by all 5,000 public rows, unlabelled, for all methods alike; the power is a setting.

Accuracy is an expectation over the noise: exact where what is left is Gaussian (output perturbation), else a mean over
seeded draws, the last step's noise of DP-SGD taken exactly. Standard errors are of the paired difference: over the rows
that report (the mean over draws of each) and, added to it, over the draws of both sides. They hold neither the choice of
settings, of which the spread over splits tells, nor the private sample.

Whatever is drawn here is drawn in floating point, from seeds: a simulation.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from halves import halves
from released_heads import BY_NAME, CHOOSING, REPORTING, SIZE, Heads, Rows, Setting
from scipy.special import ndtr

from agt.data.dataset import Dataset, Records
from agt.data.embeddings import Embeddings
from agt.mechanisms.shrinkage import PrincipalAxes
from agt.models.features import FeatureMap
from agt.settings import FeaturesConfig

TOTALS = (0.1, 0.5, 1.0)
POWERS = (0.0, 0.5, 0.75, 0.9)
FOLDS = 5


@dataclass(frozen=True)
class Features:
    """The data set's features at each power of whitening; pairs are of the one half of the public rows and the other.

    Attributes:
        choosing: power -> each half, whitened by the other's rows: by rows that its folds do not hold, as in the real run.
        public: power -> each half, whitened by both.
    """

    choosing: Mapping[float, tuple[Rows, Rows]]
    public: Mapping[float, tuple[Rows, Rows]]

    @classmethod
    def of(cls, dataset: Dataset, split: int) -> "Features":
        """Of one of the splits into halves."""
        one, other = halves(dataset.test, f"halves {split}")
        choosing, public = {}, {}
        for power in POWERS:
            choosing[power] = (_mapped(power, dataset, other, one)[0], _mapped(power, dataset, one, other)[0])
            first, second = _mapped(power, dataset, dataset.test, one, other)
            public[power] = first, second
        return cls(choosing, public)


def _mapped(power: float, dataset: Dataset, crowd: Records, *parts: Records) -> list[Rows]:
    """The parts' features, whitened by a crowd of public rows."""
    config = FeaturesConfig(whiten=power, public="test" if power else None)
    fmap = FeatureMap.of(config, replace(dataset, test=crowd))
    axes, public = PrincipalAxes.of(fmap), fmap(crowd.features, "float32")
    return [Rows(fmap(part.features, "float32"), part.labels.astype(np.float32), axes, public) for part in parts]


@dataclass(frozen=True)
class Choice:
    """What a half chose for a method at a budget.

    Attributes:
        score: expected accuracy over its folds.
    """

    power: float
    setting: Setting
    score: float


class Choices(dict[tuple[str, float], Choice]):
    """(method, eps) -> what a half chose."""

    def preferred(self, eps: float, side: str) -> str:
        """The method of a side that the half would take: the method is one of the settings."""
        names = [name for name, at in self if at == eps and BY_NAME[name].side == side]
        return max(names, key=lambda name: self[name, eps].score)


@cache
def features_of(data_dir: Path, split: int) -> Features:
    """Of one of the splits."""
    return Features.of(load(data_dir), split)


@cache
def private_of(data_dir: Path) -> Mapping[float, Rows]:
    """power -> the private rows, whitened by all public ones."""
    dataset = load(data_dir)
    return {power: _mapped(power, dataset, dataset.test, dataset.train)[0] for power in POWERS}


def choose(data_dir: Path, split: int, half: int, names: Sequence[str]) -> Choices:
    """(method, eps) -> the best of its settings over the folds of this half; its rows alone are read with their labels."""
    best, features = Choices(), features_of(data_dir, split)
    for power, name in product(POWERS, names):
        method = BY_NAME[name]
        if method.whitened and not power:
            continue
        parts, tops = folds(features.choosing[power][half]), []
        for eps in TOTALS:
            moments = []
            for out, (one, other, outside) in enumerate(parts):
                alike = (method.make(r, method.settings, eps, CHOOSING, draws_of(split, half, out)) for r in (one, other))
                moments.append([moments_of(a, b, outside, len(one.x)) for a, b in zip(*alike, strict=True)])
            values = gaussian_accuracy(np.mean(moments, axis=0))
            at = int(values.argmax())
            tops.append(float(values[at]))
            if (name, eps) not in best or values[at] > best[name, eps].score:
                best[name, eps] = Choice(power, method.settings[at], float(values[at]))
        note(f"split {split}, half {half}: {name}, whitened {power:g}: " + " ".join(f"{top:.4f}" for top in tops))
    return best


def draws_of(*place: int) -> np.random.Generator:
    """Seeded draws."""
    return np.random.default_rng(place)


def folds(rows: Rows) -> list[tuple[Rows, Rows, Rows]]:
    """(half of the other folds, as many others of them, the fold), each in turn; kept, with what is computed from them."""
    if "folds" not in rows.kept:
        fold, parts = np.arange(len(rows.x)) % FOLDS, []
        for out in range(FOLDS):
            inside = np.flatnonzero(fold != out)
            many = len(inside) // 2
            parts.append((rows.take(inside[:many]), rows.take(inside[-many:]), rows.take(fold == out)))
        rows.kept["folds"] = parts
    return rows.kept["folds"]


def moments_of(one: Heads | None, other: Heads | None, rows: Rows, size: int) -> np.ndarray:
    """[2, draws] mean and mean square that signed margins of the real run's heads would have on these rows.

    ``one`` and ``other`` are trained on different rows, with the same noise. So the product of their margins has the
    square that both have in common for its mean, and what comes of having seen ``size`` records alone falls out of it; of
    that, the share which the real run keeps is added again.
    """
    if one is None or other is None:
        return np.full((2, CHOOSING), np.nan)
    sign = (2 * rows.y - 1)[:, None]
    a, b = (sign * (rows.x @ heads.theta) for heads in (one, other))
    square = (a * b).mean(axis=0) + ((a - b) ** 2).mean(axis=0) / 2 * size / SIZE + one.sigma**2
    return np.broadcast_to(np.stack([(a + b).mean(axis=0) / 2, square]), (2, CHOOSING))


def gaussian_accuracy(moments: np.ndarray) -> np.ndarray:
    """[settings] accuracy of margins with these moments [settings, 2, draws], taken to be normal; 0 where there are
    none."""
    mean, variance = moments[:, 0], moments[:, 1] - moments[:, 0] ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(np.where(variance > 0, ndtr(mean / np.sqrt(variance)), 0).mean(axis=1))


@dataclass(frozen=True, eq=False)
class Report:
    """Of a method at a budget: the probability of being right, [n, draws], of each half that reports."""

    right: tuple[np.ndarray, np.ndarray]

    @property
    def accuracy(self) -> float:
        """The mean of both halves'."""
        return float(np.mean([right.mean() for right in self.right]))

    @property
    def of_draws(self) -> float:
        """Variance of the accuracy over draws."""
        each = [right.mean(axis=0).var(ddof=1) / right.shape[1] for right in self.right if right.shape[1] > 1]
        return float(sum(each)) / 4

    def ahead(self, other: "Report") -> tuple[float, float]:
        """(how far ahead of another method, its standard error)."""
        apart = [a.mean(axis=1) - b.mean(axis=1) for a, b in zip(self.right, other.right, strict=True)]
        of_rows = sum(float(d.var(ddof=1)) / len(d) for d in apart) / 4
        return self.accuracy - other.accuracy, math.sqrt(of_rows + self.of_draws + other.of_draws)


def measure(data_dir: Path, split: int, choices: tuple[Choices, Choices], name: str, eps: float) -> Report:
    """Heads of the private rows by what each half chose, on the other half."""
    right, public, private = [], features_of(data_dir, split).public, private_of(data_dir)
    for half, chosen in enumerate(choices):
        choice = chosen[name, eps]
        made = BY_NAME[name].make(private[choice.power], [choice.setting], eps, REPORTING, draws_of(split, half))
        heads = next(iter(made))
        assert heads is not None
        right.append(heads.right(public[choice.power][1 - half]))
    return Report((right[0], right[1]))


def report(data_dir: Path, split: int, choices: tuple[Choices, Choices], eps: float) -> list[dict[str, Any]]:
    """The table's rows of a split at a budget: each method, and each side's, the method chosen too."""
    reports = {name: measure(data_dir, split, choices, name, eps) for name, at in choices[0] if at == eps}
    chosen = {name: [(of[name, eps].power, *of[name, eps].setting) for of in choices] for name in reports}
    for side in ("DP-SGD", "released"):
        chosen[side] = [of.preferred(eps, side) for of in choices]
        reports[side] = Report((reports[chosen[side][0]].right[0], reports[chosen[side][1]].right[1]))
    note(f"split {split}: reported at eps = {eps:g}")
    rows = []
    for name, seen in reports.items():
        ahead, error = seen.ahead(reports["DP-SGD"])
        row = {"eps": eps, "name": name, "accuracy": seen.accuracy, "ahead": ahead, "error": error}
        rows.append(row | {"chosen": chosen[name]})
    return rows


def joined(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same method's rows of all splits as one: means, of standard errors too (splits share their rows), and what the
    splits' differences spread."""
    parts: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault((row["eps"], row["name"]), []).append(row)
    return [
        {
            **{"eps": eps, "name": name},
            **{key: float(np.mean([row[key] for row in alike])) for key in ("accuracy", "ahead", "error")},
            "spread": float(np.std([row["ahead"] for row in alike])),
            "chosen": [row["chosen"] for row in alike],
        }
        for (eps, name), alike in parts.items()
    ]


def note(line: str) -> None:
    """Progress."""
    print(f"[{time.process_time():6.0f} s] {line}", file=sys.stderr, flush=True)


def load(data_dir: Path) -> Dataset:
    """The data set, as conf/dataset/imdb_minilm.yaml has it."""
    return Embeddings(
        path=Path("imdb_minilm.npz"),
        data_dir=data_dir,
        label="y",
        is_test="is_test",
        classes=("0", "1"),
        center="center",
        scale=20.0,
        public_scaling=True,
        declared_size=SIZE,
    ).load()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="released linear heads against DP-SGD, cross-fitted on public halves")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--splits", type=int, default=3, help="into halves, by different keys")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="methods whose names start so, and DP-SGD")
    parser.add_argument("--json", action="store_true", help="one object")
    options = parser.parse_args()
    starts = ("DP-SGD", *options.only) if options.only else ("",)
    names = [name for name in BY_NAME if name.startswith(tuple(starts))]
    private_of(options.data_dir)  # here, so that both processes below have them
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        halved = [(split, half) for split in range(options.splits) for half in (0, 1)]
        made = [pool.submit(choose, options.data_dir, *of, names) for of in halved]
        choices = [(made[2 * split].result(), made[2 * split + 1].result()) for split in range(options.splits)]
        told = [pool.submit(report, options.data_dir, i, of, eps) for eps in TOTALS for i, of in enumerate(choices)]
        rows = joined([row for part in told for row in part.result()])
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    for row in rows:
        print(
            "{eps:<4g} {name:<45} {accuracy:.4f}  {ahead:+.4f} +- {error:.4f}, splits {spread:.4f}  {chosen}".format(**row)
        )


if __name__ == "__main__":
    main()
