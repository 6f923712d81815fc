"""Refuse a copy of a run from before an erasure."""

from collections.abc import Iterable
from pathlib import Path

from agt.errors import ConfigError
from agt.store.json_text import parse_object
from agt.store.reading import MAX_FILE_BYTES, Broken, read_file
from agt_cli.report.finished import ACCOUNT_FILE, UNLEARN


def output_folders_of(run: Path) -> list[Path]:
    """Return a list of the output folder whose train/ has a run; empty: the run is elsewhere."""
    return [folder.parent for folder in run.resolve().parents if folder.name == "train"][:1]


def check_not_replaced(
    digest: str, folder: Path, output_folders: Iterable[Path], key: str = "run"
) -> None:
    """Raise ConfigError if a folder is a copy of a run from before an erasure.

    Such a folder's own request log is older than the erasure, so it is the erasure's account
    (account.json), in an output folder, that shows it.

    Args:
        digest: the digest of the run in ``folder``; empty: nothing is checked.
        folder: the folder of the run, for the message.
        output_folders: output folders, whose accounts are read.
        key: the setting that names the run, for the message.

    Raises:
        ConfigError: an account names this state as the one before its erasure; or it cannot be
            read, so that it may name this state.
    """
    if not digest:
        return
    paths: list[Path] = []
    for output_folder in output_folders:
        paths += output_folder.glob(f"{UNLEARN}/*/{ACCOUNT_FILE}")
        paths += output_folder.glob(f"{UNLEARN}/*/*/{ACCOUNT_FILE}")
    for path in sorted(paths):
        number = _erasure_that_replaced(path, digest)
        if number is not None:
            raise ConfigError(
                f"{key}={folder}: this folder is an earlier state of a run, and still contains "
                f"the records that erasure {number} removed (see {path}). Use the present state "
                "of the run. If you do not have it, delete this folder and train again without "
                "the erased records"
            )


def _erasure_that_replaced(account: Path, digest: str) -> object:
    """Return the number of an erasure if it replaced this state; None: it replaced another.

    Args:
        account: the account of the erasure, account.json.
        digest: the digest of the state.

    Raises:
        ConfigError: the account cannot be read.
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
