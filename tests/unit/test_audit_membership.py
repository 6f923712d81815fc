"""Membership inference: scores by hand, attacks that must win and ones that must not, labels at certified queries."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from synthetic import make_records

import agt
from agt.errors import ConfigError
from agt_audit.membership_attack import (
    ATTACKS,
    COPIES,
    Reference,
    Rehearsal,
    compare_labels,
    confidences,
    exposure,
    fewest,
    label_scores,
    lira_offline,
    lira_online,
    spread_of,
)
from agt_audit.memorisation import Contrast, influence, memorisation, strongest
from agt_audit.roc import Roc
from agt_audit.selftest import crowd, fitted
from agt_audit.shadows import Pool, ShadowConfig, class_logits, train_shadows
from agt_cli.report.findings import Outcome


def test_confidence_is_exact_where_p_rounds_to_one() -> None:
    logits = np.array([[0.0, 90.0], [-800.0, 3.0], [2.0, 1.0]])
    assert confidences(logits, np.array([1, 0, 0])).tolist() == pytest.approx([90.0, -803.0, 1.0])
    three = np.array([[5.0, 1.0, 0.0]])
    p = np.exp(three[0]) / np.exp(three[0]).sum()
    assert confidences(three, np.array([0]))[0] == pytest.approx(math.log(p[0] / (1 - p[0])))
    assert confidences(three + 1000, np.array([2]))[0] == pytest.approx(math.log(p[2] / (1 - p[2])))


def simulated(models: int, shift: float, records: int = 400, seed: int = 0) -> Reference:
    """Models whose phi is normal, and larger by ``shift`` on records they were trained on."""
    rng = np.random.default_rng(seed)
    coins = rng.random((models // 2, records)) < 0.5
    included = np.stack([coins, ~coins], axis=1).reshape(models, records)
    phi = rng.normal(size=records) * 3 + rng.normal(size=(models, records)) + shift * included
    return Reference(phi, included)


def test_lira_by_hand() -> None:
    reference = simulated(80, 1.0)
    phi, inside = reference.phi[:, 7], reference.included[:, 7]
    one, other = phi[inside], phi[~inside]
    assert np.ptp(reference.within[1]) > 0
    by_hand = norm.logpdf(2.0, one.mean(), one.std(ddof=1)) - norm.logpdf(2.0, other.mean(), other.std(ddof=1))
    assert lira_online(np.full(400, 2.0), reference)[7] == pytest.approx(by_hand)
    assert lira_offline(np.full(400, 2.0), reference)[7] == pytest.approx((2 - other.mean()) / other.std(ddof=1))
    assert np.ptp(simulated(10, 1.0).within[1]) == 0, "one variance for all"


def test_attacks_that_know_the_record_win_over_one_threshold() -> None:
    areas = {name: spread_of(roc.area for roc in Rehearsal.of(simulated(40, 1.5)).rocs(name))[0] for name in ATTACKS}
    assert areas["loss"] < 0.68
    assert areas["rmia"] > areas["loss"]
    assert areas["lira_online"] == pytest.approx(norm.cdf(1.5 / math.sqrt(2)), abs=0.03)
    assert areas["lira_offline"] == pytest.approx(areas["lira_online"], abs=0.03)


def test_nothing_is_found_where_there_is_nothing() -> None:
    rehearsal = Rehearsal.of(simulated(20, 0.0, 1000))
    for name in ATTACKS:
        area, apart = spread_of(roc.area for roc in rehearsal.rocs(name))
        assert abs(area - 0.5) < 0.02
        assert 0.005 < apart < 0.04
    assert abs(rehearsal.right("lira_online").mean() / 20 - 0.5) < 0.02


def test_too_few_models() -> None:
    with pytest.raises(ConfigError, match="there are 2"):
        _ = simulated(2, 1.0).outside
    with pytest.raises(ConfigError, match="there are 4"):
        Rehearsal.of(simulated(4, 1.0))
    assert set(Rehearsal.of(simulated(6, 1.0)).scores) == set(ATTACKS)


def test_the_most_exposed_record_is_found_among_many() -> None:
    reference = simulated(64, 0.0, 500)
    phi = reference.phi.copy()
    phi[:, 3] += 3 * reference.included[:, 3]
    found = exposure(phi[0], Reference(phi, reference.included))
    assert found["shift"].argmax() == 3
    assert found["shift"][3] == pytest.approx(3, abs=4 * found["shift_error"][3])


def test_a_half_and_its_complement_are_not_two_independent_models() -> None:
    """Every record moves all others' phi, and its own not at all: what is called exposed is so by chance."""
    rng, records = np.random.default_rng(0), 300
    for seed in range(20):
        others = rng.normal(size=(records, records)) * (1 - np.eye(records))
        included = simulated(64, 0.0, records, seed).included
        reference = Reference(included @ others + 0.1 * rng.normal(size=(64, records)), included)
        found = exposure(reference.phi[0], reference)
        assert found["shift"].std() == pytest.approx(found["shift_error"].mean(), rel=0.2)


def test_a_pair_of_which_one_model_failed_is_dropped() -> None:
    reference = simulated(10, 1.0, 200)
    less = reference.but(3, 9)
    assert np.array_equal(less.pairs.phi, reference.but(2, 3, 8, 9).phi)
    having, lacking = reference.with_and_without
    assert np.array_equal(having[0], np.where(reference.included[0], reference.phi[0], reference.phi[1]))
    assert np.array_equal(np.sort([having, lacking], axis=0)[:, 2], np.sort(reference.phi[4:6], axis=0))


def test_labels_at_no_certified_query_and_of_no_unit_are_not_compared() -> None:
    model = fitted(*crowd(0, 60))
    records = model.problem.dataset.train
    about = {"model": model, "units": records.units[:2], "features": records.features, "ids": records.ids}
    certified = {**about, "distance": np.ones(60)}
    for nothing in ({"distance": np.zeros(60)}, {"units": records.units[:0]}, {"why": "no pairs"}):
        blank = compare_labels(**{**certified, **nothing})  # type: ignore[arg-type]
        assert (blank.outcome, blank.found) == (Outcome.UNTESTED, None)


def test_labels_of_uncertified_queries_are_counted_apart_and_accuse_nobody() -> None:
    """Where all are called certified, the same labels are violations."""
    model = fitted(*crowd(0, 600))
    turn = np.linspace(0, 2 * np.pi, 2_000)
    queries = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)
    distance = model.certify(queries).stable_distance
    assert 0 < (distance >= 1).sum() < 2_000
    units = model.problem.dataset.train.units[:5]
    right, wrong = (compare_labels(model, units, queries, held, np.arange(2_000)) for held in (distance, distance + 1))
    assert (right.outcome, right.found, wrong.outcome) == (Outcome.STANDS, 0.0, Outcome.VIOLATED)
    assert wrong.found
    assert f"of uncertified queries {wrong.found:,.0f} of {5 * int((distance < 1).sum()):,} differed" in right.meaning
    assert "of uncertified queries 0 of 0 differed" in wrong.meaning


def test_labels_alone() -> None:
    model = fitted(*crowd(0, 600))
    train, asked = model.problem.dataset.train, list[int]()

    def answer(features: np.ndarray) -> np.ndarray:
        asked.append(len(features))
        return model.predict(features)

    scores = label_scores(answer, train.features, train.labels, 0)
    assert asked == [600] * (COPIES + 1)
    right = model.predict(train.features) == train.labels
    assert scores[right].min() > scores[~right].max()
    assert np.array_equal(scores, label_scores(model.predict, train.features, train.labels, 0))
    sure = np.abs(model.margins(train.features)[0])
    assert np.corrcoef(sure[right], scores[right])[0, 1] > 0.5


def test_memorised_records_are_told_by_real_shadow_models(tmp_path: Path) -> None:
    """Labels of noise and more parameters than records: being trained on is what decides."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 60)), rng.integers(0, 2, 80)
    model = agt.fit(x[:40], y[:40], declared=agt.Declared(size=40), epochs=300, lr=1.0, clip=1.0).model
    dataset = replace(model.problem.dataset, test=make_records(x[40:], y[40:], prefix="t"), tested=True)
    pool = Pool.of(dataset)
    shadows = train_shadows(model.problem.on(dataset), pool, ShadowConfig(models=8, workers=1), tmp_path)
    reference = Reference.of(shadows, pool.records.labels)
    phi = confidences(class_logits(model, pool.records.features), pool.records.labels)
    areas = {name: Roc(attack(phi, reference), pool.member).area for name, attack in ATTACKS.items()}
    assert min(areas.values()) > 0.8
    assert min(areas["lira_online"], areas["rmia"]) > areas["loss"]


# -- curves ---


def drawn(seed: int, members: int = 60, others: int = 50, shift: float = 0.5, digits: int = 1) -> Roc:
    """Scores with many ties."""
    rng = np.random.default_rng(seed)
    member = np.arange(members + others) < members
    return Roc(np.round(rng.normal(size=len(member)) + shift * member, digits), member)


def test_the_curve_counts_by_hand() -> None:
    roc = Roc(np.array([3.0, 2.0, 2.0, 1.0, 0.0]), np.array([True, True, False, True, False]))
    assert roc.curve.tolist() == [[math.inf, 0, 0], [3, 0, 1], [2, 1, 2], [1, 1, 3], [0, 2, 3]]
    assert roc.area == pytest.approx((1 + 0.75 + 0.5) / 3)
    assert roc.best == 1
    point = roc.at(0.4, 0.95)
    assert (point.threshold, point.tpr, point.fpr) == (3, pytest.approx(1 / 3), 0)
    assert roc.at(0.5, 0.95).tpr == 1


def test_area_and_its_variance() -> None:
    roc = drawn(0)
    assert roc.area == pytest.approx(roc_auc_score(roc.member, roc.scores))
    a, b = roc.scores[roc.member][:, None], roc.scores[~roc.member][None]
    wins = (a > b) + 0.5 * (a == b)
    more = [[*wins.mean(axis), 0, 1] for axis in (1, 0)]  # DeLong, in so many words, and two records more on each side
    spread = np.var(more[0], ddof=1) / wins.shape[0] + np.var(more[1], ddof=1) / wins.shape[1]
    low, high = roc.area_limits(0.95)
    assert (high - low) / 2 == pytest.approx(1.959964 * math.sqrt(spread), rel=1e-6)


def test_limits_cover() -> None:
    truth = 0.6381632  # Phi(.5 / sqrt 2)
    held = [low <= truth <= high for low, high in (drawn(seed, digits=9).area_limits(0.9) for seed in range(200))]
    assert 0.84 <= np.mean(held) <= 0.96
    kept = []
    for seed in range(200):
        point = drawn(seed, digits=9).at(0.1, 0.9)
        low, high = point.tpr_limits
        kept.append(low <= norm.sf(point.threshold - 0.5) <= high)
    assert np.mean(kept) >= 0.88


@pytest.mark.parametrize(("members", "others"), [(1, 10), (3, 100)])
def test_limits_cover_with_few_records_and_ties(members: int, others: int) -> None:
    rng, missed = np.random.default_rng(0), {"labels": 0, "constant": 0, "normal": 0}
    for _ in range(200):
        size = members + others
        scores = {"labels": rng.random(size) < 0.9, "constant": np.ones(size), "normal": rng.normal(size=size)}
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
    assert fewest(0.001, 1000) == ""
    assert fewest(0.001, 624) == "624 non-members are too few for 0.1 %: it takes 1,000 or more"
    for member in (np.ones(3, dtype=bool), np.zeros(3, dtype=bool), np.zeros(0, dtype=bool)):
        with pytest.raises(ConfigError, match="members and non-members, and there are only"):
            Roc(np.zeros(len(member)), member)
    with pytest.raises(ConfigError, match="NaN"):
        Roc(np.array([math.nan, 0]), np.array([True, False]))


# -- memorisation and influence: against all subsets of tiny data ---


N = 6
RNG = np.random.default_rng(3)
POINTS, LABELS = RNG.normal(size=(N, 2)), np.array([0, 1, 0, 1, 1, 0])


def answers(subset: np.ndarray) -> np.ndarray:
    """[n] bool: whether the nearest neighbour in the subset, of a tiny world, has each point's label; none says 0."""
    if not subset.any():
        return LABELS == 0
    away = np.linalg.norm(POINTS[:, None] - POINTS[subset][None], axis=2)
    right: np.ndarray = LABELS[subset][away.argmin(axis=1)] == LABELS
    return right


def every_subset() -> tuple[np.ndarray, np.ndarray]:
    included = np.array(list(product([False, True], repeat=N)))
    return included, np.stack([answers(subset) for subset in included])


def sampled(rng: np.random.Generator, models: int, paired: bool = False) -> tuple[np.ndarray, np.ndarray]:
    included = rng.random((models, N)) < 0.5
    if paired:
        included[1::2] = ~included[::2]
    return included, np.stack([answers(subset) for subset in included])


EXACT = memorisation(*every_subset()).value
ALL = influence(*every_subset(), np.arange(N), np.arange(N)).value


def test_all_subsets_give_the_definition() -> None:
    included, right = every_subset()
    for j in range(N):
        assert EXACT[j] == pytest.approx(right[included[:, j], j].mean() - right[~included[:, j], j].mean())
    for i, t in ((0, 3), (4, 2)):
        out = ~included[:, t]
        with_i, without = out & included[:, i], out & ~included[:, i]
        assert ALL[i, t] == pytest.approx(right[with_i, t].mean() - right[without, t].mean())
    assert EXACT.max() > 0.3


def pairwise(included: np.ndarray, right: np.ndarray) -> Contrast:
    """Influences of each on each other, the diagonal, which is undefined, left out."""
    return influence(included, right, np.arange(N), np.arange(N)).take(np.flatnonzero(~np.eye(N, dtype=bool)))


@pytest.mark.parametrize(
    ("estimate", "truth", "paired"),
    [(memorisation, EXACT, False), (memorisation, EXACT, True), (pairwise, ALL[~np.eye(N, dtype=bool)], False)],
)
def test_estimates_are_unbiased_and_their_intervals_cover(
    estimate: Callable[[np.ndarray, np.ndarray], Contrast], truth: np.ndarray, paired: bool
) -> None:
    rng, values, covered, together = np.random.default_rng(0), [], [], []
    for _ in range(100):
        contrast = estimate(*sampled(rng, 60, paired))
        low, high = contrast.bounds(0.9)
        values.append(contrast.value)
        covered.append((low <= truth) & (high >= truth))
        low, high = contrast.bounds(0.9, looks=len(truth))
        together.append(((low <= truth) & (high >= truth)).all())
    spread = np.std(values, axis=0) / np.sqrt(len(values))
    assert (np.abs(np.mean(values, axis=0) - truth) <= 4 * spread + 1e-9).all()
    assert (np.mean(covered, axis=0) >= 0.9).all()
    assert np.mean(together) >= 0.9


def test_the_diagonal_is_left_out() -> None:
    included, right = sampled(np.random.default_rng(0), 200)
    assert np.isnan(influence(included, right, np.arange(N), np.arange(N)).value.diagonal()).all()
    pairs, decided = strongest(included, right, np.arange(N), np.arange(N), 50)
    assert len(pairs) == N * (N - 1) == len(decided.value)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (np.diff(decided.value) <= 1e-12).all()
