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
from agt.store.folder import Folder
from agt.targets import OWN_SETTINGS, TABLE
from agt_cli.configuration import read_digest_setting
from agt_cli.ledger_files import NO_LEDGER, VARIABLE, nothing_to_pay, require_ledger
from agt_cli.places import (
    EMBEDDINGS,
    STANDARD_INPUT,
    check_ledger_of_environment,
    check_requested,
    check_run,
    check_verified_path,
)
from agt_cli.report.finished import Run, has_pending_commit
from agt_cli.report.found import resolve_latest
from agt_cli.report.opening import check_edits

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
    """Return the named run; raise ConfigError if it does not exist, or the command cannot use it.

    Args:
        command: the name of the command.
        config: its settings, as plain containers; ``run`` is among them. None: no run is named,
            and None is returned.
    """
    named = resolve_latest(dict(config), lambda line: None)["run"]
    if named is None:
        return None
    texts = {key: value for key, value in config.items() if isinstance(value, str)}
    check_run(command, Path(named), texts)
    check_digest(Path(named), read_digest_setting(config, "digest"))
    if command != "audit" and texts.get("inputs", STANDARD_INPUT) != STANDARD_INPUT:
        check_queries(Path(texts["inputs"]), Run.at(Path(named)))
    run = Run.at(Path(named))
    if command == "unlearn":
        check_erasure(config, run)
    if command == "predict" and config.get("release") is None:
        check_ledger_of_environment(config.get("ledger"))
    if command in ("certify", "plan", "predict"):
        # Imported only for runs that answer, because it loads pydantic.
        from agt_cli import recorded_facts

        recorded_facts.check_answers(command, config, run)
    return run


def check_mechanism_is_named(config: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise ConfigError if a ledger is to pay a total budget for a mechanism that nobody named.

    Without ``mechanism=``, labels are drawn by ``randomized_response``. A total budget is as well
    that of weights, which ``agt start`` proposes, so the ledger is not debited for a default. A
    budget of each query (``mechanism.eps``) is one of labels only.

    Args:
        config: the settings of ``agt predict``.
        overrides: the settings that were typed on the command line.
    """
    ledger = config.get("ledger") or os.environ.get(VARIABLE)
    is_paid = ledger not in (None, "", NO_LEDGER) and config.get("seed") is None
    total = config.get("total")
    has_total = isinstance(total, Mapping) and total.get("eps") is not None
    is_named = any(word.lstrip("+").startswith("mechanism=") for word in overrides)
    if config.get("release") is None and is_paid and has_total and not is_named:
        raise ConfigError(
            f"mechanism=... is missing: say what the ledger {ledger} is to pay for, because what "
            "is spent cannot be undone. Give mechanism=noisy_statistics for weights, published "
            "once for any number of answers (of a linear head or votes), or "
            "mechanism=randomized_response for labels, which share total.eps (of any model). "
            "docs/choosing.md has the others"
        )


def check_erasure(config: Mapping[str, Any], run: Run) -> None:
    """Raise ConfigError if records cannot be erased from a run in the way that was asked for.

    Args:
        config: the settings of ``agt unlearn``.
        run: the training run. Its files are read without comparing their hashes.
    """
    if config.get("ids") is None:
        check_requested(run.folder)
    # Imported only for erasures, because it loads pydantic.
    from agt.certificates.settings import CERTIFICATES, read_certificate
    from agt.settings import validate
    from agt.training.settings import EnsembleConfig
    from agt_cli.command_settings.unlearn import check_method
    from agt_cli.table_columns import check_columns_of_ids

    recorded = run.config
    try:
        certificate = read_certificate(recorded.get("certificate"), CERTIFICATES)
        ensemble = validate(EnsembleConfig, recorded.get("ensemble", {}), "ensemble")
    except ConfigError:
        return  # whoever opens the run says what is wrong with the file
    if config["method"] != "auto":
        check_method(config["method"], certificate, ensemble)
    check_edits(run, "agt unlearn")
    dataset = recorded.get("dataset")
    if isinstance(config["ids"], str) and isinstance(dataset, Mapping):
        check_columns_of_ids(Path(config["ids"]), dataset)


def check_digest(folder: Path, digest: str | None) -> None:
    """Raise ConfigError if a run has another digest than the one that was given.

    Args:
        folder: of the run. While an erasure replaces its files, nothing is checked.
        digest: the digest that the run must have; None: any.
    """
    if digest is not None and not has_pending_commit(folder):
        Folder.open(folder, "train", digest, "run", verify=False)  # called because it raises


def check_queries(path: Path, run: Run) -> None:
    """Raise DataError if a file of queries lacks columns or arrays that the training data have.

    Args:
        path: the file. If it is not there, the command looks for it elsewhere.
        run: the training run. Its files are read without comparing their hashes.
    """
    node = run.config.get("dataset")
    if not isinstance(node, Mapping) or not path.is_file():
        return
    target = str(node.get("_target_"))
    if target not in OWN_SETTINGS:
        return
    # Imported only for queries in a file, because it loads pydantic and the settings of data.
    from agt_cli.table_columns import check_columns_of_queries, check_vectors
    from agt_cli.training_checks import read_own_part

    if target == TABLE:
        check_columns_of_queries(path, read_own_part(node, "dataset"))
    elif target == EMBEDDINGS:
        check_vectors(path, str(node.get("x", "x")), "dataset.x")
    else:
        check_vectors(path, "x", "inputs")


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
