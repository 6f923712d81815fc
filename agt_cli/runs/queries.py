"""What certify, predict and plan begin with: a finished training run, its model, and queries to ask it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agt.certificates.conditions import Condition, weaker
from agt.data.dataset import UNLABELLED, DataError, Records
from agt.errors import ConfigError
from agt.manifest import read_digest
from agt.models.model import Model, load
from agt_cli.papers.encoder import EncodedHead, encode_queries
from agt_cli.report.console import Console
from agt_cli.report.finished import FinishedRun, open_run
from agt_cli.report.quality import outside_lines
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, RunSettings, located, prepare, settings_of


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run and a file of queries, of which no data is read yet.

    Attributes:
        finished: the run.
        settings: its own, with the present command's ``compute``.
        inputs: the file of queries; None: the dataset's test records.
    """

    finished: FinishedRun
    settings: RunSettings
    inputs: Path | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "TrainedRun":
        """Open the run that a command's ``run`` names, with ``digest``, ``inputs`` and ``compute`` beside it.

        Raises:
            ConfigError: it is no finished training run, or another than ``digest``.
        """
        finished = open_run(Path(str(config["run"])), "train", digest_of(config, "digest"))
        recorded = located(finished.config, finished.environment.get("data_files") or {})
        settings = settings_of({**recorded, "compute": config.get("compute")})
        inputs = config.get("inputs")
        return cls(finished, settings, None if inputs is None else Path(str(inputs)))

    @property
    def words(self) -> str:
        """Which queries, for a stranger to read."""
        return "test records" if self.inputs is None else f"queries of {self.inputs.name}"

    def open(self, record: RunRecord, console: Console) -> "OpenedRun":
        """Load the data, the model and the queries, and note in the record what they are.

        Raises:
            ConfigError: the data changed since it was trained on.
            DataError: no queries, or ones that do not fit.
        """
        prepared = prepare(self.settings, console)
        _check_unchanged(self.finished, prepared)
        model = load(prepared.problem(self.settings), self.finished)
        queries = _queries(self, prepared)
        for line in outside_lines(queries.outside):
            console.note(line)
        dataset, finished = prepared.dataset, self.finished
        record.environment(data_digest=prepared.loaded.digest, features_digest=dataset.digest, dataset=dataset.name)
        record.environment(trained_run=str(finished.folder.resolve()), trained_digest=finished.digest)
        record.environment(inputs=self.inputs and str(self.inputs))
        _note_training_records(prepared.loaded.train, queries, console)
        return OpenedRun(self, prepared, model, queries, weaker(_recorded(finished), model.conditions))


@dataclass(frozen=True)
class OpenedRun:
    """A training run with its data and model, and the queries as the model takes them.

    Attributes:
        conditions: a to g, each as the weaker of its standing when the run was made and of what its data allows today.
    """

    trained: TrainedRun
    prepared: Prepared
    model: Model
    queries: Records
    conditions: tuple[Condition, ...]

    @property
    def labels(self) -> np.ndarray | None:
        """[n] the queries' true labels; None unless all are known."""
        labels = self.queries.labels
        return labels if bool((labels != UNLABELLED).all()) else None


def digest_of(config: Mapping[str, Any], key: str, prefix: str = "") -> str | None:
    """The digest of a run that a setting asks for; None: none.

    Raises:
        ConfigError: it is no digest.
    """
    value = config.get(key)
    try:
        return None if value is None else read_digest(str(value))
    except ValueError as error:
        raise ConfigError(f"{prefix}{key}={value}: {error}") from None


def _recorded(finished: FinishedRun) -> tuple[Condition, ...]:
    """Conditions a-g as the run itself recorded them.

    Raises:
        ConfigError: conditions.json is not what the run wrote, or is none.
    """
    try:
        return tuple(Condition.of(node) for node in json.loads(finished.read("conditions.json")))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"run={finished.folder}: conditions.json cannot be read ({error}): train again") from None


def _note_training_records(train: Records, queries: Records, console: Console) -> None:
    """Tell the owner if queries bear the names of private training records: a claim takes queries to be public."""
    shared = int(np.isin(queries.ids, train.ids[~train.public]).sum())
    if shared:
        console.note(
            f"note: {shared} of the {len(queries)} queries have the id of a private training record; what is said of a "
            "release takes its queries, and their ids, to be public"
        )


def _check_unchanged(finished: FinishedRun, prepared: Prepared) -> None:
    """Certificates are about the data that was trained on, and no other."""
    now = {"data_digest": prepared.loaded.digest, "features_digest": prepared.dataset.digest}
    for key, what in (("data_digest", "data"), ("features_digest", "encoder's features")):
        then = finished.environment.get(key)
        if then != now[key]:
            raise ConfigError(
                f"run={finished.folder}: the {what} changed since it was trained on (digest {then} then, "
                f"{now[key]} now): restore it, or train again"
            )


def _queries(trained: TrainedRun, prepared: Prepared) -> Records:
    if trained.inputs is None:
        return prepared.dataset.test
    queries = trained.settings.source.load_queries(trained.inputs)
    if not len(queries):
        raise DataError(f"inputs={trained.inputs}: holds no queries")
    model = trained.settings.model
    encoder = model.encoder if isinstance(model, EncodedHead) else None
    return queries if encoder is None else encode_queries(encoder, prepared.loaded, queries)
