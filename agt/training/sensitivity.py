"""Bounds on how far one record moves a linear head that plain SGD trains, from public numbers.

``sgd_sensitivity`` is for runs of SGD (training/linear.py). Minimisers and removable heads compute
the same ``Sensitivity`` elsewhere. For logits f and label y, c is the derivative of the loss in the
logits, C a bound on its norm, and h its Lipschitz constant:

| loss       | c                             | C         | h   |
|------------|-------------------------------|-----------|-----|
| binary     | clamp(sigmoid(f) - y, -C, C)  | min(C, 1) | 1/4 |
| one_vs_all | as binary, for each class     | min(C, 1) | 1/4 |
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
from agt.training.settings import check_linear_loss, check_no_momentum
from agt.training.setup import TrainingSetup
from agt.training.sgd import learning_rate
from agt.training.spectral import UNDERFLOW_ALLOWANCE


@dataclass(frozen=True)
class LinearLoss:
    """A loss of a linear head, with the constants that its sensitivity depends on.

    The distance below is the l2 distance between two heads' weights: of the whole matrices for
    ``binary`` and ``softmax``, of one class's weights for ``one_vs_all``.

    Attributes:
        kind: ``binary`` (one logit for two classes), ``one_vs_all`` (one logistic classifier for
            each class) or ``softmax``.
        outputs: J, the number of logits, which is the number of rows of the weights.
        derivative_bound: C, a bound on the norm of the loss's derivative in the logits. For
            ``one_vs_all`` it bounds the derivative in each class's logit.
        smoothness: h, a Lipschitz constant of the derivative in the logits.
        margin_factor: the margin at a feature vector of norm 1 changes by at most this factor times
            the distance. A margin is the one logit, or the difference of two.
        all_classes_factor: the whole weight matrices differ by at most this factor times the
            distance.
    """

    kind: str
    outputs: int
    derivative_bound: float
    smoothness: float
    margin_factor: float
    all_classes_factor: float

    @classmethod
    def from_settings(cls, training: TrainingConfig, classes: int) -> "LinearLoss":
        """Return the loss that the training settings name, with its constants.

        Args:
            training: its ``loss`` and ``clip`` are read.
            classes: the number of classes. ``binary_cross_entropy`` becomes ``binary`` for two
                classes, and ``one_vs_all`` for more.

        Raises:
            ConfigError: no bound on the loss's derivative is known, or a softmax's derivative would
                be clamped (clip below 1).
        """
        check_linear_loss(training)
        if training.loss == "cross_entropy":
            root_two = next_up(math.sqrt(2))
            return cls(
                kind="softmax",
                outputs=classes,
                derivative_bound=root_two,  # of p - e_y, a difference of two distributions
                smoothness=0.5,
                margin_factor=root_two,  # the norm of (v, -v), for a difference of two logits
                all_classes_factor=1.0,
            )
        outputs = 1 if classes == 2 else classes
        return cls.of_separate_logits(outputs, min(training.clip, 1.0), smoothness=0.25)

    @classmethod
    def of_separate_logits(
        cls, outputs: int, derivative_bound: float, smoothness: float
    ) -> "LinearLoss":
        """Return a loss that is a sum of one loss for each logit.

        Args:
            outputs: J, which is 1 for two classes. With more classes, each output is one class
                against the others.
            derivative_bound: the largest absolute first derivative of the loss in a logit.
            smoothness: the largest second derivative of the loss in a logit.
        """
        if outputs == 1:
            return cls(
                kind="binary",
                outputs=1,
                derivative_bound=derivative_bound,
                smoothness=smoothness,
                margin_factor=1.0,
                all_classes_factor=1.0,
            )
        return cls(
            kind="one_vs_all",
            outputs=outputs,
            derivative_bound=derivative_bound,
            smoothness=smoothness,
            margin_factor=2.0,  # a margin is the difference of two classifiers' logits
            all_classes_factor=next_up(math.sqrt(outputs)),  # the classes' distances add in squares
        )


@dataclass(frozen=True)
class LinearSetting:
    """The public settings that a linear head's sensitivity follows from.

    Attributes:
        loss: the loss and its constants.
        width: the number of public features of a record.
        training: the training settings, of which learning rates and weight decay are read.
        plan: the batches: how many, their public normaliser B, and n_max, the largest number of
            records in one batch.
        relation: the neighbour relation, which says what one edit of a dataset is.
    """

    loss: LinearLoss
    width: int
    training: TrainingConfig
    plan: BatchPlan
    relation: RelationConfig

    @classmethod
    def from_training_setup(cls, setup: TrainingSetup, records: int, width: int) -> "LinearSetting":
        """Return the public settings of a linear head that is trained as ``setup`` says.

        Args:
            setup: the settings of the training: loss, steps, clip level, batches, relation, grid of
                k.
            records: the number of training records, which is read only if no public size was
                declared.
            width: the number of public features of a record.

        Raises:
            ConfigError: no closed form covers the loss, or a batch size is out of range.
        """
        loss = LinearLoss.from_settings(setup.training, setup.classes)
        plan = setup.plan(records)
        return cls(loss, width, setup.training, plan, setup.relation)

    @property
    def rate_limit(self) -> float:
        """The largest learning rate at which no step can increase the distance between two heads.

        It is 2 / (2 weight_decay + h n_max / B), up to rounding, where h is the smoothness of the
        loss, n_max the largest number of records in a batch, and B the public normaliser.
        ``StepCoefficients.may_expand`` decides exactly.
        """
        plan = self.plan
        loss_curvature = self.loss.smoothness * plan.n_max / plan.normalizer
        return 2 / (2 * self.training.weight_decay + loss_curvature)


@dataclass(frozen=True)
class Sensitivity:
    """Bounds on how far training can move a linear head, in l2 norm and from public numbers.

    Distances are between the whole weight matrices for ``binary`` and ``softmax``, and between one
    class's weights for ``one_vs_all``.

    Attributes:
        rho: bound on how far one record moves the weights, in exact arithmetic.
        rounding: bound on the distance between two computed runs on the same records, which may
            differ in the order of summation.
        radius: bound on the norm of the computed weights.
        rate_limit: the largest learning rate that is allowed; None: the bounds hold for any step
            size.
        records_per_edit: the number of records that one edit changes. What one edit is depends on
            the relation.
    """

    rho: float
    rounding: float
    radius: float
    rate_limit: float | None
    records_per_edit: int

    @property
    def rho_fp(self) -> float:
        """Bound on how far one record moves the computed weights: rho plus rounding ("fp")."""
        return next_up(self.rho + self.rounding)

    @property
    def per_k(self) -> float:
        """Bound on how far one edit of the dataset moves the computed weights.

        One edit is one unit of k. It is what the relation allows, for example one person's records
        removed.
        """
        return next_up(self.records_per_edit * self.rho_fp)


@dataclass(frozen=True)
class StepCoefficients:
    """The two public numbers of one step of SGD with decoupled weight decay.

    The step replaces the weights theta by ``decay_factor`` theta - ``step_size`` times the sum of
    the batch's gradients.

    Attributes:
        decay_factor: 1 - lr weight_decay, with lr the learning rate of the step.
        step_size: lr / B, with B the public normaliser.
    """

    decay_factor: float
    step_size: float

    @classmethod
    def at_step(cls, training: TrainingConfig, plan: BatchPlan, step: int) -> "StepCoefficients":
        """Return the two numbers of one step.

        Args:
            training: the training settings, of which learning rates and weight decay are read.
            plan: the batches, whose normaliser is read.
            step: the index of the step, from 0.
        """
        rate = learning_rate(training, step)
        decay_factor = 1 - rate * training.weight_decay
        return cls(decay_factor, step_size=rate / plan.normalizer)

    def may_expand(self, loss: LinearLoss, n_max: int) -> bool:
        """Return whether the step may increase the distance between two heads on the same batch.

        The step cannot increase it if step_size h n_max <= 2 decay_factor, for any batch of at most
        n_max records (Lemma 1 of docs/proofs/sensitivity.md). This is decided in rational
        arithmetic, without rounding.

        Args:
            loss: the loss, of which the smoothness h is read.
            n_max: the largest number of records in the batch.
        """
        step_curvature = Fraction(self.step_size) * Fraction(loss.smoothness) * n_max
        return step_curvature > 2 * Fraction(self.decay_factor)


def records_per_edit(relation: RelationConfig, loss: LinearLoss | None = None) -> int:
    """Return the number of records that one edit changes, for the bound on training's movement.

    An edit that only changes a label counts as one or two records, depending on the loss, because
    it can move the weights as far as one or two added records (Lemma 3 of
    docs/proofs/sensitivity.md).

    Args:
        relation: the neighbour relation, which says what one edit is.
        loss: the loss of the linear head, which edits of labels need. None: edits of labels are
            refused.

    Raises:
        ConfigError: edits change labels only and no loss was given, or the relation divides by the
            actual batch size, which one record changes.
    """
    derivative_bound = None if loss is None else loss.derivative_bound
    rule = RELATIONS[relation.name]
    return rule.gradients_changed_per_edit(relation.unit_rows, derivative_bound)


def sgd_sensitivity(setting: LinearSetting, average: int = 1) -> Sensitivity:
    """Bound how far one record moves the weights that plain SGD from weights 0 ends with.

    Args:
        setting: the public settings of the run.
        average: the trained weights are the mean of the last ``average`` iterates. 1 takes the last
            iterate.

    Formal guarantees:
        - Two computed runs on datasets that are k edits apart have weights at most k ``per_k``
          apart in l2 norm, for every k >= 1. What one edit is depends on the relation.
        - Two computed runs on the same dataset have weights at most ``rounding`` apart.
        - Only public numbers are read, and every bound is rounded up.

    Raises:
        ConfigError: the relation is not covered, there is momentum, a step may increase the
            distance between two heads, or ``average`` exceeds the number of steps.
    """
    edited_records = records_per_edit(setting.relation, setting.loss)
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
    # The mean of the last iterates moves by at most the mean of their movements.
    rho = _mean_rounded_up(movements[-average:])
    drift = _mean_rounded_up(drifts[-average:])
    if average > 1:
        # Lemma 6 of docs/proofs/sensitivity.md: computing the mean of the iterates adds a rounding
        # error of at most gamma_up(average + 2) times the largest norm.
        mean_rounding = next_up(gamma_up(average + 2) * max_radius)
        drift = next_up(drift + mean_rounding)
    final_radius = next_up(max_radius + drift)
    return Sensitivity(
        rho=rho,
        rounding=2 * drift,  # each of the two runs is within drift of exact arithmetic
        radius=final_radius,
        rate_limit=setting.rate_limit,
        records_per_edit=edited_records,
    )


def _checked_coefficients(setting: LinearSetting) -> list[StepCoefficients]:
    """Return the decay factor and step size of every step of a run.

    No step of these can increase the distance between two heads.

    Raises:
        ConfigError: a step may increase the distance between two heads.
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
    """Return, for each step, a bound on how far one record has moved the weights by then.

    The bounds are for exact arithmetic, rounded up.

    Args:
        setting: the public settings of the run.
        all_coefficients: the coefficients of every step. No step may increase a distance.
    """
    # Lemma 2 of docs/proofs/sensitivity.md: a record is in one batch of each epoch. Which batch is
    # unknown, so the bound of an epoch is the largest over its steps. The step that the record is
    # in moves the weights by at most step_size derivative_bound; every later step multiplies the
    # movement by its decay factor.
    # next_up after each operation keeps the result an upper bound.
    bounds = []
    earlier_epochs = 0.0
    this_epoch = 0.0
    for step, coefficients in enumerate(all_coefficients):
        if step % setting.plan.count == 0:
            earlier_epochs = next_up(earlier_epochs + this_epoch)
            this_epoch = 0.0
        earlier_epochs = next_up(earlier_epochs * coefficients.decay_factor)
        if_in_earlier_batch = next_up(this_epoch * coefficients.decay_factor)
        if_in_this_batch = next_up(coefficients.step_size * setting.loss.derivative_bound)
        this_epoch = max(if_in_earlier_batch, if_in_this_batch)
        bounds.append(next_up(earlier_epochs + this_epoch))
    return bounds


def _rounding_bounds(
    setting: LinearSetting, all_coefficients: list[StepCoefficients]
) -> tuple[list[float], list[float]]:
    """Bound the rounding error and the norm of the computed weights after each step.

    Args:
        setting: the public settings of the run.
        all_coefficients: the coefficients of every step. No step may increase a distance.

    Returns:
        (for each step a bound on the l2 distance between computed and exact weights, for each step
        a bound on the l2 norm of the computed weights).
    """
    # Lemma 5 of docs/proofs/sensitivity.md: a step multiplies the error so far by at most its decay
    # factor and adds its own rounding. The norm grows by the update of n_max gradients as well.
    drifts = []
    radii = []
    drift = 0.0  # bound on the distance between computed and exact weights
    radius = 0.0  # bound on the norm of the computed weights
    for coefficients in all_coefficients:
        step_rounding = _step_rounding(setting, coefficients, radius)
        # next_up after each operation keeps the result an upper bound.
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
    """Return an upper bound on the mean of nonnegative numbers, of which there is at least one."""
    total = 0.0
    for number in numbers:
        # next_up after each operation keeps the result an upper bound.
        total = next_up(total + number)
    return next_up(total / len(numbers))


def _refused_learning_rate(setting: LinearSetting, step: int) -> Message:
    """Return the message for a learning rate at which a step may drive two heads apart.

    Args:
        setting: the public settings of the run.
        step: the index of the step, from 0, whose learning rate is too large.
    """
    training = setting.training
    plan = setting.plan
    rate = learning_rate(training, step)
    key = "training.lr_min" if rate <= training.lr_min else "training.lr"
    limit = math.floor(setting.rate_limit * 1e4) / 1e4  # rounded down, so that it is allowed
    return Message(
        "{setting}: the learning rate {rate:g} of step {step} is too large, because the models "
        "of two neighbouring datasets may move apart: give at most {limit:g}. This limit is "
        "2 / (2 weight_decay + {smoothness:g} n_max / normalizer) for n_max = {n_max}, "
        "normalizer = {normalizer:g}, weight_decay = {weight_decay:g}",
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
    """Bound the l2 rounding error of one computed step over at most n_max records.

    Args:
        setting: the public settings of the run.
        coefficients: the step's decay factor and step size.
        radius: bound on the l2 norm of the weights before the step.
    """
    # Lemma 4 of docs/proofs/sensitivity.md: the rounding of n_max derivatives, of their sum, and of
    # the new weights.
    loss = setting.loss
    n_max = setting.plan.n_max
    step_size = coefficients.step_size
    # gamma_up(n): the relative error of n roundings in a row, rounded up.
    from_logits = loss.smoothness * gamma_up(setting.width) * radius
    from_activation = 16 * loss.outputs**1.5 * UNIT  # of the sigmoid or softmax
    derivative_error = from_logits + from_activation
    computed_derivative = loss.derivative_bound + derivative_error
    summation_error = gamma_up(n_max + 2) * n_max * computed_derivative
    sum_error = n_max * derivative_error + summation_error
    update_size = step_size * n_max * computed_derivative
    weight_size = coefficients.decay_factor * radius + update_size
    error = step_size * sum_error + 4 * UNIT * weight_size
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return error * COVER + UNDERFLOW_ALLOWANCE


def gradient_sum_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound the l2 rounding error of a computed sum of gradients of at most n_max records.

    Args:
        setting: the public settings of the run.
        radius: bound on the l2 norm of the weights at which the gradients are computed.
    """
    # With decay factor 0 and step size 1, a step is the negative sum of the gradients.
    only_the_sum = StepCoefficients(decay_factor=0.0, step_size=1.0)
    return _step_rounding(setting, only_the_sum, radius)


def margin_rounding(
    loss: LinearLoss, width: int, radius: float, feature_norms: np.ndarray
) -> np.ndarray:
    """Bound the rounding error of computed margins.

    A margin is the one logit (``binary``), or the difference of two logits. A logit is the dot
    product of weights and features.

    Args:
        loss: the loss of the head.
        width: the number of public features.
        radius: bound on the l2 norm of one row of the weights.
        feature_norms: [n] upper bounds on the l2 norms of the feature vectors.

    Returns:
        [n] upper bounds, one for each feature vector.
    """
    dot_products = 1 if loss.kind == "binary" else 2
    # gamma_up(n): the relative error of n roundings in a row, rounded up.
    product_error = dot_products * gamma_up(width + 2)
    relative_error = product_error + 2 * UNIT
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return relative_error * radius * feature_norms * COVER + UNDERFLOW_ALLOWANCE
