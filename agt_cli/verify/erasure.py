"""What a run and an account say of an erasure, made again from the request log.

Formal guarantees
    An account is compared, entry by entry, with the log of the run that it names; its guarantee is
    worked out again from the run's settings where agt has a formula for it. What is not shown: that
    the model was computed as is said.
    A request log vouches for nothing by its words: its chain is followed from the first line, the
    state that its last entry names is worked out from the manifest, the states that gave way are
    those that env.json lists, in their order, and no record that was carried out is left in the
    index. A record that was made from a state which the run no longer has is known by the log
    alone: the digest that it names is the one that an entry replaced.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os.path import lexists
from pathlib import Path
from typing import Any

from agt import __version__
from agt.errors import AgtError, counted
from agt.facts import Standing
from agt.models.kind import CertificateKind, RemovalBounds
from agt.models.kinds import certificate_config
from agt.settings import plain_of
from agt.store import Broken, Manifest, read_file
from agt.unlearning.promise import read_promise
from agt.unlearning.sentences import Remark, without_words
from agt_cli.report.finished import ACCOUNT_FILE
from agt_cli.report.replaced import check_not_replaced, home_of
from agt_cli.unlearn.account import ErasureReport, read_account, recorded_in_words
from agt_cli.unlearn.account_md import account_lines
from agt_cli.unlearn.erasure import derive_account
from agt_cli.unlearn.log import (
    KEY_FILE,
    RECORD_INDEX_FILE,
    REQUEST_LOG_FILE,
    HashKey,
    Index,
    Log,
    as_words,
)
from agt_cli.unlearn.methods import METHODS, OWNERS
from agt_cli.verify.folders import Record, check_version, first_difference

OLD_SIGNATURE = "account.sig"
SIGNED_EARLIER = (
    f"this version does not check {OLD_SIGNATURE}, a signature that versions up to 0.6.0 wrote",
    "to check the signature, type openssl pkeyutl -verify -pubin -inkey OWNER.pub -rawin -in "
    "account.json -sigfile account.sig",
)


def read_account_of(record: Record) -> ErasureReport | None:
    """The account of an erasure's record; None: there is none, or none that is sound, which is
    said.
    """
    if record.config.get("rehearse") and not record.holds(ACCOUNT_FILE):
        words = (
            "this run has no account of an erasure, because it is a rehearsal on a copy "
            "(rehearse=true), which erased nothing"
        )
        record.findings.note(ACCOUNT_FILE, words)
        return None
    with record.findings.looking(ACCOUNT_FILE):
        account = read_account(record.read(ACCOUNT_FILE))
        check_version(account.agt, ACCOUNT_FILE, record)
        record.findings.ok(
            ACCOUNT_FILE, f"the account ({account.schema}) does not contradict itself"
        )
        return account
    return None


def _check_subject(record: Record, account: ErasureReport) -> None:
    """Raise Broken where an account lies in a rehearsal's record, or is about another state than
    its record names.
    """
    if record.config.get("rehearse"):
        raise Broken(
            f"config.yaml has rehearse=true, but a rehearsal does not write {ACCOUNT_FILE}"
        )
    named = record.environment.get("trained_digest")
    if account.state.after != named:
        raise Broken(
            f"trained_digest in env.json is {named!r}, but state.after in {ACCOUNT_FILE} is "
            f"{account.state.after!r}"
        )


def check_account(account: ErasureReport, record: Record, run: Record | None) -> tuple[str, ...]:
    """An account against its own record and the run that it is about; returns what it says, a line
    each.

    Args:
        run: as it is now, in this state or a later one; None: it could not be looked at.
    """
    record.look(ACCOUNT_FILE, _check_subject, account)
    record.look("metrics", _check_numbers, account)
    if record.holds(OLD_SIGNATURE):
        record.findings.unchecked("signature", *SIGNED_EARLIER)
    log = Log() if run is None else requests_of(run)
    if run is None or not log.entries:
        record.findings.unchecked(
            "entry", "the run that this account is about, or its request log, could not be read"
        )
    else:
        record.look("entry", _check_entry, account, log, run)
    return tuple(account_lines(account))


def _check_numbers(record: Record, account: ErasureReport) -> None:
    removal = account.removal
    numbers, budget = {"removed": removal.records, **removal.facts}, removal.budget
    numbers |= {"budget_spent": budget.spent, "budget": budget.total} if budget else {}
    record.check_metrics(
        ACCOUNT_FILE, **{name: number for name, number in numbers.items() if name in record.metrics}
    )


def _check_entry(record: Record, account: ErasureReport, log: Log, run: Record) -> str:
    """The account is the one that the log's entry, and the states on its two sides, make."""
    _check_spent(account, run, record)
    state, count = account.state, int(account.state.log.split(":")[0])
    if count > len(log.entries):
        raise Broken(
            f"the account names entry {count} of the request log, but the log has only "
            f"{len(log.entries)} entries, so the run may be an older copy"
        )
    entry, then = log.entries[state.entry - 1], Log(log.entries[:count])
    recorded = account.removal
    if entry.kind != ("removed" if account.updated else "pending"):
        method = recorded.promise.method
        raise Broken(
            f"{ACCOUNT_FILE} says removal.promise.method = {method}, but the run's log has an "
            f"entry {entry.kind}"
        )
    removed = (
        len({record for each in log.batch(entry.number) for record in each.records})
        if account.updated
        else 0
    )
    if removed != recorded.records:
        raise Broken(
            f"{ACCOUNT_FILE} says removal.records = {recorded.records}, but it is {removed} "
            "according to the run's log"
        )
    after = log.entries[count].before if count < len(log.entries) else run.manifest.digest
    if "removal" not in entry.facts:  # older logs keep the promise alone
        recorded = replace(recorded, promise=read_promise(entry.promise))
    derived = derive_account(
        entry,
        then,
        entry.removal if "removal" in entry.facts else recorded,
        (state.run, after, state.records_after),
        training=entry.facts.get("training", account.training),
        earlier=account.earlier,
        sweep=account.sweep,
        abstained=account.abstained,
    )
    if account.agt == __version__:  # nothing that this version writes is text
        fields_of: Callable[[ErasureReport], dict[str, Any]] = plain_of
    else:
        fields_of = _fields_of
        derived = replace(derived, agt=account.agt, outside=without_words(account.outside))
    if difference := first_difference(fields_of(account), fields_of(derived)):
        raise Broken(f"{ACCOUNT_FILE} does not match the run's log: {difference}")
    record.findings.unchecked(
        "earlier, sweep, abstained",
        "these parts of the account are not in the log, so they could not be compared with "
        "anything",
    )
    if sentences_recorded := recorded_in_words(account):
        counts = (
            f"{counted(sentences_recorded, 'sentence')} that an earlier version of agt "
            "recorded as text"
        )
        record.findings.unchecked(
            "words", f"{counts}: only the numbers were compared, not the wording"
        )
    return f"the account matches entry {account.state.entry} of the run's request log"


def _fields_of(account: ErasureReport) -> dict[str, Any]:
    """JSON values of an account, without what an earlier version recorded as text."""
    removal, promise = account.removal, account.removal.promise
    promise_fields = plain_of(promise) | {"terms": _plain(promise.terms)}
    removal_fields = plain_of(removal) | {"promise": promise_fields, "steps": _plain(removal.steps)}
    return plain_of(account) | {"removal": removal_fields, "outside": _plain(account.outside)}


def _plain(remarks: tuple[Remark, ...]) -> list[dict[str, Any]]:
    return [plain_of(remark) for remark in without_words(remarks)]


def _check_spent(account: ErasureReport, run: Record, record: Record) -> None:
    """The guarantee and the budget of a kind's own method, by the run's settings and by what it
    left.
    """
    method = account.removal.promise.method
    if method not in METHODS:
        raise Broken(
            f"{ACCOUNT_FILE} names method={method}, which this version of agt does not have"
        )
    if method not in OWNERS:
        return
    bounds = removal_bounds(run, method)
    total, residual = bounds.total, bounds.spent
    recorded = account.removal.budget
    if recorded is None or recorded.total != total or recorded.spent > total:
        raise Broken(
            f"the removal budget is {total!r} according to the run's settings, but "
            f"{recorded} in {ACCOUNT_FILE}"
        )
    if account.state.after == run.manifest.digest and recorded.spent != residual:
        raise Broken(
            f"{ACCOUNT_FILE} says that {recorded.spent!r} of the removal budget is spent, but "
            f"the run's state has a residual of {residual!r}"
        )
    check_promise(plain_of(account.removal.promise), run, method, recorded.spent)
    words = (
        "the removal budget was recomputed and equals that of the account: "
        f"{recorded.spent:.6g} of {total:.6g} spent"
    )
    record.findings.ok("removal budget", words)


def check_state(record: Record, trained: Record | None) -> None:
    """It is no state that an erasure replaced."""
    check_not_replaced(record.digest, record.folder, home_of(record.folder), "path")


def check_requests(record: Record, trained: Record | None) -> str | None:
    """The request log of a training run, if it has one, against everything else that the run
    says.
    """
    if not record.holds(REQUEST_LOG_FILE):
        if record.environment.get("succeeds"):
            raise Broken(
                "env.json lists earlier states of this run (succeeds), but the request log "
                f"{REQUEST_LOG_FILE} is not in the list of files"
            )
        return None
    log = Log.read(record.read(REQUEST_LOG_FILE))
    if log.head is None:
        raise Broken(f"{REQUEST_LOG_FILE} is in the list of files, although it is empty")
    log.check_state(record.manifest.files)
    record.findings.ok(
        "state",
        f"the model's files match those that entry {log.head.count} of the request log records",
    )
    _check_succession(log, record)
    _check_index(log, record)
    last = log.entries[-1]
    if last.method in OWNERS:
        check_promise(last.promise, record, last.method, removal_bounds(record, last.method).spent)
    return (
        f"the request log has {log.head.count} entries, each linked to the previous one by "
        f"its hash; the last one is {log.head}"
    )


def requests_of(record: Record) -> Log:
    """The log of a run; empty: it has none, or no sound one."""
    with suppress(Broken, ValueError, AgtError):
        return Log.read(record.read(REQUEST_LOG_FILE)) if record.holds(REQUEST_LOG_FILE) else Log()
    return Log()


def erased_words(record: Record) -> Iterator[str]:
    """What a run's log says of its model, a line each."""
    log = requests_of(record)
    if log.done:
        last, people = log.done[-1], len({unit for entry in log.done for unit in entry.units})
        yield (
            f"{len(log.erased)} records of {people} people were erased from the run; the "
            f"last update used {last.method}"
        )
        exact, eps, delta = (last.promise.get(name) for name in ("exact", "eps", "delta"))
        what = (
            "exact"
            if exact is True
            else (
                f"epsilon = {eps}, delta = {delta} compared with a model that was never "
                "trained on them"
            )
        )
        if (within := last.promise.get("within")) is not None:
            what += f" up to a distance of {within} (l2, weights)"
        if any(
            fact.get("standing") == Standing.VOID for fact in last.promise.get("assumptions") or ()
        ):
            what = f"NOT PROVED here. The paper claims: {what}"
        also = "also" if last.promise.get("adaptive") is True else "not"
        yield (
            f"guarantee of that update: {what}, {also} for requests that were chosen after "
            "looking at outputs"
        )
    if log.pending:
        waiting = (
            f"{len(log.waiting_units)} more people requested erasure, and their records are "
            "still in the model"
        )
        yield (
            f"{waiting}; until the update, only queries that do not depend on these records "
            "are answered"
        )


def _check_succession(log: Log, record: Record) -> None:
    """The states that gave way are those that env.json lists."""
    listed, told = record.environment.get("succeeds"), [entry.before for entry in log.entries]
    if listed != told:
        raise Broken(
            f"the earlier states of this run in env.json (succeeds) are not the {len(told)} "
            f"states that {REQUEST_LOG_FILE} names"
        )
    if len({*told, record.manifest.digest}) != len(told) + 1:
        raise Broken(f"{REQUEST_LOG_FILE} names the same replaced state twice")
    record.findings.ok(
        "succession",
        f"{len(told)} states were replaced, and env.json and {REQUEST_LOG_FILE} list the same ones",
    )


def _check_index(log: Log, record: Record) -> None:
    """Of the records that were carried out none is in the index; those that wait all are."""
    if not record.holds(RECORD_INDEX_FILE):
        record.findings.unchecked(
            "erased",
            f"the run has no {RECORD_INDEX_FILE}, because a very old version of agt made it",
        )
        return
    index = Index.read(record.read(RECORD_INDEX_FILE))
    there = set(as_words(index.ids))
    if len(there) != len(index) or any(entry.key != index.key for entry in log.entries):
        raise Broken(
            f"{RECORD_INDEX_FILE} and {REQUEST_LOG_FILE} were written with different keys, "
            "or a record is listed twice"
        )
    if left := len(log.erased & there):
        raise Broken(
            f"{RECORD_INDEX_FILE} still lists {left} of the {len(log.erased)} records that were "
            "erased"
        )
    if gone := len(log.waiting - there):
        raise Broken(
            f"{RECORD_INDEX_FILE} does not list {gone} of the {len(log.waiting)} records "
            "whose erasure is pending, although they are still in the run"
        )
    count = record.metrics.get("n_train")
    if type(count) is not int or count > len(index):
        raise Broken(
            f"metrics.json says n_train = {count}, but {RECORD_INDEX_FILE} lists "
            f"{len(index)} records"
        )
    record.findings.ok(
        "erased",
        f"none of the {len(log.erased)} erased records is among the {len(index)} in "
        f"{RECORD_INDEX_FILE}",
    )


def check_key(record: Record, trained: Record | None) -> str | None:
    """The owner's key, if it lies there, is the one that the records are indexed with; so is the
    log (``_check_index``).
    """
    if not record.holds(RECORD_INDEX_FILE):
        return None
    if not lexists(record.folder / KEY_FILE):
        words = (
            "it is not possible to check whether a given id was trained on or erased, "
            f"because {KEY_FILE} is missing"
        )
        record.findings.unchecked("key", words)
        return None
    if (
        HashKey(read_file(record.folder / KEY_FILE, 64)).check
        != Index.read(record.read(RECORD_INDEX_FILE)).key
    ):
        raise Broken(
            f"{KEY_FILE} is another key than the one that {RECORD_INDEX_FILE} was written with"
        )
    return (
        f"{KEY_FILE} is the key that {RECORD_INDEX_FILE} was written with (this was checked "
        "here, because the list of files does not contain the key)"
    )


def replaced(folder: Path, digest: str | None) -> str:
    """What a state of the run in a folder was, that an erasure replaced; empty: its log names
    none, or is not sound.
    """
    with suppress(Broken, ValueError, OSError):
        manifest = Manifest.open(folder)
        if digest is not None and digest != manifest.digest and REQUEST_LOG_FILE in manifest.files:
            for entry in Log.read(manifest.load(folder, REQUEST_LOG_FILE, 2**30)).entries:
                if entry.before == digest:
                    people = counted(len(entry.units), "person", "people")
                    asked = (
                        f"{people}, {'carried out' if entry.kind == 'removed' else 'noted'} by "
                        f"method={entry.method}"
                    )
                    made = (
                        f"made from state {digest[:19]}... of the run, which erasure "
                        f"{entry.number} has replaced since"
                    )
                    return f"{made} ({asked}, {entry.time})"
    return ""


def check_budget(record: Record, trained: Record | None) -> str | None:
    """Of a head that records can be removed from: what removals left is within what its noise
    hides, worked out again.
    """
    if (record.config.get("certificate") or {}).get("name") not in OWNERS.values():
        return None
    bounds = certificate_of(record).removal_bounds(record)
    words = (
        "no noise hides it"
        if bounds.hidden is None
        else f"noise of {bounds.noise:g} hides up to {bounds.hidden:.6g}"
    )
    if bounds.hidden is not None and not bounds.spent <= bounds.hidden:
        raise Broken(f"the residual of the run's state is {bounds.spent!r}, but {words}")
    return f"the residual of the run's state, recomputed, is {bounds.spent:.6g}; {words}"


def check_promise(promise: Mapping[str, Any], run: Record, method: str, residual: float) -> None:
    """What a removal that left such a residual may promise, by the noise of the run's settings;
    less may be promised.

    Raises:
        Broken: more is promised, or the noise does not hide as much.
    """
    bounds = removal_bounds(run, method)
    if not residual <= (bounds.total if bounds.hidden is None else bounds.hidden):
        raise Broken(
            f"method={method} left a residual of {residual!r}, which exceeds the one that its "
            "guarantee allows"
        )
    made = certificate_of(run).removal_promise(run, residual)
    right = {name: getattr(made, name) for name in ("exact", "adaptive", "eps", "delta", "within")}
    if told := {
        name: promise.get(name)
        for name, value in right.items()
        if not _no_better(promise.get(name), value)
    }:
        raise Broken(
            f"method={method} guarantees {right} under these settings, but the record says {told}"
        )
    if not made.proved and all(
        fact["standing"] != Standing.VOID for fact in promise["assumptions"]
    ):
        raise Broken(
            f"method={method}: a condition is not met under these settings, but the record "
            "does not say so"
        )


def _no_better(told: Any, right: bool | float | None) -> bool:
    """Whether a part of a promise says no more than what is right, the last digits of another
    machine's apart.
    """
    if right is None or isinstance(right, bool):
        return told is right
    return (
        isinstance(told, float | int) and not isinstance(told, bool) and told >= right * (1 - 1e-9)
    )


def certificate_of(run: Record) -> CertificateKind:
    """Return the certificate that a run's settings name. Raises ConfigError: they name none."""
    return certificate_config(run.config.get("certificate"))


def removal_bounds(run: Record, method: str) -> RemovalBounds:
    """Return what a run's files say of removals by a method that its kind of certificate brings.

    Raises:
        Broken: the run is of another kind.
    """
    kind = certificate_of(run)
    if kind.own_erasure != method:
        raise Broken(
            f"method={method}: the run was trained with certificate={kind.name}, which does "
            "not support this method"
        )
    return kind.removal_bounds(run)
