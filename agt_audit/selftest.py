"""agt audit selftest: the auditor must detect every violation that is planted here, and raise no
false alarm on sound code.

A **plant** is a function of a seed: it plants a violation, audits it as a run is audited, and
returns the finding, whose outcome must be ``violated``. ``PLANTED`` has a plant for each kind of
attack. ``SOUND`` has the same audits without a violation, whose outcome must be ``stands``, because
an auditor that always reports a violation would detect every plant. Sound code is audited with the
confidence ``SURE``, so that a false alarm by chance is rare. All draws and trainings follow from
the seed: they use one thread, no compiled code and no further processes.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from torch import Tensor

from agt.api import fit
from agt.bounds.box import Box
from agt.certificates.box import Certificates
from agt.certificates.stability import ClosedFormCertificates, certify_linear
from agt.data.in_memory import Declared
from agt.data.target import NumericTarget
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.mechanism_config import AnyMechanism
from agt.mechanisms.objective import ObjectiveNoises, ProblemConstants
from agt.mechanisms.optimal import RandomizedResponse
from agt.mechanisms.published import SmoothCauchy
from agt.mechanisms.statistics import NoisyStatistics, SumNoiseScales
from agt.mechanisms.weights import ReleaseWeights
from agt.models.box import BoxModel
from agt.models.features import to_integers
from agt.models.fitting import fit as fit_problem
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.votes import NumberVotesModel
from agt.numeric import Randomness, SeededRandomness, gaussian_mu
from agt.problem import Problem
from agt.settings import RelationConfig, schema
from agt.training.batches import BatchPlan
from agt.training.lattice import LATTICE_STEPS, MIDDLE
from agt.training.loop import Noise, OnProgress, ignore_progress
from agt.training.ridge import predict_numbers
from agt.training.settings import NoiseConfig
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark
from agt_audit.added_noise import WeightPair, audit_weights, weights_drawn
from agt_audit.certificate import Certificate
from agt_audit.certificate_attacks import BATCHES, LABELS_WITHIN_BOUNDS, ON_RECORD_AGAIN, Auditor
from agt_audit.certificate_findings import (
    CERTIFIED_LABELS,
    NESTING_BOXES,
    PARAMETERS,
    STABLE_DISTANCES,
)
from agt_audit.claims import Claimed, TestedClaim
from agt_audit.dpsgd import Adversary, TrainingEffort, audit_training, judge_training
from agt_audit.edited_records import without
from agt_audit.estimates import Mistakes
from agt_audit.forget_sets import Attack, RemovedRows
from agt_audit.influence import neighbours
from agt_audit.intervals import audit_intervals
from agt_audit.job import Audited, AuditInputs, AuditKind, counted_progress
from agt_audit.kind_settings import SelftestSettings
from agt_audit.label_pairs import (
    NeighbourPair,
    Side,
    audit_pair,
    audit_synthetic_pairs,
    exact_loss,
    table_finding,
)
from agt_audit.neighbours import retrained
from agt_audit.noisy_training import NoisyTraining
from agt_audit.numbers import SumPair, audit_synthetic_sums, drawn_finding
from agt_audit.objective import ProblemPair, audit_line, audit_objective
from agt_audit.page import found
from agt_audit.pairs import LabellingPair, between_roots, choose_query, similar_queries
from agt_audit.replay import ReplayedRelease
from agt_audit.trials import TrialPlan
from agt_audit.unlearning_claims import ModelState, Unlearn, audit_unlearning
from agt_cli.report.console import Console
from agt_cli.report.findings import (
    CAUGHT,
    PASSED,
    Finding,
    Outcome,
    Strength,
    exact_finding,
)
from agt_cli.report.record import RunRecord

SURE = 0.9999
T = TypeVar("T")
Plant = Callable[[int], Finding]
"""seed -> the finding of an audit of code with a planted violation, or of sound code."""
COMPUTE = {"threads": 1, "kernel": "reference"}


def first_violated(findings: Iterable[Finding]) -> Finding:
    """Return the first finding that is violated; if none is, the first finding of all."""
    return max(findings, key=lambda finding: finding.violated)


def synthetic_records(seed: int, count: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return synthetic features [n, 3], and labels [n]: is the first feature plus noise above 0?

    Args:
        seed: the seed of the features and of the noise.
        count: n, how many records.
        spread: the standard deviation of the noise.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3))
    noise = spread * rng.normal(size=count)
    return features, (features[:, 0] + noise > 0).astype(int)


def train_small_model(x: np.ndarray, y: np.ndarray, **settings: Any) -> Model:
    """Train a small model of two classes, with all conditions of a privacy claim declared.

    Args:
        x: [n, ...] the records' features.
        y: [n] their labels, 0 or 1.
        settings: further arguments of ``agt.fit``.
    """
    declared = Declared(classes=[0, 1], size=len(x), features=True, settings=True)
    return fit(x, y, declared=declared, compute=COMPUTE, **settings).model


# -- mechanisms
# --------------------------------------------------------------------------------------------------

DIFFERING = NeighbourPair(Side(1, 0), Side(0, 0))
# objective perturbation: its guarantee, the public constants of a problem, and its noise scales
OBJECTIVE_GUARANTEE = ApproximateDP(0.5, 1e-3)
SHAPE = ProblemConstants(50.0, 1.0, 40, 1)
NOISES = ObjectiveNoises.from_budget(SHAPE, OBJECTIVE_GUARANTEE.eps, OBJECTIVE_GUARANTEE.delta)


@dataclass(frozen=True)
class LeakyMechanism:
    """A mechanism that has the claim of one mechanism, and draws as another.

    Attributes:
        claimed: the mechanism whose guarantee and table it has.
        drawing: the mechanism that draws.
    """

    claimed: Mechanism | LaplaceMean
    drawing: Mechanism | LaplaceMean

    def __getattr__(self, name: str) -> object:
        owner = self.drawing if name == "release" else self.claimed
        return getattr(owner, name)


def seeded_plan(seed: int, trials: int = 10_000, confidence: float = 0.95) -> TrialPlan:
    """Return a plan of trials whose draws follow from the seed."""
    return TrialPlan(trials, confidence, source=SeededRandomness(seed))


def twice_the_budget(seed: int) -> Finding:
    """Plant: randomized response that claims epsilon 1 and draws as for 2."""
    mechanism = LeakyMechanism(RandomizedResponse(eps=1.0), RandomizedResponse(eps=2.0))
    return audit_pair(mechanism, DIFFERING, seeded_plan(seed), 0).drawn  # type: ignore[arg-type]


def the_budget(seed: int) -> Finding:
    """Sound: randomized response that draws as it claims, audited ten times.

    In about half of these audits the counted rates themselves contradict the claim, but their
    confidence limits do not.
    """
    findings = []
    for index in range(10):
        plan = seeded_plan(10 * seed + index, 1000, SURE)
        findings.append(audit_pair(RandomizedResponse(eps=1.0), DIFFERING, plan, 0).drawn)
    return first_violated(findings)


def the_best_of_many(seed: int) -> Finding:
    """Sound: given counts, which are the best of 1,000 events; the seed is not used.

    The same counts of a single event would contradict epsilon 1.
    """
    tested = TestedClaim(
        subject="counts",
        claim="the counts come from a mechanism with epsilon 1",
        attack="an attacker chose the best of 1,000 events",
        effort="1,000 trials were made with the record and 1,000 without it",
        claimed=Claimed("epsilon", 1.0),
        confidence=0.95,
        events=1000,
    )
    return tested.judge(Mistakes(230, 1000, 230, 1000))


def gap_of_the_grid(seed: int) -> Finding:
    """Plant: smooth_cauchy with epsilon 1, and stable distances that can only be 0 or 50.

    So one record can change the distance by 50. The finding is one from draws.
    """
    _, *drawn = audit_synthetic_pairs(SmoothCauchy(eps=1.0), (0, 50), seeded_plan(seed))
    return first_violated(drawn)


def jump_of_the_evidence(seed: int) -> Finding:
    """Plant: smooth_cauchy with evidence that differs by 50 on neighbouring datasets.

    Nothing is drawn, and the seed is not used.
    """
    mechanism = SmoothCauchy(eps=1.0)
    pair = NeighbourPair(Side(1, 50), Side(1, 0))
    return table_finding(mechanism, exact_loss(mechanism, pair), str(pair))


def half_the_noise(seed: int, sensitivity: float = 0.5, confidence: float = 0.95) -> Finding:
    """Plant: released weights whose noise is scaled for half the sensitivity.

    Args:
        seed: the seed of the draws.
        sensitivity: that for which the noise is scaled; the true one is 1, so 1 is sound.
        confidence: the confidence level of the bounds.
    """
    heads = replace(WeightPair.without_data(1), sensitivity=sensitivity)
    plan = seeded_plan(seed, 200, confidence)
    return audit_weights(ReleaseWeights(mu=1.0), heads, plan).drawn


def less_noise(seed: int, share: float = 0.8, confidence: float = 0.95) -> Finding:
    """Plant: released weights with too little noise, which only the size of the noise reveals.

    The two models are so close to each other that no attack distinguishes their releases.

    Args:
        seed: the seed of the draws.
        share: the noise, as a share of the needed one; 1 is sound.
        confidence: the confidence level of the verdict.
    """

    def release(
        theta: np.ndarray, sensitivity: float, guarantee: GaussianDP, source: Randomness
    ) -> np.ndarray:
        return weights_drawn(theta, share * sensitivity, guarantee, source)

    heads = WeightPair(np.full(4, 0.01), np.zeros(4), 1.0)
    plan = seeded_plan(seed, 200, confidence)
    return audit_weights(ReleaseWeights(mu=1.0), heads, plan, release=release).noise_size


class LessNoise(NoisyStatistics):
    """Noisy statistics with 80 % of the needed noise."""

    def noise_scales(self, head: LinearModel) -> SumNoiseScales:
        """Return 80 % of every noise scale."""
        return SumNoiseScales(*(0.8 * noise for noise in astuple(super().noise_scales(head))))


class UntilRight(RandomizedResponse):
    """Randomized response that draws again until the first label is the model's own."""

    def release(self, predictions: np.ndarray, *given: Any) -> np.ndarray:
        """Draw labels again until the first one is the model's own, and return the last draw."""
        labels = super().release(predictions, *given)
        return labels if labels[0] == predictions[0] else self.release(predictions, *given)


def replay_release(seed: int, mechanism: AnyMechanism) -> Finding:
    """Replay a linear head's release on two neighbours, and return the first violated finding."""
    model = train_head(seed)
    queries = model.problem.dataset.train.features
    release = ReplayedRelease(model, queries, mechanism)
    return first_violated(release.findings(2, np.random.default_rng(seed)))


def no_determinant(seed: int) -> Finding:
    """Plant: objective perturbation whose noise is scaled as if the determinants cost nothing.

    Its regularisation (Lambda) is so weak that agt would refuse it. The seed is not used.
    """
    guarantee = ApproximateDP(1.0, 0.01)
    problems = ProblemPair.on_line(replace(SHAPE, strength=0.1), 0)
    too_little = replace(NOISES, tilt=1 / gaussian_mu(guarantee.eps, guarantee.delta))
    return audit_line(guarantee, problems, too_little)


def rows_of_one_unit(seed: int) -> Finding:
    """Plant: objective perturbation with noise for one row per unit, and a unit of twenty rows."""
    problems = ProblemPair.on_line(SHAPE, 30, rows=20)
    return audit_objective(OBJECTIVE_GUARANTEE, problems, NOISES, seeded_plan(seed, 100)).drawn


def objective_perturbation(seed: int) -> Finding:
    """Sound: objective perturbation as agt computes it, by its exact densities and by draws."""
    problems = ProblemPair.on_line(SHAPE, 30)
    plan = seeded_plan(seed, 100, SURE)
    drawn = audit_objective(OBJECTIVE_GUARANTEE, problems, NOISES, plan).drawn
    exact = audit_line(OBJECTIVE_GUARANTEE, problems, NOISES)
    return first_violated((exact, drawn))


# -- labels of agt predict
# --------------------------------------------------------------------------------------------------


def audit_released_labels(seed: int, draws: float = 2.0, confidence: float = 0.95) -> Finding:
    """Plant: labels that claim epsilon 1, and are drawn with another epsilon.

    They are those of two linear heads, one of which is trained without a record, at a query between
    the two decision boundaries.

    Args:
        seed: the seed of the data, the query and the draws.
        draws: the epsilon with which labels are drawn; 1 is sound.
        confidence: the confidence level of the bound.
    """
    features, labels = synthetic_records(seed, 120)
    rng = np.random.default_rng(seed)
    model = train_small_model(features, labels)
    other = retrained(model.problem, without(model.problem.dataset.train, np.array([3])))
    mechanism: Any = LeakyMechanism(RandomizedResponse(eps=1.0), RandomizedResponse(eps=draws))
    with_unit, without_unit = (
        replace(Labelling.judged(side, mechanism.claimed), mechanism=mechanism)
        for side in (model, other)
    )
    pair = LabellingPair(with_unit, without_unit)
    claimed = Claimed("epsilon", 1.0)
    queries = between_roots(pair, features, rng)
    chosen = choose_query(pair, queries, claimed, 10_000, confidence)
    trials = similar_queries(pair, chosen.query, 10_000, rng)
    claim = TestedClaim(
        "labels of two linear models",
        "the labels are released with epsilon 1",
        "a query between the decision lines of the two models",
        "",
        claimed,
        confidence,
    )
    drawn_with = with_unit.labels(trials, SeededRandomness(2 * seed))
    drawn_without = without_unit.labels(trials, SeededRandomness(2 * seed + 1))
    return chosen.event.judge(claim, drawn_with, drawn_without)


# -- private numbers
# --------------------------------------------------------------------------------------------------

NUMBERS = LaplaceMean(eps=1.0)
NUMBER_RANGE = (0.0, 10.0)


class FloatingNoise(LaplaceMean):
    """Laplace noise in double precision, computed as the logarithm of a uniform number."""

    def release(
        self, sums: np.ndarray, members: int, touches: int, source: Randomness
    ) -> np.ndarray:
        """Return released sums that are not rounded to the lattice (the planted violation)."""
        largest = members * LATTICE_STEPS
        uniform = np.array([source.below(2**53) for _ in sums]) / 2.0**53
        signs = np.array([1 - 2 * source.below(2) for _ in sums])
        noise = -np.log1p(-uniform) * signs * touches * LATTICE_STEPS / self.eps
        return np.clip(sums + noise, 0, largest)


class UnclippedMembers(NumberVotesModel):
    """Members whose answers are ten times as far from the middle of the range, and not clipped."""

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """Return each member's answers in steps of the lattice, without clipping them."""
        features = to_integers(phi.astype(np.float64))
        numbers = predict_numbers(features, self.weight[:, 0].numpy(), self.exponents.numpy())
        return np.rint((10 * numbers + 1.0) * MIDDLE).astype(np.int64)


class MembersWithRecords(NumberVotesModel):
    """The mean over the members that have records, whose number depends on the data."""

    def sums(self, features: np.ndarray, on_progress: OnProgress = ignore_progress) -> np.ndarray:
        """Return this mean, multiplied by the number of all members."""
        trained = np.flatnonzero(self.weight[:, 0].numpy().any(axis=1))
        answers = self.labels(self.phi(features))[trained]
        mean = answers.mean(axis=0) if len(answers) else np.full(len(features), MIDDLE)
        return np.rint(mean * len(self.weight)).astype(np.int64)


class RangeOfTheRecords(NumberVotesModel):
    """A model whose range of answers is computed from its records' labels."""

    @property
    def target(self) -> NumericTarget:
        """The range from the smallest to the largest label."""
        labels = self.problem.dataset.train.labels
        return NumericTarget(float(labels.min()), float(labels.max()))


class OneChangedMember(NumberVotesModel):
    """A model whose intervals suppose that an edit changes one member, under every relation."""

    @property
    def members_per_edit(self) -> int:
        """How many members an edit changes: always 1."""
        return 1


def audit_drawn_sums(
    seed: int,
    mechanism: Any = NUMBERS,
    changed: int = 1,
    trials: int = 1000,
) -> Finding:
    """Audit draws of a synthetic sum of two members, with noise for one changed member.

    Args:
        seed: the seed of the draws.
        mechanism: releases the sums.
        changed: how many members' answers differ between the two neighbouring datasets, by the
            whole range; 2 is a violation.
        trials: how many draws choose the event, and how many are counted.
    """
    pair = SumPair(0, changed * LATTICE_STEPS, members=2, touches=1)
    return drawn_finding(mechanism, pair, seeded_plan(seed, trials))


def train_numbers(
    seed: int, count: int = 20, labels: tuple[float, float] = NUMBER_RANGE, **settings: Any
) -> Model:
    """Train a small model of numbers, whose members fit their few records almost exactly.

    Args:
        seed: the seed of the features.
        count: how many records.
        labels: the labels, which records have in turn.
        settings: further arguments of ``agt.fit``.
    """
    x, _ = synthetic_records(seed, count)
    y = np.resize(labels, count)
    declared = Declared(size=count, features=True, settings=True)
    weak_regularisation = {"name": "votes", "strength": 1e-4}
    given = {"members": 8, "certificate": weak_regularisation, "compute": COMPUTE, **settings}
    return fit(x, y, target="numeric", range=NUMBER_RANGE, declared=declared, **given).model


def audit_flawed_intervals(seed: int, kind: type[NumberVotesModel], **settings: Any) -> Finding:
    """Audit the certified intervals of a small model of numbers that has a flaw.

    Args:
        seed: the seed of the data and of the audit.
        kind: the class of models with the flaw; ``NumberVotesModel`` itself is sound.
        settings: further arguments of ``train_numbers``.
    """
    model = make_flawed(kind, train_numbers(seed, **settings))
    queries = model.problem.dataset.train.features
    counts = audit_intervals(cast(Model, model), queries, 12, 2, seed)
    return first_violated(counts.findings("private numbers", len(queries)))


def replay_numbers(seed: int, kind: type[NumberVotesModel], **settings: Any) -> Finding:
    """Replay releases of a small model of numbers on four neighbours, all with a flaw.

    Args:
        seed: the seed of the records and of all random choices.
        kind: the class of models with the flaw.
        settings: further arguments of ``train_numbers``.

    Returns:
        The first violated finding.
    """
    model = train_numbers(seed, **settings)
    queries = model.problem.dataset.train.features
    rng = np.random.default_rng(seed)
    release = ReplayedRelease(cast(Model, make_flawed(kind, model)), queries, NUMBERS)
    return first_violated(
        finding
        for edit, other in neighbours(model, queries[:4], 4)
        for finding in release.pair(cast(Model, make_flawed(kind, other)), edit, rng)
    )


def audit_private_numbers(seed: int, **settings: Any) -> Finding:
    """Sound: private numbers as agt releases them, of synthetic sums and of small models."""
    synthetic = audit_synthetic_sums(NUMBERS, 2, seeded_plan(seed, 500, SURE))
    trained = [replay_numbers(seed, NumberVotesModel, count=count, **settings) for count in (3, 20)]
    return first_violated((*synthetic, *trained))


# -- certificates
# --------------------------------------------------------------------------------------------------

EXTENT = Certificate(
    units=20, neighbours=30, farthest=2, bounded=0, queries=20, lines=6, again=False
)
NO_NEIGHBOURS = replace(EXTENT, units=0, neighbours=0)
ONLY_BOUNDED = replace(NO_NEIGHBOURS, bounded=3)  # only neighbours with all their bounds
ONLY_AGAIN = replace(NO_NEIGHBOURS, again=True)  # only the run itself is trained again
ONE_STEP: dict[str, Any] = {"epochs": 1, "lr": 1.0, "batch": {"count": 1}}
STEP = {"loss": "binary_cross_entropy", "epochs": 1, "lr": 1.0, "clip": 0.1, "dtype": "float64"}


@dataclass(frozen=True)
class OverstatedDistance(BoxModel):
    """A model whose stable distances are some steps of the grid larger than the true ones.

    Attributes:
        more: how many steps; negative: smaller ones.
    """

    more: int

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = ignore_progress,
    ) -> Certificates:
        """Return as certificates for each k those that the model has ``more`` steps before."""
        grid = self.box.ks
        requested_ks = ks or grid
        steps = np.array([grid.index(k) for k in requested_ks]) - self.more
        earlier_ks = np.array(grid)[np.clip(steps, 0, len(grid) - 1)]
        honest = super().certify(features, tuple(earlier_ks.tolist()))
        return replace(honest, ks=requested_ks)


@dataclass(frozen=True)
class StretchedDistance(LinearModel):
    """A head whose stable distances are a multiple of the true ones.

    Attributes:
        times: the multiple.
    """

    times: float

    def certify_phi(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Certify with the sensitivity divided by ``times`` (the planted violation)."""
        honest = self.trained.sensitivity
        sensitivity = replace(
            honest, rho=honest.rho / self.times, rounding=honest.rounding / self.times
        )
        trained = replace(self.trained, sensitivity=sensitivity)
        return certify_linear(trained, phi, self.settings.relation.name, ks)


class OneMoreEdit(LinearModel):
    """A head whose stable distances are too large by one edit."""

    def certify_phi(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Return the head's certificates with distances that are larger by 1."""
        honest = super().certify_phi(phi, ks)
        return replace(honest, distance=honest.distance + 1)


@dataclass(frozen=True)
class CountingProblem(Problem):
    """A problem whose batch plan depends on the number of records, although a size is declared.

    Attributes:
        dealt: True: batches depend on the number; False: the normaliser is computed from it.
    """

    dealt: bool = False

    @property
    def plan(self) -> BatchPlan:
        """The batch plan, which depends on the number of the present records."""
        plan = super().plan
        if self.dealt:
            return replace(plan, key=f"{plan.key}{self.record_count}")
        return replace(plan, normalizer=self.record_count / plan.count)


def train_boxes(
    seed: int, x: np.ndarray | None = None, y: np.ndarray | None = None, **settings: Any
) -> BoxModel:
    """Train a model with boxes, by default for one step.

    Args:
        seed: the seed of synthetic records.
        x: [n, ...] features; None: records are synthetic.
        y: [n] labels; None: records are synthetic.
        settings: further arguments of ``agt.fit``.
    """
    if x is None or y is None:
        x, y = synthetic_records(seed, 40, 0.3)
    given: dict[str, Any] = {"certificate": "box", "ks": 4, **STEP, **settings}
    network = train_small_model(x, y, **given).boxed_network
    assert network is not None
    return network


def with_widened_boxes(model: BoxModel, times: float) -> BoxModel:
    """Return a model whose boxes are ``times`` as wide around the nominal parameters."""
    box = model.box

    def stretched_ends(ends: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: box.nominal[name] + times * (end - box.nominal[name])
            for name, end in ends.items()
        }

    lower = stretched_ends(box.lower)
    upper = stretched_ends(box.upper)
    return replace(model, box=Box.from_ends(box.ks, box.nominal, lower, upper))


def audit_moved_features(seed: int, radius: float) -> Finding:
    """Audit boxes that were computed for features that move by 0.05.

    Args:
        seed: the seed of the data and of the audit.
        radius: the claimed radius; 0.05 is sound.
    """
    model = train_boxes(seed, relation="perturb", radius=0.05)
    relation = RelationConfig("perturb", radius=radius)
    settings = replace(model.problem.settings, relation=relation)
    claiming = replace(model, problem=replace(model.problem, settings=settings))
    return audit_claim(claiming, seed, PARAMETERS)


def make_flawed(kind: type[T], sound: object, **flaw: Any) -> T:
    """Return an object of a flawed class with the fields of a sound one.

    Args:
        kind: a dataclass that inherits from the class of ``sound``, or that class itself.
        sound: the sound object; it is not changed.
        flaw: the fields that only ``kind`` has.
    """
    values = {field.name: getattr(sound, field.name) for field in fields(sound)}  # type: ignore[arg-type]
    return kind(**values, **flaw)


def train_head(seed: int, **settings: Any) -> LinearModel:
    """Train a linear head on synthetic records; ``settings`` are those of ``agt.fit``."""
    head = train_small_model(*synthetic_records(seed, 60), **settings).linear_head
    assert head is not None
    return head


def audit_stretched_distances(
    seed: int, times: float, about: str, extent: Certificate = EXTENT
) -> Finding:
    """Audit a linear head, trained for one step, whose stable distances are too large.

    Args:
        seed: the seed of the data and of the audit.
        times: by which factor they are too large.
        about: the name of the finding that is returned.
        extent: how much the audit tries.
    """
    model = train_head(seed, **ONE_STEP)
    return audit_claim(make_flawed(StretchedDistance, model, times=times), seed, about, extent)


def audit_one_more_edit(seed: int, kind: type[LinearModel] = OneMoreEdit) -> Finding:
    """Audit a head's stable distances by leaving people out of training, one at a time.

    Args:
        seed: the seed of the data and of the audit.
        kind: the class of heads with the flaw; ``LinearModel`` itself is sound.
    """
    model = make_flawed(kind, train_small_model(*synthetic_records(seed, 600)).linear_head)
    return audit_claim(model, seed, CERTIFIED_LABELS, replace(NO_NEIGHBOURS, units=20))


def audit_counting_plan(seed: int, dealt: bool) -> Finding:
    """Plant: batches or a normaliser that depend on the number of records (``CountingProblem``)."""
    model = train_head(seed, batch={"count": 2}, epochs=2, lr=1.0)
    problem = make_flawed(CountingProblem, model.problem, dealt=dealt)
    return audit_claim(replace(model, problem=problem), seed, BATCHES, NO_NEIGHBOURS)


def audit_claim(model: Model, seed: int, about: str, extent: Certificate = EXTENT) -> Finding:
    """Audit a model's certificates, and return the finding with the name ``about``."""
    return Auditor(model, extent, seed).run()[about]


def audit_all_claims(model: Model, seed: int) -> Finding:
    """Audit every claim of a model's certificates, and return the first violated finding."""
    extent = replace(EXTENT, bounded=2, again=True)
    return first_violated(Auditor(model, extent, seed).run().values())


def box_of_other_products(seed: int) -> Finding:
    """Plant: boxes by Rump's midpoint-radius products, in a run that records exact products."""
    settings: dict[str, Any] = {"network": (4,), "epochs": 3}
    rump = replace(
        train_boxes(seed, **settings), box=train_boxes(seed, product="rump", **settings).box
    )
    return audit_claim(rump, seed, ON_RECORD_AGAIN, ONLY_AGAIN)


def memorised_and_certified(seed: int) -> Finding:
    """Plant: records that a large step memorises, and whose stable distances are overstated.

    Each record has a feature that no other record has.
    """
    labels = np.random.default_rng(seed).permutation(np.arange(16) % 2)
    model = train_boxes(seed, np.eye(16) * 4, labels, lr=40.0)
    return audit_claim(make_flawed(OverstatedDistance, model, more=2), seed, CERTIFIED_LABELS)


# -- training with noise
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuieterTraining(NoisyTraining):
    """Training in which only a share of the claimed noise is added.

    Attributes:
        noise_share: the share.
    """

    noise_share: float = 1.0

    def noise_of_run(self, seed: int | None) -> Noise:
        """Return one training's noise, scaled by the share."""
        full_noise = super().noise_of_run(seed)

        def scaled_noise(step: int) -> dict[str, Tensor]:
            return {name: self.noise_share * noise for name, noise in full_noise(step).items()}

        return scaled_noise


def small_noisy_training(
    seed: int, noise_share: float = 1.0, relation: str = "add_remove", spread: float = 1 / 8
) -> NoisyTraining:
    """Train a small linear head, and return its noisy training, with parameters for 60 canaries.

    Args:
        seed: the seed of the data and of the noise.
        noise_share: the share of the claimed noise that is added.
        relation: the relation of the claimed guarantee.
        spread: the standard deviation of the features.
    """
    features = spread * np.random.default_rng(seed).normal(size=(20, 60))
    given = {
        "certificate": "box",
        "ks": 0,
        **STEP,
        "epochs": 2,
        "clip": 0.05,
        "batch": {"count": 1, "n_max": 100},
    }
    problem = train_small_model(features, np.arange(20) % 2, relation=relation, **given).problem
    settings = replace(problem.settings, noise=NoiseConfig(epsilon=1.0, delta=1e-5, seed=seed))
    model = fit_problem(replace(problem, settings=settings)).boxed_network
    assert model is not None
    trainer = QuieterTraining.of(model, model.problem.dataset.train, seed)
    return replace(cast(QuieterTraining, trainer), noise_share=noise_share)


def audit_noisy_training(
    seed: int,
    noise_share: float,
    adversary: Adversary | None = None,
    canary: str = "signs",
    confidence: float = 0.95,
) -> Finding:
    """Audit training that adds a share of its claimed noise.

    Args:
        seed: the seed of the data, the canaries, the coins and the noise.
        noise_share: the share of the claimed noise that is added; 1 is sound.
        adversary: the adversary whose lower bounds are judged; None: the bounds of all adversaries
            and the size of the noise are judged, and the first violated finding is returned.
        canary: the kind of canaries.
        confidence: the confidence level of all bounds together.
    """
    trainer = small_noisy_training(seed, noise_share)
    effort = TrainingEffort(60, 40, confidence, seed)
    single_canary = trainer.canaries(canary, 1, seed)
    several = trainer.canaries(canary, 60, seed)
    audit = audit_training(trainer, single_canary, effort, several)
    if adversary is not None:
        bounds = [bound for bound in audit.bounds if bound.adversary is adversary]
        return judge_training(trainer, single_canary, effort, bounds)
    all_bounds = judge_training(trainer, single_canary, effort, audit.bounds)
    return first_violated((all_bounds, audit.noise_size))


# -- unlearning
# --------------------------------------------------------------------------------------------------

ROWS = 240  # records of ``MeanModel``
REQUESTED = 12  # records that a request asks to erase
WIDTH = 64  # its features: enough for noise of 64 numbers to be known again
SIGMA = 0.005  # the claimed standard deviation of its noise
DRAWS = TrialPlan(4_000)
EXACT = Promise("retrain", True, 0.0, 0.0, True, (Remark("retrained"),))
CLOSE = Promise("newton", False, 1.0, 1e-3, True, (Remark("close", {"eps": 1.0, "delta": 1e-3}),))


def one_request(rows: int = REQUESTED) -> Attack:
    """Return an attack that asks to erase records of one class, which move the mean most."""
    return Attack.at_once(
        f"an erasure request for {rows} records of one class", np.arange(rows) * 2
    )


def adaptive_requests() -> Attack:
    """Return an attack of two requests, whose second asks for the most wrongly labelled records."""

    def most_wrong(scores: np.ndarray) -> RemovedRows:
        order: np.ndarray = np.argsort(scores)
        return order[~np.isin(order, np.arange(REQUESTED) * 2)][:REQUESTED]

    return Attack(
        "a second erasure request, chosen by looking at the model's outputs after the first one",
        (*one_request().requests, most_wrong),
    )


@dataclass
class MeanModel:
    """A model whose weights are the mean of synthetic records, released with Gaussian noise.

    Unlearning removes records from the mean. The defaults are sound.

    Attributes:
        seed: the seed of the records and of the noise.
        removed: requested rows -> the rows that unlearning removes.
        scale: the standard deviation of the noise, divided by the claimed one.
        reused: whether every state has the noise of the first one.
        noisy: whether noise is added at all.
    """

    seed: int
    removed: Callable[[RemovedRows], RemovedRows] = lambda rows: rows
    scale: float = 1.0
    reused: bool = False
    noisy: bool = True

    def __post_init__(self) -> None:
        self.labels = np.arange(ROWS) % 2
        self.rng = np.random.default_rng(self.seed)
        self.x = 0.3 * (self.rng.normal(size=(ROWS, WIDTH)) + self.labels[:, None])

    def begin(self) -> tuple[ModelState, Unlearn]:
        """Return the trained model's state, and a function that removes further rows from it."""
        first = self.retrained(np.empty(0, dtype=np.int64), self.scale)
        noise = first.released_noise if self.reused else None
        removed_rows: list[int] = []

        def unlearn(rows: RemovedRows) -> ModelState:
            removed_rows.extend(self.removed(rows).tolist())
            return self.retrained(np.array(removed_rows, dtype=np.int64), self.scale, noise)

        return first, unlearn

    def retrained(
        self, rows: RemovedRows, scale: float = 1.0, noise: np.ndarray | None = None
    ) -> ModelState:
        """Return the state of a model that is trained without some rows.

        Args:
            rows: the rows that are left out.
            scale: the standard deviation of the noise, divided by the claimed one.
            noise: [WIDTH] the noise of the release; None: new noise is drawn.
        """
        values = np.delete(self.x, rows, axis=0).mean(axis=0)
        if not self.noisy:
            return ModelState(values)
        if noise is None:
            noise = scale * self.rng.normal(0, SIGMA, WIDTH)
        noisy_values = values + noise
        return ModelState(
            values,
            claimed_distance=1e-9,
            draw_noise=lambda count: scale * self.rng.normal(0, SIGMA, count),
            noisy_values=noisy_values,
            sigma=SIGMA,
            visible=self.x @ noisy_values * (2 * self.labels - 1),
        )

    def audited(
        self, attacks: Sequence[Attack], claimed: Promise = CLOSE, plan: TrialPlan = DRAWS
    ) -> tuple[Finding, ...]:
        """Attack this method of unlearning, and return the findings about its promise."""
        return audit_unlearning(
            "a mean", self.begin, self.retrained, attacks, lambda: claimed, plan
        ).findings


def audit_flawed_unlearning(measure: str, attack: Attack, seed: int, **flaws: Any) -> Finding:
    """Audit unlearning with flaws, and return the finding with one measure.

    Args:
        measure: the measure of the finding, such as "epsilon".
        attack: the requests to erase.
        seed: the seed of the records and of the noise.
        flaws: fields of ``MeanModel``.
    """
    return next(
        finding
        for finding in MeanModel(seed, **flaws).audited([attack])
        if finding.measure == measure
    )


def audit_retraining(seed: int, remaining: int = 0) -> Finding:
    """Audit unlearning by retraining that keeps some of the requested records; 0 is sound."""
    return MeanModel(seed, lambda rows: rows[remaining:], noisy=False).audited(
        [one_request(60)], EXACT
    )[0]


def audit_sound_removals(seed: int) -> Finding:
    """Sound: unlearning that removes the requested records, with the claimed noise."""
    return first_violated(
        MeanModel(seed).audited(
            [one_request(), adaptive_requests()], plan=replace(DRAWS, confidence=SURE)
        )
    )


PLANTED: dict[str, Plant] = {
    "fault: randomized response that draws labels with twice the budget that it claims": (
        twice_the_budget
    ),
    "fault: mechanism=smooth_cauchy with stable distances that can only be 0 or 50": (
        gap_of_the_grid
    ),
    (
        "fault: mechanism=smooth_cauchy with stable distances that jump between "
        "neighbouring datasets"
    ): (jump_of_the_evidence),
    "fault: released weights whose noise is sized for half the sensitivity": half_the_noise,
    "fault: released weights whose noise is 20 % too small": less_noise,
    "fault: noisy statistics whose noise is 20 % too small": partial(
        replay_release, mechanism=LessNoise(mu=1.0)
    ),
    (
        "fault: randomized response that is drawn again and again until the label is the "
        "model's own"
    ): partial(replay_release, mechanism=UntilRight(eps=1.0)),
    "fault: objective perturbation whose privacy loss omits the Jacobian determinant": (
        no_determinant
    ),
    (
        "fault: objective perturbation with noise for one row per person, although people "
        "have twenty rows"
    ): rows_of_one_unit,
    "fault: labels of two linear models, drawn with epsilon 2 although epsilon 1 is claimed": (
        audit_released_labels
    ),
    "fault: parameter bounds that are 1 % too narrow": lambda seed: audit_claim(
        with_widened_boxes(train_boxes(seed), 0.99), seed, PARAMETERS
    ),
    "fault: parameter bounds computed for feature changes half as large as claimed": partial(
        audit_moved_features, radius=0.1
    ),
    "fault: parameter bounds computed with another training.product than recorded": (
        box_of_other_products
    ),
    (
        "fault: stable distances that are too large by one step in the list of values of k"
    ): lambda seed: audit_claim(
        make_flawed(OverstatedDistance, train_boxes(seed), more=1), seed, CERTIFIED_LABELS
    ),
    "fault: a memorised record whose certificate rules memorisation out": (memorised_and_certified),
    "fault: stable distances that are 5 % too large": partial(
        audit_stretched_distances, times=1.05, about=LABELS_WITHIN_BOUNDS, extent=NO_NEIGHBOURS
    ),
    ("stable distances that are twice too large, detected on a neighbouring dataset"): partial(
        audit_stretched_distances, times=2.0, about=CERTIFIED_LABELS
    ),
    "fault: gradient sums divided by the number of private records": partial(
        audit_counting_plan, dealt=False
    ),
    "fault: batches that depend on the number of records": partial(audit_counting_plan, dealt=True),
    "fault: stable distances that jump between neighbouring datasets": lambda seed: audit_claim(
        make_flawed(OverstatedDistance, train_boxes(seed), more=-2),
        seed,
        STABLE_DISTANCES,
        ONLY_BOUNDED,
    ),
    "fault: parameter bounds that do not lie within those of a neighbouring dataset": lambda seed: (
        audit_claim(with_widened_boxes(train_boxes(seed), 2.0), seed, NESTING_BOXES, ONLY_BOUNDED)
    ),
    "fault: training whose noise is 20 % too small": partial(audit_noisy_training, noise_share=0.8),
    "fault: training that leaves out its noise": partial(
        audit_noisy_training, noise_share=0.0, adversary=Adversary.SUMS
    ),
    "fault: training that leaves out its noise, detected step by step": partial(
        audit_noisy_training, noise_share=0.0, adversary=Adversary.STEPS
    ),
    "fault: training that leaves out its noise, detected by an attack on a single run": partial(
        audit_noisy_training, noise_share=0.0, adversary=Adversary.ONE_RUN, canary="dirac"
    ),
    "fault: stable distances that are too large by 1, detected by leaving people out": (
        audit_one_more_edit
    ),
    "fault: unlearning that removes nothing": partial(
        audit_flawed_unlearning, "epsilon", one_request(), removed=lambda rows: rows[:0]
    ),
    "fault: unlearning that removes other records than those requested": partial(
        audit_flawed_unlearning, "distance/claimed", one_request(), removed=lambda rows: rows + 1
    ),
    "fault: unlearning with a third of the noise": partial(
        audit_flawed_unlearning, "noise/claimed", one_request(), scale=1 / 3
    ),
    "fault: unlearning that uses the same noise for every released state of the model": partial(
        audit_flawed_unlearning, "noise/claimed", adaptive_requests(), reused=True
    ),
    "fault: unlearning by retraining that keeps a record whose erasure was requested": partial(
        audit_retraining, remaining=1
    ),
    "fault: private numbers whose noise is sized for 3 members, although there are 2": partial(
        audit_drawn_sums, mechanism=LeakyMechanism(NUMBERS, LaplaceMean(eps=3 / 2)), trials=4000
    ),
    (
        "fault: private numbers whose noise is sized for one changed member, although replacing "
        "a unit changes two"
    ): partial(audit_drawn_sums, changed=2),
    "fault: private numbers with floating-point noise": partial(
        audit_drawn_sums, mechanism=FloatingNoise(eps=1.0)
    ),
    "fault: private numbers whose members leave the declared range": partial(
        replay_numbers, kind=UnclippedMembers
    ),
    "fault: private numbers that leave out members without records": partial(
        replay_numbers, kind=MembersWithRecords, count=2, members=32
    ),
    "fault: private numbers whose range is that of the records": partial(
        replay_numbers, kind=RangeOfTheRecords, labels=(2.0, 8.0)
    ),
    (
        "fault: intervals of numbers that count one changed member, although replacing a unit "
        "changes two"
    ): partial(audit_flawed_intervals, kind=OneChangedMember, relation="substitute"),
}
SOUND: dict[str, Plant] = {
    "control: randomized response that draws labels with the budget that it claims": the_budget,
    "control: an attack that is counted as the best of 1,000 events": the_best_of_many,
    "control: released weights whose noise is sized for their sensitivity": partial(
        half_the_noise, sensitivity=1.0, confidence=SURE
    ),
    "control: released weights whose noise has the claimed size": partial(
        less_noise, share=1.0, confidence=SURE
    ),
    "control: noisy statistics as agt computes them": partial(
        replay_release, mechanism=NoisyStatistics(mu=1.0)
    ),
    "control: randomized response that draws each label once": partial(
        replay_release, mechanism=RandomizedResponse(eps=1.0)
    ),
    "control: objective perturbation as agt computes it": objective_perturbation,
    "control: labels of two linear models, drawn with the claimed epsilon": partial(
        audit_released_labels, draws=1.0, confidence=SURE
    ),
    "control: parameter bounds as agt computes them": lambda seed: audit_all_claims(
        train_boxes(seed), seed
    ),
    "control: parameter bounds computed for feature changes as large as claimed": partial(
        audit_moved_features, radius=0.05
    ),
    "control: training with the claimed noise": partial(
        audit_noisy_training, noise_share=1.0, confidence=SURE
    ),
    "control: stable distances as agt computes them": partial(
        audit_one_more_edit, kind=LinearModel
    ),
    "control: a linear model as agt trains it": lambda seed: audit_all_claims(
        train_head(seed, **ONE_STEP), seed
    ),
    "control: unlearning that removes the requested records": audit_sound_removals,
    "control: unlearning by retraining, as agt does it": audit_retraining,
    "control: private numbers as agt releases them": audit_private_numbers,
    "control: private numbers as agt releases them, where records are replaced": partial(
        audit_private_numbers, relation="substitute"
    ),
    "control: intervals of numbers as agt computes them": partial(
        audit_flawed_intervals, kind=NumberVotesModel, relation="substitute"
    ),
}


COLUMNS = ("planted", "claims", "found", "noticed", "seconds")


def _verdict(is_flawed: bool, is_right: bool) -> str:
    """Return what the auditor did, in a word.

    Args:
        is_flawed: whether a violation was planted.
        is_right: whether the auditor's finding is the right one.
    """
    if is_flawed:
        return CAUGHT if is_right else "MISSED"
    return PASSED if is_right else "FALSE ALARM"


@schema
class Selftest(SelftestSettings, AuditKind):
    """Audits every planted violation and all sound code, and judges the auditor by the findings."""

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Audit all of ``PLANTED`` and ``SOUND``, and return a finding about the auditor for each.

        A table of the plants is printed on the console.
        """
        plants = [(name, plant, True) for name, plant in PLANTED.items()]
        plants += [(name, plant, False) for name, plant in SOUND.items()]
        findings = []
        rows = []
        label = "planted violations"
        with counted_progress(console, label, "violation", len(plants)) as report:
            for done, (name, plant, is_flawed) in enumerate(plants, 1):
                start = time.monotonic()
                finding = _audit_plant(plant, name, given.seed)
                seconds = round(time.monotonic() - start, 3)
                judged = judge_auditor(name, finding, is_flawed)
                findings.append(judged)
                verdict = _verdict(is_flawed, is_right=not judged.violated)
                rows.append((name, finding.claim, found(finding), verdict, seconds))
                report(done)
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        shown = [[*row[:-1], f"{row[-1]:.1f}"] for row in rows]
        console.table("planted violations", COLUMNS, shown)
        return Audited("the auditor itself", None, tuple(findings), tables={"planted": table})


def _audit_plant(plant: Plant, name: str, seed: int) -> Finding:
    """Return a plant's finding; it is untested if the auditor raises an error of any type."""
    try:
        return plant(seed)
    except Exception as error:
        error_type = type(error).__name__
        reason = f"this is an error in the auditor itself: please report it ({error_type}: {error})"
        return exact_finding(
            subject=name, claim="-", attack="-", effort="-", measure="-", found=None, meaning=reason
        )


def judge_auditor(name: str, finding: Finding, is_flawed: bool) -> Finding:
    """Return the finding about the auditor: it is violated unless the plant's outcome is right.

    Args:
        name: the name of the plant, a key of ``PLANTED`` or ``SOUND``.
        finding: the plant's finding.
        is_flawed: whether the plant has a violation.
    """
    right_outcome = Outcome.VIOLATED if is_flawed else Outcome.NOT_CONTRADICTED
    is_right = finding.outcome is right_outcome  # an untested finding is always wrong
    verdict = _verdict(is_flawed, is_right)
    claim = "the auditor does not contradict this correct claim"
    if is_flawed:
        claim = "the auditor detects this planted violation"
    return Finding(
        subject=name,
        claim=claim,
        attack=finding.attack,
        effort=finding.effort,
        outcome=Outcome.NOT_CONTRADICTED if is_right else Outcome.VIOLATED,
        meaning=f"{verdict}. Audited claim: {finding.claim}; {finding.meaning}",
        measure=_verdict(is_flawed, is_right=True),
        claimed=1.0,
        found=float(is_right),
        strength=Strength.EXACT,
    )
