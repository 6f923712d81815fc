"""Checks of the settings of agt audit that need no data, made before anything heavy is loaded."""

from collections.abc import Mapping
from typing import Any

from agt.errors import ConfigError
from agt.settings import validate
from agt_audit import kind_settings
from agt_cli.checks import check_named_run


def check_audit(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of agt audit is wrong whatever the data are.

    ``agt_audit.command.configure`` checks the same again, and the rest.

    Args:
        config: the composed settings.
    """
    # Called because they raise ConfigError; ``configure`` reads the values again.
    checked_confidence(config.get("confidence"))
    checked_seed(config.get("seed"))
    kind = _read_own_kind(config.get("audit"))
    if kind is not None:  # a user's own kind checks its settings itself
        run = None
        if kind.takes_run and config.get("run") is not None:
            run = check_named_run("audit", config)
        kind.check_settings(config, run)


def _read_own_kind(node: object) -> kind_settings.AuditSettings | None:
    """Return the settings of a kind of audit of agt; None: it is the user's own, or none.

    Args:
        node: the value of the key ``audit``.

    Raises:
        ConfigError: a setting is wrong.
    """
    if not isinstance(node, Mapping):
        return None
    package, _, name = str(node.get("_target_")).partition(".")
    cls = getattr(kind_settings, f"{name.rpartition('.')[2]}Settings", None)
    if package != "agt_audit" or cls is None:
        return None
    settings = {key: value for key, value in node.items() if key != "_target_"}
    kind: kind_settings.AuditSettings = validate(cls, settings, "audit")
    return kind


def checked_confidence(value: object) -> float:
    """Return the setting ``confidence``; raise ConfigError unless it is in [0.5, 1)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value < 1:
        raise ConfigError(
            f"confidence={value}: give a number that is at least 0.5 and below 1, for "
            "example 0.95. It is the probability with which the audit's bounds hold"
        )
    return value


def checked_seed(value: object) -> int:
    """Return the setting ``seed``; raise ConfigError unless it is an integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"seed={value}: give an integer that is at least 0")
    return value
