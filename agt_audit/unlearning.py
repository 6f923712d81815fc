"""agt audit unlearning: each method of agt unlearn, on copies of a run, against training without
the records: is a model that unlearned like one that never saw them?

    begin()                 the method at the trained model: what it returns removes rows, one
                            request after another
    retrained(rows)         training without all these rows
    audit_unlearning(subject, begin, retrained, attacks, claimed, plan)
                            findings, and how each attack went

Both sides say what they serve (``Served``). An attack is a sequence of requests, each of which may
be chosen after looking at what the one before left. What is compared depends on what is claimed:

    exact           every number (weights, votes, labels where any are given) is the same; or, of a
                    minimiser, lies as near as is claimed
    (eps, delta)    draws of what is served, on both sides, given all that was served before: no
                    test tells them apart better than that. White box: along the difference of the
                    weights before noise, the gradient of the forgotten records' loss (membership
                    inference on the forget set), and the noise that was seen before; where whole
                    vectors are drawn, along a direction that was learned on one half of them, too
    noise           what was in fact served differs from the weights by noise of the claimed size,
                    drawn anew

Formal guarantees
    Exact claims. One number that differs is a counterexample: certain. A distance is between two
    computed points, and each is within its own ``within`` of one point (the exact minimiser over
    the records that are left) if the claim holds, so theirs is at most the sum.
    (eps, delta). Each direction, and the threshold along it, is fixed by other draws than those
    that are counted. Given them, mistakes are binomial on each side, and the error probability is
    shared among all directions of all attacks (estimates.py): a claim that holds is called violated
    with probability 1 - confidence at most, whether draws serve several attacks or not. Isotropic
    Gaussian noise has the same law along every direction of length 1, so that one number of the
    method's own noise is drawn for each release: rounding to a lattice apart (2^-24 sigma).
    Noise. Let z_0, z_1, ... be what was served less the weights, in the order in which it was
    drawn, each N(0, sigma^2 I) in d coordinates given all before. Then sum |z_i|^2 / sigma^2 is
    chi-squared, and z_i z_j / (sigma |z_j|), j < i, standard normal given z_j. Half the error
    probability goes to the first being too small, half to the pairs. Groups. If unlearning one
    record is (eps, delta)-close to training without it, in both directions, then for k records, P_0
    the one end of the chain and P_k the other, P_i <= e^eps P_(i+1) + delta gives P_0 <= e^(k eps)
    P_k + delta sum_{i<k} e^(i eps). k delta alone, as some lecture notes have it, is no guarantee.

Sources: Guo et al. (2020) [003]; Sekhari et al. (2021); Gupta et al. (2021), Adaptive machine
unlearning [004].
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
from agt_audit.estimates import Claimed, Mistakes, TestedClaim, chosen as chosen_event
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
class Served:
    """What a model gives out, for its auditor.

    Attributes:
        values: [d] what is compared, before any noise: weights, the bytes of files, labels.
        answered: [d] bool: which of the values are given out; None: all.
        within: what the values are claimed to be away from the ideal ones at most, l2; None:
            nothing.
        draw: n -> [n, d] draws of what is served, given all that was served before; None: nothing
            is drawn.
        noise: n -> [n] the same for isotropic Gaussian noise on the values, of which one coordinate
            is enough.
        seen: [d] what was in fact served with noise.
        sigma: the claimed standard deviation of that noise in each coordinate.
        probes: name -> [d] directions along which the forgotten records would show, for weights.
        shown: whatever else was given out, for whoever chooses the next request by it.
        how: the state was made, in words; empty: as the method always does.
    """

    values: np.ndarray
    answered: np.ndarray | None = None
    within: float | None = None
    draw: Callable[[int], np.ndarray] | None = None
    noise: Callable[[int], np.ndarray] | None = None
    seen: np.ndarray | None = None
    sigma: float | None = None
    probes: dict[str, np.ndarray] = field(default_factory=dict)
    shown: Any = None
    how: str = ""


Unlearn = Callable[[RemovedRows], Served]
Choose = Callable[[Any], RemovedRows]
"""What is served by now, None before anything was -> the rows that ask to be erased next."""


@dataclass(frozen=True)
class Attack:
    """Requests to erase, one after another.

    Attributes:
        name: how they are chosen, in words.
        requests: each chooses rows of the training data.
    """

    name: str
    requests: tuple[Choose, ...]

    @classmethod
    def at_once(cls, name: str, rows: RemovedRows) -> "Attack":
        """One request, whatever is served."""
        return cls(name, (lambda served: rows,))

    @property
    def adaptive(self) -> bool:
        """Whether a request is chosen after looking."""
        return len(self.requests) > 1


@dataclass(frozen=True)
class _Files:
    """A store in memory."""

    files: dict[str, bytes]
    folder: str = ""

    def write(self, name: str, content: bytes) -> None:
        self.files[self.folder + name] = content

    def part(self, name: str) -> "_Files":
        return _Files(self.files, f"{self.folder}{name}/")


def bits(model: Model) -> np.ndarray:
    """[d] uint8: every byte of the files that a model is saved in, in the order of their names."""
    store = _Files({})
    model.save(store)
    return np.frombuffer(
        b"".join(content for _, content in sorted(store.files.items())), dtype=np.uint8
    )


@dataclass(frozen=True)
class Trial:
    """How one attack on one claim went.

    Attributes:
        attack: its name.
        test: equal, distance or distinguished.
        records: how many were asked to be erased, in all.
        found: values that differ; distance over what is claimed; lower bound on epsilon.
        violated: whether that contradicts the claim.
        words: what was seen; why not, of an attack that could not be made (``found`` None).
        how: the method removed, where it says more than its name.
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
        """In words."""
        return (
            "not tested"
            if self.found is None
            else "violated"
            if self.violated
            else "not contradicted"
        )


@dataclass(frozen=True)
class AttackedSides:
    """Both sides after an attack, and all that the method served on the way, the trained model's
    first.
    """

    attack: Attack
    records: int
    mine: Served
    other: Served
    before: tuple[Served, ...]


Begin = Callable[[], tuple[Served | None, Unlearn]]
"""The method at the trained model: (what that serves, the same value each time; removes rows,
says what is served then).
"""


def audit_unlearning(
    subject: str,
    begin: Begin,
    retrained: Callable[[RemovedRows], Served],
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
    pairs, trials = list[AttackedSides](), list[Trial]()
    for done, attack in enumerate(attacks, 1):
        try:
            pairs.append(_carried_out(attack, begin, retrained))
        except AgtError as error:
            trials.append(Trial(attack.name, "refused", 0, None, False, f"not made: {error}"))
        on_done(done)
    claimed = claim()
    if not pairs:
        why = "; ".join(dict.fromkeys(trial.words for trial in trials))
        return (not_tested(subject, claimed.sentences[0], why),), tuple(trials)
    findings = list[Finding | None]()
    for test in (_equal,) if claimed.exact else (_near, _distinguished):
        made, finding = test(subject, pairs, claimed, plan)
        trials += made
        findings.append(finding)
    findings.append(_noise(subject, pairs, plan))
    return tuple(finding for finding in findings if finding is not None), tuple(trials)


def not_tested(subject: str, claim: str, why: str) -> Finding:
    """A method that could not be attacked."""
    why = why or "nothing was tested, because no attack was made on this method"
    return counterexamples(subject, claim, "none", "none", "-", None, why)


def _carried_out(
    attack: Attack, begin: Begin, retrained: Callable[[RemovedRows], Served]
) -> AttackedSides:
    served, unlearn = begin()
    gone, seen = np.empty(0, dtype=np.int64), [] if served is None else [served]
    for choose in attack.requests:
        rows = choose(served)
        if not len(rows):
            raise ConfigError(
                f"the attack '{attack.name}' has no record left to choose: give a smaller "
                "audit.records"
            )
        gone = np.concatenate([gone, rows])
        served = unlearn(rows)
        seen.append(served)
    *before, mine = seen
    return AttackedSides(attack, len(gone), mine, retrained(gone), tuple(before))


# ---- exact claims


def _equal(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Every number the same, or as near as is claimed."""
    if any(pair.mine.within is not None for pair in pairs):
        return _near(subject, pairs, claimed, plan)
    trials, total = list[Trial](), 0
    for pair in pairs:
        differ, compared = _differences(pair.mine, pair.other)
        total += compared
        words = _comparison(differ, compared)
        if not compared:
            words = "not tested, because no query was answered"
        trials.append(_trial(pair, "equal", float(differ) if compared else None, differ > 0, words))
    if not total:
        return trials, not_tested(
            subject,
            claimed.sentences[0],
            "not tested, because no query was answered after any of the attacks",
        )
    wrong = next((trial for trial in trials if trial.violated), None)
    meaning = f"in every attack, {_comparison(0, total)}"
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
    return trials, _seen(
        subject, claimed, trials, compared_by, "values that differ", meaning, noticeable, 0.0
    )


def _comparison(differ: int, compared: int) -> str:
    """Return how many of the values that were compared differ, in words."""
    return (
        f"{differ:,} of {compared:,} values differ from those of training without the erased "
        "records"
    )


def _differences(mine: Served, other: Served) -> tuple[int, int]:
    """(how many values differ, how many were compared), of those that are answered."""
    if mine.values.shape != other.values.shape:
        return max(mine.values.size, other.values.size), max(mine.values.size, other.values.size)
    asked = np.ones(mine.values.shape, dtype=bool) if mine.answered is None else mine.answered
    return int((mine.values != other.values)[asked].sum()), int(asked.sum())


def _near(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Weights before noise within the distances that are claimed."""
    trials = []
    for pair in pairs:
        if pair.mine.within is None or pair.other.within is None:
            continue
        away = float(np.linalg.norm(pair.mine.values - pair.other.values))
        allowed = (pair.mine.within + pair.other.within) * (1 + 1e-12)  # the norm's own rounding
        trials.append(
            _trial(
                pair,
                "distance",
                away / allowed,
                away > allowed,
                f"the weights of the two models are {away:.3g} apart, and the claim allows at most "
                f"{allowed:.3g}",
            )
        )
    if not trials:
        return [], None
    worst = max(trials, key=lambda trial: trial.found or 0)
    claimed = replace(claimed, terms=(Remark("near_minimiser_as_recorded"),))
    attack_made = _after(worst)
    attack = (
        "the weights, before noise is added, were compared with those of training without the "
        "erased records"
    )
    noticeable = (
        "in the attacks that were made, this audit detects weights that are farther from those "
        "of training without the erased records than their recorded bounds allow"
    )
    meaning = f"before noise is added, in the worst attack ({attack_made}), {worst.words}"
    about = f"{subject}: weights before noise"
    return trials, _seen(
        about, claimed, trials, attack, "distance/claimed", meaning, noticeable, 1.0
    )


# ---- (eps, delta)


def _distinguished(
    subject: str, pairs: Sequence[AttackedSides], claimed: Promise, plan: TrialPlan
) -> tuple[list[Trial], Finding | None]:
    """Which side a draw is of, guessed along every direction."""
    held, half = Claimed("epsilon", claimed.eps, claimed.delta), plan.trials // 2
    looks = [(pair, name, *scores) for pair in pairs for name, scores in _scores(pair, plan.trials)]
    trials, counts = list[Trial](), dict[Trial, Mistakes]()
    for pair, direction, mine, other in looks:
        event = chosen_event(mine[:half], other[:half], held, plan.confidence, "scores")
        mistakes = event.mistakes(mine[half:], other[half:])
        bound = held.bound(mistakes, plan.confidence, len(looks))
        covered = claimed.adaptive or not pair.attack.adaptive
        counted_draws = len(mine) - half
        words = (
            f"with weights projected on {direction}, the attacker made {mistakes.alarms} false "
            f"alarms and {mistakes.misses} misses in {counted_draws} draws from each of the two "
            "models"
        )
        if not covered:
            words = (
                f"{words}. The claim does not cover requests that are chosen after looking at "
                "outputs of the model"
            )
        trials.append(_trial(pair, "distinguished", bound, covered and bound > claimed.eps, words))
        if covered:
            counts[trials[-1]] = mistakes
    if not counts:
        return trials, None
    directions = ", ".join(dict.fromkeys(direction for _, direction, *_ in looks))
    attack = (
        "an attacker sees everything that was released before, and guesses whether weights come "
        "from unlearning or from training without the erased records, by projecting them on: "
        f"{directions}"
    )
    drawn = (
        f"each of {len(looks)} tests used {plan.trials:,} draws from each of the two models, and "
        "half of these draws served only to choose thresholds"
    )
    worst = max(counts, key=lambda trial: trial.found or 0)
    about = f"{subject}: the weights that are used for answers"
    listed = f"{_listed(trials)}; {drawn}"
    finding = TestedClaim(
        about, claimed.sentences[0], attack, listed, held, plan.confidence, len(looks)
    ).judge(counts[worst])
    return trials, _promised_only(
        replace(finding, meaning=f"after {_after(worst)}: {finding.meaning}"), claimed
    )


def _scores(pair: AttackedSides, n: int) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """(a direction's name, draws of both sides along it), of a pair that draws anything."""
    mine, other = pair.mine, pair.other
    if mine.draw is not None and other.draw is not None:
        drawn = mine.draw(n), other.draw(n)
        learned = drawn[0][: n // 2].mean(axis=0) - drawn[1][: n // 2].mean(axis=0)
        directions = {**_directions(pair), "a direction learned on half of the draws": learned}
        yield from (
            (name, (drawn[0] @ u, drawn[1] @ u)) for name, u in directions.items() if u.any()
        )
    elif mine.noise is not None and other.noise is not None:
        for name, u in _directions(pair).items():
            unit = u / (np.linalg.norm(u) or 1.0)
            yield name, (mine.values @ unit + mine.noise(n), other.values @ unit + other.noise(n))


def _directions(pair: AttackedSides) -> dict[str, np.ndarray]:
    """Fixed before anything is drawn of the last state."""
    last = next((served for served in reversed(pair.before) if served.seen is not None), None)
    seen = (
        {}
        if last is None or last.seen is None
        else {"the noise of weights that were released before": last.seen - last.values}
    )
    return {
        "the difference between the weights of the two models": pair.mine.values
        - pair.other.values,
        **pair.mine.probes,
        **seen,
    }


# ---- noise that was in fact served


def _noise(subject: str, pairs: Sequence[AttackedSides], plan: TrialPlan) -> Finding | None:
    """Whether what was served has noise of the claimed size, drawn anew each time."""
    states = {id(served): served for pair in pairs for served in (*pair.before, pair.mine)}.values()
    noises = [
        (s.seen - s.values, s.sigma) for s in states if s.seen is not None and s.sigma is not None
    ]
    if len(noises) < 2:
        return None
    sure, coordinates = (1 + plan.confidence) / 2, sum(len(z) for z, _ in noises)
    squares = sum(float(z @ z) / sigma**2 for z, sigma in noises)
    alike = [
        abs(float(later @ earlier)) / (sigma * float(np.linalg.norm(earlier)) or math.inf)
        for place, (later, sigma) in enumerate(noises)
        for earlier, _ in noises[:place]
    ]
    limit, most = float(norm.isf((1 - sure) / 2 / len(alike))), max(alike)
    weights = len(noises[0][0])
    effort = (
        f"the noise of {len(noises)} states of the model ({weights} weights each) was measured, "
        f"and compared in all {len(alike)} pairs of states"
    )
    size, again = noise_size(subject, squares, coordinates, sure, effort), most > limit
    meaning = (
        f"{size.meaning}. The largest correlation between the noises of two states is {most:.3g} "
        f"standard deviations away from 0 (more than {limit:.2g} shows that noise was used again)"
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
        outcome=Outcome.VIOLATED if again else size.outcome,
        meaning=meaning,
        confidence=plan.confidence,
        noticeable=(
            f"{size.noticeable}. It also detects noises of two states whose correlation is more "
            f"than {limit:.2g} standard deviations away from 0"
        ),
    )


def _trial(
    pair: AttackedSides, test: str, found: float | None, violated: bool, words: str
) -> Trial:
    return Trial(pair.attack.name, test, pair.records, found, violated, words, pair.mine.how)


def _after(trial: Trial) -> str:
    return f"{trial.attack} ({trial.records} records)"


def _listed(trials: Sequence[Trial]) -> str:
    names = dict.fromkeys(trial.attack for trial in trials if trial.found is not None)
    return f"{counted(len(names), 'attack')} ({'; '.join(names)})"


def _promised_only(finding: Finding, claimed: Promise) -> Finding:
    """What is not promised is not contradicted."""
    if claimed.proved:
        return finding
    reason = "; ".join(
        fact.sentence for fact in claimed.assumptions if fact.standing is Standing.VOID
    )
    meaning = f"{finding.meaning}. Nothing is claimed here, because {reason}"
    return replace(finding, outcome=Outcome.REPORTED, meaning=meaning)


def _seen(
    subject: str,
    claimed: Promise,
    trials: Sequence[Trial],
    attack: str,
    measure: str,
    meaning: str,
    noticeable: str,
    most: float,
) -> Finding:
    """What was seen, without chance, over all attacks; the claim is that the measure is at most
    so much.
    """
    found = max(trial.found or 0.0 for trial in trials)
    about = (
        subject,
        claimed.sentences[0],
        attack,
        _listed(trials),
        measure,
        found,
        meaning,
        noticeable,
        most,
    )
    return _promised_only(replace(counterexamples(*about), claimed=None), claimed)


# ---- forget sets: at random, by an adversary, and by somebody who looks at what is served


class ForgetSets:
    """Forget sets of a run.

    Args:
        train: its training records.
        families: [n] str, the same for identical records that nothing else tells apart.
        records: how many ask.
        trials: how many random sets.
        seed: of all that is drawn.

    Raises:
        ConfigError: no record may go, or fewer than ask.
    """

    def __init__(
        self, train: Records, families: np.ndarray, records: int, trials: int, seed: int
    ) -> None:
        self.train, self.records, self.trials, self.seed = train, records, trials, seed
        # of identical ones, as agt unlearn takes them
        last = {name: row for row, name in enumerate(families.tolist())}
        self.free = np.array(
            sorted(row for row in last.values() if not train.public[row]), dtype=np.int64
        )
        if not len(self.free):
            raise ConfigError(
                "every training record of this run is public, so there is nothing to erase. "
                "Audit a run with private records"
            )
        if records > len(self.free) - 2:
            most = max(1, len(self.free) - 2)
            raise ConfigError(
                f"audit.records={records} is too many: {len(self.free)} training records may be "
                f"erased, and at least two must remain. Give {most} or fewer"
            )
        self.seen = np.asarray(train.features).reshape(len(train), -1).astype(np.float64)
        if (width := self.seen.shape[1]) > MAX_WIDTH:
            self.seen = (
                self.seen
                @ np.random.default_rng(seed).normal(size=(width, MAX_WIDTH))
                / np.sqrt(MAX_WIDTH)
            )

    def attacks(self, by_shard: bool = False) -> Iterator[Attack]:
        """All of them.

        Args:
            by_shard: who looks chooses records of one member's shard, of an ensemble whose shards
                are kept; else those that what is served answers most wrongly.
        """
        rng, k = np.random.default_rng(self.seed), self.records
        for draw in range(1, self.trials + 1):
            yield Attack.at_once(
                f"{k} records chosen at random, draw {draw}",
                rng.choice(self.free, k, replace=False),
            )
        lever, error = self._influence()
        yield Attack.at_once(
            f"the {k} most influential records", self._top(lever * error**2 / (1 - lever) ** 2)
        )
        yield Attack.at_once(f"the {k} farthest outliers", self._top(lever))
        yield Attack.at_once(
            f"{k} records whose near-duplicates stay in the data", self._doubled(rng)
        )
        labels, counts = np.unique(self.train.labels[self.free], return_counts=True)
        rows = self.free[self.train.labels[self.free] == labels[counts.argmin()]]
        # a model needs two classes: all but one record
        spared = len(np.unique(self.train.labels)) <= 2
        yield Attack.at_once("all records of the smallest class", rows[: len(rows) - spared])
        if k > 1:
            at_first = k // 2
            afterwards = k - k // 2
            first = rng.choice(self.free, k // 2, replace=False)
            then = self._dissenting if by_shard else self._wrong
            yield Attack(
                f"{at_first} records at random, then {afterwards} chosen by looking at the "
                "outputs after the first erasure",
                (lambda served: first, partial(then, first, k - k // 2)),
            )

    def _top(self, scores: np.ndarray) -> RemovedRows:
        return self.free[np.argsort(-scores[self.free], kind="stable")[: self.records]]

    def _influence(self) -> tuple[np.ndarray, np.ndarray]:
        """([n] leverages, [n] errors) of least squares on the classes: what deleting a record
        moves that by.
        """
        x = np.column_stack([self.seen, np.ones(len(self.seen))])
        y = np.eye(int(self.train.labels.max()) + 1)[self.train.labels]
        gram = x.T @ x + 1e-3 * np.trace(x.T @ x) / x.shape[1] * np.eye(x.shape[1])
        solved = np.linalg.solve(gram, x.T)
        lever = np.clip(np.einsum("nd,dn->n", x, solved), 0, 1 - 1e-9)
        return lever, np.linalg.norm(y - x @ (solved @ y), axis=1)

    def _doubled(self, rng: np.random.Generator) -> RemovedRows:
        """Those of some that have the nearest neighbour with the same label, which stays."""
        some = rng.choice(self.free, min(MAX_LOOKED_AT, len(self.free)), replace=False)
        away = cdist(self.seen[some], self.seen[some])
        away[self.train.labels[some][:, None] != self.train.labels[some]] = np.inf
        np.fill_diagonal(away, np.inf)
        chosen_rows, kept = list[int](), set[int]()
        for place in np.argsort(away.min(axis=1)).tolist():
            if len(chosen_rows) < self.records and place not in kept:
                chosen_rows.append(place)
                kept.add(int(away[place].argmin()))
        return some[chosen_rows]

    def _wrong(self, first: RemovedRows, count: int, served: Served) -> RemovedRows:
        """Those whom the model that is served answers most wrongly."""
        left = self.free[~np.isin(self.free, first)]
        model: Model = served.shown
        margins, labels = model.margins(self.train.features[left]), self.train.labels[left]
        own = (
            margins[0] * (2 * labels - 1)
            if len(margins) == 1
            else margins[labels, np.arange(len(left))]
        )
        return left[np.argsort(own, kind="stable")[:count]]

    def _dissenting(self, first: RemovedRows, count: int, served: Served) -> RemovedRows:
        """Those of one shard: of the member that the vote overrules most often, whoever knows
        the key can tell them.
        """
        model, left = served.shown, self.free[~np.isin(self.free, first)]
        some = self.train.features[self.free[:MAX_LOOKED_AT]]
        vote = model.predict(some)
        dissent = (labels_of(model.member_margins(some)) != vote).mean(axis=1)
        home = assign_shards(self.train.units[left], model.settings.ensemble)
        return left[home == int(np.argmax(dissent))][:count]


QUIET = Console(json=True, quiet=True)  # what would be said is of copies, and not of the run
NOTES = (
    "each method ran with the code of `agt unlearn` on a copy of the run. The copies were "
    "deleted, and the run was not changed",
    "this program on this machine also trained without the erased records, so the audit does "
    "not notice errors in code that training shares with an unlearning method (such as loading "
    "data)",
    "the audit shows nothing about sets of records that were not tried",
)


@schema
class Unlearning(AuditKind):
    """Tells unlearned models of a run from such as never saw the records.

    Attributes:
        records: how many ask to be erased in each attack; of a whole class, as many as it has.
        trials: how many forget sets are drawn at random, beside those chosen by an adversary.
        methods: of ``agt unlearn``; null: all that are made for this kind of run.
        releases: draws of what is served, each side, for each direction.
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
        """The run's folder, and how many draws."""
        _opened(given)

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Every method against every attack."""
        trained = _opened(given)
        opened = trained.open(record, console)
        forget = ForgetSets(
            opened.dataset.train,
            families(opened.kept.source, opened.dataset.train),
            self.records,
            self.trials,
            given.seed,
        )
        findings, rows, absent = list[Finding](), list[tuple[object, ...]](), list[str]()
        plan = TrialPlan(self.releases, given.confidence)
        with TemporaryDirectory(dir=record.folder, prefix=".copies-") as scratch:
            for method in self.methods or METHODS:
                side = Sides(method, opened, forget.train, Path(scratch) / "run", self.queries)
                try:
                    chosen(method, trained.settings, trained.finished, False)
                except ConfigError as error:
                    if self.methods:
                        findings.append(
                            not_tested(
                                side.words,
                                "nothing is claimed, because the method cannot be used for this "
                                "run",
                                str(error),
                            )
                        )
                    else:
                        absent.append(
                            f"method={method} was not attacked, because it cannot be used for "
                            f"this run: {error}"
                        )
                    continue
                found, trials = side.attacked(forget, plan, console)
                findings += found
                rows += [
                    (method, t.attack, t.records, t.test, t.found, t.outcome, t.words, t.how)
                    for t in trials
                ]
        columns = ["method", "attack", "records", "test", "found", "outcome", "words", "removed_by"]
        table = pd.DataFrame(rows, columns=columns)
        return Audited.of(trained.finished, findings, (*absent, *NOTES), tables={"attacks": table})


def _opened(given: AuditInputs) -> TrainedRun:
    given.need_run(inputs=True)
    return TrainedRun.of({**given.config, "inputs": None})


class Sides:
    """A method on a copy of the run, and training without the records.

    Args:
        opened: the run, which stays as it is.
        train: its training records, whose rows are asked to be erased.
        copy: where the copy lies.
        queries: how many labels are compared.

    Attributes:
        promises: what the method said after each removal.
        gone: rows that were asked for since the last beginning.
        drawn: (side, n) -> noise that was drawn.
    """

    def __init__(
        self, method: MethodName, opened: OpenedRun, train: Records, copy: Path, queries: int
    ) -> None:
        self.method, self.opened, self.train, self.copy, self.queries = (
            method,
            opened,
            train,
            copy,
            queries,
        )
        self.words, self.run = f"method={method} of agt unlearn", opened.trained.finished
        self.promises, self.drawn = list[Promise](), dict[tuple[str, int], np.ndarray]()
        self.gone = np.empty(0, dtype=np.int64)

    @property
    def unfit(self) -> str:
        """Why nothing can be compared; empty: it can."""
        certificate, settings = (
            self.opened.trained.settings.certificate,
            self.opened.trained.settings,
        )
        if settings.noise is not None:
            return (
                "nothing can be compared, because training draws private noise (noise.epsilon): "
                "two results differ by that noise, whatever was removed"
            )
        if certificate.noise_is_fixed:
            return (
                "unlearning with certificate.masking=loss was not tested, because its noise is "
                "drawn once, in training: every trial would need a training of its own. In "
                "addition, its guarantee is not proved"
            )
        return ""

    def attacked(
        self, forget: ForgetSets, plan: TrialPlan, console: Console
    ) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
        """What every attack on the method shows."""
        if self.unfit:
            return (not_tested(self.words, "see agt unlearn", self.unfit),), ()
        votes = self.opened.trained.settings.certificate.bounded == "vote counts"
        attacks = list(forget.attacks(self.method == "sisa" or votes))
        with console.progress(f"method={self.method}", "attack") as report:
            return audit_unlearning(
                self.words, self.begin, self.retrained, attacks, lambda: self.claimed, plan,
                lambda done: report(done, len(attacks), done, len(attacks)),
            )  # fmt: skip

    def begin(self) -> tuple[Served, Unlearn]:
        """A fresh copy."""
        shutil.rmtree(self.copy, ignore_errors=True)
        copied(self.run, self.copy)
        self.gone = self.gone[:0]
        return self._first, self._unlearn

    @cached_property
    def _first(self) -> Served:
        return self._served(self.opened.model)

    def retrained(self, rows: RemovedRows) -> Served:
        """Training from scratch on the data without them."""
        prepared = self._prepared(rows)
        job = ErasureJob(
            self.run, self.opened.trained.settings, prepared, prepared.erased, len(rows), len(rows)
        )
        return self._served(
            fit(prepared.problem(from_the_start(job.run, job.settings))), rows, "retrained"
        )

    @property
    def claimed(self) -> Promise:
        """The least that the method promised: what an attack was answered by training from scratch
        keeps that, too.

        What the settings were chosen on is left out: the model that was never trained on the
            records has the same ones.
        """
        if not self.promises:
            return Promise(self.method, True, 0.0, 0.0, True, (Remark("as_promised"),))
        choices = {self.opened.trained.settings.choices, self.opened.kept.problem.settings.choices}
        promises = [
            replace(
                made, assumptions=tuple(fact for fact in made.assumptions if fact not in choices)
            )
            for made in self.promises
        ]
        return max(promises, key=lambda made: (not made.proved, not made.exact, made.eps))

    def _unlearn(self, rows: RemovedRows) -> Served:
        self.gone = np.concatenate([self.gone, rows])
        ids = self.copy.with_name("ids.txt")
        ids.write_text("\n".join(self.train.ids[rows].tolist()), encoding="utf-8")
        compute = self.run.config.get("compute")
        order = ErasureOrder(
            self.copy, None, compute, str(ids), "id", self.method, True, False, self.copy.parent
        )
        with run_lock(self.copy):
            erase(order, QUIET)
        state = open_run(self.copy, "train")
        removal = Log.of(state).entries[-1].removal
        self.promises.append(removal.promise)
        if self.method == "certificate":
            return self._answers(PendingErasures.of(state), self.opened.model)
        model = load(self._prepared(self.gone).problem(self.opened.trained.settings), state)
        how = str(removal.facts.get("removed_by", "")) or removal.sentences[0]
        return replace(self._served(model, self.gone), how=how)

    def _prepared(self, rows: RemovedRows) -> Prepared:
        """The data without these records, and without those that the run's own log names."""
        names, before = self.train.ids[rows], gone_of(self.run)
        return prepare(
            self.opened.trained.settings,
            QUIET,
            lambda ids, units: np.isin(ids, names) | before(ids, units),
        )

    def _served(
        self, model: Model, rows: RemovedRows | None = None, side: str = "unlearned"
    ) -> Served:
        if self.method == "certificate":
            return Served(model.predict(self._asked(rows)), shown=model)
        weights = model.removable_weights
        if weights is None:
            return Served(bits(model), shown=model)
        own = self.opened.trained.settings.certificate.own_erasure
        within = weights.distance if self.method == own else None
        if not weights.sigma:
            return Served(weights.weight.ravel(), within=within, shown=model)
        probes = {}
        if rows is not None:
            gone = self.train.take(rows)
            gradient = weights.gradient(gone.features, gone.labels)
            probes = {"the gradient of the erased records' loss": gradient.ravel()}
        return Served(
            weights.weight.ravel(),
            within=within,
            noise=partial(self._noise, weights.sigma, side),
            seen=weights.noisy_weight.ravel(),
            # a recorded seed repeats itself
            sigma=weights.sigma if weights.noise_is_random else None,
            probes=probes,
            shown=model,
        )

    def _noise(self, sigma: float, side: str, n: int) -> np.ndarray:
        """Noise of one coordinate, drawn as the product draws it: once for each side, for all
        directions and attacks.
        """
        if (side, n) not in self.drawn:
            self.drawn[side, n] = noisy(np.zeros(n), sigma, SystemRandomness())
        return self.drawn[side, n]

    def _answers(self, waiting: PendingErasures, model: Model) -> Served:
        """Labels that are given while the requests wait."""
        certificates = model.certify(self._asked(self.gone))
        answered = waiting.answered(certificates, model.problem.classes)
        how = f"{int(answered.sum())} of {len(answered)} queries were answered"
        return Served(certificates.prediction, answered=answered, shown=model, how=how)

    def _asked(self, rows: RemovedRows | None) -> np.ndarray:
        """Test records, and those that ask."""
        test = self.opened.dataset.test.features[: self.queries]
        if rows is None:
            return test
        return np.concatenate([test, self.train.features[rows[: self.queries]]])
