"""agt audit weights: whether released weights distinguish two neighbouring datasets better than
their guarantee allows.

No run is used: weights and training problems are made up. A mechanism either adds Gaussian noise to
trained weights, or trains with a random linear term (objective perturbation). The attacker knows
the weights, or the training problems, of both datasets.

Formal guarantees
    * Added noise: no test distinguishes theta + N(0, sigma^2 I) and theta' + N(0, sigma^2 I) better
      than the projection on theta - theta'. In units of sigma it is N(0, 1) or N(mu, 1), with
      mu = |theta - theta'| / sigma. The threshold is the midpoint. It depends on no draw, so it
      costs no confidence (Lemma 2 of docs/proofs/attack_bounds.md).
    * The size of the noise: the sum of the squares of n coordinates, divided by the claimed
      variance, is chi-squared with n degrees of freedom if the claim is exact, and larger if there
      is more noise. So it is below the error-quantile with at most the error probability. (Rounding
      to a lattice adds 2^-48 of the variance.) The linear term of objective perturbation is minus
      the gradient at the minimiser.
    * Objective perturbation: a minimiser theta* has the density phi_sigma(grad F(theta*)) det
      H(theta*) (agt/mechanisms/objective.py), so no test is better than the ratio of two such
      densities (``ProblemPair.score``). A bound from draws is valid for any score.
    * If all records lie on one line, the density is that of one number, and the loss is integrated
      on a grid (``line_loss``): more than ``GRID_ERROR`` (relative) above the claim is a violation.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from pydantic import Field
from scipy.special import expit
from scipy.stats import chi2

from agt.errors import ConfigError
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP
from agt.mechanisms.objective import (
    ObjectiveNoises,
    ObjectivePerturbation,
    ProblemConstants,
    draw_perturbed_minimiser,
)
from agt.mechanisms.weights import ReleaseWeights, noise_scale, release_weights
from agt.mechanisms.weights_mechanism import NoiseLaw, WeightsMechanism
from agt.numeric import UP, Randomness, bisect, midpoint
from agt.settings import schema
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve
from agt_audit.early_checks import WEIGHTS_EXAMPLE, check_no_run
from agt_audit.estimates import tail_event
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome
from agt_cli.report.record import RunRecord

GRID_POINTS = 40_001
GRID_ERROR = 1e-4  # relative; above the error of sums over the grid
# numbers of records of one class that are tried: with more of them, an added record of the other
# class is labelled more wrongly, so its gradient is larger
LINE_RECORDS = (0, 3, 30)
MAX_DETERMINANTS = 64  # coordinates up to which a score includes the determinants
MADE_UP = (
    "no data were used: the audit compares two weight vectors that are as far apart as the "
    "sensitivity allows"
)


# -- noise on weights
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WeightPair:
    """Made-up weights of two models of neighbouring datasets.

    Attributes:
        first: the weights on one dataset, float64.
        second: the weights on the other, of the same shape; they differ from the first.
        sensitivity: that for which the noise is scaled: the largest l2 distance by which one
            unit may move the weights.
    """

    first: np.ndarray
    second: np.ndarray
    sensitivity: float

    @property
    def distance(self) -> float:
        """The l2 distance of the two weights."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def without_data(cls, width: int) -> "WeightPair":
        """Return made-up weights [width] whose distance is the sensitivity, 1."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def weights_drawn(
    theta: np.ndarray, sensitivity: float, guarantee: GaussianDP, source: Randomness
) -> np.ndarray:
    """Return the weights that ``release_weights`` draws, without its further results."""
    return release_weights(theta, sensitivity, guarantee, source).weight


def audit_weights(
    mechanism: ReleaseWeights,
    heads: WeightPair,
    plan: TrialPlan,
    release: Callable[[np.ndarray, float, GaussianDP, Randomness], np.ndarray] = weights_drawn,
) -> tuple[Finding, Finding, Finding]:
    """Audit releases of two models' weights with added noise.

    Args:
        mechanism: the mechanism, with its claim.
        heads: the weights of both models.
        plan: how many releases to draw of each side, and how.
        release: draws released weights from (weights, sensitivity, guarantee, randomness).

    Returns:
        The finding of the exact mu of this pair; the one of an attack on the releases; and the one
        about the size of their noise.
    """
    plan = plan.shared_among(2)  # the bound from draws, and the size of the noise
    sigma = noise_scale(heads.sensitivity, mechanism.guarantee)
    claimed_sigma = heads.sensitivity / mechanism.mu
    direction = (heads.first - heads.second) / heads.distance
    middle = (heads.first + heads.second) / 2
    squares = np.zeros(2 * plan.trials)  # of all noise, in claimed standard deviations

    def draw_scores(theta: np.ndarray, drawn_before: int) -> np.ndarray:
        scores = np.empty(plan.trials)
        for trial in range(plan.trials):
            released = release(theta, heads.sensitivity, mechanism.guarantee, plan.source)
            scores[trial] = float(((released - middle) * direction).sum()) / sigma
            noise_square = float(((released - theta) ** 2).sum())
            squares[drawn_before + trial] = noise_square / claimed_sigma**2
        return scores

    first_scores = draw_scores(heads.first, 0)
    second_scores = draw_scores(heads.second, plan.trials)
    mistakes = tail_event(0.0, above=True).mistakes(first_scores, second_scores)
    subject = f"{mechanism.name} with mu={mechanism.mu:g}"
    how = (
        "an attacker projects the released weights onto the line between the weights of the two "
        "models, and guesses the nearer model"
    )
    effort = (
        f"{plan.trials:,} releases of {heads.first.size:,} weights were drawn from each of the "
        f"two models; {MADE_UP}"
    )
    drawn = claim_to_test(subject, mechanism.guarantee, how, effort, plan).judge(mistakes)
    coordinates = squares.size * middle.size
    size = noise_size(subject, float(squares.sum()), coordinates, plan.confidence, MADE_UP)
    return _exact_finding(mechanism, heads, subject), drawn, size


def _exact_finding(mechanism: ReleaseWeights, heads: WeightPair, subject: str) -> Finding:
    """Return the finding that compares the distance of two models' weights with the noise.

    Arguments as of ``audit_weights``; the finding's subject begins with ``subject``.
    """
    mu = heads.distance / noise_scale(heads.sensitivity, mechanism.guarantee)
    share = heads.distance / heads.sensitivity
    return Exact(mu, mu > mechanism.mu * (1 + UP)).finding(
        f"{subject}: the noise compared with the distance between the two models",
        mechanism.guarantee,
        "the distance between the weights of the two models, divided by the standard deviation "
        "of the noise, was compared with the claimed value",
        MADE_UP,
        f"this audit detects noise that is sized for less than {share:.3g} times the claimed "
        "sensitivity",
    )


def noise_size(subject: str, squares: float, count: int, confidence: float, effort: str) -> Finding:
    """Return the finding about whether noise has at least the claimed standard deviation.

    Args:
        subject: what adds the noise, for the finding.
        squares: the sum of the squares of independent noises, divided by the claimed variance.
        count: how many noises, at least 1.
        confidence: the probability with which noise of the claimed size is not called too small.
        effort: what was drawn, in words.
    """
    error = 1 - confidence
    ratio = math.sqrt(squares / count)
    violated = float(chi2.cdf(squares, count)) < error
    least_unnoticed = math.sqrt(float(chi2.ppf(error, count)) / count)
    return Finding(
        subject=f"{subject}: its noise",
        claim="the noise has at least the standard deviation that the guarantee needs",
        attack=(
            "the sum of the squared noise, over all coordinates of all releases, was compared "
            "with its expected value"
        ),
        effort=f"{count:,} coordinates; {effort}",
        outcome=Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED,
        meaning=f"the standard deviation of the noise is {ratio:.4g} times the claimed one",
        measure="noise/claimed",
        found=ratio,
        confidence=confidence,
        noticeable=(
            "more than half of all audits would detect noise whose standard deviation is below "
            f"{least_unnoticed:.4g} times the claimed one"
        ),
        estimator="chi-squared",
    )


# -- objective perturbation
# --------------------------------------------------------------------------------------------------


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
        """Return a made-up problem with equal records, and the same with a unit added.

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
        first_volume = float(np.linalg.slogdet(self.first.hessian(theta))[1])
        second_volume = float(np.linalg.slogdet(self.second.hessian(theta))[1])
        return log_ratio + second_volume - first_volume


def audit_objective(
    guarantee: ApproximateDP,
    problems: ProblemPair,
    noises: ObjectiveNoises,
    plan: TrialPlan,
) -> tuple[Finding, Finding]:
    """Audit releases by objective perturbation on two datasets.

    Args:
        guarantee: the claimed guarantee.
        problems: the problems of both sides.
        noises: the noise scales of the releases.
        plan: how many releases to draw of each side, and how.

    Returns:
        The finding of an attack on the releases, and the one about the size of their linear terms.
    """
    plan = plan.shared_among(2)  # the bound from draws, and the size of the noise
    records = problems.shape.records
    squares: list[float] = []  # of each linear term, in claimed standard deviations

    def draw_scores(side: ErmWithLinearTerm, count: int) -> np.ndarray:
        start = solve(side, noises.tolerance, max_records=records)
        max_records = max(records, len(side.x))
        scores = np.empty(count)
        for trial in range(count):
            theta = draw_perturbed_minimiser(side, noises, max_records, plan.source, start)
            scores[trial] = problems.score(theta, noises.tilt)
            squares.append(float(np.sum(side.gradient(theta) ** 2)) / noises.tilt**2)
        return scores

    how = (
        "an attacker distinguishes the two datasets by the likelihood ratio of the released weights"
    )
    subject = objective_subject(guarantee)
    claim = claim_to_test(subject, guarantee, how, problems.datasets_note, plan)
    draws = (partial(draw_scores, problems.first), partial(draw_scores, problems.second))
    drawn = judge_by_draws(draws, claim, plan, "released numbers")
    coordinates = len(squares) * problems.shape.width
    size = noise_size(subject, sum(squares), coordinates, plan.confidence, problems.datasets_note)
    return drawn, size


def audit_line(guarantee: ApproximateDP, problems: ProblemPair, noises: ObjectiveNoises) -> Finding:
    """Return the finding of ``line_loss``, for which nothing is drawn; arguments as there."""
    how = (
        "the probability densities of the released weights under both datasets are integrated "
        "along the only direction in which the records' features are not 0"
    )
    exact = line_loss(guarantee, problems, noises.tilt)
    return exact.finding(
        f"{objective_subject(guarantee)}: its table", guarantee, how, problems.datasets_note
    )


def worst_on_line(
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
        problems: a pair as of ``ProblemPair.on_line``.
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
        side: a problem as of ``ProblemPair.on_line``.
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


def objective_subject(guarantee: ApproximateDP) -> str:
    """Return the name of objective perturbation with a budget, for findings."""
    return f"{ObjectivePerturbation.name} with eps={guarantee.eps:.6g}, delta={guarantee.delta:.6g}"


# -- the audit
# --------------------------------------------------------------------------------------------------

STRENGTH = 10.0  # the default of Lambda


def attack_added_noise(mechanism: ReleaseWeights, width: int, plan: TrialPlan) -> Audited:
    """Attack two made-up models with ``width`` weights, whose distance is the sensitivity."""
    findings = audit_weights(mechanism, WeightPair.without_data(width), plan)
    return Audited(mechanism.name, None, findings)


def attack_linear_term(mechanism: ObjectivePerturbation, width: int, plan: TrialPlan) -> Audited:
    """Attack made-up problems with ``width`` weights, whose records lie on one line."""
    guarantee = mechanism.guarantee
    shape = ProblemConstants(mechanism.weight_decay or STRENGTH, 1.0, 1, width)
    noises = ObjectiveNoises.from_budget(shape, guarantee.eps, guarantee.delta)
    problems = worst_on_line(shape, noises, guarantee)
    exact = audit_line(guarantee, problems, noises)
    drawn = audit_objective(guarantee, problems, noises, plan)
    note = (
        "no run and no data were used: the records are made up. The regularisation strength is "
        f"Lambda = {shape.strength:g} (set by mechanism.weight_decay, for gradient sums that are "
        "divided by B = 1). Gradients are clamped at C = 1"
    )
    return Audited(mechanism.name, None, (exact, *drawn), (note,))


ATTACKS: Mapping[NoiseLaw, Callable[[Any, int, TrialPlan], Audited]] = {
    NoiseLaw.ADDED_GAUSSIAN: attack_added_noise,
    NoiseLaw.LINEAR_TERM: attack_linear_term,
}
"""The law of a mechanism's noise -> (mechanism, number of weights, plan) -> the audit's results."""


@schema
class WeightsAudit(AuditKind):
    """Attacks a mechanism that releases weights, by itself, without a run.

    Attributes:
        trials: how many releases of each side are counted. Each draws exact noise for every weight,
            which takes about 40 microseconds.
        width: how many weights there are.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 2000
    width: Annotated[int, Field(ge=1, le=100_000)] = 4

    name: ClassVar[str] = "weights"

    def check(self, given: AuditInputs) -> None:
        """Check that a mechanism is given whose weights can be attacked here, and no run.

        Raises:
            ConfigError: a run is given; or the mechanism releases no weights, its law of noise is
                not in ``ATTACKS``, or it has no budget. The error names the key.
        """
        check_no_run(given.config, self.name)
        config = given.mechanism(WEIGHTS_EXAMPLE)
        if not config.releases_weights or config.kind.noise_law not in ATTACKS:
            raise ConfigError(
                f"mechanism={config.kind.name}: `agt audit weights` cannot draw releases of this "
                "mechanism. Use `agt audit replay`, or give mechanism=release_weights or "
                "mechanism=objective_perturbation"
            )

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Attack releases of made-up weights."""
        # ``check`` refused everything else
        mechanism = cast(WeightsMechanism, given.mechanism().mechanism(2, 1))
        attack = ATTACKS[mechanism.noise_law]
        return attack(mechanism, self.width, TrialPlan(self.trials, given.confidence))
