"""How far one record can move a linear head: the constants of method.md section 5, from public
numbers alone.

Setting. theta_0 = 0; step t takes theta' = a_t theta - s_t sum_{i in batch} c(y_i, theta.phi_i) (x)
phi_i, with the floating point numbers a_t = 1 - lr_t lambda and s_t = lr_t / B, |phi_i| <= 1, and c
the loss's derivative in the logits. c is the gradient of a convex function, h-smooth, and |c| <= C:

| loss       | c                              | C          | h   |
|------------|--------------------------------|------------|-----|
| binary     | clamp(sigmoid(f) - y, -C, C)   | min(C, 1)  | 1/4 |
| one_vs_all | the same for each class        | min(C, 1)  | 1/4 |  (numbers are per class)
| softmax    | p - e_y, never clamped         | sqrt 2     | 1/2 |

A clamped derivative of one logit is still nondecreasing, hence the gradient of a convex function; a
clamped softmax gradient is not a gradient at all, and is refused.

Formal guarantees
    Step size. If s_t h n_max <= 2 a_t (checked in rational arithmetic), then for any batch of up to
    n_max records the step S is a_t-Lipschitz: it is a_t (I - (s_t / a_t) grad F), F is convex and h
    n_max-smooth since |phi| <= 1, and I - eta grad F does not expand for eta <= 2 / smoothness
    (Baillon-Haddad).
    One record. Let D' be D with one record z more. A record's batch depends on its own unit alone,
    so S' = S - s_t c(z) phi_z where z takes part and S' = S elsewhere: |theta'_{t+1} - theta_{t+1}|
    <= a_t |theta'_t - theta_t| + s_t C [z in batch t]. z takes part in one batch of each epoch, its
    hash deciding anew which one. So
        rho = sum over epochs of max over the epoch's steps t of s_t C prod_{s > t} a_s
    whatever D and z are. k records: k rho, through datasets that hold what D and D' share and then
    some: none of their batches exceeds n_max.
    One label. Let D' be D with another label at z, whose batch that does not change
    (``Dataset.label_free``): then S' = S
    - s_t (c(y', f) - c(y, f)) phi_z where z takes part, so r rho bounds this if |c(y', f) - c(y,
    f)| <= r C. Always r = 2 will do. r = 1 does for a softmax, |e_y - e_y'| = sqrt 2 = C, and for
    one logit (in one_vs_all each class's) if C = 1: sigmoid(f) - 1 and sigmoid(f) are 1 apart, and
    a clamp brings no two numbers farther apart.
    Rounding. A computed step is within tau_t of the exact one, with g(n) = n u / (1 - n u), u =
    2^-53, in any order of summation, fused or not:
      - logits err by g(w) R_t, R_t >= |theta_t| public (R_{t+1} = a_t R_t + s_t n_max C + tau_t); c
        then by e = h g(w) R_t + 16 J^1.5 u (sigmoid and softmax: margins of 8 u and (J + 8) u each;
        the rest is the subtraction);
      - the sum of up to n_max products errs by g(n_max + 2) n_max (C + e) in norm: each coordinate
        by g sum |c||phi_j|, and the norm of a sum is at most the sum of norms;
      - the last line rounds four times: 4 u (a_t R_t + s_t n_max (C + e)).
    Both runs err, so computed parameters differ by at most k rho + 2 W with W = sum_t tau_t prod_{s
    > t} a_s, which is at most k (rho + 2 W) = k rho_fp for k >= 1. The same D twice, in another
    order or with other threads: 2 W.
    The mean of several iterates moves by at most the mean of what they move by; its own rounding
    g(m + 2) R is added to W.
    Every number here is rounded up: the recursions step to the next float after each operation, tau
    carries a factor 1 + 2^-20 for its own dozen roundings.

Sources: method.md section 5; Hardt, Recht, Singer (2016) for stability of SGD; 002 for its use in
output perturbation.
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
from agt.training.recipe import Recipe
from agt.training.sgd import learning_rate
from agt.training.spectral import TINY


@dataclass(frozen=True)
class LinearLoss:
    """A loss on linear logits, and what a step-size condition and a sensitivity need of it.

    Attributes:
        kind: binary (one logit), one_vs_all or softmax.
        outputs: J, rows of theta.
        reach: C.
        smoothness: h.
        pair: a margin moves by at most ``pair`` times what theta (one class's part, for one_vs_all)
            moves.
        whole: the norm of all of theta moves by at most ``whole`` times as much.
    """

    kind: str
    outputs: int
    reach: float
    smoothness: float
    pair: float
    whole: float

    @classmethod
    def of(cls, training: TrainingConfig, classes: int) -> "LinearLoss":
        """From the loss's name and the number of classes.

        Raises:
            ConfigError: a loss whose gradient nothing bounds, or a softmax's gradient would be
                clamped.
        """
        if training.loss not in ("binary_cross_entropy", "cross_entropy"):
            raise ConfigError(
                Message(
                    "{config:training.loss}={loss}: no closed form covers it: use "
                    "{config:training.loss}=binary_cross_entropy, or certificate=box",
                    loss=training.loss,
                )
            )
        if training.loss == "cross_entropy":
            if training.clip < 1:
                raise ConfigError(
                    Message(
                        "{config:training.clip}={clip:g}: a clamped softmax gradient is no "
                        "gradient of a convex function, so nothing bounds how far it "
                        "moves: use {config:training.clip}=1 (nothing is clamped), or, for "
                        "linear heads, {config:training.loss}=binary_cross_entropy, which "
                        "trains one clamped classifier for each class",
                        clip=training.clip,
                    )
                )
            root = next_up(math.sqrt(2))
            return cls("softmax", classes, root, 0.5, root, 1.0)
        reach = min(training.clip, 1.0)
        if classes == 2:
            return cls("binary", 1, reach, 0.25, 1.0, 1.0)
        return cls("one_vs_all", classes, reach, 0.25, 2.0, next_up(math.sqrt(classes)))


@dataclass(frozen=True)
class LinearSetting:
    """The public numbers that decide how far a linear head's training moves.

    Attributes:
        loss: which loss, with its constants.
        width: w, coordinates of phi.
        training: the schedule, and lambda.
        plan: the plan of batches, B and n_max with it.
        relation: which datasets are neighbours.
    """

    loss: LinearLoss
    width: int
    training: TrainingConfig
    plan: BatchPlan
    relation: RelationConfig

    @classmethod
    def of(cls, recipe: Recipe, records: int, width: int) -> "LinearSetting":
        """For a number of records, which matters only where no size was declared.

        Raises:
            ConfigError: a loss that no closed form covers, or sizes of batches out of range.
        """
        loss = LinearLoss.of(recipe.training, recipe.classes)
        return cls(loss, width, recipe.training, recipe.plan(records), recipe.relation)

    @property
    def rate_limit(self) -> float:
        """The largest learning rate under which no step expands: 2 / (2 lambda + h n_max / B)."""
        return 2 / (
            2 * self.training.weight_decay
            + self.loss.smoothness * self.plan.n_max / self.plan.normalizer
        )


@dataclass(frozen=True)
class Sensitivity:
    """How far training moves, all of it public.

    Attributes:
        rho: what one record moves theta by (one class's part of it, for one_vs_all), l2, in exact
            arithmetic.
        rounding: 2 W: how far two computed runs on the same records may lie apart.
        radius: R, a bound on theta's norm.
        rate_limit: the largest learning rate that is allowed, None where any is.
        rows: records that one k moves: ``relation.unit_rows``, twice that under substitute.
    """

    rho: float
    rounding: float
    radius: float
    rate_limit: float | None
    rows: int

    @property
    def rho_fp(self) -> float:
        """What one record moves the computed theta by."""
        return next_up(self.rho + self.rounding)

    @property
    def per_k(self) -> float:
        """What one k of the relation moves the computed theta by."""
        return next_up(self.rows * self.rho_fp)


@dataclass(frozen=True)
class Schedule:
    """One step's public floats: theta' = keep * theta - step * (summed gradient)."""

    keep: float
    step: float

    @classmethod
    def at(cls, training: TrainingConfig, plan: BatchPlan, step: int) -> "Schedule":
        """Of step number ``step``."""
        lr = learning_rate(training, step)
        return cls(1 - lr * training.weight_decay, lr / plan.normalizer)

    def expands(self, loss: LinearLoss, n_max: int) -> bool:
        """True unless s h n_max <= 2 a, compared exactly."""
        return Fraction(self.step) * Fraction(loss.smoothness) * n_max > 2 * Fraction(self.keep)


def rows_moved(relation: RelationConfig, loss: LinearLoss | None = None) -> int:
    """Records that one k of the relation moves, or a label as far as one (see above, "One label").

    Args:
        loss: of a linear head, whose labels may change; None: of any model.

    Raises:
        ConfigError: labels alone change, or the relation divides by the actual batch, whose size
            one record changes.
    """
    gradient_norm = None if loss is None else loss.reach
    return RELATIONS[relation.name].rows_moved(relation.unit_rows, gradient_norm)


def sgd_sensitivity(setting: LinearSetting, average: int = 1) -> Sensitivity:
    """The constants of a run of SGD.

    Args:
        average: the model is the mean of this many last iterates.

    Raises:
        ConfigError: momentum, a step that may expand, or more iterates averaged than there are.
    """
    loss, plan = setting.loss, setting.plan
    rows = rows_moved(setting.relation, loss)
    check_optimizer(setting.training)
    if average > plan.steps:
        raise ConfigError(
            Message(
                "{config:certificate.average}={average}: there are only {steps} steps",
                average=average,
                steps=plan.steps,
            )
        )
    done = current = spread = radius = 0.0
    moved = wandered = farthest = 0.0
    for t in range(plan.steps):
        at = Schedule.at(setting.training, plan, t)
        if at.expands(loss, plan.n_max):
            raise ConfigError(_too_large(setting, t))
        tau = _step_rounding(setting, at, radius)
        if t % plan.count == 0:  # a new epoch: the record's batch is drawn anew
            done, current = next_up(done + current), 0.0
        done = next_up(done * at.keep)
        current = max(next_up(current * at.keep), next_up(at.step * loss.reach))
        spread = next_up(next_up(spread * at.keep) + tau)
        radius = next_up(
            next_up(next_up(radius * at.keep) + next_up(next_up(at.step * plan.n_max) * loss.reach))
            + tau
        )
        farthest = max(farthest, radius)
        if t >= plan.steps - average:
            moved, wandered = next_up(moved + next_up(done + current)), next_up(wandered + spread)
    rho, spread = next_up(moved / average), next_up(wandered / average)
    if average > 1:
        spread = next_up(spread + next_up(gamma_up(average + 2) * farthest))
    return Sensitivity(rho, 2 * spread, next_up(farthest + spread), setting.rate_limit, rows)


def check_optimizer(training: TrainingConfig) -> None:
    """Raise ConfigError if the optimizer remembers: with momentum a step is no function of theta
    alone.
    """
    if training.momentum:
        raise ConfigError(
            Message(
                "{config:training.momentum}={momentum:g}: every certificate but box is proved "
                "for plain SGD: use {config:training.momentum}=0 (the largest momentum "
                "allowed), or certificate=box",
                momentum=training.momentum,
            )
        )


def _too_large(setting: LinearSetting, step: int) -> Message:
    training, plan, lr = setting.training, setting.plan, learning_rate(setting.training, step)
    shown = math.floor(setting.rate_limit * 1e4) / 1e4
    key = "training.lr_min" if lr <= training.lr_min else "training.lr"
    return Message(
        "{setting}: the learning rate {lr:g} of step {step} may drive two models apart: the limit "
        "is 2 / (2 weight_decay + {smoothness:g} n_max / normalizer) = {limit:g} for n_max = "
        "{n_max}, normalizer = {normalizer:g}, weight_decay = {weight_decay:g}: use {limit:g} at "
        "most",
        setting=Setting(key),
        lr=lr,
        step=step,
        smoothness=setting.loss.smoothness,
        limit=shown,
        n_max=plan.n_max,
        normalizer=plan.normalizer,
        weight_decay=training.weight_decay,
    )


def _step_rounding(setting: LinearSetting, at: Schedule, radius: float) -> float:
    """tau of one step, of up to n_max records, from a theta of norm at most ``radius`` (see
    above).
    """
    loss, n_max = setting.loss, setting.plan.n_max
    error = loss.smoothness * gamma_up(setting.width) * radius + 16 * loss.outputs**1.5 * UNIT
    total = n_max * error + gamma_up(n_max + 2) * n_max * (loss.reach + error)
    tau = at.step * total + 4 * UNIT * (at.keep * radius + at.step * n_max * (loss.reach + error))
    return tau * COVER + TINY


def sum_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound on the error of a computed gradient sum of n_max records at a theta of norm at most
    ``radius``.
    """
    return _step_rounding(setting, Schedule(0.0, 1.0), radius)


def margin_rounding(loss: LinearLoss, width: int, radius: float, length: np.ndarray) -> np.ndarray:
    """[n] bound on the error of a computed margin: one dot product, or the difference of two.

    Args:
        length: [n] upper bounds on |phi|.
    """
    dots = 1 if loss.kind == "binary" else 2
    return (dots * gamma_up(width + 2) + 2 * UNIT) * radius * length * COVER + TINY
