"""Which records a run was trained on, as keyed hashes: told apart later from what its table has by then.

    records.bin    one line of JSON {"format", "key", "records", "units"}, then 16 bytes of each record's id, then of each
                   one's unit where units are not the records themselves, then of each one's content

Records are in the order of the training set. A content is a record's features as they were loaded, its label, its unit and
whether it is public. All is hashed under the run's key (keys.py).
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.blocks import gathered
from agt.data.dataset import DataError, Records
from agt.folder import BoundFolder, refusing
from agt.manifest import Broken
from agt.unlearning.keys import SIZE, Key

NAME = "records.bin"
FORMAT = 1
_AT_ONCE = 2**24  # bytes of features
_SHOWN = 3  # records that a message names


@dataclass(frozen=True)
class Index:
    """The training records of one state of a run.

    Attributes:
        key: which key the hashes are of (``Key.check``).
        ids, contents: [n, 16] uint8.
        units: the same; None: each record is its own unit.
    """

    key: str
    ids: np.ndarray
    contents: np.ndarray
    units: np.ndarray | None = None

    @classmethod
    def made(cls, records: Records, key: Key) -> "Index":
        """Of the training records; their features may be memory-mapped, and are read once, in pieces."""
        ids = key.names(records.ids, "record")
        own = records.units is records.ids or bool(np.array_equal(records.ids, records.units))
        units = None if own else _of_units(records.units, key)
        marked = np.zeros((len(records), SIZE), np.uint8) if units is None else units
        contents = gathered(chain([np.empty((0, SIZE), np.uint8)], _contents(records, marked, key)), len(records))
        return cls(key.check, ids, contents, units)

    @classmethod
    def read(cls, content: bytes) -> "Index":
        """From the file's bytes. Raises Broken: they are not what was written."""
        head, _, rest = content.partition(b"\n")
        try:
            node = json.loads(head)
            if node["format"] != FORMAT:
                raise Broken(f"{NAME} is of format {node['format']}, and this agt reads {FORMAT}")
            count, columns = int(node["records"]), 3 if node["units"] else 2
            ids, *units, contents = np.frombuffer(rest, dtype=np.uint8).reshape(columns, count, SIZE)
            return cls(str(node["key"]), ids, contents, *units)
        except (ValueError, TypeError, KeyError) as error:
            raise Broken(f"{NAME} is damaged ({error})") from None

    @classmethod
    def of(cls, run: BoundFolder, key: Key | None) -> "Index | None":
        """A finished run's; None: it was made before runs kept one.

        Raises:
            ConfigError: it is damaged, or ``key`` is not the one that it was made with.
        """
        if not run.holds(NAME):
            return None
        with refusing(run.home, run.key):
            index = cls.read(run.read(NAME))
            if key is None or key.check != index.key:
                gone = "gone" if key is None else "not the one that records.bin was made with"
                raise Broken(f"unlearning/key is {gone}, without which nobody can tell the records apart: bring it back")
        return index

    @property
    def parts(self) -> Iterator[bytes | memoryview]:
        """The file's bytes, one part after the other."""
        head = {"format": FORMAT, "key": self.key, "records": len(self), "units": self.units is not None}
        yield json.dumps(head).encode() + b"\n"
        yield from (np.ascontiguousarray(c).data for c in (self.ids, self.units, self.contents) if c is not None)

    @property
    def content(self) -> bytes:
        """The same in one piece."""
        return b"".join(self.parts)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The hash of each record's id as the log has it, in the records' order."""
        return tuple(row.tobytes().hex() for row in self.ids)


@dataclass(frozen=True)
class Difference:
    """How the training records of now differ from those of a run.

    Attributes:
        gone: [.] which of the index's records are there no more.
        new: [.] which of the records of now the run never had.
        changed: [.] which of the records of now have another content than they had.
        place: [n] where each of the records of now stands in the index; -1: nowhere.
    """

    gone: np.ndarray
    new: np.ndarray
    changed: np.ndarray
    place: np.ndarray


def compare(index: Index, records: Records, key: Key) -> Difference:
    """Match the records of now with those of a run, by id.

    Args:
        key: the run's.
    """
    now = Index.made(records, key)
    place = pc.fill_null(pc.index_in(_column(now.ids), _column(index.ids)), -1).to_numpy()
    there = place >= 0
    changed = (now.contents[there] != index.contents[place[there]]).any(axis=1)
    gone = np.setdiff1d(np.arange(len(index)), place[there])
    return Difference(gone, np.flatnonzero(~there), np.flatnonzero(there)[changed], place)


def places(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """[.] which of ``hashes`` [n, 16] are among ``wanted`` [m, 16]."""
    return np.flatnonzero(pc.is_in(_column(hashes), _column(wanted)).to_numpy(zero_copy_only=False))


def check_same(index: Index, records: Records, key: Key) -> Difference:
    """What is gone of a run's records; nothing else may be different.

    Raises:
        DataError: records came, changed, or stand in another order; counts them and names some, for the owner.
    """
    change, faults = compare(index, records, key), []
    if len(change.new):
        faults.append(f"{_counted(len(change.new))} new ({_some(records.ids[change.new].tolist())})")
    if len(change.changed):
        faults.append(f"{_counted(len(change.changed))} changed ({_some(records.ids[change.changed].tolist())})")
    if not faults and (np.diff(change.place) < 0).any():
        faults.append("the training records stand in another order")
    if faults:
        raise DataError(f"the data is not what the run was trained on: {'; '.join(faults)}: restore it, or train again")
    return change


def check_asked(index: Index, gone: np.ndarray, asked: Collection[str]) -> None:
    """Raise DataError where records are gone from the data that nobody asked to erase.

    Args:
        gone: [.] their places in the index.
        asked: keyed hashes of the records that may be gone.
    """
    lost = [row for row in gone.tolist() if index.words[row] not in asked]
    if lost:
        which = _some([f"number {row + 1}" for row in lost])
        raise DataError(
            f"the data is not what the run was trained on: of {len(index)} training records, {_counted(len(lost))} gone "
            f"that nobody asked to erase ({which}): restore them, or ask for their erasure"
        )


def _of_units(units: np.ndarray, key: Key) -> np.ndarray:
    """[n, 16]: each unit hashed once, however many records it has."""
    coded = pa.array(units, pa.string()).dictionary_encode()
    return key.names(coded.dictionary.to_pylist(), "unit")[coded.indices.to_numpy()]


def _contents(records: Records, units: np.ndarray, key: Key) -> Iterator[np.ndarray]:
    width = max(1, records.features[:1].nbytes)
    for start in range(0, len(records), max(1, _AT_ONCE // width)):
        rows = slice(start, start + max(1, _AT_ONCE // width))
        features = np.ascontiguousarray(records.features[rows])
        count = len(features)
        parts = (
            features.reshape(count, -1),
            records.labels[rows].reshape(count, 1),
            records.public[rows].reshape(count, 1),
        )
        yield key.rows(np.concatenate([*(part.view(np.uint8) for part in parts), units[rows]], axis=1), "content")


def _column(hashes: np.ndarray) -> pa.Array:
    """[n, 16] uint8 as arrow has it, whose searches are by value."""
    flat = pa.py_buffer(np.ascontiguousarray(hashes))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(SIZE), len(hashes), [None, flat])


def _counted(number: int) -> str:
    return "1 record is" if number == 1 else f"{number} records are"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(str, names[:_SHOWN])) + more
