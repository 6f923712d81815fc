"""Whether released labels are worth their budget, which the data owner alone is told.

What is said here depends on private data in ways that no guarantee covers: it goes to the terminal
(stderr) and into no file.
"""

import numpy as np

from agt.data.records import Records
from agt.errors import first_line
from agt.mechanisms.claims import Claim
from agt.mechanisms.laplace_mean import LaplaceMean
from agt.mechanisms.output import Output
from agt.mechanisms.planning import QueryEvidence
from agt.models.number_votes import NumberVotes
from agt.release import AnyRelease, LabelRelease, WeightsRelease
from agt_cli.releasing.request import PredictRequest
from agt_cli.report.quality import LEAST as FEW_RECORDS, Judged, Quality, rate_words, right_rate
from agt_cli.runs.queries import OpenedRun
from agt_cli.team import unshared

MAX_RECORDS_LINEAR = 10_000  # that an estimate looks at, of a linear head
MAX_RECORDS = 1_000  # of other models, whose certificates take time
# of the way from labels drawn by lot to the model's own: what is less right is not drawn unasked
LOT = 0.2
OWNER_ALONE = (
    "the lines above depend on private data, so they are only for the data owner. A choice "
    "that is based on them depends on private data, too"
)


def doubt_worth(request: PredictRequest, release: AnyRelease, claim: Claim) -> list[str]:
    """Return why labels would hardly be worth their budget; warns the owner alone where a constant
    is as good.

    What goes wrong with the estimate is one of the warnings: it is not worth stopping for. This
    process works it out by itself where several share the release: one that failed in the middle of
    an exchange would leave the others no way back to it.
    """
    warnings = list[str]()
    objections = list[str]()
    if claim.output is not Output.NUMBER and claim.proved and len(request.rows_drawn(release)):
        try:
            warnings, objections = _estimate_worth(request, release)
        except Exception as error:
            problem = first_line(error)
            warnings = [
                "agt could not estimate the accuracy of these labels, so it cannot say "
                f"whether they are worth their budget ({problem})"
            ]
    for line in warnings:
        request.console.note(line)
    return objections


def _estimate_worth(request: PredictRequest, release: AnyRelease) -> tuple[list[str], list[str]]:
    """Return (warnings for the owner alone, why labels would hardly be worth their budget, if
    so).
    """
    opened = request.opened
    if opened.model.number_votes is not None and isinstance(release, LabelRelease | WeightsRelease):
        return _estimate_number_worth(request, release, opened.model.number_votes)
    model = unshared(opened.model)
    classes = opened.model.problem.classes
    records, labels, about = _sample(opened, request.rows_drawn(release))
    certificates = model.certify(records.features)
    if labels is not None and len(labels) < FEW_RECORDS:
        labels = None  # they show too little of what one answer to all would reach
    known = certificates.prediction if labels is None else labels
    evidence = QueryEvidence.from_certificates(certificates, known, classes, request.terms.counting)
    share = release.expected_accuracy(model, evidence, records.features)
    if labels is None:
        # What training recorded of the test records stands for the queries' own labels.
        metrics = opened.trained.finished.metrics
        truth = metrics.get("test_accuracy", 1.0)
        verdict = metrics.get("test_verdict")
        enough = metrics.get("n_test", 0) >= FEW_RECORDS
        always = metrics.get("test_majority_rate", 0.0) if enough else 0.0
    else:
        truth = 1.0
        verdict = Quality.of(
            Judged(opened.dataset.classes, about, labels, evidence.prediction)
        ).verdict
        always = evidence.majority
    expected = right_rate(share, truth, classes)
    accuracy = right_rate(evidence.accuracy, truth, classes)
    by_lot = right_rate(1 / classes, truth, classes)
    warnings = [str(verdict)] if verdict else []
    objections = list[str]()
    if expected <= always:
        warnings.append(
            "always answering the most frequent class (the majority-class baseline) would be "
            "at least as accurate as these labels"
        )
    if expected <= always or expected - by_lot < LOT * (accuracy - by_lot):
        estimated = "estimated" if labels is None else "expected"
        private = rate_words(expected)
        without_noise = rate_words(accuracy)
        majority = rate_words(always or None)
        random = rate_words(by_lot)
        objections.append(
            f"these labels would be little better than a baseline: {estimated} accuracy "
            f"{private} (model without noise: {without_noise}, majority-class baseline: "
            f"{majority}, random labels: {random})"
        )
    if warnings or objections:
        warnings.append(OWNER_ALONE)
    return warnings, objections


def _estimate_number_worth(
    request: PredictRequest, release: LabelRelease | WeightsRelease, model: NumberVotes
) -> tuple[list[str], list[str]]:
    """Return (warnings for the owner alone, why numbers would hardly be worth their budget, if so).

    Args:
        request: what is asked for.
        release: of the numbers, or of weights that answer with numbers.
        model: that answers.
    """
    records, labels, _ = _sample(request.opened, request.rows_drawn(release))
    means = model.mean_of(model.sums(records.features))

    def expected_rmse(numbers: np.ndarray) -> float:
        """Return how far the released answers are expected to be from numbers [n]."""
        if isinstance(release, WeightsRelease):
            kind = type(release.mechanism)
            return kind.expectation(release.head, records.features, numbers)(release.mechanism)
        mechanism = LaplaceMean.with_guarantee(release.claim.guarantee)
        return mechanism.expected_rmse_of(model, means, numbers)

    if labels is None or len(labels) < FEW_RECORDS:
        # What training recorded of the test records stands for the queries' own labels.
        metrics = request.opened.trained.finished.metrics
        rmse = metrics.get("test_rmse")
        constant = metrics.get("test_rmse_of_median")
        if rmse is None or constant is None:
            return [], []
        expected = float(np.hypot(rmse, expected_rmse(means)))
    else:
        rmse = float(np.sqrt(np.mean((means - labels) ** 2)))
        constant = float(np.sqrt(np.mean((np.median(labels) - labels) ** 2)))
        expected = expected_rmse(labels)
    if expected < constant:
        return [], []
    objection = (
        f"these numbers would have an RMSE of about {expected:.4g}, but the model without noise "
        f"would have {rmse:.4g}, and always answering the median {constant:.4g}. Noise grows with "
        "the width of dataset.range: a narrower range, if you know one publicly, or a larger "
        "budget lowers the error"
    )
    return [OWNER_ALONE], [objection]


def _sample(opened: OpenedRun, rows: np.ndarray | range) -> tuple[Records, np.ndarray | None, str]:
    """Return some of these queries, their labels if they are known, and what they are in words."""
    records, labels, words = opened.queries, opened.labels, opened.trained.words
    maximum = MAX_RECORDS if opened.model.linear_head is None else MAX_RECORDS_LINEAR
    if len(records) == len(rows) <= maximum:
        return records, labels, words
    sample = f"a sample of {maximum:,} of the {words}"
    if len(rows) <= maximum:
        maximum = len(rows)
        sample = f"the {maximum:,} of the {words} whose labels are newly drawn"
    sampled = np.array(
        [rows[place] for place in np.linspace(0, len(rows) - 1, maximum).astype(np.int64)]
    )
    return (
        records.take(sampled),
        None if labels is None else labels[sampled],
        sample,
    )
