"""After an erasure: what of the erased records can still be found, place by place, and how each place was looked at.

Three things are looked for. Ids, as text: whole words in any file, and in the values of tables and arrays that are packed;
short ids, which occur by chance in anything, only as whole cells and whole strings. Rows: the bytes of a record's features,
as float32 and as float64, unless a record that stays has the same. Earlier states: any file with the bytes of one that the
run's earlier manifest listed and the new one does not. Other runs are asked by their own index of records.

What is found is told by counts and places; no id or row is written anywhere.
"""

import gzip
import json
import mmap
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agt.errors import AgtError
from agt.manifest import NAME as MANIFEST
from agt.manifest import Broken
from agt.sealed import file_sha256
from agt.unlearning.index import NAME as INDEX
from agt.unlearning.index import Index, places
from agt.unlearning.keys import NAME as KEY
from agt.unlearning.keys import Key

SHORT = 5  # an id of fewer characters, or of digits alone and fewer than eight, occurs by chance
_DIGITS = 8
ROWS = 256  # rows that are looked for byte by byte
FEW = 64  # ids that are looked for one by one
_WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]+")
_WHOLE = re.compile(rb'(?:^|[,;\t\r\n"])([^,;\t\r\n"]+)(?=$|[,;\t\r\n"])')
_TEXT = {".csv", ".json", ".jsonl", ".md", ".html", ".yaml", ".txt", ".log", ".tsv"}
_PACKED = {".png", ".pdf", ".zip", ".jpg", ".woff2", ".xz", ".zst", ".bz2", ".pkl"}


@dataclass(frozen=True)
class Trace:
    """One place that was looked at.

    Attributes:
        place: a file or a folder, as text.
        how: how it was looked at, in words.
        found: what was found, in words; empty: nothing.
        files: how many were looked at.
        hits: how many traces that is.
    """

    place: str
    how: str
    found: str = ""
    files: int = 0
    hits: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    @property
    def words(self) -> str:
        """One line."""
        return f"{self.place}: {self.found or 'nothing found'} ({self.how})"


@dataclass(frozen=True)
class Wanted:
    """What must not be found any more.

    Attributes:
        ids: of the erased records, and of units that went as a whole, as the data has them.
        rows: [m, ...] features of the erased records, as loaded; empty where the data does not have them any more.
        others: [n, ...] those of the records that stay, of which the same bytes are no trace.
        files: sha256 -> name of the earlier state's files that the new state does not have.
    """

    ids: Sequence[str]
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 1), np.float32))
    others: np.ndarray = field(default_factory=lambda: np.empty((0, 1), np.float32))
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def long(self) -> frozenset[bytes]:
        """Ids that are one word each, and occur nowhere by chance."""
        return frozenset(spelled for name in self._telling for spelled in _spelled(name) if _WORD.fullmatch(spelled))

    @cached_property
    def phrases(self) -> tuple[bytes, ...]:
        """Ids of several words."""
        return tuple(spelled for name in self._telling for spelled in _spelled(name) if not _WORD.fullmatch(spelled))

    @cached_property
    def short(self) -> frozenset[bytes]:
        """Ids that occur by chance."""
        telling = set(self._telling)
        return frozenset(spelled for name in self.ids if name not in telling for spelled in _spelled(name))

    @cached_property
    def _telling(self) -> tuple[str, ...]:
        return tuple(name for name in dict.fromkeys(self.ids) if len(name) >= (_DIGITS if name.isdecimal() else SHORT))

    @cached_property
    def patterns(self) -> tuple[bytes, ...]:
        """The bytes of rows, as float32 and as float64."""
        mine = {row.tobytes(): row for row in self.rows[:ROWS] if np.count_nonzero(row) > 1}
        shared = {content for row in self.others if (content := row.tobytes()) in mine} if mine else set()
        alone = [row for content, row in mine.items() if content not in shared]
        wide = (row.astype(kind).tobytes() for row in alone for kind in (np.float32, np.float64))
        return tuple(dict.fromkeys(pattern for pattern in wide if len(pattern) >= 8))

    @property
    def words(self) -> tuple[str, ...]:
        """What was looked for, in sentences with counts alone."""
        shared = 2 * min(len(self.rows), ROWS) - len(self.patterns)
        lines = [f"{len(set(self.ids))} ids, {len(self.short)} of them so short that only whole cells and strings count"]
        lines.append(f"the features of {min(len(self.rows), ROWS)} of {len(self.rows)} rows, as float32 and float64")
        if shared > 0:
            lines.append(f"{(shared + 1) // 2} rows are not looked for: a record that stays has the same, or they are zero")
        return (*lines, f"{len(self.files)} files of the earlier state")


def sweep(wanted: Wanted, folders: Mapping[str, Path], leave: Iterable[Path] = ()) -> list[Trace]:
    """Look through folders, each file once, however many of the folders it lies in.

    Args:
        folders: words for a folder -> where it lies; what is not there is said to be so. The run's comes first.
        leave: files that are not looked at, such as the request itself: its own line says so.

    Returns:
        One line for each folder, after one for each file in it where something was found.
    """
    seen, kept, traces = set[Path](), {path.resolve() for path in leave}, list[Trace]()
    for words, folder in folders.items():
        files = [path for path in _files(folder) if path.resolve() not in seen]
        seen |= {path.resolve() for path in files}
        looked = [(path, *_look(path, wanted)) for path in files if path.resolve() not in kept]
        hits = [Trace(str(path), how, found, hits=1) for path, how, found in looked if found]
        traces += [*hits, _summary(words, folder, looked, len(hits))]
        traces += [Trace(str(path), "not looked at: it is the request") for path in files if path.resolve() in kept]
    return traces


def other_runs(wanted: Wanted, folder: Path, run: Path) -> list[Trace]:
    """Other training runs whose own index says that they were trained on erased records.

    Args:
        folder: where runs lie.
        run: the one that was updated.
    """
    traces, looked, closed = list[Trace](), 0, 0
    for path in sorted(folder.rglob(INDEX)):
        if path.parent.resolve() == run.resolve() or "unlearning" in path.relative_to(folder).parts:
            continue
        count = _trained_on(wanted, path.parent)
        looked, closed = looked + 1, closed + (count is None)
        if count:
            how = "asked its records.bin with its own key"
            traces.append(
                Trace(
                    str(path.parent), how, f"still trained on {count} of the erased records: erase them there too", 0, count
                )
            )
    how = f"{looked} other training runs asked by their records.bin" + (f", {closed} without a key" if closed else "")
    return [*traces, Trace(str(folder), how, f"{len(traces)} of them trained on erased records" if traces else "", looked)]


def data_trace(place: str, still: int) -> Trace:
    """The owner's data, which is not ours to change.

    Args:
        still: how many of the erased records it has.
    """
    found = f"{still} of the erased records still lie in it, unread from now on: delete their rows" if still else ""
    return Trace(place, "loaded, and compared by id; never changed", found)


def _trained_on(wanted: Wanted, run: Path) -> int | None:
    with suppress(AgtError, Broken, OSError):
        key, index = Key.of(run), Index.read((run / INDEX).read_bytes())
        if key is None or key.check != index.key:
            return None
        ids = len(places(index.ids, key.names(list(wanted.ids), "record")))
        units = 0 if index.units is None else len(places(index.units, key.names(list(wanted.ids), "unit")))
        return max(ids, units)
    return None


def _summary(words: str, folder: Path, looked: list[tuple[Path, str, str]], hits: int) -> Trace:
    place = f"{words}: {folder}"
    if not folder.exists():
        return Trace(place, "not there")
    ways: dict[str, int] = {}
    for _, how, _ in looked:
        ways[how] = ways.get(how, 0) + 1
    how = "; ".join(f"{count} files: {way}" for way, count in sorted(ways.items())) or "no file in it"
    return Trace(place, how, f"something in {hits} of {len(looked)} files" if hits else "", len(looked))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path


def _look(path: Path, wanted: Wanted) -> tuple[str, str]:
    """(how it was looked at, what was found)."""
    if path.as_posix().endswith(KEY):
        return "the run's key, 32 random bytes", ""
    found = dict.fromkeys(("ids", "rows", "states"), 0)
    how = "bytes"
    try:
        for content, text in _contents(path):
            found["ids"] += _ids_in(content, wanted, text)
            found["rows"] += sum(content.find(pattern) >= 0 for pattern in wanted.patterns)
        if wanted.files and path.name != MANIFEST:
            found["states"] = int(file_sha256(path) in wanted.files)
        how = _how(path)
    except (OSError, ValueError, EOFError, pa.ArrowException, zipfile.BadZipFile) as error:
        how = f"not looked at: {type(error).__name__}"
    parts = [f"ids: {found['ids']}"] * bool(found["ids"]) + [f"rows: {found['rows']}"] * bool(found["rows"])
    return how, ", ".join(parts + ["a file of the earlier state"] * found["states"])


def _how(path: Path) -> str:
    if path.suffix in (".parquet", ".npz", ".gz"):
        return f"bytes, and {path.suffix[1:]} decoded"
    return "bytes alone: packed inside" if path.suffix in _PACKED else "bytes"


def _contents(path: Path) -> Iterator[tuple[Any, bool]]:
    """(bytes or what can be searched like them, whether it is text) of a file and of what is packed in it."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content, path.suffix in _TEXT
    if path.suffix == ".gz":
        with gzip.open(path) as packed:
            yield packed.read(), True
    elif path.suffix == ".parquet":
        table = pq.ParquetFile(path)
        for batch in table.iter_batches():
            yield from (_of_column(column) for column in batch.columns)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                array = arrays[name]
                yield (_text_of(array.ravel().tolist()), True) if array.dtype.kind in "USiu" else (array.tobytes(), False)


def _of_column(column: pa.Array) -> tuple[bytes, bool]:
    if pa.types.is_floating(column.type):
        return column.to_numpy(zero_copy_only=False).tobytes(), False
    if pa.types.is_nested(column.type):
        return np.asarray(column.flatten()).tobytes(), False
    return _text_of(column.to_pylist()), True


def _text_of(values: Iterable[object]) -> bytes:
    words = (value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in values)
    return "\n".join(words).encode()


def _ids_in(content: Any, wanted: Wanted, text: bool) -> int:
    """How many of the ids a content has."""
    if len(wanted.long) <= FEW:
        found = {word for word in wanted.long if _holds(content, word)}
    else:
        found = {word for match in _WORD.finditer(content) if (word := match[0]) in wanted.long}
    found |= {phrase for phrase in wanted.phrases if content.find(phrase) >= 0}
    if text and wanted.short:
        found |= {word for match in _WHOLE.finditer(content) if (word := match[1].strip()) in wanted.short}
    return len(found)


def _holds(content: Any, word: bytes) -> bool:
    """Whether a word stands somewhere in a content, as a whole one."""
    start = content.find(word)
    while start >= 0:
        around = content[max(start - 1, 0) : start], content[start + len(word) : start + len(word) + 1]
        if not any(map(_WORD.fullmatch, around)):
            return True
        start = content.find(word, start + 1)
    return False


def _spelled(name: str) -> tuple[bytes, ...]:
    """An id as UTF-8, as JSON writes it in ASCII, and as a page has it."""
    return tuple(dict.fromkeys((name.encode(), json.dumps(name)[1:-1].encode(), escape(name).encode())))
