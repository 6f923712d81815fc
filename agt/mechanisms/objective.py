"""Release weights that minimise the loss with a random linear term: objective perturbation
(method.md section 10).

    noises = Noises.of(Shape(...), eps, delta)     public: what is drawn, and how far it may be off
    release_objective(erm, noises, guarantee, SystemRandomness())

F(theta) = sum_i l(y_i theta.x_i) + (Lambda/2) |theta|^2 over the records, |x_i| <= 1, y_i = +-1, l
the logistic loss whose derivative is clamped to [-C, 0] (training/erm.py); Lambda = weight_decay B
and C are public. The neighbours are D and D' = D + z, z one record. One release solves F(theta) +
b.theta with a fresh b, adds a little more noise, and is rounded to a public lattice. F's own
minimiser, without b, stays with the owner: it is where the search for the next one begins.

Formal guarantees
    The exact mechanism. theta* minimises F(theta) + b.theta, b ~ N(0, sigma^2 I), beta the largest
    l''. If
        epsilon_1 > c := log(1 + beta/Lambda)    and    sigma >= C / mu(epsilon_1 - c, delta_1),
    mu exact (numeric.gaussian_mu), then theta* is (epsilon_1, delta_1)-private. Proof. b =
    B_D(theta) := -grad F_D(theta) is a bijection, Lipschitz both ways, |det| = det H_D almost
    everywhere, so theta* has density phi_sigma(B_D) det H_D.
      - Gradients of one sign. grad l_z = s x, |s| <= C, and s never changes its sign: l decreases,
        so s = -y |s|.
      - Hessians of rank one. det H_D' / det H_D = 1 + l''_z x.H_D^-1 x lies in [1, 1 +
        beta/Lambda].
      - So with a = |s| |x| / sigma in [0, m], m = C/sigma, and u = +-b.x / (sigma |x|), whose sign
        and x are fixed and which is a standard normal number under the dataset that theta* came
        from: ln p_D'/p_D <= c + a^2/2 + a u under D', and ln p_D/p_D' <= a^2/2 + a u under D. Both
        are convex in a: at most c + max(0, m^2/2 + m u), however a depends on b.
      - For epsilon >= c, delta(epsilon) = E[(1 - e^(epsilon - loss))_+] is therefore at most that
        of a mechanism that is m-GDP, at epsilon - c.
    Several rows of one unit, or a replaced record: B_D moves by s_1 x_1 + s_2 x_2, whose direction
    depends on theta, so that u is no normal number, and the ratio of determinants is a product.
    Softmax and one-against-all: z's gradient has no fixed direction, and its Hessian no rank one.
    All of these are refused (``check_head``).
    What is computed. Given theta*, whose release is the mechanism above, what the solver returns is
    a function of the data within r of it: b is drawn exactly and rounded to multiples of ``step``,
    which moves the minimiser by at most sqrt(d) step / (2 Lambda), and the gradient left at the
    end, of features as each record alone determines them, is verified to be at most ``tolerance``,
    which moves it by tolerance/Lambda. So neighbours differ by 2 r there, and N(0, scale^2 I) at
    scale >= 2 r / mu(epsilon_2, delta_2) is added to it, exactly, and rounded to a lattice
    (agt/numeric.py).
    Adaptive composition: epsilon = epsilon_1 + epsilon_2, delta = delta_1 + delta_2, the second
    being ``SHARE`` of each. A number of b beyond 2^28 sigma loses more to rounding; its
    probability, the same for all data, is below 2^-(2^50), far less than what mu is rounded down
    by. Norms up to 1 + NORM_SLACK are charged.
    No answer. ``tolerance`` is one that any data meets within a public number of iterations unless
    |b| > ``pull``, which has a probability below 10^-31 whatever the data. An error says that
    nothing was released; what was paid stays spent.
    Later releases draw b and the noise anew: each is as private as this one given all before, so
    their losses add up, and budgets may be chosen after training and after earlier releases.

Sources: Chaudhuri, Monteleoni, Sarwate (2011); Kifer, Smith, Thakurta (2012), whose sigma^2 = C^2
(8 ln(2/delta) + 4 epsilon)/epsilon^2 is far more; Redberg, Koskela, Wang (2023), twice this delta
without the sign; Iyengar et al. (2019) for the second noise.
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
from agt.training.erm import NORM_SLACK, TiltedErm, least_tolerance, smoothness, solve

SHARE = 0.01  # of epsilon and delta, for what the solver and the lattice leave
# standard deviations: the norm of d normal numbers exceeds sqrt d by so much with probability e^-72
_FAR = 12.0


@dataclass(frozen=True)
class Shape:
    """The public constants of the problem that is solved.

    Attributes:
        strength: Lambda, against the *sum* of the losses.
        clamp: C.
        records: n_max, as many as there may be.
        width: d.
    """

    strength: float
    clamp: float
    records: int
    width: int

    @classmethod
    def of(cls, head: LinearModel, weight_decay: float | None = None) -> "Shape":
        """Of a head's problem. Args: weight_decay: lambda of the release; None: the head's own."""
        trained = head.trained
        decay = trained.training.weight_decay if weight_decay is None else weight_decay
        strength = decay * trained.plan.normalizer
        return cls(strength, trained.loss.reach, trained.plan.n_max, trained.weight.shape[1])

    @property
    def determinant_loss(self) -> float:
        """c = log(1 + beta/Lambda), rounded up: what the change of volume costs, in epsilon."""
        beta = smoothness(self.clamp) * (1 + NORM_SLACK) ** 2
        return next_up(next_up(math.log1p(next_up(next_up(beta) / self.strength))))


@dataclass(frozen=True)
class Noises:
    """What one release draws, all of it public.

    Attributes:
        tilt: sigma, of each coordinate of b.
        tolerance: bound on the gradient that the solver may leave.
        scale: of each coordinate of the noise that is added at the end.
    """

    tilt: float
    tolerance: float
    scale: float

    @classmethod
    def of(cls, shape: Shape, eps: float, delta: float) -> "Noises":
        """The least noises that (eps, delta) needs.

        Raises:
            ConfigError: 99 % of eps does not exceed the determinant's loss; the least strength is
                named.
        """
        tilt = tilt_noise(shape, eps, delta)
        pull = tilt * (math.sqrt(shape.width) + _FAR)
        tolerance = least_tolerance(shape.records, shape.width, shape.clamp, shape.strength, pull)
        lost = tolerance + math.sqrt(shape.width) * step_of(tilt) / 2
        return cls(
            tilt,
            tolerance,
            next_up(2 * lost * COVER / shape.strength / gaussian_mu(SHARE * eps, SHARE * delta)),
        )

    @property
    def described(self) -> dict[str, float]:
        """As ``WeightsMechanism.noise``; ``tilt`` is that of the linear term, the rest of the
        end.
        """
        return {"sigma": self.scale, "step": step_of(self.scale), "tilt": self.tilt}


def tilt_noise(shape: Shape, eps: float, delta: float) -> float:
    """sigma of the b of an (eps, delta)-private release, rounded up.

    Raises:
        ConfigError: 99 % of epsilon does not exceed the determinant's loss; the least strength is
            named.
    """
    rest = (math.nextafter(total - SHARE * total, 0.0) for total in (eps, delta))
    (spent, leak), lost = rest, shape.determinant_loss
    if spent <= lost:
        raise ConfigError(
            f"objective perturbation at epsilon={eps:g} needs "
            f"strength={least_strength(shape.clamp, eps):.4g} or more, got "
            f"{shape.strength:g}"
        )
    mu = gaussian_mu(math.nextafter(spent - lost, 0.0), leak)
    return next_up(next_up(shape.clamp * (1 + NORM_SLACK)) / mu)


def least_strength(clamp: float, eps: float) -> float:
    """A Lambda that epsilon allows, near the least, and so that its first four digits do, too."""
    return 1.002 * smoothness(clamp) / math.expm1((1 - SHARE) * eps)


def release_objective(
    erm: TiltedErm,
    shape: Shape,
    guarantee: ApproximateDP,
    source: Randomness,
    start: np.ndarray | None = None,
) -> ReleasedWeights:
    """One release of the minimiser.

    Args:
        erm: the records, without tilt, and of the shape's constants.
        shape: public.
        source: SystemRandomness for a release; anything else is a simulation.
        start: [d], where the search begins; None: at 0.

    Returns:
        Weights [1, d], and the noise as ``Noises.described``.

    Raises:
        ConfigError: as ``tilt_noise``; more records than there may be; or a problem of another
            shape.
        AgtError: the solver missed its tolerance: nothing is released.
    """
    given = (erm.strength, erm.clamp, erm.x.shape[1])
    if given != (shape.strength, shape.clamp, shape.width) or len(erm.x) > shape.records:
        raise ConfigError(
            f"{len(erm.x)} records with (strength, clamp, width) = {given} are no problem of "
            f"{shape}"
        )
    noises = Noises.of(shape, guarantee.eps, guarantee.delta)
    weight = tilted_weights(erm, noises, shape.records, source, start)[None]
    name = ObjectivePerturbation.name
    return ReleasedWeights(weight, guarantee, noises.described, source.simulated, name)


def tilted_weights(
    erm: TiltedErm, noises: Noises, most: int, source: Randomness, start: np.ndarray | None = None
) -> np.ndarray:
    """[d] what one release draws with these noises.

    Arguments and errors as ``release_objective``, ``solve``.
    """
    tilted = replace(erm, tilt=noisy(np.zeros(erm.x.shape[1]), noises.tilt, source))
    return noisy(solve(tilted, noises.tolerance, start, most), noises.scale, source)


@schema
class ObjectivePerturbation(WeightsMechanism):
    """The mechanism that solves a trained head's problem anew with a random linear term, once for
    each release.

    Attributes:
        eps, delta: of the one release.
        weight_decay: lambda of the problem that is solved; None: the run's own.
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
        """One release's share of a total of which it is all: epsilon less what composition.py
        rounds a total up by.
        """
        return ApproximateDP(eps * (1 - 2**-48), delta)

    @property
    def guarantee(self) -> ApproximateDP:
        """ApproximateDP."""
        return ApproximateDP(self.eps, self.delta)

    @classmethod
    def check_head(cls, head: LinearModel) -> None:
        """Raise ConfigError, naming the key, where no proof covers this head or it has no
        records.
        """
        certificate, loss, relation = (
            head.settings.certificate,
            head.trained.loss,
            head.settings.relation,
        )
        refused = f"mechanism={cls.name}"
        certificate.check_tilted(cls.name)
        if loss.kind != "binary":
            raise ConfigError(
                Message(
                    "{refused}: with {kind} a record's gradient keeps no direction and its "
                    "Hessian is of no rank one, so that the proof is lost: two classes and "
                    "{config:training.loss}=binary_cross_entropy, or "
                    "{config:mechanism=release_weights}",
                    refused=refused,
                    kind=loss.kind,
                )
            )
        one_unit = RELATIONS[relation.name].is_one_unit_either_way
        if not one_unit or relation.unit_rows != 1:
            raise ConfigError(
                Message(
                    "{refused}: relation={name} with unit_rows={unit_rows}: where several "
                    "rows move at once the ratio of determinants grows like a power of "
                    "their number, and their gradients have no direction in common: only "
                    "relation=add_remove with unit_rows=1 is proved; or use "
                    "{config:mechanism=release_weights}",
                    refused=refused,
                    name=relation.name,
                    unit_rows=relation.unit_rows,
                )
            )
        cls.training_rows(head)  # called because it raises where the records are not there

    def noises(self, head: LinearModel) -> Noises:
        """What a release draws.

        Raises:
            ConfigError: epsilon is too little for the weight decay; the least is named.
        """
        shape = Shape.of(head, self.weight_decay)
        try:
            return Noises.of(shape, self.eps, self.delta)
        except ConfigError:
            size = head.plan.normalizer
            least, now = least_strength(shape.clamp, self.eps) / size, shape.strength / size
            raise ConfigError(
                Message(
                    "mechanism={name}: eps = {eps:g} has to exceed ln(1 + "
                    "beta/(weight_decay B)) = {determinant_loss:.4g}, what the change of "
                    "volume costs at weight_decay = {now:g}: give more, or "
                    "{config:mechanism.weight_decay}={least:.4g} at least, the release's own",
                    name=self.name,
                    eps=self.eps,
                    determinant_loss=shape.determinant_loss,
                    now=now,
                    least=least,
                )
            ) from None

    def noise(self, head: LinearModel) -> dict[str, float]:
        """The noise at the end, and ``tilt``, that of the linear term.

        Raises ConfigError as ``noises``.
        """
        return self.noises(head).described

    def draw(self, head: LinearModel, source: Randomness) -> ReleasedWeights:
        """The release.

        Raises AgtError where the solver misses its tolerance: nothing is released.
        """
        shape = Shape.of(head, self.weight_decay)
        erm, start = problem_of(head, shape), head.trained.weight[0].numpy()
        return release_objective(erm, shape, self.guarantee, source, start)

    @classmethod
    def expectation(
        cls,
        head: LinearModel,
        features: np.ndarray,
        labels: np.ndarray,
    ) -> Callable[[Self], float]:
        """To first order in the noise (``expected_deviations``)."""
        phi = head.phi(features)
        solved = cache(lambda weight_decay: expected_deviations(head, phi, weight_decay))

        def accuracy(mechanism: Self) -> float:
            mean, deviations = solved(mechanism.weight_decay)
            return expected_accuracy(mean, deviations(mechanism.eps, mechanism.delta), labels, 1.0)

        return accuracy


def problem_of(head: LinearModel, shape: Shape) -> TiltedErm:
    """The problem of a head's records, without tilt.

    Raises:
        ConfigError: more records than n_max, or several of one unit.
    """
    seen = head.problem.dataset.train.take(ObjectivePerturbation.training_rows(head))
    return TiltedErm.of(head.over(seen.features), seen.labels, shape.strength, shape.clamp)


def expected_deviations(
    head: LinearModel, phi: np.ndarray, weight_decay: float | None = None
) -> tuple[np.ndarray, Callable[[float, float], np.ndarray]]:
    """([n, 1] logits without noise; (eps, delta) -> [n] their standard deviations in a release), to
    first order.

    theta* is near theta - H^-1 b, H the Hessian at the noise-free minimiser theta: a logit moves by
    a normal number of variance sigma^2 |H^-1 phi|^2, and by scale^2 |phi|^2. Private: for the data
    owner alone.

    Args:
        phi: [n, d] features of queries.
        weight_decay: of the release; None: the head's own.
    """
    shape = Shape.of(head, weight_decay)
    erm, theta = problem_of(head, shape), head.trained.weight[0].numpy()
    least = least_tolerance(shape.records, shape.width, shape.clamp, shape.strength, 0.0)
    theta = solve(erm, least, theta, shape.records)
    wide = phi.astype(np.float64, copy=False)
    lengths = np.linalg.norm(wide, axis=1)
    bent = np.linalg.norm(cho_solve(cho_factor(erm.hessian(theta)), wide.T), axis=0)

    def deviations(eps: float, delta: float) -> np.ndarray:
        noises = Noises.of(shape, eps, delta)
        return np.hypot(noises.tilt * bent, noises.scale * lengths)

    return (wide @ theta)[:, None], deviations
