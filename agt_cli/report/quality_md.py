"""What records and consoles show of a model's quality, which is for the data owner alone."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from agt.data.records import Records
from agt.models.doubts import CertifiedCounts
from agt.models.model import Model
from agt.problem import Settings
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, markdown_table, plain
from agt_cli.report.quality import Judged, Quality, RateEstimate, Subgroup, rate_words
from agt_cli.report.record import RunRecord

KS = (1, 5, 20, 100)  # at which certified shares are shown
CONSOLE_K = 20  # the one of them that the console shows
CONSOLE_ROWS = 20
NO_BREAK = "\u00a0"  # an interval stays in one line


def judge(
    model: Model,
    queries: Records,
    records: str,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    distance: np.ndarray | None,
    certainty: CertifiedCounts | None = None,
) -> Judged:
    """Return some records together with what a model says of them.

    Args:
        records: what they are, in words.
        labels: [n]; None: not known.
        prediction: [n] class indices.
        distance: [n] stable distances; None: not certified.
        certainty: how many answers are certified at all; None: not known.
    """
    classes = model.problem.dataset.classes
    scores = model.margins(queries.features)
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
        scores,
        distance,
        groups,
        ks,
        end,
        rounding_warning=str(rounding_warning or ""),
        distance_warning=str(distance_warning or ""),
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


def write_quality(record: RunRecord, judged: Judged, prefix: str = "") -> Quality:
    """Write tables/quality.csv and the metrics of a model's quality.

    Args:
        prefix: of the metrics' names.
    """
    quality = Quality.of(judged)
    record.table("quality", pd.DataFrame([quality_row(group) for group in quality.groups]))
    record.add_metrics(**_quality_metrics(quality, prefix))
    return quality


def quality_row(group: Subgroup) -> dict[str, object]:
    """Return a group's row of tables/quality.csv: each share with the ends of its interval."""
    shares = {
        "majority": group.majority,
        "accuracy_or_recall": group.accuracy,
        "precision": group.precision,
        "auc": group.auc,
    }
    for k, estimate in group.certified.items():
        shares[f"certified_k{k}"] = estimate
    for k, estimate in group.held.items():
        shares[f"certified_and_right_k{k}"] = estimate
    row: dict[str, object] = {
        "column": group.column,
        "value": group.value,
        "class": group.label,
        "records": group.records,
    }
    for name, known in shares.items():
        row |= dict.fromkeys((name, f"{name}_low", f"{name}_high"))
        if known is not None:
            row |= _interval(name, known)
    row["stable_distance_median"] = group.distance
    row["stable_distance_median_is_lower_bound"] = group.median_is_lower_bound
    return row


def _interval(name: str, estimate: RateEstimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _quality_metrics(quality: Quality, prefix: str) -> dict[str, float | int | str]:
    """Return flat numbers about all records; what is not known is left out."""
    whole = quality.whole
    metrics: dict[str, float | int | str] = {}
    if whole.accuracy is not None:
        metrics |= _interval("accuracy", whole.accuracy)
    if whole.auc is not None:
        metrics |= _interval("auc", whole.auc)
    if whole.majority is not None and quality.balanced is not None:
        metrics["majority_rate"] = whole.majority.value
        metrics["balanced_accuracy"] = quality.balanced
    metrics["constant"] = int(quality.constant)
    if quality.verdict:
        metrics["verdict"] = quality.verdict
    for k, estimate in whole.certified.items():
        metrics[f"certified_fraction_k{k}"] = estimate.value
    return {prefix + name: value for name, value in metrics.items()}


def say_quality(console: Console, quality: Quality) -> None:
    """Print the table of groups; its caller prints the verdict before anything else."""
    whole = quality.whole
    title = f"{quality.records}, unlabelled"
    if whole.accuracy is not None and whole.majority is not None:
        baseline = rate_words(whole.majority.value)
        title = (
            f"{quality.records}: accuracy {whole.accuracy}; "
            f"majority-class baseline (always '{quality.majority}'): {baseline}"
        )
    groups = [group for group in quality.groups if not _is_class_of_subgroup(group)]
    ks = [*whole.certified]
    shown_ks = [CONSOLE_K] if CONSOLE_K in ks else ks[-1:]
    columns, rows = _table(quality, groups, shown_ks, space="\n")  # a heading has two lines
    console.table(title, columns, rows[:CONSOLE_ROWS])
    hidden = len(rows) - CONSOLE_ROWS
    if hidden > 0:
        console.say(
            f"number of groups that are not shown here: {hidden} (all are in tables/quality.csv)"
        )
    if quality.distance_warning:
        console.say(quality.distance_warning)


def _is_class_of_subgroup(group: Subgroup) -> bool:
    return group.column is not None and group.label is not None


def quality_section(quality: Quality) -> list[str]:
    """Return the part of a page that says how good a model is: a title, a table, how to read it."""
    columns, rows = _table(quality, quality.groups, quality.whole.certified, space=" ")
    has_subgroups = any(group.column is not None for group in quality.groups)
    title = "## Accuracy by class and subgroup" if has_subgroups else "## Accuracy by class"
    legend = (
        "Intervals are 95 % confidence intervals for independent records: by Clopper and Pearson "
        "for shares, by DeLong for the AUC. A certified answer can be wrong."
    )
    if quality.majority:
        majority = plain(quality.majority)
        legend += (
            " The column 'majority' is, for each group, the accuracy of always giving the most "
            "frequent class of this group. In all records together, the most frequent class is "
            f"'{majority}'. The file `tables/quality.csv` also has the fractions of answers that "
            "are both certified and correct."
        )
    return [title, markdown_table(columns, rows), legend]


def _table(
    quality: Quality, groups: Sequence[Subgroup], ks: Iterable[int], space: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the names of the columns and a row of cells for each group.

    Columns of which nothing is known for any group are left out.

    Args:
        ks: at which certified shares are shown.
        space: what parts the words of a heading.
    """
    columns = {"": [group.name for group in groups]}
    columns["records"] = [f"{group.records:,}" for group in groups]
    if quality.majority:
        columns["majority"] = [_rate_cell(group.majority) for group in groups]
    shares = {
        f"accuracy{space}(class: recall)": [group.accuracy for group in groups],
        "AUC": [group.auc for group in groups],
    }
    for k in ks:
        shares[f"certified{space}k = {k}"] = [group.certified.get(k) for group in groups]
    for name, estimates in shares.items():
        if any(estimates):
            columns[name] = [_estimate_cell(estimate) for estimate in estimates]
    if quality.whole.distance is not None:
        columns[f"median{space}distance"] = [group.median_distance for group in groups]
    return tuple(columns), list(zip(*columns.values(), strict=True))


def _rate_cell(estimate: RateEstimate | None) -> str:
    return "-" if estimate is None else rate_words(estimate.value)


def _estimate_cell(estimate: RateEstimate | None) -> str:
    if estimate is None:
        return "-"
    return Markdown(estimate.with_interval(NO_BREAK))  # its brackets are no link
