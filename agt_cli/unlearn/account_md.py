"""The account of an erasure as its owner reads it: one page, and a few lines for the console."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agt.errors import counted, few
from agt.templates import upward
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import sentences
from agt_cli.report.markdown import Markdown, document, escape_markdown, markdown_table
from agt_cli.unlearn.account import Asked, Earlier, ErasureReport, Place, Waiting
from agt_cli.unlearn.account_tasks import open_tasks, runs_named_by

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


NEW_SEEDS = (
    "only if somebody may have chosen who requests erasure by answers of the model, or by its "
    "keys. Requests that people made for reasons of their own do not need it. It has to be given "
    "together with the request, and trains everything again"
)


def headline(account: ErasureReport) -> str:
    """Return in one line who requested erasure, and what was removed by which method."""
    people = _requesters(account.asked)
    if account.waiting is not None:
        pending = counted(account.waiting.people, "person", "people")
        return (
            f"{people}; the requests were noted, but nothing has been removed yet (with earlier "
            f"requests, those of {pending} are now pending)"
        )
    removal = account.removal
    method = removal.promise.method
    method_phrase = METHOD_WORDS.get(method, f"the certificate's own method ({method})")
    records = counted(removal.records, "record")
    return f"{people}; {records} removed from the run by {method_phrase}"


def _requesters(request: Asked) -> str:
    """Return a clause on how many people request erasure now, and how many did earlier."""
    parts = []
    if request.people_requested or not request.people_pending_before:
        people = counted(request.people_requested, "person", "people")
        requested_now = f"{people} requested erasure"
        if request.people_with_test_records_only:
            requested_now = (
                f"{requested_now} (for {request.people_with_test_records_only} of them, the data "
                "has only test records, which training did not use)"
            )
        parts.append(requested_now)
    if request.people_pending_before:
        people_before = counted(request.people_pending_before, "person", "people")
        parts.append(f"{people_before} had requested erasure earlier")
    return ", and ".join(parts)


def _requested(asked: Asked) -> str:
    """Return when the request was noted, and how many records it names."""
    time = f"{asked.time[:19].replace('T', ' ')} UTC"
    training = counted(asked.training_records, "training record")
    records = training
    if asked.test_records:
        test = counted(asked.test_records, "test record")
        records = f"{training} and {test}, which training did not use"
    unknown = ""
    if asked.ids_not_in_data:
        ids = counted(asked.ids_not_in_data, "further id")
        unknown = f"; {ids} of the request name no record of this run's data"
    return f"{time}, for {records} (by {asked.by}){unknown}"


@dataclass(frozen=True)
class SummaryRow:
    """A line of the summary of an account.

    Attributes:
        heading: what the line is about.
        text: what the account says of it.
        on_console: whether the console has the line, too; the page has all.
    """

    heading: str
    text: str
    on_console: bool = True


def summary(account: ErasureReport) -> list[SummaryRow]:
    """Return the lines of the summary of an account, in their order."""
    promise = account.removal.promise
    rows = [
        SummaryRow("requested", _requested(account.asked)),
        SummaryRow("guaranteed", guarantee_text(promise)),
    ]
    if account.updated and promise.requests == "adaptive for fixed keys":
        rows.append(SummaryRow("is new_seeds=true needed", NEW_SEEDS, on_console=False))
    rows.append(SummaryRow("duration", _duration(account), on_console=False))
    facts = account.removal.facts
    if "test_answers_changed" in facts:
        queries = counted(int(facts["test_answers"]), "test record")
        changed = int(facts["test_answers_changed"])
        answers = f"the updated model answers {changed:,} of {queries} differently"
        rows.append(SummaryRow("changed answers", answers))
    if account.waiting is not None:
        heading = "until the next update (agt unlearn run=...)"
        rows.append(SummaryRow(heading, _answered_meanwhile(account.waiting)))
    if account.abstained or (account.abstained is not None and account.updated):
        heading = "queries left unanswered until pending erasure requests were carried out"
        rows.append(SummaryRow(heading, counted(account.abstained, "query", "queries")))
    budget = account.removal.budget
    if budget is not None:
        remaining = f"{budget.total - budget.spent:.4g}"
        left = f"{remaining} of {budget.total:.4g} left ({BUDGET_UNIT})"
        rows.append(SummaryRow("removal budget", left))
    rows.append(SummaryRow("earlier answers", _earlier_counts(account.earlier)))
    rows.append(SummaryRow("traces", _describe_search(account)))
    return rows


def _duration(account: ErasureReport) -> str:
    """Return how long the removal took, and how long training did, if the run was updated."""
    removal = f"{account.removal.seconds:.3g} s"
    if not account.updated or account.training is None:
        return removal
    return f"{removal}; the last training of this run took {account.training:.3g} s"


def _answered_meanwhile(waiting: Waiting) -> str:
    """Return which queries are answered while requests are pending."""
    if waiting.distance is None:
        return "no query is answered"
    return f"only queries whose stable distance is at least {waiting.distance} are answered"


def guarantee_text(promise: Promise) -> str:
    """Return what is promised, for which requests, and how many of its assumptions do not hold."""
    guarantee = f"{_closeness_text(promise)}. {REQUESTS[promise.requests]}"
    void = sum(not fact.held for fact in promise.assumptions)
    if not void:
        return guarantee
    not_met = counted(void, "assumption is not met", "assumptions are not met")
    return (
        f"NOT PROVED by agt, because {not_met}. The paper about this method claims this "
        f"guarantee: {guarantee}"
    )


def _closeness_text(promise: Promise) -> str:
    """Return how close the model is to one that was trained without the erased records."""
    if not promise.exact:
        return (
            f"epsilon = {upward(promise.eps)}, delta = {promise.delta:.3g}, compared with a model "
            "that was never trained on the erased records"
        )
    if promise.within is None:
        return "exact"
    distance = upward(promise.within)
    return f"exact, apart from a difference of the weights by an l2 distance of up to {distance}"


def _earlier_counts(earlier: Sequence[Earlier]) -> str:
    """Return a clause on how many earlier results, and answers of them, are still valid."""
    if not earlier:
        return "no earlier answers were found in the folders next to the run"
    partly_valid = [result for result in earlier if result.answers_standing and result.answers_void]
    counts = {
        "stand": sum(not result.answers_void for result in earlier),
        "void": sum(not result.answers_standing for result in earlier),
    }
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    if partly_valid:
        standing = sum(result.answers_standing for result in partly_valid)
        void = sum(result.answers_void for result in partly_valid)
        parts.append(f"{len(partly_valid)} in part ({_answers(standing, void)})")
    results = counted(len(earlier), "earlier result")
    listed = ", ".join(parts)
    return f"{results}: {listed}"


def _standing(result: Earlier) -> str:
    """Return how many answers of an earlier result may be relied on."""
    if not result.answers_void:
        return "stands"
    if not result.answers_standing:
        return "void"
    return _answers(result.answers_standing, result.answers_void)


def _answers(standing: int, void: int) -> str:
    """Return a phrase on how many answers are still valid, and how many are void."""
    return f"{standing:,} of {standing + void:,} answers stand, {void:,} void"


def _describe_search(account: ErasureReport) -> str:
    """Return a text on the traces that were found in other runs, or why none were searched for.

    A trace is an erased record that another run was trained on, or an unfinished training.
    """
    search = account.sweep
    if search is None and account.updated:
        return "not searched for"
    if search is None:
        return "agt did not search for traces, because nothing has been removed from the run yet"
    clauses = [_found_in_runs(search.places), _unsearched_runs(search.places)]
    clauses += [remark.sentence for remark in search.unlooked if remark.code == "files_beside_runs"]
    return "; ".join(filter(None, clauses))


def _found_in_runs(places: Sequence[Place]) -> str:
    """Return a clause on the traces that were found in other training runs.

    Args:
        places: the folders in which runs were searched for.

    Returns:
        The clause; empty: no trace was found, but no run was searched either.
    """
    runs = sum(place.runs for place in places)
    searched = sum(place.searched for place in places)
    traces = sum(place.found for place in places)
    if not runs:
        return "no other training runs were found"
    if traces:
        return f"{traces} found in {_kinds_of_runs(places)}"
    if searched:
        return f"none found in {searched} of {runs} {_kinds_of_runs(places)}"
    return ""


def _unsearched_runs(places: Sequence[Place]) -> str:
    """Return a clause on the runs that were not searched for everything; empty: all were.

    Args:
        places: the folders in which runs were searched for.
    """
    runs = sum(place.runs for place in places)
    unsearched = sum(place.runs - place.searched for place in places)
    if not unsearched:
        return ""
    clause = f"{unsearched} of {runs} were NOT SEARCHED for all erased records"
    if not _found_in_runs(places):
        clause = (
            f"NOT SEARCHED: none of {runs} {_kinds_of_runs(places)} could be searched for all "
            "erased records"
        )
    of_other_tables = sum(len(runs_named_by(place, "of_other_tables")) for place in places)
    if of_other_tables:
        return f"{clause} ({of_other_tables} of them are of other tables)"
    return clause


def _kinds_of_runs(places: Sequence[Place]) -> str:
    """Return a phrase for the runs that were searched for in some folders."""
    return few(dict.fromkeys(place.place.sentence for place in places))


def account_lines(account: ErasureReport) -> Iterator[str]:
    """Yield the summary for the console, a line each; the page has the rest."""
    yield headline(account)
    for row in summary(account):
        if row.on_console:
            yield f"{row.heading}: {row.text}"


def exception_lines(account: ErasureReport) -> Iterator[str]:
    """Yield an indented line for the console for each assumption or earlier result that fails.

    What to do about traces in other runs is among ``open_tasks``.
    """
    for fact in account.removal.promise.assumptions:
        if not fact.held:
            yield f"  - ASSUMPTION NOT MET: {fact.sentence}"
    for earlier in _listed_results(account):
        if not earlier.answers_standing:
            yield f"  - earlier result {earlier.name} no longer holds: {earlier.why}"
        elif earlier.answers_void:
            yield f"  - earlier result {earlier.name}: {_standing(earlier)}"


def account_markdown(account: ErasureReport, folders: Sequence[str] = ("OUTPUT_DIR",)) -> str:
    """Return report.md of an erasure: one page.

    Args:
        account: the report of the erasure.
        folders: the folders of records that were searched, as a command line names them, in the
            order of the account's places.
    """
    tasks = open_tasks(account, folders)
    state = account.state
    removal = account.removal
    return document(
        f"# Erasure: {escape_markdown(state.run)}",
        f"**{escape_markdown(headline(account))}.**",
        [f"{row.heading}: {row.text}" for row in summary(account)],
        "## What was done",
        removal.sentences,
        "## What holds",
        removal.promise.sentences,
        _assumptions_table(removal.promise),
        "## Answers given earlier",
        *_earlier_blocks(account),
        "## What remains of the erased records",
        *_search_blocks(account),
        "## What is left to do",
        tasks if tasks else "Nothing that agt knows of.",
        "## What this account does not show",
        sentences(account.outside),
        "## To check it",
        "To compare this folder with the run and its request log, type `agt verify` with the "
        "path of this folder. To be able to detect later whether this folder was changed, "
        "store elsewhere the digest that `sha256sum manifest.json` prints in this folder. "
        "`agt verify` can no longer recompute the claims of releases that were made from the "
        "earlier state: keep the page that it wrote of them before the erasure.",
        (
            f"digest of the run before the erasure: {state.before}",
            f"digest of the run after the erasure: {state.after}",
            f"this account is about entry {state.entry} of the request log; the last entry is "
            f"{state.log}",
        ),
    )


def _assumptions_table(promise: Promise) -> str:
    """Return the table of a promise's assumptions, with their status; empty: there are none."""
    if not promise.assumptions:
        return ""
    rows = [(fact.words, _strong(fact.standing)) for fact in promise.assumptions]
    return markdown_table(("assumption", "status"), rows)


def _earlier_blocks(account: ErasureReport) -> Iterator[str]:
    """Yield the table of earlier answers, and how many it leaves out."""
    rows = [
        (answer.name, _strong(_standing(answer)), answer.why) for answer in _listed_results(account)
    ]
    if not rows:
        yield "No earlier answers were found in the folders next to the run."
        return
    yield markdown_table(("made before", "now", "why"), rows)
    if len(account.earlier) > len(rows):
        results = counted(len(account.earlier) - len(rows), "further result")
        yield f"account.json also lists {results}."


def _search_blocks(account: ErasureReport) -> Iterator[str | Sequence[str]]:
    """Yield the table of traces found in each folder, and the places that were not searched."""
    rows = []
    for place in account.places:
        trace_count: object = place.found
        if not place.found and place.searched == 0 and place.runs:
            trace_count = "not searched"
        counts = (str(place.runs), str(place.searched), _strong(trace_count))
        rows.append((place.place.sentence, *counts, _remarks_text(place)))
    if rows:
        columns = ("where", "runs", "searched for everything", "traces found", "what was seen")
        yield markdown_table(columns, rows)
    else:
        yield "agt did not search for traces of the erased records."
    if account.sweep is not None:
        yield (
            "agt does not delete the files in which it finds traces: their owner decides "
            "whether these files may stay. agt did not search in the following places:"
        )
        yield sentences(account.sweep.unlooked)


def _strong(value: object) -> Markdown:
    """Return a value in bold type."""
    return Markdown(f"**{value}**")


def _remarks_text(place: Place) -> str:
    """Return the remarks on a searched folder (traces, and what was not searched) as text."""
    return "; ".join(sentences(place.remarks))


def _listed_results(account: ErasureReport) -> Sequence[Earlier]:
    """Return at most ``NAMED_ANSWERS`` earlier results, which the page lists; void ones first."""
    return sorted(account.earlier, key=lambda earlier: not earlier.answers_void)[:NAMED_ANSWERS]
