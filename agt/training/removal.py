"""The head that records can be removed from: training it, and the state that removals start from.

Training minimises the objective L_b of training/objective.py, with strength s =
``training.weight_decay`` times the public normaliser. With ``masking=loss`` the linear term b is
drawn before any record is read; with ``masking=output`` noise is added to the weights that are
served. unlearning/newton.py takes records out. Proofs: docs/proofs/removal.md.
"""

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.linalg import cho_factor, cho_solve

from agt.distributed import group
from agt.errors import ConfigError, UnsoundError
from agt.messages import Message
from agt.numeric import (
    COVER,
    UNIT,
    SeededRandomness,
    SystemRandomness,
    gaussian_mu,
    next_up,
    noisy,
    step_of,
)
from agt.settings import FeaturesConfig, Positive, schema
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.loop import OnProgress, Progress
from agt.training.objective import ComputedGradient, Objective, gram, gram_rounding
from agt.training.sensitivity import LinearLoss, LinearSetting, Sensitivity, rows_moved
from agt.training.spectral import largest_eigenvalue

CholeskyFactor = tuple[np.ndarray, bool]
"""What ``scipy.linalg.cho_factor`` returns."""

SEED_NAME = "removal"  # under which checkpoints keep the seed of b
NEWTON_STEPS = 100  # at most; a dozen are usual
POLISH_STEPS = 30  # at most, with the last Hessian; two or three are usual
STEP_HALVINGS = 40  # at most, of the line search
SUFFICIENT_DECREASE = 1e-4  # share of the decrease that the gradient predicts (Armijo)
VALUE_ROUNDING = 1e-12  # relative: by so much a computed value may rise in the line search
NOISE_TAIL_SIGMAS = 64  # no noise that is ever drawn is larger


@schema
class RemovalConfig:
    """The minimiser of a regularised loss, with noise that lets records be removed later (003).

    Attributes:
        loss: logistic or least_squares, neither of them clamped; of several classes each has an
            output of its own, against the others.
        masking: what hides the error of a removal. output: noise on the weights that are served,
            which is proved; loss: a random linear term b in the loss, as published, which is not
            proved; none: nothing, only for least squares, whose removals are exact but for
            rounding.
        sigma: standard deviation of the noise in each coordinate: of a served weight; or of b, in
            units of one record's gradient, where 1 is a common choice.
        eps, delta: how close a model after a removal is to one trained without the records; not
            read with masking=none.
        bound: what a removal is charged: a bound from the data without another pass over them, the
            worst case over all data, or the residual measured in one pass.
        factorisation: of the Hessian: maintained from removal to removal, or fresh each time.
        tolerance: public bound on the residual that training leaves, the norm of a sum of
            gradients; training fails if it is not met.
        features: the public feature map.
        seed: of the noise, for a simulation; None: the operating system's generator.

    Raises:
        ValueError: settings that exclude one another, such as noise of sigma = 0.
    """

    name: Literal["removal"] = "removal"
    loss: Literal["logistic", "least_squares"] = "logistic"
    masking: Literal["loss", "output", "none"] = "output"
    sigma: Annotated[float, Field(ge=0, le=1e9)] = 0.01
    eps: Annotated[float, Field(ge=1e-6, le=1e6)] = 1.0
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-4
    bound: Literal["data", "worst", "measured"] = "data"
    factorisation: Literal["maintained", "fresh"] = "maintained"
    tolerance: Positive = 1e-5
    features: FeaturesConfig = Field(default_factory=FeaturesConfig)
    seed: Annotated[int, Field(ge=0, lt=2**64)] | None = None

    def __post_init__(self) -> None:
        if self.masking == "none" and self.loss != "least_squares":
            raise ValueError(
                f"masking=none: with loss={self.loss}, removals leave an error that nothing "
                "would hide; use masking=output, or loss=least_squares, whose removals are "
                "exact"
            )
        if self.masking == "none" and (self.sigma or self.seed is not None):
            raise ValueError(
                "masking=none means no noise, so sigma and seed have no use: set sigma=0 and "
                "leave out seed"
            )
        if self.masking != "none" and not self.sigma:
            raise ValueError(
                f"masking={self.masking} hides the error of a removal by noise, but sigma=0 "
                "means no noise; set sigma above 0, or use masking=none with "
                "loss=least_squares"
            )


@dataclass(frozen=True)
class RemovalState:
    """What later removals start from; private, since it depends on every record.

    Attributes:
        weight: w, [J, d] float64, before the noise of ``masking=output``.
        tilt: b, [J, d]; zeros unless ``masking=loss``.
        served: [J, d] the weights that answer queries: w, or w with noise on its lattice.
        reference: w0, [J, d] the weights at which ``hessian`` was taken.
        hessian: [J, d, d] the Hessian of L_b at w0 over the records that remain; [1, d, d] for
            least squares, whose outputs share it.
        gram: [d, d] X'X over the records that remain.
        norm: upper bound on the spectral norm of their features X.
        residual: upper bound on the norm of the gradient of L_b at w, over all outputs.
        allowed: public bound that ``residual`` met: the tolerance, or a removal's budget.
        count: the number of records that remain.
        removed: the number of records removed since training.

    Raises:
        UnsoundError: shapes do not match, a number is NaN, infinite or negative, or the residual
            is above ``allowed``.
    """

    weight: np.ndarray
    tilt: np.ndarray
    served: np.ndarray
    reference: np.ndarray
    hessian: np.ndarray
    gram: np.ndarray
    norm: float
    residual: float
    allowed: float
    count: int
    removed: int = 0

    def __post_init__(self) -> None:
        self._check_shapes()
        for name in ("weight", "tilt", "served", "reference", "hessian", "gram", "norm", "allowed"):
            if not np.isfinite(getattr(self, name)).all():
                raise UnsoundError("the state for removals is damaged: a number is NaN or infinite")
        if min(self.norm, self.count, self.removed) < 0:
            raise UnsoundError("the state for removals is damaged: a count or a norm is negative")
        if not 0 <= self.residual <= self.allowed:  # nor where it is NaN
            raise UnsoundError(
                f"the state for removals is damaged: its residual {self.residual:.3g} exceeds "
                f"the allowed {self.allowed:.3g}"
            )

    def _check_shapes(self) -> None:
        """Raise UnsoundError unless every array has the shape that ``weight`` implies."""
        outputs, width = self.weight.shape
        shapes = dict.fromkeys(("weight", "tilt", "served", "reference"), (outputs, width))
        for name, expected in {**shapes, "gram": (width, width)}.items():
            shape = getattr(self, name).shape
            if shape != expected:
                raise UnsoundError(
                    f"the state for removals is damaged: {name} has shape {shape}, but should "
                    f"have {expected}"
                )
        for_each_output = (outputs, width, width)
        if self.hessian.shape not in (for_each_output, (1, width, width)):
            raise UnsoundError(
                "the state for removals is damaged: the Hessian has shape "
                f"{self.hessian.shape}, but should have {for_each_output}"
            )

    @property
    def noise(self) -> np.ndarray:
        """[J, d] the served weights minus w, to rounding; as private as w itself."""
        return self.served - self.weight


@dataclass(frozen=True)
class RemovalProblem:
    """The public numbers of one training, given its draw of b.

    Attributes:
        config: the certificate's settings.
        setting: width, batches and relation; of its loss, only the number of outputs is read.
        objective: the loss and the regulariser.
        tilt: [J, d] b.
    """

    config: RemovalConfig
    setting: LinearSetting
    objective: Objective
    tilt: np.ndarray

    @classmethod
    def from_setting(
        cls, config: RemovalConfig, setting: LinearSetting, tilt: np.ndarray
    ) -> "RemovalProblem":
        """Return the problem that some settings describe.

        Raises:
            ConfigError: the relation divides by the actual batch size, or the normaliser was
                counted from the records, so that it would change with every removal.
        """
        rows_moved(setting.relation)  # only because it refuses such relations
        if not setting.plan.declared:
            raise ConfigError(
                Message(
                    "{config:dataset.declared_size}: certificate=removal needs a declared "
                    "size, because a regulariser that depends on the actual number of records "
                    "would change with every removal; declare the size, or set "
                    "{config:training.batch.normalizer}",
                )
            )
        strength = setting.training.weight_decay * setting.plan.normalizer
        objective = Objective(config.loss, strength)
        return cls(config, setting, objective, tilt)

    @property
    def minimiser_norm(self) -> float:
        """Upper bound on the norm of each output's minimiser, whatever the records."""
        # Lemma 3 of docs/proofs/removal.md
        strength = self.objective.strength
        n_max = self.setting.plan.n_max
        tilt_part = _max_row_norm(self.tilt) / strength
        if self.config.loss == "least_squares":
            label_part = math.sqrt(n_max / strength) / 2
            return (label_part + tilt_part) * COVER
        by_gradient = n_max / strength + tilt_part
        twice_loss_at_zero = 2 * n_max * math.log(2)
        by_value = tilt_part + math.sqrt(tilt_part * tilt_part + twice_loss_at_zero / strength)
        return min(by_gradient, by_value) * COVER

    @property
    def loss(self) -> LinearLoss:
        """The constants of the loss that certificates depend on."""
        # Lemma 2 of docs/proofs/removal.md
        derivative_bound = 1.0
        if self.config.loss == "least_squares":
            derivative_bound = next_up(1 + self.minimiser_norm)
        outputs = self.setting.loss.outputs
        return removal_loss(outputs, self.objective.smoothness, derivative_bound)

    def weight_norm(self, allowed: float) -> float:
        """Bound the norm of each output's computed weights.

        Args:
            allowed: bound on the residual that they were accepted with.
        """
        solver_distance = allowed / self.objective.strength
        return (self.minimiser_norm + solver_distance) * COVER

    @property
    def served_limit(self) -> float:
        """The limit that every served coordinate is clamped to with ``masking=output``.

        It is a power of two, the same before and after removals, and beyond any weight with noise,
        so the clamp never acts (Lemma 4 of docs/proofs/removal.md).
        """
        budget = removal_budget(self.config, self.objective.strength) or 0.0
        max_allowed = max(budget, self.config.tolerance)
        noise_tail = NOISE_TAIL_SIGMAS * self.config.sigma
        largest = (self.weight_norm(max_allowed) + noise_tail) * COVER
        return 2.0 ** math.ceil(math.log2(largest))

    def serve(self, weight: np.ndarray, draw_index: int = 0) -> np.ndarray:
        """Return the weights that answer queries, with fresh noise if ``masking=output``.

        Args:
            weight: [J, d] w.
            draw_index: which draw of the seed to take, if the noise is seeded (a simulation).

        Returns:
            [J, d]: ``weight`` itself without noise on the output; else multiples of the noise's
            lattice step.
        """
        if self.config.masking != "output":
            return weight
        seed = self.config.seed
        source = SystemRandomness() if seed is None else SeededRandomness(seed + draw_index)
        with_noise = noisy(weight, self.config.sigma, source)
        limit = self.served_limit
        return np.clip(with_noise, -limit, limit)

    def check_served(self, state: RemovalState) -> None:
        """Check that these settings can have made the weights that a state serves.

        Raises:
            UnsoundError: there is a random term, noise, or a weight off the lattice or beyond the
                limit, which the settings exclude.
        """
        if self.config.masking != "loss" and state.tilt.any():
            raise UnsoundError(
                Message(
                    "the state for removals is damaged: its loss has a random term, but "
                    "{config:certificate.masking} is not loss",
                )
            )
        if self.config.masking != "output":
            if not np.array_equal(state.served, state.weight):
                raise UnsoundError(
                    Message(
                        "the state for removals is damaged: the weights that are used for "
                        "answers differ from the trained ones, but "
                        "{config:certificate.masking} adds no noise to them",
                    )
                )
            return
        lattice_step = step_of(self.config.sigma)
        is_off_lattice = np.fmod(state.served, lattice_step).any()
        if is_off_lattice or np.abs(state.served).max() > self.served_limit:
            raise UnsoundError(
                "the state for removals is damaged: a weight that is used for answers is not "
                "on the lattice of its noise, or exceeds the limit"
            )

    def sensitivity(self, allowed: float) -> Sensitivity:
        """Bound how far one record moves the weights that are served, given the draws.

        Args:
            allowed: public bound on the residuals of both states that are compared.

        Formal guarantees:
            - Served weights of two datasets k records apart are at most k ``per_k`` apart, for
              k >= 1, with the same b and the same noise (Lemma 5 of docs/proofs/removal.md).
            - The draws are independent of the records.
        """
        strength = self.objective.strength
        solver_distance = next_up(allowed / strength)
        radius = self.weight_norm(allowed)
        lattice_diameter = 0.0
        if self.config.masking == "output":
            root_width = math.sqrt(self.setting.width)
            radius = root_width * self.served_limit * COVER
            lattice_diameter = root_width * step_of(self.config.sigma)
        rho = next_up(self.loss.derivative_bound / strength)
        served_rounding = (lattice_diameter / 2 + UNIT * radius) * COVER
        rounding = 2 * next_up(solver_distance + served_rounding)
        rows = rows_moved(self.setting.relation)
        return Sensitivity(rho, rounding, radius, rate_limit=None, rows=rows)

    def check_tolerance(self) -> None:
        """Refuse a tolerance that rounding may exceed or that takes half of the removal budget.

        Raises:
            ConfigError: the tolerance is below four times ``gradient_rounding``, or above half of
                the budget.
        """
        # Lemma 6 of docs/proofs/removal.md
        rounding = self.gradient_rounding
        tolerance = self.config.tolerance
        if not tolerance >= 4 * rounding:  # nor where that is NaN
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: a gradient of up to {n_max} "
                    "records is only known to {rounding:.2g}, because of rounding; use "
                    "{usable:.2g} or more, or a larger {config:training.weight_decay}",
                    tolerance=tolerance,
                    n_max=self.setting.plan.n_max,
                    rounding=rounding,
                    usable=4.01 * rounding,
                )
            )
        budget = removal_budget(self.config, self.objective.strength)
        if budget is not None and tolerance > budget / 2:
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: the residual that the "
                    "optimiser may leave would use more than half of the removal budget, "
                    "{budget:.3g}; use a larger {config:certificate.sigma}, or a smaller "
                    "tolerance",
                    tolerance=tolerance,
                    budget=budget,
                )
            )

    @property
    def gradient_rounding(self) -> float:
        """Bound on the rounding error of a gradient near the minimiser, over all outputs.

        It follows from public numbers alone.
        """
        setting = self.setting
        n_max = setting.plan.n_max
        length = self.weight_norm(self.config.tolerance)
        without_records = self.objective.strength * length + _max_row_norm(self.tilt)
        (of_one_output,) = self.objective.gradient_rounding(
            lengths=np.array([length]),
            without_records=np.array([without_records]),
            sizes=np.array([n_max * self.loss.derivative_bound]),
            count=n_max,
            width=setting.width,
        )
        return float(of_one_output) * math.sqrt(setting.loss.outputs) * COVER


def removal_loss(outputs: int, smoothness: float, derivative_bound: float) -> LinearLoss:
    """Return the constants of a removable head's loss.

    Args:
        outputs: 1 for two classes; else one output for each class against the others.
        smoothness: largest second derivative of the loss in a logit.
        derivative_bound: largest first derivative, in absolute value.
    """
    if outputs == 1:
        return LinearLoss("binary", 1, derivative_bound, smoothness, 1.0, 1.0)
    root_outputs = next_up(math.sqrt(outputs))
    return LinearLoss("one_vs_all", outputs, derivative_bound, smoothness, 2.0, root_outputs)


def removal_budget(config: RemovalConfig, strength: float) -> float | None:
    """Return how large a residual the noise hides, rounded down; None if there is no noise.

    It is sigma mu with ``masking=loss``, and strength sigma mu - tolerance with ``masking=output``,
    mu the largest whose Gaussian mechanism is (eps, delta)-private. The tolerance is what training
    without the records would leave itself (Lemma 1 of docs/proofs/masking.md).

    Args:
        config: the settings; its noise, eps, delta and tolerance are read.
        strength: of the objective.
    """
    if config.masking == "none":
        return None
    hidden = config.sigma * gaussian_mu(config.eps, config.delta)
    if config.masking == "loss":
        return hidden / COVER
    return hidden * strength / COVER - config.tolerance


def draw_seed(config: RemovalConfig, checkpoints: Checkpoints = NOWHERE) -> int:
    """Return the seed of a run's b: the configured one (a simulation), or a fresh secret one.

    A fresh seed is stored with the run's checkpoints, so that a run that continues has the same b.
    """
    if config.seed is not None:
        return config.seed
    return checkpoints.draw_once(SEED_NAME, lambda: secrets.randbits(128))


def draw_tilt(
    config: RemovalConfig, shape: tuple[int, int], checkpoints: Checkpoints = NOWHERE
) -> np.ndarray:
    """Draw b, the random linear term of the loss.

    Args:
        config: the settings.
        shape: (J, d).
        checkpoints: where the seed of a killed run is found.

    Returns:
        [J, d] float64, N(0, sigma^2) in double precision; zeros unless ``masking=loss``.
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
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
    start: np.ndarray | None = None,
) -> RemovalState:
    """Minimise L_b by Newton's method with a line search.

    Steps with the last Hessian follow, as long as they reduce the residual.

    Args:
        problem: the public numbers and b.
        features: [n, d] float32 or float64, rows of norm at most 1; may be memory-mapped.
        targets: [n, J] as ``Objective.targets`` returns them.
        on_progress: called after every Newton step.
        checkpoints: where a killed run's state is found, and this one's is stored.
        start: [J, d] weights to start from; None: 0.

    Returns:
        The state, whose residual is at most the tolerance; its noise is freshly drawn.

    Raises:
        ConfigError: rounding may exceed the tolerance (``RemovalProblem.check_tolerance``).
        UnsoundError: the tolerance was not met.
    """
    problem.check_tolerance()
    objective = problem.objective
    tilt = problem.tilt
    tolerance = problem.config.tolerance
    gradient_at = partial(objective.gradient, features=features, targets=targets, tilt=tilt)
    values_at = partial(objective.values, features=features, targets=targets, tilt=tilt)
    weight = np.zeros_like(tilt) if start is None else start.astype(np.float64)
    steps_done = 0
    state = checkpoints.last()
    if state:
        weight = state.tensors["weight"].numpy()
        steps_done = state.step
    # A run that was stopped after its last step takes that one again, for its matrices.
    for step in range(min(steps_done, NEWTON_STEPS - 1), NEWTON_STEPS):
        gradient = gradient_at(weight)
        hessian = objective.hessian(weight, features)
        reference = weight
        factors = [cho_factor(matrix, lower=True) for matrix in hessian]
        if gradient.norm_bound <= tolerance:
            break
        direction = group().sent(solve_newton_step(factors, gradient.value))
        weight = _line_search(values_at, weight, gradient.value, direction)
        steps_done = step + 1
        checkpoints.offer(steps_done, partial(dict, weight=torch.from_numpy(weight)))
        on_progress(Progress(steps_done, NEWTON_STEPS, steps_done, NEWTON_STEPS))
    weight, gradient = _polish(gradient_at, factors, weight, gradient)
    # Lemma 1 of docs/proofs/removal.md
    residual = gradient.norm_bound
    if not residual <= tolerance:
        raise UnsoundError(
            Message(
                "{config:certificate.tolerance}={tolerance:g} was not reached in {steps} Newton "
                "steps (the gradient's norm is at most {residual:.3g}), so nothing is "
                "certified: raise the tolerance, or {config:training.weight_decay}",
                tolerance=tolerance,
                steps=NEWTON_STEPS,
                residual=residual,
            )
        )
    count = len(features)
    products = gram(features)
    return RemovalState(
        weight=weight,
        tilt=tilt,
        served=group().sent(problem.serve(weight)),
        reference=reference,
        hessian=hessian,
        gram=products,
        norm=spectral_norm(products, count),
        residual=residual,
        allowed=tolerance,
        count=count,
    )


def _polish(
    gradient_at: Callable[[np.ndarray], ComputedGradient],
    factors: list[CholeskyFactor],
    weight: np.ndarray,
    gradient: ComputedGradient,
) -> tuple[np.ndarray, ComputedGradient]:
    """Take Newton steps with the same Hessian as long as they reduce the residual.

    Args:
        gradient_at: the gradient at some [J, d] weights.
        factors: of the Hessian, one for each output or one for all.
        weight, gradient: where to start, and the gradient there.

    Returns:
        (weight, gradient) at the end.
    """
    for _ in range(POLISH_STEPS):
        step = solve_newton_step(factors, gradient.value)
        next_weight = weight - group().sent(step)
        next_gradient = gradient_at(next_weight)
        if next_gradient.norm_bound >= gradient.norm_bound:
            break
        weight = next_weight
        gradient = next_gradient
    return weight, gradient


def solve_newton_step(factors: list[CholeskyFactor], gradient: np.ndarray) -> np.ndarray:
    """Return [J, d] the inverse Hessian times the gradient, for each output.

    Args:
        factors: Cholesky factors of the Hessians, one for each output or one for all.
        gradient: [J, d].
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
    """Return ``weight`` minus a step, halved for each output until its value decreases enough.

    Args:
        values_at: [J] the objective of each output at some [J, d] weights.
        weight, gradient: [J, d] where to start, and the gradient there.
        direction: [J, d] the full step.
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


def spectral_norm(products: np.ndarray, count: int) -> float:
    """Bound the spectral norm of features X from above.

    Args:
        products: [d, d] X'X as ``objective.gram`` computes it.
        count: the number of records.
    """
    squared_norm = largest_eigenvalue(products, gram_rounding(count))
    return math.sqrt(squared_norm) * COVER


def _max_row_norm(rows: np.ndarray) -> float:
    """Bound the norm of the longest row of a [J, d] array from above; 0 if all are 0."""
    norms = np.linalg.norm(rows, axis=1)
    return float(norms.max(initial=0.0)) * COVER
