"""Estimate whether released labels are worth their budget, for the data owner only.

The estimates depend on private data, and no guarantee covers them. So they are printed on the
terminal (stderr), and written into no file.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agt.data.records import Records
from agt.errors import first_line
from agt.mechanisms.claims import Claim
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.output import Output
from agt.mechanisms.planning import QueryEvidence
from agt.models.constant_answers import MINIMUM_RECORDS
from agt.models.number_votes import NumberVotes
from agt.release import AnyRelease, LabelRelease, WeightsRelease
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.quality import Quality, accuracy_with_noise, format_rate
from agt_cli.runs.queries import OpenedRun
from agt_cli.team import without_sharing

MAX_RECORDS_LINEAR = 10_000
"""How many queries an estimate uses at most, for a linear head."""
MAX_RECORDS = 1_000
"""The same for other models, whose certificates take more time."""
RANDOM_GUESSING = 0.2
"""Labels need force=true if noise leaves less than this share of the difference between the model's
accuracy and that of random labels.
"""
PRIVATE = "private, as is any choice that is based on it: "


def doubt_worth(request: PredictRequest, release: AnyRelease, claim: Claim) -> list[str]:
    """Print warnings for the owner, and return why labels would hardly be worth their budget.

    Only labels and weights with a proved claim are estimated, and only if something is newly drawn.
    An estimate that fails becomes a warning, because a release need not stop for it. If several
    processes share the release, each computes the estimate by itself: a failure in the middle of an
    exchange would leave the other processes waiting.

    Args:
        request: the request that agt predict received.
        release: the release as it was judged.
        claim: the claim of the release.

    Returns:
        The objections; empty: nothing speaks against the release, or nothing was estimated.
    """
    doubts = _Doubts([], [])
    if claim.output is not Output.NUMBER and claim.proved and len(request.rows_drawn(release)):
        try:
            doubts = _estimate_worth(request, release)
        except Exception as error:
            problem = first_line(error)
            warning = (
                "agt could not estimate the accuracy of these labels, so it cannot say "
                f"whether they are worth their budget ({problem})"
            )
            doubts = _Doubts([warning], [])
    for line in doubts.warnings:
        request.console.note(line)
    return doubts.objections


class _Doubts(NamedTuple):
    """What speaks against a release, in sentences that depend on private data.

    Attributes:
        warnings: the warnings for the data owner.
        objections: the reasons why the answers would hardly be worth their budget.
    """

    warnings: list[str]
    objections: list[str]


class _Sample(NamedTuple):
    """Queries from which the worth of a release is estimated.

    Attributes:
        records: the queries.
        labels: their true labels; None: these are not known.
        description: a phrase that says which queries they are.
    """

    records: Records
    labels: np.ndarray | None
    description: str


@dataclass(frozen=True)
class _Truth:
    """What an estimate knows of the true labels of queries.

    Attributes:
        accuracy: the accuracy of the labels that the estimate compares with: 1 for true labels;
            the model's accuracy on test records if its own labels are used instead.
        verdict: a sentence about the quality of the model; None: there is none.
        majority: the accuracy of always answering the most frequent class; 0: not known.
    """

    accuracy: float
    verdict: object
    majority: float


def _estimate_worth(request: PredictRequest, release: AnyRelease) -> _Doubts:
    """Return what speaks against a release.

    Arguments as of ``doubt_worth``.
    """
    opened = request.opened
    if opened.model.number_votes is not None and isinstance(release, LabelRelease | WeightsRelease):
        return _estimate_number_worth(request, release, opened.model.number_votes)
    model = without_sharing(opened.model)
    classes = opened.model.problem.classes
    sample = _sample(opened, request.rows_drawn(release))
    certificates = model.certify(sample.records.features)
    labels = sample.labels
    if labels is not None and len(labels) < MINIMUM_RECORDS:
        labels = None  # they show too little of what one answer to all would reach
    known = certificates.prediction if labels is None else labels
    evidence = QueryEvidence.from_certificates(certificates, known, classes, request.terms.counting)
    share_right = release.expected_accuracy(model, evidence, sample.records.features)
    if labels is None:
        compares_majority = True
        if isinstance(release, WeightsRelease):
            compares_majority = len(sample.records) >= MINIMUM_RECORDS
        truth = _truth_of_test_records(opened, compares_majority)
    else:
        quality = Quality(opened.dataset.classes, sample.description, labels, evidence.prediction)
        truth = _Truth(1.0, quality.verdict, evidence.constant_score)
    expected = accuracy_with_noise(share_right, truth.accuracy, classes)
    accuracy = accuracy_with_noise(evidence.nominal_score, truth.accuracy, classes)
    random = accuracy_with_noise(1 / classes, truth.accuracy, classes)
    warnings = [f"{PRIVATE}{truth.verdict}"] if truth.verdict else []
    objections = []
    if expected <= truth.majority or expected - random < RANDOM_GUESSING * (accuracy - random):
        estimated = "estimated" if labels is None else "expected"
        private = format_rate(expected)
        without_noise = format_rate(accuracy)
        majority = format_rate(truth.majority or None)
        random_words = format_rate(random)
        comparison = "little better than random labels"
        if expected <= truth.majority:
            comparison = "no better than always answering the most frequent class"
        objections.append(
            f"{PRIVATE}these labels would be {comparison}: {estimated} accuracy "
            f"{private} (model without noise: {without_noise}, majority-class baseline: "
            f"{majority}, random labels: {random_words})"
        )
    return _Doubts(warnings, objections)


def _truth_of_test_records(opened: OpenedRun, compares_majority: bool) -> _Truth:
    """Return what training recorded for its test records, to be used for unlabelled queries.

    Args:
        opened: the run.
        compares_majority: whether to compare with the most frequent class of all test records.
            Weights may answer other queries later, so a few difficult ones say nothing about them.
    """
    metrics = opened.trained.finished.metrics
    majority = 0.0
    if compares_majority and metrics.get("n_test", 0) >= MINIMUM_RECORDS:
        majority = metrics.get("test_majority_rate", 0.0)
    return _Truth(metrics.get("test_accuracy", 1.0), metrics.get("test_verdict"), majority)


def _estimate_number_worth(
    request: PredictRequest, release: LabelRelease | WeightsRelease, model: NumberVotes
) -> _Doubts:
    """Return what speaks against a release of numbers.

    There is an objection if the expected RMSE is not below that of always answering the median.

    Args:
        request: the request that agt predict received.
        release: a release of numbers, or of weights that answer with numbers.
        model: the model that answers.
    """
    sample = _sample(request.opened, request.rows_drawn(release))
    features = sample.records.features
    labels = sample.labels
    means = model.mean_of(model.sums(features))

    def expected_rmse(numbers: np.ndarray) -> float:
        """Return the expected RMSE between the released answers and numbers [n]."""
        if isinstance(release, WeightsRelease):
            kind = type(release.mechanism)
            return kind.expectation(release.head, features, numbers)(release.mechanism)
        mechanism = LaplaceMean.with_guarantee(release.claim.guarantee)
        return mechanism.expected_rmse_of(model, means, numbers)

    if labels is None or len(labels) < MINIMUM_RECORDS:
        # What training recorded of the test records stands for the queries' own labels.
        metrics = request.opened.trained.finished.metrics
        rmse = metrics.get("test_rmse")
        constant = metrics.get("test_rmse_of_median")
        if rmse is None or constant is None:
            return _Doubts([], [])
        expected = float(np.hypot(rmse, expected_rmse(means)))
    else:
        rmse = float(np.sqrt(np.mean((means - labels) ** 2)))
        constant = float(np.sqrt(np.mean((np.median(labels) - labels) ** 2)))
        expected = expected_rmse(labels)
    if expected < constant:
        return _Doubts([], [])
    objection = (
        f"{PRIVATE}these numbers would have an RMSE of about {expected:.4g}, but the model without "
        f"noise would have {rmse:.4g}, and always answering the median {constant:.4g}. Noise grows "
        "with the width of dataset.range: a narrower range, if you know one publicly, or a larger "
        "budget lowers the error"
    )
    return _Doubts([], [objection])


def _sample(opened: OpenedRun, rows: np.ndarray | range) -> _Sample:
    """Return evenly spaced queries among the newly drawn ones, or all queries if not too many.

    Args:
        opened: the run and all queries.
        rows: the rows of the queries whose labels are newly drawn.
    """
    records = opened.queries
    labels = opened.labels
    words = opened.trained.queries_description
    maximum = MAX_RECORDS if opened.model.linear_head is None else MAX_RECORDS_LINEAR
    if len(records) == len(rows) <= maximum:
        return _Sample(records, labels, words)
    description = f"{words} in a sample"
    if len(rows) <= maximum:
        maximum = len(rows)
        description = f"{words} whose labels are newly drawn"
    evenly_spaced = np.linspace(0, len(rows) - 1, maximum).astype(np.int64)
    sampled = np.array([rows[index] for index in evenly_spaced])
    sampled_labels = None if labels is None else labels[sampled]
    return _Sample(records.take(sampled), sampled_labels, description)
