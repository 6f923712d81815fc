"""A linear head whose certificates are in closed form: trained by SGD (stability) or to the minimiser (erm)."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, assess_linear
from agt.certificates.envelope import REACH, Envelope
from agt.certificates.stability import FARTHEST, ClosedForm, certify_linear, envelope_linear, logits_of
from agt.data.blocks import ROWS, gathered
from agt.data.dataset import Records
from agt.distributed import group
from agt.models.features import FeatureMap
from agt.models.store import CONSTANTS, FEATURES, MODEL, Shelf, Store, check_constants, read_tensors, write_linear
from agt.numeric import labels_of, next_up, signed_margins
from agt.problem import Problem, Settings
from agt.settings import ErmConfig, StabilityConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.erm import erm_sensitivity, train_erm
from agt.training.linear import LinearTrained, train_linear
from agt.training.loop import Progress, counted
from agt.training.optimizer import learning_rate
from agt.training.sensitivity import LinearSetting, sgd_sensitivity
from agt.training.strength import numbers_of


@dataclass(frozen=True)
class LinearModel:
    """A feature map, a head on top of it, and how far one record moves the head (a ``models.model.Model``)."""

    problem: Problem
    features: FeatureMap
    trained: LinearTrained

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """Train on the public features."""
        features = FeatureMap.of(_config(problem.settings).features, problem.dataset)
        return cls.untrained(problem, features).retrained(problem.dataset.train, on_progress, checkpoints)

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> "LinearModel":
        """The head before training, all weights 0: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one whose sensitivity is not proved.
        """
        config = _config(problem.settings)
        setting = LinearSetting.of(problem.recipe, problem.trained_on, features.outputs, features.slack)
        if isinstance(config, ErmConfig):
            sensitivity = erm_sensitivity(setting, config.tolerance)
        else:
            sensitivity = sgd_sensitivity(setting, config.average)
        zeros = torch.zeros((setting.loss.outputs, setting.width), dtype=torch.float64)
        return cls(problem, features, LinearTrained(zeros, setting.loss, setting.plan, sensitivity, setting.training))

    def retrained(
        self,
        records: Records,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> "LinearModel":
        """The same head trained on these records, whose features are as the dataset scales them."""
        config, recipe, slack = _config(self.settings), self.problem.recipe, self.features.slack
        seen = records.seen_as(self.over(records.features))
        if isinstance(config, ErmConfig):
            trained = train_erm(recipe, seen, slack, config.tolerance, on_progress, checkpoints)
        else:
            trained = train_linear(recipe, seen, slack, config.average, on_progress, checkpoints)
        return replace(self, trained=trained)

    def with_weight(self, weight: torch.Tensor) -> "LinearModel":
        """The same head with other weights [J, w]; what one record moves them by is this head's."""
        return replace(self, trained=replace(self.trained, weight=weight))

    @classmethod
    def load(cls, problem: Problem, shelf: Shelf) -> "LinearModel":
        """Read the head back, and check that its constants are those that its configuration implies.

        Raises:
            ConfigError: a file is missing, or the configuration is one whose sensitivity is not proved.
            UnsoundError: the recorded constants are not the configuration's.
        """
        width = int(np.prod(problem.dataset.train.features.shape[1:]))
        blank = FeatureMap.blank(_config(problem.settings).features, width)
        features = blank.with_matrices(read_tensors(shelf, FEATURES, blank.matrices))
        model = cls.untrained(problem, features)
        model = model.with_weight(read_tensors(shelf, MODEL, {"weight": model.trained.weight})["weight"])
        model.check_constants(shelf)
        return model

    def check_constants(self, shelf: Shelf) -> None:
        """Raise UnsoundError unless the recorded constants are those that the configuration implies."""
        check_constants(shelf, CONSTANTS, self.constants)

    def save(self, store: Store) -> None:
        """model.safetensors, features.safetensors and stability.json."""
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)

    @property
    def settings(self) -> Settings:
        """The problem's."""
        return self.problem.settings

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
        return {**facts, **asdict(loss), **asdict(sensitivity), **derived, **self._settled}

    @property
    def _settled(self) -> dict[str, float | int]:
        """What the recipe decided, under ``recipe.NAME``; nothing where every setting was a number."""
        return numbers_of(self.trained.training, self.settings.training.by_recipe)

    @property
    def moves(self) -> float:
        """What one k moves all the weights by together, l2: the measure of the noise that releases them."""
        return next_up(self.trained.loss.whole * self.trained.sensitivity.per_k)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g."""
        problem, trained = self.problem, self.trained
        constants, moves = _words(problem.settings, trained)
        return assess_linear(
            problem.dataset, problem.recipe, trained, constants, moves, self.features.public, problem.settings.choices
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
            **self._settled,
        }

    def phi(self, features: np.ndarray) -> np.ndarray:
        """[n, w] public features of norm at most 1."""
        return self.features(features, self.settings.training.dtype)

    def over(self, features: np.ndarray) -> np.ndarray:
        """The same of training records, for whoever takes slices of them again and again (``FeatureMap.over``)."""
        return self.features.over(features, self.settings.training.dtype, self.settings.compute.memory_mb)

    @property
    def farthest(self) -> int:
        """How many moves of per_k fit into twice the longest weights that there can be; at least the end of the grid."""
        reach, move = 2 * self.trained.sensitivity.radius, self.trained.loss.pair * self.trained.sensitivity.per_k
        most = FARTHEST if reach >= FARTHEST * move else int(reach / move) + 2
        return max(self.settings.kgrid.ks[-1], most)

    def check(self, features: np.ndarray) -> None:
        """Raise ConfigError for queries of another width; whatever is finite has features."""
        self.phi(features[:0])

    def _logits(self, features: np.ndarray) -> np.ndarray:
        """[n, J] float64."""
        parts = group().shared(len(features), ROWS, lambda rows: logits_of(self.trained.weight, self.phi(features[rows])))
        return gathered(parts, len(features))

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        return labels_of(self._logits(features))

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] the logit, or logit difference, of two classes; else [classes, n] each logit less the best other."""
        return signed_margins(self._logits(features))

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Certificates:
        """Stable distances; at some k, tabulated there alone and no farther than the last."""
        relation, grid, count = self.settings.relation.name, ks or self.settings.kgrid.ks, len(features)

        def work(rows: slice) -> ClosedForm:
            return certify_linear(self.trained, self.phi(features[rows]), relation, grid)

        known = ClosedForm.joined(group().shared(count, ROWS, work, counted(on_progress, count)), count)
        return known if ks is None else Certificates(grid, relation, known.prediction, np.asarray(known.certified))

    def envelope(self, features: np.ndarray, ks: tuple[int, ...] | None = None) -> Envelope:
        """At every k as far as a margin vote looks, or at these."""
        some = range(1, REACH + 1) if ks is None else ks
        return envelope_linear(self.trained, self.phi(features), tuple(k for k in some if 1 <= k <= REACH))


def _config(settings: Settings) -> StabilityConfig | ErmConfig:
    if isinstance(settings.certificate, StabilityConfig | ErmConfig):
        return settings.certificate
    raise TypeError(f"{settings.certificate} is no linear certificate")


def _words(settings: Settings, trained: LinearTrained) -> tuple[str, str]:
    """(the constants of condition c, why one record moves the head by so little)."""
    config, training, rho = _config(settings), trained.training, trained.sensitivity.rho
    weights = "parameters of each class" if trained.loss.kind == "one_vs_all" else "parameters"
    moved = f"so one record moves the {weights} by at most {rho:.4g}"
    if isinstance(config, ErmConfig):
        steps = f"weight_decay {training.weight_decay:g}, tolerance {config.tolerance:g}"
        convex = f"a {training.weight_decay:g}-strongly convex loss"
        return steps, f"no steps count: the minimiser of {convex}, to a gradient of {config.tolerance:g}; {moved}"
    largest, limit = learning_rate(training, 0), trained.sensitivity.rate_limit
    steps = f"{trained.plan.steps} steps"
    return steps, f"learning rates up to {largest:g}, at most {limit:.5g}: no step drives two models apart, {moved}"
