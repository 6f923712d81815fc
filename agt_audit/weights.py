"""agt audit weights: what released weights show of two neighbours.

A release either adds Gaussian noise to trained weights, or solves training with a random linear
term (objective perturbation). Attacks are white box: they know both neighbours' weights or
problems.

Formal guarantees
    * Added noise: no test tells theta + N(0, sigma^2 I) from theta' + N(0, sigma^2 I) better than
      the projection on theta - theta', which is N(0, 1) against N(mu, 1) in units of sigma, with mu
      = |theta - theta'| / sigma. The threshold is the midpoint, fixed by the weights and not by
      draws, so it costs no confidence (Lemma 2 of docs/proofs/attack_bounds.md).
    * Its size: the squares of n coordinates over the claimed variance are chi-squared with n
      degrees of freedom, and larger noise makes them larger. So they fall below the quantile of a
      claim that holds with at most the error probability. (Rounding to a lattice adds 2^-48 of the
      variance.) The linear term of objective perturbation is minus the gradient at the minimiser.
    * Objective perturbation: a minimiser theta* has the density phi_sigma(grad F(theta*)) det
      H(theta*) (agt/mechanisms/objective.py), so no test beats the ratio of two such densities,
      which ``Problems.score`` computes. A bound from draws holds whatever the score is worth.
    * Of records along one line, the density is that of one number, and the loss is integrated on a
      grid (``line_loss``): more than ``GRID_ERROR``, relative, beyond the claim is a violation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, cast

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
    build_problem,
    draw_perturbed_minimiser,
)
from agt.mechanisms.weights import ReleaseWeights, noise_scale, release_weights
from agt.mechanisms.weights_mechanism import NoiseLaw, WeightsMechanism
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.numeric import UP, Randomness, bisect, midpoint
from agt.release import ReleaseTerms, WeightsRelease
from agt.settings import schema
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve
from agt_audit.estimates import tail_event
from agt_audit.job import Audited, AuditInputs, AuditKind, no_pair_found
from agt_audit.pairs import neighbours, segments
from agt_audit.trials import Exact, TrialPlan, attacked, tested
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, least
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import OpenedRun

GRID_POINTS = 40_001
GRID_ERROR = 1e-4  # relative; more than sums over the grid err by
# records that draw the minimiser to one side, where an added record of the other class weighs most
PULLS = (0, 3, 30)
MAX_DETERMINANTS = 64  # coordinates up to which the score has the determinants, too
OnDone = Callable[[int], None]
"""Told how many releases were drawn."""


# -- noise on weights
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heads:
    """Two neighbours' weights.

    Attributes:
        first: float64.
        second: float64, of the same shape; it differs.
        moves: the bound on how far one unit moves the weights, for which the noise is made.
        where: which datasets, in words.
    """

    first: np.ndarray
    second: np.ndarray
    moves: float
    where: str = (
        "no data were used: the audit compares two weight vectors that are as far apart as the "
        "sensitivity allows"
    )

    @property
    def distance(self) -> float:
        """The l2 distance of the weights."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def without_data(cls, width: int) -> "Heads":
        """Return weights at the distance for which the noise is made."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def weights_drawn(
    theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness
) -> np.ndarray:
    """Return released weights, as ``release_weights`` draws them."""
    return release_weights(theta, moves, guarantee, source).weight


def audit_weights(
    mechanism: ReleaseWeights,
    heads: Heads,
    plan: TrialPlan,
    on_done: OnDone = lambda done: None,
    release: Callable[[np.ndarray, float, GaussianDP, Randomness], np.ndarray] = weights_drawn,
) -> tuple[Finding, ...]:
    """Return the exact mu of a pair, what releases show of it, and the size of all their noise.

    Args:
        mechanism: that releases.
        heads: both sides' weights.
        plan: of the draws.
        on_done: told how many releases of both sides, ``2 plan.trials``, were drawn.
        release: draws released weights from (weights, moves, guarantee, source).
    """
    # two bounds share the error probability
    plan = replace(plan, confidence=(1 + plan.confidence) / 2)
    sigma = noise_scale(heads.moves, mechanism.guarantee)
    claimed_sigma = heads.moves / mechanism.mu
    direction = (heads.first - heads.second) / heads.distance
    middle = (heads.first + heads.second) / 2
    squares = np.zeros(2 * plan.trials)  # of all noise, in claimed standard deviations

    def draw_scores(theta: np.ndarray, drawn_before: int) -> np.ndarray:
        scores = np.empty(plan.trials)
        for trial in range(plan.trials):
            released = release(theta, heads.moves, mechanism.guarantee, plan.source)
            scores[trial] = float(((released - middle) * direction).sum()) / sigma
            index = drawn_before + trial
            squares[index] = float(((released - theta) ** 2).sum()) / claimed_sigma**2
            on_done(index + 1)
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
        f"two models; {heads.where}"
    )
    drawn = tested(subject, mechanism.guarantee, how, effort, plan).findings(mistakes)
    coordinates = squares.size * middle.size
    size = noise_size(subject, float(squares.sum()), coordinates, plan.confidence, heads.where)
    return (_exact_finding(mechanism, heads, subject), *drawn, size)


def _exact_finding(mechanism: ReleaseWeights, heads: Heads, subject: str) -> Finding:
    """Return what the distance of two neighbours' weights says, compared with the noise."""
    mu = heads.distance / noise_scale(heads.moves, mechanism.guarantee)
    share = heads.distance / heads.moves
    finding = Exact(mu, mu > mechanism.mu * (1 + UP)).finding(
        f"{subject}: the noise compared with the distance between the two models",
        mechanism.guarantee,
        "the distance between the weights of the two models, divided by the standard deviation "
        "of the noise, was compared with the claimed value",
        heads.where,
        f"this audit detects noise that is sized for less than {share:.3g} times the claimed "
        "sensitivity",
    )
    mu_of_pair = least(finding.found or 0.0, mechanism.mu)
    meaning = (
        f"computed exactly, without sampling: mu is {mu_of_pair} for this pair of models, and "
        f"{mechanism.mu:g} is claimed. The models are {share:.3g} times the sensitivity apart"
    )
    return replace(finding, meaning=meaning)


def noise_size(subject: str, squares: float, count: int, confidence: float, effort: str) -> Finding:
    """Return whether noise is as large as claimed.

    Args:
        subject: whose noise, in words.
        squares: the sum of the squares of independent coordinates, over the claimed variance.
        count: how many coordinates.
        confidence: of the verdict.
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
        outcome=Outcome.VIOLATED if violated else Outcome.STANDS,
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


def farthest(
    model: LinearModel, anchors: np.ndarray, count: int, seed: int
) -> tuple[LinearModel, Heads] | None:
    """Return the neighbour of a run whose weights are farthest away, of some that are trained.

    Args:
        model: of the run.
        anchors: [n, ...] features, between which added records are put.
        count: how many neighbouring datasets are trained.
        seed: of the choice.

    Returns:
        The neighbour's model, and both sides' weights; None: no neighbour has other weights.
    """
    begin, end = segments(model, anchors, count, np.random.default_rng(seed))
    middle = (begin + (end - begin) / 2).astype(begin.dtype)
    own_weight = model.trained.weight.numpy()
    best: tuple[LinearModel, Heads] | None = None
    for edit, other in neighbours(model, middle, count):
        head = other.linear_head
        assert head is not None
        where = f"two datasets were used: the run's own data, and the same data {edit}"
        heads = Heads(own_weight, head.trained.weight.numpy(), model.l2_sensitivity, where)
        if heads.distance and (best is None or heads.distance > best[1].distance):
            best = (head, heads)
    return best


def trained_head(mechanism: WeightsMechanism, model: Model) -> LinearModel:
    """Return the head whose weights a mechanism releases; one beside votes is trained first."""
    head = mechanism.releasable_head(model)
    if head is model:
        return head
    return head.retrained(head.problem.dataset.train)


# -- objective perturbation
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problems:
    """Two neighbours' training problems, for objective perturbation.

    Attributes:
        first: without a linear term.
        second: without a linear term.
        shape: their public constants.
        where: which datasets, in words.
    """

    first: ErmWithLinearTerm
    second: ErmWithLinearTerm
    shape: ProblemConstants
    where: str

    @classmethod
    def line(cls, shape: ProblemConstants, pulls: int, rows: int = 1) -> "Problems":
        """Return records along one line, and the same with a unit of the other class added.

        Args:
            shape: the public constants.
            pulls: how many records of class 0 there are on both sides.
            rows: how many records of class 1 the second side has.
        """
        features = np.zeros((pulls + rows, shape.width))
        features[:, 0] = 1.0
        labels = np.repeat([0, 1], [pulls, rows])
        without_unit = ErmWithLinearTerm.from_labels(
            features[:pulls], labels[:pulls], shape.strength, shape.clamp
        )
        with_unit = ErmWithLinearTerm.from_labels(features, labels, shape.strength, shape.clamp)
        added = "one more record" if rows == 1 else f"{rows} rows of one unit (person)"
        where = (
            f"no run and no data were used: the audit compares a made-up dataset of {pulls} "
            "records of one class (all with the same features) with the same dataset plus "
            f"{added} of another class"
        )
        return cls(without_unit, with_unit, shape, where)

    @classmethod
    def of_run(
        cls, model: LinearModel, other: LinearModel, weight_decay: float | None, where: str
    ) -> "Problems":
        """Return the problems of a run and of what was trained on a neighbour.

        Args:
            model: of the run.
            other: of the neighbour.
            weight_decay: of the mechanism; None: the run's own.
            where: which datasets, in words.
        """
        shape = ProblemConstants.from_head(model, weight_decay)
        return cls(build_problem(model, shape), build_problem(other, shape), shape, where)

    def score(self, theta: np.ndarray, tilt: float) -> float:
        """Return the logarithm of the second side's density over the first's at a minimiser.

        Of problems with many coordinates, the determinants are left out.

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
    problems: Problems,
    noises: ObjectiveNoises,
    plan: TrialPlan,
    on_done: OnDone = lambda done: None,
) -> tuple[Finding, ...]:
    """Return what releases of a pair show, and the size of their linear terms.

    Args:
        guarantee: that is claimed.
        problems: both sides'.
        noises: that releases draw.
        plan: of the draws.
        on_done: told how many releases of both sides, ``4 plan.trials``, were drawn.
    """
    # two bounds share the error probability
    plan = replace(plan, confidence=(1 + plan.confidence) / 2)
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
            on_done(len(squares))
        return scores

    how = (
        "an attacker distinguishes the two datasets by the likelihood ratio of the released weights"
    )
    subject = objective_words(guarantee)
    claim = tested(subject, guarantee, how, problems.where, plan)
    draws = (partial(draw_scores, problems.first), partial(draw_scores, problems.second))
    findings = attacked(draws, claim, plan, None)
    coordinates = len(squares) * problems.shape.width
    size = noise_size(subject, sum(squares), coordinates, plan.confidence, problems.where)
    return (*findings, size)


def audit_line(guarantee: ApproximateDP, problems: Problems, noises: ObjectiveNoises) -> Finding:
    """Return what is known without a draw of a pair of problems along one line."""
    how = (
        "the probability densities of the released weights under both datasets are integrated "
        "along the only direction in which the records' features are not 0"
    )
    exact = line_loss(guarantee, problems, noises.tilt)
    return exact.finding(f"{objective_words(guarantee)}: its table", guarantee, how, problems.where)


def worst_line(
    shape: ProblemConstants, noises: ObjectiveNoises, guarantee: ApproximateDP
) -> Problems:
    """Return the pair of greatest loss, of a few pairs of problems along one line."""
    lines = (Problems.line(replace(shape, records=shape.records + pulls), pulls) for pulls in PULLS)
    return max(lines, key=lambda problems: line_loss(guarantee, problems, noises.tilt).rank)


def line_loss(guarantee: ApproximateDP, problems: Problems, tilt: float) -> Exact:
    """Return the least eps, at the claim's delta, of the minimisers of a pair along one line.

    The worse of both directions counts.

    Args:
        guarantee: that is claimed.
        problems: as of ``Problems.line``.
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
    """Return the probability that a minimiser along one line is near each point of a grid, [n].

    It is the density of the gradient, N(0, tilt^2), times the slope of the gradient.

    Args:
        side: a problem whose records all have the first feature 1, and the others 0.
        shape: the public constants.
        tilt: the standard deviation of the linear term.
        grid: [n] values of the first weight.
    """
    wrong_probability = expit(-np.outer((-1.0, 1.0), grid))  # [2, n] of each class
    counts = np.array([(side.y < 0).sum(), (side.y > 0).sum()])
    clamped = np.minimum(wrong_probability, shape.clamp)
    gradient = shape.strength * grid + np.array([1.0, -1.0]) * counts @ clamped
    is_unclamped = wrong_probability < shape.clamp
    curvature = np.where(is_unclamped, wrong_probability * (1 - wrong_probability), 0)
    mass = np.exp(-(gradient**2) / (2 * tilt**2)) * (shape.strength + counts @ curvature)
    normalised: np.ndarray = mass / mass.sum()
    return normalised


def objective_words(guarantee: ApproximateDP) -> str:
    """Return the mechanism with its budget, in words."""
    return f"{ObjectivePerturbation.name} with eps={guarantee.eps:.6g}, delta={guarantee.delta:.6g}"


# -- the audit
# --------------------------------------------------------------------------------------------------

RELEASE = "mechanism=release_weights mechanism.mu=1"
WEIGHTS_WITHOUT_RUN = (
    "you can audit the noise by itself: type `agt audit weights mechanism=release_weights "
    "mechanism.mu=MU`, without run=..."
)
STRENGTH = 10.0  # Lambda of an audit without a run, unless mechanism.weight_decay says otherwise


@dataclass(frozen=True)
class TrainedPair:
    """A run's head and what was trained on a neighbour of its data.

    Attributes:
        model: the run's head.
        other: the neighbour's.
        heads: the weights of both.
    """

    model: LinearModel
    other: LinearModel
    heads: Heads


@dataclass(frozen=True)
class AddedNoiseAttack:
    """How releases are told apart that add noise to trained weights."""

    mechanism: ReleaseWeights
    releases_per_trial: ClassVar[int] = 2

    def attack(self, pair: TrainedPair, plan: TrialPlan, on_done: OnDone) -> tuple[Finding, ...]:
        """Return ``audit_weights`` of a pair."""
        return audit_weights(self.mechanism, pair.heads, plan, on_done)

    def without_run(self, width: int, plan: TrialPlan) -> Audited:
        """Attack two made-up heads at the distance for which the noise is made."""
        findings = audit_weights(self.mechanism, Heads.without_data(width), plan)
        return Audited(self.mechanism.name, None, findings)


@dataclass(frozen=True)
class LinearTermAttack:
    """How releases are told apart that solve training with a random linear term."""

    mechanism: ObjectivePerturbation
    releases_per_trial: ClassVar[int] = 4

    def attack(self, pair: TrainedPair, plan: TrialPlan, on_done: OnDone) -> tuple[Finding, ...]:
        """Return ``audit_objective`` of a pair."""
        mechanism = self.mechanism
        where = pair.heads.where
        problems = Problems.of_run(pair.model, pair.other, mechanism.weight_decay, where)
        noises = mechanism.noise_scales(pair.model)
        return audit_objective(mechanism.guarantee, problems, noises, plan, on_done)

    def without_run(self, width: int, plan: TrialPlan) -> Audited:
        """Attack made-up records along a line."""
        guarantee = self.mechanism.guarantee
        shape = ProblemConstants(self.mechanism.weight_decay or STRENGTH, 1.0, 1, width)
        noises = ObjectiveNoises.from_budget(shape, guarantee.eps, guarantee.delta)
        line = worst_line(shape, noises, guarantee)
        by_densities = audit_line(guarantee, line, noises)
        by_draws = audit_objective(guarantee, line, noises, plan)
        note = (
            "no run and no data were used: the records are made up. The regularisation strength "
            f"is Lambda = {shape.strength:g} (set by mechanism.weight_decay, for gradient sums "
            "that are divided by B = 1). Gradients are clamped at C = 1"
        )
        return Audited(self.mechanism.name, None, (by_densities, *by_draws), (note,))


ATTACKS = {NoiseLaw.ADDED_GAUSSIAN: AddedNoiseAttack, NoiseLaw.LINEAR_TERM: LinearTermAttack}
"""The law that a mechanism draws by -> how its releases are told apart."""


@schema
class WeightsAudit(AuditKind):
    """Attacks released weights.

    Attributes:
        trials: releases a side; each draws exact noise for every weight, at some 40 microseconds.
        neighbours: with a run: how many neighbouring datasets are trained.
        width: without a run: how many weights there are.
    """

    trials: Annotated[int, Field(ge=1, le=10_000_000)] = 2000
    neighbours: Annotated[int, Field(ge=1)] = 4
    width: Annotated[int, Field(ge=1, le=100_000)] = 4

    name: ClassVar[str] = "weights"
    needs_classes: ClassVar[bool] = True

    def check(self, given: AuditInputs) -> None:
        """Refuse what releases no weights, or by a law that there is no attack for.

        Raises:
            ConfigError: by key.
        """
        config = given.mechanism(RELEASE)
        if not config.releases_weights or config.kind.noise_law not in ATTACKS:
            raise ConfigError(
                f"mechanism={config.kind.name}: `agt audit weights` cannot draw releases of this "
                "mechanism. Use `agt audit replay`, or give mechanism=release_weights or "
                "mechanism=objective_perturbation"
            )
        if given.run is not None:
            given.check_run()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Draw weights for both sides, project them, and count.

        Raises:
            DataMissing: the run's data is not there.
            ConfigError: the data is not what it was.
        """
        # ``check`` refused everything else
        mechanism = cast(WeightsMechanism, given.mechanism().mechanism(2, 1))
        attack = ATTACKS[mechanism.noise_law](mechanism)
        plan = TrialPlan(self.trials, given.confidence)
        if given.run is None:
            return attack.without_run(self.width, plan)
        opened = given.open_with_data(record, console, WEIGHTS_WITHOUT_RUN)
        terms = ReleaseTerms(conditions=opened.conditions)
        claim = WeightsRelease.judged(opened.model, mechanism, terms).claim
        releases = attack.releases_per_trial * plan.trials
        with console.progress("releases on both sides", "release") as report:
            pair = self._trained_pair(opened, mechanism, given.seed)
            if pair is None:
                sought = "a neighbouring dataset whose model has other weights than the run"
                findings: tuple[Finding, ...] = (no_pair_found(mechanism, self.neighbours, sought),)
            else:
                findings = attack.attack(
                    pair, plan, lambda done: report(done, releases, done, releases)
                )
        notes = (
            claim.text,
            f"models were trained on at most {self.neighbours} of all possible neighbouring "
            "datasets",
        )
        return Audited.of(opened.trained.finished, findings, notes)

    def _trained_pair(
        self, opened: OpenedRun, mechanism: WeightsMechanism, seed: int
    ) -> TrainedPair | None:
        """Train some neighbours, and return the one whose weights are farthest away.

        None: no neighbour has other weights.
        """
        head = trained_head(mechanism, opened.model)
        pair = farthest(head, opened.queries.features, self.neighbours, seed)
        if pair is None:
            return None
        other, heads = pair
        return TrainedPair(head, other, heads)
