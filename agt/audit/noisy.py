"""Training with noise inside (training/noise.py) under audit: the very loop that ``agt train`` runs, with canaries.

A canary is a unit of its own whose id decides its batch, as any record's does; all constants are the run's. A gradient
canary is clipped elementwise, as records are, and stands for a unit with as many rows as one may have. Under substitution a
unit is never absent: where it is out, its gradient is the opposite one, and the two sides differ by all that the claim
allows. The adversary sees each step's noisy direction, and knows the other records.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agt.audit.canaries import Canaries
from agt.audit.dpsgd import Claim, Sight, joined, noticed
from agt.audit.heads import AuditHead, head_for
from agt.audit.neighbours import neighbouring, with_added
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.kernels.contract import QUANTA
from agt.models.box import BoxModel, start_from
from agt.problem import Problem
from agt.relations import Sums
from agt.training.loop import Run, Tensors
from agt.training.noise import NoisePlan, draw_noise, noise_seed
from agt.training.optimizer import Key, Sgd

ID = "agt-canary-"  # and a number: a canary's id


@dataclass(frozen=True)
class NoisyTraining:
    """A ``Trainer``: a run's own noise, on some of its records.

    Attributes:
        problem: of the run, with the records that every training has.
        plan: the noise that the run claims.
        seed: for tests; None: fresh noise for each training, from the operating system, as the product draws it.

    Raises:
        ConfigError: the run has no noise.
    """

    problem: Problem
    plan: NoisePlan
    seed: int | None = None
    words: str = "training with noise inside"

    @classmethod
    def of(cls, model: BoxModel, records: Records, seed: int | None = None) -> "NoisyTraining":
        """The run that made this model, on some of its records."""
        if model.noise is None:
            raise ConfigError("noise.epsilon: the run was trained without noise, so nothing is claimed of its weights")
        return cls(neighbouring(model.problem, records, (0,)), model.noise, seed)

    @property
    def claim(self) -> Claim:
        """What the run claims, for one unit."""
        config = self.problem.settings.noise
        assert config is not None
        noise = self.plan.sigma / self.plan.sensitivity
        return Claim(noise, 1.0, self.plan.epochs, config.epsilon, config.delta)

    @cached_property
    def head(self) -> AuditHead:
        """For canaries to be made."""
        return head_for(copy.deepcopy(self.module), self.problem.settings.training.loss, len(self.problem.dataset.train))

    @property
    def records(self) -> Records:
        """Those that every training has."""
        return self.problem.dataset.train

    def train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        """As ``Trainer.train``; a step is one that a canary's unit takes part in, of which each epoch has one."""
        seeds = [None] * len(inside) if self.seed is None else range(self.seed, self.seed + len(inside))
        return joined([self._once(canaries, one, seed) for one, seed in zip(inside, seeds, strict=True)])

    def _once(self, canaries: Canaries, inside: np.ndarray, seed: int | None) -> Sight:
        config = self.problem.settings.noise
        assert config is not None
        draw, module = noise_seed(replace(config, seed=seed)), self.module
        parameters = {name: p.detach() for name, p in module.named_parameters()}
        problem = neighbouring(self.problem, with_added(self.records, self._placed(canaries)))
        planted = _Planted(self, canaries, np.broadcast_to(inside, (self.plan.epochs, len(canaries))))
        run = _Watched(
            module, problem.recipe, problem.dataset.train, planted, lambda s: draw_noise(parameters, self.plan, draw, s)
        )
        with torch.no_grad():
            for rows in run.plan.batches(run.records.units):
                run.step(rows)
        end = _flat(run.point)
        return planted.sight(_flat(parameters) - end, self._losses(canaries, end))

    @cached_property
    def module(self) -> nn.Sequential:
        """Layers and initial parameters."""
        problem = self.problem
        shape = problem.dataset.train.features.shape[1:]
        module = problem.settings.model.build(shape, problem.classes, problem.settings.training)
        start_from(module, problem.initial or {})
        return module

    def _placed(self, canaries: Canaries) -> Records:
        """The canaries as records; the gradient of a gradient canary's is never taken."""
        count, shape, dtype = len(canaries), self.records.features.shape[1:], self.records.features.dtype
        features = np.zeros((count, *shape)) if canaries.features is None else canaries.features
        labels = np.zeros(count, dtype=np.int64) if canaries.labels is None else canaries.labels
        ids = np.array([f"{ID}{index}" for index in range(count)])
        return Records(features.astype(dtype), labels, ids, ids, np.zeros(count, dtype=bool))

    def _losses(self, canaries: Canaries, end: np.ndarray) -> np.ndarray | None:
        if canaries.features is None or canaries.labels is None:
            return None
        return self.head.on(canaries.features, canaries.labels)(end[None]).losses


@dataclass
class _Planted:
    """The canaries of one training, and what is seen of them."""

    trainer: NoisyTraining
    canaries: Canaries
    inside: np.ndarray  # [epochs, m]
    scores: np.ndarray = field(init=False)
    reach: np.ndarray = field(init=False)
    first: np.ndarray | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.scores, self.reach = np.zeros(self.inside.shape), np.zeros(self.inside.shape)

    @property
    def most(self) -> float:
        """How far one unit moves a batch's sum, in l2."""
        return self.trainer.plan.sensitivity * self.trainer.problem.plan.normalizer

    def gradients(self, theta: np.ndarray, places: np.ndarray) -> np.ndarray:
        """[len(places), P] of those canaries, clipped elementwise, of a whole unit."""
        settings = self.trainer.problem.settings
        if not len(places):
            return np.zeros((0, theta.size))
        clip, rows = settings.training.clip, 1
        if self.canaries.gradients is not None:
            raw, rows = self.canaries.gradients[places] * clip * np.sqrt(theta.size), settings.relation.unit_rows
        else:
            assert self.canaries.features is not None
            assert self.canaries.labels is not None
            at = self.trainer.head.on(self.canaries.features[places], self.canaries.labels[places])
            raw = at(theta[None]).last(len(places))[0]
        return rows * np.clip(raw, -clip, clip)

    @property
    def opposed(self) -> bool:
        """Whether a canary that is out is there with the opposite gradient."""
        return self.trainer.problem.settings.relation.name == "substitute" and self.canaries.gradients is not None

    def sight(self, moved: np.ndarray, losses: np.ndarray | None) -> Sight:
        """What was seen; ``moved`` is how far the weights went down."""
        assert self.first is not None
        weights = noticed(moved[None], self.first[None], self.most)[0]
        return Sight(self.scores[None], self.reach[None], weights, losses)


class _Watched(Run):
    """The training loop, with canaries among the records and an adversary who sees every direction."""

    def __init__(self, module: Any, recipe: Any, records: Records, planted: _Planted, noise: Any) -> None:
        super().__init__(module, recipe, records, noise=noise)
        self.planted, self.seen = planted, _Spy(recipe.training)
        self.sgd: Sgd = self.seen
        self.others = len(records) - len(planted.canaries)

    def step(self, rows: np.ndarray) -> None:
        """As ``Run.step``; then the scores of the canaries whose batch it was."""
        places, epoch = rows[rows >= self.others] - self.others, self.taken // self.plan.count
        theta = _flat(self.point)
        self.gradients = self.planted.gradients(theta, places)
        if self.planted.first is None:
            self.planted.first = self.planted.gradients(theta, np.arange(len(self.planted.canaries)))
        super().step(rows)
        if not len(places):
            return
        excess = _flat(self.seen.directions) * self.plan.normalizer - self.expected
        sums, reach = noticed(excess[None], self.gradients[None], self.planted.most)
        if self.planted.opposed:  # +g or -g: as far apart as 2 g or nothing
            sums, reach = sums + reach, np.minimum(2 * reach, 1)
        self.planted.scores[epoch, places], self.planted.reach[epoch, places] = sums[0], reach[0]

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, Sums]:
        """None: no bound is audited, and the nominal parameters depend on none."""
        if self.relation.selects:
            return super().bound_sums(rows, eligible, group)
        none = {name: torch.zeros_like(bound.lower, dtype=torch.int64) for name, bound in self.bounds.items()}
        return {name: Sums(zero, zero) for name, zero in none.items()}

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """The others' sums, and those canaries' that are in."""
        places, epoch = rows[rows >= self.others] - self.others, self.taken // self.plan.count
        sums = super().nominal_sums(rows[rows < self.others])
        quantum = self.training.clip / QUANTA
        self.expected = _flat(sums) * quantum
        signs = np.where(self.planted.inside[epoch, places], 1.0, -1.0 if self.planted.opposed else 0.0)
        if self.planted.canaries.gradients is None:  # records: the loop's own gradients
            return super().nominal_sums(rows[(rows < self.others) | np.isin(rows - self.others, places[signs > 0])])
        added = torch.from_numpy(np.rint(signs @ self.gradients / quantum).astype(np.int64))
        parts = added.split([total.numel() for total in sums.values()])
        return {name: total + part.view_as(total) for (name, total), part in zip(sums.items(), parts, strict=True)}


@dataclass
class _Spy(Sgd):
    """The optimizer, and the last direction that the nominal parameters were given."""

    directions: Tensors = field(default_factory=dict)

    def update(self, key: Key, gradient: Tensor) -> Tensor:
        """As ``Sgd.update``."""
        if key[0] == "nominal":
            self.directions[str(key[1])] = gradient
        return super().update(key, gradient)


def _flat(named: Mapping[str, Tensor]) -> np.ndarray:
    return np.concatenate([tensor.detach().double().numpy().ravel() for tensor in named.values()])
