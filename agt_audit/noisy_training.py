"""A run's training with noise, repeated with canaries: what an adversary sees of it.

Under substitution, a unit that is not in the data is replaced by one with the opposite gradient.
The adversary who sees every sum knows all other records, and subtracts the sum of their gradients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agt.data.records import Records
from agt.models.box import copy_initial_parameters
from agt.models.model import Model
from agt.problem import Problem
from agt.relations.relation import BoundSums
from agt.settings import QUANTA
from agt.training.checkpoint import Tensors
from agt.training.loop import Noise, TrainingRun
from agt.training.noise import NoisePlan, draw_noise, noise_seed
from agt.training.settings import NoiseConfig
from agt.training.sgd import BufferKey, Sgd
from agt_audit.canaries import Canaries, CanaryHead, canaries_of, flat
from agt_audit.edited_records import with_added
from agt_audit.kind_settings import trained_without_noise
from agt_audit.neighbours import NOMINAL, neighbouring
from agt_audit.relation_edits import replaces


class AdversaryView(NamedTuple):
    """What adversaries see of R trainings of T epochs with m canaries.

    Attributes:
        scores: [R, T, m] the noisy gradient sum of the canary's step in each epoch, without the
            other records' part, projected on the canary's clipped gradient. It is in units of the
            largest contribution of one unit, so a canary that is used adds ``reach`` to it.
        reach: [R, T, m] the l2 norm of the canary's clipped gradient, in the same units; at most 1.
        weights: [R, m] the change of the weights, projected on minus the canary's first gradient;
            in the same units.
        squares: [R] the sum of the squares of all noise, divided by the claimed variance.
        coordinates: [R] how many numbers were squared.
    """

    scores: np.ndarray
    reach: np.ndarray
    weights: np.ndarray
    squares: np.ndarray
    coordinates: np.ndarray


@dataclass(frozen=True)
class NoisyTraining:
    """A run's training with noise, which can be repeated with canaries on some of its records.

    Attributes:
        problem: the run's problem, with the records that every training has.
        plan: the noise that the run claims to add.
        seed: the noise of the first training follows from this seed, that of the next from the
            next seed (for tests); None: noise comes from the operating system's randomness,
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
            seed: the noise of the first training follows from it, that of the next from the next
                seed; None: noise comes from the operating system's randomness.

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
        # Changes ``module``, unless the parameters do not fit its layers.
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
            seed: from which the noise follows; None: it comes from the operating system's
                randomness.
        """
        parameters = {name: p.detach() for name, p in self.module.named_parameters()}
        run_seed = noise_seed(replace(self.config, seed=seed))
        return lambda step: draw_noise(parameters, self.plan, run_seed, step)

    def train(self, canaries: Canaries, included: np.ndarray) -> AdversaryView:
        """Train R times, with other noise each time.

        Args:
            canaries: m canaries, which are added to the records.
            included: [R, T, m] bool, whether each canary is in the data in its step of each epoch;
                or [R, 1, m], the same for all epochs.
        """
        seeds: Sequence[int | None] = [None] * len(included)
        if self.seed is not None:
            seeds = range(self.seed, self.seed + len(included))
        runs = [
            self._train_once(canaries, of_run, seed)
            for of_run, seed in zip(included, seeds, strict=True)
        ]
        return AdversaryView(*map(np.stack, zip(*runs, strict=True)))

    def _train_once(
        self, canaries: Canaries, included: np.ndarray, seed: int | None
    ) -> AdversaryView:
        """Train once, and return what adversaries see, without the first axis of each field.

        Args:
            canaries: the canaries, of which each is in the data in some epochs.
            included: [T, m] bool, whether each canary is in the data in its step of each epoch; or
                [1, m], the same for all epochs.
            seed: from which the noise follows; None: it comes from the operating system's
                randomness.
        """
        records = with_added(self.problem.dataset.train, canaries.records)
        problem = neighbouring(self.problem, records)
        included = np.broadcast_to(included, (self.plan.epochs, len(canaries)))
        run = _RecordingRun(self, canaries, included, problem, self.noise_of_run(seed))
        with torch.no_grad():
            for rows in run.plan.batches(run.records.units):
                run.step(rows)
        end = flat(run.point)
        weights, _ = run.project(self.head.initial - end, run.first_gradients)
        return AdversaryView(
            scores=run.scores,
            reach=run.reach,
            weights=weights,
            squares=np.array(run.squares),
            coordinates=np.array(run.coordinates),
        )


class _RecordingRun(TrainingRun):
    """The training loop with canaries among the records; it records what an adversary sees.

    Args:
        trainer: the run's training, with its claim.
        canaries: the canaries, whose records are the last of the problem's.
        inside: [T, m] bool, in which epochs each canary is in the data.
        problem: the training, with all records, those of the canaries last.
        noise: step -> name of a parameter -> the noise to add.

    Attributes:
        largest_sum: the largest l2 norm of one unit's contribution to a batch's gradient sum.
        adds_opposite: whether a canary that is not in the data adds its opposite gradient instead
            of nothing (gradient canaries, under substitution).
        first_canary: the row of the first canary; all rows before it are other records.
        first_gradients: [m, P] the canaries' clipped gradients at the initial parameters.
        gradients: [n, P] the clipped gradients of the canaries of the present step.
        expected: [P] the other records' part of the gradient sum of the present step.
        scores, reach, squares, coordinates: the attributes of ``AdversaryView`` for this training
            (without the first axis, which counts trainings).
        sigma: the claimed standard deviation of the noise in a batch's gradient sum.
    """

    def __init__(
        self,
        trainer: NoisyTraining,
        canaries: Canaries,
        inside: np.ndarray,
        problem: Problem,
        noise: Noise,
    ) -> None:
        records = problem.dataset.train
        super().__init__(trainer.module, problem.setup, records, noise=noise)
        settings = trainer.problem.settings
        normalizer = trainer.problem.plan.normalizer
        self.canaries = canaries
        self.inside = inside
        self.head = trainer.head
        self.largest_sum = trainer.plan.sensitivity * normalizer
        self.unit_rows = settings.relation.unit_rows
        self.adds_opposite = replaces(settings.relation.name) and canaries.gradients is not None
        self.recorder = _RecordingSgd(problem.setup.training)
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
        gradients = self.head.gradients(theta, records.features[indices], records.labels[indices])
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

        A relation that selects records computes its sums all the same.

        Args:
            rows: [b] int64, the indices of the batch's records.
            eligible: how many of them an edit can remove or change.
            group: the slice of the grid of k for which sums are computed.
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
        """Return the batch's gradient sum with its used canaries, and set ``expected``.

        The sum is by parameter and in whole quanta. ``expected`` is the other records' part of it.
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
