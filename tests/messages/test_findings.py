"""What a finding of an audit is refused with that contradicts itself."""

from typing import Any

import pytest
from unit.test_audit_findings import finding

from agt.errors import ConfigError
from agt_cli.report.findings import Outcome, Strength

SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"outcome": Outcome.VIOLATED}, "cannot also say that the claim is met"),
    ({"found": 1.2}, "privacy loss is larger than claimed"),
    (
        {"outcome": Outcome.VIOLATED, "found": 1.2, "strength": Strength.CREDIBLE},
        "for any number of trials",
    ),
    ({"confidence": None}, "must give the bound.s confidence"),
    ({"delta": None}, "must also give its delta"),
    ({"claimed": -1.0}, "at least 0"),
    ({"outcome": Outcome.UNTESTED}, "cannot have a result"),
]


@pytest.mark.parametrize(("changes", "sentence"), SENTENCES, ids=[text for _, text in SENTENCES])
def test_a_finding_that_contradicts_itself_is_told_why(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        finding(**changes)
