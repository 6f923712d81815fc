"""Attacks on released numbers: synthetic sums of two neighbouring datasets are released.

The noise that a release states is compared with the distance of the sums, exactly. Draws show what
it does, whatever it states.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import cast

import numpy as np

from agt.mechanisms.laplace_mean import LaplaceMean
from agt.numeric import Draw, Randomness, SeededRandomness, printed_decimal
from agt.training.lattice import LATTICE_STEPS
from agt_audit.recorded_draws import RecordedRandomness
from agt_audit.trials import Exact, TrialPlan, claim_to_test, judge_by_draws, subject_of
from agt_cli.report.findings import Finding, Outcome

NO_DATA_USED = (
    "no data were used: the audit made up two sums that differ as much as those of neighbouring "
    "datasets can"
)


@dataclass(frozen=True)
class SumPair:
    """A query's sums on two neighbouring datasets, and the public numbers of their release.

    Attributes:
        first: the sum of the members' answers on one dataset, in steps of the public lattice.
        second: the sum on the other dataset.
        members: T, the number of members.
        touches: the number of members that one edit can change, for which noise is scaled.
    """

    first: int
    second: int
    members: int
    touches: int

    def __str__(self) -> str:
        largest = self.members * LATTICE_STEPS
        return (
            f"the sum of the members' answers is {self.first:,} on one dataset and "
            f"{self.second:,} on its neighbour, of {largest:,} steps of the public lattice"
        )

    def draw(
        self, mechanism: LaplaceMean, total: int, source: Randomness, count: int
    ) -> np.ndarray:
        """Release one of the two sums ``count`` times as in `agt predict`, and return all, [count].

        Args:
            mechanism: releases the sum.
            total: ``first`` or ``second``.
            source: the randomness of the releases.
            count: how many releases to make.
        """
        sums = np.full(count, total, dtype=np.int64)
        return mechanism.release(sums, self.members, self.touches, source)

    def stated_noise(self, mechanism: LaplaceMean, total: int) -> Draw | None:
        """Release one of the two sums once, and return the draw of noise that this asked for.

        None: it did not ask for exactly one draw, of discrete Laplace noise.

        Args:
            mechanism: releases the sum.
            total: ``first`` or ``second``.
        """
        recorded = RecordedRandomness(SeededRandomness(0))
        # Called for what it adds to ``recorded``; what it returns is not needed.
        self.draw(mechanism, total, recorded, 1)
        draws = recorded.draws
        if [draw.law for draw in draws] != ["geometric"]:
            return None
        return draws[0]


def exact_sum_loss(mechanism: LaplaceMean, pair: SumPair) -> Exact | None:
    """Compute the privacy loss of a pair exactly, from the noise that the releases ask for.

    Noise of the same scale on both sides gives every released sum beyond the two exact sums
    a ratio of probabilities of e^(rate distance). No other has a larger one, and clamping keeps it.

    Returns:
        The loss; None: the two sides do not both ask for discrete Laplace noise of one scale.
    """
    first = pair.stated_noise(mechanism, pair.first)
    second = pair.stated_noise(mechanism, pair.second)
    if first is None or second is None or first.public != second.public:
        return None
    eps, sensitivity, _ = cast(tuple[float, int, int], first.public)
    (total,) = cast(list[int], first.private)
    (other_total,) = cast(list[int], second.private)
    # of the two readings of eps, as a double and as the decimal that it prints as, the noise has
    # the scale of the smaller, and the claim is the larger
    drawn_eps = min(Fraction(eps), Fraction(printed_decimal(eps)))
    claimed_eps = max(Fraction(mechanism.eps), Fraction(printed_decimal(mechanism.eps)))
    loss = drawn_eps / sensitivity * abs(total - other_total)
    return Exact(float(loss), loss > claimed_eps)


def law_finding(mechanism: LaplaceMean, pair: SumPair) -> Finding:
    """Return the finding of an exact comparison of the claim with ``exact_sum_loss``.

    It is untested if the loss cannot be computed.
    """
    subject = f"{subject_of(mechanism.name, mechanism.guarantee)}: its noise"
    attack = f"the distributions of the noisy sum on two datasets were compared: {pair}"
    exact = exact_sum_loss(mechanism, pair)
    if exact is None:
        return Finding(
            subject=subject,
            claim=str(mechanism.guarantee),
            attack=attack,
            effort=NO_DATA_USED,
            outcome=Outcome.UNTESTED,
            meaning=(
                "the release does not state discrete Laplace noise of the same scale on both "
                "datasets, so its privacy loss cannot be computed"
            ),
            measure="epsilon",
        )
    return exact.finding(subject, mechanism.guarantee, attack, NO_DATA_USED)


def drawn_finding(mechanism: LaplaceMean, pair: SumPair, plan: TrialPlan) -> Finding:
    """Return the finding of an attack that counts releases of both sums."""
    draw_first = partial(pair.draw, mechanism, pair.first, plan.source)
    draw_second = partial(pair.draw, mechanism, pair.second, plan.source)
    guarantee = mechanism.guarantee
    subject = subject_of(mechanism.name, guarantee)
    claim = claim_to_test(subject, guarantee, str(pair), NO_DATA_USED, plan)
    return judge_by_draws((draw_first, draw_second), claim, plan, "released numbers")


def synthetic_pairs(members: int) -> Iterator[SumPair]:
    """Yield pairs of sums that differ as much as one edit allows, for both kinds of edits.

    An edit changes the answer of one member, or of two if it replaces a unit, from one end of the
    range to the other. The remaining members all answer one end, or their sum is in the middle.

    Args:
        members: T, at least 1.
    """
    for touches in range(1, min(members, 2) + 1):
        step = touches * LATTICE_STEPS
        others = (members - touches) * LATTICE_STEPS
        for total in dict.fromkeys([others // 2, 0, others]):
            yield SumPair(total, total + step, members, touches)


def audit_synthetic_sums(
    mechanism: LaplaceMean, members: int, plan: TrialPlan
) -> tuple[Finding, ...]:
    """Audit a mechanism without a run, on the pairs of sums that ``synthetic_pairs`` yields.

    The exact loss is computed for every pair, and the largest one is judged. Releases are drawn
    from two pairs only: the first pair for edits that change one member, and the first for edits
    that change two.

    Args:
        mechanism: the mechanism to audit.
        members: T, at least 1.
        plan: how many releases to count of each side. Its error probability is shared among the
            pairs from which releases are drawn.

    Returns:
        The finding of the largest exact loss, and then those of the draws.
    """
    pairs = list(synthetic_pairs(members))

    def stated_loss(pair: SumPair) -> float:
        loss = exact_sum_loss(mechanism, pair)
        return -math.inf if loss is None else loss.rank  # None: it cannot be computed

    worst_pair = max(pairs, key=stated_loss)
    first_pairs: dict[int, SumPair] = {}  # by the number of members that an edit changes
    for pair in pairs:
        first_pairs.setdefault(pair.touches, pair)
    shared_plan = plan.shared_among(len(first_pairs))
    drawn = [drawn_finding(mechanism, pair, shared_plan) for pair in first_pairs.values()]
    return (law_finding(mechanism, worst_pair), *drawn)
