"""An audit in words, tables and a figure, for somebody who has to answer for it; no word of these reads as a proof.

A number that was found is cut off towards less and a limit towards more, so that what stands on a page holds. ``page`` is
the report, ``lines`` are what is said of it on the console; ``losses``, ``other_claims``, ``reported_numbers``, ``audits``
and ``claims_table`` are the tables of a summary: a row for each claim, a column for each estimate, and which share of the
claim the best rigorous one shows.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import pandas as pd

from agt.audit.estimates import advantage, gaussian_advantage, posterior
from agt.audit.findings import LOWER, RIGOROUS, Audit, Estimate, Finding, Outcome, Strength, least, number
from agt_cli.audit.job import Audited
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.report_md import figures_section

PASSED = "let pass"
PRIORS = (0.5, 0.01)
AREA = "AUC"
FAR_TIMES = 2  # times the claim: an audit that could have noticed only more says little
MAX_OTHERS = 3  # estimates beside the first
QUESTIONS = {"unlearning": "the erased records had ever been used"}  # what somebody wants to know, by the kind of audit
QUESTION = "a person's record was used"
ORDER = (Outcome.VIOLATED, Outcome.UNTESTED, Outcome.STANDS, Outcome.REPORTED)  # the worst first
TESTED = (Outcome.VIOLATED, Outcome.STANDS)
ABOUT = "about"
SIGNS = {Strength.CERTAIN: "≥", Strength.CONFIDENT: "≥", Strength.ASYMPTOTIC: ABOUT, Strength.CREDIBLE: ABOUT}
STRENGTHS = {
    Strength.CERTAIN: "without a percentage: seen or worked out, without chance",
    Strength.CONFIDENT: (
        "≥ with a percentage: a confidence bound, at any number of trials; by chance alone it is too large no more often "
        "than the rest of that percentage"
    ),
    Strength.ASYMPTOTIC: (
        "about (≈), by an interval that is right as trials grow without limit: at this number an estimate, which "
        "contradicts nothing"
    ),
    Strength.CREDIBLE: "about (≈), by a posterior under a prior: no confidence bound, and it contradicts nothing",
}
LIMITS = (
    "that a claim holds: it was not contradicted by these attacks, this hard; nor how much is lost at most: the truth may "
    "lie far above a bound from below",
    "anything of other data, other settings or a later state of the run",
    "that the auditor, a part of the program it audits, notices every mistake: agt audit selftest shows which it does",
)
PLANTED_LIMITS = (
    "that the auditor would notice every mistake: these are those that were planted",
    "anything of a run of yours: agt audit KIND run=FOLDER does",
)
COLUMNS = ("outcome", "audited", "claimed", "attacked, how hard", "found")
MAX_SHOWN = 12  # findings that are told one by one, the violated first
MAX_ROWS = 8  # of a table
MAX_SUMMARY_ROWS = 24  # of a summary's
OWNER = "For the data owner: an audit sees private records, and what it found may tell of them."
SEEN = "worked out"
NAMES = {Strength.CONFIDENT: "confidence bound", Strength.ASYMPTOTIC: "asymptotic", Strength.CREDIBLE: "posterior"}
OTHERS = ("outcome", "audit", "audited", "claimed", "found", "of")
AUDITS = ("audit", "attacks", "violated", "not made", "most of a claim", "state of the run", "folder")
FRACTIONS = (*LOWER, "deviation/bound")  # of these a share of the claim means something
ShownTable = tuple[Sequence[str], Sequence[Sequence[str]]]


# -- words ---------------------------------------------------------------------------------------------------------------


def headline(audit: Audit) -> str:
    """The verdict, in one line."""
    tested = [finding for finding in audit.findings if finding.outcome in TESTED]
    wrong, untested = len(audit.violations), sum(finding.outcome is Outcome.UNTESTED for finding in audit.findings)
    weak = _weak(tested)
    rest = "".join(
        [f"; {many(untested, 'attack')} not made" if untested else "", *(f"; {each}" for each in _reported(audit))]
    )
    if audit.kind == "selftest":
        return _selftest_headline(tested)
    if wrong:
        return f"claims VIOLATED, by {wrong} of {many(len(tested), 'attack')}{rest}"
    if not tested:
        return f"no claim was tested{rest}"
    return f"no claim contradicted by {many(len(tested), 'attack')}: that is no proof{weak}{rest}"


def _weak(tested: list[Finding]) -> str:
    """Where draws could have told only a far greater loss than is claimed, that it says little; empty: they could more."""
    known = [each for each in tested if each.noticed is not None and each.claimed]
    weak = [each for each in known if (each.noticed or 0.0) > FAR_TIMES * (each.claimed or 0.0)]
    if not weak:
        return ""
    worst = max(weak, key=lambda each: (each.noticed or 0.0) / (each.claimed or 1.0))
    told = f"{worst.measure} {number(worst.noticed or 0.0, up=True)} or more, of {number(worst.claimed or 0.0)} claimed"
    return f", and {len(weak)} of {len(known)} could have noticed only a far larger loss ({told})"


def reported(audit: Audit) -> list[Finding]:
    """Numbers of which nothing is claimed; other estimates of a tested claim's trials are none of them."""
    tested = {_trials(finding) for finding in audit.findings if finding.outcome in TESTED}
    alone = [finding for finding in audit.findings if finding.outcome is Outcome.REPORTED and finding.found is not None]
    return [finding for finding in alone if _trials(finding) not in tested]


def strongest(findings: Iterable[Finding]) -> list[Finding]:
    """The greatest of each kind of area: of shadow models in turn, and of training against test records."""
    best: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        key = (finding.part, finding.estimator)
        if finding.measure == AREA and (finding.found or 0) > (best[key].found or 0 if key in best else 0):
            best[key] = finding
    return list(best.values())


def by_chance(audit: Audit) -> Iterator[str]:
    """What to make of violations that are confidence bounds, each of which may be one by chance; nothing of others."""
    violations = audit.violations
    if not violations or any(each.strength is not Strength.CONFIDENT or not each.confidence for each in violations):
        return
    most = percent(max(1 - (each.confidence or 0.0) for each in violations), up=True)
    yield (
        f"By chance alone a bound calls a true claim violated in up to {most} of audits. Audit again, with more trials: "
        "draws are made anew each time, and what is really violated stays so. Until then do not publish on it."
    )
    for wrong, table in product(audit.violations, audit.findings):
        same = (table.part, table.claim, table.measure) == (wrong.part, wrong.claim, wrong.measure)
        exact = table.strength is Strength.CERTAIN and table.outcome is Outcome.STANDS and table.found is not None
        if same and exact and table.subject.startswith(wrong.subject):
            yield (
                f"Worked out without chance, {table.subject} stands at {table.measure} {least(table.found or 0.0)}, not "
                f"above the {number(wrong.claimed or 0.0)} claimed: draws are not what the table says, or this is chance."
            )


def _trials(finding: Finding) -> tuple[object, ...]:
    return (finding.part, finding.subject, finding.claim, finding.attack, finding.effort)


def _reported(audit: Audit) -> Iterator[str]:
    """How many numbers were only reported, and the strongest that tell members."""
    if alone := reported(audit):
        areas = [f"{each.measure} {number(each.found or 0.0)} ({each.subject})" for each in strongest(alone)]
        largest = f", the strongest: {' and '.join(areas)}" if areas else ""
        yield f"{many(len(alone), 'number')} only reported{largest}"


def _selftest_headline(tested: list[Finding]) -> str:
    """Of planted violations and of sound twins."""
    planted, sound = ([each for each in tested if (each.measure == PASSED) == passed] for passed in (False, True))
    missed, accused = (sum(each.violated for each in some) for some in (planted, sound))
    first = (
        f"{missed} of {len(planted)} planted violations MISSED"
        if missed
        else f"all {len(planted)} planted violations caught"
    )
    second = f"{accused} of {len(sound)} sound ones ACCUSED" if accused else f"all {len(sound)} sound ones let pass"
    return f"{first}; {second}" if sound else first  # an earlier version had none


def many(count: int, one: str) -> str:
    """``3 claims``."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def percent(share: float, up: bool) -> str:
    """In per cent, to a tenth: up for a limit, down for what was seen."""
    cut = math.ceil(1000 * share - 1e-9) if up else math.floor(1000 * share + 1e-9)
    return f"{cut / 10:g} %"


def found(finding: Finding) -> str:
    """What was found, for a cell of a table."""
    if finding.found is None:
        return "nothing"
    loss, sign = finding.measure in LOWER, SIGNS[finding.strength]
    sure = f"{100 * finding.confidence:.12g} %" if finding.confidence else ""
    notes = ", ".join(filter(None, (sure, finding.estimator)))
    value = least(finding.found, finding.claimed) if loss else number(finding.found)
    words = f"{sign if loss or sign == ABOUT else ''} {value}".strip()
    told = f"{words} {finding.measure}" if " " in finding.measure else f"{finding.measure} {words}"
    return f"{told}{f' ({notes})' if notes else ''}"


def other_estimates(finding: Finding) -> Iterator[str]:
    """The same of other estimates of its trials, where they are few; of many there is a table."""
    more = [each for each in finding.estimates if each.estimator != finding.estimator]
    for each in more if len(more) <= MAX_OTHERS else ():
        measure = "" if each.measure == finding.measure else f"{each.measure} "
        yield f"{measure}{SIGNS[each.strength]} {least(each.found)} ({each.estimator})"


def legend(audit: Audit) -> Iterator[str]:
    """What the numbers mean that were found, each meaning once."""
    strengths = {finding.strength for finding in audit.findings if finding.found is not None}
    strengths |= {
        each.strength
        for finding in audit.findings
        for each in finding.estimates
        if len(finding.estimates) <= MAX_OTHERS + 1
    }
    losses = any(finding.found is not None and finding.measure in LOWER for finding in audit.findings)
    for strength in Strength:
        if strength in strengths and (losses or strength is not Strength.CERTAIN):
            yield STRENGTHS[strength]


def risk(finding: Finding, kind: str) -> str:
    """A claimed loss as attack success; empty: nothing of the kind is claimed."""
    claimed, question = finding.claimed, QUESTIONS.get(kind, QUESTION)
    if claimed is None or finding.measure not in LOWER:
        return ""
    if finding.measure == "mu":
        most = gaussian_advantage(claimed)
        return (
            f"mu = {number(claimed)}: whoever guesses at even odds whether {question} is right at most "
            f"{percent(0.5 + most / 2, up=True)} of the time; {_named_of_100(most)}"
        )
    delta = finding.delta or 0.0
    but = f", but for a chance of {number(delta)} in which nothing is promised" if delta else ""
    eps = f"epsilon = {number(claimed)}" + (f", delta = {number(delta)}" if delta else "")
    return f"{eps}: {_surer(claimed, question, True)}{but}; {_named_of_100(advantage(claimed, delta))}"


def seen(finding: Finding, kind: str) -> str:
    """A loss that was found, as attack success; empty: none was."""
    if not finding.found or finding.measure not in LOWER:
        return ""
    rigorous = SIGNS[finding.strength] != ABOUT
    if finding.measure == "mu":
        half = percent(0.5 + gaussian_advantage(finding.found) / 2, up=False)
        did = (
            "an attacker was seen to do at least as well as with"
            if rigorous
            else "if the estimate is right, an attacker has"
        )
        mu = least(finding.found, finding.claimed)
        return f"{did} mu = {mu}: where the noise is Gaussian, right {half} of the time at even odds"
    did = "an attacker was seen to do at least this" if rigorous else "if the estimate is right, an attacker does this"
    return f"{did}: {_surer(finding.found, QUESTIONS.get(kind, QUESTION), False)}"


def _surer(eps: float, question: str, limit: bool) -> str:
    first, *others = ((percent(prior, limit), percent(posterior(prior, eps), limit)) for prior in PRIORS)
    verbs = ("is", "can be at most") if limit else ("was", "became at least")
    rest = "; ".join(f"{before} sure: {after}" for before, after in others)
    return f"whoever {verbs[0]} {first[0]} sure that {question} {verbs[1]} {first[1]} sure after seeing the answer ({rest})"


def _named_of_100(most: float) -> str:
    share = percent(most, up=True).removesuffix(" %")
    return f"no attack names more than {share} more of 100 that were used than of 100 that were not"


def chance(audit: Audit) -> Iterator[str]:
    """Of how many bounds at once a reader is told, each of which may be wrong by chance; nothing where it is one."""
    errors = [
        1 - finding.confidence
        for finding in audit.findings
        if finding.confidence is not None and finding.strength is Strength.CONFIDENT and finding.outcome in TESTED
    ]
    if len(errors) > 1:
        most = percent(min(1.0, sum(errors)), up=True)
        yield (
            f"each of {len(errors)} bounds holds with its own confidence: where they do not share the error probability "
            f"(their attacks say so), chance alone makes one of them too large with a probability of up to {most}"
        )


# -- the page ------------------------------------------------------------------------------------------------------------


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
    state = f" State of the run: {audit.digest[:19]}…." if audit.digest else ""
    body = (
        tables_and_figures(audited, len(audit.findings))
        if planted
        else _gathered(audit, audited)
        if audit.parts
        else _attacked(audit)
    )
    parts = [
        f"# Audit: {plain(audit.kind)} of {plain(audit.subject)}",
        verdict if planted else f"{verdict} {OWNER}{state}",
        *(() if planted else map(plain, by_chance(audit))),
        *body,
        *_section("What this does not show", [*(PLANTED_LIMITS if planted else LIMITS), *chance(audit)]),
        *_section("Notes", audit.notes),
        *(() if planted or audit.parts else tables_and_figures(audited)),
    ]
    return "\n\n".join(parts) + "\n"


def _attacked(audit: Audit) -> Iterator[str]:
    """Every claim with the attacks on it, what they found, and what that means."""
    attacks = _attacks(audit)
    yield markdown_table(COLUMNS, [row(findings) for findings in attacks])
    yield "## What was found"
    yield _findings_list(
        [
            finding
            for findings in attacks[:MAX_SHOWN]
            for finding in [each for each in findings if each.outcome in TESTED] or findings
        ],
        audit,
    )
    if len(attacks) > MAX_SHOWN:
        yield f"And {len(attacks) - MAX_SHOWN} more: audit.json has them all."
    yield from _read(audit)


def _gathered(audit: Audit, audited: Audited) -> Iterator[str]:
    """Of a summary: a line for each audit, every claim with what was found of it, and what is violated in words."""
    yield markdown_table(*audits(audit))
    if audit.unaudited:
        yield f"**Not audited** in this state: {plain(', '.join(audit.unaudited))}."
    wrong = [finding for finding in audit.findings if finding.violated]
    if wrong:
        yield "## What is violated"
        yield _findings_list(wrong, audit)
    tables = {"Claims and lower bounds": losses(audit), "Other claims": other_claims(audit)}
    for title, table in {**tables, "Numbers only reported": reported_numbers(audit)}.items():
        if table:
            yield f"## {title}"
            yield markdown_table(table[0], table[1][:MAX_SUMMARY_ROWS])
            if len(table[1]) > MAX_SUMMARY_ROWS:
                yield f"And {len(table[1]) - MAX_SUMMARY_ROWS} more: tables/claims.csv has them all."
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
    for finding in sorted(audit.findings, key=lambda each: ORDER.index(each.outcome)):
        key = (finding.subject, finding.claim, finding.attack, finding.effort)
        attacks.setdefault(key, []).append(finding)
    return list(attacks.values())


def row(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The line of an attack in the table of claims; its findings the worst first."""
    first = findings[0]
    attack = "; ".join(filter(None, (first.attack, first.effort)))
    numbers = [words for each in findings for words in (found(each), *other_estimates(each))]
    cells = (first.subject, first.claim, attack, "; ".join(numbers))
    return Markdown(f"**{first.outcome.value}**"), *(cell or "-" for cell in cells)


def _findings_list(findings: Sequence[Finding], audit: Audit) -> str:
    """What attacks found, in plain words, as a list of their subjects; no line of one twice."""
    lines: dict[str, dict[str, None]] = {}
    for finding in findings:
        claims = {each.claim for each in findings if each.subject == finding.subject}
        first = f"{finding.claim}: {finding.meaning}" if len(claims) > 1 and finding.claim else finding.meaning
        told = "" if finding.outcome is Outcome.REPORTED else seen(finding, _kind(finding, audit))
        noticeable = finding.noticeable and f"the audit could have noticed: {finding.noticeable}"
        facts = (first, told, noticeable)
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
        yield "\n".join(f"- {plain(line)}" for line in words)


def tables_and_figures(audited: Audited, most: int = MAX_ROWS) -> Iterator[str]:
    """The first rows of each table, and the figures, with their captions."""
    for name, table in audited.tables.items():
        if len(table):
            more = f": the first {most} of {len(table):,} rows of tables/{name}.csv" if len(table) > most else ""
            yield f"## {plain(_capital(name.replace('_', ' ')))}{plain(more)}"
            yield markdown_table([str(column) for column in table.columns], _cells(table.head(most)))
    yield from figures_section(audited.subject, audited.captions)


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


# -- tables of a summary -------------------------------------------------------------------------------------------------


def numbers(finding: Finding) -> Iterator[Estimate]:
    """Every estimate of a finding's trials, that among them on which its outcome rests."""
    if finding.found is None:
        return
    name = finding.estimator or (SEEN if finding.strength is Strength.CERTAIN else NAMES[finding.strength])
    first = Estimate(name, finding.measure, max(finding.found, 0.0), finding.strength)
    told = any(replace(each, estimator=name) == first for each in finding.estimates)  # it is one of them, by its name
    yield from () if told else (first,)
    yield from finding.estimates


def share(finding: Finding) -> float | None:
    """Found over claimed; None: that means nothing here."""
    if finding.measure not in FRACTIONS or not finding.claimed or finding.found is None:
        return None
    return finding.found / finding.claimed if finding.strength in RIGOROUS else None


def losses(audit: Audit) -> ShownTable | None:
    """Of each claimed epsilon or mu what every estimate found, the greatest of each kind; None: none is claimed."""
    claims = _claims(audit)
    attacks = [(_worst(findings), [each for one in findings for each in numbers(one)]) for findings in claims]
    names = list(dict.fromkeys(_family(each) for _, made in attacks for each in made))
    rows = [
        (
            _outcome(one),
            _kind_and_state(audit, one),
            _subject_of(one, findings),
            _claimed(one),
            *_columns(one, made, names),
            _percent(share(one)),
        )
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


def _subject_of(worst: Finding, findings: Sequence[Finding]) -> str:
    """What was, and by which of several attacks most was found."""
    attacks = {(each.attack, each.effort) for each in findings}
    return worst.subject if len(attacks) == 1 else f"{worst.subject}; most of {len(attacks)} attacks: {worst.attack}"


def reported_numbers(audit: Audit) -> ShownTable | None:
    """Numbers of which nothing is claimed, of areas the strongest; None: there are none."""
    alone = reported(audit)
    kept = [*strongest(alone), *(each for each in alone if each.measure != AREA)]
    rows = [(_kind_and_state(audit, each), each.subject, f"{each.measure} {number(each.found or 0.0)}") for each in kept]
    return (("audit", "audited", "found"), rows) if rows else None


def other_claims(audit: Audit) -> ShownTable | None:
    """The other claims; None: there are none."""
    tested = [each for each in audit.findings if not _is_loss(each) and each.outcome is not Outcome.REPORTED]
    findings = _ordered(tested)
    rows = [
        (_outcome(each), _kind_and_state(audit, each), each.subject, each.claim or "-", *_found(each)) for each in findings
    ]
    return (OTHERS, rows) if rows else None


def audits(audit: Audit) -> ShownTable:
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


def claims_table(audit: Audit) -> pd.DataFrame:
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


def _family(each: Estimate) -> str:
    """An estimate's name without who sees what; that of another measure says which."""
    return each.estimator.split(",")[0]


def _columns(finding: Finding, made: Sequence[Estimate], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        here = [each for each in made if _family(each) == name]
        best = max(here, key=lambda each: each.found, default=None)
        yield "-" if best is None else _bound(best, finding)


def _bound(each: Estimate, finding: Finding) -> str:
    sign, same = "≈" if SIGNS[each.strength] == ABOUT else "≥", each.measure == finding.measure
    return f"{'' if same else f'{each.measure} '}{sign} {least(each.found, finding.claimed if same else None)}"


def _outcome(finding: Finding) -> str:
    word = finding.outcome.value
    return Markdown(f"**{word}**") if finding.outcome in (Outcome.VIOLATED, Outcome.UNTESTED) else word


def _kind_and_state(audit: Audit, finding: Finding) -> str:
    part = audit.parts[(finding.part or 1) - 1]
    return part.kind if part.current else f"{part.kind} (earlier state)"


def _claimed(finding: Finding) -> str:
    delta = f", delta {number(finding.delta)}" if finding.delta else ""
    return f"{finding.measure} {number(finding.claimed or 0.0)}{delta}"


def _found(finding: Finding) -> tuple[str, str]:
    return ("-", "-") if finding.found is None else (number(finding.found), finding.measure)


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.0f} %"
