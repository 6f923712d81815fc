"""The list of ledgers that this account has used on this machine, so that none is replaced by
another unnoticed.
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from agt.errors import AgtError, CheckError
from agt.ledger.book import AdmittedTable
from agt.ledger.ledger import Ledger, similar


def known_ledgers() -> dict[str, str]:
    """The list of ledgers of this account on this machine: path -> ``Book.first_entry``; empty: an
    earlier version's.

    It is a file in XDG_STATE_HOME (``~/.local/state``) of one JSON object a line, or of a path
    alone, as earlier versions wrote it. Of several lines about one path the last one counts.
    """
    known: dict[str, str] = {}
    with suppress(OSError, RuntimeError):
        for line in _list_file().read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            with suppress(ValueError):  # a line that a power cut tore
                known |= json.loads(line) if line.startswith("{") else {line: known.get(line, "")}
    return known


def _list_file() -> Path:
    return (
        Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        / "agt"
        / "ledgers"
    )


def check_same_ledger(path: Path, first: str = "", declared: Collection[object] = ()) -> None:
    """Raise CheckError where the list of ledgers has another one at this path.

    Args:
        first: ``Book.first_entry`` of the ledger there; empty: one is about to be made.
        declared: ``Book.declared``: a ledger in whose place this one was declared to lie is no
            other.
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
    """Put a ledger on the list, if no other one is listed at its path.

    A ledger is made first, listed then, and debited last, as whoever pays from it calls this
    before.
    So a process that is killed in between leaves a ledger that is not listed and has spent nothing;
    listed first, it could leave the name of a ledger that never was, and no other could take it.

    Returns:
        What its owner should hear; None: it is listed.

    Raises:
        CheckError: as ``check_same_ledger``.
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
            file.write(f"\n{json.dumps(line)}\n")  # whatever a power cut left of the line before
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
    """Return which listed ledgers in other folders may count the same people, a line each.

    Ledgers that cannot be opened, because they are damaged or locked, are left out.

    Args:
        path: of the ledger that is used now.
        table: whose data it is about.
    """
    lines: list[str] = []
    for other in map(Path, known_ledgers()):
        if other.parent != path.resolve().parent and other.is_file():
            with suppress(AgtError):
                lines += similar(other, table)
    return lines
