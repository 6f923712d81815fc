"""Violations planted on purpose, each small: an auditor that misses one is broken, and says nothing about anybody else.

Each module has ``PLANTED``: a name -> a function of a seed that plants the violation, audits it as a run would be audited,
and returns the finding, whose outcome must be ``violated``; and ``SOUND``, the same without the flaw, whose finding must
not be: an auditor that accuses all who come would find everything that is planted. They are audited with confidence
``SURE``, so that a right one is hardly ever accused by chance. ``agt audit selftest`` runs them all.
"""

from collections.abc import Iterable

from agt.audit.findings import Finding

SURE = 0.9999


def worst(findings: Iterable[Finding]) -> Finding:
    """One that is violated, if there is any."""
    return max(findings, key=lambda finding: finding.violated)
