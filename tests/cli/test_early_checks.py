"""Mistakes that the settings alone tell are answered before anything heavy is loaded."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from agt.certificates.settings import CERTIFICATES
from agt.errors import ConfigError
from agt.models.kinds import KINDS
from agt.targets import OWN_SETTINGS
from agt_cli.cli import main
from agt_cli.command_settings import METHOD_CHOICES
from agt_cli.unlearn.methods import METHODS

HEAVY = ("torch", "numba", "pandas", "sklearn")
MISTAKES = (
    ["train", "training.lr=-1"],
    ["train", "model.hidden=[0]"],
    ["train", "model=linear", "certificate=votes", "ensemble.members=0"],
    ["train", "dataset=table", "dataset.path=t.csv", "dataset.label=y", "dataset.bins=-1"],
    ["train", "resume=nowhere"],
    ["tune", "tune.folds=1"],
    ["measure", "total.eps=-1"],
    ["certify", "run=r", "map_resolution=-1"],
    ["plan", "run=r", "mechanisms=[gausian]"],
    ["predict", "run=r", "mechanism.eps=-1"],
    ["unlearn", "run=r", "method=newtom"],
    ["verify", "r", "digest=xyz"],
    ["ledger", "init", "people", "total.eps=-1", "unit=person"],
    ["data", "inspect", "t.xlsx"],
    ["reproduce", "blobs", "profile=smok"],
)


def test_no_mistake_of_settings_loads_what_is_heavy(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    for name in ("t.csv", "t.xlsx"):
        (tmp_path / name).write_text("x,y\n1,a\n")
    code = f"""
import json, sys
from agt_cli.cli import main
found = [(line, main(line), sorted({{*{HEAVY!r}}} & {{*sys.modules}})) for line in {MISTAKES!r}]
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert [(line, code) for line, code, _ in found if code != ConfigError.exit_code] == []
    assert [(line, heavy) for line, _, heavy in found if heavy] == []


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
