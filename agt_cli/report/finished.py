"""Runs on disk: their state, found among others, read back, taken up again, and swapped for their
next state.

A run holds the lock of its folder as long as its process lives. One whose state is "running" and
whose lock nobody holds was killed. ``run=latest`` is the newest finished training run, by the times
that records tell: a file's time on the disk says when it was copied, and a name may be anything, so
neither counts. Runs that began in the same moment (records are older than microseconds, or copies
of each other) are ordered by the time in their folder's name.
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
from agt_cli.usage import OLD_SPELLINGS

LOCK = "lock"  # in a run's folder; its process holds it as long as it lives

SPENT_FILE = "spent.json"  # what a release says on disk before it draws

# the folder of what a training had reached; no part of the finished record
CHECKPOINTS = "checkpoint"

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
    """Entries of a record's file. One that is not there is a fault of the file, and none of the
    program.

    Args:
        file: which file it is, for messages.

    Raises:
        ConfigError: an entry is asked for by its key, and is not there.
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
    """A run's folder. ``open_run`` verifies a finished one; ``Run.at`` takes any, of which nothing
    is verified.

    A file is read when something of it is wanted, so that a list of thousands is a matter of their
    status.json alone. What cannot be read of a run that is not verified is empty.
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
        """One file, as the run wrote it (``Folder.read``); who reads while the run's state is
        swapped is told so.
        """
        if not self.verified:
            with broken_as_config_error(self.folder, self.key):
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
        """running, done or failed as recorded; killed: recorded as running, and its process is
        gone; else unreadable.
        """
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
        return (
            self.moment,
            stamps[-1] if stamps else "",
            int(self.folder.name) if self.folder.name.isdecimal() else 0,
        )

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
        """Of the manifest that it was verified by, or of the one that lies there if it is
        finished; empty: it has none.
        """
        if self.verified:
            return self.manifest.digest
        return manifest_digest(self.folder) if self.state == "done" else ""

    @cached_property
    def model(self) -> str:
        """Hidden layers, certificate and members of the run, or of the one that it used, in
        words.
        """
        if self.command != "train":
            trained = Run.at(Path(str(self.environment.get("trained_run"))))
            # never a record that names itself
            return trained.model if trained.command == "train" else ""
        model, certificate = self._setting_block("model"), self._setting_block("certificate")
        if not model:
            return ""
        hidden, count = model.get("hidden"), self.metrics.get("members", 1)
        layers = (
            ""
            if not isinstance(hidden, list)
            else f"hidden {'-'.join(map(str, hidden))}"
            if hidden
            else "linear"
        )
        members = f"{count} members" if count != 1 else ""
        kind = str(certificate.get("name", "box"))
        return ", ".join(filter(None, (layers, kind, members, self._earlier_version)))

    @property
    def _earlier_version(self) -> str:
        """Which version made this run, if it used a setting that this version does not have;
        else empty.
        """
        certificate = self._setting_block("certificate")
        features = certificate.get("features")
        feature_map = features.get("map") if isinstance(features, dict) else None
        removed = (
            f"certificate={certificate.get('name')}" in OLD_SPELLINGS
            or f"certificate.features.map={feature_map}" in OLD_SPELLINGS
            or self._setting_block("ensemble").get("slices", 1) != 1
            or self._setting_block("mechanism").get("shrink", False) is not False
            or self._setting_block("tune").get("private", False) is not False
        )
        return f"made by agt {self.environment.get('agt')}" if removed else ""

    def _setting_block(self, name: str) -> dict[str, Any]:
        """Return one block of the configuration; empty if there is none, or if it is no mapping."""
        block = self._setting_blocks.get(name)
        return block if isinstance(block, dict) else {}

    @cached_property
    def _setting_blocks(self) -> dict[str, Any]:
        """The blocks that a list needs: parsing the whole configuration would take most of the
        list's time.
        """
        with suppress(ConfigError, Broken, ValueError):
            text = self.read("config.yaml", MAX_TEXT_BYTES).decode()
            blocks = re.findall(
                r"^(?:model|certificate|ensemble|mechanism|tune):\n(?: .*\n)+", text, re.MULTILINE
            )
            return parse_yaml("".join(blocks).encode(), "config.yaml")
        return {}

    @cached_property
    def result(self) -> str:
        """Its main number, in words; or why there is none."""
        if not self.status:
            return UNREADABLE
        answer = self.error or (self._answer() if self.state == "done" else "")
        # a training's stands beside its model
        version = "" if self.command == "train" else self._earlier_version
        return ", ".join(filter(None, (answer, version)))

    def _answer(self) -> str:
        metrics = self.metrics
        if self.command == "predict":
            simulated = "SIMULATION of " if metrics.get("simulated") else ""
            proof = "" if metrics.get("proved") or simulated else ", not proved"
            earlier = (
                "answers that were released earlier, so at no further cost"
                if "stored" in metrics
                else (
                    "labels computed from weights that were released earlier, so at no further cost"
                )
            )
            total = earlier
            with suppress(ConfigError, KeyError, TypeError, IndexError, ValueError):
                total = spent_lines(self._recorded(SPENT_FILE))[0]  # of all its answers, not of one
            return f"{simulated}{total}{proof}"
        if self.command == "audit":
            summary = ""
            if "audits" in self.environment:
                summary = "a summary that an earlier version of agt wrote: "
            return f"{summary}{metrics.get('verdict', '')}"
        if isinstance(removed := metrics.get("removed"), int):
            records = counted(removed, "record")
            dry_run = " in a dry run (on a copy)" if "rehearsed" in self.environment else ""
            return f"{records} removed{dry_run}"
        for name, words in _ANSWERS:
            if isinstance(number := metrics.get(name), int | float):
                if "accuracy" in name:
                    return f"{number:.3f} {words}"
                bound = "at least " if metrics.get(f"{name}_is_lower_bound") else ""
                return f"{bound}{number:g} {words}"
        return ""

    def as_json(self) -> dict[str, Any]:
        about = ("command", "state", "started", "dataset", "model", "result", "digest")
        seconds = {"seconds": self.status["seconds"]} if "seconds" in self.status else {}
        words = {name: getattr(self, name) for name in about}
        return {
            "run": str(self.folder),
            **words,
            **seconds,
            "overrides": self.overrides,
            "metrics": self.metrics,
        }


def check_is_run(folder: Path, key: str) -> None:
    """Raise ConfigError where a folder has no status.json, which every run has.

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
    """What a spent.json says was spent, a line each: made from its fields, or an earlier version's
    sentences as they are.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    guarantee, totals = spent.get("guarantee", ""), spent["totals"]
    if not isinstance(totals, list):
        raise TypeError(
            f"spent.json: the entry 'totals' must be a list, but is {totals!r}. Restore the "
            "file from a backup"
        )
    if isinstance(guarantee, str):
        return [str(line) for line in totals]
    what = spent["what"]
    given = sentences.guarantee(guarantee)
    if not totals and what == "weights":  # noise in training, whose guarantee is of all of it
        return [sentences.trained_noise_line(given)]
    if not totals:
        return [sentences.spent_line(1, given)]
    over = spent["queries"] if what == "labels" else None
    return [
        sentences.spent_line(over, sentences.total(total["eps"], total["delta"], total["bound"]))
        for total in totals
    ]


UNLEARN, ACCOUNT_FILE = "unlearn", "account.json"

_SWAPPED = "agt unlearn changed the run while agt was reading it: type the command again"


def manifest_digest(folder: Path) -> str:
    """The digest of the manifest that lies there now; empty: none does."""
    try:
        return f"sha256:{sha256(read_file(folder / MANIFEST_FILE)).hexdigest()}"
    except Broken:
        return ""


HOME = "unlearning"

STATE_LOCK, NEXT, COMMIT = f"{HOME}/lock", f"{HOME}/next", f"{HOME}/commit"


def has_pending_commit(folder: Path) -> bool:
    """Whether a new state's files are on their way; for whoever must not write (an audit)."""
    return (folder / COMMIT / MANIFEST_FILE).exists()
