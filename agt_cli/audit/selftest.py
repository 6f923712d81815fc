"""agt audit selftest: every planted violation must be found, and no sound twin; an auditor that fails one is broken."""

import time
from collections.abc import Callable
from typing import ClassVar

import pandas as pd

from agt.audit.findings import Finding, Outcome, Strength
from agt.settings import schema
from agt_cli.audit.job import Audited, AuditInputs
from agt_cli.audit.page import PASSED, found
from agt_cli.audit.planted import PLANTED, SOUND
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

COLUMNS = ("planted", "claims", "found", "noticed", "seconds")
JUDGED = {
    (True, True): "caught",
    (True, False): "MISSED",
    (False, False): PASSED,
    (False, True): "FALSE ALARM",
}
"""(there is a flaw, the auditor says so) -> a word."""


@schema
class Selftest:
    """Runs every planted violation, and sound twins of them, through the auditor."""

    name: ClassVar[str] = "selftest"

    def check(self, given: AuditInputs) -> None:
        """It needs no run."""

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Plant, audit, and judge the auditor."""
        findings, rows = [], []
        plants = [(name, plant, True) for name, plant in PLANTED.items()]
        plants += [(f"sound: {name}", plant, False) for name, plant in SOUND.items()]
        with console.progress("planted violations", "violation") as report:
            for done, (name, plant, flawed) in enumerate(plants, 1):
                start = time.monotonic()
                finding = _tried(plant, name, given.seed)
                findings.append(judged(name, finding, flawed))
                word = JUDGED[flawed, bool(findings[-1].found) == flawed]
                rows.append((name, finding.claim, found(finding), word, round(time.monotonic() - start, 3)))
                report(done, len(plants), done, len(plants))
        table = pd.DataFrame(rows, columns=list(COLUMNS))
        console.table("planted violations", COLUMNS, [[*row[:-1], f"{row[-1]:.1f}"] for row in rows])
        return Audited("the auditor itself", None, tuple(findings), tables={"planted": table})


def _tried(plant: Callable[[int], Finding], name: str, seed: int) -> Finding:
    """A plant's finding; an auditor that breaks down on it found nothing, and cleared nothing."""
    try:
        return plant(seed)
    except Exception as error:
        why = f"the auditor broke down: {type(error).__name__}: {error}"
        return Finding(name, "-", "-", "-", Outcome.UNTESTED, why, "-", strength=Strength.CERTAIN)


def judged(name: str, finding: Finding, flawed: bool = True) -> Finding:
    """What the finding of a planted violation, or of a sound twin, says of the auditor, who claims to tell them apart."""
    right = finding.outcome is (Outcome.VIOLATED if flawed else Outcome.STANDS)
    return Finding(
        subject=name,
        claim="the auditor notices it" if flawed else "the auditor lets it pass",
        attack=finding.attack,
        effort=finding.effort,
        outcome=Outcome.STANDS if right else Outcome.VIOLATED,
        meaning=f"{JUDGED[flawed, right == flawed]}; its claim: {finding.claim}; {finding.meaning}",
        measure=JUDGED[flawed, flawed],
        claimed=1.0,
        found=float(right),
        strength=Strength.CERTAIN,
    )
