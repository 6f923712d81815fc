"""The unlearning audit: what forgets to remove is caught, what removes is not accused, and
claims of groups are right.
"""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import make_records

from agt.errors import CheckError, ConfigError
from agt.facts import not_held
from agt.numeric import gaussian_mu
from agt.unlearning.promise import Promise
from agt_audit.forget_sets import Attack, ForgetSets
from agt_audit.selftest import (
    CLOSE,
    DRAWS,
    EXACT,
    REQUESTED,
    MeanModel,
    adaptive_requests,
    one_request,
)
from agt_audit.trials import TrialPlan
from agt_audit.unlearning import attacks_not_made
from agt_audit.unlearning_claims import ModelState, audit_unlearning
from agt_cli.report.findings import Finding, Outcome


def gaussians(
    shift: float, claimed: Promise, rng: np.random.Generator, releases: int = 2_000, looks: int = 1
) -> Finding:
    """The audit of two normal laws of variance 1 so far apart."""

    def served(mean: float) -> ModelState:
        return ModelState(np.array([mean, 0.0]), draw_noise=lambda n: rng.normal(size=n))

    attacks = [Attack(f"{place}", (lambda seen: np.arange(3),)) for place in range(looks)]
    findings, _ = audit_unlearning(
        "two laws",
        lambda: (None, lambda rows: served(shift)),
        lambda rows: served(0.0),
        attacks,
        lambda: claimed,
        TrialPlan(releases),
    )
    return findings[0]


def test_a_claim_that_is_exactly_right_is_seldom_called_violated() -> None:
    rng = np.random.default_rng(0)
    mu = gaussian_mu(CLOSE.eps, CLOSE.delta)
    outcomes = [gaussians(mu, CLOSE, rng, releases=1_000).outcome for _ in range(20)]
    assert outcomes.count(Outcome.VIOLATED) <= 3
    wide = gaussians(6 * mu, CLOSE, rng, looks=5)
    assert wide.outcome is Outcome.VIOLATED
    assert (wide.found or 0) > CLOSE.eps


def test_what_is_not_claimed_is_reported() -> None:
    rng = np.random.default_rng(0)
    void = replace(CLOSE, assumptions=(not_held("noise_from_recorded_seed"),))
    finding = gaussians(5.0, void, rng)
    assert finding.outcome is Outcome.REPORTED
    assert "simulation" in finding.meaning
    flawed = MeanModel(0, lambda rows: rows[:0])
    oblivious = replace(CLOSE, adaptive=False)
    findings, trials = audit_unlearning(
        "loss", flawed.begin, flawed.retrained, [adaptive_requests()], lambda: oblivious, DRAWS
    )
    assert not any(finding.violated for finding in findings if finding.measure == "epsilon")
    assert any("does not cover" in trial.words and (trial.found or 0) > 1 for trial in trials)


def test_a_refused_request_is_listed_with_its_reason() -> None:
    def refuse(rows: np.ndarray) -> ModelState:
        raise CheckError("one class left")

    (finding,), (trial,) = audit_unlearning(
        "refuses", lambda: (None, refuse), refuse, [one_request()], lambda: EXACT, DRAWS
    )
    assert finding.outcome is Outcome.UNTESTED
    assert "one class left" in finding.meaning
    assert trial.found is None
    (note,) = attacks_not_made("newton", [trial])
    assert one_request().name in note
    assert "one class left" in note


def test_nothing_given_out_is_nothing_tested() -> None:
    def silent(rows: np.ndarray) -> ModelState:
        return ModelState(np.zeros(3), answered=np.zeros(3, dtype=bool))

    (finding,), _ = audit_unlearning(
        "silent", lambda: (None, silent), silent, [one_request()], lambda: EXACT, DRAWS
    )
    assert finding.outcome is Outcome.UNTESTED

    def shy(rows: np.ndarray) -> ModelState:
        return ModelState(np.zeros(3), answered=np.full(3, len(rows) < REQUESTED))

    both = [one_request(), one_request(3)]
    (finding,), trials = audit_unlearning(
        "shy", lambda: (None, shy), shy, both, lambda: EXACT, DRAWS
    )
    assert finding.outcome is Outcome.NOT_CONTRADICTED
    assert [trial.found for trial in trials] == [None, 0.0]
    assert both[0].name not in finding.effort
    assert finding.meaning.startswith("in 1 attack, 0 of 3 values")


def forget_sets(records: int = 4, public: bool = False, labels: int = 3) -> ForgetSets:
    rng = np.random.default_rng(0)
    n = 60
    train = make_records(rng.normal(size=(n, 3)), np.arange(n) % labels, public=[public] * n)
    families = np.where(np.arange(n) < 2, "twins", train.ids)
    return ForgetSets(train, families, records, trials=2, seed=0)


def test_forget_sets_name_private_records_once_and_the_last_of_copies() -> None:
    sets = forget_sets()
    assert 0 not in sets.erasable
    assert 1 in sets.erasable
    one_step = [attack for attack in sets.attacks() if not attack.adaptive]
    for attack in one_step:
        rows = attack.requests[0](None)
        assert len(rows) == len(set(rows.tolist()))
        assert set(rows.tolist()) <= set(sets.erasable.tolist())
    names = [attack.name for attack in one_step]
    assert len(names) == len(set(names)) == 6
    whole = next(attack for attack in one_step if "class" in attack.name).requests[0](None)
    assert len(set(sets.train.labels[whole])) == 1
    two = next(
        attack for attack in forget_sets(labels=2).attacks() if "class" in attack.name
    ).requests[0](None)
    assert len(two) == 28  # of 30, the first copy and one more stay


def test_forget_sets_refuse_what_cannot_be_forgotten() -> None:
    with pytest.raises(ConfigError, match="public"):
        forget_sets(public=True)
    with pytest.raises(ConfigError, match=r"audit\.records=58.*\b59\b.*\b57\b"):
        forget_sets(records=58)
