"""The head that records can be removed from: the minimiser of L_b, its state, and how far one
record moves it.

L_b is training/erm.py's, with strength s = training.weight_decay times the public normaliser B. b
is drawn before any record is read, N(0, sigma^2) in each coordinate under ``masking=loss``, and 0
otherwise; under ``masking=output`` the weights that are served have noise of N(0, sigma^2), drawn
exactly once w is there (``served``). What a removal does with the state is in unlearning/.

Formal guarantees
    The residual. ``RemovalState.residual`` is a bound on |grad L_b(w)| over all outputs jointly, b
    in it: the gradient as computed at the weights that are kept, plus what rounding may hide
    (``Slope.bound``). How the solver got there is irrelevant. L_b is s-strongly convex, so |w - w*|
    <= residual / s.
    One record, given the draw of b and of the output's noise, which are the same for every dataset
    compared with. Let D' be D with one record z more: grad L_b' - grad L_b = l'(w.x_z) x_z, so s
    |w*' - w*| <= |l'(w.x_z)| at w = w*' or w*. For the logistic loss |l'| <= 1, so rho = 1 / s. For
    squares |l'| <= |w| + 1, so rho = (1 + R*) / s with R* >= |w*|.
    The length of w*. With q = |b| / s for the longest output's b, and n <= n_max:
      - logistic: grad L_b(w*) = 0 gives |w*| <= n_max / s + q; L_b(w*) <= L_b(0) = n ln 2 gives s
        |w*|^2 / 2 <= n_max ln 2 + |b||w*|, so |w*| <= q + sqrt(q^2 + 2 n_max ln 2 / s). R* is the
        smaller.
      - squares: w* = (X'X + s I)^-1 (X't - b); the singular values of (X'X + s I)^-1 X' are v /
        (v^2 + s) <= 1 / (2 sqrt s), and |t| <= sqrt n, so R* = sqrt(n_max) / (2 sqrt s) + q.
    What is served under masking=output: w + z, z ~ N(0, sigma^2 I) a real vector from the operating
    system, rounded to a public lattice of step h, then to a float, then clamped to [-c, c]
    (agt/numeric.py). All three are functions of w + z, which is thus all that is ever seen of w. c
    is a power of two, no less than R* + allowed / s + ``TAIL`` sigma for whatever may be allowed: a
    clamp that never acts, and makes the length of what is served public, R = sqrt(d) c: a length
    worked out from the draw would be one more thing that is seen of w. w, a finite set of floats,
    is a vector of rationals, and it is these that the noise is added to.
    Two computed states. Each lies within allowed / s of its minimiser, ``allowed`` being public and
    no smaller than any residual that was accepted. Given z, the lattice moves a coordinate by at
    most h / 2, the float by u R, a clamp brings two no further apart. So they differ by at most rho
    + 2 (allowed / s + sqrt(d) h / 2 + u R) for one record: stable distances in closed form
    (certificates/stability.py) hold as for certificate=erm, given the draws. These are independent
    of the records, so what is released by such distances, or with noise of that sensitivity, is as
    private.
    The tolerance. How far a gradient may be off is bounded by public numbers alone (n_max, width,
    R); a tolerance below four times that is refused before any record is read, so that reaching it
    tells nothing about them.

Sources: Guo, Goldstein, Hannun, van der Maaten (2020) [003]; Chaudhuri, Monteleoni, Sarwate (2011).
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
from agt.training.erm import Objective, gram, gram_rounding
from agt.training.loop import OnProgress, Progress
from agt.training.sensitivity import LinearLoss, LinearSetting, Sensitivity, rows_moved
from agt.training.spectral import largest_eigenvalue

SEED = "removal"  # what checkpoints call the seed of the draws
STEPS = 100  # Newton steps; a dozen are usual
POLISH = 30  # steps with the last Hessian; two or three are usual
HALVINGS = 40
TAIL = 64  # sigmas: no noise that is ever drawn is larger


@schema
class RemovalConfig:
    """The minimiser of the regularised loss, with noise that lets records be removed later (003;
    training/removal.py).

    Attributes:
        loss: logistic, or least_squares; neither is clamped. Several classes: one against the
            others each.
        masking: what hides a removal's error: output: noise on the weights that are served, which
            is proved; loss: a random linear term b in the loss, as published, which is not; none:
            nothing, for least squares alone, whose removals are exact but for rounding.
        sigma: standard deviation of each coordinate of that noise: of a weight; of b in units of a
            record's gradient, where 1 is a common choice.
        eps, delta: of removals: the model after them and one trained without the records are so
            close; unread without noise.
        bound: what a removal is charged: the bound from the data without looking at all of it
            again, the worst case, or the residual measured in one pass.
        factorisation: of the Hessian: maintained from removal to removal, or made anew each time.
        tolerance: public bound on the residual that training leaves, a sum's gradient norm; a run
            that misses it stops.
        features: the public feature map.
        seed: of the noise, for simulation; None: the operating system's.
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
                f"masking=none: removals from loss={self.loss} leave an error that nothing would "
                "hide: use "
                "masking=output, or loss=least_squares, whose removals are exact"
            )
        if self.masking == "none" and (self.sigma or self.seed is not None):
            raise ValueError("masking=none draws no noise: give sigma=0 and no seed with it")
        if self.masking != "none" and not self.sigma:
            raise ValueError(
                f"sigma=0: masking={self.masking} hides a removal by noise, and without any "
                "nothing is hidden: give sigma "
                "> 0, or masking=none with loss=least_squares"
            )


@dataclass(frozen=True)
class RemovalState:
    """What later removals start from: for the data owner alone, as it tells of every record.

    Attributes:
        weight: w [J, d] float64, before the output's noise.
        tilt: b [J, d]; zeros unless masking=loss.
        served: [J, d], the weights that answer: w; under masking=output with noise, on its lattice.
        reference: w0 [J, d], where ``hessian`` was taken.
        hessian: [J, d, d], of L_b at w0 over the records there are now; [1, d, d] for squares, the
            same for every output.
        gram: K = X'X [d, d] of the records there are now.
        norm: upper bound on |X|_2.
        residual: upper bound on |grad L_b(w)| over those records, all outputs jointly in l2.
        allowed: public bound that ``residual`` was accepted by: the tolerance, or a removal's
            budget.
        count: n, how many records there are now.
        removed: how many were removed since training.

    Raises:
        UnsoundError: shapes that do not go together, a number that is none, or a residual above
            what is allowed.
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
        outputs, width = self.weight.shape
        shapes = dict.fromkeys(("weight", "tilt", "served", "reference"), (outputs, width)) | {
            "gram": (width, width)
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise UnsoundError(
                    f"removal state: {name} is {getattr(self, name).shape}, expected {shape}"
                )
        if self.hessian.shape not in ((outputs, width, width), (1, width, width)):
            raise UnsoundError(
                f"removal state: hessian is {self.hessian.shape}, expected "
                f"{(outputs, width, width)}"
            )
        if not all(
            np.isfinite(getattr(self, name)).all()
            for name in (*shapes, "hessian", "norm", "allowed")
        ):
            raise UnsoundError("removal state: a number is NaN or infinite")
        if min(self.norm, self.count, self.removed) < 0:
            raise UnsoundError("removal state: a count or a norm is negative")
        if not 0 <= self.residual <= self.allowed:
            raise UnsoundError(
                f"removal state: the residual {self.residual:.3g} is above what is allowed, "
                f"{self.allowed:.3g}"
            )

    @property
    def noise(self) -> np.ndarray:
        """[J, d] what is served less w, to rounding: as private as w itself."""
        return self.served - self.weight


@dataclass(frozen=True)
class RemovalProblem:
    """The public numbers of one training, the draw of b given.

    Attributes:
        config: the certificate's settings.
        setting: width, plan and relation; its loss has the constants that certificates need.
        objective: L without b.
        tilt: the draw of b, [J, d].
    """

    config: RemovalConfig
    setting: LinearSetting
    objective: Objective
    tilt: np.ndarray

    @classmethod
    def of(
        cls, config: RemovalConfig, setting: LinearSetting, tilt: np.ndarray
    ) -> "RemovalProblem":
        """For a setting whose loss says how many outputs there are, and nothing more yet.

        Raises:
            ConfigError: a relation that divides by the actual batch, or a B that was counted from
                the records.
        """
        rows_moved(setting.relation)
        if not setting.plan.declared:
            raise ConfigError(
                Message(
                    "{config:dataset.declared_size}: certificate=removal regularises by a "
                    "constant times the number of records, and a number counted from them "
                    "would change with every removal: declare it, or "
                    "{config:training.batch.normalizer}",
                )
            )
        strength = setting.training.weight_decay * setting.plan.normalizer
        return cls(config, setting, Objective(config.loss, strength), tilt)

    @property
    def reach(self) -> float:
        """Upper bound on |w*| of each output, whatever the records."""
        s, n = self.objective.strength, self.setting.plan.n_max
        q = _longest(self.tilt) / s
        if self.config.loss == "least_squares":
            return (math.sqrt(n / s) / 2 + q) * COVER
        return min(n / s + q, q + math.sqrt(q * q + 2 * n * math.log(2) / s)) * COVER

    @property
    def loss(self) -> LinearLoss:
        """The constants of the loss on this problem."""
        most = 1.0 if self.config.loss == "logistic" else next_up(1 + self.reach)
        return removal_loss(self.setting.loss.outputs, self.objective.smoothness, most)

    def length(self, allowed: float) -> float:
        """Upper bound on |w| of each output, as computed to such a residual."""
        return (self.reach + allowed / self.objective.strength) * COVER

    @property
    def largest(self) -> float:
        """c, that no coordinate served under masking=output exceeds; the same before and after
        removals.
        """
        most = max(
            removal_budget(self.config, self.objective.strength) or 0.0, self.config.tolerance
        )
        return 2.0 ** math.ceil(math.log2((self.length(most) + TAIL * self.config.sigma) * COVER))

    def served(self, weight: np.ndarray, again: int = 0) -> np.ndarray:
        """[J, d] the weights that answer: w; under masking=output with noise, drawn anew by the
        operating system.

        Args:
            again: of a simulation: which draw of the seed's this is.
        """
        if self.config.masking != "output":
            return weight
        seed, most = self.config.seed, self.largest
        source = SystemRandomness() if seed is None else SeededRandomness(seed + again)
        return np.clip(noisy(weight, self.config.sigma, source), -most, most)

    def check_served(self, state: RemovalState) -> None:
        """Raise UnsoundError where these settings cannot have made what a state serves."""
        if self.config.masking != "loss" and state.tilt.any():
            raise UnsoundError(
                Message(
                    "removal state: a random term in the loss, and "
                    "{config:certificate.masking} has none",
                )
            )
        if self.config.masking != "output":
            if not np.array_equal(state.served, state.weight):
                raise UnsoundError(
                    "removal state: what is served is not the weights, and no noise is on them"
                )
        elif (
            np.fmod(state.served, step_of(self.config.sigma)).any()
            or np.abs(state.served).max() > self.largest
        ):
            raise UnsoundError(
                "removal state: a weight that is served is not on the lattice of its noise"
            )

    def sensitivity(self, allowed: float) -> Sensitivity:
        """How far one record moves the weights that are served.

        Args:
            allowed: public bound on the residual.
        """
        s = self.objective.strength
        away, radius, lattice, root = (
            next_up(allowed / s),
            self.length(allowed),
            0.0,
            math.sqrt(self.setting.width),
        )
        if self.config.masking == "output":
            radius, lattice = root * self.largest * COVER, root * step_of(self.config.sigma)
        rho = next_up(self.loss.reach / s)
        rounding = 2 * next_up(away + (lattice / 2 + UNIT * radius) * COVER)
        return Sensitivity(rho, rounding, radius, None, rows_moved(self.setting.relation))

    def check_tolerance(self) -> None:
        """Raise ConfigError where rounding alone may exceed the tolerance, or where it takes the
        removal budget.
        """
        least, tolerance = self.least_residual, self.config.tolerance
        if not tolerance >= 4 * least:  # nor where that is NaN
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: a gradient of up to "
                    "{n_max} records is only known to {least:.2g}: use {usable:.2g} or "
                    "more, or a larger {config:training.weight_decay}",
                    tolerance=tolerance,
                    n_max=self.setting.plan.n_max,
                    least=least,
                    usable=4.01 * least,
                )
            )
        budget = removal_budget(self.config, self.objective.strength)
        if budget is not None and tolerance > budget / 2:
            raise ConfigError(
                Message(
                    "{config:certificate.tolerance}={tolerance:g}: the removal budget is "
                    "{budget:.3g} in all, and the optimiser's residual would take more "
                    "than half of it: use a larger {config:certificate.sigma}, or a smaller "
                    "tolerance",
                    tolerance=tolerance,
                    budget=budget,
                )
            )

    @property
    def least_residual(self) -> float:
        """Bound on what a gradient errs by near the minimiser, from public numbers alone; all
        outputs jointly.
        """
        setting, length = self.setting, np.array([self.length(self.config.tolerance)])
        still = self.objective.strength * length + _longest(self.tilt)
        sizes = np.array([setting.plan.n_max * self.loss.reach])
        one = self.objective.rounding(length, still, sizes, setting.plan.n_max, setting.width)
        return float(one[0]) * math.sqrt(setting.loss.outputs) * COVER


def removal_loss(outputs: int, smoothness: float, reach: float) -> LinearLoss:
    """The constants that certificates need: one logit, or one for each class against the others."""
    if outputs == 1:
        return LinearLoss("binary", 1, reach, smoothness, 1.0, 1.0)
    return LinearLoss("one_vs_all", outputs, reach, smoothness, 2.0, next_up(math.sqrt(outputs)))


def removal_budget(config: RemovalConfig, strength: float) -> float | None:
    """How large a residual may be; None without noise. sigma mu under masking=loss.

    Under output strength sigma mu, less the tolerance: what training without the records would
    leave itself, so that the two are close as they are computed. Rounded down, mu being the largest
    whose Gaussian mechanism is (eps, delta)-private.
    """
    if config.masking == "none":
        return None
    hidden = config.sigma * gaussian_mu(config.eps, config.delta)
    return (
        hidden / COVER if config.masking == "loss" else hidden * strength / COVER - config.tolerance
    )


def draw_seed(config: RemovalConfig, checkpoints: Checkpoints = NOWHERE) -> int:
    """The seed of a run's b, kept with its checkpoints while it lasts; a configured one makes a
    simulation.
    """
    if config.seed is not None:
        return config.seed
    return checkpoints.number(SEED, lambda: secrets.randbits(128))


def draw_tilt(
    config: RemovalConfig, shape: tuple[int, int], checkpoints: Checkpoints = NOWHERE
) -> np.ndarray:
    """b, [J, d] float64, in double precision; zeros unless masking=loss."""
    if config.masking != "loss":
        return np.zeros(shape)
    return np.random.Generator(np.random.Philox(key=draw_seed(config, checkpoints))).normal(
        0, config.sigma, shape
    )


def minimise(
    problem: RemovalProblem,
    features: np.ndarray,
    targets: np.ndarray,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
    start: np.ndarray | None = None,
) -> RemovalState:
    """Minimise L_b by Newton's method with a line search, then with the last Hessian as far as
    rounding lets it.

    Args:
        features: [n, d], |x_i| <= 1; may be memory-mapped.
        targets: [n, J].
        start: [J, d]; None: 0.

    Raises:
        ConfigError: as ``RemovalProblem.check_tolerance``.
        UnsoundError: the tolerance was not reached.
    """
    problem.check_tolerance()
    objective, tilt = problem.objective, problem.tilt
    weight, taken = np.zeros_like(tilt) if start is None else start.astype(np.float64), 0
    if state := checkpoints.last():
        weight, taken = state.tensors["weight"].numpy(), state.step
    slope_at = partial(objective.slope, features=features, targets=targets, tilt=tilt)
    values_at = partial(objective.values, features=features, targets=targets, tilt=tilt)
    # of one that was stopped at the end, the last again
    for step in range(min(taken, STEPS - 1), STEPS):
        slope, hessian = slope_at(weight), objective.hessian(weight, features)
        reference, factors = weight, [cho_factor(matrix, lower=True) for matrix in hessian]
        if slope.bound <= problem.config.tolerance:
            break
        weight = _searched(
            values_at, weight, slope.gradient, group().sent(newton_step(factors, slope.gradient))
        )
        checkpoints.offer(step + 1, partial(dict, weight=torch.from_numpy(weight)))
        on_progress(Progress(step + 1, STEPS, step + 1, STEPS))
    for _ in range(POLISH):
        after = weight - group().sent(newton_step(factors, slope.gradient))
        polished = slope_at(after)
        if polished.bound >= slope.bound:
            break
        weight, slope = after, polished
    if not slope.bound <= problem.config.tolerance:
        raise UnsoundError(
            Message(
                "{config:certificate.tolerance}={tolerance:g} was not reached in {steps} "
                "Newton steps (the gradient's norm is at most {bound:.3g}), so nothing is "
                "certified: raise the tolerance, or {config:training.weight_decay}",
                tolerance=problem.config.tolerance,
                steps=STEPS,
                bound=slope.bound,
            )
        )
    products, count, served = gram(features), len(features), group().sent(problem.served(weight))
    return RemovalState(
        weight, tilt, served, reference, hessian, products, spectral_norm(products, count), slope.bound,
        problem.config.tolerance, count,
    )  # fmt: skip


def newton_step(factors: list[tuple[np.ndarray, bool]], gradient: np.ndarray) -> np.ndarray:
    """[J, d] H^-1 gradient of each output.

    Args:
        factors: Cholesky factors, one for each output, or one for all.
    """
    if len(factors) == 1:
        return cho_solve(factors[0], gradient.T).T
    return np.stack(
        [cho_solve(factor, part) for factor, part in zip(factors, gradient, strict=True)]
    )


def _searched(
    values_at: Callable[[np.ndarray], np.ndarray],
    weight: np.ndarray,
    gradient: np.ndarray,
    step: np.ndarray,
) -> np.ndarray:
    """weight - t step, t halved for each output until the value falls as it should, to rounding."""
    before, fall = values_at(weight), np.einsum("jd,jd->j", gradient, step)
    t = np.ones((len(weight), 1))
    for _ in range(HALVINGS):
        short = values_at(weight - t * step) > before - 1e-4 * t[:, 0] * fall + 1e-12 * np.abs(
            before
        )
        if not short.any():
            break
        t[short] /= 2
    return weight - t * step


def spectral_norm(products: np.ndarray, count: int) -> float:
    """Upper bound on |X|_2 of K = X'X as ``objective.gram`` computes it."""
    return math.sqrt(largest_eigenvalue(products, gram_rounding(count))) * COVER


def _longest(rows: np.ndarray) -> float:
    """Upper bound on the longest row's norm; 0 where all are 0."""
    return float(np.linalg.norm(rows, axis=1).max(initial=0.0)) * COVER
