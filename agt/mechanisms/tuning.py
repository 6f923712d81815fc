"""Private tuning: which of several candidates' weights is released, chosen by trials whose number is random.

A trial draws a candidate uniformly from a public list, releases its weights with Gaussian noise, and scores them: on public
labelled rows, or on the private training records, with noise of its own. K trials are run, and the best one is released,
with its score. K comes from a law that looks at no data, and nobody learns it: that is what makes the price small.

Formal guarantees
    One trial Q. Its weights are mu_w-GDP (weights.py). Its score is a function of them and of public rows, or the number of
    training records that they label right, to which mu_s-GDP noise is added: a record's label under given weights is
    its own affair, to the last bit (``count_right``), so one k moves
    that number by at most the records it moves. Which candidate is drawn depends on nobody, and is released. So Q is
    mu-GDP, mu^2 = mu_w^2 + mu_s^2: for each candidate by composition, and for a public mixture of them because
    Gaussian trade-off curves are convex (Dong, Roth, Su 2022).
    K trials. Outputs are ordered by score; of equal scores the first trial's is taken, which is a uniformly random one of
    them, as trials are exchangeable given K: so let the order be total, ties broken by a number drawn apart. With f the
    generating function of K, and q(y) the probability under Q of an output of at most y, the best is y with probability
        A(y) = f(q(y)) - f(q(y-)) = Q(y) E f'(X),   X uniform between q(y-) and q(y).
    Let Q', A' belong to a neighbour. (u, v) -> u^a v^(1-a) is jointly convex, X and X' come from one uniform number, and
    q = X, q' = X' are then the probabilities under Q, Q' of one randomised event. So, for every order a > 1,
        exp((a-1) D_a(A || A')) <= P(K=0) + exp((a-1) D_a(Q || Q')) W,   W = max over events of f'(q)^a f'(q')^(1-a),
    the first term being the outcome "no trial, nothing released". Q is mu-GDP: D_a(Q || Q') <= a mu^2 / 2, and
    1 - q' <= Phi(Phi^-1(1-q) + mu). What is left is W, for each law:
      Truncated negative binomial, eta > -1, 0 < gamma < 1:  f'(x) = E[K] (gamma / (1 - (1-gamma) x))^(1+eta). With
        t = gamma + (1-gamma)(1-q), and t' from q' likewise, W = E[K] gamma^(1+eta) max t^(-a(1+eta)) t'^((a-1)(1+eta)).
        It is bounded on a grid of 1-q: between two neighbours of it, t is at least the lower one's and t' at most the
        upper one's. (Papernot and Steinke 2022, theorem 2, has t' <= (t exp(e))^(1-1/b) for a Renyi bound e at order b in
        its place, which gives (1+eta)(1-1/b) e + (1+eta) log(1/gamma) / b + log(E[K]) / (a-1): never less than this W.)
      Poisson with mean m:  f'(x) = m exp(m (x-1)), log W = log m + m max((a-1)(1-q') - a(1-q)) <= log m + (a-1) m delta,
        delta = delta(log(a / (a-1))) of mu-GDP (their theorem 6). P(K=0) = exp(-m).
    (eps, delta). max(0, 1 - exp(-x)) <= exp((a-1) x) (1-1/a)^a / (a-1) for every x, so that
        eps = D_a + log(1 - 1/a) - (log delta + log a) / (a-1)
    (Canonne, Kamath, Steinke 2020, proposition 12), the least of it over public orders a; all numbers are rounded up by
    more than they err (``UP``).
    The number of trials is drawn exactly, in integers. It must stay unknown, as must how long the trials took, which tells
    it: the guarantee is about what is released, by whoever sees that alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
from numba import njit
from pydantic import Field
from scipy.special import ndtr, ndtri

from agt.certificates.conditions import Condition
from agt.data.dataset import Records
from agt.errors import ConfigError
from agt.mechanisms.claims import Output, Release, claim
from agt.mechanisms.composition import GREATEST, LEAST, ApproximateDP, GaussianDP, largest, total
from agt.mechanisms.mechanism import Need
from agt.mechanisms.weights import ReleasedWeights, release_weights
from agt.models.linear import LinearModel
from agt.numeric import UP, Randomness, mills_delta
from agt.settings import schema

ORDERS = 1 + np.geomspace(1e-2, 1e5, 120)
SHARE = 0.1  # of mu^2 that a noised score takes, the weights taking the rest
_POINTS = 2**13  # of the grid that bounds W


@schema
class Trials:
    """The law of the number of trials.

    Attributes:
        mean: the number expected.
        eta: of the truncated negative binomial, at least one trial: 1 geometric, 0 logarithmic; None: Poisson, which may
            be none at all. (Below 0, half of the time a single trial decides, whatever the mean.)
    """

    mean: Annotated[float, Field(gt=1, le=1e3)] = 10.0
    eta: Annotated[float, Field(ge=0, le=1)] | None = 1.0

    @cached_property
    def gamma(self) -> float:
        """The truncated negative binomial's: the float whose mean is nearest to ``mean`` from above."""
        return largest(lambda gamma: self._mean(gamma) >= self.mean, 1e-12, 1 - 2**-20)

    def _mean(self, gamma: float) -> float:
        """E[K], to nearest; within a few units of the last place."""
        rest, log = 1 - gamma, math.log(gamma)
        eta = self.eta or 0.0
        return rest / (gamma * -log) if eta == 0 else eta * rest / (gamma * -math.expm1(eta * log))

    def renyi(self, mu: float) -> np.ndarray:
        """[orders] the Renyi divergence at each of ``ORDERS`` of the best of K mu-GDP trials, from above."""
        one = (ORDERS - 1) * ORDERS * mu * mu / 2
        if self.eta is None:
            leaks = np.array([mills_delta(math.log1p(1 / (order - 1)), mu) for order in ORDERS])
            worst, none = math.log(self.mean) + (ORDERS - 1) * self.mean * leaks, -self.mean
        else:
            worst, none = self._worst(mu), -math.inf
        return np.logaddexp(none, one + worst) / (ORDERS - 1) * (1 + UP) + UP

    def _worst(self, mu: float) -> np.ndarray:
        """[orders] log W of the truncated negative binomial."""
        gamma, power = self.gamma, 1 + float(self.eta or 0.0)
        outside = np.expm1(np.linspace(0, -math.log(gamma), _POINTS)) * gamma / (1 - gamma)  # 1 - q, t on a log scale
        outside[0], outside[-1] = 0.0, 1.0
        least = np.log(gamma + (1 - gamma) * outside[:-1])
        most = np.log(gamma + (1 - gamma) * ndtr(ndtri(outside[1:]) + mu))
        ends = np.array([float((-a * least + (a - 1) * most).max()) for a in ORDERS])
        return math.log(self._mean(gamma)) + power * (math.log(gamma) + ends)

    def draw(self, source: Randomness) -> int:
        """K, exactly.

        Of the negative binomial P(k) is proportional to (1-gamma)^(k-1) times the product of (l+eta) / (l+1) over l < k:
        from k = 1, end with probability gamma; else go on to k + 1 with probability (k+eta) / (k+1), and begin again
        otherwise.
        """
        if self.eta is None:
            return _poisson(Fraction(self.mean), source)
        gamma, eta, k = Fraction(self.gamma), Fraction(self.eta), 1
        while not _true(gamma, source):
            k = k + 1 if _true((eta + k) / (k + 1), source) else 1
        return k

    @property
    def words(self) -> str:
        """The law, in words."""
        if self.eta is None:
            return f"a Poisson number with mean {self.mean:g}"
        return f"a number from the truncated negative binomial (eta {self.eta:g}) with mean {self.mean:g}"


def tuned_eps(trials: Trials, mu: float, delta: float) -> float:
    """eps, rounded up, at which the best of K trials, each mu-GDP, is (eps, delta)-DP."""
    eps = trials.renyi(mu) + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(eps.min())) * (1 + UP) + UP


def trial_budget(trials: Trials, eps: float, delta: float) -> GaussianDP:
    """What one trial may spend for the best of K to be (eps, delta)-DP: rounded down.

    Raises:
        ConfigError: nothing is left for a trial.
    """
    if not 0 < delta < 1:
        raise ConfigError(f"total.delta={delta:g}: private tuning needs a delta between 0 and 1, such as 1e-5")
    if tuned_eps(trials, LEAST, delta) > eps:
        raise ConfigError(f"total.eps={eps:g} leaves nothing for a trial among {trials.words}: raise it, or expect fewer")
    return GaussianDP(largest(lambda mu: tuned_eps(trials, mu, delta) <= eps, LEAST, GREATEST))


@dataclass(frozen=True)
class TunedWeights:
    """The mechanism: the best of K trials' weights.

    Attributes:
        eps, delta: of the whole.
        trials: the law of K.
        trial: what one trial spends, weights and score together.
        private_score: trials are scored on the training records, with noise; else on public rows.
    """

    eps: float
    delta: float
    trials: Trials
    trial: GaussianDP
    private_score: bool

    name: ClassVar[str] = "release_weights"
    needs: ClassVar[Need] = "distance"

    @classmethod
    def of(cls, trials: Trials, eps: float, delta: float, private_score: bool) -> "TunedWeights":
        """For a budget in all."""
        return cls(eps, delta, trials, trial_budget(trials, eps, delta), private_score)

    @property
    def guarantee(self) -> ApproximateDP:
        """ApproximateDP."""
        return ApproximateDP(self.eps, self.delta)

    @property
    def weights(self) -> GaussianDP:
        """What the weights of one trial spend."""
        return GaussianDP(self.trial.mu * math.sqrt(1 - SHARE)) if self.private_score else self.trial

    @property
    def score(self) -> GaussianDP:
        """What the score of one trial spends, where it is private: with the weights, no more than ``trial``."""
        return GaussianDP(self.trial.mu * math.sqrt(SHARE) * (1 - UP))

    def price(self, candidates: int) -> tuple[str, ...]:
        """What tuning costs, in words."""
        alone = total(self.weights, 1, self.delta).eps
        judge = "the private training records, with noise that is charged" if self.private_score else "public rows"
        return (
            f"the settings are one of {candidates} public candidates, chosen by private tuning: the best of K trials, K "
            f"being {self.trials.words}, each of them {self.trial}, scored on {judge}",
            f"the price of choosing: in all ({self.eps:.6g}, {self.delta:.6g}); weights with this noise and nothing chosen "
            f"would be ({alone:.6g}, {self.delta:.6g})",
            "K, the trials that lost and how long it took are not released, and must not be: how long it took tells K",
        )


@dataclass(frozen=True)
class Tuned:
    """What private tuning releases.

    Attributes:
        candidate: its place in the list.
        released: the weights.
        score: the fraction of the public rows that they label right; or, with noise, the number of training records.
    """

    candidate: int
    released: ReleasedWeights
    score: float


@dataclass(frozen=True)
class Contestant:
    """A candidate.

    Attributes:
        model: its head, untrained.
        rows: what it is scored on: public rows; or its training records.
    """

    model: LinearModel
    rows: Records


def prepare_tuned(
    contestants: Sequence[Contestant],
    mechanism: TunedWeights,
    conditions: Sequence[Condition],
) -> Release[Tuned | None]:
    """The best candidate's weights. What is drawn is None where the law of K allows no trial and none was run.

    Args:
        contestants: a public list; all of one relation, about the same records.
        conditions: a to g, of all of them.

    Raises:
        ConfigError: a condition does not hold: all of them count; or the claim would be about other neighbours for one
            candidate than for another.
    """
    first = contestants[0].model.problem
    relation = first.settings.relation
    for each in contestants:
        if each.model.settings.relation != relation:
            raise ConfigError("relation: candidates of private tuning differ in it, and one claim is about one relation")
        if not each.model.problem.dataset.same_records(first.dataset):
            raise ConfigError("dataset: candidates of private tuning train on different records, and a claim is about some")
    granted = claim(conditions, relation, mechanism, output=Output.WEIGHTS)

    def draw(source: Randomness) -> Tuned | None:
        return _best_of(contestants, mechanism, source)

    return Release(granted, draw, (), None, noisy=False, price=mechanism.price(len(contestants)))


def _best_of(contestants: Sequence[Contestant], mechanism: TunedWeights, source: Randomness) -> Tuned | None:
    """K trials; the first of those with the highest score. No other leaves this function."""
    heads, best = dict[int, tuple[LinearModel, np.ndarray]](), None
    for _ in range(mechanism.trials.draw(source)):
        place = source.below(len(contestants))
        model, rows = contestants[place].model, contestants[place].rows
        if place not in heads:
            model.problem.dataset.check_unchanged()
            heads[place] = model.retrained(model.problem.dataset.train), model.phi(rows.features).astype(np.float64)
        trial = _trial(place, *heads[place], rows.labels, mechanism, source)
        if best is None or trial.score > best.score:
            best = trial
    return best


def _trial(
    place: int, model: LinearModel, phi: np.ndarray, labels: np.ndarray, mechanism: TunedWeights, source: Randomness
) -> Tuned:
    """One trial of a trained candidate, all of it charged. Args: phi, labels: of what it is scored on."""
    released = release_weights(model.trained.weight.numpy(), model.moves, mechanism.weights, source)
    right = count_right(phi, released.weight, labels)
    score = right / len(labels)
    if mechanism.private_score:
        records = float(model.trained.sensitivity.rows)
        score = float(release_weights(np.array([float(right)]), records, mechanism.score, source).weight[0])
    return Tuned(place, replace(released, guarantee=mechanism.guarantee), score)


@njit(cache=True)
def count_right(phi, weight, labels):  # type: ignore[no-untyped-def]
    """How many rows of phi [n, w] the weights [J, w] give their labels [n]; each row alone, in one order of sums: compiled
    without reassociation or contraction, as in models/features.py."""
    right = 0
    for row in range(phi.shape[0]):
        label, most = 0, -np.inf
        for j in range(weight.shape[0]):
            logit = 0.0
            for i in range(phi.shape[1]):
                logit += phi[row, i] * weight[j, i]
            if weight.shape[0] == 1:
                label = 1 if logit > 0 else 0
            elif logit > most:
                label, most = j, logit
        right += label == labels[row]
    return right


# -- exact sampling --------------------------------------------------------------------------------------------------------


def _true(probability: Fraction, source: Randomness) -> bool:
    """True with a rational probability, exactly."""
    return source.below(probability.denominator) < probability.numerator


def _poisson(mean: Fraction, source: Randomness) -> int:
    """A Poisson number: of the events of as many Poisson numbers of mean 1 as cover the mean, each one kept by chance."""
    parts = math.ceil(mean)
    events = sum(_poisson_one(source) for _ in range(parts))
    return sum(_true(mean / parts, source) for _ in range(events))


def _poisson_one(source: Randomness) -> int:
    """A Poisson number of mean 1: k with probability 2^-(k+1), kept with probability 2^k / (2 k!), at most 1."""
    while True:
        k = 0
        while source.below(2):
            k += 1
        if _true(Fraction(2**k, 2 * math.factorial(k)), source):
            return k
