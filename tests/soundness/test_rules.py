"""Sampled containment of whole passes: models drawn from a box against the bounds on each record's logits and factors."""

import pytest
from checks import CASES, Case, factors


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("kernel", "product"), [("reference", "exact"), ("cpu", "exact"), ("cpu", "rump")])
@pytest.mark.parametrize("case", [c for c in CASES if not c.public], ids=lambda c: c.name)
def test_models_of_a_box_stay_within_its_bounds(case: Case, kernel: str, product: str, dtype: str) -> None:
    tally = factors(case, dtype, product, samples=150, kernel=kernel)  # two models each, some 24 records: 7,000 points
    assert tally.trials == 150
    assert tally.violations == 0, tally
