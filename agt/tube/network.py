"""The network of a tube: public output weights, public first weights, and sums of gradients over records.

Formal guarantees
    See ``TubeRounding``: what is computed here is within ``TubeRounding`` of the exact, whatever order the sums take.

Smooth activations: the function, its first two derivatives, and bounds on the first three.

| name     | s                     | |s'|   | |s''|            | |s'''|                |
|----------|-----------------------|--------|------------------|-----------------------|
| tanh     | tanh z                | 1      | 4 / (3 sqrt 3)   | 2                     |
| softplus | log(1 + e^z)          | 1      | 1/4              | 1 / (6 sqrt 3)        |
| gelu     | z Phi(z)              | 1.1290 | sqrt(2 / pi)     | .7788                 |

Where they are attained: tanh'' = -2 t (1 - t^2) at t = 1/sqrt 3, tanh''' = -2 (1 - t^2)(1 - 3 t^2) at 0; softplus' is the
logistic function p, p' = p (1 - p) at 0, p'' = p (1 - p)(1 - 2 p) at p = (1 -+ 1/sqrt 3)/2; gelu' = Phi + z phi at sqrt 2,
gelu'' = (2 - z^2) phi at 0, gelu''' = z (z^2 - 4) phi where z^4 - 7 z^2 + 4 = 0, at z^2 = (7 - sqrt 33)/2.

Source: method.md section 9; the bounds here are rounded up.

What the curvature tube rests on: public bounds on gradients, curvature and rounding (method.md section 9).

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

What the recipe settles for a tube, from public constants alone: the largest rate that cannot swing, and when to stop.

The loss's Hessian is at most ``whole`` lambda_max (below), and lambda_max at most n_max / B: with a rate of 2 / (whole
n_max / B) no step grows on its way down, whatever the records. Beyond that nothing is proved of the rate, and nothing needs
to be: the recursion charges what a rate does (radius.py).

A run ends for two reasons, whichever comes first. As a linear head's, whose recipe this is as long as hidden weights stay
near where they began: logits move (s1 alpha)^2 times as fast as its, so the rates add up to that much less than B / Lambda
(training/linear.py). And R, at most ``pull`` lambda_max, lets two networks drift apart by a factor of exp(rates that add
up to 1 / ``pull``), and with it every radius: the rates add up to ``SWAY`` / ``pull`` at most.

``SWAY`` was set with an eye to scikit-learn's breast cancer, digits and moons and two synthetic sets, at widths 256 and
1,024 and all three activations: no choice for your data. Compare values of ``training.caution``, by which both are divided,
on public rows. Batches: one, since a batch is curved more, and less is known of which holds a record (radius.py).

How curved the loss is at the weights reached: eigenvalues of -R and of sum x x^T, from above and by little (section 9).

A step drives two runs apart where the Hessian is negative, and of its two parts only R can be: what counts is dip(R) =
max(0, lambda_max(-R)), at most |R|. What a radius takes must move from neighbour to neighbour as dip(R) does, so an upper
bound alone is not enough: it lies within a PUBLIC slack of a quantity that one record moves by pull, and W by twist.

Formal guarantees
    exact: dip(R) = max_j dip(R_j), R being block diagonal; an eigenvalue moves by no more than the norm of what is added,
    and so does its maximum with others and with 0. cheap: M = sum_i max_j max(0, -u_ij s''_ij) x_i x_i^T. Each -R_j <= M as
    quadratic forms, so dip(R) <= lambda_max(M). One record moves M by a matrix of norm pull; W moves it by twist, since
    each weight moves so (``TubeSetting``) and a maximum of numbers that move by e moves by e.
    Rounding. What is computed errs by ``TubeSetting.matrix_rounding`` in norm, call it e, and ``eigenvalue_within`` adds
    between 0 and gap: so value + e lies in [true, true + 2 e + gap]. (The sum is rounded up; gap holds room for that.) The
    slack 2 e + gap is public: n_max, widths and a public bound on |W| decide it.

Source: method.md section 9.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.distributed import group, spans
from agt.errors import ConfigError
from agt.numeric import COVER, UNIT, gamma_up, next_up
from agt.settings import RelationConfig, TrainingConfig, TubeConfig
from agt.training.batches import BatchPlan
from agt.training.erm import fill, square
from agt.training.linear import (
    BLOCK,
    TINY,
    LinearLoss,
    Schedule,
    blocks_of,
    derivative,
    eigenvalue_gap,
    eigenvalue_within,
    largest_eigenvalue,
    rates,
    strength,
    with_numbers,
)

_ROOT = 1 / math.sqrt(2 * math.pi)
_ACTIVATION_UP = 1 + 2.0**-40  # more than the roundings of the expressions below


@dataclass(frozen=True)
class SmoothActivation:
    """A smooth function with bounded derivatives.

    Formal guarantees
        What ``at`` computes is within ``ERROR`` (1 + |z|) of each of s, s', s'': libraries' exponentials, tanh and erfc are
        within a few units in the last place, and what follows is less than a dozen roundings of numbers of size 1 + |z|.

    Attributes:
        slope, bend, twist: s1, s2, s3: bounds on |s'|, |s''|, |s'''|.
        zero: |s(0)|, rounded up.
        at: [...] -> (s, s', s''), float64.
    """

    slope: float
    bend: float
    twist: float
    zero: float
    at: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


ERROR = 2.0**-48  # 32 u


def _tanh(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t = torch.tanh(z)
    slope = 1 - t * t
    return t, slope, t * slope * -2


def _softplus(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    p = torch.sigmoid(z)
    value = torch.clamp(z, min=0) + torch.log1p(torch.exp(-torch.abs(z)))
    return value, p, p * (1 - p)


def _gelu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    below, density = torch.special.erfc(z * -math.sqrt(0.5)) / 2, torch.exp(z * z / -2) * _ROOT
    return z * below, below + z * density, (2 - z * z) * density


SMOOTH: dict[str, SmoothActivation] = {
    "tanh": SmoothActivation(1.0, 4 / (3 * math.sqrt(3)) * _ACTIVATION_UP, 2.0, 0.0, _tanh),
    "softplus": SmoothActivation(
        1.0, 0.25, 1 / (6 * math.sqrt(3)) * _ACTIVATION_UP, math.log(2) * _ACTIVATION_UP, _softplus
    ),
    "gelu": SmoothActivation(1.128904146, 2 * _ROOT * _ACTIVATION_UP, 0.77877, 0.0, _gelu),
}
"""The activations that a tube is proved for, by the name that ``model.activation`` has."""


_ROWS = 512  # records at once, so that what one layer makes of them stays in the cache


@dataclass(frozen=True)
class CurvaturePart:
    """A block of records, as the network sees them at some weights.

    Attributes:
        x: [b, d] features.
        pull: [b, m] u = A^T q.
        slope, bend: [b, m] s'(W x), s''(W x).
    """

    x: Tensor
    pull: Tensor
    slope: Tensor
    bend: Tensor


@dataclass(frozen=True)
class TubeNetwork:
    """f(x; W) = A s(W x).

    Attributes:
        loss: of one logit, or a softmax.
        activation: s.
        outputs: A, [J, m] float64.
    """

    loss: LinearLoss
    activation: SmoothActivation
    outputs: Tensor

    @classmethod
    def of(cls, loss: LinearLoss, activation: SmoothActivation, units: int, length: float, seed: int) -> "TubeNetwork":
        """With output weights of random signs from a public seed; those of the second half are the first's, turned.

        Args:
            units: m, even.
            length: of the output weights of one logit.

        Raises:
            ConfigError: two classes have the same output weights, which nothing can tell apart then.
        """
        signs = np.random.default_rng((seed, 1)).integers(0, 2, (loss.outputs, units // 2)) * 2.0 - 1
        if len(np.unique(signs, axis=0)) < loss.outputs:
            raise ConfigError(
                f"model.hidden=[{units}]: two classes get the same output weights from training.seed={seed}: nothing could "
                "tell them apart: give more units, or another seed"
            )
        half = torch.from_numpy(signs * (length / units**0.5))
        return cls(loss, activation, torch.cat([half, -half], dim=1))

    def initial(self, width: int, spread: float, seed: int) -> Tensor:
        """[m, d] W_0 from a public seed: unit j and unit j + m/2 alike, so that every logit begins at 0.

        Args:
            spread: standard deviation of each weight, so of W x for a record of length 1.
        """
        half = torch.from_numpy(np.random.default_rng((seed, 0)).standard_normal((self.outputs.shape[1] // 2, width)))
        return torch.cat([half, half]) * spread

    def logits(self, weight: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """([n, J] f, [n, m] s'(W x)) of features [n, d], float64."""
        value, slope, _ = self.activation.at(x @ weight.T)
        return value @ self.outputs.T, slope

    def gradient_sum(self, weight: Tensor, records: Records, rows: np.ndarray) -> Tensor:
        """[m, d] the sum over the records at ``rows``, and nothing of how curved the loss is there."""
        return self.summed(weight, records, rows, lambda part: ((part.pull * part.slope).T @ part.x,), (weight.shape,))[0]

    def summed(
        self,
        weight: Tensor,
        records: Records,
        rows: np.ndarray,
        of: Callable[[CurvaturePart], tuple[Tensor, ...]],
        shapes: tuple[tuple[int, ...], ...],
    ) -> tuple[Tensor, ...]:
        """The sums of ``of``, float64 of these shapes, over blocks of the records at ``rows``, each one process's."""

        def part(span: slice) -> tuple[Tensor, ...]:
            totals = tuple(torch.zeros(shape, dtype=torch.float64) for shape in shapes)
            for block in self.parts(weight, records, rows[span]):
                for total, each in zip(totals, of(block), strict=True):
                    total += each
            return totals

        return group().summed(spans(len(rows), _ROWS), part)

    def parts(self, weight: Tensor, records: Records, rows: np.ndarray) -> Iterator[CurvaturePart]:
        """The records at ``rows``, a few at a time."""
        for x, labels in blocks_of(records, rows, _ROWS):
            value, slope, bend = self.activation.at(x @ weight.T)
            q = derivative(self.loss, value @ self.outputs.T, labels)
            yield CurvaturePart(x, q @ self.outputs, slope, bend)


VANISHED = 1e-150  # more than any number whose square underflows


def start_norm(weight: Tensor) -> float:
    """|W|, Frobenius, rounded up; squares that vanish are covered by what is added for each weight."""
    return float(torch.linalg.vector_norm(weight)) * (1 + 2 * (weight.numel() + 4) * UNIT) + weight.numel() * VANISHED


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
class TubeRounding:
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
    activation: SmoothActivation
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

    def rounding(self, radius: float) -> TubeRounding:
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
        return TubeRounding(*(number * COVER + TINY for number in (logit, beta * slope, gradient, weight)))

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


SWAY = 2.5


def settled(
    training: TrainingConfig, certificate: TubeConfig, activation: SmoothActivation, units: int, classes: int, size: float
) -> TrainingConfig:
    """The settings with numbers for what they leave to the recipe; the same settings where they leave nothing.

    Args:
        activation, units: of the hidden layer.
        classes: how many there are.
        size: B: the records declared, or one member's share of them.
    """
    if not training.by_recipe:
        return training
    loss = LinearLoss.of(training, classes)
    alpha = certificate.length * (1 + math.sqrt(2 * (loss.outputs - 1) / units))  # |A|_2 of random signs, about
    pull = loss.reach * certificate.length * math.sqrt(loss.outputs / units) * activation.bend
    whole = loss.smoothness * (activation.slope * alpha) ** 2 + pull
    count = 1 if "batch.count" in training.by_recipe else training.batch.count
    size, speed = max(size, 1.0), (activation.slope * alpha) ** 2
    way = min(SWAY / (pull * training.caution), size / (strength(size, 2, training.caution) * speed))
    return with_numbers(training, rates(training, whole, way, size, count))


_UNITS = 16  # blocks R_j at once


@dataclass(frozen=True)
class EigenvalueBound:
    """An upper bound of an eigenvalue, and how far above it can lie: a public number."""

    value: float
    slack: float


@dataclass(frozen=True)
class Meter:
    """Bounds eigenvalues for one setting.

    Attributes:
        setting: the public numbers.
        network: whose R it is.
    """

    setting: TubeSetting
    network: TubeNetwork

    def gram(self, records: Records, rows: np.ndarray) -> EigenvalueBound:
        """lambda_max(sum x x^T) over the records at ``rows``."""

        def part(span: slice) -> tuple[Tensor]:
            total = torch.zeros((self.setting.width,) * 2, dtype=torch.float64)
            for x, _ in blocks_of(records, rows[span]):
                total += torch.from_numpy(square(x.numpy()))
            return (total,)

        return self._top([group().summed(spans(len(rows), BLOCK), part)[0].numpy()], 1.0, 0.0)

    def share(self, part: CurvaturePart) -> Tensor:
        """[d, d] a block's part of M, in its lower triangle."""
        weights = (part.pull * part.bend).neg_().amax(dim=1).clamp_(min=0)
        return torch.from_numpy(square((part.x * weights.sqrt_()[:, None]).numpy()))

    def cheap(self, total: np.ndarray, radius: float) -> EigenvalueBound:
        """Of dip(R): lambda_max(M).

        Args:
            total: M, the sum of every block's ``share``.
            radius: public bound on |W|.
        """
        return self._top([total], self.setting.curvature.pull, self.setting.rounding(radius).weight)

    def exact(
        self, weight: Tensor, records: Records, rows: np.ndarray, radius: float, units: range | None = None
    ) -> EigenvalueBound:
        """Of dip(R), block by block: m eigenvalue problems, and m n d^2 operations.

        Args:
            units: over these alone; None: all.
        """
        pull, error = self.setting.curvature.pull, self.setting.rounding(radius).weight
        some = units or range(self.setting.units)

        def work(part: slice) -> EigenvalueBound:
            return self._top([*-self._blocks(weight, records, rows, some[part.start])], pull, error)

        return max(group().shared(len(some), _UNITS, work), key=lambda bound: bound.value)

    def _blocks(self, weight: Tensor, records: Records, rows: np.ndarray, first: int) -> np.ndarray:
        """[up to _UNITS, d, d] R_j of the units from ``first`` on."""
        units, total = slice(first, first + _UNITS), None
        for part in self.network.parts(weight, records, rows):
            weights = (part.pull[:, units] * part.bend[:, units]).T
            blocks = (part.x.T[None] * weights[:, None]) @ part.x
            total = blocks if total is None else total + blocks
        if total is None:
            return np.zeros((1, self.setting.width, self.setting.width))
        return total.numpy()

    def _top(self, matrices: "list[np.ndarray]", heaviest: float, error: float) -> EigenvalueBound:
        width, away = self.setting.width, self.setting.matrix_rounding(heaviest, error)
        gap = eigenvalue_gap(width, self.setting.plan.n_max * (heaviest + error))
        for matrix in matrices:
            fill(matrix)
        top = max(eigenvalue_within(matrix, gap) for matrix in matrices)
        return EigenvalueBound(next_up(max(top, 0.0) + away), 2 * away + gap)
