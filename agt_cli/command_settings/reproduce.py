"""Settings of agt reproduce."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from agt.settings import schema, validate
from agt_cli.configuration import check_keys


@schema
class ReproduceConfig:
    """What is asked for.

    Attributes:
        name: the experiment's.
        profile: paper, ours, both side by side, or smoke.
        data: the papers' own (``original``), the definition's ``stand_in``, or ``either``: the
            first that is there.
        only: ids of artifacts; None: all.
        overrides: of agt train's configuration, for every run (where data lies, how to compute).
        runs_dir: the folder that stores finished runs, so that they are not repeated.
    """

    name: str
    profile: Literal["both", "paper", "ours", "smoke"] = "both"
    data: Literal["either", "original", "stand_in"] = "either"
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    overrides: tuple[str, ...] = ()
    runs_dir: Annotated[str, Field(min_length=1)] = "outputs/reproduce/runs"


REPRODUCE_KEYS = ("name", "profile", "data", "only", "overrides", "runs_dir")


def check_reproduce(config: Mapping[str, Any]) -> ReproduceConfig:
    """Return the settings of agt reproduce, but for what the experiment has.

    Raises:
        ConfigError: by key.
    """
    check_keys(config, (*REPRODUCE_KEYS, "compute", "output_dir", "data_dir"))
    given = {key: config.get(key) for key in REPRODUCE_KEYS}
    return validate(ReproduceConfig, given, "reproduce")
