"""Stable distances from parameter boxes: for which k does every neighbouring model give a query the
same label?

Formal guarantees
    certified(k, x) holds only if the bounds on every logit difference with the predicted class are
    finite and strictly on its side, over the whole box for k, widened for rounding
    (bounds/rounding.py). The box holds the parameters of every neighbour's training, so each
    neighbour's computed label is the nominal one.
    L = the number of grid values certified from the least one on, without a gap, read off as the
    last such k; 0 if none. On the dense grid nested boxes make L 1-Lipschitz between neighbours
    (method.md section 3); on any other grid only the index ``stable_index`` is.
    ``envelope``: over the box for k the computed margin of every neighbour's training, the logit
    less the threshold, lies in its bounds less the threshold (one rounding, monotone); nested boxes
    have nested bounds (agt/bounds/rounding.py), and where one overflows nothing is claimed: an
    ``Envelope`` as below, in steps of the grid.
    A finite query whose bounds overflow is not certified at that k, and nothing fails: whether they
    do depends on the box, so a failure would tell a private fact. Nesting survives: bounds that are
    finite over D's box for k, rounding included, enclose those over a neighbour's box for k-1,
    which are finite then.
    The same operations on the same shapes, whatever boxes, predictions and certificates are (tests
    record them): margins are bounded for every class, an overflow is a number as any other, and
    nothing stops early. What they take in time, where a machine's own operations depend on values,
    is outside.

How far a margin can move, and not only whether its sign can: what a margin vote needs of each
member of an ensemble.

Formal guarantees that every ``Envelope`` owes, and that votes.py rests on
    Let D, D' be neighbours, one k of the relation apart, or one of the halves that a shard sees of
    such an edit (one unit gone and none come; agt/relations/relation.py, "One side alone"). With
    m(D) the margin as it is computed, bit for bit,
        lower(D, k_1) <= m(D') <= upper(D, k_1),
        lower(D, k_j) <= lower(D', k_{j-1})  and  upper(D', k_{j-1}) <= upper(D, k_j)   for j >= 2.
    By induction lower(D, k_j) <= m(D'') <= upper(D, k_j) for every D'' that is k_j of the relation
    away or nearer. Where nothing is known the bounds are infinite, which keeps both lines.
    On ks = 1, 2, ... j counts records (or what one k is). On any other increasing ks it counts
    steps; a bound at k holds at the values of k below it as well, of which ``by_record`` makes
    bounds for each number of records: sound, but on such a grid only the steps keep the second line
    (method.md section 3a).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from agt.bounds.box import Box, Intervals, Point, select_ks
from agt.bounds.interval import recording_overflow
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding, check_precision
from agt.distributed import group
from agt.errors import UnsoundError
from agt.kernels.select import pick_device, pick_kernel
from agt.settings import ComputeConfig, RelationName
from agt.training.loop import OnProgress, counted
from agt.training.recipe import Recipe

REACH = 2**10
"""As many edits as a margin vote looks at; a public constant."""


@dataclass(frozen=True)
class Envelope:
    """Margins of queries with their bounds; two classes, class 1 where the margin is > 0.

    Attributes:
        ks: [K] the values of k >= 1 that the bounds are about, increasing; beyond the last nothing
            is known.
        margin: [n] float64; infinite where it overflowed.
        lower, upper: [K, n] float64, infinite where nothing is known.

    Raises:
        UnsoundError: shapes do not fit, or a margin lies outside its bounds.
    """

    ks: tuple[int, ...]
    margin: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self) -> None:
        shape = (len(self.ks), len(self.margin))
        if self.lower.shape != shape or self.upper.shape != shape:
            raise UnsoundError(
                f"an envelope's bounds are {self.lower.shape} and {self.upper.shape}, and {shape} "
                "is needed"
            )
        if not ((self.lower <= self.margin) & (self.margin <= self.upper)).all():
            raise UnsoundError("a query's margin is NaN, or lies outside of its bounds")

    def by_record(self, most: int) -> "Envelope":
        """The same for each of k = 1, 2, ..., up to its last value or ``most``: the bound of the
        next k that has one.
        """
        each = np.arange(1, min(most, self.ks[-1] if self.ks else 0) + 1)
        rows = np.searchsorted(self.ks, each)
        return Envelope(tuple(each.tolist()), self.margin, self.lower[rows], self.upper[rows])


@dataclass(frozen=True, repr=False)
class Certificates:
    """What is known about each query's label.

    Attributes:
        ks: the grid, increasing.
        relation: the neighbour relation; it says what one k counts.
        prediction: [n] int64, the nominal model's label.
        certified: [K, n] bool.
        prices: [C, n] int64, what each class costs in a vote (``certified_vote``); None: the
            distance is all that is known.
    """

    ks: tuple[int, ...]
    relation: RelationName
    prediction: np.ndarray
    certified: np.ndarray
    prices: np.ndarray | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return (
            f"agt.Certificates of {len(self.prediction)} queries, {self.relation}, up to k = "
            f"{self.ks[-1]}"
        )

    @property
    def stable_index(self) -> np.ndarray:
        """[n] int64: how many grid values are certified from the least on; 0: none."""
        return _unbroken(self.certified)

    @property
    def grid_steps(self) -> np.ndarray:
        """[n] int64: how many steps of the grid each query withstands (``counting=index``)."""
        return grid_index(self.ks, self.certified)

    @property
    def stable_distance(self) -> np.ndarray:
        """[n] int64: L, the largest k up to which every grid value is certified; 0 if not even
        the least is.
        """
        return np.array([0, *self.ks], dtype=np.int64)[self.stable_index]

    def table(self, labels: np.ndarray | None) -> list[dict[str, float]]:
        """Per k: the certified fraction and, where labels are known, nominal, worst-case and
        best-case accuracy.

        Worst case: certified and right. Best case: everything but certified and wrong.
        """
        rows = []
        for k, certified in zip(self.ks, self.certified, strict=True):
            row: dict[str, float] = {"k": k, "certified_fraction": float(certified.mean())}
            if labels is not None:
                right = self.prediction == labels
                row["nominal_accuracy"] = float(right.mean())
                row["worst_accuracy"] = float((certified & right).mean())
                row["best_accuracy"] = float(1 - (certified & ~right).mean())
            rows.append(row)
        return rows


def grid_index(ks: Sequence[int], certified: np.ndarray) -> np.ndarray:
    """Evidence for ``counting=index``: how many grid values k >= 1 are certified from the least on.

    Args:
        ks: [K] the grid, increasing.
        certified: [K, n] bool.

    Returns:
        [n] int64. On a dense grid it is the stable distance.
    """
    return np.maximum(_unbroken(certified) - (ks[0] == 0), 0)


def _unbroken(certified: np.ndarray) -> np.ndarray:
    """[n] int64: how many rows of [K, n] are True from the first on, without a gap."""
    return np.logical_and.accumulate(certified, axis=0).sum(axis=0).astype(np.int64)


def certify(
    head: nn.Sequential,
    recipe: Recipe,
    box: Box,
    features: np.ndarray,
    on_progress: OnProgress = lambda progress: None,
) -> Certificates:
    """Certify every query for every k of the box.

    Args:
        head: the layers; its own parameters are not used.
        recipe: what the box was trained by.
        box: the nominal parameters and bounds; its grid may be a part of the recipe's.
        features: [n, ...] queries, scaled as the training data was; a single query is fine.
        on_progress: called after every block of queries.

    Raises:
        ConfigError: the queries' width is not the model's.
        UnsoundError: a box or a query is NaN or infinite.
    """
    at = _Bounded.of(head, recipe, box, features)

    def work(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        x = at.queries(features[rows])
        labels = at.network.predict(x, at.point)
        held = [certified_labels(at.network, x, labels, *part).cpu() for part in at.parts]
        return labels.cpu().numpy(), torch.cat(held).numpy()

    with torch.no_grad():
        made = group().shared(
            len(features), at.at_once, work, counted(on_progress, len(features), len(box.ks))
        )
    prediction, certified = zip(*made, strict=True)
    return Certificates(
        box.ks, recipe.relation.name, np.concatenate(prediction), np.concatenate(certified, axis=1)
    )


def envelope(head: nn.Sequential, recipe: Recipe, box: Box, features: np.ndarray) -> Envelope:
    """The margin of two classes with its bounds over the box of each k >= 1.

    Arguments and errors as ``certify``.
    """
    some, at = slice(int(box.ks[0] == 0), None), _Bounded.of(head, recipe, box, features)

    def work(rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = at.queries(features[rows])
        logits = at.network.logits(x, at.network.collapse_point(at.point))
        margin = (logits[:, 0] - at.network.loss.threshold).nan_to_num(
            -torch.inf, torch.inf, -torch.inf
        )
        lower, upper = zip(
            *(bounded_margins(at.network, x, *part) for part in at.parts), strict=True
        )
        low, high = (torch.cat(end).cpu().double().numpy() for end in (lower, upper))
        return margin.cpu().double().numpy(), low, high

    with torch.no_grad():
        margin, lower, upper = zip(*group().shared(len(features), at.at_once, work), strict=True)
    bounds = (np.concatenate(each, axis=1)[some] for each in (lower, upper))
    return Envelope(box.ks[some], np.concatenate(margin), *bounds)


@dataclass(frozen=True)
class _Bounded:
    """A network over a box, in parts that fit beside some queries.

    Attributes:
        point: the nominal parameters.
        parts: (bounds for some of the ks, their rounding), in the order of the ks.
        at_once: how many queries fit beside one.
        dtype, device: of the queries.
    """

    network: Network
    point: Point
    parts: tuple[tuple[Intervals, Rounding], ...]
    at_once: int
    dtype: str
    device: torch.device

    @classmethod
    def of(cls, head: nn.Sequential, recipe: Recipe, box: Box, features: np.ndarray) -> "_Bounded":
        """For queries of such a shape, within the working memory."""
        training, compute = recipe.training, recipe.compute
        network = Network.from_head(
            head, training.loss, recipe.classes, pick_kernel(compute).products(training.product)
        )
        network.check_record_shape(features.shape[1:], box.nominal, "inputs: a query")
        device, dtype = pick_device(compute), getattr(torch, training.dtype)
        box = box.to(device, dtype)
        rounding = Rounding.for_grid(box.ks, dtype, device)
        widths = network.numbers_per_record(features.shape[1:], box.nominal)
        size, part = _block(widths, compute, dtype, len(box.ks), network.outputs)
        ks = [slice(low, low + part) for low in range(0, len(box.ks), part)]
        parts = tuple((select_ks(box.bounds, some), rounding[some]) for some in ks)
        return cls(network, box.nominal, parts, size, training.dtype, device)

    def queries(self, features: np.ndarray) -> Tensor:
        """A copy, as features may be read-only; checked."""
        x = torch.from_numpy(np.array(features, order="C")).to(
            self.device, getattr(torch, self.dtype)
        )
        return check_queries(x, self.dtype)


def check_queries(x: Tensor, dtype: str) -> Tensor:
    """The queries, if every feature is finite in the model's precision (UnsoundError), and
    PyTorch keeps to that.
    """
    check_precision(x.dtype, x.device)
    if not bool(torch.isfinite(x).all()):
        raise UnsoundError(f"inputs: a query has a feature that is NaN, or infinite in {dtype}")
    return x


def certified_labels(
    network: Network, x: Tensor, labels: Tensor, bounds: Intervals, rounding: Rounding
) -> Tensor:
    """[K, n] bool: the label is constant over each box, and no bound overflows.

    One output, or the difference of two: its bounds lie strictly on the label's side of the loss's
    threshold. More classes: each logit difference with the predicted class is bounded through the
    difference of the last layer's rows.
    """
    with recording_overflow() as overflow:
        if network.outputs == 1:
            f = network.bound_logits(x, bounds, rounding)
            threshold = network.loss.threshold
            held = torch.where(
                labels == 1, f.lower[..., 0] > threshold, f.upper[..., 0] < threshold
            )
        else:
            hidden = network.bound_hidden(x, bounds, rounding)
            held = (network.bound_margins(hidden, labels, bounds, rounding).lower > 0).all(dim=-1)
    return held if overflow.finite is None else held & overflow.finite


def bounded_margins(
    network: Network, x: Tensor, bounds: Intervals, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """([K, n], [K, n]): bounds on the margin of two classes; infinite where one overflows, as in
    ``certified_labels``.
    """
    with recording_overflow() as overflow:
        f, threshold = network.bound_logits(x, bounds, rounding), network.loss.threshold
    low, high = f.lower[..., 0] - threshold, f.upper[..., 0] - threshold
    if overflow.finite is None:
        return low, high
    return torch.where(overflow.finite, low, -torch.inf), torch.where(
        overflow.finite, high, torch.inf
    )


def _block(
    widths: int, compute: ComputeConfig, dtype: torch.dtype, ks: int, outputs: int
) -> tuple[int, int]:
    """(queries at once, k at once) that fit the working memory, with the margin of each pair of
    classes.
    """
    budget = (
        compute.memory_mb * 2**20 // (12 * dtype.itemsize * (widths + outputs * (outputs - 1) // 2))
    )
    part = max(1, min(ks, budget // 256))
    return max(1, min(4096, budget // part)), part
