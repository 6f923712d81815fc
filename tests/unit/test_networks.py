"""A network's missing settings are named all at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from records import reseal
from torch import nn

import agt
from agt.api import DESCRIPTION
from agt.errors import ConfigError
from agt.facts import Fact, Standing, declared, not_held
from agt.models import description
from agt.models.heads import CustomNetwork, HeadConfig, describe_layers
from agt.models.kinds import default_certificate
from agt.settings import TrainingConfig
from agt_cli.networks import (
    NETWORK_CERTIFICATE,
    REQUIRED_TRAINING_SETTINGS,
    check_code_as_option,
    complete_line,
    missing_settings,
)
from agt_cli.own_network import OwnNetwork, is_code
from agt_cli.process import recorded_command_line, typed_words

HEAD = "agt.models.heads.HeadConfig"
HELD_CHOICES = declared("settings_chosen_on_public", setting="s")
UNDECLARED_CHOICES = not_held("settings_undeclared", setting="s")
RECIPE = {"lr": "recipe", "epochs": "recipe", "clip": 1.0, "batch": {"count": "recipe"}}


def words(model: dict[str, Any], certificate: str = "box", **training: Any) -> list[str]:
    return missing_settings(
        {
            "model": model,
            "certificate": {"name": certificate},
            "training": {**RECIPE, **training},
        }
    )


ALL = ["training.epochs=4", "training.lr=1", "training.clip_elementwise=0.1"]


@pytest.mark.parametrize("model", [{"_target_": HEAD, "hidden": [64]}, {"_target_": "net.make"}])
def test_everything_that_a_network_needs_is_named(model: dict[str, Any]) -> None:
    assert words(model, "stability") == ["certificate=box", "training=generic", *ALL]
    assert words(model) == ["training=generic", *ALL]


def test_what_was_given_is_not_named() -> None:
    model = {"_target_": HEAD, "hidden": [64]}
    assert words(model, epochs=4) == ["training=generic", *ALL[1:]]


def test_a_linear_head_and_settings_of_ones_own_need_nothing() -> None:
    assert words({"_target_": HEAD, "hidden": []}) == []
    own = {"lr": 1.0, "epochs": 1, "batch": {"count": 1}}
    assert words({"_target_": HEAD, "hidden": [64]}, **own) == []


def test_what_is_named_is_what_the_certificate_of_a_network_asks_for() -> None:
    network = HeadConfig(hidden=(4,))
    certificate = default_certificate(network)
    assert certificate.name == NETWORK_CERTIFICATE
    assert certificate.missing_training_settings(network, {}) == REQUIRED_TRAINING_SETTINGS


NET = """
from torch import nn

net = nn.Sequential(nn.Linear(3, 2))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 2))

    def forward(self, x):
        return self.body(x)

class Wide(nn.Module):
    def __init__(self, width, hidden=4):
        super().__init__()
        self.one = nn.Linear(width, hidden)

    def forward(self, x):
        return self.one(x)

wide = Wide(3)

def build(width=3, *, outputs=2):
    return nn.Sequential(nn.Linear(width, outputs))

def needs(width, hidden, outputs=2):
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with ``net_of_mine.py``, and the same in the folder ``inner``."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/deep_net.py").write_text(NET)
    (tmp_path / "net_of_mine.py").write_text(NET)
    (tmp_path / "one_net.py").write_text("def make(): ...")
    (tmp_path / "broken_net.py").write_text("def make(:")
    (tmp_path / "open_net.py").write_text("from net_of_mine import *")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("typed", "target", "folder"),
    [
        ("net_of_mine.build", "net_of_mine.build", "."),
        ("net_of_mine:build", "net_of_mine.build", "."),
        ("net_of_mine.py:build", "net_of_mine.build", "."),
        ("./net_of_mine.py:build", "net_of_mine.build", "."),
        ("inner/deep_net.py:build", "deep_net.build", "inner"),
        ("one_net", "one_net.make", "."),
        ("one_net.py", "one_net.make", "."),
        ("net_of_mine", "net_of_mine.FUNCTION", "."),
        ("net_of_mine.biuld", "net_of_mine.build", "."),
        ("net_of_mine.net", "net_of_mine.make_net", "."),
        ("net_of_mine.Net", "net_of_mine.Net", "."),
        ("net_of_mine.wide", "net_of_mine.make_net", "."),
        ("nowhere.make", "nowhere.make", ""),
    ],
)
def test_the_name_and_the_folder_to_type_follow_from_what_was_typed(
    typed: str, target: str, folder: str
) -> None:
    own = OwnNetwork(typed)
    assert own.target == target
    assert own.search_folder == folder


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("nowhere.make", "There is no module nowhere"),
        ("net_of_mine.build", "PYTHONPATH"),
        ("inner/deep_net.py:build", "the folder inner"),
        ("net_of_mine.py:build", "a point between"),
        ("net_of_mine", "functions: Net, Wide, build, needs"),
        ("net_of_mine.biuld", "did you mean 'build'"),
        ("net_of_mine.net", "def make_net(): return nn.Sequential(nn.Linear(3, 2))"),
        ("net_of_mine.wide", "def make_net(): return Wide(3)"),
        ("net_of_mine.Wide", "Wide() needs a value for width"),
        ("net_of_mine.needs", "width and hidden"),
        ("broken_net.make", "broken_net.py, line 1"),
        ("net-of-mine.make", "rename the file"),
    ],
)
def test_what_is_wrong_with_the_function_of_a_network_is_said_without_importing_it(
    typed: str, named: str
) -> None:
    assert named in ". ".join(OwnNetwork(typed).problems())


def test_pythonpath_that_was_typed_before_the_command_is_typed_again(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(own_folder)
    network = OwnNetwork("net_of_mine.build")
    line = complete_line(["train"], [], network)
    assert line.startswith("agt train ")
    monkeypatch.setenv("PYTHONPATH", ".")
    assert complete_line(["train"], [], network) == f"PYTHONPATH=. {line}"
    assert complete_line(["train"], [], OwnNetwork("math.pi")).startswith("agt train ")


def test_a_function_that_python_finds_has_no_problem(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(own_folder)
    for typed in ("net_of_mine.build", "open_net.whatever", "torch.nn.Linear", "math.pi"):
        assert [*OwnNetwork(typed).problems()] == []
    for name, arguments in (("needs", ("width", "hidden")), ("Net", ()), ("Wide", ("width",))):
        assert [*OwnNetwork(f"net_of_mine.{name}", frozenset(arguments)).problems()] == []


@pytest.mark.usefixtures("own_folder")
def test_a_file_that_an_installed_module_hides_needs_its_folder() -> None:
    Path("colorsys.py").write_text("def make(): ...")
    assert OwnNetwork("colorsys.make").search_folder == "."


@pytest.mark.usefixtures("own_folder")
def test_the_line_to_type_has_everything_that_was_typed_and_everything_that_is_missing() -> None:
    with (
        recorded_command_line(
            ("agt train", "dataset=mine", "model=net_of_mine.py:needs", "kgrid.max=2")
        ),
        pytest.raises(ConfigError) as error,
    ):
        check_code_as_option("model=net_of_mine.py:needs", typed_words()[1:])
    line = str(error.value).partition("Type: ")[2]
    assert line.startswith(
        "PYTHONPATH=. agt train dataset=mine kgrid.max=2 model=custom "
        "model._target_=net_of_mine.needs certificate=box training=generic training.epochs=4 "
        "training.lr=1 training.clip_elementwise=0.1 +model.width=VALUE +model.hidden=VALUE "
    )


@pytest.mark.usefixtures("own_folder")
def test_the_line_to_type_has_no_certificate_that_a_network_cannot_have() -> None:
    typed = ("dataset=mine", "certificate=votes", "model=net_of_mine.py:build")
    with pytest.raises(ConfigError) as error:
        check_code_as_option(typed[-1], typed)
    line = str(error.value).partition("Type: ")[2]
    assert " certificate=box " in line
    assert "votes" not in line


@pytest.mark.parametrize("value", ["mlp", "my_linear", "small-cnn", "3", "0.5", "[4]"])
def test_names_of_models_are_not_taken_for_code(value: str) -> None:
    assert not is_code(value)


CROSS_ENTROPY = TrainingConfig("cross_entropy", 3, 0.5, 0.5)


@pytest.mark.parametrize(
    ("layers", "shape", "named"),
    [
        (
            (nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)),
            (4,),
            r"Layer 0 takes 5 inputs, but gets 4 features .*write nn\.Linear\(4, 8\)",
        ),
        (
            (nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 2)),
            (4,),
            r"Layer 2 takes 9 inputs, but gets 8 numbers: write nn\.Linear\(8, 2\)",
        ),
        (
            (nn.Flatten(), nn.Linear(8, 2)),
            (1, 3, 3),
            r"Layer 1 takes 8 inputs, but gets 9 features .*write nn\.Linear\(9, 2\)",
        ),
        (
            (nn.Linear(9, 2),),
            (1, 3, 3),
            r"Layer 0 takes 9 inputs, .*write nn\.Flatten\(\), nn\.Linear\(9, 2\)",
        ),
        (
            (nn.Conv2d(3, 2, 2), nn.Flatten(), nn.Linear(8, 2)),
            (1, 3, 3),
            r"Layer 0 takes images of 3 channels, .*write nn\.Conv2d\(1, 2, \(2, 2\)\)",
        ),
        (
            (nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)),
            (9,),
            r"Layer 0 takes images .*shape \(9,\): put nn\.Flatten\(\), nn\.Unflatten\(1, \(CHANN",
        ),
        (
            (nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2)),
            (3, 3),
            r"Layer 0 takes images .*put nn\.Flatten\(\), nn\.Unflatten\(1, \(1, 3, 3\)\) before",
        ),
        (
            (nn.Linear(3, 2),),
            (3, 3),
            r"Layer 0 takes 3 inputs, .*write nn\.Flatten\(\), nn\.Linear\(9, 2\)",
        ),
        (
            (nn.Conv2d(1, 2, 5), nn.Flatten(), nn.Linear(8, 2)),
            (1, 3, 3),
            r"Layer 0 \(Conv2d.*\) does not take values of shape \(1, 3, 3\) \(.*[Kk]ernel",
        ),
    ],
)
def test_the_layer_that_does_not_fit_is_named_with_what_to_write(
    layers: tuple[nn.Module, ...], shape: tuple[int, ...], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        CustomNetwork.from_network(nn.Sequential(*layers)).build(shape, 2, CROSS_ENTROPY)


def test_all_that_keeps_a_network_from_being_trained_is_named_at_once() -> None:
    layers = (nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1), nn.Softmax(1))
    made = CustomNetwork(lambda: nn.Sequential(*layers), "the function")
    with pytest.raises(ConfigError) as error:
        made.build((4,), 2, CROSS_ENTROPY)
    for named in (
        "layer 1 (BatchNorm1d)",
        "layer 4 (Softmax)",
        "nn.Linear(4, 8)",
        "nn.Linear(8, 2)",
    ):
        assert named in str(error.value)


def test_a_layer_that_is_used_twice_is_refused_as_shared_and_not_as_a_misfit() -> None:
    layer = nn.Linear(2, 2)
    made = CustomNetwork(lambda: nn.Sequential(layer, nn.ReLU(), layer), "the function")
    with pytest.raises(ConfigError, match="two layers share a parameter"):
        made.build((2,), 2, CROSS_ENTROPY)


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize(
    ("given", "unknown"),
    [
        ({"width": 3}, []),
        ({"outputs": 3}, []),
        ({"widht": 3, "width": 3}, ["widht"]),
        ({"hidden": [64], "activation": "relu"}, ["activation", "hidden"]),
    ],
)
def test_arguments_that_the_function_does_not_take_are_found_in_its_text(
    given: dict[str, object], unknown: list[str]
) -> None:
    own = OwnNetwork.of_model({"_target_": "net_of_mine.build", **given})
    assert own.unknown_arguments == unknown
    assert any(name in sentence for sentence in own.problems() for name in unknown) == bool(unknown)


@pytest.mark.usefixtures("own_folder")
def test_the_line_to_type_leaves_out_what_the_function_does_not_take() -> None:
    own = OwnNetwork("net_of_mine.build", frozenset({"widht"}))
    line = complete_line(["train", "+model.widht=3", "training.clip=2"], [], own)
    assert "widht" not in line
    assert "training.clip=2" in line


def test_a_setting_that_was_typed_keeps_its_value_in_the_line_to_type() -> None:
    typed = ["train", "training.clip_elementwise=0.2"]
    line = complete_line(typed, ["training.epochs=4", "training.clip_elementwise=0.1"], None)
    assert "training.clip_elementwise=0.2" in line
    assert "training.epochs=4" in line


@pytest.mark.parametrize("choices", [HELD_CHOICES, UNDECLARED_CHOICES])
@pytest.mark.parametrize("public_start", [True, False])
def test_the_start_of_a_network_given_is_declared_by_its_own_setting(
    choices: Fact, public_start: bool
) -> None:
    """In Python: that settings were chosen on public data says nothing about it."""
    given = CustomNetwork.from_network(nn.Sequential(nn.Linear(3, 2)), public_start)
    (fact,) = given.facts(choices)
    assert (fact.standing is Standing.DECLARED) == public_start
    assert fact.values["setting"] == "declared.network=True"


@pytest.mark.parametrize("choices", [HELD_CHOICES, UNDECLARED_CHOICES])
def test_the_start_of_a_network_of_a_command_is_declared_with_its_settings(choices: Fact) -> None:
    (fact,) = CustomNetwork(lambda: nn.Sequential(nn.Linear(3, 2)), "f").facts(choices)
    assert (fact.standing is Standing.DECLARED) == (choices is HELD_CHOICES)
    assert fact.values["setting"] == "training.chosen_on=public"


def test_a_model_that_does_not_say_who_declared_its_start_has_none_declared() -> None:
    """As earlier versions saved it."""
    layers = describe_layers(nn.Sequential(nn.Linear(3, 2)))
    for node, code in (
        ({"layers": layers}, "initial_parameters_undeclared"),
        ({"layers": layers, "public_start": True}, "initial_parameters_declared"),
    ):
        (fact,) = description._read_head(node).facts(HELD_CHOICES)
        assert fact.code == code


def test_a_model_of_an_earlier_version_with_its_own_network_is_not_released(
    tmp_path: Path,
) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    said = agt.Declared(classes=[0, 1], size=60, features=True, settings=True, network=True)
    steps = {"epochs": 4, "lr": 2.0, "clip": 0.06, "ks": 0}
    model = agt.fit(
        x, (x[:, 0] > 0) * 1, network=nn.Sequential(nn.Linear(3, 2)), declared=said, **steps
    )
    model.save(tmp_path / "model")
    path = tmp_path / "model" / DESCRIPTION
    node = json.loads(path.read_text())
    del node["head"]["public_start"]
    path.write_text(json.dumps(node))
    reseal(tmp_path / "model")
    model.release(x[:1], agt.RandomizedResponse(eps=1.0))
    with pytest.raises(ConfigError, match=r"declared\.network=True"):
        agt.load(tmp_path / "model").release(x[:1], agt.RandomizedResponse(eps=1.0))
