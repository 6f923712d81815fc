"""Crosses: products of different coordinates of a record, each hashed to a bucket and a sign.

Coordinate i has a public shift h_i and sign s_i; the product of coordinates i, j, ... goes to the bucket h_i + h_j + ...
modulo the number of buckets, with the sign s_i s_j ... . Where coordinates are one-hot, a product is 1 if all those values
are there: a linear head on crosses learns what values mean together. For two coordinates, the expected product of two
records' sketches is the sum over pairs i < j of x_i x_j y_i y_j (Weinberger et al. 2009; Pham, Pagh 2013).

Formal guarantees
    Each alone. ``sketches`` walks one record at a time, in the order of its coordinates, compiled without reassociation or
    contraction: each operation is rounded alone. Shifts and signs are keyed hashes of the coordinates' numbers, of nothing
    else. So a record's buckets are a function of that record and of public constants, to the last bit.

Sources: Weinberger et al. (2009), feature hashing; Pham, Pagh (2013), sums of hashes for products.
"""

import numpy as np
from numba import njit

from agt.data.ids import keyed_hash


def shifts_of(width: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """([width] int64 bucket, [width] float64 sign) of each coordinate, from the public seed."""
    hashes = keyed_hash(np.arange(width), f"crosses/{seed}")
    return (hashes % np.uint64(count)).astype(np.int64), np.where(hashes >> np.uint64(63), 1.0, -1.0)


@njit(cache=True)
def sketches(v, shifts, signs, count, order):  # type: ignore[no-untyped-def]
    """[order - 1, n, count] the buckets of products of 2, ..., ``order`` different coordinates of v [n, w]."""
    n, width = v.shape
    sums = np.zeros((order - 1, n, count))
    met, values = np.empty(width, dtype=np.int64), np.empty(width)
    for row in range(n):
        many = 0
        for i in range(width):
            if v[row, i] == 0.0:
                continue
            value, shift = signs[i] * v[row, i], shifts[i]
            for more in range(order - 2, 0, -1):  # longer ones, from all those one shorter, before this one joins these
                for bucket in range(shift):
                    sums[more, row, bucket] += value * sums[more - 1, row, bucket - shift + count]
                for bucket in range(shift, count):
                    sums[more, row, bucket] += value * sums[more - 1, row, bucket - shift]
            for j in range(many):
                bucket = shift + met[j]
                sums[0, row, bucket - count if bucket >= count else bucket] += value * values[j]
            met[many], values[many] = shift, value
            many += 1
    return sums
