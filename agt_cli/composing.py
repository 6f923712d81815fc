"""Compose the configuration of another command, whose work a command does."""

from collections.abc import Sequence
from typing import Any

from hydra import compose

from agt_cli import usage
from agt_cli.configuration import initialized_hydra, to_plain_containers
from agt_cli.errors import explain
from agt_cli.renamed import with_old_names


def compose_command(
    command: str, overrides: Sequence[str], complete: bool = True
) -> dict[str, Any]:
    """Return the resolved configuration of a command, as plain containers.

    Args:
        command: the name of the command.
        overrides: settings, as a command line gives them.
        complete: False: a required value that was not given stays ???.

    Raises:
        ConfigError: an override is wrong, or a required value was not given and ``complete`` is
            True.
    """
    config_name = usage.COMMANDS[command].config
    try:
        with initialized_hydra():
            config = compose(config_name, with_old_names(command, overrides))
    except Exception as error:
        raise explain(error, config_name, list(overrides)) or error from None
    return to_plain_containers(config, complete)
