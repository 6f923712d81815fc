"""What the settings of a command alone tell, checked before anything heavy is loaded.

A command's own module checks all of its settings, with the data and the run that they name. That
module loads PyTorch, which takes seconds; nothing here does. Both validate by the same classes, so
that a mistake has one message, and what is accepted here is checked again there.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from agt.certificates.settings import CERTIFICATES, read_certificate
from agt.errors import ConfigError, Superseded
from agt.release_settings import no_linear_head, no_votes
from agt.settings import (
    ComputeConfig,
    KGridConfig,
    PublicRows,
    RelationConfig,
    TotalConfig,
    TrainingConfig,
    validate,
)
from agt.targets import OWN_SETTINGS, current_name
from agt.training.settings import EnsembleConfig, read_noise_config
from agt_cli.command_settings import (
    MEASURE_KEYS,
    TUNE_KEYS,
    TuneConfig,
    check_certify,
    check_ledger,
    check_plan,
    check_predict,
    check_reproduce,
    check_unlearn,
    check_verify,
    mechanism_facts,
)
from agt_cli.configuration import only_keys
from agt_cli.networks import NETWORK_CERTIFICATE, check_network, missing_path, missing_words
from agt_cli.places import (
    check_ledger_of_environment,
    check_public_rows,
    check_requested,
    check_run,
    check_table_of_dataset,
)
from agt_cli.report.finished import Run
from agt_cli.report.found import resolve_latest
from agt_cli.report.unfinished import check_open, check_resumed_folder
from agt_cli.table_settings import check_data, check_start
from agt_cli.usage import COMMANDS, OLD_SPELLINGS

PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "compute": ComputeConfig,
    "ensemble": EnsembleConfig,
}
"""Parts of a training configuration that have one class of settings each."""
TRAINING_KEYS = (
    *("dataset", "model", "certificate", "noise", "resume", *PARTS),
    *("output_dir", "data_dir", "ledger"),
)
"""All keys of a training configuration."""


def check_settings(command: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of a command is wrong whatever the data are.

    Args:
        command: the name of the command.
        config: its settings, as plain containers.
    """
    if COMMANDS[command].recorded or command in ("start", "data"):
        # of an empty ``run`` is said what else it may be (agt_cli/report/found.py)
        check_not_empty({key: value for key, value in config.items() if key != "run"})
    if command in CHECKS:
        CHECKS[command](config)
    if config.get("run") is not None or command == "predict":
        check_named_run(command, config)


def check_named_run(command: str, config: Mapping[str, Any]) -> None:
    """Raise ConfigError where a run is not there, or does not suit what is asked of it.

    Args:
        command: the name of the command.
        config: its settings, as plain containers; ``run`` is among them.
    """
    named = resolve_latest(dict(config), lambda line: None)["run"]
    if named is None:
        return
    texts = {key: value for key, value in config.items() if isinstance(value, str)}
    check_run(command, Path(named), texts)
    if command == "unlearn" and config.get("ids") is None:
        check_requested(Path(named))
    if command == "predict" and config.get("release") is None:
        check_ledger_of_environment(config.get("ledger"))
        check_mechanism_of_run(config.get("mechanism"), Run.at(Path(named)))


def check_mechanism_of_run(node: object, run: Run) -> None:
    """Raise ConfigError where a run's settings tell that a mechanism cannot release from it.

    Args:
        node: the value of the key ``mechanism``.
        run: the training run, of which nothing is verified here.
    """
    facts = mechanism_facts(node)
    certificate = run.config.get("certificate")
    ensemble = run.config.get("ensemble")
    if facts is None or not isinstance(certificate, Mapping) or not isinstance(ensemble, Mapping):
        return
    kind = certificate.get("name")
    members = ensemble.get("members")
    several = isinstance(members, int) and members > 1
    dataset = run.config.get("dataset")
    # For numbers, the mechanism itself says which one to use.
    numbers = isinstance(dataset, Mapping) and dataset.get("range") is not None
    if facts.releases == "weights" and not numbers:
        without_head = kind == NETWORK_CERTIFICATE or (several and not facts.reads_records)
        if without_head:
            raise no_linear_head(facts.name, facts.reads_records)
    if facts.counts_votes and members == 1:
        raise no_votes(facts.name)


def check_not_empty(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting has an empty text for its value."""
    for key, value in config.items():
        if value == "":
            raise ConfigError(f"{key}= has no value: write {key}=VALUE, or leave {key}= out")


def read_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a training configuration that have one class each, by name.

    Raises:
        ConfigError: a setting is unknown, missing or invalid.
    """
    config = {"ensemble": {}, **config}  # records older than ensembles do not name one
    return {name: validate(cls, config.get(name), name) for name, cls in PARTS.items()}


def check_certificate_name(node: object) -> None:
    """Raise Superseded for a certificate that earlier versions had, as their records name it."""
    if isinstance(node, Mapping):
        named = f"certificate={node.get('name')}"
        if named in OLD_SPELLINGS:
            raise Superseded(f"{named}: {OLD_SPELLINGS[named]}")


def check_own_part(node: object, where: str) -> None:
    """Raise ConfigError for a wrong setting of a dataset or model of agt.

    One of the user's own has its settings checked when its code is imported.

    Args:
        node: the value of the configuration's key ``where``.
        where: ``dataset`` or ``model``.
    """
    if not isinstance(node, Mapping):
        return
    name = current_name(str(node.get("_target_")))
    if name not in OWN_SETTINGS:
        return
    module, _, class_name = OWN_SETTINGS[name].rpartition(".")
    settings = {key: value for key, value in node.items() if key != "_target_"}
    validate(getattr(import_module(module), class_name), settings, where)


def check_training(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of a training configuration.

    Args:
        config: the configuration of agt train. Its key ``resume`` is None: a run that is resumed
            has settings of its own.
    """
    resumed = config.get("resume")
    if resumed is not None:
        if isinstance(resumed, str) and resumed:
            check_resumed_folder(Path(resumed))
            run = Run.at(Path(resumed), "resume")
            if run.command == "train":
                check_open(run)
        return
    if missing_words(config):
        check_network(config, _error_of_model(config) or missing_path(config.get("model")))
    check_parts(config)
    check_table_of_dataset(config.get("dataset"))


def check_parts(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of a training configuration, each part by itself."""
    only_keys(config, TRAINING_KEYS)
    read_parts(config)
    certificate = config.get("certificate")
    check_certificate_name(certificate)
    read_certificate(certificate, CERTIFICATES)
    read_noise_config(config.get("noise"))
    check_own_part(config.get("dataset"), "dataset")
    check_own_part(config.get("model"), "model")


def _error_of_model(config: Mapping[str, Any]) -> str:
    """Return what is wrong with the settings of a model of agt; empty: nothing was found."""
    try:
        check_own_part(config.get("model"), "model")
    except ConfigError as error:
        return str(error)
    return ""


def check_tune(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt tune, but for its candidates."""
    tuned = validate(TuneConfig, config.get("tune"), "tune")
    validate(TotalConfig, config.get("total"), "total")
    check_parts({key: value for key, value in config.items() if key not in TUNE_KEYS})
    if tuned.public not in (None, *get_args(PublicRows)):
        check_public_rows(str(tuned.public), config.get("dataset"))


def check_measure(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt measure, but for what its table allows."""
    validate(TotalConfig, config.get("total"), "total")
    check_parts({key: value for key, value in config.items() if key not in MEASURE_KEYS})


CHECKS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "start": check_start,
    "data": check_data,
    "train": check_training,
    "tune": check_tune,
    "measure": check_measure,
    "certify": check_certify,
    "plan": check_plan,
    "predict": check_predict,
    "unlearn": check_unlearn,
    "verify": check_verify,
    "ledger": check_ledger,
    "reproduce": check_reproduce,
}
"""Command -> what checks its settings."""
