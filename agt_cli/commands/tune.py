"""agt tune: settings chosen on public rows, by folds, as an experiment file."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from agt.data.records import UNLABELLED, Records
from agt.errors import ConfigError, DataError, nearest
from agt.mechanisms.weights import weights_budget
from agt.models.features import FeatureMap
from agt.models.kinds import certificate_config
from agt.settings import PublicRows, TotalConfig, validate
from agt_cli.choices import (
    PARTS,
    bound,
    chosen_from,
    free_path,
    public_rows,
    words_of,
    write_experiment,
)
from agt_cli.command_settings.tune import TUNE_KEYS, TuneConfig
from agt_cli.configuration import chosen_options
from agt_cli.report.choice_md import tune_report
from agt_cli.report.console import Console, show
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings, encoder_of, prepare, settings_of
from agt_cli.runs.tuning import SCORES, Candidate, best, standard_error

Changes = Mapping[str, Any]
"""Key -> value: what makes a candidate of the settings as they stand; a mapping's entries are
changed alone.
"""

_TIMES = (0.25, 0.5, 2, 4)


@dataclass(frozen=True)
class Choice:
    """A candidate's settings.

    Attributes:
        changes: what they change.
        config: the whole of them, resolved, as plain containers.
        settings: the same, validated.
    """

    changes: Changes
    config: dict[str, Any]
    settings: RunSettings

    @property
    def words(self) -> str:
        """For a table's cell."""
        return (
            ", ".join(f"{key}={_short(value)}" for key, value in self.changes.items()) or "as given"
        )


def choices(
    config: dict[str, Any], grid: Mapping[str, Sequence[Any]] | None, public: str | None = None
) -> list[Choice]:
    """Every candidate, validated before any data is read.

    Args:
        config: a training configuration, resolved, as plain containers.
        grid: as ``TuneConfig.grid``.
        public: without a grid, the rows declared public, as ``FeaturesConfig.public`` has them;
            None: none of those.

    Raises:
        ConfigError: a key that is not there, or settings that are refused; by key.
    """
    base = deepcopy(config)
    base["training"] |= {"chosen_on": None, "chosen_for": None, "chosen_from": None}
    if grid is None:
        each: Iterator[Changes] = neighbours(base, public)
    else:
        each = (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    return [
        Choice(changes, changed, settings_of(changed))
        for changes in each
        for changed in [_changed(base, changes)]
    ]


def neighbours(config: Mapping[str, Any], public: str | None = None) -> Iterator[Changes]:
    """The settings as they stand, and one thing changed at a time: how strongly they regularise, or
    how long they train; public features; and, where the dataset has them, crosses and bins of its
    columns.
    """
    yield {}
    training = config["training"]
    name: str = certificate_config(config["certificate"]).regularised_by
    if any(value == "recipe" for value in training.values()):
        name = "caution"
    for times in _TIMES:
        scaled = training[name] * times
        yield {f"training.{name}": max(1, round(scaled)) if name == "epochs" else scaled}
    dataset, chosen = config["dataset"], config["certificate"].get("features", {}).get("map")
    if chosen == "none":
        yield {"certificate.features": {"map": "relu", "count": 256}}
    if chosen == "none" and public is not None:
        yield {"certificate.features": {"map": "landmarks", "count": 256, "public": public}}
    if "crosses" in dataset and len(dataset["numeric"]) + len(dataset["categorical"]) > 1:
        yield {"dataset.crosses": 0 if dataset["crosses"] else 256}
    if "bins" in dataset:
        yield {"dataset.bins": 2 * (dataset["bins"] or 1)}


def _changed(config: dict[str, Any], changes: Changes) -> dict[str, Any]:
    changed = deepcopy(config)
    for key, value in changes.items():
        *path, last = key.split(".")
        node: Any = changed
        for part in path:
            node = node.get(part, {}) if isinstance(node, dict) else {}
        if not path or path[0] not in PARTS or not isinstance(node, dict) or last not in node:
            known = list(node) if path and isinstance(node, dict) and node else PARTS
            hint = nearest(last, known)
            raise ConfigError(f"tune.grid: unknown key '{key}'{hint}")
        node[last] = (
            {**node[last], **value}
            if isinstance(value, Mapping) and isinstance(node[last], dict)
            else value
        )
    return changed


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {_short(entry)}" for key, entry in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


class TuningData:
    """The datasets of candidates, each loaded once, and the rows of them that are declared
    public.
    """

    def __init__(self, which: str | None, console: Console) -> None:
        self.which, self.words, self._console = (
            which or "train",
            words_of(which or "train"),
            console,
        )
        self._loaded: list[tuple[Any, Prepared]] = []

    def prepared(self, choice: Choice) -> Prepared:
        """The candidate's dataset."""
        node = choice.config["dataset"]
        for known, prepared in self._loaded:
            if known == node:
                return prepared
        prepared = prepare(choice.settings, self._console)
        changes = choice.words
        if self._loaded and not prepared.loaded.same_records(self._loaded[0][1].loaded):
            raise ConfigError(
                f"tune.grid: the candidate with {changes} has other test records, ids or units "
                "(people) than the other candidates, so a record that is public for one "
                "candidate could be private for another. Leave the settings that cause this out "
                "of tune.grid. If only the feature columns vary, it is enough to give "
                "dataset.id=COLUMN, which keeps the ids the same"
            )
        self._loaded.append((node, prepared))
        return prepared

    def able(self, choice: Choice) -> bool:
        """Whether there are public rows enough for its landmarks."""
        features = choice.settings.certificate.features
        try:
            return features.map != "landmarks" or bool(
                FeatureMap.from_dataset(features, self.prepared(choice).dataset)
            )
        except ConfigError:
            return False

    def rows(self, choice: Choice) -> Records:
        """Its public rows.

        Raises:
            ConfigError: nothing was declared public, or there is an encoder, which would have to
                see the rows too.
            DataError: there are none, or one has no label.
        """
        if encoder_of(choice.settings) is not None:
            raise ConfigError(
                "model.encoder: agt tune does not run an encoder, but can read features from "
                "files: write the features to files first, with agt data prepare NAME"
            )
        rows = public_rows(self.which, self.prepared(choice).loaded, choice.settings.source)
        if self.which == "train" and not len(rows):
            raise ConfigError(
                "tune.public: no training record is marked public, but settings must be chosen "
                "on public records. Give dataset.public=COLUMN (a column that marks public "
                "records) or tune.public=FILE (a file of labelled public rows). "
                "tune.public=test declares the test records and their labels public"
            )
        if bool((rows.labels == UNLABELLED).any()):
            raise DataError(
                f"tune.public={self.which}: some rows have no label, but settings can only be "
                "chosen on labelled rows: remove the rows without a label"
            )
        return rows


USUAL = 1.0  # eps of the release that a score is about, where none is given


@dataclass(frozen=True)
class PublicTuning:
    """A choice among candidates on public rows.

    Attributes:
        tune: what is compared, by what.
        total: the budget of the released weights that one score is about.
        choices: the candidates.
        path: where the experiment goes.
    """

    tune: TuneConfig
    total: TotalConfig
    choices: Sequence[Choice]
    path: Path

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Score every candidate, choose, and write the experiment."""
        data = TuningData(self.tune.public, console)
        tried = [choice for choice in self.choices if self.tune.grid or data.able(choice)]
        scores = _scores(self, tried, data, console)
        at = best(scores, self.tune.objective)
        choice = tried[at]
        about = chosen_from(data.which, data.prepared(choice).loaded, choice.settings.source)
        declared = {"chosen_on": "public", "chosen_from": asdict(about)}
        config = bound({**choice.config, "training": {**choice.config["training"], **declared}})
        write_experiment(
            self.path,
            config,
            f"agt tune chose these settings on {data.words}: {choice.words}. Rule of the "
            f"choice: {self.tune.words}",
        )
        table = pd.DataFrame([_row(*pair) for pair in zip(tried, scores, strict=True)])
        record.environment(public_rows=about.rows, public_digest=about.digest)
        record.table("candidates", table)
        record.add_metrics(
            candidates=len(table), chosen=at, **{name: float(table[name][at]) for name in SCORES}
        )
        record.report(tune_report(table, at, self.tune.words, data.words, self.path, record))
        _say(table, at, self, data, console)
        return {
            "metrics": record.metrics,
            "chosen": dict(choice.changes),
            "experiment": str(self.path),
        }


def configure(config: Mapping[str, Any]) -> PublicTuning:
    """Validate the settings of every candidate, before any data is read."""
    tune, total = (
        validate(TuneConfig, config.get("tune"), "tune"),
        validate(TotalConfig, config.get("total"), "total"),
    )
    given = {key: value for key, value in config.items() if key not in TUNE_KEYS}
    public = tune.public or "train"
    landmarks = public if public in get_args(PublicRows) else None
    candidates = choices(given, tune.grid, public=landmarks)
    path = free_path(tune.name or f"{chosen_options().get('dataset', 'data')}_tuned")
    return PublicTuning(tune, total, candidates, path)


def run(tuning: PublicTuning, record: RunRecord, console: Console) -> dict[str, Any]:
    """Choose, write the record and the experiment, and say it."""
    return tuning.run(record, console)


def _scores(
    tuning: PublicTuning, choices: Sequence[Choice], data: TuningData, console: Console
) -> list[np.ndarray]:
    """Each candidate's [folds, 3]."""
    budget, scores = weights_budget(tuning.total.eps or USUAL, tuning.total.delta), []
    with console.progress("comparing settings", "candidate") as report:
        for done, choice in enumerate(choices, 1):
            candidate = Candidate.of(
                data.prepared(choice).dataset, choice.settings, data.rows(choice)
            )
            scores.append(candidate.scores(tuning.tune.folds, tuning.tune.k, budget))
            report(done, len(choices), done, len(choices))
    return scores


def _row(choice: Choice, scores: np.ndarray) -> dict[str, Any]:
    values = dict(zip(SCORES, scores.T, strict=True))
    means = {name: float(column.mean()) for name, column in values.items()}
    return {
        "settings": choice.words,
        **means,
        **{f"{name}_se": standard_error(column) for name, column in values.items()},
    }


def _say(
    table: pd.DataFrame, at: int, tuning: PublicTuning, data: TuningData, console: Console
) -> None:
    tune = tuning.tune
    eps = tuning.total.eps or USUAL
    shown = {
        "accuracy": "accuracy",
        "certified": f"fraction of answers that are correct and certified at k = {tune.k}",
        "expected": f"accuracy of weights released at eps = {eps:g}",
    }
    console.table(
        f"scores of the candidates: mean ± standard error over {tune.folds} folds of {data.words}",
        ("", "settings", *shown.values()),
        [
            (
                "*" if i == at else "",
                row["settings"],
                *(f"{show(row[n])} +- {show(row[f'{n}_se'])}" for n in SCORES),
            )
            for i, row in table.iterrows()
        ],
    )
    if not table[tune.objective].max():
        console.say(
            f"tune.k={tune.k}: no candidate has an answer that is correct and certified at k = "
            f"{tune.k}: give a smaller tune.k"
        )
    chosen = table["settings"][at]
    console.say(f"chosen candidate (marked *): {chosen}. Rule of the choice: {tune.words}")
    console.say(f"experiment: {tuning.path}")
    console.note(
        f"{tuning.path} declares that its settings were chosen on {data.words}, which are declared "
        "public; whoever trains with this file makes the same declaration"
    )
    console.note(f"next: agt train experiment={tuning.path.stem}")
