"""How many edits of the members' shards it takes at least to change the winner of a vote of labels.

The counts are exact, given the number of edits that each member's label needs to change.
"""

import numpy as np

NEVER = np.int64(2**60)
"""The cost of what cannot happen.

It is far above any sum of costs (Lemma 6 of docs/proofs/votes.md), and the sum of a few fits int64.
"""


def count_votes(labels: np.ndarray, classes: int) -> np.ndarray:
    """Count the votes for each class, [C, n] int64.

    Args:
        labels: [T, n] integers, each member's label of each query. A label outside of 0..C-1
            counts for no class.
        classes: C, the number of classes.
    """
    counts = [(labels == label).sum(axis=0) for label in range(classes)]
    return np.stack(counts).astype(np.int64)


def cost_to_change_winner(
    labels: np.ndarray, costs: np.ndarray, classes: int, edits_to_win: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the winner of each vote, and the least total cost at which another class wins.

    A cost is a number of edits of a member's shard. The cheapest set of members that change their
    labels is found exactly (Lemma 7 of docs/proofs/votes.md). For two classes it consists of the
    cheapest voters of the winner (Lemma 8 of docs/proofs/votes.md).

    Args:
        labels: [T, n] int64 0..C-1, each member's label of each query.
        costs: [T, n] int64 >= 1, the cost of changing each member's label to the class for which
            this is cheapest.
        classes: C, the number of classes.
        edits_to_win: [C, T, n] integers, the cost of changing each member's label to each class.
            For another class than the member's own it is at least ``costs``, and equal to it for
            at least one. None: it is ``costs`` for every other class.

    Returns:
        (winner, cost), each [n] int64. The winner is the class with most votes, and the smaller
        one on ties. The cost is ``NEVER`` if there is one class.
    """
    counts = count_votes(labels, classes)
    winner = counts.argmax(axis=0)
    votes_of_winner = counts.max(axis=0)
    min_cost = np.full(labels.shape[1], NEVER)
    for rival in range(classes):
        # The rival wins once its votes are as many as the winner's, if it is the smaller class and
        # so wins ties; else once they are more. ``gap`` is by how much the winner's lead must
        # shrink for that.
        gap = votes_of_winner - counts[rival] + (winner < rival)
        joining_cost = costs  # of changing each member's label to the rival
        if edits_to_win is not None:
            joining_cost = edits_to_win[rival]
        votes_for_winner = labels == winner
        votes_for_third = (labels != winner) & (labels != rival)
        cost = _cost_to_close_gap(costs, joining_cost, votes_for_winner, votes_for_third, gap)
        # Where the rival is the winner itself, there is nothing to change.
        cost = np.where(winner == rival, NEVER, cost)
        min_cost = np.minimum(min_cost, cost)
    return winner, min_cost


def _cost_to_close_gap(
    leaving_cost: np.ndarray,
    joining_cost: np.ndarray,
    votes_for_winner: np.ndarray,
    votes_for_third: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:
    """Return the least cost of shrinking the winner's lead over one rival by a gap, [n] int64.

    A voter of the winner shrinks the lead by 1 if it changes to a third class, and by 2 if it
    changes to the rival. A voter of a third class shrinks it by 1 if it changes to the rival.

    Args:
        leaving_cost: [T, n] int64, the cost (in edits) of changing each member's label to its
            cheapest other class.
        joining_cost: [T, n] int64, the cost of changing each member's label to the rival; at least
            ``leaving_cost``.
        votes_for_winner: [T, n] bool, which members answer the winner.
        votes_for_third: [T, n] bool, which members answer neither the winner nor the rival.
        gap: [n] int64, by how much the lead must shrink; at most 0 where nothing is to be done.
    """
    # Lemma 7 of docs/proofs/votes.md. If joining the rival costs a voter at least twice what
    # leaving costs, the voter counts as two moves that shrink the lead by 1 each: leaving, and then
    # joining for the rest of the cost. The second is not cheaper, so it is never taken before the
    # first. Every other voter of the winner is a "pair", which shrinks the lead by 2 at once.
    second_half = joining_cost - leaving_cost
    in_halves = votes_for_winner & (second_half >= leaving_cost)
    in_pairs = votes_for_winner & (second_half < leaving_cost)

    single_move_costs = np.concatenate([leaving_cost, second_half, joining_cost])
    is_move = np.concatenate([in_halves, in_halves, votes_for_third])
    cheapest_first = np.sort(_cost_if_possible(is_move, single_move_costs), axis=0)
    cost_of_moves = _cheapest_sums(cheapest_first)
    cost_of_pairs, cost_with_leaver = _pair_costs(leaving_cost, joining_cost, in_pairs)

    # Try every number of pairs, and take the cheapest single moves for the rest of the gap.
    max_moves = len(cost_of_moves) - 1
    min_cost = np.full(len(gap), NEVER)
    # Of the pairs, none or one leaves for a third class, which closes 1 of the gap.
    for leavers, cost_of_count in ((0, cost_of_pairs), (1, cost_with_leaver)):
        for count, cost in enumerate(cost_of_count):  # so many pairs join the rival
            gap_closed = 2 * count + leavers
            # how many single moves are still needed
            remaining_moves = np.clip(gap - gap_closed, 0, max_moves)
            cost_of_remaining = np.take_along_axis(cost_of_moves, remaining_moves[None], axis=0)[0]
            min_cost = np.minimum(min_cost, cost + cost_of_remaining)
    return min_cost


def _pair_costs(
    leaving_cost: np.ndarray, joining_cost: np.ndarray, in_pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least costs at which j "pairs" change their votes to the rival, for every j.

    The rival is the class that is to overtake the winner of a vote. A pair is a voter of the winner
    for whom joining the rival costs less than twice leaving for a third class; by joining it
    shrinks the lead by 2. In some cheapest solution at most one pair leaves for a third class, and
    all other pairs that change join the rival (Lemma 7 of docs/proofs/votes.md).

    Args:
        leaving_cost: [T, n] int64, the cost (in edits) of changing each member's label to its
            cheapest other class.
        joining_cost: [T, n] int64, the cost of changing each member's label to the rival.
        in_pairs: [T, n] bool, which members are pairs.

    Returns:
        ([T+1, n] int64, the cost of the j cheapest pairs joining, j = 0, ..., T;
        [T, n] int64, the least cost of j pairs joining and one more leaving, j = 0, ..., T - 1).
        Where there are fewer pairs both are about ``NEVER``, far above any real cost.
    """
    joining = _cost_if_possible(in_pairs, joining_cost)
    leaving = _cost_if_possible(in_pairs, leaving_cost)
    saved_by_leaving = np.where(in_pairs, joining_cost - leaving_cost, 0)
    # All three are sorted by the cost of joining, the cheapest pair of each query first.
    order = np.argsort(joining, axis=0, kind="stable")
    joining = np.take_along_axis(joining, order, axis=0)
    leaving = np.take_along_axis(leaving, order, axis=0)
    saved_by_leaving = np.take_along_axis(saved_by_leaving, order, axis=0)

    cost_of_pairs = _cheapest_sums(joining)
    # j pairs join and one leaves. The one that leaves is either among the j + 1 that join most
    # cheaply, where leaving instead of joining saves joining - leaving, or it is a later one.
    greatest_saving = np.maximum.accumulate(saved_by_leaving, axis=0)
    cheapest_later = np.minimum.accumulate(leaving[::-1], axis=0)[::-1]  # of pairs j, j + 1, ...
    cost_with_one_of_them = cost_of_pairs[1:] - greatest_saving
    cost_with_a_later_one = cost_of_pairs[:-1] + cheapest_later
    return cost_of_pairs, np.minimum(cost_with_one_of_them, cost_with_a_later_one)


def _cost_if_possible(possible: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the costs where they are possible, and ``NEVER`` elsewhere.

    Args:
        possible: bool, of the shape of ``costs``.
        costs: int64.
    """
    return np.where(possible, costs, NEVER)


def _cheapest_sums(ordered: np.ndarray) -> np.ndarray:
    """Return the sums of the j smallest costs of each query, j = 0, ..., T, as [T+1, n] int64.

    Args:
        ordered: [T, n] int64 costs, increasing along the first axis. A sum over a cost that is
            ``NEVER`` is ``NEVER``.
    """
    possible = ordered != NEVER
    sums = np.where(possible, ordered, 0).cumsum(axis=0)
    sums = np.where(possible, sums, NEVER)
    no_cost = np.zeros(ordered.shape[1], dtype=np.int64)
    return np.vstack([no_cost, sums])
