"""OCT-MNIST's whole path on a four-class file in the official format: base model, balance, train
and certify.

The images are synthetic: brightness says the class, and drusen lies between what the base model has
learnt to tell apart.
"""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import reseal

from agt.data.images import MedMnist
from agt_cli.cli import main

# choroidal neovascularization, diabetic macular edema, drusen, normal
BRIGHTNESS = np.array([20, 60, 105, 150])


def write(path: Path) -> Path:
    """100 drusen among 500 training records, 200 of them normal."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, counts in (
        ("train", (100, 100, 100, 200)),
        ("val", (2, 2, 2, 2)),
        ("test", (30, 30, 30, 30)),
    ):
        labels = rng.permutation(np.repeat(np.arange(4), counts))
        images = (
            rng.integers(0, 100, size=(len(labels), 28, 28)) + BRIGHTNESS[labels][:, None, None]
        )
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = (
            images.astype(np.uint8),
            labels.astype(np.uint8)[:, None],
        )
    np.savez(path, **arrays)
    return path


@pytest.fixture
def octmnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "octmnist.npz")


def source(path: Path) -> MedMnist:
    """conf/dataset/octmnist.yaml with ``SETTINGS``."""
    classes = {"positive": (0, 1, 2), "held_out": (2,), "finetune_classes": (2, 3)}
    return MedMnist(name="octmnist", path=path, keep={3: 0.5}, declared_size=150, **classes)


def test_half_of_what_is_fine_tuned_is_drusen_and_each_record_s_part_is_its_own(
    octmnist: Path,
) -> None:
    dataset = source(octmnist).load()
    assert 0.4 < dataset.train.labels.mean() < 0.6, "balanced by a fixed rate, not by counting"
    assert dataset.pretrain is not None
    assert not np.isin(dataset.train.ids, dataset.pretrain.ids).any()
    arrays = dict(np.load(octmnist))
    gone = np.flatnonzero(arrays["train_labels"][:, 0] == 2)[:40]
    for name in ("train_images", "train_labels"):
        arrays[name] = np.delete(arrays[name], gone, axis=0)
    np.savez(octmnist.with_name("fewer.npz"), **arrays)
    fewer = source(octmnist.with_name("fewer.npz")).load()
    assert len(fewer.train) == len(dataset.train) - 40
    assert set(fewer.train.ids) < set(dataset.train.ids)
    assert fewer.pretrain is not None
    assert np.array_equal(fewer.pretrain.ids, dataset.pretrain.ids), (
        "forty drusen less move no normal record"
    )


def test_no_file_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "experiment=octmnist", "dataset.download=false"]) == 4
    said = capsys.readouterr().err
    assert ("octmnist.npz" in said and "http" in said) or "--no-deps medmnist" in said
    assert main(["train", "experiment=octmnist", "dataset.path=mine.npz"]) == 4
    assert "mine.npz" in capsys.readouterr().err


def test_digits_in_its_format_hold_out_the_fours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = np.tile(np.arange(10), 300)
    images = np.broadcast_to(digits[:, None, None], (3000, 28, 28)).astype(np.uint8)
    images = images + (np.arange(3000) % 200)[:, None, None].astype(np.uint8)
    np.savez(tmp_path / "mnist_t10k.npz", images=images, labels=digits)
    script = Path(__file__).parents[2] / "scripts" / "make_octmnist_like.py"
    words = [str(script), str(tmp_path / "mnist_t10k.npz"), str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    runpy.run_path(str(script), run_name="__main__")
    with np.load(tmp_path / "octmnist_like.npz") as made:
        assert np.bincount(made["test_labels"].ravel()).tolist() == [250] * 4
        assert np.bincount(made["train_labels"].ravel()).tolist() == [350, 350, 50, 1250]
    dataset = source(tmp_path / "octmnist_like.npz").load()
    assert dataset.pretrain is not None
    assert dataset.train.labels.sum() == 50, "the fours are fine-tuned on, all of them"


def test_train_and_certify(octmnist: Path, tmp_path: Path) -> None:
    arguments = [
        "train",
        "experiment=octmnist",
        f"dataset.path={octmnist}",
        "dataset.declared_size=120",
        "model.encoder.epochs=2",
        "kgrid=sparse",
        "hydra.run.dir=t",
        "-q",
        "--json",
    ]
    assert main(arguments) == 0
    assert len(list(Path("outputs/encoders").glob("*.safetensors"))) == 1, (
        "kept beside the runs, and reused"
    )
    assert main(["certify", "run=t", "hydra.run.dir=c", "-q", "--json"]) == 0
    table = pd.read_parquet("c/certificates.parquet")
    assert len(table) == 60, "test records of the two classes that fine-tuning is about"
    with np.load(octmnist) as data:
        np.savez(
            tmp_path / "queries.npz", x=data["test_images"][-1:], labels=data["test_labels"][-1:]
        )
    octmnist.unlink()
    shutil.rmtree("outputs")
    assert main(["certify", "run=t", "inputs=queries.npz", "hydra.run.dir=q", "-q", "--json"]) == 0
    # a product's last bits go by its size
    alone = pd.read_parquet("q/certificates.parquet").round({"score": 12}).iloc[0]
    beside = table.round({"score": 12}).iloc[-1]
    assert alone[2:].tolist() == beside[2:].tolist(), (
        "the same, with neither data nor encoder to look at"
    )


def test_another_encoder_is_noticed(octmnist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = [
        "dataset.declared_size=120",
        "model.encoder.epochs=1",
        "training.epochs=1",
        "kgrid=sparse",
        "-q",
    ]
    assert (
        main(["train", "experiment=octmnist", f"dataset.path={octmnist}", *tiny, "hydra.run.dir=t"])
        == 0
    )
    config = Path("t/config.yaml")
    config.write_text(config.read_text().replace("    seed: 0\n", "    seed: 1\n", 1))
    reseal(Path("t"))
    assert main(["certify", "run=t", "-q"]) == 2
    assert "encoder" in capsys.readouterr().err
