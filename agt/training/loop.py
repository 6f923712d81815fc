"""Abstract gradient training: SGD that carries, for every k, a box of all neighbours' parameters.

``train`` is Algorithm 1 of 000 and 001 (method.md section 1), for heads with a rule for each layer.
The nominal pass and the data traffic are done once for all k. Records stream through in fragments,
so that no tensor of (batch x parameters) is ever made.
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
from agt.kernels.reference import BoundSelection
from agt.kernels.select import pick_device, pick_kernel
from agt.messages import Message
from agt.relations import RELATIONS
from agt.relations.relation import BoundSums
from agt.settings import QUANTA
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints, CheckpointState, Tensors
from agt.training.selections import selected_sums
from agt.training.setup import TrainingSetup
from agt.training.sgd import BufferKey, Sgd, descend, learning_rate
from agt.training.stream import Stream, check_sizes

Noise = Callable[[int], Tensors]
"""The number of a step -> parameter name -> what is added to that step's direction."""


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: how many steps were taken.
        steps: how many steps the run has.
        done: units of work that were done, one for each record at each k in each epoch.
        total: units of work of the whole run.
    """

    step: int
    steps: int
    done: int
    total: int


OnProgress = Callable[[Progress], None]


def row_reporter(on_progress: OnProgress, rows: int, ks: int = 1) -> Callable[[int], None]:
    """Return a callback that takes how many rows are done, and reports this as progress.

    Args:
        on_progress: receives the progress.
        rows: how many rows the piece of work has; each counts as one step.
        ks: for how many values of k each row is worked on.
    """

    def report(done: int) -> None:
        on_progress(Progress(done, rows, done * ks, rows * ks))

    return report


def train(
    head: nn.Sequential,
    setup: TrainingSetup,
    records: Records,
    on_progress: OnProgress = lambda progress: None,
    noise: Noise | None = None,
    on_epoch: Callable[[int, Box], None] | None = None,
    checkpoints: Checkpoints = NOWHERE,
) -> Box:
    """Train a head, with bounds on every neighbour's parameters for every k of the grid.

    Formal guarantees
        * The box for k contains the parameters that the same call computes on every dataset that
          is at most k away (Theorem 4 of docs/proofs/training.md).
        * The box for k - 1 of a dataset one k away lies inside of the box for k, bit for bit,
          unless the relation says otherwise (``Relation.reason_not_nested``).
        * Both hold for the noise that was drawn: they say nothing about its privacy, which
          ``NoisePlan`` states.
        * A resumed training ends with the bits of one that was never interrupted.

    Args:
        head: layers and initial parameters; it is not changed.
        setup: how to train.
        records: the training records. None at all: every step is taken on an empty batch.
        on_progress: called after every fragment of records.
        noise: what DP-SGD adds to the direction of each step (000, Algorithm 1); None: no noise.
        on_epoch: called with 0 and the initial box, then after each epoch with the number of
            finished epochs and the box that a run which ended there would return.
        checkpoints: where states are saved, and where an earlier attempt's last state is read;
            ``on_epoch`` is then called for later epochs alone.

    Returns:
        The nominal parameters and their bounds for every k, on the CPU.

    Raises:
        ConfigError: a layer, loss, batch, unit or public record that the relation does not
            support; or no GPU where one was requested.
        UnsoundError: a bound became NaN, infinite or inverted.
    """
    run = TrainingRun(head, setup, records, on_progress, noise)
    with torch.no_grad():
        state = checkpoints.last()
        batches = run.plan.batches(records.units)
        if state:
            run.restore(state, islice(batches, state.step))
        elif on_epoch:
            on_epoch(0, run.result())
        for rows in batches:
            run.step(rows)
            is_finished = run.steps_taken == run.plan.steps
            checkpoints.offer(run.steps_taken, run.tensors, last=is_finished)
            epoch, step_of_epoch = divmod(run.steps_taken, run.plan.count)
            if on_epoch and step_of_epoch == 0:
                on_epoch(epoch, run.result())
    return run.result()


class SgdStep(NamedTuple):
    """What the updates of all parameters in one step have in common.

    Attributes:
        batch_size: b, the number of records in the batch.
        lr: the learning rate.
        noise: parameter name -> what is added to the direction; empty: no noise.
    """

    batch_size: int
    lr: float
    noise: Tensors


class TrainingRun:
    """One run in progress: ``train`` takes its steps in order; a benchmark may take a single one.

    Attributes:
        plan: in which batch each record is, and how many steps there are.
        rows_at_stake: [K] int64, how many rows of one batch an edit may remove or add.
        point: parameter name -> nominal parameters.
        bounds: parameter name -> bounds of shape [K, ...]. No tensor of ``point`` or ``bounds`` is
            ever written to: each step makes new ones.
        groups: parts of the grid for which one pass over a batch can select.
        steps_taken: how many steps were taken.
        work_done: as in ``Progress.done``.
    """

    def __init__(
        self,
        head: nn.Sequential,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress = lambda progress: None,
        noise: Noise | None = None,
    ) -> None:
        training = setup.training
        self.relation = RELATIONS[setup.relation.name]
        self.radius = setup.relation.radius
        self.relation.check_boxes(records.public)
        device = pick_device(setup.compute)
        self.kernel = pick_kernel(setup.compute)
        products = self.kernel.products(training.product)
        self.network = Network.from_head(head, training.loss, setup.classes, products)
        check_unit_rows(records.units, setup.relation.unit_rows)
        self.records = records
        self.training = training
        self.on_progress = on_progress
        self.noise = noise
        self.ks = setup.kgrid.ks
        self.dtype = getattr(torch, training.dtype)
        self.plan = setup.plan(len(records))
        self.rounding = Rounding.for_grid(self.ks, self.dtype, device, self.kernel.widen_by)
        rows_at_stake = self.relation.rows_at_stake(self.ks, setup.relation.unit_rows)
        self.rows_at_stake = torch.tensor(rows_at_stake, device=device)
        self.point: Point = {
            name: parameter.detach().to(device, self.dtype, copy=True)
            for name, parameter in head.state_dict().items()
        }
        record_shape = records.features.shape[1:]
        self.network.check_record_shape(record_shape, self.point, "model: a record")
        widths = self.network.numbers_per_record(record_shape, self.point)
        self.stream = Stream.for_head(records, setup, self.point, widths)
        check_sizes(setup, self.plan, self.stream.parameters)
        self.groups = [slice(0, len(self.ks))]
        if self.relation.selects:
            self.groups = self.stream.groups(rows_at_stake, self.kernel.selection_bytes)
        self.bounds = Box.point(self.ks, self.point).bounds
        self.sgd = Sgd(training)
        self.steps_taken = 0
        self.work_done = 0

    def result(self) -> Box:
        """Return the parameters and bounds that were reached, on the CPU."""
        return Box(self.ks, self.point, self.bounds).to(torch.device("cpu"), self.dtype)

    def tensors(self) -> Tensors:
        """Return everything that later steps depend on beside settings and records.

        The names are JSON lists, which ``restore`` reads: ["nominal", parameter], ["lower",
        parameter], ["upper", parameter], and ["buffer", ...] followed by a key of ``Sgd.buffers``.
        """
        tensors: dict[BufferKey, Tensor] = {}
        for name, parameter in self.point.items():
            tensors["nominal", name] = parameter
        for name, interval in self.bounds.items():
            tensors["lower", name] = interval.lower
            tensors["upper", name] = interval.upper
        for key, buffer in self.sgd.buffers.items():
            tensors["buffer", *key] = buffer
        return {json.dumps(key): tensor for key, tensor in tensors.items()}

    def restore(self, state: CheckpointState, batches: Iterable[np.ndarray]) -> None:
        """Continue from a state that another run of the same settings and records had reached.

        Args:
            state: what ``tensors`` gave after ``state.step`` steps.
            batches: the batches of those steps, to count the work that is done.
        """
        device = self.rows_at_stake.device
        tensors: dict[BufferKey, Tensor] = {}
        for name, tensor in state.tensors.items():
            key = tuple(json.loads(name))
            tensors[key] = tensor.to(device)
        self.point = {name: tensors["nominal", name] for name in self.point}
        self.bounds = {
            name: Interval(tensors["lower", name], tensors["upper", name]) for name in self.bounds
        }
        self.sgd.buffers = {
            key[1:]: buffer for key, buffer in tensors.items() if key[0] == "buffer"
        }
        self.steps_taken = state.step
        rows_done = sum(len(rows) for rows in batches)
        self.work_done = rows_done * len(self.ks)
        self._report()

    # -- one step ----------------------------------------------------------------------------------

    def step(self, rows: np.ndarray) -> None:
        """Take the next step of the training, on the nominal parameters and on every box.

        Args:
            rows: [b] int, which records the batch has, in increasing order; none: the step is
                taken with the sums of an empty batch.

        Raises:
            ConfigError: the batch has more than ``plan.n_max`` records.
            UnsoundError: a bound became NaN, infinite or inverted.
        """
        if len(rows) > self.plan.n_max:
            raise ConfigError(
                Message(
                    "a batch of {count} records exceeds {config:training.batch.n_max}={n_max}",
                    count=len(rows),
                    n_max=self.plan.n_max,
                )
            )
        lr = learning_rate(self.training, self.steps_taken)
        noise = self.noise(self.steps_taken) if self.noise else {}
        sgd_step = SgdStep(len(rows), lr, noise)
        nominal_sums = self.nominal_sums(rows)
        public = self.records.public[rows]
        if public.any():
            # Private records first, so that a selection over private records is a prefix.
            rows = np.concatenate([rows[~public], rows[public]])
        eligible = self.relation.count_eligible(public)
        # Lemma 3 of docs/proofs/training.md: boxes and point take the same step.
        moved_groups = []
        for group in self.groups:
            bound_sums = self.bound_sums(rows, eligible, group)
            moved_groups.append(self._step_box(group, bound_sums, sgd_step))
        self.bounds = _joined_groups(moved_groups)
        self.point = self._step_point(nominal_sums, sgd_step)
        self.steps_taken += 1
        self._report()

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """Return the sums over a batch of the records' clipped gradients.

        Args:
            rows: [b] int, which records the batch has.

        Returns:
            Parameter name -> int64 of the parameter's shape, in quanta of clip / 2^30, over the
            records of all processes.
        """
        sums: Tensors = {
            name: torch.zeros_like(parameter, dtype=torch.int64)
            for name, parameter in self.point.items()
        }
        for _, x, y in self.stream.fragments(rows):
            for layer, d, inputs in self.network.nominal_factors(x, y, self.point, self._scale):
                rule = self.network.trained_rule(layer)
                gradients = rule.nominal_gradients(d.double(), inputs.double())
                for parameter, d_factor, x_factor in gradients:
                    fragment_sum = self.kernel.nominal_sum(d_factor, x_factor)[None]
                    # Of two classes the sum is of one row, and the other row's is its negative.
                    expanded, _ = self.network.expand_difference(
                        parameter, fragment_sum, fragment_sum
                    )
                    sums[parameter] += expanded.reshape(sums[parameter].shape)
        processes().total([*sums.values()])
        return sums

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, BoundSums]:
        """Return the sums over a batch of the bounds on the records' clipped gradients.

        Args:
            rows: [b] int, which records the batch has, those that a selection may take first.
            eligible: how many of them a selection may take.
            group: for which values of the grid.

        Returns:
            Parameter name -> int64 sums of shape [ks of the group, ...], in quanta of clip / 2^30,
            over the records of all processes.
        """
        group_bounds = select_ks(self.bounds, group)
        lower = _integer_zeros(group_bounds)
        upper = _integer_zeros(group_bounds)
        parts = self.stream.parts(group)
        selectors = [self._selectors(part, len(rows), eligible) for part in parts]
        ks = group.stop - group.start
        work_before = self.work_done
        for piece, x, y in self.stream.fragments(rows, eligible):
            may_select = piece.start < eligible  # no fragment straddles this boundary
            for part, selector in zip(parts, selectors, strict=True):
                in_group = slice(part.start - group.start, part.stop - group.start)
                lower_of_part = {name: sums[in_group] for name, sums in lower.items()}
                upper_of_part = {name: sums[in_group] for name, sums in upper.items()}
                record_bounds = self._record_bounds(x, y, part)
                selection = selector if may_select else {}
                self._add_bounds(record_bounds, lower_of_part, upper_of_part, selection)
            self.work_done += len(x) * ks
            self._report()
        sums_of = {name: BoundSums(lower[name], upper[name]) for name in lower}
        if self.relation.selects:
            counts = [self._selected_counts(part, len(rows), eligible) for part in parts]
            for name, sums in sums_of.items():
                selected = self._selected_sums(name, selectors, counts)
                sums_of[name] = BoundSums(sums.lower, sums.upper, *selected)
        tensors = [tensor for sums in sums_of.values() for tensor in sums if tensor is not None]
        # Sums of integers are exact, whoever adds them (Lemma 6 of docs/proofs/training.md).
        processes().total(tensors)
        # The other processes' records are done as well.
        self.work_done = work_before + len(rows) * ks
        return sums_of

    def _add_bounds(
        self,
        record_bounds: Iterable[tuple[Gradient, Iterable[Gradient]]],
        lower: Tensors,
        upper: Tensors,
        selector: dict[str, BoundSelection],
    ) -> None:
        """Add the bounds on a fragment's gradients to their sums and to a selection.

        Args:
            record_bounds: what ``_record_bounds`` yields for the fragment.
            lower: parameter name -> int64 [K, ...] sums of lower bounds, which are added to.
            upper: the sums of upper bounds.
            selector: parameter name -> what collects the most extreme bounds; none: nothing does.
        """
        for (parameter, d, inputs), selectable in record_bounds:
            ends = self.kernel.bound_sum(d, inputs, self.training.product)
            low, high = self.network.expand_difference(parameter, *ends)
            lower[parameter] += low.reshape(lower[parameter].shape)
            upper[parameter] += high.reshape(upper[parameter].shape)
            if selector:
                for gradient in selectable:
                    selector[parameter].update(gradient.d, gradient.x)

    def _record_bounds(
        self, x: Tensor, y: Tensor, part: slice
    ) -> Iterator[tuple[Gradient, Iterable[Gradient]]]:
        """Yield for each parameter the bounds on the records' gradients, and what to select from.

        Args:
            x: [n, ...] features of a fragment.
            y: [n] its labels.
            part: for which values of the grid.
        """
        bounds_of = partial(self._gradient_bounds, y=y, part=part)
        ks = part.stop - part.start
        return self.relation.record_bounds(bounds_of, x, ks, self.radius, self.training.product)

    def _gradient_bounds(self, x: Tensor | Interval, y: Tensor, part: slice) -> Iterator[Gradient]:
        """Yield bounds on the records' gradients in one parameter after another.

        Args:
            x: [n, ...] features, or bounds on them of shape [K or 1, n, ...].
            y: [n] labels.
            part: for which values of the grid.
        """
        rounding = self.rounding[part]
        bounds = select_ks(self.bounds, part)
        for factors in self.network.factors(x, y, bounds, rounding, self._scale):
            yield from self.network.gradients(factors, rounding)

    def _selectors(self, part: slice, batch: int, eligible: int) -> dict[str, BoundSelection]:
        """Return for each parameter what collects its most extreme bounds.

        Args:
            part: for which values of the grid.
            batch: b, the number of records in the batch.
            eligible: how many of them a selection may take.

        Returns:
            Parameter name -> an empty selection; no parameter where the relation selects none.
        """
        if not self.relation.selects:
            return {}
        counts = self._selected_counts(part, batch, eligible)
        capped = self.relation.caps_at_zero
        selectors = {}
        for name, parameter in self.network.collapse_point(self.point).items():
            shape = self.relation.selection_shape(parameter)
            selectors[name] = self.kernel.start_selection(
                counts, shape, capped, self.training.product
            )
        return selectors

    def _selected_counts(self, part: slice, batch: int, eligible: int) -> Tensor:
        """Return how many records are selected at each k of ``part``, [K] int64."""
        rows_at_stake = self.rows_at_stake[part]
        counts = []
        for rows in rows_at_stake.tolist():
            counts.append(self.relation.count_selected(rows, batch, eligible))
        return rows_at_stake.new_tensor(counts)

    def _selected_sums(
        self, name: str, selectors: list[dict[str, BoundSelection]], counts: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return this process's part of the sums over the selected records.

        Args:
            name: of the parameter.
            selectors: for each part of the group, what collected the extremes.
            counts: for each part of the group, [K] how many are selected.

        Returns:
            (sums of the greatest lower bounds, sums of the least upper bounds), int64 of shape
            [ks of the group, ...].
        """
        lower_parts = []
        upper_parts = []
        for selector, count in zip(selectors, counts, strict=True):
            lower_part, upper_part = selected_sums(processes(), selector[name], count)
            lower_parts.append(lower_part)
            upper_parts.append(upper_part)
        # Counted by one process, because the sums of all processes are added.
        counted_here = torch.cat(counts) * (processes().rank == 0)
        lower = torch.cat(lower_parts)
        upper = torch.cat(upper_parts)
        lower, upper = self.relation.decode_selected_sums(lower, upper, counted_here)
        parameter = self.network.collapse_point(self.point)[name]
        lower = lower.reshape(-1, *parameter.shape)
        upper = upper.reshape(-1, *parameter.shape)
        return self.network.expand_difference(name, lower, upper)

    # -- the update --------------------------------------------------------------------------------

    def _step_box(
        self, group: slice, sums: dict[str, BoundSums], sgd_step: SgdStep
    ) -> dict[str, Interval]:
        """Return the bounds after the step, by parameter name, for the ks of ``group``."""
        normalizer = self.plan.normalizer
        clip = self.training.clip
        rows_at_stake = self.rows_at_stake[group]
        moved = {}
        for name, bounds in select_ks(self.bounds, group).items():
            low, high = self.relation.direction(
                sums[name], rows_at_stake, sgd_step.batch_size, normalizer, clip
            )
            # The least parameters take the greatest direction: Lemma 2 of docs/proofs/training.md.
            lower_key = ("lower", name, group.start)
            upper_key = ("upper", name, group.start)
            lower = self._descended(lower_key, bounds.lower, high, sgd_step)
            upper = self._descended(upper_key, bounds.upper, low, sgd_step)
            moved[name] = Interval(lower, upper)
        return moved

    def _step_point(self, sums: Tensors, sgd_step: SgdStep) -> Tensors:
        """Return the nominal parameters after the step, by name."""
        normalizer = self.plan.normalizer
        clip = self.training.clip
        moved = {}
        for name, parameter in self.point.items():
            direction = self.relation.nominal_direction(
                sums[name], sgd_step.batch_size, normalizer, clip
            )
            moved[name] = self._descended(("nominal", name), parameter, direction, sgd_step)
        return moved

    def _descended(
        self, key: BufferKey, parameter: Tensor, direction: Tensor, sgd_step: SgdStep
    ) -> Tensor:
        """Return a parameter, or one end of its bounds, after the step.

        Args:
            key: of the momentum buffer; its second item is the parameter's name.
            parameter: its value before the step.
            direction: the descent direction, float64, without noise.
            sgd_step: the step.
        """
        noisy_direction = self._noisy(str(key[1]), direction, sgd_step.noise)
        update = self.sgd.update(key, noisy_direction)
        return descend(self.training, sgd_step.lr, parameter, update)

    def _noisy(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        """Return the direction plus the parameter's noise, if any, in the parameters' precision.

        The sum is rounded to that precision once, after the noise is added, alike for the nominal
        direction and for both bounds (Lemma 5 of docs/proofs/training.md).
        """
        noisy = direction + noise[name].to(direction) if noise else direction
        return noisy.to(self.dtype)

    @property
    def _scale(self) -> float:
        """How many quanta one unit of a gradient has."""
        return QUANTA / self.training.clip

    def _report(self) -> None:
        """Report how far the run is."""
        work_of_epoch = len(self.records) * len(self.ks)
        work = self.plan.epochs * work_of_epoch
        self.on_progress(Progress(self.steps_taken, self.plan.steps, self.work_done, work))


def _integer_zeros(bounds: dict[str, Interval]) -> Tensors:
    """Return int64 zeros of each bound's shape."""
    return {
        name: torch.zeros_like(interval.lower, dtype=torch.int64)
        for name, interval in bounds.items()
    }


def _joined_groups(groups: list[dict[str, Interval]]) -> dict[str, Interval]:
    """Return the bounds of several groups of k, concatenated along K."""
    if len(groups) == 1:
        return groups[0]
    joined = {}
    for name in groups[0]:
        lower = torch.cat([group[name].lower for group in groups])
        upper = torch.cat([group[name].upper for group in groups])
        joined[name] = Interval.unchecked(lower, upper)
    return joined
