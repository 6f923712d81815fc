"""The user's own configuration, data sets, runs and shell: what is there, what cannot be read, what is missing."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from agt.data.dataset import DataError
from agt.data.files import places
from agt.data.medmnist import MedMnist
from agt.errors import DataMissing
from agt_cli import completion, latest, usage
from agt_cli.mistakes import explain
from agt_cli.report.checks import Findings

SHELLS = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
MEDMNIST = "agt.data.medmnist.MedMnist"
AHEAD = timedelta(minutes=5)  # a clock that is corrected


def check(outputs: Path, data_dir: Path, findings: Findings) -> None:
    """Configuration, data, clock and completion."""
    with findings.looking("conf"):
        _configuration(findings)
    with findings.looking("data"):
        _data(data_dir, findings)
    with findings.looking("clock"):
        _clock(outputs, findings)
    with findings.looking("completion"):
        _completion(findings)


def _configuration(findings: Findings) -> None:
    """The user's own files: each can be read, and is not hidden behind one of agt's."""
    folder = usage.user_conf()
    if folder is None:
        findings.ok("conf", f"{usage.config_dir()}; no ./conf of your own here")
        return
    files, readable = sorted(folder.rglob("*.yaml")), 0
    for path in files:
        if (usage.config_dir() / path.relative_to(folder)).exists():
            findings.note("conf", f"{path}: never read, as agt has a file of this name", "give it another")
        with findings.looking("conf"):
            _parse(path)
            readable += 1
    findings.ok("conf", f"{folder}: {readable} of {len(files)} files can be read")


def _parse(path: Path) -> None:
    """Raise ConfigError where a file is no yaml."""
    try:
        with path.open(encoding="utf-8") as file:
            yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise explain(error, "train", ()) or error from None


def _data(data_dir: Path, findings: Findings) -> None:
    """Every data set that a configuration names: its file is there, and the one that its publishers list."""
    there, absent = [], []
    for name, config in datasets():
        lacking = None
        if config.get("_target_") == MEDMNIST and config.get("path") is None:
            lacking = _lacking_medmnist(name, config, data_dir, findings)
        elif files := list(_files(config)):
            lacking = next((str(file) for file in files if not any(place.exists() for place in places(file, data_dir))), "")
        if lacking == "":
            there.append(name)
        elif lacking is not None:
            absent.append(f"{name} ({config.get('obtain') or lacking})")
    if there:
        findings.ok("data", f"there: {', '.join(there)}")
    if absent:
        findings.note("data", f"not there: {', '.join(absent)}", f"needed only where it is used; data_dir is {data_dir}")


def datasets() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every data set that has a configuration, by name."""
    for name in usage.options("dataset"):
        config = completion.composed("train", {"dataset": name}).get("dataset")
        if isinstance(config, dict):
            yield name, config


def _files(config: Mapping[str, Any]) -> Iterator[Path]:
    """The files that a configuration names."""
    for key in ("path", "test"):
        value = config.get(key)
        if isinstance(value, str) and value != "???" and "$" not in value:
            yield Path(value)


def _lacking_medmnist(name: str, config: Mapping[str, Any], data_dir: Path, findings: Findings) -> str | None:
    """Empty: it is there, and the official one; None: no set is named, or the file is another."""
    if config.get("name", "???") == "???":
        return None
    try:
        MedMnist(name=str(config["name"]), data_dir=data_dir, size=config.get("size", 28), download=False).located()
    except DataMissing:
        return "downloaded when it is used"
    except DataError as error:
        findings.problem("data", f"{name}: {error}")
        return None
    return ""


def _clock(outputs: Path, findings: Findings) -> None:
    """Run folders and run=latest go by time."""
    now = datetime.now(UTC)
    homes = [folder for folder in outputs.iterdir() if folder.is_dir()] if outputs.is_dir() else []
    runs = [run for home in homes for run in latest.recorded(home, home.name)]
    newest = max(runs, key=lambda run: run.started, default=None)
    if newest is not None and newest.started > now + AHEAD:
        words = f"{now:%Y-%m-%d %H:%M} UTC, and {newest.folder} began at {newest.started:%Y-%m-%d %H:%M}"
        findings.note("clock", f"{words}: run=latest goes by these times", "set the clock, or name runs by their folders")
    else:
        findings.ok("clock", f"{now:%Y-%m-%d %H:%M} UTC, not before any of {len(runs)} runs in {outputs}")


def _completion(findings: Findings) -> None:
    """Whether the user's shell completes agt's words, as far as its own file says."""
    shell = Path(os.environ.get("SHELL", "")).name
    file = Path.home() / SHELLS[shell] if shell in SHELLS else None
    if file is None:
        findings.unchecked("completion", f"the shell is {shell or 'not known'}; {', '.join(SHELLS)} can complete")
    elif file.is_file() and "agt completion" in file.read_text(encoding="utf-8", errors="replace"):
        findings.ok("completion", f"{shell} completes agt's words ({file})")
    else:
        findings.note("completion", f"{file} does not ask for it", completion.INSTALL)
