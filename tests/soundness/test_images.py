"""Heads that pool images first: the same head on images pooled beforehand, what does not fit, and whole commands."""

import json
from pathlib import Path

import numba
import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import KERNELS, make_recipe, make_records, make_training
from torch import nn

from agt.bounds.rules import rules_for
from agt.certificates.box import certify
from agt.errors import ConfigError
from agt.training.batches import Recipe
from agt.training.loop import train
from agt_cli.cli import main

numba.set_num_threads(1)  # arrays are tiny
SIDE = 5
rng = np.random.default_rng(0)
LABELS = np.arange(11) % 2
IMAGES = rng.normal(size=(11, 2, SIDE, SIDE)) + (LABELS * 2 - 1)[:, None, None, None]


def head(dtype: str, pooled: bool = True) -> nn.Sequential:
    """Two poolings that overlap and pad, then rows: [2, 5, 5] -> [2, 3, 3] -> [2, 2, 2] -> 8."""
    torch.manual_seed(0)
    front = [nn.AvgPool2d(3, stride=2, padding=1), nn.AvgPool2d(2, stride=1, count_include_pad=False)] if pooled else []
    return nn.Sequential(*front, nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1)).to(getattr(torch, dtype))


def recipe(dtype: str = "float64", kernel: str = "cpu") -> Recipe:
    batch = {"count": 2, "normalizer": 5.0}
    training = make_training(loss="binary_cross_entropy", dtype=dtype, lr=0.3, epochs=2, batch=batch)
    return make_recipe(training, ks=(0, 1, 2), kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pooling_in_the_head_and_beforehand_give_the_same_boxes(dtype: str, kernel: str) -> None:
    """Pooling does not depend on k or on any parameter: the first linear layer takes the same points, bit for bit."""
    model = head(dtype)
    x = torch.from_numpy(IMAGES.astype(dtype))
    for rule in rules_for(model)[:2]:
        x = rule.nominal(x, {})
    inside = train(model, recipe(dtype, kernel), make_records(IMAGES.astype(dtype), LABELS))
    before = train(head(dtype, pooled=False), recipe(dtype, kernel), make_records(x.numpy(), LABELS))
    for one, two in ((inside.nominal, before.nominal), (inside.lower, before.lower), (inside.upper, before.upper)):
        assert all(torch.equal(a, b) for a, b in zip(one.values(), two.values(), strict=True))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (SIDE * SIDE * 2,),
            "takes images with room for a window of 3 x 3, and a record comes as .50,.",
        ),
        ((2, 9, 9), "model: a record has 32 features and the model takes 8"),
    ],
)
def test_records_that_do_not_fit_the_head_are_refused_before_the_first_step(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(head("float64"), recipe(), make_records(np.zeros((4, *shape)), [0, 1, 0, 1]))


def test_images_that_nothing_flattens_are_refused() -> None:
    rows = nn.Sequential(nn.Linear(SIDE, 1)).double()
    with pytest.raises(ConfigError, match=r"has 50 features and the model takes 5, in a row: put nn.Flatten\(\) in front"):
        train(rows, recipe(), make_records(IMAGES, LABELS))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(50, 1)).double()
    trained = train(flat, recipe(), make_records(IMAGES, LABELS))
    with pytest.raises(ConfigError, match="a query has 8 features and the model takes 50"):
        certify(flat, recipe(), trained, np.zeros((1, 2, 2, 2)))


def large(width: int) -> nn.Sequential:
    """For images of 28 x 28."""
    return nn.Sequential(nn.AvgPool2d(7), nn.Conv2d(1, width, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9 * width, 2))


def test_from_the_command_line(tmp_path: Path) -> None:
    """A network of one's own that pools and convolves: trained, read back and certified by the commands."""
    arrays = {}
    for split, n in (("train", 60), ("val", 4), ("test", 20)):
        labels = np.arange(n) % 2
        arrays[f"{split}_labels"] = labels[:, None].astype(np.uint8)
        arrays[f"{split}_images"] = (rng.integers(0, 90, (n, 28, 28)) + 160 * labels[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "images.npz", **arrays)
    data = ("dataset=medmnist", "dataset.name=breastmnist", f"dataset.path={tmp_path / 'images.npz'}")
    model = ("model=custom", f"model._target_={__name__}.large", "+model.width=4", "training=generic", "training.lr=10")
    common = ("compute.kernel=reference", f"output_dir={tmp_path}", "-q", "--json")
    folder = tmp_path / "run"
    settings = ("dataset.declared_size=60", "training.clip=0.02", "kgrid.max=2", f"hydra.run.dir={folder}")
    assert main(["train", *data, *model, *settings, *common]) == 0
    assert json.loads((folder / "metrics.json").read_text())["test_accuracy"] == 1
    assert main(["certify", f"run={folder}", f"hydra.run.dir={tmp_path / 'certified'}", *common]) == 0
    table = pd.read_csv(tmp_path / "certified" / "tables" / "certified.csv", index_col="k")
    assert table.index.tolist() == [0, 1, 2]
    assert table["certified_fraction"][1] > 0.5
