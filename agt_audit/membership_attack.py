"""Membership inference: who was trained on, judged from what the model says of a record.

Scores are higher for members. phi = ln(p/(1 - p)) of the record's own label, computed from logits
without rounding p to 1: f_y - logsumexp of the other logits; of two classes it is the margin on the
label's side.

| attack       | score                                                     | needs                 |
|--------------|-----------------------------------------------------------|-----------------------|
| loss         | ln p: one threshold for all records (Yeom et al. 2018)    | nothing               |
| lira_online  | ln N(phi; models with the record) - ln N(phi; without)    | 2 models on each side |
|              | (Carlini et al. 2022)                                     |                       |
| lira_offline | (phi - mean)/sd of the models without the record          | 2 models without      |
| rmia         | share of the pool z with [p(x)/p_ref(x)] /                | 1 model without       |
|              | [p(z)/p_ref(z)] >= 1 (Zarifzadeh 2024)                    |                       |
| labels       | how many of the record and its noisy copies keep its      | labels alone          |
|              | label (Choquette-Choo 2021)                               |                       |

Gaussians are each record's own where 32 models stand on either side, else their variance is pooled
over all records. RMIA is the offline one: p_ref = ((1 + A) p_out + 1 - A)/2, A = .3, p_out the mean
over models without the record; z are the records of the pool.

None of these scores is what a certificate speaks of: it speaks of labels. ``compare_labels``
attacks that claim itself.

Sources: as in the table.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import norm

from agt.errors import AgtError, ConfigError
from agt.models.model import Model
from agt_audit.neighbours import EditedRecords, neighbours_of
from agt_audit.roc import Roc
from agt_audit.shadows import Shadows
from agt_cli.report.findings import Finding, counterexamples

# on either side of a record; fewer, and one variance is pooled over all records
MODELS_FOR_OWN_VARIANCE = 32
A = 0.3  # of RMIA
COPIES = 16
# of the copies' noise, in standard deviations of the features: from the first copy to the last
SPREAD = (0.1, 2.0)
TINY = 1e-9  # a standard deviation below it is none: models that agree to all digits


# -- scores
# --------------------------------------------------------------------------------------------------


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
        """Of each half that was trained on with its complement, one after the other; a model whose
        other one failed has no pair.
        """
        opposite = (self.included[:-1] == ~self.included[1:]).all(axis=1)
        first = list[int]()
        for index in np.flatnonzero(opposite).tolist():
            first += [index] if not first or index > first[-1] + 1 else []
        kept = [model for index in first for model in (index, index + 1)]
        return Reference(self.phi[kept], self.included[kept])

    @property
    def with_and_without(self) -> tuple[np.ndarray, np.ndarray]:
        """[p, n] phi of the model of each pair that was trained on the record, and of the other
        one.
        """
        one, other = self.pairs.phi[::2], self.pairs.phi[1::2]
        inside = self.pairs.included[::2]
        return np.where(inside, one, other), np.where(inside, other, one)

    @property
    def least(self) -> tuple[int, int]:
        """The fewest models with a record, and without one."""
        with_it = self.included.sum(axis=0)
        return int(with_it.min(initial=len(self.phi))), int(
            (len(self.phi) - with_it).min(initial=len(self.phi))
        )


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
    variance = (
        np.full(len(mean), squares.sum() / (count - 1).sum()) if pooled else squares / (count - 1)
    )
    return mean, np.maximum(np.sqrt(variance), TINY)


def too_few(models: int) -> str:
    """Why LiRA cannot be made."""
    return (
        "LiRA needs at least 4 shadow models: two trained on each record and two not (6 if each "
        f"shadow model is the target in turn). There are only {models}: raise audit.shadows"
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
    """Each shadow model as the target in turn, judged by the others but its own complement, which
    would tell the answer.

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
            opposite = np.flatnonzero(
                (reference.included == ~reference.included[index]).all(axis=1)
            )
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
        """The threshold of the largest advantage over all targets: fixed before the run's own
        model is looked at.
        """
        return Roc(self.scores[name].ravel(), self.included.ravel()).best

    def right(self, name: str) -> np.ndarray:
        """[n] of how many targets that threshold says rightly whether they were trained on the
        record.
        """
        return np.sum((self.scores[name] >= self.threshold(name)) == self.included, axis=0)


def spread_of(values: Iterable[float]) -> tuple[float, float]:
    """(mean, standard deviation) over targets. Limits of the mean do not follow: targets share
    records and judges, and half of them are the others' complements.
    """
    row = np.array(list(values))
    return float(row.mean()), float(row.std())


# -- labels alone
# --------------------------------------------------------------------------------------------------


def copies(features: np.ndarray, seed: int) -> Iterable[np.ndarray]:
    """Noisy copies of the features, one after another: Gaussian noise that grows from copy to
    copy.
    """
    rng, unit = np.random.default_rng(seed), float(np.std(features))
    for spread in np.geomspace(*SPREAD, COPIES):
        noise = rng.normal(size=features.shape).astype(features.dtype)
        yield features + noise * features.dtype.type(spread * unit)


def label_scores(
    answer: Callable[[np.ndarray], np.ndarray], features: np.ndarray, labels: np.ndarray, seed: int
) -> np.ndarray:
    """[n] how many of the record and its noisy copies are given its label; a record that is not
    counts its copies last.

    Args:
        answer: features -> [n] labels, nominal or released: every query is asked once.
    """
    right = (answer(features) == labels) * (COPIES + 1)
    for copy in copies(features, seed):
        right += answer(copy) == labels
    return right.astype(np.float64)


def compare_labels(
    model: Model,
    units: np.ndarray,
    features: np.ndarray,
    distance: np.ndarray,
    ids: np.ndarray,
    why: str = "",
) -> Finding:
    """Ask both worlds, with and without each of some units, for labels that are certified for one
    unit.

    A certificate of distance 1 or more says that they agree. Then whatever an attack makes of these
    labels it makes of both worlds alike, and its advantage at guessing which one it sees is exactly
    0.

    Args:
        units: to leave out, one at a time, with all of their rows.
        features, distance, ids: [n, ...] queries, their stable distances and names.
        why: no units can be left out; empty: they can.
    """
    train, held = model.problem.dataset.train, distance >= 1
    found = None
    effort = "none"
    meaning = why or (
        "no models were compared, because there was no unit to leave out or no certified query"
    )
    if not why and held.any() and len(units):
        labels, differ = model.predict(features), list[tuple[str, int]]()
        edits = [EditedRecords.without_unit(train, unit) for unit in units.tolist()]
        for unit, other in zip(units.tolist(), neighbours_of(model, edits), strict=True):
            if isinstance(other, AgtError):
                raise other
            differ += [
                (unit, int(row)) for row in np.flatnonzero(other.predict(features) != labels)
            ]
        broken = [(unit, row) for unit, row in differ if held[row]]
        count, others = (len(units) * int(side.sum()) for side in (held, ~held))
        certified = int(held.sum())
        effort = (
            f"{len(units)} units (people) were left out of training, one at a time, and "
            f"{certified:,} certified queries were asked with and without each unit"
        )
        found, meaning = (
            float(len(broken)),
            f"all {count:,} certified labels were the same with and without the unit, so the "
            "attack's advantage is exactly 0 on these models",
        )
        if broken:
            unit, row = broken[0]
            query = ids[row]
            meaning = (
                f"{len(broken)} of {count:,} certified labels changed when a unit was left out "
                f"of training. The first is the label of query {query}, without unit {unit}"
            )
        uncertified_changes = len(differ) - len(broken)
        meaning = (
            f"{meaning}. Of the uncertified labels, {uncertified_changes:,} of {others:,} changed, "
            "and each of these reveals whether the unit was trained on"
        )
    return counterexamples(
        "labels at certified queries",
        "the labels of certified queries do not reveal whether a unit was trained on, so any "
        "attack on them has advantage 0",
        "models trained with and without a unit (a person's records) answered the same queries. "
        "Half of these units are those that the attack by scores detects most clearly, and half "
        "are random",
        effort,
        "labels that differ",
        found,
        meaning,
        "this audit detects a single certified label that differs. Nothing is claimed about "
        "uncertified queries",
    )


# -- the most exposed
# -----------------------------------------------------------------------------------------------


def exposure(phi: np.ndarray, reference: Reference) -> dict[str, np.ndarray]:
    """How exposed each record is to LiRA: columns by name, [n] each.

    Whether a record was in a shadow model was a fair coin of its unit, whatever else was in it:
    what it does to phi is an experiment, free of every other difference between members and
    non-members, and of the sizes of halves.

    Returns:
        score_lira: ln of the likelihood ratio, online, of the model that is audited;
        standard_error: from the means' uncertainty (asymptotic). shift: by how many standard
        deviations training on the record raises phi, on average over shadow models; shift_error:
        its standard error.

    Raises:
        ConfigError: fewer than two pairs of models.

    Formal guarantees
        Models come in pairs, one on a half of the units and one on all others, and are far from
        independent of each other: what the other records do to one they do to the other with the
        opposite sign. So all errors here are of pairs, which are independent.
    """
    reference = reference.pairs
    having, lacking = reference.with_and_without
    if len(having) < 2:
        raise ConfigError(too_few(len(reference.phi)))
    laws = (reference.within, reference.outside)
    pulls = ((phi - mean) / sd**2 for mean, sd in laws)
    moved = (
        pull * (side - side.mean(axis=0))
        for pull, side in zip(pulls, (having, lacking), strict=True)
    )
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
