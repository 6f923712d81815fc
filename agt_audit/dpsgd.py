"""agt audit dpsgd: a run's training with noise, repeated with and without canaries.

A canary is a gradient or a record that the audit adds to the training data. Trainings use the loop
of ``agt train``. An adversary sees every noisy gradient sum, the final weights, or the final loss
on the canary, and guesses whether the canary was used. Its mistakes give lower bounds on epsilon,
which are compared with the run's claim.

* A **gradient canary** replaces the gradient of a record in every step. It is longer than the
  clip level, so that a missing clip is detected. Several canaries of one training are (nearly)
  orthogonal, so that none changes another's score.
* An **input canary** is a record, whose gradient the network computes.

Each canary is a unit of its own, whose id decides its batch. Under substitution, a unit that is not
in the data is replaced by one with the opposite gradient. The adversary who sees every sum knows
all other records, and subtracts the sum of their gradients.

Formal guarantees
    * Many trainings: a threshold is chosen on the first third of the trainings of each side, and
      mistakes are counted on the others (Lemma 2 of docs/proofs/attack_bounds.md).
    * Step by step: in each step a new coin decides whether the canary is used. A guess is right
      with probability at most Phi(mu_step / 2), so the number of right guesses is dominated by a
      binomial number. The accountant composes the steps, so errors in noise and clipping are
      detected, but no errors in the composition.
    * One training with many canaries: agt_audit/one_run.py. The size of the noise is tested as in
      agt_audit/added_noise.py.
    * All rigorous bounds of one audit share the error probability equally.

Sources: lecture 004; Nasr et al. 2023; Steinke et al. 2023.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch
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
from agt_audit.added_noise import noise_size
from agt_audit.estimates import (
    Claimed,
    Mistakes,
    choose_event,
    epsilon_bound,
    lower_limit,
    mu_bound,
    power_sentence,
    verdict_words,
)
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import DpSgdAuditSettings, trained_without_noise
from agt_audit.neighbours import NOMINAL, attack_records, neighbouring, replaces, with_added
from agt_audit.one_run import (
    BOUNDS,
    epsilon_of_mu,
    one_run_epsilon,
    planned_guesses,
    right_guesses,
)
from agt_cli.report.console import Console
from agt_cli.report.findings import Estimate, Finding, Outcome, Strength, format_lower_bound
from agt_cli.report.record import RunRecord

CANARY_ID = "agt-canary-"  # the ids of canaries are this and a number
CANARY_NORM = (
    10.0  # the l2 norm of a gradient canary before it is clipped, in units of the clip level
)
PROBED_ROWS = 256  # records whose gradients decide which coordinates the data moves least
SUMS = "every noisy sum"
WEIGHTS = "the final weights"
LOSS = "the final loss"
STEPS = "step by step, composed"
ONE_RUN = "one run"
LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "cross_entropy": F.cross_entropy,
}


# -- canaries
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Canaries:
    """m canaries of one kind.

    Attributes:
        description: a clause that says what they are, for findings.
        gradients: [m, P] the gradients, in units of the clip level; None: the canaries are records.
        records: the m records that are added to the data. Those of gradient canaries are zeros;
            their own gradients are not used.
    """

    description: str
    gradients: np.ndarray | None
    records: Records

    def __len__(self) -> int:
        return len(self.records)


class CanaryHead:
    """A network that computes the gradient of each record, in float64.

    Args:
        module: the layers with their initial parameters.
        loss: the name of the loss, a key of ``LOSSES``.

    Raises:
        ConfigError: ``LOSSES`` does not have the loss.

    Attributes:
        initial: [P] the initial parameters, one after another.
    """

    def __init__(self, module: nn.Sequential, loss: str) -> None:
        if loss not in LOSSES:
            losses = " or ".join(LOSSES)
            raise ConfigError(
                f"training.loss={loss}: `agt audit dpsgd` can only audit runs that were trained "
                f"with training.loss={losses}. Give the folder of such a run with run=..."
            )
        self.module = module
        self.loss = loss
        self.parameters = {
            name: parameter.detach().double() for name, parameter in module.state_dict().items()
        }
        self.initial = flat(self.parameters)

    def gradients(
        self, theta: np.ndarray, features: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient [n, P] and the loss [n] of each record.

        Args:
            theta: [P] all parameters, one after another.
            features: [n, ...] the records' features.
            labels: [n] the records' labels.
        """
        of_each_record = vmap(grad_and_value(self._loss_of_record), in_dims=(None, 0, 0))
        gradients, losses = of_each_record(
            torch.from_numpy(theta),
            torch.from_numpy(np.asarray(features, dtype=np.float64)),
            torch.from_numpy(np.asarray(labels)),
        )
        return gradients.numpy(), losses.numpy()

    def _loss_of_record(self, theta: Tensor, features: Tensor, label: Tensor) -> Tensor:
        """Return the loss of one record, as a number, at the parameters ``theta`` [P]."""
        sizes = [parameter.numel() for parameter in self.parameters.values()]
        parameters = {}
        pieces = theta.split(sizes)
        for (name, like), piece in zip(self.parameters.items(), pieces, strict=True):
            parameters[name] = piece.view(like.shape)
        logits = functional_call(self.module, parameters, (features[None],))
        if self.loss == "binary_cross_entropy":
            target = label.to(logits.dtype).view(1, 1)
        else:
            target = label.view(1)
        return LOSSES[self.loss](logits, target)


def dirac(count: int, head: CanaryHead, pool: Records, rng: np.random.Generator) -> np.ndarray:
    """Return canary gradients [count, P] that are 0 except in one coordinate each.

    The coordinates are those in which gradients of records at the initial parameters are smallest,
    and ties are broken at random.

    Args:
        count: how many canaries, at most P.
        head: computes the gradients.
        pool: the records, of which at most ``PROBED_ROWS`` are used.
        rng: chooses these records, and breaks ties.
    """
    rows = rng.permutation(len(pool))[:PROBED_ROWS]
    first_gradients, _ = head.gradients(head.initial, pool.features[rows], pool.labels[rows])
    shuffled = rng.permutation(len(head.initial))  # so that ties are broken by chance
    energy = (first_gradients**2).sum(0)
    coordinates = shuffled[np.argsort(energy[shuffled], kind="stable")][:count]
    gradients = np.zeros((count, len(head.initial)))
    gradients[np.arange(count), coordinates] = CANARY_NORM
    return gradients


def signs(count: int, head: CanaryHead, pool: Records, rng: np.random.Generator) -> np.ndarray:
    """Return canary gradients [count, P] with the same absolute value in every coordinate.

    Clipping each coordinate leaves more of such a gradient than of any other. Arguments as of
    ``dirac``; ``pool`` is not used.
    """
    size = len(head.initial)
    return CANARY_NORM / np.sqrt(size) * rng.choice([-1.0, 1.0], (count, size))


GRADIENTS = {
    "dirac": ("each canary (a gradient that the audit adds) is 0 except in one coordinate", dirac),
    "signs": (
        "each canary (a gradient that the audit adds) has the same size in every coordinate",
        signs,
    ),
}
RECORDS = {
    "mislabelled": "canaries are mislabelled records",
    "adversarial": (
        "the canaries (records that the audit adds) are those with the largest gradients, with "
        "right or wrong labels"
    ),
}
KINDS = (*GRADIENTS, *RECORDS)


def canaries_of(kind: str, count: int, head: CanaryHead, pool: Records, seed: int) -> Canaries:
    """Return canaries of one kind.

    Args:
        kind: one of ``KINDS``.
        count: how many canaries.
        head: computes gradients of records.
        pool: the records from which canaries are made.
        seed: of all random choices.

    Raises:
        ConfigError: there are too few parameters or records for so many canaries.
    """
    rng = np.random.default_rng(seed)
    if kind in GRADIENTS:
        return _gradient_canaries(kind, count, head, pool, rng)
    return _record_canaries(kind, count, head, pool, rng)


def _gradient_canaries(
    kind: str, count: int, head: CanaryHead, pool: Records, rng: np.random.Generator
) -> Canaries:
    """Return canaries that are gradients; arguments and errors as of ``canaries_of``."""
    size = len(head.initial)
    if count > size:
        raise ConfigError(
            f"audit.canaries={count} exceeds {size}, the number of trained parameters: each "
            f"canary needs a direction of its own. Give {size} or fewer"
        )
    description, make = GRADIENTS[kind]
    zeros = np.zeros((count, *pool.features.shape[1:]))
    gradients = make(count, head, pool, rng)
    records = _canary_records(zeros, np.zeros(count, dtype=np.int64), pool)
    return Canaries(description, gradients, records)


def _record_canaries(
    kind: str, count: int, head: CanaryHead, pool: Records, rng: np.random.Generator
) -> Canaries:
    """Return canaries that are records; arguments and errors as of ``canaries_of``."""
    if count > len(pool):
        raise ConfigError(
            f"audit.canaries={count} exceeds {len(pool)}, the number of records from which "
            f"canaries can be made: give {len(pool)} or fewer"
        )
    rows = rng.permutation(len(pool))
    wrong_labels = (pool.labels + 1) % (int(pool.labels.max()) + 1)
    features = np.asarray(pool.features)[rows]
    labels = wrong_labels[rows]
    if kind == "adversarial":
        features = np.concatenate([features, features])
        labels = np.concatenate([pool.labels[rows], labels])
        gradients, _ = head.gradients(head.initial, features, labels)
        longest_first = np.argsort(-np.linalg.norm(gradients, axis=1), kind="stable")
        features = features[longest_first]
        labels = labels[longest_first]
    return Canaries(RECORDS[kind], None, _canary_records(features[:count], labels[:count], pool))


def _canary_records(features: np.ndarray, labels: np.ndarray, pool: Records) -> Records:
    """Return private records with ids of canaries, in the number formats of ``pool``."""
    ids = np.array([f"{CANARY_ID}{index}" for index in range(len(labels))])
    return attack_records(features, labels, ids, like=pool)


def flat(tensors: Mapping[str, Tensor]) -> np.ndarray:
    """Return the elements of all tensors one after another, [P] float64."""
    return np.concatenate([tensor.detach().double().numpy().ravel() for tensor in tensors.values()])


# -- trainings
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdversaryView:
    """What adversaries see of R trainings of T epochs with m canaries.

    Attributes:
        scores: [R, T, m] the noisy gradient sum of the canary's step in each epoch, without the
            other records' part, projected on the canary's clipped gradient. It is in units of the
            largest contribution of one unit, so a canary that is used adds ``reach`` to it.
        reach: [R, T, m] the l2 norm of the canary's clipped gradient, in the same units; at most 1.
        weights: [R, m] the change of the weights, projected on minus the canary's first gradient;
            in the same units.
        losses: [R, m] the final loss on each canary; 0 for gradient canaries.
        squares: [R] the sum of the squares of all noise, divided by the claimed variance.
        coordinates: [R] how many numbers were squared.
    """

    scores: np.ndarray
    reach: np.ndarray
    weights: np.ndarray
    losses: np.ndarray
    squares: np.ndarray
    coordinates: np.ndarray


@dataclass(frozen=True)
class NoisyTraining:
    """A run's training with noise, which can be repeated with canaries on some of its records.

    Attributes:
        problem: the run's problem, with the records that every training has.
        plan: the noise that the run claims to add.
        seed: the noise of the first training follows from this seed, that of the next from the
            next seed (for tests); None: noise is drawn anew by the operating system's randomness,
            as in ``agt train``.
    """

    problem: Problem
    plan: NoisePlan
    seed: int | None = None

    @classmethod
    def of(cls, model: Model, records: Records, seed: int | None = None) -> "NoisyTraining":
        """Return the training of a run's model, on other records.

        Args:
            model: the run's model.
            records: the records that every training has.
            seed: as of the class.

        Raises:
            ConfigError: the run was trained without noise.
        """
        network = model.boxed_network
        if model.noise is None or network is None:
            raise trained_without_noise()
        return cls(neighbouring(model.problem, records, NOMINAL), model.noise, seed)

    @property
    def config(self) -> NoiseConfig:
        """The settings of the noise, with the claimed epsilon and delta."""
        config = self.problem.settings.noise
        assert config is not None
        return config

    @property
    def noise_multiplier(self) -> float:
        """The noise's standard deviation, divided by the largest contribution of one unit."""
        return self.plan.sigma / self.plan.sensitivity

    @property
    def claim(self) -> str:
        """The run's claim, as a clause for findings."""
        return (
            f"({self.config.epsilon:.4g}, {self.config.delta:g})-differentially private: each "
            f"record is used in {self.plan.epochs} steps, and the Gaussian noise of each step "
            f"has a standard deviation of {self.noise_multiplier:.4g} times the largest "
            "contribution of one record"
        )

    @cached_property
    def module(self) -> nn.Sequential:
        """The layers with the run's initial parameters."""
        problem = self.problem
        shape = problem.dataset.train.features.shape[1:]
        module = problem.settings.model.build(shape, problem.classes, problem.settings.training)
        copy_initial_parameters(module, problem.initial or {})
        return module

    @cached_property
    def head(self) -> CanaryHead:
        """The network that computes gradients of records, in order to make canaries."""
        return CanaryHead(self.module, self.problem.settings.training.loss)

    def canaries(self, kind: str, count: int, seed: int) -> Canaries:
        """Return canaries that are made from the records of every training (``canaries_of``)."""
        return canaries_of(kind, count, self.head, self.problem.dataset.train, seed)

    def noise_of_run(self, seed: int | None) -> Noise:
        """Return the noise of one training: step -> name of a parameter -> the noise to add.

        Args:
            seed: from which the noise follows; None: it is drawn anew.
        """
        parameters = {name: p.detach() for name, p in self.module.named_parameters()}
        run_seed = noise_seed(replace(self.config, seed=seed))
        return lambda step: draw_noise(parameters, self.plan, run_seed, step)

    def train(self, canaries: Canaries, inside: np.ndarray) -> AdversaryView:
        """Train R times, with other noise each time.

        Args:
            canaries: m canaries, which are added to the records.
            inside: [R, T, m] bool, whether each canary is in the data in its step of each epoch; or
                [R, 1, m], the same for all epochs.
        """
        seeds: Sequence[int | None] = [None] * len(inside)
        if self.seed is not None:
            seeds = range(self.seed, self.seed + len(inside))
        runs = [
            self._train_once(canaries, of_run, seed)
            for of_run, seed in zip(inside, seeds, strict=True)
        ]
        stacked = {}
        for view_field in fields(AdversaryView):
            of_runs = [getattr(run, view_field.name) for run in runs]
            stacked[view_field.name] = np.stack(of_runs)
        return AdversaryView(**stacked)

    def _train_once(
        self, canaries: Canaries, inside: np.ndarray, seed: int | None
    ) -> AdversaryView:
        """Train once, and return what adversaries see, without the first axis of each field.

        Args:
            canaries: as of ``train``.
            inside: [T, m] or [1, m], as of ``train``.
            seed: as of ``noise_of_run``.
        """
        records = with_added(self.problem.dataset.train, canaries.records)
        problem = neighbouring(self.problem, records)
        inside = np.broadcast_to(inside, (self.plan.epochs, len(canaries)))
        noise = self.noise_of_run(seed)
        run = _RecordingRun(self, canaries, inside, problem.setup, problem.dataset.train, noise)
        with torch.no_grad():
            for rows in run.plan.batches(run.records.units):
                run.step(rows)
        end = flat(run.point)
        losses = np.zeros(len(canaries))
        if canaries.gradients is None:
            _, losses = self.head.gradients(end, canaries.records.features, canaries.records.labels)
        weights, _ = run.project(self.head.initial - end, run.first_gradients)
        return AdversaryView(
            scores=run.scores,
            reach=run.reach,
            weights=weights,
            losses=losses,
            squares=np.array(run.squares),
            coordinates=np.array(run.coordinates),
        )


class _RecordingRun(TrainingRun):
    """The training loop with canaries among the records; it records what an adversary sees.

    Args:
        trainer: the run's training, with its claim.
        canaries: the canaries, whose records are the last of ``records``.
        inside: [T, m] bool, in which epochs each canary is in the data.
        setup: the training, with the canaries in its batches.
        records: all records, those of the canaries last.
        noise: step -> name of a parameter -> the noise to add.

    Attributes:
        largest_sum: the largest l2 norm of one unit's contribution to a batch's gradient sum.
        adds_opposite: whether a canary that is not in the data adds its opposite gradient instead
            of nothing (gradient canaries, under substitution).
        first_canary: the row of the first canary; all rows before it are other records.
        first_gradients: [m, P] the canaries' clipped gradients at the initial parameters.
        gradients: [n, P] the clipped gradients of the canaries of the present step.
        expected: [P] the other records' part of the gradient sum of the present step.
        scores, reach, squares, coordinates: as of ``AdversaryView``, without its first axis.
        sigma: the claimed standard deviation of the noise in a batch's gradient sum.
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
        settings = trainer.problem.settings
        normalizer = trainer.problem.plan.normalizer
        self.canaries = canaries
        self.inside = inside
        self.head = trainer.head
        self.largest_sum = trainer.plan.sensitivity * normalizer
        self.unit_rows = settings.relation.unit_rows
        self.adds_opposite = replaces(settings.relation.name) and canaries.gradients is not None
        self.recorder = _RecordingSgd(setup.training)
        self.sgd = self.recorder
        self.first_canary = len(records) - len(canaries)
        self.first_gradients = self.clipped_gradients(np.arange(len(canaries)))
        self.scores = np.zeros(inside.shape)
        self.reach = np.zeros(inside.shape)
        self.sigma = trainer.plan.sigma * normalizer
        self.squares = 0.0
        self.coordinates = 0

    def clipped_gradients(self, indices: np.ndarray) -> np.ndarray:
        """Return the clipped gradients of some canaries at the present parameters, [n, P].

        Each coordinate is clipped, as for records. A gradient canary stands for a unit with the
        largest number of rows, so its gradient is multiplied by this number.

        Args:
            indices: [n] which canaries; there may be none.
        """
        theta = flat(self.point)
        clip = self.training.clip
        if not len(indices):
            return np.zeros((0, theta.size))
        if self.canaries.gradients is not None:
            gradients = self.canaries.gradients[indices] * clip * np.sqrt(theta.size)
            return self.unit_rows * np.clip(gradients, -clip, clip)
        records = self.canaries.records
        gradients, _ = self.head.gradients(
            theta, records.features[indices], records.labels[indices]
        )
        return np.clip(gradients, -clip, clip)

    def project(self, excess: np.ndarray, gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Project a vector on each of n gradients, in units of ``largest_sum``.

        Args:
            excess: [P] the vector, such as a gradient sum.
            gradients: [n, P] the gradients.

        Returns:
            The projections [n], and the norms of the gradients [n], which are at most 1.
        """
        lengths = np.linalg.norm(gradients, axis=1)
        along = gradients @ excess / np.maximum(lengths, 1e-300) / self.largest_sum
        return along, np.minimum(1, lengths / self.largest_sum)

    def step(self, rows: np.ndarray) -> None:
        """Take a step as ``TrainingRun.step`` does, and record the scores of the batch's canaries.

        Args:
            rows: the batch's records.
        """
        indices = self._canaries_in(rows)
        epoch = self._epoch
        # before the step, because it moves the parameters
        self.gradients = self.clipped_gradients(indices)
        super().step(rows)
        excess = flat(self.recorder.directions) * self.plan.normalizer - self.expected
        noise = excess - self._weights(indices, epoch) @ self.gradients
        self.squares += float(noise @ noise) / self.sigma**2
        self.coordinates += noise.size
        sums, reach = self.project(excess, self.gradients)
        if self.adds_opposite:  # +g and -g differ as much as 2 g and 0
            sums = sums + reach
            reach = np.minimum(2 * reach, 1)
        self.scores[epoch, indices] = sums
        self.reach[epoch, indices] = reach

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, BoundSums]:
        """Return zeros, because this audit uses no bounds, and the nominal parameters neither.

        A relation that selects records computes them all the same. Arguments as of ``TrainingRun``.
        """
        if self.relation.selects:
            return super().bound_sums(rows, eligible, group)
        sums = {}
        for name, bound in self.bounds.items():
            zero = torch.zeros_like(bound.lower, dtype=torch.int64)
            sums[name] = BoundSums(zero, zero)
        return sums

    @property
    def _epoch(self) -> int:
        """The epoch that the next step belongs to."""
        return self.steps_taken // self.plan.count

    def _canaries_in(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of the canaries among the records of a batch."""
        return rows[rows >= self.first_canary] - self.first_canary

    def _weights(self, indices: np.ndarray, epoch: int) -> np.ndarray:
        """Return the factor of each canary's gradient in a batch's sum, [n]: 1, 0 or -1."""
        weight_outside = -1.0 if self.adds_opposite else 0.0
        return np.where(self.inside[epoch, indices], 1.0, weight_outside)

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """Return the batch's gradient sum by parameter, in whole quanta, with its used canaries.

        It also sets ``expected``, the other records' part of the sum.
        """
        indices = self._canaries_in(rows)
        sums = super().nominal_sums(rows[rows < self.first_canary])
        quantum = self.training.clip / QUANTA  # the unit of sums, which are whole numbers
        self.expected = flat(sums) * quantum
        weights = self._weights(indices, self._epoch)
        if self.canaries.gradients is None:  # records: the loop's own gradients
            used_rows = self.first_canary + indices[weights > 0]
            is_used = (rows < self.first_canary) | np.isin(rows, used_rows)
            return super().nominal_sums(rows[is_used])
        added = np.rint(weights @ self.gradients / quantum).astype(np.int64)
        pieces = torch.from_numpy(added).split([total.numel() for total in sums.values()])
        return {
            name: total + piece.view_as(total)
            for (name, total), piece in zip(sums.items(), pieces, strict=True)
        }


@dataclass
class _RecordingSgd(Sgd):
    """The optimizer, which records the last noisy direction of each nominal parameter.

    Attributes:
        directions: name of a parameter -> its last direction.
    """

    directions: Tensors = field(default_factory=dict)

    def update(self, key: BufferKey, gradient: Tensor) -> Tensor:
        """Return what ``Sgd.update`` returns; a direction of nominal parameters is recorded."""
        track = key[0]
        name = key[1]
        if track == "nominal":
            self.directions[str(name)] = gradient
        return super().update(key, gradient)


# -- the audit
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingEffort:
    """How many trainings an audit makes.

    Attributes:
        trials: how many trainings with the canary, and how many without it.
        step_runs: how many trainings with a coin in each step.
        confidence: the probability with which all rigorous bounds hold together.
        seed: of the coins.
    """

    trials: int
    step_runs: int
    confidence: float = 0.95
    seed: int = 0

    @property
    def counted(self) -> int:
        """The number of trials of each side that are counted; the others choose thresholds."""
        return self.trials - self.trials // 3


@dataclass(frozen=True)
class LowerBound:
    """A rigorous lower bound on epsilon at the claim's delta, from one attack.

    Attributes:
        method: the name of the estimator.
        adversary: what the attacker sees: ``SUMS``, ``WEIGHTS``, ``LOSS``, ``STEPS`` or
            ``ONE_RUN``, the latter with the number of canaries.
        found: the bound.
    """

    method: str
    adversary: str
    found: float

    @property
    def estimate(self) -> Estimate:
        """The bound as one of a finding's ``estimates``."""
        name = f"{self.method}, {self.adversary}"
        return Estimate(name, "epsilon", self.found, Strength.CONFIDENT)


def log_likelihood_ratios(view: AdversaryView, noise_multiplier: float) -> np.ndarray:
    """Return the log-likelihood ratio of each noisy sum, with the canary to without it, [R, T, m].

    Args:
        view: what the adversary sees.
        noise_multiplier: the claimed standard deviation of the noise, in units of the largest
            contribution of one unit.
    """
    return (2 * view.reach * view.scores - view.reach**2) / (2 * noise_multiplier**2)


def audit_training(
    trainer: NoisyTraining,
    canary: Canaries,
    effort: TrainingEffort,
    several: Canaries | None = None,
) -> tuple[list[LowerBound], Finding]:
    """Train with and without canaries, and compute lower bounds on epsilon.

    Args:
        trainer: the run's training, with its claim.
        canary: one canary, for many trainings.
        effort: how many trainings to make.
        several: many canaries, for a single training; None: no such training is made.

    Returns:
        All lower bounds, which hold together with the confidence of ``effort``; and the finding
        about the size of the noise.

    Raises:
        ConfigError: there are too few trials to contradict the claim.
    """
    canary_is_record = canary.gradients is None
    adversaries = 3 if canary_is_record else 2  # a gradient canary has no loss
    one_run_bounds = 0 if several is None else len(BOUNDS)
    # two bounds for each adversary, one from steps, and one on the size of the noise
    bound_count = 2 * adversaries + 2 + one_run_bounds
    confidence = 1 - (1 - effort.confidence) / bound_count
    _check_trials(trainer, effort, confidence)
    always_in = np.full((effort.trials, 1, 1), True)
    present = trainer.train(canary, always_in)
    absent = trainer.train(canary, ~always_in)
    sides = (present, absent)
    # a larger score says that the canary was rather used
    scores = {
        SUMS: [log_likelihood_ratios(view, trainer.noise_multiplier).sum(1) for view in sides],
        WEIGHTS: [view.weights for view in sides],
    }
    if canary_is_record:
        scores[LOSS] = [-view.losses for view in sides]
    bounds: list[LowerBound] = []
    for adversary, (with_canary, without_canary) in scores.items():
        bounds += _many_run_bounds(
            adversary, with_canary, without_canary, trainer.config, confidence
        )
    if several is not None:
        bounds += _one_run_bounds(trainer, several, effort.seed, confidence)
    size = noise_size(
        "training with noise in every step",
        float(absent.squares.sum()),
        int(absent.coordinates.sum()),
        confidence,
        f"{effort.trials} trainings",
    )
    return [*bounds, _step_bound(trainer, canary, effort, confidence)], size


def _check_trials(trainer: NoisyTraining, effort: TrainingEffort, confidence: float) -> None:
    """Raise ConfigError if the trials could not contradict the claim, even without any mistake.

    Args:
        trainer: the run's training, with its claim.
        effort: how many trials there are.
        confidence: the probability with which each bound holds.
    """
    needed = Claimed("mu", trainer.plan.mu).needed(confidence)
    if effort.counted >= needed:
        return
    config = trainer.config
    enough = needed
    while replace(effort, trials=enough).counted < needed:
        enough += 1
    raise ConfigError(
        f"audit.trials={effort.trials} is too few to contradict the claimed epsilon of "
        f"{config.epsilon:.4g} at delta = {config.delta:g}, even if every guess were right: "
        f"set audit.trials={enough} or more"
    )


def _many_run_bounds(
    adversary: str,
    with_canary: np.ndarray,
    without_canary: np.ndarray,
    config: NoiseConfig,
    confidence: float,
) -> tuple[LowerBound, LowerBound]:
    """Return the lower bounds from one adversary's scores of many trainings.

    The threshold is chosen for each measure (epsilon, mu) separately, on the first third of the
    scores.

    Args:
        adversary: what the attacker sees.
        with_canary: [R, 1] the scores of trainings with the canary.
        without_canary: [R, 1] the scores of trainings without it.
        config: the claimed epsilon and delta.
        confidence: the probability with which each bound holds.

    Returns:
        The Clopper-Pearson bound on epsilon; and the epsilon that follows from the one on mu.
    """
    third = len(with_canary) // 3

    def mistakes_of_best_event(claimed: Claimed) -> Mistakes:
        present = with_canary[:, 0]
        absent = without_canary[:, 0]
        event = choose_event(present[:third], absent[:third], claimed, confidence, "scores")
        return event.mistakes(present[third:], absent[third:])

    mistakes = mistakes_of_best_event(Claimed("epsilon", config.epsilon, config.delta))
    epsilon = epsilon_bound(mistakes, config.delta, confidence)
    mu = mu_bound(mistakes_of_best_event(Claimed("mu", 0.0)), confidence)
    return (
        LowerBound("Clopper-Pearson", adversary, epsilon),
        LowerBound("Gaussian DP", adversary, epsilon_of_mu(mu, config.delta)),
    )


def _step_bound(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, confidence: float
) -> LowerBound:
    """Return the lower bound from a guess in each step, composed over all steps.

    Arguments as of ``audit_training``; ``confidence`` is that of this bound.
    """
    steps = trainer.plan.epochs
    coins = np.random.default_rng(effort.seed).random((effort.step_runs, steps, 1)) < 0.5
    view = trainer.train(canary, coins)
    guesses = log_likelihood_ratios(view, trainer.noise_multiplier) > 0
    is_right = guesses == coins
    share_right = lower_limit(int(is_right.sum()), is_right.size, 1 - confidence)
    mu = 0.0
    if share_right > 0.5:  # Phi(mu_step / 2) is at least this, and mu = mu_step sqrt(steps)
        mu = 2 * float(ndtri(share_right)) * math.sqrt(steps)
    epsilon = epsilon_of_mu(mu, trainer.config.delta)
    return LowerBound("Gaussian DP", STEPS, epsilon)


def _one_run_bounds(
    trainer: NoisyTraining, canaries: Canaries, seed: int, confidence: float
) -> list[LowerBound]:
    """Return the lower bounds from guesses about many canaries of a single training.

    Args:
        trainer: the run's training, with its claim.
        canaries: the canaries, each of which is used by a coin of its own.
        seed: of the coins.
        confidence: the probability with which each bound holds.
    """
    count = len(canaries)
    config = trainer.config
    coins = np.random.default_rng(seed).random((1, 1, count)) < 0.5
    view = trainer.train(canaries, coins)
    scores = log_likelihood_ratios(view, trainer.noise_multiplier).sum(1)[0]
    bounds = []
    for bound in BOUNDS:
        guesses = planned_guesses(count, config.epsilon, config.delta, confidence, bound)
        guesses_out = guesses // 2
        right = right_guesses(scores, coins[0, 0], guesses - guesses_out, guesses_out)
        epsilon = one_run_epsilon(right, guesses, count, config.delta, confidence, bound)
        bounds.append(LowerBound(bound, f"{ONE_RUN}, {count} canaries", epsilon))
    return bounds


def judge_training(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, bounds: Sequence[LowerBound]
) -> Finding:
    """Compare the claim with the largest lower bound, and return the finding.

    Args:
        trainer: the run's training, with its claim.
        canary: the canary of many trainings.
        effort: how many trainings there were.
        bounds: all lower bounds, at least one.
    """
    config = trainer.config
    best = max(bounds, key=lambda bound: bound.found)
    violated = best.found > config.epsilon
    claimed_mu = Claimed("mu", trainer.plan.mu)
    noticed_mu = claimed_mu.noticed(effort.counted, effort.confidence, len(bounds))
    noticed = None if noticed_mu is None else gaussian_epsilon(noticed_mu, config.delta)
    needed = claimed_mu.needed(effort.confidence, len(bounds))
    one_run = {bound.adversary for bound in bounds if bound.adversary.startswith(ONE_RUN)}
    efforts = [
        f"{effort.trials} trainings with the canary, and as many without it",
        f"{effort.step_runs} trainings in which a coin decides in each step whether the "
        "canary is used",
        *one_run,
    ]
    return Finding(
        subject=f"training with noise in every step, claimed epsilon {config.epsilon:.3g}",
        claim=trainer.claim,
        attack=(
            f"an attacker guesses whether training used canaries: {canary.description}. The "
            f"{len(bounds)} bounds share the error probability"
        ),
        effort="; ".join(efforts),
        outcome=Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED,
        meaning=_verdict_sentence(best, config, effort.confidence),
        measure="epsilon",
        claimed=config.epsilon,
        delta=config.delta,
        found=best.found,
        confidence=effort.confidence,
        estimator=best.method,
        noticeable=power_sentence("epsilon", noticed, needed),
        noticed=noticed,
        estimates=tuple(bound.estimate for bound in bounds),
    )


def _verdict_sentence(best: LowerBound, config: NoiseConfig, confidence: float) -> str:
    """Return a sentence with the largest bound and whether it contradicts the claim.

    Args:
        best: the bound.
        config: the claimed epsilon and delta.
        confidence: the probability with which all bounds hold together.
    """
    if not best.found:
        return (
            "no attack could tell whether the canary was used, so no lower bound on epsilon "
            "was found (this is not a proof of privacy)"
        )
    percentage = 100 * confidence
    lower_bound = format_lower_bound(best.found, config.epsilon)
    verdict = verdict_words(best.found > config.epsilon, f"epsilon of {config.epsilon:.12g}")
    return (
        f"epsilon at delta = {config.delta:g} is at least {lower_bound}, with "
        f"{percentage:.12g} % confidence (method: {best.method}; the attacker sees: "
        f"{best.adversary}); {verdict}"
    )


NOTES = (
    "this audit uses the run's own training loop and public constants, but new noise and only "
    "some of the run's records",
    "bounds called 'Gaussian DP' or 'gdp' test a stronger claim: that training is as private as "
    "one addition of Gaussian noise of the stated size. If only these bounds are violated, only "
    "that stronger claim is contradicted. Bounds called 'Clopper-Pearson' or 'exact' test "
    "epsilon at delta itself",
    "the step-by-step bound is computed for one step and then composed by agt's accountant. So "
    "it detects errors in noise and clipping, but not errors in the composition",
    "all bounds hold at the same time, with the stated confidence",
)


@schema
class DpSgdAudit(DpSgdAuditSettings, AuditKind):
    """Attacks a run's training with noise in each step; its settings say how much is tried.

    Attributes:
        records: how many of the run's records every training has, in addition to the canaries.
        canary: the kind of canaries, one of ``KINDS``. "signs" is the strongest, because gradients
            are clipped in each coordinate.
        canaries: how many canaries a single training has; 0: no such training is made.
        trials: how many trainings with one canary, and as many without it.
        step_runs: how many trainings with a coin in each step.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train with and without canaries, and compare lower bounds with the run's claim.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the run was trained without noise or has too few records, or there are too
                few trials to contradict its claim.
        """
        opened = given.open(record, console)
        records = opened.stored.problem.dataset.train
        shuffled = np.random.default_rng(given.seed).permutation(len(records))
        rows = np.sort(shuffled[: self.records])
        trainer = NoisyTraining.of(opened.model, records.take(rows))
        if self.records > len(records):
            raise ConfigError(
                f"audit.records={self.records} exceeds {len(records)}, the number of training "
                f"records of the run: give {len(records)} or fewer"
            )
        effort = TrainingEffort(self.trials, self.step_runs, given.confidence, given.seed)
        canary = trainer.canaries(self.canary, 1, given.seed)
        several = None
        if self.canaries:
            several = trainer.canaries(self.canary, self.canaries, given.seed)
        bounds, size = audit_training(trainer, canary, effort, several)
        finding = judge_training(trainer, canary, effort, bounds)
        tables = {"bounds": _bounds_table(bounds, trainer.config.epsilon)}
        return Audited.of(opened.trained.finished, (finding, size), NOTES, tables=tables)


def _bounds_table(bounds: Sequence[LowerBound], claimed_epsilon: float) -> pd.DataFrame:
    """Return the table of all bounds, the largest first; the claim is in the last column's name."""
    largest_first = sorted(bounds, key=lambda bound: -bound.found)
    rows = [(bound.method, bound.adversary, bound.found) for bound in largest_first]
    claimed = f"claimed {claimed_epsilon:g}"
    return pd.DataFrame(rows, columns=["lower bound on epsilon", "who sees", claimed])
