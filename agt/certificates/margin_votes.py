"""Margin votes: an ensemble of two classes answers by the sign of the sum of its members' margins.

Each margin is clipped at a public constant. A member that is nearly undecided weighs little here,
whereas a vote of labels counts it in full.
"""

from collections.abc import Sequence

import numpy as np

from agt.certificates.envelopes import MAX_MARGIN_EDITS, Envelope
from agt.certificates.votes import Vote, check_touches
from agt.errors import ConfigError

MARGIN_QUANTA = 2**16  # integer steps of a clipped margin from 0 to the clip


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
        margins: the margins [n] of each member, positive for the label 1; at least one member.
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
        members: the envelope of each member (its margins, and bounds on them after k edits of its
            shard), of the same queries and values of k.
        clip: > 0, the public constant at which margins are clipped.
        touches: the number of members that one edit can change
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
    # Imported here, because Numba takes half a second to import.
    from agt.certificates.margin_votes_compiled import count_survived_edits

    labels, _ = margin_labels([member.margin for member in members], clip)
    edits_with_bounds = min(len(members[0].ks), MAX_MARGIN_EDITS)  # of one member's shard
    remaining = _remaining_margins(members, labels, clip, edits_with_bounds)
    # A label of 1 needs a sum > 0, so at least 1. A label of 0 needs minus the sum to be at least
    # 0, because a tie gives 0. So the label itself is the sum that is needed on its side.
    needed_sums = labels
    edits = np.empty(len(labels), dtype=np.int64)
    count_survived_edits(remaining, needed_sums, MAX_MARGIN_EDITS, edits)  # writes to ``edits``
    # k edits of the data are at most k * touches edits of shards.
    return Vote(labels, edits // touches)


def _remaining_margins(
    members: Sequence[Envelope], labels: np.ndarray, clip: float, rows: int
) -> np.ndarray:
    """Return the least margin in favour of the label that 0, 1, ... edits can leave each member.

    For the label 1 this is the lower bound on the margin, for the label 0 minus the upper bound.

    Args:
        members: the envelopes of T members for n queries.
        labels: [n] int64, the labels of the vote.
        clip: > 0, the margin at which margins are clipped.
        rows: J, the number of rows of the envelopes that are used.

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
