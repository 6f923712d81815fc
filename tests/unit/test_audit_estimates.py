"""Lower bounds on the privacy loss: how often they exceed the truth, exactly, and auditors that are broken on purpose."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import beta as beta_law
from scipy.stats import binom

from agt.audit import estimates
from agt.audit.estimates import (
    Claimed,
    Mistakes,
    epsilon_bound,
    katz_bound,
    lower_limit,
    mu_bound,
    posterior_bound,
    trials_needed,
    upper_limit,
)
from agt.audit.findings import Strength
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, PureDP

N = 60
RATES = ((0.1, 0.1), (0.02, 0.4), (0.4, 0.02), (0.3, 0.3), (0.0, 0.5))


def true_epsilon(alpha: float, beta: float, delta: float) -> float:
    """What a test of these rates proves at best."""
    ratios = [(1 - delta - b) / a if a else math.inf for a, b in ((alpha, beta), (beta, alpha)) if 1 - delta - b > 0]
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

    def test_katz_is_about_right_where_counts_are_large(self) -> None:
        assert exceeds(partial(katz_bound, delta=0.0, confidence=0.9), math.log(0.7 / 0.3), 0.3, 0.3) < 0.13

    @pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.3)])
    def test_limits_that_were_swapped_are_caught(self, alpha: float, beta: float) -> None:
        def swapped(mistakes: Mistakes) -> float:
            a, b = lower_limit(mistakes.alarms, N, 0.05), lower_limit(mistakes.misses, N, 0.05)
            return max(estimates._epsilon(a, b, 0.0), estimates._epsilon(b, a, 0.0))

        assert exceeds(swapped, true_epsilon(alpha, beta, 0.0), alpha, beta) > 0.5

    def test_the_lectures_mu_is_caught(self) -> None:
        """Phi^-1(1 - alpha+) - Phi^-1(beta-): the lower limit of beta, as in lecture 004."""
        beta = float(ndtr(-1 - estimates.ndtri(0.3)))

        def lectures(mistakes: Mistakes) -> float:
            a, b = upper_limit(mistakes.alarms, N, 0.05), lower_limit(mistakes.misses, N, 0.05)
            return float(-estimates.ndtri(a) - estimates.ndtri(b)) if b > 0 and a < 1 else 0.0

        assert exceeds(lectures, 1.0, 0.3, beta) > 0.25

    def test_a_forgotten_correction_is_caught(self) -> None:
        """The best of 60 labels on the same draws, though nothing tells the sides apart: too large a bound, too often; not
        so with the correction."""
        rng, labels, n, audits = np.random.default_rng(0), 60, 3000, 200
        wrong = dict.fromkeys((1, labels), 0)
        for _ in range(audits):
            alarms, hits = rng.multinomial(n, np.full(labels, 1 / labels), size=2).tolist()
            counts = [Mistakes(alarm, n, n - hit, n) for alarm, hit in zip(alarms, hits, strict=True)]
            for events in wrong:
                wrong[events] += max(epsilon_bound(count, 0.0, 0.95, events) for count in counts) > 0
        assert wrong[1] > 0.1 * audits
        assert wrong[labels] <= 0.05 * audits


class TestNumbers:
    def test_limits_are_clopper_and_pearsons(self) -> None:
        assert upper_limit(0, 10, 0.05) == pytest.approx(1 - 0.05**0.1)
        assert upper_limit(10, 10, 0.05) == 1
        assert lower_limit(0, 10, 0.05) == 0
        for events in (1, 3, 9):
            assert upper_limit(events, 10, 0.05) == pytest.approx(beta_law.ppf(0.95, events + 1, 10 - events))
            assert lower_limit(events, 10, 0.05) == pytest.approx(beta_law.ppf(0.05, events, 11 - events))

    def test_katz_of_counts(self) -> None:
        """ln(n1/n2) - z sqrt(1/n1 + 1/n2 - 2/N), n1 true positives and n2 false ones, as Katz has it."""
        z = -float(estimates.ndtri(0.025))
        expected = math.log(700 / 100) - z * math.sqrt(1 / 700 + 1 / 100 - 2 / 1000)
        assert katz_bound(Mistakes(100, 1000, 300, 1000), 0.0, 0.95) == pytest.approx(expected)

    def test_zero_counts(self) -> None:
        """Never a false alarm: Katz-log has no variance there, and Clopper-Pearson takes its place; all are finite."""
        mistakes = Mistakes(0, 1000, 300, 1000)
        assert katz_bound(mistakes, 0.0, 0.95) == epsilon_bound(mistakes, 0.0, 0.95) > 0
        assert 0 < posterior_bound(Mistakes(0, 1000, 0, 1000), 0.0, 0.95) < 10
        assert epsilon_bound(Mistakes(1000, 1000, 1000, 1000), 0.0, 0.95) == 0
        assert mu_bound(Mistakes(1000, 1000, 1000, 1000), 0.95) == 0

    def test_posterior_at_high_confidence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mistakes = Mistakes(50, 1000, 5, 1000)
        few = posterior_bound(mistakes, 0.0, 0.999)
        monkeypatch.setattr(estimates, "NODES", 2048)
        assert few == pytest.approx(posterior_bound(mistakes, 0.0, 0.999), abs=0.002)

    def test_posterior_by_sampling(self) -> None:
        rng, mistakes = np.random.default_rng(0), Mistakes(20, 1000, 300, 900)
        alpha, beta = rng.beta(20.5, 980.5, 200_000), rng.beta(300.5, 600.5, 200_000)
        for delta in (0.0, 0.1):
            eps = np.maximum(np.log((1 - delta - beta) / alpha), np.log((1 - delta - alpha) / beta))
            assert posterior_bound(mistakes, delta, 0.95) == pytest.approx(np.quantile(eps, 0.05), abs=0.01)

    def test_none_without_trials(self) -> None:
        with pytest.raises(ValueError, match="counts no trials"):
            Mistakes(0, 0, 0, 10)

    def test_all_four_and_what_they_mean(self) -> None:
        found = estimates.estimates(Mistakes(9, 10_000, 5265, 10_000), 0.0, 0.95)
        assert [each.strength for each in found] == [
            Strength.CONFIDENT,
            Strength.ASYMPTOTIC,
            Strength.CREDIBLE,
            Strength.CONFIDENT,
        ]
        assert found[0].value == pytest.approx(5.604, abs=0.001)  # method.md section 8: about 5.6


class TestTrials:
    @pytest.mark.parametrize(
        "claimed", [Claimed("epsilon", 1.0), Claimed("epsilon", 4.0, 0.01), Claimed("mu", 2.0)], ids=str
    )
    def test_least_number(self, claimed: Claimed) -> None:
        """One fewer could not contradict the claim, whatever it counted."""
        least = trials_needed(claimed, 0.95)
        assert claimed.bound(Mistakes(0, least, 0, least), 0.95) > claimed.value
        assert claimed.bound(Mistakes(0, least - 1, 0, least - 1), 0.95) <= claimed.value

    def test_more_than_there_can_be(self) -> None:
        assert trials_needed(Claimed("epsilon", 90.0), 0.95) == estimates.MOST_TRIALS

    def test_what_could_have_been_noticed(self) -> None:
        claimed = Claimed("epsilon", 1.0)
        few, many = (claimed.noticed(trials, 0.95) for trials in (1000, 100_000))
        assert few is not None
        assert many is not None
        assert 1 < many < few < 1.3
        assert claimed.noticed(5, 0.95) is None

    def test_of_guarantees(self) -> None:
        assert Claimed.of(PureDP(1.0)) == Claimed("epsilon", 1.0, 0.0)
        assert Claimed.of(ApproximateDP(1.0, 0.1)) == Claimed("epsilon", 1.0, 0.1)
        assert Claimed.of(GaussianDP(1.0)) == Claimed("mu", 1.0)
