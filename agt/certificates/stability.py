"""Stable distances of a linear head in closed form, for every k at once.

A query's stable distance is ceil(margin / what one k can move the margin) - 1. The module also has
the certificates of this kind, and the envelopes that votes of margins need.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.envelopes import Envelope
from agt.errors import UnsoundError
from agt.numeric import UNIT, labels_of, logits_of, margins_of, signed_margins
from agt.settings import RelationName
from agt.training.linear import LinearTrained
from agt.training.sensitivity import margin_rounding

MAX_STABLE_DISTANCE = 2**31
"""Stable distances are capped here, a public constant, which keeps them 1-Lipschitz.

Sums of those of 10,000 members are far from the end of int64 (Lemma 6 of docs/proofs/votes.md), and
no mechanism tells distances of 2^16 and more apart.
"""


class LazyFlags:
    """``Certificates.certified`` of known distances, whose rows are made when they are read.

    A query is certified at k >= 1 exactly if its distance is at least k, so K flags for each query
    need not be stored. NumPy converts it to a [K, n] array of bool where one is needed.

    Args:
        ks: [K] the grid of k.
        certified_at_zero: [n] bool, whether each query is certified at k = 0.
        distance: [n] int64, the stable distances.
    """

    def __init__(
        self, ks: tuple[int, ...], certified_at_zero: np.ndarray, distance: np.ndarray
    ) -> None:
        self.ks = ks
        self.certified_at_zero = certified_at_zero
        self.distance = distance
        self.shape = (len(ks), len(distance))

    def __len__(self) -> int:
        """Return K."""
        return len(self.ks)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return the flags [n] at the k of an integer index; else index the whole array."""
        if not isinstance(index, int):
            return np.asarray(self)[index]
        k = self.ks[index]
        return self.distance >= k if k else self.certified_at_zero

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all flags as an array [K, n], which NumPy calls."""
        flags = np.stack([self[index] for index in range(len(self))])
        return flags.astype(dtype or bool, copy=False)


@dataclass(frozen=True, repr=False)
class ClosedFormCertificates(Certificates):
    """Certificates that are known for every k; the grid is only what tables and curves show.

    Attributes:
        distance: [n] int64, the stable distances, not capped by the grid.
    """

    distance: np.ndarray

    @classmethod
    def concatenate(
        cls, chunks: Iterable["ClosedFormCertificates"], rows: int
    ) -> "ClosedFormCertificates":
        """Join the certificates of successive queries of one head.

        Each chunk is copied as it comes, so that all of them are never held at once.

        Args:
            chunks: at least one, in the order of the queries.
            rows: how many queries all chunks have together.
        """
        prediction = np.empty(rows, np.int64)
        certified_at_zero = np.empty(rows, bool)
        distance = np.empty(rows, np.int64)
        prices: list[np.ndarray] = []
        start = 0
        for chunk in chunks:
            end = start + len(chunk.distance)
            prediction[start:end] = chunk.prediction
            distance[start:end] = chunk.distance
            certified_at_zero[start:end] = cast(LazyFlags, chunk.certified).certified_at_zero
            if chunk.prices is not None:
                prices.append(chunk.prices)
            start = end
        all_prices = np.concatenate(prices, axis=1) if prices else None
        return cls.from_distances(
            chunk.ks, chunk.relation, prediction, certified_at_zero, distance, all_prices
        )

    @classmethod
    def from_distances(
        cls,
        ks: tuple[int, ...],
        relation: RelationName,
        prediction: np.ndarray,
        certified_at_zero: np.ndarray,
        distance: np.ndarray,
        prices: np.ndarray | None = None,
    ) -> "ClosedFormCertificates":
        """Return the certificates of one head's queries with these stable distances.

        Args:
            ks: [K] the values of k to tabulate.
            relation: the neighbour relation that k counts.
            prediction: [n] int64, the labels of the head itself.
            certified_at_zero: [n] bool, whether each query is certified at k = 0.
            distance: [n] int64, the stable distances.
            prices: [C, n] int64, what each class costs in a vote; None: not known.
        """
        certified = cast(np.ndarray, LazyFlags(ks, certified_at_zero, distance))
        return cls(ks, relation, prediction, certified, distance, prices=prices)

    @property
    def stable_distance(self) -> np.ndarray:
        """Return the stable distances, [n] int64, whatever the grid is."""
        return self.distance


def certify_linear(
    trained: LinearTrained,
    phi: np.ndarray,
    relation: RelationName,
    ks: tuple[int, ...],
    *,
    with_prices: bool = False,
) -> ClosedFormCertificates:
    """Return the stable distances of queries under a linear head.

    Args:
        trained: the head, with the bound on how far one k moves its parameters.
        phi: [n, w] the queries' public features, of norm at most 1.
        relation: the neighbour relation that the bound is about.
        ks: [K] the values of k to tabulate.
        with_prices: also return what each class costs in a vote, for more than two classes.

    Raises:
        UnsoundError: a logit is NaN or infinite.

    Formal guarantees:
        - Every training within k >= 1 edits gives a query the same label if k is at most its
          distance (Lemma 2 of docs/proofs/linear_distances.md).
        - Distances change by at most 1 between neighbours, and are 0 on both sides where labels
          differ (Lemma 3 of docs/proofs/linear_distances.md). A tie has distance 0.
    """
    logits = _finite_logits(trained, phi)
    prediction = labels_of(logits)
    margin = margins_of(logits)
    move_of_one_k, move_at_zero = _bound_margin_moves(trained, phi)
    moves_to_threshold = np.ceil(margin / move_of_one_k)
    distance = np.maximum(moves_to_threshold - 1, 0)
    distance = np.minimum(distance, MAX_STABLE_DISTANCE).astype(np.int64)
    certified_at_zero = margin > move_at_zero
    prices = _class_prices(logits, prediction, move_of_one_k) if with_prices else None
    return ClosedFormCertificates.from_distances(
        ks, relation, prediction, certified_at_zero, distance, prices
    )


def _class_prices(
    logits: np.ndarray, prediction: np.ndarray, move_of_one_k: np.ndarray
) -> np.ndarray:
    """Return how many edits each class needs at least to be answered, [C, n] int64.

    The predicted class costs 0, every other at least 1 (Lemma 4 of
    docs/proofs/linear_distances.md).

    Args:
        logits: [n, C] float64.
        prediction: [n] int64, the class of the greatest logit.
        move_of_one_k: [n] by how much neighbours' margins differ at most.
    """
    lead_of_greatest = logits.max(axis=1) - logits.T
    moves = np.ceil(lead_of_greatest / move_of_one_k)
    prices: np.ndarray = np.clip(moves, 1, MAX_STABLE_DISTANCE + 1).astype(np.int64)
    queries = np.arange(len(prediction))
    prices[prediction, queries] = 0
    return prices


def compute_linear_envelope(
    trained: LinearTrained, phi: np.ndarray, ks: tuple[int, ...]
) -> Envelope:
    """Compute the margins of queries of two classes with their bounds at each k.

    Args:
        trained: the head, with the bound on how far one k moves its parameters.
        phi: [n, w] the queries' public features, of norm at most 1.
        ks: [K] values of k >= 1, increasing.

    Raises:
        UnsoundError: a logit is NaN or infinite.
    """
    margin = signed_margins(_finite_logits(trained, phi))[0]
    move_of_one_k, _ = _bound_margin_moves(trained, phi)
    # The bounds at k are those at k - 1, moved once more and rounded: only so do they nest (Lemma 5
    # of docs/proofs/linear_distances.md). Row k of the running sums belongs to k.
    last_k = max(ks, default=0)
    repeated_moves = np.broadcast_to(move_of_one_k, (last_k, len(move_of_one_k)))
    margin_and_moves = np.vstack([margin, repeated_moves])
    lower = np.subtract.accumulate(margin_and_moves, axis=0)
    upper = np.add.accumulate(margin_and_moves, axis=0)
    rows = list(ks)
    return Envelope(ks, margin, lower[rows], upper[rows])


def _finite_logits(trained: LinearTrained, phi: np.ndarray) -> np.ndarray:
    """Return the logits [n, J] of public features [n, w]; raise UnsoundError if one overflows."""
    logits = logits_of(trained.weight, phi)
    if not bool(np.isfinite(logits).all()):
        raise UnsoundError(
            "the logit of a query is NaN or infinite: the features of this query, or the "
            "weights, are too large"
        )
    return logits


def _bound_margin_moves(trained: LinearTrained, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much the computed margins of two trainings differ at most.

    Args:
        trained: the head, with the bound on how far one k moves its parameters.
        phi: [n, w] the queries' public features.

    Returns:
        ([n] for neighbours, [n] for two trainings on the same records), both from public numbers
        and the query alone (Lemma 1 of docs/proofs/linear_distances.md).
    """
    loss = trained.loss
    sensitivity = trained.sensitivity
    norms = bound_norms(phi)
    error = margin_rounding(loss, phi.shape[1], sensitivity.radius, norms)

    round_up = 1 + 8 * UNIT  # exceeds the roundings of the few operations that it is applied to

    def bound_move(parameters_move: float) -> np.ndarray:
        """Return by how much margins move where the parameters move by ``parameters_move``."""
        exact_move = loss.margin_factor * parameters_move * norms * round_up
        return (exact_move + 2 * error) * round_up

    between_neighbours = bound_move(sensitivity.per_k)
    on_same_records = bound_move(sensitivity.rounding)
    return between_neighbours, on_same_records


def bound_norms(phi: np.ndarray) -> np.ndarray:
    """Return upper bounds on the l2 norms of features, [n], also where their squares underflow.

    Args:
        phi: [n, w] of any real dtype.
    """
    features = phi.astype(np.float64, copy=False)
    width = phi.shape[1]
    squared_norms = np.einsum("nd,nd->n", features, features)
    underflow_allowance = width * np.finfo(np.float64).tiny  # more than all squares can lose
    rounding_allowance = 1 + 2 * (width + 4) * UNIT
    return np.sqrt(squared_norms + underflow_allowance) * rounding_allowance
