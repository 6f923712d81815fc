"""The CPU kernel: Numba, parallel over (k, output) rows, vectorised, compiled once and cached on
disk.

No fast-math: each product, comparison and rounding is the reference's own, in the same order, so
both kernels return the same integers. Sums are int64, and exact (reference.py): a product v,
clipped to at most 2^30 in size, plus ``_MAGIC`` lies between 2^52 and 2^53, where neighbouring
floats are 1 apart. So adding it rounds v to the nearest integer, ties to even, and the bits of the
sum, as an integer, are those of ``_MAGIC`` plus that integer.

Formal guarantees
    Left out. A gradient bounded by [0, 0] adds 0 to both sums, whatever x, which is finite.
    Ends. Let a <= b and p <= q. If p >= 0, then p a <= p b and q a <= q b: the least of the four
    corner products is among p a and q a, the greatest among p b and q b. If q <= 0, with a and b
    swapped. If p < 0 < q, then p b <= p a and q a <= q b: the least is among p b and q a, the
    greatest among p a and q b. If a >= 0 as well, the least is p a or p b by the sign of p, and the
    greatest q b or q a by the sign of q. A product as rounded is monotone in each factor: so the
    least and the greatest of all four, as rounded, are the same numbers. Sums of gradients are thus
    the reference's, to the bit; products of matrices add their terms in an order that the record's
    own signs decide, within tau for any order (bounds/rounding.py), and so the same for a record
    alone and in company.
    Single precision. Factors are float32, their products and sums float64, and a sum is rounded to
    float32 at the end. With u = 2^-24 and A the greatest sum of the terms' sizes, the sum errs by
    at most 2 n u^2 A, and its rounding by at most u (1 + 2 n u^2) A or the least normal number:
    less than ``Rounding.of_sum``'s tau = 4 (n + 10) u A + (8 n + 10) tiny.
    Rounding is monotone: the ends stay in order, and a sum too great for float32 is infinite, which
    ``Interval`` refuses.

The selection keeps, for each parameter, the c least values seen so far. A block of records is first
filtered against a threshold (the c-th least so far, or a guess from a sample that everything passes
if too few do), and the survivors' c-th least value is found by bisection on integers. Whatever the
guess was, the result is exact. Kept values are int32: they and their negatives are at most 2^30 in
size, and ``_TOP``, above them all, is 2^30 + 1. What is held and what is new are different records
of one batch, so counts of them are at most 2^30, within int32 as well.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numba import float64, get_num_threads, int64, njit, prange
from numba.extending import intrinsic
from torch import Tensor

from agt.bounds.interval import Interval
from agt.bounds.products import PRODUCTS, Products, linear_nonnegative, linear_point, relu_backward
from agt.kernels.reference import EMPTY_SLOT, RUMP_ROUNDINGS, Extremes, ReferenceKernel
from agt.numeric import UNIT
from agt.settings import QUANTA

_NARROW = 16  # inputs, or outputs: fewer are not worth vectorising over
_TILE_BYTES = 1 << 18  # a tile of x stays in a core's second-level cache
_Q = float(QUANTA)
_MAGIC = 1.5 * 2.0**52  # adding and subtracting it rounds to the nearest integer, ties to even
_ZERO = np.float64(_MAGIC).view(np.int64)
_RUMP_SLACK = 2 * RUMP_ROUNDINGS * UNIT
_TOP = np.int32(QUANTA + 1)  # above every value
_BOTTOM = np.int32(-QUANTA - 1)  # below every value
_COLUMN = 8  # values of a selection looked at together: about one in thirty is kept
_LANES = 64  # a power of 2: values that a vectorised loop takes at once


@njit(inline="always")
def _clip(v):  # type: ignore[no-untyped-def]
    return min(max(v, -_Q), _Q)


@njit(inline="always")
def _quantise(v):  # type: ignore[no-untyped-def]
    return (_clip(v) + _MAGIC) - _MAGIC


@intrinsic
def _bits(context, v):  # type: ignore[no-untyped-def]
    """A float64's bits, as an int64."""
    return int64(float64), lambda target, builder, signature, values: builder.bitcast(
        values[0], target.get_value_type(int64)
    )


@njit(inline="always")
def _whole(v):  # type: ignore[no-untyped-def]
    """``_quantise`` as an int64, for |v| <= _Q."""
    return _bits(v + _MAGIC) - _ZERO


@njit(inline="always")
def _corners(p, q, a, b, rump):  # type: ignore[no-untyped-def]
    """Bounds on [p, q] * [a, b]: four corners, or midpoint-radius as in ``reference.outer``."""
    if rump:
        mid, rad, x_mid, x_rad = (p + q) / 2, (q - p) / 2, (a + b) / 2, (b - a) / 2
        spread = abs(mid) * x_rad + rad * (abs(x_mid) + x_rad)
        spread = spread + (max(abs(p), abs(q)) * max(abs(a), abs(b))) * _RUMP_SLACK
        # it overflowed, as it does wherever the centre does: anything, never NaN
        if not spread < np.inf:
            return -np.inf, np.inf
        return mid * x_mid - spread, mid * x_mid + spread
    c1, c2, c3, c4 = a * p, a * q, b * p, b * q
    return min(min(c1, c2), min(c3, c4)), max(max(c1, c2), max(c3, c4))


@njit
def _room(tile):  # type: ignore[no-untyped-def]
    """Two lists of records (unsigned: an index that may be negative costs a comparison), and two
    of factors.
    """
    return (
        np.empty(tile + 3, np.uint64),
        np.empty(tile + 3, np.uint64),
        np.empty(tile + 3),
        np.empty(tile + 3),
    )


@njit
def _filled(a, b, p, q, found):  # type: ignore[no-untyped-def]
    """Fill the lists up to a multiple of 4 by records that add 0. Returns their length."""
    for j in range(found, found + 3):
        a[j], b[j], p[j], q[j] = 0, 0, 0.0, 0.0
    return (found + 3) & -4


@njit
def _clips(a, b, p, q, j, norms):  # type: ignore[no-untyped-def]
    """True if a product of one of four records may be beyond the clip."""
    greatest = 0.0
    for t in range(j, j + 4):
        greatest = max(greatest, max(abs(p[t]) * norms[a[t]], abs(q[t]) * norms[b[t]]))
    return not greatest <= _Q


@njit
def _add_point(low, high, x, norms, a, p, q, count):  # type: ignore[no-untyped-def]
    """low, high [in] += the quantised bounds of [p, q] x for the listed records; x [n, in] of
    any sign.
    """
    for j in range(0, count, 4):
        if _clips(a, a, p, q, j, norms):
            for t in range(j, j + 4):
                s, u, v = a[t], p[t], q[t]
                for i in range(len(low)):
                    low[i] += _whole(_clip(min(x[s, i] * u, x[s, i] * v)))
                    high[i] += _whole(_clip(max(x[s, i] * u, x[s, i] * v)))
            continue
        s0, s1, s2, s3 = a[j], a[j + 1], a[j + 2], a[j + 3]
        p0, p1, p2, p3, q0, q1, q2, q3 = (
            p[j],
            p[j + 1],
            p[j + 2],
            p[j + 3],
            q[j],
            q[j + 1],
            q[j + 2],
            q[j + 3],
        )
        for i in range(len(low)):
            u0, u1, u2, u3 = x[s0, i] * p0, x[s1, i] * p1, x[s2, i] * p2, x[s3, i] * p3
            v0, v1, v2, v3 = x[s0, i] * q0, x[s1, i] * q1, x[s2, i] * q2, x[s3, i] * q3
            low[i] += (_whole(min(u0, v0)) + _whole(min(u1, v1))) + (
                _whole(min(u2, v2)) + _whole(min(u3, v3))
            )
            high[i] += (_whole(max(u0, v0)) + _whole(max(u1, v1))) + (
                _whole(max(u2, v2)) + _whole(max(u3, v3))
            )


@njit
def _add_rows(total, x, norms, a, p, count):  # type: ignore[no-untyped-def]
    """total [in] += quantised p x for the listed rows; x [rows, in]."""
    for j in range(0, count, 4):
        if _clips(a, a, p, p, j, norms):
            for t in range(j, j + 4):
                s, u = a[t], p[t]
                for i in range(len(total)):
                    total[i] += _whole(_clip(x[s, i] * u))
            continue
        s0, s1, s2, s3, p0, p1, p2, p3 = (
            a[j],
            a[j + 1],
            a[j + 2],
            a[j + 3],
            p[j],
            p[j + 1],
            p[j + 2],
            p[j + 3],
        )
        for i in range(len(total)):
            total[i] += (_whole(x[s0, i] * p0) + _whole(x[s1, i] * p1)) + (
                _whole(x[s2, i] * p2) + _whole(x[s3, i] * p3)
            )


# A record whose d is 0 adds 0 to every sum and is left out: of those behind a ReLU, half are dead.


@njit(parallel=True, cache=True)
def _sum_point(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """low, high [K * out, in] += sums over records of quantised bounds.

    lower, upper [K, n, out]; x [n, in]; norms [n]: max |x|.
    """
    ks, n, outputs = lower.shape
    rows = ks * outputs
    for thread in prange(threads):
        a, b, p, q = _room(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k, o, count = r // outputs, r % outputs, 0
                for s in range(start, min(n, start + tile)):
                    a[count], p[count], q[count] = s, lower[k, s, o], upper[k, s, o]
                    count += (p[count] != 0) | (q[count] != 0)
                _add_point(low[r], high[r], x, norms, a, p, q, _filled(a, b, p, q, count))


@njit(parallel=True, cache=True)
def _sum_nominal(d, x, norms, tile, threads, total):  # type: ignore[no-untyped-def]
    """total [out, in] += sum over records of the quantised products; d [n, out], x [n, in]."""
    n, rows = d.shape
    for thread in prange(threads):
        a, b, p, q = _room(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                count = 0
                for s in range(start, min(n, start + tile)):
                    a[count], p[count] = s, d[s, r]
                    count += d[s, r] != 0
                _add_rows(total[r], x, norms, a, p, _filled(a, b, p, q, count))


@njit(parallel=True, cache=True)
def _sum_nonnegative(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """``_sum_point`` for intervals x >= 0, as behind a ReLU: the sign of d alone says which end of
    x counts.

    x [K or 1, 2n, in]: the lower ends of all records and then the upper ones; norms [K or 1, 2n].
    """
    ks, n, outputs = lower.shape
    rows = ks * outputs
    for thread in prange(threads):
        a, b, p, q = _room(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k, o, source, count = r // outputs, r % outputs, r // outputs % len(x), 0
                for s in range(start, min(n, start + tile)):
                    u, v = lower[k, s, o], upper[k, s, o]
                    p[count], q[count], a[count], b[count] = u, v, s + n * (u < 0), s + n * (v > 0)
                    count += (u != 0) | (v != 0)
                count = _filled(a, b, p, q, count)
                _add_rows(low[r], x[source], norms[source], a, p, count)
                _add_rows(high[r], x[source], norms[source], b, q, count)


@njit(parallel=True, cache=True)
def _sum_wide(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """``_sum_point`` vectorised over outputs, for layers with more outputs than inputs.

    lower, upper [K, n, out]; x [in, n]; norms [K, n]: max |d|; low, high [K * in, out]. One sign of
    x holds for the whole inner loop, so that it says which end is the least.
    """
    width, n = x.shape
    outputs = lower.shape[2]
    rows = len(lower) * width
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k, out_low, out_high = r // width, low[r], high[r]
                for s in range(start, stop):
                    v = x[r % width, s]
                    least, greatest = (
                        (lower[k, s], upper[k, s]) if v >= 0 else (upper[k, s], lower[k, s])
                    )
                    if abs(v) * norms[k, s] <= _Q:  # nothing to clip
                        for j in range(outputs):
                            out_low[j] += _whole(v * least[j])
                            out_high[j] += _whole(v * greatest[j])
                    else:
                        for j in range(outputs):
                            out_low[j] += _whole(_clip(v * least[j]))
                            out_high[j] += _whole(_clip(v * greatest[j]))


@njit(parallel=True, cache=True)
def _sum_interval(lower, upper, x_lower, x_upper, rump, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """The same for intervals x [K, n, in] of any sign."""
    ks, n, outputs = lower.shape
    rows = ks * outputs
    width = x_lower.shape[2]
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                out_low, out_high = low[r], high[r]
                k, o = r // outputs, r % outputs
                xl, xu = x_lower[k % len(x_lower)], x_upper[k % len(x_lower)]
                for s in range(start, stop):
                    p, q = lower[k, s, o], upper[k, s, o]
                    for i in range(width):
                        least, greatest = _corners(p, q, xl[s, i], xu[s, i], rump)
                        out_low[i] += _whole(_clip(least))
                        out_high[i] += _whole(_clip(greatest))


@njit
def _add_corners(low, high, lower, upper, i, p, q):  # type: ignore[no-untyped-def]
    """low, high [out] += the least and the greatest corner products of [p, q] and row i of
    [lower, upper] [in, out].
    """
    for o in range(len(low)):
        least, greatest = _corners(p, q, lower[i, o], upper[i, o], False)
        low[o] += least
        high[o] += greatest


@njit
def _add_definite(low, high, lower, upper, rows, p, q, count):  # type: ignore[no-untyped-def]
    """The same for the listed rows, as far as they go by fours, where p >= 0; for q <= 0, with
    lower and upper swapped.
    """
    for j in range(0, count - 3, 4):
        i0, i1, i2, i3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        p0, p1, p2, p3, q0, q1, q2, q3 = (
            p[j],
            p[j + 1],
            p[j + 2],
            p[j + 3],
            q[j],
            q[j + 1],
            q[j + 2],
            q[j + 3],
        )
        for o in range(len(low)):
            a0, a1, a2, a3 = lower[i0, o], lower[i1, o], lower[i2, o], lower[i3, o]
            b0, b1, b2, b3 = upper[i0, o], upper[i1, o], upper[i2, o], upper[i3, o]
            low[o] += (min(p0 * a0, q0 * a0) + min(p1 * a1, q1 * a1)) + (
                min(p2 * a2, q2 * a2) + min(p3 * a3, q3 * a3)
            )
            high[o] += (max(p0 * b0, q0 * b0) + max(p1 * b1, q1 * b1)) + (
                max(p2 * b2, q2 * b2) + max(p3 * b3, q3 * b3)
            )


@njit
def _add_mixed(low, high, lower, upper, rows, p, q, count):  # type: ignore[no-untyped-def]
    """The same where p < 0 < q."""
    for j in range(0, count - 3, 4):
        i0, i1, i2, i3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        p0, p1, p2, p3, q0, q1, q2, q3 = (
            p[j],
            p[j + 1],
            p[j + 2],
            p[j + 3],
            q[j],
            q[j + 1],
            q[j + 2],
            q[j + 3],
        )
        for o in range(len(low)):
            a0, a1, a2, a3 = lower[i0, o], lower[i1, o], lower[i2, o], lower[i3, o]
            b0, b1, b2, b3 = upper[i0, o], upper[i1, o], upper[i2, o], upper[i3, o]
            low[o] += (min(p0 * b0, q0 * a0) + min(p1 * b1, q1 * a1)) + (
                min(p2 * b2, q2 * a2) + min(p3 * b3, q3 * a3)
            )
            high[o] += (max(p0 * a0, q0 * b0) + max(p1 * a1, q1 * b1)) + (
                max(p2 * a2, q2 * b2) + max(p3 * a3, q3 * b3)
            )


@njit(parallel=True, cache=True)
def _corner_product(x_lower, x_upper, w_lower, w_upper, block, low, high):  # type: ignore[no-untyped-def]
    """low, high [K, n, out] = sums over i of the least and the greatest corner product, for x of
    any sign.

    x: [1 or K, n, in]; w: [K, in, out], so that the innermost loop runs along outputs. A sign of x
    that is sure says which end of w makes the least product, and the greatest. Where x is 0, as
    half of it is behind a ReLU, so is the term.
    """
    ks, n = low.shape[:2]
    width = x_lower.shape[2]
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k, start = job // blocks, (job % blocks) * block
        xl, xu, wl, wu = (
            x_lower[k % len(x_lower)],
            x_upper[k % len(x_lower)],
            w_lower[k],
            w_upper[k],
        )
        rows, p, q = np.empty(width, np.uint64), np.empty(width), np.empty(width)
        for s in range(start, min(n, start + block)):
            out_low, out_high = low[k, s], high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(width if width < 4 else 0):  # too few for lists
                _add_corners(out_low, out_high, wl, wu, i, xl[s, i], xu[s, i])
            for case in range(0 if width < 4 else 3):  # positive, negative, of either sign
                count = 0
                for i in range(width):
                    u, v = xl[s, i], xu[s, i]
                    rows[count], p[count], q[count] = i, u, v
                    if case == 0:
                        count += (u >= 0) & (v > 0)
                    elif case == 1:
                        count += (u < 0) & (v <= 0)
                    else:
                        count += (u < 0) & (v > 0)
                if case == 0:
                    _add_definite(out_low, out_high, wl, wu, rows, p, q, count)
                elif case == 1:
                    _add_definite(out_low, out_high, wu, wl, rows, p, q, count)
                else:
                    _add_mixed(out_low, out_high, wl, wu, rows, p, q, count)
                for j in range(count & -4, count):
                    _add_corners(out_low, out_high, wl, wu, rows[j], p[j], q[j])


@njit(parallel=True, cache=True)
def _point_product(x, lower, upper, block, low, high):  # type: ignore[no-untyped-def]
    """low, high [K, n, out] = x W^T; x [n, in] of any sign, which picks the end of lower and
    upper [K, in, out].
    """
    ks, n, outputs = low.shape
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k, start = job // blocks, (job % blocks) * block
        for s in range(start, min(n, start + block)):
            out_low, out_high = low[k, s], high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(x.shape[1]):
                v = x[s, i]
                least, greatest = (
                    (lower[k, i], upper[k, i]) if v >= 0 else (upper[k, i], lower[k, i])
                )
                for o in range(outputs):
                    out_low[o] += v * least[o]
                    out_high[o] += v * greatest[o]


@njit(parallel=True, cache=True)
def _relu_backward(lower, upper, x_lower, x_upper):  # type: ignore[no-untyped-def]
    """Overwrites d = [lower, upper] with its product with ReLU's derivative at x; all [rows,
    width].
    """
    for r in prange(len(lower)):
        for i in range(lower.shape[1]):
            alive = x_upper[r, i] > 0
            sure = x_lower[r, i] > 0
            p, q = lower[r, i], upper[r, i]
            lower[r, i] = (p if sure else min(p, 0.0)) if alive else 0.0
            upper[r, i] = (q if sure else max(q, 0.0)) if alive else 0.0


@njit(parallel=True, cache=True)
def _outward(lower, upper, slack):  # type: ignore[no-untyped-def]
    """lower, upper [rows, width] -+ slack [rows], in place; True if lower <= upper, all finite."""
    wrong = 0
    for r in prange(len(lower)):
        bad = 0
        for i in range(lower.shape[1]):
            p, q = lower[r, i] - slack[r], upper[r, i] + slack[r]
            lower[r, i], upper[r, i] = p, q
            # false for a NaN or an infinity in either, as in Interval
            bad += 0 if 0 <= q - p < np.inf else 1
        wrong += bad
    return wrong == 0


@njit(cache=True)
def _rank_value(values, count, rank):  # type: ignore[no-untyped-def]
    """The rank-th least (from 1) of values[:count], by bisection on integers in [-Q, Q + 1].

    values has room up to a multiple of ``_LANES``, and is filled up to there, so that no loop has a
    remainder.
    """
    full = (count + _LANES - 1) & -_LANES
    for s in range(count, full):
        values[s] = _TOP
    low, high = np.int64(-QUANTA), np.int64(QUANTA + 1)
    while low < high:
        middle = (low + high) >> 1
        pivot = np.int32(middle)
        below = np.int32(0)
        for s in range(full):
            below += np.int32(values[s] <= pivot)
        if below == rank:  # the greatest of those
            greatest = _BOTTOM
            for s in range(full):
                greatest = max(greatest, values[s] if values[s] <= pivot else _BOTTOM)
            return greatest
        if below > rank:
            high = middle
        else:
            low = middle + 1
    return np.int32(low)


@njit(cache=True)
def _guess(values, n, missing, sample):  # type: ignore[no-untyped-def]
    """A threshold below which values[:n] are likely to have ``missing`` values or a few more,
    from a sample of them.
    """
    size = len(sample)
    share = size * missing / n
    rank = int(share + 3.0 * np.sqrt(share) + 3.0)
    if n < 4 * size or rank >= size:
        return _TOP
    step = n // size
    for s in range(size):
        sample[s] = values[s * step]
    return _rank_value(sample, size, rank)


@njit(cache=True)
def _take_below(values, n, threshold, pool, total, lows, hits):  # type: ignore[no-untyped-def]
    """Append to pool[:total] those of values[:n] below the threshold. Returns its new length.

    Few are: values are looked at in columns of ``_COLUMN``, the least of each first, which
    vectorises over columns.
    lows, hits: scratch, one for each column.
    """
    columns = n // _COLUMN
    for c in range(columns):
        lows[c] = values[c]
    for j in range(1, _COLUMN):
        for c in range(columns):
            lows[c] = min(lows[c], values[j * columns + c])
    found = 0
    for c in range(columns):
        hits[found] = c
        found += lows[c] < threshold
    for h in range(found):
        for j in range(_COLUMN):
            value = values[hits[h] + j * columns]
            pool[total] = value
            total += value < threshold
    for s in range(_COLUMN * columns, n):
        pool[total] = values[s]
        total += values[s] < threshold
    return total


@njit(cache=True)
def _keep_least(values, n, count, kept, held, pool, sample, lows, hits):  # type: ignore[no-untyped-def]
    """Merge values[:n] into kept[:held], keeping the ``count`` least of all. Returns how many are
    held now.

    pool: scratch of at least len(kept) + n, rounded up to ``_LANES``. kept's last element is the
    greatest held, once full.
    """
    for s in range(held):
        pool[s] = kept[s]
    threshold = kept[count - 1] if held == count else _guess(values, n, count - held, sample)
    total = _take_below(values, n, threshold, pool, held, lows, hits)
    if held < count and threshold < _TOP:
        below = total - held
        for s in range(held):
            below += kept[s] < threshold
        if below < count:  # the sample misled, one left out may be among the least: take everything
            total = _take_below(values, n, _TOP, pool, held, lows, hits)
    if held == count == total:
        return count
    if total < count:
        for s in range(held, total):
            kept[s] = pool[s]
        return total
    cut = _rank_value(pool, total, count)
    filled = 0
    for s in range(total):  # fewer than ``count`` are below the cut
        kept[filled] = pool[s]
        filled += pool[s] < cut
    for s in range(filled, count):
        kept[s] = cut
    return count


@njit(parallel=True, cache=True)
def _select(lower, upper, xl, xu, counts, outputs, point, capped, rump, held, greatest, least):  # type: ignore[no-untyped-def]
    """Merge a block into the kept extremes.

    lower, upper: [R, n] with rows (k, output). xl, xu: [1 or K, in, n]. counts: [K]. held: [R, in].
    greatest, least: [R, in, c]; ``greatest`` holds negated lower bounds, so that both keep the
    least. point: xl is xu.
    """
    rows, n = lower.shape
    width = xl.shape[1]
    room = least.shape[2] + n + _LANES
    for r in prange(rows):
        k = r // outputs
        count = counts[k]
        if count == 0:
            continue
        source = k if xl.shape[0] > 1 else 0
        down, up = np.empty(n, np.int32), np.empty(n, np.int32)
        pool, sample = np.empty(room, np.int32), np.empty(4 * _LANES, np.int32)
        lows, hits = np.empty(n // _COLUMN + 1, np.int32), np.empty(n // _COLUMN + 1, np.int32)
        p, q = lower[r], upper[r]
        for i in range(width):
            a, b = xl[source, i], xu[source, i]
            if point:
                for s in range(n):
                    c, d = a[s] * p[s], a[s] * q[s]
                    down[s], up[s] = np.int32(-_quantise(min(c, d))), np.int32(_quantise(max(c, d)))
            else:
                for s in range(n):
                    lowest, highest = _corners(p[s], q[s], a[s], b[s], rump)
                    down[s], up[s] = np.int32(-_quantise(lowest)), np.int32(_quantise(highest))
            if capped:
                for s in range(n):
                    down[s] = min(down[s], np.int32(0))
                    up[s] = min(up[s], np.int32(0))
            before = held[r, i]
            _keep_least(down, n, count, greatest[r, i], before, pool, sample, lows, hits)
            held[r, i] = _keep_least(up, n, count, least[r, i], before, pool, sample, lows, hits)


class CpuKernel(ReferenceKernel):
    """The reference kernel with everything but nominal sums of biases by Numba: those have
    nothing to multiply.
    """

    name = "cpu"

    def nominal_sum(self, d: Tensor, x: Tensor | None) -> Tensor:
        if x is None:
            return super().nominal_sum(d, None)
        total, part = np.zeros((d.shape[1], x.shape[1]), np.int64), _array(x)
        _sum_nominal(_array(d), part, _inf_norms(x), _tile(part.shape[1]), get_num_threads(), total)
        return torch.from_numpy(total)

    def bound_sum(self, d: Interval, x: Interval | None, product: str) -> tuple[Tensor, Tensor]:
        if x is None:  # a bias is the weight of an input that is always 1
            lower, upper = self._sum_wide(d, np.ones((1, d.shape[1])), np.full(d.shape[:2], np.inf))
            return lower[..., 0], upper[..., 0]
        if x.is_point and x.shape[2] < min(_NARROW, d.shape[2]):
            return self._sum_wide(d, _array(x.lower[0].mT), _array(d.inf_norm()[..., 0]))
        return self._sum_rows(d, x, product == "rump")

    def _sum_wide(self, d: Interval, x: np.ndarray, norms: np.ndarray) -> tuple[Tensor, Tensor]:
        """``bound_sum`` vectorised over outputs; x [in, n].

        Looking for what a bias clips would be half of its work.
        """
        ks, _, outputs = d.shape
        low, high = (np.zeros((ks, len(x), outputs), np.int64) for _ in range(2))
        ends, sums = (
            (_array(d.lower), _array(d.upper)),
            (t.reshape(-1, outputs) for t in (low, high)),
        )
        _sum_wide(*ends, x, norms, _tile(2 * outputs), get_num_threads(), *sums)
        return torch.from_numpy(low).mT, torch.from_numpy(high).mT

    def _sum_rows(self, d: Interval, x: Interval, rump: bool) -> tuple[Tensor, Tensor]:
        """``bound_sum`` vectorised over inputs."""
        (ks, _, outputs), inputs, threads = d.shape, x.shape[2], get_num_threads()
        sums = [np.zeros((ks * outputs, inputs), np.int64) for _ in range(2)]
        at = _array(d.lower), _array(d.upper)
        if x.is_point:
            _sum_point(
                *at, _array(x.lower[0]), _inf_norms(x.lower[0]), _tile(inputs), threads, *sums
            )
        elif rump or outputs < _NARROW or float(x.lower.min()) < 0:
            ends = _array(x.lower), _array(x.upper)
            _sum_interval(*at, *ends, rump, _tile(2 * inputs), threads, *sums)
        else:
            both = torch.cat((x.lower, x.upper), dim=1)
            _sum_nonnegative(
                *at, both.numpy(), _array(both.amax(dim=-1)), _tile(2 * inputs), threads, *sums
            )
        low, high = (torch.from_numpy(total).view(ks, outputs, inputs) for total in sums)
        return low, high

    def extremes(
        self, counts: Tensor, shape: tuple[int, ...], capped: bool, product: str
    ) -> Extremes:
        return CpuExtremes(counts, shape, capped, product == "rump")

    def products(self, product: str) -> Products:
        return replace(
            PRODUCTS[product],
            corners=self.corner_product,
            nonnegative=self.nonnegative_product,
            point=self.point_product,
            relu_backward=self.relu_backward,
        )

    def corner_product(self, x: Interval, weights: Interval) -> tuple[Tensor, Tensor]:
        """``linear_corners``."""
        if x.lower.dtype != torch.float64:  # the terms in float64, their sum rounded once
            ends = self.corner_product(x.double(), weights.double())
            return ends[0].to(x.lower.dtype), ends[1].to(x.lower.dtype)
        if x.lower.dim() > 3:  # matrices of each record: as many as there would be of each k
            front = np.broadcast_shapes(x.shape[:-2], weights.shape[:-2])
            ends = self.corner_product(
                *(m.rearranged(lambda end: _stacked(end, front)) for m in (x, weights))
            )
            return ends[0].unflatten(0, front), ends[1].unflatten(0, front)
        parts = [_array(t) for t in (x.lower, x.upper, weights.lower.mT, weights.upper.mT)]
        low, high = (np.empty((len(parts[2]), x.shape[1], parts[2].shape[2])) for _ in range(2))
        _corner_product(*parts, 64, low, high)
        return torch.from_numpy(low), torch.from_numpy(high)

    def nonnegative_product(self, x: Interval, weights: Interval) -> tuple[Tensor, Tensor]:
        """``linear_nonnegative``: corners cost less than four matrix products, where many outputs
        are vectorised over; but not for matrices of each record, which are small, and which corners
        would take copies of.
        """
        small = weights.shape[-2] < _NARROW or x.lower.dim() > 3
        return (linear_nonnegative if small else self.corner_product)(x, weights)

    def point_product(self, x: Tensor, weights: Interval) -> tuple[Tensor, Tensor]:
        """``linear_point``: a matrix product's work is worth its overhead for wide inputs only."""
        if x.shape[-1] >= _NARROW or weights.lower.dtype != torch.float64 or x.dim() != 3:
            return linear_point(x, weights)
        low, high = (np.empty((len(weights.lower), x.shape[1], weights.shape[1])) for _ in range(2))
        _point_product(
            _array(x[0]), _array(weights.lower.mT), _array(weights.upper.mT), 64, low, high
        )
        return torch.from_numpy(low), torch.from_numpy(high)

    def relu_backward(self, d: Interval, x: Interval) -> tuple[Tensor, Tensor]:
        """``relu_backward``, in place."""
        if not all(t.is_contiguous() for t in (d.lower, d.upper)) or d.shape != x.shape:
            return relu_backward(d, x)
        _relu_backward(
            *(_array(t).reshape(-1, t.shape[-1]) for t in (d.lower, d.upper, x.lower, x.upper))
        )
        return d.lower, d.upper

    def widen_by(self, lower: Tensor, upper: Tensor, slack: Tensor) -> Interval:
        """``rounding.widen_by`` in one pass; where it finds a bound wrong, ``Interval`` says
        which way.
        """
        flat = lower.dtype == torch.float64 and slack.shape == (*lower.shape[:-1], 1)
        if not flat or not (lower.is_contiguous() and upper.is_contiguous()):
            return super().widen_by(lower, upper, slack)
        ends = [t.numpy().reshape(-1, lower.shape[-1]) for t in (lower, upper)]
        valid = _outward(*ends, _array(slack).reshape(-1))
        return Interval.unchecked(lower, upper) if valid else Interval(lower, upper)


@dataclass
class CpuExtremes:
    """The kept extremes, int32: 8 K c |parameters| bytes, whatever the batch."""

    counts: Tensor
    shape: tuple[int, ...]
    capped: bool
    rump: bool
    _held: np.ndarray = field(init=False)
    _greatest: np.ndarray = field(init=False)
    _least: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows, width = len(self.counts) * self.shape[0], self.shape[1] if len(self.shape) > 1 else 1
        self._held = np.zeros((rows, width), dtype=np.int64)
        size = (rows, width, int(self.counts.max()))
        self._greatest, self._least = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)

    def update(self, d: Interval, x: Interval | None) -> None:
        rows = _rows(d.lower), _rows(d.upper)
        point = x is None or x.is_point  # with a point both products are the same
        if x is None:
            factors = (np.ones((1, 1, d.shape[1])),) * 2
        elif x.is_point:
            factors = (_array(x.lower.mT),) * 2
        else:
            factors = (_array(x.lower.mT), _array(x.upper.mT))
        _select(
            *rows, *factors, self.counts.numpy(), self.shape[0], point, self.capped, self.rump,
            self._held, self._greatest, self._least,
        )  # fmt: skip

    def selected_values(self) -> tuple[Tensor, Tensor]:
        shape, free = (len(self.counts), *self.shape, self._least.shape[2]), ~self._used
        for kept in (self._greatest, self._least):
            kept[free] = EMPTY_SLOT  # which no update reads
        return torch.from_numpy(self._greatest).view(shape), torch.from_numpy(self._least).view(
            shape
        )

    @property
    def _used(self) -> np.ndarray:
        """[R, in, c] bool: which of the places hold a number."""
        return np.arange(self._least.shape[2]) < self._held[..., None]

    def result(self) -> tuple[Tensor, Tensor]:
        used = self._used
        greatest = -np.where(used, self._greatest, 0).sum(axis=2, dtype=np.int64)
        least = np.where(used, self._least, 0).sum(axis=2, dtype=np.int64)
        shape = (len(self.counts), *self.shape)
        return torch.from_numpy(greatest).view(shape), torch.from_numpy(least).view(shape)


def _stacked(matrices: Tensor, front: tuple[int, ...]) -> Tensor:
    """[*front or what broadcasts to it, rows, columns] -> [matrices, rows, columns]."""
    return matrices.expand(*front, *matrices.shape[-2:]).flatten(0, -3)


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.numpy())


def _rows(d: Tensor) -> np.ndarray:
    """[K, n, out] -> [K * out, n], contiguous."""
    return np.ascontiguousarray(d.mT.numpy()).reshape(-1, d.shape[1])


def _inf_norms(x: Tensor) -> np.ndarray:
    """[n]: the infinity norm of each record's x [n, in]."""
    return _array(Interval.point(x).inf_norm()[:, 0])


def _tile(width: int) -> int:
    return max(8, _TILE_BYTES // (8 * width))
