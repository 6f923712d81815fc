"""Public feature maps: norm at most 1, each record on its own to the last bit, and the values
that they say they are.
"""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from synthetic import make_records, refused
from threadpoolctl import threadpool_limits

import agt
from agt.data.dataset import Dataset
from agt.data.target import ClassTarget
from agt.errors import ConfigError, UnsoundError
from agt.facts import Standing, evidence, proved
from agt.models import compiled
from agt.models.compiled import exp_of_minus
from agt.models.features import (
    MAX_PUBLIC_ROWS,
    FeatureMap,
    _covariance,
    _whitening_matrix,
    check_norms,
    choose_landmarks,
    gaussian_kernel,
    to_integers,
)
from agt.models.kinds import certificate_config
from agt.numeric import UNIT
from agt.settings import DEFAULT_FEATURE_COUNTS, FeaturesConfig
from agt_cli import config_files, help_pages
from agt_cli.choices import hash_parts
from agt_cli.commands.tune import TuningData, neighbours, read_candidates
from agt_cli.composing import compose_command
from agt_cli.report.console import Console

HELD = evidence(proved("own_words", text="for a test"))


def dataset(width: int = 6, public: int = 0, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(width, width))
    x = (rng.normal(size=(80, width)) @ mix).astype(np.float32)
    y = np.arange(80) % 2
    flags = [i < public for i in range(60)]
    train = make_records(x[:60], y[:60], public=flags)
    test = make_records(x[60:], y[60:], prefix="t")
    return Dataset("mixed (synthetic)", ClassTarget(("a", "b")), train, test, 60, {}, HELD, HELD)


MAPS = [
    pytest.param(FeaturesConfig(), id="unit norm"),
    pytest.param(FeaturesConfig(radius=5.0, bias=0.0), id="clipped"),
    pytest.param(FeaturesConfig(whiten=0.75, public="test"), id="whitened"),
    pytest.param(FeaturesConfig(map="relu", count=10), id="relu"),
    pytest.param(
        FeaturesConfig(map="relu", count=7, whiten=1.0, public="test", bias=1.0), id="whitened relu"
    ),
    pytest.param(FeaturesConfig(map="landmarks", count=10, public="test"), id="landmarks"),
    pytest.param(
        FeaturesConfig(map="landmarks", count=7, public="test", root=0.0, whiten=0.5),
        id="whitened landmarks",
    ),
]


@pytest.mark.parametrize("config", MAPS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norms_are_at_most_one_in_exact_arithmetic(config: FeaturesConfig, dtype: str) -> None:
    data = dataset()
    rows = np.concatenate(
        [data.train.features * s for s in (1, 1e-30, 1e30)] + [np.zeros((1, 6)), np.eye(6)]
    )
    phi = FeatureMap.from_dataset(config, data)(rows.astype(np.float64), dtype)
    squares = [sum(Fraction(float(v)) ** 2 for v in row) for row in phi]
    assert max(squares) <= 1
    if config.radius is None and config.map != "relu":
        assert min(squares[:60]) > 1 - 1e-5


@pytest.fixture(scope="module")
def extreme_maps() -> list[FeatureMap]:
    """Maps of three features, made once: hypothesis asks each of them for a hundred rows."""
    configs = (
        FeaturesConfig(),
        FeaturesConfig(radius=1e-3),
        FeaturesConfig(map="relu", count=4),
        FeaturesConfig(map="landmarks", count=4, public="test"),
    )
    return [FeatureMap.from_dataset(config, dataset(3)) for config in configs]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=3, max_size=3))
def test_no_vector_comes_out_longer_than_one(
    extreme_maps: list[FeatureMap], values: list[float]
) -> None:
    for feature_map in extreme_maps:
        phi = feature_map(np.array([values]))
        assert sum(Fraction(float(v)) ** 2 for v in phi[0]) <= 1


@pytest.mark.parametrize("config", MAPS)
def test_a_record_has_the_same_features_whoever_stands_beside_it(config: FeaturesConfig) -> None:
    data = dataset(width=37)
    x = np.repeat(data.train.features, 80, axis=0)  # more than one block
    fm = FeatureMap.from_dataset(config, data)
    everyone = fm(x)
    rng = np.random.default_rng(0)
    for _ in range(5):
        some = rng.permutation(len(x))[: rng.integers(1, len(x))]
        assert (fm(x[some]) == everyone[some]).all()
    assert fm(x[1234:1235]).tobytes() == everyone[1234:1235].tobytes()


def test_unit_norm_keeps_directions_and_appends_the_bias() -> None:
    phi = FeatureMap.from_dataset(FeaturesConfig(bias=0.5), dataset(3))(
        np.array([[3.0, 0.0, -4.0], [0.0, 0.0, 0.0]])
    )
    assert phi[0] == pytest.approx(np.array([0.6, 0, -0.8, 0.5]) / np.sqrt(1.25))
    assert phi[1] == pytest.approx([0, 0, 0, 0.5 / np.sqrt(1.25)])


def test_whitening_makes_the_public_rows_round() -> None:
    data = dataset(public=40)
    for public, rows in (("test", data.test), ("train", data.train.take(data.train.public))):
        fm = FeatureMap.from_dataset(FeaturesConfig(whiten=1.0, public=public, ridge=0.0), data)  # type: ignore[arg-type]
        assert fm.whitening is not None
        unit = rows.features / np.linalg.norm(rows.features, axis=1, keepdims=True)
        spread = np.cov((unit @ fm.whitening).T, bias=True)
        assert spread / spread[0, 0] == pytest.approx(np.eye(6), abs=1e-5)
        assert [fact.standing for fact in fm.facts] == [Standing.PROVED, Standing.DECLARED]
        assert fm.facts[1].code == "whitening_rows_public"


FEW = FeaturesConfig(whiten=0.75, public="test", ridge=1e-9)


def public_rows(n: int, width: int) -> np.ndarray:
    """Fewer rows than coordinates and hardly a ridge: what one sum rounds to shows in the whole
    matrix.
    """
    rng = np.random.default_rng(3)
    return (
        rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + 3 * rng.normal(size=width)
    ).astype(np.float32)


def test_the_whitening_matrix_is_the_same_bits_in_any_order_and_any_blocks() -> None:
    """A matrix that all records share: what its sums round to must not follow the rows' order."""
    rows = public_rows(60, 90)
    matrix = _whitening_matrix(rows, FEW)
    rng = np.random.default_rng(0)
    for other in (
        rows[::-1],
        rows[rng.permutation(len(rows))],
        np.asfortranarray(rows),
        rows.astype(np.float64),
    ):
        assert _whitening_matrix(other, FEW).tobytes() == matrix.tobytes()
    for block in (1, 7, 59, 60):
        assert _whitening_matrix(rows, FEW, block).tobytes() == matrix.tobytes()


ONE_THREAD = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from agt.models.features import _whitening_matrix
from agt.settings import FeaturesConfig
assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
config = FeaturesConfig(whiten=0.75, public="test", ridge=1e-9)
matrix = _whitening_matrix(np.load(sys.argv[1]), config)
np.save(sys.argv[2], matrix)
"""


@pytest.mark.sweep
def test_the_whitening_matrix_is_the_same_bits_with_one_thread_and_more(tmp_path: Path) -> None:
    rows = public_rows(200, 300)
    np.save(tmp_path / "rows.npy", rows)
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [
        sys.executable,
        "-c",
        ONE_THREAD,
        str(tmp_path / "rows.npy"),
        str(tmp_path / "matrix.npy"),
    ]
    subprocess.run(command, env={**os.environ, **one}, check=True)
    alone = np.load(tmp_path / "matrix.npy")
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            assert _whitening_matrix(rows, FEW).tobytes() == alone.tobytes()


def test_the_covariance_is_that_of_the_rounded_rows() -> None:
    """Against numpy's, of rows rounded alike; and rows on the axes are exact, whatever their
    number.
    """
    rows = public_rows(900, 90)
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    grid = np.rint(unit * 2.0**18) / 2.0**18
    assert _covariance(rows, 64) == pytest.approx(np.cov(grid.T, bias=True), abs=1e-13)
    axes = np.repeat(np.eye(2), [3 * 2**12, 2**12], axis=0)
    assert _covariance(axes, 4096).tolist() == [[0.1875, -0.1875], [-0.1875, 0.1875]]
    assert 4096 * 2 ** (2 * 18) <= 2**53
    assert MAX_PUBLIC_ROWS * 2 ** (2 * 18) < 2**63


def test_public_rows_that_cannot_be_summed_are_refused() -> None:
    config = FeaturesConfig(whiten=1.0, public="test")
    many = np.broadcast_to(np.ones(1, dtype=np.float32), (MAX_PUBLIC_ROWS + 1, 1))
    with pytest.raises(ConfigError, match=r"certificate\.features\.public.*67108865.*67108864"):
        _whitening_matrix(many, config)
    broken = public_rows(5, 3)
    broken[2, 1] = np.nan
    with pytest.raises(UnsoundError, match=r"certificate\.features\.public: "):
        _whitening_matrix(broken, config)


def test_a_recorded_map_is_the_map() -> None:
    config = FeaturesConfig(map="relu", count=5, whiten=0.5, public="test")
    data = dataset()
    made = FeatureMap.from_dataset(config, data)
    again = FeatureMap(config, 6).with_matrices(made.matrices)
    assert again(data.train.features).tobytes() == made(data.train.features).tobytes()
    broken = {name: matrix + 0.5 for name, matrix in made.matrices.items()}
    with pytest.raises(UnsoundError, match=r"certificate\.features: "):
        FeatureMap(config, 6).with_matrices(broken)


def test_longer_vectors_and_nan_are_refused() -> None:
    check_norms(np.array([[0.6, 0.8]]))
    for bad in ([[0.6, 0.81]], [[np.nan, 0.0]], [[np.inf, 0.0]]):
        with pytest.raises(UnsoundError):
            check_norms(np.array(bad))


def test_wrong_width_and_no_public_rows_are_refused() -> None:
    fm = FeatureMap.from_dataset(FeaturesConfig(), dataset(3))
    refused(
        (ConfigError, "7 features, but the model was trained on 3", lambda: fm(np.zeros((2, 7)))),
        (
            ConfigError,
            r"features\.public=train",
            lambda: FeatureMap.from_dataset(FeaturesConfig(whiten=1.0, public="train"), dataset()),
        ),
    )


def test_public_rows_that_leave_a_direction_empty_need_a_ridge() -> None:
    """Without one, whitening would divide by what rounding made of a zero: another matrix for
    every order of the rows.
    """
    few = np.random.default_rng(3).normal(size=(4, 6))
    with pytest.raises(ConfigError, match=r"features\.ridge=0:.*\b4\b.*\b6\b"):
        _whitening_matrix(few, FeaturesConfig(whiten=0.5, public="test", ridge=0.0))
    assert np.isfinite(
        _whitening_matrix(few, FeaturesConfig(whiten=0.5, public="test", ridge=1e-3))
    ).all()


LANDMARKS = FeaturesConfig(map="landmarks", count=12, public="test", bandwidth=0.8)


def tabled(
    width: int = 5, n: int = 40, public: tuple[int, ...] = (), shape: tuple[int, ...] = ()
) -> Dataset:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2 * n, *(shape or (width,))))
    y = np.arange(2 * n) % 2
    flags = [i in public for i in range(n)]
    train = make_records(x[:n], y[:n], public=flags)
    test = make_records(x[n:], y[n:], prefix="t")
    return Dataset("made up (synthetic)", ClassTarget(("a", "b")), train, test, n, {}, HELD, HELD)


def with_test(data: Dataset, rows: np.ndarray) -> Dataset:
    return replace(data, test=make_records(rows, np.arange(len(rows)) % 2, prefix="t"))


# -- exponentials
# --------------------------------------------------------------------------------------------------


def test_exponentials_are_close_and_the_same_bits_wherever_they_stand() -> None:
    at = np.concatenate(
        [
            np.random.default_rng(0).uniform(0, 60, 5000),
            np.linspace(0, 699.9, 999),
            [0.0, 1e-300, 700.0],
        ]
    )
    values = exp_of_minus(at[None])[0]
    exact = np.array([math.exp(-float(t)) for t in at])
    assert np.abs(values / exact - 1).max() <= 4 * UNIT
    assert exp_of_minus(at.reshape(-1, 1)).ravel().tobytes() == values.tobytes()
    assert exp_of_minus(at[2:].copy().reshape(1, -1))[0].tobytes() == values[2:].tobytes()
    assert exp_of_minus(np.array([[700.5, np.inf, 1e308]])).tolist() == [[0.0, 0.0, 0.0]]
    assert np.isnan(exp_of_minus(np.array([[np.nan]]))).all()


def uneven(t: np.ndarray) -> np.ndarray:
    """A vector unit's: full lanes of eight records are computed otherwise than the rest."""
    lanes = np.arange(len(t)) < len(t) // 8 * 8
    values: np.ndarray = np.where(lanes[:, None], exp_of_minus(t), np.nextafter(exp_of_minus(t), 2))
    return values


def one_bit_of_its_own(
    exponential: Callable[[np.ndarray], np.ndarray], patch: pytest.MonkeyPatch
) -> bool:
    """Whether each record has the same features alone as among others."""
    patch.setattr(compiled, "exp_of_minus", exponential)
    data = tabled()
    made = FeatureMap.from_dataset(replace(LANDMARKS, root=0.0), data)
    everyone = made(data.train.features[:27])
    return all(
        made(data.train.features[i : i + 1]).tobytes() == everyone[i : i + 1].tobytes()
        for i in range(27)
    )


def test_a_vector_unit_s_own_last_digits_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_bit_of_its_own(exp_of_minus, monkeypatch)
    assert not one_bit_of_its_own(uneven, monkeypatch)


# -- landmarks
# --------------------------------------------------------------------------------------------------


def distances_are_exact(rounded: Callable[[np.ndarray], np.ndarray]) -> bool:
    data = tabled(width=33)
    units = [
        x / np.linalg.norm(x, axis=1, keepdims=True)
        for x in (data.train.features, data.test.features)
    ]
    rows, marks = (rounded(unit) for unit in units)
    seen: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "exp_of_minus", lambda t: seen.append(t) or t)
        gaussian_kernel(rows, marks[:8].T.copy(), 1.0)
    exact = [
        [sum((int(a) - int(b)) ** 2 for a, b in zip(row, mark, strict=True)) for mark in marks[:8]]
        for row in rows
    ]
    return (np.ldexp(seen[0] * 2, 44) == np.array(exact, dtype=np.float64)).all()


def test_distances_are_exact_integers_and_would_not_be_without_rounding_the_records() -> None:
    assert distances_are_exact(to_integers)
    assert not distances_are_exact(lambda unit: np.ldexp(unit, 22))


@pytest.mark.parametrize(
    "config", [LANDMARKS, replace(LANDMARKS, root=0.0), replace(LANDMARKS, whiten=0.5)]
)
def test_the_order_of_public_rows_their_copies_and_their_precision_do_not_matter(
    config: FeaturesConfig,
) -> None:
    data = tabled()
    rows = data.test.features.astype(np.float32).astype(np.float64)
    made = FeatureMap.from_dataset(config, with_test(data, rows))
    turned = [
        rows[::-1],
        rows[np.random.default_rng(1).permutation(len(rows))],
        rows.astype(np.float32),
    ]
    for other in [*turned, *([] if config.whiten else [np.repeat(rows, 3, axis=0)])]:
        again = FeatureMap.from_dataset(config, with_test(data, other))
        assert made.matrices.keys() == again.matrices.keys()
        for name, matrix in made.matrices.items():
            assert matrix.tobytes() == again.matrices[name].tobytes(), name
    seeded = FeatureMap.from_dataset(replace(config, seed=1), with_test(data, rows))
    assert seeded.matrices["projection"].tobytes() != made.matrices["projection"].tobytes()


def test_landmarks_read_public_rows_alone_and_never_a_label() -> None:
    public = tuple(range(0, 40, 2))
    one = tabled(public=public)
    other = tabled(public=public)
    other.train.features[~other.train.public] += 5
    other.train.labels[:] = 1 - other.train.labels
    config = replace(LANDMARKS, public="train")
    a, b = (FeatureMap.from_dataset(config, data).matrices for data in (one, other))
    assert all((a[name] == b[name]).all() for name in a)
    chosen = a["projection"].T
    unit = one.train.features / np.linalg.norm(one.train.features, axis=1, keepdims=True)
    near = np.abs(np.ldexp(chosen, -22)[:, None] - unit[None, list(public)]).max(axis=2).min(axis=1)
    assert near.max() < 2**-22


def test_nystroem_s_map_has_the_kernel_for_its_products_at_landmarks() -> None:
    data = tabled(width=3)
    config = replace(LANDMARKS, count=40, ridge=1e-9, bias=0.0, bandwidth=0.7)
    phi = FeatureMap.from_dataset(config, data)(data.test.features)
    unit = data.test.features / np.linalg.norm(data.test.features, axis=1, keepdims=True)
    apart = np.linalg.norm(unit[:, None] - unit[None], axis=2)
    assert phi @ phi.T == pytest.approx(np.exp(-(apart**2) / (2 * 0.7**2)), abs=2e-2)


def test_landmarks_that_cannot_be_had_are_refused() -> None:
    refused(
        (
            ConfigError,
            r"count=41: the landmarks .* but there are only 40 different ones",
            lambda: FeatureMap.from_dataset(replace(LANDMARKS, count=41), tabled()),
        ),
        (
            ConfigError,
            r"public=train: a choice of landmarks needs at least 2 public rows",
            lambda: FeatureMap.from_dataset(replace(LANDMARKS, public="train"), tabled()),
        ),
    )
    twins = (
        np.repeat(tabled().test.features[:12], 2, axis=0)
        * (1 + 1e-6 * (np.arange(24) % 2))[:, None]
    )
    twins[1::2, 0] += 1e-6
    refused(
        (
            ConfigError,
            r"ridge=0: some of the 24 landmarks are so close",
            lambda: FeatureMap.from_dataset(
                replace(LANDMARKS, count=24, ridge=0.0, bandwidth=50.0), with_test(tabled(), twins)
            ),
        ),
        (UnsoundError, "NaN or infinite", lambda: choose_landmarks(np.full((3, 2), np.nan), 2, 0)),
    )
    made = FeatureMap.from_dataset(LANDMARKS, tabled())
    longer = {name: matrix * 4 for name, matrix in made.matrices.items()}
    with pytest.raises(UnsoundError, match=r"certificate\.features: "):
        FeatureMap(LANDMARKS, 5).with_matrices(longer)


def test_a_claim_says_that_landmarks_are_public_rows_and_are_published() -> None:
    for config in (LANDMARKS, replace(LANDMARKS, whiten=0.5)):
        facts = FeatureMap.from_dataset(config, tabled()).facts
        (said,) = [fact for fact in facts if fact.standing is Standing.DECLARED]
        assert said.values["public"] == "test"
        assert said.code.endswith("landmark_rows_public")
        assert ("whitens" in said.sentence) == bool(config.whiten)


# -- asking for them
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEFAULT_FEATURE_COUNTS)
def test_a_map_is_asked_for_by_its_name(name: str) -> None:
    declared = ["certificate.features.public=test"] if name == "landmarks" else []
    line = [
        "dataset=digits",
        "model=linear",
        "certificate=stability",
        f"certificate/features={name}",
        *declared,
    ]
    made = certificate_config(compose_command("train", line)["certificate"])
    assert name in config_files.options_of_group("certificate/features")
    assert f"  {name}" in help_pages.command_help("train").partition("certificate/features=:")[2]
    assert made.features.map == name  # type: ignore[union-attr]
    assert made.features.count == DEFAULT_FEATURE_COUNTS[name]  # type: ignore[union-attr]


def test_arrays_take_the_same_maps(tmp_path: Any) -> None:
    data = tabled()
    x = data.train.features
    y = data.train.labels
    flags = np.arange(40) < 30
    marks = {"map": "landmarks", "count": 20, "public": "train"}
    model = agt.fit(x, y, features=marks, public=flags, certificate="erm")
    again = agt.load(tmp_path / "m", model.save(tmp_path / "m"))
    assert np.array_equal(
        again.certify(data.test.features).stable_distance,
        model.certify(data.test.features).stable_distance,
    )
    estimator = agt.CertifiedClassifier(features="relu").fit(x, y)
    assert np.array_equal(estimator.predict(x), agt.fit(x, y, features={"map": "relu"}).predict(x))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"features": "landmarks"},
            "features: map=landmarks",
        ),
        (
            {"features": {"map": "landmarks", "public": "test"}},
            r'"public"\]=test.*\b0\b',
        ),
        ({"features": "reluu"}, "reluu"),
        ({"features": {"map": "none", "count": 4}}, "features.count.*map=none"),
        ({"features": 5}, r"features: .*\b5\b"),
        (
            {"features": "relu", "network": (4,)},
            "features: .*certificate=stability",
        ),
        (
            {"features": "relu", "certificate": {"name": "erm", "features": {"bias": 0.5}}},
            r"features: features= and certificate.features both give",
        ),
    ],
)
def test_features_that_do_not_fit_are_refused(settings: dict[str, Any], text: str) -> None:
    data = tabled()
    with pytest.raises(ConfigError, match=text):
        agt.fit(data.train.features, data.train.labels, **settings)


def test_older_declarations_stand_and_new_settings_void_them() -> None:
    config = compose_command("train", ["experiment=imdb_linear_whitened"])
    now = hash_parts(config)["certificate"]
    features = {
        key: value for key, value in config["certificate"]["features"].items() if key != "root"
    }
    older = {**config, "certificate": {**config["certificate"], "features": features}}
    assert (
        hash_parts(older)["certificate"] == now == config["training"]["chosen_for"]["certificate"]
    )
    changed = {**features, "root": 0.5}
    assert (
        hash_parts({**config, "certificate": {**config["certificate"], "features": changed}})[
            "certificate"
        ]
        != now
    )


def test_tuning_tries_each_map_where_it_can_be_had() -> None:
    def maps(dataset: list[str], **how: Any) -> list[str]:
        config = compose_command(
            "train", [*dataset, "model=linear", "training=recipe", "certificate=stability"]
        )
        changes = [
            change["certificate.features"]
            for change in neighbours(config, **how)
            if "certificate.features" in change
        ]
        assert all(
            change.get("public") == (how.get("public") if change["map"] == "landmarks" else None)
            for change in changes
        )
        return [change["map"] for change in changes]

    table = [
        "dataset=table",
        "dataset.path=x.csv",
        "dataset.label=y",
        "+dataset.numeric={a: [0, 1], b: [0, 1]}",
    ]
    assert maps(["dataset=digits"]) == maps(table) == ["relu"]
    assert maps(["dataset=digits"], public="test") == ["relu", "landmarks"]


def test_tuning_leaves_out_landmarks_that_nobody_asked_for_where_rows_are_few() -> None:
    line = [
        "model=linear",
        "training=recipe",
        "certificate=stability",
        "dataset.n_train=400",
        "kgrid.max=2",
    ]
    tried = read_candidates(compose_command("train", line), None, public="test")
    landmarks = next(choice for choice in tried if "landmarks" in choice.description)
    features = landmarks.config["certificate"]["features"]
    assert (features["map"], features["count"], features["public"]) == ("landmarks", 256, "test")
    for choice in tried:
        assert TuningData("test", Console(quiet=True)).has_landmark_rows(choice) == (
            choice is not landmarks
        ), choice.description


def test_records_without_numbers_have_the_bias_alone() -> None:
    features = FeatureMap(FeaturesConfig(map="none"), width=0)
    phi = features(np.zeros((3, 0)))
    assert phi.shape == (3, 1)
    assert (phi == phi[0]).all()
    assert phi[0, 0] > 0
