"""One renderer for every kind: from a tidy table and what its kind declares to figures, tables and the comparison."""

import time
from dataclasses import replace

import pandas as pd

from agt.errors import ConfigError, nearest
from agt_cli.papers.reproduction.definition import Published
from agt_cli.papers.reproduction.kinds import EVERY, Entry, Kind
from agt_cli.papers.reproduction.runs import Finished, without_proof
from agt_cli.report.record import RunRecord
from agt_cli.report.reproduction_md import Section

UNPUBLISHED = {"published": "-", "difference": "no such number in the papers' text"}


def check_published(kind: Kind, published: tuple[Published, ...], where: str) -> None:
    """Refuse a published number that nothing of ours would stand beside, before anything is trained.

    Args:
        kind: in all profiles and with the settings of a whole reproduction; a smaller one may leave out what it compares.
    """
    names = [what for key in kind.keys for what in kind.compared(key)]
    for entry in published:
        if entry.what not in names:
            raise ConfigError(f"{where}: published: no number is called '{entry.what}'{nearest(entry.what, set(names))}")


def render(entry: Entry, kind: Kind, record: RunRecord) -> Section:
    """Make one artifact: its rows, and everything that is shown of them.

    Raises:
        ConfigError: the settings ask for what cannot be, or for one row twice.
    """
    started, artifact = time.perf_counter(), entry.artifact
    rows = kind.rows(entry)
    table, compared, captions = rows, rows, {}
    data = " / ".join(rows["data"].unique()) if "data" in rows else entry.experiment.data
    if not rows.empty:
        if rows.duplicated(list(kind.index)).any():
            raise ConfigError(f"{artifact.id}: the settings name two rows alike in {', '.join(kind.index)}")
        for figure in kind.figures:
            name = artifact.id + figure.drawing.name
            drawing = replace(figure.drawing, name=name, title=data, finding=figure.finding(rows))
            if figure.level:
                drawing = replace(drawing, level=float(rows[figure.level].iloc[-1]))
            figure.draw(record, drawing, figure.points(rows))
            captions[drawing.name] = figure.caption
        table = kind.table(rows).assign(**({} if "data" in rows else {"data": data}))
        compared = _compared(entry, kind, (kind.measured or kind.table)(rows), data)
        record.table(artifact.id, table)
        for name, more in kind.extra.items():
            record.table(artifact.id + name, more(rows))
        if not compared.empty:
            record.table(f"{artifact.id}_published", compared)
    notes = (*artifact.notes, *kind.notes(rows), *without_proof(entry.used.values()))
    needed = sum(run.seconds for run in entry.used.values() if isinstance(run, Finished))
    seconds = time.perf_counter() - started
    return Section(artifact.id, artifact.source, artifact.title, table, compared, captions, notes, seconds, needed)


def _compared(entry: Entry, kind: Kind, measured: pd.DataFrame, data: str) -> pd.DataFrame:
    """One row for each published number: theirs, each profile's, what it was measured on, and the difference explained;
    then one for each number of ours that the papers' text does not give."""
    names = list(entry.profiles)
    values = [
        (what, name, row[column])
        for row in measured.to_dict("records")
        for what, column in kind.compared(row).items()
        for name in (names if row["profile"] == EVERY else [row["profile"]])
    ]
    long = pd.DataFrame(values, columns=["what", "profile", "value"])
    ours = long.drop_duplicates(["what", "profile"], keep="last").pivot(index="what", columns="profile", values="value")
    theirs = pd.DataFrame(
        [(one.what, one.value, one.note or "unexplained") for one in entry.artifact.published],
        columns=["what", "published", "difference"],
        dtype=object,
    )
    both = theirs.merge(ours.reindex(columns=names).reset_index(), on="what", how="outer").set_index("what")
    order = dict.fromkeys([*theirs["what"], *long["what"]])
    both = both.loc[list(order)].fillna(UNPUBLISHED).assign(**{"measured on": data}).reset_index()
    return both[["what", "published", *names, "measured on", "difference"]]
