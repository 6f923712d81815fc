"""Landmarks: public rows that a record is compared with, by a Gaussian kernel.

Formal guarantees
    Each alone. Records and landmarks are integers of length at most 2^23 (multiples of 2^-22), so |u|^2 + |z|^2 - 2 u.z and
    all that it is made of are integers below 2^53: exact, in any order of summation. What follows is elementwise, each
    operation rounded alone (``arithmetic.falling``; no library's exp, whose last digits a vector unit may decide). So a
    record's values are a function of that record and of public constants, to the last bit.
    The same landmarks. They are chosen among distinct rows by a keyed hash of each row's integers: whatever order the
    public rows come in and however often one is there, the same ones are chosen, in the same order.

Source: Williams, Seeger (2000).
"""

from hashlib import blake2b

import numpy as np

from agt.errors import ConfigError, UnsoundError
from agt.models.arithmetic import GRAIN, falling, inverse_root


def choose(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """[width, count] of the rows, one a column.

    Args:
        rows: [n, width] public rows, integers.
        count: how many.
        seed: public key of the hash that chooses.

    Raises:
        ConfigError: there are not so many different ones.
        UnsoundError: a row is not finite.
    """
    if not bool(np.isfinite(rows).all()):
        raise UnsoundError("certificate.features.public: a public row is not finite")
    key = f"landmarks/{seed}".encode()
    distinct = {row.tobytes() for row in rows.astype("<i8")}
    if len(distinct) < count:
        raise ConfigError(
            f"certificate.features.count={count}: landmarks are public rows, and there are {len(distinct)} different ones: "
            "use fewer, or declare more records public"
        )
    chosen = sorted(distinct, key=lambda row: (blake2b(row, digest_size=8, key=key).digest(), row))[:count]
    return np.frombuffer(b"".join(chosen), dtype="<i8").reshape(count, -1).T.astype(np.float64)


def kernel(rows: np.ndarray, landmarks: np.ndarray, bandwidth: float) -> np.ndarray:
    """[n, count] exp(-|x - z|^2 / (2 bandwidth^2)).

    Args:
        rows: [n, width] integers, ``arithmetic.whole`` of records of norm at most 1.
        landmarks: [width, count] the same of public rows.
        bandwidth: in units of length 1.
    """
    squares = np.einsum("nw,nw->n", rows, rows)[:, None] + np.einsum("wm,wm->m", landmarks, landmarks)
    apart = squares - 2 * (rows @ landmarks)
    values: np.ndarray = falling(np.ldexp(apart, -2 * GRAIN) * (0.5 / bandwidth**2))
    return values


def root(landmarks: np.ndarray, bandwidth: float, power: float, ridge: float) -> np.ndarray:
    """[count, count] integers proportional to (K + ridge)^(-power/2), K the landmarks' own kernel: Nystroem's at power 1.

    Raises:
        ConfigError: some landmarks are so close that only rounding tells them apart, and there is no ridge.
    """
    fault = f"some of {landmarks.shape[1]} landmarks lie so close that only rounding tells them apart: use 1e-3"
    return inverse_root(kernel(landmarks.T.copy(), landmarks, bandwidth), power, ridge, fault)
