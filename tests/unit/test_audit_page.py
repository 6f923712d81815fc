"""What a page says: the digits of a violation, what chance may have done, where little could
have been noticed.
"""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from unit.test_audit_findings import audit, finding

from agt_audit.claims import Claimed, TestedClaim
from agt_audit.page import AGAIN, data_table, lines, row
from agt_audit.prediction import untested_because_equal
from agt_cli.report.findings import Outcome, Strength, format_lower_bound

WRONG = finding(outcome=Outcome.VIOLATED, found=1.00231, estimator="Clopper-Pearson")


@pytest.mark.parametrize(
    ("found", "claimed", "words"),
    [
        (0.37796, 1.0, "0.377"),
        (1.00231, 1.0, "1.002"),
        (1.00231, None, "1"),
        (1.2, 1.0, "1.2"),
        (1.0986123, 1.09861, "1.098612"),
    ],
)
def test_a_bound_is_cut_off_and_a_violation_shows_its_digits(
    found: float, claimed: float | None, words: str
) -> None:
    assert format_lower_bound(found, claimed) == words


def test_no_bound_stands_above_what_was_found() -> None:
    rng = np.random.default_rng(0)
    for claimed, more in zip(
        rng.uniform(0.01, 30, 500), 10.0 ** rng.uniform(-16, 1, 500), strict=True
    ):
        found = float(np.nextafter(claimed, 99) + more)
        assert claimed < float(format_lower_bound(found, float(claimed))) <= found
        assert float(format_lower_bound(found).replace(",", "")) <= found


def test_a_violation_by_a_bound_says_what_chance_may_have_done() -> None:
    certain = replace(WRONG, strength=Strength.EXACT, confidence=None, subject="another")
    assert AGAIN in list(lines(audit(WRONG), "a person was"))
    assert AGAIN not in list(lines(audit(certain), "a person was")), "a counterexample is no chance"
    assert any(re.search(r"≥ 1\.002.*\b95\b.*Clopper-Pearson", cell) for cell in row(WRONG))


def test_shares_and_numbers_that_are_per_cent_already_are_told_apart() -> None:
    page = data_table(pd.DataFrame({"TPR_at_1%_FPR": [0.0266], "narrowing, %": [2.66]}))
    assert [cell.strip() for cell in page.splitlines()[-1].strip("|").split("|")] == [
        "2.66 %",
        "2.66",
    ]


def test_the_headline_says_where_little_could_have_been_noticed() -> None:
    verdict = audit(finding(noticed=20.51, claimed=2.0), finding(noticed=1.3)).verdict
    assert re.findall(r"[\d.]+\d|\d", verdict) == ["2", "0", "1", "2", "20.6", "2"]


def test_what_could_tell_nothing_is_no_attack() -> None:
    blank = untested_because_equal(
        TestedClaim("a mechanism", "1-DP", "natural queries", "", Claimed("epsilon", 1.0), 0.95)
    )
    assert (blank.outcome, blank.found) == (Outcome.UNTESTED, None)
