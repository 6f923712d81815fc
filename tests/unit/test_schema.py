"""Validation at the border: each mistake is named by its key, and nothing unsound gets past."""

import pytest

from agt.errors import ConfigError
from agt.settings import KGridConfig, RelationConfig, TrainingConfig, build, default_n_max, validate
from agt.targets import trusting

GOOD = {"loss": "cross_entropy", "epochs": 1, "lr": 0.1, "clip": 0.1}


@pytest.mark.parametrize("missing", ["loss", "epochs", "lr", "clip"])
def test_what_has_no_default_is_required(missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"training\.{missing}:"):
        validate(TrainingConfig, {k: v for k, v in GOOD.items() if k != missing}, "training")


def test_a_grid_of_too_many_values_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kgrid: .*65538.*65537"):
        validate(KGridConfig, {"values": list(range(2**16 + 2))}, "kgrid")


def test_grids() -> None:
    assert KGridConfig(max=2).ks == (0, 1, 2)
    assert KGridConfig(values=(7, 0, 3)).ks == (0, 3, 7)
    assert not KGridConfig(values=(7, 0, 3)).dense
    assert KGridConfig(values=(1, 0)).dense
    assert not KGridConfig(values=(1, 2)).dense
    assert KGridConfig(max=0).dense
    assert len(KGridConfig(max=2**16).ks) == 2**16 + 1
    assert KGridConfig(values=tuple(range(2**16 + 1))).dense


@pytest.mark.parametrize("node", [None, 3, "text", [1]])
def test_what_is_no_mapping_is_refused(node: object) -> None:
    with pytest.raises(ConfigError, match=r"^kgrid: "):
        validate(KGridConfig, node, "kgrid")
    with pytest.raises(ConfigError, match="_target_"):
        build(node, "model")


def test_build_names_what_it_cannot_import() -> None:
    with trusting(["agt_cli.nothing.Here", "subprocess.getoutput", "agt.settings.KGridConfig"]):
        with pytest.raises(ConfigError, match=r"model\._target_: .*'agt_cli\.nothing\.Here'"):
            build({"_target_": "agt_cli.nothing.Here"}, "model")
        with pytest.raises(ConfigError, match=r"dataset\._target_: .*'subprocess\.getoutput'"):
            # called, it would run a shell
            build({"_target_": "subprocess.getoutput", "cmd": "exit 1"}, "dataset")
        assert build({"_target_": "agt.settings.KGridConfig", "max": 2}, "kgrid").ks == (0, 1, 2)


@pytest.mark.parametrize("normalizer", [0.5, 1.0, 24.0, 1e6])
def test_the_default_cap_leaves_room(normalizer: float) -> None:
    assert default_n_max(normalizer) >= 1.1 * normalizer


def test_a_number_of_hundreds_of_digits_does_not_fill_the_message() -> None:
    with pytest.raises(ConfigError) as error:
        validate(RelationConfig, {"name": "add_remove", "unit_rows": 10**400}, "relation")
    assert len(str(error.value)) < 300
