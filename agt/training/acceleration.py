"""Nesterov's accelerated gradient descent, for strongly convex problems.

From 0 it reaches any gradient norm in a public number of steps, whatever the data (Lemma 4 of
docs/proofs/minimiser.md), so a failure to reach it says nothing about the records.
"""

import math

from agt.numeric import Array

# A solver gives up after this many times the number of steps that exact arithmetic needs.
ITERATIONS_FACTOR = 4


def accelerated_step(
    iterate: Array, extrapolated: Array, gradient: Array, smoothness: float, strength: float
) -> tuple[Array, Array]:
    """Take one step of Nesterov's accelerated gradient descent with a constant momentum.

    Call it repeatedly to minimise a smooth and strongly convex function.

    Args:
        iterate: the current iterate, of any shape; the other arrays have the same shape.
        extrapolated: the current extrapolated point; at the start it equals ``iterate``.
        gradient: the function's gradient at ``extrapolated``.
        smoothness: the Lipschitz constant of the gradient, above 0.
        strength: the constant of strong convexity, above 0 and at most ``smoothness``.

    Returns:
        (the next iterate, the next extrapolated point), as new arrays.
    """
    root = math.sqrt(strength / smoothness)
    momentum = (1 - root) / (1 + root)
    next_iterate = extrapolated - gradient / smoothness
    next_extrapolated = next_iterate + (next_iterate - iterate) * momentum
    return next_iterate, next_extrapolated


def sufficient_iterations(
    smoothness: float, strength: float, value_gap: float, tolerance: float
) -> int:
    """Return 1 + ceil(sqrt(L / strength) ln(2 L G / tolerance^2)), a number of gradient steps.

    So many accelerated steps from 0 reach a gradient norm of at most ``tolerance``, in exact
    arithmetic (Lemma 4 of docs/proofs/minimiser.md).

    Args:
        smoothness: L of the objective F.
        strength: the factor of its regulariser, which makes it strongly convex.
        value_gap: G, at least F(0) - F(theta*) + strength |theta*|^2 / 2 for the minimiser theta*.
        tolerance: the gradient norm to reach, above 0.
    """
    ratio = max(2.0, 2 * smoothness * value_gap / tolerance**2)
    return 1 + math.ceil(math.sqrt(smoothness / strength) * math.log(ratio))
