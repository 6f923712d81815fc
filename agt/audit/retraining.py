"""Many neighbours of one run trained together: the same arithmetic as training, with the work that they share done once.

Formal guarantees
    Each neighbour's parameters are those of a training that the certificate speaks of; a bound that they leave is wrong.
    Boxes. A neighbour takes the steps of training/loop.py with the same elementwise operations; its sums over records are
    the same integers in any order and any grouping (kernels/contract.py). Its passes through the head are matrix products
    of other shapes, which may round otherwise: the bounds widen for any order of summation (bounds/rounding.py).
    As long as no neighbour of a block differs from the others in a batch, all have the same parameters, and one is
    trained. In the step in which they first differ, the records that are not common to all add their own integers: the
    sum of a neighbour is exact, as integers below 2^53 in float64.
    Heads. Sums are float64 in another order than training's; each computed step is within the tau of
    training/sensitivity.py, which holds for any order, so that what neighbours may differ by charges it.
    Tubes. Each neighbour takes the steps of tube/training.py by itself, its radii left out; they go with what it computes.
    Minimisers. However found, a head whose computed gradient is below the run's goal is within tolerance / lambda of the
    minimiser (training/erm.py), the same claim as training's own.
    An ensemble's members that an edit leaves alone are the run's: their records are the same bytes in the same order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from agt.audit.edits import Edited
from agt.audit.neighbours import neighbouring, retrained, with_added
from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.data.dataset import Records
from agt.errors import AgtError, ConfigError
from agt.kernels.contract import QUANTA
from agt.kernels.select import pick_kernel
from agt.models.box import BoxModel, starting_head
from agt.models.ensemble import EnsembleModel
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.removal import RemovalModel, training_rows
from agt.models.tube import TubeModel
from agt.problem import Problem
from agt.relations import RELATIONS
from agt.settings import ErmConfig, StabilityConfig
from agt.training.batches import BatchPlan, check_unit_rows
from agt.training.ensemble import aligned, shards
from agt.training.erm import gradient_rounding, size_of
from agt.training.linear import batches_of, derivative
from agt.training.optimizer import Sgd, descend, learning_rate
from agt.training.removal import minimise
from agt.training.sensitivity import LinearSetting, Schedule

ROWS = 1024  # records at once: their features stay in the cache between the two products of a step
MEMORY = 2**27  # bytes of what a block of neighbours holds at once
NEWTON = 400  # steps with one Hessian
INFINITE = "a parameter became NaN or infinite"


@dataclass(frozen=True)
class Pool:
    """The records of several neighbours together.

    Attributes:
        records: of all of them.
        inside: [neighbours, records] bool, which has which.
    """

    records: Records
    inside: np.ndarray

    @classmethod
    def of(cls, base: Records, edits: Sequence[Edited]) -> "Pool":
        """Of neighbours of ``base``; a newcomer of each is a record of its own, though two have the same name."""
        come = [newcomer for edit in edits for newcomer in edit.come]
        inside = np.zeros((len(edits), len(base) + sum(map(len, come))), dtype=bool)
        inside[:, : len(base)] = True
        at = len(base)
        for place, edit in enumerate(edits):
            inside[place, edit.gone] = False
            for newcomer in edit.come:
                inside[place, at : at + len(newcomer)] = True
                at += len(newcomer)
        numbered = [replace(part, ids=np.char.add(f"{i}/", part.ids)) for i, part in enumerate(come)]
        records = base
        if numbered:
            first, *others = numbered
            for newcomer in others:
                first = with_added(first, newcomer)
            records = with_added(base, first)
        return cls(replace(records, features=aligned(np.asarray(records.features))), inside)

    def varied(self, rows: np.ndarray) -> np.ndarray:
        """Which of ``rows`` some have and others have not."""
        inside = self.inside[:, rows]
        picked: np.ndarray = rows[inside.any(axis=0) & ~inside.all(axis=0)]
        return picked

    def common(self, rows: np.ndarray) -> np.ndarray:
        """Which of ``rows`` all have."""
        picked: np.ndarray = rows[self.inside[:, rows].all(axis=0)]
        return picked


@dataclass(frozen=True)
class Refused:
    """A neighbour that training refuses, as it would in a run of its own; why."""

    why: str


Outcome = Model | Refused


def neighbours_of(
    model: Model, edits: Sequence[Edited], on_done: Callable[[int], None] = lambda done: None
) -> list[Outcome]:
    """The nominal models of neighbours of a run, work shared between them where it can be.

    Args:
        model: of the run, its problem holding the records that it was trained on.
        edits: neighbours of these records.
        on_done: called with how many are done.
    """
    if not _shares(model.problem):
        return [_alone(model.problem, edit) for edit in _told(edits, on_done)]
    if isinstance(model, EnsembleModel):
        return _ensembles(model, edits, on_done)
    return _trained(model, model.problem, edits, on_done)


def _told(edits: Sequence[Edited], on_done: Callable[[int], None]) -> Iterator[Edited]:
    for done, edit in enumerate(edits):
        on_done(done)
        yield edit


def _shares(problem: Problem) -> bool:
    """Whether blocks of neighbours can be trained; else each is, by itself."""
    settings = problem.settings
    return settings.compute.device == "cpu" and settings.noise is None and settings.ensemble.slices == 1


def _alone(problem: Problem, edit: Edited) -> Outcome:
    try:
        return retrained(problem, edit.records, (0,))
    except AgtError as error:
        return Refused(str(error))


# -- ensembles -------------------------------------------------------------------------------------------------------------


def shard_edits(problem: Problem, edits: Sequence[Edited]) -> dict[int, dict[int, Edited]]:
    """Member -> index of an edit -> what that edit is to the member's shard; where it is nothing, it is left out."""
    ensemble, train = problem.settings.ensemble, problem.dataset.train
    home = shards(train.units, ensemble)
    local = np.empty(len(train), dtype=np.int64)
    ordered = {}
    for member in range(ensemble.members):
        rows = np.flatnonzero(home == member)
        rows = rows[np.argsort(train.ids[rows], kind="stable")]
        local[rows], ordered[member] = np.arange(len(rows)), rows
    parts: dict[int, dict[int, Edited]] = {}
    bases = {member: train.take(rows) for member, rows in ordered.items()}
    for index, edit in enumerate(edits):
        comers = [(int(shards(each.units[:1], ensemble)[0]), each) for each in edit.come]
        for member in sorted({*home[edit.gone].tolist(), *(m for m, _ in comers)}):
            gone = local[edit.gone[home[edit.gone] == member]]
            come = tuple(each for m, each in comers if m == member)
            parts.setdefault(member, {})[index] = replace(edit, base=bases[member], gone=gone, come=come)
    return parts


def _ensembles(model: EnsembleModel, edits: Sequence[Edited], on_done: Callable[[int], None]) -> list[Outcome]:
    members = [list(model.members) for _ in edits]
    refused: dict[int, Refused] = {}
    done = 0
    parts = shard_edits(model.problem, edits)
    for member, local in parts.items():
        made = _trained(model.members[member], member_problem(model, member), list(local.values()))
        for index, outcome in zip(local, made, strict=True):
            if isinstance(outcome, Refused):
                refused[index] = outcome
            else:
                members[index][member] = outcome
        done += len(local)
        on_done(min(done, len(edits)))
    return [refused.get(i) or replace(model, members=tuple(each)) for i, each in enumerate(members)]


def member_problem(model: EnsembleModel, member: int) -> Problem:
    """What one member was trained on, as a run of its own with its constants."""
    problem = model.problem
    dataset, ensemble, counts = problem.dataset, problem.settings.ensemble, problem.counts
    rows = shards(dataset.train.units, ensemble) == member
    shard = dataset.train.take(rows)
    shard = shard.take(np.argsort(shard.ids, kind="stable"))
    assert isinstance(counts, tuple)
    share = max(counts[member], 1) if dataset.declared_size is None else dataset.declared_size / ensemble.members
    alone = replace(problem.settings, ensemble=replace(ensemble, members=1))
    return replace(problem, settings=alone).on(dataset.with_shard(shard, float(share)))


# -- blocks of one head's neighbours ---------------------------------------------------------------------------------------


def _trained(
    model: Model, problem: Problem, edits: Sequence[Edited], on_done: Callable[[int], None] = lambda done: None
) -> list[Outcome]:
    """Neighbours of one head, in blocks of those whose batches begin to differ at about the same step."""
    same = neighbouring(problem, problem.dataset.train)
    plan = same.recipe.plan(len(same.dataset.train))
    outcomes: list[Outcome | None] = [_refusal(same, plan, edit) for edit in edits]
    left = [index for index, outcome in enumerate(outcomes) if outcome is None]
    starts = _starts(plan, same.dataset.train, [edits[index] for index in left])
    order = [left[place] for place in np.argsort(starts, kind="stable")]
    train, size = _kind(model, same)
    for start, stop in pairwise(sorted({*range(0, len(order), size), len(order)})):
        block = order[start:stop]
        for index, outcome in zip(block, train(Pool.of(same.dataset.train, [edits[i] for i in block])), strict=True):
            outcomes[index] = outcome
        on_done(stop)
    return [outcome for outcome in outcomes if outcome is not None]


def _kind(model: Model, problem: Problem) -> tuple[Callable[[Pool], list[Outcome]], int]:
    """(what trains a block, how many neighbours it holds)."""
    if isinstance(model, RemovalModel):
        return lambda pool: _removals(model, problem, pool), 64
    if isinstance(model, LinearModel):
        outputs, width = model.trained.weight.shape
        size = max(1, min(128, MEMORY // (8 * outputs * (8 * width + 4 * ROWS))))
        if isinstance(problem.settings.certificate, ErmConfig):
            return lambda pool: _minimisers(model, problem, pool), size
        return lambda pool: _heads(model, problem, pool), size
    if isinstance(model, TubeModel):
        return lambda pool: _tubes(model, problem, pool), 8
    assert isinstance(model, BoxModel)
    parameters = sum(p.numel() for p in model.box.nominal.values())
    widths = model.widths
    size = max(1, min(64, MEMORY // (8 * (8 * parameters + 6 * widths * 256))))
    return lambda pool: _boxes(model, problem, pool), size


def _refusal(problem: Problem, plan: BatchPlan, edit: Edited) -> Refused | None:
    """Why training refuses a neighbour, by what its units are called."""
    units = np.concatenate([np.delete(edit.base.units, edit.gone), *(each.units for each in edit.come)])
    try:
        check_unit_rows(units, problem.settings.relation.unit_rows)
        if len(units) > plan.n_max or plan.count > 1:
            next(plan.batches(units))
    except ConfigError as error:
        return Refused(str(error))
    return None


def _starts(plan: BatchPlan, base: Records, edits: Sequence[Edited]) -> list[int]:
    """The first step in which each takes another batch than the run."""
    if plan.count == 1:
        return [0] * len(edits)
    units = [np.concatenate([edit.base.units[edit.gone], *(each.units for each in edit.come)]) for edit in edits]
    names, places = np.unique(np.concatenate([*units, base.units[:0]]), return_inverse=True)
    first = np.full(len(names), plan.steps)
    for step, rows in enumerate(replace(plan, epochs=1, n_max=2**30).batches(names)):
        first[rows] = np.minimum(first[rows], step)
    ends = np.cumsum([0, *map(len, units)])
    return [int(first[places[a:b]].min(initial=plan.steps)) for a, b in pairwise(ends)]


# -- boxes: the nominal parameters alone -----------------------------------------------------------------------------------


def _boxes(model: BoxModel, problem: Problem, pool: Pool) -> list[Outcome]:
    run = _Boxes(problem, pool)
    with torch.no_grad():
        for step, rows in enumerate(replace(run.plan, n_max=2**30).batches(pool.records.units)):
            run.step(step, rows)
    count = len(pool.inside)
    point = {name: value.expand(count, *value.shape[1:]) for name, value in run.point.items()}
    outcomes: list[Outcome] = []
    for index in range(count):
        nominal = {name: value[index] for name, value in point.items()}
        finite = all(bool(torch.isfinite(value).all()) for value in nominal.values())
        refused = Refused(INFINITE)
        outcomes.append(replace(model, box=Box.start((0,), nominal)) if finite else refused)
    return outcomes


class _Boxes:
    """A block of neighbours in training. Parameters are [1, ...] as long as all have the same, then [neighbours, ...]."""

    def __init__(self, problem: Problem, pool: Pool) -> None:
        recipe, head = problem.recipe, starting_head(problem)
        self.training, self.pool, self.plan = recipe.training, pool, recipe.plan(problem.trained_on)
        self.kernel, self.relation = pick_kernel(recipe.compute), RELATIONS[recipe.relation.name]
        self.network = Network.of(head, self.training.loss, recipe.classes)
        self.dtype = getattr(torch, self.training.dtype)
        self.point = {name: p.detach().to(self.dtype)[None] for name, p in head.state_dict().items()}
        self.sgd = Sgd(self.training)

    @property
    def apart(self) -> bool:
        """Whether the neighbours have parameters of their own."""
        return len(next(iter(self.point.values()))) > 1

    def step(self, step: int, rows: np.ndarray) -> None:
        """Take one step of all of them; ``rows`` are the batch's records in the pool."""
        varied = self.pool.varied(rows)
        if self.apart:
            total = self._sums(rows, self.pool.inside)
        else:
            total = self._sums(self.pool.common(rows), None)
            if len(varied):
                total = self._parted(total, varied)
        sizes = self.pool.inside[:, rows].sum(axis=1) if len(next(iter(total.values()))) > 1 else [len(rows) - len(varied)]
        lr = learning_rate(self.training, step)
        for name, value in self.point.items():
            parts = [
                self.relation.nominal_direction(part, int(size), self.plan.normalizer, self.training.clip)
                for part, size in zip(total[name], sizes, strict=True)
            ]
            update = self.sgd.update(("nominal", name), torch.stack(parts).to(self.dtype))
            self.point[name] = descend(self.training, lr, value, update)

    def _parted(self, total: dict[str, Tensor], varied: np.ndarray) -> dict[str, Tensor]:
        """The sums of each neighbour: those over the records of all, and its own of ``varied``."""
        own = [self._sums(varied[place : place + 1], None) for place in range(len(varied))]
        inside = torch.from_numpy(self.pool.inside[:, varied]).double()
        parted = {}
        for name, base in total.items():
            each = torch.stack([one[name][0] for one in own]).double()
            parted[name] = base + torch.tensordot(inside, each, 1).long()
        return parted

    def _sums(self, rows: np.ndarray, inside: np.ndarray | None) -> dict[str, Tensor]:
        """Name -> [1 or neighbours, ...] int64 sums of clipped gradients in quanta."""
        count = len(next(iter(self.point.values())))
        sums = {name: torch.zeros((count, *p.shape[1:]), dtype=torch.int64) for name, p in self.point.items()}
        size = 256 if count > 1 else ROWS
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            x = torch.from_numpy(self.pool.records.features[part]).to(self.dtype)
            y = torch.from_numpy(self.pool.records.labels[part])
            out = None if inside is None else torch.from_numpy(~inside[:, part])
            self._add(sums, x, y, out)
        return sums

    def _add(self, sums: dict[str, Tensor], x: Tensor, y: Tensor, out: Tensor | None) -> None:
        """Add a fragment's sums; those who are ``out`` [neighbours, n] of a neighbour add nothing."""
        names: list[str] = []

        def factors(point: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
            found = list(self.network.nominal_factors(x, y, point, QUANTA / self.training.clip))
            names[:] = [name for name, _, _ in found]
            return [(d, inputs) for _, d, inputs in found]

        many = torch.func.vmap(factors)(self.point)
        first = names.index(self.network.first.name)
        for place, (name, (d, inputs)) in enumerate(zip(names, many, strict=True)):
            scaled = d.double()
            if out is not None and bool(out.any()):
                scaled = scaled.masked_fill(out.view(*out.shape, *[1] * (d.dim() - 2)), 0.0)
            if d.dim() > 3:
                self._add_images(sums, name, scaled, inputs.double())
                continue
            shared = inputs[0].double() if place == first else None
            for kind, here in ((f"{name}.weight", inputs), (f"{name}.bias", None)):
                if kind in sums:
                    part = self._summed(scaled, here, shared if here is not None else None)
                    sums[kind] += self.network.expand(kind, part, part)[0]

    def _add_images(self, sums: dict[str, Tensor], name: str, d: Tensor, inputs: Tensor) -> None:
        """Add those of a layer of images, whose gradients are made for each neighbour."""
        for index in range(len(d)):
            for kind, factor, other in self.network.trained(name).nominal_gradients(d[index], inputs[index]):
                sums[kind][index] += self.kernel.nominal_sum(factor, other).view_as(sums[kind][index])

    def _summed(self, d: Tensor, inputs: Tensor | None, shared: Tensor | None) -> Tensor:
        """[N, out, in] or [N, out]: one pass over ``shared`` inputs for all neighbours, where they have the same."""
        count, n, outputs = d.shape
        if inputs is not None and shared is None:
            return torch.stack([self.kernel.nominal_sum(d[i], inputs[i].double()) for i in range(count)])
        total = self.kernel.nominal_sum(d.permute(1, 0, 2).reshape(n, count * outputs), shared)
        return total.reshape(count, outputs, *total.shape[1:])


# -- linear heads ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Public features of a pool's records, and the gradient sums of a block of heads over them.

    Attributes:
        slope: (logits [n, J, N], labels [n]) -> the loss's derivative in them.
        phi: [n, w] float64.
        labels: [n].
        inside: [n, N] bool.
        varied: [n] bool, the records that some have not.
    """

    slope: Callable[[Tensor, Tensor], Tensor]
    phi: Tensor
    labels: Tensor
    inside: Tensor
    varied: Tensor

    @classmethod
    def of(cls, model: LinearModel, pool: Pool) -> "_Rows":
        phi = torch.from_numpy(np.ascontiguousarray(model.phi(pool.records.features))).double()
        slope = partial(derivative, model.trained.loss)
        labels, inside = torch.from_numpy(pool.records.labels), torch.from_numpy(np.ascontiguousarray(pool.inside.T))
        return cls(slope, phi, labels, inside, ~inside.all(dim=1))

    def of_some(self, places: np.ndarray) -> "_Rows":
        """The same for some of the heads."""
        return replace(self, inside=self.inside[:, torch.from_numpy(places)])

    def gradients(self, theta: Tensor, rows: np.ndarray) -> Tensor:
        """[N, J, w] each head's sum over its own records of ``rows``; theta [N, J, w]."""
        count, outputs, width = theta.shape
        flat = theta.permute(2, 1, 0).reshape(width, outputs * count)
        total = torch.zeros((outputs * count, width), dtype=torch.float64)
        for start in range(0, len(rows), ROWS):
            at = _slice(rows[start : start + ROWS])
            phi = self.phi[at]
            c = self.slope((phi @ flat).reshape(len(phi), outputs, count), self.labels[at])
            varied = self.varied[at].nonzero()[:, 0]  # few of the rows
            c[varied] *= self.inside[at][varied][:, None, :]
            total += c.reshape(len(phi), outputs * count).T @ phi
        return total.reshape(outputs, count, width).permute(1, 0, 2)


def _slice(rows: np.ndarray) -> slice | Tensor:
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return torch.from_numpy(rows)


def _heads(model: LinearModel, problem: Problem, pool: Pool) -> list[Outcome]:
    """SGD of a block of neighbours (training/linear.py); all at once, as products of matrices."""
    config, recipe, rows_of = problem.settings.certificate, problem.recipe, _Rows.of(model, pool)
    assert isinstance(config, StabilityConfig)
    plan = recipe.plan(problem.trained_on)
    shape = (len(pool.inside), *model.trained.weight.shape)
    theta, total = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    apart, one_of = False, rows_of.of_some(np.array([0]))
    for step, rows in enumerate(batches_of(replace(plan, n_max=2**30), pool.records.units)):
        at = Schedule.at(recipe.training, plan, step)
        apart = apart or len(pool.varied(rows)) > 0
        gradient = rows_of.gradients(theta, rows) if apart else one_of.gradients(theta[:1], rows)
        theta = theta * at.keep - gradient * at.step
        if step >= plan.steps - config.average:
            total += theta
    return [_with_weight(model, weight) for weight in total / config.average]


def _tubes(model: TubeModel, problem: Problem, pool: Pool) -> list[Outcome]:
    """SGD of each neighbour: its features alone are shared, since no two have the same hidden units."""
    start = TubeModel.untrained(problem, model.features)
    seen = replace(pool.records, features=model.phi(pool.records.features))
    return [_tube(model, start, seen.take(inside)) for inside in pool.inside]


def _tube(model: TubeModel, start: TubeModel, records: Records) -> Outcome:
    weight, plan = start.trained.weight, replace(start.plan, n_max=2**30)
    for step, rows in enumerate(batches_of(plan, records.units)):
        at = Schedule.at(start.setting.training, plan, step)
        weight = weight * at.keep - start.network.gradient_sum(weight, records, rows) * at.step
    if not bool(torch.isfinite(weight).all()):
        return Refused(INFINITE)
    return replace(model, trained=replace(model.trained, weight=weight))


def _minimisers(model: LinearModel, problem: Problem, pool: Pool) -> list[Outcome]:
    """Minimisers of a block of neighbours, to the run's tolerance; by themselves where steps from the run's do not lead."""
    config, recipe, known = problem.settings.certificate, problem.recipe, _Rows.of(model, pool)
    assert isinstance(config, ErmConfig)
    setting = LinearSetting.of(recipe, problem.trained_on, known.phi.shape[1], model.features.slack)
    radius, loss, strength = model.trained.sensitivity.radius, model.trained.loss, recipe.training.weight_decay
    goal = config.tolerance - gradient_rounding(setting, radius)
    factors = _curvatures(model, known.phi[: len(problem.dataset.train)], setting.plan.normalizer, strength)

    def gradient(theta: Tensor, places: np.ndarray) -> Tensor:
        sums = known.of_some(places).gradients(theta, np.arange(len(pool.records)))
        return sums / setting.plan.normalizer + theta * strength

    def solved(slope: Tensor, theta: Tensor) -> bool:
        return size_of(loss, slope) <= goal and size_of(loss, theta) <= radius

    start = model.trained.weight.expand(len(pool.inside), *model.trained.weight.shape).clone()
    theta, left = _stepped(start, gradient, solved, factors)
    outcomes = [_with_weight(model, weight) for weight in theta]
    for index in left:
        records = pool.records.take(pool.inside[index])
        outcomes[index] = replace(model, problem=neighbouring(problem, records)).retrained(records)
    return outcomes


def _stepped(
    theta: Tensor,
    gradient: Callable[[Tensor, np.ndarray], Tensor],
    solved: Callable[[Tensor, Tensor], bool],
    factors: Sequence[Tensor],
) -> tuple[Tensor, np.ndarray]:
    """Steps with one Hessian for all. Returns the heads [N, J, w] and which of them are not solved.

    Args:
        gradient: of the heads at these places.
        factors: a Cholesky factor for each output, or one for all.
    """
    left = np.arange(len(theta))
    for _ in range(NEWTON):
        slopes = gradient(theta[left], left)
        short = np.array([not solved(g, t) for g, t in zip(slopes, theta[left], strict=True)], dtype=bool)
        left, slopes = left[short], slopes[torch.from_numpy(short)]
        if not len(left):
            break
        outputs = slopes.shape[1]
        moved = [torch.cholesky_solve(slopes[:, j].T, factors[j % len(factors)]).T for j in range(outputs)]
        theta[left] -= torch.stack(moved, dim=1)
    return theta, left


def _curvatures(model: LinearModel, phi: Tensor, scale: float, strength: float) -> list[Tensor]:
    """A Cholesky factor for each output: of the loss's Hessian at the run's weights; twice it, an upper bound of the whole,
    for a softmax, whose outputs hang together."""
    loss = model.trained.loss
    logits = phi @ model.trained.weight.T
    p = torch.softmax(logits, dim=1) if loss.kind == "softmax" else torch.sigmoid(logits)
    bend = (p * (1 - p)) * (2.0 if loss.kind == "softmax" else 1.0)
    eye = torch.eye(phi.shape[1], dtype=torch.float64) * strength
    return [torch.linalg.cholesky((phi * bend[:, j : j + 1]).T @ phi / scale + eye) for j in range(bend.shape[1])]


def _removals(model: RemovalModel, problem: Problem, pool: Pool) -> list[Outcome]:
    """Minimisers of L_b with the run's own draw of b, from the run's own; plus the noise that is on the run's weights.

    Their residual is at most the run's tolerance, and so at most what its certificates allow a state (training/removal.py).
    """
    known, state = model.known, model.state
    least_squares, strength = known.config.loss == "least_squares", known.objective.strength
    goal, tilt = known.config.tolerance - known.least_residual, torch.from_numpy(state.tilt)
    rows = _Rows.of(model, pool)
    targets = torch.from_numpy(known.objective.targets(pool.records.labels, problem.classes))

    def slope(logits: Tensor, labels: Tensor) -> Tensor:
        seen = logits if least_squares else torch.sigmoid(logits)
        return seen - targets[labels][:, :, None]

    rows = replace(rows, slope=slope, labels=torch.arange(len(pool.records)))

    def gradient(theta: Tensor, places: np.ndarray) -> Tensor:
        return rows.of_some(places).gradients(theta, np.arange(len(pool.records))) + theta * strength + tilt

    def solved(slopes: Tensor, theta: Tensor) -> bool:
        return float(torch.linalg.vector_norm(slopes)) * (1 + 2.0**-30) <= goal

    factors = [torch.linalg.cholesky(matrix) for matrix in torch.from_numpy(state.hessian)]
    start = torch.from_numpy(state.weight).expand(len(pool.inside), *state.weight.shape).clone()
    theta, left = _stepped(start, gradient, solved, factors)
    for index in left:
        phi, labels = training_rows(neighbouring(problem, pool.records.take(pool.inside[index])), model.features)
        with threadpool_limits(problem.settings.compute.threads, user_api="blas"):
            own = minimise(known, phi, known.objective.targets(labels, problem.classes), start=state.weight)
        theta[index] = torch.from_numpy(own.weight)
    return [_with_weight(model, weight) for weight in theta + torch.from_numpy(state.noise)]


def _with_weight(model: LinearModel, weight: Tensor) -> Outcome:
    if not bool(torch.isfinite(weight).all()):
        return Refused(INFINITE)
    return model.with_weight(weight)
