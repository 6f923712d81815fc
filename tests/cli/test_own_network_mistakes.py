"""What is answered where a network of one's own is named in the wrong way."""

import sys
from pathlib import Path

import pytest

from .conftest import Agt

NETS = """
from torch import nn


def make_net():
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


def make_nothing():
    nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
"""
SETTINGS = ("training=generic", "training.epochs=1", "training.lr=1")
NAMED = "model=custom model._target_=nets.make_net"


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    "words",
    [
        ["model.target=nets.make_net"],
        ["model=custom", "model._target=nets.make_net"],
        ["model=custom", "model._target_=net.make_net"],
        ["model=custom", "model._target_=nets.make_net()"],
        ["model=nets.make_net()"],
    ],
)
def test_the_line_to_type_names_the_function(agt: Agt, words: list[str]) -> None:
    said = agt("train", "dataset=blobs", *words).ended(2)
    _, _, line = said.err.partition(" Type: ")
    assert NAMED in line
    assert "make_net()" not in line
    assert "rename the file" not in said.err


@pytest.mark.usefixtures("nets")
def test_a_function_that_returns_nothing_is_asked_for_its_return(agt: Agt) -> None:
    words = ("model=custom", "model._target_=nets.make_nothing", *SETTINGS)
    clip = "training.clip_elementwise=0.1"
    agt("train", "dataset=blobs", *words, clip, "certificate=box").ended(2, "`return` missing")


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("clip", ["clip_elementwise", "clip_derivative"])
def test_votes_refuse_a_network_whatever_its_settings(agt: Agt, clip: str) -> None:
    words = (*NAMED.split(), *SETTINGS, f"training.{clip}=0.1", "certificate=votes")
    agt("train", "dataset=blobs", *words).ended(2, "linear models only", "certificate=box")


def test_start_says_which_command_trains_a_network(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    said = agt("start", "t.csv", "model=custom").ended(2, "agt train dataset=NAME model=custom")
    assert "delta" not in said.err
