"""Compare what a run and an account say of an erasure with the run's request log.

An account is the report of an erasure; the request log has an entry for each request of a run.

Formal guarantees
    - Every entry of an account is compared with the log of the run that it names. Its guarantee is
      recomputed from the run's settings, if agt has a formula for it.
    - The request log is not believed: its chain is followed from the first line; the state that its
      last entry names is recomputed from the manifest; the earlier states are those that env.json
      lists, in their order; and no erased record is in the index.
    - A record that was made from a state which the run no longer has is recognised by the digest
      that an entry of the log replaced.
    - What is not shown: that the model was computed as the account says.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os.path import lexists
from pathlib import Path
from typing import Any

from agt.errors import AgtError, Superseded, counted
from agt.facts import Standing
from agt.models.kind import CertificateKind, RemovalBounds
from agt.models.kinds import certificate_config
from agt.models.shards import SHARDS, read_shards
from agt.settings import plain_of
from agt.store.manifest import Manifest
from agt.store.reading import Broken, read_file
from agt_cli.command_settings.unlearn import CERTIFICATE_OF_METHOD
from agt_cli.report.finished import ACCOUNT_FILE
from agt_cli.report.replaced import check_not_replaced, output_folders_of
from agt_cli.unlearn.account import ErasureReport, read_account
from agt_cli.unlearn.account_md import account_lines, guarantee_text
from agt_cli.unlearn.erasure import StateAfterErasure, derive_account
from agt_cli.unlearn.hash_key import KEY_FILE, HashKey, as_words
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry
from agt_cli.unlearn.methods import METHODS, removal_metrics
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE, Index
from agt_cli.verify.comparison import check_match
from agt_cli.verify.folders import Record, check_version


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
    _check_spent(account, run, record)
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


def _check_spent(account: ErasureReport, run: Record, record: Record) -> None:
    """Check the guarantee and the budget of a kind's own method.

    They are worked out from the run's settings and from what the method left.

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


def check_state(record: Record) -> None:
    """Raise Broken if a record is of a state that an erasure replaced."""
    check_not_replaced(record.digest, record.folder, output_folders_of(record.folder), "path")


def check_requests(record: Record) -> str | None:
    """Check the request log of a training run against everything else that the run says.

    Returns:
        What was checked, in words; None: the run has no request log.

    Raises:
        Broken: they do not match.
    """
    if not record.holds(REQUEST_LOG_FILE):
        if record.environment.get("succeeds"):
            raise Broken(
                "env.json names earlier states of this run (in its field 'succeeds'), so "
                f"manifest.json should list the request log {REQUEST_LOG_FILE}, but does not"
            )
        return None
    log = Log.read(record.read(REQUEST_LOG_FILE))
    if log.head is None:
        raise Broken(
            f"the request log {REQUEST_LOG_FILE} has no entries, but is listed in manifest.json"
        )
    log.check_state(record.manifest.files)
    record.findings.ok(
        "state",
        f"the model's files match those that entry {log.head.count} of the request log records",
    )
    _check_succession(log, record)
    _check_index(log, record)
    last = log.entries[-1]
    if last.method in CERTIFICATE_OF_METHOD:
        check_promise(last.promise, record, last.method, removal_bounds(record, last.method).spent)
    return (
        f"the request log has {log.head.count} entries, each linked to the previous one by its "
        f"hash; the last entry has the number and hash {log.head}"
    )


def check_shards(record: Record) -> str | None:
    """Check that the members of a training run were trained on as many records as the run has.

    A member that was not trained again, although one of its records was erased, has more.

    Raises:
        Broken: the numbers differ.
    """
    model = record.rebuilt_model
    if model is None or not record.holds(SHARDS):
        return None
    shards = read_shards(record, model.problem.settings.ensemble.members)
    trained_on = sum(shard.records or 0 for shard in shards)
    remaining = record.metrics["n_train"]
    if trained_on != remaining:
        raise Broken(
            f"the ensemble's members were trained on {trained_on:,} records ({SHARDS}), but the "
            f"run has {remaining:,} training records (metrics.json): a member still depends on "
            "records that were erased, or lacks some. Train again"
        )
    return f"the ensemble's members were trained on {counted(trained_on, 'record')}, all of the run"


def check_record_count(record: Record) -> str | None:
    """Check that a training run has no more training records than its index lists.

    Raises:
        Broken: metrics.json counts more, or no positive number of them.
    """
    if not record.holds(RECORD_INDEX_FILE):
        return None
    listed = len(Index.read(record.read(RECORD_INDEX_FILE)))
    count = record.metrics.get("n_train")
    if type(count) is not int or not 0 < count <= listed:
        raise Broken(
            f"metrics.json says n_train = {count}, but {RECORD_INDEX_FILE} lists {listed} "
            "training records"
        )
    return f"{RECORD_INDEX_FILE} lists the run's {counted(count, 'training record')}"


def requests_of(record: Record) -> Log:
    """Return the request log of a run; empty: it has none, or none that is sound."""
    with suppress(Broken, ValueError, AgtError):
        if record.holds(REQUEST_LOG_FILE):
            return Log.read(record.read(REQUEST_LOG_FILE))
    return Log()


def erased_words(record: Record) -> Iterator[str]:
    """Yield sentences on the erasures of a run, carried out and pending, by its request log."""
    log = requests_of(record)
    if log.done:
        last = log.done[-1]
        units = {unit for entry in log.done for unit in entry.units}
        people = counted(len(units), "person", "people")
        records = counted(len(log.erased), "record")
        yield (
            f"erased from the run: {records} of {people}; the last update used method={last.method}"
        )
        # An early version of agt recorded it as sentences, which are not read.
        with suppress(Superseded, Broken):
            yield f"guarantee of the last update: {guarantee_text(last.removal.promise)}"
    if log.pending:
        people = counted(len(log.waiting_units), "person", "people")
        yield (
            f"erasure still pending: {people}, whose records are still in the model; until the "
            "update, only queries that do not depend on these records are answered"
        )


def _check_succession(log: Log, record: Record) -> None:
    """Check that the earlier states of a run are those that env.json lists.

    Raises:
        Broken: they are not, or a state comes twice.
    """
    in_environment = record.environment.get("succeeds")
    in_log = [entry.before for entry in log.entries]
    states = len(in_log)
    if in_environment != in_log:
        raise Broken(
            "env.json (in its field 'succeeds') does not list the same earlier states of this run "
            f"as the request log {REQUEST_LOG_FILE}, which names {states}"
        )
    if len({*in_log, record.manifest.digest}) != states + 1:
        raise Broken(
            f"the request log {REQUEST_LOG_FILE} names the same state of this run more than once"
        )
    record.findings.ok(
        "succession",
        f"env.json and {REQUEST_LOG_FILE} list the same {states} earlier states of this run",
    )


def _check_index(log: Log, record: Record) -> None:
    """Check that no erased record is in the index of records, and that all waiting ones are.

    Raises:
        Broken: it is not so, or the index does not match the run.
    """
    index = Index.read(record.read(RECORD_INDEX_FILE))
    indexed = set(as_words(index.ids))
    if len(indexed) != len(index):
        raise Broken(f"{RECORD_INDEX_FILE} lists a record twice, so it was altered or damaged")
    if any(entry.key != index.key for entry in log.entries):
        raise Broken(
            f"{RECORD_INDEX_FILE} and {REQUEST_LOG_FILE} were written with different keys, so one "
            "of the two was altered or replaced"
        )
    erased = len(log.erased)
    still_listed = len(log.erased & indexed)
    if still_listed:
        raise Broken(
            f"{RECORD_INDEX_FILE} still lists {still_listed} of the {erased} erased records"
        )
    missing = len(log.waiting - indexed)
    if missing:
        raise Broken(
            f"{RECORD_INDEX_FILE} does not list {missing} of the {len(log.waiting)} records whose "
            "erasure is pending, although these records are still in the run"
        )
    record.findings.ok(
        "erased",
        f"none of the {erased} erased records is among the {len(index)} records that "
        f"{RECORD_INDEX_FILE} lists",
    )


def check_key(record: Record) -> str | None:
    """Check that the owner's key, if the folder has it, is the one of the index of records.

    The request log has the same key as the index (``_check_index``).

    Returns:
        What was checked, in words; None: there is no index, or no key.

    Raises:
        Broken: it is another key.
    """
    if not record.holds(RECORD_INDEX_FILE):
        return None
    key_file = record.folder / KEY_FILE
    if not lexists(key_file):
        words = (
            f"{KEY_FILE} is missing, so it is not possible to check whether the record with a "
            f"given id was trained on or erased: restore {KEY_FILE} from a copy"
        )
        record.findings.unchecked("key", words)
        return None
    key = HashKey(read_file(key_file, 64))
    if key.check != Index.read(record.read(RECORD_INDEX_FILE)).key:
        raise Broken(
            f"{KEY_FILE} is not the key that {RECORD_INDEX_FILE} was written with: restore the "
            "key file of this run"
        )
    return (
        f"{KEY_FILE} is the key that {RECORD_INDEX_FILE} was written with (manifest.json does "
        "not list this secret file)"
    )


def describe_replacement(folder: Path, digest: str | None) -> str:
    """Return a sentence on the erasure that replaced a state of the run in a folder.

    It is empty if the run's request log names no such erasure, or cannot be read.

    Args:
        folder: the folder of the run.
        digest: the digest of the state; None: no state is meant, so none was replaced.
    """
    with suppress(Broken, ValueError, OSError):
        manifest = Manifest.open(folder)
        if digest is None or digest == manifest.digest or REQUEST_LOG_FILE not in manifest.files:
            return ""
        log = Log.read(manifest.load(folder, REQUEST_LOG_FILE, 2**30))
        for entry in log.entries:
            if entry.before != digest:
                continue
            people = counted(len(entry.units), "person", "people")
            outcome = "carried out" if entry.kind == "removed" else "noted"
            beginning = digest[:19]
            return (
                "this folder was made from an earlier state of the run (digest "
                f"{beginning}...). An erasure has changed the run since then: see entry "
                f"{entry.number} of the request log ({people}, {outcome} by "
                f"method={entry.method}, {entry.time})"
            )
    return ""


def check_budget(record: Record) -> str | None:
    """Check that the noise of a run is large enough for the gradient that its removals left.

    Returns:
        A sentence on what was checked; None: the certificate of the run does not allow removals.

    Raises:
        Broken: the noise is too small.
    """
    if (record.config.get("certificate") or {}).get("name") not in CERTIFICATE_OF_METHOD.values():
        return None
    bounds = certificate_of(record).removal_bounds(record)
    if bounds.hidden is not None and not bounds.spent <= bounds.hidden:
        raise Broken(
            "the gradient that is left after optimisation and removals (the residual) may be "
            f"as large as {bounds.spent!r}, but the run's noise of {bounds.noise:g} hides only "
            f"up to {bounds.hidden:.6g}. So the guarantee of the removals does not hold: train "
            "again on the remaining records"
        )
    residual = (
        "the gradient that is left after optimisation and removals (the residual) was "
        f"recomputed: it is at most {bounds.spent:.6g}"
    )
    if bounds.hidden is None:
        return f"{residual}; the run has no noise that could hide this gradient"
    return f"{residual}; the run's noise of {bounds.noise:g} hides up to {bounds.hidden:.6g}"


def check_promise(promise: Mapping[str, Any], run: Record, method: str, residual: float) -> None:
    """Raise Broken if a removal promises more than the noise of the run's settings allows.

    A promise of less is accepted.

    Args:
        promise: the promise that was recorded, as JSON.
        run: the run from which records were removed.
        method: the method of unlearning.
        residual: an upper bound on the norm of the gradient that remained after the removal.

    Raises:
        Broken: the promise claims more, or the noise is too small for the gradient.
    """
    bounds = removal_bounds(run, method)
    limit = bounds.total if bounds.hidden is None else bounds.hidden
    if not residual <= limit:
        raise Broken(
            f"method={method} left a gradient (residual) of up to {residual!r}, but its "
            f"guarantee allows at most {limit!r}. So the guarantee does not hold: train again "
            "on the remaining records"
        )
    derived = certificate_of(run).removal_promise(run, residual)
    parts = ("exact", "adaptive", "eps", "delta", "within")
    allowed = {name: getattr(derived, name) for name in parts}
    excessive = {
        name: promise.get(name)
        for name, value in allowed.items()
        if not _claims_at_most(promise.get(name), value)
    }
    if excessive:
        raise Broken(
            f"the recorded promise claims too much: it says {excessive}, but under the run's "
            f"settings method={method} guarantees only {allowed}"
        )
    says_unproved = any(fact["standing"] == Standing.VOID for fact in promise["assumptions"])
    if not derived.proved and not says_unproved:
        raise Broken(
            f"method={method}: the recorded promise claims too much, because it does not say "
            "that an assumption of the guarantee is not met under the run's settings"
        )


def _claims_at_most(recorded: Any, allowed: bool | float | None) -> bool:
    """Return whether a part of a recorded promise claims no more than is allowed.

    A number may be smaller by a relative difference of 1e-9, because another machine may compute
    other last digits. A value that is True, False or None must be the allowed one.
    """
    if allowed is None or isinstance(allowed, bool):
        return recorded is allowed
    is_number = isinstance(recorded, float | int) and not isinstance(recorded, bool)
    return is_number and recorded >= allowed * (1 - 1e-9)


def certificate_of(run: Record) -> CertificateKind:
    """Return the certificate that a run's settings name.

    Raises:
        ConfigError: they name none.
    """
    return certificate_config(run.config.get("certificate"))


def removal_bounds(run: Record, method: str) -> RemovalBounds:
    """Return the bounds on removals from a run, computed from its files.

    Args:
        run: the run.
        method: a method of unlearning that belongs to one kind of certificate.

    Raises:
        Broken: the certificate of the run is of another kind.
    """
    kind = certificate_of(run)
    if kind.own_erasure != method:
        raise Broken(
            f"method={method} cannot have updated this run, because the run was trained with "
            f"certificate={kind.name}, which does not support this method"
        )
    return kind.removal_bounds(run)
