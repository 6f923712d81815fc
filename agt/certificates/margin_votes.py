"""Margin votes: an ensemble of two classes answers by the sign of the sum of its members' margins.

Each margin is clipped at a public constant. A member that is nearly undecided weighs little here,
whereas a vote of labels counts it in full.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.votes import Vote, check_touches
from agt.errors import ConfigError

MARGIN_QUANTA = 2**16  # integer steps of a clipped margin from 0 to the clip
FIRST_EDITS = 64  # edits that are tried first; four times as many where the label survives them all


def quantise_margins(margins: np.ndarray, clip: float) -> np.ndarray:
    """Return margins clipped and rounded to integers, int32 from -2^16 to 2^16.

    The function is nondecreasing and odd, so bounds on a margin become bounds on the integer
    (Lemma 1 of docs/proofs/margin_votes.md).

    Args:
        margins: floats of any shape, possibly infinite, not NaN.
        clip: > 0, the margin that becomes 2^16; larger ones become 2^16, too.
    """
    quanta_per_unit = MARGIN_QUANTA / clip
    clipped = np.clip(margins, -clip, clip)
    return np.rint(clipped * quanta_per_unit).astype(np.int32)


def margin_labels(margins: Sequence[np.ndarray], clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of a margin vote, and the means of the clipped margins.

    Args:
        margins: for each member its margins [n], positive for the label 1; at least one member.
        clip: > 0, the public constant at which margins are clipped.

    Returns:
        (labels, means): [n] int64, 1 where the sum is positive, else 0; and [n] float64 from -1 to
        1, in units of the clip.
    """
    quantised = np.stack([quantise_margins(margin, clip) for margin in margins])
    total = quantised.sum(axis=0, dtype=np.int64)
    labels = (total > 0).astype(np.int64)
    means = total / (MARGIN_QUANTA * len(margins))
    return labels, means


def margin_vote(members: Sequence[Envelope], clip: float, *, touches: int) -> Vote:
    """Return the labels of a margin vote, with their stable distances.

    A distance is how many edits of the training data are proved to leave the label unchanged. For
    envelopes that count steps of a grid of k it counts such steps (Lemma 7 of
    docs/proofs/margin_votes.md).

    Args:
        members: for each member its envelope (its margins, and bounds on them after k edits of its
            shard), of the same queries and values of k.
        clip: > 0, the public constant at which margins are clipped.
        touches: how many members one edit can change
            (``Relation.members_changed_per_edit``): 1 if it adds or removes a record, 2 if it may
            take a record from one shard and put one into another.

    Raises:
        ConfigError: there are no members, they differ in their values of k, or touches < 1.

    Formal guarantees:
        - No ``distance`` edits of the training data change the label (Lemma 4 of
          docs/proofs/margin_votes.md).
        - One edit changes a distance by at most 1. Where it changes the label, the distance is 0
          before and after (Lemma 5 of docs/proofs/margin_votes.md). This holds as well if envelopes
          count a replacement as two edits (Lemma 6 of docs/proofs/margin_votes.md).
        - The second guarantee fails for the larger of this distance and that of a vote of labels
          (Lemma 8 of docs/proofs/margin_votes.md). So an ensemble must use one of the two.
    """
    check_touches(touches)
    if len({member.ks for member in members}) != 1:
        raise ConfigError("ensemble: all members must be trained with the same kgrid (values of k)")
    labels, _ = margin_labels([member.margin for member in members], clip)
    rows = min(len(members[0].ks), MAX_MARGIN_EDITS)
    remaining = _remaining_margins(members, labels, clip, rows)
    edits = np.empty(len(labels), dtype=np.int64)
    # A label of 1 needs a sum > 0, so at least 1. A label of 0 needs minus the sum to be at least
    # 0, because a tie gives 0. So the label itself is the sum that is needed on its side.
    _count_survived_edits(remaining, labels, MAX_MARGIN_EDITS, edits)
    # k edits of the data are at most k * touches edits of shards.
    return Vote(labels, edits // touches, lipschitz=True)


def _remaining_margins(
    members: Sequence[Envelope], labels: np.ndarray, clip: float, rows: int
) -> np.ndarray:
    """Return the least margin in favour of the label that 0, 1, ... edits can leave each member.

    For the label 1 this is the lower bound on the margin, for the label 0 minus the upper bound.

    Args:
        members: the envelopes of T members for n queries.
        labels: [n] int64, the labels of the vote.
        clip: > 0, the margin at which margins are clipped.
        rows: J, how many rows of the envelopes are used.

    Returns:
        [n, T, J + 2] int32, the clipped and rounded margins after 0, 1, ..., J edits. The last
        entry is -2^16, the lowest that more edits than the envelopes have can leave (Lemma 2 of
        docs/proofs/margin_votes.md).
    """
    shape = (len(labels), len(members), rows + 2)
    remaining = np.full(shape, -MARGIN_QUANTA, dtype=np.int32)
    for index, member in enumerate(members):
        # Row j belongs to j edits; without an edit both bounds are the margin itself.
        lower = np.vstack([member.margin, member.lower[:rows]])
        upper = np.vstack([member.margin, member.upper[:rows]])
        remaining_for_one = quantise_margins(lower, clip)
        remaining_for_zero = -quantise_margins(upper, clip)
        remaining_of_label = np.where(labels, remaining_for_one, remaining_for_zero)
        remaining[:, index, :-1] = remaining_of_label.T
    return remaining


@njit(cache=True)
def _count_survived_edits(remaining, needed, max_edits, edits):  # type: ignore[no-untyped-def]
    """Write to ``edits`` how many edits of shards each query's label survives.

    A shard is one member's part of the training data; the edits may be spread over all shards in
    any way.

    Args:
        remaining: [n, T, J] int32, the least margin in favour of the label that 0, 1, ..., J - 2
            edits can leave each member, and last the least that more edits can.
        needed: [n] int64, the least sum of margins that keeps the label.
        max_edits: the largest number of edits to try; larger results are replaced by it.
        edits: [n] int64, overwritten with the counts; -1 where the sum is too small without edits.
    """
    for query in range(len(remaining)):
        # Most labels survive few edits, and the work grows with the square of the number tried. So
        # few are tried first, and more only if all of them are survived. The result is the same.
        bound = min(FIRST_EDITS, max_edits)
        edits[query] = _count_edits_up_to(remaining[query], needed[query], bound)
        while edits[query] == bound < max_edits:
            bound = min(4 * bound, max_edits)
            edits[query] = _count_edits_up_to(remaining[query], needed[query], bound)


@njit(cache=True)
def _count_edits_up_to(remaining, needed, max_edits):  # type: ignore[no-untyped-def]
    """Return how many edits of shards, at most ``max_edits``, cannot change one query's label.

    A shard is one member's part of the training data; the edits may be spread over all shards in
    any way. The result is -1 if the sum of margins is too small without any edit.

    Args:
        remaining: [T, J] int32, the least margin in favour of the label that 0, 1, ..., J - 2
            edits can leave each member, and last the least that more edits can.
        needed: the least sum of margins that keeps the label.
        max_edits: the largest number of edits to try.
    """
    # totals[k]: the least sum of the margins of the members so far that at most k edits can leave,
    # in any of their shards. Adding a member tries every number j of edits for it:
    #     totals[k] = min over j <= k of before[k - j] + remaining[member, j]
    # This is exact, by Lemma 3 of docs/proofs/margin_votes.md.
    totals = np.zeros(max_edits + 1, dtype=np.int32)
    for member in range(len(remaining)):
        before = totals.copy()
        for k in range(max_edits + 1):
            totals[k] = before[k] + remaining[member, 0]
        lowest = remaining[member, 0]
        for j in range(1, min(remaining.shape[1], max_edits + 1)):
            value = remaining[member, j]
            if value < lowest:  # else fewer edits leave as little, and trying j is vain
                lowest = value
                for k in range(j, max_edits + 1):
                    totals[k] = min(totals[k], before[k - j] + value)
    for k in range(max_edits + 1):
        if totals[k] < needed:  # k edits can change the label
            return k - 1
    return max_edits
