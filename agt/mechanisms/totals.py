"""What the releases of one claim cost together."""

from dataclasses import replace

from agt.errors import ConfigError
from agt.mechanisms.claims import SHOWN_DELTA, Claim
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantees import ApproximateDP, Guarantee, PureDP
from agt.messages import Message


def claim_of_labels(claim: Claim, queries: int, delta: float) -> Claim:
    """Return the claim of a number of labels, with their totals.

    Args:
        claim: of one label.
        queries: how many labels are released, at least 1.
        delta: at which the total is shown; 0: none was requested, and one is chosen.

    Raises:
        ConfigError: the labels' own deltas exceed the one requested.
    """
    totals = totals_of_labels(claim.guarantee, queries, delta)
    return replace(claim, releases=queries, answers=queries, totals=totals)


def totals_of_labels(guarantee: Guarantee, queries: int, delta: float) -> tuple[Total, ...]:
    """Return what labels cost together.

    Args:
        guarantee: of each label.
        queries: how many labels are released.
        delta: at which the total is shown; 0: none was requested, and one is chosen.

    Returns:
        Of pure labels the total without a delta and, if its eps is less, the one at ``delta``;
        otherwise the one at ``delta`` alone.

    Raises:
        ConfigError: the labels' own deltas exceed the one requested.
    """
    own_deltas = queries * guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
    if delta and own_deltas >= delta:
        raise ConfigError(
            Message(
                "{config:total.delta}={delta:g} is too small, because the own deltas of "
                "{queries} queries already add up to {own_deltas:g}: lower "
                "{config:mechanism.delta}, or raise {config:total.delta}",
                delta=delta,
                queries=queries,
                own_deltas=own_deltas,
            )
        )
    chosen_delta = max(SHOWN_DELTA, min(0.5, 2 * own_deltas))
    shown = total(guarantee, queries, delta or chosen_delta)
    if not isinstance(guarantee, PureDP):
        return (shown,)
    pure = total(guarantee, queries, 0.0)
    return (pure, shown) if shown.eps < pure.eps else (pure,)


def total_of_weights(guarantee: Guarantee, delta: float) -> Total:
    """Return what weights cost, which are released once.

    Args:
        guarantee: of the release.
        delta: at which the total is shown; 0: without one if the guarantee is pure, at its own
            delta if it has one, else at one that is chosen.
    """
    if not delta and isinstance(guarantee, PureDP):
        return total(guarantee, 1, 0.0)
    return total(guarantee, 1, delta or getattr(guarantee, "delta", SHOWN_DELTA))
