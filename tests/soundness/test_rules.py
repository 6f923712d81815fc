"""Sampled containment of whole passes; training of smooth and pooled heads; pooling in the head
and beforehand.
"""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from adversary import assault
from adversary_settings import Setting
from checks import CASES, Case, factors
from synthetic import KERNELS, make_recipe, make_records, make_training
from torch import Tensor, nn

from agt.bounds import products as interval_products
from agt.bounds.activations import ReluRule
from agt.bounds.interval import Interval
from agt.bounds.products import EXACT
from agt.bounds.rounding import Rounding
from agt.bounds.rules import rules_for
from agt.certificates.box import certify
from agt.errors import ConfigError
from agt.kernels.cpu import CpuKernel
from agt.training.loop import train
from agt.training.setup import TrainingSetup
from agt_cli.cli import main

BCE = {"loss": "binary_cross_entropy", "lr": 0.3, "epochs": 2}
HEADS = (
    Case("tanh", (4, 3), activation="tanh", training=BCE),
    Case("gelu", (4, 3), activation="gelu", training=BCE),
    Case(
        "gelu, softmax", (4,), classes=4, activation="gelu", training={"momentum": 0.3, "lr": 0.05}
    ),
    Case("sigmoid", (4,), activation="sigmoid"),
    Case("softplus, rump", (4,), activation="softplus", training={"product": "rump"}),
    Case("leaky relu", (4, 3), activation="leaky_relu"),
    Case("pooled", (3,), channels=2, pooled=True, training={"momentum": 0.3, "lr": 0.05}),
    Case("squared error", (4,), activation="tanh", training={"loss": "squared_error", "lr": 0.1}),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)
def test_every_claim_of_neighbours(case: Case) -> None:
    """Retrained neighbours stay in the box, boxes nest, labels hold."""
    dtype = "float32" if HEADS.index(case) % 2 else "float64"
    report = assault(Setting(case, "add_remove", "boxes", dtype), 0, 4)
    assert not report.escapes, "\n".join(map(str, report.escapes))
    assert report.labels > 0
    assert factors(case, "float64", "exact", samples=5) == 0


@pytest.mark.parametrize("case", [c for c in CASES if not c.public], ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("kernel", "product", "dtype"),
    [("reference", "exact", "float32"), ("cpu", "exact", "float64"), ("cpu", "rump", "float32")],
)
def test_models_of_a_box_stay_within_its_bounds(
    case: Case, kernel: str, product: str, dtype: str
) -> None:
    """Models drawn from a box against the bounds on each record's logits and factors."""
    # two models each, some 24 records
    assert factors(case, dtype, product, samples=40, kernel=kernel) == 0


# -- rules broken on purpose


def signed_as_nonnegative(patch: pytest.MonkeyPatch) -> None:
    """The x >= 0 formula on the signed features of the first layer."""

    def formula(x: Tensor, w: Interval) -> tuple[Tensor, Tensor]:
        return _sorted(*interval_products.linear_nonnegative(Interval.point(x), w))

    patch.setattr(interval_products, "linear_point", formula)
    patch.setattr(CpuKernel, "point_product", lambda kernel, x, w: formula(x, w))
    # The compiled function that also adds the bias and widens is left out.
    patch.setattr(CpuKernel, "point_affine", None)


def _sorted(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    # The wrong formula may cross its ends, which Interval refuses; the quiet form of the mistake is
    # the harder catch.
    return torch.minimum(a, b), torch.maximum(a, b)


def wrong_sign_split(patch: pytest.MonkeyPatch) -> None:
    """Hidden layers pair lower with lower whatever the sign of the weight."""

    def formula(x: Interval, w: Interval) -> tuple[Tensor, Tensor]:
        return _sorted(x.lower @ w.lower.mT, x.upper @ w.upper.mT)

    patch.setattr(interval_products, "linear_nonnegative", formula)
    patch.setattr(CpuKernel, "nonnegative_product", lambda kernel, x, w: formula(x, w))


@pytest.mark.parametrize("broken", [signed_as_nonnegative, wrong_sign_split])
def test_the_check_of_passes_catches(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = Case("deep", (4, 3), training={"loss": "binary_cross_entropy", "lr": 0.3})
    assert factors(deep, "float64", "exact", samples=40) == 0
    broken(monkeypatch)
    assert factors(deep, "float64", "exact", samples=240) > 0


def relu_violations() -> int:
    """Brute force over intervals with ends in {-1, 0, 1}: nominal derivatives outside their
    bounds.
    """
    rule = ReluRule("1")
    count = 0
    rounding = Rounding.for_grid((0,), torch.float64, torch.device("cpu"))
    ends = [(low, high) for low, high in product((-1.0, 0.0, 1.0), repeat=2) if low <= high]
    for x_ends, d_ends in product(ends, repeat=2):
        x, d = (Interval(*(torch.full((1, 1, 1), e) for e in pair)) for pair in (x_ends, d_ends))
        bound = rule.bound_backward(d, x, {}, rounding, EXACT)
        for at, factor in product(sorted({*x_ends, sum(x_ends) / 2}), sorted({*d_ends})):
            count += not bound.contains(
                rule.nominal_backward(torch.full((1, 1), factor), torch.full((1, 1), at), {})
            )
    return count


def test_the_check_catches_relus_derivative_at_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert relu_violations() == 0
    monkeypatch.setattr(
        ReluRule, "nominal_backward", lambda self, d, x, point: torch.where(x >= 0, d, 0.0)
    )
    assert relu_violations() > 0


# -- images


SIDE = 5
rng = np.random.default_rng(0)
LABELS = np.arange(11) % 2
IMAGES = rng.normal(size=(11, 2, SIDE, SIDE)) + (LABELS * 2 - 1)[:, None, None, None]


def head(dtype: str, pooled: bool = True) -> nn.Sequential:
    """Two poolings that overlap and pad, then rows: [2, 5, 5] -> [2, 3, 3] -> [2, 2, 2] -> 8."""
    torch.manual_seed(0)
    front = (
        [nn.AvgPool2d(3, stride=2, padding=1), nn.AvgPool2d(2, stride=1, count_include_pad=False)]
        if pooled
        else []
    )
    return nn.Sequential(*front, nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1)).to(
        getattr(torch, dtype)
    )


def setup(dtype: str = "float64", kernel: str = "cpu") -> TrainingSetup:
    batch = {"count": 2, "normalizer": 5.0}
    training = make_training(
        loss="binary_cross_entropy", dtype=dtype, lr=0.3, epochs=2, batch=batch
    )
    return make_recipe(training, ks=(0, 1, 2), kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_pooling_in_the_head_and_beforehand_give_the_same_boxes(dtype: str, kernel: str) -> None:
    """Pooling does not depend on k or on any parameter: the first linear layer takes the same
    points, bit for bit.
    """
    model = head(dtype)
    x = torch.from_numpy(IMAGES.astype(dtype))
    for rule in rules_for(model)[:2]:
        x = rule.nominal(x, {})
    inside = train(model, setup(dtype, kernel), make_records(IMAGES.astype(dtype), LABELS))
    before = train(head(dtype, pooled=False), setup(dtype, kernel), make_records(x.numpy(), LABELS))
    for one, two in (
        (inside.nominal, before.nominal),
        (inside.lower, before.lower),
        (inside.upper, before.upper),
    ):
        assert all(torch.equal(a, b) for a, b in zip(one.values(), two.values(), strict=True))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (SIDE * SIDE * 2,),
            "at least as large as its window of 3 x 3 .*50,",
        ),
        ((2, 9, 9), "model: a record has 32 features, but the model takes 8"),
    ],
)
def test_records_that_do_not_fit_the_head_are_refused_before_the_first_step(
    shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(head("float64"), setup(), make_records(np.zeros((4, *shape)), [0, 1, 0, 1]))


def test_images_that_nothing_flattens_are_refused() -> None:
    rows = nn.Sequential(nn.Linear(SIDE, 1)).double()
    with pytest.raises(
        ConfigError,
        match=r"50 .*5.*nn\.Flatten",
    ):
        train(rows, setup(), make_records(IMAGES, LABELS))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(50, 1)).double()
    trained = train(flat, setup(), make_records(IMAGES, LABELS))
    with pytest.raises(ConfigError, match=r"8 .*50"):
        certify(flat, setup(), trained, np.zeros((1, 2, 2, 2)))


def large(width: int) -> nn.Sequential:
    """For images of 28 x 28."""
    return nn.Sequential(
        nn.AvgPool2d(7), nn.Conv2d(1, width, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9 * width, 2)
    )


def test_from_the_command_line(tmp_path: Path) -> None:
    """A network of one's own that pools and convolves: trained, read back and certified by the
    commands.
    """
    arrays = {}
    for split, n in (("train", 60), ("val", 4), ("test", 20)):
        labels = np.arange(n) % 2
        arrays[f"{split}_labels"] = labels[:, None].astype(np.uint8)
        arrays[f"{split}_images"] = (
            rng.integers(0, 90, (n, 28, 28)) + 160 * labels[:, None, None]
        ).astype(np.uint8)
    np.savez(tmp_path / "images.npz", **arrays)
    data = (
        "dataset=medmnist",
        "dataset.name=breastmnist",
        f"dataset.path={tmp_path / 'images.npz'}",
    )
    model = (
        "model=custom",
        f"model._target_={__name__}.large",
        "+model.width=4",
        "training=generic",
        "training.lr=10",
    )
    common = ("compute.kernel=reference", f"output_dir={tmp_path}", "-q", "--json")
    folder = tmp_path / "run"
    settings = (
        "dataset.declared_size=60",
        "training.clip=0.02",
        "kgrid.max=2",
        f"hydra.run.dir={folder}",
    )
    assert main(["train", *data, *model, *settings, *common]) == 0
    assert json.loads((folder / "metrics.json").read_text())["test_accuracy"] == 1
    assert (
        main(["certify", f"run={folder}", f"hydra.run.dir={tmp_path / 'certified'}", *common]) == 0
    )
    table = pd.read_csv(tmp_path / "certified" / "tables" / "certified.csv", index_col="k")
    assert table.index.tolist() == [0, 1, 2]
    assert table["certified_fraction"][1] > 0.5
