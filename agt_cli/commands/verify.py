"""agt verify PATH: check whether a run, a release or a ledger is unchanged, and print what its
claims depend on. Nothing is written, except a page if one is asked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.errors import Busy, CheckError, counted
from agt.facts import Standing
from agt.sentences import declared_in_brief
from agt.store.atomic import write_atomic
from agt.targets import trusting
from agt_cli.command_settings.verify import check_verify, read_head
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
from agt_cli.verify.items import VerifiedItem
from agt_cli.verify.ledgers import NotedHead
from agt_cli.verify.verification import CODE_LIMIT, MAKER_LIMIT, PAGES_LIMIT, Verification

# notes that are shown for the item at PATH, but not for the items that it depends on
NOTES_OF_ITEM_ONLY = ("digest", "code", "metrics", "tables")
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
    f"{CODE_LIMIT} (to check, train again on the same data with the same config.yaml)",
    "no other file records what env.json says about the machine, packages, command line and paths, "
    "what status.json says about times, or what audit.json says was found",
    "other runs or releases about the same people may exist elsewhere: their privacy losses add up",
    "other training runs may have been made, of which only the best was kept (against condition e)",
    "the guarantees cover only outputs, not side channels, such as how long a step took",
)
DRAW_LIMIT = (
    "no file proves that random numbers came from the operating system and were drawn only once"
)
DECLARED_LIMIT = "the declarations may be false, because no code can check what a person declares"


@dataclass(frozen=True)
class VerifyConfig:
    """The settings of ``agt verify``.

    Attributes:
        path: the folder or file to verify.
        digest: the digest that it must have; None: any.
        page: the file into which the result is written as well; None: no file.
        ledger: the name or path of the ledger that counts the release; None: the one that the
            release names.
        head: an earlier last entry of the ledger (COUNT:HASH), or a head file that contains one;
            None: none was given.
    """

    path: Path
    digest: str | None
    page: Path | None
    ledger: str | None
    head: NotedHead


def configure(config: Mapping[str, Any]) -> VerifyConfig:
    """Validate the settings.

    Raises:
        ConfigError: the digest or the head is malformed; or the page would be written into the
            folder that is verified, or over another file.
    """
    check_verify(config)
    page = config.get("page")
    if page is not None:
        page = Path(str(page))
    ledger = config.get("ledger")
    if ledger is not None:
        ledger = str(ledger)
    return VerifyConfig(
        path=Path(str(config["path"])).expanduser(),
        digest=read_digest_setting(config, "digest"),
        page=page,
        ledger=ledger,
        head=read_head(config.get("head")),
    )


def run(config: VerifyConfig, console: Console) -> dict[str, Any]:
    """Verify the folder or file at the path, print the result, and write the page.

    Returns:
        What --json prints.

    Raises:
        CheckError: a check failed.
        Busy: no check failed, but some could not be made, because another process is using a
            ledger.
    """
    with trusting(()), console.progress(f"verifying {config.path}", "file") as report:

        def report_files(done: int, files: int) -> None:
            """Show how many files were verified, and how many there are."""
            report(done, files, done, files)

        verification = Verification(report_files, config.ledger, config.head)
        item = verification.look(config.path, config.digest)
    print_result(item, console)
    if config.page is not None:
        _write_page(item, config.page)
        console.note(f"page: {config.page}")
    result = {"path": str(config.path), "verifies": not item.problems, **item.as_json()}
    if item.problems:
        raise CheckError(headline(item), {"command": "verify", **result})
    for check in item.checks_of(CheckState.BUSY):
        raise Busy(f"some checks could not be made, because {check.words}")
    return result


def _write_page(item: VerifiedItem, path: Path) -> None:
    """Write the result of a verification as a page, in HTML or Markdown by the file's ending."""
    page = result_page(item)
    if path.suffix == ".html":
        page = report_page(page, _find_no_figure)
    write_atomic(path, page.encode())


def _find_no_figure(name: str) -> None:
    """Return None: the page of a verification has no figures."""


# -- on one page
# --------------------------------------------------------------------------------------------------


def headline(item: VerifiedItem) -> str:
    """Return whether an item verifies, in one line."""
    if not item.problems:
        return f"VERIFIES: {item.name}"
    problems = counted(len(item.problems), "problem")
    return f"DOES NOT VERIFY: {item.name} (problems: {problems})"


def result_tree(item: VerifiedItem, parent: VerifiedItem | None = None) -> TreeBranch:
    """Return an item and everything that its claims depend on, as a tree.

    Args:
        item: the item that was verified.
        parent: the item whose claims depend on this one; None: it is the item at PATH. Conditions
            that are the same as the parent's are not repeated.
    """
    parts: list[TreeBranch] = []
    if parent is None:
        parts += [(line, ()) for line in item.claims]
    repeats_conditions = parent is not None and parent.conditions == item.conditions
    if item.conditions and not repeats_conditions:
        lines = [(line, ()) for line in _condition_lines(item)]
        parts.append(("which conditions of a privacy guarantee are met", lines))
    parts += [result_tree(part, item) for part in item.rests_on]
    digest = f", {item.digest[:19]}..." if item.digest else ""
    return f"{item.name}{digest}: {_describe_state(item)}", parts


def _condition_lines(item: VerifiedItem) -> list[str]:
    """Return lines on the conditions of an item: proved, declared, and not met."""
    proved = []
    unmet = []
    for condition in item.conditions:
        if condition.standing is Standing.PROVED:
            proved.append(f"{condition.letter} {excerpt(condition.name)}")
        elif condition.standing is Standing.VOID:
            unmet.append(_describe_unmet_condition(condition))
    lines = []
    if proved:
        lines.append(f"proved by code: {', '.join(proved)}")
    if item.declared:
        stated = declared_in_brief(item.declared)
        lines.append(f"declared (in full with page=FILE): a guarantee {stated}")
    return [*lines, *unmet]


def _describe_state(item: VerifiedItem) -> str:
    """Return the state of an item's own checks; if only some could be made, the number of
    others.
    """
    if item.state is not CheckState.UNCHECKED:
        return str(item.state)
    missing = sum(check.state is CheckState.UNCHECKED for check in item.checks)
    if missing == len(item.checks):
        return str(item.state)
    return f"ok, but {missing} of {len(item.checks)} checks could not be made"


def _describe_unmet_condition(condition: Condition) -> str:
    """Return a sentence that a condition is not met, and why."""
    name = excerpt(condition.name)
    reason = excerpt(condition.evidence.missing, 1000)
    return f"condition {condition.letter} ({name}) is not met: {reason}"


def unshown_limits(item: VerifiedItem) -> list[str]:
    """Return sentences on the properties that the verification of an item cannot show."""
    if item.limits:
        return [*item.limits]
    limits = []
    if any(part.declared for part in item.every):
        limits.append(DECLARED_LIMIT)
    if item.drawn:
        limits.append(DRAW_LIMIT)
    return [*limits, *LIMITS]


def check_rows(item: VerifiedItem) -> list[tuple[str, str, str]]:
    """Return the rows of the table of checks, problems first.

    These are the item's own checks, and of the items that it depends on those that did not pass
    or have a note; the notes in ``NOTES_OF_ITEM_ONLY`` are left out there.
    """
    checks = list(item.checks)
    for part in item.every:
        if part is item:
            continue
        for check in part.checks:
            is_other_note = check.state is CheckState.NOTE and check.name in NOTES_OF_ITEM_ONLY
            if check.state is not CheckState.OK and not is_other_note:
                checks.append(replace(check, words=f"{part.name}: {check.words}"))
    problems = [check for check in checks if check.state is CheckState.PROBLEM]
    others = [check for check in checks if check.state is not CheckState.PROBLEM]
    return [check.cells for check in (*problems, *others)]


def unchecked_lines(item: VerifiedItem) -> list[str]:
    """Return a line for each check of an item, or of what it depends on, that was not possible."""
    lines = []
    for part in item.every:
        owner = "" if part is item else f"{part.name}: "
        for check in part.checks:
            if check.state is CheckState.UNCHECKED:
                lines.append(f"{owner}{check.sentence}")
    return lines


def print_result(item: VerifiedItem, console: Console) -> None:
    """Print the result of a verification on the console."""
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
    console.items("what agt verify does not show:", unshown_limits(item))


def result_page(item: VerifiedItem) -> str:
    """Return the result of a verification as a page in Markdown."""
    blocks: list[str | Sequence[str]] = [f"# {escape_markdown(headline(item))}"]
    if item.problems:
        blocks.append(f"{capitalize_first(PROBLEMS_REMEDY)}.")
    unchecked = unchecked_lines(item)
    if unchecked:
        blocks += ["Not checked:", unchecked]
    if item.facts:
        blocks.append(markdown_table(("", "as recorded"), item.facts))
    rows = [
        (name, Markdown(f"**{state}**"), sentence) for name, state, sentence in check_rows(item)
    ]
    blocks += ["## Checks", markdown_table(CHECK_COLUMNS, rows)]
    tree = "\n".join(_bullets(result_tree(item)))
    blocks += ["## What each claim depends on", tree]
    with_conditions = [part for part in item.every if part.conditions]
    if with_conditions:
        conditions = [_condition_row(condition) for condition in with_conditions[0].conditions]
        table = markdown_table(CONDITION_COLUMNS, conditions)
        blocks += ["## Conditions of a guarantee", table]
    return document(*blocks, "## What agt verify does not show", unshown_limits(item))


def _condition_row(condition: Condition) -> tuple[str, str, Markdown, str]:
    """Return a condition's row of the table on the page, with ``CONDITION_COLUMNS``."""
    state = Markdown(f"**{condition.standing}**")
    return condition.letter, excerpt(condition.name), state, excerpt(condition.why, 5000)


def _bullets(branch: TreeBranch, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a tree as a nested list in Markdown; ``depth`` is the level of nesting."""
    text, parts = branch
    indent = "  " * depth
    yield f"{indent}- {escape_markdown(text)}"
    for part in parts:
        yield from _bullets(part, depth + 1)
