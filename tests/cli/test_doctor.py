"""agt doctor from the command line."""

from pathlib import Path

import pytest

from agt_cli.commands import doctor

from .conftest import Agt


def test_machine_that_is_well(agt: Agt, tmp_path: Path) -> None:
    said = agt("doctor").ended(0)
    for name in ("kernel cpu", "device", "floating point"):
        assert f"\n  {name} " in said.out, name
    assert not list(tmp_path.iterdir()), "it writes nothing that stays"


def test_problem_ends_with_3_and_says_which(agt: Agt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "floating_point_faults", lambda: ["sums are rounded twice"])
    said = agt("doctor", "--json", "-q")
    assert said.code == said.json["exit_code"] == 3
    assert said.json["healthy"] is False
    (problem,) = [check for check in said.json["checks"] if check["state"] == "PROBLEM"]
    assert (problem["check"], "rounded twice" in problem["words"]) == ("floating point", True)


def test_other_settings_are_refused(agt: Agt) -> None:
    for setting in ("dataset=blobs", "output_dir=x"):
        agt("doctor", setting).ended(2)
