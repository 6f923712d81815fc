"""Stable distances of queries, and bounds on their margins, from the parameter boxes of a network.

A box for k holds the parameters of every training within k edits of the data. ``certify`` says for
which k all of these trainings give a query the same label. ``compute_envelope`` bounds the margin
itself, for votes of margins.
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
from agt.data.arrays import block_slices
from agt.distributed import group
from agt.errors import UnsoundError
from agt.kernels.select import pick_device, pick_kernel
from agt.settings import ComputeConfig, RelationName
from agt.training.loop import OnProgress, ignore_progress, row_reporter
from agt.training.setup import TrainingSetup

MAX_QUERIES_AT_ONCE = 4096
COPIES_OF_A_PASS = 12  # how many values are held for each number of a pass, an estimate
MIN_QUERIES_BESIDE_SEVERAL_KS = 256  # where fewer would fit, fewer ks are bounded at once


@dataclass(frozen=True, repr=False)
class Certificates:
    """The proved stability of each query's label, for the owner of the training data only.

    ``model.certify(x).certificates`` is one.

    One edit is what the neighbour relation counts, for example one record added or removed.

    Formal guarantees:
        - A query that is certified at k has the same label under every training within k edits of
          the training data (Lemma 1 of docs/proofs/boxes.md).
        - If the boxes nest and the grid is every integer from 0 to its end (dense), the stable
          distance changes by at most 1 where the data changes by one edit. On a grid with gaps only
          ``grid_steps`` does (Lemma 2 of docs/proofs/boxes.md).

    Attributes:
        ks: [K] the grid, increasing numbers of edits.
        relation: the neighbour relation, which says what one edit is.
        prediction: [n] int64, the labels that the model itself gives.
        certified: [K, n] bool, whether the label is the same under every training within k edits.
        edits_to_win: [C, n] int64, for each class a number of edits that it needs at least to
            become the answer; 0 for the predicted class. Votes use it. None: only the stable
            distance is known.
    """

    ks: tuple[int, ...]
    relation: RelationName
    prediction: np.ndarray
    certified: np.ndarray
    edits_to_win: np.ndarray | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        """Return the number of queries, the relation and the end of the grid."""
        queries = len(self.prediction)
        last_k = self.ks[-1]
        return (
            f"agt.Certificates of {queries} queries under relation={self.relation}, up to k = "
            f"{last_k}"
        )

    @property
    def stable_index(self) -> np.ndarray:
        """Return the number of grid values before the first one that is not certified, [n] int64.

        k = 0 counts if it is in the grid.
        """
        return _count_leading_true(self.certified)

    @property
    def grid_steps(self) -> np.ndarray:
        """Return the stable distance in steps of the grid, [n] int64.

        It is the number of grid values k >= 1 before the first one that is not certified.
        Mechanisms with the setting ``counting=index`` use this number, because it changes by at
        most 1 for one edit on every grid.
        """
        return count_grid_steps(self.ks, self.certified)

    @property
    def stable_distance(self) -> np.ndarray:
        """Return the number of edits that are proved to leave each label unchanged, [n] int64.

        It is the largest k up to which every value of the grid is certified, and 0 if not even the
        first value is.
        """
        # Element i is the distance if the first i values of the grid are certified.
        distance_of_index = np.array([0, *self.ks], dtype=np.int64)
        return distance_of_index[self.stable_index]

    @property
    def censored(self) -> np.ndarray:
        """Return whether each stable distance is cut off at the end of the grid, [n] bool.

        Such a label is certified at every k for which there are bounds, so the number of edits that
        it withstands is at least this distance, and may be larger.
        """
        return self.stable_index == len(self.ks)

    def table(self, labels: np.ndarray | None) -> list[dict[str, float]]:
        """Return one row for each k, with the certified fraction and bounds on the accuracy.

        Args:
            labels: [n] the true labels of the queries; None: the rows have no accuracies.

        Returns:
            For each k a dictionary with these keys, the last three only if labels are given:

            - "k": the number of edits.
            - "certified_fraction": the fraction of queries that are certified at k.
            - "nominal_accuracy": the accuracy of the model itself.
            - "worst_accuracy": the fraction that is certified and right. No training within k
              edits has a lower accuracy.
            - "best_accuracy": 1 less the fraction that is certified and wrong. No training within k
              edits has a higher accuracy.
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
    """Return the number of grid values k >= 1 before the first uncertified one, [n] int64.

    It is 0 where k = 0 is in the grid and not certified. On a dense grid it is the stable distance.

    Args:
        ks: [K] the grid, at least one number of edits, increasing, with or without 0.
        certified: [K, n] bool, whether each query is certified at each k.
    """
    starts_at_zero = ks[0] == 0  # the step k = 0 is then not counted
    return np.maximum(_count_leading_true(certified) - starts_at_zero, 0)


def _count_leading_true(flags: np.ndarray) -> np.ndarray:
    """Return the number of elements of each column before the first False, [n] int64.

    Args:
        flags: [K, n] bool, the flags to count, one column for each query.
    """
    # Accumulating "and" turns every element after the first False to False.
    return np.logical_and.accumulate(flags, axis=0).sum(axis=0).astype(np.int64)


def certify(
    head: nn.Sequential,
    setup: TrainingSetup,
    box: Box,
    features: np.ndarray,
    on_progress: OnProgress = ignore_progress,
) -> Certificates:
    """Return the label of each query, and for which numbers of edits k it is certified.

    It is certified at k if every training within k edits of the training data gives it. What one
    edit is (for example a record added or removed) depends on the setup's neighbour relation. The
    operations and their shapes depend on public numbers only, not on the boxes, the labels or
    the certificates (Lemma 6 of docs/proofs/boxes.md).

    Args:
        head: the trained layers. Only their structure is used, as the parameters are in ``box``.
        setup: the settings that the box was trained with (loss, precision, relation, device,
            working memory).
        box: the parameters of the training without edits (nominal), and bounds on the parameters of
            all trainings within k edits. Its grid may be a part of the setup's.
        features: [n, ...] the queries, scaled as the training data was.
        on_progress: called after every chunk of queries.

    Raises:
        ConfigError: a query has another shape than the model's input.
        UnsoundError: a box or a query is NaN or infinite.
    """
    boxed = _BoxedNetwork.from_box(head, setup, box, features)
    network = boxed.network

    def certify_chunk(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels [rows] of some queries, and which are certified at each k [K, rows]."""
        queries = boxed.load_queries(features[rows])
        labels = network.predict(queries, boxed.point)  # by the nominal parameters
        # Each part has the boxes of some values of k, in their order.
        certified_by_part = [
            certify_labels(network, queries, labels, bounds, rounding).cpu()
            for bounds, rounding in boxed.parts
        ]
        certified = torch.cat(certified_by_part)
        return labels.cpu().numpy(), certified.numpy()

    progress = row_reporter(on_progress, len(features), len(box.ks))
    with torch.no_grad():
        # Several processes, if there are, share the chunks of queries among them.
        chunks = group().map_blocks(len(features), boxed.queries_at_once, certify_chunk, progress)
        label_chunks, certified_chunks = zip(*chunks, strict=True)
    prediction = np.concatenate(label_chunks)
    certified = np.concatenate(certified_chunks, axis=1)
    return Certificates(box.ks, setup.relation.name, prediction, certified)


def compute_envelope(
    head: nn.Sequential, setup: TrainingSetup, box: Box, features: np.ndarray
) -> Envelope:
    """Return the margins of queries of two classes, with bounds over the box of each k >= 1.

    The margin is the logit less the loss's threshold; it is positive for the label 1. Bounds that
    overflow become infinite, which claims nothing (Lemma 3 of docs/proofs/boxes.md).

    Args:
        head: the trained layers. Only their structure is used, as the parameters are in ``box``.
        setup: the settings that the box was trained with (loss, precision, relation, device,
            working memory).
        box: the parameters of the training without edits (nominal), and bounds on the parameters of
            all trainings within k edits. Its grid may be a part of the setup's.
        features: [n, ...] the queries, scaled as the training data was.

    Raises:
        ConfigError: a query has another shape than the model's input.
        UnsoundError: a box or a query is NaN or infinite.
    """
    boxed = _BoxedNetwork.from_box(head, setup, box, features)
    network = boxed.network

    def bound_chunk(rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the margins [rows] of some queries, and their lower and upper bounds [K, rows]."""
        queries = boxed.load_queries(features[rows])
        nominal_parameters = network.convert_to_logit_difference(boxed.point)
        logits = network.logits(queries, nominal_parameters)  # [rows, 1]
        margin = logits[:, 0] - network.loss.threshold
        # A margin that is NaN becomes -infinite. ``Envelope`` refuses it beside finite bounds, and
        # accepts it beside infinite ones, which claim nothing.
        margin = margin.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        # Each part has the boxes of some values of k, in their order.
        bounds_by_part = [
            bound_binary_margins(network, queries, bounds, rounding)
            for bounds, rounding in boxed.parts
        ]
        lower_parts, upper_parts = zip(*bounds_by_part, strict=True)
        lower = torch.cat(lower_parts)
        upper = torch.cat(upper_parts)
        return _as_float64(margin), _as_float64(lower), _as_float64(upper)

    with torch.no_grad():
        # Several processes, if there are, share the chunks of queries among them.
        chunks = group().map_blocks(len(features), boxed.queries_at_once, bound_chunk)
        margin_chunks, lower_chunks, upper_chunks = zip(*chunks, strict=True)
    margin = np.concatenate(margin_chunks)
    lower = np.concatenate(lower_chunks, axis=1)
    upper = np.concatenate(upper_chunks, axis=1)
    first = 1 if box.ks[0] == 0 else 0  # an envelope begins at k = 1
    return Envelope(box.ks[first:], margin, lower[first:], upper[first:])


def _as_float64(values: Tensor) -> np.ndarray:
    """Return a tensor's values as a NumPy array of float64 on the CPU."""
    return values.cpu().double().numpy()


@dataclass(frozen=True)
class _BoxedNetwork:
    """A network with its parameter boxes, divided into parts that fit into the working memory.

    Attributes:
        network: the network, which bounds its outputs over a box.
        point: the nominal parameters (those of the training without edits).
        parts: pairs of (bounds on the parameters for some of the ks, the widening for rounding at
            these ks), in the order of the ks.
        queries_at_once: the number of queries that fit into the working memory together with one
            part.
        dtype: the name of the queries' dtype in PyTorch, for example "float64".
        device: the device on which queries are computed.
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
        """Return the network of a head, with its boxes divided into parts that fit into the memory.

        Args:
            head: the trained layers; only their structure is used.
            setup: the settings that the box was trained with (loss, precision, device, working
                memory).
            box: the nominal parameters (those of the training without edits), and for each k bounds
                on the parameters of all trainings within k edits.
            features: [n, ...] the queries; only their shape is used.

        Raises:
            ConfigError: a query has another shape than the model's input.
        """
        training = setup.training
        compute = setup.compute
        # The functions that multiply intervals, in the implementation of this device's kernel.
        products = pick_kernel(compute).products(training.product)
        network = Network.from_head(head, training.loss, setup.classes, products)
        query_shape = features.shape[1:]
        network.check_record_shape(query_shape, box.nominal, "inputs: a query")
        device = pick_device(compute)
        dtype = getattr(torch, training.dtype)
        box = box.to(device, dtype)
        rounding = Rounding.for_grid(box.ks, dtype, device)
        numbers_per_query = network.numbers_per_record(query_shape, box.nominal)
        queries_at_once, ks_at_once = _chunk_sizes(
            numbers_per_query, compute, dtype, len(box.ks), network.outputs
        )
        parts = []
        for chunk in block_slices(len(box.ks), ks_at_once):
            parts.append((select_ks(box.bounds, chunk), rounding[chunk]))
        return cls(network, box.nominal, tuple(parts), queries_at_once, training.dtype, device)

    def load_queries(self, features: np.ndarray) -> Tensor:
        """Return queries as a tensor in the model's precision, on the model's device.

        Args:
            features: [n, ...], which may be read-only, so they are copied.

        Raises:
            UnsoundError: a feature is NaN or infinite in that precision.
        """
        copied = np.array(features, order="C")
        queries = torch.from_numpy(copied).to(self.device, getattr(torch, self.dtype))
        return check_queries(queries, self.dtype)


def check_queries(queries: Tensor, dtype: str) -> Tensor:
    """Return the queries; raise UnsoundError unless every feature is finite.

    Args:
        queries: [n, ...] in the model's precision.
        dtype: the name of that precision, for the error's text.

    Raises:
        UnsoundError: a feature is NaN or infinite.
        ConfigError: PyTorch is set to compute in a lower precision (``check_precision``).
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
    """Return whether each label is the same over the whole box of each k, [K, n] bool.

    The label is certified if the bounds on its margin lie strictly on its side of the threshold. It
    is not certified where a bound overflows.

    Args:
        network: bounds its outputs over a box, widened for rounding.
        queries: [n, ...] finite, in the model's precision.
        labels: [n] int64, the labels that the nominal parameters give.
        bounds: parameter name -> bounds [K, *shape], for K values of k.
        rounding: the amounts by which to widen the bounds on outputs at each of these k.
    """
    with recording_overflow() as overflow:
        if network.outputs == 1:
            # One logit, or the difference of two. The label is 1 where logit > threshold. So
            #     1 is certified if lower > threshold, and 0 if upper < threshold.
            logits = network.bound_logits(queries, bounds, rounding)  # [K, n, 1]
            threshold = network.loss.threshold
            is_above = logits.lower[..., 0] > threshold
            is_below = logits.upper[..., 0] < threshold
            certified = torch.where(labels == 1, is_above, is_below)
        else:
            # The label is certified if logit[label] - logit[c] > 0 for every other class c. The
            # bounds of such a difference use the difference of the last layer's rows, which is
            # tighter than the difference of the two logits' bounds.
            hidden = network.bound_hidden(queries, bounds, rounding)
            leads = network.bound_margins(hidden, labels, bounds, rounding)
            certified = (leads.lower > 0).all(dim=-1)
    # An overflow depends on private records, so an error would reveal a fact about them. The query
    # is not certified instead (Lemma 7 of docs/proofs/boxes.md).
    if overflow.finite is None:  # no interval was recorded
        return certified
    return certified & overflow.finite


def bound_binary_margins(
    network: Network, queries: Tensor, bounds: Intervals, rounding: Rounding
) -> tuple[Tensor, Tensor]:
    """Return lower and upper bounds on the margin of two classes over the box of each k.

    The margin is the logit less the loss's threshold. Both bounds are infinite where one overflows.

    Args:
        network: bounds its outputs over a box, widened for rounding.
        queries: [n, ...] finite, in the model's precision.
        bounds: parameter name -> bounds [K, *shape], for K values of k.
        rounding: the amounts by which to widen the bounds on outputs at each of these k.

    Returns:
        (lower bounds, upper bounds), each [K, n].
    """
    with recording_overflow() as overflow:
        logits = network.bound_logits(queries, bounds, rounding)
    threshold = network.loss.threshold
    lower = logits.lower[..., 0] - threshold
    upper = logits.upper[..., 0] - threshold
    if overflow.finite is None:  # no interval was recorded
        return lower, upper
    lower = torch.where(overflow.finite, lower, -torch.inf)
    upper = torch.where(overflow.finite, upper, torch.inf)
    return lower, upper


def _chunk_sizes(
    numbers_per_query: int, compute: ComputeConfig, dtype: torch.dtype, ks: int, outputs: int
) -> tuple[int, int]:
    """Return (queries at once, ks at once), both at least 1, that fit into the working memory.

    Only public numbers enter, so the sizes reveal nothing about the training records.

    Args:
        numbers_per_query: the number of values that a query's pass through the network has for each
            k.
        compute: has ``memory_mb``, the working memory in MiB.
        dtype: the dtype of the queries.
        ks: the number of values of k.
        outputs: the number of logits. The margin of each pair of logits is held as well.
    """
    pairs_of_outputs = outputs * (outputs - 1) // 2
    bytes_per_number = COPIES_OF_A_PASS * dtype.itemsize
    bytes_per_query_and_k = bytes_per_number * (numbers_per_query + pairs_of_outputs)
    # How many pairs of a query and a k fit into the memory. Queries have precedence: there are
    # several ks at once only if enough queries fit beside them.
    queries_times_ks = compute.memory_bytes // bytes_per_query_and_k
    max_ks = queries_times_ks // MIN_QUERIES_BESIDE_SEVERAL_KS
    ks_at_once = max(1, min(ks, max_ks))
    most_queries = queries_times_ks // ks_at_once
    queries_at_once = max(1, min(MAX_QUERIES_AT_ONCE, most_queries))
    return queries_at_once, ks_at_once
