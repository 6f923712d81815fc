"""Conditions a to g of a privacy claim, as a run recorded them."""

import json

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt_cli.report.finished import Run


def conditions_of(finished: Run) -> tuple[Condition, ...]:
    """Return the seven conditions of a privacy guarantee, as a run recorded them.

    Raises:
        ConfigError: conditions.json is not what the run wrote, or cannot be read as conditions.
    """
    try:
        return tuple(
            Condition.from_json(node) for node in json.loads(finished.read("conditions.json"))
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"run={finished.folder}: conditions.json cannot be read ({error}): train again"
        ) from None
