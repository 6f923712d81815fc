"""Conditions a to g of a privacy claim, as a run recorded them."""

import json

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt_cli.report.finished import Run


def conditions_of(finished: Run) -> tuple[Condition, ...]:
    """Return conditions a to g as the run itself recorded them.

    Raises:
        ConfigError: conditions.json is not what the run wrote, or is none.
    """
    try:
        return tuple(
            Condition.from_json(node) for node in json.loads(finished.read("conditions.json"))
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"run={finished.folder}: conditions.json cannot be read ({error}): train again"
        ) from None
