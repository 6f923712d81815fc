"""Claims and lower bounds of many audits side by side, as auditors' papers print them: a row for each claim, a column for
each estimate, and which share of the claim the best rigorous one shows. And the other claims, and a line for each audit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from agt.audit.findings import LOWER, RIGOROUS, Audit, Estimated, Finding, Outcome, Strength
from agt.audit.written import least, number
from agt_cli.audit.words import ABOUT, AREA, ORDER, SIGNS, TESTED, reported, strongest
from agt_cli.report.markdown import Markdown

SEEN = "worked out"
NAMES = {Strength.CONFIDENT: "confidence bound", Strength.ASYMPTOTIC: "asymptotic", Strength.CREDIBLE: "posterior"}
OTHERS = ("outcome", "audit", "audited", "claimed", "found", "of")
AUDITS = ("audit", "attacks", "violated", "not made", "most of a claim", "state of the run", "folder")
FRACTIONS = (*LOWER, "deviation/bound")  # of these a share of the claim means something
Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def numbers(finding: Finding) -> Iterator[Estimated]:
    """Every estimate of a finding's trials, that among them on which its outcome rests."""
    if finding.found is None:
        return
    name = finding.estimator or (SEEN if finding.strength is Strength.CERTAIN else NAMES[finding.strength])
    first = Estimated(name, finding.measure, max(finding.found, 0.0), finding.strength)
    told = any(replace(each, estimator=name) == first for each in finding.estimates)  # it is one of them, by its name
    yield from () if told else (first,)
    yield from finding.estimates


def share(finding: Finding) -> float | None:
    """Found over claimed; None: that means nothing here."""
    if finding.measure not in FRACTIONS or not finding.claimed or finding.found is None:
        return None
    return finding.found / finding.claimed if finding.strength in RIGOROUS else None


def losses(audit: Audit) -> Table | None:
    """Of each claimed epsilon or mu what every estimate found, the greatest of each kind; None: none is claimed."""
    claims = _claims(audit)
    attacks = [(_worst(findings), [each for one in findings for each in numbers(one)]) for findings in claims]
    names = list(dict.fromkeys(_family(each) for _, made in attacks for each in made))
    rows = [
        (*_about(audit, one, findings), *_columns(one, made, names), _percent(share(one)))
        for findings, (one, made) in zip(claims, attacks, strict=True)
    ]
    return (("outcome", "audit", "audited", "claimed", *names, "share"), rows) if rows else None


def _claims(audit: Audit) -> list[list[Finding]]:
    """What was found of each claimed epsilon or mu, by all attacks on it."""
    claims: dict[tuple[object, ...], list[Finding]] = {}
    for finding in _ordered(audit.findings):
        if finding.measure in LOWER and finding.found is not None:
            claims.setdefault((finding.part, finding.subject, finding.claim), []).append(finding)
    return [findings for findings in claims.values() if _is_loss(findings[0])]


def _worst(findings: Sequence[Finding]) -> Finding:
    """A violation before any other, then what shows most of the claim."""
    return max(findings, key=lambda each: (each.violated, each.outcome in TESTED, share(each) or 0.0))


def _about(audit: Audit, worst: Finding, findings: Sequence[Finding]) -> tuple[str, ...]:
    return _outcome(worst), _kind(audit, worst), _attacked(worst, findings), _claimed(worst)


def _attacked(worst: Finding, findings: Sequence[Finding]) -> str:
    """What was, and by which of several attacks most was found."""
    attacks = {(each.attack, each.effort) for each in findings}
    return worst.subject if len(attacks) == 1 else f"{worst.subject}; most of {len(attacks)} attacks: {worst.attack}"


def numbers_alone(audit: Audit) -> Table | None:
    """Numbers of which nothing is claimed, of areas the strongest; None: there are none."""
    alone = reported(audit)
    kept = [*strongest(alone), *(each for each in alone if each.measure != AREA)]
    rows = [(_kind(audit, each), each.subject, f"{each.measure} {number(each.found or 0.0)}") for each in kept]
    return (("audit", "audited", "found"), rows) if rows else None


def others(audit: Audit) -> Table | None:
    """The other claims; None: there are none."""
    tested = [each for each in audit.findings if not _is_loss(each) and each.outcome is not Outcome.REPORTED]
    findings = _ordered(tested)
    rows = [(_outcome(each), _kind(audit, each), each.subject, each.claim or "-", *_found(each)) for each in findings]
    return (OTHERS, rows) if rows else None


def audits(audit: Audit) -> Table:
    """A line for each audit that a summary gathers."""
    rows = []
    for place, part in enumerate(audit.parts, 1):
        findings = [each for each in audit.findings if each.part == place]
        made = sum(each.outcome in TESTED for each in findings)
        untested = sum(each.outcome is Outcome.UNTESTED for each in findings)
        most = max((rate for each in findings if (rate := share(each)) is not None), default=None)
        wrong = sum(each.violated for each in findings)
        state = "as it is" if part.current else "earlier"
        rows.append((part.kind, str(made), str(wrong), str(untested), _percent(most), state, part.folder))
    return AUDITS, rows


def frame(audit: Audit) -> pd.DataFrame:
    """tables/claims.csv: every estimate of every finding, for a program."""
    rows = []
    for finding in _ordered(audit.findings):
        part = audit.parts[(finding.part or 1) - 1]
        about = {"audit": part.kind, "folder": part.folder, "current": part.current, "audited": finding.subject}
        about |= {"claim": finding.claim, "claimed": finding.claimed, "claimed_measure": finding.measure}
        about |= {"delta": finding.delta, "confidence": finding.confidence, "outcome": finding.outcome.value}
        for each in [*numbers(finding)] or (None,):
            found = {} if each is None else {"measure": each.measure, "found": each.found, "strength": each.strength.value}
            rows.append({**about, "estimate": each and each.estimator, **found})
    return pd.DataFrame(rows)


def _is_loss(finding: Finding) -> bool:
    return finding.measure in LOWER and finding.claimed is not None and finding.found is not None


def _ordered(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (ORDER.index(finding.outcome), finding.part or 0))


def _family(each: Estimated) -> str:
    """An estimate's name without who sees what; that of another measure says which."""
    return each.estimator.split(",")[0]


def _columns(finding: Finding, made: Sequence[Estimated], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        here = [each for each in made if _family(each) == name]
        best = max(here, key=lambda each: each.found, default=None)
        yield "-" if best is None else _bound(best, finding)


def _bound(each: Estimated, finding: Finding) -> str:
    sign, same = "≈" if SIGNS[each.strength] == ABOUT else "≥", each.measure == finding.measure
    return f"{'' if same else f'{each.measure} '}{sign} {least(each.found, finding.claimed if same else None)}"


def _outcome(finding: Finding) -> str:
    word = finding.outcome.value
    return Markdown(f"**{word}**") if finding.outcome in (Outcome.VIOLATED, Outcome.UNTESTED) else word


def _kind(audit: Audit, finding: Finding) -> str:
    part = audit.parts[(finding.part or 1) - 1]
    return part.kind if part.current else f"{part.kind} (earlier state)"


def _claimed(finding: Finding) -> str:
    delta = f", delta {number(finding.delta)}" if finding.delta else ""
    return f"{finding.measure} {number(finding.claimed or 0.0)}{delta}"


def _found(finding: Finding) -> tuple[str, str]:
    return ("-", "-") if finding.found is None else (number(finding.found), finding.measure)


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.0f} %"
