"""agt audit dpsgd: what it trains, what it says, and what it refuses."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from agt.audit import noisy
from agt.audit.canaries import CANARIES, Canaries
from agt.audit.dpsgd import Effort, audit, judged
from agt.audit.noisy import NoisyTraining
from agt.audit.planted.dpsgd import reference
from agt.audit.reference import Reference
from agt_cli.audit.opacus import OpacusTraining
from agt_cli.papers.baselines.dpsgd import DpSgd, Plan

from .conftest import TINY, Agt

HAVE = importlib.util.find_spec("opacus") is not None
SMALL = (
    "audit.trials=60",
    "audit.step_runs=5",
    "audit.canaries=10",
    "audit.records=40",
    "audit.batch=20",
    "audit.epochs=2",
)
QUICK = ("compute.kernel=reference", "--json", "-q")
NOISY = (
    "noise.epsilon=4",
    "training.clip=0.05",
    "training.chosen_on=public",
    "training.batch.count=2",
    "training.epochs=2",
)


def test_claims_and_lower_bounds_stand_in_one_table(agt: Agt, trained: Path) -> None:
    asked = ("audit", "dpsgd", f"run={trained}", "audit.trainer=reference", "audit.eps=[1,4]", *SMALL)
    said = agt(*asked, "confidence=0.9999", "--json", "-q")  # where what is drawn is drawn anew: not at 95 %
    assert said.code == 0, said.err
    folder = Path(said.json["run"])
    table = pd.read_csv(folder / "tables" / "bounds.csv")
    assert list(table.columns) == ["lower bound on epsilon", "who sees", "it is", "claimed 1", "claimed 4"]
    assert {"Clopper-Pearson", "Katz-log", "subsampled Gaussian curve", "steinke", "exact"} <= set(table.iloc[:, 0])
    assert (table[table["it is"] == "confident"]["claimed 4"] <= 4).all()
    report = (folder / "report.md").read_text()
    assert "cannot debug the composition" in report
    assert "trained beside the run" in report
    assert [finding["claimed"] for finding in said.json["audit"]["findings"]] == [1, 4]


def test_a_run_with_noise_is_audited_itself(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    run = agt("train", *TINY, *NOISY, "--json", "-q").json["run"]
    asked = ("audit", "dpsgd", f"run={run}", *SMALL, "audit.trials=48", "audit.step_runs=2", *QUICK)
    said = agt(*asked, "confidence=0.9999")  # its noise is drawn anew: at 95 % this would fail once in twenty
    assert said.code == 0, said.err
    (finding,) = said.json["audit"]["findings"]
    assert finding["subject"] == "training with noise inside, epsilon 4 claimed"
    assert "a record is in 2 steps, whose Gaussian noise" in finding["claim"]
    drawn = noisy.draw_noise
    monkeypatch.setattr(noisy, "draw_noise", lambda p, plan, *rest: drawn(p, replace(plan, sigma=plan.sigma / 100), *rest))
    said = agt(*asked)
    assert said.code == 3, said.err
    said = agt(*asked, "audit.eps=[1]")
    assert said.code == 2
    assert "audit.eps: the run's own noise" in said.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("audit.delta=null",), "audit.delta=null: Gaussian noise gives no pure epsilon"),
        (("audit.batch=41",), "audit.batch=41: more than the 40 records"),
        (("audit.records=5000",), "audit.records=5000: the run has"),
        (("audit.trials=5",), "a side are the least"),
        (("audit.canaries=5000",), "audit.canaries=5000: a head of"),
        (("audit.trainer=noise",), "trained without noise"),
    ],
)
def test_refusals(agt: Agt, trained: Path, words: tuple[str, ...], why: str) -> None:
    trainer = () if "audit.trainer=noise" in words else ("audit.trainer=reference",)
    said = agt("audit", "dpsgd", f"run={trained}", *SMALL, *trainer, "audit.eps=[4]", *words)
    assert said.code == 2
    assert why in said.err


def test_without_a_run_or_without_opacus(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    said = agt("audit", "dpsgd")
    assert said.code == 2
    assert "run=null: name the folder of an agt train run" in said.err
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "opacus" else found(name, *rest))
    said = agt("audit", "dpsgd", "run=somewhere", "audit.trainer=opacus")
    assert said.code == 2
    assert "pip install 'agt-certified[dpsgd]'" in said.err


# -- the adapters ----------------------------------------------------------------------------------------------------------


def opacus(rate: float, hidden: int = 0) -> OpacusTraining:
    records = reference(Reference, 0).records
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inner = [nn.Linear(7, hidden), nn.Tanh()] if hidden else []
        module = nn.Sequential(*inner, nn.Linear(hidden or 7, 1))
    method = DpSgd(batch=rate * len(records), lr=0.5, clip=0.5, epochs=4 * rate)
    return OpacusTraining.of(method, module, "binary_cross_entropy", 2, records, (8.0, 1e-5))


@pytest.mark.skipif(not HAVE, reason="Opacus is not installed")
def test_opacus_takes_the_canaries_as_records() -> None:
    made = replace(opacus(0.5, hidden=2), plan=Plan(0.5, 4, 0.2))
    canaries = CANARIES["gaussian"](2, made.head, made.records, 0)
    inside = np.broadcast_to(np.array([True, False]), (20, 1, 2))
    sight = made.train(canaries, inside)
    assert sight.scores.shape == (20, 4, 2)
    assert (sight.scores[..., 0] - sight.scores[..., 1]).mean() == pytest.approx(0.5, abs=0.35)


@pytest.mark.skipif(not HAVE, reason="Opacus is not installed")
def test_a_quieter_opacus_is_caught() -> None:
    made = opacus(1.0)
    quiet = replace(made, plan=replace(made.plan, noise=made.plan.noise / 6))
    canary, effort = CANARIES["dirac"](1, made.head, made.records, 0), Effort(trials=40, step_runs=5)
    assert judged(quiet, canary, effort, audit(quiet, canary, effort)).violated


@pytest.mark.skipif(not HAVE, reason="Opacus is not installed")
def test_opacus_and_the_reference_see_the_same() -> None:
    """Without noise and at full batches nothing is left to chance: the two, written apart, agree."""
    made = opacus(1.0)
    silent = replace(made, plan=replace(made.plan, noise=0.0))
    records = made.records
    canaries = Canaries("", features=records.features[:2], labels=1 - records.labels[:2])
    inside = np.array([[[True, False]]])
    ours = _Silent(made.claim, made.head, records, 0.5, 0.5)
    one, other = silent.train(canaries, inside), ours.train(canaries, inside)
    for name in ("scores", "reach", "weights", "losses"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-4)


class _Silent(Reference):
    def noise(self, shape: tuple[int, ...], step: int) -> np.ndarray:
        return np.zeros(shape)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_noisy_training_scores_are_the_canary_and_the_noise(
    agt: Agt, relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agt_cli.report.console import Console
    from agt_cli.report.record import RunRecord
    from agt_cli.runs.queries import TrainedRun

    run = agt("train", *TINY, *NOISY, f"relation={relation}", "--json", "-q").json["run"]
    monkeypatch.setattr(RunRecord, "environment", lambda *a, **k: None)
    opened = TrainedRun.of({"run": run, "compute": {"kernel": "reference"}}).open(RunRecord.__new__(RunRecord), Console())
    made = NoisyTraining.of(opened.model, opened.kept.problem.dataset.train.take(np.arange(20)), seed=0)  # type: ignore[arg-type]
    canary = CANARIES["signs"](1, made.head, made.records, 0)
    inside, outside = (made.train(canary, np.full((20, 1, 1), there)) for there in (True, False))
    assert inside.scores.shape == (20, 2, 1)
    assert inside.reach.min() == pytest.approx(1)
    np.testing.assert_allclose(inside.scores - outside.scores, 1, atol=0.05)  # the same noise: the canary alone
    assert outside.scores.mean() == pytest.approx(0, abs=4 * made.claim.noise / np.sqrt(40))
    assert outside.scores.std() == pytest.approx(made.claim.noise, rel=0.4)
