"""Validation at the border: each mistake is named by its key, and nothing unsound gets past."""

import pytest

from agt.errors import ConfigError
from agt.settings import ComputeConfig, KGridConfig, RelationConfig, TrainingConfig, build, default_n_max, validate
from agt.targets import trusting

GOOD = {"loss": "cross_entropy", "epochs": 1, "lr": 0.1, "clip": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0}, "training.clip"),
        ({"clip": -1.0}, "training.clip"),
        ({"clip": float("nan")}, "training.clip"),
        ({"clip": float("inf")}, "training.clip"),
        ({"clip": None}, "training.clip"),
        ({"lr": 0}, "training.lr"),
        ({"lr": float("inf")}, "training.lr"),
        ({"epochs": 0}, "training.epochs"),
        ({"decay": -0.1}, "training.decay"),
        ({"momentum": 1.0}, "training.momentum"),
        ({"momentum": -0.1}, "training.momentum"),
        ({"momentum": 0.5, "dampening": 1.5}, "training.dampening"),
        ({"dampening": 0.5}, "dampening needs momentum"),
        ({"nesterov": True}, "nesterov needs momentum"),
        ({"nesterov": True, "momentum": 0.5, "dampening": 0.1}, "nesterov needs momentum"),
        ({"weight_decay": -1}, "training.weight_decay"),
        ({"weight_decay": 11}, "exceeds 1"),
        ({"weight_decay": 2, "lr_min": 0.6}, "exceeds 1"),  # the schedule's floor counts too
        ({"momentum": 0.5, "decay_mode": "coupled"}, "not sound"),
        ({"batch": {"count": 0}}, "training.batch.count"),
        ({"batch": {"normalizer": 0}}, "training.batch.normalizer"),
        ({"batch": {"n_max": 0}}, "training.batch.n_max"),
        ({"batch": {"normaliser": 5}}, "did you mean 'normalizer'"),
        ({"momentun": 0.5}, "did you mean 'momentum'"),
        ({"loss": "cros_entropy"}, "did you mean 'cross_entropy'"),
        ({"product": "rumpf"}, "did you mean 'rump'"),
        ({"dtype": "bfloat16"}, "training.dtype"),
        ({"lr": 1e300}, "training.lr"),
        ({"lr_min": 1e300}, "training.lr_min"),
        ({"clip": 1e-300}, "training.clip"),
        ({"clip": 1e300}, "training.clip"),
        ({"epochs": 10**12}, "training.epochs"),
        ({"batch": {"count": 10**12}}, "training.batch.count"),
        ({"batch": {"normalizer": 1e308}}, "training.batch.normalizer"),
        ({"batch": {"normalizer": 1e-300}}, "training.batch.normalizer"),
        ({"batch": {"n_max": 2**31}}, "training.batch.n_max"),
        *(({key: True}, f"^training.{key}: expected a number, got true$") for key in ("lr", "epochs", "clip", "seed")),
        ({"batch": {"count": True}}, "^training.batch.count: expected a number"),
    ],
    ids=str,
)
def test_a_bad_training_setting_is_named(change: dict, message: str) -> None:
    assert validate(TrainingConfig, {**GOOD, "momentum": 0.9, "nesterov": True, "weight_decay": 10}, "training").nesterov
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        validate(TrainingConfig, {**GOOD, **change}, "training")


@pytest.mark.parametrize("missing", ["loss", "epochs", "lr", "clip"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"training.{missing}: a value is required"):
        validate(TrainingConfig, {k: v for k, v in GOOD.items() if k != missing}, "training")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max": -1}, "kgrid.max"),
        ({"values": [1, -2]}, "kgrid.values"),
        ({"values": [1, 2, 1]}, "repeats 1"),
        ({"values": []}, "values is empty"),
        ({}, "either max"),
        ({"max": 3, "values": [1]}, "either max"),
        ({"max": 2.5}, "kgrid.max"),
        ({"max": 10**12}, "max=1000000000000 asks for every integer up to it.*65537 values at most"),
        ({"max": 2**16 + 1}, "65537 values at most"),
        ({"values": [1, 2**30 + 1]}, "kgrid.values"),
        ({"values": list(range(2**16 + 2))}, "values lists 65538"),
    ],
)
def test_a_bad_grid_is_named(settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(KGridConfig, settings, "kgrid")


def test_grids() -> None:
    assert KGridConfig(max=2).ks == (0, 1, 2)
    assert KGridConfig(values=(7, 0, 3)).ks == (0, 3, 7)
    assert not KGridConfig(values=(7, 0, 3)).dense
    assert KGridConfig(values=(1, 0)).dense
    assert not KGridConfig(values=(1, 2)).dense
    assert KGridConfig(max=0).dense
    assert len(KGridConfig(max=2**16).ks) == 2**16 + 1
    assert KGridConfig(values=tuple(range(2**16 + 1))).dense


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (RelationConfig, {"name": "add_remov"}, "did you mean 'add_remove'"),
        (RelationConfig, {"name": "remove", "unit_rows": 0}, "relation.unit_rows"),
        (RelationConfig, {"name": "remove", "unit_rows": 2**34}, "relation.unit_rows"),
        (ComputeConfig, {"fragment": 0}, r"^compute\.fragment: Input should be greater than or equal to 1, got 0$"),
        (ComputeConfig, {"device": "gpu"}, "device"),
        (ComputeConfig, {"threads": 0}, "threads"),
        (ComputeConfig, {"memory_mb": 1}, "memory_mb"),
    ],
)
def test_other_settings(cls: type, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(cls, settings, cls.__name__.removesuffix("Config").lower())


@pytest.mark.parametrize("node", [None, 3, "text", [1]])
def test_what_is_no_mapping_is_refused(node: object) -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        validate(KGridConfig, node, "kgrid")
    with pytest.raises(ConfigError, match="_target_"):
        build(node, "model")


def test_build_names_what_it_cannot_import() -> None:
    with trusting(["agt_cli.nothing.Here", "subprocess.getoutput", "agt.settings.KGridConfig"]):
        with pytest.raises(ConfigError, match=r"model._target_: cannot import 'agt_cli.nothing.Here'"):
            build({"_target_": "agt_cli.nothing.Here"}, "model")
        with pytest.raises(ConfigError, match=r"dataset._target_: 'subprocess.getoutput' is no dataclass"):
            build({"_target_": "subprocess.getoutput", "cmd": "exit 1"}, "dataset")  # called, it would run a shell
        assert build({"_target_": "agt.settings.KGridConfig", "max": 2}, "kgrid").ks == (0, 1, 2)


@pytest.mark.parametrize("normalizer", [0.5, 1.0, 24.0, 1e6])
def test_the_default_cap_leaves_room(normalizer: float) -> None:
    assert default_n_max(normalizer) >= 1.1 * normalizer


def test_a_number_of_hundreds_of_digits_does_not_fill_the_message() -> None:
    with pytest.raises(ConfigError) as error:
        validate(RelationConfig, {"name": "add_remove", "unit_rows": 10**400}, "relation")
    assert len(str(error.value)) < 300
