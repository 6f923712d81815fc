"""What ``agt plan`` advises, in sentences; agt/mechanisms/planning.py has the numbers."""

import math
from collections.abc import Sequence
from itertools import groupby

from agt.errors import counted
from agt.mechanisms.planning import Plan, PlannedRelease
from agt.mechanisms.weights_mechanism import AccuracyMethod
from agt_cli.report.quality import format_rate


def verdict(plan: Plan) -> str:
    """Return the advice of a plan in a sentence, for the budget that is nearest to 1."""
    return f"{finding(plan)}."


def finding(plan: Plan) -> str:
    """Return the verdict without its full stop, for the headline of a figure."""
    nominal = format_rate(plan.evidence.nominal_score)
    baseline = format_rate(plan.evidence.constant_score)
    if not plan.useful_weights and not plan.evidence.is_useful:
        return (
            "No release is worthwhile here, because always giving the most frequent class is "
            f"at least as accurate ({baseline}) as the model without noise ({nominal})"
        )
    if plan.useful_weights:
        nearest = min(plan.useful_weights, key=lambda best: abs(math.log(best.budget.eps)))
        expected = format_rate(nearest.expected)
        return (
            "Weights that are released once could answer any number of queries with an "
            f"expected accuracy of {expected} at total eps = {nearest.budget.eps:g} "
            f"(without noise: {nominal})"
        )
    if not plan.one_by_one:
        return (
            "The budget does not cover even one query at an accuracy within 0.01 of the "
            f"{nominal} that the model has without noise"
        )
    eps, (count, _) = min(plan.one_by_one.items(), key=lambda row: abs(math.log(row[0])))
    queries = counted(count, "query", "queries")
    return (
        f"At total eps = {eps:g}, {queries} could be answered one by one at an accuracy "
        f"within 0.01 of the {nominal} that the model has without noise"
    )


def advice(plan: Plan) -> tuple[str, ...]:
    """Return one or two sentences that recommend a kind of release."""
    if not plan.useful_weights and not plan.evidence.is_useful:
        return (verdict(plan),)
    one_by_one = _one_by_one_sentence(plan)
    if plan.weights is None:
        return (one_by_one,)
    if not plan.weights:
        needs_delta = (
            "Weights can only be released with delta > 0, so give such a delta, for "
            "example delta=1e-6."
        )
        return (needs_delta, one_by_one)
    if not plan.useful_weights:
        not_useful = (
            "At none of the budgets in this plan would released weights be more accurate than the "
            "majority-class baseline."
        )
        return (not_useful, one_by_one)
    by_mechanism = groupby(plan.useful_weights, lambda best: best.mechanism)
    accuracies = ", ".join(
        _describe_accuracies(plan.methods[name], name, list(rows)) for name, rows in by_mechanism
    )
    nominal = format_rate(plan.evidence.nominal_score)
    delta = plan.delta
    release_once = (
        f"Release the weights once, with delta = {delta:g}, to answer any number of queries. "
        f"Expected accuracy: {accuracies} (without noise: {nominal})."
    )
    return (release_once, one_by_one)


def _one_by_one_sentence(plan: Plan) -> str:
    """Return a sentence on how many queries can be answered one by one."""
    nominal = format_rate(plan.evidence.nominal_score)
    if not plan.evidence.is_useful:
        baseline = format_rate(plan.evidence.constant_score)
        return (
            "Labels released one by one would not be more accurate than the majority-class "
            f"baseline ({baseline})."
        )
    if not plan.one_by_one:
        return (
            "No mechanism can answer even one query here at an accuracy within 0.01 of the "
            f"{nominal} that the model has without noise, because this needs larger stable "
            "distances: train with more records, a smaller clip level, or fewer steps."
        )
    listed = "; ".join(
        f"{counted(count, 'query', 'queries')} with mechanism={name} at total eps = {eps:g}"
        for eps, (count, name) in plan.one_by_one.items()
    )
    beside_weights = ""
    if plan.weights:
        beside_weights = (
            " Labels without Gaussian noise hardly share a ledger with weights: after them, no "
            "weights may fit although eps is left (`agt ledger show` says what fits)."
        )
    return (
        "Number of queries that can be answered one by one at an accuracy within 0.01 of the "
        f"{nominal} that the model has without noise: {listed}.{beside_weights}"
    )


def _describe_accuracies(
    method: AccuracyMethod, mechanism: str, releases: Sequence[PlannedRelease]
) -> str:
    """Return a clause on the accuracy of one weights mechanism at some budgets.

    Args:
        method: how its accuracy was computed.
        mechanism: its name.
        releases: its release for each budget.
    """
    accuracies = " / ".join(format_rate(release.expected) for release in releases)
    budgets = " / ".join(f"{release.budget.eps:g}" for release in releases)
    simulated = f" (the mean of {method.draws} simulated draws)" if method.draws else ""
    return f"{accuracies} at total eps = {budgets}, with mechanism={mechanism}{simulated}"
