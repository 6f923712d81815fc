"""Objective perturbation: privacy by integrating exact densities on grids, each piece of the
proof broken in its turn.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from releasing import drawn_weights, judged_weights, reserve_and_draw
from scipy.special import expit
from synthetic import ball

from agt.api import fit, load
from agt.data.in_memory import Declared
from agt.errors import ConfigError
from agt.mechanisms import objective
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.objective import (
    SOLVER_SHARE,
    ObjectiveNoises,
    ObjectivePerturbation,
    ProblemConstants,
    expected_deviations,
    release_objective,
    tilt_noise,
)
from agt.mechanisms.planning import planned_weights, weights_options
from agt.mechanisms.weights_mechanism import labels_from
from agt.models.linear import LinearModel
from agt.models.model import Model
from agt.models.own_votes import OwnVotesKind, OwnVotesModel
from agt.models.votes import VotesModel
from agt.numeric import SeededRandomness, gaussian_delta
from agt.training.erm_with_linear_term import ErmWithLinearTerm, solve

Data = tuple[np.ndarray, np.ndarray]
DELTA = 0.01
NONE: Data = (np.zeros((0, 1)), np.zeros(0))


@dataclass(frozen=True)
class Logistic:
    """The clamped loss, as it is: gradients of one sign."""

    clamp: float

    def slope(self, x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
        return -(2.0 * y - 1) * np.minimum(expit(-(2.0 * y - 1) * (grid @ x.T)), self.clamp)

    def curve(self, x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> np.ndarray:
        p = expit(-(2.0 * y - 1) * (grid @ x.T))
        return np.where(p < self.clamp, p * (1 - p), 0)


def density(
    loss: Logistic, data: Data, strength: float, sigma: float, grid: np.ndarray
) -> np.ndarray:
    """The exact law of the minimiser on the points of ``grid`` [m, d]."""
    (x, y), width = data, grid.shape[1]
    pull = loss.slope(x, y, grid) @ x + strength * grid
    hessian = np.einsum("mn,ni,nj->mij", loss.curve(x, y, grid), x, x) + strength * np.eye(width)
    mass = np.exp(-(pull**2).sum(axis=1) / (2 * sigma**2)) * np.linalg.det(hessian)
    total: np.ndarray = mass / mass.sum()
    return total


def spread(pair: tuple[Data, Data], strength: float, sigma: float) -> np.ndarray:
    """[m, d] points that hold all but nothing of both laws."""
    width = pair[0][0].shape[1]
    most = max(len(x) for x, _ in pair)
    reach = (9 * sigma + most + 1) / strength
    axis = np.linspace(-reach, reach, 20_001 if width == 1 else 201)
    return np.stack(np.meshgrid(*[axis] * width, indexing="ij"), axis=-1).reshape(-1, width)


def apart(
    loss: Logistic, pair: tuple[Data, Data], strength: float, sigma: float, epsilon: float
) -> float:
    """The least delta at ``epsilon`` of one pair of datasets, both directions."""
    grid = spread(pair, strength, sigma)
    p, q = (density(loss, data, strength, sigma, grid) for data in pair)
    return max(
        float(np.maximum(one - math.exp(epsilon) * other, 0).sum())
        for one, other in ((p, q), (q, p))
    )


def worst(loss: Logistic, strength: float, sigma: float, epsilon: float) -> float:
    """The same over neighbours of small datasets in one and two dimensions."""
    found = 0.0
    for (width, n), angle, label in product(((1, 0), (1, 3), (2, 2)), (0.0, 0.7, math.pi), (0, 1)):
        x, y = ball(n, width, seed=n)
        z = np.array([[math.cos(angle), math.sin(angle)][:width]])
        more = np.vstack([x, z / np.linalg.norm(z)]), np.append(y, label)
        found = max(found, apart(loss, ((x, y), more), strength, sigma, epsilon))
    return found


def exact(epsilon: float) -> tuple[float, float]:
    """What the minimiser itself may spend of (epsilon, DELTA)."""
    return (1 - SOLVER_SHARE) * epsilon, (1 - SOLVER_SHARE) * DELTA


@pytest.mark.parametrize(
    ("clamp", "epsilon", "strength"), [(1.0, 1.0, 1.0), (0.5, 0.3, 2.0), (0.3, 2.0, 0.2)]
)
def test_the_minimiser_is_private(clamp: float, epsilon: float, strength: float) -> None:
    shape = ProblemConstants(strength, clamp, 10, 1)
    sigma, (eps, delta) = tilt_noise(shape, epsilon, DELTA), exact(epsilon)
    assert gaussian_delta(eps - shape.determinant_loss, clamp / sigma) == pytest.approx(
        delta, rel=1e-6
    )
    assert worst(Logistic(clamp), strength, sigma, eps) <= delta
    assert worst(Logistic(clamp), strength, 0.6 * sigma, eps) > delta


def telling(parity: int, shape: ProblemConstants) -> Callable[..., np.ndarray]:
    """A solver within its tolerance that leaves a residual by which everybody knows the dataset."""

    def found(
        erm: ErmWithLinearTerm, tolerance: float, start: object = None, most: int = 0
    ) -> np.ndarray:
        theta = solve(erm, tolerance / 100)
        apart = 0.9 * tolerance / (shape.strength + len(erm.x))
        theta = 2 * apart * (np.round(theta / (2 * apart) - parity / 2) + parity / 2)
        assert erm.gradient_norm_bound(theta) <= tolerance
        return theta

    return found


def guessed(scale: float | None, monkeypatch: pytest.MonkeyPatch) -> float:
    """How often the telling residual is read right from releases, their second noise as it is or
    of another scale.
    """
    x = np.array([[1.0], [-1.0]])
    y = np.array([1, 1])
    shape = ProblemConstants(1.0, 1.0, 2, 1)
    guarantee = ApproximateDP(1.0, DELTA)
    source = SeededRandomness(0)
    noises = ObjectiveNoises.from_budget(shape, 1.0, DELTA)
    # as large as it may get
    noises = replace(noises, tolerance=1e-3, scale=noises.scale * 1e-3 / noises.tolerance)
    noises = noises if scale is None else replace(noises, scale=scale)
    erm = ErmWithLinearTerm.from_labels(x, y, 1.0, 1.0)
    right = 0
    with monkeypatch.context() as patched:
        patched.setattr(objective.ObjectiveNoises, "from_budget", lambda *_: noises)
        for trial in range(200):
            patched.setattr(objective, "solve", telling(trial % 2, shape))
            place = release_objective(erm, shape, guarantee, source).weight[0, 0] / (
                2 * 0.9 * 1e-3 / 3
            )
            right += (abs(place - round(place)) > 0.25) == trial % 2
    return right / 200


def test_a_solver_whose_residual_tells_the_data_is_hidden_by_the_second_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert guessed(1e-9, monkeypatch) == 1.0  # the residual left out
    assert 0.4 < guessed(None, monkeypatch) < 0.6


def head(classes: int = 2, **settings: object) -> LinearModel:
    """The head of a small run, certificate=erm unless told otherwise."""
    x, y = ball(120, 2)
    y = np.arange(120) % classes
    stated = Declared(classes=tuple(range(classes)), size=120, features=True, settings=True)
    given: dict[str, Any] = {
        "certificate": "erm",
        "weight_decay": 0.05,
        "epochs": 1,
        "compute": {"threads": 1},
    }
    model = fit(x, y, declared=stated, **(given | settings)).model
    assert isinstance(model, LinearModel)
    return model


def test_released_through_the_library() -> None:
    model = head()
    mechanism = ObjectivePerturbation(eps=2.0, delta=1e-5)
    release = judged_weights(model, mechanism)
    released = reserve_and_draw(release)
    assert release.claim.proved
    (spent,) = release.claim.totals
    assert (spent.eps, spent.delta, spent.bound) == (pytest.approx(2), 1e-5, "basic")
    noises = mechanism.noise_scales(model)
    assert (released.noise["tilt"], released.noise["sigma"]) == (noises.tilt, noises.scale)
    assert not np.fmod(released.weight, released.noise["step"]).any()
    assert labels_from(model, ball(5, 2)[0])(released).shape == (5,)
    again = [drawn_weights(model, mechanism, SeededRandomness(0)).weight for _ in range(2)]
    assert (again[0] == again[1]).all()


def voting(size: int | None = 120, **settings: object) -> Model:
    """Votes on the same records, about a declared number of them or none."""
    x, _ = ball(120, 2)
    stated = Declared(
        classes=(0, 1), size=size, features=True, settings=True, ids="units" in settings
    )
    given: dict[str, Any] = {
        "certificate": "votes",
        "members": 5,
        "weight_decay": 0.05,
        "epochs": 1,
    }
    return fit(x, np.arange(120) % 2, declared=stated, **(given | settings)).model


def test_beside_votes_the_head_on_their_records_is_released() -> None:
    """With the claim and, but for the search's beginning, the weights of that head's own run."""
    votes = voting()
    erm = head()
    mechanism = ObjectivePerturbation(eps=2.0, delta=1e-5)
    one, other = (
        judged_weights(model, mechanism, randomness=SeededRandomness(0)) for model in (votes, erm)
    )
    assert one.claim == other.claim
    (constants,) = (condition for condition in one.conditions if condition.letter == "c")
    assert "objective_stated" in [fact.code for fact in constants.evidence.facts], (
        "what the head's own objective needs is in the claim, and not only what the votes need"
    )
    weights = [reserve_and_draw(release).weight for release in (one, other)]
    assert weights[0] == pytest.approx(weights[1], abs=1e-6)
    queries = ball(30, 2, 1)[0]
    labels = np.arange(30) % 2
    options = [weights_options(model, queries, labels)[mechanism.name] for model in (votes, erm)]
    expected = [option.expectation(mechanism) for option in options]
    assert expected[0] == pytest.approx(expected[1], abs=1e-6)


HOMES = np.array([f"home {at // 2}" for at in range(120)])


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"size": None}, "condition c"),
        ({"units": HOMES}, "relation.unit_rows"),
        (
            {"unit_rows": 2, "units": HOMES},
            "relation=add_remove with unit_rows=2",
        ),
        ({"relation": "flip"}, "relation=flip with unit_rows=1"),
        ({"weight_decay": 0.0}, "training.weight_decay=0"),
    ],
)
def test_beside_votes_what_the_proof_does_not_cover_is_refused(
    settings: dict[str, Any], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # votes refuse such units by themselves
        patch.setattr("agt.models.voting.check_unit_rows", lambda units, most: None)
        votes = voting(**settings)
        queries = ball(5, 2, 1)[0]
    with pytest.raises(ConfigError, match=re.escape(part)):
        judged_weights(votes, ObjectivePerturbation(eps=2.0, delta=1e-5))
    offered = weights_options(votes, queries, np.zeros(5, dtype=int))
    assert ObjectivePerturbation.name not in offered, "nor does a plan offer it"


def test_no_head_is_released_beside_members_of_a_learner_of_ones_own() -> None:
    """Whose declarations the weights would not need, and whose features need not be of norm 1."""
    votes = cast(VotesModel, voting())
    certificate = OwnVotesKind(learner={"_target_": "somewhere.learner"})
    own = replace(votes.settings, certificate=certificate)
    model = OwnVotesModel.untrained(
        certificate, replace(votes.problem, settings=own), votes.features
    )
    with pytest.raises(ConfigError, match=r"mechanism=objective_perturbation.*certificate=erm"):
        judged_weights(model, ObjectivePerturbation(eps=2.0, delta=1e-5))


def test_records_that_are_solved_anew_are_counted_by_their_units() -> None:
    beside = ObjectivePerturbation.releasable_head(voting(unit_rows=2, units=HOMES))
    with pytest.raises(ConfigError, match=r"'home 0'.*relation\.unit_rows.*\b1\b"):
        ObjectivePerturbation.training_rows(beside, unit_rows=1)


def test_many_releases_scatter_as_they_are_expected_to() -> None:
    """To first order: the standard deviation of a logit, and with it the expected accuracy."""
    model = head()
    mechanism = ObjectivePerturbation(eps=1.0, delta=1e-5, weight_decay=0.5)
    queries = ball(5, 2, 1)[0]
    mean, deviations = expected_deviations(model, model.phi(queries), 0.5)
    drawn = [
        mechanism.draw(model, SeededRandomness(seed)).weight[0] @ model.phi(queries).T
        for seed in range(150)
    ]
    assert np.std(drawn, axis=0) == pytest.approx(deviations(1.0, 1e-5), rel=0.2)
    assert (
        np.abs(np.mean(drawn, axis=0) - mean[:, 0]) < 4 * deviations(1.0, 1e-5) / math.sqrt(150)
    ).all()


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"certificate": "stability"}, "certificate=stability"),
        (
            {"relation": "substitute"},
            "relation=substitute with unit_rows=1",
        ),
        ({"unit_rows": 2}, "relation=add_remove with unit_rows=2"),
        (
            {"loss": "cross_entropy", "clip": 1.0},
            "softmax",
        ),
        ({"classes": 3}, "one_vs_all"),
    ],
)
def test_what_no_proof_covers_is_refused(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(part)):
        judged_weights(head(**settings), ObjectivePerturbation(eps=2.0, delta=1e-5))


@pytest.mark.parametrize("weight_decay", [None, 0.002])
def test_a_budget_below_the_change_of_volume_is_refused_before_anything_is_drawn(
    weight_decay: float | None,
) -> None:
    model = head(weight_decay=0.002)
    mechanism = ObjectivePerturbation(eps=0.1, delta=1e-5, weight_decay=weight_decay)
    with pytest.raises(
        ConfigError, match=r"mechanism=objective_perturbation.*\b0\.1\b.*mechanism\.weight_decay="
    ):
        judged_weights(model, mechanism)
    queries = ball(5, 2, 1)[0]
    labels = np.zeros(5, dtype=int)
    option = weights_options(model, queries, labels)[mechanism.name]
    assert not planned_weights({mechanism.name: option}, [0.1], 1e-5)
    assert planned_weights({mechanism.name: option}, [3.0], 1e-5)


def test_a_model_that_was_read_back_has_no_records(tmp_path: Path) -> None:
    x, y = ball(60, 2)
    fitted = fit(
        x,
        y,
        declared=Declared(classes=(0, 1), size=60, features=True, settings=True),
        certificate="erm",
    )
    fitted.save(tmp_path / "model")
    with pytest.raises(ConfigError, match="mechanism=objective_perturbation"):
        judged_weights(load(tmp_path / "model").model, ObjectivePerturbation(eps=2.0, delta=1e-5))


def test_a_problem_of_another_shape_is_refused() -> None:
    x, y = ball(12, 2)
    erm = ErmWithLinearTerm.from_labels(x, y, 5.0, 1.0)
    shape = ProblemConstants(5.0, 1.0, 12, 2)
    for other in (
        replace(shape, strength=6.0),
        replace(shape, clamp=0.5),
        replace(shape, records=11),
    ):
        with pytest.raises(ConfigError, match="ProblemConstants"):
            release_objective(erm, other, ApproximateDP(1.0, 1e-5), SeededRandomness(0))
    assert release_objective(erm, shape, ApproximateDP(1.0, 1e-5), SeededRandomness(0)).simulated
