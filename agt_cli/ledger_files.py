"""Where ledgers lie. Loads neither NumPy nor PyTorch, so that a missing ledger is named at once."""

import os
import re
from contextlib import suppress
from pathlib import Path

from agt.errors import ConfigError, nearest
from agt.ledger.file_checks import SQLITE_MAGIC, SUFFIX
from agt.store.reading import Broken, open_plain

FOLDER = "ledgers"
NO_LEDGER = "none"
"""The value of ledger= that means: without a ledger."""
VARIABLE = "AGT_LEDGER"
"""The environment variable that names the ledger where no setting does."""
_NAME = re.compile(r"\w[\w .-]*")


def ledger_path(name: str) -> Path:
    """Return the path of a ledger's file, which need not exist.

    Args:
        name: the name of a ledger in the folder ledgers/; or a path, which has a slash or ends in
            .ledger.

    Raises:
        ConfigError: the name has a character that is not allowed.
    """
    if "/" in name or name.endswith(SUFFIX):
        return Path(name)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"ledger={name}: a ledger's name may contain only letters, digits, '-' and '_'. Give "
            "such a name, or the path of a ledger's file (with a '/', or ending in '.ledger')"
        )
    return Path(FOLDER) / f"{name}{SUFFIX}"


def require_ledger(name: str) -> Path:
    """Return the path of a ledger's file; raise ConfigError if the file does not exist.

    Args:
        name: the name of a ledger in the folder ledgers/; or a path, which has a slash or ends in
            .ledger.

    Raises:
        ConfigError: the file does not exist; the message names similar ledgers.
    """
    path = ledger_path(name)
    if path.exists() or path.is_symlink():
        return path
    known = nearest(name, [other.stem for other in Path(FOLDER).glob(f"*{SUFFIX}")])
    raise ConfigError(
        f"ledger={name}: the ledger {path} does not exist{known}. To create a ledger, type agt "
        "ledger init"
    )


def find_ledger(name: object, run_folder: Path) -> Path | None:
    """Return the path of a ledger's file; None: no such file was found.

    A relative path is looked for from the working directory, then from the folder that contains the
    run's ``outputs``; at last the file is looked for in the folder of ledgers there.

    Args:
        name: the ledger's name or path; None: no ledger is named.
        run_folder: the run's folder.
    """
    if name is None:
        return None
    try:
        path = Path(os.path.expanduser(ledger_path(str(name))))
    except ConfigError:
        return None
    top = run_folder.resolve().parent.parent.parent  # of TOP/outputs/predict/RUN
    candidates = (path, top / path, top / FOLDER / path.name)
    return next((candidate for candidate in candidates if candidate.exists()), None)


def is_ledger(path: Path) -> bool:
    """Return whether a file is a ledger, by its ending or by its first bytes.

    A path that ends in .ledger is one even if nothing is there.
    """
    if path.suffix == SUFFIX:
        return not path.is_dir()
    with suppress(Broken), open_plain(path) as file:
        return bool(file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC)
    return False


def nothing_to_pay(ledger: object) -> ConfigError:
    """Return the refusal of a ledger for a training without noise.

    Args:
        ledger: the value of the key ``ledger``.
    """
    return ConfigError(
        f"ledger={ledger}: training without noise releases nothing, so the ledger has nothing to "
        "pay for: leave ledger=... out"
    )
