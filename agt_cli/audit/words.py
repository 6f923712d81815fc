"""What a finding says, in the words of somebody who has to answer for it; no word of these reads as a proof.

A number that was found is cut off towards less and a limit towards more, so that what stands on a page holds.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import product

from agt.audit.findings import LOWER, Audit, Finding, Outcome, Strength
from agt.audit.success import advantage, gaussian_advantage, posterior
from agt.audit.written import least, number

PASSED = "let pass"
PRIORS = (0.5, 0.01)
AREA = "AUC"
FAR = 2  # times the claim: an audit that could have noticed only more says little
FEW = 3  # estimates beside the first
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


def headline(audit: Audit) -> str:
    """The verdict, in one line."""
    tested = [finding for finding in audit.findings if finding.outcome in TESTED]
    wrong, untested = len(audit.violations), sum(finding.outcome is Outcome.UNTESTED for finding in audit.findings)
    weak = _weak(tested)
    rest = "".join(
        [f"; {many(untested, 'attack')} not made" if untested else "", *(f"; {each}" for each in _reported(audit))]
    )
    if audit.kind == "selftest":
        return _of_itself(tested)
    if wrong:
        return f"claims VIOLATED, by {wrong} of {many(len(tested), 'attack')}{rest}"
    if not tested:
        return f"no claim was tested{rest}"
    return f"no claim contradicted by {many(len(tested), 'attack')}: that is no proof{weak}{rest}"


def _weak(tested: list[Finding]) -> str:
    """Where draws could have told only a far greater loss than is claimed, that it says little; empty: they could more."""
    known = [each for each in tested if each.noticed is not None and each.claimed]
    weak = [each for each in known if (each.noticed or 0.0) > FAR * (each.claimed or 0.0)]
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


def _of_itself(tested: list[Finding]) -> str:
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


def others(finding: Finding) -> Iterator[str]:
    """The same of other estimates of its trials, where they are few; of many there is a table."""
    more = [each for each in finding.estimates if each.estimator != finding.estimator]
    for each in more if len(more) <= FEW else ():
        measure = "" if each.measure == finding.measure else f"{each.measure} "
        yield f"{measure}{SIGNS[each.strength]} {least(each.found)} ({each.estimator})"


def legend(audit: Audit) -> Iterator[str]:
    """What the numbers mean that were found, each meaning once."""
    strengths = {finding.strength for finding in audit.findings if finding.found is not None}
    strengths |= {
        each.strength for finding in audit.findings for each in finding.estimates if len(finding.estimates) <= FEW + 1
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
            f"{percent(0.5 + most / 2, up=True)} of the time; {_told(most)}"
        )
    delta = finding.delta or 0.0
    but = f", but for a chance of {number(delta)} in which nothing is promised" if delta else ""
    eps = f"epsilon = {number(claimed)}" + (f", delta = {number(delta)}" if delta else "")
    return f"{eps}: {_surer(claimed, question, True)}{but}; {_told(advantage(claimed, delta))}"


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


def _told(most: float) -> str:
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
