"""The functions of the CPU kernel that Numba compiles: parallel, vectorised, cached on disk.

There is no fast-math: each product, comparison and rounding is the reference kernel's own, in the
same order, so that both return the same integers. All compiled functions are in this one file,
because Numba's cache on disk notices a change only in the file of the function that is called.
The proofs are in docs/proofs/sums.md and docs/proofs/selections.md.

Shapes: K distances k, n records, ``in`` inputs and ``out`` outputs of a layer. A "row" of a sum is
one pair (k, output), and threads divide the rows among them.
"""

import numpy as np
from numba import float64, int64, njit, prange
from numba.extending import intrinsic

from agt.kernels.reference import RUMP_ROUNDINGS
from agt.numeric import UNIT
from agt.settings import QUANTA

_CLIP = float(QUANTA)
# Adding it to a number of at most 2^51 in size rounds that to an integer, ties to even.
_MAGIC = 1.5 * 2.0**52
_MAGIC_BITS = np.float64(_MAGIC).view(np.int64)
_RUMP_SLACK = 2 * RUMP_ROUNDINGS * UNIT
_ABOVE_ALL = np.int32(QUANTA + 1)  # above every quantised value
_BELOW_ALL = np.int32(-QUANTA - 1)  # below every quantised value
_COLUMN_VALUES = 8  # values that are filtered together: about one in thirty is selected
LANES = 64  # values that a vectorised loop takes at once; a power of 2
_SAMPLE_VALUES = 4 * LANES  # that a threshold is guessed from
_FEWEST_LISTED = 4  # inputs of a product: fewer are not sorted into lists by their sign


@njit(inline="always")
def _clip(v):  # type: ignore[no-untyped-def]
    """Return v clipped to [-QUANTA, QUANTA]."""
    return min(max(v, -_CLIP), _CLIP)


@njit(inline="always")
def _quantise(v):  # type: ignore[no-untyped-def]
    """Return v clipped and rounded to the nearest integer, as a float64."""
    return (_clip(v) + _MAGIC) - _MAGIC


@intrinsic
def _float_bits(context, v):  # type: ignore[no-untyped-def]
    """Return the bits of a float64 as an int64."""
    return int64(float64), lambda target, builder, signature, values: builder.bitcast(
        values[0], target.get_value_type(int64)
    )


@njit(inline="always")
def _to_quanta(v):  # type: ignore[no-untyped-def]
    """Return v rounded to the nearest integer, as an int64, for abs(v) <= QUANTA.

    Lemma 4 of docs/proofs/sums.md.
    """
    return _float_bits(v + _MAGIC) - _MAGIC_BITS


@njit(inline="always")
def _corner_bounds(p, q, a, b, rump):  # type: ignore[no-untyped-def]
    """Return bounds on [p, q] * [a, b], in the operations of ``reference.gradient_bounds``.

    Args:
        rump: whether the product is in midpoint-radius form, or the exact one by four corners.
    """
    if rump:
        mid = (p + q) / 2
        rad = (q - p) / 2
        x_mid = (a + b) / 2
        x_rad = (b - a) / 2
        spread = abs(mid) * x_rad + rad * (abs(x_mid) + x_rad)
        spread = spread + (max(abs(p), abs(q)) * max(abs(a), abs(b))) * _RUMP_SLACK
        # Infinite wherever the centre overflows. The bound is then infinite, and never a NaN.
        if not spread < np.inf:
            return -np.inf, np.inf
        return mid * x_mid - spread, mid * x_mid + spread
    c1 = a * p
    c2 = a * q
    c3 = b * p
    c4 = b * q
    return min(min(c1, c2), min(c3, c4)), max(max(c1, c2), max(c3, c4))


# Sums of gradients. A record whose d is 0 adds 0 to every sum (Lemma 5 of docs/proofs/sums.md) and
# is left out: behind a ReLU that is about half of them. The others are listed, and taken by fours.


@njit
def _new_lists(tile):  # type: ignore[no-untyped-def]
    """Return two empty lists of record indices, and two of factors, with room for a tile.

    Indices are unsigned, because one that may be negative costs a comparison.
    """
    return (
        np.empty(tile + 3, np.uint64),
        np.empty(tile + 3, np.uint64),
        np.empty(tile + 3),
        np.empty(tile + 3),
    )


@njit
def _pad_lists(a, b, p, q, count):  # type: ignore[no-untyped-def]
    """Fill the lists up to a multiple of 4 with factors 0, and return that length."""
    for j in range(count, count + 3):
        a[j] = 0
        b[j] = 0
        p[j] = 0.0
        q[j] = 0.0
    return (count + 3) & -4


@njit
def _may_clip(a, b, p, q, j, norms):  # type: ignore[no-untyped-def]
    """Return whether a product of the four records from position j on may be beyond the clip.

    Args:
        a, b: the lists of records that the factors p and q are multiplied with.
        norms: the largest abs(x) of each record.
    """
    largest = 0.0
    for t in range(j, j + 4):
        largest = max(largest, max(abs(p[t]) * norms[a[t]], abs(q[t]) * norms[b[t]]))
    return not largest <= _CLIP  # True for a NaN too


@njit
def _add_point_records(low, high, x, norms, a, p, q, count):  # type: ignore[no-untyped-def]
    """Add the quantised bounds of [p, q] x of the listed records to low and high [in].

    Args:
        x: [n, in], of any sign.
        norms: [n], the largest abs(x) of each record.
        a, p, q: the listed records and their bounds on d; ``count`` is a multiple of 4.
    """
    for j in range(0, count, 4):
        if _may_clip(a, a, p, q, j, norms):
            for t in range(j, j + 4):
                s = a[t]
                u = p[t]
                v = q[t]
                for i in range(len(low)):
                    low[i] += _to_quanta(_clip(min(x[s, i] * u, x[s, i] * v)))
                    high[i] += _to_quanta(_clip(max(x[s, i] * u, x[s, i] * v)))
            continue
        s0 = a[j]
        s1 = a[j + 1]
        s2 = a[j + 2]
        s3 = a[j + 3]
        p0 = p[j]
        p1 = p[j + 1]
        p2 = p[j + 2]
        p3 = p[j + 3]
        q0 = q[j]
        q1 = q[j + 1]
        q2 = q[j + 2]
        q3 = q[j + 3]
        for i in range(len(low)):
            u0 = x[s0, i] * p0
            u1 = x[s1, i] * p1
            u2 = x[s2, i] * p2
            u3 = x[s3, i] * p3
            v0 = x[s0, i] * q0
            v1 = x[s1, i] * q1
            v2 = x[s2, i] * q2
            v3 = x[s3, i] * q3
            low[i] += (_to_quanta(min(u0, v0)) + _to_quanta(min(u1, v1))) + (
                _to_quanta(min(u2, v2)) + _to_quanta(min(u3, v3))
            )
            high[i] += (_to_quanta(max(u0, v0)) + _to_quanta(max(u1, v1))) + (
                _to_quanta(max(u2, v2)) + _to_quanta(max(u3, v3))
            )


@njit
def _add_records(total, x, norms, a, p, count):  # type: ignore[no-untyped-def]
    """Add the quantised products p x of the listed records to total [in].

    Args:
        x: [rows, in].
        norms: [rows], the largest abs(x) of each row.
        a, p: the listed rows of x and their factors; ``count`` is a multiple of 4.
    """
    for j in range(0, count, 4):
        if _may_clip(a, a, p, p, j, norms):
            for t in range(j, j + 4):
                s = a[t]
                u = p[t]
                for i in range(len(total)):
                    total[i] += _to_quanta(_clip(x[s, i] * u))
            continue
        s0 = a[j]
        s1 = a[j + 1]
        s2 = a[j + 2]
        s3 = a[j + 3]
        p0 = p[j]
        p1 = p[j + 1]
        p2 = p[j + 2]
        p3 = p[j + 3]
        for i in range(len(total)):
            total[i] += (_to_quanta(x[s0, i] * p0) + _to_quanta(x[s1, i] * p1)) + (
                _to_quanta(x[s2, i] * p2) + _to_quanta(x[s3, i] * p3)
            )


@njit(parallel=True, cache=True)
def sum_point(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """Add the quantised bounds of all records to low and high, int64 [K * out, in].

    Args:
        lower, upper: bounds on d, [K, n, out].
        x: [n, in].
        norms: [n], the largest abs(x) of each record.
        tile: records that are taken together.
        threads: how many threads divide the rows.
    """
    ks, n, outputs = lower.shape
    rows = ks * outputs
    for thread in prange(threads):
        a, b, p, q = _new_lists(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k = r // outputs
                o = r % outputs
                count = 0
                for s in range(start, min(n, start + tile)):
                    a[count] = s
                    p[count] = lower[k, s, o]
                    q[count] = upper[k, s, o]
                    count += (p[count] != 0) | (q[count] != 0)
                count = _pad_lists(a, b, p, q, count)
                _add_point_records(low[r], high[r], x, norms, a, p, q, count)


@njit(parallel=True, cache=True)
def sum_nominal(d, x, norms, tile, threads, total):  # type: ignore[no-untyped-def]
    """Add the quantised products of all records to total, int64 [out, in].

    Args:
        d: [n, out].
        x: [n, in].
        norms: [n], the largest abs(x) of each record.
        tile, threads: as for ``sum_point``.
    """
    n, rows = d.shape
    for thread in prange(threads):
        a, b, p, q = _new_lists(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                count = 0
                for s in range(start, min(n, start + tile)):
                    a[count] = s
                    p[count] = d[s, r]
                    count += d[s, r] != 0
                _add_records(total[r], x, norms, a, p, _pad_lists(a, b, p, q, count))


@njit(parallel=True, cache=True)
def sum_nonnegative(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """Add the quantised bounds of all records to low and high, for intervals x >= 0.

    The sign of d alone decides which end of x gives an extreme (Lemma 6 of docs/proofs/sums.md).

    Args:
        lower, upper: bounds on d, [K, n, out].
        x: [K or 1, 2n, in], the lower ends of all records and then the upper ends.
        norms: [K or 1, 2n], the largest x of each row.
        tile, threads: as for ``sum_point``.
        low, high: int64 [K * out, in].
    """
    ks, n, outputs = lower.shape
    rows = ks * outputs
    for thread in prange(threads):
        a, b, p, q = _new_lists(tile)
        for start in range(0, n, tile):
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k = r // outputs
                o = r % outputs
                x_index = k % len(x)
                count = 0
                for s in range(start, min(n, start + tile)):
                    u = lower[k, s, o]
                    v = upper[k, s, o]
                    p[count] = u
                    q[count] = v
                    a[count] = s + n * (u < 0)
                    b[count] = s + n * (v > 0)
                    count += (u != 0) | (v != 0)
                count = _pad_lists(a, b, p, q, count)
                _add_records(low[r], x[x_index], norms[x_index], a, p, count)
                _add_records(high[r], x[x_index], norms[x_index], b, q, count)


@njit(parallel=True, cache=True)
def sum_over_outputs(lower, upper, x, norms, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """Add the quantised bounds of all records, vectorised over outputs instead of inputs.

    Args:
        lower, upper: bounds on d, [K, n, out].
        x: [in, n].
        norms: [K, n], the largest abs(d) of each record.
        tile, threads: as for ``sum_point``.
        low, high: int64 [K * in, out].
    """
    width, n = x.shape
    outputs = lower.shape[2]
    rows = len(lower) * width
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                k = r // width
                out_low = low[r]
                out_high = high[r]
                for s in range(start, stop):
                    v = x[r % width, s]
                    # The sign of x holds for the whole inner loop, and says which end of d gives
                    # the smallest product.
                    smallest, largest = (
                        (lower[k, s], upper[k, s]) if v >= 0 else (upper[k, s], lower[k, s])
                    )
                    if abs(v) * norms[k, s] <= _CLIP:  # nothing to clip
                        for j in range(outputs):
                            out_low[j] += _to_quanta(v * smallest[j])
                            out_high[j] += _to_quanta(v * largest[j])
                    else:
                        for j in range(outputs):
                            out_low[j] += _to_quanta(_clip(v * smallest[j]))
                            out_high[j] += _to_quanta(_clip(v * largest[j]))


@njit(parallel=True, cache=True)
def sum_interval(lower, upper, x_lower, x_upper, rump, tile, threads, low, high):  # type: ignore[no-untyped-def]
    """Add the quantised bounds of all records to low and high, for intervals x of any sign.

    Args:
        lower, upper: bounds on d, [K, n, out].
        x_lower, x_upper: bounds on x, [K or 1, n, in].
        rump: whether products are in midpoint-radius form.
        tile, threads: as for ``sum_point``.
        low, high: int64 [K * out, in].
    """
    ks, n, outputs = lower.shape
    rows = ks * outputs
    width = x_lower.shape[2]
    for thread in prange(threads):
        for start in range(0, n, tile):
            stop = min(n, start + tile)
            for r in range(rows * thread // threads, rows * (thread + 1) // threads):
                out_low = low[r]
                out_high = high[r]
                k = r // outputs
                o = r % outputs
                xl = x_lower[k % len(x_lower)]
                xu = x_upper[k % len(x_lower)]
                for s in range(start, stop):
                    p = lower[k, s, o]
                    q = upper[k, s, o]
                    for i in range(width):
                        smallest, largest = _corner_bounds(p, q, xl[s, i], xu[s, i], rump)
                        out_low[i] += _to_quanta(_clip(smallest))
                        out_high[i] += _to_quanta(_clip(largest))


# Products of matrices.


@njit
def _add_corner_terms(low, high, lower, upper, i, p, q):  # type: ignore[no-untyped-def]
    """Add the extreme products of [p, q] and the weights of input i to low and high [out].

    Args:
        lower, upper: bounds on the weights, [in, out].
    """
    for o in range(len(low)):
        smallest, largest = _corner_bounds(p, q, lower[i, o], upper[i, o], False)
        low[o] += smallest
        high[o] += largest


@njit
def _add_terms_of_one_sign(low, high, lower, upper, inputs, p, q, count):  # type: ignore[no-untyped-def]
    """Add the extreme products of inputs with p >= 0, four inputs at a time.

    The last ``count % 4`` inputs are not added. For inputs with q <= 0, pass lower and upper
    swapped (Lemma 6 of docs/proofs/sums.md).

    Args:
        low, high: [out], sums that are added to.
        lower, upper: bounds on the weights, [in, out].
        inputs, p, q: lists of input indices and their bounds.
    """
    for j in range(0, count - 3, 4):
        i0 = inputs[j]
        i1 = inputs[j + 1]
        i2 = inputs[j + 2]
        i3 = inputs[j + 3]
        p0 = p[j]
        p1 = p[j + 1]
        p2 = p[j + 2]
        p3 = p[j + 3]
        q0 = q[j]
        q1 = q[j + 1]
        q2 = q[j + 2]
        q3 = q[j + 3]
        for o in range(len(low)):
            a0 = lower[i0, o]
            a1 = lower[i1, o]
            a2 = lower[i2, o]
            a3 = lower[i3, o]
            b0 = upper[i0, o]
            b1 = upper[i1, o]
            b2 = upper[i2, o]
            b3 = upper[i3, o]
            low[o] += (min(p0 * a0, q0 * a0) + min(p1 * a1, q1 * a1)) + (
                min(p2 * a2, q2 * a2) + min(p3 * a3, q3 * a3)
            )
            high[o] += (max(p0 * b0, q0 * b0) + max(p1 * b1, q1 * b1)) + (
                max(p2 * b2, q2 * b2) + max(p3 * b3, q3 * b3)
            )


@njit
def _add_terms_of_either_sign(low, high, lower, upper, inputs, p, q, count):  # type: ignore[no-untyped-def]
    """Add the extreme products of inputs with p < 0 < q, four inputs at a time.

    The last ``count % 4`` inputs are not added. Arguments as for ``_add_terms_of_one_sign``
    (Lemma 6 of docs/proofs/sums.md).
    """
    for j in range(0, count - 3, 4):
        i0 = inputs[j]
        i1 = inputs[j + 1]
        i2 = inputs[j + 2]
        i3 = inputs[j + 3]
        p0 = p[j]
        p1 = p[j + 1]
        p2 = p[j + 2]
        p3 = p[j + 3]
        q0 = q[j]
        q1 = q[j + 1]
        q2 = q[j + 2]
        q3 = q[j + 3]
        for o in range(len(low)):
            a0 = lower[i0, o]
            a1 = lower[i1, o]
            a2 = lower[i2, o]
            a3 = lower[i3, o]
            b0 = upper[i0, o]
            b1 = upper[i1, o]
            b2 = upper[i2, o]
            b3 = upper[i3, o]
            low[o] += (min(p0 * b0, q0 * a0) + min(p1 * b1, q1 * a1)) + (
                min(p2 * b2, q2 * a2) + min(p3 * b3, q3 * a3)
            )
            high[o] += (max(p0 * a0, q0 * b0) + max(p1 * a1, q1 * b1)) + (
                max(p2 * a2, q2 * b2) + max(p3 * a3, q3 * b3)
            )


@njit(parallel=True, cache=True)
def corner_product(x_lower, x_upper, w_lower, w_upper, block, low, high):  # type: ignore[no-untyped-def]
    """Set low and high [K, n, out] to the exact product of x, of any sign, and the weights.

    Where the sign of x is known, it decides which end of a weight gives the smallest product. A
    term with x = 0, as half of them are behind a ReLU, is 0 and is left out.

    Args:
        x_lower, x_upper: [1 or K, n, in].
        w_lower, w_upper: [K, in, out], so that the innermost loop runs along outputs.
        block: records of one job of a thread.
    """
    ks, n = low.shape[:2]
    width = x_lower.shape[2]
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k = job // blocks
        start = (job % blocks) * block
        xl = x_lower[k % len(x_lower)]
        xu = x_upper[k % len(x_lower)]
        wl = w_lower[k]
        wu = w_upper[k]
        inputs = np.empty(width, np.uint64)
        p = np.empty(width)
        q = np.empty(width)
        for s in range(start, min(n, start + block)):
            out_low = low[k, s]
            out_high = high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(width if width < _FEWEST_LISTED else 0):
                _add_corner_terms(out_low, out_high, wl, wu, i, xl[s, i], xu[s, i])
            # Inputs that are positive, negative, and of either sign.
            for case in range(0 if width < _FEWEST_LISTED else 3):
                count = 0
                for i in range(width):
                    u = xl[s, i]
                    v = xu[s, i]
                    inputs[count] = i
                    p[count] = u
                    q[count] = v
                    if case == 0:
                        count += (u >= 0) & (v > 0)
                    elif case == 1:
                        count += (u < 0) & (v <= 0)
                    else:
                        count += (u < 0) & (v > 0)
                if case == 0:
                    _add_terms_of_one_sign(out_low, out_high, wl, wu, inputs, p, q, count)
                elif case == 1:
                    _add_terms_of_one_sign(out_low, out_high, wu, wl, inputs, p, q, count)
                else:
                    _add_terms_of_either_sign(out_low, out_high, wl, wu, inputs, p, q, count)
                for j in range(count & -4, count):
                    _add_corner_terms(out_low, out_high, wl, wu, inputs[j], p[j], q[j])


@njit(parallel=True, cache=True)
def point_product(x, lower, upper, block, low, high):  # type: ignore[no-untyped-def]
    """Set low and high [K, n, out] to the exact product of points and the weights.

    Args:
        x: [n, in], of any sign, which decides which end of a weight gives the smallest product.
        lower, upper: bounds on the weights, [K, in, out].
        block: records of one job of a thread.
    """
    ks, n, outputs = low.shape
    blocks = (n + block - 1) // block
    for job in prange(ks * blocks):
        k = job // blocks
        start = (job % blocks) * block
        for s in range(start, min(n, start + block)):
            out_low = low[k, s]
            out_high = high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for i in range(x.shape[1]):
                v = x[s, i]
                smallest, largest = (
                    (lower[k, i], upper[k, i]) if v >= 0 else (upper[k, i], lower[k, i])
                )
                for o in range(outputs):
                    out_low[o] += v * smallest[o]
                    out_high[o] += v * largest[o]


# Elementwise operations, in place.


@njit(parallel=True, cache=True)
def relu_backward_in_place(lower, upper, x_lower, x_upper):  # type: ignore[no-untyped-def]
    """Multiply bounds on gradients by ReLU's derivative at x, in place; all [rows, width]."""
    for r in prange(len(lower)):
        for i in range(lower.shape[1]):
            may_be_one = x_upper[r, i] > 0
            is_one = x_lower[r, i] > 0
            p = lower[r, i]
            q = upper[r, i]
            lower[r, i] = (p if is_one else min(p, 0.0)) if may_be_one else 0.0
            upper[r, i] = (q if is_one else max(q, 0.0)) if may_be_one else 0.0


@njit(parallel=True, cache=True)
def widen_in_place(lower, upper, slack):  # type: ignore[no-untyped-def]
    """Move lower down and upper up by the slack of their row, in place.

    Args:
        lower, upper: [rows, width].
        slack: [rows].

    Returns:
        True if all bounds are then finite, with lower <= upper.
    """
    wrong = 0
    for r in prange(len(lower)):
        wrong_in_row = 0
        for i in range(lower.shape[1]):
            p = lower[r, i] - slack[r]
            q = upper[r, i] + slack[r]
            lower[r, i] = p
            upper[r, i] = q
            # False for a NaN or an infinity in either, as in Interval.
            wrong_in_row += 0 if 0 <= q - p < np.inf else 1
        wrong += wrong_in_row
    return wrong == 0


# Selections: for each number of a parameter, the ``count`` smallest values that came so far.


@njit(cache=True)
def _value_of_rank(values, count, rank):  # type: ignore[no-untyped-def]
    """Return the rank-th smallest (from 1) of values[:count], by bisection on integers.

    Args:
        values: int32, between -QUANTA and QUANTA + 1, with room up to a multiple of ``LANES``. It
            is filled up to there with values above all, so that no loop has a remainder.
    """
    full = (count + LANES - 1) & -LANES
    for s in range(count, full):
        values[s] = _ABOVE_ALL
    low = np.int64(-QUANTA)
    high = np.int64(QUANTA + 1)
    while low < high:
        middle = (low + high) >> 1
        pivot = np.int32(middle)
        below = np.int32(0)
        for s in range(full):
            below += np.int32(values[s] <= pivot)
        if below == rank:  # the largest of those is the answer
            largest = _BELOW_ALL
            for s in range(full):
                largest = max(largest, values[s] if values[s] <= pivot else _BELOW_ALL)
            return largest
        if below > rank:
            high = middle
        else:
            low = middle + 1
    return np.int32(low)


@njit(cache=True)
def _guess_threshold(values, n, missing, sample):  # type: ignore[no-untyped-def]
    """Return a threshold that ``missing`` of values[:n], or a few more, are likely to be below.

    Args:
        sample: scratch memory, whose length is the size of the sample.

    Returns:
        The threshold, or a number above all if there are too few values to guess from.
    """
    size = len(sample)
    share = size * missing / n
    rank = int(share + 3.0 * np.sqrt(share) + 3.0)
    if n < 4 * size or rank >= size:
        return _ABOVE_ALL
    step = n // size
    for s in range(size):
        sample[s] = values[s * step]
    return _value_of_rank(sample, size, rank)


@njit(cache=True)
def _append_below(values, n, threshold, pool, total, minima, hits):  # type: ignore[no-untyped-def]
    """Append those of values[:n] that are below the threshold to pool[:total].

    Few are. So values are looked at in columns of ``_COLUMN_VALUES``, the smallest of each first,
    which vectorises over columns.

    Args:
        minima, hits: scratch memory, one number for each column.

    Returns:
        The new length of the pool.
    """
    columns = n // _COLUMN_VALUES
    for c in range(columns):
        minima[c] = values[c]
    for j in range(1, _COLUMN_VALUES):
        for c in range(columns):
            minima[c] = min(minima[c], values[j * columns + c])
    found = 0
    for c in range(columns):
        hits[found] = c
        found += minima[c] < threshold
    for h in range(found):
        for j in range(_COLUMN_VALUES):
            value = values[hits[h] + j * columns]
            pool[total] = value
            total += value < threshold
    for s in range(_COLUMN_VALUES * columns, n):
        pool[total] = values[s]
        total += values[s] < threshold
    return total


@njit(cache=True)
def _merge_smallest(values, n, count, selected, held, pool, sample, minima, hits):  # type: ignore[no-untyped-def]
    """Merge values[:n] into selected[:held], which keeps the ``count`` smallest of all.

    The result is exact, whatever the threshold that values are filtered by (Lemma 7 of
    docs/proofs/selections.md).

    Args:
        selected: its last element is the largest, once ``count`` values are held.
        pool: scratch memory of at least len(selected) + n, rounded up to ``LANES``.
        sample, minima, hits: scratch memory, see ``_guess_threshold`` and ``_append_below``.

    Returns:
        How many values are held now.
    """
    for s in range(held):
        pool[s] = selected[s]
    if held == count:
        threshold = selected[count - 1]
    else:
        threshold = _guess_threshold(values, n, count - held, sample)
    total = _append_below(values, n, threshold, pool, held, minima, hits)
    if held < count and threshold < _ABOVE_ALL:
        below = total - held
        for s in range(held):
            below += selected[s] < threshold
        if below < count:
            # The guess was too low, and a value that was left out may be among the smallest: take
            # all of them.
            total = _append_below(values, n, _ABOVE_ALL, pool, held, minima, hits)
    if held == count == total:
        return count
    if total < count:
        for s in range(held, total):
            selected[s] = pool[s]
        return total
    limit = _value_of_rank(pool, total, count)
    filled = 0
    for s in range(total):  # fewer than ``count`` are below the limit
        selected[filled] = pool[s]
        filled += pool[s] < limit
    for s in range(filled, count):
        selected[s] = limit
    return count


@njit(parallel=True, cache=True)
def select_extremes(  # type: ignore[no-untyped-def]
    lower, upper, xl, xu, counts, outputs, point, capped, rump, held, largest_lower, smallest_upper
):  # fmt: skip
    """Merge the bounds of a fragment's records into the selections of all numbers.

    Args:
        lower, upper: bounds on d, [R, n], with a row for each (k, output).
        xl, xu: bounds on x, [1 or K, in, n].
        counts: [K], how many bounds to select.
        outputs: the number of outputs.
        point: whether xl is xu.
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        rump: whether products are in midpoint-radius form.
        held: [R, in], how many values are selected so far; updated.
        largest_lower, smallest_upper: int32 [R, in, c], the selected lower bounds, negated, and the
            selected upper bounds; updated. Negation makes both a selection of smallest values.
    """
    rows, n = lower.shape
    width = xl.shape[1]
    pool_size = smallest_upper.shape[2] + n + LANES
    columns = n // _COLUMN_VALUES + 1
    for r in prange(rows):
        k = r // outputs
        count = counts[k]
        if count == 0:
            continue
        x_index = k if xl.shape[0] > 1 else 0
        down = np.empty(n, np.int32)
        up = np.empty(n, np.int32)
        pool = np.empty(pool_size, np.int32)
        sample = np.empty(_SAMPLE_VALUES, np.int32)
        minima = np.empty(columns, np.int32)
        hits = np.empty(columns, np.int32)
        p = lower[r]
        q = upper[r]
        for i in range(width):
            a = xl[x_index, i]
            b = xu[x_index, i]
            if point:
                for s in range(n):
                    c = a[s] * p[s]
                    d = a[s] * q[s]
                    down[s] = np.int32(-_quantise(min(c, d)))
                    up[s] = np.int32(_quantise(max(c, d)))
            else:
                for s in range(n):
                    smallest, largest = _corner_bounds(p[s], q[s], a[s], b[s], rump)
                    down[s] = np.int32(-_quantise(smallest))
                    up[s] = np.int32(_quantise(largest))
            if capped:
                for s in range(n):
                    down[s] = min(down[s], np.int32(0))
                    up[s] = min(up[s], np.int32(0))
            before = held[r, i]
            _merge_smallest(down, n, count, largest_lower[r, i], before, pool, sample, minima, hits)
            held[r, i] = _merge_smallest(
                up, n, count, smallest_upper[r, i], before, pool, sample, minima, hits
            )
