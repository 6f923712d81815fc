"""What a shell completes: commands, their words, groups, keys, values, run folders and files.

The shell asks at every press of a key, so nothing heavy is loaded: configuration files are read as they lie, by the rules
of Hydra's defaults lists that ours use, and not composed.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from agt.errors import ConfigError, nearest
from agt_cli import latest, usage

SCRIPTS = {
    "bash": r"""# completion of agt for bash; in ~/.bashrc: eval "$(agt completion bash)"
_agt_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
        "${COMP_WORDS[0]}" completion --query bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case "${COMPREPLY[0]}" in *[=./]) compopt -o nospace 2>/dev/null ;; esac
    return 0
}
complete -F _agt_complete agt""",
    "zsh": r"""# completion of agt for zsh; in ~/.zshrc, after compinit: eval "$(agt completion zsh)"
_agt_complete() {
    local -a open whole
    local line
    while IFS= read -r line; do
        case "$line" in *[=./]) open+=("$line") ;; *) whole+=("$line") ;; esac
    done < <("${words[1]}" completion --query zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
}
compdef _agt_complete agt""",
    "fish": r"""# completion of agt for fish; in ~/.config/fish/config.fish: agt completion fish | source
complete -c agt -f -a '(agt completion --query fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}
INSTALL = (
    'eval "$(agt completion bash)" completes in this bash; the same line in ~/.bashrc in every one (zsh, fish: likewise)'
)
VALUES: dict[str, tuple[str, ...]] = {
    "training.loss": ("binary_cross_entropy", "cross_entropy", "squared_error"),
    "training.product": ("exact", "rump"),
    "training.dtype": ("float64", "float32"),
    "training.decay_mode": ("decoupled", "coupled"),
    "training.chosen_on": ("public", "data", "recipe"),
    "compute.device": ("cpu", "cuda"),
    "compute.kernel": ("auto", "reference", "cpu", "gpu"),
    "certificate.features.map": ("none", "relu", "fourier", "landmarks", "crosses"),
    "certificate.features.public": ("test", "train"),
    "dataset.missing": ("error", "indicator"),
    "noise.release": ("always", "inside_box"),
    "accounting": ("rigorous", "paper"),
    "counting": ("distance", "index"),
    "profile": ("both", "paper", "ours", "smoke"),
    "data": ("either", "original", "stand_in"),
    "state": ("done", "failed", "running", "killed", "unreadable"),
}
"""Settings with a few values; tests hold them against the types that check them, which take seconds to load."""
RUNS = {"run": "train", "mechanism.weights": "predict"}
FILES = ("inputs", "path", "test", "file", "reviews", "data", "labels", "weights", "model", "head")
FOLDERS = ("release", "resume", "data_dir", "output_dir", "runs_dir", "cache_dir", "--config-dir", "-cd")
_SPECIAL = re.compile(r"([^\w@%+=:,./~-])")


def main(arguments: Sequence[str]) -> int:
    """``agt completion SHELL`` prints what the shell is to load; the shell then asks with ``--query``."""
    if arguments[:1] == ["--query"]:
        with suppress(Exception):  # whatever a user's own file holds: nobody asked for a message here
            _answer(arguments[1], arguments[2:])
        return 0
    shell = next((word for word in arguments if not word.startswith("-")), "")
    if {"-h", "--help", "help"} & set(arguments):
        print(f"usage: agt completion {'|'.join(SCRIPTS)}\n\n{INSTALL}")
    elif shell in SCRIPTS:
        print(SCRIPTS[shell])
    else:
        missing = (
            f"unknown shell '{shell}'{nearest(shell, SCRIPTS)}" if shell else f"for which shell: {', '.join(SCRIPTS)}?"
        )
        raise ConfigError(f"agt completion: {missing}; {INSTALL}")
    return 0


def as_hydra_would(arguments: Sequence[str]) -> int:
    """``agt COMMAND --shell-completion install=SHELL``, as any Hydra application takes it.

    Raises:
        ConfigError: something else is wanted of it.
    """
    wanted = dict(word.split("=", 1) for word in arguments if "=" in word)
    if "query" in wanted:  # a script that Hydra once installed
        return 0
    if wanted.get("uninstall") in SCRIPTS:
        print({"bash": "complete -r agt", "zsh": "compdef -d agt", "fish": "complete -c agt -e"}[wanted["uninstall"]])
        return 0
    if "install" in wanted:
        return main([wanted["install"]])
    raise ConfigError(f"--shell-completion: give install=SHELL, or uninstall=SHELL; {INSTALL}")


def _answer(shell: str, words: Sequence[str]) -> None:
    """Print the candidates for the last word, a line each, in the shell's own form."""
    given, cut = _joined(words) if shell == "bash" else (list(words), 0)
    quote = given[-1][:1] if given and given[-1][:1] in ("'", '"') else ""
    plain = [re.sub(r"\\(.)", r"\1", word.removeprefix(quote) if quote else word) for word in given]
    for candidate in sorted(set(candidates(plain or [""]))):
        escaped = _SPECIAL.sub(r"\\\1", candidate) if shell == "bash" and not quote else candidate
        print(escaped[cut - len(quote) if cut else 0 :])


def _joined(words: Sequence[str]) -> tuple[list[str], int]:
    """Bash cuts words at = and : as well. The words as they were typed, and how much of the last one it regards as done."""
    joined: list[str] = []
    cut, glued = 0, True
    for word in words or ("",):
        mark = bool(word) and set(word) <= {"=", ":"}
        if joined and (mark or glued) and word:
            cut = len(joined[-1]) + (len(word) if mark else 0)
            joined[-1] += word
        else:
            cut = 0
            joined.append(word)
        glued = mark
    return joined, cut


def candidates(words: Sequence[str]) -> Iterator[str]:
    """What the last word may become.

    Args:
        words: those behind ``agt``, the last one as far as it was typed.
    """
    *before, typed = words
    line = [word for word in before if word not in ("-q", "-v", "--quiet", "--verbose", "--json")]
    if typed.startswith("-"):
        yield from _starting(typed, usage.OPTIONS)
    elif not line or line == ["help"]:
        yield from _starting(typed, (*usage.COMMANDS, *([] if line else ["help", "completion"])))
    elif line == ["completion"]:
        yield from _starting(typed, SCRIPTS)
    elif line[-1] in ("--cfg", "-c", *FOLDERS):
        yield from paths(typed, folders=True) if line[-1] in FOLDERS else _starting(typed, ("job", "hydra", "all"))
    elif line[0] in usage.COMMANDS:
        yield from _arguments(line[0], line[1:], typed)


def _arguments(name: str, before: Sequence[str], typed: str) -> Iterator[str]:
    chosen = dict(word.lstrip("+").split("=", 1) for word in before if "=" in word)
    key, equals, value = typed.partition("=")
    if equals:
        yield from (f"{key}={option}" for option in _values(name, chosen, key.lstrip("+"), value))
        return
    bare = [before[place] for place in usage.bare_words(before)]
    last = name
    for word in usage.COMMANDS[name].words:
        if word.after in ("", last):
            if not bare:
                yield from _named(word, typed)
                return
            chosen[word.key] = last = bare.pop(0)
    yield from _keys(name, chosen, typed)


def _named(word: usage.Word, typed: str) -> Iterator[str]:
    """What may stand where a command takes a word."""
    if word.key == "ledger":
        yield from _ledgers(typed)
    else:
        yield from paths(typed) if word.free else _starting(typed, word.known)


def _ledgers(typed: str) -> Iterator[str]:
    """Those of the working directory by name, and paths."""
    yield from _starting(typed, sorted(path.stem for path in Path("ledgers").glob("*.ledger")))
    yield from paths(typed)


def _keys(name: str, chosen: Mapping[str, str], typed: str) -> Iterator[str]:
    """Groups and keys, one level at a time: ``training.`` before what is in it."""
    groups, tree = usage.groups(usage.COMMANDS[name].config), composed(name, chosen)
    yield from (f"{group}=" for group in _starting(typed, groups))
    for key in _starting(typed, dict(_flat(tree))):
        head, dot, _ = key[len(typed) :].partition(".")
        yield typed + head + dot if dot else f"{key}="


def _values(name: str, chosen: Mapping[str, str], key: str, typed: str) -> Iterator[str]:
    last = key.rpartition(".")[2]
    if key in usage.groups(usage.COMMANDS[name].config):
        yield from _starting(typed, usage.options(key))
    elif key == "command":
        yield from _starting(typed, usage.COMMANDS)
    elif key in RUNS:
        yield from _runs(RUNS[key], chosen, typed)
    elif key in VALUES and not (key == "data" and name != "reproduce"):
        yield from _starting(typed, VALUES[key])
    elif key == "ledger":
        yield from _ledgers(typed)
    elif last in FOLDERS:
        yield from paths(typed, folders=True)
    elif last in FILES:
        yield from paths(typed)
        home = Path(chosen.get("data_dir", "data"))
        if last in ("path", "test") and not typed.startswith(("/", "~", ".")) and home.is_dir():
            yield from paths(typed, home=home)
    else:
        value = dict(_flat(composed(name, chosen))).get(key, "")
        yield from _starting(typed, ("true", "false") if isinstance(value, bool) else [str(_as_typed(value))])


def _as_typed(value: object) -> object:
    """The present value, as a start; nothing where it is a mapping, a list, or stands for another."""
    if value is None:
        return "null"
    return "" if isinstance(value, dict | list) or "$" in str(value) or value == "???" else value


def _runs(command: str, chosen: Mapping[str, str], typed: str) -> Iterator[str]:
    """``latest``, finished runs under output_dir, and folders on the way to others."""
    home = Path(chosen.get("output_dir", "outputs")) / command
    runs = [str(run.folder) for run in latest.recorded(home, command) if run.state == "done"]
    yield from _starting(typed, [*(["latest"] if command == "train" else []), *runs])
    for folder in paths(typed, folders=True):
        status = Path(os.path.expanduser(folder)) / "status.json"
        run = latest.read(status, command)
        if run and run.state == "done":
            yield folder.rstrip("/")
        elif not status.is_file():
            yield folder


def paths(typed: str, folders: bool = False, home: Path = Path()) -> Iterator[str]:
    """Files and folders that begin so; a folder ends with a slash."""
    head, slash, start = typed.rpartition("/")
    folder = home / os.path.expanduser(head + slash)
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return
    for path in inside:
        if path.name.startswith(start) and (start.startswith(".") or not path.name.startswith(".")):
            if path.is_dir():
                yield f"{head}{slash}{path.name}/"
            elif not folders:
                yield f"{head}{slash}{path.name}"


def _starting(typed: str, known: Any) -> Iterator[str]:
    return (word for word in known if word and word.startswith(typed))


# -- configuration files, read as they lie -------------------------------------------------------------------------------


def composed(name: str, chosen: Mapping[str, str]) -> dict[str, Any]:
    """A command's configuration, nearly as Hydra composes it: groups by their choice, experiment's and dataset's too."""
    config, choices = map(dict, _file(usage.config_dir() / f"{usage.COMMANDS[name].config}.yaml"))
    for group in ("experiment", "dataset"):
        choices |= _file(usage.options(group).get(chosen.get(group, choices.get(group, ""))))[1]
    choices |= chosen
    for group in usage.groups(usage.COMMANDS[name].config):
        option = str(choices.get(group) or "").replace("${dataset}", str(choices.get("dataset")))
        if group != "experiment" and "/" not in group and option in usage.options(group):
            config[group] = _file(usage.options(group)[option])[0]
    return config


@cache
def _file(path: Path | None) -> tuple[dict[str, Any], dict[str, str]]:
    """(its settings, with those of the files that it builds on; the choices of groups that it makes)."""
    if path is None or not path.is_file():
        return {}, {}
    content = _yaml(path)
    settings: dict[str, Any] = {}
    choices: dict[str, str] = {}
    for entry in content.pop("defaults", None) or ():
        if isinstance(entry, str) and entry != "_self_":
            base = _file(path.with_name(f"{entry}.yaml"))
            settings, choices = _merged(settings, base[0]), {**choices, **base[1]}
        elif isinstance(entry, dict):
            for group, option in entry.items():
                where = str(group).removeprefix("override ").lstrip("/").partition("@")[0]
                inside = (path.parent / where).is_dir() and path.parent != usage.config_dir()
                if inside and not str(group).startswith("override "):
                    settings[where] = _file(path.parent / where / f"{option}.yaml")[0]
                elif option is not None:
                    choices[where] = str(option)
    return _merged(settings, content), choices


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = [key for key in base.keys() & over.keys() if isinstance(base[key], dict) and isinstance(over[key], dict)]
    return {**base, **over, **{key: _merged(base[key], over[key]) for key in both}}


def _yaml(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), loader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}", value
