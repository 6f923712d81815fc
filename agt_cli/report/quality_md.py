"""Evaluate a model's answers, and write their quality into a record, for the data owner only."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from agt.data.records import Records
from agt.models.doubts import CertifiedCounts
from agt.models.model import Model
from agt.problem import Settings
from agt_cli.report.quality import ModelQuality, Quality
from agt_cli.report.record import RunRecord

SHARE_KS = (1, 5, 20, 100)  # at which certified shares are shown


@dataclass(frozen=True)
class ModelAnswers:
    """A model's answers to some records, and what is known about them.

    Attributes:
        prediction: [n] class indices.
        distance: [n] stable distances; None: not certified.
        certified_counts: the number of answers that are certified at all; None: not known.
        margins: the margins of the records, as ``model.margins`` returns them; None: the model is
            asked.
    """

    prediction: np.ndarray
    distance: np.ndarray | None = None
    certified_counts: CertifiedCounts | None = None
    margins: np.ndarray | None = None


def evaluate_answers(
    model: Model,
    queries: Records,
    records_description: str,
    labels: np.ndarray | None,
    answers: ModelAnswers,
    constant_remedy: str = "",
) -> Quality:
    """Return how good a model's answers to some records are.

    Args:
        model: the model.
        queries: the n records.
        records_description: what the records are, such as "test records".
        labels: [n]; None: not known.
        answers: the model's answers.
        constant_remedy: what to change if the model is nearly constant; empty: no advice.
    """
    classes = model.problem.dataset.classes
    margins = answers.margins
    if margins is None:
        margins = model.margins(queries.features)
    end = grid_end(model.problem.settings)
    ks = share_ks(model.problem.settings, end)
    counts = answers.certified_counts
    rounding_warning = counts and counts.rounding_warning
    distance_warning = counts and counts.distance_warning
    return Quality(
        classes,
        records_description,
        labels,
        answers.prediction,
        margins,
        answers.distance,
        queries.groups,
        ks,
        end,
        rounding_warning=str(rounding_warning or ""),
        distance_warning=str(distance_warning or ""),
        constant_remedy=constant_remedy,
    )


def grid_end(settings: Settings) -> int | None:
    """Return the last k that was trained, beyond which no distance is known; None: every k is."""
    if settings.ensemble.members > 1 or settings.certificate.covers_every_k:
        return None
    return settings.kgrid.ks[-1]


def share_ks(settings: Settings, end: int | None) -> tuple[int, ...]:
    """Return at which k certified shares are shown.

    These are round ones. Where a grid bounds what is known, they are those of its k that are
    round, and its end if it lies below the last round one.
    """
    if end is None:
        return SHARE_KS
    ks = [k for k in settings.kgrid.ks if k in SHARE_KS]
    if end < SHARE_KS[-1] and end not in SHARE_KS:
        ks.append(end)
    return tuple(ks)


def write_quality(record: RunRecord, quality: ModelQuality, prefix: str = "") -> None:
    """Write tables/quality.csv, unless it would be empty, and the metrics of a model's quality.

    Args:
        record: the run's record.
        quality: the quality of a model's answers to some records.
        prefix: the first part of the metrics' names.
    """
    if quality.rows:
        record.table("quality", pd.DataFrame(quality.rows))
    record.add_metrics(**{f"{prefix}{name}": value for name, value in quality.metrics.items()})
