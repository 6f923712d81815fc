"""Mistakes that the settings alone tell are answered before anything heavy is loaded."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from agt.certificates.settings import CERTIFICATES
from agt.errors import ConfigError, DataMissing
from agt.mechanism_settings import OWN_MECHANISMS
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import MECHANISMS
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights_mechanism import weights_mechanisms
from agt.models.closed_form import ClosedFormKind
from agt.models.kinds import KINDS
from agt.settings import PublicRows
from agt.targets import OWN_SETTINGS
from agt_cli.checks import CHECKS
from agt_cli.cli import main
from agt_cli.command_settings.predict import check_portable_answers
from agt_cli.command_settings.unlearn import METHOD_CHOICES
from agt_cli.composing import compose_command
from agt_cli.table_columns import check_named_columns
from agt_cli.training_checks import check_tune
from agt_cli.unlearn.methods import METHODS

HEAVY = ("torch", "numba", "numpy", "scipy", "pandas", "sklearn")
LINEAR = ("dataset=digits", "model=linear", "certificate=stability")
A_TABLE = (
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "+dataset.numeric={x:[0,1]}",
)
MISTAKES = (
    ["train", "dataset=table", "dataset.path=t.csv", "dataset.label=z", "+dataset.numeric.x=[0,1]"],
    ["train", "dataset=table", "dataset.path=t.csv", "dataset.label=y", "+dataset.numeric.z=[0,1]"],
    ["train", *A_TABLE, "dataset.unit=z"],
    ["start", "t.csv", "label=z"],
    ["start", "t.csv", "label=y", "id=none", "drop=z"],
    ["data", "inspect", "t.csv", "label=y", "id=z"],
    ["train", "training.lr=-1"],
    ["train", "model.hidden=[0]"],
    ["train", "model=mlp", "training=recipe"],
    ["train", "model=net.py:make"],
    ["train", "network=net.py:make"],
    ["train", "model=custom", "model._target_=net"],
    ["train", "model=custom", "model._target_=net.py:make"],
    ["train", "model=custom", "model._target_=nowhere.make"],
    ["train", "model=linear", "certificate=votes", "ensemble.members=0"],
    ["train", "dataset=table", "dataset.path=t.csv", "dataset.label=y", "dataset.bins=-1"],
    ["train", "resume=nowhere"],
    ["train", "certificate.name=votes"],
    ["train", "training.learning_rate=0.1"],
    ["train", "données=digits"],
    ["train", "--epochs", "5"],
    ["train", "dataset=blobs", "model=conv"],
    ["train", "compute.kernel=cpu", "compute.device=cuda"],
    ["train", "-m", "resume="],
    ["train", "-m", "resume=r,r"],
    ["tune", "dataset=digits", "tune.public=test", "model.hidden=[16]", "tune.name=new"],
    ["tune", "tune.folds=1"],
    ["measure", "total.eps=-1"],
    ["measure", "total.eps=1"],
    ["certify", "run=r", "map_resolution=-1"],
    ["plan", "run=r", "mechanisms=[gausian]"],
    ["predict", "run=r", "mechanism.eps=-1"],
    ["unlearn", "run=r", "method=newtom"],
    ["verify", "r", "digest=xyz"],
    ["ledger", "init", "people", "total.eps=-1", "unit=person"],
    ["ledger", "init", "people", "total.eps=1"],
    ["data", "inspect", "t.xlsx"],
    ["data", "inspect", "t.csv", "target=numeric", "range=0-120"],
    ["data", "inspect", "t.csv", "target=numeric", "range=0,120"],
    ["data", "inspect", "t.csv", "target=numeric", "range=[0,120"],
    ["data", "inspect", "t.csv", "target=numeric", "range=[0,20.000]"],
    ["audit", "certificate"],
    ["audit", "mechanism"],
    ["audit", "mechanism", "mechanism=randomized_response"],
    ["audit", "mechanism", "mechanism=noisy_statistics", "mechanism.eps=1"],
    ["audit", "selftest", "confidence=2"],
    ["reproduce", "blobs", "profile=smok"],
    ["start", "t.csv", "public=ja"],
    ["start", "t.csv", "eps=-1"],
    ["start", "t.csv", "label=y", "drop=[y]"],
    ["start", "."],
    ["certify", "run=."],
    ["certify", "run=latest"],
    ["certify", "run=t.csv"],
    ["certify", "run=c"],
    ["predict", "run=r"],
    ["predict", "run=r", "mechanism=noisy_statistics", "total.eps=1"],
    ["predict", "run=r", "mechanism.eps=1", "ledger=nobody"],
    ["predict", "release=r", "inputs=t.csv"],
    ["unlearn", "run=r"],
    ["train", "dataset=table", "+dataset.numeric={x:[0,30.000]}"],
    ["verify", "t.csv"],
    ["verify", "latest"],
    ["ledger", "show", "nobody"],
    ["ledger", "init", "people", "run=r", "head=nowhere/people.head"],
    ["reproduce", "blobs", "only=[x]"],
    ["reproduce", "blobs", "data=original"],
    ["reproduce", "blobs", "overrides=['relation=remove']"],
    ["tune", "dataset=digits"],
    ["tune", "dataset=digits", "tune.public=test", "tune.grid={training.lrr:[1,2]}"],
    ["tune", "dataset=digits", "tune.public=test", "tune.grid={training.lr:[-1,2]}"],
    ["tune", "dataset=digits", "tune.public=test", "tune.name=digits_tuned"],
    ["train", "training.clip_derivative=1"],
    ["train", *LINEAR, "training.clip_elementwise=1"],
    ["train", *LINEAR, "noise.epsilon=1"],
    ["train", *LINEAR, "training.momentum=0.5"],
    ["train", *LINEAR, "relation=flip"],
    ["train", *LINEAR, "ledger=none"],
    ["train", *LINEAR[:2], "certificate=box", "training=recipe"],
    ["train", "model.encoder=small_cnn"],
    ["train", "model._target_=net.make"],
    ["train", "model=custom", "model._target_=net.make", "+model.width=3"],
    ["train", "trust=net.make"],
    ["predict", "run=of_digits", "mechanism=noisy_statistics", "mechanism.mu=1", "unproved=allow"],
    ["predict", "run=of_digits", "mechanism.eps=1", "reserve=5"],
    ["audit", "prediction", "run=of_digits"],
    ["audit", "weights", "mechanism=release_weights"],
    ["certify", "run=of_digits", "inputs=[t.csv]"],
    ["verify", "r", "head=abc"],
    ["verify", "people.ledger", "digest=" + "0" * 64],
    [
        "predict",
        "run=of_digits",
        "mechanism=certified_quantile",
        "total.eps=1",
        "mechanism.fraction=2",
    ],
    [
        "predict",
        "run=of_digits",
        "mechanism=gaussian_margin",
        "mechanism.mu=1",
        "mechanism.classes=3",
    ],
    [
        "predict",
        "run=of_digits",
        "mechanism=noisy_statistics",
        "mechanism.mu=1",
        "mechanism.width=1",
    ],
    ["audit", "mechanism", "mechanism=randomized_response", "mechanism.eps=1", "audit.trials=0"],
    ["audit", "weights", "mechanism=randomized_response", "mechanism.eps=1"],
    ["audit", "replay", "run=of_digits"],
    ["audit", "dpsgd", "run=of_digits"],
    ["unlearn", "run=of_digits", "ids=t.xlsx"],
    ["verify", "."],
    ["verify", "of_digits", "ledger=nobody"],
    ["start", "t.csv", "answers=."],
    ["train", "--config-name", "other"],
    ["train", "training.batch.n_max=1"],
    ["train", "model=linear", "certificate=votes", "relation=perturb", "relation.radius=0.1"],
    ["train", "dataset=blobs", *LINEAR[1:]],
)
MISSING_FILES = (
    ["certify", "run=r", "inputs=queries.csv"],
    ["unlearn", "run=r", "ids=requests.txt"],
    ["start", "t.csv", "answers=answers.yaml"],
    ["certify", "run=of_table", "inputs=empty"],
    ["train", "dataset=mnist", "data_dir=empty"],
    ["train", "dataset=embeddings", "dataset.path=vectors.npz"],
)


def test_no_mistake_of_settings_loads_what_is_heavy(tmp_path: Path) -> None:
    run = tmp_path / "r"
    run.mkdir()
    status = {"state": "done", "command": "train"}
    (run / "status.json").write_text(json.dumps(status))
    settings = {
        "dataset": {"data_dir": "data"},
        "certificate": {"name": "box"},
        "ensemble": {"members": 1},
        "relation": {"name": "add_remove"},
    }
    (run / "config.yaml").write_text(json.dumps(settings))
    certified = tmp_path / "c"
    certified.mkdir()
    (certified / "status.json").write_text(json.dumps({**status, "command": "certify"}))
    of_table = tmp_path / "of_table"
    of_table.mkdir()
    (of_table / "status.json").write_text(json.dumps(status))
    table = {"path": "t.csv", "label": "y", "numeric": {"x": [0, 1]}, "categorical": {"c": ["a"]}}
    table["_target_"] = "agt.data.table.Table"
    (of_table / "config.yaml").write_text(json.dumps({**settings, "dataset": table}))
    of_digits = tmp_path / "of_digits"
    of_digits.mkdir()
    (of_digits / "status.json").write_text(json.dumps(status))
    digits = {"_target_": "agt.data.images.Digits"}
    (of_digits / "config.yaml").write_text(json.dumps({**settings, "dataset": digits}))
    (tmp_path / "empty").mkdir()
    (tmp_path / "people.ledger").write_bytes(b"")
    tuned = tmp_path / "conf" / "experiment"
    tuned.mkdir(parents=True)
    (tuned / "digits_tuned.yaml").write_text("# @package _global_\n")
    (tmp_path / "net.py").write_text("import torch\n\n\ndef make(): ...\n")
    (tmp_path / "t.csv").write_text("x,y\n1,a\n")
    (tmp_path / "t.xlsx").write_bytes(b"PK\3\4\0\0")
    lines = (*MISTAKES, *MISSING_FILES)
    code = f"""
import json, sys
from agt_cli.cli import main
found = [(line, main(line), sorted({{*{HEAVY!r}}} & {{*sys.modules}})) for line in {lines!r}]
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    codes = [ConfigError.exit_code] * len(MISTAKES) + [DataMissing.exit_code] * len(MISSING_FILES)
    assert [code for _, code, _ in found] == codes
    assert [(line, heavy) for line, _, heavy in found if heavy] == []


def loaded(line: list[str], folder: Path, modules: set[str]) -> tuple[int, list[str]]:
    """Return the exit code of a command line, and which of the modules its process loaded."""
    code = f"""
import json, sys
from agt_cli.cli import main
print(json.dumps([main({line!r}), sorted({modules!r} & {{*sys.modules}})]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    exit_code, found = json.loads(done.stdout)
    return exit_code, found


@pytest.mark.parametrize(
    "text",
    [
        "report,of,May\nx,y\n1,a\n",  # a line above the header
        '"x\ny",z\n1,a\n',  # a name on two lines
        "x,x\n1,a\n",
        "39,State-gov\n40,Private\n",
        "x;y,z\n1;2,3\n",
    ],
)
def test_a_first_line_that_is_no_clear_header_is_left_to_who_reads_the_table(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    check_named_columns(path, [("label", "income")], None)


def test_layers_of_an_own_network_are_judged_before_the_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,a\n")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Linear(1, 2), nn.Softmax())\n"
    )
    form = ("training=generic", "training.epochs=1", "training.lr=1", "training.clip=1")
    line = ["train", *A_TABLE, "model=custom", "model._target_=net.make", *form]
    answer = loaded(line, tmp_path, {"torch", "agt_cli.commands.train"})
    assert answer == (ConfigError.exit_code, ["torch"])


@pytest.mark.parametrize("word", ["eps=-1", "model=linaer", "dataset=table"])
def test_what_composing_tells_is_answered_without_pydantic(word: str, tmp_path: Path) -> None:
    assert loaded(["train", word], tmp_path, {"pydantic"}) == (ConfigError.exit_code, [])


def test_a_setting_of_training_loads_no_settings_of_data_sets(tmp_path: Path) -> None:
    others = {"agt.data.file_settings", "agt.data.image_settings", "agt.certificates.settings"}
    answer = loaded(["train", "training.lr=-1"], tmp_path, others)
    assert answer == (ConfigError.exit_code, [])


def test_missing_queries_of_a_dataset_without_a_folder_load_nothing_heavy(tmp_path: Path) -> None:
    run = tmp_path / "r"
    run.mkdir()
    (run / "status.json").write_text(json.dumps({"state": "done", "command": "train"}))
    settings = {"dataset": {"_target_": "agt.data.images.Digits"}}
    (run / "config.yaml").write_text(json.dumps(settings))
    answer = loaded(["certify", "run=r", "inputs=queries.csv"], tmp_path, {*HEAVY})
    assert answer == (DataMissing.exit_code, [])


@pytest.mark.parametrize("name", CHECKS.values())
def test_what_checks_a_command_is_there(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert callable(getattr(import_module(module), function))


def test_a_certificate_takes_hidden_layers_where_its_kind_is_no_closed_form() -> None:
    for kind in KINDS:
        assert kind.takes_hidden_layers is not issubclass(kind, ClosedFormKind)


def test_every_mechanism_of_agt_has_settings_that_say_what_it_releases_and_spends() -> None:
    kinds = (*MECHANISMS.values(), *weights_mechanisms().values(), CertifiedQuantile, LaplaceMean)
    own = {kind.name: kind for kind in kinds if kind.__module__.startswith("agt.")}
    assert set(own) == set(OWN_MECHANISMS)
    for name, kind in own.items():
        assert issubclass(kind, OWN_MECHANISMS[name])
        assert kind.releases == kind.output
        assert kind.budget_keys() == kind.spends.parameter_names


def test_methods_of_unlearning_are_those_that_settings_name() -> None:
    assert ("auto", *METHODS) == METHOD_CHOICES


def test_kinds_of_certificate_inherit_their_settings_in_the_same_order() -> None:
    assert len(KINDS) == len(CERTIFICATES)
    assert all(
        issubclass(kind, settings) for kind, settings in zip(KINDS, CERTIFICATES, strict=True)
    )


@pytest.mark.parametrize("name", sorted(OWN_SETTINGS))
def test_a_class_that_records_name_inherits_its_settings(name: str) -> None:
    own, settings = (
        getattr(import_module(full.rpartition(".")[0]), full.rpartition(".")[2])
        for full in (name, OWN_SETTINGS[name])
    )
    assert issubclass(own, settings)


@pytest.mark.parametrize("word", ["model=[linear]", "dataset=[blobs,digits]", "relation=[]"])
def test_a_list_of_options_of_a_group_is_refused(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", word]) == ConfigError.exit_code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows", get_args(PublicRows))
def test_public_rows_of_the_dataset_are_not_taken_for_a_file(
    rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,y,p\n1,a,0\n")
    config = compose_command("tune", [*A_TABLE, "dataset.public=p", f"tune.public={rows}"])
    check_tune(config)


def test_public_rows_in_a_file_that_is_missing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,y\n1,a\n")
    config = compose_command("tune", [*A_TABLE, "tune.public=nowhere.csv"])
    with pytest.raises(DataMissing):
        check_tune(config)


def test_an_unknown_key_is_told_the_new_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "training.dekay=1"]) == ConfigError.exit_code
    known = capsys.readouterr().err.partition("(known: ")[2]
    assert "lr_decay" in known
    assert not re.search(r"\b(decay|decay_mode|clip)\b", known)


def test_released_weights_take_queries_from_a_file_only() -> None:
    config = compose_command("predict", ["release=outputs/predict/a/release", "inputs=-"])
    with pytest.raises(ConfigError, match=r"inputs=-.*inputs=FILE"):
        check_portable_answers(config)
    check_portable_answers({**config, "inputs": "queries.csv"})
