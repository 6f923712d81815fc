"""A linear head for labels that are numbers, which only a release from noisy sums computes.

    head = NumberHead.untrained(problem, features)
    NoisyStatistics(mu=0.3).draw(head, SystemRandomness())      (agt/mechanisms/statistics.py)

Its one output is a number on the scale from -1 to 1 of the declared range. It is never trained
without noise and has no certificates, so nothing of it but the released weights exists.
docs/proofs/statistics.md proves the guarantee of the release.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from agt.certificates.conditions import (
    Condition,
    conditions_from,
    constants_evidence,
    stated_constants,
    symmetric_fact,
)
from agt.certificates.settings import CertificateConfig, ErmConfig, TrainingParts
from agt.data.records import Records
from agt.data.target import NumericTarget, Target
from agt.errors import ConfigError
from agt.facts import evidence, proved
from agt.models.features import FeatureMap
from agt.models.linear import LinearKind, LinearModel
from agt.problem import Problem, Settings
from agt.settings import schema
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress, ignore_progress
from agt.training.sensitivity import LinearLoss, Sensitivity
from agt.training.settings import EnsembleConfig

STEP_NAME = "a record moves each sum by at most 1"
"""The name of condition d (one edit moves bounds by at most one step of k) where sums are released.

``CONDITION_NAMES`` lists it.
"""
# Nothing bounds how far one record moves weights that no training computes.
_UNBOUNDED = Sensitivity(
    rho=math.inf, rounding=0.0, radius=math.inf, rate_limit=None, records_per_edit=1
)
_ONE_OUTPUT = LinearLoss(
    kind="numbers",
    outputs=1,
    derivative_bound=math.inf,
    smoothness=math.inf,
    margin_factor=1.0,
    all_classes_factor=1.0,
)


@schema
class NumberHeadKind(ErmConfig, LinearKind):
    """The settings of a linear head for numbers: the public feature map in front of it.

    No configuration names this kind. ``agt.PrivateRegressor`` makes it, and votes of numbers make
    it for a release of weights.
    """

    trains_in_steps = False

    def check_parts(self, parts: TrainingParts) -> None:
        """Raise ConfigError for settings that no head of numbers takes; it needs no minimiser."""
        CertificateConfig.check_parts(self, parts)

    def check_objective_perturbation(self, mechanism: str) -> None:
        """Raise ConfigError, because the loss is squared error; arguments as the base class's."""
        CertificateConfig.check_objective_perturbation(self, mechanism)

    def check_target(self, target: Target, settings: Settings) -> None:
        """Raise ConfigError unless labels are numbers."""
        _numbers_of(target)  # called because it raises if labels are classes

    def untrained_head(self, problem: Problem, features: FeatureMap | None = None) -> "NumberHead":
        """Return the head before a release, with weights of 0.

        Args:
            problem: all settings, and the public rows that some feature maps are made from.
            features: the public feature map; None: make it from the problem's public rows.
        """
        if features is None:
            features = FeatureMap.from_dataset(self.features, problem.dataset)
        training = problem.settings.training
        plan = BatchPlan.from_settings(
            replace(training.batch, count=1), 1, problem.dataset.declared_size, problem.record_count
        )
        weight = torch.zeros((1, features.outputs), dtype=torch.float64)
        trained = LinearTrained(weight, _ONE_OUTPUT, plan, _UNBOUNDED, training)
        return NumberHead(problem, features, trained)

    def retrain(
        self,
        head: LinearModel,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> LinearModel:
        """Return the head unchanged: only a release computes weights, from its problem's records.

        Args:
            head: a linear head.
            records: not read.
            on_progress: not called.
            checkpoints: not used.
        """
        return head


@dataclass(frozen=True)
class NumberHead(LinearModel):
    """A linear head with one output, a number on the scale from -1 to 1 of the declared range."""

    @classmethod
    def untrained_for(cls, problem: Problem, features: FeatureMap) -> "NumberHead":
        """Return the untrained head on the records and the feature map of another model.

        Args:
            problem: the problem of the other model; its certificate is not read.
            features: the other model's public feature map.
        """
        kind = NumberHeadKind(features=features.config)
        settings = replace(problem.settings, certificate=kind, ensemble=EnsembleConfig())
        return kind.untrained_head(replace(problem, settings=settings), features)

    @property
    def numbers(self) -> NumericTarget:
        """The declared range of the labels."""
        return _numbers_of(self.problem.dataset.target)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order."""
        dataset = self.problem.dataset
        settings = self.settings
        stated = stated_constants(self.plan, "sums_stated")
        evidence_of = {
            # sums are bounded for every k
            "a": evidence(proved("sums_need_no_grid")),
            # each record is processed by itself
            "b": dataset.selection.with_facts(proved("batches_by_hash")),
            # all constants are public
            "c": constants_evidence(dataset, settings.training, self.plan, stated),
            # one edit moves each sum by a bounded amount
            "d": evidence(proved("sums_bounded", rows=settings.relation.unit_rows)),
            # preprocessing and settings are public
            "e": dataset.preprocessing.with_facts(*self.features.facts, settings.choices),
            # no rounding error is left out
            "f": evidence(proved("sums_exact")),
            # if D' is a neighbour of D, then D is one of D'
            "g": evidence(symmetric_fact(settings.relation)),
        }
        return conditions_from(evidence_of, STEP_NAME)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the number that the weights give for each query, [n] float64, within the range.

        Args:
            features: [n, ...] the queries.
        """
        return self.numbers.unscaled(self._all_logits(features)[:, 0])


def _numbers_of(target: Target) -> NumericTarget:
    """Return the declared range of labels that are numbers.

    Raises:
        ConfigError: labels are classes.
    """
    if target.numeric is None:
        raise ConfigError(
            "this model answers with numbers, but the labels are classes: give numbers as labels, "
            "or use a model for classes"
        )
    return target.numeric
