"""``agt unlearn`` from a request to the run's next state: one process at a time, wholly or not at all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agt.errors import AgtError, ConfigError
from agt.folder import refusing
from agt.unlearning.log import NAME as LOG
from agt.unlearning.log import By, Entry, Kind, Log
from agt.unlearning.promise import MethodName, Removal
from agt.unlearning.signature import Signer
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun, manifest_digest, open_run
from agt_cli.report.successor import Successor
from agt_cli.report.swap import put, unsettled
from agt_cli.runs.erased import gone_of, prepare_without, told
from agt_cli.runs.prepare import Prepared, RunSettings, located, prepare, settings_of
from agt_cli.runs.source import kept_head
from agt_cli.runs.waiting import abstentions
from agt_cli.unlearn.job import Job
from agt_cli.unlearn.methods import METHODS, Choice, chosen
from agt_cli.unlearn.request import Known, Request, read_ids, requested
from agt_cli.unlearn.traces import Wanted


@dataclass(frozen=True)
class Order:
    """What a call of the command asks for.

    Attributes:
        folder: of the run.
        digest: that it must have; None: any.
        compute: how to compute now.
        ids: a file of ids, or -; None: nobody asks, what is pending is carried out.
        by: what they name; None: as the data has it.
        choice: of the method.
        may_retrain, fresh: as in ``Job``.
        signer: of the account; None: it is not signed.
        output_dir: where this command writes.
        rehearse: on a copy of the run alone.
    """

    folder: Path
    digest: str | None
    compute: Any
    ids: str | None
    by: By | None
    choice: Choice
    may_retrain: bool
    fresh: bool
    signer: Signer | None
    output_dir: Path
    rehearse: bool = False

    @property
    def places(self) -> tuple[Path, ...]:
        """Where other records of this run are looked for: where this command writes, and where the run was written."""
        home = next((folder.parent for folder in self.folder.resolve().parents if folder.name == "train"), None)
        return tuple(dict.fromkeys([self.output_dir.resolve(), *([] if home is None else [home])]))


@dataclass(frozen=True)
class Erased:
    """What was done, now or by an earlier command: an account of it is made of the run's log, and of this.

    Attributes:
        run: as it was.
        settings: it was trained with.
        prepared: its data of now, with the erased records that the data still has.
        log: with the entry that is accounted for, its last one.
        digest: of the run now.
        known, request: its records before, and who asked now; None: an earlier command did it.
    """

    run: FinishedRun
    settings: RunSettings
    prepared: Prepared
    log: Log
    digest: str
    known: Known | None = None
    request: Request | None = None

    @property
    def entry(self) -> Entry:
        """The request in the log."""
        return self.log.entries[-1]

    @property
    def wanted(self) -> Wanted:
        """What must not be found any more."""
        if self.known is None or self.request is None:
            return Wanted.later(self.run, self.settings, self.log)
        return Wanted.of(self.known, self.request, self.run)

    @property
    def words(self) -> str:
        """What an error afterwards must say first: nothing is undone."""
        return _words(self.run, self.log, self.digest)


@contextmanager
def owing(words: str, console: Console, decided: Callable[[], bool] = lambda: True) -> Iterator[None]:
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


def erase(order: Order, console: Console) -> Erased:
    """Find out who asks, what is owed, and do it. The caller holds the run (``swap.hold``).

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
    known = Known.of(run, settings)
    request = _request(order, method, known)
    known.check(request)
    for note in request.notes:
        console.note(f"note: {note}")
    job = _job(order, run, settings, known, request, console)
    log, digest = _carried_out(method, known, request, job, console)
    return Erased(run, settings, job.prepared, log, digest, known, request)


def _before(run: FinishedRun, settings: RunSettings, log: Log, console: Console) -> Erased:
    """What an earlier command did, for the account that it owed.

    Raises:
        ConfigError: its entry does not tell.
    """
    with refusing(run.folder, run.key):
        _ = log.entries[-1].removal
    nothing = "nobody asks" if log.pending else "nothing is pending"
    console.note(f"{nothing}; this is the account of entry {len(log.entries)} again")
    return Erased(run, settings, prepare(settings, console, gone_of(run)), log, run.digest)


def _request(order: Order, method: MethodName, known: Known) -> Request:
    """Who asks; nobody, where what is pending is carried out.

    Raises:
        ConfigError: nobody asks, and nobody ever did.
    """
    if order.ids is not None:
        return requested(known, read_ids(order.ids, known.source), order.by, order.ids)
    if not known.log.pending:
        raise ConfigError("ids=null: nobody asks, and nothing is pending: give ids=FILE")
    return Request(known.by, (), (), 0)


def _job(order: Order, run: FinishedRun, settings: RunSettings, known: Known, request: Request, console: Console) -> Job:
    """The data without those that go, and those themselves where the data still has them."""
    records = known.log.waiting | set(request.records)
    units = known.log.waiting_units | set(request.units)
    prepared, erased = prepare_without(run, settings, console, frozenset(request.records))
    return Job(run, settings, prepared, erased, len(records), len(units), order.may_retrain, order.fresh)


def _carried_out(method: MethodName, known: Known, request: Request, job: Job, console: Console) -> tuple[Log, str]:
    """The run's next state: (the log, the digest)."""
    kind: Kind = "pending" if method == "certificate" else "removed"
    with Successor(job.run) as record:
        removal = METHODS[method](job, record, console)
        record.environment(**told(job.run, job.prepared))
        log = known.log.append(_entry(kind, known, request, job, removal, record.state))
        record.write(LOG, log.content)
        digest = record.finish()
    folder = job.run.folder
    with owing(_words(job.run, log, digest), console, lambda: unsettled(folder) or manifest_digest(folder) == digest):
        put(folder)
    return log, digest


def _words(run: FinishedRun, log: Log, digest: str) -> str:
    noted, number = log.entries[-1].kind == "pending", len(log.entries)
    became, method = ("its request is noted", " method=certificate") if noted else ("its model is another now", "")
    return (
        f"run={run.folder}: WAS changed ({became}: entry {number} of its request log, digest {digest}), and only its "
        f"account is missing: agt unlearn run={run.folder}{method} writes that"
    )


def _entry(kind: Kind, known: Known, request: Request, job: Job, removal: Removal, state: str) -> Entry:
    promise, training = removal.promise, float(job.run.metrics["seconds_training"])
    facts = {"removal": removal.plain, "training": training, "untrained": request.untrained}
    names = (request.records, request.units)
    return Entry(kind, promise.method, request.by, *names, asdict(promise), job.run.digest, state, known.key.check, facts)
