"""Search other training runs for records that were erased from a run.

Each run has an index of the records that it was trained on. A training that was interrupted has no
index yet, so its checkpoint is listed in any case. Files beside runs are not searched.

The index of a run has hashes under the run's own key. So it can be searched only for ids, which are
known while a request is carried out, and later as long as the data has the record's row. Therefore
the request log of the run that was erased from stores the result (``SEARCHED_RUNS``): for the key
of each other run, that run's own hashes of the erased records, and which states of it were
searched. When an account is written again, these hashes are looked for in the other run's index. A
run that was searched neither now nor then is listed as not searched; and so is an earlier state of
a run that was restored, which has the key of the run and more of its records.

Results have counts and the paths of folders; no id is written to a file.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from agt.data.erasure import load_without_erased
from agt.data.records import Records
from agt.errors import AgtError, ConfigError
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt.store.reading import MAX_FILE_BYTES, Broken
from agt.training.checkpoint import RUN_FILE
from agt.unlearning.sentences import Remark, Value
from agt_cli.command_settings.unlearn import By
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.finished import CHECKPOINTS, COMMIT_FOLDER, NEXT_STATE_FOLDER, Run
from agt_cli.report.opening import STATUS_FILE
from agt_cli.runs.erased import predicate_for_hashes, read_hash_key
from agt_cli.runs.prepare import RunSettings
from agt_cli.unlearn.account import Place, TraceSearch
from agt_cli.unlearn.hash_key import SIZE, HashKey, as_words, hexadecimal
from agt_cli.unlearn.log import REQUEST_LOG_FILE, Log, RequestEntry
from agt_cli.unlearn.methods import own_learner_of
from agt_cli.unlearn.record_index import RECORD_INDEX_FILE, Index, places
from agt_cli.unlearn.request import INPUT, Request, TrainingRecords, source_as_trained

SEARCHED_RUNS = "searched_runs"
"""The entry in the facts of a request with the results of the search.

It maps the key of each other run to ``records``, that run's own hashes of the erased records that
it has; and to the states of it that were searched for everything that the update erases:
``indexes``, the sha256 of their files records.bin, and ``states``, their digests.
"""
MODELS_WITHOUT_INDEX = ("train", "agt.save")
"""Programs that write folders with a model. Such a folder without an index cannot be searched."""
NOT_IN_CONTENT_IDS = (
    "name",
    "unit_rows",
    "id_permanent",
    "test_fraction",
    "split_key",
    "declared_size",
    "subgroups",
    "settled",
)
"""Settings of agt's own data files that change no id that is a hash of a record's content."""
FILE_SETTINGS = ("path", "data_dir")
"""Settings of a table that change no such id either, because a table lists its columns."""
MAX_INDEX_BYTES = 2**34
Unsearched = Literal[
    "key_gone", "index_unreadable", "named_otherwise", "named_by_content", "of_other_tables"
]
"""Why a run could not be searched for names; each is the code of a sentence."""


@dataclass(frozen=True)
class NameColumns:
    """How a run's data name records and people.

    Attributes:
        id, unit: the columns; None: records are named by a hash of their content, or by the dataset
            itself, and each is its own unit.
        content: what decides how a record is named without ``id``: ids are then hashes of the
            label, the unit and the columns that a data set reads, or its own class makes them.
        table: the name of the run's data.
        files: the sha256 of the data's files.
    """

    id: str | None
    unit: str | None
    content: str = ""
    table: str = ""
    files: frozenset[str] = frozenset()

    @classmethod
    def of(cls, run: Run) -> "NameColumns | None":
        """Return those that a run's settings name; None: its settings name no dataset."""
        dataset = run.config.get("dataset")
        if not isinstance(dataset, Mapping):
            return None
        return cls(
            dataset.get("id"),
            dataset.get("unit"),
            _content_of_names(run, dataset),
            str(run.environment.get("dataset")),
            frozenset(_file_digests(run)),
        )

    @property
    def settings(self) -> str:
        """The settings of a training whose records have the same names; empty: by content."""
        columns = {"dataset.id": self.id, "dataset.unit": self.unit}
        return " ".join(f"{name}={column}" for name, column in columns.items() if column)

    def is_of_another_table(self, other: "NameColumns") -> bool:
        """Return whether another run's data have another name, and no file of this run's data."""
        return self.table != other.table and not self.files & other.files

    def shares_ids(self, other: "NameColumns") -> bool:
        """Return whether an id of a record of this run names the same record in the other."""
        if self.id is None:
            return other.id is None and self.content == other.content
        return self.id in (other.id, other.unit)

    def shares_units(self, other: "NameColumns") -> bool:
        """Return whether a unit of this run has the same name in the other."""
        return self.unit is not None and self.unit in (other.id, other.unit)


@dataclass(frozen=True)
class TraceTargets:
    """Erased records, in the form in which other runs are searched for them.

    Attributes:
        ids: names of the erased records, and of units of which no record is left, as the data has
            them; of people whose records are test records only; of the test records of the people
            who asked; and ids that the run's data do not have (``unknown=ignore``).
        earlier_ids: names of records that earlier updates erased, as far as the data has them.
        rows: how many of the erased records still have a row in the run's own data.
        erased: keyed hashes of all records that the update erased.
        known_by_id: those of them whose id is among ``ids``.
        known_by_unit: those of them whose unit is among ``ids``.
        columns: how the run's data name records; None: not known, so every run may name them
            otherwise.
        entries: of the request log, the requests that the update carried out, except the one that
            is being carried out.
        earlier_entries: of the request log, the requests that earlier updates carried out.
        named_people: how many people without a training record are among ``ids``.
        named_by: what they are named by.
        named_units: how many people with training records the request names by their units, if it
            is being carried out.
        test_rows: how many test records of the people still have a row in the run's own data.
    """

    ids: Sequence[str]
    earlier_ids: Sequence[str] = ()
    rows: int = 0
    erased: frozenset[str] = frozenset()
    known_by_id: frozenset[str] = frozenset()
    known_by_unit: frozenset[str] = frozenset()
    columns: NameColumns | None = NameColumns(None, None)
    entries: tuple[RequestEntry, ...] = ()
    earlier_entries: tuple[RequestEntry, ...] = ()
    named_people: int = 0
    named_by: By = "id"
    named_units: int = 0
    test_rows: int = 0

    @classmethod
    def of(cls, known: TrainingRecords, request: Request, run: Run) -> "TraceTargets":
        """Return the targets of an update that is carried out.

        Args:
            known: the records as they are before it.
            request: the request that is carried out.
            run: the run that they are erased from.
        """
        requested = known.log.waiting | set(request.records)
        train = known.data.train
        is_erased = np.array(
            [known.index.words[place] in requested for place in known.index_rows.tolist()],
            dtype=bool,
        )
        erased = train.take(is_erased)
        test = known.data.test
        is_requested = np.isin(test.units if request.by == "unit" else test.ids, request.names)
        is_requested |= _is_test_of(test, known.key, known.log.pending)
        staying = (train.take(~is_erased), test.take(~is_requested))
        of_people = test.take(is_requested).ids.tolist()
        ids = _ids_of(erased, staying, (*request.names, *of_people))
        earlier = known.erased_earlier
        return cls(
            ids=ids,
            earlier_ids=() if earlier is None else _ids_of(earlier, (*staying, erased)),
            rows=len(erased),
            erased=frozenset(requested),
            known_by_id=frozenset(as_words(known.key.names(ids, "record"))) & requested,
            known_by_unit=_words_of_units(known, ids) & requested,
            columns=NameColumns.of(run),
            entries=known.log.pending,
            earlier_entries=known.log.done,
            named_people=request.untrained + request.unknown,
            named_by=request.by,
            named_units=len(request.units) if request.by == "unit" else 0,
            test_rows=int(is_requested.sum()),
        )

    @classmethod
    def later(cls, run: Run, settings: RunSettings, log: Log) -> "TraceTargets":
        """Return the targets of a run's last update, when only what the data still has is known."""
        key = read_hash_key(run)
        batch = log.batch(len(log.entries))
        hashes = frozenset(word for entry in batch for word in entry.records)
        source = source_as_trained(run, settings)
        parted = load_without_erased(source, predicate_for_hashes(key, log.erased))
        is_of_batch = predicate_for_hashes(key, hashes)(parted.erased.ids, parted.erased.units)
        erased = parted.erased.take(is_of_batch)
        rest = parted.remaining
        is_requested = _is_test_of(rest.test, key, batch)
        staying = (rest.train, rest.test.take(~is_requested))
        ids = _ids_of(erased, staying, rest.test.take(is_requested).ids.tolist())
        earlier = parted.erased.take(~is_of_batch)
        of_named_units = erased.ids[np.isin(erased.units, ids)]
        return cls(
            ids=ids,
            earlier_ids=_ids_of(earlier, (*staying, erased)),
            rows=len(erased),
            erased=hashes,
            known_by_id=frozenset(as_words(key.names(ids, "record"))) & hashes,
            known_by_unit=frozenset(as_words(key.names(of_named_units, "record"))),
            columns=NameColumns.of(run),
            entries=batch,
            earlier_entries=log.entries[: len(log.entries) - len(batch)],
            test_rows=int(is_requested.sum()),
        )

    def records_missing(self, other: NameColumns | None, searched_until: int) -> int:
        """Return for how many of the erased records another run was not and cannot be searched.

        Args:
            other: how the other run's data name records; None: it cannot be searched for names.
            searched_until: the number of the last entry of the request log at which it was searched
                for everything; 0: it never was.
        """
        missing = self.erased.difference(
            *(entry.records for entry in self.entries if entry.number <= searched_until)
        )
        if self._shares("id", other):
            missing -= self.known_by_id
        if self._shares("unit", other):
            missing -= self.known_by_unit
        return len(missing)

    def people_missing(self, other: NameColumns | None, searched_until: int) -> int:
        """Return for how many people another run cannot be searched for all of their records.

        No file keeps the names of people without training records of earlier requests. Of people
        who were named by their units, another run may have more records, under ids that are not
        known here.

        Args:
            other: how the other run's data name records; None: it cannot be searched for names.
            searched_until: the number of the last entry of the request log at which it was searched
                for everything; 0: it never was.
        """
        later = [entry for entry in self.entries if entry.number > searched_until]
        missing = sum(
            _people_with_test_records_only(entry) + int(entry.facts.get("unknown", 0))
            for entry in later
        )
        if not self._shares(self.named_by, other):
            missing += self.named_people
        if not self._shares("unit", other):
            missing += self.named_units
            missing += sum(len(entry.units) for entry in later if entry.by == "unit")
        return missing

    def shares_names(self, other: NameColumns | None) -> bool:
        """Return whether another run names records or people as the run that was erased from."""
        return self._shares("id", other) or self._shares("unit", other)

    def _shares(self, by: By, other: NameColumns | None) -> bool:
        """Return whether ids of records, or units, mean the same in this and in another run.

        Args:
            by: which of the two.
            other: how the other run's data name records; None: not known.
        """
        if other is None or self.columns is None:
            return False
        if by == "unit" and self.columns.unit is not None:
            return self.columns.shares_units(other)
        return self.columns.shares_ids(other)


@dataclass(frozen=True)
class RunSearch:
    """The result of searching one other training run.

    Attributes:
        key: identifies the key of its index (``HashKey.check``); empty: the index cannot be read.
        index_digest: the sha256 of its file records.bin.
        state: the digest of the run.
        records: its own hashes of the erased records that it has.
        records_missing: for how many erased records it was not searched.
        people_missing: for how many people it was not searched, or not for all of their records.
        of_earlier_updates: how many records it has that earlier updates erased, as far as these
            were found in it then, or the data still has their rows.
        had_traces: the hashes that an earlier search found in it.
        reason: why it could not be searched for names; None: it could.
        table: the name of its data; empty: not known.
        own_learner: whether it was trained by a learner of the user's own, from which agt cannot
            erase records.
    """

    key: str = ""
    index_digest: str = ""
    state: str = ""
    records: tuple[str, ...] = ()
    records_missing: int = 0
    people_missing: int = 0
    of_earlier_updates: int = 0
    had_traces: frozenset[str] = frozenset()
    reason: Unsearched | None = None
    table: str = ""
    own_learner: bool = False

    @property
    def complete(self) -> bool:
        """Whether it was searched for every record and person of the request."""
        return bool(self.key) and not self.records_missing and not self.people_missing


TrainingKind = Literal["indexed", "without_index", "stopped", "running"]
"""What a folder of a training has: an index of records; a model of agt and no index; a checkpoint
that a training left, or writes now, or files that a command which did not finish left of a model or
of its index; or a process that works in it and has no checkpoint yet.

A checkpoint may be a command's, begun or not, or that of a program, under any name.
"""


@dataclass(frozen=True)
class ModelsBelow:
    """The trainings in a folder and its subfolders; links are followed.

    Attributes:
        folders: kind -> the folders of this kind.
        unlisted: how many folders could not be listed.
    """

    folders: Mapping[TrainingKind, tuple[Path, ...]]
    unlisted: int

    @classmethod
    def of(cls, folder: Path) -> "ModelsBelow":
        """Walk through a folder, each real folder below it once."""
        errors = list[OSError]()
        found: dict[TrainingKind, set[Path]] = {kind: set() for kind in get_args(TrainingKind)}
        unfinished = set[Path]()
        for path, files in _folders_below(folder, errors):
            is_next_state = path.as_posix().endswith((f"/{NEXT_STATE_FOLDER}", f"/{COMMIT_FOLDER}"))
            if RECORD_INDEX_FILE in files:
                if not is_next_state:
                    found["indexed"].add(path)
            elif MANIFEST_FILE in files and _is_model(path):
                found["without_index"].add(path)
            elif STATUS_FILE in files and MANIFEST_FILE not in files:
                run = Run.at(path)
                is_running = run.state == "running"
                if is_running and run.command == "train":
                    found["running"].add(path)
                elif not is_running and not is_next_state and _has_model_files(files):
                    unfinished.add(path)
            if path.name == CHECKPOINTS and RUN_FILE in files:
                found["stopped"].add(path)
            if any(name.startswith("step=") and name.endswith(".safetensors") for name in files):
                above = (up for up in (path, *path.parents) if up.name == CHECKPOINTS)
                found["stopped"].add(next(above, path))
        with_checkpoint = {path.parent for path in found["stopped"] if path.name == CHECKPOINTS}
        found["stopped"] |= unfinished - with_checkpoint
        found["running"] -= with_checkpoint
        return cls({kind: tuple(sorted(paths)) for kind, paths in found.items()}, len(errors))

    def without(self, searched: set[Path]) -> "ModelsBelow":
        """Return a copy without some folders, which were searched before.

        Args:
            searched: folders, with links resolved.
        """
        folders = {
            kind: tuple(path for path in paths if path.resolve() not in searched)
            for kind, paths in self.folders.items()
        }
        return ModelsBelow(folders, self.unlisted)

    @property
    def resolved(self) -> set[Path]:
        """All these folders, with links resolved."""
        return {path.resolve() for paths in self.folders.values() for path in paths}


def search(
    targets: TraceTargets, run: Run, records: Sequence[Path], ids: str | None = None
) -> TraceSearch:
    """Search other training runs for the records that an update erased.

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


def searched_runs(
    targets: TraceTargets, run: Path, folders: Sequence[Path]
) -> dict[str, dict[str, Any]]:
    """Search other runs, and return what the request log stores of it (``SEARCHED_RUNS``).

    Args:
        targets: the records that are erased.
        run: the folder of the run that they are erased from.
        folders: where other runs lie.
    """
    found = dict[str, dict[str, Any]]()
    for folder in folders:
        for path in ModelsBelow.of(folder).without({run.resolve()}).folders["indexed"]:
            answer = search_run(targets, path)
            if answer.key and (answer.complete or answer.records):
                # Copies and states of one run have one key, so the states are stored, too.
                search = found.setdefault(answer.key, {"records": [], "indexes": [], "states": []})
                search["records"] = sorted({*search["records"], *answer.records})
                if answer.complete:
                    search["indexes"] = sorted({*search["indexes"], answer.index_digest})
                    search["states"] = sorted({*search["states"], answer.state})
    return found


@dataclass(frozen=True)
class SearchesBelow:
    """The results of searching the runs below one folder.

    Attributes:
        folder: the folder.
        answers: path below the folder -> the result for the run there.
        models: the trainings, without the run that was updated and those of an earlier folder.
    """

    folder: Path
    answers: Mapping[str, RunSearch]
    models: ModelsBelow

    def names(self, kind: TrainingKind) -> tuple[str, ...]:
        """Return the folders of one kind by their paths below the folder."""
        paths = self.models.folders[kind]
        return tuple(path.relative_to(self.folder).as_posix() for path in paths)


def search_places(targets: TraceTargets, folders: Sequence[Path], run: Path) -> tuple[Place, ...]:
    """Search the runs below some folders for erased records.

    Interrupted trainings cannot be searched, and each is reported as a trace. A run that is below
    two of the folders is counted once.

    Args:
        targets: the erased records.
        folders: the folders below which runs are searched.
        run: the folder of the run that was updated.

    Returns:
        The result of the search of each folder.
    """
    searched = {run.resolve()}  # folders that were searched or must not be
    searches = list[SearchesBelow]()
    for folder in folders:
        models = ModelsBelow.of(folder).without(searched)
        searched |= models.resolved
        answer_by_run = {
            path.relative_to(folder).as_posix(): search_run(targets, path)
            for path in models.folders["indexed"]
        }
        searches.append(SearchesBelow(folder, answer_by_run, models))
    keys = {answer.key for search in searches for answer in search.answers.values()}
    with_traces = {
        key
        for entry in targets.entries
        for key, search in _searches_of(entry).items()
        if search.records
    }
    missing_runs = len(with_traces - keys)
    results = list[Place]()
    for search in searches:
        results.append(_place_of(targets, search, missing_runs))
        missing_runs = 0  # they are in no folder, so they are counted once, in the first
    return tuple(results)


def _place_of(targets: TraceTargets, below: SearchesBelow, missing_runs: int) -> Place:
    """Return the result of searching the runs below one folder for erased records.

    Args:
        targets: the erased records.
        below: the results of searching the runs there.
        missing_runs: how many runs had traces when the records were erased, and are in no folder
            now.
    """
    answers = below.answers
    without_index = len(below.names("without_index"))
    stopped = below.names("stopped")
    running = below.names("running")
    unlisted = below.models.unlisted
    runs = len(answers) + without_index + len(stopped) + len(running) + unlisted + missing_runs
    remarks = [
        *_remarks_of(targets, answers),
        *_remarks_on_found(
            {
                "runs_gone": {"runs": missing_runs},
                "no_index": {"runs": without_index},
                "training_stopped": {"folders": stopped},
                "training_running": {"folders": running},
                "folders_not_listed": {"count": unlisted},
            }
        ),
    ]
    if not runs:
        remarks.append(Remark("no_other_runs"))
    return Place(
        place=Remark("other_runs"),
        runs=runs,
        found=sum(len(answer.records) for answer in answers.values()) + len(stopped),
        remarks=tuple(remarks),
        searched=sum(answer.complete for answer in answers.values()),
    )


def _remarks_on_found(values: Mapping[str, Mapping[str, Value]]) -> Iterator[Remark]:
    """Yield a remark for each code whose first value is neither 0 nor empty.

    Args:
        values: code of a remark -> its values.
    """
    for code, named in values.items():
        if next(iter(named.values())):
            yield Remark(code, dict(named))


def _remarks_of(targets: TraceTargets, answers: Mapping[str, RunSearch]) -> Iterator[Remark]:
    """Yield remarks on the searches of runs with an index of records, traces first.

    Args:
        targets: the erased records.
        answers: path of a run -> its answer.
    """
    with_traces = {name: answer for name, answer in answers.items() if answer.records}
    learners = tuple(name for name, answer in with_traces.items() if answer.own_learner)
    others = tuple(name for name in with_traces if name not in learners)
    earlier = tuple(name for name, answer in answers.items() if answer.of_earlier_updates)
    clean = [answer for answer in answers.values() if answer.complete and not answer.records]
    unsearched = [answer for answer in answers.values() if not answer.complete]
    # A run that could not be searched at all is counted by its reason alone.
    partly_searched = [answer for answer in unsearched if answer.reason is None]
    of_records = [answer.records_missing for answer in partly_searched]
    of_people = [answer.people_missing for answer in partly_searched]
    reasons = Counter(answer.reason for answer in unsearched if answer.reason is not None)
    by_content = tuple(
        name for name, answer in answers.items() if answer.reason == "named_by_content"
    )
    of_other_tables = {
        name: answer.table for name, answer in answers.items() if answer.reason == "of_other_tables"
    }
    # These runs are named, where others are counted.
    del reasons["named_by_content"], reasons["of_other_tables"]
    settings = "" if targets.columns is None else targets.columns.settings
    yield from _remarks_on_found(
        {
            "trained_on_erased": {"runs": others},
            "learner_trained_on_erased": {"runs": learners},
            "trained_on_erased_earlier": {"runs": earlier},
            "no_trace_in_runs": {"runs": len(clean)},
            "traces_cleared": {"runs": sum(bool(answer.had_traces) for answer in clean)},
            "runs_not_searched": {
                "runs": sum(map(bool, of_records)),
                "forgotten": max(of_records, default=0),
                "erased": len(targets.erased),
            },
            "runs_not_searched_for_people": {
                "runs": sum(map(bool, of_people)),
                "units": max(of_people, default=0),
            },
            "named_by_content": {"runs": by_content, "settings": settings or "dataset.id=COLUMN"},
            "of_other_tables": {
                "runs": tuple(of_other_tables),
                "tables": tuple(sorted(set(of_other_tables.values()))),
            },
            **{reason: {"runs": count} for reason, count in sorted(reasons.items())},
        }
    )


def search_run(targets: TraceTargets, run: Path) -> RunSearch:
    """Search the index of another training run for erased records that it was trained on.

    Args:
        targets: the erased records.
        run: the folder of the other run, which nothing has verified.
    """
    try:
        manifest = Manifest.open(run)
        index = Index.read(manifest.load(run, RECORD_INDEX_FILE, MAX_INDEX_BYTES))
    except (AgtError, Broken, OSError):
        return RunSearch(records_missing=len(targets.erased), reason="index_unreadable")
    other = Run.at(run)
    columns = NameColumns.of(other)
    key = None
    with suppress(AgtError, OSError):
        key = HashKey.of(run)
    if key is not None and key.check != index.key:
        key = None  # it is not the key of this index
    index_digest = manifest.files[RECORD_INDEX_FILE]
    states = {manifest.digest} | _earlier_states(run, manifest)
    searched_until = max(
        (
            e.number
            for e in targets.entries
            if _was_searched_for_all(e, index.key, index_digest, states)
        ),
        default=0,
    )
    before = _hashes_found_before(targets.entries, index.key)
    rows = _rows_hashed(index, before)
    earlier_rows = _rows_hashed(index, _hashes_found_before(targets.earlier_entries, index.key))
    if key is not None:
        rows = np.union1d(rows, _rows_named(index, key, targets.ids))
        earlier_rows = np.union1d(earlier_rows, _rows_named(index, key, targets.earlier_ids))
    askable = None if key is None else columns
    records_missing = targets.records_missing(askable, searched_until)
    people_missing = targets.people_missing(askable, searched_until)
    reason: Unsearched | None = None
    is_incomplete = records_missing or people_missing
    if is_incomplete and key is None:
        reason = "key_gone"
    elif is_incomplete and not targets.shares_names(columns):
        reason = "named_otherwise"
        if columns is not None and targets.columns is not None:
            if targets.columns.is_of_another_table(columns):
                reason = "of_other_tables"
            elif not columns.settings:
                reason = "named_by_content"
    return RunSearch(
        key=index.key,
        index_digest=index_digest,
        state=manifest.digest,
        records=as_words(index.ids[rows]),
        records_missing=records_missing,
        people_missing=people_missing,
        of_earlier_updates=len(earlier_rows),
        had_traces=before,
        reason=reason,
        table="" if columns is None else columns.table,
        own_learner=own_learner_of(other.config) is not None,
    )


def _content_of_names(run: Run, dataset: Mapping[str, Any]) -> str:
    """Return what decides the ids of a run's records where no column does, as JSON.

    A table lists the columns that it reads, in their order. Vectors are whatever their file has, so
    the file must be the same. Of a class that has no setting ``id`` nobody knows which settings
    decide, so all count.

    Args:
        run: of which nothing was verified.
        dataset: its settings of the dataset.
    """
    ignored: tuple[str, ...] = ()
    digests = list[str]()
    if "id" in dataset:
        ignored = NOT_IN_CONTENT_IDS
    if "numeric" in dataset:
        ignored += FILE_SETTINGS
    else:
        digests = _file_digests(run)
    settings = {name: value for name, value in dataset.items() if name not in ignored}
    return json.dumps([settings, digests], default=str)


def _file_digests(run: Run) -> list[str]:
    """Return the sorted sha256 of the files of a run's data; nothing of the run was verified."""
    files = run.environment.get("data_files")
    entries = files.values() if isinstance(files, Mapping) else ()
    return sorted(
        str(entry["sha256"])
        for entry in entries
        if isinstance(entry, Mapping) and "sha256" in entry
    )


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


@dataclass(frozen=True)
class StoredSearch:
    """What a log's entry stores of the search in the runs with one key (``SEARCHED_RUNS``).

    The default is what it stores of runs that were not searched.

    Attributes:
        records: the runs' own hashes of the erased records that were found.
        indexes: the sha256 of the files records.bin that were searched for everything.
        states: the digests of the runs that were searched for everything.
    """

    records: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> "StoredSearch":
        """Return the search that an entry's JSON stores.

        Raises:
            KeyError, TypeError, ValueError: the values do not have this form.
        """
        records = frozenset(search["records"])
        if any(len(bytes.fromhex(word)) != SIZE for word in records):
            raise ValueError("a hash has the wrong length")
        # Earlier versions did not store which states were searched; then none is taken as searched.
        return cls(
            records, frozenset(search.get("indexes", ())), frozenset(search.get("states", ()))
        )


def _searches_of(entry: RequestEntry) -> dict[str, StoredSearch]:
    """Return what an entry stores of the search, by the key of the runs.

    Raises:
        ConfigError: the entry has something else in its place.
    """
    try:
        return {
            str(key): StoredSearch.of(search)
            for key, search in entry.facts.get(SEARCHED_RUNS, {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"entry {entry.number} of the request log was altered or damaged after agt wrote it "
            f"({SEARCHED_RUNS}: {error}). Restore the run's folder from a backup"
        ) from None


def _was_searched_for_all(
    entry: RequestEntry, key: str, index_digest: str, states: set[str]
) -> bool:
    """Return whether another run was searched for everything when an entry was written.

    Args:
        entry: of the request log of the run that was erased from.
        key: the key of the other run.
        index_digest: the digest of the other run's file records.bin. The same file has the same
            records.
        states: digests of the other run's state, and of those that it was made from by erasures.
            If one of these was searched, the present state is taken as searched, too.
    """
    search = _searches_of(entry).get(key, StoredSearch())
    return index_digest in search.indexes or bool(states & search.states)


def _hashes_found_before(entries: Sequence[RequestEntry], key: str) -> frozenset[str]:
    """Return the hashes of erased records that searches found in the runs with a key.

    Args:
        entries: of the request log, with the results of these searches.
        key: identifies the secret key of the runs, under which they hash (``HashKey.check``).
    """
    searches = (_searches_of(entry).get(key, StoredSearch()) for entry in entries)
    return frozenset().union(*(search.records for search in searches))


def _people_with_test_records_only(entry: RequestEntry) -> int:
    return int(entry.facts.get("untrained", 0))


def _is_test_of(test: Records, key: HashKey, entries: Sequence[RequestEntry]) -> np.ndarray:
    """[n] bool: which test records belong to the people of requests that name people."""
    units = {word for entry in entries if entry.by == "unit" for word in entry.units}
    if not units:
        return np.zeros(len(test), dtype=bool)
    hashes = key.names(test.units, "unit")
    return np.array([hexadecimal(row) in units for row in hashes], dtype=bool)


def _words_of_units(known: TrainingRecords, names: Sequence[str]) -> frozenset[str]:
    """Return the hashes of the training records whose unit has one of these names."""
    if known.index.units is None:
        return frozenset()
    rows = places(known.index.units, known.key.names(names, "unit"))
    return frozenset(known.index.words[row] for row in rows.tolist())


def _is_model(folder: Path) -> bool:
    """Return whether a folder's manifest says that agt wrote a model there."""
    with suppress(Broken, OSError):
        return Manifest.open(folder).command in MODELS_WITHOUT_INDEX
    return False


def _has_model_files(files: Iterable[str]) -> bool:
    """Return whether some names are those of files of a model or of its index of records.

    The name of a file that was being written ends with ``.part`` and more.
    """
    return any(".safetensors" in name or name.startswith(RECORD_INDEX_FILE) for name in files)


def _folders_below(folder: Path, errors: list[OSError]) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield a folder and all below it, each with the names of its files; links are followed.

    Args:
        folder: where to begin; it may not exist.
        errors: takes the error of each folder that cannot be listed.
    """
    if not folder.exists():
        return
    visited = set[tuple[int, int]]()
    for subfolder, folders, files in os.walk(folder, onerror=errors.append, followlinks=True):
        identity = os.stat(subfolder)
        if (identity.st_dev, identity.st_ino) in visited:
            folders.clear()  # a link back; os.walk goes no further
            continue
        visited.add((identity.st_dev, identity.st_ino))
        yield Path(subfolder), frozenset(files)


def _ids_of(
    erased: Records, staying: Iterable[Records], more: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the names of erased records and their units that no remaining record has.

    Args:
        erased: the erased records.
        staying: the records that remain.
        more: further names, which are returned under the same condition.
    """
    remaining_names = {
        name for records in staying for name in (*records.ids.tolist(), *records.units.tolist())
    }
    names = dict.fromkeys((*erased.ids.tolist(), *erased.units.tolist(), *more))
    return tuple(name for name in names if name not in remaining_names)
