"""Refusals of agt measure that need no data."""

from agt.errors import ConfigError

MEASURE_KEYS = ("total", "name")
"""Settings of agt measure that are not those of a training."""


def no_table() -> ConfigError:
    """Return the refusal of a dataset that is no table."""
    return ConfigError(
        "dataset: agt measure can only measure a table: give dataset=NAME, the "
        "configuration of a table (agt data inspect FILE writes one)"
    )


def no_budget() -> ConfigError:
    """Return the refusal of a measurement without a budget."""
    return ConfigError(
        "total.eps is missing, but measuring spends privacy budget: give the amount to "
        "spend, for example total.eps=0.1"
    )
