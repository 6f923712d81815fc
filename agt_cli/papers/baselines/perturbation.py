"""Private logistic regression by output and by objective perturbation (Chaudhuri et al. 2011; Kifer et al. 2012; 002).

Both concern F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2)|theta|^2 with |x_i| <= 1 and a logistic loss whose derivative is
clamped to [-C, 0] (``erm``), Lambda and C public. The neighbours are D and D + z, z one record; written as a sum, F needs
no public number of records. theta* is the minimiser, theta~ what the solver returns: |grad F(theta~)| <= tau is verified,
so |theta~ - theta*| <= tau/Lambda, F being Lambda-strongly convex. A solver that misses tau raises: nothing is released.

Formal guarantees
    Output perturbation. theta~ + noise. At theta*(D + z) the gradient of F_D has norm |grad l_z| <= C, and
    strong convexity gives |theta*(D + z) - theta*(D)| <= C/Lambda (2C/Lambda when a record is replaced: two such changes to
    the same objective have a gradient of at most 2C). So theta~ moves by at most Delta = (C + 2 tau)/Lambda. Noise:
    N(0, (Delta/mu)^2 I), mu = mu(epsilon, delta) exact; for delta = 0 the density proportional to exp(-epsilon|v|/Delta).

    Objective perturbation. theta* minimises F(theta) + b.theta for b ~ N(0, sigma^2 I). Conditions: delta > 0 or the pure
    form below; epsilon > c := log(1 + beta/Lambda), beta the largest l''; one record added or removed.
    Proof. b = B_D(theta) := -grad F_D(theta) maps theta to b one to one, Lipschitz both ways, with |det| = det H_D, so
    theta* has density phi_sigma(B_D(theta)) det H_D(theta). For D' = D + z, grad l_z = s x with |s| <= C and s of *one
    sign* (l is decreasing: s = -y |s|), and l''_z x x^T adds rank one: det H_D'/det H_D = 1 + l'' x^T H_D^-1 x, in
    [1, 1 + beta/Lambda]. Let a = |s| |x|/sigma in [0, m], m = C/sigma, and u = +-B.x/(sigma|x|), standard normal under the
    dataset that theta* came from. Then ln p_D'/p_D <= c + a^2/2 + a u under D', and ln p_D/p_D' <= a^2/2 + a u under D.
    Both are convex in a: at most c + max(0, m^2/2 + m u), however a depends on theta. For epsilon >= c,
    delta(epsilon) = E[(1 - e^(epsilon - loss))_+] is thus at most that of a Gaussian mechanism with mu = m at epsilon - c,
    and sigma = C/mu(epsilon - c, delta) suffices. (Without the sign, delta doubles, as in Redberg, Koskela and Wang 2023;
    Kifer et al. take sigma^2 = C^2 (8 ln(2/delta) + 4 epsilon)/epsilon^2, far more.)
    Pure form (delta = 0): density of b proportional to exp(-kappa|b|), |B_D - B_D'| <= C, so kappa = (epsilon - c)/C.
    theta~ in place of theta*. Given theta*, whose release is the mechanism above, theta~ is a function of the data within
    tau/Lambda of it, so it differs by at most 2 tau/Lambda between neighbours. Noise for that, at 1 % of epsilon and delta,
    is added to theta~ (Iyengar et al. 2019), and the mechanism above is run at the other 99 %: adaptive composition.

Norms up to 1 + 1e-9 are accepted and charged. Per record: a person with several rows is not protected by this as one.
"""

import math
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.numeric import gaussian_mu
from agt.relations import RELATIONS
from agt.settings import STRICT, Positive
from agt_cli.papers.baselines.erm import NORM_SLACK, Erm, smoothness, solve
from agt_cli.papers.baselines.released import RECORD, REPLACED, Released, caveat_of

SOLVER_SHARE = 0.01  # of epsilon and delta, for the solver's distance from the minimiser


@validated(frozen=True, config=STRICT)
class PerturbationConfig:
    """Perturbed ERM's settings, all public.

    Attributes:
        method: where the noise goes.
        epsilon, delta: the guarantee; delta = 0: pure epsilon.
        strength: Lambda, against the *sum* of the losses (lambda n for a regulariser lambda against their mean).
        clamp: C, the largest derivative of the loss; 1: the logistic loss itself.
        relation: which datasets are neighbours; objective perturbation takes add_remove alone.
        tolerance: tau, the norm of the gradient that the solver may leave.
        seed: for simulation; None: from the operating system.
    """

    method: Literal["output", "objective"]
    epsilon: Positive
    strength: Positive
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0
    relation: Literal["add_remove", "substitute"] = "add_remove"
    tolerance: Positive = 1e-5
    seed: Annotated[int, Field(ge=0)] | None = None

    def __post_init__(self) -> None:
        if self.method == "objective" and self.relation != "add_remove":
            raise ValueError("objective perturbation is proved for relation=add_remove; use method=output for substitute")


def output_sensitivity(config: PerturbationConfig) -> float:
    """Delta = (C + 2 tau)/Lambda, or (2C + 2 tau)/Lambda when records are replaced."""
    return (RELATIONS[config.relation].touches * config.clamp * (1 + NORM_SLACK) + 2 * config.tolerance) / config.strength


def determinant_loss(config: PerturbationConfig) -> float:
    """c = log(1 + beta/Lambda): what the change of volume costs objective perturbation, in epsilon."""
    return math.log1p(smoothness(config.clamp) * (1 + NORM_SLACK) ** 2 / config.strength)


def tilt_noise(config: PerturbationConfig) -> float:
    """The scale of objective perturbation's b: sigma, or 1/kappa for delta = 0.

    Raises:
        ConfigError: 99 % of epsilon does not exceed the determinant's loss; the least strength is named.
    """
    c, epsilon = determinant_loss(config), (1 - SOLVER_SHARE) * config.epsilon
    if epsilon <= c:
        least = smoothness(config.clamp) / math.expm1(epsilon)
        raise ConfigError(
            f"objective perturbation at epsilon={config.epsilon:g} needs strength above {least:.4g}, "
            f"got {config.strength:g}"
        )
    return _scale(config.clamp * (1 + NORM_SLACK), epsilon - c, (1 - SOLVER_SHARE) * config.delta)


def train_perturbed(
    features: np.ndarray, labels: np.ndarray, config: PerturbationConfig, start: np.ndarray | None = None
) -> Released:
    """Private logistic regression.

    Args:
        features: [n, d], norms at most 1, any bias coordinate included.
        labels: [n], 0 or 1.
        start: [d], where the solver begins; of no account to the guarantee.

    Returns:
        The weights of a linear head, ``0.weight`` [1, d] and ``0.bias`` [1], zero.

    Raises:
        ConfigError: a record longer than 1, other labels, or settings that meet no condition.
        AgtError: the solver missed its tolerance.
    """
    erm = Erm.of(features, labels, config.strength, config.clamp)
    generator = np.random.default_rng(config.seed)
    width = erm.x.shape[1]
    if config.method == "output":
        scale = _scale(output_sensitivity(config), config.epsilon, config.delta)
        theta = solve(erm, config.tolerance, start) + _noise(generator, width, scale, config.delta)
    else:
        tilt = _noise(generator, width, tilt_noise(config), config.delta)
        left = _scale(2 * config.tolerance / config.strength, SOLVER_SHARE * config.epsilon, SOLVER_SHARE * config.delta)
        tilted = Erm(erm.x, erm.y, erm.strength, erm.clamp, tilt)
        theta = solve(tilted, config.tolerance, start) + _noise(generator, width, left, config.delta)
    weights = {"0.weight": torch.from_numpy(theta)[None], "0.bias": torch.zeros(1, dtype=torch.float64)}
    protects = RECORD if config.relation == "add_remove" else REPLACED
    return Released(weights, config.epsilon, config.delta, protects, (caveat_of(config.seed),))


def _scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """The noise for an l2 sensitivity: the Gaussian's standard deviation, or Delta/epsilon for delta = 0."""
    return sensitivity / (gaussian_mu(epsilon, delta) if delta else epsilon)


def _noise(generator: np.random.Generator, width: int, scale: float, delta: float) -> np.ndarray:
    """[width]: N(0, scale^2 I); for delta = 0, density proportional to exp(-|v|/scale): Gamma length, any direction."""
    v = generator.normal(size=width)
    return v * (scale if delta else generator.gamma(width, scale) / np.linalg.norm(v))
