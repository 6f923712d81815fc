"""report.md of a reproduction: each figure and table, ours beside the published numbers."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from agt.errors import counted
from agt.store.json_text import parse_object
from agt.store.reading import Broken, read_file
from agt_cli.report.markdown import escape_markdown, markdown_table
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section
from agt_cli.report.sections_md import figures_section

from .rendering import UNPUBLISHED, Section


def reproduction_report(
    title: str,
    data: str,
    profiles: Mapping[str, str],
    sections: Sequence[Section],
    peak_gib: float,
    record: RunRecord,
) -> str:
    """The report."""
    published = 0
    times = []
    for section in sections:
        times.append(
            (section.source, section.title, f"{section.seconds:.1f}", f"{section.needed:.1f}")
        )
        if len(section.compared):
            with_ours = section.compared.dropna(how="all", subset=[*profiles])
            published += int((with_ours["published"] != UNPUBLISHED["published"]).sum())
    made = counted(len(sections), "figure or table", "figures and tables")
    if published:
        numbers = counted(published, "published number")
        made = f"{made}, {numbers} beside ours"
    parts = [
        f"# {title}",
        f"**{made}.**",
        f"Data: {data}.",
        _list_of_profiles(profiles),
        "## Overview",
        markdown_table(("source", "what", "seconds now", "seconds of its runs"), times),
        f"Peak memory of the process: {peak_gib:.2f} GiB. Runs that were stored are not run "
        "again; for these, the last column shows the time that they took at first.",
    ]
    for section in sections:
        parts += _section(section)
    return "\n\n".join([*parts, "## Setting", setting_section(record.config)]) + "\n"


def summary(
    title: str, data: str, profiles: Mapping[str, str], sections: Sequence[Section], peak_gib: float
) -> str:
    """What ``scripts/paper.py`` needs of one report, as json."""
    rows = []
    for section in sections:
        compared = []
        if not section.compared.empty:
            compared = json.loads(section.compared.to_json(orient="records"))
        seconds = max(section.seconds, section.needed)
        rows.append(
            {
                "source": section.source,
                "title": section.title,
                "seconds": round(seconds),
                "figures": section.captions,
                "compared": compared,
            }
        )
    whole = {
        "title": title,
        "data": data,
        "profiles": dict(profiles),
        "peak_gib": peak_gib,
        "artifacts": rows,
    }
    return json.dumps(whole, indent=2) + "\n"


def _list_of_profiles(profiles: Mapping[str, str]) -> str:
    """Return a list in Markdown: the name of each profile, and what it means."""
    return "\n".join(f"- **{name}**: {words}" for name, words in profiles.items())


def summaries(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each experiment's newest finished record below a folder: title -> (its folder's name, its
    summary).

    A record whose summary cannot be read is left out.
    """
    newest: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/summary.json")):
        with suppress(Broken, KeyError):
            one = parse_object(read_file(path), path.name)
            newest[str(one["title"])] = (path.parent.name, one)
    return newest


def _section(section: Section) -> list[str]:
    parts = [f"## {escape_markdown(section.source)}: {escape_markdown(section.title)}"]
    parts += figures_section(section.source, section.captions)
    for table in (section.compared, section.table):
        if not table.empty:
            columns = tuple(map(str, table.columns))
            parts.append(markdown_table(columns, rows_of_cells(table)))
    if section.notes:
        notes = [f"- {escape_markdown(note)}" for note in section.notes]
        parts.append("\n".join(notes))
    return parts


def rows_of_cells(table: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the texts of a table's cells, row by row."""
    return [tuple(map(_cell, row)) for row in table.values]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
