"""Is a model that unlearned like one that never saw the records? A method of unlearning against training again.

    begin()                 the method at the trained model: what it returns removes rows, one request after another
    retrained(rows)         training without all these rows
    audit_unlearning(subject, begin, retrained, attacks, claimed, effort)      findings, and how each attack went

Both sides say what they serve (``Served``). An attack is a sequence of requests, each of which may be chosen after looking
at what the one before left. What is compared depends on what is claimed:

    exact           every number (weights, votes, labels where any are given) is the same; or, of a minimiser, lies as near
                    as is claimed
    (eps, delta)    draws of what is served, on both sides, given all that was served before: no test tells them apart
                    better than that. White box: along the difference of the weights before noise, the gradient of the
                    forgotten records' loss (membership inference on the forget set), and the noise that was seen before;
                    where whole vectors are drawn, along a direction that was learned on one half of them, too
    noise           what was in fact served differs from the weights by noise of the claimed size, drawn anew

Formal guarantees
    Exact claims. One number that differs is a counterexample: certain. A distance is between two computed points, and each
    is within its own ``within`` of one point (the exact minimiser over the records that are left) if the claim holds, so
    theirs is at most the sum.
    (eps, delta). Each direction, and the threshold along it, is fixed by other draws than those that are counted. Given
    them, mistakes are binomial on each side, and the error probability is shared among all directions of all attacks
    (estimates.py, events.py): a claim that holds is called violated with probability 1 - confidence at most, whether draws
    serve several attacks or not. Isotropic Gaussian noise has the same law along every direction of length 1, so that one
    number of the method's own noise is drawn for each release: rounding to a lattice apart (2^-24 sigma).
    Noise. Let z_0, z_1, ... be what was served less the weights, in the order in which it was drawn, each N(0, sigma^2 I)
    in d coordinates given all before. Then sum |z_i|^2 / sigma^2 is chi-squared, and z_i z_j / (sigma |z_j|), j < i,
    standard normal given z_j. Half the error probability goes to the first being too small, half to the pairs.
    Groups. If unlearning one record is (eps, delta)-close to training without it, in both directions, then for k records,
    P_0 the one end of the chain and P_k the other, P_i <= e^eps P_(i+1) + delta gives P_0 <= e^(k eps) P_k + delta
    sum_{i<k} e^(i eps). k delta alone, as some lecture notes have it, is no guarantee.

Sources: Guo et al. (2020) [003]; Sekhari et al. (2021); Gupta et al. (2021), Adaptive machine unlearning [004].
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, norm

from agt.audit.estimates import Claimed, Mistakes
from agt.audit.events import chosen, counted
from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.verdict import Attacked
from agt.errors import AgtError, ConfigError
from agt.facts import Standing
from agt.models.model import Model
from agt.unlearning.promise import Promise

Rows = np.ndarray
LEAST = 20  # draws of a half


@dataclass(frozen=True)
class Served:
    """What a model gives out, for its auditor.

    Attributes:
        values: [d] what is compared, before any noise: weights, the bytes of files, labels.
        answered: [d] bool: which of the values are given out; None: all.
        within: what the values are claimed to be away from the ideal ones at most, l2; None: nothing.
        draw: n -> [n, d] draws of what is served, given all that was served before; None: nothing is drawn.
        noise: n -> [n] the same for isotropic Gaussian noise on the values, of which one coordinate is enough.
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


Unlearn = Callable[[Rows], Served]
Choose = Callable[[Served | None], Rows]
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

    @property
    def adaptive(self) -> bool:
        """Whether a request is chosen after looking."""
        return len(self.requests) > 1


@dataclass(frozen=True)
class Promised:
    """What is claimed of the model after a removal.

    Attributes:
        words: in one sentence.
        exact: equal (up to ``Served.within``, where that is given); False: (eps, delta)-close in distribution.
        eps, delta: of a whole request; 0 where exact.
        adaptive: whether it holds for requests that were chosen after looking, too.
        unheld: what it rests on that does not hold: findings are then reported and contradict nothing; empty: all does.

    Raises:
        ConfigError: an epsilon without a delta that could be one.
    """

    words: str
    exact: bool
    eps: float = 0.0
    delta: float = 0.0
    adaptive: bool = True
    unheld: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.eps < math.inf and 0 <= self.delta < 1):
            raise ConfigError(f"a claim of epsilon {self.eps}, delta {self.delta}: give epsilon >= 0 and 0 <= delta < 1")

    @classmethod
    def of(cls, promise: Promise) -> "Promised":
        """What a method of ``agt unlearn`` promises. That of fixed keys is adaptive: it is about these very keys."""
        adaptive = promise.adaptive or promise.exact
        void = "; ".join(fact.why for fact in promise.assumptions if fact.standing is Standing.VOID)
        return cls(promise.words[0], promise.exact, promise.eps, promise.delta, adaptive, void)


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
    return np.frombuffer(b"".join(content for _, content in sorted(store.files.items())), dtype=np.uint8)


@dataclass(frozen=True)
class Effort:
    """How hard is attacked.

    Attributes:
        confidence: of every bound.
        releases: draws of each side, for each direction.

    Raises:
        ConfigError: too few draws to split.
    """

    confidence: float = 0.95
    releases: int = 20_000

    def __post_init__(self) -> None:
        if self.releases < 2 * LEAST:
            raise ConfigError(f"audit.releases={self.releases}: a half of them is not counted: give {2 * LEAST} or more")


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


@dataclass(frozen=True)
class Pair:
    """Both sides after an attack, and all that the method served on the way, the trained model's first."""

    attack: Attack
    records: int
    mine: Served
    other: Served
    before: tuple[Served, ...]


Begin = Callable[[], tuple[Served | None, Unlearn]]
"""The method at the trained model: (what that serves, the same value each time; removes rows, says what is served then)."""


def audit_unlearning(
    subject: str,
    begin: Begin,
    retrained: Callable[[Rows], Served],
    attacks: Sequence[Attack],
    claimed: Promised,
    effort: Effort,
) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
    """Attack a method of unlearning.

    Args:
        subject: the method, in words.
        begin: called once for each attack: everything before is forgotten.
        retrained: trains without the rows, which are all that an attack named.
        attacks: at least one; rows are never named twice in one.
        claimed: what the method promises.
        effort: how hard.

    Returns:
        A finding for each test that the claim calls for, and how each attack went. An attack that the method refuses
        (AgtError) is listed as one that was not made.
    """
    pairs, refused = attacked(begin, retrained, attacks)
    return judged(subject, pairs, refused, claimed, effort)


def attacked(
    begin: Begin,
    retrained: Callable[[Rows], Served],
    attacks: Sequence[Attack],
    on_done: Callable[[int], None] = lambda done: None,
) -> tuple[list[Pair], list[Trial]]:
    """(both sides of every attack; those that the method refused). Arguments as for ``audit_unlearning``."""
    pairs, refused = list[Pair](), list[Trial]()
    for done, attack in enumerate(attacks, 1):
        try:
            pairs.append(_carried_out(attack, begin, retrained))
        except AgtError as error:
            refused.append(Trial(attack.name, "refused", 0, None, False, f"not made: {error}"))
        on_done(done)
    return pairs, refused


def judged(
    subject: str, pairs: Sequence[Pair], refused: Sequence[Trial], claimed: Promised, effort: Effort
) -> tuple[tuple[Finding, ...], tuple[Trial, ...]]:
    """What both sides of every attack say of a claim, as ``audit_unlearning`` returns it."""
    if not pairs:
        why = "; ".join(dict.fromkeys(trial.words for trial in refused))
        return (not_tested(subject, claimed.words, why),), tuple(refused)
    findings, trials = list[Finding](), list(refused)
    for test in (_equal,) if claimed.exact else (_near, _distinguished):
        made, finding = test(subject, pairs, claimed, effort)
        trials += made
        findings += [] if finding is None else [finding]
    noise = _noise(subject, pairs, effort)
    return (*findings, *([] if noise is None else [noise])), tuple(trials)


def not_tested(subject: str, claim: str, why: str) -> Finding:
    """A method that could not be attacked."""
    return Finding(
        subject, claim, "none", "none", Outcome.UNTESTED, why or "no attack was given", "-", strength=Strength.CERTAIN
    )


def _carried_out(attack: Attack, begin: Begin, retrained: Callable[[Rows], Served]) -> Pair:
    served, unlearn = begin()
    gone, seen = np.empty(0, dtype=np.int64), [] if served is None else [served]
    for choose in attack.requests:
        rows = choose(served)
        if not len(rows):
            raise ConfigError(f"{attack.name}: no record is left to choose")
        gone = np.concatenate([gone, rows])
        served = unlearn(rows)
        seen.append(served)
    *before, mine = seen
    return Pair(attack, len(gone), mine, retrained(gone), tuple(before))


# ---- exact claims


def _equal(subject: str, pairs: Sequence[Pair], claimed: Promised, effort: Effort) -> tuple[list[Trial], Finding | None]:
    """Every number the same, or as near as is claimed."""
    if any(pair.mine.within is not None for pair in pairs):
        return _near(subject, pairs, claimed, effort)
    trials, total = list[Trial](), 0
    for pair in pairs:
        differ, compared = _differences(pair.mine, pair.other)
        total += compared
        if not compared:
            words = "not tested: nothing was given out, so nothing was compared"
            trials.append(Trial(pair.attack.name, "equal", pair.records, None, False, words, pair.mine.how))
            continue
        words = f"{differ:,} of {compared:,} values differ" if differ else f"all {compared:,} values are the same"
        if not compared:
            words = "not tested: nothing was given out"
        trials.append(_trial(pair, "equal", float(differ) if compared else None, differ > 0, words))
    wrong = next((trial for trial in trials if trial.violated), None)
    if not total:
        return trials, not_tested(subject, claimed.words, "nothing was given out after any attack, so nothing was compared")
    meaning = (
        f"what unlearning left and what training without the records gives are the same in every attack: {total:,} values"
        if wrong is None
        else f"after {_after(wrong)}, {wrong.words} between what unlearning left and what training without them gives"
    )
    attack = "what unlearning leaves and what training without the records gives are compared value by value"
    noticeable = "one value that differs, in the attacks that were made"
    told = [trial for trial in trials if trial.found is not None]
    return trials, _certain(subject, claimed, told, attack, noticeable, meaning, "values that differ")


def _differences(mine: Served, other: Served) -> tuple[int, int]:
    """(how many values differ, how many were compared), of those that are answered."""
    if mine.values.shape != other.values.shape:
        return max(mine.values.size, other.values.size), max(mine.values.size, other.values.size)
    asked = np.ones(mine.values.shape, dtype=bool) if mine.answered is None else mine.answered
    return int((mine.values != other.values)[asked].sum()), int(asked.sum())


def _near(subject: str, pairs: Sequence[Pair], claimed: Promised, effort: Effort) -> tuple[list[Trial], Finding | None]:
    """Weights before noise within the distances that are claimed."""
    trials = []
    for pair in pairs:
        if pair.mine.within is None or pair.other.within is None:
            continue
        away = float(np.linalg.norm(pair.mine.values - pair.other.values))
        allowed = (pair.mine.within + pair.other.within) * (1 + 1e-12)  # the norm's own rounding
        words = f"{away:.3g} apart, of {allowed:.3g} claimed"
        trials.append(_trial(pair, "distance", away / allowed, away > allowed, words))
    if not trials:
        return [], None
    worst = max(trials, key=lambda trial: trial.found or 0)
    claimed = replace(claimed, words="the weights are within their recorded bound of the minimiser without the records")
    attack = "the weights before noise are compared with those of training without the records"
    noticeable = "weights further away than their recorded bounds, in the attacks that were made"
    meaning = f"the weights before noise are at most {worst.words} (after {_after(worst)})"
    return trials, _certain(
        f"{subject}: weights before noise", claimed, trials, attack, noticeable, meaning, "distance/claimed"
    )


# ---- (eps, delta)


def _distinguished(
    subject: str, pairs: Sequence[Pair], claimed: Promised, effort: Effort
) -> tuple[list[Trial], Finding | None]:
    """Which side a draw is of, guessed along every direction."""
    held, half = Claimed("epsilon", claimed.eps, claimed.delta), effort.releases // 2
    looks = [(pair, name, *scores) for pair in pairs for name, scores in _scores(pair, effort.releases)]
    trials, counts = list[Trial](), dict[Trial, Mistakes]()
    for pair, name, mine, other in looks:
        event = chosen(mine[:half], other[:half], held, effort.confidence, labels=False)
        mistakes = counted(event, mine[half:], other[half:])
        bound = held.bound(mistakes, effort.confidence, len(looks))
        covered = claimed.adaptive or not pair.attack.adaptive
        words = (
            f"along {name}: {mistakes.alarms} false alarms and {mistakes.misses} misses of {len(mine) - half} draws a side"
        )
        words += "" if covered else "; requests chosen after looking are not covered by the claim"
        trials.append(_trial(pair, "distinguished", bound, covered and bound > claimed.eps, words))
        if covered:
            counts[trials[-1]] = mistakes
    if not counts:
        return trials, None
    names = f"{', '.join(dict.fromkeys(name for _, name, *_ in looks))}"
    attack = f"which side a draw is of, given all that was served before, is guessed along {names}"
    drawn = f"{effort.releases:,} draws of each side in each of {len(looks)} looks, half of them to fix thresholds"
    worst = max(counts, key=lambda trial: trial.found or 0)
    finding = Attacked(
        f"{subject}: what is served",
        claimed.words,
        attack,
        f"{_listed(trials)}; {drawn}",
        held,
        effort.confidence,
        len(looks),
    ).judge(counts[worst])
    return trials, _standing(replace(finding, meaning=f"after {_after(worst)}: {finding.meaning}"), claimed)


def _scores(pair: Pair, n: int) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """(a direction's name, draws of both sides along it), of a pair that draws anything."""
    mine, other = pair.mine, pair.other
    if mine.draw is not None and other.draw is not None:
        drawn = mine.draw(n), other.draw(n)
        learned = drawn[0][: n // 2].mean(axis=0) - drawn[1][: n // 2].mean(axis=0)
        directions = {**_directions(pair), "a direction learned on half of the draws": learned}
        yield from ((name, (drawn[0] @ u, drawn[1] @ u)) for name, u in directions.items() if u.any())
    elif mine.noise is not None and other.noise is not None:
        for name, u in _directions(pair).items():
            unit = u / (np.linalg.norm(u) or 1.0)
            yield name, (mine.values @ unit + mine.noise(n), other.values @ unit + other.noise(n))


def _directions(pair: Pair) -> dict[str, np.ndarray]:
    """Fixed before anything is drawn of the last state."""
    last = next((served for served in reversed(pair.before) if served.seen is not None), None)
    seen = {} if last is None or last.seen is None else {"the noise that was seen before": last.seen - last.values}
    return {"the difference of the weights": pair.mine.values - pair.other.values, **pair.mine.probes, **seen}


# ---- noise that was in fact served


def _noise(subject: str, pairs: Sequence[Pair], effort: Effort) -> Finding | None:
    """Whether what was served has noise of the claimed size, drawn anew each time."""
    states = {id(served): served for pair in pairs for served in (*pair.before, pair.mine)}.values()
    noises = [(s.seen - s.values, s.sigma) for s in states if s.seen is not None and s.sigma is not None]
    if len(noises) < 2:
        return None
    error = (1 - effort.confidence) / 2
    size = sum(float(z @ z) / sigma**2 for z, sigma in noises)
    coordinates = sum(len(z) for z, _ in noises)
    pairs_of = [
        abs(float(later @ earlier)) / (sigma * float(np.linalg.norm(earlier)) or math.inf)
        for place, (later, sigma) in enumerate(noises)
        for earlier, _ in noises[:place]
    ]
    together, limit = max(pairs_of), float(norm.isf(error / 2 / len(pairs_of)))
    small, alike = float(chi2.cdf(size, coordinates)) < error, together > limit
    ratio = math.sqrt(size / coordinates)
    least = math.sqrt(float(chi2.ppf(error, coordinates)) / coordinates)
    seen = f"noise of {ratio:.3g} times the claimed standard deviation, and two states alike to {together:.3g} of theirs"
    wrong = [words for bad, words in ((small, "it is too small"), (alike, "it was not drawn anew")) if bad]
    return Finding(
        subject=f"{subject}: noise",
        claim="what is served has Gaussian noise of the configured standard deviation, drawn anew for each state",
        attack="what was served less the weights: its length, and how alike any two states' are (fixed beforehand)",
        effort=f"{len(noises)} states of {len(noises[0][0])} weights, {len(pairs_of)} pairs",
        outcome=Outcome.VIOLATED if wrong else Outcome.STANDS,
        meaning=f"{seen}: {' and '.join(wrong)}" if wrong else f"{seen}, as fresh noise of that size has",
        measure="noise/claimed",
        found=ratio,
        confidence=effort.confidence,
        noticeable=f"a standard deviation below {least:.3g} of the claimed one; states alike beyond {limit:.2g} deviations",
    )


def _trial(pair: Pair, test: str, found: float | None, violated: bool, words: str) -> Trial:
    return Trial(pair.attack.name, test, pair.records, found, violated, words, pair.mine.how)


def _after(trial: Trial) -> str:
    return f"{trial.attack} ({trial.records} records)"


def _listed(trials: Sequence[Trial]) -> str:
    names = dict.fromkeys(trial.attack for trial in trials if trial.found is not None)
    return f"{len(names)} attack{'s' * (len(names) != 1)} ({'; '.join(names)})"


def _standing(finding: Finding, claimed: Promised) -> Finding:
    """What is not promised is not contradicted."""
    if not claimed.unheld:
        return finding
    meaning = f"{finding.meaning}; no guarantee is claimed here: {claimed.unheld}"
    return replace(finding, outcome=Outcome.REPORTED, meaning=meaning)


def _certain(
    subject: str, claimed: Promised, trials: Sequence[Trial], attack: str, noticeable: str, meaning: str, measure: str
) -> Finding:
    """What was seen, without chance, over all attacks; the claim is that the measure is 0, or at most 1."""
    violated = any(trial.violated for trial in trials)
    finding = Finding(
        subject=subject,
        claim=claimed.words,
        attack=attack,
        effort=_listed(trials),
        outcome=Outcome.VIOLATED if violated else Outcome.STANDS,
        meaning=meaning,
        measure=measure,
        found=max(trial.found or 0.0 for trial in trials),
        strength=Strength.CERTAIN,
        noticeable=noticeable,
    )
    return _standing(finding, claimed)
