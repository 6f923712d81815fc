"""Every privacy inequality of every release mechanism between all neighbouring states, in exact arithmetic.

Nothing here uses the code's own reductions or enclosures: distributions over labels are compared event by event, with
exp and the normal distribution from mpmath to 90 digits.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from agt.errors import ConfigError
from agt.mechanisms import thresholds
from agt.mechanisms.catalogue import MECHANISMS
from agt.mechanisms.exposure import true_loss
from agt.mechanisms.guarantee import ApproximateDP, GaussianDP, Guarantee, PureDP
from agt.mechanisms.mechanism import Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import NoisyArgmax, SmoothCauchy, SmoothLaplace
from agt.mechanisms.thresholds import RatioRule, Table

FARTHEST = 400
BUDGETS = (1e-15, 1e-6, 0.001, 0.1, 1.0, 3.0, 10.0, 100.0)
DELTAS = (1e-300, 1e-12, 1e-5, 0.01, 0.4)
State = tuple[Fraction, ...]  # the probability of each label


def states(flips: Sequence[Fraction], classes: int) -> Iterator[tuple[State, State]]:
    """The distributions of every pair of neighbours, up to renaming labels: (0, L) and (0, L+1); (0, 0) and (1, 0)."""

    def at(label: int, flip: Fraction) -> State:
        return tuple(1 - flip if c == label else flip / (classes - 1) for c in range(classes))

    yield at(0, flips[0]), at(1, flips[0])
    for here, there in pairwise(flips):
        yield at(0, here), at(0, there)


def violations(flips: Sequence[Fraction], classes: int, guarantee: Guarantee) -> int:
    """How many (pair, direction, event) break the guarantee."""
    holds = gaussian_holds(guarantee.mu) if isinstance(guarantee, GaussianDP) else ratio_holds(guarantee)
    events = [e for size in range(1, classes) for e in combinations(range(classes), size)]
    count = 0
    for one, other in states(flips, classes):
        for event in events:
            p, q = sum(one[c] for c in event), sum(other[c] for c in event)
            count += (not holds(p, q)) + (not holds(q, p))
    return count


def ratio_holds(guarantee: PureDP | ApproximateDP):
    with mpmath.workdps(120):
        exact = mpmath.exp(mpmath.mpf(guarantee.eps)) * (1 - mpmath.mpf(10) ** -100)
        ratio = int(mpmath.floor(exact * mpmath.mpf(2) ** 350))
    slack = Fraction(getattr(guarantee, "delta", 0.0)) * 2**350

    def holds(p: Fraction, q: Fraction) -> bool:
        """p <= exp(eps) q + delta, cleared of denominators."""
        left = (p.numerator << 350) * q.denominator - ratio * q.numerator * p.denominator
        return left * slack.denominator <= slack.numerator * p.denominator * q.denominator

    return holds


def gaussian_holds(mu: float):
    cache: dict[Fraction, mpmath.mpf] = {}

    def z(p: Fraction) -> mpmath.mpf:
        """Phi^-1(p) by Newton's method; the smaller of p and 1 - p, so that nothing cancels."""
        if p > Fraction(1, 2):
            return -z(1 - p)
        if p not in cache:
            exact = mpmath.mpf(p.numerator) / p.denominator
            x = mpmath.mpf(float(ndtri(float(p))))
            for _ in range(7):
                x -= (mpmath.ncdf(x) - exact) / mpmath.npdf(x)
            cache[p] = x
        return cache[p]

    def holds(p: Fraction, q: Fraction) -> bool:
        with mpmath.workdps(90):
            return z(p) - z(q) <= mpmath.mpf(mu)

    return holds


def mechanisms() -> Iterator[Mechanism]:
    for eps in BUDGETS:
        for name in ("smooth_cauchy", "global_sensitivity", "noisy_argmax"):
            yield MECHANISMS[name](eps=eps)
        for name in ("randomized_response", "exponential_mechanism", "inverse_sensitivity"):
            yield from (MECHANISMS[name](eps=eps, classes=classes) for classes in (2, 4))
        for delta in DELTAS:
            yield MECHANISMS["propose_test_release"](eps=eps, delta=delta)
            if eps <= 2.5 * np.log(2 / delta):
                yield SmoothLaplace(eps=eps, delta=delta)
            yield from (RandomizedResponse(eps=eps, delta=delta, classes=classes) for classes in (2, 3))


def ladders(mechanism: Mechanism) -> list[list[Fraction]]:
    """The sequences of flip probabilities between which neighbours move by one step."""
    if mechanism.needs == "votes":  # an odd number of members, or an even one
        return [[mechanism.exact_flip(gap) for gap in range(odd, FARTHEST, 2)] for odd in (0, 1)]
    return [[mechanism.exact_flip(k) for k in range(FARTHEST + 1)]]


def test_exact_inequalities() -> None:
    """eps- and (eps, delta)-DP: all events, both directions, L = 0..400, over budgets from 10^-15 to 100."""
    checked = 0
    for mechanism in mechanisms():
        for flips in ladders(mechanism):
            assert violations(flips, mechanism.classes, mechanism.guarantee) == 0, mechanism
            checked += 1
    assert checked > 200


@pytest.mark.parametrize("mu", [1e-15, 0.001, 0.07, 0.1, 1.0, 5.0, 30.0, 100.0])
def test_exact_trade_off(mu: float) -> None:
    """mu-GDP: every event of every pair, L = 0..400, and the tail where the table reaches its last integers."""
    mechanism = GaussianMargin(mu=mu)
    flips = [mechanism.exact_flip(k) for k in range(FARTHEST + 1)]
    assert violations(flips, 2, mechanism.guarantee) == 0


def test_tables_are_tight() -> None:
    """Nothing is given away: one unit of 2^-128 less anywhere in the bulk breaks an inequality."""
    unit = Fraction(1, 2**128)
    for mechanism in (RandomizedResponse(eps=0.1), RandomizedResponse(eps=0.5, delta=1e-6), GaussianMargin(mu=0.2)):
        flips = [mechanism.exact_flip(k) for k in range(12)]
        for k in range(len(flips)):
            less = [p - unit * (place == k) for place, p in enumerate(flips)]
            assert violations(less[: k + 1], 2, mechanism.guarantee) > 0, (mechanism, k)


def test_an_even_ensemble_changes_its_label_between_counts_0_and_2() -> None:
    """noisy_argmax: the states of n1 - n0 = 0 (label 0) and 2 (label 1), which ``states`` does not list."""
    for eps in BUDGETS:
        mechanism = NoisyArgmax(eps=eps)
        tie, two = mechanism.exact_flip(0), mechanism.exact_flip(2)
        holds = ratio_holds(PureDP(eps))
        for p, q in ((1 - tie, two), (tie, 1 - two)):  # label 0, then label 1
            assert holds(p, q)
            assert holds(q, p)


@pytest.mark.parametrize("eps", [1e-9, 0.01, 0.5, 5.0, 50.0])
def test_closed_forms_too(eps: float) -> None:
    """The published formulas themselves, with complements where numbers would vanish; 10^-12 for floating point."""
    delta, distance = 1e-5, np.arange(401)
    for mechanism in (
        MECHANISMS["smooth_cauchy"](eps=eps),
        MECHANISMS["inverse_sensitivity"](eps=eps),
        RandomizedResponse(eps=eps),
    ):
        assert true_loss(mechanism, range(401)) <= eps * (1 + 1e-12) + 1e-15
    for name in ("propose_test_release", "smooth_laplace", "randomized_response"):
        if name == "smooth_laplace" and eps > 2.5 * np.log(2 / delta):
            continue
        p = MECHANISMS[name](eps=eps, delta=delta).flip_probability(distance)
        slack = delta * (1 + 1e-9) + 1e-16
        assert (p[:-1] - np.exp(eps) * p[1:] <= slack).all()
        assert ((1 - p[1:]) - np.exp(eps) * (1 - p[:-1]) <= slack).all()
        assert (1 - p[0]) - np.exp(eps) * p[0] <= slack


def test_smooth_laplace_fails_where_it_is_refused() -> None:
    """At delta = 10^-5 and eps = 41 the published constants break (eps, delta)-DP, so refusing is not caution."""
    eps, delta = 41.0, 1e-5
    beta = eps / (2 * np.log(2 / delta))
    p0, p1 = (np.exp(-eps / 4 * np.exp(beta * k)) / 2 for k in (0, 1))
    assert p0 > np.exp(eps) * p1 + delta
    with pytest.raises(ConfigError, match=r"eps <= 2.5 ln\(2/delta\)"):
        SmoothLaplace(eps=eps, delta=delta)


def test_the_papers_violation() -> None:
    """smooth_cauchy with distances from the grid {0, 50}: loss 6.25 at eps = 1, and at most eps on the dense grid."""
    assert true_loss(SmoothCauchy(eps=1.0), (0, 50)) == pytest.approx(6.2456, abs=1e-4)
    flips = [SmoothCauchy(eps=1.0).exact_flip(k) for k in (0, 50)]
    assert violations(flips, 2, PureDP(6.24)) > 0
    assert violations(flips, 2, PureDP(6.25)) == 0
    for mechanism in (SmoothCauchy(eps=1.0), RandomizedResponse(eps=1.0)):
        assert violations([mechanism.exact_flip(k) for k in range(51)], 2, PureDP(1.0)) == 0
        assert violations([mechanism.exact_flip(k) for k in (0, 50)], 2, PureDP(1.0)) > 0  # no mechanism survives the gap


class TestBroken:
    """Rules broken on purpose are caught by the same check."""

    def ladder(self, eps: float, delta: float, classes: int = 2) -> list[Fraction]:
        entries = Table(RatioRule(eps, delta, classes), lambda distance: 0).upto(FARTHEST)
        return [Fraction((classes - 1) * s, thresholds.N) for s in entries]

    def test_as_it_is(self) -> None:
        assert violations(self.ladder(0.1, 0.0), 2, PureDP(0.1)) == 0

    def test_floor_instead_of_ceil(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(thresholds, "_ceil", lambda numerator, denominator: numerator // denominator)
        assert violations(self.ladder(0.1, 0.0), 2, PureDP(0.1)) > 100
        assert violations(self.ladder(0.1, 1e-5), 2, ApproximateDP(0.1, 1e-5)) > 0

    def test_exp_rounded_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(thresholds, "exp_lower", lambda x: x.exp() * (1 + type(x)("1e-25")))
        assert violations(self.ladder(0.1, 0.0), 2, PureDP(0.1)) > 100

    def test_floating_point_rounded_to_the_lattice(self) -> None:
        """Sampling from the formula's doubles, as one would, breaks eps-DP in the last digits."""
        mechanism = RandomizedResponse(eps=0.1)
        flips = [Fraction(p) for p in mechanism.flip_probability(np.arange(401)).tolist()]
        assert violations(flips, 2, mechanism.guarantee) > 10

    def test_gaussian_entries_rounded_one_by_one(self) -> None:
        """Each Phi(-mu (L + 1/2)) rounded up on its own: neighbours are no longer mu apart."""
        mu = 0.1
        with mpmath.workdps(60):
            up = [int(mpmath.ceil(mpmath.ncdf(-mpmath.mpf(mu) * (k + 0.5)) * thresholds.N)) for k in range(150)]
        assert violations([Fraction(s, thresholds.N) for s in up], 2, GaussianDP(mu)) > 10

    def test_a_class_too_few(self) -> None:
        """The binary table used for three classes."""
        assert violations(self.ladder(0.1, 0.0, classes=2), 3, PureDP(0.1)) > 0
