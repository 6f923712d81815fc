"""Compare env.json and spent.json with the other files of the same record.

Entries that no other file contains (the machine, its packages, the revision, the command line)
cannot be compared; ``agt verify`` lists them as not checked.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from agt import __version__, sentences
from agt.errors import few
from agt.models.shards import SHARD, SHARDS
from agt.store.reading import Broken
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.report.finished import SOURCE_FILE
from agt_cli.verify.comparison import check_entries, check_match, rendered_alike
from agt_cli.verify.folders import Record

COMMANDS_PAID_BY_LEDGERS = ("predict", "measure")
"""Commands whose env.json names the ledger that pays.

Training with noise names it too, where there is one.
"""
COMMANDS_WITH_QUERIES = ("predict", "certify", "plan")
"""Commands that ask the queries of ``inputs``, which env.json names again.

Audits open the run without them.
"""
ENTRIES_OF_EVERY_RELEASE = {
    "what",
    "mechanism",
    "guarantee",
    "totals",
    "queries",
    "dataset",
    "simulated",
    "ledger",
}
"""Entries of spent.json that every release has; others depend on the command."""
ENTRIES_OF_THE_FILE = {"time", "note", "seal", "format"}
"""Entries that are added when spent.json is written."""


def check_environment(record: Record) -> str:
    """Compare env.json with the other files of its record, as far as they have the same values.

    Args:
        record: the record that is checked.

    Returns:
        A sentence that lists the entries which were compared.

    Raises:
        Broken: env.json does not name the version of agt, or another file contradicts it.
    """
    environment = record.environment
    version = environment.get("agt")
    if not isinstance(version, str):
        raise Broken(
            f"the entry 'agt' in env.json is {version!r}, but should be the version of agt that "
            "made this folder"
        )
    derived = _entries_of(record)
    if "updated" not in derived:  # after an update, status.json no longer has these times
        _check_resumption_times(record)
    check_entries("env.json", environment, "this folder's other files", derived)
    entries = ", ".join(sorted(derived))
    return f"the entries {entries} of env.json match the other files of this folder"


def _entries_of(record: Record) -> dict[str, Any]:
    """Return the entries that env.json should have according to the record's other files.

    Returns:
        Entry -> value. None as a value: env.json should lack the entry, or have null. An entry that
        no other file determines is left out.
    """
    config = record.config
    compute = config.get("compute") or {}
    derived: dict[str, Any] = {"rehearsed": config.get("rehearse") or None}
    # after an erasure (env.json has "succeeds"), the settings may have new seeds
    if not record.environment.get("succeeds"):
        derived["seed"] = (config.get("training") or {}).get("seed")
    if compute.get("threads"):
        derived["threads"] = compute["threads"]
    if record.command == "train" and record.holds(SOURCE_FILE):
        derived["dataset"] = record.json(SOURCE_FILE)["name"]
    if record.command in COMMANDS_WITH_QUERIES and not config.get("release"):
        inputs = config.get("inputs")
        derived["inputs"] = None if inputs is None else str(Path(str(inputs)))
    return derived | _ledger_entry(record) | _update_times_entry(record)


def _ledger_entry(record: Record) -> dict[str, Any]:
    """Return the entry "ledger" that env.json should have according to the settings.

    Returns:
        {"ledger": its name, or None if no ledger may pay}. Empty: the settings do not determine
        the entry, because the command pays nothing, or because the ledger may come from
        AGT_LEDGER, which only env.json records.
    """
    if record.command not in COMMANDS_PAID_BY_LEDGERS or record.config.get("release"):
        return {}
    if record.metrics.get("simulated"):
        return {"ledger": None}
    named = record.config.get("ledger")
    if named is None:
        return {}
    return {"ledger": None if named == NO_LEDGER else str(named)}


def _update_times_entry(record: Record) -> dict[str, Any]:
    """Return the entry "updated" that env.json should have: the time of each update of the run.

    Every update by an erasure replaces one state of the run, whose digest env.json lists in the
    entry "succeeds". status.json has the time of the last update only, so the earlier times are
    taken from env.json itself: what is checked is their number, and the last time.

    Returns:
        {"updated": the times}; empty: the run was not updated.
    """
    recorded_times = record.environment.get("updated")
    if not isinstance(recorded_times, list) or "updated" not in record.status:
        return {}
    earlier_states = record.environment.get("succeeds") or ()
    earlier_updates = recorded_times[: max(0, len(earlier_states) - 1)]
    return {"updated": [*earlier_updates, record.status["updated"]]}


def _check_resumption_times(record: Record) -> None:
    """Raise Broken if env.json and status.json differ in the times at which the run was resumed.

    env.json has a mapping with the entry "time" for each resumption, and status.json the times
    alone. Nothing is checked if the run was not resumed according to env.json.
    """
    resumptions = record.environment.get("resumed")
    if isinstance(resumptions, list):
        times = [entry.get("time") if isinstance(entry, Mapping) else None for entry in resumptions]
        check_match("env.json", times, "status.json", record.status.get("resumed"), "resumed")


def note_inputs_of_members(record: Record) -> None:
    """Note that nothing determines what the members of an ensemble were trained on.

    The digests of their records, and the software that trained them, are recorded for the next
    erasure alone. Digests are made of private records, which ``agt verify`` does not read.
    """
    names = [name for name in record.manifest.files if PurePosixPath(name).name in (SHARD, SHARDS)]
    if names:
        listed = few(names)
        record.findings.note(
            "members",
            "the digests of the members' training records, and the software that trained the "
            "members, were not compared, because no other file that was checked determines them: "
            f"{listed}",
            "to check them, train again and compare these files",
        )


def compare_spent(record: Record, derived: Mapping[str, object], source: str) -> None:
    """Raise Broken unless spent.json has the given fields, and those that follow from the record.

    The latter are the dataset, the run or data that was released from, a time during the run, and,
    if this version of agt wrote the file, the note and no further entries. If another version
    wrote it, these are noted as not checked.

    Args:
        record: the record of the release; its spent.json is not empty.
        derived: field -> value, as recomputed for the release.
        source: what ``derived`` follows from, for messages.
    """
    spent = record.spent
    environment = record.environment
    derived = {**derived, "dataset": environment.get("dataset")}
    subject = ("trained_run", "trained_digest") if record.command == "predict" else ("data_digest",)
    derived |= {name: environment.get(name) for name in subject}
    check_entries("spent.json", spent, source, derived)
    time = spent.get("time")
    if not record.was_running_at(str(time)):
        began, ended = record.times
        raise Broken(
            f"the time in spent.json is {time!r}, but the run lasted from {began} to {ended}"
        )
    if environment.get("agt") != __version__:
        record.findings.unchecked(
            "words", "the note in spent.json was not compared, because another version wrote it"
        )
        return
    known = ENTRIES_OF_EVERY_RELEASE | ENTRIES_OF_THE_FILE | set(subject)
    unknown = sorted(set(spent) - known)
    if unknown:
        entry = unknown[0]
        value = spent[entry]
        raise Broken(f"spent.json has the entry '{entry}' = {value!r}, which agt does not write")
    note = sentences.spent_note(str(spent["what"]))
    recorded = spent.get("note")
    if not rendered_alike(recorded, note):
        raise Broken(f"the entry 'note' in spent.json is {recorded!r}, but should be {note!r}")
