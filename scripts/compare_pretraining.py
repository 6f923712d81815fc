"""What robust public pre-training (``model.encoder.robust``) does to boxes: overlapping blobs, PneumoniaMNIST, digits.

python scripts/compare_pretraining.py pneumoniamnist 0,0.1,0.3 0,1,2: the case, weights and seeds; data in ../shared/data.
"""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from agt.certificates.box import certify
from agt.data.blobs import Blobs
from agt.data.dataset import Dataset, Records, records
from agt.data.images import MedMnist
from agt.models.box import start_from
from agt.settings import KGridConfig, RelationConfig, TrainingConfig
from agt.training.batches import Recipe
from agt.training.loop import train
from experiments.encoder import EncoderConfig, gradient_width

DATA = Path("../shared/data")


def mlp(inputs: int, hidden: int, seed: int) -> nn.Sequential:
    """One hidden layer, one output."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def blobs(robust: float, seed: int) -> tuple[nn.Sequential, Dataset]:
    """128 hidden units trained on a draw of 500 points of its own seed, for 20 epochs of Adam."""
    dataset, head = Blobs(center=1.0, std=0.75).load(), mlp(6, 128, seed)
    public = Blobs(center=1.0, std=0.75, n_train=500, seed=1).load().train
    optimizer, rng = torch.optim.Adam(head.parameters(), lr=3e-3), np.random.default_rng(seed)
    for rows in (rows for _ in range(20) for rows in np.split(rng.permutation(500), 5)):
        x, y = torch.from_numpy(public.features[rows]).float(), torch.from_numpy(public.labels[rows])
        loss = nn.functional.binary_cross_entropy_with_logits(head(x)[:, 0], y.float())
        loss = loss + robust * gradient_width(head, x, y, radius=0.01) if robust else loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head, dataset


def pneumoniamnist() -> Dataset:
    """The file's training images; those of its validation split are public."""
    dataset = MedMnist(name="pneumoniamnist", path=DATA / "pneumoniamnist.npz", positive=(1,), declared_size=3882).load()
    with np.load(DATA / "pneumoniamnist.npz") as file:
        images, labels = file["val_images"], file["val_labels"][:, 0].astype(np.int64)
    features = (images[:, None] / 255 - 0.5).astype(np.float32)
    ids = np.array([f"val{i}" for i in range(len(labels))])
    return replace(dataset, pretrain=records(features, labels, ids, public=np.ones(len(labels), bool)))


def digits() -> Dataset:
    """3 against 8; the base model has seen other threes against fives, and no eight."""
    with np.load(DATA / "mnist_t10k.npz") as file:
        images, labels = (file["images"][:, None] / 255 - 0.5).astype(np.float32), file["labels"]
    three, five, eight = (np.flatnonzero(labels == digit) for digit in (3, 5, 8))
    names = np.arange(len(labels)).astype(str)

    def part(low: np.ndarray, high: np.ndarray, public: bool) -> Records:
        rows, y = np.concatenate([low, high]), np.repeat([0, 1], [len(low), len(high)])
        return records(images[rows], y, names[rows], public=np.full(len(rows), public))

    base = Blobs(center=1.0, std=0.75, n_train=10).load()
    return replace(
        base,
        name="digits",
        train=part(three[250:630], eight[240:], False),
        test=part(three[:250], eight[:240], False),
        pretrain=part(three[630:], five, True),
        declared_size=1114,
    )


def encoded(load: Callable[[], Dataset], epochs: int, robust: float, seed: int) -> tuple[nn.Sequential, Dataset]:
    """Convolutions to 4 and 8 channels, frozen, and 32 hidden units."""
    dataset = load()
    with TemporaryDirectory() as cache:
        config = EncoderConfig((4, 8), (32,), epochs=epochs, robust=robust, seed=seed, cache_dir=Path(cache))
        encoder = config.load(dataset)
    head = mlp(encoder.model.features, 32, 0)
    assert start_from(head, encoder.head() or {})
    return head, encoder.encode(dataset)


class Case(NamedTuple):
    """How a base model is made, given the weight and the seed, and how it is fine-tuned: 4 full-batch steps."""

    start: Callable[[float, int], tuple[nn.Sequential, Dataset]]
    lr: float
    clip: float
    decay: float
    ks: tuple[int, ...]


CASES = {
    "blobs": Case(blobs, 2.0, 0.06, 0.6, (1, 10, 50, 100, 200)),
    "pneumoniamnist": Case(partial(encoded, pneumoniamnist, 60), 0.01, 0.05, 0.0, (1, 5, 10, 20, 50)),
    "digits": Case(partial(encoded, digits, 20), 0.03, 0.05, 0.0, (1, 5, 10, 20, 50)),
}


def compare(name: str, robust: float, seed: int) -> dict[str, object]:
    """What comes of one weight and seed: accuracies before and after, and by k the mean width and the share certified."""
    case = CASES[name]
    head, dataset = case.start(robust, seed)
    x, labels = torch.from_numpy(dataset.test.features).float(), dataset.test.labels
    training = TrainingConfig("binary_cross_entropy", 4, case.lr, case.clip, case.decay, dtype="float32")
    relation, kgrid = RelationConfig(name="add_remove"), KGridConfig(values=case.ks)
    recipe = Recipe(2, training, relation, kgrid, declared_size=dataset.declared_size)
    with torch.no_grad():
        before = float(((head(x)[:, 0] > 0).numpy() == labels).mean())
    box = train(head, recipe, dataset.train)
    found = certify(head, recipe, box, dataset.test.features)
    widths = torch.cat([(box.upper[name] - box.lower[name]).flatten(1) for name in box.nominal], dim=1).mean(dim=1)
    return {
        "case": name,
        "robust": robust,
        "seed": seed,
        "before": before,
        "accuracy": float((found.prediction == labels).mean()),
        "width": widths.tolist(),
        "certified": found.certified.mean(axis=1).tolist(),
    }


def main(name: str, weights: str, seeds: str) -> None:
    """A line of JSON for each."""
    for weight, seed in itertools.product(map(float, weights.split(",")), map(int, seeds.split(","))):
        print(json.dumps(compare(name, weight, seed)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
