"""Read the folder of a run: its state, settings, metrics and results.

A process holds the lock of its run's folder while it lives. A run whose state is "running" but
whose lock nobody holds was killed.

Runs are ordered by the time of their start, as they recorded it. The time of a file on the disk may
be that of a copy, and a folder may have any name, so these are not used. Runs that started at the
same time (old records have no microseconds, and a run may be a copy of another) are ordered by the
time in their folder's name.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from agt import sentences
from agt.errors import ConfigError, counted
from agt.store.folder import Folder, broken_as_config_error
from agt.store.lock import is_locked
from agt.store.manifest import MANIFEST_FILE, Manifest
from agt.store.reading import MAX_FILE_BYTES, MAX_TEXT_BYTES, Broken, read_file
from agt.store.yaml_text import parse_yaml
from agt_cli import SWEEP_SUFFIX

LOCK_FILE = "lock"  # in a run's folder; its process holds this lock while it lives

SOURCE_FILE = "source.json"  # what describes the data of a training without any record

SPENT_FILE = "spent.json"  # the budget of a release, written before anything is drawn

CHECKPOINTS = "checkpoint"  # the folder of an unfinished training's state

RunState = Literal["done", "failed", "running", "killed", "unreadable"]

UNREADABLE = "status.json cannot be read"

_UNBOUND = Manifest("", {})

_STAMP = re.compile(r"\d{4}(-\d\d){2}_\d\d(-\d\d){2}-\d{6}")  # in a run's name

UNKNOWN_START = datetime.min.replace(tzinfo=UTC)

_MAIN_METRICS = (  # metric and its name for people; the first one that a run has is shown
    ("test_accuracy", "test accuracy"),
    ("stable_distance_median", "median stable distance"),
    ("accuracy", "accuracy without noise"),
    ("artifacts", "figures and tables"),
)


class RecordedEntries(dict[str, Any]):
    """The entries of a record's file, where a missing entry is an error of the file.

    Args:
        file: the name of the file, for messages.
        entries: its entries.

    Raises:
        ConfigError: ``entries[key]`` is read, but there is no such entry.
    """

    def __init__(self, file: str, entries: Mapping[str, Any]) -> None:
        super().__init__(entries)
        self.file = file

    def __missing__(self, key: str) -> Any:
        raise ConfigError(
            f"{self.file} has no entry '{key}', so this version of agt did not write it: "
            "train again"
        )


@dataclass(frozen=True)
class Run(Folder):
    """The folder of a run.

    ``open_run`` returns a finished run whose files are compared with its manifest as they are read;
    ``Run.at`` returns a run that is not verified. Files are read only when something in them is
    needed, so that a list of thousands of runs reads little more than each status.json. If a file
    of a run that is not verified cannot be read, its entries are empty.
    """

    @classmethod
    def at(cls, folder: Path, key: str = "run") -> "Run":
        """Return the run in a folder, not verified; the folder need not exist.

        Args:
            folder: the folder.
            key: the setting that names it, for messages.
        """
        return cls(folder, folder, _UNBOUND, key)

    @property
    def verified(self) -> bool:
        """True: files are compared with the run's manifest when they are read."""
        return self.manifest is not _UNBOUND

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file of the run.

        Args:
            name: the path of the file in the folder.
            limit: the largest number of bytes that it may have.

        Raises:
            ConfigError: the file cannot be read, or is not what a verified run wrote. If that is so
                because ``agt unlearn`` changed the run meanwhile, the message says it.
        """
        if not self.verified:
            with broken_as_config_error(self.folder, self.key):
                return read_file(self.folder / name, limit, name)
        try:
            return super().read(name, limit)
        except ConfigError:
            if not has_pending_commit(self.home) and manifest_digest(self.home) == self.digest:
                raise
            raise ConfigError(f"{self.key}={self.home}: {CHANGED_MEANWHILE}") from None

    def _recorded(self, name: str) -> dict[str, Any]:
        """Return the entries of a JSON or YAML file of the run.

        Raises:
            ConfigError: the run is verified, and the file cannot be read.
        """
        try:
            entries = self.yaml(name) if name.endswith(".yaml") else self.json(name)
            return RecordedEntries(f"{self.key}={self.folder}: {name}", entries)
        except ConfigError:
            if self.verified:
                raise
            return {}

    @cached_property
    def status(self) -> dict[str, Any]:
        """The entries of status.json."""
        return self._recorded("status.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The entries of env.json."""
        return self._recorded("env.json")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The entries of metrics.json."""
        return self._recorded("metrics.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The entries of config.yaml."""
        return self._recorded("config.yaml")

    @cached_property
    def state(self) -> RunState:
        """The recorded state, but "killed" if it is "running" and the process is gone.

        It is "unreadable" if none is recorded.
        """
        state = str(self.status.get("state", "unreadable"))
        return "killed" if state == "running" and not self.is_alive else state  # type: ignore[return-value]

    @property
    def is_alive(self) -> bool | None:
        """True: the run's process still exists; None: not known, because there is no lock file."""
        return is_locked(self.folder / LOCK_FILE)

    @property
    def command(self) -> str:
        """The name of the command; empty: not known."""
        return str(self.status.get("command", ""))

    @property
    def started(self) -> str:
        """The time of the start, as it was recorded; empty: not known."""
        return str(self.status.get("started", ""))

    @property
    def start_time(self) -> datetime:
        """The time of the start; _NEVER, which is before all others, if it is not known."""
        try:
            return datetime.fromisoformat(self.started).astimezone(UTC)
        except (ValueError, OverflowError):
            return UNKNOWN_START

    @property
    def sort_key(self) -> tuple[datetime, str, int]:
        """The key by which runs are sorted, the oldest first.

        It is the time of the start, the time in the name of the run's or the sweep's folder, and
        the number of a sweep's job.
        """
        stamps = [match[0] for name in self.folder.parts[-2:] if (match := _STAMP.match(name))]
        name = self.folder.name
        return self.start_time, "".join(stamps[-1:]), int(name) if name.isdecimal() else 0

    @property
    def error(self) -> str:
        """Why the run failed; empty: the run did not fail, or the reason was not recorded."""
        return str(self.status.get("error") or "")

    @property
    def dataset(self) -> str:
        """The name of the dataset; empty: not known."""
        return str(self.environment.get("dataset", ""))

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings that were typed, of a job of a sweep; of other runs, none."""
        words = self.environment.get("overrides")
        return tuple(map(str, words)) if isinstance(words, list) else ()

    @property
    def sweep(self) -> Path | None:
        """The folder of the sweep of which the run is a job; None: the run is no job of a sweep."""
        parent = self.folder.parent
        return parent if parent.name.endswith(SWEEP_SUFFIX) else None

    @property
    def digest(self) -> str:
        """The digest of the manifest with which the run was verified.

        If it was not verified, it is that of the manifest in the folder. It is empty if the run is
        not finished.
        """
        if self.verified:
            return self.manifest.digest
        return manifest_digest(self.folder) if self.state == "done" else ""

    @cached_property
    def model(self) -> str:
        """The hidden layers, the certificate and the number of members of the run's model.

        For a run of another command, it is the model of the training run that it used. It is empty
        if it is not known.
        """
        if self.command != "train":
            trained = Run.at(Path(str(self.environment.get("trained_run"))))
            # The check also ends the recursion if a damaged record names itself.
            return trained.model if trained.command == "train" else ""
        model = self._setting_block("model")
        if not model:
            return ""
        hidden = model.get("hidden")
        layers = ""
        if isinstance(hidden, list):
            layers = f"hidden {'-'.join(map(str, hidden))}" if hidden else "linear"
        count = self.metrics.get("members", 1)
        members = f"{count} members" if count != 1 else ""
        kind = str(self._setting_block("certificate").get("name", "box"))
        return ", ".join(filter(None, (layers, kind, members)))

    def _setting_block(self, name: str) -> dict[str, Any]:
        """Return one block of the configuration; empty if there is none, or if it is no mapping."""
        block = self._setting_blocks.get(name)
        return block if isinstance(block, dict) else {}

    @cached_property
    def _setting_blocks(self) -> dict[str, Any]:
        """The blocks of the configuration that a list of runs needs; none if it cannot be read.

        Parsing whole configurations would take most of the time of the list.
        """
        with suppress(ConfigError, Broken, ValueError):
            text = self.read("config.yaml", MAX_TEXT_BYTES).decode()
            blocks = re.findall(r"^(?:model|certificate):\n(?: .*\n)+", text, re.MULTILINE)
            return parse_yaml("".join(blocks).encode(), "config.yaml")
        return {}

    @cached_property
    def result(self) -> str:
        """The main result of the run, as a clause; or the error, or empty."""
        if not self.status:
            return UNREADABLE
        result = self.error
        if not result and self.state == "done":
            result = self._released if self.command == "predict" else self._main_result
        return result

    @property
    def _released(self) -> str:
        """A clause on what a finished release cost."""
        simulated = "SIMULATION of " if self.metrics.get("simulated") else ""
        proof = "" if self.metrics.get("proved") or simulated else ", not proved"
        cost = "labels computed from weights that were released earlier, so at no further cost"
        if "stored" in self.metrics:
            cost = "answers that were released earlier, so at no further cost"
        with suppress(ConfigError, KeyError, TypeError, IndexError, ValueError):
            cost = spent_lines(self._recorded(SPENT_FILE))[0]
        return f"{simulated}{cost}{proof}"

    @property
    def _main_result(self) -> str:
        """A clause with the main metric of a finished run that is not a release; empty: none."""
        metrics = self.metrics
        if self.command == "audit":
            return str(metrics.get("verdict", ""))
        if isinstance(removed := metrics.get("removed"), int):
            records = counted(removed, "record")
            dry_run = " in a dry run (on a copy)" if "rehearsed" in self.environment else ""
            return f"{records} removed{dry_run}"
        for name, words in _MAIN_METRICS:
            if isinstance(number := metrics.get(name), int | float):
                if "accuracy" in name:
                    return f"{number:.3f} {words}"
                bound = "at least " if metrics.get(f"{name}_is_lower_bound") else ""
                return f"{bound}{number:g} {words}"
        return ""

    def as_json(self) -> dict[str, Any]:
        """Return what ``agt runs --json`` prints about the run."""
        about: dict[str, Any] = {"run": str(self.folder)}
        for name in ("command", "state", "started", "dataset", "model", "result", "digest"):
            about[name] = getattr(self, name)
        if "seconds" in self.status:
            about["seconds"] = self.status["seconds"]
        return {**about, "overrides": self.overrides, "metrics": self.metrics}


def check_is_run(folder: Path, key: str) -> None:
    """Raise ConfigError if a folder has no status.json, which every run has.

    Args:
        folder: it may not exist.
        key: the setting that names the folder, for messages.
    """
    if not (folder / "status.json").is_file():
        raise ConfigError(
            f"{key}={folder}: this is not the folder of a run (it has no file status.json): give "
            "the folder of a run"
        )


def spent_lines(spent: Mapping[str, Any]) -> list[str]:
    """Return sentences on the budget in a spent.json, which are made from its fields.

    Args:
        spent: the content of spent.json.

    Raises:
        KeyError, TypeError, ValueError: agt wrote no such file.
    """
    totals = spent["totals"]
    if not isinstance(totals, list):
        raise TypeError(
            f"spent.json: the entry 'totals' must be a list, but is {totals!r}. Restore the "
            "file from a backup"
        )
    released_output = spent["what"]
    given = sentences.guarantee(spent["guarantee"])
    if not totals and released_output == "weights":
        # The guarantee of noise in training is that of the whole training.
        return [sentences.trained_noise_line(given)]
    if not totals:
        return [sentences.spent_line(1, given)]
    over = spent["queries"] if released_output == "labels" else None
    return [
        sentences.spent_line(over, sentences.total(total["eps"], total["delta"], total["bound"]))
        for total in totals
    ]


UNLEARN = "unlearn"
ACCOUNT_FILE = "account.json"

CHANGED_MEANWHILE = "agt unlearn changed the run while agt was reading it: type the command again"


def manifest_digest(folder: Path) -> str:
    """Return the digest of the manifest in a folder; empty: the folder has no manifest."""
    try:
        return f"sha256:{sha256(read_file(folder / MANIFEST_FILE)).hexdigest()}"
    except Broken:
        return ""


UNLEARNING_FOLDER = "unlearning"

STATE_LOCK = f"{UNLEARNING_FOLDER}/lock"
NEXT_STATE_FOLDER = f"{UNLEARNING_FOLDER}/next"
COMMIT_FOLDER = f"{UNLEARNING_FOLDER}/commit"


def has_pending_commit(folder: Path) -> bool:
    """Return whether an erasure was committed whose files are not all moved yet."""
    return (folder / COMMIT_FOLDER / MANIFEST_FILE).exists()
