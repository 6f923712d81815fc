"""Abstract gradient training: SGD that carries, for every k, a box holding every neighbour's parameters.

Algorithm 1 of 000 and 001, in the form of method.md section 1. The nominal pass and the data traffic are done once for all
k; records stream through in fragments, so that no tensor of (batch x parameters) is ever made.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from agt.bounds.interval import Interval
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.kernels.contract import QUANTA, Extremes, Kernel
from agt.kernels.select import pick_device, pick_kernel
from agt.relations import EXACT_ROWS, RELATIONS, Relation, Sums, rows_at_stake
from agt.settings import ComputeConfig, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.optimizer import Sgd, descend, learning_rate

Tensors = dict[str, Tensor]
Noise = Callable[[int], Tensors]
_SELECTION = 8  # what a selection keeps may take this many times the working memory of a fragment


@dataclass(frozen=True)
class Progress:
    """How far a run is: steps taken, and record-by-k units of work done in all."""

    step: int
    steps: int
    done: int
    total: int


@dataclass(frozen=True)
class Trained:
    """The outcome of a run.

    Attributes:
        ks: the grid, increasing.
        nominal: name -> the trained parameters.
        lower, upper: name -> [K, ...], the box for each k.
        plan: the batch plan used.

    Raises:
        UnsoundError: a bound is not finite, out of order, or does not hold the nominal parameters.
    """

    ks: tuple[int, ...]
    nominal: Tensors
    lower: Tensors
    upper: Tensors
    plan: BatchPlan

    def __post_init__(self) -> None:
        for name, interval in self.box().items():
            if not interval.contains(self.nominal[name]):
                raise UnsoundError(f"the nominal parameters {name} are outside their box")

    def box(self) -> dict[str, Interval]:
        """name -> bounds [K, ...]."""
        return {name: Interval(self.lower[name], self.upper[name]) for name in self.nominal}


def train(
    head: nn.Sequential,
    classes: int,
    records: Records,
    declared_size: float | None,
    training: TrainingConfig,
    relation: RelationConfig,
    ks: Sequence[int],
    compute: ComputeConfig,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    noise: Noise | None = None,
    on_epoch: Callable[[int, Trained], None] | None = None,
) -> Trained:
    """Train ``head`` on ``records``, with bounds for every k.

    Args:
        head: initial parameters and layers; left unchanged.
        classes: number of classes.
        records: the training records.
        declared_size: the public constant the normaliser comes from; None: taken from the data (condition c not held).
        ks: the grid, increasing.
        on_progress: called after every fragment.
        noise: DP-SGD's noise (000 Algorithm 1): step -> name -> what is added to that step's direction. One draw moves the
            nominal parameters and both ends of every box alike, by one rounded and hence monotone addition: given the
            draw, the box holds. What the noise itself guarantees is another matter (training/noise.py).
        on_epoch: called with 0 and the initial state, then after each epoch with how many are done and the state reached:
            what a run that had stopped there would return.

    Returns:
        Nominal parameters and boxes, on the CPU.

    Raises:
        ConfigError: an unsupported layer, loss, batch, unit or public record for this relation; no GPU when asked for.
        UnsoundError: a bound became NaN, infinite or inverted.
    """
    run = Run(head, classes, records, declared_size, training, relation, ks, compute, on_progress, noise)
    with torch.no_grad():
        if on_epoch:
            on_epoch(0, run.result(copy=True))
        for step, rows in enumerate(run.plan.batches(records.units), start=1):
            run.step(step - 1, rows)
            if on_epoch and step % run.plan.count == 0:
                on_epoch(step // run.plan.count, run.result(copy=True))
    return run.result()


class Run:
    """One run in progress: ``train`` takes its steps one after another; a benchmark or a test takes one alone."""

    def __init__(
        self,
        head: nn.Sequential,
        classes: int,
        records: Records,
        declared_size: float | None,
        training: TrainingConfig,
        relation: RelationConfig,
        ks: Sequence[int],
        compute: ComputeConfig,
        on_progress: Callable[[Progress], None],
        noise: Noise | None = None,
    ) -> None:
        self.device = pick_device(compute)
        self.kernel: Kernel = pick_kernel(compute)
        self.network = Network.of(head, training.loss, classes, self.kernel.products(training.product))
        self.relation: Relation = RELATIONS[relation.name]
        check_unit_rows(records.units, relation.unit_rows)
        if self.relation.name == "paper_privacy" and records.public.any():
            raise ConfigError(
                "relation=paper_privacy is unsound when public records share the batch (method.md section 2): "
                "use relation=add_remove, or leave the public records out"
            )
        self.records, self.training, self.compute, self.on_progress = records, training, compute, on_progress
        self.noise = noise
        self.ks = tuple(ks)
        self.plan = BatchPlan.of(training.batch, training.epochs, declared_size, len(records))
        self.dtype = getattr(torch, training.dtype)
        rounding = Rounding.of(self.ks, self.dtype, self.device, self.kernel.outward)
        self.rounding = rounding
        self.rows_at_stake = torch.tensor(rows_at_stake(self.ks, relation.unit_rows), device=self.device)
        self.point: Tensors = {n: p.detach().to(self.device, self.dtype) for n, p in head.state_dict().items()}
        self.lower = {n: p.expand(len(self.ks), *p.shape).clone() for n, p in self.point.items()}
        self.upper = {n: p.clone() for n, p in self.lower.items()}
        self.sgd, self.sgd_lower, self.sgd_upper = (Sgd.start(training) for _ in range(3))
        self.taken, self.done = 0, 0
        self.total = self.plan.epochs * len(records) * len(self.ks)
        self.scale = QUANTA / training.clip
        self.network.check(records.features.shape[1:], self.point, "model: a record")
        self._check_sizes()

    # -- one step --------------------------------------------------------------------------------------------------

    def step(self, step: int, rows: np.ndarray) -> None:
        """Take one step on the batch ``rows``; an empty batch takes its step too."""
        lr = learning_rate(self.training, step)
        batch = len(rows)
        if batch > self.plan.n_max:
            raise ConfigError(f"a batch of {batch} records exceeds training.batch.n_max={self.plan.n_max}")
        total = self.nominal_sums(rows)
        drawn = self.noise(step) if self.noise else {}
        # Private records first, so that a selection over private records is a prefix.
        public = self.records.public[rows]
        rows = np.concatenate([rows[~public], rows[public]])
        eligible = int((~public).sum()) if self.relation.capped else batch
        for group in self._groups(batch, eligible):
            sums = self.bound_sums(rows, eligible, group)
            self._descend_box(group, sums, batch, lr, drawn)
        self._descend_point(total, batch, lr, drawn)
        self.taken += 1
        self.on_progress(Progress(self.taken, self.plan.steps, self.done, self.total))

    def nominal_sums(self, rows: np.ndarray) -> Tensors:
        """Parameter name -> int64 sum over the batch of the records' clipped gradients, in quanta."""
        sums: Tensors = {n: torch.zeros(p.shape, dtype=torch.int64, device=self.device) for n, p in self.point.items()}
        for x, y in self._fragments(rows, self._fragment_size()):
            for name, d, inputs in self.network.nominal_factors(x, y, self.point, self.scale):
                scaled, inputs = d.double(), inputs.double()
                for parameter, factor in ((f"{name}.weight", inputs), (f"{name}.bias", None)):
                    if parameter in self.point:
                        part = self.kernel.nominal_sum(scaled, factor)[None]
                        sums[parameter] += self.network.expand(parameter, part, part)[0][0]
        return sums

    def bound_sums(self, rows: np.ndarray, eligible: int, group: slice) -> dict[str, Sums]:
        """Parameter name -> integer sums of the bounds, for the k of ``group``.

        The first ``eligible`` of ``rows`` are those a selection may take.
        """
        ks = len(self.ks[group])
        lower, upper = ({n: self._zeros(n, ks) for n in self.point} for _ in range(2))
        size = self._fragment_size()
        parts = self._parts(group, size)
        selectors = [self._selectors(part, len(rows), eligible) for part in parts]
        seen = 0
        for x, y in self._fragments(rows, size, eligible):
            for part, selector in zip(parts, selectors, strict=True):
                here = slice(part.start - group.start, part.stop - group.start)
                for parameter, d, inputs in self._factors(x, y, part):
                    sums = self.kernel.bound_sum(d, inputs, self.training.product)
                    low, high = self.network.expand(parameter, *sums)
                    lower[parameter][here] += low
                    upper[parameter][here] += high
                    if selector and seen < eligible:
                        selector[parameter].update(d, inputs)
            seen += len(x)
            self.done += len(x) * ks
            self.on_progress(Progress(self.taken, self.plan.steps, self.done, self.total))
        if not self.relation.selects:
            return {n: Sums(lower[n], upper[n]) for n in self.point}
        return {n: Sums(lower[n], upper[n], *self._selected(n, selectors)) for n in self.point}

    def _factors(self, x: Tensor, y: Tensor, part: slice) -> Iterator[tuple[str, Interval, Interval | None]]:
        """Per parameter: its name, and bounds on the scaled factors of its per-record gradient (x None for a bias)."""
        box = {n: Interval(self.lower[n][part], self.upper[n][part]) for n in self.point}
        for name, d, inputs in self.network.factors(x, y, box, self.rounding[part], self.scale):
            scaled = d.double()
            yield f"{name}.weight", scaled, inputs.double()
            if f"{name}.bias" in self.point:
                yield f"{name}.bias", scaled, None

    def _selectors(self, part: slice, batch: int, eligible: int) -> dict[str, Extremes]:
        if not self.relation.selects:
            return {}
        counts = self._counts(part, batch, eligible)
        shapes = {n: tuple(p.shape) for n, p in self.network.collapse_point(self.point).items()}
        return {n: self.kernel.extremes(counts, s, self.relation.capped, self.training.product) for n, s in shapes.items()}

    def _selected(self, name: str, selectors: list[dict[str, Extremes]]) -> tuple[Tensor, Tensor]:
        results = [selector[name].result() for selector in selectors]
        greatest, least = (torch.cat(tensors) for tensors in zip(*results, strict=True))
        return self.network.expand(name, greatest, least)

    def _counts(self, part: slice, batch: int, eligible: int) -> Tensor:
        rows = self.rows_at_stake[part].tolist()
        return torch.tensor([self.relation.selected(r, batch, eligible) for r in rows], device=self.device)

    # -- the update ------------------------------------------------------------------------------------------------

    def _descend_box(self, group: slice, sums: dict[str, Sums], batch: int, lr: float, drawn: Tensors) -> None:
        rows = self.rows_at_stake[group]
        for name, parameter in sums.items():
            low, high = self.relation.direction(parameter, rows, batch, self.plan.normalizer, self.training.clip)
            down = self.sgd_lower.update((name, group.start), self._noisy(name, low, drawn))
            up = self.sgd_upper.update((name, group.start), self._noisy(name, high, drawn))
            new = Interval(
                descend(self.training, lr, self.lower[name][group], up),
                descend(self.training, lr, self.upper[name][group], down),
            )
            self.lower[name][group], self.upper[name][group] = new.lower, new.upper

    def _descend_point(self, total: Tensors, batch: int, lr: float, drawn: Tensors) -> None:
        for name, value in total.items():
            d = self.relation.nominal_direction(value, batch, self.plan.normalizer, self.training.clip)
            update = self.sgd.update((name, 0), self._noisy(name, d, drawn))
            self.point[name] = descend(self.training, lr, self.point[name], update)

    def _noisy(self, name: str, direction: Tensor, drawn: Tensors) -> Tensor:
        """The direction, and the noise on it, in the parameters' precision: rounded after the noise, never before."""
        noisy = direction + drawn[name].to(direction) if drawn else direction
        return noisy.to(self.dtype)

    # -- sizes -----------------------------------------------------------------------------------------------------

    def _groups(self, batch: int, eligible: int) -> list[slice]:
        """The k handled in one pass over the batch: all, unless a selection's memory asks for several passes.

        The grouping depends on public sizes and the memory setting alone, so every step groups alike.
        """
        everything = slice(0, len(self.ks))
        if not self.relation.selects:
            return [everything]
        parameters = sum(p.numel() for p in self.point.values())
        budget = _SELECTION * self.compute.memory_mb * 2**20
        groups, start, used = [], 0, 0
        for index, rows in enumerate(self.rows_at_stake.tolist()):
            cost = 16 * parameters * (rows + 1)
            if index > start and used + cost > budget:
                groups.append(slice(start, index))
                start, used = index, 0
            used += cost
        return [*groups, slice(start, len(self.ks))]

    def _check_sizes(self) -> None:
        """Refuse what cannot work before the first step.

        Raises:
            ConfigError: a fragment larger than any batch may be, batches too large for the papers' means, or a grid whose
                boxes alone exceed the device's memory.
        """
        if self.compute.fragment != "auto" and self.compute.fragment > self.plan.n_max:
            raise ConfigError(
                f"compute.fragment={self.compute.fragment} is larger than a batch may be (n_max {self.plan.n_max}): "
                "use compute.fragment=auto, or a smaller one"
            )
        if self.relation.mean and self.plan.n_max > EXACT_ROWS:
            raise ConfigError(
                f"relation={self.relation.name}: means compare exactly over at most {EXACT_ROWS} rows, and n_max is "
                f"{self.plan.n_max}: use more batches, or relation=add_remove"
            )
        parameters = sum(p.numel() for p in self.point.values())
        tensors = 6 + (4 if self.training.momentum else 2)  # boxes, sums, directions; buffers: both sides
        need = 8 * tensors * parameters * len(self.ks)
        have = _memory(self.device)
        if need > have:
            raise ConfigError(
                f"kgrid: boxes for {len(self.ks)} values of k over {parameters} parameters need {need / 2**30:.1f} GiB "
                f"and this device has {have / 2**30:.1f} GiB: lower kgrid.max, or split the grid over several runs"
            )

    def _record_bytes(self) -> int:
        """Bytes of one record's tensors for one k: about a dozen of each layer's width are alive at once."""
        weights = [p for p in self.point.values() if p.dim() == 2]
        return 12 * self.dtype.itemsize * sum(w.shape[0] + w.shape[1] for w in weights)

    def _fragment_size(self) -> int:
        if self.compute.fragment != "auto":
            return self.compute.fragment
        budget = self.compute.memory_mb * 2**20
        return max(16, min(1024, budget // self._record_bytes()))

    def _parts(self, group: slice, fragment: int) -> list[slice]:
        """``group`` cut into as many k as fit the memory at this fragment size."""
        chunk = max(1, self.compute.memory_mb * 2**20 // (self._record_bytes() * fragment))
        return [slice(s, min(s + chunk, group.stop)) for s in range(group.start, group.stop, chunk)]

    def _fragments(self, rows: np.ndarray, size: int, boundary: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """(features, labels) of the rows, ``size`` at a time; no fragment straddles ``boundary``."""
        cuts = sorted({*range(0, boundary, size), *range(boundary, len(rows), size), len(rows)})
        for start, stop in pairwise(cuts):
            part = _run(rows[start:stop])
            x = _writable(self.records.features[part], self.training.dtype)
            y = _writable(self.records.labels[part], "int64")
            yield torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)

    def _zeros(self, name: str, ks: int) -> Tensor:
        return torch.zeros((ks, *self.point[name].shape), dtype=torch.int64, device=self.device)

    def result(self, copy: bool = False) -> Trained:
        """The parameters and boxes reached, on the CPU; as a copy, where the run goes on (it steps in place)."""
        nominal, lower, upper = (
            {n: (t.clone() if copy else t).cpu().contiguous() for n, t in tensors.items()}
            for tensors in (self.point, self.lower, self.upper)
        )
        return Trained(self.ks, nominal, lower, upper, self.plan)


def _run(rows: np.ndarray) -> np.ndarray | slice:
    """The rows as a slice where they are an unbroken run: reading them then copies nothing."""
    if rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _writable(block: np.ndarray, dtype: str) -> np.ndarray:
    """``block`` as PyTorch takes it: contiguous, in ``dtype``, and a copy if it is a read-only file. Never written to."""
    with np.errstate(over="ignore"):  # beyond float32: becomes inf, which the first interval refuses
        ready = np.ascontiguousarray(block, dtype=dtype)
    return ready if ready.flags.writeable else ready.copy()


def _memory(device: torch.device) -> int:
    """The device's whole memory, bytes."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
