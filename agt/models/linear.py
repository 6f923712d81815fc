"""Linear heads on public features, and the base class of the kinds that train one.

The sensitivity of a head is a proved bound on the l2 distance between its weights and those that
training on a neighbouring dataset gives.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, assess
from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.stability import (
    MAX_STABLE_DISTANCE,
    ClosedFormCertificates,
    certify_linear,
    compute_linear_envelope,
    labels_from_codes,
)
from agt.data.records import Records
from agt.facts import Fact, Value, proved
from agt.models.closed_form import ClosedFormKind, ClosedFormModel, read_features
from agt.models.features import FeatureMap
from agt.models.store import (
    CONSTANTS,
    MODEL,
    FileWriter,
    check_constants,
    read_tensors,
    write_linear,
)
from agt.numeric import logits_of, next_up, signed_margins
from agt.problem import Problem
from agt.settings import TrainingConfig
from agt.store.folder import Folder
from agt.store.json_text import Metrics
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress, ignore_progress
from agt.training.sensitivity import LinearSetting, Sensitivity
from agt.training.setup import TrainingSetup


@dataclass(frozen=True)
class LinearModel(ClosedFormModel):
    """A trained linear head on public features, with a bound on how far one record moves it.

    Attributes:
        trained: the weights [J, w], the loss, the batch plan, and the sensitivity (the bound on the
            l2 distance between these weights and those of training on a neighbouring dataset).
    """

    trained: LinearTrained

    @property
    def linear_head(self) -> Self:
        """The model itself: its weights may be released with noise."""
        return self

    @property
    def release_head(self) -> Self:
        """The model itself: a release may train it again, with noise in its sums or objective."""
        return self

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> "LinearModel":
        """Train a head on other records with the same settings and feature map, and return it.

        Args:
            records: the records to train on, with features [m, ...] on the scale of this head's own
                dataset.
            on_progress: called with the progress of training.
            checkpoints: where training saves its state, and resumes if it was interrupted.
        """
        return self.settings.certificate.retrain(self, records, on_progress, checkpoints)

    def with_weight(self, weight: torch.Tensor) -> Self:
        """Return a copy of this head with other weights [J, w]; its sensitivity is unchanged.

        The caller must know that the sensitivity holds for these weights.
        """
        trained = replace(self.trained, weight=weight)
        return replace(self, trained=trained)

    def check_constants(self, reader: Folder) -> None:
        """Raise UnsoundError unless the recorded constants equal those of this head.

        Args:
            reader: the folder of a saved head; its stability.json holds the recorded constants.
        """
        check_constants(reader, CONSTANTS, self.constants)

    def save(self, store: FileWriter) -> None:
        """Write the head's files: model.safetensors, features.safetensors and stability.json.

        They hold the weights, the matrices of the feature map, and ``constants``.
        """
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)

    @property
    def training(self) -> TrainingConfig:
        """The training settings; those left to the recipe (agt's defaults) are numbers here."""
        return self.trained.training

    @property
    def plan(self) -> BatchPlan:
        """The plan of the batches that the head was trained on."""
        return self.trained.plan

    @property
    def constants(self) -> dict[str, float | int | str | None]:
        """The public constants of the head by name, as stability.json records them.

        They say how far a change of the training records can move the weights and a margin. A
        distance is the l2 norm of the difference of two weight matrices; for the loss
        ``one_vs_all``, of two rows of them (the weights of one class). One edit is one unit of k,
        which the relation defines.
        """
        loss = self.trained.loss
        sensitivity = self.trained.sensitivity
        # The keys and their order are the file's format. No key occurs twice.
        constants: dict[str, float | int | str | None] = {
            "certificate": self.settings.certificate.name,
            "relation": self.settings.relation.name,
            "kind": loss.kind,  # binary, one_vs_all or softmax
            "outputs": loss.outputs,  # J, the number of logits
            # Bound on the norm of the loss's derivative in the logits, and its Lipschitz constant.
            "reach": loss.derivative_bound,
            "smoothness": loss.smoothness,
            # A margin at features of norm 1 moves by at most "pair" times the weights' distance,
            # all classes' weights together by at most "whole" times this distance.
            "pair": loss.margin_factor,
            "whole": loss.all_classes_factor,
            # How far one record moves the weights in exact arithmetic, and how far apart rounding
            # can drive two runs on the same records.
            "rho": sensitivity.rho,
            "rounding": sensitivity.rounding,
            "radius": sensitivity.radius,  # bound on the norm of the weights
            "rate_limit": sensitivity.rate_limit,  # largest learning rate; None: there are no steps
            "rows": sensitivity.records_per_edit,  # the records that one edit changes
            # How far one record, and one edit, move the computed weights.
            "rho_fp": sensitivity.rho_fp,
            "per_k": sensitivity.per_k,
            # How far one edit moves the weights of all classes together.
            "sensitivity": self.l2_sensitivity,
        }
        # Named "recipe.SETTING", so that they replace none of the constants above.
        return constants | self._recipe_numbers

    @property
    def l2_sensitivity(self) -> float:
        """A bound on the l2 norm by which one edit changes the weights of all classes together.

        One edit is one unit of k, which the relation defines. Noise on released weights is scaled
        to this bound, so it is rounded up.
        """
        # For the loss one_vs_all this bounds the weights of one class, for other losses all
        # weights, and there the factor is 1.
        per_class_bound = self.trained.sensitivity.per_k
        return next_up(self.trained.loss.all_classes_factor * per_class_bound)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, a to g (docs/method.md), in this order.

        Each says whether it is proved, declared by the user, or not met, and from which facts.
        """
        constants, movement = self.settings.certificate.step_facts(self.trained)
        return self._assess(constants, movement)

    def _assess(self, constants: Fact, movement: Fact) -> tuple[Condition, ...]:
        """Return the seven conditions of a privacy guarantee, each with its evidence.

        They are conditions a to g of docs/method.md, in this order.

        Args:
            constants: the fact which public constants training was given (for condition c: all
                constants are public).
            movement: the fact why one record moves the head by at most the sensitivity (for
                condition d: one edit moves bounds by at most one step of k).
        """
        problem = self.problem
        sensitivity = self.trained.sensitivity
        # Shown with the fact that the sensitivity includes the rounding errors.
        rounding_share = sensitivity.rounding / sensitivity.rho
        return assess(
            problem.dataset,
            problem.setup,
            self.plan,
            problem.settings.choices,
            every_k=proved("every_k_in_closed_form"),
            constants=constants,
            name_of_condition_d="every step non-expansive",
            step=movement,
            rounding=proved("sums_in_float64", share=rounding_share),
            features=self.features.facts,
        )

    @property
    def metrics(self) -> Metrics:
        """Facts about the head for a run's metrics, such as the bound on one edit's effect."""
        sensitivity = self.trained.sensitivity
        metrics: Metrics = {
            "parameters": self.trained.weight.numel(),
            # How far one record moves the weights: in exact arithmetic, and as computed.
            "rho": sensitivity.rho,
            "rho_fp": sensitivity.rho_fp,
            # How far one edit (one unit of k, which the relation defines) moves them.
            "moved_by_one_k": sensitivity.per_k,
            "k_max": self.settings.kgrid.ks[-1],  # the end of the grid
        }
        # Named "recipe.SETTING", so that they replace none of the metrics above.
        return metrics | self._recipe_numbers

    @property
    def max_distance(self) -> int:
        """A public upper bound on the stable distance of every query.

        The stable distance of a query is the largest number of edits of the training records that
        cannot change its label. A margin is at most ``diameter``, and one edit moves it by at most
        ``margin_change``, so their quotient is an upper bound. The result is never below the last k
        of the grid.
        """
        sensitivity = self.trained.sensitivity
        diameter = 2 * sensitivity.radius  # radius bounds the norm of the weights
        margin_change = self.trained.loss.margin_factor * sensitivity.per_k
        # Compared without a division, because margin_change may be 0.
        if diameter >= MAX_STABLE_DISTANCE * margin_change:
            edits_in_diameter = MAX_STABLE_DISTANCE
        else:
            # One more because int() rounds down, and one more for the rounding of the quotient.
            edits_in_diameter = int(diameter / margin_change) + 2
        return max(self.settings.kgrid.ks[-1], edits_in_diameter)

    @property
    def counting_single_edits(self) -> Self:
        """This head with certificates in which one edit removes one unit or adds one unit.

        Under ``substitute`` one edit does both, so that it moves twice as many rows. There the
        certificates become those of ``add_remove``, bit for bit: training, rho and rounding depend
        on the relation only through the number of rows that one edit changes.
        """
        one_edit_changes_one_unit = self.members_per_edit == 1
        if one_edit_changes_one_unit:
            return self
        unit_rows = self.settings.relation.unit_rows
        sensitivity = replace(self.trained.sensitivity, records_per_edit=unit_rows)
        trained = replace(self.trained, sensitivity=sensitivity)
        return replace(self, trained=trained)

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """Return the logits [n, J] float64 of queries with public features ``phi`` [n, w]."""
        return logits_of(self.trained.weight, phi)

    def _block_labels(self, features: np.ndarray) -> np.ndarray:
        """Return the labels of a block of queries, [n] int64, from their codes where these suffice.

        Args:
            features: [n, ...] the queries.
        """
        self.check(features)
        coded = self.features.coded(features, self.settings.training.dtype)
        labels = None if coded is None else labels_from_codes(self.trained, coded)
        return super()._block_labels(features) if labels is None else labels

    def certify_phi(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Return the labels of queries, and the numbers of edits that cannot change them.

        For a member of an ensemble with more than two classes, the certificates also hold the
        number of edits that each other class needs to win, because the ensemble's vote needs it.
        For a head of its own they hold the logits, of which ``certified_margins`` are made.

        Args:
            phi: [n, w] the values of the public feature map for the queries.
            ks: the numbers of edits at which ``certified`` of the result is tabulated.
        """
        ensembled = self.settings.ensembled
        return certify_linear(
            self.trained,
            phi,
            self.settings.relation.name,
            ks,
            with_edits_to_win=ensembled and self.problem.classes > 2,
            with_logits=not ensembled,  # which a vote would hold of each of its members
        )

    def certified_margins(self, features: np.ndarray, certificates: Certificates) -> np.ndarray:
        """Return ``margins`` of queries that were certified, to the same bits.

        They are made of the logits of the certificates, if these have them. Certificates were made
        in the blocks of rows in which ``margins`` computes logits.

        Args:
            features: [n, ...] the queries.
            certificates: the certificates of these queries, as ``certify`` of this model returned
                them.
        """
        if not isinstance(certificates, ClosedFormCertificates) or certificates.logits is None:
            return self.margins(features)
        return signed_margins(certificates.logits)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """Return bounds on each query's margin of class 1 after k edits of the training records.

        Args:
            features: [n, ...] the queries.
            ks: the numbers of edits; values outside of 1 to ``MAX_MARGIN_EDITS`` are skipped. None:
                all values in this range.
        """
        candidates = range(1, MAX_MARGIN_EDITS + 1) if ks is None else ks
        bounded_ks = tuple(k for k in candidates if 1 <= k <= MAX_MARGIN_EDITS)
        return compute_linear_envelope(self.trained, self.phi(features), bounded_ks)


class LinearKind(ClosedFormKind):
    """A kind of certificate that trains one linear head with a sensitivity from public constants.

    A subclass defines ``sensitivity``, ``train`` and ``step_facts``. This class derives from them
    the certificates, the ensembles and the releases of the weights.
    """

    covers_retraining = True

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return bounds on how far one record moves the weights, computed from public constants.

        Every kind of linear head overrides it; this default raises NotImplementedError.

        Args:
            setting: the loss, the batch plan, the number of features and the relation.

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
        """Train the weights on records whose features are the public ones.

        Every kind of linear head overrides it; this default raises NotImplementedError.

        Args:
            setup: the loss, the steps, the batches and the relation.
            records: the records; their features [m, w] are values of the feature map, of norm at
                most 1.
            on_progress: called with the progress of training.
            checkpoints: where training saves its state, and resumes if it was interrupted.
        """
        raise NotImplementedError

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> LinearModel:
        """Train a linear head on the public features of a problem's training records.

        Args:
            problem: the training records and all settings.
            on_progress: called with the progress of training.
            checkpoints: where training saves its state, and resumes if it was interrupted.

        Raises:
            ConfigError: no proof of the sensitivity covers the settings.
            UnsoundError: the solver missed the tolerance that the proof assumes, or a weight is not
                finite.
        """
        head = self.untrained_head(problem)
        return self.retrain(head, problem.dataset.train, on_progress, checkpoints)

    def untrained_head(self, problem: Problem, features: FeatureMap | None = None) -> LinearModel:
        """Return the head before training, with weights of 0 and its final sensitivity.

        The sensitivity depends on public constants only, so it is known before training.

        Args:
            problem: all settings, and the public rows that some feature maps are made from.
            features: the public feature map; None: make it from the problem's public rows.

        Raises:
            ConfigError: no proof of the sensitivity covers the settings.
        """
        if features is None:
            features = FeatureMap.from_dataset(self.features, problem.dataset)
        setting = LinearSetting.from_training_setup(
            problem.setup, problem.record_count, features.outputs
        )
        sensitivity = self.sensitivity(setting)
        zero = torch.zeros((), dtype=torch.float64)
        weight = zero.expand(setting.loss.outputs, setting.width)  # a view of one number
        trained = LinearTrained(
            weight=weight,
            loss=setting.loss,
            plan=setting.plan,
            sensitivity=sensitivity,
            training=setting.training,
        )
        return LinearModel(problem, features, trained)

    def retrain(
        self,
        head: LinearModel,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> LinearModel:
        """Train a linear head on other records with a head's settings and feature map.

        Args:
            head: the head that has the settings and the feature map; its weights are not read.
            records: the records to train on, with features [m, ...] on the scale of the head's own
                dataset.
            on_progress: called with the progress of training.
            checkpoints: where training saves its state, and resumes if it was interrupted.
        """
        # The feature map's values replace the features; labels, ids and units stay.
        public_features = head.phi_of_records(records.features)
        training_records = records.with_features(public_features)
        trained = self.train(head.problem.setup, training_records, on_progress, checkpoints)
        return replace(head, trained=trained)

    def load(self, problem: Problem, reader: Folder) -> LinearModel:
        """Read a saved head back, and check its constants against those that its settings imply.

        Args:
            problem: the settings and data that the head was trained with; only settings and public
                rows are read.
            reader: the folder that ``LinearModel.save`` wrote.

        Raises:
            ConfigError: a file is missing, or no proof of the sensitivity covers the settings.
            UnsoundError: a recorded constant differs from the one that the settings imply, or a
                tensor has another shape or is not finite.
        """
        untrained = self.untrained_head(problem, read_features(problem, reader))
        tensors = read_tensors(reader, MODEL, {"weight": untrained.trained.weight})
        head = untrained.with_weight(tensors["weight"])
        head.check_constants(reader)
        return head


def movement_values(trained: LinearTrained) -> dict[str, Value]:
    """Return two values of the fact that says how far one record moves a linear head.

    Returns:
        ``movement``: rho, a bound on the l2 norm in exact arithmetic. ``each_class``: True if rho
        bounds each class's weights separately, False if it bounds all weights together.
    """
    is_one_vs_all = trained.loss.kind == "one_vs_all"
    return {"movement": trained.sensitivity.rho, "each_class": is_one_vs_all}
