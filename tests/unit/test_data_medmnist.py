"""MedMNIST: official files and their hashes, local files, classes mapped, held out and thinned."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import md5
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from agt.data import medmnist_info
from agt.data.dataset import DataError
from agt.data.ids import uniform
from agt.data.medmnist import MedMnist
from agt.errors import ConfigError, DataMissing
from agt.settings import validate

OCT_LABELS = {"0": "choroidal neovascularization", "1": "diabetic macular edema", "2": "drusen", "3": "normal"}
Write = Callable[..., Path]


def pretend(monkeypatch: pytest.MonkeyPatch, url: str = "http://127.0.0.1:9/none.npz", digest: str = "0" * 32) -> None:
    """medmnist as it would be if its OCTMNIST were at ``url``."""
    info = {"octmnist": {"python_class": "OCTMNIST", "task": "multi-class", "url": url, "MD5": digest, "label": OCT_LABELS}}
    monkeypatch.setattr(medmnist_info, "all_info", lambda: info)


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medmnist_info, "find_spec", lambda name: None)


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


def test_info_is_read_without_importing_medmnist_or_torchvision(tmp_path: Path) -> None:
    script = (
        "import sys; from agt.data.medmnist_info import info_of; i = info_of('octmnist');"
        "assert i is None or (i['label']['2'] == 'drusen' and i['MD5'] == 'c68d92d5b585d8d81f7112f81e2d0842'), i;"
        "assert not {'medmnist', 'torchvision'} & set(sys.modules), 'imported'; print(i is not None)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"HOME": str(tmp_path), "PATH": ""}, check=False
    )
    assert run.returncode == 0, run.stderr
    assert list(tmp_path.iterdir()) == [], "something was created in the home folder"
    if run.stdout.strip() == "False":
        pytest.skip("medmnist is not installed")


def test_info_of_a_package_without_info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "medmnist"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "info.py").write_text("OTHER = 1")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"info\.py: this version of medmnist has no INFO"):
        medmnist_info.all_info()
    (package / "info.py").write_text("INFO = {'a': {'task': 'binary'}}")
    assert medmnist_info.info_of("a") == {"task": "binary"}


def test_package_missing_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    with pytest.raises(DataMissing, match=r"run: pip install --no-deps medmnist$") as caught:
        MedMnist(name="octmnist", data_dir=tmp_path).load()
    assert caught.value.exit_code == 4


def test_local_file_needs_no_package(medmnist_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    dataset = MedMnist(name="octmnist", path=medmnist_file()).load()
    assert dataset.name == "octmnist (local file, hash unchecked)"
    assert dataset.classes == ("class 0", "class 1", "class 2", "class 3")


def test_unknown_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with pytest.raises(ConfigError, match=r"no MedMNIST data set is called 'octmnst'; did you mean 'octmnist'\?"):
        MedMnist(name="octmnst", data_dir=tmp_path).load()


def test_size_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with pytest.raises(ConfigError, match=r"dataset\.size: OCTMNIST comes in sizes \[28\], not 64"):
        MedMnist(name="octmnist", data_dir=tmp_path, size=64).load()


def test_official_hash(medmnist_file: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = medmnist_file()
    pretend(monkeypatch, digest=md5(path.read_bytes()).hexdigest())
    assert MedMnist(name="octmnist", data_dir=tmp_path, download=False).load().name == "octmnist"
    assert MedMnist(name="octmnist", path=path).load().name == "octmnist"
    pretend(monkeypatch)
    assert MedMnist(name="octmnist", path=path).load().name == "octmnist (local file, not the official hash)"
    with pytest.raises(DataError, match=r"octmnist\.npz: MD5 [0-9a-f]{32}, .*has 0{32}.*dataset\.path=octmnist\.npz"):
        MedMnist(name="octmnist", data_dir=tmp_path, download=False).load()


def test_absent_file_without_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with pytest.raises(DataMissing, match=r"octmnist\.npz is not there: set dataset\.download=true.*get http"):
        MedMnist(name="octmnist", data_dir=tmp_path, download=False).load()


def test_absent_local_file(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"mine\.npz is not there.*change dataset\.path or data_dir"):
        MedMnist(name="octmnist", data_dir=tmp_path, path=Path("mine.npz")).load()


def test_offline_says_where_to_get_and_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    place = tmp_path / "new" / "octmnist.npz"
    with pytest.raises(
        DataMissing, match=rf"cannot download.*http://127\.0\.0\.1:9/none\.npz yourself and put it at {place}"
    ):
        MedMnist(name="octmnist", data_dir=tmp_path / "new").load()
    assert not place.exists()


def test_download_is_verified_and_kept(
    medmnist_file: Write, server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
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
    with pytest.raises(DataError, match=r"the downloaded file does not have medmnist's MD5 0{32}"):
        MedMnist(name="octmnist", data_dir=tmp_path / "data").load()
    assert list((tmp_path / "data").iterdir()) == []


def test_pixels_and_channels(medmnist_file: Write) -> None:
    grey = MedMnist(name="octmnist", path=medmnist_file(), center=0.25, scale=2.0).load()
    raw = np.load(medmnist_file())["train_images"]
    assert grey.train.features.shape == (80, 1, 28, 28)
    assert np.array_equal(grey.train.features[:, 0], ((raw / 255.0 - 0.25) / 2.0).astype(np.float32))
    colour_file = medmnist_file("pathmnist.npz", channels=3)
    colour = MedMnist(name="pathmnist", path=colour_file, center=0.0).load()
    raw = np.load(colour_file)["train_images"]
    assert colour.train.features.shape == (80, 3, 28, 28)
    assert colour.train.features[7, 2, 5, 9] == np.float32(raw[7, 5, 9, 2] / 255.0)


def test_several_classes_and_validation_split(medmnist_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_held_out_classes_as_in_octmnist(medmnist_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    path = medmnist_file(train=400)
    source = MedMnist(name="octmnist", path=path, positive=(0, 1, 2), held_out=(2,), finetune_classes=(2, 3), keep={3: 0.4},
                      pretrain_public=True)  # fmt: skip
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
    assert "0.4 of class 3" in dataset.selection.why


def test_pretraining_records_that_nobody_declared_public(medmnist_file: Write) -> None:
    dataset = MedMnist(name="octmnist", path=medmnist_file(), held_out=(2,), finetune_classes=(2, 3), keep={3: 0.4}).load()
    assert dataset.pretrain is not None
    assert not dataset.pretrain.public.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": [2]}, "held_out needs finetune_classes"),
        ({"keep": {3: 0.5}, "finetune_classes": [0, 1]}, "keep names class 3"),
        ({"keep": {3: 1.5}}, r"dataset\.keep\.3: .*less than or equal to 1"),
        ({"size": 32}, "unknown value '32'"),
        ({"scale": 0.0}, r"dataset\.scale: .*greater than 0"),
        ({"positve": [1]}, r"did you mean 'positive'\?"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate(MedMnist, {"name": "octmnist", **settings}, "dataset")


def test_class_that_the_file_does_not_have(medmnist_file: Write) -> None:
    with pytest.raises(
        DataError, match=r"octmnist\.npz: dataset\.positive names class 7; the file has the classes 0, 1, 2, 3"
    ):
        MedMnist(name="octmnist", path=medmnist_file(), positive=(7,)).load()


def test_one_class_only(medmnist_file: Write) -> None:
    with pytest.raises(DataError, match="every training record has the class"):
        MedMnist(name="octmnist", path=medmnist_file(), positive=(0, 1, 2, 3)).load()


def test_empty_splits(medmnist_file: Write) -> None:
    with pytest.raises(DataError, match="the test split is empty"):
        MedMnist(name="octmnist", path=medmnist_file(test=0)).load()
    with pytest.raises(DataError, match="the train split is empty"):
        MedMnist(name="octmnist", path=medmnist_file(), keep=dict.fromkeys(range(4), 0.0)).load()


def test_unsupported_sets(medmnist_file: Write, tmp_path: Path) -> None:
    arrays = dict(np.load(medmnist_file()))
    np.savez(tmp_path / "many.npz", **{**arrays, "train_labels": np.zeros((80, 14), dtype=np.uint8)})
    with pytest.raises(DataError, match="train_labels has 14 labels per record; several labels are unsupported"):
        MedMnist(name="octmnist", path=tmp_path / "many.npz").load()
    np.savez(tmp_path / "solid.npz", **{**arrays, "train_images": np.zeros((80, 28, 28, 28), dtype=np.uint8)})
    with pytest.raises(DataError, match="three-dimensional sets are unsupported"):
        MedMnist(name="octmnist", path=tmp_path / "solid.npz").load()
    if medmnist_info.all_info() is not None:
        with pytest.raises(DataError, match="chestmnist: records with several labels are unsupported"):
            MedMnist(name="chestmnist", data_dir=tmp_path).load()


def test_malformed_files(medmnist_file: Write, tmp_path: Path) -> None:
    path = medmnist_file()
    arrays = dict(np.load(path))

    def saved(**changes: np.ndarray) -> MedMnist:
        np.savez(tmp_path / "odd.npz", **{**arrays, **changes})
        return MedMnist(name="octmnist", path=tmp_path / "odd.npz")

    with pytest.raises(DataError, match="expected uint8 pixels"):
        saved(train_images=arrays["train_images"] / 255.0).load()
    with pytest.raises(DataError, match="80 images and 79 labels"):
        saved(train_labels=arrays["train_labels"][1:]).load()
    np.savez(tmp_path / "half.npz", **{k: v for k, v in arrays.items() if not k.startswith("test")})
    with pytest.raises(DataError, match="no column or key 'test_images'"):
        MedMnist(name="octmnist", path=tmp_path / "half.npz").load()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"octmnist\.npz: truncated"):
        MedMnist(name="octmnist", path=path).load()


def test_queries(medmnist_file: Write, tmp_path: Path) -> None:
    path = medmnist_file()
    source = MedMnist(name="octmnist", path=path, positive=(0, 1, 2), finetune_classes=(2, 3))
    dataset = source.load()
    raw = np.load(path)
    rows = np.isin(raw["test_labels"][:, 0], (2, 3))
    np.savez(tmp_path / "q.npz", images=raw["test_images"][rows], labels=raw["test_labels"][rows])
    queries = source.load_queries(tmp_path / "q.npz")
    assert np.array_equal(queries.features, dataset.test.features)
    assert np.array_equal(queries.labels, dataset.test.labels)
    np.savez(tmp_path / "plain.npz", x=raw["test_images"])
    assert (source.load_queries(tmp_path / "plain.npz").labels == -1).all()
    np.savez(tmp_path / "large.npz", x=np.zeros((2, 64, 64), dtype=np.uint8))
    with pytest.raises(DataError, match="each record has 1 x 64 x 64 features, the model was trained on 1 x 28 x 28"):
        source.load_queries(tmp_path / "large.npz")


def test_the_real_pneumoniamnist(shared_data: Callable[[str], Path]) -> None:
    dataset = MedMnist(name="pneumoniamnist", path=shared_data("pneumoniamnist.npz"), positive=(1,)).load()
    assert (len(dataset.train), len(dataset.test)) == (3882, 624)
    assert dataset.name.startswith("pneumoniamnist (local file, ")
    assert np.bincount(dataset.train.labels).tolist() == [388, 3494]
    assert np.bincount(dataset.test.labels).tolist() == [234, 390]
    assert dataset.train.features.min() == -0.5
