"""report.md of a release, and what its owner should know about the queries."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agt.data.records import Records
from agt.errors import few
from agt_cli.report.markdown import bullet_list, document, escape_markdown
from agt_cli.report.quality import format_rate
from agt_cli.report.record import RunRecord, to_yaml


def setting_section(config: Mapping[str, Any]) -> str:
    """Return a configuration as a block of YAML in Markdown.

    Answers from released weights do not use the setting ``mechanism``, so it is left out then.
    """
    unused = {"mechanism"} if config.get("release") else set()
    text = to_yaml({key: value for key, value in config.items() if key not in unused}).rstrip()
    # The fence has more backticks than any text in the block.
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", text)), default=2))
    return f"{fence}yaml\n{text}\n{fence}"


def release_report(
    dataset: str,
    queries: str,
    mechanism: str,
    sentences: Sequence[str],
    publishable: str | None,
    record: RunRecord,
    released: str = "Private labels",
) -> str:
    """Return report.md of a release.

    Args:
        dataset: the name of the dataset.
        queries: a clause that says which queries were answered.
        mechanism: the name of the mechanism.
        sentences: sentences on the claim, the totals and the caveats.
        publishable: a phrase that says what the guarantee covers; None: nothing, because it is a
            simulation, or a condition is not met.
        record: the record of the command.
        released: a name of what is released, for the title.
    """
    return document(
        f"# {released}: {escape_markdown(dataset)}",
        publish_headline(publishable, answers_from_release=bool(record.config.get("release"))),
        f"{escape_markdown(queries)}, answered by `{mechanism}`.",
        record.standings,
        "## What is guaranteed",
        sentences,
        *publish_section(publishable),
        "## Setting",
        setting_section(record.config),
        seeds_sentence(record.config),
    )


def seeds_sentence(config: Mapping[str, Any]) -> str:
    """Return what the seed of a mechanism (not of its noise) is; empty: it has no seed.

    Args:
        config: the configuration of the release.
    """
    if "seed" not in (config.get("mechanism") or {}):
        return ""
    noise = "comes from the operating system"
    if config.get("seed") is not None:
        noise = "is drawn from the other seed, so that this release is a simulation"
    return (
        "`mechanism.seed` is the public seed of the random directions to which wide features are "
        f"projected. The noise is not drawn from it: the noise {noise} (`seed`)."
    )


PUBLISHED_FILES = {"measure": "`dataset.yaml`"}
"""What may be published of releases that no training run was made for, by command."""


def publish_headline(publishable: str | None, *, answers_from_release: bool) -> str:
    """Return the headline, in bold: which files may be published, and the cost of repeating.

    Args:
        publishable: a phrase that says what the guarantee covers; None: nothing may be published.
        answers_from_release: answers are computed from weights that were released before
            (``release=FOLDER``), which draws no noise and spends no budget.
    """
    if publishable is None:
        return "**Nothing may be published.**"
    cost = (
        "Repeating this command is another release, with new random draws, and costs privacy "
        "budget again."
    )
    if answers_from_release:
        cost = (
            "They were computed from released weights: repeating this command gives the same "
            "answers, and costs no privacy budget."
        )
    return f"**{publishable} may be published. {cost}**"


def publish_section(publishable: str | None) -> list[str]:
    """Return the section of report.md on what may be published; ``publishable`` as above."""
    published = (
        "Nothing may be published, because no guarantee holds. Everything here is for the "
        "data owner only."
    )
    if publishable:
        published = (
            f"{publishable} may be published. The rest of this folder, the training run, and "
            "how long the release took are for the data owner only."
        )
    return ["## What may be published", published]


MAX_COLUMNS = 10  # of queries
OUTSIDE_TITLE = (
    "queries with values outside the public ranges, which are clipped, or with values outside "
    'the public lists, which count as "other"'
)


def outside_lines(queries: Records) -> list[str]:
    """Return lines on queries with values outside the declared ranges and lists, under a title.

    There are none if all values fit.
    """
    lines = _outside_columns(queries)
    return [f"{OUTSIDE_TITLE}:", *lines] if lines else []


def _outside_columns(queries: Records) -> list[str]:
    """Return sentences on the columns with values that were not declared, the worst first."""
    # Of a column without any value nothing is outside; ``population_mismatches`` has it where there
    # are enough queries to tell.
    columns = [part for part in queries.outside if part.total]
    lines = []
    for part in sorted(columns, key=lambda part: -part.rate)[:MAX_COLUMNS]:
        column = part.column
        rate = format_rate(part.rate)
        lines.append(
            f"{column}: {part.count:,} of {part.total:,} values (a fraction of {rate}) are "
            f"outside {part.declared}; values in the queries: {part.seen}"
        )
    hidden = len(columns) - MAX_COLUMNS
    if hidden > 0:
        lines.append(
            f"Number of further columns with values outside their public ranges or lists: {hidden}."
        )
    if queries.population_mismatches:
        mismatches = few(queries.population_mismatches, MAX_COLUMNS, "; ")
        lines.append(f"{mismatches}. Answers to these queries are not reliable.")
    return lines


def outside_section(queries: Records) -> list[str]:
    """Return the section of report.md on values that were not declared; empty: all values fit."""
    lines = _outside_columns(queries)
    return [f"## For the data owner only: {OUTSIDE_TITLE}", bullet_list(lines)] if lines else []
