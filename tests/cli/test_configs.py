"""Every configuration file composes and validates; every dataset has training settings of its name."""

import re
from dataclasses import asdict
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from agt.settings import validate
from agt_cli import usage
from agt_cli.runs.prepare import PARTS, RunSettings, settings_of

REQUIRED = {
    "table": ("dataset.path=x.csv", "dataset.label=y", "+dataset.numeric={a: [0, 1]}"),
    "embeddings": ("dataset.path=x.npz",),
    "medmnist": ("dataset.name=pathmnist",),
}


def composed(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(usage.config_dir()), version_base="1.3"):
        config = compose("train", list(overrides))
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def settings(*overrides: str) -> RunSettings:
    return settings_of(composed(*overrides))


@pytest.mark.parametrize("group", ["model", "relation", "kgrid", "training", "experiment"])
def test_every_option_of_a_group_validates(group: str) -> None:
    for option in usage.options(group):
        dataset = option if group == "training" and option in usage.options("dataset") else "blobs"
        chosen = () if group == "experiment" else (f"dataset={dataset}", *REQUIRED.get(dataset, ()))
        own = ("model._target_=torch.nn.Sequential",) if (group, option) == ("model", "custom") else ()
        if option == "recipe":  # for closed forms: what the datasets choose that choose it
            chosen = ("dataset=table", *REQUIRED["table"])
        settings(*chosen, f"{group}={option}", *own)


@pytest.mark.parametrize("command", [name for name, command in usage.COMMANDS.items() if command.recorded])
def test_one_file_names_every_command_s_run_folders(command: str) -> None:
    words = ["prepare=imdb"] if command == "data" else []
    with initialize_config_dir(str(usage.config_dir()), version_base="1.3"):
        hydra = compose(command, ["output_dir=there", *words], return_hydra_config=True).hydra
    moment = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}"
    assert hydra.job.name == command
    if not usage.COMMANDS[command].recorded:
        assert (hydra.run.dir, hydra.sweep.dir) == (".", "."), "looks, and makes no folder"
        return
    assert re.fullmatch(f"there/{command}/{moment}", hydra.run.dir)
    assert re.fullmatch(f"there/{command}/{moment}_sweep", hydra.sweep.dir)


@pytest.mark.parametrize("dataset", list(usage.options("dataset")))
def test_every_dataset_has_training_settings(dataset: str) -> None:
    assert dataset in usage.options("training") or dataset in (
        "table",
        "embeddings",
        "mnist",
        "adult_census",
    )  # these choose the recipe
    settings(f"dataset={dataset}", *REQUIRED.get(dataset, ()))


@pytest.mark.parametrize("group", list(PARTS))
def test_files_write_out_every_key_so_that_each_can_be_overridden(group: str) -> None:
    for option in usage.options(group):
        node = composed(f"{group}={option}")[group]
        known = set(asdict(validate(PARTS[group], node, group))) - {"by_recipe"}  # what is called recipe, listed
        assert set(node) | {"caution"} == known | {"caution"}  # the recipe's own knob


@pytest.mark.parametrize(
    ("experiment", "ks", "last"),
    [("blobs_separable", 200, 199), ("octmnist", 34, 200), ("imdb_minilm", 4, 50)],
)
def test_published_grids(experiment: str, ks: int, last: int) -> None:
    grid = settings(f"experiment={experiment}").kgrid.ks
    assert (len(grid), grid[-1]) == (ks, last)


def test_published_settings() -> None:
    """reproductions.md's table, where a slip would go unnoticed."""
    blobs = settings("experiment=blobs_overlapping").training
    assert (blobs.lr, blobs.decay, blobs.lr_min, blobs.clip, blobs.epochs) == (2.0, 0.6, 1e-3, 0.06, 4)
    imdb = settings("experiment=imdb_minilm")
    assert (imdb.training.lr, imdb.training.decay, imdb.training.clip, imdb.training.epochs) == (1.0, 0.5, 0.04, 3)
    assert (imdb.training.momentum, imdb.training.dampening, imdb.model.hidden) == (0.99, 0.3, (100,))
    oct_mnist = settings("experiment=octmnist")
    assert (oct_mnist.training.lr, oct_mnist.training.clip, oct_mnist.training.momentum) == (0.06, 0.9, 0.95)
    assert oct_mnist.training.nesterov
    assert oct_mnist.model.encoder is not None
