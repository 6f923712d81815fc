"""States that an erasure replaced: a copy of one of them is refused."""

from collections.abc import Iterable
from pathlib import Path

from agt.errors import ConfigError
from agt.store.json_text import parse_object
from agt.store.reading import MAX_FILE_BYTES, Broken, read_file
from agt_cli.report.finished import ACCOUNT_FILE, UNLEARN


def home_of(run: Path) -> list[Path]:
    """The output folder that a training run lies in; none where it lies elsewhere."""
    return [folder.parent for folder in run.resolve().parents if folder.name == "train"][:1]


def check_not_replaced(digest: str, folder: Path, places: Iterable[Path], key: str = "run") -> None:
    """Refuse a state of a run that an account of an erasure says was replaced: a folder from before
    it was put back.

    A run's own log, which its manifest lists, cannot know of an entry that names this digest as the
    state before.

    Args:
        digest: of the run in ``folder``; empty: nothing can be said.
        places: output folders, whose accounts are looked at. One that cannot be read stops the
            command, because it may name this state.

    Raises:
        ConfigError: an account names this state, or cannot be read.
    """
    if not digest:
        return
    paths = (
        path
        for place in places
        for depth in ("*", "*/*")
        for path in place.glob(f"{UNLEARN}/{depth}/{ACCOUNT_FILE}")
    )
    for path in sorted(paths):
        number = _entry_that_replaced(path, digest)
        if number is not None:
            raise ConfigError(
                f"{key}={folder}: this folder is an earlier state of a run, and still contains "
                f"the records that erasure {number} removed (see {path}). Use the present state "
                "of the run. If you do not have it, delete this folder and train again without "
                "the erased records"
            )


def _entry_that_replaced(account: Path, digest: str) -> object:
    """The number of the log's entry by which this account's erasure replaced a state; None: it did
    not.

    Raises:
        ConfigError: the account is damaged, so nobody can tell which states it replaced.
    """
    try:
        state = parse_object(read_file(account, MAX_FILE_BYTES), ACCOUNT_FILE)["state"]
        return state["entry"] if state["before"] == digest else None
    except (Broken, OSError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{account}: this report of an erasure cannot be read ({error}), so agt cannot tell "
            "whether the erasure replaced the run that was given by a newer state. Restore the "
            "report from a backup. If the report is about another run, move "
            f"{account.parent} to another place"
        ) from None
