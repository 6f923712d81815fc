"""A certification of numbers: its tables, its report and its console lines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.data.arrays import ROWS
from agt.data.records import Records
from agt.models.number_votes import NumberCertificates, ToleranceDistances
from agt.store.json_text import Metrics
from agt.store.reading import MAX_TEXT_BYTES
from agt_cli.report.certification_md import Certification, next_commands, rows_by_k
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.markdown import document, markdown_table
from agt_cli.report.number_quality import NumberQuality, format_number
from agt_cli.report.proposed_release import (
    QUERIES_MEANING,
)
from agt_cli.report.record import RunRecord, csv_bytes
from agt_cli.report.sections_md import (
    certified_section,
    conditions_section,
    describe_edits_up_to,
    describe_unmet_conditions,
    figures_section,
    next_section,
)

TABLE_KS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # at which tables have intervals
MAX_LISTED_QUERIES = 10_000
"""With more queries, certificates.parquet alone has the interval of each."""
OWNER_ONLY = (
    "For the data owner only. Intervals, errors, and answers without noise depend on private "
    "records: do not publish them."
)


@dataclass(frozen=True, kw_only=True)
class NumberCertification(Certification):
    """Certified answers that are numbers.

    Attributes:
        certificates: the certificates of the queries.
        distances: up to which k each answer stays within the declared tolerance; None: no
            tolerance is declared.
    """

    certificates: NumberCertificates
    distances: ToleranceDistances | None = None

    @property
    def ks(self) -> tuple[int, ...]:
        """The k at which tables have intervals, up to the last one that bounds anything."""
        ks = tuple(k for k in TABLE_KS if k < self.certificates.max_k)
        return ks or (1,)


def number_rows(
    certification: NumberCertification,
    queries: Records,
    labels: np.ndarray | None,
) -> Iterator[pd.DataFrame]:
    """Yield the rows of certificates.parquet, block by block.

    Args:
        certification: the certified answers.
        queries: the queries.
        labels: [n] their true labels; None: not known.
    """
    numbers = np.arange(len(queries)) if queries.rows is None else queries.rows
    bounds = {k: certification.certificates.bounds(k) for k in certification.ks}
    for start in range(0, len(queries), ROWS):
        rows = slice(start, start + ROWS)
        columns: dict[str, object] = {
            "row": numbers[rows],
            "record_id": queries.ids[rows].astype(object),
            "label": np.full(len(numbers[rows]), np.nan) if labels is None else labels[rows],
            "prediction": certification.certificates.prediction[rows],
        }
        for k, (lower, upper) in bounds.items():
            columns[f"lower_k{k}"] = lower[rows]
            columns[f"upper_k{k}"] = upper[rows]
        if certification.distances is not None:
            columns["k_within_tolerance"] = certification.distances.max_k[rows]
        yield pd.DataFrame(columns)


def write_intervals_by_query(record: RunRecord, rows: Sequence[pd.DataFrame]) -> str:
    """Write the rows of certificates.parquet, and as a table as well if they are few.

    Args:
        record: the command's record.
        rows: ``number_rows``.

    Returns:
        The file that readers are sent to, from the run's folder.
    """
    record.parquet("certificates", rows)
    if sum(map(len, rows)) > MAX_LISTED_QUERIES:
        return "certificates.parquet"
    content = csv_bytes(pd.concat(rows, ignore_index=True))
    if len(content) > MAX_TEXT_BYTES:  # agt verify would not read it
        return "certificates.parquet"
    record.write("tables/intervals_by_query.csv", content)
    return "tables/intervals_by_query.csv"


def interval_metrics(certification: NumberCertification, table: pd.DataFrame) -> Metrics:
    """Return the metrics of certified numbers, by name.

    Args:
        certification: the certified answers.
        table: ``interval_table``.
    """
    metrics: Metrics = {
        "relation": certification.certificates.relation,
        "k_max": certification.certificates.max_k,
    }
    for k, width in zip(table["k"], table["width_median"], strict=True):
        metrics[f"width_median_k{k}"] = float(width)
    distances = certification.distances
    if distances is not None:
        metrics["tolerance"] = distances.tolerance
        metrics["k_within_median"] = float(np.median(distances.max_k))
    return metrics


def interval_table(certification: NumberCertification) -> pd.DataFrame:
    """Return tables/intervals.csv: the widths of the intervals, a row for each k.

    If a tolerance is declared, the table also has the share of answers that stay within it.
    """
    distances = certification.distances
    rows = []
    for k in (0, *certification.ks):
        width = certification.certificates.width(k)
        row = {
            "k": k,
            "width_median": float(np.median(width)),
            "width_mean": float(width.mean()),
            "width_largest": float(width.max()),
        }
        if distances is not None:
            row["share_within_tolerance"] = float((distances.max_k >= k).mean())
        rows.append(row)
    return pd.DataFrame(rows)


INTERVAL_TITLES = {
    "k": "k",
    "width_median": "median width",
    "width_mean": "mean width",
    "width_largest": "largest width",
    "share_within_tolerance": "within the tolerance",
}
"""The columns of tables/intervals.csv, in their order, and their titles."""


def interval_rows(table: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and a row of cells for each k of ``interval_table`` (``rows_by_k``)."""
    return rows_by_k(table, INTERVAL_TITLES, format_number)


def number_report(
    certification: NumberCertification,
    table: pd.DataFrame,
    captions: Mapping[str, str],
    training_run: Run,
    quality: NumberQuality,
    sections: Sequence[str],
    intervals_file: str,
    release: str | None,
) -> str:
    """Return report.md of a certification of numbers.

    Args:
        certification: the certified answers.
        table: ``interval_table``.
        captions: figure name -> what it shows.
        training_run: the run that was certified.
        quality: the scores of the answers to the queries.
        sections: the sections of the page on queries that do not fit the declarations.
        intervals_file: the file with the interval of each query.
        release: the command that releases answers; None: the ledger accepts no release.
    """
    count = len(certification.certificates.prediction)
    conditions = certification.conditions
    titles, rows = interval_rows(table)
    distances = certification.distances
    tolerance = ""
    if distances is not None:
        median = float(np.median(distances.max_k))
        tolerance = (
            f"Half of the answers move by at most {format_number(distances.tolerance)} up to "
            f"k = {median:g}. This k may differ by more than one between neighbouring datasets, so "
            "it must not be released, even with noise."
        )
    return document(
        *certification.first_blocks("Certified numbers", count, quality, training_run, OWNER_ONLY),
        *figures_section(certification.dataset, captions),
        *certified_section(certification.relation, numbers=True),
        markdown_table(titles, rows),
        tolerance,
        "The table `tables/intervals.csv` has the widths of the intervals, and "
        f"`{intervals_file}` has the interval of each answer.",
        *quality.section(),
        *sections,
        *conditions_section(conditions),
        *next_section(*next_commands(training_run.folder, conditions, release)),
        QUERIES_MEANING if release and not describe_unmet_conditions(conditions) else "",
    )


def print_intervals(
    console: Console,
    certification: NumberCertification,
    table: pd.DataFrame,
) -> None:
    """Print the widths of the intervals, and up to which k answers stay within the tolerance."""
    distances = certification.distances
    titles, rows = interval_rows(table)
    console.table(certification.table_title, titles, rows)
    if distances is not None:
        k = int(np.median(distances.max_k))
        changes = describe_edits_up_to(certification.relation, k)
        console.say(
            f"half of the answers move by at most {format_number(distances.tolerance)} up to "
            f"k = {k:,}, that is, with {changes}"
        )
