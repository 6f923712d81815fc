"""DP-SGD under audit: canaries in or out, what an adversary sees of the training, and a lower bound on epsilon.

A ``Trainer`` trains again and again, with canaries in or out, and shows what an adversary would see: every noisy sum along
each canary (white box), the final weights along it, or the loss on it at the end (black box). Lecture 004; Nasr et al.
2023; Steinke et al. 2023.

Formal guarantees
    Many runs. One canary, in half of the runs. Thresholds are chosen on the first third of the runs of each side and
    counted on the others, which are independent of it. So Clopper-Pearson's limits hold, and with them a bound from
    (eps, delta) alone, and one from the whole claimed curve (subsampled.py): the second is about the claim "Gaussian noise
    of this size on Poisson batches", which is more than (eps, delta), and is rejected where either part is false. At full
    batches it is mu-GDP, and the bound is mu's.
    Step by step. In each step of each run a fresh coin says whether the canary takes part, and one guess is made. Given all
    that came before, a guess is right with at most the probability that the claimed step allows, so the number of right
    ones is dominated by a binomial, and Clopper-Pearson's lower limit of the share holds. What it implies of the noise is
    composed by the accountant: this can notice bugs in noise and clipping, and cannot debug the composition.
    One run. Each of m canaries is in by its own coin, and the bounds of one_run.py say what the number of right guesses
    implies. How many are guessed follows from the claim.
    All rigorous bounds of one audit share the error probability equally: together they hold with the confidence asked for.

The adversary of the white box knows all other records, and subtracts what they are expected to add to a sum; so does the
one that differential privacy speaks of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.stats import beta as beta_law

from agt.audit.canaries import Canaries
from agt.audit.estimates import Mistakes, epsilon_bound, katz_bound, lower_limit, posterior_bound, upper_limit
from agt.audit.findings import Estimated, Finding, Outcome, Strength
from agt.audit.one_run import BOUNDS, Guesses, contradicts, guesses_from, one_run_epsilon, planned_guesses
from agt.audit.subsampled import Curve, least_epsilon, least_from_steps, loudest_refused
from agt.audit.written import least
from agt.errors import ConfigError

MOST_TRIALS = 10**6
_THRESHOLDS = 99  # among which one is chosen
_LEAST_CHANGE = 1e-300

ESTIMATES: tuple[tuple[str, Callable[[Mistakes, float, float], float], Strength], ...] = (
    ("Clopper-Pearson", epsilon_bound, Strength.CONFIDENT),
    ("Katz-log", katz_bound, Strength.ASYMPTOTIC),
    ("Bayesian (Jeffreys)", posterior_bound, Strength.CREDIBLE),
)
ITERATES, REPEATS, WEIGHTS, LOSS = "every noisy sum", "repeats among noisy sums", "the final weights", "the final loss"
STEPS, ONE_RUN = "step by step, composed", "one run"


@dataclass(frozen=True)
class Claim:
    """What is claimed of a training.

    Attributes:
        noise: z, the noise's standard deviation over the most that one record adds to a sum.
        rate: q, with which a record enters a batch; 1: it is in every one that counts.
        steps: how many steps may see one record.
        epsilon, delta: what the accountant makes of these.
    """

    noise: float
    rate: float
    steps: int
    epsilon: float
    delta: float

    @cached_property
    def curve(self) -> Curve:
        """The curve that epsilon and delta are one point of."""
        return Curve(self.noise, self.rate, self.steps)

    @property
    def words(self) -> str:
        """For a stranger."""
        batches = "" if self.rate == 1 else f" with probability {self.rate:.4g} each"
        return (
            f"({self.epsilon:.4g}, {self.delta:g})-differentially private: a record is in {self.steps} steps{batches}, "
            f"whose Gaussian noise is {self.noise:.4g} times what one record can add"
        )


@dataclass(frozen=True)
class Sight:
    """What adversaries see of R runs with m canaries.

    Attributes:
        scores: [R, T, m] each noisy sum along the canary's clipped gradient, less what the others are expected to add; in
            clips: the noise's standard deviation is z, and a canary that took part adds ``reach``.
        reach: [R, T, m] the clipped gradient's length, in clips; at most 1.
        weights: [R, m] the final weights along the canary's first gradient, downhill.
        losses: [R, m] on the canaries at the end; None: they are gradients, and have none.
    """

    scores: np.ndarray
    reach: np.ndarray
    weights: np.ndarray
    losses: np.ndarray | None


class Trainer(Protocol):
    """A training under audit."""

    @property
    def claim(self) -> Claim:
        """What is claimed of it."""
        ...

    @property
    def words(self) -> str:
        """What it is, for a stranger."""
        ...

    def train(self, canaries: Canaries, inside: np.ndarray) -> Sight:
        """Train R times, from fresh draws.

        Args:
            inside: [R, T, m] or [R, 1, m] bool: in which steps of which run a canary is among the records.
        """
        ...


def noticed(excess: np.ndarray, gradients: np.ndarray, clip: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and reach [R, m] of one step.

    Args:
        excess: [R, P] noisy sums, less what the other records are expected to add.
        gradients: [R or 1, m, P] the canaries', before the clip.
    """
    lengths = np.linalg.norm(gradients, axis=2)
    along = (gradients @ excess[:, :, None])[:, :, 0] / np.maximum(lengths, _LEAST_CHANGE)
    return along / clip, np.broadcast_to(np.minimum(1, lengths / clip), along.shape)


def joined(sights: Sequence[Sight]) -> Sight:
    """The runs of all, one after another."""
    scores, reach, weights = (np.concatenate([getattr(s, k) for s in sights]) for k in ("scores", "reach", "weights"))
    losses = [s.losses for s in sights if s.losses is not None]
    return Sight(scores, reach, weights, np.concatenate(losses) if losses else None)


# -- what is seen, as one number: the greater, the more it looks as if the canary had been in ------------------------------


def likelihood(sight: Sight, claim: Claim) -> np.ndarray:
    """[R, T, m] the logarithm of each noisy sum's likelihood with the canary over that without, under the claim."""
    gain = (2 * sight.reach * sight.scores - sight.reach**2) / (2 * claim.noise**2)
    if claim.rate == 1:
        return gain
    weighted: np.ndarray = np.logaddexp(np.log1p(-claim.rate), np.log(claim.rate) + gain)
    return weighted


def repeats(sight: Sight) -> np.ndarray:
    """[R, m] how far the scores of a run's steps spread, where steps resemble their neighbours: noise that came back leaves
    the canary's own coming and going as all that changes."""
    return np.asarray(sight.scores.std(axis=1))


@dataclass(frozen=True)
class Sides:
    """An attack's scores [R] with the canary and without, in the order of their runs.

    The first third of the runs is there to choose a threshold on.
    """

    present: np.ndarray
    absent: np.ndarray

    def tried(self, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Thresholds, and upper limits of the rates of false alarms and misses at each, by the first third."""
        third = len(self.present) // 3
        present, absent = np.sort(self.present[:third]), np.sort(self.absent[:third])
        levels = np.unique(np.quantile(np.concatenate([present, absent]), np.linspace(0, 1, _THRESHOLDS)))
        counts = third - np.searchsorted(absent, levels, side="right"), np.searchsorted(present, levels, side="right")
        alphas, betas = (np.nan_to_num(beta_law.isf((1 - confidence) / 2, n + 1, third - n), nan=1.0) for n in counts)
        return levels, alphas, betas

    def at(self, level: float) -> Mistakes:
        """The mistakes of the other runs at a threshold that was chosen on the first third."""
        third = len(self.present) // 3
        return Sides(self.present[third:], self.absent[third:]).mistakes(level)

    def mistakes(self, level: float) -> Mistakes:
        """Those of all runs, where what scores more is called in."""
        alarms, misses = int((self.absent > level).sum()), int((self.present <= level).sum())
        return Mistakes(alarms, len(self.absent), misses, len(self.present))


def seen_by(sight: Sight, claim: Claim) -> dict[str, np.ndarray]:
    """Adversary -> scores [R] of the first canary."""
    scores = {ITERATES: likelihood(sight, claim).sum(1), WEIGHTS: sight.weights}
    if claim.steps > 1 and claim.rate < 1:
        scores[REPEATS] = repeats(sight)
    if sight.losses is not None:
        scores[LOSS] = -sight.losses
    return {adversary: values[:, 0] for adversary, values in scores.items()}


# -- the audit -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """How hard.

    Attributes:
        trials: trainings a side with one canary.
        step_runs: trainings with a coin in each step.
        confidence: of all rigorous bounds together.
        seed: of the coins.
    """

    trials: int
    step_runs: int
    confidence: float = 0.95
    seed: int = 0

    def check(self, claim: Claim, events: int) -> None:
        """Refuse trials that could contradict nothing.

        Raises:
            ConfigError: too few; it says how many are needed.
        """
        needed = trials_needed(claim, self.confidence, events)
        if self.trials < needed:
            raise ConfigError(
                f"audit.trials={self.trials}: too few to contradict epsilon {claim.epsilon:.4g} at delta {claim.delta:g}, "
                f"even if no guess were wrong: {needed:,} a side are the least"
            )


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at the claim's delta.

    Attributes:
        estimate: how it was worked out.
        adversary: who saw what.
        epsilon: 0: nothing was shown.
        strength: what it means.
    """

    estimate: str
    adversary: str
    epsilon: float
    strength: Strength


def many_runs(trainer: Trainer, canary: Canaries, trials: int) -> dict[str, Sides]:
    """Adversary -> its scores, of so many trainings a side, the canary in all steps of one and in none of the other."""
    present, absent = (
        seen_by(trainer.train(canary, np.full((trials, 1, 1), inside)), trainer.claim) for inside in (True, False)
    )
    return {adversary: Sides(scores, absent[adversary]) for adversary, scores in present.items()}


def bounds_of(sides: Sides, adversary: str, claim: Claim, confidence: float, events: int) -> list[Bound]:
    """The estimates that one adversary's scores give."""
    sure, delta = 1 - (1 - confidence) / events, claim.delta
    levels, alphas, betas = sides.tried(sure)
    ratios = np.maximum((1 - delta - betas) / alphas, (1 - delta - alphas) / betas)
    mistakes = sides.at(levels[int(ratios.argmax())])
    bounds = [Bound(name, adversary, of(mistakes, delta, sure), strength) for name, of, strength in ESTIMATES]
    if adversary != REPEATS:
        mistakes = sides.at(levels[least_epsilon(alphas, betas, claim.rate, claim.steps, delta)[1]])
        epsilon = least_epsilon(*_limits(mistakes, sure), claim.rate, claim.steps, delta)[0]
        bounds.append(Bound(_curve_name(claim), adversary, epsilon, Strength.CONFIDENT))
    return bounds


def step_by_step(trainer: Trainer, canary: Canaries, effort: Effort, events: int) -> Bound:
    """The bound from guesses in each step."""
    claim = trainer.claim
    coins = np.random.default_rng(effort.seed).random((effort.step_runs, claim.steps, 1)) < 0.5
    right = (likelihood(trainer.train(canary, coins), claim) > 0) == coins
    fewest = lower_limit(int(right.sum()), right.size, (1 - effort.confidence) / events)
    return Bound(
        _curve_name(claim), STEPS, least_from_steps(fewest, claim.rate, claim.steps, claim.delta), Strength.CONFIDENT
    )


def in_one_run(trainer: Trainer, canaries: Canaries, effort: Effort, events: int) -> list[Bound]:
    """The bounds from guesses about many canaries of one training, all on the same scores."""
    claim, m, sure = trainer.claim, len(canaries), 1 - (1 - effort.confidence) / events
    coins = np.random.default_rng(effort.seed).random((1, 1, m)) < 0.5
    scores, bounds = likelihood(trainer.train(canaries, coins), claim).sum(1)[0], []
    for name in one_run_bounds(claim, canaries):
        bound = name if name in BOUNDS else "gdp"
        made = planned_guesses(m, claim.epsilon, claim.delta, sure, bound, contradicting=True)
        guesses = guesses_from(scores, coins[0, 0], made - made // 2, made // 2)
        if name in BOUNDS:
            epsilon = one_run_epsilon(guesses.right, made, m, claim.delta, sure, name)
        else:
            epsilon = _by_curve(guesses, claim, sure)
        bounds.append(Bound(name, f"{ONE_RUN}, {m} canaries", epsilon, Strength.CONFIDENT))
    return bounds


def one_run_bounds(claim: Claim, canaries: Canaries) -> tuple[str, ...]:
    """Which bounds of one run hold against the claim: a Gaussian's where batches are full; canaries do not meet where each
    moves elements of its own, which no clip changes, of the whole gradient or of each element."""
    if claim.rate < 1:
        return ("steinke", "exact", _curve_name(claim))
    if canaries.gradients is None or ((canaries.gradients != 0).sum(axis=0) > 1).any():
        return ("steinke", "exact", "gdp")
    return ("steinke", "exact", "gdp", "independent")


def _by_curve(guesses: Guesses, claim: Claim, confidence: float) -> float:
    """epsilon of the least noise whose curve these guesses contradict."""
    return loudest_refused(
        lambda curve: contradicts(guesses, *curve.points, confidence), claim.rate, claim.steps, claim.delta
    )[0]


def audit(trainer: Trainer, canary: Canaries, effort: Effort, several: Canaries | None = None) -> list[Bound]:
    """All bounds.

    Args:
        canary: one, of many runs.
        several: of one run; None: none is made.

    Raises:
        ConfigError: too few trials.
    """
    claim = trainer.claim
    events = 5 + (claim.rate < 1 and claim.steps > 1) + 2 * (canary.gradients is None)
    events += 0 if several is None else len(one_run_bounds(claim, several))
    effort.check(claim, events)
    sides = many_runs(trainer, canary, effort.trials)
    bounds = [bound for name, each in sides.items() for bound in bounds_of(each, name, claim, effort.confidence, events)]
    once = [] if several is None else in_one_run(trainer, several, effort, events)
    return [*bounds, step_by_step(trainer, canary, effort, events), *once]


def judged(trainer: Trainer, canary: Canaries, effort: Effort, bounds: Sequence[Bound]) -> Finding:
    """The greatest rigorous bound held against the claim."""
    claim, sure = trainer.claim, [bound for bound in bounds if bound.strength is Strength.CONFIDENT]
    noticed = _noticed(claim, effort, len(sure))
    best = max(sure, key=lambda bound: bound.epsilon)
    violated = best.epsilon > claim.epsilon
    once = sorted({bound.adversary for bound in sure if bound.adversary.startswith(ONE_RUN)})
    verdict = "more than claimed" if violated else "which does not contradict the claim, and proves nothing"
    return Finding(
        subject=f"{trainer.words}, epsilon {claim.epsilon:.3g} claimed",
        claim=claim.words,
        attack=f"{canary.words}; {len(sure)} rigorous bounds, which share the error probability",
        effort="; ".join([f"{effort.trials} trainings a side", f"{effort.step_runs} with a coin in each step", *once]),
        outcome=Outcome.VIOLATED if violated else Outcome.STANDS,
        meaning=(
            f"epsilon at delta {claim.delta:g} is at least {least(best.epsilon, claim.epsilon)} ({best.estimate}, from "
            f"{best.adversary}), with {100 * effort.confidence:.12g} % confidence: {verdict}"
            if best.epsilon
            else "no attack told the canary in from the canary out with that confidence: nothing is shown, nor proved"
        ),
        measure="epsilon",
        claimed=claim.epsilon,
        delta=claim.delta,
        found=best.epsilon,
        confidence=effort.confidence,
        estimator=best.estimate,
        noticeable=_noticeable(noticed),
        noticed=noticed,
        estimates=tuple(
            Estimated(f"{each.estimate}, {each.adversary}", "epsilon", each.epsilon, each.strength) for each in bounds
        ),
    )


def trials_needed(claim: Claim, confidence: float, events: int) -> int:
    """How many trials a side an attack that is never wrong needs to contradict the claimed curve."""
    trials = 6
    while trials < MOST_TRIALS:
        counted = trials - trials // 3
        if claim.curve.excludes(*_limits(Mistakes(0, counted, 0, counted), 1 - (1 - confidence) / events)):
            return trials
        trials += 1 + trials // 20
    raise ConfigError(f"audit.eps={claim.epsilon:g}: no {MOST_TRIALS} trials could contradict it: audit a smaller claim")


def _noticeable(noticed: float | None) -> str:
    if noticed is None:
        return "only what betrays nearly every run"
    return f"noise as for epsilon {noticed:.3g} or more, about every second time, by whoever sees every noisy sum"


def _noticed(claim: Claim, effort: Effort, events: int) -> float | None:
    """The least epsilon that the best attack on the sums would, by expected counts, have told from the claimed one."""
    counted, noise = effort.trials - effort.trials // 3, claim.noise
    for _ in range(60):
        total = 1 - Curve(noise, claim.rate, claim.steps).delta(0)
        wrong = int(np.ceil(counted * total / 2))
        if claim.curve.excludes(*_limits(Mistakes(wrong, counted, wrong, counted), 1 - (1 - effort.confidence) / events)):
            return Curve(noise, claim.rate, claim.steps).epsilon(claim.delta)
        noise *= 0.97
    return None


def _curve_name(claim: Claim) -> str:
    return "Gaussian DP" if claim.rate == 1 else "subsampled Gaussian curve"


def _limits(mistakes: Mistakes, confidence: float) -> tuple[float, float]:
    """Upper limits of the rates of false alarms and misses, which hold together."""
    error = (1 - confidence) / 2
    return (
        upper_limit(mistakes.alarms, mistakes.without, error),
        upper_limit(mistakes.misses, mistakes.having, error),
    )
