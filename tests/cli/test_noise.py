"""agt train with DP-SGD's noise in its steps: what it claims of the weights, and what it
refuses.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from agt_cli.cli import main

from .conftest import TINY, Agt

PUBLIC = ("training.chosen_on=public",)
NOISE = (
    *TINY,
    "noise.epsilon=1",
    "training.epochs=3",
    "training.batch.count=2",
    "training.clip=0.05",
)


def weights(folder: Path) -> np.ndarray:
    return np.concatenate([w.ravel() for w in load_file(folder / "model.safetensors").values()])


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with noise that no test changes."""
    folder = tmp_path_factory.mktemp("noisy") / "run"
    assert main(["train", *NOISE, *PUBLIC, f"hydra.run.dir={folder}", "-q", "--json"]) == 0
    return folder


def test_the_weights_claim_what_the_noise_gives(noisy: Path) -> None:
    metrics = json.loads((noisy / "metrics.json").read_text())
    report = (noisy / "report.md").read_text()
    for value in ("model.safetensors", "(1, 1e-05)", "add_remove"):
        assert value in report
    # mu of (1, 1e-5) by an independent table: Gaussian noise of 3.7306 sensitivities, and three
    # steps see a record.
    assert metrics["noise_mu"] == pytest.approx(1 / 3.7306, rel=1e-3)
    moves = 0.05 * np.sqrt(metrics["parameters"]) / metrics["normalizer"]
    assert metrics["noise_sigma"] == pytest.approx(np.sqrt(3) * moves * 3.7306, rel=1e-3)
    assert metrics["noise_proved"] == 1


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        (("noise.epsilon=30", "noise.delta=0.5"), ["30", "0.5"]),
        (("noise.epsilon=30",), ["30"]),
        (("noise.delta=0.5",), ["0.5"]),
        ((), []),
    ],
)
def test_a_budget_that_protects_little_is_warned_of(
    agt: Agt, more: tuple[str, ...], warned: list[str]
) -> None:
    said = agt("train", *NOISE, *PUBLIC, *more).ended(0).err
    found = re.findall(r"^the total (?:epsilon|delta) is ([\d.]+)\. ", said, re.MULTILINE)
    assert found == warned


def test_every_run_draws_anew_and_a_seed_is_a_simulation(agt: Agt, noisy: Path) -> None:
    other = Path(agt("train", *NOISE, *PUBLIC, "--json", "-q").json["run"])
    assert not np.array_equal(weights(noisy), weights(other))
    said = [agt("train", *NOISE, *PUBLIC, "noise.seed=3", "--json", "-q").json for _ in range(2)]
    assert np.array_equal(*(weights(Path(one["run"])) for one in said))
    for one in said:
        assert one["words"][0].startswith("SIMULATION")
        assert one["metrics"]["noise_proved"] == 0


def test_boxes_hold_the_noisy_weights_and_can_be_certified(agt: Agt, noisy: Path) -> None:
    nominal = load_file(noisy / "model.safetensors")
    box = load_file(noisy / "bounds/k=00003.safetensors")
    assert all(
        (box[f"lower.{n}"] <= w).all() and (w <= box[f"upper.{n}"]).all()
        for n, w in nominal.items()
    )
    agt("certify", f"run={noisy}", "map_resolution=0", "-q").ended(0)
    (folder,) = Path("outputs/certify").iterdir()
    conditions = json.loads((folder / "conditions.json").read_text())
    given = [
        c["letter"] for c in conditions if "given_the_draw" in [fact["code"] for fact in c["facts"]]
    ]
    assert given == ["d"], "nothing is certified about training again, whose noise is another"
    said = agt(
        "predict",
        f"run={noisy}",
        "mechanism=randomized_response",
        "total.eps=1",
        "force=true",
        "--json",
        "-q",
    ).ended(0)
    assert json.loads((Path(said.json["run"]) / "claim.json").read_text())["noisy"] is True


@pytest.mark.parametrize(
    ("more", "letter"),
    [
        (("training.chosen_on=data",), "e"),
        (("dataset=digits", *PUBLIC, "dataset.declared_size=null"), "c"),
    ],
)
def test_a_missing_condition_leaves_no_claim(agt: Agt, more: tuple[str, ...], letter: str) -> None:
    base = [word for word in NOISE if not (letter == "c" and word.startswith("dataset."))]
    said = agt("train", *base, *more, "--json", "-q").ended(0)
    assert f"condition {letter} " in said.json["words"][0]
    assert said.json["metrics"]["noise_proved"] == 0
