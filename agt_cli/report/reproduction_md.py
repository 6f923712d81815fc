"""report.md of a reproduction: each figure and table, ours beside the published numbers."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from agt.folder import plain as file_bytes
from agt_cli.report.html import page
from agt_cli.report.markdown import markdown_table, plain
from agt_cli.report.record import RunRecord
from agt_cli.report.report_md import figures_section, setting_section


@dataclass(frozen=True)
class Section:
    """One artifact, made.

    Attributes:
        table: its own table, or empty.
        compared: published numbers beside ours, or empty.
        captions: figure file name -> what it shows.
        notes: sentences.
        seconds: what it took just now, runs that were kept from before not counted again.
        needed: seconds of training and certifying that its runs took when they were made.
    """

    id: str
    source: str
    title: str
    table: pd.DataFrame
    compared: pd.DataFrame
    captions: dict[str, str]
    notes: tuple[str, ...]
    seconds: float
    needed: float


def reproduction_report(
    title: str, data: str, profiles: Mapping[str, str], sections: Sequence[Section], peak_gib: float, record: RunRecord
) -> str:
    """The report."""
    times = [(s.source, s.title, f"{s.seconds:.1f}", f"{s.needed:.1f}") for s in sections]
    parts = [
        f"# {title}",
        f"Data: {data}.",
        "\n".join(f"- **{name}**: {words}" for name, words in profiles.items()),
        "## Overview",
        markdown_table(("source", "what", "seconds now", "seconds of its runs"), times),
        f"Peak memory of the process: {peak_gib:.2f} GiB. Runs kept from before are not run again; the last column counts "
        "them as they took when they ran.",
    ]
    for section in sections:
        parts += _section(section, data)
    return "\n\n".join([*parts, "## Setting", setting_section(record.config)]) + "\n"


def summary(title: str, data: str, profiles: Mapping[str, str], sections: Sequence[Section], peak_gib: float) -> str:
    """What the overview needs of one report, as json."""
    rows = [
        {
            "source": section.source,
            "title": section.title,
            "seconds": max(section.seconds, section.needed),
            "figures": section.captions,
            "compared": json.loads(section.compared.to_json(orient="records")) if not section.compared.empty else [],
        }
        for section in sections
    ]
    whole = {"title": title, "data": data, "profiles": dict(profiles), "peak_gib": peak_gib, "artifacts": rows}
    return json.dumps(whole, indent=2) + "\n"


def overview(found: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    """All experiments: setting, published, ours, time and memory, what k counts, what was substituted.

    Args:
        found: title -> (record's folder name, its summary).
    """
    parts = ["# The papers, reproduced: overview"]
    for title, (folder, one) in found.items():
        parts += [f"## {title}", f"Data: {one['data']}. Report: [{folder}]({folder}/report.html)."]
        parts += ["\n".join(f"- **{name}**: {words}" for name, words in one["profiles"].items())]
        names = list(one["profiles"])
        rows = []
        for artifact in one["artifacts"]:
            about = (artifact["source"], f"{artifact['seconds']:.0f}")
            for line in artifact["compared"] or [{}]:
                values = (_cell(line.get(key, "-")) for key in ("what", "published", *names, "measured on", "difference"))
                rows.append((*about, *values))
        columns = ("source", "seconds", "what", "published", *names, "measured on", "difference")
        parts += [markdown_table(columns, rows), f"Peak memory: {one['peak_gib']:.2f} GiB."]
    return "\n\n".join(parts) + "\n"


def gallery(found: Mapping[str, tuple[str, Mapping[str, Any]]]) -> str:
    """index.html of all reproductions: every figure, with its caption, and a way to its report.

    Args:
        found: as of ``overview``.
    """
    body = (
        '<h1>The papers, reproduced</h1>\n<p>Ours beside the published numbers: <a href="overview.html">overview</a>.</p>\n'
    )
    for title, (folder, one) in found.items():
        place = quote(folder)
        link = f'<a href="{place}/report.html">report: every figure and table</a>'
        body += f'<h2>{escape(title)}</h2>\n<p>{escape(str(one["data"]))} · {link}</p>\n<div class="cards">\n'
        for artifact in one["artifacts"]:
            for name, caption in artifact.get("figures", {}).items():
                picture = f"{place}/figures/{quote(name)}.png"
                words = f"<strong>{escape(artifact['source'])}</strong> {escape(caption)}"
                image = f'<img src="{picture}" alt="{escape(caption)}" loading="lazy">'
                body += f'<figure><a href="{picture}">{image}</a><figcaption>{words}</figcaption></figure>\n'
        body += "</div>\n"
    return page("The papers, reproduced", body, "'self' file:")


def summaries(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each experiment's newest finished record below a folder: title -> (its folder's name, its summary).

    A record whose summary cannot be read is left out.
    """
    newest: dict[str, tuple[str, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/summary.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            one = json.loads(file_bytes(path))
            newest[str(one["title"])] = (path.parent.name, one)
    return newest


def _section(section: Section, data: str) -> list[str]:
    parts = [f"## {plain(section.source)}: {plain(section.title)}"]
    parts += figures_section(data, section.captions)
    for table in (section.compared, section.table):
        if not table.empty:
            parts.append(markdown_table(tuple(map(str, table.columns)), [tuple(map(_cell, row)) for row in table.values]))
    if section.notes:
        parts.append("\n".join(f"- {plain(note)}" for note in section.notes))
    return parts


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if value != value else f"{value:.4g}"
    return str(value)
