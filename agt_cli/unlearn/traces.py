"""After an erasure: which other trainings may still hold something of the erased records.

Other training runs are asked by their own index of records whether they were trained on them. A
training that was stopped has no index yet: its checkpoint is named, whoever it was trained on.
Files beside runs are not searched.

What is found is told by counts and by places below the folders searched; no id is written anywhere.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agt.data.erasure import load_without_erased
from agt.data.records import Records
from agt.errors import AgtError
from agt.store.reading import Broken
from agt.training.checkpoint import RUN_FILE
from agt.unlearning.sentences import Remark
from agt_cli.report.audit_files import SHADOWS
from agt_cli.report.finished import CHECKPOINTS, Run
from agt_cli.runs.erased import key_of, named
from agt_cli.runs.prepare import RunSettings
from agt_cli.unlearn.account import Place, TraceSearch
from agt_cli.unlearn.log import RECORD_INDEX_FILE, HashKey, Index, Log, places
from agt_cli.unlearn.request import INPUT, Request, TrainingRecords, stated


@dataclass(frozen=True)
class TraceTargets:
    """Erased records, as other trainings are asked for them.

    Attributes:
        ids: of the erased records, and of units of which no record is left, as the data has them.
        rows: how many of the erased records still have a row in the run's own data.
        forgotten: how many of the erased records nobody can ask for any more.
        erased: how many records were erased.
    """

    ids: Sequence[str]
    rows: int = 0
    forgotten: int = 0
    erased: int = 0

    @classmethod
    def of(cls, known: TrainingRecords, request: Request) -> "TraceTargets":
        """Return the targets of an update that was carried out.

        Args:
            known: the records as they were before it.
            request: the request that was carried out.
        """
        train, asked = known.data.train, known.log.waiting | set(request.records)
        gone = np.array(
            [known.index.words[place] in asked for place in known.place.tolist()], dtype=bool
        )
        erased, left = train.take(gone), train.take(~gone)
        return cls(_ids_of(erased, (left, known.data.test), request.names), len(erased))

    @classmethod
    def later(cls, run: Run, settings: RunSettings, log: Log) -> "TraceTargets":
        """Of a run's last update, when all that is known of its records is what the data still
        has.
        """
        key, batch = key_of(run), log.batch(len(log.entries))
        hashes = frozenset(word for entry in batch for word in entry.records)
        parted = load_without_erased(stated(run, settings), named(key, log.erased))
        erased = parted.erased.take(named(key, hashes)(parted.erased.ids, parted.erased.units))
        rest = parted.rest
        ids = _ids_of(erased, (rest.train, rest.test))
        return cls(ids, len(erased), len(hashes) - len(erased), len(hashes))


def search(
    targets: TraceTargets, run: Run, records: Sequence[Path], ids: str | None = None
) -> TraceSearch:
    """Ask the other training runs below some folders for the records that an update erased.

    Args:
        targets: the erased records.
        run: the run that they were erased from.
        records: folders of records (output_dir): that of this command first, then that of the run,
            if it is another.
        ids: the file that the request came in; None, or ``-``: no file.
    """
    unlooked = [Remark("files_beside_runs"), Remark("other_folders")]
    if targets.forgotten:
        counts = {"forgotten": targets.forgotten, "erased": targets.erased}
        unlooked.append(Remark("erased_forgotten", counts))
    if targets.rows:
        unlooked.append(Remark("rows_in_own_data", {"rows": targets.rows}))
    else:
        unlooked.append(Remark("no_rows_in_own_data"))
    if ids not in (None, INPUT):
        unlooked.append(Remark("file_of_ids"))
    if any((folder / SHADOWS).exists() for folder in records):
        unlooked.append(Remark("shadow_models"))
    asked = tuple(other_runs(targets, folder, run.folder) for folder in records)
    return TraceSearch(asked, tuple(unlooked))


def other_runs(targets: TraceTargets, folder: Path, run: Path) -> Place:
    """Other training runs, asked by their own index and key whether they were trained on erased
    records.

    Those that were stopped cannot be asked: each counts as found.

    Args:
        folder: where runs lie.
        run: the one that was updated.
    """
    runs = [
        path.parent
        for path in sorted(folder.rglob(RECORD_INDEX_FILE))
        if path.parent.resolve() != run.resolve()
    ]
    counts = {
        path: _trained_on(targets, path)
        for path in runs
        if "unlearning" not in path.relative_to(folder).parts
    }
    hits = {path.relative_to(folder).as_posix(): count for path, count in counts.items() if count}
    remarks = [
        Remark("trained_on_erased", {"runs": tuple(hits)})
        if hits
        else Remark("none_trained_on_erased")
    ]
    if closed := sum(count is None for count in counts.values()):
        remarks.append(Remark("key_gone", {"runs": closed}))
    if stopped := tuple(path.relative_to(folder).as_posix() for path in _stopped(folder)):
        remarks.append(Remark("training_stopped", {"folders": stopped}))
    found = sum(hits.values()) + len(stopped)
    return Place(Remark("other_runs"), len(counts) + len(stopped), found, tuple(remarks))


def _stopped(folder: Path) -> list[Path]:
    """Checkpoints that trainings left, or write now: of commands, begun or not, and of programs,
    under any name.
    """
    begun = {path.parent for path in folder.rglob(f"{CHECKPOINTS}/{RUN_FILE}")}
    states = [(path, path.parents) for path in folder.rglob("step=*.safetensors")]
    return sorted(
        begun | {next((p for p in up if p.name == CHECKPOINTS), path.parent) for path, up in states}
    )


def _ids_of(
    erased: Records, staying: Iterable[Records], more: Iterable[str] = ()
) -> tuple[str, ...]:
    """The ids and units of erased records, and more, that nobody who stays has."""
    kept = {
        name for records in staying for name in (*records.ids.tolist(), *records.units.tolist())
    }
    names = dict.fromkeys((*erased.ids.tolist(), *erased.units.tolist(), *more))
    return tuple(name for name in names if name not in kept)


def _trained_on(targets: TraceTargets, run: Path) -> int | None:
    """How many erased records, or units, another run was trained on; None: it cannot be asked."""
    with suppress(AgtError, Broken, OSError):
        key, index, names = (
            HashKey.of(run),
            Index.read((run / RECORD_INDEX_FILE).read_bytes()),
            list(targets.ids),
        )
        if key is not None and key.check == index.key:
            units = index.ids[:0] if index.units is None else index.units
            hits = (
                places(index.ids, key.names(names, "record")),
                places(units, key.names(names, "unit")),
            )
            return max(map(len, hits))
    return None
