"""Composition: against closed forms, sums in many digits, brute force, each other, and privacy
loss distributions.
"""

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from pld import pld_total

from agt.errors import ConfigError
from agt.mechanisms.composition import (
    BOUNDS,
    PUBLISHED_BOUNDS,
    delta_of,
    eps_by_bound,
    per_query,
    pure_delta,
    total,
)
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, PureDP
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.numeric import mills_delta


def exact_pure_delta(e: float, queries: int, eps: float) -> mpmath.mpf:
    """reference.md section 4's sum, term by term in 60 digits."""
    with mpmath.workdps(60):
        e, p = mpmath.mpf(e), 1 / (1 + mpmath.exp(-mpmath.mpf(e)))
        terms = (
            mpmath.binomial(queries, j)
            * p**j
            * (1 - p) ** (queries - j)
            * (1 - mpmath.exp(eps - (2 * j - queries) * e))
            for j in range(queries + 1)
            if (2 * j - queries) * e > eps
        )
        return mpmath.fsum(terms)


def exact_gaussian_delta(mu: float, eps: float) -> mpmath.mpf:
    with mpmath.workdps(400):  # the difference cancels hundreds of digits for small mu
        m = mpmath.mpf(mu)
        e = mpmath.mpf(eps)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


class TestGuarantee:
    @pytest.mark.parametrize("make", [PureDP, GaussianDP, lambda eps: ApproximateDP(eps, 0.1)])
    @pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e-16, 101.0])
    def test_range(self, make, value: float) -> None:
        with pytest.raises(ConfigError, match=r"(eps|mu) =.*\b100\b"):
            make(value)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, math.inf])
    def test_delta_range(self, delta: float) -> None:
        with pytest.raises(ConfigError, match="delta"):
            ApproximateDP(1.0, delta)

    @pytest.mark.parametrize("eps", [-0.1, math.nan, math.inf])
    def test_level(self, eps: float) -> None:
        with pytest.raises(ConfigError, match="eps ="):
            delta_of(PureDP(1.0), 1, eps)

    def test_text(self) -> None:
        assert str(PureDP(0.1)) == "0.1-differentially private"
        assert str(ApproximateDP(1, 1e-5)) == "(1, 1e-05)-differentially private"
        assert str(GaussianDP(0.07)) == "0.07-Gaussian differentially private"

    @pytest.mark.parametrize("mu", [1e-12, 1e-5, 9.9e-5, 1.01e-4, 0.01, 0.3, 2.0, 30.0, 1000.0])
    def test_gaussian_delta_from_above(self, mu: float) -> None:
        for x in (-30, -2.0, -0.5, 0.0, 0.5, 3.0, 8.0, 20.0, 36.0):  # eps = mu^2/2 + x mu
            eps = mu * mu / 2 + x * mu
            if eps < 0:
                continue
            true = exact_gaussian_delta(mu, eps)
            ours = mills_delta(eps, mu)
            assert (
                true
                <= ours
                <= true * (1 + mpmath.mpf(1e-4 if mu < 1e-4 else 1e-7)) + mpmath.mpf(1e-307)
            )

    def test_gaussian_delta_never_vanishes(self) -> None:
        assert mills_delta(10.0, 0.01) > 0  # the true value is about 10^-217000

    def test_pure_and_approximate_levels(self) -> None:
        e = 1.3
        for eps in (0.0, 0.4, 1.2):
            true = (math.exp(e) - math.exp(eps)) / (1 + math.exp(e))
            assert true <= delta_of(PureDP(e), 1, eps) <= true * (1 + 1e-7)
            assert delta_of(ApproximateDP(e, 0.01), 1, eps) == pytest.approx(
                0.01 + 0.99 * true, rel=1e-7
            )
        assert 0 <= delta_of(PureDP(e), 1, e) < 1e-8
        assert delta_of(ApproximateDP(e, 0.01), 1, 2.0) == pytest.approx(0.01)


class TestOptimal:
    @pytest.mark.parametrize(
        ("e", "queries"), [(1.0, 1), (0.5, 10), (0.01, 100), (0.2, 100), (3.0, 20), (1e-6, 50)]
    )
    def test_against_the_sum(self, e: float, queries: int) -> None:
        for part in (0.0, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999):
            eps = part * queries * e
            true = exact_pure_delta(e, queries, eps)
            ours = pure_delta(e, queries, eps)
            assert true <= ours <= true * (1 + mpmath.mpf(1e-5)) + mpmath.mpf(1e-8) * (e < 1e-3)

    def test_against_all_outputs(self) -> None:
        """delta is the hockey-stick divergence of eight randomized responses, over all 2^8
        outputs.
        """
        e = 0.4
        queries = 8
        eps = 1.0
        p = math.exp(e) / (1 + math.exp(e))
        true = sum(
            max(0.0, p**k * (1 - p) ** (8 - k) - math.exp(eps) * (1 - p) ** k * p ** (8 - k))
            for k in (sum(bits) for bits in product((0, 1), repeat=queries))
        )
        assert pure_delta(e, queries, eps) == pytest.approx(true, rel=1e-7)

    @pytest.mark.parametrize(("e", "queries"), [(1e-4, 10**8), (1e-5, 10**9)])
    def test_many_queries_are_gaussian(self, e: float, queries: int) -> None:
        """Up to Q = 10^9: the limit law is e sqrt(Q)-GDP."""
        found = total(PureDP(e), queries, 1e-5)
        mu = e * math.sqrt(queries)
        assert found.bound == "optimal"
        assert mills_delta(found.eps, mu) == pytest.approx(1e-5, rel=1e-3)

    def test_beyond_its_limit_another_bound_is_named(self) -> None:
        found = total(PureDP(1e-6), 10**12, 1e-5)
        assert found.bound == "advanced"
        assert "optimal" not in eps_by_bound(PureDP(1e-6), 10**12, 1e-5)
        assert "advanced" in str(found)

    def test_approximate_against_leaks(self) -> None:
        """1 - (1-d)^Q (1 - delta): some query leaks, or none does and the rest is randomized
        response.
        """
        e = 0.1
        d = 1e-7
        queries = 200
        found = total(ApproximateDP(e, d), queries, 1e-4, ("optimal",))
        true = 1 - (1 - d) ** queries * (1 - float(exact_pure_delta(e, queries, found.eps)))
        assert true <= 1e-4
        assert true == pytest.approx(1e-4, rel=1e-3)


class TestTotal:
    def test_classical_forms(self) -> None:
        e = 0.01
        queries = 1000
        delta = 1e-5
        each = eps_by_bound(PureDP(e), queries, delta)
        assert each["basic"] == pytest.approx(10)
        assert each["advanced"] == pytest.approx(
            e * math.sqrt(2 * queries * math.log(1 / delta)) + queries * e * math.expm1(e)
        )
        assert each["optimal"] < each["advanced"] < each["basic"]

    def test_one_query_is_itself(self) -> None:
        assert total(PureDP(0.3), 1, 0.0).eps == pytest.approx(0.3)
        assert total(ApproximateDP(0.3, 1e-5), 1, 1e-5, ("basic",)).eps == pytest.approx(0.3)
        assert 0.3 > total(PureDP(0.3), 1, 1e-3).eps > 0.29

    def test_gaussian(self) -> None:
        found = total(GaussianDP(0.07), 1000, 1e-5)
        assert found.bound == "gaussian"
        mu = 0.07 * math.sqrt(1000)
        assert exact_gaussian_delta(mu, found.eps) <= 1e-5
        assert exact_gaussian_delta(mu, found.eps * (1 - 1e-6)) > 1e-5

    def test_no_bound_fits(self) -> None:
        with pytest.raises(ConfigError, match=r"1-Gaussian.*delta = 0\b"):
            total(GaussianDP(1.0), 10, 0.0)
        with pytest.raises(ConfigError, match=r"1e-05.*\b0\.001\b"):
            total(ApproximateDP(0.1, 1e-6), 1000, 1e-5)
        with pytest.raises(ConfigError, match=r"optimal.*delta = 0\b"):
            total(PureDP(0.1), 10, 0.0, ("optimal",))

    @pytest.mark.parametrize(
        ("queries", "delta", "match"),
        [
            (0, 1e-5, "queries"),
            (2.5, 1e-5, "queries"),
            (10**13, 1e-5, "queries"),
            (10, -1e-9, "delta"),
            (10, 1.0, "delta"),
        ],
    )
    def test_bad_input(self, queries: int, delta: float, match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            total(PureDP(0.1), queries, delta)

    def test_nan_delta_and_unknown_bound(self) -> None:
        with pytest.raises(ConfigError, match="delta"):
            total(PureDP(0.1), 10, math.nan)
        with pytest.raises(ConfigError, match=r"'renyi'.*basic, advanced"):
            total(PureDP(0.1), 10, 1e-5, ("renyi",))

    def test_huge_budgets_do_not_overflow(self) -> None:
        """Q eps = 10^14: finite and said, never inf or a crash."""
        assert total(PureDP(100.0), 10**12, 1e-5).eps == pytest.approx(1e14)
        with pytest.raises(ConfigError, match=r"100-Gaussian.*1e-05"):
            total(GaussianDP(100.0), 10**12, 1e-5)


class TestPerQuery:
    @pytest.mark.parametrize("kind", [PureDP, ApproximateDP, GaussianDP])
    @pytest.mark.parametrize(
        ("eps", "queries"), [(0.1, 7), (1.0, 1000), (10.0, 1000), (1.0, 10**6), (3.0, 10**9)]
    )
    def test_fits_and_is_the_largest(self, kind: type, eps: float, queries: int) -> None:
        one = per_query(kind, eps, 1e-5, queries)
        assert total(one, queries, 1e-5).eps <= eps
        parameters = one.parameters
        first = next(iter(parameters))
        more = kind(**{**parameters, first: parameters[first] * (1 + 1e-4)})
        assert total(more, queries, 1e-5).eps > eps

    def test_pure_total_needs_no_delta(self) -> None:
        assert per_query(PureDP, 1.0, 0.0, 100).eps == pytest.approx(0.01)

    def test_published_choice_is_smaller(self) -> None:
        assert (
            per_query(PureDP, 10, 1e-5, 1000, PUBLISHED_BOUNDS).eps
            < per_query(PureDP, 10, 1e-5, 1000, BOUNDS).eps
        )

    def test_refusals(self) -> None:
        with pytest.raises(ConfigError, match=r"1e-06.*1e-15"):
            per_query(PureDP, 1e-6, 0.0, 10**12)
        with pytest.raises(ConfigError, match="delta ="):
            per_query(ApproximateDP, 1.0, 0.0, 10)
        with pytest.raises(ConfigError, match=r"1e-15-Gaussian.*delta = 0\b"):
            per_query(GaussianDP, 1.0, 0.0, 10)
        with pytest.raises(ConfigError, match="float"):
            per_query(float, 1.0, 1e-5, 10)  # type: ignore[type-var]
        for eps in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(ConfigError, match="eps"):
                per_query(PureDP, eps, 1e-5, 10)

    def test_method_example(self) -> None:
        """Q = 1,000, total eps = 1, delta = 1e-5, L = 200: .955 from gaussian_margin, .909 from
        randomized_response.
        """
        margin = GaussianMargin.with_guarantee(per_query(GaussianDP, 1.0, 1e-5, 1000))
        response = RandomizedResponse.with_guarantee(per_query(PureDP, 1.0, 1e-5, 1000))
        at = np.array([200])
        assert 1 - margin.flip_probability(at)[0] == pytest.approx(0.955, abs=5e-4)
        assert 1 - response.flip_probability(at)[0] == pytest.approx(0.909, abs=5e-4)


class TestPld:
    """dp-accounting's privacy loss distributions round up: they agree within 1 % from above."""

    @pytest.mark.parametrize("queries", [1, 10, 1000])
    @pytest.mark.parametrize(
        "guarantee",
        [PureDP(0.5), PureDP(0.01), ApproximateDP(0.05, 1e-9), GaussianDP(0.07), GaussianDP(0.5)],
        ids=str,
    )
    def test_agrees(self, guarantee, queries: int) -> None:
        delta = 1e-5
        ours = total(guarantee, queries, delta).eps
        theirs = pld_total(guarantee, queries, delta)
        assert ours * (1 - 1e-6) - 1e-9 <= theirs <= ours * 1.01 + 1e-9
