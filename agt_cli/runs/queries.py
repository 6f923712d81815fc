"""Open a finished training run, its model and queries, for certify, predict and plan."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from agt.certificates.conditions import Condition, weaker_conditions
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.data.suffixes import arrays_in
from agt.distributed import Group
from agt.errors import CheckError, ConfigError, DataError
from agt.models.fitting import load
from agt.models.model import Model
from agt.provenance import surroundings
from agt.store.locations import locate
from agt.store.reading import file_sha256
from agt_cli.choices import with_public_rows
from agt_cli.command_settings.on_run import STANDARD_INPUT
from agt_cli.configuration import read_digest_setting
from agt_cli.process import current_team
from agt_cli.releasing.ledgers import EARLIER
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.report.recorded_conditions import conditions_of
from agt_cli.report.release_md import outside_lines
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.pending import PendingErasures, StateMonitor
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    RunWithoutRecords,
    config_with_constants,
    prepare,
    read_settings,
    run_without_records,
    stored_network,
    use_threads,
    with_data_paths,
)
from agt_cli.unlearn.hash_key import HashKey
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.record_index import Index, check_missing_were_requested, check_same

DIGEST_NAMES = {"data_digest": "data", "features_digest": "encoder's features"}

NOT_READ = (
    "agt did not read the data file, because the files of the run contain everything that "
    "queries need"
)


def describe_queries(inputs: Path | None) -> str:
    """Return a clause that says which queries they are, without the folder of a file.

    Args:
        inputs: the file of queries, or "-" for standard input; None: the test records.
    """
    if inputs == STANDARD_INPUT:
        return "queries from standard input"
    return "test records" if inputs is None else f"queries of {inputs.name}"


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run and a file of queries, before any data are read.

    Attributes:
        finished: the run.
        settings: the settings of the run, but ``compute`` is the present command's.
        inputs: the file of queries; LINES: queries come on standard input; None: the queries are
            the dataset's test records.
    """

    finished: Run
    settings: RunSettings
    inputs: Path | None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "TrainedRun":
        """Open the run that a command names.

        Args:
            config: the command's settings; ``run``, ``digest``, ``inputs`` and ``compute`` are
                read.

        Raises:
            ConfigError: the folder is not a finished training run, or the run does not have the
                digest.
        """
        digest = read_digest_setting(config, "digest")
        finished = open_run(Path(str(config["run"])), "train", digest)
        data_files = finished.environment.get("data_files") or {}
        training_config = with_data_paths(finished.config, data_files)
        training_config["compute"] = config.get("compute")
        settings = read_settings(training_config, stored_network(finished))
        inputs = config.get("inputs")
        return cls(finished, settings, None if inputs is None else Path(str(inputs)))

    @property
    def queries_description(self) -> str:
        """A clause that says which queries they are, without the folder of a file, for reports."""
        return describe_queries(self.inputs)

    def open(self, record: RunRecord, console: Console, with_records: bool = False) -> "OpenedRun":
        """Load the model and the queries, and record which they are.

        If queries are in a file, the run's folder is enough, and the training data are not looked
        for. Test records are part of the data, which must be those that the run was trained on.

        Args:
            record: the record of the present command; its env.json is changed.
            console: prints progress and notes.
            with_records: True: load the training data even if queries are in a file.

        Raises:
            ConfigError: the data changed since the training.
            DataError: there are no queries, or they do not fit the model.
        """
        use_threads(self.settings.compute)
        finished = self.finished
        if self.inputs is not None and not with_records:
            training_data = NOT_READ
            # ``prepare`` compares public rows with the declaration; without data it is only named.
            choices = with_public_rows(self.settings.choices, self.settings.training.chosen_from)
            run = run_without_records(finished, replace(self.settings, choices=choices))
        else:
            training_data = "read"
            is_erased = erased_predicate(finished) if Log.of(finished).entries else None
            prepared = prepare(self.settings, console, is_erased)
            for line in _check_unchanged(finished, prepared):
                console.note(line)
            source = config_with_constants(finished.config, prepared.loaded)
            run = RunWithoutRecords(prepared.problem(self.settings), source, prepared.encoder)
        model = load(run.problem, finished)
        dataset = run.problem.dataset
        queries = dataset.test if self.inputs is None else read_queries(self.inputs, run)
        for line in outside_lines(queries):
            console.note(line)
        record.environment(
            **{key: finished.environment.get(key) for key in DIGEST_NAMES},
            dataset=dataset.name,
            trained_run=str(finished.folder.resolve()),
            trained_digest=finished.digest,
            inputs=self.inputs and str(self.inputs),
            training_data=training_data,
            inputs_id=queries.id_column,
        )
        if EARLIER in finished.environment:
            record.environment(**{EARLIER: finished.environment[EARLIER]})
        return OpenedRun(
            trained=self,
            stored=run,
            model=self._share_answers(model, queries),
            queries=queries,
            conditions=weaker_conditions(conditions_of(finished), model.conditions),
        )

    def read_without_data(self) -> tuple[Model, Records]:
        """Return the model, from the run's folder only, and the queries of a file.

        The queries are empty if they are in the data.

        Raises:
            DataError: the file has no queries, or they do not fit the model.
        """
        use_threads(self.settings.compute)
        run = run_without_records(self.finished, self.settings)
        return load(run.problem, self.finished), read_queries(self.inputs or STANDARD_INPUT, run)

    def check_group_agrees(self, group: Group) -> None:
        """Check that all processes of a group have the same code, libraries, threads and queries.

        Raises:
            ConfigError: another process has others.
        """
        compute = self.settings.compute
        queries: dict[str, object] = {}
        if self.inputs is not None:
            queries[f"the hash of inputs={self.inputs}"] = self._digest_of_queries(self.inputs)
        group.check_equal({**queries, **surroundings(compute.device, compute.threads)})

    def _digest_of_queries(self, inputs: Path) -> str:
        """Return the SHA-256 of a file of queries, or of a folder's arrays.

        They are looked for where the run's data source finds them.
        """
        path = locate(inputs, Path(getattr(self.settings.source, "data_dir", "")), "inputs")
        if not path.is_dir():
            return file_sha256(path)
        lines = [f"{file.name} {file_sha256(file)}\n" for file in arrays_in(path)]
        return sha256("".join(lines).encode()).hexdigest()

    def _share_answers(self, model: Model, queries: Records) -> Model:
        """Return a model whose answers all processes of a team compute; without a team, the model.

        The other processes read the same run, and the same file of queries if these are too many to
        be sent.
        """
        team = current_team.get()
        if team is None:
            return model
        from agt_cli.team import QUERIES, share_answers

        inputs = None if isinstance(queries.features, np.ndarray) else self.inputs
        how_to_open = {
            "run": str(self.finished.folder),
            "digest": self.finished.digest,
            "inputs": inputs,
            "compute": asdict(self.settings.compute),
        }
        with team.sharing_task("open", how_to_open):
            # Called because it raises if another process cannot open the run, which is open here.
            team.call_in_all(lambda: model)
            replace(self, inputs=inputs).check_group_agrees(team.group)
        return share_answers(model, team, {QUERIES: queries.features} if inputs else {})


@dataclass(frozen=True)
class OpenedRun:
    """A training run with its model, and the queries as the model takes them.

    Attributes:
        trained: the run.
        stored: its dataset, without training records if queries are in a file.
        model: the stored model.
        queries: the queries; empty if they are read from standard input.
        conditions: the seven conditions of a privacy guarantee (docs/method.md), each with the
            weaker of the status that the run recorded and the present one.
    """

    trained: TrainedRun
    stored: RunWithoutRecords
    model: Model
    queries: Records
    conditions: tuple[Condition, ...]

    def check_current(self) -> None:
        """Raise CheckError if the run was changed since it was opened.

        Nothing is answered from an earlier state.
        """
        if self._state_monitor.changed:
            folder = self.trained.finished.folder
            raise CheckError(
                f"run={folder}: `agt unlearn` changed the run while this command used it. The "
                "results belong to the earlier state of the run, so they are not shown: type "
                "the command again"
            )

    @cached_property
    def _state_monitor(self) -> StateMonitor:
        """Notices that the run was changed."""
        return StateMonitor(self.trained.finished)

    @cached_property
    def pending_erasures(self) -> PendingErasures:
        """The pending requests for erasure."""
        return PendingErasures.from_run(self.trained.finished)

    @property
    def dataset(self) -> Dataset:
        """The dataset of the run; without training records if queries are in a file."""
        return self.stored.problem.dataset

    @property
    def labels(self) -> np.ndarray | None:
        """[n] the queries' true labels; None unless all are known."""
        labels = self.queries.labels
        return labels if bool(self.dataset.target.are_known(labels).all()) else None


def _check_unchanged(finished: Run, prepared: Prepared) -> Iterator[str]:
    """Check that the training records are those that a run was trained on.

    Certificates are about these records only. Other test records are worth a note, which is
    yielded.

    Raises:
        ConfigError: the training records, or what made their features, are not what they were.
        DataError: the training records changed, and the data are read from other files.
    """
    recorded = {key: finished.environment.get(key) for key in DIGEST_NAMES}
    present = {
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
    }
    if present == recorded:
        return
    key = HashKey.of(finished.folder)
    index = Index.of(finished, key) if key and not prepared.encoder else None
    if key is None or index is None:
        changed = next(name for name in DIGEST_NAMES if present[name] != recorded[name])
        changed_part = DIGEST_NAMES[changed]
        earlier_digest = recorded[changed]
        current_digest = present[changed]
        raise ConfigError(
            f"run={finished.folder}: the {changed_part} changed since training (digest at "
            f"training: {earlier_digest}, digest now: {current_digest}): restore the earlier "
            "version, or train again"
        )
    missing, _ = check_same(index, prepared.loaded.train, key, prepared.loaded.coding)
    check_missing_were_requested(index, missing, Log.of(finished).waiting)
    count = len(prepared.loaded.test)
    recorded_count = finished.metrics["n_test"]
    yield (
        f"note: the test records changed since training (there are {count} now, and there "
        f"were {recorded_count})"
    )


def read_queries(path: Path, run: RunWithoutRecords) -> Records:
    """Return the queries of a file as a run's model takes them; empty if they are read from
    standard input.

    Raises:
        DataError: there are none, or they do not fit.
    """
    if path == STANDARD_INPUT:
        return run.problem.dataset.test.take(np.arange(0))
    queries = run.source.load_queries(path)
    if not len(queries):
        raise DataError(
            f"inputs={path}: the file contains no queries: give a file with at least one"
        )
    if run.encoder is None:
        return queries
    return replace(queries, features=run.encoder.apply(queries.features))
