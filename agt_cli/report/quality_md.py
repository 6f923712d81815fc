"""What records and consoles show of a model's quality, which is for the data owner alone."""

import numpy as np
import pandas as pd

from agt.data.records import Records
from agt.models.doubts import CertifiedCounts
from agt.models.model import Model
from agt.problem import Settings
from agt_cli.report.quality import AnyQuality, Judged
from agt_cli.report.record import RunRecord

KS = (1, 5, 20, 100)  # at which certified shares are shown


def judge(
    model: Model,
    queries: Records,
    records: str,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    distance: np.ndarray | None,
    certainty: CertifiedCounts | None = None,
    constant_remedy: str = "",
    margins: np.ndarray | None = None,
) -> Judged:
    """Return some records together with what a model says of them.

    Args:
        records: what they are, in words.
        labels: [n]; None: not known.
        prediction: [n] class indices.
        distance: [n] stable distances; None: not certified.
        certainty: how many answers are certified at all; None: not known.
        constant_remedy: what to change if the model is nearly constant; empty: it is not said.
        margins: of the records, as ``model.margins`` returns them; None: the model is asked.
    """
    classes = model.problem.dataset.classes
    if margins is None:
        margins = model.margins(queries.features)
    end = grid_end(model.problem.settings)
    ks = _ks_of_shares(model.problem.settings, end)
    groups = queries.groups
    rounding_warning = certainty and certainty.rounding_warning
    distance_warning = certainty and certainty.distance_warning
    return Judged(
        classes,
        records,
        labels,
        prediction,
        margins,
        distance,
        groups,
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


def _ks_of_shares(settings: Settings, end: int | None) -> tuple[int, ...]:
    """Return at which k certified shares are shown.

    These are round ones. Where a grid bounds what is known, they are those of its k that are
    round, and its end if it lies below the last round one.
    """
    if end is None:
        return KS
    ks = [k for k in settings.kgrid.ks if k in KS]
    if end < KS[-1] and end not in KS:
        ks.append(end)
    return tuple(ks)


def write_quality(record: RunRecord, quality: AnyQuality, prefix: str = "") -> None:
    """Write tables/quality.csv, unless it would be empty, and the metrics of a model's quality.

    Args:
        record: the run's record.
        quality: on some records.
        prefix: of the metrics' names.
    """
    if quality.rows:
        record.table("quality", pd.DataFrame(quality.rows))
    record.add_metrics(**{f"{prefix}{name}": value for name, value in quality.metrics.items()})
