"""The unlearning audit: what forgets to remove is caught, what removes is not accused, and claims of groups are right."""

import math
from dataclasses import replace

import numpy as np
import pytest
from synthetic import make_records

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.forget_sets import ForgetSets
from agt.audit.planted import unlearning as planted
from agt.audit.planted.unlearning import EFFORT, GONE, MANY, Newton, looking, of_newton, problem, request, without
from agt.audit.unlearning import Attack, Effort, Promised, Served, audit_unlearning, bits
from agt.errors import CheckError, ConfigError
from agt.models.model import fit
from agt.numeric import gaussian_delta, gaussian_mu

CLOSE = Promised("close", exact=False, eps=1.0, delta=1e-3)


@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_method_that_forgets_is_caught(name: str) -> None:
    finding = planted.PLANTED[name](1)
    assert finding.outcome is Outcome.VIOLATED
    assert finding.strength in (Strength.CERTAIN, Strength.CONFIDENT)
    assert finding.noticeable


@pytest.mark.parametrize("seed", range(3))
def test_certified_removal_is_not_accused(seed: int) -> None:
    findings = of_newton(Newton.trained(seed), [request(), looking()])
    assert [finding.outcome for finding in findings] == [Outcome.STANDS] * 3
    assert [finding.measure for finding in findings] == ["distance/claimed", "epsilon", "noise/claimed"]
    assert 0 < (findings[0].found or 0) <= 1


def test_exact_methods_are_not_accused() -> None:
    trained = problem(0, "stability")

    def on(rows: np.ndarray) -> Served:
        return Served(bits(fit(without(trained, rows))))

    (finding,), (trial,) = audit_unlearning("retrain", lambda: (None, on), on, [request(MANY)], planted.EXACT, EFFORT)
    assert finding.outcome is Outcome.STANDS
    assert (trial.found, trial.records) == (0, MANY)


def gaussians(shift: float, claimed: Promised, rng: np.random.Generator, releases: int = 2_000, looks: int = 1) -> Finding:
    """The audit of two normal laws of variance 1 so far apart."""

    def served(mean: float) -> Served:
        return Served(np.array([mean, 0.0]), noise=lambda n: rng.normal(size=n))

    attacks = [Attack(f"{place}", (lambda seen: np.arange(3),)) for place in range(looks)]
    effort = Effort(releases=releases)
    return audit_unlearning("two laws", lambda: (None, lambda rows: served(shift)), lambda rows: served(0.0), attacks,
                            claimed, effort)[0][0]  # fmt: skip


def test_a_claim_that_is_exactly_right_is_seldom_called_violated() -> None:
    rng, mu = np.random.default_rng(0), gaussian_mu(CLOSE.eps, CLOSE.delta)
    outcomes = [gaussians(mu, CLOSE, rng, releases=1_000).outcome for _ in range(20)]
    assert outcomes.count(Outcome.VIOLATED) <= 3
    wide = gaussians(6 * mu, CLOSE, rng, looks=5)
    assert wide.outcome is Outcome.VIOLATED
    assert (wide.found or 0) > CLOSE.eps


def test_what_is_not_claimed_is_reported() -> None:
    rng, void = np.random.default_rng(0), replace(CLOSE, unheld="the noise is a simulation")
    finding = gaussians(5.0, void, rng)
    assert finding.outcome is Outcome.REPORTED
    assert "simulation" in finding.meaning
    flawed = Newton.trained(0, reused=True)
    oblivious = replace(flawed.claimed, adaptive=False)
    findings, trials = audit_unlearning("loss", flawed.begin, flawed.retrained, [looking()], oblivious, EFFORT)
    assert not any(finding.violated for finding in findings if finding.measure == "epsilon")
    assert any("not covered" in trial.words and (trial.found or 0) > 1 for trial in trials)


def test_a_refused_request_is_listed_with_its_reason() -> None:
    def refuse(rows: np.ndarray) -> Served:
        raise CheckError("one class would be left")

    (finding,), (trial,) = audit_unlearning("refuses", lambda: (None, refuse), refuse, [request()], planted.EXACT, EFFORT)
    assert finding.outcome is Outcome.UNTESTED
    assert "one class would be left" in finding.meaning
    assert trial.found is None


def test_nothing_given_out_is_nothing_tested() -> None:
    def silent(rows: np.ndarray) -> Served:
        return Served(np.zeros(3), answered=np.zeros(3, dtype=bool))

    (finding,), _ = audit_unlearning("silent", lambda: (None, silent), silent, [request()], planted.ANSWERS, EFFORT)
    assert finding.outcome is Outcome.UNTESTED

    def shy(rows: np.ndarray) -> Served:
        return Served(np.zeros(3), answered=np.full(3, len(rows) < GONE))

    both = [request(), request(3)]
    (finding,), trials = audit_unlearning("shy", lambda: (None, shy), shy, both, planted.ANSWERS, EFFORT)
    assert finding.outcome is Outcome.STANDS
    assert [trial.found for trial in trials] == [None, 0.0]
    assert both[0].name not in finding.effort


def for_group(eps: float, delta: float, records: int) -> tuple[float, float]:
    """What the docstring of the audit claims of k records."""
    return records * eps, min(1.0, sum(delta * math.exp(i * eps) for i in range(records)))


@pytest.mark.parametrize("records", [1, 2, 7, 40])
def test_the_claim_of_a_group_is_what_the_chain_gives_and_no_less_would_do(records: int) -> None:
    """Gaussian releases k shifts apart keep the group's claim; with k delta in its place some would break it."""
    eps, delta = 1.0, 1e-3
    of_all, slack = for_group(eps, delta, records)
    assert of_all == pytest.approx(records * eps)
    assert slack == pytest.approx(min(1.0, delta * math.expm1(records * eps) / math.expm1(eps)))
    assert gaussian_delta(of_all, records * gaussian_mu(eps, delta)) <= slack


def test_k_delta_is_no_guarantee_of_a_group() -> None:
    """Three laws on {bad, 0, 1}, each step (eps, delta): the events of the chain add up to more than k delta."""
    eps, delta = 1.0, 1e-2
    first = np.array([0.0])
    for _ in range(5):
        first = math.exp(eps) * first + delta  # the most that an event of probability 0 may have after a step
    assert first[0] == pytest.approx(for_group(eps, delta, 5)[1])
    assert first[0] > 5 * delta


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"audit\.releases"):
        Effort(releases=10)
    with pytest.raises(ConfigError, match="epsilon -1"):
        Promised("odd", exact=False, eps=-1.0)


def forget_sets(records: int = 4, public: bool = False, labels: int = 3) -> ForgetSets:
    rng, n = np.random.default_rng(0), 60
    train = make_records(rng.normal(size=(n, 3)), np.arange(n) % labels, public=[public] * n)
    families = np.where(np.arange(n) < 2, "twins", train.ids)
    return ForgetSets.of(train, families, records, trials=2, seed=0)


def test_forget_sets_name_private_records_once_and_the_last_of_copies() -> None:
    sets = forget_sets()
    assert 0 not in sets.free
    assert 1 in sets.free
    one_step = [attack for attack in sets.attacks() if not attack.adaptive]
    for attack in one_step:
        rows = attack.requests[0](None)
        assert len(rows) == len(set(rows.tolist()))
        assert set(rows.tolist()) <= set(sets.free.tolist())
    names = [attack.name for attack in one_step]
    assert len(names) == len(set(names)) == 6
    whole = next(attack for attack in one_step if "class" in attack.name).requests[0](None)
    assert len(set(sets.train.labels[whole])) == 1
    two = next(attack for attack in forget_sets(labels=2).attacks() if "class" in attack.name).requests[0](None)
    assert len(two) == 28  # of 30, the first copy and one more stay


def test_forget_sets_refuse_what_cannot_be_forgotten() -> None:
    with pytest.raises(ConfigError, match="nothing to forget"):
        forget_sets(public=True)
    with pytest.raises(ConfigError, match=r"audit\.records=58: 59 training records may go"):
        forget_sets(records=58)


def test_who_looks_chooses_others_than_before() -> None:
    newton = Newton.trained(0)
    served, unlearn = newton.begin()
    first, then = (choose(served) for choose in looking().requests)
    assert not set(first.tolist()) & set(then.tolist())
    assert len(then) == GONE
    assert unlearn(first).values.shape == served.values.shape
