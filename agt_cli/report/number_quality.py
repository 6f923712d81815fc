"""How good a model of numbers is: RMSE, MAE and R^2 with intervals, beside constant answers.

Everything here is about the records that are looked at, and depends on what the model was trained
on: for the data owner alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from agt_cli.report.quality import LEAST, LEVEL

_Z = float(ndtri((1 + LEVEL) / 2))  # of the two-sided interval


def number_words(value: float) -> str:
    """Return a number as tables and sentences about numbers write it, with four digits."""
    return f"{value:.4g}"


@dataclass(frozen=True)
class NumberEstimate:
    """An error with an interval that covers the true one in about 95 of 100 samples.

    Attributes:
        value: on the records that were looked at.
        low, high: the ends of the interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the value and its interval: 2.631 [2.581, 2.680]."""
        low = number_words(self.low)
        high = number_words(self.high)
        return f"{number_words(self.value)} [{low}, {high}]"


def rmse(errors: np.ndarray) -> NumberEstimate:
    """Return the root mean squared error, with the root of the mean square's normal interval.

    Args:
        errors: [n] answers less labels, at least one.
    """
    mean_square = _mean(errors**2)
    low = max(mean_square.low, 0.0)
    ends = np.sqrt([mean_square.value, low, mean_square.high]).tolist()
    return NumberEstimate(*ends)


def mae(errors: np.ndarray) -> NumberEstimate:
    """Return the mean absolute error, with its normal interval.

    Args:
        errors: [n] answers less labels, at least one.
    """
    mean = _mean(np.abs(errors))
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


def _mean(values: np.ndarray) -> NumberEstimate:
    """Return the mean of values [n] with its normal interval."""
    value = float(values.mean())
    half = _half_width(values)
    return NumberEstimate(value, value - half, value + half)


def _half_width(values: np.ndarray) -> float:
    """Return half of the width of the normal interval of a mean of values [n]."""
    if len(values) < 2:
        return 0.0
    return _Z * float(values.std(ddof=1)) / len(values) ** 0.5


@dataclass(frozen=True)
class NumberQuality:
    """How good answers are on some records.

    Attributes:
        records: what they are, in words.
        labels: [n] the true labels; None: not known.
        baselines: name -> [n] the answers of something simpler, such as always the median.
        prediction: [n] the model's answers.
    """

    records: str
    labels: np.ndarray | None
    prediction: np.ndarray
    baselines: Mapping[str, np.ndarray]

    @cached_property
    def rows(self) -> list[dict[str, object]]:
        """One row for the model and for each baseline; none without labels."""
        if self.labels is None:
            return []
        answers = {"model": self.prediction, **self.baselines}
        return [self._row(name, given, self.labels) for name, given in answers.items()]

    @property
    def metrics(self) -> dict[str, float]:
        """Flat numbers about the model and its baselines; none without labels."""
        metrics = {}
        for row in self.rows:
            suffix = "" if row["answers"] == "model" else f"_of_{row['answers']}"
            for name in ("rmse", "mae", "r2"):
                estimate = row[name]
                if isinstance(estimate, NumberEstimate):
                    metrics[f"{name}{suffix}"] = estimate.value
                    if not suffix:
                        metrics[f"{name}_low"] = estimate.low
                        metrics[f"{name}_high"] = estimate.high
        return metrics

    @cached_property
    def verdict(self) -> str:
        """What a reader must know first: that a model is of no use; empty: nothing of the kind."""
        if self.labels is None or len(self.labels) < LEAST:
            return ""
        constant = self.baselines["median"]
        model_squares = (self.prediction - self.labels) ** 2
        constant_squares = (constant - self.labels) ** 2
        difference = _mean(constant_squares - model_squares)
        if difference.low > 0:
            return ""
        model = number_words(float(model_squares.mean()) ** 0.5)
        median = number_words(float(constant_squares.mean()) ** 0.5)
        return (
            f"On the {len(self.labels):,} {self.records}, this model is not significantly better "
            f"than a constant answer: its RMSE is {model}, while always answering the median has "
            f"{median}."
        )

    def _row(self, name: str, answers: np.ndarray, labels: np.ndarray) -> dict[str, object]:
        """Return the errors of some answers, as estimates."""
        errors = answers - labels
        return {
            "answers": name,
            "records": len(labels),
            "rmse": rmse(errors),
            "mae": mae(errors),
            "r2": r_squared(errors, labels),
        }
