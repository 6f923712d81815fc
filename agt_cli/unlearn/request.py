"""Read a request to erase: find the training records that the ids of a file name.

Messages name lines of the file, and never an id, because messages are stored in records, and no
record may contain an erased id.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from agt.data.dataset import Dataset, DataSource
from agt.data.erasure import copy_groups, load_without_erased
from agt.data.files import open_columns
from agt.data.header import SEPARATORS
from agt.data.ids import CONTENT
from agt.data.records import Records
from agt.errors import ConfigError, few
from agt.store.folder import broken_as_config_error
from agt_cli.command_settings.unlearn import By, no_column_of_ids
from agt_cli.places import TABLES_OF_IDS, check_file_of_ids, no_file_of_ids
from agt_cli.report.finished import Run
from agt_cli.runs.erased import predicate_for_hashes
from agt_cli.runs.prepare import RunSettings, run_without_records
from agt_cli.unlearn.hash_key import HashKey, KeyKind, as_words, hexadecimal
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.record_index import Index, check_missing_were_requested, check_same, places

INPUT = "-"
_LINE = re.compile("\r\n?|\n")  # what else str.splitlines cuts at, an id may hold
_SEVERAL = re.compile("[;,]")  # what separates ids where somebody writes several in one line
_COPIES = (
    "These ids are hashes of the content of records. Of several identical records, agt removes "
    "the last, and those that remain keep the ids of the first rows. So to erase an identical "
    "record of somebody else too, request the id of the first of the identical rows"
)
_COPIES_ERASED = (
    "some requested records are identical to others. agt cannot tell identical records "
    "apart, so it removes the last of them, and the others keep their ids"
)
_NAME_KINDS: tuple[KeyKind, ...] = ("record", "unit")


@dataclass(frozen=True)
class Request:
    """Training records that are to be erased.

    Attributes:
        by: what the ids name: records, or units (people) with all of their records.
        records: keyed hashes of the ids of these records, in increasing order, hexadecimal
            (``RequestEntry.records``). Empty if no id names a training record.
        units: keyed hashes of the units of these records, in the same form.
        asked: how many different ids the file had.
        notes: sentences for the data owner, without ids.
        names: the ids as they were given, with which other runs are searched; they are never
            written to a file.
        untrained: how many of the people whom the ids name have test records only.
        test_records: how many test records the ids name.
        unknown: how many ids name no record of the data, and were left out
            (``unknown=ignore``).
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
        notes: sentences for the data owner.
        features_use_test: whether the features were computed from the test records
            (certificate.features.public=test), so that the model depends on these, too.
        erased_earlier: records that earlier updates erased and that the data still has; None:
            nothing was erased earlier.
    """

    log: Log
    key: HashKey
    index: Index
    data: Dataset
    source: DataSource
    index_rows: np.ndarray
    missing: np.ndarray
    notes: tuple[str, ...] = ()
    features_use_test: bool = False
    erased_earlier: Records | None = None

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
        erased_earlier = None
        if log.erased:
            parted = load_without_erased(source, predicate_for_hashes(key, log.erased))
            data = parted.remaining
            erased_earlier = parted.erased
        else:
            data = source.load()
        index = Index.of(run, key)
        missing, index_rows = check_same(index, data.train, key, data.coding)
        notes: tuple[str, ...] = ()
        data_changed = data.digest != run.environment.get("data_digest")
        if not len(missing) and not log.waiting and data_changed:
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
            notes=notes,
            features_use_test=settings.certificate.features.public == "test",
            erased_earlier=erased_earlier,
        )

    def check(self, request: Request | None = None) -> None:
        """Raise DataError if the data lacks records whose erasure nobody requested.

        Args:
            request: the present request; None: only earlier requests count.
        """
        requested = self.log.waiting
        if request is not None:
            requested = requested | set(request.records)
        check_missing_were_requested(self.index, self.missing, requested)

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


def read_ids(path: str, source: object) -> list[tuple[str, str]]:
    """Return the ids of a file in their order, repeated ones too, each with its place in the file.

    Args:
        path: a text file with one id on each line; a table, of which the column is read that the
            dataset's setting ``unit`` or ``id`` names, or its only column; or ``-`` for lines of
            standard input.
        source: the dataset, which names the columns and says how its tables are read.

    Returns:
        Pairs (id, place), such as ("p17", "line 3"). Messages use the place instead of the id.

    Raises:
        ConfigError, DataMissing, DataError: there are no ids, or the file cannot be read.
    """
    if path != INPUT and Path(path).suffix.lower() in TABLES_OF_IDS:
        ids = [(word, f"row {row + 1}") for row, word in enumerate(_column(Path(path), source))]
    else:
        ids = [
            (line, f"line {number}") for number, line in enumerate(_lines(path), 1) if line.strip()
        ]
    if not ids:
        raise ConfigError(
            f"ids={path}: the file contains no ids: write one id per line. To carry out the "
            "pending requests, leave ids=... out"
        )
    return ids


Match = Literal["training", "asked", "test", "unknown"]
"""What an id of a request names: training records that can be erased; records whose erasure was
requested before; test records only; or no record of the data.
"""


@dataclass(frozen=True)
class RequestedId:
    """An id of a request, and what it names.

    Attributes:
        name: the id.
        place: its place in the file, such as "line 3"; if its erasure was requested before, also
            the entry of the request log.
        rows: the rows in the index of the training records that it names.
        match: what it names.
    """

    name: str
    place: str
    rows: np.ndarray
    match: Match


@dataclass(frozen=True)
class IdLookup:
    """Finds what the ids of a request name in a run's data.

    Attributes:
        known: the run's training records.
        by: what the ids name: records, or units with all of their records.
    """

    known: TrainingRecords
    by: By

    @cached_property
    def test_names(self) -> np.ndarray:
        """[t] the names that the test records have, of records or units."""
        test = self.known.data.test
        return test.units if self.by == "unit" else test.ids

    @cached_property
    def is_named_by_content(self) -> bool:
        """Whether ids can only be hashes of the content of records."""
        if self.by == "unit" and self.known.index.units is not None:
            return False
        # A class of the user's own may have a setting ``id`` and make ids of another form.
        is_hash = CONTENT.fullmatch(str(self.known.data.train.ids[0])) is not None
        return is_hash and getattr(self.known.source, "id", "") is None

    @cached_property
    def _distinct_test_names(self) -> set[str]:
        """The different names among ``test_names``, for a fast search."""
        return set(self.test_names.tolist())

    def find(self, ids: Sequence[tuple[str, str]]) -> list[RequestedId]:
        """Return the records that each distinct id names, in the order of the file.

        Args:
            ids: pairs (id, place in the file). Of a repeated id, the first place is taken.
        """
        places_of_names: dict[str, str] = {}
        for name, place in ids:
            places_of_names.setdefault(name, place)
        requested_ids = []
        for (name, place), rows in zip(
            places_of_names.items(), self.index_rows([*places_of_names], self.by), strict=True
        ):
            match = self._match(name, rows)
            if match == "asked":
                place = f"{place} (in entry {self._entry_of(name)} of the request log)"
            requested_ids.append(RequestedId(name, place, rows, match))
        return requested_ids

    def index_rows(self, names: list[str], by: By) -> list[np.ndarray]:
        """Return for each name the rows in the index that it names; an empty array: there is none.

        Args:
            names: the names.
            by: what they name. Without units in the data, they name records in any case.
        """
        units = self.known.index.units if by == "unit" else None
        column = self.known.index.ids if units is None else units
        hashes = self.known.key.names(names, "record" if units is None else "unit")
        groups = dict[bytes, list[int]]()
        for row in places(column, hashes).tolist():
            groups.setdefault(column[row].tobytes(), []).append(row)
        return [np.array(groups.get(hashed.tobytes(), ()), dtype=np.int64) for hashed in hashes]

    def _match(self, name: str, rows: np.ndarray) -> Match:
        """Return what an id names, given the rows in the index that it names."""
        if not self.known.is_pending[rows].all():
            return "training"
        if self._entry_of(name) is not None:
            return "asked"
        return "test" if name in self._distinct_test_names else "unknown"

    def _entry_of(self, name: str) -> int | None:
        """Return the number of the first entry of the request log that names an id; None: none."""
        key = self.known.key
        hashes = {hexadecimal(key.names([name], kind)[0]) for kind in _NAME_KINDS}
        entries = self.known.log.entries
        return next((e.number for e in entries if hashes & {*e.records, *e.units}), None)

    def lists_ids(self, line: str) -> bool:
        """Return whether a line that is no id lists several.

        It does if one of its parts, cut at commas and semicolons, is an id; or if all of its words
        are, because an id may have blanks.
        """
        parts = [(part.strip(), "") for part in _SEVERAL.split(line)]
        if len(parts) > 1:
            return any(part.match != "unknown" for part in self.find(parts))
        words = [(word, "") for word in line.split()]
        return len(words) > 1 and all(word.match != "unknown" for word in self.find(words))

    def is_header(self, line: str) -> bool:
        """Return whether a line is the name of the data's column of ids or of units."""
        columns = (getattr(self.known.source, name, None) for name in ("id", "unit"))
        return line in columns

    def may_be_ignored(self, requested: RequestedId) -> bool:
        """Return whether an id is unknown, and is not a mistake.

        An id of the other kind (``by``) and a line that lists several ids are mistakes, which are
        refused also where ids may be unknown. So is an id that is no hash where hashes of content
        name the records, because it could not be found even if the person's records are there.
        """
        if requested.match != "unknown" or self.lists_ids(requested.name):
            return False
        if self.is_header(requested.name):
            return False
        if self.is_named_by_content and not CONTENT.fullmatch(requested.name):
            return False
        other = IdLookup(self.known, "id" if self.by == "unit" else "unit")
        (rows,) = other.index_rows([requested.name], other.by)
        return not len(rows) and requested.name not in other.test_names


def request_for(
    known: TrainingRecords,
    ids: Sequence[tuple[str, str]],
    by: By | None = None,
    path: str = INPUT,
    may_be_unknown: bool = False,
) -> Request:
    """Return the request to erase the training records that some ids name.

    Args:
        known: the run's training records.
        ids: pairs (id, place in the file), as ``read_ids`` returns them.
        by: what the ids name; None: units where the data has some, else records.
        path: the file that the ids came from, for messages.
        may_be_unknown: whether ids that name no record of the data are counted and left out;
            False: they are refused.

    Returns:
        The request. It names no training record if no id does.

    Raises:
        ConfigError: an id names no record, or its erasure was requested before; a requested record
            is public; or too few records would remain to train on.
    """
    lookup = IdLookup(known, by or known.by)
    # Blanks at the ends of an id are ignored, unless an id of the data has them.
    with_blanks = lookup.find([(name, place) for name, place in ids if name != name.strip()])
    trimmed = {requested.name for requested in with_blanks if requested.match == "unknown"}
    trimmed_ids = [
        (name.strip(), place) if name in trimmed else (name, place) for name, place in ids
    ]
    distinct_ids = lookup.find(trimmed_ids)
    requested = [
        requested_id
        for requested_id in distinct_ids
        if not (may_be_unknown and lookup.may_be_ignored(requested_id))
    ]
    _check_not_requested_before(requested, path)
    _check_known(lookup, requested, path)
    _check_test_records(known, requested, path)
    requested_rows = _rows_to_erase(known, requested, path)
    chosen = requested_rows
    if lookup.by == "id" or known.index.units is None:
        chosen = _last_copies(known, requested_rows)
    if len(chosen):
        _check_enough_remain(known, chosen, path)
    records = tuple(sorted(known.index.words[row] for row in chosen.tolist()))
    units = records if known.index.units is None else as_words(known.index.units[chosen])
    is_test = np.isin(lookup.test_names, [requested_id.name for requested_id in requested])
    notes = (*known.notes, *_notes(ids, distinct_ids, requested, trimmed, path))
    if not np.array_equal(chosen, requested_rows):
        notes = (*notes, _COPIES_ERASED)
    return Request(
        by=lookup.by,
        records=records,
        units=units,
        asked=len(distinct_ids),
        notes=notes,
        # other runs may have any of them
        names=tuple(requested_id.name for requested_id in distinct_ids),
        untrained=_people_without(known, np.unique(known.data.test.units[is_test]), units),
        test_records=int(is_test.sum()),
        unknown=len(distinct_ids) - len(requested),
    )


def _rows_to_erase(
    known: TrainingRecords, requested: Sequence[RequestedId], path: str
) -> np.ndarray:
    """Return the rows in the index of the requested records whose erasure is not pending yet.

    Args:
        known: the run's training records.
        requested: the ids of the request.
        path: the file that they came from, for the message.

    Raises:
        ConfigError: a requested record is public.
    """
    named = np.concatenate(
        [np.empty(0, np.int64), *(requested_id.rows for requested_id in requested)]
    )
    requested_rows = np.unique(named[~known.is_pending[named]])
    rows = known.data_rows[requested_rows]
    if public := int(known.data.train.public[rows[rows >= 0]].sum()):
        raise ConfigError(
            f"ids={path}: {public} of the requested records are marked as public "
            "(dataset.public), but no method of erasure can remove public records. Train again "
            "without these records"
        )
    return requested_rows


def _people_without(known: TrainingRecords, people: np.ndarray, units: tuple[str, ...]) -> int:
    """Return how many of some people with test records are none of the units of a request.

    Args:
        known: the run's training records.
        people: the units of the test records that a request names.
        units: keyed hashes of the units of the training records that it names.
    """
    hashes = as_words(known.key.names(people, "record" if known.index.units is None else "unit"))
    return len(set(hashes) - set(units))


def _notes(
    ids: Sequence[tuple[str, str]],
    distinct_ids: Sequence[RequestedId],
    requested: Sequence[RequestedId],
    trimmed: set[str],
    path: str,
) -> Iterator[str]:
    """Yield notes for the owner on ids that were left out or changed, and on test records.

    Args:
        ids: pairs (id, place in the file), as they were read.
        distinct_ids: the different ids.
        requested: those of them that were not left out, as ids of no record of the data.
        trimmed: the ids whose blanks at the ends were ignored, with these blanks.
        path: the file.
    """
    ignored = len(distinct_ids) - len(requested)
    if ignored:
        yield (
            f"ids={path}: {ignored} of {len(distinct_ids)} ids are not in the data of this run. "
            "They were left out, because unknown=ignore"
        )
    of_test = _describe_ids(requested, "test")
    if of_test:
        yield (
            f"ids={path}: {of_test} are ids of test records, which training did not use. These "
            "records are not part of this erasure. Delete their rows from the data yourself; the "
            "run does not need these rows"
        )
    repeated = len(ids) - len(distinct_ids)
    if repeated:
        yield (
            f"ids={path}: {repeated} of {len(ids)} lines repeat an earlier id; each id counts "
            "only once"
        )
    if trimmed:
        count = sum(name in trimmed for name, _ in ids)
        yield (
            f"ids={path}: blanks before or after {count} of {len(ids)} ids were ignored, because "
            "no id in the data has such blanks"
        )


def _describe_ids(requested: Sequence[RequestedId], match: Match) -> str:
    """Return how many ids of a request have a match, and their places; empty: none has it."""
    lines = [requested_id.place for requested_id in requested if requested_id.match == match]
    return f"{len(lines)} of {len(requested)} ids ({few(lines)})" if lines else ""


def _check_not_requested_before(requested: Sequence[RequestedId], path: str) -> None:
    """Raise ConfigError if the erasure of an id was requested before.

    Args:
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    before = _describe_ids(requested, "asked")
    if not before:
        return
    # A record that is identical to an erased one may still be there.
    are_of_content = all(CONTENT.fullmatch(requested_id.name) for requested_id in requested)
    copies = f". {_COPIES}" if are_of_content else ""
    raise ConfigError(
        f"ids={path}: {before} were already requested: remove them from the file. If you "
        "only want the report of the last erasure again, type agt unlearn without ids=..., "
        f"which writes it when no request is pending{copies}"
    )


def _check_known(lookup: IdLookup, requested: Sequence[RequestedId], path: str) -> None:
    """Raise ConfigError if an id names no record of the data. The message says what may be meant.

    Args:
        lookup: what found the ids.
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    unknown = [requested_id for requested_id in requested if requested_id.match == "unknown"]
    if not unknown:
        return
    for requested_id in unknown:
        if lookup.is_header(requested_id.name):
            raise ConfigError(
                f"ids={path}: {requested_id.place} is the name of the column of ids: remove this "
                "line"
            )
        if lookup.lists_ids(requested_id.name):
            raise ConfigError(
                f"ids={path}: {requested_id.place} seems to list several ids: write one id per line"
            )
    kind = "record"
    by_other = "If these are ids of units (people), give by=unit"
    if lookup.by == "unit":
        kind = "unit"
        by_other = "If these are ids of records, give by=id"
    remedies = [
        "write the ids as they are in the data, or, if these people may be missing from this "
        "run, give unknown=ignore"
    ]
    # With unknown=ignore, only ids of another form come here (IdLookup.may_be_ignored).
    are_hashes = all(CONTENT.fullmatch(requested_id.name) for requested_id in requested)
    if lookup.is_named_by_content and not are_hashes:
        remedies = [
            "in this run, the id of a record is a hash of its content (dataset.id=null), 32 "
            "hexadecimal digits, so no other id can be found in it, also with unknown=ignore. "
            "To erase by the ids of a column, train again with dataset.id=COLUMN, erase in "
            "the new run, and delete the folder of this run"
        ]
    if lookup.known.index.units is not None:
        remedies.append(by_other)
    described = _describe_ids(requested, "unknown")
    raise ConfigError(
        f"ids={path}: {described} are not ids of a {kind} in the run's data: {'. '.join(remedies)}"
    )


def _check_test_records(
    known: TrainingRecords, requested: Sequence[RequestedId], path: str
) -> None:
    """Raise ConfigError for ids of test records that the model depends on.

    Args:
        known: the run's training records.
        requested: the ids of the request.
        path: the file that they came from, for the message.
    """
    of_test = _describe_ids(requested, "test")
    if of_test and known.features_use_test:
        raise ConfigError(
            f"ids={path}: {of_test} are ids of test records, but the model depends on these "
            "records, because its features were computed from them "
            "(certificate.features.public=test): delete their rows and train again"
        )


def _last_copies(known: TrainingRecords, requested_rows: np.ndarray) -> np.ndarray:
    """Return the records to erase instead of some requested ones, if others are identical to them.

    Ids that are made from content number identical records in their order. So if one of them is
    removed from the data, the last id disappears (agt/data/erasure.py). Of identical records,
    those that the data lacks are taken first, and then the last ones.

    Args:
        known: the run's training records.
        requested_rows: rows in the index of the requested records.

    Returns:
        As many rows in the index, in increasing order; ``requested_rows`` itself if a column gives
        ids.
    """
    present = requested_rows[known.data_rows[requested_rows] >= 0]
    if not len(present):
        return requested_rows
    names = copy_groups(known.source, known.data.train)
    # A column names the records, so none is erased instead of another.
    if np.array_equal(names, known.data.train.ids):
        return requested_rows
    chosen = set(requested_rows[known.data_rows[requested_rows] < 0].tolist())
    of_requested = names[known.data_rows[present]]
    alike = np.flatnonzero(np.isin(names, of_requested))
    for family in dict.fromkeys(of_requested.tolist()):
        members = known.index_rows[alike[names[alike] == family]]
        count = int((of_requested == family).sum())
        missing_first = (*_lost_copies(known, members), *members[::-1].tolist())
        free = [row for row in missing_first if row not in chosen and not known.is_pending[row]]
        chosen.update(free[:count])
    return np.array(sorted(chosen), dtype=np.int64)


def _lost_copies(known: TrainingRecords, members: np.ndarray) -> list[int]:
    """Return the rows in the index of copies of a record that the data does not have any more.

    A missing record is a copy if its content is the same and its id is one that a copy would have.
    The content alone is not enough, because different rows may be loaded as the same features.

    Args:
        known: the run's training records.
        members: rows in the index of all identical records that the data has, at least one.
    """
    alike = (known.index.contents[known.missing] == known.index.contents[members[0]]).all(axis=1)
    if not alike.any() or not hasattr(known.source, "copies"):
        return []
    name = str(known.data.train.ids[known.data_rows[members[0]]])
    ids = known.source.copies(name, len(members) + int(alike.sum()))
    return known.missing[alike][
        places(known.index.ids[known.missing[alike]], known.key.names(ids, "record"))
    ].tolist()


def _check_enough_remain(known: TrainingRecords, chosen: np.ndarray, path: str) -> None:
    """Raise ConfigError if too few records would remain to train on: none, or only one class.

    Args:
        known: the run's training records.
        chosen: rows in the index of the records that are to be erased, besides pending ones.
        path: the file of ids, for the message.
    """
    train = known.data.train
    is_remaining = np.ones(len(train), dtype=bool)
    rows = known.data_rows[
        np.concatenate([chosen, np.flatnonzero(known.is_pending)]).astype(np.int64)
    ]
    is_remaining[rows[rows >= 0]] = False
    if not is_remaining.any():
        raise ConfigError(
            f"ids={path}: the file names every training record, so no data would be left to "
            "train on. Delete the run instead"
        )
    if known.data.target.numeric is not None:
        return  # a model of numbers needs no second class
    names = [known.data.classes[label] for label in np.unique(train.labels[is_remaining]).tolist()]
    if len(names) < 2:
        remaining_class = names[0]
        raise ConfigError(
            f"ids={path}: this erasure would remove the last training records of every class "
            f"except {remaining_class!r}, but a model needs two classes: train another model "
            "on other data, or delete the run"
        )


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


def _lines(path: str) -> list[str]:
    """Return the lines of a file of ids, or of standard input.

    Args:
        path: the file, or ``-``.

    Raises:
        DataMissing: there is no such file.
        ConfigError: the file is a pipe or a device, which may never end, or is not UTF-8 text.
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
    """Return the ids in a table, read in the same way as those of the data.

    Args:
        path: the table.
        source: the dataset, whose column of units, else of ids, is looked for.

    Raises:
        ConfigError: the table has several columns, and none of them has such a name.
    """
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
        raise no_column_of_ids(path)
    name = known[0] if known else columns.names[0]
    return columns.ids(name, "ids", as_text=True).tolist()
