"""The list of ledgers that this user used on this machine.

It shows when another ledger has replaced one of them.
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from agt.errors import AgtError, CheckError
from agt.ledger.ledger import Ledger, similar
from agt.ledger.tables import AdmittedTable


def known_ledgers() -> dict[str, str]:
    """Return the listed ledgers: path -> ``Book.first_entry``, empty where it is not known.

    The list is a file in XDG_STATE_HOME (``~/.local/state``) with one JSON object a line, or with a
    path alone, as earlier versions wrote it. If several lines are about one path, the last counts.
    """
    known = dict[str, str]()
    with suppress(OSError, RuntimeError):
        text = _list_file().read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.splitlines():
            with suppress(ValueError):  # a line that a power cut damaged
                if line.startswith("{"):
                    known.update(json.loads(line))
                else:
                    known.setdefault(line, "")
    return known


def _list_file() -> Path:
    """Return the path of the list."""
    state_folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_folder) / "agt" / "ledgers"


def check_same_ledger(path: Path, first: str = "", declared: Collection[object] = ()) -> None:
    """Raise CheckError if another ledger is listed at this path.

    Args:
        path: the path of the ledger.
        first: ``Book.first_entry`` of the ledger that is there; empty if one is to be created.
        declared: ``Book.declared``. A ledger that this one was declared to replace is no error.
    """
    known = known_ledgers().get(os.path.realpath(path))
    if known and known != first and known not in declared:
        command = "admit" if first else "init"
        raise CheckError(
            f"ledger={path}: another ledger was in this place before (the hash of its first entry "
            f"began with {known}), so its budget could be spent again. Restore the earlier "
            f"ledger. If you replaced it on purpose, declare that with agt ledger {command} "
            f"replaces={known}; the ledger and its claims record this permanently"
        )


def recognise(ledger: Ledger) -> str | None:
    """Add a ledger to the list, if no other one is listed at its path.

    A ledger is created first, then listed, and debited last. So a process that is killed in between
    leaves a ledger that is not listed and has spent nothing. If it were listed first, the list
    could keep a ledger that was never created, and no other could take its place.

    Returns:
        A warning for the owner that the list cannot be written; None if the ledger is listed.

    Raises:
        CheckError: another ledger is listed at this path.
    """
    first = ledger.book.first_entry
    check_same_ledger(ledger.path, first, ledger.book.declared)
    line = {os.path.realpath(ledger.path): first}
    if line.items() <= known_ledgers().items():
        return None
    try:
        place = _list_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a", encoding="utf-8") as file:
            # A line of its own, even if a power cut damaged the end of the line before.
            file.write(f"\n{json.dumps(line)}\n")
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        return (
            f"the list of the ledgers that were used on this account cannot be written ({error}), "
            "so agt would not notice if another ledger replaced this one: make the folder of "
            "this list writable"
        )
    return None


def similar_elsewhere(path: Path, table: AdmittedTable) -> list[str]:
    """Return a warning for each listed ledger in another folder that may count the same people.

    Ledgers that cannot be opened, because they are damaged or locked, are left out.

    Args:
        path: the ledger that is used now.
        table: the table that it is about.
    """
    lines = list[str]()
    for other in map(Path, known_ledgers()):
        if other.parent != path.resolve().parent and other.is_file():
            with suppress(AgtError):
                lines += similar(other, table)
    return lines
