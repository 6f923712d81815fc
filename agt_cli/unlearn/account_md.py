"""The account of an erasure as its owner reads it: one page, and a few lines for the console."""

from collections.abc import Iterator, Sequence

from agt.errors import counted, few
from agt.templates import upward
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark, sentences
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.unlearn.account import Asked, Earlier, ErasureReport, Place, TraceSearch, Waiting

NAMED_ANSWERS = 8  # earlier answers that are named one by one; the void ones first
BUDGET_UNIT = (
    "the removal budget limits the norm of the loss gradient that is left after optimisation and "
    "removals"
)
METHOD_WORDS = {
    "newton": "a Newton step (certified removal)",
    "sisa": "retraining only those members of the ensemble that had used the records",
    "retrain": "retraining the model without the records",
}
REQUESTS = {
    "oblivious": (
        "This guarantee does NOT hold for erasure requests that were chosen after looking at "
        "outputs of the model"
    ),
    "adaptive for fixed keys": (
        "This guarantee holds for the seed and keys of this run, whoever chose the erasure "
        "requests. If the requests were chosen after looking at outputs of the model, the updated "
        "model does NOT have the distribution of a model trained with new keys (new_seeds=true)"
    ),
    "adaptive": (
        "This guarantee holds for erasure requests chosen by anyone, even after looking at "
        "outputs of the model"
    ),
}


def headline(account: ErasureReport) -> str:
    """Return in one line what happened."""
    people = _who_asked(account.asked)
    if account.waiting is not None:
        pending = counted(account.waiting.people, "person", "people")
        return (
            f"{people}; the requests were noted, but nothing has been removed yet (with earlier "
            f"requests, those of {pending} are now pending)"
        )
    removal = account.removal
    method = removal.promise.method
    how = METHOD_WORDS.get(method, f"the certificate's own method ({method})")
    records = counted(removal.records, "record")
    return f"{people}; {records} removed from the run by {how}"


def _who_asked(asked: Asked) -> str:
    """Return how many people asked in this command, and how many had asked before it."""
    parts = []
    if asked.people or not asked.pending:
        people = counted(asked.people + asked.untrained, "person", "people")
        now = f"{people} requested erasure"
        if asked.untrained:
            now = (
                f"{now} (for {asked.untrained} of them, the data has only test records, which "
                "training did not use)"
            )
        parts.append(now)
    if asked.pending:
        people_before = counted(asked.pending, "person", "people")
        parts.append(f"{people_before} had requested erasure earlier")
    return ", and ".join(parts)


def summary(account: ErasureReport) -> dict[str, str]:
    """Return what an account says, a line for each of its parts."""
    asked = account.asked
    time = f"{asked.time[:19].replace('T', ' ')} UTC"
    records = counted(asked.records, "record")
    rows = {
        "requested": f"{time}, for {records} (the request gave the {asked.by} of each record)",
        "guaranteed": _guaranteed(account.removal.promise),
        "duration": f"{account.removal.seconds:.3g} s",
    }
    if account.updated and account.training is not None:
        seconds = f"{account.training:.3g}"
        rows["duration"] += f"; the last training of this run took {seconds} s"
    facts = account.removal.facts
    if "test_answers_changed" in facts:
        queries = counted(int(facts["test_answers"]), "test record")
        changed = int(facts["test_answers_changed"])
        rows["changed answers"] = f"the updated model answers {changed:,} of {queries} differently"
    if account.waiting is not None:
        rows["until the next update"] = (
            f"(agt unlearn run=...) {_answered_meanwhile(account.waiting)}"
        )
    if account.abstained or (account.abstained is not None and account.updated):
        rows["queries left unanswered until pending erasure requests were carried out"] = counted(
            account.abstained, "query", "queries"
        )
    budget = account.removal.budget
    if budget is not None:
        left = f"{budget.total - budget.spent:.4g}"
        rows["removal budget"] = f"{left} of {budget.total:.4g} left ({BUDGET_UNIT})"
    rows["earlier answers"] = _earlier_counts(account.earlier)
    if account.sweep is not None:
        rows["traces"] = _traces(account.sweep)
    elif account.updated:
        rows["traces"] = "not searched for"
    else:
        rows["traces"] = (
            "agt did not search for traces, because nothing has been removed from the run yet"
        )
    return rows


def _guaranteed(promise: Promise) -> str:
    """Return what is promised, for which requests, and how many of its assumptions do not hold."""
    promised = "exact"
    if not promise.exact:
        epsilon = upward(promise.eps)
        promised = (
            f"epsilon = {epsilon}, delta = {promise.delta:.3g}, compared with a model that "
            "was never trained on the erased records"
        )
    if promise.within is not None:
        distance = upward(promise.within)
        promised = (
            f"{promised}, apart from a difference of the weights by an l2 distance of up to "
            f"{distance}"
        )
    promised += f". {REQUESTS[promise.requests]}"
    void = sum(not fact.held for fact in promise.assumptions)
    if not void:
        return promised
    not_met = counted(void, "assumption is not met", "assumptions are not met")
    return (
        f"NOT PROVED by agt, because {not_met}. The paper about this method claims this "
        f"guarantee: {promised}"
    )


def _answered_meanwhile(waiting: Waiting) -> str:
    """Return which queries are answered while requests are pending."""
    if waiting.distance is None:
        return "no query is answered"
    return f"only queries whose stable distance is at least {waiting.distance} are answered"


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
    return (
        ", ".join(parts)
        if parts
        else ("no earlier answers were found in the folders next to the run")
    )


def _traces(search: TraceSearch) -> str:
    """Return how many traces were found, in which places, and what could not be searched."""
    found = sum(place.found for place in search.places)
    places = list[Remark]()
    for place in search.places:
        if place.place not in places:
            places.append(place.place)
    count = found if found else "none"
    searched = few(sentences(tuple(places)))
    words = f"{count} found in {searched}"
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
    before = state.before[:19]
    after = state.after[:19]
    log = state.log[:24]
    yield (
        f"digest of the run: {before}... before the erasure, {after}... after it; last entry of "
        f"the request log: {log}..."
    )


def exception_lines(account: ErasureReport) -> Iterator[str]:
    """Yield what is not as it should be, for the console, indented."""
    for fact in account.removal.promise.assumptions:
        if not fact.held:
            yield f"  - ASSUMPTION NOT MET: {fact.sentence}"
    for earlier in _named(account):
        if not earlier.stands:
            yield f"  - earlier result {earlier.name} no longer holds: {earlier.why}"
    for place in _places(account):
        if place.found:
            traces = counted(place.found, "trace")
            remarks = _found(place)
            yield f"  - FOUND {traces} in {place.place.sentence}: {remarks}"


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
        "To compare this folder with the run and its request log, type `agt verify` with the "
        "path of this folder. To be able to detect later whether this folder was changed, "
        "store elsewhere the digest that `sha256sum manifest.json` prints in this folder.",
        (
            f"digest of the run before the erasure: {state.before}",
            f"digest of the run after the erasure: {state.after}",
            f"this account is about entry {state.entry} of the request log; the last entry is "
            f"{state.log}",
        ),
    )


def _assumptions_table(promise: Promise) -> str:
    if not promise.assumptions:
        return ""
    rows = [(fact.words, _strong(fact.standing)) for fact in promise.assumptions]
    return markdown_table(("assumption", "status"), rows)


def _earlier_blocks(account: ErasureReport) -> Iterator[str]:
    """Yield the table of earlier answers, and how many it leaves out."""
    rows = []
    for answer in _named(account):
        standing = _strong("stands" if answer.stands else "void")
        rows.append((answer.name, standing, answer.why))
    if not rows:
        yield "No earlier answers were found in the folders next to the run."
        return
    yield markdown_table(("made before", "now", "why"), rows)
    if len(account.earlier) > len(rows):
        answers = counted(len(account.earlier) - len(rows), "further answer")
        yield f"account.json also lists {answers}."


def _search_blocks(account: ErasureReport) -> Iterator[str | Sequence[str]]:
    """Yield the table of what was found where, and what was not looked at."""
    rows = []
    for place in _places(account):
        found = _strong(place.found)
        rows.append((place.place.sentence, str(place.files), found, _found(place)))
    if rows:
        yield markdown_table(("where", "looked at", "found", "what was seen"), rows)
    else:
        yield "agt did not search for traces of the erased records."
    if account.sweep is not None:
        yield (
            "agt does not delete the files in which it finds traces: their owner decides "
            "whether these files may stay. agt did not search in the following places:"
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
