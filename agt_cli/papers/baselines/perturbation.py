"""Private logistic regression by output and by objective perturbation (Chaudhuri et al. 2011; Kifer et al. 2012; 002).

Both concern F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2)|theta|^2 with |x_i| <= 1 and a logistic loss whose derivative is
clamped to [-C, 0] (``erm``), Lambda and C public. The neighbours are D and D + z, z one record; written as a sum, F needs
no public number of records. theta* is the minimiser, theta~ what the solver returns: |grad F(theta~)| <= tau is verified,
so |theta~ - theta*| <= tau/Lambda, F being Lambda-strongly convex. A solver that misses tau raises: nothing is released.

Formal guarantees
    Output perturbation. theta~ + noise. At theta*(D + z) the gradient of F_D has norm |grad l_z| <= C, and
    strong convexity gives |theta*(D + z) - theta*(D)| <= C/Lambda. So theta~ moves by at most Delta = (C + 2 tau)/Lambda.
    Noise: N(0, (Delta/mu)^2 I), mu = mu(epsilon, delta) exact.

    Objective perturbation. theta* minimises F(theta) + b.theta for b ~ N(0, sigma^2 I). Conditions: delta > 0;
    epsilon > c := log(1 + beta/Lambda), beta the largest l''; one record added or removed.
    Proof. b = B_D(theta) := -grad F_D(theta) maps theta to b one to one, Lipschitz both ways, with |det| = det H_D, so
    theta* has density phi_sigma(B_D(theta)) det H_D(theta). For D' = D + z, grad l_z = s x with |s| <= C and s of *one
    sign* (l is decreasing: s = -y |s|), and l''_z x x^T adds rank one: det H_D'/det H_D = 1 + l'' x^T H_D^-1 x, in
    [1, 1 + beta/Lambda]. Let a = |s| |x|/sigma in [0, m], m = C/sigma, and u = +-B.x/(sigma|x|), standard normal under the
    dataset that theta* came from. Then ln p_D'/p_D <= c + a^2/2 + a u under D', and ln p_D/p_D' <= a^2/2 + a u under D.
    Both are convex in a: at most c + max(0, m^2/2 + m u), however a depends on theta. For epsilon >= c,
    delta(epsilon) = E[(1 - e^(epsilon - loss))_+] is thus at most that of a Gaussian mechanism with mu = m at epsilon - c,
    and sigma = C/mu(epsilon - c, delta) suffices. (Without the sign, delta doubles, as in Redberg, Koskela and Wang 2023;
    Kifer et al. take sigma^2 = C^2 (8 ln(2/delta) + 4 epsilon)/epsilon^2, far more.)
    theta~ in place of theta*. Given theta*, whose release is the mechanism above, theta~ is a function of the data within
    tau/Lambda of it, so it differs by at most 2 tau/Lambda between neighbours. Noise for that, at 1 % of epsilon and delta,
    is added to theta~ (Iyengar et al. 2019), and the mechanism above is run at the other 99 %: adaptive composition.

Norms up to 1 + 1e-9 are accepted and charged. Per record: a person with several rows is not protected by this as one.
"""

import math
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.errors import ConfigError
from agt.numeric import gaussian_mu
from agt.settings import STRICT, Positive
from agt_cli.papers.baselines.erm import NORM_SLACK, Erm, smoothness, solve
from agt_cli.papers.baselines.released import RECORD, Bench, Weights

SOLVER_SHARE = 0.01  # of epsilon and delta, for the solver's distance from the minimiser


@validated(frozen=True, config=STRICT)
class Perturbation:
    """Perturbed ERM on a linear head without bias.

    Attributes:
        method: where the noise goes.
        strength: Lambda, against the *sum* of the losses (lambda n for a regulariser lambda against their mean).
        clamp: C, the largest derivative of the loss; 1: the logistic loss itself.
        tolerance: tau, the norm of the gradient that the solver may leave.
    """

    method: Literal["output", "objective"]
    strength: Positive
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0
    tolerance: Positive = 1e-5
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = "two classes, and features of norm at most 1 by public means"

    @property
    def sensitivity(self) -> float:
        """Delta = (C + 2 tau)/Lambda: how far one record moves what output perturbation adds its noise to."""
        return (self.clamp * (1 + NORM_SLACK) + 2 * self.tolerance) / self.strength

    @property
    def determinant_loss(self) -> float:
        """c = log(1 + beta/Lambda): what the change of volume costs objective perturbation, in epsilon."""
        return math.log1p(smoothness(self.clamp) * (1 + NORM_SLACK) ** 2 / self.strength)

    def tilt_noise(self, eps: float, delta: float) -> float:
        """sigma of objective perturbation's b.

        Raises:
            ConfigError: 99 % of epsilon does not exceed the determinant's loss; the least strength is named.
        """
        spent = (1 - SOLVER_SHARE) * eps
        if spent <= self.determinant_loss:
            least = smoothness(self.clamp) / math.expm1(spent)
            raise ConfigError(
                f"objective perturbation at epsilon={eps:g} needs strength above {least:.4g}, got {self.strength:g}"
            )
        mu = gaussian_mu(spent - self.determinant_loss, (1 - SOLVER_SHARE) * delta)
        return self.clamp * (1 + NORM_SLACK) / mu

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline.fit``, for two classes, labelled 0 and 1, and [n, d] records of norm at most 1, any bias
        coordinate included.

        Raises:
            AgtError: the solver missed its tolerance; nothing is released.
        """
        erm = Erm.of(bench.records.features, bench.records.labels, self.strength, self.clamp)
        draws, shape = np.random.default_rng(seed), erm.x.shape[1:]
        scale = self.sensitivity / gaussian_mu(eps, delta)
        if self.method == "objective":
            tilt = draws.normal(size=shape) * self.tilt_noise(eps, delta)
            erm = replace(erm, tilt=tilt)
            scale = 2 * self.tolerance / self.strength / gaussian_mu(SOLVER_SHARE * eps, SOLVER_SHARE * delta)
        theta = torch.from_numpy(solve(erm, self.tolerance) + draws.normal(size=shape) * scale)[None]
        one_output = bench.training.loss == "binary_cross_entropy"
        return {"0.weight": theta if one_output else torch.cat([-theta / 2, theta / 2])}
