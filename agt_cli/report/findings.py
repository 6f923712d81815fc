"""The findings of an audit, as values that reports and programs read.

audit.content                 bytes of audit.json (docs/audit.md lists every entry)
read_audit(content)           the audit again; refuses other versions, NaN, and what contradicts
                              itself
format_lower_bound(0.37796)   "0.377": a lower bound is cut off, so it never exceeds what was
                              found
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agt import __version__
from agt.documents import content_of, read_document
from agt.errors import ConfigError, counted
from agt.settings import Digest, NonNegative, Probability, Share, schema

AUDIT_FILE = "audit.json"
VERSION: Literal["agt.audit/2"] = "agt.audit/2"
LOSS_MEASURES = ("epsilon", "mu")
"""Measures of which a bound from below is found: one above the claim contradicts it."""
Text = Annotated[str, Field(pattern=r"\S")]
Sentences = tuple[str, ...]
MIN_DIGITS = 3
MAX_DIGITS = 17  # that a double has
MAX_DETECTABLE_FACTOR = 2  # times the claim: an audit that could have noticed only more says little
# what is found of a planted violation, and of a sound twin
CAUGHT = "caught"
PASSED = "let pass"


class Outcome(StrEnum):
    """The result of an attack on a claim."""

    VIOLATED = "violated"  # the claim is false: by a counterexample, or with the stated confidence
    NOT_CONTRADICTED = "not contradicted"  # the attack did not break it; that is no proof
    REPORTED = "reported"  # nothing was claimed of this number
    UNTESTED = "not tested"  # the attack could not be made, and says why


class Strength(StrEnum):
    """What a measured number proves."""

    EXACT = "certain"  # worked out or seen, without chance
    CONFIDENT = "confident"  # a confidence bound at any number of trials
    ASYMPTOTIC = "asymptotic"  # a confidence bound as trials grow without limit
    CREDIBLE = "credible"  # a posterior quantile under a stated prior: no confidence bound


RIGOROUS_STRENGTHS = (Strength.EXACT, Strength.CONFIDENT)
"""What may call a claim false."""


@schema
class Estimate:
    """The result of another estimator for the same trials.

    Attributes:
        estimator: its name, and what the attacker sees, if this differs.
        measure: the name of what ``found`` counts.
        found: a lower bound of the privacy loss; 0: no loss was shown.
        strength: what ``found`` means.
    """

    estimator: Text
    measure: Text
    found: NonNegative
    strength: Strength


@schema
class Finding:
    """The result of one attack on one claim.

    Attributes:
        subject: the mechanism, model or method that was attacked, with its settings, as a clause.
        claim: the claim, as a clause.
        attack: what was tried, as a clause, with the events that were fixed before anything was
            drawn.
        effort: how much was tried, as a clause: releases on each side, neighbours, canaries.
        outcome: whether the claim was contradicted.
        meaning: what was found, in one sentence for a reader who does not know the attack.
        measure: what ``claimed`` and ``found`` are: epsilon, mu, deviation/bound, models, AUC, ...
        claimed: the claimed number; None: the claim has no number.
        delta: the delta of a claimed epsilon; None for other measures.
        found: the measured number, which is a lower bound of an epsilon or mu; None: no number was
            measured.
        strength: what ``found`` proves.
        confidence: the confidence level of ``found``; None: ``found`` is not a confidence bound.
        noticeable: a clause on the smallest violation that the attack could have detected.
        estimator: the name of the method that computed ``found``, such as Clopper-Pearson; empty:
            ``attack`` says it.
        estimates: the results of other estimators for the same trials, which do not affect the
            outcome.
        noticed: the smallest true epsilon or mu that the attack could have detected; None: not
            known.

    Raises:
        ConfigError: a number is invalid, or the outcome contradicts the numbers.
    """

    subject: Text
    claim: str
    attack: str
    effort: str
    outcome: Outcome
    meaning: Text
    measure: Text
    claimed: float | None = None
    delta: Share | None = None
    found: float | None = None
    strength: Strength = Strength.CONFIDENT
    confidence: Probability | None = None
    noticeable: str = ""
    estimator: str = ""
    estimates: tuple[Estimate, ...] = ()
    noticed: NonNegative | None = None

    def __post_init__(self) -> None:
        numbers = (self.claimed, self.found)
        loss = self.measure in LOSS_MEASURES
        rigorous = self.strength in RIGOROUS_STRENGTHS
        chance = self.strength is not Strength.EXACT
        rules = {
            "an epsilon or a mu in a finding must be at least 0": not loss
            or all(number is None or number >= 0 for number in numbers),
            "a finding with a claimed epsilon must also give its delta, even if delta is 0": (
                self.measure != "epsilon" or self.claimed is None or self.delta is not None
            ),
            "a finding with a bound that can fail by chance must give the bound's confidence": (
                self.confidence is not None or not chance or self.found is None
            ),
            (
                "only a counterexample, or a confidence bound that holds for any number of "
                "trials, can contradict a claim"
            ): (rigorous or not self.violated),
            "a finding that contradicts a claim cannot also say that the claim is met": (
                not self.violated
                or None in numbers
                or not _is_claim_met(self.claimed, self.found, loss)
            ),
            (
                "if, with the stated confidence, the measured privacy loss is larger than "
                "claimed, the finding must call the claim violated"
            ): (
                self.outcome is not Outcome.NOT_CONTRADICTED
                or not loss
                or not rigorous
                or _is_claim_met(self.claimed, self.found, loss)
            ),
            "a finding about an attack that was not made cannot have a result": self.outcome
            is not Outcome.UNTESTED
            or self.found is None,
        }
        wrong = [rule for rule, holds in rules.items() if not holds]
        for rule in wrong[:1]:
            raise ConfigError(
                f"the finding about {self.subject} contradicts a rule for findings: {rule}"
            )

    @property
    def violated(self) -> bool:
        """True: the attack disproved the claim."""
        return self.outcome is Outcome.VIOLATED


def exact_finding(
    subject: str,
    claim: str,
    attack: str,
    effort: str,
    measure: str,
    found: float | None,
    meaning: str,
    noticeable: str = "this audit detects a single violation",
    max_allowed: float = 0.0,
) -> Finding:
    """Return the finding of an attack on a claim that an exactly measured number is at most
    ``max_allowed``.

    Args:
        subject: the mechanism, model or method that was attacked, as a clause.
        claim: the claim, as a clause.
        attack: a clause that says what was tried.
        effort: a clause that says how much was tried.
        measure: what ``found`` measures.
        found: the number; None: the attack could not be made, and ``meaning`` says why.
        meaning: the result in one sentence, for a reader who does not know the attack.
        noticeable: a clause on the smallest violation that the attack could have detected; left out
            if the attack could not be made.
        max_allowed: the largest number that the claim allows.
    """
    outcome = Outcome.NOT_CONTRADICTED
    if found is None:
        outcome = Outcome.UNTESTED
    elif found > max_allowed:
        outcome = Outcome.VIOLATED
    return Finding(
        subject,
        claim,
        attack,
        effort,
        outcome,
        meaning,
        measure,
        claimed=max_allowed,
        found=found,
        strength=Strength.EXACT,
        noticeable="" if found is None else noticeable,
    )


def _is_claim_met(claimed: float | None, measured: float | None, loss: bool) -> bool:
    """Return whether a measured number agrees with a claimed one; True if either is unknown.

    Args:
        claimed: the claimed number.
        measured: the measured number.
        loss: True: they are privacy losses, so a smaller number agrees; False: only the same does.
    """
    if claimed is None or measured is None:
        return True
    return measured <= claimed if loss else measured == claimed


@schema
class Audit:
    """The findings of one audit.

    Attributes:
        schema: the version of the document.
        kind: the kind of the audit: mechanism, certificate, membership, ...
        subject: a name of what was audited: the name of the run's folder, or another clause.
        findings: the findings, at least one.
        digest: the digest of the run; None: no run was audited.
        notes: sentences on what the audit does not cover, and on what was replaced by something
            similar.
        by: the version of agt that made the audit.
    """

    schema: Literal["agt.audit/2"]
    kind: Text
    subject: Text
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    digest: Digest | None = None
    notes: Sentences = ()
    by: str = __version__

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The claims that are false."""
        return tuple(finding for finding in self.findings if finding.violated)

    @property
    def is_selftest(self) -> bool:
        """True: the audit was a test of the attacks themselves, on planted violations."""
        return all(finding.measure in (CAUGHT, PASSED) for finding in self.findings)

    @property
    def verdict(self) -> str:
        """A line that summarises the findings."""
        tested = [
            finding
            for finding in self.findings
            if finding.outcome in (Outcome.VIOLATED, Outcome.NOT_CONTRADICTED)
        ]
        if self.is_selftest:
            return _selftest_verdict(tested)
        untested = sum(finding.outcome is Outcome.UNTESTED for finding in self.findings)
        untested_attacks = counted(untested, "attack")
        rest = f"; {untested_attacks} could not be carried out" if untested else ""
        attacks = counted(len(tested), "attack")
        if wrong := len(self.violations):
            return f"claims VIOLATED: {wrong} of {attacks} disproved a claim{rest}"
        if not tested:
            return f"no claim was tested{rest}"
        weak = _describe_weak_attacks(tested)
        limit = f", but {weak}" if weak else ""
        return f"{attacks}, 0 violations found (this is not a proof){limit}{rest}"

    @property
    def content(self) -> bytes:
        """audit.json: the same audit gives the same bytes."""
        return content_of(self)


def _describe_weak_attacks(tested: list[Finding]) -> str:
    """Return a clause that some attacks could have detected only far larger losses than claimed.

    It is empty if all of them could have detected losses of at most ``MAX_DETECTABLE_FACTOR`` times
    the claimed one.

    Args:
        tested: the findings of the attacks.
    """
    attacks = 0
    weak_attacks = 0
    limit = ""
    largest_factor = float(MAX_DETECTABLE_FACTOR)
    for finding in tested:
        if finding.noticed is None or not finding.claimed:
            continue
        attacks += 1
        factor = finding.noticed / finding.claimed
        weak_attacks += factor > MAX_DETECTABLE_FACTOR
        if factor > largest_factor:
            largest_factor = factor
            detectable = format_bound(finding.noticed, up=True)
            claimed = format_bound(finding.claimed)
            limit = (
                f"for one of the claims, only a value of {finding.measure} >= {detectable} could "
                f"have been detected, but the claimed value is {claimed}"
            )
    if not weak_attacks:
        return ""
    return (
        f"{weak_attacks} of {attacks} attacks could have detected only a privacy loss "
        f"far larger than the claimed one ({limit})"
    )


def _selftest_verdict(tested: list[Finding]) -> str:
    """Return how many planted faults were detected, and how many correct claims passed.

    Args:
        tested: a finding for each of them.
    """
    planted = [finding for finding in tested if finding.measure != PASSED]
    correct_claims = [finding for finding in tested if finding.measure == PASSED]
    missed = sum(finding.violated for finding in planted)
    accused = sum(finding.violated for finding in correct_claims)
    violations = len(planted)
    correct = len(correct_claims)
    first = f"{violations} of {violations} planted faults were detected"
    if missed:
        first = f"{missed} of {violations} planted faults were MISSED"
    second = f"{correct} of {correct} correct claims passed (no false alarm)"
    if accused:
        second = f"{accused} of {correct} correct claims were wrongly REJECTED (false alarms)"
    return f"{first}; {second}" if correct else first


def read_audit(content: bytes) -> Audit:
    """Return the audit that ``Audit.content`` made.

    Raises:
        Superseded: it is of agt.audit/1.
        ConfigError: it is of another version, or no such document.
    """
    return read_document(Audit, content, VERSION, "an audit", "audit", "type agt audit again")


def format_bound(value: float, up: bool = False, distinct_from: float | None = None) -> str:
    """Return a number with three significant digits; whole numbers have all of their digits.

    Args:
        value: the number.
        up: True: round it up; False: to the nearest.
        distinct_from: another number. If they are different, there are enough digits to show that.
    """
    for digits in range(MIN_DIGITS, MAX_DIGITS):
        text, rounded = _round_to_digits(value, math.ceil if up else round, digits)
        if distinct_from is None or value == distinct_from or rounded != distinct_from:
            break
    return text


def _round_to_digits(
    value: float, rounding: Callable[[float], int], digits: int
) -> tuple[str, float]:
    """Return a number as text with some significant digits, and the number that this text is.

    Whole numbers below 10^15 are printed in full.

    Args:
        value: a finite number.
        rounding: math.floor, math.ceil or round.
        digits: the number of significant digits.
    """
    if value == int(value) and abs(value) < 10**15:
        return f"{int(value):,}", value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    multiple = value / unit
    if abs(multiple - round(multiple)) < 1e-9:  # what is a multiple already stays one
        rounding = round
    text = f"{rounding(multiple) * unit:.{digits}g}"
    return text.replace("e-0", "e-"), float(text)


def format_lower_bound(bound: float, claimed: float | None = None) -> str:
    """Return a lower bound, rounded down to three significant digits.

    Args:
        bound: the bound.
        claimed: the claimed value. If the bound is above it, there are enough digits to show that.
    """
    for digits in range(MIN_DIGITS, MAX_DIGITS):
        text, rounded = _round_to_digits(bound, math.floor, digits)
        if claimed is None or bound <= claimed or claimed < rounded <= bound:
            return text
    return repr(bound)
