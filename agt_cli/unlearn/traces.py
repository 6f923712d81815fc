"""After an erasure: what of the erased records can still be found, and where nobody looked.

Three things are looked for. Ids, as text: whole words in any file and in its name, and in the columns of
parquet files; short ids, which occur by chance in anything, only as whole cells and whole strings. Rows: the bytes of a
record's features, as float32 and as float64, unless a record that stays has the same. Earlier states: any file with the
bytes of one that the run's earlier manifest listed and the new one does not. Other training runs are asked by their own
index of records. A training that was stopped has none yet: its checkpoint is named, whoever it was trained on.

What is found is told by counts and by places below the folders searched; no id or row is written anywhere.
"""

import json
import mmap
import os
import re
from collections import Counter
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

from agt.data.dataset import CONTENT, Records
from agt.data.erasure import part
from agt.errors import AgtError, counted, few
from agt.store import Broken, Manifest, file_sha256
from agt.training.checkpoint import RUN
from agt.unlearning.account import Place, TraceSearch
from agt.unlearning.log import KEY_FILE, RECORD_INDEX_FILE, HashKey, Index, Log, of_state, places
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.finished import CHECKPOINTS, Run
from agt_cli.runs.prepare import RunSettings
from agt_cli.runs.queries import key_of, named
from agt_cli.unlearn.request import INPUT, Request, TrainingRecords, stated

MIN_ID_CHARACTERS = 5  # an id of fewer characters, or of digits alone and fewer than eight, occurs by chance
_MIN_ID_DIGITS = 8
_RECORDS = (
    "everything else that commands wrote (output_dir)",
    "everything else where the run was written (its output_dir)",
)
MAX_ROWS = 256  # rows that are looked for byte by byte
_KINDS = (_IDS, _ROWS, _STATE, _IN_NAME) = ("ids", "rows", "files of the earlier state", "ids in names")
_UNREADABLE = "unreadable"
_WORD = re.compile(rb"[0-9A-Za-z_\x80-\xff]{5,}")  # no id that is looked for as a word is shorter
_WHOLE = re.compile(rb'(?:^|[,;\t\r\n"])([^,;\t\r\n"]+)(?=$|[,;\t\r\n"])')
_TEXT = {".csv", ".json", ".jsonl", ".md", ".html", ".yaml", ".txt", ".log", ".tsv"}
_WORDS = ("conditions.json", "source.json")  # of a state, and the same for many: no record is in them
_PACKED = {".gz", ".npz", ".png", ".pdf", ".zip", ".jpg", ".xz", ".zst", ".bz2", ".pkl"}


@dataclass(frozen=True)
class TraceTargets:
    """What must not be found any more.

    Attributes:
        ids: of the erased records, and of units of which no record is left, as the data has them.
        rows: [m, ...] features of the erased records, as loaded; of those that the data still has.
        others: [n, ...] those of the records that stay, of which the same bytes are no trace.
        files: sha256 of the earlier state's files that the new state does not have.
        unknown: what nobody can look for any more, in sentences.
    """

    ids: Sequence[str]
    rows: np.ndarray = field(default_factory=lambda: np.empty((0, 1), np.float32))
    others: np.ndarray = field(default_factory=lambda: np.empty((0, 1), np.float32))
    files: frozenset[str] = frozenset()
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, known: TrainingRecords, request: Request, before: Run) -> "TraceTargets":
        """Of an update that was carried out.

        Args:
            known: as the records were before it.
            before: the run as it was.
        """
        train, asked = known.data.train, known.log.waiting | set(request.records)
        gone = np.array([known.index.words[place] in asked for place in known.place.tolist()], dtype=bool)
        erased, left = train.take(gone), train.take(~gone)
        after = Manifest.open(before.folder)
        state = {digest for name, digest in before.manifest.files.items() if of_state(name) and name not in _WORDS}
        files = frozenset(state) - frozenset(after.files.values())
        ids = _ids_of(erased, (left, known.data.test), request.names)
        return cls(ids, erased.features, left.features, files)

    @classmethod
    def later(cls, run: Run, settings: RunSettings, log: Log) -> "TraceTargets":
        """Of a run's last update, when all that is known of its records is what the data still has."""
        key, batch = key_of(run), log.batch(len(log.entries))
        hashes = frozenset(word for entry in batch for word in entry.records)
        parted = part(stated(run, settings), named(key, log.erased))
        erased = parted.erased.take(named(key, hashes)(parted.erased.ids, parted.erased.units))
        unknown = ["files of the earlier state: nothing tells any more which they were"]
        if gone := len(hashes) - len(erased):
            unknown.append(f"{gone} of {len(hashes)} erased records, of which nothing but keyed hashes is kept")
        rest = parted.rest
        return cls(_ids_of(erased, (rest.train, rest.test)), erased.features, rest.train.features, unknown=tuple(unknown))

    @cached_property
    def spellings(self) -> tuple[set[bytes], set[bytes], set[bytes]]:
        """The ids as UTF-8, as JSON in ASCII and as a page: (single words, phrases, ids that occur by chance)."""
        kinds: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
        for name in self.ids:
            chance = len(name) < (_MIN_ID_DIGITS if name.isdecimal() else MIN_ID_CHARACTERS)
            for spelled in (name.encode(), json.dumps(name)[1:-1].encode(), escape(name).encode()):
                kinds[2 if chance else 0 if _WORD.fullmatch(spelled) else 1].add(spelled)
        return kinds

    @cached_property
    def unshared_rows(self) -> tuple[np.ndarray, ...]:
        """Rows that are looked for: not zero, and nobody else's."""
        mine = {row.tobytes(): row for row in self.rows[:MAX_ROWS] if np.count_nonzero(row) > 1}
        shared = {content for row in self.others if (content := row.tobytes()) in mine} if mine else set()
        return tuple(row for content, row in mine.items() if content not in shared)

    @cached_property
    def patterns(self) -> tuple[bytes, ...]:
        """The bytes of rows, as float32 and as float64."""
        return tuple({row.astype(kind).tobytes() for row in self.unshared_rows for kind in (np.float32, np.float64)})

    @property
    def unlooked(self) -> Iterator[str]:
        """What is not looked for, in sentences."""
        yield from self.unknown
        if any(CONTENT.fullmatch(name) for name in self.ids):
            yield (
                "rows as text, as a table's lines have them: records without ids of their own are looked for by the hash "
                "that stands for an id, and by the bytes of their features"
            )
        if short := self.spellings[2]:
            yield f"{counted(len(short), 'id')} so short that they occur by chance: only as whole cells and whole strings"
        if len(self.unshared_rows) < len(self.rows):
            passed = f"{len(self.rows) - len(self.unshared_rows)} of {len(self.rows)} erased records"
            yield f"the features of {passed}: another record has the same, they are zero, or beyond the first {MAX_ROWS}"


def search(targets: TraceTargets, run: Run, records: Sequence[Path], ids: str | None = None) -> TraceSearch:
    """Look for traces of an update in the run, among other records, and in what commands keep beside them.

    Args:
        records: folders of records (output_dir): that of this command first, then that of the run, if it is another.
        ids: the file that the request came in, which is left out; None, or ``-``: no file.
    """
    others, beside = dict(zip(_RECORDS, records, strict=False)), _beside(run)
    folders = {"the run": run.folder, **others, **beside}
    leave = () if ids in (None, INPUT) else (Path(str(ids)),)
    found, unread = sweep(targets, folders, leave)
    still = len(targets.rows)
    unlooked = [
        *targets.unlooked,
        *unread,
        f"the run's own data, which is its owner's to change: {still} of the erased records still have rows in it, unread "
        "from now on"
        if still
        else "the run's own data: none of the erased records has a row in it any more",
        *["the file that the ids came in: delete it when it is not needed"] * len(leave),
        *["shadow models of membership audits, kept in output_dir, each trained on half of such records: remove them"]
        * any((folder / SHADOWS).exists() for folder in records),
        *[f"{words}: not there, seen from this working folder" for words, place in beside.items() if not place.exists()],
        "caches of compiled code, which hold no data",
    ]
    asked = [other_runs(targets, folder, run.folder) for folder in records]
    return TraceSearch((*found, *asked), ("folders other than these", *unlooked))


def sweep(
    targets: TraceTargets, folders: Mapping[str, Path], leave: Iterable[Path] = ()
) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """Look through folders, each file once, however many of the folders it lies in.

    Args:
        folders: words for a folder -> where it lies.
        leave: files that are not looked at.

    Returns:
        (a place for each folder that is there; what could not be looked at, in words).
    """
    seen, found, unread = {path.resolve() for path in leave}, list[Place](), list[str]()
    for words, folder in folders.items():
        paths = [folder, *sorted(folder.rglob("*"))]
        files = {path.resolve(): path for path in paths if path.is_file() and not path.is_symlink()}
        traces = {path: _traces_in(path, folder, targets) for file, path in files.items() if file not in seen}
        seen |= files.keys()
        if not folder.exists():
            continue
        found.append(_place(words, folder, traces, targets))
        if closed := sum(counts[_UNREADABLE] for counts in traces.values()):
            unread.append(f"{words}: {closed} files that cannot be read or decoded")
        if packed := sum(path.suffix in _PACKED for path in traces):
            unread.append(f"{words}: what is packed inside {packed} figures, arrays and archives, of which only the bytes")
    return tuple(found), tuple(unread)


def other_runs(targets: TraceTargets, folder: Path, run: Path) -> Place:
    """Other training runs, asked by their own index and key whether they were trained on erased records.

    Those that were stopped cannot be asked: each counts as found.

    Args:
        folder: where runs lie.
        run: the one that was updated.
    """
    runs = [path.parent for path in sorted(folder.rglob(RECORD_INDEX_FILE)) if path.parent.resolve() != run.resolve()]
    counts = {path: _trained_on(targets, path) for path in runs if "unlearning" not in path.relative_to(folder).parts}
    hits = {path.relative_to(folder).as_posix(): count for path, count in counts.items() if count}
    words = f"still trained on erased records: {few(hits)}: erase them there, too"
    words = words if hits else "none has an erased record"
    if closed := sum(count is None for count in counts.values()):
        words += f"; {closed} cannot be asked, as their key is gone"
    if stopped := _stopped(folder):
        names = few(path.relative_to(folder).as_posix() for path in stopped)
        words += f"; a training that was stopped: {names}; nothing tells whether the erased records are in it: resume and "
        words += "erase, or delete it"
    found = sum(hits.values()) + len(stopped)
    return Place("other training runs, by their records.bin", len(counts) + len(stopped), found, words)


def _stopped(folder: Path) -> list[Path]:
    """Checkpoints that trainings left, or write now: of commands, begun or not, and of programs, under any name."""
    begun = {path.parent for path in folder.rglob(f"{CHECKPOINTS}/{RUN}")}
    states = [(path, path.parents) for path in folder.rglob("step=*.safetensors")]
    return sorted(begun | {next((p for p in up if p.name == CHECKPOINTS), path.parent) for path, up in states})


def _place(words: str, folder: Path, traces: Mapping[Path, Counter[str]], targets: TraceTargets) -> Place:
    asked = (
        counted(len(targets.ids), "id"),
        counted(len(targets.unshared_rows), "row"),
        counted(len(targets.files), "file"),
    )
    sought = f"{', '.join(asked)} of the earlier state"
    hits = {path: counts for path, counts in traces.items() if any(counts[kind] for kind in _KINDS)}
    totals = {kind: sum(counts[kind] for counts in hits.values()) for kind in _KINDS}
    named = ", ".join(f"{kind}: {count}" for kind, count in totals.items() if count)
    names = ["(a name with an id)" if hits[path][_IN_NAME] else path.relative_to(folder).as_posix() for path in hits]
    found = f"{named} in {few(names)}; looked for {sought}" if hits else f"looked for {sought}; found nothing"
    return Place(words, len(traces), sum(totals.values()), found)


def _traces_in(path: Path, folder: Path, targets: TraceTargets) -> Counter[str]:
    """How many traces of each kind a file has."""
    if path.as_posix().endswith(f"/{KEY_FILE}"):
        return Counter()
    name = str(path.relative_to(folder)).encode(errors="replace")
    ids, rows, counts = set[bytes](), set[bytes](), Counter({_IN_NAME: int(bool(_ids_in(name, targets, text=False)))})
    try:
        counts[_STATE] = int(file_sha256(path) in targets.files)
        for content, text in _contents(path):
            ids |= _ids_in(content, targets, text)
            rows |= {pattern for pattern in targets.patterns if content.find(pattern) >= 0}
    except (OSError, ValueError, pa.ArrowException):
        counts[_UNREADABLE] = 1
    return counts + Counter({_IDS: len(ids), _ROWS: len(rows)})


def _contents(path: Path) -> Iterator[tuple[Any, bool]]:
    """(bytes or what can be searched like them, whether it is text) of a file, and of the columns of a parquet file."""
    if path.stat().st_size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content, path.suffix in _TEXT
    for batch in pq.ParquetFile(path).iter_batches() if path.suffix == ".parquet" else ():
        for column in batch.columns:
            values = column.flatten() if pa.types.is_nested(column.type) else column
            if pa.types.is_floating(values.type):
                yield values.to_numpy(zero_copy_only=False).tobytes(), False
            else:
                cells = (cell if isinstance(cell, bytes) else str(cell).encode() for cell in values.to_pylist())
                yield b"\n".join(cells), True


def _ids_in(content: Any, targets: TraceTargets, text: bool) -> set[bytes]:
    """The ids that a content has."""
    words, phrases, cells = targets.spellings
    found = {word for match in _WORD.finditer(content) if (word := match[0]) in words} if words else set()
    found |= {phrase for phrase in phrases if content.find(phrase) >= 0}
    if text and cells:
        found |= {word for match in _WHOLE.finditer(content) if (word := match[1].strip()) in cells}
    return found


def _ids_of(erased: Records, staying: Iterable[Records], more: Iterable[str] = ()) -> tuple[str, ...]:
    """The ids and units of erased records, and more, that nobody who stays has."""
    kept = {name for records in staying for name in (*records.ids.tolist(), *records.units.tolist())}
    names = dict.fromkeys((*erased.ids.tolist(), *erased.units.tolist(), *more))
    return tuple(name for name in names if name not in kept)


def _beside(run: Run) -> dict[str, Path]:
    """Where commands keep things that need not lie below output_dir."""
    encoder = (run.config.get("model") or {}).get("encoder") or {}
    kept = {"trained encoders (cache_dir)": encoder.get("cache_dir"), "ledgers": os.environ.get("AGT_LEDGER") or "ledgers"}
    return {"settings of your own (conf)": Path("conf")} | {words: Path(place) for words, place in kept.items() if place}


def _trained_on(targets: TraceTargets, run: Path) -> int | None:
    """How many erased records, or units, another run was trained on; None: it cannot be asked."""
    with suppress(AgtError, Broken, OSError):
        key, index, names = HashKey.of(run), Index.read((run / RECORD_INDEX_FILE).read_bytes()), list(targets.ids)
        if key is not None and key.check == index.key:
            units = index.ids[:0] if index.units is None else index.units
            hits = places(index.ids, key.names(names, "record")), places(units, key.names(names, "unit"))
            return max(map(len, hits))
    return None
