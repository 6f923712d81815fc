"""Membership inference: scores by hand, attacks that must win and ones that must not, labels at certified queries."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from synthetic import make_records

import agt
from agt.audit.findings import Outcome
from agt.audit.membership import (
    ATTACKS,
    COPIES,
    Exposure,
    Reference,
    Rehearsal,
    coin_guesses,
    confidences,
    label_scores,
    lira_offline,
    lira_online,
    spread_of,
    told_apart,
)
from agt.audit.one_run import one_run_epsilon
from agt.audit.planted.membership import overstated_distances
from agt.audit.roc import Roc
from agt.audit.shadows import Pool, ShadowConfig, class_logits, train_shadows
from agt.errors import ConfigError
from agt.models.model import Model
from agt.problem import Problem


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
    assert not reference.within.pooled
    by_hand = norm.logpdf(2.0, one.mean(), one.std(ddof=1)) - norm.logpdf(2.0, other.mean(), other.std(ddof=1))
    assert lira_online(np.full(400, 2.0), reference)[7] == pytest.approx(by_hand)
    assert lira_offline(np.full(400, 2.0), reference)[7] == pytest.approx((2 - other.mean()) / other.std(ddof=1))
    assert simulated(10, 1.0).within.pooled


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


def test_coins_are_guessed_as_far_as_there_is_something_to_see() -> None:
    units = np.arange(2000).astype(str)
    for shift, least, most in ((0.0, 0, 0.3), (4.0, 2.5, 20)):
        made = coin_guesses(simulated(20, shift, 2000), units, 200)
        assert least <= one_run_epsilon(made.right, 200, 2000, 1e-5, 0.95, "exact") <= most
    shared = np.repeat(np.arange(1000), 2)
    reference = simulated(20, 4.0, 1000)
    double = Reference(reference.phi[:, shared], reference.included[:, shared])
    assert coin_guesses(double, shared.astype(str), 300).canaries == 1000


def test_the_complement_would_tell_and_is_left_out() -> None:
    """With the complement among the others, a record that varies in nothing but chance would look like one that tells."""
    reference = simulated(6, 0.0, 3000)
    area = spread_of(roc.area for roc in Rehearsal.of(reference).rocs("lira_online"))[0]
    assert area == pytest.approx(0.5, abs=0.02)


def test_the_most_exposed_record_is_found_among_many() -> None:
    reference = simulated(64, 0.0, 500)
    phi = reference.phi.copy()
    phi[:, 3] += 3 * reference.included[:, 3]
    exposure = Exposure.of(phi[0], Reference(phi, reference.included), np.ones(500, dtype=bool))
    assert exposure.shift.argmax() == 3
    assert exposure.adjusted[3] < 1e-3
    assert (exposure.adjusted[np.arange(500) != 3] > 0.01).all()
    assert exposure.shift[3] == pytest.approx(3, abs=4 * exposure.shift_error[3])


def test_shifts_by_chance_are_called_exposed_rarely() -> None:
    called = [
        (Exposure.of(r.phi[0], r, np.ones(50, dtype=bool)).adjusted < 0.05).any()
        for r in (simulated(16, 0.0, 50, seed) for seed in range(100))
    ]
    assert np.mean(called) <= 0.12


def test_a_half_and_its_complement_are_not_two_independent_models() -> None:
    """Every record moves all others' phi, and its own not at all: what is called exposed is so by chance."""
    rng, records, chances = np.random.default_rng(0), 300, []
    for seed in range(20):
        others = rng.normal(size=(records, records)) * (1 - np.eye(records))
        included = simulated(64, 0.0, records, seed).included
        reference = Reference(included @ others + 0.1 * rng.normal(size=(64, records)), included)
        exposure = Exposure.of(reference.phi[0], reference, np.ones(records, dtype=bool))
        chances.append(exposure.chance)
        assert exposure.shift.std() == pytest.approx(exposure.shift_error.mean(), rel=0.2)
        assert exposure.adjusted.min() > 1e-3
    for level in (0.05, 0.01, 0.001):
        assert np.mean(np.array(chances) < level) <= level


def test_the_score_s_error_is_that_of_pairs() -> None:
    """Drawn again and again, the score of one model spreads as its standard error says, where pairs are opposed."""
    rng, scores, errors = np.random.default_rng(0), [], []
    phi = rng.normal(size=50) + 2
    for seed in range(100):
        included = simulated(40, 0.0, 50, seed).included
        noise = np.repeat(rng.normal(size=(20, 50)), 2, axis=0) * np.tile([[1.0], [-1.0]], (20, 1))
        exposure = Exposure.of(phi, Reference(noise + included, included), np.ones(50, dtype=bool))
        scores.append(exposure.score)
        errors.append(exposure.error)
    spread, told = np.std(scores, axis=0), np.mean(errors, axis=0)
    assert np.median(spread / told) == pytest.approx(1, abs=0.15)


def test_a_pair_of_which_one_model_failed_is_dropped() -> None:
    reference = simulated(10, 1.0, 200)
    less = reference.but(3, 9)
    assert np.array_equal(less.pairs.phi, reference.but(2, 3, 8, 9).phi)
    having, lacking = reference.with_and_without
    assert np.array_equal(having[0], np.where(reference.included[0], reference.phi[0], reference.phi[1]))
    assert np.array_equal(np.sort([having, lacking], axis=0)[:, 2], np.sort(reference.phi[4:6], axis=0))


def fitted(n: int = 600) -> tuple[Model, Problem, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3))
    model = agt.fit(x, (x[:, 0] + rng.normal(size=n) > 0).astype(int), declared=agt.Declared(size=n)).model
    return model, model.problem, rng.normal(size=(300, 3)).astype(model.problem.dataset.train.features.dtype)


def test_labels_at_certified_queries_do_not_tell() -> None:
    model, problem, queries = fitted()
    distance = model.certify(queries).stable_distance
    apart = told_apart(model, problem, problem.dataset.train.units[:12], queries, distance)
    assert (apart.pairs, apart.queries, apart.told) == (12, int((distance >= 1).sum()), ())
    assert 0 < apart.queries < 300


@pytest.mark.parametrize("seed", range(3))
def test_a_certificate_that_claims_too_much_is_caught(seed: int) -> None:
    finding = overstated_distances(seed)
    assert finding.outcome is Outcome.VIOLATED
    assert "labels differed, the first at query" in finding.meaning


def test_nothing_certified_asks_nothing() -> None:
    model, problem, queries = fitted()
    assert told_apart(model, problem, problem.dataset.train.units[:2], queries, np.zeros(300)).queries == 0


def test_labels_alone() -> None:
    model, problem, _ = fitted()
    train, asked = problem.dataset.train, list[int]()

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
