"""agt unlearn: carry out erasure requests: write the run's next state, and an account that others
can check.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.settings import plain_of
from agt_cli.command_settings.unlearn import check_unlearn
from agt_cli.configuration import read_digest_setting
from agt_cli.report.audit_files import remove_copies
from agt_cli.report.console import Console
from agt_cli.report.next_state import run_lock
from agt_cli.report.opening import check_edits, open_run
from agt_cli.report.record import RunRecord
from agt_cli.unlearn.account import ErasureReport
from agt_cli.unlearn.account_md import account_lines, exception_lines
from agt_cli.unlearn.account_tasks import open_tasks
from agt_cli.unlearn.erasure import (
    ErasureOrder,
    NothingErased,
    erase,
    make_account,
    reporting_change,
    write_account,
    write_nothing_erased,
)
from agt_cli.unlearn.rehearsal import rehearse


def configure(config: Mapping[str, Any]) -> ErasureOrder:
    """Validate the settings and the run, before any data is read.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    check_unlearn(config)
    folder = Path(str(config["run"]))
    digest = read_digest_setting(config, "digest")
    run_to_change = open_run(folder, "train", digest)
    check_edits(run_to_change, "agt unlearn")
    ids = config.get("ids")
    if ids is not None:
        ids = str(ids)
    return ErasureOrder(
        folder=folder,
        digest=digest,
        compute=config.get("compute"),
        ids=ids,
        by=config.get("by"),
        choice=config["method"],
        may_retrain=not config["forbid_retraining"],
        fresh=config["fresh"],
        output_dir=Path(str(config["output_dir"])),
        rehearse=config["rehearse"],
        may_be_unknown=config["unknown"] == "ignore",
    )


def run(order: ErasureOrder, record: RunRecord, console: Console) -> dict[str, Any]:
    """Carry out an erasure request and write its account, or try it on a copy of the run.

    Returns:
        What --json prints.
    """
    if order.rehearse:
        remove_copies(record.folder.parent)
        return rehearse(order, record, console)
    with run_lock(order.folder):
        erased = erase(order, console)
        if isinstance(erased, NothingErased):
            return _nothing_erased(erased, record, console)
        with reporting_change(erased.words, console, lambda: bool(erased.words)):
            account = make_account(order, erased)
            write_account(account, erased, record, order.place_names)
            account_digest = record.finish()
    _print_account(account, order, console)
    console.say(f"digest: {erased.digest}")
    console.say(f"account: {record.folder}, {account_digest}")
    console.note(
        "store both digests elsewhere: given as digest=..., each makes agt refuse a later change"
    )
    return {
        "account": plain_of(account),
        "digest": erased.digest,
        "account_digest": account_digest,
    }


def _print_account(account: ErasureReport, order: ErasureOrder, console: Console) -> None:
    """Print what an erasure did, what is left to do, and where the run is."""
    for line in (*account_lines(account), *exception_lines(account)):
        console.say(line)
    tasks = open_tasks(account, order.place_names)
    if tasks:
        console.say("what is left to do:")
    for number, task in enumerate(tasks, 1):
        console.say(f"  {number}. {task}")
    console.say(f"run folder: {order.folder}")


def _nothing_erased(nothing: NothingErased, record: RunRecord, console: Console) -> dict[str, Any]:
    """Write the record of a request that concerns no training record, and say so.

    Returns:
        What ``--json`` prints.
    """
    write_nothing_erased(nothing, record)
    digest = record.finish()
    console.say(nothing.sentence)
    console.say(f"run folder: {nothing.run.folder} (not changed)")
    console.say(f"digest: {nothing.run.digest}")
    console.say(f"record: {record.folder}, {digest}")
    return {"metrics": record.metrics, "digest": nothing.run.digest, "record_digest": digest}
