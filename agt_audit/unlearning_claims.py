"""Tests of what a method of unlearning promises, on models before and after requests to erase.

After an attack (a sequence of requests), the state of the unlearned model is compared with that of
a model trained without all these rows (``ModelState``). How depends on what is promised:

| promise      | what is compared                                                                 |
|--------------|----------------------------------------------------------------------------------|
| exact        | every number (weights, votes, labels); or the distance that a minimiser claims   |
| (eps, delta) | draws of both sides, along the difference of the weights before noise            |
| noise        | what was released differs from the weights by fresh noise of the claimed size    |

Formal guarantees
    * Exact: one number that differs is a counterexample. Each of two points is within its own
      distance of the exact minimiser if the claim holds, so theirs is at most the sum.
    * (eps, delta): the direction depends on no draw, each threshold is fixed by other draws than
      those that are counted, and all attacks share the error probability (Lemma 2 of
      docs/proofs/attack_bounds.md).
    * Isotropic Gaussian noise has the same law along every direction of length 1, so one number is
      drawn for each release.
    * These draws do not show that each state has new noise: ``_test_noise`` tests the noise that
      was in fact served.

Sources: Guo et al. (2020) [003]; Sekhari et al. (2021); Gupta et al. (2021) [004].
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from agt.errors import AgtError, ConfigError, counted
from agt.facts import Standing
from agt.training.loop import ignore_progress
from agt.unlearning.promise import Promise
from agt.unlearning.sentences import Remark
from agt_audit.added_noise import noise_size
from agt_audit.claims import Claimed, TestedClaim
from agt_audit.estimates import Mistakes
from agt_audit.forget_sets import Attack, RemovedRows
from agt_audit.output_events import choose_event
from agt_audit.trials import TrialPlan
from agt_cli.report.findings import Finding, Outcome, exact_finding

NOT_MADE = "refused"  # ``Trial.test`` of an attack that the method refused


@dataclass(frozen=True)
class ModelState:
    """The values of a model at one time that an audit compares, and how they are released.

    Attributes:
        values: [d] the values that are compared, before noise is added: weights, the bytes of the
            model's files, or labels.
        answered: [d] bool, which of the values are released; None: all.
        claimed_distance: the largest l2 distance of the values from the exact minimiser that is
            claimed; None: no distance is claimed.
        draw_noise: n -> [n] draws of one coordinate of the isotropic Gaussian noise that is added
            to the values; None: no noise is added.
        noisy_values: [d] the values that were released, with noise; None: without noise.
        sigma: the claimed standard deviation of that noise in each coordinate; None: no size of
            noise is claimed.
        visible: what an attacker sees of the model when choosing the next request; usually the
            model itself.
        how: how the method made this state, in words; "": in the one way that it has.
    """

    values: np.ndarray
    answered: np.ndarray | None = None
    claimed_distance: float | None = None
    draw_noise: Callable[[int], np.ndarray] | None = None
    noisy_values: np.ndarray | None = None
    sigma: float | None = None
    visible: Any = None
    how: str = ""

    @property
    def released_noise(self) -> np.ndarray | None:
        """[d] the noise that was added to the released values; None: none was added."""
        if self.noisy_values is None:
            return None
        return self.noisy_values - self.values


Unlearn = Callable[[RemovedRows], ModelState]
"""Rows to erase -> the model's state after they are erased."""


@dataclass(frozen=True)
class Trial:
    """The result of one attack on one claim, as a row of the table of attacks.

    Attributes:
        attack: the attack's name.
        records: how many records the attack asked to erase, in all requests.
        test: "equal", "distance", "distinguished" or ``NOT_MADE``.
        found: by test, how many values differ; the distance divided by the claimed one; or a lower
            bound on epsilon. None: the attack could not be made, or nothing was compared.
        outcome: "not tested" if ``found`` is None; otherwise whether ``found`` contradicts the
            claim.
        words: a sentence about what was found, or why the attack was not made.
        removed_by: how the method removed the records, in words; "": it has only one way.
    """

    attack: str
    records: int
    test: str
    found: float | None
    outcome: Outcome
    words: str
    removed_by: str = ""

    @classmethod
    def of(
        cls, pair: "AttackedSides", test: str, measured: float | None, violated: bool, words: str
    ) -> "Trial":
        """Return the result of a test of a pair of models.

        Args:
            pair: both models after the attack.
            test: the kind of test: "equal", "distance" or "distinguished".
            measured: how many values differ; the distance divided by the claimed one; or a lower
                bound on epsilon. None: nothing was compared.
            violated: whether ``measured`` contradicts the claim.
            words: a sentence about the result, or why the attack was not made.
        """
        outcome = Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED
        if measured is None:
            outcome = Outcome.UNTESTED
        removed_by = pair.unlearned.how
        return cls(pair.attack.name, pair.records, test, measured, outcome, words, removed_by)

    @property
    def attack_text(self) -> str:
        """The attack's name, with the number of records that it erased."""
        return f"{self.attack} ({self.records} records)"


@dataclass(frozen=True)
class AttackedSides:
    """The unlearned model and the retrained model, after one attack.

    Attributes:
        attack: the attack that was made.
        records: how many records it asked to erase, in all requests.
        unlearned: the state of the model after the last erasure.
        retrained: the state of the model that was trained without these records.
        before: the earlier states, in order; the trained model's is first, if it has one.
    """

    attack: Attack
    records: int
    unlearned: ModelState
    retrained: ModelState
    before: tuple[ModelState, ...]


Begin = Callable[[], tuple[ModelState | None, Unlearn]]
"""Resets a method to the trained model, and returns that model's state (the same object each time;
None: it has none) and a function that erases rows.
"""


class UnlearningAudit(NamedTuple):
    """What attacks on a method of unlearning showed.

    Attributes:
        findings: one for each test that the method's promise calls for, or one that says why
            nothing was tested.
        trials: the result of each test of each attack. An attack that the method refuses (it raises
            AgtError) has a result whose ``test`` is ``NOT_MADE``.
    """

    findings: tuple[Finding, ...]
    trials: tuple[Trial, ...] = ()


class PromiseTest(NamedTuple):
    """The result of one test of what a method promises.

    Attributes:
        finding: the finding of all attacks; None: the test applies to none of them.
        trials: a result for each attack that the test applies to.
    """

    finding: Finding | None
    trials: Sequence[Trial] = ()


def audit_unlearning(
    subject: str,
    begin: Begin,
    retrained: Callable[[RemovedRows], ModelState],
    attacks: Sequence[Attack],
    claim: Callable[[], Promise],
    plan: TrialPlan,
    on_done: Callable[[int], None] = ignore_progress,
) -> UnlearningAudit:
    """Attack a method of unlearning, and test what it promises.

    Args:
        subject: the method, in words.
        begin: resets the method; it is called once before each attack.
        retrained: rows -> the state of a model that was trained without them. It is called once
            for each attack, with all rows that the attack erased.
        attacks: at least one.
        claim: returns what the method promised. It is called after all attacks, because a promise
            may depend on how the records were removed.
        plan: how many draws there are of each side, and the confidence of bounds. Half of the
            draws choose thresholds.
        on_done: called after each attack with the number of attacks that are done.
    """
    pairs: list[AttackedSides] = []
    trials: list[Trial] = []
    for done, attack in enumerate(attacks, 1):
        try:
            pairs.append(_make_attack(attack, begin, retrained))
        except AgtError as error:
            reason = f"not made: {error}"
            trials.append(Trial(attack.name, 0, NOT_MADE, None, Outcome.UNTESTED, reason))
        on_done(done)
    promise = claim()
    if not pairs:
        reasons = "; ".join(dict.fromkeys(trial.words for trial in trials))
        untested = not_tested(subject, promise.sentences[0], reasons)
        return UnlearningAudit((untested,), tuple(trials))
    findings: list[Finding] = []
    for result in _test_promise(subject, pairs, promise, plan):
        trials += result.trials
        if result.finding is not None:
            findings.append(result.finding)
    return UnlearningAudit(tuple(findings), tuple(trials))


def _test_promise(
    subject: str, pairs: Sequence[AttackedSides], promise: Promise, plan: TrialPlan
) -> Iterator[PromiseTest]:
    """Yield the result of each test that a promise calls for.

    Args:
        subject: the method, in words.
        pairs: both models after each attack, at least one.
        promise: what the method promised.
        plan: how many draws there are of each side, and the confidence of bounds.
    """
    claims_distance = any(pair.unlearned.claimed_distance is not None for pair in pairs)
    # a minimiser is exact up to the distance that it claims
    if promise.exact and not claims_distance:
        yield _test_equality(subject, pairs, promise)
    else:
        yield _test_distance(subject, pairs, promise)
    if not promise.exact:
        yield _test_distinguishing(subject, pairs, promise, plan)
    yield PromiseTest(_test_noise(subject, pairs, plan.confidence))


def not_tested(subject: str, claim: str, reason: str) -> Finding:
    """Return an untested finding about a method that could not be attacked.

    Args:
        subject: the method, in words.
        claim: what the method promises, in words.
        reason: a sentence that says why it could not be attacked.
    """
    return exact_finding(
        subject=subject,
        claim=claim,
        attack="none",
        effort="none",
        measure="-",
        found=None,
        meaning=reason,
    )


def _make_attack(
    attack: Attack, begin: Begin, retrained: Callable[[RemovedRows], ModelState]
) -> AttackedSides:
    """Erase what an attack asks for, request by request, and train without all these rows.

    Args:
        attack: chooses the rows of each request.
        begin: resets the method to the trained model, and returns a function that erases rows.
        retrained: rows -> the state of a model that was trained without them.

    Raises:
        ConfigError: a request has no record left to choose.
        AgtError: the method refuses a request.
    """
    state, unlearn = begin()
    states = [] if state is None else [state]
    removed_rows = np.empty(0, dtype=np.int64)
    for choose in attack.requests:
        rows = choose(None if state is None else state.visible)
        if not len(rows):
            raise ConfigError(
                f"the attack '{attack.name}' has no record left to choose: give a smaller "
                "audit.records"
            )
        removed_rows = np.concatenate([removed_rows, rows])
        state = unlearn(rows)
        states.append(state)
    *before, last = states
    without_rows = retrained(removed_rows)
    return AttackedSides(attack, len(removed_rows), last, without_rows, tuple(before))


def _test_equality(subject: str, pairs: Sequence[AttackedSides], promise: Promise) -> PromiseTest:
    """Test a promise that unlearning is exact: every value is that of the retrained model.

    Args:
        subject: the method, in words.
        pairs: both models after each attack, none of which claims a distance.
        promise: what the method promised.
    """
    trials = []
    total = 0
    for pair in pairs:
        differ, compared = _count_differences(pair.unlearned, pair.retrained)
        total += compared
        words = "not tested, because no query was answered"
        if compared:
            words = _comparison_sentence(differ, compared)
        differing = float(differ) if compared else None
        trials.append(Trial.of(pair, "equal", differing, differ > 0, words))
    if not total:
        reason = "not tested, because no query was answered after any of the attacks"
        return PromiseTest(not_tested(subject, promise.sentences[0], reason), trials)
    attacks_compared = sum(trial.found is not None for trial in trials)
    attacks = counted(attacks_compared, "attack")
    meaning = f"in {attacks}, {_comparison_sentence(0, total)}"
    first_violation = next((trial for trial in trials if trial.outcome is Outcome.VIOLATED), None)
    if first_violation is not None:
        meaning = f"after the attack {first_violation.attack_text}, {first_violation.words}"
    finding = _certain_finding(
        subject,
        promise,
        trials,
        attack=(
            "the result of unlearning was compared, value by value, with that of training without "
            "the erased records"
        ),
        measure="values that differ",
        meaning=meaning,
        noticeable=(
            "in the attacks that were made, this audit detects a single value that differs from "
            "that of training without the erased records"
        ),
        allowed=0.0,
    )
    return PromiseTest(finding, trials)


def _comparison_sentence(differ: int, compared: int) -> str:
    """Return a sentence that says how many of the compared values differ."""
    return (
        f"{differ:,} of {compared:,} values differ from those of training without the erased "
        "records"
    )


def _count_differences(unlearned: ModelState, retrained: ModelState) -> tuple[int, int]:
    """Return how many of the unlearned model's answered values differ, and how many there are.

    If the two states have different numbers of values, all values of the larger are counted as
    different.
    """
    if unlearned.values.shape != retrained.values.shape:
        size = max(unlearned.values.size, retrained.values.size)
        return size, size
    answered = unlearned.answered
    if answered is None:
        answered = np.ones(unlearned.values.shape, dtype=bool)
    differs = unlearned.values != retrained.values
    return int(differs[answered].sum()), int(answered.sum())


def _test_distance(subject: str, pairs: Sequence[AttackedSides], promise: Promise) -> PromiseTest:
    """Test that weights before noise are within the distances that are claimed.

    Each model claims a distance from the same minimiser, so theirs is at most the sum.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        promise: what the method promised.

    Returns:
        The result. The test applies to pairs of which both models claim a distance.
    """
    trials = []
    for pair in pairs:
        own_distance = pair.unlearned.claimed_distance
        other_distance = pair.retrained.claimed_distance
        if own_distance is None or other_distance is None:
            continue
        distance = float(np.linalg.norm(pair.unlearned.values - pair.retrained.values))
        # the factor allows for the rounding of the norm
        allowed = (own_distance + other_distance) * (1 + 1e-12)
        words = (
            f"the weights of the two models are {distance:.3g} apart, and the claim allows at most "
            f"{allowed:.3g}"
        )
        trials.append(Trial.of(pair, "distance", distance / allowed, distance > allowed, words))
    if not trials:
        return PromiseTest(None)
    largest = max(trials, key=lambda trial: trial.found or 0)
    finding = _certain_finding(
        f"{subject}: weights before noise",
        replace(promise, terms=(Remark("near_minimiser_as_recorded"),)),
        trials,
        attack=(
            "the weights, before noise is added, were compared with those of training without the "
            "erased records"
        ),
        measure="distance/claimed",
        meaning=(
            f"before noise is added, in the worst attack ({largest.attack_text}), {largest.words}"
        ),
        noticeable=(
            "in the attacks that were made, this audit detects weights that are farther from "
            "those of training without the erased records than their recorded bounds allow"
        ),
        allowed=1.0,
    )
    return PromiseTest(finding, trials)


def _test_distinguishing(
    subject: str, pairs: Sequence[AttackedSides], promise: Promise, plan: TrialPlan
) -> PromiseTest:
    """Test an (eps, delta) claim: distinguish draws of what the two models release.

    Each releases its values with isotropic Gaussian noise, so the projection on the difference of
    the values is the most powerful test (Neyman and Pearson).

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        promise: what the method promised.
        plan: how many draws there are of each side, and the confidence of bounds.

    Returns:
        The result. The test applies to pairs whose models add noise, and the finding is about the
        largest lower bound on epsilon. It is None if the claim covers no such pair.
    """
    noisy_pairs = [
        pair for pair in pairs if pair.unlearned.draw_noise and pair.retrained.draw_noise
    ]
    attacks = _attacks_text(pair.attack.name for pair in noisy_pairs)
    tested = TestedClaim(
        subject=f"{subject}: the weights that are used for answers",
        claim=promise.sentences[0],
        attack=(
            "an attacker guesses whether weights come from unlearning or from training without the "
            "erased records, by projecting them on the difference between the weights of the two "
            "models"
        ),
        effort=(
            f"{attacks}; each of {len(noisy_pairs)} tests used {plan.trials:,} draws from each of "
            "the two models, and half of these draws served only to choose thresholds"
        ),
        claimed=Claimed("epsilon", promise.eps, promise.delta),
        confidence=plan.confidence,
        events=len(noisy_pairs),
    )
    trials = []
    findings = []
    for pair in noisy_pairs:
        finding = tested.judge(_count_mistakes(pair, tested.claimed, plan))
        if promise.adaptive or not pair.attack.adaptive:
            trial = Trial.of(
                pair, "distinguished", finding.found, finding.violated, finding.meaning
            )
            meaning = f"after {trial.attack_text}: {finding.meaning}"
            findings.append(replace(finding, meaning=meaning))
        else:
            words = (
                f"{finding.meaning}. The claim does not cover requests that are chosen after "
                "looking at outputs of the model"
            )
            trial = Trial.of(pair, "distinguished", finding.found, False, words)
        trials.append(trial)
    if not findings:
        return PromiseTest(None, trials)
    largest = max(findings, key=lambda finding: finding.found or 0.0)
    return PromiseTest(_without_verdict_if_unproved(largest, promise), trials)


def _count_mistakes(pair: AttackedSides, claimed: Claimed, plan: TrialPlan) -> Mistakes:
    """Draw what two models release, and count an attacker's mistakes on half of the draws.

    The other half chooses the event that the attacker guesses by.

    Args:
        pair: both models after an attack; both add noise.
        claimed: the claim, whose measure decides which event is best.
        plan: how many draws there are of each model, and the confidence of bounds.
    """
    half = plan.trials // 2
    unlearned, retrained = _projected_draws(pair, plan.trials)
    event = choose_event(unlearned[:half], retrained[:half], claimed, plan.confidence, "scores")
    return event.mistakes(unlearned[half:], retrained[half:])


def _projected_draws(pair: AttackedSides, count: int) -> list[np.ndarray]:
    """Return draws of the unlearned model, then of the retrained one, [count] each.

    They are projected on the difference of the two models' values. If it is 0, both sides are
    noise alone.

    Args:
        pair: both models after an attack; both add noise.
        count: how many draws to make of each model.
    """
    difference = pair.unlearned.values - pair.retrained.values
    length = np.linalg.norm(difference)
    direction = difference / length if length else difference
    draws = []
    for state in (pair.unlearned, pair.retrained):
        assert state.draw_noise is not None
        draws.append(state.values @ direction + state.draw_noise(count))
    return draws


def _test_noise(subject: str, pairs: Sequence[AttackedSides], confidence: float) -> Finding | None:
    """Test that released weights have noise of the claimed size, new for each state.

    Let z_0, z_1, ... be the noises in units of their claimed standard deviations, in the order in
    which they were drawn, each N(0, I) in d coordinates given all before. Then sum |z_i|^2 is
    chi-squared, and z_i z_j / |z_j|, j < i, is standard normal given z_j. Half the error
    probability goes to the first being too small, half to the pairs.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        confidence: the probability with which noise as claimed is not called wrong.

    Returns:
        The finding; None: fewer than two states were released with noise of a claimed size.
    """
    noises = _scaled_noises(pairs)
    if len(noises) < 2:
        return None
    confidence_of_each = (1 + confidence) / 2  # of each of the two tests
    correlations = _correlations(noises)
    limit = float(norm.isf((1 - confidence_of_each) / 2 / len(correlations)))
    largest = max(correlations)
    effort = (
        f"the noise of {len(noises)} states of the model ({len(noises[0])} weights each) was "
        f"measured, and compared in all {len(correlations)} pairs of states"
    )
    together = np.concatenate(noises)
    size = noise_size(
        subject, float(together @ together), together.size, confidence_of_each, effort
    )
    return replace(
        size,
        subject=f"{subject}: noise",
        claim=(
            "the released weights have Gaussian noise with the configured standard deviation, "
            "drawn anew for each state"
        ),
        attack=(
            "the noise was computed as the released weights minus those without noise. Two "
            "tests that were fixed beforehand were made: of its length, and of its correlation "
            "between every two states"
        ),
        effort=effort,
        outcome=Outcome.VIOLATED if largest > limit else size.outcome,
        meaning=(
            f"{size.meaning}. The largest correlation between the noises of two states is "
            f"{largest:.3g} standard deviations away from 0 (more than {limit:.2g} shows that "
            "noise was used again)"
        ),
        confidence=confidence,
        noticeable=(
            f"{size.noticeable}. It also detects noises of two states whose correlation is more "
            f"than {limit:.2g} standard deviations away from 0"
        ),
    )


def _scaled_noises(pairs: Sequence[AttackedSides]) -> list[np.ndarray]:
    """Return the noise of each state that was released with noise of a claimed size, [d] each.

    It is in units of its claimed standard deviation. States are in the order in which they were
    made.

    Args:
        pairs: both models after each attack. The trained model's state is one object in all of
            them, and is counted once.
    """
    states: dict[int, ModelState] = {}  # by identity
    for pair in pairs:
        for state in (*pair.before, pair.unlearned):
            states[id(state)] = state
    noises = []
    for state in states.values():
        noise = state.released_noise
        if noise is not None and state.sigma is not None:
            noises.append(noise / state.sigma)
    return noises


def _correlations(noises: Sequence[np.ndarray]) -> list[float]:
    """Return the absolute size of each noise along each earlier one.

    If each state has new noise, each is the absolute value of a standard normal number.

    Args:
        noises: m noises, [d] each, in units of their standard deviations and in the order in which
            they were drawn.

    Returns:
        A number for each of the m (m - 1)/2 pairs.
    """
    correlations = []
    for earlier, later in combinations(noises, 2):
        length = float(np.linalg.norm(earlier)) or math.inf  # 0 is correlated with nothing
        correlations.append(abs(float(later @ earlier)) / length)
    return correlations


def _attacks_text(names: Iterable[str]) -> str:
    """Return how many attacks were made, with their names, each of which is there once."""
    distinct = dict.fromkeys(names)
    listed = "; ".join(distinct)
    return f"{counted(len(distinct), 'attack')} ({listed})"


def _without_verdict_if_unproved(finding: Finding, promise: Promise) -> Finding:
    """Return the finding unchanged, or without a verdict if the promise is not proved.

    A promise that is not proved claims nothing, so no result can contradict it.

    Args:
        finding: the finding with its verdict.
        promise: what the method promised.
    """
    if promise.proved:
        return finding
    reason = "; ".join(
        fact.sentence for fact in promise.assumptions if fact.standing is Standing.VOID
    )
    meaning = f"{finding.meaning}. Nothing is claimed here, because {reason}"
    return replace(finding, outcome=Outcome.REPORTED, meaning=meaning)


def _certain_finding(
    subject: str,
    promise: Promise,
    trials: Sequence[Trial],
    attack: str,
    measure: str,
    meaning: str,
    noticeable: str,
    allowed: float,
) -> Finding:
    """Return the finding of a measurement without randomness: one larger value is a violation.

    Args:
        subject: what was attacked, in words.
        promise: what the method promised.
        trials: the results of all attacks, of which the largest ``found`` is judged.
        attack: what was done, in words.
        measure: the name of what was measured.
        meaning: what was found, in words.
        noticeable: what this audit would detect, in words.
        allowed: the largest value that the claim allows.
    """
    largest = max(trial.found or 0.0 for trial in trials)
    finding = exact_finding(
        subject=subject,
        claim=promise.sentences[0],
        attack=attack,
        effort=_attacks_text(trial.attack for trial in trials if trial.found is not None),
        measure=measure,
        found=largest,
        meaning=meaning,
        noticeable=noticeable,
        max_allowed=allowed,
    )
    return _without_verdict_if_unproved(replace(finding, claimed=None), promise)
