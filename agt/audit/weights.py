"""Audits of released weights, white-box: noise that is added is told apart along the line between two neighbours' own
weights, objective perturbation by the likelihood ratio of their datasets.

Formal guarantees
    A release is theta + N(0, sigma^2 I), rounded to a lattice of at most 2^-24 sigma. Between two neighbours theta, theta'
    no test is better than the projection on theta - theta', which is N(0, 1) against N(mu, 1) in units of sigma, mu =
    |theta - theta'| / sigma: worked out, and more than one part in 10^9 beyond the claim is a violation. The claim is about
    any two neighbours; how close these come to the sensitivity is told beside it. The threshold is the midpoint, fixed by
    the weights and not by draws, so that it costs no confidence. The rest of the noise is not looked at.

    A minimiser theta* has the density phi_sigma(grad F(theta*)) det H(theta*) (mechanisms/objective.py). Between two
    datasets no test is better than one on the logarithm of the ratio of their densities, which ``score`` computes of what
    was released: the noise at the end is so small that it changes little of it. Whatever the score is worth, a bound from
    draws is about the event that it was given, which was chosen on draws of its own (estimates.py).
    Of records along one line the density is that of one number, and both sides' losses are integrated on a grid
    (``line_loss``), without chance: what is more than ``GRID_ERROR``, relative, beyond the claim is a violation.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from scipy.special import expit

from agt.audit.estimates import of_tail
from agt.audit.findings import Finding
from agt.audit.mechanism import AuditedPair, Exact, TrialPlan, attacked, neighbours, segments, tested
from agt.mechanisms.composition import ApproximateDP
from agt.mechanisms.objective import Noises, ObjectivePerturbation, Shape, problem_of, tilted_weights
from agt.mechanisms.weights import ReleaseWeights, noise_scale, release_weights
from agt.models.linear import LinearModel
from agt.numeric import UP, bisect, midpoint
from agt.training.erm import TiltedErm, solve

GRID, GRID_ERROR = 40_001, 1e-4  # points, and more than their sums err by
PULLS = (0, 3, 30)  # records that draw the minimiser to one side, where a newcomer of the other class weighs most
MAX_DETERMINANTS = 64  # coordinates up to which the score has the determinants, too
OnDone = Callable[[int], None]


def ignore(done: int) -> None:
    """Nobody is told how many releases were drawn."""


# -- noise on weights --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heads:
    """Two neighbours' weights.

    Attributes:
        first, second: float64, of one shape; they differ.
        moves: the bound on how far one unit moves them, which the noise is made for.
        where: which datasets, in words.
    """

    first: np.ndarray
    second: np.ndarray
    moves: float
    where: str = "no data: weights as far apart as the sensitivity allows"

    @property
    def apart(self) -> float:
        """|theta - theta'|."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def without_data(cls, width: int) -> "Heads":
        """Weights at the distance that the noise is made for."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def audit_weights(mechanism: ReleaseWeights, heads: Heads, plan: TrialPlan, on_done: OnDone = ignore) -> AuditedPair:
    """The exact mu of this pair, and the one that is shown by releases.

    Args:
        on_done: told how many releases of both sides, ``2 plan.trials``, were drawn.
    """
    sigma, direction = noise_scale(heads.moves, mechanism.guarantee), (heads.first - heads.second) / heads.apart
    middle, subject = (heads.first + heads.second) / 2, f"release_weights with mu={mechanism.mu:g}"

    def draw(theta: np.ndarray, before: int) -> np.ndarray:
        scores = np.empty(plan.trials)
        for trial in range(plan.trials):
            released = release_weights(theta, heads.moves, mechanism.guarantee, plan.source)
            scores[trial] = float(((released.weight - middle) * direction).sum()) / sigma
            on_done(before + trial + 1)
        return scores

    mistakes = of_tail(0.0, above=True).mistakes(draw(heads.first, 0), draw(heads.second, plan.trials))
    how = "released weights, projected on the difference of the two models' own; the threshold is their midpoint"
    effort = f"{plan.trials:,} releases a side of {heads.first.size:,} weights; {heads.where}"
    drawn = tested(subject, mechanism.guarantee, how, effort, plan).findings(mistakes)
    mu, share = heads.apart / sigma, heads.apart / heads.moves
    table = Exact(mu, mu > mechanism.mu * (1 + UP)).finding(
        f"{subject}: its noise beside the two models",
        mechanism.guarantee,
        "the distance of the two models' weights, over the standard deviation of the noise",
        heads.where,
        f"; the two models are {share:.3g} of the sensitivity apart",
        f"a sensitivity of less than {share:.3g} of what it is taken for",
    )
    return AuditedPair(table, drawn)


def neighbouring_heads(
    model: LinearModel, anchors: np.ndarray, count: int, seed: int
) -> Iterator[tuple[LinearModel, Heads]]:
    """(what was trained on a neighbour of a run, both sides' weights), where they differ.

    Args:
        anchors: [n, ...] features, between which newcomers are put.
        count: how many neighbouring datasets are trained.
    """
    a, b = segments(model, anchors, count, np.random.default_rng(seed))
    mine = model.trained.weight.numpy()
    for edit, other in neighbours(model, (a + (b - a) / 2).astype(a.dtype), count):
        other = cast(LinearModel, other)
        where = f"the run's own data, and the same {edit}"
        heads = Heads(mine, other.trained.weight.numpy(), model.moves, where)
        if heads.apart:
            yield other, heads


def farthest(model: LinearModel, anchors: np.ndarray, count: int, seed: int) -> tuple[LinearModel, Heads] | None:
    """Of some neighbours of a run, the one whose weights are farthest from the run's; None: none was found. Arguments as
    of ``neighbouring_heads``."""
    pairs = neighbouring_heads(model, anchors, count, seed)
    return max(pairs, key=lambda pair: pair[1].apart, default=None)


# -- objective perturbation --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problems:
    """Two neighbours' problems.

    Attributes:
        first, second: without tilt.
        shape: their public constants.
        where: which datasets, in words.
    """

    first: TiltedErm
    second: TiltedErm
    shape: Shape
    where: str

    @classmethod
    def line(cls, shape: Shape, pulls: int, rows: int = 1) -> "Problems":
        """Records along one line: some of class 0, and the same with newcomers of class 1."""
        x, y = np.zeros((pulls + rows, shape.width)), np.repeat([0, 1], [pulls, rows])
        x[:, 0] = 1.0
        few, more = (TiltedErm.of(x[:n], y[:n], shape.strength, shape.clamp) for n in (pulls, pulls + rows))
        came = "a record" if rows == 1 else f"{rows} rows of one unit"
        return cls(
            few, more, shape, f"no data of a run: {pulls} records along one line, and {came} of the other class more"
        )

    @classmethod
    def of_run(
        cls, model: LinearModel, mechanism: ObjectivePerturbation, anchors: np.ndarray, count: int, seed: int
    ) -> "Problems | None":
        """Of some neighbours of a run, the problem whose minimiser is farthest from the run's; None: none was found.
        Arguments as of ``neighbouring_heads``."""
        pair = farthest(model, anchors, count, seed)
        if pair is None:
            return None
        (other, heads), shape = pair, Shape.of(model, mechanism.weight_decay)
        return cls(problem_of(model, shape), problem_of(other, shape), shape, heads.where)

    def score(self, theta: np.ndarray, tilt: float) -> float:
        """The logarithm of the second side's density over the first's, but for the determinants of wide problems."""
        before, after = (float(np.sum(side.gradient(theta) ** 2)) for side in (self.first, self.second))
        loss = (before - after) / (2 * tilt**2)
        if len(theta) > MAX_DETERMINANTS:
            return loss
        less, more = (float(np.linalg.slogdet(side.hessian(theta))[1]) for side in (self.first, self.second))
        return loss + more - less


def audit_objective(
    guarantee: ApproximateDP, problems: Problems, noises: Noises, plan: TrialPlan, on_done: OnDone = ignore
) -> tuple[Finding, ...]:
    """What is shown by releases of a pair.

    Args:
        noises: that releases draw.
        on_done: told how many releases of both sides, ``4 plan.trials``, were drawn.
    """
    drawn, records = 0, problems.shape.records

    def draw(side: TiltedErm, count: int) -> np.ndarray:
        nonlocal drawn
        scores, start = np.empty(count), solve(side, noises.tolerance, most=records)
        for trial in range(count):
            theta = tilted_weights(side, noises, max(records, len(side.x)), plan.source, start)
            scores[trial], drawn = problems.score(theta, noises.tilt), drawn + 1
            on_done(drawn)
        return scores

    how = "released weights, by the likelihood ratio of the two datasets"
    claim = tested(words_of(guarantee), guarantee, how, problems.where, plan)
    return attacked((partial(draw, problems.first), partial(draw, problems.second)), claim, plan, None)


def audit_line(guarantee: ApproximateDP, problems: Problems, noises: Noises) -> Finding:
    """What is known without a draw of a pair along one line."""
    how = "both densities of the minimiser along the line, integrated"
    exact = line_loss(guarantee, problems, noises.tilt)
    return exact.finding(f"{words_of(guarantee)}: its table", guarantee, how, problems.where)


def worst_line(shape: Shape, noises: Noises, guarantee: ApproximateDP) -> Problems:
    """Of a few pairs along one line, the one of the greatest loss."""
    lines = (Problems.line(replace(shape, records=shape.records + pulls), pulls) for pulls in PULLS)
    return max(lines, key=lambda problems: line_loss(guarantee, problems, noises.tilt).rank)


def line_loss(guarantee: ApproximateDP, problems: Problems, tilt: float) -> Exact:
    """The least eps, at the claim's delta, of the minimisers of a pair along one line; of both directions the worse."""
    strength, clamp = problems.shape.strength, problems.shape.clamp
    reach = (10 * tilt + len(problems.second.x)) / strength
    grid, sides = np.linspace(-reach, reach, GRID), []
    for side in (problems.first, problems.second):
        p = expit(-np.outer((-1.0, 1.0), grid))
        counts = np.array([(side.y < 0).sum(), (side.y > 0).sum()])
        pull = strength * grid + np.array([1.0, -1.0]) * counts @ np.minimum(p, clamp)
        mass = np.exp(-(pull**2) / (2 * tilt**2)) * (strength + counts @ np.where(p < clamp, p * (1 - p), 0))
        sides.append(mass / mass.sum())

    def exceeds(eps: float) -> bool:
        pairs = (sides, sides[::-1])
        return max(float(np.maximum(one - math.exp(eps) * other, 0).sum()) for one, other in pairs) > guarantee.delta

    value = bisect(exceeds, 0.0, 100.0, midpoint)[0] if exceeds(0.0) else 0.0
    return Exact(value, value > guarantee.eps * (1 + GRID_ERROR))


def words_of(guarantee: ApproximateDP) -> str:
    """The mechanism with its budget."""
    return f"{ObjectivePerturbation.name} with eps={guarantee.eps:.6g}, delta={guarantee.delta:.6g}"
