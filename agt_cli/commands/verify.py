"""agt verify PATH: is a run, a release or a ledger what was made, and what does it rest on? It
writes at most a page.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.errors import Busy, CheckError, ConfigError, counted
from agt.facts import Standing
from agt.ledger.chain import Head
from agt.store.atomic import write_atomic
from agt.targets import trusting
from agt_cli.command_settings.verify import check_verify
from agt_cli.configuration import read_digest_setting
from agt_cli.report.console import Console, TreeBranch
from agt_cli.report.markdown import (
    CheckState,
    Markdown,
    capitalize_first,
    document,
    escape_markdown,
    excerpt,
    markdown_table,
    report_page,
)
from agt_cli.verify.folders import Declared, VerifiedItem
from agt_cli.verify.ledgers import NotedHead
from agt_cli.verify.verification import CODE_LIMIT, MAKER_LIMIT, PAGES_LIMIT, Verification

# notes that are told of what is audited, and not of all that it rests on
NOTES_OF_ITEM_ONLY = ("digest", "code")
CHECK_COLUMNS = ("check", "state", "what was found")
CONDITION_COLUMNS = ("", "condition", "state", "why")
PROBLEMS_REMEDY = (
    "a problem means that a file was altered or damaged, or that files do not belong together. "
    "Until this is mended, do not rely on what was verified. Unless a problem names another "
    "remedy, restore its files from a backup of the same state and verify again, but never "
    "restore a ledger, because an older copy lacks the releases that were paid for since"
)
LIMITS = (
    PAGES_LIMIT,
    MAKER_LIMIT,
    f"{CODE_LIMIT}. To check, train again on the same data with the same config.yaml, and compare "
    "the results",
    "what env.json says about the machine, its packages, the command line and the paths of files "
    "may be wrong, and cannot be checked, because no other file records it",
    "other runs or releases about the same people may have been made elsewhere. Their privacy "
    "losses add to those that were verified here, whether or not they are recorded",
    "other training runs may have been made, of which only the best was kept: condition e "
    "(settings use public data only) forbids that, but no file can show it",
    "the guarantees cover only outputs, not side channels, such as how long a step took or which "
    "requests were refused",
)
DRAW_LIMIT = (
    "no file can prove that the random numbers came from the operating system and were drawn "
    "only once"
)
DECLARED_LIMIT = (
    "the declarations listed above may be false, because no code can check what a person "
    "declares; the list says what would make each declaration false"
)


@dataclass(frozen=True)
class VerifyConfig:
    """What is looked at.

    Attributes:
        path: what lies there.
        digest: that it must have; None: any.
        page: where the audit is written to as well; None: nowhere.
        ledger: that counts a release, by name or path; None: where the release says.
        head: where a ledger's chain ended at some time, or the file of its head file; None:
            nobody said.
    """

    path: Path
    digest: str | None
    page: Path | None
    ledger: str | None
    head: NotedHead


def configure(config: Mapping[str, Any]) -> VerifyConfig:
    """Validate the settings.

    Raises:
        ConfigError: no digest, or a page that would lie in what is verified, or over something
            else.
    """
    check_verify(config)
    path, page = Path(str(config["path"])).expanduser(), config.get("page")
    page = None if page is None else Path(str(page))
    head, ledger = config.get("head"), config.get("ledger")
    noted: NotedHead = None if head is None else Head.read(str(head))
    if head is not None and noted is None:
        if not os.path.exists(str(head)):
            raise ConfigError(
                f"head={head}: give COUNT:HASH, as agt ledger show prints it, or the head file "
                "(which keeps a copy of the ledger's last entry)"
            )
        noted = Path(str(head))
    return VerifyConfig(
        path,
        read_digest_setting(config, "digest"),
        page,
        None if ledger is None else str(ledger),
        noted,
    )


def run(config: VerifyConfig, console: Console) -> dict[str, Any]:
    """Look, say what was seen, and write the page.

    Raises:
        CheckError: something does not verify.
        Busy: another process has a ledger, and everything else holds.
    """
    with trusting(()), console.progress(f"verifying {config.path}", "file") as report:
        verification = Verification(
            lambda done, files: report(done, files, done, files), config.ledger, config.head
        )
        item = verification.look(config.path, config.digest)
    print_result(item, console)
    if config.page is not None:
        text = result_page(item)
        page = report_page(text, lambda _: None) if config.page.suffix == ".html" else text
        write_atomic(config.page, page.encode())
        console.note(f"page: {config.page}")
    result = {"path": str(config.path), "verifies": not item.problems, **item.as_json()}
    if item.problems:
        raise CheckError(headline(item), {"command": "verify", **result})
    for check in item.checks_of(CheckState.BUSY):
        reason = check.words
        raise Busy(f"some checks could not be made, because {reason}")
    return result


# -- on one page
# --------------------------------------------------------------------------------------------------


def headline(item: VerifiedItem) -> str:
    """Whether it verifies, in one line."""
    name = item.name
    count = len(item.problems)
    if count:
        problems = counted(count, "problem")
        return f"DOES NOT VERIFY: {name} (problems: {problems})"
    return f"VERIFIES: {name}"


def result_tree(
    item: VerifiedItem,
    parent: VerifiedItem | None = None,
    declared_above: Sequence[Declared] = (),
) -> TreeBranch:
    """What it rests on, as far as anybody could look: a line, and the branches below it.

    Args:
        item: what was looked at.
        parent: what rests on it; conditions that stand alike are not told twice.
        declared_above: declarations that were listed before, and are not listed again.
    """
    parts: list[TreeBranch] = [(line, ()) for line in item.claims] if parent is None else []
    new = [declaration for declaration in item.declared if declaration not in declared_above]
    if item.conditions and (parent is None or parent.conditions != item.conditions):
        parts.append(
            (
                "which conditions of a privacy guarantee are met",
                [(line, ()) for line in _condition_lines(item, new)],
            )
        )
    listed = [*declared_above, *new]
    for part in item.rests_on:
        parts.append(result_tree(part, item, listed))
        listed += [declaration for declaration in part.declared if declaration not in listed]
    digest = f", {item.digest[:19]}..." if item.digest else ""
    return f"{item.name}{digest}: {_state_words(item)}", parts


def _condition_lines(item: VerifiedItem, new: Sequence[Declared]) -> list[str]:
    """Return the conditions of an item by their standing, a line each.

    Args:
        item: the item.
        new: its declarations that were not listed before.
    """
    proved = ", ".join(
        f"{c.letter} {excerpt(c.name)}" for c in item.conditions if c.standing is Standing.PROVED
    )
    lines = [f"proved by code: {proved}"] if proved else []
    lines += [f"{each.words}: declared" for each in new]
    listed = len(item.declared) - len(new)
    if listed:
        declarations = counted(listed, "declaration")
        lines.append(f"{declarations} as listed above")
    void = (c for c in item.conditions if c.standing is Standing.VOID)
    return [*lines, *map(_unmet_words, void)]


def _state_words(item: VerifiedItem) -> str:
    """Return the state of an item's own checks; of one of which only some were made, how many."""
    if item.state is not CheckState.UNCHECKED:
        return str(item.state)
    missing = sum(check.state is CheckState.UNCHECKED for check in item.checks)
    if missing == len(item.checks):
        return str(item.state)
    return f"ok, but {missing} of {len(item.checks)} checks could not be made"


def _unmet_words(condition: Condition) -> str:
    name = excerpt(condition.name)
    reason = excerpt(condition.evidence.missing, 1000)
    return f"condition {condition.letter} ({name}) is not met: {reason}"


def unshown_limits(item: VerifiedItem) -> list[str]:
    """What no look at it can show."""
    if item.limits:
        return [*item.limits]
    declared = any(part.declared for part in item.every)
    return [
        *([DECLARED_LIMIT] if declared else []),
        *([DRAW_LIMIT] if item.drawn else []),
        *LIMITS,
    ]


def check_rows(item: VerifiedItem) -> list[tuple[str, str, str]]:
    """Its own checks, and what does not hold or could not be looked at below; the worst first."""
    checks = list(item.checks)
    below = [(part, check) for part in item.every if part is not item for check in part.checks]
    checks += [
        replace(check, words=f"{part.name}: {check.words}")
        for part, check in below
        if check.state is not CheckState.OK
        and (check.state is not CheckState.NOTE or check.name not in NOTES_OF_ITEM_ONLY)
    ]
    checks.sort(key=lambda check: check.state is not CheckState.PROBLEM)
    return [check.cells for check in checks]


def unchecked_lines(item: VerifiedItem) -> list[str]:
    """Return what could not be checked, of an item and of what it rests on, a line each."""
    return [
        check.sentence if part is item else f"{part.name}: {check.sentence}"
        for part in item.every
        for check in part.checks
        if check.state is CheckState.UNCHECKED
    ]


def print_result(item: VerifiedItem, console: Console) -> None:
    """On a terminal."""
    console.say(headline(item))
    for check in item.problems:
        console.say(f"  {check.state} {check.name}: {check.sentence}")
    if item.problems:
        console.say(f"  {PROBLEMS_REMEDY}")
    for line in unchecked_lines(item):
        console.say(f"  not checked: {line}")
    for name, value in item.facts:
        console.say(f"  {name}: {value}")
    console.table("checks", CHECK_COLUMNS, check_rows(item))
    console.tree("what depends on what", result_tree(item))
    console.say("what agt verify does not show:")
    for line in unshown_limits(item):
        console.say(f"  - {line}")


def result_page(item: VerifiedItem) -> str:
    """The same as a page."""
    conditions = [
        (c.letter, excerpt(c.name), Markdown(f"**{c.standing}**"), excerpt(c.why, 1000))
        for c in item.conditions
    ]
    missing = unchecked_lines(item)
    return document(
        f"# {escape_markdown(headline(item))}",
        *([f"{capitalize_first(PROBLEMS_REMEDY)}."] if item.problems else []),
        *(["Not checked:", missing] if missing else []),
        *([markdown_table(("", "as recorded"), item.facts)] if item.facts else []),
        "## Checks",
        markdown_table(
            CHECK_COLUMNS,
            [(name, Markdown(f"**{state}**"), seen) for name, state, seen in check_rows(item)],
        ),
        "## What each claim depends on",
        "\n".join(_bullets(result_tree(item))),
        *(
            ["## Conditions of a guarantee", markdown_table(CONDITION_COLUMNS, conditions)]
            if conditions
            else []
        ),
        "## What agt verify does not show",
        unshown_limits(item),
    )


def _bullets(branch: TreeBranch, depth: int = 0) -> Iterator[str]:
    yield f"{'  ' * depth}- {escape_markdown(branch[0])}"
    for part in branch[1]:
        yield from _bullets(part, depth + 1)
