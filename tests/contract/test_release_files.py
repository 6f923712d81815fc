"""What agt predict leaves in its folder: labels, their guarantee, and nothing that depends on
private data otherwise.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agt_cli.cli import main

PUBLIC = "training.chosen_on=public"
BLOBS = (
    "dataset.n_train=200",
    "model=linear",
    "training.epochs=20",
    "training.decay=0",
    "kgrid.max=20",
    PUBLIC,
)
ENSEMBLE = ("ensemble.members=3", "compute.threads=1")
HEAD = (
    *BLOBS[:2],
    PUBLIC,
    "certificate=stability",
    "training.loss=binary_cross_entropy",
    "training.clip=0.5",
)
WEIGHTS = ("mechanism=release_weights", "total.eps=10", "total.delta=1e-5")
RUNS = {
    "box": (BLOBS, ("mechanism.eps=1",)),
    "ensemble": ((*BLOBS, *ENSEMBLE), ("mechanism.eps=1",)),
    "votes": ((*BLOBS, *ENSEMBLE), ("mechanism=noisy_argmax", "mechanism.eps=1")),
    "weights": (HEAD, WEIGHTS),
    "simulation": (BLOBS, ("mechanism.eps=1", "seed=3")),
}
FILES = {
    "config.yaml",
    "env.json",
    "status.json",
    "metrics.json",
    "conditions.json",
    "report.md",
    "labels.csv",
}
FILES |= {"manifest.json", "spent.json", "report.html", "claim.json"}
RELEASE_FILES = {
    f"release/{name}"
    for name in ("release.json", "weights.npz", "README.md", "manifest.json", "claim.json")
}
WEIGHT_FILES = {"released_weights.safetensors", "released_weights.json"} | RELEASE_FILES


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One release of each kind, from test records in a file of their own order."""
    home = tmp_path_factory.mktemp("releases")
    points = np.random.default_rng(0).normal(size=(40, 2)) * 1.5
    pd.DataFrame(
        {"id": [f"q{i}" for i in range(40)], "x1": points[:, 0], "x2": points[:, 1]}
    ).to_csv(home / "queries.csv", index=False)
    found = {}
    trained = {}
    for name, (training, asked) in RUNS.items():
        if training not in trained:
            trained[training] = home / f"train{len(trained)}"
            assert (
                main(["train", *training, f"hydra.run.dir={trained[training]}", "-q", "--json"])
                == 0
            )
        found[name] = home / name
        arguments = [
            f"run={trained[training]}",
            f"inputs={home / 'queries.csv'}",
            *asked,
            f"hydra.run.dir={home / name}",
        ]
        assert main(["predict", *arguments, "-q", "--json"]) == 0
    return found


@pytest.mark.parametrize("name", RUNS)
def test_labels_their_guarantee_and_nothing_measured(releases: dict[str, Path], name: str) -> None:
    """No distances, votes, logits or certificates: they are not private."""
    folder = releases[name]
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    files = {file for file in files if not file.startswith(".hydra")}
    assert files == FILES | (WEIGHT_FILES if name == "weights" else set())
    labels = pd.read_csv(folder / "labels.csv")
    assert list(labels.columns) == ["record_id", "label"]
    assert labels["record_id"].tolist() == [f"q{i}" for i in range(40)]
    assert set(labels["label"]) == {"left", "right"}
    metrics = json.loads((folder / "metrics.json").read_text())
    spent = "mu" if name == "weights" else "eps"
    conditions = {
        "conditions",
        "conditions_held",
        "conditions_proved",
        "conditions_declared",
        "conditions_not_met",
    }
    assert set(metrics) == {"n_queries", "proved", "simulated", spent, *conditions}
    assert metrics["n_queries"] == 40
    assert (metrics["proved"], metrics["simulated"]) == ((0, 1) if name == "simulation" else (1, 0))
    assert metrics["conditions"] == metrics["conditions_held"] == 7
    report = (folder / "report.md").read_text()
    assert "(synthetic)" in report.splitlines()[0]
    assert "differentially private" in report
    # A claim names results by which nothing may have been chosen, but gives none.
    results_named = "such as an accuracy, a stable distance or agt's advice"
    assert "accuracy" not in report.lower().replace(results_named, "")
    publishable = report.split("## What may be published\n\n")[1].split("\n")[0]
    expected = {
        "simulation": "Nothing may be published, because no guarantee holds.",
        "weights": "`labels.csv`, `released_weights.safetensors` and the folder `release` may",
    }
    assert publishable.startswith(expected.get(name, "`labels.csv` may"))


def test_the_record_names_the_run_and_the_queries(releases: dict[str, Path]) -> None:
    environment = json.loads((releases["box"] / "env.json").read_text())
    assert environment["trained_run"] == str((releases["box"].parent / "train0").resolve())
    assert environment["inputs"].endswith("queries.csv")
    config = (releases["box"] / "config.yaml").read_text()
    assert "eps: 1" in config
    assert "accounting: rigorous" in config
