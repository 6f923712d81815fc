"""agt train: configuration -> dataset -> head -> training with certificates -> run record.

``agt train resume=FOLDER`` continues a killed run in its folder, with the settings that the folder
records, to a result with the same bits. A command line with another value of a setting is refused,
because its result would belong to neither run. Only ``CHANGEABLE_SETTINGS`` may differ: where files
lie, and how often a checkpoint is written. The number of threads may not, because sums that are
divided differently are rounded differently.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agt.certificates.settings import ErmConfig, StabilityConfig
from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt.data.table import Table
from agt.errors import AgtError, ConfigError
from agt.models.linear_comparison import compare_with_linear_classifier
from agt.models.model import Model
from agt.provenance import code_digest, package_of, surroundings, targets
from agt.store.dotted_keys import flatten_keys
from agt.training.checkpoint import CheckpointFolder, open_checkpoints
from agt.training.noise import SEED
from agt_cli.composing import compose_command
from agt_cli.networks import linear_line
from agt_cli.process import typed_words
from agt_cli.report.console import Console, format_decimals
from agt_cli.report.finished import CHECKPOINTS, SPENT_FILE, Run
from agt_cli.report.number_quality import format_number
from agt_cli.report.proposed_release import (
    HEAD_MEANING,
    MECHANISM_OF_LABELS,
    MECHANISM_OF_VOTES,
    QUERIES_MEANING,
    WEIGHTS_MECHANISMS,
    release_command,
)
from agt_cli.report.quality import ModelQuality, format_rate
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import LOGISTIC_REGRESSION, PROMISED_GAP, scoring_of
from agt_cli.report.sections_md import unmet_condition_lines
from agt_cli.report.training_md import CHOICE_BY_RESULTS
from agt_cli.report.unfinished import RESUME_KEY, check_resume_setting, open_unfinished
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    fit,
    large_feature_warning,
    one_sided_warning_of,
    prepare_in_team,
    read_settings_and_learner,
    size_question,
    write_trained,
)
from agt_cli.runs.usual_learners import scores_on_vectors

MIN_VOTES_RECORDS = 5_000  # records declared


@dataclass(frozen=True)
class _TrainingResult:
    """A trained model, whose record is finished.

    Attributes:
        model: the model.
        quality: the scores of the model on the test records.
        sentences: sentences on the model, and on the noise of its training.
        unfinished_releases: sentences on earlier releases of the same noise that did not finish.
    """

    model: Model
    quality: ModelQuality
    sentences: list[str]
    unfinished_releases: list[str]


def configure(config: Mapping[str, Any]) -> RunSettings:
    """Validate the configuration (ConfigError), before any data is read."""
    return read_settings_and_learner(config)


def run(settings: RunSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Train a model, write its record, print the result and the next commands.

    Returns:
        What --json prints.
    """
    prepared = prepare_in_team(settings, record.config, console)
    with prepared.loaded.digest_in_background():
        return _run_prepared(prepared, settings, record, console)


def _run_prepared(
    prepared: Prepared, settings: RunSettings, record: RunRecord, console: Console
) -> dict[str, Any]:
    """Train a model on loaded data, write its record, print the result and the next commands.

    The digest of the data may still be computed by a thread: reading it waits for the thread.

    Returns:
        What --json prints.
    """
    loaded = prepared.loaded
    dataset = prepared.dataset
    for note in dataset.notes:
        console.note(f"note: {note}")
    _record_data(prepared, settings, record)
    for warning in _find_data_warnings(settings, dataset):
        console.note(warning)
    layers_note = settings.model.layers_note(settings.training)
    if layers_note:
        console.note(f"note: {layers_note}")
    trained = _train_and_write(settings, record, prepared, console)
    model = trained.model
    quality = trained.quality
    _print_result(record, dataset.name, trained.sentences, quality, console)
    reference_scores: dict[str, float] = {}
    if not console.quiet:
        reference_scores = _print_reference_learners(settings.source, loaded, console)
        _warn_if_linear_is_better(model, console)
    for note in _advice(settings, record, model, dataset, reference_scores):
        console.note(note)
    may_release_labels = dataset.target.numeric is None and not settings.noise
    conditions_held = all(condition.held for condition in model.conditions)
    if may_release_labels and conditions_held and not console.quiet:
        for line in _private_labels(record, settings, model, dataset):
            console.note(line)
    result: dict[str, Any] = {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "data_digest": loaded.digest,
        "digest": record.digest,
    }
    if reference_scores:
        result["usual_learners"] = reference_scores
    sentences = [*trained.sentences, *trained.unfinished_releases]
    if sentences:
        result["words"] = sentences
    return result


def _record_data(prepared: Prepared, settings: RunSettings, record: RunRecord) -> None:
    """Write into the record what a training is about to be trained on.

    A training that is killed leaves this. ``write_trained`` replaces marks by digests, which take
    longer; a release needs digests before anything is drawn.
    """
    loaded = prepared.loaded
    dataset = prepared.dataset
    data_digest = loaded.mark
    features_digest = dataset.mark
    if _pays_or_draws(settings, record):
        data_digest = loaded.digest
        features_digest = dataset.digest
    record.environment(
        data_digest=data_digest, features_digest=features_digest, dataset=dataset.name
    )


def _train_and_write(
    settings: RunSettings, record: RunRecord, prepared: Prepared, console: Console
) -> _TrainingResult:
    """Train a model, and write and finish its record.

    Private noise is paid for before it is drawn, if a ledger is named.

    Args:
        settings: the settings of the run.
        record: the record of the run; it is finished.
        prepared: the data.
        console: shows progress, and releases of the same noise that did not finish.
    """
    # Only these trainings load ledgers and mechanisms.
    pays_or_draws = _pays_or_draws(settings, record)
    if pays_or_draws:
        from agt_cli.releasing.noise import noise_words, paying_for_noise, proved
        from agt_cli.releasing.spent import interrupted_releases
    unfinished_releases: list[str] = []
    if settings.noise and settings.noise.seed is None:
        unfinished_releases = interrupted_releases(record, {"data_digest": prepared.loaded.digest})
    for line in unfinished_releases:
        console.say(line)
    checkpoints = open_run_checkpoints(record, settings, prepared, console)
    payment: AbstractContextManager[Sequence[str]] = nullcontext(())
    if pays_or_draws:
        payment = paying_for_noise(settings, record, prepared, checkpoints)
    with payment as account:
        started = time.perf_counter()
        with checkpoints.removed_if_refused():
            model = fit(prepared, settings, console, checkpoints)
        seconds = time.perf_counter() - started
        sentences = list(model.sentences)
        if model.noise:
            sentences += noise_words(settings, model.noise, model.conditions, account)
        report_sentences = [*sentences, *unfinished_releases]
        quality = write_trained(record, prepared, settings, model, seconds, report_sentences)
        if model.noise:
            record.add_metrics(noise_proved=int(proved(settings, model.conditions)))
        record.finish()
    return _TrainingResult(model, quality, sentences, unfinished_releases)


def _warn_if_linear_is_better(model: Model, console: Console) -> None:
    """Fit a linear classifier, and print a warning if it answers better than the trained network.

    The line to type follows the warning. Models other than single networks are not compared.

    Args:
        model: the trained model.
        console: prints the warning.
    """
    comparison = compare_with_linear_classifier(model)
    if comparison is not None and comparison.warning is not None:
        console.note(str(comparison.warning))
        console.note(f"to compare: {linear_line(typed_words())}")


def _pays_or_draws(settings: RunSettings, record: RunRecord) -> bool:
    """Return whether a training draws private noise, or names a ledger that pays for it."""
    return settings.noise is not None or record.config.get("ledger") is not None


def _advice(
    settings: RunSettings,
    record: RunRecord,
    model: Model,
    dataset: Dataset,
    reference_scores: Mapping[str, float],
) -> Iterator[str]:
    """Yield how the model could be better, which conditions are not met, and the next command.

    Args:
        settings: the settings of the run.
        record: the record of the run, which is finished.
        model: the trained model.
        dataset: the dataset on which the model was trained.
        reference_scores: the scores of learners without privacy by name; empty: not known.
    """
    if reference_scores:
        advice = _advice_for_linear_head(settings, record.metrics, reference_scores)
        if advice:
            yield advice
    yield from unmet_condition_lines(model.conditions)
    better_certificate = settings.certificate.certifies_more
    size = dataset.declared_size or 0
    is_large_table = size >= MIN_VOTES_RECORDS and isinstance(settings.source, Table)
    if better_certificate and is_large_table and dataset.target.class_count == 2:
        yield (
            f"certificate={better_certificate} may be better for this table: on each of the five "
            f"tables with two classes and {MIN_VOTES_RECORDS:,} rows or more that we measured, it "
            "certified more answers (docs/recipe.md)"
        )
    yield f"next: agt certify run={record.folder} digest={record.digest}"


def _private_labels(
    record: RunRecord, settings: RunSettings, model: Model, dataset: Dataset
) -> Iterator[str]:
    """Yield the commands for private labels, as docs/start.md and ``agt start`` have them.

    The commands name a ledger, which counts every release about these people.

    Args:
        record: the record of the run, which is finished.
        settings: the settings of the run.
        model: the trained model; each condition of a privacy claim is met.
        dataset: the dataset on which the model was trained, after which a new ledger is named.
    """
    # Ledgers and mechanisms take a third of a second to load, which only these lines cost.
    from agt.mechanisms.planning import releasable_heads
    from agt_cli.start.ledger_proposal import LedgerProposal
    from agt_cli.start.next_steps import free_ledger_name

    folder = record.folder
    heads = releasable_heads(model)
    votes = settings.ensemble.members > 1 and settings.ensemble.vote == "labels"
    mechanism = MECHANISM_OF_VOTES if votes else MECHANISM_OF_LABELS
    supported = [name for name in WEIGHTS_MECHANISMS if name in heads]
    if supported:
        mechanism = supported[0]
    has_classes = dataset.target.class_count is not None
    names = dataset.train.units
    ledger = LedgerProposal.find(folder, mechanism, 1.0, 1e-5, names, labels_instead=has_classes)
    yield from ledger.sentences
    if not ledger.accepts_a_release:
        return
    if not ledger.name:
        name = free_ledger_name(re.sub(r"[^\w-]+", "_", dataset.name).strip("_-") or "people")
        ledger = replace(ledger, name=name)
        head = HEAD_MEANING.format(dataset=name).rstrip(".")
        yield f"to open a ledger: {ledger.opening(folder, 1e-5)} ({head})"
    elif not ledger.admitted:
        yield f"to use this ledger: {ledger.admission(folder)}"
    total = (f"{ledger.eps:g}", ledger.delta(1e-5))
    command = release_command(folder, ledger.mechanism, *total, ledger=ledger.name)
    yield f"for private labels: agt {command} ({QUERIES_MEANING.rstrip('.')})"


def _print_reference_learners(
    source: object, loaded: Dataset, console: Console
) -> dict[str, float]:
    """Train learners without privacy, and print their scores on the test records; none is recorded.

    They are computed for vectors only, because a table would have to be loaded again without bins,
    as `agt start` does.

    Args:
        source: where the dataset was loaded from.
        loaded: the dataset before any feature map.
        console: the console on which the scores are shown.

    Returns:
        Name of a learner -> its first score.
    """
    if not isinstance(source, Embeddings):
        return {}
    scoring = scoring_of(loaded.target)
    reference = scores_on_vectors(loaded, scoring, console)
    if not reference.scores:
        return {}
    title = "usual learners on the same test records, without privacy and certificates"
    if reference.records_seen < len(loaded.train):
        title += f", trained on {reference.records_seen:,} of {len(loaded.train):,} records"
    rows = []
    first_scores = {}
    for name, scores in reference.scores.items():
        rows.append([name, *(str(score or "-") for score in scores)])
        first = scores[0]
        if first is not None:
            first_scores[name] = first.value
    console.table(title, ("", *scoring.titles), rows)
    return first_scores


def _advice_for_linear_head(
    settings: RunSettings, metrics: Mapping[str, Any], reference_scores: Mapping[str, float]
) -> str:
    """Return advice if a linear head is much less accurate than logistic regression; else empty.

    The gap must exceed ``PROMISED_GAP``. There is no advice for other models (with a feature map,
    ensembles, or models of numbers).

    Args:
        settings: the settings of the run.
        metrics: the metrics of the run.
        reference_scores: name of a learner without privacy -> its score on the same test records.
    """
    certificate = settings.certificate
    is_linear_head = isinstance(certificate, StabilityConfig | ErmConfig)
    if not is_linear_head or settings.ensemble.members > 1 or certificate.features.map != "none":
        return ""
    reference = reference_scores.get(LOGISTIC_REGRESSION)
    accuracy = metrics.get("test_accuracy")
    if reference is None or accuracy is None or reference - accuracy <= PROMISED_GAP:
        return ""
    return (
        f"logistic regression is more accurate by {format_rate(reference - accuracy)}. To find a "
        "better model, try public features (certificate/features=relu), and choose them and other "
        "settings on public rows with agt tune (docs/recipe.md, docs/feature_maps.md)"
    )


def _find_data_warnings(settings: RunSettings, dataset: Dataset) -> Iterator[str]:
    """Yield warnings about the data, and about the budget of noise in training.

    Those about the data depend on private records, so all are for the data owner's console only.
    They are asked for before anything is trained or drawn.

    Args:
        settings: the settings of the run.
        dataset: the data that will be trained on.
    """
    if settings.training.batch.normalizer is None:
        question = size_question(dataset)
        if question:
            yield question
    one_sided = one_sided_warning_of(settings, dataset)
    if one_sided is not None:
        yield str(one_sided)
    large = large_feature_warning(settings, dataset)
    if large:
        yield large
    if settings.noise is not None:
        from agt.mechanisms.claims import budget_warnings  # which no other training loads

        yield from budget_warnings(
            settings.noise.epsilon, settings.noise.delta, dataset.declared_size
        )


def _print_result(
    record: RunRecord,
    dataset_name: str,
    sentences: Sequence[str],
    quality: ModelQuality,
    console: Console,
) -> None:
    """Print how good the trained model is, where its record is, and the record's digest.

    Args:
        record: the record of the run, which is finished.
        dataset_name: the name of the dataset.
        sentences: sentences on the model, and on the noise of its training.
        quality: the quality of the model, on the test records.
        console: prints it.
    """
    for text in (quality.verdict, quality.explanation):
        if text:
            console.say(text)
    columns = _result_columns(record.metrics)
    console.table(f"trained on {dataset_name}", tuple(columns), [tuple(columns.values())])
    quality.print_to(console)
    for line in sentences:
        console.say(line)
    if record.config["training"].get("chosen_on") != "data":  # else nothing is claimed anyway
        console.note(CHOICE_BY_RESULTS)
    console.say(f"run folder: {record.folder}")
    console.say(f"digest: {record.digest}")
    console.note(
        "store this digest elsewhere: given as digest=..., it makes agt refuse a changed run"
    )


def _result_columns(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of the table about a training run, by the titles of their columns."""
    measure = "accuracy"
    score = metrics.get("train_accuracy")
    if score is None:
        measure = "RMSE"
        score_cell = format_number(float(metrics["train_rmse"]))
    else:
        score_cell = format_rate(float(score))
    score_title = f"train {measure}"
    if "train_accuracy_records" in metrics:
        sample_size = metrics["train_accuracy_records"]
        score_title = f"{measure} on a sample of {sample_size} training records"
    reach = {"k up to": str(metrics.get("k_with_radius", metrics["k_max"]))}
    if "moved_by_one_k" in metrics:
        reach = {"sensitivity per k": format_decimals(float(metrics["moved_by_one_k"]), 5)}
    return {
        "train records": str(metrics["n_train"]),
        "test records": str(metrics["n_test"]),
        score_title: score_cell,
        **reach,
        "steps": str(metrics["steps"]),
        "seconds": format_decimals(float(metrics["seconds_training"]), 1),
    }


# -- resuming a run
# --------------------------------------------------------------------------------------------------

CHANGEABLE_SETTINGS = ("output_dir", "data_dir", "dataset.data_dir", "compute.checkpoint_seconds")
DERIVED_SETTINGS = ("training.chosen_for", "training.chosen_from")  # follow from the others
_ABSENT = object()


def run_to_resume(config: dict[str, Any], overrides: Sequence[str], sweep: bool) -> Run | None:
    """Return the run that a command line resumes; None: the command line starts a new run.

    Args:
        config: composed from the command line, as plain containers. The key ``resume`` is removed.
        overrides: the settings that were typed on the command line.
        sweep: True: the command line is one job of a sweep.

    Returns:
        The run, whose configuration has the typed values of ``CHANGEABLE_SETTINGS``.

    Raises:
        ConfigError: the run cannot be resumed (``open_unfinished``), or another setting was typed
            with a value that is not the run's.
    """
    folder = config.pop(RESUME_KEY, None)
    if folder is None:
        return None
    check_resume_setting(folder, sweep)
    run = open_unfinished(Path(folder))
    recorded = flatten_keys(run.config)
    typed = _typed_settings(config, overrides)
    _check_not_changed(folder, recorded, typed)
    if "data_dir" in typed and "dataset.data_dir" in recorded:
        typed.setdefault("dataset.data_dir", typed["data_dir"])
    for key in CHANGEABLE_SETTINGS:
        if key in typed:
            part, _, name = key.rpartition(".")
            node = run.config.setdefault(part, {}) if part else run.config
            node[name] = typed[key]
    return run


def _check_not_changed(folder: str, recorded: Mapping[str, Any], typed: Mapping[str, Any]) -> None:
    """Raise ConfigError if a setting of a resumed run was typed with another value.

    Args:
        folder: the value of ``resume``, for the message.
        recorded: the run's settings, by dotted key.
        typed: the settings that were typed. Those in ``CHANGEABLE_SETTINGS`` may differ.
    """
    for key, value in typed.items():
        recorded_value = recorded.get(key, _ABSENT)
        if key in CHANGEABLE_SETTINGS or value == recorded_value:
            continue
        shown = "not set" if recorded_value is _ABSENT else recorded_value
        raise ConfigError(
            f"{RESUME_KEY}={folder}: {key}={value} differs from the run's own setting, "
            f"{shown}. A resumed run keeps its own settings, so leave all settings out. To "
            f"use other settings, start a new run (without {RESUME_KEY}=...)"
        )


def open_run_checkpoints(
    record: RunRecord, settings: RunSettings, prepared: Prepared, console: Console
) -> CheckpointFolder:
    """Return the folder in which a training stores its state, so that it can be resumed.

    Args:
        record: the record of the run, new or resumed.
        settings: the settings of the run.
        prepared: its data.
        console: prints where a resumed run continues.

    Raises:
        ConfigError: the run is resumed, and something changed on which the bits of its result
            depend (settings, data, code, libraries, threads); or the seed of its private noise is
            lost.
    """
    folder = record.folder / CHECKPOINTS
    if record.resumed_run:
        _check_seed_exists(record, settings)
        started = record.resumed_run.status["started"]
        if list(folder.rglob("step=*")):
            progress = f"the run of {started} continues from its last checkpoint"
        else:
            progress = f"the run of {started} wrote no checkpoint, so it starts from the beginning"
        console.note(progress)
    bound_settings = {
        key: value
        for key, value in flatten_keys(record.config).items()
        if key not in CHANGEABLE_SETTINGS
    }
    return open_checkpoints(
        folder,
        {**bound_settings, **_surroundings(record, settings, prepared)},
        settings.compute.checkpoint_seconds,
        console.note,
    )


def _check_seed_exists(record: RunRecord, settings: RunSettings) -> None:
    """Raise ConfigError if a resumed run drew private noise, but the seed of this noise is lost."""
    noise = settings.noise
    if noise is None or noise.seed is not None or not (record.folder / SPENT_FILE).exists():
        return
    seed = record.folder / CHECKPOINTS / f"{SEED}.json"
    if not seed.exists():
        raise ConfigError(
            f"{RESUME_KEY}={record.folder}: the file {seed} is missing. It holds the seed of the "
            "noise of this run, and without it agt cannot draw the same noise again: restore the "
            "file, or start a new run. The noise of a new run is a second release, and costs "
            "budget in addition to what spent.json records"
        )


def _surroundings(record: RunRecord, settings: RunSettings, prepared: Prepared) -> dict[str, Any]:
    """Return the data, code and libraries on which the bits of a result depend."""
    user_code = None
    with suppress(AgtError):  # code that is not in a file has no digest
        user_modules = [
            name for name in targets(record.config) if package_of(name) not in ("agt", "agt_cli")
        ]
        user_code = code_digest(user_modules) if user_modules else None
    return {
        "data_digest": prepared.loaded.mark,
        "features_digest": prepared.dataset.mark,
        "encoder": prepared.dataset.scaling.get("encoder"),
        "your code": user_code,
        **surroundings(settings.compute.device, settings.compute.threads),
    }


def _typed_settings(config: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the settings that a command line chooses, by dotted key.

    These are the keys that it names, with everything below them, and the keys whose values differ
    from the defaults because of an option that it chooses.

    Args:
        config: the configuration that was composed from the command line.
        overrides: the settings that were typed.
    """
    names = [word.partition("=")[0].lstrip("+~").replace("/", ".") for word in overrides]
    prefixes = tuple(f"{name}." for name in names)
    defaults = flatten_keys(compose_command("train", []))
    settings = flatten_keys(config)
    named = [key for key in settings if f"{key}.".startswith(prefixes)]
    changed = [key for key, value in settings.items() if defaults.get(key, _ABSENT) != value]
    # The named ones come first, because the first setting that differs from a resumed run is
    # reported.
    return {key: settings[key] for key in (*named, *changed) if key not in DERIVED_SETTINGS}
