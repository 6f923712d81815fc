"""The lists of ledgers, and of their head files, that this user has used on this machine.

With them agt notices that another ledger was put in the place of one that it used before, or a copy
from before the ledger had a head file. Beside the lists, agt keeps a head file of its own for each
ledger that paid on this account, so that of several copies of a ledger one pays there (Lemma 10 of
docs/proofs/ledger.md).
"""

import json
import os
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from agt.errors import AgtError, CheckError, few
from agt.ledger.book import Book
from agt.ledger.chain import Head
from agt.ledger.head_file import HeadFile
from agt.ledger.ledger import (
    Ledger,
    MatchingTable,
    find_matching_table,
    ledgers_in,
    read_as_copy,
)
from agt.ledger.store import file_stamps
from agt.ledger.tables import AdmittedTable

LEDGERS_FOLDER = "ledgers"  # the folder in which the command line keeps ledgers
LEDGERS_FILE = "ledgers"
HEADS_FILE = "ledger_heads"
ACCOUNT_HEADS_FOLDER = "account_heads"
SECONDS_ELSEWHERE = 5.0  # how long to wait for processes that use a ledger of another folder


def listed_ledgers() -> dict[str, str]:
    """Return the listed ledgers as a mapping from their path to ``Book.first_entry``.

    ``first_entry`` is empty if the list does not have it. Without a list the mapping is empty.

    Raises:
        AgtError: the list cannot be read.
    """
    return _read_list(LEDGERS_FILE)


def _read_list(name: str) -> dict[str, str]:
    """Return the content of a file of this user's lists.

    A line of it is a JSON object, or only a key, as earlier versions wrote it (its value is then
    empty). If several lines are about one key, the last JSON object counts.

    Args:
        name: the file's name.

    Returns:
        Empty if there is no such file, or the user has no home folder.

    Raises:
        AgtError: there may be such a file, but it cannot be read.
    """
    listed = dict[str, str]()
    try:
        path = _list_file(name)
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, RuntimeError):
        return listed
    except OSError as error:
        reason = error.strerror or error
        raise AgtError(
            f"XDG_STATE_HOME: the list {path} of ledgers that were used on this account cannot be "
            f"read ({reason}), so agt cannot compare a ledger with others. Nothing was spent. Make "
            "this file readable, and its folder searchable"
        ) from error
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):  # a line that a power cut damaged
            if line.startswith("{"):
                listed.update(json.loads(line))
            else:
                listed.setdefault(line, "")
    return listed


def _list_file(name: str) -> Path:
    """Return the path of a file of this user's lists, whether or not it exists.

    It is in XDG_STATE_HOME (by default ``~/.local/state``). As its specification has it, a relative
    path is ignored: each working folder would have lists and head files of its own.

    Raises:
        RuntimeError: the user has no home folder.
    """
    state_folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state_folder.is_absolute():
        state_folder = Path.home() / ".local" / "state"
    return state_folder / "agt" / name


def _add_to_list(name: str, item: dict[str, str]) -> None:
    """Append an item to a file of this user's lists, durably, unless the file has it already.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: the user has no home folder.
    """
    if item.items() <= _read_list(name).items():
        return
    path = _list_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        # It begins a new line, because a power cut may have damaged the end of the last one.
        file.write(f"\n{json.dumps(item)}\n")
        file.flush()
        os.fsync(file.fileno())


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


def listed_head(first_entry: str) -> str:
    """Return the path of the head file that a ledger named when it was listed last.

    Args:
        first_entry: ``Book.first_entry`` of the ledger.

    Returns:
        Empty if the ledger was never listed with a head file.
    """
    return _read_list(HEADS_FILE).get(first_entry, "")


def check_as_listed(ledger: Ledger) -> None:
    """Raise CheckError if a ledger is not the one that was listed at its path, or an older copy.

    The ledger is compared with the account's head file (``account_head``), which has the last entry
    that any copy of it appended on this account. Other listed copies are compared with it as well,
    because another account, or an earlier version of agt, may have used them: each must be an
    older state of this ledger.

    The entries of a ledger name every head file that it ever had. So a ledger that does not name
    its listed head file is a copy from before that file was added, or was altered (Lemma 9 of
    docs/proofs/ledger.md). That the head file is lost is no error if an entry declares it.

    Args:
        ledger: an open ledger.
    """
    book = ledger.book
    check_same_ledger(ledger.path, book.first_entry, book.declared)
    for copy, last_entry in _listed_copies(ledger.path, book.first_entry).items():
        ledger.check_copy(copy, last_entry)
    head = listed_head(book.first_entry)
    is_named = any(path == head for _, path in book.heads)
    if head and not is_named and not book.losses:
        raise CheckError(
            f"ledger={ledger.path}: this ledger had the head file {head} (which keeps a copy of "
            "its last entry) when it was last used on this account, but its entries do not name "
            "this file. So an older copy replaced the ledger, and a budget that was spent since "
            "then could be spent again. Restore the newest copy of the ledger. If it is lost, "
            "and the head file, too, declare that with agt ledger admit head=FILE lost=true; the "
            "ledger and its claims record this permanently"
        )
    with suppress(RuntimeError):  # the user has no home folder
        file = account_head(book)
        # A loss that this account does not know yet lets this ledger take the file over.
        if file.exists() and file.knows_losses(book.losses):
            ledger.check_account_head(file)


def account_head(book: Book) -> HeadFile:
    """Return the head file that agt keeps for all copies of a ledger on this account.

    Args:
        book: the state of the ledger after its newest entry.

    Raises:
        RuntimeError: the user has no home folder.
    """
    folder = _list_file(ACCOUNT_HEADS_FOLDER)
    return HeadFile(folder / f"{book.opening.hash}.head", book.opening.hash, of_account=True)


def _listed_copies(path: Path, first_entry: str) -> dict[Path, Head]:
    """Return the last entry of each listed copy of a ledger, by the path of the copy.

    A file that is gone, cannot be opened or is another ledger by now is left out.

    Args:
        path: the ledger's path, which is left out, too.
        first_entry: ``Book.first_entry`` of the ledger.
    """
    copies = dict[Path, Head]()
    for listed_path, listed_entry in listed_ledgers().items():
        copy = Path(listed_path)
        if listed_entry != first_entry or copy == path.resolve() or not os.path.isfile(copy):
            continue
        with suppress(AgtError):
            book = read_as_copy(copy, seconds=SECONDS_ELSEWHERE)
            if book is not None and book.first_entry == first_entry:
                copies[copy] = book.last.head
    return copies


def put_on_list(ledger: Ledger) -> str | None:
    """Add a ledger and its head file to the list, unless they are listed already.

    From then on, the ledger appends nothing without the account's head file (``account_head``).

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
        CheckError: another ledger is listed at this path, or the ledger is an older copy.
    """
    check_as_listed(ledger)
    book = ledger.book
    try:
        try:
            _add_to_list(LEDGERS_FILE, {os.path.realpath(ledger.path): book.first_entry})
            if book.head:
                _add_to_list(HEADS_FILE, {book.first_entry: book.head})
        finally:
            # Also if no list can be written, because a head file that exists can still be used.
            ledger.use_account_head(account_head(book))
    except (OSError, RuntimeError) as error:
        return (
            f"the list of the ledgers that were used on this account cannot be written ({error}), "
            "so agt would not notice if another ledger or an older copy replaced this one, or if "
            "another copy is used at the same time: make the folder of this list writable"
        )
    return None


def find_ledgers_elsewhere(folder: Path, table: AdmittedTable) -> dict[Path, MatchingTable]:
    """Return the ledgers in other folders that admitted the data or a file of a table.

    Such ledgers are looked for on this user's list, and in the folders ``LEDGERS_FOLDER`` beside
    and above the files of the table. A ledger that cannot be opened is omitted.

    Args:
        folder: the folder whose ledgers are left out, because they are compared otherwise.
        table: the table.
    """
    own_folder = folder.resolve()
    paths = set(map(Path, listed_ledgers()))
    for file in table.paths:
        data_folder = Path(file).resolve().parent
        for parent in (data_folder, data_folder.parent):
            with suppress(AgtError):
                paths |= {path.resolve() for path in ledgers_in(parent / LEDGERS_FOLDER)}
    match_by_ledger = dict[Path, MatchingTable]()
    for path in sorted(paths):
        if path.parent == own_folder or not os.path.isfile(path):
            continue
        with suppress(AgtError, OSError):
            match = _find_same_source(path, file_stamps(path), table)
            if match is not None:
                match_by_ledger[path] = match
    return match_by_ledger


@lru_cache(maxsize=256)
def _find_same_source(
    path: Path, stamps: tuple[tuple[int, int] | None, ...], table: AdmittedTable
) -> MatchingTable | None:
    """Return the first table of a ledger with the data or a file of a given table; None: no such.

    It is cached, because a program may release in a loop, and each time the ledger is copied to be
    read. ``stamps`` are in the cache's key, so that a ledger that changed is read again.

    Raises:
        AgtError: the ledger cannot be opened.
    """
    return find_matching_table(path, table, compare_names=False, seconds=SECONDS_ELSEWHERE)


def similar_ledgers_warning(path: Path, table: AdmittedTable) -> str:
    """Return a warning that listed ledgers in other folders may count the same people.

    Ledgers that cannot be opened, because they are damaged or locked, are left out.

    Args:
        path: the ledger in use; ledgers in its folder are left out, because
            ``ledger.check_no_other_ledger`` compares them.
        table: the table that the ledger in use counts.

    Returns:
        One sentence with the paths of these ledgers, those with the strongest signs first, and
        what each has in common with the table; empty: there is no such ledger.
    """
    own_folder = path.resolve().parent
    same_source = list[str]()
    same_ids = list[str]()
    same_properties = list[str]()
    for other in map(Path, listed_ledgers()):
        if other.parent == own_folder or not os.path.isfile(other):
            continue
        with suppress(AgtError):
            match = find_matching_table(
                other, table, seconds=SECONDS_ELSEWHERE, compare_properties=True
            )
            if match is None:
                continue
            if match.by_names:
                same_ids.append(f"{other}: same ids")
            elif match.shared in ("data", "file"):
                same_source.append(f"{other}: same {match.shared}")
            else:
                same_properties.append(f"{other}: same {match.shared}")
    similar = [*same_source, *same_ids, *same_properties]
    if not similar:
        return ""
    return (
        "ledgers in other folders count tables that may be about the same people "
        f"({few(similar, between='; ')}): if they are, use only one ledger, because privacy losses "
        "under two ledgers add up (docs/sharp_edges.md)"
    )
