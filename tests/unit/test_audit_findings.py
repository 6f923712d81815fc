"""What an audit found, as a form: what is written is read, and what contradicts itself is
refused.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.test_claims import change

from agt.documents import LAST_READER
from agt.errors import ConfigError, Superseded
from agt_cli.report.findings import VERSION, Audit, Finding, Outcome, Strength, read_audit

RUN = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"


def finding(**changes: Any) -> Finding:
    given: dict[str, Any] = {
        "subject": "randomized_response", "claim": "1-differentially "
                                                   "private", "attack": "the label",
        "effort": "100 a "
                  "side", "outcome": Outcome.NOT_CONTRADICTED, "meaning": "epsilon is at least "
                                                                "0.8", "measure": "epsilon",
        "claimed": 1.0, "delta": 0.0, "found": 0.8, "confidence": 0.95,
    }  # fmt: skip
    return Finding(**given | changes)


def audit(*findings: Finding, **changes: Any) -> Audit:
    return Audit(
        VERSION, "mechanism", "2026-01-31", findings or (finding(),), RUN, ("a note",), **changes
    )


@pytest.mark.parametrize(
    "value", [audit(), audit(finding(claimed=None, delta=None, outcome=Outcome.REPORTED))]
)
def test_what_is_written_is_read(value: Audit) -> None:
    assert read_audit(value.content) == value
    assert read_audit(value.content).content == value.content


def test_an_audit_of_version_1_is_refused_with_the_version_that_reads_it() -> None:
    node = {**json.loads(audit().content), "schema": "agt.audit/1"}
    with pytest.raises(Superseded, match=LAST_READER):
        read_audit(json.dumps(node).encode())


VIOLATED = {"outcome": Outcome.VIOLATED, "found": 1.2}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"outcome": Outcome.VIOLATED}, "randomized_response"),
    ({"outcome": Outcome.VIOLATED, "found": 1.0}, "randomized_response"),
    (
        {"outcome": Outcome.VIOLATED, "measure": "models", "claimed": 9.0, "found": 9.0},
        "randomized_response",
    ),
    ({"found": 1.2}, "randomized_response"),
    ({"found": 1.2, "strength": Strength.EXACT}, "randomized_response"),
    ({**VIOLATED, "strength": Strength.CREDIBLE}, "randomized_response"),
    ({**VIOLATED, "strength": Strength.ASYMPTOTIC}, "randomized_response"),
    ({"confidence": None}, "randomized_response"),
    ({"confidence": None, "strength": Strength.CREDIBLE}, "randomized_response"),
    ({"delta": None}, "randomized_response"),
    ({"claimed": -1.0}, "randomized_response"),
    ({"found": -0.1}, "randomized_response"),
    ({"measure": "mu", "found": -0.1}, "randomized_response"),
    ({"outcome": Outcome.UNTESTED}, "randomized_response"),
    ({"found": float("nan")}, "finite"),
    ({"claimed": float("inf")}, "finite"),
    ({"delta": 1.5}, "delta"),
    ({"confidence": 1.0}, "confidence"),
    ({"meaning": " "}, "meaning"),
    ({"measure": ""}, "measure"),
    ({"outcome": "proved"}, "outcome"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_finding_that_contradicts_itself_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        finding(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        VIOLATED,
        {**VIOLATED, "strength": Strength.EXACT, "confidence": None},
        {"outcome": Outcome.VIOLATED, "found": None},
        {"found": 1.2, "strength": Strength.ASYMPTOTIC},
        {
            "outcome": Outcome.VIOLATED,
            "measure": "models outside",
            "claimed": 0.0,
            "found": 3.0,
            "strength": "certain",
        },
        {"outcome": Outcome.UNTESTED, "found": None, "confidence": None},
    ],
)
def test_what_does_not_is_taken(changes: dict[str, Any]) -> None:
    assert finding(**changes).violated == (changes.get("outcome") is Outcome.VIOLATED)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "agt.audit/3", "version 'agt.audit/3'"),
        ("kind", "", "kind"),
        ("digest", "sha256:abc", "digest"),
        ("findings", [], "findings"),
        ("findings.0.found", "0.8", r"findings\[0\]\.found"),
        ("findings.0.part", 1, "part"),
        ("findings.0.surprise", 1, "surprise"),
        ("parts", [], "parts"),
    ],
)
def test_what_is_no_audit_is_refused(path: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_audit(change(json.loads(audit().content), path, value))


def test_the_violations_of_an_audit_are_its_violated_findings() -> None:
    wrong = replace(finding(), **VIOLATED)
    assert audit(finding(), wrong).violations == (wrong,)
