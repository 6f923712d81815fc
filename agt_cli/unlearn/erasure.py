"""``agt unlearn`` from a request to the run's next state, and its account: one process at a
time, wholly or not at all.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt import __version__
from agt.errors import AgtError, counted, few
from agt.settings import plain_of
from agt.store.folder import broken_as_config_error
from agt.unlearning.promise import MethodName, Removal
from agt_cli.command_settings.unlearn import By
from agt_cli.places import nothing_requested
from agt_cli.report.console import Console
from agt_cli.report.finished import ACCOUNT_FILE, Run, has_pending_commit, manifest_digest
from agt_cli.report.markdown import capital, document, plain
from agt_cli.report.next_state import commit
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState, RunRecord
from agt_cli.report.replaced import home_of
from agt_cli.runs.erased import environment_facts, gone_of, prepare_without
from agt_cli.runs.pending import abstentions
from agt_cli.runs.prepare import Prepared, RunSettings, kept_head, located, prepare, settings_of
from agt_cli.unlearn.account import OUTSIDE, VERSION, Asked, ErasureReport, StateChange, Waiting
from agt_cli.unlearn.account_md import account_markdown
from agt_cli.unlearn.earlier import judge_earlier, releases_of_state
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry, RequestKind
from agt_cli.unlearn.methods import METHODS, ErasureJob, check_can_train, chosen, removal_metrics
from agt_cli.unlearn.request import Request, TrainingRecords, read_ids, request_for
from agt_cli.unlearn.traces import SEARCHED_RUNS, TraceTargets, search, searched_runs


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
        may_be_unknown: ids that name no record of the run's data are left out; False: refused.
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
    may_be_unknown: bool = False

    @property
    def place_names(self) -> tuple[str, ...]:
        """The same folders as ``places``, as a command line in the present folder names them."""
        here = Path.cwd()
        return tuple(
            str(place.relative_to(here)) if place.is_relative_to(here) else str(place)
            for place in self.places
        )

    @property
    def places(self) -> tuple[Path, ...]:
        """Where other records of this run are looked for: where this command writes, and where
        the run was written.
        """
        return tuple(dict.fromkeys([self.output_dir.resolve(), *home_of(self.folder)]))


@dataclass(frozen=True)
class ErasureOutcome:
    """What was done, now or by an earlier command: an account of it is made of the run's log, and
    of this.

    Attributes:
        run: as it was.
        settings: it was trained with.
        prepared: its data of now, with the erased records that the data still has.
        log: with the entry that is accounted for, its last one.
        digest: of the run now.
        wanted: gives the erased records, as other trainings are asked for them.
        words: what an error afterwards must say first, as nothing is undone; empty: an earlier
            command did it.
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


@dataclass(frozen=True)
class NothingErased:
    """A request of which no record is in the training part of the run's data.

    Attributes:
        run: which is not changed.
        request: who was asked for.
    """

    run: Run
    request: Request


@contextmanager
def reporting_change(
    change: str, console: Console, decided: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Say of whatever stops a command after its change that this stands, and how to get the
    account.

    Args:
        change: what was changed, and how to get the account.
        decided: whether the change stands.

    Raises:
        AgtError: with exit code 1: neither a mistake of the user's nor a check that left things as
            they were.
    """
    try:
        yield
    except (AgtError, OSError) as error:
        if not decided():
            raise
        raise AgtError(f"{change}. Then an error stopped the command: {error}") from error
    except BaseException:  # Ctrl-C, and what is a bug
        if decided():
            console.error(change)
        raise


def erase(order: ErasureOrder, console: Console) -> ErasureOutcome | NothingErased:
    """Find out who asks, what is owed, and do it. The caller holds the run (``run_lock``).

    Where nobody asks, and nothing is to be carried out: what the last entry of the log did.

    Returns:
        What was done; ``NothingErased`` if, with ``order.may_be_unknown``, no id names a training
        record. Then nothing was changed, and what is pending is still pending.

    Raises:
        ConfigError, DataError: nothing is asked for, or the request, the run or its data is not
            what it must be.
        CheckError: the method cannot keep its promise. Nothing is changed in any of these cases.
    """
    run = open_run(order.folder, "train", order.digest)
    log = Log.of(run)
    abstentions(run.folder, ())  # whatever could stop the account stops the erasure
    recorded = located(run.config, run.environment.get("data_files") or {})
    settings = settings_of({**recorded, "compute": order.compute}, kept_head(run))
    method = chosen(order.choice, settings, run, order.fresh)
    if order.ids is None and log.entries and (method == "certificate" or not log.pending):
        return _before(run, settings, log, console)
    check_can_train(method, run)
    known = TrainingRecords.of(run, settings)
    if order.ids is not None:
        ids = read_ids(order.ids, known.source)
        request = request_for(known, ids, order.by, order.ids, order.may_be_unknown)
    elif known.log.pending:
        request = Request(known.by, (), (), 0)
    else:
        raise nothing_requested(order.folder)
    known.check(request)
    for note in request.notes:
        console.note(f"note: {note}")
    if order.ids is not None and not request.records:
        return NothingErased(run, request)
    return _carried_out(order, method, settings, known, request, run, console)


def _before(run: Run, settings: RunSettings, log: Log, console: Console) -> ErasureOutcome:
    """What an earlier command did, for the account that it owed.

    Raises:
        ConfigError: its entry does not tell.
    """
    with broken_as_config_error(run.folder, run.key):
        _ = log.entries[-1].removal
    reason = "ids=... is not given" if log.pending else "no request is pending"
    number = len(log.entries)
    console.note(
        f"{reason}, so this command only writes the account of the erasure (entry {number} of "
        "the request log) again"
    )
    prepared = prepare(settings, console, gone_of(run))
    return ErasureOutcome(
        run, settings, prepared, log, run.digest, lambda: TraceTargets.later(run, settings, log)
    )


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
    records, units = (
        known.log.waiting | set(request.records),
        known.log.waiting_units | set(request.units),
    )
    job = ErasureJob(
        run, settings, prepared, erased, len(records), len(units), order.may_retrain, order.fresh
    )
    releases = releases_of_state(run.digest, order.places)
    if releases:
        count = counted(len(releases), "release was", "releases were")
        console.note(
            f"note: {count} made from the present state of this run ({few(releases)}). After this "
            "command, agt verify can no longer recompute their claims. If you have not kept the "
            "page that it writes (agt verify FOLDER page=FILE), stop now with Ctrl-C and write it "
            "first"
        )
    targets = TraceTargets.of(known, request, run)
    searched = {} if order.rehearse else searched_runs(targets, run.folder, order.places)
    with NextState(run) as record:
        removal = METHODS[method](job, record, console)
        record.environment(**environment_facts(run, prepared))
        promise, training = plain_of(removal.promise), float(run.metrics["seconds_training"])
        facts = {
            "removal": removal.plain,
            "training": training,
            "untrained": request.untrained,
            "test_records": request.test_records,
            "unknown": request.unknown,
            SEARCHED_RUNS: searched,
        }
        states = (run.digest, record.state, known.key.check)
        names = (request.by, request.records, request.units)
        log = known.log.append(
            RequestEntry(kind, removal.promise.method, *names, promise, *states, facts)
        )
        record.write(REQUEST_LOG_FILE, log.content)
        digest = record.finish()
    change = "the model was replaced by the updated one"
    command = f"agt unlearn run={run.folder}"
    if kind == "pending":
        change = "the erasure request was noted"
        command = f"{command} method={method}"
    number = len(log.entries)
    words = (
        f"run={run.folder}: the run WAS changed ({change}; entry {number} of its request log, "
        f"digest {digest}), but the account of this erasure was not written. To write it, "
        f"type {command}"
    )
    with reporting_change(
        words,
        console,
        lambda: has_pending_commit(run.folder) or manifest_digest(run.folder) == digest,
    ):
        commit(run.folder)
    return ErasureOutcome(run, settings, prepared, log, digest, lambda: targets, words)


def account(order: ErasureOrder, erased: ErasureOutcome) -> ErasureReport:
    """All that can be said of the run's last update or request; looks for earlier answers and for
    traces.

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
        sweep=None
        if entry.kind == "pending"
        else search(erased.wanted(), run, order.places, order.ids),
        abstained=abstentions(run.folder, states) if batch[0].kind == "pending" else None,
    )


def derive_account(
    entry: RequestEntry,
    log: Log,
    removal: Removal,
    after: tuple[str, str, int],
    *,
    training: float | None,
    **found: Any,
) -> ErasureReport:
    """An account, as a function of the request log and the run's state; ``agt verify`` makes it
    again.

    Args:
        entry: that it is about.
        log: as it was when the account was made.
        removal: what the method says of it.
        after: of the run then: its folder's name, its digest, how many records it is trained on.
        training: seconds that training the run took; None: not recorded.
        found: what the log does not tell, as in ``ErasureReport``: earlier, sweep, abstained.
    """
    pending, (run, digest, left) = entry.kind == "pending", after
    test_only = entry.facts.get("untrained", 0)
    asked = Asked(
        people_requested=len(entry.units) + test_only,
        people_with_training_records=len(entry.units),
        people_with_test_records_only=test_only,
        training_records=len(entry.records),
        by=entry.by,
        hashes_in_log=len({*entry.records, *entry.units}),
        time=entry.time,
        people_pending_before=0
        if pending
        else len(Log(log.entries[: entry.number - 1]).waiting_units),
        test_records=entry.facts.get("test_records"),
        ids_not_in_data=entry.facts.get("unknown", 0),
    )
    state = StateChange(
        run, entry.before, digest, left + removal.records, left, str(log.head), entry.number
    )
    waiting = None
    if pending:
        units = len(log.waiting_units)
        waiting = Waiting(
            units, units if int(removal.facts.get("farthest", units)) >= units else None
        )
    return ErasureReport(
        schema=VERSION,
        agt=__version__,
        asked=asked,
        removal=removal,
        state=state,
        outside=OUTSIDE,
        training=training,
        waiting=waiting,
        **found,
    )


def write(
    account: ErasureReport, erased: ErasureOutcome, record: RunRecord, folders: Sequence[str]
) -> None:
    """Write account.json, the page, and the numbers.

    Args:
        account: the report of the erasure.
        erased: what was done.
        record: where it is written.
        folders: that were searched, as a command line names them.
    """
    record.write(ACCOUNT_FILE, account.content)
    told: dict[str, Any] = {
        "trained_run": str(erased.run.folder.resolve()),
        "trained_digest": account.state.after,
    }
    record.environment(**told, dataset=erased.run.environment.get("dataset"))
    record.add_metrics(**removal_metrics(erased.entry.removal))
    record.report(account_markdown(account, folders))


def write_nothing_erased(nothing: NothingErased, record: RunRecord) -> str:
    """Write the record of a request that no training record belongs to; return it in a line.

    The run is not changed and has no entry of it, so there is no account.

    Args:
        nothing: the request.
        record: where it is written.
    """
    request = nothing.request
    run = nothing.run
    record.environment(
        trained_run=str(run.folder.resolve()),
        trained_digest=run.digest,
        nothing_erased=True,
        dataset=run.environment.get("dataset"),
    )
    record.add_metrics(
        removed=0,
        ids_requested=request.asked,
        ids_not_in_data=request.unknown,
        people_with_test_records_only=request.untrained,
        test_records=request.test_records,
    )
    ids = counted(request.asked, "requested id")
    test_people = counted(request.untrained, "person", "people")
    test_records = counted(request.test_records, "test record")
    words = (
        f"nothing to erase in this run: of {ids}, {request.unknown} name no record of its data, "
        f"and the others name {test_records} of {test_people}, which training did not use"
    )
    name = plain(run.folder.name)
    page = document(
        f"# Erasure: {name}",
        f"**{capital(words)}.** The run was not changed, and its digest is still {run.digest}.",
        "Other runs were not searched. Delete rows of test records from the data yourself.",
    )
    record.report(page)
    return words
