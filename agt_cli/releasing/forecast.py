"""What the data owner is told before a release is drawn: how accurate to expect it, and what would be better.

These lines depend on private data in ways that no guarantee covers. They go to the owner's terminal (stderr) and into no
file: from a release's folder things are published.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agt.data.dataset import Records
from agt.errors import ConfigError, first_line
from agt.mechanisms.claims import SHOWN_DELTA, Counting, Output, Release, Voting, WeightsMechanism, claim
from agt.mechanisms.composition import LEAST, ApproximateDP, GaussianDP, Guarantee
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.objective import ObjectivePerturbation
from agt.mechanisms.planning import SHRUNK, Budget, Evidence, Offer, applicable, offers, weights_on_offer
from agt.mechanisms.published import MECHANISMS
from agt.mechanisms.weights import ReleaseWeights
from agt.quality import Judged, Quality, rate_words
from agt_cli.runs.queries import OpenedRun
from agt_cli.team import unshared

if TYPE_CHECKING:
    from agt_cli.releasing.release import Planned, ReleaseRequest

MAX_RECORDS_LINEAR, MAX_RECORDS = 10_000, 1_000  # that a forecast looks at: certificates of other models take time
LEAST_GAIN = 0.005  # another mechanism is named if it is right so much more often
Rows = np.ndarray | range


def forecast(request: "ReleaseRequest", planned: "Planned", release: Release[Any]) -> list[str]:
    """Lines for the owner alone; none where nothing is drawn, no labels are, or nothing is proved.

    What goes wrong with them is one of the lines. The release is paid by now and goes on: a hint is not worth its budget,
    and whether it can be made may depend on private data. So this process works them out by itself where several share the
    release: one that failed in the middle of an exchange would leave the others no way back to it.

    Args:
        request, planned: what is released.
        release: ready to be drawn, and paid.
    """
    if not len(planned.rows) or release.claim.output is Output.NUMBER or not release.claim.proved:
        return []
    try:
        return _forecast(request, planned.mechanism, release, planned.rows)
    except Exception as error:
        return [f"what to expect of this release could not be worked out ({first_line(error)})"]


def _forecast(request: "ReleaseRequest", name: str, release: Release[Any], rows: Rows) -> list[str]:
    opened, config, counting = request.opened, request.mechanism, request.counting
    model, classes = unshared(opened.model), opened.model.problem.classes
    records, labels, words = _sample(opened, rows)
    certificates = model.certify(records.features)
    known = certificates.prediction if labels is None else labels
    evidence = Evidence.of(certificates, known, classes, counting)
    weights = weights_on_offer(model, records.features, known, config.given.get("weight_decay"))
    drawn, _ = _mechanism(name, release.claim.guarantee, classes)
    way = SHRUNK if config.given.get("shrink") else drawn.name
    expected = evidence.expected(drawn) if isinstance(drawn, Mechanism) else weights[way].expected(drawn.guarantee)
    if labels is None:
        lines = _as_without_noise(expected, words, opened.trained.finished.metrics)
    else:
        lines = _expectation(expected, opened.dataset.classes, evidence, words)
    if config.total.eps is not None:  # with a delta, without which weights and Gaussian noise cannot be compared
        queries = config.total.queries or len(opened.queries)
        budget = Budget(config.total.eps, config.total.delta or SHOWN_DELTA, queries)
    else:
        spent = release.totals[-1]
        budget = Budget(max(spent.eps, LEAST), spent.delta, len(opened.queries))
    made = [o for o in offers(evidence, applicable(evidence), weights, [budget]) if _is_allowed(opened, o, counting)]
    best = max(made, key=lambda offer: offer.accuracy, default=None)
    if best is not None and best.accuracy > expected + LEAST_GAIN:
        lines.append(
            f"better: mechanism={best.mechanism} total.eps={budget.eps:g} total.delta={budget.delta:g}, expected to reach "
            f"{rate_words(best.accuracy)}; agt plan compares all"
        )
    return [*lines, "(for you alone: these numbers depend on private data, and so does a choice made by them)"]


def _sample(opened: OpenedRun, rows: Rows) -> tuple[Records, np.ndarray | None, str]:
    """(some of these queries, their labels if they are known, what they are in words)."""
    records, labels, words = opened.queries, opened.labels, opened.trained.words
    most = MAX_RECORDS_LINEAR if opened.model.linear_head is not None else MAX_RECORDS
    if len(records) == len(rows) <= most:
        return records, labels, words
    which = f"{len(rows):,} new ones among" if len(rows) <= most else f"sample of {most:,} of"
    most = min(most, len(rows))
    some = np.array([rows[place] for place in np.linspace(0, len(rows) - 1, most).astype(np.int64)])
    return records.take(some), None if labels is None else labels[some], f"{which} the {words}"


def _is_allowed(opened: OpenedRun, offer: Offer, counting: Counting) -> bool:
    """Whether this run may be released through what the offer names."""
    settings = opened.model.problem.settings
    try:
        mechanism, output = _mechanism(offer.mechanism, offer.each, opened.model.problem.classes)
        voting: Voting = "certified" if settings.ensemble.members > 1 else "none"
        claim(opened.conditions, settings.relation, mechanism, "rigorous", counting, voting, output)
    except ConfigError:
        return False
    return True


def _mechanism(name: str, guarantee: Guarantee, classes: int) -> tuple[Mechanism | WeightsMechanism, Output]:
    if isinstance(guarantee, GaussianDP) and name in (ReleaseWeights.name, SHRUNK):
        return ReleaseWeights(guarantee.mu), Output.WEIGHTS
    if isinstance(guarantee, ApproximateDP) and name == ObjectivePerturbation.name:
        return ObjectivePerturbation(guarantee.eps, guarantee.delta), Output.WEIGHTS
    return MECHANISMS[name].of(guarantee, classes), Output.LABELS


def _as_without_noise(expected: float, words: str, recorded: Mapping[str, Any]) -> list[str]:
    """Of queries without labels: how many answers the noise leaves as they are, and what training recorded of those.

    Args:
        recorded: the training run's metrics.
    """
    verdict, right = recorded.get("test_verdict"), float(recorded["test_accuracy"])
    line = (
        f"expected before the draw, on the {words}: {rate_words(expected)} of the labels as without noise, which was right "
    )
    return [*([str(verdict)] if verdict else []), f"{line}for {rate_words(right)} of the test records"]


def _expectation(expected: float, classes: Sequence[str], evidence: Evidence, words: str) -> list[str]:
    """Of labelled queries: the verdict, if there is one, and what to expect."""
    quality = Quality.of(Judged(classes, words, evidence.labels, evidence.prediction))
    beside = f"{rate_words(evidence.accuracy)} without noise; always '{quality.majority}': {rate_words(evidence.majority)}"
    line = f"expected before the draw, on the {words}: accuracy {rate_words(expected)} ({beside})"
    below = ["a constant answer would do better than these labels"] if expected < evidence.majority else []
    return [*([quality.verdict] if quality.verdict else []), line, *below]
