"""An audit on one page: on a terminal, as Markdown, and from that for a browser."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agt.facts import Standing
from agt_cli.report.checks import State
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, markdown_table, plain, visible
from agt_cli.verify.findings import Subject

OWN = ("digest", "code")  # notes that are told of what is audited, and not of all that it rests on
COLUMNS = ("check", "stands", "seen")
CONDITIONS = ("", "asks", "stands", "why")
DRAWN = ("predict", "tune")
ALWAYS = (
    "who made it: hashes and seals are no signature; only a digest that was kept elsewhere, at the time, tells this folder "
    "from one that was made to look like it",
    "that the code which ran was agt's: version and revision are words in the record; whoever doubts them trains again on "
    "the same data with the same config.yaml, and compares",
    "that no other run or release about the same people was made elsewhere: losses add up whether or not they are written "
    "down",
    "that this was the only training: of many runs the best may have been kept, which condition e speaks about and nothing "
    "records",
    "how long anything took, what was refused, and what else could be watched: guarantees are about outputs alone",
)
OF_DRAWS = (
    "that the draws came from the operating system and were made once: a record cannot show how its numbers came about"
)
OF_DECLARED = "that what was declared is true: each declaration above is a person's word, with what would break it"


@dataclass(frozen=True)
class Node:
    """One line of what rests on what.

    Attributes:
        state: ok, not checked, proved, declared and so on; empty: none of its own.
    """

    words: str
    state: str = ""
    parts: tuple["Node", ...] = ()


def headline(subject: Subject) -> str:
    """Whether it verifies, in one line."""
    count = len(subject.problems)
    if count:
        return f"DOES NOT VERIFY: {subject.name}: {count} problem{'s' if count > 1 else ''}"
    return f"VERIFIES: {subject.name}"


def tree(subject: Subject, above: Subject | None = None) -> Node:
    """What it rests on, as far as anybody could look.

    Args:
        above: what rests on it; conditions that stand alike are not told twice.
    """
    parts = [Node(line) for line in subject.claims] if above is None else []
    if subject.conditions and (above is None or above.conditions != subject.conditions):
        parts.append(_conditions(subject))
    parts += [tree(part, subject) for part in subject.rests_on]
    digest = f", {subject.digest[:19]}..." if subject.digest else ""
    return Node(f"{subject.name}{digest}", str(subject.state), tuple(parts))


def _conditions(subject: Subject) -> Node:
    by = {standing: [c for c in subject.conditions if c.standing is standing] for standing in Standing}
    proved = ", ".join(f"{c.letter} {visible(c.name)}" for c in by[Standing.PROVED])
    parts = [Node(f"by code: {proved}", "proved")] if proved else []
    parts += [Node(words, "declared") for words in subject.declared]
    parts += [
        Node(f"{c.letter} {visible(c.name)}: {visible(c.grounds.missing, 1000)}", "not held") for c in by[Standing.VOID]
    ]
    return Node("the conditions of a guarantee of privacy", "", tuple(parts))


def limits(subject: Subject) -> list[str]:
    """What no look at it can show."""
    if subject.limits:
        return [*subject.limits]
    declared = any(part.declared for part in subject.every)
    drawn = any(line for line in subject.claims if "private" in line)
    return [*([OF_DECLARED] if declared else []), *([OF_DRAWS] if drawn else []), *ALWAYS]


def rows(subject: Subject) -> list[tuple[str, str, str]]:
    """Its own checks, and what does not hold or could not be looked at below; the worst first."""
    checks = list(subject.checks)
    below = [(part, check) for part in subject.every if part is not subject for check in part.checks]
    checks += [
        replace(check, words=f"{part.name}: {check.words}")
        for part, check in below
        if check.state is not State.OK and (check.state is not State.NOTE or check.name not in OWN)
    ]
    checks.sort(key=lambda check: check.state is not State.PROBLEM)
    return [check.cells for check in checks]


def say(subject: Subject, console: Console) -> None:
    """On a terminal."""
    console.say(headline(subject))
    for check in subject.problems:
        console.say(f"  {check.state} {check.name}: {check.told}")
    for name, value in subject.facts:
        console.say(f"  {name}: {value}")
    console.tree("what rests on what", _as_lists(tree(subject)))
    console.table("checks", COLUMNS, rows(subject))
    console.say("what this does not show:")
    for line in limits(subject):
        console.say(f"  - {line}")


def markdown(subject: Subject) -> str:
    """The same as a page."""
    parts = [
        f"# {plain(headline(subject))}",
        *([markdown_table(("", "as recorded"), subject.facts)] if subject.facts else []),
        "## What rests on what",
        "\n".join(_bullets(tree(subject))),
        "## Checks",
        markdown_table(COLUMNS, [(name, Markdown(f"**{state}**"), seen) for name, state, seen in rows(subject)]),
        *(["## Conditions of a guarantee", markdown_table(CONDITIONS, _grounds(subject))] if subject.conditions else []),
        "## What this does not show",
        "\n".join(f"- {plain(line)}" for line in limits(subject)),
    ]
    return "\n\n".join(parts) + "\n"


def _grounds(subject: Subject) -> list[tuple[str, str, str, str]]:
    """Each condition, and what it rests on."""
    return [(c.letter, visible(c.name), Markdown(f"**{c.standing}**"), visible(c.why, 1000)) for c in subject.conditions]


def _bullets(node: Node, depth: int = 0) -> Iterator[str]:
    state = f" **{node.state}**" if node.state else ""
    yield f"{'  ' * depth}- {plain(node.words)}{state}"
    for part in node.parts:
        yield from _bullets(part, depth + 1)


def _as_lists(node: Node) -> tuple[str, Sequence[object]]:
    words = f"{node.words}: {node.state}" if node.state else node.words
    return words, [_as_lists(part) for part in node.parts]
