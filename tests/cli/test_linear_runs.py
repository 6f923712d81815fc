"""Linear heads from the command line: certificate=stability and erm, their records, and what
they refuse.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import reseal
from safetensors.numpy import load_file, save_file

from .conftest import Agt

BASE = ("model=linear", "kgrid.max=30", "training.momentum=0", "-q", "--json")
DIGITS = (
    "dataset=digits",
    "training=generic",
    "training.loss=binary_cross_entropy",
    "training.chosen_on=public",
    *BASE,
)
SGD = (
    "certificate=stability",
    "training.clip=0.5",
    "training.epochs=60",
    "training.lr=5",
    "training.decay=0",
)
ERM = (
    "certificate=erm",
    "training.clip=0.5",
    "training.weight_decay=0.01",
    "certificate.tolerance=1e-7",
)


def certified(agt: Agt, run: str, *more: str) -> tuple[pd.DataFrame, Path]:
    said = agt("certify", f"run={run}", "-q", "--json", *more).ended(0)
    folder = Path(said.json["run"])
    return pd.read_parquet(folder / "certificates.parquet"), folder


@pytest.mark.parametrize("how", [SGD, ERM], ids=["stability", "erm"])
def test_train_and_certify_in_closed_form(agt: Agt, how: tuple[str, ...]) -> None:
    said = agt("train", *DIGITS, *how).ended(0)
    run = Path(said.json["run"])
    metrics = said.json["metrics"]
    assert not (run / "bounds").exists()
    assert metrics["test_accuracy"] > 0.9
    assert metrics["conditions_held"] == 7
    constants = json.loads((run / "stability.json").read_text())
    assert constants["rows"] == 1, "a stored name: runs of earlier versions have it, too"
    assert constants["rho"] <= constants["rho_fp"] <= constants["per_k"] <= constants["sensitivity"]
    assert metrics["moved_by_one_k"] == constants["per_k"]
    each, folder = certified(agt, str(run))
    assert list(each.columns) == [
        "row",
        "record_id",
        "label",
        "prediction",
        "stable_distance",
        "score",
    ]
    weight = load_file(run / "model.safetensors")["weight"]
    assert weight.shape == (1, 65)
    rows = pd.read_csv(folder / "tables" / "certified.csv")
    for k in (1, 5, 30):
        fraction = rows.loc[rows["k"] == k, "certified_fraction"].item()
        assert fraction == pytest.approx((each["stable_distance"] >= k).mean())
    assert 0 < rows["certified_fraction"].iloc[1] < 1 or how is ERM
    for page in (folder / "report.md", run / "report.md"):
        assert "closed form" in page.read_text()


def test_distances_are_the_margins_over_what_one_record_moves(agt: Agt) -> None:
    """Recomputed here from the record's own files, in plain numpy."""
    said = agt(
        "train",
        "dataset.n_train=100",
        *BASE,
        *SGD,
        "training.lr=4",
        "training.loss=binary_cross_entropy",
    ).ended(0)
    run = Path(said.json["run"])
    points = np.random.default_rng(0).normal(size=(200, 2)) * 2
    pd.DataFrame(points, columns=["x1", "x2"]).to_csv("queries.csv", index=False)
    each, _ = certified(agt, str(run), "inputs=queries.csv", "map_resolution=0")
    x = np.concatenate([points, points**2, points**3], axis=1).astype(np.float32).astype(float)
    phi = np.concatenate(
        [x / np.linalg.norm(x, axis=1, keepdims=True), np.full((200, 1), 0.1)], axis=1
    ) / np.sqrt(1.01)
    logits = phi @ load_file(run / "model.safetensors")["weight"][0]
    rho = 60 * 4 * 0.5 / 100
    assert json.loads((run / "stability.json").read_text())["rho"] == pytest.approx(rho)
    expected = np.ceil(np.abs(logits) / rho) - 1
    assert (each["stable_distance"] - expected).abs().max() <= 1
    assert (each["stable_distance"] == expected).mean() > 0.99
    assert (each["prediction"] == np.where(logits > 0, "right", "left")).all()
    assert each["stable_distance"].nunique() > 2


def test_plane_map_and_public_features(agt: Agt) -> None:
    features = ("certificate.features.map=relu", "certificate.features.count=40")
    said = agt(
        "train", "dataset.n_train=200", *BASE, *SGD, *features, "training.clip=1", "training.lr=2"
    ).ended(0)
    report = (Path(said.json["run"]) / "report.md").read_text()
    assert re.search(r"(?i)\b40\b.*\brelu\b", report)
    _, folder = certified(agt, said.json["run"], "map_resolution=24")
    data = pd.read_csv(folder / "figures" / "plane_map.csv")
    assert len(data) == 24 * 24
    assert data["certified_up_to"].max() <= 30
    assert data["certified_up_to"].nunique() > 1


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, to be copied and spoilt."""
    from agt_cli.cli import main

    folder = tmp_path_factory.mktemp("digits") / "run"
    assert main(["train", *DIGITS, *SGD, f"hydra.run.dir={folder}"]) == 0
    return folder


def narrowed(run: Path) -> None:
    path = run / "stability.json"
    constants = json.loads(path.read_text())
    path.write_text(json.dumps({**constants, "rho": constants["rho"] / 2}))


def undefined(run: Path) -> None:
    weight = load_file(run / "model.safetensors")["weight"]
    save_file({"weight": weight * np.nan}, run / "model.safetensors")


def set_to(old: str, new: str) -> Callable[[Path], object]:
    return lambda run: (run / "config.yaml").write_text(
        (run / "config.yaml").read_text().replace(old, new)
    )


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (narrowed, 1, ("stability.json", "rho = ")),
        (set_to("momentum: 0", "momentum: 0.9"), 2, ("training.momentum=0.9",)),
        (set_to("lr: 5", "lr: 50"), 2, ("training.lr: the learning rate 50",)),
        (undefined, 1, ("model.safetensors", "weight", "NaN")),
        (lambda run: (run / "stability.json").unlink(), 2, ("stability.json",)),
    ],
)
def test_a_record_that_was_changed_is_refused(
    agt: Agt,
    tmp_path: Path,
    digits: Path,
    spoil: Callable[[Path], object],
    code: int,
    words: tuple[str, ...],
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(digits, run)
    spoil(run)
    agt("certify", f"run={run}", "-q").ended(2, run.name)
    reseal(run)  # what lies behind the manifest
    agt("certify", f"run={run}", "-q").ended(code, *words)
