"""Compare an account, the report of an erasure, with its record and with the run's request log.

Formal guarantees
    - Every entry of an account is compared with the log of the run that it names. Its guarantee is
      recomputed from the run's settings, if agt has a formula for it.
    - What is not shown: that the model was computed as the account says.
"""

from dataclasses import replace

from agt.settings import plain_of
from agt.store.reading import Broken
from agt_cli.command_settings.unlearn import CERTIFICATE_OF_METHOD
from agt_cli.report.finished import ACCOUNT_FILE
from agt_cli.unlearn.account import ErasureReport, read_account
from agt_cli.unlearn.account_md import account_lines
from agt_cli.unlearn.erasure import StateAfterErasure, derive_account
from agt_cli.unlearn.log import Log, RequestEntry
from agt_cli.unlearn.methods import METHODS, removal_metrics
from agt_cli.verify.comparison import check_match
from agt_cli.verify.folders import Record, check_version
from agt_cli.verify.removals import check_promise, removal_bounds
from agt_cli.verify.requests import requests_of


def read_account_of(record: Record) -> ErasureReport | None:
    """Read and return the account in an erasure's record, and add findings about it.

    Returns:
        None: there is no account, or none that is sound; the record's findings say what is wrong.
    """
    why_none = ""
    if record.config.get("rehearse"):
        why_none = "the run is a rehearsal on a copy (dry_run=true), which erased nothing"
    elif record.environment.get("nothing_erased") is True:
        why_none = (
            "the request named no training record of the run (unknown=ignore), so nothing was "
            "erased"
        )
    if why_none and not record.holds(ACCOUNT_FILE):
        record.findings.note(
            ACCOUNT_FILE,
            f"this folder has no {ACCOUNT_FILE} (the report of an erasure), because {why_none}",
        )
        return None
    with record.findings.recording_errors(ACCOUNT_FILE):
        account = read_account(record.read(ACCOUNT_FILE))
        check_version(account.agt, ACCOUNT_FILE, record)
        record.findings.ok(
            ACCOUNT_FILE,
            f"the entries of {ACCOUNT_FILE}, the report of the erasure (format "
            f"{account.schema}), do not contradict each other",
        )
        return account
    return None


def _check_subject(record: Record, account: ErasureReport) -> None:
    """Raise Broken if an account lies in a rehearsal's record, or is about another state."""
    if record.config.get("rehearse"):
        raise Broken(
            f"config.yaml has rehearse=true, but the folder contains {ACCOUNT_FILE}, which a "
            "rehearsal does not write"
        )
    named = record.environment.get("trained_digest")
    after = account.state.after
    if after != named:
        raise Broken(
            f"the digest of the run after the erasure is {named!r} in env.json (trained_digest), "
            f"but {after!r} in {ACCOUNT_FILE} (state.after)"
        )


def check_account(account: ErasureReport, record: Record, run: Record | None) -> tuple[str, ...]:
    """Check an account against its own record and its run; return what it says, a line each.

    Args:
        account: the report of the erasure.
        record: the record of the erasure.
        run: the run now, in the account's state or a later one; None: it could not be read.
    """
    record.run_check(ACCOUNT_FILE, _check_subject, account)
    record.run_check("metrics", _check_numbers, account)
    log = Log() if run is None else requests_of(run)
    if run is None or not log.entries:
        record.findings.unchecked(
            "entry",
            f"{ACCOUNT_FILE} was not compared with its run, because the run or its request log "
            "could not be read",
        )
    else:
        record.run_check("entry", _check_entry, account, log, run)
    return tuple(account_lines(account))


def _check_numbers(record: Record, account: ErasureReport) -> None:
    """Raise Broken unless metrics.json has the account's numbers."""
    record.check_metrics(ACCOUNT_FILE, **removal_metrics(account.removal))


def _check_entry(record: Record, account: ErasureReport, log: Log, run: Record) -> str:
    """Check that an account follows from the log's entry and the run's states.

    Args:
        record: the record of the erasure.
        account: its report.
        log: the run's requests.
        run: the run now.

    Returns:
        A sentence on what was checked.

    Raises:
        Broken: another account follows from them.
    """
    _check_guarantee_and_budget(account, run, record)
    state = account.state
    entries = len(log.entries)
    if state.log_entries > entries:
        raise Broken(
            f"{ACCOUNT_FILE} names entry {state.log_entries} of the request log, but the log has "
            f"only {entries} entries, so the run may be an older copy: verify with the present "
            "folder of the run"
        )
    entry = log.entries[state.entry - 1]
    _check_kind_and_count(account, log, entry)
    derived = _derive_report(account, log, run)
    # Every version that wrote this form lists the same limits of an account.
    derived = replace(derived, agt=account.agt)
    check_match(ACCOUNT_FILE, plain_of(account), "the run's request log", plain_of(derived))
    record.findings.unchecked(
        "earlier, sweep, abstained",
        f"what {ACCOUNT_FILE} says of earlier results, of other training runs and of unanswered "
        "queries (its fields 'earlier', 'sweep' and 'abstained') could not be checked, because the "
        "request log does not contain it",
        "to have it looked at again, type agt unlearn run=... without ids=..., which writes a new "
        "account",
    )
    return (
        f"the erasure that {ACCOUNT_FILE} reports matches entry {state.entry} of the run's "
        "request log"
    )


def _check_kind_and_count(account: ErasureReport, log: Log, entry: RequestEntry) -> None:
    """Raise Broken unless an entry of the log is of the account's kind and number of records.

    Args:
        account: the report of the erasure.
        log: the run's requests.
        entry: the one that the account names.
    """
    recorded = account.removal
    if entry.kind != ("removed" if account.updated else "pending"):
        method = recorded.promise.method
        raise Broken(
            f"{ACCOUNT_FILE} names method={method}, but entry {account.state.entry} of the run's "
            f"request log is of the kind '{entry.kind}', to which this method does not belong"
        )
    removed: set[str] = set()
    if account.updated:
        removed = removed.union(*(earlier.records for earlier in log.batch(entry.number)))
    if len(removed) != recorded.records:
        raise Broken(
            f"the number of removed records is {recorded.records} in {ACCOUNT_FILE} "
            f"(removal.records), but {len(removed)} in the run's request log"
        )


def _derive_report(account: ErasureReport, log: Log, run: Record) -> ErasureReport:
    """Return the report that follows from the log's entry and the run's states.

    Fields that do not follow from them are taken from the account.

    Args:
        account: the report that is checked.
        log: the run's requests.
        run: the run now.
    """
    state = account.state
    entry = log.entries[state.entry - 1]
    log_then = Log(log.entries[: state.log_entries])
    # the state after it is the one that the next entry replaced, or the present one
    digests = [*(entry.before for entry in log.entries), run.manifest.digest]
    return derive_account(
        entry,
        log_then,
        StateAfterErasure(state.run, digests[state.log_entries], state.records_after),
        training=entry.facts.get("training", account.training),
        earlier=account.earlier,
        sweep=account.sweep,
        abstained=account.abstained,
    )


def _check_guarantee_and_budget(account: ErasureReport, run: Record, record: Record) -> None:
    """Check what an account says of the guarantee and the budget, if a certificate has the method.

    They are computed from the run's settings and from the gradient that the method left.

    Args:
        account: the report of the erasure.
        run: the run now.
        record: the record of the erasure, to whose findings the check is added.

    Raises:
        Broken: the account says something else.
    """
    method = account.removal.promise.method
    if method not in METHODS:
        raise Broken(
            f"{ACCOUNT_FILE} names method={method}, which this version of agt does not have: "
            "verify with the version of agt that env.json names"
        )
    if method not in CERTIFICATE_OF_METHOD:
        return
    bounds = removal_bounds(run, method)
    recorded = account.removal.budget
    if recorded is None or recorded.total != bounds.total or recorded.spent > bounds.total:
        raise Broken(
            f"the removal budget in {ACCOUNT_FILE} is {recorded}, but according to the run's "
            f"settings at most {bounds.total!r} may be spent in total"
        )
    if account.state.after == run.manifest.digest and recorded.spent != bounds.spent:
        raise Broken(
            f"{ACCOUNT_FILE} says that {recorded.spent!r} of the removal budget is spent, but "
            f"according to the run's files {bounds.spent!r} is spent"
        )
    check_promise(plain_of(account.removal.promise), run, method, recorded.spent)
    record.findings.ok(
        "removal budget",
        f"the removal budget was recomputed and equals the one in {ACCOUNT_FILE}: "
        f"{recorded.spent:.6g} of {bounds.total:.6g} spent",
    )
