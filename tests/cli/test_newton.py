"""agt unlearn method=newton: steps, budgets, rows that are gone, training from scratch where the
budget is exceeded.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from agt.numeric import step_of
from agt.templates import upward
from agt.training.objective import Objective

ROWS = 240
GONE = 12
LOSS = ("certificate.masking=loss", "certificate.sigma=1")
TRAIN = (
    "train",
    "dataset=table",
    "dataset.path=t.csv",
    "dataset.label=y",
    "dataset.id=person",
    "dataset.id_permanent=true",
    "dataset.classes=[no,yes]",
    "dataset.split=part",
    "dataset.declared_size=200",
    "dataset.bins=0",
    "+dataset.numeric={a: [-3, 3], b: [-3, 3], c: [-3, 3]}",
    "certificate=removal",
    "training.weight_decay=0.05",
    "kgrid.max=3",
)


def table(rows: range) -> str:
    rng = np.random.default_rng(0)
    lines = ["person,a,b,c,part,y"]
    for row in range(ROWS):
        a, b, c, noise = rng.normal(size=4)
        part = "test" if row >= 200 else "train"
        label = "yes" if a + b / 2 + noise > 0 else "no"
        values = [f"{max(-3, min(3, v)):.4f}" for v in (a, b, c)]
        if row in rows:
            lines.append(",".join([f"q{row}x", *values, part, label]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def trained(agt):
    """Trains, with settings of the certificate; returns the run's folder."""

    def train(*settings):
        Path("t.csv").write_text(table(range(ROWS)))
        Path("ids.txt").write_text("".join(f"q{row}x\n" for row in range(GONE)))
        agt(*TRAIN, *settings).ended(0)
        (folder,) = Path("outputs/train").iterdir()
        return folder

    return train


def numbers(folder):
    return json.loads((folder / "removal.json").read_text())


def account():
    (path,) = Path("outputs/unlearn").glob("*/account.json")
    return json.loads(path.read_text())


def true_gradient(folder, loss="logistic"):
    """Of the state's weights over the records that remain, features as the run's head takes
    them.
    """
    from agt.models.fitting import load
    from agt.models.removal import training_rows
    from agt_cli.report.console import Console
    from agt_cli.report.opening import open_run
    from agt_cli.runs.erased import erased_predicate
    from agt_cli.runs.prepare import prepare
    from agt_cli.runs.queries import TrainedRun

    run = open_run(folder, "train")
    settings = TrainedRun.from_config({"run": folder, "compute": run.config["compute"]}).settings
    problem = prepare(settings, Console(quiet=True), erased_predicate(run)).problem(settings)
    model = load(problem, run)
    phi, labels = training_rows(problem, model.features)
    objective = Objective(loss, numbers(folder)["strength"])
    targets = objective.targets(labels, 2)
    return float(
        np.linalg.norm(objective.gradient(model.state.weight, phi, targets, model.state.tilt).value)
    ), len(phi)


def page() -> str:
    """The last account, as its owner reads it."""
    return sorted(Path("outputs/unlearn").glob("*/report.md"))[-1].read_text()


def test_a_step_removes_them_and_keeps_nothing_of_before(agt, trained):
    folder = trained(*LOSS)
    before = load_file(folder / "removal.safetensors")
    said = agt("unlearn", f"run={folder}", "ids=ids.txt").ended(0)
    after = load_file(folder / "removal.safetensors")
    now = numbers(folder)
    told = account()
    assert told["removal"]["facts"]["removed_by"] == "step"
    assert told["removal"]["promise"]["adaptive"] is False
    assert (now["count"], now["removed"]) == (200 - GONE, GONE)
    gradient, count = true_gradient(folder)
    assert count == now["count"]
    assert gradient <= now["residual"] <= now["allowed"]
    assert np.array_equal(before["tilt"], after["tilt"])
    assert np.array_equal(after["reference"], after["weight"])
    earlier = (before["weight"].tobytes(), before["reference"].tobytes(), before["gram"].tobytes())
    for path in folder.rglob("*"):
        assert not path.is_file() or not any(part in path.read_bytes() for part in earlier), path
    rests = told["removal"]["promise"]["assumptions"]
    assert "not held" in {fact["standing"] for fact in rests}, "not proved, but as published"
    assert "epsilon = 1" in said.out


def test_rows_that_are_gone_already_are_not_needed(agt, trained):
    folder = trained()
    Path("t.csv").write_text(table(range(GONE, ROWS)))
    agt("unlearn", f"run={folder}", "ids=ids.txt").ended(0)
    assert account()["removal"]["facts"]["removed_by"] == "refresh"
    assert "rows_gone" in str(account()["removal"])
    assert true_gradient(folder)[0] <= numbers(folder)["residual"] <= 1e-9
    assert numbers(folder)["removed"] == GONE


def test_a_budget_that_would_be_exceeded(agt, trained):
    folder = trained(
        "certificate.masking=loss", "certificate.bound=worst", "certificate.sigma=0.02"
    )
    digest = (folder / "manifest.json").read_bytes()
    agt("unlearn", f"run={folder}", "ids=ids.txt", "forbid_retraining=true").ended(3)
    assert (folder / "manifest.json").read_bytes() == digest
    before = load_file(folder / "removal.safetensors")
    agt("unlearn", f"run={folder}", "ids=ids.txt").ended(0)
    assert account()["removal"]["promise"]["method"] == "retrain"
    assert "removal budget" in page()
    # noise drawn anew
    assert not np.array_equal(before["tilt"], load_file(folder / "removal.safetensors")["tilt"])


def test_a_budget_is_kept_by_measuring(agt, trained):
    folder = trained("certificate.sigma=0.0001", "certificate.tolerance=1e-8")
    assert agt("unlearn", f"run={folder}", "ids=ids.txt", "forbid_retraining=true").code == 0
    assert account()["removal"]["facts"]["removed_by"] == "step+polish"
    assert numbers(folder)["residual"] <= numbers(folder)["allowed"] / 64


@pytest.mark.parametrize("factorisation", ["maintained", "fresh"])
def test_noise_on_what_is_served_is_drawn_anew(agt, trained, factorisation):
    folder = trained(
        "certificate.masking=output",
        "certificate.sigma=0.1",
        f"certificate.factorisation={factorisation}",
    )
    before = load_file(folder / "removal.safetensors")
    said = agt("unlearn", f"run={folder}", "ids=ids.txt").ended(0)
    after = load_file(folder / "removal.safetensors")
    served = load_file(folder / "model.safetensors")["weight"]
    assert not np.isclose(before["noise"], after["noise"]).any()
    assert np.array_equal(served - after["weight"], after["noise"])
    assert not np.fmod(served, step_of(0.1)).any()
    rests = account()["removal"]["promise"]["assumptions"]
    assert {fact["standing"] for fact in rests} <= {"proved", "declared"}
    assert "noise_exact" in [fact["code"] for fact in rests]
    assert "NOT PROVED" not in said.out
    given = account()["removal"]["promise"]
    assert given["adaptive"]
    assert given["eps"] < 0.5, "what this removal left, and not the settings' 1"
    assert f"epsilon = {upward(given['eps'])}" in said.out
    assert agt("verify", str(folder)).code == 0


def test_squares_are_exact_up_to_rounding(agt, trained):
    none = ("certificate.masking=none", "certificate.sigma=0", "certificate.bound=measured")
    folder = trained("certificate.loss=least_squares", *none)
    agt("unlearn", f"run={folder}", "ids=ids.txt")
    told = account()
    assert told["removal"]["promise"]["exact"]
    assert agt("verify", str(folder)).code == 0
    Path("t.csv").write_text(table(range(GONE, ROWS)))
    assert agt(*TRAIN, "certificate.loss=least_squares", *none, "hydra.run.dir=anew").code == 0
    weights = [load_file(place / "model.safetensors")["weight"] for place in (folder, Path("anew"))]
    assert np.linalg.norm(weights[0] - weights[1]) <= told["removal"]["promise"]["within"] < 1e-5
    assert told["removal"]["facts"]["removed_by"] == "step+polish"
    assert true_gradient(folder, "least_squares")[0] <= numbers(folder)["residual"] <= 1e-10


def test_training_again_draws_the_noise_anew(agt, trained):
    folder = trained()
    before = load_file(folder / "removal.safetensors")
    assert agt("unlearn", f"run={folder}", "ids=ids.txt", "method=retrain").code == 0
    told = account()["removal"]["promise"]
    after = load_file(folder / "removal.safetensors")
    assert not np.isclose(before["noise"], after["noise"]).any()
    assert told["exact"]
    assert told["terms"][0]["code"] == "retrained_with_noise"
    assert "noise_drawn_anew" in [fact["code"] for fact in told["assumptions"]]


def test_a_seed_is_a_simulation_in_every_line(agt, trained):
    folder = trained("certificate.seed=7")
    said = agt("unlearn", f"run={folder}", "ids=ids.txt").ended(0)
    rests = account()["removal"]["promise"]["assumptions"]
    assert "not held" in {fact["standing"] for fact in rests}
    for text in (said.out, page(), agt("verify", str(folder)).out):
        assert "NOT PROVED" in text.upper()
