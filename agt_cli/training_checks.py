"""Checks of the settings of a training, without data, for agt train, agt tune and agt measure.

The classes of a part's settings are imported when that part is checked, because importing them
takes longer than the check. If an earlier part is wrong, they are not imported at all.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

from agt.errors import ConfigError
from agt.relations import RELATIONS
from agt.settings import (
    ComputeConfig,
    KGridConfig,
    PublicRows,
    RelationConfig,
    TotalConfig,
    TrainingConfig,
    build,
    validate,
)
from agt.targets import OWN_SETTINGS, TABLE, own_settings, targets_of, trusting
from agt.training.settings import EnsembleConfig, read_noise_config
from agt_cli.configuration import check_keys, chosen_options
from agt_cli.networks import (
    DEFAULT_BINS,
    NO_BINS,
    NO_BINS_MEANING,
    check_network,
    complete_line,
    error_message,
    missing_settings,
    proposed_bins,
)
from agt_cli.own_network import OwnNetwork
from agt_cli.places import check_public_rows, check_table_of_dataset
from agt_cli.process import typed_words
from agt_cli.report.finished import Run
from agt_cli.report.unfinished import check_not_finished, check_resumed_folder

PARTS: dict[str, type[Any]] = {
    "training": TrainingConfig,
    "relation": RelationConfig,
    "kgrid": KGridConfig,
    "compute": ComputeConfig,
    "ensemble": EnsembleConfig,
}
"""Parts of a training configuration that have one class of settings each."""
TRAINING_KEYS = (
    "dataset",
    "model",
    "certificate",
    "noise",
    "resume",
    *PARTS,
    "output_dir",
    "data_dir",
    "ledger",
)
"""All keys of a training configuration."""


def read_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a training configuration that have one class each, by name.

    Raises:
        ConfigError: a setting is unknown, missing or invalid.
    """
    return {name: validate(cls, config.get(name), name) for name, cls in PARTS.items()}


def read_own_part(node: object, where: str) -> Any:
    """Return the settings of one of agt's datasets or models.

    Args:
        node: the value of the configuration's key ``where``.
        where: ``dataset`` or ``model``.

    Returns:
        The settings; None: the class is the user's own, so its settings are checked when its code
        is imported.

    Raises:
        ConfigError: a setting is wrong.
    """
    kind = own_settings(node)
    if kind is None or not isinstance(node, Mapping):
        return None
    settings = {key: value for key, value in node.items() if key != "_target_"}
    return validate(kind, settings, where)


def check_training(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of a training configuration.

    Args:
        config: the configuration of agt train. If its key ``resume`` names a run, only that run is
            checked, because its own settings are used.
    """
    resumed = config.get("resume")
    if resumed is not None:
        if isinstance(resumed, str) and resumed:
            check_resumed_folder(Path(resumed))
            run = Run.at(Path(resumed), "resume")
            if run.command == "train":
                check_not_finished(run)
        return
    check_network_settings(config)
    dataset = check_parts(config)
    check_table_of_dataset(config.get("dataset"))
    check_columns(dataset)
    check_own_network(config)


def check_network_settings(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a network lacks settings; the message says what else is wrong with it.

    The layers of a network of the user's own are judged if Python finds its function.
    """
    if not missing_settings(config):
        check_network(config, "")
        return
    model = config.get("model")
    has_valid_dataset = not error_message(partial(read_own_part, config.get("dataset"), "dataset"))
    if _names_function_that_exists(model) and has_valid_dataset:
        # The settings of the line that is proposed.
        form = {"loss": "cross_entropy", "epochs": 1, "lr": 1.0, "clip": 1.0}
        verdict = _judge_own_network(config, form)
        bins = [NO_BINS] if verdict.needs_no_bins else []
        check_network(config, verdict.problem, bins)
    check_network(config, error_message(partial(read_own_part, model, "model")))


def _names_function_that_exists(model: object) -> bool:
    """Return whether a model is a network of the user's own, whose function Python finds."""
    if own_settings(model) is not None or not isinstance(model, Mapping) or "_target_" not in model:
        return False
    return not any(OwnNetwork.of_model(model).problems())


def check_own_network(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a network of the user's own has layers that cannot be trained.

    Args:
        config: a training configuration whose other settings were checked.
    """
    verdict = _judge_own_network(config, config.get("training"))
    if verdict.needs_no_bins:
        line = complete_line(typed_words(), [NO_BINS], OwnNetwork.of_model(config["model"]))
        others = f". {verdict.problem}" if verdict.problem else ""
        bins = config["dataset"]["bins"]
        raise ConfigError(
            f"dataset.bins={bins}: the network takes one input for each column of the table. "
            f"{NO_BINS_MEANING}. Type: {line}{others}"
        )
    if verdict.problem:
        raise ConfigError(verdict.problem)


@dataclass(frozen=True)
class _NetworkVerdict:
    """What the layers of a network of the user's own show, before anything is trained.

    Attributes:
        problem: what keeps it from being trained; empty: nothing.
        needs_no_bins: True: it takes the records of the table only if each number is one feature.
            ``problem`` is then what remains without bins.
    """

    problem: str = ""
    needs_no_bins: bool = False


def _judge_own_network(config: Mapping[str, Any], training: object) -> _NetworkVerdict:
    """Return what keeps a network of the user's own from being trained.

    Of a table, which settings describe, the number of features is known before it is read.

    Args:
        config: a training configuration.
        training: the settings of its training.
    """
    try:
        network = _own_head(config.get("model"))
        if network is None or not hasattr(network, "check"):
            return _NetworkVerdict()
        settings = validate(TrainingConfig, training, "training")
        dataset = config.get("dataset")
        if not isinstance(dataset, Mapping) or dataset.get("_target_") != TABLE:
            network.check(settings)
            return _NetworkVerdict()
        table = build(dataset, "dataset")
        may_propose_no_bins = bool(proposed_bins(config, typed_words()))
        return _judge_on_table(network, settings, table, may_propose_no_bins)
    except ConfigError as error:
        return _NetworkVerdict(str(error))


def _judge_on_table(
    network: Any, settings: TrainingConfig, table: Any, may_propose_no_bins: bool
) -> _NetworkVerdict:
    """Return what keeps a network of the user's own from being trained on a table.

    Args:
        network: the model.
        settings: the settings of the training.
        table: the settings of the table.
        may_propose_no_bins: False: the bins were typed, or there are none.

    Raises:
        ConfigError: the table's settings are wrong.
    """
    width = table.feature_count
    width_without_bins = replace(table, bins=0).feature_count
    needs_no_bins = (
        may_propose_no_bins
        and not network.takes(settings, (width,))
        and network.takes(settings, (width_without_bins,))
    )
    other_widths: dict[int, str] = {}
    if needs_no_bins:
        width = width_without_bins
    elif table.bins:
        other_widths[width_without_bins] = NO_BINS
    else:
        with suppress(ValueError):  # a row may have too many features
            with_bins = replace(table, bins=DEFAULT_BINS)
            other_widths[with_bins.feature_count] = f"dataset.bins={DEFAULT_BINS}"
    classes = len(table.classes) if table.classes else None
    check = partial(network.check, settings, (width,), classes, other_widths)
    return _NetworkVerdict(error_message(check), needs_no_bins)


def _own_head(node: object) -> Any:
    """Return the model that the user's own class or function makes; None: agt's own is used.

    Args:
        node: the value of the key ``model``.
    """
    if read_own_part(node, "model") is not None or not isinstance(node, Mapping):
        return None
    # Imported only for networks of the user's own, because it loads PyTorch, which they need.
    from agt.models.heads import head_from_config

    with trusting(targets_of(node)):
        return head_from_config(node)


def check_columns(dataset: object) -> None:
    """Raise DataError if a table lacks a column that a setting names, as its first line shows.

    Args:
        dataset: the settings of a dataset; None: those of a class of the user's own.
    """
    from agt.data.file_settings import TableSettings

    if isinstance(dataset, TableSettings):
        # Imported only for tables, because it loads how csv files are read.
        from agt_cli.table_columns import check_columns_of_table

        check_columns_of_table(dataset)


def check_not_resumed(config: Mapping[str, Any]) -> None:
    """Raise ConfigError if a run is to be resumed, which only ``agt train`` can do.

    Args:
        config: a training configuration, after ``agt train`` has put a resumed run's in its place.
    """
    if config.get("resume") is not None:
        raise ConfigError(
            f"resume={config['resume']}: only `agt train` can resume a run, so leave resume=... out"
        )


def check_feature_map(certificate: object) -> None:
    """Raise ConfigError if ``certificate.features`` is a name, which needs a slash instead.

    Args:
        certificate: the value of the key ``certificate``.
    """
    features = certificate.get("features") if isinstance(certificate, Mapping) else None
    if isinstance(features, str):
        raise ConfigError(
            f"certificate.features={features}: a feature map is chosen by name with a slash: type "
            f"certificate/features={features}"
        )


def check_parts(config: Mapping[str, Any]) -> Any:
    """Return the settings of the dataset, after each part of a training was checked by itself.

    Returns:
        The settings, as ``read_own_part`` returns them.

    Raises:
        ConfigError: a setting is wrong.
    """
    check_keys(config, TRAINING_KEYS)
    check_not_resumed(config)
    check_feature_map(config.get("certificate"))
    parts = read_parts(config)
    certificate = config.get("certificate")
    # Imported here, so that a mistake in the parts above is answered without it.
    from agt.certificates.settings import (
        CERTIFICATES,
        TrainingParts,
        VotingConfig,
        no_hidden_layers,
        read_certificate,
    )

    kind = read_certificate(certificate, CERTIFICATES)
    # First, because the settings of a network are wrong for a kind that does not take one.
    model = read_own_part(config.get("model"), "model")
    if not kind.takes_hidden_layers:
        head = model or _own_head(config.get("model"))
        if head is not None and not head.linear:
            raise no_hidden_layers(kind.name, getattr(head, "hidden", None))
    training = parts["training"]
    ensemble = parts["ensemble"]
    rule = RELATIONS[parts["relation"].name]
    rule.check_batches_and_shards(training.batch.count, ensemble.members)
    kind.check_parts(
        TrainingParts(
            training=training,
            relation=parts["relation"],
            compute=parts["compute"],
            ensemble=ensemble,
            noise=read_noise_config(config.get("noise")),
        )
    )
    check_label_free(config.get("dataset"), parts["relation"].name)
    dataset = read_own_part(config.get("dataset"), "dataset")
    check_records(dataset, model)
    size = getattr(dataset, "declared_size", None) or getattr(dataset, "n_train", None)
    is_one_model = ensemble.members == 1 and "batch.count" not in training.by_recipe
    if size is not None and is_one_model and not isinstance(kind, VotingConfig):
        training.batch.constants(size)  # called because it raises if n_max is too small
    return dataset


def check_records(dataset: object, model: object) -> None:
    """Raise ConfigError if there are no such records, or convolutions cannot process them.

    Args:
        dataset: the settings of a dataset; None: those of a class of the user's own.
        model: the settings of a model; None: those of a class of the user's own.
    """
    from agt.data.image_settings import MedMnistSettings
    from agt.models.head_settings import ConvSettings

    if isinstance(dataset, MedMnistSettings):
        # Imported only for these data, because it loads Python's parser.
        from agt.data.medmnist_files import info_of

        info_of(dataset.name)  # called because it raises if there is no such data set
    axes = getattr(dataset, "record_axes", None)
    if isinstance(model, ConvSettings) and axes is not None:
        model.check_axes(axes)


def check_label_free(node: object, relation: str) -> None:
    """Raise ConfigError if labels change, but one of agt's datasets makes ids of records from them.

    Args:
        node: the value of the key ``dataset``.
        relation: the name of the neighbour relation.
    """
    if not isinstance(node, Mapping) or "label_free" not in node:
        return
    kind = own_settings(node)
    if kind is not None and not hasattr(kind, "label_free"):
        source = str(node.get("_target_")).rpartition(".")[2]
        raise ids_from_labels(relation, source)


def ids_from_labels(relation: str, source: str) -> ConfigError:
    """Return the refusal of a source of data that makes ids of records from their labels.

    Args:
        relation: the name of the neighbour relation, whose edits change labels.
        source: the name of the source's class.
    """
    return ConfigError(
        f"relation={relation}: {source} makes the id of a record from the record and its label, so "
        "a record whose label changes would move to another batch: use dataset=table, embeddings "
        "or blobs"
    )


def check_tune(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt tune, or of a candidate of its grid."""
    # Imported here, because only this command needs it.
    from agt_cli.command_settings.tune import (
        TUNE_KEYS,
        TuneConfig,
        default_name,
        encoder_not_run,
        grid_changes,
        new_experiment_path,
        no_public_rows,
        not_one_linear_model,
        with_changes,
    )

    tuned = validate(TuneConfig, config.get("tune"), "tune")
    validate(TotalConfig, config.get("total"), "total")
    parts = {key: value for key, value in config.items() if key not in TUNE_KEYS}
    dataset = check_parts(parts)
    candidates = [with_changes(parts, changes) for changes in grid_changes(tuned.grid or {})]
    for candidate in candidates:
        check_parts(candidate)
    if tuned.public not in (None, *get_args(PublicRows)):
        check_public_rows(str(tuned.public), config.get("dataset"))
    check_columns(dataset)
    model = config.get("model")
    if isinstance(model, Mapping) and model.get("encoder") is not None:
        raise encoder_not_run()
    marks_public_rows = dataset is None or getattr(dataset, "public", None) is not None
    if tuned.public in (None, "train") and not marks_public_rows:
        raise no_public_rows()
    if not all(map(trains_one_linear_model, candidates)):
        raise not_one_linear_model()
    # Called because it raises if there is such an experiment; the command asks for the path again.
    new_experiment_path(tuned.name or default_name(chosen_options()))


def trains_one_linear_model(config: Mapping[str, Any]) -> bool:
    """Return whether a training configuration, which was checked, trains a single linear head."""
    # Imported here, because only ``agt tune`` needs it.
    from agt.certificates.settings import CERTIFICATES, LinearConfig, read_certificate

    kind = read_certificate(config.get("certificate"), CERTIFICATES)
    ensemble = validate(EnsembleConfig, config.get("ensemble", {}), "ensemble")
    return ensemble.members == 1 and isinstance(kind, LinearConfig)


def check_measure(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a wrong setting of agt measure, as far as the table is not needed."""
    # Imported here, because only this command needs it.
    from agt_cli.command_settings.measure import MEASURE_KEYS, no_budget, no_table

    total = validate(TotalConfig, config.get("total"), "total")
    dataset = check_parts({key: value for key, value in config.items() if key not in MEASURE_KEYS})
    node = config.get("dataset")
    source = str(node.get("_target_")) if isinstance(node, Mapping) else ""
    if source in OWN_SETTINGS and source != TABLE:
        raise no_table()
    if total.eps is None:
        raise no_budget()
    check_columns(dataset)
