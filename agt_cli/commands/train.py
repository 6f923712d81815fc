"""agt train: configuration -> dataset -> head -> training with certificates -> run record.

``agt train resume=FOLDER``: the same run, in the same folder, from where it was killed to the same
bits. Settings are those that the folder records. A line that gives others is refused by name: what
came out would be neither the one run nor the other. What says where things lie, and how often to
write a checkpoint, may change. The number of threads may not: sums that are shared out otherwise
round otherwise.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from agt.certificates.settings import ErmConfig, StabilityConfig
from agt.data.dataset import Dataset
from agt.data.embeddings import Embeddings
from agt.data.table import Table
from agt.errors import AgtError, ConfigError
from agt.models.model import Model
from agt.provenance import code_digest, package_of, surroundings, targets
from agt.store.dotted_keys import flatten_keys
from agt.training.checkpoint import CheckpointFolder, open_checkpoints
from agt.training.noise import SEED
from agt_cli.composing import composed
from agt_cli.report.console import Console, show
from agt_cli.report.finished import CHECKPOINTS, SPENT_FILE, Run
from agt_cli.report.number_quality import number_words
from agt_cli.report.proposed_release import (
    HEAD_MEANING,
    LABEL_MECHANISMS,
    QUERIES_MEANING,
    WEIGHTS_MECHANISMS,
    ledger_command,
    release_command,
)
from agt_cli.report.quality import AnyQuality, Quality, rate_words
from agt_cli.report.record import RunRecord
from agt_cli.report.scoring import LOGISTIC_REGRESSION, PROMISED_GAP, scoring_of
from agt_cli.report.sections_md import unmet
from agt_cli.report.training_md import caution_words
from agt_cli.report.unfinished import RESUME_KEY, open_unfinished
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    fit,
    large_feature_doubt,
    one_sided_doubt,
    prepared_by_all,
    settings_to_train,
    size_question,
    write_trained,
)
from agt_cli.runs.usual_learners import scores_on_vectors

VOTES_FROM = 5_000  # records declared


def configure(config: Mapping[str, Any]) -> RunSettings:
    """Validate the configuration (ConfigError), before any data is read."""
    return settings_to_train(config)


def run(settings: RunSettings, record: RunRecord, console: Console) -> dict[str, Any]:
    """Train, write the record, and say where it is."""
    prepared = prepared_by_all(settings, record.config, console)
    dataset, digest = prepared.dataset, prepared.loaded.digest
    for note in dataset.notes:
        console.note(f"note: {note}")
    record.environment(data_digest=digest, features_digest=dataset.digest, dataset=dataset.name)
    for line in _doubts(settings, dataset):
        console.note(line)
    releases = settings.noise is not None or record.config.get("ledger") is not None
    if releases:  # ledgers and mechanisms, which no other training loads
        from agt_cli.releasing.noise import noise_words, paying_for_noise, proved
        from agt_cli.releasing.spent import interrupted_releases
    earlier = (
        interrupted_releases(record, {"data_digest": digest})
        if settings.noise and settings.noise.seed is None
        else []
    )
    for line in earlier:
        console.say(line)
    checkpoints = checkpoints_of(record, settings, prepared, console)
    drawn = (
        paying_for_noise(settings, record, prepared, checkpoints) if releases else nullcontext(())
    )
    with drawn as account:
        started = time.perf_counter()
        with checkpoints.removed_if_refused():
            model = fit(prepared, settings, console, checkpoints)
        seconds, noise, words = time.perf_counter() - started, model.noise, list(model.sentences)
        words += noise_words(settings, noise, model.conditions, account) if noise else []
        quality = write_trained(record, prepared, settings, model, seconds, [*words, *earlier])
        if noise:
            record.add_metrics(noise_proved=int(proved(settings, model.conditions)))
        name = record.finish()
    _say(record, dataset.name, words, quality, console)
    usual: dict[str, float] = {}
    if not console.quiet:
        usual = _say_usual_learners(settings.source, prepared.loaded, console)
        is_vectors = isinstance(settings.source, Embeddings)
        if is_vectors and (advice := _advice_for_linear_head(settings, record.metrics, usual)):
            console.note(advice)
    for line in unmet(model.conditions):
        console.note(line)
    other = settings.certificate.certifies_more
    large = (dataset.declared_size or 0) >= VOTES_FROM and isinstance(settings.source, Table)
    if other and large and dataset.target.class_count == 2:
        console.note(
            f"certificate={other} may be better for this table: on each of the five tables with "
            f"two classes and {VOTES_FROM:,} rows or more that we measured, it certified more "
            "answers (docs/recipe.md)"
        )
    console.note(f"next: agt certify run={record.folder} digest={record.digest}")
    held = all(condition.held for condition in model.conditions)
    if held and dataset.target.numeric is None and not settings.noise and not console.quiet:
        for line in _private_labels(record, settings, model, dataset.name):
            console.note(line)
    result = {
        "metrics": record.metrics,
        "verdict": quality.verdict,
        "data_digest": digest,
        "digest": name,
    }
    if usual:
        result["usual_learners"] = usual
    return result | ({"words": [*words, *earlier]} if words or earlier else {})


def _private_labels(
    record: RunRecord, settings: RunSettings, model: Model, dataset_name: str
) -> Iterator[str]:
    """Yield the commands for private labels, as docs/start.md and ``agt start`` have them.

    They name a ledger, which counts every release about these people.

    Args:
        record: of the run, which is finished.
        settings: of the run.
        model: that was trained; each condition of a privacy claim is met.
        dataset_name: after which a new ledger is named.
    """
    # Ledgers and mechanisms take a third of a second to load, which only these lines cost.
    from agt.mechanisms.planning import releasable_heads
    from agt_cli.releasing.existing_ledger import ExistingLedger

    folder = record.folder
    heads = releasable_heads(model)
    votes = settings.ensemble.members > 1 and settings.ensemble.vote == "labels"
    supported = [name for name in WEIGHTS_MECHANISMS if name in heads]
    mechanism = supported[0] if supported else LABEL_MECHANISMS[votes]
    ledger = ExistingLedger.find(folder)
    if ledger is None:
        name = re.sub(r"[^\w-]+", "_", dataset_name).strip("_-") or "people"
        head = HEAD_MEANING.format(dataset=name).rstrip(".")
        yield f"to open a ledger: agt {ledger_command(name, folder, 1.0, 1e-5)} ({head})"
    else:
        name = ledger.name
        yield ledger.sentence
        if not ledger.admitted:
            yield f"to use this ledger: {ledger.admission(folder)[0]}"
    command = release_command(folder, mechanism, "1", "1e-5", ledger=name)
    yield f"for private labels: agt {command} ({QUERIES_MEANING.rstrip('.')})"


def _say_usual_learners(source: object, loaded: Dataset, console: Console) -> dict[str, float]:
    """Show how good learners without privacy are on the same test records; they are not recorded.

    They are shown for vectors only: a table would have to be loaded again, without bins, and `agt
    start` does that.

    Args:
        source: where the dataset was loaded from.
        loaded: the dataset before any feature map.
        console: where it is shown.

    Returns:
        Name -> score, the first of those that are shown.
    """
    scoring = scoring_of(loaded.target)
    if not isinstance(source, Embeddings):
        return {}
    beside = scores_on_vectors(loaded, scoring)
    if not beside.scores:
        return {}
    title = "usual learners on the same test records, without privacy and certificates"
    if beside.records_seen < len(loaded.train):
        title += f", trained on {beside.records_seen:,} of {len(loaded.train):,} records"
    cells = [
        (name, *(str(score or "-") for score in scores)) for name, scores in beside.scores.items()
    ]
    console.table(title, ("", *scoring.titles), cells)
    return {name: first.value for name, (first, *_) in beside.scores.items() if first is not None}


def _advice_for_linear_head(
    settings: RunSettings, metrics: Mapping[str, Any], usual: Mapping[str, float]
) -> str:
    """Return what to try where the plain linear head is far behind logistic regression.

    It is empty where the gap is at most ``PROMISED_GAP``, and for any other model: one with a
    feature map, an ensemble, or a model of numbers.

    Args:
        settings: of the run.
        metrics: of the run.
        usual: the score of each usual learner on the same test records, by name.
    """
    certificate = settings.certificate
    is_linear_head = isinstance(certificate, StabilityConfig | ErmConfig)
    if not is_linear_head or settings.ensemble.members > 1 or certificate.features.map != "none":
        return ""
    reference = usual.get(LOGISTIC_REGRESSION)
    accuracy = metrics.get("test_accuracy")
    if reference is None or accuracy is None or reference - accuracy <= PROMISED_GAP:
        return ""
    return (
        f"logistic regression is more accurate by {rate_words(reference - accuracy)}. To find a "
        "better model, try public features (certificate/features=relu), and choose them and other "
        "settings on public rows with agt tune (docs/recipe.md, docs/feature_maps.md)"
    )


def _doubts(settings: RunSettings, dataset: Dataset) -> Iterator[str]:
    """Yield warnings for the data owner before anything is trained or drawn."""
    if settings.training.batch.normalizer is None and (question := size_question(dataset)):
        yield question
    one_sided = one_sided_doubt(settings, dataset)
    if one_sided is not None:
        yield str(one_sided)
    large = large_feature_doubt(settings, dataset)
    if large:
        yield large
    if settings.noise is not None:
        from agt.mechanisms.claims import budget_warnings  # which no other training loads

        yield from budget_warnings(
            settings.noise.epsilon, settings.noise.delta, dataset.declared_size
        )


def _say(
    record: RunRecord,
    name: str,
    words: list[str],
    quality: AnyQuality,
    console: Console,
) -> None:
    m = record.metrics
    for text in (quality.verdict, quality.explanation):
        if text:
            console.say(text)
    reach = ("k up to", str(m.get("k_with_radius", m["k_max"])))
    if "moved_by_one_k" in m:
        reach = ("sensitivity per k", show(float(m["moved_by_one_k"]), 5))
    accuracy_title = "train accuracy" if "train_accuracy" in m else "train RMSE"
    if "train_accuracy_records" in m:
        sample_size = m["train_accuracy_records"]
        measure = "accuracy" if "train_accuracy" in m else "RMSE"
        accuracy_title = f"{measure} on a sample of {sample_size} training records"
    if "train_accuracy" in m:
        fit_on_train = rate_words(float(m["train_accuracy"]))
    else:
        fit_on_train = number_words(float(m["train_rmse"]))
    console.table(
        f"trained on {name}",
        ("train records", "test records", accuracy_title, reach[0], "steps", "seconds"),
        [
            (
                str(m["n_train"]),
                str(m["n_test"]),
                fit_on_train,
                reach[1],
                str(m["steps"]),
                show(float(m["seconds_training"]), 1),
            )
        ],
    )
    quality.say(console)
    advice: list[str] = []
    if isinstance(quality, Quality):  # numbers have intervals, and no stable distances
        advice = caution_words(record.config["training"])
    for line in (*advice, *words):
        console.say(line)
    console.say(f"run folder: {record.folder}")
    console.say(f"digest: {record.digest}")
    console.note(
        "store this digest of the run outside its folder, and later give it as digest=...: then "
        "agt certify, agt plan and agt predict refuse a run that was changed or replaced"
    )


# -- a run that goes on
# --------------------------------------------------------------------------------------------------

FREE = ("output_dir", "data_dir", "dataset.data_dir", "compute.checkpoint_seconds")
BOUND = ("training.chosen_for", "training.chosen_from")  # follow from the others
_ABSENT = object()


def run_to_resume(config: dict[str, Any], overrides: Sequence[str], sweep: bool) -> Run | None:
    """The run that a command line goes on with; None: it starts one of its own. The key is taken
    out of ``config``.

    Args:
        config: composed from the command line, as plain containers.
        overrides: the command line's own.
        sweep: whether it is one job of several.

    Raises:
        ConfigError: no run that can go on (``open_unfinished``), or a setting that is not the
            run's.
    """
    folder = config.pop(RESUME_KEY, None)
    if folder is None:
        return None
    if not isinstance(folder, str) or not folder:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: this is not a folder: give the folder of a killed run, or "
            f"leave {RESUME_KEY}=... out to start a new run"
        )
    if sweep:
        raise ConfigError(
            f"{RESUME_KEY}={folder}: only a single run can be resumed, but -m starts several "
            "runs: leave out -m"
        )
    run = open_unfinished(Path(folder), "train")
    recorded, given = flatten_keys(run.config), dict(_given(config, overrides))
    for key, value in given.items():
        before = recorded.get(key, _ABSENT)
        if key not in FREE and value != before:
            had = "not set" if before is _ABSENT else before
            raise ConfigError(
                f"{RESUME_KEY}={folder}: {key}={value} differs from the run's own setting, "
                f"{had}. A resumed run keeps its own settings, so leave all settings out. To "
                f"use other settings, start a new run (without {RESUME_KEY}=...)"
            )
    if "data_dir" in given and "dataset.data_dir" in recorded:
        given.setdefault("dataset.data_dir", given["data_dir"])
    for key in FREE:
        if key in given:
            part, _, name = key.rpartition(".")
            (run.config.setdefault(part, {}) if part else run.config)[name] = given[key]
    return run


def checkpoints_of(
    record: RunRecord, settings: RunSettings, prepared: Prepared, console: Console
) -> CheckpointFolder:
    """Where the training of this record leaves what it has reached, bound to all that its bits
    depend on.

    Raises:
        ConfigError: of a run that goes on: something that its bits depend on has changed, or
            private noise was drawn with a seed that is gone.
    """
    folder, noise = record.folder / CHECKPOINTS, settings.noise
    seed, spent = folder / f"{SEED}.json", record.folder / SPENT_FILE
    if record.again and noise and noise.seed is None and spent.exists() and not seed.exists():
        raise ConfigError(
            f"{RESUME_KEY}={record.folder}: the file {seed} is missing. It holds the seed of the "
            "noise of this run, and without it agt cannot draw the same noise again: restore the "
            "file, or start a new run. The noise of a new run is a second release, and costs "
            "budget in addition to what spent.json records"
        )
    if record.again:
        started = record.again.status["started"]
        if list(folder.rglob("step=*")):
            progress = f"the run of {started} continues from its last checkpoint"
        else:
            progress = f"the run of {started} wrote no checkpoint, so it starts from the beginning"
        console.note(progress)
    about = {
        key: value for key, value in flatten_keys(record.config).items() if key not in FREE
    } | _around(record, settings, prepared)
    return open_checkpoints(folder, about, settings.compute.checkpoint_seconds, console.note)


def _around(record: RunRecord, settings: RunSettings, prepared: Prepared) -> dict[str, Any]:
    """What bits depend on beside settings."""
    yours = None
    with suppress(AgtError):  # not in a file
        modules = [
            name for name in targets(record.config) if package_of(name) not in ("agt", "agt_cli")
        ]
        yours = code_digest(modules) if modules else None
    return {
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        "encoder": prepared.dataset.scaling.get("encoder"),
        "your code": yours,
        **surroundings(settings.compute.device, settings.compute.threads),
    }


def _given(config: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The settings that a line chooses, by key: those it names, and then those that its choices
    of groups change.
    """
    named = tuple(word.partition("=")[0].lstrip("+~").replace("/", ".") for word in overrides)
    usual, settings = flatten_keys(composed("train", [])), flatten_keys(config)
    below = [
        key for key in settings if any(key == name or key.startswith(f"{name}.") for name in named)
    ]
    changed = [key for key, value in settings.items() if usual.get(key, _ABSENT) != value]
    yield from ((key, settings[key]) for key in (*below, *changed) if key not in BOUND)
