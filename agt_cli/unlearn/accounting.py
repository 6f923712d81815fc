"""The account of what ``erase`` did: its parts brought together, written, signed."""

from typing import Any

from agt.unlearning.account import Account, Asked, State, Waiting, account_of
from agt.unlearning.signature import PUBLIC, SIGNATURE, Signer
from agt_cli.report.record import RunRecord
from agt_cli.runs.waiting import abstentions
from agt_cli.unlearn.erasure import Erased, Order
from agt_cli.unlearn.job import removal_metrics
from agt_cli.unlearn.page import markdown
from agt_cli.unlearn.standing import standing
from agt_cli.unlearn.traces import search

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
        sweep=None if pending else search(erased.known, request, before, order.output_dir, order.ids),
        waiting=Waiting(job.units, distance) if pending else None,
        abstained=abstentions(before.folder) if waited else None,
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
