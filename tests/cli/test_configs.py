"""Every option of every group composes and validates; every dataset has training settings and
says what its keys are.
"""

from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

import commands
import pytest
import yaml
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from omegaconf import OmegaConf

from agt.data.blobs import Blobs
from agt.errors import ConfigError
from agt.settings import build, validate
from agt.targets import targets_of, trusting
from agt_cli import config_files
from agt_cli.composing import compose_command
from agt_cli.configuration import compose_with_hydra
from agt_cli.runs.prepare import RunSettings, read_settings
from agt_cli.training_checks import PARTS
from cli.conftest import Agt

REQUIRED = {
    "table": ("dataset.path=x.csv", "dataset.label=y", "+dataset.numeric={age: [0, 1]}"),
    "embeddings": ("dataset.path=x.npz",),
    "medmnist": ("dataset.name=pathmnist",),
}
RECIPE = (
    "table",
    "embeddings",
    "mnist",
    "mnist_70k",
    "adult_census",
)  # these choose training=recipe


def settings(*overrides: str) -> RunSettings:
    config = compose_command("train", overrides)
    with trusting(targets_of(config)):
        return read_settings(config)


OWN = {
    ("model", "custom"): ("model._target_=torch.nn.Sequential",),
    ("relation", "flip"): ("certificate=votes",),
    ("relation", "perturb"): ("relation.radius=0.1",),
}


@cache
def dataset(name: str) -> dict[str, Any]:
    node = compose_command("train", [f"dataset={name}", *REQUIRED.get(name, ())])["dataset"]
    assert isinstance(node, dict)
    return node


@pytest.mark.parametrize("group", ["model", "relation", "kgrid", "training", "experiment"])
def test_every_option_of_a_group_validates(group: str) -> None:
    for option in config_files.options_of_group(group):
        name = (
            option
            if group == "training" and option in config_files.options_of_group("dataset")
            else "blobs"
        )
        chosen = () if group == "experiment" else (f"dataset={name}", *REQUIRED.get(name, ()))
        own = OWN.get((group, option), ())
        if option == "recipe":  # for closed forms: what the datasets choose that choose it
            chosen = ("dataset=table", *REQUIRED["table"])
        settings(*chosen, f"{group}={option}", *own)


def test_every_dataset_has_training_settings_and_explains_its_keys() -> None:
    for name in config_files.options_of_group("dataset"):
        assert name in config_files.options_of_group("training") or name in RECIPE
        settings(f"dataset={name}", *REQUIRED.get(name, ()))
        assert set(dataset(name)) - explained(name) - {"_target_", "name"} == set(), name


def explained(name: str) -> set[str]:
    """The keys that an option says something about, or one that it starts from."""
    text = config_files.options_of_group("dataset")[name]
    starts = [
        start
        for start in yaml.safe_load(text).get("defaults", [])
        if isinstance(start, str) and start != "_self_"
    ]
    keys = {
        line.split(":")[0] for line in text.splitlines() if line[:1].isalpha() and " # " in line
    }
    return keys.union(*map(explained, starts))


@pytest.mark.parametrize("group", list(PARTS))
def test_files_write_out_every_key_so_that_each_can_be_overridden(group: str) -> None:
    for option in config_files.options_of_group(group):
        own = OWN.get((group, option), ()) if group == "relation" else ()
        node = compose_command("train", [f"{group}={option}", *own])[group]
        # what is called recipe, listed
        known = set(asdict(validate(PARTS[group], node, group))) - {"by_recipe"}
        assert set(node) | {"caution"} == known | {"caution"}  # the recipe's own knob


@pytest.mark.parametrize("name", ["blobs", "digits", "medmnist", "embeddings", "table"])
def test_general_datasets_show_every_setting(name: str) -> None:
    """Except what loading resolves, what relation=flip sets, formats, which a comment shows, and
    what agt start writes: a key more in this file would be another hash of every table's settings.
    """
    source = build(dataset(name), "dataset")
    hidden = {"settled", "label_free", "formats", "proposed_from_rows"}
    assert {field.name for field in fields(source)} - hidden == set(dataset(name)) - {"_target_"}


def test_an_option_of_a_packed_group_is_the_package_s_and_a_folder_of_the_user_s_adds_to_it(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "dense": "max: 1",
        "mine": "defaults: [sparse, _self_]\nvalues: [2]",
    }.items():
        path = tmp_path / "conf" / "kgrid" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert compose_command("train", ["kgrid=dense"])["kgrid"]["max"] == 200, (
        "a name of ours means ours"
    )
    assert compose_command("train", ["kgrid=mine"])["kgrid"] == {"max": None, "values": [2]}
    assert {"mine", "dense", "published_imdb"} <= set(config_files.options_of_group("kgrid"))


@pytest.mark.parametrize("defaults", ["", "defaults:\n  - override /dataset: digits\n"])
def test_an_experiment_file_without_its_first_line_is_told_to_add_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defaults: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "conf" / "experiment" / "mine.yaml"
    path.parent.mkdir(parents=True)
    body = f"{defaults}training:\n  epochs: 3\n"
    path.write_text(body)
    with pytest.raises(ConfigError, match=r"mine\.yaml: .*'# @package _global_'"):
        compose_with_hydra("train", ["experiment=mine"])
    path.write_text(f"# @package _global_\n{body}")
    assert compose_with_hydra("train", ["experiment=mine"]).training.epochs == 3


def test_entries_of_packed_groups_are_those_that_yaml_reads() -> None:
    for group, entries in config_files.packed_groups().items():
        folders = (
            config_files.config_dir() / "groups",
            config_files.experiments_dir() / "conf" / "groups",
        )
        paths = [path for folder in folders if (path := folder / f"{group}.yaml").exists()]
        whole = {
            name: node for path in paths for name, node in yaml.safe_load(path.read_text()).items()
        }
        if group == "relation":  # whose other entries are the default's by another name
            default = {"defaults": ["add_remove", "_self_"]}
            whole |= {name: default | {"name": name} for name in entries.keys() - whole.keys()}
        assert {name: yaml.safe_load(text) for name, text in entries.items()} == whole
        assert all(
            OmegaConf.create(text) == OmegaConf.create(whole[name])
            for name, text in entries.items()
        )


def test_published_settings() -> None:
    """papers.md's table, where a slip would go unnoticed."""
    for experiment, ks, last in [
        ("blobs_separable", 200, 199),
        ("octmnist", 34, 200),
        ("imdb_minilm", 4, 50),
    ]:
        grid = settings(f"experiment={experiment}").kgrid.ks
        assert (len(grid), grid[-1]) == (ks, last)
    blobs = settings("experiment=blobs_overlapping").training
    assert (blobs.lr, blobs.decay, blobs.lr_min, blobs.clip, blobs.epochs) == (
        2.0,
        0.6,
        1e-3,
        0.06,
        4,
    )
    imdb = settings("experiment=imdb_minilm")
    assert (imdb.training.lr, imdb.training.decay, imdb.training.clip, imdb.training.epochs) == (
        1.0,
        0.5,
        0.04,
        3,
    )
    assert (imdb.training.momentum, imdb.training.dampening, imdb.model.hidden) == (
        0.99,
        0.3,
        (100,),
    )
    oct_mnist = settings("experiment=octmnist")
    assert (oct_mnist.training.lr, oct_mnist.training.clip, oct_mnist.training.momentum) == (
        0.06,
        0.9,
        0.95,
    )
    assert oct_mnist.training.nesterov
    assert oct_mnist.model.encoder is not None
    separable, overlapping = (
        build(dataset(name), "dataset") for name in ("blobs", "blobs_overlapping")
    )
    assert separable == Blobs(center=1.25, std=0.35, n_train=3000, test_fraction=0.25, seed=0)
    assert overlapping == Blobs(center=1.0, std=0.75, n_train=3000, test_fraction=0.25, seed=0)
    images = build(dataset("octmnist"), "dataset")
    assert (images.held_out, images.finetune_classes, images.positive) == ((2,), (2, 3), (0, 1, 2))


def test_what_is_composed_quickly_here_is_what_hydra_composes() -> None:
    """Of the shortcut in tests/commands.py."""
    lines = [
        ("dataset=blobs",),
        ("experiment=digits", "model=linear", "kgrid.max=4"),
        ("~noise", "+a.b=3"),
    ]

    def made() -> list[str]:
        return [
            OmegaConf.to_yaml(compose_with_hydra("train", line)) for line in lines for _ in range(2)
        ]

    quick = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", commands.MERGE)
        patch.setattr(defaults_list, "_create_defaults_list", commands.LIST)
        patch.setattr(ConfigRepository, "load_config", commands.LOAD)
        assert made() == quick


RANGES = "numeric:\n  income: [0, 30.000]\n"
TABLE = "defaults: [table, _self_]\npath: t.csv\nlabel: y\n"
GERMAN = "csv: {separator: ';', decimal: ','}\n"


@pytest.mark.parametrize(
    ("files", "typed"),
    [
        ({"mine/dataset/pay.yaml": TABLE + GERMAN + RANGES}, ["--config-dir", "mine"]),
        ({"mine/dataset/pay.yaml": TABLE + GERMAN + RANGES}, ["hydra.searchpath=[mine]"]),
        ({"mine/dataset/pay.yaml": TABLE + GERMAN + RANGES}, ["hydra.searchpath=[file://mine]"]),
        (
            {
                "conf/dataset/base.yaml": TABLE + RANGES,
                "conf/dataset/pay.yaml": f"defaults: [base, _self_]\n{GERMAN}",
            },
            [],
        ),
        ({"conf/dataset/pay.yaml": TABLE + RANGES}, ["+dataset.csv.decimal=','"]),
        (
            {
                "conf/dataset/pay.yaml": TABLE + GERMAN,
                "conf/experiment/e.yaml": (
                    "# @package _global_\ndataset:\n  numeric:\n    income: [0, 30.000]\n"
                ),
            },
            ["experiment=e"],
        ),
    ],
    ids=["config-dir", "path", "file", "defaults", "typed format", "experiment"],
)
def test_an_unquoted_point_that_may_separate_thousands_is_refused_wherever_it_is(
    agt: Agt, files: dict[str, str], typed: list[str]
) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    Path("t.csv").write_text("income;y\n20.000,5;a\n")
    agt("train", "dataset=pay", *typed, "-q").ended(2, "30.000 is the number 30", "[0, 30000]")
    said = agt("train", "dataset=pay", *typed, "dataset.numeric.income=[0,30000]", "-q")
    assert "30.000 is the number" not in said.err, "the range of the file is not used"
