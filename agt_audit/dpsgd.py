"""agt audit dpsgd: a run's own training with noise inside (training/loop.py), canaries in or out;
what is seen of it, and bounds on epsilon.

Trainings are the very loop that ``agt train`` runs, again and again, with canaries in or out. They
show what an adversary would see: every noisy direction along each canary (white box), the final
weights along it, or the loss on it at the end (black box). Lecture 004; Nasr et al. 2023; Steinke
et al. 2023.

A gradient canary is a gradient of its own that stands for a record's in every step. It is longer
than any clip, so that a clip that was forgotten shows. Several of one run are orthogonal, or nearly
so: what one leaves in the noisy sum moves no other's score. An input canary is a record, whose
gradient the head gives: what somebody can do who only hands in data. Each canary is a unit of its
own whose id decides its batch, as any record's does; all constants are the run's. A gradient canary
is clipped elementwise, as records are, and stands for a unit with as many rows as one may have.
Under substitution a unit is never absent: where it is out, its gradient is the opposite one, and
the two sides differ by all that the claim allows.

Formal guarantees
    Many runs. One canary, in half of the runs. Thresholds are chosen on the first third of the runs
    of each side and counted on the others, which are independent of it. So Clopper-Pearson's limits
    hold, and with them a bound from (eps, delta) alone, and one from the claimed mu of Gaussian
    differential privacy: the second is about the claim "Gaussian noise of this size", which is more
    than (eps, delta), and is rejected where either part is false.
    Step by step. In each step of each run a fresh coin says whether the canary takes part, and one
    guess is made. Given all that came before, a guess is right with at most the probability that
    the claimed step allows, Phi(mu_step / 2), so the number of right ones is dominated by a
    binomial, and Clopper-Pearson's lower limit of the share holds. What it implies of the noise is
    composed by the accountant: this can notice bugs in noise and clipping, and cannot debug the
    composition.
    One run. Each of m canaries is in by its own coin, and the bounds of estimates.py say what the
    number of right guesses implies. How many are guessed follows from the claim.
    Noise. Who knows all gradients, the canary's among them, sees the noise itself, in every
    coordinate of every step: its size is judged as that of released weights (weights.py), of the
    trainings without the canary.
    All rigorous bounds of one audit share the error probability equally: together they hold with
    the confidence asked for.

The adversary of the white box knows all other records, and subtracts what they are expected to add
to a sum; so does the one that differential privacy speaks of.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from scipy.special import ndtri
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from agt.data.records import Records
from agt.errors import ConfigError
from agt.models.box import copy_initial_parameters
from agt.models.model import Model
from agt.numeric import gaussian_epsilon
from agt.problem import Problem
from agt.relations.relation import BoundSums
from agt.settings import QUANTA, schema
from agt.training.checkpoint import Tensors
from agt.training.loop import Noise, TrainingRun
from agt.training.noise import NoisePlan, draw_noise, noise_seed
from agt.training.settings import NoiseConfig
from agt.training.setup import TrainingSetup
from agt.training.sgd import BufferKey, Sgd
from agt_audit.estimates import Claimed, chosen, estimates, lower_limit, verdict_words
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.neighbours import NOMINAL, neighbouring, replaces, with_added
from agt_audit.one_run import BOUNDS, one_run_epsilon, planned_guesses, right_guesses
from agt_audit.weights import noise_size
from agt_cli.report.console import Console
from agt_cli.report.findings import Estimate, Finding, Outcome, Strength, least
from agt_cli.report.record import RunRecord

CANARY_ID = "agt-canary-"  # and a number
LENGTH = 10.0  # a gradient canary's, in clips
ROWS_LOOKED_AT = 256  # for the coordinates that they leave alone
SUMS, WEIGHTS, LOSS = "every noisy sum", "the final weights", "the final loss"
STEPS, ONE_RUN = "step by step, composed", "one run"
LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}


# -- canaries
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Canaries:
    """m canaries, of one sort.

    Attributes:
        words: what they are, for a stranger.
        gradients: [m, P] gradients in units of the clip; None: they are records.
        records: m of them, named as canaries; of gradients, whose records' are never taken, zeros.
    """

    words: str
    gradients: np.ndarray | None
    records: Records

    def __len__(self) -> int:
        return len(self.records)


class CanaryHead:
    """A module's gradients record by record, in float64.

    Raises:
        ConfigError: a loss that has no gradients here.
    """

    def __init__(self, module: nn.Sequential, loss: str) -> None:
        if loss not in LOSSES:
            losses = " or ".join(LOSSES)
            raise ConfigError(
                f"training.loss={loss}: `agt audit dpsgd` can only audit runs that were trained "
                f"with training.loss={losses}. Give the folder of such a run with run=..."
            )
        self.module, self.loss = module, loss
        self.parameters = {name: p.detach().double() for name, p in module.state_dict().items()}
        self.initial = flat(self.parameters)

    def gradients(
        self, theta: np.ndarray, features: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """([n, P] gradients, [n] losses) of records at flat parameters [P]."""
        sizes = [p.numel() for p in self.parameters.values()]

        def loss(flat_theta: Tensor, row: Tensor, label: Tensor) -> Tensor:
            parts = zip(self.parameters.items(), flat_theta.split(sizes), strict=True)
            named = {name: part.view(like.shape) for (name, like), part in parts}
            logits = functional_call(self.module, named, (row[None],))
            binary = self.loss == "binary_cross_entropy"
            return LOSSES[self.loss](
                logits, label.to(logits.dtype).view(1, 1) if binary else label.view(1)
            )

        each = vmap(grad_and_value(loss), in_dims=(None, 0, 0))
        x, y = (
            torch.from_numpy(np.asarray(features, dtype=np.float64)),
            torch.from_numpy(np.asarray(labels)),
        )
        gradients, losses = each(torch.from_numpy(theta), x, y)
        return gradients.numpy(), losses.numpy()


def dirac(count: int, head: CanaryHead, pool: Records, rng: np.random.Generator) -> np.ndarray:
    """[count, P] each on a coordinate of its own: those that the data's gradients move least at
    first, of equals any.
    """
    rows = rng.permutation(len(pool))[:ROWS_LOOKED_AT]
    at_first, _ = head.gradients(head.initial, pool.features[rows], pool.labels[rows])
    shuffled = rng.permutation(len(head.initial))
    places = shuffled[np.argsort((at_first**2).sum(0)[shuffled], kind="stable")][:count]
    gradients = np.zeros((count, len(head.initial)))
    gradients[np.arange(count), places] = LENGTH
    return gradients


def gaussian(count: int, head: CanaryHead, pool: Records, rng: np.random.Generator) -> np.ndarray:
    """[count, P] random directions, made orthogonal."""
    return LENGTH * np.linalg.qr(rng.standard_normal((len(head.initial), count)))[0].T


def signs(count: int, head: CanaryHead, pool: Records, rng: np.random.Generator) -> np.ndarray:
    """[count, P] the same size in every element, which is what an elementwise clip lets through
    most of.
    """
    size = len(head.initial)
    return LENGTH / np.sqrt(size) * rng.choice([-1.0, 1.0], (count, size))


GRADIENTS = {
    "dirac": ("each canary (a gradient that the audit adds) is 0 except in one coordinate", dirac),
    "gaussian": ("each canary (a gradient that the audit adds) has a random direction", gaussian),
    "signs": (
        "each canary (a gradient that the audit adds) has the same size in every coordinate",
        signs,
    ),
}
RECORDS = {
    "mislabelled": "canaries are mislabelled records",
    "blank": "the canary (a record that the audit adds) is blank",
    "adversarial": (
        "the canaries (records that the audit adds) are those with the largest gradients, with "
        "right or wrong labels"
    ),
}
KINDS = (*GRADIENTS, *RECORDS)


def canaries_of(kind: str, count: int, head: CanaryHead, pool: Records, seed: int) -> Canaries:
    """Canaries of one of ``KINDS``, made of the records of a pool.

    Raises:
        ConfigError: there is no room for so many.
    """
    rng, size = np.random.default_rng(seed), len(head.initial)
    if kind in GRADIENTS:
        if count > size:
            raise ConfigError(
                f"audit.canaries={count} exceeds {size}, the number of trained parameters: each "
                f"canary needs a direction of its own. Give {size} or fewer"
            )
        words, make = GRADIENTS[kind]
        zeros = np.zeros((count, *pool.features.shape[1:]))
        return Canaries(
            words,
            make(count, head, pool, rng),
            _named(zeros, np.zeros(count, dtype=np.int64), pool),
        )
    if count > len(pool):
        raise ConfigError(
            f"audit.canaries={count} exceeds {len(pool)}, the number of records from which "
            f"canaries can be made: give {len(pool)} or fewer"
        )
    if kind == "blank" and count != 1:
        raise ConfigError(
            f"audit.canaries={count} is not possible with audit.canary=blank, because all blank "
            "records are the same: set audit.canaries=1"
        )
    rows, others = rng.permutation(len(pool)), (pool.labels + 1) % (int(pool.labels.max()) + 1)
    features, labels = np.asarray(pool.features)[rows], others[rows]
    if kind == "blank":
        features, labels = np.zeros_like(features), pool.labels
    if kind == "adversarial":
        features, labels = (
            np.concatenate([features, features]),
            np.concatenate([pool.labels[rows], labels]),
        )
        lengths = np.linalg.norm(head.gradients(head.initial, features, labels)[0], axis=1)
        worst = np.argsort(-lengths, kind="stable")
        features, labels = features[worst], labels[worst]
    return Canaries(RECORDS[kind], None, _named(features[:count], labels[:count], pool))


def _named(features: np.ndarray, labels: np.ndarray, pool: Records) -> Records:
    ids = np.array([f"{CANARY_ID}{index}" for index in range(len(labels))])
    return Records(
        features.astype(pool.features.dtype), labels, ids, ids, np.zeros(len(ids), dtype=bool)
    )


def flat(named: Mapping[str, Tensor]) -> np.ndarray:
    """[P] float64: all tensors, one after another."""
    return np.concatenate([tensor.detach().double().numpy().ravel() for tensor in named.values()])


# -- trainings
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sight:
    """What adversaries see of R runs with m canaries.

    Attributes:
        scores: [R, T, m] each noisy sum along the canary's clipped gradient, less what the others
            are expected to add, in units of the most that one record can add: a canary that took
            part adds ``reach``.
        reach: [R, T, m] the clipped gradient's length, in the same units; at most 1.
        weights: [R, m] the final weights along the canary's first gradient, downhill.
        losses: [R, m] on the canaries at the end; of gradient canaries 0.
        squares, coordinates: [R] the squares of all noise, over the claimed variance, added up over
            so many coordinates.
    """

    scores: np.ndarray
    reach: np.ndarray
    weights: np.ndarray
    losses: np.ndarray
    squares: np.ndarray
    coordinates: np.ndarray


@dataclass(frozen=True)
class NoisyTraining:
    """A run's own training with noise, on some of its records.

    Attributes:
        problem: of the run, with the records that every training has.
        plan: the noise that the run claims.
        seed: for tests; None: fresh noise for each training, from the operating system, as the
            product draws it.
    """

    problem: Problem
    plan: NoisePlan
    seed: int | None = None

    @classmethod
    def of(cls, model: Model, records: Records, seed: int | None = None) -> "NoisyTraining":
        """The run that made this model, on some of its records.

        Raises ConfigError: the run has no noise.
        """
        network = model.boxed_network
        if model.noise is None or network is None:
            raise ConfigError(
                "run: this run was trained without noise, so it makes no privacy claim about its "
                "weights. Give a run that was trained with noise.epsilon=NUMBER"
            )
        return cls(neighbouring(model.problem, records, NOMINAL), model.noise, seed)

    @property
    def config(self) -> NoiseConfig:
        """The claim, for one unit."""
        config = self.problem.settings.noise
        assert config is not None
        return config

    @property
    def noise(self) -> float:
        """The noise's standard deviation over the most that one unit adds to a sum."""
        return self.plan.sigma / self.plan.sensitivity

    @property
    def claim(self) -> str:
        """For a stranger."""
        return (
            f"({self.config.epsilon:.4g}, {self.config.delta:g})-differentially private: each "
            f"record is used in {self.plan.epochs} steps, and the Gaussian noise of each step "
            f"has a standard deviation of {self.noise:.4g} times the largest contribution of one "
            "record"
        )

    @cached_property
    def module(self) -> nn.Sequential:
        """Layers and initial parameters."""
        problem = self.problem
        shape = problem.dataset.train.features.shape[1:]
        module = problem.settings.model.build(shape, problem.classes, problem.settings.training)
        copy_initial_parameters(module, problem.initial or {})
        return module

    @cached_property
    def head(self) -> CanaryHead:
        """For canaries to be made."""
        return CanaryHead(self.module, self.problem.settings.training.loss)

    def canaries(self, kind: str, count: int, seed: int) -> Canaries:
        """As ``canaries_of``, of the records that every training has."""
        return canaries_of(kind, count, self.head, self.problem.dataset.train, seed)

    def drawn(self, seed: int | None) -> Noise:
        """One training's noise: step -> name -> what is added."""
        parameters = {name: p.detach() for name, p in self.module.named_parameters()}
        draw = noise_seed(replace(self.config, seed=seed))
        return lambda step: draw_noise(parameters, self.plan, draw, step)

    def train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        """Train R times, from fresh draws.

        Args:
            inside: [R, T, m] or [R, 1, m] bool: in which steps that a canary's unit takes part in,
                of which each epoch has one, it is there.
        """
        seeds = (
            [None] * len(inside) if self.seed is None else range(self.seed, self.seed + len(inside))
        )
        runs = [self._once(canaries, one, seed) for one, seed in zip(inside, seeds, strict=True)]
        return Sight(*(np.stack(parts) for parts in zip(*runs, strict=True)))

    def _once(
        self, canaries: Canaries, inside: np.ndarray, seed: int | None
    ) -> tuple[np.ndarray, ...]:
        again = neighbouring(self.problem, with_added(self.problem.dataset.train, canaries.records))
        inside = np.broadcast_to(inside, (self.plan.epochs, len(canaries)))
        run = _WatchedRun(
            self, canaries, inside, again.setup, again.dataset.train, self.drawn(seed)
        )
        with torch.no_grad():
            for rows in run.plan.batches(run.records.units):
                run.step(rows)
        end, losses = flat(run.point), np.zeros(len(canaries))
        if canaries.gradients is None:
            losses = self.head.gradients(end, canaries.records.features, canaries.records.labels)[1]
        weights, _ = run.along(self.head.initial - end, run.first)
        return (
            run.scores,
            run.reach,
            weights,
            losses,
            np.array(run.squares),
            np.array(run.coordinates),
        )


class _WatchedRun(TrainingRun):
    """The training loop, with canaries among the records and an adversary who sees every
    direction.
    """

    def __init__(
        self,
        trainer: NoisyTraining,
        canaries: Canaries,
        inside: np.ndarray,
        setup: TrainingSetup,
        records: Records,
        noise: Noise,
    ) -> None:
        super().__init__(trainer.module, setup, records, noise=noise)
        settings, self.canaries, self.inside, self.head = (
            trainer.problem.settings,
            canaries,
            inside,
            trainer.head,
        )
        # how far one unit moves a batch's sum, l2
        self.most = trainer.plan.sensitivity * trainer.problem.plan.normalizer
        self.unit_rows = settings.relation.unit_rows
        self.opposed = replaces(settings.relation.name) and canaries.gradients is not None
        self.sgd = self.spy = _Spy(setup.training)
        self.others = len(records) - len(canaries)
        self.first = self.clipped(np.arange(len(canaries)))
        self.scores, self.reach = np.zeros(inside.shape), np.zeros(inside.shape)
        self.sigma, self.squares, self.coordinates = (
            trainer.plan.sigma * trainer.problem.plan.normalizer,
            0.0,
            0,
        )

    def clipped(self, places: np.ndarray) -> np.ndarray:
        """[len(places), P] gradients of canaries, clipped elementwise, of a whole unit."""
        theta, clip = flat(self.point), self.training.clip
        if not len(places):
            return np.zeros((0, theta.size))
        if self.canaries.gradients is not None:
            return self.unit_rows * np.clip(
                self.canaries.gradients[places] * clip * np.sqrt(theta.size), -clip, clip
            )
        records = self.canaries.records
        return np.clip(
            self.head.gradients(theta, records.features[places], records.labels[places])[0],
            -clip,
            clip,
        )

    def along(self, excess: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(a sum [P] along each gradient, the gradients' lengths), in units of the most that one
        unit can add.
        """
        lengths = np.linalg.norm(gradients, axis=1)
        return gradients @ excess / np.maximum(lengths, 1e-300) / self.most, np.minimum(
            1, lengths / self.most
        )

    def step(self, rows: np.ndarray) -> None:
        """As ``Run.step``; then the scores of the canaries whose batch it was."""
        places, epoch = rows[rows >= self.others] - self.others, self.steps_taken // self.plan.count
        self.gradients = self.clipped(places)
        super().step(rows)
        excess = flat(self.spy.directions) * self.plan.normalizer - self.expected
        noise = excess - self._there(places, epoch) @ self.gradients
        self.squares, self.coordinates = (
            self.squares + float(noise @ noise) / self.sigma**2,
            self.coordinates + noise.size,
        )
        sums, reach = self.along(excess, self.gradients)
        if self.opposed:  # +g or -g: as far apart as 2 g or nothing
            sums, reach = sums + reach, np.minimum(2 * reach, 1)
        self.scores[epoch, places], self.reach[epoch, places] = sums, reach

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, BoundSums]:
        """Zeros: no bound is audited, and the nominal parameters depend on none."""
        if self.relation.selects:
            return super().bound_sums(rows, eligible, group)
        zeros = {
            name: torch.zeros_like(bound.lower, dtype=torch.int64)
            for name, bound in self.bounds.items()
        }
        return {name: BoundSums(zero, zero) for name, zero in zeros.items()}

    def _there(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """[len(places)] how often each canary's gradient is added."""
        return np.where(self.inside[epoch, places], 1.0, -1.0 if self.opposed else 0.0)

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """The others' sums, and those canaries' that are in."""
        places, epoch = rows[rows >= self.others] - self.others, self.steps_taken // self.plan.count
        sums = super().nominal_sums(rows[rows < self.others])
        quantum = self.training.clip / QUANTA
        self.expected = flat(sums) * quantum
        there = self._there(places, epoch)
        if self.canaries.gradients is None:  # records: the loop's own gradients
            return super().nominal_sums(
                rows[(rows < self.others) | np.isin(rows - self.others, places[there > 0])]
            )
        added = torch.from_numpy(np.rint(there @ self.gradients / quantum).astype(np.int64))
        parts = added.split([total.numel() for total in sums.values()])
        return {
            name: total + part.view_as(total)
            for (name, total), part in zip(sums.items(), parts, strict=True)
        }


@dataclass
class _Spy(Sgd):
    """The optimizer, and the last direction that the nominal parameters were given."""

    directions: Tensors = field(default_factory=dict)

    def update(self, key: BufferKey, gradient: Tensor) -> Tensor:
        """As ``Sgd.update``."""
        if key[0] == "nominal":
            self.directions[str(key[1])] = gradient
        return super().update(key, gradient)


# -- the audit
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingEffort:
    """How hard.

    Attributes:
        trials: trainings a side with one canary.
        step_runs: trainings with a coin in each step.
        confidence: of all rigorous bounds together.
        seed: of the coins.
    """

    trials: int
    step_runs: int
    confidence: float = 0.95
    seed: int = 0

    @property
    def counted(self) -> int:
        """Of the trials a side: the first third chooses thresholds."""
        return self.trials - self.trials // 3


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon at the claim's delta, from one attack.

    Attributes:
        method: how it came from what was counted, by its name.
        adversary: who sees what: ``SUMS``, ``WEIGHTS``, ``LOSS``, ``STEPS`` or ``ONE_RUN``.
        found: the bound.
        strength: what it is good for.
        canaries: of one run; 0: one, of many runs.
    """

    method: str
    adversary: str
    found: float
    strength: Strength
    canaries: int = 0

    @property
    def seen(self) -> str:
        """Who sees what, and in how many canaries."""
        return f"{self.adversary}, {self.canaries} canaries" if self.canaries else self.adversary

    @property
    def estimate(self) -> Estimate:
        """As a finding has it."""
        return Estimate(f"{self.method}, {self.seen}", "epsilon", self.found, self.strength)


def likelihood(sight: Sight, noise: float) -> np.ndarray:
    """[R, T, m] the logarithm of each noisy sum's likelihood with the canary over that without,
    under the claim.
    """
    return (2 * sight.reach * sight.scores - sight.reach**2) / (2 * noise**2)


def audit(
    trainer: NoisyTraining,
    canary: Canaries,
    effort: TrainingEffort,
    several: Canaries | None = None,
) -> tuple[list[LowerBound], Finding]:
    """(all bounds on epsilon at the claim's delta, by estimator and who sees what; the size of the
    noise).

    Args:
        canary: one, of many runs.
        several: of one run; None: none is made.

    Raises:
        ConfigError: too few trials.
    """
    records = canary.gradients is None
    # rigorous bounds, which share the error
    events = 2 * (2 + records) + 2 + (0 if several is None else len(BOUNDS))
    sure, config = 1 - (1 - effort.confidence) / events, trainer.config
    needed = Claimed("mu", trainer.plan.mu).needed(sure)
    if effort.counted < needed:  # they could contradict nothing, even if no guess were wrong
        enough = next(
            trials for trials in range(needed, 2 * needed + 1) if trials - trials // 3 >= needed
        )
        raise ConfigError(
            f"audit.trials={effort.trials} is too few to contradict the claimed epsilon of "
            f"{config.epsilon:.4g} at delta = {config.delta:g}, even if every guess were right: "
            f"set audit.trials={enough} or more"
        )
    sights = [
        trainer.train(canary, np.full((effort.trials, 1, 1), inside)) for inside in (True, False)
    ]
    scores = {
        SUMS: [likelihood(sight, trainer.noise).sum(1) for sight in sights],
        WEIGHTS: [s.weights for s in sights],
    }
    # the greater, the more it seems to be in
    scores |= {LOSS: [-sight.losses for sight in sights]} if records else {}
    bounds = [
        bound for name, sides in scores.items() for bound in _of_many(name, sides, config, sure)
    ]
    if several is not None:
        bounds += _of_one(trainer, several, effort.seed, sure)
    squares, coordinates = float(sights[1].squares.sum()), int(sights[1].coordinates.sum())
    size = noise_size(
        "training with noise in every step",
        squares,
        coordinates,
        sure,
        f"{effort.trials} trainings",
    )
    return [*bounds, _of_steps(trainer, canary, effort, sure)], size


def _of_many(
    adversary: str, sides: list[np.ndarray], config: NoiseConfig, sure: float
) -> list[LowerBound]:
    """What one adversary's scores of many runs give, each bound at a threshold chosen for its
    own measure.
    """
    (present, absent), third, bounds = (side[:, 0] for side in sides), len(sides[0]) // 3, []
    for claimed in (Claimed("epsilon", config.epsilon, config.delta), Claimed("mu", 0.0)):
        event = chosen(present[:third], absent[:third], claimed, sure, "scores")
        for each in estimates(event.mistakes(present[third:], absent[third:]), config.delta, sure):
            if each.measure == claimed.measure:
                epsilon = (
                    each.found if each.measure == "epsilon" else _epsilon(each.found, config.delta)
                )
                bounds.append(LowerBound(each.estimator, adversary, epsilon, each.strength))
    return bounds


def _of_steps(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, sure: float
) -> LowerBound:
    """The bound from guesses in each step."""
    steps = trainer.plan.epochs
    coins = np.random.default_rng(effort.seed).random((effort.step_runs, steps, 1)) < 0.5
    right = (likelihood(trainer.train(canary, coins), trainer.noise) > 0) == coins
    fewest = lower_limit(int(right.sum()), right.size, 1 - sure)
    mu = 2 * float(ndtri(fewest)) * math.sqrt(steps) if fewest > 0.5 else 0.0
    return LowerBound("Gaussian DP", STEPS, _epsilon(mu, trainer.config.delta), Strength.CONFIDENT)


def _of_one(trainer: NoisyTraining, canaries: Canaries, seed: int, sure: float) -> list[LowerBound]:
    """The bounds from guesses about many canaries of one training, all on the same scores."""
    m, config, bounds = len(canaries), trainer.config, []
    coins = np.random.default_rng(seed).random((1, 1, m)) < 0.5
    scores = likelihood(trainer.train(canaries, coins), trainer.noise).sum(1)[0]
    for bound in BOUNDS:
        made = planned_guesses(m, config.epsilon, config.delta, sure, bound)
        right = right_guesses(scores, coins[0, 0], made - made // 2, made // 2)
        epsilon = one_run_epsilon(right, made, m, config.delta, sure, bound)
        bounds.append(LowerBound(bound, ONE_RUN, epsilon, Strength.CONFIDENT, m))
    return bounds


def judged(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, bounds: Sequence[LowerBound]
) -> Finding:
    """The greatest rigorous bound held against the claim."""
    config, sure = (
        trainer.config,
        [bound for bound in bounds if bound.strength is Strength.CONFIDENT],
    )
    best = max(sure, key=lambda bound: bound.found)
    violated = best.found > config.epsilon
    mu = Claimed("mu", trainer.plan.mu).noticed(effort.counted, effort.confidence, len(sure))
    noticed = None if mu is None else gaussian_epsilon(mu, config.delta)
    claimed_epsilon = f"{config.epsilon:.12g}"
    confidence = 100 * effort.confidence
    lower_bound = least(best.found, config.epsilon)
    verdict = verdict_words(violated, f"epsilon of {claimed_epsilon}")
    once = sorted({each.seen for each in sure if each.canaries})
    return Finding(
        subject=f"training with noise in every step, claimed epsilon {config.epsilon:.3g}",
        claim=trainer.claim,
        attack=(
            f"an attacker guesses whether training used canaries: {canary.words}. The "
            f"{len(sure)} rigorous bounds share the error probability"
        ),
        effort="; ".join(
            (
                f"{effort.trials} trainings with the canary, and as many without it",
                f"{effort.step_runs} trainings in which a coin decides in each step whether the "
                "canary is used",
                *once,
            )
        ),
        outcome=Outcome.VIOLATED if violated else Outcome.STANDS,
        meaning=(
            (
                f"epsilon at delta = {config.delta:g} is at least {lower_bound}, with "
                f"{confidence:.12g} % confidence (method: {best.method}; the attacker sees: "
                f"{best.seen}); {verdict}"
            )
            if best.found
            else (
                "no attack could tell whether the canary was used, so no lower bound on epsilon "
                "was found (this is not a proof of privacy)"
            )
        ),
        measure="epsilon",
        claimed=config.epsilon,
        delta=config.delta,
        found=best.found,
        confidence=effort.confidence,
        estimator=best.method,
        noticeable=(
            "this audit detects only training that reveals, in nearly every run, whether the "
            "canary was used"
            if noticed is None
            else (
                "about half of all audits detect noise so small that the true epsilon is "
                f"{noticed:.3g} or more (the attacker sees every noisy sum)"
            )
        ),
        noticed=noticed,
        estimates=tuple(bound.estimate for bound in bounds),
    )


def _epsilon(mu: float, delta: float) -> float:
    return gaussian_epsilon(mu, delta) if mu else 0.0


NOTES = (
    "this audit uses the run's own training loop and public constants, but new noise and only "
    "some of the run's records",
    "bounds called 'Gaussian DP' or 'gdp' test a stronger claim: that training is as private as "
    "one addition of Gaussian noise of the stated size. If only these bounds are violated, only "
    "that stronger claim is contradicted. Bounds called 'Clopper-Pearson' or 'exact' test "
    "epsilon at delta itself",
    "the step-by-step bound is computed for one step and then composed by agt's accountant. So "
    "it detects errors in noise and clipping, but not errors in the composition",
    "only rigorous bounds can contradict a claim, and all rigorous bounds of one claim hold at "
    "the same time. 'Katz-log' is an asymptotic bound and 'Bayesian' a credible bound, so "
    "neither can contradict a claim",
)


@schema
class DpSgdAudit(AuditKind):
    """How hard a run's training with noise inside is attacked.

    Attributes:
        trainer: noise (the run's own noisy training), which auto means, too.
        records: how many of the run's records are trained on, besides the canaries.
        canary: one of ``agt_audit.dpsgd.KINDS``; null: signs, as the clip is elementwise.
        canaries: of the one-run audit; 0: none is made.
        trials: trainings a side.
        step_runs: trainings with a coin in each step.
    """

    trainer: Literal["auto", "noise"] = "auto"
    records: Annotated[int, Field(ge=1)] = 200
    canary: Literal["dirac", "gaussian", "signs", "mislabelled", "blank", "adversarial"] | None = (
        None
    )
    canaries: Annotated[int, Field(ge=0)] = 100
    trials: Annotated[int, Field(ge=1)] = 200
    step_runs: Annotated[int, Field(ge=1)] = 50
    name: ClassVar[str] = "dpsgd"
    needs_classes: ClassVar[bool] = True

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train with canaries, and hold lower bounds against the run's claim."""
        opened = given.open(record, console)
        model, records = opened.model, opened.kept.problem.dataset.train
        rows = np.sort(np.random.default_rng(given.seed).permutation(len(records))[: self.records])
        trainer, kind = NoisyTraining.of(model, records.take(rows)), self.canary or "signs"
        if self.records > len(records):
            raise ConfigError(
                f"audit.records={self.records} exceeds {len(records)}, the number of training "
                f"records of the run: give {len(records)} or fewer"
            )
        effort = TrainingEffort(self.trials, self.step_runs, given.confidence, given.seed)
        canary = trainer.canaries(kind, 1, given.seed)
        several = trainer.canaries(kind, self.canaries, given.seed) if self.canaries else None
        with console.progress("audits", "claim") as report:
            bounds, size = audit(trainer, canary, effort, several)
            report(1, 1, 1, 1)
        ordered = sorted(
            bounds, key=lambda each: (each.strength is not Strength.CONFIDENT, -each.found)
        )
        lines = [(each.method, each.seen, each.strength.value, each.found) for each in ordered]
        columns = [
            "lower bound on epsilon",
            "who sees",
            "it is",
            f"claimed {trainer.config.epsilon:g}",
        ]
        tables = {"bounds": pd.DataFrame(lines, columns=columns)}
        finding = judged(trainer, canary, effort, bounds)
        return Audited.of(opened.trained.finished, (finding, size), NOTES, tables=tables)
