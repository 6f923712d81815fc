"""Votes of labels: the class that most members of an ensemble answer, with its stable distance.

Members are trained on disjoint shards, so one record is in one shard. ``certified_vote`` uses the
members' own stable distances or prices; ``plain_vote`` knows only that each member is a function of
its shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agt.certificates.stability import MAX_STABLE_DISTANCE
from agt.certificates.vote_costs import cost_to_change_winner, count_votes
from agt.errors import ConfigError

LABELS_AT_ONCE = 2**22  # members times queries whose vote is worked out at once


@dataclass(frozen=True)
class Vote:
    """The winners of a vote, with their stable distances.

    Attributes:
        prediction: [n] int64, the winning class of each query; of a vote of labels, the class with
            most votes, the smaller one on ties.
        distance: [n] int64, the stable distance of each winner.
        lipschitz: the distance changes by at most 1 between neighbours; without it no guarantee can
            rest on the distance.
    """

    prediction: np.ndarray
    distance: np.ndarray
    lipschitz: bool

    @classmethod
    def concatenate(cls, chunks: Sequence["Vote"]) -> "Vote":
        """Join the votes of successive queries; there is at least one chunk."""
        prediction = np.concatenate([chunk.prediction for chunk in chunks])
        distance = np.concatenate([chunk.distance for chunk in chunks])
        lipschitz = all(chunk.lipschitz for chunk in chunks)
        return cls(prediction, distance, lipschitz)


def certified_vote(
    labels: np.ndarray,
    distances: np.ndarray,
    classes: int = 2,
    *,
    touches: int,
    prices: np.ndarray | None = None,
) -> Vote:
    """Return the plurality vote of members with its stable distance.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers >= 0, each member's stable distances.
        classes: C.
        touches: m, how many members one k of the relation can change (``Relation.touches``).
        prices: [C, T, n] integers, the numbers of edits without which no member answers each
            class: 0 for its own label, at least ``distances + 1`` for every other class and
            exactly that for one; None: ``distances + 1`` for every other class.

    Raises:
        ConfigError: shapes or values do not fit.

    Formal guarantees:
        - No ``distance`` edits of the training data change the winner (Lemma 2 of
          docs/proofs/votes.md).
        - Distances change by at most 1 between neighbours, and are 0 on both sides where winners
          differ (Lemma 3 of docs/proofs/votes.md); with single edits counted by the prices as well
          (Lemma 5 of docs/proofs/votes.md).
        - Distances in steps of a grid are 1-Lipschitz likewise (Lemma 4 of docs/proofs/votes.md).
    """
    if touches < 1:
        raise ConfigError(
            f"ensemble: touches={touches} (how many members change when k grows by one) must "
            "be at least 1"
        )
    labels, distances = check_members(labels, distances, classes)
    if prices is not None and (
        prices.shape != (classes, *labels.shape) or prices.dtype.kind not in "iu"
    ):
        raise ConfigError(
            "ensemble: prices (how many edits it takes until a member predicts each class) "
            "must be integers of shape [classes, members, queries], but have the shape "
            f"{prices.shape}"
        )
    members, queries = labels.shape
    queries_at_once = max(1, LABELS_AT_ONCE // members)
    chunks = []
    for start in range(0, max(queries, 1), queries_at_once):
        chunk = slice(start, start + queries_at_once)
        chunk_prices = None if prices is None else prices[:, :, chunk]
        # One edit more than a member withstands may turn its label (Lemma 1 of
        # docs/proofs/votes.md).
        costs = distances[:, chunk] + 1
        chunk_labels = labels[:, chunk]
        winner, cost = cost_to_change_winner(chunk_labels, costs, classes, chunk_prices)
        chunks.append(_vote_of_cost(winner, cost, touches))
    return Vote.concatenate(chunks)


def plain_vote(counts: np.ndarray, *, touches: int) -> Vote:
    """Return the plurality vote of members without certificates of their own.

    The distance is that of ``certified_vote`` where every member's distance is 0 (Lemma 9 of
    docs/proofs/votes.md).

    Args:
        counts: [C, n] int64, the votes for each class; at least one vote for each query.
        touches: m, how many members one k of the relation can change (``Relation.touches``).
    """
    classes = np.arange(len(counts))[:, None]
    winner = counts.argmax(axis=0)
    winner_wins_tie = winner < classes
    gaps = counts.max(axis=0) - counts + winner_wins_tie
    gaps[winner == classes] = np.iinfo(np.int64).max - 1  # the winner is no rival of its own
    voters_to_move = (gaps.min(axis=0) + 1) // 2  # each closes the gap by 2
    return _vote_of_cost(winner, voters_to_move, touches)


def _vote_of_cost(winner: np.ndarray, cost: np.ndarray, touches: int) -> Vote:
    """Return the vote of winners [n] that no fewer than cost [n] edits of members change."""
    distance = (cost - 1) // touches  # ceil(cost / touches) - 1
    return Vote(winner, distance, lipschitz=True)


def count_selected_votes(
    labels: np.ndarray, distances: np.ndarray, classes: int, voting: np.ndarray
) -> np.ndarray:
    """Count the votes for each class among some of the members, [C, n] int64.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers >= 0, which are checked as ``certified_vote`` checks them.
        classes: C.
        voting: [T, n] bool, which members' votes count.

    Raises:
        ConfigError: labels or distances do not fit.
    """
    labels, _ = check_members(labels, distances, classes)
    no_class = -1
    counted_labels = np.where(voting, labels, no_class)
    return count_votes(counted_labels, classes)


def check_members(
    labels: np.ndarray, distances: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return members' labels and distances as int64 arrays [T, n], after checking them.

    Args:
        labels: [T, n] integers 0..C-1.
        distances: [T, n] integers from 0 to ``MAX_STABLE_DISTANCE``.
        classes: C.

    Raises:
        ConfigError: shapes, types or values do not fit, or there is no member.
    """
    labels = np.asarray(labels)
    distances = np.asarray(distances)
    if labels.ndim != 2 or labels.shape != distances.shape or not labels.shape[0]:
        raise ConfigError(
            f"ensemble: labels {labels.shape} and distances {distances.shape} must both be "
            "[members, queries], with at least one member"
        )
    if labels.dtype.kind not in "iu" or distances.dtype.kind not in "iu":
        raise ConfigError(
            f"ensemble: labels and stable distances must be integers, but are {labels.dtype} "
            f"and {distances.dtype}"
        )
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise ConfigError(f"ensemble: labels must lie between 0 and {classes - 1}")
    # Lemma 6 of docs/proofs/votes.md: sums of such distances stay far from the end of int64.
    if distances.size and (distances.min() < 0 or distances.max() > MAX_STABLE_DISTANCE):
        raise ConfigError(f"ensemble: stable distances must be between 0 and {MAX_STABLE_DISTANCE}")
    return labels.astype(np.int64), distances.astype(np.int64)
