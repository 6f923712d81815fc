"""Points and images: the synthetic clouds, digits, and MedMNIST's files, official and local."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import md5
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from agt.data import medmnist_files
from agt.data.blobs import Blobs
from agt.data.ids import uniform
from agt.data.images import Digits, MedMnist, Mnist
from agt.data.records import UNLABELLED
from agt.errors import AgtError, ConfigError, DataError, DataMissing
from agt.settings import validate


def test_blobs_are_where_and_as_wide_as_stated() -> None:
    dataset = Blobs(center=1.0, std=0.75).load()
    assert (len(dataset.train), len(dataset.test), dataset.declared_size) == (3000, 750, 3000)
    assert np.bincount(dataset.train.labels).tolist() == [1500, 1500]
    assert re.match(r"blobs p=1 s=0\.75\b", dataset.name)
    assert dataset.plane is not None
    assert np.array_equal(dataset.plane.lift(dataset.plane.points), dataset.train.features)
    for label, sign in ((0, -1), (1, 1)):
        points = dataset.train.features[dataset.train.labels == label, :2]
        assert points.mean(axis=0) == pytest.approx([sign, sign], abs=4 * 0.75 / np.sqrt(1500))
        assert np.cov(points.T) == pytest.approx(0.75**2 * np.eye(2), abs=0.1)


def test_digits_are_the_bundled_ones() -> None:
    dataset = Digits(declared_size=270).load()
    bunch = load_digits()
    expected = {
        image.tobytes(): int(t == 8)
        for image, t in zip(bunch.data, bunch.target, strict=True)
        if t in (3, 8)
    }
    for records in (dataset.train, dataset.test):
        for features, label in zip(records.features, records.labels, strict=True):
            assert expected[((features.astype(np.float64) + 0.5) * 16).tobytes()] == label
    assert len(dataset.train) + len(dataset.test) == 183 + 174
    assert abs(len(dataset.train) - 270) < 15
    assert dataset.classes == ("3", "8")


def test_digits_of_other_classes() -> None:
    swapped = Digits(classes=(8, 3)).load()
    every = Digits(classes=None).load()
    plain = Digits().load()
    assert swapped.classes == ("8", "3")
    assert np.array_equal(swapped.train.labels, 1 - plain.train.labels)
    assert len(every.classes) == 10
    assert len(every.train) + len(every.test) == 1797
    assert set(plain.test.ids) <= set(every.test.ids)


def test_digits_queries(tmp_path: Path) -> None:
    image = load_digits().images[5]
    for pixels, message in (
        (image - 8, r"q\.npz: .*-8 and 8.*0 and 16"),
        (np.zeros((28, 28)), r"q\.npz: .*784"),
    ):
        np.savez(tmp_path / "q.npz", x=pixels[None])
        with pytest.raises(DataError, match=message):
            Digits().load_queries(tmp_path / "q.npz")


def test_mnist_is_read_from_a_file_scaled_and_split_as_the_embedded_digits_are(
    tmp_path: Path,
) -> None:
    images, labels = make_mnist(tmp_path / "m.npz")
    dataset = Mnist(path=Path("m.npz"), data_dir=tmp_path, classes=(8, 3)).load()
    kept = {
        image.tobytes(): int(label == 3)
        for image, label in zip(images, labels, strict=True)
        if label in (3, 8)
    }
    for records in (dataset.train, dataset.test):
        for features, label in zip(records.features, records.labels, strict=True):
            assert (
                kept[np.rint(features.astype(np.float64) * 255).astype(np.uint8).tobytes()] == label
            )
    assert len(dataset.train) + len(dataset.test) == len(kept)
    assert (uniform(dataset.test.ids, "split") < 0.25).all()


def make_mnist(path: Path, **changes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """80 images of noise in MNIST's format, written; returns images and labels."""
    images = np.random.default_rng(0).integers(0, 256, (80, 28, 28), dtype=np.uint8)
    parts = {"images": images, "labels": np.arange(80) % 10, **changes}
    np.savez(path, **parts)
    return parts["images"], parts["labels"]


# -- MedMNIST
# --------------------------------------------------------------------------------------------------

OCT_LABELS = {
    "0": "choroidal neovascularization",
    "1": "diabetic macular edema",
    "2": "drusen",
    "3": "normal",
}
Write = Callable[..., Path]


def pretend(
    monkeypatch: pytest.MonkeyPatch,
    url: str = "http://127.0.0.1:9/none.npz",
    digest: str = "0" * 32,
) -> None:
    """medmnist as it would be if its OCTMNIST were at ``url``."""
    facts = {
        "python_class": "OCTMNIST",
        "task": "multi-class",
        "url": url,
        "MD5": digest,
        "label": OCT_LABELS,
    }
    info = {"octmnist": facts, "chestmnist": {**facts, "task": "multi-label, binary-class"}}
    monkeypatch.setattr("agt.data.medmnist_files.all_info", lambda: info)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server of one folder: its address and the folder."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", folder
        http.shutdown()


def test_info_of_a_package_without_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = (medmnist_files.all_info() or {}).get("octmnist")
    assert known is None or known["label"] == OCT_LABELS
    package = tmp_path / "medmnist"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "info.py").write_text("OTHER = 1")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"medmnist/info\.py"):
        medmnist_files.all_info()
    (package / "info.py").write_text("INFO = {'a': {'task': 'binary'}}")
    assert medmnist_files.all_info() == {"a": {"task": "binary"}}


def test_local_file_needs_no_package(
    medmnist_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agt.data.medmnist_files.find_spec", lambda name: None)
    with pytest.raises(DataMissing, match=r"medmnist$"):
        MedMnist(name="octmnist", data_dir=tmp_path).load()
    dataset = MedMnist(name="octmnist", path=medmnist_file()).load()
    assert re.match(r"octmnist \(.*\bhash\b", dataset.name)
    assert dataset.classes == ("class 0", "class 1", "class 2", "class 3")


def test_official_hash(
    medmnist_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = medmnist_file()
    pretend(monkeypatch, digest=md5(path.read_bytes()).hexdigest())
    assert MedMnist(name="octmnist", data_dir=tmp_path, download=False).load().name == "octmnist"
    assert MedMnist(name="octmnist", path=path).load().name == "octmnist"
    pretend(monkeypatch)
    assert re.match(r"octmnist \(.*\bhash\b", MedMnist(name="octmnist", path=path).load().name)
    with pytest.raises(
        DataError,
        match=r"octmnist\.npz: .*0{32}.*dataset\.path=octmnist\.npz",
    ):
        MedMnist(name="octmnist", data_dir=tmp_path, download=False).load()


def test_offline_says_where_to_get_and_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    place = tmp_path / "new" / "octmnist.npz"
    with pytest.raises(
        DataMissing,
        match=rf"http://127\.0\.0\.1:9/none\.npz.*{place}",
    ):
        MedMnist(name="octmnist", data_dir=tmp_path / "new").load()
    assert not place.exists()


def test_download_is_verified_and_kept(
    medmnist_file: Write,
    server: tuple[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    address, folder = server
    path = medmnist_file().rename(folder / "octmnist.npz")
    pretend(monkeypatch, f"{address}/octmnist.npz?download=1", md5(path.read_bytes()).hexdigest())
    source = MedMnist(name="octmnist", data_dir=tmp_path / "data")
    assert source.load().name == "octmnist"
    path.unlink()
    assert source.load().name == "octmnist", "the second load must not need the server"
    written = capfd.readouterr()
    assert written.out == ""
    assert "\x1b" not in written.err, "no live bar when stderr is no terminal"


def test_download_with_another_hash_leaves_nothing(
    medmnist_file: Write, server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = server
    medmnist_file().rename(folder / "octmnist.npz")
    pretend(monkeypatch, f"{address}/octmnist.npz")
    with pytest.raises(DataError, match=r"octmnist\.npz: .*0{32}"):
        MedMnist(name="octmnist", data_dir=tmp_path / "data").load()
    assert list((tmp_path / "data").iterdir()) == []


def test_pixels_and_channels(medmnist_file: Write) -> None:
    grey = MedMnist(name="octmnist", path=medmnist_file(), center=0.25, scale=2.0).load()
    raw = np.load(medmnist_file())["train_images"]
    assert grey.train.features.shape == (80, 1, 28, 28)
    assert np.array_equal(
        grey.train.features[:, 0], ((raw / 255.0 - 0.25) / 2.0).astype(np.float32)
    )
    colour_file = medmnist_file("pathmnist.npz", channels=3)
    colour = MedMnist(name="pathmnist", path=colour_file, center=0.0).load()
    raw = np.load(colour_file)["train_images"]
    assert colour.train.features.shape == (80, 3, 28, 28)
    assert colour.train.features[7, 2, 5, 9] == np.float32(raw[7, 5, 9, 2] / 255.0)


def test_several_classes_and_validation_split(
    medmnist_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    path = medmnist_file()
    plain = MedMnist(name="octmnist", path=path).load()
    more = MedMnist(name="octmnist", path=path, with_val=True).load()
    assert plain.classes == tuple(OCT_LABELS.values())
    assert (len(plain.train), len(more.train), len(plain.test)) == (80, 88, 16)
    assert plain.train.labels.tolist() == [i % 4 for i in range(80)]
    subset = MedMnist(name="octmnist", path=path, finetune_classes=(1, 3)).load()
    assert subset.classes == ("diabetic macular edema", "normal")
    assert subset.train.labels.tolist() == [0, 1] * 20


def test_held_out_classes_as_in_octmnist(
    medmnist_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    path = medmnist_file(train=400)
    source = MedMnist(
        name="octmnist",
        path=path,
        positive=(0, 1, 2),
        held_out=(2,),
        finetune_classes=(2, 3),
        keep={3: 0.4},
        pretrain_public=True,
    )
    dataset = source.load()
    everyone = MedMnist(name="octmnist", path=path).load().train
    assert dataset.classes == ("normal", "drusen")
    assert dataset.pretrain is not None
    normal = everyone.ids[everyone.labels == 3]
    kept = normal[uniform(normal, "keep") < 0.4]
    drusen = everyone.ids[everyone.labels == 2]
    assert set(dataset.train.ids) == {*drusen, *kept}
    assert set(dataset.pretrain.ids) == set(everyone.ids) - {*drusen, *kept}
    assert dataset.train.labels.sum() == len(drusen) == 100
    assert 20 <= len(kept) <= 60
    assert dataset.pretrain.labels.sum() == 200, "the two abnormal classes that are not held out"
    assert dataset.pretrain.public.all()
    assert not dataset.train.public.any()
    assert np.bincount(dataset.test.labels).tolist() == [4, 4], "the test set is not thinned"
    ids = dataset.selection.facts[0]
    assert ids.code == "ids_by_content_of_classes_thinned"
    assert ids.values == {"classes": ("2", "3"), "rates": ("3=0.4",), "key": "keep"}


def test_queries(medmnist_file: Write, tmp_path: Path) -> None:
    source = MedMnist(
        name="octmnist", path=medmnist_file(), positive=(0, 1, 2), finetune_classes=(2, 3)
    )
    raw = np.load(medmnist_file())
    np.savez(tmp_path / "q.npz", images=raw["test_images"], labels=raw["test_labels"])
    assert (
        source.load_queries(tmp_path / "q.npz").labels.tolist()
        == (raw["test_labels"][:, 0] < 3).astype(int).tolist()
    )
    np.savez(tmp_path / "large.npz", x=np.zeros((2, 64, 64), dtype=np.uint8))
    with pytest.raises(
        DataError,
        match=r"large\.npz: .*\b64\b.*\b28\b",
    ):
        source.load_queries(tmp_path / "large.npz")


# -- refusals
# --------------------------------------------------------------------------------------------------

NO_FILE: list[tuple[dict[str, Any], type[AgtError], str]] = [
    (
        {"name": "octmnst"},
        ConfigError,
        r"dataset\.name: .*'octmnst'.*'octmnist'",
    ),
    ({"size": 64}, ConfigError, r"dataset\.size=64: .*\[28\]"),
    (
        {"download": False},
        DataMissing,
        r"octmnist\.npz .*dataset\.download=true.*http",
    ),
    (
        {"path": "mine.npz"},
        DataMissing,
        r"mine\.npz .*dataset\.path",
    ),
    ({"name": "chestmnist"}, DataError, "chestmnist: "),
]


@pytest.mark.parametrize(("settings", "kind", "message"), NO_FILE)
def test_what_cannot_be_loaded_without_a_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    kind: type[AgtError],
    message: str,
) -> None:
    pretend(monkeypatch)
    with pytest.raises(kind, match=message):
        validate(MedMnist, {"name": "octmnist", "data_dir": tmp_path, **settings}, "dataset").load()


BYTES = np.uint8
BAD_FILES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"positive": (7,)},
        {},
        r"bad\.npz: dataset\.positive .*\b7\b",
    ),
    ({"positive": (0, 1, 2, 3)}, {}, r"octmnist: dataset\.positive"),
    ({"keep": dict.fromkeys(range(4), 0.0)}, {}, "train split"),
    (
        {},
        {"test_images": np.zeros((0, 28, 28), BYTES), "test_labels": np.zeros((0, 1), BYTES)},
        "test split",
    ),
    (
        {},
        {"train_labels": np.zeros((80, 14), BYTES)},
        r"train_labels' .*uint8.*\(80, 14\)",
    ),
    ({}, {"train_labels": np.zeros((80, 1))}, r"train_labels' .*float64.*\(80, 1\)"),
    (
        {},
        {"train_images": np.zeros((80, 28, 28, 28), BYTES)},
        r"train_images' .*\(80, 28, 28, 28\)",
    ),
    ({}, {"train_images": np.zeros((80, 28, 28))}, "train_images' .*float64"),
    ({}, {"train_labels": np.zeros((79, 1), BYTES)}, r"train.*\b80\b.*\b79\b"),
    ({}, {"test_images": None}, "'test_images'"),
]


@pytest.mark.parametrize(("settings", "changes", "message"), BAD_FILES)
def test_a_file_that_is_not_as_it_should_be(
    medmnist_file: Write,
    tmp_path: Path,
    settings: dict[str, Any],
    changes: dict[str, Any],
    message: str,
) -> None:
    arrays = {**np.load(medmnist_file()), **changes}
    np.savez(
        tmp_path / "bad.npz", **{name: array for name, array in arrays.items() if array is not None}
    )
    with pytest.raises(DataError, match=message):
        MedMnist(name="octmnist", path=tmp_path / "bad.npz", **settings).load()


BAD_MNIST: list[tuple[dict[str, Any], str]] = [
    ({"images": np.zeros((80, 8, 8), BYTES)}, r"m\.npz: .*8 x 8\b.*28 x 28\b"),
    ({"images": np.zeros((80, 28, 28))}, r"m\.npz: .*float64.*uint8"),
    ({"labels": np.arange(80) % 11}, r"row 11\b.*'10'"),
    ({"labels": np.arange(79) % 10}, r"\b80\b.*\b79\b.*'labels'"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_MNIST)
def test_a_file_of_mnist_that_is_not_as_it_should_be(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    make_mnist(tmp_path / "m.npz", **changes)
    with pytest.raises(DataError, match=message):
        Mnist(path=tmp_path / "m.npz").load()


def test_blobs_queries(tmp_path: Path) -> None:
    source = Blobs(center=1.25, std=0.35)
    for name, text in (
        ("q", "x1,x2,label,id\n0.5,-2,right,one\n1,1,,two\n"),
        ("bad", "x1,x2,x3\n1,2,3\n"),
        ("no", "x1,x2\n"),
    ):
        (tmp_path / f"{name}.csv").write_text(text)
    queries = source.load_queries(tmp_path / "q.csv")
    assert queries.features[0].tolist() == [0.5, -2.0, 0.25, 4.0, 0.125, -8.0]
    assert queries.labels.tolist() == [1, UNLABELLED]
    assert queries.ids.tolist() == ["one", "two"]
    for name, message in (
        ("bad", r"bad\.csv: .*\b3\b.*\b2\b"),
        ("no", r"no\.csv: "),
    ):
        with pytest.raises(DataError, match=message):
            source.load_queries(tmp_path / f"{name}.csv")


def test_rows_are_numbered_as_the_whole_set_is() -> None:
    """Of digits of two classes: a certificate's row names the image in the set that everybody
    has.
    """
    from sklearn.datasets import load_digits

    loaded = Digits(classes=[3, 8]).load()
    for part in (loaded.train, loaded.test):
        assert part.rows is not None
        assert (load_digits().target[part.rows] == np.array([3, 8])[part.labels]).all()
