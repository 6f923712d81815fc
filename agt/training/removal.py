"""Training of the head that records can be removed from, and the state that removals start from.

Training minimises the objective L_b of training/objective.py, with strength s =
``training.weight_decay`` times the public normaliser. With ``masking=loss`` the linear term b is
drawn before any record is read; with ``masking=output`` noise is added to the weights that answer
queries. unlearning/newton.py removes records. Proofs: docs/proofs/removal.md.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve

from agt.distributed import group
from agt.errors import ConfigError, UnsoundError, altered
from agt.messages import Message
from agt.numeric import (
    COVER,
    UNIT,
    Randomness,
    SeededRandomness,
    SystemRandomness,
    gaussian_mu,
    next_up,
    noisy,
    step_of,
)
from agt.settings import RelationConfig
from agt.training.batches import BatchPlan
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.loop import OnProgress, Progress, ignore_progress
from agt.training.objective import ComputedGradient, Objective, gram, gram_rounding
from agt.training.sensitivity import LinearLoss, Sensitivity, records_per_edit
from agt.training.settings import RemovalConfig
from agt.training.spectral import largest_eigenvalue

CholeskyFactor = tuple[np.ndarray, bool]
"""What ``scipy.linalg.cho_factor`` returns."""

SEED_NAME = "removal"  # the name under which checkpoints store the seed of b
SEED_BITS = 128  # the size of a Philox key
NEWTON_STEPS = 100  # the largest number of Newton steps; a dozen are usual
POLISH_STEPS = 30  # the largest number of steps with the last Hessian; two or three are usual
STEP_HALVINGS = 40  # the largest number of halvings in a line search
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the gradient predicts (Armijo)
VALUE_ROUNDING = 1e-12  # relative increase of a value in the line search that is put to rounding
NOISE_TAIL_SIGMAS = 64  # in standard deviations: the noise that is drawn is never larger


@dataclass(frozen=True)
class RemovalState:
    """The state that later removals start from; private, because it depends on every record.

    L_b is the objective that training minimises: losses, regulariser and the linear term b.w.

    Attributes:
        weight: [J, d] float64, w, before the noise of ``masking=output``.
        tilt: [J, d] the linear term b of the objective; zeros unless ``masking=loss``.
        noisy_weight: [J, d] the weights that answer queries: w with noise, rounded to a public
            lattice; w itself unless ``masking=output``.
        reference: [J, d] the weights w0 at which ``hessian`` was computed.
        hessian: [J, d, d] the Hessian of L_b at w0 over the remaining records. [1, d, d] for least
            squares, because its outputs share one Hessian.
        gram: [d, d] X'X for the features X of the remaining records.
        norm: upper bound on the spectral norm of X.
        residual: upper bound on the norm of the gradient of L_b at w, over all outputs together.
        allowed: public bound that ``residual`` met: the tolerance of training, or the removal
            budget.
        count: the number of remaining records.
        removed: the number of records removed since training.

    Raises:
        UnsoundError: shapes do not match, a number is NaN, infinite or negative, or the residual is
            above ``allowed``.
    """

    weight: np.ndarray
    tilt: np.ndarray
    noisy_weight: np.ndarray
    reference: np.ndarray
    hessian: np.ndarray
    gram: np.ndarray
    norm: float
    residual: float
    allowed: float
    count: int
    removed: int = 0

    def __post_init__(self) -> None:
        """Raise UnsoundError unless shapes match, numbers are valid and the residual is allowed."""
        self._check_shapes()
        arrays = ("weight", "tilt", "noisy_weight", "reference", "hessian", "gram")
        for name in (*arrays, "norm", "allowed"):
            if not np.isfinite(getattr(self, name)).all():
                raise _damaged(f"{name} is NaN or infinite")
        if min(self.norm, self.count, self.removed) < 0:
            raise _damaged("a count or a norm is negative")
        if not 0 <= self.residual <= self.allowed:  # refuses a NaN, too
            raise _damaged(
                f"the residual (gradient norm) is {self.residual:.3g}, above the allowed "
                f"{self.allowed:.3g}"
            )

    def _check_shapes(self) -> None:
        """Raise UnsoundError unless all arrays have the shapes that ``weight`` implies."""
        outputs, width = self.weight.shape
        shaped_like_weight = ("weight", "tilt", "noisy_weight", "reference")
        expected_shapes = dict.fromkeys(shaped_like_weight, (outputs, width))
        expected_shapes["gram"] = (width, width)
        for name, expected in expected_shapes.items():
            shape = getattr(self, name).shape
            if shape != expected:
                raise _damaged(f"{name} has the shape {shape} instead of {expected}")
        for_each_output = (outputs, width, width)
        shared_by_outputs = (1, width, width)
        if self.hessian.shape not in (for_each_output, shared_by_outputs):
            raise _damaged(
                f"the Hessian has the shape {self.hessian.shape} instead of {for_each_output}"
            )

    @property
    def noise(self) -> np.ndarray:
        """[J, d] the noise on w: ``noisy_weight`` minus w, up to rounding; as private as w."""
        return self.noisy_weight - self.weight


@dataclass(frozen=True)
class RemovalProblem:
    """The minimisation problem of one training, described by public numbers and the draw of b.

    The objective L_b is a sum of losses, a regulariser and the linear term b.w for weights w.

    Attributes:
        config: the certificate's settings.
        plan: the single batch of all records, with its public normaliser and largest size.
        relation: the neighbour relation, which says what one edit of a dataset is.
        objective: the loss and the regulariser.
        tilt: [J, d] the linear term b; zeros unless ``masking=loss``.
    """

    config: RemovalConfig
    plan: BatchPlan
    relation: RelationConfig
    objective: Objective
    tilt: np.ndarray

    @classmethod
    def from_plan(
        cls,
        config: RemovalConfig,
        plan: BatchPlan,
        relation: RelationConfig,
        weight_decay: float,
        tilt: np.ndarray,
    ) -> "RemovalProblem":
        """Return the minimisation problem that a training solves.

        Its regulariser has the strength weight_decay times the public normaliser.

        Args:
            config: the certificate's settings.
            plan: the single batch of all records.
            relation: the neighbour relation.
            weight_decay: the setting ``training.weight_decay``; above 0.
            tilt: [J, d] the linear term b of the loss, for J outputs and d features.

        Raises:
            ConfigError: the relation divides by the actual batch size, or the normaliser was
                counted from the records, so that it would change with every removal.
        """
        # The result is not needed here. It raises for a relation that divides by the actual batch
        # size.
        records_per_edit(relation)
        if not plan.declared:
            raise ConfigError(
                Message(
                    "{config:dataset.declared_size}: certificate=removal needs a declared size, "
                    "because otherwise the regulariser would change with every removal. Declare "
                    "the size, or set {config:training.batch.normalizer}",
                )
            )
        strength = weight_decay * plan.normalizer
        objective = Objective(config.loss, strength)
        return cls(config, plan, relation, objective, tilt)

    @property
    def outputs(self) -> int:
        """J, the number of outputs: 1 for two classes, else the number of classes."""
        return self.tilt.shape[0]

    @property
    def width(self) -> int:
        """d, the number of public features of a record."""
        return self.tilt.shape[1]

    @property
    def minimiser_norm_bound(self) -> float:
        """Upper bound on the l2 norm of each output's minimiser, for any records."""
        # Lemma 3 of docs/proofs/removal.md: the norm is at most
        # logistic: min(n_max / s + q, q + sqrt(q^2 + 2 n_max ln 2 / s)),
        # squares: sqrt(n_max / s) / 2 + q, with q = |b| / s and s the strength.
        strength = self.objective.strength
        n_max = self.plan.n_max
        tilt_part = _max_row_norm(self.tilt) / strength
        if self.config.loss == "least_squares":
            label_part = math.sqrt(n_max / strength) / 2
            # COVER (slightly above 1) covers the roundings of this bound itself.
            return (label_part + tilt_part) * COVER
        # At the minimiser, strength w cancels the other gradients, which are at most n_max + |b|.
        by_gradient = n_max / strength + tilt_part
        # The value at the minimiser is at most the value at 0, which is n_max log 2.
        twice_loss_at_zero = 2 * n_max * math.log(2)
        by_value = tilt_part + math.sqrt(tilt_part * tilt_part + twice_loss_at_zero / strength)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return min(by_gradient, by_value) * COVER

    @property
    def loss(self) -> LinearLoss:
        """The loss's constants that certificates depend on: derivative bound and smoothness."""
        # Lemma 2 of docs/proofs/removal.md: the derivative is at most 1 for the logistic loss. For
        # squares it is |f - t|, at most 1 plus the minimiser's norm.
        derivative_bound = 1.0
        if self.config.loss == "least_squares":
            derivative_bound = next_up(1 + self.minimiser_norm_bound)
        return LinearLoss.of_separate_logits(
            self.outputs, derivative_bound, self.objective.smoothness
        )

    def weight_norm_bound(self, allowed: float) -> float:
        """Return an upper bound on the l2 norm of each output's computed weights.

        Args:
            allowed: the bound on the residual (the norm of the objective's gradient) that the
                weights met.
        """
        solver_distance = allowed / self.objective.strength
        # COVER (slightly above 1) covers the roundings of this bound itself.
        return (self.minimiser_norm_bound + solver_distance) * COVER

    @property
    def noisy_weight_limit(self) -> float:
        """The limit that every noisy weight is clamped to with ``masking=output``.

        The limit is a power of two, the same before and after removals. It is larger than any
        weight with noise, so no weight is ever changed by the clamp (Lemma 4 of
        docs/proofs/removal.md).
        """
        # Training may leave a residual up to the tolerance, and removals one up to the budget.
        max_residual = self.config.tolerance
        budget = removal_budget(self.config, self.objective.strength)
        if budget is not None:
            max_residual = max(max_residual, budget)
        largest_weight = self.weight_norm_bound(max_residual)
        largest_noise = NOISE_TAIL_SIGMAS * self.config.sigma
        # COVER (slightly above 1) covers the roundings of this bound itself.
        largest = (largest_weight + largest_noise) * COVER
        return 2.0 ** math.ceil(math.log2(largest))  # the next power of two

    def add_noise(self, weight: np.ndarray, draw_index: int = 0) -> np.ndarray:
        """Return the weights that answer queries, with newly drawn noise if ``masking=output``.

        Args:
            weight: [J, d] w, without noise.
            draw_index: the number of this draw, which is added to a configured seed (a simulation)
                so that every draw differs. Not read if the noise comes from the operating system.

        Returns:
            [J, d]: ``weight`` itself unless ``masking=output``. With it, weights with Gaussian
                noise, rounded to multiples of the noise's lattice step and clamped to
                ``noisy_weight_limit``.
        """
        if self.config.masking != "output":
            return weight
        randomness: Randomness = SystemRandomness()
        if self.config.seed is not None:  # a simulation, which anybody can repeat
            randomness = SeededRandomness(self.config.seed + draw_index)
        with_noise = noisy(weight, self.config.sigma, randomness)
        limit = self.noisy_weight_limit
        return np.clip(with_noise, -limit, limit)

    def check_noisy_weight(self, state: RemovalState) -> None:
        """Raise UnsoundError if these settings cannot have produced a state's noisy weights.

        Args:
            state: a state that was read from a file.

        Raises:
            UnsoundError: the state has a linear term or noise that ``masking`` excludes, or a
                noisy weight is off the noise's lattice or beyond the limit.
        """
        if self.config.masking != "loss" and state.tilt.any():
            raise _damaged("the loss has a random term, although masking is not 'loss'")
        if self.config.masking != "output":
            if not np.array_equal(state.noisy_weight, state.weight):
                raise _damaged(
                    "the weights that are used for answers differ from the trained ones, although "
                    "masking adds no noise to them"
                )
            return
        # The noise is rounded, so that every noisy weight is a multiple of a public step.
        lattice_step = step_of(self.config.sigma)
        is_off_lattice = np.fmod(state.noisy_weight, lattice_step).any()
        if is_off_lattice or np.abs(state.noisy_weight).max() > self.noisy_weight_limit:
            raise _damaged(
                "a weight that is used for answers exceeds its limit, or is not a multiple of the "
                "step of its noise"
            )

    def sensitivity(self, allowed: float) -> Sensitivity:
        """Bound how far one record moves the noisy weights, for fixed draws of b and the noise.

        Noisy weights are those that answer queries; b is the random linear term of the loss.

        Args:
            allowed: public bound on the residual (the norm of the objective's gradient) of both
                models that are compared.

        Formal guarantees:
            - Noisy weights of two datasets that differ in k records are at most k ``per_k`` apart
              in l2 norm, for k >= 1, if both use the same b and the same noise (Lemma 5 of
              docs/proofs/removal.md).
            - The draws are independent of the records.
        """
        strength = self.objective.strength
        # next_up after each operation keeps the result an upper bound. The objective is strongly
        # convex, so weights of this residual are at most ``solver_distance`` from the minimiser.
        solver_distance = next_up(allowed / strength)
        radius = self.weight_norm_bound(allowed)
        lattice_diameter = 0.0  # the diameter of one cell of the lattice of noisy weights
        if self.config.masking == "output":
            root_width = math.sqrt(self.width)
            radius = root_width * self.noisy_weight_limit * COVER
            lattice_diameter = root_width * step_of(self.config.sigma)
        # One record changes the gradient by at most derivative_bound, and so the minimiser by rho.
        rho = next_up(self.loss.derivative_bound / strength)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        lattice_rounding = (lattice_diameter / 2 + UNIT * radius) * COVER
        # Each of two models is at most this far from its exact minimiser plus the noise.
        rounding = 2 * next_up(solver_distance + lattice_rounding)
        edited_records = records_per_edit(self.relation)
        return Sensitivity(
            rho=rho,
            rounding=rounding,
            radius=radius,
            rate_limit=None,  # no step size enters the bound
            records_per_edit=edited_records,
        )

    def check_tolerance(self) -> None:
        """Raise ConfigError if the tolerance is too small to reach or too large for the budget.

        Raises:
            ConfigError: the tolerance is below four times ``gradient_rounding``, or above half of
                the removal budget (the residual that the noise hides).
        """
        # Lemma 6 of docs/proofs/removal.md: whether the tolerance can be met depends on public
        # numbers only, so a failure says nothing about the records.
        rounding = self.gradient_rounding
        tolerance = self.config.tolerance
        if not tolerance >= 4 * rounding:  # refuses a NaN, too
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: this is too small, because "
                    "rounding limits the precision of a gradient of up to {n_max} records to "
                    "{rounding:.2g}; use {usable:.2g} or more, or a larger "
                    "{config:training.weight_decay}",
                    tolerance=tolerance,
                    n_max=self.plan.n_max,
                    rounding=rounding,
                    usable=4.01 * rounding,  # slightly above the limit
                )
            )
        budget = removal_budget(self.config, self.objective.strength)
        if budget is not None and tolerance > budget / 2:
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: the gradient norm that the "
                    "optimiser may leave (residual) would use more than half of the removal "
                    "budget, {budget:.3g}; use a larger {config:certificate.sigma}, or a "
                    "smaller tolerance",
                    tolerance=tolerance,
                    budget=budget,
                )
            )

    @property
    def gradient_rounding(self) -> float:
        """Upper bound on the l2 rounding error of a gradient near the minimiser, over all outputs.

        It depends on public numbers only.
        """
        n_max = self.plan.n_max
        weight_norm = self.weight_norm_bound(self.config.tolerance)
        regulariser_size = self.objective.strength * weight_norm + _max_row_norm(self.tilt)
        derivative_sum = n_max * self.loss.derivative_bound
        # One output stands for all, because these bounds hold for each of them.
        (rounding_of_output,) = self.objective.gradient_rounding(
            weight_norms=np.array([weight_norm]),
            regulariser_sizes=np.array([regulariser_size]),
            derivative_sums=np.array([derivative_sum]),
            count=n_max,
            width=self.width,
        )
        # The errors of J outputs, each within the same bound, add in squares.
        return float(rounding_of_output) * math.sqrt(self.outputs) * COVER


def _damaged(finding: str) -> UnsoundError:
    """Return the error that says what is wrong with a stored state."""
    return UnsoundError(altered("the stored state for later removals", finding, "train again"))


def removal_budget(config: RemovalConfig, strength: float) -> float | None:
    """Return the largest residual that the noise hides, rounded down; None if there is no noise.

    The residual is the norm of the objective's gradient at the weights, which removals increase.
    The budget is sigma mu with ``masking=loss``, and strength sigma mu - tolerance with
    ``masking=output``. Here mu is the largest parameter whose Gaussian mechanism is (eps,
    delta)-private. The tolerance is subtracted because a model that was trained without the records
    may itself be that far from its minimiser (Lemma 1 of docs/proofs/masking.md).

    Args:
        config: the certificate's settings. Its masking, sigma, eps, delta and tolerance are read.
        strength: the strength of the objective's regulariser.
    """
    if config.masking == "none":
        return None
    hidden = config.sigma * gaussian_mu(config.eps, config.delta)
    # Divided by COVER, because the budget must not exceed what the noise hides.
    if config.masking == "loss":
        return hidden / COVER
    return hidden * strength / COVER - config.tolerance


def draw_seed(config: RemovalConfig, checkpoints: Checkpoints = NO_CHECKPOINTS) -> int:
    """Return the seed from which the random linear term b of a run's loss is drawn.

    Args:
        config: the certificate's settings. A configured seed is returned (a simulation).
        checkpoints: where a secret seed is drawn and stored if none is configured. A run that
            continues reads the stored seed, so it has the same b.
    """
    if config.seed is not None:
        return config.seed
    return checkpoints.draw_once(SEED_NAME, partial(secrets.randbits, SEED_BITS))


def draw_tilt(
    config: RemovalConfig, shape: tuple[int, int], checkpoints: Checkpoints = NO_CHECKPOINTS
) -> np.ndarray:
    """Draw b, the random linear term of the loss ("tilt").

    Args:
        config: the certificate's settings. Its masking, sigma and seed are read.
        shape: (J, d).
        checkpoints: where the seed of a run that was stopped is found, and a new one is stored.

    Returns:
        [J, d] float64 of independent N(0, sigma^2), drawn in double precision; zeros unless
        ``masking=loss``.
    """
    if config.masking != "loss":
        return np.zeros(shape)
    seed = draw_seed(config, checkpoints)
    generator = np.random.Generator(np.random.Philox(key=seed))
    return generator.normal(0, config.sigma, shape)


def minimise(
    problem: RemovalProblem,
    features: np.ndarray,
    targets: np.ndarray,
    on_progress: OnProgress = ignore_progress,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
    start: np.ndarray | None = None,
) -> RemovalState:
    """Minimise the objective by Newton's method with a line search, and return the trained state.

    At the end, Newton steps with the last Hessian are taken for as long as they reduce the
    residual.

    Args:
        problem: the public numbers and the linear term b.
        features: [n, d] float32 or float64, rows of norm at most 1; may be memory-mapped.
        targets: [n, J] as ``Objective.targets`` returns them.
        on_progress: called after every Newton step.
        checkpoints: where the state of a run that was stopped is found, and where the state of this
            run is stored.
        start: [J, d] the weights to start from; None: 0.

    Returns:
        The state, with a residual of at most the tolerance. With ``masking=output`` its noisy
        weights have newly drawn noise.

    Raises:
        ConfigError: the tolerance is too small to be reached or too large for the removal budget.
        UnsoundError: the tolerance was not met.
    """
    problem.check_tolerance()
    objective = problem.objective
    tilt = problem.tilt
    tolerance = problem.config.tolerance
    # Functions of the weights.
    gradient_at = partial(objective.gradient, features=features, targets=targets, tilt=tilt)
    values_at = partial(objective.values, features=features, targets=targets, tilt=tilt)
    weight = np.zeros_like(tilt) if start is None else start.astype(np.float64)
    steps_done = 0
    state = checkpoints.last_state()
    if state:
        weight = state.tensors["weight"].numpy()
        steps_done = state.step
    # A run that was stopped after its last step takes that step again, because the checkpoint does
    # not hold the Hessian.
    for step in range(min(steps_done, NEWTON_STEPS - 1), NEWTON_STEPS):
        gradient = gradient_at(weight)
        hessian = objective.hessian(weight, features)
        reference = weight
        factors = [cho_factor(matrix, lower=True) for matrix in hessian]
        if gradient.norm_bound <= tolerance:
            break
        # All processes use the first one's direction, so that their weights have the same bits.
        direction = group().broadcast(solve_newton_step(factors, gradient.value))
        weight = _line_search(values_at, weight, gradient.value, direction)
        steps_done = step + 1
        checkpoints.save_if_due(steps_done, partial(dict, weight=torch.from_numpy(weight)))
        on_progress(Progress.of_steps(steps_done, NEWTON_STEPS))
    weight, gradient = _polish(gradient_at, factors, weight, gradient)
    # Lemma 1 of docs/proofs/removal.md: the computed norm plus its rounding bounds the exact
    # gradient's norm, however the weights were found.
    residual = gradient.norm_bound
    if not residual <= tolerance:  # written so that NaN is refused, too
        raise _tolerance_not_reached(tolerance, residual)
    gram_matrix = gram(features)
    return RemovalState(
        weight=weight,
        tilt=tilt,
        # All processes use the noise that the first one drew.
        noisy_weight=group().broadcast(problem.add_noise(weight)),
        reference=reference,
        hessian=hessian,
        gram=gram_matrix,
        norm=spectral_norm_bound(gram_matrix, len(features)),
        residual=residual,
        allowed=tolerance,
        count=len(features),
    )


def _tolerance_not_reached(tolerance: float, residual: float) -> UnsoundError:
    """Return the error of a training that ended with a larger residual than the tolerance."""
    return UnsoundError(
        Message(
            "{config:certificate.tolerance}={tolerance:g} was not reached in {steps} Newton "
            "steps (the gradient's norm is at most {residual:.3g}), so nothing is "
            "certified: raise the tolerance, or {config:training.weight_decay}",
            tolerance=tolerance,
            steps=NEWTON_STEPS,
            residual=residual,
        )
    )


def _polish(
    gradient_at: Callable[[np.ndarray], ComputedGradient],
    factors: list[CholeskyFactor],
    weight: np.ndarray,
    gradient: ComputedGradient,
) -> tuple[np.ndarray, ComputedGradient]:
    """Take Newton steps with a fixed Hessian for as long as they reduce the residual.

    Args:
        gradient_at: returns the gradient at some [J, d] weights.
        factors: Cholesky factors of the Hessian, one for each output or one for all.
        weight: [J, d] the weights to start from.
        gradient: the gradient at ``weight``.

    Returns:
        (the weights of the smallest residual, the gradient at these weights).
    """
    for _ in range(POLISH_STEPS):
        step = solve_newton_step(factors, gradient.value)
        next_weight = weight - group().broadcast(step)
        next_gradient = gradient_at(next_weight)
        if next_gradient.norm_bound >= gradient.norm_bound:
            break
        weight = next_weight
        gradient = next_gradient
    return weight, gradient


def solve_newton_step(factors: list[CholeskyFactor], gradient: np.ndarray) -> np.ndarray:
    """Return the inverse Hessian times the gradient, [J, d].

    Args:
        factors: Cholesky factors of the Hessians, one for each output or one for all.
        gradient: [J, d], the gradient of the objective.
    """
    if len(factors) == 1:
        return cho_solve(factors[0], gradient.T).T
    steps = [cho_solve(factor, row) for factor, row in zip(factors, gradient, strict=True)]
    return np.stack(steps)


def _line_search(
    values_at: Callable[[np.ndarray], np.ndarray],
    weight: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray,
) -> np.ndarray:
    """Return the weights after one Newton step, shortened until the objective decreases enough.

    Each output's step is halved on its own, until the decrease is at least ``SUFFICIENT_DECREASE``
    times what the gradient predicts (Armijo's rule).

    Args:
        values_at: returns the objective of each output, [J], at some [J, d] weights.
        weight: [J, d] the weights to start from.
        gradient: [J, d] the gradient at ``weight``.
        direction: [J, d] the full step, which is subtracted from ``weight``.
    """
    values = values_at(weight)
    predicted_decrease = np.einsum("jd,jd->j", gradient, direction)
    step = np.ones((len(weight), 1))
    for _ in range(STEP_HALVINGS):
        required_decrease = SUFFICIENT_DECREASE * step[:, 0] * predicted_decrease
        limits = values - required_decrease + VALUE_ROUNDING * np.abs(values)
        is_too_long = values_at(weight - step * direction) > limits
        if not is_too_long.any():
            break
        step[is_too_long] /= 2
    return weight - step * direction


def spectral_norm_bound(gram_matrix: np.ndarray, count: int) -> float:
    """Return an upper bound on the spectral norm of features X.

    Args:
        gram_matrix: [d, d] X'X as ``objective.gram`` computes it.
        count: the number of records, which the rounding error of X'X depends on.
    """
    # The squared spectral norm of X is the largest eigenvalue of X'X.
    squared_norm = largest_eigenvalue(gram_matrix, gram_rounding(count))
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return math.sqrt(squared_norm) * COVER


def _max_row_norm(rows: np.ndarray) -> float:
    """Return an upper bound on the largest l2 norm of a row of a [J, d] array; 0 if all are 0."""
    norms = np.linalg.norm(rows, axis=1)
    # COVER (slightly above 1) covers the roundings of this bound itself.
    return float(norms.max(initial=0.0)) * COVER
