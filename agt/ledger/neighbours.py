"""Other ledgers of the same folder: two budgets for the same people would add up, and each would be broken."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agt.errors import ConfigError
from agt.ledger.book import Table
from agt.ledger.chain import follow
from agt.ledger.place import take_lock
from agt.ledger.store import Foreign, Store

SUFFIX = ".ledger"


@contextmanager
def folder_alone(folder: Path, seconds: float = 60.0) -> Iterator[None]:
    """Nobody else makes a ledger in this folder, or admits a table there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        take_lock(handle, seconds, f"ledger: {folder}")
        yield
    finally:
        os.close(handle)


def check_unclaimed(path: Path, table: Table) -> None:
    """Raise ConfigError where another ledger of the folder than ``path`` admitted a table's people: the same data or file.

    Raises:
        CheckError: another ledger there is damaged, so that nobody can say.
    """
    for other in sorted(path.parent.glob(f"*{SUFFIX}")):
        if other.resolve() != path.resolve() and (entry := admitted(other, table)):
            raise ConfigError(
                f"the people of {table.name} have a ledger already: {other} admitted {entry.name}, the same "
                f"{table.shares(entry)}; the losses under two budgets add up: use one, and keep no copy beside it"
            )


def admitted(path: Path, table: Table) -> Table | None:
    """A table that a ledger admitted, of the same data or file; None: it did not."""
    try:
        store = Store(path, writing=False)
    except (Foreign, ConfigError):  # another program's file
        return None
    with closing(store), store.turn():
        tables = [Table.of(entry.body) for entry in follow(store.texts()) if entry.kind == "admit"]
    return next((other for other in tables if table.shares(other)), None)
