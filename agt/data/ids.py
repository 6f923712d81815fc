"""Ids of records, and every choice that is made per record by a hash of its id: batches, splits,
shards.
"""

import math
import re
from binascii import hexlify
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.arrays import ROWS, block_slices, pieces

CONTENT = re.compile("[0-9a-f]{32}")
"""The form of ids that ``content_ids`` makes."""

DIGEST_BYTES = 16

HASHED_BYTES = 2**18  # of content that is held as bytes at once, and stays in the cache

# Rows whose attributes are held as Python objects at once: fewer than Python makes between two
# searches for garbage (``gc.get_threshold``), which took longer than hashing.
_LISTED_ROWS = 2**9

_NUMBER_BYTES = 8  # of how many copies came before

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

_NUMBERED = re.compile(r"(|.*\D)(\d{1,18})((?:\.0*)?\D*)", re.DOTALL)

_DIGITS = "^[0-9]{1,18}$"

_ROWS_A_NUMBER = 10  # row numbers fill more than a tenth of their range


def content_ids(
    features: np.ndarray, labels: np.ndarray, numbered: bool = True, exact: bool = False
) -> np.ndarray:
    """Return ids that are hashes of the raw content, and of how many identical records came before.

    Identical records are exchangeable, so numbering them does not make one record's id depend on
    another's data: removing any copy leaves the same set of ids as removing the last one. That
    holds only among copies that are all private training records. So public flags and splits are
    decided by ids with ``numbered=False``, which are equal for all copies.

    Args:
        features: [n, ...] raw features.
        labels: [n] raw labels.
        numbered: whether copies are numbered; False: every copy has the id of the first one.
        exact: whether each row is hashed in its own precision (``_exact_bytes``), which is
            needed if the precision of the array is not a public constant.

    Returns:
        [n] str, 32 hexadecimal digits each; unique if numbered.
    """
    digests = content_digests(features, labels, exact)
    ids = ids_of_digests(digests)
    return number_copies(ids, digests) if numbered else ids


def content_digests(
    features: np.ndarray, labels: np.ndarray | Sequence[str], exact: bool = False
) -> np.ndarray:
    """Return a hash of each record's raw content, the same for identical records.

    Args:
        features: [n, ...] raw features.
        labels: [n] raw labels, or all else about each record as text.
        exact: True: a row is hashed in its own precision (``_exact_bytes``); False: in the
            precision of the array.

    Returns:
        [n, DIGEST_BYTES] uint8.
    """
    unused = blake2b(digest_size=DIGEST_BYTES)
    digests = np.empty((len(features), DIGEST_BYTES), dtype=np.uint8)
    row_bytes = max(1, features.itemsize * math.prod(features.shape[1:]))
    block_rows = max(1, min(ROWS, HASHED_BYTES // row_bytes))
    for block in block_slices(len(features), block_rows):
        rows = _exact_bytes(features[block]) if exact else _row_bytes(features[block])
        contents = (
            row + str(label).encode() for row, label in zip(rows, labels[block], strict=True)
        )
        digests[block] = _hash_each(unused, contents)
    return digests


def hash_names(unused: blake2b, names: Sequence[str] | np.ndarray) -> np.ndarray:
    """Return the hash of each name, [n, ``unused.digest_size``] uint8.

    Args:
        unused: a hash object that has read nothing after its key.
        names: [n] the names, as text.
    """
    hashes = np.empty((len(names), unused.digest_size), dtype=np.uint8)
    for rows in block_slices(len(names), ROWS):
        block = names[rows]
        # A list of str is faster to walk through than an array of them.
        if isinstance(block, np.ndarray):
            block = block.tolist()
        hashes[rows] = _hash_each(unused, (str(name).encode() for name in block))
    return hashes


def hash_rows(unused: blake2b, rows: np.ndarray) -> np.ndarray:
    """Return the hash of the bytes of each row, [n, ``unused.digest_size``] uint8.

    Args:
        unused: a hash object that has read nothing after its key.
        rows: [n, ...] numbers, which are hashed in their own precision.
    """
    hashes = np.empty((len(rows), unused.digest_size), dtype=np.uint8)
    for block in block_slices(len(rows), ROWS):
        hashes[block] = _hash_each(unused, _row_bytes(rows[block]))
    return hashes


def _hash_each(unused: blake2b, contents: Iterable[bytes]) -> np.ndarray:
    """Return the hash of each content, [n, ``unused.digest_size``] uint8.

    Args:
        unused: a hash object that has read nothing after its key.
        contents: the byte strings to hash.
    """
    hashes = []
    for content in contents:
        hasher = unused.copy()  # faster than a new one
        hasher.update(content)
        hashes.append(hasher.digest())
    return np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, unused.digest_size)


def ids_of_digests(digests: np.ndarray) -> np.ndarray:
    """Return the ids of records by digests of their content; copies have the same id.

    Args:
        digests: [n, DIGEST_BYTES] uint8, as ``content_digests`` returns them.

    Returns:
        [n] str, 32 hexadecimal digits each.
    """
    numbered = np.zeros((len(digests), DIGEST_BYTES + _NUMBER_BYTES), dtype=np.uint8)
    numbered[:, :DIGEST_BYTES] = digests  # the number after it is 0: no copy came before
    hashes = hash_rows(blake2b(digest_size=DIGEST_BYTES), numbered)
    # The code of a digit is one byte in ASCII, and four bytes in an array of text.
    digits = np.frombuffer(hexlify(hashes.data), dtype=np.uint8)
    return digits.astype(np.uint32).view(f"U{2 * DIGEST_BYTES}")


def number_copies(ids: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """Return ids in which a record's id also says how many identical records came before it.

    Args:
        ids: [n] str, as ``ids_of_digests`` returns them; they are not changed.
        digests: [n, DIGEST_BYTES] uint8, of which the ids were made.

    Returns:
        [n] str, unique; the first of identical records keeps its id. ``ids`` itself if there are no
        identical records.
    """
    copies = _earlier_copies_by_row(digests)
    if not copies:
        return ids
    numbered = ids.copy()
    for row, number in copies.items():
        content = digests[row].tobytes() + number.to_bytes(_NUMBER_BYTES, "little")
        numbered[row] = blake2b(content, digest_size=DIGEST_BYTES).hexdigest()
    return numbered


def _earlier_copies_by_row(digests: np.ndarray) -> dict[int, int]:
    """Return the number of earlier copies of each record that has some, by row.

    Args:
        digests: [n, DIGEST_BYTES] uint8, the digest of each record's content.
    """
    # Equal digests begin alike, so only rows whose first bytes occur twice are looked at one by
    # one. Their full digests decide.
    beginnings = np.ascontiguousarray(digests[:, :8]).view(np.uint64)[:, 0]
    ordered = np.sort(beginnings)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    copies_so_far: Counter[bytes] = Counter()
    earlier_copies = {}
    for row in np.flatnonzero(np.isin(beginnings, repeated)).tolist():
        digest = digests[row].tobytes()
        if copies_so_far[digest]:
            earlier_copies[row] = copies_so_far[digest]
        copies_so_far[digest] += 1
    return earlier_copies


def _row_bytes(rows: np.ndarray) -> list[bytes]:
    """Return the bytes of each row of an array [n, ...], in its own precision."""
    size = rows.itemsize * math.prod(rows.shape[1:])
    if not size:
        return [b""] * len(rows)
    flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    row_bytes: list[bytes] = flat.view(f"V{size}").tolist()
    return row_bytes


def _exact_bytes(rows: np.ndarray) -> list[bytes]:
    """Return the bytes of each row of an array [n, ...], in a precision that the row decides.

    An array has one precision for all rows: one float64 record in a float32 table makes the whole
    array float64. If ids were hashes of the array's own bytes, that record would change the ids of
    all others. So a row of whole numbers is hashed as float64, another row as float32 if that
    represents it exactly, and else as float64.
    """
    wide = rows.astype(np.float64, copy=False).reshape(len(rows), math.prod(rows.shape[1:]))
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    is_whole = (wide == np.rint(wide)).all(axis=1)
    is_narrow = ~is_whole & (narrow == wide).all(axis=1)
    contents = _row_bytes(wide)
    (narrow_rows,) = np.nonzero(is_narrow)
    narrow_contents = _row_bytes(narrow[narrow_rows])
    for row, content in zip(narrow_rows.tolist(), narrow_contents, strict=True):
        contents[row] = content
    return contents


def default_ids(
    content: np.ndarray, *attributes: np.ndarray | None, numbered: bool = True, exact: bool = False
) -> np.ndarray:
    """Return ids that are hashes of a record's content and of everything else about it.

    Rows with the same hash are numbered. Numbering is harmless only between rows that training
    cannot distinguish (see ``content_ids``), so every attribute that training reads is hashed.

    Args:
        content: [n, ...] raw content.
        attributes: [n] each, or None: label, unit, public flag, split.
        numbered: whether copies are numbered. False makes ids to split by: with numbered ids, the
            removal of a private training record would take the last copy out of the test set
            instead, and test records are treated as public.
        exact: True: a row is hashed in its own precision (``_exact_bytes``); False: in the
            precision of the array.

    Returns:
        [n] str; unique if numbered.
    """
    digests = default_digests(content, *attributes, exact=exact)
    ids = ids_of_digests(digests)
    return number_copies(ids, digests) if numbered else ids


def default_digests(
    content: np.ndarray, *attributes: np.ndarray | None, exact: bool = False
) -> np.ndarray:
    """Return the digests that ``default_ids`` makes ids of, [n, DIGEST_BYTES] uint8.

    Args:
        content: [n, ...] raw content.
        attributes: [n] each, or None: label, unit, public flag, split.
        exact: True: a row is hashed in its own precision (``_exact_bytes``); False: in the
            precision of the array.
    """
    present = [attribute for attribute in attributes if attribute is not None]
    digests = [np.empty((0, DIGEST_BYTES), dtype=np.uint8)]
    for rows in block_slices(len(content), _LISTED_ROWS):
        tags = [""] * (rows.stop - rows.start)
        if present:
            values = [attribute[rows].tolist() for attribute in present]
            tags = [repr(row_values) for row_values in zip(*values, strict=True)]
        digests.append(content_digests(content[rows], tags, exact))
    return np.concatenate(digests)


def keyed_hash(names: Sequence[str] | np.ndarray, key: str) -> np.ndarray:
    """Return a uniform hash of each name, [n] uint64, from the name and a public key alone."""
    secret = blake2b(key.encode(), digest_size=32).digest()
    keyed = blake2b(digest_size=8, key=secret)  # copied for each name, which is faster than a key
    return hash_names(keyed, names).view("<u8")[:, 0].astype(np.uint64, copy=False)


def remix(hashes: np.ndarray, stream: int) -> np.ndarray:
    """Return uniform values that are functions of given hashes, [n] uint64 (splitmix64).

    Args:
        hashes: [n] uint64, uniform.
        stream: the index of one of several independent streams of values, from 0.
    """
    with np.errstate(over="ignore"):
        z = hashes + _MIX[0] * np.uint64(stream + 1)
        z = (z ^ (z >> np.uint64(30))) * _MIX[1]
        z = (z ^ (z >> np.uint64(27))) * _MIX[2]
        return z ^ (z >> np.uint64(31))


def uniform(names: Sequence[str] | np.ndarray, key: str) -> np.ndarray:
    """Return a uniform number in [0, 1) for each name, [n] float64.

    It is a function of the name and a public key alone, and decides splits and selections.
    """
    highest_53_bits = keyed_hash(names, key) >> np.uint64(11)
    return highest_53_bits.astype(np.float64) * 2.0**-53


def hash_split(names: np.ndarray, test_fraction: float, key: str) -> np.ndarray:
    """Return whether each name is in the test split, [n] bool, by a keyed hash of the name alone.

    So all rows with one name, for example that of a person, are in the same split.
    """
    return uniform(names, key) < test_fraction


def distinct(hashes: np.ndarray) -> np.ndarray:
    """Return the distinct values of numbers in increasing order, as ``np.unique`` does.

    Of a million different hashes, this takes a hundredth of the time of ``np.unique``, which looks
    for each value in a table.

    Args:
        hashes: [n] integers, the hash of each record.
    """
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


class FrequentName(NamedTuple):
    """A name that occurs too often, and how often it occurs."""

    name: str
    times: int


def most_frequent(names: np.ndarray, allowed: int = 1) -> FrequentName | None:
    """Return the most frequent name if it occurs more than ``allowed`` times.

    Many names are counted by rough hashes, which can only count too many. Names that seem to occur
    too often are then counted exactly.

    Args:
        names: [n] str, of which there may be millions.
        allowed: the number of times that a name may occur.

    Returns:
        None: no name occurs more than ``allowed`` times.
    """
    hashes = np.concatenate([np.empty(0, np.uint64), *map(rough_hash, pieces(names))])
    ordered = np.sort(hashes)
    # A hash that equals the one ``allowed`` places before it occurs more than ``allowed`` times.
    is_frequent = ordered[allowed:] == ordered[: len(ordered) - allowed]
    frequent_hashes = ordered[allowed:][is_frequent]
    if not len(frequent_hashes):
        return None
    candidates = names[np.isin(hashes, frequent_hashes)]
    distinct_names, counts = np.unique(candidates, return_counts=True)
    index = int(counts.argmax())
    if counts[index] <= allowed:
        return None
    return FrequentName(str(distinct_names[index]), int(counts[index]))


def rough_hash(names: np.ndarray) -> np.ndarray:
    """Return a hash of each name, [n] uint64, which different names hardly ever share.

    Equal names have equal hashes in arrays of any width.

    Args:
        names: [n] str, the names to hash.
    """
    plain = np.ascontiguousarray(names, dtype=str)
    length = plain.itemsize // 4
    if length % 2:
        plain = plain.astype(f"U{length + 1}")
    pairs = plain.view(np.uint64).reshape(len(plain), -(-length // 2))  # of letters
    hashes = np.zeros(len(plain), dtype=np.uint64)
    for index, pair in enumerate(pairs.T):
        # The zeros that follow a name in a wider array add nothing.
        hashes += remix(pair, index) * (pair > 0)
    return hashes


def rough_row_hash(rows: np.ndarray) -> np.ndarray:
    """Return a hash of each row of numbers, [n] uint64, which different rows hardly ever share.

    Args:
        rows: [n, w] float32; rows are the same if their bits are.
    """
    pairs = np.zeros((len(rows), -(-rows.shape[1] // 2)), dtype=np.uint64)
    pairs.view(np.float32)[:, : rows.shape[1]] = rows
    hashes = np.zeros(len(rows), dtype=np.uint64)
    for index, pair in enumerate(pairs.T):
        hashes += remix(pair, index)
    return hashes


def resemble_row_numbers(names: np.ndarray) -> bool:
    """Return whether names look like row numbers, which change when records are removed.

    Names look so if more than half of the distinct ones are numbers, in any order, that fill more
    than a tenth of their range. The index of a table that was shuffled, cut or sampled is found,
    too. Numbers may be inside of a common text (p7, p9, p8), be written as 0017 or 17.0, and have a
    common step (30, 10, 20). A few other names make no difference.

    Args:
        names: [n] str, in any order; they may repeat. A single name does not look so.
    """
    distinct_names = pc.unique(pa.array(names, pa.string()))
    largest = max(_numbers_by_text(distinct_names), key=len)
    if 2 * len(largest) <= len(distinct_names):
        return False
    low = int(largest.min())
    step = int(np.gcd.reduce(largest - low))
    span = int(largest.max()) - low
    return span < _ROWS_A_NUMBER * step * len(largest)


def _numbers_by_text(names: pa.Array) -> list[np.ndarray]:
    """Return the numbers inside of names, a group for each text around them.

    Args:
        names: distinct names, such as p7 and p9, whose numbers are in one group.

    Returns:
        [m] int64 for each group, distinct; the first, which may be empty, has no text around them.
    """
    only_digits = pc.match_substring_regex(names, _DIGITS)
    # The text around a number, as (text before, text after) -> numbers.
    numbers_in_text = defaultdict[tuple[str, str], set[int]](set)
    with_text = names.filter(pc.invert(only_digits)).to_pylist()
    for match in filter(None, map(_NUMBERED.fullmatch, with_text)):
        numbers_in_text[match[1], match[3]].add(int(match[2]))
    # Names of digits alone, of which there may be millions, are not read one by one.
    plain = names.filter(only_digits).cast(pa.int64()).to_numpy()
    # Digits of other scripts, such as Arabic, are plain numbers, too.
    other_digits = np.array([*numbers_in_text.pop(("", ""), ())], dtype=np.int64)
    groups = [distinct(np.concatenate([plain, other_digits]))]
    groups += [np.array([*numbers]) for numbers in numbers_in_text.values()]
    return groups
