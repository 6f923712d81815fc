"""Stable distances in flipped labels, exact: how many labels must change before a ridge regression's answer does.

Formal guarantees
    Setting. Class c has the score s_c = sum_i [y_i = c] a_i, y_i being the labels of n records and a_i integers that no
    label enters (training/ridge.py, ``pulls``); the answer is the least c of greatest score. Two classes have one score,
    sum_i (+-1) a_i = s_1 - s_0, and the answer 1 where it is > 0: the same.
    One rival. Let w be the answer, u another class, h = s_w - s_u. u beats w where h < [u < w]; that is, h being an
    integer, where it has fallen by h + [w < u] at least, which is >= 1. Record i under another label z adds
    a_i ([z = w] - [z = u] - e_i) to h, e_i = [y_i = w] - [y_i = u]. The least over all z is -g_i, g_i = |a_i| + e_i a_i:
    z = u does it where a_i > 0, z = w where a_i < 0, and where that is y_i already, g_i = 0. What one record does depends
    on no other's label, so r flips lower h by the sum of the r greatest g_i at most, and some r of them by just that. So
    the least number of flips after which u beats w is d_u: the least r for which that sum reaches h + [w < u]. Where none
    does, d_u is a number above n that no label enters and all members share.
    The answer is another where some u beats w. So d = min over u of d_u is the least number of flips that change it, and
    L = d - 1 is exact: no certificate for this learner is longer.
    1-Lipschitz. Let y' differ from y in one label. With the same answer, flips that turn y' turn y together with this one:
    d <= d' + 1, and if nothing turns the one, nothing turns the other, as both can be given the same labels. With another
    answer d = d' = 1, and L = 0 on both sides.
    A public record's label counts as one that may flip: distances are shorter by that, and all of this holds.
    Range. sum_i |a_i| <= 2^51.1 (ridge.py): h, every g_i and every sum of them are integers below 2^53 in size, and so are
    all partial sums: exact in float64, in any order.
    Votes. Shards are disjoint, a flip is in one of them, and d_j is member j's. ``certified_vote`` with costs c_j = d_j and
    m = 1 is sound and 1-Lipschitz: its proof asks of c_j what is shown here. Of two classes it is exact, as a member that
    turns can turn one way only and members are turned each by flips of its own; of more classes a member's d_j may be the
    price of another rival than the one that the vote is turned to, and L is a lower bound.

Source: method.md section 14; compare Rosenfeld et al. 2020 (certified robustness to label flips), Levine and Feizi 2021.
"""

import numpy as np


def flips_to_turn(pulls: np.ndarray, given: np.ndarray, answers: np.ndarray, classes: int, never: int) -> np.ndarray:
    """[m] int64: d of each query.

    Args:
        pulls: [m, n] float64 integers, a_i of each query.
        given: [n] the records' labels.
        answers: [m] what each query is answered.
        classes: how many there are.
        never: what d is where no labels change the answer, above n.
    """
    least = np.full(len(answers), never, dtype=np.int64)
    for rival in range(classes):
        rows = np.flatnonzero(answers != rival)
        winner, pull = answers[rows, None], pulls[rows]
        lead = ((given == winner).astype(np.int8) - (given == rival)) * pull
        need = lead.sum(axis=1, keepdims=True) + (winner < rival)
        gains = np.sort(np.abs(pull) + lead, axis=1)[:, ::-1].cumsum(axis=1)
        flips = 1 + (gains < need).sum(axis=1)
        least[rows] = np.where(flips > len(given), least[rows], np.minimum(least[rows], flips))
    return least
