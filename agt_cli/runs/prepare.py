"""Read a training configuration and its data, train with progress, and write the trained model.

A training run stores what queries need, and none of its training records. ``source.json`` has the
dataset's configuration with every constant that was read from its file (``Dataset.settled``), and
the dataset without its records (agt/models/description.py). A frozen encoder is stored as well. So
certificates, plans and releases about a file of queries need only the run's folder, wherever the
training data are by then.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from agt.certificates.settings import BoxConfig
from agt.data.dataset import Dataset, DataSource, with_notes
from agt.data.embeddings import Embeddings
from agt.data.erasure import ErasedDataset, IsErased, load_without_erased
from agt.data.ids import uniform
from agt.data.records import Records
from agt.errors import ConfigError
from agt.facts import Fact, proved
from agt.messages import Message
from agt.models.constant_answers import constant_answer_remedy, one_sided_warning
from agt.models.description import (
    MODEL_FORMAT,
    check_model_format,
    describe_dataset,
    read_dataset,
)
from agt.models.doubts import CertifiedCounts, count_certified, large_feature, sample_records
from agt.models.fitting import fit as fit_model
from agt.models.heads import CustomNetwork, HeadBuilder, from_layers, head_from_config
from agt.models.kinds import certificate_config
from agt.models.model import Model, accuracy
from agt.models.store import NETWORK, FileWriter
from agt.problem import Problem, Settings
from agt.relations import RELATIONS
from agt.settings import (
    ComputeConfig,
    RelationConfig,
    build,
)
from agt.store.folder import Folder
from agt.store.json_text import as_json, parse_json
from agt.store.locations import expand_home, locate
from agt.store.reading import file_sha256
from agt.training.checkpoint import NO_CHECKPOINTS, Checkpoints
from agt.training.loop import OnProgress
from agt.training.settings import read_noise_config
from agt_cli.choices import choices_fact, compare_public_rows
from agt_cli.configuration import check_keys
from agt_cli.networks import check_network, error_message, missing_settings
from agt_cli.process import current_team
from agt_cli.releasing.ledgers import PEOPLE, encrypt_unit_sample
from agt_cli.report.console import Console
from agt_cli.report.finished import SOURCE_FILE, Run
from agt_cli.report.number_quality import evaluate_numbers
from agt_cli.report.quality import ModelQuality
from agt_cli.report.quality_md import ModelAnswers, evaluate_answers, write_quality
from agt_cli.report.record import RunRecord
from agt_cli.report.training_md import train_report
from agt_cli.training_checks import (
    TRAINING_KEYS,
    check_not_resumed,
    ids_from_labels,
    read_parts,
)
from agt_cli.unlearn.hash_key import HashKey
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE as INDEX, Index

FILE_SETTINGS = ("path", "test")  # a dataset's settings that name files
TRAIN_ACCURACY_RECORDS = 10_000  # about as many are asked if an ensemble has more
TRAIN_ACCURACY_KEY = "train accuracy"  # public key of the hash that chooses them


class Encoder(Protocol):
    """A frozen public encoder: computes features [n, d], those of a record only from this
    record.
    """

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Return the features [n, d] that the head gets of records [n, ...]."""

    def encode(self, dataset: Dataset) -> Dataset:
        """Return the data set as the encoder sees it."""

    def head(self) -> dict[str, Tensor] | None:
        """Return the parameters from which training of the head starts; None: random ones."""

    def save(self, store: FileWriter) -> None:
        """Write what queries need."""


@runtime_checkable
class EncoderSettings(Protocol):
    """The settings of an encoder, into which ``model.encoder`` is built."""

    def load(
        self, dataset: Dataset, on_progress: Callable[[int, int], None] | None = None
    ) -> Encoder:
        """Return the encoder, loaded or trained on the data set's public records."""

    def read(self, shelf: Folder) -> Encoder:
        """Return the encoder that a run saved."""


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The settings of a training run.

    Attributes:
        source: reads the data.
    """

    source: DataSource


def read_settings(config: Mapping[str, Any], head: HeadBuilder | None = None) -> RunSettings:
    """Validate a training configuration, before any data is read.

    Args:
        config: the configuration of the training.
        head: the head that a finished run stored; None: it is built from the key ``model``.

    Raises:
        ConfigError: a setting is wrong; the message names it.
    """
    check_keys(config, TRAINING_KEYS)
    check_not_resumed(config)
    parts = settings_parts(config)
    source = _build_source(config.get("dataset"), parts["relation"])
    model = head or head_from_config(config.get("model"))
    if not hasattr(source, "load"):
        raise ConfigError(
            f"dataset._target_: {type(source).__name__} cannot be used as a data set: give a "
            "class with the methods load() and load_queries(path)"
        )
    settings = RunSettings(source=source, model=model, **parts)
    if getattr(source, "measurement", None) and settings.relation.unit_rows > source.unit_rows:
        raise ConfigError(
            f"relation.unit_rows={settings.relation.unit_rows} exceeds "
            f"dataset.unit_rows={source.unit_rows}. `agt measure` spent its budget for at most "
            f"{source.unit_rows} records of one unit: run `agt measure` again with the new limit"
        )
    return settings


def _build_source(node: Any, relation: RelationConfig) -> Any:
    """Build the source of the data from its settings.

    Args:
        node: the value of the key ``dataset``.
        relation: the neighbour relation.

    Raises:
        ConfigError: a setting is wrong; or labels change under the relation, but the source makes
            ids of records from their labels.
    """
    if RELATIONS[relation.name].label_free_ids and isinstance(node, Mapping):
        # Built without this setting, which a source without the attribute would refuse by name.
        settings = {key: value for key, value in node.items() if key != "label_free"}
        source = build(settings, "dataset")
        if not hasattr(source, "label_free"):
            raise ids_from_labels(relation.name, type(source).__name__)
    return build(node, "dataset")


def read_settings_and_learner(config: Mapping[str, Any]) -> RunSettings:
    """Validate the settings of a new training, and import the user's own learner that they name.

    Raises:
        ConfigError: a setting is wrong; the message names it.
    """
    if missing_settings(config):
        # A network whose settings are missing is refused here, with the command line to type. The
        # head is built only to name its own mistake, if there is one, in the same message.
        head_error = error_message(lambda: head_from_config(config.get("model")))
        check_network(config, head_error)
    settings = read_settings(config)
    return replace(settings, learner=settings.certificate.import_learner())


def settings_parts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training configuration, without its head, by name (``Settings``).

    Raises:
        ConfigError: a setting is wrong; the message names it.
    """
    parts = read_parts(config)
    return {
        **parts,
        "certificate": certificate_config(config.get("certificate")),
        "noise": read_noise_config(config.get("noise")),
        "choices": choices_fact(config),
    }


def data_files(source: DataSource) -> dict[str, dict[str, str]]:
    """Return the paths of a dataset's files, and their SHA-256, by the setting that names them.

    They are recorded, so that the files are found when the run is opened in another folder. A
    folder has no hash.
    """
    data_dir = expand_home(Path(getattr(source, "data_dir", "")))
    files = {}
    for key in FILE_SETTINGS:
        path = getattr(source, key, None)
        if path is None:
            continue
        located = locate(path, data_dir, f"dataset.{key}").resolve()
        files[key] = {"path": str(located)}
        if located.is_file():
            files[key]["sha256"] = file_sha256(located)
    if hasattr(source, "data_dir"):
        files["data_dir"] = {"path": str(data_dir.resolve())}
    return files


def with_data_paths(
    config: Mapping[str, Any], files: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Return a recorded configuration with the absolute paths of its data, if these still exist.

    Args:
        config: the configuration that a run recorded.
        files: the result of ``data_files`` that it recorded; empty: its data are in no file.

    Raises:
        ConfigError: an entry of ``files`` has no path.
    """
    existing = {}
    for key, entry in files.items():
        if not isinstance(entry, Mapping) or not isinstance(entry.get("path"), str):
            raise ConfigError(
                f"env.json: the entry 'data_files.{key}' does not contain a path, so this "
                "version of agt did not write it: train again"
            )
        if Path(entry["path"]).exists():
            existing[key] = entry["path"]
    if not existing:
        return dict(config)
    return {**config, "dataset": {**config["dataset"], **existing}}


@dataclass(frozen=True)
class Prepared:
    """The data of a training, with features as the head takes them.

    Attributes:
        loaded: the dataset as it was loaded, before any encoder; its digest identifies the data.
        dataset: the dataset with the features that the encoder computes; without one, ``loaded``.
        choices: the fact about what the settings were chosen on (``compare_public_rows``).
        erased: the records that were left out, as far as the data still contain them.
        untouched: the fact that leaving them out did not change the other records.
        encoder: the frozen encoder; None: the model has no encoder.
    """

    loaded: Dataset
    dataset: Dataset
    choices: Fact
    erased: Records
    untouched: Fact
    encoder: Encoder | None = None

    @property
    def classes(self) -> int:
        """The number of classes; 0: labels are numbers."""
        return len(self.dataset.classes)

    def problem(self, settings: Settings) -> Problem:
        """Return the problem of training on these data with some settings."""
        initial = self.encoder.head() if self.encoder else None
        return Problem(self.dataset, replace(settings, choices=self.choices), initial)


def prepare(
    settings: RunSettings,
    console: Console,
    is_erased: IsErased | None = None,
    constants: Mapping[str, object] | None = None,
) -> Prepared:
    """Load the data, add notes for their owner, and apply the frozen encoder if there is one.

    Args:
        settings: the settings of the training.
        console: shows progress.
        is_erased: ids and units of records -> which of them were erased and are left out; None:
            none ever was.
        constants: ``Dataset.settled`` of the data with all erased records; None: of the data as
            they are now.
    """
    use_threads(settings.compute)
    if is_erased:
        data = load_without_erased(settings.source, is_erased, constants)
    else:
        complete = settings.source.load()
        no_records = complete.train.take(np.arange(0))
        data = ErasedDataset(complete, no_records, proved("no_record_left_out"))
    loaded = with_notes(data.remaining, _size_implied_by_normalizer(settings))
    erased = data.erased
    choices = compare_public_rows(
        settings.choices, settings.training.chosen_from, loaded, settings.source
    )
    config = encoder_settings(settings)
    if config is None:
        return Prepared(loaded, loaded, choices, erased, data.untouched)
    with console.progress("public encoder") as report:
        encoder = config.load(loaded, lambda step, of: report(step, of, step, of))
        erased = replace(erased, features=encoder.apply(erased.features))
        return Prepared(loaded, encoder.encode(loaded), choices, erased, data.untouched, encoder)


def encoder_settings(settings: Settings) -> EncoderSettings | None:
    """Return the settings of the frozen encoder in front of the head; None: there is none."""
    encoder = getattr(settings.model, "encoder", None)
    return encoder if isinstance(encoder, EncoderSettings) else None


def _size_implied_by_normalizer(settings: RunSettings) -> float | None:
    """Return the number of training records that a configured normaliser B implies; None: no B.

    Each of the batches of each member has B records.
    """
    batch = settings.training.batch
    if batch.normalizer is None:
        return None
    return batch.normalizer * batch.count * settings.ensemble.members


def size_question(dataset: Dataset) -> str:
    """Return a question for the data owner about a declared size that may have been counted.

    It depends on the number of private records, so it is for the owner's console only, and must
    not become part of a claim.

    Returns:
        Empty where the declared size is neither the number of training records nor that of all.
    """
    records = dataset.counted_records
    if not records:
        return ""
    return (
        f"dataset.declared_size={dataset.declared_size:g} is exactly the number of "
        f"{records}. If this number was counted, it is not public, and no privacy guarantee of "
        "this run is true: declare a round number that does not depend on the records, and train "
        "again"
    )


def use_threads(compute: ComputeConfig) -> None:
    """Limit PyTorch, and with it the kernels, to the threads that ``compute.threads`` asks for."""
    if compute.threads:
        torch.set_num_threads(compute.threads)


def prepare_in_team(settings: RunSettings, config: Mapping[str, Any], console: Console) -> Prepared:
    """Call ``prepare`` in every process of the team; without a team, in this process.

    Args:
        settings: the settings of the training.
        config: the configuration from which the settings were made; it is sent to the others.
        console: shows progress.

    Raises:
        AgtError: ``prepare`` failed in another process.
    """
    team = current_team.get()
    if team is None:
        return prepare(settings, console)
    with team.sharing_task("prepare", config):
        return team.call_in_all(lambda: prepare(settings, console))


def fit(
    prepared: Prepared,
    settings: Settings,
    console: Console,
    checkpoints: Checkpoints = NO_CHECKPOINTS,
) -> Model:
    """Train a model and show progress.

    If there is a team, all of its processes train together, and the model's answers are computed by
    all of them.

    Args:
        prepared: the data.
        settings: the settings of the training.
        console: shows progress.
        checkpoints: reads and writes the state of an unfinished training.
    """
    problem = prepared.problem(settings)
    if settings.certificate.ignores_initial_parameters(problem):
        console.note(
            "the model's head (its last layer) does not have the shape of the head of the "
            "encoder's base model, so training starts from random parameters of the head"
        )
    team = current_team.get()
    label, unit = _progress_label(settings)
    with (
        console.progress(label, unit) as report,
        team.sharing_task("fit") if team else nullcontext(),
    ):
        model = fit_model(
            problem, lambda at: report(at.step, at.steps, at.done, at.total), checkpoints
        )
    if team is None:
        return model
    from agt_cli.team import SPLITS, share_answers

    shared_features = {split: getattr(problem.dataset, split).features for split in SPLITS}
    return share_answers(model, team, shared_features)


@contextmanager
def certification_progress(
    model: Model, console: Console, label: str = "certifying"
) -> Iterator[OnProgress]:
    """Show progress while queries are certified; yields the function that reports it."""
    unit = "member" if model.problem.settings.ensemble.members > 1 else "query"
    with console.progress(label, unit) as report:
        yield lambda at: report(at.step, at.steps, at.done, at.total)


def _progress_label(settings: Settings) -> tuple[str, str]:
    """Return a clause that says what is trained, and the word for one step of it."""
    if settings.ensemble.members > 1:
        return f"training {settings.ensemble.members} members", "member"
    if settings.certificate.covers_every_k:
        return "training a linear head", "step"
    ks = settings.kgrid.ks
    lowest = ks[0]
    highest = ks[-1]
    count = len(ks)
    return f"training for k = {lowest}..{highest} ({count} values of k)", "step"


@dataclass(frozen=True)
class RunWithoutRecords:
    """What a finished training run stored about its data, without the training records.

    Attributes:
        problem: the problem of the training, without records.
        dataset_config: the configuration of the dataset, with all constants that were read from its
            file.
        encoder: the frozen encoder; None: the model has no encoder.
    """

    problem: Problem
    dataset_config: Mapping[str, Any]
    encoder: Encoder | None

    @property
    def source(self) -> DataSource:
        """The source of the data, which is used only to read queries.

        Raises:
            ConfigError: the code of the dataset cannot be imported.
        """
        return build(self.dataset_config, "dataset")


def config_with_constants(config: Mapping[str, Any], loaded: Dataset) -> dict[str, Any]:
    """Return the configuration of a dataset, with the constants that were read from its file.

    Args:
        config: the configuration of the training run.
        loaded: the dataset.
    """
    constants = {"settled": loaded.settled} if loaded.settled else {}
    return {**config["dataset"], **constants}


def write_source(record: RunRecord, prepared: Prepared, settings: Settings) -> None:
    """Write source.json and the encoder, which ``run_without_records`` reads.

    Args:
        record: the record of the training run.
        prepared: its data.
        settings: the settings of the training.
    """
    node = {
        "format": MODEL_FORMAT,
        "name": prepared.dataset.name,
        "source": config_with_constants(record.config, prepared.loaded),
        **describe_dataset(prepared.problem(settings)),
    }
    record.write(SOURCE_FILE, as_json(node))
    if prepared.encoder is not None:
        prepared.encoder.save(record)


def run_without_records(finished: Run, settings: Settings) -> RunWithoutRecords:
    """Return the facts about its data that a finished run stored.

    Args:
        finished: the run.
        settings: the settings of the training.

    Raises:
        ConfigError: source.json is missing or damaged, or has another format; or the encoder cannot
            be read.
    """
    try:
        node = finished.json(SOURCE_FILE)
        check_model_format(node["format"], f"run={finished.folder}: {SOURCE_FILE}")
        # ``units`` says whether units differ from ids. A source with the setting ``unit`` has named
        # units even where they do not.
        source = node["source"]
        has_units = source["unit"] is not None if "unit" in source else node.get("units") is True
        dataset, records = read_dataset({**node, "units": has_units}, node["name"])
        run = RunWithoutRecords(
            Problem(dataset, settings, stored_record_counts=records), dict(source), None
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"run={finished.folder}: {SOURCE_FILE} cannot be read ({error}): train again"
        ) from None
    config = encoder_settings(settings)
    return run if config is None else replace(run, encoder=config.read(finished))


def stored_network(finished: Run) -> HeadBuilder | None:
    """Return the head that a run stored, if it is a network of the user's own.

    None: the head is built again from the run's settings.
    """
    for name in (NETWORK, f"members/000/{NETWORK}"):
        if finished.holds(name):
            setting = f"model._target_={finished.config['model'].get('_target_')}"
            return CustomNetwork(
                partial(from_layers, parse_json(finished.read(name), name)), setting
            )
    return None


def records_for_train_accuracy(dataset: Dataset, settings: Settings) -> Records:
    """Return the training records on which a run's training accuracy is computed.

    For an ensemble they are a sample if the declared size is above ``TRAIN_ACCURACY_RECORDS``,
    because each member has to answer for each record. Whether a record is in the sample depends on
    a public hash of its own id, at a rate that depends on public constants only.

    Args:
        dataset: what the model was trained on.
        settings: the settings of the training.

    Returns:
        All training records; or about ``TRAIN_ACCURACY_RECORDS`` of them, but all if there are
        none in the sample.
    """
    train = dataset.train
    size = dataset.declared_size
    if settings.ensemble.members == 1 or size is None or size <= TRAIN_ACCURACY_RECORDS:
        return train
    sampled = uniform(train.ids, TRAIN_ACCURACY_KEY) < TRAIN_ACCURACY_RECORDS / size
    return train.take(sampled) if sampled.any() else train


def write_trained(
    record: RunRecord,
    prepared: Prepared,
    settings: RunSettings,
    model: Model,
    seconds: float,
    sentences: Sequence[str] = (),
) -> ModelQuality:
    """Write the model, metrics, conditions and report of a training run.

    Args:
        record: the record of the run.
        prepared: its data.
        settings: the settings of the training.
        model: the trained model.
        seconds: the duration of the training in seconds.
        sentences: further sentences for the report.

    Returns:
        How good the model is on the test records.
    """
    dataset = prepared.dataset
    loaded = prepared.loaded
    key = HashKey.read_or_create(record.key_folder)
    record.environment(data_files=data_files(settings.source), dataset=dataset.name)
    model.save(record)
    model.save_shards(record)
    write_source(record, prepared, settings)
    with record.opened(INDEX) as file:
        file.writelines(Index.from_records(loaded.train, key).parts)
    _add_training_metrics(record, prepared, settings, model)
    record.add_metrics(
        seconds_training=round(seconds, 4),
        n_train=len(dataset.train),
        n_test=len(dataset.test),
    )
    if model.number_votes is None:
        record.add_metrics(classes=prepared.classes)
    record.add_metrics(
        steps=model.plan.steps,
        normalizer=model.plan.normalizer,
        n_max=model.plan.n_max,
        notes=len(dataset.notes),
        **model.metrics,
    )
    is_one_sided = one_sided_warning_of(settings, dataset) is not None
    remedy = constant_answer_remedy(settings, is_one_sided=is_one_sided)
    quality = _evaluate(model, prepared, str(remedy))
    write_quality(record, quality, "test_")
    record.conditions(model.conditions)
    report = train_report(
        record,
        dataset,
        settings.relation,
        settings.certificate,
        model.conditions,
        quality,
        list(sentences),
    )
    record.report(report)
    people = encrypt_unit_sample(loaded, key)
    # Read last, because a thread may compute the digest until here.
    digests = {"data_digest": loaded.digest, "features_digest": dataset.digest}
    record.environment(**digests, **{PEOPLE: people})
    return quality


def _add_training_metrics(
    record: RunRecord, prepared: Prepared, settings: RunSettings, model: Model
) -> None:
    """Add a model's accuracy (for numbers, its RMSE) on training records to the metrics of its run.

    The number of these records is added, too, if they are only a sample.
    """
    train = prepared.dataset.train
    evaluated = records_for_train_accuracy(prepared.dataset, settings)
    if len(evaluated) < len(train):
        record.add_metrics(train_accuracy_records=len(evaluated))
    votes = model.number_votes
    if votes is None:
        record.add_metrics(train_accuracy=accuracy(model, evaluated))
    else:
        errors = votes.predict(evaluated.features) - evaluated.labels
        record.add_metrics(train_rmse=float(np.sqrt(np.mean(errors**2))))


def one_sided_warning_of(settings: RunSettings, dataset: Dataset) -> Message | None:
    """Return the warning that vectors of a file point in nearly one direction, and the remedy.

    It depends on private records, so it is for the data owner only.

    Args:
        settings: the settings of the training. Only vectors have ``dataset.center``, which is the
            remedy.
        dataset: the data, of which training records are read.

    Returns:
        The warning; None: vectors do not, this does not affect the model, or labels are numbers.
    """
    is_vectors = isinstance(settings.source, Embeddings)
    is_number = dataset.target.numeric is not None
    if not is_vectors or is_number or not settings.certificate.normalises_records:
        return None
    return one_sided_warning(sample_records(dataset.train).features)


def large_feature_warning(settings: RunSettings, dataset: Dataset) -> str:
    """Return the warning that vectors of a file are too large for a network, and the remedy.

    It is empty if they are not, or if the model is not a network. It depends on private records, so
    it is for the data owner only.

    Args:
        settings: the settings of the training. Only vectors have ``dataset.scale``, which is the
            remedy.
        dataset: the data, of which training records are read.
    """
    is_network = isinstance(settings.certificate, BoxConfig)
    if not is_network or not isinstance(settings.source, Embeddings):
        return ""
    largest = large_feature(sample_records(dataset.train))
    if largest is None:
        return ""
    return (
        f"the largest feature is {largest:g} in absolute value: give dataset.scale=NUMBER, a "
        "public factor that makes all features about 1 at most (0.00392 for pixels from 0 to 255)"
    )


def _evaluate(model: Model, prepared: Prepared, constant_remedy: str) -> ModelQuality:
    """Return how good a model is on the test records.

    Labels are certified if that takes no time. If not, some of them are, at k = 0 only.

    Args:
        model: the trained model.
        prepared: its data.
        constant_remedy: what to change if the model is nearly constant.
    """
    test = prepared.dataset.test
    votes = model.number_votes
    if votes is not None:
        prediction = votes.predict(test.features)
        train = prepared.dataset.train
        return evaluate_numbers(votes, "test records", test, test.labels, prediction, train)
    if model.instant:
        certificates = model.certify(test.features)
        answers = ModelAnswers(
            # The labels are those of ``model.predict``, which need not be made again.
            prediction=certificates.prediction,
            distance=certificates.stable_distance,
            certified_counts=CertifiedCounts.from_certificates(
                certificates, model.problem.settings
            ),
            margins=model.certified_margins(test.features, certificates),
        )
    else:
        answers = ModelAnswers(
            prediction=model.predict(test.features),
            certified_counts=count_certified(model, sample_records(test)),
        )
    return evaluate_answers(
        model, test, "test records", test.labels, answers, constant_remedy=constant_remedy
    )
