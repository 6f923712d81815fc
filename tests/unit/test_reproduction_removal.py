"""Kinds about certified removal and erasure requests: published bounds are 003's, figures show what the library did."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from reproducing import an_entry, made, rows_of
from scipy.special import expit

from agt.errors import ConfigError
from agt.numeric import gaussian_mu
from experiments.baselines import Bench, features, network, of_one
from experiments.kinds import Entry, Profile, ProfileName
from experiments.removal import AT_RANDOM, SPREAD, WITH, WITHOUT, budget, published, removing

PAPER, OURS = Profile(privacy="remove", accounting="paper"), Profile(privacy="remove")
BOTH: dict[ProfileName, Profile] = {"paper": PAPER, "ours": OURS}
HEAD = (
    "dataset=digits",
    "model=linear",
    "training=recipe",
    "training.weight_decay=0.01",
    "certificate=removal",
    "certificate.features.bias=0",
    "certificate.seed=0",
)
WAITING = ("experiment=blobs_overlapping", "model=linear", "dataset.n_train=200", "kgrid=dense", "kgrid.max=8")


def entry_of(kind: str, folder: Path, base: tuple[str, ...] = HEAD, profiles: dict[ProfileName, Profile] = BOTH) -> Entry:
    return an_entry(kind, folder, base, profiles)


def test_published_bounds_are_those_of_003(tmp_path: Path) -> None:
    """Corollary 1 worked out by hand: 1/4 |X'| |v| |X' v|, v the inverse Hessian times the record's gradient."""
    prepared, settings = entry_of("removal_bounds", tmp_path).data("ours", ())
    trained = removing(prepared, settings, "here")
    x, targets, weight = trained.x, trained.targets[:, 0], trained.model.state.weight[0]
    stays = np.arange(len(x)) != 3
    curvatures = expit(x @ weight) * (1 - expit(x @ weight))
    hessian = (x[stays].T * curvatures[stays]) @ x[stays] + trained.objective.strength * np.eye(x.shape[1])
    v = np.linalg.solve(hessian, (expit(x[3] @ weight) - targets[3]) * x[3])
    by_hand = np.linalg.norm(x[stays], 2) * np.linalg.norm(v) * np.linalg.norm(x[stays] @ v) / 4
    step = trained.head.remove(x[[3]], trained.targets[[3]], remaining=x[stays])
    assert by_hand <= published(step, trained.objective) <= 1.02 * by_hand  # |X| is an upper bound
    assert step.moved == pytest.approx(np.linalg.norm(v), rel=1e-5)


def test_budgets_are_the_exact_curves_and_003s() -> None:
    assert budget(PAPER, 2.0, 1.0, 1e-4) == pytest.approx(2 / math.sqrt(2 * math.log(1.5e4)))
    assert budget(OURS, 2.0, 1.0, 1e-4) == pytest.approx(2 * gaussian_mu(1.0, 1e-4))
    assert budget(OURS, 2.0, 1.0, 1e-4) > budget(PAPER, 2.0, 1.0, 1e-4)


def test_bounds_hold_and_keep_their_order(tmp_path: Path) -> None:
    entry = entry_of("removal_bounds", tmp_path)
    section = made(entry, tmp_path / "r", run=[], removals=30, batch=5, every=5)
    last = section.table.set_index(["profile", "way"])["residual"]
    single = "one at a time"
    residual = last["paper", f"residual, {single}"]
    assert (
        residual
        < last["ours", f"bound, {single}"]
        < last["paper", f"bound, {single}"]
        < last["paper", f"worst case, {single}"]
    )
    assert last["ours", f"bound, {single}"] < last["ours", f"bound, Hessian kept up, {single}"]
    assert last["ours", f"measured after each, {single}"] < 1e-8
    assert section.compared.empty
    assert (tmp_path / "r" / "figures" / "figure.pdf").is_file()
    drawn = pd.read_csv(tmp_path / "r" / "figures" / "figure.csv")
    assert drawn.groupby("series")["residual"].apply(lambda seen: len(seen)).eq(6).all()
    with pytest.raises(ConfigError, match="removals=500: there are"):
        rows_of(entry, run=[], removals=500)


@pytest.mark.sweep
def test_settings_show_what_supports_more_removals(tmp_path: Path) -> None:
    entry = entry_of("removal_settings", tmp_path)
    rows = rows_of(entry, run=[], strengths=[0.001, 0.1], sigmas=[0.1, 1.0], draws=1, records=4)
    number = rows.set_index(["profile", "lambda", "sigma"])["removals"]
    assert number["ours", 0.001, 1.0] > number["paper", 0.001, 1.0]
    assert number["ours", 0.1, 0.1] > number["ours", 0.001, 0.1]
    right = rows.set_index(["profile", "lambda", "sigma"])["accuracy"]
    assert right["ours", 0.1, 0.1] == right["paper", 0.1, 0.1]
    section = made(
        entry, tmp_path / "r", run=[], strengths=[0.001, 0.1], sigmas=[0.1, 1.0], show=["front"], draws=1, records=4
    )
    assert set(section.captions) == {"figure"}
    assert "hides nothing" in " ".join(section.notes)


@pytest.mark.sweep
def test_a_budget_is_spent_on_as_many_removals_as_were_asked_for(tmp_path: Path) -> None:
    entry = entry_of("removal_budgets", tmp_path)
    rows = rows_of(entry, run=[], strengths=[0.1], eps=[0.5, 2.0], removals=10, draws=1, records=4)
    assert rows["removals"].between(10, 12).all()
    needed = rows.set_index(["profile", "eps"])["sigma"]
    assert needed["paper", 0.5] > 3 * needed["ours", 0.5] > 3 * needed["ours", 2.0]


@pytest.mark.sweep
def test_certificates_keep_an_ensemble_answering(tmp_path: Path) -> None:
    entry = entry_of("answered_while_waiting", tmp_path, WAITING, {"ours": Profile(privacy="remove", unlearning="remove")})
    rows = rows_of(entry, run=[], members=3, requests=[1, 4, 20], draws=4)
    share = rows.set_index(["certificates", "who", "requests"])["answered"]
    for who in (AT_RANDOM, SPREAD):
        assert share[WITH, who, 1] >= share[WITH, who, 4] >= share[WITH, who, 20]
        assert share[WITH, who, 4] > share[WITHOUT, who, 4]
        assert share[WITHOUT, who, 20] == 0
    assert rows["d log d"].eq(3 * math.log(3)).all()


def test_methods_are_compared_on_the_same_requests(tmp_path: Path) -> None:
    certified = ["model=linear", "training=recipe", "certificate=stability", "certificate.features.bias=0.1"]
    one = {
        "label": "digits",
        "data": "small digits",
        "removal": HEAD[1:],
        "certified": certified,
        "ensemble": ["ensemble.members=2"],
    }
    entry = entry_of("erasure_methods", tmp_path, ("dataset=digits", "compute.threads=1"), {"ours": OURS})
    rows = rows_of(entry, sets=[one], requests=2).set_index("method")
    assert set(rows.index) == {"newton", "sisa", "retrain", "certificate"}
    assert rows["accuracy after"]["newton"] == pytest.approx(rows["accuracy after"]["retrain"], abs=0.02)
    assert rows["seconds"]["certificate"] == 0
    assert rows["promise"]["newton"].startswith("(1, 0.0001)")
    assert rows["promise"]["sisa"] == rows["promise"]["retrain"] == "exact, adaptive"


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
    entry = entry_of("private_features", tmp_path, (*HEAD, "dataset.classes=[0,1,2]"))
    settings = {
        "run": ["dataset.declared_size=400"],
        "network": {"channels": [2, 2], "hidden": 6, "epochs": 1, "batches": 10},
        "dpsgd": {"batch": 1000, "lr": 0.5, "clip": 1.0, "epochs": 2},
        "eps": [8.0],
    }
    rows = rows_of(entry, **settings).set_index(["profile", "way"])
    alone, below = rows.loc["ours", "private network"], rows.loc["ours", "head with removals on private features"]
    assert rows.loc["paper", "private network"]["network delta"] == 1e-4 > 100 * alone["network delta"]
    assert alone["network eps"] == pytest.approx(0.8)
    assert below["network eps"] == pytest.approx(0.8 / 1.1)
    assert below["sigma"] > 0
    assert 0 < alone["not private"] <= 1
