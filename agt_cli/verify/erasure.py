"""Erasures as an auditor sees them: an account against what it is made of, and a run's request log against the run.

Formal guarantees
    An account is compared, entry by entry, with the log of the run that it names; its guarantee is worked out again from
    the run's settings where agt has a formula for it; its signature is over its very bytes. What is not shown: that the
    model was computed as is said.
    A request log vouches for nothing by its words: its chain is followed from the first line, the state that its last entry
    names is worked out from the manifest, the states that gave way are those that env.json lists, in their order, and no
    record that was carried out is left in the index. A record that was made from a state which the run no longer has is
    known by the log alone: the digest that it names is the one that an entry replaced.

An account is a function of the log's entry, of the run's digest and size, and of what was found elsewhere (earlier answers,
traces, queries that abstained): it is made again by what makes it, and compared. What was found is taken from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from os.path import lexists
from pathlib import Path
from typing import Any

from agt import __version__
from agt.errors import DataMissing
from agt.facts import Standing
from agt.models.linear import NUMBERS
from agt.settings import RemovalConfig, validate
from agt.store import Broken, Manifest, read_file
from agt.training.removal import removal_budget
from agt.unlearning import account as accounts
from agt.unlearning.account import OUTSIDE, Account, Promise, Removal, read_account
from agt.unlearning.log import KEY_FILE, RECORD_INDEX_FILE, REQUEST_LOG_FILE, HashKey, Index, Log
from agt_cli.report.markdown import Findings
from agt_cli.unlearn.erasure import ACCOUNT_FILE, account_lines, account_markdown, derive_account
from agt_cli.verify.folders import Record, first_difference

ERASURE = "unlearn"
ACCOUNT_LIMITS = (
    "that the model after it was computed as is said: whoever doubts it trains on the records that are left, and compares",
    "that the log holds every request: one that was never given to agt is in no file",
    "who made it: hashes and seals are no signature; a digest that was kept elsewhere tells this folder from one that was "
    "made to look like it, and so does a signature by a key that came another way (public=OWNER.pub)",
    "that the code which ran was agt's: version and revision are words in the record",
    *OUTSIDE,
)
MAX_LOG_BYTES = 2**30  # or of an index
HALF_COMMITTED = (
    "an erasure was carried out whose files are not all in their places yet (unlearning/commit)",
    "any agt command on the run brings them there (agt certify run=..., say), and an audit writes nothing; then verify "
    "again",
)


def read_account_of(record: Record) -> Account | None:
    """The account of an erasure's record; None: there is none, or none that is sound, which is said."""
    if record.environment.get("rehearsed"):
        record.findings.note(
            ACCOUNT_FILE, "there is none: this is a rehearsal on a copy (rehearse=true), which erased nothing"
        )
        return None
    with record.findings.looking(ACCOUNT_FILE):
        account = read_account(record.bound.read(ACCOUNT_FILE))
        record.findings.ok(ACCOUNT_FILE, f"{account.schema}: it does not contradict itself")
        return account
    return None


def run_of(record: Record) -> Path:
    """Where the run lay that an account is about. Raises Broken: the record does not say."""
    place = record.environment.get("trained_run") or record.config.get("run")
    if not isinstance(place, str):
        raise Broken("the record names no place of the run that it is about")
    return Path(place)


def check_account(account: Account, record: Record, run: Record | None, public: bytes | None) -> tuple[str, ...]:
    """An account against its own record, its signature, and the run that it is about; returns what it says, a line each.

    Args:
        run: as it is now, in this state or a later one; None: it could not be looked at.
        public: the owner's key; None: nobody gave one.
    """
    findings, budget = record.findings, account.budget
    with findings.looking("report"):
        page = record.bound.read("report.md").decode()
        if account.agt != __version__:
            words = f"written by agt {account.agt}, and this is {__version__}: their words may differ"
            findings.unchecked("report", words)
        else:
            wrong = "report.md says something else than account.json"
            findings.compare("report", page == account_markdown(account), "report.md is account.json in words", wrong)
    with findings.looking("metrics"):
        numbers = {"removed": account.done.records, **account.done.facts}
        numbers |= {"budget_spent": budget.spent, "budget": budget.total} if budget else {}
        record.check_metrics(ACCOUNT_FILE, **{name: number for name, number in numbers.items() if name in record.metrics})
    with findings.looking("signature"):
        check_signature(record, public)
    log = None if run is None else requests_of(run)
    if run is None or log is None:
        findings.unchecked("entry", "the run that it is about, or its request log, could not be looked at")
    else:
        with findings.looking("entry"):
            _check_spent(account, run, findings)
            _check_entry(account, log, run)
            findings.ok(
                "entry", f"entry {account.state.entry} of the run's request log, and the states around it, say the same"
            )
    return tuple(line for line in account_lines(account) if not line.startswith(" "))


def check_signature(record: Record, public: bytes | None) -> None:
    """Whether somebody signed it, and who.

    Raises:
        Broken: the signature is none of these bytes, or another's than ``public``'s; or none is there and one is asked for.
        DataMissing: none could be checked here.
    """
    bound, findings = record.bound, record.findings
    names = [name for name in (accounts.SIGNATURE, accounts.PUBLIC) if bound.holds(name)]
    if len(names) == 1:
        raise Broken(f"{names[0]} lies there alone: a signature and its public key go together")
    if not names and public is not None:
        raise Broken("it is not signed, and public= asks for a signature")
    if not names:
        findings.note("signature", "not signed", "agt unlearn with key=OWNER.pem signs an account")
        return
    try:
        key = accounts.same(bound.read(accounts.PUBLIC))
    except DataMissing as error:
        if public is not None:
            raise
        findings.unchecked("signature", str(error))
        return
    accounts.check(bound.read(ACCOUNT_FILE), bound.read(accounts.SIGNATURE), key)
    if public is None:
        words = f"by whoever holds the key of {accounts.PUBLIC}: whose that is, these files cannot tell"
        findings.note("signature", words, "give public=OWNER.pub as the owner handed it over another way")
        return
    wrong = f"it is signed by another key than public= is: {accounts.PUBLIC} is not the owner's"
    findings.compare("signature", public == key, "by the owner's key: exactly these bytes of account.json", wrong)


def _check_entry(account: Account, log: Log, run: Record) -> None:
    """The account is the one that the log's entry, and the states on its two sides, make. Raises Broken: it is not."""
    state, count = account.state, int(account.state.log.split(":")[0])
    if count > len(log.entries):
        raise Broken(f"it names entry {count} of the request log, which has {len(log.entries)}: an older copy of the run?")
    entry, then = log.entries[state.entry - 1], Log(log.entries[:count])
    if entry.kind != ("removed" if account.updated else "pending"):
        raise Broken(f"what became of it: {ACCOUNT_FILE} says {account.done.method}, and the run's log {entry.kind}")
    removed = len({record for each in log.batch(entry.number) for record in each.records}) if account.updated else 0
    if removed != account.done.records:
        raise Broken(f"records removed: {ACCOUNT_FILE} says {account.done.records}, and the run's log {removed}")
    after = log.entries[count].before if count < len(log.entries) else run.bound.manifest.digest
    done, removal = account.done, entry.removal if "removal" in entry.facts else None  # older logs keep none
    derived = derive_account(
        entry,
        then,
        removal or Removal(Promise.of(entry.promise), done.records, done.seconds, done.facts, done.words, account.budget),
        (state.run, after, state.records_after),
        training=entry.facts.get("training", done.training),
        earlier=account.earlier,
        sweep=account.sweep,
        abstained=account.abstained,
        unlooked=account.outside[: -len(OUTSIDE)],
    )
    if account.agt != __version__:
        derived = replace(derived, agt=account.agt, outside=account.outside)
    if difference := first_difference(account.plain, derived.plain):
        raise Broken(f"{ACCOUNT_FILE} is not what the run's log makes of it: {difference}")


def _check_spent(account: Account, run: Record, findings: Findings) -> None:
    """The guarantee and the budget of a Newton step, by the run's settings and by what it left.

    Raises:
        Broken: they are not.
    """
    if account.done.method != "newton":
        return
    check_promise({**vars(account.guaranteed), "adaptive": account.guaranteed.requests == "adaptive"}, run)
    config, budget, residual = removal_of(run)
    told = account.budget
    total = config.tolerance if budget is None or config.bound == "measured" else budget
    if told is None or told.total != total or told.spent > total:
        raise Broken(f"the removal budget is {total!r} by the run's settings, and {ACCOUNT_FILE} says {told}")
    if account.state.after == run.bound.manifest.digest and told.spent != residual:
        raise Broken(
            f"{ACCOUNT_FILE} says that {told.spent!r} is spent, and the run's state has a residual of {residual!r}"
        )
    void = any(fact.standing is Standing.VOID for fact in account.guaranteed.assumptions)
    if not void and (config.seed is not None or config.masking == "loss"):
        raise Broken(f"masking={config.masking}, seed={config.seed}: something does not hold there, and it does not say so")
    findings.ok("removal budget", f"of the account, worked out again: {told.spent:.6g} of {total:.6g}")


def check_requests(record: Record) -> None:
    """The request log of a training run, if it has one, against everything else that the run says."""
    bound, findings = record.bound, record.findings
    if bound.holds(RECORD_INDEX_FILE):
        with findings.looking("key"):
            _check_key(record)
    if not bound.holds(REQUEST_LOG_FILE):
        if record.environment.get("succeeds"):
            with findings.looking("request log"):
                raise Broken(f"env.json names states before this one (succeeds), and {REQUEST_LOG_FILE} is not listed")
        return
    with findings.looking("request log"):
        log = Log.read(bound.read(REQUEST_LOG_FILE, MAX_LOG_BYTES))
        if log.head is None:
            raise Broken(f"{REQUEST_LOG_FILE} is empty, and it is listed")
        findings.ok("request log", f"{log.head.count} entries, each bound to the one before; it ends at {log.head}")
        log.check_state(bound.manifest.files)
        findings.ok("state", f"the model's files are those that entry {log.head.count} tells of")
        _check_succession(log, record)
        _check_index(log, record)
        last = log.entries[-1]
        if last.method == "newton":
            check_promise(last.promise, record)


def requests_of(record: Record) -> Log | None:
    """The log of a run, as far as it can be read; None: it has none, or no sound one."""
    if not record.bound.holds(REQUEST_LOG_FILE):
        return None
    try:
        log = Log.read(record.bound.read(REQUEST_LOG_FILE, MAX_LOG_BYTES))
    except (Broken, ValueError):
        return None
    return log if log.entries else None


def erased_words(record: Record) -> Iterator[str]:
    """What a run's log says of its model, a line each."""
    log = requests_of(record) or Log()
    if log.done:
        last, people = log.done[-1], len({unit for entry in log.done for unit in entry.units})
        yield f"{len(log.erased)} records of {people} people are erased from it: the last update was by {last.method}"
        exact, eps, delta = (last.promise.get(name) for name in ("exact", "eps", "delta"))
        what = "exact" if exact is True else f"epsilon = {eps}, delta = {delta} against never having seen them"
        if any(fact.get("standing") == Standing.VOID for fact in last.promise.get("assumptions") or ()):
            what = f"NOT PROVED; as published: {what}"
        also = "also" if last.promise.get("adaptive") is True else "not"
        yield f"of that update: {what}, {also} where requests were chosen after looking"
    if log.pending:
        waiting = f"{len(log.waiting_units)} people more asked, and are still in it"
        yield f"{waiting}: only what is stable without them is answered"


def _check_succession(log: Log, record: Record) -> None:
    """The states that gave way are those that env.json lists."""
    listed, told = record.environment.get("succeeds"), [entry.before for entry in log.entries]
    if listed != told:
        raise Broken(
            f"env.json lists other states before this one (succeeds) than the {len(told)} that {REQUEST_LOG_FILE} names"
        )
    if len({*told, record.bound.manifest.digest}) != len(told) + 1:
        raise Broken(f"{REQUEST_LOG_FILE} names one state twice among those that gave way")
    record.findings.ok("succession", f"{len(told)} states gave way, the same in env.json and in {REQUEST_LOG_FILE}")


def _check_index(log: Log, record: Record) -> None:
    """Of the records that were carried out none is in the index; those that wait all are."""
    if not record.bound.holds(RECORD_INDEX_FILE):
        record.findings.unchecked("erased", f"the run has no {RECORD_INDEX_FILE}: it was made before runs kept one")
        return
    index = Index.read(record.bound.read(RECORD_INDEX_FILE, MAX_LOG_BYTES))
    there = set(index.words)
    if len(there) != len(index) or any(entry.key != index.key for entry in log.entries):
        raise Broken(f"{RECORD_INDEX_FILE} and {REQUEST_LOG_FILE} are of two keys, or a record is in it twice")
    if left := len(log.erased & there):
        raise Broken(f"{RECORD_INDEX_FILE} still lists {left} of the {len(log.erased)} records that were erased")
    if gone := len(log.waiting - there):
        raise Broken(f"{RECORD_INDEX_FILE} does not list {gone} of the {len(log.waiting)} records whose erasure is pending")
    count = record.metrics.get("n_train")
    if type(count) is not int or count > len(index):
        raise Broken(f"metrics.json says n_train = {count}, and {RECORD_INDEX_FILE} lists {len(index)} records")
    record.findings.ok(
        "erased", f"none of the {len(log.erased)} erased records is among the {len(index)} of {RECORD_INDEX_FILE}"
    )


def _check_key(record: Record) -> None:
    """The owner's key, if it lies there, is the one that the records are indexed with; so is the log (``_check_index``)."""
    if not lexists(record.bound.folder / KEY_FILE):
        words = f"{KEY_FILE} is gone: without it nobody can ask whether an id was trained on or erased"
        record.findings.unchecked("key", words)
        return
    key = HashKey(read_file(record.bound.folder / KEY_FILE, 64))
    fits = key.check == Index.read(record.bound.read(RECORD_INDEX_FILE, MAX_LOG_BYTES)).key
    words = f"the one that {RECORD_INDEX_FILE} was written with"
    record.findings.compare("key", fits, f"{KEY_FILE} is {words}; no manifest lists it", f"{KEY_FILE} is not {words}")


def replaced(folder: Path, digest: str | None) -> str:
    """What a state of the run in a folder was, that an erasure replaced; empty: its log names none, or is not sound."""
    try:
        manifest = Manifest.open(folder)
        if digest is None or manifest.digest == digest or REQUEST_LOG_FILE not in manifest.files:
            return ""
        entries = Log.read(manifest.load(folder, REQUEST_LOG_FILE, MAX_LOG_BYTES)).entries
    except (Broken, ValueError, OSError):
        return ""
    for entry in entries:
        if entry.before == digest:
            people = f"{len(entry.units)} {'person' if len(entry.units) == 1 else 'people'}"
            how = "carried out" if entry.kind == "removed" else "noted"
            asked = f"{people}, {how} by method={entry.method}, {entry.time}"
            return f"made from state {digest[:19]}..., which erasure {entry.number} of the run replaced ({asked})"
    return ""


def check_budget(record: Record) -> None:
    """Of a head that records can be removed from: what removals left is within what its noise hides, worked out again."""
    if record.bound.holds(NUMBERS):
        with record.findings.looking("removal budget"):
            config, budget, residual = removal_of(record)
            words = "no noise" if budget is None else f"{budget:.6g}, what noise of {config.sigma:g} hides"
            within = budget is None or residual <= budget
            right, wrong = f"a residual of {residual:.6g}, of {words}: worked out again", f"{residual!r}, beyond {words}"
            record.findings.compare("removal budget", within, right, f"{NUMBERS} has a residual of {wrong}")


def check_promise(promise: Mapping[str, Any], run: Record) -> None:
    """What a Newton step may promise, by the noise of the run's settings.

    Raises:
        Broken: more is promised.
    """
    config, _, _ = removal_of(run)
    exact, eps, delta = (True, 0.0, 0.0) if config.masking == "none" else (False, config.eps, config.delta)
    right = {"exact": exact, "eps": eps, "delta": delta, "adaptive": config.masking != "loss"}
    if told := {name: promise.get(name) for name, value in right.items() if promise.get(name) != value}:
        raise Broken(f"a Newton step under masking={config.masking} promises {right}, and {told} is told")


def removal_of(run: Record) -> tuple[RemovalConfig, float | None, float]:
    """(settings, the removal budget, bound on the residual) of a head that records can be removed from."""
    config: RemovalConfig = validate(RemovalConfig, run.config["certificate"], "certificate")
    numbers = run.bound.json(NUMBERS)
    return config, removal_budget(config, float(numbers["strength"])), float(numbers["residual"])
