"""What a ledger is charged for answers is their cost by formulas of the tests' own."""

import math
from dataclasses import replace
from decimal import Decimal
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from ledger_costs import is_wrong_cost, square_of_responses

from agt.mechanisms.budget import Lot
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("eps", [0.2, 1.0, 5.0])
def test_responses_are_as_gaussian_as_the_best_of_all_tests_says(eps: float, size: int) -> None:
    """Against every sequence of answers, likeliest first: no test of it goes beyond the curve,
    and one reaches it.
    """
    chance = 1 / (1 + math.exp(-eps))
    outcomes = list(product((0, 1), repeat=size))
    sides = [
        [math.prod(p if bit else 1 - p for bit in bits) for bits in outcomes]
        for p in (chance, 1 - chance)
    ]
    ordered = sorted(range(len(outcomes)), key=lambda place: sides[1][place] / sides[0][place])
    hits, alarms = (np.cumsum([side[place] for place in ordered])[:-1] for side in sides)
    losses = NormalDist().inv_cdf
    mu = max(losses(hit) - losses(alarm) for hit, alarm in zip(hits, alarms, strict=True))
    assert square_of_responses(eps, size) == pytest.approx(mu**2, rel=1e-9)


COSTS: list[tuple[Guarantee, int, dict[str, float], bool]] = [
    *(
        (guarantee, size, {}, False)
        for guarantee in (PureDP(0.1), PureDP(8.0), ApproximateDP(1.0, 1e-6), GaussianDP(0.5))
        for size in (1, 3, 1000)
    ),
    (PureDP(1.0), 8, {"pure": 0.5}, True),
    (PureDP(1.0), 8, {"square": 0.5}, True),
    *(
        (PureDP(eps), size, {"square": share}, True)
        for eps, share in ((0.1, 0.98), (1.0, 0.98), (1.0, 1.02))
        for size in (1, 8, 100)
    ),
    (ApproximateDP(1.0, 1e-6), 8, {"leak": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 0.5}, True),
    (GaussianDP(1.0), 8, {"square": 1.0001}, True),
]


@pytest.mark.parametrize(("guarantee", "size", "times", "wrong"), COSTS)
def test_a_debit_is_the_cost_by_a_formula_of_the_auditors_own(
    guarantee: Guarantee, size: int, times: dict[str, float], wrong: bool
) -> None:
    cost = Lot(guarantee, size).cost
    spent = replace(
        cost, **{name: getattr(cost, name) * Decimal(share) for name, share in times.items()}
    )
    assert is_wrong_cost(spent, (guarantee, size)) is wrong
    other = Lot(PureDP(2.0), 2).cost
    assert wrong or not is_wrong_cost(spent.plus(other), (guarantee, size), (PureDP(2.0), 2))
