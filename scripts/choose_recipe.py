"""Choose the recipe's constants (agt/training/linear.py), once, on public data.

    python scripts/choose_recipe.py [--data-dir ../shared/data]

For each public set (recipe_sets.py) and each Lambda of a grid, a linear head is trained by the library itself on four
fifths of the records and tried on the rest: its accuracy, and the share of its predictions that no 20 records can change.
On those curves, linear in log Lambda, each rule

    Lambda = min(B / ONSET, FACTOR sqrt B) / (classes - 1)^POWER

picks a place for each set. A rule is admitted if its accuracy is nowhere more than two points below the LogisticRegression
of scikit-learn on standardised numbers and one-hot categories, and on sets of 10,000 records and more, where certificates
reach far anyway, nowhere more than 1.2 points. Of those, the one chosen has the longest distances: the largest mean of log
Lambda over the sets.

Whoever reads accuracies on these same sets reads them flattered: three constants, and the number of bins before them (20 of
5, 10, 20, 40 with and without halvings), were picked by results on them. For other data they are public constants.

It takes about five minutes on one core, and prints the same every time.
"""

import argparse
import itertools
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from recipe_sets import PublicSet, public_sets
from sklearn.linear_model import LogisticRegression

import agt
from agt.training.linear import strength

BINS, K = 20, 20
LOSS, LARGE, LOSS_OF_LARGE = 0.02, 10_000, 0.012
LAMBDAS = tuple(2.0**power for power in range(-3, 7))
ONSETS, FACTORS, POWERS = (250, 500, 1000, 2000), (0.06, 0.08, 0.1, 0.13, 0.16, 0.2), (0.0, 0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Curve:
    """What each Lambda of the grid gives on one set.

    Attributes:
        name, size, classes: of the set; size: of a training split.
        logistic: LogisticRegression's accuracy.
        accuracy, certified: one for each of ``LAMBDAS``.
    """

    name: str
    size: float
    classes: int
    logistic: float
    accuracy: tuple[float, ...]
    certified: tuple[float, ...]

    @property
    def allowed(self) -> float:
        """How much accuracy a rule may lose here."""
        return LOSS if self.size < LARGE else LOSS_OF_LARGE

    def at(self, force: float) -> tuple[float, float]:
        """(accuracy, share certified) at a Lambda, linear in its logarithm."""
        place = np.log2(np.clip(force, LAMBDAS[0], LAMBDAS[-1]))
        grid = np.log2(LAMBDAS)
        return float(np.interp(place, grid, self.accuracy)), float(np.interp(place, grid, self.certified))


def logistic(data: PublicSet) -> float:
    """Cross-validated accuracy of scikit-learn's LogisticRegression."""
    scores = []
    for train, test in data.splits():
        x = data.usual(train)
        model = LogisticRegression(max_iter=300).fit(x[train], data.labels[train])
        scores.append(model.score(x[test], data.labels[test]))
    return float(np.mean(scores))


def measured(data: PublicSet) -> Curve:
    """Train at every Lambda."""
    x, points, sizes = data.features(BINS), [], []
    for force in LAMBDAS:
        right, far = [], []
        for train, test in data.splits():
            size = int(train.sum())
            sizes.append(size)
            caution = force / strength(size, data.classes)
            model = agt.fit(x[train], data.labels[train], declared=agt.Declared(size=size), caution=caution)
            answers = model.certify(x[test])
            right.append(answers.labels == data.labels[test])
            far.append(answers.stable_distance >= K)
        points.append((float(np.concatenate(right).mean()), float(np.concatenate(far).mean())))
    accuracy, certified = zip(*points, strict=True)
    return Curve(data.name, float(np.mean(sizes)), data.classes, logistic(data), accuracy, certified)


def chosen(curves: list[Curve]) -> list[tuple[float, float, float, tuple[float, float, float]]]:
    """Every rule, the best admitted one first.

    Returns:
        (largest loss as a share of what is allowed, mean log2 Lambda, mean share certified, the rule)
    """
    rules = []
    for onset, factor, power in itertools.product(ONSETS, FACTORS, POWERS):
        forces = [min(c.size / onset, factor * math.sqrt(c.size)) / (c.classes - 1) ** power for c in curves]
        places = [curve.at(force) for curve, force in zip(curves, forces, strict=True)]
        loss = max((c.logistic - accuracy) / c.allowed for c, (accuracy, _) in zip(curves, places, strict=True))
        share = float(np.mean([certified for _, certified in places]))
        rules.append((loss, float(np.mean(np.log2(forces))), share, (float(onset), factor, power)))
    return sorted(rules, key=lambda rule: (rule[0] > 1, -round(rule[1], 6), rule[3]))


def main() -> None:
    """Measure, choose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    curves = []
    print(f"accuracy / share certified at k = {K}, by Lambda", *(f"{force:>11g}" for force in LAMBDAS))
    for data in public_sets(parser.parse_args().data_dir):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a LogisticRegression that did not converge is still what people get
            curves.append(curve := measured(data))
        shown = [f"{a:.3f} / {c:.3f}" for a, c in zip(curve.accuracy, curve.certified, strict=True)]
        print(
            f"{curve.name:16} {curve.size:6.0f} records, {curve.classes:2} classes, LR {curve.logistic:.3f}:",
            *shown,
            flush=True,
        )
    print("\nonset, factor, power: largest loss as a share of what is allowed, mean log2 Lambda, mean share certified")
    for loss, force, share, rule in chosen(curves)[:10]:
        admitted = "admitted" if loss <= 1 else "refused"
        print(f"{rule[0]:6g} {rule[1]:5g} {rule[2]:4g}: {loss:.3f} {force:6.2f} {share:.3f} {admitted}")


if __name__ == "__main__":
    main()
