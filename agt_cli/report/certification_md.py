"""A certification's tables, metrics and report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import UNLABELLED, Records
from agt.settings import RelationConfig
from agt_cli.report.finished import Run
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.report.quality import Judged, Quality, rate_words
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import (
    certified_section,
    conditions_section,
    counted_edits,
    figures_section,
    guarantee,
    headline,
    next_section,
    unmet_requirements,
)

HANDFUL = (0, 1, 5, 10, 20, 50, 100, 150, 200, 500, 1000)
LEAST_STABLE = 20
OWED = (
    "this query is not answered until agt unlearn carries out the pending erasure requests, which "
    "may change the answer"
)
OWNER_ONLY = (
    "For the data owner only. Stable distances, logits, bounds, and the list of certified "
    "answers depend on private records: do not publish them. Answering only certified "
    "queries is not private either."
)
MOST_ROWS = 24  # of the table by k on a page


@dataclass(frozen=True, kw_only=True)
class AnySubject:
    """What a table, figure or page about certified answers is of, labels or numbers.

    Attributes:
        dataset: its name; a synthetic one says so.
        queries: which queries, in words.
        relation: the neighbour relation.
        conditions: a-g, held or not.
    """

    dataset: str
    queries: str
    relation: RelationConfig
    conditions: tuple[Condition, ...]

    @property
    def counted_edits(self) -> str:
        """What k is the number of, in words."""
        return counted_edits(self.relation)

    @property
    def about(self) -> str:
        """What a figure is of, in one line."""
        return f"{self.dataset} · {self.queries}"

    @property
    def table_title(self) -> str:
        """The title of a table by k on the console."""
        return (
            f"{self.dataset}, {self.queries}; k is the number of {self.counted_edits} "
            f"(relation={self.relation.name})"
        )

    @property
    def guarantee(self) -> str:
        """Whether a privacy guarantee can rest on these certificates."""
        return guarantee(self.conditions)


@dataclass(frozen=True, kw_only=True)
class Subject(AnySubject):
    """What a table, figure or page about certified labels is of.

    Attributes:
        classes: the names of the classes.
        certificates: of the queries.
        labelled: every query has a label, so accuracies are known.
        caveat: what else certificates of this run compare with; empty: nothing.
    """

    classes: tuple[str, ...]
    certificates: Certificates
    labelled: bool
    caveat: str = ""


def write_tables(
    record: RunRecord,
    dataset: Dataset,
    queries: Records,
    certificates: Certificates,
    table: pd.DataFrame,
    judged: Judged,
    answered: np.ndarray | None = None,
) -> pd.DataFrame:
    """Write every table; returns the least stable records.

    Args:
        answered: [n] bool, the queries that are answered while requests to erase wait; None: none
            waits, and all are.
    """
    names = np.array([*dataset.classes, ""], dtype=object)  # UNLABELLED (-1) is the last: no label
    stable, score = certificates.stable_distance, judged.score
    numbers = np.arange(len(queries)) if queries.rows is None else queries.rows
    prediction = (
        certificates.prediction
        if answered is None
        else np.where(answered, certificates.prediction, UNLABELLED)
    )
    score = score if score is None or answered is None else np.where(answered, score, np.nan)

    def rows(places: slice | np.ndarray) -> pd.DataFrame:
        owed = (
            {}
            if answered is None
            else {"answer": np.where(answered[places], "given", OWED).astype(object)}
        )
        return pd.DataFrame(
            {
                "row": numbers[places],
                "record_id": queries.ids[places].astype(object),
                "label": names[queries.labels[places]],
                "prediction": names[prediction[places]],
                "stable_distance": stable[places],
                "score": None if score is None else score[places],
                **owed,
            }
        )

    record.parquet(
        "certificates", (rows(slice(start, start + ROWS)) for start in range(0, len(queries), ROWS))
    )
    record.table("certified", table)
    least = rows(np.argsort(stable, kind="stable")[:LEAST_STABLE])
    record.table("least_stable", least)
    return least


def certified_metrics(
    table: pd.DataFrame, certificates: Certificates, grid_end: int | None
) -> dict[str, float | int | str]:
    """Flat numbers: stable distances in brief, and each column of the table at a handful of k.

    Args:
        table: as in tables/certified.csv.
        certificates: of the queries.
        grid_end: the last k that was trained, at which longer distances are cut off; None: every k
            is known.
    """
    stable = certificates.stable_distance
    metrics: dict[str, float | int | str] = {
        "stable_distance_median": float(np.median(stable)),
        "stable_distance_median_is_lower_bound": int(np.median(stable) == grid_end),
        "stable_distance_mean": float(stable.mean()),
        "stable_distance_mean_is_lower_bound": int(stable.max() == grid_end),
        "relation": certificates.relation,
        "k_max": certificates.ks[-1],
    }
    return metrics | table_metrics(table)


def table_metrics(table: pd.DataFrame) -> dict[str, float]:
    """Each column of a certification's table at a handful of k."""
    metrics = (
        {"accuracy": float(table["nominal_accuracy"].iloc[0])}
        if "nominal_accuracy" in table
        else {}
    )
    for _, row in handful(table).iterrows():
        for name in table.columns.intersection(
            ["certified_fraction", "worst_accuracy", "best_accuracy"]
        ):
            metrics[f"{name}_k{int(row['k'])}"] = float(row[name])
    return metrics


def handful(table: pd.DataFrame) -> pd.DataFrame:
    """The rows worth printing: round values of k, the first and the last."""
    ends = [table["k"].min(), table["k"].max()]
    return table[table["k"].isin([*HANDFUL, *ends])]


def certify_report(
    subject: Subject,
    table: pd.DataFrame,
    least: pd.DataFrame,
    captions: Mapping[str, str],
    trained: Run,
    quality: Quality,
    sections: Sequence[str],
    record: RunRecord,
) -> str:
    """Return report.md of a certification run.

    Args:
        subject: what was certified.
        table: per k, as in tables/certified.csv.
        least: the least stable answers.
        captions: figure name -> what it shows.
        trained: the run that was certified.
        quality: on the queries.
        sections: on the queries that wait, or do not fit.
    """
    first, *more = figures_section(subject.dataset, captions)
    trained_folder = os.path.relpath(trained.folder, record.folder)
    count = len(subject.certificates.prediction)
    dataset = plain(subject.dataset)
    queries = plain(subject.queries)
    shown = len(least)
    run_name = plain(trained.folder.name)
    return document(
        f"# Certificates: {dataset}, {count:,} {queries}",
        *headline(quality, int(trained.metrics["n_train"]), subject.relation, subject.conditions),
        Markdown(f"*{OWNER_ONLY}*"),
        first,
        *certified_section(subject.relation),
        *results_section(table, subject.caveat),
        *quality.section(),
        *sections,
        *(["## Figures", *more] if more else []),
        *conditions_section(subject.conditions),
        "## Least stable answers",
        f"These are the {shown:,} answers with the smallest stable distances. The column row is "
        "the position of the query in its file, counted from 0. The file `certificates.parquet` "
        "has all answers.",
        _least_stable_table(least),
        *next_section(
            *next_commands(
                trained.folder,
                subject.conditions,
                f"predict run={trained.folder} mechanism=NAME total.eps=NUMBER",
            )
        ),
        f"Trained run: [{run_name}](<{trained_folder}/report.html>). Its settings: "
        f"`{trained_folder}/config.yaml`.",
    )


def next_commands(folder: Path, conditions: Sequence[Condition], release: str) -> tuple[str, ...]:
    """Return the commands that go on from a training run: a release only where one is allowed.

    Args:
        folder: the training run's folder.
        conditions: of the run.
        release: the command that releases answers.
    """
    plan = f"plan run={folder}"
    unmet = unmet_requirements(conditions)
    if unmet:
        return (
            f"{plan} # shows how accurate private answers would be; nothing can be released, "
            f"because {unmet}",
        )
    return (plan, release)


def _least_stable_table(least: pd.DataFrame) -> str:
    """Return the least stable answers as a table, scores with three digits."""
    columns = tuple(name.replace("_", " ") for name in least.columns)
    rows = []
    for row in least.itertuples(index=False):
        rows.append([f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row])
    return markdown_table(columns, rows)


COLUMN_TITLES = {
    "k": "k",
    "certified_fraction": "certified",
    "worst_accuracy": "accuracy: lowest possible",
    "nominal_accuracy": "as trained",
    "best_accuracy": "highest possible",
}
"""The columns of tables/certified.csv that a reader sees, in their order, and their titles."""


def results_section(table: pd.DataFrame, caveat: str) -> list[str]:
    """Return a certification's table by k, and how to read it.

    Args:
        table: as in tables/certified.csv.
        caveat: what else certificates of this run compare with; empty: nothing.
    """
    legend = "All k: `tables/certified.csv`."
    if "worst_accuracy" in table:
        legend = (
            "Lowest possible accuracy: only answers that are certified and correct count as "
            "correct. Highest possible accuracy: every answer that is not certified to be wrong "
            "counts as correct. "
            f"{legend}"
        )
    return [
        results_table(table),
        legend,
        caveat and f"**Noise was added in training: {caveat}.**",
    ]


def certified_rows(table: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles of the columns that a reader sees, and a row of cells for each k.

    Args:
        table: as in tables/certified.csv, or some of its rows.
    """
    names = [name for name in COLUMN_TITLES if name in table.columns]
    rows = []
    for _, row in table.iterrows():
        shares = [rate_words(row[name]) for name in names if name != "k"]
        rows.append((str(int(row["k"])), *shares))
    return tuple(COLUMN_TITLES[name] for name in names), rows


def results_table(table: pd.DataFrame) -> str:
    """Return a certification's table; where it is long, at round values of k."""
    titles, rows = certified_rows(table)
    if len(rows) > MOST_ROWS:
        round_ks = _round_ks(table)
        rows = [row for row in rows if int(row[0]) in round_ks]
    return markdown_table(titles, rows)


def _round_ks(table: pd.DataFrame) -> set[int]:
    ks = [int(k) for k in table["k"]]
    step = max(1, ks[-1] // 10)
    return {ks[0], 1, 2, 5, ks[-1], *range(0, ks[-1], step)}
