"""How good a model is, and for whom: rates with intervals beside what a constant answer would
reach, over all and by group.

Everything here is about the records that are looked at, and depends on what the model was trained
on: for the data owner alone. Certificates do not ask whether an answer is right, and a constant one
never changes: so a model that is no better than always answering the most frequent class is named
in one line (``Quality.verdict``).

Sources: Clopper and Pearson (1934) for rates; DeLong et al. (1988) for the area under the ROC
curve.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # whose parts load when they are first used

from agt.models.constant_answers import (
    MINIMUM_RECORDS,
    advantage_over_constant,
    is_nearly_constant,
)
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, markdown_table, plain

LEVEL = 0.95  # of every interval
LARGEST_BELOW_ONE = 0.999  # of three digits
ALWAYS_CERTIFIED = "A constant answer is always certified, however inaccurate it is"
CONSOLE_K = 20  # the k of certified shares that the console shows
CONSOLE_ROWS = 20
NO_BREAK = "\u00a0"  # an interval stays in one line
_TAIL = (1 - LEVEL) / 2
NORMAL_QUANTILE = 1.959963984540054  # the normal quantile at 1 - _TAIL


def rate_words(value: float | None) -> str:
    """Return a share as every table, figure and sentence writes it: 0.845; '-' for None.

    1.000 is all and no less: a share just below 1 is written as 0.999.
    """
    if value is None:
        return "-"
    shown = value if value >= 1 else min(value, LARGEST_BELOW_ONE)
    return f"{shown:.3f}"


def right_rate(unchanged: float, accuracy: float, classes: int) -> float:
    """How often labels are right, of which noise leaves a share unchanged: an estimate.

    It is as if noise met right and wrong answers alike, and changed each to any other class. What
    is near to a change is wrong more often than the rest, so it is usually a little low.

    Args:
        accuracy: how often answers without noise are right; at 1, ``unchanged`` itself.
    """
    return unchanged * accuracy + (1 - unchanged) * (1 - accuracy) / (classes - 1)


@dataclass(frozen=True)
class Estimate:
    """A number with an interval that covers the true one in about 95 of 100 samples.

    Attributes:
        value: on the records that were looked at.
        low, high: the ends of the interval.
    """

    value: float
    low: float
    high: float

    def named(self, name: str) -> dict[str, float]:
        """Return the value and the ends of the interval under a name, as tables have them."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


@dataclass(frozen=True)
class RateEstimate(Estimate):
    """A share or an area under a curve, with its interval: 0 <= low <= value <= high <= 1.

    Raises:
        ValueError: they are not in that order, or no numbers.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.value <= self.high <= 1:  # NaN compares false
            raise ValueError(
                f"the estimate {self.value} is not inside its interval [{self.low}, {self.high}]"
            )

    def __str__(self) -> str:
        return self.with_interval(" ")

    def with_interval(self, space: str) -> str:
        """The value and its interval, whose ends are a comma and a ``space`` apart."""
        return f"{rate_words(self.value)} [{rate_words(self.low)},{space}{rate_words(self.high)}]"


def share(count: float, total: float) -> RateEstimate | None:
    """``count`` of ``total`` with the interval of Clopper and Pearson, which never covers less
    than it says; of 0: None.
    """
    if not total:
        return None
    low = float(scipy.special.betaincinv(count, total - count + 1, _TAIL)) if count > 0 else 0.0
    high = (
        float(scipy.special.betaincinv(count + 1, total - count, 1 - _TAIL))
        if count < total
        else 1.0
    )
    value = count / total
    return RateEstimate(value, min(low, value), max(high, value))


def auc(labels: np.ndarray, scores: np.ndarray) -> RateEstimate | None:
    """Area under the ROC curve: how often a record of a class scores higher than one of another;
    ties count a half.

    Of more than two classes the mean over classes of each against the rest. The interval is
    DeLong's, on the logit scale; where the variance cannot be estimated (classes that do not
    overlap, a class of one record) that of Clopper and Pearson for as many independent pairs as the
    rarest class can form: wider.

    Args:
        labels: [n] class indices.
        scores: [1, n] in favour of class 1, or [C, n] in favour of each.

    Returns:
        None where only one class occurs.
    """
    areas, pull, fewest = [], np.zeros(len(labels)), len(labels)
    for which, line in enumerate(scores, start=len(scores) == 1):
        positive = labels == which
        count = int(positive.sum())
        if not 0 < count < len(labels):
            continue
        fewest = min(fewest, count, len(labels) - count)
        inside, outside = np.sort(line[positive]), np.sort(line[~positive])
        above, below = _placed(line[positive], outside), 1 - _placed(line[~positive], inside)
        areas.append(above.mean())
        pull[positive] += _pull(above)
        pull[~positive] += _pull(below)
    if not areas:
        return None
    area, variance = (
        float(np.clip(np.mean(areas), 0, 1)),
        float((pull / len(areas)) @ (pull / len(areas))),
    )
    if fewest < 2 or not variance > 0 or not 0 < area < 1:
        return share(area * fewest, fewest)
    spread = NORMAL_QUANTILE * variance**0.5 / (area * (1 - area))
    low, high = (
        float(scipy.special.expit(scipy.special.logit(area) + by)) for by in (-spread, spread)
    )
    return RateEstimate(area, min(low, area), max(high, area))


def _placed(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    # The share of sorted ``others`` that each value is above; of those it equals, a half.
    return (np.searchsorted(others, values, "left") + np.searchsorted(others, values, "right")) / (
        2 * len(others)
    )


def _pull(placed: np.ndarray) -> np.ndarray:
    # How far each record moves the area: squares sum to DeLong's variance, sum (V - mean)^2 / (n (n
    # - 1)).
    n = len(placed)
    return (placed - placed.mean()) / max(n * (n - 1), 1) ** 0.5


@dataclass(frozen=True)
class Subgroup:
    """Some records: all of them, those of a class, of a subgroup, or of both.

    Attributes:
        column, value: of the subgroup; None: everybody.
        label: the class; None: every class.
        records: how many, >= 1.
        majority: share of the most frequent class: what always answering it would reach; None for a
            class, or no labels.
        accuracy: share of right answers; for a class this is its recall.
        precision: of a class, the share of right answers among those that name it; None if no
            answer does.
        auc: as ``auc``; None for a class, where one class alone occurs, or without labels.
        certified: k -> share of records whose label is certified up to k.
        held: k -> share of records that are certified up to k, and right.
        distance: median stable distance; None if nothing was certified.
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
    held: Mapping[int, RateEstimate]
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
        for k, estimate in self.held.items():
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
                row |= known.named(name)
        row["stable_distance_median"] = self.distance
        row["stable_distance_median_is_lower_bound"] = self.median_is_lower_bound
        return row

    @property
    def is_class_of_subgroup(self) -> bool:
        """Whether these are the records of one class within a subgroup."""
        return self.column is not None and self.label is not None

    @property
    def median_is_lower_bound(self) -> bool | None:
        """Whether the median is cut off at the last k that was trained; None: not certified."""
        return None if self.distance is None else self.distance == self.grid_end

    @property
    def median_distance(self) -> str:
        """The median stable distance; "at least 10" where it is the last k that was trained."""
        if self.distance is None:
            return "-"
        if self.median_is_lower_bound:
            return f"at least {self.distance:g}"
        return f"{self.distance:g}"


@dataclass(frozen=True, eq=False)
class Judged:
    """Records with what a model says of them.

    Attributes:
        classes: names of the label values 0, 1, ...
        records: what they are, in words: "test records".
        labels: [n] the true class indices; None: not known.
        prediction: [n] the model's.
        scores: [1, n] signed margins of two classes, or [C, n] each class's; None: none.
        distance: [n] stable distances; None: not certified.
        groups: column -> [n] the value of each record.
        ks: at which k certified shares are told.
        grid_end: the last k that was trained, beyond which no distance is known; None: every k is.
        rounding_warning: that answers are not certified even at k = 0, and the remedy; empty: all
            are.
        distance_warning: that half of the answers have stable distance 0; empty: fewer, or not
            known.
        constant_remedy: what to change if the model is nearly constant; empty: it is not said.
    """

    classes: Sequence[str]
    records: str
    labels: np.ndarray | None
    prediction: np.ndarray
    scores: np.ndarray | None = None
    distance: np.ndarray | None = None
    groups: Mapping[str, np.ndarray] | None = None
    ks: tuple[int, ...] = ()
    grid_end: int | None = None
    rounding_warning: str = ""
    distance_warning: str = ""
    constant_remedy: str = ""

    @property
    def score(self) -> np.ndarray | None:
        """[n] one number for each answer: in favour of class 1, of two; else the lead of the
        answer over the next class.
        """
        if self.scores is None:
            return None
        return self.scores[0] if len(self.scores) == 1 else self.scores.max(axis=0)

    def group(
        self, place: np.ndarray, column: str | None, value: str | None, label: int | None
    ) -> Subgroup:
        """The records at ``place``, [n] bool, that have this label; at least one."""
        whole, named = (
            label is None or self.labels is None,
            self.prediction == (-1 if label is None else label),
        )
        rows = place if label is None or self.labels is None else place & (self.labels == label)
        labels, n = None if self.labels is None else self.labels[rows], int(rows.sum())
        right = (
            np.zeros(len(rows), dtype=bool)
            if self.labels is None
            else rows & (self.prediction == self.labels)
        )
        far = {} if self.distance is None else {k: rows & (self.distance >= k) for k in self.ks}
        return Subgroup(
            column=column,
            value=value,
            label=None if label is None else self.classes[label],
            records=n,
            majority=share(int(np.bincount(labels).max()), n)
            if whole and labels is not None
            else None,
            accuracy=None if labels is None else share(int(right.sum()), n),
            precision=None
            if whole
            else share(int((right & named).sum()), int((place & named).sum())),
            auc=auc(labels, self.scores[:, rows])
            if whole and labels is not None and self.scores is not None
            else None,
            certified=_shares(far, n),
            held={} if labels is None else _shares({k: mask & right for k, mask in far.items()}, n),
            distance=None if self.distance is None else float(np.median(self.distance[rows])),
            grid_end=self.grid_end,
        )

    def parts(self) -> Iterator[Subgroup]:
        """Everybody, then each class, then each subgroup with its classes; what has no record is
        left out.
        """
        everyone = np.ones(len(self.prediction), dtype=bool)
        places: list[tuple[str | None, str | None, np.ndarray]] = [(None, None, everyone)]
        for name, values in (self.groups or {}).items():
            places += [
                (name, str(value), values == value) for value in sorted(set(values.tolist()))
            ]
        for column, value, rows in places:
            yield self.group(rows, column, value, None)
            present = [] if self.labels is None else np.unique(self.labels[rows]).tolist()
            yield from (self.group(rows, column, value, label) for label in present)


def _shares(masks: Mapping[int, np.ndarray], n: int) -> dict[int, RateEstimate]:
    made = {k: share(int(mask.sum()), n) for k, mask in masks.items()}
    return {k: estimate for k, estimate in made.items() if estimate is not None}


class AnyQuality(ABC):
    """How good a model of classes or of numbers is, as records, pages and consoles show it.

    Attributes:
        records: the records that were looked at, in words.
    """

    records: str

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What a reader must know first, such as that a model is of no use; empty: nothing."""

    @property
    def explanation(self) -> str:
        """What a verdict means and how to do better, for whoever trains; empty: nothing."""
        return ""

    @property
    @abstractmethod
    def rows(self) -> list[dict[str, object]]:
        """The rows of tables/quality.csv."""

    @property
    @abstractmethod
    def metrics(self) -> dict[str, float | int | str]:
        """Flat numbers about all records; what is not known is left out."""

    @abstractmethod
    def section(self) -> list[str]:
        """Return the part of a page that says how good a model is: a title, a table, a legend."""

    @abstractmethod
    def say(self, console: Console) -> None:
        """Print the table; the caller prints the verdict before anything else."""


@dataclass(frozen=True)
class Quality(AnyQuality):
    """How good a model is on some records.

    Attributes:
        records: what they are, in words.
        groups: everybody first; then classes and subgroups.
        majority: name of the most frequent class of these records; None without labels.
        answer: name of the most frequent answer.
        exceptions: how many records are answered otherwise.
        advantage: 1 or -1 where accuracy differs from the majority's (sign test on the records
            where just one of the two is right, at the level of the intervals), else 0.
        balanced: mean recall of the classes that occur; None without labels.
        constant: whether (nearly) all answers are the same, and hardly better for the others
            (``is_nearly_constant``).
        rounding_warning, distance_warning, constant_remedy: as of ``Judged``.
    """

    records: str
    groups: tuple[Subgroup, ...]
    majority: str | None
    answer: str
    exceptions: int
    advantage: int
    balanced: float | None
    constant: bool
    rounding_warning: str = ""
    distance_warning: str = ""
    constant_remedy: str = ""

    @classmethod
    def of(cls, judged: Judged) -> "Quality":
        """From at least one record."""
        groups = tuple(judged.parts())
        answers = np.bincount(judged.prediction, minlength=len(judged.classes))
        answer, exceptions = (
            judged.classes[int(answers.argmax())],
            int(answers.sum() - answers.max()),
        )
        constant = is_nearly_constant(judged.prediction, judged.labels)
        doubts = (
            constant,
            judged.rounding_warning,
            judged.distance_warning,
            judged.constant_remedy,
        )
        if judged.labels is None:
            return cls(judged.records, groups, None, answer, exceptions, 0, None, *doubts)
        often = int(np.bincount(judged.labels).argmax())
        advantage = advantage_over_constant(judged.prediction, judged.labels)
        recalls = [
            g.accuracy.value
            for g in groups
            if g.column is None and g.label is not None and g.accuracy is not None
        ]
        balanced = float(np.mean(recalls))
        return cls(
            judged.records,
            groups,
            judged.classes[often],
            answer,
            exceptions,
            advantage,
            balanced,
            *doubts,
        )

    @property
    def whole(self) -> Subgroup:
        """Everybody."""
        return self.groups[0]

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row of tables/quality.csv for each group."""
        return [group.row for group in self.groups]

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Flat numbers about all records; what is not known is left out."""
        whole = self.whole
        metrics: dict[str, float | int | str] = {}
        if whole.accuracy is not None:
            metrics |= whole.accuracy.named("accuracy")
        if whole.auc is not None:
            metrics |= whole.auc.named("auc")
        if whole.majority is not None and self.balanced is not None:
            metrics["majority_rate"] = whole.majority.value
            metrics["balanced_accuracy"] = self.balanced
        metrics["constant"] = int(self.constant)
        if self.verdict:
            metrics["verdict"] = self.verdict
        for k, estimate in whole.certified.items():
            metrics[f"certified_fraction_k{k}"] = estimate.value
        return metrics

    def section(self) -> list[str]:
        """Return the part of a page about accuracy: a title, a table, how to read it."""
        columns, rows = self._table(self.groups, self.whole.certified, space=" ")
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
            majority = plain(self.majority)
            legend += (
                " The column 'majority' is, for each group, the accuracy of always giving the "
                "most frequent class of this group. In all records together, the most frequent "
                f"class is '{majority}'. The file `tables/quality.csv` also has the fractions of "
                "answers that are both certified and correct."
            )
        return [title, markdown_table(columns, rows), legend]

    def say(self, console: Console) -> None:
        """Print the table of groups; its caller prints the verdict before anything else."""
        whole = self.whole
        title = f"{self.records}, unlabelled"
        if whole.accuracy is not None and whole.majority is not None:
            baseline = rate_words(whole.majority.value)
            title = (
                f"{self.records}: accuracy {whole.accuracy}; "
                f"majority-class baseline (always '{self.majority}'): {baseline}"
            )
        if self.constant_note:
            title = f"{title}; {self.constant_note}"
        groups = [group for group in self.groups if not group.is_class_of_subgroup]
        ks = [*whole.certified]
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
            ks: at which certified shares are shown.
            space: what parts the words of a heading.
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
        if self.whole.distance is not None:
            columns[f"median{space}distance"] = [group.median_distance for group in groups]
        return tuple(columns), list(zip(*columns.values(), strict=True))

    @property
    def constant_note(self) -> str:
        """What stands beside certified shares of a constant model, which look excellent.

        Empty where the model is not nearly constant.
        """
        if not self.constant:
            return ""
        return "nearly constant answer" if self.exceptions else "constant answer"

    @cached_property
    def verdict(self) -> str:
        """What a reader must know first: answers without any certificate, or a model that is of no
        use or cannot be judged; empty: nothing of the kind is seen.
        """
        return " ".join(filter(None, (self.rounding_warning, self._usefulness)))

    @property
    def _usefulness(self) -> str:
        n = self.whole.records
        records = f"{self.whole.records:,} {self.records}"
        if n < MINIMUM_RECORDS or (self.majority is None and not self.constant):
            return ""
        which = "each of"
        nearly = ""
        if self.exceptions:
            which = f"all but {self.exceptions:,} of"
            nearly = "nearly "
        constant = (
            f"This model answers '{self.answer}' for {which} the {records}, so it is "
            f"{nearly}constant"
        )
        if self.majority is None or self.whole.accuracy is None or self.whole.majority is None:
            if self.rounding_warning:
                return f"{constant} here."
            return (
                f"{constant} here. {ALWAYS_CERTIFIED} (there are no labels, so the accuracy is "
                "unknown)."
            )
        if self.whole.majority.value == 1:
            return (
                f"All {records} have the label '{self.majority}', so a constant answer would "
                "be as accurate, and the accuracy says little about the model."
            )
        baseline = rate_words(self.whole.majority.value)
        accuracy = self.whole.accuracy
        against = (
            f"its accuracy is {accuracy}, while always answering '{self.majority}' has "
            f"accuracy {baseline}"
        )
        if self.constant:
            return f"{constant}: {against}."
        if self._ranks:
            against = f"{against}. However, {self._ranks}"
        if self.advantage == 1:
            return ""
        better = (
            "significantly worse than a constant answer"
            if self.advantage
            else "not significantly better than a constant answer"
        )
        return f"On the {records}, this model is {better}: {against}."

    @property
    def explanation(self) -> str:
        """What it means that a model is nearly constant, and how to do better; empty: it is not."""
        if not self.constant or not self.constant_remedy:
            return ""
        sentences = [] if self.rounding_warning else [ALWAYS_CERTIFIED]
        if self._ranks:
            sentences.append(f"However, {self._ranks}")
        sentences.append(self.constant_remedy)
        return "".join(f"{sentence}. " for sentence in sentences).strip()

    @property
    def _ranks(self) -> str:
        area = self.whole.auc
        return (
            f"the model's scores do rank the classes (AUC {area})"
            if area is not None and area.low > 0.5
            else ""
        )


def _rate_cell(estimate: RateEstimate | None) -> str:
    return "-" if estimate is None else rate_words(estimate.value)


def _estimate_cell(estimate: RateEstimate | None) -> str:
    if estimate is None:
        return "-"
    return Markdown(estimate.with_interval(NO_BREAK))  # its brackets are no link
