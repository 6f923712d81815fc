"""The configuration of another command, composed for one that does its work, too."""

from collections.abc import Sequence
from typing import Any

from hydra import compose

from agt_cli import usage
from agt_cli.configuration import library, plain
from agt_cli.errors import explain
from agt_cli.renamed import with_old_names


def composed(command: str, overrides: Sequence[str], complete: bool = True) -> dict[str, Any]:
    """The resolved configuration of ``command``, as plain containers: for what runs other commands'
    work.

    Args:
        complete: refuse where a required value was not given; else it is ???.

    Raises:
        ConfigError: an override does not fit.
    """
    config_name = usage.COMMANDS[command].config
    try:
        with library():
            config = compose(config_name, with_old_names(command, overrides))
    except Exception as error:
        raise explain(error, config_name, list(overrides)) or error from None
    return plain(config, complete)
