"""Settings of agt verify."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt_cli.configuration import check_keys, read_digest_setting

VERIFY_KEYS = ("path", "digest", "page", "ledger", "head")
PAGES = (".html", ".md")


def check_verify(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong digest, or a page that cannot be written."""
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
    read_digest_setting(config, "digest")
