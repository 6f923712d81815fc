"""agt audit dpsgd: what it trains, what it says, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from agt_audit import noisy_training

from .conftest import TINY, Agt

SMALL = (
    "audit.trials=48",
    "audit.step_runs=2",
    "audit.canaries=10",
    "audit.records=40",
    "compute.kernel=reference",
    "-q",
)
NOISY = (
    *(
        "noise.epsilon=4",
        "training.clip=0.05",
        "training.chosen_on=public",
        "training.batch.count=2",
    ),
    "training.epochs=2",
)


def test_a_run_with_noise_is_audited(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    run = agt("train", *TINY, *NOISY, "--json", "-q").json["run"]
    asked = ("audit", "dpsgd", f"run={run}", *SMALL)
    # its noise is drawn anew: at 95 % this would fail once in twenty
    said = agt(*asked, "confidence=0.9999", "--json").ended(0)
    finding, size = said.json["audit"]["findings"]
    assert any("audit.canary=mislabelled" in note for note in said.json["audit"]["notes"])
    assert size["found"] == pytest.approx(1, abs=0.1)
    assert "epsilon 4" in finding["subject"]
    assert "2 steps" in finding["claim"]
    folder = Path(said.json["run"])
    table = pd.read_csv(folder / "tables" / "bounds.csv")
    assert table.columns[-1] == "claimed 4"
    assert {"Clopper-Pearson", "Gaussian DP", "exact", "gdp"} == set(table.iloc[:, 0])
    assert (table["claimed 4"] <= 4).all()
    agt(*asked, "audit.trials=5").ended(2, "audit.trials=5")
    drawn = noisy_training.draw_noise
    monkeypatch.setattr(
        noisy_training,
        "draw_noise",
        lambda p, plan, *rest: drawn(p, replace(plan, sigma=plan.sigma / 100), *rest),
    )
    assert agt(*asked).code == 3
