"""One step of Nesterov's accelerated gradient descent, for strongly convex problems.

From 0 it reaches any gradient norm in a public number of steps, whatever the data (Lemma 4 of
docs/proofs/minimiser.md), so a failure to reach it says nothing about the records.
"""

import math

from agt.numeric import Array

# A solver gives up after this many times the number of steps that exact arithmetic needs.
ITERATIONS_FACTOR = 4


def accelerated_step(
    x: Array, y: Array, gradient: Array, smoothness: float, strength: float
) -> tuple[Array, Array]:
    """Return the next (x, y) of Nesterov's method with a constant momentum.

    Args:
        x: the current iterate.
        y: the current extrapolated point; at the start it equals ``x``.
        gradient: the objective's gradient at ``y``.
        smoothness: Lipschitz constant of the gradient.
        strength: constant of strong convexity, at most ``smoothness``.
    """
    root = math.sqrt(strength / smoothness)
    next_x = y - gradient / smoothness
    next_y = next_x + (next_x - x) * ((1 - root) / (1 + root))
    return next_x, next_y
