"""scripts/compare_tables.py on a small table, without rivals: what runs, what is absent, what is
printed and drawn.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import compare_tables
from bench_recipe import FOLDS, PublicSet
from compare_tables import METHODS, Method, Split, measured, printed, splits

from agt_cli.report.record import RunRecord


@pytest.fixture
def toy() -> PublicSet:
    """1,500 rows of one number and one word, which say the label in nine rows of ten."""
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 2, 1500)
    seen = np.where(draws.random(1500) < 0.9, labels, 1 - labels)
    words = (
        np.where(draws.random(1500) < 0.9, labels, 1 - labels).astype(str).astype(object)[:, None]
    )
    numbers = (40 * seen + 10 * draws.random(1500))[:, None]
    fold = np.arange(1500) % FOLDS
    return PublicSet(
        "toy",
        numbers,
        words,
        {"age": (0.0, 50.0)},
        {"job": ("0",)},
        labels,
        fold,
        tuple(range(FOLDS)),
    )


def test_rows_are_of_norm_one_at_most_and_rivals_see_what_is_declared(toy: PublicSet) -> None:
    public, split = splits(toy, 1)
    assert np.linalg.norm(split.coded.astype(float), axis=1).max() <= 1 + 1e-6
    assert 0.1 < public.test.mean() < 0.3
    assert not (split.train & split.test).any()
    frame = split.columns(split.test)
    assert frame["age"].between(0, 50).all()
    assert set(frame["job"]) == {"0", "other"}


def test_settings_are_chosen_on_the_public_split_and_reported_on_others(toy: PublicSet) -> None:
    seen = []

    def margins(split: Split, eps: float, how: dict[str, float]) -> np.ndarray:
        seen.append((split.seed, how["sign"]))
        return how["sign"] * (toy.labels[split.test] - 0.5)

    rows = measured(toy, [Method("m", margins, tries=({"sign": -1.0}, {"sign": 1.0}))], [1.0], 2)
    assert seen == [(0, -1.0), (0, 1.0), (1, 1.0), (2, 1.0)]
    assert rows["accuracy"].tolist() == rows["auroc"].tolist() == [1.0, 1.0]


def test_ours_and_what_is_not_private_beside_a_rival_that_is_absent(
    toy: PublicSet, tmp_path: Path
) -> None:
    ours = [
        method
        for method in METHODS
        if method.name.startswith(("agt", "not")) and len(method.tries) == 1
    ]
    rows = measured(toy, [*ours, Method("rival", ours[0].margins, "no_such_module")], [4.0], 1)
    assert (rows["accuracy"].dropna() > 0.8).all()
    assert len(rows["accuracy"].dropna()) == len(ours) == 4
    lines = printed(rows, [4.0]).splitlines()
    assert [cell.strip() for cell in lines[1].split("|")] == ["", "toy", "eps = 4", ""]
    assert lines[-1].startswith("| rival |")
    assert "no_such_module" in lines[-1]
    with RunRecord(tmp_path / "run", "compare_tables", {}) as record:
        compare_tables.drawn(rows, [4.0], record)
    drawn = pd.read_csv(tmp_path / "run/figures/accuracy.csv")
    assert set(drawn["series"]) == {method.name for method in ours}
