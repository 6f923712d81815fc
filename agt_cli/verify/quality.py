"""Compare tables/quality.csv, and the metrics on how good a model is, with what they follow from.

A certification has the labels, predictions and stable distances of all queries, from which its
table is computed again. Other commands record no single answers, so the cells of their tables are
compared with each other (quality_rows.py).
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from agt.models.doubts import CertifiedCounts
from agt.models.model import Model
from agt.store.reading import MAX_TEXT_BYTES, Broken
from agt_cli.report.number_quality import NumberQuality, metrics_of_errors
from agt_cli.report.quality import ModelQuality, Quality, metrics_of_rates
from agt_cli.report.quality_md import grid_end, share_ks
from agt_cli.runs.queries import describe_queries
from agt_cli.verify.comparison import check_entries, mismatch
from agt_cli.verify.folders import Record, model_of
from agt_cli.verify.pages import (
    CERTIFICATES,
    CERTIFIED,
    certificate_columns,
    read_certificates,
)
from agt_cli.verify.quality_rows import FROM_ANSWERS, QUALITY, Rows, check_rows

WRITE_QUALITY = ("train", "certify", "plan")
"""Commands that write the table, unless the queries of numbers have no labels."""


def check_quality(record: Record, trained: Record | None) -> str | None:
    """Check tables/quality.csv, and the metrics that follow from it.

    Args:
        record: any record.
        trained: the training run that it was made from, or itself; None: it was not found, so the
            table of a certification of classes is not computed again.

    Returns:
        A sentence that says what was compared; None: the record has no such table, and needs none.

    Raises:
        Broken: the table is missing, or a number is not the one that follows.
        ValueError: a number is not possible.
    """
    model = model_of(trained)
    quality = _recomputed_quality(record, model) if record.command == "certify" else None
    if not record.holds(QUALITY):
        if record.command not in WRITE_QUALITY or (quality is not None and not quality.rows):
            return None
        raise Broken(f"{QUALITY} is missing, but agt {record.command} writes this table")
    content = BytesIO(record.read(QUALITY, MAX_TEXT_BYTES))
    # A class may be called "NA", or "1".
    names = dict.fromkeys(("column", "value", "class", "answers"), str)
    table = pd.read_csv(content, keep_default_na=False, na_values=[""], dtype=names)
    rows = cast(Rows, table.astype(object).where(table.notna(), None).to_dict("records"))
    numbers = "answers" in table
    metrics = metrics_of_errors(rows) if numbers else metrics_of_rates(rows)
    prefix = ""
    count = "n_queries"
    if record.command == "train":
        prefix = "test_"
        count = "n_test"
        train_accuracy = record.metrics.get("train_accuracy", 0.0)
        if not 0 <= train_accuracy <= 1:
            raise Broken(f"train_accuracy is {train_accuracy} in metrics.json, but is a share")
    derived: dict[str, object] = {f"{prefix}{name}": value for name, value in metrics.items()}
    record.check_metrics(QUALITY, **derived, **{count: rows[0]["records"]})
    if not numbers:
        _check_rows_of_classes(record, model, rows)
    if quality is None:
        return f"metrics.json matches {QUALITY}, whose rows fit together"
    _compare_with_certificates(record, rows, quality)
    return f"metrics.json matches {QUALITY}, and {QUALITY} matches {CERTIFICATES}"


def _check_rows_of_classes(record: Record, model: Model | None, rows: Rows) -> None:
    """Compare the rows of quality.csv of a model of classes with each other.

    Args:
        record: whose table it is.
        model: whose answers these are; None: it could not be read.
        rows: the rows of the table.
    """
    has_distances = record.command == "certify"
    if record.command == "train":
        has_distances = model is not None and model.instant
    elif record.command == "plan":
        has_distances = record.config.get("counting") == "distance"
    subgroups = None
    if record.command == "train":
        subgroups = record.config["dataset"].get("subgroups")
    check_rows(rows, model, has_distances=has_distances, subgroup_columns=subgroups)
    compared = [
        name
        for name in rows[0]
        if not FROM_ANSWERS.fullmatch(name) or all(row[name] is None for row in rows)
    ]
    if model is None:
        compared.remove("class")
    record.note_compared(QUALITY, compared)


def _recomputed_quality(record: Record, model: Model | None) -> ModelQuality | None:
    """Return how good the answers of a certification are, computed from certificates.parquet.

    Args:
        record: the record of the certification.
        model: the model that was certified; None: it could not be read.

    Returns:
        None: some answers are deferred, or the names of the classes are not known.

    Raises:
        Broken: certificates.parquet cannot be read.
    """
    names = ["label", "prediction"]
    columns = certificate_columns(record)
    rows = read_certificates(record, [*names, *(columns & {"stable_distance", "score"})], names)
    if "stable_distance" not in columns:
        labels = rows["label"].to_numpy()
        numbers = rows["prediction"].to_numpy()
        described = _describe_queries(record)
        if np.isnan(labels).all():
            return NumberQuality(described, None, numbers, {})
        median = np.full(len(labels), float(np.median(labels)))
        return NumberQuality(described, labels, numbers, {"median": median})
    if model is None or "answer" in columns:
        return None
    return _quality_of_classes(record, model, rows)


def _quality_of_classes(record: Record, model: Model, rows: pd.DataFrame) -> Quality:
    """Return how good answers that are classes are, without subgroups.

    Args:
        record: the record of the certification.
        model: the model that was certified.
        rows: the rows of certificates.parquet: label, prediction, stable_distance, score.

    Raises:
        KeyError: a prediction is not a class of the model.
    """
    classes = model.problem.dataset.classes
    index_of = {name: index for index, name in enumerate(classes)}
    labels = rows["label"].map(index_of).astype(float).to_numpy()
    prediction = np.array([index_of[name] for name in rows["prediction"]])
    distance = rows["stable_distance"].to_numpy(np.int64)
    settings = model.problem.settings
    end = grid_end(settings)
    scores = None
    if len(classes) == 2 and rows["score"].notna().all():
        scores = rows["score"].to_numpy(np.float64)[None]
    table = pd.read_csv(BytesIO(record.read(CERTIFIED, MAX_TEXT_BYTES)))
    uncertified = 0
    if table["k"].iloc[0] == 0:
        uncertified = round((1 - table["certified_fraction"].iloc[0]) * len(rows))
    counts = CertifiedCounts(len(rows), uncertified, int((distance > 0).sum()), settings)
    return Quality(
        classes,
        _describe_queries(record),
        None if np.isnan(labels).any() else labels.astype(np.int64),
        prediction,
        scores,
        distance,
        ks=share_ks(settings, end),
        grid_end=end,
        rounding_warning=str(counts.rounding_warning or ""),
    )


def _describe_queries(record: Record) -> str:
    """Return a clause that says which queries a record is about, as its own sentences do."""
    inputs = record.config.get("inputs")
    return describe_queries(None if inputs is None else Path(str(inputs)))


def _compare_with_certificates(record: Record, rows: Rows, quality: ModelQuality) -> None:
    """Raise Broken unless quality.csv and metrics.json are those of recomputed answers.

    Rows of subgroups are not compared, because no other file says who is in one. Neither is the
    AUC of more than two classes, for which certificates.parquet lacks scores.

    Args:
        record: the record of the certification.
        rows: the rows of quality.csv.
        quality: the quality of the answers in certificates.parquet.
    """
    recorded = [row for row in rows if row.get("column") is None]
    derived = cast(Rows, quality.rows)
    complete = True
    if isinstance(quality, Quality):
        complete = quality.scores is not None or quality.labels is None
        if record.is_older_than(0, 10):
            derived = _without(derived, "stable_distance_median_is_lower_bound")
        if not complete:
            derived = _without(derived, "auc")
        record.check_metrics(CERTIFICATES, constant=int(quality.constant))
    if len(recorded) != len(derived):
        raise mismatch(QUALITY, CERTIFICATES, f"it has {len(recorded)} rows, not {len(derived)}")
    for number, (row, expected) in enumerate(zip(recorded, derived, strict=True), start=1):
        check_entries(f"line {number} of {QUALITY}", row, CERTIFICATES, expected)
    if recorded == rows:  # there are no subgroups
        record.note_compared(QUALITY, derived[0])
    if complete:
        record.check_verdict(CERTIFICATES, quality.verdict or None)


def _without(rows: Sequence[Mapping[str, Any]], prefix: str) -> Rows:
    """Return rows without the columns whose names begin with a text."""
    return [
        {name: value for name, value in row.items() if not name.startswith(prefix)} for row in rows
    ]
