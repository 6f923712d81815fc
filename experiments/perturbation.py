"""Private logistic regression by output and by objective perturbation.

Sources: Chaudhuri et al. 2011; Kifer et al. 2012; 002.

Both concern F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2)|theta|^2 with |x_i| <= 1 and a logistic
loss whose derivative is clamped to [-C, 0] (``erm``), Lambda and C public. The neighbours are D and
D + z, z one record; written as a sum, F needs no public number of records. theta* is the minimiser,
theta~ what the solver returns: |grad F(theta~)| <= tau is verified, so |theta~ - theta*| <=
tau/Lambda, F being Lambda-strongly convex. A solver that misses tau raises: nothing is released.

Formal guarantees
    Output perturbation. theta~ + noise. At theta*(D + z) the gradient of F_D has norm |grad l_z| <=
    C, and strong convexity gives |theta*(D + z) - theta*(D)| <= C/Lambda. So theta~ moves by at
    most Delta = (C + 2 tau)/Lambda.
    Noise: N(0, (Delta/mu)^2 I), mu = mu(epsilon, delta) exact.

    Objective perturbation. theta~ solves F(theta) + b.theta with a random b, and has a little noise
    of its own: the mechanism that agt releases weights by, and its proof
    (agt.mechanisms.objective).

Norms up to 1 + 1e-9 are accepted and charged. Per record: a person with several rows is not
protected by this as one.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.objective import ProblemConstants, release_objective
from agt.numeric import SeededRandomness, gaussian_mu
from agt.settings import Positive, schema
from agt.training.erm_with_linear_term import NORM_SLACK, ErmWithLinearTerm, solve

from .bench import RECORD, Bench, Weights


@schema
class Perturbation:
    """Perturbed ERM on a linear head without bias.

    Attributes:
        method: where the noise goes.
        strength: Lambda, against the *sum* of the losses (lambda n for a regulariser lambda against
            their mean).
        clamp: C, the largest derivative of the loss; 1: the logistic loss itself.
        tolerance: tau, the norm of the gradient that the solver may leave.
    """

    method: Literal["output", "objective"]
    strength: Positive
    clamp: Annotated[float, Field(gt=0, le=1)] = 1.0
    tolerance: Positive = 1e-5
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = "two classes only, and features with a public bound of 1 on their norm"

    @property
    def sensitivity(self) -> float:
        """Delta = (C + 2 tau)/Lambda: how far one record moves what output perturbation adds its
        noise to.
        """
        return (self.clamp * (1 + NORM_SLACK) + 2 * self.tolerance) / self.strength

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline`` says, for two classes, labelled 0 and 1, and [n, d] records of norm at
        most 1, any bias coordinate included.

        Raises:
            AgtError: the solver missed its tolerance; nothing is released.
        """
        erm = ErmWithLinearTerm.from_labels(
            bench.records.features, bench.records.labels, self.strength, self.clamp
        )
        count, width = erm.x.shape
        if self.method == "objective":
            shape = ProblemConstants(self.strength, self.clamp, count, width)
            source = SeededRandomness(seed)
            weight = release_objective(erm, shape, ApproximateDP(eps, delta), source).weight
        else:
            standard = np.random.default_rng(seed).normal(size=(1, width))
            noise = standard * self.sensitivity / gaussian_mu(eps, delta)
            weight = solve(erm, self.tolerance) + noise
        theta = torch.from_numpy(weight)
        if bench.training.loss != "binary_cross_entropy":  # two outputs
            theta = torch.cat([-theta / 2, theta / 2])
        return {"0.weight": theta}
