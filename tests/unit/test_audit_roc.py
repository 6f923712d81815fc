"""Curves of scores: counted by hand, limits that cover, and what is too little to compare."""

import math
import re

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from agt.errors import ConfigError
from agt_audit.roc import Roc, too_few_non_members


def drawn(
    seed: int, members: int = 60, others: int = 50, shift: float = 0.5, digits: int = 1
) -> Roc:
    """Scores with many ties."""
    rng = np.random.default_rng(seed)
    member = np.arange(members + others) < members
    return Roc(np.round(rng.normal(size=len(member)) + shift * member, digits), member)


def test_the_curve_counts_by_hand() -> None:
    roc = Roc(np.array([3.0, 2.0, 2.0, 1.0, 0.0]), np.array([True, True, False, True, False]))
    assert roc.curve.tolist() == [[math.inf, 0, 0], [3, 0, 1], [2, 1, 2], [1, 1, 3], [0, 2, 3]]
    assert roc.area == pytest.approx((1 + 0.75 + 0.5) / 3)
    assert roc.best == 1
    point = roc.at_false_alarm_rate(0.4, 0.95)
    assert (point.threshold, point.tpr, point.fpr) == (3, pytest.approx(1 / 3), 0)
    assert roc.at_false_alarm_rate(0.5, 0.95).tpr == 1


def test_area_and_its_variance() -> None:
    roc = drawn(0)
    assert roc.area == pytest.approx(roc_auc_score(roc.member, roc.scores))
    a = roc.scores[roc.member][:, None]
    b = roc.scores[~roc.member][None]
    wins = (a > b) + 0.5 * (a == b)
    # DeLong, in so many words, and two records more on each side
    more = [[*wins.mean(axis), 0, 1] for axis in (1, 0)]
    spread = np.var(more[0], ddof=1) / wins.shape[0] + np.var(more[1], ddof=1) / wins.shape[1]
    low, high = roc.area_limits(0.95)
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(spread), rel=1e-6)


def test_limits_cover() -> None:
    truth = 0.6381632  # Phi(.5 / sqrt 2)
    held = [
        low <= truth <= high
        for low, high in (drawn(seed, digits=9).area_limits(0.9) for seed in range(200))
    ]
    assert 0.84 <= np.mean(held) <= 0.96
    kept = []
    for seed in range(200):
        point = drawn(seed, digits=9).at_false_alarm_rate(0.1, 0.9)
        low, high = point.tpr_limits
        kept.append(low <= norm.sf(point.threshold - 0.5) <= high)
    assert np.mean(kept) >= 0.88


@pytest.mark.parametrize(("members", "others"), [(1, 10), (3, 100)])
def test_limits_cover_with_few_records_and_ties(members: int, others: int) -> None:
    rng = np.random.default_rng(0)
    missed = {"labels": 0, "constant": 0, "normal": 0}
    for _ in range(200):
        size = members + others
        scores = {
            "labels": rng.random(size) < 0.9,
            "constant": np.ones(size),
            "normal": rng.normal(size=size),
        }
        for name, each in scores.items():
            low, high = Roc(each.astype(float), np.arange(size) < members).area_limits(0.95)
            missed[name] += not low < 0.5 < high
    assert max(missed.values()) <= 20


def test_perfect_separation_is_not_certain() -> None:
    low, high = drawn(0, 20, 30, shift=50).area_limits(0.95)
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / 20))
    assert drawn(0, 20, 30, shift=-50).area_limits(0.95)[1] < 0.2


def test_too_few_non_members() -> None:
    assert too_few_non_members(0.001, 1000) == ""
    assert re.fullmatch(r"624 .*\b0\.1 %.*\b1,000\b.*", too_few_non_members(0.001, 624))
    for member in (np.ones(3, dtype=bool), np.zeros(3, dtype=bool), np.zeros(0, dtype=bool)):
        with pytest.raises(ConfigError, match="members"):
            Roc(np.zeros(len(member)), member)
    with pytest.raises(ConfigError, match="NaN"):
        Roc(np.array([math.nan, 0]), np.array([True, False]))


def test_a_rate_that_is_reached_exactly_is_allowed_whatever_its_product_is_rounded_to() -> None:
    """In floating point 0.29 times 100 is below 29."""
    scores = np.arange(101.0)
    member = scores == 0
    assert Roc(scores, member).at_false_alarm_rate(0.29, 0.95).mistakes.alarms == 29
