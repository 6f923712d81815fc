"""The optimal mechanisms against a linear program that knows nothing but the definition of privacy."""

import numpy as np
import pytest
from scipy.optimize import linprog

from agt.mechanisms.composition import GaussianDP, delta_of
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import ProposeTestRelease, SmoothCauchy


def best_total(classes: int, k_max: int, levels: list[tuple[float, float]]) -> float:
    """The most that the P(nominal label) of all states (label, L), L = 0..k_max, can sum to.

    Variables: P(o | label, L) and, for every pair of neighbours and level, slacks t_o >= P(o) - exp(eps) P'(o), t_o >= 0,
    whose sum may be delta: the worst event is the set of o where the difference is positive.
    """
    states = [(label, k) for label in range(classes) for k in range(k_max + 1)]
    pairs = [((y, k), (y, k + 1)) for y in range(classes) for k in range(k_max)]
    pairs += [((y, 0), (z, 0)) for y in range(classes) for z in range(y)]
    directed = [
        (a, b, eps, delta) for one, other in pairs for a, b in ((one, other), (other, one)) for eps, delta in levels
    ]
    index = {state: place for place, state in enumerate(states)}
    p, slack = len(states) * classes, len(directed) * classes
    rows, limits = [], []
    for place, (a, b, eps, delta) in enumerate(directed):
        total = np.zeros(p + slack)
        for o in range(classes):
            row = np.zeros(p + slack)
            row[index[a] * classes + o], row[index[b] * classes + o] = 1, -np.exp(eps)
            row[p + place * classes + o] = -1
            total[p + place * classes + o] = 1
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(delta)
    sums = np.zeros((len(states), p + slack))
    gain = np.zeros(p + slack)
    for (label, k), place in index.items():
        sums[place, place * classes : (place + 1) * classes] = 1
        gain[index[label, k] * classes + label] = -1
    found = linprog(gain, A_ub=np.array(rows), b_ub=limits, A_eq=sums, b_eq=np.ones(len(states)), bounds=(0, 1))
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize(
    ("eps", "delta", "classes", "k_max"),
    [
        (0.1, 0.0, 2, 6),
        (1.0, 0.0, 2, 4),
        (0.02, 0.05, 2, 12),
        (0.3, 0.01, 2, 6),
        (1.5, 0.1, 2, 3),
        (0.2, 0.0, 3, 6),
        (0.4, 0.0, 4, 4),
        (0.3, 0.02, 3, 5),
        (0.1, 0.05, 4, 5),
        (0.05, 0.0, 5, 4),
    ],
)
def test_randomized_response(eps: float, delta: float, classes: int, k_max: int) -> None:
    flip = RandomizedResponse(eps=eps, delta=delta, classes=classes).flip_probability(np.arange(k_max + 1))
    ours = classes * float((1 - flip).sum())
    assert best_total(classes, k_max, [(eps, delta)]) == pytest.approx(ours, abs=1e-7)


def test_what_is_not_optimal_is_found_out() -> None:
    """The same program beats the published mechanisms by far."""
    distance = np.arange(7)
    for mechanism, level in (
        (SmoothCauchy(eps=0.3), (0.3, 0.0)),
        (ProposeTestRelease(eps=0.3, delta=0.01), (0.3, 0.01)),
    ):
        ours = 2 * float((1 - mechanism.flip_probability(distance)).sum())
        assert best_total(2, 6, [level]) > ours + 0.1


@pytest.mark.parametrize("mu", [0.2, 0.8])
def test_gaussian_margin(mu: float) -> None:
    """mu-GDP is (eps, delta(eps))-DP for every eps: with many eps the program comes down to our value."""
    k_max = 5
    guarantee = GaussianDP(mu)
    levels = [(float(eps), delta_of(guarantee, 1, float(eps))) for eps in np.linspace(0, mu * mu * (k_max + 2), 60)]
    ours = 2 * float((1 - GaussianMargin(mu=mu).flip_probability(np.arange(k_max + 1))).sum())
    best = best_total(2, k_max, levels)
    assert ours - 1e-7 <= best <= ours + 1e-3
