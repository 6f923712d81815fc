"""Whole training on edited data: boxes nest and hold retrained parameters, certified labels do
not change (reference.md 3).
"""

from itertools import product

import numpy as np
import pytest
import torch
from adversary import assault
from adversary_settings import Setting
from checks import CASES, RUMP, WIDTH, Case, ends, run
from synthetic import (
    KERNELS,
    RELATIONS,
    SYMMETRIC,
    make_head,
    make_recipe,
    make_records,
    make_training,
)
from torch import nn

from agt.data.records import Records
from agt.errors import ConfigError, UnsoundError
from agt.training import stream
from agt.training.loop import train
from agt.training.setup import TrainingSetup
from agt.training.sgd import learning_rate
from agt.training.stream import Stream

DTYPES = ("float64", "float32")
COMBINATIONS = [
    pytest.param(case, relation, dtype, id=f"{case.name}-{relation}-{dtype}")
    for case, relation, dtype in product((*CASES, *RUMP), RELATIONS, DTYPES)
    if not (case.public and relation == "paper_privacy")
]


@pytest.mark.sampled(11)
@pytest.mark.parametrize(("case", "relation", "dtype"), COMBINATIONS)
def test_every_claim_of_neighbours(case: Case, relation: str, dtype: str) -> None:
    """Boxes of neighbours nest bit for bit and hold the models, certified labels stay, distances
    move by one.

    Half an edit is one, too. Rump's product is not proved to nest: models in their boxes alone.
    paper_privacy refuses public records.
    """
    setting = Setting(case, relation, "boxes", dtype)
    report = assault(setting, 0, 4)
    assert not report.escapes, "\n".join(map(str, report.escapes))
    assert report.retrainings >= 4
    assert report.labels > 0
    assert (report.ends > 0) == (case not in RUMP)


def targeted(step_data: Records, label: int, sign: float, k: int) -> Records:
    """``step_data`` with ``k`` records whose gradient is clipped to one side."""
    features = np.concatenate([step_data.features, np.full((k, WIDTH), sign * 1e6)])
    return make_records(features, [*step_data.labels, *[label] * k])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("clip", [0.1, 0.25, 1 / 3])
@pytest.mark.parametrize("k", [1, 3])
def test_saturating_newcomers_reach_the_end_of_the_box_and_no_further(
    dtype: str, clip: float, k: int
) -> None:
    """One step of a linear head: k added records that saturate the clip land exactly on the box
    for k.
    """
    rng = np.random.default_rng(0)
    training = make_training(loss="binary_cross_entropy", clip=clip, dtype=dtype)
    head = make_head(training, WIDTH, 2, ())
    data = make_records(rng.normal(size=(7, WIDTH)), rng.integers(0, 2, 7))
    setup = make_recipe(training, ks=(0, k), kernel="cpu")
    box = train(head, setup, data)
    signs = torch.sign(head[0].weight.detach().sum()).item()
    # The logit of the newcomer is enormous with the sign of the weights' sum, and wrong with that
    # label.
    label = 0 if signs > 0 else 1
    again = train(head, setup, targeted(data, label, 1.0, k))
    ends = (box.lower if label == 0 else box.upper)["0.weight"][1]
    if dtype == "float64":
        assert torch.equal(again.nominal["0.weight"], ends)
    else:  # the widening of the seven records' own bounds is some 1e-6 of the clip level
        torch.testing.assert_close(again.nominal["0.weight"], ends, rtol=0, atol=2e-6)
        inside = (box.lower["0.weight"][1] <= again.nominal["0.weight"]) & (
            again.nominal["0.weight"] <= box.upper["0.weight"][1]
        )
        assert inside.all()
    beyond = train(head, setup, targeted(data, label, 1.0, k + 1))
    assert (
        (beyond.nominal["0.weight"] < box.lower["0.weight"][1])
        | (beyond.nominal["0.weight"] > box.upper["0.weight"][1])
    ).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("clip", "dtype"), [(0.1, "float64"), (0.3, "float32"), (1 / 3, "float64")]
)
@pytest.mark.parametrize("relation", SYMMETRIC)
def test_boxes_that_touch_are_nested(relation: str, dtype: str, clip: float) -> None:
    """Every record saturates, so both boxes end at the same real number, reached through sums and
    divisors that differ.

    Scaling a sum by an inexact quantum before taking its mean puts one box an ulp outside the
    other.
    """
    rng = np.random.default_rng(0)
    settings = {
        "loss": "binary_cross_entropy",
        "clip": clip,
        "lr": 1.0,
        "epochs": 1,
        "batch": {"count": 1},
    }
    case = Case("touch", zero=True, training=settings)
    beyond = touching = 0
    for n in (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 28, 29):
        # theta = 0: the probability is 1/2, and the label alone says to which side the clip cuts
        for label in (0, 1):
            data = make_records(np.full((n, WIDTH), -1e6), [label] * n)
            more = make_records(np.full((n + 1, WIDTH), -1e6), [label] * (n + 1))
            if relation == "substitute":
                data = make_records(np.full((n, WIDTH), -1e6), [1 - label, *[label] * (n - 1)])
                more = more.take(np.arange(1, n + 1))
            one, two = (
                run(case, records, relation, (0, 1, 2), dtype, rng) for records in (data, more)
            )
            for found in (ends(one, two), ends(two, one)):
                beyond = beyond + found[0]
                touching = touching + found[1]
    assert beyond == 0
    assert touching > 50


# -- the same algorithm, written plainly


def plain_training(
    head: nn.Sequential, data: Records, setup: TrainingSetup, relation: str
) -> dict[str, torch.Tensor]:
    """AGT's nominal run with autograd, torch.optim.SGD and a loop over records."""
    training = setup.training
    plan = setup.plan(len(data))
    x = torch.from_numpy(data.features)
    y = torch.from_numpy(data.labels)
    loss = nn.functional.cross_entropy
    if training.loss == "binary_cross_entropy":
        loss = lambda f, t: nn.functional.binary_cross_entropy_with_logits(f[:, 0], t.double())  # noqa: E731
    settings = {
        "momentum": training.momentum,
        "dampening": training.dampening,
        "nesterov": training.nesterov,
    }
    optimizer = torch.optim.SGD(head.parameters(), lr=training.lr, **settings)
    for step, rows in enumerate(plan.batches(data.units)):
        sums = [torch.zeros_like(p) for p in head.parameters()]
        for row in rows:
            gradients = torch.autograd.grad(
                loss(head(x[row : row + 1]), y[row : row + 1]), list(head.parameters())
            )
            sums = [
                s + g.clamp(-training.clip, training.clip)
                for s, g in zip(sums, gradients, strict=True)
            ]
        lr = learning_rate(training, step)
        optimizer.param_groups[0]["lr"] = lr
        for p, s in zip(head.parameters(), sums, strict=True):
            p.grad = s / (
                max(len(rows), 1) if relation.startswith("paper") else training.batch.normalizer
            )
            p.data *= 1 - lr * training.weight_decay
        optimizer.step()
    return {n: p.detach() for n, p in head.named_parameters()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "case", [c for c in CASES if not (c.public or c.noise)], ids=lambda c: c.name
)
def test_the_nominal_run_is_sgd_with_clipped_per_record_gradients(
    case: Case, relation: str
) -> None:
    rng = np.random.default_rng(5)
    data = case.data(rng)
    trained = run(case, data, relation, (0,), "float64", rng)
    plain = plain_training(case.head("float64"), data, case.setup(relation), relation)
    for name, value in plain.items():
        # gradients are rounded to 2^-30 clip
        torch.testing.assert_close(trained.nominal[name], value, rtol=0, atol=1e-7)
        assert not torch.equal(value, case.head("float64").state_dict()[name])


@pytest.mark.parametrize("relation", ["remove", "substitute", "paper_privacy", "paper_unlearning"])
def test_a_tight_memory_splits_the_grid_without_changing_a_bound(
    relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of k for the selections, and parts of a group: each a path of its own through the
    loop.
    """
    case = CASES[3]
    data = case.data(np.random.default_rng(2))
    head = case.head("float64")
    setup = make_recipe(case.config(), relation, (0, 1, 2, 3, 5))
    whole = train(head, setup, data)
    calls: list[slice] = []

    def two(self: Stream, stakes: list[int], selection_bytes: object) -> list[slice]:
        calls.append(slice(0, 0))
        return [slice(0, 2), slice(2, 5)]

    def one_by_one(self: Stream, group: slice) -> list[slice]:
        return [slice(k, k + 1) for k in range(group.start, group.stop)]

    monkeypatch.setattr(Stream, "k_groups", two)
    monkeypatch.setattr(Stream, "k_slices", one_by_one)
    split = train(head, setup, data)
    assert calls
    for name in whole.nominal:
        torch.testing.assert_close(split.lower[name], whole.lower[name], rtol=0, atol=1e-8)
        torch.testing.assert_close(split.upper[name], whole.upper[name], rtol=0, atol=1e-8)


# -- hand-computed


@pytest.mark.parametrize(
    ("relation", "copies", "lower", "upper"),
    [
        # One record x = 1, y = 0 at theta = 0: gradient 1/2; gamma = 1, B = 1, k = 1, lr = 1/4.
        ("add_remove", 1, -0.375, 0.125),  # direction in [1/2 - 1, 1/2 + 1]
        ("remove", 1, -0.125, 0.0),  # the record stays or goes
        ("substitute", 1, -0.375, 0.25),  # it goes, and another comes, here or elsewhere: [-1, 3/2]
        ("paper_privacy", 1, -0.25, 0.25),  # k >= b: anything in [-1, 1]
        ("paper_unlearning", 1, -0.125, 0.0),  # k >= b: one record or none
        ("add_remove", 2, -0.5, 0.0),  # [1 - 1, 1 + 1]
        ("remove", 2, -0.25, -0.125),
        ("substitute", 2, -0.5, 0.125),  # [1 - 1/2 - 1, 1 + 1]
        ("paper_privacy", 2, -0.1875, 0.0625),  # [(1/2 - 1)/2, (1/2 + 1)/2]
        ("paper_unlearning", 2, -0.125, -0.125),  # whichever goes, the mean is 1/2
    ],
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_one_step_by_hand(
    relation: str, copies: int, lower: float, upper: float, kernel: str
) -> None:
    training = make_training(
        loss="binary_cross_entropy", clip=1.0, lr=0.25, batch={"normalizer": 1.0}
    )
    head = nn.Sequential(nn.Linear(1, 1, dtype=torch.float64))
    nn.init.zeros_(head[0].weight)
    nn.init.zeros_(head[0].bias)
    data = make_records(np.ones((copies, 1)), [0] * copies)
    trained = train(head, make_recipe(training, relation, (0, 1), kernel=kernel), data)
    for name in ("0.weight", "0.bias"):
        assert trained.lower[name].flatten()[1] == lower
        assert trained.upper[name].flatten()[1] == upper
        mean = relation.startswith("paper")
        assert trained.nominal[name].item() == -0.125 * (1 if mean else copies)


# -- what must stop a run


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({"lr": 1e6, "clip": 1e9, "epochs": 6, "dtype": "float32", "loss": "cross_entropy"}, 1e30),
        ({"dtype": "float32"}, 1e300),
        ({"lr": 1e6, "epochs": 3}, 1e305),
    ],
    ids=["learning rate", "features beyond float32", "overflow in the second step"],
)
def test_nan_and_infinity_stop_training(settings: dict, scale: float) -> None:
    rng = np.random.default_rng(0)
    training = make_training(**settings)
    data = make_records(rng.normal(size=(6, WIDTH)) * scale, rng.integers(0, 2, 6))
    head = make_head(training, WIDTH, 2, (3,))
    with pytest.raises(UnsoundError):
        train(head, make_recipe(training, ks=(0, 1)), data)


def test_public_records_under_paper_privacy_are_refused() -> None:
    data = make_records(np.ones((3, WIDTH)), [0, 1, 0], public=[True, False, False])
    training = make_training()
    with pytest.raises(ConfigError, match="paper_privacy"):
        train(make_head(training, WIDTH, 2, ()), make_recipe(training, "paper_privacy"), data)


def test_a_derived_normaliser_speaks_only_of_that_number() -> None:
    """Nine gradients of +gamma, one of -gamma: without that one, divided by 9 instead of 10, the
    step is too long.

    So a run whose normaliser came from the data must not count as declared, and with it declared
    the box must hold.
    """
    training = make_training(loss="binary_cross_entropy", batch={"normalizer": None, "n_max": None})
    head = nn.Sequential(nn.Linear(1, 1, dtype=torch.float64))
    nn.init.zeros_(head[0].weight)
    nn.init.zeros_(head[0].bias)
    data = make_records(np.array([[-1e6], *[[1e6]] * 9]), [0] * 10)
    fewer = data.take(np.arange(1, 10))

    def inside(size: int | None) -> bool:
        setup = make_recipe(training, ks=(0, 1), declared_size=size)
        box = train(head, setup, data)
        again = train(head, setup, fewer).nominal["0.weight"]
        assert setup.plan(len(data)).declared == (size is not None)
        return bool(
            ((box.lower["0.weight"][1] <= again) & (again <= box.upper["0.weight"][1])).all()
        )

    assert inside(10)
    assert not inside(None)


def test_sizes_that_cannot_work_are_refused_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = make_training(batch={"normalizer": 10.0, "n_max": 20})
    head = make_head(training, WIDTH, 2, ())
    data = make_records(np.ones((4, WIDTH)), [0, 1, 0, 1])
    with pytest.raises(ConfigError, match=r"compute\.fragment=21 .*20"):
        train(head, make_recipe(training, fragment=21), data)
    train(head, make_recipe(training, fragment=20), data)
    monkeypatch.setattr(stream, "device_memory", lambda device: 2**10)
    with pytest.raises(ConfigError, match=r"kgrid: .*50.*GiB"):
        train(head, make_recipe(training, ks=range(50)), data)
    huge = make_training(batch={"normalizer": 2.0**23, "n_max": 2**24})
    with pytest.raises(ConfigError, match="8388608"):
        train(head, make_recipe(huge, "paper_privacy"), data)


def test_reduced_precision_matrix_products_are_refused_in_float32() -> None:
    training = make_training(dtype="float32")
    data = make_records(np.ones((3, WIDTH)), [0, 1, 0])
    head = make_head(training, WIDTH, 2, ())
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(ConfigError, match="reduced precision"):
            train(head, make_recipe(training), data)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_all_records_may_go() -> None:
    """Every batch empty: each still takes its step, and the box for k holds what k newcomers can
    do.
    """
    training = make_training(epochs=2, weight_decay=0.5, batch={"count": 2})
    head = make_head(training, WIDTH, 2, ())
    setup = make_recipe(training, ks=(0, 1))
    empty = make_records(np.zeros((0, WIDTH)), [])
    one = make_records(np.full((1, WIDTH), 1e5), [0])
    box = train(head, setup, empty)
    again = train(head, setup, one)
    for name, value in again.nominal.items():
        assert ((box.lower[name][1] <= value) & (value <= box.upper[name][1])).all()
        shrunk = head.state_dict()[name]
        for _ in range(training.epochs * 2):
            shrunk = shrunk * (1 - training.lr * training.weight_decay)
        assert torch.equal(box.nominal[name], shrunk)
