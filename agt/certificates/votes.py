"""Votes of labels: the class that most members of an ensemble answer, with its stable distance.

Members are trained on disjoint shards (parts of the training records), so one record is in one
shard. ``certified_vote`` uses how many edits of its shard each member's label survives.
``plain_vote`` needs no certificates: it counts every member as changed by one edit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agt.certificates.stability import MAX_STABLE_DISTANCE
from agt.certificates.vote_costs import cost_to_change_winner, count_votes
from agt.data.arrays import block_slices
from agt.errors import ConfigError

LABELS_AT_ONCE = 2**22  # members times queries of one chunk, which bounds the memory


@dataclass(frozen=True)
class Vote:
    """The winners of an ensemble's vote on queries, with their stable distances.

    Attributes:
        prediction: [n] int64, the winning class of each query. In a vote of labels it is the class
            with most votes, and the smaller one on ties.
        distance: [n] int64, the stable distance: the number of edits of the training data that are
            proved to leave the winner unchanged. One edit changes it by at most 1, but for the
            published vote (``mechanisms.published.published_vote``), of which no privacy is proved.
    """

    prediction: np.ndarray
    distance: np.ndarray

    @classmethod
    def concatenate(cls, chunks: Sequence["Vote"]) -> "Vote":
        """Return the votes on all queries, from those on successive chunks (at least one)."""
        prediction = np.concatenate([chunk.prediction for chunk in chunks])
        distance = np.concatenate([chunk.distance for chunk in chunks])
        return cls(prediction, distance)


def certified_vote(
    labels: np.ndarray,
    distances: np.ndarray,
    classes: int = 2,
    *,
    touches: int,
    edits_to_win: np.ndarray | None = None,
) -> Vote:
    """Return the plurality vote of members, with its stable distance.

    One edit is what the neighbour relation counts, for example one record added or removed. An
    adversary who wants another winner must make members change their labels. The cheapest way
    takes F edits of shards in all, so the stable distance is ceil(F / touches) - 1.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers >= 0, the number of edits of its shard that each member's label
            survives.
        classes: C, the number of classes.
        touches: the number of members that one edit can change
            (``Relation.members_changed_per_edit``): 1 if it adds or removes a record, 2 if it may
            take a record from one shard and put one into another.
        edits_to_win: [C, T, n] integers, for each class how many edits of its shard each member
            needs at least to answer it. It is 0 for the member's own label. For every other class
            it is at least ``distances + 1``, and equal to that for at least one. None: it is
            ``distances + 1`` for every other class.

    Raises:
        ConfigError: shapes or values do not fit.

    Formal guarantees:
        - No ``distance`` edits of the training data change the winner (Lemma 2 of
          docs/proofs/votes.md).
        - One edit changes a distance by at most 1. Where it changes the winner, the distance is 0
          before and after (Lemma 3 of docs/proofs/votes.md).
        - The second guarantee also holds if the input counts steps of a grid (Lemma 4 of
          docs/proofs/votes.md). Both hold if ``edits_to_win`` counts a replacement as two edits
          (Lemma 5 of docs/proofs/votes.md).
    """
    check_touches(touches)
    labels, distances = check_members(labels, distances, classes)
    if edits_to_win is not None:
        is_integer = edits_to_win.dtype.kind in "iu"  # signed or unsigned
        if not is_integer or edits_to_win.shape != (classes, *labels.shape):
            raise ConfigError(
                "ensemble: edits_to_win must be integers of shape [classes, members, queries], but "
                f"has the shape {edits_to_win.shape}"
            )
    members, queries = labels.shape
    queries_at_once = max(1, LABELS_AT_ONCE // members)
    chunks = []
    for chunk in block_slices(max(queries, 1), queries_at_once):
        chunk_edits_to_win = None
        if edits_to_win is not None:
            chunk_edits_to_win = edits_to_win[:, :, chunk]
        # Lemma 1 of docs/proofs/votes.md: one edit more than a member's label survives may change
        # it to any other class.
        costs = distances[:, chunk] + 1
        chunk_labels = labels[:, chunk]
        winner, cost = cost_to_change_winner(chunk_labels, costs, classes, chunk_edits_to_win)
        chunks.append(_vote_of_cost(winner, cost, touches))
    return Vote.concatenate(chunks)


def plain_vote(counts: np.ndarray, *, touches: int) -> Vote:
    """Return the plurality vote of members that have no certificates, with its stable distance.

    Any edit of a member's shard is taken to change the member's label to any class. Under this
    assumption the result is that of ``certified_vote`` (Lemma 9 of docs/proofs/votes.md).

    Args:
        counts: [C, n] int64, the votes for each class; at least one vote for each query.
        touches: the number of members that one edit can change
            (``Relation.members_changed_per_edit``): 1 if it adds or removes a record, 2 if it may
            take a record from one shard and put one into another.
    """
    classes = np.arange(len(counts))[:, None]
    winner = counts.argmax(axis=0)
    # A rival wins once it has as many votes as the winner. A tie goes to the smaller class, so a
    # rival with a larger index needs one vote more.
    winner_wins_tie = winner < classes
    gaps = counts.max(axis=0) - counts + winner_wins_tie
    # The winner is not compared with itself. (1 is added below, so the value is not the largest
    # int64.)
    gaps[winner == classes] = np.iinfo(np.int64).max - 1
    # A member that changes its vote from the winner to the rival closes the gap by 2, so
    # ceil(gap / 2) members must change.
    voters_to_move = (gaps.min(axis=0) + 1) // 2
    return _vote_of_cost(winner, voters_to_move, touches)


def _vote_of_cost(winner: np.ndarray, cost: np.ndarray, touches: int) -> Vote:
    """Return the vote with the stable distances that follow from the cost of another winner.

    k edits of the data are at most k * touches edits of shards. So the winner stays as long as
    k * touches < cost, and the largest such k is ceil(cost / touches) - 1.

    Args:
        winner: [n] int64, the winning classes.
        cost: [n] int64 >= 1, the least number of edits of shards that can change the winner.
        touches: the number of shards that one edit of the data can change.
    """
    distance = (cost - 1) // touches  # = ceil(cost / touches) - 1, in integers
    return Vote(winner, distance)


def count_selected_votes(
    labels: np.ndarray, distances: np.ndarray, classes: int, voting: np.ndarray
) -> np.ndarray:
    """Count the votes for each class, of selected members only, [C, n] int64.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers from 0 to ``MAX_STABLE_DISTANCE``. They are checked, but not
            used.
        classes: C, the number of classes.
        voting: [T, n] bool, whether each member's vote on each query counts.

    Raises:
        ConfigError: labels or distances do not fit.
    """
    labels, _ = check_members(labels, distances, classes)
    no_class = -1  # a label that no class has, so that the vote is not counted
    counted_labels = np.where(voting, labels, no_class)
    return count_votes(counted_labels, classes)


def check_touches(touches: int) -> None:
    """Raise ConfigError unless ``touches``, the members that one edit can change, is at least 1."""
    if touches < 1:
        raise ConfigError(
            f"ensemble: touches={touches} (how many members one edit of the data can change) must "
            "be at least 1"
        )


def check_members(
    labels: np.ndarray, distances: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return members' labels and stable distances as int64 arrays [T, n], after checking them.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers from 0 to ``MAX_STABLE_DISTANCE``, the number of edits of its
            shard that each label survives.
        classes: C, the number of classes.

    Raises:
        ConfigError: shapes, types or values do not fit, or there is no member.
    """
    labels = np.asarray(labels)
    distances = np.asarray(distances)
    if labels.ndim != 2 or labels.shape != distances.shape or not labels.shape[0]:
        raise ConfigError(
            "ensemble: the arrays of labels and of stable distances must have the same shape "
            f"[members, queries], with at least one member, but have the shapes {labels.shape} "
            f"and {distances.shape}"
        )
    if labels.dtype.kind not in "iu" or distances.dtype.kind not in "iu":
        raise ConfigError(
            f"ensemble: labels and stable distances must be integers, but are {labels.dtype} "
            f"and {distances.dtype}"
        )
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise ConfigError(f"ensemble: labels must lie between 0 and {classes - 1}")
    # Lemma 6 of docs/proofs/votes.md: sums of distances in this range are far below the largest
    # int64.
    if distances.size and (distances.min() < 0 or distances.max() > MAX_STABLE_DISTANCE):
        raise ConfigError(f"ensemble: stable distances must be between 0 and {MAX_STABLE_DISTANCE}")
    return labels.astype(np.int64), distances.astype(np.int64)
