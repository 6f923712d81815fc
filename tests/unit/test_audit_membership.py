"""Membership inference: scores by hand, attacks that must win and ones that must not, labels at
certified queries.
"""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from synthetic import make_records

import agt
from agt.errors import ConfigError
from agt_audit.membership_attack import (
    ATTACKS,
    COPIES,
    Reference,
    ShadowEvaluation,
    confidences,
    label_scores,
    lira_online,
    spread_of,
)
from agt_audit.roc import Roc
from agt_audit.selftest import synthetic_records, train_small_model
from agt_audit.shadows import Pool, ShadowConfig, class_logits, train_shadows


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
    phi = reference.phi[:, 7]
    inside = reference.included[:, 7]
    one = phi[inside]
    other = phi[~inside]
    assert np.ptp(reference.law_with[1]) > 0
    by_hand = norm.logpdf(2.0, one.mean(), one.std(ddof=1)) - norm.logpdf(
        2.0, other.mean(), other.std(ddof=1)
    )
    assert lira_online(np.full(400, 2.0), reference)[7] == pytest.approx(by_hand)
    assert np.ptp(simulated(10, 1.0).law_with[1]) == 0, "one variance for all"


def test_attacks_that_know_the_record_win_over_one_threshold() -> None:
    areas = {
        name: spread_of(roc.area for roc in ShadowEvaluation.of(simulated(40, 1.5)).rocs(name))[0]
        for name in ATTACKS
    }
    assert areas["loss"] < 0.68
    assert areas["rmia"] > areas["loss"]
    assert areas["lira_online"] == pytest.approx(norm.cdf(1.5 / math.sqrt(2)), abs=0.03)


def test_nothing_is_found_where_there_is_nothing() -> None:
    rehearsal = ShadowEvaluation.of(simulated(20, 0.0, 1000))
    for name in ATTACKS:
        area, apart = spread_of(roc.area for roc in rehearsal.rocs(name))
        assert abs(area - 0.5) < 0.02
        assert 0.005 < apart < 0.04
    assert abs(rehearsal.right_guesses("lira_online").mean() / 20 - 0.5) < 0.02


def test_too_few_models() -> None:
    with pytest.raises(ConfigError, match=r"\b6\b.*\b2: .*audit\.shadows"):
        _ = simulated(2, 1.0).law_without
    with pytest.raises(ConfigError, match=r"\b6\b.*\b4: .*audit\.shadows"):
        ShadowEvaluation.of(simulated(4, 1.0))
    assert set(ShadowEvaluation.of(simulated(6, 1.0)).scores) == set(ATTACKS)


def test_labels_alone() -> None:
    model = train_small_model(*synthetic_records(0, 600))
    train = model.problem.dataset.train
    asked = list[int]()

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
    x = rng.normal(size=(80, 60))
    y = rng.integers(0, 2, 80)
    model = agt.fit(
        x[:40], y[:40], declared=agt.Declared(size=40), epochs=300, lr=1.0, clip=1.0
    ).model
    dataset = replace(
        model.problem.dataset, test=make_records(x[40:], y[40:], prefix="t"), tested=True
    )
    pool = Pool.of(dataset)
    shadows = train_shadows(
        model.problem.with_dataset(dataset), pool, ShadowConfig(models=8, workers=1), tmp_path
    )
    reference = Reference.of(shadows, pool.records.labels)
    phi = confidences(class_logits(model, pool.records.features), pool.records.labels)
    areas = {
        name: Roc(attack(phi, reference), pool.member).area for name, attack in ATTACKS.items()
    }
    assert min(areas.values()) > 0.8
    assert min(areas["lira_online"], areas["rmia"]) > areas["loss"]
