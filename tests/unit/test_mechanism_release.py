"""Release mechanisms: closed forms against known numbers, samples against closed forms,
enclosures, settings, bad input.
"""

import os
from decimal import Decimal, getcontext
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from grid_losses import true_loss

from agt.errors import ConfigError
from agt.mechanisms import enclosures
from agt.mechanisms.argmax import NoisyArgmax
from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.mechanism import MAX_DISTANCE, MECHANISMS, Mechanism
from agt.mechanisms.optimal import GaussianMargin, RandomizedResponse
from agt.mechanisms.published import SmoothCauchy, SmoothLaplace
from agt.mechanisms.tables import GaussianRule, RatioRule, ThresholdTable, rule_for_guarantee
from agt.numeric import SeededRandomness, SystemRandomness


def flip(mechanism: Mechanism, *distances: int) -> list[float]:
    return mechanism.flip_probability(np.array(distances)).tolist()


class TestClosedForms:
    def test_method_example(self) -> None:
        """eps = 0.1, L = 50: the right label with probability .506 from smooth_cauchy, .997 from
        randomized_response.
        """
        assert 1 - flip(SmoothCauchy(eps=0.1), 50)[0] == pytest.approx(0.506, abs=5e-4)
        assert 1 - flip(RandomizedResponse(eps=0.1), 50)[0] == pytest.approx(0.997, abs=5e-4)

    def test_by_simulating_the_noise(self) -> None:
        """The formulas are tails of the published noises: drawn here as their papers say, 10^6
        times each.
        """
        draw = np.random.default_rng(0)
        n = 10**6
        eps = 0.8
        delta = 0.05
        L = 3

        def laplace(scale: float) -> np.ndarray:
            return draw.laplace(scale=scale, size=n)

        coin = draw.random(n) < 0.5
        smooth = np.exp(-eps / (2 * np.log(2 / delta)) * L)
        threshold = np.log(1 / (2 * delta)) / eps
        flips = {
            "global_sensitivity": laplace(1 / eps) > 0.5,
            "smooth_cauchy": 6 * np.exp(-eps / 6 * L) / eps * draw.standard_cauchy(n) > 0.5,
            "smooth_laplace": laplace(2 * smooth / eps) > 0.5,
            "propose_test_release": (L + laplace(1 / eps) <= threshold) & coin,
            "noisy_argmax": laplace(2 / eps) > L + laplace(2 / eps),
            "gaussian_margin": draw.normal(size=n) / 0.3 > L + 0.5,
        }
        for name, flipped in flips.items():
            settings = {"mu": 0.3} if name == "gaussian_margin" else {"eps": eps}
            settings |= {"delta": delta} if "delta" in MECHANISMS[name].__dataclass_fields__ else {}
            p = flip(MECHANISMS[name](**settings), L)[0]
            assert abs(flipped.mean() - p) < 5 * np.sqrt(p * (1 - p) / n), name

    def test_multiclass_recursion(self) -> None:
        """q(0) = E/(C-1+E), q(L+1) = min(E q, 1 - (1-q)/E), in rationals with E = exp(eps) to 60
        digits.
        """
        for classes, eps in ((2, 0.1), (3, 0.2), (10, 0.05), (1000, 0.3), (7, 3.0)):
            with mpmath.workdps(60):
                e = mpmath.exp(mpmath.mpf(eps))
                q = e / (classes - 1 + e)
                true = []
                for _ in range(120):
                    true.append(float(1 - q))
                    q = min(e * q, 1 - (1 - q) / e)
            ours = RandomizedResponse(eps=eps, classes=classes).flip_probability(np.arange(120))
            np.testing.assert_allclose(
                ours, np.maximum(true, (classes - 1) * 2.0**-128), rtol=1e-13
            )

    def test_delta_closed_form(self) -> None:
        """max(0, (p0 + c) exp(-eps L) - c), and p0 - delta L as eps goes to 0."""
        eps = 0.2
        delta = 0.003
        p0 = (1 - delta) / (1 + np.exp(eps))
        c = delta / np.expm1(eps)
        k = np.arange(40)
        ours = RandomizedResponse(eps=eps, delta=delta).flip_probability(k)
        np.testing.assert_allclose(
            ours, np.maximum(0, (p0 + c) * np.exp(-eps * k) - c), rtol=1e-11, atol=1e-17
        )
        tiny = RandomizedResponse(eps=1e-15, delta=delta).flip_probability(k)
        np.testing.assert_allclose(tiny, (1 - delta) / 2 - delta * k, rtol=1e-11)
        assert ours[-1] == 0.0  # an exact zero is allowed, and is what the table does
        assert RandomizedResponse(eps=eps, delta=delta).exact_flip(39) == 0

    def test_the_tail_never_claims_certainty(self) -> None:
        """eps L far beyond exp's range: 2^-128, not 0."""
        assert flip(RandomizedResponse(eps=100.0), 10**6) == [2.0**-128]
        assert flip(SmoothLaplace(eps=1.0, delta=1e-5), 60_000) == [2.0**-128]


class TestSampling:
    def test_wrong_labels_are_uniform(self) -> None:
        n = 400_000
        mechanism = RandomizedResponse(eps=0.1, classes=5)
        released = mechanism.release(np.full(n, 2), np.zeros(n, dtype=int), SeededRandomness(2))
        q = 1 - flip(mechanism, 0)[0]
        r = flip(mechanism, 0)[0] / 4
        counts = np.bincount(released, minlength=5) / n
        expected = np.array([r, r, q, r, r])
        assert (abs(counts - expected) < 5 * np.sqrt(expected / n)).all()

    def test_thresholds_to_the_last_unit(self) -> None:
        """U = threshold - 1 flips, U = threshold does not; the ranks of the wrong labels change
        where they should.
        """

        class Fixed:
            simulated = True

            def __init__(self, values: list[int]) -> None:
                self.values = values

            def words(self, n: int) -> np.ndarray:
                return np.array(
                    [divmod(value, 2**64) for value in self.values[:n]], dtype=np.uint64
                )

            def below(self, bound: int) -> int:
                raise NotImplementedError

        for classes in (2, 3, 6):
            mechanism = RandomizedResponse(eps=0.3, classes=classes)
            for k in (0, 4, 250):
                share = mechanism.exact_flip(k) * 2**128 / (classes - 1)
                assert share.denominator == 1
                values = [
                    edge for j in range(classes) for edge in (int(share) * j - 1, int(share) * j)
                ][1:]
                expected = [1 + rank // 2 for rank in range(2 * (classes - 1))] + [0]
                released = mechanism.release(
                    np.zeros(len(values), int), np.full(len(values), k), Fixed(values)
                )
                assert released.tolist() == expected

    def test_sources(self) -> None:
        labels = np.zeros(64, int)
        k = np.zeros(64, int)
        mechanism = RandomizedResponse(eps=0.1)
        seeded = [
            mechanism.release(labels, k, SeededRandomness(seed)).tolist() for seed in (1, 1, 2)
        ]
        assert seeded[0] == seeded[1] != seeded[2]
        assert SeededRandomness(0).simulated
        assert not SystemRandomness().simulated
        system = [mechanism.release(labels, k, SystemRandomness()).tolist() for _ in range(2)]
        assert system[0] != system[1]  # equal by chance once in 2^64

    @pytest.mark.parametrize(
        "source", [SeededRandomness(0), SystemRandomness()], ids=["seeded", "system"]
    )
    def test_words_use_every_bit(self, source: Any) -> None:
        words = source.words(4000)
        assert words.shape == (4000, 2)
        bits = np.unpackbits(words.view(np.uint8), axis=1).mean(axis=0)
        assert (abs(bits - 0.5) < 6 * 0.5 / np.sqrt(4000)).all()
        draws = [source.below(5) for _ in range(2000)]
        assert (abs(np.bincount(draws, minlength=5) - 400) < 6 * 20).all()
        assert {source.below(1) for _ in range(5)} == {0}

    def test_system_source_asks_the_operating_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "urandom", lambda n: b"\xff" * n)
        assert (SystemRandomness().words(2) == 2**64 - 1).all()

    def test_no_queries(self) -> None:
        nothing = np.zeros(0, dtype=int)
        assert (
            RandomizedResponse(eps=1.0).release(nothing, nothing, SystemRandomness()).tolist() == []
        )

    def test_input_is_left_alone(self) -> None:
        labels = np.zeros(100, int)
        RandomizedResponse(eps=0.1).release(labels, labels, SeededRandomness(0))
        assert labels.sum() == 0


class TestTables:
    def test_distances_are_cut_at_a_public_length(self) -> None:
        mechanism = RandomizedResponse(eps=0.5)
        assert mechanism.exact_flip(MAX_DISTANCE) == mechanism.exact_flip(10**9)
        assert flip(mechanism, MAX_DISTANCE) == flip(mechanism, 2**40)

    def test_a_gap_of_votes_keeps_its_parity(self) -> None:
        mechanism = NoisyArgmax(eps=1e-6)
        assert flip(mechanism, 10**6 + 1) == flip(mechanism, MAX_DISTANCE - 1)
        assert flip(mechanism, 10**6) == flip(mechanism, MAX_DISTANCE)

    def test_gaussian_table_is_for_two_classes(self) -> None:
        with pytest.raises(ValueError, match="GaussianDP"):
            rule_for_guarantee(GaussianDP(0.1), 3)

    @pytest.mark.parametrize(
        "rule", [RatioRule(0.5, 0.0, 3), RatioRule(0.5, 1e-3, 3), GaussianRule(0.5)]
    )
    def test_a_wish_only_raises(self, rule: Any) -> None:
        entries = list(
            ThresholdTable(rule, lambda distance: 2**100 if distance == 3 else 0).entries_up_to(200)
        )
        assert entries == sorted(entries, reverse=True)
        assert entries[3] >= 2**100


class TestEnclosure:
    @pytest.mark.parametrize("x", [0.0, -1e-9, -0.1, -1 / 3, -2.7, -6.1, -9.99, -13.37, -13.5])
    @pytest.mark.parametrize("digits", [0, 10**-17, 3 * 10**-40])
    def test_normal(self, x: float, digits: float) -> None:
        # many digits
        at = max(
            enclosures.ROUND_DOWN.subtract(Decimal(x), Decimal(digits) / 7),
            enclosures.NORMAL_LEFT_END,
        )
        bounds = enclosures.bound_normal(at)
        with mpmath.workdps(150):
            true = mpmath.ncdf(mpmath.mpf(str(at)))
            low, high, density = (mpmath.mpf(str(value)) for value in bounds)
            assert low <= true <= high
            assert high - low < mpmath.mpf(10) ** -60
            assert 0 < density <= mpmath.npdf(mpmath.mpf(str(at))) * (1 + mpmath.mpf(10) ** -140)

    @pytest.mark.parametrize("x", [0.0, 1e-15, 0.1, 1.0, 37.3, 100.0, -0.5, -91.125])
    def test_exp(self, x: float) -> None:
        with mpmath.workdps(150):
            true = mpmath.exp(mpmath.mpf(x))
            low = mpmath.mpf(str(enclosures.exp_lower(Decimal(x))))
            assert true * (1 - mpmath.mpf(10) ** -98) < low < true

    def test_pi(self) -> None:
        with mpmath.workdps(150):
            assert (
                mpmath.mpf(str(enclosures.PI_LOW)) < mpmath.pi < mpmath.mpf(str(enclosures.PI_HIGH))
            )

    def test_does_not_depend_on_the_threads_context(self) -> None:
        before = GaussianMargin(mu=0.1).exact_flip(40)
        precision, getcontext().prec = getcontext().prec, 5
        try:
            assert GaussianMargin(mu=0.1).exact_flip(40) == before
        finally:
            getcontext().prec = precision

    @pytest.mark.parametrize("x", ["0.1", "-14"])
    def test_range(self, x: str) -> None:
        with pytest.raises(ValueError, match="between"):
            enclosures.bound_normal(Decimal(x))


class TestExposure:
    def test_worst_pair_of_a_grid(self) -> None:
        """The published grid for IMDB: dense to 49, then steps of 10: its worst pair is a gap of
        10.
        """
        grid = [*range(50), *range(50, 201, 10)]
        mechanism = SmoothCauchy(eps=1.0)
        p = mechanism.flip_probability(np.arange(201))
        gaps = [np.log(p[a] / p[b]) for a, b in pairwise(grid)]
        assert true_loss(mechanism, grid) == pytest.approx(max(gaps))
        assert true_loss(mechanism, grid) > 1.0


class TestBadInput:
    mechanism = RandomizedResponse(eps=0.1)

    @pytest.mark.parametrize(
        ("predictions", "distances", "match"),
        [
            ([0, 1], [0], r"mechanism=randomized_response.*\(2,\).*\(1,\)"),
            ([[0, 1]], [[0, 1]], r"mechanism=randomized_response.*\(1, 2\).*\(1, 2\)"),
            ([0, 2], [0, 0], "labels between 0 and 1"),
            ([0, -1], [0, 0], "labels between 0 and 1"),
            ([0.0, 1.0], [0, 0], "mechanism=randomized_response.*float64"),
            ([0, 1], [0.0, 1.0], r"\(distance\).*float64"),
            ([0, 1], [0, np.nan], r"\(distance\).*float64"),
            ([0, 1], [0, -1], r"\(distance\)"),
        ],
    )
    def test_release(self, predictions: list, distances: list, match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            self.mechanism.release(np.array(predictions), np.array(distances), SeededRandomness(0))

    def test_seed(self) -> None:
        with pytest.raises(ConfigError, match=r"seed.*-1"):
            SeededRandomness(-1)
