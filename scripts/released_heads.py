"""Ways to private weights of a linear head, vectorised over settings and draws, for scripts/compare_released.py.

Plain NumPy in single precision, from seeds: simulations. What one record moves, and how much noise a budget asks for, come
from the product: ``sgd_sensitivity``, ``erm_sensitivity``, ``Noises``; from Opacus' accountant for Poisson batches.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from agt.errors import ConfigError
from agt.mechanisms.objective import Noises, Shape
from agt.mechanisms.shrinkage import PrincipalAxes
from agt.mechanisms.weights import noise_scale, weights_budget
from agt.numeric import gaussian_mu
from agt.settings import KGridConfig, RelationConfig, TrainingConfig, default_n_max
from agt.training.erm import erm_sensitivity
from agt.training.recipe import Recipe
from agt.training.sensitivity import LinearSetting, sgd_sensitivity
from agt_cli.papers.baselines.dpsgd import DpSgd

SIZE, DELTA = 45_000, 1e-5
CLIPS = (0.25, 0.5, 0.75, 1.0)
TOLERANCE = 1e-8
RATE = 7.0  # of every step that is proved not to expand
STEPS = (5, 10, 20, 40, 80, 160, 320)
CHOOSING, REPORTING, SHRINKING = 2, 16, 200  # draws: to choose, to report, to report what is cheap


Setting = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled features [n, d], float32, each of norm 1, and what is public of them.

    Attributes:
        axes: of the public rows that whitened them; None: nothing did.
        crowd: float32 features of the public rows, unlabelled.
        kept: what was computed from these rows already.
    """

    x: np.ndarray
    y: np.ndarray
    axes: PrincipalAxes | None
    crowd: np.ndarray
    kept: dict[object, Any] = field(default_factory=dict)

    def take(self, rows: np.ndarray) -> "Rows":
        """Some of the rows."""
        return replace(self, x=np.ascontiguousarray(self.x[rows]), y=self.y[rows], kept={})

    def residual(self, theta: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """[n, m] derivatives of the loss, clamped: as |x| = 1, each record's gradient clipped to this l2 norm."""
        return np.clip(expit(self.x @ theta) - self.y[:, None], -clip, clip)

    def gradient(self, theta: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """[d, m] mean gradients."""
        return self.x.T @ self.residual(theta, clip) / np.float32(len(self.x))

    def sampled(self, theta: np.ndarray, clip: np.ndarray, share: float, source: np.random.Generator) -> np.ndarray:
        """The same over batches that each of the real run's records enters with probability ``share``; these rows stand for
        them, each for as many, where they are fewer."""
        shape, rest = (len(self.x), theta.shape[1]), SIZE / len(self.x)
        often = source.random(shape, dtype=np.float32) < share if rest == 1 else source.poisson(share * rest, shape)
        return self.x.T @ (self.residual(theta, clip) * often.astype(np.float32)) / np.float32(share * SIZE)

    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and vectors of the greatest mean Hessian that there can be."""
        if "spectrum" not in self.kept:
            self.kept["spectrum"] = np.linalg.eigh(self.x.T @ self.x / np.float32(4 * len(self.x)))
        return self.kept["spectrum"]


@dataclass(frozen=True, eq=False)
class Heads:
    """Heads of one setting, a column for each draw, before noise N(0, sigma^2 I) whose effect is taken exactly."""

    theta: np.ndarray
    sigma: float = 0.0

    def right(self, rows: Rows) -> np.ndarray:
        """[n, draws] the probability that the label is right."""
        signed = (rows.x @ self.theta) * (2 * rows.y - 1)[:, None]
        return ndtr(signed / np.float32(self.sigma)) if self.sigma else (signed > 0).astype(np.float32)

    def shrunk(
        self, axes: PrincipalAxes, variances: np.ndarray | float, draws: int, source: np.random.Generator
    ) -> "Heads":
        """Drawn, and shrunk."""
        noise = source.standard_normal((self.theta.shape[0], draws)) * self.sigma
        return Heads(axes.shrunk((self.theta + noise).T, variances).T.astype(np.float32))


Made = Iterator[Heads | None]


@dataclass(frozen=True, eq=False)
class Method:
    """A way to private weights.

    Attributes:
        side: "DP-SGD" or "released": who is compared with whom.
        settings: those that are compared.
        make: (rows, settings, eps, draws, source) -> the heads of each setting; None where the budget cannot be met.
        whitened: whether it takes whitened features alone.
    """

    name: str
    side: str
    settings: Sequence[Setting]
    make: Callable[[Rows, Sequence[Setting], float, int, np.random.Generator], Made]
    whitened: bool = False


# --- noise-free heads, and output perturbation


def descent(rows: Rows, clips: tuple[float, ...], steps: int) -> np.ndarray:
    """[steps + 1, d, clips] plain gradient descent at ``RATE``."""
    key = ("descent", clips)
    if key not in rows.kept or len(rows.kept[key]) <= steps:
        theta = np.zeros((steps + 1, rows.x.shape[1], len(clips)), dtype=np.float32)
        clip = np.array(clips, dtype=np.float32)
        for t in range(steps):
            theta[t + 1] = theta[t] - np.float32(RATE) * rows.gradient(theta[t], clip)
        rows.kept[key] = theta
    return rows.kept[key]


def minimisers(rows: Rows, settings: Sequence[Setting], tilts: np.ndarray) -> np.ndarray:
    """[d, m] of mean loss + (Lambda / SIZE) |theta|^2 / 2 + tilt.theta: accelerated steps, preconditioned and restarted.

    Args:
        settings: m of (clip, Lambda).
        tilts: [d, m].
    """
    clip, strength = (np.array(values, dtype=np.float32) for values in zip(*settings, strict=True))
    values, axes = rows.spectrum()
    damping, ridge = 1 / (values[:, None] + strength / SIZE), strength / SIZE
    theta = ahead = np.zeros_like(tilts)
    pace = np.ones(len(clip), dtype=np.float32)
    for _ in range(300):
        push = axes @ (damping * (axes.T @ (rows.gradient(ahead, clip) + ridge * ahead + tilts)))
        moved = ahead - push
        pace = np.where((push * (moved - theta)).sum(axis=0) > 0, 1, pace)  # it has overshot: start again from here
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead, theta, pace = moved + (pace - 1) / faster * (moved - theta), moved, faster
        if float(np.abs(push).max()) < 1e-5:
            break
    return theta


def training(clip: float, **more: Any) -> LinearSetting:
    """The real run's, without its width (385 for all)."""
    config = TrainingConfig(loss="binary_cross_entropy", lr=RATE, clip=clip, **more)
    recipe = Recipe(2, config, RelationConfig(name="add_remove"), KGridConfig(max=0), declared_size=SIZE)
    return LinearSetting.of(recipe, SIZE, 385)


@cache
def moves(kind: str, clip: float, amount: float) -> float:
    """What one record moves the real run's weights by."""
    if kind == "erm":
        return erm_sensitivity(training(clip, epochs=1, weight_decay=amount / SIZE), TOLERANCE).per_k
    steps = int(amount)
    return sgd_sensitivity(training(clip, epochs=steps), steps // 2 if kind == "averaged" else 1).per_k


def noise_free(kind: str, rows: Rows, settings: Sequence[Setting]) -> list[np.ndarray]:
    """[d] of each setting."""
    if kind == "erm":
        key = ("erm", tuple(settings))
        if key not in rows.kept:
            rows.kept[key] = minimisers(rows, settings, np.zeros((rows.x.shape[1], len(settings)), dtype=np.float32))
        return list(rows.kept[key].T)
    clips = tuple(sorted({clip for clip, _ in settings}))
    path = descent(rows, clips, int(max(steps for _, steps in settings)))
    made = []
    for clip, amount in settings:
        last = int(amount)
        first = last + 1 - (last // 2 if kind == "averaged" else 1)
        made.append(path[first : last + 1, :, clips.index(clip)].mean(axis=0))
    return made


def output(kind: str, shrink: bool) -> Callable[..., Made]:
    """Output perturbation of heads of this kind."""

    def make(rows: Rows, settings: Sequence[Setting], eps: float, draws: int, source: np.random.Generator) -> Made:
        budget = weights_budget(eps, DELTA)
        many = draws if draws == CHOOSING else SHRINKING
        for (clip, amount), theta in zip(settings, noise_free(kind, rows, settings), strict=True):
            heads = Heads(theta[:, None], noise_scale(moves(kind, clip, amount), budget))
            yield heads.shrunk(rows.axes, heads.sigma**2, many, source) if shrink else heads

    return make


# --- objective perturbation


def objective(shrink: bool) -> Callable[..., Made]:
    """Objective perturbation."""

    def make(rows: Rows, settings: Sequence[Setting], eps: float, draws: int, source: np.random.Generator) -> Made:
        scales = [tilt_scale(clip, strength, eps) for clip, strength in settings]
        able = [setting for setting, scale in zip(settings, scales, strict=True) if scale]
        key = ("objective", tuple(able), eps, draws)
        if key not in rows.kept:
            normal = source.standard_normal((rows.x.shape[1], draws)).astype(np.float32)
            tilts = np.concatenate([normal * np.float32(scale[0] / SIZE) for scale in scales if scale], axis=1)
            each = [setting for setting in able for _ in range(draws)]
            rows.kept[key] = minimisers(rows, each, tilts).reshape(-1, len(able), draws) if able else None
        for (clip, strength), scale in zip(settings, scales, strict=True):
            if scale is None:
                yield None
                continue
            heads = Heads(rows.kept[key][:, able.index((clip, strength))], scale[1])
            if shrink:
                variances = (scale[0] / SIZE / (curvatures(rows, heads.theta, clip) + strength / SIZE)) ** 2
                heads = heads.shrunk(rows.axes, variances, draws, source)
            yield heads

    return make


@cache
def tilt_scale(clip: float, strength: float, eps: float) -> tuple[float, float] | None:
    """Standard deviations of the tilt, and of the small noise at the end; None: the budget is too small."""
    try:
        noises = Noises.of(Shape(strength, clip, default_n_max(SIZE), 385), eps, DELTA)
    except ConfigError:
        return None
    return noises.tilt, noises.scale


def curvatures(rows: Rows, theta: np.ndarray, clip: float) -> np.ndarray:
    """[m, axes] the mean Hessian along each axis, by public rows, labels as the heads have them."""
    if "squares" not in rows.kept:
        rows.kept["squares"] = (rows.crowd[:, :-1] @ rows.axes.vectors.astype(np.float32)) ** 2
    p = expit(rows.crowd @ theta)
    curved = p * (1 - p) * (p * (1 - p < clip) + (1 - p) * (p < clip))
    return curved.T @ rows.kept["squares"] / np.float32(len(p))


# --- noisy gradient descent


@dataclass(frozen=True)
class Walk:
    """Noisy gradient descent with one setting.

    Attributes:
        clip, rate, steps, momentum: as DP-SGD has them.
        noise: standard deviation on each coordinate of a step's mean gradient.
        keep: factor of the weights at each step.
        share: with which each record enters a batch.
    """

    clip: float
    rate: float
    steps: int
    noise: float
    momentum: float = 0.0
    keep: float = 1.0
    share: float = 1.0


def walked(rows: Rows, walks: Sequence[Walk], draws: int, source: np.random.Generator) -> list[tuple[Heads, Heads]]:
    """(the last iterate, the mean of the last half) of each; the last step's noise is left to ``Heads``."""
    key = (tuple(walks), draws)
    if key not in rows.kept:
        made: dict[Walk, tuple[Heads, Heads]] = {}
        for steps in sorted({walk.steps for walk in walks}):
            alike = [walk for walk in walks if walk.steps == steps]
            made |= dict(zip(alike, _walked(rows, alike, draws, source), strict=True))
        rows.kept[key] = [made[walk] for walk in walks]
    return rows.kept[key]


def _walked(rows: Rows, walks: list[Walk], draws: int, source: np.random.Generator) -> Iterator[tuple[Heads, Heads]]:
    clip, rate, noise, momentum, keep = (
        np.repeat(np.array([getattr(walk, name) for walk in walks], dtype=np.float32), draws)
        for name in ("clip", "rate", "noise", "momentum", "keep")
    )
    steps, share, half = walks[0].steps, walks[0].share, walks[0].steps // 2
    theta = speed = total = np.zeros((rows.x.shape[1], len(clip)), dtype=np.float32)
    for t in range(steps):
        gradient = rows.gradient(theta, clip) if share == 1 else rows.sampled(theta, clip, share, source)
        if t < steps - 1:
            normal = source.standard_normal((len(theta), 1, draws), dtype=np.float32)  # the same for all settings
            gradient += np.broadcast_to(normal, (len(theta), len(walks), draws)).reshape(theta.shape) * noise
        speed = momentum * speed + gradient
        theta = keep * theta - rate * speed
        total = total + theta if t >= steps - half else total
    for at, walk in enumerate(walks):
        columns, left = slice(at * draws, (at + 1) * draws), walk.rate * walk.noise
        yield Heads(theta[:, columns], left), Heads(total[:, columns] / half, left / half)


def full_batch(clip: float, path: float, steps: float, momentum: float, eps: float) -> Walk:
    """DP-SGD without sampling: rates, momentum counted, that add up to ``path``."""
    noise = math.sqrt(steps) / gaussian_mu(eps, DELTA) * clip / SIZE
    return Walk(clip, path / steps * (1 - momentum), int(steps), noise, momentum)


def sampled(clip: float, path: float, steps: float, batch: float, eps: float) -> Walk:
    """DP-SGD with Poisson batches."""
    return Walk(clip, path / steps, int(steps), multiplier(batch, int(steps), eps) * clip / batch, share=batch / SIZE)


@cache
def multiplier(batch: float, steps: int, eps: float) -> float:
    """Noise over clip, by the PRV accountant."""
    return DpSgd(batch=batch, lr=1.0, clip=1.0, epochs=batch / SIZE * (steps - 0.5)).plan(SIZE, eps, DELTA).noise


def last_iterate(clip: float, path: float, steps: float, eps: float) -> Walk:
    """Noisy gradient descent on the regularised loss (lambda = 1 / path), of which the last iterate alone is released.

    Formal guarantees (after Bok, Su and Altschuler 2024; this proof is complete)
        X_k+1 = f(X_k) + Z, on neighbouring data X'_k+1 = f'(X'_k) + Z', Z, Z' ~ N(0, v^2 I), X_0 = X'_0. Let f and f' be
        c-Lipschitz, c < 1, and |f - f'| <= s everywhere. Then X_t against X'_t is mu-GDP, both ways, with
            mu = (s / v) sqrt((1 - c^t) / (1 + c^t) (1 + c) / (1 - c))          (c -> 1: sqrt(t) s / v, composition).
        Proof. Let Y_0 = X_0 and Y_k+1 = f'(Y_k) + l_k (f(X_k) - f'(Y_k)) + Z, with the very Z of X_k+1; l_k in [0, 1],
        l_t-1 = 1, so Y_t = X_t. Let z_0 = 0, a_k = l_k (c z_k + s), z_k+1 = (1 - l_k)(c z_k + s). As |f(X_k) - f'(Y_k)| <=
        c |X_k - Y_k| + s, by induction |X_k - Y_k| <= z_k, and Y_k+1 is f'(Y_k) + Z moved by at most a_k.
        T(Y_k+1, X'_k+1) >= T(Y_k, X'_k) (x) G(a_k / v), T the trade-off function: join X_k to Y_k, and to X'_k a draw from
        the law of X_k given Y_k = X'_k: the same kernel on both sides, so T stays. Given both, the next state is
        N(f' + a shift of length at most a_k, v^2 I) against N(f', v^2 I), at least G(a_k / v): adaptive composition;
        leaving the joined draw out again is post-processing. Hence mu^2 = sum a_k^2 / v^2, for any l. From z_t = 0:
        sum_k c^(t-1-k) a_k = s sum_k c^(t-1-k), under which sum a_k^2 is least for a_k proportional to c^(t-1-k),
            a_k = s c^(t-1-k) (1 - c^t)(1 + c) / ((1 - c)(1 + c^t)),        sum a_k^2 / v^2 = the square above.
        These increase in k, so s - a_k changes its sign once, from plus to minus, and z_k = sum_i<k c^(k-1-i) (s - a_i) is
        at least 0 for every k, as it is 0 at k = t: l_k in [0, 1], as was to be shown. Exchange
        the data for the other direction.
        Here f(x) = x - rate (mean gradient + lambda x), s = rate C / B, v = rate sigma; the mean gradient is monotone and
        n_max / (4 B)-Lipschitz, so c = 1 - rate lambda for rate <= 2 / (2 lambda + n_max / (4 B)).
    """
    rate = 2 / (2 / path + 0.25 * default_n_max(SIZE) / SIZE)
    c = 1 - rate / path
    gain = (1 - c**steps) / (1 + c**steps) * (1 + c) / (1 - c)
    return Walk(clip, rate, int(steps), math.sqrt(gain) / gaussian_mu(eps, DELTA) * clip / SIZE, keep=c)


def noisy(walk: Callable[..., Walk], averaged: bool = False) -> Callable[..., Made]:
    """Heads of noisy gradient descent."""

    def make(rows: Rows, settings: Sequence[Setting], eps: float, draws: int, source: np.random.Generator) -> Made:
        walks = walked(rows, [walk(*setting, eps) for setting in settings], draws, source)
        yield from (both[averaged] for both in walks)

    return make


PATHS = tuple(70.0 * 2.0**i for i in range(9))  # learning rates, added up; 1 / lambda
SGD = tuple(product(CLIPS, STEPS))
ERM = tuple((clip, SIZE / path) for clip, path in product(CLIPS, PATHS))
FULL = tuple((*of, *how) for of, how in product(product(CLIPS[1:3], PATHS), ((12.0, 0.0), (48.0, 0.0), (48.0, 0.9))))
POISSON = tuple(product(CLIPS[1:2], PATHS[1:7], (48.0,), (9000.0,)))
LAST = tuple(product(CLIPS[1:2], PATHS[1:6], (200.0,)))
METHODS = (
    Method("DP-SGD, full batch", "DP-SGD", FULL, noisy(full_batch)),
    Method("DP-SGD, full batch, last half averaged", "DP-SGD", FULL, noisy(full_batch, averaged=True)),
    Method("DP-SGD, Poisson batches", "DP-SGD", POISSON, noisy(sampled)),
    Method("output perturbation, SGD", "released", SGD, output("sgd", False)),
    Method("output perturbation, SGD, last half averaged", "released", SGD, output("averaged", False)),
    Method("output perturbation, SGD, James-Stein", "released", SGD, output("sgd", True), whitened=True),
    Method("output perturbation, erm", "released", ERM, output("erm", False)),
    Method("output perturbation, erm, James-Stein", "released", ERM, output("erm", True), whitened=True),
    Method("objective perturbation", "released", ERM, objective(False)),
    Method("objective perturbation, James-Stein", "released", ERM, objective(True), whitened=True),
    Method("noisy GD, exact last iterate", "other", LAST, noisy(last_iterate)),
)
BY_NAME = {method.name: method for method in METHODS}
