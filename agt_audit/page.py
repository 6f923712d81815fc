"""The report of every kind of audit, and its lines on the console.

Its readers have to answer for an audit, so no sentence may read as a proof. A lower bound that was
found is rounded down and a limit is rounded up, so that what is printed holds.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from agt_audit.estimates import advantage, gaussian_advantage, posterior
from agt_audit.job import OWNER, Audited
from agt_cli.report.findings import (
    LOSS_MEASURES,
    RIGOROUS_STRENGTHS,
    Audit,
    Finding,
    Outcome,
    Strength,
    format_bound,
    format_lower_bound,
)
from agt_cli.report.markdown import (
    Markdown,
    capitalize_first,
    document,
    escape_markdown,
    markdown_table,
)
from agt_cli.report.sections_md import figures_section

LIKELY_PRIOR = 0.5
UNLIKELY_PRIOR = 0.01
ORDER = (
    Outcome.VIOLATED,
    Outcome.UNTESTED,
    Outcome.NOT_CONTRADICTED,
    Outcome.REPORTED,
)  # the worst first
ABOUT = "about"
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
FRACTIONS = (*LOSS_MEASURES, "deviation/bound")  # of these a share of the claim means something


# -- words
# --------------------------------------------------------------------------------------------------


def percentage_points(share: float) -> str:
    """Return an upper limit, given as a share of 1, in percentage points without a unit.

    It is rounded up to a tenth.
    """
    rounded_up = math.ceil(1000 * share - 1e-9) / 10
    return f"{rounded_up:g}"


def percent(share: float) -> str:
    """Return an upper limit, given as a share of 1, in per cent, rounded up to a tenth."""
    return f"{percentage_points(share)} %"


def found(finding: Finding) -> str:
    """Return the measured value of a finding as text, for a cell of a table.

    It is the measure with its value, the confidence and the estimator, or "nothing" if nothing was
    tested.
    """
    if finding.found is None:
        return "nothing"
    is_loss = finding.measure in LOSS_MEASURES
    value = format_bound(finding.found)
    if is_loss:
        value = format_lower_bound(finding.found, finding.claimed)
    sign = "≥" if finding.strength in RIGOROUS_STRENGTHS else ABOUT
    if is_loss or sign == ABOUT:
        value = f"{sign} {value}"
    quantity = f"{finding.measure} {value}"
    if " " in finding.measure:  # a noun of several words, such as "labels that differ"
        quantity = f"{value} {finding.measure}"
    confidence = f"{100 * finding.confidence:.12g} %" if finding.confidence else ""
    notes = ", ".join(filter(None, (confidence, finding.estimator)))
    return f"{quantity} ({notes})" if notes else quantity


def risk(finding: Finding, question: str) -> str:
    """Return a sentence about how successful an attacker can be if a claim holds.

    It is empty if no epsilon or mu is claimed.

    Args:
        finding: the finding with the claim.
        question: what an attacker wants to know, as a clause (``AuditKind.question``).
    """
    claimed = finding.claimed
    if claimed is None:
        return ""
    if finding.measure == "mu":
        return _risk_under_mu(claimed, question)
    if finding.measure == "epsilon":
        return _risk_under_epsilon(claimed, finding.delta or 0.0, question)
    return ""


def _risk_under_mu(mu: float, question: str) -> str:
    """Return the sentence of ``risk`` about a claim of mu-GDP."""
    max_advantage = gaussian_advantage(mu)
    right = percent(0.5 + max_advantage / 2)
    return (
        f"mu = {format_bound(mu)}: an attacker who guesses whether {question} (at first, "
        f"both are equally likely) is right with probability at most {right}. In general, "
        f"{_advantage_limit(max_advantage)}"
    )


def _risk_under_epsilon(epsilon: float, delta: float, question: str) -> str:
    """Return the sentence of ``risk`` about a claim of (epsilon, delta)-DP."""
    privacy_loss = f"epsilon = {format_bound(epsilon)}"
    exception = ""
    if delta:
        privacy_loss += f", delta = {format_bound(delta)}"
        exception = (
            f", except with probability {format_bound(delta)}, for which nothing is promised"
        )
    likely = percent(LIKELY_PRIOR)
    likely_after = percent(posterior(LIKELY_PRIOR, epsilon))
    unlikely = percent(UNLIKELY_PRIOR)
    unlikely_after = percent(posterior(UNLIKELY_PRIOR, epsilon))
    return (
        f"{privacy_loss}: an attacker who is {likely} sure that {question} can be at most "
        f"{likely_after} sure after seeing the answer, and an attacker who is {unlikely} sure "
        f"before can be at most {unlikely_after} sure{exception}. In general, "
        f"{_advantage_limit(advantage(epsilon, delta))}"
    )


def _advantage_limit(max_advantage: float) -> str:
    """Return a clause that says how far a true positive rate can exceed a false positive rate."""
    points = percentage_points(max_advantage)
    return (
        "the true positive rate of any membership attack exceeds its false positive rate by at "
        f"most {points} percentage points"
    )


def risks(audit: Audit, question: str) -> list[str]:
    """Return the different sentences of ``risk`` about an audit's claims, in order."""
    sentences = (risk(finding, question) for finding in audit.findings)
    return list(dict.fromkeys(filter(None, sentences)))


def rounded_cell(cell: object) -> object:
    """Return a cell of a table unchanged, but a float rounded to four significant digits."""
    return float(f"{cell:.4g}") if isinstance(cell, float) else cell


# -- the page
# --------------------------------------------------------------------------------------------------


def lines(audit: Audit, question: str) -> Iterator[str]:
    """Yield the lines that the console shows about an audit.

    Args:
        audit: what was found.
        question: what an attacker wants to know, as a clause.
    """
    yield f"{audit.kind} audit of {audit.subject}: {audit.verdict}"
    if audit.is_selftest:  # the rest is in a table, which was printed before
        return
    yield from (f"{finding.outcome.value}: {finding.meaning}" for finding in audit.findings)
    yield from _again(audit)
    yield from risks(audit, question)


def _again(audit: Audit) -> list[str]:
    """Return the advice to audit again, if chance may be the reason for a violation; else []."""
    if any(finding.strength is Strength.CONFIDENT for finding in audit.violations):
        return [AGAIN]
    return []


def page(audit: Audit, audited: Audited, question: str) -> str:
    """Return the report as Markdown.

    A report on the auditor itself (``agt audit selftest``) has no list of findings, because its
    table has all of them.

    Args:
        audit: the findings, with their verdict.
        audited: the tables and captions of figures of the same audit.
        question: what an attacker wants to know, as a clause (``AuditKind.question``).
    """
    is_selftest = audit.is_selftest
    sections: list[str | Sequence[str]] = []
    if not is_selftest:
        sections += _findings(audit)
        sections += _section("How to read the numbers", STRENGTHS)
        sections += _section(
            "What the claims mean for a person, if they hold", risks(audit, question)
        )
    sections += _section("What this audit does not show", LIMITS)
    sections += _section("Notes", audit.notes)
    sections += _tables(audited, len(audit.findings) if is_selftest else MAX_ROWS)
    digest_start = audit.digest[:19] if audit.digest else ""
    state = f" State of the run (start of its digest): {digest_start}…." if digest_start else ""
    kind = escape_markdown(audit.kind)
    subject = escape_markdown(audit.subject)
    verdict = escape_markdown(capitalize_first(audit.verdict))
    for_whom = "" if is_selftest else f" {capitalize_first(OWNER)}.{state}"
    return document(
        f"# Audit: {kind} of {subject}",
        f"**{verdict}.**{for_whom}",
        "".join(_again(audit)),
        *sections,
        *figures_section(audited.subject, audited.captions),
    )


def _tables(audited: Audited, shown_rows: int) -> Iterator[str]:
    """Yield the first rows of each table that is not empty, under a heading."""
    for name, table in audited.tables.items():
        if not len(table):
            continue
        more = ""
        if len(table) > shown_rows:
            more = f": the first {shown_rows} of {len(table):,} rows of tables/{name}.csv"
        title = capitalize_first(name.replace("_", " "))
        yield f"## {escape_markdown(title)}{escape_markdown(more)}"
        yield data_table(table.head(shown_rows))


def _findings(audit: Audit) -> Iterator[str | Sequence[str]]:
    """Yield a table of findings, violated ones first; then a list of their sentences.

    Only the first ``MAX_SHOWN`` findings are shown, with a sentence that says how many are not.
    """
    ordered = sorted(audit.findings, key=lambda finding: ORDER.index(finding.outcome))
    shown = ordered[:MAX_SHOWN]
    yield markdown_table(COLUMNS, [row(finding) for finding in shown])
    if len(ordered) > MAX_SHOWN:
        hidden = len(ordered) - MAX_SHOWN
        yield f"Findings not shown here: {hidden}. All findings are listed in audit.json."
    sentences = []
    for finding in shown:
        limit = f" {capitalize_first(finding.noticeable)}." if finding.noticeable else ""
        sentences.append(f"{finding.subject}: {finding.meaning}.{limit}")
    yield from _section("What was found", dict.fromkeys(sentences))


def row(finding: Finding) -> tuple[str, ...]:
    """Return the cells of a finding in the table of findings, in the order of ``COLUMNS``."""
    attack = "; ".join(filter(None, (finding.attack, finding.effort)))
    cells = (finding.subject, finding.claim or "-", attack or "-", found(finding), _share(finding))
    return Markdown(f"**{finding.outcome.value}**"), *cells


def _share(finding: Finding) -> str:
    """Return the measured value of a finding as a percentage of the claimed one.

    It is "-" if one of the two is missing, or if the measured value is no rigorous bound in the
    claim's measure.
    """
    comparable = finding.measure in FRACTIONS and finding.strength in RIGOROUS_STRENGTHS
    if not comparable or not finding.claimed or finding.found is None:
        return "-"
    percentage = 100 * finding.found / finding.claimed
    return f"{percentage:.0f} %"


def _section(title: str, lines: Iterable[str]) -> list[str | Sequence[str]]:
    """Return a heading and a list, as parts of a document; no part if the list is empty."""
    listed = list(lines)
    return [f"## {title}", listed] if listed else []


def data_table(table: pd.DataFrame) -> str:
    """Return a table as Markdown, with rounded numbers; rates are in per cent."""
    # the name of a column of detection rates has "%_", as in TPR_at_1%_FPR
    is_rate = ["%_" in str(column) for column in table.columns]
    rows = []
    for values in table.itertuples(index=False):
        rows.append([_cell(value, rate) for value, rate in zip(values, is_rate, strict=True)])
    return markdown_table([str(column) for column in table.columns], rows)


def _cell(value: object, rate: bool) -> str:
    """Return a value as the text of a cell.

    Args:
        value: of any type; None and NaN give "-".
        rate: whether a float is a share of 1, which is shown in per cent.
    """
    if value is None or value != value:
        return "-"
    if not isinstance(value, float) or math.isinf(value):
        return str(value)
    if rate:
        return f"{format_bound(100 * value)} %"
    return format_bound(
        value, distinct_from=1.0
    )  # with enough digits to tell a share near 1 from 1
