"""Every run below a folder, by its own files: what the index, a sweep's table and ``agt runs`` tell of it.

Nothing is verified, and nothing has to be there: whatever cannot be read is left out, or is the run's result. A file is
read when something of it is wanted, so that a list of thousands is a matter of their status.json alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import yaml  # type: ignore[import-untyped]

from agt.folder import plain
from agt.manifest import NAME as MANIFEST
from agt_cli.report.unfinished import is_alive
from agt_cli.usage import SWEEP

State = Literal["done", "failed", "running", "killed", "unreadable"]
UNREADABLE = "status.json cannot be read"


@dataclass(frozen=True)
class Run:
    """One run's folder.

    Attributes:
        folder: where it lies.
        status: its status.json; empty: there is none that can be read.
    """

    folder: Path
    status: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """By its status.json."""
        return cls(folder, _object(folder / "status.json"))

    @property
    def command(self) -> str:
        """As recorded; empty: not known."""
        return str(self.status.get("command", ""))

    @cached_property
    def state(self) -> str:
        """running, done or failed as recorded; killed: recorded as running, and its process is gone; else unreadable."""
        state = str(self.status.get("state", "unreadable"))
        return "killed" if state == "running" and not is_alive(self.folder) else state

    @property
    def started(self) -> str:
        """When, as recorded; empty: not known."""
        return str(self.status.get("started", ""))

    @property
    def moment(self) -> datetime:
        """When it started; the beginning of time where that cannot be told."""
        try:
            return datetime.fromisoformat(self.started).astimezone(UTC)
        except (ValueError, OverflowError):
            return datetime.min.replace(tzinfo=UTC)

    @property
    def error(self) -> str:
        """Why it failed; empty: it did not."""
        return str(self.status.get("error") or "")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Its env.json."""
        return _object(self.folder / "env.json")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Its metrics.json."""
        return _object(self.folder / "metrics.json")

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its resolved configuration."""
        return _yaml(self.folder / "config.yaml")

    @property
    def dataset(self) -> str:
        """The data's name; empty: not recorded."""
        return str(self.environment.get("dataset", ""))

    @property
    def overrides(self) -> tuple[str, ...]:
        """Of a sweep's job, what the command line changed."""
        words = self.environment.get("overrides")
        return tuple(map(str, words)) if isinstance(words, list) else ()

    @property
    def trained(self) -> str:
        """The training run that it used, resolved; empty: none."""
        return str(self.environment.get("trained_run", ""))

    @property
    def sweep(self) -> Path | None:
        """The folder of the sweep that it is a job of."""
        return self.folder.parent if self.folder.parent.name.endswith(SWEEP) else None

    @cached_property
    def digest(self) -> str:
        """A finished run's; empty: it has none."""
        try:
            return f"sha256:{sha256(plain(self.folder / MANIFEST)).hexdigest()}" if self.state == "done" else ""
        except OSError:
            return ""

    @cached_property
    def model(self) -> str:
        """Hidden layers, certificate and members of the run, or of the one that it used, in words."""
        if self.command != "train":
            return Run.read(Path(self.trained)).model if self.trained else ""
        settings = _yaml(self.folder / "config.yaml", "model|certificate")
        model, certificate = (settings.get(name) or {} for name in ("model", "certificate"))
        if not isinstance(model, dict) or not isinstance(certificate, dict) or not model:
            return ""
        hidden, count = model.get("hidden"), self.metrics.get("members", 1)
        layers = "" if not isinstance(hidden, list) else f"hidden {'-'.join(map(str, hidden))}" if hidden else "linear"
        members = f"{count} members" if count != 1 else ""
        return ", ".join(filter(None, (layers, str(certificate.get("name", "box")), members)))

    @cached_property
    def result(self) -> str:
        """Its main number, in words; or why there is none."""
        if not self.status:
            return UNREADABLE
        return self.error or (self._answer() if self.state == "done" else "")

    def as_json(self) -> dict[str, Any]:
        """As --json lists it."""
        about = ("command", "state", "started", "dataset", "model", "result", "digest")
        seconds = {"seconds": self.status["seconds"]} if "seconds" in self.status else {}
        words = {name: getattr(self, name) for name in about}
        return {"run": str(self.folder), **words, **seconds, "overrides": self.overrides, "metrics": self.metrics}

    def _answer(self) -> str:
        metrics = self.metrics
        if self.command == "predict":
            simulated = "SIMULATION of " if metrics.get("simulated") else ""
            proof = "" if metrics.get("proved") or simulated else ", not proved"
            spent = _object(self.folder / "spent.json")
            kept = "answers that were released earlier" if "stored" in metrics else "labels of weights released earlier"
            totals = spent.get("totals") or [kept]  # of all its answers, not of one
            return f"{simulated}{totals[0]}{proof}"
        if self.command == "audit":
            return str(metrics.get("verdict", ""))
        for name, words in (
            ("test_accuracy", "test accuracy"),
            ("stable_distance_median", "median stable distance"),
            ("accuracy", "accuracy without noise"),
            ("artifacts", "figures and tables"),
        ):
            if isinstance(number := metrics.get(name), int | float):
                return f"{number:.3f} {words}" if "accuracy" in name else f"{number:g} {words}"
        return ""


def runs_below(outputs: Path) -> Iterator[Run]:
    """Every run: a folder with a status.json, two levels down or, of a sweep's job, three."""
    for command in _folders(outputs):
        for folder in _folders(command):
            if (folder / "status.json").exists():
                yield Run.read(folder)
            elif folder.name.endswith(SWEEP):
                yield from jobs_of(folder)


def jobs_of(sweep: Path) -> Iterator[Run]:
    """The jobs in a sweep's folder."""
    yield from map(Run.read, _folders(sweep))


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []


def _object(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        value = json.loads(plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _yaml(path: Path, blocks: str = "") -> dict[str, Any]:
    """A configuration; empty where there is none that can be read.

    Args:
        blocks: read no more than these, as a pattern of names; empty: all.
    """
    try:
        text = plain(path).decode()
        text = "".join(re.findall(rf"^(?:{blocks}):\n(?: .*\n)+", text, re.MULTILINE)) if blocks else text
        value = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return value if isinstance(value, dict) else {}
