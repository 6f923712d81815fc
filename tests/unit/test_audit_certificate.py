"""The certificate audit: what it finds of runs as they are, and of runs that promise more than training keeps."""

from dataclasses import replace
from typing import Any

import pytest
from test_audit_neighbours import SHARED, made

from agt.audit.certificate_findings import audit_certificates, findings, notes, tables, way
from agt.audit.evidence import Extent
from agt.audit.findings import Finding, Outcome
from agt.audit.planted.certificate import PLANTED
from agt.models.linear import LinearModel

SMALL = Extent(units=12, neighbours=16, farthest=2, bounded=1, queries=10, lines=3)
STEP = {"certificate": "box", "loss": "binary_cross_entropy", "epochs": 1, "batch": {"count": 1}, "ks": 3}


def audited(model: Any, extent: Extent = SMALL) -> dict[str, Finding]:
    """Findings by the first word of their subjects."""
    return {finding.subject.split(":")[0]: finding for finding in findings(audit_certificates(model, extent, 0))}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_caught(name: str) -> None:
    assert PLANTED[name](1).outcome is Outcome.VIOLATED


@pytest.mark.parametrize("kind", ["momentum", "mean", "erm", "average", "removal", "boxes vote", "heads vote"])
def test_no_run_as_it_is_is_accused(kind: str) -> None:
    found = audited(made(SHARED[kind], True))
    assert not [finding.meaning for finding in found.values() if finding.violated]
    assert 0 < (found["parameters"].found or 0) <= 1
    assert "all bounds of a group narrowed together" in found["parameters"].noticeable


def test_neighbours_reach_the_bound_of_one_step() -> None:
    assert audited(made(STEP, True))["parameters"].found == 1


def test_a_head_that_says_it_moves_less_than_it_does() -> None:
    model: Any = made(SHARED["erm"], True)
    assert isinstance(model, LinearModel)
    share = audited(model)["parameters"].found
    assert share is not None
    trained = model.trained
    sensitivity = replace(trained.sensitivity, rho=trained.sensitivity.rho * share * 0.99)
    boasting = replace(model, trained=replace(trained, sensitivity=sensitivity))
    assert audited(boasting)["parameters"].violated


def test_a_sparse_grid_and_rump_claim_no_nesting() -> None:
    sparse = audited(made({**STEP, "ks": (0, 2)}, True))
    assert sparse["nesting"].outcome is Outcome.UNTESTED
    assert sparse["stable distances"].outcome is Outcome.STANDS
    rump = audited(made({**STEP, "product": "rump"}, True))
    assert rump["stable distances"].outcome is Outcome.UNTESTED
    assert "rump" in rump["stable distances"].meaning


def test_what_a_limit_left_out_is_said() -> None:
    auditor = audit_certificates(made(STEP, True), replace(SMALL, seconds=1e-9), 0)
    assert findings(auditor)[1].outcome is Outcome.UNTESTED
    assert any("audit.seconds" in note for note in notes(auditor))


def test_refusals_are_counted_and_farther_than_the_data() -> None:
    tight = {**STEP, "batch": {"count": 1, "n_max": 41, "normalizer": 30.0}}
    auditor = audit_certificates(made(tight, True), replace(SMALL, farthest=3), 0)
    assert any("n_max" in note for note in notes(auditor))
    assert tables(auditor)["certificate_edits"]["refused"].sum() > 0
    few = made({**STEP, "relation": "remove"}, True, n=4)
    far = audit_certificates(few, replace(SMALL, farthest=9), 0)
    assert not any(finding.violated for finding in findings(far))
    assert any("grid of k" in note for note in notes(far)) or far.evidence.trained


def test_memorisation_of_what_is_not_certified_is_reported() -> None:
    found = audited(made({**STEP, "lr": 30.0, "clip": 1.0}, True), replace(SMALL, units=None))
    assert {finding.outcome for name, finding in found.items() if name.startswith("memorisation of other")} <= {
        Outcome.REPORTED
    }


def test_only_the_bound_itself_is_all_of_the_way() -> None:
    assert way(1.0) == "100 % of the way to its bound"
    assert way(0.649193) == "64.9 % of the way to its bound"
    assert way(0.9999996) == "99.99996 % of the way to its bound"
    assert way(1 + 2.0**-20) == "100.00010 % of the way to its bound"
    assert way(1 - 2.0**-53).startswith("99.99999")
    assert way(0.9995) == "99.95 % of the way to its bound"
    assert way(1.004) == "100.4 % of the way to its bound"
    assert way(12.0) == "12 times as far as its bound"


def test_a_limit_is_shared_among_the_attacks() -> None:
    """Each kind has its share, though one of them alone would take all the time; what was not made is not told."""
    auditor = audit_certificates(made(STEP, True), replace(SMALL, neighbours=0), 0)
    assert "12 of 40 units left out, one at a time; no neighbour edited to hurt" in findings(auditor)[1].effort
    auditor.extent = replace(SMALL, seconds=3e6)
    for stages in (3, 2, 1):
        auditor.share_time(stages)
        assert auditor.until - auditor.started == pytest.approx(3e6 / stages, rel=1e-3)


def test_a_grid_of_nothing_holds_no_neighbour() -> None:
    found = audited(made({**STEP, "ks": (0,)}, True))
    assert found["parameters"].outcome is Outcome.UNTESTED
    assert "farther away than the run's bounds reach" in found["parameters"].meaning
    assert found["parameters and boxes on record"].outcome is Outcome.STANDS
