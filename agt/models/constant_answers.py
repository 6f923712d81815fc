"""Whether a model gives (nearly) the same answer to every query, and what its owner can change.

Everything here depends on private records, so it is for the data owner only.
"""

from typing import TYPE_CHECKING

import numpy as np
import scipy  # whose parts load when they are first used

from agt.messages import Message
from agt.models.features import normalise_rows

if TYPE_CHECKING:
    from agt.problem import Settings

NEARLY_CONSTANT_SHARE = 0.99
"""The share of one answer from which a model is called nearly constant."""
MINIMUM_RECORDS = 20
"""Of fewer records, nothing is said about a model as a whole."""
FOUND_SHARE = 0.2
"""A model that finds fewer of the records of the other classes than this share may be constant."""
ONE_SIDED_COSINE = 0.9
"""The mean cosine with the mean direction from which rows are said to point in one direction.

On scikit-learn's sets with features divided by their largest value, the middle of the range helped
from 0.96 on (docs/recipe.md), and hardly at 0.83 (digits).
"""
SIGN_TEST_LEVEL = 0.05
"""Below this p-value, a difference between two models is called significant."""


def advantage_over_constant(prediction: np.ndarray, labels: np.ndarray) -> int:
    """Return whether answers are right significantly more often than the most frequent class.

    It is the exact two-sided sign test on the records where only one of the two is right.

    Args:
        prediction: [n] class indices, the model's answers.
        labels: [n] the true class indices, at least one.

    Returns:
        1: the answers are significantly more accurate than the most frequent class of the labels;
        -1: they are significantly less accurate; 0: neither.
    """
    majority = int(np.bincount(labels).argmax())
    is_right = prediction == labels
    is_constant_right = labels == majority
    if sign_test(is_right, is_constant_right) >= SIGN_TEST_LEVEL:
        return 0
    return 1 if is_right.sum() > is_constant_right.sum() else -1


def sign_test(first_is_right: np.ndarray, second_is_right: np.ndarray) -> float:
    """Return the p-value of the exact two-sided sign test on records where only one is right.

    Args:
        first_is_right: [n] bool, the records that the first model labels correctly.
        second_is_right: [n] bool, those of the second.
    """
    wins = int((first_is_right & ~second_is_right).sum())
    losses = int((second_is_right & ~first_is_right).sum())
    high = max(wins, losses)
    low = min(wins, losses)
    if high == low:
        return 1.0
    # Twice P(X >= high) for X binomial(high + low, 1/2).
    return 2 * float(scipy.special.betainc(high, low + 1, 0.5))


def is_nearly_constant(prediction: np.ndarray, labels: np.ndarray | None) -> bool:
    """Return whether a model (nearly) always predicts one class, without much use of the others.

    | predictions                                                 | result |
    |-------------------------------------------------------------|--------|
    | fewer than ``MINIMUM_RECORDS``                              | False  |
    | more than 1 % differ from the most frequent class           | False  |
    | no labels, and at most 1 % differ                           | True   |
    | not significantly more accurate than the majority class     | True   |
    | more accurate, but with few predictions of other classes    | True   |
    | more accurate, with enough predictions of other classes     | False  |

    Few predictions of other classes are fewer than ``FOUND_SHARE`` of the records of other classes.

    Args:
        prediction: [n] class indices, the model's answers.
        labels: [n] the true class indices; None: the true classes are not known.
    """
    count = len(prediction)
    if count < MINIMUM_RECORDS:
        return False
    exceptions = count - int(np.bincount(prediction).max())
    if exceptions > count * (1 - NEARLY_CONSTANT_SHARE):
        return False
    if labels is None:
        return True
    other_records = count - int(np.bincount(labels).max())
    rarely_predicts_others = exceptions < FOUND_SHARE * other_records
    return rarely_predicts_others or advantage_over_constant(prediction, labels) < 1


def mean_cosine(features: np.ndarray) -> float:
    """Return the mean cosine of the angles between rows and their mean direction; 0 for no rows.

    Rows of zeros are left out. 1: all rows point in one direction.

    Args:
        features: [n, ...] numbers, one record a row.
    """
    if not len(features):
        return 0.0
    rows = features.reshape(len(features), -1).astype(np.float64)
    is_used = rows.any(axis=1)
    if not is_used.any():
        return 0.0
    directions = normalise_rows(rows[is_used], radius=0.0, length=1.0)
    # The mean of the cosines with the direction of a sum of unit vectors is the norm of their mean.
    return float(np.linalg.norm(directions.mean(axis=0)))


def one_sided_warning(features: np.ndarray) -> Message | None:
    """Return the warning that records point in nearly one direction, and the remedy; None: not.

    A linear head scales each record to norm 1, and then hardly separates such records. The remedy
    names no number that was computed from the records: a public range is the user's own knowledge.

    Args:
        features: [n, ...] features of training records as the head gets them, before it scales
            them; some suffice.
    """
    if len(features) < MINIMUM_RECORDS:
        return None
    cosine = mean_cosine(features)
    if cosine < ONE_SIDED_COSINE:
        return None
    start = Message(
        "the features of {count:,} training records point in nearly the same direction (mean "
        "cosine {cosine:.2f} with their mean direction), and a linear head, which scales each "
        "record to norm 1, hardly tells them apart",
        count=len(features),
        cosine=min(cosine, 0.99),
    )
    remedy = Message(
        "subtract a public center (such as the mean of public vectors) with "
        "{config:dataset.center=KEY}"
    )
    if features.min() >= 0:
        remedy = Message(
            "no feature is negative, so subtract the middle of their public range from all of "
            "them, for example {config:dataset.center=0.5 dataset.public_scaling=true} for values "
            "from 0 to 1"
        )
    return Message("{start}: {remedy}", start=start, remedy=remedy)


def constant_answer_remedy(settings: "Settings", *, is_one_sided: bool) -> Message:
    """Return the remedy for a model that gives (nearly) the same answer to every query.

    Args:
        settings: the settings of the training.
        is_one_sided: whether ``one_sided_warning`` has a remedy of its own, which comes first.
    """
    if not settings.certificate.covers_every_k:
        return Message(
            "Most networks under boxes answer the majority class (docs/measurements.md), and a "
            "linear head with its default settings ({config:certificate=stability model=linear}) "
            "usually does not. Or choose other settings on public data"
        )
    caution = _caution_remedy(settings.training.caution)
    if is_one_sided:
        return Message(
            "First subtract the middle of the features' public range "
            "({config:dataset.center=0.5 dataset.public_scaling=true} for values from 0 to 1). If "
            "that does not suffice: {caution}",
            caution=caution,
        )
    return caution


def _caution_remedy(caution: float) -> Message:
    """Return the advice to try a smaller ``training.caution``, with the price of it.

    It is not said again of a model that was trained with a smaller one already.

    Args:
        caution: the setting ``training.caution`` of the model.
    """
    useless = Message(
        "Where scores do not rank the classes either (an AUC near 0.5), these columns do not tell "
        "the classes apart, and no setting helps"
    )
    if caution < 1:
        return useless
    return Message(
        "Where scores rank the classes well (an AUC of 0.8, say), a model with "
        "{config:training.caution}={quarter:g} may answer other classes, too; its stable distances "
        "are about a quarter as large. Whoever takes it because of this result chooses by private "
        "records, so that model has no private answers. {useless}",
        quarter=caution / 4,
        useless=useless,
    )
