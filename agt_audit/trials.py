"""Tests of one claim: exactly, from stated probabilities, or by counting releases."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from agt.mechanisms.guarantees import Guarantee
from agt.numeric import Randomness, SystemRandomness, next_up
from agt_audit.claims import Claimed, TestedClaim
from agt_audit.output_events import Outputs, choose_event
from agt_cli.report.findings import Finding, Outcome, Strength, format_lower_bound

Draws = Callable[[int], np.ndarray]
"""n -> [n] outputs, released n times on one of the two sides."""


@dataclass(frozen=True)
class TrialPlan:
    """How many releases an attack counts, and who draws them.

    Attributes:
        trials: how many releases from each side are counted.
        confidence: the probability with which all bounds hold together.
        source: the randomness of releases; the default is that of real releases.
    """

    trials: int = 10_000
    confidence: float = 0.95
    source: Randomness = field(default_factory=SystemRandomness)

    def shared_among(self, bounds: int) -> "TrialPlan":
        """Return the plan with which each of several bounds has an equal share of the error."""
        return replace(self, confidence=1 - (1 - self.confidence) / bounds)


@dataclass(frozen=True)
class Exact:
    """The privacy loss of a pair of inputs, computed from the mechanism's table.

    Attributes:
        value: the least eps (at the claim's delta) or mu that covers this pair, rounded to a
            float; None: no finite one does.
        exceeds: whether the loss exceeds the claim, by exact comparison.
    """

    value: float | None
    exceeds: bool

    @property
    def rank(self) -> float:
        """The loss by which pairs are compared; infinite if no finite loss is enough."""
        return float("inf") if self.value is None else self.value

    def finding(
        self, subject: str, guarantee: Guarantee, attack: str, effort: str, noticeable: str = ""
    ) -> Finding:
        """Return the finding of this exact comparison with a claim.

        Args:
            subject: what was attacked, in words.
            guarantee: the claim.
            attack: what was done, in words.
            effort: how much was done, in words.
            noticeable: what the audit would detect, in words; "": a loss by the probabilities
                that the mechanism states.
        """
        claimed = Claimed.of(guarantee)
        value = self._value_on_its_side_of(claimed.value)
        quantity = claimed.words
        if value is None:
            meaning = (
                f"computed exactly, without sampling: no finite {quantity} covers this pair of "
                f"inputs, but {claimed.value:g} is claimed"
            )
        else:
            comparison = "exceeds" if self.exceeds else "does not exceed"
            exact_value = format_lower_bound(value, claimed.value)
            meaning = (
                f"computed exactly, without sampling: for this pair of inputs, {quantity} is "
                f"{exact_value}, which {comparison} the claimed {claimed.value:g}"
            )
        if not noticeable:
            noticeable = (
                "this audit detects any loss above the claim on this pair of inputs, from the "
                "probabilities that the mechanism states. It cannot detect that the mechanism "
                "draws with other probabilities"
            )
        return Finding(
            subject=subject,
            claim=str(guarantee),
            attack=attack,
            effort=effort,
            outcome=Outcome.VIOLATED if self.exceeds else Outcome.NOT_CONTRADICTED,
            meaning=meaning,
            measure=claimed.measure,
            claimed=claimed.value,
            delta=claimed.shown_delta,
            found=value,
            strength=Strength.EXACT,
            noticeable=noticeable,
        )

    def _value_on_its_side_of(self, claimed: float) -> float | None:
        """Return the loss as a float that is above the claim exactly if the loss exceeds it.

        ``value`` alone may have been rounded to the other side. None if no finite loss is enough.
        """
        if self.value is None:
            return None
        if self.exceeds:
            return max(self.value, next_up(claimed))
        return min(self.value, claimed)


def subject_of(name: str, guarantee: Guarantee) -> str:
    """Return the name of a mechanism with its budget, for findings."""
    budget = ", ".join(f"{key}={value:g}" for key, value in guarantee.parameters.items())
    return f"{name} with {budget}"


def claim_to_test(
    subject: str, guarantee: Guarantee, sides: str, datasets_note: str, plan: TrialPlan
) -> TestedClaim:
    """Return a guarantee as a claim that is to be tested by ``judge_by_draws``.

    Args:
        subject: what is attacked, in words.
        guarantee: the claim.
        sides: what the two inputs are, in words; findings show it as the attack.
        datasets_note: which datasets they come from, in words; findings show it as the effort.
        plan: of which only the confidence is used.
    """
    claimed = Claimed.of(guarantee)
    return TestedClaim(subject, str(guarantee), sides, datasets_note, claimed, plan.confidence)


def judge_by_draws(
    draws: tuple[Draws, Draws], claim: TestedClaim, plan: TrialPlan, outputs: Outputs
) -> Finding:
    """Release from both sides, count an event, and return the verdict about the claim.

    The event is chosen on as many releases as are counted, and counted on other ones.

    Args:
        draws: releases of the first side, and of the second side.
        claim: the claim to test; what was drawn is added to the texts of its attack and effort.
        plan: how many releases to count.
        outputs: what is released, which decides which events are tried.
    """
    trials = plan.trials
    draw_first, draw_second = draws
    event = choose_event(
        draw_first(trials), draw_second(trials), claim.claimed, plan.confidence, outputs
    )
    # other releases than those that chose the event
    mistakes = event.mistakes(draw_first(trials), draw_second(trials))
    attack = (
        f"{claim.attack}; the attacker chose the event that tells the two inputs apart best on "
        f"{trials:,} releases from each, and counted the event on other releases: {event.clause}"
    )
    effort = f"{trials:,} releases were drawn from each of the two inputs; {claim.effort}"
    return replace(claim, attack=attack, effort=effort).judge(mistakes)
