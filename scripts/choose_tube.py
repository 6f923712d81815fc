"""Choose a tube's settings on one half of the public rows, as ``experiment=imdb_tube`` has them; the other half may report.

    python scripts/choose_tube.py [--data-dir DIR] [--half 0|1] [--folds 3] [--json]

The public rows are the 5,000 test reviews of imdb_minilm, dealt to two halves by hash. Inside a half, K-fold: train on the
other folds with B set to their number, so that the mean gradient, the curvature and with them the trajectory are those of a
run on 45,000 as far as both samples are alike; radii are those of the real run, where k records weigh k / 45,000 of the
whole; evaluate on the fold. No training review is read.

Not searched are activation, units, bias, the length of the output weights and what a step moves a logit by: the first three
as certificate=tube has them unless told otherwise, the others after a look at half 0, by folds as here: of lengths 1 to 64,
distances grew up to about 16, and of rates the product with the squared length counts. So where half 0 reports, these two
were seen on it.

| column   | meaning                                                     |
|----------|-------------------------------------------------------------|
| accuracy | of the network after that many steps, mean over the folds   |
| half     | the k at which half of the fold's rows are certified        |
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import agt_cli  # noqa: F401  isort: skip  (first: it tells OpenMP how to wait)
import numpy as np
from choose_public import SIZE, load
from halves import halves

from agt.data.dataset import Records
from agt.models.features import FeatureMap
from agt.settings import BatchConfig, FeaturesConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.sensitivity import LinearLoss
from agt.tube.activations import SMOOTH
from agt.tube.network import TubeNetwork, start_norm
from agt.tube.norms import Meter
from agt.tube.radius import Radii
from agt.tube.setting import TubeSetting, schedule
from agt.tube.stability import certify_tube
from agt.tube.training import TubeTrained, look

KMAX = 600
STEPS = (3, 4, 6, 8, 12, 16, 24, 32, 48)
FLOW = 100.0  # rate times the squared length of the output weights: what a step moves a logit by goes with it
GOALS = (75, 140)
ROOM = 1.05  # half of the rows certified at this much more than the goal


@dataclass(frozen=True)
class Setting:
    """One candidate, but for its number of steps.

    The output weights are long and the rate small, which keeps the hidden weights where curvature is least (method.md).
    """

    spread: float = 1.0
    clip: float = 0.5
    whiten: float = 0.0
    flow: float = FLOW
    length: float = 16.0
    units: int = 256
    activation: str = "tanh"
    bias: float = 0.1
    decay: float = 0.0

    @property
    def rate(self) -> float:
        """training.lr."""
        return self.flow / self.length**2


CANDIDATES = tuple(
    Setting(spread, clip, whiten)
    for whiten, spread, clip in itertools.product((0.0, 0.25, 0.5), (0.25, 0.5, 1.0), (0.2, 0.3, 0.5, 0.75, 1.0))
)


def trajectory(
    setting: Setting, records: Records, most: int, seed: int
) -> Iterator[tuple[int, TubeSetting, TubeNetwork, TubeTrained]]:
    """(steps, ...) at each of STEPS up to ``most``; B is the number of records at hand, k counts as in a run on SIZE."""
    training = TrainingConfig(
        loss="binary_cross_entropy",
        epochs=most,
        lr=setting.rate,
        clip=setting.clip,
        decay=0.0,
        lr_min=0.0,
        seed=seed,
        weight_decay=setting.decay,
    )
    loss, width = LinearLoss.of(training, 2), records.features.shape[1]
    network = TubeNetwork.of(loss, SMOOTH[setting.activation], setting.units, setting.length, seed)
    weight = network.initial(width, setting.spread, seed)
    plan = BatchPlan.of(BatchConfig(), most, len(records), len(records))
    tube = TubeSetting(
        loss,
        network.activation,
        network.outputs.numpy(),
        start_norm(weight),
        width,
        training,
        plan,
        RelationConfig(name="add_remove"),
    )
    publics, reach = schedule(tube)
    meter, everyone = Meter(tube, network), np.arange(len(records))
    radii, gram = Radii.zero(counts(len(records)), 2 * reach), meter.gram(records, everyone)
    for step, public in enumerate(publics, start=1):
        seen = look(meter, weight, records, everyone, public, exact=False)
        radii = radii.batch(tube.curvature, public, seen.rho, gram).epoch_over()
        weight = weight * public.at.keep - seen.gradient * public.at.step
        if step in STEPS:
            yield step, tube, network, TubeTrained(weight, radii.after, reach)


def counts(rows: int) -> np.ndarray:
    """[KMAX + 1] what k records of SIZE weigh among ``rows``."""
    weighed: np.ndarray = np.arange(KMAX + 1) * (rows / SIZE)
    return weighed


def measure(
    public: Records, phi: np.ndarray, setting: Setting, folds: int, most: int, seed: int = 0
) -> dict[int, np.ndarray]:
    """Steps -> (accuracy, half), means over the folds."""
    fold, sums = np.arange(len(public)) % folds, dict[int, np.ndarray]()
    for out in range(folds):
        inside, outside = np.flatnonzero(fold != out), np.flatnonzero(fold == out)
        records = replace(public.take(inside), features=phi[inside])
        for step, tube, network, trained in trajectory(setting, records, most, seed):
            known = certify_tube(tube, network, trained, counts(len(inside)), phi[outside], "add_remove", (0,))
            right = known.prediction == public.labels[outside]
            found = np.array([right.mean(), np.median(known.stable_distance)])
            sums[step] = sums.get(step, 0) + found / folds
    return sums


def best(found: dict[tuple[Setting, int], np.ndarray], goal: int) -> tuple[Setting, int]:
    """The most accurate of those that certify half of the rows at the goal, with some room."""
    fit = {key: value for key, value in found.items() if value[1] >= ROOM * goal}
    return max(fit, key=lambda key: float(fit[key][0]))


def search(data_dir: Path, half: int, folds: int) -> dict[tuple[Setting, int], np.ndarray]:
    """(setting, steps) -> (accuracy, half), on one half of the public rows alone."""
    dataset = load(data_dir)
    public, found = halves(dataset.test)[half], dict[tuple[Setting, int], np.ndarray]()
    for setting in CANDIDATES:
        features = FeaturesConfig(whiten=setting.whiten, public="test" if setting.whiten else None, bias=setting.bias)
        phi = FeatureMap.of(features, replace(dataset, train=public, test=public))(public.features)
        for steps, values in measure(public, phi, setting, folds, max(STEPS)).items():
            found[setting, steps] = values
    return found


def main() -> None:
    """Print the best setting for each goal."""
    parser = argparse.ArgumentParser(description="choose a tube's settings on one half of the public rows alone")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--half", type=int, choices=(0, 1), default=0)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="every setting, one object a line")
    asked = parser.parse_args()
    found = search(asked.data_dir, asked.half, asked.folds)
    if asked.json:
        for (setting, steps), (accuracy, certified) in found.items():
            print(json.dumps({**asdict(setting), "steps": steps, "accuracy": accuracy, "half": certified}))
        return
    print(f"{'goal':>5}  {'whiten':>6} {'spread':>6} {'clip':>5} {'steps':>5}  {'accuracy':>8} {'half':>5}")
    for goal in GOALS:
        setting, steps = best(found, goal)
        accuracy, certified = found[setting, steps]
        shown = f"{setting.whiten:>6g} {setting.spread:>6g} {setting.clip:>5g} {steps:>5}"
        print(f"{goal:>5}  {shown}  {accuracy:>8.4f} {certified:>5.0f}")


if __name__ == "__main__":
    main()
