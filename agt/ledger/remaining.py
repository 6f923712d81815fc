"""What still fits into the rest of a ledger's budget, for each kind of release.

A budget counts two sums, of eps and of mu^2, and a release fits if one of them stays within its
limit (Lemma 6 of docs/proofs/budget.md). Labels without Gaussian noise may use either sum, but
Gaussian noise only uses the sum of mu^2. So a few labels can close a ledger to Gaussian noise,
although much of its eps is left for more labels. After one release with Gaussian noise, labels may
only use the sum of mu^2, too.
"""

import math
from dataclasses import dataclass

from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.composition import largest_holding, smallest_holding, total
from agt.mechanisms.guarantees import GaussianDP, Guarantee, PureDP, read_guarantee
from agt.numeric import mills_delta
from agt.release_settings import MAX_BUDGET, MAX_TOTAL_EPS, MIN_BUDGET

LABELS = "labels by randomized_response"
GAUSSIAN = "release with Gaussian noise (noisy_statistics, release_weights, gaussian_margin)"


@dataclass(frozen=True)
class RemainingBudget:
    """The largest total eps of further releases of each kind, rounded down; for display only.

    Attributes:
        labels_eps: the largest eps of labels without Gaussian noise, all of them together, up to
            ``MAX_BUDGET``; 0: none fits.
        gaussian_eps: the largest eps of one release with Gaussian noise and the budget's delta; 0:
            none fits.
        delta: the delta of the budget.
    """

    labels_eps: float
    gaussian_eps: float
    delta: float

    @classmethod
    def after(cls, allowance: Allowance, spent: Cost) -> "RemainingBudget":
        """Return what still fits into a budget.

        Args:
            allowance: the whole budget.
            spent: the cost of all releases so far.
        """
        eps = min(allowance.eps, MAX_BUDGET)  # no release may have more
        delta = allowance.delta
        if spent == Cost():
            return cls(labels_eps=eps, gaussian_eps=eps if delta else 0.0, delta=delta)
        labels = largest_that_fits(allowance, spent, PureDP(eps))
        gaussian = largest_that_fits(allowance, spent, GaussianDP(MAX_BUDGET))
        gaussian_eps = None if gaussian is None else eps_of_gaussian(gaussian, delta)
        return cls(
            labels_eps=0.0 if labels is None else labels.parameters["eps"],
            gaussian_eps=gaussian_eps or 0.0,
            delta=delta,
        )

    def sentence(self) -> str:
        """Return what still fits, as a clause; empty: nothing does."""
        labels = f"{LABELS} still fit, with eps = {self.labels_eps:g} in all"
        gaussian = f"total.eps={self.gaussian_eps:g} total.delta={self.delta:g}"
        if self.labels_eps and self.gaussian_eps:
            return f"{labels}; or instead one {GAUSSIAN}, with {gaussian}"
        if self.labels_eps:
            return f"{labels}; but no {GAUSSIAN}, whatever its eps"
        if self.gaussian_eps:
            return f"one {GAUSSIAN} still fits, with {gaussian}; but no {LABELS}"
        return ""


def closing_warning(allowance: Allowance, spent: Cost, lot: Lot) -> str:
    """Return a warning if a lot takes most of what is left for the other kind of release.

    Only public values decide it: the ledger, and what is asked for. It is to be printed before the
    lot is paid for.

    Args:
        allowance: the whole budget.
        spent: the cost of all releases so far.
        lot: the releases that are about to be paid for, which the budget admits.

    Returns:
        Empty: at least half of the other kind's eps stays; or nothing at all fits afterwards, and
        the lot's own total is at least half of the eps that was left for its kind.
    """
    before = RemainingBudget.after(allowance, spent)
    after = RemainingBudget.after(allowance, spent.plus(lot.cost))
    is_gaussian = isinstance(lot.guarantee, GaussianDP)
    if not after.labels_eps and not after.gaussian_eps:
        # A first lot may be admitted by its own total, although the sums then exceed the budget
        # (Lemma 7 of docs/proofs/budget.md).
        eps_before = before.gaussian_eps if is_gaussian else before.labels_eps
        if total(lot.guarantee, lot.size, allowance.delta).eps >= eps_before / 2:
            return ""
        return "this release uses up the whole budget of the ledger: no release fits afterwards"
    if is_gaussian:
        is_closing = after.gaussian_eps and after.labels_eps < before.labels_eps / 2
    else:
        is_closing = after.labels_eps and after.gaussian_eps < before.gaussian_eps / 2
    if not is_closing:
        return ""
    return (
        "labels and Gaussian noise share this ledger's budget, and this release takes most of what "
        f"is left for the other kind. Afterwards, {after.sentence()}"
    )


def largest_that_fits(allowance: Allowance, spent: Cost, guarantee: Guarantee) -> Guarantee | None:
    """Return the weakest guarantee of the same kind for which one release fits into a budget.

    Args:
        allowance: the budget.
        spent: the cost of all debits so far.
        guarantee: an upper limit: a guarantee of this kind, usually one that does not fit.

    Returns:
        The guarantee with a smaller first parameter (eps or mu), rounded down to three digits; its
        other parameter, delta, is unchanged. None: no release of this kind fits.
    """
    name, refused = next(iter(guarantee.parameters.items()))

    def with_value(value: float) -> Guarantee:
        """Return the guarantee with another value of its first parameter."""
        return read_guarantee({**guarantee.as_json, name: value})

    def fits(value: float) -> bool:
        """Return whether the budget holds one release with this value."""
        return allowance.max_lot_size(spent, with_value(value), 1) == 1

    if not fits(MIN_BUDGET):
        return None
    largest = largest_holding(fits, MIN_BUDGET, refused)
    return with_value(max(MIN_BUDGET, _rounded_down(largest)))


def _rounded_down(value: float) -> float:
    """Return a positive number, rounded down to three digits."""
    last_digit = 10.0 ** (math.floor(math.log10(value)) - 2)  # 1 in the third digit
    return float(f"{math.floor(value / last_digit) * last_digit:.3g}")


def eps_of_gaussian(guarantee: Guarantee, delta: float) -> float | None:
    """Return the ``total.eps`` with which one release has a Gaussian guarantee.

    With ``total.eps`` and ``total.delta``, a release gets the largest mu for which mu-GDP is
    (eps, delta)-DP. This mu grows with eps, so eps is rounded down.

    Args:
        guarantee: the guarantee of the release.
        delta: the delta of the budget.

    Returns:
        None for a guarantee that is not Gaussian, because its own text states eps; and if no
        permitted ``total.eps`` gives this mu.
    """
    if not isinstance(guarantee, GaussianDP):
        return None

    def is_within_delta(eps: float) -> bool:
        """Return whether a release with this guarantee is (eps, delta)-DP."""
        return mills_delta(eps, guarantee.mu) <= delta

    if not is_within_delta(MAX_TOTAL_EPS) or is_within_delta(MIN_BUDGET):
        return None
    return _rounded_down(smallest_holding(is_within_delta, MIN_BUDGET, MAX_TOTAL_EPS))
