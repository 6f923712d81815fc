"""``certificate=removal``: a linear head, stored with what removing records from it needs (003).

| file | content |
|---|---|
| model.safetensors | "weight" [J, d], the served weights, as of any linear head |
| features.safetensors, stability.json | as of any linear head |
| removal.safetensors | for the data owner alone: weight, tilt, reference, hessian and gram |
| | of ``RemovalState``; noise, the served weights minus weight |
| removal.json | norm, residual, allowed, count and removed of ``RemovalState``; loss, strength |
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
from agt.unlearning.newton import (
    RemovableHead,
    promise_after_removal,
    reduce_residual,
    worst_case,
)
from agt.unlearning.promise import Promise, Removal, RemovalBudget
from agt.unlearning.sentences import Remark, Value

_PROVED = (
    "records can be removed later without training again: the weights that are used for "
    "answers are then"
)
_PREDICTED = (
    "records can be removed later without training again, but this is not proved, because the "
    "noise comes from a seed: with unpredictable noise the model would then be"
)
SEEDED = (
    "SIMULATION: the noise comes from certificate.seed={seed}, so anyone who knows the seed "
    "can subtract it"
)
STATE = "removal.safetensors"
NUMBERS = "removal.json"
_MATRICES = ("weight", "tilt", "noise", "reference", "hessian", "gram")
_NUMBERS = ("norm", "residual", "allowed", "count", "removed")


@dataclass(frozen=True)
class RemovalModel(LinearModel):
    """A linear head on public features, and the state from which records are removed from it.

    Attributes:
        state: what later removals start from; it is private.
        config: the settings of the noise and of the removals.
    """

    state: RemovalState
    config: RemovalConfig

    @classmethod
    def from_state(
        cls, config: RemovalConfig, problem: Problem, features: FeatureMap, state: RemovalState
    ) -> "RemovalModel":
        """Return the head of a state after training or after a removal.

        Raises:
            ConfigError: settings that no proof covers.
            UnsoundError: the served weights are not ones that the settings allow.
        """
        removal_problem = build_removal_problem(config, problem, features, state.tilt)
        removal_problem.check_served(state)
        setting = removal_problem.setting
        trained = LinearTrained(
            torch.from_numpy(state.served),
            removal_problem.loss,
            setting.plan,
            removal_problem.sensitivity(state.allowed),
            setting.training,
        )
        return cls(problem, features, trained, state, config)

    def with_state(self, state: RemovalState) -> "RemovalModel":
        """Return the head of another state of the same problem; raises as ``from_state``."""
        return RemovalModel.from_state(self.config, self.problem, self.features, state)

    @property
    def removable_weights(self) -> RemovableWeights:
        """The weights before noise, the served weights, and the noise that hides removals."""
        state = self.state
        objective = self.removal_problem.objective

        def gradient(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
            targets = objective.targets(labels, self.problem.classes)
            return objective.loss_gradient(state.weight, self.phi(features), targets).value

        sigma = 0.0 if self.config.masking == "none" else self.config.sigma
        is_drawn = self.config.seed is None
        distance = state.residual / objective.strength
        return RemovableWeights(state.weight, state.served, sigma, is_drawn, distance, gradient)

    @property
    def keeps_draws(self) -> bool:
        """True: the noise is part of its state."""
        return True

    def with_draws(self, problem: Problem) -> "RemovalModel":
        """Return the head that another problem's records give with the noise of this head.

        Raises:
            ConfigError: more records than the plan allows, or a unit with too many.
        """
        phi, labels = training_rows(problem, self.features)
        removal_problem = self.removal_problem
        targets = removal_problem.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(removal_problem, phi, targets, start=self.state.weight)
        return self.with_weight(torch.from_numpy(state.weight + self.state.noise))

    def save(self, writer: FileWriter) -> None:
        """Write the files of a linear head, removal.safetensors and removal.json."""
        write_linear(writer, self.trained.weight, self.features.matrices, self.constants)
        tensors = {name: torch.tensor(getattr(self.state, name)) for name in _MATRICES}
        writer.write(STATE, save(tensors))
        objective = self.removal_problem.objective
        numbers = {"loss": objective.loss, "strength": objective.strength}
        for name in _NUMBERS:
            numbers[name] = getattr(self.state, name)
        writer.write(NUMBERS, as_json(numbers))

    @property
    def removal_problem(self) -> RemovalProblem:
        """The public numbers of the training, given the random linear term of the state."""
        return build_removal_problem(self.config, self.problem, self.features, self.state.tilt)

    @property
    def budget(self) -> float | None:
        """The largest residual that the noise hides; None: there is no noise."""
        return removal_budget(self.config, self.removal_problem.objective.strength)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g of method.md section 3; d holds given the noise that was drawn."""
        allowed = self.state.allowed
        constants = stated_constants(
            self.plan,
            "removal_objective_stated",
            weight_decay=self.trained.training.weight_decay,
            residual=allowed,
        )
        movement = proved(
            "minimiser_of_sum",
            strength=self.removal_problem.objective.strength,
            gradient=allowed,
            **movement_values(self.trained),
        )
        conditions = self._assess(constants, movement)
        if self.config.masking == "none":
            return conditions
        given_noise = []
        for condition in conditions:
            if condition.letter == "d":
                condition = condition.with_facts(GIVEN_THE_DRAW)
            given_noise.append(condition)
        return tuple(given_noise)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """The metrics of a linear head, the residual, and the removal budget if there is one."""
        metrics = {
            **super().metrics,
            "residual": self.state.residual,
            "spectral_norm": self.state.norm,
        }
        budget = self.budget
        if budget is not None:
            metrics["removal_budget"] = budget
        if self.config.seed is not None:
            metrics["simulation"] = 1
        return metrics

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about later removals; the first is the summary."""
        if self.config.masking == "none":
            return self._sentences_without_noise()
        if self.config.masking == "loss":
            sentences = self._sentences_on_noise_in_loss()
        else:
            sentences = self._sentences_on_noise_on_weights()
        if self.config.seed is None:
            return sentences
        return (*sentences, SEEDED.format(seed=self.config.seed))

    def _sentences_without_noise(self) -> tuple[str, ...]:
        strength = self.removal_problem.objective.strength
        # Weights after a removal, and weights of a new training, are each that near the minimiser.
        distance = upward(next_up(2 * self.config.tolerance / strength))
        return (
            "records can be removed later without training again: the weights are then "
            f"within {distance} (l2) of those of training without these records; for least "
            "squares, this needs no noise",
        )

    def _sentences_on_noise_in_loss(self) -> tuple[str, ...]:
        closeness = self._closeness()
        spread = f"with standard deviation {self.config.sigma:g} in every coordinate"
        return (
            "records can be removed later without training again; this is not proved here, "
            f"but the paper claims that the model is then {closeness}",
            f"a random linear term in the loss, {spread}, is meant to hide the error of such "
            "removals; the published proof assumes that this error is independent of the "
            "term, but the weights depend on the term: certificate.masking=output is proved",
        )

    def _sentences_on_noise_on_weights(self) -> tuple[str, ...]:
        is_proved = self.config.seed is None
        lead = _PROVED if is_proved else _PREDICTED
        spread = f"with standard deviation {self.config.sigma:g} in every coordinate"
        lattice_step = step_of(self.config.sigma)
        return (
            f"{lead} {self._closeness()}",
            "the error of such removals is hidden by noise on the weights that are used for "
            f"answers, {spread}: the noise is drawn exactly, rounded to multiples of "
            f"{lattice_step:.3g}, and drawn again at each update",
            "the weights without noise stay in the run's folder for later removals; for these "
            "weights only the distance to retraining is guaranteed, not privacy",
        )

    def _closeness(self) -> str:
        """Return how close the model after a removal is to a new training, and while what holds."""
        return (
            f"({self.config.eps:g}, {self.config.delta:g})-close to training without the "
            "removed records, as long as the error of the removals stays below "
            f"{self.budget:.4g} (gradient norm), of which the optimiser already uses "
            f"{self.state.residual:.2g}"
        )


def _output_count(classes: int) -> int:
    """Return the number of outputs J: one for two classes, else one for each class."""
    return 1 if classes == 2 else classes


def build_removal_problem(
    config: RemovalConfig, problem: Problem, features: FeatureMap, tilt: np.ndarray
) -> RemovalProblem:
    """Return the public numbers of a training, given its random linear term.

    Args:
        config: the settings of the certificate.
        problem: all other settings; its records are not read.
        features: the public feature map.
        tilt: [J, d] the linear term b of the loss; zeros unless masking=loss.

    Raises:
        ConfigError: settings that no proof covers.
    """
    setup = problem.setup
    # Of this loss only the number of outputs is read.
    loss = removal_loss(_output_count(problem.classes), smoothness=1.0, derivative_bound=1.0)
    plan = replace(setup.plan(problem.trained_on), epochs=1)
    setting = LinearSetting(loss, features.outputs, setup.training, plan, setup.relation)
    return RemovalProblem.from_setting(config, setting, tilt)


def training_rows(problem: Problem, features: FeatureMap) -> tuple[np.ndarray, np.ndarray]:
    """Return the public features [n, d] and labels [n] of the training records.

    Raises:
        ConfigError: more records than the plan's n_max, or a unit with too many.
    """
    records = problem.dataset.train
    setup = problem.setup
    check_unit_rows(records.units, setup.relation.unit_rows)
    # Called because it refuses more records than n_max: the only batch has all of them.
    next(replace(setup.plan(problem.trained_on), epochs=1).batches(records.units))
    return features(records.features, setup.training.dtype), records.labels


def _read_state(
    config: RemovalConfig, problem: Problem, features: FeatureMap, reader: FileReader
) -> RemovalState:
    """Read a state back, and check it against the settings and the served weights.

    Args:
        config: the settings of the certificate.
        problem: all other settings.
        features: the public feature map.
        reader: the folder of the model.

    Raises:
        ConfigError: a file is missing or cannot be read.
        UnsoundError: a tensor has another shape than the settings imply; the noise is not the
            difference of the weights; or loss or strength are not those of the settings.
    """
    width = features.outputs
    outputs = _output_count(problem.classes)
    hessians = 1 if config.loss == "least_squares" else outputs
    zero = torch.zeros(1, dtype=torch.float64)
    expected: dict[str, Tensor] = dict.fromkeys(_MATRICES, zero.expand(outputs, width))
    expected["hessian"] = zero.expand(hessians, width, width)
    expected["gram"] = zero.expand(width, width)
    tensors = read_tensors(reader, STATE, expected)
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    noise = arrays.pop("noise")
    numbers = reader.json(NUMBERS)
    served = read_tensors(reader, MODEL, {"weight": expected["weight"]})["weight"].numpy()
    try:
        state_numbers = {name: numbers[name] for name in _NUMBERS}
        state = RemovalState(**arrays, served=served, **state_numbers)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{reader.folder / NUMBERS}: cannot be read ({error}); train again"
        ) from None
    if not np.array_equal(noise, state.noise):
        raise UnsoundError(
            f"{reader.folder}/{MODEL}: the weights that are used for answers differ from "
            f"those in {STATE}: train again"
        )
    objective = build_removal_problem(config, problem, features, state.tilt).objective
    for name, implied in (("loss", objective.loss), ("strength", objective.strength)):
        stored = numbers.get(name)
        if stored != implied:
            raise UnsoundError(
                f"{reader.folder / NUMBERS}: the file says {name} = {stored}, but the run's "
                f"configuration implies {implied}: train again"
            )
    return state


@schema
class RemovalKind(RemovalConfig, ClosedFormKind):
    """A kind of certificate for heads from which records can be removed later.

    The head is the minimiser of a regularised sum, with noise that hides the error of removals
    (training/removal.py).
    """

    trains_in_steps = False
    regularised_by = "weight_decay"
    own_erasure = "newton"
    retraining_refusal = Message(
        "certificate=removal draws new noise in each training, so training again would not "
        "give the same model: remove records from such a run with {config:agt unlearn}"
    )

    @property
    def seeds(self) -> tuple[str, ...]:
        """The settings that are seeds; that of simulated noise is one if it is given."""
        if self.seed is None:
            return super().seeds
        return (*super().seeds, "seed")

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """The settings that are not read: those of all minimisers, the loss and the clip."""
        own: Mapping[str, UnreadReason] = {"training.loss": "own loss", "training.clip": "no clamp"}
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS, **own}

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """Where the noise that hides removals comes from; ``none``: there is no noise."""
        if self.masking == "none":
            return "none"
        return "drawn" if self.seed is None else "seeded"

    @property
    def noise_is_fixed(self) -> bool:
        """Whether removals keep the noise of the training: that of a random term in the loss."""
        return self.masking == "loss"

    def check_own(self, settings: Settings) -> None:
        """Raise ConfigError where there are several heads, or no strongly convex problem."""
        check_minimiser_settings(settings.training, self.name)
        if settings.ensemble.members > 1:
            raise ConfigError(
                Message(
                    "{config:ensemble.members}={members}: certificate=removal removes records "
                    "from a single head, but an ensemble trains the affected members again "
                    "instead: use {config:ensemble.members}=1, or certificate=erm",
                    members=settings.ensemble.members,
                )
            )

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = lambda progress: None,
        checkpoints: Checkpoints = NOWHERE,
    ) -> RemovalModel:
        """Train a head: draw the noise, and minimise the loss on the public features.

        Raises:
            ConfigError: settings that no proof covers, more records than the plan allows, or a
                unit with too many.
        """
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        shape = (_output_count(problem.classes), features.outputs)
        tilt = draw_tilt(self, shape, checkpoints)
        removal_problem = build_removal_problem(self, problem, features, tilt)
        phi, labels = training_rows(problem, features)
        targets = removal_problem.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(removal_problem, phi, targets, on_progress, checkpoints)
        return RemovalModel.from_state(self, problem, features, state)

    def load(self, problem: Problem, reader: FileReader) -> RemovalModel:
        """Read the head back with its state.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what is stored is not what the configuration and the state imply.
        """
        features = read_features(problem, reader)
        state = _read_state(self, problem, features, reader)
        model = RemovalModel.from_state(self, problem, features, state)
        model.check_constants(reader)
        return model

    def check_solved_anew(self, mechanism: str) -> None:
        """Raise ConfigError: the head has noise of its own, so no mechanism may solve it anew."""
        raise ConfigError(
            f"mechanism={mechanism} adds noise to weights, but certificate=removal already "
            "has its own: train with certificate=erm"
        )

    def remove_records(
        self, model: Model, erased: Records, count: int
    ) -> tuple[RemovalModel, Removal]:
        """Remove records by Newton steps, and form the matrices anew in the end.

        What holds afterwards is proved in docs/proofs/removal.md.

        Args:
            model: the model before the removal, on a problem without the removed records.
            erased: those of the removed records that are still there.
            count: how many records are removed.

        Returns:
            The model after the removal, and what was done and is promised.

        Raises:
            CannotRemove: the residual exceeds what is allowed whatever is done.
            ConfigError: the model is of another kind.
        """
        before = _removal_model(model)
        removal_problem = before.removal_problem
        phi, labels = training_rows(before.problem, before.features)
        targets = removal_problem.objective.targets(labels, before.problem.classes)
        head = RemovableHead.from_state(removal_problem.objective, before.state)
        allowed = _allowed_residual(self, before.budget)
        started = time.perf_counter()
        with threadpool_limits(before.problem.settings.compute.threads, user_api="blas"):
            stages, facts = _remove_from_head(before, erased, count, head, phi, targets, allowed)
            residual = head.residual
            forming_started = time.perf_counter()
            if not residual <= allowed:  # nor where it is NaN
                values: dict[str, Value] = {
                    "stages": tuple(stages),
                    "spent": residual,
                    "total": allowed,
                }
                raise CannotRemove(Remark("no_step_within_budget", values))
            # The old matrices depend on the removed records, and so does the noise that was seen.
            head.form_matrices(phi)
            served = removal_problem.serve(head.weight, draw_index=1 + len(phi))
            facts["seconds_settling"] = round(time.perf_counter() - forming_started, 4)
            after = before.with_state(head.state(before.state, served, allowed))
        seconds = time.perf_counter() - started
        facts = {
            "removed_by": "+".join(stages),
            "residual_before": before.state.residual,
            "residual": residual,
            **facts,
        }
        strength = after.removal_problem.objective.strength
        promise = promise_after_removal(self, after.state.residual, strength)
        steps = _describe_steps(count, stages, after, head.distance)
        budget = RemovalBudget(spent=residual, total=allowed)
        return after, Removal(promise, count, seconds, facts, steps, budget)

    def removal_bounds(self, reader: FileReader) -> RemovalBounds:
        """Return the stored residual, and the residual that the noise of these settings hides."""
        numbers = reader.json(NUMBERS)
        hidden = removal_budget(self, float(numbers["strength"]))
        allowed = _allowed_residual(self, hidden)
        return RemovalBounds(float(numbers["residual"]), allowed, hidden, self.sigma)

    def removal_promise(self, reader: FileReader, spent: float) -> Promise:
        """Return what is promised after Newton steps that left a residual of ``spent``."""
        strength = float(reader.json(NUMBERS)["strength"])
        return promise_after_removal(self, spent, strength)


def _removal_model(model: Model) -> RemovalModel:
    """Return the model, if it is of this kind.

    Raises:
        ConfigError: it is of another kind.
    """
    if not isinstance(model, RemovalModel):
        raise ConfigError(
            f"certificate={model.problem.settings.certificate.name} does not store what later "
            "removals need: train with certificate=removal"
        )
    return model


def _allowed_residual(config: RemovalConfig, hidden: float | None) -> float:
    """Return how large the residual after a removal may be.

    Args:
        config: the settings of the certificate.
        hidden: the residual that the noise hides; None: there is no noise.

    Returns:
        What the noise hides, if it may be used up; else what training itself may leave.
    """
    if hidden is None or config.bound == "measured":
        return config.tolerance
    return hidden


def _remove_from_head(
    model: RemovalModel,
    erased: Records,
    count: int,
    head: RemovableHead,
    phi: np.ndarray,
    targets: np.ndarray,
    allowed: float,
) -> tuple[list[str], dict[str, Any]]:
    """Remove records from a head by the cheapest methods that suffice.

    Args:
        model: the model before the removal.
        erased: as for ``RemovalKind.remove_records``.
        count: as for ``RemovalKind.remove_records``.
        head: changed in place; its residual may still exceed what is allowed.
        phi: [n, d] public features of the records that remain.
        targets: [n, J] of these records.
        allowed: the largest residual that is allowed.

    Returns:
        The names of the methods that were used, and facts about the step for metrics.json.
    """
    config = model.config
    facts: dict[str, Any] = {}
    all_erased_are_there = len(erased) == count
    rest_is_unchanged = head.count - len(erased) == len(phi)
    if all_erased_are_there and rest_is_unchanged:
        stages = ["step"]
        facts = _take_step(model, erased, head, phi)
        if config.bound == "measured":
            head.polish(phi, targets)
            stages.append("polish")
    else:
        stages = ["refresh"]
        head.refresh(phi, targets)
    if config.bound != "worst":
        stages += reduce_residual(head, phi, targets, allowed)
    return stages, facts


def _take_step(
    model: RemovalModel, erased: Records, head: RemovableHead, phi: np.ndarray
) -> dict[str, Any]:
    """Remove records from a head by one Newton step.

    Args:
        model: the model before the removal.
        erased: the records to remove.
        head: changed in place.
        phi: [n, d] public features of the records that remain.

    Returns:
        The step's time and bounds, for metrics.json.
    """
    started = time.perf_counter()
    config = model.config
    objective = head.objective
    erased_targets = objective.targets(erased.labels, model.problem.classes)
    remaining = phi if config.factorisation == "fresh" else None
    step = head.remove(model.phi(erased.features), erased_targets, remaining)
    derivative_bound = model.removal_problem.loss.derivative_bound
    worst_bound = worst_case(
        objective.curvature_lipschitz,
        removed=len(erased),
        remaining=head.count,
        strength=objective.strength,
        derivative_bound=derivative_bound,
        outputs=len(head.weight),
    )
    if config.bound == "worst":
        head.residual = max(step.after, step.before + worst_bound)
    return {
        "seconds_step": round(time.perf_counter() - started, 6),
        "bound_of_step": step.after - step.before,
        "worst_case_of_step": worst_bound,
    }


def _describe_steps(
    count: int, stages: Sequence[str], model: RemovalModel, distance: float
) -> tuple[Remark, ...]:
    """Return remarks about what was done in a removal, one after the other.

    Args:
        count: how many records were removed.
        stages: the names of the methods that were used.
        model: the model after the removal.
        distance: bound on the distance of its weights from the minimiser.
    """
    remarks = []
    if "step" not in stages:
        remarks.append(Remark("rows_gone", {"records": count}))
    for stage in stages:
        values: dict[str, Value] = {"records": count} if stage == "step" else {}
        remarks.append(Remark(stage, values))
    bounds: dict[str, Value] = {
        "residual": model.state.residual,
        "distance": distance,
        "records": model.state.count,
    }
    remarks.append(Remark("gradient_left", bounds))
    remarks.append(Remark("matrices_formed_anew"))
    if model.config.masking == "output":
        remarks.append(Remark("served_noise_drawn_anew"))
    return tuple(remarks)
