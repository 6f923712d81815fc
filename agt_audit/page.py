"""The report of every kind of audit, and what is said of it on the console.

An audit in words and tables, for somebody who has to answer for it; no word of these reads as a
proof. A number that was found is cut off towards less and a limit towards more, so that what stands
on a page holds.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from agt_audit.estimates import advantage, gaussian_advantage, posterior
from agt_audit.job import OWNER, Audited
from agt_cli.report.findings import (
    LOWER,
    RIGOROUS,
    Audit,
    Finding,
    Outcome,
    Strength,
    least,
    number,
)
from agt_cli.report.markdown import Markdown, capital, document, markdown_table, plain
from agt_cli.report.sections_md import figures_section

PRIORS = (0.5, 0.01)
ORDER = (Outcome.VIOLATED, Outcome.UNTESTED, Outcome.STANDS, Outcome.REPORTED)  # the worst first
ABOUT = "about"
SIGNS = {
    Strength.CERTAIN: "≥",
    Strength.CONFIDENT: "≥",
    Strength.ASYMPTOTIC: ABOUT,
    Strength.CREDIBLE: ABOUT,
}
STRENGTHS = (
    "a number without a percentage was observed directly, or computed without sampling",
    "a number with ≥ and a percentage is a confidence bound that is valid for any number of "
    "trials. For example, a single bound with 95 % is too large with probability at most 5 %",
    "a number with 'about' is an estimate, so it cannot contradict a claim: its interval is "
    "valid only for many trials, or is a Bayesian posterior interval",
)
AGAIN = (
    "By chance, a bound with 95 % confidence contradicts a true claim in up to 5 % of all "
    "audits (other percentages accordingly). Audit again with more trials: a claim that is "
    "really violated stays violated. Until then, do not publish anything that depends on this "
    "claim."
)
LIMITS = (
    "an audit cannot prove a claim. Other attacks or more effort may contradict claims that "
    "this audit did not contradict, and the true privacy loss may be far above a lower bound",
    "the audit shows nothing about other data, other settings or later states of the run",
    "the auditor is part of the program that it audits, so it may miss errors. `agt audit "
    "selftest` shows which planted errors it detects",
)
COLUMNS = ("outcome", "audited", "claimed", "attacked, how hard", "found", "of the claim")
MAX_SHOWN = 24  # findings of a page, the violated first
MAX_ROWS = 8  # of a table
FRACTIONS = (*LOWER, "deviation/bound")  # of these a share of the claim means something


# -- words
# --------------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    """A limit in per cent, rounded up to a tenth."""
    rounded_up = math.ceil(1000 * share - 1e-9) / 10
    return f"{rounded_up:g} %"


def found(finding: Finding) -> str:
    """What was found, for a cell of a table."""
    if finding.found is None:
        return "nothing"
    loss, sign = finding.measure in LOWER, SIGNS[finding.strength]
    sure = f"{100 * finding.confidence:.12g} %" if finding.confidence else ""
    notes = ", ".join(filter(None, (sure, finding.estimator)))
    value = least(finding.found, finding.claimed) if loss else number(finding.found)
    words = f"{sign} {value}" if loss or sign == ABOUT else value
    told = f"{words} {finding.measure}" if " " in finding.measure else f"{finding.measure} {words}"
    return f"{told} ({notes})" if notes else told


def risk(finding: Finding, question: str) -> str:
    """A claimed loss as attack success; empty: nothing of the kind is claimed.

    Args:
        question: what an attacker wants to know, as a clause (``AuditKind.question``).
    """
    claimed = finding.claimed
    if claimed is None or finding.measure not in LOWER:
        return ""
    delta = finding.delta or 0.0
    most = gaussian_advantage(claimed) if finding.measure == "mu" else advantage(claimed, delta)
    points = percent(most)[:-2]
    advantage_limit = (
        "the true positive rate of any membership attack exceeds its false positive rate by at "
        f"most {points} percentage points"
    )
    if finding.measure == "mu":
        right = percent(0.5 + most / 2)
        return (
            f"mu = {number(claimed)}: an attacker who guesses whether {question} (at first, both "
            f"are equally likely) is right with probability at most {right}. In general, "
            f"{advantage_limit}"
        )
    privacy_loss = f"epsilon = {number(claimed)}"
    if delta:
        privacy_loss += f", delta = {number(delta)}"
    (before, after), (rare, then) = (
        (percent(prior), percent(posterior(prior, claimed))) for prior in PRIORS
    )
    exception = ""
    if delta:
        exception = f", except with probability {number(delta)}, for which nothing is promised"
    return (
        f"{privacy_loss}: an attacker who is {before} sure that {question} can be at most "
        f"{after} sure after seeing the answer, and an attacker who is {rare} sure before can be "
        f"at most {then} sure{exception}. In general, {advantage_limit}"
    )


def risks(audit: Audit, question: str) -> list[str]:
    """What the claims mean for a person, where they hold, each once."""
    words = (risk(finding, question) for finding in audit.findings)
    return list(dict.fromkeys(filter(None, words)))


def short(cell: object) -> object:
    """A cell of a table, numbers to four digits."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


# -- the page
# --------------------------------------------------------------------------------------------------


def lines(audit: Audit, question: str) -> Iterator[str]:
    """What is said of it on the console."""
    yield f"{audit.kind} audit of {audit.subject}: {audit.verdict}"
    if audit.of_the_auditor:  # a table has said the rest
        return
    yield from (f"{finding.outcome.value}: {finding.meaning}" for finding in audit.findings)
    yield from _again(audit)
    yield from risks(audit, question)


def _again(audit: Audit) -> list[str]:
    """What to do where a claim is violated by a bound that chance may have made too large."""
    return [AGAIN] if any(each.strength is Strength.CONFIDENT for each in audit.violations) else []


def page(audit: Audit, audited: Audited, question: str) -> str:
    """The report, as Markdown."""
    digest_start = audit.digest[:19] if audit.digest else ""
    state = f" State of the run (start of its digest): {digest_start}…." if digest_start else ""
    tested, sections = audit.of_the_auditor, list[str | Sequence[str]]()  # whose table says it all
    if not tested:
        sections += _findings(audit)
        sections += _section("How to read the numbers", STRENGTHS)
        sections += _section(
            "What the claims mean for a person, if they hold", risks(audit, question)
        )
    sections += _section("What this audit does not show", LIMITS)
    sections += _section("Notes", audit.notes)
    shown_rows = len(audit.findings) if tested else MAX_ROWS
    for name, table in audited.tables.items():
        if len(table):
            more = (
                f": the first {shown_rows} of {len(table):,} rows of tables/{name}.csv"
                if len(table) > shown_rows
                else ""
            )
            sections += [
                f"## {plain(capital(name.replace('_', ' ')))}{plain(more)}",
                data_table(table.head(shown_rows)),
            ]
    kind = plain(audit.kind)
    subject = plain(audit.subject)
    verdict = plain(capital(audit.verdict))
    for_whom = "" if tested else f" {capital(OWNER)}.{state}"
    return document(
        f"# Audit: {kind} of {subject}",
        f"**{verdict}.**{for_whom}",
        "".join(_again(audit)),
        *sections,
        *figures_section(audited.subject, audited.captions),
    )


def _findings(audit: Audit) -> Iterator[str | Sequence[str]]:
    """Every claim with the attacks on it and what they found, the worst first; then the same in
    sentences.
    """
    ordered = sorted(audit.findings, key=lambda finding: ORDER.index(finding.outcome))
    yield markdown_table(COLUMNS, [row(finding) for finding in ordered[:MAX_SHOWN]])
    if len(ordered) > MAX_SHOWN:
        hidden = len(ordered) - MAX_SHOWN
        yield f"Findings not shown here: {hidden}. All findings are listed in audit.json."
    sentences = dict[str, None]()
    for each in ordered[:MAX_SHOWN]:
        limit = f" {capital(each.noticeable)}." if each.noticeable else ""
        sentences[f"{each.subject}: {each.meaning}.{limit}"] = None
    yield from _section("What was found", sentences)


def row(finding: Finding) -> tuple[str, ...]:
    """The line of a finding in the table of claims."""
    attack = "; ".join(filter(None, (finding.attack, finding.effort)))
    cells = (finding.subject, finding.claim or "-", attack or "-", found(finding), _share(finding))
    return Markdown(f"**{finding.outcome.value}**"), *cells


def _share(finding: Finding) -> str:
    """What was found as a share of the claim, in per cent; "-" where such a share means nothing."""
    comparable = finding.measure in FRACTIONS and finding.strength in RIGOROUS
    if not comparable or not finding.claimed or finding.found is None:
        return "-"
    percentage = 100 * finding.found / finding.claimed
    return f"{percentage:.0f} %"


def _section(title: str, lines: Iterable[str]) -> list[str | Sequence[str]]:
    """A list under a heading; nothing where there is none."""
    words = list(lines)
    return [f"## {title}", words] if words else []


def data_table(table: pd.DataFrame) -> str:
    """Rows of a table, as a reader takes them."""
    # a share of records, at so many per cent of others
    rates = ["%_" in str(column) for column in table.columns]
    rows = [
        [_cell(*each) for each in zip(line, rates, strict=True)]
        for line in table.itertuples(index=False)
    ]
    return markdown_table([str(column) for column in table.columns], rows)


def _cell(value: object, rate: bool) -> str:
    """As a reader takes it; nothing where there is nothing."""
    if value is None or value != value:
        return "-"
    if not isinstance(value, float) or math.isinf(value):
        return str(value)
    # how near a share is to all must be seen
    return f"{number(100 * value)} %" if rate else number(value, beside=1.0)
