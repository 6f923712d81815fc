"""The files of settings: ours, the user's ./conf, the experiments', and the options of each group.

Nothing here imports torch, Hydra or a task.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent

import agt_cli
from agt.relations.names import ENTRIES


@cache
def config_dir() -> Path:
    """Return the folder of agt's configuration files, conf/."""
    return _folder("conf")


def user_conf() -> Path | None:
    """Return the user's own configuration folder, ./conf.

    None: there is no such folder, or it is agt's own.
    """
    folder = Path("conf").absolute()
    return folder if folder.is_dir() and not folder.samefile(config_dir()) else None


@cache
def experiments_dir() -> Path:
    """Return the folder of what reproduces the papers' figures and tables, experiments/."""
    return _folder("experiments")


def experiment_names() -> tuple[str, ...]:
    """Return the names of all experiments."""
    return tuple(sorted(path.stem for path in experiments_dir().glob("*.yaml")))


def _folder(name: str) -> Path:
    """Return a folder of agt: inside the package if it was installed from a wheel (with a leading
    underscore), beside it in a source tree.
    """
    package = Path(agt_cli.__file__).resolve().parent
    packaged = package / f"_{name}"
    return packaged if packaged.is_dir() else package.parent / name


def groups_of_command(config: str) -> list[str]:
    """Return the groups from which a primary file chooses an option, except Hydra's own.

    The groups of a file that it includes come first, and groups inside a group
    (``certificate/features``) come last.

    Args:
        config: the name of the primary file, such as ``train``.
    """
    groups = []
    for included in included_files(config):
        groups += groups_of_command(included)
    keys = [entry.partition(":")[0] for entry in _defaults(config) if ":" in entry]
    chosen_groups = [key for key in keys if key != "hydra"]
    groups += chosen_groups
    for key in chosen_groups:
        groups += [group for group in sorted(packed_groups()) if group.startswith(f"{key}/")]
    return groups


def included_files(config: str) -> list[str]:
    """Return the primary files that a primary file includes: ``tune`` includes ``train``."""
    return [entry for entry in _defaults(config) if ":" not in entry and entry != "_self_"]


def top_level_keys(config: str) -> set[str]:
    """Return the groups of a primary file, and the keys at the top level of its own settings.

    Those of the files that it includes are among them.
    """
    keys = set(groups_of_command(config))
    for name in (config, *included_files(config)):
        text = "\n".join(primary_lines(name))
        keys |= set(re.findall(r"^(\w+):", text, re.MULTILINE))
    return keys - {"defaults"}


def primary_lines(config: str) -> list[str]:
    """Return the lines of a primary file, without those of the files that it includes."""
    return (config_dir() / f"{config}.yaml").read_text(encoding="utf-8").splitlines()


def _defaults(config: str) -> list[str]:
    """Return the entries of a primary file's defaults list, such as ``kgrid: dense``."""
    lines = primary_lines(config)
    return [line.removeprefix("  - ").strip() for line in lines if line.startswith("  - ")]


@cache
def packed_groups() -> dict[str, dict[str, str]]:
    """Return the options of each group that is one file, groups/GROUP.yaml in conf/ or
    experiments/conf/.

    An entry OPTION of that file stands for a file GROUP/OPTION.yaml. The options of the group
    ``relation`` are those of the registry of relations: each begins with the registry's summary,
    and one that the file lacks has the settings of ``add_remove`` and its own name.

    Returns:
        Group -> option -> the YAML text of the option, comments included.
    """
    texts: dict[str, dict[str, str]] = {}
    for folder in (config_dir() / "groups", experiments_dir() / "conf" / "groups"):
        for path in sorted(folder.rglob("*.yaml")):
            group = path.relative_to(folder).with_suffix("").as_posix()
            texts.setdefault(group, {}).update(_unpack(path.read_text(encoding="utf-8")))
    relations = texts["relation"]
    for name, entry in ENTRIES.items():
        text = relations.get(name, f"defaults: [add_remove, _self_]\nname: {name}\n")
        # Hydra reads its directives (# @package) from the first lines only.
        directives = "".join(re.findall(r"^# @.*\n", text, re.MULTILINE))
        relations[name] = f"{directives}# {entry.summary}\n{text.removeprefix(directives)}"
    return texts


def _unpack(text: str) -> dict[str, str]:
    """Return option -> YAML text of each entry of a packed group's file.

    Args:
        text: entries ``OPTION:`` separated by blank lines; the comment above an entry becomes the
            beginning of the option's text.
    """
    unpacked = {}
    for entry in re.split(r"\n\n(?=[#\w])", text.rstrip("\n")):
        comment, option, body = re.split(r"^(\w+):\n", entry, maxsplit=1, flags=re.MULTILINE)
        unpacked[option] = comment + dedent(body) + "\n"
    return unpacked


def options_of_group(group: str) -> dict[str, str]:
    """Return the options of a group, agt's and the user's: name -> YAML text, by name.

    Where both have an option of the same name, it is agt's.
    """
    texts = {}
    for folder in (user_conf(), config_dir()):
        if folder is None:
            continue
        for path in (folder / group).glob("*.yaml"):
            texts[path.stem] = path.read_text(encoding="utf-8", errors="replace")
    texts |= packed_groups().get(group, {})
    return dict(sorted(texts.items()))


def files_in_use(folders: Sequence[Path], chosen: Sequence[tuple[str, str]]) -> list[Path]:
    """Return the user's files that a composed configuration was made from.

    These are the files of the chosen options, and those that their defaults lists name.

    Args:
        folders: the user's folders of configuration files.
        chosen: (group, option); the group of a primary file is empty.
    """
    found: list[Path] = []
    remaining = list(chosen)
    while remaining:
        group, option = remaining.pop()
        for folder in folders:
            path = folder / group / f"{option}.yaml"
            if path.is_file() and path not in found:
                found.append(path)
                remaining += _named_in_defaults(path, group)
    return found


def _named_in_defaults(path: Path, group: str) -> Iterator[tuple[str, str]]:
    """Yield (group, option) for each entry of a file's defaults list.

    An entry is OPTION, of the same group, or a mapping from groups to one or several options. What
    follows an @ says where Hydra puts the settings.

    Args:
        path: the file. One that is no mapping in YAML names nothing.
        group: the group of the file.
    """
    import yaml  # type: ignore[import-untyped]  # loaded only for files of the user's

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        return
    for entry in content.get("defaults") or ():
        named = entry if isinstance(entry, dict) else {"": entry}
        for key, value in named.items():
            options = value if isinstance(value, list) else [value]
            subgroup = str(key).split("@")[0].split(" ")[-1]  # without "override"
            for option in options:
                full_name = Path("/", group, subgroup, str(option).split("@")[0])
                yield full_name.parent.as_posix().lstrip("/"), full_name.name


def experiments_without_package(overrides: Sequence[str]) -> list[Path]:
    """Return the user's experiment files that a command line names and that lack the line
    ``# @package _global_``, without which Hydra puts their settings under a key ``experiment``.

    Args:
        overrides: the command line's settings; ``hydra.searchpath`` names further folders.
    """
    own_folder = user_conf()
    folders = [own_folder] if own_folder else []
    names: list[str] = []
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        if key == "hydra.searchpath":
            named = re.findall(r"(?:file|user)://([^\]'\",]+)", value)
            folders += map(Path, named)
        elif key == "experiment":
            names += value.split(",")
    lacking = []
    for folder in folders:
        for name in names:
            path = folder / "experiment" / f"{name}.yaml"
            is_own = path.is_file() and not is_builtin("experiment", name)
            if is_own and not _names_package(path):
                lacking.append(path)
    return lacking


def _names_package(path: Path) -> bool:
    """Return whether ``# @package`` is among the comments at the beginning of a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return re.match(r"(#.*\n|[^\S\n]*\n)*# @package", text) is not None


def is_builtin(group: str, option: str) -> bool:
    """Return whether agt itself has an option of a group.

    Args:
        group: the group.
        option: the name of the option.
    """
    return (
        option in packed_groups().get(group, {})
        or (config_dir() / group / f"{option}.yaml").exists()
    )


def first_sentence(text: str) -> str:
    """Return the first sentence of the comment at the beginning of a configuration file.

    It is empty if there is no such comment.
    """
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("# @package"):
            continue
        if not line.startswith("# ") or line.startswith("#  "):  # further in: an example
            break
        comment.append(line.removeprefix("# "))
    return re.split(r"(?<=[.]) (?=[A-Z])", " ".join(comment), maxsplit=1)[0]
