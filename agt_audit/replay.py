"""agt audit replay: a release is recorded on a run, and replayed on neighbouring datasets with the
recorded results of all random draws.

Formal guarantees
    * What a release publishes is a function of its draws and of the private data. In the replay,
      each draw has the result that it had on the run's dataset D. So everything that is published
      must be equal, bit for bit: values, claim, error messages, and the number, order and
      distribution of the draws. One pair of datasets on which they differ is a violation.
    * Given the same earlier results, the privacy loss of a draw is the distance of its two private
      inputs in units of its noise (Gaussian: l2; geometric: l1), or follows from the mechanism's
      table of labels. The losses are added up by adaptive composition, and the sum is compared with
      the claim. So a replay checks the sensitivity for which noise was scaled, on this pair. It
      does not check that a draw has the distribution that it states.
    * Objective perturbation draws its linear term b before it reads data. The replay uses
      b' = b + grad F(theta) - grad F'(theta) instead, with which the neighbour has the same
      minimiser theta, and compares |b' - b| and the determinants of the Hessians with the claim.

Distances, losses and noise are computed by the audit's own formulas. Two things are taken from the
code that is audited: the table of probabilities by which labels are drawn, and the gradient of the
problem that objective perturbation solves.

Source: Replaying audits (2602.17454), for the idea.
"""

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from torch import Tensor

from agt.certificates.conditions import weaker_conditions
from agt.data.arrays import gathered
from agt.mechanism_settings import NoiseLaw
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.objective import ObjectivePerturbation, ProblemConstants, build_problem
from agt.mechanisms.output import Output
from agt.mechanisms.weights_mechanism import WeightsMechanism
from agt.models.box import BoxModel
from agt.models.model import Model
from agt.numeric import (
    Draw,
    Randomness,
    SystemRandomness,
    draw_observably,
)
from agt.release import LabelRelease, ReleaseTerms, judge, judge_labelling
from agt.settings import plain_of, schema
from agt.training.checkpoint import Tensors
from agt.training.erm_with_linear_term import ErmWithLinearTerm
from agt.training.loop import SgdStep, TrainingRun
from agt.training.settings import NoiseConfig
from agt.training.sgd import BufferKey
from agt_audit.influence import neighbours
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import ReplaySettings
from agt_audit.label_pairs import NeighbourPair, Side, exact_loss
from agt_audit.lines import points_between_labels
from agt_audit.noisy_training import NoisyTraining
from agt_audit.pairs import pair_of
from agt_audit.recorded_draws import Publish, RecordedRandomness, ReplayedRandomness
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, exact_finding
from agt_cli.report.record import RunRecord

ROUNDING = 1e-6  # relative; above the rounding errors of the formulas of this module
NOT_COVERED = 2.0**64  # in place of a loss, where noise of this kind cannot give the guarantee
SOLVER_SHARE = 0.01  # of epsilon and delta; objective perturbation uses it for solver error
ATTACK = "a release was recorded, and repeated on a neighbouring dataset with the same random draws"

Composed = Literal["answer", "release"]
"""What a guarantee is about: each answer of a release, or all draws of the release together."""


LINEAR_TERM_DRAW = 0
"""The index of the linear term among the draws of objective perturbation."""
SOLUTION_NOISE_DRAW = 1
"""The index of the noise on the solution, whose private input is the minimiser."""


class ReplayFindings(NamedTuple):
    """The findings of one replay.

    Attributes:
        published: whether the published fields of the two releases are equal.
        inputs: whether the noise of the draws covers the difference of their private inputs.
    """

    published: Finding
    inputs: Finding


class ReplayedProblems(NamedTuple):
    """The problems of objective perturbation on two neighbouring datasets, without the linear term.

    Attributes:
        recorded: the problem of the recorded release.
        replayed: the problem of the release that replays it.
    """

    recorded: ErmWithLinearTerm
    replayed: ErmWithLinearTerm


class CoupledRecord(NamedTuple):
    """A record of objective perturbation with which the neighbour has the same minimiser.

    Attributes:
        record: the record, with another linear term.
        loss: the privacy loss of the linear term and of the determinants of the Hessians, as a
            share of what the claim allows.
    """

    record: RecordedRandomness
    loss: float


def replay(
    subject: str,
    guarantee: Guarantee,
    first: Publish,
    second: Publish,
    datasets_note: str,
    *,
    composed: Composed = "release",
    problems: ReplayedProblems | None = None,
) -> ReplayFindings:
    """Release from one dataset, replay the release on a neighbour, and compare the two.

    Args:
        subject: the name of the mechanism or training, for the findings.
        guarantee: the claimed guarantee.
        first: releases from one of the datasets, and returns everything that is published.
        second: releases from the other dataset in the same way.
        datasets_note: a sentence that says which datasets these are.
        composed: what the guarantee is about.
        problems: for objective perturbation; None: the release has no linear term.
    """
    recorded = RecordedRandomness(SystemRandomness())
    recorded.release(first)
    coupled = CoupledRecord(recorded, loss=0.0)
    if problems is not None:
        claimed = cast(ApproximateDP, guarantee)
        coupled = couple_linear_term(recorded, problems, claimed)
    replayed = ReplayedRandomness(coupled.record)
    replayed.release(second)
    loss_of_draws = largest_loss(guarantee, composed, recorded.draws, replayed.draws)
    effort = (
        f"{len(recorded.draws)} random draws and {len(recorded.published)} published fields of the "
        f"two releases were compared; {datasets_note}"
    )
    return ReplayFindings(
        _published_finding(subject, recorded, replayed, effort),
        _inputs_finding(subject, guarantee, max(coupled.loss, loss_of_draws), effort),
    )


def _published_finding(
    subject: str, recorded: RecordedRandomness, replayed: RecordedRandomness, effort: str
) -> Finding:
    """Return the finding about whether the two releases publish the same.

    Args:
        subject: the name of the mechanism or training.
        recorded: the release from one dataset.
        replayed: the same release, replayed on the other dataset.
        effort: how much was compared, in words.
    """
    different = _published_differences(recorded, replayed)
    listed = "nothing differs"
    if different:
        fields = "; ".join(different)
        listed = f"published fields that differ on the neighbouring dataset: {fields}"
    return exact_finding(
        subject=f"{subject}: what is published",
        claim="with fixed random draws, what a release publishes does not depend on private data",
        attack=ATTACK,
        effort=effort,
        measure="differences",
        found=len(different),
        meaning=f"{listed}; {effort}",
    )


def _inputs_finding(subject: str, guarantee: Guarantee, loss: float, effort: str) -> Finding:
    """Return the finding about whether the noise covers the difference of its private inputs.

    Args:
        subject: the name of the mechanism or training.
        guarantee: the claimed guarantee.
        loss: the privacy loss on this pair, as a share of the guarantee.
        effort: how much was compared, in words.
    """
    share = loss
    if share <= 1 + ROUNDING:  # a rounding error is no violation
        share = min(share, 1.0)
    return exact_finding(
        subject=f"{subject}: what goes into its random draws",
        claim=str(guarantee),
        attack=ATTACK,
        effort=effort,
        measure="deviation/bound",
        found=share,
        meaning=(
            "what goes into the random draws (before noise) differs between the two datasets by "
            f"{share:.3g} times the difference that the noise covers. A factor above 1 breaks the "
            "guarantee"
        ),
        noticeable=(
            "this audit detects any difference that is larger than what the noise covers, on this "
            "pair of datasets"
        ),
        max_allowed=1.0,
    )


def _published_differences(recorded: RecordedRandomness, replayed: RecordedRandomness) -> list[str]:
    """Return a text for each difference of what two releases publish; empty: there is none.

    It is the name of a published field that differs, the type and message of an error that only
    the replay raised, or a sentence that says that the replay made fewer draws.
    """
    before = recorded.published
    after = replayed.published
    different = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            # only an error's field is in the replay alone; its value is the error's message
            different.append(name if name in before else f"{name}: {after[name]}")
    if len(replayed.draws) < len(recorded.draws):
        different.append(
            f"only {len(replayed.draws)} random draws were made on the neighbouring dataset, "
            "fewer than in the recorded release"
        )
    return different


def couple_linear_term(
    recorded: RecordedRandomness, problems: ReplayedProblems, claimed: ApproximateDP
) -> CoupledRecord:
    """Replace a recorded linear term by the one with which the neighbour has the same minimiser.

    Args:
        recorded: a record of objective perturbation. It is not changed.
        problems: the problems of both datasets.
        claimed: the claimed guarantee.

    Returns:
        A copy of the record with the other linear term, and its privacy loss: ``NOT_COVERED`` if
        the determinants of the Hessians alone use up the claimed epsilon.
    """
    minimiser = cast(np.ndarray, recorded.draws[SOLUTION_NOISE_DRAW].private)
    # A dataset has this minimiser if its linear term is minus its gradient there, so the two terms
    # differ by this vector, and their densities by a factor that depends on it and on the
    # determinants (Lemma 1 of docs/proofs/objective.md).
    difference = problems.recorded.gradient(minimiser) - problems.replayed.gradient(minimiser)
    coupled = deepcopy(recorded)
    coupled.answers[LINEAR_TERM_DRAW] = coupled.answers[LINEAR_TERM_DRAW] + difference
    recorded_log_det = np.linalg.slogdet(problems.recorded.hessian(minimiser)).logabsdet
    replayed_log_det = np.linalg.slogdet(problems.replayed.hessian(minimiser)).logabsdet
    determinant_loss = abs(float(recorded_log_det - replayed_log_det))
    # The determinants take their share of epsilon first, and the Gaussian noise must cover the
    # difference with the rest (Lemma 3 of docs/proofs/objective.md, of this pair instead of the
    # worst one).
    remaining_eps = (1 - SOLVER_SHARE) * claimed.eps - determinant_loss
    if remaining_eps <= 0:
        return CoupledRecord(coupled, NOT_COVERED)
    sigma = cast(float, recorded.draws[LINEAR_TERM_DRAW].public[0])
    mu = float(np.linalg.norm(difference)) / sigma
    loss = mu / allowed_mu(remaining_eps, (1 - SOLVER_SHARE) * claimed.delta)
    return CoupledRecord(coupled, loss)


def largest_loss(
    guarantee: Guarantee, composed: Composed, draws: list[Draw], draws_on_other: list[Draw]
) -> float:
    """Return the privacy loss of draws on one pair of datasets, as a share of a claim.

    It is the largest loss of a single answer, or that of all draws together: the sum of their
    losses if the guarantee is pure, otherwise the root of the sum of squares.

    Args:
        guarantee: the claimed guarantee.
        composed: "answer": the largest loss of a single answer; "release": that of all draws.
        draws: the draws on one dataset.
        draws_on_other: the draws on the neighbouring dataset. If one list is longer, its further
            draws are left out, because ``_published_differences`` reports them.

    Returns:
        The loss divided by the claimed one; 0 if nothing but uniform numbers was drawn.
    """
    order: float = 1 if isinstance(guarantee, PureDP) else 2
    if composed == "answer":
        order = np.inf
    losses = [np.zeros(0)]
    for draw, other_draw in zip(draws, draws_on_other, strict=False):
        if draw.law != "uniform":  # uniform numbers have no private input
            losses.append(losses_of_answers(guarantee, draw, other_draw))
    values = np.concatenate(losses)
    return float(np.linalg.norm(values, order)) if len(values) else 0.0


def losses_of_answers(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """Return the privacy loss of each answer of a draw, on one pair of datasets.

    Args:
        guarantee: the claimed guarantee.
        draw: the draw on one dataset: "labels", "geometric" or "gaussian".
        other: the same draw on the neighbour.

    Returns:
        [answers] losses divided by the claimed one; [``NOT_COVERED``] if noise of this kind cannot
        give such a guarantee.
    """
    if draw.law == "labels":
        return _losses_of_labels(guarantee, draw, other)
    if (draw.law == "geometric") != isinstance(guarantee, PureDP):
        # geometric noise gives pure guarantees only, and Gaussian noise others only
        return np.array([NOT_COVERED])
    difference = input_difference(draw, other)
    if isinstance(guarantee, PureDP):
        eps, sensitivity = cast(Any, draw.public[:2])
        return np.array([np.abs(difference).sum() * eps / sensitivity / guarantee.eps])
    sigma: Any = draw.public[0]
    mu = largest_mu(guarantee)
    if not difference.size:  # counts of words, of which neither dataset has any
        return np.zeros(0)
    rows = difference.reshape(len(difference), -1)
    return np.asarray(np.linalg.norm(rows, axis=1) / sigma / mu)


def _losses_of_labels(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """Return the privacy losses of released labels, by the mechanism's own table of probabilities.

    Args:
        guarantee: the claimed guarantee.
        draw: the draw of labels on one dataset.
        other: the same draw on the neighbour.

    Returns:
        [pairs] losses divided by the claimed one, one for each distinct pair of a (label, evidence)
        on one dataset and one on the other; [``NOT_COVERED``] if the mechanism states another
        guarantee than the claimed one.
    """
    mechanism: Any = draw.public[0]
    if mechanism.guarantee != guarantee:
        return np.array([NOT_COVERED])
    limit = guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.eps
    labels, evidence = cast(Any, draw.private)
    other_labels, other_evidence = cast(Any, other.private)
    states = np.stack([labels, evidence, other_labels, other_evidence])
    losses = []
    for state in np.unique(states, axis=1).T.tolist():
        pair = NeighbourPair(Side(state[0], state[1]), Side(state[2], state[3]))
        losses.append(min(exact_loss(mechanism, pair).rank / limit, NOT_COVERED))
    return np.array(losses)


def input_difference(draw: Draw, other: Draw) -> np.ndarray:
    """Return the difference of a draw's private inputs on two datasets, in float64.

    Inputs are arrays of one shape, or counts of words (a mapping); a word that one of the datasets
    lacks has the count 0 there.
    """
    first: Any = draw.private
    second: Any = other.private
    if isinstance(first, Mapping):
        every_word = {**first, **second}
        first = [first.get(word, 0) for word in every_word]
        second = [second.get(word, 0) for word in every_word]
    return np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)


def largest_mu(guarantee: GaussianDP | ApproximateDP) -> float:
    """Return the largest mu for which mu-GDP implies a guarantee."""
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    return allowed_mu(guarantee.eps, guarantee.delta)


def allowed_mu(eps: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (eps, delta)-DP (Balle and Wang 2018).

    Both must be above 0. It is computed here, without the accountant that is audited.
    """

    def excess_delta(mu: float) -> float:
        below = math.exp(eps + float(log_ndtr(-eps / mu - mu / 2)))
        return float(ndtr(mu / 2 - eps / mu)) - below - delta

    return float(brentq(excess_delta, 1e-9, 1e3, xtol=1e-15))


# -- what is replayed, and the audit
# --------------------------------------------------------------------------------------------------


class ReplayedTraining(TrainingRun):
    """A training with noise in each step, whose noisy gradient sums a given source draws.

    Args:
        trainer: the run's training, with its records and its claimed noise.
        source: answers the draws: it records them, or replays recorded ones.

    Attributes:
        sigma: the standard deviation of the noise.
        is_nominal: whether the step that is being taken is one of the nominal parameters, not of
            an end of a box.
    """

    def __init__(self, trainer: NoisyTraining, source: Randomness) -> None:
        problem = trainer.problem
        noise = trainer.noise_of_run(None)
        super().__init__(trainer.module, problem.setup, problem.dataset.train, noise=noise)
        self.source = source
        self.sigma = trainer.plan.sigma
        self.is_nominal = False

    def _after_step(
        self, key: BufferKey, parameter: Tensor, direction: Tensor, sgd_step: SgdStep
    ) -> Tensor:
        """Return the parameter after a step, and set ``is_nominal`` for ``_add_noise``."""
        self.is_nominal = key[0] == "nominal"
        return super()._after_step(key, parameter, direction, sgd_step)

    def _add_noise(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        """Return a direction with noise; of a nominal parameter, the source answers the draw."""
        sample = partial(super()._add_noise, name, direction, noise)
        if not self.is_nominal:  # ends of boxes are not released
            return sample()
        public = (self.sigma, name, self.steps_taken)
        draw = Draw("gaussian", public, np.atleast_1d(direction.numpy()))
        return draw_observably(self.source, draw, lambda source: sample())


def publish_training(model: BoxModel, source: Randomness) -> Mapping[str, object]:
    """Train a model with noise again, on its own records, and return everything that is published.

    Args:
        model: a run's model, or that of a neighbour, with the records that it was trained on.
        source: the randomness of the noise.

    Returns:
        Name of a field -> value: each parameter, the model's metrics, and "steps", the number of
        steps that were taken.
    """
    run = ReplayedTraining(NoisyTraining.of(model, model.problem.dataset.train), source)
    with torch.no_grad():
        for rows in run.plan.batches(run.records.units):
            run.step(rows)
    weights = {name: parameter.numpy() for name, parameter in run.point.items()}
    return {**weights, **model.metrics, "steps": run.steps_taken}


@dataclass(frozen=True)
class ReplayedRelease:
    """A release from a run, which can be replayed on neighbouring datasets.

    Attributes:
        model: the run's model.
        queries: [n, ...] the queries that are released about; neighbouring datasets are made to
            change their answers.
        mechanism: the mechanism that releases; None: training itself, with noise in each step.
        terms: how releases are judged; those of training are not used.
    """

    model: Model
    queries: np.ndarray
    mechanism: AnyMechanism | None = None
    terms: ReleaseTerms = field(default_factory=ReleaseTerms)

    def findings(self, count: int, rng: np.random.Generator) -> Iterator[Finding]:
        """Train on neighbouring datasets, replay the release on each, and yield the findings.

        Args:
            count: the largest number of neighbouring datasets.
            rng: draws the queries at which they are made to differ.

        Yields:
            Two findings for each dataset: whether the published fields are equal, and whether the
                noise covers the difference of the private inputs.
        """
        points = points_between_labels(self.model, self.queries, count, rng)
        for datasets_note, other in islice(neighbours(self.model, points, count), count):
            yield from self.pair(other, datasets_note, rng)

    def pair(self, other: Model, datasets_note: str, rng: np.random.Generator) -> ReplayFindings:
        """Record a release from the run, replay it on one neighbour, and compare them.

        Args:
            other: the neighbour's model.
            datasets_note: a sentence that says which datasets these are.
            rng: draws the queries that are added to ``queries`` if labels are released.
        """
        if self.mechanism is None:
            return self._replay_training(other, datasets_note)
        mechanism = self.mechanism
        queries = self.queries
        composed: Composed = "release"
        if mechanism.output is Output.LABELS:
            composed = "answer"
            queries = np.concatenate([self.differing_queries(other, mechanism, rng), queries])
        return replay(
            mechanism.name,
            mechanism.guarantee,
            partial(self.publish, self.model, queries),
            partial(self.publish, other, queries),
            datasets_note,
            composed=composed,
            problems=_linear_term_problems(mechanism, self.model, other),
        )

    def _replay_training(self, other: Model, datasets_note: str) -> ReplayFindings:
        """Do what ``pair`` does, for the run's training instead of a mechanism."""
        noise = cast(NoiseConfig, self.model.problem.settings.noise)
        claimed = ApproximateDP(noise.epsilon, noise.delta)
        network = cast(BoxModel, self.model.boxed_network)
        other_network = cast(BoxModel, other.boxed_network)
        return replay(
            "training with noise in every step",
            claimed,
            partial(publish_training, network),
            partial(publish_training, other_network),
            datasets_note,
        )

    def differing_queries(
        self, other: Model, mechanism: Any, rng: np.random.Generator
    ) -> np.ndarray:
        """Search queries at which labels or evidence of the two models are likely to differ.

        Args:
            other: the neighbour's model.
            mechanism: a mechanism that releases labels or numbers.
            rng: draws the lines on which queries are searched.

        Returns:
            [m, ...], of which there are at most about as many as ``queries``. It is empty if none
            is found, or if the mechanism adds noise to vote counts of more than two classes.
        """
        run_labelling = judge_labelling(self.model, mechanism, self.terms)
        other_labelling = judge_labelling(other, mechanism, self.terms)
        differing = pair_of(run_labelling, other_labelling).chosen_queries(self.queries, rng)
        stride = max(1, math.ceil(len(differing) / len(self.queries)))
        return differing[::stride]

    def publish(
        self, model: Model, queries: np.ndarray, source: Randomness
    ) -> Mapping[str, object]:
        """Release from a model, and return everything that is published.

        Args:
            model: the run's model, or that of a neighbour.
            queries: [n, ...] the queries that are released about.
            source: the randomness of the draws.

        Returns:
            "drawn" -> what was drawn, and the name of each entry of the claim -> its value.
        """
        assert self.mechanism is not None  # ``pair`` replays training otherwise
        own_conditions = self.terms.conditions_of(self.model)
        conditions = weaker_conditions(own_conditions, model.conditions)
        terms = replace(self.terms, conditions=conditions, randomness=source)
        release = judge(model, queries, self.mechanism, terms)
        release.reserve()
        drawn: Any = release.draw()
        if isinstance(release, LabelRelease):
            drawn = release.labelling.published(gathered(drawn, len(queries)))
        return {"drawn": drawn, **plain_of(release.reserved_claim.for_file())}


def _linear_term_problems(
    mechanism: AnyMechanism, model: Model, other: Model
) -> ReplayedProblems | None:
    """Return the problems of a run's model and of a neighbour's, without the random linear term.

    None: the mechanism draws no such term, so it is not objective perturbation.
    """
    if mechanism.output is not Output.WEIGHTS:
        return None
    if cast(WeightsMechanism, mechanism).noise_law is not NoiseLaw.LINEAR_TERM:
        return None
    perturbation = cast(ObjectivePerturbation, mechanism)
    head = perturbation.releasable_head(model)
    other_head = perturbation.releasable_head(other)
    # The constants are public, so they are the same for both datasets.
    constants = ProblemConstants.from_head(head, perturbation.weight_decay)
    return ReplayedProblems(build_problem(head, constants), build_problem(other_head, constants))


@schema
class Replay(ReplaySettings, AuditKind):
    """Records releases of a run, and replays each on a neighbouring dataset.

    Attributes:
        neighbours: the largest number of neighbouring datasets; a release is recorded for each.
        queries: how many test records are used as queries; if labels are released, about as many
            further queries are searched.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Record a release for each neighbouring dataset, replay it there, and compare the two.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the data was changed.
        """
        opened = given.open(record, console)
        model = opened.model
        mechanism = None
        if model.problem.settings.noise is None:
            classes = opened.dataset.target.class_count
            mechanism = given.mechanism().mechanism(classes, len(opened.queries))
            if mechanism.output is Output.WEIGHTS:
                head = cast(WeightsMechanism, mechanism).releasable_head(model)
                # a model without such weights (votes) has a head that is not trained yet
                model = head if head is model else head.retrained(head.problem.dataset.train)
        queries = opened.queries.features[: self.queries]
        release = ReplayedRelease(model, queries, mechanism, given.release_terms(opened))
        findings = list(release.findings(self.neighbours, np.random.default_rng(given.seed)))
        return Audited.of(opened.trained.finished, findings, NOTES)


NOTES = (
    "a replay compares one release of this run with the same release on the neighbouring "
    "datasets that were tried. It does not detect differences on other data or with other "
    "random draws, nor draws with another distribution than the code states",
)
