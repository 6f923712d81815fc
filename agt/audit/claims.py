"""What certificates claim of a neighbour, and how a neighbour is held against it: pure functions of two models."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from agt.audit.edits import Edited
from agt.bounds.box import Box
from agt.certificates.box import Certificates, grid_index
from agt.models.box import BoxModel
from agt.models.ensemble import VoteCertificates
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.tube import TubeModel

SLACK = 1 - 2.0**-30  # of a distance between heads, as computed: rounded down

# -- bounds --------------------------------------------------------------------------------------------------------------


def apart(edit: Edited, relation: str) -> int:
    """How many k a neighbour is away: units gone and come, counted as the relation counts; at most ``edit.distance``."""
    gone, come = len(np.unique(edit.base.units[edit.gone])), len(edit.come)
    return gone + come if relation in ("add_remove", "remove", "paper_unlearning") else max(gone, come)


def deviations(mine: Model, theirs: Model, k: int) -> dict[str, float] | None:
    """Parameters by name -> how far they went of what ``mine`` allows at k; above 1: out of bounds.

    None where no bound is kept: k is beyond the grid, or beyond what has a radius.
    """
    if isinstance(mine, BoxModel) and isinstance(theirs, BoxModel):
        return _of_box(mine.box, theirs.box.nominal, k)
    if isinstance(mine, TubeModel) and isinstance(theirs, TubeModel):
        radius = float(mine.trained.radii[k]) if k <= mine.farthest else np.inf
        return {"weight": moved_by(mine, theirs) / radius} if np.isfinite(radius) else None
    assert isinstance(mine, LinearModel)
    assert isinstance(theirs, LinearModel)
    sensitivity, difference = mine.trained.sensitivity, theirs.trained.weight - mine.trained.weight
    length = torch.linalg.vector_norm
    moved = length(difference, dim=1).max() if mine.trained.loss.kind == "one_vs_all" else length(difference)
    return {"weight": float(moved) * SLACK / (k * sensitivity.per_k or sensitivity.rounding)}


def moved_by(mine: TubeModel, theirs: TubeModel) -> float:
    """How far apart two networks' weights are, rounded down."""
    return float(torch.linalg.vector_norm(theirs.trained.weight - mine.trained.weight)) * SLACK


def _of_box(box: Box, nominal: Mapping[str, Tensor], k: int) -> dict[str, float] | None:
    index = next((i for i, each in enumerate(box.ks) if each >= k), None)
    if index is None:
        return None
    shares = {}
    for name, value in nominal.items():
        lower, point, upper = box.lower[name][index], box.nominal[name], box.upper[name][index]
        moved = (value - point).double()
        room = torch.where(moved > 0, upper.double() - point.double(), point.double() - lower.double())
        inside = (lower <= value) & (value <= upper)
        share = torch.where(moved == 0, 0.0, moved.abs() / room.clamp(min=1e-300))
        share = torch.where(inside, share.clamp(max=1.0), share.clamp(min=1 + 2.0**-20))
        shares[name] = float(share.max()) if share.numel() else 0.0
    return shares


# -- queries -------------------------------------------------------------------------------------------------------------


Ask = Callable[[np.ndarray], Certificates]


def roots(
    ask: Ask, read: Callable[[Certificates], tuple[np.ndarray, np.ndarray]], low: np.ndarray, high: np.ndarray, most: int
) -> np.ndarray:
    """[2 m, ...]: pairs of queries a rounding apart, between which the label changes or a certificate ends.

    Args:
        read: (labels, distances) of certificates.
        low, high: [n, ...] ends of lines. Of line i the label alone is followed, or whether the distance is at least
            i mod (most + 1) beside it; lines along which that does not change are left out.
    """
    level = np.arange(len(low)) % (most + 1)

    def key(known: Certificates, which: np.ndarray) -> np.ndarray:
        label, near = read(known)
        told: np.ndarray = 2 * label + ((near >= level[which]) & (level[which] > 0))
        return told

    every = np.arange(len(low))
    chosen = np.flatnonzero(key(ask(low), every) != key(ask(high), every))
    return halved(lambda x: key(ask(x), chosen), low[chosen], high[chosen]) if len(chosen) else low[:0]


def halved(key: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """[2 n, ...]: each of ``low`` and ``high``, moved towards each other until a rounding lies between them.

    Args:
        key: queries -> [n] what is to be told apart; it differs between the two ends of each line.
    """
    start = key(low)
    for _ in range(52):
        middle = (low + high) / 2
        same = (key(middle) == start).reshape(-1, *[1] * (low.ndim - 1))
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.concatenate([low, high])


def by_distance(known: Certificates) -> tuple[np.ndarray, np.ndarray]:
    """(labels, stable distances)."""
    return known.prediction, known.stable_distance


def by_index(known: Certificates) -> tuple[np.ndarray, np.ndarray]:
    """(labels, distances in steps of the grid)."""
    steps = known.steps if isinstance(known, VoteCertificates) else grid_index(known.ks, known.certified)
    return known.prediction, steps


# -- pairs of neighbours -------------------------------------------------------------------------------------------------


def beyond(outer: Box, inner: Box) -> tuple[int, int]:
    """(ends of ``inner`` at k - 1 that stick out of ``outer`` at k, ends looked at); on a dense grid."""
    out = looked = 0
    for name in outer.lower:
        low, high = outer.lower[name][1:], outer.upper[name][1:]
        out += int((low > inner.lower[name][:-1]).sum() + (inner.upper[name][:-1] > high).sum())
        looked += 2 * low.numel()
    return out, looked


def loose(outer: TubeModel, inner: TubeModel) -> tuple[int, int]:
    """(radii of ``inner`` at k - 1 whose ball sticks out of that of ``outer`` at k, radii looked at)."""
    large, small = outer.trained.radii[1:], inner.trained.radii[:-1]
    return int((small + moved_by(outer, inner) > large).sum()), len(large)


def torn(one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray], symmetric: bool) -> np.ndarray:
    """[n] bool: queries of which neighbours say what no two may.

    Args:
        one, two: (labels, distances) of the run, and of a neighbour one k away.
        symmetric: the run is a neighbour of its neighbour too.
    """
    (label, near), (other, far) = one, two
    if not symmetric:
        jumped: np.ndarray = (near > far + 1) | ((label != other) & (near > 0))
        return jumped
    either: np.ndarray = (abs(near - far) > 1) | ((label != other) & ((near > 0) | (far > 0)))
    return either


def redrawn(recorded: Box, again: Box) -> float:
    """How far the recorded ends of boxes lie from those of training again, at most, in widths of the latter's boxes."""
    farthest = 0.0
    for name, lower in again.lower.items():
        upper = again.upper[name].double()
        width = (upper - lower.double()).clamp(min=1e-300)
        for there, here in ((recorded.lower[name], lower), (recorded.upper[name], upper)):
            apart_by = (there.double() - here.double()).abs()
            shares = torch.where(apart_by == 0, 0.0, apart_by / width)[1:]
            if shares.numel():  # nothing of a grid of k = 0 alone
                farthest = max(farthest, float(shares.max().nan_to_num()))
    return farthest


def rebent(recorded: np.ndarray, again: np.ndarray) -> float:
    """How far recorded radii lie from those of training again, at most, of the latter's."""
    known = np.isfinite(recorded) & np.isfinite(again) & (again > 0)
    shares = np.abs(recorded[known] - again[known]) / again[known]
    same = (recorded == again) | known
    return float(shares.max(initial=0.0)) if same.all() else math.inf
