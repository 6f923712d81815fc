"""What the releases of one claim cost together."""

from dataclasses import replace

from agt.errors import ConfigError
from agt.mechanisms.claims import SHOWN_DELTA, Claim
from agt.mechanisms.composition import Total, total
from agt.mechanisms.guarantees import ApproximateDP, Guarantee, PureDP
from agt.messages import Message


def claim_of_labels(claim: Claim, queries: int, delta: float) -> Claim:
    """Return the claim of so many labels, with their totals.

    Args:
        claim: of one label.
        queries: how many labels are released; 0: the totals are those of none.
        delta: as in ``totals_of_labels``.

    Raises:
        ConfigError: as ``totals_of_labels``.
    """
    totals = totals_of_labels(claim.guarantee, queries, delta)
    return replace(claim, releases=queries or 1, answers=queries or None, totals=totals)


def totals_of_labels(guarantee: Guarantee, queries: int, delta: float) -> tuple[Total, ...]:
    """Return what labels cost together: without a delta where that is possible, and at ``delta``
    where it is less.

    Args:
        guarantee: of each label.
        queries: how many labels are released.
        delta: at which the total is shown; 0: none was asked for, and one is chosen.

    Raises:
        ConfigError: the labels' own deltas exceed the one asked for.
    """
    leaks = queries * guarantee.delta if isinstance(guarantee, ApproximateDP) else 0.0
    if delta and leaks >= delta:
        raise ConfigError(
            Message(
                "{config:total.delta}={delta:g} and {queries} queries spend a delta of "
                "{leaks:g} alone: lower {config:mechanism.delta}, or raise {config:total.delta}",
                delta=delta,
                queries=queries,
                leaks=leaks,
            )
        )
    shown = total(guarantee, queries, delta or max(SHOWN_DELTA, min(0.5, 2 * leaks)))
    if not isinstance(guarantee, PureDP):
        return (shown,)
    pure = total(guarantee, queries, 0.0)
    return (pure, shown) if shown.eps < pure.eps else (pure,)


def total_of_weights(guarantee: Guarantee, delta: float) -> Total:
    """Return what weights cost, which are released once.

    The total of a pure guarantee needs no delta, and is shown without one where none is given.

    Args:
        guarantee: of the release.
        delta: at which it is shown; 0: at the guarantee's own, or at one that is chosen.
    """
    if not delta and isinstance(guarantee, PureDP):
        return total(guarantee, 1, 0.0)
    return total(guarantee, 1, delta or getattr(guarantee, "delta", SHOWN_DELTA))
