"""What a shell completes: commands, keys and values; names of files are the shell's own.

Nothing here imports torch or a task.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from agt.errors import ConfigError, nearest
from agt_cli.config_files import groups, options
from agt_cli.usage import COMMANDS, OPTIONS, bare_words, words_of

SCRIPTS = {
    "bash": r"""# Completes agt in bash. Put this into ~/.bashrc: eval "$(agt completion bash)"
_agt_complete() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
        "${COMP_WORDS[0]}" completion --query bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac
    return 0
}
complete -o default -F _agt_complete agt""",
    "zsh": r"""# Completes agt in zsh. Put this into ~/.zshrc, after compinit: eval "$(agt completion zsh)"
_agt_complete() {
    local -a open whole
    local line
    while IFS= read -r line; do
        case "$line" in *=) open+=("$line") ;; *) whole+=("$line") ;; esac
    done < <("${words[1]}" completion --query zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#whole} )) && compadd -- "${whole[@]}"
    (( ${#open} + ${#whole} )) || { compset -P '*='; _files }
}
compdef _agt_complete agt""",
    "fish": r"""# Completes agt in fish. Put this into ~/.config/fish/config.fish: agt completion fish | source
complete -c agt -a '(agt completion --query fish (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'""",
}

INSTALL = (
    'to complete the command lines of agt in this bash, type eval "$(agt completion bash)"; '
    "to complete them in every bash, put the same line into ~/.bashrc (for zsh and fish, the "
    "first line that agt completion zsh or agt completion fish prints says what to do)"
)


def completion(arguments: Sequence[str]) -> int:
    """``agt completion SHELL`` prints what the shell is to load; the shell then asks with
    ``--query``.

    Raises:
        ConfigError: no shell is named, or one that has no script.
    """
    if arguments[:1] == ["--query"]:
        # bash cuts words at = and : as well
        typed = re.sub("\0?([=:]+)\0?", r"\1", "\0".join(arguments[2:])).split("\0")
        done = typed[-1].rfind("=") + 1 if arguments[1] == "bash" else 0
        # whatever a user's own file holds: nobody asked for a message here
        with suppress(Exception):
            for candidate in sorted(set(candidates(typed))):
                print(candidate[done:])
        return 0
    shell = next((word for word in arguments if not word.startswith("-")), "")
    if {"-h", "--help", "help"} & set(arguments):
        shells = "|".join(SCRIPTS)
        print(f"usage: agt completion {shells}\n\n{INSTALL}")
    elif shell in SCRIPTS:
        print(SCRIPTS[shell])
    else:
        shells = ", ".join(SCRIPTS)
        missing = (
            f"unknown shell '{shell}'{nearest(shell, SCRIPTS)}"
            if shell
            else f"the name of the shell is missing: give one of {shells}"
        )
        raise ConfigError(f"agt completion: {missing}; {INSTALL}")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last word may become.

    Args:
        words: those behind ``agt``, the last one as far as it was typed.
    """
    *before, typed = words
    line = [word for word in before if word not in ("-q", "-v", "--quiet", "--verbose", "--json")]
    known: Iterable[str] = ()
    if typed.startswith("-"):
        known = OPTIONS
    elif not line or line == ["help"]:
        known = (*COMMANDS, *([] if line else ["help", "completion"]))
    elif line == ["completion"]:
        known = SCRIPTS
    elif line[0] in COMMANDS:
        known = _open_settings(line[0], line[1:], typed)
    return [word for word in known if word.startswith(typed)]


def _open_settings(name: str, before: Sequence[str], typed: str) -> Iterator[str]:
    """A word that the command takes, a group, or an option of one."""
    known = groups(COMMANDS[name].config)
    group, equals, _ = typed.partition("=")
    if equals:
        yield from (f"{group}={option}" for option in (options(group) if group in known else ()))
        return
    _, missing = words_of(name, [before[place] for place in bare_words(before)])
    if missing:
        yield from () if missing.free else missing.known
        return
    yield from (f"{group}=" for group in known)
