"""The list of ledgers that this user has used on this machine, in a file of this user's.

With it agt notices that another ledger was put in the place of one that it used before.
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from agt.errors import AgtError, CheckError
from agt.ledger.ledger import Ledger, similar_table_warnings
from agt.ledger.tables import AdmittedTable


def listed_ledgers() -> dict[str, str]:
    """Return the listed ledgers as a mapping from their path to ``Book.first_entry``.

    ``first_entry`` is empty if the list does not have it. Without a list, or with an unreadable
    one, the mapping is empty.

    The list is a file in XDG_STATE_HOME (by default ``~/.local/state``). A line of it is a JSON
    object, or only a path, as earlier versions wrote it. If several lines are about one path, the
    last JSON object counts.
    """
    listed = dict[str, str]()
    with suppress(OSError, RuntimeError):
        text = _list_file().read_text(encoding="utf-8", errors="surrogateescape")
        for line in text.splitlines():
            with suppress(ValueError):  # a line that a power cut damaged
                if line.startswith("{"):
                    listed.update(json.loads(line))
                else:
                    listed.setdefault(line, "")
    return listed


def _list_file() -> Path:
    """Return the path of the list, whether or not it exists.

    Raises:
        RuntimeError: the user has no home folder.
    """
    state_folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state_folder) / "agt" / "ledgers"


def check_same_ledger(path: Path, first_entry: str = "", declared: Collection[object] = ()) -> None:
    """Raise CheckError if the list has another ledger at a path.

    Args:
        path: the path of a ledger.
        first_entry: ``Book.first_entry`` of the ledger at this path; empty: it is about to be
            created.
        declared: ``Book.declared``. A listed ledger is no error if it is declared that the ledger
            at this path replaces it.
    """
    listed = listed_ledgers().get(os.path.realpath(path))
    if listed and listed != first_entry and listed not in declared:
        command = "admit" if first_entry else "init"
        raise CheckError(
            f"ledger={path}: another ledger was in this place before (the hash of its first entry "
            f"began with {listed}), so its budget could be spent again. Restore the earlier "
            f"ledger. If you replaced it on purpose, declare that with agt ledger {command} "
            f"replaces={listed}; the ledger and its claims record this permanently"
        )


def put_on_list(ledger: Ledger) -> str | None:
    """Add a ledger to the list, unless it is listed already.

    The caller creates a ledger first, then lists it, and debits it last. So a process that is
    killed in between leaves a ledger that is not listed and has spent nothing. If it were listed
    first, the list could contain a ledger that was never created, and no other could be created at
    its path.

    Args:
        ledger: an open ledger.

    Returns:
        None if the ledger is listed now; otherwise a warning for the owner, which says why the list
        cannot be written.

    Raises:
        CheckError: another ledger is listed at this path.
    """
    first_entry = ledger.book.first_entry
    check_same_ledger(ledger.path, first_entry, ledger.book.declared)
    new_item = {os.path.realpath(ledger.path): first_entry}
    if new_item.items() <= listed_ledgers().items():
        return None
    try:
        list_path = _list_file()
        list_path.parent.mkdir(parents=True, exist_ok=True)
        with list_path.open("a", encoding="utf-8") as file:
            # It begins a new line, because a power cut may have damaged the end of the last one.
            file.write(f"\n{json.dumps(new_item)}\n")
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:
        return (
            f"the list of the ledgers that were used on this account cannot be written ({error}), "
            "so agt would not notice if another ledger replaced this one: make the folder of "
            "this list writable"
        )
    return None


def similar_ledger_warnings(path: Path, table: AdmittedTable) -> list[str]:
    """Return warnings about listed ledgers in other folders that may count the same people.

    Ledgers that cannot be opened, because they are damaged or locked, are left out.

    Args:
        path: the ledger in use; ledgers in its folder are left out, because
            ``ledger.check_no_other_ledger`` compares them.
        table: the table that the ledger in use counts.

    Returns:
        A warning for each such table of such a ledger.
    """
    warnings = list[str]()
    for other in map(Path, listed_ledgers()):
        if other.parent != path.resolve().parent and other.is_file():
            with suppress(AgtError):
                warnings += similar_table_warnings(other, table)
    return warnings
