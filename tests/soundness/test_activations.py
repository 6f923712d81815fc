"""Whole training of smooth heads, and by a squared error: retrained neighbours stay in the box, boxes nest, labels hold."""

import pytest
from checks import Case, containment, factors, nesting

BCE = {"loss": "binary_cross_entropy", "lr": 0.3}
HEADS = (
    Case("tanh", (4, 3), activation="tanh", training=BCE),
    Case("gelu", (4, 3), activation="gelu", training=BCE),
    Case("gelu, softmax", (4,), classes=4, activation="gelu", training={"momentum": 0.3, "lr": 0.05}),
    Case("sigmoid", (4,), activation="sigmoid"),
    Case("softplus, rump", (4,), activation="softplus", training={"product": "rump"}),
    Case("leaky relu", (4, 3), activation="leaky_relu"),
    Case("squared error", (4,), activation="tanh", training={"loss": "squared_error", "lr": 0.1}),
)
heads = pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@heads
def test_retrained_neighbours_stay_in_the_box(case: Case, dtype: str) -> None:
    tally = containment(case, "add_remove", dtype, edits=12)
    assert tally.trials == 12
    assert tally.violations == 0, tally
    assert tally.certified > 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@heads
def test_boxes_of_neighbours_nest(case: Case, dtype: str) -> None:
    tally = nesting(case, "add_remove", dtype, pairs=4)
    assert tally.violations == 0, tally


@heads
def test_models_of_a_box_stay_within_its_bounds(case: Case) -> None:
    tally = factors(case, "float64", "exact", samples=20)
    assert tally.violations == 0, tally
