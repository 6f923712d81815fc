"""agt audit selftest: every planted violation must be found; an auditor that misses one is broken."""

import time
from typing import ClassVar

import pandas as pd

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.planted.catalogue import PLANTED
from agt.settings import schema
from agt_cli.audit.job import Audited, Given
from agt_cli.audit.words import found
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

COLUMNS = ("planted", "claims", "found", "noticed", "seconds")


@schema
class Selftest:
    """Runs every planted violation through the auditor."""

    name: ClassVar[str] = "selftest"

    def check(self, given: Given) -> None:
        """It needs no run."""

    def carry_out(self, given: Given, record: RunRecord, console: Console) -> Audited:
        """Plant, audit, and judge the auditor."""
        findings, rows = [], []
        with console.progress("planted violations", "violation") as report:
            for done, (name, plant) in enumerate(PLANTED.items(), 1):
                start = time.monotonic()
                finding = plant(given.seed)
                findings.append(judged(name, finding))
                rows.append((name, finding.claim, found(finding), caught(finding), round(time.monotonic() - start, 3)))
                report(done, len(PLANTED), done, len(PLANTED))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        console.table("planted violations", COLUMNS, [[*row[:-1], f"{row[-1]:.1f}"] for row in rows])
        return Audited("the auditor itself", None, tuple(findings), tables={"planted": table})


def caught(finding: Finding) -> str:
    """Of a planted violation, in a word."""
    return "caught" if finding.violated else "MISSED"


def judged(name: str, finding: Finding) -> Finding:
    """What the finding of a planted violation says of the auditor, who claims to notice it."""
    return Finding(
        subject=name,
        claim="the auditor notices it",
        attack=finding.attack,
        effort=finding.effort,
        outcome=Outcome.STANDS if finding.violated else Outcome.VIOLATED,
        meaning=f"{caught(finding)}; its claim: {finding.claim}; {finding.meaning}",
        measure="caught",
        claimed=1.0,
        found=float(finding.violated),
        strength=Strength.CERTAIN,
    )
