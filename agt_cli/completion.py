"""What a shell completes: commands, keys and values; names of files are the shell's own.

Nothing here imports torch or a task.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from agt.errors import ConfigError, nearest
from agt_cli.config_files import groups_of_command, options_of_group
from agt_cli.usage import COMMANDS, OPTIONS, match_positionals

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
    """Print the script of a shell, its help, or what the last word of a command line may become.

    Args:
        arguments: the words after ``agt completion``: the name of a shell, or, as the script of
            this shell calls it, ``--query SHELL`` and the words of a command line.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: the name of the shell is missing or unknown.
    """
    if arguments[:1] == ["--query"]:
        shell, *words = arguments[1:]
        _print_candidates(shell, words)
        return 0
    shell = next((word for word in arguments if not word.startswith("-")), "")
    if {"-h", "--help", "help"} & set(arguments):
        shells = "|".join(SCRIPTS)
        print(f"usage: agt completion {shells}\n\n{INSTALL}")
    elif shell in SCRIPTS:
        print(SCRIPTS[shell])
    else:
        shells = ", ".join(SCRIPTS)
        problem = f"the name of the shell is missing: give one of {shells}"
        if shell:
            problem = f"unknown shell '{shell}'{nearest(shell, SCRIPTS)}"
        raise ConfigError(f"agt completion: {problem}; {INSTALL}")
    return 0


def _print_candidates(shell: str, words: Sequence[str]) -> None:
    """Print the completions of the last word of a command line, one a line.

    An error, such as a broken file of the user's own, prints nothing, because the user did not run
    a command.

    Args:
        shell: the shell that asks.
        words: the words of the command line as the shell splits them. bash also splits at = and :,
            and then completes only the part after the last =.
    """
    typed = re.sub("\0?([=:]+)\0?", r"\1", "\0".join(words)).split("\0")
    start = typed[-1].rfind("=") + 1 if shell == "bash" else 0
    with suppress(Exception):
        for candidate in sorted(set(candidates(typed))):
            print(candidate[start:])


def candidates(words: Sequence[str]) -> list[str]:
    """Return completions of the last word of a command line; none: no suggestions.

    Args:
        words: the words after ``agt``, the last one as far as it was typed.
    """
    *before, typed = words
    line = [word for word in before if word not in ("-q", "-v", "--quiet", "--verbose", "--json")]
    possible: Iterable[str] = ()
    if typed.startswith("-"):
        possible = OPTIONS
    elif not line or line == ["help"]:
        possible = COMMANDS if line else (*COMMANDS, "help", "completion")
    elif line == ["completion"]:
        possible = SCRIPTS
    elif line[0] in COMMANDS:
        possible = _possible_continuations(line[0], line[1:], typed)
    return [word for word in possible if word.startswith(typed)]


def _possible_continuations(name: str, words: Sequence[str], typed: str) -> Iterator[str]:
    """Yield what may follow in the command line of a command.

    These are the options of a group, if its name was typed; else the words that the command still
    needs; else the groups.

    Args:
        name: the name of the command.
        words: the complete words after it.
        typed: the last word, as far as it was typed.
    """
    group_names = groups_of_command(COMMANDS[name].config)
    group, equals, _ = typed.partition("=")
    missing = match_positionals(name, words).missing
    if equals:
        if group in group_names:
            yield from (f"{group}={option}" for option in options_of_group(group))
    elif missing is None:
        yield from (f"{key}=" for key in group_names)
    elif not missing.placeholder:
        yield from missing.allowed
