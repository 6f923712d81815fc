"""``certificate=removal``: a linear head that records can be removed from, kept with what removals
need (003).

model.safetensors     "weight" [J, d]: the weights served, as of any linear head
removal.safetensors   what the next removal starts from (training/removal.py): weight, tilt,
                      reference, hessian, gram; and noise, by how much the weights served differ;
                      for the data owner alone
removal.json          its numbers: norm, residual, allowed, count, removed; and the objective's loss
                      and strength
features.safetensors, stability.json    as of any linear head
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import save
from threadpoolctl import threadpool_limits
from torch import Tensor

from agt.certificates.conditions import Condition, stated_constants
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.facts import proved
from agt.messages import Message
from agt.models.box import GIVEN_THE_DRAW
from agt.models.closed_form import ClosedFormKind, read_features
from agt.models.erm import UNREAD_OF_MINIMISERS
from agt.models.features import FeatureMap
from agt.models.kind import CannotRemove, RemovalBounds, UnreadReason
from agt.models.linear import LinearModel, movement_values
from agt.models.model import Model, RemovableWeights
from agt.models.store import MODEL, FileReader, FileWriter, read_tensors, write_linear
from agt.numeric import next_up, step_of
from agt.problem import Problem, Settings
from agt.settings import schema
from agt.store import as_json
from agt.templates import upward
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.erm import check_minimiser_settings
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress
from agt.training.removal import (
    RemovalConfig,
    RemovalProblem,
    RemovalState,
    draw_tilt,
    minimise,
    removal_budget,
    removal_loss,
)
from agt.training.sensitivity import LinearSetting
from agt.unlearning.newton import RemovableHead, brought_within, promise, worst_case
from agt.unlearning.promise import Promise, Removal, RemovalBudget
from agt.unlearning.sentences import Remark, Value

_PREDICTED = (
    "not proved, because the noise comes from a seed: records can be removed later; with "
    "unpredictable noise the model would then be"
)
SEEDED = "SIMULATION: the noise comes from certificate.seed={seed}, so it does not hide anything"
STATE, NUMBERS = "removal.safetensors", "removal.json"
_MATRICES = ("weight", "tilt", "noise", "reference", "hessian", "gram")
_NUMBERS = ("norm", "residual", "allowed", "count", "removed")


@dataclass(frozen=True)
class RemovalModel(LinearModel):
    """A feature map, the head that is served, how far one record moves it, and what removals start
    from.

    Attributes:
        state: for removals.
        config: the settings of its noise and of its removals.
    """

    state: RemovalState
    config: RemovalConfig

    @classmethod
    def from_state(
        cls, config: RemovalConfig, problem: Problem, features: FeatureMap, state: RemovalState
    ) -> "RemovalModel":
        """Return the head of a state: after training, or after a removal."""
        known = public_numbers(config, problem, features, state.tilt)
        known.check_served(state)
        setting = known.setting
        served = torch.from_numpy(state.served)
        trained = LinearTrained(
            served, known.loss, setting.plan, known.sensitivity(state.allowed), setting.training
        )
        return cls(problem, features, trained, state, config)

    def with_state(self, state: RemovalState) -> "RemovalModel":
        """Return the head of another state of the same problem."""
        return RemovalModel.from_state(self.config, self.problem, self.features, state)

    @property
    def removable_weights(self) -> RemovableWeights:
        """The weights of its state, and the noise on what it serves or in its loss."""
        state, objective = self.state, self.known.objective

        def gradient(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
            targets = objective.targets(labels, self.problem.classes)
            return objective.loss_gradient(state.weight, self.phi(features), targets).value

        sigma = 0.0 if self.config.masking == "none" else self.config.sigma
        distance = state.residual / objective.strength
        drawn = self.config.seed is None
        return RemovableWeights(state.weight, state.served, sigma, drawn, distance, gradient)

    @property
    def keeps_draws(self) -> bool:
        """True: the noise is part of its state."""
        return True

    def with_draws(self, problem: Problem) -> "RemovalModel":
        """Return the head of a problem's records, with the noise that this one met."""
        phi, labels = training_rows(problem, self.features)
        targets = self.known.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(self.known, phi, targets, start=self.state.weight)
        return self.with_weight(torch.from_numpy(state.weight + self.state.noise))

    def save(self, store: FileWriter) -> None:
        """model.safetensors, features.safetensors, stability.json; removal.safetensors and
        removal.json.
        """
        write_linear(store, self.trained.weight, self.features.matrices, self.constants)
        tensors = {name: torch.tensor(getattr(self.state, name)) for name in _MATRICES}
        store.write(STATE, save(tensors))
        objective = self.known.objective
        numbers = {name: getattr(self.state, name) for name in _NUMBERS}
        store.write(
            NUMBERS, as_json({"loss": objective.loss, "strength": objective.strength, **numbers})
        )

    @property
    def known(self) -> RemovalProblem:
        """The public numbers, given the state's draw."""
        return public_numbers(self.config, self.problem, self.features, self.state.tilt)

    @property
    def budget(self) -> float | None:
        """How much residual the noise hides in all; None without noise."""
        return removal_budget(self.config, self.known.objective.strength)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g, given the draws."""
        strength, allowed = self.known.objective.strength, self.state.allowed
        decay = self.trained.training.weight_decay
        constants = stated_constants(
            self.plan, "removal_objective_stated", weight_decay=decay, residual=allowed
        )
        moves = proved(
            "minimiser_of_sum", strength=strength, gradient=allowed, **movement_values(self.trained)
        )
        conditions = self._assess(constants, moves)
        if self.config.masking == "none":
            return conditions
        return tuple(c.with_facts(GIVEN_THE_DRAW) if c.letter == "d" else c for c in conditions)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, how far one record moves the head, and the removal budget."""
        budget = {} if self.budget is None else {"removal_budget": self.budget}
        drawn = {} if self.config.seed is None else {"simulation": 1}
        return {
            **super().metrics,
            "residual": self.state.residual,
            "spectral_norm": self.state.norm,
            **budget,
            **drawn,
        }

    @property
    def sentences(self) -> tuple[str, ...]:
        """What may be said of later removals, a line each; the first says it all."""
        config, budget = self.config, self.budget
        if budget is None:
            away = upward(next_up(2 * config.tolerance / self.known.objective.strength))
            return (
                f"records can be removed later: the weights are then within {away} (l2) of "
                "those of training without them; for least squares, this needs no noise",
            )
        within = (
            f"as long as the error of the removals stays below {budget:.4g} (gradient norm), "
            f"of which the optimiser already uses {self.state.residual:.2g}"
        )
        close = f"({config.eps:g}, {config.delta:g})-close to one trained without them"
        spread = f"of standard deviation {config.sigma:g} in every coordinate"
        drawn = () if config.seed is None else (SEEDED.format(seed=config.seed),)
        if config.masking == "loss":
            return (
                "not proved here: records can be removed later; the paper claims that the "
                f"model is then {close}, {within}",
                f"a random linear term in the loss, {spread}, should hide their error; the "
                "published proof assumes that the error is independent of that term, but the "
                "weights depend on the term: certificate.masking=output is proved",
                *drawn,
            )
        lead = (
            "records can be removed later: the weights that are used for answers are then"
            if config.seed is None
            else _PREDICTED
        )
        return (
            f"{lead} {close}, {within}",
            "their error is hidden by noise on the weights that are used for answers, "
            f"{spread}: drawn exactly, rounded to multiples of {step_of(config.sigma):.3g}, "
            "and drawn again at each update",
            "the weights without noise stay in the run's folder, and for them only the "
            "distance is guaranteed",
            *drawn,
        )


def outputs_of(classes: int) -> int:
    """J: one output for two classes, else one for each."""
    return 1 if classes == 2 else classes


def public_numbers(
    config: RemovalConfig, problem: Problem, features: FeatureMap, tilt: np.ndarray
) -> RemovalProblem:
    """Return the public numbers of a problem, given its draw of b.

    Raises:
        ConfigError: settings that no proof covers.
    """
    recipe = problem.recipe
    loss = removal_loss(outputs_of(problem.classes), 1.0, 1.0)
    plan = replace(recipe.plan(problem.trained_on), epochs=1)
    setting = LinearSetting(loss, features.outputs, recipe.training, plan, recipe.relation)
    return RemovalProblem.from_setting(config, setting, tilt)


def training_rows(problem: Problem, features: FeatureMap) -> tuple[np.ndarray, np.ndarray]:
    """(features as the head takes them [n, d], labels [n]) of the training records.

    Raises:
        ConfigError: more records than n_max, or a unit with too many.
    """
    records, recipe = problem.dataset.train, problem.recipe
    check_unit_rows(records.units, recipe.relation.unit_rows)
    # no more than n_max
    next(replace(recipe.plan(problem.trained_on), epochs=1).batches(records.units))
    return features(records.features, recipe.training.dtype), records.labels


def _read_state(
    config: RemovalConfig, problem: Problem, features: FeatureMap, shelf: FileReader
) -> RemovalState:
    shape, width = (outputs_of(problem.classes), features.outputs), features.outputs
    stacked = 1 if config.loss == "least_squares" else shape[0]
    shapes = dict.fromkeys(_MATRICES, shape) | {
        "hessian": (stacked, width, width),
        "gram": (width, width),
    }
    like: dict[str, Tensor] = {
        name: torch.zeros(1, dtype=torch.float64).expand(shapes[name]) for name in _MATRICES
    }
    arrays: dict[str, Any] = {
        name: tensor.numpy() for name, tensor in read_tensors(shelf, STATE, like).items()
    }
    numbers, noise = shelf.json(NUMBERS), arrays.pop("noise")
    served = read_tensors(shelf, MODEL, {"weight": like["weight"]})["weight"].numpy()
    try:
        state = RemovalState(**arrays, served=served, **{name: numbers[name] for name in _NUMBERS})
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{shelf.folder / NUMBERS}: cannot be read ({error}); train again"
        ) from None
    if not np.array_equal(noise, state.noise):
        raise UnsoundError(
            f"{shelf.folder}/{MODEL}: the weights used for answers differ from those in "
            f"{STATE}: train again"
        )
    objective = public_numbers(config, problem, features, state.tilt).objective
    for key, value in (("loss", objective.loss), ("strength", objective.strength)):
        if numbers.get(key) != value:
            raise UnsoundError(
                f"{shelf.folder / NUMBERS}: {key} is {numbers.get(key)}, but the run's "
                f"configuration implies {value}: train again"
            )
    return state


@schema
class RemovalKind(RemovalConfig, ClosedFormKind):
    """The minimiser of a regularised sum, with noise that lets records be removed later
    (training/removal.py).
    """

    trains_in_steps = False
    regularised_by = "weight_decay"
    own_erasure = "newton"
    retraining_refusal = Message(
        "certificate=removal would draw new noise in another training: remove records from "
        "such a run with {config:agt unlearn}"
    )

    @property
    def seeds(self) -> tuple[str, ...]:
        """The seed of a simulated draw of noise too."""
        return super().seeds if self.seed is None else (*super().seeds, "seed")

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """A schedule, a loss and a clip too: it has a loss of its own, and clamps nothing."""
        own: Mapping[str, UnreadReason] = {"training.loss": "own loss", "training.clip": "no clamp"}
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS, **own}

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """The noise that hides removals: in the loss, or on the weights served."""
        if self.masking == "none":
            return "none"
        return "drawn" if self.seed is None else "seeded"

    @property
    def noise_is_fixed(self) -> bool:
        """Return True of a random term in the loss, which is drawn in training."""
        return self.masking == "loss"

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where there is no one strongly convex problem, or more than one
        head.
        """
        check_minimiser_settings(settings.training, self.name)
        if settings.ensemble.members > 1:
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members}: certificate=removal removes "
                    "records from a single head, while an ensemble always trains the "
                    "affected members again: use {config:ensemble.members}=1, or "
                    "certificate=erm",
                    members=settings.ensemble.members,
                )
            )

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> RemovalModel:
        """Draw b, minimise on the public features, put the output's noise on."""
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        tilt = draw_tilt(self, (outputs_of(problem.classes), features.outputs), checkpoints)
        known = public_numbers(self, problem, features, tilt)
        phi, labels = training_rows(problem, features)
        targets = known.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(known, phi, targets, on_progress, checkpoints)
        return RemovalModel.from_state(self, problem, features, state)

    def load(self, problem: Problem, reader: FileReader) -> RemovalModel:
        """Read the head back with its state.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what was recorded is not what the configuration and the state imply.
        """
        features = read_features(problem, reader)
        state = _read_state(self, problem, features, reader)
        model = RemovalModel.from_state(self, problem, features, state)
        model.check_constants(reader)
        return model

    def check_solved_anew(self, mechanism: str) -> None:
        """Refuse: the head has noise of its own."""
        raise ConfigError(
            f"mechanism={mechanism}: certificate=removal has its own noise: train with "
            "certificate=erm"
        )

    def remove_records(
        self, model: Model, erased: Records, count: int
    ) -> tuple[RemovalModel, Removal]:
        """Remove records by Newton steps, with matrices formed anew in the end
        (docs/proofs/removal.md).
        """
        was = _removal_model(model)
        phi, labels = training_rows(was.problem, was.features)
        targets = was.known.objective.targets(labels, was.problem.classes)
        head = RemovableHead.of(was.known.objective, was.state)
        total = _allowed_residual(self, was.budget)
        started = time.perf_counter()
        with threadpool_limits(was.problem.settings.compute.threads, user_api="blas"):
            stages, facts = _removed(was, erased, count, head, phi, targets, total)
            spent = head.residual
            formed = time.perf_counter()
            if not spent <= total:
                values: dict[str, Value] = {"stages": tuple(stages), "spent": spent, "total": total}
                raise CannotRemove(Remark("no_step_within_budget", values))
            head.settle(phi)  # matrices formed anew; the noise on what is served, too
            served = was.known.serve(head.weight, draw_index=1 + len(phi))
            facts["seconds_settling"] = round(time.perf_counter() - formed, 4)
            now = was.with_state(head.state(was.state, served, total))
        seconds = time.perf_counter() - started
        residuals = {"residual_before": was.state.residual, "residual": spent}
        facts = {"removed_by": "+".join(stages), **residuals, **facts}
        made = promise(self, now.state.residual, now.known.objective.strength)
        steps = _newton_steps(count, stages, now, head.distance)
        return now, Removal(made, count, seconds, facts, steps, RemovalBudget(spent, total))

    def removal_bounds(self, reader: FileReader) -> RemovalBounds:
        """Return the residual on record, and what the noise of these settings hides."""
        numbers = reader.json(NUMBERS)
        hidden = removal_budget(self, float(numbers["strength"]))
        return RemovalBounds(
            float(numbers["residual"]), _allowed_residual(self, hidden), hidden, self.sigma
        )

    def removal_promise(self, reader: FileReader, spent: float) -> Promise:
        """Return what Newton steps that left such a residual may promise."""
        return promise(self, spent, float(reader.json(NUMBERS)["strength"]))


def _removal_model(model: Model) -> RemovalModel:
    """Return a model of this kind as such. Raises ConfigError: it is of another kind."""
    if not isinstance(model, RemovalModel):
        raise ConfigError(
            f"certificate={model.problem.settings.certificate.name} does not store what a "
            "removal starts from"
        )
    return model


def _allowed_residual(config: RemovalConfig, hidden: float | None) -> float:
    """Return how large a residual may be: what the noise hides, or what training itself may leave.

    Args:
        hidden: what the noise hides; None: there is none.
    """
    if hidden is None or config.bound == "measured":
        return config.tolerance
    return hidden


def _removed(
    model: RemovalModel,
    erased: Records,
    count: int,
    head: RemovableHead,
    phi: np.ndarray,
    targets: np.ndarray,
    budget: float,
) -> tuple[list[str], dict[str, Any]]:
    """Change a head by the cheapest way to a residual within the budget; it may still be above.
    What was done, in numbers.

    Args:
        model: as it was.
        erased, count: as for ``RemovalKind.remove_records``.
        head: which is changed.
        phi, targets: the records that remain, as the head takes them.
        budget: bound on the residual that may be left.
    """
    config, facts, stages = model.config, dict[str, Any](), ["refresh"]
    if len(erased) == count and head.count - len(erased) == len(phi):
        started, stages, objective = time.perf_counter(), ["step"], head.objective
        gone = objective.targets(erased.labels, model.problem.classes)
        step = head.remove(
            model.phi(erased.features), gone, phi if config.factorisation == "fresh" else None
        )
        reach, outputs = model.known.loss.derivative_bound, len(head.weight)
        worst = worst_case(
            objective.curvature_lipschitz,
            len(erased),
            head.count,
            objective.strength,
            reach,
            outputs,
        )
        if config.bound == "worst":
            head.residual = max(step.after, step.before + worst)
        seconds = round(time.perf_counter() - started, 6)
        facts = {
            "seconds_step": seconds,
            "bound_of_step": step.after - step.before,
            "worst_case_of_step": worst,
        }
        if config.bound == "measured":
            head.polish(phi, targets)
            stages.append("polish")
    else:
        head.refresh(phi, targets)
    if config.bound != "worst":
        stages += brought_within(head, phi, targets, budget)
    return stages, facts


def _newton_steps(
    count: int, stages: Sequence[str], model: RemovalModel, distance: float
) -> tuple[Remark, ...]:
    state = model.state
    steps = [Remark(stage, {"records": count} if stage == "step" else {}) for stage in stages]
    if "step" not in stages:
        steps.insert(0, Remark("rows_gone", {"records": count}))
    left = {"residual": state.residual, "distance": distance, "records": state.count}
    steps += [Remark("gradient_left", left), Remark("matrices_formed_anew")]
    if model.config.masking == "output":
        steps.append(Remark("served_noise_drawn_anew"))
    return tuple(steps)
