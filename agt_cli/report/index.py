"""index.html: every run below one folder, the newest first.

Written anew at the end of every command, from each run's own files: the index keeps nothing of its own, so that a folder
that was deleted, moved or damaged is just what it is when the next command looks. Of two processes at once the later
writer's page stays, whole; a run that it had not seen yet is there after the next command.
"""

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from agt.disk import write_atomic
from agt_cli.report.html import page, standing, table
from agt_cli.report.listed import Run, runs_below

NAME = "index.html"
SWEEP_PAGE = "sweep.html"
MICROSECONDS = re.compile(r"-\d{6}$")  # at the end of a run's name: of no use to a reader
LETTERS = 140  # of an error or a setting, at most
LOOKS = {"done": "proved", "running": "declared"}  # a state's colours; any other is bad news
NOTE = "For the data owner: accuracies and distances depend on the private data. Click a column's head to sort by it."


def refresh(outputs: Path) -> Path:
    """Write ``outputs/index.html``, and return its path.

    Raises:
        OSError: the page cannot be written.
    """

    def sweep(run: Run) -> str:
        return run.sweep.relative_to(outputs).as_posix() if run.sweep else ""

    runs = sorted(runs_below(outputs), key=lambda run: (sweep(run), run.started, run.folder.name), reverse=True)
    groups = {name: list(jobs) for name, jobs in groupby(runs, key=sweep)}
    body = f"<h1>Runs</h1>\n<p>{escape(NOTE)}</p>\n"
    if (outputs / "reproduce" / NAME).exists():
        body += f'<p><a href="reproduce/{NAME}">The papers, reproduced: every figure</a></p>\n'
    body += _listed(outputs, groups.pop("", []))
    for name, jobs in groups.items():
        page_there = (outputs / name / SWEEP_PAGE).exists()
        title = f'<a href="{quote(f"{name}/{SWEEP_PAGE}")}">{escape(name)}</a>' if page_there else escape(name)
        states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in jobs).items())
        body += f"<h2>{title}: {states}</h2>\n{_listed(outputs, jobs)}"
    write_atomic(outputs / NAME, page("Runs", body).encode())
    return outputs / NAME


def _listed(outputs: Path, runs: Sequence[Run]) -> str:
    """Runs as a table; the settings in which a sweep's jobs differ beside each."""
    common = set.intersection(*(set(run.overrides) for run in runs)) if runs else set()
    rows = []
    for run in runs:
        place, report = run.folder.relative_to(outputs), "report.html" if (run.folder / "report.html").exists() else ""
        link = f'<a href="{quote((place / report).as_posix())}">{escape(MICROSECONDS.sub("", place.name))}</a>'
        own = [word for word in run.overrides if word not in common]
        words = (run.dataset, run.model, " ".join(own), run.result)
        command, state = run.command or place.parts[0], standing(run.state, LOOKS.get(run.state, "void"))
        rows.append([link, escape(command), state, *(escape(_short(text)) for text in words)])
    columns = ("run", "command", "state", "dataset", "model", "settings", "result")
    used = [at for at, name in enumerate(columns) if name != "settings" or any(row[at] for row in rows)]
    return table([columns[at] for at in used], [[row[at] for at in used] for row in rows])


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}…"
