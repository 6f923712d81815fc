"""What a mechanism really gives away: its exact privacy loss where distances are read off a
grid.
"""

from collections.abc import Sequence

import numpy as np

from agt.mechanisms.mechanism import Mechanism


def true_loss(mechanism: Mechanism, ks: Sequence[int]) -> float:
    """The privacy loss per query, max |ln P/P'| over labels, if distances come from the grid ``ks``
    and b to g hold.

    The worst pair of neighbours that nested boxes allow: L at two successive values of {0} and the
    grid, or different labels at L = 0. Where nesting fails too, there is no bound.

    Args:
        mechanism: its closed form is used; for a two-class mechanism whose flips may not be 0.
        ks: the values of k that were trained for.
    """
    values = np.array(sorted({0, *ks}), dtype=np.int64)
    flip = mechanism.flip_probability(values)
    wrong = np.log(flip / (mechanism.classes - 1))
    right = np.log1p(-flip)
    steps = [abs(np.diff(wrong)), abs(np.diff(right)), [abs(right[0] - wrong[0])]]
    return float(max(max(step, default=0.0) for step in steps))
