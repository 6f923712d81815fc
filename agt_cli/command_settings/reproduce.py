"""Settings of agt reproduce."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.settings import schema, validate
from agt_cli.configuration import check_keys


@schema
class ReproduceConfig:
    """Which figures and tables of the papers are reproduced, from which data.

    Attributes:
        name: the name of the experiment, a file in experiments/.
        profile: the settings of the paper, ours, both side by side, or those of a quick test
            (``smoke``).
        data: the papers' data (``original``), the data that stand in for them (``stand_in``), or
            ``either``: the first of the two that exists.
        only: ids of figures and tables; None: all.
        overrides: settings of agt train for every run (where data are, how to compute).
        runs_dir: the folder in which finished runs are stored, and looked for before each run.
    """

    name: str
    profile: Literal["both", "paper", "ours", "smoke"] = "both"
    data: Literal["either", "original", "stand_in"] = "either"
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    overrides: tuple[str, ...] = ()
    runs_dir: Annotated[str, Field(min_length=1)] = "outputs/reproduce/runs"


REPRODUCE_KEYS = ("name", "profile", "data", "only", "overrides", "runs_dir")


def check_reproduce(config: Mapping[str, Any]) -> ReproduceConfig:
    """Return the settings of agt reproduce, without comparing them with the experiment's file.

    Raises:
        ConfigError: a key is unknown, or a value is wrong; the message names the key.
    """
    check_keys(config, (*REPRODUCE_KEYS, "compute", "output_dir", "data_dir"))
    given = {key: config.get(key) for key in REPRODUCE_KEYS}
    return validate(ReproduceConfig, given, "reproduce")
