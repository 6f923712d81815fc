"""Runs on disk: their state, found among others, read back, taken up again, and swapped for their next state.

A run holds the lock of its folder as long as its process lives. One whose state is "running" and whose lock nobody holds
was killed. ``run=latest`` is the newest finished training run, by the times that records tell: a file's time on the disk
says when it was copied, and a name may be anything, so neither counts. Runs that began in the same moment (records are
older than microseconds, or copies of each other) are ordered by the time in their folder's name.

A run's state is swapped for its next one (``record.NextState``) in the same folder: wholly, or not at all.

    RUN/unlearning/lock      held by the one process that changes the run
    RUN/unlearning/next/     a new state that is being written; it counts for nothing
    RUN/unlearning/commit/   a new state that is whole, and now the run's, whose files are on their way into its folder
    RUN/unlearning/key       the run's secret (agt_cli/unlearn/log.py): no state's, and never moved

Formal guarantees
    A new state is on the disk, every file and name of it synced, before the one rename from next to commit; so a process
    that ends at any moment, by a power cut too, leaves the earlier state or the new one. From the rename on, whoever opens
    the run first brings its files into their places (``recover``). Each step of that may be taken twice: a file that has
    left commit/ is in its place; old files are deleted by the old manifest's list, which stays until all of them are gone;
    the new manifest comes after them, and commit/ goes last. Before the first file moves, each is compared with the new
    manifest, and links are refused: what was planted or damaged changes nothing, in the run or outside. Whoever reads
    meanwhile, without looking for commit/, compares each file with a manifest, and stops at the first of another state:
    nobody mixes two.

Who audits never writes: where commit/ holds a manifest, an audit says that an erasure was carried out whose files are not
all in their places yet (any other command on the run brings them there), and goes no further; next/ and lock it only notes.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from os.path import lexists
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from agt.errors import ConfigError, counted
from agt.store import (
    MANIFEST_FILE,
    MAX_FILE_BYTES,
    MAX_TEXT_BYTES,
    Broken,
    Folder,
    Lock,
    Manifest,
    is_locked,
    parse_object,
    parse_yaml,
    read_file,
    refusing,
    sync_folder,
)
from agt_cli import SWEEP_SUFFIX
from agt_cli.usage import OLD_SPELLINGS

if TYPE_CHECKING:
    pass

LATEST = "latest"
LOCK = "lock"  # in a run's folder; its process holds it as long as it lives
SPENT_FILE = "spent.json"  # what a release says on disk before it draws
CHECKPOINTS = "checkpoint"  # the folder of what a training had reached; no part of the finished record
RESUME_KEY = "resume"
UNKNOWN = "it has no lock, and nobody can tell whether its process lives"
RunState = Literal["done", "failed", "running", "killed", "unreadable"]
UNREADABLE = "status.json cannot be read"
_UNBOUND = Manifest("", {})
_STAMP = re.compile(r"\d{4}(-\d\d){2}_\d\d(-\d\d){2}-\d{6}")  # in a run's name
_NEVER = datetime.min.replace(tzinfo=UTC)
_ANSWERS = (  # of a run's metrics, the main one first
    ("test_accuracy", "test accuracy"),
    ("stable_distance_median", "median stable distance"),
    ("accuracy", "accuracy without noise"),
    ("artifacts", "figures and tables"),
)


class RecordedEntries(dict[str, Any]):
    """Entries of a record's file. One that is not there is a fault of the file, and none of the program.

    Args:
        file: which file it is, for messages.

    Raises:
        ConfigError: an entry is asked for by its key, and is not there.
    """

    def __init__(self, file: str, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.file = file

    def __missing__(self, key: str) -> Any:
        raise ConfigError(f"{self.file} has no entry '{key}', so it is not as agt wrote it: train again")


@dataclass(frozen=True)
class Run(Folder):
    """A run's folder. ``open_run`` verifies a finished one; ``Run.at`` takes any, of which nothing is verified.

    A file is read when something of it is wanted, so that a list of thousands is a matter of their status.json alone.
    What cannot be read of a run that is not verified is empty.
    """

    @classmethod
    def at(cls, folder: Path, key: str = "run") -> "Run":
        """Whatever lies there."""
        return cls(folder, folder, _UNBOUND, key)

    @property
    def verified(self) -> bool:
        """Whether its files are compared with its manifest as they are read."""
        return self.manifest is not _UNBOUND

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """One file, as the run wrote it (``Folder.read``); who reads while the run's state is swapped is told so."""
        if not self.verified:
            with refusing(self.folder, self.key):
                return read_file(self.folder / name, limit, name)
        try:
            return super().read(name, limit)
        except ConfigError:
            if not has_pending_commit(self.home) and manifest_digest(self.home) == self.digest:
                raise
            raise ConfigError(f"{self.key}={self.home}: {_SWAPPED}") from None

    def _recorded(self, name: str) -> dict[str, Any]:
        try:
            entries = self.yaml(name) if name.endswith(".yaml") else self.json(name)
            return RecordedEntries(f"{self.key}={self.folder}: {name}", entries)
        except ConfigError:
            if self.verified:
                raise
            return {}

    @cached_property
    def status(self) -> dict[str, Any]:
        return self._recorded("status.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._recorded("env.json")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return self._recorded("metrics.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        return self._recorded("config.yaml")

    @cached_property
    def state(self) -> RunState:
        """running, done or failed as recorded; killed: recorded as running, and its process is gone; else unreadable."""
        state = str(self.status.get("state", "unreadable"))
        return "killed" if state == "running" and not self.is_alive else state  # type: ignore[return-value]

    @property
    def is_alive(self) -> bool | None:
        """Whether its process is there; None: nobody can tell, as it left no lock."""
        return is_locked(self.folder / LOCK)

    @property
    def command(self) -> str:
        return str(self.status.get("command", ""))

    @property
    def started(self) -> str:
        return str(self.status.get("started", ""))

    @property
    def moment(self) -> datetime:
        """When it started; the beginning of time where that cannot be told."""
        try:
            return datetime.fromisoformat(self.started).astimezone(UTC)
        except (ValueError, OverflowError):
            return _NEVER

    @property
    def age(self) -> tuple[datetime, str, int]:
        """Orders runs, the oldest first."""
        stamps = [match[0] for name in self.folder.parts[-2:] if (match := _STAMP.match(name))]
        return self.moment, stamps[-1] if stamps else "", int(self.folder.name) if self.folder.name.isdecimal() else 0

    @property
    def error(self) -> str:
        return str(self.status.get("error") or "")

    @property
    def dataset(self) -> str:
        return str(self.environment.get("dataset", ""))

    @property
    def overrides(self) -> tuple[str, ...]:
        """Of a sweep's job, what the command line changed."""
        words = self.environment.get("overrides")
        return tuple(map(str, words)) if isinstance(words, list) else ()

    @property
    def sweep(self) -> Path | None:
        """The folder of the sweep that it is a job of."""
        return self.folder.parent if self.folder.parent.name.endswith(SWEEP_SUFFIX) else None

    @property
    def digest(self) -> str:
        """Of the manifest that it was verified by, or of the one that lies there if it is finished; empty: it has none."""
        if self.verified:
            return self.manifest.digest
        return manifest_digest(self.folder) if self.state == "done" else ""

    @cached_property
    def model(self) -> str:
        """Hidden layers, certificate and members of the run, or of the one that it used, in words."""
        if self.command != "train":
            trained = Run.at(Path(str(self.environment.get("trained_run"))))
            return trained.model if trained.command == "train" else ""  # never a record that names itself
        settings = self._model_settings
        model, certificate = (settings.get(name) or {} for name in ("model", "certificate"))
        if not isinstance(model, dict) or not isinstance(certificate, dict) or not model:
            return ""
        hidden, count = model.get("hidden"), self.metrics.get("members", 1)
        layers = "" if not isinstance(hidden, list) else f"hidden {'-'.join(map(str, hidden))}" if hidden else "linear"
        members = f"{count} members" if count != 1 else ""
        kind = str(certificate.get("name", "box"))
        version = ""
        if f"certificate={kind}" in OLD_SPELLINGS:
            version = f"made by agt {self.environment.get('agt')}"
        return ", ".join(filter(None, (layers, kind, members, version)))

    @property
    def _model_settings(self) -> dict[str, Any]:
        """Two blocks of the configuration: parsing all of it would take most of the time that a long list takes."""
        with suppress(ConfigError, Broken, ValueError):
            text = self.read("config.yaml", MAX_TEXT_BYTES).decode()
            blocks = re.findall(r"^(?:model|certificate):\n(?: .*\n)+", text, re.MULTILINE)
            return parse_yaml("".join(blocks).encode(), "config.yaml")
        return {}

    @cached_property
    def result(self) -> str:
        """Its main number, in words; or why there is none."""
        if not self.status:
            return UNREADABLE
        return self.error or (self._answer() if self.state == "done" else "")

    def _answer(self) -> str:
        metrics = self.metrics
        if self.command == "predict":
            simulated = "SIMULATION of " if metrics.get("simulated") else ""
            proof = "" if metrics.get("proved") or simulated else ", not proved"
            earlier = "answers that were released earlier" if "stored" in metrics else "labels of weights released earlier"
            totals = self._recorded("spent.json").get("totals")  # of all its answers, not of one
            total = totals[0] if isinstance(totals, list) and totals else earlier
            return f"{simulated}{total}{proof}"
        if self.command == "audit":
            summary = "summary by an earlier version: " if "audits" in self.environment else ""
            return f"{summary}{metrics.get('verdict', '')}"
        if isinstance(removed := metrics.get("removed"), int):
            return f"{counted(removed, 'record')} removed{', in a rehearsal' * ('rehearsed' in self.environment)}"
        for name, words in _ANSWERS:
            if isinstance(number := metrics.get(name), int | float):
                return f"{number:.3f} {words}" if "accuracy" in name else f"{number:g} {words}"
        return ""

    def as_json(self) -> dict[str, Any]:
        about = ("command", "state", "started", "dataset", "model", "result", "digest")
        seconds = {"seconds": self.status["seconds"]} if "seconds" in self.status else {}
        words = {name: getattr(self, name) for name in about}
        return {"run": str(self.folder), **words, **seconds, "overrides": self.overrides, "metrics": self.metrics}


# -- runs in a folder ------------------------------------------------------------------------------------------------------


def runs_below(outputs: Path) -> Iterator[Run]:
    """Every run: a folder with a status.json, two levels down or, of a sweep's job, three."""
    for command in _folders(outputs):
        yield from runs_in(command)


def runs_in(home: Path) -> Iterator[Run]:
    """The runs of one command's folder, and the jobs of its sweeps."""
    for folder in _folders(home):
        if (folder / "status.json").exists():
            yield Run.at(folder)
        elif folder.name.endswith(SWEEP_SUFFIX):
            yield from jobs_of(folder)


def jobs_of(sweep: Path) -> Iterator[Run]:
    yield from map(Run.at, _folders(sweep))


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []


def runs_of(home: Path, command: str) -> list[Run]:
    """The runs of ``command`` in a folder, and the jobs of its sweeps, the newest first."""
    paths = (path.parent for place in ("*/status.json", "*/*/status.json") for path in home.glob(place))
    runs = [run for run in map(Run.at, paths) if run.command == command and run.moment != _NEVER and "state" in run.status]
    return sorted(runs, key=lambda run: run.age, reverse=True)


def newest(home: Path, command: str) -> Run | None:
    return next((run for run in runs_of(home, command) if run.state == "done"), None)


def resolve_latest(config: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """A command's configuration with the folder that ``run=latest`` means in its place.

    Args:
        note: takes a line that says which one.

    Raises:
        ConfigError: there is none, or ``run`` names nothing.
    """
    if "run" not in config or (isinstance(config["run"], str) and config["run"] not in ("", LATEST)):
        return config
    if config["run"] is None and (config.get("release") or config.get("audit")) is not None:  # not all of these need a run
        return config
    if config["run"] != LATEST:
        raise ConfigError(f"run: expected the folder of a finished agt train, or latest, got {config['run']!r}")
    home = Path(str(config.get("output_dir"))) / "train"
    runs = runs_of(home, "train")
    done = next((place for place, run in enumerate(runs) if run.state == "done"), None)
    if done is None:
        unfinished = f" (not finished: {_summary(runs)})" if runs else ""
        raise ConfigError(
            f"run=latest: no finished training run in {home}{unfinished}: start agt train, or give run=FOLDER (runs are "
            "looked for under output_dir)"
        )
    note(f"run=latest is {runs[done].folder}")
    if done:
        note(f"note: newer, but not finished, and so not taken: {_summary(runs[:done])}")
    return {**config, "run": str(runs[done].folder)}


def _summary(runs: list[Run]) -> str:
    first = runs[0]
    state = f"killed: agt train resume={first.folder} goes on with it" if first.state == "killed" else first.state
    error = f" ({first.error.splitlines()[0]})" if first.error else ""
    more = f", and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{first.folder}, {state}{error}{more}"


# -- one that goes on ------------------------------------------------------------------------------------------------------


def open_unfinished(folder: Path, command: str) -> Run:
    """A run that was killed or failed, with what it was begun with.

    Raises:
        ConfigError: no such folder, not a run, another command's, still running, finished, or killed before its settings
            were written.
    """
    if not folder.is_dir():
        raise ConfigError(f"{RESUME_KEY}={folder}: no such folder: give the folder of a run that was killed")
    if not (folder / "status.json").exists():
        raise ConfigError(f"{RESUME_KEY}={folder}: status.json is missing: is this the folder of a run?")
    run = Run.at(folder, RESUME_KEY)
    run.json("status.json")  # says why it cannot be read
    if run.command != command:
        raise ConfigError(f"{RESUME_KEY}={folder}: this is a run of {run.command!r}, not of {command!r}: start it again")
    if run.state == "running":
        raise still_running(folder)
    check_open(run)
    if run.state == "killed" and run.is_alive is None:
        raise ConfigError(f"{RESUME_KEY}={folder}: {UNKNOWN}: start it anew, once you know that it does not")
    if not (folder / "config.yaml").exists():
        raise ConfigError(f"{RESUME_KEY}={folder}: no config.yaml: the run was killed before it began: start it anew")
    run.yaml("config.yaml")
    if (folder / "env.json").exists():
        run.json("env.json")
    return run


def still_running(folder: Path) -> ConfigError:
    """What to raise of a run whose process is alive."""
    return ConfigError(
        f"{RESUME_KEY}={folder}: the run is still going on, in another process: wait for it, or end it first"
    )


def check_open(run: Run) -> None:
    """Raise ConfigError of a run that is finished; what it should have removed, had it not been killed then, goes."""
    if run.state == "done":
        remove_leftovers(run.folder)
        raise ConfigError(
            f"{RESUME_KEY}={run.folder}: the run is finished, there is nothing to do: agt certify run={run.folder} comes "
            "next"
        )


def remove_leftovers(folder: Path) -> None:
    """Remove what a finished run needs no more."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)


# -- states that an erasure replaced ---------------------------------------------------------------------------------------

UNLEARN, ACCOUNT_FILE = "unlearn", "account.json"


def home_of(run: Path) -> list[Path]:
    """The output folder that a training run lies in; none where it lies elsewhere."""
    return [folder.parent for folder in run.resolve().parents if folder.name == "train"][:1]


def check_not_replaced(digest: str, folder: Path, places: Iterable[Path], key: str = "run") -> None:
    """Refuse a state of a run that an account of an erasure says was replaced: a folder from before it was put back.

    A run's own log, which its manifest lists, cannot know of an entry that names this digest as the state before.

    Args:
        digest: of the run in ``folder``; empty: nothing can be said.
        places: output folders, whose accounts are looked at. One that cannot be read to its end, and names this state,
            counts; one that cannot be read at all does not.

    Raises:
        ConfigError: names the account.
    """
    paths = (path for place in places for depth in ("*", "*/*") for path in place.glob(f"{UNLEARN}/{depth}/{ACCOUNT_FILE}"))
    for path in sorted(paths) if digest else ():
        with suppress(Broken, OSError):
            content = read_file(path, MAX_FILE_BYTES)
            if digest.encode() not in content:
                continue
            try:
                state = parse_object(content, ACCOUNT_FILE)["state"]
                number = state["entry"] if state["before"] == digest else None
            except (Broken, KeyError, TypeError):
                number = "of a damaged account"
            if number is not None:
                raise ConfigError(
                    f"{key}={folder}: erasure {number} replaced this state, as {path} says: the folder is from before it, "
                    "and holds what was erased. Bring back the run as it was after it; or delete this folder and train "
                    "again without the erased records"
                )


# -- a finished one --------------------------------------------------------------------------------------------------------

_TRIES = 3  # of a run that changes while it is opened
_SWAPPED = "its state was changed while it was read (agt unlearn): ask again"


def check_folder(folder: Path, command: str, key: str = "run") -> None:
    """Raise ConfigError where there is no such folder, naming the newest finished run of ``command`` beside it."""
    if not folder.is_dir():
        run = newest(folder.parent, command)
        beside = f"; the newest finished {command} run there is {run.folder}" if run else ""
        raise ConfigError(f"{key}={folder}: no such folder{beside}")


def check_edits(run: Run, doing: str) -> None:
    """Refuse a training run whose certificates count changed labels or features, where records come and go.

    Raises:
        ConfigError: it was trained with relation=flip; or with perturb, which agt audit certificate alone makes edits of.
    """
    from agt.relations import RELATIONS  # torch, which help and wrong paths do without
    from agt.settings import RelationConfig, validate

    relation = validate(RelationConfig, run.config["relation"], "relation").name
    rule = RELATIONS[relation]
    if rule.labels or (rule.features and doing != "agt audit certificate"):
        changed = "labels" if rule.labels else "features"
        raise ConfigError(
            f"run={run.folder}: relation={relation}: its certificates count changed {changed}, and {doing} adds or removes "
            "records: train with relation=add_remove"
        )


def open_run(folder: Path, command: str, digest: str | None = None, key: str = "run") -> Run:
    """Read a finished run of ``command``, and verify every file of it.

    A run whose state is just being swapped is read in its new one; an interrupted swap is brought to its end.

    Args:
        digest: the run must be the one of this digest; None: any.
        key: the setting that names the folder, for messages; ``digest`` is another beside it.

    Raises:
        ConfigError: no such folder, not a run, another command's run, not finished, another run than ``digest``, or a file
            is not what the run wrote; says which file shows it.
    """
    check_folder(folder, command, key)
    recover(folder, key)
    for _ in range(_TRIES):
        before = manifest_digest(folder)
        try:
            return _open_verified(folder, command, digest, key)
        except ConfigError:
            recover(folder, key)
            if manifest_digest(folder) == before:
                raise
    raise ConfigError(f"{key}={folder}: {_SWAPPED}")


def _open_verified(folder: Path, command: str, digest: str | None, key: str) -> Run:
    if not (folder / "status.json").exists():
        raise ConfigError(f"{key}={folder}: not a run folder (status.json is missing)")
    there = Run.at(folder, key)
    there.json("status.json")  # says why it cannot be read
    _check_done(there, command)
    run = Run.open(folder, command, digest, key)
    _ = run.status, run.environment, run.metrics, run.config  # of this state, whatever comes after it
    return run


def manifest_digest(folder: Path) -> str:
    """The digest of the manifest that lies there now; empty: none does."""
    try:
        return f"sha256:{sha256(read_file(folder / MANIFEST_FILE)).hexdigest()}"
    except Broken:
        return ""


def _check_done(run: Run, command: str) -> None:
    named = f"{run.key}={run.folder}"
    if run.command != command:
        raise ConfigError(f"{named}: status.json says this is a run of {run.command!r}, not {command!r}")
    if run.state == "done":
        return
    why, again = f" ({run.error})" if run.error else "", f"start `agt {command}` again"
    resume = f"agt train resume={run.folder} goes on with it" if command == "train" else again
    if run.state == "running":
        why, resume = " and it is", "wait for it"
    elif run.state == "killed" and run.is_alive is None:
        why, resume = f", and {UNKNOWN}", again
    elif run.state == "killed":
        why = ", and its process is gone: it was killed"
    said = run.status.get("state")
    raise ConfigError(f"{named}: status.json says {said!r}{why}, so there is nothing to use: {resume}")


# -- its next state --------------------------------------------------------------------------------------------------------

HOME = "unlearning"
STATE_LOCK, NEXT, COMMIT = f"{HOME}/lock", f"{HOME}/next", f"{HOME}/commit"
PATIENCE = 10.0  # seconds that a reader waits for files to come into their places


@contextmanager
def run_lock(folder: Path, key: str = "run") -> Iterator[None]:
    """Be the one process that changes a run; what an earlier one left is settled first, and what this one leaves, after.

    Args:
        key: the setting that names the folder, for messages.

    Raises:
        ConfigError: another process changes it just now; the folder cannot be written, or keeps no locks; or a link, or a
            damaged state, lies where this module keeps its own.
    """
    if not (folder / "status.json").is_file():
        raise ConfigError(f"{key}={folder}: not the folder of a run")
    lock = _take_lock(folder, key)
    try:
        _finish_commit(folder, key)
        yield
    finally:
        with suppress(OSError):
            shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def recover(folder: Path, key: str = "run") -> None:
    """Bring a run that an interrupted erasure left into its new state, before it is read; nothing where there was none.

    Raises:
        ConfigError: another process is at it and does not come to an end; the folder cannot be written; or what lies there
            is no state that an erasure left.
    """
    if not lexists(folder / COMMIT):
        _discard_staged(folder)
        return
    end = time.monotonic() + PATIENCE
    while lexists(folder / COMMIT):
        if is_locked(folder / STATE_LOCK) is not True:
            lock = _take_lock(folder, key)
            try:
                _finish_commit(folder, key)
            finally:
                lock.release()
        elif time.monotonic() > end:
            raise ConfigError(f"{key}={folder}: agt unlearn is changing this run just now: ask again when it is done")
        else:
            time.sleep(0.05)


def has_pending_commit(folder: Path) -> bool:
    """Whether a new state's files are on their way; for whoever must not write (an audit)."""
    return (folder / COMMIT / MANIFEST_FILE).exists()


def commit(folder: Path) -> None:
    """Make the finished record in next/ the run's state. The caller holds the run.

    Raises:
        ConfigError: the record is not whole; nothing is changed then.
    """
    staged = folder / NEXT
    try:
        _check_places(folder, "run")
        new = _check_whole(folder, staged)
    except (OSError, Broken) as error:
        raise ConfigError(f"run={folder}: its next state is not whole ({error}), and nothing was changed") from None
    sync_folder(staged)
    staged.rename(folder / COMMIT)
    sync_folder(folder / HOME)
    _roll_forward(folder, new)
    _remove_commit(folder)


def _check_places(folder: Path, key: str) -> None:
    """Raise ConfigError where a link, or a file in a folder's place, would lead writing elsewhere."""
    for name in (HOME, STATE_LOCK, NEXT, COMMIT):
        path = folder / name
        no_folder = name != STATE_LOCK and path.exists() and not path.is_dir()
        odd = "a link" if path.is_symlink() else "no folder" if no_folder else ""
        if odd:
            raise ConfigError(
                f"{key}={folder}: {name} is {odd}, and agt unlearn makes none there: nothing was changed; look where it "
                f"comes from, and delete it: rm {path}"
            )


def _check_whole(folder: Path, staged: Path) -> Manifest:
    """A next state's manifest, if each of its files lies beside that or is in its place, and none would land elsewhere.

    Raises:
        OSError, Broken: it is not so.
    """
    new = Manifest.open(staged)
    here = {name for name in new.files if lexists(staged / name)}
    for name in (*new.files, *_listed_files(folder)):
        for path in (staged / name, *_parents(staged, name), *_parents(folder, name)):
            if path.is_symlink():
                raise Broken(f"{path.relative_to(folder)} is a link")
    Manifest(new.command, {name: new.files[name] for name in here}).verify(staged)
    Manifest(new.command, {name: new.files[name] for name in new.files.keys() - here}).verify(folder)
    return new


def _parents(folder: Path, name: str) -> Iterator[Path]:
    """The folders in a folder that a file lies in."""
    return (folder / part for part in PurePath(name).parents if part.name)


def _take_lock(folder: Path, key: str) -> Lock:
    _check_places(folder, key)
    lock = Lock(folder / STATE_LOCK)
    try:
        (folder / HOME).mkdir(exist_ok=True)
        got = lock.take()
    except OSError as error:
        raise ConfigError(
            f"{key}={folder}: {error.filename or STATE_LOCK} cannot be written ({error.strerror or error}), and an erasure "
            "changes the run in its folder: make it writable"
        ) from None
    if not got:
        raise ConfigError(f"{key}={folder}: another agt unlearn is changing this run just now: wait until it is done")
    if not lock.works:
        raise ConfigError(
            f"{key}={folder}: this file system keeps no locks, so two erasures at once could not be told apart: copy the "
            "run to a local disk"
        )
    return lock


def _discard_staged(folder: Path) -> None:
    """Delete what a process that was killed had begun to write; it is no state. Who cannot write leaves it."""
    if not lexists(folder / NEXT) or is_locked(folder / STATE_LOCK):
        return
    with suppress(ConfigError):
        lock = _take_lock(folder, "run")
        shutil.rmtree(folder / NEXT, ignore_errors=True)
        lock.release()


def _finish_commit(folder: Path, key: str) -> None:
    """Roll forward, and delete what was begun. The caller has the lock.

    Raises:
        ConfigError: what lies in commit/ is not the whole state that an erasure left; nothing is changed then.
    """
    commit = folder / COMMIT
    if lexists(commit / MANIFEST_FILE):
        try:
            new = _check_whole(folder, commit)
        except (OSError, Broken) as error:
            raise ConfigError(
                f"{key}={folder}: {COMMIT} holds a new state that is not as agt unlearn left it ({error}), and nothing was "
                f"changed: restore it; or, if it is none of yours, move {commit} away: the run is then verified as it is"
            ) from None
        _roll_forward(folder, new)
    _remove_commit(folder)
    shutil.rmtree(folder / NEXT, ignore_errors=True)


def _remove_commit(folder: Path) -> None:
    if (folder / COMMIT).exists():
        shutil.rmtree(folder / COMMIT)
        sync_folder(folder / HOME)


def _roll_forward(folder: Path, new: Manifest) -> None:
    """Bring every file of commit/ into its place, delete the earlier state's, and then swap the manifests."""
    touched = {folder}
    for name in new.files:
        if (folder / COMMIT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / COMMIT / name).replace(folder / name)
            touched.add((folder / name).parent)
    for name in _listed_files(folder) - new.files.keys():
        (folder / name).unlink(missing_ok=True)
        _remove_empty((folder / name).parent, folder)
    remove_leftovers(folder)
    for place in touched:
        sync_folder(place)
    (folder / COMMIT / MANIFEST_FILE).replace(folder / MANIFEST_FILE)
    sync_folder(folder)


def _listed_files(folder: Path) -> set[str]:
    """The files of the state that is leaving."""
    with suppress(OSError, Broken):
        return set(Manifest.open(folder).files)
    return set()


def _remove_empty(place: Path, folder: Path) -> None:
    with suppress(OSError):
        while place != folder:
            place.rmdir()
            place = place.parent
