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
from agt_cli.report.record import RunRecord
from agt_cli.runs.prepare import Prepared, Settings, prepare, settings_of


@dataclass(frozen=True)
class Source:
    """A finished training run, that run's settings with the present command's own ``compute``, and a file of queries.

    Attributes:
        inputs: the file; None: the dataset's test records.
    """

    finished: FinishedRun
    settings: Settings
    inputs: Path | None

    @classmethod
    def of(cls, run: str, inputs: str | None, config: Mapping[str, Any]) -> "Source":
        """Open the run (ConfigError), before any data is read; ``config`` may hold the digest that it must have."""
        finished = open_run(Path(run), "train", digest_of(config, "digest"))
        settings = settings_of({**finished.config, "compute": config.get("compute")})
        return cls(finished, settings, None if inputs is None else Path(inputs))

    @property
    def words(self) -> str:
        """Which queries, for a stranger to read."""
        return "test records" if self.inputs is None else f"queries of {self.inputs.name}"


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


@dataclass(frozen=True)
class Asked:
    """The model, and the queries as it takes them."""

    prepared: Prepared
    model: Model
    queries: Records
    conditions: tuple[Condition, ...]

    @property
    def labels(self) -> np.ndarray | None:
        """[n] the queries' true labels; None unless all are known."""
        labels = self.queries.labels
        return labels if bool((labels != UNLABELLED).all()) else None


def ask(source: Source, record: RunRecord, console: Console) -> Asked:
    """Load the data, the model and the queries, and note in the record what they are.

    Raises:
        ConfigError: the data changed since it was trained on.
        DataError: no queries, or ones that do not fit.
    """
    prepared = prepare(source.settings, console)
    _check_unchanged(source.finished, prepared)
    model = load(prepared.problem(source.settings), source.finished)
    queries = _queries(source, prepared)
    for note in queries.notes:
        console.note(f"note: {note}")
    dataset = prepared.dataset
    record.environment(data_digest=prepared.loaded.digest, features_digest=dataset.digest, dataset=dataset.name)
    record.environment(trained_run=str(source.finished.folder.resolve()), trained_digest=source.finished.digest)
    record.environment(inputs=source.inputs and str(source.inputs))
    _note_training_records(prepared.loaded.train, queries, console)
    return Asked(prepared, model, queries, weaker(_recorded(source.finished), model.conditions))


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


def _queries(source: Source, prepared: Prepared) -> Records:
    if source.inputs is None:
        return prepared.dataset.test
    queries = source.settings.source.load_queries(source.inputs)
    if not len(queries):
        raise DataError(f"inputs={source.inputs}: holds no queries")
    model = source.settings.model
    encoder = model.encoder if isinstance(model, EncodedHead) else None
    return queries if encoder is None else encode_queries(encoder, prepared.loaded, queries)
