"""An audit on one page, in the words of a risk officer; and the same in a few lines."""

from collections.abc import Iterator

from agt.audit.findings import Audit, Finding
from agt_cli.audit.job import Audited
from agt_cli.report.console import show
from agt_cli.report.markdown import Markdown, markdown_table, plain

COLUMNS = ("audited", "claimed", "found", "outcome")


def headline(audit: Audit) -> str:
    """The verdict, in one line."""
    wrong = len(audit.violations)
    if wrong:
        return f"{wrong} of {len(audit.findings)} claims VIOLATED"
    return f"no claim contradicted, of {len(audit.findings)} looked at: that is no proof"


def row(finding: Finding) -> tuple[str, str, str, str]:
    """A finding's line in a table."""
    found = "nothing" if finding.found is None else f"{finding.measure} {show(finding.found)}"
    return finding.subject, finding.claim, found, finding.outcome.value


def lines(audit: Audit) -> Iterator[str]:
    """What is said of it on the console."""
    yield f"{audit.kind} audit of {audit.subject}: {headline(audit)}"
    for finding in audit.findings:
        yield f"{finding.outcome.value}: {finding.meaning}"


def page(audit: Audit, audited: Audited) -> str:
    """The report, as Markdown."""
    rows = [(*row(each)[:3], Markdown(f"**{each.outcome.value}**")) for each in audit.findings]
    parts = [
        f"# Audit: {plain(audit.kind)} of {plain(audit.subject)}",
        f"{plain(headline(audit))}.",
        markdown_table(COLUMNS, rows),
    ]
    for finding in audit.findings:
        parts += [f"## {plain(finding.subject)}", "\n".join(f"- {plain(line)}" for line in _told(finding))]
    parts += [f"![{plain(caption)}](figures/{name}.png)" for name, caption in audited.captions.items()]
    parts += ["## Notes", "\n".join(f"- {plain(note)}" for note in audit.notes)] if audit.notes else []
    return "\n\n".join(parts) + "\n"


def _told(finding: Finding) -> Iterator[str]:
    yield f"claimed: {finding.claim}"
    yield f"attacked: {finding.attack}; {finding.effort}"
    yield f"found: {finding.meaning}"
    if finding.noticeable:
        yield f"it could have noticed: {finding.noticeable}"
