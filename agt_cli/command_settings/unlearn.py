"""Settings of agt unlearn."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from agt.errors import ConfigError, nearest
from agt_cli.configuration import check_keys, read_digest_setting
from agt_cli.renamed import with_new_name
from agt_cli.usage import IDS_NEED_A_FILE, ids_by_pipe

By = Literal["id", "unit"]
UnknownIds = Literal["refuse", "ignore"]
METHOD_CHOICES = ("auto", "certificate", "newton", "sisa", "retrain")
"""``method`` of agt unlearn: what ``agt_cli.unlearn.methods.METHODS`` has, or the cheapest."""
UNLEARN_KEYS = (
    *("run", "digest", "ids", "by", "method", "forbid_retraining", "fresh", "rehearse"),
    *("unknown", "compute", "output_dir"),
)
UNLEARN_FLAGS = ("forbid_retraining", "fresh", "rehearse")


def check_unlearn(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt unlearn; the run and the ids are not read."""
    check_keys(config, UNLEARN_KEYS)
    _check_choice(config, "method", METHOD_CHOICES)
    if config.get("by") is not None:  # None: the command chooses
        _check_choice(config, "by", get_args(By))
    _check_choice(config, "unknown", get_args(UnknownIds))
    for key in UNLEARN_FLAGS:
        value = config.get(key)
        if not isinstance(value, bool):
            shown = with_new_name("unlearn", key)
            raise ConfigError(f"{shown}={value}: give true or false")
    if isinstance(config.get("ids"), list | dict):
        run = str(config.get("run") or "RUN")
        raise ConfigError(f"ids=[...]: {IDS_NEED_A_FILE}. Without a file, {ids_by_pipe(run)}")
    read_digest_setting(config, "digest")


def _check_choice(config: Mapping[str, Any], key: str, choices: Sequence[str]) -> None:
    """Raise ConfigError unless the value of a setting is one of ``choices``."""
    value = config.get(key)
    if value not in choices:
        raise ConfigError(f"{key}={value}: unknown value{nearest(str(value), choices)}")
