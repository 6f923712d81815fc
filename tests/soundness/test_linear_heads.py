"""Linear heads in closed form: nothing moves farther than rho, and distances are 1-Lipschitz, over thousands of edits."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from checks import moved_by
from synthetic import make_recipe, make_records

from agt.certificates.stability import ClosedForm, certify_linear
from agt.errors import ConfigError
from agt.models.features import FeatureMap
from agt.settings import BatchConfig, FeaturesConfig, TrainingConfig
from agt.training import linear
from agt.training.batches import Slices
from agt.training.erm import train_erm
from agt.training.linear import LinearLoss, LinearTrained, Schedule, train_linear

WIDTH = 3


@dataclass(frozen=True)
class Case:
    """One way to train; ``training``: what differs from the defaults; ``near``: the share of rho that some edit reaches."""

    name: str
    classes: int = 2
    relation: str = "add_remove"
    unit_rows: int = 1
    average: int = 1
    slices: int = 1
    erm: bool = False
    near: float = 0.5
    features: FeaturesConfig = field(default_factory=FeaturesConfig)
    training: dict = field(default_factory=dict)

    @property
    def config(self) -> TrainingConfig:
        batch = BatchConfig(**{"count": 1, "normalizer": 20.0, "n_max": 60, **self.training.get("batch", {})})
        settings = {"loss": "binary_cross_entropy", "epochs": 9, "lr": 2.0, "clip": 0.5, **self.training}
        return TrainingConfig(**{**settings, "batch": batch})  # type: ignore[arg-type]


CASES = (
    Case("binary", training={"lr": 2.6}),
    Case("clamped hard", training={"clip": 0.02, "epochs": 15}),
    Case("batches", training={"batch": {"count": 3, "normalizer": 7.0, "n_max": 40}, "epochs": 4, "lr": 1.3}),
    Case("decays", training={"weight_decay": 0.2, "decay": 0.3, "lr": 1.7, "lr_min": 0.2}),
    Case(
        "batches and decays",
        training={"batch": {"count": 2, "normalizer": 10.0, "n_max": 45}, "weight_decay": 0.4, "lr": 1},
    ),
    Case("float32 features", training={"dtype": "float32"}),
    Case("average", average=5),
    Case("replaced", relation="substitute", training={"batch": {"count": 2, "normalizer": 10.0, "n_max": 45}, "lr": 1.5}),
    Case("removed", relation="remove"),
    Case("units of two rows", unit_rows=2),
    Case("one against all", classes=4),
    Case(
        "slices", slices=3, average=2, near=0.4, training={"batch": {"count": 2, "normalizer": 10.0, "n_max": 45}, "lr": 1}
    ),
    Case("softmax", classes=3, training={"loss": "cross_entropy", "clip": 1.0, "lr": 1.3, "epochs": 3}),
    Case("two-class softmax", near=0.4, training={"loss": "cross_entropy", "clip": 1.0, "lr": 1.3, "epochs": 3}),
    Case("fourier", features=FeaturesConfig(map="fourier", count=8)),
    Case("landmarks", near=0.4, features=FeaturesConfig(map="landmarks", count=6, public="test", root=0.0, bandwidth=0.5)),
    Case("crosses", features=FeaturesConfig(map="crosses", count=8)),
    Case("relu, own lengths", features=FeaturesConfig(map="relu", count=6, radius=2.0)),
    Case("minimiser", erm=True, training={"weight_decay": 0.05}),
    Case(
        "softmax minimiser",
        erm=True,
        classes=3,
        training={"loss": "cross_entropy", "clip": 1.0, "lr": 0.1, "weight_decay": 2.0},
    ),
)


@dataclass(frozen=True)
class Data:
    """Rows, labels, and the unit of each row."""

    x: np.ndarray
    y: np.ndarray
    units: np.ndarray

    def without(self, units: np.ndarray) -> "Data":
        keep = ~np.isin(self.units, units)
        return Data(self.x[keep], self.y[keep], self.units[keep])

    def plus(self, other: "Data") -> "Data":
        return Data(*(np.concatenate([getattr(self, f), getattr(other, f)]) for f in ("x", "y", "units")))

    def shuffled(self, rng: np.random.Generator) -> "Data":
        order = rng.permutation(len(self.x))
        return Data(self.x[order], self.y[order], self.units[order])


def draw(rng: np.random.Generator, case: Case, units: int, prefix: str, against: np.ndarray | None = None) -> Data:
    """Random records of new units; with ``against``, all at one far point, whose label they contradict."""
    rows = rng.integers(1, case.unit_rows + 1, size=units)
    if against is not None:
        rows[:] = case.unit_rows
    n = int(rows.sum())
    x = rng.normal(size=(n, WIDTH)) * rng.choice([1e-3, 1.0, 50.0], size=(n, 1), p=[0.1, 0.7, 0.2])
    y = np.where(rng.random(n) < 0.8, np.abs(x[:, :1] * case.classes / 2).astype(int)[:, 0], rng.integers(0, 9, n))
    if against is not None:
        x, y = np.tile(against * 100, (n, 1)), np.full(n, rng.integers(0, case.classes))
    return Data(x, y % case.classes, np.repeat([f"{prefix}{u}" for u in range(units)], rows))


def features(case: Case) -> FeatureMap:
    """The case's feature map."""
    bare = FeatureMap(case.features, WIDTH)
    generator, size = np.random.default_rng(5), 2.0 ** (21 if case.features.map == "landmarks" else 24)
    return bare.with_matrices(
        {n: torch.from_numpy(np.rint(generator.normal(size=shape) * size)) for n, shape in bare.shapes.items()}
    )


def fit(case: Case, data: Data) -> LinearTrained:
    """Train on ``data``."""
    features_map = features(case)
    records = make_records(features_map(data.x, case.config.dtype), data.y, data.units.tolist())
    recipe = make_recipe(case.config, case.relation, classes=case.classes, unit_rows=case.unit_rows)
    recipe = replace(recipe, slices=Slices(case.slices))
    if case.erm:
        return train_erm(recipe, records, features_map.slack, 1e-7)
    return train_linear(recipe, records, features_map.slack, case.average)


def neighbour(rng: np.random.Generator, case: Case, data: Data, k: int, prefix: str) -> Data:
    """k units away: taken, brought or both, as the relation allows, at random or all pulling one way; rows reordered."""
    gone = {"substitute": k, "remove": k, "add_remove": int(rng.integers(0, k + 1))}[case.relation]
    come = {"substitute": k, "remove": 0, "add_remove": k - gone}[case.relation]
    far = rng.normal(size=WIDTH)
    names = np.unique(data.units)
    pull = {u: float((data.x[data.units == u] @ far).mean()) for u in names}
    leaving = sorted(names, key=pull.__getitem__) if rng.random() < 0.5 else rng.permutation(names)
    fresh = draw(rng, case, come, prefix, far / np.linalg.norm(far) if rng.random() < 0.7 else None)
    return data.without(np.array(leaving[:gone])).plus(fresh).shuffled(rng)


def certify(case: Case, trained: LinearTrained, queries: np.ndarray) -> ClosedForm:
    """Stable distances of raw queries."""
    phi = features(case)(queries, case.config.dtype)
    ks = tuple(range(5))
    return certify_linear(trained, phi, case.relation, ks)  # type: ignore[arg-type]


@dataclass
class Seen:
    """What a check saw: the farthest move in units of its bound, certificates looked at, and labels that flipped."""

    farthest: float = 0.0
    certified: int = 0
    flipped: int = 0


def edits(case: Case, count: int, seed: int = 0) -> Seen:
    """Train, then train again on ``count`` datasets 1 to 4 units away."""
    rng = np.random.default_rng(seed)
    data = draw(rng, case, 24, "r")
    queries = rng.normal(size=(40, WIDTH))
    base = fit(case, data)
    known = certify(case, base, queries)
    seen = Seen()
    for edit in range(count):
        k = 1 + edit % 4
        other = fit(case, neighbour(rng, case, data, k, f"n{edit}-"))
        assert other.sensitivity == base.sensitivity, "public constants alone"
        seen.farthest = max(seen.farthest, moved_by(base, other) / (k * base.sensitivity.per_k))
        held = known.certified[k]
        seen.certified += int(held.sum())
        seen.flipped += int((certify(case, other, queries).prediction != known.prediction)[held].sum())
    return seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_edit_moves_farther_than_rho_and_some_come_near(case: Case) -> None:
    seen = edits(case, 30 if case.erm else 90)
    assert case.near < seen.farthest <= 1
    assert seen.flipped == 0
    assert seen.certified > 30


def test_rho_is_attained_to_the_last_digits_by_a_record_that_saturates() -> None:
    case = replace(CASES[0], training={"clip": 0.01, "weight_decay": 0.1, "lr": 2.0})
    data = Data(np.zeros((0, WIDTH)), np.zeros(0, dtype=int), np.zeros(0, dtype=str))
    one = Data(np.ones((1, WIDTH)), np.ones(1, dtype=int), np.array(["z"]))
    empty, single = fit(case, data), fit(case, one)
    moved = moved_by(empty, single)
    assert moved <= single.sensitivity.rho_fp
    assert moved == pytest.approx(single.sensitivity.rho, rel=1e-9)


# -- 1-Lipschitz ---------------------------------------------------------------------------------------------------------


def boundary_queries(rng: np.random.Generator, case: Case, trained: LinearTrained, count: int) -> np.ndarray:
    """Pairs of queries a few rounding errors apart whose stable distances (or labels) differ: found by bisection."""
    ends = rng.normal(size=(count, 2, WIDTH))
    low, high = ends[:, 0], ends[:, 1]

    def look(x: np.ndarray) -> np.ndarray:
        known = certify(case, trained, x)
        return known.stable_distance * 100 + known.prediction

    start = look(low)
    for _ in range(60):
        middle = (low + high) / 2
        same = look(middle) == start
        low, high = np.where(same[:, None], middle, low), np.where(same[:, None], high, middle)
    return np.concatenate([low, high])


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name in ("binary", "batches", "one against all", "softmax", "minimiser")]
)
def test_distances_are_1_lipschitz_between_neighbours(case: Case) -> None:
    rng = np.random.default_rng(1)
    data = draw(rng, case, 24, "r")
    here, differ, changed = fit(case, data), 0, 0
    for pair in range(14):
        data = neighbour(rng, case, data, 1, f"n{pair}-")
        if not 15 < len(data.x) < 40:
            data = draw(rng, case, 24, f"s{pair}-")
            here = fit(case, data)
            continue
        there = fit(case, data)
        queries = np.concatenate([boundary_queries(rng, case, here, 10), rng.normal(size=(10, WIDTH))])
        one, two = certify(case, here, queries), certify(case, there, queries)
        assert np.abs(one.stable_distance - two.stable_distance).max() <= 1
        flips = one.prediction != two.prediction
        assert (one.stable_distance[flips] == 0).all()
        assert (two.stable_distance[flips] == 0).all()
        differ += int((one.stable_distance != two.stable_distance).sum())
        changed += int(flips.sum())
        here = there
    assert differ > 10
    assert changed > 0


# -- rules broken on purpose ---------------------------------------------------------------------------------------------


def test_a_rho_that_takes_the_last_rate_for_all_steps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(c for c in CASES if c.name == "decays")
    assert edits(case, 60).farthest <= 1
    right, proved = Schedule.at.__func__, linear.sgd_sensitivity  # type: ignore[attr-defined]
    last_rate = type("Broken", (), {"at": staticmethod(lambda t, p, s: right(Schedule, t, p, 8))})

    def broken(setting: linear.LinearSetting, average: int = 1) -> linear.Sensitivity:
        with pytest.MonkeyPatch.context() as patch:  # training itself keeps its rates
            patch.setattr(linear, "Schedule", last_rate)
            return proved(setting, average)

    monkeypatch.setattr(linear, "sgd_sensitivity", broken)
    assert edits(case, 60).farthest > 1


def test_a_rho_for_a_batch_that_never_changes_is_caught() -> None:
    """Batches are drawn anew in each epoch: what a record in the same batch throughout adds up to is too little for some.

    Rates fall at first, so that the first batch is worst; then they stay, and decay makes the last one worst.
    """
    training = {"batch": {"count": 2, "normalizer": 10.0, "n_max": 60}, "epochs": 4, "decay": 2.0, "lr_min": 0.3}
    case = Case("x", training={**training, "clip": 0.01, "lr": 0.9, "weight_decay": 0.35})
    empty = fit(case, Data(np.zeros((0, WIDTH)), np.zeros(0, dtype=int), np.zeros(0, dtype=str)))
    at = [Schedule.at(case.config, empty.plan, t) for t in range(8)]
    parts = [at[t].step * 0.01 * float(np.prod([later.keep for later in at[t + 1 :]])) for t in range(8)]
    moved = []
    for name in range(64):
        one = Data(np.ones((1, WIDTH)), np.ones(1, dtype=int), np.array([f"z{name}"]))
        moved.append(moved_by(empty, fit(case, one)))
    assert max(moved) <= empty.sensitivity.rho_fp
    assert max(moved) == pytest.approx(empty.sensitivity.rho, rel=1e-6)
    assert max(moved) > max(sum(parts[0::2]), sum(parts[1::2])) * 1.01


def expansion(derivative: object, loss: LinearLoss, rate: float, pairs: int = 1200) -> float:
    """The most that one step on one batch, taken from two points, drives them apart, relative to where they were."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(pairs // 40):
        phi = rng.normal(size=(6, WIDTH))
        phi /= np.linalg.norm(phi, axis=1, keepdims=True)
        if rng.random() < 0.5:
            phi[:] = phi[0]
        x, y = torch.from_numpy(phi), torch.from_numpy(rng.integers(0, max(2, loss.outputs), 6))
        for _ in range(40):
            a = torch.from_numpy(rng.normal(size=(loss.outputs, WIDTH)) * rng.choice([0.3, 3.0]))
            b = a + torch.from_numpy(rng.normal(size=a.shape)) * float(rng.choice([1e-4, 0.1, 1.0]))
            steps = [t - rate / 6 * derivative(loss, x @ t.T, y).T @ x for t in (a, b)]  # type: ignore[operator]
            worst = max(worst, float(torch.linalg.vector_norm(steps[0] - steps[1]) / torch.linalg.vector_norm(a - b)))
    return worst


@pytest.mark.parametrize(
    ("loss", "classes", "clip", "rate"),
    [("binary_cross_entropy", 2, 0.3, 8.0), ("binary_cross_entropy", 3, 0.3, 8.0), ("cross_entropy", 3, 1.0, 4.0)],
)
def test_steps_at_the_limit_do_not_expand_and_beyond_it_do(loss: str, classes: int, clip: float, rate: float) -> None:
    kind = LinearLoss.of(TrainingConfig(loss=loss, epochs=1, lr=1.0, clip=clip), classes)  # type: ignore[arg-type]
    assert kind.smoothness * rate == 2, "the limit for a full batch of B records"
    assert expansion(linear.derivative, kind, rate) <= 1 + 1e-10
    assert expansion(linear.derivative, kind, 1.5 * rate) > 1.01


def test_a_clamped_softmax_expands_and_is_refused() -> None:
    free = LinearLoss.of(TrainingConfig(loss="cross_entropy", epochs=1, lr=1.0, clip=1.0), 3)

    def clamped(loss: LinearLoss, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return linear.derivative(loss, logits, labels).clamp(-0.3, 0.3)

    assert expansion(clamped, free, 4.0) > 1.001
    with pytest.raises(ConfigError, match=r"training\.clip=0\.3.*use training\.clip=1"):
        LinearLoss.of(TrainingConfig(loss="cross_entropy", epochs=1, lr=1.0, clip=0.3), 3)


def test_a_step_beyond_the_limit_breaks_rho_if_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred equal records with balanced labels: their common minimum repels where the step is too large."""
    case = Case("x", training={"lr": 60.0, "clip": 1.0, "epochs": 6, "batch": {"normalizer": 200.0, "n_max": 250}})
    data = Data(np.ones((200, WIDTH)), np.arange(200) % 2, np.array([f"r{i}" for i in range(200)]))
    one = Data(np.ones((1, WIDTH)), np.ones(1, dtype=int), np.array(["z"]))
    with pytest.raises(ConfigError, match=r"training\.lr: .*use 6\.4 at most"):
        fit(case, data)
    monkeypatch.setattr(Schedule, "expands", lambda self, loss, n_max: False)
    here, there = fit(case, data), fit(case, data.plus(one))
    assert moved_by(here, there) > 4 * here.sensitivity.rho_fp
