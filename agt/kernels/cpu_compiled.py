"""The functions of the CPU kernel that Numba compiles: vectorised, cached on disk.

There is no fast-math: each product, comparison and rounding is the reference kernel's own, in the
same order, so that both return the same integers. All compiled functions are in this one file,
because Numba's cache on disk notices a change only in the file of the function that is called.
The proofs are in docs/proofs/sums.md and docs/proofs/selections.md.

Each function does only its jobs ``first`` to ``stop`` - 1 (a job is a row of the result, or a block
of records), and releases the global interpreter lock while it runs, so that several threads can do
parts of the work (``agt.kernels.threads``). Numba's own ``parallel=True`` would take twice as long
to compile. The result is the same however the jobs are divided.
"""

import numpy as np
from numba import float64, int64, njit
from numba.extending import intrinsic

from agt.kernels.reference import RUMP_ROUNDINGS
from agt.numeric import UNIT
from agt.settings import QUANTA

_CLIP = float(QUANTA)
# Adding it to a number of at most 2^51 in size rounds that to an integer, ties to even.
_MAGIC = 1.5 * 2.0**52
_MAGIC_BITS = np.float64(_MAGIC).view(np.int64)
_ALL_BUT_SIGN = np.int64(2**63 - 1)  # the bits of a float64 number without its sign
_INFINITE_BITS = np.float64(np.inf).view(np.uint64)
_RUMP_SLACK = 2 * RUMP_ROUNDINGS * UNIT  # 2 UNIT is the eps of float64
_ABOVE_ALL = np.int32(QUANTA + 1)  # above every quantised value
_BELOW_ALL = np.int32(-QUANTA - 1)  # below every quantised value
_ABOVE_CLIPPED = np.int32(1 - QUANTA)  # above values that are clipped, and no others
_COLUMN_VALUES = 8  # values that are filtered together: about one in thirty is selected
LANES = 64  # values that a vectorised loop takes at once; a power of 2
_GRADIENT_TILE = 8  # records whose gradients stay in the first cache; a multiple of 4
_SAMPLE_VALUES = 4 * LANES  # values that a threshold is guessed from
FEWEST_LISTED = 4  # inputs of a product: fewer are not sorted into lists by their sign


@njit(inline="always")
def _clip(value):  # type: ignore[no-untyped-def]
    """Return a float64 number clipped to [-QUANTA, QUANTA]."""
    return min(max(value, -_CLIP), _CLIP)


@njit(inline="always")
def _quantise(value):  # type: ignore[no-untyped-def]
    """Return a float64 number clipped to [-QUANTA, QUANTA] and rounded to the nearest integer.

    Ties go to even. The result is a float64: adding 1.5 * 2^52 leaves no bits for a fraction.
    """
    return (_clip(value) + _MAGIC) - _MAGIC


@njit(inline="always")
def _ends_by_sign(factor, lower, upper):  # type: ignore[no-untyped-def]
    """Return the ends of intervals that give the smallest products, and those with the largest.

    The sign of the factor decides it for all of the intervals.

    Args:
        factor: float64.
        lower, upper: float64 [width], the ends of intervals that it is multiplied by.
    """
    return (lower, upper) if factor >= 0 else (upper, lower)


@intrinsic
def _float_bits(context, value):  # type: ignore[no-untyped-def]
    """Return the 64 bits of a float64 number as an int64.

    Numba calls this function while it compiles; the returned pair is the signature, and the
    function that emits the LLVM instruction.
    """
    return int64(float64), lambda target, builder, signature, values: builder.bitcast(
        values[0], target.get_value_type(int64)
    )


@intrinsic
def _from_bits(context, bits):  # type: ignore[no-untyped-def]
    """Return the float64 number that has the bits of an int64; see ``_float_bits``."""
    return float64(int64), lambda target, builder, signature, values: builder.bitcast(
        values[0], target.get_value_type(float64)
    )


@njit(inline="always")
def _width_bits(lower, upper):  # type: ignore[no-untyped-def]
    """Return the bits of the distance between two float64 bounds, as a uint64.

    They are below ``_INFINITE_BITS`` if the bounds are finite and in order, and otherwise not: the
    distance is then infinite, a NaN or negative, and the sign is the highest bit. Numbers >= 0 are
    ordered as their bits are, and a maximum of integers vectorises.
    """
    return np.uint64(_float_bits((upper - lower) + 0.0))  # -0.0 + 0.0 is 0.0


@njit(inline="always")
def _to_quanta(value):  # type: ignore[no-untyped-def]
    """Return a float64 number rounded to the nearest integer, ties to even, as an int64.

    The number must be at most QUANTA in size. Adding 1.5 * 2^52 rounds it, and the low bits of the
    sum then count integers (Lemma 4 of docs/proofs/sums.md).
    """
    return _float_bits(value + _MAGIC) - _MAGIC_BITS


@njit(inline="always")
def _corner_bounds(p, q, a, b, rump):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest product of a number in [p, q] and one in [a, b].

    The operations and their order are those of ``reference.gradient_bounds``, so that both give the
    same bits.

    Args:
        p, q: float64 with p <= q, bounds on one factor.
        a, b: float64 with a <= b, bounds on the other factor.
        rump: False for the exact bounds, which are two of the four corner products. True for the
            midpoint-radius form, which gives wider bounds.
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


@njit(inline="always")
def _relu_gradient(p, q, a, b):  # type: ignore[no-untyped-def]
    """Return bounds on a gradient in [p, q] times the derivative of ReLU at an input in [a, b].

    The derivative is 1 where a > 0, 0 where b <= 0, and anything from 0 to 1 elsewhere. There the
    product lies in [min(p, 0), max(q, 0)].
    """
    low = p if a > 0 else min(p, 0.0)
    high = q if a > 0 else max(q, 0.0)
    return (low if b > 0 else 0.0), (high if b > 0 else 0.0)


@njit
def _norm(values):  # type: ignore[no-untyped-def]
    """Return the largest absolute value of float64 numbers, or a NaN if there is one.

    Without their signs, numbers are ordered as their bits are. A maximum of integers vectorises,
    but one of floating-point numbers does not, because of NaNs.
    """
    largest = np.int64(0)
    for i in range(len(values)):
        largest = max(largest, _float_bits(values[i]) & _ALL_BUT_SIGN)
    return _from_bits(largest)


# Sums of gradients. By Lemma 5 of docs/proofs/sums.md a record whose output gradient is 0 adds 0 to
# every sum. It is left out: behind a ReLU that is about half of the records. The others are listed,
# and taken by fours. All of this only saves time; the sums of integers stay the same.


@njit
def _new_lists(tile):  # type: ignore[no-untyped-def]
    """Return three empty lists with room for the records of a tile and three entries of padding.

    Args:
        tile: the largest number of records in a list.

    Returns:
        (records, lower bounds on their gradients, upper bounds). Records are uint64, because a
        signed index costs a comparison in every access; bounds are float64.
    """
    return np.empty(tile + 3, np.uint64), np.empty(tile + 3), np.empty(tile + 3)


@njit
def _pad_lists(records, p, q, count):  # type: ignore[no-untyped-def]
    """Pad the three lists to a multiple of 4 entries and return the padded length.

    The padding is record 0 with the factor 0, which adds 0 to every sum.

    Args:
        records, p, q: the lists of ``_new_lists``; changed in place.
        count: how many entries are in use.
    """
    for j in range(count, count + 3):
        records[j] = 0
        p[j] = 0.0
        q[j] = 0.0
    return (count + 3) & -4


@njit
def _may_clip(records, p, q, j, norms):  # type: ignore[no-untyped-def]
    """Return whether a product of four consecutive list entries may exceed the clip level.

    Where none can, the caller leaves out the clip, which is faster and changes no number.

    Args:
        records: a list of rows of the inputs.
        p, q: the factors that each row is multiplied by.
        j: the position of the first of the four entries.
        norms: the largest absolute value of the inputs in each row.
    """
    largest = 0.0
    for t in range(j, j + 4):
        largest = max(largest, max(abs(p[t]), abs(q[t])) * norms[records[t]])
    return not largest <= _CLIP  # True for a NaN too


@njit
def _add_point_records(sum_lower, sum_upper, inputs, norms, records, p, q, count):  # type: ignore[no-untyped-def]
    """Add the quantised gradient bounds of the listed records to one output's sums.

    A record's gradient in the weight of input i lies between the smaller and the larger of
    p * inputs[i] and q * inputs[i]. The sign of the input decides which is which.

    Args:
        sum_lower, sum_upper: int64 [in], the sums; changed in place.
        inputs: float64 [n, in], the layer's inputs, of any sign.
        norms: [n], the largest absolute value of each record's inputs.
        records: uint64, the indices of the listed records.
        p, q: float64, the bounds p <= q on each listed record's output gradient, in quanta.
        count: how many entries the lists have, a multiple of 4.
    """
    for j in range(0, count, 4):
        if _may_clip(records, p, q, j, norms):
            for t in range(j, j + 4):
                s = records[t]
                u = p[t]
                v = q[t]
                for i in range(len(sum_lower)):
                    sum_lower[i] += _to_quanta(_clip(min(inputs[s, i] * u, inputs[s, i] * v)))
                    sum_upper[i] += _to_quanta(_clip(max(inputs[s, i] * u, inputs[s, i] * v)))
            continue
        # The same sums without the clip, four records in one pass over the inputs.
        s0 = records[j]
        s1 = records[j + 1]
        s2 = records[j + 2]
        s3 = records[j + 3]
        p0 = p[j]
        p1 = p[j + 1]
        p2 = p[j + 2]
        p3 = p[j + 3]
        q0 = q[j]
        q1 = q[j + 1]
        q2 = q[j + 2]
        q3 = q[j + 3]
        for i in range(len(sum_lower)):
            u0 = inputs[s0, i] * p0
            u1 = inputs[s1, i] * p1
            u2 = inputs[s2, i] * p2
            u3 = inputs[s3, i] * p3
            v0 = inputs[s0, i] * q0
            v1 = inputs[s1, i] * q1
            v2 = inputs[s2, i] * q2
            v3 = inputs[s3, i] * q3
            sum_lower[i] += (_to_quanta(min(u0, v0)) + _to_quanta(min(u1, v1))) + (
                _to_quanta(min(u2, v2)) + _to_quanta(min(u3, v3))
            )
            sum_upper[i] += (_to_quanta(max(u0, v0)) + _to_quanta(max(u1, v1))) + (
                _to_quanta(max(u2, v2)) + _to_quanta(max(u3, v3))
            )


@njit
def _add_records(total, positive, negative, norms, records, factors, start, stop):  # type: ignore[no-untyped-def]
    """Add the quantised products of listed factors and rows to one sum.

    Args:
        total: int64 [width], the sum; changed in place.
        positive: float64 [n, width], whose rows are multiplied by factors >= 0.
        negative: float64 [n, width], whose rows are multiplied by factors < 0.
        norms: [n], the largest absolute value in each row of both.
        records: uint64, the indices of the listed rows.
        factors: float64, what each listed row is multiplied by.
        start, stop: which entries of the lists are added, from ``start`` to ``stop`` - 1; a
            multiple of 4 in number.
    """
    for j in range(start, stop, 4):  # four listed rows in one pass over the sum
        f0 = factors[j]
        f1 = factors[j + 1]
        f2 = factors[j + 2]
        f3 = factors[j + 3]
        # Views are taken without a name for the array, so that no references are counted.
        row0 = (positive if f0 >= 0 else negative)[records[j]]
        row1 = (positive if f1 >= 0 else negative)[records[j + 1]]
        row2 = (positive if f2 >= 0 else negative)[records[j + 2]]
        row3 = (positive if f3 >= 0 else negative)[records[j + 3]]
        if _may_clip(records, factors, factors, j, norms):
            for i in range(len(total)):
                total[i] += (_to_quanta(_clip(row0[i] * f0)) + _to_quanta(_clip(row1[i] * f1))) + (
                    _to_quanta(_clip(row2[i] * f2)) + _to_quanta(_clip(row3[i] * f3))
                )
        else:
            for i in range(len(total)):
                total[i] += (_to_quanta(row0[i] * f0) + _to_quanta(row1[i] * f1)) + (
                    _to_quanta(row2[i] * f2) + _to_quanta(row3[i] * f3)
                )


@njit(nogil=True, cache=True)
def sum_point(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs, norms, tile, sum_lower, sum_upper
):
    """Add all records' quantised gradient bounds to sums, for known inputs (points).

    Args:
        first, stop: the rows of the sums that this call adds to, from ``first`` to ``stop`` - 1.
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients of the loss in
            the layer's output, in quanta.
        inputs: float64 [n, in], the layer's inputs.
        norms: [n], the largest absolute value of each record's inputs.
        tile: how many records are processed together, so that their inputs stay in the cache. Any
            number gives the same sums.
        sum_lower, sum_upper: int64 [K * out, in], a row for each (k, output); changed in place.
    """
    record_count, outputs = gradient_lower.shape[1:]
    # The tile's records whose gradient is not 0, and the bounds [p, q] on it.
    records, p, q = _new_lists(tile)
    for start in range(0, record_count, tile):
        for row in range(first, stop):
            k = row // outputs
            output = row % outputs
            count = 0
            for record in range(start, min(record_count, start + tile)):
                # Written always, counted only if not 0: that needs no branch.
                records[count] = record
                p[count] = gradient_lower[k, record, output]
                q[count] = gradient_upper[k, record, output]
                count += (p[count] != 0) | (q[count] != 0)
            count = _pad_lists(records, p, q, count)
            _add_point_records(sum_lower[row], sum_upper[row], inputs, norms, records, p, q, count)


@njit(nogil=True, cache=True)
def sum_nominal(first, stop, output_gradient, inputs, norms, tile, total):  # type: ignore[no-untyped-def]
    """Add all records' quantised gradients in a weight to their sum.

    Args:
        first, stop: the outputs whose sums this call adds to, from ``first`` to ``stop`` - 1.
        output_gradient: float64 [n, out], the gradients of the loss in the layer's output, in
            quanta.
        inputs: float64 [n, in], the layer's inputs.
        norms: [n], the largest absolute value of each record's inputs.
        tile: how many records are processed together, so that their inputs stay in the cache. Any
            number gives the same sum.
        total: int64 [out, in], the sum; changed in place.
    """
    record_count = len(output_gradient)
    # The tile's records whose gradient is not 0, and their gradients.
    records, factors, unused = _new_lists(tile)
    for start in range(0, record_count, tile):
        for output in range(first, stop):
            count = 0
            for record in range(start, min(record_count, start + tile)):
                # Written always, counted only if not 0: that needs no branch.
                records[count] = record
                factors[count] = output_gradient[record, output]
                count += output_gradient[record, output] != 0
            count = _pad_lists(records, factors, unused, count)
            _add_records(total[output], inputs, inputs, norms, records, factors, 0, count)


@njit(nogil=True, cache=True)
def sum_nonnegative(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs_lower, inputs_upper, norms, tile,
    sum_lower, sum_upper,
):  # fmt: skip
    """Add all records' quantised gradient bounds to sums, for intervals of inputs >= 0.

    The smallest product is p times an end of the input: the lower end if p >= 0, else the upper
    end. The largest is q times the upper end if q >= 0, else the lower end. So each sum needs one
    product a record (Lemma 6 of docs/proofs/sums.md).

    Args:
        first, stop: the rows of the sums that this call adds to, from ``first`` to ``stop`` - 1.
        gradient_lower, gradient_upper: float64 [K, n, out], bounds [p, q] on the gradients of the
            loss in the layer's output, in quanta.
        inputs_lower, inputs_upper: float64 [K or 1, n, in], bounds >= 0 on the layer's inputs.
        norms: [K or 1, n], the largest number of each record's inputs.
        tile: how many records are processed together. Any number gives the same sums.
        sum_lower, sum_upper: int64 [K * out, in], a row for each (k, output); changed in place.
    """
    record_count, outputs = gradient_lower.shape[1:]
    # The tile's records whose gradient is not 0, and the bounds [p, q] on it.
    records, p, q = _new_lists(tile)
    for start in range(0, record_count, tile):
        for row in range(first, stop):
            k = row // outputs
            output = row % outputs
            k_of_inputs = k % len(inputs_lower)  # 0 where all k share the inputs
            lower = inputs_lower[k_of_inputs]
            upper = inputs_upper[k_of_inputs]
            norms_of_k = norms[k_of_inputs]
            count = 0
            for record in range(start, min(record_count, start + tile)):
                # Written always, counted only if not 0: that needs no branch.
                records[count] = record
                p[count] = gradient_lower[k, record, output]
                q[count] = gradient_upper[k, record, output]
                count += (p[count] != 0) | (q[count] != 0)
            count = _pad_lists(records, p, q, count)
            _add_records(sum_lower[row], lower, upper, norms_of_k, records, p, 0, count)
            _add_records(sum_upper[row], upper, lower, norms_of_k, records, q, 0, count)


@njit(nogil=True, cache=True)
def sum_over_outputs(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs, sum_lower, sum_upper
):
    """Add all records' quantised gradient bounds to sums, vectorised over outputs.

    The sums are those of ``sum_point``. This order of loops is faster for few inputs: a record's
    gradients are read once, and its sums stay in the cache.

    Args:
        first, stop: the rows of the sums that this call adds to, from ``first`` to ``stop`` - 1.
            Row k * in + i has the sums of input i at this k.
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients of the loss in
            the layer's output, in quanta.
        inputs: float64 [n, in], the layer's inputs.
        sum_lower, sum_upper: int64 [K, in, out]; changed in place.
    """
    record_count, width = inputs.shape
    # The factors of each input, padded by zeros to a multiple of 4 records, as in ``_pad_lists``.
    listed = (record_count + 3) & -4
    factors = np.zeros((width, listed))
    records = np.zeros(listed, np.uint64)
    # Loops, because assigning to slices takes Numba two seconds more to compile.
    for record in range(record_count):
        records[record] = record
        for i in range(width):
            factors[i, record] = inputs[record, i]
    norms = np.empty(record_count)
    for k in range(first // width, (stop - 1) // width + 1):
        lower = gradient_lower[k]
        upper = gradient_upper[k]
        for start in range(0, record_count, _GRADIENT_TILE):
            for record in range(start, min(record_count, start + _GRADIENT_TILE)):
                norms[record] = max(_norm(lower[record]), _norm(upper[record]))
            tile_stop = min(listed, start + _GRADIENT_TILE)
            for row in range(max(first, k * width), min(stop, (k + 1) * width)):
                i = row - k * width
                f = factors[i]
                _add_records(sum_lower[k, i], lower, upper, norms, records, f, start, tile_stop)
                _add_records(sum_upper[k, i], upper, lower, norms, records, f, start, tile_stop)


@njit(nogil=True, cache=True)
def sum_interval(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs_lower, inputs_upper, rump, tile,
    sum_lower, sum_upper,
):  # fmt: skip
    """Add all records' quantised gradient bounds to sums, for intervals of inputs of any sign.

    Args:
        first, stop: the rows of the sums that this call adds to, from ``first`` to ``stop`` - 1.
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients of the loss in
            the layer's output, in quanta.
        inputs_lower, inputs_upper: float64 [K or 1, n, in], bounds on the layer's inputs.
        rump: False for the exact product of two intervals. True for the midpoint-radius form,
            which gives wider bounds.
        tile: how many records are processed together. Any number gives the same sums.
        sum_lower, sum_upper: int64 [K * out, in], a row for each (k, output); changed in place.
    """
    record_count, outputs = gradient_lower.shape[1:]
    width = inputs_lower.shape[2]
    for start in range(0, record_count, tile):
        tile_stop = min(record_count, start + tile)
        for row in range(first, stop):
            out_low = sum_lower[row]
            out_high = sum_upper[row]
            k = row // outputs
            output = row % outputs
            k_of_inputs = k % len(inputs_lower)  # 0 where all k share the inputs
            input_low = inputs_lower[k_of_inputs]
            input_high = inputs_upper[k_of_inputs]
            for record in range(start, tile_stop):
                p = gradient_lower[k, record, output]
                q = gradient_upper[k, record, output]
                for i in range(width):
                    smallest, largest = _corner_bounds(
                        p, q, input_low[record, i], input_high[record, i], rump
                    )
                    out_low[i] += _to_quanta(_clip(smallest))
                    out_high[i] += _to_quanta(_clip(largest))


# Products of matrices.


@njit
def _add_corner_terms(low, high, weights_lower, weights_upper, i, p, q):  # type: ignore[no-untyped-def]
    """Add the smallest and the largest product of input i and its weights to an output's bounds.

    This is the general rule, for an input of any sign: all four corners are computed.

    Args:
        low, high: float64 [out], the bounds on the outputs; changed in place.
        weights_lower, weights_upper: float64 [in, out], bounds on the weights.
        i: the index of the input.
        p, q: float64, the bounds p <= q on that input.
    """
    for o in range(len(low)):
        smallest, largest = _corner_bounds(p, q, weights_lower[i, o], weights_upper[i, o], False)
        low[o] += smallest
        high[o] += largest


@njit
def _extremes_of_one_sign(p, q, lower, upper):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest product of an input 0 <= p <= q and its weight.

    The lower weight gives the smallest product, with p or q, and the upper weight the largest. For
    an input p <= q <= 0 the two weights are passed swapped (Lemma 6 of docs/proofs/sums.md).
    """
    return min(p * lower, q * lower), max(p * upper, q * upper)


@njit
def _extremes_of_either_sign(p, q, lower, upper):  # type: ignore[no-untyped-def]
    """Return the smallest and the largest product of an input p < 0 < q and its weight.

    The smallest is p times the upper weight or q times the lower weight. The largest is p times the
    lower weight or q times the upper weight (Lemma 6 of docs/proofs/sums.md).
    """
    return min(p * upper, q * lower), max(p * lower, q * upper)


def _compile_sum_of_terms(extremes):  # type: ignore[no-untyped-def]
    """Return a compiled function that adds the products of listed inputs, four at a time.

    Args:
        extremes: the compiled rule for the inputs, (p, q, lower and upper weight) -> smallest and
            largest product.
    """

    @njit
    def add_terms(low, high, weights_lower, weights_upper, inputs, p, q, count):  # type: ignore[no-untyped-def]
        """Add the smallest and largest products of all but the last ``count % 4`` listed inputs.

        Args:
            low, high: float64 [out], the bounds on the outputs; changed in place.
            weights_lower, weights_upper: float64 [in, out], bounds on the weights.
            inputs: the indices of the listed inputs.
            p, q: float64, the bounds p <= q on each listed input.
            count: how many inputs are listed.
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
                low0, high0 = extremes(p0, q0, weights_lower[i0, o], weights_upper[i0, o])
                low1, high1 = extremes(p1, q1, weights_lower[i1, o], weights_upper[i1, o])
                low2, high2 = extremes(p2, q2, weights_lower[i2, o], weights_upper[i2, o])
                low3, high3 = extremes(p3, q3, weights_lower[i3, o], weights_upper[i3, o])
                low[o] += (low0 + low1) + (low2 + low3)
                high[o] += (high0 + high1) + (high2 + high3)

    return add_terms


_add_terms_of_one_sign = _compile_sum_of_terms(_extremes_of_one_sign)
_add_terms_of_either_sign = _compile_sum_of_terms(_extremes_of_either_sign)


@njit(nogil=True, cache=True)
def corner_product(  # type: ignore[no-untyped-def]
    first, stop, inputs_lower, inputs_upper, weights_lower, weights_upper, block, low, high
):
    """Write bounds on the product of an interval of inputs and an interval of weights.

    Inputs are sorted into lists by their sign, which decides which end of a weight gives the
    smallest product. An input that is exactly 0, as half of them are behind a ReLU, is in no list,
    because its terms are 0. The order of the terms, and so their rounding, depends on the lists of
    the record itself and on no other record.

    Args:
        first, stop: the jobs that this call does, from ``first`` to ``stop`` - 1. A job is a block
            of records at one k, and job k * blocks + b has block b.
        inputs_lower, inputs_upper: float64 [K or 1, n, in], bounds of any sign.
        weights_lower, weights_upper: float64 [K, in, out], so that the innermost loop runs along
            outputs.
        block: how many records one job has. Any number gives the same bits.
        low, high: float64 [K, n, out], overwritten with the bounds, not widened for rounding.
    """
    n = low.shape[1]
    width = inputs_lower.shape[2]
    blocks = (n + block - 1) // block
    # A list of inputs, with the bounds on each; every record makes a new one.
    inputs = np.empty(width, np.uint64)
    p = np.empty(width)
    q = np.empty(width)
    for job in range(first, stop):
        k = job // blocks
        start = (job % blocks) * block
        xl = inputs_lower[k % len(inputs_lower)]  # the first where all k share the inputs
        xu = inputs_upper[k % len(inputs_lower)]
        wl = weights_lower[k]
        wu = weights_upper[k]
        for s in range(start, min(n, start + block)):
            out_low = low[k, s]
            out_high = high[k, s]
            out_low[:] = 0.0
            out_high[:] = 0.0
            if width < FEWEST_LISTED:  # lists would cost more than they save
                for i in range(width):
                    index = np.uint64(i)  # as in lists: another type would be compiled again
                    _add_corner_terms(out_low, out_high, wl, wu, index, xl[s, i], xu[s, i])
                continue
            # The inputs that are positive (case 0), negative (1) and of either sign (2).
            for case in range(3):
                count = np.int64(0)  # a literal 0 would be a type of its own, and compiled again
                for i in range(width):
                    # Written always, counted only if the input belongs to the case.
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
                if case == 2:
                    _add_terms_of_either_sign(out_low, out_high, wl, wu, inputs, p, q, count)
                else:
                    smaller, larger = (wl, wu) if case == 0 else (wu, wl)
                    _add_terms_of_one_sign(out_low, out_high, smaller, larger, inputs, p, q, count)
                # The last count % 4 inputs of the list, which the functions above leave out.
                for j in range(count & -4, count):
                    _add_corner_terms(out_low, out_high, wl, wu, inputs[j], p[j], q[j])


@njit(nogil=True, cache=True)
def narrow_relu_backward(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, weights_lower, weights_upper, slack,
    inputs_lower, inputs_upper, block, low, high,
):  # fmt: skip
    """Write bounds on gradients in the input of a ReLU, behind which a layer has few outputs.

    They are bounds on the product of the layer's output gradient and its weights, widened, and
    multiplied by the derivative of ReLU as in ``relu_backward_in_place``.

    Args:
        first, stop: the jobs that this call does, numbered as in ``corner_product``.
        gradient_lower, gradient_upper: float64 [K, n, out], bounds on the gradients in the layer's
            output, fewer than ``FEWEST_LISTED`` for each record.
        weights_lower, weights_upper: float64 [K, out, in], bounds on the weights.
        slack: float64 [K, n], nonnegative bounds on rounding errors.
        inputs_lower, inputs_upper: float64 [K, n, in], bounds on the layer's input, which is the
            ReLU's output, and is positive where the ReLU's input is.
        block: how many records one job has. Any number gives the same bits.
        low, high: float64 [K, n, in], overwritten with the bounds.

    Returns:
        True if all bounds of these jobs are finite, with low <= high, before the ReLU.
    """
    record_count, width = low.shape[1:]
    blocks = (record_count + block - 1) // block
    widest = np.uint64(0)
    for job in range(first, stop):
        k = job // blocks
        start = (job % blocks) * block
        for record in range(start, min(record_count, start + block)):
            out_low = low[k, record]
            out_high = high[k, record]
            out_low[:] = 0.0
            out_high[:] = 0.0
            for output in range(gradient_lower.shape[2]):
                _add_corner_terms(
                    out_low, out_high, weights_lower[k], weights_upper[k], np.uint64(output),
                    gradient_lower[k, record, output], gradient_upper[k, record, output],
                )  # fmt: skip
            for i in range(width):
                p = out_low[i] - slack[k, record]
                q = out_high[i] + slack[k, record]
                widest = max(widest, _width_bits(p, q))
                out_low[i], out_high[i] = _relu_gradient(
                    p, q, inputs_lower[k, record, i], inputs_upper[k, record, i]
                )
    return widest < _INFINITE_BITS


@njit(nogil=True, cache=True)
def point_affine(  # type: ignore[no-untyped-def]
    first, stop, inputs, weights_lower, weights_upper, bias_lower, bias_upper, slack, smallest,
    block, largest, low, high,
):  # fmt: skip
    """Write bounds on the outputs of a linear layer for known inputs (points), widened.

    Each number goes through the operations of the product, the bias, the widening and the ReLU in
    this order, as if they followed one another over all numbers. So the bits are the same.

    Args:
        first, stop: the jobs that this call does, numbered as in ``corner_product``.
        inputs: float64 [n, in], of any sign.
        weights_lower, weights_upper: float64 [K, in, out], bounds on the weights.
        bias_lower, bias_upper: float64 [K, out], bounds on the bias.
        slack: float64 [K, n], nonnegative bounds on rounding errors. A record's bounds move
            outwards by its slack after the bias was added.
        smallest: what widened bounds below it are replaced by: 0 for the ReLU of the outputs, or
            -inf for the outputs themselves.
        block: how many records one job has. Any number gives the same bits.
        largest: float64 [K, n], overwritten with the largest upper bound of each record, or 0 if
            that is negative.
        low, high: float64 [K, n, out], overwritten with the bounds.

    Returns:
        True if all bounds of these jobs are finite, with low <= high, before the ReLU.
    """
    record_count, outputs = low.shape[1:]
    width = inputs.shape[1]
    blocks = (record_count + block - 1) // block
    widest = np.uint64(0)
    for job in range(first, stop):
        k = job // blocks
        start = (job % blocks) * block
        for record in range(start, min(record_count, start + block)):
            out_low = low[k, record]
            out_high = high[k, record]
            out_low[:] = 0.0
            out_high[:] = 0.0
            # Three inputs in one pass over the outputs, each added in its turn.
            for i in range(0, width - 2, 3):
                x0 = inputs[record, i]
                x1 = inputs[record, i + 1]
                x2 = inputs[record, i + 2]
                a0, b0 = _ends_by_sign(x0, weights_lower[k, i], weights_upper[k, i])
                a1, b1 = _ends_by_sign(x1, weights_lower[k, i + 1], weights_upper[k, i + 1])
                a2, b2 = _ends_by_sign(x2, weights_lower[k, i + 2], weights_upper[k, i + 2])
                for output in range(outputs):
                    sum_of_two = (out_low[output] + x0 * a0[output]) + x1 * a1[output]
                    out_low[output] = sum_of_two + x2 * a2[output]
                for output in range(outputs):
                    sum_of_two = (out_high[output] + x0 * b0[output]) + x1 * b1[output]
                    out_high[output] = sum_of_two + x2 * b2[output]
            for i in range(width - width % 3, width):  # the last one or two inputs
                x0 = inputs[record, i]
                a0, b0 = _ends_by_sign(x0, weights_lower[k, i], weights_upper[k, i])
                for output in range(outputs):
                    out_low[output] += x0 * a0[output]
                    out_high[output] += x0 * b0[output]
            largest_bits = np.int64(0)  # those of a negative number are a negative integer
            for output in range(outputs):
                p = (out_low[output] + bias_lower[k, output]) - slack[k, record]
                q = (out_high[output] + bias_upper[k, output]) + slack[k, record]
                out_low[output] = smallest if p < smallest else p
                out_high[output] = smallest if q < smallest else q
                widest = max(widest, _width_bits(p, q))
                largest_bits = max(largest_bits, _float_bits(q))
            largest[k, record] = _from_bits(largest_bits)
    return widest < _INFINITE_BITS


# Elementwise operations, in place.


@njit(nogil=True, cache=True)
def relu_backward_in_place(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs_lower, inputs_upper
):
    """Multiply bounds on gradients by the derivative of ReLU, in place.

    Args:
        first, stop: the rows that this call overwrites, from ``first`` to ``stop`` - 1.
        gradient_lower, gradient_upper: float64 [rows, width], bounds on the gradients in the
            output of ReLU; overwritten with bounds on those in its input.
        inputs_lower, inputs_upper: float64 [rows, width], bounds on the input of ReLU.
    """
    for row in range(first, stop):
        for i in range(gradient_lower.shape[1]):
            gradient_lower[row, i], gradient_upper[row, i] = _relu_gradient(
                gradient_lower[row, i], gradient_upper[row, i],
                inputs_lower[row, i], inputs_upper[row, i],
            )  # fmt: skip


@njit(nogil=True, cache=True)
def widen_in_place(first, stop, lower, upper, slack):  # type: ignore[no-untyped-def]
    """Lower the lower bounds and raise the upper bounds by the slack of their row, in place.

    Args:
        first, stop: the rows that this call overwrites, from ``first`` to ``stop`` - 1.
        lower, upper: float64 [rows, width]; overwritten.
        slack: float64 [rows], nonnegative bounds on rounding errors.

    Returns:
        True if all bounds of these rows are then finite, with lower <= upper.
    """
    widest = np.uint64(0)
    for row in range(first, stop):
        for i in range(lower.shape[1]):
            p = lower[row, i] - slack[row]
            q = upper[row, i] + slack[row]
            lower[row, i] = p
            upper[row, i] = q
            widest = max(widest, _width_bits(p, q))
    return widest < _INFINITE_BITS


# Selections: for each entry of a parameter, the ``count`` smallest values that came so far.


@njit(cache=True)
def _value_of_rank(values, count, rank):  # type: ignore[no-untyped-def]
    """Return the rank-th smallest of values[:count], by bisection on the integers.

    Each step counts how many values are at most the middle of the remaining interval.

    Args:
        values: int32 from -QUANTA to QUANTA + 1. Its length is at least ``count`` rounded up to a
            multiple of ``LANES``; the elements from ``count`` up to there are overwritten with a
            number above all values, so that vectorised loops have no remainder.
        count: how many values there are.
        rank: the rank, from 1 (the smallest) to ``count``.
    """
    full = (count + LANES - 1) & -LANES
    for s in range(count, full):
        values[s] = _ABOVE_ALL
    low = np.int64(-QUANTA)
    high = np.int64(QUANTA + 1)
    # The answer lies in [low, high].
    while low < high:
        middle = (low + high) >> 1
        pivot = np.int32(middle)
        below = np.int32(0)
        for s in range(full):
            below += np.int32(values[s] <= pivot)
        if below == rank:
            # The answer is the largest value up to the pivot. Stopping here only saves time.
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
    """Guess from a sample a number that at least ``missing`` of values[:n] are probably below.

    A good guess is little above the ``missing``-th smallest value, so that few values pass it. A
    bad guess costs time only, because ``_merge_smallest`` checks how many values are below it. The
    guess is always above the clip level's -QUANTA, because no value is below that, and values that
    are clipped are often many.

    Args:
        values: int32 [at least n].
        n: how many values there are.
        missing: how many of the smallest values are wanted, at least 1.
        sample: int32 scratch memory; its length, a multiple of ``LANES``, is the sample's size.

    Returns:
        The threshold, or a number above all values if there are too few to guess from.
    """
    size = len(sample)
    # Of the ``missing`` smallest values about ``share`` are in the sample, give or take its square
    # root. Three times that above the mean, and 3 for small shares, is rarely too low.
    share = size * missing / n
    rank = int(share + 3.0 * np.sqrt(share) + 3.0)
    if n < 4 * size or rank >= size:
        return _ABOVE_ALL
    step = n // size
    for s in range(size):
        sample[s] = values[s * step]
    return max(_value_of_rank(sample, size, rank), _ABOVE_CLIPPED)


@njit(cache=True)
def _append_below(values, n, threshold, pool, total, minima, hits):  # type: ignore[no-untyped-def]
    """Append those of values[:n] that are below the threshold to the pool.

    Few values are below it. So they are read as ``_COLUMN_VALUES`` rows of n / ``_COLUMN_VALUES``
    columns, and only columns whose minimum is below the threshold are looked at closely. That
    vectorises, and changes no value that is appended.

    Args:
        values: int32 [at least n].
        n: how many values there are.
        threshold: values that are at least this number are left out.
        pool: int32 [at least total + n]; its first ``total`` elements stay, and values are
            written behind them.
        total: how many values the pool holds before.
        minima, hits: int32 scratch memory of at least n / ``_COLUMN_VALUES`` numbers each.

    Returns:
        How many values the pool holds afterwards.
    """
    columns = n // _COLUMN_VALUES
    for c in range(columns):
        minima[c] = values[c]
    for j in range(1, _COLUMN_VALUES):
        for c in range(columns):
            minima[c] = min(minima[c], values[j * columns + c])
    # Here and below: written always, counted only if below the threshold. That needs no branch.
    hit_count = 0
    for c in range(columns):
        hits[hit_count] = c
        hit_count += minima[c] < threshold
    for h in range(hit_count):
        for j in range(_COLUMN_VALUES):
            value = values[hits[h] + j * columns]
            pool[total] = value
            total += value < threshold
    for s in range(_COLUMN_VALUES * columns, n):  # the values that fill no column
        pool[total] = values[s]
        total += values[s] < threshold
    return total


@njit(cache=True)
def _merge_smallest(values, n, count, selected, held, pool, sample, minima, hits):  # type: ignore[no-untyped-def]
    """Merge new values into a selection of the ``count`` smallest values so far.

    Most new values are above a threshold and are skipped. The threshold only saves time: whatever
    it is, the selection is exact (Lemma 7 of docs/proofs/selections.md).

    Args:
        values: int32 [at least n], the new values.
        n: how many new values there are.
        count: how many values to select, at least 1.
        selected: int32 [at least count]; its first ``held`` values are the selection before. It is
            overwritten. Once it holds ``count`` values, the last of them is the largest.
        held: how many values are selected before, at most ``count``.
        pool: int32 scratch memory of at least len(selected) + n, rounded up to ``LANES``.
        sample: int32 scratch memory for ``_guess_threshold``.
        minima, hits: int32 scratch memory for ``_append_below``.

    Returns:
        How many values are selected now, at most ``count``.
    """
    for s in range(held):
        pool[s] = selected[s]
    if held == count:
        threshold = selected[count - 1]  # a value that is not below the largest is not needed
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
    if held == count == total:  # nothing new is small enough
        return count
    if total < count:  # too few values so far to leave any out
        for s in range(held, total):
            selected[s] = pool[s]
        return total
    # Select the values below the count-th smallest, and fill up with that value.
    limit = _value_of_rank(pool, total, count)
    filled = 0
    for s in range(total):  # fewer than ``count`` are below the limit
        selected[filled] = pool[s]
        filled += pool[s] < limit
    for s in range(filled, count):
        selected[s] = limit
    return count


@njit(cache=True)
def _all_clipped(selected_negated, selected_upper, count):  # type: ignore[no-untyped-def]
    """Return whether all selected bounds of both sides are at the clip level.

    No bound of any record is beyond it, so the selection is then final, and further records need
    not be looked at (Lemma 8 of docs/proofs/selections.md).

    Args:
        selected_negated, selected_upper: int32 [at least count], ``count`` selected values of each
            side, the largest last.
        count: how many values are selected on each side, at least 1.
    """
    return max(selected_negated[count - 1], selected_upper[count - 1]) == -QUANTA


@njit(nogil=True, cache=True)
def select_extremes(  # type: ignore[no-untyped-def]
    first, stop, gradient_lower, gradient_upper, inputs_lower, inputs_upper, counts, outputs,
    is_point, capped, rump, held, largest_lower, smallest_upper,
):  # fmt: skip
    """Merge the gradient bounds of more records into the selections of a parameter's entries.

    For each (k, output, input) the selections hold the c largest lower bounds and the c smallest
    upper bounds of all records so far, where c = counts[k]. Lower bounds are stored with the sign
    reversed, which makes both a selection of smallest values.

    Args:
        first, stop: the rows that this call selects for, from ``first`` to ``stop`` - 1.
        gradient_lower, gradient_upper: float64 [R, n], bounds on the gradients of the loss in the
            layer's output, in quanta, with a row for each (k, output).
        inputs_lower, inputs_upper: float64 [1 or K, in, n], bounds on the layer's inputs.
        counts: int64 [K], how many bounds to select on each side.
        outputs: how many outputs the layer has, R / K.
        is_point: whether both bounds on the inputs are the same. Then half of the products would
            repeat the others, and are left out; the result is the same.
        capped: whether to select from min(upper bound, 0) and max(lower bound, 0).
        rump: False for the exact product of two intervals. True for the midpoint-radius form,
            which gives wider bounds (not for a point, where the exact product is used).
        held: int64 [R, in], how many values are selected so far; updated.
        largest_lower, smallest_upper: int32 [R, in, largest count], the selected lower bounds with
            the sign reversed, and the selected upper bounds; updated.
    """
    n = gradient_lower.shape[1]
    width = inputs_lower.shape[1]
    pool_size = smallest_upper.shape[2] + n + LANES
    columns = n // _COLUMN_VALUES + 1
    # Scratch memory, which each row overwrites.
    negated_lower = np.empty(n, np.int32)
    upper = np.empty(n, np.int32)
    pool = np.empty(pool_size, np.int32)
    sample = np.empty(_SAMPLE_VALUES, np.int32)
    minima = np.empty(columns, np.int32)
    hits = np.empty(columns, np.int32)
    for r in range(first, stop):
        k = r // outputs
        count = counts[k]
        if count == 0:
            continue
        x_index = k if inputs_lower.shape[0] > 1 else 0  # 0 where all k share the same inputs
        p = gradient_lower[r]
        q = gradient_upper[r]
        for i in range(width):
            before = held[r, i]
            if before == count and _all_clipped(largest_lower[r, i], smallest_upper[r, i], count):
                continue
            a = inputs_lower[x_index, i]
            b = inputs_upper[x_index, i]
            # The bounds of all records: the lower ones with the sign reversed, and the upper ones.
            if is_point:
                for s in range(n):
                    c = a[s] * p[s]
                    d = a[s] * q[s]
                    negated_lower[s] = np.int32(-_quantise(min(c, d)))
                    upper[s] = np.int32(_quantise(max(c, d)))
            else:
                for s in range(n):
                    smallest, largest = _corner_bounds(p[s], q[s], a[s], b[s], rump)
                    negated_lower[s] = np.int32(-_quantise(smallest))
                    upper[s] = np.int32(_quantise(largest))
            if capped:
                for s in range(n):
                    negated_lower[s] = min(negated_lower[s], np.int32(0))
                    upper[s] = min(upper[s], np.int32(0))
            # Both sides hold equally many values, so ``held`` is written after the second.
            _merge_smallest(
                negated_lower, n, count, largest_lower[r, i], before, pool, sample, minima, hits
            )
            held[r, i] = _merge_smallest(
                upper, n, count, smallest_upper[r, i], before, pool, sample, minima, hits
            )
