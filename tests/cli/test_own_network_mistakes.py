"""What is answered where a network of one's own is named in the wrong way."""

import shlex
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


class Net(nn.Module):
    def __init__(self, end=None):
        super().__init__()
        self.first = nn.Linear(2, 4)
        self.last = nn.Linear(4, 2)
        self.end = end

    def forward(self, x):
        x = self.last(self.first(x).relu())
        return x.softmax(dim=1) if self.end else x
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


@pytest.fixture
def table(tmp_path: Path) -> tuple[str, ...]:
    """The settings of a table of two numbers, which are 54 features in bins."""
    rows = "".join(f"{row % 7},{row % 5},{'ab'[row % 2]}\n" for row in range(200))
    (tmp_path / "t.csv").write_text(f"x,z,y\n{rows}")
    columns = ("dataset.label=y", "+dataset.numeric={x:[0,6],z:[0,4]}", "+dataset.classes=[a,b]")
    return ("dataset=table", f"dataset.path={tmp_path / 't.csv'}", *columns)


def line_to_type(text: str) -> list[str]:
    """Return the words of the line that a message proposes, without agt."""
    line = text.partition(" Type: ")[2].partition(" (the numbers")[0].strip()
    return [word for word in shlex.split(line) if not word.startswith("PYTHONPATH=")][1:]


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("named", ["model=nets.Net", "model=custom model._target_=nets.Net"])
def test_a_class_with_its_own_forward_trains_after_one_refusal(
    agt: Agt, table: tuple[str, ...], named: str
) -> None:
    refused = agt("train", *table, *named.split()).ended(2, "dataset.bins=0")
    trained = agt(*line_to_type(refused.err)).ended(0)
    layers = "first (Linear), relu (ReLU), last (Linear)"
    assert f"forward() of Net applies one after the other: {layers}" in trained.err
    agt("certify", "run=latest").ended(0)


@pytest.mark.usefixtures("nets")
def test_layers_and_missing_settings_are_named_in_one_message(
    agt: Agt, table: tuple[str, ...]
) -> None:
    named = ("model=custom", "model._target_=nets.Net", "+model.end=softmax")
    refused = agt("train", *table, *named).ended(2, "softmax() (line", "training.epochs=4")
    assert "dataset.bins=0" in line_to_type(refused.err)
    assert "takes 2 inputs" not in refused.err


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("end", [(), ("+model.end=softmax",)])
def test_a_network_of_one_input_a_column_is_told_the_line_without_bins(
    agt: Agt, table: tuple[str, ...], end: tuple[str, ...]
) -> None:
    words = (*NAMED.replace("make_net", "Net").split(), *SETTINGS, *end, "certificate=box")
    line = ("train", *table, *words, "training.clip_elementwise=0.1")
    refused = agt(*line).ended(2, "dataset.bins=20: ", "dataset.bins=0")
    assert ("softmax()" in refused.err) == bool(end)
    if not end:
        agt(*line_to_type(refused.err)).ended(0)


@pytest.mark.usefixtures("nets")
def test_a_network_for_bins_is_told_so_where_numbers_have_none(
    agt: Agt, table: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "nets.py").write_text(NETS.replace("nn.Linear(2, 4)", "nn.Linear(54, 4)"))
    words = (*NAMED.split(), *SETTINGS, "certificate=box", "training.clip_elementwise=0.1")
    agt("train", *table, *words, "dataset.bins=0").ended(2, "give dataset.bins=20, with which")


def test_start_says_which_command_trains_a_network(agt: Agt, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    said = agt("start", "t.csv", "model=custom").ended(2, "agt train dataset=NAME model=custom")
    assert "delta" not in said.err
