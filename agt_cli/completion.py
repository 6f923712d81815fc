"""What a shell completes: commands, their words, groups with their options, and keys; names of files are the shell's own.

The shell asks at every press of a key: commands, words and groups are read as the files lie, and Hydra is loaded for keys
alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agt.errors import ConfigError, nearest
from agt_cli import usage

SCRIPTS = {
    "bash": r"""# completion of agt for bash; in ~/.bashrc: eval "$(agt completion bash)"
_agt_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
        "${COMP_WORDS[0]}" completion --query bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case "${COMPREPLY[0]}" in *[=.]) compopt -o nospace 2>/dev/null ;; esac
    return 0
}
complete -o default -F _agt_complete agt""",
    "zsh": r"""# completion of agt for zsh; in ~/.zshrc, after compinit: eval "$(agt completion zsh)"
_agt_complete() {
    local -a open whole
    local line
    while IFS= read -r line; do
        case "$line" in *[=.]) open+=("$line") ;; *) whole+=("$line") ;; esac
    done < <("${words[1]}" completion --query zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
    (( ${#open} + ${#whole} )) || { compset -P '*='; _files }
}
compdef _agt_complete agt""",
    "fish": r"""# completion of agt for fish; in ~/.config/fish/config.fish: agt completion fish | source
complete -c agt -a '(agt completion --query fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}
INSTALL = (
    'eval "$(agt completion bash)" completes in this bash; the same line in ~/.bashrc in every one (zsh, fish: likewise)'
)


def main(arguments: Sequence[str]) -> int:
    """``agt completion SHELL`` prints what the shell is to load; the shell then asks with ``--query``.

    Raises:
        ConfigError: no shell is named, or one that has no script.
    """
    if arguments[:1] == ["--query"]:
        with suppress(Exception):  # whatever a user's own file holds: nobody asked for a message here
            words, done = _joined(arguments[2:]) if arguments[1] == "bash" else (arguments[2:], 0)
            for candidate in sorted(set(candidates(words or [""]))):
                print(candidate[done:])
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


def _joined(words: Sequence[str]) -> tuple[list[str], int]:
    """Bash cuts words at = and : as well. The words as they were typed, and how much of the last one it regards as done."""
    joined: list[str] = []
    done, glued = 0, True
    for word in words or ("",):
        mark = bool(word) and set(word) <= {"=", ":"}
        if joined and (mark or glued) and word:
            done = len(joined[-1]) + (len(word) if mark else 0)
            joined[-1] += word
        else:
            done = 0
            joined.append(word)
        glued = mark
    return joined, done


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
    elif line[-1] in ("--cfg", "-c"):
        yield from _starting(typed, ("job", "hydra", "all"))
    elif line[0] in usage.COMMANDS:
        yield from _settings(line[0], line[1:], typed)


def _settings(name: str, before: Sequence[str], typed: str) -> Iterator[str]:
    """A word that the command takes, a group, an option of one, or a key, one level at a time."""
    groups = usage.groups(usage.COMMANDS[name].config)
    group, equals, option = typed.partition("=")
    if equals:
        yield from (f"{group}={known}" for known in _starting(option, usage.options(group) if group in groups else ()))
        return
    bare, last = [before[place] for place in usage.bare_words(before)], name
    chosen = [word for word in before if "=" in word and word.partition("=")[0] in groups]
    for word in usage.COMMANDS[name].words:
        if word.after in ("", last):
            if not bare:
                yield from _starting(typed, () if word.free else word.known)
                return
            last = bare.pop(0)
            chosen += [f"{word.key}={last}"] if word.key in groups else []
    yield from (f"{group}=" for group in _starting(typed, groups))
    from agt_cli.configuration import compose_unresolved

    for key in _starting(typed, _leaves(compose_unresolved(usage.COMMANDS[name].config, chosen))):
        head, dot, _ = key[len(typed) :].partition(".")
        yield typed + head + dot if dot else f"{key}="


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}"


def _starting(typed: str, known: Iterable[str]) -> Iterator[str]:
    return (word for word in known if word.startswith(typed))
