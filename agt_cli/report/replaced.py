"""States that an erasure replaced: a copy of one of them is refused."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agt.errors import ConfigError
from agt.store import (
    MAX_FILE_BYTES,
    Broken,
    parse_object,
    read_file,
)

if TYPE_CHECKING:
    pass
from agt_cli.report.finished import ACCOUNT_FILE, UNLEARN


def home_of(run: Path) -> list[Path]:
    """The output folder that a training run lies in; none where it lies elsewhere."""
    return [folder.parent for folder in run.resolve().parents if folder.name == "train"][:1]


def check_not_replaced(digest: str, folder: Path, places: Iterable[Path], key: str = "run") -> None:
    """Refuse a state of a run that an account of an erasure says was replaced: a folder from before it was put back.

    A run's own log, which its manifest lists, cannot know of an entry that names this digest as the state before.

    Args:
        digest: of the run in ``folder``; empty: nothing can be said.
        places: output folders, whose accounts are looked at. One that cannot be read to its end, and names this state,
            counts; one that cannot be read at all does not.

    Raises:
        ConfigError: names the account.
    """
    paths = (path for place in places for depth in ("*", "*/*") for path in place.glob(f"{UNLEARN}/{depth}/{ACCOUNT_FILE}"))
    for path in sorted(paths) if digest else ():
        with suppress(Broken, OSError):
            content = read_file(path, MAX_FILE_BYTES)
            if digest.encode() not in content:
                continue
            try:
                state = parse_object(content, ACCOUNT_FILE)["state"]
                number = state["entry"] if state["before"] == digest else None
            except (Broken, KeyError, TypeError):
                number = "of a damaged account"
            if number is not None:
                raise ConfigError(
                    f"{key}={folder}: erasure {number} replaced this state, as {path} says: the folder is from before it, "
                    "and holds what was erased. Bring back the run as it was after it; or delete this folder and train "
                    "again without the erased records"
                )
