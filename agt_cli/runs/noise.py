"""DP-SGD's noise in a training run with boxes (000, Algorithm 1): from settings to draws, and what the weights may claim.

Two statements, never mixed. The certificates compare with what the same run, *meeting the same draws*, would have given:
for every draw they are those of a deterministic training with a public constant, and so is every label released from them.
The (epsilon, delta) of the weights averages over the draws. Both at once are covered by neither: whoever holds the weights
and labels from the certificates sees two functions of one draw.
"""

from collections.abc import Sequence

from agt.certificates.conditions import Condition, declarations
from agt.mechanisms.release import APART, simulation
from agt.mechanisms.rigour import neighbours_of, reason_of
from agt.training.noise import NoisePlan
from agt_cli.papers.baselines.released import caveat_of
from agt_cli.runs.prepare import RunSettings

RESTS_ON = "bceg"  # a and f speak of boxes alone; d of their nesting
REDRAWN = (
    "certificates compare with runs that meet the noise this run drew; training again draws anew and may give a query "
    "another label, so they certify nothing about retraining or unlearning"
)
SCOPE = (
    "model.safetensors alone: boxes, metrics and the rest of the folder depend on the private data; and among data that "
    "training takes without an error (it refuses a batch above n_max, a unit above relation.unit_rows, a missing class and "
    "the like)"
)


def noise_words(settings: RunSettings, noise: NoisePlan, conditions: Sequence[Condition]) -> list[str]:
    """What may be said of the noisy weights, in lines; the first says whether anything is guaranteed."""
    if settings.noise is None:
        return []
    config, relation = settings.noise, settings.relation
    missing = [c for c in conditions if c.letter in RESTS_ON and not c.held]
    guarantee = f"({config.epsilon:g}, {config.delta:g})-DP"
    if missing:
        words = [f"NO PROOF OF PRIVACY for the noisy weights, meant to be {guarantee}: {reason_of(c)}" for c in missing]
    else:
        words = [
            f"the weights in model.safetensors are {guarantee} for {neighbours_of(relation)}, in exact arithmetic",
            SCOPE,
        ]
    steps = f"{noise.epochs} of the {settings.training.epochs * settings.training.batch.count} steps"
    words += [
        f"each step's direction takes Gaussian noise of standard deviation {noise.sigma:.4g} in every element; its l2 "
        f"sensitivity is {noise.sensitivity:.4g} (elementwise clip), and {steps} see any one unit: mu = {noise.mu:.4g} "
        "in all",
        caveat_of(config.seed),
        *declarations([c for c in conditions if c.letter in RESTS_ON]),
        APART,
        REDRAWN,
        "this run keeps no account of other releases about the same data: their losses add up",
    ]
    if config.seed is not None:
        return simulation("the noise comes from a seed and can be subtracted; nothing here is private", words)
    return words


def proved(settings: RunSettings, conditions: Sequence[Condition]) -> bool:
    """Whether the noisy weights carry their guarantee: every condition holds, and nobody knows the seed."""
    simulated = settings.noise is not None and settings.noise.seed is not None
    return not simulated and all(c.held for c in conditions if c.letter in RESTS_ON)
