"""Settings of agt verify."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt.ledger.chain import Head
from agt_cli.configuration import check_keys, read_digest_setting
from agt_cli.ledger_files import find_ledger, is_ledger, require_ledger

VERIFY_KEYS = ("path", "digest", "page", "ledger", "head")
PAGES = (".html", ".md")


def check_verify(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong digest, ledger or head, or a page that cannot be written."""
    check_keys(config, VERIFY_KEYS)
    path = Path(str(config["path"])).expanduser()
    if config.get("page") is not None:
        page = Path(str(config["page"]))
        if page.suffix not in PAGES:
            endings = " or ".join(PAGES)
            raise ConfigError(f"page={page}: give a file name that ends with {endings}")
        if page.exists():
            raise ConfigError(
                f"page={page}: this file already exists, and agt does not overwrite it: give "
                "another name"
            )
        if page.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"page={page}: this file would be inside the folder that is verified: give a "
                "file outside of that folder"
            )
    if read_digest_setting(config, "digest") is not None and is_ledger(path):
        raise ConfigError(
            "digest=... cannot be given for a ledger, because a ledger grows: give "
            "head=COUNT:HASH instead, as `agt ledger show` prints it"
        )
    ledger = config.get("ledger")
    if ledger is not None and find_ledger(ledger, path) is None:
        require_ledger(str(ledger))  # the path is not needed here
    read_head(config.get("head"))  # called because it raises if the head is malformed


def read_head(setting: object) -> Head | Path | None:
    """Return the last entry, or the path of the head file, that the setting ``head`` gives.

    Raises:
        ConfigError: it is neither COUNT:HASH nor an existing file.
    """
    if setting is None:
        return None
    head = Head.read(str(setting))
    if head is not None:
        return head
    if not os.path.exists(str(setting)):
        raise ConfigError(
            f"head={setting}: give COUNT:HASH, as agt ledger show prints it, or the head file "
            "(which keeps a copy of the ledger's last entry)"
        )
    return Path(str(setting))
