"""The total privacy loss of the releases that one claim covers."""

from dataclasses import replace

from agt.errors import ConfigError
from agt.mechanisms.claims import SHOWN_DELTA, Claim
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantees import ApproximateDP, Guarantee, PureDP
from agt.messages import Message


def claim_of_labels(claim: Claim, queries: int, delta: float) -> Claim:
    """Return the claim of several labels with their total privacy loss, given the claim of one.

    A claim states the privacy guarantee of a release.

    Args:
        claim: the claim of one label.
        queries: the number of released labels, at least 1.
        delta: the delta of the total; 0: the user gave none, and one is chosen.

    Raises:
        ConfigError: the deltas of the single labels add up to at least ``delta``.
    """
    totals = totals_of_labels(claim.guarantee, queries, delta)
    return replace(claim, releases=queries, answers=queries, totals=totals)


def totals_of_labels(guarantee: Guarantee, queries: int, delta: float) -> tuple[Total, ...]:
    """Return the total privacy loss of a number of labels, at one or two values of delta.

    Args:
        guarantee: the guarantee of each label.
        queries: the number of released labels, at least 1.
        delta: the delta of the total; 0: the user gave none, and one is chosen.

    Returns:
        For pure-DP labels the total with delta = 0 and, if its eps is smaller, the total at
        ``delta``. For other labels only the total at ``delta``.

    Raises:
        ConfigError: the deltas of the single labels add up to at least ``delta``.
    """
    own_deltas = 0.0
    if isinstance(guarantee, ApproximateDP):
        own_deltas = queries * guarantee.delta
    if delta != 0 and own_deltas >= delta:
        raise ConfigError(
            Message(
                "{config:total.delta}={delta:g} is too small, because the deltas of the {queries} "
                "queries alone already add up to {own_deltas:g}: lower {config:mechanism.delta}, "
                "or raise {config:total.delta}",
                delta=delta,
                queries=queries,
                own_deltas=own_deltas,
            )
        )
    if delta == 0:
        # Twice the sum of the labels' own deltas leaves as much for composition.
        delta = max(SHOWN_DELTA, min(0.5, 2 * own_deltas))
    total_at_delta = total(guarantee, queries, delta)
    if not isinstance(guarantee, PureDP):
        return (total_at_delta,)
    pure_total = total(guarantee, queries, 0.0)
    if total_at_delta.eps < pure_total.eps:
        return pure_total, total_at_delta
    return (pure_total,)


def total_of_weights(guarantee: Guarantee, delta: float) -> Total:
    """Return the privacy loss of weights, which are released once, as (eps, delta)-DP.

    Args:
        guarantee: the guarantee of the release.
        delta: the delta of the total; 0: the user gave none. Then it is 0 for a pure-DP release,
            the guarantee's own delta if it has one, and otherwise ``SHOWN_DELTA``.
    """
    if delta == 0:
        if isinstance(guarantee, PureDP):
            return total(guarantee, 1, 0.0)
        delta = SHOWN_DELTA
        if isinstance(guarantee, ApproximateDP):
            delta = guarantee.delta
    return total(guarantee, 1, delta)
