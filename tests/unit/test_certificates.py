"""Stable distances read off boxes, strictness, NaN, and the conditions a privacy guarantee rests
on.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import (
    RELATIONS,
    make_head,
    make_recipe,
    make_records,
    make_training,
    random_interval,
    sample,
)

from agt.bounds.box import Box
from agt.bounds.network import Network
from agt.bounds.rounding import Rounding
from agt.certificates.box import Certificates, certify, certify_labels
from agt.data.dataset import Dataset
from agt.data.target import ClassTarget
from agt.errors import ConfigError, UnsoundError
from agt.facts import declared, evidence, not_held, proved
from agt.models.box import assess_boxes
from agt.settings import BatchConfig
from agt.training.batches import BatchPlan


def trained(head: torch.nn.Sequential, radii: tuple[float, ...], seed: int = 0) -> Box:
    """Boxes of growing radius round the head's own parameters."""
    rng = np.random.default_rng(seed)
    nominal = {n: p.detach().clone() for n, p in head.state_dict().items()}
    shares = {
        n: torch.from_numpy(rng.random(tuple(p.shape))).to(p.dtype) for n, p in nominal.items()
    }
    lower = {n: torch.stack([p - r * shares[n] for r in radii]) for n, p in nominal.items()}
    upper = {n: torch.stack([p + r * shares[n] for r in radii]) for n, p in nominal.items()}
    return Box.from_ends(tuple(range(len(radii))), nominal, lower, upper)


HEADS = [
    pytest.param("binary_cross_entropy", 2, (), id="one logit"),
    pytest.param("cross_entropy", 2, (4,), id="two classes"),
    pytest.param("cross_entropy", 3, (4, 3), id="three classes"),
    pytest.param("cross_entropy", 5, (), id="five classes, linear"),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", ["exact", "rump"])
@pytest.mark.parametrize(("loss", "classes", "hidden"), HEADS)
def test_certified_labels_hold_all_over_the_box(
    loss: str, classes: int, hidden: tuple[int, ...], product: str, dtype: str
) -> None:
    training = make_training(loss=loss, product=product, dtype=dtype)
    head = make_head(training, 3, classes, hidden)
    model = trained(head, (0.0, 0.02, 0.05, 0.1, 0.3))
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(60, 3)) * 3
    result = certify(head, make_recipe(training, classes=classes), model, queries)
    network = Network.from_head(head, loss, classes)
    x = torch.from_numpy(queries).to(getattr(torch, dtype))
    assert result.certified[0].mean() > 0.9
    assert 0 < result.certified[1:].mean() < 1
    assert (result.certified[1:] <= result.certified[:-1]).all()  # nested boxes
    flipped = np.zeros_like(result.certified)
    for index in range(200):
        draws = {n: sample(rng, i, index % 2 == 0) for n, i in model.bounds.items()}
        for k in range(len(model.ks)):
            labels = network.predict(x, {n: v[k] for n, v in draws.items()}).numpy()
            flipped[k] |= labels != result.prediction
    assert not (result.certified & flipped).any()
    assert flipped[-1].any()


def linear(weight: list[list[float]], radius: float = 0.0) -> tuple[torch.nn.Sequential, Box]:
    head = torch.nn.Sequential(
        torch.nn.Linear(len(weight[0]), len(weight), bias=False, dtype=torch.float64)
    )
    point = torch.tensor(weight, dtype=torch.float64)
    head.load_state_dict({"0.weight": point})
    ends = {"0.weight": (point - radius)[None]}, {"0.weight": (point + radius)[None]}
    return head, Box.from_ends((0,), {"0.weight": point}, *ends)


def test_separation_is_strict_without_any_widening_too() -> None:
    for loss, weight, outputs in (
        ("binary_cross_entropy", [[1.0]], 2),
        ("cross_entropy", [[0.0], [1.0], [1.0]], 3),
    ):
        head, model = linear(weight)
        network = Network.from_head(head, loss, outputs)
        exact = replace(
            Rounding.for_grid((0,), torch.float64, torch.device("cpu")),
            factor=torch.zeros(1, 1, 1, dtype=torch.float64),
        )
        x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
        for label in range(outputs):
            held = certify_labels(network, x, torch.full((2,), label), model.bounds, exact)
            assert not held[0, 0]
            assert held[0, 1] == (outputs == 2 and label == 1)


@pytest.mark.parametrize(
    ("scale", "dtype"), [(float("nan"), "float64"), (float("inf"), "float64"), (1e39, "float32")]
)
def test_queries_that_are_not_finite_are_an_error(scale: float, dtype: str) -> None:
    training = make_training(dtype=dtype)
    head = make_head(training, 3, 2, (4,))
    queries = np.array([[1.0, -1.0, 1.0], [scale, 1.0, -scale]])
    with pytest.raises(UnsoundError, match=r"^inputs: "), np.errstate(over="ignore"):
        certify(head, make_recipe(training), trained(head, (0.1,)), queries)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_finite_query_whose_bounds_overflow_is_not_certified_and_disturbs_no_other(
    classes: int,
) -> None:
    """An error here would tell a private fact: the box decides whether bounds overflow."""
    training = make_training()
    head = make_head(training, 3, classes, (4,))
    model = trained(head, (0.0, 1e-4, 2e-4))
    plain = 100 * np.random.default_rng(0).normal(size=(5, 3))
    queries = np.insert(plain, 2, [1.7e308, 1.0, -1.7e308], axis=0)
    alone = certify(head, make_recipe(training, classes=classes), model, plain)
    among = certify(head, make_recipe(training, classes=classes), model, queries)
    assert alone.certified.any()
    assert not among.certified[:, 2].any()
    assert 0 <= among.prediction[2] < classes
    assert (np.delete(among.certified, 2, axis=1) == alone.certified).all()


def test_a_query_whose_bounds_overflow_only_for_large_k_keeps_its_smaller_k() -> None:
    head, model = linear([[1.0]])
    ends = (
        torch.tensor([[[0.5]], [[0.5]], [[-2.0]]]).double(),
        torch.tensor([[[1.5]], [[1.6]], [[2.0]]]).double(),
    )
    model = Box.from_ends((0, 1, 2), model.nominal, {"0.weight": ends[0]}, {"0.weight": ends[1]})
    training = make_training(loss="binary_cross_entropy")
    result = certify(head, make_recipe(training), model, np.array([[1.0], [1.15e308]]))
    assert result.certified.tolist() == [[True, True], [True, False], [False, False]]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_box_broken_afterwards_is_an_error(broken: float) -> None:
    training = make_training()
    head = make_head(training, 3, 2, ())
    model = trained(head, (0.1,))
    model.upper["0.weight"][0, 0, 0] = broken
    with pytest.raises(UnsoundError):
        certify(head, make_recipe(training), model, np.ones((1, 3)))


def test_queries_of_another_width_are_refused() -> None:
    training = make_training()
    head = make_head(training, 3, 2, ())
    with pytest.raises(ConfigError, match=r"inputs: .*\b4\b.*\b3\b"):
        certify(head, make_recipe(training), trained(head, (0.1,)), np.ones((2, 4)))


def test_distances_stop_at_the_first_gap() -> None:
    certified = np.array([[1, 1, 0, 1, 0], [1, 0, 1, 1, 0], [1, 1, 1, 0, 0]], dtype=bool)
    result = Certificates((0, 5, 20), "add_remove", np.zeros(5, dtype=np.int64), certified)
    assert result.stable_distance.tolist() == [20, 0, 0, 5, 0]
    assert result.stable_index.tolist() == [3, 1, 0, 2, 0]


def test_table() -> None:
    certified = np.array([[1, 1, 0, 1]], dtype=bool)
    result = Certificates((3,), "add_remove", np.array([0, 1, 1, 0]), certified)
    (row,) = result.table(np.array([0, 1, 1, 1]))
    assert row == {
        "k": 3,
        "certified_fraction": 0.75,
        "nominal_accuracy": 0.75,
        "worst_accuracy": 0.5,
        "best_accuracy": 0.75,
    }
    assert "nominal_accuracy" not in result.table(None)[0]


def test_a_box_of_ones_own_widening_certifies_at_k_0() -> None:
    """Widening costs next to nothing in float64: a box of width 0 certifies every clear
    prediction, for k = 1000 too.
    """
    training = make_training()
    head = make_head(training, 3, 2, (4,))
    box = trained(head, (0.0,))
    model = replace(box, ks=(1000,))
    queries = np.random.default_rng(0).normal(size=(500, 3))
    assert certify(head, make_recipe(training), model, queries).certified.all()


# -- conditions
# --------------------------------------------------------------------------------------------------


def held(**change) -> str:  # type: ignore[no-untyped-def]
    """The letters of the conditions that hold, after one change to a setting where all do."""
    training = make_training(**change.get("training", {}))
    setup = make_recipe(
        training,
        change.get("relation", "add_remove"),
        change.get("ks", range(4)),
        declared_size=change.get("declared_size"),
    )
    records = make_records(np.eye(4), [0, 1, 0, 1])
    fact = evidence(proved("own_words", text="public"))
    facts = {"selection": fact, "preprocessing": fact, **change.get("dataset", {})}
    choices = change.get(
        "choices",
        declared("declared_in_own_words", text="chosen on public data", broken_by="it was not"),
    )
    data = Dataset("toy", ClassTarget(("a", "b")), records, records, None, {}, **facts)
    plan = BatchPlan.from_settings(
        change.get("batch", training.batch), training.epochs, change.get("declared_size"), 4
    )
    conditions = assess_boxes(data, setup, plan, choices)
    assert [c.letter for c in conditions] == list("abcdefg")
    assert all(c.why and c.name for c in conditions)
    return "".join(c.letter for c in conditions if c.held)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({}, ""),
        ({"ks": (0, 5)}, "a"),
        ({"ks": (1, 2)}, "a"),
        ({"ks": (1, 0, 2)}, ""),
        ({"dataset": {"selection": evidence(not_held("own_words", text="the first rows"))}}, "b"),
        ({"batch": BatchConfig()}, "c"),
        ({"batch": BatchConfig(), "declared_size": 4}, ""),
        (
            {
                "dataset": {
                    "preprocessing": evidence(not_held("own_words", text="means of the data"))
                }
            },
            "e",
        ),
        ({"choices": not_held("own_words", text="nobody said")}, "e"),
        ({"training": {"product": "rump"}}, "f"),
        ({"relation": "remove"}, "g"),
        ({"relation": "paper_unlearning"}, "dg"),
        ({"relation": "substitute"}, ""),
        ({"relation": "paper_privacy"}, ""),
    ],
)
def test_each_condition_is_lost_for_its_own_reason(change: dict, missing: str) -> None:
    assert held(**change) == "".join(c for c in "abcdefg" if c not in missing)


def test_every_relation_is_assessed() -> None:
    for name in RELATIONS:
        assert ("g" in held(relation=name)) == (name not in ("remove", "paper_unlearning"))


def test_random_boxes_are_boxes() -> None:
    """The helper these tests rest on: samples lie in their interval, ends included."""
    rng = np.random.default_rng(0)
    interval = random_interval(rng, 4, 50)
    for corner in (False, True):
        assert interval.contains(sample(rng, interval, corner))
