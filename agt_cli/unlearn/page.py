"""The account of an erasure on one page, in the words of a data-protection officer; and the same in a few lines."""

from collections.abc import Iterator, Sequence

from agt.facts import Standing
from agt.unlearning.account import Account, Earlier
from agt_cli.report.markdown import Markdown, markdown_table, plain

SHOWN = 8  # earlier answers that are named one by one; the void ones first
METHODS = {
    "newton": "certified removal (a Newton step)",
    "sisa": "training again whatever part of the ensemble had seen them",
    "retrain": "training again without them",
}
REQUESTS = {
    "oblivious": "NOT where requests were chosen after looking at what the model gave out",
    "adaptive for fixed keys": (
        "for this run's seed and keys, whoever chose the requests; NOT where requests were chosen after looking and the "
        "model must be as with keys drawn since (fresh=true)"
    ),
    "adaptive": "whoever chose the requests, also after looking at what the model gave out",
}


def headline(account: Account) -> str:
    """What happened, in one line."""
    asked, done = account.asked, account.done
    now = f"{_many(asked.people + asked.untrained, 'person', 'people')} asked" if asked.people or not asked.pending else ""
    if asked.untrained:
        now += f" ({asked.untrained} of them in test records alone, on which nothing was trained)"
    before = f"{_many(asked.pending, 'person', 'people')} had asked before" if asked.pending else ""
    people = ", and ".join(filter(None, (now, before)))
    if account.waiting is not None:
        pending = _many(account.waiting.people, "person", "people")
        return f"{people}: noted; {pending} pending in all, and nothing is removed yet"
    return f"{people}: {_many(done.records, 'record', 'records')} removed from the run, by {METHODS[done.method]}"


def promised(account: Account) -> str:
    """What is guaranteed, in one line."""
    given = account.guaranteed
    what = f"epsilon = {given.eps:.6g}, delta = {given.delta:.3g} from never having seen them"
    void = sum(assumption.standing is Standing.VOID for assumption in given.assumptions)
    rests = f"; {_many(void, 'assumption does', 'assumptions do')} NOT hold" if void else ""
    claimed = "" if account.promise.proved else "NOT PROVED; as published: "
    return f"{claimed}{'exact' if given.exact else what}, {REQUESTS[given.requests]}{rests}"


def cost(account: Account) -> str:
    """Seconds, beside those of training."""
    done = account.done
    if done.training is None or not account.updated:
        return f"{done.seconds:.3g} s"
    return f"{done.seconds:.3g} s; training the run took {done.training:.3g} s"


def left(account: Account) -> Iterator[str]:
    """The removal budget, in one line; none where the method needs none."""
    if account.budget is not None:
        budget = account.budget.allowance
        yield f"{budget.left:.4g} of {budget.total:.4g} left ({budget.unit})"


def standing(account: Account) -> str:
    """Of earlier answers, in one line: records, of which some of the answers may be void."""
    stand, void = ({earlier.name for earlier in account.earlier if earlier.stands is stands} for stands in (True, False))
    counts = {"stand": stand - void, "void": void - stand, "stand in part": stand & void}
    told = ", ".join(f"{len(names)} {words}" for words, names in counts.items() if names)
    return told or "none was found beside the run"


def traces(account: Account) -> str:
    """Of the search, in one line."""
    sweep = account.sweep
    if sweep is None:
        return "not looked for" if account.updated else "not looked for, as nothing is removed yet"
    files, places = sum(place.files for place in sweep.places), _many(len(sweep.places), "place", "places")
    return f"{sweep.found or 'none'} found in {_many(files, 'file', 'files')} of {places}"


def lines(account: Account) -> Iterator[str]:
    """For the console: what is not as it should be follows its line, indented. The page has the rest."""
    state, sweep = account.state, account.sweep
    yield headline(account)
    yield f"guaranteed: {promised(account)}"
    yield from _indented(f"NOT HELD: {words}" for words, stands in _facts(account) if stands == Standing.VOID)
    yield f"took: {cost(account)}"
    yield from _waited(account)
    yield from (f"removal budget: {line}" for line in left(account))
    yield f"earlier answers: {standing(account)}"
    yield from _indented(f"void: {earlier.name}: {earlier.why}" for earlier in _named(account) if not earlier.stands)
    yield f"traces: {traces(account)}"
    places = [place for place in (sweep.places if sweep else ()) if place.found]
    yield from _indented(f"FOUND {place.found} in {place.place}: {place.words}" for place in places)
    yield f"state: {state.before[:19]}... -> {state.after[:19]}...; request log {state.log[:24]}..."


def markdown(account: Account) -> str:
    """report.md of an erasure: one page."""
    state, asked = account.state, account.asked
    when = f"{asked.time[:19].replace('T', ' ')} UTC"
    summary = [
        ("asked", f"{when}, by {asked.by}; {_many(asked.records, 'record', 'records')}"),
        ("guaranteed", promised(account)),
        ("took", cost(account)),
        *(("removal budget", line) for line in left(account)),
        ("earlier answers", standing(account)),
        ("traces", traces(account)),
    ]
    parts = [
        f"# Erasure: {plain(state.run)}",
        f"{plain(headline(account))}.",
        markdown_table(("", ""), summary),
        "## What was done",
        _bullets([*account.done.words, *_waited(account)]),
        "## What holds",
        _bullets(account.guaranteed.words),
        *_rests_on(account),
        "## What was answered before",
        *_answers(account),
        "## What is left of them",
        *_swept(account),
        "## What this account does not show",
        _bullets(account.outside),
        "## To check it",
        "`agt verify` of this folder compares it with the run and its request log, and with `public=OWNER.pub` checks the "
        "signature. `sha256sum manifest.json` here is this folder's digest: kept elsewhere, it shows a later edit.",
        _bullets((f"before {state.before}", f"after {state.after}", f"entry {state.entry} of the log up to {state.log}")),
    ]
    return "\n\n".join(parts) + "\n"


def _waited(account: Account) -> Iterator[str]:
    waiting = account.waiting
    if waiting is not None:
        rest = "no query is answered"
        if waiting.distance is not None:
            rest = f"only queries whose stable distance is at least {waiting.distance} are answered, the others abstain"
        yield f"until the next update (agt unlearn run=...) {rest}"
    if account.abstained or (account.abstained is not None and account.updated):
        yield f"while requests were pending, {_many(account.abstained, 'query', 'queries')} abstained"


def _rests_on(account: Account) -> Iterator[str]:
    facts = list(_facts(account))
    rows = [(words, Markdown(f"**{stands}**")) for words, stands in facts if stands != Standing.PROVED]
    if len(rows) < len(facts):
        proved = _many(len(facts) - len(rows), "fact", "facts")
        rows.append((f"{proved} that account.json tells", Markdown(f"**{Standing.PROVED}**")))
    if rows:
        yield markdown_table(("it rests on", "which is"), rows)


def _facts(account: Account) -> Iterator[tuple[str, Standing]]:
    """What the guarantee rests on, and how it stands."""
    for fact in account.guaranteed.assumptions:
        yield f"{fact.why}; broken if {fact.broken_by}" if fact.broken_by else fact.why, fact.standing


def _answers(account: Account) -> Iterator[str]:
    if not account.earlier:
        yield "Nothing was found beside the run that was made from an earlier state. What lies elsewhere was not looked at."
        return
    named = _named(account)
    told = [(each.name, Markdown(f"**{'stands' if each.stands else 'void'}**"), each.why) for each in named]
    yield markdown_table(("made before", "now", "why"), told)
    if len(named) < len(account.earlier):
        yield f"And {len(account.earlier) - len(named)} more: account.json names them all."


def _swept(account: Account) -> Iterator[str]:
    sweep = account.sweep
    if sweep is None:
        yield f"Traces were {traces(account)}."
        return
    rows = [(place.place, str(place.files), _marked(place.found), place.words) for place in sweep.places]
    yield markdown_table(("where", "files", "found", "what was seen"), rows)
    if sweep.found:
        yield "Nothing that was found was deleted: whether these files may stay is their owner's to decide."
    if sweep.unlooked:
        yield "Not looked at:"
        yield _bullets(sweep.unlooked)


def _marked(found: int) -> str:
    return Markdown(f"**{found}**") if found else "0"


def _named(account: Account) -> Sequence[Earlier]:
    """The void ones first."""
    return sorted(account.earlier, key=lambda earlier: earlier.stands)[:SHOWN]


def _indented(words: Sequence[str] | Iterator[str]) -> Iterator[str]:
    yield from (f"  - {line}" for line in words)


def _bullets(words: Sequence[str]) -> str:
    return "\n".join(f"- {plain(line)}" for line in words)


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
