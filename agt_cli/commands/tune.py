"""agt tune: settings chosen on public rows, by folds, as an experiment file."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from agt.data.records import UNLABELLED, Records
from agt.errors import ConfigError, DataError
from agt.mechanisms.weights import weights_budget
from agt.models.features import FeatureMap
from agt.models.kinds import certificate_config
from agt.settings import PublicRows, TotalConfig, validate
from agt_cli.choices import (
    bind_to_settings,
    declare_public_rows,
    describe_public_rows,
    public_rows,
    write_experiment,
)
from agt_cli.command_settings.tune import (
    TUNE_KEYS,
    Changes,
    TuneConfig,
    default_name,
    encoder_not_run,
    grid_changes,
    new_experiment_path,
    no_public_rows,
    with_changes,
)
from agt_cli.configuration import chosen_options
from agt_cli.report.choice_md import tune_report
from agt_cli.report.console import Console, format_decimals
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings, encoder_settings, prepare, read_settings
from agt_cli.runs.tuning import SCORES, Candidate, choose_candidate, standard_error

_FACTORS = (0.25, 0.5, 2, 4)


@dataclass(frozen=True)
class Choice:
    """A candidate's settings.

    Attributes:
        changes: the settings that differ from the given ones: dotted key -> value.
        config: the changed configuration, resolved, as plain containers.
        settings: the validated configuration.
    """

    changes: Changes
    config: dict[str, Any]
    settings: RunSettings

    @property
    def description(self) -> str:
        """The changes as the text of a cell."""
        changes = [f"{key}={_format_setting(value)}" for key, value in self.changes.items()]
        return ", ".join(changes) or "as given"


def read_candidates(
    config: dict[str, Any], grid: Mapping[str, Sequence[Any]] | None, public: str | None = None
) -> list[Choice]:
    """Return every candidate, validated before any data is read.

    Args:
        config: a training configuration, resolved, as plain containers.
        grid: the candidate values of each setting: dotted key -> values; None: the candidates are
            those of ``neighbours``.
        public: the rows that are declared public if there is no grid, as ``FeaturesConfig.public``
            has them; None: no rows are declared public.

    Raises:
        ConfigError: a key does not exist, or a setting is refused; the message names the key.
    """
    base = deepcopy(config)
    base["training"] |= {"chosen_on": None, "chosen_for": None, "chosen_from": None}
    every_change = list(neighbours(base, public)) if grid is None else grid_changes(grid)
    candidates = []
    for changes in every_change:
        changed = with_changes(base, changes)
        candidates.append(Choice(changes, changed, read_settings(changed)))
    return candidates


def neighbours(config: Mapping[str, Any], public: str | None = None) -> Iterator[Changes]:
    """Yield the settings as they are, and one thing changed at a time.

    These are how strongly they regularise or how long they train; public features; and, if the
    dataset has them, crosses and bins of its columns.

    Args:
        config: a training configuration, resolved, as plain containers.
        public: the rows declared public, from which landmarks may be taken; None: none.
    """
    yield {}
    training = config["training"]
    name: str = certificate_config(config["certificate"]).regularised_by
    if any(value == "recipe" for value in training.values()):
        name = "caution"
    for factor in _FACTORS:
        scaled = training[name] * factor
        if name == "epochs":
            scaled = max(1, round(scaled))
        yield {f"training.{name}": scaled}
    if config["certificate"].get("features", {}).get("map") == "none":
        yield {"certificate.features": {"map": "relu", "count": 256}}
        if public is not None:
            yield {"certificate.features": {"map": "landmarks", "count": 256, "public": public}}
    dataset = config["dataset"]
    if "crosses" in dataset and len(dataset["numeric"]) + len(dataset["categorical"]) > 1:
        yield {"dataset.crosses": 0 if dataset["crosses"] else 256}
    if "bins" in dataset:
        yield {"dataset.bins": 2 * (dataset["bins"] or 1)}


def _format_setting(value: Any) -> str:
    """Return a value of a setting as a short text."""
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_format_setting(entry)}" for key, entry in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class _LoadedDataset:
    """A dataset of candidates, and the settings that it was loaded with."""

    node: Any
    prepared: Prepared


class TuningData:
    """The datasets of candidates, each loaded once, and their rows that are declared public.

    Args:
        rows_name: the public rows, as ``TuneConfig.public``; None: of the training records.
        console: the console, which shows progress of loading.
    """

    def __init__(self, rows_name: str | None, console: Console) -> None:
        self.rows_name = rows_name or "train"
        self.rows_description = describe_public_rows(self.rows_name)
        self._console = console
        self._loaded: list[_LoadedDataset] = []

    def load(self, choice: Choice) -> Prepared:
        """Load the candidate's dataset, or return the one that was loaded for equal settings.

        A dataset that is loaded is stored for later calls.

        Raises:
            ConfigError: it has other records than those of the other candidates.
        """
        node = choice.config["dataset"]
        for loaded in self._loaded:
            if loaded.node == node:
                return loaded.prepared
        prepared = prepare(choice.settings, self._console)
        # The first one stands for all, because each is compared with it.
        first = self._loaded[0].prepared if self._loaded else None
        if first is not None and not prepared.loaded.same_records(first.loaded):
            raise ConfigError(
                f"tune.grid: the candidate with {choice.description} has other test records, ids "
                "or units (people) than the other candidates, so a record that is public for one "
                "candidate could be private for another. Leave the settings that cause this out "
                "of tune.grid. If only the feature columns vary, it is enough to give "
                "dataset.id=COLUMN, which keeps the ids the same"
            )
        self._loaded.append(_LoadedDataset(node, prepared))
        return prepared

    def has_landmark_rows(self, choice: Choice) -> bool:
        """Return whether there are enough public rows for a candidate's landmarks."""
        features = choice.settings.certificate.features
        if features.map == "landmarks":
            try:
                # Called because it raises if there are too few public rows.
                FeatureMap.from_dataset(features, self.load(choice).dataset)
            except ConfigError:
                return False
        return True

    def rows(self, choice: Choice) -> Records:
        """Return the candidate's public rows.

        Raises:
            ConfigError: nothing was declared public, or there is an encoder, which would have to
                see the rows too.
            DataError: there are none, or one has no label.
        """
        if encoder_settings(choice.settings) is not None:
            raise encoder_not_run()
        rows = public_rows(self.rows_name, self.load(choice).loaded, choice.settings.source)
        if self.rows_name == "train" and not len(rows):
            raise no_public_rows()
        if bool((rows.labels == UNLABELLED).any()):
            raise DataError(
                f"tune.public={self.rows_name}: some rows have no label, but settings can only be "
                "chosen on labelled rows: remove the rows without a label"
            )
        return rows


DEFAULT_EPS = 1.0  # eps of the release that a score is about, if none is given


@dataclass(frozen=True)
class PublicTuning:
    """A choice among candidates on public rows.

    Attributes:
        tune: the settings of the comparison.
        total: the budget of the released weights that one score is about.
        choices: the candidates.
        path: the experiment file to write.
    """

    tune: TuneConfig
    total: TotalConfig
    choices: Sequence[Choice]
    path: Path

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Score every candidate, choose one, and write the record and the experiment.

        Returns:
            What --json prints.
        """
        data = TuningData(self.tune.public, console)
        tried = [
            choice for choice in self.choices if self.tune.grid or data.has_landmark_rows(choice)
        ]
        scores = _score_candidates(self, tried, data, console)
        chosen = choose_candidate(scores, self.tune.objective)
        choice = tried[chosen]
        source = declare_public_rows(
            data.rows_name, data.load(choice).loaded, choice.settings.source
        )
        declared = {"chosen_on": "public", "chosen_from": asdict(source)}
        training = {**choice.config["training"], **declared}
        write_experiment(
            self.path,
            bind_to_settings({**choice.config, "training": training}),
            f"agt tune chose these settings on {data.rows_description}: {choice.description}. "
            f"Rule of the choice: {self.tune.rule}",
        )
        rows = [
            _row(candidate, its_scores) for candidate, its_scores in zip(tried, scores, strict=True)
        ]
        table = pd.DataFrame(rows)
        record.environment(public_rows=source.rows, public_digest=source.digest)
        record.table("candidates", table)
        best_scores = {name: float(table[name][chosen]) for name in SCORES}
        record.add_metrics(candidates=len(table), chosen=chosen, **best_scores)
        record.report(
            tune_report(table, chosen, self.tune.rule, data.rows_description, self.path, record)
        )
        _print_result(table, chosen, self, data, console)
        return {
            "metrics": record.metrics,
            "chosen": dict(choice.changes),
            "experiment": str(self.path),
        }


def configure(config: Mapping[str, Any]) -> PublicTuning:
    """Validate the settings of every candidate, before any data is read.

    Raises:
        ConfigError: a setting is missing, unknown or invalid; the message names its key.
    """
    tune = validate(TuneConfig, config.get("tune"), "tune")
    total = validate(TotalConfig, config.get("total"), "total")
    given = {key: value for key, value in config.items() if key not in TUNE_KEYS}
    public = tune.public or "train"
    landmarks = public if public in get_args(PublicRows) else None
    candidates = read_candidates(given, tune.grid, public=landmarks)
    path = new_experiment_path(tune.name or default_name(chosen_options()))
    return PublicTuning(tune, total, candidates, path)


def run(tuning: PublicTuning, record: RunRecord, console: Console) -> dict[str, Any]:
    """Choose a candidate, write the record and the experiment, and return what --json prints."""
    return tuning.run(record, console)


def _score_candidates(
    tuning: PublicTuning, choices: Sequence[Choice], data: TuningData, console: Console
) -> list[np.ndarray]:
    """Train and score every candidate, and show progress.

    Returns:
        The scores of each, [folds, 3], in the order of ``SCORES``.
    """
    budget = weights_budget(tuning.total.eps or DEFAULT_EPS, tuning.total.delta)
    scores = []
    with console.progress("comparing settings", "candidate") as report:
        for done, choice in enumerate(choices, 1):
            dataset = data.load(choice).dataset
            candidate = Candidate.from_dataset(dataset, choice.settings, data.rows(choice))
            scores.append(candidate.scores(tuning.tune.folds, tuning.tune.k, budget))
            report(done, len(choices), done, len(choices))
    return scores


def _row(choice: Choice, scores: np.ndarray) -> dict[str, Any]:
    """Return a candidate's row of the table: means and standard errors of scores [folds, 3]."""
    columns = dict(zip(SCORES, scores.T, strict=True))
    row: dict[str, Any] = {"settings": choice.description}
    for name, column in columns.items():
        row[name] = float(column.mean())
    for name, column in columns.items():
        row[f"{name}_se"] = standard_error(column)
    return row


def _print_result(
    table: pd.DataFrame, chosen: int, tuning: PublicTuning, data: TuningData, console: Console
) -> None:
    """Print the scores of all candidates, and which was chosen.

    Args:
        table: the table of the candidates.
        chosen: the number of the row that was chosen.
        tuning: the settings.
        data: the public rows.
        console: prints it.
    """
    tune = tuning.tune
    eps = tuning.total.eps or DEFAULT_EPS
    titles = {
        "accuracy": "accuracy",
        "certified": f"fraction of answers that are correct and certified at k = {tune.k}",
        "expected": f"accuracy of weights released at eps = {eps:g}",
    }
    rows = []
    for index, row in table.iterrows():
        cells = [
            f"{format_decimals(row[name])} +- {format_decimals(row[f'{name}_se'])}"
            for name in SCORES
        ]
        rows.append(("*" if index == chosen else "", row["settings"], *cells))
    console.table(
        f"scores of the candidates: mean ± standard error over {tune.folds} folds of "
        f"{data.rows_description}",
        ("", "settings", *titles.values()),
        rows,
    )
    if not table[tune.objective].max():
        console.say(
            f"tune.k={tune.k}: no candidate has an answer that is correct and certified at k = "
            f"{tune.k}: give a smaller tune.k"
        )
    settings = table["settings"][chosen]
    console.say(f"chosen candidate (marked *): {settings}. Rule of the choice: {tune.rule}")
    console.say(f"experiment: {tuning.path}")
    console.note(
        f"{tuning.path} declares that its settings were chosen on {data.rows_description}, "
        "which are declared public; whoever trains with this file makes the same declaration"
    )
    console.note(f"next: agt train experiment={tuning.path.stem}")
