"""Attacks on objective perturbation, whose training problem has a random linear term.

Formal guarantees
    * A minimiser theta* has the density phi_sigma(grad F(theta*)) det H(theta*)
      (agt/mechanisms/objective.py), so no test is better than the ratio of two such densities
      (``ProblemPair.score``). A bound from draws is valid for any score.
    * If all records lie on one line, the density is that of one number, and the loss is integrated
      on a grid (``line_loss``): more than ``GRID_ERROR`` (relative) above the claim is a violation.
    * The linear term is minus the gradient at the minimiser, so the size of its noise is tested as
      that of added noise (``noise_size``).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.objective import (
    ObjectiveNoises,
    ObjectivePerturbation,
    ProblemConstants,
    draw_perturbed_minimiser,
)
from agt.numeric import Randomness, bisect, midpoint
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve
from agt_audit.added_noise import noise_size
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws, subject_of
from agt_cli.report.findings import Finding

GRID_POINTS = 40_001
GRID_ERROR = 1e-4  # relative; above the error of sums over the grid
# numbers of records of one class that are tried: with more of them, an added record of the other
# class is labelled more wrongly, so its gradient is larger
LINE_RECORDS = (0, 3, 30)
MAX_DETERMINANTS = 64  # coordinates up to which a score includes the determinants


@dataclass(frozen=True)
class ProblemPair:
    """The training problems of two neighbouring datasets, for objective perturbation.

    Attributes:
        first: the problem on one dataset, without the linear term.
        second: the problem on the other, without the linear term.
        shape: the public constants of both.
        datasets_note: a sentence that says which datasets these are.
    """

    first: ErmWithLinearTerm
    second: ErmWithLinearTerm
    shape: ProblemConstants
    datasets_note: str

    @classmethod
    def on_line(cls, shape: ProblemConstants, records: int, rows: int = 1) -> "ProblemPair":
        """Return a synthetic problem with equal records, and the same with a unit added.

        All records have 1 as their first feature, and 0 as all others, so they lie on one line.

        Args:
            shape: the public constants.
            records: how many records of class 0 both sides have.
            rows: how many records of class 1, which are one unit, only the second side has.
        """
        features = np.zeros((records + rows, shape.width))
        features[:, 0] = 1.0
        labels = np.repeat([0, 1], [records, rows])
        without_unit = ErmWithLinearTerm.from_labels(
            features[:records], labels[:records], shape.strength, shape.clamp
        )
        with_unit = ErmWithLinearTerm.from_labels(features, labels, shape.strength, shape.clamp)
        added = "one more record" if rows == 1 else f"{rows} rows of one unit (person)"
        datasets_note = (
            f"no run and no data were used: the audit compares a made-up dataset of {records} "
            "records of one class (all with the same features) with the same dataset plus "
            f"{added} of another class"
        )
        return cls(without_unit, with_unit, shape, datasets_note)

    def score(self, theta: np.ndarray, tilt: float) -> float:
        """Return the log-likelihood ratio of a released minimiser, of the second side to the first.

        With more than ``MAX_DETERMINANTS`` coordinates, the determinants are left out.

        Args:
            theta: the minimiser.
            tilt: the standard deviation of the linear term.
        """
        first_square = float(np.sum(self.first.gradient(theta) ** 2))
        second_square = float(np.sum(self.second.gradient(theta) ** 2))
        log_ratio = (first_square - second_square) / (2 * tilt**2)
        if len(theta) > MAX_DETERMINANTS:
            return log_ratio
        first_log_det = float(np.linalg.slogdet(self.first.hessian(theta)).logabsdet)
        second_log_det = float(np.linalg.slogdet(self.second.hessian(theta)).logabsdet)
        return log_ratio + second_log_det - first_log_det


class ObjectiveFindings(NamedTuple):
    """The findings about releases by objective perturbation on two datasets.

    Attributes:
        drawn: of an attack on the releases.
        noise_size: about the size of their linear terms.
    """

    drawn: Finding
    noise_size: Finding


def audit_objective(
    guarantee: ApproximateDP,
    problems: ProblemPair,
    noises: ObjectiveNoises,
    plan: TrialPlan,
) -> ObjectiveFindings:
    """Audit releases by objective perturbation on two datasets.

    Args:
        guarantee: the claimed guarantee.
        problems: the problems of both sides.
        noises: the noise scales of the releases.
        plan: how many releases to draw of each side, and how.
    """
    plan = plan.shared_among(2)  # the bound from draws, and the size of the noise
    squares: list[float] = []  # of all linear terms, in claimed standard deviations

    def draw_scores(side: ErmWithLinearTerm, count: int) -> np.ndarray:
        """Release ``count`` times from one side, return the scores, and extend ``squares``."""
        thetas = _draw_minimisers(side, problems.shape.records, noises, plan.source, count)
        linear_terms = [side.gradient(theta) for theta in thetas]  # up to the sign
        squares.extend(float(np.sum(term**2)) / noises.tilt**2 for term in linear_terms)
        return np.array([problems.score(theta, noises.tilt) for theta in thetas])

    attack = (
        "an attacker distinguishes the two datasets by the likelihood ratio of the released weights"
    )
    subject = subject_of(ObjectivePerturbation.name, guarantee)
    claim = claim_to_test(subject, guarantee, attack, problems.datasets_note, plan)
    draws = (partial(draw_scores, problems.first), partial(draw_scores, problems.second))
    drawn = judge_by_draws(draws, claim, plan, "released numbers")
    coordinates = len(squares) * problems.shape.width
    size = noise_size(subject, sum(squares), coordinates, plan.confidence, problems.datasets_note)
    return ObjectiveFindings(drawn, size)


def _draw_minimisers(
    side: ErmWithLinearTerm,
    records: int,
    noises: ObjectiveNoises,
    source: Randomness,
    count: int,
) -> list[np.ndarray]:
    """Release the minimiser of one side's problem ``count`` times, each with a new linear term.

    Args:
        side: the problem, without the linear term.
        records: the public number of records.
        noises: the noise scales of the releases.
        source: the randomness of the releases.
        count: how many releases to draw.
    """
    start = solve(side, noises.tolerance, max_records=records)
    max_records = max(records, len(side.x))
    return [
        draw_perturbed_minimiser(side, noises, max_records, source, start) for _ in range(count)
    ]


def audit_line(guarantee: ApproximateDP, problems: ProblemPair, noises: ObjectiveNoises) -> Finding:
    """Return the finding of an exactly computed privacy loss (``line_loss``); nothing is drawn."""
    attack = (
        "the probability densities of the released weights under both datasets are integrated "
        "along the only direction in which the records' features are not 0"
    )
    exact = line_loss(guarantee, problems, noises.tilt)
    subject = subject_of(ObjectivePerturbation.name, guarantee)
    return exact.finding(f"{subject}: its table", guarantee, attack, problems.datasets_note)


def pair_with_largest_loss(
    shape: ProblemConstants, noises: ObjectiveNoises, guarantee: ApproximateDP
) -> ProblemPair:
    """Return the pair with the largest ``line_loss`` of those with ``LINE_RECORDS`` records."""
    pairs = (
        ProblemPair.on_line(replace(shape, records=shape.records + records), records)
        for records in LINE_RECORDS
    )
    return max(pairs, key=lambda problems: line_loss(guarantee, problems, noises.tilt).rank)


def line_loss(guarantee: ApproximateDP, problems: ProblemPair, tilt: float) -> Exact:
    """Compute the privacy loss of released minimisers, for problems whose records lie on one line.

    It is the least eps for which both directions are (eps, delta)-DP at the claim's delta, from
    densities on a grid.

    Args:
        guarantee: the claimed guarantee.
        problems: two problems whose records lie on one line (``ProblemPair.on_line`` makes them).
        tilt: the standard deviation of the linear term.
    """
    largest = (10 * tilt + len(problems.second.x)) / problems.shape.strength
    grid = np.linspace(-largest, largest, GRID_POINTS)
    first = _line_masses(problems.first, problems.shape, tilt, grid)
    second = _line_masses(problems.second, problems.shape, tilt, grid)

    def exceeds_delta(eps: float) -> bool:
        first_delta = float(np.maximum(first - math.exp(eps) * second, 0).sum())
        second_delta = float(np.maximum(second - math.exp(eps) * first, 0).sum())
        return max(first_delta, second_delta) > guarantee.delta

    eps = bisect(exceeds_delta, 0.0, 100.0, midpoint)[0] if exceeds_delta(0.0) else 0.0
    return Exact(eps, eps > guarantee.eps * (1 + GRID_ERROR))


def _line_masses(
    side: ErmWithLinearTerm, shape: ProblemConstants, tilt: float, grid: np.ndarray
) -> np.ndarray:
    """Return the probability of each point of a grid as the minimiser's first weight, [n].

    It is proportional to the density N(0, tilt^2) of the gradient, times the gradient's slope, both
    at that point, and adds up to 1.

    Args:
        side: a problem whose records lie on one line (``ProblemPair.on_line`` makes it).
        shape: the public constants.
        tilt: the standard deviation of the linear term.
        grid: [n] values of the first weight.
    """
    # [2, n] the probability of a wrong label, for records of each class
    wrong_probability = expit(-np.outer((-1.0, 1.0), grid))
    counts = np.array([(side.y < 0).sum(), (side.y > 0).sum()])
    clamped = np.minimum(wrong_probability, shape.clamp)
    gradient = shape.strength * grid + np.array([1.0, -1.0]) * counts @ clamped
    is_unclamped = wrong_probability < shape.clamp
    curvature = np.where(is_unclamped, wrong_probability * (1 - wrong_probability), 0)
    mass = np.exp(-(gradient**2) / (2 * tilt**2)) * (shape.strength + counts @ curvature)
    normalised: np.ndarray = mass / mass.sum()
    return normalised
