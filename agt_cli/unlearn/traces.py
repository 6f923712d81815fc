"""Search other training runs for records that were erased from a run.

Each run has an index of the records that it was trained on, with hashes of their ids under a key of
its own. So there are two ways to find erased records in it:

- by their ids, hashed with its key. The ids are known while a request is carried out, and later as
  long as the data has the rows;
- by that run's own hashes of them, which the request log of the run that was erased from stores
  when a request is carried out (``SEARCHED_RUNS``).

A run that could be searched in neither way for everything that the update erases is listed as not
searched; and so is an earlier state of a run that was restored, which has the key of the run and
more of its records. An unfinished training has no index, so it is listed in any case. Files beside
runs are not searched.

Results have counts and the paths of folders; no id is written to a file.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.errors import AgtError, ConfigError
from agt.store.manifest import Manifest
from agt.store.reading import MAX_FILE_BYTES, Broken
from agt.unlearning.sentences import Remark, Value
from agt_cli.command_settings.unlearn import By
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.finished import Run
from agt_cli.unlearn.account import Place, TraceSearch
from agt_cli.unlearn.hash_key import SIZE, HashKey, as_words, hexadecimal
from agt_cli.unlearn.ids_file import INPUT
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry
from agt_cli.unlearn.methods import own_learner_of
from agt_cli.unlearn.name_columns import NameColumns
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE, Index, places
from agt_cli.unlearn.request import Request
from agt_cli.unlearn.trainings import find_trainings

SEARCHED_RUNS = "searched_runs"
"""The entry in the facts of a request with the results of the search.

It maps the key of each other run to ``records``, that run's own hashes of erased records that it
has; and to ``states``, the digests of its states that were searched for everything that the update
erases. Versions before 0.22 also stored ``indexes``, which is not read.
"""
MAX_INDEX_BYTES = 2**34
UNKNOWN_COLUMNS = NameColumns()
TRACE_CODES = ("trained_on_erased", "learner_trained_on_erased")
UNSEARCHED_CODES = (
    "searched_in_part",
    "named_by_content",
    "of_other_tables",
    "named_by_other_columns",
    "key_missing",
    "index_not_readable",
    "index_missing",
    "training_unfinished",
    "folder_not_listed",
)
"""Why a training was not searched for everything; each is the code of a sentence."""


@dataclass(frozen=True)
class SearchedRequest:
    """A request that an update carried out, as far as other runs can be searched for it.

    Attributes:
        number: the number of its entry in the request log.
        by: what its ids name: records, or units (people) with all of their records.
        is_named: whether all that it names is known by name (``TraceTargets.ids``). It is not if
            rows of erased records were deleted from the data, or if an earlier request named people
            without training records, whose ids no file stores.
    """

    number: int
    by: By
    is_named: bool


@dataclass(frozen=True)
class StoredSearch:
    """What a log's entry stores of the search in the runs with one key (``SEARCHED_RUNS``).

    The default is what it stores of runs that were not searched.

    Attributes:
        records: the runs' own hashes of the erased records that were found.
        states: the digests of the runs that were searched for everything.
    """

    records: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TraceTargets:
    """Erased records, in the form in which other runs are searched for them.

    Attributes:
        ids: names of the records that were erased from the run, now or earlier, and of units of
            which no record is left, as far as the data has them; of the test records of the people
            who asked; and all names that the present request gave.
        requests: the requests that the update carried out.
        columns: how the run's data name records and people.
        entries: the request log, without a request that is being carried out. It says what earlier
            searches found.
        rows: how many of the erased records still have a row in the run's own data.
        test_rows: how many test records of the people still have a row there.
    """

    ids: tuple[str, ...]
    requests: tuple[SearchedRequest, ...] = ()
    columns: NameColumns = UNKNOWN_COLUMNS
    entries: tuple[RequestEntry, ...] = ()
    rows: int = 0
    test_rows: int = 0

    @classmethod
    def of(
        cls,
        run: Run,
        key: HashKey,
        log: Log,
        erased: Sequence[Records],
        remaining: Dataset,
        request: Request | None = None,
    ) -> "TraceTargets":
        """Return the targets of a run's update.

        Args:
            run: the run that records are erased from.
            key: its key.
            log: its request log, without the present request.
            erased: the records that were or are erased from it, as far as the data has them.
            remaining: the run's data without them.
            request: the request that is carried out; None: the update is that of the log's last
                entry, and only what the data still has is known of it.
        """
        test = remaining.test
        is_requested = _belongs_to_people(test, key, log.entries)
        names: tuple[str, ...] = ()
        if request is not None:
            names = request.names
            is_requested |= np.isin(test.units if request.by == "unit" else test.ids, names)
        staying = (remaining.train, test.take(~is_requested))
        ids_of_people = test.take(is_requested).ids.tolist()
        ids = _names_to_search(erased, staying, (*names, *ids_of_people))
        hashes = {*as_words(key.names(ids, "record")), *as_words(key.names(ids, "unit"))}
        earlier = log.batch(len(log.entries)) if request is None else log.pending
        requests = list[SearchedRequest]()
        for entry in earlier:
            if entry.records:
                is_named = _has_names(entry) and hashes.issuperset(_hashes_of(entry))
                requests.append(SearchedRequest(entry.number, entry.by, is_named))
        if request is not None and names:
            is_named = hashes.issuperset(_hashes_of(request))
            requests.append(SearchedRequest(len(log.entries) + 1, request.by, is_named))
        return cls(
            ids=ids,
            requests=tuple(requests),
            columns=NameColumns.of(run),
            entries=log.entries,
            rows=sum(map(len, erased)),
            test_rows=int(is_requested.sum()),
        )

    def stored_searches(self, key: str) -> dict[int, StoredSearch]:
        """Return what each entry of the log, by its number, stores of the runs with a key."""
        return {
            entry.number: read_searches(entry).get(key, StoredSearch()) for entry in self.entries
        }

    @property
    def keys_with_traces(self) -> set[str]:
        """The keys of the runs in which the searches of this update found erased records."""
        first_number = min((request.number for request in self.requests), default=0)
        keys = set[str]()
        for entry in self.entries:
            if entry.number < first_number:
                continue  # of an earlier update
            for key, search in read_searches(entry).items():
                if search.records:
                    keys.add(key)
        return keys


@dataclass(frozen=True)
class OtherTraining:
    """What is known of erased records in another training.

    Attributes:
        path: its folder.
        codes: codes of the sentences that name it: that it has erased records (``TRACE_CODES``),
            and why it was not searched for everything (``UNSEARCHED_CODES``); empty: it was, and
            has none.
        records: its own hashes of the erased records that it has.
        key: identifies the key of its index (``HashKey.check``); empty: it has none to read.
        state: the digest of the run; empty: it has no index to read.
        table: the name of its data; empty: not known.
    """

    path: Path
    codes: tuple[str, ...]
    records: tuple[str, ...] = ()
    key: str = ""
    state: str = ""
    table: str = ""

    @property
    def is_searched(self) -> bool:
        """Whether it was searched for every record and person of the update."""
        return not set(UNSEARCHED_CODES).intersection(self.codes)

    @property
    def traces(self) -> int:
        """How many traces it has; an unfinished training, of which nothing is known, is one."""
        return len(self.records) + self.codes.count("training_unfinished")


def search(
    targets: TraceTargets, run: Run, records: Sequence[Path], ids: str | None = None
) -> TraceSearch:
    """Search other training runs for the records that were erased from a run.

    Args:
        targets: the erased records.
        run: the run that they were erased from.
        records: the folders in which other runs are looked for (output_dir): that of this command
            first, then that of the run, if it is another one.
        ids: the file of the request; None, or ``-``: there is no file.
    """
    unlooked = [
        Remark("files_beside_runs"),
        Remark("other_folders"),
        Remark("releases_handed_on"),
    ]
    if targets.rows:
        unlooked.append(Remark("rows_in_own_data", {"rows": targets.rows}))
    else:
        unlooked.append(Remark("no_rows_in_own_data"))
    if targets.test_rows:
        unlooked.append(Remark("test_rows_in_own_data", {"rows": targets.test_rows}))
    unnamed = sum(_people_with_test_records_only(entry) for entry in targets.entries)
    if unnamed:
        unlooked.append(Remark("test_rows_not_looked_for", {"units": unnamed}))
    if ids not in (None, INPUT):
        unlooked.append(Remark("file_of_ids"))
    if any((folder / SHADOWS).exists() for folder in records):
        unlooked.append(Remark("shadow_models"))
    return TraceSearch(search_places(targets, records, run.folder), tuple(unlooked))


def search_places(targets: TraceTargets, folders: Sequence[Path], run: Path) -> tuple[Place, ...]:
    """Return the result of searching the runs below each of some folders.

    Args:
        targets: the erased records.
        folders: the folders below which runs are searched.
        run: the folder of the run that was updated.
    """
    others = _search_folders(targets, folders, run)
    keys = {other.key for other in chain.from_iterable(others.values())}
    missing_runs = len(targets.keys_with_traces - keys)
    results = list[Place]()
    for folder, trainings in others.items():
        results.append(_place_of(targets, folder, trainings, missing_runs))
        missing_runs = 0  # they are in no folder, so they are counted once, in the first
    return tuple(results)


def searched_runs(
    targets: TraceTargets, run: Path, folders: Sequence[Path]
) -> dict[str, dict[str, list[str]]]:
    """Search other runs, and return what the request log stores of it (``SEARCHED_RUNS``).

    Args:
        targets: the records that are erased.
        run: the folder of the run that they are erased from.
        folders: where other runs lie.
    """
    # Copies and states of one run have one key, so the states are stored, too.
    stored = dict[str, dict[str, list[str]]]()
    for other in chain.from_iterable(_search_folders(targets, folders, run).values()):
        if not other.key or not (other.is_searched or other.records):
            continue
        search = stored.setdefault(other.key, {"records": [], "states": []})
        search["records"] = sorted({*search["records"], *other.records})
        if other.is_searched:
            search["states"] = sorted({*search["states"], other.state})
    return stored


def _search_folders(
    targets: TraceTargets, folders: Sequence[Path], run: Path
) -> dict[Path, list[OtherTraining]]:
    """Return what is known of each other training below some folders.

    Args:
        targets: the erased records.
        folders: the folders. A training that is below two of them is listed in the first.
        run: the folder of the run that records are erased from, which is left out.
    """
    others = dict[Path, list[OtherTraining]]()
    listed = {(run.resolve(), "indexed")}
    for folder in folders:
        others[folder] = []
        for path, kind in sorted(find_trainings(folder)):
            if (path.resolve(), kind) in listed:
                continue
            listed.add((path.resolve(), kind))
            if kind == "indexed":
                others[folder].append(search_run(targets, path))
            else:
                others[folder].append(OtherTraining(path, (kind,)))
    return others


def _place_of(
    targets: TraceTargets, folder: Path, others: Sequence[OtherTraining], missing_runs: int
) -> Place:
    """Return the result of searching the trainings below one folder, as the account states it.

    Args:
        targets: the erased records.
        folder: the folder.
        others: what is known of each training there.
        missing_runs: how many runs had traces when the records were erased, and are in no folder
            now.
    """
    remarks = list[Remark]()
    for code in (*TRACE_CODES, *UNSEARCHED_CODES):
        named = [other for other in others if code in other.codes]
        if not named:
            continue
        values: dict[str, Value] = {
            "runs": tuple(other.path.relative_to(folder).as_posix() for other in named)
        }
        if code == "named_by_content":
            values["settings"] = targets.columns.settings or "dataset.id=COLUMN"
        if code == "of_other_tables":
            values["tables"] = tuple(sorted({other.table for other in named}))
        remarks.append(Remark(code, values))
    without_traces = sum(not other.codes for other in others)
    if without_traces:
        remarks.append(Remark("no_trace_in_runs", {"runs": without_traces}))
    if missing_runs:
        remarks.append(Remark("runs_gone", {"runs": missing_runs}))
    if not others and not missing_runs:
        remarks.append(Remark("no_other_runs"))
    return Place(
        place=Remark("other_runs"),
        runs=len(others) + missing_runs,
        found=sum(other.traces for other in others),
        remarks=tuple(remarks),
        searched=sum(other.is_searched for other in others),
    )


def search_run(targets: TraceTargets, folder: Path) -> OtherTraining:
    """Search the index of another training run for erased records that it was trained on.

    Args:
        targets: the erased records.
        folder: the folder of the other run, which nothing has verified.
    """
    try:
        manifest = Manifest.open(folder)
        index = Index.read(manifest.load(folder, RECORD_INDEX_FILE, MAX_INDEX_BYTES))
    except (AgtError, Broken, OSError):
        return OtherTraining(folder, ("index_not_readable",))
    run = Run.at(folder)
    columns = NameColumns.of(run)
    key = _key_of_index(folder, index)
    searches = targets.stored_searches(index.key)
    found_before = frozenset().union(*(search.records for search in searches.values()))
    found = _rows_hashed(index, found_before)
    if key is not None:
        found = np.union1d(found, _rows_named(index, key, targets.ids))
    codes = list[str]()
    if len(found):
        has_own_learner = own_learner_of(run.config) is not None
        codes.append("learner_trained_on_erased" if has_own_learner else "trained_on_erased")
    # If an earlier state was searched, the present one counts as searched: it has no other records.
    states = {manifest.digest} | _earlier_states(folder, manifest)
    searched_at = [number for number, search in searches.items() if states & search.states]
    searched_until = max(searched_at, default=0)
    later = [request for request in targets.requests if request.number > searched_until]
    if key is None and later:
        codes.append("key_missing")
    elif not all(
        request.is_named and targets.columns.shares(request.by, columns) for request in later
    ):
        codes.append(_code_of_names(targets.columns, columns))
    return OtherTraining(
        path=folder,
        codes=tuple(codes),
        records=as_words(index.ids[found]),
        key=index.key,
        state=manifest.digest,
        table=columns.table,
    )


def _code_of_names(own: NameColumns, other: NameColumns) -> str:
    """Return the code of the reason why a run was not searched by name for everything.

    If its data name records as this run's do, but not people, it may have more records of a person,
    under ids that are not known.

    Args:
        own: how the data of the run that was erased from name records and people.
        other: how the other run's data name them.
    """
    if own.shares("id", other) or own.shares("unit", other):
        return "searched_in_part"
    if own.is_of_another_table(other):
        return "of_other_tables"
    return "named_by_other_columns" if other.settings else "named_by_content"


def _key_of_index(folder: Path, index: Index) -> HashKey | None:
    """Return the key of a run with which its index was written; None: its folder does not have it.

    Args:
        folder: the folder of the run.
        index: its index.
    """
    with suppress(AgtError, OSError):
        key = HashKey.of(folder)
        if key is not None and key.check == index.key:
            return key
    return None


def _earlier_states(run: Path, manifest: Manifest) -> frozenset[str]:
    """Return the digests of the states that a run's state was made from by erasures.

    A state has no record that an earlier one of these lacks. None if its log cannot be read.
    """
    with suppress(AgtError, Broken, OSError):
        if REQUEST_LOG_FILE in manifest.files:
            log = Log.read(manifest.load(run, REQUEST_LOG_FILE, MAX_FILE_BYTES))
            return frozenset(entry.before for entry in log.entries)
    return frozenset()


def _rows_named(index: Index, key: HashKey, names: Sequence[str]) -> np.ndarray:
    """[.] the rows of an index whose record or unit has one of these names."""
    units = index.ids[:0] if index.units is None else index.units
    by_id = places(index.ids, key.names(names, "record"))
    by_unit = places(units, key.names(names, "unit"))
    return np.union1d(by_id, by_unit)


def _rows_hashed(index: Index, hashes: frozenset[str]) -> np.ndarray:
    """[.] the rows of an index whose record has one of these hashes, as the log writes them."""
    content = bytes.fromhex("".join(sorted(hashes)))
    return places(index.ids, np.frombuffer(content, dtype=np.uint8).reshape(-1, SIZE))


def read_searches(entry: RequestEntry) -> dict[str, StoredSearch]:
    """Return what an entry stores of the search, by the key of the runs.

    Raises:
        ConfigError: the entry has something else in its place.
    """
    try:
        return {
            str(key): _read_search(search)
            for key, search in entry.facts.get(SEARCHED_RUNS, {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"entry {entry.number} of the request log was altered or damaged after agt wrote it "
            f"({SEARCHED_RUNS}: {error}). Restore the run's folder from a backup"
        ) from None


def _read_search(node: Mapping[str, Any]) -> StoredSearch:
    """Return the search that an entry's JSON stores.

    Raises:
        KeyError, TypeError, ValueError: the values do not have this form.
    """
    search = StoredSearch(frozenset(node["records"]), frozenset(node.get("states", ())))
    if any(len(bytes.fromhex(word)) != SIZE for word in search.records):
        raise ValueError("a hash has the wrong length")
    return search


def _has_names(entry: RequestEntry) -> bool:
    """Return whether a request named nobody without training records, whose ids are not stored."""
    return not _people_with_test_records_only(entry) and not entry.facts.get("unknown", 0)


def _people_with_test_records_only(entry: RequestEntry) -> int:
    return int(entry.facts.get("untrained", 0))


def _hashes_of(request: Request | RequestEntry) -> tuple[str, ...]:
    """Return the keyed hashes of what the ids of a request name: units, or records."""
    return request.units if request.by == "unit" else request.records


def _belongs_to_people(test: Records, key: HashKey, entries: Sequence[RequestEntry]) -> np.ndarray:
    """[n] bool: which test records belong to the people of requests that name people."""
    units = {word for entry in entries if entry.by == "unit" for word in entry.units}
    if not units:
        return np.zeros(len(test), dtype=bool)
    hashes = key.names(test.units, "unit")
    return np.array([hexadecimal(row) in units for row in hashes], dtype=bool)


def _names_to_search(
    erased: Iterable[Records], staying: Iterable[Records], more: Iterable[str]
) -> tuple[str, ...]:
    """Return the names of erased records and their units that no remaining record has.

    Args:
        erased: the erased records.
        staying: the records that remain.
        more: further names, which are returned under the same condition.
    """
    names = dict.fromkeys(chain(_names(erased), more))
    remaining = set(_names(staying))
    return tuple(name for name in names if name not in remaining)


def _names(parts: Iterable[Records]) -> Iterable[str]:
    """Return the ids and units of records in several parts."""
    return chain.from_iterable((*part.ids.tolist(), *part.units.tolist()) for part in parts)
