"""Plain SGD is certified training without clip and boxes; local randomised response and students stand on it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from synthetic import make_head, make_recipe, make_records, make_training

from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import TrainingConfig
from agt.training.loop import train
from agt_cli.papers.baselines.local_rr import LocalRRConfig, flip_labels, train_local_rr, unbiased_targets, wrong_draws
from agt_cli.papers.baselines.sgd import one_hot, train_sgd
from agt_cli.papers.baselines.student import train_student

BCE = {"loss": "binary_cross_entropy"}


def clouds(n: int = 60, classes: int = 2) -> Records:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return make_records(rng.normal(size=(n, 3)) * 0.3 + np.eye(3)[labels], labels)


def accuracy(head: torch.nn.Sequential, weights: dict, records: Records) -> float:
    head.load_state_dict(weights)
    logits = head(torch.from_numpy(records.features)).detach().numpy()
    guess = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(axis=1)
    return float((guess == records.labels).mean())


@pytest.mark.parametrize("relation", ["add_remove", "paper_privacy"])
@pytest.mark.parametrize(
    ("classes", "hidden", "settings"),
    [
        (2, (4,), {**BCE, "momentum": 0.9, "nesterov": True, "decay": 0.1, "epochs": 4}),
        (3, (), {"epochs": 3, "batch": {"count": 4, "normalizer": 15.0}, "weight_decay": 0.1}),
        (2, (), {**BCE, "epochs": 2, "momentum": 0.5, "batch": {"count": 90, "normalizer": 1.0}}),  # most are empty
    ],
)
def test_it_is_the_certified_runs_nominal_where_no_clip_binds(
    relation: str, classes: int, hidden: tuple[int, ...], settings: dict
) -> None:
    training = make_training(**settings, clip=4.0)
    records = clouds(classes=classes)
    head = make_head(training, 3, classes, hidden)
    certified = train(head, make_recipe(training, relation, classes=classes, threads=1), records)
    plain = train_sgd(head, classes, records, None, training, mean=relation == "paper_privacy")
    assert plain.keys() == certified.nominal.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(weight, certified.nominal[name], rtol=0, atol=1e-6)


def test_the_head_is_left_alone_and_divergence_is_an_error() -> None:
    training = make_training(**BCE, epochs=50, lr=1e6, dtype="float32", batch={"normalizer": 1e-6})
    head = make_head(training, 3, 2, (4,))
    before = [p.clone() for p in head.parameters()]
    far = replace(clouds(), features=clouds().features * 1e30)
    with pytest.raises(UnsoundError, match="diverged"):
        train_sgd(head, 2, far, 60, training)
    assert all(torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))
    with pytest.raises(ConfigError, match=r"targets have shape \(60, 2\), expected \(60, 1\)"):
        train_sgd(head, 2, clouds(), 60, training, np.zeros((60, 2)))
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
    flipped = flip_labels(labels, classes, LocalRRConfig(epsilon=epsilon, seed=1))
    moves = np.bincount((flipped - labels) % classes, minlength=classes) / n
    wrong = 1 / (np.exp(epsilon) + classes - 1)
    expected = np.array([1 - (classes - 1) * wrong, *[wrong] * (classes - 1)])
    assert np.abs(moves - expected).max() < 5 * np.sqrt(0.25 / n)


def test_flips_from_the_system_differ_and_seeded_ones_repeat() -> None:
    labels = np.zeros(200, dtype=np.int64)
    system, seeded = LocalRRConfig(epsilon=0.1), LocalRRConfig(epsilon=0.1, seed=4)
    assert (flip_labels(labels, 2, system) != flip_labels(labels, 2, system)).any()
    assert (flip_labels(labels, 2, seeded) == flip_labels(labels, 2, seeded)).all()


@pytest.mark.parametrize(("classes", "loss"), [(2, "binary_cross_entropy"), (2, "cross_entropy"), (5, "cross_entropy")])
def test_targets_are_unbiased(classes: int, loss: str) -> None:
    epsilon = 0.7
    p = float(Fraction(wrong_draws(epsilon, classes), 2**64))
    for true in range(classes):
        chances = np.full(classes, p)
        chances[true] = 1 - (classes - 1) * p
        expectation = chances @ unbiased_targets(np.arange(classes), classes, loss, epsilon)
        np.testing.assert_allclose(expectation, one_hot(np.array([true]), classes, loss)[0], atol=1e-12)


@pytest.mark.parametrize("unbias", [True, False])
def test_a_huge_epsilon_is_plain_sgd(unbias: bool) -> None:
    training = make_training(epochs=5, lr=0.5)
    records, head = clouds(classes=3), make_head(make_training(), 3, 3, ())
    released = train_local_rr(head, 3, records, 60, training, LocalRRConfig(epsilon=60.0, seed=0, unbias=unbias))
    plain = train_sgd(head, 3, records, 60, training)
    for name, weight in plain.items():
        torch.testing.assert_close(released.weights[name], weight, rtol=0, atol=1e-9)
    assert (released.epsilon, released.delta) == (60.0, 0.0)
    assert "features" in released.protects


@pytest.mark.parametrize("unbias", [True, False])
def test_it_learns_from_flipped_labels(unbias: bool) -> None:
    training = make_training(**BCE, epochs=30, lr=2.0, batch={"normalizer": 4000.0})
    head = make_head(training, 3, 2, ())
    released = train_local_rr(head, 2, clouds(4000), 4000, training, LocalRRConfig(epsilon=1.0, seed=0, unbias=unbias))
    assert accuracy(head, released.weights, clouds(4000)) > 0.9


def test_ids_that_hash_the_labels_do_not_lay_out_the_batches() -> None:
    records, training = clouds(), make_training(**BCE, epochs=2, batch={"count": 5})
    renamed = np.array([f"another id {i}" for i in range(len(records))])
    other = Records(records.features, records.labels, renamed, renamed, records.public)
    head, config = make_head(training, 3, 2, ()), LocalRRConfig(epsilon=1.0, seed=0)
    one, two = (train_local_rr(head, 2, r, 60, training, config).weights for r in (records, other))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(w, train_sgd(head, 2, records, 60, training)[n]) for n, w in one.items())


def test_public_records_keep_their_labels() -> None:
    records, training = clouds(), make_training(**BCE, epochs=2)
    public = Records(records.features, records.labels, records.ids, records.units, np.ones(60, dtype=bool))
    head = make_head(training, 3, 2, ())
    released = train_local_rr(head, 2, public, 60, training, LocalRRConfig(epsilon=0.1, seed=0)).weights
    for name, weight in train_sgd(head, 2, public, 60, training).items():
        torch.testing.assert_close(released[name], weight, rtol=0, atol=1e-12)


# -- students ----------------------------------------------------------------------------------------------------------


def student_training() -> TrainingConfig:
    return make_training(**BCE, epochs=40, lr=2.0, batch={"normalizer": 60.0})


def test_a_student_learns_from_the_answers_it_bought() -> None:
    queries, head = clouds(), make_head(student_training(), 3, 2, ())
    weights = train_student(head, 2, queries.features, queries.labels, student_training())
    assert accuracy(head, weights, clouds(600)) > 0.9
    some = queries.labels.copy()
    some[10:] = -1
    fewer = train_student(head, 2, queries.features, some, student_training())
    alone = train_student(head, 2, queries.features[:10], queries.labels[:10], student_training())
    assert all(torch.equal(fewer[n], alone[n]) for n in fewer)
    assert any(not torch.equal(fewer[n], weights[n]) for n in fewer)


def test_a_student_without_answers() -> None:
    head = make_head(student_training(), 3, 2, ())
    with pytest.raises(ConfigError, match="buy at least one"):
        train_student(head, 2, np.zeros((2, 3)), np.array([-1, -1]), student_training())
    with pytest.raises(ConfigError, match=r"answers have shape \(3,\) and there are 2 queries"):
        train_student(head, 2, np.zeros((2, 3)), np.zeros(3, dtype=int), student_training())
