"""What certify, predict and plan begin with: a finished training run, its model, and queries to ask it.

A finished run's requests to erase, as whoever loads its data or answers from it needs them.

Formal guarantees
    The data of a run is what it was trained on without every record that its log names, carried out or waiting. So its
    digest is the same whether the owner has deleted those rows from the table or not (agt.data.erasure), and it is the
    digest that the run records from the request on: a request that waits writes it, too.

Answers while requests to erase wait: what is stable for them is answered, anything else is owed an answer.

    unlearning/waiting.json      {"units": 5, "members": [0, 3, 2]}: listed in the run's manifest
    unlearning/abstained.jsonl   one line for each command that abstained, added before it answers; beside the manifest. It
                                 names the state that was asked, and stays: each update counts those of its own states

Formal guarantees
    An answer that is given is the one that training without the waiting records gives (agt.unlearning.sisa, which the
    request was checked for; of an ensemble ``agt.unlearning.sisa``). Which queries abstain depends on all records,
    those that wait among them, and everybody sees it: so no private claim holds of such answers, and private mechanisms are
    refused until the update.
    A line of abstained.jsonl is on the disk before the answers beside it are: a crash may count queries that nobody got to
    see, and loses none.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition, weaker
from agt.data.dataset import UNLABELLED, DataError, Dataset, Records
from agt.data.erasure import IsErased, never
from agt.data.files import arrays_in
from agt.distributed import Group
from agt.errors import CheckError, ConfigError, counted
from agt.ledger.chain import take_lock
from agt.models.model import Model, VoteCertificates, load
from agt.provenance import surroundings
from agt.store import (
    MANIFEST_FILE as MANIFEST,
    Broken,
    Manifest,
    file_sha256,
    locate,
    parse_object,
    read_file,
    refusing,
    sync_folder,
)
from agt.unlearning.sisa import answerable
from agt_cli.choices import naming
from agt_cli.configuration import digest_of
from agt_cli.process import current_team
from agt_cli.releasing.ledgers import EARLIER, PEOPLE, veiled
from agt_cli.report.console import Console
from agt_cli.report.finished import Run, has_pending_commit, open_run
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import id_lines, outside_lines
from agt_cli.runs.prepare import (
    Prepared,
    RunSettings,
    RunWithoutRecords,
    config_with_constants,
    kept_head,
    located,
    prepare,
    run_without_records,
    settings_of,
    use_threads,
)
from agt_cli.unlearn.log import SIZE, HashKey, Index, Log, check_asked, check_same, places

# -- what is to be erased, and what waits -------------------------------------------------------------------------------

ALIKE = "read_alike"
"""In env.json: the run's digests in earlier states whose records were read by the same constants as they are now."""


def gone_of(run: Run) -> IsErased:
    """Which records a run's log names.

    Raises:
        ConfigError: the log is not what was written, or its key is gone.
    """
    log = Log.of(run)
    return named(key_of(run), log.erased | log.waiting) if log.entries else never


def key_of(run: Run) -> HashKey:
    """The key that a run's log was written with. Raises ConfigError: it is gone, or another."""
    with refusing(run.folder, run.key):
        return Log.of(run).check_key(HashKey.of(run.folder))


def named(key: HashKey, hashes: frozenset[str]) -> IsErased:
    """Which records have one of these keyed hashes."""
    wanted = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=np.uint8).reshape(-1, SIZE)

    def gone(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
        marked = np.zeros(len(ids), dtype=bool)
        marked[places(key.names(ids, "record"), wanted)] = True
        return marked

    return gone


def prepare_without(
    run: Run, settings: RunSettings, console: Console, asked: frozenset[str] = frozenset()
) -> tuple[Prepared, Records]:
    """(the data of a run's next state; the records that it has not, the present state has, and the data still has).

    ``Prepared.untouched`` says whether every other record is as it was in the present state: where it is not held, whatever
    does not train again from this data says nothing about training without the erased records.

    Args:
        asked: keyed hashes of the records that are asked for now; those that wait go with them.

    Raises:
        DataMissing, DataError: as ``agt.data.erasure.part``.
    """
    log, key, told = Log.of(run), key_of(run), run_without_records(run, settings)
    before = None if told is None else told.settled.get("settled", {})
    prepared = prepare(settings, console, named(key, log.erased | log.waiting | asked), before)
    erased = prepared.erased.take(~named(key, log.erased)(prepared.erased.ids, prepared.erased.units))
    return replace(prepared, erased=erased), erased


def environment_facts(run: Run, prepared: Prepared) -> dict[str, object]:
    """What env.json of a run's next state has of its data, and of that of the states before.

    Args:
        run: as it is now.
        prepared: the data of the next state.
    """
    before, key = run.environment, HashKey.of(run.folder)
    return {
        **({PEOPLE: veiled(prepared.loaded, key)} if key else {}),
        "dataset": prepared.dataset.name,
        "data_digest": prepared.loaded.digest,
        "features_digest": prepared.dataset.digest,
        EARLIER: list(dict.fromkeys([*before.get(EARLIER, ()), str(before["data_digest"])])),
        ALIKE: [*before.get(ALIKE, ()), run.digest] if prepared.untouched.held else [],
    }


@dataclass
class StateMonitor:
    """Whether a run is still what it was when it was opened: a look at its manifest's time, as often as one likes.

    Attributes:
        run: as it was opened.
        seen: (time, size, number) of a manifest that was read and is of this run; None: none was read.
    """

    run: Run
    seen: tuple[int, int, int] | None = None

    @property
    def changed(self) -> bool:
        """A change that is decided and not yet carried through counts, too."""
        path = self.run.folder / MANIFEST
        try:
            state = path.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen != self.seen:
                if Manifest.open(path.parent).digest != self.run.digest:
                    return True
                self.seen = seen
        except (OSError, Broken):
            return True
        return has_pending_commit(self.run.folder)


WAITING_FILE = "unlearning/waiting.json"
ABSTAINED_FILE = Path("unlearning/abstained.jsonl")
_AWAY = "move it away, and the count of what was not answered while requests waited begins anew"


@dataclass(frozen=True)
class PendingErasures:
    """What waits in a run.

    Attributes:
        run: as it is.
        units: how many people (or other units) wait to be erased; 0: none.
        members: how many of them each member of an ensemble was trained on; None: not known, or no ensemble.
    """

    run: Run
    units: int
    members: tuple[int, ...] | None = None

    @classmethod
    def of(cls, run: Run) -> "PendingErasures":
        """Raises ConfigError where the log or what was kept beside it is not what was written."""
        units = len(Log.of(run).waiting_units)
        if not units or not run.holds(WAITING_FILE):
            return cls(run, units)
        members = json.loads(run.read(WAITING_FILE))["members"]
        known = members is not None and sum(members) == units
        return cls(run, units, tuple(map(int, members)) if known else None)

    def answered(self, certificates: Certificates, classes: int) -> np.ndarray:
        """[n] bool: the queries whose label is the same without whatever waits."""
        if self.members is not None and isinstance(certificates, VoteCertificates) and not certificates.by_margins:
            pending = np.array(self.members)
            return answerable(certificates.member_distances, certificates.members, pending, classes)
        return certificates.stable_distance >= self.units

    def refuse(self, release: str) -> None:
        """Raise ConfigError where something waits: nothing private is released then."""
        if self.units:
            are = "is" if self.units == 1 else "are"
            raise ConfigError(
                f"run={self.run.folder}: {people(self.units)} asked to be erased and {are} still in the model: {release} "
                "would draw from it, and to abstain where they matter is not private either. Carry the erasure out first: "
                f"agt unlearn run={self.run.folder}; agt certify answers what is stable"
            )

    def record_deferred(self, answered: np.ndarray, record: RunRecord) -> list[str]:
        """Count on the disk what is not answered now, and what is said of it; nothing where nothing waits.

        Args:
            answered: [n] bool.
        """
        if not self.units:
            return []
        queries, abstained = len(answered), int((~answered).sum())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"time": now, "state": self.run.digest, "queries": queries, "abstained": abstained}
        _append(self.run.folder / ABSTAINED_FILE, json.dumps(line))
        record.add_metrics(waiting=self.units, answered=queries - abstained, abstained=abstained)
        return [
            f"{people(self.units)} asked to be erased and {'waits' if self.units == 1 else 'wait'} for an update: "
            f"{queries - abstained} of {queries} queries are answered, as they would be without them; {abstained} abstain "
            f"and are owed an answer after the next update (agt unlearn run={self.run.folder})",
            "accuracies, certified fractions and figures of this record are of all queries, those that abstain among them, "
            "by the model as it still is; so they tell of what was not answered, and stay with the data owner",
        ]


def abstentions(folder: Path, states: Collection[str]) -> int:
    """How many queries abstained in these states of a run.

    A line that breaks off was being written when its command died, and nobody saw the answers beside it.

    Args:
        states: their digests.

    Raises:
        ConfigError: the file cannot be read, or holds a line that is none of these.
    """
    path, count, number = folder / ABSTAINED_FILE, 0, 0
    if not path.exists():
        return 0
    try:
        for number, line in enumerate(read_file(path).decode(errors="replace").splitlines(), 1):
            if not line or (line.startswith("{") and not line.endswith("}")):
                continue
            told = parse_object(line.encode(), f"line {number}")
            if int(told["abstained"]) < 0:
                raise ValueError("a negative count")
            count += int(told["abstained"]) * (str(told["state"]) in states)
    except (Broken, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}, line {number}: is no line of a command that abstained ({error}): {_AWAY}") from None
    return count


def people(units: int) -> str:
    return counted(units, "person", "people")


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        take_lock(handle, 60.0, str(path))
        size = os.fstat(handle).st_size
        broken = size and os.pread(handle, 1, size - 1) != b"\n"  # somebody died in the middle of a line
        os.write(handle, ("\n" if broken else "").encode() + f"{line}\n".encode())
        os.fsync(handle)
        sync_folder(path.parent)
    finally:
        os.close(handle)


# -- a run and its queries -------------------------------------------------------------------------------------------------

LINES = Path("-")
"""What ``inputs`` calls JSON lines on standard input."""
DIGESTS = {"data_digest": "data", "features_digest": "encoder's features"}
NOT_READ = "not read: the run's own record says what queries need"


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run and a file of queries, of which no data is read yet.

    Attributes:
        finished: the run.
        settings: its own, with the present command's ``compute``.
        inputs: the file of queries; None: the dataset's test records.
    """

    finished: Run
    settings: RunSettings
    inputs: Path | None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "TrainedRun":
        """Open the run that a command's ``run`` names, with ``digest``, ``inputs`` and ``compute`` beside it.

        Raises:
            ConfigError: it is no finished training run, or another than ``digest``.
        """
        finished = open_run(Path(str(config["run"])), "train", digest_of(config, "digest"))
        recorded = located(finished.config, finished.environment.get("data_files") or {})
        settings = settings_of({**recorded, "compute": config.get("compute")}, kept_head(finished))
        inputs = config.get("inputs")
        return cls(finished, settings, None if inputs is None else Path(str(inputs)))

    @property
    def words(self) -> str:
        """Which queries, for a stranger to read."""
        if self.inputs == LINES:
            return "queries of standard input"
        return "test records" if self.inputs is None else f"queries of {self.inputs.name}"

    def open(self, record: RunRecord, console: Console, with_records: bool = False) -> "OpenedRun":
        """Load the model and the queries, and note in the record what they are.

        A file of queries needs the run's folder and nothing of the training data, which is not looked for: certificates
        and releases are about the run that was made. Test records are in the data, which must be what was trained on.

        Args:
            with_records: the training records are needed whatever the queries are.

        Raises:
            ConfigError: the data changed since it was trained on.
            DataError: no queries, or ones that do not fit.
        """
        use_threads(self.settings.compute)
        finished, choices = self.finished, naming(self.settings.choices, self.settings.training.chosen_from)
        run = (
            None
            if self.inputs is None or with_records
            else run_without_records(finished, replace(self.settings, choices=choices))
        )
        looked = "read" if run is None else NOT_READ
        if run is None:
            prepared = prepare(self.settings, console, gone_of(finished) if Log.of(finished).entries else None)
            for line in _check_unchanged(finished, prepared):
                console.note(line)
            source = config_with_constants(finished.config, prepared.loaded)
            run = RunWithoutRecords(prepared.problem(self.settings), source, prepared.encoder)
        model, dataset = load(run.problem, finished), run.problem.dataset
        queries = dataset.test if self.inputs is None else _queries(self.inputs, run)
        for line in [*outside_lines(queries), *id_lines(queries)]:
            console.note(line)
        record.environment(**{key: finished.environment.get(key) for key in DIGESTS}, dataset=dataset.name)
        record.environment(trained_run=str(finished.folder.resolve()), trained_digest=finished.digest)
        record.environment(inputs=self.inputs and str(self.inputs), training_data=looked)
        record.environment(inputs_id=queries.id_column)
        if EARLIER in finished.environment:
            record.environment(**{EARLIER: finished.environment[EARLIER]})
        return OpenedRun(
            self, run, self._shared(model, queries), queries, weaker(conditions_of(finished), model.conditions)
        )

    def read(self) -> tuple[Model, Records]:
        """The model, from the run's folder and nothing else, and the queries of a file; none where they are in the data.

        Raises:
            ConfigError: the run was made before runs kept what that takes.
            DataError: as ``open``.
        """
        use_threads(self.settings.compute)
        run = run_without_records(self.finished, self.settings)
        if run is None:
            raise ConfigError(f"run={self.finished.folder}: too old to be read by several processes: leave torchrun out")
        return load(run.problem, self.finished), _queries(self.inputs or LINES, run)

    def agree(self, group: Group) -> None:
        """Raise ConfigError where another process of the group computes by other means, or has another file of queries."""
        inputs = {} if self.inputs is None else {f"the hash of inputs={self.inputs}": self._hash(self.inputs)}
        group.agree({**inputs, **surroundings(self.settings.compute.device, self.settings.compute.threads)})

    def _hash(self, inputs: Path) -> str:
        """Of a file of queries, or of a folder's arrays, wherever the run's data source finds it."""
        path = locate(inputs, Path(getattr(self.settings.source, "data_dir", "")), "inputs")
        if not path.is_dir():
            return file_sha256(path)
        return sha256("".join(f"{file.name} {file_sha256(file)}\n" for file in arrays_in(path)).encode()).hexdigest()

    def _shared(self, model: Model, queries: Records) -> Model:
        """The same for the team, if there is one: its others read the same run, and queries too many to be sent."""
        shared, given = current_team.get(), {"run": str(self.finished.folder), "digest": self.finished.digest}
        if shared is None:
            return model
        from agt_cli.team import QUERIES, share_answers

        read = None if isinstance(queries.features, np.ndarray) else self.inputs
        with shared.at("open", {**given, "inputs": read, "compute": asdict(self.settings.compute)}):
            shared.made(lambda: model)
            replace(self, inputs=read).agree(shared.group)
        return share_answers(model, shared, {QUERIES: queries.features} if read else {})


@dataclass(frozen=True)
class OpenedRun:
    """A training run with its model, and the queries as the model takes them.

    Attributes:
        kept: its dataset, without the records where queries are brought along.
        queries: none yet where they come as lines.
        conditions: a to g, each as the weaker of its standing when the run was made and of what is known today.
    """

    trained: TrainedRun
    kept: RunWithoutRecords
    model: Model
    queries: Records
    conditions: tuple[Condition, ...]

    def check_current(self) -> None:
        """Raise CheckError where the run was changed since it was opened: nothing is answered from an earlier state."""
        if self._watch.changed:
            raise CheckError(
                f"run={self.trained.finished.folder}: the run was changed while it was asked (agt unlearn): what this "
                "command would say is of its earlier state, and nothing more is given out: ask again"
            )

    @cached_property
    def _watch(self) -> StateMonitor:
        return StateMonitor(self.trained.finished)

    @cached_property
    def waiting(self) -> PendingErasures:
        return PendingErasures.of(self.trained.finished)

    @property
    def dataset(self) -> Dataset:
        """What it was trained on; without its records where queries are brought along."""
        return self.kept.problem.dataset

    @property
    def labels(self) -> np.ndarray | None:
        """[n] the queries' true labels; None unless all are known."""
        labels = self.queries.labels
        return labels if bool((labels != UNLABELLED).all()) else None


def conditions_of(finished: Run) -> tuple[Condition, ...]:
    """Conditions a-g as the run itself recorded them.

    Raises:
        ConfigError: conditions.json is not what the run wrote, or is none.
    """
    try:
        return tuple(Condition.of(node) for node in json.loads(finished.read("conditions.json")))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"run={finished.folder}: conditions.json cannot be read ({error}): train again") from None


def _check_unchanged(finished: Run, prepared: Prepared) -> Iterator[str]:
    """Certificates are about the records that were trained on, and no others; of others beside them, a note.

    Raises:
        ConfigError, DataError: the training records, or what made their features, are not what they were.
    """
    now = {"data_digest": prepared.loaded.digest, "features_digest": prepared.dataset.digest}
    then = {key: finished.environment.get(key) for key in DIGESTS}
    if now == then:
        return
    key = HashKey.of(finished.folder)
    index = Index.of(finished, key) if key and not prepared.encoder else None
    if key is None or index is None:
        which = next(name for name in DIGESTS if now[name] != then[name])
        raise ConfigError(
            f"run={finished.folder}: the {DIGESTS[which]} changed since it was trained on (digest {then[which]} then, "
            f"{now[which]} now): restore it, or train again"
        )
    gone, _ = check_same(index, prepared.loaded.train, key)
    check_asked(index, gone, Log.of(finished).waiting)
    count, before = len(prepared.loaded.test), finished.metrics["n_test"]
    yield f"note: the {count} test records are not those that the run was trained beside ({before} then)"


def _queries(path: Path, run: RunWithoutRecords) -> Records:
    if path == LINES:
        return run.problem.dataset.test.take(np.arange(0))
    queries, encoder = run.source.load_queries(path), run.encoder
    if not len(queries):
        raise DataError(f"inputs={path}: holds no queries")
    return queries if encoder is None else replace(queries, features=encoder.apply(queries.features))
