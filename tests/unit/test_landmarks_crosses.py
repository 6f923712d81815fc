"""Landmarks and crosses: the values they say they are, to the last bit a record's own, from public rows in any order."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from synthetic import make_records

import agt
from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Standing, grounds, proved
from agt.models import features as features_module
from agt.models.features import FeatureMap, choose, falling, kernel, shifts_of, sketches, whole
from agt.numeric import UNIT
from agt.settings import USUAL_COUNTS, FeaturesConfig, certificate_config
from agt_cli import usage
from agt_cli.choices import hashes
from agt_cli.commands.tune import TuningData, choices, neighbours
from agt_cli.configuration import composed
from agt_cli.report.console import Console

HELD = grounds(proved("for a test"))
LANDMARKS = FeaturesConfig(map="landmarks", count=12, public="test", bandwidth=0.8)
CROSSES = FeaturesConfig(map="crosses", count=16)


def dataset(width: int = 5, n: int = 40, public: tuple[int, ...] = (), shape: tuple[int, ...] = ()) -> Dataset:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2 * n, *(shape or (width,)))), np.arange(2 * n) % 2
    flags = [i in public for i in range(n)]
    train, test = make_records(x[:n], y[:n], public=flags), make_records(x[n:], y[n:], prefix="t")
    return Dataset("made up (synthetic)", ("a", "b"), train, test, n, {}, HELD, HELD)


def with_test(data: Dataset, rows: np.ndarray) -> Dataset:
    return replace(data, test=make_records(rows, np.arange(len(rows)) % 2, prefix="t"))


# -- exponentials --------------------------------------------------------------------------------------------------------


def test_exponentials_are_close_and_the_same_bits_wherever_they_stand() -> None:
    at = np.concatenate([np.random.default_rng(0).uniform(0, 60, 5000), np.linspace(0, 699.9, 999), [0.0, 1e-300, 700.0]])
    values = falling(at[None])[0]
    exact = np.array([math.exp(-float(t)) for t in at])
    assert np.abs(values / exact - 1).max() <= 4 * UNIT
    assert falling(at.reshape(-1, 1)).ravel().tobytes() == values.tobytes()
    assert falling(at[2:].copy().reshape(1, -1))[0].tobytes() == values[2:].tobytes()
    assert falling(np.array([[700.5, np.inf, 1e308]])).tolist() == [[0.0, 0.0, 0.0]]
    assert np.isnan(falling(np.array([[np.nan]]))).all()


def scalar(t: np.ndarray) -> np.ndarray:
    """Another implementation, that of the C library."""
    return np.vectorize(math.exp)(-t)


def uneven(t: np.ndarray) -> np.ndarray:
    """A vector unit's: full lanes of eight records are computed otherwise than the rest."""
    lanes = np.arange(len(t)) < len(t) // 8 * 8
    values: np.ndarray = np.where(lanes[:, None], falling(t), np.nextafter(falling(t), 2))
    return values


def one_bit_of_its_own(exponential: Callable[[np.ndarray], np.ndarray], patch: pytest.MonkeyPatch) -> bool:
    """Whether each record has the same features alone as among others."""
    patch.setattr(features_module, "falling", exponential)
    data = dataset()
    made = FeatureMap.of(replace(LANDMARKS, root=0.0), data)
    everyone = made(data.train.features[:27])
    return all(made(data.train.features[i : i + 1]).tobytes() == everyone[i : i + 1].tobytes() for i in range(27))


def test_a_vector_unit_s_own_last_digits_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FeatureMap.of(LANDMARKS, dataset()).slack == 0
    assert one_bit_of_its_own(falling, monkeypatch)
    assert not one_bit_of_its_own(uneven, monkeypatch)


def test_features_hardly_depend_on_how_exponentials_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    data, config = dataset(), replace(LANDMARKS, root=0.0)
    ours = FeatureMap.of(config, data)(data.train.features)
    monkeypatch.setattr(features_module, "falling", scalar)
    theirs = FeatureMap.of(config, data)(data.train.features)
    assert ours.tobytes() != theirs.tobytes()
    assert np.linalg.norm(ours - theirs, axis=1).max() < 64 * UNIT


# -- landmarks -----------------------------------------------------------------------------------------------------------


def distances_are_exact(rounded: Callable[[np.ndarray], np.ndarray]) -> bool:
    data = dataset(width=33)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (data.train.features, data.test.features)]
    rows, marks = (rounded(unit) for unit in units)
    seen: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features_module, "falling", lambda t: seen.append(t) or t)
        kernel(rows, marks[:8].T.copy(), 1.0)
    exact = [[sum((int(a) - int(b)) ** 2 for a, b in zip(row, mark, strict=True)) for mark in marks[:8]] for row in rows]
    return (np.ldexp(seen[0] * 2, 44) == np.array(exact, dtype=np.float64)).all()


def test_distances_are_exact_integers_and_would_not_be_without_rounding_the_records() -> None:
    assert distances_are_exact(whole)
    assert not distances_are_exact(lambda unit: np.ldexp(unit, 22))


@pytest.mark.parametrize("config", [LANDMARKS, replace(LANDMARKS, root=0.0), replace(LANDMARKS, whiten=0.5)])
def test_the_order_of_public_rows_their_copies_and_their_precision_do_not_matter(config: FeaturesConfig) -> None:
    data = dataset()
    rows = data.test.features.astype(np.float32).astype(np.float64)
    made = FeatureMap.of(config, with_test(data, rows))
    turned = [rows[::-1], rows[np.random.default_rng(1).permutation(len(rows))], rows.astype(np.float32)]
    for other in [*turned, *([] if config.whiten else [np.repeat(rows, 3, axis=0)])]:
        again = FeatureMap.of(config, with_test(data, other))
        assert made.matrices.keys() == again.matrices.keys()
        for name, matrix in made.matrices.items():
            assert matrix.numpy().tobytes() == again.matrices[name].numpy().tobytes(), name
    seeded = FeatureMap.of(replace(config, seed=1), with_test(data, rows))
    assert seeded.matrices["projection"].numpy().tobytes() != made.matrices["projection"].numpy().tobytes()


def test_landmarks_read_public_rows_alone_and_never_a_label() -> None:
    public = tuple(range(0, 40, 2))
    one, other = dataset(public=public), dataset(public=public)
    other.train.features[~other.train.public] += 5
    other.train.labels[:] = 1 - other.train.labels
    config = replace(LANDMARKS, public="train")
    a, b = (FeatureMap.of(config, data).matrices for data in (one, other))
    assert all(a[name].equal(b[name]) for name in a)
    chosen = a["projection"].numpy().T
    unit = one.train.features / np.linalg.norm(one.train.features, axis=1, keepdims=True)
    near = np.abs(np.ldexp(chosen, -22)[:, None] - unit[None, list(public)]).max(axis=2).min(axis=1)
    assert near.max() < 2**-22


def test_nystroem_s_map_has_the_kernel_for_its_products_at_landmarks() -> None:
    data = dataset(width=3)
    config = replace(LANDMARKS, count=40, ridge=1e-9, bias=0.0, bandwidth=0.7)
    phi = FeatureMap.of(config, data)(data.test.features)
    unit = data.test.features / np.linalg.norm(data.test.features, axis=1, keepdims=True)
    apart = np.linalg.norm(unit[:, None] - unit[None], axis=2)
    assert phi @ phi.T == pytest.approx(np.exp(-(apart**2) / (2 * 0.7**2)), abs=2e-2)


def test_landmarks_that_cannot_be_had_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"count=41: landmarks are public rows, and there are 40 different ones"):
        FeatureMap.of(replace(LANDMARKS, count=41), dataset())
    with pytest.raises(ConfigError, match=r"public=train: landmarks needs rows, and there are 0 such"):
        FeatureMap.of(replace(LANDMARKS, public="train"), dataset())
    twins = np.repeat(dataset().test.features[:12], 2, axis=0) * (1 + 1e-6 * (np.arange(24) % 2))[:, None]
    twins[1::2, 0] += 1e-6
    with pytest.raises(ConfigError, match=r"ridge=0: some of 24 landmarks lie so close"):
        FeatureMap.of(replace(LANDMARKS, count=24, ridge=0.0, bandwidth=50.0), with_test(dataset(), twins))
    with pytest.raises(UnsoundError, match="not finite"):
        choose(np.full((3, 2), np.nan), 2, 0)
    made = FeatureMap.of(LANDMARKS, dataset())
    longer = {name: matrix * 4 for name, matrix in made.matrices.items()}
    with pytest.raises(UnsoundError, match="projection matrix has entries that no exact product can take"):
        FeatureMap(LANDMARKS, 5).with_matrices(longer)


def test_a_claim_says_that_landmarks_are_public_rows_and_are_published() -> None:
    for config in (LANDMARKS, replace(LANDMARKS, whiten=0.5)):
        facts = FeatureMap.of(config, dataset()).public
        (said,) = [fact for fact in facts if fact.standing is Standing.DECLARED]
        assert "the test records" in said.why
        assert "some of which are landmarks and published with weights" in said.why
        assert ("whitens" in said.why) == bool(config.whiten)


# -- crosses -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, 3])
def test_crosses_are_the_sums_of_all_products_in_a_bucket(order: int) -> None:
    rng = np.random.default_rng(0)
    v = rng.normal(size=(3, 9)) * (rng.random((3, 9)) < 0.7)
    shifts, signs = shifts_of(9, 8, seed=4)
    sums = sketches(v, shifts, signs, 8, order)
    for size in range(2, order + 1):
        expected = np.zeros((3, 8))
        for some in map(list, combinations(range(9), size)):
            expected[:, shifts[some].sum() % 8] += (signs[some] * v[:, some]).prod(axis=1)
        assert sums[size - 2] == pytest.approx(expected, abs=1e-13)


def test_products_of_sketches_are_those_of_all_pairs_on_average() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 6))
    pairs = sum(x[i] * x[j] * y[i] * y[j] for i, j in combinations(range(6), 2))
    rows = np.stack([x, y])
    each = [sketches(rows, *shifts_of(6, 32, seed), 32, 2)[0] for seed in range(600)]
    products = np.array([one @ other for one, other in each])
    assert abs(products.mean() - pairs) < 4 * products.std() / math.sqrt(len(products))


def test_the_columns_stay_beside_their_crosses_by_weight() -> None:
    data = dataset()
    phi = FeatureMap.of(replace(CROSSES, weight=3.0, bias=0.0), data)(data.train.features)
    raw, crossed = np.linalg.norm(phi[:, :5], axis=1), np.linalg.norm(phi[:, 5:-1], axis=1)
    assert crossed / raw == pytest.approx(3 * np.ones(40))
    unit = data.train.features / np.linalg.norm(data.train.features, axis=1, keepdims=True)
    assert phi[:, :5] / raw[:, None] == pytest.approx(unit)
    assert not FeatureMap.of(CROSSES, data).matrices
    assert not FeatureMap.of(CROSSES, data).plain


def test_a_linear_head_learns_what_two_columns_mean_together() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2, size=(400, 2))
    x, y = np.eye(2)[values].reshape(400, 4), values[:, 0] ^ values[:, 1]
    right = {name: (agt.fit(x, y, features=name).predict(x) == y).mean() for name in (None, "crosses")}
    assert right["crosses"] == 1
    assert right[None] < 0.8, "three of four corners at most"


def test_crosses_of_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"map=crosses: .* records are of shape \(2, 3\): use relu, fourier or landmarks"):
        FeatureMap.of(CROSSES, dataset(shape=(2, 3)))


# -- asking for them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", USUAL_COUNTS)
def test_a_map_is_asked_for_by_its_name(name: str) -> None:
    declared = ["certificate.features.public=test"] if name == "landmarks" else []
    line = ["dataset=digits", "model=linear", "certificate=stability", f"certificate/features={name}", *declared]
    made = certificate_config(composed("train", line)["certificate"])
    assert name in usage.options("certificate/features")
    assert f"  {name}" in usage.command_help("train").partition("certificate/features=:")[2]
    assert made.features.map == name  # type: ignore[union-attr]
    assert made.features.count == USUAL_COUNTS[name]  # type: ignore[union-attr]


def test_arrays_take_the_same_maps(tmp_path: Any) -> None:
    data = dataset()
    x, y = data.train.features, data.train.labels
    flags = np.arange(40) < 30
    marks = {"map": "landmarks", "count": 20, "public": "train"}
    model = agt.fit(x, y, features=marks, public=flags, certificate="erm")
    again = agt.load(tmp_path / "m", model.save(tmp_path / "m"))
    assert np.array_equal(
        again.certify(data.test.features).stable_distance, model.certify(data.test.features).stable_distance
    )
    estimator = agt.CertifiedClassifier(features="crosses").fit(x, y)
    assert np.array_equal(estimator.predict(x), agt.fit(x, y, features={"map": "crosses"}).predict(x))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"features": "landmarks"}, r"features: map=landmarks takes its landmarks from rows that are declared public"),
        ({"features": {"map": "landmarks", "public": "test"}}, r"public=test: landmarks needs rows, and there are 0 such"),
        ({"features": "reluu"}, r"features\.map: unknown value 'reluu'; did you mean 'relu'"),
        ({"features": {"map": "crosses", "order": 4}}, r"features\.order"),
        ({"features": {"map": "none", "count": 4}}, r"with map=none it must be null"),
        ({"features": 5}, "expected a mapping"),
        ({"features": "relu", "network": (4,)}, r"features: public features stand in front of a linear head"),
        (
            {"features": "relu", "certificate": {"name": "erm", "features": {"bias": 0.5}}},
            r"features: the certificate has features of its own",
        ),
    ],
)
def test_features_that_do_not_fit_are_refused(settings: dict[str, Any], text: str) -> None:
    data = dataset()
    with pytest.raises(ConfigError, match=text):
        agt.fit(data.train.features, data.train.labels, **settings)


def test_older_declarations_stand_and_new_settings_void_them() -> None:
    config = composed("train", ["experiment=imdb_linear_whitened"])
    now = hashes(config)["certificate"]
    features = {
        key: value for key, value in config["certificate"]["features"].items() if key not in ("root", "order", "weight")
    }
    older = {**config, "certificate": {**config["certificate"], "features": features}}
    assert hashes(older)["certificate"] == now == config["training"]["chosen_for"]["certificate"]
    for key, value in (("root", 0.5), ("order", 3), ("weight", 2.0)):
        changed = {**features, key: value}
        assert hashes({**config, "certificate": {**config["certificate"], "features": changed}})["certificate"] != now


def test_tuning_tries_each_map_where_it_can_be_had() -> None:
    def maps(dataset: list[str], **how: Any) -> list[str]:
        config = composed("train", [*dataset, "model=linear", "training=recipe", "certificate=stability"])
        changes = [
            change["certificate.features"] for change in neighbours(config, **how) if "certificate.features" in change
        ]
        assert all(
            change.get("public") == (how.get("public") if change["map"] == "landmarks" else None) for change in changes
        )
        return [change["map"] for change in changes]

    table = ["dataset=table", "dataset.path=x.csv", "dataset.label=y", "+dataset.numeric={a: [0, 1], b: [0, 1]}"]
    assert maps(["dataset=digits"]) == ["relu", "fourier"]
    assert maps(["dataset=digits"], public="test") == ["relu", "fourier", "landmarks"]
    assert maps(table, exact=True) == ["relu", "crosses"]


def test_tuning_leaves_out_landmarks_that_nobody_asked_for_where_rows_are_few() -> None:
    line = ["model=linear", "training=recipe", "certificate=stability", "dataset.n_train=400", "kgrid.max=2"]
    tried = choices(composed("train", line), None, public="test")
    landmarks = next(choice for choice in tried if "landmarks" in choice.words)
    assert landmarks.words == "certificate.features=map landmarks count 256 public test"
    for choice in tried:
        assert TuningData("test", Console(quiet=True)).able(choice) == (choice is not landmarks), choice.words
