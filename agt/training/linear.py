"""Plain SGD for a linear head on public features: the run whose stability gives certificates in closed form.

Same plan of batches, schedule and decoupled weight decay as the loop with bounds; theta starts at 0, and there is no
momentum. Parameters and sums are float64 whatever ``training.dtype`` says: a float32 sum over a large batch would be worth
many records of rounding. ``float32`` halves the memory of the features alone.

Formal guarantees
    See below: each computed step is within tau of the exact one, whatever order the sums take.

How far one record can move a linear head: the constants of method.md section 5, from public numbers alone.

Setting. theta_0 = 0; step t takes theta' = a_t theta - s_t sum_{i in batch} c(y_i, theta.phi_i) (x) phi_i, with the
floating point numbers a_t = 1 - lr_t lambda and s_t = lr_t / B, |phi_i| <= 1, and c the loss's derivative in the logits.
c is the gradient of a convex function, h-smooth, and |c| <= C:

| loss       | c                              | C          | h   |
|------------|--------------------------------|------------|-----|
| binary     | clamp(sigmoid(f) - y, -C, C)   | min(C, 1)  | 1/4 |
| one_vs_all | the same for each class        | min(C, 1)  | 1/4 |  (numbers are per class)
| softmax    | p - e_y, never clamped         | sqrt 2     | 1/2 |

A clamped derivative of one logit is still nondecreasing, hence the gradient of a convex function; a clamped softmax
gradient is not a gradient at all, and is refused.

Formal guarantees
    Step size. If s_t h n_max <= 2 a_t (checked in rational arithmetic), then for any batch of up to n_max records the step
    S is a_t-Lipschitz: it is a_t (I - (s_t / a_t) grad F), F is convex and h n_max-smooth since |phi| <= 1, and I - eta
    grad F does not expand for eta <= 2 / smoothness (Baillon-Haddad).
    One record. Let D' be D with one record z more. A record's batch depends on its own unit alone, so S' = S - s_t c(z)
    phi_z where z takes part and S' = S elsewhere: |theta'_{t+1} - theta_{t+1}| <= a_t |theta'_t - theta_t| + s_t C [z in
    batch t]. z takes part in one batch of each epoch, its hash deciding anew which one. So
        rho = sum over epochs of max over the epoch's steps t of s_t C prod_{s > t} a_s
    whatever D and z are. k records: k rho, through datasets that hold what D and D' share and then some: none of their
    batches exceeds n_max.
    One label. Let D' be D with another label at z, whose batch that does not change (``Dataset.label_free``): then S' = S
    - s_t (c(y', f) - c(y, f)) phi_z where z takes part, so r rho bounds this if |c(y', f) - c(y, f)| <= r C. Always r = 2
    will do. r = 1 does for a softmax, |e_y - e_y'| = sqrt 2 = C, and for one logit (in one_vs_all each class's) if C = 1:
    sigmoid(f) - 1 and sigmoid(f) are 1 apart, and a clamp brings no two numbers farther apart.
    Rounding. A computed step is within tau_t of the exact one, with g(n) = n u / (1 - n u), u = 2^-53, in any order of
    summation, fused or not:
      - logits err by g(w) R_t, R_t >= |theta_t| public (R_{t+1} = a_t R_t + s_t n_max C + tau_t); c then by
        e = h g(w) R_t + 16 J^1.5 u (sigmoid and softmax: margins of 8 u and (J + 8) u each; the rest is the subtraction);
      - the sum of up to n_max products errs by g(n_max + 2) n_max (C + e) in norm: each coordinate by g sum |c||phi_j|,
        and the norm of a sum is at most the sum of norms;
      - the last line rounds four times: 4 u (a_t R_t + s_t n_max (C + e)).
    Both runs err, so computed parameters differ by at most k rho + 2 W with W = sum_t tau_t prod_{s > t} a_s, which is at
    most k (rho + 2 W) = k rho_fp for k >= 1. The same D twice, in another order or with other threads: 2 W.
    The mean of several iterates moves by at most the mean of what they move by; its own rounding g(m + 2) R is added to W.
    Every number here is rounded up: the recursions step to the next float after each operation, tau carries a factor
    1 + 2^-20 for its own dozen roundings.

Sources: method.md section 5; Hardt, Recht, Singer (2016) for stability of SGD; 002 for its use in output perturbation.

How much longer than v the vector X v can be: upper bounds of spectral norms that are proved, not estimated.

A power iteration comes from below, and may see nothing of the largest eigenvalue for long: it stops too low, and whatever
is certified with it is void. Here an estimate t is only a guess, and a Cholesky factorisation of t I - K its proof.

Formal guarantees
    Let A be symmetric, of width d, with floating point entries. If its Cholesky factorisation runs to its end in floating
    point, the factor R satisfies R'R = A + E, |E| <= g |R'||R| entry by entry, g = g(d + 1) (Higham 2002, theorem 10.3; any
    order of summation, so blocks too). Then |E|_2 <= g |R|_F^2 = g sum_j |r_j|^2, and (1 - g) |r_j|^2 <= a_jj from the
    diagonal, so that
        lambda_min(A) >= -|E|_2 >= -trace(A) g / (1 - g),
    as R'R is positive semidefinite (Rump 2006). With A = t I - K up to a rounding of u |t - k_jj| on the diagonal,
        lambda_max(K) <= t + u max |t - k_jj| + trace(A) g / (1 - g).
    ``g`` counts 2 d + 16 roundings: libraries multiply by reciprocals where the theorem divides. Underflow loses less than
    ``TINY``, which is added. Where no guess below the trace is proved, the trace is the bound: what is meant is positive
    semidefinite. A matrix within ``error`` of K, in the spectral norm, has a largest eigenvalue that is larger by ``error``
    at most, and a trace larger by d times as much.

Sources: Rump (2006), Verification of positive definiteness, BIT 46; Higham (2002), Accuracy and stability, chapter 10.

The recipe's place between accuracy and stable distance, from public constants alone: how strongly a head is held back.

Let B be the number of records declared. A head that minimises sum_i l_i + (Lambda / 2) |theta|^2 moves by at most
C / Lambda when one record comes or goes, so Lambda is a number of records: margins of size 1 are worth Lambda / C of them.
Plain SGD from 0 whose rates add up to B / Lambda moves by the same C / Lambda, is held back in
the same directions, and by less: at the same accuracy its distances are longer. So both certificates take one Lambda.

    Lambda = min(B / ``ONSET``, ``FACTOR`` sqrt B) / (classes - 1)

grows with B, so that more records mean longer distances; for large B more slowly than B, so that they also mean a better
fit; and one-against-the-rest heads of several classes, each with few records of its own, are held back less. The form and
the constants were chosen once by ``scripts/choose_recipe.py`` at revision 837fd68, on public data.

Nothing here reads a record: what is settled depends on the certificate, B, the classes and the public cap on a unit's rows.
Where no size is declared B is the actual number of records, and condition c does not hold, as without the recipe.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from scipy.linalg import LinAlgError, cholesky, eigh
from torch import Tensor

from agt.data.dataset import Mapped, Records
from agt.distributed import group, spans
from agt.errors import ConfigError, UnsoundError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.relations import RELATIONS, moving
from agt.settings import MOST_BATCHES, RelationConfig, TrainingConfig, default_n_max
from agt.training.batches import BatchPlan, Recipe, check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import OnProgress, Progress, learning_rate

TINY = 1e-290  # far above anything that underflow loses, far below anything that matters


@dataclass(frozen=True)
class LinearLoss:
    """A loss on linear logits, and what a step-size condition and a sensitivity need of it.

    Attributes:
        kind: binary (one logit), one_vs_all or softmax.
        outputs: J, rows of theta.
        reach: C.
        smoothness: h.
        pair: a margin moves by at most ``pair`` times what theta (one class's part, for one_vs_all) moves.
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
            ConfigError: a loss whose gradient nothing bounds, or a softmax's gradient would be clamped.
        """
        if training.loss not in ("binary_cross_entropy", "cross_entropy"):
            raise ConfigError(
                f"training.loss={training.loss}: no closed form covers it: use training.loss=binary_cross_entropy, or "
                "certificate=box"
            )
        if training.loss == "cross_entropy":
            if training.clip < 1:
                raise ConfigError(
                    f"training.clip={training.clip:g}: a clamped softmax gradient is no gradient of a convex function, so "
                    "nothing bounds how far it moves: use training.clip=1 (nothing is clamped), or, for linear heads, "
                    "training.loss=binary_cross_entropy, which trains one clamped classifier for each class"
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
        return 2 / (2 * self.training.weight_decay + self.loss.smoothness * self.plan.n_max / self.plan.normalizer)


@dataclass(frozen=True)
class Sensitivity:
    """How far training moves, all of it public.

    Attributes:
        rho: what one record moves theta by (one class's part of it, for one_vs_all), l2, in exact arithmetic.
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
        ConfigError: labels alone change, or the relation divides by the actual batch, whose size one record changes.
    """
    if loss is not None and RELATIONS[relation.name].labels:
        return 1 if loss.reach >= 1 else 2
    rule = moving(relation.name)
    if rule.mean:
        raise ConfigError(
            f"relation={relation.name} divides by the size of the actual batch, so that one record changes every other "
            "record's weight: certificate=box alone covers that; others need relation=add_remove, substitute or remove"
        )
    return rule.moved * relation.unit_rows


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
        raise ConfigError(f"certificate.average={average}: there are only {plan.steps} steps")
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
        radius = next_up(next_up(next_up(radius * at.keep) + next_up(next_up(at.step * plan.n_max) * loss.reach)) + tau)
        farthest = max(farthest, radius)
        if t >= plan.steps - average:
            moved, wandered = next_up(moved + next_up(done + current)), next_up(wandered + spread)
    rho, spread = next_up(moved / average), next_up(wandered / average)
    if average > 1:
        spread = next_up(spread + next_up(gamma_up(average + 2) * farthest))
    return Sensitivity(rho, 2 * spread, next_up(farthest + spread), setting.rate_limit, rows)


def check_optimizer(training: TrainingConfig) -> None:
    """Raise ConfigError if the optimizer remembers: with momentum a step is no function of theta alone."""
    if training.momentum:
        raise ConfigError(
            f"training.momentum={training.momentum:g}: every certificate but box is proved for plain SGD: use "
            "training.momentum=0 (the largest momentum allowed), or certificate=box"
        )


def _too_large(setting: LinearSetting, step: int) -> str:
    training, plan, lr = setting.training, setting.plan, learning_rate(setting.training, step)
    shown = math.floor(setting.rate_limit * 1e4) / 1e4
    key = "training.lr_min" if lr <= training.lr_min else "training.lr"
    return (
        f"{key}: the learning rate {lr:g} of step {step} may drive two models apart: the limit "
        f"is 2 / (2 weight_decay + {setting.loss.smoothness:g} n_max / normalizer) = {shown:g} for n_max = {plan.n_max}, "
        f"normalizer = {plan.normalizer:g}, weight_decay = {training.weight_decay:g}: use {shown:g} at most"
    )


def _step_rounding(setting: LinearSetting, at: Schedule, radius: float) -> float:
    """tau of one step, of up to n_max records, from a theta of norm at most ``radius`` (see above)."""
    loss, n_max = setting.loss, setting.plan.n_max
    error = loss.smoothness * gamma_up(setting.width) * radius + 16 * loss.outputs**1.5 * UNIT
    total = n_max * error + gamma_up(n_max + 2) * n_max * (loss.reach + error)
    tau = at.step * total + 4 * UNIT * (at.keep * radius + at.step * n_max * (loss.reach + error))
    return tau * COVER + TINY


def sum_rounding(setting: LinearSetting, radius: float) -> float:
    """Bound on the error of a computed gradient sum of n_max records at a theta of norm at most ``radius``."""
    return _step_rounding(setting, Schedule(0.0, 1.0), radius)


def margin_rounding(loss: LinearLoss, width: int, radius: float, length: np.ndarray) -> np.ndarray:
    """[n] bound on the error of a computed margin: one dot product, or the difference of two.

    Args:
        length: [n] upper bounds on |phi|.
    """
    dots = 1 if loss.kind == "binary" else 2
    return (dots * gamma_up(width + 2) + 2 * UNIT) * radius * length * COVER + TINY


BLOCK = 1024  # records at once: their features stay in the cache between the two products
_REPORT = 16  # steps between two reports of progress


@dataclass(frozen=True)
class LinearTrained:
    """The outcome of a run.

    Attributes:
        weight: [J, w] float64.
        loss: which loss, with its constants.
        plan: the batch plan used.
        sensitivity: how far one record moves ``weight``.
        training: the schedule it was trained by, nothing left to the recipe.

    Raises:
        UnsoundError: a parameter is NaN or infinite.
    """

    weight: Tensor
    loss: LinearLoss
    plan: BatchPlan
    sensitivity: Sensitivity
    training: TrainingConfig

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.weight).all()):
            raise UnsoundError("a parameter of the linear head is NaN or infinite")


def train_linear(
    recipe: Recipe,
    records: Records,
    average: int = 1,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> LinearTrained:
    """Train a linear head by SGD.

    Args:
        recipe: how to train; boxes alone have a use for its grid.
        records: labels, and public features [n, w] of norm at most 1.
        average: the model is the mean of this many last iterates.
        on_progress: called every few steps.
        checkpoints: what a killed run goes on from (training/checkpoint.py).

    Raises:
        ConfigError: a setting under which the sensitivity is not proved, a batch above n_max, or
            a unit with too many rows.
        UnsoundError: a parameter became NaN or infinite.
    """
    setting = LinearSetting.of(recipe, len(records), records.features.shape[1])
    loss, plan = setting.loss, setting.plan
    check_unit_rows(records.units, recipe.relation.unit_rows)
    sensitivity = sgd_sensitivity(setting, average)
    theta = torch.zeros((loss.outputs, setting.width), dtype=torch.float64)
    total, taken = torch.zeros_like(theta), 0
    if state := checkpoints.last():
        theta, total, taken = state.tensors["theta"], state.tensors["total"], state.step
    for step, rows in enumerate(islice(batches_of(plan, records.units), taken, None), start=taken):
        at = Schedule.at(recipe.training, plan, step)
        theta = theta * at.keep - gradient_sum(loss, theta, records, rows) * at.step
        if step >= plan.steps - average:
            total += theta
        checkpoints.offer(step + 1, partial(dict, theta=theta, total=total), last=step == plan.steps - 1)
        if step % _REPORT == 0 or step == plan.steps - 1:
            on_progress(Progress(step + 1, plan.steps, step + 1, plan.steps))
    return LinearTrained(total / average, loss, plan, sensitivity, recipe.training)


def batches_of(plan: BatchPlan, units: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of each step's batch; a single batch per epoch is everyone, and is not drawn anew each time."""
    if plan.count > 1:
        yield from plan.batches(units)
    else:
        (everyone,) = replace(plan, epochs=1).batches(units)
        yield from (everyone for _ in range(plan.epochs))


def gradient_sum(loss: LinearLoss, theta: Tensor, records: Records, rows: np.ndarray) -> Tensor:
    """[J, w] the sum over the records at ``rows`` of c (x) phi."""

    def part(span: slice) -> tuple[Tensor]:
        total = torch.zeros_like(theta)
        for phi, labels in blocks_of(records, rows[span]):
            total += derivative(loss, phi @ theta.T, labels).T @ phi
        return (total,)

    return group().summed(spans(len(rows), BLOCK), part)[0]


def derivative(loss: LinearLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """[n, J, ...] c, the loss's derivative in the logits, clamped for one logit per class.

    Args:
        logits: [n, J], or [n, J, m] of m heads.
    """
    target = labels[:, None].double() if loss.kind == "binary" else _one_hot(labels, loss.outputs)
    target = target.reshape(*target.shape, *[1] * (logits.dim() - 2))
    if loss.kind == "softmax":
        return torch.softmax(logits, dim=1) - target
    return (torch.sigmoid(logits) - target).clamp_(-loss.reach, loss.reach)


def blocks_of(records: Records, rows: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
    """(features in float64, labels) of the records at ``rows``, a few at a time.

    At a multiple of 64 bytes, where PyTorch's own memory begins: a product may round otherwise at another address.
    """
    made, labels = isinstance(records.features, Mapped), torch.from_numpy(records.labels)
    features: Any = records.features if made else torch.from_numpy(records.features)
    unbroken = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)  # rows increase
    for start, stop in pairwise(sorted({*range(0, len(rows), BLOCK), len(rows)})):
        part = slice(rows[start], rows[stop - 1] + 1) if unbroken else rows[start:stop]
        x = features[part]
        wide = (torch.from_numpy(x) if made else x).double()
        yield wide if wide.data_ptr() % 64 == 0 else wide.clone(), labels[part]


def _one_hot(labels: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, classes).double()


SLACKS = (1e-9, 1e-6, 1e-3, 0.1, 1.0)  # added to a guess, relative, until it is proved


def largest_eigenvalue(matrix: np.ndarray, error: float = 0.0) -> float:
    """An upper bound, of this matrix and of every positive semidefinite one within ``error`` of it.

    Args:
        matrix: [d, d] K, symmetric and finite; of its entries the lower triangle is read.
        error: bound on the spectral norm of what separates K from the matrix that is meant, >= 0.
    """
    width = len(matrix)
    trace = (float(np.abs(np.diagonal(matrix)).sum()) + width * error) * COVER + TINY
    guess = _top(matrix)
    for slack in SLACKS:
        bound = proved(matrix, guess * (1 + slack))
        if bound is not None:
            return min((bound + error) * COVER, trace)
    return trace


def _top(matrix: np.ndarray) -> float:
    """The greatest eigenvalue, to rounding.

    LAPACK's search for one of them alone finds none of some small matrices of whole numbers; the one for all does.
    """
    last = len(matrix) - 1
    try:
        values, _ = eigh(matrix, check_finite=False, subset_by_index=[last, last])
    except LinAlgError:
        values = np.empty(0)
    if not len(values):
        values, _ = eigh(matrix, check_finite=False, driver="evd")
    return float(values[-1])


def proved(matrix: np.ndarray, guess: float) -> float | None:
    """The bound that a completed factorisation of ``guess`` I - matrix proves; None: it broke down."""
    shifted = -matrix
    shifted[np.diag_indices_from(shifted)] += guess
    diagonal = np.diagonal(shifted)
    try:
        cholesky(shifted, lower=True, check_finite=False)
    except LinAlgError:
        return None
    g = gamma_up(2 * len(matrix) + 16)
    overhead = (UNIT * float(np.abs(diagonal).max()) + g / (1 - g) * float(diagonal.sum())) * COVER + TINY
    return next_up(guess + overhead)


ONSET, FACTOR = 1000.0, 0.13
BATCH = 512
"""Records of a batch; for units of u rows u^2 times as many. Even if every unit has u rows, a batch then stays 7 standard
deviations below n_max: 0.1 b + 6 sqrt b against sqrt(b u), b = 512 u^2."""
SHARE = 0.999  # of the largest learning rate that the proof allows
CERTIFICATES = ("stability", "erm", "removal", "votes")  # that the recipe is for


def strength(size: float, classes: int, caution: float = 1.0) -> float:
    """Lambda, in records.

    Args:
        size: B, at least 1.
        classes: how many there are.
        caution: public factor of Lambda: the one knob.
    """
    return caution * min(size / ONSET, FACTOR * math.sqrt(size)) / max(1, classes - 1)


def check_open(training: TrainingConfig, certificate: str) -> None:
    """Raise ConfigError where settings are left to the recipe and the certificate is not one that it knows."""
    if training.by_recipe and certificate not in CERTIFICATES:
        key = f"training.{training.by_recipe[0]}"
        raise ConfigError(
            f"{key}=recipe: the recipe is for linear heads, and this is certificate={certificate}: use a "
            "linear head (certificate=stability model=linear), or give training=generic and training.epochs, training.lr "
            "and training.clip as chosen on public data"
        )


def settled(training: TrainingConfig, certificate: str, classes: int, size: float, unit_rows: int = 1) -> TrainingConfig:
    """The settings with numbers for what they leave to the recipe; the same settings where they leave nothing.

    Args:
        training: as configured.
        certificate: stability, erm, removal or votes.
        classes: how many there are.
        size: B: the records declared, or one member's share of them.
        unit_rows: public cap on the rows of one unit.
    """
    if not training.by_recipe:
        return training
    if training.batch.normalizer is not None:
        size = training.batch.normalizer * training.batch.count
    size = max(size, 1.0)
    force = strength(size, classes, training.caution)
    numbers = _sgd(training, classes, force, size, unit_rows) if certificate == "stability" else _erm(force, size)
    return with_numbers(training, numbers)


def with_numbers(training: TrainingConfig, numbers: Mapping[str, Any]) -> TrainingConfig:
    """The settings with these numbers, by name, for what they leave to the recipe."""
    left = {name: numbers[name] for name in training.by_recipe}
    count = left.pop("batch.count", training.batch.count)
    return replace(training, by_recipe=(), batch=replace(training.batch, count=count), **left)


def numbers_of(training: TrainingConfig, left: Iterable[str]) -> dict[str, float | int]:
    """``recipe.NAME`` -> what was settled for each name that was left to the recipe; nothing where none was."""
    numbers = {"lr": training.lr, "epochs": training.epochs, "weight_decay": training.weight_decay}
    numbers["batch.count"] = training.batch.count
    return {f"recipe.{name}": numbers[name] for name in left}


def _erm(force: float, size: float) -> dict[str, Any]:
    return {"weight_decay": force / size, "lr": 1.0, "epochs": 1, "batch.count": 1}


def _sgd(training: TrainingConfig, classes: int, force: float, size: float, unit_rows: int) -> dict[str, Any]:
    """Rates that add up to ``size / force``, each as large as the proof allows; few epochs, since batches are many."""
    count = training.batch.count
    if "batch.count" in training.by_recipe and training.batch.normalizer is None:
        count = min(max(1, int(size / (BATCH * unit_rows**2))), MOST_BATCHES)
    return rates(training, LinearLoss.of(training, classes).smoothness, size / force, size, count)


def rates(training: TrainingConfig, curvature: float, way: float, size: float, count: int) -> dict[str, Any]:
    """Numbers of plain SGD, without decay: the rates add up to ``way``, each at most what no step swings beyond.

    Args:
        curvature: bound on the mean loss's second derivative, per unit of the features' second moment.
        size: records.
        count: batches of an epoch.
    """
    of_batch = training.batch.normalizer or size / count
    crowd = (training.batch.n_max or default_n_max(of_batch)) / of_batch
    largest = SHARE * 2 / (2 * training.weight_decay + curvature * crowd)
    if "epochs" not in training.by_recipe:
        return {"weight_decay": 0.0, "lr": largest, "epochs": training.epochs, "batch.count": count}
    epochs = max(1, math.ceil(way / ((largest if "lr" in training.by_recipe else training.lr) * count)))
    return {"weight_decay": 0.0, "lr": min(largest, way / (epochs * count)), "epochs": epochs, "batch.count": count}
