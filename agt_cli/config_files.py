"""The files of settings: ours, the user's ./conf, the experiments', and the options of each group.

Nothing here imports torch, Hydra or a task.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent

import agt_cli
from agt.relations.names import ENTRIES


@cache
def config_dir() -> Path:
    """The configuration: inside the package if installed from a wheel, beside it in a source
    tree.
    """
    return _folder("conf")


def user_conf() -> Path | None:
    """The user's own configuration, ./conf; None where there is none, or it is the package's."""
    folder = Path("conf").absolute()
    return folder if folder.is_dir() and not folder.samefile(config_dir()) else None


@cache
def experiments_dir() -> Path:
    """What the papers' figures and tables need, found the same way."""
    return _folder("experiments")


def _folder(name: str) -> Path:
    package = Path(agt_cli.__file__).resolve().parent
    inside = package / f"_{name}"
    return inside if inside.is_dir() else package.parent / name


def groups(config: str) -> list[str]:
    """The configuration groups that a command's primary file chooses from, last those inside them
    (``certificate/features``); Hydra's own left out."""
    chosen = [
        line.removeprefix("  - ").strip() for line in _lines(config) if line.startswith("  - ")
    ]
    included = [
        name for name in chosen if (config_dir() / f"{name}.yaml").is_file()
    ]  # tune's settings are train's and more
    below = [group for name in included for group in groups(name)]
    names = [name for line in chosen if ":" in line and (name := line.split(":")[0]) != "hydra"]
    return [
        *below,
        *names,
        *(inside for name in names for inside in sorted(packed()) if inside.startswith(f"{name}/")),
    ]


@cache
def packed() -> dict[str, dict[str, str]]:
    """Group -> option -> its YAML text, of groups of one file: groups/GROUP.yaml in conf/ or
    experiments/conf/.

    Each entry of such a file is what a file GROUP/OPTION.yaml would be; the comment above it is
    that file's head.
    Relations are those of the registry: a head says what each is, and one without an entry is the
    default's by its name.
    """
    found: dict[str, dict[str, str]] = {}
    for folder in (config_dir() / "groups", experiments_dir() / "conf" / "groups"):
        for path in sorted(folder.rglob("*.yaml")):
            group = found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), {})
            for part in re.split(r"\n\n(?=[#\w])", path.read_text(encoding="utf-8").rstrip("\n")):
                head, name, body = re.split(r"^(\w+):\n", part, maxsplit=1, flags=re.MULTILINE)
                group[name] = head + dedent(body) + "\n"
    relations = found["relation"]
    for name, entry in ENTRIES.items():
        text = relations.get(name, f"defaults: [add_remove, _self_]\nname: {name}\n")
        directives = "".join(
            line for line in text.splitlines(keepends=True) if line.startswith("# @")
        )
        relations[name] = f"{directives}# {entry.summary}\n{text.removeprefix(directives)}"
    return found


def options(group: str) -> dict[str, str]:
    """Option name -> YAML text, for one group: the package's own, and behind them those of the
    working directory.
    """
    folders = [folder for folder in (user_conf(), config_dir()) if folder]
    paths = {path.stem: path for folder in folders for path in (folder / group).glob("*.yaml")}
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace") for name, path in paths.items()
    }
    return dict(sorted({**texts, **packed().get(group, {})}.items()))


def experiments_without_package(overrides: Sequence[str]) -> list[Path]:
    """Return the user's experiment files that a command line names and that lack the line
    ``# @package _global_``, without which Hydra puts their settings under a key ``experiment``.

    Args:
        overrides: the command line's settings; ``hydra.searchpath`` names further folders.
    """
    folders = [folder for folder in (user_conf(),) if folder]
    names: list[str] = []
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        if key == "hydra.searchpath":
            folders += [Path(folder) for folder in re.findall(r"file://([^\]'\",]+)", value)]
        if key == "experiment":
            names += [name for name in value.split(",") if not is_own("experiment", name)]
    paths = [folder / "experiment" / f"{name}.yaml" for folder in folders for name in names]
    return [path for path in paths if path.is_file() and not _names_its_package(path)]


def _names_its_package(path: Path) -> bool:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("# @package"):
            return True
        if line.strip() and not line.startswith("#"):
            return False
    return False


def is_own(group: str, option: str) -> bool:
    """Whether agt itself has this option of a group; with an empty group, this primary file."""
    return option in packed().get(group, {}) or (config_dir() / group / f"{option}.yaml").exists()


def summary(text: str) -> str:
    """Return what a configuration file says it is: the first sentence of its first comment."""
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("# ") or line.startswith("#  "):  # further in: an example
            break
        comment.append(line.removeprefix("# "))
    return re.split(r"(?<=[.]) (?=[A-Z])", " ".join(comment), maxsplit=1)[0]


def _lines(config: str) -> list[str]:
    return (config_dir() / f"{config}.yaml").read_text(encoding="utf-8").splitlines()
