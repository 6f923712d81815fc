"""The account of an erasure as its owner reads it: one page, and a few lines for the console."""

from collections.abc import Iterator, Sequence

from agt.errors import counted, few
from agt.templates import upward
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark, sentences
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.unlearn.account import Asked, Earlier, ErasureReport, Place, TraceSearch, Waiting

NAMED_ANSWERS = 8  # earlier answers that are named one by one; the void ones first
BUDGET_UNIT = "as a bound on the gradient norm that the removals and the optimiser leave"
METHOD_WORDS = {
    "newton": "a Newton step (certified removal)",
    "sisa": "training those members of the ensemble again that had used the records",
    "retrain": "training again without these records",
}
REQUESTS = {
    "oblivious": "but NOT for requests that were chosen after looking at outputs of the model",
    "adaptive for fixed keys": (
        "for the seed and keys of this run, whoever chose the requests; but if they were "
        "chosen after looking at outputs, the result is NOT distributed as with new keys "
        "(fresh=true)"
    ),
    "adaptive": "for requests chosen by anyone, even after looking at outputs of the model",
}


def headline(account: ErasureReport) -> str:
    """Return in one line what happened."""
    people = _who_asked(account.asked)
    if account.waiting is not None:
        pending = counted(account.waiting.people, "person", "people")
        return (
            f"{people}; their requests were noted (now pending: {pending}), and nothing has "
            "been removed yet"
        )
    removal = account.removal
    method = removal.promise.method
    how = METHOD_WORDS.get(method, f"the certificate's own method ({method})")
    return f"{people}; {counted(removal.records, 'record')} removed from the run by {how}"


def _who_asked(asked: Asked) -> str:
    """Return how many people asked in this command, and how many had asked before it."""
    parts = []
    if asked.people or not asked.pending:
        now = f"{counted(asked.people + asked.untrained, 'person', 'people')} requested erasure"
        if asked.untrained:
            now += (
                f" ({asked.untrained} of them only with test records, which training did not use)"
            )
        parts.append(now)
    if asked.pending:
        parts.append(f"{counted(asked.pending, 'person', 'people')} had already requested erasure")
    return ", and ".join(parts)


def summary(account: ErasureReport) -> dict[str, str]:
    """Return what an account says, a line for each of its parts."""
    asked = account.asked
    time = f"{asked.time[:19].replace('T', ' ')} UTC"
    rows = {
        "asked": f"{time}, requested by {asked.by}, {counted(asked.records, 'record')}",
        "guaranteed": _guaranteed(account.removal.promise),
        "took": f"{account.removal.seconds:.3g} s",
    }
    if account.updated and account.training is not None:
        rows["took"] += f"; training the run took {account.training:.3g} s"
    if account.waiting is not None:
        rows["until the next update"] = (
            f"(agt unlearn run=...) {_answered_meanwhile(account.waiting)}"
        )
    if account.abstained or (account.abstained is not None and account.updated):
        rows["queries not answered while requests were pending"] = counted(
            account.abstained, "query", "queries"
        )
    budget = account.removal.budget
    if budget is not None:
        left = f"{budget.total - budget.spent:.4g} of {budget.total:.4g} left"
        rows["removal budget"] = f"{left} ({BUDGET_UNIT})"
    rows["earlier answers"] = _earlier_counts(account.earlier)
    if account.sweep is not None:
        rows["traces"] = _traces(account.sweep)
    elif account.updated:
        rows["traces"] = "not looked for"
    else:
        rows["traces"] = "not searched, because nothing has been removed yet"
    return rows


def _guaranteed(promise: Promise) -> str:
    """Return what is promised, for which requests, and how many of its assumptions do not hold."""
    promised = "exact"
    if not promise.exact:
        bounds = f"epsilon = {upward(promise.eps)}, delta = {promise.delta:.3g}"
        promised = f"{bounds} compared with a model that was never trained on the erased records"
    if promise.within is not None:
        promised += f" up to a distance of {upward(promise.within)} (l2, weights)"
    promised += f", {REQUESTS[promise.requests]}"
    void = sum(not fact.held for fact in promise.assumptions)
    if not void:
        return promised
    not_held = counted(void, "assumption does", "assumptions do")
    return f"NOT PROVED here. The paper claims: {promised}; but {not_held} NOT hold"


def _answered_meanwhile(waiting: Waiting) -> str:
    """Return which queries are answered while requests are pending."""
    if waiting.distance is None:
        return "no query is answered"
    return (
        f"only queries whose stable distance is at least {waiting.distance} are answered; "
        "the others are not"
    )


def _earlier_counts(earlier: Sequence[Earlier]) -> str:
    """Return how many earlier answers may be relied on; one folder may hold some of both kinds."""
    standing = {answer.name for answer in earlier if answer.stands}
    void = {answer.name for answer in earlier if not answer.stands}
    counts = {
        "stand": len(standing - void),
        "void": len(void - standing),
        "stand in part": len(standing & void),
    }
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    return ", ".join(parts) if parts else "no earlier answers were found next to the run"


def _traces(search: TraceSearch) -> str:
    """Return how many traces were found, in which places, and what could not be searched."""
    found = sum(place.found for place in search.places)
    places = list[Remark]()
    for place in search.places:
        if place.place not in places:
            places.append(place.place)
    words = f"{found if found else 'none'} found in {few(sentences(tuple(places)))}"
    for remark in search.unlooked:
        if remark.code == "files_beside_runs":
            words += f"; {remark.sentence}"
    return words


def account_lines(account: ErasureReport) -> Iterator[str]:
    """Yield the summary for the console, a line each; the page has the rest."""
    yield headline(account)
    for name, text in summary(account).items():
        yield f"{name}: {text}"
    state = account.state
    digests = f"{state.before[:19]}... -> {state.after[:19]}..."
    yield f"state: {digests}; request log {state.log[:24]}..."


def exception_lines(account: ErasureReport) -> Iterator[str]:
    """Yield what is not as it should be, for the console, indented."""
    for fact in account.removal.promise.assumptions:
        if not fact.held:
            yield f"  - ASSUMPTION NOT MET: {fact.sentence}"
    for earlier in _named(account):
        if not earlier.stands:
            yield f"  - earlier result that no longer holds: {earlier.name}: {earlier.why}"
    for place in _places(account):
        if place.found:
            yield f"  - FOUND {place.found} in {place.place.sentence}: {_found(place)}"


def account_markdown(account: ErasureReport) -> str:
    """Return report.md of an erasure: one page."""
    state = account.state
    removal = account.removal
    return document(
        f"# Erasure: {plain(state.run)}",
        f"**{plain(headline(account))}.**",
        [f"{name}: {text}" for name, text in summary(account).items()],
        "## What was done",
        removal.sentences,
        "## What holds",
        removal.promise.sentences,
        _assumptions_table(removal.promise),
        "## Answers given earlier",
        *_earlier_blocks(account),
        "## What remains of the erased records",
        *_search_blocks(account),
        "## What this account does not show",
        sentences(account.outside),
        "## To check it",
        "`agt verify` of this folder compares it with the run and its request log. "
        "`sha256sum manifest.json` here prints the digest of this folder; if you store it "
        "elsewhere, it reveals a later change.",
        (
            f"before {state.before}",
            f"after {state.after}",
            f"entry {state.entry} of the log up to {state.log}",
        ),
    )


def _assumptions_table(promise: Promise) -> str:
    if not promise.assumptions:
        return ""
    rows = [(fact.words, _strong(fact.standing)) for fact in promise.assumptions]
    return markdown_table(("it rests on", "which is"), rows)


def _earlier_blocks(account: ErasureReport) -> Iterator[str]:
    """Yield the table of earlier answers, and how many it leaves out."""
    rows = []
    for answer in _named(account):
        standing = _strong("stands" if answer.stands else "void")
        rows.append((answer.name, standing, answer.why))
    if not rows:
        yield "No earlier answers were found next to the run."
        return
    yield markdown_table(("made before", "now", "why"), rows)
    if len(account.earlier) > len(rows):
        yield f"And {len(account.earlier) - len(rows)} more, all listed in account.json."


def _search_blocks(account: ErasureReport) -> Iterator[str | Sequence[str]]:
    """Yield the table of what was found where, and what was not looked at."""
    rows = []
    for place in _places(account):
        found = _strong(place.found)
        rows.append((place.place.sentence, str(place.files), found, _found(place)))
    if rows:
        yield markdown_table(("where", "looked at", "found", "what was seen"), rows)
    else:
        yield "Nobody searched for traces of the erased records."
    if account.sweep is not None:
        yield (
            "Nothing was deleted. The owner decides whether these files may stay. Remarks on "
            "what was not searched:"
        )
        yield sentences(account.sweep.unlooked)


def _strong(value: object) -> Markdown:
    return Markdown(f"**{value}**")


def _places(account: ErasureReport) -> tuple[Place, ...]:
    return account.sweep.places if account.sweep is not None else ()


def _found(place: Place) -> str:
    return "; ".join(sentences(place.remarks))


def _named(account: ErasureReport) -> Sequence[Earlier]:
    """Return the earlier answers that are named one by one, the void ones first."""
    return sorted(account.earlier, key=lambda earlier: earlier.stands)[:NAMED_ANSWERS]
