"""Settings of agt unlearn."""

from collections.abc import Mapping
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
    """Raise ConfigError for a wrong setting of agt unlearn, but for the run and the ids."""
    check_keys(config, UNLEARN_KEYS)
    choices_of_keys = (
        ("method", METHOD_CHOICES, False),
        ("by", get_args(By), True),
        ("unknown", get_args(UnknownIds), False),
    )
    for key, choices, free in choices_of_keys:
        value = config.get(key)
        if value not in choices and not (free and value is None):
            hint = nearest(str(value), choices)
            raise ConfigError(f"{key}={value}: unknown value{hint}")
    for key in UNLEARN_FLAGS:
        value = config.get(key)
        if not isinstance(value, bool):
            shown = with_new_name("unlearn", key)
            raise ConfigError(f"{shown}={value}: give true or false")
    if isinstance(config.get("ids"), list | dict):
        run = str(config.get("run") or "RUN")
        raise ConfigError(f"ids=[...]: {IDS_NEED_A_FILE}. Without a file, {ids_by_pipe(run)}")
    read_digest_setting(config, "digest")
