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

Gaussians are each record's own where 32 models stand on either side, else their variance is pooled over all records.
RMIA is the offline one: p_ref = ((1 + A) p_out + 1 - A)/2, A = .3, p_out the mean over models without the record; z are the
records of the pool.

None of these scores is what a certificate speaks of: it speaks of labels. ``compare_labels`` attacks that claim itself.
``Roc`` says how well scores tell members from non-members: the curve, its area, rates at few false alarms, each with its
confidence. It is exact in ties: records of one score are called alike. A member is called one at or above a threshold.

    memorisation of j       P(h(x_j) = y_j | j in S) - P(h(x_j) = y_j | j not in S)
    influence of i on t     P(h(x_t) = y_t | i in S, t not in S) - P(h(x_t) = y_t | i not in S, t not in S)

over the draw of the subset S that h is trained on (Feldman 2020; Feldman and Zhang 2020). Both are a ``Contrast``: of the
models with a record and of those without it, how many are right. Left out one at a time, with everything else as it is,
memorisation is 0 wherever the label is certified (stable distance 1 or more): that is a claim.

Formal guarantees
    ``Roc.at``: the threshold is a function of the non-members' scores alone. Members are drawn apart from them, so given
    the threshold the number of members above it is binomial, and its Clopper-Pearson limits hold as they stand. (Records of
    one training are taken for independent draws of one population, given the model.)
    ``Roc.area_limits``: DeLong et al. 1988: asymptotic. A few records, or ones that are nearly all tied, may show no
    variance where there is some: each side is counted with two records more, one that is placed best and one worst, as
    Agresti and Coull do for a rate. That changes nothing in the limit; in simulations of 1 to 100 records a side, tied or
    not, the area was missed at most about as often as it may be. Where the sample separates perfectly, members and
    non-members are paired off, each in one pair: as many independent pairs as the smaller side has, all in order, which
    Clopper-Pearson bounds at any number of records.
    Let whether j is in S be drawn independently of the other records (each unit by a fair coin), and models be
    independent, or paired on both halves of one draw. Given which models have j, those that have it are independent draws
    of h given j in S, and those without it likewise; a pair has one of each. So each count is binomial, the difference of
    the shares has the contrast for its mean, and each share lies within its Clopper-Pearson limits but with the error
    probability given to them: a union bound, whether or not the two counts depend on each other. ``bounds`` shares the
    error among both ends of both shares, and among all contrasts that are looked at. ``error``, a standard error, takes
    the counts for independent, which within pairs they need not be.
    The diagonal. A record's influence on its own answer is its memorisation, and no influence: t's answer is asked only of
    models without t, none of which has t, so that pair is undefined, and never among ``strongest``.

Sources: as in the table; DeLong, DeLong and Clarke-Pearson 1988; Agresti and Coull 1998; Sun and Xu 2014 (midranks).

Shadow models: many models of a run's own making on random halves of its records, for attacks that compare with them.

A pool holds the records that the run was trained on, and its test records as ones that it has never seen. Model 2 p is
trained on the units whose keyed hash of pair p says so, model 2 p + 1 on all others: a record is in exactly half of the
models, all rows of a unit share their side, and which side is a fair coin for each unit, whatever the others'. Public
training records are in every model and are not attacked.

Settings are the run's own, but for sizes: declared size, normaliser and n_max are brought to the share of the run's records
that half a pool is; what the run left to the recipe is settled for that size, too. Boxes are carried for k = 0 alone: the
nominal model does not depend on them. A run that draws noise draws anew for each model, unless its noise has a seed.

    FOLDER/KEY/about.json                              what KEY is made of
    FOLDER/KEY/model=0017.<sha256>.safetensors         "logits" [n, C] of model 17 on the pool

KEY stands for everything that a model's bits depend on: records, settings, code, machine, one thread. A file appears whole
or not at all and has its own hash in its name: whoever finds it, later or at the same time, uses it, and trains only what
is missing. A damaged file is thrown away and its model trained again.

Source: Carlini et al. 2022, Membership Inference Attacks From First Principles (halves, and their pairs).
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from joblib import Parallel, delayed
from pydantic import Field
from safetensors.torch import load, save
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import norm, rankdata

from agt.audit.estimates import Mistakes, lower_limit, upper_limit
from agt.audit.findings import Finding, counterexamples
from agt.audit.neighbours import Edited, neighbours_of, with_added
from agt.data.dataset import Dataset, Records, fingerprint, keyed_hash, remix
from agt.errors import AgtError, CheckError, ConfigError, first_line
from agt.models.model import Model, fit, made_by
from agt.numeric import COVER
from agt.problem import Problem
from agt.settings import KGridConfig, TrainingConfig, default_n_max, plain_of, schema
from agt.store import as_json, write_atomic
from agt.training.ensemble import aligned, worker_processes

MODELS_FOR_OWN_VARIANCE = 32  # on either side of a record; fewer, and one variance is pooled over all records
A = 0.3  # of RMIA
COPIES = 16
SPREAD = (0.1, 2.0)  # of the copies' noise, in standard deviations of the features: from the first copy to the last
TINY = 1e-9  # a standard deviation below it is none: models that agree to all digits
TARGETS_AT_ONCE = 64  # whose influences are worked out


# -- curves ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RocPoint:
    """What one threshold does.

    Attributes:
        threshold: at or above which a record is called a member.
        mistakes: counts of both sides.
        confidence: of the limits, each pair of them by itself.
    """

    threshold: float
    mistakes: Mistakes
    confidence: float

    @property
    def found(self) -> int:
        """Members called so."""
        return self.mistakes.having - self.mistakes.misses

    @property
    def tpr(self) -> float:
        """The share of members that are called so."""
        return self.found / self.mistakes.having

    @property
    def fpr(self) -> float:
        """The share of non-members that are called members."""
        return self.mistakes.alarms / self.mistakes.without

    @property
    def tpr_limits(self) -> tuple[float, float]:
        """Clopper-Pearson."""
        return _limits(self.found, self.mistakes.having, self.confidence)

    @property
    def advantage_limits(self) -> tuple[float, float]:
        """Of a threshold that was fixed before: each rate's Clopper-Pearson limit at half the error probability."""
        half = (1 + self.confidence) / 2
        tpr = _limits(self.found, self.mistakes.having, half)
        fpr = _limits(self.mistakes.alarms, self.mistakes.without, half)
        return tpr[0] - fpr[1], tpr[1] - fpr[0]


@dataclass(frozen=True)
class Roc:
    """Scores of members and non-members.

    Attributes:
        scores: [n] finite or infinite; higher: rather a member.
        member: [n] bool.

    Raises:
        ConfigError: no members, no non-members, or a score that is NaN.
    """

    scores: np.ndarray
    member: np.ndarray

    def __post_init__(self) -> None:
        if np.isnan(self.scores).any():
            raise ConfigError("a score is NaN")
        if not self.member.any() or self.member.all():
            there = "members" if self.member.any() else "non-members" if len(self.member) else "records"
            raise ConfigError(f"a curve needs members and non-members, and there are only {there}: nothing to compare")

    @cached_property
    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        return np.sort(self.scores[self.member]), np.sort(self.scores[~self.member])

    @cached_property
    def curve(self) -> np.ndarray:
        """[T + 1, 3] (threshold, false alarms, members found), counts, at every distinct score; first (inf, 0, 0)."""
        having, without = self._sides
        levels = np.unique(self.scores)[::-1]
        counts = [len(side) - np.searchsorted(side, levels, side="left") for side in (without, having)]
        return np.vstack([[math.inf, 0, 0], np.stack([levels, *counts], axis=1)])

    @cached_property
    def area(self) -> float:
        """The probability that a member's score is above a non-member's, ties counted half."""
        above, _ = self._placements
        return float(above.mean())

    def area_limits(self, confidence: float) -> tuple[float, float]:
        """Of the area, two-sided."""
        above, below = self._placements
        if self.area in (0.0, 1.0):
            pairs = min(len(above), len(below))
            return _limits(round(self.area * pairs), pairs, confidence)
        spread = sum(np.append(part, (0, 1)).var(ddof=1) / len(part) for part in (above, below))
        reach = float(norm.ppf((1 + confidence) / 2)) * math.sqrt(spread)
        return max(0.0, self.area - reach), min(1.0, self.area + reach)

    @cached_property
    def _placements(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each member, the share of non-members below it; of each non-member, the share of members above it."""
        having, without = self._sides
        ranks = rankdata(np.concatenate([having, without]))
        above = (ranks[: len(having)] - rankdata(having)) / len(without)
        below = 1 - (ranks[len(having) :] - rankdata(without)) / len(having)
        return above, below

    def at(self, rate: float, confidence: float) -> RocPoint:
        """The lowest threshold whose share of false alarms among the non-members here is at most ``rate``."""
        allowed = self.curve[self.curve[:, 1] <= rate * len(self._sides[1])]
        return self.beyond(float(allowed[-1, 0]), confidence)

    def beyond(self, threshold: float, confidence: float) -> RocPoint:
        """At a threshold that was fixed before."""
        having, without = (len(side) - int(np.searchsorted(side, threshold)) for side in self._sides)
        members, others = map(len, self._sides)
        return RocPoint(threshold, Mistakes(without, others, members - having, members), confidence)

    @property
    def best(self) -> float:
        """The threshold of the largest advantage here: to be used on other records than these."""
        members, others = map(len, self._sides)
        gain = self.curve[:, 2] / members - self.curve[:, 1] / others
        return float(self.curve[int(gain.argmax()), 0])


def _limits(events: int, trials: int, confidence: float) -> tuple[float, float]:
    """Two-sided Clopper-Pearson."""
    error = (1 - confidence) / 2
    return lower_limit(events, trials, error), upper_limit(events, trials, error)


# -- scores ------------------------------------------------------------------------------------------------------------


def confidences(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[..., n] phi of logits [..., n, C] and labels [n]; exact where p rounds to 0 or 1."""
    index = np.broadcast_to(labels[:, None], (*logits.shape[:-1], 1))
    chosen = np.take_along_axis(logits, index, axis=-1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, index, -np.inf, axis=-1)
    return chosen - logsumexp(others, axis=-1)


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
    def of(cls, shadows: "Shadows", labels: np.ndarray) -> "Reference":
        """From the models' logits."""
        return cls(confidences(shadows.logits, labels), shadows.included)

    def but(self, *models: int) -> "Reference":
        """Without some models."""
        kept = np.delete(np.arange(len(self.phi)), models)
        return Reference(self.phi[kept], self.included[kept])

    @cached_property
    def within(self) -> tuple[np.ndarray, np.ndarray]:
        """``gaussians`` of the models with each record."""
        return gaussians(self.phi, self.included)

    @cached_property
    def outside(self) -> tuple[np.ndarray, np.ndarray]:
        """Of those without it."""
        return gaussians(self.phi, ~self.included)

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


def gaussians(phi: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """([n] mean, [n] standard deviation) of phi [m, n] over the models used for each record [m, n].

    Raises:
        ConfigError: a record has fewer than two models.
    """
    count = used.sum(axis=0)
    if count.min(initial=2) < 2:
        raise ConfigError(too_few(len(phi)))
    mean = np.where(used, phi, 0).sum(axis=0) / count
    squares = np.where(used, (phi - mean) ** 2, 0).sum(axis=0)
    pooled = int(count.min(initial=MODELS_FOR_OWN_VARIANCE)) < MODELS_FOR_OWN_VARIANCE
    variance = np.full(len(mean), squares.sum() / (count - 1).sum()) if pooled else squares / (count - 1)
    return mean, np.maximum(np.sqrt(variance), TINY)


def too_few(models: int) -> str:
    """Why LiRA cannot be made."""
    return (
        "LiRA compares with two shadow models trained on each record and two that were not, at least: 4 models, and 6 to "
        f"make each of them the target in turn; there are {models}: raise audit.shadows"
    )


def loss_scores(phi: np.ndarray, reference: Reference | None = None) -> np.ndarray:
    """[n] ln p of the record's label."""
    return log_expit(phi)


def lira_online(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] the logarithm of the likelihood ratio."""
    return norm.logpdf(phi, *reference.within) - norm.logpdf(phi, *reference.outside)


def lira_offline(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] how many standard deviations phi lies above models without the record."""
    mean, sd = reference.outside
    return (phi - mean) / sd


def rmia(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """[n] the share of the pool that the record dominates."""
    p, out = expit(reference.phi), ~reference.included
    outside = np.where(out, p, 0).sum(axis=0) / np.maximum(out.sum(axis=0), 1)
    ratio = expit(phi) / (((1 + A) * outside + (1 - A)) / 2)
    return np.searchsorted(np.sort(ratio), ratio, side="right") / len(ratio)


ATTACKS: Mapping[str, Callable[[np.ndarray, Reference], np.ndarray]] = {
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


def compare_labels(
    model: Model, units: np.ndarray, features: np.ndarray, distance: np.ndarray, ids: np.ndarray, why: str = ""
) -> Finding:
    """Ask both worlds, with and without each of some units, for labels that are certified for one unit.

    A certificate of distance 1 or more says that they agree. Then whatever an attack makes of these labels it makes of both
    worlds alike, and its advantage at guessing which one it sees is exactly 0.

    Args:
        units: to leave out, one at a time, with all of their rows.
        features, distance, ids: [n, ...] queries, their stable distances and names.
        why: no units can be left out; empty: they can.
    """
    train, held = model.problem.dataset.train, distance >= 1
    found, effort, meaning = None, "none", why or "no pair was compared"
    if not why and held.any() and len(units):
        labels, differ = model.predict(features), list[tuple[str, int]]()
        edits = [Edited(train, np.flatnonzero(train.units == unit)) for unit in units.tolist()]
        for unit, other in zip(units.tolist(), neighbours_of(model, edits), strict=True):
            if isinstance(other, AgtError):
                raise other
            differ += [(unit, int(row)) for row in np.flatnonzero(other.predict(features) != labels)]
        broken = [(unit, row) for unit, row in differ if held[row]]
        count, others = (len(units) * int(side.sum()) for side in (held, ~held))
        effort = f"{len(units)} units left out in turn, {held.sum():,} certified queries asked of each pair"
        found, meaning = float(len(broken)), f"all {count:,} labels were the same: advantage exactly 0 on these pairs"
        if broken:
            unit, row = broken[0]
            meaning = f"{len(broken)} of {count:,} labels differed, the first at query {ids[row]} without unit {unit}"
        meaning += f"; of uncertified queries {len(differ) - len(broken):,} of {others:,} differed, each of which tells"
    return counterexamples(
        "labels at certified queries",
        "certified queries' labels do not tell whether a unit was trained on: any attack on them has advantage 0",
        "the same queries asked of trainings with and without a unit: the most exposed ones, and random ones",
        effort, "labels that differ", found, meaning, "one label that differs; of uncertified queries nothing is claimed",
    )  # fmt: skip


# -- the most exposed --------------------------------------------------------------------------------------------------


def exposure(phi: np.ndarray, reference: Reference) -> dict[str, np.ndarray]:
    """How exposed each record is to LiRA: columns by name, [n] each.

    Whether a record was in a shadow model was a fair coin of its unit, whatever else was in it: what it does to phi is an
    experiment, free of every other difference between members and non-members, and of the sizes of halves.

    Returns:
        score_lira: ln of the likelihood ratio, online, of the model that is audited; standard_error: from the means'
        uncertainty (asymptotic). shift: by how many standard deviations training on the record raises phi, on average over
        shadow models; shift_error: its standard error.

    Raises:
        ConfigError: fewer than two pairs of models.

    Formal guarantees
        Models come in pairs, one on a half of the units and one on all others, and are far from independent of each other:
        what the other records do to one they do to the other with the opposite sign. So all errors here are of pairs, which
        are independent.
    """
    reference = reference.pairs
    having, lacking = reference.with_and_without
    if len(having) < 2:
        raise ConfigError(too_few(len(reference.phi)))
    laws = (reference.within, reference.outside)
    pulls = ((phi - mean) / sd**2 for mean, sd in laws)
    moved = (pull * (side - side.mean(axis=0)) for pull, side in zip(pulls, (having, lacking), strict=True))
    error = _error_of_mean(next(moved) - next(moved))
    squares = (having - laws[0][0]) ** 2 + (lacking - laws[1][0]) ** 2
    sd = np.maximum(np.sqrt(squares.sum(axis=0) / (2 * len(having) - 2)), TINY)
    difference = (having - lacking) / sd
    return {
        "score_lira": lira_online(phi, reference),
        "standard_error": error,
        "shift": difference.mean(axis=0),
        "shift_error": _error_of_mean(difference),
    }


def _error_of_mean(rows: np.ndarray) -> np.ndarray:
    """[n] standard error of the mean of [p, n] independent rows."""
    return rows.std(axis=0, ddof=1) / math.sqrt(len(rows))


def fewest(rate: float, others: int) -> str:
    """A caveat where there are too few non-members for a rate of false alarms; empty: there are enough."""
    least = math.ceil(1 / rate)
    return "" if others >= least else f"{others} non-members are too few for {100 * rate:g} %: it takes {least:,} or more"


# -- memorisation and influence ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """How many of the models with a record, and of those without it, are right; arrays of one shape.

    Attributes:
        right_with, having: right ones of those with it; how many these are.
        right_without, without: the same of those without it.
    """

    right_with: np.ndarray
    having: np.ndarray
    right_without: np.ndarray
    without: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """The difference of the shares; NaN where no model has the record, or all have it."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.right_with / self.having - self.right_without / self.without

    @property
    def error(self) -> np.ndarray:
        """Standard errors of the values; infinite for a share of fewer than two models."""

        def variance(right: np.ndarray, count: np.ndarray) -> np.ndarray:
            share = right / np.maximum(count, 1)
            return np.where(count > 1, share * (1 - share) / np.maximum(count - 1, 1), np.inf)

        return np.sqrt(variance(self.right_with, self.having) + variance(self.right_without, self.without))

    def bounds(self, confidence: float, looks: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(least, greatest) contrasts; all that are looked at lie between theirs with this confidence."""
        error = (1 - confidence) / looks / 4
        sides = (self.right_with, self.having, error), (self.right_without, self.without, error)
        (low, low_without), (high, high_without) = (
            [limit(*side) for side in sides] for limit in (lower_limit, upper_limit)
        )
        return low - high_without, high - low_without

    def take(self, places: np.ndarray) -> "Contrast":
        """Those at some places of the flattened arrays."""
        parts = (self.right_with, self.having, self.right_without, self.without)
        return Contrast(*(part.ravel()[places] for part in parts))


def needed(records: int, confidence: float) -> int:
    """How many models each record must be in, and as many out of, for a bound above 0 to be possible."""
    return math.floor(math.log2(4 * records / (1 - confidence))) + 1


def memorisation(included: np.ndarray, right: np.ndarray) -> Contrast:
    """Of each record.

    Args:
        included: [m, n] bool, which model was trained on which record.
        right: [m, n] bool, which model gives a record its own label.
    """
    having = included.sum(axis=0)
    return Contrast((included & right).sum(axis=0), having, (~included & right).sum(axis=0), len(included) - having)


def influence(included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray) -> Contrast:
    """[len(sources), len(targets)] of each source on each target, asked of the models without the target.

    Args:
        included, right: as for ``memorisation``.
        sources, targets: places of records.
    """
    had, absent = included[:, sources].astype(np.float32), ~included[:, targets]
    hits = (absent & right[:, targets]).astype(np.float32)
    asked = absent.astype(np.float32)
    right_with, having = had.T @ hits, had.T @ asked
    return Contrast(right_with, having, hits.sum(axis=0) - right_with, asked.sum(axis=0) - having)


def strongest(
    included: np.ndarray, right: np.ndarray, sources: np.ndarray, targets: np.ndarray, count: int
) -> tuple[np.ndarray, Contrast]:
    """([p, 2] places of source and target, their contrasts): the pairs of greatest influence, the greatest first."""
    best: list[tuple[float, int, int, Contrast]] = []
    for start in range(0, len(targets), TARGETS_AT_ONCE):
        block = targets[start : start + TARGETS_AT_ONCE]
        contrast = influence(included, right, sources, block)
        values = np.nan_to_num(contrast.value, nan=-np.inf).ravel()
        for place in np.argpartition(-values, min(count, len(values) - 1))[:count].tolist():
            if np.isfinite(values[place]):
                at = sources[place // len(block)], block[place % len(block)]
                best.append((float(values[place]), int(at[0]), int(at[1]), contrast.take(np.array([place]))))
    best.sort(key=lambda pair: -pair[0])
    best = best[:count]
    parts = [(c.right_with, c.having, c.right_without, c.without) for *_, c in best]
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.empty(0)] * 4
    return np.array([(i, t) for _, i, t, _ in best], dtype=np.int64).reshape(-1, 2), Contrast(*joined)


# -- shadow models ------------------------------------------------------------------------------------------------------

SHADOWS = "shadows"  # below output_dir: where they are kept
FORMAT = 1
TURNS = 4  # tasks of each process: few, as each carries all records, and enough that none waits long for another
Failure = tuple[int, str]


@schema
class ShadowConfig:
    """How many shadow models, and how they are trained.

    Attributes:
        models: m, an even number: half of them are trained on each record.
        seed: of the hashes that deal units to models.
        workers: processes at once, each of one thread; None: as many as there are processors. It changes speed alone.
    """

    models: Annotated[int, Field(ge=2, le=4096, multiple_of=2)] = 64
    seed: Annotated[int, Field(ge=0)] = 0
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None


@dataclass(frozen=True)
class Pool:
    """The records that shadow models are trained on, and whether the run was.

    Attributes:
        records: n of them, ids unique.
        member: [n] bool, True where the run was trained on the record.
        always: public training records, part of every training.
    """

    records: Records
    member: np.ndarray
    always: Records

    @classmethod
    def of(cls, dataset: Dataset) -> "Pool":
        """Private training records, then test records; without those of the latter whose record or unit was trained on."""
        dataset.check_unchanged()
        train, test = dataset.train, dataset.test
        private = train.take(~train.public)
        new = ~(np.isin(test.ids, train.ids) | np.isin(test.units, train.units))
        others = test.take(new)
        both = with_added(private, replace(others, public=np.zeros(len(others), dtype=bool)))
        member = np.arange(len(both)) < len(private)
        return cls(both, member, train.take(train.public))

    def __len__(self) -> int:
        return len(self.records)

    def sides(self, config: ShadowConfig) -> np.ndarray:
        """[m, n] bool: which model is trained on which record."""
        hashes = keyed_hash(self.records.units, f"shadow/{config.seed}")
        coins = np.array([remix(hashes, pair) >> np.uint64(63) == 1 for pair in range(config.models // 2)])
        return np.stack([coins, ~coins], axis=1).reshape(config.models, len(self))


@dataclass(frozen=True)
class Shadows:
    """What m shadow models say of n records.

    Attributes:
        included: [m, n] bool, whether a model was trained on a record.
        logits: [m, n, C] float64, up to a constant of each row.
        failed: (number of the model, why) of those that could not be trained; they have no row above.
        reused: how many were there already.
    """

    included: np.ndarray
    logits: np.ndarray
    failed: tuple[Failure, ...] = ()
    reused: int = 0

    def __len__(self) -> int:
        return len(self.included)


def class_logits(model: Model, features: np.ndarray) -> np.ndarray:
    """[n, C] float64 of any model, up to a constant of each row; of an ensemble, shares of votes stand for them.

    Of two classes (0, margin); of more, each logit less the greatest.
    """
    margins = np.asarray(model.margins(features), dtype=np.float64)
    return np.stack([np.zeros_like(margins[0]), margins[0]], axis=1) if len(margins) == 1 else np.minimum(margins, 0).T


def train_shadows(
    problem: Problem,
    pool: Pool,
    config: ShadowConfig,
    folder: Path,
    on_done: Callable[[int], None] = lambda done: None,
) -> Shadows:
    """Train what is not there yet, several processes at once, and read all of it.

    Args:
        problem: of the run, with its dataset.
        folder: of all shadow models; those of these settings lie in a folder of their own inside.
        on_done: called with the number of models that are there or have failed.

    Raises:
        CheckError: every model failed; names the first reason.
        OSError: a file cannot be written.
    """
    half, sides = halved(problem, pool), pool.sides(config)
    home = folder / shadow_key(half, pool, config)
    there = {index: logits for index in range(config.models) if (logits := _stored(home, index)) is not None}
    missing = [index for index in range(config.models) if index not in there]
    on_done(len(there))
    failures = dict[int, str]()
    for count, (index, why) in enumerate(_trained(half, pool, sides, missing, config, home), start=len(there) + 1):
        on_done(count)
        logits = None if why else _stored(home, index)
        if logits is None:
            failures[index] = why or "its file was damaged as soon as it was written"
        else:
            there[index] = logits
    if not there:
        raise CheckError(f"all {config.models} shadow models failed; the first: {failures[min(failures)]}")
    kept = sorted(there)
    reused = config.models - len(missing)
    return Shadows(sides[kept], np.stack([there[index] for index in kept]), tuple(sorted(failures.items())), reused)


def halved(problem: Problem, pool: Pool) -> Problem:
    """The run's problem for half of the pool: constants that count records are brought to that share."""
    settings, dataset = problem.settings, problem.dataset
    share = (len(pool) / 2 + len(pool.always)) / problem.trained_on
    size = None if dataset.declared_size is None else dataset.declared_size * share
    compute = replace(settings.compute, threads=1, device="cpu", checkpoint_seconds=0)
    training = _scaled(problem, share)
    smaller = replace(settings, training=training, compute=compute, kgrid=KGridConfig(values=(0,)))
    return replace(problem, settings=smaller).on(dataset.bare.with_shard(dataset.bare.train, size))


def _scaled(problem: Problem, share: float) -> TrainingConfig:
    """Batches of a share of the records. n_max keeps its ratio to B: the learning rates that the proofs allow follow it."""
    training = problem.settings.training
    batch, plan = training.batch, problem.plan
    size = plan.normalizer / problem.settings.ensemble.members
    n_max = None
    if batch.n_max is not None or "lr" not in training.by_recipe:
        crowd = (batch.n_max or default_n_max(size)) / size
        n_max = max(1, math.floor(crowd * size * share), math.ceil(1.1 * size * share * COVER))
    normalizer = None if batch.normalizer is None else batch.normalizer * share
    return replace(training, batch=replace(batch, normalizer=normalizer, n_max=n_max))


def shadow_key(half: Problem, pool: Pool, config: ShadowConfig) -> str:
    """Names everything that a shadow model's bits depend on, but its number."""
    return blake2b(json.dumps(_about(half, pool, config), sort_keys=True).encode(), digest_size=16).hexdigest()


def _about(half: Problem, pool: Pool, config: ShadowConfig) -> dict[str, object]:
    settings = half.settings
    parts = ("training", "relation", "certificate", "ensemble", "noise")
    node = {name: getattr(settings, name) for name in parts}
    return {
        "format": FORMAT,
        "records": fingerprint(pool.records, pool.always),
        "public rows": fingerprint(half.dataset.test),
        "classes": list(half.dataset.classes),
        "declared size": half.dataset.declared_size,
        "seed": config.seed,
        "model": repr(settings.model),
        **_layers(half),
        **{name: None if value is None else plain_of(value) for name, value in node.items()},
        **made_by(half),
    }


def _layers(half: Problem) -> dict[str, object]:
    """The layers of a head that may be code of the user's own."""
    if not half.settings.certificate.boxes:
        return {}
    shape = half.dataset.train.features.shape[1:]
    return {"layers": str(half.settings.model.build(shape, half.classes, half.settings.training))}


def _trained(
    half: Problem, pool: Pool, sides: np.ndarray, which: Sequence[int], config: ShadowConfig, home: Path
) -> Iterator[Failure]:
    """(number, why it failed or nothing) of each model, as they end."""
    if not which:
        return
    about = home / "about.json"
    if not about.exists():
        write_atomic(about, as_json(_about(half, pool, config)))
    workers = min(config.workers or os.cpu_count() or 1, len(which))
    turns = min(len(which), workers * TURNS)
    tasks = ((half, pool, sides, which[turn::turns], home) for turn in range(turns))
    if workers == 1:
        with _one_thread():
            yield from (_train(half, pool, sides[index], index, home) for index in which)
        return
    with worker_processes(workers):
        for ended in Parallel(return_as="generator_unordered")(delayed(_train_some)(*task) for task in tasks):
            yield from ended


def _train_some(half: Problem, pool: Pool, sides: np.ndarray, which: Sequence[int], home: Path) -> list[Failure]:
    """One task of a process: records travel once for several models."""
    return [_train(half, pool, sides[index], index, home) for index in which]


def _train(half: Problem, pool: Pool, side: np.ndarray, index: int, home: Path) -> Failure:
    """Train one model and write what it says; in a process of its own."""
    try:
        model = fit(half.on(half.dataset.with_shard(_half_of(pool, side), half.dataset.declared_size)))
        logits = class_logits(model, pool.records.features)
        if not np.isfinite(logits).all():
            raise ConfigError("a logit is NaN or infinite")
    except (AgtError, ArithmeticError, ValueError, MemoryError) as error:
        return index, first_line(error)
    content = save({"logits": torch.from_numpy(np.ascontiguousarray(logits))})
    write_atomic(home / f"{_stem(index)}.{sha256(content).hexdigest()}.safetensors", content)
    return index, ""


def _half_of(pool: Pool, side: np.ndarray) -> Records:
    """The records of one model, in memory of its own: the same bytes at an aligned address give the same bits."""
    chosen = pool.records.take(side)
    chosen = with_added(chosen, pool.always) if len(pool.always) else chosen
    return replace(chosen, features=aligned(chosen.features))


def _stored(home: Path, index: int) -> np.ndarray | None:
    """[n, C] of a model that is there; a file that is not what was written is removed."""
    for path in sorted(home.glob(f"{_stem(index)}.*.safetensors")):
        content = path.read_bytes()
        if path.name.split(".")[1] == sha256(content).hexdigest():
            return load(content)["logits"].numpy()
        path.unlink(missing_ok=True)
    return None


def _stem(index: int) -> str:
    return f"model={index:04d}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """This process as a worker is: bits and times depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
