"""Run folders in the order of the times that their own records tell; ``run=latest`` is the newest finished training run.

A file's time on the disk says when it was copied, and a name may be anything: neither counts. Runs that began in the same
moment (records are older than microseconds, or copies of each other) are ordered by the time in their folder's name.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agt.disk import is_locked
from agt.errors import ConfigError

LATEST = "latest"
LOCK = "lock"  # in a run's folder; its process holds it as long as it lives
PLACES = ("*/status.json", "*/*/status.json")  # runs, and the jobs of a sweep
_STAMP = re.compile(r"\d{4}(-\d\d){2}_\d\d(-\d\d){2}-\d{6}")


@dataclass(frozen=True)
class Recorded:
    """A run folder by its status.json, of which nothing is verified.

    Attributes:
        state: running, done or failed.
        error: why it failed; empty: it did not.
        started: as recorded.
    """

    folder: Path
    state: str
    error: str
    started: datetime

    @property
    def age(self) -> tuple[datetime, str, int]:
        """Orders runs, the oldest first."""
        stamps = [match[0] for name in self.folder.parts[-2:] if (match := _STAMP.match(name))]
        return self.started, stamps[-1] if stamps else "", int(self.folder.name) if self.folder.name.isdecimal() else 0


def recorded(home: Path, command: str) -> list[Recorded]:
    """The runs of ``command`` in a folder, and the jobs of its sweeps, the newest first."""
    statuses = [path for place in PLACES for path in home.glob(place)]
    runs = [run for path in statuses if (run := read(path, command))]
    return sorted(runs, key=lambda run: run.age, reverse=True)


def newest(home: Path, command: str) -> Recorded | None:
    """The newest finished one."""
    return next((run for run in recorded(home, command) if run.state == "done"), None)


def read(path: Path, command: str) -> Recorded | None:
    """A run by its status.json; None: it is none of ``command``, or cannot be read."""
    try:
        status = json.loads(path.read_bytes())
        if status["command"] != command:
            return None
        started = datetime.fromisoformat(status["started"])
        return Recorded(path.parent, str(status["state"]), str(status.get("error") or ""), started.astimezone(UTC))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def resolved(config: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
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
    runs = recorded(home, "train")
    done = next((place for place, run in enumerate(runs) if run.state == "done"), None)
    if done is None:
        unfinished = f" (not finished: {_some(runs)})" if runs else ""
        raise ConfigError(
            f"run=latest: no finished training run in {home}{unfinished}: start agt train, or give run=FOLDER (runs are "
            "looked for under output_dir)"
        )
    note(f"run=latest is {runs[done].folder}")
    if done:
        note(f"note: newer, but not finished, and so not taken: {_some(runs[:done])}")
    return {**config, "run": str(runs[done].folder)}


def _some(runs: list[Recorded]) -> str:
    first = runs[0]
    killed = first.state == "running" and is_locked(first.folder / LOCK) is False
    state = f"killed: agt train resume={first.folder} goes on with it" if killed else first.state
    error = f" ({first.error.splitlines()[0]})" if first.error else ""
    more = f", and {len(runs) - 1} more" if len(runs) > 1 else ""
    return f"{first.folder}, {state}{error}{more}"
