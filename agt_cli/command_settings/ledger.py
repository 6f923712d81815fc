"""Settings of agt ledger that are a new ledger's budget."""

from collections.abc import Mapping
from typing import Any, TypeVar

from agt.release_settings import TotalBudget
from agt.settings import validate

B = TypeVar("B", bound=TotalBudget)


def check_ledger(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong budget of a new ledger."""
    total = config.get("total")
    if config.get("action") != "init" or not isinstance(total, Mapping):
        return
    if total.get("eps") is not None:
        read_total_budget(total, TotalBudget)


def read_total_budget(total: Mapping[str, Any], cls: type[B]) -> B:
    """Return the budget of a new ledger.

    Args:
        total: the value of the key ``total``, in which ``eps`` is given.
        cls: what it is made into.

    Raises:
        ConfigError: by key.
    """
    given = {key: value for key, value in total.items() if value is not None}
    return validate(cls, given, "total")
