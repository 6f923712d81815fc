"""A certification's tables, metrics and report."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.certificates.box import Certificates
from agt.certificates.conditions import Condition
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import UNLABELLED, Records
from agt.settings import RelationConfig
from agt_cli.report.finished import Run
from agt_cli.report.markdown import document, markdown_table, plain
from agt_cli.report.quality import Judged, Quality, rate_words
from agt_cli.report.quality_md import quality_row, quality_section
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import setting_section
from agt_cli.report.sections_md import (
    ball,
    conditions_section,
    counts_section,
    figures_section,
    guarantee,
    headline,
    next_section,
)

HANDFUL = (0, 1, 5, 10, 20, 50, 100, 150, 200, 500, 1000)


LEAST_STABLE = 20


OWED = "abstains: owes an answer after the next update"


OWNER_ONLY = (
    "For the data owner only: stable distances, logits, boxes and which predictions are certified "
    "depend on the private "
    "data. Publishing them, or answering only certified queries, is not private."
)


@dataclass(frozen=True)
class Subject:
    """What a table or figure is about.

    Attributes:
        dataset: its name; a synthetic one says so.
        classes: the names of its classes.
        queries: which queries, in words.
        relation: the neighbour relation.
        certificates: of the queries.
        labelled: every query has a label, so accuracies are known.
        conditions: a-g, held or not.
        caveat: what else certificates of this run compare with; empty: nothing.
    """

    dataset: str
    classes: tuple[str, ...]
    queries: str
    relation: RelationConfig
    certificates: Certificates
    labelled: bool
    conditions: tuple[Condition, ...]
    caveat: str = ""

    @property
    def ball(self) -> str:
        """What one k counts, in words."""
        return ball(self.relation)

    @property
    def about(self) -> str:
        """What a figure is of, in one line."""
        return f"{self.dataset} · {self.queries}"

    @property
    def guarantee(self) -> str:
        """Whether a privacy guarantee can rest on these certificates."""
        return guarantee(self.conditions)


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
    table: pd.DataFrame, certificates: Certificates
) -> dict[str, float | int | str]:
    """Flat numbers: stable distances in brief, and each column of the table at a handful of k."""
    stable = certificates.stable_distance
    metrics: dict[str, float | int | str] = {
        "stable_distance_median": float(np.median(stable)),
        "stable_distance_mean": float(stable.mean()),
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
    """report.md of a certification run.

    Args:
        table: per k, as in tables/certified.csv.
        least: the least stable records.
        captions: figure name -> what it shows.
        trained: the run that was certified.
        quality: on the queries.
        sections: on the queries that wait, or do not fit.
    """
    first, *more = figures_section(subject.dataset, captions)
    away = os.path.relpath(trained.folder, record.folder)
    return document(
        f"# Certified predictions: {plain(subject.dataset)}",
        *headline(
            quality_row(quality.whole),
            record.metrics,
            int(trained.metrics["n_train"]),
            subject.relation,
        ),
        first,
        subject.guarantee,
        f"{len(subject.certificates.prediction):,} {plain(subject.queries)}, certified against "
        f"[{plain(trained.folder.name)}](<{away}/report.html>). {OWNER_ONLY}",
        record.standings,
        *counts_section(subject.relation),
        *results_section(table, subject.caveat),
        *quality_section(quality),
        *sections,
        *(["## Figures", *more] if more else []),
        *conditions_section(subject.conditions),
        *next_section(
            f"plan run={trained.folder}",
            f"predict run={trained.folder} mechanism=NAME total.eps=NUMBER",
        ),
        "## Least stable records",
        "For the data owner only, as everything here. Every query: `certificates.parquet`; `row`: "
        "its number in its file, "
        "from 0.",
        markdown_table(
            tuple(least.columns), [tuple(map(str, row)) for row in least.itertuples(index=False)]
        ),
        "## Setting of the training run",
        setting_section(trained.config),
    )


def results_section(table: pd.DataFrame, caveat: str) -> list[str]:
    """A certification's table, and how to read it.

    Args: caveat: what else certificates compare with; empty: nothing.
    """
    return [
        "## Results",
        results_table(table),
        "A query is certified at k if every dataset that k counts trains a model that gives it the "
        "same label. Its "
        "stable distance is the largest k up to which it is certified throughout. Worst-case "
        "accuracy: certified and "
        "right; best-case accuracy: all but certified and wrong. Every k: `tables/certified.csv`.",
        caveat and f"**With noise in training, {caveat}.**",
    ]


def results_table(table: pd.DataFrame) -> str:
    """A certification's table, at a round k now and then where it is long."""
    rows = [
        (str(int(row["k"])), *(rate_words(row[name]) for name in table.columns[1:]))
        for _, row in table.iterrows()
    ]
    few = rows if len(rows) <= 24 else [row for row in rows if int(row[0]) in _round_ks(table)]
    return markdown_table(tuple(name.replace("_", " ") for name in table.columns), few)


def _round_ks(table: pd.DataFrame) -> set[int]:
    ks = [int(k) for k in table["k"]]
    step = max(1, ks[-1] // 10)
    return {ks[0], 1, 2, 5, ks[-1], *range(0, ks[-1], step)}
