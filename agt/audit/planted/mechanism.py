"""Release mechanisms that leak more than they claim."""

import math

import numpy as np

from agt.audit.estimates import Mistakes, epsilon_bound
from agt.audit.findings import Finding, Outcome

TRIALS = 10_000


def twice_the_budget(seed: int) -> Finding:
    """Randomized response that claims epsilon 1 and flips as for 2."""
    rng, claimed, flip = np.random.default_rng(seed), 1.0, 1 / (1 + math.exp(2))
    alarms, misses = (int(rng.binomial(TRIALS, flip)) for _ in range(2))
    bound = epsilon_bound(Mistakes(alarms, TRIALS, misses, TRIALS), 0.0, 0.95)
    return Finding(
        subject="randomized response that flips for another budget (planted)",
        claim="1-differentially private",
        attack="the released label itself is the guess",
        effort=f"{TRIALS} releases a side",
        outcome=Outcome.VIOLATED if bound > claimed else Outcome.STANDS,
        meaning=f"epsilon is at least {bound:.3g}, with 95 % confidence",
        measure="epsilon",
        claimed=claimed,
        delta=0.0,
        found=bound,
        confidence=0.95,
    )


PLANTED = {"randomized response that flips for another budget": twice_the_budget}
