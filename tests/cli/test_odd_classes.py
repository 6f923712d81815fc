"""Classes with letters that no terminal should be sent: labels of them are told, weights are
refused before they cost.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import agt as library
from agt.mechanisms.weights import ReleaseWeights

from .conftest import Agt

ESCAPE = "\x1b[31myes"
RECIPE = ("model=linear", "certificate=stability", "training=recipe", "training.chosen_on=public")
DATASET = r"""defaults: [table, _self_]
path: people.csv
data_dir: .
label: y
numeric: {x: [-3, 4]}
classes: ["no", "\e[31myes"]
declared_size: 120
"""


@pytest.fixture
def run(agt: Agt) -> str:
    """A run on people with such a class."""
    y = np.arange(120) % 2
    draw = np.random.default_rng(0)
    rows = (
        f"{value:.6f},{('no', ESCAPE)[c]}"
        for value, c in zip(draw.normal(size=120) + y, y, strict=True)
    )
    Path("people.csv").write_text("\n".join(("x,y", *rows)))
    Path("conf/dataset").mkdir(parents=True)
    Path("conf/dataset/people.yaml").write_text(DATASET)
    agt("train", "dataset=people", *RECIPE, "hydra.run.dir=outputs/train/a").ended(0)
    return "run=outputs/train/a"


def test_weights_are_refused_before_they_are_paid_for_and_labels_verify(agt: Agt, run: str) -> None:
    agt("ledger", "init", "people", run, "total.eps=1", "total.delta=1e-4").ended(0)
    before = Path("ledgers/people.ledger").read_bytes()
    asked = ("mechanism=release_weights", "total.eps=0.5", "total.delta=1e-5", "ledger=people")
    agt("predict", run, *asked).ended(2, "\\x1b[31myes")
    assert Path("ledgers/people.ledger").read_bytes() == before
    labels = ("mechanism=randomized_response", "mechanism.eps=0.01", "force=true", "ledger=people")
    agt("predict", run, *labels, "hydra.run.dir=outputs/predict/a").ended(0)
    agt("verify", "outputs/predict/a").ended(0)


@pytest.mark.parametrize("name", [ESCAPE, "a\nb", "a\0b", "a\u202eb", "a\u2028b"])
def test_weights_are_refused_from_python_before_they_are_drawn(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = np.array(["no", name] * 40, dtype=object)
    said = library.Declared(classes=["no", name], size=80, features=True, settings=True)
    model = library.fit(x, y, declared=said)
    monkeypatch.setattr(ReleaseWeights, "draw", lambda *arguments: pytest.fail("drawn"))
    with pytest.raises(library.ConfigError, match=re.escape(repr(name))):
        model.release_weights(ReleaseWeights(mu=1.0))
