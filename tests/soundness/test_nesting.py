"""box(D', k-1) inside box(D, k) for neighbours D and D', bit for bit, where rounding makes it hardest (method.md 3)."""

import numpy as np
import pytest
import torch
from checks import WIDTH, Case, Tally, certificates, nested, run
from synthetic import KERNELS, SYMMETRIC, make_head, make_records, make_training, random_interval, sample

from agt.audit.neighbours import with_added
from agt.bounds.interval import Interval
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.data.dataset import Records
from agt.kernels.select import pick_kernel
from agt.settings import ComputeConfig

DTYPES = ("float64", "float32")


# -- adversarial search --------------------------------------------------------------------------------------------------


def nudge(rng: np.random.Generator, data: Records, training_clip: float) -> Records:
    """Move some features by an ulp, onto a multiple of the quantum's half, or to a power of two times the clip level."""
    features = data.features.copy()
    rows = rng.choice(len(features), max(1, len(features) // 4), replace=False)
    quantum = training_clip / 2**30
    for row in rows:
        column = rng.integers(WIDTH)
        value = features[row, column]
        features[row, column] = rng.choice(
            [
                np.nextafter(value, np.inf),
                np.nextafter(value, -np.inf),
                (np.floor(value / quantum) + 0.5) * quantum * 2,
                np.sign(value) * training_clip * 2,
                0.0,
                1e5 * np.sign(value),
            ]
        )
    return make_records(features, data.labels, list(data.units))


def slack(case: Case, data: Records, relation: str, dtype: str, rng: np.random.Generator) -> tuple[float, Tally]:
    """How close the inner box comes to the outer one in all, and what broke; D' is D with a saturating record."""
    newcomer = make_records(np.full((1, WIDTH), 1e6), [int(rng.integers(0, 2))], prefix="z")
    other = with_added(data, newcomer)
    if relation != "add_remove":
        other = other.take(np.arange(1, len(other)))
    queries = data.features[:4]
    pair = []
    for records in (data, other):
        trained = run(case, records, relation, (0, 1, 2), dtype, rng)
        pair.append((trained, certificates(case, trained, queries, relation, dtype)))
    tally = Tally()
    gap = 0.0
    for outer, inner in (pair, pair[::-1]):
        tally += nested(outer, inner)
        for name in outer[0].nominal:
            gap += float((inner[0].lower[name][:-1] - outer[0].lower[name][1:]).sum())
            gap += float((outer[0].upper[name][1:] - inner[0].upper[name][:-1]).sum())
    return gap, tally


@pytest.mark.parametrize(
    ("relation", "dtype", "hidden"),
    [
        ("add_remove", "float64", ()),
        ("add_remove", "float32", (3,)),
        ("substitute", "float64", (3,)),
        ("paper_privacy", "float32", ()),
    ],
)
def test_a_search_among_rounding_boundaries_finds_no_violation(relation: str, dtype: str, hidden: tuple[int, ...]) -> None:
    """Hill climbing on the slack between the two boxes, from data whose gradients lie on ties of the rounding."""
    rng = np.random.default_rng(0)
    settings = {"clip": 0.3, "lr": 0.25, "epochs": 2, "batch": {"count": 1, "normalizer": 7.0}}
    case = Case("search", hidden, n=7, dyadic=True, training=settings)
    data = case.data(rng)
    best, total = slack(case, data, relation, dtype, rng)
    for _ in range(30):
        candidate = nudge(rng, data, 0.3)
        gap, tally = slack(case, candidate, relation, dtype, rng)
        total += tally
        if gap <= best:
            best, data = gap, candidate
    assert total.violations == 0, total
    assert total.trials == 62


@pytest.mark.parametrize(("clip", "dtype"), [(0.1, "float64"), (0.3, "float32"), (1 / 3, "float64")])
@pytest.mark.parametrize("relation", SYMMETRIC)
def test_boxes_that_touch_are_nested(relation: str, dtype: str, clip: float) -> None:
    """Every record saturates, so both boxes end at the same real number, reached through sums and divisors that differ.

    Scaling a sum by an inexact quantum before taking its mean puts one box an ulp outside the other.
    """
    rng = np.random.default_rng(0)
    settings = {"loss": "binary_cross_entropy", "clip": clip, "lr": 1.0, "epochs": 1, "batch": {"count": 1}}
    case = Case("touch", zero=True, training=settings)
    total = Tally()
    for n in (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 28, 29):
        for label in (0, 1):  # theta = 0: the probability is 1/2, and the label alone says to which side the clip cuts
            data = make_records(np.full((n, WIDTH), -1e6), [label] * n)
            more = make_records(np.full((n + 1, WIDTH), -1e6), [label] * (n + 1))
            if relation == "substitute":
                data = make_records(np.full((n, WIDTH), -1e6), [1 - label, *[label] * (n - 1)])
                more = more.take(np.arange(1, n + 1))
            pair = []
            for records in (data, more):
                trained = run(case, records, relation, (0, 1, 2), dtype, rng)
                pair.append((trained, certificates(case, trained, data.features[:1], relation, dtype)))
            total += nested(*pair)
            total += nested(*pair[::-1])
    assert total.violations == 0, total
    assert total.touched > 50


# -- rule by rule: the widening lemma ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("product", ["exact", "rump"])
@pytest.mark.parametrize("hidden", [(), (17,), (9, 11)], ids=["linear", "one hidden", "two hidden"])
@pytest.mark.parametrize("classes", [2, 4])
def test_a_record_among_others_has_nested_bounds(
    dtype: str, product: str, kernel: str, hidden: tuple[int, ...], classes: int
) -> None:
    """The same record, alone and in a batch of 97, for k - 1 in a smaller box and for k: factors and logits are nested.

    Wide layers and large values, so that the library's order of summation differs between the two.
    """
    rng = np.random.default_rng(1)
    width = 67
    training = make_training(dtype=dtype)
    head = make_head(training, width, classes, hidden)
    network = Network.of(head, "cross_entropy", classes, pick_kernel(ComputeConfig(kernel=kernel)).products(product))  # type: ignore[arg-type]
    n = 97
    x = torch.from_numpy(rng.normal(size=(n, width)) * 10.0 ** rng.integers(-3, 4, (n, 1))).to(getattr(torch, dtype))
    labels = torch.from_numpy(rng.integers(0, classes, n))
    ks = (1, 2, 3)
    outer_box, inner_box = {}, {}
    for name, p in head.state_dict().items():
        box = random_interval(rng, 3, *p.shape, radius=0.05, dtype=dtype)
        outer_box[name] = Interval(box.lower + p, box.upper + p)
        ends = [sample(rng, outer_box[name], corners=rng.random() < 0.3) for _ in range(2)]
        inner_box[name] = Interval(torch.minimum(*ends), torch.maximum(*ends))
    wide = Rounding.of(ks, x.dtype, x.device)
    narrow = Rounding.of([k - 1 for k in ks], x.dtype, x.device)
    with torch.no_grad():
        many = list(network.factors(x, labels, outer_box, wide))
        logits = network.bound_logits(x, outer_box, wide)
        for row in range(0, n, 4):
            one = slice(row, row + 1)
            alone = list(network.factors(x[one], labels[one], inner_box, narrow))
            for big, small in zip(many, alone, strict=True):
                for outer, inner in ((big.d, small.d), (big.x, small.x)):
                    assert (outer.lower[:, one] <= inner.lower).all()
                    assert (inner.upper <= outer.upper[:, one]).all()
            inner_logits = network.bound_logits(x[one], inner_box, narrow)
            assert (logits.lower[:, one] <= inner_logits.lower).all()
            assert (inner_logits.upper <= logits.upper[:, one]).all()
