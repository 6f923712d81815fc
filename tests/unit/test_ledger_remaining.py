"""What is said to fit into the rest of a ledger is what the ledger then admits, and no more."""

import pytest

from agt.ledger.remaining import RemainingBudget, closing_warning
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.composition import per_query
from agt.mechanisms.guarantees import GaussianDP, Guarantee, PureDP

BUDGET = Allowance(eps=1.0, delta=1e-5)
SPENT = {
    "nothing": Cost(),
    "a few labels": Lot(PureDP(0.1)).cost,
    "labels": Lot(PureDP(0.2), 2).cost,
    "many labels": Lot(PureDP(0.05), 19).cost,
    "weights": Lot(GaussianDP(0.1)).cost,
    "all": Lot(GaussianDP(BUDGET.mu_limit)).cost,
}


def gaussian(eps: float) -> Guarantee:
    return per_query(GaussianDP, eps, BUDGET.delta, 1)


@pytest.mark.parametrize("spent", SPENT.values(), ids=SPENT)
def test_what_remains_is_admitted_and_one_per_cent_more_is_not(spent: Cost) -> None:
    remaining = RemainingBudget.after(BUDGET, spent)
    for eps, kind in ((remaining.labels_eps, PureDP), (remaining.gaussian_eps, gaussian)):
        assert eps == 0 or BUDGET.admits(spent, Lot(kind(eps)))
        assert not BUDGET.admits(spent, Lot(kind(1.01 * eps or 1e-9)))


@pytest.mark.parametrize("spent", SPENT.values(), ids=SPENT)
@pytest.mark.parametrize("count", [2, 10, 1000])
def test_labels_may_share_what_remains_for_labels(spent: Cost, count: int) -> None:
    eps = RemainingBudget.after(BUDGET, spent).labels_eps
    assert eps == 0 or BUDGET.admits(spent, Lot(PureDP(eps / count * (1 - 1e-12)), count))


def test_two_labels_close_a_ledger_to_gaussian_noise_and_leave_room_for_labels() -> None:
    remaining = RemainingBudget.after(BUDGET, Lot(PureDP(0.2), 2).cost)
    assert (remaining.labels_eps, remaining.gaussian_eps) == (0.6, 0.0)


def test_after_weights_labels_fit_by_the_gaussian_sum_alone() -> None:
    remaining = RemainingBudget.after(BUDGET, gaussian_lot(0.5).cost)
    assert 0.1 < remaining.labels_eps < 0.3


def gaussian_lot(eps: float) -> Lot:
    return Lot(gaussian(eps))


@pytest.mark.parametrize("lot", [Lot(PureDP(0.2), 2), gaussian_lot(0.5)], ids=["labels", "weights"])
def test_a_lot_that_takes_most_of_the_other_kind_is_warned_of(lot: Lot) -> None:
    assert closing_warning(BUDGET, Cost(), lot)


@pytest.mark.parametrize(
    ("spent", "lot"),
    [
        (Cost(), Lot(PureDP(0.01))),
        (Cost(), gaussian_lot(1.0)),  # all of the budget: nothing of either kind is left
        (Lot(PureDP(0.2), 2).cost, Lot(PureDP(0.2))),  # closed before
    ],
    ids=["little", "all", "closed before"],
)
def test_other_lots_are_not_warned_of(spent: Cost, lot: Lot) -> None:
    assert not closing_warning(BUDGET, spent, lot)


def test_a_budget_without_a_delta_has_no_room_for_gaussian_noise() -> None:
    assert RemainingBudget.after(Allowance(eps=1.0), Cost()).gaussian_eps == 0


def test_a_small_first_release_that_uses_up_the_whole_budget_is_warned_of() -> None:
    only_leaks = Allowance(eps=3.0, delta=1e-3, leaks=1.0)  # no sum admits Gaussian noise
    small = Lot(GaussianDP(0.03))
    assert only_leaks.admits(Cost(), small)
    assert "no release fits afterwards" in closing_warning(only_leaks, Cost(), small)
    whole = Lot(GaussianDP(0.8))  # its own total is eps = 2.4
    assert only_leaks.admits(Cost(), whole)
    assert closing_warning(only_leaks, Cost(), whole) == ""


def test_a_budget_larger_than_that_of_one_release_is_taken() -> None:
    large = Allowance(eps=500_000.0, delta=1e-5)
    spent = Lot(PureDP(1.0)).cost
    assert RemainingBudget.after(large, spent).labels_eps == 100
    assert closing_warning(large, spent, Lot(PureDP(1.0))) == ""
