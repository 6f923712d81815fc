"""Compare the request log of a training run with everything else that the run says.

The request log has an entry for each request to erase.

Formal guarantees
    - The request log is not believed: its chain is followed from the first line; the state that its
      last entry names is recomputed from the manifest; the earlier states are those that env.json
      lists, in their order; and no erased record is in the index.
    - A record that was made from a state which the run no longer has is recognised by the digest
      that an entry of the log replaced.
"""

from collections.abc import Iterator
from contextlib import suppress
from os.path import lexists
from pathlib import Path

from agt.errors import AgtError, Superseded, counted
from agt.models.shards import SHARDS, read_shards
from agt.store.manifest import Manifest
from agt.store.reading import Broken, read_file
from agt_cli.command_settings.unlearn import CERTIFICATE_OF_METHOD
from agt_cli.report.replaced import check_not_replaced, output_folders_of
from agt_cli.unlearn.account_md import guarantee_text
from agt_cli.unlearn.hash_key import KEY_FILE, HashKey, as_words
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE, Index
from agt_cli.verify.folders import Record
from agt_cli.verify.removals import check_promise, removal_bounds


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


def check_state(record: Record) -> None:
    """Raise Broken if a record is of a state that an erasure replaced."""
    check_not_replaced(record.digest, record.folder, output_folders_of(record.folder), "path")


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
