"""What training convolutions with boxes gives on PneumoniaMNIST, and what it costs, beside heads without convolutions.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python scripts/compare_layers.py --path FILE [--seeds 3] [--only NAME ...]

| row       | what is trained, all of it with boxes for k = 1, 2, 5 records added or removed                              |
|-----------|-------------------------------------------------------------------------------------------------------------|
| majority  | nothing: the class that most training records have                                                          |
| linear    | a linear head on pixels, as experiment=pneumoniamnist has it                                                |
| dense     | the published network's dense layers, its convolutions frozen where they start: at random, from the seed    |
| small     | conv 1-8 4x4 stride 2, ReLU, averages of 2x2, and a linear head, end to end                                 |
| published | conv 1-16 4x4 stride 2, conv 16-32 4x4, dense 100, one logit, end to end: experiment=pneumoniamnist_conv    |

All but linear are trained on classes of about equal size (``KEEP``). Settings were chosen on two folds of the training
records, by what is certified and right at k = 1; test records are only reported on. Medians over initialisations, and their
range. Seconds are processor time of one thread, with boxes for the four k of ``KS`` together; plain is a step of PyTorch's
own SGD on the same network and records, without clipping, as often.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import agt_cli  # noqa: F401  isort: skip  (first: it tells OpenMP how to wait)
import numpy as np
import torch
from torch import nn

import agt
from agt.data.dataset import Dataset, Records
from agt.data.medmnist import MedMnist
from agt.models.heads import ConvConfig, HeadConfig
from agt.settings import TrainingConfig

KS = (0, 1, 2, 5)
KEEP = {1: 0.115}  # of the larger class: 3,494 records, so that about as many are left as the other has
PLAIN = {"loss": "binary_cross_entropy", "decay": 0.0}
LINEAR = PLAIN | {"epochs": 20, "lr": 3.0, "clip": 0.02, "momentum": 0.9}  # conf/training/pneumoniamnist.yaml
CAUTIOUS = PLAIN | {"epochs": 2, "lr": 0.005, "clip": 0.05}  # conf/training/pneumoniamnist_conv.yaml
START = {"start": "he", "output_scale": 0.0}
PUBLISHED = ConvConfig(hidden=(100,), **START)
SMALL = ConvConfig(channels=(8,), kernels=(4,), strides=(2,), paddings=(0,), pools=(2,), **START)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        head: the network; its last layer is linear.
        training: settings of ``TrainingConfig``.
        frozen: how many of its first layers stay as they start.
        keep: class -> the share of its records that are trained on.
    """

    head: HeadConfig
    training: Mapping[str, Any]
    frozen: int = 0
    keep: Mapping[int, float] = field(default_factory=lambda: KEEP)


ROWS = {
    "linear": Row(HeadConfig(), LINEAR, keep={}),
    "dense": Row(PUBLISHED, CAUTIOUS, frozen=5),
    "small": Row(SMALL, PLAIN | {"epochs": 2, "lr": 0.3, "clip": 0.06}),
    "published": Row(PUBLISHED, CAUTIOUS),
}


def load(path: Path, keep: Mapping[int, float]) -> Dataset:
    return MedMnist(name="pneumoniamnist", path=path, positive=(1,), keep=keep).load()


def network(row: Row, seed: int) -> nn.Sequential:
    """As a run's ``training.seed`` would make it."""
    return row.head.build((1, 28, 28), 2, TrainingConfig(**{**row.training, "seed": seed}))


def through(layers: nn.Sequential, rows: Records) -> Records:
    """What frozen layers make of records, in float64; each record's own."""
    with torch.no_grad():
        made = [layers(x) for x in torch.from_numpy(rows.features.astype(np.float64)).split(500)]
    return replace(rows, features=torch.cat(made).numpy())


def plain_seconds(layers: nn.Sequential, rows: Records, settings: Mapping[str, Any]) -> float:
    """The same number of full-batch steps by autograd."""
    x, y = torch.from_numpy(rows.features.astype(np.float64)), torch.from_numpy(rows.labels)[:, None].double()
    optimizer = torch.optim.SGD(layers.parameters(), lr=settings["lr"], momentum=settings.get("momentum", 0.0))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(layers(x), y).backward()
        optimizer.step()

    step()  # what is set up once
    return seconds(lambda: [step() for _ in range(settings["epochs"])])[0]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time, and what it returns."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def measured(row: Row, path: Path, seed: int) -> list[float]:
    """Accuracy, certified at 1, 2, 5, certified and right at 1, seconds with boxes, seconds plain."""
    dataset, whole = load(path, row.keep), network(row, seed)
    front, layers = whole[: row.frozen], whole[row.frozen :]
    train, test = (through(front, rows) if row.frozen else rows for rows in (dataset.train, dataset.test))

    def fit() -> agt.Fitted:
        return agt.fit(
            train.features.astype(np.float64), train.labels, network=layers, certificate="box", ks=KS, ids=train.ids,
            compute={"threads": 1}, **row.training,
        )  # fmt: skip

    boxed, model = seconds(fit)
    answers = model.certify(test.features.astype(np.float64))
    right, distance = answers.labels == test.labels, answers.stable_distance
    shares = [float((distance >= k).mean()) for k in KS[1:]]
    return [
        float(right.mean()),
        *shares,
        float(((distance >= 1) & right).mean()),
        boxed,
        plain_seconds(layers, train, row.training),
    ]


def line(name: str, steps: str, cells: list[str]) -> str:
    return f"| {name} | {steps} | " + " | ".join(cells) + " |"


def cell(values: np.ndarray, decimals: int = 3) -> str:
    """The median, and the range where there is one."""
    ends = (f"{value:.{decimals}f}" for value in np.quantile(values, (0, 0.5, 1)))
    low, middle, high = (end.removeprefix("0") if decimals == 3 else end for end in ends)
    return middle if low == high else f"{middle} ({low} to {high})"


def report(name: str, path: Path, seeds: int) -> str:
    """A row of the table."""
    if name == "majority":
        dataset = load(path, {})
        share = np.array([(dataset.test.labels == np.bincount(dataset.train.labels).argmax()).mean()])
        return line(name, "0", [cell(share), *["1"] * 3, cell(share), "", "", ""])
    row = ROWS[name]
    found = np.array([measured(row, path, seed) for seed in range(seeds if name != "linear" else 1)])
    shares, boxed, plain = found[:, :5], found[:, 5], found[:, 6]
    times = [cell(boxed, 1), cell(plain, 2), f"{np.median(boxed / plain):.0f}x"]
    return line(name, str(row.training["epochs"]), [*(cell(column) for column in shares.T), *times])


def main() -> None:
    """Print the table."""
    names = ("majority", *ROWS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", type=Path, required=True, help="pneumoniamnist in MedMNIST's format")
    parser.add_argument("--seeds", type=int, default=3, help="initialisations")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    given = parser.parse_args()
    torch.set_num_threads(1)
    titles = ["accuracy", "certified at 1", "at 2", "at 5", "certified and right at 1", "s with boxes", "s plain", "ratio"]
    print(line("row", "steps", titles), line("---", "---", ["---"] * 8), sep="\n", flush=True)
    for name in given.only:
        print(report(name, given.path, given.seeds), flush=True)


if __name__ == "__main__":
    main()
