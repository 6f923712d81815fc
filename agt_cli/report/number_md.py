"""Records, pages and console lines of models of numbers: training and certification."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.certificates.conditions import Condition
from agt.data.arrays import ROWS
from agt.data.dataset import Dataset
from agt.data.records import Records
from agt.models.number_votes import NumberCertificates, NumberVotes, ToleranceDistances
from agt.settings import RelationConfig
from agt_cli.report.console import Console
from agt_cli.report.finished import Run
from agt_cli.report.markdown import Markdown, document, markdown_table, plain
from agt_cli.report.number_quality import NumberEstimate, NumberQuality, number_words
from agt_cli.report.record import RunRecord
from agt_cli.report.sections_md import (
    ball,
    conditions_section,
    figures_section,
    metrics_table,
    next_section,
    within,
)
from agt_cli.report.training_md import NOTES_WARNING

KS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # at which tables have intervals
OWNER_ONLY = (
    "For the data owner only. Intervals, errors, and answers without noise depend on private "
    "records: do not publish them."
)
_TITLES = ("answers", "RMSE", "MAE", "R²")


@dataclass(frozen=True)
class NumberSubject:
    """What a page about certified numbers is of.

    Attributes:
        dataset: its name.
        queries: which queries, in words.
        relation: the neighbour relation.
        certificates: of the queries.
        conditions: a to g, held or not.
    """

    dataset: str
    queries: str
    relation: RelationConfig
    certificates: NumberCertificates
    conditions: tuple[Condition, ...]

    @property
    def ks(self) -> tuple[int, ...]:
        """The k at which tables have intervals, up to the last one that bounds anything."""
        ks = tuple(k for k in KS if k < self.certificates.max_k)
        return ks or (1,)


def judge_numbers(
    model: NumberVotes,
    records: str,
    queries: Records,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    train: Records | None = None,
) -> NumberQuality:
    """Return how good a model's answers are, beside simpler ones.

    Args:
        model: the model.
        records: what the queries are, in words.
        queries: the queries, as the model takes them.
        labels: [n] their true labels; None: not known.
        prediction: [n] the model's answers.
        train: the training records, from which the baselines are taken: always their median, and
            one ridge regression on all of them. None: always the median of the queries' labels,
            which is the best constant there is for them.
    """
    baselines: dict[str, np.ndarray] = {}
    if labels is not None:
        known = labels if train is None else train.labels
        baselines["median"] = np.full(len(labels), float(np.median(known)))
        if train is not None:
            baselines["one_ridge"] = _one_ridge(model, train, queries)
    return NumberQuality(records, labels, prediction, baselines)


def _one_ridge(model: NumberVotes, train: Records, queries: Records) -> np.ndarray:
    """Return the answers of one ridge regression on all training records, [n] float64.

    It has the members' features and strength, and no certificate: the price of the ensemble is
    what it is better by.
    """
    target = model.target
    strength = model.settings.certificate.strength  # type: ignore[attr-defined]
    width = model.features.outputs
    gram = strength * np.eye(width)
    sums = np.zeros(width)
    for start in range(0, len(train), ROWS):
        rows = slice(start, start + ROWS)
        phi = model.features(train.features[rows], "float64")
        gram += phi.T @ phi
        sums += phi.T @ target.scaled(train.labels[rows])
    weight = np.linalg.solve(gram, sums)
    shares = (model.features(queries.features, "float64") @ weight + 1) / 2
    return target.at(np.clip(shares, 0.0, 1.0))


def write_number_quality(record: RunRecord, quality: NumberQuality, prefix: str = "") -> None:
    """Write tables/quality.csv and the metrics of a model's quality.

    Args:
        record: the run's record.
        quality: on some records.
        prefix: of the metrics' names.
    """
    rows = []
    for row in quality.rows:
        flat = {"answers": row["answers"], "records": row["records"]}
        for name in ("rmse", "mae", "r2"):
            estimate = row[name]
            ends = (None, None, None)
            if isinstance(estimate, NumberEstimate):
                ends = (estimate.value, estimate.low, estimate.high)  # type: ignore[assignment]
            flat |= dict(zip((name, f"{name}_low", f"{name}_high"), ends, strict=True))
        rows.append(flat)
    record.table("quality", pd.DataFrame(rows))
    verdict = {"verdict": quality.verdict} if quality.verdict else {}
    metrics: dict[str, float | str] = {**quality.metrics, **verdict}
    record.add_metrics(**{f"{prefix}{name}": value for name, value in metrics.items()})


def quality_rows(quality: NumberQuality) -> list[tuple[str, ...]]:
    """Return a row of cells for the model and for each baseline."""
    rows = []
    for row in quality.rows:
        cells = [str(row["answers"]).replace("_", " ")]
        for name in ("rmse", "mae", "r2"):
            estimate = row[name]
            cells.append("-" if estimate is None else str(estimate))
        rows.append(tuple(cells))
    return rows


def _quality_section(quality: NumberQuality) -> list[str]:
    """Return the part of a page that says how good a model is."""
    if not quality.rows:
        return ["## Errors", "The queries have no labels, so the errors are not known."]
    rows = [(row[0], *map(Markdown, row[1:])) for row in quality_rows(quality)]
    return [
        "## Errors",
        markdown_table(_TITLES, rows),
        "Intervals are normal 95 % confidence intervals for independent records. 'median' always "
        "answers the median of the labels; 'one ridge' is one ridge regression on all training "
        "records, without certificates.",
    ]


def number_train_report(
    record: RunRecord,
    dataset: Dataset,
    relation: RelationConfig,
    conditions: tuple[Condition, ...],
    quality: NumberQuality,
    lines: Sequence[str] = (),
) -> str:
    """Return report.md of a training run of numbers.

    Args:
        record: the run's record.
        dataset: the records.
        relation: says what one k counts.
        conditions: of a privacy claim.
        quality: on the test records.
        lines: what else is to be said.
    """
    members = record.metrics["members"]
    return document(
        f"# Trained an ensemble that answers with a median: {plain(dataset.name)}",
        f"**{plain(quality.verdict)}**" if quality.verdict else "",
        f"The model was trained on {len(dataset.train):,} records, each of which is in one of "
        f"{members} shards. Each shard has a small model of its own, and the answer is the median "
        "of their numbers. All constants are in `votes.json`.",
        *_meaning(relation),
        *_quality_section(quality),
        *(("## For the data owner", NOTES_WARNING, dataset.notes) if dataset.notes else ()),
        *lines,
        *conditions_section(conditions),
        *next_section(f"certify run={record.place}"),
        "## Every number",
        metrics_table(record.metrics),
        "Settings: `config.yaml`.",
    )


def _meaning(relation: RelationConfig) -> list[str]:
    """Return the part of a page that says what an interval is, and what one k counts."""
    return [
        "## What is certified",
        f"k is the number of **{ball(relation)}** (relation `{relation.name}`). Training on "
        "**every** dataset that differs from this one by at most k gives an answer inside of the "
        "interval at k. An interval says nothing about the true label, which may lie outside.",
    ]


def number_rows(
    subject: NumberSubject, queries: Records, labels: np.ndarray | None, within_t: np.ndarray | None
) -> Iterator[pd.DataFrame]:
    """Yield the rows of certificates.parquet, block by block.

    Args:
        subject: what was certified.
        queries: the queries.
        labels: [n] their true labels; None: not known.
        within_t: [n] the k up to which each answer stays within the tolerance; None: none is
            declared.
    """
    numbers = np.arange(len(queries)) if queries.rows is None else queries.rows
    bounds = {k: subject.certificates.bounds(k) for k in subject.ks}
    for start in range(0, len(queries), ROWS):
        rows = slice(start, start + ROWS)
        columns: dict[str, object] = {
            "row": numbers[rows],
            "record_id": queries.ids[rows].astype(object),
            "label": np.full(len(numbers[rows]), np.nan) if labels is None else labels[rows],
            "prediction": subject.certificates.prediction[rows],
        }
        for k, (lower, upper) in bounds.items():
            columns[f"lower_k{k}"] = lower[rows]
            columns[f"upper_k{k}"] = upper[rows]
        if within_t is not None:
            columns["k_within_tolerance"] = within_t[rows]
        yield pd.DataFrame(columns)


def interval_table(subject: NumberSubject, within_t: ToleranceDistances | None) -> pd.DataFrame:
    """Return tables/intervals.csv: for each k the widths of the intervals.

    Args:
        subject: what was certified.
        within_t: up to which k answers stay within the declared tolerance; None: none is declared.
    """
    rows = []
    for k in (0, *subject.ks):
        width = subject.certificates.width(k)
        row = {
            "k": k,
            "width_median": float(np.median(width)),
            "width_mean": float(width.mean()),
            "width_largest": float(width.max()),
        }
        if within_t is not None:
            row["share_within_tolerance"] = float((within_t.max_k >= k).mean())
        rows.append(row)
    return pd.DataFrame(rows)


def interval_rows(table: pd.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the titles and a row of cells for each k of ``interval_table``."""
    titles = {
        "k": "k",
        "width_median": "median width",
        "width_mean": "mean width",
        "width_largest": "largest width",
        "share_within_tolerance": "within the tolerance",
    }
    names = [name for name in titles if name in table.columns]
    rows = []
    for _, row in table.iterrows():
        cells = [number_words(float(row[name])) for name in names if name != "k"]
        rows.append((str(int(row["k"])), *cells))
    return tuple(titles[name] for name in names), rows


def number_report(
    subject: NumberSubject,
    table: pd.DataFrame,
    captions: Mapping[str, str],
    trained: Run,
    quality: NumberQuality,
    within_t: ToleranceDistances | None,
    sections: Sequence[str],
) -> str:
    """Return report.md of a certification of numbers.

    Args:
        subject: what was certified.
        table: ``interval_table``.
        captions: figure name -> what it shows.
        trained: the run that was certified.
        quality: on the queries.
        within_t: up to which k answers stay within the declared tolerance; None: none is declared.
        sections: on queries that do not fit the declarations.
    """
    count = len(subject.certificates.prediction)
    titles, rows = interval_rows(table)
    tolerance = ""
    if within_t is not None:
        median = float(np.median(within_t.max_k))
        tolerance = (
            f"Half of the answers move by at most {number_words(within_t.tolerance)} up to "
            f"k = {median:g}. This k may differ by more than one between neighbouring datasets, so "
            "it must not be released, even with noise."
        )
    return document(
        f"# Certified numbers: {plain(subject.dataset)}, {count:,} {plain(subject.queries)}",
        f"**{plain(quality.verdict)}**" if quality.verdict else "",
        Markdown(f"*{OWNER_ONLY}*"),
        *figures_section(subject.dataset, captions),
        *_meaning(subject.relation),
        markdown_table(titles, rows),
        tolerance,
        "The table `tables/intervals.csv` has the widths of the intervals, and "
        "`certificates.parquet` has the interval of each answer.",
        *_quality_section(quality),
        *sections,
        *conditions_section(subject.conditions),
        *next_section(f"predict run={trained.folder} mechanism=laplace_mean total.eps=NUMBER"),
    )


def say_number_quality(console: Console, quality: NumberQuality) -> None:
    """Print the table of errors; its caller prints the verdict before anything else."""
    if quality.rows:
        console.table(f"errors on {quality.records}", _TITLES, quality_rows(quality))


def say_intervals(
    console: Console,
    subject: NumberSubject,
    table: pd.DataFrame,
    within_t: ToleranceDistances | None,
) -> None:
    """Print the widths of the intervals, and up to which k answers stay within the tolerance."""
    titles, rows = interval_rows(table)
    relation = subject.relation
    title = (
        f"{subject.dataset}, {subject.queries}; k is the number of {ball(relation)} "
        f"(relation={relation.name})"
    )
    console.table(title, titles, rows)
    if within_t is not None:
        k = int(np.median(within_t.max_k))
        changes = within(relation, k)
        console.say(
            f"half of the answers move by at most {number_words(within_t.tolerance)} up to "
            f"k = {k:,}, that is, with {changes}"
        )
