"""``agt unlearn`` from a request to the run's next state: one process at a time, wholly or not at all."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt.unlearning.log import NAME as LOG
from agt.unlearning.log import By, Entry, Kind, Log
from agt.unlearning.promise import MethodName, Removal
from agt.unlearning.signature import Signer
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun, open_run
from agt_cli.report.successor import Successor
from agt_cli.report.swap import put
from agt_cli.runs.erased import prepare_without, told
from agt_cli.runs.prepare import RunSettings, located, settings_of
from agt_cli.runs.source import kept_head
from agt_cli.unlearn.job import Job
from agt_cli.unlearn.methods import METHODS, Choice, chosen
from agt_cli.unlearn.request import Known, Request, read_ids, requested


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
        output_dir: where other records of this run are looked for.
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


@dataclass(frozen=True)
class Erased:
    """What was done.

    Attributes:
        run: as it was.
        settings: it was trained with.
        known: its records before.
        request: that came.
        job: what the method was given.
        removal: what the method says.
        log: with the new entry.
        digest: of the run now.
    """

    run: FinishedRun
    settings: RunSettings
    known: Known
    request: Request
    job: Job
    removal: Removal
    log: Log
    digest: str

    @property
    def entry(self) -> Entry:
        """The request in the log."""
        return self.log.entries[-1]

    @property
    def waited(self) -> int:
        """Units whose erasure was pending before."""
        return len(self.known.log.waiting_units)


def erase(order: Order, console: Console) -> Erased:
    """Find out who asks, what is owed, and do it. The caller holds the run (``swap.hold``).

    Raises:
        ConfigError, DataError: nothing is asked for, or the request, the run or its data is not what it must be.
        CheckError: the method cannot keep its promise. Nothing is changed in any of these cases.
    """
    run = open_run(order.folder, "train", order.digest)
    recorded = located(run.config, run.environment.get("data_files") or {})
    settings = settings_of({**recorded, "compute": order.compute}, kept_head(run))
    method, known = chosen(order.choice, settings, order.fresh), Known.of(run, settings)
    request = _request(order, method, known)
    known.check(request)
    for note in request.notes:
        console.note(f"note: {note}")
    job = _job(order, run, settings, known, request, console)
    removal, log, digest = _carried_out(method, known, request, job, console)
    return Erased(run, settings, known, request, job, removal, log, digest)


def _request(order: Order, method: MethodName, known: Known) -> Request:
    """Who asks; nobody, where what is pending is carried out.

    Raises:
        ConfigError: nobody asks, and nothing is pending.
    """
    if order.ids is not None:
        return requested(known, read_ids(order.ids, known.source), order.by, order.ids)
    if not known.log.pending:
        raise ConfigError("ids=null: nobody asks, and nothing is pending: give ids=FILE")
    if method == "certificate":
        raise ConfigError("method=certificate: notes requests and carries none out: give ids=FILE, or method=auto")
    return Request(known.by, (), (), 0)


def _job(order: Order, run: FinishedRun, settings: RunSettings, known: Known, request: Request, console: Console) -> Job:
    """The data without those that go, and those themselves where the data still has them."""
    records = known.log.waiting | set(request.records)
    units = known.log.waiting_units | set(request.units)
    prepared, erased = prepare_without(run, settings, console, frozenset(request.records))
    return Job(run, settings, prepared, erased, len(records), len(units), order.may_retrain, order.fresh)


def _carried_out(
    method: MethodName, known: Known, request: Request, job: Job, console: Console
) -> tuple[Removal, Log, str]:
    """The run's next state: (what the method says, the log, the digest)."""
    kind: Kind = "pending" if method == "certificate" else "removed"
    with Successor(job.run) as record:
        removal = METHODS[method](job, record, console)
        record.environment(**told(job.run, job.prepared))
        log = known.log.append(_entry(kind, known, request, job, removal, record.state))
        record.write(LOG, log.content)
        digest = record.finish()
    put(job.run.folder)
    return removal, log, digest


def _entry(kind: Kind, known: Known, request: Request, job: Job, removal: Removal, state: str) -> Entry:
    promise, budget = removal.promise, removal.allowance
    left = {} if budget is None else {"spent": budget.spent, "total": budget.total, "unit": budget.unit}
    facts = {"removed": removal.records, "pending": job.units if kind == "pending" else 0, **left}
    names = (request.records, request.units)
    return Entry(kind, promise.method, request.by, *names, asdict(promise), job.run.digest, state, known.key.check, facts)
