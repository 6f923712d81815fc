"""Attacks on Gaussian noise that is added to weights, and a test of the size of such noise.

Formal guarantees
    * No test distinguishes theta + N(0, sigma^2 I) and theta' + N(0, sigma^2 I) better than the
      projection on theta - theta'. In units of sigma it is N(0, 1) or N(mu, 1), with
      mu = |theta - theta'| / sigma. The threshold is the midpoint. It depends on no draw, so it
      costs no confidence (Lemma 2 of docs/proofs/attack_bounds.md).
    * The size of the noise: the sum of the squares of n coordinates, divided by the claimed
      variance, is chi-squared with n degrees of freedom if the claim is exact, and larger if there
      is more noise. So it is below the error-quantile with at most the error probability. (Rounding
      to a lattice adds 2^-48 of the variance.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from agt.mechanisms.guarantees import GaussianDP
from agt.mechanisms.weights import ReleaseWeights, noise_scale, release_weights
from agt.numeric import UP, Randomness
from agt_audit.output_events import tail_event
from agt_audit.trials import Exact, TrialPlan, claim_to_test, subject_of
from agt_cli.report.findings import Finding, Outcome

NO_DATA_USED = (
    "no data were used: the audit compares two weight vectors that are as far apart as the "
    "sensitivity allows"
)


@dataclass(frozen=True)
class WeightPair:
    """Made-up weights of two models of neighbouring datasets.

    Attributes:
        first: the weights on one dataset, float64.
        second: the weights on the other, of the same shape; they differ from the first.
        sensitivity: that for which the noise is scaled: the largest l2 distance by which one
            unit may move the weights.
    """

    first: np.ndarray
    second: np.ndarray
    sensitivity: float

    @property
    def distance(self) -> float:
        """The l2 distance of the two weights."""
        return float(np.linalg.norm(self.first - self.second))

    @classmethod
    def without_data(cls, width: int) -> "WeightPair":
        """Return synthetic weights [width] whose distance is the sensitivity, 1."""
        return cls(np.full(width, 1 / np.sqrt(width)), np.zeros(width), 1.0)


def weights_drawn(
    theta: np.ndarray, sensitivity: float, guarantee: GaussianDP, source: Randomness
) -> np.ndarray:
    """Return the weights that ``release_weights`` draws, without its further results."""
    return release_weights(theta, sensitivity, guarantee, source).weight


class WeightsFindings(NamedTuple):
    """The findings about releases of two models' weights with added noise.

    Attributes:
        exact: of the exact mu of this pair.
        drawn: of an attack on the releases.
        noise_size: about the size of their noise.
    """

    exact: Finding
    drawn: Finding
    noise_size: Finding


Release = Callable[[np.ndarray, float, GaussianDP, Randomness], np.ndarray]
"""Draws released weights from (weights, sensitivity, guarantee, randomness)."""


class DrawnReleases(NamedTuple):
    """What an attacker measures on n releases of one model's weights.

    Attributes:
        scores: [n] the projection of each release on the line between the two models, from the
            midpoint towards the first model, in standard deviations of the noise.
        squares: [n] the sum of the squares of each release's noise, divided by the claimed
            variance.
    """

    scores: np.ndarray
    squares: np.ndarray


def audit_weights(
    mechanism: ReleaseWeights,
    heads: WeightPair,
    plan: TrialPlan,
    release: Release = weights_drawn,
) -> WeightsFindings:
    """Audit releases of two models' weights with added noise.

    Args:
        mechanism: the mechanism, with its claim.
        heads: the weights of both models.
        plan: how many releases to draw of each side, and how.
        release: draws released weights; the default is the mechanism's own release.
    """
    plan = plan.shared_among(2)  # the bound from draws, and the size of the noise
    first = _draw_releases(heads.first, mechanism, heads, plan, release)
    second = _draw_releases(heads.second, mechanism, heads, plan, release)
    subject = subject_of(mechanism.name, mechanism.guarantee)
    attack = (
        "an attacker projects the released weights onto the line between the weights of the two "
        "models, and guesses the nearer model"
    )
    effort = (
        f"{plan.trials:,} releases of {heads.first.size:,} weights were drawn from each of the "
        f"two models; {NO_DATA_USED}"
    )
    claim = claim_to_test(subject, mechanism.guarantee, attack, effort, plan)
    nearer_to_first = tail_event(0.0, above=True)
    squares = np.concatenate([first.squares, second.squares])
    coordinates = squares.size * heads.first.size
    return WeightsFindings(
        exact=_exact_finding(mechanism, heads, subject),
        drawn=claim.judge(nearer_to_first.mistakes(first.scores, second.scores)),
        noise_size=noise_size(
            subject, float(squares.sum()), coordinates, plan.confidence, NO_DATA_USED
        ),
    )


def _draw_releases(
    theta: np.ndarray,
    mechanism: ReleaseWeights,
    heads: WeightPair,
    plan: TrialPlan,
    release: Release,
) -> DrawnReleases:
    """Release one model's weights ``plan.trials`` times, and measure each release.

    Args:
        theta: the model's weights, one of the two of ``heads``.
        mechanism: the mechanism, with its claim.
        heads: the weights of both models.
        plan: how many releases to draw, and from which randomness.
        release: draws released weights.
    """
    sigma = noise_scale(heads.sensitivity, mechanism.guarantee)
    claimed_sigma = heads.sensitivity / mechanism.mu
    direction = (heads.first - heads.second) / heads.distance
    middle = (heads.first + heads.second) / 2
    scores = np.empty(plan.trials)
    squares = np.empty(plan.trials)
    for trial in range(plan.trials):
        released = release(theta, heads.sensitivity, mechanism.guarantee, plan.source)
        scores[trial] = float(((released - middle) * direction).sum()) / sigma
        noise_square = float(((released - theta) ** 2).sum())
        squares[trial] = noise_square / claimed_sigma**2
    return DrawnReleases(scores, squares)


def _exact_finding(mechanism: ReleaseWeights, heads: WeightPair, subject: str) -> Finding:
    """Return the finding that compares the distance of two models' weights with the noise.

    Args:
        mechanism: adds the noise to the weights.
        heads: the two models' linear heads.
        subject: the text with which the finding's subject begins.
    """
    mu = heads.distance / noise_scale(heads.sensitivity, mechanism.guarantee)
    share = heads.distance / heads.sensitivity
    return Exact(mu, mu > mechanism.mu * (1 + UP)).finding(
        f"{subject}: the noise compared with the distance between the two models",
        mechanism.guarantee,
        "the distance between the weights of the two models, divided by the standard deviation "
        "of the noise, was compared with the claimed value",
        NO_DATA_USED,
        f"this audit detects noise that is sized for less than {share:.3g} times the claimed "
        "sensitivity",
    )


def noise_size(subject: str, squares: float, count: int, confidence: float, effort: str) -> Finding:
    """Return the finding about whether noise has at least the claimed standard deviation.

    Args:
        subject: what adds the noise, for the finding.
        squares: the sum of the squares of independent noises, divided by the claimed variance.
        count: how many noises, at least 1.
        confidence: the probability with which noise of the claimed size is not called too small.
        effort: what was drawn, in words.
    """
    error = 1 - confidence
    ratio = math.sqrt(squares / count)
    violated = float(chi2.cdf(squares, count)) < error
    least_unnoticed = math.sqrt(float(chi2.ppf(error, count)) / count)
    return Finding(
        subject=f"{subject}: its noise",
        claim="the noise has at least the standard deviation that the guarantee needs",
        attack=(
            "the sum of the squared noise, over all coordinates of all releases, was compared "
            "with its expected value"
        ),
        effort=f"{count:,} coordinates; {effort}",
        outcome=Outcome.VIOLATED if violated else Outcome.NOT_CONTRADICTED,
        meaning=f"the standard deviation of the noise is {ratio:.4g} times the claimed one",
        measure="noise/claimed",
        found=ratio,
        confidence=confidence,
        noticeable=(
            "more than half of all audits would detect noise whose standard deviation is below "
            f"{least_unnoticed:.4g} times the claimed one"
        ),
        estimator="chi-squared",
    )
