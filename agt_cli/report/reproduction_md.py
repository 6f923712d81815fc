"""report.md of a reproduction: each figure and table, ours beside the published numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import markdown_table, setting_section


@dataclass(frozen=True)
class Section:
    """One artifact, made.

    Attributes:
        table: its own table, or empty.
        compared: published numbers beside ours, or empty.
        captions: figure file name -> what it shows.
        notes: sentences.
        seconds: what it took, runs that were kept from before not counted again.
    """

    id: str
    source: str
    title: str
    table: pd.DataFrame
    compared: pd.DataFrame
    captions: dict[str, str]
    notes: tuple[str, ...]
    seconds: float


def reproduction_report(
    title: str, data: str, profiles: Sequence[str], sections: Sequence[Section], peak_gib: float, record: RunRecord
) -> str:
    """The report."""
    overview = [(s.source, s.title, ", ".join(profiles), f"{s.seconds:.1f}") for s in sections]
    parts = [
        f"# {title}",
        f"Data: {data}.",
        "Profiles: **paper** uses the published settings, rules and mechanisms (accounting=paper: where the conditions of "
        "a guarantee fail this is no proof of privacy); **ours** the add/remove relation, exact products, dense grids, "
        "rigorous accounting; **smoke** is small and says nothing about quality.",
        "## Overview",
        markdown_table(("source", "what", "profiles", "seconds"), overview),
        f"Peak memory of the process: {peak_gib:.2f} GiB. Runs found from before are not run again, nor counted.",
    ]
    for section in sections:
        parts += _section(section, data)
    return "\n\n".join([*parts, "## Setting", setting_section(record.config)]) + "\n"


def _section(section: Section, data: str) -> list[str]:
    parts = [f"## {section.source}: {section.title}"]
    parts += [f"![{text}](figures/{name}.png)\n\n*{data}. {text}*" for name, text in section.captions.items()]
    for table in (section.compared, section.table):
        if not table.empty:
            parts.append(markdown_table(tuple(map(str, table.columns)), [tuple(map(_cell, row)) for row in table.values]))
    if section.notes:
        parts.append("\n".join(f"- {note}" for note in section.notes))
    return parts


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if value != value else f"{value:.4g}"
    return str(value)
