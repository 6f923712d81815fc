"""Plain SGD for a tube's network: the run, and beside it the radius of every k.

Same plan of batches, schedule and decoupled weight decay as everywhere; no momentum. Parameters and sums are float64
whatever ``training.dtype`` says, which halves the memory of the features alone: a float32 sum would be worth many records
of rounding.

Stable distances of a tube's queries: for which k does the label survive, wherever within the radius the weights are?

Formal guarantees
    Let M be an exact margin at W, of one logit or of two classes' difference, phi the query's features, |phi| <= n: grad M
    = (a * s'(W phi)) phi^T with a the row of A, or the difference of two, so that from W to W + V it moves by at most
    |grad M| |V| + L |V|^2 / 2, L = max|a_j| s2 n^2: its second derivative is block diagonal, (a_j s''(w_j.phi)) phi phi^T.
    Let e_f, e_g bound what the computed margin and |grad M| err by, public numbers. certified(k) means, in exact terms,
        |M| > |grad M| r + L r^2 / 2 + (2 c + 2)(e_f + e_g r),   r = r_c (radius.py), c the records that k moves.
    Sound: a neighbour's computed weights lie within r, so its exact margin has the sign of M, by more than e_f: so has what
    it computes, and its label is the same. 1-Lipschitz: if it holds for (D, c) it holds for (D', c - 1), D' a neighbour
    with weights d away and radius r', r >= r' + d (nesting). M and |grad M|, as computed, move by |grad M| d + L d^2 / 2 +
    2 e_f + e_g d and by L d + 2 e_g at most; the left side less the right of (D', c - 1) is then at least (2 c + 1) e_g d
    >= 0, as |grad M|(r - r' - d) >= 0 and r^2 >= r'^2 + 2 d r' + d^2. So the label is that of D, and the distances differ
    by at most 1; where labels differ, neither is certified at 1. As computed: the right side is rounded up, by 2^-47 of it
    in all; where it matters it is below |M|, itself at most ``farthest``, a public number, and e_f holds 2^-45 of that
    beyond what a margin errs by. (Features known up to ``slack`` may have another length in another run: e_g holds slack
    |grad M|, and e_f 4 slack ``farthest``, for L r^2 / 2.) The right side grows with k as computed, too (rounding is
    monotone), so that the k which are certified are those up to one, found by bisection. A radius that is infinite
    certifies nothing, nor does a margin of 0; k = 0 counts as any other: r_0 is what rounding moves.
    Envelopes (box.py): lower(k) is M less the right side R, M signed, and no less than -2 ``farthest``, which no
    margin goes beyond; upper mirrors it. By the same inequality M' - R'(c - 1) >= M - R(c), in exact terms, with 2^-44
    ``farthest`` to spare, more than what rounding adds to R'(c - 1) where that is at most 8 ``farthest``; where it is more,
    so is R(c), and both bounds are the least there is. Subtracting and comparing are monotone as computed.

Source: method.md section 9.
"""

from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from agt.certificates.box import Envelope
from agt.certificates.stability import ClosedForm, upper_lengths
from agt.data.dataset import Records
from agt.distributed import group
from agt.errors import UnsoundError
from agt.numeric import COVER, UNIT, gamma_up, labels_of
from agt.settings import RelationName
from agt.training.batches import check_unit_rows
from agt.training.checkpoint import NOWHERE, Checkpoints
from agt.training.linear import batches_of
from agt.training.loop import OnProgress, Progress
from agt.tube.network import CurvaturePart, EigenvalueBound, Meter, Public, TubeNetwork, TubeSetting, schedule
from agt.tube.radius import Radii


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
class TubeStep:
    """What one look at a batch gives.

    Attributes:
        gradient: [m, d] the sum over its records.
        rho: a bound on dip(R).
        lengths: [n] bounds on each record's gradient, in the batch's order; or None where nobody asked.
    """

    gradient: Tensor
    rho: EigenvalueBound
    lengths: np.ndarray | None


def train_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    initial: Tensor,
    records: Records,
    counts: np.ndarray,
    exact: bool,
    on_progress: OnProgress = lambda progress: None,
    checkpoints: Checkpoints = NOWHERE,
) -> TubeTrained:
    """Train, and carry the radii along.

    Args:
        setting, network: as ``TubeSetting`` has them.
        initial: [m, d] W_0.
        records: labels, and public features [n, d] of norm at most 1.
        counts: [K + 1] int64: how many records k = 0..K move.
        exact: bound dip(R) block by block; else by one matrix (network.py).
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
    gram, everyone = None, plan.count == 1
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
) -> TubeStep:
    """The gradient at a batch, and how curved the loss is there.

    Args:
        listed: bound each record's gradient, too.
    """
    lengths = [np.zeros(0)]

    def of(part: CurvaturePart) -> tuple[Tensor, ...]:
        coefficients = part.pull * part.slope
        if listed:
            lengths.append(_lengths(meter.setting, part, coefficients, public.radius))
        gradient = coefficients.T @ part.x
        return (gradient,) if exact else (gradient, meter.share(part))

    shapes = (weight.shape,) if exact else (weight.shape, (meter.setting.width,) * 2)
    total, *rest = meter.network.summed(weight, records, rows, of, shapes)
    rho = meter.exact(weight, records, rows, public.radius) if exact else meter.cheap(rest[0].numpy(), public.radius)
    return TubeStep(total, rho, np.concatenate(group().gathered(np.concatenate(lengths))) if listed else None)


def _lengths(setting: TubeSetting, part: CurvaturePart, coefficients: Tensor, radius: float) -> np.ndarray:
    """[b] upper bounds on the norms of single records' gradients."""
    norms = torch.linalg.vector_norm(coefficients, dim=1) * torch.linalg.vector_norm(part.x, dim=1)
    return norms.numpy() * (1 + 4 * (setting.units + setting.width) * UNIT) + setting.rounding(radius).gradient


def greatest(lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """[K] the sum of the c greatest of ``lengths``, for each c, rounded up; of all where c is more."""
    ordered = np.sort(lengths)[::-1][: int(counts.max(initial=0))]
    sums = np.concatenate([[0.0], np.cumsum(ordered)]) * (1 + 4 * len(ordered) * UNIT)
    return sums[np.minimum(counts, len(ordered))]


_STABILITY_UP = 1 + 2.0**-48


@dataclass(frozen=True)
class Room:
    """Queries' margins, and what moving the weights takes of them.

    Attributes:
        margin: [R, n] of the predicted class over each other; of one logit one row, its size.
        gradient: [R, n] the norms of its gradient in W.
        bend: [R, n] L, bound on its second derivative.
        errors: e_f and e_g.
        farthest: no margin is greater, a public number.
    """

    prediction: np.ndarray
    margin: np.ndarray
    gradient: np.ndarray
    bend: np.ndarray
    errors: tuple[float, float]
    farthest: float

    def left(self, radius: np.ndarray, count: np.ndarray) -> np.ndarray:
        """[n] the least that is left of a margin: certified where it is > 0. Arguments as of ``moved``."""
        return (self.margin - self.moved(radius, count)).min(axis=0)

    def moved(self, radius: np.ndarray, count: np.ndarray) -> np.ndarray:
        """[R, n] how far each margin can be moved; infinite where nothing is known.

        Args:
            radius: [n] r, the same c's for each query.
            count: [n] c.
        """
        logit, slope = self.errors
        with np.errstate(over="ignore", invalid="ignore"):
            moved = (self.gradient + self.bend * radius / 2) * radius + (2 * count + 2) * (logit + slope * radius)
        return np.where(np.isfinite(radius) & ~np.isnan(moved), moved * _STABILITY_UP, np.inf)


def room_of(setting: TubeSetting, network: TubeNetwork, trained: TubeTrained, phi: np.ndarray) -> Room:
    """Of queries' features [n, d].

    Raises:
        UnsoundError: a logit is NaN or infinite.
    """
    with torch.no_grad():
        x = torch.from_numpy(phi).double()
        logits, slopes = (tensor.numpy() for tensor in network.logits(trained.weight, x))
    if not bool(np.isfinite(logits).all()):
        raise UnsoundError("a query's logit is NaN or infinite: its features, or the weights, are out of range")
    prediction, length, rows = labels_of(logits), upper_lengths(phi), np.arange(len(phi))
    outputs = network.outputs.numpy()
    if len(outputs) == 1:
        margin, heads = np.abs(logits.T), [np.broadcast_to(outputs, (len(phi), outputs.shape[1]))]
    else:
        others = [(prediction + step) % len(outputs) for step in range(1, len(outputs))]
        margin = np.stack([logits[rows, prediction] - logits[rows, other] for other in others])
        heads = [outputs[prediction] - outputs[other] for other in others]
    pair, one = setting.loss.pair, setting.rounding(trained.reach)
    gradient = np.stack([np.linalg.norm(head * slopes, axis=1) * length for head in heads])
    bend = np.stack([np.abs(head).max(axis=1) * setting.activation.bend * length**2 * COVER for head in heads])
    value = setting.activation.slope * trained.reach + setting.activation.zero * setting.units**0.5  # bounds |s(W phi)|
    farthest, steepest = pair * setting.alpha * value, pair * setting.alpha * setting.activation.slope
    logit = (pair * one.logit + (2.0**-45 + 4 * setting.slack) * farthest) * COVER
    slope = (pair * one.slope + (gamma_up(2 * (setting.units + setting.width + 16)) + setting.slack) * steepest) * COVER
    return Room(prediction, margin, gradient, bend, (logit, slope), farthest)


def envelope_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    trained: TubeTrained,
    counts: np.ndarray,
    phi: np.ndarray,
    ks: tuple[int, ...],
) -> Envelope:
    """The margin of two classes with its bounds at these k >= 1. Arguments as of ``certify_tube``."""
    room = room_of(setting, network, trained, phi)
    margin, most = np.where(room.prediction == 1, room.margin[0], -room.margin[0]), 2 * room.farthest
    moved = np.array([room.moved(trained.radii[k], counts[k])[0] for k in ks]).reshape(len(ks), len(phi))
    return Envelope(ks, margin, np.maximum(margin - moved, -most), np.minimum(margin + moved, most))


def certify_tube(
    setting: TubeSetting,
    network: TubeNetwork,
    trained: TubeTrained,
    counts: np.ndarray,
    phi: np.ndarray,
    relation: RelationName,
    ks: tuple[int, ...],
) -> ClosedForm:
    """Stable distances of queries, up to the last k that has a radius.

    Args:
        counts: [K + 1] the records that each k moves.
        phi: [n, d] the queries' features, norm at most 1.
        ks: the values of k to tabulate.
    """
    room = room_of(setting, network, trained, phi)
    good, bad = np.full(len(phi), -1), np.full(len(phi), len(counts))
    while bool((bad - good > 1).any()):
        middle = (good + bad) // 2
        at = np.clip(middle, 0, len(counts) - 1)
        held = room.left(trained.radii[at], counts[at]) > 0
        good, bad = np.where((middle > good) & held, middle, good), np.where((middle > good) & ~held, middle, bad)
    return ClosedForm.of(ks, relation, room.prediction, good >= 0, np.maximum(good, 0).astype(np.int64))
