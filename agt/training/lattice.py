"""The public lattice on which the members of an ensemble answer with numbers."""

import numpy as np

LATTICE_STEPS = 2**20
"""N: answers are integers from 0 to N. It is even, so that N / 2 is the middle of the range."""
MIDDLE = LATTICE_STEPS // 2
"""The answer of a member that has no records or gives no finite number."""


def to_lattice(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as points of the public lattice, rounded to the nearest.

    Each point depends on its own number alone, and larger numbers have no smaller points (Lemma 2
    of docs/proofs/numbers.md).

    Args:
        numbers: float64 of any shape, where -1 and 1 are the ends of the range. Numbers beyond are
            clipped; what is not finite becomes the middle.

    Returns:
        int32 of the same shape, from 0 to ``LATTICE_STEPS``.
    """
    finite = np.isfinite(numbers)
    clipped = np.clip(np.where(finite, numbers, 0.0), -1.0, 1.0)
    return np.rint((clipped + 1.0) * MIDDLE).astype(np.int32)
