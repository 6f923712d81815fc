"""Requests to erase, carried out on a run as ``agt unlearn`` does, with a method that a test
chooses.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agt.models.fitting import fit
from agt.settings import plain_of
from agt.unlearning.promise import Promise, Removal
from agt.unlearning.sentences import Remark
from agt_cli.report.console import Console
from agt_cli.report.next_state import commit, run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import NextState, RunRecord
from agt_cli.runs.erased import environment_facts, prepare_without, read_hash_key
from agt_cli.runs.prepare import write_trained
from agt_cli.runs.queries import TrainedRun
from agt_cli.unlearn.hash_key import as_words
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry
from agt_cli.unlearn.methods import ErasureJob, Method, pending

QUIET = Console(quiet=True)


def again(job: ErasureJob, record: RunRecord, console: Console) -> Removal:
    """Train from scratch (a ``Method``)."""
    model = fit(job.prepared.problem(job.settings))
    write_trained(record, job.prepared, job.settings, model, 0.0)
    return Removal(
        Promise("retrain", True, 0.0, 0.0, True, (Remark("retrained"),)), job.count, 0.0, {}, ()
    )


def erase(folder: Path, ids: Sequence[str], method: Method = again) -> tuple[ErasureJob, Removal]:
    """Erase the records of these ids, each its own unit, from a run."""
    with run_lock(folder):
        run = open_run(folder, "train")
        config = {"run": folder, "compute": run.config["compute"]}
        settings = TrainedRun.from_config(config).settings
        log = Log.of(run)
        key = read_hash_key(run)
        records, units = (
            as_words(key.names(np.array(ids, dtype=str), kind)) for kind in ("record", "unit")
        )
        prepared, erased = prepare_without(run, settings, QUIET, frozenset(records))
        waiting = len(log.waiting_units | {*units})
        job = ErasureJob(run, settings, prepared, erased, len(log.waiting | {*records}), waiting)
        with NextState(run) as record:
            removal = method(job, record, QUIET)
            record.environment(**environment_facts(run, prepared))
            kind = "pending" if method is pending else "removed"
            promise = plain_of(removal.promise)
            entry = RequestEntry(
                kind,
                removal.promise.method,
                "id",
                records,
                units,
                promise,
                run.digest,
                record.state,
                key.check,
            )
            record.write(REQUEST_LOG_FILE, log.append(entry).content)
            record.finish()
        commit(folder)
    return job, removal
