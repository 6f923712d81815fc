"""The account of a budget: numbers at the edges, decimals, what fits, and agreement with fixed
compositions.
"""

import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from scipy.special import ndtri, ndtri_exp

from agt.errors import ConfigError
from agt.mechanisms.argmax import GaussianArgmax, NoisyArgmax
from agt.mechanisms.budget import Allowance, Cost, Lot
from agt.mechanisms.composition import MAX_QUERIES, delta_of, per_query, total
from agt.mechanisms.gaussian_equivalent import BLOCK_RELEASES, single_mu, squared_mu
from agt.mechanisms.guarantees import ApproximateDP, GaussianDP, Guarantee, PureDP, read_guarantee
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.planning import Budget, afford
from agt.mechanisms.published import ProposeTestRelease
from agt.mechanisms.quantile import CertifiedQuantile
from agt.mechanisms.weights import ReleaseWeights
from agt.numeric import mills_delta, printed_decimal
from agt.training.noise import plan_noise
from agt.training.settings import NoiseConfig

FRESH = Cost()
EPS = st.floats(1e-15, 100)
DELTAS = st.floats(1e-300, 1, exclude_max=True)
SIZE = st.one_of(st.integers(1, 10_000), st.integers(1, MAX_QUERIES))
GUARANTEES = st.one_of(EPS.map(PureDP), EPS.map(GaussianDP), st.builds(ApproximateDP, EPS, DELTAS))
ALLOWANCES = st.builds(
    Allowance, st.floats(1e-3, 1e3), st.one_of(st.just(0.0), st.floats(1e-12, 0.5)), st.floats(0, 1)
)


def spend(allowance: Allowance, *lots: Lot) -> list[bool]:
    """Which of the lots are admitted, one after another."""
    spent = FRESH
    taken = []
    for lot in lots:
        taken.append(allowance.admits(spent, lot))
        spent = spent.plus(lot.cost) if taken[-1] else spent
    return taken


def normal_quantile(p: mpmath.mpf) -> mpmath.mpf:
    """Phi^-1(p) for p up to 1/2, from its double by Newton's method."""
    z = mpmath.mpf(float(ndtri(float(p))))
    for _ in range(4):
        z -= (mpmath.ncdf(z) - p) / mpmath.npdf(z)
    return z


class TestDecimals:
    @pytest.mark.parametrize(
        ("eps", "count"),
        [(0.1, 10), (0.01, 100), (0.3, 10), (0.7, 10), (1e-15, 10**12), (100.0, 3)],
    )
    @pytest.mark.parametrize("delta", [0.0, 1e-9])
    def test_a_budget_of_n_releases_holds_n(self, eps: float, count: int, delta: float) -> None:
        """Also where doubles add up to more: ten times 0.1 is 1."""
        allowance = Allowance(float(printed_decimal(eps) * count), delta)
        once = allowance.max_lot_size(FRESH, PureDP(eps), 10**12)
        assert once >= count if delta else once == count
        if count <= 1000:
            assert spend(Allowance(allowance.eps), *[Lot(PureDP(eps))] * (count + 1)) == [
                True
            ] * count + [False]

    def test_the_double_would_have_been_too_much(self) -> None:
        assert 10 * Fraction(0.1) > 1
        # 0.1 + 0.1 + 0.1 > 0.3
        assert spend(Allowance(0.3), *[Lot(PureDP(0.1))] * 4) == [True, True, True, False]

    def test_leaks_are_decimals_too(self) -> None:
        allowance = Allowance(10.0, 1e-5, 0.1)
        first = Lot(PureDP(1e-3))
        rest = [Lot(ApproximateDP(1e-3, 1e-7))] * 11
        assert spend(allowance, first, *rest) == [True] * 11 + [False]

    @pytest.mark.parametrize("eps", [0.1, 0.3, 0.7, 1 / 3, 2.5e-7])
    def test_mechanisms_keep_to_the_decimal(self, eps: float) -> None:
        """P(flip at L) <= e^eps P(flip at L + 1) with the decimal eps, exactly."""
        mechanism = RandomizedResponse(eps=eps)
        with mpmath.workdps(80):
            worth = mpmath.exp(min(mpmath.mpf(repr(eps)), mpmath.mpf(eps)))
            for distance in range(5):
                here, there = (
                    mpmath.mpf(f.numerator) / f.denominator
                    for f in map(mechanism.exact_flip, (distance, distance + 1))
                )
                assert here <= worth * there
                assert 1 - there <= worth * (1 - here)

    @pytest.mark.parametrize("mu", [0.1, 0.2, 1 / 3])
    @pytest.mark.parametrize("kind", [GaussianMargin, GaussianArgmax])
    def test_gaussian_tables_keep_to_the_decimal(self, kind: type[Mechanism], mu: float) -> None:
        """Phi^-1(flip at L) falls by the decimal mu at most, from -mu/2 at least where labels
        differ.
        """
        step = 2 if kind is GaussianArgmax else 1
        known = kind.with_guarantee(GaussianDP(mu))
        with mpmath.workdps(60):
            least = min(mpmath.mpf(repr(mu)), mpmath.mpf(mu))
            flips = [known.exact_flip(step * distance) for distance in range(8)]
            z = [normal_quantile(mpmath.mpf(flip.numerator) / flip.denominator) for flip in flips]
            assert z[0] >= -least / 2
            assert max(here - there for here, there in pairwise(z)) <= least

    def test_a_cost_survives_json(self) -> None:
        for cost in (
            FRESH,
            Lot(ApproximateDP(0.1, 1e-300), 10**12).cost,
            Lot(GaussianDP(1e-15)).cost,
        ):
            assert Cost.from_json(json.loads(json.dumps(cost.as_json()))) == cost

    @pytest.mark.parametrize(
        "node",
        [
            {},
            {"pure": "1", "square": "1"},
            {"pure": "1", "square": None, "leak": "0"},
            {"pure": "NaN", "square": "0", "leak": "0"},
        ]
        + [
            {"pure": "0", "square": bad, "leak": "0"}
            for bad in ("-1", "nan", "inf", "sNaN", "x", "1e", "")
        ],
    )
    def test_no_cost(self, node: dict[str, str | None]) -> None:
        with pytest.raises(ConfigError, match="cost"):
            Cost.from_json(node)


class TestEdges:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            *(("eps", value) for value in (0.0, -1.0, math.nan, math.inf, -math.inf)),
            *(("delta", value) for value in (-1e-300, 1.0, 2.0, math.nan, math.inf)),
            *(("leaks", value) for value in (-0.1, 1.1, math.nan)),
        ],
    )
    def test_no_budget(self, key: str, value: float) -> None:
        with pytest.raises(ConfigError, match=rf"total\.{key}"):
            Allowance(**{"eps": 1.0, "delta": 1e-5, key: value})

    @pytest.mark.parametrize("size", [0, -1, 1.0, True, 10**12 + 1])
    def test_no_lot(self, size: object) -> None:
        with pytest.raises(ConfigError, match=str(size)):
            Lot(PureDP(1.0), size)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("eps", "delta", "leaks", "guarantee"),
        [  # each pair of values once, at least
            (1e-300, 0.0, 0.0, PureDP(1e-15)),
            (1e-300, 5e-324, 0.1, GaussianDP(100.0)),
            (1e-300, 1e-5, 1.0, ApproximateDP(1.0, 1e-300)),
            (1e-16, 1e-300, 1.0, PureDP(1e-15)),
            (1e-16, 0.0, 0.1, GaussianDP(1e-15)),
            (1e-16, 1 - 2**-53, 0.0, PureDP(100.0)),
            (1.0, 5e-324, 0.0, ApproximateDP(1.0, 1e-300)),
            (1.0, 1e-5, 0.1, PureDP(1e-15)),
            (1.0, 1 - 2**-53, 1.0, GaussianDP(1e-15)),
            (1.0, 1e-300, 0.0, GaussianDP(100.0)),
            (1e6, 0.0, 1.0, ApproximateDP(1.0, 1e-300)),
            (1e6, 1e-300, 0.1, PureDP(100.0)),
            (1e6, 1e-5, 0.0, GaussianDP(1e-15)),
            (1e6, 1 - 2**-53, 0.1, GaussianDP(100.0)),
            (1e6, 5e-324, 1.0, PureDP(1e-15)),
        ],
    )
    def test_any_budget_answers(
        self, eps: float, delta: float, leaks: float, guarantee: Guarantee
    ) -> None:
        """Nothing overflows or hangs, the sums stay numbers, and what fits is admitted."""
        allowance = Allowance(eps, delta, leaks)
        fit = allowance.max_lot_size(FRESH, guarantee, 10**12)
        assert fit == 0 or allowance.admits(FRESH, Lot(guarantee, fit))
        assert fit == 10**12 or not allowance.admits(FRESH, Lot(guarantee, fit + 1))
        assert 0 <= allowance.delta_of(1.0) <= 1

    def test_a_pure_budget_takes_pure_releases_alone(self) -> None:
        allowance = Allowance(1e6)
        assert allowance.max_lot_size(FRESH, PureDP(1e-7), 10**12) == 10**12
        assert not allowance.max_lot_size(FRESH, GaussianDP(1e-15), 1)
        assert not allowance.max_lot_size(FRESH, ApproximateDP(1e-15, 1e-300), 1)

    def test_nothing_is_wanted(self) -> None:
        assert Allowance(1.0).max_lot_size(FRESH, PureDP(0.1), 0) == 0


class TestTight:
    def test_the_inverse_is_as_good_as_it_says(self) -> None:
        with mpmath.workdps(40):
            for y in -np.concatenate([np.geomspace(0.7, 700, 60), np.geomspace(700, 2e5, 20)]):
                z = mpmath.mpf(float(ndtri_exp(y)))
                slope = (
                    mpmath.exp(-z * z / 2)
                    / mpmath.sqrt(2 * mpmath.pi)
                    / (mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
                )
                off = (
                    mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2) - mpmath.mpf(float(y))
                ) / slope
                assert abs(off) <= 1e-12 * abs(z) + 1e-14

    @pytest.mark.parametrize("eps", [1e-15, 1e-9, 1e-3, 0.1, 0.999, 1.0, 5.0, 30.0, 100.0])
    def test_one_release(self, eps: float) -> None:
        with mpmath.workdps(60):
            p = 1 / (1 + mpmath.exp(mpmath.mpf(eps)))
            mu = mpmath.mpf(single_mu(eps))
            assert mpmath.erfc(mu / 2 / mpmath.sqrt(2)) / 2 <= p  # Phi(-mu/2) <= p: mu is enough
            assert mpmath.erfc(mu * (1 - 1e-8) / 2 / mpmath.sqrt(2)) / 2 > p

    @pytest.mark.parametrize("eps", [1e-3, 0.1, 1.0])
    @pytest.mark.parametrize(
        "size", [10, 100, 1000, BLOCK_RELEASES, BLOCK_RELEASES + 1, 10**5, 10**6]
    )
    def test_a_quarter_is_saved(self, eps: float, size: int) -> None:
        """mu of many tends to 2 sinh(eps/2) sqrt(Q), from above; one release's would be up to
        1.2533 times that.
        """
        ratio = math.sqrt(squared_mu(eps, size)) / (2 * math.sinh(eps / 2) * math.sqrt(size))
        assert 0.9 < ratio < 1 + 0.4 / size + 3e-4

    @given(EPS, SIZE)
    def test_never_worse_than_one_by_one(self, eps: float, size: int) -> None:
        assert 0 < squared_mu(eps, size) <= size * single_mu(eps) ** 2 * (1 + 1e-14)

    @given(EPS, st.integers(1, 3 * BLOCK_RELEASES), st.integers(1, 3 * BLOCK_RELEASES))
    @settings(max_examples=50)
    def test_together_no_more_than_apart(self, eps: float, one: int, other: int) -> None:
        assert squared_mu(eps, one + other) <= (squared_mu(eps, one) + squared_mu(eps, other)) * (
            1 + 1e-4
        )

    @pytest.mark.parametrize(
        ("eps", "size"), [(0.05, 500), (0.01, 20_000), (0.5, 30), (1e-4, 10**6)]
    )
    def test_its_delta_is_never_below_the_exact_one(self, eps: float, size: int) -> None:
        mu = math.sqrt(squared_mu(eps, size))
        for level in (0.0, 0.5, 1.0, 3.0):
            exact = delta_of(PureDP(eps), size, level)
            ours = mills_delta(level, mu)
            assert exact * (1 - 1e-6) - 1e-12 <= ours


class TestFilter:
    @given(ALLOWANCES, st.lists(st.builds(Lot, GUARANTEES, SIZE), max_size=12))
    @settings(max_examples=200, deadline=None)
    def test_sums_never_go_beyond(self, allowance: Allowance, lots: list[Lot]) -> None:
        """Whatever is asked: after every admission one filter holds, or the first lot stands
        alone by its own total.
        """
        spent = FRESH
        taken = []
        for lot in lots:
            if allowance.admits(spent, lot):
                spent = spent.plus(lot.cost)
                taken.append(lot)
        exact = [each.cost for each in taken]
        assert spent.leak >= sum(Fraction(cost.leak) for cost in exact)
        assert Fraction(spent.square) >= sum(Fraction(cost.square) for cost in exact)
        if taken and not allowance.holds(spent):
            (only,) = taken
            assert total(only.guarantee, only.size, allowance.delta).eps <= allowance.eps

    @given(ALLOWANCES, GUARANTEES, st.integers(1, 10**6))
    @settings(max_examples=100, deadline=None)
    def test_what_fits_is_the_most(
        self, allowance: Allowance, guarantee: Guarantee, wanted: int
    ) -> None:
        spent = Lot(PureDP(1e-4), 3).cost
        assume(allowance.holds(spent))
        fit = allowance.max_lot_size(spent, guarantee, wanted)
        assert 0 <= fit <= wanted
        assert not fit or allowance.admits(spent, Lot(guarantee, fit))
        assert fit == wanted or not allowance.admits(spent, Lot(guarantee, fit + 1))

    @given(ALLOWANCES)
    def test_the_gaussian_part_is_within_delta(self, allowance: Allowance) -> None:
        """M's own delta and the leaks: within delta, exactly."""
        if allowance.mu_limit:
            gaussian = Fraction(mills_delta(allowance.eps, allowance.mu_limit))
            assert gaussian + Fraction(allowance.leak_limit) <= Fraction(
                printed_decimal(allowance.delta)
            )

    @pytest.mark.parametrize("kind", [PureDP, ApproximateDP, GaussianDP])
    @pytest.mark.parametrize(
        ("eps", "delta", "queries"),
        [(1.0, 1e-5, 1), (1.0, 1e-5, 1000), (0.1, 1e-8, 10**6), (8.0, 1e-5, 77)],
    )
    def test_what_a_call_can_afford_a_fresh_ledger_holds(
        self, kind: type, eps: float, delta: float, queries: int
    ) -> None:
        """Its own total is enough, whatever the shares; then nothing follows, unless sums allow
        it too.
        """
        lot = Lot(per_query(kind, eps, delta, queries), queries)
        for leaks in (0.0, 0.1, 1.0):
            assert spend(Allowance(eps, delta, leaks), lot, lot) == [True, False]

    def test_afforded_gaussians_fit_in_any_number_of_lots(self) -> None:
        each = per_query(GaussianDP, 1.0, 1e-5, 1000)
        assert spend(Allowance(1.0, 1e-5, 0.0), *[Lot(each, 250)] * 5) == [True] * 4 + [False]
        assert spend(Allowance(1.0, 1e-5), *[Lot(each, 1)] * 988)[-2:] == [True, False]

    def test_basic_composition_of_releases_with_a_delta(self) -> None:
        """propose_test_release in two lots: 100 queries each, whose eps add up as Gaussians; one
        each, as they are.
        """
        half = Lot(afford(ProposeTestRelease, Budget(0.5, 5e-6, 100), 2).guarantee, 100)
        assert half.guarantee == ApproximateDP(half.guarantee.eps, 2.5e-8)
        assert spend(Allowance(1.0, 1e-5, 0.5), half, half) == [True, True]
        # the first by its own total: 100 eps > 1
        assert spend(Allowance(1.0, 1e-5, 1.0), half, half) == [True, False]
        # so here: leaks of 2.5e-6 > 1e-6
        assert spend(Allowance(1.0, 1e-5, 0.1), half, half) == [True, False]
        one = Lot(ApproximateDP(0.5, 5e-6))
        assert spend(Allowance(1.0, 1e-5, 1.0), one, one, one) == [True, True, False]

    def test_the_curve_holds_at_the_budget_and_beyond(self) -> None:
        allowance = Allowance(1.0, 1e-5)
        deltas = [allowance.delta_of(eps) for eps in (0.0, 0.5, 1.0, 2.0, 50.0)]
        assert deltas == sorted(deltas, reverse=True)
        assert 0.99e-5 < deltas[2] <= 1e-5
        assert deltas[-1] == pytest.approx(1e-6)  # leaks are leaks at any eps
        assert Allowance(1.0).delta_of(1.0) == 0
        assert Allowance(1.0).delta_of(0.5) == pytest.approx(
            (math.e - math.exp(0.5)) / (1 + math.e)
        )


class TestSources:
    """Everything that releases something is a lot."""

    def test_each_has_a_cost(self) -> None:
        noise = plan_noise(NoiseConfig(epsilon=1.0, delta=1e-6), 0.01, 10)
        sources: dict[str, tuple[Guarantee, str]] = {
            "noise in training": (GaussianDP(noise.mu), "gaussian"),
            "weights": (ReleaseWeights(mu=0.1).guarantee, "gaussian"),
            "a number": (CertifiedQuantile(eps=0.1).guarantee, "pure"),
            "votes": (NoisyArgmax(eps=0.1).guarantee, "pure"),
            "margins": (GaussianMargin(mu=0.1).guarantee, "gaussian"),
            "responses": (RandomizedResponse(eps=0.1, delta=1e-7).guarantee, "approximate"),
        }
        for guarantee, kind in sources.values():
            assert guarantee.as_json["kind"] == kind
            assert read_guarantee(json.loads(json.dumps(guarantee.as_json))) == guarantee
            assert Allowance(2.0, 1e-5, 0.5).max_lot_size(Lot(PureDP(1e-6)).cost, guarantee, 1) == 1

    @pytest.mark.parametrize(
        "node",
        [
            {},
            {"kind": "renyi"},
            {"kind": "pure"},
            {"kind": "pure", "eps": "x"},
            {"kind": "pure", "mu": 1},
        ],
    )
    def test_no_guarantee(self, node: dict[str, object]) -> None:
        with pytest.raises(ConfigError, match="approximate"):
            read_guarantee(node)


def test_an_infinite_sum_stays_one() -> None:
    cost = Lot(GaussianDP(0.1)).cost.plus(Lot(PureDP(0.1)).cost)
    assert cost.pure == Decimal("Infinity")
    assert cost.as_json()["pure"] is None
