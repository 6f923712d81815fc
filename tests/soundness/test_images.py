"""Heads that pool images first: every retraining on a tiny dataset, and the same head on images pooled beforehand."""

import json
from itertools import combinations
from pathlib import Path

import numba
import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import KERNELS, make_recipe, make_records, make_training
from torch import nn

from agt.bounds.network import Box
from agt.bounds.rules import rules_for
from agt.certificates.box import Certificates, certify
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.training.batches import Recipe
from agt.training.loop import train
from agt_cli.cli import main

numba.set_num_threads(1)  # arrays are tiny
KS, SIDE = (0, 1, 2), 5
rng = np.random.default_rng(0)
LABELS = np.arange(11) % 2
IMAGES = rng.normal(size=(11, 2, SIDE, SIDE)) + (LABELS * 2 - 1)[:, None, None, None]
QUERIES = rng.normal(size=(60, 2, SIDE, SIDE)) + np.linspace(-3, 3, 60)[:, None, None, None]


def head(dtype: str, hidden: bool = True, pooled: bool = True) -> nn.Sequential:
    """Two poolings that overlap and pad, then rows: [2, 5, 5] -> [2, 3, 3] -> [2, 2, 2] -> 8."""
    torch.manual_seed(0)
    front = [nn.AvgPool2d(3, stride=2, padding=1), nn.AvgPool2d(2, stride=1, count_include_pad=False)] if pooled else []
    rows = [nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1)] if hidden else [nn.Linear(8, 1)]
    return nn.Sequential(*front, nn.Flatten(), *rows).to(getattr(torch, dtype))


def recipe(model: nn.Sequential, relation: str = "add_remove", ks: tuple[int, ...] = KS, kernel: str = "cpu") -> Recipe:
    dtype = str(model[-1].weight.dtype).removeprefix("torch.")
    batch = {"count": 2, "normalizer": 5.0}
    training = make_training(loss="binary_cross_entropy", dtype=dtype, lr=0.3, epochs=2, batch=batch)
    return make_recipe(training, relation, ks, kernel=kernel)


def fit(model: nn.Sequential, records: Records, *how: object, **more: object) -> Box:
    return train(model, recipe(model, *how, **more), records)  # type: ignore[arg-type]


def ask(model: nn.Sequential, box: Box, queries: np.ndarray = QUERIES) -> Certificates:
    return certify(model, recipe(model), box, queries)


def edits(records: Records, relation: str) -> list[tuple[int, Records]]:
    """(k, a dataset k records away): all with one or two records gone; where records may come, loud ones as well."""
    everyone = np.arange(len(records))
    found = [(k, records.take(np.delete(everyone, gone))) for k in (1, 2) for gone in combinations(everyone, k)]
    if relation == "add_remove":
        for seed in range(20):
            loud = np.sign(np.random.default_rng(seed).normal(size=(1, 2, SIDE, SIDE))) * 1e3
            fresh = make_records(loud.astype(records.features.dtype), [seed % 2], prefix=f"new{seed}-")
            fields = ("features", "labels", "ids", "units", "public")
            found.append((1, Records(*(np.concatenate([getattr(records, f), getattr(fresh, f)]) for f in fields))))
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("relation", ["add_remove", "remove"])
@pytest.mark.parametrize("hidden", [False, True], ids=["linear", "mlp"])
def test_no_retraining_leaves_its_box_or_changes_a_certified_label(hidden: bool, relation: str, dtype: str) -> None:
    records, model = make_records(IMAGES.astype(dtype), LABELS), head(dtype, hidden)
    trained = fit(model, records, relation)
    known = ask(model, trained)
    assert 0.1 < known.certified[1].mean() < 1
    outside = changed = 0
    for k, other in edits(records, relation):
        again = fit(model, other, relation, ks=(0,))
        for name, value in again.nominal.items():
            outside += int((~((trained.lower[name][k] <= value) & (value <= trained.upper[name][k]))).sum())
        changed += int((ask(model, again).prediction != known.prediction)[known.certified[k]].sum())
    assert (outside, changed) == (0, 0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pooling_in_the_head_and_beforehand_give_the_same_boxes(dtype: str, kernel: str) -> None:
    """Pooling does not depend on k or on any parameter: the first linear layer takes the same points, bit for bit."""
    model = head(dtype)
    x = torch.from_numpy(IMAGES.astype(dtype))
    for rule in rules_for(model)[:2]:
        x = rule.nominal(x, {})
    inside = fit(model, make_records(IMAGES.astype(dtype), LABELS), "add_remove", kernel=kernel)
    before = fit(head(dtype, pooled=False), make_records(x.numpy(), LABELS), "add_remove", kernel=kernel)
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
        fit(head("float64"), make_records(np.zeros((4, *shape)), [0, 1, 0, 1]), "remove")


def test_images_that_nothing_flattens_are_refused() -> None:
    rows = nn.Sequential(nn.Linear(SIDE, 1)).double()
    with pytest.raises(ConfigError, match=r"has 50 features and the model takes 5, in a row: put nn.Flatten\(\) in front"):
        fit(rows, make_records(IMAGES, LABELS), "remove")
    flat = nn.Sequential(nn.Flatten(), nn.Linear(50, 1)).double()
    trained = fit(flat, make_records(IMAGES, LABELS), "remove")
    with pytest.raises(ConfigError, match="a query has 8 features and the model takes 50"):
        ask(flat, trained, np.zeros((1, 2, 2, 2)))


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
