"""Numba functions that count how many edits the label of a margin vote survives."""

import numpy as np
from numba import njit

FIRST_EDITS = 64  # edits that are tried first; four times as many where the label survives them all


@njit(cache=True)
def count_survived_edits(remaining, needed, max_edits, edits):  # type: ignore[no-untyped-def]
    """Write the number of edits of shards that each query's label survives to ``edits``.

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
        tried_edits = min(FIRST_EDITS, max_edits)
        edits[query] = _count_edits_up_to(remaining[query], needed[query], tried_edits)
        while edits[query] == tried_edits and tried_edits < max_edits:
            tried_edits = min(4 * tried_edits, max_edits)
            edits[query] = _count_edits_up_to(remaining[query], needed[query], tried_edits)


@njit(cache=True)
def _count_edits_up_to(remaining, needed, max_edits):  # type: ignore[no-untyped-def]
    """Return the number of edits of shards, up to ``max_edits``, that leave a label unchanged.

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
        # First without edits of this member's shard (j = 0), then with j = 1, 2, ... edits.
        for k in range(max_edits + 1):
            totals[k] = before[k] + remaining[member, 0]
        lowest = remaining[member, 0]
        for j in range(1, min(remaining.shape[1], max_edits + 1)):
            margin = remaining[member, j]
            if margin < lowest:  # else fewer edits leave as little, and trying j is vain
                lowest = margin
                for k in range(j, max_edits + 1):
                    totals[k] = min(totals[k], before[k - j] + margin)
    for k in range(max_edits + 1):
        if totals[k] < needed:  # k edits can change the label
            return k - 1
    return max_edits
