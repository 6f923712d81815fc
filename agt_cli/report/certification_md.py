"""A certification's tables, metrics and report."""

import os
from collections.abc import Callable, Mapping, Sequence
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
from agt.store.json_text import Metrics
from agt_cli.report.finished import Run
from agt_cli.report.markdown import Markdown, document, escape_markdown, markdown_table
from agt_cli.report.quality import ModelQuality, Quality, format_rate
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import (
    certified_section,
    conditions_section,
    describe_edits,
    describe_unmet_conditions,
    figures_section,
    next_section,
    privacy_sentence,
    report_headline,
)

ROUND_KS = (0, 1, 5, 10, 20, 50, 100, 150, 200, 500, 1000)
LEAST_STABLE_ROWS = 20
PENDING_ANSWER = (
    "this query is not answered until agt unlearn carries out the pending erasure requests, which "
    "may change the answer"
)
OWNER_ONLY = (
    "For the data owner only. Stable distances, logits, bounds, and the list of certified "
    "answers depend on private records: do not publish them. Answering only certified "
    "queries is not private either."
)
MAX_TABLE_ROWS = 24  # of the table by k on a page and at a console


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Certified answers, labels or numbers: what tables, figures and pages say about all of them.

    Attributes:
        dataset: the name of the dataset; that of a synthetic one says so.
        queries_description: a phrase that says which queries were answered, such as "test records".
        relation: the neighbour relation.
        conditions: the seven conditions of a privacy guarantee (docs/method.md).
    """

    dataset: str
    queries_description: str
    relation: RelationConfig
    conditions: tuple[Condition, ...]

    @property
    def edits(self) -> str:
        """The edits that k counts, such as "records added or removed"."""
        return describe_edits(self.relation)

    @property
    def figure_subtitle(self) -> str:
        """The line below a figure's headline: the dataset and the queries."""
        return f"{self.dataset} · {self.queries_description}"

    @property
    def table_title(self) -> str:
        """The title of a table by k on the console."""
        return (
            f"{self.dataset}, {self.queries_description}; k is the number of {self.edits} "
            f"(relation={self.relation.name})"
        )

    @property
    def privacy_sentence(self) -> str:
        """A sentence for a terminal: whether these certificates can support a privacy claim."""
        return privacy_sentence(self.conditions, brief=True)

    def first_blocks(
        self, title: str, count: int, quality: ModelQuality, training_run: Run, remark: str
    ) -> list[str]:
        """Return the first blocks of a page in Markdown, for ``document``.

        Args:
            title: a phrase that says what was certified.
            count: the number of answers.
            quality: the scores of the model on the queries.
            training_run: the run that was certified.
            remark: says for whom the page is.
        """
        dataset = escape_markdown(self.dataset)
        queries = escape_markdown(self.queries_description)
        trained = int(training_run.metrics["n_train"])
        return [
            f"# {title}: {dataset}, {count:,} {queries}",
            *report_headline(quality, trained, self.relation, self.conditions),
            Markdown(f"*{remark}*"),
        ]


@dataclass(frozen=True, kw_only=True)
class LabelCertification(Certification):
    """Certified answers that are classes.

    Attributes:
        classes: the names of the classes.
        certificates: the certificates of the queries.
        labelled: True: every query has a true label, so accuracies are known.
        caveat: a clause on the noise of training, which certificates take as fixed; empty: none.
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
    quality: Quality,
    answered: np.ndarray | None = None,
) -> pd.DataFrame:
    """Write the tables of a certification into its record.

    Args:
        record: the command's record.
        dataset: the dataset of the training run.
        queries: the n queries.
        certificates: the certificates of the queries.
        table: a row for each k, for certified.csv.
        quality: the quality of the answers, which has their scores.
        answered: [n] bool, the queries that are answered although requests for erasure are pending;
            None: no requests are pending. Other queries have no prediction or score in the tables.

    Returns:
        The rows of the least stable answers.
    """
    # The last name is that of UNLABELLED, -1.
    names = np.array([*dataset.classes, ""], dtype=object)
    stable = certificates.stable_distance
    numbers = np.arange(len(queries)) if queries.rows is None else queries.rows
    prediction = certificates.prediction
    score = quality.score
    if answered is not None:
        prediction = np.where(answered, prediction, UNLABELLED)
        score = None if score is None else np.where(answered, score, np.nan)

    def rows(selected: slice | np.ndarray) -> pd.DataFrame:
        """Return the rows of some queries, for certificates.parquet."""
        columns = {
            "row": numbers[selected],
            "record_id": queries.ids[selected].astype(object),
            "label": names[queries.labels[selected]],
            "prediction": names[prediction[selected]],
            "stable_distance": stable[selected],
            "score": None if score is None else score[selected],
        }
        if answered is not None:
            columns["answer"] = np.where(answered[selected], "given", PENDING_ANSWER).astype(object)
        return pd.DataFrame(columns)

    record.parquet(
        "certificates", (rows(slice(start, start + ROWS)) for start in range(0, len(queries), ROWS))
    )
    record.table("certified", table)
    least_stable = rows(np.argsort(stable, kind="stable")[:LEAST_STABLE_ROWS])
    record.table("least_stable", least_stable)
    return least_stable


def certified_metrics(
    table: pd.DataFrame, certificates: Certificates, grid_end: int | None
) -> Metrics:
    """Return the metrics of a certification: stable distances, and the table at some values of k.

    Args:
        table: the rows of tables/certified.csv, one for each k.
        certificates: the certificates of the queries.
        grid_end: the last k that was trained, at which longer distances are cut off; None: every k
            is known.
    """
    stable = certificates.stable_distance
    metrics: Metrics = {
        "stable_distance_median": float(np.median(stable)),
        "stable_distance_median_is_lower_bound": int(np.median(stable) == grid_end),
        "stable_distance_mean": float(stable.mean()),
        "stable_distance_mean_is_lower_bound": int(stable.max() == grid_end),
        "relation": certificates.relation,
        "k_max": certificates.ks[-1],
    }
    return metrics | table_metrics(table)


def table_metrics(table: pd.DataFrame) -> dict[str, float]:
    """Return the accuracy, and the shares of a certification's table at some values of k.

    Args:
        table: the rows of tables/certified.csv, one for each k.
    """
    metrics = {}
    if "nominal_accuracy" in table:
        metrics["accuracy"] = float(table["nominal_accuracy"].iloc[0])
    shares = ["certified_fraction", "worst_accuracy", "best_accuracy"]
    for _, row in rows_at_round_ks(table).iterrows():
        k = int(row["k"])
        for name in table.columns.intersection(shares):
            metrics[f"{name}_k{k}"] = float(row[name])
    return metrics


def rows_at_round_ks(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table for round values of k, and for the first and the last k."""
    ends = [table["k"].min(), table["k"].max()]
    return table[table["k"].isin([*ROUND_KS, *ends])]


def certify_report(
    certification: LabelCertification,
    table: pd.DataFrame,
    least_stable: pd.DataFrame,
    captions: Mapping[str, str],
    training_run: Run,
    quality: Quality,
    sections: Sequence[str],
    record: RunRecord,
    release: str | None,
) -> str:
    """Return report.md of a certification run.

    Args:
        certification: the certified answers.
        table: the rows of tables/certified.csv, one for each k.
        least_stable: the least stable answers.
        captions: figure name -> what it shows.
        training_run: the run that was certified.
        quality: the scores of the answers to the queries.
        sections: further sections, on queries that are not answered yet or do not fit the model.
        record: the record of the command.
        release: the command that releases answers; None: the ledger accepts no release.
    """
    first, *more = figures_section(certification.dataset, captions)
    trained_folder = os.path.relpath(training_run.folder, record.folder)
    count = len(certification.certificates.prediction)
    shown = len(least_stable)
    run_name = escape_markdown(training_run.folder.name)
    return document(
        *certification.first_blocks("Certificates", count, quality, training_run, OWNER_ONLY),
        first,
        *certified_section(certification.relation),
        *results_section(table, certification.caveat),
        *quality.section(),
        *sections,
        *(["## Figures", *more] if more else []),
        *conditions_section(certification.conditions),
        "## Least stable answers",
        f"These are the {shown:,} answers with the smallest stable distances. The column row is "
        "the position of the query in its file, counted from 0. The file `certificates.parquet` "
        "has all answers.",
        _least_stable_table(least_stable),
        *next_section(
            *next_commands(
                training_run.folder,
                certification.conditions,
                release,
            )
        ),
        f"Trained run: [{run_name}](<{trained_folder}/report.html>). Its settings: "
        f"`{trained_folder}/config.yaml`.",
    )


def next_commands(
    folder: Path, conditions: Sequence[Condition], release: str | None
) -> tuple[str, ...]:
    """Return the commands to run after a training run; a release only if it is allowed.

    Args:
        folder: the training run's folder.
        conditions: the conditions of the run.
        release: the command that releases answers; None: the ledger accepts no release.
    """
    plan = f"plan run={folder}"
    unmet = describe_unmet_conditions(conditions)
    if unmet:
        return (
            f"{plan} # shows how accurate private answers would be; nothing can be released, "
            f"because {unmet}",
        )
    return (plan,) if release is None else (plan, release)


def _least_stable_table(least_stable: pd.DataFrame) -> str:
    """Return the least stable answers as a table, scores with three digits."""
    columns = tuple(name.replace("_", " ") for name in least_stable.columns)
    rows = []
    for row in least_stable.itertuples(index=False):
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
        table: the rows of tables/certified.csv, one for each k.
        caveat: a phrase that says what else certificates of this run compare with; empty: nothing
            else.
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


def rows_by_k(
    table: pd.DataFrame, column_titles: Mapping[str, str], format_value: Callable[[float], str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles of the columns that a reader sees, and a row of cells for each k.

    Args:
        table: has a column ``k``.
        column_titles: column -> its title, in their order. Columns that the table lacks are left
            out.
        format_value: formats the cells of the columns other than ``k``.
    """
    names = [name for name in column_titles if name in table.columns]
    rows = []
    for _, row in table.iterrows():
        cells = [format_value(float(row[name])) for name in names if name != "k"]
        rows.append((str(int(row["k"])), *cells))
    return tuple(column_titles[name] for name in names), rows


def certified_rows(table: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and a row of cells for each k of tables/certified.csv (``rows_by_k``)."""
    return rows_by_k(table, COLUMN_TITLES, format_rate)


def results_table(table: pd.DataFrame) -> str:
    """Return a certification's table; where it is long, at round values of k."""
    titles, rows = certified_rows(table)
    if len(rows) > MAX_TABLE_ROWS:
        round_ks = _round_ks(table)
        rows = [row for row in rows if int(row[0]) in round_ks]
    return markdown_table(titles, rows)


def _round_ks(table: pd.DataFrame) -> set[int]:
    """Return about 15 values of k that a long table shows: small ones, round ones, both ends."""
    ks = [int(k) for k in table["k"]]
    step = max(1, ks[-1] // 10)
    return {ks[0], 1, 2, 5, ks[-1], *range(0, ks[-1], step)}
