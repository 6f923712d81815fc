"""Plain SGD for a tube's network: the run, and beside it the radius of every k.

Same plan of batches, schedule and decoupled weight decay as everywhere; no momentum. Parameters and sums are float64
whatever ``training.dtype`` says, which halves the memory of the features alone: a float32 sum would be worth many records
of rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from agt.data.dataset import Records
from agt.distributed import group
from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import batches_of
from agt.training.loop import Progress
from agt.tube.network import Part, TubeNetwork
from agt.tube.norms import Bound, Meter
from agt.tube.radius import Radii
from agt.tube.setting import Public, TubeSetting, schedule


@dataclass(frozen=True)
class TubeTrained:
    """The outcome of a run.

    Attributes:
        weight: [m, d] float64.
        radii: [K + 1] float64, how far k can have moved ``weight``, Frobenius, k = 0..K; infinity: not known.
        reach: public bound on |W|.

    Raises:
        UnsoundError: a parameter is NaN or infinite, the weights are longer than they can be, or the radii are none.
    """

    weight: Tensor
    radii: np.ndarray
    reach: float

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.weight).all()):
            raise UnsoundError("a parameter of the network is NaN or infinite")
        if not float(torch.linalg.vector_norm(self.weight)) <= self.reach * COVER:
            raise UnsoundError(f"the weights are longer than {self.reach:.4g}, which training cannot go beyond")
        radii = self.radii
        if np.isnan(radii).any() or not (radii[:1] >= 0).all() or not (radii[1:] >= radii[:-1]).all():
            raise UnsoundError("the radii are not nondecreasing numbers >= 0")


@dataclass(frozen=True)
class Step:
    """What one look at a batch gives.

    Attributes:
        gradient: [m, d] the sum over its records.
        rho: a bound on dip(R).
        lengths: [n] bounds on each record's gradient, in the batch's order; or None where nobody asked.
    """

    gradient: Tensor
    rho: Bound
    lengths: np.ndarray | None


def train_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    initial: Tensor,
    records: Records,
    counts: np.ndarray,
    exact: bool,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> TubeTrained:
    """Train, and carry the radii along.

    Args:
        setting, network: as ``TubeSetting`` has them.
        initial: [m, d] W_0.
        records: labels, and public features [n, d] of norm at most 1.
        counts: [K + 1] int64: how many records k = 0..K move.
        exact: bound dip(R) block by block; else by one matrix (norms.py).
        on_progress: called after every step.
        checkpoints: what a killed run goes on from.

    Raises:
        ConfigError: a batch above n_max, or a unit with too many rows.
        UnsoundError: a parameter became NaN or infinite, or a norm could not be bounded.
    """
    check_unit_rows(records.units, setting.relation.unit_rows)
    plan, meter, (publics, reach) = setting.plan, Meter(setting, network), schedule(setting)
    weight, radii, taken = initial, Radii.zero(counts, 2 * reach), 0
    if state := checkpoints.last():
        weight, taken = state.tensors["weight"], state.step
        radii = Radii(counts, state.tensors["before"].numpy(), state.tensors["after"].numpy(), radii.limit)
    listed = setting.relation.name == "remove" and plan.count == 1
    gram, everyone = None, plan.count * plan.slices.count == 1
    for step, rows in enumerate(islice(batches_of(plan, records.units), taken, None), start=taken):
        public = publics[step]
        seen = look(meter, weight, records, rows, public, exact, listed)
        if gram is None or not everyone:
            gram = meter.gram(records, rows)
        added = None if seen.lengths is None else greatest(seen.lengths, counts)
        radii = radii.batch(setting.curvature, public, seen.rho, gram, added)
        if (step + 1) % plan.count == 0:
            radii = radii.epoch_over()
        weight = weight * public.at.keep - seen.gradient * public.at.step
        checkpoints.offer(step + 1, partial(_kept, weight, radii), last=step == plan.steps - 1)
        on_progress(Progress(step + 1, plan.steps, step + 1, plan.steps))
    return TubeTrained(weight, radii.after, reach)


def _kept(weight: Tensor, radii: Radii) -> dict[str, Tensor]:
    return {"weight": weight, "before": torch.from_numpy(radii.before), "after": torch.from_numpy(radii.after)}


def look(
    meter: Meter, weight: Tensor, records: Records, rows: np.ndarray, public: Public, exact: bool, listed: bool = False
) -> Step:
    """The gradient at a batch, and how curved the loss is there.

    Args:
        listed: bound each record's gradient, too.
    """
    lengths = [np.zeros(0)]

    def of(part: Part) -> tuple[Tensor, ...]:
        coefficients = part.pull * part.slope
        if listed:
            lengths.append(_lengths(meter.setting, part, coefficients, public.radius))
        gradient = coefficients.T @ part.x
        return (gradient,) if exact else (gradient, meter.share(part))

    shapes = (weight.shape,) if exact else (weight.shape, (meter.setting.width,) * 2)
    total, *rest = meter.network.summed(weight, records, rows, of, shapes)
    rho = meter.exact(weight, records, rows, public.radius) if exact else meter.cheap(rest[0].numpy(), public.radius)
    return Step(total, rho, np.concatenate(group().gathered(np.concatenate(lengths))) if listed else None)


def _lengths(setting: TubeSetting, part: Part, coefficients: Tensor, radius: float) -> np.ndarray:
    """[b] upper bounds on the norms of single records' gradients."""
    norms = torch.linalg.vector_norm(coefficients, dim=1) * torch.linalg.vector_norm(part.x, dim=1)
    bound: np.ndarray = norms.numpy() * (1 + 4 * (setting.units + setting.width) * UNIT) + setting.rounding(radius).gradient
    return bound


def greatest(lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[K] the sum of the c greatest of ``lengths``, for each c, rounded up; of all where c is more."""
    ordered = np.sort(lengths)[::-1][: int(counts.max(initial=0))]
    sums = np.concatenate([[0.0], np.cumsum(ordered)]) * (1 + 4 * len(ordered) * UNIT)
    found: np.ndarray = sums[np.minimum(counts, len(ordered))]
    return found
