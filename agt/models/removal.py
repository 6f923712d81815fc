"""``certificate=removal``: a linear head from which records are removed without training again.

| file | content |
|---|---|
| model.safetensors | "weight" [J, d], the noisy weights (those that predict) |
| features.safetensors, stability.json | as for every linear head (agt/models/linear.py) |
| removal.safetensors | for the data owner only: weight, tilt, reference, hessian and gram |
| | of ``RemovalState``; noise, the noisy weights minus weight |
| removal.json | norm, residual, allowed, count and removed of ``RemovalState``; loss, strength |

The method is that of paper 003 (docs/bibliography.md).
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

from agt.certificates.conditions import Condition, add_facts, stated_constants
from agt.certificates.settings import RemovalCertificateConfig
from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError, altered
from agt.facts import proved
from agt.messages import Message
from agt.models.box import GIVEN_THE_DRAW
from agt.models.closed_form import ClosedFormKind, read_features
from agt.models.erm import UNREAD_OF_MINIMISERS
from agt.models.features import FeatureMap
from agt.models.kind import CannotRemove, RemovalBounds, UnreadReason
from agt.models.linear import LinearModel, movement_values
from agt.models.model import Model, RemovableWeights
from agt.models.store import MODEL, FileWriter, read_tensors, write_linear
from agt.numeric import next_up, step_of
from agt.problem import Problem
from agt.settings import schema
from agt.store.folder import Folder
from agt.store.json_text import Metrics, as_json
from agt.templates import upward
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.linear import LinearTrained
from agt.training.loop import OnProgress, ignore_progress
from agt.training.removal import (
    RemovalProblem,
    RemovalState,
    draw_tilt,
    minimise,
    removal_budget,
)
from agt.training.settings import RemovalConfig
from agt.unlearning.newton import (
    MINIMISATION,
    NEWTON_STEP,
    REPEATED_STEPS,
    RemovableHead,
    reduce_residual,
    worst_step_increase,
)
from agt.unlearning.newton_promise import promise_after_removal
from agt.unlearning.promise import Promise, Removal, RemovalBudget
from agt.unlearning.sentences import Remark, Value

_CLOSENESS = "({eps:g}, {delta:g})-close to training without the removed records"
_PROVED = (
    "records can be removed later without training again. After a removal, the weights that are "
    f"used for answers are {_CLOSENESS}"
)
_PREDICTED = (
    "records can be removed later without training again, but this is not proved, because the "
    "noise comes from a seed. With unpredictable noise, the weights after a removal would be "
    f"{_CLOSENESS}"
)
_CLAIMED = (
    "records can be removed later without training again. agt does not prove this, but the paper "
    "on this method (Guo et al. 2020) claims that the model after a removal is "
    f"{_CLOSENESS}"
)
SEEDED = (
    "SIMULATION: the noise comes from certificate.seed={seed}, so anyone who knows the seed can "
    "subtract it"
)
STATE = "removal.safetensors"
NUMBERS = "removal.json"
# The fields of ``RemovalState`` that removal.safetensors and removal.json hold.
_MATRICES = ("weight", "tilt", "noise", "reference", "hessian", "gram")
_NUMBERS = ("norm", "residual", "allowed", "count", "removed")


@dataclass(frozen=True)
class RemovalModel(LinearModel):
    """A linear head on public features, and the state from which removals of records start.

    The weights approximately minimise a regularised loss. The residual of weights is the l2 norm of
    the gradient of this objective there: 0 at the exact minimiser.

    Attributes:
        state: the weights before noise, the Hessian and other sums over the records; it is private.
        config: the settings of the loss, the noise and the removals.
    """

    state: RemovalState
    config: RemovalConfig

    @classmethod
    def from_state(
        cls, config: RemovalConfig, problem: Problem, features: FeatureMap, state: RemovalState
    ) -> "RemovalModel":
        """Return the head that has this state, which training or a removal left.

        The head predicts with the state's noisy weights.

        Args:
            config: the settings of the certificate.
            problem: all other settings, and the records that remain.
            features: the public feature map.
            state: the weights and the matrices.

        Raises:
            ConfigError: no proof covers the settings.
            UnsoundError: these settings cannot have given the noisy weights.
        """
        removal_problem = build_removal_problem(config, problem, state.tilt)
        removal_problem.check_noisy_weight(state)
        # How far one record moves the weights, if the residual is at most what the state allows.
        sensitivity = removal_problem.sensitivity(state.allowed)
        trained = LinearTrained(
            weight=torch.from_numpy(state.noisy_weight),
            loss=removal_problem.loss,
            plan=removal_problem.plan,
            sensitivity=sensitivity,
            training=problem.setup.training,
        )
        return cls(problem, features, trained, state, config)

    @property
    def removable_weights(self) -> RemovableWeights:
        """The weights before and after the noise that hides removals, and the noise itself."""
        state = self.state
        objective = self.removal_problem.objective
        # The objective is strongly convex with the constant ``strength``, so the norm of its
        # gradient bounds the distance from the minimiser.
        distance_to_minimiser = state.residual / objective.strength

        return RemovableWeights(
            weight=state.weight,
            noisy_weight=state.noisy_weight,
            sigma=self.config.sigma,  # 0 with masking=none
            noise_is_random=self.config.seed is None,
            distance=distance_to_minimiser,
        )

    @property
    def stores_noise(self) -> bool:
        """True: the noise of the training is stored in the state."""
        return True

    def retrain_with_same_noise(self, problem: Problem) -> "RemovalModel":
        """Train on another problem with the same random noise as this head.

        Args:
            problem: other records, such as those of a neighbouring dataset, with equal settings.

        Returns:
            The head with the new weights. Its ``state`` is still that of this head, so no records
            can be removed from it.

        Raises:
            ConfigError: there are more records than the plan's ``n_max``, or a unit has more rows
                than ``relation.unit_rows``.
        """
        phi, labels = training_rows(problem, self.features)
        removal_problem = self.removal_problem  # with the random linear term of this head
        targets = removal_problem.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(removal_problem, phi, targets, start=self.state.weight)
        # The noise on the weights is that of this head; ``minimise`` drew another one.
        noisy_weight = state.weight + self.state.noise
        return self.with_weight(torch.from_numpy(noisy_weight))

    def save(self, writer: FileWriter) -> None:
        """Write the files of a linear head, and the state in removal.safetensors and removal.json.

        removal.safetensors holds weights without noise, so it is for the data owner only.
        """
        write_linear(writer, self.trained.weight, self.features.matrices, self.constants)
        # Fields of the state are stored under their own names.
        tensors = {name: torch.tensor(getattr(self.state, name)) for name in _MATRICES}
        writer.write(STATE, save(tensors))
        objective = self.removal_problem.objective
        numbers = {"loss": objective.loss, "strength": objective.strength}
        for name in _NUMBERS:
            numbers[name] = getattr(self.state, name)
        writer.write(NUMBERS, as_json(numbers))

    @property
    def removal_problem(self) -> RemovalProblem:
        """The objective and the public constants of the training.

        The objective includes the random linear term ``tilt`` of the state, which is 0 unless
        ``masking=loss``.
        """
        return build_removal_problem(self.config, self.problem, self.state.tilt)

    @property
    def budget(self) -> float | None:
        """The largest residual that the noise hides; None if there is no noise.

        The residual is the l2 norm of the objective's gradient at the weights.
        """
        return removal_budget(self.config, self.removal_problem.objective.strength)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The seven conditions of a privacy claim, each with its evidence, in the order a to g.

        They are those of docs/method.md. Evidence is a tuple of facts. A fact has a code, which
        names a sentence in agt/fact_sentences.py, and the values in that sentence.

        The evidence for condition c (all constants are public) and for condition d (one record
        moves the weights by a bounded distance) is particular to this model. With noise, d compares
        two heads with the same noise, so its evidence says that it holds given the draw.
        """
        max_residual = self.state.allowed  # a public bound on the norm of the gradient
        constants_are_stated = stated_constants(
            self.plan,
            code="removal_objective_stated",
            weight_decay=self.trained.training.weight_decay,
            residual=max_residual,
        )
        movement_is_bounded = proved(
            "minimiser_of_sum",
            strength=self.removal_problem.objective.strength,
            gradient=max_residual,
            **movement_values(self.trained),
        )
        conditions = self._assess(constants=constants_are_stated, movement=movement_is_bounded)
        if self.config.masking == "none":
            return conditions
        return add_facts(conditions, facts_of={"d": (GIVEN_THE_DRAW,)})

    @property
    def metrics(self) -> Metrics:
        """The metrics of a linear head and of its state, such as the residual, by name.

        ``simulation`` is 1 if the noise comes from a seed, and then the noise hides nothing.
        """
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
        """Sentences for a report on removing records later, a summary first.

        What is said depends on where the noise is: none, in the loss, or on the weights.
        """
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
        """Return a report's sentences on removals with ``masking=none`` (least squares only)."""
        strength = self.removal_problem.objective.strength
        # The weights after a removal, and those of a new training, are each within
        # tolerance / strength of the minimiser. Rounded up, because it is an upper bound.
        distance = upward(next_up(2 * self.config.tolerance / strength))
        return (
            "records can be removed later without training again. After a removal, the l2 "
            "distance between the weights and those of training without these records is at "
            f"most {distance}. For least squares, this needs no noise",
        )

    def _sentences_on_noise_in_loss(self) -> tuple[str, ...]:
        """Return a report's sentences on removals with ``masking=loss`` (a random linear term).

        The paper's guarantee is reported as its claim, because its proof has a gap.
        """
        return (
            self._closeness(_CLAIMED),
            f"a random linear term in the loss (with standard deviation {self.config.sigma:g} in "
            "every coordinate) is meant to hide the error that later removals leave in the "
            "weights. The published proof assumes that this error is independent of the random "
            "term, which it is not. Use certificate.masking=output for a guarantee that is proved",
        )

    def _sentences_on_noise_on_weights(self) -> tuple[str, ...]:
        """Return a report's sentences on removals with ``masking=output`` (noise on weights).

        Noise from a seed is a simulation, so then the guarantee is reported as not proved.
        """
        is_proved = self.config.seed is None
        lattice_step = step_of(self.config.sigma)
        return (
            self._closeness(_PROVED if is_proved else _PREDICTED),
            "the error that later removals leave is hidden by noise (with standard deviation "
            f"{self.config.sigma:g} in every coordinate) on the weights that are used for "
            f"answers. The noise is drawn exactly, is rounded to multiples of {lattice_step:.3g}, "
            "and is drawn again at each update",
            "the weights without noise stay in the run's folder, because later removals need "
            "them. For these weights, only the distance to retraining is guaranteed, not privacy",
        )

    def _closeness(self, template: str) -> str:
        """Return a sentence on the closeness to a new training, and its limit.

        The limit is the removal budget: the largest residual (norm of the objective's gradient at
        the weights) that the noise hides.

        Args:
            template: the sentence, with the names of eps and delta.
        """
        closeness = template.format(eps=self.config.eps, delta=self.config.delta)
        return (
            f"{closeness}. This holds as long as the total error of the removals (gradient norm) "
            f"stays below {self.budget:.4g}. The optimiser has already used "
            f"{self.state.residual:.2g} of this limit"
        )


def _output_count(classes: int) -> int:
    """Return J, the number of logits: 1 for two classes, else the number of classes."""
    return 1 if classes == 2 else classes


def build_removal_problem(
    config: RemovalConfig, problem: Problem, tilt: np.ndarray
) -> RemovalProblem:
    """Return the objective of a training, and the public constants of its proofs.

    Args:
        config: the settings of the certificate.
        problem: all other settings; its records are not read.
        tilt: [J, d] the linear term b of the loss, for J outputs and d public features. It is
            random with masking=loss, and 0 otherwise.

    Raises:
        ConfigError: no proof covers the settings.
    """
    setup = problem.setup
    plan = _plan_of_one_pass(problem)
    weight_decay = setup.training.weight_decay
    return RemovalProblem.from_plan(config, plan, setup.relation, weight_decay, tilt)


def _plan_of_one_pass(problem: Problem) -> BatchPlan:
    """Return the plan of a single batch of all records, for one epoch: a minimiser has no more.

    Args:
        problem: the settings; its records are counted only if no size was declared.
    """
    plan = problem.setup.plan(problem.record_count)
    return replace(plan, epochs=1)


def training_rows(problem: Problem, features: FeatureMap) -> tuple[np.ndarray, np.ndarray]:
    """Return the public features [n, d] and labels [n] of a problem's training records.

    Args:
        problem: the records, and the settings with their public caps.
        features: the public feature map.

    Raises:
        ConfigError: there are more records than the plan's ``n_max``, or a unit has more rows than
            ``relation.unit_rows``.
    """
    records = problem.dataset.train
    setup = problem.setup
    check_unit_rows(records.units, setup.relation.unit_rows)
    _plan_of_one_pass(problem).check_batch_sizes(records.units)
    return features(records.features, setup.training.dtype), records.labels


def _read_state(
    config: RemovalConfig, problem: Problem, features: FeatureMap, reader: Folder
) -> RemovalState:
    """Read the state of a head back, and check it against the settings and the noisy weights.

    The noisy weights are those that predict.

    Args:
        config: the settings of the certificate.
        problem: all other settings; its records are not read.
        features: the public feature map.
        reader: the folder that ``RemovalModel.save`` wrote.

    Raises:
        ConfigError: a file is missing or cannot be read.
        UnsoundError: a tensor has another shape than the settings imply; the stored noise is not
            the noisy weights minus the weights; or the stored loss or strength of the regulariser
            is not that of the settings.
    """
    width = features.outputs
    outputs = _output_count(problem.classes)
    # The Hessian of least squares depends on no label and no weight, so all outputs share it.
    hessians = 1 if config.loss == "least_squares" else outputs
    zero = torch.zeros(1, dtype=torch.float64)
    expected: dict[str, Tensor] = dict.fromkeys(_MATRICES, zero.expand(outputs, width))
    expected["hessian"] = zero.expand(hessians, width, width)
    expected["gram"] = zero.expand(width, width)
    tensors = read_tensors(reader, STATE, expected)
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in tensors.items()}
    noise = arrays.pop("noise")
    numbers = reader.json(NUMBERS)
    # The weights in the model's own file are those that predict.
    noisy_weight = read_tensors(reader, MODEL, {"weight": expected["weight"]})["weight"].numpy()
    try:
        state_numbers = {name: numbers[name] for name in _NUMBERS}
        state = RemovalState(**arrays, noisy_weight=noisy_weight, **state_numbers)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{reader.folder / NUMBERS}: this file cannot be read ({error}): train again"
        ) from None
    if not np.array_equal(noise, state.noise):
        raise UnsoundError(
            altered(
                reader.folder,
                f"the weights in {MODEL} differ from those in {STATE}",
                "train again",
            )
        )
    objective = build_removal_problem(config, problem, state.tilt).objective
    for name, implied in (("loss", objective.loss), ("strength", objective.strength)):
        stored = numbers.get(name)
        if stored != implied:
            raise UnsoundError(
                f"{reader.folder / NUMBERS}: the file says {name} = {stored}, but the run's "
                f"configuration implies {implied}: train again"
            )
    return state


@schema
class RemovalKind(RemovalCertificateConfig, ClosedFormKind):
    """The kind of certificate for a linear head from which records can be removed later.

    The head minimises a regularised sum of losses. Noise hides the error that removals leave.
    """

    trains_in_steps = False
    regularised_by = "weight_decay"
    retraining_refusal = Message(
        "certificate=removal draws new noise in each training, so removals cannot be checked by "
        "training again. Remove records from this run with {config:agt unlearn}"
    )

    @property
    def seeds(self) -> tuple[str, ...]:
        """The names of the settings that are seeds; ``seed`` is one if it was given (not None)."""
        if self.seed is None:
            return super().seeds
        return (*super().seeds, "seed")

    @property
    def unread_settings(self) -> Mapping[str, UnreadReason]:
        """Dotted name of a setting that training does not read -> the reason.

        They are those of every minimiser, and the loss and the clip level: this kind has its own
        loss, and clamps no gradient.
        """
        of_removal: Mapping[str, UnreadReason] = {
            "training.loss": "own loss",
            "training.clip": "no clamp",
        }
        return {**super().unread_settings, **UNREAD_OF_MINIMISERS, **of_removal}

    @property
    def noise(self) -> Literal["none", "seeded", "drawn"]:
        """The source of the noise that hides removals: the system's generator, a seed, or none."""
        if self.masking == "none":
            return "none"
        return "drawn" if self.seed is None else "seeded"

    @property
    def noise_is_fixed(self) -> bool:
        """True if the noise of the training stays after removals: a random term in the loss."""
        return self.masking == "loss"

    def fit(
        self,
        problem: Problem,
        on_progress: OnProgress = ignore_progress,
        checkpoints: Checkpoints = NO_CHECKPOINTS,
    ) -> RemovalModel:
        """Train a head: minimise the regularised loss on the public features, with noise.

        Args:
            problem: the training records and all settings.
            on_progress: called with the progress of the solver.
            checkpoints: where the solver saves its state, and resumes if it was interrupted.

        Raises:
            ConfigError: no proof covers the settings; there are more records than the plan's
                ``n_max``; or a unit has more rows than ``relation.unit_rows``.
        """
        features = FeatureMap.from_dataset(self.features, problem.dataset)
        shape = (_output_count(problem.classes), features.outputs)
        # Drawn before any record is read, as the proof assumes.
        tilt = draw_tilt(self, shape, checkpoints)
        removal_problem = build_removal_problem(self, problem, tilt)
        phi, labels = training_rows(problem, features)
        targets = removal_problem.objective.targets(labels, problem.classes)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            state = minimise(removal_problem, phi, targets, on_progress, checkpoints)
        return RemovalModel.from_state(self, problem, features, state)

    def load(self, problem: Problem, reader: Folder) -> RemovalModel:
        """Read a saved head back with its state, and check both against the settings.

        Args:
            problem: all settings; its records are not read.
            reader: the folder that ``RemovalModel.save`` wrote.

        Raises:
            ConfigError: a file is missing or cannot be read.
            UnsoundError: what is stored contradicts the settings or itself.
        """
        features = read_features(problem, reader)
        state = _read_state(self, problem, features, reader)
        model = RemovalModel.from_state(self, problem, features, state)
        model.check_constants(reader)
        return model

    def remove_records(
        self, model: Model, erased: Records, count: int
    ) -> tuple[RemovalModel, Removal]:
        """Remove records by Newton steps, and return a new model; ``model`` is not changed.

        The new weights are close to the minimiser over the records that remain: the residual, a
        bound on the l2 norm of the objective's gradient there, is at most what the settings allow.
        The promise that follows is proved in docs/proofs/removal.md.

        Args:
            model: the model before the removal, with a problem that holds the records that remain.
            erased: the removed records that the data still has; there may be fewer than ``count``.
            count: the number of removed records.

        Returns:
            The model after the removal; and what was done, with what is promised of the new model.

        Raises:
            CannotRemove: no method reduces the residual to what is allowed.
        """
        before = model
        assert isinstance(before, RemovalModel), "this kind trains and loads no other model"
        removal_problem = before.removal_problem
        phi, labels = training_rows(before.problem, before.features)
        targets = removal_problem.objective.targets(labels, before.problem.classes)
        head = RemovableHead.from_state(removal_problem.objective, before.state)
        max_residual = _max_residual(self, before.budget)
        started = time.perf_counter()
        with threadpool_limits(before.problem.settings.compute.threads, user_api="blas"):
            methods, facts = _remove_from_head(
                before, erased, count, head, phi, targets, max_residual
            )
            residual = head.residual
            forming_started = time.perf_counter()
            if not residual <= max_residual:  # written so that NaN is refused, too
                raise _no_step_within_budget(methods, residual, max_residual)
            # The old matrices, and the noise on weights that have answered queries, depend on the
            # removed records. So both are replaced.
            head.form_matrices(phi)
            # Seeded noise is another draw for each number of records; draw 0 is that of training.
            noisy_weight = removal_problem.add_noise(head.weight, draw_index=1 + len(phi))
            facts["seconds_settling"] = round(time.perf_counter() - forming_started, 4)
            state = head.state(before.state, noisy_weight, max_residual)
            after = RemovalModel.from_state(before.config, before.problem, before.features, state)
        seconds = time.perf_counter() - started
        facts = {
            "removed_by": "+".join(methods),
            "residual_before": before.state.residual,
            "residual": residual,
            **facts,
        }
        strength = after.removal_problem.objective.strength
        promise = promise_after_removal(self, after.state.residual, strength)
        steps = _describe_steps(count, methods, after, head.distance)
        budget = RemovalBudget(spent=residual, total=max_residual)
        return after, Removal(
            promise=promise,
            records=count,
            seconds=seconds,
            facts=facts,
            steps=steps,
            budget=budget,
        )

    def removal_bounds(self, reader: Folder) -> RemovalBounds:
        """Return the bound on the model's error after the removals so far, and the limits on it.

        The residual is a bound on the l2 norm of the objective's gradient at the weights.

        Args:
            reader: the folder of a saved model.
        """
        numbers = reader.json(NUMBERS)
        budget = removal_budget(self, float(numbers["strength"]))
        return RemovalBounds(
            spent=float(numbers["residual"]),
            total=_max_residual(self, budget),
            hidden=budget,
            noise=self.sigma,
        )

    def removal_promise(self, reader: Folder, spent: float) -> Promise:
        """Return the promise about a model after removals by Newton steps.

        Args:
            reader: the folder of the saved model.
            spent: the residual that the removals left (``RemovalBounds.spent``).
        """
        strength = float(reader.json(NUMBERS)["strength"])
        return promise_after_removal(self, spent, strength)


def _no_step_within_budget(
    methods: Sequence[str], residual: float, max_residual: float
) -> CannotRemove:
    """Return the error of a removal whose residual exceeds what the settings allow.

    Args:
        methods: the names of the methods that were tried.
        residual: the residual after the last of them.
        max_residual: the largest residual that is allowed.
    """
    values: dict[str, Value] = {
        "stages": tuple(methods),
        "spent": residual,
        "total": max_residual,
    }
    return CannotRemove(Remark("no_step_within_budget", values))


def _max_residual(config: RemovalConfig, budget: float | None) -> float:
    """Return the largest residual that a removal may leave.

    The residual is a bound on the l2 norm of the objective's gradient at the weights.

    Args:
        config: the settings of the certificate.
        budget: the largest residual that the noise hides; None: no noise is added.

    Returns:
        ``budget``; but without noise, or if every removal measures the residual
        (``bound=measured``), the tolerance that training has to meet as well.
    """
    if budget is None or config.bound == "measured":
        return config.tolerance
    return budget


def _remove_from_head(
    model: RemovalModel,
    erased: Records,
    count: int,
    head: RemovableHead,
    phi: np.ndarray,
    targets: np.ndarray,
    max_residual: float,
) -> tuple[list[str], dict[str, Any]]:
    """Remove records from a head in place, by the cheapest methods that suffice.

    The caller must check ``head.residual`` afterwards, which may still exceed ``max_residual``.

    Args:
        model: the model before the removal.
        erased: the removed records that the data still has.
        count: the number of removed records.
        head: the weights and the matrices; changed in place.
        phi: [n, d] public features of the records that remain.
        targets: [n, J] the regression targets of these records.
        max_residual: the largest residual (norm of the objective's gradient) that is allowed.

    Returns:
        The codes of the methods that were used, in their order; and facts about the Newton step for
        metrics.json, empty without one.
    """
    bound = model.config.bound  # how the residual after a removal is bounded
    methods: list[str] = []
    facts: dict[str, Any] = {}
    # One Newton step needs the removed records themselves, and that the others are unchanged.
    has_all_removed_records = len(erased) == count
    others_are_unchanged = head.count - len(erased) == len(phi)
    if has_all_removed_records and others_are_unchanged:
        facts = _take_newton_step(model, erased, head, phi)
        methods.append(NEWTON_STEP)
        if bound == "measured":
            # Its result is not needed, because ``head.residual`` says what is left.
            head.repeat_newton_steps(phi, targets)
            methods.append(REPEATED_STEPS)
    else:
        head.minimise_again(phi, targets)
        methods.append(MINIMISATION)
    # bound=worst charges the worst case over all data, and never measures the residual instead.
    if bound != "worst":
        methods += reduce_residual(head, phi, targets, max_residual)
    return methods, facts


def _take_newton_step(
    model: RemovalModel, erased: Records, head: RemovableHead, phi: np.ndarray
) -> dict[str, Any]:
    """Remove records from a head in place, by one Newton step.

    Args:
        model: the model before the removal.
        erased: the records to remove.
        head: the weights and the matrices; changed in place.
        phi: [n, d] public features of the records that remain.

    Returns:
        For metrics.json: the time in seconds, and how much the step can have added to the residual
        (norm of the objective's gradient), on this data and in the worst case over all data.
    """
    started = time.perf_counter()
    config = model.config
    objective = head.objective
    erased_phi = model.phi(erased.features)
    erased_targets = objective.targets(erased.labels, model.problem.classes)
    # With ``fresh`` the Hessian is computed again, over the remaining records. Else (None) the
    # removed records' terms are subtracted from the stored one.
    rows_of_new_hessian = phi if config.factorisation == "fresh" else None
    step = head.remove(erased_phi, erased_targets, rows_of_new_hessian)
    max_increase = worst_step_increase(  # of the residual, over all data
        objective.curvature_lipschitz,
        removed=len(erased),
        remaining=head.count,
        strength=objective.strength,
        derivative_bound=model.removal_problem.loss.derivative_bound,
        outputs=len(head.weight),
    )
    if config.bound == "worst":
        # ``after`` may be larger, because the worst case leaves out rounding and an old Hessian.
        head.residual = max(step.after, step.before + max_increase)
    return {
        "seconds_step": round(time.perf_counter() - started, 6),
        "bound_of_step": step.after - step.before,
        "worst_case_of_step": max_increase,
    }


def _describe_steps(
    count: int, methods: Sequence[str], model: RemovalModel, distance: float
) -> tuple[Remark, ...]:
    """Return remarks on the steps of a removal, in order.

    A remark is a code with values, from which ``agt.unlearning.sentences`` makes a sentence.

    Args:
        count: the number of removed records.
        methods: the codes of the methods that were used.
        model: the model after the removal.
        distance: a bound on the l2 distance of its weights from the minimiser.
    """
    remarks = []
    if NEWTON_STEP not in methods:  # it was not possible, as rows are missing or have changed
        remarks.append(Remark("rows_gone", {"records": count}))
    for method in methods:
        values: dict[str, Value] = {}
        if method == NEWTON_STEP:
            values["records"] = count
        remarks.append(Remark(method, values))
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
