"""agt audit unlearning: each method of agt unlearn, on copies of a run, against training without
the erased records.

An attack is a sequence of requests to erase, each of which may be chosen after looking at what the
one before left. Afterwards, the state of the unlearned model is compared with that of a model
trained without all these rows (``ModelState``). How depends on what is claimed:

| claim        | what is compared                                                                 |
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
    * That noise is drawn anew is no part of these draws: ``_test_noise`` tests the noise that was
      in fact served.

Sources: Guo et al. (2020) [003]; Sekhari et al. (2021); Gupta et al. (2021) [004].
"""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from scipy.stats import norm

from agt.data.erasure import copy_groups
from agt.data.records import Records
from agt.errors import AgtError, ConfigError, counted
from agt.facts import Standing
from agt.models.fitting import fit, load
from agt.models.model import Model
from agt.numeric import SystemRandomness, noisy
from agt.settings import schema
from agt.training.ensemble import assign_shards
from agt.unlearning.promise import MethodName, Promise
from agt.unlearning.sentences import Remark
from agt_audit.added_noise import noise_size
from agt_audit.estimates import Claimed, Mistakes, TestedClaim, choose_event
from agt_audit.job import SILENT, Audited, AuditInputs, AuditKind, counted_progress
from agt_audit.kind_settings import UnlearningSettings
from agt_audit.neighbours import labels_of, margins_of_labels
from agt_audit.trials import TrialPlan
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, exact_finding
from agt_cli.report.next_state import run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import erased_predicate
from agt_cli.runs.pending import PendingErasures
from agt_cli.runs.prepare import Prepared, prepare
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.unlearn.erasure import ErasureOrder, erase
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.methods import METHODS, ErasureJob, choose_method, from_the_start
from agt_cli.unlearn.rehearsal import copy_run

RemovedRows = np.ndarray
MAX_WIDTH = 512  # records with more features are projected to so many random directions
MAX_CANDIDATES = 2_000  # records among which near-duplicates, or overruled members, are searched


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
Choose = Callable[[Any], RemovedRows]
"""The model's present state (None if the trained model has none) -> the rows to erase next."""


@dataclass(frozen=True)
class Attack:
    """A sequence of requests to erase records.

    Attributes:
        name: how the records are chosen, in words.
        requests: for each request, a function that chooses its rows of the training data. No row
            may be chosen twice.
    """

    name: str
    requests: tuple[Choose, ...]

    @classmethod
    def at_once(cls, name: str, rows: RemovedRows) -> "Attack":
        """Return an attack of one request for ``rows``, which ignores the model's state."""
        return cls(name, (lambda state: rows,))

    @property
    def adaptive(self) -> bool:
        """Whether a request may depend on the result of an earlier one: there are several."""
        return len(self.requests) > 1


@dataclass(frozen=True)
class _Files:
    """A folder in memory, to which a model can be saved (``Model.save``).

    Attributes:
        files: path -> content of every file; all parts of one store share this dictionary.
        folder: the prefix of this part's paths, with a slash at its end; "" for the whole store.
    """

    files: dict[str, bytes]
    folder: str = ""

    def write(self, name: str, content: bytes) -> None:
        """Add a file to this folder, or replace it."""
        self.files[self.folder + name] = content

    def part(self, name: str) -> "_Files":
        """Return a folder within this one; its files are stored in the same dictionary."""
        return _Files(self.files, f"{self.folder}{name}/")


def saved_bytes(model: Model) -> np.ndarray:
    """Return the bytes of all files of a saved model, [d] uint8, in order of their paths."""
    store = _Files({})
    model.save(store)
    contents = [content for _, content in sorted(store.files.items())]
    return np.frombuffer(b"".join(contents), dtype=np.uint8)


@dataclass(frozen=True)
class Trial:
    """The result of one attack on one claim, as a row of the table of attacks.

    Attributes:
        attack: the attack's name.
        records: how many records the attack asked to erase, in all requests.
        test: "equal", "distance", "distinguished" or "refused".
        found: by test, how many values differ; the distance divided by the claimed one; or a lower
            bound on epsilon. None: the attack could not be made, or nothing was compared.
        outcome: "not tested" if ``found`` is None; otherwise whether ``found`` contradicts the
            claim.
        words: a sentence about what was found, or why the attack was not made.
        removed_by: how the method removed the records, as of ``ModelState``.
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
        cls, pair: "AttackedSides", test: str, found: float | None, violated: bool, words: str
    ) -> "Trial":
        """Return the result of a test of a pair of models.

        Args:
            pair: both models after the attack.
            test: as of the attributes.
            found: as of the attributes.
            violated: whether ``found`` contradicts the claim.
            words: as of the attributes.
        """
        outcome = Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED
        if found is None:
            outcome = Outcome.UNTESTED
        how = pair.unlearned.how
        return cls(pair.attack.name, pair.records, test, found, outcome, words, how)

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


def audit_unlearning(
    subject: str,
    begin: Begin,
    retrained: Callable[[RemovedRows], ModelState],
    attacks: Sequence[Attack],
    claim: Callable[[], Promise],
    plan: TrialPlan,
    on_done: Callable[[int], None] = lambda done: None,
) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
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

    Returns:
        A finding for each test that the promise calls for, or one that says why nothing was
        tested; and the result of each test of each attack. An attack that the method refuses (it
        raises AgtError) has a result "refused".
    """
    pairs: list[AttackedSides] = []
    trials: list[Trial] = []
    for done, attack in enumerate(attacks, 1):
        try:
            pairs.append(_make_attack(attack, begin, retrained))
        except AgtError as error:
            reason = f"not made: {error}"
            trials.append(Trial(attack.name, 0, "refused", None, Outcome.UNTESTED, reason))
        on_done(done)
    promise = claim()
    if not pairs:
        reasons = "; ".join(dict.fromkeys(trial.words for trial in trials))
        return (not_tested(subject, promise.sentences[0], reasons),), tuple(trials)
    findings: list[Finding | None] = []
    tests = (_test_equality,) if promise.exact else (_test_distance, _test_distinguishing)
    for test in tests:
        new_trials, finding = test(subject, pairs, promise, plan)
        trials += new_trials
        findings.append(finding)
    findings.append(_test_noise(subject, pairs, plan))
    return tuple(finding for finding in findings if finding is not None), tuple(trials)


def not_tested(subject: str, claim: str, why: str) -> Finding:
    """Return an untested finding about a method that could not be attacked.

    Args:
        subject: the method, in words.
        claim: what the method promises, in words.
        why: a sentence that says why it could not be attacked.
    """
    return exact_finding(
        subject=subject,
        claim=claim,
        attack="none",
        effort="none",
        measure="-",
        found=None,
        meaning=why,
    )


def _make_attack(
    attack: Attack, begin: Begin, retrained: Callable[[RemovedRows], ModelState]
) -> AttackedSides:
    """Erase what an attack asks for, request by request, and train without all these rows.

    Arguments as of ``audit_unlearning``.

    Raises:
        ConfigError: a request has no record left to choose.
        AgtError: the method refuses a request.
    """
    state, unlearn = begin()
    states = [] if state is None else [state]
    removed_rows = np.empty(0, dtype=np.int64)
    for choose in attack.requests:
        rows = choose(state)
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


# ---- exact claims


def _test_equality(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test a claim that unlearning is exact: every value is that of the retrained model.

    If a state claims a distance instead, ``_test_distance`` is made, as a minimiser is exact up to
    that distance. Arguments and results as of ``_test_distance``.
    """
    if any(pair.unlearned.claimed_distance is not None for pair in pairs):
        return _test_distance(subject, pairs, claimed, plan)
    trials = []
    total = 0
    for pair in pairs:
        differ, compared = _count_differences(pair.unlearned, pair.retrained)
        total += compared
        if compared:
            found: float | None = float(differ)
            words = _comparison_sentence(differ, compared)
        else:
            found = None
            words = "not tested, because no query was answered"
        trials.append(Trial.of(pair, "equal", found, differ > 0, words))
    if not total:
        reason = "not tested, because no query was answered after any of the attacks"
        return trials, not_tested(subject, claimed.sentences[0], reason)
    meaning = f"in every attack, {_comparison_sentence(0, total)}"
    first_violation = next((trial for trial in trials if trial.outcome is Outcome.VIOLATED), None)
    if first_violation is not None:
        meaning = f"after the attack {first_violation.attack_text}, {first_violation.words}"
    noticeable = (
        "in the attacks that were made, this audit detects a single value that differs from that "
        "of training without the erased records"
    )
    compared_by = (
        "the result of unlearning was compared, value by value, with that of training without "
        "the erased records"
    )
    finding = _certain_finding(
        subject,
        claimed,
        trials,
        attack=compared_by,
        measure="values that differ",
        meaning=meaning,
        noticeable=noticeable,
        allowed=0.0,
    )
    return trials, finding


def _comparison_sentence(differ: int, compared: int) -> str:
    """Return a sentence that says how many of the compared values differ."""
    return (
        f"{differ:,} of {compared:,} values differ from those of training without the erased "
        "records"
    )


def _count_differences(unlearned: ModelState, retrained: ModelState) -> tuple[int, int]:
    """Return how many of the unlearned model's answered values differ, and how many there are.

    If the two states have different numbers of values, all values of the larger count as different.
    """
    if unlearned.values.shape != retrained.values.shape:
        size = max(unlearned.values.size, retrained.values.size)
        return size, size
    answered = unlearned.answered
    if answered is None:
        answered = np.ones(unlearned.values.shape, dtype=bool)
    differs = unlearned.values != retrained.values
    return int(differs[answered].sum()), int(answered.sum())


def _test_distance(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test that weights before noise are within the distances that are claimed.

    Each model claims a distance from the same minimiser, so theirs is at most the sum.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        claimed: what the method promised.
        plan: not used, because nothing is drawn; it is an argument of every test.

    Returns:
        A result for each pair of which both models claim a distance, and the finding;
        ``([], None)`` if there is no such pair.
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
        return [], None
    largest = max(trials, key=lambda trial: trial.found or 0)
    attack = (
        "the weights, before noise is added, were compared with those of training without the "
        "erased records"
    )
    noticeable = (
        "in the attacks that were made, this audit detects weights that are farther from those "
        "of training without the erased records than their recorded bounds allow"
    )
    finding = _certain_finding(
        f"{subject}: weights before noise",
        replace(claimed, terms=(Remark("near_minimiser_as_recorded"),)),
        trials,
        attack=attack,
        measure="distance/claimed",
        meaning=(
            f"before noise is added, in the worst attack ({largest.attack_text}), {largest.words}"
        ),
        noticeable=noticeable,
        allowed=1.0,
    )
    return trials, finding


# ---- (eps, delta)


def _test_distinguishing(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test an (eps, delta) claim: distinguish draws of what the two models release.

    Each releases its values with isotropic Gaussian noise, so the projection on the difference of
    the values is the most powerful test (Neyman and Pearson).

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        claimed: what the method promised.
        plan: how many draws there are of each side, and the confidence of bounds.

    Returns:
        A result for each pair whose models add noise, and the finding, which is about the largest
        lower bound on epsilon. The finding is None if the claim covers no such pair.
    """
    noisy_pairs = [
        pair for pair in pairs if pair.unlearned.draw_noise and pair.retrained.draw_noise
    ]
    attacks = _attacks_text(pair.attack.name for pair in noisy_pairs)
    tested = TestedClaim(
        subject=f"{subject}: the weights that are used for answers",
        claim=claimed.sentences[0],
        attack=(
            "an attacker guesses whether weights come from unlearning or from training without the "
            "erased records, by projecting them on the difference between the weights of the two "
            "models"
        ),
        effort=(
            f"{attacks}; each of {len(noisy_pairs)} tests used {plan.trials:,} draws from each of "
            "the two models, and half of these draws served only to choose thresholds"
        ),
        claimed=Claimed("epsilon", claimed.eps, claimed.delta),
        confidence=plan.confidence,
        events=len(noisy_pairs),
    )
    trials = []
    findings = []
    for pair in noisy_pairs:
        finding = tested.judge(_count_mistakes(pair, tested.claimed, plan))
        if claimed.adaptive or not pair.attack.adaptive:
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
        return trials, None
    largest = max(findings, key=lambda finding: finding.found or 0.0)
    return trials, _without_verdict_if_unproved(largest, claimed)


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


# ---- noise that was in fact served


def _test_noise(subject: str, pairs: Sequence[AttackedSides], plan: TrialPlan) -> Finding | None:
    """Test that released weights have noise of the claimed size, drawn anew for each state.

    Let z_0, z_1, ... be the noises in the order in which they were drawn, each N(0, sigma^2 I) in d
    coordinates given all before. Then sum |z_i|^2 / sigma^2 is chi-squared, and z_i z_j /
    (sigma |z_j|), j < i, is standard normal given z_j. Half the error probability goes to the
    first being too small, half to the pairs.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        plan: of which only the confidence is used.

    Returns:
        The finding; None: fewer than two states were released with noise of a claimed size.
    """
    # by identity: the trained model's state is one object in all pairs, and must be counted once
    states = {id(state): state for pair in pairs for state in (*pair.before, pair.unlearned)}
    noises = []
    sigmas = []
    for state in states.values():
        noise = state.released_noise
        if noise is not None and state.sigma is not None:
            noises.append(noise)
            sigmas.append(state.sigma)
    if len(noises) < 2:
        return None
    confidence = (1 + plan.confidence) / 2  # of each of the two tests
    correlations = _correlations(noises, sigmas)
    limit = float(norm.isf((1 - confidence) / 2 / len(correlations)))
    largest = max(correlations)
    weights = len(noises[0])
    effort = (
        f"the noise of {len(noises)} states of the model ({weights} weights each) was measured, "
        f"and compared in all {len(correlations)} pairs of states"
    )
    squares = sum(
        float(noise @ noise) / sigma**2 for noise, sigma in zip(noises, sigmas, strict=True)
    )
    coordinates = sum(len(noise) for noise in noises)
    size = noise_size(subject, squares, coordinates, confidence, effort)
    meaning = (
        f"{size.meaning}. The largest correlation between the noises of two states is "
        f"{largest:.3g} standard deviations away from 0 (more than {limit:.2g} shows that noise "
        "was used again)"
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
        meaning=meaning,
        confidence=plan.confidence,
        noticeable=(
            f"{size.noticeable}. It also detects noises of two states whose correlation is more "
            f"than {limit:.2g} standard deviations away from 0"
        ),
    )


def _correlations(noises: Sequence[np.ndarray], sigmas: Sequence[float]) -> list[float]:
    """Return the size of each noise along each earlier one, in standard deviations.

    If noise is drawn anew, each is the absolute value of a standard normal number.

    Args:
        noises: at least two, [d] each, in the order in which they were drawn.
        sigmas: the claimed standard deviation of each noise.

    Returns:
        A number for each of the m (m - 1)/2 pairs of m noises.
    """
    correlations = []
    for index, (later, sigma) in enumerate(zip(noises, sigmas, strict=True)):
        for earlier in noises[:index]:
            deviation = sigma * float(np.linalg.norm(earlier))
            if not deviation:  # a noise of 0 is correlated with nothing
                deviation = math.inf
            correlations.append(abs(float(later @ earlier)) / deviation)
    return correlations


def _attacks_text(names: Iterable[str]) -> str:
    """Return how many attacks were made, with their names, each of which is there once."""
    distinct = dict.fromkeys(names)
    listed = "; ".join(distinct)
    return f"{counted(len(distinct), 'attack')} ({listed})"


def _without_verdict_if_unproved(finding: Finding, claimed: Promise) -> Finding:
    """Return the finding as it is, or without a verdict if the promise is not proved.

    A promise that is not proved claims nothing, so no result can contradict it.

    Args:
        finding: the finding with its verdict.
        claimed: what the method promised.
    """
    if claimed.proved:
        return finding
    reason = "; ".join(
        fact.sentence for fact in claimed.assumptions if fact.standing is Standing.VOID
    )
    meaning = f"{finding.meaning}. Nothing is claimed here, because {reason}"
    return replace(finding, outcome=Outcome.REPORTED, meaning=meaning)


def _certain_finding(
    subject: str,
    claimed: Promise,
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
        claimed: what the method promised.
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
        claim=claimed.sentences[0],
        attack=attack,
        effort=_attacks_text(trial.attack for trial in trials if trial.found is not None),
        measure=measure,
        found=largest,
        meaning=meaning,
        noticeable=noticeable,
        max_allowed=allowed,
    )
    return _without_verdict_if_unproved(replace(finding, claimed=None), claimed)


# ---- forget sets: drawn at random, chosen by an adversary, or chosen after looking at the model


class ForgetSets:
    """Sets of records to erase, drawn at random or chosen to make unlearning hard.

    Args:
        train: the run's n training records.
        families: [n] str, the same for records that are identical in all but their ids.
        records: how many records each set has; a set of a whole class has all of its records.
        trials: how many sets are drawn at random.
        seed: of all draws.

    Raises:
        ConfigError: fewer than ``records + 2`` records can be erased.

    Attributes:
        erasable: the rows that can be erased: those of private records, and the last row of
            identical ones, because it is the one that ``agt unlearn`` erases.
        features: [n, width] float64, each record's as one vector; of more than ``MAX_WIDTH``
            features, a random projection.
    """

    def __init__(
        self, train: Records, families: np.ndarray, records: int, trials: int, seed: int
    ) -> None:
        self.train = train
        self.records = records
        self.trials = trials
        self.seed = seed
        last_of_family = {family: row for row, family in enumerate(families.tolist())}
        private_rows = sorted(row for row in last_of_family.values() if not train.public[row])
        self.erasable = np.array(private_rows, dtype=np.int64)
        self._check_records()
        self.features = np.asarray(train.features).reshape(len(train), -1).astype(np.float64)
        width = self.features.shape[1]
        if width > MAX_WIDTH:
            projection = np.random.default_rng(seed).normal(size=(width, MAX_WIDTH))
            self.features = self.features @ projection / np.sqrt(MAX_WIDTH)

    def _check_records(self) -> None:
        """Raise ConfigError unless ``records`` can be erased and two more remain."""
        if not len(self.erasable):
            raise ConfigError(
                "every training record of this run is public, so there is nothing to erase. "
                "Audit a run with private records"
            )
        if self.records > len(self.erasable) - 2:
            maximum = max(1, len(self.erasable) - 2)
            raise ConfigError(
                f"audit.records={self.records} is too many: {len(self.erasable)} training records "
                f"may be erased, and at least two must remain. Give {maximum} or fewer"
            )

    def attacks(self, by_shard: bool = False) -> Iterator[Attack]:
        """Yield an attack for each set of records.

        Args:
            by_shard: what the adaptive attack chooses after its first request. True: records of
                one member's shard, of an ensemble whose shards stay fixed when records are
                erased. False: the records that the model answers most wrongly.
        """
        rng = np.random.default_rng(self.seed)
        count = self.records
        for draw in range(1, self.trials + 1):
            rows = rng.choice(self.erasable, count, replace=False)
            yield Attack.at_once(f"{count} records chosen at random, draw {draw}", rows)
        leverage, error = self._influence()
        influence = leverage * error**2 / (1 - leverage) ** 2
        most_influential = self._rows_with_largest(influence)
        yield Attack.at_once(f"the {count} most influential records", most_influential)
        outliers = self._rows_with_largest(leverage)
        yield Attack.at_once(f"the {count} farthest outliers", outliers)
        yield Attack.at_once(
            f"{count} records whose near-duplicates stay in the data", self._near_duplicates(rng)
        )
        yield Attack.at_once("all records of the smallest class", self._smallest_class())
        if count > 1:
            yield self._adaptive_attack(rng, by_shard)

    def _adaptive_attack(self, rng: np.random.Generator, by_shard: bool) -> Attack:
        """Return an attack of two requests, whose second is chosen after looking at the model.

        Args:
            rng: draws the rows of the first request.
            by_shard: as of ``attacks``.
        """
        first_count = self.records // 2
        second_count = self.records - first_count
        first_rows = rng.choice(self.erasable, first_count, replace=False)
        choose = self._rows_of_overruled_member if by_shard else self._most_wrong_rows
        name = (
            f"{first_count} records at random, then {second_count} chosen by looking at the "
            "outputs after the first erasure"
        )
        return Attack(name, (lambda state: first_rows, partial(choose, first_rows, second_count)))

    def _smallest_class(self) -> RemovedRows:
        """Return the erasable rows of the class with fewest; of two classes, all but one row."""
        labels, counts = np.unique(self.train.labels[self.erasable], return_counts=True)
        smallest = labels[counts.argmin()]
        rows = self.erasable[self.train.labels[self.erasable] == smallest]
        if len(np.unique(self.train.labels)) <= 2:  # a model needs two classes
            return rows[:-1]
        return rows

    def _rows_with_largest(self, scores: np.ndarray) -> RemovedRows:
        """Return the ``records`` erasable rows with the largest scores.

        Args:
            scores: [n] one for each training record.
        """
        largest_first = np.argsort(-scores[self.erasable], kind="stable")
        return self.erasable[largest_first[: self.records]]

    def _influence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the leverage [n] and the error [n] of each record in a ridge regression.

        The regression is of the classes, as indicators, on the features. Leverage is in
        [0, 1); the error is the l2 norm of the residuals. Together they say how far deleting the
        record moves the regression.
        """
        x = np.column_stack([self.features, np.ones(len(self.features))])
        y = np.eye(int(self.train.labels.max()) + 1)[self.train.labels]
        ridge = 1e-3 * np.trace(x.T @ x) / x.shape[1]
        gram = x.T @ x + ridge * np.eye(x.shape[1])
        solved = np.linalg.solve(gram, x.T)
        leverage = np.clip(np.einsum("nd,dn->n", x, solved), 0, 1 - 1e-9)
        return leverage, np.linalg.norm(y - x @ (solved @ y), axis=1)

    def _near_duplicates(self, rng: np.random.Generator) -> RemovedRows:
        """Return rows that have a close neighbour of the same label which is not erased.

        Those with the closest neighbours are chosen, out of ``MAX_CANDIDATES`` random records.

        Returns:
            At most ``records`` rows.
        """
        count = min(MAX_CANDIDATES, len(self.erasable))
        candidates = rng.choice(self.erasable, count, replace=False)
        distances = cdist(self.features[candidates], self.features[candidates])
        labels = self.train.labels[candidates]
        distances[labels[:, None] != labels] = np.inf
        np.fill_diagonal(distances, np.inf)
        chosen: list[int] = []
        remaining: set[int] = set()  # neighbours of chosen records, which must not be erased
        for candidate in np.argsort(distances.min(axis=1)).tolist():
            if len(chosen) < self.records and candidate not in remaining:
                chosen.append(candidate)
                remaining.add(int(distances[candidate].argmin()))
        return candidates[chosen]

    def _most_wrong_rows(self, first: RemovedRows, count: int, state: ModelState) -> RemovedRows:
        """Return the rows whose own label has the smallest margin in the model.

        Args:
            first: the rows that were erased before; none of them is chosen again.
            count: how many rows to choose; fewer are returned if fewer remain.
            state: the model's present state, whose ``visible`` is the model.
        """
        remaining = self.erasable[~np.isin(self.erasable, first)]
        model: Model = state.visible
        margins = model.margins(self.train.features[remaining])
        labels = self.train.labels[remaining]
        smallest_first = np.argsort(margins_of_labels(margins, labels), kind="stable")
        return remaining[smallest_first[:count]]

    def _rows_of_overruled_member(
        self, first: RemovedRows, count: int, state: ModelState
    ) -> RemovedRows:
        """Return rows of the shard whose member disagrees with the vote most often.

        An attacker who knows the public hash key knows which records are in this shard. Arguments
        as of ``_most_wrong_rows``; fewer than ``count`` rows are returned if the shard has fewer.
        """
        model = state.visible
        remaining = self.erasable[~np.isin(self.erasable, first)]
        queries = self.train.features[self.erasable[:MAX_CANDIDATES]]
        vote = model.predict(queries)
        share_overruled = (labels_of(model.member_margins(queries)) != vote).mean(axis=1)
        shard = assign_shards(self.train.units[remaining], model.settings.ensemble)
        return remaining[shard == int(np.argmax(share_overruled))][:count]


NOTES = (
    "each method ran with the code of `agt unlearn` on a copy of the run. The copies were "
    "deleted, and the run was not changed",
    "this program on this machine also trained without the erased records, so the audit does "
    "not notice errors in code that training shares with an unlearning method (such as loading "
    "data)",
    "the audit shows nothing about sets of records that were not tried",
)


@schema
class Unlearning(UnlearningSettings, AuditKind):
    """Compares unlearned models of a run with models that were trained without the records.

    Attributes:
        records: how many records each attack erases; of a whole class, all of them.
        trials: how many forget sets are drawn at random, beside those chosen by an adversary.
        methods: the methods of ``agt unlearn`` to attack; None: all that can be used for the run.
        releases: how many draws of released weights there are, from each side and direction.
        queries: how many test records' labels are compared, for a method that answers queries
            before it removes records.
    """

    question: ClassVar[str] = "the erased records had been used in training"
    while_waiting: ClassVar[bool] = True

    def check(self, given: AuditInputs) -> None:
        """Check that a run is given and can be opened.

        Raises:
            ConfigError: it is not, or cannot; the error names the key.
        """
        super().check(given)
        _open_without_queries(given)  # it raises

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Make every attack on every method.

        A method that cannot be used for the run has an untested finding if the settings name it,
        and a note otherwise.

        Args:
            given: the settings that all kinds of audit share.
            record: the audit's run folder, in which copies of the run lie meanwhile.
            console: for progress.

        Returns:
            The findings of all methods, and the table of attacks.

        Raises:
            ConfigError: the run's data is missing or was changed, or fewer records can be erased
                than ``records``.
        """
        trained = _open_without_queries(given)
        opened = trained.open(record, console)
        train = opened.dataset.train
        forget = ForgetSets(
            train, copy_groups(opened.stored.source, train), self.records, self.trials, given.seed
        )
        plan = TrialPlan(self.releases, given.confidence)
        findings: list[Finding] = []
        rows: list[dict[str, object]] = []
        unusable_methods: list[str] = []
        with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
            for method in self.methods or METHODS:
                tested = MethodUnderTest(method, opened, train, Path(scratch) / "run", self.queries)
                try:
                    # called only because it raises if the method cannot be used
                    choose_method(method, trained.settings, trained.finished, False)
                except ConfigError as error:
                    if self.methods:
                        reason = (
                            "nothing is claimed, because the method cannot be used for this run"
                        )
                        findings.append(not_tested(tested.words, reason, str(error)))
                    else:
                        unusable_methods.append(
                            f"method={method} was not attacked, because it cannot be used for "
                            f"this run: {error}"
                        )
                    continue
                method_findings, trials = tested.make_attacks(forget, plan, console)
                findings += method_findings
                rows += [{"method": method, **asdict(trial)} for trial in trials]
        columns = ["method", *(each.name for each in fields(Trial))]
        table = pd.DataFrame(rows, columns=columns)
        notes = (*unusable_methods, *NOTES)
        return Audited.of(trained.finished, findings, notes, tables={"attacks": table})


def _open_without_queries(given: AuditInputs) -> TrainedRun:
    """Open the audited run, without the queries (``inputs``) of its settings.

    Raises:
        ConfigError: the run cannot be opened.
    """
    return TrainedRun.from_config({**given.config, "inputs": None})


class MethodUnderTest:
    """A method of ``agt unlearn`` on copies of a run, and training without the erased records.

    ``begin`` starts an attack: it replaces the copy by a fresh one. ``retrained`` does not depend
    on the copy.

    Args:
        method: the method's name.
        opened: the run, which is not changed.
        train: its training records, from which rows are erased.
        copy: the folder of the copy, which is created and replaced; its parent must exist, and
            is written to.
        queries: how many test records' labels are compared.

    Attributes:
        words: the method, in words.
        run: the run, as it was trained.
        promises: the promise of each removal, in all attacks so far.
        removed_rows: the rows that were erased since the last ``begin``.
        noise_drawn: (side, n) -> [n] noise; draws are made once and used again.
    """

    def __init__(
        self, method: MethodName, opened: OpenedRun, train: Records, copy: Path, queries: int
    ) -> None:
        self.method = method
        self.opened = opened
        self.train = train
        self.copy = copy
        self.queries = queries
        self.words = f"method={method} of agt unlearn"
        self.run = opened.trained.finished
        self.promises: list[Promise] = []
        self.noise_drawn: dict[tuple[str, int], np.ndarray] = {}
        self.removed_rows = np.empty(0, dtype=np.int64)

    @property
    def reason_not_comparable(self) -> str:
        """Why the unlearned model cannot be compared with a retrained one; "": it can."""
        settings = self.opened.trained.settings
        if settings.noise is not None:
            return (
                "nothing can be compared, because training draws private noise (noise.epsilon): "
                "two results differ by that noise, whatever was removed"
            )
        if settings.certificate.noise_is_fixed:
            return (
                "unlearning with certificate.masking=loss was not tested, because its noise is "
                "drawn once, in training: every trial would need a training of its own. In "
                "addition, its guarantee is not proved"
            )
        return ""

    def make_attacks(
        self, forget: ForgetSets, plan: TrialPlan, console: Console
    ) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
        """Make every attack on the method.

        Args:
            forget: the sets of records to erase.
            plan: how many draws there are, and the confidence of bounds.
            console: for progress.

        Returns:
            Findings and results as of ``audit_unlearning``; one untested finding and no result if
            the method's models cannot be compared.
        """
        reason = self.reason_not_comparable
        if reason:
            return (not_tested(self.words, "see agt unlearn", reason),), ()
        bounds_votes = self.opened.trained.settings.certificate.bounded == "vote counts"
        attacks = list(forget.attacks(by_shard=self.method == "sisa" or bounds_votes))
        label = f"method={self.method}"
        with counted_progress(console, label, "attack", len(attacks)) as report:
            return audit_unlearning(
                self.words, self.begin, self.retrained, attacks, lambda: self.claimed, plan, report
            )

    def begin(self) -> tuple[ModelState, Unlearn]:
        """Replace the copy by a fresh one; return the trained model's state and ``_unlearn``."""
        shutil.rmtree(self.copy, ignore_errors=True)
        copy_run(self.run, self.copy)
        self.removed_rows = self.removed_rows[:0]
        return self._trained_state, self._unlearn

    @cached_property
    def _trained_state(self) -> ModelState:
        """The trained model's state: one object in all attacks, so its noise is counted once."""
        return self._state(self.opened.model)

    def retrained(self, rows: RemovedRows) -> ModelState:
        """Train a model from scratch without these rows, and return its state."""
        prepared = self._prepared(rows)
        settings = self.opened.trained.settings
        job = ErasureJob(self.run, settings, prepared, prepared.erased, len(rows), len(rows))
        model = fit(prepared.problem(from_the_start(job.run, job.settings)))
        return self._state(model, rows, "retrained")

    @property
    def claimed(self) -> Promise:
        """The weakest promise that the method made in all attacks so far.

        An attack that the method answered by training from scratch fulfils weaker promises as
        well. Assumptions about the data on which settings were chosen are left out, because the
        retrained model has the same settings.

        Before any attack, it is an exact promise without details.
        """
        if not self.promises:
            return Promise(self.method, True, 0.0, 0.0, True, (Remark("as_promised"),))
        choices = {
            self.opened.trained.settings.choices,
            self.opened.stored.problem.settings.choices,
        }
        promises = []
        for promise in self.promises:
            assumptions = tuple(fact for fact in promise.assumptions if fact not in choices)
            promises.append(replace(promise, assumptions=assumptions))
        return max(
            promises, key=lambda promise: (not promise.proved, not promise.exact, promise.eps)
        )

    def _unlearn(self, rows: RemovedRows) -> ModelState:
        """Erase rows from the copy as ``agt unlearn`` does, and return the model's new state.

        The rows are added to ``removed_rows``, and the method's promise to ``promises``.

        Raises:
            AgtError: the method refuses the request.
        """
        self.removed_rows = np.concatenate([self.removed_rows, rows])
        ids = self.copy.with_name("ids.txt")
        ids.write_text("\n".join(self.train.ids[rows].tolist()), encoding="utf-8")
        compute = self.run.config.get("compute")
        order = ErasureOrder(
            self.copy, None, compute, str(ids), "id", self.method, True, False, self.copy.parent
        )
        with run_lock(self.copy):
            erase(order, SILENT)
        run = open_run(self.copy, "train")
        removal = Log.of(run).entries[-1].removal
        self.promises.append(removal.promise)
        if self.method == "certificate":
            return self._answers(PendingErasures.from_run(run), self.opened.model)
        model = load(self._prepared(self.removed_rows).problem(self.opened.trained.settings), run)
        how = str(removal.facts.get("removed_by", ""))
        if not how:
            how = removal.sentences[0]
        return replace(self._state(model, self.removed_rows), how=how)

    def _prepared(self, rows: RemovedRows) -> Prepared:
        """Return the run's data without these rows, and without those that were erased before.

        Args:
            rows: of ``train``. Records that the run itself has erased are in its request log.
        """
        ids_removed = self.train.ids[rows]
        is_removed_before = erased_predicate(self.run)

        def is_removed(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            return np.isin(ids, ids_removed) | is_removed_before(ids, units)

        return prepare(self.opened.trained.settings, SILENT, is_removed)

    def _state(
        self, model: Model, rows: RemovedRows | None = None, side: str = "unlearned"
    ) -> ModelState:
        """Return the values of a model that the method's claim is about.

        They are labels, if the method answers queries before it removes records; otherwise
        weights, if the model has weights that records can be removed from; otherwise the bytes of
        its files.

        Args:
            model: the trained, unlearned or retrained model.
            rows: the rows that were erased; None: none were.
            side: the side for which noise is drawn, "unlearned" or "retrained".
        """
        if self.method == "certificate":
            return ModelState(model.predict(self._queries(rows)), visible=model)
        weights = model.removable_weights
        if weights is None:
            return ModelState(saved_bytes(model), visible=model)
        own_method = self.opened.trained.settings.certificate.own_erasure
        distance = weights.distance if self.method == own_method else None
        if not weights.sigma:
            return ModelState(weights.weight.ravel(), claimed_distance=distance, visible=model)
        return ModelState(
            weights.weight.ravel(),
            claimed_distance=distance,
            draw_noise=partial(self._draw_noise, weights.sigma, side),
            noisy_values=weights.noisy_weight.ravel(),
            # noise of a recorded seed repeats itself, so nothing is claimed of its size
            sigma=weights.sigma if weights.noise_is_random else None,
            visible=model,
        )

    def _draw_noise(self, sigma: float, side: str, count: int) -> np.ndarray:
        """Return ``count`` draws of Gaussian noise, [count], made as releases make theirs.

        They are drawn once for each side and returned in every call with the same count, so all
        attacks share them.

        Args:
            sigma: the standard deviation; it is the same in all calls.
            side: "unlearned" or "retrained".
            count: how many draws.
        """
        if (side, count) not in self.noise_drawn:
            self.noise_drawn[side, count] = noisy(np.zeros(count), sigma, SystemRandomness())
        return self.noise_drawn[side, count]

    def _answers(self, waiting: PendingErasures, model: Model) -> ModelState:
        """Return the labels of a model while erasures are pending, and which are answered.

        Args:
            waiting: the pending erasures.
            model: the trained model, from which nothing has been removed yet.
        """
        certificates = model.certify(self._queries(self.removed_rows))
        answered = waiting.answerable_queries(certificates, model.problem.classes)
        how = f"{int(answered.sum())} of {len(answered)} queries were answered"
        return ModelState(certificates.prediction, answered=answered, visible=model, how=how)

    def _queries(self, rows: RemovedRows | None) -> np.ndarray:
        """Return the features of test records, followed by those of erased records, [n, ...].

        Args:
            rows: the erased rows, of which at most ``queries`` are used; None: test records only.
        """
        test = self.opened.dataset.test.features[: self.queries]
        if rows is None:
            return test
        return np.concatenate([test, self.train.features[rows[: self.queries]]])
