"""OCT-MNIST's whole path on a four-class file in the official format: base model, balance, fine-tuning, gammas, k.

The images are synthetic: brightness says the class, and drusen lies between what the base model has learnt to tell apart.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from agt.data.images import MedMnist
from agt_cli.cli import main
from experiments.encoder import EncoderConfig, load_encoder

BRIGHTNESS = np.array([20, 60, 105, 150])  # choroidal neovascularization, diabetic macular edema, drusen, normal
KS = [0, 1, 5, 100]
SETTINGS = ("dataset.keep={3: 0.5}", "dataset.declared_size=150", f"kgrid.values={KS}")
SMALL = EncoderConfig(channels=(4, 8), hidden=(16,), epochs=4, seed=1)  # a base model that gets many drusen wrong
SMALL_SETTINGS = (
    "model.hidden=[16]",
    "model.encoder.hidden=[16]",
    "model.encoder.channels=[4,8]",
    "model.encoder.epochs=4",
    "model.encoder.seed=1",
)
GAMMAS = (0.05, 0.2)


def write(path: Path) -> Path:
    """100 drusen among 500 training records, 200 of them normal."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, counts in (("train", (100, 100, 100, 200)), ("val", (2, 2, 2, 2)), ("test", (30, 30, 30, 30))):
        labels = rng.permutation(np.repeat(np.arange(4), counts))
        images = rng.integers(0, 100, size=(len(labels), 28, 28)) + BRIGHTNESS[labels][:, None, None]
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images.astype(np.uint8), labels.astype(np.uint8)[:, None]
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


def test_half_of_what_is_fine_tuned_is_drusen_and_each_record_s_part_is_its_own(octmnist: Path) -> None:
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
    assert np.array_equal(fewer.pretrain.ids, dataset.pretrain.ids), "forty drusen less move no normal record"


@pytest.mark.sweep
def test_sweep_over_gammas_and_k(octmnist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gammas = ",".join(map(str, GAMMAS))
    train = ["train", "-m", "experiment=octmnist", f"dataset.path={octmnist}", *SMALL_SETTINGS, *SETTINGS]
    assert main([*train, f"training.clip={gammas}", "training.chosen_on=public", "hydra.sweep.dir=t", "-q", "--json"]) == 0
    assert len(list(Path("outputs/encoders").glob("*.safetensors"))) == 1, "one base model serves every gamma"
    capsys.readouterr()
    certified, before = [], base_accuracy(octmnist)
    for job, gamma in enumerate(GAMMAS):
        assert f"clip: {gamma}\n" in Path(f"t/{job}/config.yaml").read_text()
        assert main(["certify", f"run=t/{job}", f"hydra.run.dir=c{job}", "-q", "--json"]) == 0
        table = pd.read_csv(f"c{job}/tables/certified.csv").set_index("k")["certified_fraction"]
        assert table.index.tolist() == KS
        assert table.is_monotonic_decreasing
        certified.append(table)
        each = pd.read_parquet(f"c{job}/certificates.parquet")
        drusen = each[each["label"] == "drusen"] if "drusen" in set(each["label"]) else each[each["label"] == "class 2"]
        assert len(drusen) == 30
        assert (drusen["prediction"] == drusen["label"]).mean() > before + 0.2
    assert (certified[0] >= certified[1]).all(), "a smaller gamma certifies at least as much here"
    assert certified[0].loc[1] > 0.9
    held = {c["letter"]: c["held"] for c in json.loads(Path("t/0/conditions.json").read_text())}
    assert held == {"a": False, "b": True, "c": True, "d": True, "e": True, "f": True, "g": True}, "a: the published grid"


def base_accuracy(path: Path) -> float:
    """The base model's accuracy on drusen, which it has never seen."""
    dataset = source(path).load()
    encoder = load_encoder(SMALL, dataset)
    drusen = dataset.test.features[dataset.test.labels == 1]
    with torch.no_grad():
        logits = encoder.model(torch.from_numpy(drusen))[:, 0]
    return float((logits > 0).float().mean())


def test_no_file_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "experiment=octmnist", "dataset.download=false"]) == 4
    said = capsys.readouterr().err
    assert ("octmnist.npz is not there" in said and "get http" in said) or "pip install --no-deps medmnist" in said
    assert main(["train", "experiment=octmnist", "dataset.path=mine.npz"]) == 4
    assert "mine.npz is not there" in capsys.readouterr().err
