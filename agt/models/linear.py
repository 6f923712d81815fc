"""Linear heads on public features, and the base of the kinds whose sensitivity is proved."""

from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
import torch

from agt.certificates.conditions import Condition, assess
from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.stability import (
    MAX_STABLE_DISTANCE,
    ClosedFormCertificates,
    certify_linear,
    compute_linear_envelope,
)
from agt.data.records import Records
from agt.facts import Fact, Value, proved
from agt.models.closed_form import ClosedFormKind, ClosedFormModel, read_features
from agt.models.features import FeatureMap
from agt.models.store import (
    CONSTANTS,
    MODEL,
    FileReader,
    FileWriter,
    check_constants,
    read_tensors,
    write_linear,
)
from agt.numeric import logits_of, next_up
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.settings import TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress
from agt.training.sensitivity import LinearSetting, Sensitivity
from agt.training.setup import TrainingSetup


@dataclass(frozen=True)
class LinearModel(ClosedFormModel):
    """A linear head on public features, with a bound on how far one record moves its weights.

    Attributes:
        trained: the weights, the loss and plan of training, and the sensitivity.
    """

    trained: LinearTrained

    @property
    def linear_head(self) -> Self:
        """The model itself."""
        return self

    @property
    def release_head(self) -> Self:
        """The model itself."""
        return self

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """Return this head trained on other records.

        Args:
            records: the records, whose features are scaled as in the head's own dataset.
            on_progress: receives the progress.
            checkpoints: where training resumes from and saves its state.
        """
        return self.settings.certificate.retrain(self, records, on_progress, checkpoints)

    def with_weight(self, weight: torch.Tensor) -> Self:
        """Return this head with other weights, [J, w], and with its own sensitivity."""
        trained = replace(self.trained, weight=weight)
        return replace(self, trained=trained)

    def check_constants(self, reader: FileReader) -> None:
        """Raise UnsoundError unless stability.json holds the constants that the settings imply."""
        check_constants(reader, CONSTANTS, self.constants)

    def save(self, store: FileWriter) -> None:
        """Write model.safetensors, features.safetensors and stability.json."""
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)

    @property
    def training(self) -> TrainingConfig:
        """The settings of its training, with numbers in place of what the recipe decides."""
        return self.trained.training

    @property
    def plan(self) -> BatchPlan:
        """The batch plan of its training."""
        return self.trained.plan

    @property
    def constants(self) -> dict[str, float | int | str | None]:
        """The constants that certificates and releases need beside the weights.

        stability.json holds them under these names.
        """
        loss = self.trained.loss
        sensitivity = self.trained.sensitivity
        setting = {
            "certificate": self.settings.certificate.name,
            "relation": self.settings.relation.name,
        }
        of_loss = {
            "kind": loss.kind,
            "outputs": loss.outputs,
            "reach": loss.derivative_bound,
            "smoothness": loss.smoothness,
            "pair": loss.margin_factor,
            "whole": loss.all_classes_factor,
        }
        derived = {
            "rho_fp": sensitivity.rho_fp,
            "per_k": sensitivity.per_k,
            "sensitivity": self.l2_sensitivity,
        }
        return {**setting, **of_loss, **asdict(sensitivity), **derived, **self._recipe_numbers}

    @property
    def l2_sensitivity(self) -> float:
        """A bound on the l2 norm by which one k moves all weights together.

        The noise of a release of the weights is made for it.
        """
        per_class_bound = self.trained.sensitivity.per_k
        return next_up(self.trained.loss.all_classes_factor * per_class_bound)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What is known of conditions a to g, in this order."""
        constants, movement = self.settings.certificate.step_facts(self.trained)
        return self._assess(constants, movement)

    def _assess(self, constants: Fact, movement: Fact) -> tuple[Condition, ...]:
        """Return conditions a to g, in this order.

        Args:
            constants: the fact of condition c, which names the public constants.
            movement: the fact of condition d, which says why one record moves the head so little.
        """
        problem = self.problem
        sensitivity = self.trained.sensitivity
        rounding_share = sensitivity.rounding / sensitivity.rho
        return assess(
            problem.dataset,
            problem.setup,
            self.plan,
            problem.settings.choices,
            every_k=proved("every_k_in_closed_form"),
            constants=constants,
            step=("every step non-expansive", movement),
            rounding=proved("sums_in_float64", share=rounding_share),
            features=self.features.public,
        )

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The number of parameters, and how far one record and one k move the head."""
        sensitivity = self.trained.sensitivity
        return {
            "parameters": self.trained.weight.numel(),
            "rho": sensitivity.rho,
            "rho_fp": sensitivity.rho_fp,
            "moved_by_one_k": sensitivity.per_k,
            "k_max": self.settings.kgrid.ks[-1],
            **self._recipe_numbers,
        }

    @property
    def max_distance(self) -> int:
        """A public number that no stable distance of a query exceeds.

        It is how many moves of one k fit into the diameter of the ball that holds all weights, and
        at least the end of the grid.
        """
        sensitivity = self.trained.sensitivity
        diameter = 2 * sensitivity.radius
        move = self.trained.loss.margin_factor * sensitivity.per_k
        # Compared by multiplying, so that a move of 0 divides nothing.
        if diameter >= MAX_STABLE_DISTANCE * move:
            moves_in_diameter = MAX_STABLE_DISTANCE
        else:
            # One more for the fraction that int() drops, and one more for rounding.
            moves_in_diameter = int(diameter / move) + 2
        return max(self.settings.kgrid.ks[-1], moves_in_diameter)

    @property
    def counting_single_edits(self) -> Self:
        """This head with certificates that count single edits: a unit removed or a unit added.

        Under ``substitute`` one k is both. The certificates are then those of ``add_remove``, bit
        for bit: training, rho and rounding depend on the relation only through how many rows one k
        changes, and a single edit changes ``unit_rows`` of them.
        """
        relation = self.settings.relation
        if RELATIONS[relation.name].touches == 1:
            return self
        sensitivity = replace(self.trained.sensitivity, records_per_edit=relation.unit_rows)
        return replace(self, trained=replace(self.trained, sensitivity=sensitivity))

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the logits [n, J] float64 of queries with public features ``phi`` [n, w]."""
        return logits_of(self.trained.weight, phi)

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Return certificates of queries with public features ``phi`` [n, w], tabulated at ``ks``.

        Of a member of an ensemble of more than two classes, they hold what each other class costs
        as well, which the ensemble's vote needs.
        """
        with_prices = self.settings.ensembled and self.problem.classes > 2
        relation = self.settings.relation.name
        return certify_linear(self.trained, phi, relation, ks, with_prices=with_prices)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on the margin of two classes at each k from 1 to ``MAX_MARGIN_EDITS``.

        Args:
            features: [n, ...] the queries.
            ks: bound it at those of these k that lie in this range; None: at all k in the range.
        """
        candidates = range(1, MAX_MARGIN_EDITS + 1) if ks is None else ks
        bounded_ks = tuple(k for k in candidates if 1 <= k <= MAX_MARGIN_EDITS)
        return compute_linear_envelope(self.trained, self.phi(features), bounded_ks)


class LinearKind(ClosedFormKind):
    """A kind that trains one linear head, whose sensitivity follows from public constants alone.

    A subclass defines ``sensitivity``, ``train`` and ``step_facts``. Certificates, ensembles and
    releases of the weights follow from these.
    """

    covers_retraining = True

    def covers_changed_labels(self) -> bool:
        """Return True: a changed label moves the head by at most what a changed record does."""
        return True

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return a bound on how far one record moves the head, from public constants.

        Args:
            setting: the loss, the batch plan, the width of the features and the relation.

        Raises:
            ConfigError: no proof covers the setting.
        """
        raise NotImplementedError

    def train(
        self,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress,
        checkpoints: Checkpoints,
    ) -> LinearTrained:
        """Train the weights on records that have public features.

        Args:
            setup: how to train.
            records: the records; their features [m, w] are values of the feature map.
            on_progress: receives the progress.
            checkpoints: where training resumes from and saves its state.
        """
        raise NotImplementedError

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> LinearModel:
        """Train the head on the public features of a problem's records.

        Raises:
            ConfigError: the sensitivity is not proved for the settings.
            UnsoundError: training did not reach what its proof needs.
        """
        head = self.untrained_head(problem)
        return self.retrain(head, problem.dataset.train, on_progress, checkpoints)

    def untrained_head(self, problem: Problem, features: FeatureMap | None = None) -> LinearModel:
        """Return the head before training: all weights are 0, and the constants are public.

        Args:
            problem: the settings, and the public rows that the feature map may need.
            features: the public feature map; None: make it from the problem's data.

        Raises:
            ConfigError: the sensitivity is not proved for the settings.
        """
        if features is None:
            features = FeatureMap.from_dataset(self.features, problem.dataset)
        setting = LinearSetting.from_training_setup(
            problem.setup, problem.trained_on, features.outputs
        )
        sensitivity = self.sensitivity(setting)
        zero = torch.zeros((), dtype=torch.float64)
        weight = zero.expand(setting.loss.outputs, setting.width)  # takes no memory
        trained = LinearTrained(weight, setting.loss, setting.plan, sensitivity, setting.training)
        return LinearModel(problem, features, trained)

    def retrain(
        self,
        head: LinearModel,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> LinearModel:
        """Train a head on other records.

        Args:
            head: the settings and the feature map; its weights are not read.
            records: the records, whose features are scaled as in the head's own dataset.
            on_progress: receives the progress.
            checkpoints: where training resumes from and saves its state.
        """
        with_public_features = records.seen_as(head.over(records.features))
        trained = self.train(head.problem.setup, with_public_features, on_progress, checkpoints)
        return replace(head, trained=trained)

    def load(self, problem: Problem, reader: FileReader) -> LinearModel:
        """Read the head back, and check that its constants are those that its settings imply.

        Raises:
            ConfigError: a file is missing, or the sensitivity is not proved for the settings.
            UnsoundError: the recorded constants are not those that the settings imply.
        """
        untrained = self.untrained_head(problem, read_features(problem, reader))
        tensors = read_tensors(reader, MODEL, {"weight": untrained.trained.weight})
        head = untrained.with_weight(tensors["weight"])
        head.check_constants(reader)
        return head

    def check_solved_from_sums(self, mechanism: str) -> None:
        """Accept every mechanism: the head's problem may be solved from sums with noise."""


def movement_values(trained: LinearTrained) -> dict[str, Value]:
    """Return the values that condition d's fact holds about how far one record moves a head.

    Returns:
        ``movement``, the bound rho; ``each_class``, whether rho bounds the weights of each class by
        themselves.
    """
    is_one_vs_all = trained.loss.kind == "one_vs_all"
    return {"movement": trained.sensitivity.rho, "each_class": is_one_vs_all}
