"""What it costs to change the winner of a vote of labels, in edits of members, exactly."""

import numpy as np

NEVER = np.int64(2**60)
"""The cost of what cannot happen; far above any sum of costs (Lemma 6 of docs/proofs/votes.md)."""


def count_votes(labels: np.ndarray, classes: int) -> np.ndarray:
    """Count the votes for each class, [C, n] int64.

    Args:
        labels: [T, n] integers, each member's label of each query; a label that is no class
            counts for none.
        classes: C.
    """
    counts = [(labels == label).sum(axis=0) for label in range(classes)]
    return np.stack(counts).astype(np.int64)


def cost_to_change_winner(
    labels: np.ndarray, costs: np.ndarray, classes: int, edits_to_win: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the winner of each vote, and the least cost of votes that another class wins.

    For two classes it is the cost of the cheapest voters of the winner that are needed (Lemma 8 of
    docs/proofs/votes.md).

    Args:
        labels: [T, n] int64 0..C-1, each member's label of each query.
        costs: [T, n] int64 >= 1, what it costs to turn a member to any other class.
        classes: C.
        edits_to_win: [C, T, n] integers, what it costs to turn a member to each class, at least
            ``costs`` and equal to it for one other class; None: ``costs``.

    Returns:
        ([n] the class with most votes, the smaller one on ties; [n] int64 the cost, ``NEVER`` where
        there is one class).
    """
    counts = count_votes(labels, classes)
    winner = counts.argmax(axis=0)
    votes_of_winner = counts.max(axis=0)
    least_cost = np.full(labels.shape[1], NEVER)
    for rival in range(classes):
        # Ties go to the smaller class, so a smaller winner has to lose one vote more.
        gap = votes_of_winner - counts[rival] + (winner < rival)
        joining_cost = costs if edits_to_win is None else edits_to_win[rival]
        votes_for_winner = labels == winner
        votes_for_third = (labels != winner) & (labels != rival)
        cost = _cost_to_close_gap(costs, joining_cost, votes_for_winner, votes_for_third, gap)
        # A winner is no rival of its own.
        cost = np.where(winner == rival, NEVER, cost)
        least_cost = np.minimum(least_cost, cost)
    return winner, least_cost


def _cost_to_close_gap(
    leaving_cost: np.ndarray,
    joining_cost: np.ndarray,
    votes_for_winner: np.ndarray,
    votes_for_third: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:
    """Return the least cost of shrinking a winner's lead over a rival by a gap, [n] int64.

    A voter of the winner shrinks the lead by 1 if it leaves for a third class, and by 2 if it joins
    the rival. A voter of a third class shrinks it by 1 if it joins the rival.

    Args:
        leaving_cost: [T, n] int64, what it costs to turn a member to its cheapest other class.
        joining_cost: [T, n] int64, what it costs to turn a member to the rival.
        votes_for_winner: [T, n] bool, the members that answer the winner.
        votes_for_third: [T, n] bool, the members that answer neither winner nor rival.
        gap: [n] int64, the votes to make up.
    """
    # Lemma 7 of docs/proofs/votes.md. A voter whose way to the rival costs at least two leavings
    # is two moves that shrink the lead by one each; the dearer is never taken before the other.
    # Every other voter of the winner is a pair.
    second_half = joining_cost - leaving_cost
    in_halves = votes_for_winner & (second_half >= leaving_cost)
    in_pairs = votes_for_winner & (second_half < leaving_cost)

    moves = np.concatenate([leaving_cost, second_half, joining_cost])
    is_move = np.concatenate([in_halves, in_halves, votes_for_third])
    cheapest_first = np.sort(_never_unless(is_move, moves), axis=0)
    cost_of_moves = _cheapest_sums(cheapest_first)
    cost_of_pairs, cost_with_leaver = _pair_costs(leaving_cost, joining_cost, in_pairs)

    # Every number of pairs, and moves for the rest of the gap.
    most_moves = len(cost_of_moves) - 1
    least_cost = np.full(len(gap), NEVER)
    for leavers, cost_of_count in ((0, cost_of_pairs), (1, cost_with_leaver)):
        for count, cost in enumerate(cost_of_count):
            closed = 2 * count + leavers
            rest = np.clip(gap - closed, 0, most_moves)
            cost_of_rest = np.take_along_axis(cost_of_moves, rest[None], axis=0)[0]
            least_cost = np.minimum(least_cost, cost + cost_of_rest)
    return least_cost


def _pair_costs(
    leaving_cost: np.ndarray, joining_cost: np.ndarray, in_pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least costs of pairs that join the rival, without and with one that leaves.

    In some cheapest way at most one pair leaves for a third class (Lemma 7 of
    docs/proofs/votes.md).

    Args:
        leaving_cost: [T, n] int64, what it costs to turn a member to its cheapest other class.
        joining_cost: [T, n] int64, what it costs to turn a member to the rival.
        in_pairs: [T, n] bool, the members that are pairs.

    Returns:
        ([T+1, n] for 0, 1, ..., T pairs that join; [T, n] for 0, ..., T - 1 pairs that join and
        one more that leaves), ``NEVER`` where there are fewer pairs.
    """
    joining = _never_unless(in_pairs, joining_cost)
    leaving = _never_unless(in_pairs, leaving_cost)
    saved_by_leaving = np.where(in_pairs, joining_cost - leaving_cost, 0)
    order = np.argsort(joining, axis=0, kind="stable")
    joining = np.take_along_axis(joining, order, axis=0)
    leaving = np.take_along_axis(leaving, order, axis=0)
    saved_by_leaving = np.take_along_axis(saved_by_leaving, order, axis=0)

    cost_of_pairs = _cheapest_sums(joining)
    # Beside j pairs that join, one of the j + 1 cheapest leaves, or a later one.
    greatest_saving = np.maximum.accumulate(saved_by_leaving, axis=0)
    cheapest_later = np.minimum.accumulate(leaving[::-1], axis=0)[::-1]
    cost_with_one_of_them = cost_of_pairs[1:] - greatest_saving
    cost_with_a_later_one = cost_of_pairs[:-1] + cheapest_later
    return cost_of_pairs, np.minimum(cost_with_one_of_them, cost_with_a_later_one)


def _never_unless(possible: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the costs where they are possible, else ``NEVER``."""
    return np.where(possible, costs, NEVER)


def _cheapest_sums(ordered: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ..., T costs, [T+1, n] int64.

    Args:
        ordered: [T, n] int64 costs, increasing; the sums that reach a ``NEVER`` are ``NEVER``.
    """
    possible = ordered != NEVER
    sums = np.where(possible, ordered, 0).cumsum(axis=0)
    sums = np.where(possible, sums, NEVER)
    no_cost = np.zeros(ordered.shape[1], dtype=np.int64)
    return np.vstack([no_cost, sums])
