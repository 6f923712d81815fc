"""Sampled containment of whole passes; whole training of smooth heads, of pooled ones, and by a squared error."""

import pytest
from checks import CASES, Case, claims, factors

BCE = {"loss": "binary_cross_entropy", "lr": 0.3, "epochs": 2}
HEADS = (
    Case("tanh", (4, 3), activation="tanh", training=BCE),
    Case("gelu", (4, 3), activation="gelu", training=BCE),
    Case("gelu, softmax", (4,), classes=4, activation="gelu", training={"momentum": 0.3, "lr": 0.05}),
    Case("sigmoid", (4,), activation="sigmoid"),
    Case("softplus, rump", (4,), activation="softplus", training={"product": "rump"}),
    Case("leaky relu", (4, 3), activation="leaky_relu"),
    Case("pooled", (3,), channels=2, pooled=True, training={"momentum": 0.3, "lr": 0.05}),
    Case("squared error", (4,), activation="tanh", training={"loss": "squared_error", "lr": 0.1}),
)


@pytest.mark.parametrize("case", HEADS, ids=lambda case: case.name)
def test_every_claim_of_neighbours(case: Case) -> None:
    """Retrained neighbours stay in the box, boxes nest, labels hold."""
    dtype = "float32" if HEADS.index(case) % 2 else "float64"
    tally = claims(case, "add_remove", dtype, pairs=1, edits=2)
    tally += factors(case, "float64", "exact", samples=5)
    assert tally.violations == 0, tally
    assert tally.certified > 0


@pytest.mark.parametrize("case", [c for c in CASES if not c.public], ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("kernel", "product", "dtype"),
    [("reference", "exact", "float32"), ("cpu", "exact", "float64"), ("cpu", "rump", "float32")],
)
def test_models_of_a_box_stay_within_its_bounds(case: Case, kernel: str, product: str, dtype: str) -> None:
    """Models drawn from a box against the bounds on each record's logits and factors."""
    tally = factors(case, dtype, product, samples=40, kernel=kernel)  # two models each, some 24 records
    assert tally.trials == 40
    assert tally.violations == 0, tally
