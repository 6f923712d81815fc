"""Membership inference: guesses from a model's confidences or labels whether a record was in its
training data.

Scores are higher for members. phi = ln(p/(1 - p)) of the record's own label, computed from logits
without rounding p to 1: f_y - logsumexp of the other logits; of two classes it is the margin on the
label's side.

| attack       | score                                                     | needs                 |
|--------------|-----------------------------------------------------------|-----------------------|
| loss         | ln p: one threshold for all records (Yeom et al. 2018)    | nothing               |
| lira_online  | ln N(phi; models with the record) - ln N(phi; without)    | 2 models on each side |
|              | (Carlini et al. 2022)                                     |                       |
| rmia         | share of the pool z with [p(x)/p_ref(x)] /                | 1 model without       |
|              | [p(z)/p_ref(z)] >= 1 (Zarifzadeh 2024)                    |                       |
| labels       | how many of the record and its noisy copies keep its      | labels only           |
|              | label (Choquette-Choo 2021)                               |                       |

Gaussians are each record's own if at least 32 models are on either side; otherwise their variance
is pooled over all records. No certificate speaks of these scores. Certificates speak of labels,
which agt_audit/certificate.py attacks.

Sources: those named in the table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, log_expit, logsumexp
from scipy.stats import norm

from agt.errors import ConfigError
from agt_audit.roc import Roc
from agt_audit.shadows import Shadows

# on either side of a record; with fewer, one variance is pooled over all records
MODELS_FOR_OWN_VARIANCE = 32
RMIA_SLOPE = 0.3  # a of Zarifzadeh et al.: p_ref = ((1 + a) p_out + 1 - a) / 2
COPIES = 16
# of the copies' noise, in standard deviations of the features: from the first copy to the last
SPREAD = (0.1, 2.0)
LEAST_DEVIATION = 1e-9  # a standard deviation below it is that of models that agree to all digits


# -- scores
# --------------------------------------------------------------------------------------------------


def confidences(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return phi = ln(p/(1 - p)) of each record's label, [..., n].

    It is accurate where p itself would round to 0 or 1.

    Args:
        logits: [..., n, C], one for each of C classes.
        labels: [n] the records' labels, as indices of classes.
    """
    index = np.broadcast_to(labels[:, None], (*logits.shape[:-1], 1))
    of_label = np.take_along_axis(logits, index, axis=-1)[..., 0]
    others = logits.copy()
    np.put_along_axis(others, index, -np.inf, axis=-1)
    return of_label - logsumexp(others, axis=-1)


@dataclass(frozen=True)
class Reference:
    """Confidences of m shadow models in n records, against which a target model is compared.

    Attributes:
        phi: [m, n] each model's confidence ln(p/(1 - p)) in each record's label.
        included: [m, n] bool, whether the model was trained on the record.
    """

    phi: np.ndarray
    included: np.ndarray

    @classmethod
    def of(cls, shadows: "Shadows", labels: np.ndarray) -> "Reference":
        """Compute confidences of shadow models in their n records, whose labels are given, [n]."""
        return cls(confidences(shadows.logits, labels), shadows.included)

    def without_models(self, *models: int) -> "Reference":
        """Return the reference without the models of these indices."""
        others = np.delete(np.arange(len(self.phi)), models)
        return Reference(self.phi[others], self.included[others])

    @cached_property
    def law_with(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean [n] and standard deviation [n] of phi over the models with each record."""
        return gaussians(self.phi, self.included)

    @cached_property
    def law_without(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean [n] and standard deviation [n] of phi over the models without each record."""
        return gaussians(self.phi, ~self.included)

    @property
    def fewest_models(self) -> int:
        """The smallest number of models with a record, or without a record, over all records."""
        models = len(self.phi)
        models_with = self.included.sum(axis=0)
        fewest_with = int(models_with.min(initial=models))
        fewest_without = int((models - models_with).min(initial=models))
        return min(fewest_with, fewest_without)


def gaussians(phi: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the normal law of each record's phi from some of the models.

    If a record has fewer than ``MODELS_FOR_OWN_VARIANCE`` models, one variance is estimated for
    all records together. Standard deviations are at least ``LEAST_DEVIATION``.

    Args:
        phi: [m, n] confidences of m models.
        used: [m, n] bool, which models are used for each record.

    Returns:
        Means [n] and standard deviations [n].

    Raises:
        ConfigError: fewer than two models are used for a record.
    """
    count = used.sum(axis=0)
    if count.min(initial=2) < 2:
        raise ConfigError(too_few(len(phi)))
    mean = np.where(used, phi, 0).sum(axis=0) / count
    squares = np.where(used, (phi - mean) ** 2, 0).sum(axis=0)
    fewest = int(count.min(initial=MODELS_FOR_OWN_VARIANCE))
    if fewest < MODELS_FOR_OWN_VARIANCE:
        variance = np.full(len(mean), squares.sum() / (count - 1).sum())
    else:
        variance = squares / (count - 1)
    return mean, np.maximum(np.sqrt(variance), LEAST_DEVIATION)


def too_few(models: int) -> str:
    """Return the message of an error: there are too few shadow models for LiRA.

    Args:
        models: how many there are.
    """
    return (
        "LiRA needs at least 4 shadow models: two trained on each record and two not (6 if each "
        f"shadow model is the target in turn). There are only {models}: raise audit.shadows"
    )


def loss_scores(phi: np.ndarray, reference: Reference | None = None) -> np.ndarray:
    """Return the logarithm of the probability of each record's label, [n].

    Args:
        phi: [n] the target model's confidences.
        reference: not used; the argument is that of all ``ATTACKS``.
    """
    return log_expit(phi)


def lira_online(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """Return ln(likelihood of phi if trained on / likelihood if not) of each record, [n].

    Args:
        phi: [n] the target model's confidences.
        reference: at least two shadow models with and two without each record.

    Raises:
        ConfigError: there are fewer.
    """
    with_record = norm.logpdf(phi, *reference.law_with)
    without_record = norm.logpdf(phi, *reference.law_without)
    return with_record - without_record


def rmia(phi: np.ndarray, reference: Reference) -> np.ndarray:
    """Return the share of all attacked records whose likelihood ratio is at most the record's, [n].

    The ratio is p/p_ref, of the target model's probability of the record's label to that of a
    model of the population, which is estimated from shadow models without the record.

    Args:
        phi: [n] the target model's confidences.
        reference: shadow models; of a record that all of them were trained on, the mean
            probability is replaced by 0.
    """
    is_without = ~reference.included
    models_without = np.maximum(is_without.sum(axis=0), 1)
    sum_without = np.where(is_without, expit(reference.phi), 0).sum(axis=0)
    mean_without = sum_without / models_without
    p_ref = ((1 + RMIA_SLOPE) * mean_without + (1 - RMIA_SLOPE)) / 2
    ratio = expit(phi) / p_ref
    return np.searchsorted(np.sort(ratio), ratio, side="right") / len(ratio)


ATTACKS: Mapping[str, Callable[[np.ndarray, Reference], np.ndarray]] = {
    "loss": loss_scores,
    "lira_online": lira_online,
    "rmia": rmia,
}
"""Name -> (phi of the target [n], the shadow models) -> scores [n]."""


@dataclass(frozen=True)
class ShadowEvaluation:
    """Attacks on each of m shadow models, with the other ones as the reference.

    A target's complement, which was trained on the other half of the units, is left out of the
    reference, because it would reveal the target's records.

    Attributes:
        scores: name of an attack -> [m, n] scores, one row for each target.
        included: [m, n] bool, whether the target was trained on the record.
    """

    scores: Mapping[str, np.ndarray]
    included: np.ndarray

    @classmethod
    def of(cls, reference: Reference) -> "ShadowEvaluation":
        """Attack each shadow model with all ``ATTACKS``.

        Raises:
            ConfigError: without a target and its complement, fewer than two models with, or
                without, a record are left.
        """
        scores: dict[str, list[np.ndarray]] = {name: [] for name in ATTACKS}
        for target, phi in enumerate(reference.phi):
            is_complement = (reference.included == ~reference.included[target]).all(axis=1)
            complements = np.flatnonzero(is_complement).tolist()
            others = reference.without_models(target, *complements)
            if others.fewest_models < 2:
                raise ConfigError(too_few(len(reference.phi)))
            for name, attack in ATTACKS.items():
                scores[name].append(attack(phi, others))
        arrays = {name: np.array(rows) for name, rows in scores.items()}
        return cls(arrays, reference.included)

    def rocs(self, name: str) -> list[Roc]:
        """Return an attack's ROC curve on each target, in order."""
        return [Roc(row, side) for row, side in zip(self.scores[name], self.included, strict=True)]

    def threshold(self, name: str) -> float:
        """Return the one threshold that gives an attack the largest advantage over all targets.

        It does not depend on the run's own model, so it may be used to attack that model.
        """
        return Roc(self.scores[name].ravel(), self.included.ravel()).best

    def right_guesses(self, name: str) -> np.ndarray:
        """Return for how many targets an attack guesses each record's membership rightly, [n].

        It guesses that a record was trained on if the score is at least ``threshold``.
        """
        guessed_in = self.scores[name] >= self.threshold(name)
        return np.sum(guessed_in == self.included, axis=0)


def spread_of(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation of a number over target models.

    No confidence limits of the mean follow from them, because targets are not independent: they
    share records and references, and come in pairs of complements.
    """
    row = np.array(list(values))
    return float(row.mean()), float(row.std())


# -- labels alone
# --------------------------------------------------------------------------------------------------


def copies(features: np.ndarray, seed: int) -> Iterable[np.ndarray]:
    """Yield ``COPIES`` copies of features [n, ...], with Gaussian noise that grows with each copy.

    Args:
        features: [n, ...] features; the noise is in units of the standard deviation of all of them.
        seed: the seed of the noise.
    """
    rng = np.random.default_rng(seed)
    feature_deviation = float(np.std(features))
    for spread in np.geomspace(*SPREAD, COPIES):
        noise = rng.normal(size=features.shape).astype(features.dtype)
        yield features + noise * features.dtype.type(spread * feature_deviation)


def label_scores(
    answer: Callable[[np.ndarray], np.ndarray], features: np.ndarray, labels: np.ndarray, seed: int
) -> np.ndarray:
    """Return the scores of the label-only attack, [n].

    A record's score is the number of its noisy copies that are given its label, plus
    ``COPIES + 1`` if the record itself is: any record with its own label scores higher than one
    with another.

    Args:
        answer: features [n, ...] -> labels [n], of a model or a release. It is called once with
            the records, and then once with each set of copies.
        features: [n, ...] the records' features.
        labels: [n] the records' labels.
        seed: the seed of the copies' noise.
    """
    score = (answer(features) == labels) * (COPIES + 1)
    for copy in copies(features, seed):
        score += answer(copy) == labels
    return score.astype(np.float64)
