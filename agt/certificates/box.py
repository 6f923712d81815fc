"""Stable distances and envelopes of queries from the parameter boxes of a trained network.

``certify`` says for which k every neighbouring model gives a query the same label, and returns
``Certificates``. ``compute_envelope`` bounds the margin itself, for votes of margins.
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
from agt.certificates.envelopes import Envelope
from agt.distributed import group
from agt.errors import UnsoundError
from agt.kernels.select import pick_device, pick_kernel
from agt.settings import ComputeConfig, RelationName
from agt.training.loop import OnProgress, row_reporter
from agt.training.setup import TrainingSetup

MAX_QUERIES_AT_ONCE = 4096
COPIES_OF_A_PASS = 12  # an estimate of the values held at once for each number of a pass
MIN_QUERIES_BESIDE_SEVERAL_KS = 256  # fewer queries at once make chunks of the ks smaller


@dataclass(frozen=True, repr=False)
class Certificates:
    """What is known about each query's label, for the data owner.

    Formal guarantees:
        - A query that is certified at k has the same label under every training within k edits
          (Lemma 1 of docs/proofs/boxes.md).
        - On a dense grid of nested boxes the stable distance changes by at most 1 between
          neighbours; on any other grid only ``grid_steps`` does (Lemma 2 of
          docs/proofs/boxes.md).

    Attributes:
        ks: [K] the grid of k, increasing.
        relation: the neighbour relation, which says what one k counts.
        prediction: [n] int64, the labels of the model itself.
        certified: [K, n] bool, whether the label is constant within k edits.
        prices: [C, n] int64, what each class costs in a vote (``certified_vote``); None: only the
            stable distance is known.
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
        """Return how many grid values are certified from the first on without a gap, [n] int64."""
        return _count_leading_true(self.certified)

    @property
    def grid_steps(self) -> np.ndarray:
        """Return how many grid values k >= 1 each query withstands, [n] int64.

        Mechanisms count these with ``counting=index``.
        """
        return count_grid_steps(self.ks, self.certified)

    @property
    def stable_distance(self) -> np.ndarray:
        """Return the largest k up to which every grid value is certified, [n] int64.

        It is 0 if not even the first grid value is certified.
        """
        distance_of_index = np.array([0, *self.ks], dtype=np.int64)
        return distance_of_index[self.stable_index]

    def table(self, labels: np.ndarray | None) -> list[dict[str, float]]:
        """Return a row for each k with the certified fraction and bounds on the accuracy.

        Args:
            labels: [n] the true labels; None: the rows have no accuracies.

        Returns:
            Rows with "k", "certified_fraction" and, where labels are known, "nominal_accuracy" (of
            the model itself), "worst_accuracy" (certified and right) and "best_accuracy"
            (everything but certified and wrong).
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


def count_grid_steps(ks: Sequence[int], certified: np.ndarray) -> np.ndarray:
    """Return how many grid values k >= 1 are certified from the first on, [n] int64.

    It is 0 where k = 0 is in the grid and not certified. On a dense grid it is the stable distance.

    Args:
        ks: [K] the grid, increasing, with or without 0.
        certified: [K, n] bool.
    """
    starts_at_zero = ks[0] == 0
    return np.maximum(_count_leading_true(certified) - starts_at_zero, 0)


def _count_leading_true(flags: np.ndarray) -> np.ndarray:
    """Return how many rows of flags [K, n] are True from the first on without a gap, [n] int64."""
    return np.logical_and.accumulate(flags, axis=0).sum(axis=0).astype(np.int64)


def certify(
    head: nn.Sequential,
    setup: TrainingSetup,
    box: Box,
    features: np.ndarray,
    on_progress: OnProgress = lambda progress: None,
) -> Certificates:
    """Certify the label of every query for every k of the box.

    The same operations run on the same shapes whatever the boxes, labels and certificates are
    (Lemma 6 of docs/proofs/boxes.md).

    Args:
        head: the layers; their own parameters are not used.
        setup: what the box was trained by.
        box: the nominal parameters and their bounds; its grid may be a part of the setup's.
        features: [n, ...] queries, scaled as the training data was.
        on_progress: called after every chunk of queries.

    Raises:
        ConfigError: the queries' width is not the model's.
        UnsoundError: a box or a query is NaN or infinite.
    """
    boxed = _BoxedNetwork.from_box(head, setup, box, features)
    network = boxed.network

    def certify_chunk(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        queries = boxed.load_queries(features[rows])
        labels = network.predict(queries, boxed.point)
        certified_by_part = [
            certify_labels(network, queries, labels, bounds, rounding).cpu()
            for bounds, rounding in boxed.parts
        ]
        certified = torch.cat(certified_by_part)
        return labels.cpu().numpy(), certified.numpy()

    progress = row_reporter(on_progress, len(features), len(box.ks))
    with torch.no_grad():
        chunks = group().shared(len(features), boxed.queries_at_once, certify_chunk, progress)
        label_chunks, certified_chunks = zip(*chunks, strict=True)
    prediction = np.concatenate(label_chunks)
    certified = np.concatenate(certified_chunks, axis=1)
    return Certificates(box.ks, setup.relation.name, prediction, certified)


def compute_envelope(
    head: nn.Sequential, setup: TrainingSetup, box: Box, features: np.ndarray
) -> Envelope:
    """Compute the margins of queries of two classes with their bounds over the box of each k >= 1.

    Bounds that overflow are infinite (Lemma 3 of docs/proofs/boxes.md).

    Args:
        head: the layers; their own parameters are not used.
        setup: what the box was trained by.
        box: the nominal parameters and their bounds; its grid may be a part of the setup's.
        features: [n, ...] queries, scaled as the training data was.

    Raises:
        ConfigError: the queries' width is not the model's.
        UnsoundError: a box or a query is NaN or infinite.
    """
    boxed = _BoxedNetwork.from_box(head, setup, box, features)
    network = boxed.network

    def bound_chunk(rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        queries = boxed.load_queries(features[rows])
        logits = network.logits(queries, network.collapse_point(boxed.point))
        margin = logits[:, 0] - network.loss.threshold
        # A NaN counts as -infinite, which no finite bounds contain; infinite bounds do.
        margin = margin.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        bounds_by_part = [
            bound_binary_margins(network, queries, bounds, rounding)
            for bounds, rounding in boxed.parts
        ]
        lower, upper = zip(*bounds_by_part, strict=True)
        return _as_float64(margin), _as_float64(torch.cat(lower)), _as_float64(torch.cat(upper))

    with torch.no_grad():
        chunks = group().shared(len(features), boxed.queries_at_once, bound_chunk)
        margin_chunks, lower_chunks, upper_chunks = zip(*chunks, strict=True)
    margin = np.concatenate(margin_chunks)
    lower = np.concatenate(lower_chunks, axis=1)
    upper = np.concatenate(upper_chunks, axis=1)
    first = 1 if box.ks[0] == 0 else 0  # an envelope has no bounds at k = 0
    return Envelope(box.ks[first:], margin, lower[first:], upper[first:])


def _as_float64(values: Tensor) -> np.ndarray:
    """Return a tensor's values as a NumPy array of float64 on the CPU."""
    return values.cpu().double().numpy()


@dataclass(frozen=True)
class _BoxedNetwork:
    """A network with bounds on its parameters, in parts that fit into the working memory.

    Attributes:
        network: the network, which bounds its outputs over a box.
        point: the nominal parameters.
        parts: (bounds for some of the ks, their rounding), in the order of the ks.
        queries_at_once: how many queries fit into the working memory beside one part.
        dtype: the precision of queries, by its name in PyTorch.
        device: where queries are computed.
    """

    network: Network
    point: Point
    parts: tuple[tuple[Intervals, Rounding], ...]
    queries_at_once: int
    dtype: str
    device: torch.device

    @classmethod
    def from_box(
        cls, head: nn.Sequential, setup: TrainingSetup, box: Box, features: np.ndarray
    ) -> "_BoxedNetwork":
        """Split a box into parts for queries of the shape that ``features`` [n, ...] have.

        Raises:
            ConfigError: the queries' width is not the model's.
        """
        training = setup.training
        compute = setup.compute
        products = pick_kernel(compute).products(training.product)
        network = Network.from_head(head, training.loss, setup.classes, products)
        query_shape = features.shape[1:]
        network.check_record_shape(query_shape, box.nominal, "inputs: a query")
        device = pick_device(compute)
        dtype = getattr(torch, training.dtype)
        box = box.to(device, dtype)
        rounding = Rounding.for_grid(box.ks, dtype, device)
        widths = network.numbers_per_record(query_shape, box.nominal)
        queries_at_once, ks_at_once = _chunk_sizes(
            widths, compute, dtype, len(box.ks), network.outputs
        )
        chunks = [slice(start, start + ks_at_once) for start in range(0, len(box.ks), ks_at_once)]
        parts = tuple((select_ks(box.bounds, chunk), rounding[chunk]) for chunk in chunks)
        return cls(network, box.nominal, parts, queries_at_once, training.dtype, device)

    def load_queries(self, features: np.ndarray) -> Tensor:
        """Return queries [n, ...] as a checked tensor, copied because features may be read-only."""
        copied = np.array(features, order="C")
        queries = torch.from_numpy(copied).to(self.device, getattr(torch, self.dtype))
        return check_queries(queries, self.dtype)


def check_queries(queries: Tensor, dtype: str) -> Tensor:
    """Return the queries, after a check that each feature is finite in the model's precision.

    Args:
        queries: [n, ...] in the model's precision.
        dtype: that precision, as the error names it.

    Raises:
        UnsoundError: a feature is NaN or infinite, or PyTorch computes in another precision.
    """
    check_precision(queries.dtype, queries.device)
    if not bool(torch.isfinite(queries).all()):
        raise UnsoundError(
            f"inputs: a query has a feature that is NaN, or infinite in {dtype}: correct or "
            "remove this query"
        )
    return queries


def certify_labels(
    network: Network, queries: Tensor, labels: Tensor, bounds: Intervals, rounding: Rounding
) -> Tensor:
    """Return whether each label is constant over the box of each k, [K, n] bool.

    It is False where a bound overflows, and where a bound ties with the threshold.

    Args:
        network: bounds its outputs over a box, widened for rounding.
        queries: [n, ...].
        labels: [n] int64, the labels of the nominal model.
        bounds: of the parameters, for K values of k.
        rounding: the widening for these k.
    """
    with recording_overflow() as overflow:
        if network.outputs == 1:
            # One output, or the difference of two: its bounds lie on the label's side of the
            # loss's threshold.
            logits = network.bound_logits(queries, bounds, rounding)
            threshold = network.loss.threshold
            is_above = logits.lower[..., 0] > threshold
            is_below = logits.upper[..., 0] < threshold
            certified = torch.where(labels == 1, is_above, is_below)
        else:
            # Each logit difference with the predicted class is bounded through the difference of
            # the last layer's rows.
            hidden = network.bound_hidden(queries, bounds, rounding)
            leads = network.bound_margins(hidden, labels, bounds, rounding)
            certified = (leads.lower > 0).all(dim=-1)
    # Lemma 7 of docs/proofs/boxes.md: an overflow is no error, which would tell a private fact.
    if overflow.finite is None:
        return certified
    return certified & overflow.finite


def bound_binary_margins(
    network: Network, queries: Tensor, bounds: Intervals, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """Return bounds on the margin of two classes over the box of each k, ([K, n], [K, n]).

    The margin is the logit less the loss's threshold; its bounds are infinite where one overflows.

    Args:
        network: bounds its outputs over a box, widened for rounding.
        queries: [n, ...].
        bounds: of the parameters, for K values of k.
        rounding: the widening for these k.
    """
    with recording_overflow() as overflow:
        logits = network.bound_logits(queries, bounds, rounding)
    threshold = network.loss.threshold
    lower = logits.lower[..., 0] - threshold
    upper = logits.upper[..., 0] - threshold
    if overflow.finite is None:
        return lower, upper
    lower = torch.where(overflow.finite, lower, -torch.inf)
    upper = torch.where(overflow.finite, upper, torch.inf)
    return lower, upper


def _chunk_sizes(
    widths: int, compute: ComputeConfig, dtype: torch.dtype, ks: int, outputs: int
) -> tuple[int, int]:
    """Return (queries at once, ks at once) that fit into the working memory.

    Args:
        widths: numbers that a query's pass through the network has beside each k.
        compute: has the working memory.
        dtype: of the queries.
        ks: how many values of k there are.
        outputs: the number of logits; the margin of each pair of them is held as well.
    """
    pairs_of_outputs = outputs * (outputs - 1) // 2
    numbers = widths + pairs_of_outputs
    bytes_per_query_and_k = COPIES_OF_A_PASS * dtype.itemsize * numbers
    queries_and_ks = compute.memory_mb * 2**20 // bytes_per_query_and_k
    most_ks = queries_and_ks // MIN_QUERIES_BESIDE_SEVERAL_KS
    ks_at_once = max(1, min(ks, most_ks))
    most_queries = queries_and_ks // ks_at_once
    queries_at_once = max(1, min(MAX_QUERIES_AT_ONCE, most_queries))
    return queries_at_once, ks_at_once
