"""The recipe on data that is there: without a setting, well above the majority and near
LogisticRegression.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import agt

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT / "scripts"))

from bench_recipe import PublicSet, public_sets  # noqa: E402


def fitted(data: PublicSet) -> tuple[float, float]:
    """(accuracy, share certified at k = 20) on the first fold."""
    train, test = next(data.splits())
    x = data.features(bins=20)
    model = agt.fit(x[train], data.labels[train], declared=agt.Declared(size=int(train.sum())))
    answers = model.certify(x[test])
    return float((answers.labels == data.labels[test]).mean()), float(
        (answers.stable_distance >= 20).mean()
    )


@pytest.mark.parametrize(
    ("name", "least"), [("breast_cancer", 0.93), ("wine", 0.9), ("diabetes", 0.68)]
)
def test_embedded_sets(name: str, least: float) -> None:
    data = next(data for data in public_sets(Path("nowhere")) if data.name == name)
    majority = np.bincount(data.labels).max() / len(data.labels)
    assert majority + 0.1 < least < fitted(data)[0]


@pytest.mark.skipif(not (DATA / "adult.csv").exists(), reason="adult.csv is not there")
def test_adult() -> None:
    adult = next(data for data in public_sets(DATA) if data.name == "adult")
    accuracy, certified = fitted(adult)
    assert accuracy >= 0.84
    assert certified >= 0.89
