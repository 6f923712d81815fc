"""Stable distances of a linear head in closed form, for every number of edits k at once.

The stable distance of a query is ceil(margin / w) - 1, where w bounds how far one edit of the data
moves the margin. The module also has the certificates of this kind, and the envelopes (bounds on
the margin for each k) that votes of margins need.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.envelopes import Envelope
from agt.data.coded import CodedFeatures
from agt.errors import UnsoundError
from agt.numeric import UNIT, labels_of, logits_of, margins_of, signed_margins
from agt.settings import RelationName
from agt.training.linear import LinearTrained
from agt.training.sensitivity import margin_rounding

MAX_STABLE_DISTANCE = 2**31
"""The largest stable distance; larger ones are replaced by it.

A cap that depends on no data keeps distances 1-Lipschitz: one edit changes them by at most 1. The
sum of those of 10,000 members is far below the largest int64 (Lemma 6 of docs/proofs/votes.md).
All mechanisms treat distances of 2^16 and more as equal.
"""


class LazyFlags:
    """The flags [K, n] of ``Certificates.certified``, computed from stable distances when read.

    A query is certified at k >= 1 exactly if its stable distance is at least k, so K flags for each
    query need not be stored. NumPy converts this object to an array of bool where one is needed.

    Attributes:
        ks: [K] the grid, numbers of edits.
        certified_at_zero: [n] bool, whether each query is certified at k = 0.
        distance: [n] int64, the stable distances.
        shape: (K, n), the shape of the array.
    """

    def __init__(
        self, ks: tuple[int, ...], certified_at_zero: np.ndarray, distance: np.ndarray
    ) -> None:
        """Store the three arguments, which the class describes."""
        self.ks = ks
        self.certified_at_zero = certified_at_zero
        self.distance = distance
        self.shape = (len(ks), len(distance))

    def __len__(self) -> int:
        """Return K, the number of values of k."""
        return len(self.ks)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Return some of the flags [K, n].

        Args:
            index: an integer: the position of one k in the grid, for its flags [n]. Any other index
                of a NumPy array [K, n] works, too, but the whole array is computed for it.
        """
        if not isinstance(index, int):
            return np.asarray(self)[index]
        k = self.ks[index]
        if k == 0:  # the distance does not show whether rounding can change a label
            return self.certified_at_zero
        return self.distance >= k

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all flags as an array [K, n]; NumPy calls this method.

        Args:
            dtype: the dtype of the array; None for bool.
            copy: not used, as the array is always new.
        """
        flags = np.stack([self[index] for index in range(len(self))])
        if dtype is None:
            dtype = bool
        return flags.astype(dtype, copy=False)


@dataclass(frozen=True, repr=False)
class ClosedFormCertificates(Certificates):
    """Certificates whose stable distance is known for every k, not only for those of a grid.

    The grid ``ks`` and the flags ``certified`` are what tables and curves show.

    Attributes:
        distance: [n] int64, the stable distances: the numbers of edits of the data that are proved
            to leave each label unchanged. They may exceed the end of the grid.
        logits: [n, J] float64, from which the labels follow, stored so that they are not computed
            again; None: the labels are not those of one linear head.
    """

    distance: np.ndarray
    logits: np.ndarray | None = field(default=None, kw_only=True)

    @property
    def censored(self) -> np.ndarray:
        """Return [n] False: no stable distance is cut off at the end of a grid."""
        return np.zeros(len(self.distance), dtype=bool)

    @classmethod
    def concatenate(cls, chunks: Sequence["ClosedFormCertificates"]) -> "ClosedFormCertificates":
        """Return the certificates of all queries of one head, from those of successive chunks.

        Args:
            chunks: the certificates of each chunk, at least one, in the order of the queries, all
                of one head and one grid. Either all have ``edits_to_win`` or none has, and the same
                holds for ``logits``.
        """
        flags = [cast(LazyFlags, chunk.certified) for chunk in chunks]
        edits_to_win = None
        edits_of_chunks = [chunk.edits_to_win for chunk in chunks if chunk.edits_to_win is not None]
        if edits_of_chunks:
            edits_to_win = np.concatenate(edits_of_chunks, axis=1)
        logits = None
        logits_of_chunks = [chunk.logits for chunk in chunks if chunk.logits is not None]
        if logits_of_chunks:
            logits = np.concatenate(logits_of_chunks)
        return cls.from_distances(
            chunks[0].ks,
            chunks[0].relation,
            prediction=np.concatenate([chunk.prediction for chunk in chunks]),
            certified_at_zero=np.concatenate([flag.certified_at_zero for flag in flags]),
            distance=np.concatenate([chunk.distance for chunk in chunks]),
            edits_to_win=edits_to_win,
            logits=logits,
        )

    @classmethod
    def from_distances(
        cls,
        ks: tuple[int, ...],
        relation: RelationName,
        prediction: np.ndarray,
        certified_at_zero: np.ndarray,
        distance: np.ndarray,
        edits_to_win: np.ndarray | None = None,
        logits: np.ndarray | None = None,
    ) -> "ClosedFormCertificates":
        """Return the certificates of one head's queries with these stable distances.

        Args:
            ks: [K] the numbers of edits that tables show.
            relation: the neighbour relation, which says what one edit is.
            prediction: [n] int64, the labels that the head itself gives.
            certified_at_zero: [n] bool, whether each query has the same label under every training
                on the same records (k = 0), although rounding may differ.
            distance: [n] int64, the stable distances.
            edits_to_win: [C, n] int64, for each class a number of edits that it needs at least to
                become the answer; None: not known.
            logits: [n, J] float64, what the labels follow from; None: not known.
        """
        # NumPy uses an object with ``__array__`` as an array: here of bool [K, n].
        certified = cast(np.ndarray, LazyFlags(ks, certified_at_zero, distance))
        return cls(
            ks, relation, prediction, certified, distance, edits_to_win=edits_to_win, logits=logits
        )

    @property
    def stable_distance(self) -> np.ndarray:
        """Return the stable distances, [n] int64, which do not depend on the grid."""
        return self.distance


def certify_linear(
    trained: LinearTrained,
    features: np.ndarray,
    relation: RelationName,
    ks: tuple[int, ...],
    *,
    with_edits_to_win: bool = False,
    with_logits: bool = False,
) -> ClosedFormCertificates:
    """Return the stable distances of queries under a linear head.

    Args:
        trained: the head, with a bound on how far one edit of the data moves its parameters.
        features: [n, w] the queries' public features, in l2 norm at most 1.
        relation: the neighbour relation, which says what one edit is; the bound holds for it.
        ks: [K] the numbers of edits that tables show.
        with_edits_to_win: also return, for each class, the number of edits that it needs at least
            to become the answer. An ensemble of more than two classes uses it.
        with_logits: also return the logits.

    Raises:
        UnsoundError: a logit is NaN or infinite.

    Formal guarantees:
        - A query has the same label under every training within k edits, for each k from 1 to its
          stable distance (Lemma 2 of docs/proofs/linear_distances.md).
        - One edit changes a distance by at most 1. Where it changes the label, the distance is 0
          before and after (Lemma 3 of docs/proofs/linear_distances.md). A tie has distance 0.
    """
    logits = _finite_logits(trained, features)
    prediction = labels_of(logits)
    margin = margins_of(logits)
    move_of_one_edit, move_at_zero = _bound_margin_moves(trained, features)
    # k edits move the margin by at most k * move_of_one_edit. So the label is the same as long as
    #     k * move_of_one_edit < margin,
    # and the largest such k is ceil(margin / move_of_one_edit) - 1.
    moves_to_threshold = np.ceil(margin / move_of_one_edit)
    distance = np.maximum(moves_to_threshold - 1, 0)
    distance = np.minimum(distance, MAX_STABLE_DISTANCE).astype(np.int64)
    # Two trainings on the same records differ by rounding.
    certified_at_zero = margin > move_at_zero
    edits_to_win = None
    if with_edits_to_win:
        edits_to_win = _count_edits_to_win(logits, prediction, move_of_one_edit)
    stored_logits = logits if with_logits else None
    return ClosedFormCertificates.from_distances(
        ks,
        relation,
        prediction,
        certified_at_zero,
        distance,
        edits_to_win=edits_to_win,
        logits=stored_logits,
    )


def labels_from_codes(trained: LinearTrained, features: CodedFeatures) -> np.ndarray | None:
    """Return the labels of queries that are held as codes, without looking up their features.

    Args:
        trained: the head.
        features: [n, w] the queries' public features.

    Returns:
        [n] int64, each the label that ``certify_linear`` gives, too (Lemma 6 of
        docs/proofs/linear_distances.md); None: a margin is so small that rounding may decide a
        label.
    """
    logits = features.dot(np.asarray(trained.weight))
    radius = float(bound_norms(np.asarray(trained.weight)).max())
    norm = bound_norms(features.longest())
    (error,) = margin_rounding(trained.loss, features.shape[1], radius, norm)
    # Above 4 times the bound on the rounding of a margin, the label is that of ``certify_linear``
    # (Lemma 6). The comparison is also false if a margin is NaN.
    is_certain = margins_of(logits) > 4 * error
    return labels_of(logits) if is_certain.all() else None


def _count_edits_to_win(
    logits: np.ndarray, prediction: np.ndarray, move_of_one_edit: np.ndarray
) -> np.ndarray:
    """Return the least number of edits that can make each class the answer, [C, n] int64.

    A class needs k edits for the greatest logit's lead over it to vanish:
        k * move_of_one_edit >= max(logits) - logits[class].
    The predicted class needs 0, every other class at least 1 (Lemma 4 of
    docs/proofs/linear_distances.md). Counts above the largest stable distance are capped at
    ``MAX_STABLE_DISTANCE + 1``.

    Args:
        logits: [n, C] float64, the logits of the queries.
        prediction: [n] int64, the class of the greatest logit.
        move_of_one_edit: [n], how far one edit moves the difference of two logits at most; > 0.
    """
    lead_of_greatest = logits.max(axis=1) - logits.T
    edits = np.ceil(lead_of_greatest / move_of_one_edit)
    edits_to_win: np.ndarray = np.clip(edits, 1, MAX_STABLE_DISTANCE + 1).astype(np.int64)
    queries = np.arange(len(prediction))
    edits_to_win[prediction, queries] = 0
    return edits_to_win


def compute_linear_envelope(
    trained: LinearTrained, features: np.ndarray, ks: tuple[int, ...]
) -> Envelope:
    """Return the margins of queries of two classes, with bounds on the margin after k edits.

    The margin is positive for the label 1.

    Args:
        trained: the head, with a bound on how far one edit of the data moves its parameters.
        features: [n, w] the queries' public features, in l2 norm at most 1.
        ks: [K] numbers of edits, at least 1 and increasing.

    Raises:
        UnsoundError: a logit is NaN or infinite.
    """
    margin = signed_margins(_finite_logits(trained, features))[0]
    move_of_one_edit, _ = _bound_margin_moves(trained, features)
    # lower[0] = margin and lower[k] = lower[k - 1] - move, rounded at every step. Only so do the
    # bounds at k of one dataset contain those at k - 1 of its neighbours, bit for bit. The product
    # k * move would not, by Lemma 5 of docs/proofs/linear_distances.md.
    last_k = max(ks, default=0)
    repeated_moves = np.broadcast_to(move_of_one_edit, (last_k, len(move_of_one_edit)))
    margin_and_moves = np.vstack([margin, repeated_moves])
    lower = np.subtract.accumulate(margin_and_moves, axis=0)
    upper = np.add.accumulate(margin_and_moves, axis=0)
    rows = list(ks)  # row k of the running sums belongs to k
    return Envelope(ks, margin, lower[rows], upper[rows])


def _finite_logits(trained: LinearTrained, features: np.ndarray) -> np.ndarray:
    """Return the logits [n, J] of features; raise UnsoundError unless all of them are finite.

    Args:
        trained: the head. J is its number of logits, 1 for two classes with one logit.
        features: [n, w] the queries' public features.
    """
    logits = logits_of(trained.weight, features)
    if not bool(np.isfinite(logits).all()):
        raise UnsoundError(
            "the logit of a query is NaN or infinite, because the features of this query, or "
            "the weights, are too large: scale the features by public constants"
        )
    return logits


def _bound_margin_moves(
    trained: LinearTrained, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest difference between a query's computed margins under two trainings.

    A margin is a logit, or the difference of two. The bounds depend on public numbers and the query
    only (Lemma 1 of docs/proofs/linear_distances.md).

    Args:
        trained: the head, with a bound on how far one edit of the data moves its parameters.
        features: [n, w] the queries' public features.

    Returns:
        ([n] for trainings on datasets one edit apart; [n] for two trainings on the same records,
        which differ by rounding).
    """
    loss = trained.loss
    sensitivity = trained.sensitivity
    norms = bound_norms(features)
    error = margin_rounding(loss, features.shape[1], sensitivity.radius, norms)

    round_up = 1 + 8 * UNIT  # exceeds the roundings of the few operations that it is applied to

    def bound_move(parameters_move: float) -> np.ndarray:
        """Return the largest move of each margin, [n], if the parameters move by this l2 norm.

        |margin - margin'| <= margin_factor * |theta - theta'| * |features| + 2 * error, since each
        of the two computed margins errs by at most ``error``.
        """
        exact_move = loss.margin_factor * parameters_move * norms * round_up
        return (exact_move + 2 * error) * round_up

    # The parameters of two trainings differ by at most ``per_k`` after one edit, and by at most
    # ``rounding`` on the same records, in l2 norm.
    between_neighbours = bound_move(sensitivity.per_k)
    on_same_records = bound_move(sensitivity.rounding)
    return between_neighbours, on_same_records


def bound_norms(features: np.ndarray) -> np.ndarray:
    """Return upper bounds on the l2 norms of features, [n] float64.

    They hold although squares round, and although small squares underflow to 0.

    Args:
        features: [n, w] finite numbers of any real dtype.
    """
    values = features.astype(np.float64, copy=False)
    width = features.shape[1]
    squared_norms = np.einsum("nd,nd->n", values, values)
    # Each of the squares loses less than the smallest normal number if it underflows.
    underflow_allowance = width * np.finfo(np.float64).tiny
    # More than the relative errors of the products, the additions and the square root, each of
    # which is at most UNIT.
    rounding_allowance = 1 + 2 * (width + 4) * UNIT
    return np.sqrt(squared_norms + underflow_allowance) * rounding_allowance
