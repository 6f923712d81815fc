"""agt audit dpsgd: a run's training with noise, repeated with and without canaries.

A canary is a gradient or a record that the audit adds to the training data. Trainings use the loop
of ``agt train``. An adversary sees every noisy gradient sum, or the final weights, and guesses
whether the canary was used. Its mistakes give lower bounds on epsilon, which are compared with the
run's claim.

Canaries are made in agt_audit/canaries.py, and trained on in agt_audit/noisy_training.py.

Formal guarantees
    * Many trainings: a threshold is chosen on the first third of the trainings of each side, and
      mistakes are counted on the others (Lemma 2 of docs/proofs/attack_bounds.md).
    * Step by step: in each step a new coin decides whether the canary is used. A guess is right
      with probability at most Phi(mu_step / 2), so the number of right guesses is dominated by a
      binomial number. The accountant composes the steps, so errors in the composition are not
      detected.
    * Clipping of records' gradients is tested only with canaries that are records: those of
      gradient canaries are clipped here, not by the training that is audited.
    * One training with many canaries: agt_audit/one_run.py. The size of the noise is tested as in
      agt_audit/added_noise.py.
    * All rigorous bounds of one audit share the error probability equally.

Sources: lecture 004; Nasr et al. 2023; Steinke et al. 2023.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from agt.errors import ConfigError
from agt.numeric import gaussian_epsilon
from agt.settings import schema
from agt.training.settings import NoiseConfig
from agt_audit.added_noise import noise_size
from agt_audit.canaries import Canaries
from agt_audit.claims import Claimed, power_sentence, verdict_words
from agt_audit.estimates import Mistakes, epsilon_bound, lower_limit, mu_bound
from agt_audit.job import Audited, AuditInputs, AuditKind
from agt_audit.kind_settings import DpSgdAuditSettings
from agt_audit.noisy_training import AdversaryView, NoisyTraining
from agt_audit.one_run import (
    BOUNDS,
    epsilon_of_mu,
    one_run_epsilon,
    planned_guesses,
    right_guesses,
)
from agt_audit.output_events import choose_event
from agt_cli.report.console import Console
from agt_cli.report.findings import Estimate, Finding, Outcome, Strength, format_lower_bound
from agt_cli.report.record import RunRecord


class Adversary(StrEnum):
    """What an attacker sees, as sentences name it."""

    SUMS = "every noisy sum"
    WEIGHTS = "the final weights"
    STEPS = "step by step, composed"
    ONE_RUN = "one run"


@dataclass(frozen=True)
class TrainingEffort:
    """How many trainings an audit makes.

    Attributes:
        trials: how many trainings with the canary, and how many without it.
        step_runs: how many trainings with a coin in each step.
        confidence: the probability with which all rigorous bounds hold together.
        seed: the seed of the coins.
    """

    trials: int
    step_runs: int
    confidence: float = 0.95
    seed: int = 0

    @property
    def counted(self) -> int:
        """The number of trials of each side that are counted; the others choose thresholds."""
        return self.trials - self.trials // 3


@dataclass(frozen=True)
class LowerBound:
    """A rigorous lower bound on epsilon at the claim's delta, from one attack.

    Attributes:
        method: the name of the estimator.
        adversary: what the attacker sees.
        found: the bound.
        canaries: the number of canaries of an attack on one run; None: another adversary.
    """

    method: str
    adversary: Adversary
    found: float
    canaries: int | None = None

    @property
    def adversary_words(self) -> str:
        """What the attacker sees, with the number of canaries of an attack on one run."""
        if self.canaries is None:
            return self.adversary.value
        return f"{self.adversary}, {self.canaries} canaries"

    @property
    def estimate(self) -> Estimate:
        """The bound as one of a finding's ``estimates``."""
        name = f"{self.method}, {self.adversary_words}"
        return Estimate(name, "epsilon", self.found, Strength.CONFIDENT)


class TrainingAudit(NamedTuple):
    """What an audit of training with noise found.

    Attributes:
        bounds: lower bounds on epsilon.
        noise_size: the finding about the size of the noise.
    """

    bounds: list[LowerBound]
    noise_size: Finding


def log_likelihood_ratios(view: AdversaryView, noise_multiplier: float) -> np.ndarray:
    """Return the log-likelihood ratio of each noisy sum, with the canary to without it, [R, T, m].

    Args:
        view: what the adversary sees.
        noise_multiplier: the claimed standard deviation of the noise, in units of the largest
            contribution of one unit.
    """
    return (2 * view.reach * view.scores - view.reach**2) / (2 * noise_multiplier**2)


def audit_training(
    trainer: NoisyTraining,
    canary: Canaries,
    effort: TrainingEffort,
    several: Canaries | None,
) -> TrainingAudit:
    """Train with and without canaries, and compute lower bounds on epsilon.

    Args:
        trainer: the run's training, with its claim.
        canary: one canary, for many trainings.
        effort: how many trainings to make.
        several: many canaries, for a single training; None: no such training is made.

    Returns:
        The findings. The lower bounds hold together with the confidence of ``effort``.

    Raises:
        ConfigError: there are too few trials to contradict the claim.
    """
    many_run_bounds = 4  # two for each of two adversaries
    one_run_bounds = 0 if several is None else len(BOUNDS)
    # and one bound from steps, and one on the size of the noise
    confidence = 1 - (1 - effort.confidence) / (many_run_bounds + one_run_bounds + 2)
    _check_trials(trainer, effort, confidence)
    always_in = np.full((effort.trials, 1, 1), True)
    present = trainer.train(canary, always_in)
    absent = trainer.train(canary, ~always_in)
    with_canary = _scores_by_adversary(present, trainer.noise_multiplier)
    without_canary = _scores_by_adversary(absent, trainer.noise_multiplier)
    bounds: list[LowerBound] = []
    for adversary, scores in with_canary.items():
        bounds += _many_run_bounds(
            adversary, scores, without_canary[adversary], trainer.config, confidence
        )
    if several is not None:
        bounds += _one_run_bounds(trainer, several, effort.seed, confidence)
    size = noise_size(
        "training with noise in every step",
        float(absent.squares.sum()),
        int(absent.coordinates.sum()),
        confidence,
        f"{effort.trials} trainings",
    )
    bounds.append(_step_bound(trainer, canary, effort, confidence))
    return TrainingAudit(bounds, size)


def _scores_by_adversary(
    view: AdversaryView, noise_multiplier: float
) -> dict[Adversary, np.ndarray]:
    """Return the score of each training for each adversary, [R, 1]; higher: the canary was used.

    Args:
        view: what the adversaries see of R trainings.
        noise_multiplier: the claimed standard deviation of the noise, in units of the largest
            contribution of one unit.
    """
    return {
        Adversary.SUMS: log_likelihood_ratios(view, noise_multiplier).sum(axis=1),
        Adversary.WEIGHTS: view.weights,
    }


def _check_trials(trainer: NoisyTraining, effort: TrainingEffort, confidence: float) -> None:
    """Raise ConfigError if the trials could not contradict the claim, even without any mistake.

    Args:
        trainer: the run's training, with its claim.
        effort: how many trials there are.
        confidence: the probability with which each bound holds.
    """
    needed = Claimed("mu", trainer.plan.mu).needed(confidence)
    if effort.counted >= needed:
        return
    config = trainer.config
    enough = 3 * (needed - 1) // 2 + 1  # the least number of which ``counted`` are enough
    raise ConfigError(
        f"audit.trials={effort.trials} is too few to contradict the claimed epsilon of "
        f"{config.epsilon:.4g} at delta = {config.delta:g}, even if every guess were right: "
        f"set audit.trials={enough} or more"
    )


def _many_run_bounds(
    adversary: Adversary,
    with_canary: np.ndarray,
    without_canary: np.ndarray,
    config: NoiseConfig,
    confidence: float,
) -> tuple[LowerBound, LowerBound]:
    """Return the lower bounds from one adversary's scores of many trainings.

    The threshold is chosen for each measure (epsilon, mu) separately, on the first third of the
    scores.

    Args:
        adversary: what the attacker sees.
        with_canary: [R, 1] the scores of trainings with the canary.
        without_canary: [R, 1] the scores of trainings without it.
        config: the claimed epsilon and delta.
        confidence: the probability with which each bound holds.

    Returns:
        The Clopper-Pearson bound on epsilon; and the epsilon that follows from the one on mu.
    """
    third = len(with_canary) // 3

    def mistakes_of_best_event(claimed: Claimed) -> Mistakes:
        present = with_canary[:, 0]
        absent = without_canary[:, 0]
        event = choose_event(present[:third], absent[:third], claimed, confidence, "scores")
        return event.mistakes(present[third:], absent[third:])

    mistakes = mistakes_of_best_event(Claimed("epsilon", config.epsilon, config.delta))
    epsilon = epsilon_bound(mistakes, config.delta, confidence)
    mu = mu_bound(mistakes_of_best_event(Claimed("mu", 0.0)), confidence)
    return (
        LowerBound("Clopper-Pearson", adversary, epsilon),
        LowerBound("Gaussian DP", adversary, epsilon_of_mu(mu, config.delta)),
    )


def _step_bound(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, confidence: float
) -> LowerBound:
    """Train, and return the lower bound from a guess in each step, composed over all steps.

    Args:
        trainer: the run's training, with its claim.
        canary: one canary, for many trainings.
        effort: how many trainings to make.
        confidence: the probability with which this bound holds.
    """
    steps = trainer.plan.epochs
    coins = np.random.default_rng(effort.seed).random((effort.step_runs, steps, 1)) < 0.5
    view = trainer.train(canary, coins)
    guesses = log_likelihood_ratios(view, trainer.noise_multiplier) > 0
    is_right = guesses == coins
    share_right = lower_limit(int(is_right.sum()), is_right.size, 1 - confidence)
    mu = 0.0
    if share_right > 0.5:  # Phi(mu_step / 2) is at least this, and mu = mu_step sqrt(steps)
        mu = 2 * float(ndtri(share_right)) * math.sqrt(steps)
    epsilon = epsilon_of_mu(mu, trainer.config.delta)
    return LowerBound("Gaussian DP", Adversary.STEPS, epsilon)


def _one_run_bounds(
    trainer: NoisyTraining, canaries: Canaries, seed: int, confidence: float
) -> list[LowerBound]:
    """Train once, and return the lower bounds from guesses about many canaries of this training.

    Args:
        trainer: the run's training, with its claim.
        canaries: the canaries, each of which is used by a separate coin.
        seed: the seed of the coins.
        confidence: the probability with which each bound holds.
    """
    count = len(canaries)
    config = trainer.config
    coins = np.random.default_rng(seed).random((1, 1, count)) < 0.5
    view = trainer.train(canaries, coins)
    scores = log_likelihood_ratios(view, trainer.noise_multiplier).sum(1)[0]
    bounds = []
    for bound in BOUNDS:
        guesses = planned_guesses(count, config.epsilon, config.delta, confidence, bound)
        guesses_out = guesses // 2
        right = right_guesses(scores, coins[0, 0], guesses - guesses_out, guesses_out)
        epsilon = one_run_epsilon(right, guesses, count, config.delta, confidence, bound)
        bounds.append(LowerBound(bound, Adversary.ONE_RUN, epsilon, canaries=count))
    return bounds


def judge_training(
    trainer: NoisyTraining, canary: Canaries, effort: TrainingEffort, bounds: Sequence[LowerBound]
) -> Finding:
    """Compare the claim with the largest lower bound, and return the finding.

    Args:
        trainer: the run's training, with its claim.
        canary: the canary of many trainings.
        effort: how many trainings there were.
        bounds: all lower bounds, at least one.
    """
    config = trainer.config
    best = max(bounds, key=lambda bound: bound.found)
    violated = best.found > config.epsilon
    claimed_mu = Claimed("mu", trainer.plan.mu)
    noticed_mu = claimed_mu.noticed(effort.counted, effort.confidence, len(bounds))
    noticed = None if noticed_mu is None else gaussian_epsilon(noticed_mu, config.delta)
    needed = claimed_mu.needed(effort.confidence, len(bounds))
    one_run = {bound.adversary_words for bound in bounds if bound.adversary is Adversary.ONE_RUN}
    efforts = [
        f"{effort.trials} trainings with the canary, and as many without it",
        f"{effort.step_runs} trainings in which a coin decides in each step whether the "
        "canary is used",
        *one_run,
    ]
    return Finding(
        subject=f"training with noise in every step, claimed epsilon {config.epsilon:.3g}",
        claim=trainer.claim,
        attack=(
            f"an attacker guesses whether training used canaries: {canary.description}. The "
            f"{len(bounds)} bounds share the error probability"
        ),
        effort="; ".join(efforts),
        outcome=Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED,
        meaning=_verdict_sentence(best, config, effort.confidence),
        measure="epsilon",
        claimed=config.epsilon,
        delta=config.delta,
        found=best.found,
        confidence=effort.confidence,
        estimator=best.method,
        noticeable=power_sentence("epsilon", noticed, needed),
        noticed=noticed,
        estimates=tuple(bound.estimate for bound in bounds),
    )


def _verdict_sentence(best: LowerBound, config: NoiseConfig, confidence: float) -> str:
    """Return a sentence with the largest bound and whether it contradicts the claim.

    Args:
        best: the bound.
        config: the claimed epsilon and delta.
        confidence: the probability with which all bounds hold together.
    """
    if not best.found:
        return (
            "no attack could tell whether the canary was used, so no lower bound on epsilon "
            "was found (this is not a proof of privacy)"
        )
    percentage = 100 * confidence
    lower_bound = format_lower_bound(best.found, config.epsilon)
    verdict = verdict_words(best.found > config.epsilon, f"epsilon of {config.epsilon:.12g}")
    return (
        f"epsilon at delta = {config.delta:g} is at least {lower_bound}, with "
        f"{percentage:.12g} % confidence (method: {best.method}; the attacker sees: "
        f"{best.adversary_words}); {verdict}"
    )


NOTES = (
    "this audit uses the run's own training loop and public constants, but new noise and only "
    "some of the run's records",
    "bounds called 'Gaussian DP' or 'gdp' test a stronger claim: that training is as private as "
    "one addition of Gaussian noise of the stated size. If only these bounds are violated, only "
    "that stronger claim is contradicted. Bounds called 'Clopper-Pearson' or 'exact' test "
    "epsilon at delta itself",
    "the step-by-step bound is computed for one step and then composed by agt's accountant. So "
    "it detects errors in the noise, but not errors in the composition",
    "all bounds hold at the same time, with the stated confidence",
)
CLIPPING_NOT_TESTED = (
    "these canaries are gradients, which this audit clips itself. So it does not detect that "
    "training fails to clip the gradients of records. To test that, audit again with "
    "audit.canary=mislabelled"
)
CLIPPING_TESTED = (
    "these canaries are records, whose gradients training computes and clips. A missing clip is "
    "detected only if the gradients of these canaries exceed the clip level"
)


@schema
class DpSgdAudit(DpSgdAuditSettings, AuditKind):
    """Attacks a run's training with noise in each step; its settings say how much is tried.

    Attributes:
        records: how many of the run's records every training has, in addition to the canaries.
        canary: the kind of canaries (agt_audit/canaries.py). "signs" is the strongest, because
            gradients are clipped in each coordinate.
        canaries: how many canaries a single training has; 0: no such training is made.
        trials: how many trainings with one canary, and as many without it.
        step_runs: how many trainings with a coin in each step.
    """

    def carry_out(self, given: AuditInputs, record: RunRecord, console: Console) -> Audited:
        """Train with and without canaries, and compare lower bounds with the run's claim.

        Raises:
            DataMissing: the run's data is missing.
            ConfigError: the run was trained without noise or has too few records, or there are too
                few trials to contradict its claim.
        """
        opened = given.open(record, console)
        records = opened.stored.problem.dataset.train
        shuffled = np.random.default_rng(given.seed).permutation(len(records))
        rows = np.sort(shuffled[: self.records])
        trainer = NoisyTraining.of(opened.model, records.take(rows))
        if self.records > len(records):
            raise ConfigError(
                f"audit.records={self.records} exceeds {len(records)}, the number of training "
                f"records of the run: give {len(records)} or fewer"
            )
        effort = TrainingEffort(self.trials, self.step_runs, given.confidence, given.seed)
        canary = trainer.canaries(self.canary, 1, given.seed)
        several = None
        if self.canaries:
            several = trainer.canaries(self.canary, self.canaries, given.seed)
        audit = audit_training(trainer, canary, effort, several)
        finding = judge_training(trainer, canary, effort, audit.bounds)
        tables = {"bounds": _bounds_table(audit.bounds, trainer.config.epsilon)}
        findings = (finding, audit.noise_size)
        about_clipping = CLIPPING_NOT_TESTED
        if canary.gradients is None:
            about_clipping = CLIPPING_TESTED
        notes = (*NOTES, about_clipping)
        return Audited.of(opened.trained.finished, findings, notes, tables=tables)


def _bounds_table(bounds: Sequence[LowerBound], claimed_epsilon: float) -> pd.DataFrame:
    """Return the table of all bounds, the largest first; the claim is in the last column's name."""
    largest_first = sorted(bounds, key=lambda bound: -bound.found)
    rows = [(bound.method, bound.adversary_words, bound.found) for bound in largest_first]
    claimed = f"claimed {claimed_epsilon:g}"
    return pd.DataFrame(rows, columns=["lower bound on epsilon", "who sees", claimed])
