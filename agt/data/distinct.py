"""The distinct values of one column, how often each occurs, and which of them are numbers or stand for none."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agt.data.files import Columns, as_word

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""What a person takes for a number."""
_WORDS = {"?", "-", "--", ".", "none", "unknown", "missing", "na", "n.a.", "n/a", "nan", "null", "nil", "\\n", "#n/a"}
_ALWAYS = {"?"}
_MOST_WORDS = 100


@dataclass(frozen=True)
class Distinct:
    """The distinct values of a column.

    Attributes:
        name: the column's.
        vector: the column itself.
        words: distinct values that are not missing, as they are.
        numbers: [distinct] float64; NaN: no number.
        counts: [distinct] how many rows have each.
        missing: rows without one.
        markers: words taken for missing.
        flags: its type is true or false.
    """

    name: str
    vector: pa.Array
    words: pa.Array
    numbers: np.ndarray
    counts: np.ndarray
    missing: int
    markers: tuple[str, ...] = ()
    flags: bool = False

    @property
    def text(self) -> bool:
        """Whether its values are text, as all are in a csv."""
        return pa.types.is_string(self.words.type)

    @property
    def numeric(self) -> bool:
        """Whether there are values, and all are finite numbers."""
        return bool(len(self.numbers)) and bool(np.isfinite(self.numbers).all())

    @property
    def whole(self) -> bool:
        """Whether all are whole numbers."""
        return self.numeric and bool((self.numbers == np.rint(self.numbers)).all())

    def fits(self, pattern: str) -> np.ndarray:
        """[distinct] whether each value, trimmed, has this shape."""
        return matches(pc.utf8_trim_whitespace(self.words), pattern)

    def kept(self, rows: np.ndarray) -> "Distinct":
        """The same without some of its values."""
        words, lost = self.words.filter(pa.array(rows)), int(self.counts[~rows].sum())
        return replace(self, words=words, numbers=self.numbers[rows], counts=self.counts[rows], missing=self.missing + lost)

    def common(self, most: int) -> tuple[tuple[str, int], ...]:
        """Value and count, the most frequent first; nothing if there are more than ``most``."""
        if len(self.words) > most:
            return ()
        pairs = zip((str(as_word(word)) for word in self.words.to_pylist()), self.counts.tolist(), strict=True)
        return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def distinct(columns: Columns, name: str, missing_values: Sequence[str]) -> Distinct:
    """What is in a column; ``missing_values``: further words that stand for none."""
    raw = columns.raw(name, "file")
    if not isinstance(raw, np.ndarray) and pa.types.is_nested(raw.type):
        return Distinct(name, raw, raw[:0], np.empty(0), np.empty(0, dtype=np.int64), raw.null_count)
    vector = columns.vector(name, "file")
    if pa.types.is_large_string(vector.type):
        vector = vector.cast(pa.string())
    flags = pa.types.is_boolean(vector.type)
    if flags or pa.types.is_decimal(vector.type):
        vector = vector.cast(pa.int8() if flags else pa.float64())
    counted = pc.value_counts(vector)
    words, counts = counted.field("values"), counted.field("counts").to_numpy()
    look = Distinct(name, vector, words, np.full(len(words), np.nan), counts, 0, flags=flags)
    if pa.types.is_integer(words.type) or pa.types.is_floating(words.type):
        numbers = words.to_numpy(zero_copy_only=False).astype(np.float64)
        return replace(look, numbers=numbers).kept(~np.isnan(numbers))
    look = look.kept(~words.is_null().to_numpy(zero_copy_only=False))
    return _marked(replace(look, numbers=_numbers(look.words)), missing_values) if look.text else look


def _numbers(words: pa.Array) -> np.ndarray:
    """[n] float64 of text, as ``Columns.numbers`` reads it; NaN where that is no number."""
    trimmed = pc.utf8_trim_whitespace(words)
    plain = matches(trimmed, NUMBER)
    numbers = np.full(len(words), np.nan)
    numbers[plain] = trimmed.filter(pa.array(plain)).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers


def _marked(look: Distinct, missing_values: Sequence[str]) -> Distinct:
    """Text without the words that stand for no value: '?' anywhere, others where everything else is a number."""
    words = np.isnan(look.numbers)
    few = look.words.filter(pa.array(words)).to_pylist() if words.sum() <= _MOST_WORDS else []
    others = {word for word in few if word.strip().casefold() in _WORDS or not word.strip()}
    markers = {word for word in few if word.strip() in _ALWAYS or not word.strip()}
    markers |= set(look.words.filter(pc.is_in(look.words, pa.array(missing_values, pa.string()))).to_pylist())
    if others | markers >= set(few) and len(few) < len(look.words):
        markers |= others
    if not markers:
        return look
    kept = ~pc.is_in(look.words, pa.array(sorted(markers), pa.string())).to_numpy(zero_copy_only=False)
    return replace(look.kept(kept), markers=tuple(sorted(markers)))


def matches(words: pa.Array, pattern: str) -> np.ndarray:
    """[n] whether each word has this shape somewhere in it."""
    return np.asarray(pc.match_substring_regex(words, pattern).to_numpy(zero_copy_only=False), dtype=bool)
