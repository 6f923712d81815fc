"""The training records of a run: those in its index, and those that its data has now."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from agt.data.dataset import Dataset, DataSource
from agt.data.erasure import load_without_erased
from agt.data.records import Records
from agt.store.folder import broken_as_config_error
from agt_cli.command_settings.unlearn import By
from agt_cli.report.finished import Run
from agt_cli.runs.erased import predicate_for_hashes
from agt_cli.runs.prepare import RunSettings, run_without_records
from agt_cli.unlearn.hash_key import HashKey
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.record_index import Index, check_missing_were_requested, check_same


@dataclass(frozen=True)
class TrainingRecords:
    """A run's training records: those in its index, and those that its data has now.

    Attributes:
        log: the run's request log.
        key: the run's key, with which its hashes are made.
        index: all records that the run's present state was trained on. Records whose erasure is
            pending are among them.
        data: the run's data without the records that were erased, with the constants of the
            training.
        source: what loaded the data.
        index_rows: [n] the row in the index of each training record of ``data``.
        missing: [m] the rows in the index of records that the data does not have any more.
        erased_earlier: records that earlier updates erased and that the data still has.
        notes: sentences for the data owner.
        features_use_test: whether the features were computed from the test records
            (certificate.features.public=test), so that the model depends on these, too.
    """

    log: Log
    key: HashKey
    index: Index
    data: Dataset
    source: DataSource
    index_rows: np.ndarray
    missing: np.ndarray
    erased_earlier: Records
    notes: tuple[str, ...] = ()
    features_use_test: bool = False

    @classmethod
    def of(cls, run: Run, settings: RunSettings) -> "TrainingRecords":
        """Read a run's data, and compare it with the records that the run was trained on.

        That records are missing is no error here: ``check`` refuses those that nobody requested.

        Args:
            run: the run, whose lock the caller holds.
            settings: its settings.

        Raises:
            DataMissing, DataError: the data cannot be loaded, or records are new or changed.
            ConfigError: the request log, the key or the index is damaged or missing.
        """
        log = Log.of(run)
        source = source_as_trained(run, settings)
        with broken_as_config_error(run.folder, run.key):
            key = log.check_key(HashKey.of(run.folder))
        parted = load_without_erased(source, predicate_for_hashes(key, log.erased))
        data = parted.remaining
        index = Index.of(run, key)
        missing, index_rows = check_same(index, data.train, key, data.coding)
        notes: tuple[str, ...] = ()
        is_complete = not len(missing) and not log.waiting
        if is_complete and data.digest != run.environment.get("data_digest"):
            notes = (
                "the test records, or other records that training did not use, changed since "
                "training",
            )
        return cls(
            log=log,
            key=key,
            index=index,
            data=data,
            source=source,
            index_rows=index_rows,
            missing=missing,
            erased_earlier=parted.erased,
            notes=notes,
            features_use_test=settings.certificate.features.public == "test",
        )

    def check(self, requested: Collection[str]) -> None:
        """Raise DataError if the data lacks records whose erasure nobody requested.

        Args:
            requested: keyed hashes of the records that the present request names.
        """
        check_missing_were_requested(self.index, self.missing, {*self.log.waiting, *requested})

    @property
    def by(self) -> By:
        """The kind of names that ids are by default: of units where the data has some, else of
        records.
        """
        return "id" if self.index.units is None else "unit"

    @cached_property
    def data_rows(self) -> np.ndarray:
        """[m] the row in the data of each record of the index; -1 if the data does not have it."""
        rows = np.full(len(self.index), -1)
        rows[self.index_rows] = np.arange(len(self.index_rows))
        return rows

    @cached_property
    def is_pending(self) -> np.ndarray:
        """[m] bool, which records of the index are to be erased by a request that is pending."""
        return np.array([word in self.log.waiting for word in self.index.words], dtype=bool)


def source_as_trained(run: Run, settings: RunSettings) -> DataSource:
    """Return what loads a run's data, with the constants that the run was trained with.

    So constants that were read off the records, such as ranges, stay the same after an erasure.

    Args:
        run: the run, whose files may record these constants.
        settings: its settings.
    """
    source = settings.source
    constants = run_without_records(run, settings).dataset_config.get("settled", {})
    if constants and hasattr(source, "with_constants"):
        return source.with_constants(constants)
    return source
