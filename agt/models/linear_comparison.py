"""Whether a linear classifier would be better than a network.

Everything here depends on private records, so it is for the data owner only.
"""

import math
from dataclasses import dataclass

import numpy as np

from agt.data.records import Records
from agt.distributed import group
from agt.messages import Message
from agt.models.constant_answers import MINIMUM_RECORDS, SIGN_TEST_LEVEL, sign_test
from agt.models.features import normalise_rows
from agt.models.model import Model

MAX_TRAINING_RECORDS = 5_000
"""The largest number of records on which the linear classifier is fitted."""
MAX_FEATURES = 3_000
"""With more features, fitting it takes too long, so nothing is compared."""
RIDGE_STRENGTH = 1e-3
"""The factor of the squared weights, relative to the mean squared error of rows of norm 1."""
CLEAR_GAP = 0.02
"""A classifier that is more accurate by less is not called better, whatever the test says."""


@dataclass(frozen=True)
class LinearComparison:
    """How often a network and a linear classifier label the same records correctly.

    Attributes:
        records: the number of records.
        network_correct: the number of records that the network labels correctly.
        linear_correct: the number of records that the linear classifier labels correctly.
        p_value: the p-value of the exact two-sided sign test on the records where only one of the
            two is right.
    """

    records: int
    network_correct: int
    linear_correct: int
    p_value: float

    @classmethod
    def from_answers(cls, is_right: np.ndarray) -> "LinearComparison":
        """Count correct answers, and test whether their difference may be due to chance.

        Args:
            is_right: [2, n] bool, which records the network and the linear classifier label
                correctly.
        """
        network_is_right, linear_is_right = is_right
        return cls(
            records=len(network_is_right),
            network_correct=int(network_is_right.sum()),
            linear_correct=int(linear_is_right.sum()),
            p_value=sign_test(network_is_right, linear_is_right),
        )

    @property
    def is_linear_better(self) -> bool:
        """Whether the linear classifier is clearly more accurate, and not by chance."""
        if self.records < MINIMUM_RECORDS:
            return False
        gap = (self.linear_correct - self.network_correct) / self.records
        return gap >= CLEAR_GAP and self.p_value < SIGN_TEST_LEVEL

    @property
    def warning(self) -> Message | None:
        """The warning that a linear classifier is clearly better; None: it is not better."""
        if not self.is_linear_better:
            return None
        return Message(
            "A plain linear classifier labels {linear:.3f} of {records:,} records correctly, but "
            "this network only {network:.3f}: compare with a linear head with its default settings "
            "({config:certificate=stability model=linear}). Whoever takes it because of this "
            "result chooses by private records, so that model has no private answers",
            linear=self.linear_correct / self.records,
            records=self.records,
            network=self.network_correct / self.records,
        )


def compare_with_linear_classifier(model: Model) -> LinearComparison | None:
    """Compare a network with a linear classifier that is fitted to the features of its dataset.

    The linear classifier is a ridge regression of the indicators of the classes, which takes a
    moment. A linear head with certificates takes longer and is about as accurate. No record is
    answered by a linear classifier that was fitted to it: the test records by one that was fitted
    to training records, and each half of the training records by one that was fitted to the other.
    The network was trained on all training records, so they favour it, but a small test set alone
    cannot show that a network is worse.

    Args:
        model: a trained model with its dataset; of many training records, some are used.

    Returns:
        The comparison on the test records if the linear classifier is better there, else on test
        and training records; None if the model is not a single network for classes, without noise
        from training; if there are too few records; or if several processes share the training.
    """
    settings = model.problem.settings
    dataset = model.problem.dataset
    is_network = not settings.certificate.covers_every_k and not settings.model.linear
    has_other_answers = settings.noise is not None or settings.ensemble.members > 1
    has_few_records = len(dataset.train) < 2 * MINIMUM_RECORDS
    if not is_network or has_other_answers or has_few_records or group().size > 1:
        return None
    if math.prod(dataset.train.features.shape[1:]) >= MAX_FEATURES:
        return None
    count = min(len(dataset.train), MAX_TRAINING_RECORDS)
    # At random, because records may be in the order of their labels; the seed is any constant.
    rows = np.random.default_rng(0).choice(len(dataset.train), count, replace=False)
    halves = [dataset.train.take(np.sort(half)) for half in np.array_split(rows, 2)]
    on_test = _compare(model, dataset.train.take(np.sort(rows)), dataset.test)
    on_halves = [_compare(model, halves[1], halves[0]), _compare(model, halves[0], halves[1])]
    compared = LinearComparison.from_answers(on_test)
    if compared.is_linear_better:
        return compared
    return LinearComparison.from_answers(np.hstack([on_test, *on_halves]))


def _compare(model: Model, training: Records, queries: Records) -> np.ndarray:
    """Return which of n queries a network and a linear classifier label correctly, [2, n] bool.

    Args:
        model: the network, which is the first row.
        training: the records to which the linear classifier is fitted.
        queries: labelled records that are not in ``training``; there may be none.
    """
    indicators = np.eye(model.problem.classes)[training.labels]
    inputs = _inputs(training.features)
    gram = inputs.T @ inputs
    np.fill_diagonal(gram, gram.diagonal() + RIDGE_STRENGTH * len(training))
    weights = np.linalg.solve(gram, inputs.T @ indicators)
    linear_answers = (_inputs(queries.features) @ weights).argmax(axis=1)
    network_answers = model.predict(queries.features)
    return np.stack([network_answers == queries.labels, linear_answers == queries.labels])


def _inputs(features: np.ndarray) -> np.ndarray:
    """Return features [n, ...] as a linear head takes them, rows of norm 1, with a last entry 1."""
    width = math.prod(features.shape[1:])
    rows = normalise_rows(features.reshape(len(features), width).astype(np.float64), 0.0, 1.0)
    return np.hstack([rows, np.ones((len(rows), 1))])
