"""What the lectures' kinds show agrees with what the lectures print, and with formulas."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from agt_cli._experiments.audit_estimates import katz_bound, posterior_bound
from agt_cli._experiments.bench import Bench
from agt_cli._experiments.kinds import Kind
from scipy.special import ndtri
from synthetic import make_records, make_training
from torch import nn
from unit.test_audit_estimates import exceeds

from agt_audit.estimates import Mistakes, epsilon_bound
from agt_cli._experiments import lectures


def rows_of(kind: Kind) -> pd.DataFrame:
    """Return the rows of a kind that needs no run."""
    return kind.rows(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "printed"),
    [
        ("most common hair colour: bound", 0.973),
        ("recap: least beta under the claim", 0.03988885),
        ("recap: upper limit of alpha", 0.95509),
        ("recap: upper limit of beta", 0.00274),
    ],
)
def test_worked_numbers_are_as_printed(what: str, printed: float) -> None:
    rows = rows_of(lectures.WorkedNumbers(profiles={})).set_index("what")
    assert rows.loc[what, "value"] == pytest.approx(printed, abs=1e-5, rel=2e-3)


def test_the_probability_of_the_best_answer_is_at_least_its_bound() -> None:
    rows = rows_of(lectures.WorkedNumbers(profiles={})).set_index("what")["value"]
    bound = rows["most common hair colour: bound"]
    assert rows["most common hair colour: probability, at least"] >= bound


def test_no_rigorous_bound_of_a_true_claim_exceeds_it() -> None:
    rows = rows_of(lectures.AuditedMechanism(profiles={}, trials=2000))
    rigorous = rows[rows["bound"].str.contains("Clopper")]
    assert (rigorous["found"] <= rigorous["claimed"]).all()


def test_a_bound_of_gaussian_dp_shows_more_than_one_of_any_mechanism() -> None:
    rows = rows_of(lectures.AuditedMechanism(profiles={}, eps=(4.0,)))
    found = rows.set_index("bound")["found"]
    assert found["f-DP, Clopper-Pearson"] > found["(eps, delta)-DP, Clopper-Pearson"]


def test_more_canaries_in_one_run_show_more_and_never_more_than_the_claim() -> None:
    rows = rows_of(lectures.AuditedInOneRun(profiles={}, eps=(4.0,), canaries=(500, 10000)))
    assert rows["found"].is_monotonic_increasing
    assert (rows["high"] <= 4.0).all()


def test_gaussian_dp_forces_at_least_the_misses_of_the_same_claim() -> None:
    rows = rows_of(lectures.TradeOffs(profiles={}, points=50))
    found = rows.pivot_table(index=["eps", "alarms"], columns="claim", values="misses")
    assert (found["Gaussian DP"] >= found["(eps, delta)-DP"] - 1e-12).all()


def test_errors_of_means_of_bits_are_those_of_their_formulas() -> None:
    rows = rows_of(lectures.PrivateMeans(profiles={}, users=(30, 1000), draws=10_000))
    bits = rows[rows["way"] != lectures.UNBOUNDED]
    assert np.allclose(bits["squared error"], bits["by the formula"], rtol=0.1)


def test_the_error_of_unbounded_numbers_is_within_the_lecture_s_bound() -> None:
    rows = rows_of(lectures.PrivateMeans(profiles={}, users=(100, 1000), draws=500))
    unbounded = rows[rows["way"] == lectures.UNBOUNDED]
    assert (unbounded["squared error"] <= unbounded["by the formula"]).all()


def test_clipped_gradients_are_the_records_own_and_no_longer_than_the_clip() -> None:
    head = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    rng = np.random.default_rng(0)
    records = make_records(rng.normal(size=(6, 3)).astype(np.float32), rng.integers(0, 2, 6))
    training = make_training(loss="cross_entropy")
    bench = Bench(head, 2, records, size=6, training=training)
    whole = lectures.clipped_gradients(bench, clip=1e6)
    loss = nn.functional.cross_entropy(
        head(torch.from_numpy(records.features[:1])), torch.from_numpy(records.labels[:1])
    )
    loss.backward()
    expected = np.concatenate([weight.grad.numpy().ravel() for weight in head.parameters()])
    assert np.allclose(whole[0], expected, atol=1e-6)
    clipped = lectures.clipped_gradients(bench, clip=0.1)
    assert np.linalg.norm(clipped, axis=1).max() <= 0.1 * (1 + 1e-5)


def test_katz_is_about_right_where_counts_are_large() -> None:
    bound = partial(katz_bound, delta=0.0, confidence=0.9)
    assert exceeds(bound, math.log(0.7 / 0.3), 0.3, 0.3) < 0.13


def test_katz_of_counts() -> None:
    """ln(n1/n2) - z sqrt(1/n1 + 1/n2 - 2/N), n1 true positives and n2 false ones, as Katz."""
    z = -float(ndtri(0.025))
    expected = math.log(700 / 100) - z * math.sqrt(1 / 700 + 1 / 100 - 2 / 1000)
    assert katz_bound(Mistakes(100, 1000, 300, 1000), 0.0, 0.95) == pytest.approx(expected)


def test_zero_counts() -> None:
    """Katz-log has no variance there, and Clopper-Pearson takes its place; all are finite."""
    mistakes = Mistakes(0, 1000, 300, 1000)
    expected = epsilon_bound(mistakes, 0.0, 0.95)
    assert katz_bound(mistakes, 0.0, 0.95) == pytest.approx(expected)
    assert expected > 0
    assert 0 < posterior_bound(Mistakes(0, 1000, 0, 1000), 0.0, 0.95) < 10


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_posterior_by_sampling(delta: float) -> None:
    rng = np.random.default_rng(0)
    alpha = rng.beta(20.5, 980.5, 200_000)
    beta = rng.beta(300.5, 600.5, 200_000)
    eps = np.maximum(np.log((1 - delta - beta) / alpha), np.log((1 - delta - alpha) / beta))
    bound = posterior_bound(Mistakes(20, 1000, 300, 900), delta, 0.95)
    assert bound == pytest.approx(np.quantile(eps, 0.05), abs=0.01)
