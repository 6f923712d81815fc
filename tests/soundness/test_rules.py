"""Sampled containment of whole passes: models drawn from a box against the bounds on each record's logits and factors."""

import pytest
from checks import CASES, Case, factors


@pytest.mark.parametrize("case", [c for c in CASES if not c.public], ids=lambda c: c.name)
@pytest.mark.parametrize(
    ("kernel", "product", "dtype"),
    [("reference", "exact", "float32"), ("cpu", "exact", "float64"), ("cpu", "rump", "float32")],
)
def test_models_of_a_box_stay_within_its_bounds(case: Case, kernel: str, product: str, dtype: str) -> None:
    tally = factors(case, dtype, product, samples=40, kernel=kernel)  # two models each, some 24 records
    assert tally.trials == 40
    assert tally.violations == 0, tally
