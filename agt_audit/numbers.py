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
from agt.models.model import Model
from agt.numeric import Draw, Randomness, SeededRandomness, printed_decimal
from agt.training.lattice import LATTICE_STEPS
from agt_audit.pairs import NumberPair, neighbours
from agt_audit.recorded_draws import RecordedRandomness
from agt_audit.trials import Exact, TrialPlan, attacked, tested
from agt_cli.report.findings import Finding, Outcome, counterexamples

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
        second: the sum on the other.
        members: T, the public number of members.
        where: a sentence that says which datasets these are.
    """

    first: NumberSide
    second: NumberSide
    members: int
    where: str

    @property
    def moved(self) -> int:
        """The absolute difference of the two sums, in steps of the lattice."""
        return abs(self.first.total - self.second.total)

    @property
    def sides(self) -> tuple[NumberSide, NumberSide]:
        """The first and the second side."""
        return self.first, self.second

    def __str__(self) -> str:
        largest = self.members * LATTICE_STEPS
        return (
            f"the sum of the members' answers is {self.first.total:,} on one dataset and "
            f"{self.second.total:,} on its neighbour, of {largest:,} steps of the public lattice"
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
    largest = pair.members * LATTICE_STEPS
    drawn = np.concatenate([side.draw(mechanism, source, CHECKED_DRAWS) for side in pair.sides])
    off_lattice = (drawn != np.rint(drawn)) | (drawn < 0) | (drawn > largest)
    possible = np.linspace(0, largest, CHECKED_DRAWS).astype(np.int64)
    numbers, others = (side.number_of(possible) for side in pair.sides)
    invalid = int(off_lattice.sum())
    different = int((numbers != others).sum())
    return counterexamples(
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
            yield SumPair(first, second, members, MADE_UP)


def audit_sums_alone(
    mechanism: LaplaceMean, members: int, plan: TrialPlan
) -> tuple[tuple[Finding, ...], list[tuple[SumPair, Exact]]]:
    """Audit a mechanism without a run, on ``made_up_pairs`` of sums.

    Args:
        mechanism: the mechanism to audit.
        members: T, at least 1.
        plan: how many releases to count. They are made from the first pair of each kind of edits,
            which share the error probability.

    Returns:
        The findings; and each pair whose loss can be computed, with its loss.
    """
    pairs = list(made_up_pairs(members))
    losses = []
    for pair in pairs:
        loss = exact_sum_loss(mechanism, pair)
        if loss is not None:
            losses.append((pair, loss))
    largest_loss_pair = pairs[0]
    if losses:
        largest_loss_pair, _ = max(losses, key=lambda pair_and_loss: pair_and_loss[1].rank)
    # in reversed order, so that the first pair of each number of changed members remains
    pair_by_touches = {pair.first.touches: pair for pair in reversed(pairs)}
    confidence = 1 - (1 - plan.confidence) / len(pair_by_touches)
    shared = replace(plan, confidence=confidence)
    drawn: list[Finding] = []
    for pair in pair_by_touches.values():
        drawn += drawn_findings(mechanism, pair, shared)
    law = law_finding(mechanism, largest_loss_pair)
    published = published_finding(mechanism, largest_loss_pair, plan.source)
    return (law, published, *drawn), losses


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
        pair.with_unit.model.settings.ensemble.members,
        where,
    )


def search_sums(
    model: Model, labelling: NumberLabelling, anchors: np.ndarray, count: int, lines: int, seed: int
) -> SumPair | None:
    """Search neighbouring datasets and queries for sums that differ much from the run's.

    Args:
        model: the run's model.
        labelling: releases of the run's model.
        anchors: [n, ...] queries. Neighbours are made to change the answers to some of them, and
            further queries are drawn around them.
        count: how many neighbouring datasets to train on.
        lines: as of ``NumberPair.chosen_queries``.
        seed: of the choice of neighbours and queries.

    Returns:
        The two sums with the largest difference; None if no sum differs.
    """
    rng = np.random.default_rng(seed)
    places = anchors[np.sort(rng.permutation(len(anchors))[:count])]
    best: SumPair | None = None
    for edit, other in neighbours(model, places, count):
        votes = other.number_votes
        assert votes is not None  # as the run's model has numbers, so have its neighbours
        pair = NumberPair(labelling, replace(labelling, model=votes))
        where = f"two datasets were used: the run's own data, and the same data {edit}"
        most_different_query = pair.chosen_queries(anchors, rng, lines)[:1]
        sums = farthest_sums(pair, most_different_query, where)
        if sums.moved and (best is None or sums.moved > best.moved):
            best = sums
    return best
