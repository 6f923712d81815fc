"""Audits of objective perturbation: releases for two neighbours' records, told apart by their likelihood ratio (white box).

Formal guarantees
    A minimiser theta* has the density phi_sigma(grad F(theta*)) det H(theta*) (mechanisms/objective.py). Between two
    datasets no test is better than one on the logarithm of the ratio of their densities, which ``score`` computes of what
    was released: the noise at the end is so small that it changes little of it. Whatever the score is worth, a bound from
    draws is about the event that it was given, which was chosen on draws of its own (events.py).
    Of records along one line the density is that of one number, and both sides' losses are integrated on a grid
    (``line_loss``), without chance: what is more than ``GRID_ERROR``, relative, beyond the claim is a violation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from agt.audit.findings import Finding
from agt.audit.mechanism import Exact, Plan, Target, attacked, certain
from agt.audit.weights import neighbouring_heads
from agt.mechanisms.guarantee import ApproximateDP
from agt.mechanisms.objective import Noises, ObjectivePerturbation, Shape, problem_of, tilted_weights
from agt.models.linear import LinearModel
from agt.numeric import bisect, midpoint
from agt.training.tilted import TiltedErm, solve

GRID, GRID_ERROR = 40_001, 1e-4  # points, and more than their sums err by
PULLS = (0, 3, 30)  # records that draw the minimiser to one side, where a newcomer of the other class weighs most
WIDE = 64  # coordinates up to which the score has the determinants, too
STRENGTH = 10.0  # Lambda of an audit without a run, unless mechanism.weight_decay says otherwise


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

    def score(self, theta: np.ndarray, tilt: float) -> float:
        """The logarithm of the second side's density over the first's, but for the determinants of wide problems."""
        before, after = (float(np.sum(side.gradient(theta) ** 2)) for side in (self.first, self.second))
        lost = (before - after) / (2 * tilt**2)
        if len(theta) > WIDE:
            return lost
        less, more = (float(np.linalg.slogdet(side.hessian(theta))[1]) for side in (self.first, self.second))
        return lost + more - less


def audit_objective(
    guarantee: ApproximateDP,
    problems: Problems,
    noises: Noises,
    plan: Plan,
    on_done: Callable[[int], None] = lambda done: None,
) -> tuple[Finding, ...]:
    """What is shown by releases of a pair.

    Args:
        noises: that releases draw.
        on_done: told how many releases of both sides, ``4 plan.trials``, were drawn.
    """
    drawn = 0
    sides = problems.first, problems.second
    starts = [solve(side, noises.tolerance, most=problems.shape.records) for side in sides]

    def draws(place: int) -> Callable[[int], np.ndarray]:
        def scores(count: int) -> np.ndarray:
            nonlocal drawn
            found = np.empty(count)
            for trial in range(count):
                most = max(problems.shape.records, len(sides[place].x))
                theta = tilted_weights(sides[place], noises, most, plan.source, starts[place])
                found[trial], drawn = problems.score(theta, noises.tilt), drawn + 1
                on_done(drawn)
            return found

        return scores

    how = "released weights, by the likelihood ratio of the two datasets"
    return attacked((draws(0), draws(1)), Target(subject_of(guarantee), guarantee, how, problems.where, None), plan)


def audit_line(guarantee: ApproximateDP, problems: Problems, noises: Noises) -> Finding:
    """What is known without a draw of a pair along one line."""
    exact = line_loss(guarantee, problems, noises.tilt)
    how = "both densities of the minimiser along the line, integrated"
    return certain(subject_of(guarantee), guarantee, exact, how, problems.where)


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


def subject_of(guarantee: ApproximateDP) -> str:
    """The mechanism in words."""
    return f"{ObjectivePerturbation.name} with eps={guarantee.eps:.6g}, delta={guarantee.delta:.6g}"


def neighbouring_problems(
    model: LinearModel, mechanism: ObjectivePerturbation, anchors: np.ndarray, count: int, seed: int
) -> Problems | None:
    """Of some neighbours of a run, the problem whose minimiser is farthest from the run's; None: none was found.

    Args:
        anchors, count, seed: as in ``agt.audit.weights.farthest``.
    """
    pairs = list(neighbouring_heads(model, anchors, count, seed))
    if not pairs:
        return None
    other, heads = max(pairs, key=lambda pair: pair[1].apart)
    shape = Shape.of(model, mechanism.weight_decay)
    return Problems(problem_of(model, shape), problem_of(other, shape), shape, heads.where)
