"""Which queries are training records: a warning for the data owner.

The guarantee of a release covers queries that are independent of the training records. Whether a
query is one of these records is private, so what is found here is shown to the owner and is never
published.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agt.data.arrays import Mapped
from agt.data.dataset import DataSource
from agt.data.labelled import LabelledFile
from agt.data.records import Records
from agt.data.settings import CLASSES, DECLARED_SIZE
from agt.errors import AgtError, ConfigError, counted
from agt.fact_sentences import proposed_words
from agt.store.locations import locate
from agt.store.reading import file_sha256
from agt_cli.report.finished import Run
from agt_cli.unlearn.hash_key import HashKey, KeyKind
from agt_cli.unlearn.record_index import Index, are_among

MAX_HASHED_QUERIES = 200_000
"""The largest number of queries, times classes, whose content is compared."""
_SEE = '(docs/trust.md, section "Queries that are training records")'


@dataclass(frozen=True)
class KnownQueries:
    """Which of some queries are training records of a run.

    Attributes:
        matched: [n] bool, True for the queries that are training records.
        by: a phrase that says how the records were recognised.
    """

    matched: np.ndarray
    by: str


@dataclass(frozen=True)
class TrainingIndex:
    """The keyed hashes of a run's training records.

    Attributes:
        index: the hashes.
        key: the secret key with which the hashes were made.
        id: the column that names records; None: content does.
        unit: the column that names people; None: each record is its own unit.
    """

    index: Index
    key: HashKey
    id: str | None
    unit: str | None

    @classmethod
    def of(cls, run: Run) -> "TrainingIndex | None":
        """Return the index of a finished training run; None: the index or its key is missing."""
        with suppress(ConfigError):
            key = HashKey.of(run.folder)
            index = Index.of(run, key)
            if key is not None:
                dataset = run.config.get("dataset") or {}
                return cls(index, key, dataset.get("id"), dataset.get("unit"))
        return None

    def find(
        self, queries: Records, source: DataSource, inputs: Path | None
    ) -> KnownQueries | None:
        """Return which queries are training records.

        Queries are recognised by their id, or by the person's id, where their file has the column;
        otherwise by identical content, if the run named its records by content.

        Args:
            queries: the queries.
            source: the data source that read the queries.
            inputs: their file.

        Returns:
            None: nothing could be compared.
        """
        column = queries.id_column
        if isinstance(queries.ids, Mapped) or inputs is None:
            return None
        if column is not None and column == self.id:
            return KnownQueries(self._named(queries.ids, "record"), "the id of a training record")
        if column is not None and column == self.unit:
            by = "the id of a person in the training records"
            return KnownQueries(self._named(queries.ids, "unit"), by)
        if self.id is not None or self.unit is not None or not isinstance(source, LabelledFile):
            return None
        possible = source.possible_record_ids(inputs)
        if not possible or len(possible) * len(queries) > MAX_HASHED_QUERIES:
            return None
        matched = np.zeros(len(queries), dtype=bool)
        for ids in possible:
            matched |= self._named(ids, "record")
        return KnownQueries(matched, "the content of a training record")

    def _named(self, names: np.ndarray, kind: KeyKind) -> np.ndarray:
        """Return which names are in the index of training records, [n] bool.

        Args:
            names: [n] ids of records, or names of people.
            kind: what the names are of, records or people. If no column names people, each record
                is taken as another person, so that names of people are looked up among the ids.
        """
        hashes = self.index.ids
        if kind == "unit" and self.index.units is not None:
            hashes = self.index.units
        return are_among(self.key.names(names, kind), hashes)


def query_warning(run: Run, inputs: Path, queries: Records, source: DataSource) -> str | None:
    """Return a warning for the data owner if some queries are training records; None: no query is.

    Args:
        run: the finished training run.
        inputs: the file of queries.
        queries: the queries.
        source: the data source that read the queries.

    Returns:
        None: no query is one, as far as the run knows.
    """
    if _is_training_table(run, inputs):
        return training_table_sentence(inputs)
    index = TrainingIndex.of(run)
    known = None if index is None else index.find(queries, source, inputs)
    if known is None or not known.matched.any():
        return None
    count = int(known.matched.sum())
    verb = "has" if count == 1 else "have"
    return (
        f"{count:,} of {counted(len(queries), 'query', 'queries')} {verb} {known.by}, but the "
        "guarantee of a release covers queries that are independent of the training records "
        f"{_SEE}"
    )


def training_table_sentence(inputs: Path) -> str:
    """Return the sentence for a file of queries that is the training table itself."""
    return (
        f"inputs={inputs} is the training table itself, but the guarantee of a release covers "
        "queries that are independent of the training records: ask about other rows, or leave "
        f"inputs=... out, which labels the rows that were kept out of training {_SEE}"
    )


def names_training_table(run: Run, inputs: Path) -> bool:
    """Return whether ``inputs`` names the file that the run's dataset.path names.

    The names of files are public, so a command may depend on this. Whether a file's content is that
    of the training table is private: nothing but a warning may depend on that.
    """
    # The absolute path as it was in training, because a relative one depends on the working folder.
    recorded = _recorded_table(run).get("path")
    with suppress(AgtError, OSError):
        return recorded is not None and _locate_queries(run, inputs).samefile(str(recorded))
    return False


def _is_training_table(run: Run, inputs: Path) -> bool:
    """Return whether a file of queries has the content that the training table had."""
    recorded = _recorded_table(run).get("sha256")
    with suppress(AgtError, OSError):
        path = _locate_queries(run, inputs)
        return recorded is not None and path.is_file() and file_sha256(path) == recorded
    return False


def _recorded_table(run: Run) -> Mapping[str, object]:
    """Return the path and the SHA-256 of the training table as the run recorded them, if it did."""
    entry = (run.environment.get("data_files") or {}).get("path")
    return entry if isinstance(entry, Mapping) else {}


def _locate_queries(run: Run, inputs: Path) -> Path:
    """Return where a file of queries lies, which may be in the run's folder of data."""
    data_dir = (run.config.get("dataset") or {}).get("data_dir")
    return locate(inputs, Path(str(data_dir or "")), "inputs")


def constants_warning(run: Run) -> str:
    """Return a note that public constants of a run's dataset were proposed from the rows.

    Names that are also in ``from_data`` are left out, because no claim takes these as public. The
    note is empty if no others were proposed.
    """
    dataset = run.config.get("dataset") or {}
    not_public = dataset.get("from_data") or ()
    proposed = {*(dataset.get("proposed_from_rows") or ())} - {*not_public}
    if not proposed:
        return ""
    columns = {*(dataset.get("numeric") or ()), *(dataset.get("categorical") or ())}
    words = proposed_words(
        len(proposed & columns),
        len(columns - {*not_public}),
        classes=CLASSES in proposed,
        size=DECLARED_SIZE in proposed,
    )
    return (
        f"note: {words} were proposed from the rows. The claim is false if you would have declared "
        "others with other people in the table"
    )
