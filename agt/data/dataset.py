"""The one value that every dataset becomes: records with ids, a split, and the public constants that scaled them.

Which features, labels and ids a record has depends on that record alone and on public constants; this is condition b
of method.md section 3, and it is what lets a certificate speak about datasets that differ from this one. Code can hash an
id; it cannot see where the id came from: so the meaning of an id, of a given split, of a public flag or of a list of
classes is a declaration (agt/facts.py), and is listed with every claim that rests on it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from math import gcd
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np

from agt.errors import AgtError
from agt.facts import Fact, Grounds, declared, proved, void

UNLABELLED = -1
UNANSWERED = -1
PublicRows = Literal["test", "train"]
ROWS = 2**15
"""Rows of a large file that are held at once."""
CONTENT = re.compile("[0-9a-f]{32}")
"""What ``content_ids`` makes."""
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NUMBERED = re.compile(r"(|.*\D)(\d{1,18})((?:\.0*)?\D*)", re.DOTALL)
_ROWS_A_NUMBER = 10
_RENAMED = "an id is a row number, or is given anew when another record comes or goes"


class DataError(AgtError):
    """The data was found, and cannot be used as it is."""

    exit_code = 2


def row_words(row: int) -> str:
    """How messages name the row with this index among the rows of data: counted from 1, as a person counts."""
    return f"row {row + 1} of the data"


# -- rows of large files ------------------------------------------------------------------------------------------------


class Blocks:
    """What models take for an array [n, ...] of more rows than memory should hold: a length, a shape, a dtype and slices.

    Slices that follow one another cost one pass over the file; one that goes back begins another.

    Args:
        read: begins a pass: arrays of rows, one after the other.
        rows: of all of them together.
    """

    def __init__(self, read: Callable[[], Iterator[np.ndarray]], rows: int) -> None:
        self._read, self._rows = read, rows
        self._blocks, self._first = read(), 0
        self._held = next(self._blocks)
        self.shape, self.dtype = (rows, *self._held.shape[1:]), self._held.dtype

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice, or of indices in increasing order.

        Raises:
            AgtError: the file has fewer rows than it had.
        """
        if not isinstance(rows, slice):
            places = np.flatnonzero(rows) if rows.dtype == bool else rows
            none = np.empty((0, *self.shape[1:]), self.dtype)
            return np.concatenate([none, *_of_pieces(as_array(self), places)])
        start, stop, _ = rows.indices(self._rows)
        if start < self._first:
            self._restart()
        while self._first + len(self._held) < stop:
            try:
                block = next(self._blocks, None)
            except AgtError:
                self._restart()  # so that whoever asks next is told the same
                raise
            if block is None:
                raise AgtError(f"inputs: the file changed while it was read: {stop} rows are needed and not there")
            kept = self._held[max(start - self._first, 0) :]
            self._first += len(self._held) - len(kept)
            self._held = np.concatenate([kept, block]) if len(kept) else block
        return self._held[start - self._first : stop - self._first]

    def _restart(self) -> None:
        self._blocks, self._first, self._held = self._read(), 0, self._held[:0]


class Mapped:
    """An array [n, ...] made of another's rows, each on its own: again for everybody who takes some, and never held.

    Args:
        source: [n, ...], such as a memory-mapped file.
        made: some of its rows -> as many rows of this.
    """

    def __init__(self, source: np.ndarray, made: Callable[[np.ndarray], np.ndarray]) -> None:
        self._source, self._made = source, made
        none = made(source[:0])
        self.shape, self.dtype = (len(source), *none.shape[1:]), none.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self._made(self._source[rows])


def as_array(blocks: Blocks | Mapped) -> np.ndarray:
    """For whoever takes slices of it, one after the other, and nothing else."""
    return cast(np.ndarray, blocks)


def is_mapped(features: np.ndarray) -> bool:
    """Whether an array is a memory map, or a view of one."""
    owner: object = features
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    return isinstance(owner, np.memmap)


def row_numbers(rows: int) -> np.ndarray:
    """The names "0", "1", ... of so many rows, each made when it is taken."""
    return as_array(Mapped(np.arange(rows), lambda numbers: numbers.astype(str)))


def pieces(features: np.ndarray) -> Iterator[np.ndarray]:
    """[n, ...] in pieces that fit into memory, however many rows there are; at least one."""
    return (features[start : start + ROWS] for start in range(0, len(features) or 1, ROWS))


def gathered(parts: Iterable[np.ndarray], rows: int) -> np.ndarray:
    """[rows, ...] of arrays that follow one another, of which there is at least one.

    Each is copied to its place at once: what is held of many parts between large ones keeps the heap from being used again.
    """
    whole, start = np.empty(0), 0
    for part in parts:
        if not start:
            whole = np.empty((rows, *part.shape[1:]), part.dtype)
        whole[start : start + len(part)] = part
        start += len(part)
    if start != rows:
        raise ValueError(f"{start} rows, and not {rows}")
    return whole


def selected(features: np.ndarray, rows: np.ndarray | range) -> np.ndarray:
    """Some rows of [n, ...], by increasing indices; of ``Blocks`` they are read when they are needed, too."""
    if len(rows) == len(features):
        return features
    if isinstance(features, np.ndarray) or not len(rows):
        return features[rows]
    return as_array(Blocks(lambda: _of_pieces(features, rows), len(rows)))


def _of_pieces(features: np.ndarray, rows: np.ndarray | range) -> Iterator[np.ndarray]:
    rows = np.asarray(rows)
    for start, piece in zip(range(0, len(features), ROWS), pieces(features), strict=True):
        yield piece[rows[(rows >= start) & (rows < start + ROWS)] - start]


def not_finite(rows: np.ndarray) -> int | None:
    """The index of the first row with a NaN or an infinity; looked for in pieces, as rows may be memory-mapped."""
    for start in range(0, len(rows), ROWS):
        block = rows[start : start + ROWS]
        finite = np.isfinite(block).reshape(len(block), -1).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None


# -- ids, and every choice that is made per record ----------------------------------------------------------------------


def content_ids(features: np.ndarray, labels: np.ndarray, numbered: bool = True, exact: bool = False) -> np.ndarray:
    """Default ids: a hash of the record's raw content and of how many identical records came before it.

    Identical records are exchangeable, so numbering them does not make one record's id depend on another's data:
    removing any copy leaves the same set of ids as removing the last one. That holds among copies that are all private
    training records; so what is public or for testing is decided by ``numbered=False``, alike for all copies.

    Args:
        features: [n, ...] raw features.
        labels: [n] raw labels.
        numbered: False: every copy has the first one's id.
        exact: hash each row in the precision of its own (``exact_row``): where the array's is not a public constant.

    Returns:
        [n] str, 32 hexadecimal digits each; unique if numbered.
    """
    seen: Counter[bytes] = Counter()
    ids = np.empty(len(features), dtype="U32")
    for row in range(len(features)):
        numbers = exact_row(features[row]) if exact else features[row]
        content = blake2b(np.ascontiguousarray(numbers).tobytes(), digest_size=16)
        content.update(str(labels[row]).encode())
        digest = content.digest()
        ids[row] = blake2b(digest + seen[digest].to_bytes(8, "little"), digest_size=16).hexdigest()
        seen[digest] += numbered
    return ids


def exact_row(row: np.ndarray) -> np.ndarray:
    """A record's numbers in a precision that they alone decide, so that ``content_ids`` may hash their bytes.

    An array has one precision for all of its rows: a float64 record that joins a float32 table makes all of it float64, and
    bytes as they lie there would rename every other record. So whole numbers count as float64, other numbers as float32 if
    that holds all of them exactly, else as float64.
    """
    wide = row.astype(np.float64, copy=False)
    if (wide == np.rint(wide)).all():
        return wide
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    return narrow if (narrow == wide).all() else wide


def default_ids(
    content: np.ndarray, *attributes: np.ndarray | None, numbered: bool = True, exact: bool = False
) -> np.ndarray:
    """[n] str: a hash of a record's raw content and of everything else about it (label, unit, public flag, split).

    Rows that share an id's content are numbered, and numbering is harmless only between rows that are alike in all
    that training sees (see ``content_ids``); so whatever distinguishes two rows is part of what is hashed.

    With ``numbered=False`` copies share a name: the one to split by. Were they told apart, a private training record that
    goes could take a copy out of the test set instead (the last number is the one that vanishes), and test records count
    as public. ``exact``: as in ``content_ids``.
    """
    given = [attribute.tolist() for attribute in attributes if attribute is not None]
    tags = [repr(values) for values in zip(*given, strict=True)] if given else [""] * len(content)
    return content_ids(content, np.array(tags, dtype=object), numbered, exact)


def keyed_hash(names: Sequence[str] | np.ndarray, key: str) -> np.ndarray:
    """[n] uint64, uniform, a function of each name and the public key alone."""
    secret, hashes = blake2b(key.encode(), digest_size=32).digest(), np.empty(len(names), dtype="<u8")
    for start in range(0, len(names), ROWS):
        some = names[start : start + ROWS]
        digests = (blake2b(str(name).encode(), digest_size=8, key=secret).digest() for name in some)
        hashes[start : start + ROWS] = np.frombuffer(b"".join(digests), dtype="<u8")
    return hashes.astype(np.uint64, copy=False)


def remix(hashes: np.ndarray, turn: int) -> np.ndarray:
    """Fresh uniform values from hashes already computed (splitmix64), one stream for each ``turn``. [n] uint64."""
    with np.errstate(over="ignore"):
        z = hashes + _MIX[0] * np.uint64(turn + 1)
        z = (z ^ (z >> np.uint64(30))) * _MIX[1]
        z = (z ^ (z >> np.uint64(27))) * _MIX[2]
        return z ^ (z >> np.uint64(31))


def uniform(names: Sequence[str] | np.ndarray, key: str) -> np.ndarray:
    """[n] float64 in [0, 1), a function of each name and the public key alone: for splits and selections."""
    return (keyed_hash(names, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def hash_split(names: np.ndarray, test_fraction: float, key: str) -> np.ndarray:
    """[n] bool, True for test: a keyed hash of each name alone, so all rows of one name (a unit's, say) share a split."""
    return uniform(names, key) < test_fraction


def most_frequent(names: np.ndarray, allowed: int = 1) -> tuple[str, int] | None:
    """A name that occurs more than ``allowed`` times, the most frequent, and how often; None: no name does.

    Names are counted by rough hashes, which only ever count too many; those that seem to be too many are counted exactly.

    Args:
        names: [n] str, of which there may be millions.
    """
    hashes = np.concatenate([np.empty(0, np.uint64), *map(_rough_hash, pieces(names))])
    ordered = np.sort(hashes)
    often = ordered[allowed:][ordered[allowed:] == ordered[: len(ordered) - allowed]]
    if not len(often):
        return None
    exact, counts = np.unique(names[np.isin(hashes, often)], return_counts=True)
    at = int(counts.argmax())
    return (str(exact[at]), int(counts[at])) if counts[at] > allowed else None


def _rough_hash(names: np.ndarray) -> np.ndarray:
    # [n] uint64, the same for equal names however wide the array is, and for others hardly ever.
    plain = np.ascontiguousarray(names, dtype=str)
    letters = plain.view(np.uint32).reshape(len(plain), plain.itemsize // 4)
    hashes = np.zeros(len(plain), dtype=np.uint64)
    for place, letter in enumerate(letters.T):
        hashes += remix(letter.astype(np.uint64), place) * (letter > 0)
    return hashes


def counts_rows(names: np.ndarray) -> bool:
    """Return whether names look like row numbers: whole numbers that fill a tenth of their range or more, in any order.

    Row numbers are given anew where a record goes, and the index of a table that was shuffled, cut or sampled is one too.
    Numbers may stand between the same text (p7, p9, p8), be written as 0017 or 17.0, and go in steps (30, 10, 20). What
    more than half of the distinct names are decides, so that a few odd ones change nothing; a single name does not count.

    Args:
        names: [n] str, in any order; they may repeat.
    """
    numbers = defaultdict[tuple[str, str], set[int]](set)
    distinct = set(names.tolist())
    for match in filter(None, map(_NUMBERED.fullmatch, distinct)):
        numbers[match[1], match[3]].add(int(match[2]))
    largest = max(numbers.values(), key=len, default=set())
    if 2 * len(largest) <= len(distinct):
        return False
    low = min(largest)
    step = gcd(*(number - low for number in largest))
    return max(largest) - low < _ROWS_A_NUMBER * step * len(largest)


# -- what the columns of a file are taken to mean -------------------------------------------------------------------------


def id_facts(
    id: str | None,
    ids: np.ndarray,
    unit: str | None,
    units: np.ndarray | None,
    public: str | None,
    permanent: bool,
) -> tuple[Fact, ...]:
    """Condition b, as far as the names of records and people go.

    An id that counts rows is no id: where a record goes, others are renamed, and move to other batches. Ids that look like
    row numbers (``counts_rows``) are not taken on trust unless they are declared permanent. (That look depends on the
    records; ``permanent`` settles it whatever they are.)

    Args:
        id, unit, public: the columns that the configuration names, None where it names none.
        ids, units: [n] str, their values in the order of the file.
        permanent: dataset.id_permanent, the declaration that ids are never given anew.
    """
    facts = [_names_fact("dataset.id", id, ids, permanent, "names each record")]
    if unit is not None and units is not None:
        facts.append(_names_fact("dataset.unit", unit, units, permanent, "says whose record it is"))
    if public is not None:
        facts.append(public_fact(f"the records that column '{public}' marks are public (dataset.public)"))
    return tuple(facts)


def _names_fact(setting: str, column: str | None, names: np.ndarray, permanent: bool, says: str) -> Fact:
    if column is None:
        return proved("each record's id is a hash of its own content")
    if permanent:
        return declared(f"column '{column}' {says}, for good ({setting}, dataset.id_permanent=true)", _RENAMED)
    if counts_rows(names):
        return void(
            f"column '{column}' ({setting}) counts rows, as its whole numbers fill a tenth of their range or more: where a "
            "record goes, others would be renamed and move to other batches; leave it out (ids are then hashes of "
            "content), or, if a record keeps its id whatever becomes of others, declare that with dataset.id_permanent=true"
        )
    return declared(f"column '{column}' {says} ({setting})", _RENAMED)


def label_free_facts(label_free: bool, given: bool) -> tuple[Fact, ...]:
    """Condition b under relation=flip, the only one that takes such ids (agt/problem.py); nothing
    where they are not asked for.

    Args:
        given: ids, units, public flags or a split came with the records.
    """
    if not label_free:
        return ()
    if given:
        words = "the ids, units, public flags and split that came with the records tell nothing of labels"
        return (
            declared(words, "one was made from labels: a hash of the whole row, a split with the same share of each class"),
        )
    return (proved("ids and split are made from features alone, and copies are numbered in the order of the rows"),)


def public_fact(says: str) -> Fact:
    """Condition b for records that somebody marked public."""
    return declared(says, "a marked record is somebody's private one, or is marked because of others")


def features_fact(says: str) -> Fact:
    """Condition b for features that come with the data: where they came from, code cannot see."""
    return declared(
        says,
        "something fitted on the records took part in them: a mean, a scale, a rank, components, an encoder",
    )


def split_fact(given: str | None, test_fraction: float, key: str) -> Fact:
    """Condition b for a split that is given with each record, or drawn by hash.

    Args:
        given: in words, what gives it; None: the hash.
    """
    if given is not None:
        return declared(
            f"{given} says which records are for testing, each on its own",
            "that was drawn from the whole set (by place, by rank, by count), so that one record more would move others",
        )
    return proved(
        f"a record is in the test set if a hash of its unit's id, under the public key '{key}', falls below "
        f"{test_fraction:g}: adding or removing another record moves nobody"
    )


def classes_fact(listed: bool, setting: str = "dataset.classes", found: str = "the data") -> Fact:
    """Condition e for the list of classes.

    Args:
        setting: the one that lists them.
        found: where they were found if none does.
    """
    if not listed:
        return void(f"the list of classes was found in {found}: give the public list in {setting}")
    return declared(f"the list of classes is public ({setting})", "it was read off the records")


def size_fact(source: str) -> Fact:
    """Condition c for a size or normaliser that the configuration states."""
    return declared(
        f"{source} is a public constant",
        "it was counted from the records (as when it is just their number): one more would change it, and every step",
    )


# -- records and datasets -------------------------------------------------------------------------------------------------


FEW_VALUES = 20
"""Fewer values of a column of queries than this show little: only those far outside count."""
MAX_RATE_OUTSIDE = 0.2
"""A column of queries with more values outside looks like another population's."""


@dataclass(frozen=True)
class Outside:
    """Values of one column of queries that lie outside what was declared public of it.

    Attributes:
        column: its name.
        count, total: how many of how many values; 0 of 0: the column has none.
        declared: the range or list, in words.
        seen: what was met, in words.
        far: how many of them are in no list, or farther from the range than it is wide.
    """

    column: str
    count: int
    total: int
    declared: str
    seen: str
    far: int = 0

    @property
    def rate(self) -> float:
        """The share of values outside; 1 where there are none at all."""
        return self.count / self.total if self.total else 1.0


def population_mismatches(outside: Iterable[Outside], queries: int) -> list[str]:
    """Why queries look like another population's than was declared, in words; empty: they do not.

    More than a fifth of a column's values lie outside its range or list. Of fewer than 20 values only those count that
    are in no list, or farther from the range than it is wide, because one of them may well be a little outside; so a
    single query can be judged. It depends on the queries and the declared constants alone.

    Args:
        outside: of each column.
        queries: how many there are.
    """
    mismatches = []
    for part in outside:
        counted = part.count if part.total >= FEW_VALUES else part.far
        empty = not part.total and queries >= FEW_VALUES
        if empty or counted > MAX_RATE_OUTSIDE * part.total:
            values = f"{counted:,} of {part.total:,} values of column '{part.column}'"
            mismatches.append(f"{values} lie outside {part.declared}, as of another population")
    return mismatches


@dataclass(frozen=True, repr=False)  # whoever prints a model prints no records
class Records:
    """Rows of data, in a fixed order.

    Attributes:
        features: [n, ...] float32 or float64, finite; may be memory-mapped, or read block by block (``Blocks``).
        labels: [n] int64 class indices; ``UNLABELLED`` marks a query without a label.
        ids: [n] str, unique: the name of each record.
        units: [n] str: the person (or other unit of protection) each record belongs to; may repeat.
        public: [n] bool: True where the record is public, so that it is never added, removed or changed.
        outside: for the data owner alone, which columns of queries do not fit what was declared.
        id_column: the column that names queries in their file; None: none does.
        groups: column -> [n] the subgroup of each record, as text, for what is told of a model's quality alone.
        rows: [n] int64, their numbers, from 0, in the file or set that they were taken from; None: they are all of it.

    Raises:
        DataError: shapes disagree, ids repeat, or a feature is NaN or infinite (the record is named).
    """

    features: np.ndarray
    labels: np.ndarray
    ids: np.ndarray
    units: np.ndarray
    public: np.ndarray
    outside: tuple[Outside, ...] = field(default=(), compare=False)
    id_column: str | None = field(default=None, compare=False)
    groups: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    rows: np.ndarray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        n = len(self.features)
        arrays = {name: getattr(self, name) for name in ("labels", "ids", "units", "public")}
        for name, array in (*arrays.items(), *self.groups.items()):
            if array.shape != (n,):
                raise DataError(f"records: {name} has shape {array.shape}, expected ({n},)")
        if self.features.dtype not in (np.float32, np.float64):
            raise DataError(f"records: features are {self.features.dtype}, expected float32 or float64")
        row = None if isinstance(self.features, Blocks) else not_finite(self.features)
        if row is not None:
            which = f"record {str(self.ids[row])!r} (number {row + 1} of {n})"
            raise DataError(f"{which} has a NaN or infinite feature: repair or drop it")
        repeated = None if isinstance(self.ids, Mapped) else most_frequent(self.ids)  # row numbers
        if repeated:
            raise DataError(
                f"record id {repeated[0]!r} occurs {repeated[1]} times: ids must be unique (rows of one person: units)"
            )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def population_mismatches(self) -> list[str]:
        """Why these queries look like another population's; empty: they do not."""
        return population_mismatches(self.outside, len(self))

    @property
    def units_named(self) -> bool:
        """Whether something says whose each record is; else each is a unit of its own, under its id. Of no records: whether
        it was said of those that they stand for."""
        return self.units is not self.ids and (not len(self) or bool((self.units != self.ids).any()))

    def take(self, rows: np.ndarray) -> "Records":
        """The records at ``rows`` (indices or a mask), in that order; an unbroken run is a view, not a copy."""
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        steps, inside = np.diff(places), len(places) > 0 and places[0] >= 0 and places[-1] < len(self)
        if inside and (steps == 1).all():
            return self._at(slice(int(places[0]), int(places[-1]) + 1))
        part = self._at(rows)
        if not (inside and (steps > 0).all()):
            part.__post_init__()  # a row may be there twice
        return part

    def _at(self, rows: np.ndarray | slice) -> "Records":
        # Some rows, none of them twice: what was checked of all records holds of these.
        ids = self.ids[rows]
        if isinstance(rows, slice):
            places = np.arange(*rows.indices(len(self)))
        else:
            places = np.flatnonzero(rows) if rows.dtype == bool else rows % max(len(self), 1)
        return self._unchecked(
            features=self.features[rows],
            labels=self.labels[rows],
            ids=ids,
            units=ids if self.units is self.ids else self.units[rows],
            public=self.public[rows],
            groups={name: values[rows] for name, values in self.groups.items()},
            outside=(),
            rows=places if self.rows is None else self.rows[places],
        )

    def seen_as(self, features: np.ndarray) -> "Records":
        """These records with other features, finite ones, which are not looked at."""
        return self._unchecked(features=features)

    def _unchecked(self, **changes: object) -> "Records":
        part = copy(self)
        for name, value in changes.items():
            object.__setattr__(part, name, value)
        return part


def records(
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    units: np.ndarray | None = None,
    public: np.ndarray | None = None,
    groups: Mapping[str, np.ndarray] | None = None,
    outside: tuple[Outside, ...] = (),
    rows: np.ndarray | None = None,
    id_column: str | None = None,
) -> Records:
    """Records whose unit is the record itself and which are private, unless said otherwise."""
    return Records(
        features=features,
        labels=labels.astype(np.int64, copy=False),
        ids=ids,
        units=ids if units is None else units,
        public=np.broadcast_to(np.False_, len(features)) if public is None else public,
        outside=outside,
        id_column=id_column,
        groups=groups or {},
        rows=rows,
    )


@dataclass(frozen=True)
class Plane:
    """A dataset whose records come from points of the plane, so that certificates can be drawn as a map.

    Attributes:
        points: [n, 2] the training records' points, in the order of ``Dataset.train``.
        lift: maps [m, 2] points to [m, d] features, each point on its own.
    """

    points: np.ndarray
    lift: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Dataset:
    """A training set, a test set, and what was public about them.

    Attributes:
        name: what tables and figures call it; a synthetic set says so here.
        classes: names of the label values 0, 1, ...
        train, test: the records.
        declared_size: public constant: about how many training records there are; None if nobody declared it.
        shard: ``train`` is one member's part of an ensemble's data: it may be empty or hold one class only, because to
            refuse it would depend on private data.
        scaling: the constants that scaled the features, for the record.
        settled: what ``load_queries`` needs beside the source's own settings, and only the data could tell: kept with a
            run, so that nobody needs the data again to ask about queries.
        selection: condition b: ids, split and selection depend on each record alone.
        preprocessing: condition e: scaling and vocabularies come from public data or constants only.
        size: condition c: what makes ``declared_size`` a public constant; None where nobody but the user says so.
        label_free: no id, unit, split or order was made from labels: relation=flip needs it.
        tested: whether there is a test split; programs that train on arrays of their own keep none here.
        pretrain: public records a frozen encoder may be trained on.
        plane: set for two-dimensional data only.
        notes: sentences for the data owner alone: they may tell about private data, and are never part of a claim or of a
            condition.
    """

    name: str
    classes: tuple[str, ...]
    train: Records
    test: Records
    declared_size: float | None
    scaling: Mapping[str, object]
    selection: Grounds
    preprocessing: Grounds
    size: Fact | None = None
    pretrain: Records | None = None
    plane: Plane | None = field(default=None, compare=False)
    shard: bool = False
    label_free: bool = False
    tested: bool = True
    notes: tuple[str, ...] = field(default=(), compare=False)
    settled: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for split, records in (("train", self.train), ("test", self.test)):
            if not len(records):
                if self.shard or (split == "test" and not self.tested):
                    continue
                raise DataError(f"{self.name}: the {split} split is empty")
            if records.labels.min() < 0 or records.labels.max() >= len(self.classes):
                raise DataError(f"{self.name}: {split} labels are not in 0..{len(self.classes) - 1}")
        if len(self.classes) < 2:
            raise DataError(f"{self.name}: every record has the class {self.classes[0]!r}; at least two are needed")
        if self.train.features.shape[1:] != self.test.features.shape[1:]:
            raise DataError(f"{self.name}: train and test features differ in shape")

    def public_rows(self, which: PublicRows) -> Records:
        """The records that somebody declared public: "test", all of those, or "train", training records marked public."""
        return self.test if which == "test" else self.train.take(self.train.public)

    def same_records(self, other: "Dataset") -> bool:
        """Whether another has the same records in the same parts: by id, whose they are, and which are public."""
        parts = ((self.train, other.train), (self.test, other.test))
        return all(np.array_equal(getattr(a, key), getattr(b, key)) for a, b in parts for key in ("ids", "units", "public"))

    @property
    def bare(self) -> "Dataset":
        """This dataset without its training records: what every member of an ensemble shares."""
        none = self.train.take(np.empty(0, dtype=np.int64))
        return replace(self, train=none, pretrain=None, plane=None, shard=True)

    def with_shard(self, records: Records, declared_size: float | None) -> "Dataset":
        """This dataset with one member's training records."""
        return replace(self, train=records, declared_size=declared_size, shard=True)

    @cached_property
    def digest(self) -> str:
        """A hash of every record of both splits: features, labels, ids, units and public flags."""
        return self._digest_now()

    def _digest_now(self) -> str:
        return fingerprint(self.train, self.test, *([self.pretrain] if self.pretrain else []))

    def check_unchanged(self) -> None:
        """Raise DataError where memory-mapped records, which others may edit, are not those of the first call.

        Training calls it first and last, and whoever reads the records of a model again calls it before that.
        """
        if is_mapped(self.train.features) and self.digest != self._digest_now():
            raise DataError(
                f"{self.name}: the memory-mapped records were edited after training began, so the model is not theirs: "
                "restore them, or train again"
            )


def with_notes(dataset: Dataset, normalized: float | None) -> Dataset:
    """The data set with what can be noted about any: classes that never occur, units on both sides or of names that
    are nearly alike, a size that is far off.

    Args:
        normalized: the public number of records that the normaliser of steps stands for, where it is configured.
    """
    records, notes = len(dataset.train), list(dataset.notes)
    counts = np.bincount(dataset.train.labels, minlength=len(dataset.classes))
    empty = [name for name, count in zip(dataset.classes, counts, strict=True) if not count]
    if empty:
        notes.append(f"no training record has the class {', '.join(map(repr, empty))}.")
    if (dataset.train.units != dataset.train.ids).any():
        train, test = (np.concatenate([*map(_rough_hash, pieces(of.units))]) for of in (dataset.train, dataset.test))
        if both := len(np.intersect1d(train, test)):
            notes.append(
                f"units with training and test records: {both:,}; results on the latter may look better than they are."
            )
        both_units = (dataset.train.units, dataset.test.units)
        units = {name for of in both_units for some in pieces(of) for name in some.tolist()}
        if alike := len(units) - len({name.strip().casefold().lstrip("0") for name in units}):
            notes.append(
                f"names of units that are another's but for capitals, blanks around them or leading zeros: {alike:,}; each "
                "counts as a unit of its own: where two are one person, write them alike."
            )
    size = dataset.declared_size if normalized is None else normalized
    if size is not None and records and not records / 2 <= size <= records * 2:
        declared = f"dataset.declared_size is {size:.12g}"
        if normalized is not None:
            declared = f"training.batch.normalizer (times batches and members) stands for {size:.12g} records"
        turn, effect = ("smaller", "hardly moves") if size > records else ("larger", "may be unstable")
        notes.append(
            f"{declared}, and there are {records} training records: steps are about "
            f"{max(size / records, records / size):,.1f} times {turn} than a mean over the records would make them, and "
            f"training {effect}."
        )
    return replace(dataset, notes=tuple(notes))


def fingerprint(*parts: Records) -> str:
    """A hash of all that training sees of these records, in their order."""
    h = blake2b(digest_size=16)
    for records in parts:
        for features in pieces(records.features):
            h.update(np.ascontiguousarray(features).tobytes())
        for array in (records.labels, records.public):
            h.update(array.tobytes())
        for array in (records.ids, records.units):
            for place, names in enumerate(pieces(array)):
                h.update(("\n" if place else "").encode() + "\n".join(names.tolist()).encode())
    return h.hexdigest()


class DataSource(Protocol):
    """What a dataset configuration's ``_target_`` builds: a frozen, validated description that can load itself."""

    def load(self) -> Dataset:
        """Read, check, scale and split the data. Raises DataMissing or DataError."""

    def load_queries(self, path: Path) -> Records:
        """Read a file of queries, scaled by the same public constants; labels are UNLABELLED where absent.

        A source with a setting ``settled`` gets what ``Dataset.settled`` had there, and then reads nothing but ``path``.
        One that has ``read_queries(columns)`` beside it, to the same bytes, answers JSON lines too (files.columns_of). One
        that takes constants from its training records needs ``load_without(is_erased)`` beside ``load`` where some are to
        be erased (erasure.py).
        """
