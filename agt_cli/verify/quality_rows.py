"""Check the rows of tables/quality.csv of a model of classes against each other.

A row has shares of its records, and their counts determine its other cells. Classes and subgroups
add up to all records. The counts themselves follow from single answers, which only a certification
records.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from agt.models.model import Model
from agt.store.reading import Broken
from agt_cli.report.quality import CONFIDENCE, RateEstimate, Subgroup, share_estimate
from agt_cli.report.quality_md import grid_end, share_ks
from agt_cli.verify.comparison import check_match

QUALITY = "tables/quality.csv"
CERTIFIED_AT = "certified_k"
CERTIFIED_AND_RIGHT_AT = "certified_and_right_k"
LOWER_BOUND = "stable_distance_median_is_lower_bound"
FROM_ANSWERS = re.compile(
    r"value|records|accuracy_or_recall|precision|auc(_low|_high)?|stable_distance_median"
    r"|certified_(and_right_)?k\d+"
)
"""Columns that follow from single answers: ``check_rows`` compares them with each other alone."""

Rows = list[dict[str, Any]]


class GroupCounts(NamedTuple):
    """The numbers of records from which the shares in a row of quality.csv are computed.

    Attributes:
        records: the number of records that the row is about.
        right: the number of records with the right answer; 0 without labels.
        named: in a row of one class, the number of answers in its subgroup that are this class; 0
            in a row of all classes.
        certified: the number of records whose label is certified up to k, for each k.
        certified_and_right: the number of records whose label is certified up to k and right, for
            each k; 0 without labels.
    """

    records: int
    right: int
    named: int
    certified: tuple[int, ...]
    certified_and_right: tuple[int, ...]

    @classmethod
    def from_row(cls, row: Mapping[str, Any], ks: Sequence[int]) -> "GroupCounts":
        """Return the counts whose shares a row of quality.csv has at these k."""
        records = int(row["records"])

        def count(column: str) -> int:
            return round((row.get(column) or 0) * records)

        right = count("accuracy_or_recall")
        named = 0
        if row["precision"]:
            # The precision and the recall are shares that count the same right answers.
            named = round(right / row["precision"])
        elif row["precision"] is not None:
            # The interval of no right answer among n ends at 1 - tail^(1/n).
            tail = (1 - CONFIDENCE) / 2
            named = round(math.log(tail) / math.log1p(-row["precision_high"]))
        return cls(
            records,
            right,
            named,
            tuple(count(f"{CERTIFIED_AT}{k}") for k in ks),
            tuple(count(f"{CERTIFIED_AND_RIGHT_AT}{k}") for k in ks),
        )


class GroupRow(NamedTuple):
    """A row of quality.csv with its place in the file.

    Attributes:
        line: the number of the row, from 1; the header is not counted.
        cells: the values of the row by column.
        counts: the counts from which the shares in the row are computed.
    """

    line: int
    cells: Mapping[str, Any]
    counts: GroupCounts

    def require(self, holds: bool, problem: str) -> None:
        """Raise Broken with a problem of this row, unless it holds."""
        if not holds:
            raise Broken(f"line {self.line} of {QUALITY}: {problem}")


def check_rows(
    rows: Rows, model: Model | None, has_distances: bool, subgroup_columns: Sequence[str] | None
) -> None:
    """Raise Broken unless the rows of quality.csv follow from counts that fit together.

    Args:
        rows: the rows of the table.
        model: whose answers these are; None: it could not be read, so the names of the classes and
            the values of k are not compared.
        has_distances: True: the command that wrote the table knew the stable distance of each
            answer.
        subgroup_columns: the columns whose values are subgroups, by config.yaml; None: it does not
            say which.

    Raises:
        Broken: they do not.
        ValueError: a share is not possible.
    """
    ks = [int(name.removeprefix(CERTIFIED_AT)) for name in rows[0] if _is_certified_share(name)]
    end = None
    classes = None
    if model is not None:
        settings = model.problem.settings
        end = grid_end(settings)
        classes = model.problem.dataset.classes
        expected_ks = list(share_ks(settings, end)) if has_distances else []
        check_match(f"the columns of {QUALITY}", ks, "the settings", expected_ks, "k")
    numbered = [
        GroupRow(line, row, GroupCounts.from_row(row, ks)) for line, row in enumerate(rows, start=1)
    ]
    groups = [
        list(group)
        for _, group in groupby(numbered, lambda row: (row.cells["column"], row.cells["value"]))
    ]
    for group in groups:
        _check_classes(group, classes)
        majority = max((row.counts.records for row in group[1:]), default=None)
        for row in group:
            is_class = row is not group[0]
            _check_cells(row, ks, end, majority=None if is_class else majority)
            _check_order(row, ks)
    everyone, *subgroups = [group[0] for group in groups]
    _check_subgroups(everyone, subgroups, subgroup_columns)


def _is_certified_share(column: str) -> bool:
    """Return whether a column has the share of answers that are certified up to some k."""
    return column.removeprefix(CERTIFIED_AT).isdecimal()


def _check_classes(group: Sequence[GroupRow], classes: Sequence[str] | None) -> None:
    """Raise Broken unless a group has a row for all classes, then rows of classes that sum to it.

    Args:
        group: the rows of all records, or of a subgroup.
        classes: the names of the classes in their order; None: not known.
    """
    first, *others = group
    first.require(first.cells["class"] is None, "the row before those of classes is missing")
    names = [row.cells["class"] for row in others]
    order = names if classes is None else [name for name in classes if name in names]
    first.require(
        names == order and len(set(names)) == len(names),
        f"the classes {names} below are not those of the training run in their order, {classes}",
    )
    if others:
        _check_sum(first, others, "classes")


def _check_subgroups(
    everyone: GroupRow, subgroups: Sequence[GroupRow], columns: Sequence[str] | None
) -> None:
    """Raise Broken unless the subgroups of each column are different and add up to all records."""
    keys = [(row.cells["column"], row.cells["value"]) for row in subgroups]
    everyone.require(
        len(set(keys)) == len(keys) and everyone.cells["column"] is None,
        "a subgroup has several rows, or the row of all records is not the first",
    )
    present = list(dict.fromkeys(column for column, _ in keys))
    if columns is not None:
        known = [column for column in columns if column in present]
        everyone.require(
            present == known, f"config.yaml has the subgroups {[*columns]}, not {present}"
        )
    for column in present:
        _check_sum(everyone, [row for row in subgroups if row.cells["column"] == column], column)


def _check_sum(total: GroupRow, parts: Sequence[GroupRow], of_what: str) -> None:
    """Raise Broken unless the counts of parts add up to those of a row.

    Args:
        total: the row.
        parts: the rows whose records are together those of the row.
        of_what: what the parts are, for the message.
    """
    sums = GroupCounts(
        records=sum(part.counts.records for part in parts),
        right=sum(part.counts.right for part in parts),
        named=sum(part.counts.named for part in parts),
        certified=_sum_for_each_k([part.counts.certified for part in parts]),
        certified_and_right=_sum_for_each_k([part.counts.certified_and_right for part in parts]),
    )
    for name in ("records", "right", "certified", "certified_and_right"):
        recorded = getattr(total.counts, name)
        summed = getattr(sums, name)
        total.require(
            recorded == summed, f"{name} is {recorded}, but the rows of {of_what} sum to {summed}"
        )
    # An answer may name a class that no record of these rows has, and is then in no precision.
    total.require(
        sums.named <= total.counts.records,
        f"the precisions of {of_what} count {sums.named} answers of {total.counts.records} records",
    )


def _sum_for_each_k(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sums of several rows' counts, one sum for each k.

    Args:
        counts: the counts of each row, at least one, at the same values of k.
    """
    return tuple(sum(of_rows) for of_rows in zip(*counts, strict=True))


def _check_cells(row: GroupRow, ks: Sequence[int], end: int | None, majority: int | None) -> None:
    """Raise Broken unless the cells of a row follow from its counts.

    The interval of the AUC follows from single scores, so it is taken as it is.

    Args:
        row: the row.
        ks: the values of k of certified shares.
        end: the last k that was trained; None: every k is known.
        majority: the records of the most frequent class; None: it is a row of one class, or there
            are no labels.
    """
    cells = row.cells
    counts = row.counts
    records = counts.records
    labelled = cells["class"] is not None or majority is not None
    auc = None
    if majority is not None and cells["auc"] is not None:
        auc = RateEstimate(cells["auc"], cells["auc_low"], cells["auc_high"])
    held = counts.certified_and_right if labelled else ()
    derived = Subgroup(
        column=cells["column"],
        value=cells["value"],
        label=cells["class"],
        records=records,
        majority=None if majority is None else share_estimate(majority, records),
        accuracy=share_estimate(counts.right, records) if labelled else None,
        precision=share_estimate(counts.right, counts.named) if counts.named else None,
        auc=auc,
        certified={
            k: share_estimate(n, records) for k, n in zip(ks, counts.certified, strict=True)
        },
        certified_and_correct={
            k: share_estimate(n, records) for k, n in zip(ks, held, strict=False)
        },
        distance=cells["stable_distance_median"],
        grid_end=end,
    ).row
    if LOWER_BOUND not in cells:
        del derived[LOWER_BOUND]  # a version before 0.10
    check_match(f"line {row.line} of {QUALITY}", cells, "its counts", derived)


def _check_order(row: GroupRow, ks: Sequence[int]) -> None:
    """Raise Broken unless counts of certified answers, and their median, are possible.

    Args:
        row: the row.
        ks: the values of k of certified shares.
    """
    counts = row.counts
    right = (counts.right, *counts.certified_and_right)
    certified_wrong = [
        both - held for both, held in zip(counts.certified, counts.certified_and_right, strict=True)
    ]
    wrong = (counts.records - counts.right, *certified_wrong)
    for numbers in (right, wrong):
        falling = all(later <= earlier for earlier, later in pairwise(numbers))
        row.require(
            falling and numbers[-1] >= 0,
            f"more answers are certified at a larger k (right ones {right}, wrong ones {wrong})",
        )
    median = row.cells["stable_distance_median"]
    row.require((median is None) == (not ks), "a median stable distance needs certified shares")
    if median is None:
        return
    # The middle answers, in the order of their distances: the same one twice for an odd number.
    certified = list(zip(ks, counts.certified, strict=True))
    low = high = 0.0
    for index in ((counts.records - 1) // 2, counts.records // 2):
        reached = [k for k, n in certified if n >= counts.records - index]
        missed = [k for k, n in certified if n < counts.records - index]
        low += max(reached, default=0) / 2
        high += (min(missed) - 1 if missed else math.inf) / 2
    row.require(
        low <= median <= high,
        f"the median stable distance is {median:g}, but by the certified shares it is from "
        f"{low:g} to {high:g}",
    )
