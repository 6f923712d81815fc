"""The minimiser with noise for removals: its residual, how far one record moves it, what is
refused, what is kept.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from records import reseal
from safetensors.numpy import load_file, save_file
from scipy.linalg import cho_factor

import agt
from agt.errors import AgtError, ConfigError, UnsoundError
from agt.models.removal import RemovalModel
from agt.numeric import gaussian_mu, step_of
from agt.training import removal
from agt.training.checkpoint import open_checkpoints
from agt.training.removal import (
    SEED_NAME,
    RemovalState,
    draw_seed,
    draw_tilt,
    removal_budget,
    solve_newton_step,
    spectral_norm_bound,
)
from agt.training.settings import RemovalConfig

RNG = np.random.default_rng(11)
N = 90
SQUARES = {"loss": "least_squares", "masking": "none", "sigma": 0.0}
KINDS: dict[str, dict[str, Any]] = {
    "logistic": {"masking": "loss", "sigma": 0.5, "seed": 3},
    "squares": SQUARES,
    "squares, random term": {"loss": "least_squares", "masking": "loss", "sigma": 0.5, "seed": 3},
    "output": {"masking": "output", "sigma": 0.1, "seed": 3},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def examples(classes: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(N) % classes
    turned = 2 * np.pi * y / classes
    return np.random.default_rng(2).normal(size=(N, 2)) + 2 * np.stack(
        [np.cos(turned), np.sin(turned)], axis=1
    ), y


def fit(
    config: dict[str, Any], classes: int = 2, keep: np.ndarray | None = None, **settings: Any
) -> RemovalModel:
    x, y = examples(classes)
    keep = np.arange(N) if keep is None else keep
    how = {
        "weight_decay": 0.02,
        "declared": agt.Declared(classes=list(range(classes)), size=N),
        **settings,
    }
    model = agt.fit(x[keep], y[keep], certificate={"name": "removal", **config}, **how).model
    assert isinstance(model, RemovalModel)
    return model


def residual(model: RemovalModel, classes: int, linear_term: bool = True) -> float:
    """|grad L_b(w)| in extended precision."""
    x, y = examples(classes)
    state = model.state
    of = model.removal_problem.objective
    phi, w, b = (
        value.astype(np.longdouble)
        for value in (model.phi(x), state.weight, state.tilt * linear_term)
    )
    f = phi @ w.T
    t = of.targets(y, classes)
    up = 1 / (1 + np.exp(-f)) if of.loss == "logistic" else f
    return float(np.linalg.norm(((up - t).T @ phi + of.strength * w + b).astype(float)))


@kinds
@pytest.mark.parametrize("classes", [2, 3])
def test_the_residual_is_never_below_the_true_one_and_has_b_in_it(kind: str, classes: int) -> None:
    model = fit(KINDS[kind], classes)
    assert residual(model, classes) <= model.state.residual <= 1e-9
    if model.state.tilt.any():
        assert residual(model, classes, linear_term=False) > 0.1, (
            "a residual that leaves out b would not be told from this one"
        )


def test_squares_are_solved_and_their_start_does_not_matter() -> None:
    model = fit(SQUARES)
    x, y = examples(2)
    phi = model.phi(x)
    s = model.removal_problem.objective.strength
    there = np.linalg.solve(
        phi.T @ phi + s * np.eye(phi.shape[1]), phi.T @ np.where(y == 1, 1.0, -1.0)
    )
    np.testing.assert_allclose(model.state.weight[0], there, atol=1e-12)
    np.testing.assert_array_equal(model.state.hessian[0], model.state.hessian[0].T)


@kinds
@pytest.mark.parametrize("classes", [2, 3])
def test_no_record_moves_the_head_further_than_its_sensitivity(kind: str, classes: int) -> None:
    model = fit(KINDS[kind], classes)
    sensitivity = model.trained.sensitivity
    farthest = 0.0
    for gone in range(0, N, 6):
        other = fit(KINDS[kind], classes, np.delete(np.arange(N), gone))
        assert np.array_equal(other.state.tilt, model.state.tilt)
        assert other.trained.sensitivity == sensitivity, (
            "what is public may not change with a record"
        )
        difference = other.state.noisy_weight - model.state.noisy_weight
        farthest = max(farthest, float(np.linalg.norm(difference, axis=1).max()))
    assert farthest <= sensitivity.rho_fp
    least = 0.005 if "squares" in kind else 0.05
    assert farthest >= least * sensitivity.rho, (
        "a bound that is never approached would hide a wrong one"
    )
    assert np.linalg.norm(model.state.weight, axis=1).max() <= sensitivity.radius


def test_a_unit_of_several_rows_moves_it_as_often_and_one_too_large_is_refused() -> None:
    units = np.repeat([f"u{i}" for i in range(N // 3)], 3)
    model = fit(KINDS["logistic"], units=units, unit_rows=3)
    one = fit(KINDS["logistic"]).trained.sensitivity
    assert model.trained.sensitivity.per_k >= 3 * one.rho
    for gone in range(0, N // 3, 5):
        keep = np.flatnonzero(units != f"u{gone}")
        other = fit(KINDS["logistic"], keep=keep, units=units[keep], unit_rows=3)
        assert (
            np.linalg.norm(other.state.noisy_weight - model.state.noisy_weight)
            <= model.trained.sensitivity.per_k
        )
    with pytest.raises(ConfigError, match=r"'u0'.*\b3\b.*unit_rows.*\b2\b"):
        fit(KINDS["logistic"], units=units, unit_rows=2)


@pytest.mark.parametrize("width", [1, 2, 40])
def test_the_spectral_norm_is_a_safe_upper_bound_and_close(width: int) -> None:
    for x in (
        RNG.normal(size=(200, width)),
        np.ones((9, width)),
        np.zeros((5, width)),
        np.eye(width),
    ):
        true = float(np.linalg.svd(x, compute_uv=False)[0])
        assert (
            true * (1 - 1e-13) <= spectral_norm_bound(x.T @ x, len(x)) <= true * (1 + 2e-6) + 1e-5
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config": {"tolerance": 1e-14}}, r'"tolerance"\]=1e-14: .*\b156\b'),
        (
            {"config": {"masking": "loss", "sigma": 1e-6}},
            r'"tolerance"\]=1e-05: .*3\.14e-07',
        ),
        ({"config": {"sigma": 4e-5}}, r'"tolerance"\]=1e-05: .*1\.26e-05'),
        ({"weight_decay": 0.0}, "weight_decay=0: certificate=removal"),
        ({"members": 2}, "members=2: certificate=removal"),
        ({"relation": "paper_privacy"}, "relation=paper_privacy"),
        ({"declared": None}, r"declared\.size: certificate=removal"),
        ({"momentum": 0.5}, "momentum"),
        ({"network": (3,)}, r"network=\[3\]"),
    ],
)
def test_what_no_proof_covers_is_refused_by_key(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(AgtError, match=message):
        fit(settings.pop("config", {}), **settings)


def test_a_strength_that_no_number_can_hold_is_refused() -> None:
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(ConfigError, match=r'"tolerance"\]=1e\+30.*weight_decay'),
    ):
        fit({"tolerance": 1e30, "sigma": 1e9, "eps": 1e6}, weight_decay=1e-300)


def test_a_run_that_is_resumed_after_its_last_step_says_that_the_tolerance_was_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Kept:
        def last_state(self) -> Any:
            return SimpleNamespace(
                step=2, tensors={"weight": torch.zeros(1, 3, dtype=torch.float64)}
            )

        def save_if_due(self, *args: Any) -> None: ...

    model = fit(SQUARES)
    monkeypatch.setattr(removal, "NEWTON_STEPS", 2)
    x, y = examples(2)
    phi = model.phi(x)
    of = model.removal_problem.objective
    with pytest.raises(UnsoundError, match=r"certificate\.tolerance=1e-05.*\b2 Newton"):
        removal.minimise(model.removal_problem, phi, of.targets(y, 2), checkpoints=Kept())  # type: ignore[arg-type]


def test_draws_are_fresh_unless_a_seed_is_given_and_a_resumed_run_keeps_its_own(
    tmp_path: Path,
) -> None:
    config = RemovalConfig(masking="loss", sigma=5.0)
    assert draw_seed(config) != draw_seed(config)
    assert draw_seed(RemovalConfig(seed=7)) == 7
    first = open_checkpoints(tmp_path / "run", {"a": 1}, None, str)
    seed = draw_seed(config, first)
    assert draw_seed(config, open_checkpoints(tmp_path / "run", {"a": 1}, None, str)) == seed
    assert (tmp_path / "run" / f"{SEED_NAME}.json").exists()
    assert np.array_equal(draw_tilt(config, (2, 3), first), draw_tilt(config, (2, 3), first))
    assert not draw_tilt(RemovalConfig(), (2, 3)).any()
    assert draw_tilt(replace(config, seed=1), (1, 4000)).std() == pytest.approx(5.0, rel=0.05)


def test_what_is_served_is_on_a_public_lattice_and_drawn_anew() -> None:
    known = fit({"sigma": 0.01}).removal_problem
    weight = np.full((1, 3), 0.1)
    step = step_of(0.01)
    one = known.add_noise(weight)
    two = known.add_noise(weight)
    assert not np.fmod(one, step).any()
    assert (one != two).all()
    assert np.abs(one - weight).max() < 0.1
    simulated = fit(KINDS["output"]).removal_problem
    assert np.array_equal(simulated.add_noise(weight), simulated.add_noise(weight))
    assert not np.array_equal(
        simulated.add_noise(weight), simulated.add_noise(weight, draw_index=1)
    )


def test_noise_in_floating_point_and_a_weight_beyond_the_clamp_are_no_state_of_a_run() -> None:
    model = fit(KINDS["output"])
    state = model.state
    known = model.removal_problem
    for weight in (
        state.weight + 0.1 * RNG.normal(size=state.weight.shape),
        state.noisy_weight + 2 * known.noisy_weight_limit,
    ):
        with pytest.raises(UnsoundError, match=r"damaged.*"):
            known.check_noisy_weight(replace(state, noisy_weight=weight))
    assert (
        np.abs(known.add_noise(np.full((1, 3), 2 * known.noisy_weight_limit))).max()
        == known.noisy_weight_limit
    )
    assert known.noisy_weight_limit >= known.minimiser_norm_bound + 64 * known.config.sigma
    plain = fit(KINDS["logistic"])
    with pytest.raises(UnsoundError, match=r"damaged.*noise"):
        plain.removal_problem.check_noisy_weight(
            replace(plain.state, noisy_weight=plain.state.noisy_weight + 1.0)
        )


def test_no_constant_that_is_recorded_depends_on_the_noise() -> None:
    """The length of the noise, published beside what it was added to, would tell one weight from
    another.
    """
    one, two = (fit({**KINDS["output"], "seed": seed}) for seed in (3, 4))
    assert one.constants == two.constants
    assert not np.array_equal(one.state.noisy_weight, two.state.noisy_weight)


def test_the_budget_covers_what_training_anew_leaves() -> None:
    config = RemovalConfig(tolerance=1e-3)
    hidden = 7.0 * config.sigma * gaussian_mu(config.eps, config.delta)
    assert removal_budget(config, 7.0) + config.tolerance <= hidden
    assert removal_budget(config, 7.0) + config.tolerance == pytest.approx(hidden, rel=1e-5)


def test_a_program_s_checkpoint_folder_goes_with_its_seed(tmp_path: Path) -> None:
    fit({}, checkpoint=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_state_says_what_it_is() -> None:
    state = fit(KINDS["logistic"]).state
    assert (state.count, state.removed) == (N, 0)
    assert np.array_equal(state.noisy_weight, state.weight)
    noisy = fit(KINDS["output"]).state
    assert noisy.noise.all()
    np.testing.assert_allclose(noisy.noisy_weight, noisy.weight + noisy.noise, atol=1e-15)
    with pytest.raises(UnsoundError, match=r"residual .gradient norm. is 1,"):
        replace(state, residual=1.0)
    with pytest.raises(UnsoundError, match="gram"):
        replace(state, gram=state.gram[:1])
    with pytest.raises(UnsoundError, match="NaN"):
        RemovalState(**{**state.__dict__, "norm": float("inf")})
    for name in ("norm", "count", "removed"):  # a bound on rounding would be negative
        with pytest.raises(UnsoundError, match="negative"):
            replace(state, **{name: -1})


@pytest.mark.parametrize("name", ["tilt", "noise", "weight"])
def test_a_state_that_was_changed_does_not_load(name: str, tmp_path: Path) -> None:
    x, y = examples(2)
    declared = agt.Declared(classes=[0, 1], size=N)
    model = agt.fit(
        x,
        y,
        declared=declared,
        weight_decay=0.02,
        certificate={"name": "removal", **KINDS["output"]},
    )
    model.save(tmp_path / "model")
    assert agt.load(tmp_path / "model").model.state.residual == model.model.state.residual  # type: ignore[attr-defined]
    path = tmp_path / "model" / "removal.safetensors"
    tensors = load_file(path)
    tensors[name] = tensors[name] + 0.5
    save_file(tensors, path)
    reseal(tmp_path / "model")
    with pytest.raises(UnsoundError):
        agt.load(tmp_path / "model")


def test_one_factor_serves_all_outputs_of_squares() -> None:
    matrix = np.diag([2.0, 4.0])
    gradient = np.array([[2.0, 4.0], [4.0, 4.0]])
    np.testing.assert_allclose(
        solve_newton_step([cho_factor(matrix, lower=True)], gradient), [[1, 1], [2, 1]]
    )
