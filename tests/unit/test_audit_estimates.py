"""Lower bounds on the privacy loss, and what a loss means to who guesses: against exact chances,
and broken on purpose.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import get_args

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import beta as beta_law, binom, norm

from agt_audit import estimates
from agt_audit.claims import MOST_TRIALS, Claimed, TestedClaim
from agt_audit.estimates import (
    Mistakes,
    advantage,
    epsilon_bound,
    gaussian_advantage,
    lower_limit,
    mu_bound,
    posterior,
    upper_limit,
)
from agt_audit.output_events import Outputs, choose_event, label_event

N = 60
RATES = ((0.1, 0.1), (0.02, 0.4), (0.4, 0.02), (0.3, 0.3), (0.0, 0.5))


def true_epsilon(alpha: float, beta: float, delta: float) -> float:
    """What a test of these rates proves at best."""
    ratios = [
        (1 - delta - b) / a if a else math.inf
        for a, b in ((alpha, beta), (beta, alpha))
        if 1 - delta - b > 0
    ]
    return max([0.0, *(math.log(ratio) for ratio in ratios if ratio > 0)])


def exceeds(bound: Callable[[Mistakes], float], truth: float, alpha: float, beta: float) -> float:
    """The exact probability that a bound from N trials a side exceeds the truth."""
    chances = (binom.pmf(np.arange(N + 1), N, rate) for rate in (alpha, beta))
    total = 0.0
    first, second = chances
    for alarms in range(N + 1):
        for misses in range(N + 1):
            chance = first[alarms] * second[misses]
            if chance > 1e-9 and bound(Mistakes(alarms, N, misses, N)) > truth + 1e-12:
                total += chance
    return total


class TestCoverage:
    @pytest.mark.parametrize(("alpha", "beta"), RATES)
    @pytest.mark.parametrize("delta", [0.0, 0.05])
    def test_epsilon(self, alpha: float, beta: float, delta: float) -> None:
        bound = partial(epsilon_bound, delta=delta, confidence=0.9)
        assert exceeds(bound, true_epsilon(alpha, beta, delta), alpha, beta) <= 0.1

    @pytest.mark.parametrize("alpha", [0.05, 0.3])
    def test_mu(self, alpha: float) -> None:
        beta = float(ndtr(-1 - estimates.ndtri(alpha)))
        assert exceeds(partial(mu_bound, confidence=0.9), 1.0, alpha, beta) <= 0.1


class TestNumbers:
    def test_limits_are_clopper_and_pearsons(self) -> None:
        assert upper_limit(0, 10, 0.05) == pytest.approx(1 - 0.05**0.1)
        assert upper_limit(10, 10, 0.05) == 1
        assert lower_limit(0, 10, 0.05) == 0
        for events in (1, 3, 9):
            assert upper_limit(events, 10, 0.05) == pytest.approx(
                beta_law.ppf(0.95, events + 1, 10 - events)
            )
            assert lower_limit(events, 10, 0.05) == pytest.approx(
                beta_law.ppf(0.05, events, 11 - events)
            )

    def test_zero_counts(self) -> None:
        assert epsilon_bound(Mistakes(1000, 1000, 1000, 1000), 0.0, 0.95) == 0
        assert mu_bound(Mistakes(1000, 1000, 1000, 1000), 0.95) == 0

    def test_bound_of_counts(self) -> None:
        """reference.md section 8: about 5.6."""
        found = epsilon_bound(Mistakes(9, 10_000, 5265, 10_000), 0.0, 0.95)
        assert found == pytest.approx(5.604, abs=0.001)


class TestTrials:
    @pytest.mark.parametrize(
        "claimed",
        [Claimed("epsilon", 1.0), Claimed("epsilon", 4.0, 0.01), Claimed("mu", 2.0)],
        ids=str,
    )
    def test_least_number(self, claimed: Claimed) -> None:
        """One fewer could not contradict the claim, whatever it counted."""
        least = claimed.needed(0.95)
        assert claimed.bound(Mistakes(0, least, 0, least), 0.95) > claimed.value
        assert claimed.bound(Mistakes(0, least - 1, 0, least - 1), 0.95) <= claimed.value

    def test_more_than_there_can_be(self) -> None:
        assert Claimed("epsilon", 90.0).needed(0.95) == MOST_TRIALS

    def test_what_could_have_been_noticed(self) -> None:
        claimed = Claimed("epsilon", 1.0)
        few, many = (claimed.noticed(trials, 0.95) for trials in (1000, 100_000))
        assert 1 < many < few < 1.3
        assert claimed.noticed(5, 0.95) is None


class TestEvents:
    def test_mistakes_of_who_is_right(self) -> None:
        first = np.array([1, 1, 1, 0])
        second = np.array([0, 0, 1])
        assert label_event((1,)).mistakes(first, second) == Mistakes(1, 3, 1, 4)

    def test_a_threshold_in_the_tail(self) -> None:
        """The event of the greatest bound, though it is rare: numbers beyond what the other side
        ever reaches.
        """
        rng = np.random.default_rng(0)
        first = np.concatenate([rng.normal(size=950), np.full(50, 9.0)])
        second = rng.normal(size=1000)
        event = choose_event(first, second, Claimed("epsilon", 1.0), 0.95, "scores")
        assert not event.holds(second).any()
        assert event.holds(np.array([9.0])).all()

    @pytest.mark.parametrize("outputs", get_args(Outputs))
    def test_of_events_that_show_nothing_the_one_that_errs_least(self, outputs: Outputs) -> None:
        first = np.repeat([0, 1], [30, 70])
        second = np.repeat([0, 1], [40, 60])
        for sides in ((first, second), (second, first)):
            event = choose_event(*sides, Claimed("epsilon", 1.0), 0.95, outputs)
            assert event.mistakes(*sides).rate == pytest.approx(0.9)


def test_a_verdict_in_the_claims_own_measure() -> None:
    """It is the bound on epsilon for a claimed epsilon, and the bound on mu for a claimed mu."""
    attacked = TestedClaim("m", "1-DP", "a", "e", Claimed("epsilon", 1.0), 0.95)
    needed = attacked.claimed.needed(0.95)
    few = Mistakes(1, 2, 1, 2)
    assert re.search(rf"\b{needed}\b.*audit\.trials", attacked.judge(few).meaning)
    assert f"audit.trials={4 * needed} or more" in replace(attacked, together=4).judge(few).meaning
    counts = Mistakes(100, 1000, 100, 1000)
    assert attacked.judge(counts).found == epsilon_bound(counts, 0.0, 0.95)
    of_mu = replace(attacked, claimed=Claimed("mu", 1.0)).judge(counts)
    assert (of_mu.measure, of_mu.found) == ("mu", mu_bound(counts, 0.95))


# -- what a loss means ---

PRIORS = (0.5, 0.01, 0.9)
# of five outputs: for which of them it says "used"
EVERY_TEST = np.array(list(product((0, 1), repeat=5)))


def pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two laws of five outputs."""
    used, unused = np.random.default_rng(seed).dirichlet(np.full(5, 0.5), 2)
    return used, unused


def delta_of(used: np.ndarray, unused: np.ndarray, eps: float) -> float:
    """The least delta at which both orders are (eps, delta)-DP."""
    return max(
        float(np.maximum(p - math.exp(eps) * q, 0).sum())
        for p, q in ((used, unused), (unused, used))
    )


def optimal(eps: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The pair that every (eps, delta)-DP one is a function of: the truth, a flipped coin twice,
    the truth again.
    """
    coin = (1 - delta) / (1 + math.exp(eps))
    used = np.array([delta, math.exp(eps) * coin, coin, 0.0, 0.0])
    return used, used[[3, 2, 1, 0, 4]]


@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0, 3.0])
def test_no_test_has_more_advantage_and_one_has_it(eps: float) -> None:
    for seed in range(200):
        used, unused = pairs(seed)
        best = (EVERY_TEST @ (used - unused)).max()
        assert best <= advantage(eps, delta_of(used, unused, eps)) + 1e-12
    for delta in (0.0, 1e-5, 0.2):
        used, unused = optimal(eps, delta)
        assert delta_of(used, unused, eps) == pytest.approx(delta, abs=1e-12)
        assert (EVERY_TEST @ (used - unused)).max() == pytest.approx(
            advantage(eps, delta), abs=1e-12
        )


@pytest.mark.parametrize("mu", [0.0, 0.2, 1.0, 4.0])
def test_the_best_threshold_of_a_gaussian(mu: float) -> None:
    thresholds = np.linspace(-6, 10, 16_001)
    assert (norm.sf(thresholds - mu) - norm.sf(thresholds)).max() == pytest.approx(
        gaussian_advantage(mu), abs=1e-6
    )


@pytest.mark.parametrize("prior", PRIORS)
def test_no_answer_of_a_pure_mechanism_makes_anybody_surer(prior: float) -> None:
    for seed in range(200):
        used, unused = pairs(seed)
        eps = float(np.abs(np.log(used / unused)).max())
        tests = EVERY_TEST[1:]
        sure = prior * tests @ used / (prior * tests @ used + (1 - prior) * tests @ unused)
        assert sure.max() <= posterior(prior, eps) + 1e-12
    used, unused = optimal(1.0, 0.0)
    assert prior * used[1] / (prior * used[1] + (1 - prior) * unused[1]) == pytest.approx(
        posterior(prior, 1.0)
    )
