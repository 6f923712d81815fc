"""Requests to erase, carried out on a run as ``agt unlearn`` does, with a method that a test chooses."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agt.models.model import fit
from agt.unlearning.keys import as_words
from agt.unlearning.log import NAME as LOG
from agt.unlearning.log import Entry, Log
from agt.unlearning.promise import Promise, Removal
from agt_cli.report.console import Console
from agt_cli.report.finished import open_run
from agt_cli.report.record import RunRecord
from agt_cli.report.successor import Successor
from agt_cli.report.swap import hold, put
from agt_cli.runs.erased import key_of, prepare_without, told
from agt_cli.runs.queries import TrainedRun
from agt_cli.runs.trained import write_trained
from agt_cli.unlearn.job import Job, Method
from agt_cli.unlearn.pending import pending

QUIET = Console(quiet=True)


def again(job: Job, record: RunRecord, console: Console) -> Removal:
    """Train from scratch (a ``Method``)."""
    model = fit(job.prepared.problem(job.settings))
    write_trained(record, job.prepared, job.settings, model, 0.0)
    return Removal(Promise("retrain", True, 0.0, 0.0, True, ("trained again",)), job.count, 0.0, {}, ("trained",))


def erase(folder: Path, ids: Sequence[str], method: Method = again) -> tuple[Job, Removal]:
    """Erase the records of these ids, each its own unit, from a run."""
    with hold(folder):
        run = open_run(folder, "train")
        config = {"run": folder, "compute": run.config["compute"]}
        settings, log, key = TrainedRun.of(config).settings, Log.of(run), key_of(run)
        records, units = (as_words(key.names(np.array(ids, dtype=str), kind)) for kind in ("record", "unit"))
        prepared, erased = prepare_without(run, settings, QUIET, frozenset(records))
        waiting = len(log.waiting_units | {*units})
        job = Job(run, settings, prepared, erased, len(log.waiting | {*records}), waiting)
        with Successor(run) as record:
            removal = method(job, record, QUIET)
            record.environment(**told(run, prepared))
            kind = "pending" if method is pending else "removed"
            said = {"words": list(removal.promise.words)}
            entry = Entry(kind, removal.promise.method, "id", records, units, said, run.digest, record.state, key.check)
            record.write(LOG, log.append(entry).content)
            record.finish()
        put(folder)
    return job, removal
