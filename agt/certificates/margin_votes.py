"""Margin votes: an ensemble answers by the sign of the sum of its members' clipped margins.

Two classes. A member that is nearly undecided weighs little here, whereas a vote of labels counts
it in full.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.votes import Vote
from agt.errors import ConfigError

MARGIN_QUANTA = 2**16  # integer steps of a clipped margin from 0 to the clip
FIRST_EDITS = 64  # edits that are looked at first; four times as many whenever all are withstood


def quantise_margins(margins: np.ndarray, clip: float) -> np.ndarray:
    """Return margins clipped and rounded to integers, int32 from -2^16 to 2^16.

    The function is nondecreasing and odd (Lemma 1 of docs/proofs/margin_votes.md).

    Args:
        margins: floats of any shape, infinite ones too.
        clip: the margin that 2^16 stands for.
    """
    quanta_per_unit = MARGIN_QUANTA / clip
    clipped = np.clip(margins, -clip, clip)
    return np.rint(clipped * quanta_per_unit).astype(np.int32)


def margin_labels(margins: Sequence[np.ndarray], clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of a margin vote, and the means of the clipped margins.

    Args:
        margins: for each member its margins [n].
        clip: the margin beyond which no member counts for more.

    Returns:
        ([n] int64 labels, 1 where the sum is positive; [n] float64 means, in units of the clip).
    """
    quantised = np.stack([quantise_margins(margin, clip) for margin in margins])
    total = quantised.sum(axis=0, dtype=np.int64)
    labels = (total > 0).astype(np.int64)
    means = total / (MARGIN_QUANTA * len(margins))
    return labels, means


def margin_vote(members: Sequence[Envelope], clip: float, *, touches: int) -> Vote:
    """Return the labels of a margin vote with their stable distances.

    Distances count what one row of the envelopes counts: edits, or steps of a grid (Lemma 7 of
    docs/proofs/margin_votes.md).

    Args:
        members: the members' envelopes, of the same queries and values of k.
        clip: a public constant, the margin beyond which no member counts for more.
        touches: m, how many members one k of the relation can change (``Relation.touches``).

    Raises:
        ConfigError: there are no members, or they differ in their values of k.

    Formal guarantees:
        - No ``distance`` edits of the training data change the label (Lemma 4 of
          docs/proofs/margin_votes.md).
        - Distances change by at most 1 between neighbours, and are 0 on both sides where labels
          differ (Lemma 5 of docs/proofs/margin_votes.md); with single edits counted as well
          (Lemma 6 of docs/proofs/margin_votes.md).
        - The larger of this distance and that of a vote of labels is no distance (Lemma 8 of
          docs/proofs/margin_votes.md).
    """
    if touches < 1 or len({member.ks for member in members}) != 1:
        raise ConfigError(
            "ensemble: all members must have the same values of k, and raising k by one must "
            "be able to change at least one member"
        )
    labels, _ = margin_labels([member.margin for member in members], clip)
    rows = min(len(members[0].ks), MAX_MARGIN_EDITS)
    remaining = _remaining_margins(members, labels, clip, rows)
    edits = np.empty(len(labels), dtype=np.int64)
    # A label of 1 needs a sum of at least 1, a label of 0 one of at least 0: a tie is 0.
    _count_withstood_edits(remaining, labels, MAX_MARGIN_EDITS, edits)
    return Vote(labels, edits // touches, lipschitz=True)


def _remaining_margins(
    members: Sequence[Envelope], labels: np.ndarray, clip: float, rows: int
) -> np.ndarray:
    """Return what remains of each margin on the label's side after 0, 1, ... edits.

    Args:
        members: T envelopes of n queries.
        labels: [n] the labels of the vote.
        clip: the margin beyond which no member counts for more.
        rows: J, how many rows of the envelopes are used.

    Returns:
        [n, T, J + 2] int32, in quanta of the clip; the last is -2^16, which stands for more edits
        than the envelopes know (Lemma 2 of docs/proofs/margin_votes.md).
    """
    shape = (len(labels), len(members), rows + 2)
    remaining = np.full(shape, -MARGIN_QUANTA, dtype=np.int32)
    for index, member in enumerate(members):
        least = np.vstack([member.margin, member.lower[:rows]])
        greatest = np.vstack([member.margin, member.upper[:rows]])
        remaining_of_one = quantise_margins(least, clip)
        remaining_of_zero = -quantise_margins(greatest, clip)
        remaining_of_label = np.where(labels, remaining_of_one, remaining_of_zero)
        remaining[:, index, :-1] = remaining_of_label.T
    return remaining


@njit(cache=True)
def _count_withstood_edits(remaining, needed, max_edits, edits):  # type: ignore[no-untyped-def]
    """Write to ``edits`` how many edits each query's sum withstands, however they are allocated.

    Args:
        remaining: [n, T, J] int32, what remains of each member's margin after 0, 1, ..., J - 2
            edits, and last what remains after more.
        needed: [n] int64, the least sum that keeps the label.
        max_edits: the number of edits up to which is looked.
        edits: [n] int64, is overwritten; -1 where the sum without an edit falls short.
    """
    for query in range(len(remaining)):
        # Most sums withstand few edits, and the work grows with the square of their number.
        bound = min(FIRST_EDITS, max_edits)
        edits[query] = _count_edits_up_to(remaining[query], needed[query], bound)
        while edits[query] == bound < max_edits:
            bound = min(4 * bound, max_edits)
            edits[query] = _count_edits_up_to(remaining[query], needed[query], bound)


@njit(cache=True)
def _count_edits_up_to(remaining, needed, max_edits):  # type: ignore[no-untyped-def]
    """Return how many edits, at most ``max_edits``, always leave one query's sum large enough.

    Args:
        remaining: [T, J] int32, what remains of each member's margin after 0, 1, ..., J - 2 edits,
            and last what remains after more.
        needed: the least sum that keeps the label.
        max_edits: the number of edits up to which is looked.
    """
    # totals[k]: the least sum of the members so far that k edits can leave (Lemma 3 of
    # docs/proofs/margin_votes.md). A member is added by trying every number of edits for it.
    totals = np.zeros(max_edits + 1, dtype=np.int32)
    for member in range(len(remaining)):
        before = totals.copy()
        for k in range(max_edits + 1):
            totals[k] = before[k] + remaining[member, 0]
        lowest = remaining[member, 0]
        for j in range(1, min(remaining.shape[1], max_edits + 1)):
            value = remaining[member, j]
            if value < lowest:  # else j edits are worth no more than fewer were
                lowest = value
                for k in range(j, max_edits + 1):
                    totals[k] = min(totals[k], before[k - j] + value)
    for k in range(max_edits + 1):
        if totals[k] < needed:
            return k - 1
    return max_edits
