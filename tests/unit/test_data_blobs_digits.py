"""The embedded data sets, the synthetic clouds and scikit-learn's real digits; and MNIST's, of a file."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from agt.data.blobs import Blobs
from agt.data.dataset import UNLABELLED, DataError
from agt.data.digits import Digits, Mnist
from agt.data.ids import uniform
from agt.errors import ConfigError
from agt.settings import validate


def test_blobs_features_are_the_stated_polynomial() -> None:
    dataset = Blobs(center=1.25, std=0.35, n_train=50).load()
    assert dataset.plane is not None
    for (x1, x2), features in zip(dataset.plane.points, dataset.train.features, strict=True):
        assert features == pytest.approx([x1, x2, x1**2, x2**2, x1**3, x2**3], rel=1e-15)
    assert np.array_equal(dataset.plane.lift(dataset.plane.points), dataset.train.features)


def test_blobs_are_where_and_as_wide_as_stated() -> None:
    dataset = Blobs(center=1.0, std=0.75).load()
    assert (len(dataset.train), len(dataset.test), dataset.declared_size) == (3000, 750, 3000)
    assert np.bincount(dataset.train.labels).tolist() == [1500, 1500]
    assert dataset.name == "blobs p=1 s=0.75 (synthetic)"
    for label, sign in ((0, -1), (1, 1)):
        points = dataset.train.features[dataset.train.labels == label, :2]
        assert points.mean(axis=0) == pytest.approx([sign, sign], abs=4 * 0.75 / np.sqrt(1500))
        assert np.cov(points.T) == pytest.approx(0.75**2 * np.eye(2), abs=0.1)


def test_blobs_seed_reproduces_and_changes() -> None:
    first, again, other = (Blobs(center=1.0, std=0.5, n_train=40, seed=seed).load() for seed in (3, 3, 4))
    assert first.digest == again.digest != other.digest
    assert not np.isin(first.test.features[:, 0], first.train.features[:, 0]).any()
    assert not set(first.test.ids) & set(first.train.ids)


def test_blobs_queries(tmp_path: Path) -> None:
    source = Blobs(center=1.25, std=0.35)
    np.savez(tmp_path / "q.npz", x=np.array([[0.5, -2.0]]))
    (tmp_path / "q.csv").write_text("x1,x2,label,id\n0.5,-2,right,one\n1,1,,two\n")
    (tmp_path / "bad.csv").write_text("x1,x2,x3\n1,2,3\n")
    (tmp_path / "empty.csv").write_text("x1,x2\n")
    npz, csv = source.load_queries(tmp_path / "q.npz"), source.load_queries(tmp_path / "q.csv")
    assert npz.features.tolist() == [[0.5, -2.0, 0.25, 4.0, 0.125, -8.0]]
    assert np.array_equal(npz.features[0], csv.features[0])
    assert npz.labels.tolist() == [UNLABELLED]
    assert csv.labels.tolist() == [1, UNLABELLED]
    assert csv.ids.tolist() == ["one", "two"]
    with pytest.raises(DataError, match=r"bad\.csv: each record has 3 features, the model was trained on 2"):
        source.load_queries(tmp_path / "bad.csv")
    with pytest.raises(DataError, match=r"empty\.csv: no rows"):
        source.load_queries(tmp_path / "empty.csv")


def test_digits_are_the_bundled_ones() -> None:
    dataset = Digits(declared_size=270).load()
    bunch = load_digits()
    expected = {image.tobytes(): int(t == 8) for image, t in zip(bunch.data, bunch.target, strict=True) if t in (3, 8)}
    for records in (dataset.train, dataset.test):
        for features, label in zip(records.features, records.labels, strict=True):
            assert expected[((features.astype(np.float64) + 0.5) * 16).tobytes()] == label
    assert len(dataset.train) + len(dataset.test) == 183 + 174
    assert abs(len(dataset.train) - 270) < 15
    assert dataset.classes == ("3", "8")


def test_digits_split_is_the_hash_of_the_id() -> None:
    dataset = Digits().load()
    assert (uniform(dataset.train.ids, "split") >= 0.25).all()
    assert (uniform(dataset.test.ids, "split") < 0.25).all()
    other = Digits(split_key="another").load()
    assert set(other.test.ids) != set(dataset.test.ids)
    assert set(other.test.ids) | set(other.train.ids) == set(dataset.test.ids) | set(dataset.train.ids)


def test_digits_of_other_classes() -> None:
    swapped, every = Digits(classes=(8, 3)).load(), Digits(classes=None).load()
    plain = Digits().load()
    assert swapped.classes == ("8", "3")
    assert np.array_equal(swapped.train.labels, 1 - plain.train.labels)
    assert len(every.classes) == 10
    assert len(every.train) + len(every.test) == 1797
    assert set(plain.test.ids) <= set(every.test.ids)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": [3]}, r"dataset\.classes: .*at least 2"),
        ({"classes": [3, 3]}, "classes repeats a digit"),
        ({"classes": [3, 11]}, r"dataset\.classes\.1: .*less than or equal to 9"),
        ({"test_fraction": 1.0}, r"dataset\.test_fraction: .*less than 1"),
        ({"clases": [3, 8]}, r"dataset\.clases: unknown key; did you mean 'classes'\?"),
    ],
)
def test_digits_bad_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(Digits, settings, "dataset")


def test_digits_queries(tmp_path: Path) -> None:
    image = load_digits().images[5]
    np.savez(tmp_path / "q.npz", x=image[None], label=np.array([8]))
    queries = Digits().load_queries(tmp_path / "q.npz")
    assert np.array_equal(queries.features[0], (image.ravel() / 16 - 0.5).astype(np.float32))
    assert queries.labels.tolist() == [1]
    np.savez(tmp_path / "scaled.npz", x=image[None] - 8)
    with pytest.raises(DataError, match=r"pixels lie in -8\.\.8, expected 0\.\.16"):
        Digits().load_queries(tmp_path / "scaled.npz")
    np.savez(tmp_path / "large.npz", x=np.zeros((1, 28, 28)))
    with pytest.raises(DataError, match="each record has 784 features, the model was trained on 64"):
        Digits().load_queries(tmp_path / "large.npz")


def test_mnist_is_read_from_a_file_scaled_and_split_as_the_embedded_digits_are(tmp_path: Path) -> None:
    images, labels = make_mnist(tmp_path / "m.npz")
    dataset = Mnist(path=Path("m.npz"), data_dir=tmp_path, classes=(8, 3)).load()
    kept = {image.tobytes(): int(label == 3) for image, label in zip(images, labels, strict=True) if label in (3, 8)}
    for records in (dataset.train, dataset.test):
        for features, label in zip(records.features, records.labels, strict=True):
            assert kept[np.rint(features.astype(np.float64) * 255).astype(np.uint8).tobytes()] == label
    assert len(dataset.train) + len(dataset.test) == len(kept)
    assert (uniform(dataset.test.ids, "split") < 0.25).all()
    np.savez(tmp_path / "q.npz", x=images[:1], label=np.array([3]))
    queries = Mnist(path=tmp_path / "m.npz").load_queries(tmp_path / "q.npz")
    assert np.array_equal(queries.features[0], (images[0].ravel() / 255).astype(np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((80, 8, 8), dtype=np.uint8)}, "each record has"),
        ({"images": np.zeros((80, 28, 28))}, "images are float64, expected uint8 pixels"),
        ({"labels": np.arange(80) % 11}, "row 11 of the data has the label '10'"),
        ({"labels": np.arange(79) % 10}, "80 records and 79 values of 'labels'"),
    ],
)
def test_a_file_that_is_not_mnists_is_refused(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    make_mnist(tmp_path / "m.npz", **changes)
    with pytest.raises(DataError, match=message):
        Mnist(path=tmp_path / "m.npz").load()


def make_mnist(path: Path, **changes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """80 images of noise in MNIST's format, written; returns images and labels."""
    images = np.random.default_rng(0).integers(0, 256, (80, 28, 28), dtype=np.uint8)
    parts = {"images": images, "labels": np.arange(80) % 10, **changes}
    np.savez(path, **parts)
    return parts["images"], parts["labels"]
