"""agt audit selftest: every planted violation must be found, and no sound twin; an auditor that
fails one is broken.

A **plant** is a function of a seed that plants a violation, audits it as a run would be audited,
and returns the finding, whose outcome must be ``violated``. ``PLANTED`` has one for each path of
attack. ``SOUND`` has the same without the flaw, whose finding must not be: an auditor that accuses
everybody would find everything that is planted. Sound twins are audited with confidence ``SURE``,
so that one is hardly ever accused by chance. What they draw and train follows from the seed alone:
one thread, nothing compiled, no processes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import pandas as pd
from torch import Tensor

from agt.api import fit
from agt.bounds.box import Box
from agt.certificates.box import Certificates
from agt.certificates.stability import ClosedFormCertificates, certify_linear
from agt.data.labelled import Declared
from agt.data.target import NumericTarget
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP
from agt.mechanisms.labelling import Labelling
from agt.mechanisms.laplace_mean import LaplaceMean, NumberLabelling
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
from agt.training.loop import Noise, OnProgress
from agt.training.ridge import predict_numbers
from agt.training.settings import NoiseConfig
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark
from agt_audit.certificate import (
    BATCHES,
    CERTIFIED_LABELS,
    LABELS_WITHIN_BOUNDS,
    MEMORISATION,
    NESTING_BOXES,
    ON_RECORD_AGAIN,
    PARAMETERS,
    STABLE_DISTANCES,
    Auditor,
    Certificate,
)
from agt_audit.dpsgd import (
    ONE_RUN,
    STEPS,
    SUMS,
    NoisyTraining,
    TrainingEffort,
    audit,
    judged as judge_training,
)
from agt_audit.estimates import Claimed, Mistakes, TestedClaim
from agt_audit.intervals import audit_intervals
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.mechanism import (
    NeighbourPair,
    Side,
    audit_pair,
    exact_loss,
    expected_bound,
    search,
    table_finding,
)
from agt_audit.membership_attack import compare_labels
from agt_audit.neighbours import retrained, without
from agt_audit.numbers import (
    MADE_UP,
    NumberSide,
    SumPair,
    audit_sums_alone,
    drawn_findings,
    farthest_sums,
    law_finding,
    published_finding,
)
from agt_audit.page import found
from agt_audit.pairs import LabellingPair, NumberPair, between_roots, neighbours
from agt_audit.prediction import alike, judged, most_telling
from agt_audit.replay import ReplayedRelease
from agt_audit.trials import TrialPlan
from agt_audit.unlearning import Attack, ModelState, RemovedRows, Unlearn, audit_unlearning
from agt_audit.weights import (
    Heads,
    Problems,
    audit_line,
    audit_objective,
    audit_weights,
    weights_drawn,
)
from agt_cli.report.console import Console
from agt_cli.report.findings import (
    CAUGHT,
    PASSED,
    Finding,
    Outcome,
    Strength,
    counterexamples,
)
from agt_cli.report.record import RunRecord

SURE = 0.9999
T = TypeVar("T")
Plant = Callable[[int], Finding]
COMPUTE = {"threads": 1, "kernel": "reference"}


def worst(findings: Iterable[Finding]) -> Finding:
    """Return a finding that is violated, if there is any; otherwise the first."""
    return max(findings, key=lambda finding: finding.violated)


def crowd(seed: int, count: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return made-up features [n, 3], and labels [n]: whether the first is above 0, but for noise.

    Args:
        seed: of the features and of the noise.
        count: how many records, n.
        spread: standard deviation of the noise.
    """
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 3))
    noise = spread * rng.normal(size=count)
    return features, (features[:, 0] + noise > 0).astype(int)


def fitted(x: np.ndarray, y: np.ndarray, **settings: Any) -> Model:
    """Train a small run of two classes, about which everything is declared.

    Args:
        x: [n, ...] features.
        y: [n] labels, 0 or 1.
        settings: as ``agt.fit`` takes them.
    """
    declared = Declared(classes=[0, 1], size=len(x), features=True, settings=True)
    return fit(x, y, declared=declared, compute=COMPUTE, **settings).model


# -- mechanisms
# --------------------------------------------------------------------------------------------------

DIFFERING = NeighbourPair(Side(1, 0), Side(0, 0))
SOLVED, SHAPE = ApproximateDP(0.5, 1e-3), ProblemConstants(50.0, 1.0, 40, 1)
NOISES = ObjectiveNoises.from_budget(SHAPE, SOLVED.eps, SOLVED.delta)


@dataclass(frozen=True)
class LeakyMechanism:
    """A mechanism that claims what one mechanism does, and draws as another.

    Attributes:
        says: whose guarantee and table it has.
        draws: who draws.
    """

    says: Mechanism | LaplaceMean
    draws: Mechanism | LaplaceMean

    def __getattr__(self, name: str) -> object:
        owner = self.draws if name == "release" else self.says
        return getattr(owner, name)


def plan_of(seed: int, trials: int = 10_000, confidence: float = 0.95) -> TrialPlan:
    """Return a plan of trials whose draws follow from the seed."""
    return TrialPlan(trials, confidence, source=SeededRandomness(seed))


def twice_the_budget(seed: int) -> Finding:
    """Plant: randomized response that claims epsilon 1 and draws as for 2."""
    mechanism = LeakyMechanism(RandomizedResponse(eps=1.0), RandomizedResponse(eps=2.0))
    return audit_pair(mechanism, DIFFERING, plan_of(seed), 0)[1]  # type: ignore[arg-type]


def the_budget(seed: int) -> Finding:
    """Sound: randomized response that draws as it claims, audited ten times; the worst finding.

    The rates that are counted lie beyond the claim in half of the audits, and their limits in none.
    """
    findings = []
    for index in range(10):
        plan = plan_of(10 * seed + index, 1000, SURE)
        findings.append(audit_pair(RandomizedResponse(eps=1.0), DIFFERING, plan, 0)[1])
    return worst(findings)


def the_best_of_many(seed: int) -> Finding:  # no chance in it
    """Sound: counts that are the best of a thousand events.

    As those of one event alone they would contradict epsilon 1.
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
    """Plant: smooth_cauchy with distances from the grid {0, 50}, at epsilon 1, on two clouds.

    With one record less, the distance falls from 50 to 0 between the two models' decision lines.
    """
    labels = np.arange(600) % 2
    noise = np.random.default_rng(seed).standard_normal((600, 2))
    points = 0.6 * noise + (2 * labels - 1)[:, None]
    model = fitted(points, labels, certificate="box", ks=(0, 50), epochs=2)
    mechanism = SmoothCauchy(eps=1.0)
    plan = plan_of(seed)
    labelling = Labelling.judged(model, mechanism, None, "paper")
    found = search(labelling, partial(expected_bound, mechanism, plan=plan), points, 2, 4, seed)
    assert found is not None, "no decision line was found between the two clouds of records"
    return audit_pair(mechanism, found, plan, model.max_distance)[1]


def jump_of_the_evidence(seed: int) -> Finding:
    """Plant: smooth_cauchy on evidence that jumps by 50 between neighbours; nothing is drawn."""
    mechanism = SmoothCauchy(eps=1.0)
    pair = NeighbourPair(Side(1, 50), Side(1, 0))
    return table_finding(mechanism, exact_loss(mechanism, pair), str(pair), pair.where)


def half_the_noise(seed: int, moves: float = 0.5, confidence: float = 0.95) -> Finding:
    """Plant: released weights with noise for half the sensitivity; sound with ``moves`` 1."""
    heads = replace(Heads.without_data(1), moves=moves)
    return audit_weights(ReleaseWeights(mu=1.0), heads, plan_of(seed, 200, confidence))[1]


def less_noise(seed: int, share: float = 0.8, confidence: float = 0.95) -> Finding:
    """Plant: released weights with a share of the noise that is due; sound with a share of 1.

    The two heads are so near each other that no test tells them apart, so only the size of the
    noise shows it.
    """

    def release(
        theta: np.ndarray, moves: float, guarantee: GaussianDP, source: Randomness
    ) -> np.ndarray:
        return weights_drawn(theta, share * moves, guarantee, source)

    heads = Heads(np.full(4, 0.01), np.zeros(4), 1.0)
    plan = plan_of(seed, 200, confidence)
    *_, size = audit_weights(ReleaseWeights(mu=1.0), heads, plan, release=release)
    return size


class LessNoise(NoisyStatistics):
    """Noisy statistics with 80 % of the noise that is due."""

    def noise_scales(self, head: LinearModel) -> SumNoiseScales:
        """What it draws."""
        return SumNoiseScales(*(0.8 * noise for noise in astuple(super().noise_scales(head))))


class UntilRight(RandomizedResponse):
    """Randomized response that draws again until the first label is the model's own."""

    def release(self, predictions: np.ndarray, *given: Any) -> np.ndarray:
        """The last draw."""
        labels = super().release(predictions, *given)
        return labels if labels[0] == predictions[0] else self.release(predictions, *given)


def replayed(seed: int, mechanism: AnyMechanism) -> Finding:
    """Return the worst finding of a linear head's release, replayed on two neighbours."""
    model = headed(seed)
    queries = model.problem.dataset.train.features
    release = ReplayedRelease(model, queries, mechanism, conditions=model.conditions)
    return worst(release.findings(2, np.random.default_rng(seed)))


def no_determinant(seed: int) -> Finding:  # no chance in it
    """Plant: objective perturbation at a Lambda that it would refuse.

    Its noise is made for epsilon as if no volume changed.
    """
    guarantee = ApproximateDP(1.0, 0.01)
    problems = Problems.line(replace(SHAPE, strength=0.1), 0)
    too_little = replace(NOISES, tilt=1 / gaussian_mu(guarantee.eps, guarantee.delta))
    return audit_line(guarantee, problems, too_little)


def rows_of_one_unit(seed: int) -> Finding:
    """Plant: objective perturbation whose noise is made for one row, and a unit that has twenty."""
    return audit_objective(SOLVED, Problems.line(SHAPE, 30, rows=20), NOISES, plan_of(seed, 100))[0]


def objective_perturbation(seed: int) -> Finding:
    """Sound: objective perturbation as it is, by its densities and by what it draws."""
    problems = Problems.line(SHAPE, 30)
    drawn = audit_objective(SOLVED, problems, NOISES, plan_of(seed, 100, SURE))[0]
    return worst((audit_line(SOLVED, problems, NOISES), drawn))


# -- labels of agt predict, at a query between two heads
# -----------------------------------------------------------------


def answered(seed: int, draws: float = 2.0, confidence: float = 0.95) -> Finding:
    """Plant: labels of two heads that claim epsilon 1 and are drawn as for another.

    One head is trained without a record, and the query lies between the two.

    Args:
        seed: of the data, the query and the draws.
        draws: the epsilon as for which they are drawn; sound with 1.
        confidence: of the bound.
    """
    features, labels = crowd(seed, 120)
    rng = np.random.default_rng(seed)
    model = fitted(features, labels)
    other = retrained(model.problem, without(model.problem.dataset.train, np.array([3])))
    mechanism: Any = LeakyMechanism(RandomizedResponse(eps=1.0), RandomizedResponse(eps=draws))
    with_unit, without_unit = (
        replace(Labelling.judged(side, mechanism.says), mechanism=mechanism)
        for side in (model, other)
    )
    pair = LabellingPair(with_unit, without_unit)
    claimed = Claimed("epsilon", 1.0)
    queries = between_roots(pair, features, rng)
    row, event = most_telling(pair, queries, claimed, 10_000, confidence)
    trials = alike(pair, queries[row : row + 1], 10_000, rng)
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
    return judged(claim, event, drawn_with, drawn_without)


# -- private numbers
# --------------------------------------------------------------------------------------------------

NUMBERS = LaplaceMean(eps=1.0)
NUMBER_RANGE = (0.0, 10.0)


class FloatingNoise(LaplaceMean):
    """Laplace noise in double precision, by the logarithm of a uniform number."""

    def release(
        self, sums: np.ndarray, members: int, touches: int, source: Randomness
    ) -> np.ndarray:
        """Released sums, which are not rounded."""
        largest = members * LATTICE_STEPS
        uniform = np.array([source.below(2**53) for _ in sums]) / 2.0**53
        signs = np.array([1 - 2 * source.below(2) for _ in sums])
        noise = -np.log1p(-uniform) * signs * touches * LATTICE_STEPS / self.eps
        return np.clip(sums + noise, 0, largest)


class UnclippedMembers(NumberVotesModel):
    """Members whose answers leave the declared range."""

    def labels(self, phi: np.ndarray) -> np.ndarray:
        """The answers, in steps of the lattice, however many."""
        features = to_integers(phi.astype(np.float64))
        numbers = predict_numbers(features, self.weight[:, 0].numpy(), self.exponents.numpy())
        return np.rint((numbers + 1.0) * MIDDLE).astype(np.int64)


class MembersWithRecords(NumberVotesModel):
    """The mean of the members that have records, whose number depends on the data."""

    def sums(
        self, features: np.ndarray, on_progress: OnProgress = lambda progress: None
    ) -> np.ndarray:
        """The mean, as a sum of all members' answers."""
        trained = np.flatnonzero(self.weight[:, 0].numpy().any(axis=1))
        answers = self.labels(self.phi(features))[trained]
        mean = answers.mean(axis=0) if len(answers) else np.full(len(features), MIDDLE)
        return np.rint(mean * len(self.weight)).astype(np.int64)


class RangeOfTheRecords(NumberVotesModel):
    """A model whose range is that of its own records' labels."""

    @property
    def target(self) -> NumericTarget:
        """From the least label to the greatest."""
        labels = self.problem.dataset.train.labels
        return NumericTarget(float(labels.min()), float(labels.max()))


class OneChangedMember(NumberVotesModel):
    """A model whose intervals count one changed member for each edit, whatever the relation."""

    @property
    def members_per_edit(self) -> int:
        """One."""
        return 1


def made_up_sums(
    seed: int,
    mechanism: Any = NUMBERS,
    members: int = 2,
    touches: int = 1,
    told: int | None = None,
    trials: int = 1000,
) -> Finding:
    """What draws say of sums between which ``touches`` members go from one end to the other.

    Args:
        seed: of the draws.
        mechanism: that releases.
        members: T.
        touches: how many members change.
        told: how many the release believes; None: as many.
        trials: how many draws choose the event, and how many count it.
    """
    side = NumberSide.without_data(0, members, touches if told is None else told)
    pair = SumPair(side, replace(side, total=touches * LATTICE_STEPS), members, MADE_UP)
    return drawn_findings(mechanism, pair, plan_of(seed, trials))[0]


def run_of_numbers(
    seed: int, count: int = 20, labels: tuple[float, float] = NUMBER_RANGE, **settings: Any
) -> Model:
    """A small run of numbers, whose members learn the few records that they have by heart."""
    x, _ = crowd(seed, count)
    y = np.resize(labels, count)
    declared = Declared(size=count, features=True, settings=True)
    by_heart = {"name": "votes", "strength": 1e-4}
    given = {"members": 8, "certificate": by_heart, "compute": COMPUTE, **settings}
    return fit(x, y, target="numeric", range=NUMBER_RANGE, declared=declared, **given).model


def intervals(seed: int, kind: type[NumberVotesModel], **settings: Any) -> Finding:
    """Certified intervals of a small run of numbers; of the findings the worst."""
    model = flawed(kind, run_of_numbers(seed, **settings))
    queries = model.problem.dataset.train.features
    counts = audit_intervals(cast(Model, model), queries, 12, 2, seed)
    return worst(counts.findings("private numbers", len(queries)).values())


def number_pairs(
    seed: int,
    kind: type[NumberVotesModel],
    count: int = 20,
    labels: tuple[float, float] = NUMBER_RANGE,
    **settings: Any,
) -> Iterator[SumPair]:
    """The sums of a small run of numbers and of its neighbours, whose models all have a flaw."""
    model = run_of_numbers(seed, count, labels, **settings)
    x = model.problem.dataset.train.features
    with_unit = replace(NumberLabelling.judged(model, NUMBERS), model=flawed(kind, model))
    for edit, other in neighbours(model, x[:4], 4):
        without_unit = replace(with_unit, model=flawed(kind, other))
        queries = np.concatenate([x, np.random.default_rng(seed).normal(size=(200, 3))])
        yield farthest_sums(NumberPair(with_unit, without_unit), queries, edit)


def numbers_of_a_run(seed: int, kind: type[NumberVotesModel], **settings: Any) -> Finding:
    """What is found without draws of a run of numbers and its neighbours; of these the worst."""
    source = SeededRandomness(seed)
    return worst(
        finding
        for pair in number_pairs(seed, kind, **settings)
        for finding in (
            law_finding(NUMBERS, pair),
            published_finding(NUMBERS, pair, source),
        )
    )


def private_numbers(seed: int, **settings: Any) -> Finding:
    """Private numbers as they are, made up and of small runs; of the findings the worst."""
    made_up = audit_sums_alone(NUMBERS, 2, plan_of(seed, 500, SURE))[0]
    trained = [
        numbers_of_a_run(seed, NumberVotesModel, count=count, **settings) for count in (3, 20)
    ]
    drawn = tuple(finding for finding in made_up if finding.outcome is not Outcome.REPORTED)
    return worst((*drawn, *trained))


# -- certificates
# --------------------------------------------------------------------------------------------------

EXTENT = Certificate(
    units=20, neighbours=30, farthest=2, bounded=0, queries=20, lines=6, again=False
)
PAIRS = replace(EXTENT, units=0, neighbours=0, bounded=3)  # neighbours with all their bounds alone
AGAIN = replace(EXTENT, units=0, neighbours=0, again=True)  # the run itself alone
NOBODY = replace(EXTENT, units=0, neighbours=0)  # no neighbour is trained
ONE_STEP: dict[str, Any] = {"epochs": 1, "lr": 1.0, "batch": {"count": 1}}
STEP = {"loss": "binary_cross_entropy", "epochs": 1, "lr": 1.0, "clip": 0.1, "dtype": "float64"}


@dataclass(frozen=True)
class OverstatedDistance(BoxModel):
    """A model whose certificates reach some steps of the grid farther than they should.

    Attributes:
        more: how many steps; negative: less far.
    """

    more: int

    def certify(
        self,
        features: np.ndarray,
        ks: tuple[int, ...] | None = None,
        on_progress: OnProgress = lambda progress: None,
    ) -> Certificates:
        """Return those of the model, moved along the grid."""
        honest = super().certify(features)
        last_step = len(honest.ks) - 1
        steps = np.clip(np.arange(len(honest.ks)) - self.more, 0, last_step)
        moved = honest.certified[steps]
        asked = ks or honest.ks
        rows = [honest.ks.index(k) for k in asked]
        return replace(honest, ks=asked, certified=moved[rows])


@dataclass(frozen=True)
class StretchedDistance(LinearModel):
    """A head whose distances are longer than they should be.

    Attributes:
        times: how many times as long.
    """

    times: float

    def certify_phi(self, phi: np.ndarray, ks: tuple[int, ...]) -> ClosedFormCertificates:
        """Certify as if a record moved the weights by so much less."""
        honest = self.trained.sensitivity
        sensitivity = replace(
            honest, rho=honest.rho / self.times, rounding=honest.rounding / self.times
        )
        trained = replace(self.trained, sensitivity=sensitivity)
        return certify_linear(trained, phi, self.settings.relation.name, ks)


@dataclass(frozen=True)
class CountingProblem(Problem):
    """A problem whose plan depends on the number of records, whatever was declared.

    Attributes:
        dealt: the batches depend on it; False: the normaliser is that number.
    """

    dealt: bool = False

    @property
    def plan(self) -> BatchPlan:
        """The plan of the records at hand."""
        plan = super().plan
        if self.dealt:
            return replace(plan, key=f"{plan.key}{self.record_count}")
        return replace(plan, normalizer=self.record_count / plan.count)


def boxed(
    seed: int, x: np.ndarray | None = None, y: np.ndarray | None = None, **settings: Any
) -> BoxModel:
    """Train a run with boxes, of one step, on given records or made-up ones."""
    if x is None or y is None:
        x, y = crowd(seed, 40, 0.3)
    given: dict[str, Any] = {"certificate": "box", "ks": 4, **STEP, **settings}
    network = fitted(x, y, **given).boxed_network
    assert network is not None
    return network


def widened(model: BoxModel, times: float) -> BoxModel:
    """Return a model whose boxes are some times as wide."""
    box = model.box

    def stretched_ends(ends: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: box.nominal[name] + times * (end - box.nominal[name])
            for name, end in ends.items()
        }

    lower = stretched_ends(box.lower)
    upper = stretched_ends(box.upper)
    return replace(model, box=Box.from_ends(box.ks, box.nominal, lower, upper))


def moving_as_far(seed: int, radius: float) -> Finding:
    """Audit boxes for features that move within 0.05 as if they were for another radius."""
    model = boxed(seed, relation="perturb", radius=0.05)
    relation = RelationConfig("perturb", radius=radius)
    settings = replace(model.problem.settings, relation=relation)
    claiming = replace(model, problem=replace(model.problem, settings=settings))
    return audited(claiming, seed, PARAMETERS)


def flawed(kind: type[T], sound: object, **flaw: Any) -> T:
    """Return an object of a kind with a flaw that is otherwise the same as a sound one."""
    values = {each.name: getattr(sound, each.name) for each in fields(sound)}  # type: ignore[arg-type]
    return kind(**values, **flaw)


def headed(seed: int, **settings: Any) -> LinearModel:
    """Train a run with a linear head on made-up records."""
    head = fitted(*crowd(seed, 60), **settings).linear_head
    assert head is not None
    return head


def stretched(seed: int, times: float, about: str, extent: Certificate = EXTENT) -> Finding:
    """Audit a linear head whose distances are too long, in a run of one step."""
    model = headed(seed, **ONE_STEP)
    return audited(flawed(StretchedDistance, model, times=times), seed, about, extent)


def counting(seed: int, dealt: bool) -> Finding:
    """Plant: a head that was trained by a plan of its number of records (``CountingProblem``)."""
    model = headed(seed, batch={"count": 2}, epochs=2, lr=1.0)
    problem = flawed(CountingProblem, model.problem, dealt=dealt)
    return audited(replace(model, problem=problem), seed, BATCHES, NOBODY)


def audited(model: Model, seed: int, about: str, extent: Certificate = EXTENT) -> Finding:
    """Return the finding of an audit about one claim."""
    return Auditor(model, extent, seed).run()[about]


def all_audited(model: Model, seed: int) -> Finding:
    """Attack every claim of a model's certificates; return the worst finding."""
    extent = replace(EXTENT, bounded=2, again=True)
    return worst(tuple(Auditor(model, extent, seed).run().values()))


def box_of_other_products(seed: int) -> Finding:
    """Plant: boxes by Rump's midpoint-radius products, in a run that is said to use exact ones."""
    settings: dict[str, Any] = {"network": (4,), "epochs": 3}
    rump = replace(boxed(seed, **settings), box=boxed(seed, product="rump", **settings).box)
    return audited(rump, seed, ON_RECORD_AGAIN, AGAIN)


def memorised_and_certified(seed: int) -> Finding:
    """Plant: records that a large step learns by heart, and which are called certified.

    Each record is alone in a direction.
    """
    labels = np.random.default_rng(seed).permutation(np.arange(16) % 2)
    model = boxed(seed, np.eye(16) * 4, labels, lr=40.0)
    return audited(flawed(OverstatedDistance, model, more=2), seed, MEMORISATION)


# -- training with noise
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QuieterTraining(NoisyTraining):
    """Training in which only a share of the claimed noise is added.

    Attributes:
        kept: the share.
    """

    kept: float = 1.0

    def noise_of_run(self, seed: int | None) -> Noise:
        """Return one training's noise, scaled by the share."""
        full_noise = super().noise_of_run(seed)

        def scaled_noise(step: int) -> dict[str, Tensor]:
            return {name: self.kept * noise for name, noise in full_noise(step).items()}

        return scaled_noise


def noisy(seed: int, kept: float = 1.0, relation: str = "add_remove") -> NoisyTraining:
    """Return a small training with noise of a linear head, with room for many canaries.

    Args:
        seed: of the data and of the noise.
        kept: the share of the claimed noise that is added.
        relation: under which it claims its guarantee.
    """
    features = np.random.default_rng(seed).normal(size=(20, 60)) / 8
    given = {
        "certificate": "box",
        "ks": 0,
        **STEP,
        "epochs": 2,
        "clip": 0.05,
        "batch": {"count": 1, "n_max": 100},
    }
    problem = fitted(features, np.arange(20) % 2, relation=relation, **given).problem
    settings = replace(problem.settings, noise=NoiseConfig(epsilon=1.0, delta=1e-5, seed=seed))
    model = fit_problem(replace(problem, settings=settings)).boxed_network
    assert model is not None
    trainer = QuieterTraining.of(model, model.problem.dataset.train, seed)
    return replace(cast(QuieterTraining, trainer), kept=kept)


def audited_training(
    seed: int, kept: float, adversary: str | None, canary: str = "signs", confidence: float = 0.95
) -> Finding:
    """Return what bounds say of training that adds a share of its noise.

    Args:
        seed: of everything.
        kept: the share of the claimed noise that is added.
        adversary: whose bounds count; None: those of all.
        canary: the kind of canaries.
        confidence: of all bounds together.
    """
    trainer = noisy(seed, kept)
    effort = TrainingEffort(60, 40, confidence, seed)
    one = trainer.canaries(canary, 1, seed)
    several = trainer.canaries(canary, 60, seed)
    bounds, _ = audit(trainer, one, effort, several)
    counted_bounds = [bound for bound in bounds if adversary in (None, bound.adversary)]
    return judge_training(trainer, one, effort, counted_bounds)


def audited_noise(seed: int, kept: float, confidence: float = 0.95) -> Finding:
    """Return what the size of the noise says of training that adds a share of it."""
    trainer = noisy(seed, kept)
    effort = TrainingEffort(60, 40, confidence, seed)
    one = trainer.canaries("signs", 1, seed)
    several = trainer.canaries("signs", 60, seed)
    _, size = audit(trainer, one, effort, several)
    return size


# -- membership
# --------------------------------------------------------------------------------------------------


def overstated_labels(seed: int, more: int = 1) -> Finding:
    """Plant: a linear head whose stable distances are one too long.

    Labels of queries beside its decision line show who was left out.
    """
    model = fitted(*crowd(seed, 600))
    count = 20_000
    angle = np.linspace(0, 2 * np.pi, count)
    queries = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)
    distance = model.certify(queries).stable_distance + more
    units = model.problem.dataset.train.units[:20]
    return compare_labels(model, units, queries, distance, np.arange(count))


# -- unlearning
# --------------------------------------------------------------------------------------------------

ROWS, GONE, SIGMA = 240, 12, 0.005
DRAWS = TrialPlan(4_000)
EXACT = Promise("retrain", True, 0.0, 0.0, True, (Remark("retrained"),))
CLOSE = Promise("newton", False, 1.0, 1e-3, True, (Remark("close", {"eps": 1.0, "delta": 1e-3}),))


def request(rows: int = GONE) -> Attack:
    """Return a request for records of one class, which all pull the mean the same way."""
    return Attack(
        f"an erasure request for {rows} records of one class", (lambda state: np.arange(rows) * 2,)
    )


def looking() -> Attack:
    """Return an attack of two requests: the second has the records answered most wrongly."""

    def most_wrong(state: ModelState) -> RemovedRows:
        order: np.ndarray = np.argsort(state.visible)
        return order[~np.isin(order, np.arange(GONE) * 2)][:GONE]

    return Attack(
        "a second erasure request, chosen by looking at the model's outputs after the first one",
        (*request().requests, most_wrong),
    )


@dataclass
class MeanModel:
    """Weights that are the mean of the records of two classes, served with noise; records are
    removed from the mean.

    Attributes:
        seed: of the records, and of the noise.
        removed: which rows are taken out, of those that are asked for.
        scale: of the noise, over the claimed one.
        reused: whether every state has the noise of the first.
        noisy: False: the weights are served as they are.
    """

    seed: int
    removed: Callable[[RemovedRows], RemovedRows] = lambda rows: rows
    scale: float = 1.0
    reused: bool = False
    noisy: bool = True

    def __post_init__(self) -> None:
        self.labels = np.arange(ROWS) % 2
        self.rng = np.random.default_rng(self.seed)
        self.x = 0.3 * (self.rng.normal(size=(ROWS, 6)) + self.labels[:, None])

    def begin(self) -> tuple[ModelState, Unlearn]:
        """Return the trained model's state, and what removes rows from it."""
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
        """Return the state of the mean without these rows.

        Args:
            rows: those that are left out.
            scale: of the noise, over the claimed one.
            noise: [6] is used in every draw; None: it is drawn anew.
        """
        values = np.delete(self.x, rows, axis=0).mean(axis=0)
        if not self.noisy:
            return ModelState(values)

        def draw(count: int) -> np.ndarray:
            if noise is None:
                return values + scale * self.rng.normal(0, SIGMA, (count, 6))
            return values + np.broadcast_to(noise, (count, 6))

        noisy_values = draw(1)[0]
        return ModelState(
            values,
            claimed_distance=1e-9,
            draw_vectors=draw,
            noisy_values=noisy_values,
            sigma=SIGMA,
            visible=self.x @ noisy_values * (2 * self.labels - 1),
        )

    def audited(
        self, attacks: Sequence[Attack], claimed: Promise = CLOSE, plan: TrialPlan = DRAWS
    ) -> tuple[Finding, ...]:
        """The audit of these removals."""
        return audit_unlearning(
            "a mean", self.begin, self.retrained, attacks, lambda: claimed, plan
        )[0]


def unlearned(measure: str, attack: Attack, seed: int, **flaws: Any) -> Finding:
    """The finding of one test of removals with flaws."""
    return next(
        finding
        for finding in MeanModel(seed, **flaws).audited([attack])
        if finding.measure == measure
    )


def trained_again(seed: int, kept: int = 0) -> Finding:
    """Training from those that stay, and so many that asked to go."""
    return MeanModel(seed, lambda rows: rows[kept:], noisy=False).audited([request(60)], EXACT)[0]


def removals(seed: int) -> Finding:
    """Removals of the records that go, and noise as is claimed."""
    return worst(
        MeanModel(seed).audited([request(), looking()], plan=replace(DRAWS, confidence=SURE))
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
        replayed, mechanism=LessNoise(mu=1.0)
    ),
    (
        "fault: randomized response that is drawn again and again until the label is the "
        "model's own"
    ): partial(replayed, mechanism=UntilRight(eps=1.0)),
    "fault: objective perturbation whose privacy loss omits the Jacobian determinant": (
        no_determinant
    ),
    (
        "fault: objective perturbation with noise for one row per person, although people "
        "have twenty rows"
    ): rows_of_one_unit,
    "fault: labels of two linear models, drawn with epsilon 2 although epsilon 1 is claimed": (
        answered
    ),
    "fault: parameter bounds that are 1 % too narrow": lambda seed: audited(
        widened(boxed(seed), 0.99), seed, PARAMETERS
    ),
    "fault: parameter bounds computed for feature changes half as large as claimed": partial(
        moving_as_far, radius=0.1
    ),
    "fault: parameter bounds computed with another training.product than recorded": (
        box_of_other_products
    ),
    (
        "fault: stable distances that are too large by one step in the list of values of k"
    ): lambda seed: audited(
        flawed(OverstatedDistance, boxed(seed), more=1), seed, CERTIFIED_LABELS
    ),
    "fault: a memorised record whose certificate rules memorisation out": (memorised_and_certified),
    "fault: stable distances that are 5 % too large": partial(
        stretched, times=1.05, about=LABELS_WITHIN_BOUNDS, extent=NOBODY
    ),
    ("stable distances that are twice too large, detected on a neighbouring dataset"): partial(
        stretched, times=2.0, about=CERTIFIED_LABELS
    ),
    "fault: gradient sums divided by the number of private records": partial(counting, dealt=False),
    "fault: batches that depend on the number of records": partial(counting, dealt=True),
    "fault: stable distances that jump between neighbouring datasets": lambda seed: audited(
        flawed(OverstatedDistance, boxed(seed), more=-2), seed, STABLE_DISTANCES, PAIRS
    ),
    "fault: parameter bounds that do not lie within those of a neighbouring dataset": lambda seed: (
        audited(widened(boxed(seed), 2.0), seed, NESTING_BOXES, PAIRS)
    ),
    "fault: training whose noise is 20 % too small": partial(audited_noise, kept=0.8),
    "fault: training that leaves out its noise": partial(
        audited_training, kept=0.0, adversary=SUMS
    ),
    "fault: training that leaves out its noise, detected step by step": partial(
        audited_training, kept=0.0, adversary=STEPS
    ),
    "fault: training that leaves out its noise, detected by an attack on a single run": partial(
        audited_training, kept=0.0, adversary=ONE_RUN, canary="dirac"
    ),
    "fault: stable distances that are too large by 1, detected by leaving people out": (
        overstated_labels
    ),
    "fault: unlearning that removes nothing": partial(
        unlearned, "epsilon", request(), removed=lambda rows: rows[:0]
    ),
    "fault: unlearning that removes other records than those requested": partial(
        unlearned, "distance/claimed", request(), removed=lambda rows: rows + 1
    ),
    "fault: unlearning with a third of the noise": partial(
        unlearned, "noise/claimed", request(), scale=1 / 3
    ),
    "fault: unlearning that uses the same noise for every released state of the model": partial(
        unlearned, "epsilon", looking(), reused=True
    ),
    "fault: unlearning by retraining that keeps a record whose erasure was requested": partial(
        trained_again, kept=1
    ),
    "fault: private numbers whose noise is sized for 3 members, although there are 2": partial(
        made_up_sums, mechanism=LeakyMechanism(NUMBERS, LaplaceMean(eps=3 / 2)), trials=4000
    ),
    (
        "fault: private numbers whose noise is sized for one changed member, although replacing "
        "a unit changes two"
    ): partial(made_up_sums, touches=2, told=1),
    "fault: private numbers with floating-point noise": partial(
        made_up_sums, mechanism=FloatingNoise(eps=1.0)
    ),
    "fault: private numbers whose members leave the declared range": partial(
        numbers_of_a_run, kind=UnclippedMembers
    ),
    "fault: private numbers that leave out members without records": partial(
        numbers_of_a_run, kind=MembersWithRecords, count=2, members=32
    ),
    "fault: private numbers whose range is that of the records": partial(
        numbers_of_a_run, kind=RangeOfTheRecords, labels=(2.0, 8.0)
    ),
    (
        "fault: intervals of numbers that count one changed member, although replacing a unit "
        "changes two"
    ): partial(intervals, kind=OneChangedMember, relation="substitute"),
}
SOUND: dict[str, Plant] = {
    "control: randomized response that draws labels with the budget that it claims": the_budget,
    "control: an attack that is counted as the best of 1,000 events": the_best_of_many,
    "control: released weights whose noise is sized for their sensitivity": partial(
        half_the_noise, moves=1.0, confidence=SURE
    ),
    "control: released weights whose noise has the claimed size": partial(
        less_noise, share=1.0, confidence=SURE
    ),
    "control: noisy statistics as agt computes them": partial(
        replayed, mechanism=NoisyStatistics(mu=1.0)
    ),
    "control: randomized response that draws each label once": partial(
        replayed, mechanism=RandomizedResponse(eps=1.0)
    ),
    "control: objective perturbation as agt computes it": objective_perturbation,
    "control: labels of two linear models, drawn with the claimed epsilon": partial(
        answered, draws=1.0, confidence=SURE
    ),
    "control: parameter bounds as agt computes them": lambda seed: all_audited(boxed(seed), seed),
    "control: parameter bounds computed for feature changes as large as claimed": partial(
        moving_as_far, radius=0.05
    ),
    "control: training with the claimed noise": partial(
        audited_training, kept=1.0, adversary=None, confidence=SURE
    ),
    "control: training with the claimed noise, tested by the size of the noise": partial(
        audited_noise, kept=1.0, confidence=SURE
    ),
    "control: stable distances as agt computes them": partial(overstated_labels, more=0),
    "control: a linear model as agt trains it": lambda seed: all_audited(
        headed(seed, **ONE_STEP), seed
    ),
    "control: unlearning that removes the requested records": removals,
    "control: unlearning by retraining, as agt does it": trained_again,
    "control: private numbers as agt releases them": private_numbers,
    "control: private numbers as agt releases them, where records are replaced": partial(
        private_numbers, relation="substitute"
    ),
    "control: intervals of numbers as agt computes them": partial(
        intervals, kind=NumberVotesModel, relation="substitute"
    ),
}


COLUMNS = ("planted", "claims", "found", "noticed", "seconds")
JUDGED = {
    (True, True): CAUGHT,
    (True, False): "MISSED",
    (False, False): PASSED,
    (False, True): "FALSE ALARM",
}
"""(there is a flaw, the auditor says so) -> a word."""


@schema
class Selftest(AuditKind):
    """Runs every planted violation, and sound twins of them, through the auditor."""

    name: ClassVar[str] = "selftest"

    def check(self, given: AuditInputs) -> None:
        """Refuse nothing: no run is needed."""

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Plant, audit, and judge the auditor."""
        plants = [(name, plant, True) for name, plant in PLANTED.items()]
        plants += [(name, plant, False) for name, plant in SOUND.items()]
        findings = []
        rows = []
        with console.progress("planted violations", "violation") as report:
            for done, (name, plant, is_flawed) in enumerate(plants, 1):
                start = time.monotonic()
                finding = _tried(plant, name, given.seed)
                seconds = round(time.monotonic() - start, 3)
                verdict = of_auditor(name, finding, is_flawed)
                findings.append(verdict)
                accused = bool(verdict.found) == is_flawed
                word = JUDGED[is_flawed, accused]
                rows.append((name, finding.claim, found(finding), word, seconds))
                report(done, len(plants), done, len(plants))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        shown = [[*row[:-1], f"{row[-1]:.1f}"] for row in rows]
        console.table("planted violations", COLUMNS, shown)
        return Audited("the auditor itself", None, tuple(findings), tables={"planted": table})


def _tried(plant: Callable[[int], Finding], name: str, seed: int) -> Finding:
    """Return a plant's finding; an auditor that fails on it found nothing, and cleared nothing."""
    try:
        return plant(seed)
    except Exception as error:
        error_type = type(error).__name__
        why = f"this is an error in the auditor itself: please report it ({error_type}: {error})"
        return counterexamples(name, "-", "-", "-", "-", None, why)


def of_auditor(name: str, finding: Finding, flawed: bool) -> Finding:
    """Return what the finding of a plant says of the auditor, who claims to tell plants apart.

    Args:
        name: of the plant.
        finding: of it.
        flawed: a violation was planted; False: it is a sound twin.
    """
    expected = Outcome.VIOLATED if flawed else Outcome.STANDS
    right = finding.outcome is expected
    judgement = JUDGED[flawed, right == flawed]
    claim = "the auditor does not contradict this correct claim"
    if flawed:
        claim = "the auditor detects this planted violation"
    return Finding(
        subject=name,
        claim=claim,
        attack=finding.attack,
        effort=finding.effort,
        outcome=Outcome.STANDS if right else Outcome.VIOLATED,
        meaning=f"{judgement}. Audited claim: {finding.claim}; {finding.meaning}",
        measure=JUDGED[flawed, flawed],
        claimed=1.0,
        found=float(right),
        strength=Strength.CERTAIN,
    )
