"""A kind of audit of one's own, as a user would write it: it finds what its settings say."""

import errno
import json
from pathlib import Path
from typing import ClassVar, Literal

import pandas as pd

from agt.errors import ConfigError
from agt.settings import schema
from agt.store.manifest import MANIFEST_FILE
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, Strength
from agt_cli.report.finished import manifest_digest
from agt_cli.report.record import RunRecord


@schema
class Toy(AuditKind):
    """What is found of an epsilon of 1, and what goes wrong before."""

    name: ClassVar[str] = "toy"
    found: float = 0.5
    accident: Literal["none", "changed", "full", "interrupted"] = "none"

    def check(self, given: AuditInputs) -> None:
        if given.run is None:
            raise ConfigError("run: the toy needs a run")

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        digest = manifest_digest(given.run)
        if self.accident == "changed":
            change(given.run)
        if self.accident == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.accident == "interrupted":
            raise KeyboardInterrupt
        about = ("a | toy", "1-differentially private", "its *label*", "100 labels a side")
        meaning = f"epsilon is at least {self.found:g} with 95 % confidence"
        outcome = Outcome.VIOLATED if self.found > 1 else Outcome.NOT_CONTRADICTED
        bound = Finding(*about, outcome, meaning, "epsilon", 1.0, 0.0, self.found, confidence=0.95)
        katz = Finding(
            *about, Outcome.NOT_CONTRADICTED, "by Katz about as "
                                    "much", "epsilon", 1.0, 0.0, 1.01, Strength.ASYMPTOTIC, 0.95,
            "a loss above 1.1", "Katz",
        )  # fmt: skip
        other = Finding(
            "boxes",
            "every model is inside",
            "",
            "",
            Outcome.UNTESTED,
            "no neighbouring dataset was trained on",
            "models",
        )
        table = pd.DataFrame({"query": range(9), "share": [row / 7 for row in range(9)]})
        return Audited(
            given.run.name, digest, (bound, katz, other), ("it is a toy",), {"thresholds": table}
        )


def change(run: Path) -> None:
    """Another state of a run, as far as its manifest tells."""
    node = json.loads((run / MANIFEST_FILE).read_text(encoding="utf-8"))
    (run / MANIFEST_FILE).write_text(json.dumps(node, indent=3), encoding="utf-8")
