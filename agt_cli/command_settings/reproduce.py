"""Settings of agt reproduce."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml  # type: ignore[import-untyped]
from pydantic import Field

from agt.errors import ConfigError, nearest
from agt.settings import schema, validate
from agt_cli import config_files
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

    Raises:
        ConfigError: ``data`` is given with a profile that has its own data; or an override is no
            setting, or one that the profile fixes.
    """

    name: str
    profile: Literal["both", "paper", "ours", "smoke"] = "both"
    data: Literal["either", "original", "stand_in"] = "either"
    only: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    overrides: tuple[str, ...] = ()
    runs_dir: Annotated[str, Field(min_length=1)] = "outputs/reproduce/runs"

    def __post_init__(self) -> None:
        if self.profile == "smoke" and self.data != "either":
            raise ConfigError(
                f"data={self.data}: profile=smoke has its own data: leave data=... out, or choose "
                "another profile"
            )
        for word in self.overrides:
            if "=" not in word:
                raise ConfigError(
                    f"overrides: '{word}' is not a setting of agt train, which has the form "
                    "KEY=VALUE"
                )
            if word.lstrip("+~").split("=")[0].split(".")[0] in ("relation", "noise"):
                raise ConfigError(
                    f"overrides: {word}: the profile fixes what k counts and what is claimed, so "
                    "this cannot be changed"
                )


REPRODUCE_KEYS = ("name", "profile", "data", "only", "overrides", "runs_dir")


def check_reproduce(config: Mapping[str, Any]) -> ReproduceConfig:
    """Return the settings of agt reproduce.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or the experiment has no such figure or
            table; the message names the key.
    """
    check_keys(config, (*REPRODUCE_KEYS, "compute", "output_dir", "data_dir"))
    given = {key: config.get(key) for key in REPRODUCE_KEYS}
    request: ReproduceConfig = validate(ReproduceConfig, given, "")
    experiment = read_experiment(request.name)
    if request.data == "original" and not experiment.get("original"):
        raise one_data_set(experiment["title"], experiment["data"])
    if request.only is not None:
        ids = [artifact["id"] for artifact in experiment["artifacts"]]
        for name in request.only:
            if name not in ids:
                raise ConfigError(
                    f"only: {request.name} has no artifact {name!r}. Choose from: {', '.join(ids)}"
                )
    return request


def one_data_set(title: str, data: str) -> ConfigError:
    """Return the refusal of ``data=original`` for an experiment that has no stand-in.

    Args:
        title: the title of the experiment.
        data: the data set that it runs on.
    """
    return ConfigError(f"{title}: there is only one data set, {data}: leave data=original out")


def read_experiment(name: str) -> dict[str, Any]:
    """Return the definition of an experiment, not validated.

    Raises:
        ConfigError: there is none of this name.
    """
    names = config_files.experiment_names()
    if name not in names:
        raise ConfigError(f"unknown experiment '{name}'{nearest(name, names)}")
    # libyaml, where it is installed, is ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (config_files.experiments_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    node: dict[str, Any] = yaml.load(text, loader)
    return node
