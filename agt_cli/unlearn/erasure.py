"""Carry out a request of ``agt unlearn``: put the run into its next state, and write the account.

An account is the report of an erasure. One process at a time may change a run, and a change is made
as a whole or not at all.
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
from agt.unlearning.promise import MethodName
from agt_cli.command_settings.unlearn import By
from agt_cli.places import nothing_requested
from agt_cli.report.console import Console
from agt_cli.report.finished import ACCOUNT_FILE, Run, has_pending_commit, manifest_digest
from agt_cli.report.markdown import capitalize_first, document, escape_markdown
from agt_cli.report.next_state import commit
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState, RunRecord
from agt_cli.report.replaced import output_folders_of
from agt_cli.runs.erased import (
    environment_facts,
    erased_predicate,
    prepare_without,
    read_hash_key,
)
from agt_cli.runs.pending import abstentions
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    prepare,
    read_settings,
    stored_network,
    with_data_paths,
)
from agt_cli.unlearn.account import (
    OUTSIDE,
    PENDING,
    VERSION,
    Asked,
    Earlier,
    ErasureReport,
    StateChange,
    TraceSearch,
    Waiting,
)
from agt_cli.unlearn.account_md import account_markdown
from agt_cli.unlearn.earlier import UpdatedRun, judge_earlier, releases_of_state
from agt_cli.unlearn.ids_file import read_ids
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry
from agt_cli.unlearn.methods import (
    METHODS,
    ErasureJob,
    check_can_train,
    choose_method,
    removal_metrics,
)
from agt_cli.unlearn.request import Request, request_for
from agt_cli.unlearn.traces import SEARCHED_RUNS, TraceTargets, search, searched_runs
from agt_cli.unlearn.training_records import TrainingRecords


@dataclass(frozen=True)
class ErasureOrder:
    """The settings of a call of ``agt unlearn``.

    Attributes:
        folder: the folder of the run.
        digest: the digest that the run must have; None: any.
        compute: the settings ``compute`` of this call, which replace the run's.
        ids: a file of ids, or "-" for standard input; None: no new request, so pending requests
            are carried out.
        by: whether ids name records or units (people); None: units where the data has some, else
            records.
        choice: the setting ``method``.
        may_retrain: whether a method that cannot keep its promise otherwise may train from scratch.
        fresh: whether noise, seeds and shards are drawn again.
        output_dir: the folder of records that this command writes into.
        rehearse: erase from a copy of the run only.
        may_be_unknown: True: ids that name no record of the run's data are left out; False: they
            are refused.
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
        """The folders ``places`` as text, relative to the working directory if below it."""
        working_directory = Path.cwd()
        names = []
        for folder in self.places:
            if folder.is_relative_to(working_directory):
                folder = folder.relative_to(working_directory)
            names.append(str(folder))
        return tuple(names)

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders in which other records of this run are looked for, each once.

        They are the one that this command writes into, and those that the run was written into.
        """
        return tuple(dict.fromkeys([self.output_dir.resolve(), *output_folders_of(self.folder)]))


@dataclass(frozen=True)
class ErasureOutcome:
    """An entry of a run's request log that was carried out, from which an account can be made.

    Attributes:
        run: the run as it was before; if an earlier command made the entry, as it is now.
        settings: the settings of the run.
        prepared: the run's present data, and the erased records that the data still has.
        log: the request log; the account is about its last entry.
        digest: the digest of the run now.
        targets: the erased records in the form in which other runs are searched for them.
        words: a sentence that the run was changed, with which every error message afterwards
            begins; empty: an earlier command changed the run.
    """

    run: Run
    settings: RunSettings
    prepared: Prepared
    log: Log
    digest: str
    targets: TraceTargets
    words: str = ""

    @property
    def entry(self) -> RequestEntry:
        """The request in the log."""
        return self.log.entries[-1]


@dataclass(frozen=True)
class NothingErased:
    """A request that names no training record of the run.

    Attributes:
        run: the run, which was not changed.
        request: the request.
    """

    run: Run
    request: Request

    @property
    def sentence(self) -> str:
        """How many ids name no record of the data, and what the other ids name.

        The sentence begins with a small letter and has no full stop.
        """
        request = self.request
        ids = f"{counted(request.asked, 'requested id')}{self._kind_of_ids}"
        test_people = counted(request.untrained, "person", "people")
        test_records = counted(request.test_records, "test record")
        only_test = f"{test_records} of {test_people}, which training did not use"
        nothing = "nothing to erase from the model"
        if not request.unknown:
            return (
                f"{nothing}: {ids} of the request name only {only_test}. Delete the rows of these "
                "records from the data yourself"
            )
        return (
            f"{nothing}: of {ids}, {request.unknown} name no record of its data, and the others "
            f"name {only_test}"
        )

    @property
    def _kind_of_ids(self) -> str:
        """What the ids of the request name, in parentheses; empty: no setting says it."""
        id_kind = self.request.by
        dataset = self.run.config["dataset"]
        if dataset.get(id_kind) is not None:
            return f" (ids of the column '{dataset[id_kind]}', dataset.{id_kind})"
        if "id" in dataset and dataset["id"] is None:
            # An id of a column may look like such a hash, and cannot be found here.
            return " (hashes of the content of records, dataset.id=null, and no ids of a column)"
        return ""


@contextmanager
def reporting_change(change: str, console: Console, decided: Callable[[], bool]) -> Iterator[None]:
    """Run the body; if an error stops it, say that the run was changed nevertheless.

    Args:
        change: a sentence on what was changed, and how to get the account.
        console: prints the sentence if the error is an interruption or a bug, which is then raised
            as it is.
        decided: returns whether the change is in effect when the error occurs; if not, errors are
            raised unchanged.

    Raises:
        AgtError: the body failed with an AgtError or an OSError. The exit code is 1 in any case,
            because codes for mistakes and failed checks would mean that nothing was changed.
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
    """Carry out a request, or requests that are pending, and change the run.

    Without a request, and without a pending one that the method could carry out, nothing is changed
    and the last entry of the request log is returned again.

    Args:
        order: the settings of the command. The caller must hold the lock of the run
            (``run_lock``).
        console: prints notes and progress.

    Returns:
        The entry that was carried out. ``NothingErased`` if no id names a training record:
        then nothing was changed, and requests that were pending still are.

    Raises:
        ConfigError, DataError: there is nothing to do, or the request, the run or its data is not
            as it must be. Nothing was changed.
        CheckError: the method cannot keep its promise. Nothing was changed.
        AgtError: an error occurred after the run was changed (``reporting_change``).
    """
    run = open_run(order.folder, "train", order.digest)
    log = Log.of(run)
    abstentions(run.folder, ())  # called because it raises: the account needs this file later
    recorded = with_data_paths(run.config, run.environment.get("data_files") or {})
    settings = read_settings({**recorded, "compute": order.compute}, stored_network(run))
    method = choose_method(order.choice, settings, run, order.fresh)
    if order.ids is None and log.entries and (method == PENDING or not log.pending):
        return _reopen_outcome(run, settings, log, console)
    check_can_train(method, run)
    known = TrainingRecords.of(run, settings)
    if order.ids is not None:
        ids = read_ids(order.ids, known.source)
        request = request_for(known, ids, order.by, order.ids, order.may_be_unknown)
    elif known.log.pending:
        request = Request(known.by, (), (), 0)
    else:
        raise nothing_requested(order.folder)
    known.check(request.records)
    for note in request.notes:
        console.note(f"note: {note}")
    if order.ids is not None and not request.records:
        return NothingErased(run, request)
    return _carry_out(order, method, settings, known, request, run, console)


def _reopen_outcome(run: Run, settings: RunSettings, log: Log, console: Console) -> ErasureOutcome:
    """Print a note, load the data again, and return a run's last erasure as the present outcome.

    Its account is then written again. Nothing of the run is changed.

    Args:
        run: the run as it is now.
        settings: its settings.
        log: its request log, with at least one entry.
        console: prints a note that nothing is changed.

    Raises:
        ConfigError: the entry lacks what an account needs.
    """
    with broken_as_config_error(run.folder, run.key):
        _ = log.entries[-1].removal  # read only because it raises
    reason = "ids=... is not given" if log.pending else "no request is pending"
    number = len(log.entries)
    console.note(
        f"{reason}, so this command only writes the account of the erasure (entry {number} of "
        "the request log) again"
    )
    prepared = prepare(settings, console, erased_predicate(run))
    targets = TraceTargets.of(run, read_hash_key(run), log, [prepared.erased], prepared.loaded)
    return ErasureOutcome(run, settings, prepared, log, run.digest, targets)


def _carry_out(
    order: ErasureOrder,
    method: MethodName,
    settings: RunSettings,
    known: TrainingRecords,
    request: Request,
    run: Run,
    console: Console,
) -> ErasureOutcome:
    """Put a run into the state after a request: update its model, or note the request as pending.

    Args:
        order: the settings of the command.
        method: the method that ``order.choice`` stands for.
        settings: the settings of the run.
        known: the training records and the request log of the run.
        request: the request; without records, only pending requests are carried out.
        run: the run as it is now.
        console: prints notes and progress.

    Raises:
        AgtError: an error occurred; it says so if the run had been changed by then.
    """
    prepared, erased = prepare_without(run, settings, console, frozenset(request.records))
    job = ErasureJob(
        run=run,
        settings=settings,
        prepared=prepared,
        erased=erased,
        # Requests that are pending are carried out together with this one.
        count=len(known.log.waiting.union(request.records)),
        units=len(known.log.waiting_units.union(request.units)),
        may_retrain=order.may_retrain,
        fresh=order.fresh,
    )
    _note_releases(releases_of_state(run.digest, order.places), console, order.rehearse)
    all_erased = (erased, known.erased_earlier)
    targets = TraceTargets.of(run, known.key, known.log, all_erased, prepared.loaded, request)
    facts: dict[str, Any] = {
        "training": float(run.metrics["seconds_training"]),
        "untrained": request.untrained,
        "test_records": request.test_records,
        "unknown": request.unknown,
        SEARCHED_RUNS: {},
    }
    if not order.rehearse:
        # Stored now, because the ids are not known any more when the account is written again.
        facts[SEARCHED_RUNS] = searched_runs(targets, run.folder, order.places)
    with NextState(run) as record:
        removal = METHODS[method](job, record, console)
        record.environment(**environment_facts(run, prepared))
        entry = RequestEntry(
            kind="pending" if method == PENDING else "removed",
            method=removal.promise.method,
            by=request.by,
            records=request.records,
            units=request.units,
            promise=plain_of(removal.promise),
            before=run.digest,
            after=record.state,
            key=known.key.check,
            facts={"removal": removal.plain, **facts},
        )
        log = known.log.append(entry)
        record.write(REQUEST_LOG_FILE, log.content)
        digest = record.finish()
    words = _describe_change(run, log.entries[-1], digest)

    def is_changed() -> bool:
        return has_pending_commit(run.folder) or manifest_digest(run.folder) == digest

    with reporting_change(words, console, is_changed):
        commit(run.folder)
    return ErasureOutcome(run, settings, prepared, log, digest, targets, words)


def _note_releases(releases: Sequence[Path], console: Console, is_rehearsal: bool) -> None:
    """Say that ``agt verify`` can no longer recompute the claims of some releases afterwards.

    Args:
        releases: the folders of the releases that were made from the run's present state.
        console: prints the note; nothing is printed if there are no releases.
        is_rehearsal: the run itself is not changed, so there is time to prepare the erasure.
    """
    if not releases:
        return
    count = counted(len(releases), "release was", "releases were")
    made = f"note: {count} made from the present state of this run ({few(releases)})"
    if is_rehearsal:
        console.note(
            f"{made}. When the run itself is erased from, agt verify can no longer recompute "
            "their claims. So before that, store the page of each: agt verify FOLDER page=FILE"
        )
    else:
        console.note(f"{made}. From now on, agt verify can no longer recompute their claims")


def _describe_change(run: Run, entry: RequestEntry, digest: str) -> str:
    """Return a sentence that a run was changed, and with which command the account is written.

    Args:
        run: the run as it was before.
        entry: the new entry of its request log.
        digest: the digest of the run now.
    """
    change = "the model was replaced by the updated one"
    command = f"agt unlearn run={run.folder}"
    if entry.kind == "pending":
        change = "the erasure request was noted"
        command = f"{command} method={entry.method}"
    return (
        f"run={run.folder}: the run WAS changed ({change}; entry {entry.number} of its request "
        f"log, digest {digest}), but the account of this erasure was not written. To write it, "
        f"type {command}"
    )


@dataclass(frozen=True)
class StateAfterErasure:
    """What an account needs to know of a run after its update or request.

    Attributes:
        folder_name: the name of the run's folder.
        digest: the run's digest.
        records: how many records the run is trained on.
    """

    folder_name: str
    digest: str
    records: int


def make_account(order: ErasureOrder, erased: ErasureOutcome) -> ErasureReport:
    """Return the account (the report) of the last entry of a run's request log.

    Folders of other runs are read: those that were made from earlier states of this run, and, if
    records were erased, other training runs that may still contain them. No file is changed.

    Args:
        order: what the command was asked for: the run's folder, and where other runs are.
        erased: what was done to the run, now or by an earlier command.

    Raises:
        ConfigError: the run's digest is no longer ``erased.digest``, or a file that is needed
            cannot be read.
    """
    entry = erased.entry
    log = erased.log
    run = open_run(order.folder, "train", erased.digest)
    updated = UpdatedRun(run, log, erased.settings, erased.prepared)
    earlier = judge_earlier(updated, order.places)
    # A pending request erased nothing yet, so no other run can have kept what it erased.
    sweep = None
    if entry.kind != "pending":
        sweep = search(erased.targets, run, order.places, order.ids)
    # Queries are left unanswered only while requests are pending: in any of the states from the
    # first of these requests until now.
    batch = log.batch(entry.number)
    abstained = None
    if batch[0].kind == "pending":
        states = {run.digest, *(request.before for request in batch)}
        abstained = abstentions(run.folder, states)
    return derive_account(
        entry,
        log,
        StateAfterErasure(run.folder.name, run.digest, int(run.metrics["n_train"])),
        training=entry.facts["training"],
        earlier=earlier,
        sweep=sweep,
        abstained=abstained,
    )


def derive_account(
    entry: RequestEntry,
    log: Log,
    after: StateAfterErasure,
    *,
    training: float | None,
    earlier: tuple[Earlier, ...],
    sweep: TraceSearch | None,
    abstained: int | None,
) -> ErasureReport:
    """Return the account of an entry of the request log, without reading any file.

    ``agt verify`` derives an account again with this function, and compares the two.

    Args:
        entry: the entry that the account is about.
        log: the request log as it was when the account was made.
        after: the run as it was when the account was made.
        training: seconds that training the run took; None: not recorded.
        earlier, sweep, abstained: the fields of ``ErasureReport`` with these names, which do not
            follow from the log.

    Raises:
        Superseded, Broken: the entry does not record what was done (``RequestEntry.removal``).
    """
    removal = entry.removal
    state = StateChange(
        run=after.folder_name,
        before=entry.before,
        after=after.digest,
        records_before=after.records + removal.records,
        records_after=after.records,
        log=str(log.head),
        entry=entry.number,
    )
    waiting = None
    if entry.kind == "pending":
        people = len(log.waiting_units)
        # If no stable distance can be as large as the number of people, no query is answered. An
        # entry that does not record the largest one has no such limit.
        max_distance = int(removal.facts.get("farthest", people))
        waiting = Waiting(people, distance=people if max_distance >= people else None)
    return ErasureReport(
        schema=VERSION,
        agt=__version__,
        asked=_requested_in(entry, log),
        removal=removal,
        state=state,
        outside=OUTSIDE,
        training=training,
        waiting=waiting,
        earlier=earlier,
        sweep=sweep,
        abstained=abstained,
    )


def _requested_in(entry: RequestEntry, log: Log) -> Asked:
    """Return how many people, records and ids an entry of a request log names.

    Args:
        entry: the entry.
        log: the log, in which it may be followed by others.
    """
    people_pending_before = 0
    if entry.kind != "pending":
        people_pending_before = len(Log(log.entries[: entry.number - 1]).waiting_units)
    test_only = entry.facts.get("untrained", 0)
    return Asked(
        people_requested=len(entry.units) + test_only,
        people_with_training_records=len(entry.units),
        people_with_test_records_only=test_only,
        training_records=len(entry.records),
        by=entry.by,
        hashes_in_log=len({*entry.records, *entry.units}),
        time=entry.time,
        people_pending_before=people_pending_before,
        test_records=entry.facts.get("test_records"),
        ids_not_in_data=entry.facts.get("unknown", 0),
    )


def write_account(
    account: ErasureReport, erased: ErasureOutcome, record: RunRecord, folders: Sequence[str]
) -> None:
    """Write account.json and the page, and add environment and metrics to the record.

    Args:
        account: the report of the erasure.
        erased: what was done to the run.
        record: the record of this command.
        folders: the folders that were searched, as a command line names them.
    """
    record.write(ACCOUNT_FILE, account.content)
    record.environment(
        trained_run=str(erased.run.folder.resolve()),
        trained_digest=account.state.after,
        dataset=erased.run.environment.get("dataset"),
    )
    record.add_metrics(**removal_metrics(erased.entry.removal))
    record.report(account_markdown(account, folders))


def write_nothing_erased(nothing: NothingErased, record: RunRecord) -> None:
    """Write environment, metrics and the page of a request that names no training record.

    There is no account, because the run was not changed and its request log has no entry of the
    request.

    Args:
        nothing: the run and the request.
        record: the record of this command.
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
    page = document(
        f"# Erasure: {escape_markdown(run.folder.name)}",
        f"**{capitalize_first(nothing.sentence)}.** The run was not changed, and its digest is "
        f"still {run.digest}.",
        "Other runs were not searched. Delete rows of test records from the data yourself.",
    )
    record.report(page)
