"""The account of what ``erase`` did: its parts brought together, written, signed."""

from typing import Any

from agt.unlearning.account import Account, Asked, State, Waiting, account_of
from agt.unlearning.log import Entry, Log
from agt.unlearning.signature import PUBLIC, SIGNATURE, Signer
from agt_cli.report.finished import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.waiting import abstentions
from agt_cli.unlearn.erasure import Erased, Order
from agt_cli.unlearn.job import removal_metrics
from agt_cli.unlearn.page import markdown
from agt_cli.unlearn.standing import standing
from agt_cli.unlearn.traces import search

NAME = "account.json"


def account(order: Order, erased: Erased) -> Account:
    """All that can be said of the run's last update or request; looks for earlier answers and for traces.

    Raises:
        ConfigError: the run is not the one that was left, or a file beside it cannot be read.
    """
    entry, log, run = erased.entry, erased.log, open_run(order.folder, "train", erased.digest)
    removal, pending = entry.removal, entry.kind == "pending"
    asked = Asked(
        people=len(entry.units),
        records=len(entry.records),
        by=entry.by,
        hashes=len({*entry.records, *entry.units}),
        time=entry.time,
        pending=0 if pending else len(Log(log.entries[:-1]).waiting_units),
        untrained=entry.facts.get("untrained", 0),
    )
    left = int(run.metrics["n_train"])
    state = State(
        run=run.folder.name,
        before=entry.before,
        after=run.digest,
        records_before=left + removal.records,
        records_after=left,
        log=str(log.head),
        entry=entry.number,
    )
    judged = standing(run, log, erased.settings, erased.prepared, order.places)
    batch = log.batch(entry.number)
    states = {run.digest, *(each.before for each in batch)}
    return account_of(
        removal,
        asked=asked,
        state=state,
        training=entry.facts["training"],
        earlier=tuple(part for each in judged for part in each.earlier),
        sweep=None if pending else search(erased.wanted, run, order.places, order.ids),
        waiting=_waiting(entry, log) if pending else None,
        abstained=abstentions(run.folder, states) if batch[0].kind == "pending" else None,
    )


def _waiting(entry: Entry, log: Log) -> Waiting:
    units = len(log.waiting_units)
    return Waiting(units, units if int(entry.removal.facts.get("farthest", units)) >= units else None)


def write(account: Account, erased: Erased, signer: Signer | None, record: RunRecord) -> None:
    """account.json, its signature where a key is given, the page, and the numbers."""
    record.write(NAME, account.content)
    if signer is not None:
        record.write(SIGNATURE, signer.sign(account.content))
        record.write(PUBLIC, signer.public)
    told: dict[str, Any] = {"trained_run": str(erased.run.folder.resolve()), "trained_digest": account.state.after}
    record.environment(**told, dataset=erased.run.environment.get("dataset"))
    record.add_metrics(**removal_metrics(erased.entry.removal))
    record.report(markdown(account))
