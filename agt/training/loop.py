"""Abstract gradient training: SGD with interval bounds on the parameters of neighbouring datasets.

A neighbour for k is a dataset that differs from the training data by at most k edits. ``train`` is
Algorithm 1 of 000 and 001 (reference.md section 1). The nominal pass (the ordinary training) and
the data traffic are done once for all k. Records stream through in fragments, so that no tensor of
(batch x parameters) is ever made.
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
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints, CheckpointState, Tensors
from agt.training.selections import selected_sums
from agt.training.setup import TrainingSetup
from agt.training.sgd import BufferKey, Sgd, descend, learning_rate
from agt.training.stream import Stream, check_sizes

Noise = Callable[[int], Tensors]
"""The number of a step, from 0 -> {parameter name: noise to add to the step's direction}."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        step: the number of steps that were taken.
        steps: the number of steps of the whole run.
        done: the finished work, counted in records: one for each record, k and epoch.
        total: the work of the whole run in the same unit.
    """

    step: int
    steps: int
    done: int
    total: int

    @classmethod
    def of_steps(cls, step: int, steps: int) -> "Progress":
        """Return the progress of a run whose work is counted in steps.

        Args:
            step: the number of steps that were taken.
            steps: the number of steps of the whole run.
        """
        return cls(step=step, steps=steps, done=step, total=steps)


OnProgress = Callable[[Progress], None]


def ignore_progress(progress: object) -> None:
    """Do nothing: the default of callbacks that receive a progress or a number of finished rows."""


def row_reporter(on_progress: OnProgress, rows: int, ks: int = 1) -> Callable[[int], None]:
    """Return a function that converts a number of finished rows to a ``Progress`` and reports it.

    Args:
        on_progress: the callback that receives the ``Progress``.
        rows: the number of rows of the whole piece of work; each row is one step.
        ks: the number of values of k (numbers of edits) for which each row is processed.
    """

    def report(done: int) -> None:
        """Report that ``done`` rows are finished."""
        on_progress(Progress(step=done, steps=rows, done=done * ks, total=rows * ks))

    return report


def train(
    head: nn.Sequential,
    setup: TrainingSetup,
    records: Records,
    on_progress: OnProgress = ignore_progress,
    noise: Noise | None = None,
    on_epoch: Callable[[int, Box], None] | None = None,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> Box:
    """Train a head by SGD, and bound its parameters on all datasets within k edits, for every k.

    One edit removes, adds, replaces or changes the records of one unit (whose data they are); which
    of these it does depends on the relation in ``setup``.

    Formal guarantees
        * The box (elementwise bounds) for k contains the parameters that the same call computes on
          every dataset within k edits of ``records`` (Theorem 4 of docs/proofs/training.md).
        * The box for k - 1 of a dataset one edit away lies inside the box for k, bit for bit,
          except for relations with a ``reason_not_nested``.
        * Both hold for the noise that was drawn. They say nothing about the privacy of the noise,
          for which see ``NoisePlan``.
        * A resumed training ends with the same bits as an uninterrupted one.

    Args:
        head: layers and initial parameters; it is not changed.
        setup: loss, steps, clip level, batches, relation, grid of k and device.
        records: the training records; there may be none, and then all batches are empty.
        on_progress: called after every fragment (a part of a batch that is processed at once).
        noise: the number of a step -> the noise that DP-SGD adds to the step's direction (000,
            Algorithm 1), by parameter name; None: no noise.
        on_epoch: called as on_epoch(0, initial box), and after each epoch with the number of
            finished epochs and the box at that point. A resumed training calls it only for the
            epochs that it finishes itself.
        checkpoints: the place where states are saved and from which a killed training is resumed.

    Returns:
        The nominal parameters (those that ordinary training on ``records`` gives) and their bounds
        for every k, on the CPU.

    Raises:
        ConfigError: the relation does not support a layer, the loss, the size of a batch, the rows
            of a unit or public records; or a GPU was requested and there is none.
        UnsoundError: a bound became NaN or infinite, or its lower end exceeded its upper end.
    """
    run = TrainingRun(head, setup, records, on_progress, noise)
    with torch.no_grad():
        state = checkpoints.last_state()
        batches = run.plan.batches(records.units)
        if state:
            # The batches of the finished steps are taken off the iterator; the loop has the rest.
            finished_batches = islice(batches, state.step)
            run.restore(state, finished_batches)
        elif on_epoch:
            on_epoch(0, run.result())
        for rows in batches:
            run.step(rows)
            is_finished = run.steps_taken == run.plan.steps
            checkpoints.save_if_due(run.steps_taken, run.tensors, is_last_step=is_finished)
            epoch, step_of_epoch = divmod(run.steps_taken, run.plan.count)
            if on_epoch and step_of_epoch == 0:
                on_epoch(epoch, run.result())
    return run.result()


def _tensor_name(*key: str | int) -> str:
    """Return the name of a tensor in a checkpoint: its key as a JSON list, such as ["lower", "w"].

    Checkpoints store tensors by text alone; ``json.loads`` gives the key back, as a list.

    Args:
        key: "nominal", "lower", "upper" or "buffer", and what identifies the tensor among these.
    """
    return json.dumps(key)


class SgdStep(NamedTuple):
    """The values of one SGD step that the updates of all parameters share.

    Attributes:
        batch_size: b, the number of records in the batch.
        lr: the learning rate of the step.
        noise: parameter name -> noise to add to the descent direction; empty: no noise.
    """

    batch_size: int
    lr: float
    noise: Tensors


class TrainingRun:
    """A training run with bounds on the parameters, which takes one step at a time.

    ``train`` calls ``step`` for each batch of ``plan`` in order.

    Attributes:
        plan: the assignment of records to batches, and the number of steps.
        rows_at_stake: [K] int64, for each k the most rows of one batch that k edits can remove, or
            can add.
        point: parameter name -> the nominal parameters (those of ordinary training).
        bounds: parameter name -> bounds of shape [K, ...] on the parameters of all datasets within
            k edits. No tensor of ``point`` or ``bounds`` is ever changed: a step makes new ones.
        k_groups: slices of the grid of k. Each takes a separate pass over every batch, where
            memory does not suffice to select bounds for all k in one pass.
        steps_taken: the number of steps that were taken.
        work_done: the finished work, one for each record, k and epoch, as in ``Progress.done``.
    """

    def __init__(
        self,
        head: nn.Sequential,
        setup: TrainingSetup,
        records: Records,
        on_progress: OnProgress = ignore_progress,
        noise: Noise | None = None,
    ) -> None:
        """Prepare a run: check that settings, records and memory fit, and start at the given head.

        For every k both ends of the bounds are the initial parameters.

        Args:
            head: layers and initial parameters; it is not changed.
            setup: loss, steps, clip level, batches, relation, grid of k and device.
            records: the training records.
            on_progress: called after every fragment of records.
            noise: the number of a step -> the noise that is added to its direction, by parameter
                name; None: no noise.

        Raises:
            ConfigError: the relation does not support a setting or the records; a unit has too many
                rows; the sizes do not fit the memory; or a GPU was requested and there is none.
        """
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
        self.rounding = Rounding.for_grid(
            self.ks, self.dtype, device, self.kernel.widen_by, self.kernel.point_affine
        )
        rows_at_stake = self.relation.rows_at_stake(self.ks, setup.relation.unit_rows)
        self.rows_at_stake = torch.tensor(rows_at_stake, device=device)
        self.point: Point = {
            name: parameter.detach().to(device, self.dtype, copy=True)
            for name, parameter in head.state_dict().items()
        }
        record_shape = records.features.shape[1:]
        self.network.check_record_shape(record_shape, self.point, "model: a record")
        numbers_per_record = self.network.numbers_per_record(record_shape, self.point)
        self.stream = Stream.for_head(records, setup, self.point, numbers_per_record)
        check_sizes(setup, self.plan, self.stream.parameters)
        self.k_groups = [slice(0, len(self.ks))]
        if self.relation.selects:
            # The selected bounds of all k may not fit the memory at once.
            self.k_groups = self.stream.k_groups(rows_at_stake, self.kernel.selection_bytes)
        # The initial parameters are public, so they are the same for every neighbouring dataset.
        self.bounds = Box.point(self.ks, self.point).bounds
        self.sgd = Sgd(training)
        self.steps_taken = 0
        self.work_done = 0

    def result(self) -> Box:
        """Return the current parameters and the bounds on those of all neighbours, on the CPU.

        The bounds for k hold for the parameters on every dataset within k edits of the records.
        """
        return Box(self.ks, self.point, self.bounds).to(torch.device("cpu"), self.dtype)

    def tensors(self) -> Tensors:
        """Return the run's state for a checkpoint; ``restore`` continues from it.

        Returns:
            Name (``_tensor_name``) -> tensor: the parameters under ("nominal", parameter), their
            bounds under ("lower", parameter) and ("upper", parameter), and each momentum buffer
            under ("buffer", *its key in ``sgd.buffers``).
        """
        tensors: Tensors = {}
        for name, parameter in self.point.items():
            tensors[_tensor_name("nominal", name)] = parameter
        for name, interval in self.bounds.items():
            tensors[_tensor_name("lower", name)] = interval.lower
            tensors[_tensor_name("upper", name)] = interval.upper
        for key, buffer in self.sgd.buffers.items():
            tensors[_tensor_name("buffer", *key)] = buffer
        return tensors

    def restore(self, state: CheckpointState, batches: Iterable[np.ndarray]) -> None:
        """Continue from the state of an earlier run with the same settings and records.

        All that steps change is replaced: ``point``, ``bounds``, the momentum buffers of ``sgd``,
        ``steps_taken`` and ``work_done``. Then the progress is reported.

        Args:
            state: the state after ``state.step`` steps, with the tensors that ``tensors`` returned.
            batches: the record indices of each batch of these steps; only their sizes are used, to
                report the progress.
        """
        device = self.rows_at_stake.device
        tensors = {name: tensor.to(device) for name, tensor in state.tensors.items()}
        self.point = {name: tensors[_tensor_name("nominal", name)] for name in self.point}
        self.bounds = {
            name: Interval(
                lower=tensors[_tensor_name("lower", name)],
                upper=tensors[_tensor_name("upper", name)],
            )
            for name in self.bounds
        }
        self.sgd.buffers = {}
        for name, tensor in tensors.items():
            group, *buffer_key = json.loads(name)  # as ``_tensor_name`` made it
            if group == "buffer":
                self.sgd.buffers[tuple(buffer_key)] = tensor
        self.steps_taken = state.step
        rows_done = sum(len(rows) for rows in batches)
        self.work_done = rows_done * len(self.ks)
        self._report()

    # -- one step ----------------------------------------------------------------------------------

    def step(self, rows: np.ndarray) -> None:
        """Take one SGD step on a batch, for the parameters and for the bounds on them.

        The nominal parameters (``point``) take the ordinary step. The bounds (``bounds``) for each
        k take a step that covers all batches which k edits of the dataset can make of this one.

        Args:
            rows: [b] int64, the indices of the batch's records in increasing order; b may be 0.

        Raises:
            ConfigError: the batch has more than ``plan.n_max`` records.
            UnsoundError: a bound became NaN or infinite, or its lower end exceeded its upper end.
        """
        if len(rows) > self.plan.n_max:
            raise ConfigError(
                Message(
                    "a batch has {count} records, more than {config:training.batch.n_max}={n_max} "
                    "allows: raise n_max, or use more batches",
                    count=len(rows),
                    n_max=self.plan.n_max,
                )
            )
        lr = learning_rate(self.training, self.steps_taken)
        noise: Tensors = {}
        if self.noise is not None:
            noise = self.noise(self.steps_taken)
        sgd_step = SgdStep(len(rows), lr, noise)
        nominal_sums = self.nominal_sums(rows)
        public = self.records.public[rows]
        if public.any():
            # Private records come first, so that those which an edit can change are a prefix.
            rows = np.concatenate([rows[~public], rows[public]])
        editable_count = self.relation.count_selectable(public)  # the length of that prefix
        # Lemma 3 of docs/proofs/training.md: bounds that contain the parameters of all datasets
        # within k edits before the step contain them after it.
        groups_after_step = []
        for k_group in self.k_groups:
            bound_sums = self.bound_sums(rows, editable_count, k_group)
            groups_after_step.append(self._step_box(k_group, bound_sums, sgd_step))
        self.bounds = _join_groups(groups_after_step)
        self.point = self._step_point(nominal_sums, sgd_step)
        self.steps_taken += 1
        self._report()

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """Return the sum of a batch's clipped gradients at the nominal parameters.

        The nominal parameters are those of ordinary training (``point``). Gradients are rounded to
        multiples of clip / 2^30, so that their sums are exact integers in any order.

        Args:
            rows: [b] int64, the indices of the batch's records.

        Returns:
            Parameter name -> int64 of the parameter's shape, in units of clip / 2^30. If several
            processes share the training, each returns the sum over the whole batch.
        """
        sums: Tensors = {
            name: torch.zeros_like(parameter, dtype=torch.int64)
            for name, parameter in self.point.items()
        }
        for _, features, labels in self.stream.fragments(rows):
            # ``_scale`` converts the loss gradient to units of clip / 2^30.
            factors = self.network.nominal_factors(features, labels, self.point, self._scale)
            for layer, output_gradient, inputs in factors:
                rule = self.network.trained_rule(layer)
                gradients = rule.nominal_gradients(output_gradient.double(), inputs.double())
                # A record's gradient is the outer product of two factors. If the second one is
                # None, the first one is the gradient.
                for parameter, output_factor, input_factor in gradients:
                    fragment_sum = self.kernel.nominal_sum(output_factor, input_factor)
                    expanded = self._expanded_to_both_rows(parameter, fragment_sum)
                    sums[parameter] += expanded.reshape(sums[parameter].shape)
        # Each process has summed its own fragments.
        processes().sum_in_place(list(sums.values()))
        return sums

    def _expanded_to_both_rows(self, parameter: str, gradient: Tensor) -> Tensor:
        """Return a nominal gradient in both rows of the last layer, given that in one row.

        For two classes the last layer is computed as one row, the difference of its two rows. The
        gradients in these two rows are minus the gradient, and the gradient. All others stay.

        Args:
            parameter: the parameter's name.
            gradient: the gradient, or a sum of gradients.
        """
        # The network expands bounds for several k. One gradient is both ends of its bounds, and
        # gets an axis of length 1 in place of k.
        as_bounds = gradient[None]
        expanded, _ = self.network.expand_gradient_to_both_rows(parameter, as_bounds, as_bounds)
        return expanded

    def bound_sums(
        self, rows: np.ndarray, editable_count: int, k_group: slice
    ) -> dict[str, BoundSums]:
        """Return the sums over a batch of lower and of upper bounds on the clipped gradients.

        For each k (number of edits of the dataset) the bounds on a gradient hold for all parameters
        within the current bounds for k. If edits remove or change records, the sums of the most
        extreme bounds are returned as well: they bound how much such edits change the sums.

        Args:
            rows: [b] int64, the indices of the batch's records. Those that an edit can remove or
                change come first.
            editable_count: the number of records that an edit can remove or change.
            k_group: the slice of the grid of k for which the sums are computed.

        Returns:
            Parameter name -> int64 sums of shape [k of the group, ...], in units of clip / 2^30. If
            several processes share the training, each returns the sums over the whole batch.
        """
        group_bounds = select_ks(self.bounds, k_group)
        lower = _integer_zeros(group_bounds)
        upper = _integer_zeros(group_bounds)
        # Slices of the grid of k for which the tensors of a fragment fit the memory.
        k_slices = self.stream.k_slices(k_group)
        batch_size = len(rows)
        selectors = [self._selectors(k_slice, batch_size, editable_count) for k_slice in k_slices]
        ks = k_group.stop - k_group.start
        work_before = self.work_done
        for piece, features, labels in self.stream.fragments(rows, editable_count):
            # Edits can remove or change all records of a fragment, or none of them.
            is_editable = piece.start < editable_count
            for k_slice, selector in zip(k_slices, selectors, strict=True):
                in_group = slice(k_slice.start - k_group.start, k_slice.stop - k_group.start)
                # Views into ``lower`` and ``upper``: adding to them fills the sums of the group.
                lower_of_slice = {name: sums[in_group] for name, sums in lower.items()}
                upper_of_slice = {name: sums[in_group] for name, sums in upper.items()}
                record_bounds = self._record_bounds(features, labels, k_slice)
                selection = selector if is_editable else {}
                self._add_bounds(record_bounds, lower_of_slice, upper_of_slice, selection)
            self.work_done += len(features) * ks
            self._report()
        sums_of = {name: BoundSums(lower[name], upper[name]) for name in lower}
        if self.relation.selects:
            counts = [
                self._selected_counts(k_slice, batch_size, editable_count) for k_slice in k_slices
            ]
            for name, sums in sums_of.items():
                selected = self._selected_sums(name, selectors, counts)
                sums_of[name] = BoundSums(sums.lower, sums.upper, *selected)
        tensors = [tensor for sums in sums_of.values() for tensor in sums if tensor is not None]
        # The sums of all processes are added, in place. Integers add up to the same sum in any
        # order and in any cut of the batch (Lemma 6 of docs/proofs/training.md).
        processes().sum_in_place(tensors)
        # The loop has counted only this process's records.
        self.work_done = work_before + batch_size * ks
        return sums_of

    def _add_bounds(
        self,
        record_bounds: Iterable[tuple[Gradient, Iterable[Gradient]]],
        lower: Tensors,
        upper: Tensors,
        selector: dict[str, BoundSelection],
    ) -> None:
        """Add the bounds on a fragment's gradients to the sums and to the selections, in place.

        A fragment is a part of a batch.

        Args:
            record_bounds: two items for each parameter, the bounds to add, and the bounds to select
                from.
            lower: parameter name -> int64 [K, ...], the sums of lower bounds so far.
            upper: parameter name -> int64 [K, ...], the sums of upper bounds so far.
            selector: parameter name -> the selection of the most extreme bounds so far; empty: the
                fragment's bounds are not selected.
        """
        for bounds, selectable in record_bounds:
            name = bounds.parameter
            # A record's gradient is the outer product of the two factors.
            low, high = self.kernel.bound_sum(
                bounds.left_factor, bounds.right_factor, self.training.product
            )
            # For two classes the bounds are of one row, from which those of two rows follow.
            low, high = self.network.expand_gradient_to_both_rows(name, low, high)
            lower[name] += low.reshape(lower[name].shape)
            upper[name] += high.reshape(upper[name].shape)
            if selector:
                for candidate in selectable:
                    selector[name].update(candidate.left_factor, candidate.right_factor)

    def _record_bounds(
        self, features: Tensor, labels: Tensor, k_slice: slice
    ) -> Iterator[tuple[Gradient, Iterable[Gradient]]]:
        """Return an iterator over the parameters, with bounds on the records' gradients in each.

        The relation decides which bounds are needed; some relations move the records' features.

        Args:
            features: [n, ...], the features of a fragment (a part of a batch).
            labels: [n] int64.
            k_slice: the slice of the grid of k (numbers of edits) for which bounds are computed.

        Returns:
            An iterator over pairs: the bounds to add up, and the bounds from which the most extreme
            ones are selected.
        """
        gradient_bounds = partial(self._gradient_bounds, labels=labels, k_slice=k_slice)
        k_count = k_slice.stop - k_slice.start
        # The relation calls ``gradient_bounds`` with the features themselves or, where edits move
        # features by up to ``radius``, with bounds on them. It may change what is selected from.
        return self.relation.record_bounds(
            gradient_bounds, features, k_count, self.radius, self.training.product
        )

    def _gradient_bounds(
        self, features: Tensor | Interval, labels: Tensor, k_slice: slice
    ) -> Iterator[Gradient]:
        """Yield bounds on the records' unclipped gradients, for one parameter after another.

        For each k (number of edits of the dataset) they hold for all parameters within the current
        bounds for k. They are in units of clip / 2^30 (``_scale``).

        Args:
            features: [n, ...], or bounds on them of shape [K or 1, n, ...].
            labels: [n] int64.
            k_slice: the slice of the grid of k for which bounds are computed.
        """
        rounding = self.rounding[k_slice]
        bounds = select_ks(self.bounds, k_slice)
        for factors in self.network.factors(features, labels, bounds, rounding, self._scale):
            yield from self.network.gradients(factors, rounding)

    def _selectors(
        self, k_slice: slice, batch_size: int, editable_count: int
    ) -> dict[str, BoundSelection]:
        """Return, for each parameter, an empty selection for its most extreme gradient bounds.

        A selection collects, at each k, the least upper and the greatest lower bounds on the
        gradients of a batch's records. Their sums bound what edits of records do to the total sum.

        Args:
            k_slice: the slice of the grid of k (numbers of edits) for which bounds are selected.
            batch_size: b, the number of records in the batch.
            editable_count: the number of records in the batch that an edit can remove or change.

        Returns:
            Parameter name -> selection; an empty dictionary if the relation needs no selection.
        """
        if not self.relation.selects:
            return {}
        counts = self._selected_counts(k_slice, batch_size, editable_count)
        capped = self.relation.caps_at_zero
        selectors = {}
        # For two classes the selection is made on the difference of the last layer's two rows.
        for name, parameter in self.network.convert_to_logit_difference(self.point).items():
            shape = self.relation.selection_shape(parameter)
            selectors[name] = self.kernel.start_selection(
                counts, shape, capped, self.training.product
            )
        return selectors

    def _selected_counts(self, k_slice: slice, batch_size: int, editable_count: int) -> Tensor:
        """Return how many gradient bounds of a batch are selected at each k, for each parameter.

        It is at most the number of rows that k edits of the dataset can remove or change.

        Args:
            k_slice: the slice of the grid of k.
            batch_size: b, the number of records in the batch.
            editable_count: the number of records in the batch that an edit can remove or change.

        Returns:
            [k of the part] int64.
        """
        # For each k, the most rows of one batch that k edits can remove, or can add.
        rows_at_stake = self.rows_at_stake[k_slice]
        counts = []
        for rows in rows_at_stake.tolist():
            counts.append(self.relation.count_selected(rows, batch_size, editable_count))
        return rows_at_stake.new_tensor(counts)

    def _selected_sums(
        self, name: str, selectors: list[dict[str, BoundSelection]], counts: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of the most extreme gradient bounds of a batch, for one parameter.

        If several processes share the training, the results of all processes add up to the sums
        over the whole batch.

        Args:
            name: the parameter's name.
            selectors: a mapping for each part of the group of k, parameter name -> the selection.
            counts: the number of selected bounds at each k, [K] int64, for each part of the group.

        Returns:
            (sums of the greatest lower bounds, sums of the least upper bounds), int64 of shape
            [k of the group, ...], in units of clip / 2^30.
        """
        lower_slices = []
        upper_slices = []
        for selector, count in zip(selectors, counts, strict=True):
            lower_slice, upper_slice = selected_sums(processes(), selector[name], count)
            lower_slices.append(lower_slice)
            upper_slices.append(upper_slice)
        # Decoding adds a term for each selected bound. Only one process may add it (the counts of
        # the others are 0), because the sums of all processes are added up.
        counted_here = torch.cat(counts)
        if processes().rank != 0:
            counted_here = torch.zeros_like(counted_here)
        lower = torch.cat(lower_slices)
        upper = torch.cat(upper_slices)
        lower, upper = self.relation.decode_selected_sums(lower, upper, counted_here)
        # For two classes the selection was made on the difference of the last layer's two rows.
        parameter = self.network.convert_to_logit_difference(self.point)[name]
        lower = lower.reshape(-1, *parameter.shape)
        upper = upper.reshape(-1, *parameter.shape)
        return self.network.expand_gradient_to_both_rows(name, lower, upper)

    # -- the update --------------------------------------------------------------------------------

    def _step_box(
        self, k_group: slice, sums: dict[str, BoundSums], sgd_step: SgdStep
    ) -> dict[str, Interval]:
        """Return the bounds on all parameters after an SGD step, for some values of k.

        Args:
            k_group: the slice of the grid of k (numbers of edits of the dataset).
            sums: parameter name -> the sums of gradient bounds over the batch, for this slice.
            sgd_step: batch size, learning rate and noise of the step.

        Returns:
            Parameter name -> bounds of shape [k of the group, ...].

        Raises:
            UnsoundError: a bound became NaN or infinite, or its lower end exceeded its upper end.
        """
        normalizer = self.plan.normalizer
        clip = self.training.clip
        # For each k, the most rows of one batch that k edits can remove, or can add.
        rows_at_stake = self.rows_at_stake[k_group]
        bounds_after_step = {}
        for name, bounds in select_ks(self.bounds, k_group).items():
            low, high = self.relation.bound_direction(
                sums[name], rows_at_stake, sgd_step.batch_size, normalizer, clip
            )
            # A step subtracts the direction. So the lower bound on the parameters takes the upper
            # bound on the direction, and vice versa (Lemma 2 of docs/proofs/training.md).
            lower_key = ("lower", name, k_group.start)
            upper_key = ("upper", name, k_group.start)
            lower = self._after_step(lower_key, bounds.lower, high, sgd_step)
            upper = self._after_step(upper_key, bounds.upper, low, sgd_step)
            bounds_after_step[name] = Interval(lower, upper)
        return bounds_after_step

    def _step_point(self, sums: Tensors, sgd_step: SgdStep) -> Tensors:
        """Return the nominal parameters (those of ordinary training) after an SGD step.

        Args:
            sums: parameter name -> int64, the sum of the batch's clipped gradients in units of
                clip / 2^30.
            sgd_step: batch size, learning rate and noise of the step.

        Returns:
            Parameter name -> parameter.
        """
        normalizer = self.plan.normalizer
        clip = self.training.clip
        point_after_step = {}
        for name, parameter in self.point.items():
            direction = self.relation.nominal_direction(
                sums[name], sgd_step.batch_size, normalizer, clip
            )
            key = ("nominal", name)
            point_after_step[name] = self._after_step(key, parameter, direction, sgd_step)
        return point_after_step

    def _after_step(
        self, key: BufferKey, parameter: Tensor, direction: Tensor, sgd_step: SgdStep
    ) -> Tensor:
        """Return a parameter (or one end of its bounds) after an SGD step, as a new tensor.

        The momentum buffer under ``key`` is updated as well.

        Args:
            key: the key of the momentum buffer, ("nominal", name) or ("lower" or "upper", name,
                first index of the group of k).
            parameter: the parameter, or one end of its bounds, before the step.
            direction: the descent direction (or one end of its bounds), float64, without noise.
            sgd_step: batch size, learning rate and noise of the step.
        """
        name = str(key[1])
        noisy_direction = self._add_noise(name, direction, sgd_step.noise)
        update = self.sgd.update(key, noisy_direction)
        return descend(self.training, sgd_step.lr, parameter, update)

    def _add_noise(self, name: str, direction: Tensor, noise: Tensors) -> Tensor:
        """Return the descent direction plus a parameter's noise, rounded to the training's dtype.

        The nominal direction and both its bounds get the same noise. Each sum is computed in
        float64 and rounded once. Both operations are monotone, so bounds on the direction become
        bounds on the result (Lemma 5 of docs/proofs/training.md).

        Args:
            name: the parameter's name.
            direction: the direction or one end of its bounds, float64.
            noise: parameter name -> noise of the step; empty: no noise is added.
        """
        if noise:
            direction = direction + noise[name].to(direction)
        return direction.to(self.dtype)

    @property
    def _scale(self) -> float:
        """The factor 2^30 / clip, which converts a gradient to the unit in which sums count."""
        return QUANTA / self.training.clip

    def _report(self) -> None:
        """Call ``on_progress`` with the steps and the work that are finished so far.

        The unit of work is one record at one k in one epoch.
        """
        work_of_epoch = len(self.records) * len(self.ks)
        progress = Progress(
            step=self.steps_taken,
            steps=self.plan.steps,
            done=self.work_done,
            total=self.plan.epochs * work_of_epoch,
        )
        self.on_progress(progress)


def _integer_zeros(bounds: dict[str, Interval]) -> Tensors:
    """Return an int64 tensor of zeros for each parameter, of the shape of its bounds.

    Args:
        bounds: parameter name -> bounds of shape [K, ...].
    """
    return {
        name: torch.zeros_like(interval.lower, dtype=torch.int64)
        for name, interval in bounds.items()
    }


def _join_groups(bounds_of_groups: list[dict[str, Interval]]) -> dict[str, Interval]:
    """Return the bounds of all parameters for the whole grid of k, from those of its groups.

    Args:
        bounds_of_groups: a mapping for each group of k, in order: parameter name -> bounds of shape
            [k of the group, ...].

    Returns:
        Parameter name -> bounds of shape [K, ...].
    """
    if len(bounds_of_groups) == 1:
        return bounds_of_groups[0]
    joined = {}
    for name in bounds_of_groups[0]:
        lower = torch.cat([bounds[name].lower for bounds in bounds_of_groups])
        upper = torch.cat([bounds[name].upper for bounds in bounds_of_groups])
        joined[name] = Interval.unchecked(lower, upper)  # the groups' bounds were checked
    return joined
