"""Every conf/dataset file builds a source, and says something about each of its keys."""

from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from agt.data.blobs import Blobs
from agt.data.medmnist import MedMnist
from agt.settings import build, validate
from agt_cli import usage

FILES = usage.options("dataset")
NAMES = sorted(FILES)
REQUIRED = {"path": "some.npz", "name": "pathmnist", "label": "y", "numeric": {"age": [0, 1]}}


@cache
def compose(name: str) -> dict[str, Any]:
    with hydra.initialize_config_dir(str(usage.config_dir()), version_base="1.3"):
        config = hydra.compose("train", [f"dataset={name}", "data_dir=elsewhere"])
    for key, value in REQUIRED.items():
        if OmegaConf.is_missing(config.dataset, key) or config.dataset.get(key) == {}:
            config.dataset[key] = value
    node = OmegaConf.to_container(config.dataset, resolve=True, throw_on_missing=True)
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


@pytest.mark.parametrize("name", NAMES)
def test_builds(name: str) -> None:
    source = build(compose(name), "dataset")
    if hasattr(source, "data_dir"):
        assert source.data_dir == Path("elsewhere")


@pytest.mark.parametrize("name", NAMES)
def test_every_key_has_a_comment_unless_it_speaks_for_itself(name: str) -> None:
    assert set(compose(name)) - explained(name) - {"_target_", "name"} == set()


def explained(name: str) -> set[str]:
    """The keys that a file says something about, or one that it starts from."""
    starts = [
        start for start in OmegaConf.load(FILES[name]).get("defaults", []) if isinstance(start, str) and start != "_self_"
    ]
    lines = FILES[name].read_text().splitlines()
    keys = {line.split(":")[0] for line in lines if line[:1].isalpha() and " # " in line}
    return keys.union(*map(explained, starts))


@pytest.mark.parametrize("name", ["blobs", "digits", "medmnist", "embeddings", "table"])
def test_general_files_show_every_setting_at_its_default_or_the_recipe_s(name: str) -> None:
    node, source = compose(name), build(compose(name), "dataset")
    assert {field.name for field in fields(source)} - {"settled"} == set(node) - {"_target_"}  # a run's record settles
    if name not in ("blobs", "digits"):
        given = {key: node[key] for key in (*REQUIRED, "data_dir", "bins") if node.get(key) is not None}
        assert source == validate(type(source), given, "dataset")


def test_published_settings() -> None:
    separable, overlapping = (build(compose(name), "dataset") for name in ("blobs", "blobs_overlapping"))
    assert separable == Blobs(center=1.25, std=0.35, n_train=3000, test_fraction=0.25, seed=0)
    assert overlapping == Blobs(center=1.0, std=0.75, n_train=3000, test_fraction=0.25, seed=0)
    oct_source = build(compose("octmnist"), "dataset")
    assert isinstance(oct_source, MedMnist)
    assert (oct_source.held_out, oct_source.finetune_classes, oct_source.positive) == ((2,), (2, 3), (0, 1, 2))
