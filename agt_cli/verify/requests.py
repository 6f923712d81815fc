"""Requests to erase as an auditor sees them: a run's log against all else that the run says, and states that gave way.

Formal guarantees
    A request log vouches for nothing by its words: its chain is followed from the first line, the state that its last entry
    names is worked out from the manifest, the states that gave way are those that env.json lists, in their order, and no
    record that was carried out is left in the index. A record that was made from a state which the run no longer has is
    known by the log alone: the digest that it names is the one that an entry replaced.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt.facts import Standing
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken, Manifest
from agt.unlearning.index import NAME as INDEX
from agt.unlearning.index import Index
from agt.unlearning.keys import NAME as KEY
from agt.unlearning.keys import Key
from agt.unlearning.log import NAME as LOG
from agt.unlearning.log import Entry, Log
from agt_cli.verify.reading import read
from agt_cli.verify.record import Record
from agt_cli.verify.removal import check_promise

LARGE = 2**30  # bytes of a log or an index
HALF = (
    "an erasure was carried out whose files are not all in their places yet (unlearning/commit)",
    "any agt command on the run brings them there (agt certify run=..., say), and an audit writes nothing; then verify "
    "again",
)


def check_requests(record: Record) -> None:
    """The request log of a training run, if it has one, against everything else that the run says."""
    bound, findings = record.bound, record.findings
    if bound.holds(INDEX):
        with findings.looking("key"):
            _check_key(record)
    if not bound.holds(LOG):
        if record.environment.get("succeeds"):
            with findings.looking("request log"):
                raise Broken(
                    f"env.json names states before this one (succeeds), and {LOG}, which replaced them, is not listed"
                )
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
        last = log.entries[-1]
        if last.method == "newton":
            check_promise(last.promise, record)


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
    if any(fact.get("standing") == Standing.VOID for fact in promise.get("assumptions") or ()):
        what = f"NOT PROVED; as published: {what}"
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


def _check_key(record: Record) -> None:
    """The owner's key, if it lies there, is the one that the records are indexed with; so is the log (``_check_index``)."""
    path = record.bound.folder / KEY
    if not lexists(path):
        words = f"{KEY} is gone: without it nobody can ask whether an id was trained on or erased"
        record.findings.unchecked("key", words)
        return
    try:
        key = Key(read(path, 64))
    except ConfigError as error:
        raise Broken(str(error)) from None
    if key.check != Index.read(record.bound.read(INDEX, LARGE)).key:
        raise Broken(f"{KEY} is not the one that {INDEX} was written with")
    record.findings.ok("key", f"{KEY} is the one that {INDEX} was written with; no manifest lists it")


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
