"""``agt unlearn`` from a request to the run's next state: one process at a time, wholly or not at all.

rehearse=true: a request carried out on a copy of the run, to see what a method takes and promises. Nothing is erased.

The copy lies below the command's own record and is gone when it ends, however it ends; of a process that is killed outright
the next rehearsal beside it removes it. No account is written: there is nothing to account for.

The account of an erasure on one page, in the words of a data-protection officer; and the same in a few lines.

The account of what ``erase`` did: its parts brought together, and written.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agt.errors import AgtError, ConfigError, counted, few
from agt.numeric import upward
from agt.store import refusing
from agt.unlearning.promise import MethodName, Removal
from agt_cli.report.console import Console
from agt_cli.report.finished import ACCOUNT_FILE, STATE_LOCK, Run, has_pending_commit, manifest_digest
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.report.next_state import commit, run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState, RunRecord
from agt_cli.report.replaced import home_of
from agt_cli.runs.erased import environment_facts, gone_of, prepare_without
from agt_cli.runs.pending import abstentions
from agt_cli.runs.prepare import Prepared, RunSettings, kept_head, located, prepare, settings_of
from agt_cli.unlearn.account import Asked, Earlier, ErasureReport, StateChange, Waiting, account_of
from agt_cli.unlearn.earlier import judge_earlier
from agt_cli.unlearn.log import REQUEST_LOG_FILE, By, Log, RequestEntry, RequestKind
from agt_cli.unlearn.methods import METHODS, ErasureJob, chosen, removal_metrics
from agt_cli.unlearn.request import Request, TrainingRecords, read_ids, request_for
from agt_cli.unlearn.traces import FILES_NOT_SEARCHED, TraceTargets, search


@dataclass(frozen=True)
class ErasureOrder:
    """What a call of the command asks for.

    Attributes:
        folder: of the run.
        digest: that it must have; None: any.
        compute: how to compute now.
        ids: a file of ids, or -; None: nobody asks, what is pending is carried out.
        by: what they name; None: as the data has it.
        choice: of the method.
        may_retrain, fresh: as in ``ErasureJob``.
        output_dir: where this command writes.
        rehearse: on a copy of the run alone.
    """

    folder: Path
    digest: str | None
    compute: Any
    ids: str | None
    by: By | None
    choice: str
    may_retrain: bool
    fresh: bool
    output_dir: Path
    rehearse: bool = False

    @property
    def places(self) -> tuple[Path, ...]:
        """Where other records of this run are looked for: where this command writes, and where the run was written."""
        return tuple(dict.fromkeys([self.output_dir.resolve(), *home_of(self.folder)]))


@dataclass(frozen=True)
class ErasureOutcome:
    """What was done, now or by an earlier command: an account of it is made of the run's log, and of this.

    Attributes:
        run: as it was.
        settings: it was trained with.
        prepared: its data of now, with the erased records that the data still has.
        log: with the entry that is accounted for, its last one.
        digest: of the run now.
        wanted: gives the erased records, as other trainings are asked for them.
        words: what an error afterwards must say first, as nothing is undone; empty: an earlier command did it.
    """

    run: Run
    settings: RunSettings
    prepared: Prepared
    log: Log
    digest: str
    wanted: Callable[[], TraceTargets]
    words: str = ""

    @property
    def entry(self) -> RequestEntry:
        """The request in the log."""
        return self.log.entries[-1]


@contextmanager
def reporting_change(words: str, console: Console, decided: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Say of whatever stops a command after its change that this stands, and how to get the account.

    Args:
        decided: whether the change stands.

    Raises:
        AgtError: with exit code 1: neither a mistake of the user's nor a check that left things as they were.
    """
    try:
        yield
    except (AgtError, OSError) as error:
        if not decided():
            raise
        raise AgtError(f"{words}. It was stopped by: {error}") from error
    except BaseException:  # Ctrl-C, and what is a bug
        if decided():
            console.error(words)
        raise


def erase(order: ErasureOrder, console: Console) -> ErasureOutcome:
    """Find out who asks, what is owed, and do it. The caller holds the run (``run_lock``).

    Where nobody asks, and nothing is to be carried out: what the last entry of the log did.

    Raises:
        ConfigError, DataError: nothing is asked for, or the request, the run or its data is not what it must be.
        CheckError: the method cannot keep its promise. Nothing is changed in any of these cases.
    """
    run = open_run(order.folder, "train", order.digest)
    log = Log.of(run)
    abstentions(run.folder, ())  # whatever could stop the account stops the erasure
    recorded = located(run.config, run.environment.get("data_files") or {})
    settings = settings_of({**recorded, "compute": order.compute}, kept_head(run))
    method = chosen(order.choice, settings, order.fresh)
    if order.ids is None and log.entries and (method == "certificate" or not log.pending):
        return _before(run, settings, log, console)
    known = TrainingRecords.of(run, settings)
    if order.ids is not None:
        request = request_for(known, read_ids(order.ids, known.source), order.by, order.ids)
    elif known.log.pending:
        request = Request(known.by, (), (), 0)
    else:
        raise ConfigError("ids=null: nobody asks, and nothing is pending: give ids=FILE")
    known.check(request)
    for note in request.notes:
        console.note(f"note: {note}")
    return _carried_out(order, method, settings, known, request, run, console)


def _before(run: Run, settings: RunSettings, log: Log, console: Console) -> ErasureOutcome:
    """What an earlier command did, for the account that it owed.

    Raises:
        ConfigError: its entry does not tell.
    """
    with refusing(run.folder, run.key):
        _ = log.entries[-1].removal
    nothing = "nobody asks" if log.pending else "nothing is pending"
    console.note(f"{nothing}; this is the account of entry {len(log.entries)} again")
    prepared = prepare(settings, console, gone_of(run))
    return ErasureOutcome(run, settings, prepared, log, run.digest, lambda: TraceTargets.later(run, settings, log))


def _carried_out(
    order: ErasureOrder,
    method: MethodName,
    settings: RunSettings,
    known: TrainingRecords,
    request: Request,
    run: Run,
    console: Console,
) -> ErasureOutcome:
    """Leave the run in its next state."""
    kind: RequestKind = "pending" if method == "certificate" else "removed"
    prepared, erased = prepare_without(run, settings, console, frozenset(request.records))
    records, units = known.log.waiting | set(request.records), known.log.waiting_units | set(request.units)
    job = ErasureJob(run, settings, prepared, erased, len(records), len(units), order.may_retrain, order.fresh)
    with NextState(run) as record:
        removal = METHODS[method](job, record, console)
        record.environment(**environment_facts(run, prepared))
        promise, training = asdict(removal.promise), float(run.metrics["seconds_training"])
        facts = {"removal": removal.plain, "training": training, "untrained": request.untrained}
        states = (run.digest, record.state, known.key.check)
        names = (request.by, request.records, request.units)
        log = known.log.append(RequestEntry(kind, removal.promise.method, *names, promise, *states, facts))
        record.write(REQUEST_LOG_FILE, log.content)
        digest = record.finish()
    became, how = ("its request is noted", f" method={method}") if kind == "pending" else ("its model is another now", "")
    words = (
        f"run={run.folder}: WAS changed ({became}: entry {len(log.entries)} of its request log, digest {digest}), and only "
        f"its account is missing: agt unlearn run={run.folder}{how} writes that"
    )
    with reporting_change(words, console, lambda: has_pending_commit(run.folder) or manifest_digest(run.folder) == digest):
        commit(run.folder)
    return ErasureOutcome(run, settings, prepared, log, digest, lambda: TraceTargets.of(known, request), words)


WORDS = "REHEARSAL, on a copy that is deleted: nothing was erased. The run still holds the records that the ids name"
SCORES = ("test_accuracy", "test_auc")


def rehearse(order: ErasureOrder, record: RunRecord, console: Console) -> dict[str, Any]:
    """Carry a request out on a copy, and note what it took and what would hold.

    Raises:
        ConfigError: there is nothing to do; and as ``erase``.
    """
    run = open_run(order.folder, "train", order.digest)
    with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
        copy = copied(run, Path(scratch) / "run")
        with run_lock(copy):
            erased = erase(replace(order, folder=copy, digest=run.digest), console)
        if erased.digest == run.digest:
            raise ConfigError("ids=null: nobody asks, and nothing is pending: there is nothing to rehearse")
        entry, after = erased.entry, open_run(copy, "train", erased.digest)
    source = {"trained_run": str(run.folder.resolve()), "trained_digest": run.digest}
    record.environment(**source, rehearsed=True, dataset=run.environment.get("dataset"))
    scores = {name: after.metrics[name] for name in SCORES if name in after.metrics}
    earlier = {f"{name}_before": run.metrics[name] for name in scores if name in run.metrics}
    seconds = {"seconds_training": float(entry.facts["training"])}
    record.add_metrics(**scores, **earlier, **removal_metrics(entry.removal), **seconds, asked=len(entry.records))
    rows = [(plain(name), str(value)) for name, value in record.metrics.items()]
    told = (*entry.removal.words, *entry.removal.promise.words)
    page = document(
        f"# Rehearsal of agt unlearn: method={entry.removal.promise.method}, run {plain(run.folder.name)}",
        f"**{WORDS}.** For the data owner: accuracies depend on the private data.",
        told,
        markdown_table(("number", "value"), rows),
    )
    record.report(page)
    digest = record.finish()
    for line in (WORDS, *told):
        console.say(line)
    console.say(f"report: {record.folder / 'report.html'}")
    return {"rehearsed": True, "method": entry.removal.promise.method, "metrics": record.metrics, "digest": digest}


def copied(run: Run, place: Path) -> Path:
    """A copy of a run's folder, its key with it, without what its living processes lock, and without itself.

    Args:
        place: of the copy, in a folder of its own, which may lie below the run's.
    """
    own = place.parent.resolve()

    def left_out(at: str, names: list[str]) -> list[str]:
        return [name for name in names if name == Path(STATE_LOCK).name or (Path(at) / name).resolve() == own]

    shutil.copytree(run.folder, place, ignore=left_out)
    return place


SHOWN = 8  # earlier answers that are named one by one; the void ones first
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
    asked, done = account.asked, account.done
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
    how = METHOD_WORDS.get(done.method, f"the certificate's own method ({done.method})")
    return f"{people}: {counted(done.records, 'record')} removed from the run, by {how}"


def summary(account: ErasureReport) -> dict[str, str]:
    """What an account says, in a line each."""
    asked, done, given, sweep = account.asked, account.done, account.guaranteed, account.sweep
    rows = {"asked": f"{asked.time[:19].replace('T', ' ')} UTC, by {asked.by}; {counted(asked.records, 'record')}"}
    what = (
        "exact" if given.exact else f"epsilon = {upward(given.eps)}, delta = {given.delta:.3g} from never having seen them"
    )
    if given.within is not None:
        what += f" up to a distance of {upward(given.within)} (l2, weights)"
    void = sum(not fact.held for fact in given.assumptions)
    rests = f"; {counted(void, 'assumption does', 'assumptions do')} NOT hold" if void else ""
    rows["guaranteed"] = f"{'NOT PROVED; as published: ' if void else ''}{what}, {REQUESTS[given.requests]}{rests}"
    training = f"; training the run took {done.training:.3g} s" if account.updated and done.training is not None else ""
    rows["took"] = f"{done.seconds:.3g} s{training}"
    if account.waiting is not None:
        distance = account.waiting.distance
        rest = f"only queries whose stable distance is at least {distance} are answered, the others abstain"
        rows["until the next update"] = f"(agt unlearn run=...) {rest if distance else 'no query is answered'}"
    if account.abstained or (account.abstained is not None and account.updated):
        rows["abstained while requests were pending"] = counted(account.abstained, "query", "queries")
    if account.budget is not None:
        left, total = account.budget.total - account.budget.spent, account.budget.total
        rows["removal budget"] = f"{left:.4g} of {total:.4g} left ({account.budget.unit})"
    stand, void_ones = ({each.name for each in account.earlier if each.stands is stands} for stands in (True, False))
    counts = {"stand": stand - void_ones, "void": void_ones - stand, "stand in part": stand & void_ones}
    told = ", ".join(f"{len(names)} {words}" for words, names in counts.items() if names)
    rows["earlier answers"] = told or "none was found beside the run"
    rows["traces"] = "not looked for" if account.updated else "not looked for, as nothing is removed yet"
    if sweep is not None:
        found = sum(place.found for place in sweep.places)
        names = few(dict.fromkeys(place.place for place in sweep.places))
        rows["traces"] = f"{found or 'none'} found in {names}"
        if FILES_NOT_SEARCHED in sweep.unlooked:
            rows["traces"] += f"; {FILES_NOT_SEARCHED}"
    return rows


def account_lines(account: ErasureReport) -> Iterator[str]:
    """For the console: the summary, then what is not as it should be, indented. The page has the rest."""
    state, places = account.state, account.sweep.places if account.sweep else ()
    yield headline(account)
    yield from (f"{name}: {words}" for name, words in summary(account).items())
    yield from (f"  - NOT HELD: {fact.why}" for fact in account.guaranteed.assumptions if not fact.held)
    yield from (f"  - void: {each.name}: {each.why}" for each in _named(account) if not each.stands)
    yield from (f"  - FOUND {place.found} in {place.place}: {place.words}" for place in places if place.found)
    yield f"state: {state.before[:19]}... -> {state.after[:19]}...; request log {state.log[:24]}..."


def account_markdown(account: ErasureReport) -> str:
    """report.md of an erasure: one page."""
    state, sweep, earlier = account.state, account.sweep, account.earlier
    facts = [(fact.words, _strong(fact.standing)) for fact in account.guaranteed.assumptions]
    answers = [(each.name, _strong("stands" if each.stands else "void"), each.why) for each in _named(account)]
    places = [(each.place, str(each.files), _strong(each.found), each.words) for each in (sweep.places if sweep else ())]
    return document(
        f"# Erasure: {plain(state.run)}",
        f"**{plain(headline(account))}.**",
        [f"{name}: {words}" for name, words in summary(account).items()],
        "## What was done",
        account.done.words,
        "## What holds",
        account.guaranteed.words,
        markdown_table(("it rests on", "which is"), facts) if facts else "",
        "## What was answered before",
        markdown_table(("made before", "now", "why"), answers) if answers else "Nothing was found beside the run.",
        f"And {len(earlier) - len(answers)} more: account.json names them all." if len(answers) < len(earlier) else "",
        "## What is left of them",
        markdown_table(("where", "looked at", "found", "what was seen"), places) if places else "Nobody looked for traces.",
        "Whatever was found was not deleted: whether it may stay is its owner's to decide. Not looked at:" if sweep else "",
        sweep.unlooked if sweep else "",
        "## What this account does not show",
        account.outside,
        "## To check it",
        "`agt verify` of this folder compares it with the run and its request log. "
        "`sha256sum manifest.json` here is this folder's digest: kept elsewhere, it shows a later edit.",
        (f"before {state.before}", f"after {state.after}", f"entry {state.entry} of the log up to {state.log}"),
    )


def _strong(value: object) -> Markdown:
    return Markdown(f"**{value}**")


def _named(account: ErasureReport) -> Sequence[Earlier]:
    """The void ones first."""
    return sorted(account.earlier, key=lambda earlier: earlier.stands)[:SHOWN]


def account(order: ErasureOrder, erased: ErasureOutcome) -> ErasureReport:
    """All that can be said of the run's last update or request; looks for earlier answers and for traces.

    Raises:
        ConfigError: the run is not the one that was left, or a file beside it cannot be read.
    """
    entry, log, run = erased.entry, erased.log, open_run(order.folder, "train", erased.digest)
    batch = log.batch(entry.number)
    states = {run.digest, *(each.before for each in batch)}
    return derive_account(
        entry,
        log,
        entry.removal,
        (run.folder.name, run.digest, int(run.metrics["n_train"])),
        training=entry.facts["training"],
        earlier=judge_earlier(run, log, erased.settings, erased.prepared, order.places),
        sweep=None if entry.kind == "pending" else search(erased.wanted(), run, order.places, order.ids),
        abstained=abstentions(run.folder, states) if batch[0].kind == "pending" else None,
    )


def derive_account(
    entry: RequestEntry, log: Log, removal: Removal, after: tuple[str, str, int], *, training: float | None, **found: Any
) -> ErasureReport:
    """An account, as a function of the request log and the run's state; ``agt verify`` makes it again.

    Args:
        entry: that it is about.
        log: as it was when the account was made.
        removal: what the method says of it.
        after: of the run then: its folder's name, its digest, how many records it is trained on.
        training: seconds that training the run took; None: not recorded.
        found: what the log does not tell, as in ``account_of``: earlier, sweep, abstained, unlooked.
    """
    pending, (run, digest, left) = entry.kind == "pending", after
    asked = Asked(
        people=len(entry.units),
        records=len(entry.records),
        by=entry.by,
        hashes=len({*entry.records, *entry.units}),
        time=entry.time,
        pending=0 if pending else len(Log(log.entries[: entry.number - 1]).waiting_units),
        untrained=entry.facts.get("untrained", 0),
    )
    state = StateChange(run, entry.before, digest, left + removal.records, left, str(log.head), entry.number)
    waiting = None
    if pending:
        units = len(log.waiting_units)
        waiting = Waiting(units, units if int(removal.facts.get("farthest", units)) >= units else None)
    return account_of(removal, asked=asked, state=state, training=training, waiting=waiting, **found)


def write(account: ErasureReport, erased: ErasureOutcome, record: RunRecord) -> None:
    """Write account.json, the page, and the numbers."""
    record.write(ACCOUNT_FILE, account.content)
    told: dict[str, Any] = {"trained_run": str(erased.run.folder.resolve()), "trained_digest": account.state.after}
    record.environment(**told, dataset=erased.run.environment.get("dataset"))
    record.add_metrics(**removal_metrics(erased.entry.removal))
    record.report(account_markdown(account))
