"""Whole commands on a file and on its neighbours: parameters stay in the recorded boxes, certified
labels stay as they are.

The same claims as tests/soundness/adversary.py, through the command line: ids from the content,
files read and scaled.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from .conftest import TINY, Agt

SETTINGS = (
    *(
        "dataset=table",
        "dataset.path=train.csv",
        "dataset.test=test.csv",
        "dataset.label=y",
        "dataset.classes=['0','1']",
    ),
    *(
        "+dataset.numeric={a: [-3, 3], b: [-3, 3]}",
        "dataset.declared_size=60",
        "data_dir=.",
        "kgrid.max=3",
        "-q",
        "--json",
    ),
)
TINY_BOX = (word for word in TINY if not word.startswith(("dataset", "kgrid")))
BOXES = (*TINY_BOX, "training=generic", "certificate=box")
SGD = (
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
    "training.lr=1.0",
    "training.batch.n_max=90",
)
HEADS = ("model=linear", "training=generic", "certificate=stability", *SGD)
RECIPE = ("training.caution=40", "dataset.crosses=16")
VOTES = (*HEADS, "ensemble.members=3", "compute.threads=1")


def points(n: int, seed: int) -> pd.DataFrame:
    """Two overlapping classes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    y = rng.integers(0, 2, n)
    return pd.DataFrame({"a": x[:, 0] + y, "b": x[:, 1] + y, "y": y})


def neighbours(whole: pd.DataFrame, relation: str) -> list[tuple[int, pd.DataFrame]]:
    """(distance, file): rows in another order; the first one gone, doubled or replaced by a far
    one.
    """
    shuffled = whole.sample(frac=1, random_state=0)
    less = whole.iloc[1:]
    far = pd.DataFrame({"a": [-1e6, 1e6], "b": [-1e6, 1e6], "y": [1, 0]})
    if relation == "add_remove":
        edits = [(1, less), (1, pd.concat([whole, whole.iloc[:1]])), (2, pd.concat([far, whole]))]
    else:
        edits = [(1, pd.concat([far.iloc[:1], less])), (2, pd.concat([whole.iloc[2:], far]))]
    return [(0, shuffled), *((k, edited.sample(frac=1, random_state=k)) for k, edited in edits)]


def train(agt: Agt, data: pd.DataFrame, *settings: str) -> tuple[Path, pd.DataFrame]:
    """(run folder, certificates of the test points) of a training on that file."""
    data.to_csv("train.csv", index=False)
    said = agt("train", *SETTINGS, *settings).ended(0)
    folder = Path(said.json["run"])
    said = agt("certify", f"run={folder}", "map_resolution=0", "-q", "--json").ended(0)
    return folder, pd.read_parquet(Path(said.json["run"]) / "certificates.parquet")


@pytest.mark.parametrize(
    ("settings", "relation"),
    [
        pytest.param(BOXES, "add_remove", id="boxes"),
        pytest.param(HEADS, "add_remove", id="head", marks=pytest.mark.sweep),
        pytest.param(RECIPE, "add_remove", id="recipe", marks=pytest.mark.sweep),
        pytest.param(
            VOTES,
            "substitute",
            id="votes of heads where records are replaced",
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_neighbouring_files(agt: Agt, settings: tuple[str, ...], relation: str) -> None:
    points(40, 1).to_csv("test.csv", index=False)
    whole = points(60, 0)
    folder, known = train(agt, whole, *settings, f"relation={relation}")
    for k, edited in neighbours(whole, relation):
        other, there = train(agt, edited, *settings, f"relation={relation}")
        assert known.record_id.tolist() == there.record_id.tolist()
        held = known.stable_distance >= max(k, 1)
        assert (known.prediction == there.prediction)[held].all()
        assert (abs(known.stable_distance - there.stable_distance) <= k).all()
        if settings is BOXES:
            box = load_file(folder / "bounds" / f"k={k:05d}.safetensors")
            point = load_file(other / "model.safetensors")
            assert all(
                (box[f"lower.{n}"] <= v).all() and (v <= box[f"upper.{n}"]).all()
                for n, v in point.items()
            )
        if settings is HEADS:
            moved = (
                load_file(other / "model.safetensors")["weight"]
                - load_file(folder / "model.safetensors")["weight"]
            )
            constants = json.loads((folder / "stability.json").read_text())
            assert np.linalg.norm(moved) <= max(k * constants["per_k"], constants["rounding"])
    assert (known.stable_distance > 0).any()
