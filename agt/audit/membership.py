"""Membership inference: who was trained on, judged from what the model says of a record.

Scores are higher for members. phi = ln(p/(1 - p)) of the record's own label, computed from logits without rounding p to 1:
f_y - logsumexp of the other logits; of two classes it is the margin on the label's side.

| attack       | score                                                                             | needs                 |
|--------------|-----------------------------------------------------------------------------------|-----------------------|
| loss         | ln p: one threshold for all records (Yeom et al. 2018)                            | nothing               |
| lira_online  | ln N(phi; models with the record) - ln N(phi; without) (Carlini et al. 2022)      | 2 models on each side |
| lira_offline | (phi - mean)/sd of the models without the record                                  | 2 models without      |
| rmia         | share of the pool z with [p(x)/p_ref(x)] / [p(z)/p_ref(z)] >= 1 (Zarifzadeh 2024) | 1 model without       |
| labels       | how many of the record and its noisy copies keep its label (Choquette-Choo 2021)  | labels alone          |

Gaussians are each record's own where ``FEW`` models stand on either side, else their variance is pooled over all records.
RMIA is the offline one: p_ref = ((1 + A) p_out + 1 - A)/2, A = .3, p_out the mean over models without the record; z are the
records of the pool.

None of these scores is what a certificate speaks of: it speaks of labels. ``told_apart`` attacks that claim itself.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import norm

from agt.audit.findings import Finding, Outcome, Strength
from agt.audit.neighbours import retrained, without
from agt.audit.one_run import Guesses, guesses_from
from agt.audit.roc import Roc
from agt.audit.shadows import Shadows
from agt.errors import ConfigError
from agt.models.model import Model
from agt.problem import Problem

FEW = 32
A = 0.3
COPIES = 16
SPREAD = (0.1, 2.0)  # of the copies' noise, in standard deviations of the features: from the first copy to the last
RADEMACHER = 3.178 + 1e-3  # 1/(4 P(N(0, 1) >= 2^(1/2))), the least constant there is
TINY = 1e-9  # a standard deviation below it is none: models that agree to all digits


def confidences(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[..., n] phi of logits [..., n, C] and labels [n]; exact where p rounds to 0 or 1."""
    index = np.broadcast_to(labels[:, None], (*logits.shape[:-1], 1))
    chosen = np.take_along_axis(logits, index, axis=-1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, index, -np.inf, axis=-1)
    phi: np.ndarray = chosen - logsumexp(others, axis=-1)
    return phi


@dataclass(frozen=True)
class Reference:
    """What shadow models make of every record.

    Attributes:
        phi: [m, n].
        included: [m, n] bool.
    """

    phi: np.ndarray
    included: np.ndarray

    @classmethod
    def of(cls, shadows: Shadows, labels: np.ndarray) -> "Reference":
        """From the models' logits."""
        return cls(confidences(shadows.logits, labels), shadows.included)

    def but(self, *models: int) -> "Reference":
        """Without some models."""
        kept = np.delete(np.arange(len(self.phi)), models)
        return Reference(self.phi[kept], self.included[kept])

    @cached_property
    def within(self) -> "Gaussians":
        """Of the models with each record."""
        return Gaussians.of(self.phi, self.included)

    @cached_property
    def outside(self) -> "Gaussians":
        """Of those without it."""
        return Gaussians.of(self.phi, ~self.included)

    @cached_property
    def pairs(self) -> "Reference":
        """Of each half that was trained on with its complement, one after the other; a model whose other one failed has
        no pair."""
        opposite = (self.included[:-1] == ~self.included[1:]).all(axis=1)
        first = list[int]()
        for index in np.flatnonzero(opposite).tolist():
            first += [index] if not first or index > first[-1] + 1 else []
        kept = [model for index in first for model in (index, index + 1)]
        return Reference(self.phi[kept], self.included[kept])

    @property
    def with_and_without(self) -> tuple[np.ndarray, np.ndarray]:
        """[p, n] phi of the model of each pair that was trained on the record, and of the other one."""
        one, other = self.pairs.phi[::2], self.pairs.phi[1::2]
        inside = self.pairs.included[::2]
        return np.where(inside, one, other), np.where(inside, other, one)

    @property
    def least(self) -> tuple[int, int]:
        """The fewest models with a record, and without one."""
        with_it = self.included.sum(axis=0)
        return int(with_it.min(initial=len(self.phi))), int((len(self.phi) - with_it).min(initial=len(self.phi)))


@dataclass(frozen=True)
class Gaussians:
    """A normal law of phi for each record.

    Attributes:
        mean, sd: [n].
        count: [n] models behind each mean.
        pooled: whether one variance stands for all records.
    """

    mean: np.ndarray
    sd: np.ndarray
    count: np.ndarray
    pooled: bool

    @classmethod
    def of(cls, phi: np.ndarray, used: np.ndarray) -> "Gaussians":
        """Raises ConfigError: a record has fewer than two models."""
        count = used.sum(axis=0)
        if count.min(initial=2) < 2:
            raise ConfigError(too_few(len(phi)))
        mean = np.where(used, phi, 0).sum(axis=0) / count
        squares = np.where(used, (phi - mean) ** 2, 0).sum(axis=0)
        pooled = int(count.min(initial=FEW)) < FEW
        variance = np.full(len(mean), squares.sum() / (count - 1).sum()) if pooled else squares / (count - 1)
        return cls(mean, np.maximum(np.sqrt(variance), TINY), count, pooled)

    def logpdf(self, phi: np.ndarray) -> np.ndarray:
        """[n]."""
        law: np.ndarray = norm.logpdf(phi, self.mean, self.sd)
        return law


def too_few(models: int) -> str:
    """Why LiRA cannot be made."""
    return (
        "LiRA compares with two shadow models trained on each record and two that were not, at least: 4 models, and 6 to "
        f"make each of them the target in turn; there are {models}: raise audit.shadows"
    )


def loss_scores(phi: np.ndarray, reference: Reference | None = None) -> np.ndarray:
    """[n] ln p of the record's label."""
    scores: np.ndarray = log_expit(phi)
    return scores


def lira_online(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] the logarithm of the likelihood ratio."""
    return reference.within.logpdf(phi) - reference.outside.logpdf(phi)


def lira_offline(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] how many standard deviations phi lies above models without the record."""
    return (phi - reference.outside.mean) / reference.outside.sd


def rmia(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] the share of the pool that the record dominates."""
    p, out = expit(reference.phi), ~reference.included
    outside = np.where(out, p, 0).sum(axis=0) / np.maximum(out.sum(axis=0), 1)
    ratio = expit(phi) / (((1 + A) * outside + (1 - A)) / 2)
    scores: np.ndarray = np.searchsorted(np.sort(ratio), ratio, side="right") / len(ratio)
    return scores


Attack = Callable[[np.ndarray, Reference], np.ndarray]
ATTACKS: Mapping[str, Attack] = {
    "loss": loss_scores,
    "lira_online": lira_online,
    "lira_offline": lira_offline,
    "rmia": rmia,
}
"""Name -> (phi of the target [n], the shadow models) -> scores [n]."""


@dataclass(frozen=True)
class Rehearsal:
    """Each shadow model as the target in turn, judged by the others but its own complement, which would tell the answer.

    Attributes:
        scores: name -> [m, n].
        included: [m, n] bool.
    """

    scores: Mapping[str, np.ndarray]
    included: np.ndarray

    @classmethod
    def of(cls, reference: Reference) -> "Rehearsal":
        """Raises ConfigError: too few models are left."""
        scores = dict[str, list[np.ndarray]]()
        for index, phi in enumerate(reference.phi):
            opposite = np.flatnonzero((reference.included == ~reference.included[index]).all(axis=1))
            others = reference.but(index, *opposite.tolist())
            if min(others.least) < 2:
                raise ConfigError(too_few(len(reference.phi)))
            for name, attack in ATTACKS.items():
                scores.setdefault(name, []).append(attack(phi, others))
        return cls({name: np.array(rows) for name, rows in scores.items()}, reference.included)

    def rocs(self, name: str) -> list[Roc]:
        """Of each target."""
        return [Roc(row, side) for row, side in zip(self.scores[name], self.included, strict=True)]

    def threshold(self, name: str) -> float:
        """The threshold of the largest advantage over all targets: fixed before the run's own model is looked at."""
        return Roc(self.scores[name].ravel(), self.included.ravel()).best

    def right(self, name: str) -> np.ndarray:
        """[n] of how many targets that threshold says rightly whether they were trained on the record."""
        return np.sum((self.scores[name] >= self.threshold(name)) == self.included, axis=0)


def coin_guesses(reference: Reference, units: np.ndarray, guesses: int) -> Guesses:
    """Which units the first shadow model was trained on, guessed by LiRA from the others: an audit in one run.

    Each unit was in it by a fair coin of its own, and the other models, its complement left out, saw other coins: given
    the first model, guesses depend on nothing that the coins decided. So the bounds of one_run.py hold for whatever privacy
    that one training claims.

    Args:
        units: [n] whose each record is; scores of a unit's records are added.
        guesses: how many, fixed before; half of them of units that are in.
    """
    opposite = np.flatnonzero((reference.included == ~reference.included[0]).all(axis=1))
    scores = lira_online(reference.phi[0], reference.but(0, *opposite.tolist()))
    _, first, place = np.unique(units, return_index=True, return_inverse=True)
    half = guesses // 2
    return guesses_from(np.bincount(place, weights=scores), reference.included[0][first], guesses - half, half)


def spread_of(values: Iterable[float]) -> tuple[float, float]:
    """(mean, standard deviation) over targets. Limits of the mean do not follow: targets share records and judges, and half
    of them are the others' complements."""
    row = np.array(list(values))
    return float(row.mean()), float(row.std())


# -- labels alone ------------------------------------------------------------------------------------------------------


def copies(features: np.ndarray, seed: int) -> Iterable[np.ndarray]:
    """Noisy copies of the features, one after another: Gaussian noise that grows from copy to copy."""
    rng, unit = np.random.default_rng(seed), float(np.std(features))
    for spread in np.geomspace(*SPREAD, COPIES):
        noise = rng.normal(size=features.shape).astype(features.dtype)
        yield features + noise * features.dtype.type(spread * unit)


def label_scores(
    answer: Callable[[np.ndarray], np.ndarray], features: np.ndarray, labels: np.ndarray, seed: int
) -> np.ndarray:
    """[n] how many of the record and its noisy copies are given its label; a record that is not counts its copies last.

    Args:
        answer: features -> [n] labels, nominal or released: every query is asked once.
    """
    right = (answer(features) == labels) * (COPIES + 1)
    for copy in copies(features, seed):
        right += answer(copy) == labels
    return right.astype(np.float64)


@dataclass(frozen=True)
class Apart:
    """What labels told of pairs of trainings, with and without one unit.

    Attributes:
        pairs: units left out, one at a time.
        queries: asked of each pair, certified ones alone.
        told: (unit, query's number) whose label differed.
    """

    pairs: int
    queries: int
    told: tuple[tuple[str, int], ...]


def told_apart(
    model: Model,
    problem: Problem,
    units: np.ndarray,
    features: np.ndarray,
    distance: np.ndarray,
    again: Callable[[Problem, np.ndarray], Model] | None = None,
) -> Apart:
    """Ask both worlds, with and without each of some units, for labels that are certified for one unit.

    A certificate of distance 1 or more says that they agree. Then whatever an attack makes of these labels it makes of both
    worlds alike, and its advantage at guessing which one it sees is exactly 0.

    Args:
        units: to leave out, one at a time, with all of their rows.
        features, distance: [n, ...] queries, and their stable distances.
        again: (problem, rows to leave out) -> the model without them; None: trained again by the run's own constants.
    """
    again = again or (lambda problem, rows: retrained(problem, without(problem.dataset.train, rows), (0,)))
    asked = features[distance >= 1]
    if not len(asked):
        return Apart(0, 0, ())
    labels, places, train = model.predict(asked), np.flatnonzero(distance >= 1), problem.dataset.train
    told = []
    for unit in units.tolist():
        other = again(problem, np.flatnonzero(train.units == unit)).predict(asked)
        told += [(str(unit), int(places[row])) for row in np.flatnonzero(other != labels)]
    return Apart(len(units), len(asked), tuple(told))


def labels_finding(apart: Apart | None, ids: np.ndarray, distance: np.ndarray, why: str = "") -> Finding:
    """What labels at certified queries told; without pairs, why there are none.

    Args:
        ids, distance: [n] of all queries, certified or not.
    """
    blank = Finding(
        subject="labels at certified queries",
        claim="certified queries' labels do not tell whether a unit was trained on: any attack on them has advantage 0",
        attack="the same queries asked of trainings with and without a unit: the most exposed ones, and random ones",
        effort="none",
        outcome=Outcome.UNTESTED,
        meaning=why,
        measure="labels that differ",
        claimed=0.0,
        strength=Strength.CERTAIN,
    )
    if apart is None:
        return blank
    count, uncertified = apart.pairs * apart.queries, int((distance < 1).sum())
    meaning = f"all {count:,} labels were the same: advantage exactly 0 on these pairs"
    if apart.told:
        unit, place = apart.told[0]
        meaning = f"{len(apart.told)} of {count:,} labels differed, the first at query {ids[place]} without unit {unit}"
    return replace(
        blank,
        effort=f"{apart.pairs} units left out in turn, {apart.queries:,} certified queries asked of each pair",
        outcome=Outcome.VIOLATED if apart.told else Outcome.STANDS,
        meaning=meaning,
        found=float(len(apart.told)),
        noticeable=f"one label that differs; {uncertified} uncertified queries were not asked about",
    )


# -- the most exposed --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exposure:
    """How exposed each of some records is to LiRA.

    Whether a record was in a shadow model was a fair coin of its unit, whatever else was in it: what it does to phi is an
    experiment, free of every other difference between members and non-members, and of the sizes of halves.

    Attributes:
        score: [n] ln of the likelihood ratio, online, of the model that is audited.
        error: [n] its standard error from the means' uncertainty (asymptotic).
        shift: [n] by how many standard deviations training on the record raises phi, on average over shadow models.
        shift_error: [n] its standard error.
        chance: [n] such a shift is by chance alone at most so likely.
        adjusted: [n] the same, times the number of records that were looked at (Bonferroni), at most 1.

    Formal guarantees
        Models come in pairs, one on a half of the units and one on all others, and are far from independent of each other:
        what the other records do to one they do to the other with the opposite sign. So all errors here are of pairs, which
        are independent. Let d be phi of the pair's model with the record less phi of its model without. If training on the
        unit does nothing to phi, then which of the two models had it is a fair coin of its own beside everything that both
        phi depend on: given |d| of all pairs, the signs of d are fair coins, whatever the law of phi. So S, the sum of d
        over the root of the sum of its squares, is a sum of fair signs with weights whose squares add up to 1, and
        P(S >= x) <= ``RADEMACHER`` P(N(0, 1) >= x) for every x (Bentkus and Dzindzalieta 2015): that is ``chance``, at any
        number of pairs.
    """

    score: np.ndarray
    error: np.ndarray
    shift: np.ndarray
    shift_error: np.ndarray
    chance: np.ndarray
    adjusted: np.ndarray

    @classmethod
    def of(cls, phi: np.ndarray, reference: Reference, looked_at: np.ndarray) -> "Exposure":
        """Args: looked_at: [n] bool, the records that compete for being the most exposed.

        Raises ConfigError: fewer than two pairs of models."""
        reference = reference.pairs
        having, lacking = reference.with_and_without
        if len(having) < 2:
            raise ConfigError(too_few(len(reference.phi)))
        within, outside = reference.within, reference.outside
        pulls = ((phi - law.mean) / law.sd**2 for law in (within, outside))
        moved = (pull * (side - side.mean(axis=0)) for pull, side in zip(pulls, (having, lacking), strict=True))
        error = _error_of_mean(next(moved) - next(moved))
        squares = (having - within.mean) ** 2 + (lacking - outside.mean) ** 2
        sd = np.maximum(np.sqrt(squares.sum(axis=0) / (2 * len(having) - 2)), TINY)
        difference = (having - lacking) / sd
        weight = np.maximum(np.sqrt((difference**2).sum(axis=0)), TINY)
        chance = np.minimum(1.0, RADEMACHER * norm.sf(difference.sum(axis=0) / weight))
        adjusted = np.minimum(1.0, chance * max(1, int(looked_at.sum())))
        shift, shift_error = difference.mean(axis=0), _error_of_mean(difference)
        return cls(lira_online(phi, reference), error, shift, shift_error, chance, adjusted)


def _error_of_mean(rows: np.ndarray) -> np.ndarray:
    """[n] standard error of the mean of [p, n] independent rows."""
    error: np.ndarray = rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
    return error


def upside_down(roc: Roc, confidence: float) -> bool:
    """Whether scores are surely higher for non-members: an area whose upper limit is below a half, and itself below .45."""
    return roc.area < 0.45 and roc.area_limits(confidence)[1] < 0.5


def fewest(rate: float, others: int) -> str:
    """A caveat where there are too few non-members for a rate of false alarms; empty: there are enough."""
    least = math.ceil(1 / rate)
    return "" if others >= least else f"{others} non-members are too few for {100 * rate:g} %: it takes {least:,} or more"
