"""A head with removals on the features of a private network."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from agt_cli._experiments.bench import Bench
from agt_cli._experiments.convolutional import features, network
from agt_cli._experiments.dp_sgd import DpSgd, of_one
from agt_cli._experiments.private_features import Schedule, schedule_for
from reproducing import BOTH_PROFILES, REMOVAL_HEAD, an_entry, made

from agt.errors import ConfigError


def test_a_networks_features_are_what_its_last_layer_sees() -> None:
    head = network(64, 3, (2, 3), 5, seed=0)
    x = np.random.default_rng(0).random((4, 64), dtype=np.float32)
    weights = {name: parameter.detach() for name, parameter in head.named_parameters()}
    bench = Bench(head, 3, None, 10, None)  # type: ignore[arg-type]
    seen = features(bench, weights, x)
    assert seen.shape == (4, 5)
    with torch.no_grad():
        assert torch.equal(head[-1](torch.from_numpy(seen)), head(torch.from_numpy(x)))


def test_what_one_record_may_cost_is_what_the_group_pays() -> None:
    assert of_one(5.0, 1e-4, 10, published=True) == (0.5, 1e-4)
    one, delta = of_one(5.0, 1e-4, 10, published=False)
    assert one * 10 == pytest.approx(5.0)
    assert delta * sum(math.exp(i * one) for i in range(10)) == pytest.approx(1e-4)


@pytest.mark.sweep
def test_a_head_on_private_features_is_compared_with_the_private_network(tmp_path: Path) -> None:
    entry = an_entry(
        "private_features", tmp_path, (*REMOVAL_HEAD, "dataset.classes=[0,1,2]"), BOTH_PROFILES
    )
    settings = {
        "run": ["dataset.declared_size=400"],
        "network": {"channels": [2, 2], "hidden": 6, "epochs": 1, "batches": 10},
        "schedules": [
            {"least_eps": 0, "dpsgd": {"batch": 1000, "lr": 0.5, "clip": 1.0, "epochs": 2}}
        ],
        "seeds": 2,
        "eps": [8.0],
    }
    rows = made(entry, tmp_path / "record", **settings).table.set_index(["profile", "way"])
    alone = rows.loc["ours", "private network"]
    below = rows.loc["ours", "head with removals on private features"]
    untrained = rows.loc["ours", "head with removals on untrained features"]
    assert (
        rows.loc["paper", "private network"]["network delta"] == 1e-4 > 100 * alone["network delta"]
    )
    assert alone["network eps"] == pytest.approx(0.8)
    assert below["network eps"] == pytest.approx(0.8 / 1.1)
    assert below["sigma"] > untrained["sigma"] > 0, "removals have all of eps where nothing trains"
    assert untrained["network eps"] == 0
    assert 0 < alone["not private"] <= 1
    assert alone["low"] < alone["high"]
    assert alone["low"] + alone["high"] == pytest.approx(2 * alone["accuracy"]), "of two seeds"


def test_a_schedule_follows_from_eps_alone() -> None:
    dpsgd = DpSgd(batch=10, lr=1, clip=1, epochs=1)
    schedules = tuple(Schedule(least, dpsgd) for least in (3.0, 0.0, 10.0))
    chosen = {eps: schedule_for(eps, schedules).least_eps for eps in (0.1, 3.0, 9.0, 10.0)}
    assert chosen == {0.1: 0.0, 3.0: 3.0, 9.0: 3.0, 10.0: 10.0}
    with pytest.raises(ConfigError, match="least_eps"):
        schedule_for(2.0, schedules[:1])
