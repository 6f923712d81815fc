"""agt audit weights: what released weights show of two neighbours.

Formal guarantees
    White-box: noise that is added is told apart along the line between two neighbours' own weights,
    objective perturbation by the likelihood ratio of their datasets.

    A release is theta + N(0, sigma^2 I), rounded to a lattice of at most 2^-24 sigma. Between two
    neighbours theta, theta' no test is better than the projection on theta - theta', which is N(0,
    1) against N(mu, 1) in units of sigma, mu =
    |theta - theta'| / sigma: worked out, and more than one part in 10^9 beyond the claim is a
    violation. The claim is about any two neighbours; how close these come to the sensitivity is
    told beside it. The threshold is the midpoint, fixed by the weights and not by draws, so that it
    costs no confidence. The size of the noise is told apart better by all of it: its squares over
    (moves / mu)^2, added up over n coordinates, are chi-squared with n degrees of freedom, and
    noise that is larger makes them larger; so they fall below the quantile of a claim that holds
    with the error probability at most. Rounding to the lattice adds 2^-48 of the variance. The
    random linear term of objective perturbation is minus the gradient at the minimiser, whichever
    that is: N(0, tilt^2 I); the noise at the end only adds to what is seen of it.

    A minimiser theta* has the density phi_sigma(grad F(theta*)) det H(theta*)
    (mechanisms/objective.py). Between two datasets no test is better than one on the logarithm of
    the ratio of their densities, which ``score`` computes of what was released: the noise at the
    end is so small that it changes little of it. Whatever the score is worth, a bound from draws is
    about the event that it was given, which was chosen on draws of its own (estimates.py).
    Of records along one line the density is that of one number, and both sides' losses are
    integrated on a grid (``line_loss``), without chance: what is more than ``GRID_ERROR``,
    relative, beyond the claim is a violation.
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

GRID, GRID_ERROR = 40_001, 1e-4  # points, and more than their sums err by
# records that draw the minimiser to one side, where a newcomer of the other class weighs most
PULLS = (0, 3, 30)
MAX_DETERMINANTS = 64  # coordinates up to which the score has the determinants, too
OnDone = Callable[[int], None]


# -- noise on weights
# --------------------------------------------------------------------------------------------------


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
    where: str = (
        "no data were used: the audit compares two weight vectors that are as far apart as the "
        "sensitivity allows"
    )

    @property
    def apart(self) -> float:
        """|theta - theta'|."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def without_data(cls, width: int) -> "Heads":
        """Weights at the distance that the noise is made for."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def weights_drawn(
    theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness
) -> np.ndarray:
    """What ``release_weights`` puts out."""
    return release_weights(theta, moves, guarantee, source).weight


def audit_weights(
    mechanism: ReleaseWeights,
    heads: Heads,
    plan: TrialPlan,
    on_done: OnDone = lambda done: None,
    release: Callable[[np.ndarray, float, GaussianDP, Randomness], np.ndarray] = weights_drawn,
) -> tuple[Finding, ...]:
    """The exact mu of this pair, the one that is shown by releases, and the size of all their
    noise.

    Args:
        on_done: told how many releases of both sides, ``2 plan.trials``, were drawn.
    """
    # two bounds share the error probability
    plan = replace(plan, confidence=(1 + plan.confidence) / 2)
    sigma, direction = (
        noise_scale(heads.moves, mechanism.guarantee),
        (heads.first - heads.second) / heads.apart,
    )
    middle, subject = (heads.first + heads.second) / 2, f"{mechanism.name} with mu={mechanism.mu:g}"
    due, squares = heads.moves / mechanism.mu, np.zeros(2 * plan.trials)

    def draw(theta: np.ndarray, before: int) -> np.ndarray:
        scores = np.empty(plan.trials)
        for trial in range(plan.trials):
            released = release(theta, heads.moves, mechanism.guarantee, plan.source)
            scores[trial] = float(((released - middle) * direction).sum()) / sigma
            squares[before + trial] = float(((released - theta) ** 2).sum()) / due**2
            on_done(before + trial + 1)
        return scores

    mistakes = tail_event(0.0, above=True).mistakes(
        draw(heads.first, 0), draw(heads.second, plan.trials)
    )
    how = (
        "an attacker projects the released weights onto the line between the weights of the two "
        "models, and guesses the nearer model"
    )
    effort = (
        f"{plan.trials:,} releases of {heads.first.size:,} weights were drawn from each of the "
        f"two models; {heads.where}"
    )
    drawn = tested(subject, mechanism.guarantee, how, effort, plan).findings(mistakes)
    mu, share = heads.apart / sigma, heads.apart / heads.moves
    table = Exact(mu, mu > mechanism.mu * (1 + UP)).finding(
        f"{subject}: the noise compared with the distance between the two models",
        mechanism.guarantee,
        "the distance between the weights of the two models, divided by the standard deviation "
        "of the noise, was compared with the claimed value",
        heads.where,
        f"this audit detects noise that is sized for less than {share:.3g} times the claimed "
        "sensitivity",
    )
    mu_of_pair = least(table.found or 0.0, mechanism.mu)
    meaning = (
        f"computed exactly, without sampling: mu is {mu_of_pair} for this pair of models, and "
        f"{mechanism.mu:g} is claimed. The models are {share:.3g} times the sensitivity apart"
    )
    size = noise_size(
        subject, float(squares.sum()), squares.size * middle.size, plan.confidence, heads.where
    )
    return (replace(table, meaning=meaning), *drawn, size)


def noise_size(subject: str, squares: float, count: int, confidence: float, effort: str) -> Finding:
    """What the squares of so many independent coordinates of noise, over the claimed variance,
    say of its size.
    """
    error, ratio = 1 - confidence, math.sqrt(squares / count)
    violated, least_seen = (
        float(chi2.cdf(squares, count)) < error,
        math.sqrt(float(chi2.ppf(error, count)) / count),
    )
    meaning = f"the standard deviation of the noise is {ratio:.4g} times the claimed one"
    return Finding(
        subject=f"{subject}: its noise",
        claim=("the noise has at least the standard deviation that the guarantee needs"),
        attack=(
            "the sum of the squared noise, over all coordinates of all releases, was compared "
            "with its expected value"
        ),
        effort=f"{count:,} coordinates; {effort}",
        outcome=Outcome.VIOLATED if violated else Outcome.STANDS,
        meaning=meaning,
        measure="noise/claimed",
        found=ratio,
        confidence=confidence,
        noticeable=(
            "more than half of all audits would detect noise whose standard deviation is below "
            f"{least_seen:.4g} times the claimed one"
        ),
        estimator="chi-squared",
    )


def farthest(
    model: LinearModel, anchors: np.ndarray, count: int, seed: int
) -> tuple[LinearModel, Heads] | None:
    """(what was trained on a neighbour of a run, both sides' weights): of some neighbours the one
    whose weights are farthest from the run's; None: none has others.

    Args:
        anchors: [n, ...] features, between which newcomers are put.
        count: how many neighbouring datasets are trained.
    """
    a, b = segments(model, anchors, count, np.random.default_rng(seed))
    mine, pairs = model.trained.weight.numpy(), list[tuple[LinearModel, Heads]]()
    for edit, other in neighbours(model, (a + (b - a) / 2).astype(a.dtype), count):
        head = other.linear_head
        assert head is not None
        where = f"two datasets were used: the run's own data, and the same data {edit}"
        pairs.append((head, Heads(mine, head.trained.weight.numpy(), model.l2_sensitivity, where)))
    return max(
        (pair for pair in pairs if pair[1].apart), key=lambda pair: pair[1].apart, default=None
    )


# -- objective perturbation
# --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problems:
    """Two neighbours' problems.

    Attributes:
        first, second: without tilt.
        shape: their public constants.
        where: which datasets, in words.
    """

    first: ErmWithLinearTerm
    second: ErmWithLinearTerm
    shape: ProblemConstants
    where: str

    @classmethod
    def line(cls, shape: ProblemConstants, pulls: int, rows: int = 1) -> "Problems":
        """Records along one line: some of class 0, and the same with newcomers of class 1."""
        x, y = np.zeros((pulls + rows, shape.width)), np.repeat([0, 1], [pulls, rows])
        x[:, 0] = 1.0
        few, more = (
            ErmWithLinearTerm.from_labels(x[:n], y[:n], shape.strength, shape.clamp)
            for n in (pulls, pulls + rows)
        )
        added = "one more record" if rows == 1 else f"{rows} rows of one unit (person)"
        return cls(
            few,
            more,
            shape,
            f"no run and no data were used: the audit compares a made-up dataset of {pulls} "
            "records of one class (all with the same features) with the same dataset plus "
            f"{added} of another class",
        )

    @classmethod
    def of_run(
        cls, model: LinearModel, other: LinearModel, weight_decay: float | None, where: str
    ) -> "Problems":
        """Of a run and what was trained on a neighbour."""
        shape = ProblemConstants.from_head(model, weight_decay)
        return cls(build_problem(model, shape), build_problem(other, shape), shape, where)

    def score(self, theta: np.ndarray, tilt: float) -> float:
        """The logarithm of the second side's density over the first's, but for the determinants
        of wide problems.
        """
        before, after = (
            float(np.sum(side.gradient(theta) ** 2)) for side in (self.first, self.second)
        )
        loss = (before - after) / (2 * tilt**2)
        if len(theta) > MAX_DETERMINANTS:
            return loss
        less, more = (
            float(np.linalg.slogdet(side.hessian(theta))[1]) for side in (self.first, self.second)
        )
        return loss + more - less


def audit_objective(
    guarantee: ApproximateDP,
    problems: Problems,
    noises: ObjectiveNoises,
    plan: TrialPlan,
    on_done: OnDone = lambda done: None,
) -> tuple[Finding, ...]:
    """What is shown by releases of a pair.

    Args:
        noises: that releases draw.
        on_done: told how many releases of both sides, ``4 plan.trials``, were drawn.
    """
    drawn, records, squares = 0, problems.shape.records, 0.0
    # two bounds share the error probability
    plan = replace(plan, confidence=(1 + plan.confidence) / 2)

    def draw(side: ErmWithLinearTerm, count: int) -> np.ndarray:
        nonlocal drawn, squares
        scores, start = np.empty(count), solve(side, noises.tolerance, max_records=records)
        for trial in range(count):
            theta = draw_perturbed_minimiser(
                side, noises, max(records, len(side.x)), plan.source, start
            )
            scores[trial], drawn = problems.score(theta, noises.tilt), drawn + 1
            squares += float(np.sum(side.gradient(theta) ** 2)) / noises.tilt**2
            on_done(drawn)
        return scores

    how = (
        "an attacker distinguishes the two datasets by the likelihood ratio of the released weights"
    )
    subject = objective_words(guarantee)
    claim = tested(subject, guarantee, how, problems.where, plan)
    shown = attacked(
        (partial(draw, problems.first), partial(draw, problems.second)), claim, plan, None
    )
    return (
        *shown,
        noise_size(subject, squares, drawn * problems.shape.width, plan.confidence, problems.where),
    )


def audit_line(guarantee: ApproximateDP, problems: Problems, noises: ObjectiveNoises) -> Finding:
    """What is known without a draw of a pair along one line."""
    how = (
        "the probability densities of the released weights under both datasets are integrated "
        "along the only direction in which the records' features are not 0"
    )
    exact = line_loss(guarantee, problems, noises.tilt)
    return exact.finding(f"{objective_words(guarantee)}: its table", guarantee, how, problems.where)


def worst_line(
    shape: ProblemConstants, noises: ObjectiveNoises, guarantee: ApproximateDP
) -> Problems:
    """Of a few pairs along one line, the one of the greatest loss."""
    lines = (Problems.line(replace(shape, records=shape.records + pulls), pulls) for pulls in PULLS)
    return max(lines, key=lambda problems: line_loss(guarantee, problems, noises.tilt).rank)


def line_loss(guarantee: ApproximateDP, problems: Problems, tilt: float) -> Exact:
    """The least eps, at the claim's delta, of the minimisers of a pair along one line; of both
    directions the worse.
    """
    strength, clamp = problems.shape.strength, problems.shape.clamp
    reach = (10 * tilt + len(problems.second.x)) / strength
    grid, sides = np.linspace(-reach, reach, GRID), []
    for side in (problems.first, problems.second):
        p = expit(-np.outer((-1.0, 1.0), grid))
        counts = np.array([(side.y < 0).sum(), (side.y > 0).sum()])
        pull = strength * grid + np.array([1.0, -1.0]) * counts @ np.minimum(p, clamp)
        mass = np.exp(-(pull**2) / (2 * tilt**2)) * (
            strength + counts @ np.where(p < clamp, p * (1 - p), 0)
        )
        sides.append(mass / mass.sum())

    def exceeds(eps: float) -> bool:
        pairs = (sides, sides[::-1])
        return (
            max(float(np.maximum(one - math.exp(eps) * other, 0).sum()) for one, other in pairs)
            > guarantee.delta
        )

    value = bisect(exceeds, 0.0, 100.0, midpoint)[0] if exceeds(0.0) else 0.0
    return Exact(value, value > guarantee.eps * (1 + GRID_ERROR))


def objective_words(guarantee: ApproximateDP) -> str:
    """The mechanism with its budget."""
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
        model, other: the two.
        heads: their weights.
    """

    model: LinearModel
    other: LinearModel
    heads: Heads


@dataclass(frozen=True)
class AddedNoiseAttack:
    """Of noise that is added to trained weights."""

    mechanism: ReleaseWeights
    releases_per_trial: ClassVar[int] = 2

    def attack(self, pair: TrainedPair, plan: TrialPlan, on_done: OnDone) -> tuple[Finding, ...]:
        """As ``audit_weights``."""
        return audit_weights(self.mechanism, pair.heads, plan, on_done)

    def without_run(self, width: int, plan: TrialPlan) -> Audited:
        """Two heads at the distance that the noise is made for."""
        findings = audit_weights(self.mechanism, Heads.without_data(width), plan)
        return Audited(self.mechanism.name, None, findings)


@dataclass(frozen=True)
class LinearTermAttack:
    """Of weights that were solved with a random linear term."""

    mechanism: ObjectivePerturbation
    releases_per_trial: ClassVar[int] = 4

    def attack(self, pair: TrainedPair, plan: TrialPlan, on_done: OnDone) -> tuple[Finding, ...]:
        """As ``audit_objective``."""
        mechanism, where = self.mechanism, pair.heads.where
        problems = Problems.of_run(pair.model, pair.other, mechanism.weight_decay, where)
        noises = mechanism.noise_scales(pair.model)
        return audit_objective(mechanism.guarantee, problems, noises, plan, on_done)

    def without_run(self, width: int, plan: TrialPlan) -> Audited:
        """Records along a line."""
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
        """Refuse what releases no weights, or by a law that there is no attack for."""
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
        """Draw weights for both sides, project them, and count."""
        # else check refused it
        mechanism = cast(WeightsMechanism, given.mechanism().mechanism(2, 1))
        attack = ATTACKS[mechanism.noise_law](mechanism)
        plan = TrialPlan(self.trials, given.confidence)
        if given.run is None:
            return attack.without_run(self.width, plan)
        opened = given.open_with_data(record, console, WEIGHTS_WITHOUT_RUN)
        claim = WeightsRelease.judged(
            opened.model, mechanism, ReleaseTerms(conditions=opened.conditions)
        ).claim
        every = attack.releases_per_trial * plan.trials
        with console.progress("releases on both sides", "release") as report:
            pair = self._trained_pair(opened, mechanism, given.seed)
            found: tuple[Finding, ...] = ()
            if pair is not None:
                found = attack.attack(pair, plan, lambda done: report(done, every, done, every))
        found = found or (
            no_pair_found(
                mechanism,
                self.neighbours,
                "a neighbouring dataset whose model has other weights than the run",
            ),
        )
        notes = (
            claim.text,
            f"models were trained on at most {self.neighbours} of all possible neighbouring "
            "datasets",
        )
        return Audited.of(opened.trained.finished, found, notes)

    def _trained_pair(
        self, opened: OpenedRun, mechanism: WeightsMechanism, seed: int
    ) -> TrainedPair | None:
        """Train some neighbours; return the one whose weights are farthest away, None: none
        differs.
        """
        model, anchors = mechanism.releasable_head(opened.model), opened.queries.features
        if model is not opened.model:  # beside votes it never was trained
            model = model.retrained(model.problem.dataset.train)
        pair = farthest(model, anchors, self.neighbours, seed)
        return None if pair is None else TrainedPair(model, *pair)
