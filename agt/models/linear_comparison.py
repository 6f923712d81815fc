"""Whether a linear classifier would be better than a network.

Everything here depends on private records, so it is for the data owner only.
"""

from dataclasses import dataclass

import numpy as np

from agt.data.records import Records
from agt.distributed import group
from agt.messages import Message
from agt.models.constant_answers import MINIMUM_RECORDS, SIGN_TEST_LEVEL, sign_test
from agt.models.doubts import sample_rows
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

    @property
    def is_linear_better(self) -> bool:
        """Whether the linear classifier is clearly more accurate, and not by chance."""
        gap = (self.linear_correct - self.network_correct) / self.records
        return gap >= CLEAR_GAP and self.p_value < SIGN_TEST_LEVEL

    @property
    def warning(self) -> Message | None:
        """The warning that a linear classifier is clearly better; None: it is not."""
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


def compare_with_linear_classifier(
    model: Model, training: Records, queries: Records
) -> LinearComparison | None:
    """Fit a linear classifier to the features of a network, and compare the two on some records.

    It is a ridge regression of the indicators of the classes, which takes a moment. A linear head
    with certificates takes longer and is about as accurate.

    Args:
        model: a trained model.
        training: labelled records for the linear classifier, as the network takes them; of many,
            evenly spaced ones are used.
        queries: labelled records that are not in ``training``. If the network was trained on them,
            it is favoured.

    Returns:
        None if the model is not a single network for classes, without noise from training; if there
        are too few records; or if several processes share the training.
    """
    settings = model.problem.settings
    is_network = not settings.certificate.covers_every_k and not settings.model.linear
    has_other_answers = settings.noise is not None or settings.ensemble.members > 1
    has_few_records = min(len(queries), len(training)) < MINIMUM_RECORDS
    if not is_network or has_other_answers or has_few_records or group().size > 1:
        return None
    chosen = training.take(sample_rows(training, MAX_TRAINING_RECORDS))
    indicators = np.eye(model.problem.classes)[chosen.labels]
    inputs = _inputs(chosen.features)
    if inputs.shape[1] > MAX_FEATURES:
        return None
    gram = inputs.T @ inputs
    np.fill_diagonal(gram, gram.diagonal() + RIDGE_STRENGTH * len(chosen))
    weights = np.linalg.solve(gram, inputs.T @ indicators)
    linear_answers = (_inputs(queries.features) @ weights).argmax(axis=1)
    linear_is_right = linear_answers == queries.labels
    network_is_right = model.predict(queries.features) == queries.labels
    return LinearComparison(
        records=len(queries),
        network_correct=int(network_is_right.sum()),
        linear_correct=int(linear_is_right.sum()),
        p_value=sign_test(network_is_right, linear_is_right),
    )


def _inputs(features: np.ndarray) -> np.ndarray:
    """Return features [n, ...] as a linear head takes them, rows of norm 1, with a last entry 1."""
    rows = normalise_rows(features.reshape(len(features), -1).astype(np.float64), 0.0, 1.0)
    return np.hstack([rows, np.ones((len(rows), 1))])
