"""From the counts of an attack to what is said of a claim."""

from dataclasses import dataclass

from agt.audit.estimates import Claimed, Mistakes
from agt.audit.findings import Finding, Outcome


@dataclass(frozen=True)
class Attacked:
    """What was attacked, and how.

    Attributes:
        subject, claim, attack, effort: as of ``Finding``.
        claimed: what the counts are held against.
        confidence: of the bound.
        events: how many events, or pairs, share the error probability.
    """

    subject: str
    claim: str
    attack: str
    effort: str
    claimed: Claimed
    confidence: float
    events: int = 1

    def judge(self, mistakes: Mistakes) -> Finding:
        """Hold the rigorous lower bound against the claim."""
        claimed, trials = self.claimed, min(mistakes.without, mistakes.having)
        bound = claimed.bound(mistakes, self.confidence, self.events)
        needed = claimed.needed(self.confidence, self.events)
        outcome = Outcome.VIOLATED if bound > claimed.value else Outcome.STANDS if trials >= needed else Outcome.UNTESTED
        return Finding(
            subject=self.subject,
            claim=self.claim,
            attack=self.attack,
            effort=self.effort,
            outcome=outcome,
            meaning=self._meaning(bound, outcome, mistakes, needed),
            measure=claimed.measure,
            claimed=claimed.value,
            delta=None if claimed.measure == "mu" else claimed.delta,
            found=None if outcome is Outcome.UNTESTED else bound,
            confidence=self.confidence,
            noticeable=self._noticeable(trials, needed),
            estimator="Clopper-Pearson",
        )

    def _meaning(self, bound: float, outcome: Outcome, mistakes: Mistakes, needed: int) -> str:
        at = f" at delta {self.claimed.delta:g}" if self.claimed.delta else ""
        counts = (
            f"the attack was wrong {mistakes.alarms} of {mistakes.without} times on one side and {mistakes.misses} of "
            f"{mistakes.having} on the other: {self.claimed.measure}{at} is at least {bound:.4g}, with "
            f"{100 * self.confidence:g} % confidence"
        )
        said = {
            Outcome.VIOLATED: f"more than the {self.claimed.value:g} claimed",
            Outcome.STANDS: f"which does not contradict the {self.claimed.value:g} claimed, and proves nothing",
            Outcome.UNTESTED: (
                f"too few trials to contradict the {self.claimed.value:g} claimed, whatever they count: {needed} a side "
                "are the least (audit.trials)"
            ),
        }
        return f"{counts}; {said[outcome]}"

    def _noticeable(self, trials: int, needed: int) -> str:
        least = self.claimed.noticed(trials, self.confidence, self.events)
        if least is None:
            return f"nothing: {needed} trials a side are the least"
        return (
            f"a true {self.claimed.measure} of {least:.4g} or more on this pair, if the best test between its sides is used"
        )
