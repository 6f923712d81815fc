"""agt audit mechanism and agt audit weights, from the command line: exit codes, records, and
what is refused.
"""

from typing import Any

import pytest

from tests.cli.conftest import Agt

# draws are the operating system's: at 95 % a sound mechanism fails one test in twenty
SURE = "confidence=0.999999"


def findings(said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said.json["audit"]["findings"]
    return found


def test_weights(agt: Agt) -> None:
    given = ("mechanism=release_weights", "mechanism.mu=1", "audit.trials=100", SURE)
    said = agt("audit", "weights", *given, "--json").ended(0)
    certain, drawn, size = findings(said)
    assert certain["found"] == pytest.approx(1)
    assert certain["strength"] == "certain"
    assert drawn["measure"] == "mu"
    assert size["measure"] == "noise/claimed"


def test_objective_perturbation(agt: Agt) -> None:
    given = ("mechanism=objective_perturbation", "mechanism.eps=1", "mechanism.delta=1e-3")
    said = agt("audit", "weights", *given, "audit.trials=50", SURE, "--json").ended(0)
    certain, drawn, size = findings(said)
    assert 0.5 < certain["found"] <= 1
    assert (drawn["measure"], size["measure"]) == ("epsilon", "noise/claimed")


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("mechanism=randomized_response", "mechanism.eps=1"), 0, "not contradicted:"),
        (("mechanism=smooth_cauchy", "mechanism.eps=1", "audit.values=[0,50]"), 3, "VIOLATED"),
        (("mechanism=certified_quantile", "mechanism.eps=1"), 0, "not contradicted:"),
        (
            ("mechanism=randomized_response", "mechanism.eps=1", "audit.trials=5"),
            0,
            "at least 12 trials with the record",
        ),
    ],
)
def test_without_a_run(agt: Agt, words: tuple[str, ...], code: int, part: str) -> None:
    sound = ("audit.trials=300", SURE) if code == 0 and "trials" not in str(words) else ()
    said = agt("audit", "mechanism", *sound, *words).ended(code)
    assert part in said.out + said.err


@pytest.mark.parametrize(
    "words",
    [
        ("mechanism=randomized_response", "mechanism.eps=1"),
        ("mechanism=randomized_response", "mechanism.eps=1", "mechanism.delta=1e-5"),
        ("mechanism=gaussian_margin", "mechanism.mu=1"),
    ],
)
def test_without_a_run_by_its_own_settings(agt: Agt, words: tuple[str, ...]) -> None:
    said = agt("audit", "mechanism", *words, "--json")
    certain = [each for each in findings(said) if each["strength"] == "certain"]
    assert [each["outcome"] for each in certain] == ["not contradicted"]
