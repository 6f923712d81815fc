"""The records that a run was trained on, as keyed hashes, with which later data is compared.

    records.bin    one line of JSON {"format", "key", "records", "units"}, then 16 bytes of each
                   record's id, then of each one's unit where units are not the records themselves,
                   then of each one's content

Records are in the order of the training set. A content is a record's features as they were loaded,
its label, its unit and whether it is public. All is hashed under the run's key. In format 1 the
content has every feature. In format 2, of a table whose features are held as codes, it has the
record's codes and the digest of what they stand for (``RowLookup.digest``) instead; so records with
the same content have the same features in both.
"""

import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.arrays import gathered
from agt.data.coded import CodedFeatures, RowLookup
from agt.data.records import Records
from agt.errors import DataError, counted, few
from agt.store.folder import Folder, broken_as_config_error
from agt.store.reading import Broken
from agt_cli.unlearn.hash_key import SIZE, HashKey, KeyKind, hexadecimal

RECORD_INDEX_FILE = "records.bin"
FORMAT = 1  # the contents were hashed with every feature
CODES_FORMAT = 2  # the contents were hashed with codes instead of features
_CHUNK_BYTES = 2**20  # of features, which stay in the processor's cache until they are hashed


@dataclass(frozen=True)
class Index:
    """The training records of one state of a run.

    Attributes:
        key: identifies the key of the hashes (``HashKey.check``).
        ids: [n, 16] uint8, the keyed hash of each record's id.
        contents: [n, 16] uint8, the keyed hash of each record's content.
        units: [n, 16] uint8, the keyed hash of each record's unit; None: each record is its own
            unit.
        of_codes: the contents were hashed with codes instead of features.
    """

    key: str
    ids: np.ndarray
    contents: np.ndarray
    units: np.ndarray | None = None
    of_codes: bool = False

    @classmethod
    def from_records(cls, records: Records, key: HashKey) -> "Index":
        """Hash the training records of a run.

        Args:
            records: their features may be memory-mapped; they are read once, in pieces.
            key: the key of the run.
        """
        units = None
        units_in_contents = np.zeros((len(records), SIZE), np.uint8)
        if records.units is not records.ids and not np.array_equal(records.ids, records.units):
            # A unit that has several records is hashed once.
            encoded = pa.array(records.units, pa.string()).dictionary_encode()
            distinct = key.names(encoded.dictionary.to_pylist(), "unit")
            units = units_in_contents = distinct[encoded.indices.to_numpy()]
        # The first, empty piece is there for an index without records.
        nothing = np.empty((0, SIZE), np.uint8)
        pieces = itertools.chain([nothing], _contents(records, units_in_contents, key))
        return cls(
            key=key.check,
            ids=key.names(records.ids, "record"),
            contents=gathered(pieces, len(records)),
            units=units,
            of_codes=isinstance(records.features, CodedFeatures),
        )

    @classmethod
    def read(cls, content: bytes) -> "Index":
        """Parse the bytes of a file.

        Raises:
            Broken: these are not bytes that agt wrote.
        """
        head, _, rest = content.partition(b"\n")
        try:
            node = json.loads(head)
            written_format = node["format"]
            if written_format not in (FORMAT, CODES_FORMAT):
                raise Broken(
                    f"{RECORD_INDEX_FILE} has the format {written_format}, but this version "
                    f"of agt only reads the formats {FORMAT} and {CODES_FORMAT}: use the version "
                    "of agt that wrote it"
                )
            columns = 3 if node["units"] else 2
            shape = (columns, int(node["records"]), SIZE)
            ids, *units, contents = np.frombuffer(rest, dtype=np.uint8).reshape(shape)
            return cls(
                key=str(node["key"]),
                ids=ids,
                contents=contents,
                units=units[0] if units else None,
                of_codes=written_format == CODES_FORMAT,
            )
        except (ValueError, TypeError, KeyError) as error:
            raise Broken(f"{RECORD_INDEX_FILE} is damaged ({error})") from None

    @classmethod
    def of(cls, run: Folder, key: HashKey | None) -> "Index":
        """Read the index of a finished run.

        Args:
            run: the finished run.
            key: the key in its folder; None: the run has none.

        Raises:
            ConfigError: there is no index, or it is damaged, or it was not made with ``key``.
        """
        with broken_as_config_error(run.home, run.key):
            index = cls.read(run.read(RECORD_INDEX_FILE))
            if key is None or key.check != index.key:
                problem = "unlearning/key is not the key with which records.bin was made"
                if key is None:
                    problem = "unlearning/key is missing"
                raise Broken(
                    f"{problem}, but without the right key agt cannot recognise records: "
                    "restore the file from a backup of the run"
                )
        return index

    @property
    def parts(self) -> Iterator[bytes | memoryview]:
        """The bytes of the file, one part after the other, for ``read``."""
        head = {
            "format": CODES_FORMAT if self.of_codes else FORMAT,
            "key": self.key,
            "records": len(self),
            "units": self.units is not None,
        }
        yield json.dumps(head).encode() + b"\n"
        for hashes in (self.ids, self.units, self.contents):
            if hashes is not None:
                yield np.ascontiguousarray(hashes).data

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The hash of each record's id as a log lists it, in the records' order."""
        return tuple(map(hexadecimal, self.ids))


def are_among(hashes: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """Return which rows of ``hashes`` are also rows of ``sought``, [n] bool.

    Args:
        hashes: [n, 16] uint8.
        sought: [m, 16] uint8.
    """
    is_sought = pc.is_in(_column(hashes), _column(sought))
    return np.asarray(is_sought.to_numpy(zero_copy_only=False), dtype=bool)


def places(hashes: np.ndarray, sought: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows of ``hashes`` that are also in ``sought``, increasing."""
    return np.flatnonzero(are_among(hashes, sought))


def check_same(
    index: Index, records: Records, key: HashKey, coding: RowLookup | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Match the present records with those of a run by id, and check that none is new or changed.

    Records may be missing.

    Args:
        index: the index of the run's records.
        records: the n present records; their features may be held in another way than the run's
            were.
        key: the key of the run.
        coding: how features of these records can be held as codes; None: not known.

    Returns:
        The positions in the index of the records that are missing, [m]; and the position in the
        index of each of the present records, [n].

    Raises:
        DataError: records are new or changed, or in another order. The message counts them and
            names some, because it is for the owner.
    """
    # Contents are compared in the form of the index.
    held = records.held_as_codes(coding) if index.of_codes else records.held_as_array()
    present = Index.from_records(records if held is None else held, key)
    positions_or_null = pc.index_in(_column(present.ids), _column(index.ids))
    position = pc.fill_null(positions_or_null, -1).to_numpy()
    is_known = position >= 0
    is_changed = present.contents[is_known] != index.contents[position[is_known]]
    new = np.flatnonzero(~is_known)
    changed = np.flatnonzero(is_known)[is_changed.any(axis=1)]
    faults = []
    for fault, rows in (("new", new), ("changed", changed)):
        if len(rows):
            records_are = counted(len(rows), "record is", "records are")
            ids = few(records.ids[rows].tolist())
            faults.append(f"{records_are} {fault} ({ids})")
    if not faults and (np.diff(position) < 0).any():
        faults.append("the training records are not in the same order as at training")
    if faults:
        differences = "; ".join(faults)
        raise DataError(
            f"the data differ from those that the run was trained on: {differences}. Restore the "
            "data, or train again"
        )
    return np.setdiff1d(np.arange(len(index)), position), position


def check_missing_were_requested(
    index: Index, missing: np.ndarray, requested: Collection[str]
) -> None:
    """Raise DataError if the data lack records whose erasure nobody requested.

    Args:
        index: the index of the run's records.
        missing: [m] the positions in the index of the records that the data lack.
        requested: keyed hashes of the records whose erasure was requested.
    """
    lost = [row for row in missing.tolist() if index.words[row] not in requested]
    if lost:
        numbers = few(f"number {row + 1}" for row in lost)
        trained = len(index)
        lost_count = len(lost)
        raise DataError(
            f"the data lack {lost_count} of the {trained} training records ({numbers}), although "
            "nobody requested their erasure. Restore these records, or request their erasure"
        )


def _contents(records: Records, units: np.ndarray, key: HashKey) -> Iterator[np.ndarray]:
    """Yield the keyed hashes of the contents of records, [m, 16] uint8 for m records at a time.

    Args:
        records: the records, with features that are held as codes or not.
        units: [n, 16] uint8, the keyed hash of each record's unit.
        key: the key of the run.
    """
    features = records.features
    kind: KeyKind = "content"
    constants = b""
    if isinstance(features, CodedFeatures):
        # A row's features are a function of its codes and of the look-ups, so these are hashed.
        constants = features.lookup.digest + records.labels.dtype.str.encode()
        features = features.codes
        kind = "codes"
    row_bytes = max(1, features[:1].nbytes)
    chunk_rows = max(1, _CHUNK_BYTES // row_bytes)
    for start in range(0, len(records), chunk_rows):
        rows = slice(start, start + chunk_rows)
        block = np.ascontiguousarray(features[rows])
        count = len(block)
        parts = [
            block.reshape(count, -1),
            records.labels[rows].reshape(count, 1),
            records.public[rows].reshape(count, 1),
        ]
        prefix = np.tile(np.frombuffer(constants, dtype=np.uint8), (count, 1))
        columns = [prefix, *(part.view(np.uint8) for part in parts), units[rows]]
        yield key.rows(np.concatenate(columns, axis=1), kind)


def _column(hashes: np.ndarray) -> pa.Array:
    """Return hashes, [n, 16] uint8, as a column of arrow, which searches them by value."""
    flat = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(SIZE), len(hashes), [None, flat])
