"""How far one record can move a linear head that plain SGD trains, from public numbers alone.

``sgd_sensitivity`` is for runs of SGD (training/linear.py); minimisers and removable heads fill in
the same ``Sensitivity``. Derivative c of the loss in the logits, its bound C and its smoothness h:

| loss       | c                             | C         | h   |
|------------|-------------------------------|-----------|-----|
| binary     | clamp(sigmoid(f) - y, -C, C)  | min(C, 1) | 1/4 |
| one_vs_all | the same for each class alone | min(C, 1) | 1/4 |
| softmax    | p - e_y, never clamped        | sqrt 2    | 1/2 |

Proofs: docs/proofs/sensitivity.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from agt.errors import ConfigError
from agt.messages import Message, Setting
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.relations import RELATIONS
from agt.settings import RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.setup import TrainingSetup
from agt.training.sgd import learning_rate
from agt.training.spectral import UNDERFLOW_ALLOWANCE


@dataclass(frozen=True)
class LinearLoss:
    """A loss of a linear head, with the constants that its sensitivity depends on.

    Attributes:
        kind: ``binary`` (one logit for two classes), ``one_vs_all`` or ``softmax``.
        outputs: J, the number of logits and of rows of the weights.
        derivative_bound: C, a bound on the norm of the loss's derivative in the logits; of each
            class's derivative for ``one_vs_all``.
        smoothness: h, the Lipschitz constant of that derivative.
        margin_factor: a margin at a feature vector of norm 1 moves by at most this times the
            movement of the weights (of one class's weights, for ``one_vs_all``).
        all_classes_factor: the weights of all classes together move by at most this times the same
            movement.
    """

    kind: str
    outputs: int
    derivative_bound: float
    smoothness: float
    margin_factor: float
    all_classes_factor: float

    @classmethod
    def from_settings(cls, training: TrainingConfig, classes: int) -> "LinearLoss":
        """Return the loss that the training settings name.

        Args:
            training: its ``loss`` and ``clip`` are read.
            classes: the number of classes; ``binary_cross_entropy`` is ``binary`` for two and
                ``one_vs_all`` for more.

        Raises:
            ConfigError: no bound of the loss's derivative is known, or a softmax's derivative would
                be clamped (clip below 1).
        """
        if training.loss not in ("binary_cross_entropy", "cross_entropy"):
            raise ConfigError(
                Message(
                    "{config:training.loss}={loss}: no closed-form certificate covers this "
                    "loss; use {config:training.loss}=binary_cross_entropy, or certificate=box",
                    loss=training.loss,
                )
            )
        if training.loss == "cross_entropy":
            if training.clip < 1:
                raise ConfigError(
                    Message(
                        "{config:training.clip}={clip:g}: a clamped softmax gradient is not "
                        "the gradient of a convex function, so there is no bound on how far "
                        "training moves; use {config:training.clip}=1 (nothing is clamped), "
                        "or {config:training.loss}=binary_cross_entropy, which trains one "
                        "clamped classifier for each class",
                        clip=training.clip,
                    )
                )
            root_two = next_up(math.sqrt(2))
            return cls("softmax", classes, root_two, 0.5, root_two, 1.0)
        derivative_bound = min(training.clip, 1.0)
        if classes == 2:
            return cls("binary", 1, derivative_bound, 0.25, 1.0, 1.0)
        root_classes = next_up(math.sqrt(classes))
        return cls("one_vs_all", classes, derivative_bound, 0.25, 2.0, root_classes)


@dataclass(frozen=True)
class LinearSetting:
    """The public settings that a linear head's sensitivity follows from.

    Attributes:
        loss: the loss and its constants.
        width: the number of public features of a record.
        training: learning rates and weight decay.
        plan: the batches: how many, their public normaliser B, and n_max, the most records of one.
        relation: which datasets are neighbours.
    """

    loss: LinearLoss
    width: int
    training: TrainingConfig
    plan: BatchPlan
    relation: RelationConfig

    @classmethod
    def from_training_setup(cls, setup: TrainingSetup, records: int, width: int) -> "LinearSetting":
        """Return the settings of a linear head trained by ``setup``.

        Args:
            setup: how to train.
            records: the number of training records, read only if no public size was declared.
            width: the number of public features of a record.

        Raises:
            ConfigError: no closed form covers the loss, or a batch size is out of range.
        """
        loss = LinearLoss.from_settings(setup.training, setup.classes)
        plan = setup.plan(records)
        return cls(loss, width, setup.training, plan, setup.relation)

    @property
    def rate_limit(self) -> float:
        """The largest learning rate at which no step drives two heads apart.

        It is 2 / (2 weight_decay + h n_max / B), to rounding; ``StepCoefficients.may_expand``
        decides exactly.
        """
        plan = self.plan
        loss_curvature = self.loss.smoothness * plan.n_max / plan.normalizer
        return 2 / (2 * self.training.weight_decay + loss_curvature)


@dataclass(frozen=True)
class Sensitivity:
    """How far training can move a head, in l2 norm and from public numbers alone.

    Distances are of the whole weights for ``binary`` and ``softmax``, of one class's weights for
    ``one_vs_all``.

    Attributes:
        rho: how far one record moves the weights in exact arithmetic.
        rounding: how far apart two computed runs on the same records can be.
        radius: a bound on the norm of the computed weights.
        rate_limit: the largest learning rate that is allowed; None where no step size matters.
        rows: how many records one k of the relation moves (``rows_moved``).
    """

    rho: float
    rounding: float
    radius: float
    rate_limit: float | None
    rows: int

    @property
    def rho_fp(self) -> float:
        """How far one record moves the computed weights."""
        return next_up(self.rho + self.rounding)

    @property
    def per_k(self) -> float:
        """How far one k of the relation moves the computed weights."""
        return next_up(self.rows * self.rho_fp)


@dataclass(frozen=True)
class StepCoefficients:
    """The two public numbers of one step of SGD with decoupled weight decay.

    The step is theta' = ``decay_factor`` theta - ``step_size`` (sum of the batch's gradients).

    Attributes:
        decay_factor: 1 - lr weight_decay.
        step_size: lr / B, B the public normaliser.
    """

    decay_factor: float
    step_size: float

    @classmethod
    def at_step(cls, training: TrainingConfig, plan: BatchPlan, step: int) -> "StepCoefficients":
        """Return the numbers of one step; the first is step 0."""
        rate = learning_rate(training, step)
        decay_factor = 1 - rate * training.weight_decay
        return cls(decay_factor, step_size=rate / plan.normalizer)

    def may_expand(self, loss: LinearLoss, n_max: int) -> bool:
        """Return whether the step may drive two heads apart, decided in rational arithmetic.

        It cannot if step_size h n_max <= 2 decay_factor, for any batch of up to n_max records
        (Lemma 1 of docs/proofs/sensitivity.md).
        """
        step_curvature = Fraction(self.step_size) * Fraction(loss.smoothness) * n_max
        return step_curvature > 2 * Fraction(self.decay_factor)


def rows_moved(relation: RelationConfig, loss: LinearLoss | None = None) -> int:
    """Return how many records one k of the relation moves, a changed label counted as records.

    A label that changes counts as one record or as two (Lemma 3 of docs/proofs/sensitivity.md).

    Args:
        relation: which datasets are neighbours.
        loss: the loss of a linear head, whose labels may change; None: any model.

    Raises:
        ConfigError: only labels change and no loss was given, or the relation divides by the actual
            batch size, which one record changes.
    """
    derivative_bound = None if loss is None else loss.derivative_bound
    rule = RELATIONS[relation.name]
    return rule.rows_moved(relation.unit_rows, derivative_bound)


def sgd_sensitivity(setting: LinearSetting, average: int = 1) -> Sensitivity:
    """Bound how far one record moves the weights that plain SGD from 0 ends with.

    Args:
        setting: the public settings of the run.
        average: the model is the mean of this many last iterates; 1: the last one.

    Formal guarantees:
        - Two computed runs whose records are k apart under the relation have weights at most
          k ``per_k`` apart, for every k >= 1; two runs on the same records at most ``rounding``.
        - No record is read: all that enters is public.
        - Every number is rounded up.

    Raises:
        ConfigError: the relation is not covered, there is momentum, a step may drive two heads
            apart, or more iterates are averaged than there are steps.
    """
    rows = rows_moved(setting.relation, setting.loss)
    check_no_momentum(setting.training)
    steps = setting.plan.steps
    if average > steps:
        raise ConfigError(
            Message(
                "{config:certificate.average}={average} exceeds the number of training steps, "
                "{steps}: give a smaller number",
                average=average,
                steps=steps,
            )
        )
    all_coefficients = _checked_coefficients(setting)
    movements = _movement_bounds(setting, all_coefficients)
    drifts, radii = _rounding_bounds(setting, all_coefficients)
    max_radius = max(radii)
    rho = _mean_rounded_up(movements[-average:])
    drift = _mean_rounded_up(drifts[-average:])
    if average > 1:
        # Lemma 6 of docs/proofs/sensitivity.md: the mean is rounded, too.
        mean_rounding = next_up(gamma_up(average + 2) * max_radius)
        drift = next_up(drift + mean_rounding)
    final_radius = next_up(max_radius + drift)
    return Sensitivity(rho, 2 * drift, final_radius, setting.rate_limit, rows)


def _checked_coefficients(setting: LinearSetting) -> list[StepCoefficients]:
    """Return the coefficients of every step of a run.

    Raises:
        ConfigError: a step may drive two heads apart.
    """
    all_coefficients = []
    for step in range(setting.plan.steps):
        coefficients = StepCoefficients.at_step(setting.training, setting.plan, step)
        if coefficients.may_expand(setting.loss, setting.plan.n_max):
            raise ConfigError(_refused_learning_rate(setting, step))
        all_coefficients.append(coefficients)
    return all_coefficients


def _movement_bounds(
    setting: LinearSetting, all_coefficients: list[StepCoefficients]
) -> list[float]:
    """Bound, after each step, how far one record has moved the weights in exact arithmetic."""
    # Lemma 2 of docs/proofs/sensitivity.md: a record is in one batch of each epoch, so of an
    # epoch's steps only the one that moves the weights furthest counts.
    bounds = []
    earlier_epochs = 0.0
    this_epoch = 0.0
    for step, coefficients in enumerate(all_coefficients):
        if step % setting.plan.count == 0:
            earlier_epochs = next_up(earlier_epochs + this_epoch)
            this_epoch = 0.0
        earlier_epochs = next_up(earlier_epochs * coefficients.decay_factor)
        if_moved_before = next_up(this_epoch * coefficients.decay_factor)
        if_moved_now = next_up(coefficients.step_size * setting.loss.derivative_bound)
        this_epoch = max(if_moved_before, if_moved_now)
        bounds.append(next_up(earlier_epochs + this_epoch))
    return bounds


def _rounding_bounds(
    setting: LinearSetting, all_coefficients: list[StepCoefficients]
) -> tuple[list[float], list[float]]:
    """Bound the rounding error and the norm of the computed weights after each step.

    Returns:
        (bounds on the distance from exact weights, bounds on the norm), one of each a step.
    """
    # Lemma 5 of docs/proofs/sensitivity.md
    drifts = []
    radii = []
    drift = 0.0
    radius = 0.0
    for coefficients in all_coefficients:
        step_rounding = _step_rounding(setting, coefficients, radius)
        decayed_drift = next_up(drift * coefficients.decay_factor)
        drift = next_up(decayed_drift + step_rounding)
        summed_step_size = next_up(coefficients.step_size * setting.plan.n_max)
        update_bound = next_up(summed_step_size * setting.loss.derivative_bound)
        decayed_radius = next_up(radius * coefficients.decay_factor)
        radius = next_up(next_up(decayed_radius + update_bound) + step_rounding)
        drifts.append(drift)
        radii.append(radius)
    return drifts, radii


def _mean_rounded_up(numbers: list[float]) -> float:
    """Return an upper bound of the mean of nonnegative numbers."""
    total = 0.0
    for number in numbers:
        total = next_up(total + number)
    return next_up(total / len(numbers))


def check_no_momentum(training: TrainingConfig) -> None:
    """Refuse momentum, with which a step depends on more than the current weights.

    Raises:
        ConfigError: ``training.momentum`` is not 0.
    """
    if training.momentum:
        raise ConfigError(
            Message(
                "{config:training.momentum}={momentum:g}: only certificate=box covers momentum; "
                "use {config:training.momentum}=0, or certificate=box",
                momentum=training.momentum,
            )
        )


def _refused_learning_rate(setting: LinearSetting, step: int) -> Message:
    """Return the message about a learning rate at which a step may drive two heads apart."""
    training = setting.training
    plan = setting.plan
    rate = learning_rate(training, step)
    key = "training.lr_min" if rate <= training.lr_min else "training.lr"
    limit = math.floor(setting.rate_limit * 1e4) / 1e4  # rounded down: it must be allowed
    return Message(
        "{setting}: the learning rate {rate:g} of step {step} may drive two models apart, because "
        "it is above 2 / (2 weight_decay + {smoothness:g} n_max / normalizer) with n_max = "
        "{n_max}, normalizer = {normalizer:g}, weight_decay = {weight_decay:g}; use {limit:g} at "
        "most",
        setting=Setting(key),
        rate=rate,
        step=step,
        smoothness=setting.loss.smoothness,
        n_max=plan.n_max,
        normalizer=plan.normalizer,
        weight_decay=training.weight_decay,
        limit=limit,
    )


def _step_rounding(setting: LinearSetting, coefficients: StepCoefficients, radius: float) -> float:
    """Bound the rounding error of one computed step of up to n_max records, in norm.

    Args:
        setting: the public settings of the run.
        coefficients: the step's numbers.
        radius: bound on the norm of the weights before the step.
    """
    # Lemma 4 of docs/proofs/sensitivity.md
    loss = setting.loss
    n_max = setting.plan.n_max
    step_size = coefficients.step_size
    from_logits = loss.smoothness * gamma_up(setting.width) * radius
    from_activation = 16 * loss.outputs**1.5 * UNIT
    derivative_error = from_logits + from_activation
    computed_derivative = loss.derivative_bound + derivative_error
    summation_error = gamma_up(n_max + 2) * n_max * computed_derivative
    sum_error = n_max * derivative_error + summation_error
    update_size = step_size * n_max * computed_derivative
    weight_size = coefficients.decay_factor * radius + update_size
    error = step_size * sum_error + 4 * UNIT * weight_size
    return error * COVER + UNDERFLOW_ALLOWANCE


def gradient_sum_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound the rounding error of a computed gradient sum of up to n_max records, in norm.

    Args:
        setting: the public settings of the run.
        radius: bound on the norm of the weights at which the gradients are taken.
    """
    only_the_sum = StepCoefficients(decay_factor=0.0, step_size=1.0)
    return _step_rounding(setting, only_the_sum, radius)


def margin_rounding(loss: LinearLoss, width: int, radius: float, length: np.ndarray) -> np.ndarray:
    """Bound the rounding error of computed margins.

    A margin is one dot product of weights and features (``binary``), or the difference of two.

    Args:
        loss: the loss of the head.
        width: the number of public features.
        radius: bound on the norm of one row of the weights.
        length: [n] upper bounds on the norms of the feature vectors.

    Returns:
        [n] bounds, one for each feature vector.
    """
    dot_products = 1 if loss.kind == "binary" else 2
    product_error = dot_products * gamma_up(width + 2)
    relative_error = product_error + 2 * UNIT
    return relative_error * radius * length * COVER + UNDERFLOW_ALLOWANCE
