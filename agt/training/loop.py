"""Abstract gradient training: SGD that carries, for every k, a box holding every neighbour's
parameters.

Algorithm 1 of 000 and 001, in the form of method.md section 1. The nominal pass and the data
traffic are done once for all k; records stream through in fragments, so that no tensor of (batch x
parameters) is ever made.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from agt.bounds.box import Box, Point, select_ks
from agt.bounds.interval import Interval
from agt.bounds.layer_rule import Gradient
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.data.records import Records
from agt.distributed import group as processes
from agt.errors import ConfigError
from agt.kernels.reference import Extremes
from agt.kernels.select import pick_device, pick_kernel
from agt.messages import Message
from agt.relations import RELATIONS
from agt.relations.relation import BoundSums
from agt.settings import QUANTA
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints, CheckpointState, Tensors
from agt.training.recipe import Recipe
from agt.training.selections import selected_sums
from agt.training.sgd import DrawKey, Sgd, descend, learning_rate
from agt.training.stream import Stream, check_sizes

Noise = Callable[[int], Tensors]


@dataclass(frozen=True)
class Progress:
    """How far a run is: steps taken, and record-by-k units of work done in all."""

    step: int
    steps: int
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def counted(on_progress: OnProgress, rows: int, ks: int = 1) -> Callable[[int], None]:
    """What reports progress of a piece of work on so many rows, each for so many k, from the
    rows that are done.
    """
    return lambda done: on_progress(Progress(done, rows, done * ks, rows * ks))


def train(
    head: nn.Sequential,
    recipe: Recipe,
    records: Records,
    on_progress: OnProgress = lambda progress: None,
    noise: Noise | None = None,
    on_epoch: Callable[[int, Box], None] | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> Box:
    """Train ``head`` on ``records``, with bounds for every k.

    Args:
        head: initial parameters and layers; left unchanged.
        recipe: how to train.
        records: the training records.
        on_progress: called after every fragment.
        noise: DP-SGD's noise (000 Algorithm 1): step -> name -> what is added to that step's
            direction. One draw moves the nominal parameters and both ends of every box alike, by
            one rounded and hence monotone addition: given the draw, the box holds. What the noise
            itself guarantees is another matter (``NoisePlan``).
        on_epoch: called with 0 and the initial state, then after each epoch with how many are done
            and the state reached: what a run that had stopped there would return.
        checkpoints: what a killed run goes on from (training/checkpoint.py); ``on_epoch`` then
            hears of later epochs alone.

    Returns:
        Nominal parameters and bounds, on the CPU.

    Raises:
        ConfigError: an unsupported layer, loss, batch, unit or public record for this relation; no
            GPU when asked for.
        UnsoundError: a bound became NaN, infinite or inverted.
    """
    run = TrainingRun(head, recipe, records, on_progress, noise)
    with torch.no_grad():
        state, batches = checkpoints.last(), run.plan.batches(records.units)
        if state:
            run.restore(state, islice(batches, state.step))
        elif on_epoch:
            on_epoch(0, run.result())
        for rows in batches:
            run.step(rows)
            checkpoints.offer(run.taken, run.tensors, last=run.taken == run.plan.steps)
            if on_epoch and run.taken % run.plan.count == 0:
                on_epoch(run.taken // run.plan.count, run.result())
    return run.result()


class SgdStep(NamedTuple):
    """What every parameter's update in one step has in common: b, the batch's size, the learning
    rate, the noise.
    """

    batch: int
    lr: float
    noise: Tensors


class TrainingRun:
    """One run in progress: ``train`` takes its steps one after another; a benchmark or a test takes
    one alone.

    Attributes:
        point: name -> nominal parameters.
        bounds: name -> [K, ...] their bounds. No tensor of either is ever written to: each step
            makes new ones.
        taken: how many steps were taken.
    """

    def __init__(
        self,
        head: nn.Sequential,
        recipe: Recipe,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        noise: Noise | None = None,
    ) -> None:
        training = recipe.training
        self.relation = RELATIONS[recipe.relation.name]
        self.radius = recipe.relation.radius
        self.relation.check_boxes(records.public)
        device = pick_device(recipe.compute)
        self.kernel = pick_kernel(recipe.compute)
        self.network = Network.from_head(
            head, training.loss, recipe.classes, self.kernel.products(training.product)
        )
        check_unit_rows(records.units, recipe.relation.unit_rows)
        self.records, self.training, self.on_progress, self.noise = (
            records,
            training,
            on_progress,
            noise,
        )
        self.ks, self.dtype = recipe.kgrid.ks, getattr(torch, training.dtype)
        self.plan = recipe.plan(len(records))
        self.rounding = Rounding.for_grid(self.ks, self.dtype, device, self.kernel.widen_by)
        stakes = self.relation.rows_at_stake(self.ks, recipe.relation.unit_rows)
        self.stakes = torch.tensor(stakes, device=device)
        self.point: Point = {
            n: p.detach().to(device, self.dtype, copy=True) for n, p in head.state_dict().items()
        }
        self.network.check_record_shape(records.features.shape[1:], self.point, "model: a record")
        self.stream = Stream.of(
            records,
            recipe,
            self.point,
            self.network.numbers_per_record(records.features.shape[1:], self.point),
        )
        check_sizes(recipe, self.plan, self.stream.parameters)
        self.groups = (
            self.stream.groups(stakes, self.kernel.selection_bytes)
            if self.relation.selects
            else [slice(0, len(self.ks))]
        )
        self.bounds = Box.point(self.ks, self.point).bounds
        self.sgd = Sgd(training)
        self.taken, self.done = 0, 0

    def result(self) -> Box:
        """The parameters and bounds reached, on the CPU."""
        return Box(self.ks, self.point, self.bounds).to(torch.device("cpu"), self.dtype)

    def tensors(self) -> Tensors:
        """All that later steps depend on, beside settings and records, by names that ``restore``
        reads.
        """
        named: dict[DrawKey, Tensor] = {("nominal", n): p for n, p in self.point.items()}
        for n, interval in self.bounds.items():
            named |= {("lower", n): interval.lower, ("upper", n): interval.upper}
        named |= {("buffer", *key): buffer for key, buffer in self.sgd.buffers.items()}
        return {json.dumps(key): tensor for key, tensor in named.items()}

    def restore(self, state: CheckpointState, batches: Iterable[np.ndarray]) -> None:
        """Go on from a state that another run of the same kind had reached.

        Args:
            batches: those that it had taken.
        """
        at: dict[DrawKey, Tensor] = {
            tuple(json.loads(name)): tensor.to(self.stakes.device)
            for name, tensor in state.tensors.items()
        }
        self.point = {n: at["nominal", n] for n in self.point}
        self.bounds = {n: Interval(at["lower", n], at["upper", n]) for n in self.bounds}
        self.sgd.buffers = {key[1:]: buffer for key, buffer in at.items() if key[0] == "buffer"}
        self.taken, self.done = state.step, sum(map(len, batches)) * len(self.ks)
        self._report()

    # -- one step
    # --------------------------------------------------------------------------------------------------

    def step(self, rows: np.ndarray) -> None:
        """Take the next step, on the batch ``rows``; an empty batch takes its step too."""
        if len(rows) > self.plan.n_max:
            raise ConfigError(
                Message(
                    "a batch of {count} records exceeds {config:training.batch.n_max}={n_max}",
                    count=len(rows),
                    n_max=self.plan.n_max,
                )
            )
        at = SgdStep(
            len(rows),
            learning_rate(self.training, self.taken),
            self.noise(self.taken) if self.noise else {},
        )
        total = self.nominal_sums(rows)
        # Private records first, so that a selection over private records is a prefix.
        public = self.records.public[rows]
        rows = np.concatenate([rows[~public], rows[public]]) if public.any() else rows
        eligible = self.relation.eligible(public)
        moved = [
            self._moved_box(group, self.bound_sums(rows, eligible, group), at)
            for group in self.groups
        ]
        self.bounds = moved[0] if len(moved) == 1 else _joined(moved)
        self.point = self._moved_point(total, at)
        self.taken += 1
        self._report()

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """Parameter name -> int64 sum over the batch of the records' clipped gradients, in
        quanta.
        """
        sums: Tensors = {n: torch.zeros_like(p, dtype=torch.int64) for n, p in self.point.items()}
        for _, x, y in self.stream.fragments(rows):
            for name, d, inputs in self.network.nominal_factors(x, y, self.point, self._scale):
                gradients = self.network.trained_rule(name).nominal_gradients(
                    d.double(), inputs.double()
                )
                for parameter, factor, other in gradients:
                    part = self.kernel.nominal_sum(factor, other)[None]
                    sums[parameter] += self.network.expand_difference(parameter, part, part)[
                        0
                    ].reshape(sums[parameter].shape)
        processes().total([*sums.values()])
        return sums

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, BoundSums]:
        """Parameter name -> integer sums of the bounds, for the k of ``group``.

        The first ``eligible`` of ``rows`` are those a selection may take.
        """
        bounds = select_ks(self.bounds, group)
        lower, upper = (
            {n: torch.zeros_like(i.lower, dtype=torch.int64) for n, i in bounds.items()}
            for _ in range(2)
        )
        parts = self.stream.parts(group)
        selectors = [self._selectors(part, len(rows), eligible) for part in parts]
        done = self.done
        for piece, x, y in self.stream.fragments(rows, eligible):
            for part, selector in zip(parts, selectors, strict=True):
                here = slice(part.start - group.start, part.stop - group.start)
                for (parameter, d, inputs), selectable in self._record_bounds(x, y, part):
                    sums = self.kernel.bound_sum(d, inputs, self.training.product)
                    low, high = self.network.expand_difference(parameter, *sums)
                    lower[parameter][here] += low.reshape(lower[parameter][here].shape)
                    upper[parameter][here] += high.reshape(upper[parameter][here].shape)
                    if selector and piece.start < eligible:
                        for gradient in selectable:
                            selector[parameter].update(gradient.d, gradient.x)
            self.done += len(x) * (group.stop - group.start)
            self._report()
        batch = {n: BoundSums(lower[n], upper[n]) for n in lower}
        if self.relation.selects:
            counts = [self._counts(part, len(rows), eligible) for part in parts]
            batch = {
                n: BoundSums(lower[n], upper[n], *self._selected(n, selectors, counts))
                for n in lower
            }
        processes().total(
            [tensor for sums in batch.values() for tensor in sums if tensor is not None]
        )
        self.done = done + len(rows) * (group.stop - group.start)
        return batch

    def _record_bounds(
        self, x: Tensor, y: Tensor, part: slice
    ) -> Iterator[tuple[Gradient, Iterable[Gradient]]]:
        """``_passed`` of the records, and beside it what the relation's selection takes of them."""
        bounds_of = partial(self._passed, y=y, part=part)
        ks = part.stop - part.start
        return self.relation.record_bounds(bounds_of, x, ks, self.radius, self.training.product)

    def _passed(self, x: Tensor | Interval, y: Tensor, part: slice) -> Iterator[Gradient]:
        """Bounds on the scaled per-record gradients in each parameter, all records at once or
        some after others.
        """
        rounding = self.rounding[part]
        for factors in self.network.factors(
            x, y, select_ks(self.bounds, part), rounding, self._scale
        ):
            yield from self.network.gradients(factors, rounding)

    def _selectors(self, part: slice, batch: int, eligible: int) -> dict[str, Extremes]:
        """Parameter name -> the selection of its most extreme bounds, for the k of ``part``;
        empty where none is needed.
        """
        if not self.relation.selects:
            return {}
        counts = self._counts(part, batch, eligible)
        point = self.network.collapse_point(self.point)
        shapes = {n: self.relation.selection_shape(p) for n, p in point.items()}
        capped = self.relation.caps_at_zero
        return {
            n: self.kernel.extremes(counts, s, capped, self.training.product)
            for n, s in shapes.items()
        }

    def _selected(
        self, name: str, selectors: list[dict[str, Extremes]], counts: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """This process's part of the selections' sums."""
        pairs = zip(selectors, counts, strict=True)
        results = [selected_sums(processes(), selector[name], some) for selector, some in pairs]
        greatest, least = (torch.cat(tensors) for tensors in zip(*results, strict=True))
        # Counted by one process, as the sums of all are added up.
        counted_here = torch.cat(counts) * (processes().rank == 0)
        greatest, least = self.relation.selected_sums(greatest, least, counted_here)
        shape = self.network.collapse_point(self.point)[name].shape
        return self.network.expand_difference(
            name, greatest.reshape(-1, *shape), least.reshape(-1, *shape)
        )

    def _counts(self, part: slice, batch: int, eligible: int) -> Tensor:
        stakes = self.stakes[part]
        return stakes.new_tensor(
            [self.relation.selected(rows, batch, eligible) for rows in stakes.tolist()]
        )

    # -- the update
    # ------------------------------------------------------------------------------------------------

    def _moved_box(
        self, group: slice, sums: dict[str, BoundSums], at: SgdStep
    ) -> dict[str, Interval]:
        """Name -> the bounds after the step, for the k of ``group``: the least parameters take
        the greatest direction.
        """
        moved = {}
        for name, bounds in select_ks(self.bounds, group).items():
            low, high = self.relation.direction(
                sums[name], self.stakes[group], at.batch, self.plan.normalizer, self.training.clip
            )
            moved[name] = Interval(
                self._descended(("lower", name, group.start), bounds.lower, high, at),
                self._descended(("upper", name, group.start), bounds.upper, low, at),
            )
        return moved

    def _moved_point(self, total: Tensors, at: SgdStep) -> Tensors:
        """Name -> the nominal parameters after the step."""
        moved = {}
        for name, value in self.point.items():
            d = self.relation.nominal_direction(
                total[name], at.batch, self.plan.normalizer, self.training.clip
            )
            moved[name] = self._descended(("nominal", name), value, d, at)
        return moved

    def _descended(self, key: DrawKey, theta: Tensor, direction: Tensor, at: SgdStep) -> Tensor:
        """theta after the step; ``key`` names its momentum buffer."""
        return descend(
            self.training,
            at.lr,
            theta,
            self.sgd.update(key, self._noisy(str(key[1]), direction, at.noise)),
        )

    def _noisy(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        """The direction, and the noise on it, in the parameters' precision: rounded after the
        noise, never before.
        """
        noisy = direction + noise[name].to(direction) if noise else direction
        return noisy.to(self.dtype)

    @property
    def _scale(self) -> float:
        return QUANTA / self.training.clip

    def _report(self) -> None:
        total = self.plan.epochs * len(self.records) * len(self.ks)
        self.on_progress(Progress(self.taken, self.plan.steps, self.done, total))


def _joined(groups: list[dict[str, Interval]]) -> dict[str, Interval]:
    """The bounds of all groups, one after another along K."""
    return {
        name: Interval.unchecked(
            torch.cat([g[name].lower for g in groups]), torch.cat([g[name].upper for g in groups])
        )
        for name in groups[0]
    }
