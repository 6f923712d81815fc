"""What the curvature tube rests on: public bounds on gradients, curvature and rounding (method.md section 9).

Setting. f(x; W) = A s(W x), |x| <= 1 with the bias coordinate inside, s smooth with |s'| <= s1, |s''| <= s2, |s'''| <= s3;
the output weights A [J, m] are public and stay. J = 1: one logit, a loss whose derivative q is clamped to [-C0, C0], h =
1/4. J = C > 1: softmax, q = p - e_y, never clamped, |q| <= C0 = sqrt 2, h = 1/2. In both, q moves by at most h |f - f'|.
With alpha = |A|_2, beta the length of A's longest column, u = A^T q, and sums over a batch's records where the normaliser
stays outside (a step is W' = keep W - s sum_i grad_i, s = lr / B):

| name     | bound                                 | on                                                            |
|----------|---------------------------------------|---------------------------------------------------------------|
| gradient | C0 s1 alpha                           | one record's gradient, Frobenius                              |
| gauss    | h (s1 alpha)^2, times l               | the Gauss-Newton part of the Hessian, which is semidefinite   |
| pull     | C0 beta s2                            | one record's part of R                                        |
| twist    | beta hypot(t, h s1 s2 alpha), times l | how much R moves per unit of W, l = lambda_max(sum x x^T)     |

with t = h s1 s2 beta + C0 s3.

R = sum_i of the part of the Hessian that holds s'': block diagonal, R_j = sum_i u_ij s''(w_j.x_i) x_i x_i^T.

Formal guarantees
    gradient: grad_i = (u_i * s'(W x_i)) x_i^T, |u_i| <= alpha C0, |x_i| <= 1.
    gauss: for a direction V it is sum_i (J_i V)^T psi''_i (J_i V), J_i V = A (s'(W x_i) * V x_i), |J_i V| <= alpha s1
    |V x_i|, psi'' <= h, and sum_i |V x_i|^2 = sum_j v_j^T (sum x x^T) v_j <= l |V|^2.
    pull: |u_ij| <= |A_j| |q_i| <= beta C0.
    twist: u_ij s''(w_j.x_i) moves by beta (h s2 |f_i - f'_i| + C0 s3 |w_j.x_i - w'_j.x_i|) at most. With p the distance of
    w_j from w'_j and q that of the other rows of W, the second is at most p, and |f_i - f'_i| <= s1 (beta p + alpha q),
    unit j's part and the others'. So it moves by beta (t p + h s1 s2 alpha q), at most beta hypot(t, h s1 s2 alpha) times
    hypot(p, q) = |W - W'|; and a sum of e_i x_i x_i^T with |e_i| <= e has a norm of at most e l. (A clamped derivative is
    Lipschitz: along a segment the Hessian's integral holds, its derivative existing almost everywhere.)
    Rounding, with g(n) = n u / (1 - n u), in any order of summation, at a W of norm at most ``reach``:
      - W x errs by g(d) |W|, over all units together; s, s', s'' by s1, s2, s3 times that and ``ERROR`` (1 + |z|) each;
      - logits by alpha times that, and g(m) sqrt J alpha |s|; q by h times that, and 16 J^1.5 u as a linear head's;
      - u by alpha of that, and g(J) sqrt J alpha C0; the gradient's coefficients by the product rule;
      - sums of n records by g(n + 2) of the sum of norms; features known up to ``slack`` by what moving x by that does.
    ``step_rounding`` bounds one step's, ``matrix_rounding`` that of a sum of w_i x_i x_i^T, Frobenius.

Source: method.md section 9.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agt.errors import ConfigError
from agt.numeric import COVER, UNIT, gamma_up
from agt.settings import RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.sensitivity import TINY, LinearLoss, Schedule
from agt.training.spectral import largest_eigenvalue
from agt.tube.activations import ERROR, Activation


@dataclass(frozen=True)
class Curvature:
    """Bounds that hold wherever the weights are: the table above.

    Attributes:
        gradient, pull: of one record.
        gauss, twist: per unit of lambda_max(sum x x^T).
    """

    gradient: float
    gauss: float
    pull: float
    twist: float

    @property
    def whole(self) -> float:
        """Bound on the norm of the whole Hessian, per unit of lambda_max(sum x x^T): gauss, and R <= pull times it."""
        return (self.gauss + self.pull) * COVER


@dataclass(frozen=True)
class Rounding:
    """What computing errs by at a W of norm at most some public number.

    Attributes:
        logit: [J] logits of one record, l2.
        slope: of a_j s'_j of one record, a a row of A, l2 over all units.
        gradient: one record's gradient, Frobenius.
        weight: one record's |u_j s''_j|, any unit.
    """

    logit: float
    slope: float
    gradient: float
    weight: float


@dataclass(frozen=True)
class TubeSetting:
    """The public numbers that decide how far training moves a network.

    Attributes:
        loss: of one logit, or a softmax; its name for what a linear head has.
        activation: s.
        outputs: A, [J, m] float64.
        start: |W_0|, Frobenius, rounded up.
        width: d, coordinates of a record's features, the bias among them.
        training, plan, relation: as for a linear head.
        slack: bound on how far computed features are from a function of the record alone.
    """

    loss: LinearLoss
    activation: Activation
    outputs: np.ndarray
    start: float
    width: int
    training: TrainingConfig
    plan: BatchPlan
    relation: RelationConfig
    slack: float = 0.0

    def __post_init__(self) -> None:
        if self.loss.kind == "one_vs_all":
            raise ConfigError(
                "training.loss=binary_cross_entropy: certificate=tube trains one network, which tells two classes apart by "
                "one logit; for more give training.loss=cross_entropy training.clip=1"
            )

    @property
    def units(self) -> int:
        """m."""
        return self.outputs.shape[1]

    @cached_property
    def alpha(self) -> float:
        """|A|_2, rounded up."""
        gram = self.outputs @ self.outputs.T
        error = gamma_up(self.units) * float(np.square(self.outputs).sum()) * COVER
        return math.sqrt(largest_eigenvalue(gram, error)) * COVER

    @cached_property
    def beta(self) -> float:
        """The longest column of A, rounded up."""
        return float(np.linalg.norm(self.outputs, axis=0).max()) * COVER

    @cached_property
    def curvature(self) -> Curvature:
        """The table above, rounded up."""
        s, loss, alpha, beta = self.activation, self.loss, self.alpha, self.beta
        joint = loss.smoothness * s.slope * s.bend  # moves q s'' by way of the logits
        return Curvature(
            gradient=loss.reach * s.slope * alpha * COVER,
            gauss=loss.smoothness * (s.slope * alpha) ** 2 * COVER,
            pull=loss.reach * beta * s.bend * COVER,
            twist=beta * math.hypot(joint * beta + loss.reach * s.twist, joint * alpha) * COVER,
        )

    def rounding(self, radius: float) -> Rounding:
        """Of one record, at weights of norm at most ``radius``."""
        s, loss, alpha, beta, slack = self.activation, self.loss, self.alpha, self.beta, self.slack
        outputs, root = loss.outputs, math.sqrt(loss.outputs)
        product = gamma_up(self.width + 2) * radius + radius * slack
        library = ERROR * (math.sqrt(self.units) + radius + product)
        value, slope, bend = (bound * product + library for bound in (s.slope, s.bend, s.twist))
        length = s.zero * math.sqrt(self.units) + s.slope * radius
        logit = alpha * value + gamma_up(self.units + 4) * root * alpha * (length + value)
        q = loss.smoothness * logit + 16 * outputs**1.5 * UNIT
        u = alpha * q + gamma_up(outputs + 2) * root * alpha * (loss.reach + q)
        single = beta * q + gamma_up(outputs + 2) * beta * (loss.reach + q)
        coefficient = u * (s.slope + library) + (beta * loss.reach + u) * slope + 4 * UNIT * self.curvature.gradient
        gradient = coefficient + (self.curvature.gradient + coefficient) * slack
        weight = single * (s.bend + library) + (beta * loss.reach + single) * bend + 4 * UNIT * self.curvature.pull
        return Rounding(*(number * COVER + TINY for number in (logit, beta * slope, gradient, weight)))

    def step_rounding(self, at: Schedule, radius: float) -> float:
        """Bound on one step's error, at weights of norm at most ``radius``."""
        n_max, one = self.plan.n_max, self.rounding(radius)
        summed = n_max * (one.gradient + gamma_up(n_max + 2) * (self.curvature.gradient + one.gradient))
        moved = at.keep * radius + at.step * n_max * (self.curvature.gradient + one.gradient)
        return (at.step * summed + 4 * UNIT * moved) * COVER + TINY

    def matrix_rounding(self, heaviest: float, error: float) -> float:
        """Bound on the error of sum_i w_i x_i x_i^T over up to n_max records, Frobenius.

        Args:
            heaviest: bound on |w_i|.
            error: bound on what the weights w_i err by.
        """
        n_max, most = self.plan.n_max, heaviest + error
        return n_max * (error + most * (2 * self.slack + self.slack**2) + gamma_up(n_max + 8) * most) * COVER + TINY


@dataclass(frozen=True)
class Public:
    """The public constants of one step.

    Attributes:
        at: keep and s.
        radius: bound on |W| before the step.
        tau: bound on the step's rounding, the recursion's own included (radius.py).
    """

    at: Schedule
    radius: float
    tau: float


def schedule(setting: TubeSetting) -> tuple[list[Public], float]:
    """Each step's public constants, and a bound on |W| after the last and on the way."""
    steps, radius, farthest = [], setting.start, setting.start
    for step in range(setting.plan.steps):
        at = Schedule.at(setting.training, setting.plan, step)
        tau = setting.step_rounding(at, radius)
        steps.append((at, radius, tau))
        radius = (abs(at.keep) * radius + at.step * setting.plan.n_max * setting.curvature.gradient + tau) * (1 + 8 * UNIT)
        farthest = max(farthest, radius)
    if not math.isfinite(farthest * farthest):  # whatever is computed of W x is finite, too
        raise ConfigError(
            f"training.lr={setting.training.lr:g}: the weights are bounded by nothing that is finite: lower it"
        )
    spent = 2.0**-45 * 2 * farthest  # what the recursion's own roundings may lose: radius.py
    return [Public(at, radius, (tau + spent) * COVER) for at, radius, tau in steps], farthest
