"""Claims and lower bounds of many audits in one table, as auditors' papers print them: by what was audited and by which
estimate, what was claimed, what was found, and which share of the claim that is."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from agt.audit.findings import LOWER, Finding, Outcome, Part, Strength
from agt_cli.audit.words import ORDER, SIGNS, number
from agt_cli.report.markdown import Markdown

COLUMNS = ("outcome", "audit", "audited", "estimate", "claimed", "found", "share")
FRACTIONS = (*LOWER, "deviation/bound")  # of these a share of the claim means something
ESTIMATES = {
    Strength.CERTAIN: "seen",
    Strength.CONFIDENT: "confidence bound",
    Strength.ASYMPTOTIC: "asymptotic bound",
    Strength.CREDIBLE: "posterior quantile",
}


@dataclass(frozen=True)
class Joint:
    """Findings, each with the audit that it comes from; the worst first."""

    lines: tuple[tuple[Finding, Part], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """tables/claims.csv: the numbers themselves."""
        rows = [
            {
                "audit": part.kind,
                "folder": part.folder,
                "current": part.current,
                "audited": finding.subject,
                "claim": finding.claim,
                "estimate": estimate(finding),
                "measure": finding.measure,
                "claimed": finding.claimed,
                "delta": finding.delta,
                "found": finding.found,
                "confidence": finding.confidence,
                "share": share(finding),
                "outcome": finding.outcome.value,
            }
            for finding, part in self.lines
        ]
        return pd.DataFrame(rows)


def joint(findings: Sequence[Finding], parts: Sequence[Part]) -> Joint:
    """The table of all that was found."""
    lines = [(finding, parts[(finding.part or 1) - 1]) for finding in findings]
    return Joint(tuple(sorted(lines, key=lambda line: ORDER.index(line[0].outcome))))


def estimate(finding: Finding) -> str:
    """How its number came about."""
    return finding.estimator or ("-" if finding.found is None else ESTIMATES[finding.strength])


def share(finding: Finding) -> float | None:
    """Found over claimed; None: that means nothing here."""
    fraction = finding.measure in FRACTIONS and finding.claimed and finding.found is not None
    return finding.found / finding.claimed if fraction else None  # type: ignore[operator]


def cells(finding: Finding, part: Part) -> tuple[str, ...]:
    """A line of the table, as a reader takes it."""
    loss, claimed = finding.measure in LOWER, finding.claimed
    delta = f" at delta {number(finding.delta)}" if finding.delta else ""
    name = {"epsilon": "eps ", "mu": "mu "}.get(finding.measure, "")
    sign, rate = SIGNS[finding.strength] if loss else "", share(finding)
    seen = "-" if finding.found is None else f"{sign} {number(finding.found, down=loss)}".strip()
    return (
        Markdown(f"**{finding.outcome.value}**") if finding.outcome is Outcome.VIOLATED else finding.outcome.value,
        part.kind if part.current else f"{part.kind} (earlier state)",
        finding.subject,
        estimate(finding),
        "-" if claimed is None else f"{name}{number(claimed)}{delta}",
        seen if name or finding.found is None else f"{seen} {finding.measure}",
        "-" if rate is None else f"{100 * rate:.0f} %",
    )
