"""train and certify through the frozen public encoder, on a small file in OCT-MNIST's format."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from records import reseal

from agt_cli.cli import main


@pytest.fixture
def octmnist(tmp_path: Path) -> Path:
    """Random images whose brightness tells the four classes apart."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 400), ("val", 8), ("test", 40)):
        labels = np.arange(n) % 4
        images = rng.integers(0, 60, size=(n, 28, 28)) + 40 * labels[:, None, None]
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images.astype(np.uint8), labels.astype(np.uint8)[:, None]
    np.savez(tmp_path / "octmnist.npz", **arrays)
    return tmp_path / "octmnist.npz"


def test_train_and_certify(octmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
    assert len(list(Path("outputs/encoders").glob("*.safetensors"))) == 1, "kept beside the runs, and reused"
    assert main(["certify", "run=t", "hydra.run.dir=c", "-q", "--json"]) == 0
    table = pd.read_parquet("c/certificates.parquet")
    assert len(table) == 20, "test records of the two classes that fine-tuning is about"
    with np.load(octmnist) as data:
        np.savez(tmp_path / "queries.npz", x=data["test_images"][-1:], labels=data["test_labels"][-1:])
    octmnist.unlink()
    shutil.rmtree("outputs")
    assert main(["certify", "run=t", "inputs=queries.npz", "hydra.run.dir=q", "-q", "--json"]) == 0
    alone = pd.read_parquet("q/certificates.parquet").round({"score": 12}).iloc[0]  # a product's last bits go by its size
    beside = table.round({"score": 12}).iloc[-1]
    assert alone[1:].tolist() == beside[1:].tolist(), "the same, with neither data nor encoder to look at"


def test_another_encoder_is_noticed(
    octmnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = ["dataset.declared_size=120", "model.encoder.epochs=1", "training.epochs=1", "kgrid=sparse", "-q"]
    assert main(["train", "experiment=octmnist", f"dataset.path={octmnist}", *tiny, "hydra.run.dir=t"]) == 0
    config = Path("t/config.yaml")
    config.write_text(config.read_text().replace("    seed: 0\n", "    seed: 1\n", 1))
    reseal(Path("t"))
    assert main(["certify", "run=t", "-q"]) == 2
    assert "the encoder's features changed since it was trained on" in capsys.readouterr().err
