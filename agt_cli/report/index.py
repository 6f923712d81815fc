"""index.html: every run below one folder, the newest first.

Written anew at the end of every command, from each run's own files: the index keeps nothing of its own, so that a folder
that was deleted, moved or damaged is just what it is when the next command looks. Of two processes at once the later
writer's page stays, whole; a run that it had not seen yet is there after the next command.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml  # type: ignore[import-untyped]

from agt.disk import write_atomic
from agt.folder import plain
from agt_cli.report.html import page, standing, table

NAME = "index.html"
SWEEP = "_sweep"  # how the folder of a sweep's jobs ends (conf/hydra)
MICROSECONDS = re.compile(r"-\d{6}$")  # at the end of a run's name: of no use to a reader
LETTERS = 140  # of an error or a setting, at most
LOOKS = {"done": "proved", "running": "declared"}  # a state's colours; any other is bad news
NOTE = (
    "For the data owner: accuracies and distances depend on the private data. A run that was killed stays “running”. "
    "Click a column's head to sort by it."
)


@dataclass(frozen=True)
class Run:
    """One run as the index lists it.

    Attributes:
        place: its folder, below the index's.
        command, state, started: as status.json has them.
        dataset, model: what it was made with, in words; empty: not recorded.
        result: its main number first, in words; or why there is none.
        settings: of a sweep's job, what the command line changed.
        trained: the run that it used, resolved; empty: none.
    """

    place: Path
    command: str = ""
    state: str = "unreadable"
    started: str = ""
    dataset: str = ""
    model: str = ""
    result: str = ""
    settings: tuple[str, ...] = ()
    trained: str = ""

    @property
    def sweep(self) -> str:
        """The folder of the sweep that it is a job of; empty: none."""
        return self.place.parent.as_posix() if self.place.parent.name.endswith(SWEEP) else ""


def refresh(outputs: Path) -> Path:
    """Write ``outputs/index.html``, and return its path.

    Raises:
        OSError: the page cannot be written.
    """
    runs = sorted(_runs(outputs), key=lambda run: (run.sweep, run.started, run.place.name), reverse=True)
    models = {str((outputs / run.place).resolve()): run.model for run in runs if run.model}
    groups = {sweep: list(jobs) for sweep, jobs in groupby(runs, key=lambda run: run.sweep)}
    body = f"<h1>Runs</h1>\n<p>{escape(NOTE)}</p>\n"
    if (outputs / "reproduce" / NAME).exists():
        body += f'<p><a href="reproduce/{NAME}">The papers, reproduced: every figure</a></p>\n'
    body += _listed(outputs, groups.pop("", []), models)
    for sweep, jobs in groups.items():
        states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in jobs).items())
        body += f"<h2>{escape(sweep)}: {states}</h2>\n{_listed(outputs, jobs, models)}"
    write_atomic(outputs / NAME, page("Runs", body).encode())
    return outputs / NAME


def _listed(outputs: Path, runs: Sequence[Run], models: Mapping[str, str]) -> str:
    """Runs as a table; the settings in which a sweep's jobs differ beside each."""
    common = set.intersection(*(set(run.settings) for run in runs)) if runs else set()
    rows = []
    for run in runs:
        report = next((name for name in ("report.html", "") if (outputs / run.place / name).exists()), "")
        link = f'<a href="{quote((run.place / report).as_posix())}">{escape(MICROSECONDS.sub("", run.place.name))}</a>'
        own = [word for word in run.settings if word not in common]
        words = (run.dataset, run.model or models.get(run.trained, ""), " ".join(own), run.result)
        state = standing(run.state, LOOKS.get(run.state, "void"))
        rows.append([link, escape(run.command), state, *(escape(_short(text)) for text in words)])
    columns = ("run", "command", "state", "dataset", "model", "settings", "result")
    used = [at for at, name in enumerate(columns) if name != "settings" or any(row[at] for row in rows)]
    return table([columns[at] for at in used], [[row[at] for at in used] for row in rows])


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}…"


def _runs(outputs: Path) -> Iterator[Run]:
    """Every run: a folder with a status.json, two levels down or, of a sweep's job, three."""
    for command in _folders(outputs):
        for folder in _folders(command):
            if (folder / "status.json").exists():
                yield _run(folder, folder.relative_to(outputs))
            elif folder.name.endswith(SWEEP):
                yield from (_run(job, job.relative_to(outputs)) for job in _folders(folder))


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []


def _run(folder: Path, place: Path) -> Run:
    """What a run's files say of it; whatever cannot be read is left out, or is its result."""
    status, metrics, environment = (_read(folder / f"{name}.json") for name in ("status", "metrics", "env"))
    if not status:
        return Run(place, place.parts[0], result="status.json cannot be read")
    command, state = str(status.get("command")), str(status.get("state"))
    spent = _read(folder / "spent.json") if command == "predict" else {}
    return Run(
        place,
        command,
        state,
        str(status.get("started", "")),
        str(environment.get("dataset", "")),
        _model(folder / "config.yaml", metrics) if command == "train" else "",
        str(status.get("error", "")) or (_result(command, metrics, spent) if state == "done" else ""),
        tuple(map(str, environment.get("overrides") or ())),
        str(environment.get("trained_run", "")),
    )


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none that can be read."""
    try:
        value = json.loads(plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _result(command: str, metrics: Mapping[str, Any], spent: Mapping[str, Any]) -> str:
    """A finished run's main number, in words."""
    if command == "predict":
        simulated = "SIMULATION of " if metrics.get("simulated") else ""
        proof = "" if metrics.get("proved") or simulated else ", not proved"
        totals = spent.get("totals") or ["labels of weights released earlier"]  # of all its answers, not of one
        return f"{simulated}{totals[0]}{proof}"
    for name, words in (
        ("test_accuracy", "test accuracy"),
        ("stable_distance_median", "median stable distance"),
        ("accuracy", "accuracy without noise"),
        ("artifacts", "figures and tables"),
    ):
        if isinstance(number := metrics.get(name), int | float):
            return f"{number:.3f} {words}" if "accuracy" in name else f"{number:g} {words}"
    return ""


def _model(config: Path, metrics: Mapping[str, Any]) -> str:
    """Hidden layers, certificate and members, from a resolved configuration, of which no more is read than these."""
    try:
        text = plain(config).decode()
        blocks = re.findall(r"^(?:model|certificate):\n(?: .*\n)+", text, re.MULTILINE)
        settings = yaml.load("".join(blocks), getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        hidden = settings["model"].get("hidden")
    except (OSError, ValueError, KeyError, AttributeError, yaml.YAMLError):
        return ""
    layers = "" if hidden is None else "linear" if not hidden else f"hidden {'-'.join(map(str, hidden))}"
    certificate = str((settings.get("certificate") or {}).get("name", "box"))
    members = f"{metrics['members']} members" if metrics.get("members", 1) != 1 else ""
    return ", ".join(filter(None, (layers, certificate, members)))
