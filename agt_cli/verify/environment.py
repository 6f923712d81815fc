"""env.json and the words of spent.json, as far as other files of a record say the same.

What nothing else says (the machine, its packages, the revision, the command line) is listed with
what ``agt verify`` does not show.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt import __version__, sentences
from agt.store.reading import Broken
from agt_cli.ledger_files import NO_LEDGER
from agt_cli.runs.prepare import SOURCE_FILE
from agt_cli.verify.folders import (
    Record,
    check_match,
    note_sentences,
    rendered_alike,
    spent_has_fields,
)

PAID_BY_LEDGERS = ("predict", "measure")
"""Commands whose env.json names the ledger that pays.

Training with noise names it too, where there is one.
"""
OF_QUERIES = ("predict", "certify", "plan")
"""Commands that ask the queries of ``inputs``, which env.json names again.

Audits open the run without them.
"""
OF_EVERY_RELEASE = {
    "what",
    "mechanism",
    "guarantee",
    "totals",
    "queries",
    "dataset",
    "simulated",
    "ledger",
}
WRITTEN_WITH_IT = {"time", "note", "seal", "format"}


def check_environment(record: Record, trained: Record | None = None) -> str:
    """Raise Broken unless env.json names a version of agt, and says what other files make it say.

    Of another version's env.json, those entries are compared that it has.
    """
    environment = record.environment
    named = environment.get("agt")
    if not isinstance(named, str):
        raise Broken(
            f"the entry 'agt' in env.json is {named!r}, but should be the version of agt that "
            "made this folder"
        )
    derived = _entries_of(record)
    if environment["agt"] != __version__:
        derived = {key: value for key, value in derived.items() if key in environment}
    recorded = {key: environment.get(key) for key in derived}
    check_match("env.json", recorded, "this folder's other files", derived)
    entries = ", ".join(sorted(derived))
    return f"the entries {entries} of env.json match the other files of this folder"


def _entries_of(record: Record) -> dict[str, Any]:
    """Return what other files say of entries of env.json; None: such an entry is not there."""
    config = record.config
    training, compute = config.get("training") or {}, config.get("compute") or {}
    derived: dict[str, Any] = {"rehearsed": config.get("rehearse") or None}
    if not record.environment.get("succeeds"):  # an update may have drawn the settings' seeds anew
        derived["seed"] = training.get("seed")
    if compute.get("threads"):
        derived["threads"] = compute["threads"]
    if record.command == "train" and record.holds(SOURCE_FILE):
        derived["dataset"] = record.json(SOURCE_FILE)["name"]
    if record.command in OF_QUERIES and not config.get("release"):
        inputs = config.get("inputs")
        derived["inputs"] = None if inputs is None else str(Path(str(inputs)))
    return derived | _ledger_of(record) | _history_of(record)


def _ledger_of(record: Record) -> dict[str, Any]:
    """The ledger that was named, where the settings say it; what AGT_LEDGER was is in env.json
    alone.
    """
    named, simulated = record.config.get("ledger"), bool(record.metrics.get("simulated"))
    asked = record.command in PAID_BY_LEDGERS and not record.config.get("release")
    if asked and simulated:
        return {"ledger": None}
    if asked and named is not None:
        return {"ledger": None if named == NO_LEDGER else str(named)}
    return {}


def _history_of(record: Record) -> dict[str, Any]:
    """Each time that a run was taken up again, or gave way to a next state."""
    environment, status = record.environment, record.status
    updated = environment.get("updated")
    if isinstance(updated, list) and "updated" in status:
        succeeded = len(environment.get("succeeds") or ())
        return {"updated": [*updated[: max(0, succeeded - 1)], status["updated"]]}
    if isinstance(resumed := environment.get("resumed"), list):
        times = [entry.get("time") if isinstance(entry, Mapping) else None for entry in resumed]
        check_match("env.json", times, "status.json", status.get("resumed"), "resumed")
    return {}


def compare_spent(record: Record, derived: Mapping[str, object], source: str) -> None:
    """Raise Broken unless spent.json has these fields, and those that follow from the record
    itself.

    Args:
        derived: what the release comes to, by field.
        source: what the release is derived from, for messages.
    """
    spent, environment = record.spent, record.environment
    derived = {**derived, "dataset": environment.get("dataset")}
    subject = ("trained_run", "trained_digest") if record.command == "predict" else ("data_digest",)
    own_version = environment.get("agt") == __version__
    for name in subject:
        if name in spent or own_version:
            derived[name] = environment.get(name)
    check_match("spent.json", {key: spent.get(key) for key in derived}, source, derived)
    note_sentences(record)
    # to the second
    began, ended = (str(record.status.get(name))[:19] for name in ("started", "ended"))
    time = spent.get("time")
    if not began <= str(time)[:19] <= ended:
        raise Broken(
            f"the time in spent.json is {time!r}, but the run lasted from {began} to {ended}"
        )
    if not own_version or not spent_has_fields(record):
        return
    known = OF_EVERY_RELEASE | WRITTEN_WITH_IT | set(subject)
    if unknown := sorted(set(spent) - known):
        entry = unknown[0]
        value = spent[entry]
        raise Broken(f"spent.json has the entry '{entry}' = {value!r}, which agt does not write")
    note = sentences.spent_note(str(spent["what"]))
    recorded = spent.get("note")
    if not rendered_alike(recorded, note):
        raise Broken(f"the entry 'note' in spent.json is {recorded!r}, but should be {note!r}")
