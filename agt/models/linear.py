"""A linear head on public features, and the kinds that train one whose sensitivity is proved
beforehand.
"""

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
from agt.training.recipe import Recipe
from agt.training.sensitivity import LinearSetting, Sensitivity


@dataclass(frozen=True)
class LinearModel(ClosedFormModel):
    """A feature map, a linear head on top of it, and how far one record moves the head."""

    trained: LinearTrained

    @property
    def linear_head(self) -> Self:
        """Itself."""
        return self

    @property
    def release_head(self) -> Self:
        """Itself."""
        return self

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """Return the same head trained on these records, whose features are as the dataset
        scales them.
        """
        return self.settings.certificate.retrain(self, records, on_progress, checkpoints)

    def with_weight(self, weight: torch.Tensor) -> Self:
        """The same head with other weights [J, w]; what one record moves them by is this head's."""
        return replace(self, trained=replace(self.trained, weight=weight))

    def check_constants(self, shelf: FileReader) -> None:
        """Raise UnsoundError unless the recorded constants are those that the configuration
        implies.
        """
        check_constants(shelf, CONSTANTS, self.constants)

    def save(self, store: FileWriter) -> None:
        """model.safetensors, features.safetensors and stability.json."""
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)

    @property
    def training(self) -> TrainingConfig:
        """How it was trained, with numbers for what the settings left to the recipe."""
        return self.trained.training

    @property
    def plan(self) -> BatchPlan:
        """The batch plan."""
        return self.trained.plan

    @property
    def constants(self) -> dict[str, float | int | str | None]:
        """What a certificate or a release of the weights needs beside the weights, as in
        stability.json.
        """
        loss, sensitivity = self.trained.loss, self.trained.sensitivity
        facts = {
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
            "sensitivity": self.moves,
        }
        return {**facts, **of_loss, **asdict(sensitivity), **derived, **self._recipe_numbers}

    @property
    def moves(self) -> float:
        """What one k moves all the weights by together, l2: the measure of the noise that
        releases them.
        """
        return next_up(self.trained.loss.all_classes_factor * self.trained.sensitivity.per_k)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        return self._assessed(*self.settings.certificate.step_facts(self.trained))

    def _assessed(self, constants: Fact, moves: Fact) -> tuple[Condition, ...]:
        """Conditions a-g.

        Args:
            constants: which public constants the configuration states (condition c).
            moves: why one record moves the head by so little (condition d).
        """
        problem, sensitivity = self.problem, self.trained.sensitivity
        return assess(
            problem.dataset,
            problem.recipe,
            self.plan,
            problem.settings.choices,
            every_k=proved("every_k_in_closed_form"),
            constants=constants,
            step=("every step non-expansive", moves),
            rounding=proved("sums_in_float64", share=sensitivity.rounding / sensitivity.rho),
            features=self.features.public,
        )

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, and how far one record moves the head."""
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
        """How many moves of per_k fit into twice the longest weights that there can be; at least
        the end of the grid.
        """
        reach, move = (
            2 * self.trained.sensitivity.radius,
            self.trained.loss.margin_factor * self.trained.sensitivity.per_k,
        )
        most = MAX_STABLE_DISTANCE if reach >= MAX_STABLE_DISTANCE * move else int(reach / move) + 2
        return max(self.settings.kgrid.ks[-1], most)

    @property
    def counting_single_edits(self) -> Self:
        """The same head, its certificates counting single edits, a unit gone or a unit come, where
        one k is both.

        They are those of add_remove, to the bit: training, rho and rounding know nothing of the
        relation but how many rows one k moves, and a single edit moves ``unit_rows``.
        """
        sensitivity, rows = self.trained.sensitivity, self.settings.relation.unit_rows
        if RELATIONS[self.settings.relation.name].touches == 1:
            return self
        return replace(
            self, trained=replace(self.trained, sensitivity=replace(sensitivity, rows=rows))
        )

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        return logits_of(self.trained.weight, phi)

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        priced = self.settings.ensembled and self.problem.classes > 2
        return certify_linear(
            self.trained, phi, self.settings.relation.name, ks, with_prices=priced
        )

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """At every k as far as a margin vote looks, or at these."""
        some = range(1, MAX_MARGIN_EDITS + 1) if ks is None else ks
        return compute_linear_envelope(
            self.trained, self.phi(features), tuple(k for k in some if 1 <= k <= MAX_MARGIN_EDITS)
        )


class LinearKind(ClosedFormKind):
    """A kind that trains one linear head, whose sensitivity follows from public constants alone.

    A kind of its own says the sensitivity, the training and condition d's reason; everything else,
    ensembles and releases of weights among it, follows.
    """

    covers_retraining = True

    def covers_changed_labels(self) -> bool:
        """Return True: a label that changes is a record moved, whose sensitivity is known."""
        return True

    def sensitivity(self, setting: LinearSetting) -> Sensitivity:
        """Return how far one record moves the head.

        Raises:
            ConfigError: the configuration is one that no proof covers.
        """
        raise NotImplementedError

    def train(
        self, recipe: Recipe, records: Records, on_progress: OnProgress, checkpoints: Checkpoints
    ) -> LinearTrained:
        """Return the head trained on records whose features are public ones already."""
        raise NotImplementedError

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> LinearModel:
        """Train the head on the public features of a problem's records."""
        return self.retrain(
            self.untrained_head(problem), problem.dataset.train, on_progress, checkpoints
        )

    def untrained_head(self, problem: Problem, features: FeatureMap | None = None) -> LinearModel:
        """Return the head before training, all weights 0: its public constants are those of any
        run.

        Raises:
            ConfigError: the configuration is one whose sensitivity is not proved.
        """
        if features is None:
            features = FeatureMap.from_dataset(self.features, problem.dataset)
        setting = LinearSetting.from_recipe(problem.recipe, problem.trained_on, features.outputs)
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
        """Train a head on records, whose features are as the dataset scales them."""
        seen = records.seen_as(head.over(records.features))
        return replace(
            head, trained=self.train(head.problem.recipe, seen, on_progress, checkpoints)
        )

    def load(self, problem: Problem, reader: FileReader) -> LinearModel:
        """Read the head back, and check that its constants are those that its configuration
        implies.

        Raises:
            ConfigError: a file is missing, or the configuration is one whose sensitivity is not
                proved.
            UnsoundError: the recorded constants are not the configuration's.
        """
        head = self.untrained_head(problem, read_features(problem, reader))
        head = head.with_weight(
            read_tensors(reader, MODEL, {"weight": head.trained.weight})["weight"]
        )
        head.check_constants(reader)
        return head

    def check_solved_anew(self, mechanism: str) -> None:
        """Accept: the head's records may be summed up with noise, and its problem solved from
        the sums.
        """


def movement_values(trained: LinearTrained) -> dict[str, Value]:
    """Return how far one record moves the parameters of a head, as values of condition d's fact."""
    return {"movement": trained.sensitivity.rho, "each_class": trained.loss.kind == "one_vs_all"}
