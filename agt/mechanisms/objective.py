"""Release weights that minimise the loss with a random linear term: objective perturbation.

    constants = ProblemConstants.from_head(head)                     public
    noises = ObjectiveNoises.from_budget(constants, eps, delta)      public: what is drawn
    release_objective(erm, constants, ApproximateDP(eps, delta), SystemRandomness())

One release solves F(theta) + b.theta with a fresh normal b, adds a little more noise, and is
rounded to a public lattice. F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2) |theta|^2, where l is
the logistic loss whose derivative is clamped to [-C, 0] (training/tilted_erm.py).
docs/proofs/objective.md proves the guarantee.

Sources: Chaudhuri, Monteleoni, Sarwate (2011); Kifer, Smith, Thakurta (2012); Iyengar et al. (2019)
for the second noise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from agt.errors import ConfigError
from agt.mechanisms.guarantees import ApproximateDP
from agt.mechanisms.mechanism import Delta, Epsilon
from agt.mechanisms.weights import expected_accuracy
from agt.mechanisms.weights_mechanism import (
    AccuracyMethod,
    NoiseLaw,
    ReleasedWeights,
    WeightsMechanism,
)
from agt.messages import Message
from agt.models.linear import LinearModel
from agt.numeric import COVER, Randomness, gaussian_mu, next_up, noisy, step_of
from agt.relations import RELATIONS
from agt.settings import Positive, schema
from agt.training.tilted_erm import (
    NORM_SLACK,
    TiltedErm,
    smallest_tolerance,
    solve,
    tilted_smoothness,
)

SOLVER_SHARE = 0.01  # of epsilon and delta, for what the solver and the lattice leave
# In standard deviations: the norm of d normal numbers exceeds sqrt d by so much with a probability
# of at most e^-72.
_FAR_DEVIATIONS = 12.0


@dataclass(frozen=True)
class ProblemConstants:
    """The public constants of the problem that is solved.

    Attributes:
        strength: Lambda, against the sum of the losses, not their mean.
        clamp: C, the largest derivative of the loss.
        records: n_max, how many records there may be.
        width: d, how many features a record has.
    """

    strength: float
    clamp: float
    records: int
    width: int

    @classmethod
    def from_head(cls, head: LinearModel, weight_decay: float | None = None) -> "ProblemConstants":
        """Return the constants of a head's problem.

        Args:
            head: a trained head.
            weight_decay: lambda of the release; None: the head's own.
        """
        trained = head.trained
        decay = trained.training.weight_decay if weight_decay is None else weight_decay
        return cls(
            strength=decay * trained.plan.normalizer,
            clamp=trained.loss.derivative_bound,
            records=trained.plan.n_max,
            width=trained.weight.shape[1],
        )

    @property
    def determinant_loss(self) -> float:
        """What the change of volume costs in epsilon, log(1 + beta/Lambda), rounded up."""
        # Lemma 1 of docs/proofs/objective.md gives the density, and Lemma 2 of
        # docs/proofs/objective.md the ratio of determinants; beta is the largest second derivative.
        beta = tilted_smoothness(self.clamp) * (1 + NORM_SLACK) ** 2
        ratio = next_up(next_up(beta) / self.strength)
        return next_up(next_up(math.log1p(ratio)))


@dataclass(frozen=True)
class ObjectiveNoises:
    """What one release draws, all of it public.

    Attributes:
        tilt: the standard deviation of each coordinate of b.
        tolerance: bound on the norm of the gradient that the solver may leave.
        scale: the standard deviation of the noise that is added to each weight at the end.
    """

    tilt: float
    tolerance: float
    scale: float

    @classmethod
    def from_budget(
        cls, constants: ProblemConstants, eps: float, delta: float
    ) -> "ObjectiveNoises":
        """Return the least noises that an (eps, delta)-private release needs.

        Args:
            constants: of the problem.
            eps: of the release.
            delta: of the release.

        Raises:
            ConfigError: 99 % of eps does not exceed the determinant's loss; the least strength is
                named.
        """
        tilt = tilt_noise(constants, eps, delta)
        root_width = math.sqrt(constants.width)
        longest_tilt = tilt * (root_width + _FAR_DEVIATIONS)
        tolerance = smallest_tolerance(
            constants.records, constants.width, constants.clamp, constants.strength, longest_tilt
        )
        # Lemma 4 of docs/proofs/objective.md: how far the weights are from the exact minimiser
        gradient_error = tolerance + root_width * step_of(tilt) / 2
        mu = gaussian_mu(SOLVER_SHARE * eps, SOLVER_SHARE * delta)
        scale = next_up(2 * gradient_error * COVER / constants.strength / mu)
        return cls(tilt, tolerance, scale)

    @property
    def described(self) -> dict[str, float]:
        """The noise by name, as ``WeightsMechanism.noise`` has it.

        ``tilt`` is that of the linear term, ``sigma`` and ``step`` are those of the noise at the
        end.
        """
        return {"sigma": self.scale, "step": step_of(self.scale), "tilt": self.tilt}


def tilt_noise(constants: ProblemConstants, eps: float, delta: float) -> float:
    """Return the standard deviation of b for an (eps, delta)-private release, rounded up.

    Args:
        constants: of the problem.
        eps: of the release, of which 99 % are for b.
        delta: of the release, of which 99 % are for b.

    Raises:
        ConfigError: 99 % of eps does not exceed the determinant's loss; the least strength is
            named.
    """
    tilt_eps = math.nextafter(eps - SOLVER_SHARE * eps, 0.0)
    tilt_delta = math.nextafter(delta - SOLVER_SHARE * delta, 0.0)
    determinant_loss = constants.determinant_loss
    if tilt_eps <= determinant_loss:
        raise ConfigError(
            f"objective perturbation at epsilon={eps:g} needs a strength of regularisation of "
            f"at least {least_strength(constants.clamp, eps):.4g}, but it is "
            f"{constants.strength:g}"
        )
    # Lemma 3 of docs/proofs/objective.md
    mu = gaussian_mu(math.nextafter(tilt_eps - determinant_loss, 0.0), tilt_delta)
    return next_up(next_up(constants.clamp * (1 + NORM_SLACK)) / mu)


def least_strength(clamp: float, eps: float) -> float:
    """Return a strength that eps allows, near the least one.

    It is a little more than the least, so that its first four digits are allowed as well.
    """
    tilt_eps = (1 - SOLVER_SHARE) * eps
    return 1.002 * tilted_smoothness(clamp) / math.expm1(tilt_eps)


def release_objective(
    erm: TiltedErm,
    constants: ProblemConstants,
    guarantee: ApproximateDP,
    source: Randomness,
    start: np.ndarray | None = None,
) -> ReleasedWeights:
    """Release the minimiser once, which spends ``guarantee``.

    Args:
        erm: the records' problem, without tilt, and of the same constants.
        constants: public.
        guarantee: of the release.
        source: SystemRandomness for a release; anything else is a simulation.
        start: [d], where the search begins; None: at 0. It does not change the guarantee.

    Returns:
        Weights [1, d], with ``ObjectiveNoises.described``.

    Raises:
        ConfigError: eps is too little for the strength, there are more records than there may be,
            or the problem is of other constants.
        AgtError: the solver missed its tolerance: nothing is released.

    Formal guarantees
        - The release is (eps, delta)-private under add_remove with one record a unit
          (docs/proofs/objective.md).
        - An error after the draw says that nothing was released; what was paid stays spent. Its
          probability is below 10^-31 whatever the data (Lemma 6 of docs/proofs/objective.md).
    """
    given = (erm.strength, erm.clamp, erm.x.shape[1])
    expected = (constants.strength, constants.clamp, constants.width)
    if given != expected or len(erm.x) > constants.records:
        raise ConfigError(
            f"{len(erm.x)} records with (strength, clamp, width) = {given} do not match the "
            f"constants of this release: {constants}"
        )
    noises = ObjectiveNoises.from_budget(constants, guarantee.eps, guarantee.delta)
    weight = draw_tilted_weights(erm, noises, constants.records, source, start)[None]
    name = ObjectivePerturbation.name
    return ReleasedWeights(weight, guarantee, noises.described, source.simulated, name)


def draw_tilted_weights(
    erm: TiltedErm,
    noises: ObjectiveNoises,
    max_records: int,
    source: Randomness,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Return [d] the weights that one release draws.

    Args:
        erm: the records' problem, without tilt.
        noises: what is drawn.
        max_records: how many records there may be, which bounds the solver's steps.
        source: SystemRandomness for a release; anything else is a simulation.
        start: [d], where the search begins; None: at 0.

    Raises:
        AgtError: the solver missed its tolerance.
    """
    width = erm.x.shape[1]
    tilt = noisy(np.zeros(width), noises.tilt, source)
    theta = solve(replace(erm, tilt=tilt), noises.tolerance, start, max_records)
    # Lemma 5 of docs/proofs/objective.md: the second noise, in sequence with the first
    return noisy(theta, noises.scale, source)


@schema
class ObjectivePerturbation(WeightsMechanism):
    """A trained head's problem, solved anew with a random linear term for each release.

    Two classes. The head's own minimiser, without the term, stays with its owner: it is where the
    search begins.

    Attributes:
        eps: of the one release.
        delta: of the one release.
        weight_decay: lambda of the problem that is solved; None: the run's own.

    Formal guarantees
        - The release is (eps, delta)-private under add_remove with one record a unit; every other
          relation, and every other loss than the logistic one, is refused.
        - Later releases draw anew, so their losses add up, and budgets may be chosen after training
          and after earlier releases.
    """

    eps: Epsilon
    delta: Delta
    weight_decay: Positive | None = None

    name: ClassVar[str] = "objective_perturbation"
    spends: ClassVar[type[ApproximateDP]] = ApproximateDP
    reads_records: ClassVar[bool] = True
    accuracy_method: ClassVar[AccuracyMethod] = AccuracyMethod("first order")
    noise_law: ClassVar[NoiseLaw] = NoiseLaw.LINEAR_TERM

    @classmethod
    def afford(cls, eps: float, delta: float) -> ApproximateDP:
        """Return the guarantee of one release that takes all of a total.

        Its eps is a little less, because a total is rounded up.
        """
        return ApproximateDP(eps * (1 - 2**-48), delta)

    @property
    def guarantee(self) -> ApproximateDP:
        """The guarantee of the one release."""
        return ApproximateDP(self.eps, self.delta)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError where no proof covers this head, or its records are not there."""
        loss = head.trained.loss
        relation = head.settings.relation
        refused = f"mechanism={cls.name}"
        head.settings.certificate.check_tilted(cls.name)
        if loss.kind != "binary":
            raise ConfigError(
                Message(
                    "{refused}: its proof only covers two classes with a binary loss, not "
                    "{kind} (there a record's gradient has no fixed direction and its Hessian "
                    "is not of rank one): train with two classes and "
                    "{config:training.loss}=binary_cross_entropy, or use "
                    "{config:mechanism=release_weights}",
                    refused=refused,
                    kind=loss.kind,
                )
            )
        is_one_unit = RELATIONS[relation.name].is_one_unit_either_way
        if not is_one_unit or relation.unit_rows != 1:
            raise ConfigError(
                Message(
                    "{refused}: its proof only covers relation=add_remove with unit_rows=1, "
                    "not relation={name} with unit_rows={unit_rows} (if several rows change "
                    "at once, the ratio of determinants grows like a power of their number, "
                    "and their gradients have no common direction): use "
                    "{config:mechanism=release_weights}",
                    refused=refused,
                    name=relation.name,
                    unit_rows=relation.unit_rows,
                )
            )
        cls.training_rows(head)  # called because it raises where the records are not there

    def noises(self, head: LinearModel) -> ObjectiveNoises:
        """Return what a release from this head draws.

        Raises:
            ConfigError: eps is too little for the weight decay; the least is named.
        """
        constants = ProblemConstants.from_head(head, self.weight_decay)
        try:
            return ObjectiveNoises.from_budget(constants, self.eps, self.delta)
        except ConfigError:
            normalizer = head.plan.normalizer
            least_decay = least_strength(constants.clamp, self.eps) / normalizer
            given_decay = constants.strength / normalizer
            raise ConfigError(
                Message(
                    "mechanism={name}: eps = {eps:g} must exceed ln(1 + beta/(weight_decay "
                    "B)) = {determinant_loss:.4g}, the part of the privacy loss that comes "
                    "from the ratio of determinants at weight_decay = {given:g}: give a "
                    "larger eps, or {config:mechanism.weight_decay}={least:.4g} or more, a "
                    "weight decay for the release only",
                    name=self.name,
                    eps=self.eps,
                    determinant_loss=constants.determinant_loss,
                    given=given_decay,
                    least=least_decay,
                )
            ) from None

    def noise(self, head: LinearModel) -> dict[str, float]:
        """Return the noise by name: ``sigma`` and ``step`` of the end, ``tilt`` of the linear term.

        Raises:
            ConfigError: eps is too little for the weight decay; the least is named.
        """
        return self.noises(head).described

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """Release weights, which spends ``guarantee`` once.

        Args:
            head: one that ``check`` takes.
            source: SystemRandomness for a release; anything else is a simulation.

        Raises:
            ConfigError: eps is too little, or the records are not there.
            AgtError: the solver missed its tolerance: nothing is released.
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
        """Return the function that gives a mechanism's expected accuracy, to first order.

        Args:
            head: one that ``check_head`` takes.
            features: [n, ...] queries, as the head takes them.
            labels: [n] their true labels.
        """
        phi = head.phi(features)
        logit_laws = cache(lambda weight_decay: expected_deviations(head, phi, weight_decay))

        def accuracy(mechanism: Self) -> float:
            mean, deviations = logit_laws(mechanism.weight_decay)
            return expected_accuracy(mean, deviations(mechanism.eps, mechanism.delta), labels, 1.0)

        return accuracy


def build_problem(head: LinearModel, constants: ProblemConstants) -> TiltedErm:
    """Return the problem of a head's training records, without tilt.

    Raises:
        ConfigError: the records are not there, more than n_max, or several of one unit.
        DataError: memory-mapped records were edited after training.
    """
    rows = ObjectivePerturbation.training_rows(head)
    records = head.problem.dataset.train.take(rows)
    features = head.over(records.features)
    return TiltedErm.from_labels(features, records.labels, constants.strength, constants.clamp)


def expected_deviations(
    head: LinearModel, phi: np.ndarray, weight_decay: float | None = None
) -> tuple[np.ndarray, Callable[[float, float], np.ndarray]]:
    """Return the law of queries' logits in a release, to first order in the noise.

    A release's minimiser is near theta - H^-1 b, H the Hessian at the minimiser theta without
    noise. So a logit moves by a normal number of variance sigma^2 |H^-1 phi|^2, and by scale^2
    |phi|^2 of the noise at the end. Both are private: for the data owner alone.

    Args:
        head: a trained head.
        phi: [n, d] features of queries.
        weight_decay: lambda of the release; None: the head's own.

    Returns:
        ([n, 1] logits without noise; (eps, delta) -> [n] their standard deviations).
    """
    constants = ProblemConstants.from_head(head, weight_decay)
    erm = build_problem(head, constants)
    start = head.trained.weight[0].numpy()
    tolerance = smallest_tolerance(
        constants.records, constants.width, constants.clamp, constants.strength, 0.0
    )
    theta = solve(erm, tolerance, start, constants.records)
    queries = phi.astype(np.float64, copy=False)
    lengths = np.linalg.norm(queries, axis=1)
    solved = cho_solve(cho_factor(erm.hessian(theta)), queries.T)
    solved_lengths = np.linalg.norm(solved, axis=0)

    def deviations(eps: float, delta: float) -> np.ndarray:
        noises = ObjectiveNoises.from_budget(constants, eps, delta)
        return np.hypot(noises.tilt * solved_lengths, noises.scale * lengths)

    return (queries @ theta)[:, None], deviations
