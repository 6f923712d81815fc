"""Models on public features whose certificates are in closed form.

``LinearModel``: a linear head, trained by SGD (stability) or to the minimiser (erm).
``RemovalModel``: a linear head that records can be removed from (removal): trained, kept with what removals need.

model.safetensors     "weight" [J, d]: the weights served, as of any linear head
removal.safetensors   what the next removal starts from (training/removal.py): weight, tilt, reference, hessian, gram; and
                      noise, by how much the weights served differ; for the data owner alone
removal.json          its numbers: norm, residual, allowed, count, removed; and the objective's loss and strength
features.safetensors, stability.json    as of any linear head
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from safetensors.torch import save
from threadpoolctl import threadpool_limits
from torch import Tensor

from agt.certificates.box import REACH, Certificates, Envelope
from agt.certificates.conditions import Condition, assess
from agt.certificates.stability import FARTHEST, ClosedForm, certify_linear, envelope_linear
from agt.data.arrays import ROWS, gathered
from agt.data.records import Records
from agt.distributed import group
from agt.errors import ConfigError, UnsoundError
from agt.facts import proved
from agt.models.box import GIVEN_THE_DRAW, Trained
from agt.models.features import FeatureMap
from agt.models.shares import logistic_shares
from agt.models.store import (
    CONSTANTS,
    FEATURES,
    MODEL,
    FileReader,
    FileWriter,
    check_constants,
    read_tensors,
    write_linear,
)
from agt.numeric import labels_of, logits_of, next_up, signed_margins, step_of, upward
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import ErmConfig, RemovalConfig, StabilityConfig, TrainingConfig
from agt.store import as_json
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.erm import erm_sensitivity, train_erm
from agt.training.linear import LinearTrained, train_linear
from agt.training.loop import OnProgress, counted
from agt.training.removal import RemovalProblem, RemovalState, draw_tilt, minimise, removal_budget, removal_loss
from agt.training.sensitivity import LinearSetting, sgd_sensitivity
from agt.training.sgd import learning_rate
from agt.training.strength import numbers_of


@dataclass(frozen=True)
class ClosedFormModel(Trained):
    """A head on public features, whose stable distances are in closed form."""

    features: FeatureMap
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

    def shares(self, features: np.ndarray) -> np.ndarray:
        """[n, C] the sigmoid or softmax of the logits."""
        return logistic_shares(self.margins(features))

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
    bare, zero = FeatureMap(problem.settings.certificate.features, width), torch.zeros((), dtype=torch.float64)
    like = {name: zero.expand(shape) for name, shape in bare.shapes.items()}
    return bare.with_matrices({name: matrix.numpy() for name, matrix in read_tensors(shelf, FEATURES, like).items()})


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

    @classmethod
    def untrained(cls, problem: Problem, features: FeatureMap) -> Self:
        """The head before training, all weights 0: its public constants are those of any run.

        Raises:
            ConfigError: the configuration is one whose sensitivity is not proved.
        """
        config = problem.settings.certificate
        setting = LinearSetting.of(problem.recipe, problem.trained_on, features.outputs)
        if config.minimiser:
            sensitivity = erm_sensitivity(setting, cast(ErmConfig, config).tolerance)
        else:
            sensitivity = sgd_sensitivity(setting, cast(StabilityConfig, config).average)
        zeros = torch.zeros((), dtype=torch.float64).expand(setting.loss.outputs, setting.width)  # takes no memory
        return cls(problem, features, LinearTrained(zeros, setting.loss, setting.plan, sensitivity, setting.training))

    def retrained(
        self,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """The same head trained on these records, whose features are as the dataset scales them."""
        config, recipe = self.settings.certificate, self.problem.recipe
        seen = records.seen_as(self.over(records.features))
        if config.minimiser:
            trained = train_erm(recipe, seen, cast(ErmConfig, config).tolerance, on_progress, checkpoints)
        else:
            trained = train_linear(recipe, seen, cast(StabilityConfig, config).average, on_progress, checkpoints)
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

    @property
    def by_edit(self) -> Self:
        """The same head, its certificates counting single edits, a unit gone or a unit come, where one k is both.

        They are those of add_remove, to the bit: training, rho and rounding know nothing of the relation but how many rows
        one k moves, and a single edit moves ``unit_rows``.
        """
        sensitivity, rows = self.trained.sensitivity, self.settings.relation.unit_rows
        if RELATIONS[self.settings.relation.name].touches == 1:
            return self
        return replace(self, trained=replace(self.trained, sensitivity=replace(sensitivity, rows=rows)))

    def logits(self, phi: np.ndarray) -> np.ndarray:
        """[n, J] float64, of public features [n, w]."""
        return logits_of(self.trained.weight, phi)

    def certified(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedForm:
        """Certificates of queries with these public features [n, w], tabulated at these k."""
        priced = self.settings.ensembled and self.problem.classes > 2
        return certify_linear(self.trained, phi, self.settings.relation.name, ks, priced=priced)

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


_PREDICTED = (
    "not proved, as a seed makes the noise: records can be removed later; with noise that nobody can predict the model "
    "would then be"
)
SEEDED = "SIMULATION: the noise comes from certificate.seed={seed}, so that it hides nothing"
STATE, NUMBERS = "removal.safetensors", "removal.json"
_MATRICES = ("weight", "tilt", "noise", "reference", "hessian", "gram")
_NUMBERS = ("norm", "residual", "allowed", "count", "removed")


@dataclass(frozen=True)
class RemovalModel(LinearModel):
    """A feature map, the head that is served, how far one record moves it, and what removals start from.

    Attributes:
        state: for removals.
    """

    state: RemovalState

    @classmethod
    def fit(
        cls,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> Self:
        """Draw b, minimise on the public features, put the output's noise on."""
        config, features = config_of(problem.settings), FeatureMap.of(config_of(problem.settings).features, problem.dataset)
        tilt = draw_tilt(config, (outputs_of(problem.classes), features.outputs), checkpoints)
        known = problem_of(problem, features, tilt)
        phi, labels = training_rows(problem, features)
        targets = known.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(known, phi, targets, on_progress, checkpoints)
        return cls.of(problem, features, state)

    @classmethod
    def of(cls, problem: Problem, features: FeatureMap, state: RemovalState) -> Self:
        """The head of a state: after training, or after a removal."""
        known = problem_of(problem, features, state.tilt)
        known.check_served(state)
        setting = known.setting
        served = torch.from_numpy(state.served)
        trained = LinearTrained(served, known.loss, setting.plan, known.sensitivity(state.allowed), setting.training)
        return cls(problem, features, trained, state)

    @classmethod
    def load(cls, problem: Problem, shelf: FileReader) -> Self:
        """Read the head back with its state.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what was recorded is not what the configuration and the state imply.
        """
        features = read_features(problem, shelf)
        model = cls.of(problem, features, _read_state(problem, features, shelf))
        model.check_constants(shelf)
        return model

    def save(self, store: FileWriter) -> None:
        """model.safetensors, features.safetensors, stability.json; removal.safetensors and removal.json."""
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)
        tensors = {name: torch.tensor(getattr(self.state, name)) for name in _MATRICES}
        store.write(STATE, save(tensors))
        objective = self.known.objective
        numbers = {name: getattr(self.state, name) for name in _NUMBERS}
        store.write(NUMBERS, as_json({"loss": objective.loss, "strength": objective.strength, **numbers}))

    @property
    def config(self) -> RemovalConfig:
        """The certificate's settings."""
        return config_of(self.settings)

    @property
    def known(self) -> RemovalProblem:
        """The public numbers, given the state's draw."""
        return problem_of(self.problem, self.features, self.state.tilt)

    @property
    def budget(self) -> float | None:
        """How much residual the noise hides in all; None without noise."""
        return removal_budget(self.config, self.known.objective.strength)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g, given the draws."""
        strength, allowed = self.known.objective.strength, self.state.allowed
        constants = f"weight_decay {self.trained.training.weight_decay:g}, residuals up to {allowed:g}"
        each = " of each class" if self.trained.loss.kind == "one_vs_all" else ""
        moves = (
            f"no steps count: the minimiser of a {strength:g}-strongly convex sum, to a gradient of {allowed:g}; so one "
            f"record moves the parameters{each} by at most {self.trained.sensitivity.rho:.4g}"
        )
        conditions = self._assessed(constants, moves)
        if self.config.masking == "none":
            return conditions
        return tuple(c.and_(proved(GIVEN_THE_DRAW)) if c.letter == "d" else c for c in conditions)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, how far one record moves the head, and the removal budget."""
        budget = {} if self.budget is None else {"removal_budget": self.budget}
        drawn = {} if self.config.seed is None else {"simulation": 1}
        return {**super().metrics, "residual": self.state.residual, "spectral_norm": self.state.norm, **budget, **drawn}

    @property
    def words(self) -> tuple[str, ...]:
        """What may be said of later removals, a line each; the first says it all."""
        config, budget = self.config, self.budget
        if budget is None:
            away = upward(next_up(2 * config.tolerance / self.known.objective.strength))
            return (
                f"records can be removed later: the weights are then within {away} (l2) of those that training without "
                "them gives; least squares, and no noise is needed",
            )
        within = (
            f"as long as the removals' error stays below {budget:.4g} (gradient norm), of which the optimiser left "
            f"{self.state.residual:.2g}"
        )
        close = f"({config.eps:g}, {config.delta:g})-close to one trained without them"
        spread = f"of standard deviation {config.sigma:g} in every coordinate"
        drawn = () if config.seed is None else (SEEDED.format(seed=config.seed),)
        if config.masking == "loss":
            return (
                f"not proved: as published, records can be removed later and the model is then {close}, {within}",
                f"their error is to be hidden by a random linear term in the loss, {spread}; the published proof takes the "
                "error for independent of that term, and the weights depend on it: certificate.masking=output is proved",
                *drawn,
            )
        lead = "records can be removed later: what is served is then" if config.seed is None else _PREDICTED
        return (
            f"{lead} {close}, {within}",
            f"their error is hidden by noise on the weights that are served, {spread}: drawn exactly, rounded to "
            f"multiples of {step_of(config.sigma):.3g}, and drawn anew at each update",
            "the weights without noise stay in the run's folder: of these nothing but a distance is promised",
            *drawn,
        )


def config_of(settings: Settings) -> RemovalConfig:
    """The certificate's settings, of a run that was trained for removals."""
    return cast(RemovalConfig, settings.certificate)


def outputs_of(classes: int) -> int:
    """J: one output for two classes, else one for each."""
    return 1 if classes == 2 else classes


def problem_of(problem: Problem, features: FeatureMap, tilt: np.ndarray) -> RemovalProblem:
    """The public numbers of a problem, given its draw of b.

    Raises:
        ConfigError: settings that no proof covers.
    """
    recipe, config = problem.recipe, config_of(problem.settings)
    loss = removal_loss(outputs_of(problem.classes), 1.0, 1.0)
    plan = replace(recipe.plan(problem.trained_on), epochs=1)
    setting = LinearSetting(loss, features.outputs, recipe.training, plan, recipe.relation)
    return RemovalProblem.of(config, setting, tilt)


def training_rows(problem: Problem, features: FeatureMap) -> tuple[np.ndarray, np.ndarray]:
    """(features as the head takes them [n, d], labels [n]) of the training records.

    Raises:
        ConfigError: more records than n_max, or a unit with too many.
    """
    records, recipe = problem.dataset.train, problem.recipe
    check_unit_rows(records.units, recipe.relation.unit_rows)
    next(replace(recipe.plan(problem.trained_on), epochs=1).batches(records.units))  # no more than n_max
    return features(records.features, recipe.training.dtype), records.labels


def _read_state(problem: Problem, features: FeatureMap, shelf: FileReader) -> RemovalState:
    shape, width = (outputs_of(problem.classes), features.outputs), features.outputs
    stacked = 1 if config_of(problem.settings).loss == "least_squares" else shape[0]
    shapes = dict.fromkeys(_MATRICES, shape) | {"hessian": (stacked, width, width), "gram": (width, width)}
    like: dict[str, Tensor] = {name: torch.zeros(1, dtype=torch.float64).expand(shapes[name]) for name in _MATRICES}
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in read_tensors(shelf, STATE, like).items()}
    numbers, noise = shelf.json(NUMBERS), arrays.pop("noise")
    served = read_tensors(shelf, MODEL, {"weight": like["weight"]})["weight"].numpy()
    try:
        state = RemovalState(**arrays, served=served, **{name: numbers[name] for name in _NUMBERS})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{shelf.folder / NUMBERS}: cannot be read ({error}); train again") from None
    if not np.array_equal(noise, state.noise):
        raise UnsoundError(f"{shelf.folder}/{MODEL}: the weights served are not those of {STATE}: train again")
    objective = problem_of(problem, features, state.tilt).objective
    for key, value in (("loss", objective.loss), ("strength", objective.strength)):
        if numbers.get(key) != value:
            raise UnsoundError(
                f"{shelf.folder / NUMBERS}: {key} is {numbers.get(key)} and the run's configuration implies {value}: train "
                "again"
            )
    return state
