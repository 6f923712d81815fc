"""Everything that is looked at, in the order in which it is told."""

from pathlib import Path

from agt_cli.doctor import compute, settings, storage, versions
from agt_cli.report.checks import Check, Findings


def examine(outputs: Path, data_dir: Path) -> list[Check]:
    """Look at this machine and this folder.

    Args:
        outputs: where runs are written.
        data_dir: where data sets are looked for.
    """
    findings = Findings()
    versions.check(findings)
    compute.check(findings)
    storage.check(outputs, findings)
    settings.check(outputs, data_dir, findings)
    return findings.checks
