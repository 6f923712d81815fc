"""From the counts of an attack to what is said of a claim."""

from collections.abc import Iterator
from dataclasses import dataclass

from agt.audit.estimates import MOST_TRIALS, Claimed, Mistakes, estimates
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.written import least, number

SHOWN_DELTA = 1e-5  # at which epsilon is shown beside a claimed mu
MEANS = {
    Strength.CONFIDENT: "rigorous, of the same two rates",
    Strength.ASYMPTOTIC: "as trials grow without limit: it contradicts nothing",
    Strength.CREDIBLE: "by a posterior under Jeffreys' prior: it contradicts nothing",
}


@dataclass(frozen=True)
class Attacked:
    """What was attacked, and how.

    Attributes:
        subject, claim, attack, effort: as of ``Finding``.
        claimed: what the counts are held against.
        confidence: of the bound.
        events: how many events, or pairs, share the error probability.
        together: how many of ``audit.trials`` make one trial.
    """

    subject: str
    claim: str
    attack: str
    effort: str
    claimed: Claimed
    confidence: float
    events: int = 1
    together: int = 1

    def findings(self, mistakes: Mistakes) -> tuple[Finding, ...]:
        """The verdict, by the rigorous bound in the claim's own measure; then the other estimates of the same counts."""
        verdict = self.judge(mistakes)
        return (verdict,) if verdict.found is None else (verdict, *self._others(mistakes))

    def _others(self, mistakes: Mistakes) -> Iterator[Finding]:
        claimed = self.claimed
        delta = SHOWN_DELTA if claimed.measure == "mu" else claimed.delta
        for estimate in estimates(mistakes, delta, self.confidence, self.events):
            same, epsilon = estimate.measure == claimed.measure, estimate.measure == "epsilon"
            if same and estimate.strength is Strength.CONFIDENT:
                continue  # that is the verdict
            what = f"epsilon at delta {delta:g}" if epsilon and delta else estimate.measure
            yield Finding(
                subject=self.subject,
                claim=self.claim,
                attack=self.attack,
                effort=self.effort,
                outcome=Outcome.REPORTED,
                meaning=f"{estimate.name}: {what} is at least {least(estimate.value)}, {MEANS[estimate.strength]}",
                measure=estimate.measure,
                claimed=claimed.value if same else None,
                delta=delta if epsilon else None,
                found=estimate.value,
                strength=estimate.strength,
                confidence=self.confidence,
                estimator=estimate.name,
            )

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
            noticed=self.claimed.noticed(trials, self.confidence, self.events),
        )

    def _meaning(self, bound: float, outcome: Outcome, mistakes: Mistakes, needed: int) -> str:
        at = f" at delta {self.claimed.delta:g}" if self.claimed.delta else ""
        counts = (
            f"the attack was wrong {mistakes.alarms:,} of {mistakes.without:,} times on one side and "
            f"{mistakes.misses:,} of {mistakes.having:,} on the other: {self.claimed.measure}{at} is at least "
            f"{least(bound, self.claimed.value)}, with {100 * self.confidence:.12g} % confidence"
        )
        said = {
            Outcome.VIOLATED: f"more than the {self.claimed.value:g} claimed",
            Outcome.STANDS: f"which does not contradict the {self.claimed.value:g} claimed, and proves nothing",
            Outcome.UNTESTED: (
                f"too few trials to contradict the {self.claimed.value:g} claimed, whatever they count: {_least(needed)} "
                f"(audit.trials{f'={self.together * needed}' if self.together > 1 and needed < MOST_TRIALS else ''})"
            ),
        }
        return f"{counts}; {said[outcome]}"

    def _noticeable(self, trials: int, needed: int) -> str:
        noticed = self.claimed.noticed(trials, self.confidence, self.events)
        if noticed is None:
            return f"nothing: {_least(needed)}"
        true = (
            f"about every second time a true {self.claimed.measure} of {number(noticed, up=True)}, and "
            "one that is greater more often"
        )
        return f"{true}, of a pair whose best test errs as often either way; where one mistake is rare, only more"


def _least(needed: int) -> str:
    if needed >= MOST_TRIALS:
        return "no number of trials that anybody can draw would do"
    return f"{needed:,} a side are the least"
