"""The account of an erasure as its owner reads it: one page, and a few lines for the console."""

from collections.abc import Iterator, Sequence

from agt.errors import counted, few
from agt.numeric import upward
from agt.unlearning.sentences import Remark, sentences
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.unlearn.account import Earlier, ErasureReport, Place

SHOWN = 8  # earlier answers that are named one by one; the void ones first
BUDGET_UNIT = "bound on the norm of the gradient that removals and the optimiser left"
METHOD_WORDS = {
    "newton": "certified removal (a Newton step)",
    "sisa": "training again whatever part of the ensemble had seen them",
    "retrain": "training again without them",
}
REQUESTS = {
    "oblivious": "NOT where requests were chosen after looking at what the model gave out",
    "adaptive for fixed keys": (
        "for this run's seed and keys, whoever chose the requests; where they were chosen after looking, NOT as with keys "
        "drawn anew (fresh=true)"
    ),
    "adaptive": "whoever chose the requests, also after looking at what the model gave out",
}


def headline(account: ErasureReport) -> str:
    """What happened, in one line."""
    asked, removal = account.asked, account.removal
    now = (
        f"{counted(asked.people + asked.untrained, 'person', 'people')} asked" if asked.people or not asked.pending else ""
    )
    if asked.untrained:
        now += f" ({asked.untrained} of them in test records alone, on which nothing was trained)"
    before = f"{counted(asked.pending, 'person', 'people')} had asked before" if asked.pending else ""
    people = ", and ".join(filter(None, (now, before)))
    if account.waiting is not None:
        pending = counted(account.waiting.people, "person", "people")
        return f"{people}: noted; {pending} pending in all, and nothing is removed yet"
    method = removal.promise.method
    how = METHOD_WORDS.get(method, f"the certificate's own method ({method})")
    return f"{people}: {counted(removal.records, 'record')} removed from the run, by {how}"


def summary(account: ErasureReport) -> dict[str, str]:
    """What an account says, in a line each."""
    asked, removal, sweep = account.asked, account.removal, account.sweep
    promise, budget = removal.promise, removal.budget
    rows = {"asked": f"{asked.time[:19].replace('T', ' ')} UTC, by {asked.by}; {counted(asked.records, 'record')}"}
    what = (
        "exact"
        if promise.exact
        else f"epsilon = {upward(promise.eps)}, delta = {promise.delta:.3g} from never having seen them"
    )
    if promise.within is not None:
        what += f" up to a distance of {upward(promise.within)} (l2, weights)"
    void = sum(not fact.held for fact in promise.assumptions)
    rests = f"; {counted(void, 'assumption does', 'assumptions do')} NOT hold" if void else ""
    rows["guaranteed"] = f"{'NOT PROVED; as published: ' if void else ''}{what}, {REQUESTS[promise.requests]}{rests}"
    training = ""
    if account.updated and account.training is not None:
        training = f"; training the run took {account.training:.3g} s"
    rows["took"] = f"{removal.seconds:.3g} s{training}"
    if account.waiting is not None:
        distance = account.waiting.distance
        rest = f"only queries whose stable distance is at least {distance} are answered, the others abstain"
        rows["until the next update"] = f"(agt unlearn run=...) {rest if distance else 'no query is answered'}"
    if account.abstained or (account.abstained is not None and account.updated):
        rows["abstained while requests were pending"] = counted(account.abstained, "query", "queries")
    if budget is not None:
        left = budget.total - budget.spent
        rows["removal budget"] = f"{left:.4g} of {budget.total:.4g} left ({BUDGET_UNIT})"
    stand, void_ones = ({each.name for each in account.earlier if each.stands is stands} for stands in (True, False))
    counts = {"stand": stand - void_ones, "void": void_ones - stand, "stand in part": stand & void_ones}
    told = ", ".join(f"{len(names)} {words}" for words, names in counts.items() if names)
    rows["earlier answers"] = told or "none was found beside the run"
    rows["traces"] = "not looked for" if account.updated else "not looked for, as nothing is removed yet"
    if sweep is not None:
        found = sum(place.found for place in sweep.places)
        places = list[Remark]()
        for place in sweep.places:
            if place.place not in places:
                places.append(place.place)
        rows["traces"] = f"{found or 'none'} found in {few(sentences(tuple(places)))}"
        not_searched = [remark for remark in sweep.unlooked if remark.code == "files_beside_runs"]
        rows["traces"] += "".join(f"; {remark.sentence}" for remark in not_searched)
    return rows


def account_lines(account: ErasureReport) -> Iterator[str]:
    """The summary for the console, a line each; the page has the rest."""
    state = account.state
    yield headline(account)
    yield from (f"{name}: {text}" for name, text in summary(account).items())
    yield f"state: {state.before[:19]}... -> {state.after[:19]}...; request log {state.log[:24]}..."


def exception_lines(account: ErasureReport) -> Iterator[str]:
    """What is not as it should be, for the console, indented."""
    places = account.sweep.places if account.sweep else ()
    yield from (f"  - NOT HELD: {fact.sentence}" for fact in account.removal.promise.assumptions if not fact.held)
    yield from (f"  - void: {earlier.name}: {earlier.why}" for earlier in _named(account) if not earlier.stands)
    yield from (f"  - FOUND {place.found} in {place.place.sentence}: {_found(place)}" for place in places if place.found)


def account_markdown(account: ErasureReport) -> str:
    """report.md of an erasure: one page."""
    state, sweep, earlier = account.state, account.sweep, account.earlier
    facts = [(fact.words, _strong(fact.standing)) for fact in account.removal.promise.assumptions]
    answers = [(each.name, _strong("stands" if each.stands else "void"), each.why) for each in _named(account)]
    places = [
        (place.place.sentence, str(place.files), _strong(place.found), _found(place))
        for place in (sweep.places if sweep else ())
    ]
    return document(
        f"# Erasure: {plain(state.run)}",
        f"**{plain(headline(account))}.**",
        [f"{name}: {words}" for name, words in summary(account).items()],
        "## What was done",
        account.removal.sentences,
        "## What holds",
        account.removal.promise.sentences,
        markdown_table(("it rests on", "which is"), facts) if facts else "",
        "## What was answered before",
        markdown_table(("made before", "now", "why"), answers) if answers else "Nothing was found beside the run.",
        f"And {len(earlier) - len(answers)} more: account.json names them all." if len(answers) < len(earlier) else "",
        "## What is left of them",
        markdown_table(("where", "looked at", "found", "what was seen"), places) if places else "Nobody looked for traces.",
        "Whatever was found was not deleted: whether it may stay is its owner's to decide. Not looked at:" if sweep else "",
        sentences(sweep.unlooked) if sweep else "",
        "## What this account does not show",
        sentences(account.outside),
        "## To check it",
        "`agt verify` of this folder compares it with the run and its request log. "
        "`sha256sum manifest.json` here is this folder's digest: kept elsewhere, it shows a later edit.",
        (f"before {state.before}", f"after {state.after}", f"entry {state.entry} of the log up to {state.log}"),
    )


def _strong(value: object) -> Markdown:
    return Markdown(f"**{value}**")


def _found(place: Place) -> str:
    return "; ".join(sentences(place.remarks))


def _named(account: ErasureReport) -> Sequence[Earlier]:
    """The void ones first."""
    return sorted(account.earlier, key=lambda earlier: earlier.stands)[:SHOWN]
