"""Rates, areas and their intervals against brute force and simulation; and which models are
named useless.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agt_cli.report.quality import (
    Quality,
    RateEstimate,
    auc_estimate,
    share_estimate,
)

YES_NO = ("no", "yes")


def judged(labels: Sequence[int] | None, prediction: Sequence[int], **more: Any) -> Quality:
    known = None if labels is None else np.array(labels, dtype=np.int64)
    given = {"classes": YES_NO, "records": "test records", **more}
    return Quality(labels=known, prediction=np.array(prediction, dtype=np.int64), **given)


# -- numbers
# --------------------------------------------------------------------------------------------------


def test_hand_examples_of_clopper_and_pearson() -> None:
    """None of n: 1 - (alpha / 2)^(1 / n)."""
    none = share_estimate(0, 10)
    every = share_estimate(10, 10)
    assert (none.low, none.high) == (0, pytest.approx(1 - 0.025 ** (1 / 10)))
    assert (every.low, every.high) == (pytest.approx(0.025 ** (1 / 10)), 1)


@pytest.mark.parametrize(("n", "p"), [(5, 0.5), (20, 0.03), (60, 0.9)])
def test_intervals_of_shares_cover_at_least_as_often_as_they_say(n: int, p: float) -> None:
    """Exactly, over the binomial distribution."""
    from scipy.stats import binom

    covered = sum(
        binom.pmf(k, n, p)
        for k in range(n + 1)
        if share_estimate(k, n).low <= p <= share_estimate(k, n).high
    )
    assert covered >= 0.95


def pairs(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area, one pair after the other."""
    yes = scores[labels == 1]
    no = scores[labels == 0]
    return float(np.mean([(a > b) + (a == b) / 2 for a, b in itertools.product(yes, no)]))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=1, max_size=40))
def test_area_is_the_share_of_pairs_in_order_with_ties_a_half(
    records: list[tuple[int, int]],
) -> None:
    labels, scores = (np.array(part) for part in zip(*records, strict=True))
    area = auc_estimate(labels, scores[None].astype(float))
    if len(set(labels.tolist())) < 2:
        assert area is None
        return
    assert area is not None
    assert area.value == pytest.approx(pairs(labels, scores))
    assert 0 <= area.low <= area.value <= area.high <= 1
    assert area.high > area.low, "never certain"


def test_the_area_of_several_classes_is_the_mean_of_each_against_the_rest() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 80)
    scores = rng.normal(size=(3, 80)).round(1)
    area = auc_estimate(labels, scores)
    assert area is not None
    assert area.value == pytest.approx(
        np.mean([pairs((labels == c) * 1, scores[c]) for c in range(3)])
    )


def test_the_interval_of_an_area_is_that_of_the_bootstrap() -> None:
    rng = np.random.default_rng(1)
    labels = (rng.random(400) < 0.3) * 1
    scores = labels * 1.2 + rng.normal(size=400)
    area = auc_estimate(labels, scores[None])
    assert area is not None
    again = (rng.integers(0, 400, 400) for _ in range(800))
    low, high = np.quantile(
        [a.value for rows in again if (a := auc_estimate(labels[rows], scores[None, rows]))],
        [0.025, 0.975],
    )
    assert (area.low, area.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))


@pytest.mark.parametrize("bad", [(0.5, 0.6, 0.7), (float("nan"), 0, 1), (0.5, 0.2, 1.2)])
def test_an_estimate_lies_in_its_interval(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="interval"):
        RateEstimate(*bad)


# -- groups
# --------------------------------------------------------------------------------------------------

LABELS = [0, 0, 0, 1, 1, 0]
ANSWERS = [0, 0, 1, 1, 0, 0]
FAR = np.array([5, 3, 0, 1, 2, 9])
SEX = np.array(["f", "m", "f", "f", "m", "m"], dtype=object)


def test_groups_by_hand() -> None:
    scores = np.array([[-2.0, -1, 0.5, 3, -0.5, -4]])
    quality = judged(LABELS, ANSWERS, scores=scores, distance=FAR, columns={"sex": SEX}, ks=(1, 3))
    names = [
        "all",
        "class no",
        "class yes",
        "sex = f",
        "sex = f, class no",
        "sex = f, class yes",
        "sex = m",
    ]
    assert [group.name for group in quality.groups][:7] == names
    assert len(quality.groups) == 9
    whole, no, yes, f = quality.groups[:4]
    assert (whole.records, no.records, yes.records, f.records) == (6, 4, 2, 3)
    values = [
        None if e is None else e.value
        for e in (whole.majority, whole.accuracy, whole.precision, whole.auc)
    ]
    assert values == pytest.approx([4 / 6, 4 / 6, None, 7 / 8])
    assert [no.accuracy and no.accuracy.value, no.precision and no.precision.value] == [
        3 / 4,
        3 / 4,
    ]
    assert [yes.accuracy and yes.accuracy.value, yes.precision and yes.precision.value] == [
        1 / 2,
        1 / 2,
    ]
    assert {k: e.value for k, e in whole.certified.items()} == {1: 5 / 6, 3: 3 / 6}
    assert {k: e.value for k, e in whole.certified_and_correct.items()} == {1: 4 / 6, 3: 3 / 6}
    assert {k: e.value for k, e in f.certified.items()} == {1: 2 / 3, 3: 1 / 3}
    assert (whole.distance, f.distance) == (2.5, 1)
    assert quality.metrics["balanced_accuracy"] == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert quality.majority == "no"


@pytest.mark.parametrize("labels", [None, LABELS])
def test_what_is_not_known_is_none(labels: list[int] | None) -> None:
    quality = judged(labels, ANSWERS, columns={"sex": SEX})
    assert {group.auc for group in quality.groups} == {None}
    assert {group.distance for group in quality.groups} == {None}
    assert ("balanced_accuracy" in quality.metrics) == (labels is not None)
    assert len(quality.groups) == (3 if labels is None else 9)


# -- the verdict
# --------------------------------------------------------------------------------------------------


RARE = [1] * 24 + [0] * 76
SIXTY = [0] * 60 + [1] * 40
NOISE = (np.random.default_rng(0).random(1000) < 0.3) * 1
SHUFFLED = np.random.default_rng(1).permutation(NOISE)


@pytest.mark.parametrize(
    ("labels", "answers", "exceptions", "advantage", "warns"),
    [
        (RARE, [0] * 100, 0, 0, True),
        (RARE * 10, [0] * 990 + [1] * 10, 10, -1, True),
        ([1] * 10 + [0] * 1990, [1] * 9 + [0] * 1991, 9, 1, False),  # nearly all of a rare class
        (NOISE.tolist(), SHUFFLED.tolist(), NOISE.sum(), -1, True),
        (SIXTY, [0] * 55 + [1] * 5 + [1] * 6 + [0] * 34, 11, 0, True),
        (SIXTY, [0] * 55 + [1] * 5 + [1] * 30 + [0] * 10, 35, 1, False),
        (None, [1] * 49 + [0], 1, 0, False),
        (None, [1] * 50, 0, 0, True),
        (None, [1] * 5, 0, 0, False),  # too few
    ],
)
def test_models_that_are_no_better_than_a_constant_get_a_verdict(
    labels: list[int] | None, answers: list[int], exceptions: int, advantage: int, warns: bool
) -> None:
    quality = judged(labels, answers)
    assert (quality.exceptions, quality.advantage) == (exceptions, advantage)
    assert bool(quality.verdict) is warns


@pytest.mark.parametrize("share_of_yes", [0.05, 0.5])
def test_noise_is_rarely_taken_for_skill(share_of_yes: float) -> None:
    """Answers that do not look at the record: called better no more often than the sign test may
    err.
    """
    rng = np.random.default_rng(2)
    better = 0
    for _ in range(200):
        labels, answers = ((rng.random(200) < share_of_yes) * 1 for _ in range(2))
        better += judged(labels.tolist(), answers.tolist()).advantage == 1
    assert better <= 12
