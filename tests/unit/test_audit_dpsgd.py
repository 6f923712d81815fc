"""Audits of training with noise: canaries, sights that are what they say, bounds that hold, and
trials that suffice.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import make_records
from torch import nn

from agt.errors import ConfigError
from agt.kernels.reference import ReferenceKernel
from agt_audit.canaries import CANARY_NORM, DESCRIPTIONS, CanaryHead, canaries_of
from agt_audit.dpsgd import TrainingEffort, audit_training, judge_training
from agt_audit.selftest import small_noisy_training
from agt_cli.report.findings import Outcome


def head_of(outputs: int = 1, loss: str = "binary_cross_entropy") -> CanaryHead:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CanaryHead(nn.Sequential(nn.Linear(5, outputs)).double(), loss)


def pool(n: int = 30, classes: int = 2) -> Any:
    rng = np.random.default_rng(0)
    return make_records(rng.normal(size=(n, 5)), rng.integers(0, classes, n))


def test_gradients_record_by_record() -> None:
    head = head_of()
    data = pool(7)
    gradients = head.gradients(head.initial, data.features, data.labels)
    logits = data.features @ head.initial[:5] + head.initial[5]
    residuals = 1 / (1 + np.exp(-logits)) - data.labels
    np.testing.assert_allclose(
        gradients, residuals[:, None] * np.column_stack([data.features, np.ones(7)]), atol=1e-12
    )
    with pytest.raises(ConfigError, match=r"training\.loss=squared_error"):
        head_of(loss="squared_error")


@pytest.mark.parametrize("kind", DESCRIPTIONS)
def test_canaries(kind: str) -> None:
    head = head_of(3, "cross_entropy")
    data = pool(classes=3)
    made = canaries_of(kind, 4, head, data, 0)
    assert len(made) == len(made.records)
    if made.gradients is None:
        assert made.records.features.shape[1:] == (5,)
    elif kind != "signs":
        np.testing.assert_allclose(
            made.gradients @ made.gradients.T, CANARY_NORM**2 * np.eye(4), atol=1e-9
        )
    with pytest.raises(ConfigError, match=r"\b30\b|\b18\b"):
        canaries_of(kind, 31, head, data, 0)


def test_diracs_lie_where_the_data_is_silent() -> None:
    data = pool(20)
    silent = replace(data, features=data.features * (np.arange(5) != 3))
    made = canaries_of("dirac", 1, head_of(), silent, 0)
    assert made.gradients[0].argmax() == 3


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_scores_are_the_canary_and_the_noise(relation: str) -> None:
    made = small_noisy_training(0, relation=relation)
    canary = made.canaries("signs", 1, 0)
    inside, outside = (made.train(canary, np.full((20, 1, 1), there)) for there in (True, False))
    assert inside.scores.shape == (20, 2, 1)
    assert inside.reach.min() == pytest.approx(1)
    # the same noise: the canary alone
    np.testing.assert_allclose(inside.scores - outside.scores, 1, atol=0.05)
    assert outside.scores.mean() == pytest.approx(0, abs=4 * made.noise_multiplier / np.sqrt(40))
    assert outside.scores.std() == pytest.approx(made.noise_multiplier, rel=0.4)


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("signs", Outcome.NOT_CONTRADICTED), ("mislabelled", Outcome.VIOLATED)],
)
def test_only_canaries_that_are_records_detect_a_missing_clip(
    kind: str, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = small_noisy_training(0, spread=4.0)  # gradients of records exceed the clip level

    def unclipped_sum(
        kernel: ReferenceKernel, output_gradient: torch.Tensor, inputs: torch.Tensor | None
    ) -> torch.Tensor:
        if inputs is None:
            return output_gradient.sum(dim=0).round().long()
        return (output_gradient.T @ inputs).round().long()

    monkeypatch.setattr(ReferenceKernel, "nominal_sum", unclipped_sum)
    canary = trainer.canaries(kind, 1, 0)
    effort = TrainingEffort(trials=60, step_runs=4)
    bounds = audit_training(trainer, canary, effort, None).bounds
    assert judge_training(trainer, canary, effort, bounds).outcome is outcome
