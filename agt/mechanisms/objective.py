"""Objective perturbation: release weights that minimise the loss plus a random linear term.

    constants = ProblemConstants.from_head(head)                     public
    noises = ObjectiveNoises.from_budget(constants, eps, delta)      public: the scales of the noise
    release_objective(erm, constants, ApproximateDP(eps, delta), SystemRandomness())

One release solves min F(theta) + b.theta for a newly drawn normal b, adds a little more noise, and
rounds to a public lattice. F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2) |theta|^2, where l is the
logistic loss with its derivative clamped to [-C, 0] (training/erm_with_linear_term.py).
docs/proofs/objective.md proves the guarantee.

Sources: Chaudhuri, Monteleoni, Sarwate (2011); Kifer, Smith, Thakurta (2012); Iyengar et al. (2019)
for the second noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from agt.errors import ConfigError
from agt.mechanism_settings import ObjectivePerturbationSettings
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.weights import expected_accuracy
from agt.mechanisms.weights_mechanism import (
    AccuracyMethod,
    ReleasedWeights,
    WeightsMechanism,
)
from agt.messages import Message
from agt.models.linear import LinearModel
from agt.numeric import COVER, Randomness, gaussian_mu, next_up, noisy, step_of
from agt.settings import schema
from agt.training.erm_with_linear_term import (
    NORM_SLACK,
    ErmWithLinearTerm,
    clamped_logistic_smoothness,
    smallest_tolerance,
    solve,
)

# Share of epsilon and delta for the noise at the end, which hides the errors of the solver and of
# rounding b to a lattice.
SOLVER_SHARE = 0.01
# The norm of d standard normal numbers exceeds sqrt d plus this with a probability of at most
# e^-72.
_FAR_DEVIATIONS = 12.0
MAX_STRENGTH = 1e100  # whose square is finite

# (the means [n, 1] of n logits, a function from eps and delta to their standard deviations [n])
LogitDistribution = tuple[np.ndarray, Callable[[float, float], np.ndarray]]


@dataclass(frozen=True)
class ProblemConstants:
    """The public constants of the minimisation problem that a release solves.

    Attributes:
        strength: Lambda, the factor of the regulariser. The losses are summed, not averaged.
        clamp: C, the bound on the loss's absolute derivative.
        records: n_max, a public bound on the number of records.
        width: d, the number of features of a record.
    """

    strength: float
    clamp: float
    records: int
    width: int

    @classmethod
    def from_head(cls, head: LinearModel, weight_decay: float | None = None) -> "ProblemConstants":
        """Return the constants of a head's minimisation problem.

        Args:
            head: a trained linear head.
            weight_decay: lambda of the release, whose strength is lambda times the public
                normaliser; None: the head's own.

        Raises:
            ConfigError: the strength is so large that the solver's sums could overflow.
        """
        trained = head.trained
        if weight_decay is None:
            weight_decay = trained.training.weight_decay
        strength = weight_decay * trained.plan.normalizer
        if not strength <= MAX_STRENGTH:
            raise ConfigError(
                Message(
                    "{config:mechanism.weight_decay}={given:g} is too large to compute with: give "
                    "at most {most:g}",
                    given=weight_decay,
                    most=MAX_STRENGTH / trained.plan.normalizer,
                )
            )
        return cls(
            strength=strength,
            clamp=trained.loss.derivative_bound,
            records=trained.plan.n_max,
            width=trained.weight.shape[1],
        )

    @property
    def determinant_loss(self) -> float:
        """The part of epsilon that the determinant of the Hessian costs, rounded up.

        It is log(1 + beta/Lambda), where beta is the largest second derivative of the loss: one
        record changes the determinant by at most the factor 1 + beta/Lambda.
        """
        # Lemma 1 of docs/proofs/objective.md: the minimiser's density is that of b times the
        # determinant of the Hessian. Lemma 2 of docs/proofs/objective.md: one record changes the
        # determinant by a factor between 1 and 1 + beta/Lambda.
        beta = clamped_logistic_smoothness(self.clamp) * (1 + NORM_SLACK) ** 2
        ratio = next_up(next_up(beta) / self.strength)
        return next_up(next_up(math.log1p(ratio)))


@dataclass(frozen=True)
class ObjectiveNoises:
    """The scales of the noises of one release, and the solver's tolerance; all of them are public.

    Attributes:
        tilt: the standard deviation of each coordinate of the linear term b.
        tolerance: bound on the norm of the gradient at the solver's result.
        scale: the standard deviation of the noise that is added to each weight at the end.
    """

    tilt: float
    tolerance: float
    scale: float

    @classmethod
    def from_budget(
        cls, constants: ProblemConstants, eps: float, delta: float
    ) -> "ObjectiveNoises":
        """Return the smallest noise for which one release is (eps, delta)-private.

        Args:
            constants: the public constants of the problem.
            eps, delta: the budget of the release, above 0.

        Raises:
            ConfigError: 99 % of eps is not larger than what the determinant costs
                (``determinant_loss``). The message names a strength that is large enough.
        """
        tilt = tilt_noise(constants, eps, delta)  # the standard deviation of each number of b
        root_width = math.sqrt(constants.width)
        # b has a length of about tilt * root_width, and almost never a larger one than this.
        longest_tilt = tilt * (root_width + _FAR_DEVIATIONS)
        tolerance = smallest_tolerance(
            constants.records, constants.width, constants.clamp, constants.strength, longest_tilt
        )
        # Lemma 4 of docs/proofs/objective.md: the solver's result is at most gradient_error /
        # Lambda from the exact minimiser, because of the tolerance and of rounding b to a lattice.
        gradient_error = tolerance + root_width * step_of(tilt) / 2
        # Neighbours' results are thus at most 2 gradient_error / Lambda further apart.
        mu = gaussian_mu(SOLVER_SHARE * eps, SOLVER_SHARE * delta)
        # COVER (slightly above 1) covers the roundings of this bound itself.
        scale = next_up(2 * gradient_error * COVER / constants.strength / mu)
        return cls(tilt, tolerance, scale)

    @property
    def by_name(self) -> dict[str, float]:
        """The public scales of the noise, by name, in the form of ``WeightsMechanism.noise``.

        ``tilt`` is the standard deviation of the random linear term b of the loss. ``sigma`` is the
        standard deviation of the noise on the final weights, which are rounded to multiples of
        ``step``.
        """
        return {"sigma": self.scale, "step": step_of(self.scale), "tilt": self.tilt}


def tilt_noise(constants: ProblemConstants, eps: float, delta: float) -> float:
    """Return the standard deviation of the linear term b ("tilt") for a budget, rounded up.

    99 % of eps and delta are for b. The rest is for the noise at the end.

    Args:
        constants: the public constants of the problem.
        eps, delta: the budget of the whole release, above 0.

    Raises:
        ConfigError: 99 % of eps is not larger than what the determinant costs
            (``determinant_loss``). The message names a strength that is large enough.
    """
    # Rounded down, so that the parts do not exceed the whole budget.
    tilt_eps = math.nextafter(eps - SOLVER_SHARE * eps, 0.0)
    tilt_delta = math.nextafter(delta - SOLVER_SHARE * delta, 0.0)
    determinant_loss = constants.determinant_loss
    if tilt_eps <= determinant_loss:
        needed = min_strength(constants.clamp, eps)
        raise ConfigError(
            f"objective perturbation at epsilon={eps:g} needs a regularisation of strength "
            f"{needed:.4g} or more, but its strength is {constants.strength:g}: raise the "
            "strength, or raise epsilon"
        )
    # Lemma 3 of docs/proofs/objective.md: a standard deviation of C / mu suffices, with mu the
    # largest Gaussian parameter that is (tilt_eps - determinant_loss, tilt_delta)-private.
    mu = gaussian_mu(math.nextafter(tilt_eps - determinant_loss, 0.0), tilt_delta)
    return next_up(next_up(constants.clamp * (1 + NORM_SLACK)) / mu)


def min_strength(clamp: float, eps: float) -> float:
    """Return a strength that is slightly above the smallest one that eps allows.

    It is larger by 0.2 %, so that its first four digits, as messages show them, are allowed as
    well.

    Args:
        clamp: C, the bound on the loss's absolute derivative.
        eps: the budget of the whole release.
    """
    # A strength Lambda is allowed if log(1 + beta / Lambda) < tilt_eps; this is solved for Lambda.
    tilt_eps = (1 - SOLVER_SHARE) * eps
    beta = clamped_logistic_smoothness(clamp)
    return 1.002 * beta / math.expm1(tilt_eps)


def release_objective(
    erm: ErmWithLinearTerm,
    constants: ProblemConstants,
    guarantee: ApproximateDP,
    source: Randomness,
    start: np.ndarray | None = None,
) -> ReleasedWeights:
    """Release the minimiser of a perturbed objective once, which spends ``guarantee``.

    Args:
        erm: the objective of the records, with a linear term of 0, and with the same constants as
            ``constants``.
        constants: the public constants of the problem.
        guarantee: the (eps, delta) of the release.
        source: SystemRandomness for a release. Anything else is a simulation, without a guarantee.
        start: [d] the weights at which the solver starts; None: 0. The guarantee holds for any
            start.

    Returns:
        Weights [1, d], with the scales of the noise by name (``ObjectiveNoises.by_name``).

    Raises:
        ConfigError: eps is too small for the strength, there are more records than ``constants``
            allows, or the objective has other constants.
        AgtError: the solver missed its tolerance. Then nothing is released.

    Formal guarantees:
        - The release is (eps, delta)-private under add_remove with one record for each unit
          (docs/proofs/objective.md).
        - An error after the draw reveals only that nothing was released, and the budget stays
          spent. Its probability is below 10^-31 for any data (Lemma 6 of docs/proofs/objective.md).
    """
    # The noise is computed from ``constants``, so they must be those of the objective.
    given = (erm.strength, erm.clamp, erm.x.shape[1])
    expected = (constants.strength, constants.clamp, constants.width)
    if given != expected or len(erm.x) > constants.records:
        records = len(erm.x)
        raise ConfigError(
            f"the noise was computed for {constants}, but the training problem has {records} "
            f"records and (strength, clamp, width) = {given}: call the mechanism with the "
            "constants of this problem"
        )
    noises = ObjectiveNoises.from_budget(constants, guarantee.eps, guarantee.delta)
    weight = draw_perturbed_minimiser(erm, noises, constants.records, source, start)[None]
    name = ObjectivePerturbation.name
    return ReleasedWeights(weight, guarantee, noises.by_name, source.simulated, name)


def draw_perturbed_minimiser(
    erm: ErmWithLinearTerm,
    noises: ObjectiveNoises,
    max_records: int,
    source: Randomness,
    start: np.ndarray | None,
) -> np.ndarray:
    """Draw a linear term, minimise the objective with it, and return the minimiser with noise, [d].

    Args:
        erm: the objective of the records, with a linear term of 0.
        noises: the scales of the noises, and the solver's tolerance.
        max_records: public bound on the number of records, from which the solver's number of steps
            follows.
        source: SystemRandomness for a release. Anything else is a simulation, without a guarantee.
        start: [d] the weights at which the solver starts; None: 0.

    Raises:
        AgtError: the solver missed its tolerance.
    """
    width = erm.x.shape[1]
    linear_term = noisy(np.zeros(width), noises.tilt, source)
    perturbed = replace(erm, tilt=linear_term)
    theta = solve(perturbed, noises.tolerance, start, max_records)
    # Lemma 5 of docs/proofs/objective.md: the second noise hides how far the solver's result is
    # from the exact minimiser. The budgets of the two noises add up.
    return noisy(theta, noises.scale, source)


@schema
class ObjectivePerturbation(ObjectivePerturbationSettings, WeightsMechanism):
    """Releases a head's weights by objective perturbation: a new random linear term each time.

    The head must have two classes. Each release solves the head's minimisation problem again from
    its training records. The head's own minimiser, without the term, is only where the solver
    starts, and stays private.

    Attributes:
        eps, delta: the budget of the one release.
        weight_decay: lambda of the problem that is solved; None: that of the head's training.

    Formal guarantees:
        - The release is (eps, delta)-private under add_remove with one record for each unit. Other
          relations and other losses than the logistic one are refused.
        - Every release draws new noise, so the losses of several releases add up. Budgets may be
          chosen after training and after earlier releases.
    """

    spends = ApproximateDP
    accuracy_method = AccuracyMethod("first order")

    @classmethod
    def largest_guarantee(cls, eps: float, delta: float) -> ApproximateDP:
        """Return the guarantee of one release that spends a whole (eps, delta) total.

        Its eps is smaller by the factor 1 - 2^-48, because a total is rounded up when it is
        computed from releases.
        """
        return ApproximateDP(eps * (1 - 2**-48), delta)

    @property
    def guarantee(self) -> ApproximateDP:
        """The (eps, delta) guarantee of the one release."""
        return ApproximateDP(self.eps, self.delta)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError unless the proof covers this head and its records are available.

        The head must be a minimiser (``certificate=erm``), not one that was trained in steps, and
        the records are those that it was trained on. The proof is for the logistic loss of two
        classes, and for neighbours that differ by one record added or removed.
        """
        loss = head.trained.loss
        cls.check_training(head.settings.certificate, head.settings.relation)
        if loss.kind != "binary":
            raise ConfigError(
                Message(
                    "mechanism={name}: the proof of this mechanism only covers two classes with a "
                    "binary loss, but the loss is {kind}: train with two classes and "
                    "{config:training.loss}=binary_cross_entropy, or use "
                    "{config:mechanism=release_weights}",
                    name=cls.name,
                    kind=loss.kind,
                )
            )
        cls.training_rows(head)  # called because it raises if the records are not available

    def noise_scales(self, head: LinearModel) -> ObjectiveNoises:
        """Return the scales of the noises of a release from this head.

        Raises:
            ConfigError: eps is too small for the weight decay. The message names a weight decay
                that is large enough.
        """
        constants = ProblemConstants.from_head(head, self.weight_decay)
        try:
            return ObjectiveNoises.from_budget(constants, self.eps, self.delta)
        except ConfigError:
            normalizer = head.plan.normalizer
            min_decay = min_strength(constants.clamp, self.eps) / normalizer
            given_decay = constants.strength / normalizer
            raise ConfigError(
                Message(
                    "mechanism={name}: eps = {eps:g} must exceed {determinant_loss:.4g}, the "
                    "part of the privacy loss that comes from the ratio of determinants, ln(1 + "
                    "beta/(weight_decay B)), at weight_decay = {given:g}. Give a larger eps, or "
                    "{config:mechanism.weight_decay}={least:.4g} or more (for the release only)",
                    name=self.name,
                    eps=self.eps,
                    determinant_loss=constants.determinant_loss,
                    given=given_decay,
                    least=min_decay,
                )
            ) from None

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the public scales of the noise of a release from this head, by name.

        ``sigma`` and ``step`` are the standard deviation and the lattice step of the noise on the
        weights. ``tilt`` is the standard deviation of the linear term b.

        Raises:
            ConfigError: eps is too small for the weight decay. The message names a weight decay
                that is large enough.
        """
        return self.noise_scales(head).by_name

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release weights, which spends ``guarantee`` once.

        Args:
            head: a linear head (the trained layer) that ``check`` accepts.
            source: SystemRandomness for a release. Anything else is a simulation, without a
                guarantee.

        Raises:
            ConfigError: eps is too small, or the training records are not available.
            AgtError: the solver missed its tolerance. Then nothing is released.
        """
        constants = ProblemConstants.from_head(head, self.weight_decay)
        erm = build_problem(head, constants)
        start = head.trained.weight[0].numpy()
        return release_objective(erm, constants, self.guarantee, source, start)

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """Return a function that computes a mechanism's expected accuracy on these queries.

        The accuracy is computed to first order in the noise. The records are read once for each
        weight decay, however many mechanisms are evaluated.

        Args:
            head: a linear head (the trained layer) that ``check_head`` accepts.
            features: [n, ...] queries, in the form that the head takes.
            labels: [n] the true labels of the queries.
        """
        phi = head.phi(features)

        @cache  # budgets do not change the minimiser, so it is solved once for each weight decay
        def logit_distribution(weight_decay: float | None) -> LogitDistribution:
            """Return the means of the queries' logits, and their deviations for a budget."""
            return expected_deviations(head, phi, weight_decay)

        def accuracy(mechanism: Self) -> float:
            """Return the expected accuracy of releases by one mechanism."""
            mean, deviations_of_budget = logit_distribution(mechanism.weight_decay)
            deviations = deviations_of_budget(mechanism.eps, mechanism.delta)
            # The deviations already hold the noise's scale, so sigma is 1.
            return expected_accuracy(mean, deviations, labels, sigma=1.0)

        return accuracy


def build_problem(head: LinearModel, constants: ProblemConstants) -> ErmWithLinearTerm:
    """Return the objective of a head's training records, with a linear term of 0.

    Args:
        head: a linear head (the trained layer) that ``ObjectivePerturbation.check_head`` accepts.
        constants: the public constants, of which strength and clamp are used.

    Raises:
        ConfigError: the records are not available, there are more than n_max, or several of one
            unit.
        DataError: memory-mapped records were changed after training.
    """
    rows = ObjectivePerturbation.training_rows(head)
    records = head.problem.dataset.train.take(rows)
    features = head.phi_of_records(records.features)
    return ErmWithLinearTerm.from_labels(
        features, records.labels, constants.strength, constants.clamp
    )


def expected_deviations(
    head: LinearModel, phi: np.ndarray, weight_decay: float | None
) -> LogitDistribution:
    """Return the distribution of queries' logits in a release, to first order in the noise.

    The released minimiser is approximately theta - H^-1 b, where theta is the minimiser without
    noise and H the Hessian there. So the logit of features phi is approximately normal, with
    variance tilt^2 |H^-1 phi|^2 + scale^2 |phi|^2. The result is private: it is for the data owner
    only.

    Args:
        head: a trained linear head.
        phi: [n, d] the features of the queries.
        weight_decay: lambda of the release; None: the head's own.

    Returns:
        (the means [n, 1], which are the logits without noise; a function that takes eps and delta
        and returns the standard deviations [n]).
    """
    constants = ProblemConstants.from_head(head, weight_decay)
    erm = build_problem(head, constants)
    start = head.trained.weight[0].numpy()
    no_linear_term = 0.0
    tolerance = smallest_tolerance(
        constants.records, constants.width, constants.clamp, constants.strength, no_linear_term
    )
    theta = solve(erm, tolerance, start, constants.records)
    queries = phi.astype(np.float64, copy=False)
    lengths = np.linalg.norm(queries, axis=1)
    inverse_hessian_queries = cho_solve(cho_factor(erm.hessian(theta)), queries.T)
    solved_lengths = np.linalg.norm(inverse_hessian_queries, axis=0)  # |H^-1 phi|

    def deviations(eps: float, delta: float) -> np.ndarray:
        """Return the standard deviations [n] of the logits for a budget."""
        noises = ObjectiveNoises.from_budget(constants, eps, delta)
        return np.hypot(noises.tilt * solved_lengths, noises.scale * lengths)

    return (queries @ theta)[:, None], deviations
