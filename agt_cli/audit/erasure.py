"""Erasures as an auditor sees them: a run's request log, the account of one entry, and records made from an earlier state.

Formal guarantees
    A request log vouches for nothing by its words: its chain is followed from the first line, the state that its last entry
    names is worked out from the manifest, the states that gave way are those that env.json lists, in their order, and no
    record that was carried out is left in the index. An account is compared, entry by entry, with the log of the run that
    it names; its guarantee is worked out again from its own numbers where agt has a formula for it; its signature is over
    its very bytes. A record that was made from a state which the run no longer has is known by the log alone: the digest
    that it names is the one that an entry replaced. What is not shown: that the model was computed as is said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt import __version__
from agt.errors import ConfigError, DataMissing
from agt.facts import Standing
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest
from agt.unlearning import signature
from agt.unlearning.account import Account, read_account
from agt.unlearning.index import NAME as INDEX
from agt.unlearning.index import Index
from agt.unlearning.keys import Key
from agt.unlearning.log import NAME as LOG
from agt.unlearning.log import Entry, Log
from agt_cli.audit.reading import read
from agt_cli.audit.record import Record
from agt_cli.unlearn.page import lines, markdown

COMMAND = "unlearn"
ACCOUNT = "account.json"
LARGE = 2**30  # bytes of a log or an index
LIMITS = (
    "that the model after it was computed as is said: whoever doubts it trains on the records that are left, and compares",
    "that the log holds every request: one that was never given to agt is in no file",
)
HALF = (
    "an erasure was carried out whose files are not all in their places yet (unlearning/commit)",
    "any agt command on the run brings them there (agt certify run=..., say), and an audit writes nothing; then verify "
    "again",
)


# -- a run that has a request log ------------------------------------------------------------------------------------------


def check_requests(record: Record) -> None:
    """The request log of a training run, if it has one, against everything else that the run says."""
    bound, findings = record.bound, record.findings
    if not bound.holds(LOG):
        return
    with findings.looking("request log"):
        log = Log.read(bound.read(LOG, LARGE))
        if log.head is None:
            raise Broken(f"{LOG} is empty, and it is listed")
        findings.ok("request log", f"{log.head.count} entries, each bound to the one before; it ends at {log.head}")
        log.check_state(bound.manifest.files)
        findings.ok("state", f"the model's files are those that entry {log.head.count} tells of")
        _check_succession(log, record)
        _check_index(log, record)
        _check_key(log, record)


def requests_of(record: Record) -> Log | None:
    """The log of a run, as far as it can be read; None: it has none, or no sound one."""
    if not record.bound.holds(LOG):
        return None
    try:
        log = Log.read(record.bound.read(LOG, LARGE))
    except (Broken, ValueError):
        return None
    return log if log.entries else None


def erased_words(record: Record) -> Iterator[str]:
    """What a run's log says of its model, a line each."""
    log = requests_of(record)
    if log is None:
        return
    done = [entry for entry in log.entries if entry.kind == "removed"]
    if done:
        last, people = done[-1], len({unit for entry in log.done for unit in entry.units})
        yield f"{len(log.erased)} records of {people} people are erased from it: the last update was by {last.method}"
        yield f"of that update: {promise_words(last.promise)}"
    if log.pending:
        waiting = f"{len(log.waiting_units)} people more asked, and are still in it"
        yield f"{waiting}: only what is stable without them is answered"


def promise_words(promise: Mapping[str, Any]) -> str:
    """A promise as a log has it, in one line."""
    eps, delta = promise.get("eps"), promise.get("delta")
    what = "exact" if promise.get("exact") is True else f"epsilon = {eps}, delta = {delta} against never having seen them"
    void = any(fact.get("standing") == Standing.VOID for fact in promise.get("assumptions") or ())
    what = f"NOT PROVED; as published: {what}" if void else what
    return f"{what}, {'also' if promise.get('adaptive') is True else 'not'} where requests were chosen after looking"


def _check_succession(log: Log, record: Record) -> None:
    """The states that gave way are those that env.json lists."""
    listed, told = record.environment.get("succeeds"), [entry.before for entry in log.entries]
    if listed != told:
        raise Broken(f"env.json lists other states before this one (succeeds) than the {len(told)} that {LOG} names")
    if len({*told, record.bound.manifest.digest}) != len(told) + 1:
        raise Broken(f"{LOG} names one state twice among those that gave way")
    record.findings.ok("succession", f"{len(told)} states gave way, the same in env.json and in {LOG}")


def _check_index(log: Log, record: Record) -> None:
    """Of the records that were carried out none is in the index; those that wait all are."""
    if not record.bound.holds(INDEX):
        record.findings.unchecked("erased", f"the run has no {INDEX}: it was made before runs kept one")
        return
    index = Index.read(record.bound.read(INDEX, LARGE))
    there = set(index.words)
    if len(there) != len(index) or any(entry.key != index.key for entry in log.entries):
        raise Broken(f"{INDEX} and {LOG} are of two keys, or a record is in it twice")
    if left := len(log.erased & there):
        raise Broken(f"{INDEX} still lists {left} of the {len(log.erased)} records that were erased")
    if gone := len(log.waiting - there):
        raise Broken(f"{INDEX} does not list {gone} of the {len(log.waiting)} records whose erasure is pending")
    count = record.metrics.get("n_train")
    if type(count) is not int or count > len(index):
        raise Broken(f"metrics.json says n_train = {count}, and {INDEX} lists {len(index)} records")
    record.findings.ok("erased", f"none of the {len(log.erased)} erased records is among the {len(index)} of {INDEX}")


def _check_key(log: Log, record: Record) -> None:
    """The owner's key, if it lies there, is the one that the log was written with."""
    path = record.bound.folder / "unlearning" / "key"
    try:
        key = Key(read(path, 64))
    except (Broken, ConfigError) as error:
        record.findings.unchecked("key", f"{error}: without it nobody can ask whether an id was erased")
        return
    log.check_key(key)
    record.findings.ok("key", "unlearning/key is the one that the log was written with; no manifest lists it")


# -- a state that a run no longer has --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replaced:
    """A state that gave way in an erasure.

    Attributes:
        digest: of the run then.
        entry: that replaced it.
    """

    digest: str
    entry: Entry

    @property
    def words(self) -> str:
        """For an audit."""
        entry, people = self.entry, len(self.entry.units)
        how = "carried out" if entry.kind == "removed" else "noted"
        asked = f"{people} {'person' if people == 1 else 'people'}, {how} by method={entry.method}, {entry.time}"
        return f"made from state {self.digest[:19]}..., which erasure {entry.number} of the run replaced ({asked})"


def replaced(folder: Path, digest: str | None) -> Replaced | None:
    """The erasure that replaced a state of the run in a folder; None: its log names no such state, or is not sound."""
    try:
        manifest = Manifest.read(read(folder / MANIFEST))
        if digest is None or manifest.digest == digest or LOG not in manifest.files:
            return None
        content = read(folder / LOG, LARGE)
        manifest.check(LOG, content)
        entries = Log.read(content).entries
    except (Broken, ValueError, OSError):
        return None
    return next((Replaced(digest, entry) for entry in entries if entry.before == digest), None)


# -- the account of one erasure --------------------------------------------------------------------------------------------


def account_of(record: Record) -> Account | None:
    """The account of an erasure's record; None: there is none, or none that is sound, which is said."""
    with record.findings.looking(ACCOUNT):
        record.bound.json(ACCOUNT)  # no key twice
        account = read_account(record.bound.read(ACCOUNT))
        record.findings.ok(ACCOUNT, f"{account.schema}: it does not contradict itself")
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
    findings = record.findings
    with findings.looking("report"):
        _check_page(account, record)
    with findings.looking("metrics"):
        _check_numbers(account, record)
    with findings.looking("signature"):
        check_signature(record, public)
    log = None if run is None else requests_of(run)
    if run is None or log is None:
        findings.unchecked("entry", "the run that it is about, or its request log, could not be looked at")
    else:
        with findings.looking("entry"):
            _check_entry(account, log, run)
            findings.ok(
                "entry", f"entry {account.state.entry} of the run's request log, and the states around it, say the same"
            )
    return tuple(line for line in lines(account) if not line.startswith(" "))


def check_signature(record: Record, public: bytes | None) -> None:
    """Whether somebody signed it, and who.

    Raises:
        Broken: the signature is none of these bytes, or another's than ``public``'s; or none is there and one is asked for.
    """
    bound, findings = record.bound, record.findings
    names = [name for name in (signature.SIGNATURE, signature.PUBLIC) if bound.holds(name)]
    if not names:
        if public is not None:
            raise Broken("it is not signed, and public= asks for a signature")
        findings.note("signature", "not signed", "agt unlearn with key=OWNER.pem signs an account")
        return
    if len(names) == 1:
        raise Broken(f"{names[0]} lies there alone: a signature and its public key go together")
    signed, beside = bound.read(signature.SIGNATURE), bound.read(signature.PUBLIC)
    try:
        key = signature.same(beside)
        signature.check(bound.read(ACCOUNT), signed, key)
    except DataMissing as error:
        findings.unchecked("signature", str(error))
        if public is not None:
            raise Broken("public= asks for a signature, and none could be checked here") from None
        return
    if public is None:
        words = f"by whoever holds the key of {signature.PUBLIC}: whose that is, these files cannot tell"
        findings.note("signature", words, "give public=OWNER.pub as the owner handed it over another way")
    elif public != key:
        raise Broken(f"it is signed by another key than public= is: {signature.PUBLIC} is not the owner's")
    else:
        findings.ok("signature", "by the owner's key: exactly these bytes of account.json")


def _check_page(account: Account, record: Record) -> None:
    """The page for people is made of the account for programs, and of nothing else."""
    if account.agt != __version__:
        words = f"written by agt {account.agt}, and this is {__version__}: their words may differ"
        record.findings.unchecked("report", words)
        return
    if record.bound.read("report.md").decode() != markdown(account):
        raise Broken("report.md says something else than account.json")
    record.findings.ok("report", "report.md is account.json in words")


def _check_numbers(account: Account, record: Record) -> None:
    """What metrics.json repeats is the same there."""
    told: dict[str, Any] = {"removed": account.done.records, **account.done.facts}
    if account.budget is not None:
        told |= {"budget_spent": account.budget.spent, "budget": account.budget.total}
    for name, value in told.items():
        if name in record.metrics and record.metrics[name] != value:
            raise Broken(f"metrics.json says {name} = {record.metrics[name]}, and {ACCOUNT} {value}")


def _check_entry(account: Account, log: Log, run: Record) -> None:
    """The log's entry, and the states on its two sides, are those of the account.

    Raises:
        Broken: one is not.
    """
    state, count = account.state, int(account.state.log.split(":")[0])
    if count > len(log.entries):
        raise Broken(f"it names entry {count} of the request log, which has {len(log.entries)}: an older copy of the run?")
    entry, last = log.entries[state.entry - 1], log.entries[count - 1]
    after = log.entries[count].before if count < len(log.entries) else run.bound.manifest.digest
    kind = "removed" if account.updated else "pending"
    removed = len(_since(log, entry)) if account.updated else 0
    promised = {name: entry.promise.get(name) for name in ("exact", "eps", "delta", "adaptive")}
    promise = account.promise
    pairs: dict[str, tuple[object, object]] = {
        "where the log ends": (state.log, f"{last.number}:{last.hash}"),
        "the state before": (state.before, entry.before),
        "the state after": (state.after, after),
        "what became of it": (kind, entry.kind),
        "the method": (account.done.method, entry.method),
        "what the ids named": (account.asked.by, entry.by),
        "people": (account.asked.people, len(entry.units)),
        "keyed hashes": (account.asked.hashes, len({*entry.records, *entry.units})),
        "records removed": (account.done.records, removed),
        "the guarantee": ({name: getattr(promise, name) for name in promised}, promised),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise Broken(f"{name}: {ACCOUNT} says {ours}, and the run's log {theirs}")


def _since(log: Log, update: Entry) -> frozenset[str]:
    """The records that an update carried out: its own, and those that had been pending."""
    earlier = [entry for entry in log.entries[: update.number] if entry.kind == "removed" and entry.number < update.number]
    start = earlier[-1].number if earlier else 0
    return frozenset(record for entry in log.entries[start : update.number] for record in entry.records)
