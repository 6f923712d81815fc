"""How good a model of numbers is: RMSE, MAE and R^2 with intervals, compared with constant answers.

All results depend on private records, so they are for the data owner only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from agt.data.arrays import ROWS
from agt.data.records import Records
from agt.models.constant_answers import MINIMUM_RECORDS
from agt.models.number_votes import NumberVotes
from agt.store.json_text import Metrics
from agt_cli.report.console import Console
from agt_cli.report.markdown import Markdown, markdown_table
from agt_cli.report.quality import NORMAL_QUANTILE, Estimate, ModelQuality

_TITLES = ("answers", "RMSE", "MAE", "R²")


def format_number(value: float) -> str:
    """Return a number as tables and sentences about numbers write it, with four digits."""
    return f"{value:.4g}"


class NumberEstimate(Estimate):
    """An error, in the unit of the labels or as a share, with its interval."""

    def __str__(self) -> str:
        """Return the value and its interval: 2.631 [2.581, 2.680]."""
        low = format_number(self.low)
        high = format_number(self.high)
        return f"{format_number(self.value)} [{low}, {high}]"


def rmse(errors: np.ndarray) -> NumberEstimate:
    """Return the root mean squared error, with the root of the mean square's normal interval.

    Args:
        errors: [n] answers less labels, at least one.
    """
    mean_square = _mean_estimate(errors**2)
    low = max(mean_square.low, 0.0)
    interval = np.sqrt([mean_square.value, low, mean_square.high]).tolist()
    return NumberEstimate(*interval)


def mae(errors: np.ndarray) -> NumberEstimate:
    """Return the mean absolute error, with its normal interval.

    Args:
        errors: [n] answers less labels, at least one.
    """
    mean = _mean_estimate(np.abs(errors))
    return NumberEstimate(mean.value, max(mean.low, 0.0), mean.high)


def r_squared(errors: np.ndarray, labels: np.ndarray) -> NumberEstimate | None:
    """Return R^2, the share of the labels' variance that answers explain; None: labels are equal.

    The interval is normal, with the variance of the first-order influence of each record.

    Args:
        errors: [n] answers less labels, at least one.
        labels: [n] the labels.
    """
    deviations = (labels - labels.mean()) ** 2
    variance = float(deviations.mean())
    if not variance > 0:
        return None
    value = 1 - float((errors**2).mean()) / variance
    influence = -(errors**2 - (1 - value) * deviations) / variance
    half = _half_width(influence)
    return NumberEstimate(value, value - half, min(value + half, 1.0))


def _mean_estimate(values: np.ndarray) -> NumberEstimate:
    """Return the mean of values [n] with its normal interval."""
    value = float(values.mean())
    half = _half_width(values)
    return NumberEstimate(value, value - half, value + half)


def _half_width(values: np.ndarray) -> float:
    """Return half of the width of the normal interval of a mean of values [n]."""
    if len(values) < 2:
        return 0.0
    return NORMAL_QUANTILE * float(values.std(ddof=1)) / len(values) ** 0.5


@dataclass(frozen=True)
class NumberErrors:
    """The errors of some answers: of the model, or of something simpler.

    Attributes:
        answers: the name of what gave the answers, such as "model" or "one_ridge".
        records: the number of answers.
        rmse, mae: the root mean squared and the mean absolute error.
        r2: R^2; None: all labels are equal.
    """

    answers: str
    records: int
    rmse: NumberEstimate
    mae: NumberEstimate
    r2: NumberEstimate | None

    @classmethod
    def from_answers(cls, name: str, answers: np.ndarray, labels: np.ndarray) -> "NumberErrors":
        """Return the errors of answers [n], given the labels [n], at least one."""
        errors = answers - labels
        return cls(name, len(labels), rmse(errors), mae(errors), r_squared(errors, labels))

    @property
    def estimates(self) -> dict[str, NumberEstimate | None]:
        """Name of an error -> its estimate."""
        return {"rmse": self.rmse, "mae": self.mae, "r2": self.r2}

    @property
    def row(self) -> dict[str, object]:
        """The row of tables/quality.csv: each error with the ends of its interval."""
        row: dict[str, object] = {"answers": self.answers, "records": self.records}
        for name, estimate in self.estimates.items():
            row |= dict.fromkeys((name, f"{name}_low", f"{name}_high"))
            if estimate is not None:
                row |= estimate.as_columns(name)
        return row

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of a table that readers see."""
        shown = ["-" if estimate is None else str(estimate) for estimate in self.estimates.values()]
        return (self.answers.replace("_", " "), *shown)


def metrics_of_errors(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the metrics that follow from the rows of tables/quality.csv of a model of numbers.

    Args:
        rows: the rows that ``NumberErrors.row`` returns; a missing number is None or NaN.

    Raises:
        ValueError: an error is not inside its interval.
    """
    metrics = dict[str, float]()
    for row in rows:
        for name in ("rmse", "mae", "r2"):
            if pd.isna(row[name]):
                continue
            estimate = NumberEstimate(row[name], row[f"{name}_low"], row[f"{name}_high"])
            if row["answers"] == "model":
                metrics |= estimate.as_columns(name)
            else:
                answers = row["answers"]
                metrics[f"{name}_of_{answers}"] = estimate.value
    return metrics


@dataclass(frozen=True)
class NumberQuality(ModelQuality):
    """How good answers are on some records.

    Attributes:
        records: a description of the records, such as "test records".
        labels: [n] the true labels; None: not known.
        prediction: [n] the model's answers.
        baselines: name -> [n] the answers of something simpler, such as always the median.
    """

    records: str
    labels: np.ndarray | None
    prediction: np.ndarray
    baselines: Mapping[str, np.ndarray]

    @cached_property
    def errors(self) -> list[NumberErrors]:
        """The errors of the model, then of each baseline; none without labels."""
        if self.labels is None:
            return []
        answers = {"model": self.prediction, **self.baselines}
        return [
            NumberErrors.from_answers(name, given, self.labels) for name, given in answers.items()
        ]

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row of tables/quality.csv for the model and for each baseline."""
        return [errors.row for errors in self.errors]

    @property
    def metrics(self) -> Metrics:
        """The metrics of the model and its baselines; none without labels."""
        metrics: Metrics = {**metrics_of_errors(self.rows)}
        if self.verdict:
            metrics["verdict"] = self.verdict
        return metrics

    def section(self) -> list[str]:
        """Return the part of a page about errors: a title, a table, how to read it."""
        if not self.errors:
            return ["## Errors", "The queries have no labels, so the errors are not known."]
        rows = []
        for errors in self.errors:
            name, *estimates = errors.cells
            rows.append((name, *map(Markdown, estimates)))  # their brackets are no links
        return [
            "## Errors",
            markdown_table(_TITLES, rows),
            "Intervals are normal 95 % confidence intervals for independent records. 'median' "
            "always answers the median of the labels; 'one ridge' is one ridge regression on all "
            "training records, with the features of this model (columns coded in bins) and without "
            "certificates. The Ridge of agt start takes numbers as they are, so it has another "
            "error.",
        ]

    def print_to(self, console: Console) -> None:
        """Print the table of errors; the caller prints the verdict before anything else."""
        if self.errors:
            rows = [errors.cells for errors in self.errors]
            console.table(f"errors on {self.records}", _TITLES, rows)

    @cached_property
    def verdict(self) -> str:
        """A sentence that the model is not better than a constant answer; empty: it is, or this is
        not known.
        """
        if self.labels is None or len(self.labels) < MINIMUM_RECORDS:
            return ""
        constant = self.baselines["median"]
        model_squares = (self.prediction - self.labels) ** 2
        constant_squares = (constant - self.labels) ** 2
        difference = _mean_estimate(constant_squares - model_squares)
        if difference.low > 0:
            return ""
        model = format_number(float(model_squares.mean()) ** 0.5)
        median = format_number(float(constant_squares.mean()) ** 0.5)
        return (
            f"On the {len(self.labels):,} {self.records}, this model is not significantly better "
            f"than a constant answer: its RMSE is {model}, while always answering the median has "
            f"{median}."
        )


def evaluate_numbers(
    model: NumberVotes,
    records: str,
    queries: Records,
    labels: np.ndarray | None,
    prediction: np.ndarray,
    train: Records | None = None,
) -> NumberQuality:
    """Return how good a model's answers are, compared with simpler ones.

    Args:
        model: the model.
        records: a description of the queries.
        queries: the queries, as the model takes them.
        labels: [n] their true labels; None: not known.
        prediction: [n] the model's answers.
        train: the training records, from which the baselines are taken: always their median, and
            one ridge regression on all of them. None: always the median of the queries' labels,
            which is the best constant there is for them.
    """
    baselines: dict[str, np.ndarray] = {}
    if labels is not None:
        baseline_labels = labels if train is None else train.labels
        baselines["median"] = np.full(len(labels), float(np.median(baseline_labels)))
        if train is not None:
            baselines["one_ridge"] = _answers_of_one_ridge(model, train, queries)
    return NumberQuality(records, labels, prediction, baselines)


def _answers_of_one_ridge(model: NumberVotes, train: Records, queries: Records) -> np.ndarray:
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
