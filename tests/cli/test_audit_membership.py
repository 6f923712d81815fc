"""agt audit membership on a tiny run: findings, tables, figures, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agt_audit import shadows
from agt_audit.membership import EXPOSED, area_finding, draw_curves
from agt_audit.roc import Roc
from agt_cli.report.findings import Finding, Outcome, Strength
from agt_cli.report.record import RunRecord

from .conftest import Agt

SMALL = ("audit.shadows=6", "audit.workers=1")


def outcomes(said: dict[str, object]) -> dict[str, str]:
    """subject -> outcome."""
    return {finding["subject"]: finding["outcome"] for finding in said["audit"]["findings"]}  # type: ignore[index]


def test_a_run_is_attacked(agt: Agt, trained: Path) -> None:
    said = agt("audit", "membership", f"run={trained}", *SMALL, "--json", "-q").ended(0)
    found = outcomes(said.json)
    assert len(found) == 7
    (halves,) = (name for name in found if "lira_online" in name and "half" in name)
    assert found.pop(halves) == "reported"
    assert {*found.values()} == {"reported"}
    folder = Path(said.json["run"] if "run" in said.json else next(Path("outputs/audit").iterdir()))
    exposed = pd.read_csv(folder / f"tables/{EXPOSED}.csv")
    assert list(exposed.columns[:4]) == ["id", "unit", "label", "stable_distance"]
    assert exposed["score_lira"].is_monotonic_decreasing
    assert (folder / "figures/roc.png").is_file()
    table = pd.read_csv(folder / "tables/membership.csv").set_index("attack")
    row = table.loc["lira_online"]
    assert row["advantage_low"] <= row["advantage"] <= row["advantage_high"]
    notes = json.loads((folder / "audit.json").read_text())["notes"]
    assert any("0.1 %" in note for note in notes)
    assert said.json["metrics"]["shadows_reused"] == 0


def test_without_shadow_models_two_attacks_are_left(agt: Agt, trained: Path) -> None:
    given = ("audit.shadows=0", "--json", "-q")
    said = agt("audit", "membership", f"run={trained}", *given).ended(0)
    found = outcomes(said.json)
    assert (found["membership by loss"], found["membership by rmia"]) == ("reported", "not tested")


def test_where_every_shadow_model_fails_the_first_reason_is_told(
    agt: Agt, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*about: object) -> None:
        raise ValueError("full")

    monkeypatch.setattr(shadows, "fit", failing)
    agt("audit", "membership", f"run={trained}", *SMALL).ended(3, "all 6", "full")


def test_upside_down_scores_are_no_attack() -> None:
    rng = np.random.default_rng(0)
    member = np.arange(600) < 300
    blank = Finding("s", "c", "a", "e", Outcome.UNTESTED, "m", "AUC", strength=Strength.ASYMPTOTIC)
    finding = area_finding(blank, "loss", Roc(rng.normal(size=600) - member, member), 0.95)
    assert finding.outcome is Outcome.UNTESTED
    assert "0.2" in finding.meaning
    right = area_finding(blank, "loss", Roc(rng.normal(size=600) + member, member), 0.95)
    assert (right.outcome, right.estimator) == (Outcome.REPORTED, "DeLong")


def test_one_record_on_a_side_draws_a_figure(tmp_path: Path) -> None:
    """An axis from 1 to 1 is none: matplotlib warns, and warnings are errors here."""
    roc = Roc(np.array([0.0, 1.0, 2.0]), np.array([False, True, True]))
    with RunRecord(tmp_path / "record", "audit", {}) as record:
        assert draw_curves(record, "few", {"loss": roc})


def test_accuracy_is_that_of_the_best_threshold() -> None:
    """One threshold finds half of the members without a false alarm."""
    member = np.array([True, True, False, False] * 2)
    scores = np.array([3.0, 2.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert Roc(scores, member).best_accuracy == 0.75
