"""Certified votes: from the labels and stable distances of an ensemble's members to those of its
vote.

Members are trained on disjoint shards, so that one record (all rows of one unit) is in one shard
(method.md section 4). One k of the relation changes at most m members (``Relation.touches``): m = 1
for add_remove; m = 2 for substitute and paper_privacy, where it may take a unit out of one shard
and put one into another.

Formal guarantees of ``certified_vote``
    Let A_i(u) >= 0 be integers, one for each member i and class u, with A_i(u) = 0 where u is its
    label y_i and >= 1 else: prices, of which is asked that
      (s) an edit of shard i (one k as the shard sees it: a unit gone, one come, or both) moves
          A_i(u) by at most 1, and
      (r) a edits of shard i make member i answer u only if a >= A_i(u).
    (r) follows from (s), A_i(u) being 0 where u is the answer. What is known of a member alone, its
    distance L_i, is the price c_i = L_i + 1 of every other class: if the label stays, c_i moves by
    at most 1; if it turns from y to y', L_i = 0 on both sides, and prices of y, of y' and of any
    third class are 0 and 1, 1 and 0, 1 and 1. Closed forms know more (stability.py, flips.py): how
    far each class is behind.
    Let F = min over vote vectors v with another winner than y of sum_i A_i(v_i); then L = ceil(F /
    m) - 1.
    Sound: no k <= L edits change the winner. Of k edits let shard i lose a_i units and gain b_i.
    For m = 1 it is a_i + b_i edits that reach shard i, they sum to at most k, and v_i needs a_i +
    b_i >= A_i(v_i). For m = 2 the edits take out k units in all and put in k, so sum_i a_i <= k and
    sum_i b_i <= k; member i's certificate at k covers up to k units gone and, independently, up to
    k come (agt/relations/ for boxes; a linear head's per_k is two moves of rho, and a_i + b_i <= 2
    max(a_i, b_i)), so v_i needs max(a_i, b_i) >= A_i(v_i). Either way turning y into v takes F <=
    sum_i A_i(v_i) <= sum_i (a_i + b_i) <= m k. So F <= m k where the winner changes, and k <= L has
    m k < F.
    1-Lipschitz, with labels that differ only at L = 0. A neighbour changes at most m members, each
    by one unit gone, one come or both: all within one k of the relation for its shard
    (agt/relations/relation.py), so that by
    (s) the price of each v moves by at most m. If the winner is the same, the minimum is over the
    same v, F moves by at most m, and ceil(F / m) by at most 1. If it differs, each side's votes are
    a v of the other, which differ in at most m members, whose prices are 0 on the one side and so
    at most 1 on the other: 1 <= F <= m and L = 0 on both sides.
    The same holds with L_i counted in steps of a grid (box.py, ``grid_index``), of which only the
    second part is asked. Single edits. Where one k replaces a unit (m = 2), a linear head's prices
    count the edits of its shard one by one, each a unit gone or a unit come
    (``LinearModel.counting_single_edits``): (s) and (r) for such edits, as under add_remove. F and
    L are the same functions of these prices.
    Sound: shard i loses a_i units and gains b_i, which are a_i + b_i edits, those gone first, so
    that whatever lies between is part of a shard that was trained on (n_max). v_i needs a_i + b_i
    >= A_i(v_i); the rest is as above, F <= 2 k. 1-Lipschitz. If a replacement takes from one shard
    and puts into another, it is one edit of each, and the argument above holds as it stands. If
    both fall into one shard i, they are two edits of it: A_i(u) moves by at most 2, and nothing
    else does. With the same winner F moves by at most 2 and L by at most 1. With another, each
    side's votes are a v of the other that differs in i alone, A_i(v_i) <= 2, so F <= 2 and L = 0 on
    both sides.
    The way from a shard to its neighbour leads through one with a unit fewer. B, n_max and what
    else rests on a size are the run's constants there too, as everywhere (condition c): a member's
    share of the declared size, or numbers of the configuration. Where nothing was declared they are
    the shard's own number, c is not held, and either kind of distance speaks of training with that
    same number alone: a unit that changes shards would change it on both sides.
    Members without such a count (boxes) enter with that of k, beside others or not: a label that
    turns has a_i + b_i >= max(a_i, b_i) >= c_i, and c_i moves by at most 1 where both edits fall
    into one shard.
    Range. Distances are at most 2^31: those of boxes end with the grid (2^30), closed forms are
    capped there, a public constant, so that no data make a vote fail (the less of a price and a
    constant obeys (s) and (r) as the price does). T members cost T (2^31 + 1) at most, below 2^45
    for T <= 10^4, and ``_NEVER`` is far above any sum of such.
    The code computes F exactly. Another wins where for some class r the gap n_y - n_r has shrunk by
    itself at least, plus one if the tie would still go to y (ties go to the smaller class); F is
    the least over r. A voter of y shrinks it by 2 for p_i = A_i(r), by 1 for q_i = c_i <= p_i, the
    cheapest other class; a voter of a third class by 1 for A_i(r). Of voters of y with p_i < 2 q_i
    no more than one goes for q_i in some cheapest way: of two that did, the less of p_i and p_j
    closes as much for at most (p_i + p_j) / 2 < q_i + q_j. The others' two halves, q_i and p_i -
    q_i >= q_i, are units like third voters' moves: whoever takes the cheapest units takes a first
    half before its second. So F's part for r is the least, over the number of pairs, of the
    cheapest pairs, with one single or none, and the cheapest units for the rest.
    With one price for every class this is the rule for two: the m cheapest among the majority
    voters, m = ceil((n1-n0)/2) if the vote is 1 and floor((n0-n1)/2) + 1 if it is 0.

Formal guarantees of ``plain_vote``
    The same with every L_i = 0, for members of which nothing is known but that they are functions
    of their own shards: all costs are 1. Let g_r = n_y - n_r, plus one where a tie would still go
    to y, r the rival. A voter of y who moves to r shrinks it by 2, and there are enough of them:
    g_r <= n_y + 1 and n_y >= 1, so ceil(g_r / 2) <= n_y. So F = min over r of ceil(g_r / 2).

Margin votes: an ensemble answers by the sign of the sum of its members' margins, each cut off at a
public constant.

A member that is nearly undecided weighs little here, where a vote of labels counts it in full; and
whoever wants to turn the answer has to bring the whole sum down, not the cheapest majority of
labels. Two classes.

Formal guarantees of ``margin_vote``
    Let m_i be member i's margin and M_i = q(m_i), q(m) = round(clip(m, -c, c) * (2^16 / c)) with
    the public constant c: a nondecreasing function from floats to integers, as each of its
    operations is correctly rounded, with q(-m) = -q(m). The label is 1 if S = sum_i M_i > 0, else 0
    (a tie is 0): one function of the data. Sums over up to 10^4 members are below 2^30 in size, and
    exact.
    Let l_i(j) = q(lower_i(k_j)), the member's envelope (box.py), l_i(0) = M_i, and l_i(j) = -2^16
    where it ends. So for neighbours D, D' as a member sees them, q being monotone and -2^16 its
    least value,
        l_i(D, j) <= l_i(D', j-1)   for every j >= 1,                                                                   (1)
    and l_i(D, j) = l_i(D', j) for a member whose shard is the same (training/ensemble.py: bit for
    bit). Let
        F(D, b) = min over j_1 + ... + j_T <= b of sum_i l_i(D, j_i),
    the best allocation of b edits over the members: a max-plus convolution of the falls M_i - l_i.
    Say the label is 1, and one k of the relation changes at most m members (``Relation.touches``),
    B the largest b <= REACH with F(D, b') > 0 for every b' <= b, and L = floor(B / m).
    Step. Let D' be a neighbour of D. Then F(D', b) >= F(D, b + m): an allocation of b in D', with
    one more for each of the members that changed, is one of b + m at most in D, and by (1) its sum
    is no greater.
    Sound. D'' with k <= L: through k neighbours, F(D'', 0) >= F(D, m k) > 0, and F(D'', 0) is the
    sum in D''. 1-Lipschitz, with labels that differ only at L = 0. Let L(D) >= 1. Then S(D') =
    F(D', 0) >= F(D, m) > 0, so D' has the same label; and F(D', b) >= F(D, b + m) > 0 for b + m <=
    B, so B(D') >= B(D) - m and L(D') >= L(D) - 1. D is a neighbour of D' as well (condition g): if
    either has L >= 1, labels agree and distances are within 1; else both have L = 0. For label 0
    the same with every margin and envelope negated, and F >= 0 in the place of F > 0, as a tie is
    0. REACH is a public constant, and min(B, REACH) moves by no more than B does.
    Edits that a shard sees in halves (m = 2): of k edits let shard i lose a_i units and gain b_i,
    sum_i a_i <= k, sum_i b_i <= k. They are k neighbours one after another, as above, each of which
    touches two members at most.
    Single edits. Where one k replaces a unit, a linear head's envelope counts the edits of its
    shard one by one (see ``certified_vote``, constants included), (1) holding for each. A
    replacement is two edits, of two members or of one, and for that one l_i(D, j + 2) <= l_i(D', j)
    by (1) twice. So F(D', b) >= F(D, b + 2) as in the step above, and the rest follows with m = 2.
    Sound without a chain of neighbours: of k <= L replacements shard i sees a_i + b_i edits, those
    gone first, and these sum to 2 k <= B at most.
    In steps of a grid (``counting=index``) all of this holds with j counting steps, but for
    soundness, which is not asked. The convolution is computed exactly, in integers, over
    allocations of up to REACH.

Why not the larger of this distance and that of the vote of labels (votes.py)
    Where both votes give the same label, the larger of their distances is no distance, whatever
    label is given where they differ. Let the label of each vote be the sign of a number a, b (its
    distance + 1/2, signed), each of which moves by at most 1 per edit. From a = 5.5, b = 0.5 six
    edits may lead to a = -0.5, b = -5.5: both votes say 1 before and 0 afterwards, and the larger
    distance is 5 on both sides. It claims that 5 edits do not turn the label of the first, nor of
    the second; and distances that are 1-Lipschitz, and 0 wherever the label turns, need 11 edits
    from 5 to 5. Ensembles of three members do this (the tests have one): so an ensemble answers by
    one of the votes, chosen beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numba import njit

from agt.certificates.box import REACH, Envelope
from agt.certificates.stability import FARTHEST, ClosedForm, Levels
from agt.errors import ConfigError
from agt.settings import RelationName

SHOWN = 400  # distances of a vote that tables and curves list one by one


@dataclass(frozen=True)
class Vote:
    """The winners and their evidence.

    Attributes:
        prediction: [n] int64, the class with most votes, the smaller one on ties.
        distance: [n] int64, the stable distance of the vote.
        lipschitz: the distance changes by at most 1 between neighbours; without it no guarantee can
            rest on it.
    """

    prediction: np.ndarray
    distance: np.ndarray
    lipschitz: bool

    @classmethod
    def joined(cls, parts: Sequence["Vote"]) -> "Vote":
        """Of pieces of the queries, in their order; at least one."""
        prediction, distance = (
            np.concatenate(each)
            for each in zip(*((v.prediction, v.distance) for v in parts), strict=True)
        )
        return cls(prediction, distance, all(part.lipschitz for part in parts))


@dataclass(frozen=True, repr=False)
class VoteCertificates(ClosedForm):
    """Certificates of the vote, and what other ways of voting need.

    Attributes:
        steps: [n] int64, the vote's distance with each member's counted in steps of its grid
            (``counting=index``).
        members: [T, n] int64, each member's label.
        member_distances: [T, n] int64, each member's stable distance.
        plurality: [n] int64, the label that most members give: the prediction, unless that is by
            margins.
        tally: int64, what noise is added to: [n] |n1 - n0| of two classes' votes, [n, C] the votes
            for each of more.
        by_margins: prediction, distances and steps are of the members' margins, all else of their
            labels.
    """

    steps: np.ndarray
    members: np.ndarray
    member_distances: np.ndarray
    plurality: np.ndarray
    tally: np.ndarray
    by_margins: bool = False

    @classmethod
    def of_members(
        cls,
        relation: RelationName,
        by_distance: Vote,
        by_steps: Vote,
        members: np.ndarray,
        member_distances: np.ndarray,
        classes: int,
    ) -> "VoteCertificates":
        """Of a vote of labels [T, n] of members with these distances [T, n]."""
        ks, label, distance = (
            _ks(int(by_distance.distance.max(initial=0))),
            by_distance.prediction,
            by_distance.distance,
        )
        certified = cast(np.ndarray, Levels(ks, np.ones(len(distance), dtype=bool), distance))
        counts, steps = count_votes(members, classes), by_steps.distance
        tally = abs(counts[1] - counts[0]) if classes == 2 else np.ascontiguousarray(counts.T)
        return cls(
            ks, relation, label, certified, distance, steps, members, member_distances, label, tally
        )

    @property
    def grid_steps(self) -> np.ndarray:
        """[n] int64: of the vote, each member's counted in steps of its own grid."""
        return self.steps

    def with_margins(self, by_distance: Vote, by_steps: Vote) -> "VoteCertificates":
        """The same members, voting by their margins: with each record, and each step of the
        grid, counted.
        """
        ks, distance = _ks(int(by_distance.distance.max(initial=0))), by_distance.distance
        certified = cast(np.ndarray, Levels(ks, np.ones(len(distance), dtype=bool), distance))
        known = replace(
            self, ks=ks, prediction=by_distance.prediction, certified=certified, distance=distance
        )
        return replace(known, steps=by_steps.distance, by_margins=True)


def _ks(longest: int) -> tuple[int, ...]:
    """What tables list: every k up to the longest distance, or evenly spaced ones if those are
    too many.
    """
    step = max(1, -(-longest // SHOWN))
    return (*range(0, longest, step), max(longest, 1))


def certified_vote(
    labels: np.ndarray,
    distances: np.ndarray,
    classes: int = 2,
    *,
    touches: int,
    prices: np.ndarray | None = None,
) -> Vote:
    """The plurality vote with its stable distance.

    Args:
        labels: [T, n] integers 0..C-1, each member's label of each query.
        distances: [T, n] integers >= 0, each member's stable distances.
        touches: m, how many members one k of the relation can change (``Relation.touches``).
        prices: [C, T, n] integers, A_i(u): edits without which no member answers so, of other
            classes than its own at least ``distances + 1``, and that of one; None: that of each.

    Raises:
        ConfigError: shapes or values do not fit.
    """
    if touches < 1:
        raise ConfigError(f"ensemble: one k changes at least one member, got touches={touches}")
    labels, distances = checked_members(labels, distances, classes)
    if prices is not None and (
        prices.shape != (classes, *labels.shape) or prices.dtype.kind not in "iu"
    ):
        raise ConfigError(
            f"ensemble: prices {prices.shape} must be integers [classes, members, queries]"
        )
    some, votes = max(1, _AT_ONCE // len(labels)), []
    for at in range(0, max(labels.shape[1], 1), some):
        few = slice(at, at + some)
        asked = None if prices is None else prices[:, :, few]
        winner, least = _cheapest_change(labels[:, few], distances[:, few] + 1, classes, asked)
        votes.append(_won(winner, least, touches))
    return Vote.joined(votes)


def _cheapest_change(
    labels: np.ndarray, cost: np.ndarray, classes: int, prices: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """([n] the winner, [n] F) of members' labels [T, n] and what it costs to turn each [T, n]."""
    counts = count_votes(labels, classes)
    winner, queries = counts.argmax(axis=0), np.arange(labels.shape[1])
    least = np.full(labels.shape[1], _NEVER)
    for rival in range(classes):
        gap = counts[winner, queries] - counts[rival] + (winner < rival)
        price = cost if prices is None else prices[rival]
        leaving, joining = labels == winner, (labels != winner) & (labels != rival)
        least = np.where(
            winner == rival, least, np.minimum(least, _price(cost, price, leaving, joining, gap))
        )
    return winner, least


def plain_vote(counts: np.ndarray, *, touches: int) -> Vote:
    """``certified_vote`` of members without certificates of their own: every distance is 0.

    Args:
        counts: [C, n] int64, votes for each class; at least one vote for each query.
        touches: as there.
    """
    winner, queries = counts.argmax(axis=0), np.arange(counts.shape[1])
    tie = winner < np.arange(len(counts))[:, None]  # goes to the winner
    gaps = counts[winner, queries] - counts + tie
    gaps[winner, queries] = np.iinfo(np.int64).max - 1
    return _won(winner, (gaps.min(axis=0) + 1) // 2, touches)


def _won(winner: np.ndarray, least: np.ndarray, touches: int) -> Vote:
    """The vote from F [n]."""
    return Vote(winner, (least - 1) // touches, lipschitz=True)  # ceil(F / m) - 1


def vote_counts(
    labels: np.ndarray, distances: np.ndarray, classes: int, voting: np.ndarray
) -> np.ndarray:
    """[C, n] votes for each class of the members that vote: ``voting`` [T, n].

    Raises ConfigError as ``certified_vote``.
    """
    labels, _ = checked_members(labels, distances, classes)
    return count_votes(np.where(voting, labels, -1), classes)


def count_votes(labels: np.ndarray, classes: int) -> np.ndarray:
    """[C, n] votes for each class."""
    return np.stack([(labels == c).sum(axis=0) for c in range(classes)]).astype(np.int64)


_NEVER = np.int64(2**60)  # the price of one voter more than there are
_AT_ONCE = 2**22  # members times queries


def _price(
    single: np.ndarray,
    double: np.ndarray,
    leaving: np.ndarray,
    joining: np.ndarray,
    gap: np.ndarray,
) -> np.ndarray:
    """[n]: the least price of closing the gap [n]: a member [T, n] of ``leaving`` shrinks it by 1
    for ``single``, by 2 for ``double``; one of ``joining`` by 1 for ``double``.
    """
    second = double - single
    halves, pairs = leaving & (second >= single), leaving & (second < single)
    units = _sums(
        np.sort(
            _of(
                np.concatenate([single, second, double]), np.concatenate([halves, halves, joining])
            ),
            axis=0,
        )
    )
    order = np.argsort(_of(double, pairs), axis=0, kind="stable")
    double, single, saved = (
        np.take_along_axis(each, order, axis=0)
        for each in (_of(double, pairs), _of(single, pairs), np.where(pairs, second, 0))
    )
    even, last = _sums(double), len(units) - 1
    # the cheapest single that is not among the first
    others = np.minimum.accumulate(single[::-1], axis=0)[::-1]
    odd = np.minimum(even[1:] - np.maximum.accumulate(saved, axis=0), even[:-1] + others)
    best = np.full(len(gap), _NEVER)
    for moved, some in ((0, even), (1, odd)):
        for count, price in enumerate(some):
            rest = np.clip(gap - 2 * count - moved, 0, last)
            best = np.minimum(best, price + np.take_along_axis(units, rest[None], axis=0)[0])
    return best


def _of(prices: np.ndarray, among: np.ndarray) -> np.ndarray:
    return np.where(among, prices, _NEVER)


def _sums(ordered: np.ndarray) -> np.ndarray:
    """[T+1, n]: the sum of the first j prices, ``_NEVER`` where there are fewer than j."""
    sums = np.where(
        ordered == _NEVER, _NEVER, np.where(ordered == _NEVER, 0, ordered).cumsum(axis=0)
    )
    return np.vstack([np.zeros(ordered.shape[1], dtype=np.int64), sums])


def checked_members(
    labels: np.ndarray, distances: np.ndarray, classes: int
) -> tuple[np.ndarray, np.ndarray]:
    labels, distances = np.asarray(labels), np.asarray(distances)
    if labels.ndim != 2 or labels.shape != distances.shape or not labels.shape[0]:
        raise ConfigError(
            f"ensemble: labels {labels.shape} and distances {distances.shape} must both be "
            "[members, queries], with at "
            "least one member"
        )
    if labels.dtype.kind not in "iu" or distances.dtype.kind not in "iu":
        raise ConfigError(
            f"ensemble: labels and distances must be integers, got {labels.dtype} and "
            f"{distances.dtype}"
        )
    if labels.size and (labels.min() < 0 or labels.max() >= classes):
        raise ConfigError(f"ensemble: labels must be 0..{classes - 1}")
    if distances.size and (distances.min() < 0 or distances.max() > FARTHEST):
        raise ConfigError(f"ensemble: stable distances must be between 0 and {FARTHEST}")
    return labels.astype(np.int64), distances.astype(np.int64)


QUANTA = 2**16  # of a clip: margins are sums of these
_FIRST = 64  # edits that are looked at before any more are


def rounded(margins: np.ndarray, clip: float) -> np.ndarray:
    """q: margins of any shape, infinite ones too -> int32 between -QUANTA and QUANTA."""
    return np.rint(np.clip(margins, -clip, clip) * (QUANTA / clip)).astype(np.int32)


def margin_labels(margins: Sequence[np.ndarray], clip: float) -> tuple[np.ndarray, np.ndarray]:
    """([n] int64 labels, [n] the mean of the clipped margins in units of the clip) of each
    member's margins [n].
    """
    total = np.stack([rounded(margin, clip) for margin in margins]).sum(axis=0, dtype=np.int64)
    return (total > 0).astype(np.int64), total / (QUANTA * len(margins))


def margin_vote(members: Sequence[Envelope], clip: float, *, touches: int) -> Vote:
    """The label of the summed margins with its stable distance, in whatever one row of the
    envelopes counts.

    Args:
        members: their envelopes, of the same queries and values of k.
        clip: c, a public constant: no member counts for more.
        touches: m, how many members one k of the relation can change (``Relation.touches``).

    Raises:
        ConfigError: no members, or members that differ in their values of k.
    """
    if touches < 1 or len({member.ks for member in members}) != 1:
        raise ConfigError(
            "ensemble: members must have the same values of k, and one k changes at least one "
            "member"
        )
    label, _ = margin_labels([member.margin for member in members], clip)
    rows = min(len(members[0].ks), REACH)
    # the last: beyond the envelope
    facing = np.full((len(label), len(members), rows + 2), -QUANTA, dtype=np.int32)
    for at, member in enumerate(members):
        low, high = (
            np.vstack([member.margin, bound[:rows]]) for bound in (member.lower, member.upper)
        )
        facing[:, at, :-1] = np.where(label, rounded(low, clip), -rounded(high, clip)).T
    edits = np.empty(len(label), dtype=np.int64)
    _withstood(facing, label, REACH, edits)
    return Vote(label, edits // touches, lipschitz=True)


@njit(cache=True)
def _withstood(facing, least, most, edits):  # type: ignore[no-untyped-def]
    """edits [n]: up to how many, ``most`` at most, every allocation leaves a sum of at least
    ``least`` [n].

    facing [n, T, J]: what is left of each member's margin after 0, 1, ..., J - 2 edits, and last
    -QUANTA, after more.
    """
    for query in range(len(facing)):
        reach = min(_FIRST, most)
        edits[query] = _reached(facing[query], least[query], reach)
        while edits[query] == reach < most:
            reach = min(4 * reach, most)
            edits[query] = _reached(facing[query], least[query], reach)


@njit(cache=True)
def _reached(left, least, reach):  # type: ignore[no-untyped-def]
    """The same of one query: left [T, J].

    A row that leaves no less than the one before it is worth no edit.
    """
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
