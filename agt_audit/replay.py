"""agt audit replay: a release recorded on a run, and replayed on its neighbours with every draw
answered from the record.

Formal guarantees
    * What a release publishes is a function of its draws and of the private data. In the replay
      each draw has the answer that it had on D, so whatever is published besides must be equal, bit
      for
      bit: values, claim, error messages, and the number, order and distribution of the draws. A
      difference is a violation, found by one pair.
    * Given the same earlier answers, each draw loses the distance of its two private inputs in
      units of its noise (Gaussian: l2; geometric: l1), or what the table of labels says of the
      two. Losses add up as adaptive composition adds them, and are held against the claim. So a
      replay checks the sensitivity that the noise was made for, on this pair. It does not check
      that a draw has the distribution that it names.
    * Objective perturbation draws its linear term b before it sees data. The replay answers with
      the b' = b + grad F(theta) - grad F'(theta) at which the neighbour has the same minimiser, and
      holds |b' - b| and the determinants against the claim.

Distances, losses and noise are computed by formulas of the audit's own. Two things are asked of
what is checked: the table by which labels are drawn, and the slope of the problem that objective
perturbation solves.

Source: Replaying audits (2602.17454), for the idea.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import Field
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from torch import Tensor

from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.arrays import gathered
from agt.errors import ConfigError
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.objective import ObjectivePerturbation, ProblemConstants, build_problem
from agt.mechanisms.output import Output
from agt.mechanisms.weights_mechanism import NoiseLaw, WeightsMechanism
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
from agt_audit.dpsgd import NoisyTraining
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.mechanism import NeighbourPair, Side, exact_loss
from agt_audit.pairs import neighbours, pair_of, segments
from agt_audit.recorded_draws import Publish, RecordedRandomness, ReplayedRandomness
from agt_audit.weights import trained_head
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, counterexamples
from agt_cli.report.record import RunRecord
from agt_cli.runs.queries import TrainedRun

ROUNDING = 1e-6  # relative; more than double precision loses in the formulas of this module
FAR = 2.0**64  # a share of the guarantee that says "no noise of this kind covers it"
SOLVER_SHARE = 0.01  # of epsilon and delta: what objective perturbation spends on solver error

Composed = Literal["answer", "release"]


def replay(
    subject: str,
    guarantee: Guarantee,
    first: Publish,
    second: Publish,
    where: str,
    *,
    composed: Composed = "release",
    problems: tuple[ErmWithLinearTerm, ErmWithLinearTerm] | None = None,
    source: Randomness | None = None,
) -> tuple[Finding, Finding]:
    """Release on one dataset and replay on a neighbour.

    Args:
        subject: what releases, in words.
        guarantee: that it claims.
        first: releases from one of the datasets, and returns all that is published.
        second: the same of the other dataset.
        where: which datasets, in words.
        composed: what the guarantee is of: each answer, or all draws together.
        problems: of objective perturbation, both sides' problems without linear term.
        source: of the first side's draws; None: the operating system.

    Returns:
        Whether what is published is the same, and whether the noise covers the inputs of the draws.
    """
    recorded = RecordedRandomness(source or SystemRandomness())
    recorded.release(first)
    script = recorded
    linear_term_share = 0.0
    if problems is not None:
        claimed = cast(ApproximateDP, guarantee)
        script, linear_term_share = coupled(recorded, problems, claimed)
    replayed = ReplayedRandomness(script)
    replayed.release(second)
    loss = largest_loss(guarantee, composed, recorded.draws, replayed.draws)
    share = max(linear_term_share, loss)
    if share <= 1 + ROUNDING:
        share = min(share, 1.0)
    attack = (
        "a release was recorded, and repeated on a neighbouring dataset with the same random draws"
    )
    effort = (
        f"{len(recorded.draws)} random draws and {len(recorded.published)} published fields of the "
        f"two releases were compared; {where}"
    )
    different = _published_differences(recorded, replayed)
    listed = "nothing differs"
    if different:
        fields = "; ".join(different)
        listed = f"published fields that differ on the neighbouring dataset: {fields}"
    equal = counterexamples(
        f"{subject}: what is published",
        "with fixed random draws, what a release publishes does not depend on private data",
        attack,
        effort,
        "differences",
        len(different),
        f"{listed}; {effort}",
    )
    inputs = counterexamples(
        f"{subject}: what goes into its random draws",
        str(guarantee),
        attack,
        effort,
        "deviation/bound",
        share,
        "what goes into the random draws (before noise) differs between the two datasets by "
        f"{share:.3g} times the difference that the noise covers. A factor above 1 breaks the "
        "guarantee",
        "this audit detects any difference that is larger than what the noise covers, on this "
        "pair of datasets",
        1.0,
    )
    return equal, inputs


def _published_differences(recorded: RecordedRandomness, replayed: RecordedRandomness) -> list[str]:
    """Return the names of published fields that differ, and a line if draws are missing."""
    before = recorded.published
    after = replayed.published
    different = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            # of a field that only the replay has, what it says: an error message
            different.append(name if name in before else f"{name}: {after[name]}")
    if len(replayed.draws) < len(recorded.draws):
        different.append(
            f"only {len(replayed.draws)} random draws were made on the neighbouring dataset, "
            "fewer than in the recorded release"
        )
    return different


def coupled(
    recorded: RecordedRandomness,
    problems: tuple[ErmWithLinearTerm, ErmWithLinearTerm],
    claimed: ApproximateDP,
) -> tuple[RecordedRandomness, float]:
    """Return the record with the linear term that has the same minimiser on the neighbour.

    Args:
        recorded: its first draw is the linear term, its second the noise on the minimiser.
        problems: both sides' problems, without linear term.
        claimed: by the release.

    Returns:
        The record, and what its linear term loses as a share of what it may lose.
    """
    script = deepcopy(recorded)
    linear_term, solution = recorded.draws[:2]
    minimiser = cast(np.ndarray, solution.private)
    first, second = problems
    moved = first.gradient(minimiser) - second.gradient(minimiser)
    script.answers[0] = script.answers[0] + moved
    first_volume = np.linalg.slogdet(first.hessian(minimiser))[1]
    second_volume = np.linalg.slogdet(second.hessian(minimiser))[1]
    remaining_eps = (1 - SOLVER_SHARE) * claimed.eps - abs(float(first_volume - second_volume))
    if remaining_eps <= 0:
        return script, FAR
    sigma = cast(float, linear_term.public[0])
    mu = float(np.linalg.norm(moved)) / sigma
    return script, mu / allowed_mu(remaining_eps, (1 - SOLVER_SHARE) * claimed.delta)


def largest_loss(
    guarantee: Guarantee, composed: Composed, draws: list[Draw], others: list[Draw]
) -> float:
    """Return the largest loss of what ``composed`` names, as a share of the guarantee.

    Losses of pure guarantees add up; those of Gaussian noise add up as squares. Draws that only one
    side made are left out: that there are such is another finding.
    """
    order: float = 1 if isinstance(guarantee, PureDP) else 2
    if composed == "answer":
        order = np.inf
    losses = [np.zeros(0)]
    for draw, other in zip(draws, others, strict=False):
        if draw.law != "uniform":
            losses.append(losses_of(guarantee, draw, other))
    values = np.concatenate(losses)
    return float(np.linalg.norm(values, order)) if len(values) else 0.0


def losses_of(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """Return what each answer of a draw loses between its two private inputs.

    Args:
        guarantee: that is claimed.
        draw: on one dataset.
        other: the same draw on the neighbour.

    Returns:
        [answers] shares of the guarantee; ``FAR`` where noise of this kind cannot give it.
    """
    if draw.law == "labels":
        return label_losses(guarantee, draw, other)
    if (draw.law == "geometric") != isinstance(guarantee, PureDP):
        return np.array([FAR])  # geometric noise gives pure, Gaussian noise other guarantees
    difference = distance_vector(draw, other)
    if isinstance(guarantee, PureDP):
        eps: Any = draw.public[0]
        sensitivity: Any = draw.public[1]
        return np.array([np.abs(difference).sum() * eps / sensitivity / guarantee.eps])
    sigma: Any = draw.public[0]
    mu = covered_mu(guarantee)
    if not difference.size:  # neither side has a word to count
        return np.zeros(0)
    rows = difference.reshape(len(difference), -1)
    return np.asarray(np.linalg.norm(rows, axis=1) / sigma / mu)


def label_losses(guarantee: Guarantee, draw: Draw, other: Draw) -> np.ndarray:
    """Return what each distinct pair of (label, evidence) loses by the mechanism's own table.

    Arguments as of ``losses_of``; the losses [pairs] are shares of the guarantee.
    """
    mechanism: Any = draw.public[0]
    if mechanism.guarantee != guarantee:
        return np.array([FAR])
    limit = guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.eps
    labels, evidence = cast(Any, draw.private)
    other_labels, other_evidence = cast(Any, other.private)
    states = np.stack([labels, evidence, other_labels, other_evidence])
    losses = []
    for state in np.unique(states, axis=1).T.tolist():
        pair = NeighbourPair(Side(state[0], state[1]), Side(state[2], state[3]))
        losses.append(min(exact_loss(mechanism, pair).rank / limit, FAR))
    return np.array(losses)


def distance_vector(draw: Draw, other: Draw) -> np.ndarray:
    """Return the difference of two private inputs; a word that one side lacks counts 0 there."""
    first: Any = draw.private
    second: Any = other.private
    if isinstance(first, Mapping):
        words = {**first, **second}
        first = [first.get(word, 0) for word in words]
        second = [second.get(word, 0) for word in words]
    return np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)


def covered_mu(guarantee: GaussianDP | ApproximateDP) -> float:
    """Return the largest mu of Gaussian noise that has the guarantee."""
    if isinstance(guarantee, GaussianDP):
        return guarantee.mu
    return allowed_mu(guarantee.eps, guarantee.delta)


def allowed_mu(eps: float, delta: float) -> float:
    """Return the largest mu of Gaussian noise that is (eps, delta)-private.

    Balle and Wang 2018.
    """

    def excess_delta(mu: float) -> float:
        below = math.exp(eps + float(log_ndtr(-eps / mu - mu / 2)))
        return float(ndtr(mu / 2 - eps / mu)) - below - delta

    return float(brentq(excess_delta, 1e-9, 1e3, xtol=1e-15))


# -- what is replayed, and the audit
# -----------------------------------------------------------------------------------


class ReplayedTraining(TrainingRun):
    """A training with noise inside, whose noisy directions are draws of a source.

    Args:
        trainer: the run's training.
        source: that answers the draws.
    """

    def __init__(self, trainer: NoisyTraining, source: Randomness) -> None:
        problem = trainer.problem
        noise = trainer.noise_of_run(None)
        super().__init__(trainer.module, problem.setup, problem.dataset.train, noise=noise)
        self.source = source
        self.sigma = trainer.plan.sigma
        self.nominal = False

    def _after_step(
        self, key: BufferKey, parameter: Tensor, direction: Tensor, sgd_step: SgdStep
    ) -> Tensor:
        """Take the step, and note whether it is one of the nominal parameters."""
        self.nominal = key[0] == "nominal"
        return super()._after_step(key, parameter, direction, sgd_step)

    def _add_noise(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        """Return a noisy direction, which the source may answer from a record."""
        sample = partial(super()._add_noise, name, direction, noise)
        if not self.nominal:  # ends of boxes are not released
            return sample()
        public = (self.sigma, name, self.steps_taken)
        draw = Draw("gaussian", public, np.atleast_1d(direction.numpy()))
        return draw_observably(self.source, draw, lambda source: sample())


def publish_training(model: BoxModel, source: Randomness) -> Mapping[str, object]:
    """Train a run with noise again, on its own records, and return what it publishes."""
    run = ReplayedTraining(NoisyTraining.of(model, model.problem.dataset.train), source)
    with torch.no_grad():
        for rows in run.plan.batches(run.records.units):
            run.step(rows)
    weights = {name: parameter.numpy() for name, parameter in run.point.items()}
    return {**weights, **model.metrics, "steps": run.steps_taken}


@dataclass(frozen=True)
class ReplayedRelease:
    """A release from a run and from its neighbours.

    Attributes:
        model: of the run.
        queries: [n, ...] that labels or a number are released of; neighbours are made to differ
            there.
        mechanism: that releases; None: it is training itself, with noise inside.
        options: of ``ReleaseTerms``: accounting, counting.
        conditions: of the run.
    """

    model: Model
    queries: np.ndarray
    mechanism: AnyMechanism | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()

    def findings(self, count: int, rng: np.random.Generator) -> Iterator[Finding]:
        """Yield what pairs of the run with its neighbours show, two findings for each pair.

        Args:
            count: how many neighbours there are at most.
            rng: of the queries and neighbours that are looked for.
        """
        begin, end = segments(self.model, self.queries, count, rng)
        middle = (begin + (end - begin) / 2).astype(begin.dtype)
        if not len(middle):  # the model answers all queries alike
            middle = np.asarray(self.queries[:count])
        for edit, other in islice(neighbours(self.model, middle, count), count):
            where = f"two datasets were used: the run's own data, and the same data {edit}"
            yield from self.pair(other, where, rng)

    def pair(self, other: Model, where: str, rng: np.random.Generator) -> tuple[Finding, Finding]:
        """Replay a release of the run on one neighbour.

        Args:
            other: the neighbour's model.
            where: which datasets, in words.
            rng: of the queries that are looked for.
        """
        if self.mechanism is None:
            return self._training_pair(other, where)
        mechanism = self.mechanism
        queries = self.queries
        composed: Composed = "release"
        if mechanism.output is Output.LABELS:
            composed = "answer"
            queries = np.concatenate([self.searched(other, mechanism, rng), queries])
        return replay(
            mechanism.name,
            mechanism.guarantee,
            partial(self.publish, self.model, queries),
            partial(self.publish, other, queries),
            where,
            composed=composed,
            problems=_linear_term_problems(mechanism, (self.model, other)),
        )

    def _training_pair(self, other: Model, where: str) -> tuple[Finding, Finding]:
        """Replay the run's training on one neighbour; arguments as of ``pair``."""
        noise = cast(NoiseConfig, self.model.problem.settings.noise)
        claimed = ApproximateDP(noise.epsilon, noise.delta)
        network = cast(BoxModel, self.model.boxed_network)
        other_network = cast(BoxModel, other.boxed_network)
        return replay(
            "training with noise in every step",
            claimed,
            partial(publish_training, network),
            partial(publish_training, other_network),
            where,
        )

    def searched(self, other: Model, mechanism: Any, rng: np.random.Generator) -> np.ndarray:
        """Return queries at which labels or evidence of the two models differ, [m, ...].

        At most about as many are returned as there are queries of the run; none of noisy counts.

        Args:
            other: the neighbour's model.
            mechanism: that releases labels.
            rng: of the queries.
        """
        terms = ReleaseTerms(conditions=self.conditions, **self.options)
        own_labelling = judge_labelling(self.model, mechanism, terms)
        other_labelling = judge_labelling(other, mechanism, terms)
        found = pair_of(own_labelling, other_labelling).chosen_queries(self.queries, rng)
        every = -(-len(found) // len(self.queries)) or 1
        return found[::every]

    def publish(
        self, model: Model, queries: np.ndarray, source: Randomness
    ) -> Mapping[str, object]:
        """Release from a model, and return what is drawn and every entry of the claim.

        Args:
            model: of the run, or of a neighbour.
            queries: [n, ...].
            source: of the draws.
        """
        assert self.mechanism is not None  # otherwise training itself is what is published
        conditions = weaker_conditions(self.conditions, model.conditions)
        terms = ReleaseTerms(conditions=conditions, randomness=source, **self.options)
        release = judge(model, queries, self.mechanism, terms)
        release.reserve()
        drawn: Any = release.draw()
        if isinstance(release, LabelRelease):
            drawn = release.labelling.published(gathered(drawn, len(queries)))
        return {"drawn": drawn, **plain_of(release.reserved_claim.for_file())}


def _linear_term_problems(
    mechanism: AnyMechanism, sides: Sequence[Model]
) -> tuple[ErmWithLinearTerm, ErmWithLinearTerm] | None:
    """Return both sides' problems without the random linear term; None: a release adds none."""
    if mechanism.output is not Output.WEIGHTS:
        return None
    if cast(WeightsMechanism, mechanism).noise_law is not NoiseLaw.LINEAR_TERM:
        return None
    perturbation = cast(ObjectivePerturbation, mechanism)
    first, second = (perturbation.releasable_head(side) for side in sides)
    shape = ProblemConstants.from_head(first, perturbation.weight_decay)
    return build_problem(first, shape), build_problem(second, shape)


@schema
class Replay(AuditKind):
    """Records releases of a run, and replays each on neighbours.

    Attributes:
        neighbours: how many neighbouring datasets are trained, each of which is one pair.
        queries: test records that are asked, besides as many queries that are searched.
    """

    neighbours: Annotated[int, Field(ge=1)] = 2
    queries: Annotated[int, Field(ge=1)] = 100

    name: ClassVar[str] = "replay"

    def check(self, given: AuditInputs) -> None:
        """Refuse a mechanism without a budget, or none.

        Training with noise inside is itself replayed, so it takes no mechanism.

        Raises:
            ConfigError: by key.
        """
        super().check(given)
        noisy = TrainedRun.of({**given.config, "mechanism": None}).settings.noise is not None
        if noisy and given.config.get("mechanism") is not None:
            raise ConfigError(
                f"mechanism=... cannot be given here: run={given.run} was trained with random "
                "noise, so the audit replays its training. Leave mechanism=... out"
            )
        if not noisy:
            given.mechanism()

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Record, replay and compare.

        Raises:
            DataMissing: the run's data is not there.
            ConfigError: the data is not what it was.
        """
        opened = given.open(record, console)
        model = opened.model
        mechanism = None
        if model.problem.settings.noise is None:
            classes = opened.dataset.target.class_count
            mechanism = given.mechanism().mechanism(classes, len(opened.queries))
            if mechanism.output is Output.WEIGHTS:
                model = trained_head(cast(WeightsMechanism, mechanism), model)
        queries = opened.queries.features[: self.queries]
        options = {key: given.config[key] for key in ("accounting", "counting")}
        release = ReplayedRelease(model, queries, mechanism, options, opened.conditions)
        findings = list(release.findings(self.neighbours, np.random.default_rng(given.seed)))
        return Audited.of(opened.trained.finished, findings, NOTES)


NOTES = (
    "a replay compares one release of this run with the same release on the neighbouring "
    "datasets that were tried. It does not detect differences on other data or with other "
    "random draws, nor draws with another distribution than the code states",
)
