"""A request to erase, read: which training records the ids of a file name, and why not, where they
name none.

Messages name lines of the file, never an id: they are kept in records, in which an erased id is not
to be found.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from agt.data.csv_format import SEPARATORS
from agt.data.dataset import Dataset, DataSource
from agt.data.erasure import copy_groups, load_without_erased
from agt.data.files import open_columns
from agt.data.ids import CONTENT
from agt.data.records import Records
from agt.errors import ConfigError, few
from agt.store.folder import broken_as_config_error
from agt_cli.command_settings.unlearn import By
from agt_cli.places import check_file_of_ids, no_file_of_ids
from agt_cli.report.finished import Run
from agt_cli.runs.erased import predicate_for_hashes
from agt_cli.runs.prepare import RunSettings, run_without_records
from agt_cli.unlearn.log import (
    RECORD_INDEX_FILE,
    HashKey,
    Index,
    Log,
    as_words,
    check_asked,
    check_same,
    places,
)

INPUT = "-"
_LINE = re.compile("\r\n?|\n")  # what else str.splitlines cuts at, an id may hold
_SEVERAL = re.compile("[;,]")  # what separates ids where somebody writes several in one line
_COPIES = (
    "These ids are hashes of the content of records. Of several identical records, agt removes "
    "the last, and those that remain keep the ids of the first rows. So to erase an identical "
    "record of somebody else too, request the id of the first of the identical rows"
)
_TABLES = (".csv", ".tsv", ".parquet", ".npz", ".gz")


@dataclass(frozen=True)
class Request:
    """Records that are to be erased.

    Attributes:
        by: what the ids named.
        records, units: as an entry of the log has them.
        asked: how many different ids the file had.
        notes: what its owner should know, in sentences without ids.
        names: the ids as they came, to look for them afterwards; never written anywhere.
        untrained: how many of the people who are named have test records alone.
        test_records: how many test records the ids name.
        unknown: how many of the ids name no record of the data, which was allowed.
    """

    by: By
    records: tuple[str, ...]
    units: tuple[str, ...]
    asked: int
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    untrained: int = 0
    test_records: int = 0
    unknown: int = 0


@dataclass(frozen=True)
class TrainingRecords:
    """A run's training records: as its index has them, and as its data has them now.

    Attributes:
        index: of all that the state was trained on; what was asked for and waits is among them.
        data: without what was erased, its constants as they were.
        source: that loaded it.
        place: [n] where each training record of ``data`` stands in the index.
        gone: [.] the places of the others: of records that the data does not have any more.
        notes: for the owner.
        shown: features are made from the test records, whose declaration as public lets the model
            hold something of them.
        erased_earlier: records that earlier updates erased and the data still has; None: nothing
            was erased earlier.
    """

    log: Log
    key: HashKey
    index: Index
    data: Dataset
    source: DataSource
    place: np.ndarray
    gone: np.ndarray
    notes: tuple[str, ...] = ()
    shown: bool = False
    erased_earlier: Records | None = None

    @classmethod
    def of(cls, run: Run, settings: RunSettings) -> "TrainingRecords":
        """Read a run's data, and compare it with what was trained on. The caller holds the run.

        Raises:
            DataMissing, DataError: it cannot be loaded, or is other data; rows that are gone are
                looked at later.
        """
        log, source = Log.of(run), stated(run, settings)
        with broken_as_config_error(run.folder, run.key):
            there = log.entries or run.holds(RECORD_INDEX_FILE)
            key = (
                log.check_key(HashKey.of(run.folder))
                if there
                else HashKey.read_or_create(run.folder)
            )
        erased_earlier = None
        if log.erased:
            parted = load_without_erased(source, predicate_for_hashes(key, log.erased))
            data, erased_earlier = parted.remaining, parted.erased
        else:
            data = source.load()
        index, then = Index.of(run, key), run.environment.get("data_digest")
        if index is None and data.digest != then:
            raise ConfigError(
                f"run={run.folder}: the data of this run changed (digest at training: {then}, "
                f"digest now: {data.digest}). This run is too old to have an index of its "
                "records, so agt cannot find out which records are missing. Restore the data, "
                "or train again"
            )
        index = index or Index.from_records(data.train, key)
        gone, place = check_same(index, data.train, key, data.coding)
        notes: tuple[str, ...] = ()
        if not len(gone) and not log.waiting and data.digest != then:
            notes = (
                "the test records, or other records that training did not use, changed since "
                "training",
            )
        shown = settings.certificate.features.public == "test"
        return cls(log, key, index, data, source, place, gone, notes, shown, erased_earlier)

    def check(self, request: Request | None = None) -> None:
        """Raise DataError where rows are gone from the data that nobody asked to erase, now or
        before.
        """
        check_asked(
            self.index, self.gone, self.log.waiting | set(request.records if request else ())
        )

    @property
    def by(self) -> By:
        """What ids name where nobody says."""
        return "id" if self.index.units is None else "unit"

    @cached_property
    def row(self) -> np.ndarray:
        """[m] which record of the data each of the index is; -1: it is gone."""
        rows = np.full(len(self.index), -1)
        rows[self.place] = np.arange(len(self.place))
        return rows

    @cached_property
    def waiting(self) -> np.ndarray:
        """[m] bool: records that were asked for, and still are part of the state."""
        return np.array([word in self.log.waiting for word in self.index.words], dtype=bool)


def read_ids(path: str, source: object) -> list[tuple[str, str]]:
    """The ids of a file, as the data has them, each with the words for its place; in their order,
    and repeated ones, too.

    Args:
        path: a file of one id a line; a table, of which the column is read that the dataset's
            setting ``unit`` or ``id`` names, or its only one; or ``-``: lines of standard input.

    Raises:
        ConfigError, DataMissing, DataError: there are none, or it cannot be read.
    """
    if path != INPUT and Path(path).suffix.lower() in _TABLES:
        found = [(word, f"row {row + 1}") for row, word in enumerate(_column(Path(path), source))]
    else:
        found = [
            (line, f"line {number}") for number, line in enumerate(_lines(path), 1) if line.strip()
        ]
    if not found:
        raise ConfigError(
            f"ids={path}: the file contains no ids: write one id per line. To carry out the "
            "pending requests, leave ids=... out"
        )
    return found


def request_for(
    known: TrainingRecords,
    ids: Sequence[tuple[str, str]],
    by: By | None = None,
    path: str = INPUT,
    may_be_unknown: bool = False,
) -> Request:
    """The records that ids name.

    Args:
        known: the run's training records.
        ids: each with the words for its place.
        by: what they name; None: units where the data has some, else records.
        path: where they came from, for messages.
        may_be_unknown: ids that name no record of the data are counted and left out; False: they
            are refused.

    Returns:
        The request. It names no record if, with ``may_be_unknown``, no id names a training record.

    Raises:
        ConfigError: an id that names no training record, or one that was asked for before; or too
            little would be left.
    """
    by, as_given, test = by or known.by, ids, known.data.test
    tests = set((test.units if by == "unit" else test.ids).tolist())
    ids = _trimmed(known, ids, by, tests)
    unique = dict(reversed(ids))
    unique = {word: unique[word] for word, _ in ids}
    hits = _hits(known, list(unique), by)
    count = len(ids)
    unknown_notes: tuple[str, ...] = ()
    unknown = 0
    names = tuple(unique)  # other runs may have those that this one does not have
    if may_be_unknown:
        is_unknown = [
            not len(rows) and _is_of_nobody(known, word, tests, by)
            for word, rows in zip(unique, hits, strict=True)
        ]
        unknown = sum(is_unknown)
        if unknown:
            unknown_notes = (
                f"ids={path}: {unknown} of {len(unique)} ids are not in the data of this run. They "
                "were left out, because unknown=ignore",
            )
        hits = [rows for rows, left_out in zip(hits, is_unknown, strict=True) if not left_out]
        unique = {
            word: place
            for (word, place), left_out in zip(unique.items(), is_unknown, strict=True)
            if not left_out
        }
    missed = _missed(known, unique, hits, tests, by, path, may_be_unknown)
    notes = [*known.notes, *unknown_notes, *missed]
    repeated = count - len(unique)
    if repeated:
        notes.append(
            f"ids={path}: {repeated} of {count} lines repeat an earlier id; each id counts "
            "only once"
        )
    if trimmed := sum(given != word for (given, _), (word, _) in zip(as_given, ids, strict=True)):
        notes.append(
            f"ids={path}: blanks before or after {trimmed} of {count} ids were ignored, because "
            "no id in the data has such blanks"
        )
    is_test = np.isin(test.units if by == "unit" else test.ids, list(unique))
    test_records = int(is_test.sum())
    if may_be_unknown and not any(map(len, hits)):
        untrained = len(np.unique(test.units[is_test]))
        asked = len(unique) + unknown
        return Request(by, (), (), asked, tuple(notes), names, untrained, test_records, unknown)
    wanted = np.unique(np.concatenate([hit[~known.waiting[hit]] for hit in hits]))
    rows = known.row[wanted]
    if public := int(known.data.train.public[rows[rows >= 0]].sum()):
        raise ConfigError(
            f"ids={path}: {public} of the requested records are marked as public "
            "(dataset.public), but no method of erasure can remove public records. Train again "
            "without these records"
        )
    chosen = _last_copies(known, wanted) if by == "id" or known.index.units is None else wanted
    if set(chosen.tolist()) != set(wanted.tolist()):
        notes.append(
            "some requested records are identical to others. agt cannot tell identical records "
            "apart, so it removes the last of them, and the others keep their ids"
        )
    _check_left(known, chosen, path)
    records = tuple(sorted(known.index.words[row] for row in chosen.tolist()))
    units = records if known.index.units is None else as_words(known.index.units[chosen])
    untrained = _people_without(known, np.unique(test.units[is_test]), units)
    asked = len(unique) + unknown
    return Request(by, records, units, asked, tuple(notes), names, untrained, test_records, unknown)


def _people_without(known: TrainingRecords, people: np.ndarray, units: tuple[str, ...]) -> int:
    """Return how many of some people with test records are none of the units of a request.

    Args:
        known: the run's training records.
        people: the units of the test records that a request names.
        units: keyed hashes of the units of the training records that it names.
    """
    kind: Literal["record", "unit"] = "record" if known.index.units is None else "unit"
    hashes = as_words(known.key.names(people, kind))
    return len(set(hashes) - set(units))


def _trimmed(
    known: TrainingRecords, ids: Sequence[tuple[str, str]], by: By, tests: set[str]
) -> list[tuple[str, str]]:
    """The same without blanks at the ends of ids, where they name nothing with them."""
    odd = [word for word, _ in ids if word != word.strip()]
    unknown = {
        word
        for word, rows in zip(odd, _hits(known, odd, by), strict=True)
        if not len(rows) and _why(known, word, "", tests)[0] == "unknown"
    }
    return [(word.strip() if word in unknown else word, place) for word, place in ids]


def _hits(known: TrainingRecords, words: list[str], by: By) -> list[np.ndarray]:
    """For each id, the places in the index that it names."""
    by_unit = by == "unit" and known.index.units is not None
    column = known.index.units if by_unit and known.index.units is not None else known.index.ids
    hashes = known.key.names(words, "unit" if by_unit else "record")
    rows, groups = places(column, hashes), dict[bytes, list[int]]()
    for row in rows.tolist():
        groups.setdefault(column[row].tobytes(), []).append(row)
    return [np.array(groups.get(hashed.tobytes(), ()), dtype=np.int64) for hashed in hashes]


def _missed(
    known: TrainingRecords,
    ids: dict[str, str],
    hits: list[np.ndarray],
    tests: set[str],
    by: By,
    path: str,
    may_be_test_only: bool,
) -> Iterator[str]:
    """Refuse ids that name nothing; a note of those that are of test records alone, where others
    name something.

    Args:
        known: the run's training records.
        ids: id -> the words for its place.
        hits: for each id, the places in the index that it names.
        tests: the names that test records have.
        by: what the ids name.
        path: where they came from.
        may_be_test_only: ids of test records alone are no mistake, also where no other is given.
    """
    sorts: dict[str, list[str]] = {}
    for (word, place), rows in zip(ids.items(), hits, strict=True):
        if not len(rows) or known.waiting[rows].all():
            sort, where = _why(known, word, place, tests)
            sorts.setdefault(sort, []).append(where)

    def counted(sort: str) -> str:
        count = len(sorts[sort])
        places = few(sorts[sort])
        return f"{count} of {len(ids)} ids ({places})"

    if "asked" in sorts:
        requested = counted("asked")
        # a record like one that is gone may still be there
        of_content = all(map(CONTENT.fullmatch, ids))
        copies = f". {_COPIES}" if of_content else ""
        raise ConfigError(
            f"ids={path}: {requested} were already requested: remove them from the file. If you "
            "only want the report of the last erasure again, type agt unlearn without ids=..., "
            f"which writes it when no request is pending{copies}"
        )
    if "unknown" in sorts:
        for word, place in ids.items():
            if place in sorts["unknown"] and _lists_ids(known, word, tests, by):
                raise ConfigError(
                    f"ids={path}: {place} seems to list several ids: write one id per line"
                )
        unknown = counted("unknown")
        kind = "unit" if by == "unit" else "record"
        remedies = [
            "write the ids as they are in the data, or, if these people may be missing from this "
            "run, give unknown=ignore"
        ]
        if known.index.units is not None:
            other, meaning = ("id", "records") if by == "unit" else ("unit", "units (people)")
            remedies.append(f"If these are ids of {meaning}, give by={other}")
        if by == "id" and getattr(known.source, "id", "") is None:
            remedies.append(
                "In this run, the id of a record is a hash of its content (dataset.id=null). To "
                "request erasure by a column, train with dataset.id=COLUMN"
            )
        raise ConfigError(
            f"ids={path}: {unknown} are not ids of a {kind} in the run's data: "
            f"{'. '.join(remedies)}"
        )
    if "test" in sorts and known.shown:
        of_test = counted("test")
        raise ConfigError(
            f"ids={path}: {of_test} are ids of test records, but the model depends on these "
            "records, because its features were computed from them "
            "(certificate.features.public=test): delete their rows and train again"
        )
    if "test" in sorts:
        of_test = counted("test")
        words = f"ids={path}: {of_test} are ids of test records, which training did not use"
        if len(sorts["test"]) == len(ids) and not may_be_test_only:
            raise ConfigError(
                f"{words}. There is nothing to erase from the model. Delete the rows of these "
                "records from the data yourself; the run does not need these rows"
            )
        yield (
            f"{words}. These records are not part of this erasure. Delete their rows from the "
            "data yourself; the run does not need these rows"
        )


def _why(known: TrainingRecords, word: str, place: str, tests: set[str]) -> tuple[str, str]:
    """Why an id names no training record that could go, and where it stands."""
    names = {known.key.names([word], kind)[0].tobytes().hex() for kind in ("record", "unit")}
    for entry in known.log.entries:
        if names & {*entry.records, *entry.units}:
            return "asked", f"{place} (in entry {entry.number} of the request log)"
    return ("test" if word in tests else "unknown"), place


def _lists_ids(known: TrainingRecords, line: str, tests: set[str], by: By) -> bool:
    """Return whether one of the parts of a line, cut at commas and semicolons, is an id."""
    parts = [part.strip() for part in _SEVERAL.split(line)]
    if len(parts) < 2:
        return False
    if any(len(rows) for rows in _hits(known, parts, by)):
        return True
    return any(_why(known, part, "", tests)[0] != "unknown" for part in parts)


def _is_of_nobody(known: TrainingRecords, word: str, tests: set[str], by: By) -> bool:
    """Return whether an id names nothing in the data, in any way that a mistake may have meant it.

    An id of the other kind (``by``) and a line that lists several ids are mistakes, and are refused
    also where ids may be unknown.

    Args:
        known: the run's training records.
        word: the id, which names no training record.
        tests: the names that test records have.
        by: what ids name.
    """
    if _why(known, word, "", tests)[0] != "unknown" or _lists_ids(known, word, tests, by):
        return False
    other: By = "id" if by == "unit" else "unit"
    (rows,) = _hits(known, [word], other)
    test = known.data.test
    return not len(rows) and word not in (test.ids if other == "id" else test.units)


def _last_copies(known: TrainingRecords, wanted: np.ndarray) -> np.ndarray:
    """Places in the index: of identical records first those that the data lost, then the last
    ones (data/erasure.py).
    """
    present = wanted[known.row[wanted] >= 0]
    if not len(present):
        return wanted
    names = copy_groups(known.source, known.data.train)
    # a column names them: nobody goes in another's place
    if np.array_equal(names, known.data.train.ids):
        return wanted
    chosen = set(wanted[known.row[wanted] < 0].tolist())
    of_wanted = names[known.row[present]]
    alike = np.flatnonzero(np.isin(names, of_wanted))
    for family in dict.fromkeys(of_wanted.tolist()):
        members = known.place[alike[names[alike] == family]]
        count, lost = int((of_wanted == family).sum()), _lost_copies(known, members)
        free = [
            row
            for row in (*lost, *members[::-1].tolist())
            if row not in chosen and not known.waiting[row]
        ]
        chosen.update(free[:count])
    return np.array(sorted(chosen), dtype=np.int64)


def _lost_copies(known: TrainingRecords, members: np.ndarray) -> list[int]:
    """Places in the index of copies that the data does not have any more: their ids follow from one
    that it has.

    That the contents are alike is not enough: what was loaded may be coarser than the row.
    """
    alike = (known.index.contents[known.gone] == known.index.contents[members[0]]).all(axis=1)
    if not alike.any() or not hasattr(known.source, "copies"):
        return []
    name = str(known.data.train.ids[known.row[members[0]]])
    ids = known.source.copies(name, len(members) + int(alike.sum()))
    return known.gone[alike][
        places(known.index.ids[known.gone[alike]], known.key.names(ids, "record"))
    ].tolist()


def _check_left(known: TrainingRecords, chosen: np.ndarray, path: str) -> None:
    """Enough must be left to train on, before anything is changed."""
    train, left = known.data.train, np.ones(len(known.data.train), dtype=bool)
    rows = known.row[np.concatenate([chosen, np.flatnonzero(known.waiting)]).astype(np.int64)]
    left[rows[rows >= 0]] = False
    if not left.any():
        raise ConfigError(
            f"ids={path}: the file names every training record, so no data would be left to "
            "train on. Delete the run instead"
        )
    if known.data.target.numeric is not None:
        return  # a model of numbers needs no second class
    names = [known.data.classes[label] for label in np.unique(train.labels[left]).tolist()]
    if len(names) < 2:
        remaining_class = names[0]
        raise ConfigError(
            f"ids={path}: this erasure would remove the last training records of every class "
            f"except {remaining_class!r}, but a model needs two classes: train another model "
            "on other data, or delete the run"
        )


def stated(run: Run, settings: RunSettings) -> DataSource:
    """The run's data with the constants that it was trained with written down, so that records
    are read as then.
    """
    told, source = run_without_records(run, settings), settings.source
    before = {} if told is None else told.dataset_config.get("settled", {})
    return source.with_constants(before) if before and hasattr(source, "with_constants") else source


def _lines(path: str) -> list[str]:
    """The lines of a file of ids, or of standard input.

    Raises:
        DataMissing: there is no such file.
        ConfigError: it is a pipe or a device, which may never end, or no text in UTF-8.
    """
    try:
        if path == INPUT:
            content = sys.stdin.buffer.read()
        else:
            check_file_of_ids(path)
            content = Path(path).read_bytes()
        return _LINE.split(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise no_file_of_ids(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"ids={path}: agt cannot read the file ({error}): give a text file "
            "in UTF-8 that you may read"
        ) from None


def _column(path: Path, source: Any) -> list[str]:
    """The ids of a table, as the data's own are read."""
    names = (getattr(source, "unit", None), getattr(source, "id", None))
    form = getattr(source, "csv", None)
    columns = open_columns(path, "ids", csv_format=form)
    if columns.csv_format and len(columns.names) == 1:  # perhaps cut by another separator
        for separator in SEPARATORS:
            if set(columns.names[0].split(separator)) & set(names):
                columns = open_columns(
                    path, "ids", csv_format=replace(columns.csv_format, separator=separator)
                )
                break
    known = [name for name in names if name in columns.names]
    if not known and (len(columns.names) > 1 or columns.csv_format):
        raise ConfigError(
            f"ids={path}: no column of this file has the name of the dataset's id or unit "
            "column. Rename the column of ids, or write one id per line into a .txt file"
        )
    name = known[0] if known else columns.names[0]
    return columns.ids(name, "ids", as_text=True).tolist()
