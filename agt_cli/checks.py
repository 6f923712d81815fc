"""Checks of a command's settings that need no data, made before anything heavy is loaded.

A command's own module checks all of its settings, with the data and the run that they name. That
module loads PyTorch, which takes seconds; nothing here does. Both validate by the same classes, so
that a mistake has one message, and what is accepted here is checked again there.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from agt.errors import ConfigError
from agt_cli.ledger_files import NO_LEDGER, VARIABLE, nothing_to_pay, require_ledger
from agt_cli.places import (
    check_ledger_of_environment,
    check_requested,
    check_run,
    check_verified_path,
)
from agt_cli.report.finished import Run
from agt_cli.report.found import resolve_latest

TRUST_SETTING = "trust"


def check_settings(command: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of a command is wrong whatever the data are.

    Args:
        command: the name of the command.
        config: its settings, as plain containers.
    """
    # ``resolve_latest`` refuses an empty ``run``, with a message that says what to give.
    check_not_empty({key: value for key, value in config.items() if key != "run"})
    trusted_names(config)  # called because it raises if they are no list
    if command == "verify":
        check_verified_path(Path(str(config["path"])).expanduser())
    if command in CHECKS:
        module, _, name = CHECKS[command].rpartition(".")
        getattr(import_module(module), name)(config)
    if command in ("train", "measure"):
        check_named_ledger(config.get("ledger"))
    trains = command == "train" and config.get("resume") is None
    if trains and config.get("ledger") is not None:
        # Imported only for ledgers, because it loads pydantic.
        from agt.training.settings import read_noise_config

        if read_noise_config(config.get("noise")) is None:
            raise nothing_to_pay(config["ledger"])
    if config.get("run") is not None or command == "predict":
        check_named_run(command, config)


def trusted_names(config: Mapping[str, Any]) -> list[str]:
    """Return the names of code that ``TRUST_SETTING`` lists.

    Raises:
        ConfigError: its value is not a list.
    """
    trusted = config.get(TRUST_SETTING) or []
    if not isinstance(trusted, list):
        raise ConfigError(
            f"{TRUST_SETTING}={trusted}: this is not a list: give a list of the full Python names "
            f"of the code that you trust, for example {TRUST_SETTING}=[my_net.Net]"
        )
    return [str(name) for name in trusted]


def check_named_ledger(name: object) -> None:
    """Raise ConfigError if the named ledger does not exist.

    Args:
        name: the value of the key ``ledger``; None: no ledger was named.
    """
    if name is not None and name != NO_LEDGER:
        require_ledger(str(name))


def check_named_run(command: str, config: Mapping[str, Any]) -> Run | None:
    """Return the named run; raise ConfigError if it, or a file that is named with it, is not there.

    What its files contain is checked by the command that opens it.

    Args:
        command: the name of the command.
        config: its settings, as plain containers; ``run`` is among them. None: no run is named,
            and None is returned.
    """
    named = resolve_latest(dict(config), _print_nothing)["run"]
    if named is None:
        return None
    folder = Path(named)
    texts = {key: value for key, value in config.items() if isinstance(value, str)}
    check_run(command, folder, texts)
    if command == "unlearn" and config.get("ids") is None:
        check_requested(folder)
    if command == "predict" and config.get("release") is None:
        check_ledger_of_environment(config.get("ledger"))
    return Run.at(folder)


def _print_nothing(line: str) -> None:
    """Print nothing: the command itself says which run ``latest`` is."""


def check_mechanism_is_named(config: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise ConfigError if a ledger is to pay a total budget for a mechanism that nobody named.

    Without ``mechanism=``, labels are drawn by ``randomized_response``. A total budget is as well
    that of weights, which ``agt start`` proposes, so the ledger is not debited for a default. A
    budget of each query (``mechanism.eps``) is one of labels only.

    Args:
        config: the settings of ``agt predict``.
        overrides: the settings that were typed on the command line.
    """
    is_named = any(word.lstrip("+").startswith("mechanism=") for word in overrides)
    if is_named or config.get("release") is not None:
        return
    ledger = config.get("ledger") or os.environ.get(VARIABLE)
    is_simulation = config.get("seed") is not None
    if ledger in (None, "", NO_LEDGER) or is_simulation:
        return
    total = config.get("total")
    if isinstance(total, Mapping) and total.get("eps") is not None:
        raise ConfigError(
            f"mechanism=... is missing: say what the ledger {ledger} is to pay for, because what "
            "is spent cannot be undone. Give mechanism=noisy_statistics for weights, published "
            "once for any number of answers (of a linear head or votes), or "
            "mechanism=randomized_response for labels, which share total.eps (of any model). "
            "docs/choosing.md has the others"
        )


def check_not_empty(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting has an empty text for its value."""
    for key, value in config.items():
        if value == "":
            raise ConfigError(f"{key}= has no value: write {key}=VALUE, or leave {key}= out")


CHECKS = {
    "start": "agt_cli.table_settings.check_start",
    "data": "agt_cli.table_settings.check_data",
    "train": "agt_cli.training_checks.check_training",
    "tune": "agt_cli.training_checks.check_tune",
    "measure": "agt_cli.training_checks.check_measure",
    "certify": "agt_cli.command_settings.certify.check_certify",
    "plan": "agt_cli.command_settings.plan.check_plan",
    "predict": "agt_cli.command_settings.predict.check_predict",
    "unlearn": "agt_cli.command_settings.unlearn.check_unlearn",
    "verify": "agt_cli.command_settings.verify.check_verify",
    "ledger": "agt_cli.command_settings.ledger.check_ledger",
    "audit": "agt_audit.early_checks.check_audit",
    "reproduce": "agt_cli.command_settings.reproduce.check_reproduce",
}
"""Command -> the full name of the function that checks its settings. A function's module loads only
what this check needs.
"""
