"""Settings of agt ledger that are a new ledger's budget."""

from collections.abc import Mapping
from typing import Any, TypeVar

from agt.errors import ConfigError
from agt.release_settings import TotalBudget
from agt.settings import validate

B = TypeVar("B", bound=TotalBudget)


def check_ledger(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a new ledger whose budget is wrong or missing, or that has no unit."""
    total = config.get("total")
    if config.get("action") != "init" or not isinstance(total, Mapping):
        return
    if total.get("eps") is None:
        raise no_budget()
    read_total_budget(total, TotalBudget)  # called because it raises
    if config.get("unit") is None and not config.get("run"):
        raise no_unit()


def no_budget() -> ConfigError:
    """Return the refusal of a new ledger without a budget."""
    return ConfigError(
        "total.eps is missing, but a ledger needs a budget: give for example "
        "total.eps=1 total.delta=1e-5. This budget limits everything that is ever "
        "released about the people of the ledger, and cannot be raised later"
    )


def no_unit() -> ConfigError:
    """Return the refusal of a new ledger that neither a unit nor a run is given for."""
    return ConfigError(
        "unit is missing: say whose data the guarantee protects, for example unit='one "
        "customer'. With run=FOLDER, agt takes the unit from the run"
    )


def read_total_budget(total: Mapping[str, Any], cls: type[B]) -> B:
    """Return the budget of a new ledger.

    Args:
        total: the value of the key ``total``, in which ``eps`` is given.
        cls: the class of the result.

    Raises:
        ConfigError: a value is wrong; the message names the key.
    """
    given = {key: value for key, value in total.items() if value is not None}
    return validate(cls, given, "total")
