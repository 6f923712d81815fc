"""The account of what ``erase`` did: its parts brought together, written, signed."""

from pathlib import Path
from typing import Any

import numpy as np

from agt.unlearning.account import Account, Asked, Place, State, Sweep, Waiting, account_of
from agt.unlearning.log import of_state
from agt.unlearning.signature import PUBLIC, SIGNATURE, Signer
from agt_cli.report.finished import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.waiting import abstentions
from agt_cli.unlearn.erasure import Erased, Order
from agt_cli.unlearn.job import removal_metrics
from agt_cli.unlearn.page import markdown
from agt_cli.unlearn.standing import standing
from agt_cli.unlearn.traces import Trace, Wanted, other_runs, sweep

NAME = "account.json"


def account(order: Order, erased: Erased) -> Account:
    """All that can be said of it; looks for earlier answers and for traces."""
    entry, log, before = erased.entry, erased.log, erased.run
    head = log.head
    if head is None:
        raise ValueError("an erasure has an entry")
    request, job, pending = erased.request, erased.job, entry.kind == "pending"
    asked = Asked(
        people=len(request.units),
        records=len(request.records),
        by=request.by,
        hashes=len({*request.records, *request.units}),
        time=entry.time,
        pending=0 if pending else erased.waited,
    )
    left = int(before.metrics["n_train"])
    state = State(
        run=before.folder.name,
        before=before.digest,
        after=erased.digest,
        records_before=left,
        records_after=left - erased.removal.records,
        log=str(head),
        entry=entry.number,
    )
    distance = job.units if int(erased.removal.facts.get("farthest", job.units)) >= job.units else None
    waited = pending or bool(erased.waited)
    judged = standing(before, log, erased.settings, job.prepared, order.output_dir)
    return account_of(
        erased.removal,
        asked=asked,
        state=state,
        training=float(before.metrics["seconds_training"]),
        earlier=tuple(part for each in judged for part in each.earlier),
        sweep=None if pending else searched(order, erased),
        waiting=Waiting(job.units, distance) if pending else None,
        abstained=abstentions(before.folder) if waited else None,
    )


def searched(order: Order, erased: Erased) -> Sweep:
    """Look for what was erased: in the run, beside it, and in the settings of the working directory."""
    run, job, outputs = erased.run, erased.job, order.output_dir
    left = job.prepared.loaded.train
    wholly = [unit for unit in np.unique(job.erased.units).tolist() if unit not in set(left.units.tolist())]
    now = set(open_run(order.folder, "train").manifest.files.values())
    wanted = Wanted(
        ids=tuple(dict.fromkeys([*erased.names, *job.erased.ids.tolist(), *wholly])),
        rows=job.erased.features,
        others=job.prepared.dataset.train.features,
        files={digest: name for name, digest in run.manifest.files.items() if of_state(name) and digest not in now},
    )
    folders = {"the run": order.folder, "other records": outputs, "settings": Path("conf"), "ledgers": Path("ledgers")}
    asked = () if order.ids in (None, "-") else (Path(str(order.ids)),)
    looked = [*sweep(wanted, folders, asked), *other_runs(wanted, outputs, order.folder)]
    return Sweep(tuple(_place(trace, outputs) for trace in looked), (_of_data(len(job.erased)), *wanted.words))


def _place(trace: Trace, outputs: Path) -> Place:
    """Without what else the machine's folders are called."""
    name = trace.place.replace(f"{outputs.resolve()}", outputs.name).replace(f"{Path.cwd()}/", "")
    return Place(name, trace.files, trace.hits, f"{trace.found or 'nothing found'} ({trace.how})")


def _of_data(still: int) -> str:
    """The owner's data, which is not ours to change."""
    if not still:
        return "the data that the run was trained on, which is its owner's: it has none of the erased records any more"
    return (
        f"the data that the run was trained on, which is its owner's: it still has {still} of the erased records, which no "
        "command on this run reads any more: delete their rows"
    )


def write(account: Account, removal_of: Erased, signer: Signer | None, record: RunRecord) -> None:
    """account.json, its signature where a key is given, the page, and the numbers."""
    record.write(NAME, account.content)
    if signer is not None:
        record.write(SIGNATURE, signer.sign(account.content))
        record.write(PUBLIC, signer.public)
    told: dict[str, Any] = {"trained_run": str(removal_of.run.folder.resolve()), "trained_digest": account.state.after}
    record.environment(**told, dataset=removal_of.run.environment.get("dataset"))
    record.add_metrics(**removal_metrics(removal_of.removal))
    record.report(markdown(account))
