"""Plain SGD is certified training without clip and boxes; local randomised response stands on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from synthetic import make_head, make_recipe, make_records, make_training

from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import TrainingConfig
from agt.training.loop import train
from experiments.baselines import Bench, LocalRR, flip_labels, one_hot, train_sgd, wrong_draws

BCE = {"loss": "binary_cross_entropy"}


def clouds(n: int = 60, classes: int = 2) -> Records:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return make_records(rng.normal(size=(n, 3)) * 0.3 + np.eye(3)[labels], labels)


def bench(training: TrainingConfig, records: Records, classes: int = 2, hidden: tuple[int, ...] = ()) -> Bench:
    return Bench(make_head(training, 3, classes, hidden), classes, records, len(records), training)


def accuracy(here: Bench, weights: dict[str, torch.Tensor], records: Records) -> float:
    return float((here.labels(weights, records.features) == records.labels).mean())


@pytest.mark.parametrize(
    ("classes", "hidden", "settings"),
    [
        (2, (4,), {**BCE, "momentum": 0.9, "nesterov": True, "decay": 0.1, "epochs": 4}),
        (3, (), {"epochs": 3, "batch": {"count": 4, "normalizer": 15.0}, "weight_decay": 0.1}),
        (2, (), {**BCE, "epochs": 2, "momentum": 0.5, "batch": {"count": 90, "normalizer": 1.0}}),  # most are empty
    ],
)
def test_it_is_the_certified_runs_nominal_where_no_clip_binds(
    classes: int, hidden: tuple[int, ...], settings: dict
) -> None:
    training = make_training(**settings, clip=4.0)
    here = bench(training, clouds(classes=classes), classes, hidden)
    certified = train(here.head, make_recipe(training, classes=classes, declared_size=60, threads=1), here.records)
    plain = train_sgd(here, here.records)
    assert plain.keys() == certified.nominal.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(weight, certified.nominal[name], rtol=0, atol=1e-6)


def test_the_head_is_left_alone_and_divergence_is_an_error() -> None:
    training = make_training(**BCE, epochs=50, lr=1e6, dtype="float32", batch={"normalizer": 1e-6})
    here = bench(training, replace(clouds(), features=clouds().features * 1e30), hidden=(4,))
    before = [p.clone() for p in here.head.parameters()]
    with pytest.raises(UnsoundError, match="diverged"):
        train_sgd(here, here.records)
    assert all(torch.equal(a, b) for a, b in zip(before, here.head.parameters(), strict=True))
    with pytest.raises(ConfigError, match=r"labels run from 0 to 2, expected 0..1"):
        one_hot(np.array([0, 2]), 2, "cross_entropy")
    with pytest.raises(ConfigError, match=r"training.loss=squared_error: the baselines take binary_cross_entropy or"):
        one_hot(np.array([0, 1]), 2, "squared_error")


# -- randomised response on labels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 0.1, 1.0, 5.0, 40.0, 800.0])
def test_the_integer_table_meets_every_inequality(epsilon: float, classes: int) -> None:
    wrong = wrong_draws(epsilon, classes)
    right = 2**64 - (classes - 1) * wrong
    mp.dps = 60
    bound = mp.exp(mpf(epsilon))
    assert mpf(right) <= bound * wrong
    assert mpf(wrong) <= bound * right
    exact = mpf(2**64) / (bound + classes - 1)
    assert exact <= wrong <= exact + 1


@pytest.mark.parametrize(("epsilon", "classes"), [(0.1, 2), (1.0, 2), (0.5, 3), (3.0, 10)])
def test_labels_flip_at_the_closed_form_rate(epsilon: float, classes: int) -> None:
    n = 1_000_000
    labels = np.arange(n) % classes
    flipped = flip_labels(labels, classes, epsilon, 1)
    moves = np.bincount((flipped - labels) % classes, minlength=classes) / n
    wrong = 1 / (np.exp(epsilon) + classes - 1)
    expected = np.array([1 - (classes - 1) * wrong, *[wrong] * (classes - 1)])
    assert np.abs(moves - expected).max() < 5 * np.sqrt(0.25 / n)


def test_seeded_flips_repeat_and_what_the_table_does_not_cover_is_refused() -> None:
    labels = np.zeros(200, dtype=np.int64)
    assert (flip_labels(labels, 2, 0.1, 4) == flip_labels(labels, 2, 0.1, 4)).all()
    assert (flip_labels(labels, 2, 0.1, 4) != flip_labels(labels, 2, 0.1, 5)).any()
    for epsilon, classes in ((1e-10, 2), (1.0, 1), (1.0, 1001), (float("nan"), 2)):
        with pytest.raises(ConfigError, match="2 to 1000 classes"):
            wrong_draws(epsilon, classes)


def test_a_huge_epsilon_is_plain_sgd() -> None:
    here = bench(make_training(epochs=5, lr=0.5), clouds(classes=3), 3)
    plain = train_sgd(here, here.records)
    for name, weight in LocalRR().fit(here, 60.0, 0.0, 0).items():
        torch.testing.assert_close(weight, plain[name], rtol=0, atol=1e-6)
    assert "features" in LocalRR.protects


def test_ids_that_hash_the_labels_do_not_lay_out_the_batches() -> None:
    records = clouds()
    renamed = np.array([f"another id {i}" for i in range(len(records))])
    other = Records(records.features, records.labels, renamed, renamed, records.public)
    here = bench(make_training(**BCE, epochs=2, batch={"count": 5}), records)
    one, two = (LocalRR().fit(replace(here, records=each), 1.0, 0.0, 0) for each in (records, other))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(w, train_sgd(here, records)[n]) for n, w in one.items())


def test_public_records_keep_their_labels() -> None:
    records = clouds()
    public = Records(records.features, records.labels, records.ids, records.units, np.ones(60, dtype=bool))
    here = bench(make_training(**BCE, epochs=2), public)
    weights = LocalRR().fit(here, 0.1, 0.0, 0)
    for name, weight in train_sgd(here, public).items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-6)
