"""Figures of certified removal: 003's bounds, budgets and settings."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from agt_cli._experiments.removable_head import budget, published, removing
from agt_cli._experiments.removal_settings import mean_and_range
from reproducing import BOTH_PROFILES, REMOVAL_HEAD, an_entry, made, rows_of
from scipy.special import expit

from agt.errors import ConfigError
from agt.numeric import gaussian_mu


def test_published_bounds_are_those_of_003(tmp_path: Path) -> None:
    """Corollary 1 worked out by hand: 1/4 |X'| |v| |X' v|, v the inverse Hessian times the
    record's gradient.
    """
    prepared, settings = an_entry("removal_bounds", tmp_path, REMOVAL_HEAD, BOTH_PROFILES).data(
        "ours", ()
    )
    trained = removing(prepared, settings, "here")
    x = trained.x
    targets = trained.targets[:, 0]
    weight = trained.model.state.weight[0]
    stays = np.arange(len(x)) != 3
    curvatures = expit(x @ weight) * (1 - expit(x @ weight))
    hessian = (x[stays].T * curvatures[stays]) @ x[stays] + trained.objective.strength * np.eye(
        x.shape[1]
    )
    v = np.linalg.solve(hessian, (expit(x[3] @ weight) - targets[3]) * x[3])
    by_hand = np.linalg.norm(x[stays], 2) * np.linalg.norm(v) * np.linalg.norm(x[stays] @ v) / 4
    step = trained.head.remove(x[[3]], trained.targets[[3]], remaining=x[stays])
    assert by_hand <= published(step, trained.objective) <= 1.02 * by_hand  # |X| is an upper bound
    assert step.length == pytest.approx(np.linalg.norm(v), rel=1e-5)


def test_budgets_are_the_exact_curves_and_003s() -> None:
    published = BOTH_PROFILES["paper"]
    ours = BOTH_PROFILES["ours"]
    assert budget(published, 2.0, 1.0, 1e-4) == pytest.approx(2 / math.sqrt(2 * math.log(1.5e4)))
    assert budget(ours, 2.0, 1.0, 1e-4) == pytest.approx(2 * gaussian_mu(1.0, 1e-4))
    assert budget(ours, 2.0, 1.0, 1e-4) > budget(published, 2.0, 1.0, 1e-4)


def test_bounds_hold_and_keep_their_order(tmp_path: Path) -> None:
    entry = an_entry("removal_bounds", tmp_path, REMOVAL_HEAD, BOTH_PROFILES)
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
    with pytest.raises(ConfigError, match=r"removals=500 .*264"):
        rows_of(entry, run=[], removals=500)


@pytest.mark.sweep
def test_settings_show_what_supports_more_removals(tmp_path: Path) -> None:
    entry = an_entry("removal_settings", tmp_path, REMOVAL_HEAD, BOTH_PROFILES)
    rows = rows_of(entry, run=[], strengths=[0.001, 0.1], sigmas=[0.1, 1.0], draws=1, records=4)
    number = rows.set_index(["profile", "lambda", "sigma"])["removals"]
    assert number["ours", 0.001, 1.0] > number["paper", 0.001, 1.0]
    assert number["ours", 0.1, 0.1] > number["ours", 0.001, 0.1]
    right = rows.set_index(["profile", "lambda", "sigma"])["accuracy"]
    assert right["ours", 0.1, 0.1] == right["paper", 0.1, 0.1]
    section = made(
        entry,
        tmp_path / "r",
        run=[],
        strengths=[0.001, 0.1],
        sigmas=[0.1, 1.0],
        show=["front"],
        draws=1,
        records=4,
    )
    assert set(section.captions) == {"figure"}
    assert "hides nothing" in " ".join(section.notes)


@pytest.mark.sweep
def test_a_budget_is_spent_on_as_many_removals_as_were_asked_for(tmp_path: Path) -> None:
    entry = an_entry("removal_budgets", tmp_path, REMOVAL_HEAD, BOTH_PROFILES)
    rows = rows_of(entry, run=[], strengths=[0.1], eps=[0.5, 2.0], removals=10, draws=2, records=4)
    assert rows["removals"].between(10, 12).all()
    assert ((rows["low"] <= rows["accuracy"]) & (rows["accuracy"] <= rows["high"])).all()
    assert (2 * rows["accuracy"]).to_numpy() == pytest.approx(
        (rows["low"] + rows["high"]).to_numpy()
    ), "of two draws"
    needed = rows.set_index(["profile", "eps"])["sigma"]
    assert needed["paper", 0.5] > 3 * needed["ours", 0.5] > 3 * needed["ours", 2.0]


def test_a_caption_of_one_draw_names_no_range() -> None:
    assert mean_and_range(1) == "one draw"
    assert mean_and_range(3) == "mean, range of 3 draws"
