"""Linear heads whose training is private: budgets decide what is learnt."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from agt_cli._experiments.bench import RECORD
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import load_experiment
from agt_cli._experiments.runs import Runs
from reproducing import made, values

from agt.errors import ConfigError
from agt_cli.report.console import Console

TRAINED_HEAD = [
    "model.hidden=[]",
    "training=imdb_linear",
    "training.lr=5.0",
    "training.epochs=20",
    "certificate=stability",
]
SETTINGS: dict[str, Any] = {
    "run": TRAINED_HEAD,
    "eps": [0.002, 100.0],
    "seeds": 3,
    "dpsgd": {"batch": 300, "lr": 4.0, "clip": 0.5, "epochs": 5},
    "perturbed": [
        {"method": "objective", "strength": 10000.0},
        {"method": "output", "strength": 10.0},
    ],
    "noisy": {"epochs": 10, "lr": 4.0, "clip": 0.1},
}
SAMPLED = (
    "DP-SGD",
    "objective perturbation",
    "output perturbation",
    "noise inside AGT",
    "randomised labels",
)


def trainings(folder: Path, profile: str = "smoke") -> Entry:
    experiment = load_experiment("imdb")
    runs = Runs(folder / "runs", ("dataset.n_train=300",), Console(quiet=True))
    return Entry(
        experiment, experiment.artifacts[-1], {profile: experiment.profiles[profile]}, runs
    )  # type: ignore[dict-item,index]


def test_budgets_decide_what_is_learnt(tmp_path: Path) -> None:
    here = trainings(tmp_path)
    section = made(here, tmp_path / "record", **SETTINGS)
    drawn = pd.read_csv(tmp_path / "record" / "figures" / "baselines.csv").set_index(
        ["series", "eps"]
    )
    plain = float(section.table.set_index("series").loc["plain SGD", "eps = 100"])
    assert plain > 0.9
    for name in (*SAMPLED, "release_weights"):
        assert drawn.loc[(name, 100.0), "accuracy"] > plain - 0.1, name
        assert drawn.loc[(name, 0.002), "accuracy"] < plain - 0.1, name
        assert (
            values(section)[f"{name}, eps = 100"]["smoke"] == drawn.loc[(name, 100.0), "accuracy"]
        )
    for name in SAMPLED:
        low = drawn.loc[(name, 0.002)]
        assert low["low"] < low["accuracy"] < low["high"]  # seeds differ, so noise was drawn
    # nothing was sampled
    assert drawn.loc[("release_weights", 100.0), ["low", "high"]].isna().all()
    protects = section.table.set_index("series")["protects"]
    assert protects["plain SGD"] == "nothing"
    assert "label" in protects["randomised labels"]
    assert set(protects[["DP-SGD", "release_weights", "noise inside AGT"]]) == {RECORD}
    assert len(here.used) == 1  # so that the report can say which conditions fail


def test_without_rigorous_accounting_it_is_left_out_and_says_so(tmp_path: Path) -> None:
    section = made(trainings(tmp_path, "paper"), tmp_path / "record", **SETTINGS)
    assert section.table.empty
    assert "profile=ours" in section.notes[-1]


def test_another_kind_of_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificate=stability"):
        made(trainings(tmp_path), tmp_path / "record", **{**SETTINGS, "run": ["model=linear"]})
