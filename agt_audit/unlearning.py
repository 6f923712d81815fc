"""agt audit unlearning: each method of agt unlearn, on copies of a run, against training without
the erased records.

An attack is a sequence of requests to erase, each of which may be chosen after looking at what the
one before left. Afterwards, the state of the unlearned model is compared with that of a model
trained without all these rows (``ModelState``). How depends on what is claimed:

| claim        | what is compared                                                                 |
|--------------|----------------------------------------------------------------------------------|
| exact        | every number (weights, votes, labels); or the distance that a minimiser claims   |
| (eps, delta) | draws of both sides along directions: the difference of the weights before noise,|
|              | the gradient of the erased records' loss, noise that was released before         |
| noise        | what was released differs from the weights by fresh noise of the claimed size    |

Formal guarantees
    * Exact: one number that differs is a counterexample. Each of two points is within its own
      distance of the exact minimiser if the claim holds, so theirs is at most the sum.
    * (eps, delta): each direction and threshold is fixed by other draws than those that are
      counted, and all directions share the error probability (Lemma 2 of
      docs/proofs/attack_bounds.md).
    * Isotropic Gaussian noise has the same law along every direction of length 1, so one number is
      drawn for each release.

Sources: Guo et al. (2020) [003]; Sekhari et al. (2021); Gupta et al. (2021) [004].
"""

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field
from scipy.spatial.distance import cdist
from scipy.stats import norm

from agt.data.erasure import families
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
from agt_audit.estimates import Claimed, Mistakes, TestedClaim, choose_event
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.neighbours import labels_of
from agt_audit.trials import TrialPlan
from agt_audit.weights import noise_size
from agt_cli.report.console import Console
from agt_cli.report.findings import Finding, Outcome, counterexamples
from agt_cli.report.next_state import run_lock
from agt_cli.report.opening import open_run
from agt_cli.report.record import RunRecord
from agt_cli.runs.erased import gone_of
from agt_cli.runs.pending import PendingErasures
from agt_cli.runs.prepare import Prepared, prepare
from agt_cli.runs.queries import OpenedRun, TrainedRun
from agt_cli.unlearn.erasure import ErasureOrder, erase
from agt_cli.unlearn.log import Log
from agt_cli.unlearn.methods import METHODS, ErasureJob, chosen, from_the_start
from agt_cli.unlearn.rehearsal import copied

RemovedRows = np.ndarray
MAX_WIDTH = 512  # features beyond so many are looked at through a random projection
MAX_LOOKED_AT = 2_000  # records whose nearest neighbours are looked for


@dataclass(frozen=True)
class ModelState:
    """What a model gives out at one time, for its auditor.

    Attributes:
        values: [d] what is compared, before any noise: weights, the bytes of files, labels.
        answered: [d] bool, which of the values are given out; None: all.
        claimed_distance: how far, in the l2 norm, the values are claimed to be from the ideal ones
            at most; None: nothing is claimed.
        draw_vectors: n -> [n, d] draws of what is released, given all that was released before;
            None: nothing is drawn.
        draw_noise: n -> [n] draws of isotropic Gaussian noise on the values, of which one
            coordinate is enough.
        noisy_values: [d] what was in fact released with noise.
        sigma: the claimed standard deviation of that noise in each coordinate.
        probes: name -> [d] directions along which the erased records would show, for weights.
        visible: whatever else was given out, for whoever chooses the next request by it.
        how: how the state was made, in words; empty: as the method always does.
    """

    values: np.ndarray
    answered: np.ndarray | None = None
    claimed_distance: float | None = None
    draw_vectors: Callable[[int], np.ndarray] | None = None
    draw_noise: Callable[[int], np.ndarray] | None = None
    noisy_values: np.ndarray | None = None
    sigma: float | None = None
    probes: dict[str, np.ndarray] = field(default_factory=dict)
    visible: Any = None
    how: str = ""

    @property
    def released_noise(self) -> np.ndarray | None:
        """[d] the noise that was in fact released; None: none was."""
        if self.noisy_values is None:
            return None
        return self.noisy_values - self.values


Unlearn = Callable[[RemovedRows], ModelState]
"""Rows to erase -> the model's state afterwards."""
Choose = Callable[[Any], RemovedRows]
"""The model's state by now, None before there is one -> the rows to erase next."""


@dataclass(frozen=True)
class Attack:
    """Requests to erase, one after another.

    Attributes:
        name: how they are chosen, in words.
        requests: each chooses rows of the training data, of which none is named twice.
    """

    name: str
    requests: tuple[Choose, ...]

    @classmethod
    def at_once(cls, name: str, rows: RemovedRows) -> "Attack":
        """Return an attack of one request, whatever the model gives out."""
        return cls(name, (lambda state: rows,))

    @property
    def adaptive(self) -> bool:
        """Whether a request is chosen after looking at the model."""
        return len(self.requests) > 1


@dataclass(frozen=True)
class _Files:
    """A store in memory, to which a model is saved.

    Attributes:
        files: name with its folders -> content.
        folder: what names of this part begin with.
    """

    files: dict[str, bytes]
    folder: str = ""

    def write(self, name: str, content: bytes) -> None:
        """Keep a file."""
        self.files[self.folder + name] = content

    def part(self, name: str) -> "_Files":
        """Return the store of a folder in this one."""
        return _Files(self.files, f"{self.folder}{name}/")


def bits(model: Model) -> np.ndarray:
    """Return every byte of the files that a model is saved in, [d] uint8, in order of names."""
    store = _Files({})
    model.save(store)
    contents = [content for _, content in sorted(store.files.items())]
    return np.frombuffer(b"".join(contents), dtype=np.uint8)


@dataclass(frozen=True)
class Trial:
    """How one attack on one claim went.

    Attributes:
        attack: its name.
        test: equal, distance, distinguished or refused.
        records: how many were asked to be erased, in all.
        found: values that differ; distance over what is claimed; or a lower bound on epsilon. None:
            the attack could not be made.
        violated: whether that contradicts the claim.
        words: what was seen, or why the attack was not made.
        how: how the method removed the records, if that says more than its name.
    """

    attack: str
    test: str
    records: int
    found: float | None
    violated: bool
    words: str
    how: str = ""

    @property
    def outcome(self) -> str:
        """What became of the claim, in words."""
        if self.found is None:
            return "not tested"
        return "violated" if self.violated else "not contradicted"


@dataclass(frozen=True)
class AttackedSides:
    """Both models after an attack.

    Attributes:
        attack: what was done.
        records: how many records were asked to be erased, in all.
        unlearned: the state of the model that unlearned.
        retrained: the state of the model that was trained without the records.
        before: all that the method gave out on the way, the trained model's state first.
    """

    attack: Attack
    records: int
    unlearned: ModelState
    retrained: ModelState
    before: tuple[ModelState, ...]


Begin = Callable[[], tuple[ModelState | None, Unlearn]]
"""Sets a method back to the trained model, and returns that model's state (the same value each
time) and what removes rows from it.
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
    """Attack a method of unlearning.

    Args:
        subject: the method, in words.
        begin: called once for each attack: everything before is forgotten.
        retrained: trains without the rows, which are all that an attack named.
        attacks: at least one; rows are never named twice in one.
        claim: asked after all attacks: what the method promised.
        plan: draws of each side, a half of which fixes thresholds; with what confidence bounds
            hold.
        on_done: told how many attacks are done.

    Returns:
        A finding for each test that the claim calls for, and how each attack went. An attack that
        the method refuses (AgtError) is listed as one that was not made.
    """
    pairs: list[AttackedSides] = []
    trials: list[Trial] = []
    for done, attack in enumerate(attacks, 1):
        try:
            pairs.append(_carry_out(attack, begin, retrained))
        except AgtError as error:
            trials.append(Trial(attack.name, "refused", 0, None, False, f"not made: {error}"))
        on_done(done)
    promise = claim()
    if not pairs:
        reasons = "; ".join(dict.fromkeys(trial.words for trial in trials))
        return (not_tested(subject, promise.sentences[0], reasons),), tuple(trials)
    findings: list[Finding | None] = []
    tests = (_equal,) if promise.exact else (_near, _distinguished)
    for test in tests:
        new_trials, finding = test(subject, pairs, promise, plan)
        trials += new_trials
        findings.append(finding)
    findings.append(_noise(subject, pairs, plan))
    return tuple(finding for finding in findings if finding is not None), tuple(trials)


def not_tested(subject: str, claim: str, why: str) -> Finding:
    """Return the finding of a method that could not be attacked.

    Args:
        subject: the method, in words.
        claim: what it promises, in words.
        why: why it could not; empty: no attack was made.
    """
    why = why or "nothing was tested, because no attack was made on this method"
    return counterexamples(subject, claim, "none", "none", "-", None, why)


def _carry_out(
    attack: Attack, begin: Begin, retrained: Callable[[RemovedRows], ModelState]
) -> AttackedSides:
    """Make the requests of an attack, and train without all rows that they named.

    Raises:
        ConfigError: no record is left to choose.
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


def _equal(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test that every number is the same, or as near as is claimed; arguments as of ``_near``."""
    if any(pair.unlearned.claimed_distance is not None for pair in pairs):
        return _near(subject, pairs, claimed, plan)
    trials = []
    total = 0
    for pair in pairs:
        differ, compared = _differences(pair.unlearned, pair.retrained)
        total += compared
        if compared:
            words = _comparison(differ, compared)
            trials.append(_trial(pair, "equal", float(differ), differ > 0, words))
        else:
            words = "not tested, because no query was answered"
            trials.append(_trial(pair, "equal", None, differ > 0, words))
    if not total:
        reason = "not tested, because no query was answered after any of the attacks"
        return trials, not_tested(subject, claimed.sentences[0], reason)
    meaning = f"in every attack, {_comparison(0, total)}"
    wrong = next((trial for trial in trials if trial.violated), None)
    if wrong is not None:
        attack_made = _after(wrong)
        meaning = f"after the attack {attack_made}, {wrong.words}"
    noticeable = (
        "in the attacks that were made, this audit detects a single value that differs from that "
        "of training without the erased records"
    )
    compared_by = (
        "the result of unlearning was compared, value by value, with that of training without "
        "the erased records"
    )
    return trials, _certain_finding(
        subject, claimed, trials, compared_by, "values that differ", meaning, noticeable, 0.0
    )


def _comparison(differ: int, compared: int) -> str:
    """Return how many of the values that were compared differ, in words."""
    return (
        f"{differ:,} of {compared:,} values differ from those of training without the erased "
        "records"
    )


def _differences(unlearned: ModelState, retrained: ModelState) -> tuple[int, int]:
    """Return how many values differ, and how many were compared, of those that are answered.

    If the two have different shapes, all values of the larger differ.
    """
    if unlearned.values.shape != retrained.values.shape:
        size = max(unlearned.values.size, retrained.values.size)
        return size, size
    answered = unlearned.answered
    if answered is None:
        answered = np.ones(unlearned.values.shape, dtype=bool)
    differs = unlearned.values != retrained.values
    return int(differs[answered].sum()), int(answered.sum())


def _near(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test that weights before noise are within the distances that are claimed.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        claimed: what the method promised.
        plan: not used, because nothing is drawn.

    Returns:
        How each attack went, and the finding; None: no pair claims a distance.
    """
    trials = []
    for pair in pairs:
        own_distance = pair.unlearned.claimed_distance
        other_distance = pair.retrained.claimed_distance
        if own_distance is None or other_distance is None:
            continue
        distance = float(np.linalg.norm(pair.unlearned.values - pair.retrained.values))
        allowed = (own_distance + other_distance) * (1 + 1e-12)  # the norm's own rounding
        words = (
            f"the weights of the two models are {distance:.3g} apart, and the claim allows at most "
            f"{allowed:.3g}"
        )
        trials.append(_trial(pair, "distance", distance / allowed, distance > allowed, words))
    if not trials:
        return [], None
    worst = max(trials, key=lambda trial: trial.found or 0)
    attack_made = _after(worst)
    attack = (
        "the weights, before noise is added, were compared with those of training without the "
        "erased records"
    )
    noticeable = (
        "in the attacks that were made, this audit detects weights that are farther from those "
        "of training without the erased records than their recorded bounds allow"
    )
    return trials, _certain_finding(
        f"{subject}: weights before noise",
        replace(claimed, terms=(Remark("near_minimiser_as_recorded"),)),
        trials,
        attack,
        "distance/claimed",
        f"before noise is added, in the worst attack ({attack_made}), {worst.words}",
        noticeable,
        1.0,
    )


# ---- (eps, delta)


@dataclass(frozen=True)
class _Projection:
    """Draws of both models along one direction.

    Attributes:
        pair: both models.
        direction: which direction, in words.
        unlearned: [n] draws of the model that unlearned.
        retrained: [n] draws of the model that was trained without the records.
    """

    pair: AttackedSides
    direction: str
    unlearned: np.ndarray
    retrained: np.ndarray


def _distinguished(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Test whether draws of the two models can be told apart, along every direction.

    Args:
        subject: the method, in words.
        pairs: both models after each attack.
        claimed: what the method promised.
        plan: how many draws there are, and the confidence of bounds.

    Returns:
        How each test went, and the finding; None: nothing was drawn that the claim covers.
    """
    claimed_loss = Claimed("epsilon", claimed.eps, claimed.delta)
    half = plan.trials // 2
    projections = [projection for pair in pairs for projection in _projections(pair, plan.trials)]
    trials = []
    mistakes_of: dict[Trial, Mistakes] = {}
    for projection in projections:
        # one half of the draws chooses the event, the other half counts it
        event = choose_event(
            projection.unlearned[:half],
            projection.retrained[:half],
            claimed_loss,
            plan.confidence,
            "scores",
        )
        mistakes = event.mistakes(projection.unlearned[half:], projection.retrained[half:])
        bound = claimed_loss.bound(mistakes, plan.confidence, len(projections))
        is_covered = claimed.adaptive or not projection.pair.attack.adaptive
        words = _projection_words(projection, mistakes, is_covered)
        violated = is_covered and bound > claimed.eps
        trial = _trial(projection.pair, "distinguished", bound, violated, words)
        trials.append(trial)
        if is_covered:
            mistakes_of[trial] = mistakes
    if not mistakes_of:
        return trials, None
    directions = ", ".join(dict.fromkeys(projection.direction for projection in projections))
    worst = max(mistakes_of, key=lambda trial: trial.found or 0)
    tested = TestedClaim(
        subject=f"{subject}: the weights that are used for answers",
        claim=claimed.sentences[0],
        attack=(
            "an attacker sees everything that was released before, and guesses whether weights "
            "come from unlearning or from training without the erased records, by projecting them "
            f"on: {directions}"
        ),
        effort=(
            f"{_listed(trials)}; each of {len(projections)} tests used {plan.trials:,} draws from "
            "each of the two models, and half of these draws served only to choose thresholds"
        ),
        claimed=claimed_loss,
        confidence=plan.confidence,
        events=len(projections),
    )
    finding = tested.judge(mistakes_of[worst])
    meaning = f"after {_after(worst)}: {finding.meaning}"
    return trials, _promised_only(replace(finding, meaning=meaning), claimed)


def _projection_words(projection: _Projection, mistakes: Mistakes, is_covered: bool) -> str:
    """Return in words how well an attacker told draws apart.

    Args:
        projection: the draws.
        mistakes: on those that were counted.
        is_covered: the claim is about such attacks.
    """
    words = (
        f"with weights projected on {projection.direction}, the attacker made {mistakes.alarms} "
        f"false alarms and {mistakes.misses} misses in {mistakes.trials_with} draws from each of "
        "the two models"
    )
    if is_covered:
        return words
    return (
        f"{words}. The claim does not cover requests that are chosen after looking at "
        "outputs of the model"
    )


def _projections(pair: AttackedSides, count: int) -> Iterator[_Projection]:
    """Yield draws of both models along every direction; nothing if they draw nothing.

    Args:
        pair: both models after an attack.
        count: how many draws there are of each.
    """
    unlearned = pair.unlearned
    retrained = pair.retrained
    if unlearned.draw_vectors is not None and retrained.draw_vectors is not None:
        unlearned_draws = unlearned.draw_vectors(count)
        retrained_draws = retrained.draw_vectors(count)
        half = count // 2
        learned = unlearned_draws[:half].mean(axis=0) - retrained_draws[:half].mean(axis=0)
        directions = _directions(pair)
        directions["a direction learned on half of the draws"] = learned
        for name, direction in directions.items():
            if direction.any():
                yield _Projection(
                    pair, name, unlearned_draws @ direction, retrained_draws @ direction
                )
    elif unlearned.draw_noise is not None and retrained.draw_noise is not None:
        for name, direction in _directions(pair).items():
            unit = direction / (np.linalg.norm(direction) or 1.0)
            yield _Projection(
                pair,
                name,
                unlearned.values @ unit + unlearned.draw_noise(count),
                retrained.values @ unit + retrained.draw_noise(count),
            )


def _directions(pair: AttackedSides) -> dict[str, np.ndarray]:
    """Return directions that are fixed before anything is drawn of the last state: name -> [d]."""
    difference = pair.unlearned.values - pair.retrained.values
    directions = {"the difference between the weights of the two models": difference}
    directions |= pair.unlearned.probes
    released = [state.released_noise for state in pair.before]
    released_noises = [noise for noise in released if noise is not None]
    if released_noises:
        name = "the noise of weights that were released before"
        directions[name] = released_noises[-1]
    return directions


# ---- noise that was in fact served


def _noise(subject: str, pairs: Sequence[AttackedSides], plan: TrialPlan) -> Finding | None:
    """Test whether what was released has noise of the claimed size, drawn anew each time.

    Let z_0, z_1, ... be the noises in the order in which they were drawn, each N(0, sigma^2 I) in d
    coordinates given all before. Then sum |z_i|^2 / sigma^2 is chi-squared, and z_i z_j /
    (sigma |z_j|), j < i, is standard normal given z_j. Half the error probability goes to the
    first being too small, half to the pairs.

    Returns:
        The finding; None: fewer than two states were released with noise.
    """
    # by identity, as the trained model's state is the same object in every pair
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
    """Return how far each noise goes along each earlier one, in standard deviations.

    Args:
        noises: [d] each, in the order in which they were drawn.
        sigmas: the claimed standard deviation of each.
    """
    correlations = []
    for index, (later, sigma) in enumerate(zip(noises, sigmas, strict=True)):
        for earlier in noises[:index]:
            deviation = sigma * float(np.linalg.norm(earlier)) or math.inf
            correlations.append(abs(float(later @ earlier)) / deviation)
    return correlations


def _trial(
    pair: AttackedSides, test: str, found: float | None, violated: bool, words: str
) -> Trial:
    """Return how a test of a pair went; arguments as of ``Trial``."""
    return Trial(pair.attack.name, test, pair.records, found, violated, words, pair.unlearned.how)


def _after(trial: Trial) -> str:
    """Return the attack of a trial in words, with how many records it erased."""
    return f"{trial.attack} ({trial.records} records)"


def _listed(trials: Sequence[Trial]) -> str:
    """Return the names of all attacks that were made, and how many they are."""
    names = dict.fromkeys(trial.attack for trial in trials if trial.found is not None)
    listed = "; ".join(names)
    return f"{counted(len(names), 'attack')} ({listed})"


def _promised_only(finding: Finding, claimed: Promise) -> Finding:
    """Return the finding, without a verdict if nothing is promised: nothing is contradicted then.

    Args:
        finding: what was found.
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
    """Return the finding of a measure that chance has no part in.

    Args:
        subject: what was attacked, in words.
        claimed: what the method promised.
        trials: of all attacks; the largest measure counts.
        attack: what was done, in words.
        measure: what was measured, in words.
        meaning: what was found, in words.
        noticeable: what the audit would detect, in words.
        allowed: the claim is that the measure is at most this.
    """
    largest = max(trial.found or 0.0 for trial in trials)
    finding = counterexamples(
        subject,
        claimed.sentences[0],
        attack,
        _listed(trials),
        measure,
        largest,
        meaning,
        noticeable,
        allowed,
    )
    return _promised_only(replace(finding, claimed=None), claimed)


# ---- forget sets: at random, by an adversary, and by somebody who looks at what is served


class ForgetSets:
    """Sets of records that are asked to be erased, by chance or chosen to make unlearning hard.

    Args:
        train: the run's training records.
        families: [n] str, the same for identical records that nothing else tells apart.
        records: how many each set has; a whole class has as many as it has.
        trials: how many random sets there are.
        seed: of all that is drawn.

    Raises:
        ConfigError: no record may go, or fewer than are asked for.

    Attributes:
        erasable: rows that may be erased; of identical records, the one that agt unlearn takes.
        features: [n, width] float64, flat; of many features, a random projection.
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
        """Raise ConfigError unless as many records may be erased as are asked for."""
        if not len(self.erasable):
            raise ConfigError(
                "every training record of this run is public, so there is nothing to erase. "
                "Audit a run with private records"
            )
        if self.records > len(self.erasable) - 2:
            most = max(1, len(self.erasable) - 2)
            raise ConfigError(
                f"audit.records={self.records} is too many: {len(self.erasable)} training records "
                f"may be erased, and at least two must remain. Give {most} or fewer"
            )

    def attacks(self, by_shard: bool = False) -> Iterator[Attack]:
        """Yield an attack for each set.

        Args:
            by_shard: an attacker who looks at the model chooses records of one member's shard, of
                an ensemble whose shards are kept; False: those that it answers most wrongly.
        """
        rng = np.random.default_rng(self.seed)
        count = self.records
        for draw in range(1, self.trials + 1):
            rows = rng.choice(self.erasable, count, replace=False)
            yield Attack.at_once(f"{count} records chosen at random, draw {draw}", rows)
        leverage, error = self._influence()
        influence = leverage * error**2 / (1 - leverage) ** 2
        yield Attack.at_once(f"the {count} most influential records", self._largest(influence))
        yield Attack.at_once(f"the {count} farthest outliers", self._largest(leverage))
        yield Attack.at_once(
            f"{count} records whose near-duplicates stay in the data", self._near_duplicates(rng)
        )
        yield Attack.at_once("all records of the smallest class", self._smallest_class())
        if count > 1:
            yield self._adaptive_attack(rng, by_shard)

    def _adaptive_attack(self, rng: np.random.Generator, by_shard: bool) -> Attack:
        """Return an attack of two requests, whose second is chosen by looking at the model."""
        at_first = self.records // 2
        afterwards = self.records - at_first
        first_rows = rng.choice(self.erasable, at_first, replace=False)
        choose = self._of_overruled_member if by_shard else self._most_wrong
        return Attack(
            f"{at_first} records at random, then {afterwards} chosen by looking at the "
            "outputs after the first erasure",
            (lambda state: first_rows, partial(choose, first_rows, afterwards)),
        )

    def _smallest_class(self) -> RemovedRows:
        """Return all records of the smallest class; of two classes, all but one."""
        labels, counts = np.unique(self.train.labels[self.erasable], return_counts=True)
        smallest = labels[counts.argmin()]
        rows = self.erasable[self.train.labels[self.erasable] == smallest]
        if len(np.unique(self.train.labels)) <= 2:  # a model needs two classes
            return rows[:-1]
        return rows

    def _largest(self, scores: np.ndarray) -> RemovedRows:
        """Return the rows with the largest scores, of scores [n] of all records."""
        largest_first = np.argsort(-scores[self.erasable], kind="stable")
        return self.erasable[largest_first[: self.records]]

    def _influence(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the leverage [n] and the error [n] of each record in a ridge regression.

        They say how far deleting the record moves the regression on the classes.
        """
        x = np.column_stack([self.features, np.ones(len(self.features))])
        y = np.eye(int(self.train.labels.max()) + 1)[self.train.labels]
        ridge = 1e-3 * np.trace(x.T @ x) / x.shape[1]
        gram = x.T @ x + ridge * np.eye(x.shape[1])
        solved = np.linalg.solve(gram, x.T)
        leverage = np.clip(np.einsum("nd,dn->n", x, solved), 0, 1 - 1e-9)
        return leverage, np.linalg.norm(y - x @ (solved @ y), axis=1)

    def _near_duplicates(self, rng: np.random.Generator) -> RemovedRows:
        """Return rows whose nearest neighbour with the same label is nearest, and stays.

        At most ``MAX_LOOKED_AT`` records are looked at.
        """
        count = min(MAX_LOOKED_AT, len(self.erasable))
        candidates = rng.choice(self.erasable, count, replace=False)
        distances = cdist(self.features[candidates], self.features[candidates])
        labels = self.train.labels[candidates]
        distances[labels[:, None] != labels] = np.inf
        np.fill_diagonal(distances, np.inf)
        chosen: list[int] = []
        staying: set[int] = set()
        for candidate in np.argsort(distances.min(axis=1)).tolist():
            if len(chosen) < self.records and candidate not in staying:
                chosen.append(candidate)
                staying.add(int(distances[candidate].argmin()))
        return candidates[chosen]

    def _most_wrong(self, first: RemovedRows, count: int, state: ModelState) -> RemovedRows:
        """Return the rows that the model answers most wrongly.

        Args:
            first: rows that were erased before.
            count: how many are chosen.
            state: the model's, which shows the model.
        """
        remaining = self.erasable[~np.isin(self.erasable, first)]
        model: Model = state.visible
        margins = model.margins(self.train.features[remaining])
        labels = self.train.labels[remaining]
        if len(margins) == 1:
            own_margin = margins[0] * (2 * labels - 1)
        else:
            own_margin = margins[labels, np.arange(len(remaining))]
        return remaining[np.argsort(own_margin, kind="stable")[:count]]

    def _of_overruled_member(
        self, first: RemovedRows, count: int, state: ModelState
    ) -> RemovedRows:
        """Return rows of the shard whose member the vote overrules most often.

        Whoever knows the key can tell which records these are. Arguments as of ``_most_wrong``.
        """
        model = state.visible
        remaining = self.erasable[~np.isin(self.erasable, first)]
        queries = self.train.features[self.erasable[:MAX_LOOKED_AT]]
        vote = model.predict(queries)
        share_overruled = (labels_of(model.member_margins(queries)) != vote).mean(axis=1)
        shard = assign_shards(self.train.units[remaining], model.settings.ensemble)
        return remaining[shard == int(np.argmax(share_overruled))][:count]


QUIET = Console(json=True, quiet=True)  # what it would say is of copies, and not of the run
NOTES = (
    "each method ran with the code of `agt unlearn` on a copy of the run. The copies were "
    "deleted, and the run was not changed",
    "this program on this machine also trained without the erased records, so the audit does "
    "not notice errors in code that training shares with an unlearning method (such as loading "
    "data)",
    "the audit shows nothing about sets of records that were not tried",
)

COLUMNS = ["method", "attack", "records", "test", "found", "outcome", "words", "removed_by"]
"""Of the table of attacks."""


@schema
class Unlearning(AuditKind):
    """Tells unlearned models of a run from models that never saw the records.

    Attributes:
        records: how many ask to be erased in each attack; of a whole class, as many as it has.
        trials: how many forget sets are drawn at random, beside those chosen by an adversary.
        methods: of ``agt unlearn``; null: all that are made for this kind of run.
        releases: draws of what is released, each side, for each direction.
        queries: test records whose labels are compared where a method answers before it removes.
    """

    name: ClassVar[str] = "unlearning"
    needs_classes: ClassVar[bool] = True
    question: ClassVar[str] = "the erased records had been used in training"
    while_waiting: ClassVar[bool] = True
    records: Annotated[int, Field(ge=1)] = 8
    trials: Annotated[int, Field(ge=1, le=10_000)] = 2
    methods: tuple[MethodName, ...] | None = None
    releases: Annotated[int, Field(ge=40, le=10**7)] = 20_000
    queries: Annotated[int, Field(ge=1)] = 500

    def __post_init__(self) -> None:
        unknown = [method for method in self.methods or () if method not in METHODS]
        if unknown:
            unknown_method = unknown[0]
            known = ", ".join(METHODS)
            raise ConfigError(
                f"audit.methods: `agt unlearn` has no method '{unknown_method}'. Choose from: "
                f"{known}"
            )

    def check(self, given: AuditInputs) -> None:
        """Refuse to go without a run.

        Raises:
            ConfigError: by key.
        """
        _opened(given)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Try every method against every attack.

        Raises:
            ConfigError: the run's data is gone or changed, or fewer records may be erased than
                asked.
        """
        trained = _opened(given)
        opened = trained.open(record, console)
        train = opened.dataset.train
        forget = ForgetSets(
            train, families(opened.kept.source, train), self.records, self.trials, given.seed
        )
        plan = TrialPlan(self.releases, given.confidence)
        findings: list[Finding] = []
        rows: list[tuple[object, ...]] = []
        not_attacked: list[str] = []
        with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
            for method in self.methods or METHODS:
                tested = MethodUnderTest(method, opened, train, Path(scratch) / "run", self.queries)
                try:
                    chosen(method, trained.settings, trained.finished, False)
                except ConfigError as error:
                    if self.methods:
                        reason = (
                            "nothing is claimed, because the method cannot be used for this run"
                        )
                        findings.append(not_tested(tested.words, reason, str(error)))
                    else:
                        not_attacked.append(
                            f"method={method} was not attacked, because it cannot be used for "
                            f"this run: {error}"
                        )
                    continue
                of_method, trials = tested.attacked(forget, plan, console)
                findings += of_method
                rows += [_table_row(method, trial) for trial in trials]
        table = pd.DataFrame(rows, columns=COLUMNS)
        notes = (*not_attacked, *NOTES)
        return Audited.of(trained.finished, findings, notes, tables={"attacks": table})


def _table_row(method: MethodName, trial: Trial) -> tuple[object, ...]:
    """Return the row of a trial, in the order of ``COLUMNS``."""
    return (
        method,
        trial.attack,
        trial.records,
        trial.test,
        trial.found,
        trial.outcome,
        trial.words,
        trial.how,
    )


def _opened(given: AuditInputs) -> TrainedRun:
    """Return the audited run; queries that are brought along are checked to be none.

    Raises:
        ConfigError: there is no run, or it cannot be opened.
    """
    given.need_run(inputs=True)
    return TrainedRun.of({**given.config, "inputs": None})


class MethodUnderTest:
    """A method of unlearning on a copy of the run, and training without the records.

    Args:
        method: of ``agt unlearn``.
        opened: the run, which stays as it is.
        train: its training records, whose rows are asked to be erased.
        copy: where the copy lies.
        queries: how many labels are compared.

    Attributes:
        words: the method, in words.
        run: the run's folder.
        promises: what the method said after each removal.
        removed_rows: rows that were asked for since the last beginning.
        noise_drawn: (side, n) -> noise that was drawn.
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
        """Why nothing can be compared; empty: it can."""
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

    def attacked(
        self, forget: ForgetSets, plan: TrialPlan, console: Console
    ) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
        """Make every attack on the method, as ``audit_unlearning`` returns it.

        Args:
            forget: the sets of records that are asked to be erased.
            plan: how many draws there are, and the confidence of bounds.
            console: for progress.
        """
        reason = self.reason_not_comparable
        if reason:
            return (not_tested(self.words, "see agt unlearn", reason),), ()
        bounds_votes = self.opened.trained.settings.certificate.bounded == "vote counts"
        attacks = list(forget.attacks(by_shard=self.method == "sisa" or bounds_votes))
        with console.progress(f"method={self.method}", "attack") as report:
            return audit_unlearning(
                self.words,
                self.begin,
                self.retrained,
                attacks,
                lambda: self.claimed,
                plan,
                lambda done: report(done, len(attacks), done, len(attacks)),
            )

    def begin(self) -> tuple[ModelState, Unlearn]:
        """Make a fresh copy, and return the trained model's state and what unlearns."""
        shutil.rmtree(self.copy, ignore_errors=True)
        copied(self.run, self.copy)
        self.removed_rows = self.removed_rows[:0]
        return self._trained_state, self._unlearn

    @cached_property
    def _trained_state(self) -> ModelState:
        """The trained model's state: one object, so that its noise is counted once."""
        return self._state(self.opened.model)

    def retrained(self, rows: RemovedRows) -> ModelState:
        """Return the state of a model that is trained from scratch without these rows."""
        prepared = self._prepared(rows)
        settings = self.opened.trained.settings
        job = ErasureJob(self.run, settings, prepared, prepared.erased, len(rows), len(rows))
        model = fit(prepared.problem(from_the_start(job.run, job.settings)))
        return self._state(model, rows, "retrained")

    @property
    def claimed(self) -> Promise:
        """The least that the method promised.

        An attack that was answered by training from scratch keeps that as well. What the settings
        were chosen on is left out of the assumptions: the model that was never trained on the
        records has the same settings.
        """
        if not self.promises:
            return Promise(self.method, True, 0.0, 0.0, True, (Remark("as_promised"),))
        choices = {self.opened.trained.settings.choices, self.opened.kept.problem.settings.choices}
        promises = []
        for promise in self.promises:
            assumptions = tuple(fact for fact in promise.assumptions if fact not in choices)
            promises.append(replace(promise, assumptions=assumptions))
        return max(
            promises, key=lambda promise: (not promise.proved, not promise.exact, promise.eps)
        )

    def _unlearn(self, rows: RemovedRows) -> ModelState:
        """Run ``agt unlearn`` on the copy, and return the state of the model that it leaves."""
        self.removed_rows = np.concatenate([self.removed_rows, rows])
        ids = self.copy.with_name("ids.txt")
        ids.write_text("\n".join(self.train.ids[rows].tolist()), encoding="utf-8")
        compute = self.run.config.get("compute")
        order = ErasureOrder(
            self.copy, None, compute, str(ids), "id", self.method, True, False, self.copy.parent
        )
        with run_lock(self.copy):
            erase(order, QUIET)
        run = open_run(self.copy, "train")
        removal = Log.of(run).entries[-1].removal
        self.promises.append(removal.promise)
        if self.method == "certificate":
            return self._answers(PendingErasures.of(run), self.opened.model)
        model = load(self._prepared(self.removed_rows).problem(self.opened.trained.settings), run)
        how = str(removal.facts.get("removed_by", "")) or removal.sentences[0]
        return replace(self._state(model, self.removed_rows), how=how)

    def _prepared(self, rows: RemovedRows) -> Prepared:
        """Return the data without these rows, and without those that the run's own log names."""
        ids_removed = self.train.ids[rows]
        is_removed_before = gone_of(self.run)

        def is_removed(ids: np.ndarray, units: np.ndarray) -> np.ndarray:
            return np.isin(ids, ids_removed) | is_removed_before(ids, units)

        return prepare(self.opened.trained.settings, QUIET, is_removed)

    def _state(
        self, model: Model, rows: RemovedRows | None = None, side: str = "unlearned"
    ) -> ModelState:
        """Return what a model gives out, as far as the method's claim is about it.

        Args:
            model: trained or unlearned.
            rows: those that were erased; None: none were.
            side: whose noise is drawn, "unlearned" or "retrained".
        """
        if self.method == "certificate":
            return ModelState(model.predict(self._queries(rows)), visible=model)
        weights = model.removable_weights
        if weights is None:
            return ModelState(bits(model), visible=model)
        own_method = self.opened.trained.settings.certificate.own_erasure
        distance = weights.distance if self.method == own_method else None
        if not weights.sigma:
            return ModelState(weights.weight.ravel(), claimed_distance=distance, visible=model)
        probes = {}
        if rows is not None:
            erased = self.train.take(rows)
            gradient = weights.gradient(erased.features, erased.labels)
            probes = {"the gradient of the erased records' loss": gradient.ravel()}
        return ModelState(
            weights.weight.ravel(),
            claimed_distance=distance,
            draw_noise=partial(self._draw_noise, weights.sigma, side),
            noisy_values=weights.noisy_weight.ravel(),
            # noise of a recorded seed repeats itself, so nothing is claimed of its size
            sigma=weights.sigma if weights.noise_is_random else None,
            probes=probes,
            visible=model,
        )

    def _draw_noise(self, sigma: float, side: str, count: int) -> np.ndarray:
        """Return noise of one coordinate, [count], drawn as the product draws it.

        It is drawn once for each side, and serves all directions and attacks.
        """
        if (side, count) not in self.noise_drawn:
            self.noise_drawn[side, count] = noisy(np.zeros(count), sigma, SystemRandomness())
        return self.noise_drawn[side, count]

    def _answers(self, waiting: PendingErasures, model: Model) -> ModelState:
        """Return the labels that a model gives while requests wait, and which it refuses."""
        certificates = model.certify(self._queries(self.removed_rows))
        answered = waiting.answered(certificates, model.problem.classes)
        how = f"{int(answered.sum())} of {len(answered)} queries were answered"
        return ModelState(certificates.prediction, answered=answered, visible=model, how=how)

    def _queries(self, rows: RemovedRows | None) -> np.ndarray:
        """Return test records, and the records at ``rows`` that ask to be erased, [n, ...]."""
        test = self.opened.dataset.test.features[: self.queries]
        if rows is None:
            return test
        return np.concatenate([test, self.train.features[rows[: self.queries]]])
