"""Whole training of smooth heads, and by a squared error: retrained neighbours stay in the box, boxes nest, labels hold."""

import pytest
from checks import Case, claims, factors

BCE = {"loss": "binary_cross_entropy", "lr": 0.3, "epochs": 2}
HEADS = (
    Case("tanh", (4, 3), activation="tanh", training=BCE),
    Case("gelu", (4, 3), activation="gelu", training=BCE),
    Case("gelu, softmax", (4,), classes=4, activation="gelu", training={"momentum": 0.3, "lr": 0.05}),
    Case("sigmoid", (4,), activation="sigmoid"),
    Case("softplus, rump", (4,), activation="softplus", training={"product": "rump"}),
    Case("leaky relu", (4, 3), activation="leaky_relu"),
    Case("squared error", (4,), activation="tanh", training={"loss": "squared_error", "lr": 0.1}),
)


@pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)
def test_every_claim_of_neighbours(case: Case) -> None:
    dtype = "float32" if HEADS.index(case) % 2 else "float64"
    tally = claims(case, "add_remove", dtype, pairs=1, edits=2)
    tally += factors(case, "float64", "exact", samples=5)
    assert tally.violations == 0, tally
    assert tally.certified > 0
