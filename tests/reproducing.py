"""Artifacts made for tests: a kind with settings, rendered, and what it compares by name."""

from pathlib import Path
from typing import Any

import pandas as pd
from agt_cli._experiments.catalogue import make_kind
from agt_cli._experiments.entry import Entry
from agt_cli._experiments.experiment import Artifact, Experiment, Profile, ProfileName
from agt_cli._experiments.rendering import Section, render
from agt_cli._experiments.runs import Runs

from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord

BOTH_PROFILES: dict[ProfileName, Profile] = {
    "paper": Profile(privacy="remove", accounting="paper"),
    "ours": Profile(privacy="remove"),
}
"""Published and own rules, for records that are removed."""
REMOVAL_HEAD = (
    "dataset=digits",
    "model=linear",
    "training=recipe",
    "training.weight_decay=0.01",
    "certificate=removal",
    "certificate.features.bias=0",
    "certificate.seed=0",
)
"""Overrides of a head that records can be removed from, on small digits."""


def an_entry(
    kind: str, folder: Path, base: tuple[str, ...], profiles: dict[ProfileName, Profile]
) -> Entry:
    """An artifact called "figure" on synthetic blobs; runs are kept under ``folder``."""
    artifact = Artifact("figure", "a figure", "what it shows", kind)
    experiment = Experiment("title", "synthetic blobs", (artifact,), profiles, base)
    return Entry(
        experiment,
        artifact,
        profiles,
        Runs(folder / "runs", ("compute.threads=1",), Console(quiet=True)),
    )


def rows_of(entry: Entry, **settings: Any) -> pd.DataFrame:
    """The rows, which are tidy: each is told apart by its key, of which nothing is missing."""
    kind = make_kind(entry.artifact.kind, entry.profiles, settings, "here")
    rows = kind.rows(entry)
    if not rows.empty:
        assert not rows.duplicated(list(kind.index)).any()
        assert not rows[list(kind.index)].isna().any(axis=None)
        assert all(isinstance(column, str) for column in rows)
        shown = kind.shown(rows)
        compared = (shown.table if shown.measured is None else shown.measured).to_dict("records")
        names = {what for key in kind.keys for what in kind.compared(key)}
        # known before anything is trained
        assert {what for row in compared for what in kind.compared(row)} <= names
    return rows


def made(entry: Entry, record: Path, **settings: Any) -> Section:
    """Rendered, with its files in the folder ``record``."""
    rows = rows_of(entry, **settings)
    kind = make_kind(entry.artifact.kind, entry.profiles, settings, "here")
    # the rows are measured once: runs that are not kept take their time again
    object.__setattr__(kind, "rows", lambda entry: rows)
    with RunRecord(record, "reproduce", {}) as opened:
        return render(entry, kind, opened)


def values(section: Section) -> dict[str, dict[str, float]]:
    """What is compared -> profile -> number; NaN where a profile has none."""
    numbers = section.compared.set_index("what").drop(
        columns=["published", "measured on", "difference"]
    )
    return {
        str(what): {str(k): float(v) for k, v in row.items()} for what, row in numbers.iterrows()
    }
