"""How one claim is tested: exactly, from stated probabilities, and by counting releases."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from agt.errors import ConfigError
from agt.mechanisms.guarantees import Guarantee
from agt.numeric import Randomness, SystemRandomness, next_up
from agt_audit.estimates import Claimed, Outputs, TestedClaim, choose_event, label_event
from agt_cli.report.findings import Finding, Outcome, Strength, least

Choosing = Literal["split", "fixed"]
Draws = Callable[[int], np.ndarray]
"""How many -> [n] released outputs of one side."""


@dataclass(frozen=True)
class TrialPlan:
    """How hard to attack.

    Attributes:
        trials: releases a side that are counted.
        confidence: of all bounds together.
        choosing: split: as many releases more choose the event; fixed: each label, and the error
            probability is shared.
        source: of the draws.
    """

    trials: int = 10_000
    confidence: float = 0.95
    choosing: Choosing = "split"
    source: Randomness = field(default_factory=SystemRandomness)


@dataclass(frozen=True)
class Exact:
    """The loss of a pair, from the mechanism's table.

    Attributes:
        value: the least eps (at the claim's delta) or mu for this pair; None: none is enough.
        exceeds: whether it is more than claimed, beyond doubt.
    """

    value: float | None
    exceeds: bool

    @property
    def rank(self) -> float:
        """To compare pairs by."""
        return float("inf") if self.value is None else self.value

    def finding(
        self, subject: str, guarantee: Guarantee, attack: str, effort: str, noticeable: str = ""
    ) -> Finding:
        """What is known of a pair without a draw."""
        claimed, value = Claimed.of(guarantee), self.value
        # on the side of the claim that the exact comparison says: a float of it may be on the other
        if value is not None:
            value = (
                max(value, next_up(claimed.value)) if self.exceeds else min(value, claimed.value)
            )
        quantity = claimed.words
        if value is None:
            meaning = (
                f"computed exactly, without sampling: no finite {quantity} covers this pair of "
                f"inputs, but {claimed.value:g} is claimed"
            )
        else:
            comparison = "exceeds" if self.exceeds else "does not exceed"
            exact_value = least(value, claimed.value)
            meaning = (
                f"computed exactly, without sampling: for this pair of inputs, {quantity} is "
                f"{exact_value}, which {comparison} the claimed {claimed.value:g}"
            )
        outcome = Outcome.VIOLATED if self.exceeds else Outcome.STANDS
        return Finding(
            subject,
            str(guarantee),
            attack,
            effort,
            outcome,
            meaning,
            claimed.measure,
            claimed.value,
            claimed.shown_delta,
            value,
            Strength.CERTAIN,
            noticeable=noticeable
            or (
                "this audit detects any loss above the claim on this pair of inputs, from the "
                "probabilities that the mechanism states. It cannot detect that the mechanism "
                "draws with other probabilities"
            ),
        )


def tested(
    subject: str, guarantee: Guarantee, sides: str, where: str, plan: TrialPlan
) -> TestedClaim:
    """A guarantee under attack.

    Args:
        sides: what the two sides are.
        where: which datasets.
    """
    return TestedClaim(
        subject, str(guarantee), sides, where, Claimed.of(guarantee), plan.confidence
    )


def attacked(
    draws: tuple[Draws, Draws], claim: TestedClaim, plan: TrialPlan, classes: int | None
) -> tuple[Finding, ...]:
    """Draw, count, and hold against the claim.

    Args:
        draws: of either side: how many -> [n] outputs, labels or numbers.
        classes: how many labels there are; None: outputs are numbers.
    """
    claimed, trials, shared = claim.claimed, plan.trials, 1
    if plan.choosing == "split":
        outputs: Outputs = "released numbers" if classes is None else "labels"
        event = choose_event(draws[0](trials), draws[1](trials), claimed, plan.confidence, outputs)
        first, second = (draw(trials) for draw in draws)
        how = (
            f"the attacker chose the event that tells the two inputs apart best on {trials:,} "
            f"releases from each, and counted the event on other releases: {event.words}"
        )
    elif classes is None:
        raise ConfigError(
            "audit.choosing=fixed is not possible for a released number, because it has too "
            "many possible events: use audit.choosing=split"
        )
    else:
        events, shared = [label_event((label,)) for label in range(classes)], classes
        first, second = (draw(trials) for draw in draws)
        event = max(
            events,
            key=lambda one: claimed.bound(one.mistakes(first, second), plan.confidence, shared),
        )
        how = (
            f"{shared} events were fixed beforehand, one for each label, and share the error "
            f"probability. The best one is: {event.words}"
        )
    effort = f"{trials:,} releases were drawn from each of the two inputs; {claim.effort}"
    judged = replace(claim, attack=f"{claim.attack}; {how}", effort=effort, events=shared)
    return judged.findings(event.mistakes(first, second))
