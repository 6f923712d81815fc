"""What is told of a model's quality: for the data owner alone."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from agt.data.records import Records
from agt.models.model import Model
from agt.problem import Settings
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.quality import Judged, Quality, RateEstimate, Subgroup, rate_words
from agt_cli.report.record import RunRecord

KS = (1, 5, 20, 100)  # certified shares are told at these


SHOWN = 20  # rows on the console


def judge(
    model: Model,
    queries: Records,
    records: str,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    distance: np.ndarray | None,
) -> Judged:
    """What a model says of some records.

    Args:
        records: what they are, in words.
        labels: [n]; None: not known.
        prediction: [n] class indices.
        distance: [n] stable distances; None: not certified.
    """
    classes, scores = model.problem.dataset.classes, model.margins(queries.features)
    return Judged(classes, records, labels, prediction, scores, distance, queries.groups, _told(model.problem.settings))


def _told(settings: Settings) -> tuple[int, ...]:
    """At which k certified shares are told: round ones, of the grid and with its end where that bounds what is known."""
    ks = settings.kgrid.ks
    if settings.ensemble.members > 1 or settings.certificate.covers_every_k:
        return KS
    return tuple(k for k in ks if k in KS or (k == ks[-1] and k < KS[-1]))


def write_quality(record: RunRecord, judged: Judged, prefix: str = "") -> Quality:
    """tables/quality.csv and the metrics.

    Args:
        prefix: of the metrics' names.
    """
    quality = Quality.of(judged)
    record.table("quality", pd.DataFrame([quality_row(group) for group in quality.groups]))
    record.add_metrics(**quality_metrics(quality, prefix))
    return quality


def quality_row(group: Subgroup) -> dict[str, object]:
    """Each share with the ends of its interval."""
    shares = {
        "majority": group.majority,
        "accuracy_or_recall": group.accuracy,
        "precision": group.precision,
        "auc": group.auc,
    }
    shares |= {f"certified_k{k}": estimate for k, estimate in group.certified.items()}
    shares |= {f"certified_and_right_k{k}": estimate for k, estimate in group.held.items()}
    row: dict[str, object] = {"column": group.column, "value": group.value, "class": group.label, "records": group.records}
    for name, estimate in shares.items():
        row |= {name + end: estimate and getattr(estimate, end[1:] or "value") for end in ("", "_low", "_high")}
    return row | {"stable_distance_median": group.distance}


def quality_metrics(quality: Quality, prefix: str = "") -> dict[str, float | int | str]:
    """Flat numbers; what is not known is left out."""
    whole = quality.whole
    metrics: dict[str, float | int | str] = {}
    for name, estimate in (("accuracy", whole.accuracy), ("auc", whole.auc)):
        if estimate is not None:
            ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            metrics |= {name: estimate.value, **ends}
    if whole.majority is not None and quality.balanced is not None:
        metrics |= {"majority_rate": whole.majority.value, "balanced_accuracy": quality.balanced}
    metrics |= {"constant": int(quality.constant)} | ({"verdict": quality.verdict} if quality.verdict else {})
    metrics |= {f"certified_fraction_k{k}": estimate.value for k, estimate in whole.certified.items()}
    return {prefix + name: value for name, value in metrics.items()}


def say_quality(console: Console, quality: Quality) -> None:
    """The table, for which the verdict is said before anything else."""
    groups = [group for group in quality.groups if group.column is None or group.label is None]
    columns, rows = _cells(quality, groups, console_columns=True)
    whole, always = quality.whole, f"; always answering '{quality.majority}': " if quality.majority else ""
    title = f"{quality.records}: accuracy {whole.accuracy}{always}" if whole.accuracy else f"{quality.records}, unlabelled"
    title += rate_words(whole.majority.value) if whole.majority else ""
    console.table(title, columns, rows[:SHOWN])
    if len(rows) > SHOWN:
        console.say(f"{len(rows) - SHOWN} more groups: tables/quality.csv")


def quality_section(quality: Quality) -> list[str]:
    columns, rows = _cells(quality, quality.groups)
    of_all = f" (of all '{plain(quality.majority)}')" if quality.majority else ""
    return [
        "## How good it is, and for whom",
        "For the data owner only. Intervals cover the true value in 95 of 100 samples, if records are drawn one by one: "
        "shares by Clopper and Pearson, areas under the ROC curve by DeLong. *Majority*: what always answering a group's "
        f"most frequent class{of_all} would reach. The accuracy on the records of a class is its recall. A certified "
        "prediction may be a wrong one; with the shares that are certified and right: `tables/quality.csv`.",
        markdown_table(columns, rows),
    ]


def _cells(
    quality: Quality, groups: Sequence[Subgroup], console_columns: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(the names of the columns, the cells of each group)."""
    space = "\n" if console_columns else " "  # the console has two lines for a heading
    ks = list(quality.whole.certified)
    ks = [k for k in ks if k == 20] or ks[-1:] if console_columns else ks
    shares: list[tuple[str, list[RateEstimate | None]]] = [
        (f"accuracy,{space}recall", [group.accuracy for group in groups]),
        ("AUC", [group.auc for group in groups]),
        *((f"certified{space}k = {k}", [group.certified.get(k) for group in groups]) for k in ks),
    ]
    known = [(name, cells) for name, cells in shares if any(cells)]
    majority = ["-" if group.majority is None else rate_words(group.majority.value) for group in groups]
    rows = []
    for at, group in enumerate(groups):
        # Brackets are no link, and an interval stays in one line.
        cells = [Markdown(e.with_interval("\u00a0")) if (e := estimates[at]) else "-" for _, estimates in known]
        distance = [] if group.distance is None else [f"{group.distance:g}"]
        constant = [majority[at]] if quality.majority else []
        rows.append((group.name, f"{group.records:,}", *constant, *cells, *distance))
    distances = (f"median{space}distance",) if quality.whole.distance is not None else ()
    always = ("majority",) if quality.majority else ()
    return ("", "records", *always, *(name for name, _ in known), *distances), rows
