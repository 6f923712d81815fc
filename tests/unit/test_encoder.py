"""The frozen encoder: trained on public records, cached, loaded or refused; features depend on
one record alone.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agt_cli._experiments.encoder import EncoderConfig, gradient_width
from safetensors.torch import load_file, save, save_file
from synthetic import refused
from torch import nn
from torch.nn import functional as F

from agt.data.blobs import Blobs
from agt.data.dataset import Dataset
from agt.data.images import MedMnist
from agt.data.records import Records
from agt.errors import DataError, DataMissing
from agt.facts import evidence, not_held
from agt.models.box import copy_initial_parameters
from agt.settings import KGridConfig, RelationConfig, TrainingConfig
from agt.store.folder import Folder, NewFolder
from agt.training.loop import train
from agt.training.setup import TrainingSetup
from agt_cli._experiments import encoder as module


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Images whose brightness rises with their class; class 2 is held out."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "octmnist.npz"
    arrays = {}
    for split, n in (("train", 600), ("test", 40)):
        labels = np.arange(n) % 4
        images = rng.integers(0, 120, size=(n, 28, 28)) + 40 * (3 - labels)[:, None, None]
        arrays |= {
            f"{split}_images": images.astype(np.uint8),
            f"{split}_labels": labels.astype(np.uint8)[:, None],
        }
    np.savez(path, **arrays)
    source = MedMnist(
        name="octmnist",
        path=path,
        positive=(0, 1, 2),
        held_out=(2,),
        finetune_classes=(2, 3),
        keep={3: 0.5},
        pretrain_public=True,
    )
    return source.load()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EncoderConfig:
    return EncoderConfig(epochs=2, hidden=(20,), cache_dir=tmp_path_factory.mktemp("cache"))


def only_file(config: EncoderConfig) -> Path:
    (path,) = config.cache_dir.iterdir()
    return path


def encode(config: EncoderConfig, dataset: Dataset) -> tuple[Dataset, Any]:
    """The data set as its encoder sees it, and the encoder's dense layers."""
    encoder = config.load(dataset)
    return encoder.encode(dataset), encoder.head()


def rows_of(records: Records, rows: Any) -> Records:
    return records.take(np.asarray(rows))


def test_features_are_the_convolutions_by_definition(
    dataset: Dataset, config: EncoderConfig
) -> None:
    encoded, _ = encode(config, dataset)
    tensors = {
        name: tensor.double().numpy() for name, tensor in load_file(only_file(config)).items()
    }

    def convolve(image: np.ndarray, layer: str, stride: int) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(image, (4, 4), axis=(1, 2))[
            :, ::stride, ::stride
        ]
        out = (
            np.einsum("chwij,ocij->ohw", windows, tensors[f"{layer}.weight"])
            + tensors[f"{layer}.bias"][:, None, None]
        )
        return np.maximum(out, 0)

    for row in (0, 7):
        image = dataset.train.features[row].astype(np.float64)
        expected = convolve(convolve(image, "conv.0", 2), "conv.2", 1).ravel()
        assert encoded.train.features[row] == pytest.approx(expected, abs=1e-4)


def test_head_continues_the_base_model(dataset: Dataset, config: EncoderConfig) -> None:
    encoded, head = encode(config, dataset)
    assert head is not None
    encoder = config.load(dataset)
    with torch.inference_mode():
        whole = encoder.model(torch.from_numpy(dataset.test.features))
        z = torch.from_numpy(encoded.test.features)
        z = (
            torch.relu(z @ head["weight.0"].T + head["bias.0"]) @ head["weight.1"].T
            + head["bias.1"]
        )
    assert torch.allclose(whole, z, atol=1e-4)


def test_names_stay_and_pretraining_records_go(dataset: Dataset, config: EncoderConfig) -> None:
    encoded, _ = encode(config, dataset)
    for before, after in ((dataset.train, encoded.train), (dataset.test, encoded.test)):
        for name in ("labels", "ids", "units", "public"):
            assert np.array_equal(getattr(before, name), getattr(after, name))
    assert encoded.pretrain is None
    assert encoded.plane is None
    assert encoded.scaling["center"] == 0.5
    assert encoded.scaling["encoder"] == config.load(dataset).digest
    assert encoded.preprocessing.held
    assert "encoder_records_public" in {fact.code for fact in encoded.preprocessing.facts}
    assert encoded.selection == dataset.selection


@pytest.mark.parametrize("balanced", [True, False])
def test_the_order_of_the_public_records_does_not_show(
    dataset: Dataset, config: EncoderConfig, balanced: bool, tmp_path: Path
) -> None:
    assert dataset.pretrain is not None
    order = np.random.default_rng(0).permutation(len(dataset.pretrain))
    turned = replace(dataset, pretrain=dataset.pretrain.take(order))
    fresh = replace(config, epochs=1, balanced=balanced, cache_dir=tmp_path / "one")
    again = replace(fresh, cache_dir=tmp_path / "other")
    assert fresh.load(dataset).digest == again.load(turned).digest
    assert only_file(fresh).name == only_file(again).name


def test_the_number_of_threads_does_not_show(
    dataset: Dataset, config: EncoderConfig, tmp_path: Path
) -> None:
    before = torch.get_num_threads()
    found = {}
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            found[threads] = replace(config, cache_dir=tmp_path / str(threads)).load(dataset).digest
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("threads", [1, 2])
def test_a_records_features_are_the_same_bits_in_any_company(
    dataset: Dataset, config: EncoderConfig, threads: int
) -> None:
    encoder = config.load(dataset)
    n = len(dataset.train)
    whole = encoder.apply(dataset.train.features)
    rng = np.random.default_rng(0)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for rows in (
            rng.permutation(n),
            np.arange(1, n),
            np.delete(np.arange(n), [3, 50]),
            np.arange(5),
            [n - 1],
        ):
            assert np.array_equal(encoder.apply(dataset.train.features[rows]), whole[rows])
        repeated = np.repeat(np.arange(3), 200)
        assert np.array_equal(encoder.apply(dataset.train.features[repeated]), whole[repeated])
    finally:
        torch.set_num_threads(before)


def test_a_kept_encoder_makes_the_same_bits(
    dataset: Dataset, config: EncoderConfig, tmp_path: Path
) -> None:
    encoded, _ = encode(config, dataset)
    folder = NewFolder(tmp_path / "kept", "train")
    config.load(dataset).save(folder)
    folder.finish()
    kept = config.read(Folder.open(tmp_path / "kept", "train"))
    assert np.array_equal(kept.apply(dataset.test.features[4:5])[0], encoded.test.features[4])
    with pytest.raises(DataError, match=r"\b28\b.*\b20\b"):
        kept.apply(np.zeros((1, 1, 20, 20), np.float32))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 5},
        {"hidden": (21,)},
        {"epochs": 1},
        {"lr": 2e-3},
        {"balanced": False},
        {"robust": 0.1},
    ],
)
def test_signature_covers_all_that_determines_the_model(
    dataset: Dataset, config: EncoderConfig, change: dict[str, Any]
) -> None:
    assert dataset.pretrain is not None
    sign = module._signature
    other = EncoderConfig(**{**config.__dict__, **change})
    assert sign(config, dataset.pretrain, 1) != sign(other, dataset.pretrain, 1)
    assert sign(config, dataset.pretrain, 1) != sign(config, dataset.pretrain, 3)
    fewer = dataset.pretrain.take(np.arange(1, len(dataset.pretrain)))
    assert sign(config, dataset.pretrain, 1) != sign(config, fewer, 1)
    moved = EncoderConfig(**{**config.__dict__, "cache_dir": Path("elsewhere")})
    assert sign(config, dataset.pretrain, 1) == sign(moved, dataset.pretrain, 1)


def cached(dataset: Dataset, folder: Path) -> tuple[EncoderConfig, Path]:
    config = EncoderConfig(epochs=1, hidden=(8,), cache_dir=folder)
    config.load(dataset)
    return config, only_file(config)


def test_a_kept_encoder_that_was_damaged_or_changed_is_an_error(
    dataset: Dataset, tmp_path: Path
) -> None:
    config, path = cached(dataset, tmp_path)
    EncoderConfig(epochs=1, hidden=(8,), seed=1, cache_dir=tmp_path).load(dataset)
    (second,) = set(tmp_path.iterdir()) - {path}
    whole = path.read_bytes()
    tensors = load_file(path)
    changed = r"\.safetensors: "

    def saved(**others: torch.Tensor) -> bytes:
        return save(
            {name: tensor for name, tensor in {**tensors, **others}.items() if tensor.numel()}
        )

    for content, message in (
        (whole[:-100], r"\.safetensors: .*not fully covered"),
        (
            saved(**{"dense.0.bias": torch.full((8,), torch.nan)}),
            r"\.safetensors: dense\.0\.bias .*NaN",
        ),
        (
            saved(**{"dense.0.bias": torch.zeros(9)}),
            r"\.safetensors: .*dense\.0\.bias.*\b9\b",
        ),
        (
            saved(**{"conv.2.bias": torch.zeros(0)}),
            r"\.safetensors: .*conv\.2\.bias",
        ),
        (second.read_bytes(), changed),  # of the same shapes
        (save(load_file(second)), changed),
        # a weight's last digits, still finite
        (whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:], changed),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            config.load(dataset)
    path.write_bytes(whole)
    config.load(dataset)


def test_other_code_or_versions_are_another_encoder(
    dataset: Dataset, config: EncoderConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dataset.pretrain is not None
    names = {module._signature(config, dataset.pretrain, 1)}
    monkeypatch.setattr(module, "machine", lambda: {"torch": "1.0"})
    names.add(module._signature(config, dataset.pretrain, 1))
    monkeypatch.setattr(module, "code_digest", lambda modules: "edited")
    names.add(module._signature(config, dataset.pretrain, 1))
    assert len(names) == 3


def test_given_weights(dataset: Dataset, tmp_path: Path) -> None:
    config, path = cached(dataset, tmp_path)
    given = EncoderConfig(hidden=(8,), weights=path, cache_dir=tmp_path / "unused")
    features = encode(config, dataset)[0].train.features
    no_public = replace(dataset, pretrain=None)
    encoded, head = encode(given, no_public)
    assert np.array_equal(encoded.train.features, features)
    assert head is not None
    assert not (tmp_path / "unused").exists()
    assert not encoded.preprocessing.held
    assert "model.encoder.weights_public=true" in encoded.preprocessing.why
    declared = EncoderConfig(hidden=(8,), weights=path, weights_public=True)
    assert encode(declared, no_public)[0].preprocessing.held
    with pytest.raises(DataError, match=r"\.safetensors: .*dense\.2\.weight"):
        encode(EncoderConfig(hidden=(9,), weights=path), no_public)
    tensors = load_file(path)
    save_file(
        {name: tensor for name, tensor in tensors.items() if name.startswith("conv")},
        tmp_path / "conv.safetensors",
    )
    only_convolutions = EncoderConfig(weights=tmp_path / "conv.safetensors")
    encoded, head = encode(only_convolutions, no_public)
    assert np.array_equal(encoded.train.features, features)
    assert head is None
    with pytest.raises(DataMissing, match=r"none\.safetensors.*model\.encoder\.weights"):
        encode(EncoderConfig(weights=tmp_path / "none.safetensors"), dataset)


def test_condition_e_fails_where_the_encoder_is_not_public(
    dataset: Dataset, config: EncoderConfig
) -> None:
    assert dataset.pretrain is not None
    undeclared = replace(dataset.pretrain, public=np.zeros(len(dataset.pretrain), dtype=bool))
    fact = encode(config, replace(dataset, pretrain=undeclared))[0].preprocessing
    assert not fact.held
    assert "dataset.pretrain_public=true" in fact.why
    both = replace(
        dataset,
        train=replace(dataset.train, ids=np.r_[dataset.pretrain.ids[:1], dataset.train.ids[1:]]),
    )
    fact = encode(config, both)[0].preprocessing
    assert not fact.held
    (saw,) = [each for each in fact.facts if each.code == "encoder_saw_private"]
    assert saw.values["record"] == dataset.pretrain.ids[0]
    already = replace(
        dataset, preprocessing=evidence(not_held("own_words", text="means of private records"))
    )
    fact = encode(config, already)[0].preprocessing
    assert not fact.held
    assert fact.facts[0] == already.preprocessing.facts[0]


def test_nothing_to_train_on(
    dataset: Dataset, tmp_path: Path, medmnist_file: Callable[..., Path]
) -> None:
    config = EncoderConfig(cache_dir=tmp_path / "cache")
    refused(
        (
            DataError,
            r"no public records to train the encoder on.*dataset\.held_out",
            lambda: encode(config, replace(dataset, pretrain=None)),
        ),
        (
            DataError,
            r"records have shape \(6,\).*needs images",
            lambda: encode(config, Blobs(center=1.0, std=0.5, n_train=10).load()),
        ),
    )
    assert dataset.pretrain is not None
    one_class = dataset.pretrain.take(dataset.pretrain.labels == 1)
    with pytest.raises(DataError, match=r"^octmnist"):
        encode(config, replace(dataset, pretrain=one_class))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_width_holds_the_gradients_over_the_box(outputs: int) -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, outputs))
    x = torch.randn(6, 4)
    y = torch.arange(6) % max(outputs, 2)
    width = gradient_width(dense, x, y, 0.05)
    width.backward()
    assert all(
        value.grad is not None and value.grad.abs().sum() > 0 for value in dense.parameters()
    )
    start = {name: value.detach().clone() for name, value in dense.named_parameters()}
    count = sum(value.numel() for value in start.values())

    def loss(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        if outputs == 1:
            return F.binary_cross_entropy_with_logits(logits[:, 0], label.to(logits.dtype))
        return F.cross_entropy(logits, label)

    def gradients(point: dict[str, torch.Tensor]) -> torch.Tensor:
        dense.load_state_dict(point)
        rows = [
            torch.autograd.grad(loss(dense(x[i : i + 1]), y[i : i + 1]), list(dense.parameters()))
            for i in range(6)
        ]
        return torch.stack([torch.cat([g.ravel() for g in row]) for row in rows])

    seen = torch.stack(
        [
            gradients({n: v + 0.05 * torch.randn_like(v).sign() for n, v in start.items()})
            for _ in range(300)
        ]
    )
    spread = (seen.amax(0) - seen.amin(0)).sum(dim=1).mean() / (0.1 * count)
    assert spread < width < 20 * spread


def test_a_width_in_closed_form() -> None:
    dense = nn.Sequential(nn.Linear(2, 1))
    with torch.no_grad():
        dense[0].weight.copy_(torch.tensor([[1.0, -2.0]]))
        dense[0].bias.fill_(0.5)
    # the logit is 1 * 3 - 2 * 1 + .5 = 1.5, and moves by .25 (3 + 1 + 1); each gradient is its
    # sigmoid's times 3, 1 or 1
    p = torch.sigmoid(torch.tensor([1.5 - 1.25, 1.5 + 1.25]))
    assert gradient_width(
        dense, torch.tensor([[3.0, 1.0]]), torch.tensor([1]), 0.25
    ).item() == pytest.approx((5 * (p[1] - p[0]) / (3 * 0.5)).item(), rel=1e-5)


def test_robust_pretraining_narrows_boxes(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TrainingConfig(
        loss="binary_cross_entropy", epochs=3, lr=0.02, clip=0.05, dtype="float32"
    )
    setup = TrainingSetup(
        2, training, RelationConfig(name="add_remove"), KGridConfig(values=(5,)), declared_size=200
    )
    plain = EncoderConfig(channels=(4, 8), hidden=(20,), epochs=20, cache_dir=tmp_path)
    widths = []
    for config in (plain, replace(plain, robust=0.3)):
        encoder = config.load(dataset)
        encoded = encoder.encode(dataset)
        head = nn.Sequential(nn.Linear(800, 20), nn.ReLU(), nn.Linear(20, 1))
        assert copy_initial_parameters(head, encoder.head() or {})
        assert dataset.pretrain is not None
        logits = encoder.model(torch.from_numpy(dataset.pretrain.features))[:, 0]
        assert ((logits > 0).numpy() == dataset.pretrain.labels).mean() > 0.95
        box = train(head, setup, encoded.train)
        widths.append(sum((box.upper[name] - box.lower[name]).sum().item() for name in box.nominal))
    assert widths[1] < 0.7 * widths[0], widths
    monkeypatch.delattr(module, "gradient_width")
    replace(plain, epochs=1).load(dataset)  # without a weight, without its arithmetic
