"""Margin votes: an ensemble answers by the sign of the sum of its members' margins, each cut off at a public constant.

A member that is nearly undecided weighs little here, where a vote of labels counts it in full; and whoever wants to turn
the answer has to bring the whole sum down, not the cheapest majority of labels. Two classes.

Formal guarantees of ``margin_vote``
    Let m_i be member i's margin and M_i = q(m_i), q(m) = round(clip(m, -c, c) * (2^16 / c)) with the public constant c: a
    nondecreasing function from floats to integers, as each of its operations is correctly rounded, with q(-m) = -q(m). The
    label is 1 if S = sum_i M_i > 0, else 0 (a tie is 0): one function of the data. Sums over up to 10^4 members are below
    2^30 in size, and exact.
    Let l_i(j) = q(lower_i(k_j)), the member's envelope (envelope.py), l_i(0) = M_i, and l_i(j) = -2^16 where it ends. So
    for neighbours D, D' as a member sees them, q being monotone and -2^16 its least value,
        l_i(D, j) <= l_i(D', j-1)   for every j >= 1,                                                                   (1)
    and l_i(D, j) = l_i(D', j) for a member whose shard is the same (training/ensemble.py: bit for bit). Let
        F(D, b) = min over j_1 + ... + j_T <= b of sum_i l_i(D, j_i),
    the best allocation of b edits over the members: a max-plus convolution of the falls M_i - l_i.
    Say the label is 1, and one k of the relation changes at most m members (``Relation.touches``), B the largest b <= REACH
    with F(D, b') > 0 for every b' <= b, and L = floor(B / m).
    Step. Let D' be a neighbour of D. Then F(D', b) >= F(D, b + m): an allocation of b in D', with one more for each of the
    members that changed, is one of b + m at most in D, and by (1) its sum is no greater.
    Sound. D'' with k <= L: through k neighbours, F(D'', 0) >= F(D, m k) > 0, and F(D'', 0) is the sum in D''.
    1-Lipschitz, with labels that differ only at L = 0. Let L(D) >= 1. Then S(D') = F(D', 0) >= F(D, m) > 0, so D' has the
    same label; and F(D', b) >= F(D, b + m) > 0 for b + m <= B, so B(D') >= B(D) - m and L(D') >= L(D) - 1. D is a neighbour
    of D' as well (condition g): if either has L >= 1, labels agree and distances are within 1; else both have L = 0.
    For label 0 the same with every margin and envelope negated, and F >= 0 in the place of F > 0, as a tie is 0.
    REACH is a public constant, and min(B, REACH) moves by no more than B does.
    Under ``remove`` a tube's envelope need not obey (1) (agt/tube/radius.py), and soundness does without: of k removals
    member i loses a_i, and its bound at a_i holds as it stands; the a_i sum to k at most, so the sum is at least F(D, k).
    Edits that a shard sees in halves (m = 2): of k edits let shard i lose a_i units and gain b_i, sum_i a_i <= k, sum_i b_i
    <= k. They are k neighbours one after another, as above, each of which touches two members at most.
    In steps of a grid (``counting=index``) all of this holds with j counting steps, but for soundness, which is not asked.
    The convolution is computed exactly, in integers, over allocations of up to REACH.

Why not the larger of this distance and that of the vote of labels (votes.py)
    Where both votes give the same label, the larger of their distances is no distance, whatever label is given where they
    differ. Let the label of each vote be the sign of a number a, b (its distance + 1/2, signed), each of which moves by at
    most 1 per edit. From a = 5.5, b = 0.5 six edits may lead to a = -0.5, b = -5.5: both votes say 1 before and 0
    afterwards, and the larger distance is 5 on both sides. It claims that 5 edits do not turn the label of the first, nor
    of the second; and distances that are 1-Lipschitz, and 0 wherever the label turns, need 11 edits from 5 to 5. Ensembles
    of three members do this (the tests have one): so an ensemble answers by one of the votes, chosen beforehand.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from agt.certificates.envelope import REACH, Envelope
from agt.certificates.votes import Vote
from agt.errors import ConfigError

QUANTA = 2**16  # of a clip: margins are sums of these
_FIRST = 64  # edits that are looked at before any more are


def rounded(margins: np.ndarray, clip: float) -> np.ndarray:
    """q: margins of any shape, infinite ones too -> int32 between -QUANTA and QUANTA."""
    return np.rint(np.clip(margins, -clip, clip) * (QUANTA / clip)).astype(np.int32)


def margin_labels(margins: Sequence[np.ndarray], clip: float) -> tuple[np.ndarray, np.ndarray]:
    """([n] int64 labels, [n] the mean of the clipped margins in units of the clip) of each member's margins [n]."""
    total = np.stack([rounded(margin, clip) for margin in margins]).sum(axis=0, dtype=np.int64)
    return (total > 0).astype(np.int64), total / (QUANTA * len(margins))


def margin_vote(members: Sequence[Envelope], clip: float, *, touches: int) -> Vote:
    """The label of the summed margins with its stable distance, in whatever one row of the envelopes counts.

    Args:
        members: their envelopes, of the same queries and values of k.
        clip: c, a public constant: no member counts for more.
        touches: m, how many members one k of the relation can change (``Relation.touches``).

    Raises:
        ConfigError: no members, or members that differ in their values of k.
    """
    if touches < 1 or len({member.ks for member in members}) != 1:
        raise ConfigError("ensemble: members must have the same values of k, and one k changes at least one member")
    label, _ = margin_labels([member.margin for member in members], clip)
    rows = min(len(members[0].ks), REACH)
    facing = np.full((len(label), len(members), rows + 2), -QUANTA, dtype=np.int32)  # the last: beyond the envelope
    for at, member in enumerate(members):
        low, high = (np.vstack([member.margin, bound[:rows]]) for bound in (member.lower, member.upper))
        facing[:, at, :-1] = np.where(label, rounded(low, clip), -rounded(high, clip)).T
    edits = np.empty(len(label), dtype=np.int64)
    _withstood(facing, label, REACH, edits)
    return Vote(label, edits // touches, lipschitz=True)


@njit(cache=True)
def _withstood(facing, least, most, edits):  # type: ignore[no-untyped-def]
    """edits [n]: up to how many, ``most`` at most, every allocation leaves a sum of at least ``least`` [n].

    facing [n, T, J]: what is left of each member's margin after 0, 1, ..., J - 2 edits, and last -QUANTA, after more.
    """
    for query in range(len(facing)):
        reach = min(_FIRST, most)
        edits[query] = _reached(facing[query], least[query], reach)
        while edits[query] == reach < most:
            reach = min(4 * reach, most)
            edits[query] = _reached(facing[query], least[query], reach)


@njit(cache=True)
def _reached(left, least, reach):  # type: ignore[no-untyped-def]
    """The same of one query: left [T, J]. A row that leaves no less than the one before it is worth no edit."""
    total = np.zeros(reach + 1, dtype=np.int32)
    for member in range(len(left)):
        before = total.copy()
        for k in range(reach + 1):
            total[k] = before[k] + left[member, 0]
        lowest = left[member, 0]
        for j in range(1, min(left.shape[1], reach + 1)):
            value = left[member, j]
            if value < lowest:
                lowest = value
                for k in range(j, reach + 1):
                    total[k] = min(total[k], before[k - j] + value)
    for k in range(reach + 1):
        if total[k] < least:
            return k - 1
    return reach
