"""The account of an erasure on one page, in the words of a data-protection officer; and the same in a few lines."""

from collections.abc import Iterator, Sequence

from agt.facts import Standing
from agt.unlearning.account import Account, Earlier, Place
from agt_cli.report.markdown import Markdown, markdown_table, plain

SHOWN = 8  # earlier answers that are named one by one; the void ones first
PLACES = ("where", "files", "traces", "what was seen")
METHODS = {
    "certificate": "noted: only what is stable without them is answered",
    "newton": "certified removal by a Newton step",
    "sisa": "training again whatever part of the ensemble had seen them",
    "retrain": "training again without them",
}


def headline(account: Account) -> str:
    """What happened, in one line."""
    asked, done = account.asked, account.done
    people = f"{_many(asked.people, 'person', 'people')} asked" + (
        f", and {asked.pending} had asked before" if asked.pending else ""
    )
    if account.waiting is not None:
        pending = _many(account.waiting.people, "person", "people")
        return f"{people}: noted; {pending} pending in all, and nothing is removed yet"
    return f"{people}: {_many(done.records, 'record', 'records')} removed from the run, by {METHODS[done.method]}"


def promised(account: Account) -> str:
    """What is guaranteed, in one line."""
    given = account.guaranteed
    what = (
        "exact"
        if given.exact
        else f"epsilon = {given.eps:.6g}, delta = {given.delta:.3g}, against a model that never saw them"
    )
    void = sum(assumption.standing is Standing.VOID for assumption in given.assumptions)
    rests = f"; {_many(void, 'assumption does', 'assumptions do')} NOT hold" if void else ""
    whom = (
        "also for requests chosen after looking" if given.requests == "adaptive" else "for requests chosen without looking"
    )
    claimed = "" if account.promise.proved else "NOT PROVED; as published: "
    return f"{claimed}{what}, {whom}{rests}"


def cost(account: Account) -> str:
    """Seconds, beside those of training."""
    done = account.done
    if done.training is None or not account.updated:
        return f"{done.seconds:.3g} s"
    times = f", {done.training / done.seconds:.3g} times as long" if done.seconds > 0 else ""
    return f"{done.seconds:.3g} s; training the run took {done.training:.3g} s{times}"


def left(account: Account) -> str:
    """The removal budget, in one line; empty: there is none."""
    if account.budget is None:
        return ""
    budget = account.budget.allowance
    return f"{budget.left:.4g} of {budget.total:.4g} left ({budget.unit})"


def standing(account: Account) -> str:
    """Of earlier answers, in one line."""
    void = sum(not earlier.stands for earlier in account.earlier)
    if not account.earlier:
        return "none was found beside the run"
    return f"{len(account.earlier) - void} stand, {void} void"


def traces(account: Account) -> str:
    """Of the search, in one line."""
    sweep = account.sweep
    if sweep is None:
        return "not looked for: nothing is removed yet" if not account.updated else "not looked for"
    files, places = sum(place.files for place in sweep.places), _many(len(sweep.places), "place", "places")
    return f"{sweep.found or 'none'} found in {_many(files, 'file', 'files')} of {places}"


def lines(account: Account) -> Iterator[str]:
    """For the console."""
    yield headline(account)
    yield f"guaranteed: {promised(account)}"
    yield f"  {account.guaranteed.words[0]}"
    yield from (f"  {stands}: {words}" for words, stands in _facts(account) if stands != Standing.PROVED)
    yield f"took: {cost(account)}"
    if account.budget is not None:
        yield f"removal budget: {left(account)}"
    yield from (f"  {line}" for line in account.done.words)
    yield from _waiting(account)
    yield f"earlier answers: {standing(account)}"
    yield from (f"  void: {earlier.name}: {earlier.why}" for earlier in _named(account) if not earlier.stands)
    yield f"traces: {traces(account)}"
    if account.sweep is not None:
        yield from (
            f"  FOUND {place.found} in {place.place}: {place.words}" for place in account.sweep.places if place.found
        )
    yield f"state: {account.state.before[:19]}... -> {account.state.after[:19]}...; request log {account.state.log[:24]}..."


def markdown(account: Account) -> str:
    """report.md of an erasure: one page."""
    given, state, asked = account.guaranteed, account.state, account.asked
    summary = [
        ("asked", f"{asked.time[:19].replace('T', ' ')} UTC, by {asked.by}; {_many(asked.records, 'record', 'records')}"),
        ("guarantee", promised(account)),
        ("took", cost(account)),
        ("removal budget", left(account) or "this method needs none"),
        ("earlier answers", standing(account)),
        ("traces", traces(account)),
    ]
    parts = [
        f"# Erasure: {plain(state.run)}",
        f"{plain(headline(account))}.",
        markdown_table(("", ""), summary),
        "## What was done",
        _bullets([*account.done.words, *_waiting(account)]),
        "## What holds",
        _bullets(given.words),
        *([_table_of_facts(account)] if given.assumptions else []),
        "If requests were chosen after looking at what the model gave out:",
        _bullets(given.adaptive),
        "## What was answered before",
        *_answers(account),
        "## What is left of them",
        *_swept(account),
        "## What this account does not show",
        _bullets(account.outside),
        "## To check it",
        "`agt verify` of this folder compares it with the run and its request log. Keep this folder's digest elsewhere.",
        _bullets((f"before {state.before}", f"after {state.after}", f"entry {state.entry} of the log up to {state.log}")),
    ]
    return "\n\n".join(parts) + "\n"


def _waiting(account: Account) -> Iterator[str]:
    waiting = account.waiting
    if waiting is not None:
        rest = (
            f"only queries whose stable distance is at least {waiting.distance} are answered, the others abstain"
            if waiting.distance is not None
            else "no query is answered"
        )
        yield f"Until the next update {rest}: agt unlearn run={account.state.run} carries it out."
    if account.abstained is not None:
        yield f"While requests were pending, {_many(account.abstained, 'query', 'queries')} abstained."


def _table_of_facts(account: Account) -> str:
    return markdown_table(("it rests on", "which is"), [(w, Markdown(f"**{stands}**")) for w, stands in _facts(account)])


def _facts(account: Account) -> Iterator[tuple[str, str]]:
    """What the guarantee rests on, and how it stands."""
    for fact in account.guaranteed.assumptions:
        yield f"{fact.why}; broken if {fact.broken_by}" if fact.broken_by else fact.why, str(fact.standing)


def _answers(account: Account) -> Iterator[str]:
    if not account.earlier:
        yield "Nothing was found beside the run that was made from an earlier state. What lies elsewhere was not looked at."
        return
    named = _named(account)
    yield markdown_table(
        ("made before", "now", "why"),
        [(each.name, Markdown(f"**{'stands' if each.stands else 'void'}**"), each.why) for each in named],
    )
    if len(named) < len(account.earlier):
        yield f"And {len(account.earlier) - len(named)} more: account.json names them all."


def _swept(account: Account) -> Iterator[str]:
    sweep = account.sweep
    if sweep is None:
        yield plain(f"Traces were {traces(account)}.")
        return
    yield markdown_table(PLACES, [_row(place) for place in sweep.places])
    if sweep.unlooked:
        yield "Of this search:"
        yield _bullets(sweep.unlooked)


def _row(place: Place) -> tuple[str, str, str, str]:
    return place.place, str(place.files), str(place.found), place.words


def _named(account: Account) -> Sequence[Earlier]:
    """The void ones first."""
    return sorted(account.earlier, key=lambda earlier: earlier.stands)[:SHOWN]


def _bullets(words: Sequence[str]) -> str:
    return "\n".join(f"- {plain(line)}" for line in words)


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
