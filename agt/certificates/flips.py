"""Stable distances in flipped labels, exact: how many labels must change before a ridge
regression's answer does.

Formal guarantees
    Setting. Class c has the score s_c = sum_i [y_i = c] a_i, y_i being the labels of n records and
    a_i integers that no label enters (training/ridge.py, ``label_influence``); the answer is the least c of
    greatest score. Two classes have one score, sum_i (+-1) a_i = s_1 - s_0, and the answer 1 where
    it is > 0: the same.
    One rival. Let w be the answer, u another class, h = s_w - s_u. u beats w where h < [u < w];
    that is, h being an integer, where it has fallen by h + [w < u] at least, which is >= 1. Record
    i under another label z adds a_i ([z = w] - [z = u] - e_i) to h, e_i = [y_i = w] - [y_i = u].
    The least over all z is -g_i, g_i = |a_i| + e_i a_i: z = u does it where a_i > 0, z = w where
    a_i < 0, and where that is y_i already, g_i = 0. What one record does depends on no other's
    label, so r flips lower h by the sum of the r greatest g_i at most, and some r of them by just
    that. So the least number of flips after which u beats w is d_u: the least r for which that sum
    reaches h + [w < u]. Where none does, d_u is a number above n that no label enters and all
    members share.
    The answer is another where some u beats w. So d = min over u of d_u is the least number of
    flips that change it, and L = d - 1 is exact: no certificate for this learner is longer.
    1-Lipschitz. Let y' differ from y in one label. With the same answer, flips that turn y' turn y
    together with this one: d <= d' + 1, and if nothing turns the one, nothing turns the other, as
    both can be given the same labels. With another answer d = d' = 1, and L = 0 on both sides.
    A public record's label counts as one that may flip: distances are shorter by that, and all of
    this holds.
    Range. sum_i |a_i| <= 2^51.1 (agt/training/ridge.py): h, every g_i and every sum of them are
    integers below 2^53 in size, and so are all partial sums: exact in float64, in any order.
    Votes. Shards are disjoint, and a flip is in one of them. Let d_cu be the least number of flips
    after which u beats c, whatever the answer: a distance to a set of labels, so one flip moves it
    by at most 1 (and where nothing gets there, nothing does from a neighbour). A(u) = max over c of
    d_cu is 0 just where u is the answer, moves by at most 1, and u is answered only after A(u)
    flips at least: the prices that ``certified_vote`` asks for, with m = 1. With w the answer A(u)
    >= d_wu >= d, and the class that d flips lead to has A <= d: so the least A(u) is d. A single
    d_wu would not do: it may move by more where w does. Two classes have one price, and L is exact,
    as members are turned each by flips of its own; of more, a member may not get to u in A(u)
    flips, and L is a lower bound.

Source: method.md section 14; compare Rosenfeld et al. 2020 (certified robustness to label flips),
Levine and Feizi 2021.
"""

import numpy as np


def flips_to_beat(
    pulls: np.ndarray, given: np.ndarray, over: np.ndarray, classes: int, never: int
) -> np.ndarray:
    """[C, m] int64: of each query the least number of flips after which a class beats another, 0
    where it is that one.

    Args:
        pulls: [m, n] float64 integers, a_i of each query.
        given: [n] the records' labels.
        over: [m] which class is to be beaten.
        classes: how many there are.
        never: what the number is where no labels do it, above n.
    """
    least = np.zeros((classes, len(over)), dtype=np.int64)
    for rival in range(classes):
        rows = np.flatnonzero(over != rival)
        winner, pull = over[rows, None], pulls[rows]
        lead = ((given == winner).astype(np.int8) - (given == rival)) * pull
        need = lead.sum(axis=1, keepdims=True) + (winner < rival)
        gains = np.sort(np.abs(pull) + lead, axis=1)[:, ::-1].cumsum(axis=1)
        flips = (need[:, 0] > 0) * (1 + (gains < need).sum(axis=1))
        least[rival, rows] = np.where(flips > len(given), never, flips)
    return least


def of_others(prices: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """[m] the least of [C, m] prices of other classes than the answer."""
    return np.where(np.arange(len(prices))[:, None] == answers, np.iinfo(np.int64).max, prices).min(
        axis=0
    )


def flips_to_answer(pulls: np.ndarray, given: np.ndarray, classes: int, never: int) -> np.ndarray:
    """[C, m] int64: A(u). Arguments as above."""
    over = (np.full(len(pulls), c) for c in range(classes))
    return np.max([flips_to_beat(pulls, given, each, classes, never) for each in over], axis=0)
