"""From a tidy table and what its kind declares to figures, tables and the comparison: one renderer
for every kind.
"""

import time
from dataclasses import dataclass, replace

import pandas as pd

from agt.errors import ConfigError, nearest
from agt_cli.report.record import RunRecord

from .entry import Entry
from .experiment import Published
from .kinds import EVERY, Kind, Shown
from .runs import Finished, unproved_relations


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


UNPUBLISHED = {"published": "-", "difference": "no such number in the papers' text"}


def check_published(kind: Kind, published: tuple[Published, ...], where: str) -> None:
    """Refuse a published number that nothing of ours would stand beside, before anything is
    trained.

    Args:
        kind: in all profiles and with the settings of a whole reproduction; a smaller one may leave
            out what it compares.
    """
    names = [what for key in kind.keys for what in kind.compared(key)]
    for entry in published:
        if entry.what not in names:
            raise ConfigError(
                f"{where}: published: there is no number "
                f"'{entry.what}'{nearest(entry.what, set(names))}"
            )


def render(entry: Entry, kind: Kind, record: RunRecord) -> Section:
    """Make one artifact: its rows, and everything that is shown of them.

    Raises:
        ConfigError: the settings ask for what cannot be, or for one row twice.
    """
    started = time.perf_counter()
    artifact = entry.artifact
    rows = kind.rows(entry)
    data = " / ".join(rows["data"].unique()) if "data" in rows else entry.experiment.data
    compared = rows
    captions = {}
    if rows.empty:
        note = "Left out of these profiles, because profile=ours has the same."
        shown = Shown(rows, notes=(note,))
    elif rows.duplicated(list(kind.index)).any():
        raise ConfigError(
            f"{artifact.id}: the settings give two rows the same {', '.join(kind.index)}"
        )
    else:
        shown = kind.shown(rows)
        for figure in shown.figures:
            figure.draw(record, figure.points, artifact.id + figure.name)
            captions[artifact.id + figure.name] = f"{figure.caption} Data: {data}."
        if "data" not in rows:
            shown = replace(shown, table=shown.table.assign(data=data))
        measured = shown.table if shown.measured is None else shown.measured
        compared = _compared(entry, kind, measured, data)
        tables = {"": shown.table, **shown.extra}
        if not compared.empty:
            tables["_published"] = compared
        for name, table in tables.items():
            record.table(artifact.id + name, table)
    notes = (*artifact.notes, *shown.notes, *unproved_relations(entry.used.values()))
    needed = sum(run.seconds for run in entry.used.values() if isinstance(run, Finished))
    seconds = time.perf_counter() - started
    return Section(
        artifact.id,
        artifact.source,
        artifact.title,
        shown.table,
        compared,
        captions,
        notes,
        seconds,
        needed,
    )


def _compared(entry: Entry, kind: Kind, measured: pd.DataFrame, data: str) -> pd.DataFrame:
    """One row for each published number: theirs, each profile's, what it was measured on, and the
    difference explained; then one for each number of ours that the papers' text does not give.
    """
    names = list(entry.profiles)
    values = []
    for row in measured.to_dict("records"):
        for what, column in kind.compared(row).items():
            profiles = names if row["profile"] == EVERY else [row["profile"]]
            values += [(what, name, row[column]) for name in profiles]
    long = pd.DataFrame(values, columns=["what", "profile", "value"])
    last = long.drop_duplicates(["what", "profile"], keep="last")
    ours = last.pivot(index="what", columns="profile", values="value").reindex(columns=names)
    published = entry.artifact.published
    numbers = [(one.what, one.value, one.note or "unexplained") for one in published]
    theirs = pd.DataFrame(numbers, columns=["what", "published", "difference"], dtype=object)
    both = theirs.merge(ours.reset_index(), on="what", how="outer").set_index("what")
    order = dict.fromkeys([*theirs["what"], *long["what"]])
    both = both.loc[list(order)].fillna(UNPUBLISHED).reset_index()
    both["measured on"] = data
    return both[["what", "published", *names, "measured on", "difference"]]
