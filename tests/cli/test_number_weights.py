"""Released weights of numbers by command: the folder that answers, its claim, ledger and checks."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from .conftest import Agt, Said

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, 2000),
        "score": RNG.normal(size=2000).round(3),
        "place": RNG.choice(["north", "south"], 2000),
    }
)
TABLE["cost"] = (0.5 * TABLE["age"] + 5 * TABLE["score"] + RNG.normal(size=2000)).round(2)
SETTINGS = (
    "dataset=table",
    "dataset.label=cost",
    "dataset.target=numeric",
    "dataset.range=[-20, 60]",
    "+dataset.numeric={age: [18, 80], score: [-4, 4]}",
    "+dataset.categorical={place: [north, south]}",
    "dataset.declared_size=1500",
    "training.chosen_on=public",
    "certificate=votes",
    "ensemble.members=11",
)
WEIGHTS = ("mechanism=noisy_statistics", "total.eps=4", "total.delta=1e-5", "force=true")


@pytest.fixture(scope="module")
def run(trained_as: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished training run on numbers."""
    path = tmp_path_factory.mktemp("table") / "costs.csv"
    TABLE.to_csv(path, index=False)
    return trained_as("costs", (f"dataset.path={path}", *SETTINGS))


@pytest.fixture
def released(agt: Agt, run: Path) -> Path:
    """The record of a release of weights that has answered ``queries.csv``."""
    TABLE.drop(columns="cost").head(40).to_csv("queries.csv", index=False)
    return _folder(agt("predict", f"run={run}", "inputs=queries.csv", *WEIGHTS))


def _folder(said: Said) -> Path:
    """Return where the labels went, from what was printed."""
    assert said.code == 0, said.err
    found = re.search(r"^labels: (.+)/labels\.csv$", said.out, re.M)
    assert found is not None
    return Path(found[1])


def _numbers(folder: Path) -> np.ndarray:
    return pd.read_csv(folder / "labels.csv")["label"].to_numpy()


def test_the_numbers_are_near_the_true_ones(released: Path) -> None:
    errors = _numbers(released) - TABLE["cost"].head(40)
    assert np.sqrt(np.mean(errors**2)) < 0.7 * TABLE["cost"].std()


def test_the_claim_is_of_weights_and_names_the_range(released: Path) -> None:
    claim: dict[str, Any] = json.loads((released / "claim.json").read_text())
    assert (claim["output"], claim["mechanism"]) == ("weights", "noisy_statistics")
    assert claim["totals"][0]["eps"] == pytest.approx(4)
    declared = str(claim["declared"])
    assert "label_range_public" in declared


def test_the_folder_answers_the_same_without_the_run(agt: Agt, released: Path) -> None:
    again = _folder(agt("predict", f"release={released}", "inputs=queries.csv"))
    assert "costs no privacy budget" in (again / "report.md").read_text(encoding="utf-8")
    assert (again / "labels.csv").read_bytes() == (released / "labels.csv").read_bytes()


def test_the_lines_of_the_readme_answer_the_same(released: Path) -> None:
    release = released / "release"
    found = re.search(r"```python\n(.*?)```", (release / "README.md").read_text(), re.S)
    assert found is not None
    queries = Path("queries.csv").read_text()
    (release / "queries.csv").write_text(queries)
    done = subprocess.run(
        [sys.executable, "-c", found[1]], cwd=release, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    printed = np.array(done.stdout.split(), dtype=np.float64)
    assert printed == pytest.approx(_numbers(released), rel=0, abs=1e-5), "labels.csv is rounded"


@pytest.mark.parametrize("part", ["", "release"])
def test_it_verifies(agt: Agt, released: Path, part: str) -> None:
    assert agt("verify", str(released / part)).code == 0


@pytest.mark.parametrize("bounds", [[60, -20], [0, float("inf")], ["a", "b"], [1], [0, 60, 70], 5])
def test_a_folder_with_an_odd_range_is_refused(agt: Agt, released: Path, bounds: Any) -> None:
    path = released / "release" / "release.json"
    node = json.loads(path.read_text()) | {"range": bounds}
    path.write_text(json.dumps(node))
    _seal(released / "release")
    assert agt("predict", f"release={released}", "inputs=queries.csv").code == 2


def _seal(folder: Path) -> None:
    """Write a manifest that has the hashes of the files as they are."""
    from hashlib import sha256

    manifest = json.loads((folder / "manifest.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_ledger_pays_once_for_all_answers(agt: Agt, run: Path) -> None:
    TABLE.drop(columns="cost").head(40).to_csv("queries.csv", index=False)
    agt("ledger", "init", "people", f"run={run}", "total.eps=5", "total.delta=1e-4").ended(0)
    asked = ("predict", f"run={run}", "inputs=queries.csv", "ledger=people", *WEIGHTS)
    agt(*asked).ended(0)
    refused = agt(*asked)
    assert refused.code != 0
    assert len(list(Path("outputs/predict").glob("*/labels.csv"))) == 1


@pytest.mark.parametrize("mechanism", ["release_weights", "objective_perturbation"])
def test_mechanisms_of_classes_are_refused(agt: Agt, run: Path, mechanism: str) -> None:
    said = agt("predict", f"run={run}", f"mechanism={mechanism}", "total.eps=4", "total.delta=1e-5")
    said.ended(2, "noisy_statistics")
