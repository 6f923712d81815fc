"""Curvature tubes, part by part: activations, pinned radii, rounding, and what ends a run or a certificate."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from scipy.special import expit
from synthetic import make_records, refused
from tubes import BATCHES, CASES, KS, WIDTH, TubeCase

from agt.data.dataset import Records
from agt.errors import ConfigError, UnsoundError
from agt.settings import RelationConfig, TubeConfig, validate
from agt.training.linear import LinearLoss, Schedule, rows_moved
from agt.tube.network import ERROR, SMOOTH, Meter, schedule, start_norm
from agt.tube.training import TubeTrained, greatest, look, room_of, train_tube

CASE = {case.name: case for case in CASES}
TWICE = {
    "tanh": torch.tanh,
    "softplus": lambda z: torch.nn.functional.softplus(z, threshold=500.0),
    "gelu": torch.nn.functional.gelu,
}

# -- activations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_are_bounded_and_the_bounds_are_attained(name: str) -> None:
    smooth, z = SMOOTH[name], torch.linspace(-12, 12, 240_001, dtype=torch.float64, requires_grad=True)
    value = TWICE[name](z)
    assert smooth.zero >= abs(float(TWICE[name](torch.zeros((), dtype=torch.float64))))
    for computed, bound in zip((*smooth.at(z.detach())[1:], None), (smooth.slope, smooth.bend, smooth.twist), strict=True):
        (value,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        most = float(value.detach().abs().max())
        assert most <= bound * (1 + 1e-13)
        assert most == pytest.approx(bound, rel=1e-5)
        if computed is not None:
            assert float((computed - value.detach()).abs().max()) < 1e-12


def exactly(name: str, z: float) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """s, s', s'' to 60 digits."""
    z = mpmath.mpf(z)
    if name == "tanh":
        t = mpmath.tanh(z)
        return t, 1 - t * t, -2 * t * (1 - t * t)
    if name == "softplus":
        p = 1 / (1 + mpmath.exp(-z))
        return mpmath.log1p(mpmath.exp(z)), p, p * (1 - p)
    below, density = mpmath.ncdf(z), mpmath.npdf(z)
    return z * below, below + z * density, (2 - z * z) * density


@pytest.mark.parametrize("name", SMOOTH)
def test_what_is_computed_errs_by_less_than_is_charged(name: str) -> None:
    at = np.concatenate([np.linspace(-40, 40, 401), [-700.0, 1e4, -1e4, 1e150, -1e150, 1e-300, 0.0]])
    with mpmath.workdps(60):
        for z, *computed in zip(at, *(part.numpy() for part in SMOOTH[name].at(torch.from_numpy(at))), strict=True):
            for mine, true in zip(computed, exactly(name, z), strict=True):
                assert abs(mpmath.mpf(float(mine)) - true) <= ERROR * (1 + abs(z)) / 2


def test_numbers_whose_squares_vanish_are_not_bounded_by_0() -> None:
    assert start_norm(torch.full((4, 4), 1e-170, dtype=torch.float64)) >= 4e-170
    with pytest.raises(ConfigError, match="length"):
        validate(TubeConfig, {"length": 1e-161}, "certificate")
    case = TubeCase("shortest", hidden=10, length=1e-100)
    assert case.setting.beta >= 1e-100 / 10**0.5
    assert case.setting.alpha >= 1e-100 * (1 - 1e-12)


def test_a_network_begins_at_0_and_its_output_weights_have_the_length_asked_for() -> None:
    case = TubeCase("network", classes=3, hidden=10, length=2.5)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(7, case.features_map.outputs)))
    logits = case.network.logits(case.initial, x)[0]
    assert float(logits.abs().max()) < 1e-15
    assert case.network.outputs.norm(dim=1).tolist() == pytest.approx([2.5] * 3)
    assert torch.equal(case.initial[:5], case.initial[5:])


# -- radii ---------------------------------------------------------------------------------------------------------------


def by_hand(case: TubeCase, records: Records) -> np.ndarray:
    """[K] radii of a tanh network with one logit, once more, nothing rounded and nothing charged."""
    a, config, plan = case.network.outputs.numpy()[0], case.config, case.setting.plan
    w, phi, y, c = case.initial.numpy(), case.phi(records.features).astype(float), records.labels, case.counts
    before = after = np.zeros(len(c))
    longest, alpha, bend = np.abs(a).max(), np.linalg.norm(a), 4 / 27**0.5
    twist = longest * np.hypot(bend * longest / 4 + config.clip * 2, bend * alpha / 4)
    for step, rows in enumerate(plan.batches(records.units)):
        lr, x, t = config.lr / (1 + config.decay * step), phi[rows], np.tanh(phi[rows] @ w.T)
        s, keep, u = (
            lr / plan.normalizer,
            1 - lr * config.weight_decay,
            np.clip(expit(t @ a) - y[rows], -config.clip, config.clip),
        )
        dip = np.maximum(2 * u[:, None] * a * t * (1 - t * t), 0).max(axis=1)
        rho, length = (max(np.linalg.eigvalsh((x.T * weight) @ x)[-1], 0) for weight in (dip, np.ones(len(x))))
        pulled = keep + s * (rho + c * config.clip * longest * bend)
        turned = s * (alpha**2 / 4 + config.clip * longest * bend) * (length + c) - keep
        cap = np.maximum(keep + s * config.clip * longest * bend * (length + c), turned)
        below, turn = np.maximum(cap - np.maximum(pulled, turned), 0), s * twist * (length + c)
        spared = [(below**2 - np.maximum(below - turn * r, 0) ** 2) / (2 * turn) for r in (before, after)]
        before, after = cap * before - spared[0], cap * after - spared[1]
        after = np.maximum(after, before + s * c * config.clip * alpha)
        before = after if (step + 1) % plan.count == 0 else before
        w = keep * w - s * ((u[:, None] * a * (1 - t * t)).T @ x)
    return after


PINNED = {  # the radii of k = 1..4, to six digits
    "tanh": (0.182979, 0.380366, 0.586375, 0.800631),
    "batches": (0.0904609, 0.190468, 0.298921, 0.415902),
    "decays": (0.0809784, 0.168675, 0.263663, 0.362953),
    "replaced": (0.206483, 0.426785, 0.657741, 0.899487),
}


@pytest.mark.parametrize("name", PINNED)
def test_radii_are_what_the_formulas_say(name: str) -> None:
    """A bound counted twice, or left out, shows here."""
    case = CASE[name]
    records = case.data(np.random.default_rng(0))
    radii = case.train(records).radii
    expected = by_hand(case, records)
    assert (radii >= expected).all()
    assert radii[1:] == pytest.approx(expected[1:], rel=1e-5)  # constants are rounded up by 2^-20
    assert radii[1:] == pytest.approx(PINNED[name], rel=1e-5)
    assert 0 < radii[0] < 1e-9


def test_where_records_are_removed_their_own_gradients_count() -> None:
    lengths = np.array([0.1, 0.5, 0.2])
    assert greatest(lengths, np.array([0, 1, 2, 5])) == pytest.approx([0, 0.5, 0.7, 0.8])
    case = CASE["removed"]
    records = case.data(np.random.default_rng(0))
    removed = case.train(records).radii
    assert (removed[1:] < replace(case, relation="add_remove").train(records).radii[1:]).all()


def test_each_records_gradient_is_charged_what_it_errs_by() -> None:
    case = CASE["removed"]
    records, weight = case.data(np.random.default_rng(0)), case.initial
    meter, rows = Meter(case.setting, case.network), np.arange(len(records))
    seen = replace(records, features=case.phi(records.features))
    public = schedule(case.setting)[0][0]
    listed = look(meter, weight, seen, rows, public, False, listed=True).lengths
    exact = np.linalg.norm(case.gradients(weight.numpy(), seen.features, records.labels), axis=(1, 2))
    assert (listed - exact >= 0.9 * case.setting.rounding(public.radius).gradient).all()


# -- rounding ------------------------------------------------------------------------------------------------------------


def long_step(
    case: TubeCase, weight: np.ndarray, phi: np.ndarray, y: np.ndarray, at: Schedule
) -> tuple[np.ndarray, np.ndarray]:
    """(the step from ``weight``, the logits) of a tanh network in extended precision."""
    x, w, a = (part.astype(np.longdouble) for part in (phi, weight, case.network.outputs.numpy()))
    t = np.tanh(x @ w.T)
    f = t @ a.T
    if case.classes == 2:
        q = np.clip(1 / (1 + np.exp(-f)) - y[:, None], -case.config.clip, case.config.clip)
    else:
        q = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True) - np.eye(case.classes)[y]
    return w * np.longdouble(at.keep) - np.longdouble(at.step) * (((q @ a) * (1 - t * t)).T @ x), f


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision on this machine")
@pytest.mark.parametrize("classes", [2, 4])
def test_steps_and_logits_err_by_less_than_is_charged(classes: int) -> None:
    rng, worst = np.random.default_rng(0), 0.0
    for spread in (0.1, 1.0, 10.0):
        case = TubeCase("rounding", classes=classes, n=60, hidden=40, length=3.0, training={"weight_decay": 0.3})
        records = case.data(rng)
        phi, setting = case.phi(records.features), case.setting
        weight = torch.from_numpy(rng.normal(size=case.initial.shape) * spread)
        radius, at = float(torch.linalg.norm(weight)), Schedule.at(case.config, setting.plan, 0)
        public = replace(schedule(setting)[0][0], at=at, radius=radius)
        meter, seen = Meter(setting, case.network), replace(records, features=phi)
        gradient = look(meter, weight, seen, np.arange(len(phi)), public, False).gradient
        exact, logits = long_step(case, weight.numpy(), phi, records.labels, at)
        error = float(np.linalg.norm((weight * at.keep - gradient * at.step).numpy() - exact))
        worst = max(worst, error / setting.step_rounding(at, radius))
        room = room_of(setting, case.network, TubeTrained(weight, np.zeros(1), radius), phi)
        f = np.sort(logits, axis=1) if classes > 2 else np.abs(logits)
        lead = f[:, -1] - f[:, -2] if classes > 2 else f[:, 0]
        worst = max(worst, float(np.abs(room.margin.min(axis=0) - lead).max()) / room.errors[0])
    assert 0 < worst < 1


# -- what ends a run, and what does not ----------------------------------------------------------------------------------


def test_radii_beyond_the_weights_reach_certify_nothing_and_stop_nobody() -> None:
    for training in ({"lr": 30.0, "epochs": 12}, {**BATCHES, "lr": 200.0}, {"lr": 1e6}):
        case = TubeCase("wild", training=training)
        trained = case.train(case.data(np.random.default_rng(0)))
        assert np.isinf(trained.radii[1:]).all()
        known = case.certify(trained, np.random.default_rng(1).normal(size=(9, WIDTH)))
        assert not known.stable_distance.any()
    with pytest.raises(ConfigError, match=r"training\.lr=1: .*lower it"):
        schedule(replace(CASE["tanh"].setting, start=1e200))


def test_nobody_is_trained_on_as_anybody_is() -> None:
    for case in (CASE["tanh, exact"], CASE["batches"], CASE["removed"]):
        trained = case.train(make_records(np.zeros((0, WIDTH)), []))
        assert torch.allclose(trained.weight, case.initial)
        assert np.isfinite(trained.radii).all()
        assert (trained.radii[1:] > 0).all()


def test_what_no_proof_covers_is_refused() -> None:
    case = CASE["batches"]
    many = make_records(np.ones((400, WIDTH)), [1] * 400)
    with pytest.raises(ConfigError, match=r"training\.batch\.n_max is 50"):
        case.train(many)
    twice = make_records(np.ones((2, WIDTH)), [1, 0], ["a", "a"])
    with pytest.raises(ConfigError, match=r"unit 'a' has 2 rows"):
        case.train(twice)
    setting = case.setting
    with pytest.raises(ConfigError, match=r"tells two classes apart by one logit"):
        replace(setting, loss=LinearLoss.of(case.config, 3))
    for wrong in ([0.0, np.nan], [-1.0, 2.0], [0.0, 2.0, 1.0]):
        with pytest.raises(UnsoundError, match="radii are not nondecreasing numbers"):
            TubeTrained(case.initial, np.array(wrong), 1e3)
    refused(
        (UnsoundError, "parameter of the network is NaN", lambda: TubeTrained(case.initial * np.nan, np.zeros(1), 1.0)),
        (UnsoundError, r"the weights are longer than 0\.01", lambda: TubeTrained(case.initial, np.zeros(1), 0.01)),
    )


def test_distances_are_the_last_k_certified_and_end_with_the_grid() -> None:
    case = replace(CASE["decays"], n=60)
    records, queries = case.data(np.random.default_rng(0)), np.random.default_rng(1).normal(size=(200, WIDTH))
    seen = replace(records, features=case.phi(records.features))
    counts = np.arange(40)
    trained = train_tube(case.setting, case.network, case.initial, seen, counts, False)
    room = room_of(case.setting, case.network, trained, case.phi(queries))
    held = np.stack([room.left(trained.radii[k : k + 1], counts[k : k + 1]) > 0 for k in counts])
    assert (held[1:] <= held[:-1]).all()
    vars(case)["counts"] = counts
    known = case.certify(trained, queries)
    assert np.array_equal(known.stable_distance, np.maximum(held.sum(axis=0) - 1, 0))
    assert len(np.unique(known.stable_distance)) > 5
    assert np.array_equal(np.asarray(known.certified), held[list(KS)])
    near = replace(trained, radii=trained.radii[:4])
    vars(case)["counts"] = counts[:4]
    assert np.array_equal(case.certify(near, queries).stable_distance, np.minimum(known.stable_distance, 3))


def test_a_replaced_unit_counts_each_of_its_rows_twice() -> None:
    assert TubeCase("units", relation="substitute", unit_rows=3).counts.tolist() == [0, 6, 12, 18, 24]
    with pytest.raises(ConfigError, match="relation=paper_privacy divides by the size of the actual batch"):
        rows_moved(RelationConfig(name="paper_privacy"))
