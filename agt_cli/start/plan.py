"""The ways in which answers could be published, and the mechanism that ``agt start`` proposes."""

from collections.abc import Sequence

from agt.errors import counted
from agt.mechanisms.planning import Plan, PlannedRelease, releasable_heads
from agt.models.model import Model
from agt_cli.report.proposed_release import MECHANISM_OF_LABELS, WEIGHTS_MECHANISMS
from agt_cli.report.scoring import Scoring
from agt_cli.start.ledger_proposal import LedgerProposal

PLANNED_QUERIES = (1, 10, 100)
"""The numbers of answers one by one that are compared with released weights."""


def weights_mechanism(model: Model) -> str:
    """Return the mechanism that would release a model's weights; the first one if none can."""
    heads = releasable_heads(model)
    return next((name for name in WEIGHTS_MECHANISMS if name in heads), WEIGHTS_MECHANISMS[0])


def weights_release(planned: Plan) -> PlannedRelease | None:
    """Return the release of weights that is proposed; None: the model's cannot be released.

    It is the first of ``WEIGHTS_MECHANISMS`` that the model supports, whatever is expected of the
    others: what is expected depends on private rows, and no guarantee covers a choice by it.
    """
    planned_by_name = {release.mechanism: release for release in planned.releases}
    names = (name for name in WEIGHTS_MECHANISMS if name in planned_by_name)
    return next((planned_by_name[name] for name in names), None)


def _not_yet(unmet: Sequence[str]) -> str:
    """Return that nothing can be published yet, with the conditions that are not met.

    Args:
        unmet: the conditions, in words, at least one.
    """
    verb = "is" if len(unmet) == 1 else "are"
    return f"not yet, because {' and '.join(unmet)} {verb} not met"


def describe_ways(
    planned: Plan,
    scoring: Scoring,
    ledger: LedgerProposal,
    eps: float,
    *,
    unmet: Sequence[str],
    unit_name: str,
    measures_first: bool,
) -> list[str]:
    """Return sentences on the three options: released weights, single answers, certificates.

    The sentences say what is expected of a way, which depends on private rows, so they are for the
    data owner alone.

    Args:
        planned: what could be released of the model.
        scoring: how answers are scored.
        ledger: what the ledger of these people accepts.
        eps: the total budget that it was planned with.
        unmet: the conditions of a guarantee that are not met, in words.
        unit_name: what certificates count, in the plural.
        measures_first: True: what is not public is measured first, and weights are released then.
    """
    if unmet:
        weights = singly = _not_yet(unmet)
        if measures_first:
            weights = "not before everything that is not public is measured (see below)"
    else:
        weights = _describe_weights(weights_release(planned), planned, scoring)
        singly = _describe_single_answers(planned, scoring, eps)
        if ledger.mechanism == MECHANISM_OF_LABELS:
            weights = f"none, because no weights fit into what is left of the ledger {ledger.name}"
        if ledger.labels_eps < eps:
            singly = (
                f"of this, only eps = {ledger.labels_eps:g} fits into what is left of the ledger "
                f"{ledger.name}"
            )
    # A ledger that has paid for labels may have no room for weights, although eps is left.
    when = "instead of weights" if weights_release(planned) else "for the same budget"
    cost = f"eps = {eps:g}, delta = {planned.delta:g}"
    return [
        f"weights, published once ({cost}): {weights}",
        f"{scoring.answers}, one by one {when}: {singly}",
        f"certificates (not to be published): {scoring.certificate_words(unit_name)}",
    ]


def _describe_single_answers(planned: Plan, scoring: Scoring, eps: float) -> str:
    """Return a clause on how many answers could be published one by one, or why there are none.

    Args:
        planned: what could be released of the model.
        scoring: how answers are scored.
        eps: the total budget that it was planned with.
    """
    evidence = planned.evidence
    count, mechanism = planned.one_by_one.get(eps, (0, ""))
    if count:
        score = scoring.expected_words(evidence.score_limit)
        return f"{counted(count, 'answer')}, {score}, with mechanism={mechanism}"
    if not evidence.is_useful:
        return f"none, because the model is not better than {scoring.baseline_in_sentence}"
    return (
        "none, because with the noise for this budget even one answer would be clearly worse than "
        "the model's own"
    )


def _describe_weights(release: PlannedRelease | None, planned: Plan, scoring: Scoring) -> str:
    """Return a clause on the expected score of labels from released weights, or why there are none.

    It is said where they would gain less than half of what the model without noise gains over a
    constant answer.

    Args:
        release: the planned release of the weights; None: weights cannot be released.
        planned: the plan that has it.
        scoring: how answers are scored.
    """
    if release is None and planned.weights is None:
        return "none, because no mechanism can release the weights of this model"
    if release is None:
        return "none, because no release of weights fits into this budget"
    evidence = planned.evidence
    constant = evidence.merit(evidence.constant_score)
    halfway = (evidence.merit(evidence.nominal_score) + constant) / 2
    reason = ""
    if not evidence.is_worthwhile(release.expected):
        reason = f" (not more accurate than {scoring.baseline_in_sentence})"
    elif evidence.is_useful and evidence.merit(release.expected) < halfway:
        reason = (
            " (the table has too few rows for this budget, so the answers would not be accurate)"
        )
    return f"any number of answers, {scoring.expected_words(release.expected)}{reason}"
