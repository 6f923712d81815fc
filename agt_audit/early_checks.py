"""Checks of the settings of agt audit that need no data, made before anything heavy is loaded."""

from collections.abc import Mapping
from typing import Any

from agt.errors import ConfigError
from agt.settings import TotalConfig, validate
from agt.targets import own_settings
from agt_cli.command_settings.predict import check_mechanism

RUN_MISSING = "run: give the folder of a finished `agt train` run, or write run=latest"
MECHANISM_EXAMPLE = "mechanism=randomized_response mechanism.eps=1"
WEIGHTS_EXAMPLE = "mechanism=release_weights mechanism.mu=1"
MECHANISM_AUDIT = "agt_audit.mechanism.MechanismAudit"
WEIGHTS_AUDIT = "agt_audit.weights.WeightsAudit"
MECHANISM_AUDITS = {MECHANISM_AUDIT: "mechanism", WEIGHTS_AUDIT: "weights"}
"""Classes of audits that attack a mechanism by itself, without a run -> the audits' names."""
EXAMPLES = {
    MECHANISM_AUDIT: MECHANISM_EXAMPLE,
    "agt_audit.prediction.PredictionAudit": MECHANISM_EXAMPLE,
    WEIGHTS_AUDIT: WEIGHTS_EXAMPLE,
}
"""The classes of audits that need a mechanism -> settings that name one."""
WITHOUT_RUN = frozenset((*MECHANISM_AUDITS, "agt_audit.selftest.Selftest"))
"""The classes of agt's own audits that need no run."""


def check_audit(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of agt audit is wrong whatever the data are.

    ``agt_audit.command.configure`` checks the same again, and the rest.

    Args:
        config: the composed settings.
    """
    checked_confidence(config.get("confidence"))
    checked_seed(config.get("seed"))
    audit = config.get("audit")
    if not isinstance(audit, Mapping):
        return
    class_name = str(audit.get("_target_"))
    is_own = class_name.startswith("agt_audit.")  # a user's class checks its settings itself
    if is_own and class_name not in WITHOUT_RUN and config.get("run") is None:
        raise ConfigError(RUN_MISSING)
    if class_name in MECHANISM_AUDITS:
        check_no_run(config, MECHANISM_AUDITS[class_name])
    if class_name not in EXAMPLES:
        return
    mechanism = config.get("mechanism")
    if mechanism is None:
        raise mechanism_missing(EXAMPLES[class_name])
    kind = own_settings(mechanism)
    if kind is None:  # a user's own mechanism
        return
    if class_name == MECHANISM_AUDIT and kind.releases == "weights":
        raise weights_not_audited(kind.name)
    check_mechanism(mechanism, validate(TotalConfig, config.get("total"), "total"))


def check_no_run(config: Mapping[str, Any], kind: str) -> None:
    """Raise ConfigError if a run is given to an audit that attacks a mechanism by itself.

    Args:
        config: the composed settings.
        kind: the name of the audit.
    """
    run = config.get("run")
    if run is not None:
        raise ConfigError(
            f"run={run}: `agt audit {kind}` attacks a mechanism by itself. Leave run=... out, or "
            f"type `agt audit replay run={run} mechanism=...`, which attacks a release from the run"
        )


def mechanism_missing(example: str) -> ConfigError:
    """Return the error about an audit for which no mechanism is given.

    Args:
        example: settings to type.
    """
    return ConfigError(f"mechanism: name the mechanism to audit, for example {example}")


def weights_not_audited(name: str) -> ConfigError:
    """Return the error about a mechanism that releases weights, in an audit of label mechanisms.

    Args:
        name: the mechanism's name.
    """
    return ConfigError(
        f"mechanism={name}: `agt audit mechanism` cannot audit released weights. Use "
        "`agt audit weights` or `agt audit replay`"
    )


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
