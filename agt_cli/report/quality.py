"""How good a model of classes is, for all records and by group: rates with intervals, compared with
a constant answer.

All results depend on private records, so they are for the data owner only. A certificate does not
depend on whether an answer is right, and a constant answer never changes. So ``Quality.verdict``
says if a model is no better than always answering the most frequent class.

Sources: Clopper and Pearson (1934) for rates; DeLong et al. (1988) for the area under the ROC
curve.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import scipy  # whose parts load when they are first used

from agt.models.constant_answers import (
    MINIMUM_RECORDS,
    advantage_over_constant,
    is_nearly_constant,
)
from agt.store.json_text import Metrics
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, escape_markdown, markdown_table

CONFIDENCE = 0.95  # of every interval
LARGEST_SHOWN_BELOW_ONE = 0.999  # of three digits
ALWAYS_CERTIFIED = "A constant answer is always certified, however inaccurate it is"
CONSOLE_K = 20  # the k of certified shares that the console shows
CONSOLE_ROWS = 20
NO_BREAK = "\u00a0"  # an interval stays in one line
_TAIL_PROBABILITY = (1 - CONFIDENCE) / 2
NORMAL_QUANTILE = 1.959963984540054  # the normal quantile at 1 - _TAIL


def format_rate(value: float | None) -> str:
    """Return a share as every table, figure and sentence writes it: 0.845; '-' for None.

    1.000 is all and no less: a share just below 1 is written as 0.999.
    """
    if value is None:
        return "-"
    shown = value if value >= 1 else min(value, LARGEST_SHOWN_BELOW_ONE)
    return f"{shown:.3f}"


def accuracy_with_noise(unchanged: float, accuracy: float, classes: int) -> float:
    """Return an estimate of the accuracy of labels to which a mechanism added noise.

    It assumes that noise changes right and wrong answers equally often, and to each other class
    equally often. The true accuracy is mostly a little higher, because answers that are easily
    changed are wrong more often than others.

    Args:
        unchanged: the share of labels that noise leaves unchanged.
        accuracy: the accuracy without noise.
        classes: the number of classes.
    """
    return unchanged * accuracy + (1 - unchanged) * (1 - accuracy) / (classes - 1)


@dataclass(frozen=True)
class Estimate:
    """A number with an interval that covers the true one in about 95 of 100 samples.

    Attributes:
        value: the number for these records.
        low, high: the ends of the interval, between which the number lies.

    Raises:
        ValueError: it does not lie between them, or one of them is NaN.
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:  # NaN compares false
            raise ValueError(
                f"the estimate {self.value} is not inside its interval [{self.low}, {self.high}]"
            )

    def as_columns(self, name: str) -> dict[str, float]:
        """Return the value and the ends of the interval under a name, as tables have them."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True)
class RateEstimate(Estimate):
    """A share or an area under a curve, with its interval, which lies within [0, 1].

    Raises:
        ValueError: the value does not lie in the interval, one of the three numbers is NaN, or the
            interval does not lie within [0, 1].
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"the interval [{self.low}, {self.high}] is not within [0, 1]")

    def __str__(self) -> str:
        return self.with_interval(" ")

    def with_interval(self, space: str) -> str:
        """Return the value and its interval, with a comma and ``space`` between the ends."""
        return (
            f"{format_rate(self.value)} [{format_rate(self.low)},{space}{format_rate(self.high)}]"
        )


def share_estimate(count: float, total: float) -> RateEstimate:
    """Return the share ``count / total`` with the interval of Clopper and Pearson.

    The interval covers the true share with at least the probability ``CONFIDENCE``.

    Args:
        count: a number from 0 to ``total``, which need not be a whole number.
        total: the number of records, above 0.
    """
    low = 0.0
    if count > 0:
        low = float(scipy.special.betaincinv(count, total - count + 1, _TAIL_PROBABILITY))
    high = 1.0
    if count < total:
        high = float(scipy.special.betaincinv(count + 1, total - count, 1 - _TAIL_PROBABILITY))
    value = count / total
    return RateEstimate(value, min(low, value), max(high, value))


def auc_estimate(labels: np.ndarray, scores: np.ndarray) -> RateEstimate | None:
    """Return the area under the ROC curve, with an interval.

    It is the probability that a record of a class has a higher score than a record of another
    class, where ties count a half. For more than two classes it is the mean over the classes, each
    against the rest.

    The interval is DeLong's, on the logit scale. Its variance cannot be estimated if a class has
    only one record, or if the scores of classes do not overlap. The interval is then that of
    Clopper and Pearson, which is wider, for as many independent pairs as the rarest class can form.

    Args:
        labels: [n] class indices.
        scores: [1, n] in favour of class 1, or [C, n] in favour of each class.

    Returns:
        The estimate; None if only one class occurs.
    """
    areas = []
    deviations = np.zeros(len(labels))
    fewest = len(labels)
    first_class = 1 if len(scores) == 1 else 0
    for label, of_class in enumerate(scores, start=first_class):
        is_class = labels == label
        count = int(is_class.sum())
        if not 0 < count < len(labels):
            continue
        fewest = min(fewest, count, len(labels) - count)
        scores_of_class = of_class[is_class]
        other_scores = of_class[~is_class]
        above = _share_below(scores_of_class, np.sort(other_scores))
        below = 1 - _share_below(other_scores, np.sort(scores_of_class))
        areas.append(above.mean())
        deviations[is_class] += _scaled_deviations(above)
        deviations[~is_class] += _scaled_deviations(below)
    if not areas:
        return None
    deviations /= len(areas)
    area = float(np.clip(np.mean(areas), 0, 1))
    variance = float(deviations @ deviations)
    if fewest < 2 or not variance > 0 or not 0 < area < 1:
        return share_estimate(area * fewest, fewest)
    spread = NORMAL_QUANTILE * variance**0.5 / (area * (1 - area))
    logit = scipy.special.logit(area)
    low = float(scipy.special.expit(logit - spread))
    high = float(scipy.special.expit(logit + spread))
    return RateEstimate(area, min(low, area), max(high, area))


def _share_below(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the share of other values that are below each value, where equal ones count a half.

    Args:
        values: [n].
        others: [m], sorted.
    """
    below = np.searchsorted(others, values, "left")
    below_or_equal = np.searchsorted(others, values, "right")
    return np.asarray((below + below_or_equal) / (2 * len(others)))


def _scaled_deviations(values: np.ndarray) -> np.ndarray:
    """Return deviations from the mean, scaled so that their squares sum to the mean's variance.

    The sum is that of DeLong: sum (V - mean)^2 / (n (n - 1)).

    Args:
        values: [n] the shares V of the records of one side.
    """
    n = len(values)
    return (values - values.mean()) / max(n * (n - 1), 1) ** 0.5


@dataclass(frozen=True)
class Subgroup:
    """How good a model is on all records, or on those of a class, of a subgroup, or of both.

    Attributes:
        column: the column whose values are subgroups; None: all subgroups.
        value: the value of the column; None: all subgroups.
        label: the class; None: every class.
        records: the number of records, at least 1.
        majority: the share of the most frequent class, which is the accuracy of always answering
            it; None for a class, or without labels.
        accuracy: the share of right answers, which is the recall for a class; None without labels.
        precision: the share of right answers among those that name the class; None for all classes,
            or if no answer names the class.
        auc: the area under the ROC curve, as ``auc_estimate`` computes it; None for a class, if
            only one class occurs, or without labels.
        certified: k -> share of records whose label is certified up to k.
        certified_and_correct: k -> share of records whose label is certified up to k and right.
        distance: the median stable distance; None if nothing was certified.
        grid_end: the last k that was trained, beyond which no distance is known; None: every k is.
    """

    column: str | None
    value: str | None
    label: str | None
    records: int
    majority: RateEstimate | None
    accuracy: RateEstimate | None
    precision: RateEstimate | None
    auc: RateEstimate | None
    certified: Mapping[int, RateEstimate]
    certified_and_correct: Mapping[int, RateEstimate]
    distance: float | None
    grid_end: int | None = None

    @property
    def name(self) -> str:
        """The group's name: "sex = male, class yes"; "all" for everybody."""
        parts = []
        if self.column is not None:
            parts.append(f"{self.column} = {self.value}")
        if self.label is not None:
            parts.append(f"class {self.label}")
        return ", ".join(parts) or "all"

    @property
    def row(self) -> dict[str, object]:
        """The group's row of tables/quality.csv: each share with the ends of its interval."""
        shares = {
            "majority": self.majority,
            "accuracy_or_recall": self.accuracy,
            "precision": self.precision,
            "auc": self.auc,
        }
        for k, estimate in self.certified.items():
            shares[f"certified_k{k}"] = estimate
        for k, estimate in self.certified_and_correct.items():
            shares[f"certified_and_right_k{k}"] = estimate
        row: dict[str, object] = {
            "column": self.column,
            "value": self.value,
            "class": self.label,
            "records": self.records,
        }
        for name, known in shares.items():
            row |= dict.fromkeys((name, f"{name}_low", f"{name}_high"))
            if known is not None:
                row |= known.as_columns(name)
        row["stable_distance_median"] = self.distance
        row["stable_distance_median_is_lower_bound"] = self.median_is_lower_bound
        return row

    @property
    def is_class_of_subgroup(self) -> bool:
        """True: these are the records of one class in a subgroup."""
        return self.column is not None and self.label is not None

    @property
    def median_is_lower_bound(self) -> bool | None:
        """True: the median is cut off at the last k that was trained; None: not certified."""
        return None if self.distance is None else self.distance == self.grid_end

    @property
    def median_distance(self) -> str:
        """The median stable distance; "at least 10" where it is the last k that was trained."""
        if self.distance is None:
            return "-"
        if self.median_is_lower_bound:
            return f"at least {self.distance:g}"
        return f"{self.distance:g}"


def metrics_of_rates(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics that follow from the rows of tables/quality.csv of a model of classes.

    Args:
        rows: the rows that ``Subgroup.row`` returns, that of all records first; a missing number is
            None or NaN.

    Raises:
        ValueError: a share is not inside its interval, or not from 0 to 1.
    """
    shares = [
        {
            name: RateEstimate(row[name], row[f"{name}_low"], row[f"{name}_high"])
            for name in row
            if f"{name}_low" in row and pd.notna(row[name])
        }
        for row in rows
    ]
    all_records_shares = shares[0]
    metrics = dict[str, float]()
    for column, name in (("accuracy_or_recall", "accuracy"), ("auc", "auc")):
        if column in all_records_shares:
            metrics |= all_records_shares[column].as_columns(name)
    recalls = [
        share["accuracy_or_recall"].value
        for row, share in zip(rows, shares, strict=True)
        if pd.isna(row["column"]) and pd.notna(row["class"])
    ]
    if recalls:
        metrics["majority_rate"] = all_records_shares["majority"].value
        metrics["balanced_accuracy"] = float(np.mean(recalls))
    for column, estimate in all_records_shares.items():
        if re.fullmatch(r"certified_k\d+", column):
            k = column.removeprefix("certified_k")
            metrics[f"certified_fraction_k{k}"] = estimate.value
    return metrics


class ModelQuality(ABC):
    """How good a model of classes or of numbers is, as records, pages and consoles show it.

    Attributes:
        records: a description of the evaluated records, such as "test records".
    """

    records: str

    @property
    @abstractmethod
    def verdict(self) -> str:
        """The warning with which a report begins, such as that the model is of no use; empty:
        none.
        """

    @property
    def explanation(self) -> str:
        """Sentences on what the verdict means and how to get a better model; empty: none."""
        return ""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, object]]:
        """The rows of tables/quality.csv."""

    @property
    @abstractmethod
    def metrics(self) -> Metrics:
        """The metrics over all records by name, without those that are unknown."""

    @abstractmethod
    def section(self) -> list[str]:
        """Return the part of a page that says how good a model is: a title, a table, a legend."""

    @abstractmethod
    def print_to(self, console: Console) -> None:
        """Print the table; the caller prints the verdict before anything else."""


@dataclass(frozen=True, eq=False)
class Quality(ModelQuality):
    """A model's answers to at least one record, and how good they are.

    Attributes:
        classes: the names of the class indices 0, 1, ...
        records: what the records are, such as "test records".
        labels: [n] the true class indices; None: not known.
        prediction: [n] the class indices that the model answers.
        scores: [1, n] signed margins in favour of class 1, or [C, n] a score for each class; None:
            the model has none.
        distance: [n] stable distances; None: not certified.
        columns: column -> [n] the value of each record, by which subgroups are formed; None: no
            columns.
        ks: the values of k for which certified shares are computed.
        grid_end: the last k that was trained, beyond which no distance is known; None: every k is.
        rounding_warning: a sentence that answers are not certified even at k = 0, and the remedy;
            empty: all are.
        distance_warning: a sentence that half of the answers have stable distance 0; empty: fewer,
            or not known.
        constant_remedy: what to change if the model is nearly constant; empty: no advice.
    """

    classes: Sequence[str]
    records: str
    labels: np.ndarray | None
    prediction: np.ndarray
    scores: np.ndarray | None = None
    distance: np.ndarray | None = None
    columns: Mapping[str, np.ndarray] | None = None
    ks: tuple[int, ...] = ()
    grid_end: int | None = None
    rounding_warning: str = ""
    distance_warning: str = ""
    constant_remedy: str = ""

    @property
    def score(self) -> np.ndarray | None:
        """One number for each answer, [n]; None: the model has no scores.

        For two classes it is the margin in favour of class 1, else the largest score.
        """
        if self.scores is None:
            return None
        return self.scores[0] if len(self.scores) == 1 else self.scores.max(axis=0)

    @cached_property
    def groups(self) -> tuple[Subgroup, ...]:
        """All records, then each class, then each subgroup followed by its classes.

        Classes and subgroups without a record are left out.
        """
        everyone = np.ones(len(self.prediction), dtype=bool)
        groups = self._with_classes(everyone, None, None)
        for column, values in (self.columns or {}).items():
            for distinct in sorted(set(values.tolist())):
                groups += self._with_classes(values == distinct, column, str(distinct))
        return tuple(groups)

    def _with_classes(
        self, in_subgroup: np.ndarray, column: str | None, value: str | None
    ) -> list[Subgroup]:
        """Return a subgroup, followed by its classes; arguments as of ``_group``."""
        present = [] if self.labels is None else np.unique(self.labels[in_subgroup]).tolist()
        return [self._group(in_subgroup, column, value, label) for label in (None, *present)]

    def _group(
        self, in_subgroup: np.ndarray, column: str | None, value: str | None, label: int | None
    ) -> Subgroup:
        """Return how good the model is on a subgroup, or on the records of one class in it.

        Args:
            in_subgroup: [n] bool, the records of the subgroup.
            column: the column whose values are subgroups; None: all subgroups.
            value: the value of the column; None: all subgroups.
            label: the index of the class; None: every class. Without known labels it is None. There
                is at least one record.
        """
        rows = in_subgroup
        if label is not None:
            rows = in_subgroup & (self.labels == label)
        count = int(rows.sum())
        is_right = np.zeros(len(rows), dtype=bool)
        accuracy = None
        if self.labels is not None:
            is_right = rows & (self.prediction == self.labels)
            accuracy = share_estimate(int(is_right.sum()), count)
        precision = None
        majority = None
        auc = None
        if label is not None:
            named = int((in_subgroup & (self.prediction == label)).sum())
            if named:
                precision = share_estimate(int(is_right.sum()), named)
        elif self.labels is not None:
            labels = self.labels[rows]
            majority = share_estimate(int(np.bincount(labels).max()), count)
            if self.scores is not None:
                auc = auc_estimate(labels, self.scores[:, rows])
        distance = None
        certified: dict[int, RateEstimate] = {}
        certified_and_correct: dict[int, RateEstimate] = {}
        if self.distance is not None:
            distance = float(np.median(self.distance[rows]))
            for k in self.ks:
                is_certified = rows & (self.distance >= k)
                certified[k] = share_estimate(int(is_certified.sum()), count)
                if self.labels is not None:
                    both = int((is_certified & is_right).sum())
                    certified_and_correct[k] = share_estimate(both, count)
        return Subgroup(
            column=column,
            value=value,
            label=None if label is None else self.classes[label],
            records=count,
            majority=majority,
            accuracy=accuracy,
            precision=precision,
            auc=auc,
            certified=certified,
            certified_and_correct=certified_and_correct,
            distance=distance,
            grid_end=self.grid_end,
        )

    @property
    def majority(self) -> str | None:
        """The name of the most frequent class of these records; None without labels."""
        if self.labels is None:
            return None
        return self.classes[int(np.bincount(self.labels).argmax())]

    @property
    def answer(self) -> str:
        """The name of the most frequent answer."""
        return self.classes[int(np.bincount(self.prediction).argmax())]

    @property
    def exceptions(self) -> int:
        """How many records have another answer than ``answer``."""
        return len(self.prediction) - int(np.bincount(self.prediction).max())

    @cached_property
    def advantage(self) -> int:
        """1 or -1 if the model is significantly better or worse than always answering the majority
        class (sign test on the records where just one of the two is right, at the level of the
        intervals), else 0.
        """
        return 0 if self.labels is None else advantage_over_constant(self.prediction, self.labels)

    @cached_property
    def constant(self) -> bool:
        """True: nearly all answers are the same (``is_nearly_constant``)."""
        return is_nearly_constant(self.prediction, self.labels)

    @property
    def all_records(self) -> Subgroup:
        """All records."""
        return self.groups[0]

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row of tables/quality.csv for each group."""
        return [group.row for group in self.groups]

    @property
    def metrics(self) -> Metrics:
        """The metrics over all records by name, without those that are unknown."""
        metrics: Metrics = {**metrics_of_rates(self.rows)}
        metrics["constant"] = int(self.constant)
        if self.verdict:
            metrics["verdict"] = self.verdict
        return metrics

    def section(self) -> list[str]:
        """Return the part of a page about accuracy: a title, a table, how to read it."""
        columns, rows = self._table(self.groups, self.all_records.certified, space=" ")
        if self.constant_note:
            # All records are the first row.
            notes = [self.constant_note, *("" for _ in rows[1:])]
            columns = (*columns, "note")
            rows = [(*row, note) for row, note in zip(rows, notes, strict=True)]
        has_subgroups = any(group.column is not None for group in self.groups)
        title = "## Accuracy by class"
        if has_subgroups:
            title = f"{title} and subgroup"
        legend = (
            "Intervals are 95 % confidence intervals for independent records: by Clopper and "
            "Pearson for shares, by DeLong for the AUC. A certified answer can be wrong."
        )
        if self.majority:
            majority = escape_markdown(self.majority)
            legend += (
                " The column 'majority' is, for each group, the accuracy of always giving the "
                "most frequent class of this group. In all records together, the most frequent "
                f"class is '{majority}'. The file `tables/quality.csv` also has the fractions of "
                "answers that are both certified and correct."
            )
        return [title, markdown_table(columns, rows), legend]

    def print_to(self, console: Console) -> None:
        """Print the table of groups; its caller prints the verdict before anything else."""
        all_records = self.all_records
        title = f"{self.records}, unlabelled"
        if all_records.accuracy is not None and all_records.majority is not None:
            baseline = format_rate(all_records.majority.value)
            title = (
                f"{self.records}: accuracy {all_records.accuracy}; "
                f"majority-class baseline (always '{self.majority}'): {baseline}"
            )
        if self.constant_note:
            title = f"{title}; {self.constant_note}"
        groups = [group for group in self.groups if not group.is_class_of_subgroup]
        ks = [*all_records.certified]
        shown_ks = [CONSOLE_K] if CONSOLE_K in ks else ks[-1:]
        columns, rows = self._table(groups, shown_ks, space="\n")  # a heading has two lines
        console.table(title, columns, rows[:CONSOLE_ROWS])
        hidden = len(rows) - CONSOLE_ROWS
        if hidden > 0:
            console.say(
                f"number of groups that are not shown here: {hidden} "
                "(all are in tables/quality.csv)"
            )
        if self.distance_warning:
            console.say(self.distance_warning)

    def _table(
        self, groups: Sequence[Subgroup], ks: Iterable[int], space: str
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the names of the columns and a row of cells for each group.

        Columns of which nothing is known for any group are left out.

        Args:
            ks: the values of k at which certified shares are shown.
            space: the text between two words of a heading.
        """
        columns = {"": [group.name for group in groups]}
        columns["records"] = [f"{group.records:,}" for group in groups]
        if self.majority:
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
        if self.all_records.distance is not None:
            columns[f"median{space}distance"] = [group.median_distance for group in groups]
        return tuple(columns), list(zip(*columns.values(), strict=True))

    @property
    def constant_note(self) -> str:
        """A remark on the certified shares of a constant model, which look excellent.

        Empty where the model is not nearly constant.
        """
        if not self.constant:
            return ""
        return "nearly constant answer" if self.exceptions else "constant answer"

    @cached_property
    def verdict(self) -> str:
        """The warning with which a report begins: answers without certificates, or a model that is
        of no use or cannot be judged; empty: none.
        """
        return " ".join(filter(None, (self.rounding_warning, self._usefulness_sentence)))

    @property
    def _usefulness_sentence(self) -> str:
        """A sentence that the model is of no use or cannot be judged; empty: neither is so."""
        n = self.all_records.records
        records = f"{n:,} {self.records}"
        if n < MINIMUM_RECORDS or (self.majority is None and not self.constant):
            return ""
        extent = "each of"
        nearly = ""
        if self.exceptions:
            extent = f"all but {self.exceptions:,} of"
            nearly = "nearly "
        constant = (
            f"This model answers '{self.answer}' for {extent} the {records}, so it is "
            f"{nearly}constant"
        )
        if (
            self.majority is None
            or self.all_records.accuracy is None
            or self.all_records.majority is None
        ):
            if self.rounding_warning:
                return f"{constant} here."
            return (
                f"{constant} here. {ALWAYS_CERTIFIED} (there are no labels, so the accuracy is "
                "unknown)."
            )
        if self.all_records.majority.value == 1:
            return (
                f"All {records} have the label '{self.majority}', so a constant answer would "
                "be as accurate, and the accuracy says little about the model."
            )
        baseline = format_rate(self.all_records.majority.value)
        accuracy = self.all_records.accuracy
        against = (
            f"its accuracy is {accuracy}, while always answering '{self.majority}' has "
            f"accuracy {baseline}"
        )
        if self.constant:
            return f"{constant}: {against}."
        if self._ranking_clause:
            against = f"{against}. However, {self._ranking_clause}"
        if self.advantage == 1:
            return ""
        comparison = (
            "significantly worse than a constant answer"
            if self.advantage
            else "not significantly better than a constant answer"
        )
        return f"On the {records}, this model is {comparison}: {against}."

    @property
    def explanation(self) -> str:
        """Sentences on what a nearly constant model means and how to get a better one; empty: it is
        not.
        """
        if not self.constant or not self.constant_remedy:
            return ""
        sentences = [] if self.rounding_warning else [ALWAYS_CERTIFIED]
        if self._ranking_clause:
            sentences.append(f"However, {self._ranking_clause}")
        sentences.append(self.constant_remedy)
        return "".join(f"{sentence}. " for sentence in sentences).strip()

    @property
    def _ranking_clause(self) -> str:
        """A clause that the scores rank the classes, although answers are of no use; or empty."""
        area = self.all_records.auc
        if area is None or area.low <= 0.5:
            return ""
        return f"the model's scores do rank the classes (AUC {area})"


def _rate_cell(estimate: RateEstimate | None) -> str:
    """Return the cell of a share without its interval."""
    return format_rate(None if estimate is None else estimate.value)


def _estimate_cell(estimate: RateEstimate | None) -> str:
    """Return the cell of a share with its interval, whose brackets are no link in Markdown."""
    return "-" if estimate is None else Markdown(estimate.with_interval(NO_BREAK))
