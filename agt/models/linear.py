"""A linear head whose certificates are in closed form: trained by SGD (stability) or to the minimiser (erm)."""

from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Self, cast

import numpy as np
import torch

from agt.certificates.box import REACH, Certificates, Envelope
from agt.certificates.conditions import Condition, assess
from agt.certificates.stability import FARTHEST, ClosedForm, certify_linear, envelope_linear, logits_of
from agt.data.dataset import ROWS, Records, gathered
from agt.distributed import group
from agt.facts import proved
from agt.models.features import FeatureMap
from agt.models.store import CONSTANTS, FEATURES, MODEL, FileReader, FileWriter, check_constants, read_tensors, write_linear
from agt.numeric import labels_of, next_up, signed_margins
from agt.problem import Problem, Settings
from agt.settings import ErmConfig, StabilityConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.erm import erm_sensitivity, train_erm
from agt.training.linear import LinearSetting, LinearTrained, numbers_of, sgd_sensitivity, train_linear
from agt.training.loop import NoisePlan, OnProgress, counted, learning_rate


@dataclass(frozen=True)
class ClosedFormModel:
    """A head on public features, whose stable distances are in closed form (a ``models.model.Model``)."""

    problem: Problem
    features: FeatureMap
    noise: ClassVar[NoisePlan | None] = None
    instant: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Train on the public features."""
        features = FeatureMap.of(problem.settings.certificate.features, problem.dataset)
        return cls.untrained(problem, features).retrained(problem.dataset.train, on_progress, checkpoints)

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> Self:
        """The head before training: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one that no proof covers.
        """
        raise NotImplementedError

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """The head trained on these records, whose features are as the dataset scales them."""
        raise NotImplementedError

    @property
    def settings(self) -> Settings:
        """The problem's."""
        return self.problem.settings

    @property
    def words(self) -> tuple[str, ...]:
        """What may be said of noise in it, a line each; nothing where it has none."""
        return ()

    @property
    def training(self) -> TrainingConfig:
        """How it was trained, with numbers for what the settings left to the recipe."""
        raise NotImplementedError

    @property
    def _recipe_numbers(self) -> dict[str, float | int]:
        """What the recipe decided, under ``recipe.NAME``; nothing where every setting was a number."""
        return numbers_of(self.training, self.settings.training.by_recipe)

    def phi(self, features: np.ndarray) -> np.ndarray:
        """[n, w] public features of norm at most 1."""
        return self.features(features, self.settings.training.dtype)

    def over(self, features: np.ndarray) -> np.ndarray:
        """The same of training records, for whoever takes slices of them again and again (``FeatureMap.over``)."""
        return self.features.over(features, self.settings.training.dtype, self.settings.compute.memory_mb)

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width; whatever is finite has features."""
        self.phi(features[:0])

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        raise NotImplementedError

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedForm:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        raise NotImplementedError

    def _all_logits(self, features: np.ndarray) -> np.ndarray:
        parts = group().shared(len(features), ROWS, lambda rows: self.logits(self.phi(features[rows])))
        return gathered(parts, len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        return labels_of(self._all_logits(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] the logit, or logit difference, of two classes; else [classes, n] each logit less the best other."""
        return signed_margins(self._all_logits(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Stable distances; at some k, tabulated there alone and no farther than the last."""
        relation, grid, count = self.settings.relation.name, ks or self.settings.kgrid.ks, len(features)
        parts = group().shared(
            count, ROWS, lambda rows: self.certified(self.phi(features[rows]), grid), counted(on_progress, count)
        )
        known = ClosedForm.joined(parts, count)
        return known if ks is None else Certificates(grid, relation, known.prediction, np.asarray(known.certified))


def read_features(problem: Problem, shelf: FileReader) -> FeatureMap:
    """The public feature map of a saved model. Raises ConfigError: its file is missing or damaged."""
    width = int(np.prod(problem.dataset.train.features.shape[1:]))
    blank = FeatureMap.blank(problem.settings.certificate.features, width)
    return blank.with_matrices(read_tensors(shelf, FEATURES, blank.matrices))


@dataclass(frozen=True)
class LinearModel(ClosedFormModel):
    """A feature map, a linear head on top of it, and how far one record moves the head."""

    trained: LinearTrained

    @property
    def linear_head(self) -> Self:
        """Itself."""
        return self

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> Self:
        """The head before training, all weights 0: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one whose sensitivity is not proved.
        """
        config = problem.settings.certificate
        setting = LinearSetting.of(problem.recipe, problem.trained_on, features.outputs, features.slack)
        if config.minimiser:
            sensitivity = erm_sensitivity(setting, cast(ErmConfig, config).tolerance)
        else:
            sensitivity = sgd_sensitivity(setting, cast(StabilityConfig, config).average)
        zeros = torch.zeros((setting.loss.outputs, setting.width), dtype=torch.float64)
        return cls(problem, features, LinearTrained(zeros, setting.loss, setting.plan, sensitivity, setting.training))

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """The same head trained on these records, whose features are as the dataset scales them."""
        config, recipe, slack = self.settings.certificate, self.problem.recipe, self.features.slack
        seen = records.seen_as(self.over(records.features))
        if config.minimiser:
            trained = train_erm(recipe, seen, slack, cast(ErmConfig, config).tolerance, on_progress, checkpoints)
        else:
            trained = train_linear(recipe, seen, slack, cast(StabilityConfig, config).average, on_progress, checkpoints)
        return replace(self, trained=trained)

    def with_weight(self, weight: torch.Tensor) -> Self:
        """The same head with other weights [J, w]; what one record moves them by is this head's."""
        return replace(self, trained=replace(self.trained, weight=weight))

    @classmethod
    def load(cls, problem: Problem, shelf: FileReader) -> Self:
        """Read the head back, and check that its constants are those that its configuration implies.

        Raises:
            ConfigError: a file is missing, or the configuration is one whose sensitivity is not proved.
            UnsoundError: the recorded constants are not the configuration's.
        """
        model = cls.untrained(problem, read_features(problem, shelf))
        model = model.with_weight(read_tensors(shelf, MODEL, {"weight": model.trained.weight})["weight"])
        model.check_constants(shelf)
        return model

    def check_constants(self, shelf: FileReader) -> None:
        """Raise UnsoundError unless the recorded constants are those that the configuration implies."""
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
        """What a certificate or a release of the weights needs beside the weights, as in stability.json."""
        loss, sensitivity = self.trained.loss, self.trained.sensitivity
        facts = {"certificate": self.settings.certificate.name, "relation": self.settings.relation.name}
        derived = {"rho_fp": sensitivity.rho_fp, "per_k": sensitivity.per_k, "sensitivity": self.moves}
        return {**facts, **asdict(loss), **asdict(sensitivity), **derived, **self._recipe_numbers}

    @property
    def moves(self) -> float:
        """What one k moves all the weights by together, l2: the measure of the noise that releases them."""
        return next_up(self.trained.loss.whole * self.trained.sensitivity.per_k)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        return self._assessed(*_words(self.settings, self.trained))

    def _assessed(self, constants: str, moves: str) -> tuple[Condition, ...]:
        """Conditions a-g.

        Args:
            constants: in words, the public constants beside the batch plan's (condition c).
            moves: in words, why one record moves the head by so little (condition d).
        """
        problem, sensitivity = self.problem, self.trained.sensitivity
        rounding = f"float64 sums: rounding adds {sensitivity.rounding / sensitivity.rho:.1e} of what one record moves"
        return assess(
            problem.dataset,
            problem.recipe,
            self.plan,
            problem.settings.choices,
            every_k=proved("in closed form: every integer k at once, whatever grid is shown"),
            constants=constants,
            step=("every step non-expansive", proved(moves)),
            rounding=proved(f"{rounding}; margins and distances carry their own"),
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
    def farthest(self) -> int:
        """How many moves of per_k fit into twice the longest weights that there can be; at least the end of the grid."""
        reach, move = 2 * self.trained.sensitivity.radius, self.trained.loss.pair * self.trained.sensitivity.per_k
        most = FARTHEST if reach >= FARTHEST * move else int(reach / move) + 2
        return max(self.settings.kgrid.ks[-1], most)

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        return logits_of(self.trained.weight, phi)

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedForm:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        return certify_linear(self.trained, phi, self.settings.relation.name, ks)

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """At every k as far as a margin vote looks, or at these."""
        some = range(1, REACH + 1) if ks is None else ks
        return envelope_linear(self.trained, self.phi(features), tuple(k for k in some if 1 <= k <= REACH))


def _words(settings: Settings, trained: LinearTrained) -> tuple[str, str]:
    """(the constants of condition c, why one record moves the head by so little)."""
    training, rho = trained.training, trained.sensitivity.rho
    weights = "parameters of each class" if trained.loss.kind == "one_vs_all" else "parameters"
    moved = f"so one record moves the {weights} by at most {rho:.4g}"
    if settings.certificate.minimiser:
        tolerance = cast(ErmConfig, settings.certificate).tolerance
        steps = f"weight_decay {training.weight_decay:g}, tolerance {tolerance:g}"
        convex = f"a {training.weight_decay:g}-strongly convex loss"
        return steps, f"no steps count: the minimiser of {convex}, to a gradient of {tolerance:g}; {moved}"
    largest, limit = learning_rate(training, 0), trained.sensitivity.rate_limit
    steps = f"{trained.plan.steps} steps"
    return steps, f"learning rates up to {largest:g}, at most {limit:.5g}: no step drives two models apart, {moved}"
