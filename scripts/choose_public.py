"""Choose a linear head's settings on public rows alone, so that ``training.chosen_on: public`` is true.

    python scripts/choose_public.py [--data-dir DIR] [--folds 5] [--json]

The public rows are the 5,000 test reviews of imdb_minilm, the rows that its centre was computed from; the 45,000 training
reviews are never read. K-fold inside the public rows: train on the other folds with B set to their number, so that the
mean gradient and with it the trajectory match those of a run on 45,000; evaluate on the fold. Distances and noise are those
that the real run will have: rho from B = 45,000. Whitening uses the public rows' features, as the real run does.

| column         | expected accuracy, exact                                                                  |
|----------------|-------------------------------------------------------------------------------------------|
| plain          | noise-free                                                                                |
| rr 0.1         | randomized_response at eps = 0.1 per query                                                |
| margin 10      | gaussian_margin at total eps = 10, delta = 1e-5 over 1,000 queries                        |
| weights eps    | weights released once at total eps, delta = 1e-5                                          |

Whatever is chosen here, accuracy on the same test rows is a little flattered: four constants were picked by their labels.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.special import ndtr

from agt.certificates.stability import certify_linear, logits_of, upper_lengths
from agt.data.dataset import Dataset, Records
from agt.data.embeddings import Embeddings
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantee import GaussianDP
from agt.mechanisms.weights import expected_accuracy, noise_scale, weights_budget
from agt.models.features import FeatureMap
from agt.settings import BatchConfig, FeaturesConfig, KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.linear import LinearTrained, gradient_sum
from agt.training.recipe import Recipe
from agt.training.sensitivity import LinearLoss, LinearSetting, Schedule, Sensitivity, sgd_sensitivity

SIZE, DELTA, RATE = 45_000, 1e-5, 7.0
CLIPS = (0.1, 0.25, 0.5, 1.0)
STEPS = (5, 10, 20, 50, 100, 200, 340, 680)
POWERS = (0.0, 0.5, 0.6, 0.75, 0.9)
TOTALS = (0.1, 0.5, 1.0, 10.0)
COLUMNS = ("plain", "rr 0.1", "margin 10", *(f"weights {eps:g}" for eps in TOTALS))


@dataclass(frozen=True)
class Setting:
    """One candidate."""

    whiten: float
    clip: float
    steps: int

    def training(self) -> TrainingConfig:
        """The real run's training settings."""
        return TrainingConfig(loss="binary_cross_entropy", epochs=self.steps, lr=RATE, clip=self.clip)

    def sensitivity(self, width: int) -> Sensitivity:
        """What the real run's weights move."""
        recipe = Recipe(2, self.training(), RelationConfig(name="add_remove"), KGridConfig(max=0), declared_size=SIZE)
        return sgd_sensitivity(LinearSetting.of(recipe, SIZE, width))


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


def trajectory(records: Records, clip: float) -> Iterator[tuple[int, torch.Tensor]]:
    """(steps, theta) at each of STEPS, B being the number of records at hand."""
    training = Setting(0.0, clip, max(STEPS)).training()
    loss = LinearLoss.of(training, 2)
    plan = BatchPlan.of(BatchConfig(), 1, len(records), len(records))
    theta = torch.zeros((1, records.features.shape[1]), dtype=torch.float64)
    everyone = np.arange(len(records))
    for step in range(max(STEPS)):
        at = Schedule.at(training, plan, step)
        theta = theta * at.keep - gradient_sum(loss, theta, records, everyone) * at.step
        if step + 1 in STEPS:
            yield step + 1, theta


def accuracies(setting: Setting, theta: torch.Tensor, phi: np.ndarray, labels: np.ndarray) -> list[float]:
    """The columns, for one fold."""
    sensitivity, plan = setting.sensitivity(phi.shape[1]), BatchPlan.of(BatchConfig(), setting.steps, SIZE, SIZE)
    trained = LinearTrained(theta, LinearLoss.of(setting.training(), 2), plan, sensitivity, setting.training())
    known = certify_linear(trained, phi, "add_remove", (0,))
    distance, right = known.stable_distance, known.prediction == labels
    mu = per_query(GaussianDP, 10.0, DELTA, 1000).mu
    flips = (0 * distance, np.exp(-0.1 * distance) / (1 + np.exp(0.1)), ndtr(-mu * (distance + 0.5)))
    released = (
        expected_accuracy(
            logits_of(theta, phi),
            upper_lengths(phi),
            labels,
            noise_scale(sensitivity.per_k, weights_budget(eps, DELTA)),
        )
        for eps in TOTALS
    )
    return [*(float(np.where(right, 1 - flip, flip).mean()) for flip in flips), *released]


def measure(dataset: Dataset, folds: int) -> dict[Setting, np.ndarray]:
    """Setting -> the columns, averaged over the folds. Reads the public rows alone."""
    public = replace(dataset, train=dataset.test)
    fold = np.arange(len(public.test)) % folds
    sums: dict[Setting, np.ndarray] = {}
    for power in POWERS:
        features = FeaturesConfig(whiten=power, public="test" if power else None)
        phi = FeatureMap.of(features, public)(public.test.features)
        for clip in CLIPS:
            for out in range(folds):
                inside, outside = np.flatnonzero(fold != out), np.flatnonzero(fold == out)
                records = replace(public.test.take(inside), features=phi[inside])
                for steps, theta in trajectory(records, clip):
                    setting = Setting(power, clip, steps)
                    columns = np.array(accuracies(setting, theta, phi[outside], public.test.labels[outside]))
                    sums[setting] = sums.get(setting, 0) + columns / folds
    return sums


def main() -> None:
    """Print the table of the best settings for each column."""
    parser = argparse.ArgumentParser(description="choose a linear head's settings on public rows alone")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="every setting, one object")
    asked = parser.parse_args()
    found = measure(load(asked.data_dir), asked.folds)
    if asked.json:
        print(json.dumps([{**vars(s), **dict(zip(COLUMNS, v.tolist(), strict=True))} for s, v in found.items()]))
        return
    print(f"{'best for':<12} {'whiten':>6} {'clip':>5} {'steps':>5}  " + "  ".join(f"{name:>11}" for name in COLUMNS))
    for group, keep in (("no whitening", lambda s: not s.whiten), ("any", lambda s: True)):
        print(f"-- {group}")
        for column, name in enumerate(COLUMNS):
            best = max((s for s in found if keep(s)), key=lambda s: found[s][column])
            shown = "  ".join(f"{value:>11.4f}" for value in found[best])
            print(f"{name:<12} {best.whiten:>6g} {best.clip:>5g} {best.steps:>5}  {shown}")


if __name__ == "__main__":
    main()
