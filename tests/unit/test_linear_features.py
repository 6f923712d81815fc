"""Public feature maps: norm at most 1, each record on its own to the last bit, the maps that they say they are."""

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from synthetic import make_records
from threadpoolctl import threadpool_limits

from agt.data.dataset import Dataset
from agt.errors import ConfigError, UnsoundError
from agt.facts import Standing, grounds, proved
from agt.models.features import PUBLIC_ROWS, FeatureMap, _covariance, _whitening, check_dtype, check_norms
from agt.settings import FeaturesConfig, validate

HELD = grounds(proved("for a test"))


def dataset(width: int = 6, public: int = 0, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(width, width))
    x = (rng.normal(size=(80, width)) @ mix).astype(np.float32)
    y = np.arange(80) % 2
    flags = [i < public for i in range(60)]
    train, test = make_records(x[:60], y[:60], public=flags), make_records(x[60:], y[60:], prefix="t")
    return Dataset("mixed (synthetic)", ("a", "b"), train, test, 60, {}, HELD, HELD)


MAPS = [
    pytest.param(FeaturesConfig(), id="unit norm"),
    pytest.param(FeaturesConfig(radius=5.0, bias=0.0), id="clipped"),
    pytest.param(FeaturesConfig(whiten=0.75, public="test"), id="whitened"),
    pytest.param(FeaturesConfig(map="relu", count=10), id="relu"),
    pytest.param(FeaturesConfig(map="fourier", count=10, bandwidth=0.5), id="fourier"),
    pytest.param(FeaturesConfig(map="relu", count=7, whiten=1.0, public="test", bias=1.0), id="whitened relu"),
    pytest.param(FeaturesConfig(map="landmarks", count=10, public="test"), id="landmarks"),
    pytest.param(FeaturesConfig(map="landmarks", count=7, public="test", root=0.0, whiten=0.5), id="whitened landmarks"),
    pytest.param(FeaturesConfig(map="crosses", count=16), id="crosses"),
    pytest.param(FeaturesConfig(map="crosses", count=9, order=3, weight=2.0, radius=2.0), id="crosses of three"),
]


@pytest.mark.parametrize("config", MAPS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norms_are_at_most_one_in_exact_arithmetic(config: FeaturesConfig, dtype: str) -> None:
    data = dataset()
    rows = np.concatenate([data.train.features * s for s in (1, 1e-30, 1e30)] + [np.zeros((1, 6)), np.eye(6)])
    phi = FeatureMap.of(config, data)(rows.astype(np.float64), dtype)
    squares = [sum(Fraction(float(v)) ** 2 for v in row) for row in phi]
    assert max(squares) <= 1
    if config.radius is None and config.map != "relu":
        assert min(squares[:60]) > 1 - 1e-5


EXTREME = (
    FeaturesConfig(),
    FeaturesConfig(radius=1e-3),
    FeaturesConfig(map="relu", count=4),
    FeaturesConfig(map="crosses", count=4, order=3, weight=100.0),
)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=3, max_size=3))
def test_no_vector_comes_out_longer_than_one(values: list[float]) -> None:
    for config in (*EXTREME, FeaturesConfig(map="landmarks", count=4, public="test")):
        phi = FeatureMap.of(config, dataset(3))(np.array([values]))
        assert sum(Fraction(float(v)) ** 2 for v in phi[0]) <= 1


@pytest.mark.parametrize("config", MAPS)
def test_a_record_has_the_same_features_whoever_stands_beside_it(config: FeaturesConfig) -> None:
    data = dataset(width=37)
    x = np.repeat(data.train.features, 80, axis=0)  # more than one block
    fm = FeatureMap.of(config, data)
    everyone = fm(x)
    rng = np.random.default_rng(0)
    for _ in range(5):
        some = rng.permutation(len(x))[: rng.integers(1, len(x))]
        assert np.abs(fm(x[some]) - everyone[some]).max() <= fm.slack / 4
    if not fm.slack:
        assert fm(x[1234:1235]).tobytes() == everyone[1234:1235].tobytes()


def test_unit_norm_keeps_directions_and_appends_the_bias() -> None:
    phi = FeatureMap.of(FeaturesConfig(bias=0.5), dataset(3))(np.array([[3.0, 0.0, -4.0], [0.0, 0.0, 0.0]]))
    assert phi[0] == pytest.approx(np.array([0.6, 0, -0.8, 0.5]) / np.sqrt(1.25))
    assert phi[1] == pytest.approx([0, 0, 0, 0.5 / np.sqrt(1.25)])


def test_fourier_features_approximate_the_gaussian_kernel() -> None:
    data = dataset(4)
    x = np.random.default_rng(1).normal(size=(12, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    phi = FeatureMap.of(FeaturesConfig(map="fourier", count=40_000, bandwidth=0.7, bias=0.0), data)(x)
    apart = np.linalg.norm(x[:, None] - x[None], axis=2)
    assert phi @ phi.T == pytest.approx(np.exp(-(apart**2) / (2 * 0.7**2)), abs=0.04)


def test_whitening_makes_the_public_rows_round() -> None:
    data = dataset(public=40)
    for public, rows in (("test", data.test), ("train", data.train.take(data.train.public))):
        fm = FeatureMap.of(FeaturesConfig(whiten=1.0, public=public, ridge=0.0), data)  # type: ignore[arg-type]
        assert fm.whitening is not None
        unit = rows.features / np.linalg.norm(rows.features, axis=1, keepdims=True)
        spread = np.cov((unit @ fm.whitening).T, bias=True)
        assert spread / spread[0, 0] == pytest.approx(np.eye(6), abs=1e-5)
        assert [fact.standing for fact in fm.public] == [Standing.PROVED, Standing.DECLARED]
        assert "are public without their labels" in fm.public[1].why


FEW = FeaturesConfig(whiten=0.75, public="test", ridge=1e-9)


def public_rows(n: int, width: int) -> np.ndarray:
    """Fewer rows than coordinates and hardly a ridge: what one sum rounds to shows in the whole matrix."""
    rng = np.random.default_rng(3)
    return (rng.normal(size=(n, width)) @ rng.normal(size=(width, width)) + 3 * rng.normal(size=width)).astype(np.float32)


def test_the_whitening_matrix_is_the_same_bits_in_any_order_and_any_blocks() -> None:
    """A matrix that all records share: what its sums round to must not follow the rows' order."""
    rows = public_rows(60, 90)
    matrix = _whitening(rows, FEW)
    rng = np.random.default_rng(0)
    for other in (rows[::-1], rows[rng.permutation(len(rows))], np.asfortranarray(rows), rows.astype(np.float64)):
        assert _whitening(other, FEW).tobytes() == matrix.tobytes()
    for block in (1, 7, 59, 60):
        assert _whitening(rows, FEW, block).tobytes() == matrix.tobytes()


def test_whitening_by_test_records_in_reversed_order() -> None:
    data = dataset(width=37)
    turned = replace(data, test=data.test.take(np.arange(len(data.test))[::-1]))
    one, other = (FeatureMap.of(FEW, d) for d in (data, turned))
    assert one.matrices["whitening"].equal(other.matrices["whitening"])
    assert one.slack == other.slack == 0.0


ONE_THREAD = """
import sys
import numpy as np
from threadpoolctl import threadpool_info
from agt.models.features import _whitening
from agt.settings import FeaturesConfig
assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
matrix = _whitening(np.load(sys.argv[1]), FeaturesConfig(whiten=0.75, public="test", ridge=1e-9))
np.save(sys.argv[2], matrix)
"""


def test_the_whitening_matrix_is_the_same_bits_with_one_thread_and_more(tmp_path: Path) -> None:
    rows = public_rows(200, 300)
    np.save(tmp_path / "rows.npy", rows)
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-c", ONE_THREAD, str(tmp_path / "rows.npy"), str(tmp_path / "matrix.npy")]
    subprocess.run(command, env={**os.environ, **one}, check=True)
    alone = np.load(tmp_path / "matrix.npy")
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            assert _whitening(rows, FEW).tobytes() == alone.tobytes()


def test_the_covariance_is_that_of_the_rounded_rows() -> None:
    """Against numpy's, of rows rounded alike; and rows on the axes are exact, whatever their number."""
    rows = public_rows(900, 90)
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    grid = np.rint(unit * 2.0**18) / 2.0**18
    assert _covariance(rows, 64) == pytest.approx(np.cov(grid.T, bias=True), abs=1e-13)
    axes = np.repeat(np.eye(2), [3 * 2**12, 2**12], axis=0)
    assert _covariance(axes, 4096).tolist() == [[0.1875, -0.1875], [-0.1875, 0.1875]]
    assert 4096 * 2 ** (2 * 18) <= 2**53
    assert PUBLIC_ROWS * 2 ** (2 * 18) < 2**63


def test_public_rows_that_cannot_be_summed_are_refused() -> None:
    config = FeaturesConfig(whiten=1.0, public="test")
    many = np.broadcast_to(np.ones(1, dtype=np.float32), (PUBLIC_ROWS + 1, 1))
    with pytest.raises(ConfigError, match=r"certificate\.features\.public: 67108865 public rows"):
        _whitening(many, config)
    broken = public_rows(5, 3)
    broken[2, 1] = np.nan
    with pytest.raises(UnsoundError, match="not finite"):
        _whitening(broken, config)


def test_whitening_reads_no_private_row() -> None:
    one, other = dataset(public=30), dataset(public=30)
    other.train.features[30:] += 5
    config = FeaturesConfig(whiten=0.5, public="train")
    a, b = FeatureMap.of(config, one), FeatureMap.of(config, other)
    assert a.matrices["whitening"].equal(b.matrices["whitening"])


def test_a_recorded_map_is_the_map() -> None:
    config, data = FeaturesConfig(map="relu", count=5, whiten=0.5, public="test"), dataset()
    made = FeatureMap.of(config, data)
    again = FeatureMap(config, 6).with_matrices(made.matrices)
    assert again(data.train.features).tobytes() == made(data.train.features).tobytes()
    broken = {name: matrix + 0.5 for name, matrix in made.matrices.items()}
    with pytest.raises(UnsoundError, match="exact product"):
        FeatureMap(config, 6).with_matrices(broken)


def test_longer_vectors_and_nan_are_refused() -> None:
    check_norms(np.array([[0.6, 0.8]]))
    for bad in ([[0.6, 0.81]], [[np.nan, 0.0]], [[np.inf, 0.0]]):
        with pytest.raises(UnsoundError):
            check_norms(np.array(bad))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"map": "relu"}, "count"),
        ({"map": "fourier", "count": 3}, "even"),
        ({"whiten": 0.5}, "declared public"),
        ({"public": "test"}, "declared public"),
        ({"count": 4}, "map=none"),
        ({"bandwith": 1.0}, "bandwidth"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        validate(FeaturesConfig, settings, "certificate.features")


def test_wrong_width_no_public_rows_and_float32_cosines_are_refused() -> None:
    fm = FeatureMap.of(FeaturesConfig(), dataset(3))
    with pytest.raises(ConfigError, match="7 features and the model takes 3"):
        fm(np.zeros((2, 7)))
    with pytest.raises(ConfigError, match=r"features\.public=train"):
        FeatureMap.of(FeaturesConfig(whiten=1.0, public="train"), dataset())
    with pytest.raises(ConfigError, match="float64"):
        check_dtype(FeaturesConfig(map="fourier", count=4), "float32")


def test_public_rows_that_leave_a_direction_empty_need_a_ridge() -> None:
    """Without one, whitening would divide by what rounding made of a zero: another matrix for every order of the rows."""
    few = np.random.default_rng(3).normal(size=(4, 6))
    with pytest.raises(ConfigError, match=r"features\.ridge=0: the 4 public rows do not fill all 6 directions"):
        _whitening(few, FeaturesConfig(whiten=0.5, public="test", ridge=0.0))
    assert np.isfinite(_whitening(few, FeaturesConfig(whiten=0.5, public="test", ridge=1e-3))).all()
