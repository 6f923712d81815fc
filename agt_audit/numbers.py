"""Attacks on released numbers: a query's private sums on two neighbouring datasets are released.

The noise that a release states is compared with the distance of the sums, exactly. Draws show what
it does, whatever it states. Whether the published numbers are public is checked on both sides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import cast

import numpy as np

from agt.mechanisms.laplace_mean import LaplaceMean, NumberLabelling
from agt.numeric import Draw, Randomness, SeededRandomness, printed_decimal
from agt.training.lattice import LATTICE_STEPS
from agt_audit.pairs import NumberPair, neighbouring_pairs_of
from agt_audit.recorded_draws import RecordedRandomness
from agt_audit.trials import Exact, TrialPlan, attacked, tested
from agt_cli.report.findings import Finding, Outcome, exact_finding

CHECKED_DRAWS = 100  # releases from each side that are checked to be in the public range
MADE_UP = (
    "no data were used: the audit made up two sums that differ as much as those of neighbouring "
    "datasets can"
)


@dataclass(frozen=True)
class NumberSide:
    """A query's sum on one dataset, with all that its release depends on.

    Attributes:
        total: the sum of the members' answers, in steps of the public lattice.
        members: T, the number of members that the release uses.
        touches: the number of members that one edit can change, which the release uses.
        number_of: released sums [n] -> [n] the numbers that are published for them.
    """

    total: int
    members: int
    touches: int
    number_of: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of_query(cls, labelling: NumberLabelling, total: int) -> "NumberSide":
        """Return the side of a model whose answers to a query have the sum ``total``."""
        model = labelling.model
        return cls(total, model.settings.ensemble.members, model.members_per_edit, model.mean_of)

    @classmethod
    def without_data(cls, total: int, members: int, touches: int) -> "NumberSide":
        """Return a side with a sum that no model gave; numbers have the public range [0, 1]."""
        largest = members * LATTICE_STEPS
        return cls(total, members, touches, lambda sums: sums / largest)

    def draw(self, mechanism: LaplaceMean, source: Randomness, count: int) -> np.ndarray:
        """Return released sums [count]: the sum is released ``count`` times as in `agt predict`.

        Args:
            mechanism: releases the sum.
            source: the randomness of the releases.
            count: how many releases to make.
        """
        sums = np.full(count, self.total, dtype=np.int64)
        return mechanism.release(sums, self.members, self.touches, source)

    def stated_noise(self, mechanism: LaplaceMean) -> Draw | None:
        """Return the draw of noise that a release asks its randomness for.

        None: it does not ask for exactly one draw, of discrete Laplace noise.
        """
        recorded = RecordedRandomness(SeededRandomness(0))
        self.draw(mechanism, recorded, 1)
        draws = recorded.draws
        if [draw.law for draw in draws] != ["geometric"]:
            return None
        return draws[0]


@dataclass(frozen=True)
class SumPair:
    """A query's sums on two neighbouring datasets, and how each is released.

    Attributes:
        first: the sum on one dataset.
        second: the sum on the other, with the same public number of members.
        where: a sentence that says which datasets these are.
    """

    first: NumberSide
    second: NumberSide
    where: str

    @property
    def moved(self) -> int:
        """The absolute difference of the two sums, in steps of the lattice."""
        return abs(self.first.total - self.second.total)

    @property
    def sides(self) -> tuple[NumberSide, NumberSide]:
        """The first and the second side."""
        return self.first, self.second

    @property
    def largest(self) -> int:
        """The largest sum that is possible, in steps of the lattice."""
        return self.first.members * LATTICE_STEPS

    def __str__(self) -> str:
        return (
            f"the sum of the members' answers is {self.first.total:,} on one dataset and "
            f"{self.second.total:,} on its neighbour, of {self.largest:,} steps of the public "
            "lattice"
        )


def audit_sums(mechanism: LaplaceMean, pair: SumPair, plan: TrialPlan) -> tuple[Finding, ...]:
    """Return the findings about one pair: of ``law_finding``, ``published_finding`` and
    ``drawn_findings``, in this order.
    """
    return (
        law_finding(mechanism, pair),
        published_finding(mechanism, pair, plan.source),
        *drawn_findings(mechanism, pair, plan),
    )


def exact_sum_loss(mechanism: LaplaceMean, pair: SumPair) -> Exact | None:
    """Compute the privacy loss of a pair exactly, from the noise that the releases ask for.

    Noise of the same scale on both sides gives every released sum beyond the two exact sums
    a ratio of probabilities of e^(rate distance). No other has a larger one, and clamping keeps it.

    Returns:
        The loss; None: the two sides do not both ask for discrete Laplace noise of one scale.
    """
    first = pair.first.stated_noise(mechanism)
    second = pair.second.stated_noise(mechanism)
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
    subject = f"{subject_of(mechanism)}: its noise"
    attack = f"the distributions of the noisy sum on two datasets were compared: {pair}"
    exact = exact_sum_loss(mechanism, pair)
    if exact is None:
        return Finding(
            subject,
            str(mechanism.guarantee),
            attack,
            pair.where,
            Outcome.UNTESTED,
            "the release does not state discrete Laplace noise of the same scale on both "
            "datasets, so its privacy loss cannot be computed",
            "epsilon",
        )
    return exact.finding(subject, mechanism.guarantee, attack, pair.where)


def published_finding(mechanism: LaplaceMean, pair: SumPair, source: Randomness) -> Finding:
    """Return the finding about whether the set of publishable numbers depends on the records.

    Args:
        mechanism: releases the sums.
        pair: the two sides, from each of which ``CHECKED_DRAWS`` sums are released.
        source: the randomness of these releases.
    """
    largest = pair.largest
    drawn = np.concatenate([side.draw(mechanism, source, CHECKED_DRAWS) for side in pair.sides])
    off_lattice = (drawn != np.rint(drawn)) | (drawn < 0) | (drawn > largest)
    possible = np.linspace(0, largest, CHECKED_DRAWS).astype(np.int64)
    numbers, others = (side.number_of(possible) for side in pair.sides)
    invalid = int(off_lattice.sum())
    different = int((numbers != others).sum())
    return exact_finding(
        f"{subject_of(mechanism)}: the numbers that it can publish",
        f"a released sum is a whole number from 0 to {largest:,}, and the number that it stands "
        "for does not depend on the records",
        "sums were released on both datasets, and possible sums were turned into numbers on both",
        f"{len(drawn)} releases, and {len(possible)} possible sums; {pair.where}",
        "differences",
        float(invalid + different),
        f"{invalid} of {len(drawn)} released sums are not whole numbers of the public range, and "
        f"{different} of {len(possible)} possible sums stand for another number on the "
        "neighbouring dataset",
        "this audit detects a range, or a number of members, that is read off the records",
    )


def drawn_findings(mechanism: LaplaceMean, pair: SumPair, plan: TrialPlan) -> tuple[Finding, ...]:
    """Return the findings of an attack that counts releases of both sides."""
    first, second = (partial(side.draw, mechanism, plan.source) for side in pair.sides)
    claim = tested(subject_of(mechanism), mechanism.guarantee, str(pair), pair.where, plan)
    return attacked((first, second), claim, plan, None)


def subject_of(mechanism: LaplaceMean) -> str:
    """Return the name of a mechanism with its budget, for findings."""
    return f"{mechanism.name} with eps={mechanism.eps:g}"


def made_up_pairs(members: int) -> Iterator[SumPair]:
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
            first = NumberSide.without_data(total, members, touches)
            second = replace(first, total=total + step)
            yield SumPair(first, second, MADE_UP)


def audit_made_up_sums(
    mechanism: LaplaceMean, members: int, plan: TrialPlan
) -> tuple[tuple[Finding, ...], list[tuple[SumPair, Exact]]]:
    """Audit a mechanism without a run, on the pairs of sums that ``made_up_pairs`` yields.

    The exact loss is computed for every pair. What is exact and what can be published is judged on
    the pair with the largest loss. Releases are drawn from two pairs only: the first pair for
    edits that change one member, and the first for edits that change two.

    Args:
        mechanism: the mechanism to audit.
        members: T, at least 1.
        plan: how many releases to count of each side. Its error probability is shared among the
            pairs from which releases are drawn.

    Returns:
        The findings: of the exact loss, of what can be published, and of the draws. And (pair,
        loss) for every pair; it is empty if the releases do not state noise of one scale on both
        sides, so that no loss can be computed.
    """
    pairs = list(made_up_pairs(members))
    losses = []
    first_pairs: dict[int, SumPair] = {}  # by the number of members that an edit changes
    for pair in pairs:
        first_pairs.setdefault(pair.first.touches, pair)
        loss = exact_sum_loss(mechanism, pair)
        if loss is not None:
            losses.append((pair, loss))
    judged_pair = pairs[0]
    if losses:
        judged_pair, _ = max(losses, key=lambda pair_and_loss: pair_and_loss[1].rank)
    shared_plan = plan.shared_among(len(first_pairs))
    findings = [
        law_finding(mechanism, judged_pair),
        published_finding(mechanism, judged_pair, plan.source),
    ]
    for pair in first_pairs.values():
        findings += drawn_findings(mechanism, pair, shared_plan)
    return tuple(findings), losses


def farthest_sums(pair: NumberPair, queries: np.ndarray, where: str) -> SumPair:
    """Return the sums of the query at which the sums of two models differ most.

    Args:
        pair: the two models.
        queries: [n, ...] the queries to choose from, at least one.
        where: a sentence that says which datasets the models are of.
    """
    sums, other_sums = pair.evidence(queries)
    farthest = int(np.abs(sums - other_sums).argmax())
    return SumPair(
        NumberSide.of_query(pair.with_unit, int(sums[farthest])),
        NumberSide.of_query(pair.without_unit, int(other_sums[farthest])),
        where,
    )


def search_sums(
    labelling: NumberLabelling, anchors: np.ndarray, count: int, lines: int, seed: int
) -> SumPair | None:
    """Search neighbouring datasets and queries for sums that differ much from the run's.

    Args:
        labelling: releases of the run's model.
        anchors: [n, ...] queries. Neighbours are made to change the answers between some of them,
            and further queries are drawn around them.
        count: how many neighbouring datasets to train on.
        lines: as of ``NumberPair.chosen_queries``.
        seed: of the choice of neighbours and queries.

    Returns:
        The two sums with the largest difference; None if no sum differs.
    """
    searched = neighbouring_pairs_of(labelling, anchors, count, lines, np.random.default_rng(seed))
    found = [
        farthest_sums(cast(NumberPair, pair), queries, where) for pair, queries, where in searched
    ]
    best = max(found, key=lambda sums: sums.moved, default=None)
    return best if best is not None and best.moved else None
