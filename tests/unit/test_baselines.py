"""Plain SGD, and plain SGD on randomised labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from agt_cli._experiments.baselines import LocalRR
from agt_cli._experiments.bench import Bench, one_hot, train_sgd
from synthetic import make_head, make_recipe, make_records, make_training, refused

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import TrainingConfig
from agt.training.loop import train
from agt_cli._experiments import baselines

BCE = {"loss": "binary_cross_entropy"}


def clouds(n: int = 60, classes: int = 2) -> Records:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return make_records(rng.normal(size=(n, 3)) * 0.3 + np.eye(3)[labels], labels)


def bench_of(
    training: TrainingConfig, records: Records, classes: int = 2, hidden: tuple[int, ...] = ()
) -> Bench:
    return Bench(make_head(training, 3, classes, hidden), classes, records, len(records), training)


@pytest.mark.parametrize(
    ("classes", "hidden", "settings"),
    [
        (2, (4,), {**BCE, "momentum": 0.9, "nesterov": True, "decay": 0.1, "epochs": 4}),
        (3, (), {"epochs": 3, "batch": {"count": 4, "normalizer": 15.0}, "weight_decay": 0.1}),
        # most are empty
        (2, (), {**BCE, "epochs": 2, "momentum": 0.5, "batch": {"count": 90, "normalizer": 1.0}}),
    ],
)
def test_it_is_the_certified_runs_nominal_where_no_clip_binds(
    classes: int, hidden: tuple[int, ...], settings: dict
) -> None:
    training = make_training(**settings, clip=4.0)
    here = bench_of(training, clouds(classes=classes), classes, hidden)
    certified = train(
        here.head, make_recipe(training, classes=classes, declared_size=60, threads=1), here.records
    )
    plain = train_sgd(here, here.records)
    assert plain.keys() == certified.nominal.keys()
    for name, weight in plain.items():
        torch.testing.assert_close(weight, certified.nominal[name], rtol=0, atol=1e-6)


def test_the_head_is_left_alone_and_divergence_is_an_error() -> None:
    training = make_training(**BCE, epochs=50, lr=1e6, dtype="float32", batch={"normalizer": 1e-6})
    here = bench_of(training, replace(clouds(), features=clouds().features * 1e30), hidden=(4,))
    before = [p.clone() for p in here.head.parameters()]
    with pytest.raises(UnsoundError, match="diverged"):
        train_sgd(here, here.records)
    assert all(torch.equal(a, b) for a, b in zip(before, here.head.parameters(), strict=True))
    refused(
        (
            ConfigError,
            r"from 0 to 1, but they are from 0 to 2",
            lambda: one_hot(np.array([0, 2]), 2, "cross_entropy"),
        ),
        (
            ConfigError,
            r"training.loss=squared_error: the baselines can only use .*binary_cross_entropy or",
            lambda: one_hot(np.array([0, 1]), 2, "squared_error"),
        ),
    )


def test_labels_flip_at_the_closed_form_rate_public_ones_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each wrong class takes 1 in e^eps + C - 1; the draws are the seed's."""
    monkeypatch.setattr(baselines, "train_sgd", lambda bench, records: records.labels)
    epsilon = 1.0
    n = 60_000
    here = bench_of(make_training(), clouds(n=n, classes=3), 3)
    here = replace(
        here, records=replace(here.records, public=np.arange(len(here.records)) % 10 == 0)
    )
    flipped = [LocalRR().fit(here, epsilon, 0.0, seed) for seed in (0, 0, 1)]
    moves = (flipped[0] - here.records.labels) % 3
    assert not moves[here.records.public].any()
    shares = np.bincount(moves[~here.records.public], minlength=3) / (~here.records.public).sum()
    wrong = 1 / (np.exp(epsilon) + 2)
    assert np.abs(shares - [1 - 2 * wrong, wrong, wrong]).max() < 5 * np.sqrt(0.25 / n)
    assert (flipped[0] == flipped[1]).all()
    assert (flipped[0] != flipped[2]).any()


def test_a_huge_epsilon_is_plain_sgd() -> None:
    here = bench_of(make_training(epochs=5, lr=0.5), clouds(classes=3), 3)
    plain = train_sgd(here, here.records)
    for name, weight in LocalRR().fit(here, 60.0, 0.0, 0).items():
        torch.testing.assert_close(weight, plain[name], rtol=0, atol=1e-6)
    assert "features" in LocalRR.protects


def test_ids_that_hash_the_labels_do_not_lay_out_the_batches() -> None:
    records = clouds()
    renamed = np.array([f"another id {i}" for i in range(len(records))])
    other = Records(records.features, records.labels, renamed, renamed, records.public)
    here = bench_of(make_training(**BCE, epochs=2, batch={"count": 5}), records)
    one, two = (
        LocalRR().fit(replace(here, records=each), 1.0, 0.0, 0) for each in (records, other)
    )
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert any(not torch.equal(w, train_sgd(here, records)[n]) for n, w in one.items())
