"""An audit on one page, in the words of a risk officer; and the same in a few lines."""

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from agt.audit.findings import Audit, Finding, Outcome
from agt.audit.written import number
from agt_cli.audit import joint
from agt_cli.audit.job import Audited
from agt_cli.audit.words import (
    LIMITS,
    ORDER,
    PLANTED_LIMITS,
    TESTED,
    by_chance,
    chance,
    found,
    headline,
    legend,
    others,
    risk,
    seen,
)
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.report_md import figures_section

COLUMNS = ("outcome", "audited", "claimed", "attacked, how hard", "found")
SHOWN = 12  # findings that are told one by one, the violated first
ROWS = 8  # of a table
MOST = 24  # of a summary's
OWNER = "For the data owner: an audit sees private records, and what it found may tell of them."


def lines(audit: Audit) -> Iterator[str]:
    """What is said of it on the console."""
    yield f"{audit.kind} audit of {audit.subject}: {headline(audit)}"
    if audit.kind == "selftest" or audit.parts:  # a table has said the rest
        yield from (f"not audited in this state: {', '.join(audit.unaudited)}" for _ in audit.unaudited[:1])
        return
    for finding in audit.findings:
        yield f"{finding.outcome.value}: {finding.meaning}"
    yield from by_chance(audit)
    yield from dict.fromkeys(filter(None, (risk(finding, audit.kind) for finding in audit.findings)))


def page(audit: Audit, audited: Audited) -> str:
    """The report, as Markdown."""
    planted = audit.kind == "selftest"  # its table says it all, and it sees no data
    verdict = f"**{plain(_capital(headline(audit)))}.**"
    body = (
        drawn(audited, len(audit.findings)) if planted else _gathered(audit, audited) if audit.parts else _attacked(audit)
    )
    parts = [
        f"# Audit: {plain(audit.kind)} of {plain(audit.subject)}",
        verdict if planted else f"{verdict} {OWNER}{_state(audit)}",
        *(() if planted else map(plain, by_chance(audit))),
        *body,
        *_section("What this does not show", [*(PLANTED_LIMITS if planted else LIMITS), *chance(audit)]),
        *_section("Notes", audit.notes),
        *(() if planted or audit.parts else drawn(audited)),
    ]
    return "\n\n".join(parts) + "\n"


def _attacked(audit: Audit) -> Iterator[str]:
    """Every claim with the attacks on it, what they found, and what that means."""
    attacks = _attacks(audit)
    yield markdown_table(COLUMNS, [row(findings) for findings in attacks])
    yield "## What was found"
    yield _told([finding for findings in attacks[:SHOWN] for finding in _verdicts(findings)], audit)
    if len(attacks) > SHOWN:
        yield f"And {len(attacks) - SHOWN} more: audit.json has them all."
    yield from _read(audit)


def _gathered(audit: Audit, audited: Audited) -> Iterator[str]:
    """Of a summary: a line for each audit, every claim with what was found of it, and what is violated in words."""
    yield markdown_table(*joint.audits(audit))
    if audit.unaudited:
        yield f"**Not audited** in this state: {plain(', '.join(audit.unaudited))}."
    wrong = [finding for finding in audit.findings if finding.violated]
    if wrong:
        yield "## What is violated"
        yield _told(wrong, audit)
    tables = {"Claims and lower bounds": joint.losses(audit), "Other claims": joint.others(audit)}
    for title, table in {**tables, "Numbers only reported": joint.numbers_alone(audit)}.items():
        if table:
            yield f"## {title}"
            yield markdown_table(table[0], table[1][:MOST])
            if len(table[1]) > MOST:
                yield f"And {len(table[1]) - MOST} more: tables/claims.csv has them all."
    yield from figures_section(audited.subject, audited.captions)
    yield from _read(audit)


def _read(audit: Audit) -> Iterator[str]:
    """How the numbers are to be read, and what the claims mean."""
    claims = (risk(finding, _kind(finding, audit)) for finding in audit.findings)
    yield from _section("How to read the numbers", legend(audit))
    yield from _section("What the claims mean for a person, where they hold", dict.fromkeys(filter(None, claims)))


def _attacks(audit: Audit) -> list[Sequence[Finding]]:
    """What each attack on each claim found: one number, or several estimates of it; the worst first."""
    attacks: dict[tuple[str, ...], list[Finding]] = {}
    for finding in sorted(audit.findings, key=_badness):
        key = (finding.subject, finding.claim, finding.attack, finding.effort)
        attacks.setdefault(key, []).append(finding)
    return list(attacks.values())


def row(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The line of an attack in the table of claims; its findings the worst first."""
    first = findings[0]
    attack = "; ".join(filter(None, (first.attack, first.effort)))
    numbers = [words for each in findings for words in (found(each), *others(each))]
    cells = (first.subject, first.claim, attack, "; ".join(numbers))
    return Markdown(f"**{first.outcome.value}**"), *(cell or "-" for cell in cells)


def _verdicts(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Without the estimates that stand beside a verdict: the table has them."""
    tested = [finding for finding in findings if finding.outcome in TESTED]
    return tested or findings


def _told(findings: Sequence[Finding], audit: Audit) -> str:
    """What attacks found, in plain words, as a list of their subjects; no line of one twice."""
    lines: dict[str, dict[str, None]] = {}
    for finding in findings:
        claims = {each.claim for each in findings if each.subject == finding.subject}
        first = f"{finding.claim}: {finding.meaning}" if len(claims) > 1 and finding.claim else finding.meaning
        told = "" if finding.outcome is Outcome.REPORTED else seen(finding, _kind(finding, audit))
        facts = (first, told, _noticeable(finding))
        lines.setdefault(finding.subject, {}).update(dict.fromkeys(filter(None, facts)))
    return "\n".join(
        "\n".join([f"- {plain(name)}", *(f"  - {plain(line)}" for line in each)]) for name, each in lines.items()
    )


def _kind(finding: Finding, audit: Audit) -> str:
    """Of the audit that a finding comes from."""
    return audit.parts[finding.part - 1].kind if finding.part else audit.kind


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A list under a heading; nothing where there is none."""
    if words := list(lines):
        yield f"## {title}"
        yield bullets(words)


def bullets(lines: Sequence[str]) -> str:
    """A list, of text."""
    return "\n".join(f"- {plain(line)}" for line in lines)


def drawn(audited: Audited, most: int = ROWS) -> Iterator[str]:
    """The first rows of each table, and the figures, with their captions."""
    for name, table in audited.tables.items():
        if len(table):
            more = f": the first {most} of {len(table):,} rows of tables/{name}.csv" if len(table) > most else ""
            yield f"## {plain(_capital(name.replace('_', ' ')))}{plain(more)}"
            yield markdown_table([str(column) for column in table.columns], _cells(table.head(most)))
    yield from figures_section(audited.subject, audited.captions)


def _badness(finding: Finding) -> int:
    return ORDER.index(finding.outcome)


def _noticeable(finding: Finding) -> str:
    return f"the audit could have noticed: {finding.noticeable}" if finding.noticeable else ""


def _state(audit: Audit) -> str:
    return f" State of the run: {audit.digest[:19]}…." if audit.digest else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cells(table: pd.DataFrame) -> list[list[str]]:
    rates = ["%" in str(column) for column in table.columns]  # a share of records, at so many per cent
    return [[_cell(*each) for each in zip(line, rates, strict=True)] for line in table.itertuples(index=False)]


def _cell(value: object, rate: bool = False) -> str:
    """As a reader takes it; nothing where there is nothing."""
    if value is None or value != value:
        return "-"
    if isinstance(value, float) and abs(value) != float("inf"):
        if rate:
            return f"{number(100 * float(value))} %"
        return number(float(value), beside=1.0)  # of a share, how near to all it is must be seen
    return str(value)
