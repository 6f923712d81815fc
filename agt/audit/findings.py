"""What an audit found, as values that a report, a risk officer and a program read alike.

audit.content                 bytes of audit.json (docs/audit.md tells every entry)
read_audit(content)           the same again; refuses other versions, NaN, and what contradicts itself
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agt import __version__
from agt.document import content_of, read_document
from agt.settings import schema

VERSION: Literal["agt.audit/1"] = "agt.audit/1"
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Words = tuple[str, ...]


class Outcome(StrEnum):
    """What an attack says of a claim."""

    VIOLATED = "violated"  # the claim is false: by a counterexample, or with the stated confidence
    STANDS = "not contradicted"  # the attack did not break it; that is no proof
    REPORTED = "reported"  # nothing was claimed of this number
    UNTESTED = "not tested"  # the attack could not be made, and says why


class Strength(StrEnum):
    """What a number that was found means."""

    CERTAIN = "certain"  # worked out or seen, without chance
    CONFIDENT = "confident"  # a confidence bound at any number of trials
    ASYMPTOTIC = "asymptotic"  # a confidence bound as trials grow without limit
    CREDIBLE = "credible"  # a posterior quantile under a stated prior: no confidence bound


@schema
class Finding:
    """One claim and one attack on it.

    Attributes:
        subject: what was attacked, in words: the mechanism, model or method, with its settings.
        claim: what was claimed of it, in words.
        attack: what was tried, in words; its events, fixed before anything was drawn.
        effort: how hard, in words: releases a side, neighbours trained, canaries.
        outcome: what that says of the claim.
        meaning: what was found, in one sentence for a stranger.
        measure: what ``claimed`` and ``found`` count: epsilon, mu, deviation/bound, models, AUC, ...
        claimed: the number claimed; None: there is none.
        delta: beside a claimed epsilon; None: it has none.
        found: the number found: of an epsilon or mu, a lower bound; None: nothing could be found.
        strength: what ``found`` means.
        confidence: of ``found``; None: it needs none.
        noticeable: what the audit could have noticed, in words: the least violation that it would have told from none.

    Raises:
        ConfigError: a number that is none, or an outcome that its numbers contradict.
    """

    subject: str
    claim: str
    attack: str
    effort: str
    outcome: Outcome
    meaning: str
    measure: str
    claimed: float | None = None
    delta: Share | None = None
    found: float | None = None
    strength: Strength = Strength.CONFIDENT
    confidence: Annotated[float, Field(gt=0, lt=1)] | None = None
    noticeable: str = ""

    @property
    def violated(self) -> bool:
        """Whether the claim is false."""
        return self.outcome is Outcome.VIOLATED


@schema
class Audit:
    """What one audit was about, and its findings.

    Attributes:
        kind: of the audit: mechanism, certificate, membership, ...
        subject: the run that was audited, by its folder's name, or what else.
        digest: of that run; None: it is none.
        findings: at least one.
        notes: what else a reader must know: what the audit does not cover, what stood in for what.
        by: the version of agt that made it.
    """

    schema: Literal["agt.audit/1"]
    kind: str
    subject: str
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    digest: str | None = None
    notes: Words = ()
    by: str = __version__

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The claims that are false."""
        return tuple(finding for finding in self.findings if finding.violated)

    @property
    def content(self) -> bytes:
        """audit.json: the same audit gives the same bytes."""
        return content_of(self)


def read_audit(content: bytes) -> Audit:
    """What ``Audit.content`` made. Raises ConfigError: another version, or no such document."""
    return read_document(Audit, content, VERSION, "an audit")
