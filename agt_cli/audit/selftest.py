"""agt audit selftest: every planted violation must be found; an auditor that misses one is broken."""

from dataclasses import replace
from typing import ClassVar

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.planted.catalogue import PLANTED
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord


@schema
class Selftest:
    """Runs every planted violation through the auditor."""

    name: ClassVar[str] = "selftest"

    def check(self, given: Given) -> None:
        """It needs no run."""

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Plant, audit, and judge the auditor."""
        findings = []
        with console.progress("planted violations", "violation") as report:
            for done, (name, plant) in enumerate(PLANTED.items(), 1):
                findings.append(judged(name, plant(given.seed)))
                report(done, len(PLANTED), done, len(PLANTED))
        return Audited("the auditor itself", None, tuple(findings))


def judged(name: str, finding: Finding) -> Finding:
    """What the finding of a planted violation says of the auditor, who claims to notice it."""
    return replace(
        finding,
        subject=name,
        claim=f"the auditor notices it (what was planted claims: {finding.claim})",
        outcome=Outcome.STANDS if finding.violated else Outcome.VIOLATED,
        strength=Strength.CERTAIN,
        meaning=f"{'caught' if finding.violated else 'MISSED'}: {finding.meaning}",
    )
